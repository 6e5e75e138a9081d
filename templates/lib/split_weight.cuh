/* SPDX-License-Identifier: MIT
 * What sums over heads on the tensor cores have in common: relu(score), rounded to float16, times weights that are two
 * float16 numbers each. A product's columns 0 and 2 are the weights of a pair's first slot, 1 and 3 what is missing of
 * them, times WEIGHT_REST; 4 to 7 likewise of the second. So lanes 0 and 1 of a quad hold the sums of the first slot,
 * 2 and 3 of the second, as the stores want them.
 *
 * Numbers: scores must be below 2^16, and are rounded to 11 bits. Weights below 2^15 are kept to 22 bits down to 2^-14,
 * to 16 at 2^-20. */

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

/* Of a pair's sums this lane's: row r in even lanes, r + 8 in odd ones. */
__device__ __forceinline__ float own_sum(const float (&sums)[4]) {
    const bool odd = lane_id() & 1;
    return __fmaf_rn(odd ? sums[3] : sums[1], 1.f / WEIGHT_REST, odd ? sums[2] : sums[0]);
}
