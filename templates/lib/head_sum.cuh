/* SPDX-License-Identifier: MIT
 * Epilogue: sum over heads of weight * relu(score), from wgmma accumulators (layout in wgmma.cuh). Needs ACC_F16,
 * EPI_F16, DOUBLED_RELU and WEIGHTS_IN_REGISTERS. A lane sums its own columns; reduce_rows completes the sum. The order
 * of additions depends on the number of heads alone, so a row's bits do not depend on next_n or on where its slot sits
 * in the wgmma. ReLU keeps NaN. */
#include "lib/f16x2.cuh"

/* Partial sums of rows r and r + 8 over the heads 8j + 2q + {0, 1} of one lane. */
struct RowPair {
    float low, high;
};

/* With DOUBLED_RELU twice as much, as x + |x|: exact below half of the largest float, and not done by the units that
 * also do integer arithmetic. */
__device__ __forceinline__ float relu(float x) {
    float y;
    if (DOUBLED_RELU)
        asm("{\n.reg .f32 a;\nabs.f32 a, %1;\nadd.rn.f32 %0, %1, a;\n}" : "=f"(y) : "f"(x));
    else
        asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

/* The two adjacent columns of group j (rows r: half 0, r + 8: half 1) in the epilogue's type. */
__device__ __forceinline__ float2 columns_f32(const float *acc, int j, int half) {
    return make_float2(acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]);
}
__device__ __forceinline__ float2 columns_f32(const u32 *acc, int j, int half) {
    return unpack_f16x2(acc[2 * j + half]);
}
__device__ __forceinline__ u32 columns_f16x2(const float *acc, int j, int half) {
    return pack_f16x2(acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]);
}
__device__ __forceinline__ u32 columns_f16x2(const u32 *acc, int j, int half) {
    return acc[2 * j + half];
}

/* The weights of SLOTS query slots for the heads that one lane sums, the first HELD pairs of them in registers: shared
 * memory is busy feeding the tensor cores, and a load waits long. */
template <int HEADS, int SLOTS, bool RAGGED, int HELD = WEIGHTS_IN_REGISTERS ? SLOTS * HEADS / 8 : 0>
struct HeadWeights {
    static constexpr int PAIRS = HEADS / 8; /* of one slot */

    const float2 *shared;
    int last_slot; /* used if RAGGED: slots past it have no weights, and get those of the last one */
    float2 held[HELD > 0 ? HELD : 1];

    __device__ __forceinline__ float2 read(int slot, int j) const {
        return shared[4 * ((RAGGED ? min(slot, last_slot) : slot) * PAIRS + j)];
    }
    __device__ __forceinline__ void load(const float *weights, int last) {
        shared = reinterpret_cast<const float2 *>(weights) + (threadIdx.x & 3);
        last_slot = last;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            held[i] = read(i / PAIRS, i % PAIRS);
    }
    __device__ __forceinline__ float2 get(int slot, int j) const {
        return HELD > 0 && slot * PAIRS + j < HELD ? held[slot * PAIRS + j] : read(slot, j);
    }
};

/* Slot `column_slot` of the accumulators, which is `slot` of the weights. */
template <int HEADS, class Register, class Weights>
__device__ __forceinline__ RowPair head_sum(const Register *acc, int column_slot, const Weights &weights, int slot) {
    const int first = column_slot * (HEADS / 8);
    if (EPI_F16) {
        u32 low = 0, high = 0;
#pragma unroll
        for (int j = 0; j < HEADS / 8; j++) {
            const float2 w = weights.get(slot, j);
            const u32 w2 = pack_f16x2(w.x, w.y);
            low = fma_f16x2(w2, relu_f16x2(columns_f16x2(acc, first + j, 0)), low);
            high = fma_f16x2(w2, relu_f16x2(columns_f16x2(acc, first + j, 1)), high);
        }
        const float2 l = unpack_f16x2(low);
        const float2 h = unpack_f16x2(high);
        return {l.x + l.y, h.x + h.y};
    }
    float2 low = make_float2(0.f, 0.f), high = make_float2(0.f, 0.f);
#pragma unroll
    for (int j = 0; j < HEADS / 8; j++) {
        const float2 w = weights.get(slot, j);
        const float2 l = columns_f32(acc, first + j, 0);
        const float2 h = columns_f32(acc, first + j, 1);
        low.x = __fmaf_rn(w.x, relu(l.x), low.x);
        low.y = __fmaf_rn(w.y, relu(l.y), low.y);
        high.x = __fmaf_rn(w.x, relu(h.x), high.x);
        high.y = __fmaf_rn(w.y, relu(h.y), high.y);
    }
    return {low.x + low.y, high.x + high.y};
}

/* First half of the sum over a quad: afterwards lanes with an even number hold row r, odd ones row r + 8, each summed
 * over a pair of lanes. The caller adds the other pair's (lane ^ 2). */
__device__ __forceinline__ float reduce_rows(RowPair sums) {
    const bool odd = threadIdx.x & 1;
    const float kept = odd ? sums.high : sums.low;
    const float sent = odd ? sums.low : sums.high;
    return kept + __shfl_xor_sync(FULL_WARP, sent, 1);
}
