/* SPDX-License-Identifier: MIT
 * fp8_paged_mqa_logits and fp4_paged_mqa_logits for sm_100, sm_103 and sm_107: persistent, warp-specialised, one pass
 * over the KV for every next_n.
 *
 * One CTA on an SM. A job is a tile of 128 tokens (M of the MMA) times a chunk of the query slots' heads (N, at most 128
 * columns); its accumulators are one of several stages of tensor memory. The roles:
 *
 *   producer warp     knows the schedule; announces requests (RequestNote, queries, weights) in Q stages, fills KV stages
 *   scale warp        MXFP4: brings scale factors into the order in which tensor memory takes them
 *   MMA thread        issues the MMAs of every job
 *   two warpgroups    take the jobs in turn; a thread has one token, and scores the chunk's slots for it
 *
 * MMA thread and warpgroups walk the same jobs by for_each_job, from the same notes, so they cannot disagree about the
 * work, whatever the lengths or a caller's schedule say; a request without work is not announced to anyone. K stays in
 * shared memory until all chunks have used it. */
#include "lib/base.cuh"
#include "lib/mbarrier.cuh"
#include "lib/registers.cuh"
#include "lib/tcgen05.cuh"
#include "lib/tma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
constexpr bool FP4 = @FP4@;
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;             /* query slots in one MMA */
constexpr int CHUNKS = @CHUNKS@;
constexpr int GROUP_TILES = @GROUP_TILES@;             /* tiles that a chunk is applied to before the next chunk's turn */
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int ACC_STAGES = @ACC_STAGES@;
constexpr int TENSOR_COLUMNS = @TENSOR_COLUMNS@;       /* allocated */
constexpr bool KV_SF_INTERLEAVED = @KV_SF_INTERLEAVED@; /* order of MXFP4 scales in a block */
constexpr bool ACC_F16 = @ACC_F16@;
constexpr bool EPI_F16 = @EPI_F16@;
typedef @OUT_TYPE@ Output;

constexpr int WALK_TOKENS = 128;
#include "lib/tile_walk.cuh"
#include "lib/head_sum_f32x2.cuh"

constexpr int MATH_WARPGROUPS = 2;
constexpr int MATH_WARPS = 4 * MATH_WARPGROUPS;
constexpr int PRODUCER_WARP = MATH_WARPS;
constexpr int MMA_WARP = MATH_WARPS + 1;
constexpr int SCALE_WARP = MATH_WARPS + 2;
constexpr int THREADS = 32 * (MATH_WARPS + 4);
/* 65536 registers of an SM: 384 threads start with 168 each. */
constexpr int CONTROL_REGISTERS = 64;
constexpr int MATH_REGISTERS = 216;

constexpr int ROW_BYTES = FP4 ? HEAD_DIM / 2 : HEAD_DIM; /* of a token or head */
constexpr int K_BYTES = WALK_TOKENS * ROW_BYTES;
constexpr int Q_BYTES = NEXT_N * NUM_HEADS * ROW_BYTES;
/* A tile is a part of one KV block, or several whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < WALK_TOKENS ? BLOCK_SIZE : WALK_TOKENS;
constexpr int BOXES = WALK_TOKENS / BOX_TOKENS;
constexpr int TOKEN_SCALE_BYTES = FP4 ? HEAD_DIM / 32 : 4;
constexpr int BOX_SCALE_BYTES = BOX_TOKENS * TOKEN_SCALE_BYTES;
constexpr int BOX_SCALE_PITCH = BOX_SCALE_BYTES < 128 ? 128 : BOX_SCALE_BYTES; /* TMA writes to multiples of 128 bytes */
constexpr int SCALE_BYTES = BOXES * BOX_SCALE_PITCH;

constexpr int LAST_CHUNK_SLOTS = NEXT_N - (CHUNKS - 1) * CHUNK_SLOTS;
constexpr bool RAGGED = LAST_CHUNK_SLOTS != CHUNK_SLOTS;
/* N of an MMA with M = 128 is a multiple of 16. Rows past the heads of a chunk are whatever lies behind them, in the next
 * chunk or in a gap behind the last one (not in a stage that is being filled); the columns they fill are never read. */
