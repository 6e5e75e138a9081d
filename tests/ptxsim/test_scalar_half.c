/* SPDX-License-Identifier: MIT
 *
 * f16 and bf16 instructions, single and packed, against exact sums in integers of a small unit. */
#include <math.h>

#include "scalar_machine.h"

#define NAN16 UINT64_C(0x7fff)

typedef struct half_format {
    int fraction_bits, bias;
    unsigned infinity;
} half_format;

static const half_format F16 = {10, 15, 0x7c00}, BF16 = {7, 127, 0x7f80};

static double half_value(half_format f, uint64_t code) {
    const int biased = (int)((code & 0x7fff) >> f.fraction_bits);
    const double fraction = (double)(code & ((1u << f.fraction_bits) - 1));
    double value = biased ? ldexp(1 + ldexp(fraction, -f.fraction_bits), biased - f.bias)
                          : ldexp(fraction, 1 - f.bias - f.fraction_bits);
    if ((code & 0x7fff) == f.infinity)
        value = (double)INFINITY;
    if ((code & 0x7fff) > f.infinity)
        value = (double)NAN;
    return code & 0x8000 ? -value : value;
}

/* The magnitude `units` * 2^scale, an exact integer of units, in a format: a search for the two neighbours. */
static uint64_t nearest_half(half_format f, unsigned __int128 units, int scale) {
    unsigned low = 0, high = f.infinity; /* infinity stands for 2^(bias + 1) */
    /* Twice the value of a code in units; exact where the code is not below the units' resolution. */
#define TWICE(code)                                                                                                    \
    ((unsigned __int128)((code) >> f.fraction_bits ? ((code) & ((1u << f.fraction_bits) - 1)) | 1u << f.fraction_bits  \
                                                   : (code))                                                           \
     << ((int)((code) >> f.fraction_bits ? (code) >> f.fraction_bits : 1) - f.bias - f.fraction_bits - scale + 1))
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (TWICE(middle) <= 2 * units)
            low = middle;
        else
            high = middle;
    }
    if (2 * units >= TWICE(high))
        return f.infinity;
    const unsigned __int128 below = 2 * units - TWICE(low), above = TWICE(high) - 2 * units;
    return below < above || (below == above && !(low & 1)) ? low : high;
#undef TWICE
}

/* a * b + c in f16, by integers of 2^-48. */
static uint64_t exact_fma16(uint64_t a, uint64_t b, uint64_t c) {
    const double x = half_value(F16, a), y = half_value(F16, b), z = half_value(F16, c);
    const double rough = fma(x, y, z);
    if (isnan(rough))
        return NAN16;
    if (isinf(rough))
        return rough < 0 ? 0xfc00 : 0x7c00;
    const __int128 sum = (__int128)ldexp(x, 24) * (__int128)ldexp(y, 24) + (__int128)ldexp(z, 24) * ((__int128)1 << 24);
    if (sum == 0)
        return signbit(rough) ? 0x8000 : 0;
    if (sum >> 68 > 0 || -sum >> 68 > 0)
        return sum < 0 ? 0xfc00 : 0x7c00;
    return sum < 0 ? 0x8000 | nearest_half(F16, (unsigned __int128)-sum, -48)
                   : nearest_half(F16, (unsigned __int128)sum, -48);
}

static uint64_t any_f16(void) {
    static const uint16_t specials[] = {0,      0x8000, 1,      0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00,
                                        0xfc00, 0x7e00, 0xfd01, 0x3c00, 0x3c01, 0xbc00, 0x7800, 0x0002};
    const uint64_t bits = random_bits();
    return bits % 3 ? bits >> 48 : specials[(bits >> 8) % COUNT(specials)];
}

static uint64_t any_halves(int width) {
    return width == 1 ? random_bits() & 1 : width == 16 ? any_f16() : any_f16() | any_f16() << 16;
}

#define ONE      UINT64_C(0x3c00)
#define MINUS(x) ((x) ^ 0x8000)

static int is_nan16(uint64_t x, unsigned infinity) {
    return (x & 0x7fff) > infinity;
}

static uint64_t saturated16(uint64_t x) {
    return is_nan16(x, 0x7c00) || x & 0x8000 ? 0 : x > ONE ? ONE : x;
}

static uint64_t relu16(uint64_t x, unsigned infinity) {
    return x & 0x8000 && !is_nan16(x, infinity) ? 0 : x;
}

static uint64_t flush16(uint64_t x) {
    return x & 0x7c00 ? x : x & 0x8000;
}

/* What is below 2^-14 after rounding to 11 bits is flushed, although it may round to 2^-14 as a subnormal. */
static uint64_t fma_ftz16(uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t rounded = exact_fma16(a, b, c);
    const double value = fma(half_value(F16, a), half_value(F16, b), half_value(F16, c)); /* exact that far down */
    return fabs(value) < 0x1p-14 - 0x1p-26 ? rounded & 0x8000 : rounded;
}

