/* SPDX-License-Identifier: MIT
 *
 * Tensor memory, and which tcgen05 operations are ordered before which (PTX ISA, "Tensor Memory" and "Memory
 * Consistency Model for 5th generation of TensorCore operations").
 *
 * Operations execute at random times. Every access to tensor memory is compared, when it is issued, with the last ones
 * of the same cells: unless the ISA promises that those come first, that is a fault, whichever order this run takes.
 * What a warp may rely on is kept as clocks: per warp, how many of its operations are known to be issued or done. All
 * lanes of a warp share one. */
#ifndef PTXSIM_TMEM_H_
#define PTXSIM_TMEM_H_

#include "async.h"

enum {
    TMEM_LANES = 128,
    TMEM_COLUMNS = 576, /* of the largest device; exclusive allocations alone reach beyond TMEM_SHARED_COLUMNS */
    TMEM_SHARED_COLUMNS = 512,
    TMEM_UNIT = 32,  /* columns */
    TMEM_GROUPS = 8, /* of 16 lanes: what accesses are compared in */
    TMEM_READERS = 4,
    TMEM_CLUSTER_BARRIER = 16 /* beside the CTA's 16 */
};

/* ---- Operations ---- */

typedef enum tmem_op_type {
    TMEM_NOTHING,
    TMEM_MMA,
    TMEM_CP,
    TMEM_CP_4X256B, /* the one form of cp that a shift comes before */
    TMEM_SHIFT,
    TMEM_LD,
    TMEM_ST
} tmem_op_type;

/* An operation issued by a warp. mma, cp and shift are numbered together, ld and st each for themselves, from 0. */
typedef struct tmem_op {
    uint8_t type; /* tmem_op_type */
    uint8_t warp;
    uint32_t number;
    uint32_t key; /* mma: accumulator and shape */
    const ptx_instr *instr;
} tmem_op;

/* Of each warp's operations, how many are known to: have been issued (mma, cp, shift), have completed (the same, ld,
 * st). */
typedef struct tmem_clock {
    uint32_t issued[SIM_MAX_WARPS], done[SIM_MAX_WARPS], loaded[SIM_MAX_WARPS], stored[SIM_MAX_WARPS];
} tmem_clock;

/* What every queued tcgen05 operation begins with; of a commit, op.type is TMEM_NOTHING. */
typedef struct tmem_pending {
    struct sim_async base;
    tmem_op op;
} tmem_pending;

typedef struct tmem_commit {
    tmem_pending base;
    uint64_t address;   /* of the mbarrier */
    tmem_clock clock;   /* what it tells */
    race_done finished; /* of the operations that it covers */
} tmem_commit;

/* ---- The memory of a CTA ---- */

/* Cells of one column in 16 lanes. */
typedef struct tmem_cells {
    tmem_op writer;
    tmem_op readers[TMEM_READERS]; /* since then; the newest of each warp */
} tmem_cells;

typedef struct tmem_allocation {
    int first, columns; /* columns 0: none */
    bool exclusive;
    int warp;
    const ptx_instr *instr;
} tmem_allocation;

typedef struct tmem_warp {
    uint32_t issued, loads, stores; /* operations so far */
    tmem_clock heard;               /* through barriers: orders what is not tcgen05 */
    tmem_clock known;               /* what of it fence::after_thread_sync has made good for tcgen05 */
    tmem_clock told;                /* of its own operations, what fence::before_thread_sync has covered */
    race_unit reader;               /* its mma and cp, as one reader of shared memory: commits cover them in order */
    race_done finished;             /* what is done of them */
    int *owned;                     /* slots of registers that loads own until wait::ld */
    size_t num_owned, owned_capacity;
} tmem_warp;

/* What has been told to an mbarrier: in the phase under way, and in phases that have ended. */
typedef struct tmem_mbarrier {
    size_t offset;
    tmem_clock arriving, ended;
} tmem_mbarrier;

