/* SPDX-License-Identifier: MIT */
#include "tensor_sum.h"

#include <math.h>

double tensor_sum(const double *terms, size_t count, int bits) {
    double sum = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        sum += terms[i];
        largest = fmax(largest, fabs(terms[i]));
    }
    if (bits == 0 || largest == 0 || !isfinite(sum))
        return sum;
    const int unit = ilogb(largest) - bits;
    double cut = 0; /* in units: at most 2^49 times a few hundred terms */
    for (size_t i = 0; i < count; i++)
        cut += trunc(ldexp(terms[i], -unit));
    return ldexp(cut, unit);
}
