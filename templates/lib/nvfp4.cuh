/* SPDX-License-Identifier: MIT
 * NVFP4 to float16, exactly: an E2M1 value (2 significant bits, multiples of 2^-1 up to 6) times an E4M3 scale (4
 * significant bits, multiples of 2^-9 up to 448) has at most 6 significant bits and is a multiple of 2^-10 up to 2688.
 * Results carry a factor of NVFP4_FACTOR, which lets one multiplication do everything. */

constexpr float NVFP4_FACTOR = 1.0f / 128;

__device__ __forceinline__ u32 multiply_halves(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* Two E4M3 codes in the low 16 bits to two halves, times 2^7 (then 448 is just within float16). NaN stays NaN. */
__device__ __forceinline__ u32 scales_to_halves(u32 codes) {
#if __CUDA_ARCH__ >= 890
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(codes)));
    return multiply_halves(halves, 0x58005800u); /* 2^7 */
#else
    /* Sign, 4 exponent and 3 mantissa bits are put where float16 has its sign, lowest exponent and highest mantissa
     * bits, which is the value times 2^-8, subnormal or not. */
    const u32 spread = __byte_perm(codes, 0, 0x1404);
    const u32 halves = (spread & 0x80008000u) | (spread >> 1 & 0x3f803f80u);
    const u32 nan = ((spread & 0x7f007f00u) + 0x01000100u) & 0x80008000u;
    return multiply_halves(halves, 0x78007800u) /* 2^15 */ | (nan - (nan >> 6));
#endif
}

/* Eight E2M1 values to four registers of two halves each, times 2^-14: elements (0, 4), (2, 6), (1, 5), (3, 7).
 *
 * A half whose upper byte is s000 eem0 has the value s eem times 2^-14, subnormal or not. A nibble n = s eem becomes
 * that byte by 2n + 0x70 and a mask: if s is set, 0x10 + 0x70 carries it to the top. */
__device__ __forceinline__ void nibbles_to_halves(u32 word, u32 (&halves)[4]) {
    constexpr u32 MASK = 0x8e008e00u;
    u32 even; /* in assembly, as the compiler would make three instructions of the two */
    asm("mad.lo.u32 %0, %1, 2, 0x70707070;" : "=r"(even) : "r"(word & 0x0f0f0f0fu));
    const u32 odd = (word >> 3 & 0x1e1e1e1eu) + 0x70707070u;
    halves[0] = even << 8 & MASK;
    halves[1] = even & MASK;
    halves[2] = odd << 8 & MASK;
    halves[3] = odd & MASK;
}