typedef struct tmem {
    uint32_t cells[TMEM_COLUMNS][TMEM_LANES];
    uint32_t written[TMEM_COLUMNS][TMEM_LANES / 32]; /* bits: lanes with a defined value */
    tmem_cells accesses[TMEM_COLUMNS][TMEM_GROUPS];
    tmem_allocation allocations[TMEM_COLUMNS / TMEM_UNIT];
    int last_columns; /* of the last allocation, 0: none yet */
    bool relinquished;
    tmem_allocation neighbour; /* a CTA on the same multiprocessor, made up to try other addresses and waits */
    tmem_warp warps[SIM_MAX_WARPS];
    tmem_clock named[TMEM_CLUSTER_BARRIER + 1]; /* told to the CTA's barriers, and to the cluster's */
    tmem_mbarrier *mbarriers;
    size_t num_mbarriers, mbarrier_capacity;
} tmem;

/* The tensor memory of the warp's CTA, made on first use. NULL after sim_fault. */
tmem *tmem_of(sim_warp *warp, const ptx_instr *instr);
void tmem_free(sim_cta *cta);
/* false after sim_fault: the CTA exits with columns still allocated. */
bool tmem_check_exit(sim_cta *cta);

/* ---- Allocation (tmem.c) ---- */

/* The column, -1 if the warp must wait, -2 after sim_fault. */
int tmem_allocate(sim_warp *warp, const ptx_instr *instr, uint32_t columns, bool exclusive, int capacity);
bool tmem_release(sim_warp *warp, const ptx_instr *instr, uint32_t address, uint32_t columns, bool exclusive);

/* ---- Accesses (tmem_order.c) ---- */

/* Columns [column, column + columns), groups of 16 lanes by bits. */
typedef struct tmem_area {
    uint32_t column, columns;
    unsigned groups;
} tmem_area;

/* The next operation of the warp. */
tmem_op tmem_issue(tmem *t, const sim_warp *warp, const ptx_instr *instr, tmem_op_type type, uint32_t key);
/* Whether the area is allocated, and everything before is ordered before the operation; notes the access. `what` for
 * messages: "the accumulator". false after sim_fault. */
bool tmem_access(sim_warp *warp, int lane, const tmem_op *op, const tmem_area *area, bool write, const char *what);
/* An operation on these columns whose end no warp has observed; NULL: none. */
const tmem_op *tmem_unobserved(const tmem *t, int first, int columns);
/* Whether two operations issued in this order execute in it, if their threads are ordered. */
bool tmem_pipelined(const tmem_op *first, const tmem_op *second);

/* ---- What warps know (tmem_order.c) ---- */

void tmem_fence_before(tmem *t, const sim_warp *warp);
void tmem_fence_after(tmem *t, const sim_warp *warp);
/* What a commit of the warp, now, tells its mbarrier. */
void tmem_commit_clock(const tmem *t, const sim_warp *warp, tmem_clock *clock);
/* Reads 16 bytes of shared memory for an mma or cp. false after sim_fault: a data race. */
bool tmem_read_shared(const tmem_pending *op, size_t offset);
/* An mma, cp or shift is done: commits under way that cover it take note. */
void tmem_finish(sim_cta *cta, const tmem_pending *op);
void tmem_tell_mbarrier(sim_cta *cta, const tmem_clock *clock, size_t offset);

/* Called by the barriers, also where there is no tensor memory: a warp arrives, a phase ends, a warp has seen it end;
 * the same for named barriers. */
void tmem_arrive(sim_warp *warp, size_t offset);
void tmem_phase_ended(sim_cta *cta, size_t offset);
void tmem_waited(sim_warp *warp, size_t offset);
void tmem_arrive_named(sim_warp *warp, int id);
void tmem_waited_named(sim_warp *warp, int id);

static inline tmem *tmem_if_any(const sim_cta *cta) {
    return cta->async_state != NULL ? cta->async_state->tmem : NULL;
}

#endif
