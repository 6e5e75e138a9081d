/* SPDX-License-Identifier: MIT
 * MXFP4: E2M1 numbers, two in a byte, the lower nibble first, and a UE8M0 scale for every 32 of them: byte e means
 * 2^(e - 127), 255 means NaN (OCP Microscaling Formats v1.0). */

constexpr int NAN_SCALE = 255;

/* 2^exponent for exponents from -127 to 127. */
__device__ __forceinline__ float power_of_two(int exponent) {
    return __int_as_float(max((exponent + 127) << 23, 1 << 22));
}

/* What a scale other than NaN means. */
__device__ __forceinline__ float scale_value(u32 scale) {
    u32 bits;
    asm("max.u32 %0, %1, %2;" : "=r"(bits) : "r"(scale << 23), "r"(1u << 22)); /* one instruction, which max() is not */
    return __uint_as_float(bits);
}

/* x * 2^exponent for exponents from -254 to 254, in two steps of one sign: nothing overflows or vanishes on the way
 * that the result could hold. */
__device__ __forceinline__ float scale_by_power(float x, int exponent) {
    const int half = exponent >> 1;
    return x * power_of_two(half) * power_of_two(exponent - half);
}

/* ---- As E5M2 ----
 *
 * An E2M1 number times 2^(1 - shift) is an E5M2 number for shifts from 0 to 15. So numbers whose scales differ by no
 * more than MAX_SHIFT powers of two become E5M2 with their scales in them, relative to the largest. That they are not
 * larger than 12 keeps 128 products of two of them below 2^16, and that they are not shifted farther keeps products
 * multiples of 2^-24: a float16 has room for all that. */

constexpr int MAX_SHIFT = 12;
constexpr int E5M2_BIAS = 1;

/* Constants of what follows, for those who keep them in registers. */
struct E2m1Constants {
    u32 table_step_low = 0u - 0x04040400u, table_step_high = 0u - 0x04040404u; /* for e5m2_table */
    u32 sign_halves = 0x40404040u;                                             /* for e2m1_to_negated_e5m2 */
    u32 half_picker = 0x01000001u;                                             /* for half_of */
};

/* The E5M2 bytes of {0, 0.5, 1, 1.5, 2, 3, 4, 6} * 2^(1 - shift), by code: one power of two is 4 in a byte. */
__device__ __forceinline__ uint2 e5m2_table(u32 shift, const E2m1Constants &constants) {
    return make_uint2(shift * constants.table_step_low + 0x42403c00u, shift * constants.table_step_high + 0x4a484644u);
}

struct E5m2Octet {
    u32 low, high; /* numbers 0..3 and 4..7 */
};

/* Bytes of {b, a} by the nibbles of `selector`. Not __byte_perm, which first clears every fourth bit of the
 * selector. */
__device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) {
    u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

/* The upper half of eight masked codes, in both halves. As float16 numbers they are below infinity and adding -0
 * changes none of them, so the FP32 units can do that: the others are busy with permutations. */
__device__ __forceinline__ u32 upper_codes(u32 masked) {
    u32 d;
    asm("{\n.reg .b16 low, high;\n.reg .b32 both;\nmov.b32 {low, high}, %1;\nmov.b32 both, {high, high};\n"
        "add.rn.f16x2 %0, both, %2;\n}"
        : "=r"(d)
        : "r"(masked), "r"(0x80008000u));
    return d;
}

/* A half of a word, as a dot product: the FP32 units make these, while those for shifts and logic are busy. Of the
 * picker's bytes the lower two pick the lower half, the upper two the upper one. */
__device__ __forceinline__ u32 half_of(u32 x, bool upper, const E2m1Constants &constants) {
    u32 d;
    if (upper)
        asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(constants.half_picker), "r"(0u));
    else
        asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(constants.half_picker), "r"(0u));
    return d;
}

/* Eight E2M1 numbers as E5M2 bytes, negated: as that is done to both factors, products are what they should be.
 * Of the sign halves a byte permutation makes 0x40 for a code without and 0 for one with the sign bit (that makes a
 * permutation repeat a byte's highest bit instead). Twice that is the opposite sign in place. */
__device__ __forceinline__ E5m2Octet e2m1_to_negated_e5m2(u32 codes, uint2 table, const E2m1Constants &constants) {
    const u32 halves = constants.sign_halves;
    const u32 magnitudes = codes & 0x77777777u;
    const u32 low = permute_bytes(table.x, table.y, magnitudes);
    const u32 high = permute_bytes(table.x, table.y, upper_codes(magnitudes));
    const u32 upper = half_of(codes, true, constants);
    return {permute_bytes(halves, halves, codes) * 2 + low, permute_bytes(halves, halves, upper) * 2 + high};
}

/* ---- As integers ---- */

/* Four times the dot product of eight numbers with eight numbers, without their scales. */
__device__ __forceinline__ int e2m1_dot(u32 a, u32 b) {
    constexpr u32 TWICE = 0xC8643210u; /* twice the magnitude of each code, in nibbles */
    int sum = 0;
#pragma unroll 1
    for (int shift = 0; shift < 32; shift += 4) {
        const u32 x = a >> shift;
        const u32 y = b >> shift;
        const int product = static_cast<int>((TWICE >> (4 * (x & 7)) & 15) * (TWICE >> (4 * (y & 7)) & 15));
        sum += ((x ^ y) & 8) != 0 ? -product : product;
    }
    return sum;
}
