/* SPDX-License-Identifier: MIT
 * fp4_paged_mqa_logits for sm_90a: persistent, warp-specialised, one pass over the KV for every next_n.
 *
 * Hopper multiplies no 4-bit numbers, so a math warpgroup expands a tile's keys to E5M2 in registers, as the A operand
 * of wgmma, and a request's queries to E5M2 in shared memory, as B. The scales go along: a token's (or head's) scales
 * become shifts relative to the largest of them, as long as they differ by no more than MAX_SHIFT powers of two; the
 * largest itself multiplies the token's score, or the head's weight. What does not fit (scales further apart, NaN,
 * weights very far apart or near the ends of float32) is called wild, and scored apart, slowly, number by number.
 * Whether a score is wild depends on its own token and query slot alone, so its bits do, too.
 *
 * For scores of 16 bits, heads are weighted and summed on the tensor cores as well (lib/split_weight.cuh), for float32
 * on FP32 units.
 *
 * The rest is as in fp8_paged_mqa_logits_sm90.cu: producers that alone know the schedule, a ring of KV stages, which
 * warpgroups and producers take in turn, a RequestNote for each request, stores while the tensor cores work on the next
 * tile. Then, too, the keys of the tile after that are loaded (lib/mxfp4_key_ring_sm90.cuh). */
#include "lib/base.cuh"
#include "lib/shared_memory.cuh"
#include "lib/mbarrier.cuh"
#include "lib/tma.cuh"
#include "lib/wgmma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"
#include "lib/mxfp4.cuh"
#include "lib/registers.cuh"

/* Specialised constants, filled in by the host. */
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int MATH_WARPGROUPS = @MATH_WARPGROUPS@;
constexpr int MATH_REGISTERS = @MATH_REGISTERS@; /* of a thread; 0: all have alike */
constexpr int PRODUCER_REGISTERS = @PRODUCER_REGISTERS@;
constexpr int PRODUCERS = MATH_WARPGROUPS;
constexpr int MAX_CTAS_PER_SM = @MAX_CTAS_PER_SM@; /* the launch may use fewer */
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;         /* query slots in one wgmma */
constexpr int CHUNKS = @CHUNKS@;
constexpr bool SCALES_INTERLEAVED = @SCALES_INTERLEAVED@;
constexpr bool WEIGHTS_IN_REGISTERS = @WEIGHTS_IN_REGISTERS@;
constexpr bool ACC_F16 = false;
constexpr bool EPI_F16 = false;
constexpr bool DOUBLED_RELU = true; /* products of E5M2 numbers are far from float32's end */
typedef @OUT_TYPE@ Output;
/* Both ways on the tensor cores give the same bits. Four warpgroups have no more than 64 columns each. */
enum { ON_FP32_UNITS, BY_MMA, BY_WGMMA };
constexpr int HEAD_SUMS = sizeof(Output) != 2 ? ON_FP32_UNITS : MATH_WARPGROUPS == 4 ? BY_MMA : BY_WGMMA;
constexpr bool SUMS_ON_TENSOR_CORES = HEAD_SUMS != ON_FP32_UNITS;

WGMMA_DEFINE_A(float, F32, @CHUNK_N@, @CHUNK_REGISTERS@, "@CHUNK_A@", "@CHUNK_B@")
#include "lib/head_sum.cuh"
#include "lib/split_weight.cuh"
#include "lib/head_sum_mma.cuh"
#include "lib/head_sum_wgmma.cuh"

typedef PairSums<NUM_HEADS, CHUNK_SLOTS == 1 ? 1 : 2> ChunkPair;
constexpr int CHUNK_PAIRS = (CHUNK_SLOTS + 1) / 2;

constexpr int MATH_WARPS = 4 * MATH_WARPGROUPS;
constexpr int MATH_THREADS = 32 * MATH_WARPS;
constexpr int PRODUCER_WARPS = MATH_REGISTERS != 0 ? 4 : PRODUCERS; /* registers change hands by warpgroups */
constexpr int THREADS = MATH_THREADS + 32 * PRODUCER_WARPS;
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
/* TMA writes to multiples of 128 bytes. */
constexpr int BOX_SCALE_PITCH = BOX_SCALE_BYTES < 128 ? 128 : BOX_SCALE_BYTES;
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

