/* SPDX-License-Identifier: MIT
 * The MMA thread of the tcgen05 kernels: issues every MMA, FP8 and MXFP4. */

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
                /* K (and its scales, MXFP4) may be overwritten once the last chunk's MMAs have read it: a commit, not
                 * an arrival of this thread, which runs ahead of them. */
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
