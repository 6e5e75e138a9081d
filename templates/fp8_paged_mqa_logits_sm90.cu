/* SPDX-License-Identifier: MIT
 * fp8_paged_mqa_logits for sm_90a: persistent, warp-specialised, one pass over the KV for every next_n.
 *
 * A CTA is a ring of KV stages, some math warpgroups and producer warps. The producers alone know the schedule: they
 * walk the CTA's share of the batch, announce every request with a RequestNote (in a Q stage, with the queries and
 * weights) and fill KV stages by TMA, with a tile of 64 tokens each. The math warpgroups take tiles in turn (or deal
 * out the query slots of a tile): multiply a tile (M = 64 tokens) with the heads of their query slots (N), apply ReLU,
 * weights and head sum in registers, and store the scores while the tensor cores work on the next product. A stage
 * always belongs to the same warpgroups: the number of stages is a multiple of the teams, or a wait could take a phase
 * for the one before last. Nothing else is shared between the roles, so they cannot disagree about the work, whatever
 * the lengths or a caller's schedule say. */
#include "lib/base.cuh"
#include "lib/shared_memory.cuh"
#include "lib/mbarrier.cuh"
#include "lib/tma.cuh"
#include "lib/registers.cuh"
#include "lib/wgmma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int MATH_WARPGROUPS = @MATH_WARPGROUPS@;
constexpr int SLOT_GROUPS = @SLOT_GROUPS@;                 /* of them, which deal out the query slots: a team */
constexpr int TEAMS = MATH_WARPGROUPS / SLOT_GROUPS;        /* which take tiles in turn */
constexpr int MATH_REGISTERS = @MATH_REGISTERS@;           /* of a thread; 0: all have alike */
constexpr int PRODUCER_REGISTERS = @PRODUCER_REGISTERS@;
constexpr int PRODUCERS = TEAMS;
constexpr int MAX_CTAS_PER_SM = @MAX_CTAS_PER_SM@;         /* the launch may use fewer */
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;                 /* query slots in one wgmma */
constexpr int CHUNKS = @CHUNKS@;                           /* of a warpgroup */
constexpr int WEIGHTS_IN_REGISTERS = @WEIGHTS_IN_REGISTERS@; /* pairs of a lane */
constexpr bool ACC_F16 = @ACC_F16@;
constexpr bool EPI_F16 = @EPI_F16@;
constexpr bool DOUBLED_RELU = false;
typedef @OUT_TYPE@ Output;

#if @ACC_F16@
typedef u32 Accumulator;
WGMMA_DEFINE(u32, F16, @CHUNK_N@, @CHUNK_REGISTERS@, @CHUNK_B@)
#else
typedef float Accumulator;
WGMMA_DEFINE(float, F32, @CHUNK_N@, @CHUNK_REGISTERS@, @CHUNK_B@)
#endif
#include "lib/head_sum.cuh"

constexpr int MATH_WARPS = 4 * MATH_WARPGROUPS;
constexpr int PRODUCER_WARPS = MATH_REGISTERS != 0 ? 4 : PRODUCERS; /* registers change hands by warpgroups */
constexpr int THREADS = 32 * (MATH_WARPS + PRODUCER_WARPS);
constexpr int Q_BYTES = NEXT_N * NUM_HEADS * HEAD_DIM;
constexpr int K_BYTES = TILE_TOKENS * HEAD_DIM;
/* A tile is a part of one KV block, or several whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < TILE_TOKENS ? BLOCK_SIZE : TILE_TOKENS;
constexpr int BOXES = TILE_TOKENS / BOX_TOKENS;
constexpr int BOX_SCALE_PITCH = BOX_TOKENS < 32 ? 32 : BOX_TOKENS; /* floats: TMA writes to multiples of 128 bytes */
constexpr int SCALE_FLOATS = BOXES * BOX_SCALE_PITCH;

#include "lib/arguments.cuh"
#include "lib/producer.cuh"

/* Kernel argument; laid out alike in src/launch/sm90.c. */
struct Arguments {
    TensorMap q;      /* [B, next_n, H, D] bytes */
    TensorMap k;      /* [num_blocks, block_size, D] bytes */
    TensorMap scales; /* [num_blocks, block_size] floats */
    CommonArguments common;
};

/* Addresses in shared memory, from the 1024-aligned base: Q stages, KV ring, scale ring, then small things. */
struct Layout {
    u32 base;
    int stages;

