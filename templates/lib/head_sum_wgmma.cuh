/* SPDX-License-Identifier: MIT
 * Epilogue on the tensor cores: relu(score), rounded to float16, times weights that are two float16 numbers each, summed in
 * float32 by wgmma. Accumulators lie as wgmma wants its A operand in registers (PTX ISA, "wgmma.mma_async"), so that 64 heads
 * of 64 tokens take 16 conversions for each lane and 4 products, which nothing waits for but the next tile's products.
 *
 * The slots of a pair are summed by the same products, one after the other along K. A product has 8 columns: 0 and 2 are the
 * weights of the first slot, 1 and 3 what is missing of them, times 2^11; 4 to 7 likewise of the second slot; and zeros for
 * heads of the other. So lanes 0 and 1 of a quad hold the sums of the first slot, 2 and 3 of the second, as the stores want
 * them. The order of additions depends on the number of heads alone.
 *
 * Numbers: scores must be below 2^16, and are rounded to 11 bits. Weights below 2^15 are kept to 22 bits down to 2^-14, to
 * 16 at 2^-20. */

constexpr float WEIGHT_REST = 0x1p11f;

struct SplitWeight {
    unsigned short high, rest; /* float16: weight = high + rest / WEIGHT_REST */
};

__device__ __forceinline__ SplitWeight split_weight(float weight) {
    SplitWeight split;
    float high;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(split.high) : "f"(weight));
    asm("cvt.f32.f16 %0, %1;" : "=f"(high) : "h"(split.high));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(split.rest) : "f"((weight - high) * WEIGHT_REST));
    return split;
}

__device__ __forceinline__ u32 relu_to_f16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/* The heads of SLOTS slots. */
template <int HEADS, int SLOTS> struct WeightedHeads {
    static constexpr int PAIRS = (SLOTS + 1) / 2;
    static constexpr int GROUPS_OF_8 = SLOTS * HEADS / 8;
    static constexpr int STEPS = (GROUPS_OF_8 + 1) / 2; /* of K, 16 heads */
    static constexpr int PAIR_STEPS = HEADS / 8;
    static constexpr int STEP_BYTES = 256; /* of weights */
    static constexpr int WEIGHT_BYTES = STEPS * STEP_BYTES;

    u32 scores[4 * STEPS]; /* after ReLU, in pairs of heads */
    float sums[PAIRS][4];

    /* Weights as the B operand, K-major and not swizzled: 8 columns of 16 bytes, which are 8 heads, one after the other. */
    __device__ __forceinline__ static void store_weight(unsigned char *weights, int slot, int head, SplitWeight weight) {
        const int k = slot * HEADS + head;
        unsigned short *first = reinterpret_cast<unsigned short *>(weights) + k / 8 * 64 + k % 8;
#pragma unroll
        for (int column = 0; column < 8; column++) {
            const bool own = column / 4 == slot % 2;
            first[8 * column] = !own ? 0 : column % 2 == 0 ? weight.high : weight.rest;
        }
        if (GROUPS_OF_8 % 2 != 0 && k >= 8 * (GROUPS_OF_8 - 1)) { /* the other half of the last step */
#pragma unroll
            for (int column = 0; column < 8; column++)
                first[64 + 8 * column] = 0;
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 4 * STEPS; i++)
            scores[i] = 0;
    }

    __device__ __forceinline__ void take(const float *acc) {
#pragma unroll
        for (int i = 0; i < 2 * GROUPS_OF_8; i++)
            scores[i] = relu_to_f16x2(acc[2 * i], acc[2 * i + 1]);
    }

    /* Between wgmma_fence and wgmma_commit; before, the scores are to be pinned, after the wait, the sums. */
    __device__ __forceinline__ void multiply(u32 weights) {
        /* Descriptor: see wgmma.cuh; no swizzle, 128 bytes from 8 heads to the next 8. */
        const u64 b = (u64(STEP_BYTES / 16) << 32) | (u64(128 / 16) << 16) | u64((weights & 0x3ffffu) >> 4);
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            wgmma_f16_n8(sums[step / PAIR_STEPS], &scores[4 * step], b + step * (STEP_BYTES / 16), step % PAIR_STEPS != 0);
    }

    __device__ __forceinline__ void pin_scores() {
#pragma unroll
        for (int i = 0; i < 4 * STEPS; i++)
            wgmma_pin(scores[i]);
    }
    __device__ __forceinline__ void pin_sums() {
#pragma unroll
        for (int i = 0; i < 4 * PAIRS; i++)
            wgmma_pin(sums[i / 4][i % 4]);
    }

    /* Of a pair's sums this lane's: row r in even lanes, r + 8 in odd ones. */
    __device__ __forceinline__ float own(int pair) const {
        const bool odd = lane_id() & 1;
        const float (&sum)[4] = sums[pair];
        return __fmaf_rn(odd ? sum[3] : sum[1], 1.f / WEIGHT_REST, odd ? sum[2] : sum[0]);
    }
};