__device__ __forceinline__ constexpr int mma_columns(int slots) {
    return (slots * NUM_HEADS + 15) / 16 * 16;
}
constexpr int ACC_COLUMNS = mma_columns(CHUNK_SLOTS);
constexpr int Q_GAP_BYTES = (mma_columns(LAST_CHUNK_SLOTS) - LAST_CHUNK_SLOTS * NUM_HEADS) * ROW_BYTES;
/* Every accumulator stage has scale columns of its own, 4 for the tile and 4 for the chunk. So they are overwritten only
 * after the MMA that read them is complete: its accumulators have been waited for and given back. (Nothing orders a copy
 * after an earlier MMA.) */
constexpr int SCALE_COLUMNS = FP4 ? 8 : 0;
static_assert(ACC_STAGES * (ACC_COLUMNS + SCALE_COLUMNS) <= TENSOR_COLUMNS, "tensor memory");
/* A warpgroup waits for its own jobs only, and a parity tells but two phases apart: so every barrier for "computed" is
 * for jobs of one warpgroup. With an odd number of stages, which the warpgroups then use alternately, there are two for
 * each. */
constexpr int ACC_TURNS = ACC_STAGES % 2 == 0 ? ACC_STAGES : 2 * ACC_STAGES;
constexpr int SCALE_ROWS_BYTES = 512; /* scales of 128 rows as tcgen05_copy_scales takes them */
/* Interleaved words are in the pool as tensor memory takes them. With head_dim 64 there are only half as many bytes. */
constexpr bool CONVERT_K_SCALES = FP4 && !(KV_SF_INTERLEAVED && HEAD_DIM == 128);

/* Kernel argument; laid out alike in src/launch/sm100.c. Strides in elements. */
struct Arguments {
    TensorMap q;      /* [B, next_n, H, ROW_BYTES] bytes */
    TensorMap k;      /* [num_blocks, block_size, ROW_BYTES] bytes */
    TensorMap scales; /* [num_blocks, block_size] floats or groups of D/32 bytes */
    const u32 *q_sf;  /* [B, next_n, H], MXFP4 */
    i64 q_sf_stride_b, q_sf_stride_t;
    const float *weights;
    i64 weights_stride;
    const int *block_tables;
    i64 table_stride;
    const int *seq_lens;
    i64 lens_stride_b, lens_stride_t; /* the second is used with per_slot_lens */
    const int *schedule;              /* share starts {request, tile}, or null */
    Output *out;
    i64 out_stride;
    int batch;
    int max_tokens;  /* lengths are clamped to this: what max_seq_len and the block table cover */
    int clean_until; /* -inf is written from a row's limit to this column; 0: nothing is */
    int per_slot_lens;
    int num_shares;
    int stages; /* of the KV ring; at least GROUP_TILES */
    int ctas_per_sm; /* 1 */
    u32 ctas_reciprocal;
};

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

extern __shared__ __align__(1024) unsigned char shared_memory[];

template <class T> __device__ __forceinline__ T *shared_pointer(u32 address) {
    return reinterpret_cast<T *>(shared_memory + (address - shared_address(shared_memory)));
}

/* A value that all lanes of a converged warp have, so that the compiler knows it. */
__device__ __forceinline__ int warp_uniform(int value) {
    return __shfl_sync(FULL_WARP, value, 0);
}

/* Tokens that slot t of a request sees: row request * NEXT_N + t is written in columns [0, limit). */
__device__ __forceinline__ int slot_limit(const Arguments &args, int request, int slot) {
    if (args.per_slot_lens)
        return clamp(args.seq_lens[request * args.lens_stride_b + slot * args.lens_stride_t], 0, args.max_tokens);
    const int length = clamp(args.seq_lens[request * args.lens_stride_b], 0, args.max_tokens);
    return max(length - (NEXT_N - 1) + slot, 0);
}

__device__ __forceinline__ int request_length(const Arguments &args, int request) {
    if (!args.per_slot_lens)
        return slot_limit(args, request, NEXT_N - 1);
    int length = 0;
#pragma unroll
    for (int slot = 0; slot < NEXT_N; slot++)
        length = max(length, slot_limit(args, request, slot));
    return length;
}

__device__ __forceinline__ int slots_of(int chunk) {
    return RAGGED && chunk == CHUNKS - 1 ? LAST_CHUNK_SLOTS : CHUNK_SLOTS;
}

/* The jobs of a request, in the order in which they are computed: job(tile, chunk, its KV stage). Of a group of tiles one
 * chunk after the other: a warpgroup then keeps the weights of a chunk for several jobs. */
