/* SPDX-License-Identifier: MIT
 * The scale warp of the tcgen05 kernels, MXFP4: brings scale factors into the order of tensor memory. */

/* Words of scales, one for a row of the operand, become rows as tcgen05_copy_scales takes them: word 32 i + l goes
 * to word i of row l. */
struct ScaleMover {
    const Layout &layout;
    int stages;
    RingCursor kv, q;

    /* The generic writes are for the tensor cores to read (async proxy): a fence by every writer, then one arrival. */
    __device__ __forceinline__ void publish(u32 rows, uint4 words, u32 barrier, bool last) const {
        *(shared_pointer<uint4>(rows) + lane_id()) = words;
        if (last) {
            fence_async_shared();
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
