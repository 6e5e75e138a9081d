/* SPDX-License-Identifier: MIT
 *
 * Memory of a context: host memory with unmapped pages on either side, registered with the machine. Addresses count up
 * and are never given out twice, so that a use after free cannot hit a newer buffer. */
#include "driver_address.h"
#include "driver_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
/* What cuMemAlloc promises, and no more: a kernel that counts on page alignment shows. */
#define ALIGNMENT 256u

typedef struct allocation {
    CUdeviceptr start;
    size_t bytes;
    uint8_t *mapping; /* with its guard pages */
    size_t mapping_bytes;
    CUcontext ctx;
    bool host;
    struct allocation *next;
} allocation;

static allocation *allocations;

void *address_reserve(size_t bytes, size_t align) {
    static uint64_t next = ADDRESS_FIRST;
    for (;;) {
        uint64_t start = (next + align - 1) / align * align;
        if (bytes > ADDRESS_END - ADDRESS_FIRST || start > ADDRESS_END - bytes)
            return NULL;
        next = start + bytes;
        void *wanted = (void *)(uintptr_t)start; /* NOLINT: an address of our choice */
        void *mapped =
            mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (mapped == wanted)
            return mapped;
        if (mapped != MAP_FAILED)
            munmap(mapped, bytes); /* a kernel that takes the address as a hint */
        else if (next >= ADDRESS_END)
            return NULL;
    }
}

CUresult memory_add(CUcontext ctx, size_t bytes, bool host, CUdeviceptr *address) {
    size_t usable = bytes + ALIGNMENT;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > driver.model.memory_bytes - driver.allocated)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation *added = calloc(1, sizeof *added);
    if (!added)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t pages = (usable + PAGE - 1) / PAGE * PAGE;
    added->mapping_bytes = pages + 2 * PAGE;
    added->mapping = address_reserve(added->mapping_bytes, PAGE);
    if (!added->mapping || mprotect(added->mapping + PAGE, pages, PROT_READ | PROT_WRITE) != 0) {
        if (added->mapping)
            munmap(added->mapping, added->mapping_bytes);
        free(added);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    added->start = (CUdeviceptr)(uintptr_t)(added->mapping + PAGE + ALIGNMENT);
    added->bytes = bytes;
    added->ctx = ctx;
    added->host = host;
    memset(added->mapping + PAGE, MEMORY_POISON, pages);
    if (!sim_range_add(&driver.device, added->start, bytes, true)) {
        munmap(added->mapping, added->mapping_bytes);
        free(added);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!host)
        sim_range_track(&driver.device, added->start); /* without memory for it, nothing is reported */
    added->next = allocations;
    allocations = added;
    if (!host)
        driver.allocated += bytes;
    *address = added->start;
    return CUDA_SUCCESS;
}

/* Unlinks and frees *link. */
static void drop(allocation **link) {
    allocation *dropped = *link;
    *link = dropped->next;
    sim_range_remove(&driver.device, dropped->start);
    munmap(dropped->mapping, dropped->mapping_bytes);
    if (!dropped->host)
        driver.allocated -= dropped->bytes;
    free(dropped);
}

CUresult memory_remove(CUdeviceptr address, bool host) {
    allocation **link = &allocations;
    while (*link && ((*link)->start != address || (*link)->host != host))
        link = &(*link)->next;
    if (!*link)
        return CUDA_ERROR_INVALID_VALUE;
    drop(link);
    return CUDA_SUCCESS;
}

void memory_remove_all(CUcontext ctx) {
    allocation **link = &allocations;
    while (*link)
        if ((*link)->ctx == ctx)
            drop(link);
        else
            link = &(*link)->next;
}

/* ---- Entry points ---- */

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ENTER_CONTEXT();
    if (!address)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_check_unsafe();
    LEAVE(result == CUDA_SUCCESS ? memory_add(ctx, bytes, false, address) : result);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    ENTER_CONTEXT();
    if (!address)
        LEAVE(CUDA_SUCCESS);
    CUresult result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        queue_drain_context(ctx); /* it waits, as on a device */
    LEAVE(result == CUDA_SUCCESS ? memory_remove(address, false) : result);
}

CUresult CUDAAPI cuMemAllocHost(void **address, size_t bytes) {
    ENTER_CONTEXT();
    if (!address)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr made = 0;
    CUresult result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        result = memory_add(ctx, bytes, true, &made);
    if (result == CUDA_SUCCESS)
        *address = (void *)(uintptr_t)made;
    LEAVE(result);
}

CUresult CUDAAPI cuMemFreeHost(void *address) {
    ENTER_CONTEXT();
    CUresult result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        queue_drain_context(ctx);
    LEAVE(result == CUDA_SUCCESS ? memory_remove((CUdeviceptr)(uintptr_t)address, true) : result);
}

CUresult CUDAAPI cuMemGetInfo(size_t *available, size_t *total) {
    ENTER_CONTEXT();
    if (!available || !total)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *total = driver.model.memory_bytes;
    *available = driver.model.memory_bytes - driver.allocated;
    LEAVE(CUDA_SUCCESS);
}