template <class Job>
__device__ __forceinline__ void for_each_job(int tiles, int stages, RingCursor &kv, const Job &job) {
#pragma unroll 1
    for (int first = 0; first < tiles; first += GROUP_TILES) {
        const int last = min(first + GROUP_TILES, tiles);
        RingCursor stage;
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            stage = kv;
#pragma unroll 1
            for (int tile = first; tile < last; tile++) {
                job(tile, chunk, stage);
                stage.advance(stages);
            }
        }
        kv = stage;
    }
}

/* By a whole warp, for which the note then is one value: the loops over its jobs do not cost a register in every lane. */
__device__ __forceinline__ RequestNote read_note(const Layout &layout, int stage) {
    const RequestNote note = *shared_pointer<RequestNote>(layout.note(stage));
    return {warp_uniform(note.request), warp_uniform(note.token), warp_uniform(note.tiles), 0};
}

/* ---- Producer ------------------------------------------------------------------------------------------------- */

/* Fills the stages; see tile_walk.cuh for who calls what. */
struct Loader {
    const Arguments &args;
    const Layout &layout;
    RingCursor kv, q;
    int blocks[BOXES]; /* of this lane's tile */

    __device__ __forceinline__ int length(int request) const {
        return request_length(args, request);
    }

    __device__ __forceinline__ void look_up(int request, int token, int tokens) {
        const int *row = args.block_tables + request * args.table_stride;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            const int start = token + box * BOX_TOKENS;
            blocks[box] = start < tokens ? row[start / BLOCK_SIZE] : -1;
        }
    }

    __device__ __forceinline__ void begin(const RequestNote &note) {
        const u32 full = layout.q_full(q.stage);
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;
        int *limits = shared_pointer<int>(layout.limits(q.stage));
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++)
            limits[slot] = slot_limit(args, note.request, slot);
        mbarrier_arrive_expect(full, Q_BYTES + Layout::WEIGHT_BYTES + Layout::Q_SCALE_BYTES);
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++) {
            tma_load_4d(layout.q(q.stage) + slot * NUM_HEADS * ROW_BYTES, &args.q, full, 0, 0, slot, note.request,
                        EVICT_LAST);
            bulk_load(layout.weights(q.stage) + slot * NUM_HEADS * 4,
                      args.weights + (static_cast<i64>(note.request) * NEXT_N + slot) * args.weights_stride,
                      NUM_HEADS * 4, full);
            if constexpr (FP4)
                bulk_load(layout.q_scales(q.stage) + slot * NUM_HEADS * 4,
                          args.q_sf + note.request * args.q_sf_stride_b + slot * args.q_sf_stride_t, NUM_HEADS * 4,
                          full);
        }
    }

    /* Blocks out of range, and those behind a request's length (-1), read as zeros. */
    __device__ __forceinline__ void load(int token) {
        mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);
        const u32 full = layout.full(kv.stage);
        mbarrier_arrive_expect(full, K_BYTES + BOXES * BOX_SCALE_BYTES);
        const int row = BLOCK_SIZE > WALK_TOKENS ? token % BLOCK_SIZE : 0;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            tma_load_3d(layout.k(kv.stage) + box * BOX_TOKENS * ROW_BYTES, &args.k, full, 0, row, blocks[box],
                        EVICT_FIRST);
            tma_load_2d(layout.scales(kv.stage) + box * BOX_SCALE_PITCH, &args.scales, full, row, blocks[box],
                        EVICT_FIRST);
        }
    }

    __device__ __forceinline__ void advance(bool request) {
        kv.advance(args.stages);
        if (request)
            q.advance(Q_STAGES);
    }

    /* Tells the others that there is no more, then waits until the tensor cores have made their last arrivals: none may
     * come after this CTA's end. */
    __device__ __forceinline__ void end() {
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = RequestNote{-1, 0, 0, 0};
        mbarrier_arrive(layout.q_full(q.stage));
        for (int i = 1; i < Q_STAGES; i++) {
            q.advance(Q_STAGES);
            mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        }
        for (int i = 0; i < args.stages; i++) {
            mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);
            kv.advance(args.stages);
        }
    }

    /* Brings the block ids closer that this CTA needs if all requests are as long as they may be, while the lengths are
     * still on their way: right for requests of equal length, harmless for others. A prefetch is no read: it cannot
     * fault, and what it brings is used only where the lengths say so. */
    __device__ __forceinline__ void prefetch_table() const {
        const u32 tiles = static_cast<u32>(walk_tiles(args.max_tokens));
        const u32 total = static_cast<u32>(args.batch) * tiles;
        const u32 tile = total / gridDim.x * blockIdx.x + min(blockIdx.x, total % gridDim.x) +
                         static_cast<u32>(lane_id());
        if (tile < total) {
            const u32 request = tile / tiles;
            const u32 column = (tile - request * tiles) * WALK_TOKENS / BLOCK_SIZE;
            asm volatile("prefetch.global.L1 [%0];" ::"l"(args.block_tables + request * args.table_stride + column));
        }
    }
};

