/* SPDX-License-Identifier: MIT
 *
 * f32, f64 and packed f32 arithmetic. Everything but .approx is rounded correctly in the mode asked for: by the host's
 * own IEEE arithmetic, whose mode is switched around the loop over lanes. The compiler cannot move arithmetic across
 * the switch, because the sources are read from, and the results written to, memory that the switching call might
 * touch. */
#include "exec_formats.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>

/* ---- f32 ---- */

static inline float input(uint64_t bits, unsigned flags) {
    return exec_float(flags & EXEC_FTZ ? exec_flush(bits) : bits);
}

/* .sat maps NaN and -0 to +0. */
static inline uint64_t output(float value, unsigned flags) {
    uint64_t bits = exec_float_bits(value);
    if (flags & EXEC_FTZ)
        bits = exec_flush(bits);
    if (flags & EXEC_SAT) {
        const float flushed = exec_float(bits);
        bits = !(flushed > 0) ? 0 : flushed > 1 ? UINT64_C(0x3f800000) : bits;
    }
    return bits;
}

/* ---- Rounding ---- */

static int host_rounding(unsigned flags) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    return modes[exec_rounding_of(flags) & 3];
}

/* Runs `exec` in the instruction's rounding mode. */
static inline sim_result rounded(sim_exec exec, sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const int mode = host_rounding((unsigned)instr->data[1]);
    if (mode == FE_TONEAREST)
        return exec(warp, instr, mask);
    const int before = fegetround();
    fesetround(mode);
    const sim_result result = exec(warp, instr, mask);
    fesetround(before);
    return result;
}

/* x * y + z, which is `value`. .ftz decides after rounding to 24 bits with any exponent: what is below 2^-126 then is a
 * zero, although rounding it as a subnormal would reach 2^-126. */
static inline float product(float value, float x, float y, float z, unsigned flags) {
    if (!(flags & EXEC_FTZ) || fabsf(value) != 0x1p-126f)
        return value;
    const bool x_smaller = fabsf(x) < fabsf(y);
    const float scaled = fmaf((x_smaller ? x : y) * 0x1p64f, x_smaller ? y : x, z * 0x1p64f);
    return fabsf(scaled) < 0x1p-62f ? copysignf(0, value) : value;
}

/* Defines exec_NAME_fast (rn, no flags) and exec_NAME (any rounding, .ftz, .sat) for f32: x, y and z are the sources.
 */
