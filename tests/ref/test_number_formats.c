/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fenv.h>
#include <math.h>

#include "ref/number_formats.h"

/* ---- Formulas of the formats, written down once more ----------------------------------------------------------- */

static double formula(unsigned code, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = code >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
    const int exponent = (int)(code >> mantissa_bits & ((1u << exponent_bits) - 1));
    const double fraction = (double)(code & ((1u << mantissa_bits) - 1)) / (double)(1 << mantissa_bits);
    return exponent == 0 ? sign * pow(2, 1 - bias) * fraction : sign * pow(2, exponent - bias) * (1 + fraction);
}

static void assert_same_double(double a, double b) {
    if (isnan(a) && isnan(b))
        return;
    uint64_t a_bits, b_bits;
    memcpy(&a_bits, &a, sizeof a_bits);
    memcpy(&b_bits, &b, sizeof b_bits);
    if (a_bits != b_bits)
        fail_msg("%.17g (%a) is not %.17g (%a)", a, a, b, b);
}

/* ---- Decoding -------------------------------------------------------------------------------------------------- */

static void test_e4m3_values(void **state) {
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        const double value = attns_e4m3_to_double((uint8_t)code);
        if ((code & 0x7f) == 0x7f)
            assert_true(isnan(value));
        else
            assert_same_double(value, formula(code, 4, 3));
    }
    assert_same_double(attns_e4m3_to_double(0x7e), 448);
    assert_same_double(attns_e4m3_to_double(0x01), 0x1p-9);
    assert_same_double(attns_e4m3_to_double(0x38), 1);
    assert_same_double(attns_e4m3_to_double(0xc0), -2);
    assert_same_double(attns_e4m3_to_double(0x80), -0.0);
}

static void test_e2m1_values(void **state) {
    (void)state;
    static const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (unsigned code = 0; code < 256; code++) {
        assert_same_double(attns_e2m1_to_double((uint8_t)code), formula(code & 15, 2, 1));
        assert_same_double(attns_e2m1_to_double((uint8_t)code), copysign(magnitudes[code & 7], code & 8 ? -1 : 1));
    }
    for (unsigned code = 0; code < 16; code++) {
        const double value = attns_e2m1_to_double((uint8_t)code);
        assert_int_equal(attns_double_to_e2m1(value), code);
        assert_int_equal(attns_double_to_e2m1(nextafter(value, 10)), value == 0 ? 0 : code);
        assert_int_equal(attns_double_to_e2m1(nextafter(value, -10)), value == 0 ? 8 : code);
    }
    assert_int_equal(attns_double_to_e2m1(0.25), 0); /* ties go to the even code */
    assert_int_equal(attns_double_to_e2m1(0.75), 2);
    assert_int_equal(attns_double_to_e2m1(2.5), 4);
    assert_int_equal(attns_double_to_e2m1(3.5), 6);
    assert_int_equal(attns_double_to_e2m1(-5), 14);
    assert_int_equal(attns_double_to_e2m1(5.1), 7);
    assert_int_equal(attns_double_to_e2m1(1e300), 7);
    assert_int_equal(attns_double_to_e2m1(-(double)INFINITY), 15);
    assert_int_equal(attns_double_to_e2m1(copysign((double)NAN, 1)), 7);
}

static void test_e8m0_values(void **state) {
    (void)state;
    for (int code = 0; code < 255; code++)
        assert_same_double(attns_e8m0_to_double((uint8_t)code), pow(2, code - 127));
    assert_true(isnan(attns_e8m0_to_double(255)));
}

static void test_f16_values(void **state) {
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        const double value = attns_f16_to_double((uint16_t)code);
        if ((code & 0x7c00) != 0x7c00)
            assert_same_double(value, formula(code, 5, 10));
        else if (code & 0x3ff)
            assert_true(isnan(value));
        else
            assert_same_double(value, code & 0x8000 ? -(double)INFINITY : (double)INFINITY);
    }
    assert_same_double(attns_f16_to_double(0x7bff), 65504);
    assert_same_double(attns_f16_to_double(0x0001), 0x1p-24);
}

static void test_bf16_values(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        const uint32_t bits = code << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        assert_same_double(attns_bf16_to_double((uint16_t)code), (double)value);
    }
}

/* ---- Encoding -------------------------------------------------------------------------------------------------- */

typedef struct number_format {
    double (*decode)(unsigned code);
    unsigned (*encode)(double value);
    unsigned num_codes;
    unsigned sign;
    unsigned largest;  /* finite code */
    unsigned overflow; /* code of everything that rounds above it */
    double tie;        /* between the largest finite number and the next one, were there no bound */
} number_format;

static double decode_e4m3(unsigned code) {
    return attns_e4m3_to_double((uint8_t)code);
}
static unsigned encode_e4m3(double value) {
    return attns_double_to_e4m3(value);
}
static double decode_f16(unsigned code) {
    return attns_f16_to_double((uint16_t)code);
}
static unsigned encode_f16(double value) {
    return attns_double_to_f16(value);
}
static double decode_bf16(unsigned code) {
    return attns_bf16_to_double((uint16_t)code);
}
static unsigned encode_bf16(double value) {
    return attns_double_to_bf16(value);
}

