/* SPDX-License-Identifier: MIT
 *
 * f32, f64, packed f32, f16 and bf16 instructions. Rounding is checked by formulas of another kind: directed modes by
 * the sign of the exact error of the nearest result, 16-bit sums by integers of the smallest unit. */
#include <math.h>

#include "scalar_machine.h"

#define NAN32   UINT64_C(0x7fffffff)
#define NAN16   UINT64_C(0x7fff)
#define SIGN32  UINT64_C(0x80000000)
#define QUIET64 (UINT64_C(1) << 51)

static uint64_t bits_of(float value) {
    return isnan(value) ? NAN32 : float_bits(value);
}

/* ---- Sources ---- */

/* Floats and doubles with all kinds of specials, by width; packed ones for 64 when `packed`. */
static uint64_t any_float32(void) {
    static const uint32_t specials[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffa00001,
                                        0x3f800000, 0xbf800000, 0x7e800000, 0x7e800001};
    const uint64_t bits = random_bits();
    if (bits % 4 == 0)
        return specials[(bits >> 8) % COUNT(specials)];
    if (bits % 4 == 1)
        return (bits >> 8 & 0x807fffff) | (100 + (bits >> 40) % 56) << 23;
    return bits >> 32;
}

static uint64_t any_float64(void) {
    static const uint64_t specials[] = {0,
                                        UINT64_C(0x8000000000000000),
                                        1,
                                        UINT64_C(0x000fffffffffffff),
                                        UINT64_C(0x0010000000000000),
                                        UINT64_C(0x7fefffffffffffff),
                                        UINT64_C(0x7ff0000000000000),
                                        UINT64_C(0xfff0000000000000),
                                        UINT64_C(0x7ff0000000000001),
                                        UINT64_C(0xfff8000000001234),
                                        UINT64_C(0x3ff0000000000000)};
    const uint64_t bits = random_bits();
    if (bits % 4 == 0)
        return specials[(bits >> 8) % COUNT(specials)];
    if (bits % 4 == 1)
        return (random_bits() & UINT64_C(0x800fffffffffffff)) | (1000 + (bits >> 8) % 48) << 52;
    return random_bits();
}

static uint64_t any_float(int width) {
    return width == 1 ? random_bits() & 1 : width == 64 ? any_float64() : any_float32();
}

static uint64_t any_packed(int width) {
    return width == 64 ? any_float32() | any_float32() << 32 : any_float32();
}

/* Normal numbers within a few binades of 1, whose sums and products have errors that double (for f32) or fma (for f64)
 * gives exactly. */
static uint64_t moderate(int width) {
    if (width == 64)
        return (random_bits() & UINT64_C(0x800fffffffffffff)) | (1020 + random_bits() % 8) << 52;
    return (random_bits() & 0x807fffff) | (124 + random_bits() % 6) << 23;
}

/* Factors whose products are at most 2^-23 away from 2^-126. */
static uint64_t edge_factor(int width) {
    (void)width;
    const uint64_t bits = random_bits();
    return 0x20000000 - 4 + bits % 9 + (bits & SIGN32);
}

static uint64_t moderate_positive(int width) {
    return moderate(width) & ~(UINT64_C(1) << (width - 1));
}

/* ---- f32 ---- */

static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* An exact product: what is below 2^-126 after rounding to 24 bits is flushed, although it may round to 2^-126 as a
 * subnormal. */
static float flush_product(double exact) {
    return fabsf((float)(exact * 0x1p64)) < 0x1p-62f ? copysignf(0, (float)exact) : (float)exact;
}

static float saturated(float x) {
    return x >= 1 ? 1 : x > 0 ? x : 0;
}

#define FLOAT_FORMULA(name, expression)                                                                                \
    static uint64_t name(const uint64_t *s) {                                                                          \
        const float a = as_float(s[0]), b = as_float(s[1]), c = as_float(s[2]);                                        \
        (void)a, (void)b, (void)c;                                                                                     \
        return (uint64_t)(expression);                                                                                 \
    }
