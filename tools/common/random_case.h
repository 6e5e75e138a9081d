/* SPDX-License-Identifier: MIT
 *
 * Random cases for sweeps. Shapes (what a kernel is specialised for) and layouts (what a call brings along) are drawn
 * apart, so that many layouts can share few kernels. */
#ifndef ATTNS_TOOLS_COMMON_RANDOM_CASE_H_
#define ATTNS_TOOLS_COMMON_RANDOM_CASE_H_

#include "common/case.h"
#include "common/rng.h"

/* Sets H, D, block size, next_n, the dtypes and sf_interleaved to any combination that c->variant has. */
void logits_random_shape(struct rng *r, struct logits_case *c);

/* Sets everything else; keeps the tokens scored below about `max_tokens` (requests x length x next_n). Lengths include
 * those around 2048, 5,000 and, if the bound allows, 50,000. */
void logits_random_layout(struct rng *r, struct logits_case *c, int64_t max_tokens);

/* `count` cases over at most `num_shapes` shapes. Returns malloc'ed, NULL if memory is exhausted. */
struct logits_case *logits_random_cases(attns_variant variant, uint64_t seed, size_t count, size_t num_shapes,
                                        int64_t max_tokens);

#endif
