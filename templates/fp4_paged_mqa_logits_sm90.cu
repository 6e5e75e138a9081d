/* SPDX-License-Identifier: MIT
 * fp4_paged_mqa_logits for sm_90a: persistent, warp-specialised, one pass over the KV for every next_n.
 *
 * Hopper multiplies no 4-bit numbers, so a math warpgroup expands a tile's keys to E4M3 in registers, as the A operand of
 * wgmma, and a request's queries to E4M3 in shared memory, as B. The scales go along: a token's (or head's) scales become
 * shifts relative to the largest of them, which E4M3 holds as long as they differ by no more than MAX_SHIFT powers of two;
 * the largest itself multiplies the token's score, or the head's weight. What does not fit (scales further apart, NaN,
 * weights near the ends of float32) is called wild, and scored apart, slowly, number by number. Whether a score is wild
 * depends on its own token and query slot alone, so its bits do, too.
 *
 * The rest is as in fp8_paged_mqa_logits_sm90.cu: a producer warp that alone knows the schedule, a ring of KV stages, a
 * RequestNote for each request, stores while the tensor cores work on the next tile. */
#include "lib/base.cuh"
#include "lib/mbarrier.cuh"
#include "lib/tma.cuh"
#include "lib/wgmma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"
#include "lib/mxfp4.cuh"

/* Specialised constants, filled in by the host. */
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int MAX_CTAS_PER_SM = @MAX_CTAS_PER_SM@; /* the launch may use fewer */
constexpr int STAGE_TILES = 1;
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;         /* query slots in one wgmma */
constexpr int CHUNKS = @CHUNKS@;
constexpr bool SCALES_INTERLEAVED = @SCALES_INTERLEAVED@;
constexpr bool WEIGHTS_IN_REGISTERS = @WEIGHTS_IN_REGISTERS@;
constexpr bool ACC_F16 = false;
constexpr bool EPI_F16 = false;
constexpr bool DOUBLED_RELU = true; /* products of E4M3 numbers are far from float32's end */
typedef @OUT_TYPE@ Output;

WGMMA_DEFINE_A(float, F32, @CHUNK_N@, @CHUNK_REGISTERS@, "@CHUNK_A@", "@CHUNK_B@")
#include "lib/head_sum.cuh"

constexpr int MATH_WARPS = 4;
constexpr int MATH_THREADS = 32 * MATH_WARPS;
constexpr int THREADS = MATH_THREADS + 32;
constexpr int SLOTS = CHUNKS * CHUNK_SLOTS; /* with those that only fill up the last chunk: copies of the last slot */
constexpr int GROUPS = HEAD_DIM / 32;       /* scales of a token or head */
constexpr int STEPS = HEAD_DIM / 32;        /* of K in wgmma */
constexpr int ROW_BYTES = HEAD_DIM / 2;     /* packed numbers of a token or head */
constexpr int LANE_WORDS = HEAD_DIM / 32;   /* of these that one lane of a quad expands, 8 numbers each */
/* A tile is a part of one KV block, or several whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < TILE_TOKENS ? BLOCK_SIZE : TILE_TOKENS;
constexpr int BOXES = TILE_TOKENS / BOX_TOKENS;
/* Interleaved scales of half a block lie all over the block's scales. */
constexpr int BOX_SCALE_BYTES = (SCALES_INTERLEAVED ? BLOCK_SIZE : BOX_TOKENS) * GROUPS;
constexpr int BOX_SCALE_PITCH = BOX_SCALE_BYTES < 128 ? 128 : BOX_SCALE_BYTES; /* TMA writes to multiples of 128 bytes */
constexpr int MAP_ROW_BYTES = BOX_TOKENS * ROW_BYTES < 1024 ? BOX_TOKENS * ROW_BYTES : 1024;
constexpr int K_BYTES = TILE_TOKENS * ROW_BYTES;
constexpr int SCALE_BYTES = BOXES * BOX_SCALE_PITCH;

#include "lib/arguments.cuh"
#include "lib/producer.cuh"

/* Kernel argument; laid out alike in src/launch/sm90.c. */
struct Arguments {
    TensorMap k;      /* [num_blocks, block_size * D/2 / MAP_ROW_BYTES, MAP_ROW_BYTES / 4] words */
    TensorMap scales; /* [num_blocks, block_size] elements of D/32 bytes */
    const unsigned char *q;
    i64 q_stride_b, q_stride_t;   /* bytes */
    const unsigned char *q_scales;
    i64 q_scales_stride_b, q_scales_stride_t; /* bytes */
    CommonArguments common;
};

