/* SPDX-License-Identifier: MIT
 *
 * How tensor cores add products up, which is not specified.
 *
 * The default is the ideal unit, with exact products, sums in binary64 and one rounding to nearest per instruction, as
 * it has no error of its own to blame. With PTXSIM_TENSOR_BITS a narrow unit is modelled instead, to see whether a
 * kernel or a tolerance depends on it. It has been found on an H200 (tests/ptxsim/probes/rounding.c), whose every bit
 * it gives: products are aligned to the largest term as the sums of their factors' exponents say, before they are
 * normalised, and all terms, the accumulator among them, are cut there; the exact sum of what is left is cut to an f32,
 * or rounded to the nearest f16. `hopper` is what an H200 has:
 *
 *   mma, wgmma of f16, bf16, tf32   25 bits below the largest exponent (wgmma of tf32 has not been compared)
 *   wgmma of e4m3, e5m2             13; an f32 result keeps 13 bits of fraction
 *   mma of e4m3, e5m2               two products of f16, of K % 4 = 0, 1 and then of 2, 3; C is added last
 *
 * A number is so many bits for all types, in one step. */
#ifndef PTXSIM_TENSOR_SUM_H_
#define PTXSIM_TENSOR_SUM_H_

#include <stddef.h>
#include <stdint.h>

/* PTXSIM_TENSOR_BITS, or one of these. */
enum { TENSOR_EXACT = 0, TENSOR_HOPPER = -1, TENSOR_MIN_BITS = 8, TENSOR_MAX_BITS = 48 };

enum { TENSOR_HOPPER_BITS = 25, TENSOR_HOPPER_FP8_BITS = 13 };

/* A product or the accumulator. */
typedef struct tensor_term {
    double value;
    int exponent; /* of the accumulator, or the sum of the factors' */
} tensor_term;

/* Exponent of a factor or accumulator of a type whose normal numbers start at 2^smallest; that of its subnormals. */
int tensor_exponent(double value, int smallest);

/* The sum of the terms, each cut, towards zero, to a multiple of 2^-bits times 2 to the largest exponent of those that
 * are not zero. Sums with an infinity or a NaN are those of binary64. */
double tensor_sum(const tensor_term *terms, size_t count, int bits);

/* The f32 of a sum, cut to `fraction` of its 23 bits. */
uint32_t tensor_f32(double sum, int fraction);

#endif
