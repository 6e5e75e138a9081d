/* SPDX-License-Identifier: MIT
 * The frame of the portable kernels. A CTA takes a share of the batch, request by request. The queries of one request
 * lie in shared memory, in the order in which lanes need them; every warp takes units of 32 tokens in turn, has its own
 * ring of stages for them, and shares nothing else, so that warps wait for each other only where the request changes. A
 * unit's keys go from the ring into registers at once, as A; its stage is filled again before the products start. The
 * heads stream past: 8 columns of B from shared memory, a product, ReLU, weights and sums; no accumulator lives longer,
 * so that registers are bounded whatever next_n and the number of heads are.
 *
 * Where the queries of all slots do not fit, they pass in chunks of slots, once for every round of one unit for each
 * warp; the KV is still read once.
 *
 * Needs, besides the specialised constants: Output, Accumulator, ROW_BYTES, TOKEN_SCALE_BYTES, SCALES_INTERLEAVED, and
 * QUERY_REGISTERS (what a lane needs of the queries for one product with 8 heads), SLOT_EXTRA_BYTES (a multiple of 16:
 * what is kept of a slot besides). run_portable takes a class with `load_slot`, `store_query` and `Keys`, see the
 * kernels. */
#include "lib/head_sum.cuh"
#include "lib/walk.cuh"

constexpr int UNIT_TOKENS = 32;
constexpr int HALVES = UNIT_TOKENS / 16; /* products of 16 rows */
constexpr int UNIT_BYTES = UNIT_TOKENS * ROW_BYTES;
constexpr int STAGE_BYTES = UNIT_BYTES + UNIT_TOKENS * 4;
/* A unit is a part of one KV block, or two whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < UNIT_TOKENS ? BLOCK_SIZE : UNIT_TOKENS;
constexpr int BOXES = UNIT_TOKENS / BOX_TOKENS;

constexpr int THREADS = 32 * WARPS;
constexpr int CHUNKS = (NEXT_N + CHUNK_SLOTS - 1) / CHUNK_SLOTS;
constexpr int QUERY_TILE_BYTES = 32 * 4 * QUERY_REGISTERS; /* 8 heads */
constexpr int QUERY_SLOT_BYTES = NUM_HEADS / 8 * QUERY_TILE_BYTES;

/* Kernel argument; laid out alike in src/launch/portable.c. Strides in elements, which are bytes for q and kv. */
struct Arguments {
    const unsigned char *q; /* [B, next_n, H] rows */
    i64 q_stride_b, q_stride_t;
    const u32 *q_sf; /* fp4 only: [B, next_n, H] */
    i64 q_sf_stride_b, q_sf_stride_t;
    const unsigned char *kv; /* blocks: values, then scales */
    i64 block_stride;
    int num_blocks;
    CommonArguments common; /* stages and ctas_per_sm are constants here */
};

/* ---- Shared memory -------------------------------------------------------------------------------------------- */

extern __shared__ __align__(128) unsigned char shared_memory[];

constexpr int RING_AT = CHUNK_SLOTS * QUERY_SLOT_BYTES;
constexpr int WEIGHTS_AT = RING_AT + WARPS * STAGES * STAGE_BYTES;
constexpr int SLOT_EXTRAS_AT = WEIGHTS_AT + NEXT_N * NUM_HEADS * 4;
constexpr int LIMITS_AT = SLOT_EXTRAS_AT + NEXT_N * SLOT_EXTRA_BYTES;
constexpr int SEGMENTS_AT = LIMITS_AT + 32;
constexpr int WALK_AT = SEGMENTS_AT + 2 * static_cast<int>(sizeof(Segment));
constexpr int CHUNK_TILES_AT = WALK_AT + 32 * static_cast<int>(sizeof(WalkState));
static_assert(SHARED_BYTES == CHUNK_TILES_AT + MAX_CHUNKS * 4, "the host reserves what the kernel uses");