/* Addresses in shared memory, from the 1024-aligned base: expanded queries, KV ring, scale ring, then small things. */
struct Layout {
    u32 base;
    int stages;

    static constexpr int Q_REGION = (SLOTS * NUM_HEADS * HEAD_DIM + 1023) / 1024 * 1024;
    static constexpr int Q_BYTES = NEXT_N * NUM_HEADS * ROW_BYTES;
    static constexpr int HEAD_BYTES = NEXT_N * NUM_HEADS * 4; /* of weights, and of scales */
    static constexpr int SLOT_BYTES = (NEXT_N * 4 + 15) / 16 * 16;
    static constexpr int ALL_SLOT_BYTES = (SLOTS * 4 + 15) / 16 * 16;

    __device__ __forceinline__ u32 expanded() const {
        return base;
    }
    __device__ __forceinline__ u32 k(int stage) const {
        return base + Q_REGION + static_cast<u32>(stage * K_BYTES);
    }
    __device__ __forceinline__ u32 scales(int stage) const {
        return k(stages) + static_cast<u32>(stage * SCALE_BYTES);
    }
    __device__ __forceinline__ u32 full(int stage) const {
        return scales(stages) + static_cast<u32>(stage * 16);
    }
    __device__ __forceinline__ u32 empty(int stage) const {
        return full(stage) + 8;
    }
    /* As they come, for each Q stage. */
    __device__ __forceinline__ u32 q(int stage) const {
        return full(stages) + static_cast<u32>(stage * Q_BYTES);
    }
    __device__ __forceinline__ u32 q_scales(int stage) const {
        return q(Q_STAGES) + static_cast<u32>(stage * HEAD_BYTES);
    }
    __device__ __forceinline__ u32 weights(int stage) const {
        return q_scales(Q_STAGES) + static_cast<u32>(stage * HEAD_BYTES);
    }
    __device__ __forceinline__ u32 limits(int stage) const {
        return weights(Q_STAGES) + static_cast<u32>(stage * SLOT_BYTES);
    }
    __device__ __forceinline__ u32 note(int stage) const {
        return limits(Q_STAGES) + static_cast<u32>(stage * 16);
    }
    __device__ __forceinline__ u32 q_full(int stage) const {
        return note(Q_STAGES) + static_cast<u32>(stage * 16);
    }
    __device__ __forceinline__ u32 q_empty(int stage) const {
        return q_full(stage) + 8;
    }
    /* Made of them for the current request. */
    __device__ __forceinline__ u32 shifts() const { /* [SLOTS, H] words, a byte for each scale */
        return q_full(Q_STAGES);
    }
    __device__ __forceinline__ u32 scaled_weights() const { /* [SLOTS, H] */
        return shifts() + SLOTS * NUM_HEADS * 4;
    }
    __device__ __forceinline__ u32 exponents() const { /* [SLOTS] */
        return scaled_weights() + SLOTS * NUM_HEADS * 4;
    }
    __device__ __forceinline__ u32 tame_limits() const { /* [SLOTS]: 0 for wild slots */
        return exponents() + ALL_SLOT_BYTES;
    }
    __device__ __forceinline__ u32 table() const { /* e4m3_table_entry of every shift */
        return tame_limits() + ALL_SLOT_BYTES;
    }
    __device__ __forceinline__ u32 chunk_tiles() const {
        return table() + 128;
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

template <class T> __device__ __forceinline__ T *shared_pointer(u32 address) {
    return reinterpret_cast<T *>(shared_memory + (address - shared_address(shared_memory)));
}

/* Fills the stages, for lib/producer.cuh. */
struct Loader {
    const Arguments &args;
    const Layout &layout;
    RingCursor kv, q;

    __device__ __forceinline__ void load_request(const RequestNote &note, int tokens) {
        const int request = note.request;
        const u32 full = layout.q_full(q.stage);
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;
        int *limits = shared_pointer<int>(layout.limits(q.stage));
#pragma unroll
        for (int slot = 0; slot < NEXT_N; slot++)
            limits[slot] = slot_limit(args.common, request, slot, tokens);
        mbarrier_arrive_expect(full, Layout::Q_BYTES + 2 * Layout::HEAD_BYTES);
#pragma unroll
        for (int slot = 0; slot < NEXT_N; slot++) {
            bulk_load(layout.q(q.stage) + slot * NUM_HEADS * ROW_BYTES,
                      args.q + request * args.q_stride_b + slot * args.q_stride_t, NUM_HEADS * ROW_BYTES, full);
            bulk_load(layout.q_scales(q.stage) + slot * NUM_HEADS * 4,
                      args.q_scales + request * args.q_scales_stride_b + slot * args.q_scales_stride_t, NUM_HEADS * 4,
                      full);
            bulk_load(layout.weights(q.stage) + slot * NUM_HEADS * 4,
                      args.common.weights + (static_cast<i64>(request) * NEXT_N + slot) * args.common.weights_stride,
                      NUM_HEADS * 4, full);
        }
    }

    __device__ __forceinline__ void load_tile(int token, const int (&blocks)[BOXES]) {
        mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);
        const u32 full = layout.full(kv.stage);
        mbarrier_arrive_expect(full, K_BYTES + BOXES * BOX_SCALE_BYTES);
        const int row = BLOCK_SIZE > TILE_TOKENS ? token % BLOCK_SIZE : 0;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            tma_load_3d(layout.k(kv.stage) + box * BOX_TOKENS * ROW_BYTES, &args.k, full, 0,
                        row * ROW_BYTES / MAP_ROW_BYTES, blocks[box],
                        EVICT_FIRST);
            tma_load_2d(layout.scales(kv.stage) + box * BOX_SCALE_PITCH, &args.scales, full,
                        SCALES_INTERLEAVED ? 0 : row, blocks[box], EVICT_FIRST);
        }
    }

