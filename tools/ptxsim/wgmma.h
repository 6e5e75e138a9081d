/* SPDX-License-Identifier: MIT
 *
 * wgmma: what its parts share. exec_wgmma.c binds and orders the instructions, wgmma_product.c computes. */
#ifndef PTXSIM_WGMMA_H_
#define PTXSIM_WGMMA_H_

#include "async.h"

enum { WGMMA_M = 64, WGMMA_MAX_N = 256, WGMMA_MAX_K = 32, WGMMA_WARPS = 4, WGMMA_A_REGISTERS = 4 };

typedef enum wgmma_type { WGMMA_E4M3, WGMMA_E5M2, WGMMA_F16, WGMMA_BF16, WGMMA_TF32, WGMMA_S8, WGMMA_U8 } wgmma_type;

/* An mma_async as bound. */
typedef struct wgmma_shape {
    int n, k;
    int element_bytes; /* of A and B */
    wgmma_type a, b;
    bool half, whole; /* accumulates in f16, in s32, else in f32 */
    bool saturates;   /* s32 */
    bool a_in_registers;
    bool negate_a, negate_b;
    bool transpose_a, transpose_b; /* M or N contiguous instead of K; 16-bit types */
} wgmma_shape;

/* One product of a warpgroup. */
typedef struct wgmma_product {
    struct sim_async base;
    struct wgmma_product *next; /* of those that not all four warps have issued yet */
    uint64_t number;            /* in the warpgroup, from 0 */
    int first_warp;
    wgmma_shape shape;
    uint64_t a, b; /* descriptors */
    bool accumulate;
    bool chained;    /* onto accumulators that nobody has had since the product before wrote them */
    unsigned issued; /* bits of the warps */
    uint32_t a_registers[WGMMA_WARPS][WGMMA_A_REGISTERS][SIM_LANES];
    /* Lanes whose accumulators were undefined when the product was issued. */
    uint32_t undefined[WGMMA_WARPS][WGMMA_MAX_N / 2];
} wgmma_product;

static inline int wgmma_accumulators(const wgmma_shape *shape) {
    return shape->half ? shape->n / 4 : shape->n / 2;
}

/* Checks the operands in shared memory: false after sim_fault. A must have been written; rows (columns, transposed) of
 * B need not: the results that depend on them are undefined. */
bool wgmma_check_operands(const wgmma_product *product);
/* Reads the operands and adds the product to the accumulators, in one rounding to their type per call (tensor_sum.h).
 * false after sim_fault. */
bool wgmma_compute(const wgmma_product *product);

#endif