/* ---- Scale factors -------------------------------------------------------------------------------------------- */

/* MXFP4: words of scales, one for a row of the operand, become rows as tcgen05_copy_scales takes them: word 32 i + l goes
 * to word i of row l. */
struct ScaleMover {
    const Layout &layout;
    int stages;
    RingCursor kv, q;

    /* The generic writes are for the tensor cores to read (async proxy): a fence by every writer, then one arrival. */
    __device__ __forceinline__ void publish(u32 rows, uint4 words, u32 barrier, bool last) const {
        *(shared_pointer<uint4>(rows) + lane_id()) = words;
        if (last) {
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (lane_id() == 0)
                mbarrier_arrive(barrier);
        }
    }

    /* Of query slots: rows past a chunk's heads get 0, for columns that nobody reads. */
    __device__ __forceinline__ void convert_q() const {
        const u32 *words = shared_pointer<u32>(layout.q_scales(q.stage));
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const int first = chunk * CHUNK_SLOTS * NUM_HEADS;
            const int count = min(CHUNK_SLOTS * NUM_HEADS, NEXT_N * NUM_HEADS - first);
            u32 x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = 32 * i + lane_id() < count ? words[first + 32 * i + lane_id()] : 0;
            publish(layout.q_scale_rows(q.stage, chunk), make_uint4(x[0], x[1], x[2], x[3]), layout.q_scaled(q.stage),
                    chunk == CHUNKS - 1);
        }
    }

    __device__ __forceinline__ u32 k_scales(int token) const {
        const u32 address = layout.scales(kv.stage) +
                            static_cast<u32>(token / BOX_TOKENS * BOX_SCALE_PITCH +
                                             token % BOX_TOKENS * TOKEN_SCALE_BYTES);
        return HEAD_DIM == 128 ? *shared_pointer<u32>(address) : *shared_pointer<unsigned short>(address);
    }

    __device__ __forceinline__ void convert_k() const {
        u32 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = k_scales(KV_SF_INTERLEAVED ? 4 * lane_id() + i : 32 * i + lane_id());
        publish(layout.k_scale_rows(kv.stage), make_uint4(x[0], x[1], x[2], x[3]), layout.scaled(kv.stage), true);
    }

    __device__ __forceinline__ void run() {
        for (;; q.advance(Q_STAGES)) {
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const int tiles = shared_pointer<RequestNote>(layout.note(q.stage))->tiles;
            if (tiles == 0)
                break;
            convert_q();
            if constexpr (CONVERT_K_SCALES) {
                for (int tile = 0; tile < tiles; tile++) {
                    mbarrier_wait(layout.full(kv.stage), kv.parity);
                    convert_k();
                    kv.advance(stages);
                }
            }
            if (lane_id() == 0)
                mbarrier_arrive(layout.q_empty(q.stage));
        }
    }
};

/* ---- MMA ------------------------------------------------------------------------------------------------------ */

/* One thread issues everything, in order; so copies of scales come before the MMAs that use them. */
struct Multiplier {
    const Layout &layout;
    int stages;
    u32 tensor;
    RingCursor kv, q, acc, turn;

    __device__ __forceinline__ u32 scale_columns() const {
        return tensor + static_cast<u32>(ACC_STAGES * ACC_COLUMNS + acc.stage * SCALE_COLUMNS);
    }

