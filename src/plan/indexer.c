/* SPDX-License-Identifier: MIT
 *
 * indexer_scores: one kernel for each format on every target. Group size, page strides and all counts are run-time. */
#include "plan/kernel_name.h"
#include "plan/kernels.h"

enum {
    CHUNK_TABLE_BYTES = 512 * 8, /* MAX_CHUNKS sums of templates/lib/schedule.cuh */
    MAX_WARPS = 16,              /* of a CTA */
    CTA_WARPS = 4,               /* of several that share an SM */
    MAX_CTAS = 4,
};

/* A unit of the ring as the template has it: 16 bytes of values or 4 bytes of scales of every lane, then a note. */
static int stage_bytes(bool nvfp4) {
    const int tiles = nvfp4 ? 2 : 1;
    const int row_bytes = nvfp4 ? 64 : 256;
    return tiles * 16 * row_bytes + (nvfp4 ? tiles * 2 * 32 * 4 : 0) + 16;
}

attns_status attns_plan_indexer(const attns_problem *problem, attns_plan *plan) {
    const bool nvfp4 = problem->kind == ATTNS_KERNEL_INDEXER_NVFP4;
    const int ring = nvfp4 ? 4 : 3; /* 16 warps with 2 to 3 units of 2 to 4 KB on their way cover memory's latency */
    attns_kernel_name_print(problem, false, plan->name, sizeof plan->name);
    plan->template_file = "indexer_scores.cu";
    plan->entry = "indexer_scores";
    plan->threads = 32 * MAX_WARPS;
    plan->tile_tokens = nvfp4 ? 32 : 16;
    /* What the plan calls a stage is the ring of one warp: shared memory is these and a fixed part. */
    plan->shared_fixed = CHUNK_TABLE_BYTES;
    plan->shared_per_stage = ring * stage_bytes(nvfp4);
    plan->min_ctas_per_sm = 1;
    plan->max_ctas_per_sm = MAX_CTAS;
    while (plan->max_ctas_per_sm > 1 && attns_plan_stages(plan, plan->max_ctas_per_sm) < CTA_WARPS)
        plan->max_ctas_per_sm--;
    plan->min_stages = 1;
    plan->max_stages = attns_plan_stages(plan, 1);
    if (plan->max_stages > MAX_WARPS)
        plan->max_stages = MAX_WARPS;
    attns_plan_set_int(plan, "NVFP4", nvfp4);
    attns_plan_set_int(plan, "STAGES", ring);
    attns_plan_set_int(plan, "MAX_WARPS", MAX_WARPS);
    return ATTNS_OK;
}