template <class T> __device__ __forceinline__ T *shared_at(int offset) {
    return reinterpret_cast<T *>(shared_memory + offset);
}

template <class T> __device__ __forceinline__ const T *shared_pointer(u32 address) {
    return shared_at<const T>(static_cast<int>(address - shared_address(shared_memory)));
}

/* Register `index` of the lane that is number `lane` of the four that have this head. Lanes read up to 4 of theirs at a
 * time, a warp then 512 adjacent bytes. */
constexpr int QUERY_VECTOR = QUERY_REGISTERS < 4 ? QUERY_REGISTERS : 4;
__device__ __forceinline__ u32 *query_register(u32 *slot, int head, int lane, int index) {
    return slot + head / 8 * (QUERY_TILE_BYTES / 4) + index / QUERY_VECTOR * (32 * QUERY_VECTOR) +
           (head % 8 * 4 + lane) * QUERY_VECTOR + index % QUERY_VECTOR;
}

__device__ __forceinline__ void load_query_registers(u32 (&b)[QUERY_REGISTERS], const u32 *slot, int tile) {
    const u32 *from = slot + tile * (QUERY_TILE_BYTES / 4) + lane_id() * QUERY_VECTOR;
#pragma unroll
    for (int i = 0; i < QUERY_REGISTERS; i += QUERY_VECTOR, from += 32 * QUERY_VECTOR) {
        if constexpr (QUERY_VECTOR == 4) {
            const uint4 x = *reinterpret_cast<const uint4 *>(from);
            b[i] = x.x, b[i + 1] = x.y, b[i + 2] = x.z, b[i + 3] = x.w;
        } else {
            const uint2 x = *reinterpret_cast<const uint2 *>(from);
            b[i] = x.x, b[i + 1] = x.y;
        }
    }
}

/* ---- Head sums ------------------------------------------------------------------------------------------------ */

/* In the end a lane holds one token: lane & 1 chooses between rows l/4 and l/4 + 8 of a half, lane & 2 the half. */
__device__ __forceinline__ int own_token() {
    return (lane_id() & 2) * 8 + (lane_id() & 1) * 8 + lane_id() / 4;
}

/* The sum over a lane's columns, for rows l/4 and l/4 + 8. The order of additions depends on the number of heads alone.
 */
struct HeadSum {
    float2 low, high;
    u32 low_f16, high_f16;

    __device__ __forceinline__ void clear() {
        low = high = make_float2(0.f, 0.f);
        low_f16 = high_f16 = 0;
    }
    __device__ __forceinline__ void add(const Accumulator &d, float2 w) {
        if (EPI_F16) {
            const u32 w2 = pack_f16x2(w.x, w.y);
            low_f16 = fma_f16x2(w2, relu_f16x2(columns_f16x2(d.v, 0, 0)), low_f16);
            high_f16 = fma_f16x2(w2, relu_f16x2(columns_f16x2(d.v, 0, 1)), high_f16);
        } else {
            const float2 l = columns_f32(d.v, 0, 0);
            const float2 h = columns_f32(d.v, 0, 1);
            low.x = __fmaf_rn(w.x, relu(l.x), low.x);
            low.y = __fmaf_rn(w.y, relu(l.y), low.y);
            high.x = __fmaf_rn(w.x, relu(h.x), high.x);
            high.y = __fmaf_rn(w.y, relu(h.y), high.y);
        }
    }
    __device__ __forceinline__ RowPair sum() const {
        const float2 l = EPI_F16 ? unpack_f16x2(low_f16) : low;
        const float2 h = EPI_F16 ? unpack_f16x2(high_f16) : high;
        return {l.x + l.y, h.x + h.y};
    }
};

/* Of the lanes' sums of a unit's two halves, the sum over all heads of this lane's own token. */
__device__ __forceinline__ float sum_over_quad(const HeadSum (&sums)[HALVES]) {
    const float first = reduce_rows(sums[0].sum());
    const float second = reduce_rows(sums[1].sum());
    const bool upper = lane_id() & 2;
    return (upper ? second : first) + __shfl_xor_sync(FULL_WARP, upper ? first : second, 2);
}