    __device__ __forceinline__ void multiply(int chunk, const RingCursor &stage) const {
        const u32 d = tensor + static_cast<u32>(acc.stage * ACC_COLUMNS);
        const u64 a = tcgen05_operand<ROW_BYTES>(layout.k(stage.stage));
        const u64 b = tcgen05_operand<ROW_BYTES>(layout.q(q.stage) +
                                                 static_cast<u32>(chunk * CHUNK_SLOTS * NUM_HEADS * ROW_BYTES));
        const int columns = mma_columns(slots_of(chunk));
        if constexpr (FP4) {
            const u32 scales_a = scale_columns();
            const u32 scales_b = scales_a + 4;
            tcgen05_copy_scales(scales_a, tcgen05_scale_rows(layout.k_scale_rows(stage.stage)));
            tcgen05_copy_scales(scales_b, tcgen05_scale_rows(layout.q_scale_rows(q.stage, chunk)));
#pragma unroll
            for (int step = 0; step < HEAD_DIM / 64; step++)
                tcgen05_mma_mxf4(d, a + 2 * step, b + 2 * step, tcgen05_mxf4(columns, 2 * step), scales_a, scales_b,
                                 step > 0);
        } else {
#pragma unroll
            for (int step = 0; step < HEAD_DIM / 32; step++)
                tcgen05_mma_e4m3(d, a + 2 * step, b + 2 * step, tcgen05_e4m3(columns, ACC_F16), step > 0);
        }
    }

    __device__ __forceinline__ void run() {
        for (;; q.advance(Q_STAGES)) {
            /* A KV barrier says nothing about the queries: they are waited for on their own. */
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const int tiles = shared_pointer<RequestNote>(layout.note(q.stage))->tiles;
            if (tiles == 0)
                break;
            if constexpr (FP4)
                mbarrier_wait(layout.q_scaled(q.stage), q.parity);
            for_each_job(tiles, stages, kv, [&](int, int chunk, const RingCursor &stage) {
                if (chunk == 0) {
                    mbarrier_wait(layout.full(stage.stage), stage.parity);
                    if constexpr (CONVERT_K_SCALES)
                        mbarrier_wait(layout.scaled(stage.stage), stage.parity);
                }
                /* The accumulators have been read: the readers' fence, their arrivals, this wait, this fence. */
                mbarrier_wait(layout.acc_empty(acc.stage), acc.parity ^ 1);
                tcgen05_fence_after();
                multiply(chunk, stage);
                tcgen05_commit(layout.acc_full(turn.stage));
                /* K (and its scales, MXFP4) may be overwritten once the last chunk's MMAs have read it: a commit, not an
                 * arrival of this thread, which runs ahead of them. */
                if (chunk == CHUNKS - 1)
                    tcgen05_commit(layout.empty(stage.stage));
                acc.advance(ACC_STAGES);
                turn.advance(ACC_TURNS);
            });
            /* The MMAs that read the queries are complete once the warpgroups, who have waited for each, arrive too. */
            mbarrier_arrive(layout.q_empty(q.stage));
        }
    }
};

/* ---- Scores --------------------------------------------------------------------------------------------------- */

/* A warpgroup: every second job. */
struct Scorer {
    static constexpr int COLUMNS = CHUNK_SLOTS * NUM_HEADS;
    static constexpr int PIECE = 16; /* columns loaded at a time, while the ones before are summed */

    const Arguments &args;
    const Layout &layout;
    u32 lanes;   /* tensor memory address of this warp's lanes */
    bool active; /* whether the next job is ours */
    RingCursor kv, q, turn;

    HeadWeights<COLUMNS> weights;

    __device__ __forceinline__ int tile_row() const {
        return static_cast<int>(threadIdx.x % 128);
    }

    /* One arrival for each warp, once all its lanes have read. */
    __device__ __forceinline__ void release(u32 barrier) const {
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(barrier);
    }

    /* A piece, or what is left of the columns: a multiple of 8. */
    __device__ __forceinline__ void load_piece(u32 *cells, u32 address, int columns) const {
        if (columns >= PIECE) {
            tcgen05_load<PIECE>(cells, address);
        } else {
            if (columns & 16)
                tcgen05_load<16>(cells, address);
            if (columns & 8)
                tcgen05_load<8>(cells + (columns & 16), address + static_cast<u32>(columns & 16));
        }
    }

    /* The sum over the heads from column `address` on, no term larger than it has to be; by a whole warp. */
    __device__ __forceinline__ float careful_sum(u32 address, const float *w) const {
        float sum = 0.f;
#pragma unroll 1
        for (int head = 0; head < NUM_HEADS; head += 8) {
            u32 x[8];
            tcgen05_load<8>(x, address + static_cast<u32>(head));
            tcgen05_wait_loads<8>(x);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum = __fmaf_rn(w[head + i], relu(scores_f32(x[i], x[i]).x), sum);
        }
        return sum;
    }

