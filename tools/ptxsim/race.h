/* SPDX-License-Identifier: MIT
 *
 * Order of memory accesses: a detector of data races by happens-before, with vector clocks (after FastTrack: Flanagan
 * and Freund, PLDI 2009).
 *
 * Accesses are made by parties: every thread is one, and so is every asynchronous operation while it is under way (a
 * unit). A CTA's time counts releases. A party's clock says up to which time it knows the accesses of each other party;
 * what it did itself it always knows. Two accesses to the same byte race if one of them writes, not both are strong,
 * and the later one's party does not know the earlier one.
 *
 * What makes order (PTX ISA, "Memory Consistency Model" and the instructions' own pages):
 *   bar.sync, bar.red, bar.arrive   from every lane that has arrived to every lane that waits
 *   bar.warp.sync                   between the lanes of its mask
 *   mbarrier                        from arrivals (unless .relaxed), and from units that complete on it, to lanes whose
 *                                   wait has seen the phase end (unless .relaxed)
 *   wait_group, wgmma.wait_group    from the units of the groups to the lanes that wait
 *   fences and strong accesses      release and acquire patterns, through one location, with regard to scopes
 *   issuing                         from the issuing lanes to the unit
 * and nothing else: shfl, vote, match, redux, elect and activemask exchange values, but the ISA promises no order of
 * memory for them; nor does a thread's exit.
 *
 * Everything of one CTA is used by its host thread alone. */
#ifndef PTXSIM_RACE_H_
#define PTXSIM_RACE_H_

#include "sim.h"

struct sim_async;

/* What a party knows. Immutable once it is shared, counted, and of its CTA's race state. */
typedef struct race_clock race_clock;

/* ---- Memories: accesses to them are checked --------------------------------------------------------------------- */

/* A memory of a CTA with addresses from 0 on: shared memory is one, others (tensor memory) may be added. */
typedef struct race_memory race_memory;

/* `name` is what reports call an address in it: "shared", "TMEM". NULL: no memory, or the detector is off; the checks
 * then do nothing. The race state owns it, until the CTA's end. */
race_memory *race_memory_new(sim_cta *cta, const char *name, size_t bytes);
race_memory *race_shared(sim_cta *cta);

enum {
    RACE_READ = 0,
    RACE_WRITE = 1,
    RACE_STRONG = 2, /* relaxed or stronger, or volatile; an atomic operation is RACE_WRITE | RACE_STRONG */
    RACE_DEVICE = 4, /* of those: the scope reaches beyond the CTA */
    RACE_CHECK = 8,  /* checked, but not kept: later accesses need not be ordered after it */
    RACE_ACQUIRE = 16,
    RACE_RELEASE = 32,
    RACE_READS = 64,    /* of strong ones: reads, too */
    RACE_QUIET = 128,   /* a race is no fault: the check returns false, and what is read is undefined */
    RACE_BY_COPY = 256, /* in global memory: through the async proxy */
    RACE_AS_MAP = 512   /* in global memory: as a tensor map */
};

/* One lane's access. false after sim_fault. */
bool race_access(race_memory *memory, sim_warp *warp, const ptx_instr *instr, int lane, size_t offset, size_t size,
                 unsigned kind);
/* Same in global memory, which all CTAs of the launch share (race_global.c). */
bool race_access_global(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, size_t size, unsigned kind);

/* Forgets a launch's accesses, which sim_run has left to its caller (sim_launch.keep_race). */
void race_launch_free(struct race_launch *launch);

/* ---- Units: asynchronous operations ----------------------------------------------------------------------------- */

/* struct sim_async has one. To add an asynchronous instruction:
 *   sim_async_new makes the unit, ordered after all that the lanes of its mask did and know. If other warps issue it,
 *   too: race_unit_issue for each (with mask 0 in sim_async_new); the unit then knows what all of them know.
 *   its step function calls race_unit_access (or _global) for what it reads and writes, when it does so.
 *   its completion is seen in one of these ways:
 *     on an mbarrier       sim_mbarrier_complete_tx, or race_unit_release and then an arrival as
 * sim_mbarrier_arrive_async by a group wait      race_finished in async.c does it for operations with a group: each
 * lane that waits for the group calls sim_async_observe any other wait       keep race_unit_finish's result and call
 * race_observe for the lanes that have waited. */
