/* SPDX-License-Identifier: MIT
 * Fifth-generation tensor cores of sm_100, sm_103 and sm_107: operands in shared memory, accumulators in tensor memory
 * (PTX ISA, "tcgen05"). A tensor memory address is lane << 16 | column; a cell has 32 bits. With M = 128 row i of the
 * product is lane i, column j of the product is column j, and warp w reaches the lanes 32 (w % 4) .. + 31 only.
 *
 * What is ordered without help: mma after mma into the same columns, mma after cp, both from one thread. Everything
 * else needs a commit and a wait on its mbarrier, or the pair of thread fences below around a barrier. */

/* By one whole warp, which also frees; `address` in shared memory receives the address. Columns: 32, 64, .. 512. */
__device__ __forceinline__ void tcgen05_alloc(u32 address, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                 "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(address),
                 "r"(columns)
                 : "memory");
}

__device__ __forceinline__ void tcgen05_free(u32 tensor, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tensor), "r"(columns) : "memory");
}

/* Before an arrival that hands tensor memory to another thread, and after the wait for one. */
__device__ __forceinline__ void tcgen05_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* Arrives at an mbarrier once everything that this thread has issued so far (mma, cp) is complete. */
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

/* True in one lane of a converged warp. */
__device__ __forceinline__ bool elect_one() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

/* Shared memory descriptor of a K-major operand whose rows of ROW_BYTES (32, 64, 128) are swizzled over their own
 * width. Bits 0-13 address / 16, 16-29 leading offset / 16 (unused here), 32-45 stride between groups of 8 rows / 16,
 * 46-48 the constant 1, 61-63 swizzle: 2 128 B, 4 64 B, 6 32 B. One K step of 32 bytes further is + 2. */
template <int ROW_BYTES> __device__ __forceinline__ u64 tcgen05_operand(u32 address) {
    constexpr u64 swizzle = ROW_BYTES == 128 ? 2 : ROW_BYTES == 64 ? 4 : 6;
    constexpr u64 group_stride = 8 * ROW_BYTES / 16;
    return swizzle << 61 | u64(1) << 46 | group_stride << 32 | u64(1) << 16 | u64((address & 0x3ffffu) >> 4);
}

/* The same of 32 rows of 16 bytes that follow one another: no swizzle, 128 bytes between groups of 8 rows. */
__device__ __forceinline__ u64 tcgen05_scale_rows(u32 address) {
    return u64(1) << 46 | u64(128 / 16) << 32 | u64(1) << 16 | u64((address & 0x3ffffu) >> 4);
}

/* Instruction descriptors for M = 128. kind::f8f6f4 with E4M3 (format 0) on both sides: bits 4-5 accumulator type (0
 * F16, 1 F32), 17-22 N / 8, 24-28 M / 16. */
__device__ __forceinline__ u32 tcgen05_e4m3(int columns, bool f16_accumulator) {
    return (f16_accumulator ? 0u : 1u << 4) | static_cast<u32>(columns / 8) << 17 | (128u / 16) << 24;
}

/* kind::mxf4, E2M1 (format 1) with UE8M0 scales (bit 23): bits 4-5 and 29-30 say which byte of the scale words of B and
 * A belongs to the first 32 of the 64 values of a K step. */
__device__ __forceinline__ u32 tcgen05_mxf4(int columns, int scale_byte) {
    return static_cast<u32>(scale_byte) << 4 | 1u << 7 | 1u << 10 | static_cast<u32>(columns / 8) << 17 | 1u << 23 |
           (128u / 16) << 24 | static_cast<u32>(scale_byte) << 29;
}

/* D (+)= A B, K = 32 bytes of either operand. By one thread. */
__device__ __forceinline__ void tcgen05_mma_e4m3(u32 d, u64 a, u64 b, u32 instruction, bool accumulate) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %4, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n"
                 "}" ::"r"(d),
                 "l"(a), "l"(b), "r"(instruction), "r"(static_cast<int>(accumulate))
                 : "memory");
}

__device__ __forceinline__ void tcgen05_mma_mxf4(u32 d, u64 a, u64 b, u32 instruction, u32 scales_a, u32 scales_b,
                                                 bool accumulate) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %6, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%0], %1, %2, %3, [%4], [%5], p;\n"
                 "}" ::"r"(d),
                 "l"(a), "l"(b), "r"(instruction), "r"(scales_a), "r"(scales_b), "r"(static_cast<int>(accumulate))
                 : "memory");
}

/* 32 rows of 4 words from shared memory into 4 columns, repeated in all four quarters of the lanes: the form in which
 * MMAs take the scales of 128 rows (word c of row l belongs to row 32 c + l of the operand). By the thread that issues
 * them. */
__device__ __forceinline__ void tcgen05_copy_scales(u32 tensor, u64 rows) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tensor), "l"(rows) : "memory");
}

/* N consecutive columns of this thread's lane; by a whole warp. The registers hold them after tcgen05_wait_loads. */
template <int N> __device__ __forceinline__ void tcgen05_load(u32 *x, u32 tensor);

#define TCGEN05_OUT_8(x)                                                                                               \
    "=r"((x)[0]), "=r"((x)[1]), "=r"((x)[2]), "=r"((x)[3]), "=r"((x)[4]), "=r"((x)[5]), "=r"((x)[6]), "=r"((x)[7])

template <> __device__ __forceinline__ void tcgen05_load<8>(u32 *x, u32 tensor) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : TCGEN05_OUT_8(x)
                 : "r"(tensor)
                 : "memory");
}
template <> __device__ __forceinline__ void tcgen05_load<16>(u32 *x, u32 tensor) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
                 "%14, %15}, [%16];"
                 : TCGEN05_OUT_8(x), TCGEN05_OUT_8(x + 8)
                 : "r"(tensor)
                 : "memory");
}
template <> __device__ __forceinline__ void tcgen05_load<32>(u32 *x, u32 tensor) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
                 "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
                 : TCGEN05_OUT_8(x), TCGEN05_OUT_8(x + 8), TCGEN05_OUT_8(x + 16), TCGEN05_OUT_8(x + 24)
                 : "r"(tensor)
                 : "memory");
}

/* Waits for all loads of this thread, and keeps the compiler from moving uses of these registers above the wait. */
template <int N> __device__ __forceinline__ void tcgen05_wait_loads(u32 *x) {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(x[i]));
}
