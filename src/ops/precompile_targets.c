/* SPDX-License-Identifier: MIT
 *
 * What a precompile call compiles for: the targets it names, those of this machine's devices, or those that go with
 * kernels given by name; and which NVRTC compiles for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/precompile.h"

#define MAX_NVRTC_ARCHS 64

typedef attns_precompile_targets target_list;

static attns_status reserve(target_list *list, size_t capacity) {
    list->items = calloc(capacity, sizeof *list->items);
    if (!list->items)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu targets", capacity);
    return ATTNS_OK;
}

static attns_precompile_target *find(const target_list *list, const char *arch) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].target.arch, arch) == 0)
            return &list->items[i];
    return NULL;
}

static void add(target_list *list, const attns_target *target, bool by_name) {
    attns_precompile_target *known = find(list, target->arch);
    if (known)
        known->by_name |= by_name;
    else
        list->items[list->count++] = (attns_precompile_target){.target = *target, .by_name = by_name};
}

/* The target that a call on such a device compiles for: the best one that NVRTC knows, or the best one if none is
 * known. */
static attns_status best_target(attns_context *ctx, const char *device, int compute_capability, attns_target *target) {
    attns_target candidates[ATTNS_MAX_TARGETS];
    size_t count = 0;
    attns_status status = attns_targets_of_device(compute_capability, candidates, &count);
    if (status != ATTNS_OK)
        return status;
    attns_nvrtc_set *set = NULL;
    const attns_nvrtc *nvrtc = NULL;
    attns_saved_error saved;
    attns_error_save(&saved);
    *target = candidates[0];
    if (attns_context_nvrtc(ctx, &set) == ATTNS_OK) {
        for (size_t i = 0; i < count; i++) {
            if (attns_nvrtc_for_arch(set, candidates[i].arch, &nvrtc) == ATTNS_OK) {
                *target = candidates[i];
                break;
            }
        }
    }
    attns_error_restore(&saved);
    if (strcmp(target->arch, candidates[0].arch) != 0)
        attns_log(&ctx->logger, ATTNS_LOG_WARNING, "device %s: kernels are compiled for %s, as NVRTC does not know %s",
                  device, target->arch, candidates[0].arch);
    return ATTNS_OK;
}

/* One target for each architecture that NVRTC knows, from 8.0 on, where there is a kernel. */
static attns_status targets_of_nvrtc(attns_context *ctx, target_list *list) {
    attns_nvrtc_set *set = NULL;
    attns_saved_error saved;
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status != ATTNS_OK)
        return attns_fail(status, "archs: all, but what NVRTC knows cannot be found out: %s", attns_last_error());
    attns_error_save(&saved);
    const char *rest = attns_nvrtc_archs(set);
    int number = 0, length = 0;
    for (; sscanf(rest, " sm_%d%n", &number, &length) == 1; rest += length) {
        attns_target target;
        char name[64];
        snprintf(name, sizeof name, "of compute capability %d.%d", number / 10, number % 10);
        if (number >= 80 && best_target(ctx, name, number, &target) == ATTNS_OK && !attns_target_is_ptx(&target))
            add(list, &target, false);
    }
    attns_error_restore(&saved);
    return ATTNS_OK;
}

static attns_status targets_from_names(attns_context *ctx, const attns_precompile_params *params, target_list *list) {
    attns_status status = reserve(list, params->num_archs + MAX_NVRTC_ARCHS);
    for (size_t i = 0; i < params->num_archs && status == ATTNS_OK; i++) {
        attns_target target;
        if (!params->archs[i])
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "archs: entry %zu is NULL", i);
        if (strcmp(params->archs[i], "all") == 0) {
            status = targets_of_nvrtc(ctx, list);
            continue;
        }
        status = attns_target_from_arch(params->archs[i], &target);
        if (status == ATTNS_OK)
            add(list, &target, true);
    }
    return status;
}