/* Factors whose products are a few 2^-24 away from 2^-14. */
static uint64_t edge_factor(int width) {
    (void)width;
    const uint64_t bits = random_bits();
    return 0x2000 - 4 + bits % 9 + (bits & 0x8000);
}

static uint64_t minimum16(half_format f, uint64_t x, uint64_t y, int keep_nan, int negate) {
    const double a = half_value(f, x) * (negate ? -1 : 1), b = half_value(f, y) * (negate ? -1 : 1);
    if (isnan(a) && isnan(b))
        return NAN16;
    if (isnan(a) || isnan(b))
        return keep_nan ? NAN16 : isnan(a) ? y : x;
    return a < b || (a == b && signbit(a)) ? x : y;
}

#define HALF_FORMULA(name, expression)                                                                                 \
    static uint64_t name(const uint64_t *s) {                                                                          \
        const uint64_t a = s[0] & 0xffff, b = s[1] & 0xffff, c = s[2] & 0xffff;                                        \
        (void)a, (void)b, (void)c;                                                                                     \
        return (uint64_t)(expression);                                                                                 \
    }
/* And for a packed pair. */
#define HALF_FORMULAS(name, expression)                                                                                \
    HALF_FORMULA(name, expression)                                                                                     \
    static uint64_t name##_x2(const uint64_t *s) {                                                                     \
        const uint64_t high[4] = {s[0] >> 16, s[1] >> 16, s[2] >> 16, 0};                                              \
        return name(s) | name(high) << 16;                                                                             \
    }
/* A product's zero keeps its sign when -0 is added, a sum is a product by 1. */
HALF_FORMULAS(add16, exact_fma16(a, ONE, b))
HALF_FORMULAS(sub16, is_nan16(b, 0x7c00) ? NAN16 : exact_fma16(a, ONE, MINUS(b)))
HALF_FORMULAS(mul16, exact_fma16(a, b, (a ^ b) & 0x8000))
HALF_FORMULAS(fma16, exact_fma16(a, b, c))
HALF_FORMULA(fma16_relu, relu16(exact_fma16(a, b, c), 0x7c00))
HALF_FORMULAS(fma16_sat, saturated16(exact_fma16(a, b, c)))
HALF_FORMULA(fma16_ftz, fma_ftz16(flush16(a), flush16(b), flush16(c)))
HALF_FORMULA(mul16_ftz, fma_ftz16(a, b, (a ^ b) & 0x8000))
HALF_FORMULAS(neg16, is_nan16(a, 0x7c00) ? NAN16 : a ^ 0x8000)
HALF_FORMULAS(abs16, is_nan16(a, 0x7c00) ? NAN16 : a & 0x7fff)
HALF_FORMULA(min16, minimum16(F16, a, b, 0, 0))
HALF_FORMULAS(max16, minimum16(F16, a, b, 0, 1))
HALF_FORMULAS(max16_nan, minimum16(F16, a, b, 1, 1))
HALF_FORMULAS(min16_ftz, minimum16(F16, flush16(a), flush16(b), 0, 0))
HALF_FORMULA(lt16, half_value(F16, a) < half_value(F16, b))
HALF_FORMULAS(set16, half_value(F16, a) >= half_value(F16, b) ? ONE : 0)

static void test_f16(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"add.f16 %h0, %h1, %h2", add16},
        {"add.rn.f16x2 %r0, %r1, %r2", add16_x2},
        {"sub.f16 %h0, %h1, %h2", sub16},
        {"sub.f16x2 %r0, %r1, %r2", sub16_x2},
        {"mul.f16 %h0, %h1, %h2", mul16},
        {"mul.f16x2 %r0, %r1, %r2", mul16_x2},
        {"fma.rn.f16 %h0, %h1, %h2, %h3", fma16},
        {"fma.rn.f16x2 %r0, %r1, %r2, %r3", fma16_x2},
        {"fma.rn.relu.f16 %h0, %h1, %h2, %h3", fma16_relu},
        {"fma.rn.sat.f16x2 %r0, %r1, %r2, %r3", fma16_sat_x2},
        {"fma.rn.ftz.f16 %h0, %h1, %h2, %h3", fma16_ftz},
        {"neg.f16 %h0, %h1", neg16},
        {"neg.f16x2 %r0, %r1", neg16_x2},
        {"abs.f16x2 %r0, %r1", abs16_x2},
        {"min.f16 %h0, %h1, %h2", min16},
        {"max.f16x2 %r0, %r1, %r2", max16_x2},
        {"max.NaN.f16 %h0, %h1, %h2", max16_nan},
        {"max.NaN.f16x2 %r0, %r1, %r2", max16_nan_x2},
        {"min.ftz.f16x2 %r0, %r1, %r2", min16_ftz_x2},
        {"setp.lt.f16 %p0, %h1, %h2", lt16},
        {"set.ge.f16.f16 %h0, %h1, %h2", set16},
        {"set.ge.f16x2.f16x2 %r0, %r1, %r2", set16_x2},
    };
    check_cases(cases, COUNT(cases), any_halves, 400);
    static const instruction_case edges[] = {{"mul.ftz.f16 %h0, %h1, %h2", mul16_ftz}};
    check_cases(edges, COUNT(edges), edge_factor, 100);
}

