/* SPDX-License-Identifier: MIT */
#include "exec_formats.h"

#include <math.h>

const exec_format exec_format_f16 = {"f16", 16, 11, -14, 0x7bff, 0x7fff, true, 0};
const exec_format exec_format_bf16 = {"bf16", 16, 8, -126, 0x7f7f, 0x7fff, true, 0};
const exec_format exec_format_f32 = {"f32", 32, 24, -126, 0x7f7fffff, EXEC_NAN_F32, true, 0};
const exec_format exec_format_f64 = {"f64", 64, 53, -1022, UINT64_C(0x7fefffffffffffff), UINT64_C(0x7fffffffffffffff),
                                     true,  0};
static const exec_format narrow_formats[] = {
    /* tf32 is an f32 whose lower 13 bits are not used. */
    {"tf32", 32, 11, -126, 0x3fbff, 0x3ffff, true, 13}, {"e4m3", 8, 4, -6, 0x7e, 0x7f, false, 0},
    {"e5m2", 8, 3, -14, 0x7b, 0x7f, true, 0},           {"e2m3", 6, 4, 0, 0x1f, 0x1f, false, 0},
    {"e3m2", 6, 3, -2, 0x1f, 0x1f, false, 0},           {"e2m1", 4, 2, 0, 0x7, 0x7, false, 0},
};

const exec_format *exec_find_format(const char *type) {
    static const exec_format *const wide[] = {&exec_format_f16, &exec_format_bf16, &exec_format_f32, &exec_format_f64};
    size_t length = strlen(type);
    if (length > 2 && !strcmp(type + length - 2, "x2"))
        length -= 2;
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
        if (strlen(wide[i]->name) == length && !memcmp(wide[i]->name, type, length))
            return wide[i];
    for (size_t i = 0; i < sizeof(narrow_formats) / sizeof(narrow_formats[0]); i++)
        if (strlen(narrow_formats[i].name) == length && !memcmp(narrow_formats[i].name, type, length))
            return &narrow_formats[i];
    return NULL;
}

double exec_decode(const exec_format *format, uint64_t code) {
    if (format->width == 64)
        return exec_double(code);
    if (format->width == 32)
        return (double)exec_float(code);
    const uint64_t top = UINT64_C(1) << (format->width - 1), magnitude = code & (top - 1);
    const int fraction_bits = format->precision - 1;
    const uint64_t hidden = UINT64_C(1) << fraction_bits;
    const int biased = (int)(magnitude >> fraction_bits);
    double value;
    if (magnitude > format->max)
        value = format->has_infinity && magnitude == format->max + 1 ? (double)INFINITY : (double)NAN;
    else if (biased == 0)
        value = ldexp((double)magnitude, format->min_exponent - fraction_bits);
    else
        value = ldexp((double)(hidden | (magnitude & (hidden - 1))), format->min_exponent + biased - 1 - fraction_bits);
    return code & top ? -value : value;
}

static bool rounds_up(uint64_t whole, uint64_t rest, uint64_t half, bool negative, exec_rounding rounding) {
    switch (rounding) {
    case EXEC_RN:
        return rest > half || (rest == half && (whole & 1));
    case EXEC_RNA:
        return rest >= half;
    case EXEC_RM:
        return negative && rest;
    case EXEC_RP:
        return !negative && rest;
    default:
        return false;
    }
}

uint64_t exec_encode(const exec_format *format, bool negative, uint64_t significand, int exponent,
                     exec_rounding rounding, bool saturate) {
    const uint64_t sign = negative ? UINT64_C(1) << (format->width - 1 - format->padding) : 0;
    if (significand == 0)
        return sign << format->padding;
    const int fraction_bits = format->precision - 1;
    const int smallest = format->min_exponent - fraction_bits; /* exponent of the subnormals' unit */
    int unit = exponent + 63 - __builtin_clzll(significand) - fraction_bits;
    if (unit < smallest)
        unit = smallest;
    const int dropped = unit - exponent;
    uint64_t whole;
    if (dropped <= 0) {
        whole = significand << -dropped;
    } else if (dropped > 64) {
        whole = rounds_up(0, 1, 2, negative, rounding); /* below half of the unit */
    } else {
        const uint64_t half = UINT64_C(1) << (dropped - 1);
        const uint64_t rest = significand & (half | (half - 1));
        whole = dropped == 64 ? 0 : significand >> dropped;
        whole += rounds_up(whole, rest, half, negative, rounding);
    }
    /* The hidden bit of a normal number, and a carry out of the fraction, add one to the exponent. */
    uint64_t code = ((uint64_t)(unit - smallest) << fraction_bits) + whole;
    if (code > format->max) {
        const bool stays =
            rounding == EXEC_RZ || (rounding == EXEC_RM && !negative) || (rounding == EXEC_RP && negative);
        code = saturate || stays || !format->has_infinity ? format->max : format->max + 1;
    }
    return (sign | code) << format->padding;
}

uint64_t exec_encode_double(const exec_format *format, double value, exec_rounding rounding, bool saturate) {
    const uint64_t bits = exec_double_bits(value), fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int biased = (int)(bits >> 52 & 0x7ff);
    const bool negative = bits >> 63;
    if (biased == 0x7ff && fraction)
        return format->nan << format->padding;
    if (biased == 0x7ff) {
        const uint64_t code = saturate || !format->has_infinity ? format->max : format->max + 1;
        return (code | (negative ? UINT64_C(1) << (format->width - 1 - format->padding) : 0)) << format->padding;
    }
    return exec_encode(format, negative, biased ? fraction | UINT64_C(1) << 52 : fraction,
                       biased ? biased - 1075 : -1074, rounding, saturate);
}

double exec_add_odd(double x, double y) {
    /* Knuth's two-sum: sum + error is exactly x + y (no overflow: the callers' numbers are far from it). */
    const double sum = x + y;
    const double part = sum - x;
    const double error = (x - (sum - part)) + (y - part);
    if (error == 0 || error != error || (exec_double_bits(sum) & 1))
        return sum;
    /* The sum lies on the other side of the exact value than its odd neighbour. */
    return nextafter(sum, error > 0 ? (double)INFINITY : -(double)INFINITY);
}
