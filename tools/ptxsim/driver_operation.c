/* SPDX-License-Identifier: MIT
 *
 * Operations on a stream: checks that apply when they are queued, and running them. */
#include "driver_state.h"

#include <stdlib.h>
#include <string.h>

static void *host(uint64_t address) {
    return (void *)(uintptr_t)address;
}

/* Why a copy or fill cannot run, NULL if it can. */
static const char *range_defect(const operation *op) {
    const sim_device *device = &driver.device;
    if (op->kind == OPERATION_COPY && op->copy.bytes) {
        if (op->copy.to_device && !sim_range_covers(device, op->copy.to, op->copy.bytes, true))
            return "destination";
        if (op->copy.from_device && !sim_range_covers(device, op->copy.from, op->copy.bytes, false))
            return "source";
    }
    if (op->kind == OPERATION_SET && op->set.count &&
        !sim_range_covers(device, op->set.to, op->set.count * op->set.width, true))
        return "destination";
    return NULL;
}

static void describe(const operation *op, const char *defect, char *text, size_t size) {
    bool source = strcmp(defect, "source") == 0;
    uint64_t start = op->kind == OPERATION_SET ? op->set.to : source ? op->copy.from : op->copy.to;
    size_t bytes = op->kind == OPERATION_SET ? op->set.count * op->set.width : op->copy.bytes;
    snprintf(text, size, "%s: %s 0x%llx, %zu bytes, is not inside one live allocation",
             op->kind == OPERATION_SET ? "memset" : "memcpy", defect, (unsigned long long)start, bytes);
}

CUresult operation_check(const operation *op) {
    if (op->kind == OPERATION_SET && (op->set.count > SIZE_MAX / op->set.width || op->set.to % op->set.width != 0))
        return CUDA_ERROR_INVALID_VALUE;
    const char *defect = range_defect(op);
    if (!defect)
        return CUDA_SUCCESS;
    char text[256];
    describe(op, defect, text, sizeof text);
    driver_say("%s", text);
    return CUDA_ERROR_INVALID_VALUE;
}

static void set_memory(uint64_t to, unsigned value, size_t count, unsigned width) {
    if (width == 1) {
        memset(host(to), (int)value, count);
    } else if (width == 2) {
        uint16_t *at = host(to);
        for (size_t i = 0; i < count; i++)
            at[i] = (uint16_t)value;
    } else {
        uint32_t *at = host(to);
        for (size_t i = 0; i < count; i++)
            at[i] = value;
    }
}

bool operation_uses_pageable(const operation *op) {
    const sim_device *device = &driver.device; /* page-locked memory is registered there, too */
    return op->kind == OPERATION_COPY && op->copy.bytes > 0 &&
           (!sim_range_covers(device, op->copy.to, op->copy.bytes, true) ||
            !sim_range_covers(device, op->copy.from, op->copy.bytes, false));
}

void operation_run(CUstream stream, const operation *op) {
    CUcontext ctx = stream->base.ctx;
    if (op->kind == OPERATION_KERNEL) {
        kernel_run(stream, op);
        return;
    }
    queue_forget_kernels(stream); /* other work waits for the kernels before it */
    /* A replayed graph may hold addresses that have been freed since. */
    const char *defect = range_defect(op);
    if (defect) {
        char text[256];
        describe(op, defect, text, sizeof text);
        context_fault(ctx, text, NULL);
    } else if (op->kind == OPERATION_COPY) {
        memmove(host(op->copy.to), host(op->copy.from), op->copy.bytes);
        if (op->copy.to_device && op->copy.from_device)
            sim_copy_valid(&driver.device, op->copy.to, op->copy.from, op->copy.bytes);
        else if (op->copy.to_device)
            sim_set_valid(&driver.device, op->copy.to, op->copy.bytes);
    } else {
        set_memory(op->set.to, op->set.value, op->set.count, op->set.width);
        sim_set_valid(&driver.device, op->set.to, op->set.count * op->set.width);
    }
}

bool operation_copy(operation *to, const operation *from) {
    *to = *from;
    if (from->kind != OPERATION_KERNEL || !from->kernel.params)
        return true;
    size_t bytes = from->kernel.param_bytes;
    to->kernel.params = malloc(bytes ? bytes : 1);
    if (to->kernel.params)
        memcpy(to->kernel.params, from->kernel.params, bytes);
    return to->kernel.params != NULL;
}

void operation_free(operation *op) {
    if (op->kind != OPERATION_KERNEL)
        return;
    free(op->kernel.params);
    op->kernel.params = NULL;
}
