/* SPDX-License-Identifier: MIT
 *
 * The shared state, the list of objects, initialisation and devices. */
#include "driver_state.h"

#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 13050 /* what TARGET_PTX_VERSION belongs to */

driver_state driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

void driver_lock(void) {
    pthread_mutex_lock(&driver.lock);
}

void driver_unlock(void) {
    pthread_mutex_unlock(&driver.lock);
}

void driver_say(const char *format, ...) {
    va_list list;
    char text[sizeof driver.last_fault];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "ptxsim: %s\n", text);
}

/* ---- Objects ---- */

void *object_add(object_kind kind, size_t size, CUcontext ctx) {
    object *added = calloc(1, size);
    if (!added)
        return NULL;
    added->kind = kind;
    added->id = ++driver.last_id;
    added->ctx = ctx;
    added->next = driver.objects;
    driver.objects = added;
    return added;
}

bool object_is(object_kind kind, const void *handle) {
    const object *at = handle ? driver.objects : NULL;
    while (at && (const void *)at != handle)
        at = at->next;
    return at && at->kind == kind;
}

void object_remove(void *handle) {
    object **link = &driver.objects;
    while (*link && (void *)*link != handle)
        link = &(*link)->next;
    if (*link)
        *link = (*link)->next;
    free(handle);
}

/* ---- Initialisation ---- */

CUresult CUDAAPI cuInit(unsigned flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    if (!driver.initialised) {
        char error[256];
        if (!device_choose(&driver.model, error, sizeof error)) {
            driver_say("%s", error);
            LEAVE(CUDA_ERROR_NO_DEVICE);
        }
        const char *seed = getenv("PTXSIM_SEED");
        driver.seed = seed && *seed ? strtoull(seed, NULL, 0) : 1;
        driver.random = driver.seed;
        const char *races = getenv("PTXSIM_RACES"), *on_fault = getenv("PTXSIM_ON_FAULT");
        const char *file = getenv("PTXSIM_REPORT");
        driver.ignore_races = races && strcmp(races, "0") == 0;
        driver.exit_on_fault = on_fault && strcmp(on_fault, "exit") == 0;
        snprintf(driver.report_file, sizeof driver.report_file, "%s", file ? file : "");
        sim_device_init(&driver.device);
        driver.initialised = true;
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/* ---- Devices ---- */

CUresult CUDAAPI cuDeviceGetCount(int *count) {
    ENTER();
    if (!count)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *count = 1;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    if (!device)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (ordinal != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    *device = 0;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int size, CUdevice device) {
    ENTER();
    if (!name || size <= 0)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)size, "%s", driver.model.name);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER();
    if (!value)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    if (!device_attribute(&driver.model, (int)attribute, value)) {
        driver_say("cuDeviceGetAttribute: attribute %d is not modelled", (int)attribute);
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER();
    if (!bytes)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    *bytes = driver.model.memory_bytes;
    LEAVE(CUDA_SUCCESS);
}
