/* SPDX-License-Identifier: MIT
 * The producer warp of the tcgen05 kernels fills Q stages and KV stages by TMA and bulk copies. */

/* Who calls what: lib/tile_walk.cuh. */
struct Loader {
    const Arguments &args;
    const Layout &layout;
    RingCursor kv, q;
    int blocks[BOXES]; /* of this lane's tile */

    __device__ __forceinline__ int length(int request) const {
        return request_length(args.common, request);
    }

    __device__ __forceinline__ void look_up(int request, int token, int tokens) {
        const int *row = args.common.block_tables + request * args.common.table_stride;
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            const int start = token + box * BOX_TOKENS;
            blocks[box] = start < tokens ? row[start / BLOCK_SIZE] : -1;
        }
    }

    __device__ __forceinline__ void begin(const RequestNote &note, int tokens) {
        const u32 full = layout.q_full(q.stage);
        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);
        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;
        int *limits = shared_pointer<int>(layout.limits(q.stage));
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++)
            limits[slot] = slot_limit(args.common, note.request, slot, tokens);
        mbarrier_arrive_expect(full, Q_BYTES + Layout::WEIGHT_BYTES + Layout::Q_SCALE_BYTES);
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++) {
            const i64 row = static_cast<i64>(note.request) * NEXT_N + slot;
            tma_load_4d(layout.q(q.stage) + slot * NUM_HEADS * ROW_BYTES, &args.q, full, 0, 0, slot, note.request,
                        EVICT_LAST);
            bulk_load(layout.weights(q.stage) + slot * NUM_HEADS * 4,
                      args.common.weights + row * args.common.weights_stride, NUM_HEADS * 4, full);
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
        kv.advance(args.common.stages);
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
        for (int i = 0; i < args.common.stages; i++) {
            mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);
            kv.advance(args.common.stages);
        }
    }

    /* Brings the block ids closer that this CTA needs if all requests are as long as they may be, while the lengths are
     * still on their way: right for requests of equal length, harmless for others. A prefetch is no read: it cannot
     * fault, and what it brings is used only where the lengths say so. */
    __device__ __forceinline__ void prefetch_table() const {
        const u32 tiles = static_cast<u32>(walk_tiles(args.common.max_tokens));
        const u32 total = static_cast<u32>(args.common.batch) * tiles;
        const u32 tile = total / gridDim.x * blockIdx.x + min(blockIdx.x, total % gridDim.x) +
                         static_cast<u32>(lane_id());
        if (tile < total) {
            const u32 request = tile / tiles;
            const i64 entry = request * args.common.table_stride + (tile - request * tiles) * WALK_TOKENS / BLOCK_SIZE;
            asm volatile("prefetch.global.L1 [%0];" ::"l"(args.common.block_tables + entry));
        }
    }
};