    __device__ __forceinline__ void stage_loaded() {
        kv.advance(args.common.stages);
    }
    __device__ __forceinline__ void request_loaded() {
        q.advance(Q_STAGES);
    }

    __device__ __forceinline__ void end() {
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = RequestNote{-1, 0, 0, 0};
        mbarrier_arrive(layout.q_full(q.stage));
    }
};

/* ---- Queries -------------------------------------------------------------------------------------------------- */

/* A lane expands LANE_WORDS words of a row: numbers [lane * D/4, + D/4) for lane 0..3 of a quad. Where the D numbers lie along
 * wgmma's K is arbitrary, if it is the same for keys and queries: word j becomes the bytes 4 * lane + {0..3} and
 * 16 + 4 * lane + {0..3} of K step j, which is where the A operand wants them. */
__device__ __forceinline__ int group_of(int quad_lane) {
    return quad_lane * GROUPS / 4;
}

__device__ __forceinline__ void load_words(u32 (&words)[LANE_WORDS], const unsigned char *row, int quad_lane) {
    if constexpr (LANE_WORDS == 4) {
        const uint4 loaded = reinterpret_cast<const uint4 *>(row)[quad_lane];
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
    } else {
        const uint2 loaded = reinterpret_cast<const uint2 *>(row)[quad_lane];
        words[0] = loaded.x, words[1] = loaded.y;
    }
}

/* Makes of the loaded queries what the tiles are multiplied with. Called by all math warps. */
struct QueryExpander {
    const Layout &layout;
    int stage;

    static constexpr int LANE_HEADS = (NUM_HEADS + 31) / 32;
    /* Scaled weights outside of these, other than 0, might overflow or lose digits. */
    static constexpr float MIN_WEIGHT = 0x1p-90f, MAX_WEIGHT = 0x1p90f;
    /* Of a product of E4M3 operands: E4M3_BIAS of both, and the doubled ReLU. Taken off with the weights. */
    static constexpr int PRODUCT_BIAS = 2 * E4M3_BIAS + 1;

    __device__ __forceinline__ static int scale_of(u32 scales, int group) {
        return static_cast<int>(scales >> (8 * group) & 255);
    }

    /* A group of zeros needs no scale. */
    __device__ __forceinline__ bool is_zero(int source, int head, int group) const {
        const u32 *words = shared_pointer<u32>(layout.q(stage) + (source * NUM_HEADS + head) * ROW_BYTES + 16 * group);
        return ((words[0] | words[1] | words[2] | words[3]) & 0x77777777u) == 0;
    }