    static constexpr int Q_REGION = (Q_STAGES * Q_BYTES + 1023) / 1024 * 1024;
    static constexpr int WEIGHT_BYTES = NEXT_N * NUM_HEADS * 4;
    static constexpr int LIMIT_BYTES = (NEXT_N * 4 + 15) / 16 * 16;

    __device__ __forceinline__ u32 q(int stage) const {
        return base + static_cast<u32>(stage * Q_BYTES);
    }
    __device__ __forceinline__ u32 k(int stage) const {
        return base + Q_REGION + static_cast<u32>(stage * K_BYTES);
    }
    __device__ __forceinline__ u32 scales(int stage) const {
        return k(stages) + static_cast<u32>(stage * SCALE_FLOATS * 4);
    }
    __device__ __forceinline__ u32 full(int stage) const {
        return scales(stages) + static_cast<u32>(stage * 16);
    }
    __device__ __forceinline__ u32 empty(int stage) const {
        return full(stage) + 8;
    }
    __device__ __forceinline__ u32 weights(int stage) const {
        return full(stages) + static_cast<u32>(stage * WEIGHT_BYTES);
    }
    __device__ __forceinline__ u32 limits(int stage) const {
        return weights(Q_STAGES) + static_cast<u32>(stage * LIMIT_BYTES);
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
    __device__ __forceinline__ u32 chunk_tiles() const {
        return q_full(Q_STAGES);
    }
};

/* Fills the stages by TMA, for lib/producer.cuh. */
struct Loader {
    const Arguments &args;
    const Layout &layout;
    RingCursor kv, q;

    static constexpr bool QUERIES_FIRST = false; /* keys come from farther away */
    static constexpr int REQUEST_UNROLL = MATH_REGISTERS != 0 ? 1 : NEXT_N; /* or registers run out */

    __device__ __forceinline__ void load_request(const RequestNote &note, int tokens) {
        const int request = note.request;
        const u32 full = layout.q_full(q.stage);
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;
        int *limits = shared_pointer<int>(layout.limits(q.stage));
#pragma unroll REQUEST_UNROLL
        for (int slot = 0; slot < NEXT_N; slot++)
            limits[slot] = slot_limit(args.common, request, slot, tokens);
        mbarrier_arrive_expect(full, Q_BYTES + Layout::WEIGHT_BYTES);
#pragma unroll REQUEST_UNROLL
        for (int slot = 0; slot < NEXT_N; slot++) {
            tma_load_4d(layout.q(q.stage) + slot * NUM_HEADS * HEAD_DIM, &args.q, full, 0, 0, slot, request,
                        EVICT_LAST);
            bulk_load(layout.weights(q.stage) + slot * NUM_HEADS * 4,
                      args.common.weights + (static_cast<i64>(request) * NEXT_N + slot) * args.common.weights_stride,
                      NUM_HEADS * 4, full);
        }
    }

