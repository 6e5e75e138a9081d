/* SPDX-License-Identifier: MIT
 *
 * Conversions between double and the narrow formats of the tensors. Pure functions; every decoding is exact, every
 * encoding rounds once, to nearest with ties to even, whatever the thread's rounding mode is. */
#ifndef ATTNS_REF_NUMBER_FORMATS_H_
#define ATTNS_REF_NUMBER_FORMATS_H_

#include <stdint.h>

/* float8_e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, 0x7f and 0xff are NaN, 448 is the largest.
 * Encoding saturates: a magnitude that rounds above 448, infinity included, becomes 448. */
double attns_e4m3_to_double(uint8_t code);
uint8_t attns_double_to_e4m3(double value);

/* float4_e2m1fn, the low 4 bits of `code`: 1 sign, 2 exponent (bias 1), 1 mantissa bit; 0, 0.5, 1, 1.5, 2, 3, 4, 6 and
 * their negatives, nothing else. Encoding saturates at 6; NaN, which the format lacks, becomes 6 too. (OCP
 * Microscaling Formats v1.0, 5.3.3.) */
double attns_e2m1_to_double(uint8_t code);
uint8_t attns_double_to_e2m1(double value);

/* float8_e8m0fnu, a scale: code e is 2^(e-127), 255 is NaN. (Likewise, 5.4.1.) */
double attns_e8m0_to_double(uint8_t code);

/* IEEE binary16. Encoding overflows to infinity; a NaN becomes a quiet NaN of the same sign. */
double attns_f16_to_double(uint16_t code);
uint16_t attns_double_to_f16(double value);

/* bfloat16: the upper half of binary32. Encoding as for binary16. */
double attns_bf16_to_double(uint16_t code);
uint16_t attns_double_to_bf16(double value);

#endif