FLOAT_FORMULA(add, bits_of(a + b))
FLOAT_FORMULA(sub, bits_of(a - b))
FLOAT_FORMULA(mul, bits_of(a *b))
FLOAT_FORMULA(fma_, bits_of(fmaf(a, b, c)))
FLOAT_FORMULA(divide, bits_of(a / b))
FLOAT_FORMULA(reciprocal, bits_of(1 / a))
FLOAT_FORMULA(root, bits_of(sqrtf(a)))
FLOAT_FORMULA(add_ftz, bits_of(flush(flush(a) + flush(b))))
FLOAT_FORMULA(mul_ftz_sat, bits_of(saturated(flush(flush(a) * flush(b)))))
FLOAT_FORMULA(fma_sat, bits_of(saturated(fmaf(a, b, c))))
FLOAT_FORMULA(negated, isnan(a) ? NAN32 : s[0] ^ SIGN32)
FLOAT_FORMULA(absolute_ftz, isnan(a) ? NAN32 : fabsf(a) < 0x1p-126f ? 0 : s[0] & ~SIGN32)
FLOAT_FORMULA(mul_ftz, bits_of(flush_product((double)a *(double)b)))
FLOAT_FORMULA(copied_sign, (s[1] & ~SIGN32) | (s[0] & SIGN32))

/* Smaller of two, by values and, for zeros, signs. */
static uint64_t lesser(uint64_t x, uint64_t y) {
    const float a = as_float(x), b = as_float(y);
    return a < b || (a == b && signbit(a)) ? x : y;
}

static uint64_t minimum(uint64_t x, uint64_t y, int keep_nan) {
    const int x_nan = isnan(as_float(x)), y_nan = isnan(as_float(y));
    if (x_nan && y_nan)
        return NAN32;
    if (x_nan || y_nan)
        return keep_nan ? NAN32 : x_nan ? y : x;
    return lesser(x, y);
}

/* max(x, y) = -min(-x, -y), but for NaNs, which have no sign here. */
static uint64_t maximum(uint64_t x, uint64_t y, int keep_nan) {
    const uint64_t m = minimum(x ^ SIGN32, y ^ SIGN32, keep_nan);
    return isnan(as_float(m)) ? NAN32 : m ^ SIGN32;
}

static uint64_t flushed(uint64_t x) {
    return x & 0x7f800000 ? x : x & SIGN32;
}

static uint64_t with_sign(uint64_t magnitude, uint64_t x, uint64_t y) {
    return isnan(as_float(magnitude)) ? NAN32 : magnitude | ((x ^ y) & SIGN32);
}

static uint64_t minimum_xorsign(uint64_t x, uint64_t y) {
    if (isnan(as_float(x)) || isnan(as_float(y)))
        return NAN32;
    return with_sign(lesser(x & ~SIGN32, y & ~SIGN32), x, y);
}

/* A NaN gives way to the other number, but its sign counts. */
static uint64_t maximum_xorsign(uint64_t x, uint64_t y) {
    return with_sign(maximum(x & ~SIGN32, y & ~SIGN32, 0), x, y);
}

