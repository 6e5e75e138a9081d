/* SPDX-License-Identifier: MIT */
#include "tensor_sum.h"

#include <limits.h>
#include <math.h>

#include "exec_formats.h"

int tensor_exponent(double value, int smallest) {
    const int exponent = value == 0 || !isfinite(value) ? smallest : ilogb(value);
    return exponent > smallest ? exponent : smallest;
}

double tensor_sum(const tensor_term *terms, size_t count, int bits) {
    double sum = 0;
    int largest = INT_MIN;
    for (size_t i = 0; i < count; i++) {
        sum += terms[i].value;
        if (terms[i].value != 0 && terms[i].exponent > largest)
            largest = terms[i].exponent;
    }
    if (largest == INT_MIN || !isfinite(sum))
        return sum;
    const double units = ldexp(1, bits - largest);
    int64_t cut = 0; /* in units: at most 2^50 times a few dozen terms */
    for (size_t i = 0; i < count; i++)
        cut += (int64_t)(terms[i].value * units);
    return (double)cut / units;
}

uint32_t tensor_f32(double sum, int fraction) {
    const uint32_t bits = (uint32_t)exec_encode_double(&exec_format_f32, sum, EXEC_RZ, false);
    return isnan(sum) ? bits : bits & ~((UINT32_C(1) << (23 - fraction)) - 1);
}