/* Addresses in shared memory, from the 1024-aligned base: what has one size, then the KV ring. */
struct Layout {
    u32 base;

    static constexpr u32 Q_REGION = (SLOTS * NUM_HEADS * HEAD_DIM + 1023) / 1024 * 1024;
    static constexpr u32 Q_BYTES = NEXT_N * NUM_HEADS * ROW_BYTES;
    static constexpr u32 HEAD_BYTES = NEXT_N * NUM_HEADS * 4; /* of weights, and of scales */
    static constexpr u32 SLOT_BYTES = (NEXT_N * 4 + 15) / 16 * 16;
    static constexpr int MADE_SLOT_BYTES = HEAD_SUMS == BY_MMA ? SplitWeights<NUM_HEADS>::BYTES : NUM_HEADS * 4;
    static constexpr u32 MADE_BYTES = /* of weights */
        HEAD_SUMS == BY_WGMMA ? CHUNKS * CHUNK_PAIRS * ChunkPair::WEIGHT_BYTES : SLOTS * MADE_SLOT_BYTES;
    static constexpr u32 ALL_SLOT_BYTES = (SLOTS * 4 + 15) / 16 * 16;

    /* As they come, for each Q stage. */
    static constexpr u32 Q = Q_REGION;
    static constexpr u32 Q_SCALES = Q + Q_STAGES * Q_BYTES;
    static constexpr u32 WEIGHTS = Q_SCALES + Q_STAGES * HEAD_BYTES;
    static constexpr u32 LIMITS = WEIGHTS + Q_STAGES * HEAD_BYTES;
    static constexpr u32 NOTES = LIMITS + Q_STAGES * SLOT_BYTES;
    static constexpr u32 Q_BARRIERS = NOTES + Q_STAGES * 16;
    /* Made of them for the current request. */
    static constexpr u32 MADE_WEIGHTS = Q_BARRIERS + Q_STAGES * 16;
    static constexpr u32 POWERS = MADE_WEIGHTS + MADE_BYTES;
    static constexpr u32 TAME_LIMITS = POWERS + ALL_SLOT_BYTES;
    static constexpr u32 CHUNK_TILES = TAME_LIMITS + ALL_SLOT_BYTES;
    static constexpr u32 RING = (CHUNK_TILES + MAX_CHUNKS * 4 + 127) / 128 * 128;

    /* In a tile, and in a KV stage. */
    static constexpr u32 SCALES_AT = K_BYTES;
    static constexpr u32 TILE_BYTES = SCALES_AT + SCALE_BYTES;
    static constexpr u32 FULL_AT = TILE_BYTES;
    static constexpr u32 EMPTY_AT = FULL_AT + 8;
    static constexpr u32 STAGE_BYTES = FULL_AT + 128;

    __device__ __forceinline__ u32 stage(int i) const {
        return base + RING + static_cast<u32>(i) * STAGE_BYTES;
    }
    __device__ __forceinline__ u32 full(int i) const {
        return stage(i) + FULL_AT;
    }
    __device__ __forceinline__ u32 empty(int i) const {
        return stage(i) + EMPTY_AT;
    }
    __device__ __forceinline__ u32 expanded() const {
        return base;
    }
    __device__ __forceinline__ u32 q(int stage) const {
        return base + Q + static_cast<u32>(stage) * Q_BYTES;
    }
    __device__ __forceinline__ u32 q_scales(int stage) const {
        return base + Q_SCALES + static_cast<u32>(stage) * HEAD_BYTES;
    }
    __device__ __forceinline__ u32 weights(int stage) const {
        return base + WEIGHTS + static_cast<u32>(stage) * HEAD_BYTES;
    }
    __device__ __forceinline__ u32 limits(int stage) const {
        return base + LIMITS + static_cast<u32>(stage) * SLOT_BYTES;
    }
    __device__ __forceinline__ u32 note(int stage) const {
        return base + NOTES + static_cast<u32>(stage) * 16;
    }
    __device__ __forceinline__ u32 q_full(int stage) const {
        return base + Q_BARRIERS + static_cast<u32>(stage) * 16;
    }
    __device__ __forceinline__ u32 q_empty(int stage) const {
        return q_full(stage) + 8;
    }
    __device__ __forceinline__ u32 made_weights(int slot) const { /* as HeadSums wants them: of the slot, or its pair */
        const int pair = slot / CHUNK_SLOTS * CHUNK_PAIRS + slot % CHUNK_SLOTS / 2;
        return base + MADE_WEIGHTS +
               static_cast<u32>(HEAD_SUMS == BY_WGMMA ? pair * ChunkPair::WEIGHT_BYTES : slot * MADE_SLOT_BYTES);
    }
    /* [SLOTS]: floats, what sums are to be multiplied with besides the token's scale. */
    __device__ __forceinline__ u32 powers() const {
        return base + POWERS;
    }
    __device__ __forceinline__ u32 tame_limits() const { /* [SLOTS]: 0 for wild slots */
        return base + TAME_LIMITS;
    }
    __device__ __forceinline__ u32 chunk_tiles() const {
        return base + CHUNK_TILES;
    }
};