FLOAT_FORMULA(min_, minimum(s[0], s[1], 0))
FLOAT_FORMULA(max_, maximum(s[0], s[1], 0))
FLOAT_FORMULA(min_nan, minimum(s[0], s[1], 1))
FLOAT_FORMULA(max_ftz_nan, maximum(flushed(s[0]), flushed(s[1]), 1))
FLOAT_FORMULA(min_xorsign, minimum_xorsign(s[0], s[1]))
FLOAT_FORMULA(max_xorsign, maximum_xorsign(s[0], s[1]))
FLOAT_FORMULA(min3_nan, minimum(minimum(s[0], s[1], 1), s[2], 1))
FLOAT_FORMULA(max3, maximum(maximum(s[0], s[1], 0), s[2], 0))
FLOAT_FORMULA(is_finite, isfinite(a))
FLOAT_FORMULA(is_infinite, isinf(a) != 0)
FLOAT_FORMULA(is_number, !isnan(a))
FLOAT_FORMULA(is_not_number, isnan(a) != 0)
FLOAT_FORMULA(is_normal, isnormal(a) || a == 0) /* as on an H200 */
FLOAT_FORMULA(is_subnormal, fpclassify(a) == FP_SUBNORMAL)
FLOAT_FORMULA(eq, a == b)
FLOAT_FORMULA(ne, a<b || a> b)
FLOAT_FORMULA(lt, a < b)
FLOAT_FORMULA(le, a <= b)
FLOAT_FORMULA(gt, a > b)
FLOAT_FORMULA(ge, a >= b)
FLOAT_FORMULA(equ, a == b || isunordered(a, b))
FLOAT_FORMULA(neu, a != b)
FLOAT_FORMULA(ltu, a < b || isunordered(a, b))
FLOAT_FORMULA(leu, a <= b || isunordered(a, b))
FLOAT_FORMULA(gtu, a > b || isunordered(a, b))
FLOAT_FORMULA(geu, a >= b || isunordered(a, b))
FLOAT_FORMULA(num, !isunordered(a, b))
FLOAT_FORMULA(nan_, isunordered(a, b))
FLOAT_FORMULA(lt_ftz, flush(a) < flush(b))
FLOAT_FORMULA(set_le, a <= b ? 0x3f800000 : 0)
FLOAT_FORMULA(slct, c >= 0 ? s[0] : s[1])
FLOAT_FORMULA(add_literal, bits_of(a + 0.1f))

#define PACKED_FORMULA(name)                                                                                           \
    static uint64_t name##_x2(const uint64_t *s) {                                                                     \
        const uint64_t low[4] = {(uint32_t)s[0], (uint32_t)s[1], (uint32_t)s[2], 0};                                   \
        const uint64_t high[4] = {s[0] >> 32, s[1] >> 32, s[2] >> 32, 0};                                              \
        return name(low) | name(high) << 32;                                                                           \
    }
PACKED_FORMULA(add)
PACKED_FORMULA(mul)
PACKED_FORMULA(fma_)
PACKED_FORMULA(add_ftz)