typedef struct race_unit {
    race_clock *clock; /* NULL: not issued yet, or the detector is off */
    uint32_t place;    /* in clocks */
} race_unit;

/* That a unit has made its accesses up to a time. */
typedef struct race_done {
    uint32_t place, time;
} race_done;

void race_unit_issue(race_unit *unit, sim_warp *warp, uint32_t lanes);
/* The unit itself waits for another's completion before its next accesses. */
void race_unit_observe(sim_cta *cta, race_unit *unit, race_done done);
bool race_unit_access(race_memory *memory, const struct sim_async *op, size_t offset, size_t size, unsigned kind);
bool race_unit_access_global(const struct sim_async *op, uint64_t address, size_t size, unsigned kind);
/* What the unit has accessed so far is complete: for race_observe. */
race_done race_unit_finish(sim_cta *cta, race_unit *unit);
/* The lanes have seen it. */
void race_observe(sim_warp *warp, uint32_t lanes, race_done done);
/* cp.async: what a thread copies belongs to a party beside it, whose time is the number of the group, from 1 on, and
 * which knows what its thread knew when it issued the copy. */
typedef struct race_copy_unit {
    race_clock *clock;
    uint32_t time, group;
} race_copy_unit;
void race_copy_issue(race_copy_unit *unit, sim_warp *warp, int lane, uint32_t group);
bool race_copy_access(race_memory *memory, const struct sim_async *op, int lane, race_copy_unit *unit, size_t offset,
                      size_t size);
void race_copy_free(sim_cta *cta, race_copy_unit *unit);
race_done race_copy_done(const sim_warp *warp, int lane, uint32_t groups);
/* Gives the clock back, when the operation is freed. */
void race_unit_free(sim_cta *cta, race_unit *unit);

/* ---- Synchronisation: meeting points ---------------------------------------------------------------------------- */

/* A meeting point (barrier, mbarrier, location of atomics) collects clocks in a variable, NULL at first. */

/* What the lanes did and know so far is added to *point. */
void race_release(sim_warp *warp, uint32_t lanes, race_clock **point);
void race_unit_release(sim_cta *cta, race_unit *unit, race_clock **point);
/* The lanes know from now on what is in `point` (NULL: nothing). */
void race_acquire(sim_warp *warp, uint32_t lanes, const race_clock *point);
/* *to becomes what `from` holds now. */
void race_copy(sim_cta *cta, race_clock **to, race_clock *from);
void race_drop(sim_cta *cta, race_clock **point);
/* bar.warp.sync. */
void race_meet(sim_warp *warp, uint32_t lanes);

/* griddepcontrol.wait: what the launches before have done is known. */
void race_grid_wait(sim_warp *warp, uint32_t lanes);

/* Proxy fences, of the whole warp: between ordinary accesses of global memory and those of asynchronous copies, or the
 * use as a tensor map. */
typedef enum race_proxy { RACE_PROXY_ASYNC, RACE_PROXY_TENSORMAP, RACE_PROXIES } race_proxy;
void race_proxy_fence(sim_warp *warp, race_proxy proxy);

/* Fences, and strong accesses, which they turn into releases and acquires (race_atomic.c). `device`: the scope reaches
 * beyond the CTA. */
void race_fence(sim_warp *warp, uint32_t lanes, bool device);
/* Around a strong access of a lane, to a shared offset or a global address. */
void race_strong_before(sim_warp *warp, int lane, bool shared, uint64_t address, unsigned kind);
void race_strong_after(sim_warp *warp, int lane, bool shared, uint64_t address, unsigned kind);

/* Whether lanes of the instruction that runs have written to the same bytes since this was asked last. */
bool race_twins(sim_cta *cta);

#endif
