/* SPDX-License-Identifier: MIT
 * binary16 and bfloat16 from and to wider types, with one rounding to nearest even. */
#include <math.h>
#include <string.h>

#include "async.h"

/* A format with a sign, exponent and mantissa of 16 bits together. */
typedef struct format {
    int mantissa_bits, bias, max_exponent;
} format;

static const format HALF = {10, 15, 15};
static const format BF16 = {7, 127, 127};

static uint16_t encode(double value, format f) {
    const unsigned sign = signbit(value) ? 0x8000u : 0;
    const unsigned infinity = (unsigned)(f.max_exponent + f.bias + 1) << f.mantissa_bits;
    if (isnan(value))
        return 0x7fff;
    double magnitude = fabs(value);
    if (magnitude == 0.0)
        return (uint16_t)sign;
    if (isinf(magnitude))
        return (uint16_t)(sign | infinity);
    int exponent = 0;
    frexp(magnitude, &exponent);
    exponent--; /* magnitude = 1.xxx * 2^exponent */
    if (exponent < 1 - f.bias)
        exponent = 1 - f.bias;
    /* In units of the last place; rounding up to the next binade carries into the exponent by itself. */
    const double units = nearbyint(ldexp(magnitude, f.mantissa_bits - exponent));
    const unsigned one = 1u << f.mantissa_bits;
    if (exponent > f.max_exponent || (exponent == f.max_exponent && units >= 2.0 * one))
        return (uint16_t)(sign | infinity);
    const unsigned mantissa = (unsigned)units;
    const unsigned biased = mantissa < one ? 0 : (unsigned)(exponent + f.bias);
    return (uint16_t)(sign | (biased == 0 ? mantissa : (biased << f.mantissa_bits) + (mantissa - one)));
}

float sim_half_to_float(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 0x3ff;
    float value;
    if (exponent == 31)
        value = mantissa == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, -24);
    else
        value = ldexpf((float)(mantissa + 1024), exponent - 25);
    return bits & 0x8000 ? -value : value;
}

uint16_t sim_float_to_half(double value) {
    return encode(value, HALF);
}

float sim_bf16_to_float(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

uint16_t sim_float_to_bf16(double value) {
    return encode(value, BF16);
}