    __device__ __forceinline__ void score(int request, int chunk, int token, const RingCursor &stage) {
        float scale = 1.f;
        if constexpr (!FP4) {
            /* Every reader of what TMA wrote waits for it itself; and K is free only when its scales are read, too. */
            mbarrier_wait(layout.full(stage.stage), stage.parity);
            const int r = tile_row();
            scale = *shared_pointer<float>(layout.scales(stage.stage) +
                                           static_cast<u32>(r / BOX_TOKENS * BOX_SCALE_PITCH + r % BOX_TOKENS * 4));
            release(layout.empty(stage.stage));
        }
        const int first_slot = chunk * CHUNK_SLOTS;
        const int slots = slots_of(chunk);
        const int *limits = shared_pointer<int>(layout.limits(q.stage)) + first_slot;
        Output *out = args.out + (static_cast<i64>(request) * NEXT_N + first_slot) * args.out_stride + token;

        /* The MMA is complete: its commit, this wait, this fence. */
        mbarrier_wait(layout.acc_full(turn.stage), turn.parity);
        tcgen05_fence_after();
        const int acc_stage = turn.stage % ACC_STAGES;
        const u32 address = lanes + static_cast<u32>(acc_stage * ACC_COLUMNS);
        u32 cells[2][PIECE];
        HeadSum sums;
        u32 suspects = 0; /* slots whose sum is not finite */
        load_piece(cells[0], address, COLUMNS);
#pragma unroll
        for (int at = 0; at < COLUMNS; at += PIECE) {
            u32 *const x = cells[at / PIECE % 2];
            tcgen05_wait_loads<(COLUMNS < PIECE ? COLUMNS : PIECE)>(x);
            const int next = at + PIECE;
            if (next < COLUMNS && (!RAGGED || next < slots * NUM_HEADS))
                load_piece(cells[next / PIECE % 2], address + static_cast<u32>(next), COLUMNS - next);
#pragma unroll
            for (int column = at; column < min(next, COLUMNS); column += 8) {
                const int slot = column / NUM_HEADS;
                if (RAGGED && slot >= slots)
                    continue;
                if (column % NUM_HEADS == 0)
                    sums.clear();
                sums.add8(x + column - at, weights, column / 2);
                if (column % NUM_HEADS == NUM_HEADS - 8) {
                    const float sum = sums.total();
                    suspects |= is_finite(sum) ? 0 : 1u << slot;
                    store_if(token < limits[slot], out + slot * args.out_stride, FP4 ? sum : sum * scale);
                }
            }
        }
        if (!EPI_F16 && __any_sync(FULL_WARP, suspects != 0)) {
#pragma unroll 1
            for (int slot = 0; slot < slots; slot++) {
                const u32 first = static_cast<u32>(slot * NUM_HEADS);
                const float sum =
                    careful_sum(address + first, shared_pointer<float>(layout.weights(q.stage)) +
                                                     first_slot * NUM_HEADS + first);
                store_if((suspects >> slot & 1) && token < limits[slot], out + slot * args.out_stride,
                         FP4 ? sum : sum * scale);
            }
        }
        /* Loads are complete (waited for) before the MMA thread may overwrite the stage. */
        tcgen05_fence_before();
        release(layout.acc_empty(acc_stage));
    }

    __device__ __forceinline__ void run() {
        for (;; q.advance(Q_STAGES)) {
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const RequestNote note = read_note(layout, q.stage);
            if (note.tiles == 0)
                break;
            int held = -1; /* chunk whose weights are in the registers */
            for_each_job(note.tiles, args.stages, kv, [&](int tile, int chunk, const RingCursor &stage) {
                if (active) {
                    if (chunk != held) {
                        weights.load(shared_pointer<float>(layout.weights(q.stage)) + chunk * COLUMNS,
                                     slots_of(chunk) * NUM_HEADS);
                        held = chunk;
                    }
                    score(note.request, chunk, note.token + tile * WALK_TOKENS + tile_row(), stage);
                }
                active = !active;
                turn.advance(ACC_TURNS);
            });
            release(layout.q_empty(q.stage));
        }
    }
};

