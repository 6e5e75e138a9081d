/* SPDX-License-Identifier: MIT
 *
 * The planners of the kernel families, for plan.c, and what they share. */
#ifndef ATTNS_PLAN_KERNELS_H_
#define ATTNS_PLAN_KERNELS_H_

#include "plan/plan.h"

/* plan->target is set; the rest is 0. */
attns_status attns_plan_fp8_sm90(const attns_problem *problem, attns_plan *plan);

/* Adds a placeholder and its value. */
void attns_plan_set(attns_plan *plan, const char *placeholder, const char *value);
void attns_plan_set_int(attns_plan *plan, const char *placeholder, int value);

#endif
