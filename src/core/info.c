/* SPDX-License-Identifier: MIT
 *
 * What the library found on this machine. */
#include <string.h>

#include "core/context.h"
#include "plan/plan.h"

attns_status attns_get_info(attns_context *ctx, attns_info *info) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: NULL, a context is needed");
    if (!info)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "info: NULL, a struct to fill is needed");
    memset(info, 0, sizeof *info);

    attns_saved_error saved;
    attns_error_save(&saved);
    const attns_driver *driver = NULL;
    if (attns_context_driver(ctx, &driver) == ATTNS_OK) {
        info->libcuda = driver->path;
        info->driver_version = driver->version;
        if (driver->device_get_count(&info->num_devices) != CUDA_SUCCESS)
            info->num_devices = 0;
    } else {
        info->libcuda_error = ctx->info_driver_error ? ctx->info_driver_error : "out of memory";
    }
    attns_nvrtc_set *set = NULL;
    if (attns_context_nvrtc(ctx, &set) == ATTNS_OK) {
        const attns_nvrtc *newest = attns_nvrtc_newest(set);
        info->libnvrtc = attns_nvrtc_path(newest);
        info->nvrtc_version = attns_nvrtc_version(newest);
        info->nvrtc_archs = attns_nvrtc_archs(set);
    } else {
        info->libnvrtc_error = ctx->info_nvrtc_error ? ctx->info_nvrtc_error : "out of memory";
    }
    attns_error_restore(&saved);

    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    info->cache_dir = stats.dir;
    info->cache_readonly_dirs = stats.readonly_dirs;
    info->cache_bytes = stats.bytes;
    info->cache_entries = stats.entries;
    info->cache_max_bytes = stats.max_bytes;
    return ATTNS_OK;
}

attns_status attns_get_device_info(attns_context *ctx, int ordinal, attns_device_info *info) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: NULL, a context is needed");
    if (!info)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "info: NULL, a struct to fill is needed");
    const attns_driver *driver = NULL;
    attns_status status = attns_context_driver(ctx, &driver);
    if (status != ATTNS_OK)
        return status;
    int count = 0;
    status = attns_driver_check(driver, driver->device_get_count(&count), "cuDeviceGetCount");
    if (status != ATTNS_OK)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ordinal: %d, accepted: 0 to %d (devices present: %d)", ordinal,
                          count - 1, count);

    attns_device_info found = {0};
    CUdevice device = 0;
    size_t memory = 0;
    int major = 0, minor = 0;
    status = attns_driver_check(driver, driver->device_get(&device, ordinal), "cuDeviceGet");
    if (status == ATTNS_OK)
        status = attns_driver_check(driver, driver->device_get_name(found.name, (int)sizeof found.name, device),
                                    "cuDeviceGetName");
    if (status == ATTNS_OK)
        status = attns_driver_check(driver, driver->device_total_mem(&memory, device), "cuDeviceTotalMem");
    const struct {
        CUdevice_attribute attribute;
        int *value;
        const char *call;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)"},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MINOR)"},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &found.num_sms, "cuDeviceGetAttribute(MULTIPROCESSOR_COUNT)"},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &found.l2_bytes, "cuDeviceGetAttribute(L2_CACHE_SIZE)"},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &found.shared_bytes_per_sm,
         "cuDeviceGetAttribute(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && status == ATTNS_OK; i++)
        status = attns_driver_check(driver, driver->device_get_attribute(wanted[i].value, wanted[i].attribute, device),
                                    wanted[i].call);
    if (status != ATTNS_OK)
        return status;
    found.memory_bytes = memory;
    found.compute_capability = 10 * major + minor;

    attns_saved_error saved;
    attns_error_save(&saved);
    attns_target target;
    if (attns_target_from_compute_capability(found.compute_capability, &target) == ATTNS_OK)
        memcpy(found.arch, target.arch, sizeof found.arch);
    attns_error_restore(&saved);
    *info = found;
    return ATTNS_OK;
}
