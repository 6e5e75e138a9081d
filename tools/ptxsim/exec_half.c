/* SPDX-License-Identifier: MIT
 *
 * f16, bf16 and their packed pairs, computed in double and rounded once, to nearest even.
 *
 * Why that is right. Products of two such numbers are exact in double (at most 22 bits, exponents far from the limits).
 * Sums are not always: two numbers may lie more than 53 bits apart. If the sum were rounded to double first, its second
 * rounding could start from a tie that the exact sum is not. For f16 that cannot happen. Everything added is a multiple
 * of 2^-48 (a product) or 2^-24, and a result that is not an overflow is below 2^16. The sum is inexact in double only
 * if its largest term is at least 2^53 times the unit of the smallest, so at least 2^5: if that is the product, its own
 * unit is at least 2^-17 and the other term's at least 2^-24, 42 bits together, which is exact; so it is the number c,
 * and the product is below 2^-31 of it: the exact sum and its double both round to c. For bf16 a tie and a tiny third
 * number are possible, so its sums are rounded to odd, which keeps them off ties (exec_add_odd). */
#include "exec_formats.h"

#include <math.h>

static inline double flush_f16(double value, unsigned flags) {
    return (flags & EXEC_FTZ) && fabs(value) < 0x1p-14 ? copysign(0, value) : value;
}

static inline uint64_t limit(uint64_t bits, unsigned flags, uint64_t infinity, uint64_t one) {
    const bool is_nan = (bits & 0x7fff) > infinity, negative = bits & 0x8000;
    if (flags & EXEC_SAT)
        bits = is_nan || negative ? 0 : bits > one ? one : bits;
    if ((flags & EXEC_RELU) && negative && !is_nan)
        bits = 0;
    return bits;
}

static inline double input_f16(uint64_t bits, unsigned flags) {
    return flags & EXEC_FTZ ? flush_f16(exec_f16(bits), flags) : exec_f16(bits);
}

/* .ftz decides after rounding to 11 bits with any exponent: what is then still below 2^-14 is a zero, although rounding
 * it as a subnormal might reach 2^-14. */
static inline uint64_t output_f16(double value, unsigned flags) {
    uint64_t bits = exec_f16_bits(value);
    if ((flags & EXEC_FTZ) && fabs(value) < 0x1.ffep-15)
        bits &= 0x8000;
    return flags & (EXEC_SAT | EXEC_RELU) ? limit(bits, flags, 0x7c00, 0x3c00) : bits;
}

static inline double input_bf16(uint64_t bits, unsigned flags) {
    return exec_bf16((flags & EXEC_FTZ) && !(bits & 0x7f80) ? bits & 0x8000 : bits);
}

static inline uint64_t output_bf16(double value, unsigned flags) {
    uint64_t bits = exec_bf16_bits(value);
    if (flags & EXEC_FTZ)
        bits = bits & 0x7f80 ? bits : bits & 0x8000;
    return flags & EXEC_RELU ? limit(bits, flags, 0x7f80, 0x3f80) : bits;
}

