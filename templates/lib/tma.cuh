/* SPDX-License-Identifier: MIT
 * Tensor memory accelerator: global -> shared copies that complete on an mbarrier. Coordinates outside the tensor read
 * as zeros and still count towards the barrier's bytes. */

struct alignas(64) TensorMap {
    u64 opaque[16];
};

/* Cache policies as encoded by createpolicy.fractional with fraction 1 (CUTLASS, TMA::CacheHintSm90). */
constexpr u64 EVICT_FIRST = 0x12F0000000000000ull;
constexpr u64 EVICT_LAST = 0x14F0000000000000ull;

__device__ __forceinline__ void tma_prefetch_map(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_2d(u32 destination, const TensorMap *map, u32 barrier, int x, int y,
                                            u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void tma_load_3d(u32 destination, const TensorMap *map, u32 barrier, int x, int y, int z,
                                            u64 policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void tma_load_4d(u32 destination, const TensorMap *map, u32 barrier, int x, int y, int z,
                                            int w, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
                 : "memory");
}

/* Plain bulk copy: both addresses and `bytes` are multiples of 16. */
__device__ __forceinline__ void bulk_load(u32 destination, const void *source, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     destination),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}
