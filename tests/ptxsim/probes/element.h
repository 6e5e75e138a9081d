/* SPDX-License-Identifier: MIT
 *
 * Elements of matrices: their types and codes. */
#ifndef PTXSIM_PROBES_ELEMENT_H_
#define PTXSIM_PROBES_ELEMENT_H_

#include <stddef.h>
#include <stdint.h>

#include "common/rng.h"

typedef struct element_type {
    const char *name;             /* as PTX has it */
    int bits, exponent, mantissa; /* exponent 0: an integer; a tf32 lies in the upper 19 of its 32 bits */
} element_type;

extern const element_type element_e4m3, element_e5m2, element_f16, element_bf16, element_tf32, element_f32, element_s8,
    element_u8;

/* The code of a value that the type can represent. */
uint32_t element_code(const element_type *type, double value);
void element_store(const element_type *type, void *array, size_t index, double value);

/* A random integer: with -4 to 4 (0 to 8 of u8), of which 32 products have sums that float16 holds. */
double element_small(struct rng *r, const element_type *type);
/* Any mantissa, and an exponent in [low, high]. */
double element_random(struct rng *r, const element_type *type, int low, int high);

#endif
