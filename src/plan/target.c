/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "plan/plan.h"

/* Shared memory sizes: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". */
static const attns_target targets[] = {
    {.arch = "sm_90a", .compute_capability = 90, .shared_bytes_per_sm = 233472, .shared_bytes_per_block = 232448},
};
#define NUM_TARGETS (sizeof targets / sizeof targets[0])

/* "sm_90a, sm_100a" */
static const char *supported(char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < NUM_TARGETS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", targets[i].arch);
    return text;
}

attns_status attns_target_from_arch(const char *arch, attns_target *target) {
    char accepted[256];
    if (!arch)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "arch: is NULL, accepted: %s",
                          supported(accepted, sizeof accepted));
    for (size_t i = 0; i < NUM_TARGETS; i++) {
        if (strcmp(arch, targets[i].arch) == 0) {
            *target = targets[i];
            return ATTNS_OK;
        }
    }
    return attns_fail(ATTNS_ERROR_UNSUPPORTED_DEVICE, "arch: is %s, accepted: %s", arch,
                      supported(accepted, sizeof accepted));
}

attns_status attns_target_from_compute_capability(int compute_capability, attns_target *target) {
    for (size_t i = 0; i < NUM_TARGETS; i++) {
        if (compute_capability == targets[i].compute_capability) {
            *target = targets[i];
            return ATTNS_OK;
        }
    }
    char accepted[256];
    return attns_fail(ATTNS_ERROR_UNSUPPORTED_DEVICE, "device: compute capability is %d.%d, accepted: that of %s",
                      compute_capability / 10, compute_capability % 10, supported(accepted, sizeof accepted));
}