static void test_f32(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"add.f32 %r0, %r1, %r2", add},
        {"add.rn.f32 %r0, %r1, %r2", add},
        {"sub.f32 %r0, %r1, %r2", sub},
        {"mul.f32 %r0, %r1, %r2", mul},
        {"fma.rn.f32 %r0, %r1, %r2, %r3", fma_},
        {"mad.rn.f32 %r0, %r1, %r2, %r3", fma_},
        {"div.rn.f32 %r0, %r1, %r2", divide},
        {"rcp.rn.f32 %r0, %r1", reciprocal},
        {"sqrt.rn.f32 %r0, %r1", root},
        {"add.ftz.f32 %r0, %r1, %r2", add_ftz},
        {"mul.rn.ftz.sat.f32 %r0, %r1, %r2", mul_ftz_sat},
        {"fma.rn.sat.f32 %r0, %r1, %r2, %r3", fma_sat},
        {"neg.f32 %r0, %r1", negated},
        {"abs.ftz.f32 %r0, %r1", absolute_ftz},
        {"copysign.f32 %r0, %r1, %r2", copied_sign},
        {"min.f32 %r0, %r1, %r2", min_},
        {"max.f32 %r0, %r1, %r2", max_},
        {"min.NaN.f32 %r0, %r1, %r2", min_nan},
        {"max.ftz.NaN.f32 %r0, %r1, %r2", max_ftz_nan},
        {"min.NaN.xorsign.abs.f32 %r0, %r1, %r2", min_xorsign},
        {"max.xorsign.abs.f32 %r0, %r1, %r2", max_xorsign},
        {"min.NaN.f32 %r0, %r1, %r2, %r3", min3_nan},
        {"max.f32 %r0, %r1, %r2, %r3", max3},
        {"testp.finite.f32 %p0, %r1", is_finite},
        {"testp.infinite.f32 %p0, %r1", is_infinite},
        {"testp.number.f32 %p0, %r1", is_number},
        {"testp.notanumber.f32 %p0, %r1", is_not_number},
        {"testp.normal.f32 %p0, %r1", is_normal},
        {"testp.subnormal.f32 %p0, %r1", is_subnormal},
        {"setp.eq.f32 %p0, %r1, %r2", eq},
        {"setp.ne.f32 %p0, %r1, %r2", ne},
        {"setp.lt.f32 %p0, %r1, %r2", lt},
        {"setp.le.f32 %p0, %r1, %r2", le},
        {"setp.gt.f32 %p0, %r1, %r2", gt},
        {"setp.ge.f32 %p0, %r1, %r2", ge},
        {"setp.equ.f32 %p0, %r1, %r2", equ},
        {"setp.neu.f32 %p0, %r1, %r2", neu},
        {"setp.ltu.f32 %p0, %r1, %r2", ltu},
        {"setp.leu.f32 %p0, %r1, %r2", leu},
        {"setp.gtu.f32 %p0, %r1, %r2", gtu},
        {"setp.geu.f32 %p0, %r1, %r2", geu},
        {"setp.num.f32 %p0, %r1, %r2", num},
        {"setp.nan.f32 %p0, %r1, %r2", nan_},
        {"setp.lt.ftz.f32 %p0, %r1, %r2", lt_ftz},
        {"set.le.f32.f32 %r0, %r1, %r2", set_le},
        {"slct.f32.f32 %r0, %r1, %r2, %r3", slct},
        {"add.f32 %r0, %r1, 0.1", add_literal},
        {"add.f32 %r0, %r1, 0f3DCCCCCD", add_literal},
    };
    check_cases(cases, COUNT(cases), any_float, 400);
    static const instruction_case edges[] = {{"mul.ftz.f32 %r0, %r1, %r2", mul_ftz},
                                             {"fma.rn.ftz.f32 %r0, %r1, %r2, 0f00000000", mul_ftz}};
    check_cases(edges, COUNT(edges), edge_factor, 100);
    static const instruction_case packed[] = {{"add.rn.f32x2 %d0, %d1, %d2", add_x2},
                                              {"add.ftz.f32x2 %d0, %d1, %d2", add_ftz_x2},
                                              {"mul.f32x2 %d0, %d1, %d2", mul_x2},
                                              {"fma.rn.f32x2 %d0, %d1, %d2, %d3", fma__x2}};
    check_cases(packed, COUNT(packed), any_packed, 400);
}

/* ---- f64 ---- */

/* As on an H200: the first NaN of sources in that order ("yx": the second, then the first), made quiet, or CUDA's. */
static uint64_t result64(double value, const uint64_t *s, const char *order) {
    for (; *order && isnan(value); order++)
        if (isnan(as_double(s[*order - 'x'])))
            return s[*order - 'x'] | QUIET64;
    return isnan(value) ? UINT64_C(0xfff8000000000000) : double_bits(value);
}

#define DOUBLE_FORMULA(name, expression)                                                                               \
    static uint64_t name(const uint64_t *s) {                                                                          \
        const double a = as_double(s[0]), b = as_double(s[1]), c = as_double(s[2]);                                    \
        (void)a, (void)b, (void)c;                                                                                     \
        return (uint64_t)(expression);                                                                                 \
    }
DOUBLE_FORMULA(add64, result64(a + b, s, "yx"))
DOUBLE_FORMULA(sub64, result64(a - b, s, "yx"))
DOUBLE_FORMULA(mul64, result64(a *b, s, "yx"))
DOUBLE_FORMULA(fma64, result64(fma(a, b, c), s, "yzx"))
DOUBLE_FORMULA(div64, result64(a / b, s, "xy"))
DOUBLE_FORMULA(rcp64, result64(1 / a, s, "x"))
DOUBLE_FORMULA(sqrt64, result64(sqrt(a), s, "x"))
DOUBLE_FORMULA(neg64, isnan(a) ? s[0] | QUIET64 : s[0] ^ UINT64_C(1) << 63)
DOUBLE_FORMULA(abs64, isnan(a) ? s[0] | QUIET64 : s[0] & INT64_MAX)
DOUBLE_FORMULA(min64, isnan(a) && isnan(b)              ? s[1] | QUIET64
                      : isnan(a)                        ? s[1]
                      : isnan(b)                        ? s[0]
                      : a < b || (a == b && signbit(a)) ? s[0]
                                                        : s[1])