#define DEFINE_F32(name, count, expression)                                                                            \
    static inline float name##_f32(float x, float y, float z, unsigned flags) {                                        \
        (void)y, (void)z, (void)flags;                                                                                 \
        return expression;                                                                                             \
    }                                                                                                                  \
    EXEC_DEFINE(exec_##name##_fast, count,                                                                             \
                exec_float_bits(name##_f32(exec_float(a), exec_float(b), exec_float(c), 0)))                           \
    EXEC_DEFINE(exec_##name##_flags, count,                                                                            \
                output(name##_f32(input(a, flags), input(b, flags), input(c, flags), flags), flags))                   \
    static sim_result exec_##name(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {                             \
        return rounded(exec_##name##_flags, warp, instr, mask);                                                        \
    }

/* The same for both halves of a packed pair. */
#define DEFINE_F32X2(name, count)                                                                                      \
    EXEC_DEFINE(                                                                                                       \
        exec_##name##_x2_flags, count,                                                                                 \
        output(name##_f32(input(a, flags), input(b, flags), input(c, flags), flags), flags) |                          \
            output(name##_f32(input(a >> 32, flags), input(b >> 32, flags), input(c >> 32, flags), flags), flags)      \
                << 32)                                                                                                 \
    static sim_result exec_##name##_x2(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {                        \
        return rounded(exec_##name##_x2_flags, warp, instr, mask);                                                     \
    }

DEFINE_F32(add, 2, x + y)
DEFINE_F32(sub, 2, x - y)
DEFINE_F32(mul, 2, product(x *y, x, y, 0, flags))
DEFINE_F32(fma, 3, product(fmaf(x, y, z), x, y, z, flags))
DEFINE_F32X2(add, 2)
DEFINE_F32X2(sub, 2)
DEFINE_F32X2(mul, 2)
DEFINE_F32X2(fma, 3)

/* f32 arithmetic whose first sources are f16 or bf16. data[2]: whether bf16. */
static bool prepare_mixed(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = ptx_has(instr, "bf16");
    return true;
}

static inline float widened(const ptx_instr *instr, uint64_t bits) {
    return (float)(instr->data[2] ? exec_bf16(bits) : exec_f16(bits));
}

#define DEFINE_MIXED(name, count, result)                                                                              \
    EXEC_DEFINE(exec_##name##_mixed_flags, count, output(result, flags))                                               \
    static sim_result exec_##name##_mixed(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {                     \
        return rounded(exec_##name##_mixed_flags, warp, instr, mask);                                                  \
    }
DEFINE_MIXED(add, 2, widened(instr, a) + input(b, flags))
DEFINE_MIXED(sub, 2, widened(instr, a) - input(b, flags))
DEFINE_MIXED(fma, 3, fmaf(widened(instr, a), widened(instr, b), input(c, flags)))

DEFINE_F32(div, 2, x / y)
DEFINE_F32(rcp, 1, 1 / x)
DEFINE_F32(sqrt, 1, sqrtf(x))

/* ---- Approximations ----
 *
 * Hardware's results differ between generations and are only bounded by the ISA (2 ulp for division, 1 to 2 ulp for
 * rcp, sqrt and rsqrt, about 2^-22 for ex2 and lg2, 2^-20.5 absolute for sin and cos near zero, 2^-11 relative for
 * tanh). Here they are the C library's, within an ulp of the exact value: inside those bounds but not bit-equal to
 * hardware. */
#define DEFINE_APPROX(name, count, expression)                                                                         \
    static inline float name##_approx(float x, float y) {                                                              \
        (void)y;                                                                                                       \
        return expression;                                                                                             \
    }                                                                                                                  \
    EXEC_DEFINE(exec_##name##_approx, count, output(name##_approx(input(a, flags), input(b, flags)), flags))

/* Divisors above 2^126 give 0, or NaN for infinity by them: hardware multiplies by a reciprocal that is then subnormal,
 * and taken as 0. */
static inline float divide_approx(float x, float y) {
    const float magnitude = fabsf(y);
    return magnitude > 0x1p126f && magnitude < INFINITY ? x * copysignf(0, y) : x / y;
}

DEFINE_APPROX(div, 2, divide_approx(x, y))
DEFINE_APPROX(div_full, 2, x / y)
DEFINE_APPROX(rcp, 1, 1 / x)
DEFINE_APPROX(sqrt, 1, sqrtf(x))
DEFINE_APPROX(rsqrt, 1, (float)(1 / sqrt((double)x)))
DEFINE_APPROX(sin, 1, sinf(x))
DEFINE_APPROX(cos, 1, cosf(x))
DEFINE_APPROX(ex2, 1, exp2f(x))
DEFINE_APPROX(lg2, 1, log2f(x))
DEFINE_APPROX(tanh, 1, tanhf(x))

/* rcp and rsqrt .approx.ftz.f64 look at the upper 32 bits alone and give so many: subnormals are zeros. */
static inline double upper_input(uint64_t bits) {
    const uint64_t upper = bits & UINT64_C(0xffffffff00000000);
    return exec_double(upper & UINT64_C(0x7ff0000000000000) ? upper : upper & UINT64_C(0x8000000000000000));
}

static inline uint64_t upper_output(double value) {
    if (value != value)
        return UINT64_C(0x7fffffff00000000);
    const uint64_t bits = exec_double_bits(value);
    return bits & UINT64_C(0x7ff0000000000000) ? bits & UINT64_C(0xffffffff00000000) : bits & UINT64_C(1) << 63;
}

EXEC_DEFINE(exec_rcp_approx_f64, 1, upper_output(1 / upper_input(a)))
EXEC_DEFINE(exec_rsqrt_approx_f64, 1, upper_output(1 / sqrt(upper_input(a))))

/* ---- f64 ---- */

/* The ISA leaves NaN payloads of f64 open. Here, as on an H200, the first NaN of x, y, z is passed on, made quiet;
 * without one a NaN is CUDA's own, quiet with the sign set. */
static inline uint64_t double_result(double value, double x, double y, double z) {
    if (value == value)
        return exec_double_bits(value);
    const uint64_t quiet = UINT64_C(1) << 51;
    return x != x   ? exec_double_bits(x) | quiet
           : y != y ? exec_double_bits(y) | quiet
           : z != z ? exec_double_bits(z) | quiet
                    : UINT64_C(0xfff8000000000000);
}

/* first, second, third: in which order the sources' NaNs are passed on. */
#define DEFINE_F64(name, count, expression, first, second, third)                                                      \
    static inline uint64_t name##_f64(double x, double y, double z) {                                                  \
        return double_result((expression), first, second, third);                                                      \
    }                                                                                                                  \
    EXEC_DEFINE(exec_##name##_f64_loop, count,                                                                         \
                name##_f64(exec_double(a), (count) > 1 ? exec_double(b) : 0, (count) > 2 ? exec_double(c) : 0))        \
    static sim_result exec_##name##_f64(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {                       \
        return rounded(exec_##name##_f64_loop, warp, instr, mask);                                                     \
    }

DEFINE_F64(add, 2, x + y, y, x, z)
DEFINE_F64(sub, 2, x - y, y, x, z)
DEFINE_F64(mul, 2, x *y, y, x, z)
DEFINE_F64(fma, 3, fma(x, y, z), y, z, x)
DEFINE_F64(div, 2, x / y, x, y, z)
DEFINE_F64(rcp, 1, 1 / x, x, y, z)
DEFINE_F64(sqrt, 1, sqrt(x), x, y, z)

/* ---- By bits ---- */

#define SIGN (UINT64_C(1) << (63 - shift))

static inline uint64_t flushed(uint64_t bits, unsigned flags) {
    return flags & EXEC_FTZ ? exec_flush(bits) : bits;
}

/* NaNs of f32 become the canonical one; of f64, as on an H200, they become quiet and keep their sign. */
static inline uint64_t with_sign(uint64_t original, uint64_t bits, unsigned shift, unsigned flags) {
    if (shift)
        return exec_float(original) != exec_float(original) ? EXEC_NAN_F32 : flushed(exec_unsigned(bits, shift), flags);
    return exec_double(original) != exec_double(original) ? original | UINT64_C(1) << 51 : bits;
}

EXEC_DEFINE(exec_neg, 1, with_sign(a, a ^ SIGN, shift, flags))
EXEC_DEFINE(exec_abs, 1, with_sign(a, a & ~SIGN, shift, flags))
EXEC_DEFINE(exec_copysign, 2, exec_unsigned((b & ~SIGN) | (a & SIGN), shift))

#define INFINITY_F32 UINT64_C(0x7f800000)
#define INFINITY_F64 UINT64_C(0x7ff0000000000000)
EXEC_DEFINE(exec_min_f32, 2,
            exec_min_max(flushed(a, flags), flushed(b, flags), 32, INFINITY_F32, EXEC_NAN_F32, flags, false))
EXEC_DEFINE(exec_max_f32, 2,
            exec_min_max(flushed(a, flags), flushed(b, flags), 32, INFINITY_F32, EXEC_NAN_F32, flags, true))
EXEC_DEFINE(exec_min_f64, 2, exec_min_max(a, b, 0, INFINITY_F64, b | UINT64_C(1) << 51, flags, false))
EXEC_DEFINE(exec_max_f64, 2, exec_min_max(a, b, 0, INFINITY_F64, b | UINT64_C(1) << 51, flags, true))

/* Of three: with .abs the magnitudes, as two steps would give them. */
static inline uint64_t of_three(uint64_t a, uint64_t b, uint64_t c, unsigned flags, bool magnitudes, bool max) {
    const uint64_t keep = magnitudes ? INT32_MAX : UINT32_MAX;
    const uint64_t first =
        exec_min_max(flushed(a, flags) & keep, flushed(b, flags) & keep, 32, INFINITY_F32, EXEC_NAN_F32, flags, max);
    return exec_min_max(first, flushed(c, flags) & keep, 32, INFINITY_F32, EXEC_NAN_F32, flags, max);
}

EXEC_DEFINE(exec_min3, 3, of_three(a, b, c, flags, false, false))
EXEC_DEFINE(exec_max3, 3, of_three(a, b, c, flags, false, true))
EXEC_DEFINE(exec_min3_abs, 3, of_three(a, b, c, flags, true, false))
EXEC_DEFINE(exec_max3_abs, 3, of_three(a, b, c, flags, true, true))

/* testp; data[2]: which class. Subnormals count as numbers and as finite, zeros as normal. */
static const char *const class_names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};

static bool prepare_testp(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    for (size_t i = 0; i < sizeof(class_names) / sizeof(class_names[0]); i++)
        if (!strcmp(instr->modifiers[0], class_names[i]))
            instr->data[2] = i;
    return true;
}

static inline bool is_class(uint64_t class, uint64_t bits, unsigned shift) {
    const uint64_t magnitude = exec_unsigned(bits, shift) & ~SIGN;
    const uint64_t infinity = shift ? INFINITY_F32 : INFINITY_F64, hidden = UINT64_C(1) << (shift ? 23 : 52);
    switch (class) {
    case 0:
        return magnitude < infinity;
    case 1:
        return magnitude == infinity;
    case 2:
        return magnitude <= infinity;
    case 3:
        return magnitude > infinity;
    case 4:
        return (magnitude >= hidden && magnitude < infinity) || magnitude == 0;
    default:
        return magnitude > 0 && magnitude < hidden;
    }
}

EXEC_DEFINE(exec_testp, 1, is_class(instr->data[2], a, shift))

/* ---- Rules ---- */

#define ROUNDINGS "rn|rz|rm|rp"

static const exec_rule rules[] = {
    {"add", "rn? f32", "dss", exec_add_fast, NULL},
    {"add", ROUNDINGS "? ftz? sat? f32", "dss", exec_add, NULL},
    {"add", ROUNDINGS "? sat? f32 f16|bf16", "dst", exec_add_mixed, prepare_mixed},
    {"add", ROUNDINGS "? ftz? f32x2", "dss", exec_add_x2, NULL},
    {"add", ROUNDINGS "? f64", "dss", exec_add_f64, NULL},
    {"sub", "rn? f32", "dss", exec_sub_fast, NULL},
    {"sub", ROUNDINGS "? ftz? sat? f32", "dss", exec_sub, NULL},
    {"sub", ROUNDINGS "? sat? f32 f16|bf16", "dst", exec_sub_mixed, prepare_mixed},
    {"sub", ROUNDINGS "? ftz? f32x2", "dss", exec_sub_x2, NULL},
    {"sub", ROUNDINGS "? f64", "dss", exec_sub_f64, NULL},
    {"mul", "rn? f32", "dss", exec_mul_fast, NULL},
    {"mul", ROUNDINGS "? ftz? sat? f32", "dss", exec_mul, NULL},
    {"mul", ROUNDINGS "? ftz? f32x2", "dss", exec_mul_x2, NULL},
    {"mul", ROUNDINGS "? f64", "dss", exec_mul_f64, NULL},
    {"fma", "rn f32", "dsss", exec_fma_fast, NULL},
    {"fma", ROUNDINGS " ftz? sat? f32", "dsss", exec_fma, NULL},
    {"fma", ROUNDINGS " sat? f32 f16|bf16", "dsst", exec_fma_mixed, prepare_mixed},
    {"fma", ROUNDINGS " ftz? f32x2", "dsss", exec_fma_x2, NULL},
    {"fma", ROUNDINGS " f64", "dsss", exec_fma_f64, NULL},
    {"mad", ROUNDINGS " ftz? sat? f32", "dsss", exec_fma, NULL},
    {"mad", ROUNDINGS " f64", "dsss", exec_fma_f64, NULL},
    {"div", "approx ftz? f32", "dss", exec_div_approx, NULL},
    {"div", "full ftz? f32", "dss", exec_div_full_approx, NULL},
    {"div", "rn f32", "dss", exec_div_fast, NULL},
    {"div", ROUNDINGS " ftz? f32", "dss", exec_div, NULL},
    {"div", ROUNDINGS " f64", "dss", exec_div_f64, NULL},
    {"rcp", "approx ftz? f32", "ds", exec_rcp_approx, NULL},
    {"rcp", "rn f32", "ds", exec_rcp_fast, NULL},
    {"rcp", ROUNDINGS " ftz? f32", "ds", exec_rcp, NULL},
    {"rcp", ROUNDINGS " f64", "ds", exec_rcp_f64, NULL},
    {"rcp", "approx ftz f64", "ds", exec_rcp_approx_f64, NULL},
    {"sqrt", "approx ftz? f32", "ds", exec_sqrt_approx, NULL},
    {"sqrt", "rn f32", "ds", exec_sqrt_fast, NULL},
    {"sqrt", ROUNDINGS " ftz? f32", "ds", exec_sqrt, NULL},
    {"sqrt", ROUNDINGS " f64", "ds", exec_sqrt_f64, NULL},
    {"rsqrt", "approx ftz? f32", "ds", exec_rsqrt_approx, NULL},
    {"rsqrt", "approx ftz f64", "ds", exec_rsqrt_approx_f64, NULL},
    {"sin", "approx ftz? f32", "ds", exec_sin_approx, NULL},
    {"cos", "approx ftz? f32", "ds", exec_cos_approx, NULL},
    {"ex2", "approx ftz? f32", "ds", exec_ex2_approx, NULL},
    {"lg2", "approx ftz? f32", "ds", exec_lg2_approx, NULL},
    {"tanh", "approx f32", "ds", exec_tanh_approx, NULL},
    {"neg", "ftz? f32", "ds", exec_neg, NULL},
    {"neg", "f64", "ds", exec_neg, NULL},
    {"abs", "ftz? f32", "ds", exec_abs, NULL},
    {"abs", "f64", "ds", exec_abs, NULL},
    {"copysign", "f32|f64", "dss", exec_copysign, NULL},
    {"min", "ftz? NaN? f32", "dss", exec_min_f32, NULL},
    {"min", "ftz? NaN? xorsign abs f32", "dss", exec_min_f32, NULL},
    {"min", "ftz? NaN? f32", "dsss", exec_min3, NULL},
    {"min", "ftz? NaN? abs f32", "dsss", exec_min3_abs, NULL},
    {"min", "f64", "dss", exec_min_f64, NULL},
    {"max", "ftz? NaN? f32", "dss", exec_max_f32, NULL},
    {"max", "ftz? NaN? xorsign abs f32", "dss", exec_max_f32, NULL},
    {"max", "ftz? NaN? f32", "dsss", exec_max3, NULL},
    {"max", "ftz? NaN? abs f32", "dsss", exec_max3_abs, NULL},
    {"max", "f64", "dss", exec_max_f64, NULL},
    {"testp", "finite|infinite|number|notanumber|normal|subnormal f32|f64", "ds", exec_testp, prepare_testp},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool bind_float(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, "f32|f64|f32x2", instr, error, error_size);
}

const sim_op sim_ops_float[] = {
    {"add", bind_float}, {"sub", bind_float},      {"mul", bind_float},  {"fma", bind_float},   {"mad", bind_float},
    {"div", bind_float}, {"rcp", bind_float},      {"sqrt", bind_float}, {"rsqrt", bind_float}, {"sin", bind_float},
    {"cos", bind_float}, {"ex2", bind_float},      {"lg2", bind_float},  {"tanh", bind_float},  {"neg", bind_float},
    {"abs", bind_float}, {"copysign", bind_float}, {"min", bind_float},  {"max", bind_float},   {"testp", bind_float},
    {NULL, NULL},
};