static const number_format formats[] = {
    {decode_e4m3, encode_e4m3, 1 << 8, 0x80, 0x7e, 0x7e, 464},
    {decode_f16, encode_f16, 1 << 16, 0x8000, 0x7bff, 0x7c00, 65520},
    {decode_bf16, encode_bf16, 1 << 16, 0x8000, 0x7f7f, 0x7f80, 0x1.ffp127},
};
enum { NUM_FORMATS = sizeof formats / sizeof formats[0] };

static void test_round_trips(void **state) {
    (void)state;
    for (int f = 0; f < NUM_FORMATS; f++)
        for (unsigned code = 0; code < formats[f].num_codes; code++) {
            const double value = formats[f].decode(code);
            const unsigned again = formats[f].encode(value);
            if (isnan(value))
                assert_true(isnan(formats[f].decode(again)));
            else
                assert_int_equal(again, code);
        }
}

/* Between every two neighbours: the middle goes to the even code, anything off it to the nearer one. */
static void test_ties(void **state) {
    (void)state;
    for (int f = 0; f < NUM_FORMATS; f++)
        for (unsigned code = 0; code < formats[f].largest; code++) {
            const double low = formats[f].decode(code), high = formats[f].decode(code + 1);
            const double middle = low + (high - low) / 2;
            const unsigned even = code & 1 ? code + 1 : code;
            assert_int_equal(formats[f].encode(middle), even);
            assert_int_equal(formats[f].encode(nextafter(middle, low)), code);
            assert_int_equal(formats[f].encode(nextafter(middle, high)), code + 1);
            assert_int_equal(formats[f].encode(nextafter(low, high)), code);
            assert_int_equal(formats[f].encode(nextafter(high, low)), code + 1);
            assert_int_equal(formats[f].encode(-middle), formats[f].sign | even);
            assert_int_equal(formats[f].encode(-nextafter(middle, high)), formats[f].sign | (code + 1));
        }
}

static void test_overflow(void **state) {
    (void)state;
    for (int f = 0; f < NUM_FORMATS; f++) {
        const number_format *const format = &formats[f];
        assert_int_equal(format->encode(nextafter(format->tie, 0)), format->largest);
        assert_int_equal(format->encode(format->tie), format->overflow); /* to even is up, or saturation */
        assert_int_equal(format->encode(format->tie * 2), format->overflow);
        assert_int_equal(format->encode(1e300), format->overflow);
        assert_int_equal(format->encode((double)INFINITY), format->overflow);
        assert_int_equal(format->encode(-(double)INFINITY), format->sign | format->overflow);
    }
}

static void test_underflow(void **state) {
    (void)state;
    for (int f = 0; f < NUM_FORMATS; f++) {
        const double smallest = formats[f].decode(1);
        assert_int_equal(formats[f].encode(0.0), 0);
        assert_int_equal(formats[f].encode(-0.0), formats[f].sign);
        assert_int_equal(formats[f].encode(5e-324), 0);
        assert_int_equal(formats[f].encode(-5e-324), formats[f].sign);
        assert_int_equal(formats[f].encode(smallest / 2), 0);
        assert_int_equal(formats[f].encode(nextafter(smallest / 2, 1)), 1);
        assert_int_equal(formats[f].encode(smallest * 1.5), 2);
    }
}

static void test_nan(void **state) {
    (void)state;
    assert_int_equal(attns_double_to_e4m3((double)NAN) & 0x7f, 0x7f);
    assert_int_equal(attns_double_to_f16(copysign((double)NAN, 1)), 0x7e00);
    assert_int_equal(attns_double_to_f16(copysign((double)NAN, -1)), 0xfe00);
    assert_int_equal(attns_double_to_bf16(copysign((double)NAN, 1)), 0x7fc0);
    assert_int_equal(attns_double_to_bf16(copysign((double)NAN, -1)), 0xffc0);
}

/* The thread's rounding mode does not matter. */
static void test_rounding_mode(void **state) {
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        const unsigned tie = attns_double_to_f16(1 + 0x1p-11), above = attns_double_to_f16(1 + 0x1.8p-11),
                       below = attns_double_to_bf16(-1 - 0x1.8p-9), e4m3 = attns_double_to_e4m3(1 + 0x1.8p-4);
        fesetround(FE_TONEAREST);
        assert_int_equal(tie, 0x3c00);
        assert_int_equal(above, 0x3c01);
        assert_int_equal(below, 0xbf80);
        assert_int_equal(e4m3, 0x39);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e2m1_values), cmocka_unit_test(test_e8m0_values),   cmocka_unit_test(test_e4m3_values),
        cmocka_unit_test(test_f16_values),  cmocka_unit_test(test_bf16_values),   cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_ties),        cmocka_unit_test(test_overflow),      cmocka_unit_test(test_underflow),
        cmocka_unit_test(test_nan),         cmocka_unit_test(test_rounding_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
