/* SPDX-License-Identifier: MIT
 *
 * Random cases for sweeps. Shapes (what a kernel is specialised for) and layouts (what a call brings along) are drawn
 * apart, so that many layouts can share few kernels. */
#ifndef ATTNS_TOOLS_COMMON_RANDOM_CASE_H_
#define ATTNS_TOOLS_COMMON_RANDOM_CASE_H_

#include "common/case.h"
#include "common/rng.h"

/* Sets H, D, block size, next_n and the dtypes to any supported combination. */
void fp8_random_shape(struct rng *r, struct fp8_case *c);

/* Sets everything else; keeps the tokens scored below about `max_tokens` (requests x length x next_n). Lengths include
 * those around 2048, 5,000 and, if the bound allows, 50,000. */
void fp8_random_layout(struct rng *r, struct fp8_case *c, int64_t max_tokens);

/* `count` cases over at most `num_shapes` shapes. Returns malloc'ed, NULL if memory is exhausted. */
struct fp8_case *fp8_random_cases(uint64_t seed, size_t count, size_t num_shapes, int64_t max_tokens);

#endif
