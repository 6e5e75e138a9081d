/* SPDX-License-Identifier: MIT
 *
 * The planners of the kernel families, for select.c, and what they share.
 *
 * To add a kernel: its template in templates/, its planner in src/plan/, a line in select.c's table, and its launch in
 * src/launch/. A planner is called with a problem that attns_problem_check has passed, and with a plan in which target
 * and family are set and everything else is 0. */
#ifndef ATTNS_PLAN_KERNELS_H_
#define ATTNS_PLAN_KERNELS_H_

#include "plan/plan.h"

typedef attns_status (*attns_planner)(const attns_problem *problem, attns_plan *plan);

attns_status attns_plan_fp8_sm90(const attns_problem *problem, attns_plan *plan);
attns_status attns_plan_fp4_sm90(const attns_problem *problem, attns_plan *plan);
attns_status attns_plan_indexer(const attns_problem *problem, attns_plan *plan);
attns_status attns_plan_sm100(const attns_problem *problem, attns_plan *plan); /* both variants */
attns_status attns_plan_portable(const attns_problem *problem, attns_plan *plan); /* of either variant */

/* The planner of a family for a kind of kernel; NULL if that kernel does not exist. */
attns_planner attns_planner_of(attns_family family, attns_kernel_kind kind);

/* Adds a placeholder and its value. */
void attns_plan_set(attns_plan *plan, const char *placeholder, const char *value);
void attns_plan_set_int(attns_plan *plan, const char *placeholder, int value);

/* The output type as templates/lib/output.cuh names it: "float", "Half" or "Bfloat16". */
const char *attns_output_type(int32_t dtype);

#endif