/* Both halves' comparisons go to p and q. */
static void test_packed_comparison(void **state) {
    (void)state;
    machine m;
    machine_init(&m, "setp.gt.and.f16x2 %p0|%p1, %r1, %r2, %p3");
    const int pair = m.instr->operands[0].pair;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        machine_operand(&m, 1)[lane] = any_halves(32);
        machine_operand(&m, 2)[lane] = any_halves(32);
        machine_operand(&m, 3)[lane] = lane % 3 != 0;
    }
    machine_run(&m, UINT32_MAX);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t a = machine_operand(&m, 1)[lane], b = machine_operand(&m, 2)[lane];
        const int c = lane % 3 != 0;
        assert_int_equal(machine_operand(&m, 0)[lane], half_value(F16, a & 0xffff) > half_value(F16, b & 0xffff) && c);
        assert_int_equal(machine_lanes(&m, pair)[lane], half_value(F16, a >> 16) > half_value(F16, b >> 16) && c);
    }
    machine_destroy(&m);
}

/* a * b + c in bf16 for exponents near enough that integers of 2^-60 hold everything. */
static uint64_t exact_fma_bf16(uint64_t a, uint64_t b, uint64_t c) {
    const __int128 product = (__int128)ldexp(half_value(BF16, a), 30) * (__int128)ldexp(half_value(BF16, b), 30);
    const __int128 sum = product + (__int128)ldexp(half_value(BF16, c), 60);
    if (sum == 0)
        return signbit(fma(half_value(BF16, a), half_value(BF16, b), half_value(BF16, c))) ? 0x8000 : 0;
    const unsigned __int128 magnitude = (unsigned __int128)(sum < 0 ? -sum : sum);
    /* Units of 2^-60 as a bf16 search: codes below 2^-60 do not occur. */
    unsigned low = (127u - 60) << 7, high = (127u + 60) << 7;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (half_value(BF16, middle) <=
                ldexp((double)(uint64_t)(magnitude >> 64), 4) + ldexp((double)(uint64_t)magnitude, -60) &&
            (unsigned __int128)ldexp(half_value(BF16, middle), 60) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const unsigned __int128 below = magnitude - (unsigned __int128)ldexp(half_value(BF16, low), 60);
    const unsigned __int128 above = (unsigned __int128)ldexp(half_value(BF16, high), 60) - magnitude;
    const unsigned code = below < above || (below == above && !(low & 1)) ? low : high;
    return code | (sum < 0 ? 0x8000u : 0u);
}

/* Exponents of factors in [-15, 15], addends in [-50, 30]: ties of products with a far smaller addend are frequent. */
static uint64_t near_bf16(int index) {
    const uint64_t sign = random_bits() & 0x8000, fraction = random_bits() & (random_bits() & 1 ? 0x7f : 0x41);
    const int exponent = index < 2 ? (int)(random_bits() % 31) - 15 : (int)(random_bits() % 81) - 50;
    return sign | (uint64_t)(exponent + 127) << 7 | fraction;
}

static void test_bf16(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int kind; /* 0: fma, 1: add, 2: sub, 3: mul */
    } cases[] = {{"fma.rn.bf16x2 %r0, %r1, %r2, %r3", 0},
                 {"add.bf16x2 %r0, %r1, %r2", 1},
                 {"sub.rn.bf16x2 %r0, %r1, %r2", 2},
                 {"mul.bf16x2 %r0, %r1, %r2", 3}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        machine_init(&m, cases[i].text);
        for (int round = 0; round < 1000; round++) {
            uint64_t sources[SIM_LANES][2][3];
            for (int lane = 0; lane < SIM_LANES; lane++) {
                for (int j = 0; j < m.instr->num_operands - 1; j++) {
                    for (int half = 0; half < 2; half++)
                        sources[lane][half][j] = near_bf16(j);
                    machine_operand(&m, j + 1)[lane] = sources[lane][0][j] | sources[lane][1][j] << 16;
                }
            }
            machine_run(&m, UINT32_MAX);
            for (int lane = 0; lane < SIM_LANES; lane++) {
                uint64_t want = 0;
                for (int half = 0; half < 2; half++) {
                    const uint64_t *s = sources[lane][half];
                    const uint64_t one = 0x3f80;
                    want |= (cases[i].kind == 0   ? exact_fma_bf16(s[0], s[1], s[2])
                             : cases[i].kind == 1 ? exact_fma_bf16(s[0], one, s[1])
                             : cases[i].kind == 2 ? exact_fma_bf16(s[0], one, MINUS(s[1]))
                                                  : exact_fma_bf16(s[0], s[1], (s[0] ^ s[1]) & 0x8000))
                            << 16 * half;
                }
                if (machine_operand(&m, 0)[lane] != want)
                    fail_msg("%s: 0x%llx 0x%llx 0x%llx: got 0x%llx, expected 0x%llx", cases[i].text,
                             (unsigned long long)machine_operand(&m, 1)[lane],
                             (unsigned long long)machine_operand(&m, 2)[lane], (unsigned long long)sources[lane][0][2],
                             (unsigned long long)machine_operand(&m, 0)[lane], (unsigned long long)want);
            }
        }
        machine_destroy(&m);
    }
    /* Specials, and the tie with a tiny addend that rounding to double first gets wrong: (1 + 2^-7)(1 + 2^-1) is half
     * way between two bf16, 2^-100 more is not. */
    static const struct {
        const char *text;
        uint64_t a, b, c, result;
    } specials[] = {
        {"fma.rn.bf16 %h0, %h1, %h2, %h3", 0x3f81, 0x3fc0, 0x0000, 0x3fc2},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3", 0x3f81, 0x3fc0, 0x0d80, 0x3fc2},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3", 0x3f81, 0x3fc0, 0x8d80, 0x3fc1},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3", 0x7f80, 0x0000, 0x3f80, NAN16},
        {"fma.rn.relu.bf16 %h0, %h1, %h2, %h3", 0xbf80, 0x3f80, 0x0000, 0x0000},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3", 0x7f7f, 0x7f7f, 0xff80, 0xff80},
        {"max.NaN.bf16 %h0, %h1, %h2", 0x7fc1, 0x3f80, 0, NAN16},
        {"max.bf16 %h0, %h1, %h2", 0x7fc1, 0xbf80, 0, 0xbf80},
        {"min.bf16 %h0, %h1, %h2", 0x0000, 0x8000, 0, 0x8000},
        {"neg.bf16 %h0, %h1", 0x3f80, 0, 0, 0xbf80},
        {"abs.bf16 %h0, %h1", 0xbf80, 0, 0, 0x3f80},
        {"neg.bf16 %h0, %h1", 0xff81, 0, 0, NAN16},
        {"abs.bf16 %h0, %h1", 0xffc1, 0, 0, NAN16},
        {"neg.bf16 %h0, %h1", 0x7f80, 0, 0, 0xff80},
        {"ex2.approx.ftz.bf16 %h0, %h1", 0xc000, 0, 0, 0x3e80},
        {"tanh.approx.bf16 %h0, %h1", 0x4200, 0, 0, 0x3f80},
        {"ex2.approx.f16 %h0, %h1", 0x4200, 0, 0, 0x4800},
        {"tanh.approx.f16 %h0, %h1", 0xcc00, 0, 0, 0xbc00},
    };
    for (size_t i = 0; i < COUNT(specials); i++) {
        machine m;
        machine_init(&m, specials[i].text);
        const uint64_t sources[] = {specials[i].a, specials[i].b, specials[i].c};
        for (int j = 1; j < m.instr->num_operands; j++)
            machine_operand(&m, j)[31] = sources[j - 1];
        machine_run(&m, UINT32_C(1) << 31);
        if (machine_operand(&m, 0)[31] != specials[i].result)
            fail_msg("%s of 0x%llx, 0x%llx, 0x%llx: got 0x%llx, expected 0x%llx", specials[i].text,
                     (unsigned long long)sources[0], (unsigned long long)sources[1], (unsigned long long)sources[2],
                     (unsigned long long)machine_operand(&m, 0)[31], (unsigned long long)specials[i].result);
        machine_destroy(&m);
    }
}

static void test_refusals(void **state) {
    (void)state;
    assert_refused("fma.rz.f16 %h0, %h1, %h2, %h3", "fma.rz.f16");
    assert_refused("fma.rn.sat.relu.f16 %h0, %h1, %h2, %h3", "fma.rn.sat.relu.f16");
    assert_refused("min.relu.f16 %h0, %h1, %h2", "min.relu.f16");
    assert_refused("add.f16 %h0, %h1, 1.0", "operand 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_packed_comparison),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refusals),
    };
    seed_randomly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
