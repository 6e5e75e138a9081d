/* SPDX-License-Identifier: MIT
 * What the math warpgroups of fp4_paged_mqa_logits_sm90.cu do, request by request and tile by tile. */

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
