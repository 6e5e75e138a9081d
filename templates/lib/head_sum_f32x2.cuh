/* SPDX-License-Identifier: MIT
 * Epilogue where a thread has all heads of a (token, query slot) pair in its registers: sum over heads of weight *
 * relu(score). Needs ACC_F16 and EPI_F16. The order of operations depends on the number of heads alone, so a pair's
 * bits do not depend on next_n or on where its slot sits in the accumulator.
 *
 * float32: two heads at a time (add.f32x2, fma.f32x2). There are two ways to ReLU. x + |x| = 2 relu(x) is one packed
 * addition, but takes a turn of the FP32 units, which the weighting keeps busy. max(x, 0) is not packed and runs at
 * half their rate, but on other units. Half of the pairs of heads go either way: 0.75 clocks of an SM for the 64 heads
 * of a pair instead of 1.0. Sums of the two kinds are kept apart, as the first are twice too large; both are exact
 * until one leaves float32's range. Then the total is not finite, and the caller computes the pair again from the true
 * terms. ReLU keeps NaN in every way. */
#include "lib/f16x2.cuh"

typedef u64 F32x2;

__device__ __forceinline__ F32x2 pack_f32x2(float low, float high) {
    F32x2 x;
    asm("mov.b64 %0, {%1, %2};" : "=l"(x) : "f"(low), "f"(high));
    return x;
}
__device__ __forceinline__ float2 unpack_f32x2(F32x2 x) {
    float2 y;
    asm("mov.b64 {%0, %1}, %2;" : "=f"(y.x), "=f"(y.y) : "l"(x));
    return y;
}
__device__ __forceinline__ F32x2 add_f32x2(F32x2 a, F32x2 b) {
    F32x2 d;
    asm("add.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
    return d;
}
__device__ __forceinline__ F32x2 fma_f32x2(F32x2 a, F32x2 b, F32x2 c) {
    F32x2 d;
    asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(d) : "l"(a), "l"(b), "l"(c));
    return d;
}

__device__ __forceinline__ bool is_finite(float x) {
    return fabsf(x) <= 3.402823466e38f;
}

__device__ __forceinline__ float relu(float x) {
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

/* Two accumulator cells as two scores. A float16 accumulator is the lower half of its cell. */
__device__ __forceinline__ u32 scores_f16x2(u32 x, u32 y) {
    return ACC_F16 ? __byte_perm(x, y, 0x5410) : pack_f16x2(__uint_as_float(x), __uint_as_float(y));
}
__device__ __forceinline__ float2 scores_f32(u32 x, u32 y) {
    return ACC_F16 ? unpack_f16x2(__byte_perm(x, y, 0x5410)) : make_float2(__uint_as_float(x), __uint_as_float(y));
}

/* The weights of COUNT heads, a register or two for two heads. */
template <int COUNT> struct HeadWeights {
    F32x2 f32[EPI_F16 ? 1 : COUNT / 2];
    u32 f16[EPI_F16 ? COUNT / 2 : 1];

    /* Only the first `count`, a multiple of 8: behind them may be what is being filled for another request. */
    __device__ __forceinline__ void load(const float *weights, int count) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            if (4 * i >= count)
                break;
            const float4 w = reinterpret_cast<const float4 *>(weights)[i];
            if constexpr (EPI_F16) {
                f16[2 * i] = pack_f16x2(w.x, w.y);
                f16[2 * i + 1] = pack_f16x2(w.z, w.w);
            } else {
                f32[2 * i] = pack_f32x2(w.x, w.y);
                f32[2 * i + 1] = pack_f32x2(w.z, w.w);
            }
        }
    }
};

struct HeadSum {
    F32x2 doubled, maxed;
    u32 f16;

    __device__ __forceinline__ void clear() {
        doubled = maxed = 0;
        f16 = 0;
    }

    /* Adds 8 heads; their weights are `pair` and the three pairs behind it. */
    template <class Weights> __device__ __forceinline__ void add8(const u32 *cells, const Weights &weights, int pair) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (EPI_F16) {
                f16 = fma_f16x2(weights.f16[pair + i], relu_f16x2(scores_f16x2(cells[2 * i], cells[2 * i + 1])), f16);
            } else {
                const float2 x = scores_f32(cells[2 * i], cells[2 * i + 1]);
                if (i % 2 == 0)
                    doubled = fma_f32x2(weights.f32[pair + i],
                                        add_f32x2(pack_f32x2(x.x, x.y), pack_f32x2(fabsf(x.x), fabsf(x.y))), doubled);
                else
                    maxed = fma_f32x2(weights.f32[pair + i], pack_f32x2(relu(x.x), relu(x.y)), maxed);
            }
        }
    }

    __device__ __forceinline__ float total() const {
        if constexpr (EPI_F16) {
            const float2 sum = unpack_f16x2(f16);
            return sum.x + sum.y;
        }
        const float2 sum = unpack_f32x2(fma_f32x2(doubled, pack_f32x2(0.5f, 0.5f), maxed));
        return sum.x + sum.y;
    }
};
