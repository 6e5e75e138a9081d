/* SPDX-License-Identifier: MIT
 *
 * Device memory and access checks. A device pointer is the host address of memory mapped for it; a registry of live
 * ranges tells what a kernel may touch. */
#ifndef PTXSIM_MEMORY_H_
#define PTXSIM_MEMORY_H_

#include <pthread.h>

#include "sim.h"

typedef struct sim_range {
    uint64_t start, size;
    bool writable;
    uint8_t *valid; /* one bit a byte: has been written; NULL: all count as written */
} sim_range;

/* Sorted by start; guarded by the lock for changes, read without it while a launch runs (the driver shim keeps both
 * apart: launches run when streams are synchronised or in order, never beside an allocation). */
typedef struct sim_device {
    pthread_mutex_t lock;
    sim_range *ranges;
    size_t num_ranges, capacity;
} sim_device;

void sim_device_init(sim_device *device);
void sim_device_destroy(sim_device *device);
/* Adds or removes a live range (mapped by the caller). false: out of memory, overlap, or not there. */
bool sim_range_add(sim_device *device, uint64_t start, uint64_t size, bool writable);
/* From now on what is read of the range must have been written. false: out of memory, or not there. */
bool sim_range_track(sim_device *device, uint64_t start);
bool sim_range_remove(sim_device *device, uint64_t start);
/* Whether [address, address + size) lies in one live range. */
bool sim_range_covers(const sim_device *device, uint64_t address, uint64_t size, bool write);

/* Whether these bytes, which lie in one range, have been written; notes that they have. Several host threads may call
 * them. */
bool sim_valid(const sim_device *device, uint64_t address, size_t size);
void sim_set_valid(const sim_device *device, uint64_t address, size_t size);
/* For a copy on the device: the bytes at `to` are as valid as those at `from`. */
void sim_copy_valid(const sim_device *device, uint64_t to, uint64_t from, size_t size);

/* One lane's access. `space` GENERIC resolves the windows. Checks bounds, alignment (to size), races, and
 * that bytes read have been written. On failure calls sim_fault and returns NULL; else the host address of the bytes.
 */
uint8_t *sim_access(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address, size_t size,
                    bool write);
/* Same for a read whose result may be undefined: bytes that have not been written set *undefined and are no fault. */
uint8_t *sim_access_read(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                         size_t size, bool *undefined);
/* Same for an access of a kind (race.h): strong ones, and atomics, which read and write. `undefined` may be NULL. */
uint8_t *sim_access_kind(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                         size_t size, unsigned kind, bool *undefined);
/* Around a strong access, for the order that it makes. */
void sim_strong_before(sim_warp *warp, int lane, ptx_space space, uint64_t address, unsigned kind);
void sim_strong_after(sim_warp *warp, int lane, ptx_space space, uint64_t address, unsigned kind);
/* Same for an asynchronous operation, which has no lane: the address is global or, if `shared`, an offset into the
 * CTA's shared memory (window addresses are accepted). `align` 0: none. */
uint8_t *sim_async_access(sim_warp *warp, const ptx_instr *instr, bool shared, uint64_t address, size_t size,
                          size_t align, bool write);

#endif