/* Defines exec_NAME_f16, _f16x2, _bf16 and _bf16x2: the result of x, y and z in each format. */
#define DEFINE_FORMAT(name, count, format, expression)                                                                 \
    static inline uint64_t name##_##format(uint64_t a, uint64_t b, uint64_t c, unsigned flags) {                       \
        const double x = input_##format(a, flags), y = input_##format(b, flags), z = input_##format(c, flags);         \
        (void)y, (void)z;                                                                                              \
        return output_##format(expression, flags);                                                                     \
    }                                                                                                                  \
    EXEC_DEFINE(exec_##name##_##format, count, name##_##format(a, b, c, flags))                                        \
    EXEC_DEFINE(exec_##name##_##format##x2, count,                                                                     \
                name##_##format(a, b, c, flags) | name##_##format(a >> 16, b >> 16, c >> 16, flags) << 16)
#define DEFINE_HALF(name, count, for_f16, for_bf16)                                                                    \
    DEFINE_FORMAT(name, count, f16, for_f16)                                                                           \
    DEFINE_FORMAT(name, count, bf16, for_bf16)

DEFINE_HALF(add, 2, x + y, exec_add_odd(x, y))
DEFINE_HALF(sub, 2, x - y, exec_add_odd(x, -y))
DEFINE_HALF(mul, 2, x *y, x *y)
DEFINE_HALF(fma, 3, x *y + z, exec_add_odd(x *y, z))
/* Hardware's error is about 2^-10 relative; the C library's value is rounded here. */
DEFINE_HALF(ex2, 1, exp2(x), exp2(x))
DEFINE_HALF(tanh, 1, tanh(x), tanh(x))

/* ---- By bits ---- */

static inline uint64_t flush_bits(uint64_t bits, unsigned flags) {
    return (flags & EXEC_FTZ) && !(bits & 0x7c00) ? bits & 0x8000 : bits & 0xffff;
}

#define DEFINE_PACKED(name, count, expression)                                                                         \
    static inline uint64_t name##_half(uint64_t a, uint64_t b, unsigned flags) {                                       \
        (void)b, (void)flags;                                                                                          \
        return expression;                                                                                             \
    }                                                                                                                  \
    EXEC_DEFINE(exec_##name, count, name##_half(a, b, flags))                                                          \
    EXEC_DEFINE(exec_##name##_x2, count, name##_half(a, b, flags) | name##_half(a >> 16, b >> 16, flags) << 16)

#define MIN_MAX_F16(max)  exec_min_max(flush_bits(a, flags), flush_bits(b, flags), 48, 0x7c00, EXEC_NAN_F16, flags, max)
#define MIN_MAX_BF16(max) exec_min_max(a, b, 48, 0x7f80, EXEC_NAN_F16, flags, max)
/* NaNs become the canonical one. */
#define WITH_SIGN(bits, infinity) ((a & 0x7fff) > (infinity) ? EXEC_NAN_F16 : flush_bits(bits, flags))
DEFINE_PACKED(neg_f16, 1, WITH_SIGN(a ^ 0x8000, 0x7c00))
DEFINE_PACKED(abs_f16, 1, WITH_SIGN(a & 0x7fff, 0x7c00))
DEFINE_PACKED(neg_bf16, 1, WITH_SIGN(a ^ 0x8000, 0x7f80))
DEFINE_PACKED(abs_bf16, 1, WITH_SIGN(a & 0x7fff, 0x7f80))
DEFINE_PACKED(min_f16, 2, MIN_MAX_F16(false))
DEFINE_PACKED(max_f16, 2, MIN_MAX_F16(true))
DEFINE_PACKED(min_bf16, 2, MIN_MAX_BF16(false))
DEFINE_PACKED(max_bf16, 2, MIN_MAX_BF16(true))

/* ---- Rules ---- */

static const exec_rule rules[] = {
    {"add", "rn? ftz? sat? f16", "dss", exec_add_f16, NULL},
    {"add", "rn? ftz? sat? f16x2", "dss", exec_add_f16x2, NULL},
    {"add", "rn? bf16", "dss", exec_add_bf16, NULL},
    {"add", "rn? bf16x2", "dss", exec_add_bf16x2, NULL},
    {"sub", "rn? ftz? sat? f16", "dss", exec_sub_f16, NULL},
    {"sub", "rn? ftz? sat? f16x2", "dss", exec_sub_f16x2, NULL},
    {"sub", "rn? bf16", "dss", exec_sub_bf16, NULL},
    {"sub", "rn? bf16x2", "dss", exec_sub_bf16x2, NULL},
    {"mul", "rn? ftz? sat? f16", "dss", exec_mul_f16, NULL},
    {"mul", "rn? ftz? sat? f16x2", "dss", exec_mul_f16x2, NULL},
    {"mul", "rn? bf16", "dss", exec_mul_bf16, NULL},
    {"mul", "rn? bf16x2", "dss", exec_mul_bf16x2, NULL},
    {"fma", "rn ftz? sat|relu? f16", "dsss", exec_fma_f16, NULL},
    {"fma", "rn ftz? sat|relu? f16x2", "dsss", exec_fma_f16x2, NULL},
    {"fma", "rn relu? bf16", "dsss", exec_fma_bf16, NULL},
    {"fma", "rn relu? bf16x2", "dsss", exec_fma_bf16x2, NULL},
    {"neg", "ftz? f16", "ds", exec_neg_f16, NULL},
    {"neg", "ftz? f16x2", "ds", exec_neg_f16_x2, NULL},
    {"neg", "bf16", "ds", exec_neg_bf16, NULL},
    {"neg", "bf16x2", "ds", exec_neg_bf16_x2, NULL},
    {"abs", "ftz? f16", "ds", exec_abs_f16, NULL},
    {"abs", "ftz? f16x2", "ds", exec_abs_f16_x2, NULL},
    {"abs", "bf16", "ds", exec_abs_bf16, NULL},
    {"abs", "bf16x2", "ds", exec_abs_bf16_x2, NULL},
    {"min", "ftz? NaN? f16", "dss", exec_min_f16, NULL},
    {"min", "ftz? NaN? f16x2", "dss", exec_min_f16_x2, NULL},
    {"min", "NaN? bf16", "dss", exec_min_bf16, NULL},
    {"min", "NaN? bf16x2", "dss", exec_min_bf16_x2, NULL},
    {"min", "ftz? NaN? xorsign abs f16", "dss", exec_min_f16, NULL},
    {"min", "ftz? NaN? xorsign abs f16x2", "dss", exec_min_f16_x2, NULL},
    {"min", "NaN? xorsign abs bf16", "dss", exec_min_bf16, NULL},
    {"min", "NaN? xorsign abs bf16x2", "dss", exec_min_bf16_x2, NULL},
    {"max", "ftz? NaN? f16", "dss", exec_max_f16, NULL},
    {"max", "ftz? NaN? f16x2", "dss", exec_max_f16_x2, NULL},
    {"max", "NaN? bf16", "dss", exec_max_bf16, NULL},
    {"max", "NaN? bf16x2", "dss", exec_max_bf16_x2, NULL},
    {"max", "ftz? NaN? xorsign abs f16", "dss", exec_max_f16, NULL},
    {"max", "ftz? NaN? xorsign abs f16x2", "dss", exec_max_f16_x2, NULL},
    {"max", "NaN? xorsign abs bf16", "dss", exec_max_bf16, NULL},
    {"max", "NaN? xorsign abs bf16x2", "dss", exec_max_bf16_x2, NULL},
    {"ex2", "approx f16", "ds", exec_ex2_f16, NULL},
    {"ex2", "approx f16x2", "ds", exec_ex2_f16x2, NULL},
    {"ex2", "approx ftz bf16", "ds", exec_ex2_bf16, NULL},
    {"ex2", "approx ftz bf16x2", "ds", exec_ex2_bf16x2, NULL},
    {"tanh", "approx f16", "ds", exec_tanh_f16, NULL},
    {"tanh", "approx f16x2", "ds", exec_tanh_f16x2, NULL},
    {"tanh", "approx bf16", "ds", exec_tanh_bf16, NULL},
    {"tanh", "approx bf16x2", "ds", exec_tanh_bf16x2, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool bind_half(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, "f16|f16x2|bf16|bf16x2", instr, error, error_size);
}

const sim_op sim_ops_half[] = {
    {"add", bind_half}, {"sub", bind_half},  {"mul", bind_half}, {"fma", bind_half},
    {"neg", bind_half}, {"abs", bind_half},  {"min", bind_half}, {"max", bind_half},
    {"ex2", bind_half}, {"tanh", bind_half}, {NULL, NULL},
};
