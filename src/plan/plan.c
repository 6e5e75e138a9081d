/* SPDX-License-Identifier: MIT */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "plan/kernel_name.h"
#include "plan/kernels.h"
#include "plan/supported.h"

enum {
    MAX_STAGES = 32,
    RESERVED_BYTES = 1024, /* of shared memory, by the system for each CTA, on every target from sm_80 on */
};

/* ---- For the planners ---- */

void attns_plan_set(attns_plan *plan, const char *placeholder, const char *value) {
    attns_placeholder *const entry = &plan->placeholders[plan->num_placeholders++];
    entry->name = placeholder;
    snprintf(entry->value, sizeof entry->value, "%s", value);
}

void attns_plan_set_int(attns_plan *plan, const char *placeholder, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    attns_plan_set(plan, placeholder, text);
}

const char *attns_output_type(int32_t dtype) {
    return dtype == ATTNS_DTYPE_F32 ? "float" : dtype == ATTNS_DTYPE_F16 ? "Half" : "Bfloat16";
}

/* ---- Plans ---- */

int attns_plan_shared_bytes(const attns_plan *plan, int stages) {
    return plan->shared_fixed + stages * plan->shared_per_stage;
}

int attns_plan_stages(const attns_plan *plan, int ctas_per_sm) {
    int room = plan->target.shared_bytes_per_sm / ctas_per_sm - RESERVED_BYTES;
    if (room > plan->target.shared_bytes_per_block)
        room = plan->target.shared_bytes_per_block;
    const int stages = (room - plan->shared_fixed) / plan->shared_per_stage;
    const int limit = plan->stage_limit > 0 ? plan->stage_limit : MAX_STAGES;
    return stages < limit ? stages : limit;
}

int attns_plan_exclusive_bytes(const attns_plan *plan) {
    return plan->target.shared_bytes_per_sm / (plan->max_ctas_per_sm + 1) - RESERVED_BYTES + 1;
}

int attns_plan_most_shared_bytes(const attns_plan *plan) {
    const int bytes = attns_plan_shared_bytes(plan, plan->max_stages);
    const int exclusive = attns_plan_exclusive_bytes(plan);
    return plan->max_ctas_per_sm > plan->min_ctas_per_sm && exclusive > bytes ? exclusive : bytes;
}

/* One CTA that reads all lengths; the same on every architecture. */
static attns_status plan_schedule(const attns_problem *problem, attns_plan *plan) {
    attns_kernel_name_print(problem, false, plan->name, sizeof plan->name);
    plan->template_file = "schedule.cu";
    plan->entry = "paged_mqa_logits_schedule";
    plan->threads = 1024; /* as in the template */
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = 1;
    return ATTNS_OK;
}

static attns_status plan_logits(const attns_problem *problem, const attns_target *target, attns_family_choice choice,
                                attns_plan *plan) {
    attns_status status = attns_problem_check(problem);
    attns_selection selection;
    if (status == ATTNS_OK)
        status = attns_plan_select(problem, target, choice, &selection);
    if (status != ATTNS_OK)
        return status;
    plan->family = selection.family;
    attns_kernel_name_print(problem, plan->family == ATTNS_FAMILY_PORTABLE, plan->name, sizeof plan->name);
    status = attns_planner_of(selection.family, (attns_kernel_kind)problem->kind)(problem, plan);
    if (status == ATTNS_OK && problem->much_work && plan->much_tiles == 0)
        return attns_fail(ATTNS_ERROR_UNSUPPORTED,
                          "much_work: is 1, accepted: 0, as %s has one kernel for little and much work", target->arch);
    return status;
}

attns_status attns_plan_make(const attns_problem *problem, const attns_target *target, attns_family_choice choice,
                             attns_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->target = *target;
    switch (problem->kind) {
    case ATTNS_KERNEL_SCHEDULE:
        return plan_schedule(problem, plan);
    case ATTNS_KERNEL_FP8_LOGITS:
    case ATTNS_KERNEL_FP4_LOGITS:
        return plan_logits(problem, target, choice, plan);
    case ATTNS_KERNEL_INDEXER_BF16:
    case ATTNS_KERNEL_INDEXER_NVFP4:
        return attns_plan_indexer(problem, plan);
    }
    return attns_fail(ATTNS_ERROR_INTERNAL, "kernel kind %d is unknown", (int)problem->kind);
}
