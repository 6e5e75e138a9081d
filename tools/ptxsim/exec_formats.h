/* SPDX-License-Identifier: MIT
 *
 * Floating point formats by their bits: exact decoding into double, encoding with one rounding. */
#ifndef PTXSIM_EXEC_FORMATS_H_
#define PTXSIM_EXEC_FORMATS_H_

#include "exec.h"

/* Codes without their sign are magnitudes: (biased exponent << (precision - 1)) | fraction, subnormals below. */
typedef struct exec_format {
    const char *name;  /* as a PTX type */
    int width;         /* bits of a code; the topmost is the sign */
    int precision;     /* of normal numbers, with the hidden bit */
    int min_exponent;  /* of the smallest normal number */
    uint64_t max;      /* largest finite code */
    uint64_t nan;      /* canonical; for formats without: their largest number */
    bool has_infinity; /* it is max + 1 */
    int padding;       /* zero bits below the code (tf32) */
} exec_format;

extern const exec_format exec_format_f16, exec_format_bf16, exec_format_f32, exec_format_f64;

/* By the name of a scalar type, or of a packed one ("e4m3x2"); NULL if it is none. */
const exec_format *exec_find_format(const char *type);

/* Exact. NaN for codes that are. */
double exec_decode(const exec_format *format, uint64_t code);

/* The code of (-1)^negative * significand * 2^exponent, rounded once. The lowest bit of the significand may stand for
 * "something below", if there are at least two more bits than the format's. Overflow follows the rounding mode; with
 * `saturate`, or if there is no infinity, it gives the largest number. */
uint64_t exec_encode(const exec_format *format, bool negative, uint64_t significand, int exponent,
                     exec_rounding rounding, bool saturate);
uint64_t exec_encode_double(const exec_format *format, double value, exec_rounding rounding, bool saturate);

/* x + y rounded to odd: if the exact sum is no double, the neighbour whose last bit is set. Rounding this to a format
 * of at most 51 bits is the same as rounding the exact sum. */
double exec_add_odd(double x, double y);

/* ---- Fast ways for 16-bit formats, to nearest even ---- */

static inline double exec_f16(uint64_t bits) {
    const uint64_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 48;
    if (magnitude - 0x400 < 0x7800)
        return exec_double(sign | ((magnitude << 42) + (UINT64_C(1008) << 52)));
    return exec_decode(&exec_format_f16, bits & 0xffff);
}

static inline double exec_bf16(uint64_t bits) {
    return (double)exec_float((bits & 0xffff) << 16);
}

static inline uint64_t exec_f16_bits(double value) {
    const uint64_t bits = exec_double_bits(value), magnitude = bits & INT64_MAX, sign = bits >> 48 & 0x8000;
    if (magnitude - (UINT64_C(1009) << 52) < UINT64_C(30) << 52) { /* 2^-14 up to 2^16; a carry gives infinity */
        const uint64_t rebased = magnitude - (UINT64_C(1008) << 52);
        return sign | (rebased + (UINT64_C(0x1ffffffffff) + (rebased >> 42 & 1))) >> 42;
    }
    if (magnitude == 0)
        return sign;
    return exec_encode_double(&exec_format_f16, value, EXEC_RN, false);
}

static inline uint64_t exec_bf16_bits(double value) {
    const uint64_t bits = exec_double_bits(value), magnitude = bits & INT64_MAX, sign = bits >> 48 & 0x8000;
    if (magnitude - (UINT64_C(897) << 52) < UINT64_C(254) << 52) { /* 2^-126 up to 2^128 */
        const uint64_t rebased = magnitude - (UINT64_C(896) << 52);
        return sign | (rebased + (UINT64_C(0xfffffffffff) + (rebased >> 45 & 1))) >> 45;
    }
    if (magnitude == 0)
        return sign;
    return exec_encode_double(&exec_format_bf16, value, EXEC_RN, false);
}

/* Smaller or larger of two numbers of a format, given and returned as codes: -0 is below +0; a NaN gives way to a
 * number unless flags say NaN; xorsign takes magnitudes and the product's sign. */
static inline uint64_t exec_min_max(uint64_t a, uint64_t b, unsigned shift, uint64_t infinity, uint64_t nan,
                                    unsigned flags, bool max) {
    const uint64_t top = UINT64_C(1) << (63 - shift), magnitudes = top - 1;
    uint64_t sign = 0;
    a = exec_unsigned(a, shift);
    b = exec_unsigned(b, shift);
    const bool a_nan = (a & magnitudes) > infinity, b_nan = (b & magnitudes) > infinity;
    if ((a_nan && b_nan) || ((a_nan || b_nan) && (flags & EXEC_NAN)))
        return nan;
    if (flags & EXEC_XORSIGN) { /* also the sign of a NaN that gives way counts */
        sign = (a ^ b) & top;
        a &= magnitudes;
        b &= magnitudes;
    }
    if (a_nan || b_nan) {
        a = a_nan ? b : a;
        b = a;
    }
    /* Negative codes fall while magnitudes grow; turned around, codes are ordered as signed integers. */
    const int64_t x = exec_signed(a & top ? a ^ magnitudes : a, shift);
    const int64_t y = exec_signed(b & top ? b ^ magnitudes : b, shift);
    return ((x < y) == max ? b : a) | sign;
}

#endif