/* A unit against all heads of a slot: queries and weights of the slot. */
template <class Keys>
__device__ __forceinline__ float score_unit(const Keys &keys, const u32 *queries, const float *weights) {
    HeadSum sums[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        sums[half].clear();
    const float2 *w = reinterpret_cast<const float2 *>(weights) + lane_id() % 4;
#pragma unroll 2
    for (int tile = 0; tile < NUM_HEADS / 8; tile++) {
        u32 b[QUERY_REGISTERS];
        load_query_registers(b, queries, tile);
        Accumulator d[HALVES];
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            clear(d[half]);
            keys.multiply(d[half], half, b, tile);
            sums[half].add(d[half], w[4 * tile]);
        }
    }
    return sum_over_quad(sums);
}

/* ---- A warp's units ------------------------------------------------------------------------------------------- */

/* The stages of one warp: filled in sequence with its units of this segment, then of the next one, so that the copies
 * do not stop where the request changes. */
struct Ring {
    const Arguments &args;
    u32 stages; /* address */
    int filled; /* stages whose copies were started and that were not read */
    int fill_at, read_at;

    /* The segment that is being filled from. */
    Segment segment;
    bool is_next; /* it is the one after that which is computed */
    int unit;     /* next one; this warp's are `warp`, `warp` + WARPS, ... */
    /* The block ids of 32 of them, a lane each, and of the 32 after those. */
    int turn;
    int ids[BOXES], later_ids[BOXES];

    __device__ __forceinline__ static int warp() {
        return static_cast<int>(threadIdx.x) / 32;
    }
    __device__ __forceinline__ static int units_of(const Segment &s) {
        return (s.end - s.token + UNIT_TOKENS - 1) / UNIT_TOKENS;
    }

