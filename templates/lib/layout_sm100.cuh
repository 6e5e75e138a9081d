/* SPDX-License-Identifier: MIT
 * Sizes of what the tcgen05 kernels hold in shared memory and in tensor memory, and where it is. Needs the specialised
 * constants and WALK_TOKENS. src/plan/sm100.c counts the same bytes and columns. */

constexpr int ROW_BYTES = FP4 ? HEAD_DIM / 2 : HEAD_DIM; /* of a token or head */
constexpr int K_BYTES = WALK_TOKENS * ROW_BYTES;
constexpr int Q_BYTES = NEXT_N * NUM_HEADS * ROW_BYTES;
/* A tile is a part of one KV block, or several whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < WALK_TOKENS ? BLOCK_SIZE : WALK_TOKENS;
constexpr int BOXES = WALK_TOKENS / BOX_TOKENS;
constexpr int TOKEN_SCALE_BYTES = FP4 ? HEAD_DIM / 32 : 4;
constexpr int BOX_SCALE_BYTES = BOX_TOKENS * TOKEN_SCALE_BYTES;
/* TMA writes to multiples of 128 bytes. */
constexpr int BOX_SCALE_PITCH = BOX_SCALE_BYTES < 128 ? 128 : BOX_SCALE_BYTES;
constexpr int SCALE_BYTES = BOXES * BOX_SCALE_PITCH;

constexpr int LAST_CHUNK_SLOTS = NEXT_N - (CHUNKS - 1) * CHUNK_SLOTS;
constexpr bool RAGGED = LAST_CHUNK_SLOTS != CHUNK_SLOTS;
/* N of an MMA with M = 128 is a multiple of 16. Rows past the heads of a chunk are whatever lies behind them, in the
 * next chunk or in a gap behind the last one (not in a stage that is being filled); the columns they fill are never
 * read. */
__device__ __forceinline__ constexpr int mma_columns(int slots) {
    return (slots * NUM_HEADS + 15) / 16 * 16;
}
constexpr int ACC_COLUMNS = mma_columns(CHUNK_SLOTS);
constexpr int Q_GAP_BYTES = (mma_columns(LAST_CHUNK_SLOTS) - LAST_CHUNK_SLOTS * NUM_HEADS) * ROW_BYTES;
/* Every accumulator stage has scale columns of its own, 4 for the tile and 4 for the chunk. So they are overwritten
 * only after the MMA that read them is complete: its accumulators have been waited for and given back. (Nothing orders
 * a copy after an earlier MMA.) */
constexpr int SCALE_COLUMNS = FP4 ? 8 : 0;
static_assert(ACC_STAGES * (ACC_COLUMNS + SCALE_COLUMNS) <= TENSOR_COLUMNS, "tensor memory");
/* A warpgroup waits for its own jobs only, and a parity tells but two phases apart: so every barrier for "computed" is
 * for jobs of one warpgroup. With an odd number of stages, which the warpgroups then use alternately, there are two for
 * each. */
constexpr int ACC_TURNS = ACC_STAGES % 2 == 0 ? ACC_STAGES : 2 * ACC_STAGES;
constexpr int SCALE_ROWS_BYTES = 512; /* scales of 128 rows as tcgen05_copy_scales takes them */
/* Interleaved words are in the pool as tensor memory takes them. With head_dim 64 there are only half as many bytes. */
constexpr bool CONVERT_K_SCALES = FP4 && !(KV_SF_INTERLEAVED && HEAD_DIM == 128);

/* Addresses in shared memory, from the 1024-aligned base: Q stages, KV ring, scales, then small things. */
struct Layout {
    u32 base;
    int stages;

    static constexpr int Q_STAGE_BYTES = Q_BYTES + Q_GAP_BYTES;
    static constexpr int Q_REGION = (Q_STAGES * Q_STAGE_BYTES + 1023) / 1024 * 1024;
    static constexpr int WEIGHT_BYTES = NEXT_N * NUM_HEADS * 4;
    static constexpr int Q_SCALE_BYTES = FP4 ? NEXT_N * NUM_HEADS * 4 : 0;
    static constexpr int Q_SCALE_ROWS_BYTES = FP4 ? CHUNKS * SCALE_ROWS_BYTES : 0;
    static constexpr int K_SCALE_ROWS_BYTES = CONVERT_K_SCALES ? SCALE_ROWS_BYTES : 0;
    static constexpr int LIMIT_BYTES = (NEXT_N * 4 + 15) / 16 * 16;

    __device__ __forceinline__ u32 q(int stage) const {
        return base + static_cast<u32>(stage * Q_STAGE_BYTES);
    }
    __device__ __forceinline__ u32 k(int stage) const {
        return base + Q_REGION + static_cast<u32>(stage * K_BYTES);
    }
    __device__ __forceinline__ u32 scales(int stage) const { /* as they lie in the pool */
        return k(stages) + static_cast<u32>(stage * SCALE_BYTES);
    }
    __device__ __forceinline__ u32 k_scale_rows(int stage) const { /* as tensor memory takes them */
        return CONVERT_K_SCALES ? scales(stages) + static_cast<u32>(stage * K_SCALE_ROWS_BYTES) : scales(stage);
    }
    __device__ __forceinline__ u32 q_scale_rows(int stage, int chunk) const {
        return scales(stages) + static_cast<u32>(stages * K_SCALE_ROWS_BYTES + stage * Q_SCALE_ROWS_BYTES +
                                                 chunk * SCALE_ROWS_BYTES);
    }
    __device__ __forceinline__ u32 q_scales(int stage) const {
        return q_scale_rows(Q_STAGES, 0) + static_cast<u32>(stage * Q_SCALE_BYTES);
    }
    __device__ __forceinline__ u32 weights(int stage) const {
        return q_scales(Q_STAGES) + static_cast<u32>(stage * WEIGHT_BYTES);
    }
    __device__ __forceinline__ u32 limits(int stage) const {
        return weights(Q_STAGES) + static_cast<u32>(stage * LIMIT_BYTES);
    }
    __device__ __forceinline__ u32 note(int stage) const {
        return limits(Q_STAGES) + static_cast<u32>(stage * 16);
    }

    /* Barriers. Q stage: filled; scales converted (MXFP4); free. */
    __device__ __forceinline__ u32 q_full(int stage) const {
        return note(Q_STAGES) + static_cast<u32>(stage * 32);
    }
    __device__ __forceinline__ u32 q_scaled(int stage) const {
        return q_full(stage) + 8;
    }
    __device__ __forceinline__ u32 q_empty(int stage) const {
        return q_full(stage) + 16;
    }
    /* Accumulators: computed; read. */
    __device__ __forceinline__ u32 acc_full(int turn) const {
        return q_full(Q_STAGES) + static_cast<u32>(turn * 8);
    }
    __device__ __forceinline__ u32 acc_empty(int stage) const {
        return acc_full(ACC_TURNS) + static_cast<u32>(stage * 8);
    }
    /* KV stage: as a Q stage. */
    __device__ __forceinline__ u32 full(int stage) const {
        return acc_empty(ACC_TURNS) + static_cast<u32>(stage * 32);
    }
    __device__ __forceinline__ u32 scaled(int stage) const {
        return full(stage) + 8;
    }
    __device__ __forceinline__ u32 empty(int stage) const {
        return full(stage) + 16;
    }
    __device__ __forceinline__ u32 tensor() const {
        return full(stages);
    }
    __device__ __forceinline__ u32 chunk_tiles() const {
        return tensor() + 16;
    }
};
