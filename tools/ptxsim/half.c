/* SPDX-License-Identifier: MIT
 * binary16 and bfloat16 from and to wider types, with one rounding to nearest even. */
#include <math.h>
#include <string.h>

#include "async.h"

/* A format with a sign, exponent and mantissa of 16 bits together. */
typedef struct format {
    int mantissa_bits, bias;
} format;

static const format HALF = {10, 15};
static const format BF16 = {7, 127};

static uint16_t encode(double value, format f) {
    const unsigned sign = signbit(value) ? 0x8000u : 0;
    const unsigned infinity = 0x7fffu >> f.mantissa_bits << f.mantissa_bits;
    if (isnan(value))
        return 0x7fff;
    const double magnitude = fabs(value);
    if (magnitude >= ldexp(1.0, 1 - f.bias)) { /* normal: the mantissa is cut, and a carry moves into the exponent */
        const int cut = 52 - f.mantissa_bits;
        uint64_t bits;
        memcpy(&bits, &magnitude, sizeof(bits));
        bits += (UINT64_C(1) << (cut - 1)) - 1 + (bits >> cut & 1);
        const uint64_t rounded = (bits >> cut) - ((uint64_t)(1023 - f.bias) << f.mantissa_bits);
        return (uint16_t)(sign | (rounded < infinity ? rounded : infinity));
    }
    /* In units of the last place; the largest result is the smallest normal number. */
    return (uint16_t)(sign | (unsigned)nearbyint(ldexp(magnitude, f.mantissa_bits - 1 + f.bias)));
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
