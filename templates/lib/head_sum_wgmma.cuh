/* SPDX-License-Identifier: MIT
 * The same sums as lib/head_sum_mma.cuh makes, by wgmma: these products run beside other work and do not wait for those
 * of other warpgroups, but are 64 tokens', and have to be waited for at a request's end. */

/* D (+)= A B for float16 operands, M = 64, N = 8, K = 16, with A in registers: a[0] and a[1] hold columns
 * 2(l%4) + {0, 1} of rows 16w + l/4 and + 8, a[2] and a[3] those 8 columns on. */
__device__ __forceinline__ void wgmma_f16_first(float (&d)[4], const u32 *a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, "
                 "0;\n}"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_f16_next(float (&d)[4], const u32 *a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, "
                 "0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* A pair of slots, whose sums are made by the same products: along K first the heads of one, then those of the other,
 * with weights of zero in each other's columns. SLOTS == 1: there are no pairs. Of an odd number the last one's partner
 * is missing: it has weights of zero, if anything. */
template <int HEADS, int SLOTS> struct PairSums {
    /* So many of K for each slot, that the order of additions is the same in both: the rest are zeros. */
    static constexpr int SLOT_HEADS = HEADS == 8 ? 8 : (HEADS + 15) / 16 * 16;
    static constexpr int STEPS = (SLOTS * SLOT_HEADS + 15) / 16; /* of K */
    /* Of weights. Columns 4 to 7 of a slot that is alone are anything, so there the next heads' columns lie. */
    static constexpr int COLUMNS = 4 * SLOTS;
    static constexpr int STEP_BYTES = 2 * 16 * COLUMNS;
    static constexpr int WEIGHT_BYTES = STEPS * STEP_BYTES + 16 * (8 - COLUMNS);

    u32 scores[4 * STEPS]; /* after ReLU, in pairs of heads */
    float sums[4];

    /* Weights as wgmma's B, K-major and not swizzled: for every 8 heads columns of 16 bytes. Behind a slot's last heads
     * there are zeros up to a multiple of 16, and to the last column. */
    __device__ __forceinline__ static void store_weight(u32 weights, int slot, int head, SplitWeight weight) {
        constexpr bool FILLED_UP = SLOT_HEADS != HEADS || SLOTS * SLOT_HEADS != 16 * STEPS;
        constexpr int LAST_COLUMNS = (FILLED_UP ? 2 * COLUMNS : COLUMNS) + 8 - COLUMNS;
        const int k = slot * SLOT_HEADS + head;
        unsigned short *first = shared_pointer<unsigned short>(weights + k / 8 * (16 * COLUMNS)) + k % 8;
#pragma unroll
        for (int column = 0; column < COLUMNS; column++)
            first[8 * column] = column / 4 != slot ? 0 : column % 2 == 0 ? weight.high : weight.rest;
        if (LAST_COLUMNS > COLUMNS && head >= HEADS - 8) {
#pragma unroll
            for (int column = COLUMNS; column < LAST_COLUMNS; column++)
                first[8 * column] = 0;
        }
    }

    /* Low word of their descriptor (wgmma.cuh), with the distance from 8 heads to the next. */
    __device__ __forceinline__ static u32 descriptor_low(u32 weights) {
        return (static_cast<u32>(COLUMNS) << 16) | (weights & 0x3ffffu) >> 4;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 4 * STEPS; i++)
            scores[i] = 0;
    }
    /* `acc`: the columns of the pair's slots, of which `slots` are there. */
    __device__ __forceinline__ void take(const float *acc, int slots) {
#pragma unroll
        for (int s = 0; s < slots; s++) {
#pragma unroll
            for (int i = 0; i < HEADS / 4; i++)
                scores[s * SLOT_HEADS / 4 + i] =
                    relu_to_f16x2(acc[s * HEADS / 2 + 2 * i], acc[s * HEADS / 2 + 2 * i + 1]);
        }
    }
    __device__ __forceinline__ void pin_scores() {
#pragma unroll
        for (int i = 0; i < 4 * STEPS; i++)
            wgmma_pin(scores[i]);
    }
    /* Between wgmma_fence and wgmma_commit. */
    __device__ __forceinline__ void multiply(u32 descriptor_low, int slots) {
        const u64 b = (u64(STEP_BYTES / 16) << 32) | descriptor_low;
        wgmma_f16_first(sums, scores, b);
#pragma unroll
        for (int step = 1; step < (slots * SLOT_HEADS + 15) / 16; step++)
            wgmma_f16_next(sums, scores + 4 * step, b + step * (STEP_BYTES / 16));
    }
    __device__ __forceinline__ void pin_sums() {
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma_pin(sums[i]);
    }
};