DOUBLE_FORMULA(gtu64, a > b || isunordered(a, b))
DOUBLE_FORMULA(subnormal64, fpclassify(a) == FP_SUBNORMAL)

static void test_f64(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"add.f64 %d0, %d1, %d2", add64},      {"sub.rn.f64 %d0, %d1, %d2", sub64},
        {"mul.f64 %d0, %d1, %d2", mul64},      {"fma.rn.f64 %d0, %d1, %d2, %d3", fma64},
        {"div.rn.f64 %d0, %d1, %d2", div64},   {"rcp.rn.f64 %d0, %d1", rcp64},
        {"sqrt.rn.f64 %d0, %d1", sqrt64},      {"neg.f64 %d0, %d1", neg64},
        {"abs.f64 %d0, %d1", abs64},           {"min.f64 %d0, %d1, %d2", min64},
        {"setp.gtu.f64 %p0, %d1, %d2", gtu64}, {"testp.subnormal.f64 %p0, %d1", subnormal64},
    };
    check_cases(cases, COUNT(cases), any_float, 400);
}

/* ---- Directed rounding ---- */

/* The result of a mode (z, m or p), from the nearest one and the sign of what it lacks. */
static float directed32(float nearest, double error, char mode) {
    const float down = error < 0 ? nextafterf(nearest, -INFINITY) : nearest;
    const float up = error > 0 ? nextafterf(nearest, INFINITY) : nearest;
    return mode == 'm' ? down : mode == 'p' ? up : nearest > 0 ? down : up;
}

static double directed64(double nearest, double error, char mode) {
    const double down = error < 0 ? nextafter(nearest, -(double)INFINITY) : nearest;
    const double up = error > 0 ? nextafter(nearest, (double)INFINITY) : nearest;
    return mode == 'm' ? down : mode == 'p' ? up : nearest > 0 ? down : up;
}

/* What the nearest sum lacks (two-sum). */
static double sum_error(double x, double y) {
    const double sum = x + y, part = sum - x;
    return (x - (sum - part)) + (y - part);
}

