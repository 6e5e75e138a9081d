/* SPDX-License-Identifier: MIT
 *
 * Inside the race detector: race.c (clocks, units, meeting points), race_memory.c (memories of a CTA), race_global.c
 * (global memory), race_atomic.c (fences and strong accesses), race_report.c. */
#ifndef PTXSIM_RACE_STATE_H_
#define PTXSIM_RACE_STATE_H_

#include <pthread.h>

#include "race.h"

enum {
    RACE_UNITS = 128,       /* places for units; taken in turn, so that a reused one has long been forgotten */
    RACE_PAGE_SHIFT = 10,   /* shadow memory comes in pages of 1 KiB */
    RACE_COARSE = 4,        /* log2 of the bytes that a cell stands for at first; a page is refined to 2 and 0 when an
                             * access needs it */
    RACE_UNIT_WHO = 1 << 13 /* in race_reads: 1 << 13 plus the unit's number; below: a warp */
};

/* ---- Clocks ---- */

/* What a party knows of other CTAs, and what a location of global memory holds: an immutable list, in the launch's
 * memory, with one entry for each CTA. */
typedef struct race_foreign {
    const struct race_foreign *next;
    unsigned cta;
    bool device;          /* released at a scope beyond the CTA */
    const uint32_t *time; /* by place */
} race_foreign;

struct race_clock {
    unsigned users;
    race_clock *next_free, *next; /* every clock of the CTA is in a list */
    const race_foreign *foreign;
    uint32_t time[]; /* by place */
};

/* ---- Shadow ---- */

/* An access as kept: time (32 bits), place or who (14), kind (2: write, strong), instruction (16; all ones: unknown).
 */
typedef uint64_t race_entry;

static inline race_entry race_pack(uint32_t time, uint32_t who, unsigned kind, uint32_t instr) {
    return (uint64_t)time << 32 | (uint64_t)who << 18 | (uint64_t)(kind & 3) << 16 | instr;
}
static inline uint32_t race_time(race_entry e) {
    return (uint32_t)(e >> 32);
}
static inline uint32_t race_who(race_entry e) {
    return (uint32_t)(e >> 18) & 0x3fff;
}
static inline unsigned race_kind(race_entry e) {
    return (unsigned)(e >> 16) & 3;
}

/* Reads, and strong accesses of any kind, of lanes of one warp or of a unit. */
typedef struct race_reads {
    race_entry entry; /* who: warp or unit; 0: none */
    uint32_t lanes;   /* 1 for a unit */
    uint32_t next;    /* index of more, 0: none */
} race_reads;

typedef struct race_cell {
    race_entry write; /* the last one that is not strong; who is a place */
    race_reads reads; /* since then */
} race_cell;

typedef struct race_page {
    uint64_t generation; /* of the CTA it belongs to */
    unsigned shift;
    bool strong_writes; /* are among the reads of its cells; else reads need not look at them */
    race_cell *cells;
    size_t capacity;
} race_page;

struct race_memory {
    race_memory *next;
    struct sim_race *race;
    const char *name;
    size_t bytes, num_pages;
    race_page *pages;
};

/* ---- State of a CTA ---- */

struct sim_race {
    sim_cta *cta;
    struct race_launch *launch;
    uint64_t generation;      /* of CTAs, one after the other */
    uint32_t threads, places; /* threads, then units, then the copies of each thread, if the kernel has cp.async */
    bool has_copies;
    uint32_t grid_place; /* the last one: the launches before; a party that knows its time 1 has waited for them */
    uint32_t proxy_fences[RACE_PROXIES][32]; /* by warp: the time of the last one */
    uint32_t now;                            /* from 1 on */
    race_clock **lanes;
    race_clock *clocks, *free;
    race_memory shared, *more;
    race_reads *reads; /* pool of race_reads.next; index 0 is not used */
    uint32_t num_reads, reads_capacity, free_reads;
    uint32_t next_unit;
    bool unit_busy[RACE_UNITS];
    bool twins; /* lanes of one instruction write to the same bytes */
    /* Of each thread, made when the first fence is met. */
    struct race_pattern *patterns;
    struct race_spot *spots;    /* of shared memory, through which something was released */
    struct race_claims *claims; /* race_claim.h; NULL: there have not been any */
    struct global_page *last_page;
    uint64_t last_key;
};

/* What makes an access. */
typedef struct race_party {
    const race_clock *clock;
    uint32_t place, who, lanes; /* as kept in race_reads */
    uint32_t time;              /* of the access */
    uint32_t also, also_until;  /* a place that it knows up to a time, whatever the clock says (time 0: none) */
    sim_warp *warp;
    const ptx_instr *instr;
    int lane;
} race_party;

/* Whether the party knows what was done at a place up to a time. */
static inline bool race_knows(const race_party *party, uint32_t place, uint32_t time) {
    return party->clock->time[place] >= time || place == party->place ||
           (place == party->also && party->also_until >= time);
}

race_clock *race_clock_new(struct sim_race *race, const race_clock *from);
/* Adds what `from` knows to *to. */
void race_add_clock(struct sim_race *race, race_clock **to, const race_clock *from);
void race_patterns_reset(struct sim_race *race);
race_party race_unit_party(const struct sim_race *race, const struct sim_async *op);
race_party race_lane_party(const struct sim_race *race, sim_warp *warp, const ptx_instr *instr, int lane);
uint32_t race_instr_index(const sim_cta *cta, const ptx_instr *instr);
/* Adds foreign knowledge to a clock that is not shared yet. false: out of memory. */
bool race_add_foreign(struct sim_race *race, race_clock *clock, const race_foreign *foreign);

/* ---- State of a launch: global memory (race_global.c) ---- */

struct race_launch *race_launch_new(const ptx_function *function);
/* Memory that lasts until the launch's end; zeroed. NULL: out of memory. */
void *race_launch_alloc(struct race_launch *launch, size_t bytes);

/* ---- Of a CTA ---- */

/* For CTAs of the launch, one after the other, on one host thread; NULL: out of memory. race_state_reset before each.
 */
struct sim_race *race_state_new(const sim_launch *launch, int num_warps, size_t shared_bytes);
void race_state_reset(struct sim_race *race, sim_cta *cta);
void race_state_free(struct sim_race *race);
void race_memory_reset(struct sim_race *race);
void race_memory_destroy(race_memory *memory);
bool race_memory_init(race_memory *memory, struct sim_race *race, const char *name, size_t bytes);

/* ---- Reports (race_report.c) ---- */

/* Says that the party's access races with the one kept; `lane`: of the reads kept, one that it does not know. `other`:
 * the CTA of the earlier access. Returns false. */
bool race_fault(const race_party *party, const char *memory, uint64_t address, size_t size, unsigned kind,
                race_entry earlier, bool is_place, int lane, unsigned cta);
/* Same for a read through another proxy, without a fence. */
bool race_proxy_fault(const race_party *party, uint64_t address, size_t size, unsigned kind, race_entry earlier);

#endif
