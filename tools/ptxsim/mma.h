/* SPDX-License-Identifier: MIT
 *
 * mma.sync: what its parts share. exec_mma.c binds and moves fragments, mma_product.c knows the types and computes. */
#ifndef PTXSIM_MMA_H_
#define PTXSIM_MMA_H_

#include "sim.h"

enum { MMA_M = 16, MMA_N = 8, MMA_MAX_K = 64, MMA_MAX_BLOCKS = 4 };

typedef enum mma_type {
    MMA_F16,
    MMA_BF16,
    MMA_TF32,
    MMA_E4M3,
    MMA_E5M2,
    MMA_E2M3,        /* bits 0 to 5 of a byte */
    MMA_E3M2,        /* the same */
    MMA_E2M1,        /* bits 2 to 5 of a byte */
    MMA_E2M1_PACKED, /* two in a byte, the first in the lower half */
    MMA_U8,
    MMA_S8,
    MMA_U4,
    MMA_S4,
    MMA_TYPES
} mma_type;

/* Bits from one element to the next in a register. */
int mma_type_bits(mma_type type);

/* The elements of one register in all lanes: element i of lane l goes to out[l / 4 * group + l % 4 * place + i * step].
 */
void mma_decode(mma_type type, const uint64_t *lanes, double *out, size_t group, size_t place, size_t step);

/* Scale factors: a power of two (ue8m0, 255 is NaN), or an e4m3 whose sign is ignored. */
double mma_scale(bool ue4m3, uint8_t code);

typedef struct mma_product {
    int k, blocks; /* K and how many scale factors there are along it; 1 without scales */
    bool scaled;
    int bits;                /* as in tensor_sum.h */
    mma_type a_type, b_type; /* needed with bits alone, and whether c are f16 */
    bool half;
    double a[MMA_M][MMA_MAX_K];
    double b[MMA_MAX_K][MMA_N];
    double a_scale[MMA_MAX_BLOCKS][MMA_M];
    double b_scale[MMA_MAX_BLOCKS][MMA_N];
    double c[MMA_M][MMA_N];
} mma_product;

/* c += a b, where a block's products are multiplied by both its scales. */
void mma_multiply(mma_product *product);

#endif
