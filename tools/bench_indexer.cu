/* SPDX-License-Identifier: MIT
 * Device code of attn-scores bench --op indexer: pages of keys. The command puts base.cuh of templates/lib in front. */

__device__ __forceinline__ u32 hash_bits(u64 x) {
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return static_cast<u32>(x >> 32);
}

/* Two bfloat16, near normal, the largest 2: as activations are, since the data decide what power an MMA draws. */
__device__ __forceinline__ u32 random_pair(u64 seed) {
    const u32 a = hash_bits(2 * seed), b = hash_bits(2 * seed + 1);
    const float x = (static_cast<float>(__dp4a(a, 0x01010101u, 0u)) - 510.0f) * (1.0f / 255);
    const float y = (static_cast<float>(__dp4a(b, 0x01010101u, 0u)) - 510.0f) * (1.0f / 255);
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(y));
    return pair;
}

/* `value_words` of each page of `page_words` are keys, the rest scales: E4M3 of 0.25 to 1. value_words == page_words:
 * bfloat16, otherwise E2M1, all codes alike. */
extern "C" __global__ void __launch_bounds__(256)
    bench_fill_pages(u32 *words, i64 num_words, int page_words, int value_words, u64 seed) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words; i += step) {
        const u64 at = static_cast<u64>(i) + seed;
        if (value_words == page_words)
            words[i] = random_pair(at);
        else
            words[i] = i % page_words < value_words ? hash_bits(at) : 0x28282828u + (hash_bits(at) & 0x0f0f0f0fu);
    }
}