    /* The largest scale of a head, and how far the others are below it; false: it is wild. */
    __device__ __forceinline__ bool read_scales(int source, int head, int &largest, u32 &shifts) const {
        const u32 scales = shared_pointer<u32>(layout.q_scales(stage))[source * NUM_HEADS + head];
        bool tame = true;
        u32 zeros = 0;
        largest = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const bool zero = is_zero(source, head, group);
            tame = tame && scale_of(scales, group) != NAN_SCALE;
            zeros |= (zero ? 1u : 0u) << group;
            largest = max(largest, zero ? 0 : scale_of(scales, group));
        }
        shifts = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const int shift = zeros >> group & 1 ? 0 : largest - scale_of(scales, group);
            tame = tame && shift <= MAX_SHIFT;
            shifts |= static_cast<u32>(shift & 15) << (8 * group);
        }
        return tame;
    }

    /* One warp: exponent, weights and limit of a slot. */
    __device__ __forceinline__ void prepare_slot(int slot) const {
        const int source = min(slot, NEXT_N - 1);
        int largest[LANE_HEADS];
        bool tame = true;
        int exponent = 0;
#pragma unroll
        for (int i = 0; i < LANE_HEADS; i++) {
            const int head = 32 * i + lane_id();
            largest[i] = 0;
            if (head < NUM_HEADS) {
                u32 shifts;
                tame = read_scales(source, head, largest[i], shifts) && tame;
                shared_pointer<u32>(layout.shifts())[slot * NUM_HEADS + head] = shifts;
                exponent = max(exponent, largest[i]);
            }
        }
        exponent = static_cast<int>(__reduce_max_sync(FULL_WARP, static_cast<u32>(exponent)));
#pragma unroll
        for (int i = 0; i < LANE_HEADS; i++) {
            const int head = 32 * i + lane_id();
            if (head < NUM_HEADS) {
                const float weight = shared_pointer<float>(layout.weights(stage))[source * NUM_HEADS + head];
                const int power = largest[i] - exponent - PRODUCT_BIAS;
                const float scaled = weight * power_of_two(max(power, -127));
                const float magnitude = fabsf(scaled);
                const bool fits =
                    weight == 0.f || (power >= -127 && magnitude >= MIN_WEIGHT && magnitude <= MAX_WEIGHT);
                tame = tame && fits;
                shared_pointer<float>(layout.scaled_weights())[slot * NUM_HEADS + head] = fits ? scaled : 0.f;
            }
        }
        tame = __all_sync(FULL_WARP, tame);
        if (lane_id() == 0) {
            const int limit = shared_pointer<int>(layout.limits(stage))[source];
            shared_pointer<int>(layout.exponents())[slot] = exponent - 2 * 127; /* the biases of both scales */
            shared_pointer<int>(layout.tame_limits())[slot] = tame && slot < NEXT_N ? limit : 0;
        }
    }

    /* One lane: its part of a row of B, K-major and swizzled over its own width as TMA would. */
    __device__ __forceinline__ void expand(int slot, int head, int quad_lane) const {
        const int source = min(slot, NEXT_N - 1);
        const int row = slot * NUM_HEADS + head;
        const u32 shift = shared_pointer<u32>(layout.shifts())[row] >> (8 * group_of(quad_lane)) & 15;
        const uint2 table = shared_pointer<uint2>(layout.table())[shift];
        u32 words[LANE_WORDS];
        load_words(words, shared_pointer<unsigned char>(layout.q(stage) + (source * NUM_HEADS + head) * ROW_BYTES),
                   quad_lane);
        const int flip = HEAD_DIM == 128 ? row & 7 : row >> 1 & 3; /* of the 16-byte chunks */
        u32 *destination = shared_pointer<u32>(layout.expanded() + row * HEAD_DIM);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const E4m3Octet bytes = e2m1_to_e4m3(words[step], table);
            destination[4 * (2 * step ^ flip) + quad_lane] = bytes.low;
            destination[4 * ((2 * step + 1) ^ flip) + quad_lane] = bytes.high;
        }
    }

    __device__ __forceinline__ void run(int thread) const {
        for (int slot = thread / 32; slot < SLOTS; slot += MATH_WARPS)
            prepare_slot(slot);
        named_barrier_sync(1, MATH_THREADS);
        for (int unit = thread; unit < SLOTS * NUM_HEADS * 4; unit += MATH_THREADS)
            expand(unit / (4 * NUM_HEADS), unit / 4 % NUM_HEADS, unit % 4);
        fence_async_shared();
        named_barrier_sync(1, MATH_THREADS);
    }
};

/* ---- Keys ----------------------------------------------------------------------------------------------------- */

/* A math warp's first row of a tile. */
__device__ __forceinline__ int warp_row() {
    return static_cast<int>(threadIdx.x / 32) * 16;
}