    __device__ __forceinline__ void load_tile(int token, const int (&blocks)[BOXES]) {
        mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);
        const u32 full = layout.full(kv.stage);
        mbarrier_arrive_expect(full, K_BYTES + TILE_TOKENS * 4);
        const int row = BLOCK_SIZE > TILE_TOKENS ? token % BLOCK_SIZE : 0;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            tma_load_3d(layout.k(kv.stage) + box * BOX_TOKENS * HEAD_DIM, &args.k, full, 0, row,
                        blocks[box], EVICT_FIRST);
            tma_load_2d(layout.scales(kv.stage) + box * BOX_SCALE_PITCH * 4, &args.scales, full,
                        row, blocks[box], EVICT_FIRST);
        }
    }

    __device__ __forceinline__ void tile_loaded() {
        kv.advance(args.common.stages, PRODUCERS);
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

/* A math warpgroup: scores the tiles that are its team's turn for its query slots, a chunk of slots at a time. Where
 * next_n does not fill the chunks, the slots past it are computed from whatever lies behind the queries, and not
 * stored. */
struct Scorer {
    typedef Wgmma<CHUNK_SLOTS * NUM_HEADS> Mma;
    static constexpr int SLOTS = CHUNKS * CHUNK_SLOTS;
    static constexpr bool RAGGED = SLOT_GROUPS * SLOTS != NEXT_N;
    static constexpr int NO_TOKEN = 0x7fffffff;
    /* Descriptors in registers of the lanes, from where each wgmma fetches them, rather than in those of the warp: up to
     * 2 % faster in small CTAs, up to 14 % slower in large ones (five and six slots). */
    static constexpr bool KEPT_DESCRIPTORS = MATH_WARPGROUPS == 1;
    /* Straight-line code for a tile, which may keep things of all slots in registers. */
    static constexpr bool UNROLLED = CHUNKS == 1 || WEIGHTS_IN_REGISTERS > 0;

    const CommonArguments &args;
    const Layout &layout;
    int turn; /* tiles until this team's next one, from the next request's first on */
    int first_slot;
    RingCursor kv, q;

    /* Of stage 0, for this lane, in registers: its full barrier, this lane's scale, the low word of K's descriptor. A
     * tenth of a tile's instructions would compute them anew. */
    u32 full0, scale0, k0;

    /* Of the current request. */
    u32 q0; /* the low word of the queries' descriptor */
    HeadWeights<NUM_HEADS, SLOTS, RAGGED, WEIGHTS_IN_REGISTERS> weights;
    const int *limits;
    Output *row; /* of this lane's slot in the first pair of slots */
    /* Of all pairs of slots of all chunks, in registers. */
    static constexpr int CHUNK_PAIRS = (CHUNK_SLOTS + 1) / 2;
    int held_limits[CHUNKS * CHUNK_PAIRS];
    Output *held_rows[CHUNKS * CHUNK_PAIRS];

    /* The chunk whose heads are summed in every lane, but not yet over the lanes, nor stored. */
    RowPair sums[CHUNK_SLOTS];
    int token; /* of this lane in its tile; NO_TOKEN: there is no such chunk */
    float scale;

    /* In the end a lane holds one row (token) of one slot: lane & 1 chooses between rows r and r + 8 of its quad, lane
     * & 2 between the slots of a pair. */
    __device__ __forceinline__ int tile_row() const {
        return static_cast<int>(threadIdx.x / 32 & 3) * 16 + lane_id() / 4 + (lane_id() & 1) * 8;
    }
    __device__ __forceinline__ bool upper_slot() const {
        return lane_id() & 2;
    }
    /* Tokens from one tile of this CTA to the next. */
    __device__ __forceinline__ int tile_step() const {
        return MAX_CTAS_PER_SM == 1 ? TILE_TOKENS : args.ctas_per_sm * TILE_TOKENS;
    }

    __device__ __forceinline__ void store_sums(int slot) {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s += 2) {
            const float low = reduce_rows(sums[s]);
            float kept = low;
            float sent = low;
            int own = slot + s;
            if (s + 1 < CHUNK_SLOTS) {
                const float high = reduce_rows(sums[s + 1]);
                kept = upper_slot() ? high : low;
                sent = upper_slot() ? low : high;
                own += upper_slot() ? 1 : 0;
            }
            const bool stores = (s + 1 < CHUNK_SLOTS || !upper_slot()) && (!RAGGED || first_slot + own < NEXT_N);
            const float total = kept + __shfl_xor_sync(FULL_WARP, sent, 2);
            const int pair = slot / CHUNK_SLOTS * CHUNK_PAIRS + s / 2;
            if (UNROLLED)
                store_if(stores && token < held_limits[pair], held_rows[pair] + token, total * scale);
            else
                store_if(stores && token < limits[slot + s],
                         row + (slot + s) * args.out_stride + token, total * scale);
        }
    }

    __device__ __forceinline__ void multiply(Accumulator *acc, int slot) {
        const u32 a = k0 + static_cast<u32>(kv.stage) * (K_BYTES / 16);
        u32 b = q0 + static_cast<u32>(slot * NUM_HEADS * HEAD_DIM / 16);
        if (KEPT_DESCRIPTORS)
            keep(b);
        Mma::first(acc, wgmma_descriptor_of<HEAD_DIM>(a), wgmma_descriptor_of<HEAD_DIM>(b));
#pragma unroll
        for (int step = 1; step < HEAD_DIM / 32; step++)
            Mma::next(acc, wgmma_descriptor_of<HEAD_DIM>(a + 2 * step), wgmma_descriptor_of<HEAD_DIM>(b + 2 * step));
        wgmma_commit();
    }

    /* Multiplies and sums a chunk; meanwhile the one before it is stored. There may be none: then its stores are off,
     * rather than branched around, because ptxas serialises wgmmas that are in flight over a branch (advice C7518). */
    __device__ __forceinline__ void score_chunk(int slot, int next_token, float next_scale) {
        Accumulator acc[Mma::REGISTERS];
        wgmma_fence();
        multiply(acc, slot);
        store_sums(slot == 0 ? SLOTS - CHUNK_SLOTS : slot - CHUNK_SLOTS);
        token = next_token;
        scale = next_scale;
        wgmma_wait_all();
#pragma unroll
        for (int r = 0; r < Mma::REGISTERS; r++)
            wgmma_pin(acc[r]);
        if (slot == SLOTS - CHUNK_SLOTS)
            release(full0 + static_cast<u32>(kv.stage) * 16 + 8);
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            sums[s] = head_sum<NUM_HEADS>(acc, s, weights, slot + s);
    }

    __device__ __forceinline__ void score_tile(int next_token) {
        mbarrier_wait(full0 + static_cast<u32>(kv.stage) * 16, kv.parity);
        const u32 own_scale = scale0 + static_cast<u32>(kv.stage) * (SCALE_FLOATS * 4);
        const float next_scale = __uint_as_float(load_shared<u32>(own_scale));
        if constexpr (UNROLLED) {
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot += CHUNK_SLOTS)
                score_chunk(slot, next_token, next_scale);
        } else {
#pragma unroll 1
            for (int slot = 0; slot < SLOTS; slot += CHUNK_SLOTS)
                score_chunk(slot, next_token, next_scale);
        }
        kv.advance(args.stages, TEAMS);
    }

    /* One arrival for each warp, once all its lanes have read. */
    __device__ __forceinline__ void release(u32 barrier) {
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(barrier);
    }

    __device__ __forceinline__ void run() {
        const int lane_slot = first_slot + (upper_slot() ? 1 : 0);
        const int r = tile_row();
        full0 = layout.full(0);
        scale0 = layout.scales(0) +
                 (r / BOX_TOKENS * BOX_SCALE_PITCH + r % BOX_TOKENS) * 4;
        k0 = wgmma_descriptor_low<HEAD_DIM>(layout.k(0));
        kv.stage = turn;
        keep(full0);
        keep(scale0);
        if (KEPT_DESCRIPTORS)
            keep(k0);
        for (;; q.advance(Q_STAGES)) {
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const RequestNote note = *shared_pointer<RequestNote>(layout.note(q.stage));
            if (note.tiles == 0)
                break;
            weights.load(shared_pointer<float>(layout.weights(q.stage)) + first_slot * NUM_HEADS,
                         NEXT_N - 1 - first_slot);
            limits = shared_pointer<int>(layout.limits(q.stage)) + lane_slot;
            row = args.out + (static_cast<i64>(note.request) * NEXT_N + lane_slot) * args.out_stride;
            if (UNROLLED) {
#pragma unroll
                for (int pair = 0; pair < CHUNKS * CHUNK_PAIRS; pair++) {
                    const int slot = pair / CHUNK_PAIRS * CHUNK_SLOTS + pair % CHUNK_PAIRS * 2;
                    u32 limit = static_cast<u32>(limits[min(slot, NEXT_N - 1 - lane_slot)]); /* of no slot: any */
                    keep(limit);
                    held_limits[pair] = static_cast<int>(limit);
                    held_rows[pair] = row + slot * args.out_stride;
                    keep(held_rows[pair]);
                }
            }
            q0 = wgmma_descriptor_low<HEAD_DIM>(layout.q(q.stage) +
                                                static_cast<u32>(first_slot * NUM_HEADS * HEAD_DIM));
            if (KEPT_DESCRIPTORS)
                keep(q0);
            token = NO_TOKEN;
            scale = 0.f;
#pragma unroll
            for (int s = 0; s < CHUNK_SLOTS; s++)
                sums[s] = RowPair{0.f, 0.f};

            int next_token = note.token + turn * tile_step() + r;
            for (; turn < note.tiles; turn += TEAMS, next_token += TEAMS * tile_step())
                score_tile(next_token);
            turn -= note.tiles;
            store_sums(SLOTS - CHUNK_SLOTS);
            mbarrier_arrive(layout.q_empty(q.stage)); /* by every lane, as all have read the note */
        }
    }
};

#include "lib/roles_sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MAX_CTAS_PER_SM)
    fp8_paged_mqa_logits(const __grid_constant__ Arguments arguments) {
    if (threadIdx.x == 0) {
        tma_prefetch_map(&arguments.k);
        tma_prefetch_map(&arguments.scales);
        tma_prefetch_map(&arguments.q);
    }
    const Layout layout{shared_address(shared_memory), arguments.common.stages};
    run_roles(arguments, layout, 4 * SLOT_GROUPS, [&](int warp) {
        const int warpgroup = __shfl_sync(FULL_WARP, warp / 4, 0); /* alike in all lanes, as the compiler now knows */
        Scorer{arguments.common, layout, warpgroup / SLOT_GROUPS, warpgroup % SLOT_GROUPS * Scorer::SLOTS}.run();
    });
}
