/* SPDX-License-Identifier: MIT
 *
 * Virtual memory management: reserved addresses, memory without addresses, and mapping one to the other. Memory lives
 * in anonymous files, so that it can be mapped in several places. */
#include "driver_address.h"
#include "driver_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

typedef struct reservation {
    CUdeviceptr start;
    size_t bytes;
    struct reservation *next;
} reservation;

typedef struct memory {
    CUmemGenericAllocationHandle handle;
    int file;
    size_t bytes;
    int users; /* mappings, and one for the handle until it is released */
    bool released;
    struct memory *next;
} memory;

typedef struct mapping {
    CUdeviceptr start;
    size_t bytes;
    memory *of;
    bool accessible, writable;
    struct mapping *next;
} mapping;

static reservation *reservations;
static memory *memories;
static mapping *mappings;

static void *host(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

static bool valid_prop(const CUmemAllocationProp *prop) {
    return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           prop->location.id == 0;
}

static memory *find_memory(CUmemGenericAllocationHandle handle) {
    memory *found = memories;
    while (found && (found->handle != handle || found->released))
        found = found->next;
    return found;
}

static void drop_user(memory *of) {
    if (--of->users > 0)
        return;
    memory **link = &memories;
    while (*link != of)
        link = &(*link)->next;
    *link = of->next;
    close(of->file);
    driver.allocated -= of->bytes;
    free(of);
}

static bool overlaps(CUdeviceptr a, size_t a_bytes, CUdeviceptr b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

/* ---- Entry points ---- */

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option) {
    (void)option; /* the minimum is also what is recommended */
    ENTER();
    if (!granularity || !valid_prop(prop))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *granularity = GRANULE;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
    (void)wanted; /* a hint, which may be ignored */
    ENTER();
    if (!address || !bytes || bytes % GRANULE || flags || (alignment & (alignment - 1)))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    reservation *added = calloc(1, sizeof *added);
    void *reserved = added ? address_reserve(bytes, alignment > GRANULE ? alignment : GRANULE) : NULL;
    if (!reserved) {
        free(added);
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    added->start = *address = (CUdeviceptr)(uintptr_t)reserved;
    added->bytes = bytes;
    added->next = reservations;
    reservations = added;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    ENTER();
    reservation **link = &reservations;
    while (*link && ((*link)->start != address || (*link)->bytes != bytes))
        link = &(*link)->next;
    if (!*link)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    for (const mapping *m = mappings; m; m = m->next)
        if (overlaps(m->start, m->bytes, address, bytes))
            LEAVE(CUDA_ERROR_INVALID_VALUE);
    reservation *freed = *link;
    *link = freed->next;
    munmap(host(address), bytes);
    free(freed);
    LEAVE(CUDA_SUCCESS);
}

/* An anonymous file of poison; -1 on failure. */
static int make_file(size_t bytes) {
    int file = memfd_create("ptxsim", MFD_CLOEXEC);
    if (file < 0)
        return -1;
    if (ftruncate(file, (off_t)bytes) == 0) {
        void *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (view != MAP_FAILED) {
            memset(view, MEMORY_POISON, bytes);
            munmap(view, bytes);
            return file;
        }
    }
    close(file);
    return -1;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                             unsigned long long flags) {
    ENTER();
    if (!handle || !bytes || bytes % GRANULE || flags || !valid_prop(prop))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_check_unsafe();
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    if (bytes > driver.model.memory_bytes - driver.allocated)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    memory *added = calloc(1, sizeof *added);
    if (!added || (added->file = make_file(bytes)) < 0) {
        free(added);
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    added->handle = *handle = ++driver.last_id;
    added->bytes = bytes;
    added->users = 1;
    added->next = memories;
    memories = added;
    driver.allocated += bytes;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER();
    memory *found = find_memory(handle);
    if (!found)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    found->released = true;
    drop_user(found);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    ENTER();
    memory *of = find_memory(handle);
    if (!of || !bytes || bytes % GRANULE || address % GRANULE || offset != 0 || bytes > of->bytes || flags)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    const reservation *in = reservations;
    while (in && (address < in->start || address - in->start > in->bytes || in->bytes - (address - in->start) < bytes))
        in = in->next;
    if (!in)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    for (const mapping *m = mappings; m; m = m->next)
        if (overlaps(m->start, m->bytes, address, bytes))
            LEAVE(CUDA_ERROR_ALREADY_MAPPED);
    mapping *added = calloc(1, sizeof *added);
    if (!added || mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, of->file, 0) == MAP_FAILED) {
        free(added);
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    added->start = address;
    added->bytes = bytes;
    added->of = of;
    added->next = mappings;
    mappings = added;
    of->users++;
    LEAVE(CUDA_SUCCESS);
}

static void withdraw(mapping *m) {
    if (m->accessible)
        sim_range_remove(&driver.device, m->start);
    m->accessible = m->writable = false;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    ENTER();
    queue_drain_context(NULL);
    mapping **link = &mappings;
    while (*link && ((*link)->start != address || (*link)->bytes != bytes))
        link = &(*link)->next;
    if (!*link)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_check_unsafe();
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    mapping *dropped = *link;
    *link = dropped->next;
    withdraw(dropped);
    mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    drop_user(dropped->of);
    free(dropped);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    ENTER();
    if (!access || count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access->location.id != 0)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    size_t covered = 0;
    for (const mapping *m = mappings; m; m = m->next)
        if (m->start >= address && m->start - address <= bytes && bytes - (m->start - address) >= m->bytes)
            covered += m->bytes;
    if (!bytes || covered != bytes)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    bool readable = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (mapping *m = mappings; m; m = m->next) {
        if (!overlaps(m->start, m->bytes, address, bytes))
            continue;
        withdraw(m);
        /* The host side stays readable for copies; what a kernel may do is checked against the range. */
        if (mprotect(host(m->start), m->bytes, readable ? PROT_READ | PROT_WRITE : PROT_NONE) != 0 ||
            (readable && !sim_range_add(&driver.device, m->start, m->bytes, writable)))
            LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
        m->accessible = readable;
        m->writable = writable;
    }
    LEAVE(CUDA_SUCCESS);
}
