/* SPDX-License-Identifier: MIT
 * E4M3 to float16, exactly. */

/* Bytes 0 and 1 become `low`, 2 and 3 `high`. */
#if __CUDA_ARCH__ >= 890
__device__ __forceinline__ void e4m3_to_f16(u32 bytes, u32 &low, u32 &high) {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(low), "=r"(high)
        : "r"(bytes));
}
#else
/* The 7 bits of exponent and mantissa, put one place below the sign, are a float16 that is 2^8 too small: its exponent
 * is biased by 15 rather than 7. That holds for subnormal numbers, too. The code of NaN becomes 480, the only number
 * that overflows when multiplied by 146; times 0 that is NaN, and every other number adds 0. */
__device__ __forceinline__ u32 e4m3_upper_to_f16(u32 x) {
    const u32 bits = (x & 0x80008000u) | (x >> 1 & 0x3f803f80u);
    u32 value, overflowing;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(value) : "r"(bits), "r"(0x5c005c00u));       /* 256 */
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(overflowing) : "r"(bits), "r"(0x78907890u)); /* 256 * 146 */
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(value) : "r"(overflowing), "r"(0));
    return value;
}
__device__ __forceinline__ void e4m3_to_f16(u32 bytes, u32 &low, u32 &high) {
    /* Bytes 0 and 1 into the upper halves; likewise 2 and 3. */
    low = e4m3_upper_to_f16(__byte_perm(bytes, 0, 0x1404));
    high = e4m3_upper_to_f16(__byte_perm(bytes, 0, 0x3424));
}
#endif