/* Row r of the tile in a stage. */
__device__ __forceinline__ const unsigned char *key(const Layout &layout, int stage, int r) {
    return shared_pointer<unsigned char>(layout.k(stage)) + r * ROW_BYTES;
}

/* Its scales, if the tile starts at token `start`. */
__device__ __forceinline__ const unsigned char *key_scales(const Layout &layout, int stage, int r, int start) {
    const unsigned char *scales = shared_pointer<unsigned char>(layout.scales(stage));
    if constexpr (SCALES_INTERLEAVED) {
        const int token = start % BLOCK_SIZE + r;
        return scales + (token % (BLOCK_SIZE / 4) * 4 + token / (BLOCK_SIZE / 4)) * GROUPS;
    } else {
        return scales + r / BOX_TOKENS * BOX_SCALE_PITCH + r % BOX_TOKENS * GROUPS;
    }
}

/* Packed pairs of 16-bit numbers. */
__device__ __forceinline__ u32 max_pair(u32 x, u32 y) {
    u32 z;
    asm("max.u16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
__device__ __forceinline__ u32 min_pair(u32 x, u32 y) {
    u32 z;
    asm("min.u16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
__device__ __forceinline__ u32 quad_or(u32 x) {
    x |= __shfl_xor_sync(FULL_WARP, x, 1);
    return x | __shfl_xor_sync(FULL_WARP, x, 2);
}

/* The scales of two rows, the first in the lower halves of the words: the largest of each row's, and how far the one of
 * this lane's quarter is below it. */
struct ScalePair {
    u32 largest, shifts;

    __device__ __forceinline__ ScalePair(const unsigned char *first, const unsigned char *second, int quarter) {
        constexpr u32 BYTES = 0x00ff00ffu;
        u32 own;
        if constexpr (GROUPS == 4) {
            const u32 x = *reinterpret_cast<const u32 *>(first);
            const u32 y = *reinterpret_cast<const u32 *>(second);
            const u32 lower = permute_bytes(x, y, 0x5410);
            const u32 upper = permute_bytes(x, y, 0x7632);
            largest = max_pair(max_pair(lower & BYTES, lower >> 8 & BYTES), max_pair(upper & BYTES, upper >> 8 & BYTES));
            own = permute_bytes(x, y, static_cast<u32>(quarter * 0x1111 + 0x4400)) & BYTES;
        } else {
            const u32 both = *reinterpret_cast<const unsigned short *>(first) |
                             static_cast<u32>(*reinterpret_cast<const unsigned short *>(second)) << 16;
            largest = max_pair(both & BYTES, both >> 8 & BYTES);
            own = both >> (8 * group_of(quarter)) & BYTES;
        }
        shifts = largest - own;
    }

    /* Bit 15 of a half is set if a shift is above MAX_SHIFT or a scale is NaN. */
    __device__ __forceinline__ u32 suspicious() const {
        return ((shifts + 0x7ff17ff1u) | (largest + 0x7f017f01u)) & 0x80008000u;
    }
};

/* ---- Wild scores ---------------------------------------------------------------------------------------------- */

/* Scores a token against a slot from the packed numbers, by one warp: lanes deal out the heads. */
__device__ __forceinline__ float score_apart(const unsigned char *key, const unsigned char *key_scales,
                                          const unsigned char *queries, const unsigned char *query_scales,
                                          const float *weights) {
    float sum = 0.f;
#pragma unroll 1
    for (int head = lane_id(); head < NUM_HEADS; head += 32) {
        const u32 *q = reinterpret_cast<const u32 *>(queries + head * ROW_BYTES);
        const u32 *k = reinterpret_cast<const u32 *>(key);
        float score = 0.f;
#pragma unroll 1
        for (int group = 0; group < GROUPS; group++) {
            const int q_scale = query_scales[4 * head + group];
            const int k_scale = key_scales[group];
            int dot = 0; /* times 4 */
#pragma unroll 1
            for (int word = 0; word < 4; word++)
                dot += e2m1_dot(q[4 * group + word], k[4 * group + word]);
            score += q_scale == NAN_SCALE || k_scale == NAN_SCALE
                         ? __int_as_float(0x7fffffff)
                         : scale_by_power(0.25f * static_cast<float>(dot), q_scale + k_scale - 2 * 127);
        }
        float positive;
        asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(score));
        sum = __fmaf_rn(weights[head], positive, sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(FULL_WARP, sum, step);
    return sum;
}

/* The wild scores of this warp's 16 rows: those of `wild` tokens (bit 0: row lane / 4, bit 1: 8 rows on) and of wild slots.
 * Nothing of it is kept in the registers of the usual case. */
__device__ __forceinline__ void score_wild(const CommonArguments &args, Layout layout, int kv_stage, int q_stage, int request,
                                        int start, u32 wild) {
    const u32 lower = __ballot_sync(FULL_WARP, wild & 1);
    const u32 upper = __ballot_sync(FULL_WARP, wild & 2);
#pragma unroll 1
    for (int i = 0; i < 16; i++) {
        const bool wild_token = (i < 8 ? lower >> (4 * i) : upper >> (4 * (i - 8))) & 1;
        const int r = warp_row() + i;
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++) {
            const int limit = shared_pointer<int>(layout.limits(q_stage))[slot];
            const bool wild_slot = shared_pointer<int>(layout.tame_limits())[slot] != limit;
            if (start + r >= limit || !(wild_token || wild_slot))
                continue;
            const int first_head = slot * NUM_HEADS;
            const float score = score_apart(key(layout, kv_stage, r), key_scales(layout, kv_stage, r, start),
                                            shared_pointer<unsigned char>(layout.q(q_stage)) + first_head * ROW_BYTES,
                                            shared_pointer<unsigned char>(layout.q_scales(q_stage)) + first_head * 4,
                                            shared_pointer<float>(layout.weights(q_stage)) + first_head);
            if (lane_id() == 0)
                args.out[(static_cast<i64>(request) * NEXT_N + slot) * args.out_stride + start + r] =
                    convert<Output>(score);
        }
    }
}

/* ---- Math ----------------------------------------------------------------------------------------------------- */

/* The math warpgroup: scores every tile for all query slots, a chunk of slots at a time. */
struct Scorer {
    typedef WgmmaA<CHUNK_SLOTS * NUM_HEADS> Mma;
    static constexpr int NO_TOKEN = 0x7fffffff;

    const CommonArguments &args;
    const Layout &layout;
    RingCursor kv, q;

    /* In stage 0, of this lane's part of row r: keys, and scales. */
    u32 first_keys, first_scales;
    u32 shift_table;

    /* Of the current request. */
    HeadWeights<NUM_HEADS, SLOTS, false> weights;
    const int *limits;    /* of this lane's slot in the first pair of slots; 0 for wild ones */
    const int *exponents; /* likewise */
    Output *row;          /* likewise */
    int request;
    bool any_wild_slot;

    /* The chunk whose heads are summed in every lane, but not yet over the lanes, nor stored. */
    RowPair sums[CHUNK_SLOTS];
    int slot;     /* its first */
    int token;    /* of this lane in its tile; NO_TOKEN: there is no such chunk, or the token is wild */
    int exponent; /* of the token */

    /* The keys of two rows, as wgmma's A operand. */
    struct Keys {
        u32 a[STEPS][4];
        u32 largest;    /* scale of row r in the lower half, of row r + 8 in the upper */
        u32 suspicious; /* of the scales that this lane has seen */
    };

    /* In the end a lane holds one row (token) of one slot: lane & 1 chooses between rows r and r + 8 of its quad, lane & 2
     * between the slots of a pair. */
    __device__ __forceinline__ static int tile_row() {
        return warp_row() + lane_id() / 4 + (lane_id() & 1) * 8;
    }
    __device__ __forceinline__ static bool upper_slot() {
        return lane_id() & 2;
    }

    /* Bytes from the scales of row r to those of row r + 8. */
    static constexpr int EIGHT_ROWS_OF_SCALES = SCALES_INTERLEAVED ? 8 * 4 * GROUPS : 8 * GROUPS;

    __device__ __forceinline__ Keys load_keys(int start) const {
        Keys keys;
        const unsigned char *numbers = shared_pointer<unsigned char>(first_keys + kv.stage * K_BYTES);
        u32 words[2][LANE_WORDS];
        load_words(words[0], numbers, 0);
        load_words(words[1], numbers + 8 * ROW_BYTES, 0);
        const unsigned char *scale = shared_pointer<unsigned char>(first_scales + kv.stage * SCALE_BYTES);
        if (SCALES_INTERLEAVED)
            scale += start / TILE_TOKENS % 2 * 2 * GROUPS;
        const ScalePair scales(scale, scale + EIGHT_ROWS_OF_SCALES, lane_id() & 3);
        keys.largest = scales.largest;
        keys.suspicious = scales.suspicious();
        const u32 shifts = min_pair(scales.shifts, MAX_SHIFT * 0x10001u);
        const uint2 *table = shared_pointer<uint2>(shift_table);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint2 entry = table[half == 0 ? shifts & 0xffff : shifts >> 16];
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                const E4m3Octet bytes = e2m1_to_e4m3(words[half][step], entry);
                keys.a[step][half] = bytes.low;
                keys.a[step][half + 2] = bytes.high;
            }
        }
        return keys;
    }

    /* Which of the lane's two rows are wild (bit 0: row r, bit 1: row r + 8), if some scale is suspicious. A group of zeros
     * that is too far below the largest needs no scale, though. */
    __device__ __forceinline__ u32 wild_rows(int start) const {
        const int r = warp_row() + lane_id() / 4;
        const unsigned char *first = key_scales(layout, kv.stage, r, start);
        const ScalePair scales(first, first + EIGHT_ROWS_OF_SCALES, lane_id() & 3);
        u32 wild = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 words[LANE_WORDS];
            load_words(words, key(layout, kv.stage, r + 8 * half), lane_id() & 3);
            u32 any = 0;
#pragma unroll
            for (int i = 0; i < LANE_WORDS; i++)
                any |= words[i] & 0x77777777u;
            if (GROUPS == 2)
                any |= __shfl_xor_sync(FULL_WARP, any, 1);
            const int largest = static_cast<int>(scales.largest >> (16 * half) & 0xffff);
            const int shift = static_cast<int>(scales.shifts >> (16 * half) & 0xffff);
            if (largest == NAN_SCALE || (shift > MAX_SHIFT && any != 0))
                wild |= 1u << half;
        }
        return quad_or(wild);
    }

    __device__ __forceinline__ void store_sums() {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s += 2) {
            const float low = reduce_rows(sums[s]);
            float kept = low;
            float sent = low;
            if (s + 1 < CHUNK_SLOTS) {
                const float high = reduce_rows(sums[s + 1]);
                kept = upper_slot() ? high : low;
                sent = upper_slot() ? low : high;
            }
            const bool stores = s + 1 < CHUNK_SLOTS || !upper_slot();
            const float sum = kept + __shfl_xor_sync(FULL_WARP, sent, 2);
            store_if(stores && token < limits[slot + s], row + (slot + s) * args.out_stride + token,
                     scale_by_power(sum, exponent + (stores ? exponents[slot + s] : 0)));
        }
    }

    /* Multiplies and sums the chunk from `next_slot` on; meanwhile the chunk before it is stored. There may be none: then
     * its stores are off, rather than branched around, because ptxas serialises wgmmas that are in flight over a branch
     * (advice C7518). */
    __device__ __forceinline__ void score_chunk(Keys &keys, int next_slot, int next_token, int next_exponent) {
        float acc[Mma::REGISTERS];
        const u64 b = wgmma_descriptor<HEAD_DIM>(layout.expanded() + static_cast<u32>(next_slot * NUM_HEADS * HEAD_DIM));
        /* All keys are expanded before the first wgmma: ptxas would serialise them to expand some in between. */
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                wgmma_pin(keys.a[step][i]);
        }
        wgmma_fence();
        Mma::first(acc, keys.a[0], b);
#pragma unroll
        for (int step = 1; step < STEPS; step++)
            Mma::next(acc, keys.a[step], b + 2 * step);
        wgmma_commit();

        store_sums();
        slot = next_slot;
        token = next_token;
        exponent = next_exponent;

        wgmma_wait_all();
#pragma unroll
        for (int i = 0; i < Mma::REGISTERS; i++)
            wgmma_pin(acc[i]);
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            sums[s] = head_sum<NUM_HEADS>(acc, s, weights, next_slot + s);
    }

    __device__ __forceinline__ void score_tile(int start) {
        mbarrier_wait(layout.full(kv.stage), kv.parity);
        Keys keys = load_keys(start);
        const bool odd = lane_id() & 1;
        const int next_exponent = static_cast<int>(odd ? keys.largest >> 16 : keys.largest & 0xffff);
        score_chunk(keys, 0, start + tile_row(), next_exponent);
        /* Seldom; and only now, as to know it before the first wgmma would delay that. */
        if (any_wild_slot || __any_sync(FULL_WARP, keys.suspicious != 0)) {
            const u32 wild = wild_rows(start);
            score_wild(args, layout, kv.stage, q.stage, request, start, wild);
            if (wild >> (odd ? 1 : 0) & 1)
                token = NO_TOKEN;
        }
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(layout.empty(kv.stage));
        kv.advance(args.stages);
        if constexpr (CHUNKS > 1) {
            const int next_token = token;
#pragma unroll 1
            for (int next_slot = CHUNK_SLOTS; next_slot < SLOTS; next_slot += CHUNK_SLOTS)
                score_chunk(keys, next_slot, next_token, next_exponent);
        }
    }

    __device__ __forceinline__ void start_request(const RequestNote &note) {
        named_barrier_sync(1, MATH_THREADS); /* every warp's products of the request before are done */
        QueryExpander{layout, q.stage}.run(static_cast<int>(threadIdx.x));
        const int lane_slot = upper_slot() ? 1 : 0;
        weights.load(shared_pointer<float>(layout.scaled_weights()), SLOTS - 1);
        limits = shared_pointer<int>(layout.tame_limits()) + lane_slot;
        exponents = shared_pointer<int>(layout.exponents()) + lane_slot;
        request = note.request;
        row = args.out + (static_cast<i64>(request) * NEXT_N + lane_slot) * args.out_stride;
        keep(row);
        any_wild_slot = false;
#pragma unroll
        for (int s = 0; s < NEXT_N; s++)
            any_wild_slot |= shared_pointer<int>(layout.tame_limits())[s] != shared_pointer<int>(layout.limits(q.stage))[s];
        slot = 0;
        token = NO_TOKEN;
        exponent = 0;
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            sums[s] = RowPair{0.f, 0.f};
    }

    __device__ __forceinline__ void run() {
        const int r = warp_row() + lane_id() / 4;
        const int quad_lane = lane_id() & 3;
        first_keys = shared_address(key(layout, 0, r)) + quad_lane * 4 * LANE_WORDS;
        first_scales = shared_address(key_scales(layout, 0, r, 0));
        keep(first_keys);
        keep(first_scales);
        shift_table = layout.table();
        keep(shift_table);
        for (;; q.advance(Q_STAGES)) {
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const RequestNote note = *shared_pointer<RequestNote>(layout.note(q.stage));
            if (note.tiles == 0)
                break;
            start_request(note);
            int start = note.token;
            for (int tile = 0; tile < note.tiles; tile++, start += args.ctas_per_sm * TILE_TOKENS)
                score_tile(start);
            store_sums();
            mbarrier_arrive(layout.q_empty(q.stage)); /* by every lane, as all have read the stage */
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MAX_CTAS_PER_SM)
    fp4_paged_mqa_logits(const __grid_constant__ Arguments arguments) {
    const CommonArguments &args = arguments.common;
    const Layout layout{shared_address(shared_memory), args.stages};
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;

    if (thread == 0) {
        tma_prefetch_map(&arguments.k);
        tma_prefetch_map(&arguments.scales);
    }
    if (warp == 1) {
        for (int i = lane_id(); i < args.stages; i += 32) {
            mbarrier_init(layout.full(i), 1);
            mbarrier_init(layout.empty(i), MATH_WARPS);
        }
        if (lane_id() < Q_STAGES) {
            mbarrier_init(layout.q_full(lane_id()), 1);
            mbarrier_init(layout.q_empty(lane_id()), MATH_THREADS);
        }
        mbarrier_init_fence();
    }
    if (warp == 2 && lane_id() <= MAX_SHIFT)
        shared_pointer<uint2>(layout.table())[lane_id()] = e4m3_table_entry(lane_id());

    grid_dependency_wait();
    grid_dependency_trigger();

    /* Lengths: few are read by the producer alone, more are summed in chunks by the whole CTA. */
    Producer<Loader> producer{args, Loader{arguments, layout}, 0};
    int *chunk_tiles = shared_pointer<int>(layout.chunk_tiles());
    int chunk_length = 32, chunks = 0;
    if (warp == MATH_WARPS)
        producer.prepare();
    if (!producer.holds_lengths() && args.schedule == nullptr) {
        chunk_length = chunk_length_of(args.batch);
        chunks = (args.batch + chunk_length - 1) / chunk_length;
        sum_chunks(args.batch, chunk_length, warp, THREADS / 32, chunk_tiles,
                   [&](int request) { return tiles_of(request_length(args, request)); });
    }
    __syncthreads();

    if (warp == MATH_WARPS) {
        producer.run(chunk_tiles, chunk_length, chunks);
    } else {
        Scorer{args, layout}.run();
        if (args.clean_until > 0)
            clean_rows(args, thread, MATH_THREADS);
    }
}
