/* SPDX-License-Identifier: MIT
 *
 * What kernels can be compiled for, and which of it a device runs.
 *
 * A device of compute capability X.Y runs, in the order in which they are tried:
 *
 *   sm_XYa        everything the chip has
 *   sm_XZf        what all chips of the family from X.Z on have, Z <= Y: one cubin for several chips. On 10.7 this is
 *                 what serves with an NVRTC older than 13.4, which does not know 107
 *   sm_XY         the features that later chips have too. Also for a chip that is in no row below, as a newer NVRTC may
 *                 know it: nothing is assumed of it but what every chip from 8.0 on has
 *   compute_UV    PTX of any earlier one, which the driver compiles: what serves on chips that neither this library nor
 *                 NVRTC has heard of
 *
 * The first one that NVRTC knows is compiled; the caches are searched before. Which code runs where: CUDA C++
 * Programming Guide, "Compute Capabilities" and "Application Compatibility"; PTX ISA, ".target". Binary code is not
 * taken from one minor revision to another, as that does not hold between discrete and embedded chips. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "plan/plan.h"

#define KB 1024

/* Shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". A block can have all of
 * an SM's but 1 KB. It names no sizes for 8.8, which gets the smallest there are, and 10.7 has at least those of 10.0.
 */
#define ROW(name, capability, kind, kilobytes, family)                                                                 \
    {                                                                                                                  \
        .arch = name, .compute_capability = capability, .suffix = kind, .shared_bytes_per_sm = (kilobytes)*KB,         \
        .shared_bytes_per_block = ((kilobytes)-1) * KB, .tuned = family                                                \
    }
#define SMALLEST 100
static const attns_target targets[] = {
    ROW("sm_80", 80, 0, 164, ATTNS_FAMILY_NONE),       ROW("sm_86", 86, 0, 100, ATTNS_FAMILY_NONE),
    ROW("sm_87", 87, 0, 164, ATTNS_FAMILY_NONE),       ROW("sm_88", 88, 0, SMALLEST, ATTNS_FAMILY_NONE),
    ROW("sm_89", 89, 0, 100, ATTNS_FAMILY_NONE),       ROW("sm_90", 90, 0, 228, ATTNS_FAMILY_NONE),
    ROW("sm_90a", 90, 'a', 228, ATTNS_FAMILY_SM90),    ROW("sm_100", 100, 0, 228, ATTNS_FAMILY_NONE),
    ROW("sm_100f", 100, 'f', 228, ATTNS_FAMILY_SM100), ROW("sm_100a", 100, 'a', 228, ATTNS_FAMILY_SM100),
    ROW("sm_103", 103, 0, 228, ATTNS_FAMILY_NONE),     ROW("sm_103f", 103, 'f', 228, ATTNS_FAMILY_SM100),
    ROW("sm_103a", 103, 'a', 228, ATTNS_FAMILY_SM100), ROW("sm_107", 107, 0, 228, ATTNS_FAMILY_NONE),
    ROW("sm_107f", 107, 'f', 228, ATTNS_FAMILY_SM100), ROW("sm_107a", 107, 'a', 228, ATTNS_FAMILY_SM100),
    ROW("sm_110", 110, 0, 228, ATTNS_FAMILY_NONE),     ROW("sm_110f", 110, 'f', 228, ATTNS_FAMILY_NONE),
    ROW("sm_110a", 110, 'a', 228, ATTNS_FAMILY_NONE),  ROW("sm_120", 120, 0, 100, ATTNS_FAMILY_NONE),
    ROW("sm_120f", 120, 'f', 100, ATTNS_FAMILY_NONE),  ROW("sm_120a", 120, 'a', 100, ATTNS_FAMILY_NONE),
    ROW("sm_121", 121, 0, 100, ATTNS_FAMILY_NONE),     ROW("sm_121f", 121, 'f', 100, ATTNS_FAMILY_NONE),
    ROW("sm_121a", 121, 'a', 100, ATTNS_FAMILY_NONE),
};
#define NUM_TARGETS (sizeof targets / sizeof targets[0])

