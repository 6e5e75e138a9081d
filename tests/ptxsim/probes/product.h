/* SPDX-License-Identifier: MIT
 *
 * The kernels of the probes of matrix products: one product for each warp (mma.sync) or CTA (wgmma), of whatever bytes
 * the input holds. */
#ifndef PTXSIM_PROBES_PRODUCT_H_
#define PTXSIM_PROBES_PRODUCT_H_

#include "element.h"
#include "probe.h"

typedef struct mma_form {
    const element_type *a, *b;
    const char *sum; /* "f32", "f16", "s32" */
    int k;
    const char *modifier; /* "" or ".satfinite" */
} mma_form;

/* 32-bit registers of a lane. */
int mma_a_words(const mma_form *f);
int mma_b_words(const mma_form *f);
int mma_c_words(const mma_form *f);

/* Input: for each thread A, B, C as registers; output: for each thread D. Four warps a CTA. Allocates both. */
void mma_kernel(probe *p, const mma_form *f, unsigned ctas);

typedef struct wgmma_form {
    const element_type *a, *b;
    bool half; /* the sums are f16 */
    int n;
    bool a_registers, negate_a, negate_b, transpose_a, transpose_b, overwrite; /* overwrite: scale-d is 0 */
} wgmma_form;

enum { WGMMA_THREADS = 128, WGMMA_TILE = 32768 };

int wgmma_k(const wgmma_form *f);
int wgmma_sums(const wgmma_form *f); /* registers of a thread */

/* What a CTA finds in the input: the tile (the same for all of them unless `tiles`), its descriptors, with addresses
 * from the start of the tile, then A's registers and C's for each thread. */
typedef struct wgmma_input {
    uint8_t *tile;
    uint64_t *descriptors; /* A, B */
    uint32_t *a, *c;       /* [thread][register] */
} wgmma_input;

void wgmma_kernel(probe *p, const wgmma_form *f, unsigned ctas, bool tiles);
wgmma_input wgmma_input_of(const probe *p, const wgmma_form *f, unsigned cta, bool tiles);

#endif