/* Devices that the library has no kernels for are passed over, as long as one is left. */
static attns_status targets_from_devices(attns_context *ctx, target_list *list) {
    const char *advice = "archs: not given, and this machine's devices cannot be used as the default "
                         "(name the targets, e.g. \"sm_90a\")";
    attns_info info;
    attns_status status = attns_get_info(ctx, &info);
    if (status != ATTNS_OK)
        return status;
    if (info.libcuda_error)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: %s", advice, info.libcuda_error);
    if (info.num_devices == 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: there is no CUDA device", advice);
    status = reserve(list, (size_t)info.num_devices);
    attns_status last = ATTNS_OK;
    for (int i = 0; i < info.num_devices && status == ATTNS_OK; i++) {
        attns_device_info device;
        attns_target target;
        status = attns_get_device_info(ctx, i, &device);
        if (status != ATTNS_OK)
            break;
        last = best_target(ctx, device.name, device.compute_capability, &target);
        if (last != ATTNS_OK)
            attns_log(&ctx->logger, ATTNS_LOG_WARNING, "device %d, %s: %s", i, device.name, attns_last_error());
        else
            add(list, &target, false);
    }
    if (status == ATTNS_OK && list->count == 0)
        status = attns_fail(last, "%s: %s", advice, attns_last_error());
    return status;
}

/* Those that the kernels name; for kernels that name none those of `archs`, else the devices'. */
static attns_status targets_from_kernels(attns_context *ctx, const attns_precompile_params *params,
                                         const attns_precompile_kernels *kernels, target_list *list) {
    target_list general = {0};
    attns_status status = ATTNS_OK;
    bool all_named = true;
    for (size_t i = 0; i < kernels->num_named && all_named; i++)
        all_named = kernels->named[i].arch[0] != '\0';
    if (!all_named)
        status = params->archs ? targets_from_names(ctx, params, &general) : targets_from_devices(ctx, &general);
    if (status == ATTNS_OK)
        status = reserve(list, general.count + kernels->num_named);
    for (size_t i = 0; i < general.count && status == ATTNS_OK; i++)
        add(list, &general.items[i].target, general.items[i].by_name);
    list->general = list->count;
    for (size_t i = 0; i < kernels->num_named && status == ATTNS_OK; i++) {
        const char *arch = kernels->named[i].arch;
        attns_target target;
        if (arch[0] == '\0' || find(list, arch))
            continue;
        status = attns_target_from_arch(arch, &target);
        if (status == ATTNS_OK)
            add(list, &target, true);
    }
    free(general.items);
    return status;
}

/* The NVRTC version for each target. Without any NVRTC the cache may still hold everything, as in an image that was
 * built elsewhere; what it lacks then fails with NVRTC's own message. */
static attns_status find_builds(attns_context *ctx, target_list *list) {
    if (ctx->forbid_compile)
        return ATTNS_OK;
    attns_nvrtc_set *set = NULL;
    attns_saved_error saved;
    attns_error_save(&saved);
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status == ATTNS_ERROR_LIBRARY_NOT_FOUND) {
        attns_log(&ctx->logger, ATTNS_LOG_INFO, "no NVRTC, cached kernels are taken whatever compiled them: %s",
                  attns_last_error());
        attns_error_restore(&saved);
        return ATTNS_OK;
    }
    for (size_t i = 0; i < list->count && status == ATTNS_OK; i++) {
        const attns_nvrtc *nvrtc = NULL;
        status = attns_nvrtc_for_arch(set, list->items[i].target.arch, &nvrtc);
        if (status == ATTNS_OK)
            list->items[i].build = attns_nvrtc_build(nvrtc);
    }
    return status;
}

attns_status attns_precompile_targets_find(attns_context *ctx, const attns_precompile_params *params,
                                           const attns_precompile_kernels *kernels, attns_precompile_targets *targets) {
    *targets = (attns_precompile_targets){0};
    attns_status status = params->kernels ? targets_from_kernels(ctx, params, kernels, targets)
                          : params->archs ? targets_from_names(ctx, params, targets)
                                          : targets_from_devices(ctx, targets);
    return status == ATTNS_OK ? find_builds(ctx, targets) : status;
}
