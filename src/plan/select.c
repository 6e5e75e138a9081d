/* SPDX-License-Identifier: MIT
 *
 * Which kernels there are, and which one serves a problem on a target. */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "plan/kernels.h"

/* Every kernel that exists. */
static const struct {
    attns_family family;
    attns_kernel_kind kind;
    attns_planner planner;
} kernels[] = {
    {ATTNS_FAMILY_SM90, ATTNS_KERNEL_FP8_LOGITS, attns_plan_fp8_sm90},
    {ATTNS_FAMILY_SM90, ATTNS_KERNEL_FP4_LOGITS, attns_plan_fp4_sm90},
    {ATTNS_FAMILY_SM100, ATTNS_KERNEL_FP8_LOGITS, attns_plan_sm100},
    {ATTNS_FAMILY_SM100, ATTNS_KERNEL_FP4_LOGITS, attns_plan_sm100},
    {ATTNS_FAMILY_PORTABLE, ATTNS_KERNEL_FP8_LOGITS, attns_plan_portable},
    {ATTNS_FAMILY_PORTABLE, ATTNS_KERNEL_FP4_LOGITS, attns_plan_portable},
    {ATTNS_FAMILY_NONE, ATTNS_KERNEL_INDEXER_BF16, attns_plan_indexer},
    {ATTNS_FAMILY_NONE, ATTNS_KERNEL_INDEXER_NVFP4, attns_plan_indexer},
};
#define NUM_KERNELS (sizeof kernels / sizeof kernels[0])

const char *attns_family_name(attns_family family) {
    switch (family) {
    case ATTNS_FAMILY_NONE:
        return "none";
    case ATTNS_FAMILY_SM90:
        return "sm90";
    case ATTNS_FAMILY_SM100:
        return "sm100";
    case ATTNS_FAMILY_PORTABLE:
        return "portable";
    }
    return "unknown";
}

bool attns_family_choice_parse(const char *text, attns_family_choice *choice) {
    static const char *const names[] = {"auto", "tuned", "portable"}; /* by attns_family_choice */
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *choice = (attns_family_choice)i;
            return true;
        }
    }
    return false;
}

attns_planner attns_planner_of(attns_family family, attns_kernel_kind kind) {
    for (size_t i = 0; i < NUM_KERNELS; i++)
        if (kernels[i].family == family && kernels[i].kind == kind)
            return kernels[i].planner;
    return NULL;
}

bool attns_target_has_kernels(const attns_target *target) {
    for (size_t i = 0; i < NUM_KERNELS; i++)
        if (kernels[i].family == target->tuned || kernels[i].family == ATTNS_FAMILY_PORTABLE ||
            kernels[i].family == ATTNS_FAMILY_NONE)
            return true;
    return false;
}

static const char *operation(attns_kernel_kind kind) {
    return kind == ATTNS_KERNEL_FP4_LOGITS ? "fp4_paged_mqa_logits" : "fp8_paged_mqa_logits";
}

attns_status attns_plan_select(const attns_problem *problem, const attns_target *target, attns_family_choice choice,
                               attns_selection *selection) {
    const attns_kernel_kind kind = (attns_kernel_kind)problem->kind;
    const bool tuned = target->tuned != ATTNS_FAMILY_NONE && attns_planner_of(target->tuned, kind) != NULL;
    const bool portable = attns_planner_of(ATTNS_FAMILY_PORTABLE, kind) != NULL;
    memset(selection, 0, sizeof *selection);
    if (attns_planner_of(ATTNS_FAMILY_NONE, kind)) {
        snprintf(selection->reason, sizeof selection->reason, "the same kernel on every target");
        return ATTNS_OK;
    }
    if (tuned && choice != ATTNS_CHOOSE_PORTABLE) {
        selection->family = target->tuned;
        snprintf(selection->reason, sizeof selection->reason, "tuned for %s", target->arch);
        return ATTNS_OK;
    }
    if (portable && choice != ATTNS_CHOOSE_TUNED) {
        selection->family = ATTNS_FAMILY_PORTABLE;
        if (choice == ATTNS_CHOOSE_PORTABLE)
            snprintf(selection->reason, sizeof selection->reason, "portable: asked for by kernel_family");
        else
            snprintf(selection->reason, sizeof selection->reason, "portable: no %s kernel is tuned for %s",
                     operation(kind), target->arch);
        return ATTNS_OK;
    }
    const attns_status status =
        attns_target_has_kernels(target) ? ATTNS_ERROR_UNSUPPORTED : ATTNS_ERROR_UNSUPPORTED_DEVICE;
    if (choice == ATTNS_CHOOSE_TUNED && portable)
        return attns_fail(status, "kernel_family: is tuned, but no %s kernel is tuned for %s, accepted: auto, portable",
                          operation(kind), target->arch);
    if (choice == ATTNS_CHOOSE_PORTABLE && tuned)
        return attns_fail(status,
                          "kernel_family: is portable, but there is no portable %s kernel, accepted: auto, tuned",
                          operation(kind));
    return attns_fail(status, "%s: there is no kernel for %s", operation(kind), target->arch);
}
