/* SPDX-License-Identifier: MIT
 *
 * indexer_scores: one kernel for each format on every target. Group size, page strides and all counts are run-time. */
#include "plan/kernel_name.h"
#include "plan/kernels.h"

enum {
    CHUNK_TABLE_BYTES = 512 * 8,     /* MAX_CHUNKS sums of templates/lib/schedule.cuh */
    NOTES_BYTES = 32 * (16 + 3 * 4), /* of a warp: 32 units and 32 groups */
    MAX_WARPS = 20,                  /* of an SM; more have too few registers for the keys that they wait for */
    CTA_WARPS = 4,                   /* of a small CTA */
};

attns_status attns_plan_indexer(const attns_problem *problem, attns_plan *plan) {
    const bool nvfp4 = problem->kind == ATTNS_KERNEL_INDEXER_NVFP4;
    attns_kernel_name_print(problem, false, plan->name, sizeof plan->name);
    plan->template_file = "indexer_scores.cu";
    plan->entry = "indexer_scores";
    plan->threads = 32 * MAX_WARPS;
    plan->tile_tokens = nvfp4 ? 32 : 16;
    /* An SM has one CTA of all warps or several small ones. What the plan calls a stage is a warp. */
    plan->min_ctas_per_sm = 1;
    plan->max_stages = MAX_WARPS;
    plan->max_ctas_per_sm = MAX_WARPS / CTA_WARPS;
    plan->min_stages = CTA_WARPS;
    plan->shared_fixed = CHUNK_TABLE_BYTES;
    plan->shared_per_stage = NOTES_BYTES;
    attns_plan_set_int(plan, "NVFP4", nvfp4);
    attns_plan_set_int(plan, "MAX_WARPS", MAX_WARPS);
    return ATTNS_OK;
}
