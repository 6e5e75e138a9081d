/* SPDX-License-Identifier: MIT
 *
 * What runs beside the threads of a CTA: asynchronous copies and wgmma, the mbarriers that they complete on, and the
 * shadow of shared memory (which bytes have been written, and by which proxy). Everything here belongs to one CTA and
 * is used by its host thread alone. */
#ifndef PTXSIM_ASYNC_H_
#define PTXSIM_ASYNC_H_

#include "race.h"
#include "sim.h"

#define SIM_MAX_WARPS        32 /* of a CTA */
#define SHADOW_UNINITIALISED 255

/* ---- Operations under way ---- */

typedef enum sim_async_kind {
    SIM_ASYNC_COPY, /* cp.async of the lanes of `mask`, each in its own group */
    SIM_ASYNC_BULK_LOAD,
    SIM_ASYNC_BULK_STORE, /* of one lane; first reads shared memory, then writes global memory */
    SIM_ASYNC_ARRIVAL,    /* cp.async.mbarrier.arrive */
    SIM_ASYNC_WGMMA,
    SIM_ASYNC_TCGEN05,  /* mma, cp, shift, ld, st, and commits (tmem.h) */
    SIM_ASYNC_NEIGHBOUR /* another CTA that holds tensor memory for a while (tmem.c) */
} sim_async_kind;

typedef enum sim_async_step {
    SIM_ASYNC_BLOCKED, /* must wait for something else */
    SIM_ASYNC_MOVED,   /* has made progress, goes on later */
    SIM_ASYNC_DONE     /* or has faulted: to be removed */
} sim_async_step;

/* Base of every operation; allocated with malloc, released with free once done. */
struct sim_async {
    struct sim_async *next;
    sim_async_kind kind;
    sim_warp *warp; /* that issued it */
    const ptx_instr *instr;
    int lane;                           /* for messages */
    uint32_t mask;                      /* lanes it belongs to */
    uint32_t group[SIM_LANES];          /* number of each lane's group */
    race_unit unit;                     /* as what its accesses are ordered */
    bool read_done;                     /* stores: shared memory has been read */
    race_done read;                     /* stores: that */
    unsigned delay;                     /* calls of sim_async_progress until it moves */
    size_t shared_offset, shared_bytes; /* the bytes of shared memory it fills, if they are one piece */
    bool (*fills)(const struct sim_async *op, size_t offset,
                  size_t size); /* whether it will fill some; NULL: see above */
    sim_async_step (*step)(sim_cta *cta, struct sim_async *op);
    void (*destroy)(struct sim_async *op); /* of what else it owns; or NULL */
};

/* Counters of a lane's groups: the number of the group now open, i.e. of commits so far. */
typedef enum sim_group_kind { SIM_GROUP_COPY, SIM_GROUP_BULK, SIM_GROUP_KINDS } sim_group_kind;

/* ---- mbarrier ---- */

/* An mbarrier object: the 8 bytes in shared memory hold `word`, a seal over this state, so that a barrier that was
 * never initialised, or was overwritten, is told apart. */
typedef struct sim_mbarrier {
    bool live;
    bool fenced;                /* its initialisation is visible to the async proxy */
    uint8_t writer;             /* warp that initialised it */
    uint32_t expected, pending; /* arrivals */
    int32_t tx;
    uint32_t phase;                  /* number of the phase under way; its lowest bit is the parity */
    race_clock *arrived, *completed; /* what arrivals release; what those of the last phase have */
    uint64_t word;
} sim_mbarrier;

/* Of all threads of the cluster, which is one CTA (exec_cluster.c). By warp, lanes as bits. */
typedef struct sim_cluster_barrier {
    uint32_t phase;
    uint32_t arrived[SIM_MAX_WARPS];           /* in this phase */
    uint32_t entered[SIM_MAX_WARPS];           /* have arrived, and not waited yet */
    uint32_t phases[SIM_MAX_WARPS][SIM_LANES]; /* in which they have arrived */
    race_clock *point, *completed;             /* what arrivals release; what those of the last phase have */
} sim_cluster_barrier;

struct sim_async_state {
    uint8_t *writer; /* per byte of shared memory: 1 + the warp whose ordinary store it holds, until that warp's proxy
                        fence. SHADOW_UNINITIALISED: a copy's, of global memory that nothing had written */
    size_t dirty_begin[SIM_MAX_WARPS], dirty_end[SIM_MAX_WARPS]; /* where each warp has such bytes */
    sim_mbarrier *mbarriers;                                     /* per 8 bytes of shared memory */
    size_t mbarriers_begin, mbarriers_end;                       /* indices ever used */
    sim_cluster_barrier cluster;
    uint32_t groups[SIM_GROUP_KINDS][SIM_MAX_WARPS][SIM_LANES];
    struct sim_warpgroup *warpgroups; /* exec_wgmma.c */
    struct tmem *tmem;                /* tmem.h; NULL until it is needed */
    struct sim_finished *finished;    /* bulk stores that are done and have not been waited for (async.c) */
    size_t num_finished, finished_capacity;
    /* Where shared memory was last read without having been written. */
    const ptx_instr *undefined_instr;
    uint64_t undefined_address; /* shared offset, or global */
    bool undefined_global;
    const char *undefined_why;
};

/* The state of the warp's CTA, made on first use. NULL after sim_fault (out of memory, or too many warps). */
struct sim_async_state *sim_async_state_of(sim_warp *warp, const ptx_instr *instr);

