/* SPDX-License-Identifier: MIT
 *
 * The problems that kernels are made for: the one table that the argument checks and the planners read. Every kernel
 * family serves all of it. */
#ifndef ATTNS_PLAN_SUPPORTED_H_
#define ATTNS_PLAN_SUPPORTED_H_

#include "plan/plan.h"

#define ATTNS_MAX_NEXT_N 8

typedef enum attns_shape_field {
    ATTNS_SHAPE_NUM_HEADS,
    ATTNS_SHAPE_HEAD_DIM,
    ATTNS_SHAPE_BLOCK_SIZE,
    ATTNS_SHAPE_NEXT_N,
    ATTNS_NUM_SHAPE_FIELDS
} attns_shape_field;

typedef struct attns_shape_rule {
    const char *name; /* "num_heads" */
    int64_t min, max;
    int64_t step;         /* a power of two; 0: the values are powers of two themselves */
    const char *accepted; /* "8 to 128 in multiples of 8" */
} attns_shape_rule;

/* `kind` is that of a logits kernel. */
const attns_shape_rule *attns_shape_rule_of(attns_kernel_kind kind, attns_shape_field field);

/* Every call asks, hence inline. */
static inline bool attns_shape_accepts(const attns_shape_rule *rule, int64_t value) {
    return value >= rule->min && value <= rule->max && (value & ((rule->step ? rule->step : value) - 1)) == 0;
}

/* Every field of a logits problem. ATTNS_ERROR_UNSUPPORTED names the field, its value and what is accepted. */
attns_status attns_problem_check(const attns_problem *problem);

#endif