/* Exact errors: sums and products of f32 in double; a quotient q by what x - qy is, a root r by x - r*r. */
#define DIRECTED_FORMULAS(mode, m)                                                                                     \
    FLOAT_FORMULA(add_##mode, bits_of(directed32(a + b, (double)a + b - (double)(a + b), m)))                          \
    FLOAT_FORMULA(sub_##mode, bits_of(directed32(a - b, (double)a - b - (double)(a - b), m)))                          \
    FLOAT_FORMULA(mul_##mode, bits_of(directed32(a *b, (double)a *b - (double)(a * b), m)))                            \
    FLOAT_FORMULA(div_##mode, bits_of(directed32(a / b, (a - (double)(a / b) * b) * (b > 0 ? 1 : -1), m)))             \
    FLOAT_FORMULA(rcp_##mode, bits_of(directed32(1 / a, (1 - (double)(1 / a) * a) * (a > 0 ? 1 : -1), m)))             \
    FLOAT_FORMULA(sqrt_##mode, bits_of(directed32(sqrtf(a), a - (double)sqrtf(a) * sqrtf(a), m)))                      \
    DOUBLE_FORMULA(add64_##mode, double_bits(directed64(a + b, sum_error(a, b), m)))                                   \
    DOUBLE_FORMULA(mul64_##mode, double_bits(directed64(a *b, fma(a, b, -(a * b)), m)))                                \
    DOUBLE_FORMULA(div64_##mode, double_bits(directed64(a / b, -fma(a / b, b, -a) * (b > 0 ? 1 : -1), m)))             \
    DOUBLE_FORMULA(sqrt64_##mode, double_bits(directed64(sqrt(a), -fma(sqrt(a), sqrt(a), -a), m)))                     \
    PACKED_FORMULA(add_##mode)
DIRECTED_FORMULAS(rz, 'z')
DIRECTED_FORMULAS(rm, 'm')
DIRECTED_FORMULAS(rp, 'p')

static uint64_t moderate_packed(int width) {
    (void)width;
    return moderate(32) | moderate(32) << 32;
}

#define DIRECTED_CASES(mode)                                                                                           \
    {"add." #mode ".f32 %r0, %r1, %r2", add_##mode}, {"sub." #mode ".f32 %r0, %r1, %r2", sub_##mode},                  \
        {"mul." #mode ".f32 %r0, %r1, %r2", mul_##mode}, {"div." #mode ".f32 %r0, %r1, %r2", div_##mode},              \
        {"rcp." #mode ".f32 %r0, %r1", rcp_##mode}, {"add." #mode ".f64 %d0, %d1, %d2", add64_##mode},                 \
        {"mul." #mode ".f64 %d0, %d1, %d2", mul64_##mode}, {                                                           \
        "div." #mode ".f64 %d0, %d1, %d2", div64_##mode                                                                \
    }

/* fma on products of two 12-bit numbers and a third nearby: exact in double. */
static uint64_t short_fraction(int width) {
    return moderate(width) & 0xfffff000;
}

#define FMA_FORMULA(mode, m)                                                                                           \
    FLOAT_FORMULA(fma_##mode,                                                                                          \
                  bits_of(directed32((float)((double)a * b + (double)c),                                               \
                                     (double)a *b + (double)c - (double)(float)((double)a * b + (double)c), m)))
FMA_FORMULA(rz, 'z')
FMA_FORMULA(rm, 'm')
FMA_FORMULA(rp, 'p')

static void test_directed_rounding(void **state) {
    (void)state;
    static const instruction_case cases[] = {DIRECTED_CASES(rz), DIRECTED_CASES(rm), DIRECTED_CASES(rp)};
    check_cases(cases, COUNT(cases), moderate, 300);
    static const instruction_case roots[] = {{"sqrt.rz.f32 %r0, %r1", sqrt_rz},   {"sqrt.rm.f32 %r0, %r1", sqrt_rm},
                                             {"sqrt.rp.f32 %r0, %r1", sqrt_rp},   {"sqrt.rz.f64 %d0, %d1", sqrt64_rz},
                                             {"sqrt.rm.f64 %d0, %d1", sqrt64_rm}, {"sqrt.rp.f64 %d0, %d1", sqrt64_rp}};
    check_cases(roots, COUNT(roots), moderate_positive, 300);
    static const instruction_case packed[] = {{"add.rz.f32x2 %d0, %d1, %d2", add_rz_x2},
                                              {"add.rm.f32x2 %d0, %d1, %d2", add_rm_x2},
                                              {"add.rp.f32x2 %d0, %d1, %d2", add_rp_x2}};
    check_cases(packed, COUNT(packed), moderate_packed, 300);
    static const instruction_case fmas[] = {{"fma.rz.f32 %r0, %r1, %r2, %r3", fma_rz},
                                            {"fma.rm.f32 %r0, %r1, %r2, %r3", fma_rm},
                                            {"fma.rp.f32 %r0, %r1, %r2, %r3", fma_rp}};
    check_cases(fmas, COUNT(fmas), short_fraction, 300);
}

/* ---- Approximations: specials bit for bit, other results within the ISA's bounds ---- */

static void test_approximations(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double (*exact)(double);
        double relative, absolute;
        float from, to;
    } cases[] = {
        {"ex2.approx.f32 %r0, %r1", exp2, 0x1p-22, 0, -120, 120},
        {"lg2.approx.f32 %r0, %r1", log2, 0x1p-22, 0x1p-22, 0, 1000},
        {"sin.approx.f32 %r0, %r1", sin, 0, 0x1p-20, -3, 3},
        {"cos.approx.f32 %r0, %r1", cos, 0, 0x1p-20, -3, 3},
        {"tanh.approx.f32 %r0, %r1", tanh, 0x1p-11, 0, -10, 10},
        {"sqrt.approx.f32 %r0, %r1", sqrt, 0x1p-22, 0, 0, 1e6f},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        machine_init(&m, cases[i].text);
        for (int round = 0; round < 100; round++) {
            for (int lane = 0; lane < SIM_LANES; lane++) {
                const float unit = (float)(random_bits() >> 40) * 0x1p-24f;
                machine_operand(&m, 1)[lane] = bits_of(cases[i].from + unit * (cases[i].to - cases[i].from));
            }
            machine_run(&m, UINT32_MAX);
            for (int lane = 0; lane < SIM_LANES; lane++) {
                const double want = cases[i].exact(as_float(machine_operand(&m, 1)[lane]));
                const double got = as_float(machine_operand(&m, 0)[lane]);
                if (!(fabs(got - want) <= cases[i].absolute + cases[i].relative * fabs(want)) && got != want)
                    fail_msg("%s: got %.9g, exactly %.9g", cases[i].text, got, want);
            }
        }
        machine_destroy(&m);
    }
    static const struct {
        const char *text;
        uint32_t a, b, result;
    } specials[] = {
        {"rcp.approx.f32 %r0, %r1", 0x80000000, 0, 0xff800000},
        {"rcp.approx.ftz.f32 %r0, %r1", 0x7f000000, 0, 0}, /* 2^-127, flushed */
        {"rcp.approx.f32 %r0, %r1", 0x7f000000, 0, 0x00400000},
        {"rsqrt.approx.f32 %r0, %r1", 0x40800000, 0, 0x3f000000},
        {"rsqrt.approx.f32 %r0, %r1", 0x80000000, 0, 0xff800000},
        {"sqrt.approx.f32 %r0, %r1", 0xbf800000, 0, NAN32},
        {"lg2.approx.f32 %r0, %r1", 0, 0, 0xff800000},
        {"lg2.approx.f32 %r0, %r1", 0xbf800000, 0, NAN32},
        {"ex2.approx.f32 %r0, %r1", 0xff800000, 0, 0},
        {"ex2.approx.ftz.f32 %r0, %r1", 0xc3000000, 0, 0}, /* 2^-128, flushed */
        {"ex2.approx.f32 %r0, %r1", 0xc3000000, 0, 0x00200000},
        {"sin.approx.f32 %r0, %r1", 0x7f800000, 0, NAN32},
        {"div.approx.f32 %r0, %r1, %r2", 0x3f800000, 0xfe800001, 0x80000000}, /* 1 / -(2^126 and more) */
        {"div.approx.f32 %r0, %r1, %r2", 0x7f800000, 0x7e800001, NAN32},
        {"div.full.f32 %r0, %r1, %r2", 0x7f000000, 0x7f000000, 0x3f800000},
        {"div.approx.f32 %r0, %r1, %r2", 0x40c00000, 0x40000000, 0x40400000},
    };
    for (size_t i = 0; i < COUNT(specials); i++) {
        machine m;
        machine_init(&m, specials[i].text);
        machine_operand(&m, 1)[7] = specials[i].a;
        if (m.instr->num_operands > 2)
            machine_operand(&m, 2)[7] = specials[i].b;
        machine_run(&m, 1 << 7);
        if (machine_operand(&m, 0)[7] != specials[i].result)
            fail_msg("%s of 0x%x, 0x%x: got 0x%llx, expected 0x%x", specials[i].text, specials[i].a, specials[i].b,
                     (unsigned long long)machine_operand(&m, 0)[7], specials[i].result);
        machine_destroy(&m);
    }
}

static void test_refusals(void **state) {
    (void)state;
    assert_refused("fma.f32 %r0, %r1, %r2, %r3", "fma.f32");
    assert_refused("add.rna.f32 %r0, %r1, %r2", "add.rna.f32");
    assert_refused("add.sat.f64 %d0, %d1, %d2", "add.sat.f64");
    assert_refused("sin.f32 %r0, %r1", "sin.f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_directed_rounding),
        cmocka_unit_test(test_approximations),
        cmocka_unit_test(test_refusals),
    };
    seed_randomly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
