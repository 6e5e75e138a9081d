/* SPDX-License-Identifier: MIT
 * Live ranges of device memory, and the checks of every access. */
#include "memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"

void sim_device_init(sim_device *device) {
    memset(device, 0, sizeof(*device));
    pthread_mutex_init(&device->lock, NULL);
}

void sim_device_destroy(sim_device *device) {
    for (size_t i = 0; i < device->num_ranges; i++)
        free(device->ranges[i].valid);
    free(device->ranges);
    pthread_mutex_destroy(&device->lock);
    memset(device, 0, sizeof(*device));
}

/* Index of the first range that starts above `address`. */
static size_t upper_bound(const sim_device *device, uint64_t address) {
    size_t low = 0;
    size_t high = device->num_ranges;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (device->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool add_locked(sim_device *device, uint64_t start, uint64_t size, bool writable) {
    if (size == 0 || start + size < start)
        return false;
    const size_t at = upper_bound(device, start);
    if (at > 0 && start - device->ranges[at - 1].start < device->ranges[at - 1].size)
        return false;
    if (at < device->num_ranges && device->ranges[at].start - start < size)
        return false;
    if (device->num_ranges == device->capacity) {
        const size_t capacity = device->capacity == 0 ? 64 : 2 * device->capacity;
        sim_range *ranges = realloc(device->ranges, capacity * sizeof(*ranges));
        if (ranges == NULL)
            return false;
        device->ranges = ranges;
        device->capacity = capacity;
    }
    memmove(device->ranges + at + 1, device->ranges + at, (device->num_ranges - at) * sizeof(*device->ranges));
    device->ranges[at] = (sim_range){.start = start, .size = size, .writable = writable};
    device->num_ranges++;
    return true;
}

bool sim_range_add(sim_device *device, uint64_t start, uint64_t size, bool writable) {
    pthread_mutex_lock(&device->lock);
    const bool ok = add_locked(device, start, size, writable);
    pthread_mutex_unlock(&device->lock);
    return ok;
}

bool sim_range_remove(sim_device *device, uint64_t start) {
    pthread_mutex_lock(&device->lock);
    const size_t after = upper_bound(device, start);
    const bool found = after > 0 && device->ranges[after - 1].start == start;
    if (found) {
        free(device->ranges[after - 1].valid);
        memmove(device->ranges + after - 1, device->ranges + after,
                (device->num_ranges - after) * sizeof(*device->ranges));
        device->num_ranges--;
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

bool sim_range_track(sim_device *device, uint64_t start) {
    pthread_mutex_lock(&device->lock);
    const size_t after = upper_bound(device, start);
    sim_range *range = after > 0 ? &device->ranges[after - 1] : NULL;
    const bool found = range != NULL && range->start == start;
    if (found && range->valid == NULL)
        range->valid = calloc(1, (size_t)(range->size / 8 + 1));
    const bool ok = found && range->valid != NULL;
    pthread_mutex_unlock(&device->lock);
    return ok;
}

/* The live range that holds all of these bytes, or NULL. */
static const sim_range *covering(const sim_device *device, uint64_t address, uint64_t size) {
    const size_t after = upper_bound(device, address);
    if (after == 0)
        return NULL;
    const sim_range *range = &device->ranges[after - 1];
    const uint64_t offset = address - range->start;
    return offset < range->size && size <= range->size - offset ? range : NULL;
}

bool sim_range_covers(const sim_device *device, uint64_t address, uint64_t size, bool write) {
    const sim_range *range = covering(device, address, size);
    return range != NULL && (!write || range->writable);
}

/* ---- What has been written -------------------------------------------------------------------------------------- */

/* The bits of byte `i` of a bit map that belong to [offset, offset + size). */
static uint8_t bits_of(uint64_t i, uint64_t offset, size_t size) {
    unsigned bits = 0xff;
    if (i == offset / 8)
        bits &= 0xffu << offset % 8;
    if (i == (offset + size - 1) / 8)
        bits &= 0xffu >> (7 - (offset + size - 1) % 8);
    return (uint8_t)bits;
}

static bool range_valid(const sim_range *range, uint64_t address, size_t size) {
    const uint64_t offset = address - range->start;
    if (range->valid == NULL || size == 0)
        return true;
    for (uint64_t i = offset / 8; i <= (offset + size - 1) / 8; i++) {
        const uint8_t bits = bits_of(i, offset, size);
        if ((__atomic_load_n(&range->valid[i], __ATOMIC_RELAXED) & bits) != bits)
            return false;
    }
    return true;
}

static void range_set_valid(const sim_range *range, uint64_t address, size_t size) {
    const uint64_t offset = address - range->start;
    if (range->valid == NULL || size == 0)
        return;
    for (uint64_t i = offset / 8; i <= (offset + size - 1) / 8; i++) {
        const uint8_t bits = bits_of(i, offset, size);
        if ((__atomic_load_n(&range->valid[i], __ATOMIC_RELAXED) & bits) != bits)
            __atomic_fetch_or(&range->valid[i], bits, __ATOMIC_RELAXED);
    }
}

bool sim_valid(const sim_device *device, uint64_t address, size_t size) {
    const sim_range *range = covering(device, address, size);
    return range == NULL || range_valid(range, address, size);
}

void sim_set_valid(const sim_device *device, uint64_t address, size_t size) {
    const sim_range *range = covering(device, address, size);
    if (range != NULL)
        range_set_valid(range, address, size);
}

void sim_copy_valid(const sim_device *device, uint64_t to, uint64_t from, size_t size) {
    const sim_range *source = covering(device, from, size), *target = covering(device, to, size);
    if (target == NULL || target->valid == NULL)
        return;
    const bool backwards = to > from; /* they may overlap */
    for (size_t n = 0; n < size; n++) {
        const size_t i = backwards ? size - 1 - n : n;
        const uint64_t at = to + i - target->start;
        if (source == NULL || range_valid(source, from + i, 1))
            target->valid[at / 8] = (uint8_t)(target->valid[at / 8] | 1u << at % 8);
        else
            target->valid[at / 8] = (uint8_t)(target->valid[at / 8] & ~(1u << at % 8));
    }
}

/* ---- Addresses ------------------------------------------------------------------------------------------------- */

static bool in_window(uint64_t address, uint64_t window) {
    return address - window < SIM_WINDOW_BYTES;
}

uint64_t sim_shared_offset(uint64_t address) {
    return in_window(address, SIM_SHARED_WINDOW) ? address - SIM_SHARED_WINDOW : address;
}

static const char *const SPACE_NAMES[] = {
    [PTX_GENERIC] = "generic", [PTX_GLOBAL] = "global", [PTX_CONST] = "const",
    [PTX_SHARED] = "shared",   [PTX_LOCAL] = "local",   [PTX_PARAM] = "param",
};

/* Turns an address of `space` into an offset into the memory of the space returned (global: the address itself). */
static ptx_space resolve(ptx_space space, uint64_t *address) {
    static const struct {
        ptx_space space;
        uint64_t window;
    } windows[] = {
        {PTX_SHARED, SIM_SHARED_WINDOW},
        {PTX_LOCAL, SIM_LOCAL_WINDOW},
        {PTX_PARAM, SIM_PARAM_WINDOW},
    };
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
        if ((space == PTX_GENERIC || space == windows[i].space) && in_window(*address, windows[i].window)) {
            *address -= windows[i].window;
            return windows[i].space;
        }
    }
    return space == PTX_GENERIC || space == PTX_CONST ? PTX_GLOBAL : space;
}

static bool inside(uint64_t offset, size_t size, size_t limit) {
    return offset <= limit && size <= limit - offset;
}

/* Says what is wrong with a global access that no range covers. */
static void fault_global(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, size_t size, bool write) {
    const sim_device *device = warp->cta->launch->device;
    const char *what = write ? "writes" : "reads";
    if (sim_range_covers(device, address, size, false)) {
        sim_fault(warp, instr, lane, "%s %zu bytes at %#" PRIx64 ", which is read-only", what, size, address);
        return;
    }
    const size_t after = upper_bound(device, address);
    if (after > 0) {
        const sim_range *below = &device->ranges[after - 1];
        const uint64_t end = below->start + below->size;
        if (address < end || address - end < UINT64_C(1) << 30) {
            sim_fault(warp, instr, lane,
                      "%s %zu bytes at %#" PRIx64 ", offset %" PRIu64 " in the allocation at %#" PRIx64 " of %" PRIu64
                      " bytes: out of bounds",
                      what, size, address, address - below->start, below->start, below->size);
            return;
        }
    }
    if (after < device->num_ranges && device->ranges[after].start - address < UINT64_C(1) << 30) {
        const sim_range *above = &device->ranges[after];
        sim_fault(warp, instr, lane,
                  "%s %zu bytes at %#" PRIx64 ", %" PRIu64 " bytes before the allocation at %#" PRIx64 " of %" PRIu64
                  " bytes: out of bounds",
                  what, size, address, above->start - address, above->start, above->size);
        return;
    }
    sim_fault(warp, instr, lane, "%s %zu bytes at %#" PRIx64 ", which is in no allocation%s", what, size, address,
              address < UINT64_C(1) << 20 ? " (a null pointer, or a shared address used as a generic one?)" : "");
}

/* `undefined`, if given, is set for a read of bytes that have not been written; else that is a fault. */
static uint8_t *access_shared(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t offset, size_t size,
                              unsigned kind, bool *undefined) {
    sim_cta *cta = warp->cta;
    const bool write = kind & RACE_WRITE;
    if (!inside(offset, size, cta->shared_bytes)) {
        sim_fault(warp, instr, lane, "%s %zu bytes at shared offset %#" PRIx64 ": the CTA has %zu bytes",
                  write ? "writes" : "reads", size, offset, cta->shared_bytes);
        return NULL;
    }
    if (!race_access(race_shared(cta), warp, instr, lane, offset, size, kind))
        return NULL;
    if (write)
        return shadow_store_generic(warp, instr, offset, size) ? cta->shared + offset : NULL;
    if (!shadow_written(cta, offset, size)) {
        if (undefined != NULL) {
            *undefined = true;
            shadow_note_undefined(warp, instr, offset, size);
            return cta->shared + offset;
        }
        sim_fault(warp, instr, lane, "reads %zu bytes at shared offset %#" PRIx64 ", which %s", size, offset,
                  shadow_awaited(cta, offset, size)
                      ? "an asynchronous copy under way is yet to fill: it has not been waited for"
                      : "have not been written");
        return NULL;
    }
    return cta->shared + offset;
}

static uint8_t *access_global(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                              size_t size, unsigned kind, bool *undefined) {
    const bool write = kind & RACE_WRITE;
    const sim_range *range = covering(warp->cta->launch->device, address, size);
    if (range == NULL || (write && (!range->writable || space == PTX_CONST))) {
        fault_global(warp, instr, lane, address, size, write);
        return NULL;
    }
    if (!race_access_global(warp, instr, lane, address, size, kind))
        return NULL;
    if (write) {
        range_set_valid(range, address, size);
    } else if (!range_valid(range, address, size)) {
        if (undefined == NULL) {
            sim_fault(warp, instr, lane, "reads %zu bytes at %#" PRIx64 ", which nothing has written", size, address);
            return NULL;
        }
        *undefined = true;
        shadow_note_global(warp, instr, address);
    }
    return (uint8_t *)(uintptr_t)address;
}

static uint8_t *access_local(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t offset, size_t size, bool write,
                             bool *undefined) {
    const size_t at = (size_t)lane * warp->cta->launch->function->local_bytes + (size_t)offset;
    uint8_t *written = warp->local_written + at;
    if (write) {
        memset(written, 1, size);
    } else if (memchr(written, 0, size) != NULL) {
        if (undefined == NULL) {
            sim_fault(warp, instr, lane, "reads %zu bytes at local offset %#" PRIx64 ", which have not been written",
                      size, offset);
            return NULL;
        }
        *undefined = true;
    }
    return warp->local + at;
}

static uint8_t *access_lane(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                            size_t size, unsigned kind, bool *undefined) {
    const bool write = kind & RACE_WRITE;
    const uint64_t given = address;
    const ptx_space found = resolve(space, &address);
    const sim_launch *launch = warp->cta->launch;
    if (address % size != 0) {
        sim_fault(warp, instr, lane, "%s address %#" PRIx64 " is not a multiple of %zu", SPACE_NAMES[found], given,
                  size);
        return NULL;
    }
    switch (found) {
    case PTX_SHARED:
        return access_shared(warp, instr, lane, address, size, kind, undefined);
    case PTX_LOCAL: {
        const size_t bytes = launch->function->local_bytes;
        if (inside(address, size, bytes))
            return access_local(warp, instr, lane, address, size, write, undefined);
        sim_fault(warp, instr, lane, "%s %zu bytes at local offset %#" PRIx64 ": a thread has %zu bytes",
                  write ? "writes" : "reads", size, address, bytes);
        return NULL;
    }
    case PTX_PARAM: {
        const size_t bytes = launch->function->param_bytes;
        if (inside(address, size, bytes) && !write)
            return (uint8_t *)(uintptr_t)(launch->params + address);
        sim_fault(warp, instr, lane, "%s %zu bytes at parameter offset %#" PRIx64 ": there are %zu bytes%s",
                  write ? "writes" : "reads", size, address, bytes, write ? ", read-only" : "");
        return NULL;
    }
    default:
        return access_global(warp, instr, lane, space, address, size, kind, undefined);
    }
}

uint8_t *sim_access(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address, size_t size,
                    bool write) {
    return access_lane(warp, instr, lane, space, address, size, write ? RACE_WRITE : RACE_READ, NULL);
}

uint8_t *sim_access_read(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                         size_t size, bool *undefined) {
    *undefined = false;
    return access_lane(warp, instr, lane, space, address, size, RACE_READ, undefined);
}

uint8_t *sim_access_kind(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                         size_t size, unsigned kind, bool *undefined) {
    if (undefined != NULL)
        *undefined = false;
    return access_lane(warp, instr, lane, space, address, size, kind, undefined);
}

void sim_strong_before(sim_warp *warp, int lane, ptx_space space, uint64_t address, unsigned kind) {
    const ptx_space found = resolve(space, &address);
    if (found == PTX_SHARED || found == PTX_GLOBAL)
        race_strong_before(warp, lane, found == PTX_SHARED, address, kind);
}

void sim_strong_after(sim_warp *warp, int lane, ptx_space space, uint64_t address, unsigned kind) {
    const ptx_space found = resolve(space, &address);
    if (found == PTX_SHARED || found == PTX_GLOBAL)
        race_strong_after(warp, lane, found == PTX_SHARED, address, kind);
}

uint8_t *sim_async_access(sim_warp *warp, const ptx_instr *instr, bool shared, uint64_t address, size_t size,
                          size_t align, bool write) {
    sim_cta *cta = warp->cta;
    const uint64_t given = address;
    const ptx_space found = resolve(shared ? PTX_SHARED : PTX_GENERIC, &address);
    if (align != 0 && address % align != 0) {
        sim_fault(warp, instr, -1, "%s address %#" PRIx64 " is not a multiple of %zu", SPACE_NAMES[found], given,
                  align);
        return NULL;
    }
    if (!shared && found == PTX_PARAM && !write && inside(address, size, cta->launch->function->param_bytes))
        return (uint8_t *)(uintptr_t)(cta->launch->params + address);
    if (shared != (found == PTX_SHARED) || found == PTX_LOCAL || found == PTX_PARAM) {
        sim_fault(warp, instr, -1, "%s address %#" PRIx64 " where a %s one is needed", SPACE_NAMES[found], given,
                  shared ? "shared" : "global");
        return NULL;
    }
    if (!shared) {
        if (sim_range_covers(cta->launch->device, address, size, write))
            return (uint8_t *)(uintptr_t)address;
        fault_global(warp, instr, -1, address, size, write);
        return NULL;
    }
    if (inside(address, size, cta->shared_bytes))
        return cta->shared + address;
    sim_fault(warp, instr, -1, "%s %zu bytes at shared offset %#" PRIx64 ": the CTA has %zu bytes",
              write ? "writes" : "reads", size, address, cta->shared_bytes);
    return NULL;
}