/* A zeroed operation of `size` bytes (>= sizeof(struct sim_async)) for the lanes of mask, not queued yet; NULL after
 * sim_fault. */
struct sim_async *sim_async_new(sim_warp *warp, const ptx_instr *instr, uint32_t mask, size_t size,
                                sim_async_kind kind);
/* The lane has waited for its bulk stores in groups below `limit` (`read_only`: until they have read their source). */
void sim_async_observe(sim_warp *warp, int lane, uint32_t limit, bool read_only);
/* Releases one that has not been queued. */
void sim_async_discard(struct sim_async *op);
/* Queues it, to move at a random time. */
void sim_async_queue(sim_cta *cta, struct sim_async *op);
/* Whether any queued operation of this lane with one of the kinds (bits 1 << sim_async_kind) in a group below `limit`
 * is not done (`read_only`: has not read its source). */
bool sim_async_outstanding(const sim_warp *warp, int lane, unsigned kinds, uint32_t limit, bool read_only);
/* Called when the last warp of a CTA has exited: false after sim_fault if copies into its shared memory, reads of it,
 * or products are still under way; else completes what is left. */
bool sim_async_exit(sim_cta *cta);

/* ---- Shadow of shared memory; offsets have been checked (shadow.c) ---- */

bool shadow_written(const sim_cta *cta, size_t offset, size_t size);
void shadow_set_written(sim_cta *cta, size_t offset, size_t size, bool written);
/* Whether a copy under way will fill some of these bytes. */
bool shadow_awaited(const sim_cta *cta, size_t offset, size_t size);
/* Written by ordinary stores of the warp (writes through the generic proxy), or by an asynchronous operation. */
bool shadow_store_generic(sim_warp *warp, const ptx_instr *instr, size_t offset, size_t size);
void shadow_store_async(sim_cta *cta, size_t offset, size_t size);
/* Whether the async proxy may read: 0, or 1 + the warp whose stores have not been made visible to it. */
int shadow_dirty(const sim_cta *cta, size_t offset, size_t size);
/* fence.proxy.async by the warp; `barriers_only`: fence.mbarrier_init. */
void shadow_proxy_fence(sim_warp *warp, bool barriers_only);
/* Checks for an operation that reads shared memory through the async proxy: written, and visible to it. */
bool shadow_check_async_read(sim_warp *warp, const ptx_instr *instr, int lane, size_t offset, size_t size);

/* Notes that the instruction has read undefined bytes, and says so for a message ("" if none has). */
void shadow_note_undefined(sim_warp *warp, const ptx_instr *instr, size_t offset, size_t size);
void shadow_note_global(sim_warp *warp, const ptx_instr *instr, uint64_t address);
/* A copy has filled these bytes with global memory that nothing had written. */
void shadow_set_uninitialised(sim_cta *cta, size_t offset, size_t size);
bool shadow_uninitialised(const sim_cta *cta, size_t offset, size_t size);
/* Same for bytes whose last write is not ordered before. */
void shadow_note_race(sim_warp *warp, const ptx_instr *instr, size_t offset);
void sim_undefined_note(const sim_cta *cta, char *text, size_t size);

/* ---- Bulk copies (exec_bulk.c), bound in exec_async.c ---- */

sim_result exec_bulk_load(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result exec_bulk_store(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result exec_bulk_local(sim_warp *warp, const ptx_instr *instr, uint32_t mask); /* within shared memory */
sim_result exec_bulk_prefetch(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result exec_tensor_load(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result exec_tensor_store(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result exec_tensor_prefetch(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
/* Whether the instruction reduces by an operation that there is for its type and the destination's space; for
 * cp.reduce. */
bool bulk_reduction_fits(const ptx_instr *instr);

/* ---- Used across files ---- */

/* Where a byte of a tile lies whose rows of 32, 64 or 128 bytes are swizzled (0: are not). */
static inline size_t sim_swizzle(size_t offset, unsigned bytes) {
    const size_t rows = bytes == 128 ? 7 : bytes == 64 ? 3 : bytes == 32 ? 1 : 0;
    return offset ^ (offset >> 7 & rows) << 4;
}

/* Whether a register's lanes hold something that may be used; the engine faults on undefined values that matter. */
void sim_note_defined(sim_warp *warp, int slot, uint32_t lanes, bool defined);
uint32_t sim_defined_lanes(const sim_warp *warp, int slot);

/* Shared memory offset of an address of the shared space or in its window. */
uint64_t sim_shared_offset(uint64_t address);
/* The operation's bytes have arrived on a barrier, or it arrives there itself; who waits for the phase then knows what
 * the operation has done. false after sim_fault. (exec_barrier.c) */
bool sim_mbarrier_complete_tx(struct sim_async *op, uint64_t address, uint32_t bytes);
bool sim_mbarrier_arrive_async(struct sim_async *op, int lane, uint64_t address, uint32_t count);
/* Whether there is a barrier, which asynchronous operations can see. false after sim_fault. */
bool sim_mbarrier_check(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address);
/* Arrives once for the lane when all its cp.async so far are done (cp.async.mbarrier.arrive). */
sim_result sim_mbarrier_arrive_after_copies(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
/* Describes the CTA's barriers, for a message about a deadlock. */
void sim_mbarrier_report(const sim_cta *cta, char *text, size_t size);
/* Releases a warpgroup array and every warp's wgmma state. (exec_wgmma.c) */
void sim_wgmma_free(sim_cta *cta);

#endif
