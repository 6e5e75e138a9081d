/* SPDX-License-Identifier: MIT
 *
 * How tensor cores add products up. What they do is not specified: reports of measurements agree that the terms are
 * aligned to the largest one, cut there, and that the result is cut to the accumulator's type. The default here is the
 * ideal unit, with exact products, sums in binary64 and one rounding to nearest per instruction, as it has no error of
 * its own to blame. With PTXSIM_TENSOR_BITS the narrow unit is modelled instead, to see whether a kernel or a tolerance
 * depends on it. */
#ifndef PTXSIM_TENSOR_SUM_H_
#define PTXSIM_TENSOR_SUM_H_

#include <stddef.h>

enum { TENSOR_MIN_BITS = 8, TENSOR_MAX_BITS = 48 };

/* The sum of the terms, the accumulator among them. bits 0: in binary64, in the order given. Else every term is cut,
 * towards zero, to a multiple of 2^-bits times the power of two at or below the largest magnitude; the sum of what is
 * left is exact. Sums with an infinity or a NaN are those of binary64. */
double tensor_sum(const double *terms, size_t count, int bits);

#endif