/* clean_logits: -inf from each row's limit to clean_until, in pieces dealt out over all math threads of the grid. */
__device__ __forceinline__ void clean_rows(const Arguments &args, int thread) {
    constexpr int PIECE = 2048;
    constexpr int MATH_THREADS = 32 * MATH_WARPS;
    const int pieces = (args.clean_until + PIECE - 1) / PIECE;
    const i64 items = static_cast<i64>(args.batch) * NEXT_N * pieces;
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 row = item / pieces;
        const int begin = static_cast<int>(item - row * pieces) * PIECE;
        const int request = static_cast<int>(row / NEXT_N);
        const int limit = slot_limit(args, request, static_cast<int>(row - static_cast<i64>(request) * NEXT_N));
        const int end = min(args.clean_until - begin, PIECE) + begin;
        Output *out = args.out + row * args.out_stride;
#pragma unroll 1
        for (int column = max(begin, limit) + thread; column < end; column += MATH_THREADS)
            out[column] = convert<Output>(-__int_as_float(0x7f800000));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) paged_mqa_logits(const __grid_constant__ Arguments args) {
    const Layout layout{shared_address(shared_memory), args.stages};
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = warp_uniform(thread / 32);

    if (thread == 0) {
        tma_prefetch_map(&args.k);
        tma_prefetch_map(&args.scales);
        tma_prefetch_map(&args.q);
    }
    if (warp == 1) {
        for (int i = lane_id(); i < args.stages; i += 32) {
            mbarrier_init(layout.full(i), 1);
            mbarrier_init(layout.scaled(i), 1);
            /* The last MMA's commit; FP8: and every warp that has read scales, for each chunk. */
            mbarrier_init(layout.empty(i), FP4 ? 1 : 1 + 4 * CHUNKS);
        }
        if (lane_id() < Q_STAGES) {
            mbarrier_init(layout.q_full(lane_id()), 1);
            mbarrier_init(layout.q_scaled(lane_id()), 1);
            mbarrier_init(layout.q_empty(lane_id()), 1 + MATH_WARPS + (FP4 ? 1 : 0));
        }
        if (lane_id() < ACC_TURNS)
            mbarrier_init(layout.acc_full(lane_id()), 1);
        if (lane_id() < ACC_STAGES)
            mbarrier_init(layout.acc_empty(lane_id()), 4);
        mbarrier_init_fence();
    }
    /* This warp frees it below: no path leaves the kernel in between. Alone on its SM, so it never waits for another CTA
     * (but for one that is about to end). */
    if (warp == MMA_WARP) {
        tcgen05_alloc(layout.tensor(), TENSOR_COLUMNS);
        tcgen05_fence_before();
    }

    grid_dependency_wait();
    grid_dependency_trigger();

    /* Lengths: up to 32 are read by the producer alone, more are summed in chunks by the whole CTA. */
    int *chunk_tiles = shared_pointer<int>(layout.chunk_tiles());
    const int chunk_length = chunk_length_of(args.batch);
    int length = 0;
    if (args.batch <= 32) {
        if (warp == PRODUCER_WARP && lane_id() < args.batch)
            length = request_length(args, lane_id());
    } else if (args.schedule == nullptr) {
        sum_chunks(args.batch, chunk_length, warp, THREADS / 32, chunk_tiles,
                   [&](int request) { return walk_tiles(request_length(args, request)); });
    }
    if (warp == PRODUCER_WARP && args.schedule == nullptr)
        Loader{args, layout}.prefetch_table();
    __syncthreads();
    tcgen05_fence_after();
    const u32 tensor = *shared_pointer<u32>(layout.tensor());

    if (warp < MATH_WARPS) {
        take_registers<MATH_REGISTERS>();
        Scorer{args, layout, tensor + (static_cast<u32>(warp % 4 * 32) << 16), warp / 4 == 0}.run();
        if (args.clean_until > 0)
            clean_rows(args, thread);
        tcgen05_fence_before();
    } else {
        give_registers<CONTROL_REGISTERS>();
        if (warp == PRODUCER_WARP) {
            Loader loader{args, layout};
            walk(loader, args.batch, args.schedule, args.num_shares, length, chunk_tiles, chunk_length);
            if (lane_id() == 0)
                loader.end();
        } else if (warp == MMA_WARP) {
            if (elect_one())
                Multiplier{layout, args.stages, tensor}.run();
        } else if (FP4 && warp == SCALE_WARP) {
            ScaleMover{layout, args.stages}.run();
        }
        __syncwarp();
    }
    __syncthreads();
    if (warp == MMA_WARP) {
        tcgen05_fence_after();
        tcgen05_free(tensor, TENSOR_COLUMNS);
    }
}