    __device__ __forceinline__ void load_ids(int first_unit, int (&to)[BOXES]) const {
        const int token = segment.token + (first_unit + lane_id() * WARPS) * UNIT_TOKENS;
        const int *row = args.common.block_tables + segment.request * args.common.table_stride;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            const int start = token + box * BOX_TOKENS;
            to[box] = start < segment.end && first_unit + lane_id() * WARPS < units_of(segment)
                          ? row[start / BLOCK_SIZE]
                          : -1;
        }
    }

    __device__ __forceinline__ void enter(const Segment &s, bool next) {
        segment = s;
        is_next = next;
        unit = warp();
        turn = 0;
        load_ids(unit, ids);
        load_ids(unit + 32 * WARPS, later_ids);
    }

    __device__ __forceinline__ void start_copies() {
        if (turn == 32) {
            turn = 0;
#pragma unroll
            for (int box = 0; box < BOXES; box++)
                ids[box] = later_ids[box];
            load_ids(unit + 32 * WARPS, later_ids);
        }
        const u32 stage = stages + static_cast<u32>(fill_at * STAGE_BYTES);
        const int first = (segment.token + unit * UNIT_TOKENS) % BLOCK_SIZE; /* in its block */
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            const int id = __shfl_sync(FULL_WARP, ids[box], turn);
            const bool valid = static_cast<u32>(id) < static_cast<u32>(args.num_blocks);
            const unsigned char *block = args.kv + (valid ? id * args.block_stride : 0);
            const unsigned char *values = block + first * ROW_BYTES + lane_id() * 16;
            constexpr int LANES_IN_ROW = ROW_BYTES / 16;
#pragma unroll
            for (int i = 0; i < BOX_TOKENS * ROW_BYTES / 512; i++) {
                const int row = box * BOX_TOKENS + i * (32 / LANES_IN_ROW) + lane_id() / LANES_IN_ROW;
                copy_async_16(stage + swizzled<ROW_BYTES>(row, lane_id() % LANES_IN_ROW), values + i * 512, valid);
            }
            copy_scales(stage + UNIT_BYTES, block + BLOCK_SIZE * ROW_BYTES, box, first, valid);
        }
        copy_async_commit();
        turn++;
        unit += WARPS;
        filled++;
        fill_at = fill_at + 1 == STAGES ? 0 : fill_at + 1;
    }

    /* The scales of a box. Adjacent ones are copied by 16 bytes; interleaved ones lie 4 tokens' scales apart. */
    __device__ __forceinline__ static void copy_scales(u32 to, const unsigned char *scales, int box, int first,
                                                       bool valid) {
        if constexpr (!SCALES_INTERLEAVED) {
            constexpr int BYTES = BOX_TOKENS * TOKEN_SCALE_BYTES;
            if (lane_id() < BYTES / 16)
                copy_async_16(to + static_cast<u32>(box * BYTES + lane_id() * 16),
                              scales + first * TOKEN_SCALE_BYTES + lane_id() * 16, valid);
        } else {
            const int at = (lane_id() * 4 + first / UNIT_TOKENS) * TOKEN_SCALE_BYTES;
            copy_async_4(to + static_cast<u32>(lane_id() * 4), scales + at / 4 * 4, valid);
        }
    }

    /* Starts as many copies as there are free stages, and units in this segment and `next`, which is in shared memory.
     */
    __device__ __forceinline__ void fill(const Segment *next) {
        while (filled < STAGES) {
            if (unit >= units_of(segment)) {
                if (is_next || next->token == next->end)
                    return;
                enter(*next, true);
            } else {
                start_copies();
            }
        }
    }

    /* Waits for the oldest stage, and returns its address. */
    __device__ __forceinline__ u32 wait() {
        copy_async_wait<STAGES>(filled - 1);
        __syncwarp();
        return stages + static_cast<u32>(read_at * STAGE_BYTES);
    }

    /* After all lanes have read it. */
    __device__ __forceinline__ void release() {
        __syncwarp();
        filled--;
        read_at = read_at + 1 == STAGES ? 0 : read_at + 1;
    }
};

/* ---- A CTA's segments ----------------------------------------------------------------------------------------- */

/* By all threads, between barriers: weights, limits and extras of the request. */
template <class Format> __device__ __forceinline__ void load_request(const Arguments &args, int request) {
    const float *weights = args.common.weights;
    for (int i = static_cast<int>(threadIdx.x); i < NEXT_N * NUM_HEADS; i += THREADS)
        shared_at<float>(WEIGHTS_AT)[i] =
            weights[(static_cast<i64>(request) * NEXT_N + i / NUM_HEADS) * args.common.weights_stride + i % NUM_HEADS];
    if (threadIdx.x < NEXT_N)
        shared_at<int>(LIMITS_AT)[threadIdx.x] = slot_limit(args.common, request, static_cast<int>(threadIdx.x));
    if constexpr (SLOT_EXTRA_BYTES > 0) {
        for (int slot = static_cast<int>(threadIdx.x) / 32; slot < NEXT_N; slot += WARPS)
            Format::load_slot(args, request, slot);
    }
}

/* By all threads, between barriers: the queries of a chunk of slots. */
template <class Format> __device__ __forceinline__ void load_queries(const Arguments &args, int request, int chunk) {
    constexpr int ROW_PIECES = ROW_BYTES / 16;
    constexpr int SLOT_PIECES = NUM_HEADS * ROW_PIECES;
    const int first = chunk * CHUNK_SLOTS;
    const int slots = min(CHUNK_SLOTS, NEXT_N - first);
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < slots * SLOT_PIECES; i += THREADS) {
        const int slot = i / SLOT_PIECES;
        const int in_slot = i - slot * SLOT_PIECES;
        const unsigned char *from = args.q + request * args.q_stride_b + (first + slot) * args.q_stride_t;
        const uint4 bytes = *reinterpret_cast<const uint4 *>(from + in_slot * 16);
        Format::store_query(args, request, first + slot, shared_at<u32>(slot * QUERY_SLOT_BYTES), in_slot / ROW_PIECES,
                            in_slot % ROW_PIECES, bytes);
    }
}

