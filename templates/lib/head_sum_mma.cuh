/* SPDX-License-Identifier: MIT
 * Sums over heads by mma.sync (lib/split_weight.cuh): wgmma's accumulators lie as the A operand of mma.m16n8k16 wants
 * them (PTX ISA), so that 64 heads of 16 tokens take 16 conversions and 4 products, where arithmetic on FP32 units
 * takes 64 instructions and shuffles. The order of additions depends on the number of heads alone. */

__device__ __forceinline__ void mma_16_heads(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_8_heads(float (&d)[4], const u32 (&a)[2], u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* The weights of a slot in shared memory: [3 parts: high, rest, zeros][4 lanes of a quad][HEADS / 8] pairs of heads, so
 * that a lane finds its own ones side by side, and zeros for the columns of the pair's other slot. */
template <int HEADS> struct SplitWeights {
    static constexpr int WORDS = HEADS / 8; /* of a lane */
    static constexpr int BYTES = 3 * 2 * HEADS;

    __device__ __forceinline__ static void store(u32 *slot_weights, int head, SplitWeight weight) {
        const int at = 2 * (head % 8 / 2 * WORDS + head / 8) + head % 2;
        unsigned short *halves = reinterpret_cast<unsigned short *>(slot_weights);
        halves[at] = weight.high;
        halves[HEADS + at] = weight.rest;
        halves[2 * HEADS + at] = 0;
    }

    /* Bytes from a slot's weights to those of this lane's column and rows of the B operand; for odd slots if `odd`. */
    __device__ __forceinline__ static u32 own(bool odd) {
        const int column = lane_id() / 4;
        const int part = (column >= 4) == odd ? column % 2 : 2;
        return static_cast<u32>((part * 4 + lane_id() % 4) * WORDS * 4);
    }

    __device__ __forceinline__ static void load(u32 (&words)[WORDS], u32 own_weights) {
        if constexpr (WORDS % 4 == 0) {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) {
                const uint4 loaded = load_shared<uint4>(own_weights + 4 * i);
                words[i] = loaded.x, words[i + 1] = loaded.y, words[i + 2] = loaded.z, words[i + 3] = loaded.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < WORDS; i++)
                words[i] = load_shared<u32>(own_weights + 4 * i);
        }
    }
};

/* One slot's scores, columns [first, first + HEADS) of the accumulators, as the A operand: after ReLU. */
template <int HEADS> __device__ __forceinline__ void take_scores(u32 (&scores)[HEADS / 4], const float *acc) {
#pragma unroll
    for (int i = 0; i < HEADS / 4; i++)
        scores[i] = relu_to_f16x2(acc[2 * i], acc[2 * i + 1]);
}

/* Adds them to the sums of the slot's pair. */
template <int HEADS>
__device__ __forceinline__ void add_heads(float (&sums)[4], const u32 (&scores)[HEADS / 4],
                                          const u32 (&weights)[HEADS / 8]) {
#pragma unroll
    for (int j = 0; j + 1 < HEADS / 8; j += 2) {
        const u32 a[4] = {scores[2 * j], scores[2 * j + 1], scores[2 * j + 2], scores[2 * j + 3]};
        mma_16_heads(sums, a, weights[j], weights[j + 1]);
    }
    if (HEADS / 8 % 2 != 0) {
        const u32 a[2] = {scores[HEADS / 4 - 2], scores[HEADS / 4 - 1]};
        mma_8_heads(sums, a, weights[HEADS / 8 - 1]);
    }
}
