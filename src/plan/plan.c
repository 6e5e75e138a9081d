/* SPDX-License-Identifier: MIT */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "plan/kernel_name.h"
#include "plan/kernels.h"

const char *attns_dtype_name(attns_dtype dtype) {
    switch (dtype) {
    case ATTNS_DTYPE_F32:
        return "f32";
    case ATTNS_DTYPE_F16:
        return "f16";
    case ATTNS_DTYPE_BF16:
        return "bf16";
    case ATTNS_DTYPE_DEFAULT:
        return "default";
    }
    return "unknown";
}

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

/* One CTA that reads all lengths; the same on every architecture. */
static attns_status plan_schedule(attns_plan *plan) {
    plan->template_file = "schedule.cu";
    plan->entry = "paged_mqa_logits_schedule";
    plan->threads = 1024; /* as in the template */
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = 1;
    return ATTNS_OK;
}

attns_status attns_plan_make(const attns_problem *problem, const attns_target *target, attns_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->target = *target;
    attns_kernel_name_print(problem, plan->name, sizeof plan->name);
    switch (problem->kind) {
    case ATTNS_KERNEL_SCHEDULE:
        return plan_schedule(plan);
    case ATTNS_KERNEL_FP8_LOGITS:
        return attns_plan_fp8_sm90(problem, plan);
    }
    return attns_fail(ATTNS_ERROR_INTERNAL, "kernel kind %d is unknown", (int)problem->kind);
}