/* By one warp: writes the next `count` segments of the share. */
__device__ __forceinline__ void walk(const CommonArguments &args, bool start, int count, Segment *segments) {
    WalkState &state = shared_at<WalkState>(WALK_AT)[lane_id()];
    Walker walker(args, shared_at<int>(CHUNK_TILES_AT));
    if (start)
        walker.start();
    else
        static_cast<WalkState &>(walker) = state;
    for (int i = 0; i < count; i++) {
        const Segment segment = walker.next();
        if (lane_id() == 0)
            segments[i] = segment;
    }
    state = walker;
}

template <class Format> __device__ __forceinline__ void run_portable(const Arguments &arguments) {
    const CommonArguments &args = arguments.common;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    grid_dependency_wait();
    grid_dependency_trigger();

    if (args.schedule == nullptr) {
        sum_chunks(args.batch, chunk_length_of(args.batch), warp, WARPS, shared_at<int>(CHUNK_TILES_AT),
                   [&](int request) { return tiles_of(request_length(args, request)); });
        __syncthreads();
    }
    Segment *segments = shared_at<Segment>(SEGMENTS_AT); /* this one and the next, in turn */
    if (warp == 0)
        walk(args, true, 2, segments);
    __syncthreads();

    const u32 stages = shared_address(shared_memory) + RING_AT + static_cast<u32>(warp * STAGES * STAGE_BYTES);
    Ring ring{arguments, stages, 0, 0, 0};
    for (int place = 0;; place ^= 1) {
        const Segment segment = segments[place];
        const Segment *next = &segments[place ^ 1];
        if (segment.token == segment.end)
            break;
        if (ring.filled == 0)
            ring.enter(segment, false);
        ring.is_next = false;
        ring.fill(next);
        load_request<Format>(arguments, segment.request);
        if (CHUNKS == 1 && SLOT_EXTRA_BYTES > 0)
            __syncthreads();
        if (CHUNKS == 1)
            load_queries<Format>(arguments, segment.request, 0);
        __syncthreads();
        if (warp == 0)
            walk(args, false, 1, &segments[place]);

        const int *limits = shared_at<int>(LIMITS_AT);
        const int units = Ring::units_of(segment);
        for (int first = 0; first < units; first += WARPS) {
            const int unit = first + warp;
            const bool has_unit = unit < units;
            if (CHUNKS == 1 && !has_unit)
                break;
            const int first_token = segment.token + unit * UNIT_TOKENS;
            const int token = first_token + own_token();
            typename Format::Keys keys;
            bool keeps_stage = false;
            if (has_unit) {
                keys.load(ring.wait(), first_token, segment.end);
                keeps_stage = keys.keeps_stage();
                if (!keeps_stage) {
                    ring.release();
                    ring.fill(next);
                }
            }
#pragma unroll 1
            for (int slot = 0; slot < NEXT_N; slot++) {
                if (CHUNKS > 1 && slot % CHUNK_SLOTS == 0) {
                    __syncthreads();
                    load_queries<Format>(arguments, segment.request, slot / CHUNK_SLOTS);
                    __syncthreads();
                }
                if (has_unit) {
                    const u32 *queries = shared_at<u32>(slot % CHUNK_SLOTS * QUERY_SLOT_BYTES);
                    const float score = keys.score(arguments, segment.request, slot, queries);
                    Output *row = args.out + (static_cast<i64>(segment.request) * NEXT_N + slot) * args.out_stride;
                    store_if(token < limits[slot], row + token, score);
                }
            }
            if (keeps_stage) {
                ring.release();
                ring.fill(next);
            }
        }
        __syncthreads();
    }
    if (args.clean_until > 0)
        clean_rows(args, static_cast<int>(threadIdx.x), THREADS);
}