/* "sm_90a, sm_100a": those with kernels. */
static const char *supported(char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < NUM_TARGETS && used < size; i++)
        if (attns_target_has_kernels(&targets[i]))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", targets[i].arch);
    return text;
}

/* A target of which nothing is known but that it comes after 8.0. */
static attns_target plain_target(const char *prefix, int compute_capability) {
    attns_target target = ROW("", compute_capability, 0, SMALLEST, ATTNS_FAMILY_NONE);
    snprintf(target.arch, sizeof target.arch, "%s_%d", prefix, compute_capability);
    return target;
}

bool attns_target_is_ptx(const attns_target *target) {
    return strncmp(target->arch, "compute_", 8) == 0;
}

/* ---- By name ---- */

static bool find_target(const char *arch, attns_target *target) {
    const bool ptx = strncmp(arch, "compute_", 8) == 0;
    for (size_t i = 0; i < NUM_TARGETS; i++) {
        if (ptx ? !targets[i].suffix && strcmp(arch + 8, targets[i].arch + 3) == 0
                : strcmp(arch, targets[i].arch) == 0) {
            *target = ptx ? plain_target("compute", targets[i].compute_capability) : targets[i];
            return true;
        }
    }
    return false;
}

attns_status attns_target_from_arch(const char *arch, attns_target *target) {
    char accepted[512];
    attns_target found;
    if (!arch)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "arch: is NULL, accepted: %s",
                          supported(accepted, sizeof accepted));
    if (!find_target(arch, &found) || !attns_target_has_kernels(&found))
        return attns_fail(ATTNS_ERROR_UNSUPPORTED_DEVICE, "arch: is %s, accepted: %s", arch,
                          supported(accepted, sizeof accepted));
    *target = found;
    return ATTNS_OK;
}

/* ---- By device ---- */

typedef struct target_list {
    attns_target *targets;
    size_t count;
} target_list;

static void add(target_list *list, const attns_target *target) {
    if (attns_target_has_kernels(target) && list->count < ATTNS_MAX_TARGETS)
        list->targets[list->count++] = *target;
}

attns_status attns_targets_of_device(int compute_capability, attns_target found[ATTNS_MAX_TARGETS], size_t *count) {
    target_list list = {.targets = found};
    bool is_known = false;
    for (size_t i = 0; i < NUM_TARGETS; i++) {
        is_known |= targets[i].compute_capability == compute_capability;
        if (targets[i].suffix == 'a' && targets[i].compute_capability == compute_capability)
            add(&list, &targets[i]);
    }
    for (size_t i = NUM_TARGETS; i-- > 0;)
        if (targets[i].suffix == 'f' && targets[i].compute_capability <= compute_capability &&
            targets[i].compute_capability / 10 == compute_capability / 10)
            add(&list, &targets[i]);
    for (size_t i = 0; i < NUM_TARGETS; i++)
        if (!targets[i].suffix && targets[i].compute_capability == compute_capability)
            add(&list, &targets[i]);
    if (!is_known && compute_capability > targets[0].compute_capability && compute_capability < 10000) {
        const attns_target guess = plain_target("sm", compute_capability);
        add(&list, &guess);
    }
    for (size_t i = NUM_TARGETS; i-- > 0;) {
        if (!targets[i].suffix && targets[i].compute_capability <= compute_capability) {
            const attns_target ptx = plain_target("compute", targets[i].compute_capability);
            add(&list, &ptx);
        }
    }
    *count = list.count;
    if (list.count)
        return ATTNS_OK;
    char accepted[512];
    return attns_fail(ATTNS_ERROR_UNSUPPORTED_DEVICE, "device: compute capability is %d.%d, accepted: that of %s",
                      compute_capability / 10, compute_capability % 10, supported(accepted, sizeof accepted));
}

attns_status attns_target_from_compute_capability(int compute_capability, attns_target *target) {
    attns_target found[ATTNS_MAX_TARGETS];
    size_t count = 0;
    const attns_status status = attns_targets_of_device(compute_capability, found, &count);
    if (status == ATTNS_OK)
        *target = found[0];
    return status;
}
