/* SPDX-License-Identifier: MIT
 * E2M1 (the 4-bit numbers of MXFP4) as operands of mma.sync. */
#include "lib/mma_sync.cuh"

/* 2^exponent, for -126 to 127. */
__device__ __forceinline__ float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

#if __CUDA_ARCH_FEAT_SM120_ALL || __CUDA_ARCH_FEAT_SM121_ALL || __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200
/* Adds the product of 16 x 64 values with 64 x 8. Bytes BYTE and BYTE + 1 of the scale registers belong to the first
 * and the second 32 values: of A those of lanes 0 and 1 of each four, for rows l/4 and l/4 + 8; of B that of lane 0,
 * for column l/4 (PTX ISA, "mma", block scaling). */
template <int BYTE>
__device__ __forceinline__ void mma_mxf4(AccF32 &d, const u32 (&a)[4], u32 b0, u32 b1, u32 a_scales, u32 b_scales) {
    asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%12, %13}, %11, {%12, %13};"
        : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scales), "r"(b_scales), "n"(BYTE),
          "n"(0));
}
#endif

/* The factor that makes e2m1_to_bf16 multiply by 2^exponent, -24 to 0: see there. In both halves. */
__device__ __forceinline__ u32 e2m1_factor(int exponent) {
    return static_cast<u32>(127 + 126 + exponent) * 0x00800080u;
}

/* Nibbles i and i + 4 become the lower and the upper half of x[i]. The 3 bits of exponent and mantissa, at the place
 * where those of a bfloat16 meet, are a bfloat16 that is 2^126 too small, subnormal ones included; `factor` has that in
 * it. */
__device__ __forceinline__ void e2m1_to_bf16(u32 word, u32 factor, u32 *x) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 sign = word << 12 - 4 * i & 0x80008000u;
        const u32 rest = (i < 2 ? word << 6 - 4 * i : word >> 4 * i - 6) & 0x01c001c0u;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(x[i]) : "r"(sign | rest), "r"(factor), "r"(0x80008000u)); /* - 0 */
    }
}
