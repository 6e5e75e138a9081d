/* SPDX-License-Identifier: MIT
 * Types and the few intrinsics every kernel uses. NVRTC compiles these files without any header. */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr u32 FULL_WARP = 0xffffffffu;

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ int lane_id() {
    return static_cast<int>(threadIdx.x & 31u);
}

/* The same, not computed ahead of time and kept where registers are short. */
__device__ __forceinline__ int lane_id_here() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* Reads shared memory at an address, which costs no conversion to a pointer; after whatever was waited for. */
template <class T> __device__ __forceinline__ T load_shared(u32 address);

template <> __device__ __forceinline__ unsigned char load_shared<unsigned char>(u32 address) {
    u32 x;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return static_cast<unsigned char>(x);
}
template <> __device__ __forceinline__ u32 load_shared<u32>(u32 address) {
    u32 x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
template <> __device__ __forceinline__ uint2 load_shared<uint2>(u32 address) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address) : "memory");
    return x;
}
template <> __device__ __forceinline__ uint4 load_shared<uint4>(u32 address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

/* Keeps a value in a register that the compiler would rather compute anew at every use. */
__device__ __forceinline__ void keep(u32 &x) {
    asm volatile("" : "+r"(x));
}
template <class T> __device__ __forceinline__ void keep(T *&x) {
    asm volatile("" : "+l"(x));
}

/* A constant that the compiler takes for a variable, and so keeps in a register. */
__device__ __forceinline__ u32 hidden_constant(u32 x) {
    u32 hidden;
    asm volatile("{\n.reg .pred p;\n.reg .u32 m;\nmov.u32 m, %%lanemask_eq;\nsetp.ne.u32 p, m, 0;\n"
                 "selp.u32 %0, %1, 0, p;\n}"
                 : "=r"(hidden)
                 : "r"(x));
    return hidden;
}

/* x, which the compiler would rather compute for every use than keep in a register: it cannot know what a shuffle
 * brings. By all lanes. */
__device__ __forceinline__ u32 not_computed_again(u32 x) {
    return __shfl_sync(FULL_WARP, x, lane_id());
}

__device__ __forceinline__ int clamp(int value, int low, int high) {
    return min(max(value, low), high);
}

/* Sum over the 32 lanes, in every lane. */
__device__ __forceinline__ int warp_sum(int value) {
    return static_cast<int>(__reduce_add_sync(FULL_WARP, static_cast<u32>(value)));
}

__device__ __forceinline__ i64 warp_sum(i64 value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(FULL_WARP, value, step);
    return value;
}

template <class T> __device__ __forceinline__ T warp_inclusive_scan(T value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T below = __shfl_up_sync(FULL_WARP, value, step);
        value += lane_id() >= step ? below : 0;
    }
    return value;
}

/* Programmatic dependent launch (no-ops in an ordinary launch, and before sm_90). `wait` returns once the previous
 * kernels of the stream have completed and their memory is visible; `launch_dependents` only lets the next kernel be
 * scheduled: that kernel's own wait still lasts until this whole grid is done, so an early trigger exposes nothing. */
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void grid_dependency_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