/* Fills the stages, for lib/producer.cuh. */
struct Loader {
    const Arguments &args;
    const Layout &layout;
    RingCursor kv, q;

    /* They are still to be widened when keys are there. With one stage they would wait for the request before. */
    static constexpr bool QUERIES_FIRST = Q_STAGES > 1;
    /* Producers have few registers, beside four warpgroups the fewest. */
    static constexpr int UNROLLED_SLOTS = NEXT_N <= (MATH_WARPGROUPS == 4 ? 2 : 4) ? NEXT_N : 1;

    __device__ __forceinline__ void load_request(const RequestNote &note, int tokens) {
        const int request = note.request;
        const u32 full = layout.q_full(q.stage);
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;
        int *limits = shared_pointer<int>(layout.limits(q.stage));
#pragma unroll(UNROLLED_SLOTS)
        for (int slot = 0; slot < NEXT_N; slot++)
            limits[slot] = slot_limit(args.common, request, slot, tokens);
        mbarrier_arrive_expect(full, Layout::Q_BYTES + 2 * Layout::HEAD_BYTES);
#pragma unroll(UNROLLED_SLOTS)
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
        const u32 stage = layout.stage(kv.stage);
        const u32 full = stage + Layout::FULL_AT;
        mbarrier_wait(stage + Layout::EMPTY_AT, kv.parity ^ 1);
        mbarrier_arrive_expect(full, K_BYTES + BOXES * BOX_SCALE_BYTES);
        const int row = BLOCK_SIZE > TILE_TOKENS ? token % BLOCK_SIZE : 0;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            tma_load_3d(stage + box * BOX_TOKENS * ROW_BYTES, &args.k, full, 0, row * ROW_BYTES / MAP_ROW_BYTES,
                        blocks[box], EVICT_FIRST);
            tma_load_2d(stage + Layout::SCALES_AT + box * BOX_SCALE_PITCH, &args.scales, full,
                        SCALES_INTERLEAVED ? 0 : row, blocks[box], EVICT_FIRST);
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

#include "lib/mxfp4_keys_sm90.cuh"
#include "lib/mxfp4_key_ring_sm90.cuh"
#include "lib/mxfp4_queries_sm90.cuh"
#include "lib/mxfp4_wild_sm90.cuh"
#include "lib/mxfp4_head_sums_sm90.cuh"

/* ---- Math ----------------------------------------------------------------------------------------------------- */

/* A math warpgroup: scores the tiles that are its turn for all query slots, a chunk of slots at a time. */
struct Scorer {
    typedef WgmmaA<CHUNK_SLOTS * NUM_HEADS> Mma;
    static constexpr int NO_TOKEN = 0x7fffffff;
    static constexpr int STRIDE = MATH_WARPGROUPS * TILE_TOKENS; /* from one tile of a warpgroup to its next */
    static constexpr bool ONE_PAIR = CHUNKS == 1 && CHUNK_SLOTS <= 2; /* then its limit and exponent are in registers */

    const CommonArguments &args;
    const Layout &layout;

    KeyRing ring;
    u32 requests; /* done so far; that is where the Q ring is */
    int turn;     /* tiles until this warpgroup's next one, from the next request's first on */

    u32 own_largest; /* where this lane's row has its largest scale, in Keys::largest */

    /* Of the current request. */
    HeadSums<HEAD_SUMS> heads; /* of the chunk that is not stored yet */
    u32 own_slot;              /* address, but for an offset, of what is kept for this lane's slot in the first pair */
    int own_limit;             /* of that slot; 0 for wild ones */
    float own_power;
    Output *row;
    u32 suspicious_slot; /* ScalePair::SUSPICIOUS if there are wild slots */
    u32 expanded;        /* low word of the queries' descriptor */
    int own_token;       /* of this lane in the current tile */

    /* The chunk that was multiplied, but is not stored. */
    int slot;    /* its first */
    int token;   /* of this lane in its tile; NO_TOKEN: there is no such chunk, or the token is wild */
    float power; /* its scale */

    __device__ __forceinline__ int q_stage() const {
        return static_cast<int>(requests % Q_STAGES);
    }

    __device__ __forceinline__ static int tile_row() {
        return warp_row() + lane_id() / 4 + (lane_id() & 1) * 8;
    }
    __device__ __forceinline__ static bool upper_slot() {
        return lane_id() & 2;
    }

    __device__ __forceinline__ void store_sums() {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s += 2) {
            const bool has_slot = ONE_PAIR || s + 1 < CHUNK_SLOTS || !upper_slot(); /* or it has a limit of 0 */
            const u32 at = own_slot + (slot + s - (has_slot ? 0 : 1)) * 4;
            const int limit = ONE_PAIR ? own_limit : static_cast<int>(load_shared<u32>(at + Layout::TAME_LIMITS));
            const float slot_power = ONE_PAIR ? own_power : __uint_as_float(load_shared<u32>(at + Layout::POWERS));
            store_if(has_slot && token < limit, row + (slot + s) * args.out_stride + token,
                     heads.own(s) * slot_power * power);
        }
    }

    /* Multiplies the chunk from `next_slot` on; meanwhile the chunk before it, whose heads are being summed, is stored,
     * and during a tile's first one the next tile is looked for. There may be no chunk before: then its stores are off,
     * rather than branched around, because ptxas serialises wgmmas that are in flight over a branch (advice C7518). */
    template <bool FIRST>
    __device__ __forceinline__ void score_chunk(KeyRing::Keys &keys, int next_slot, int next_token, float next_power) {
        float acc[Mma::REGISTERS];
        u32 queries = expanded + static_cast<u32>(next_slot * NUM_HEADS * HEAD_DIM / 16);
        keep(queries); /* or all steps' descriptors would be kept in registers that are short */
        const u64 b = wgmma_descriptor_of<HEAD_DIM>(queries);
        if (!FIRST)
            heads.multiply(slot);
        heads.finish();
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

        if (FIRST)
            ring.look_ahead();
        store_sums();
        if (FIRST)
            ring.exchange();
        slot = next_slot;
        token = next_token;
        power = next_power;

        wgmma_wait_all();
#pragma unroll
        for (int i = 0; i < Mma::REGISTERS; i++)
            wgmma_pin(acc[i]);
        heads.take(acc, next_slot);
    }

    /* Of the current tile, if some tokens, or slots, may be wild. */
    __device__ __forceinline__ void score_wild_tokens() {
        const int start = own_token - tile_row();
        const u32 wild = ring.wild_rows(start);
        score_wild(args, layout, ring.stage, q_stage(), start, wild);
        if (wild >> (lane_id_here() & 1) & 1)
            token = NO_TOKEN;
    }

    __device__ __forceinline__ void leave_tile() {
        ring.release();
        own_token += STRIDE;
    }

    /* Scores the current tile. If one chunk is all, leaves it to the caller to go on, and returns whether there may be
     * wild tokens: so the loop over tiles has one branch for all that is seldom. */
    __device__ __forceinline__ bool score_tile() {
        heads.multiply(slot); /* while keys are expanded */
        KeyRing::Keys keys = ring.take(SCALES_INTERLEAVED ? own_token - tile_row() : 0);
        const float next_power = scale_value(permute_bytes(keys.largest, 0, own_largest));
        score_chunk<true>(keys, 0, own_token, next_power);
        /* Only now, as to know it before the first wgmma would delay that. */
        const bool wild = __any_sync(FULL_WARP, (keys.suspicious | suspicious_slot) & ScalePair::SUSPICIOUS);
        if constexpr (CHUNKS > 1) {
            if (wild)
                score_wild_tokens();
            leave_tile();
            const int next_token = token;
#pragma unroll 1
            for (int next_slot = CHUNK_SLOTS; next_slot < SLOTS; next_slot += CHUNK_SLOTS)
                score_chunk<false>(keys, next_slot, next_token, next_power);
            return false;
        }
        return wild;
    }

    /* Scores this warpgroup's tiles of a request, up to own_token `end`. */
    __device__ __forceinline__ void score_tiles(int end) {
        while (own_token < end) { /* once, unless keys had to be waited for, or tokens were wild */
            if (!ring.ahead)
                ring.load();
            bool wild;
            for (;;) {
                wild = score_tile();
                if (wild)
                    break;
                if (CHUNKS == 1)
                    leave_tile();
                if (!ring.ahead || own_token >= end)
                    break;
            }
            if (wild) {
                score_wild_tokens();
                leave_tile();
            }
        }
    }

    __device__ __forceinline__ void start_request(const RequestNote &note) {
        named_barrier_sync(1, MATH_THREADS); /* every warp's products of the request before are done */
        QueryExpander{layout, q_stage()}.run(static_cast<int>(threadIdx.x));
        const int lane_slot = upper_slot() ? 1 : 0;
        own_slot = layout.base + lane_slot * 4;
        if (ONE_PAIR) {
            own_limit = lane_slot < CHUNK_SLOTS ? shared_pointer<int>(layout.tame_limits())[lane_slot] : 0;
            own_power = lane_slot < CHUNK_SLOTS ? shared_pointer<float>(layout.powers())[lane_slot] : 0.f;
        }
        row = args.out + (static_cast<i64>(note.request) * NEXT_N + lane_slot) * args.out_stride;
        if (CHUNKS == 1)
            keep(row);
        suspicious_slot = 0;
#pragma unroll
        for (int s = 0; s < NEXT_N; s++) {
            if (shared_pointer<int>(layout.tame_limits())[s] != shared_pointer<int>(layout.limits(q_stage()))[s])
                suspicious_slot = ScalePair::SUSPICIOUS;
        }
        if (CHUNKS == 1)
            keep(suspicious_slot);
        slot = 0;
        token = NO_TOKEN;
        power = 0.f;
        heads.load_weights(layout);
        heads.start();
    }

    __device__ __forceinline__ void run() {
        own_largest = lane_id() & 1 ? 0x4442 : 0x4440;
        if (CHUNKS == 1) /* else registers are short */
            own_largest = not_computed_again(own_largest);
        turn = static_cast<int>(threadIdx.x / 128);
        ring.start(layout, turn);
        expanded = __shfl_sync(FULL_WARP, wgmma_descriptor_low<HEAD_DIM>(layout.expanded()), 0);
        for (requests = 0;; requests++) {
            mbarrier_wait(layout.q_full(q_stage()), requests / Q_STAGES & 1);
            const RequestNote note = *shared_pointer<RequestNote>(layout.note(q_stage()));
            if (note.tiles == 0)
                break;
            start_request(note);
            const int end = note.token + note.tiles * TILE_TOKENS + tile_row();
            own_token = note.token + turn * TILE_TOKENS + tile_row();
            score_tiles(end);
            turn = (own_token - end) / TILE_TOKENS;
            heads.multiply(slot);
            heads.finish();
            store_sums();
            mbarrier_arrive(layout.q_empty(q_stage())); /* by every lane, as all have read the stage */
        }
    }
};

#include "lib/roles_sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MAX_CTAS_PER_SM)
    fp4_paged_mqa_logits(const __grid_constant__ Arguments arguments) {
    if (threadIdx.x == 0) {
        tma_prefetch_map(&arguments.k);
        tma_prefetch_map(&arguments.scales);
    }
    const Layout layout{shared_address(shared_memory)};
    run_roles(arguments, layout, 4, [&](int) { Scorer{arguments.common, layout, {arguments.common}}.run(); });
}
