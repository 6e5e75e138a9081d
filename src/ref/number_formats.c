/* SPDX-License-Identifier: MIT */
#include "ref/number_formats.h"

#include <math.h>

/* A sign bit, `exponent_bits` with the usual bias, `mantissa_bits`, subnormals. What the topmost codes mean is left to
 * the callers. */
typedef struct number_format {
    int exponent_bits;
    int mantissa_bits;
} number_format;

static const number_format e2m1 = {2, 1};
static const number_format e4m3 = {4, 3};
static const number_format f16 = {5, 10};
static const number_format bf16 = {8, 7};

static int min_exponent(number_format format) {
    return 2 - (1 << (format.exponent_bits - 1));
}

/* Value of a code without its sign; the topmost exponent is taken as a number. */
static double decode_magnitude(number_format format, unsigned code) {
    const unsigned hidden = 1u << format.mantissa_bits;
    const unsigned exponent = code >> format.mantissa_bits;
    const unsigned mantissa = code & (hidden - 1);
    if (exponent == 0)
        return ldexp(mantissa, min_exponent(format) - format.mantissa_bits);
    return ldexp(hidden | mantissa, min_exponent(format) + (int)exponent - 1 - format.mantissa_bits);
}

/* The code nearest to a finite magnitude. Codes grow with their values, so that a carry out of the mantissa moves on to
 * the next exponent, and a result above the format's largest code means overflow. `limit` bounds the code. */
static unsigned encode_magnitude(number_format format, double magnitude, unsigned limit) {
    int exponent;
    if (magnitude == 0)
        return 0;
    frexp(magnitude, &exponent);
    exponent--; /* magnitude is in [2^exponent, 2^(exponent+1)) */
    if (exponent > 1 << (format.exponent_bits - 1))
        return limit;

    unsigned base = 0;
    if (exponent >= min_exponent(format))
        base = (unsigned)(exponent - min_exponent(format)) << format.mantissa_bits;
    else
        exponent = min_exponent(format);

    const double units = ldexp(magnitude, format.mantissa_bits - exponent); /* below 2^(mantissa_bits+1), exact */
    unsigned whole = (unsigned)units;
    const double rest = units - whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
        whole++;
    const unsigned code = base + whole;
    return code < limit ? code : limit;
}

double attns_e4m3_to_double(uint8_t code) {
    const unsigned magnitude = code & 0x7fu;
    const double value = magnitude == 0x7f ? (double)NAN : decode_magnitude(e4m3, magnitude);
    return copysign(value, code & 0x80u ? -1 : 1);
}

uint8_t attns_double_to_e4m3(double value) {
    const unsigned sign = signbit(value) ? 0x80 : 0;
    unsigned code = 0x7e;
    if (isnan(value))
        code = 0x7f;
    else if (!isinf(value))
        code = encode_magnitude(e4m3, fabs(value), 0x7e);
    return (uint8_t)(sign | code);
}

double attns_e2m1_to_double(uint8_t code) {
    return copysign(decode_magnitude(e2m1, code & 7u), code & 8u ? -1 : 1);
}

uint8_t attns_double_to_e2m1(double value) {
    const unsigned sign = signbit(value) ? 8 : 0;
    const unsigned code = isfinite(value) ? encode_magnitude(e2m1, fabs(value), 7) : 7;
    return (uint8_t)(sign | code);
}

double attns_e8m0_to_double(uint8_t code) {
    return code == 255 ? (double)NAN : ldexp(1, code - 127);
}

static double decode16(number_format format, uint16_t code) {
    const unsigned infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
    const unsigned magnitude = code & 0x7fffu;
    double value;
    if (magnitude > infinity)
        value = NAN;
    else if (magnitude == infinity)
        value = INFINITY;
    else
        value = decode_magnitude(format, magnitude);
    return copysign(value, code & 0x8000u ? -1 : 1);
}

static uint16_t encode16(number_format format, double value) {
    const unsigned infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    unsigned code = infinity;
    if (isnan(value))
        code = infinity | 1u << (format.mantissa_bits - 1);
    else if (!isinf(value))
        code = encode_magnitude(format, fabs(value), infinity);
    return (uint16_t)(sign | code);
}

double attns_f16_to_double(uint16_t code) {
    return decode16(f16, code);
}

uint16_t attns_double_to_f16(double value) {
    return encode16(f16, value);
}

double attns_bf16_to_double(uint16_t code) {
    return decode16(bf16, code);
}

uint16_t attns_double_to_bf16(double value) {
    return encode16(bf16, value);
}
