/* SPDX-License-Identifier: MIT
 * What the producers of fp4_paged_mqa_logits_sm90.cu load, for lib/producer.cuh. */

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
