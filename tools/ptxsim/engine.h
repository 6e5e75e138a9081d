/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of the engine: engine.c (CTAs and host threads), schedule.c (lanes of a warp), program.c (what
 * the engine knows of each instruction beforehand), exec_control.c and exec_warp.c, report.c. */
#ifndef PTXSIM_ENGINE_H_
#define PTXSIM_ENGINE_H_

#include "sim.h"

#define SIM_BARRIERS           16
#define SIM_DEFAULT_STEP_LIMIT UINT64_C(2000000000)

/* ---- Instructions, prepared (program.c) ---- */

enum {
    SIM_STEP_MOVES_PC = 1,    /* exec may change next_pc, make lanes exit or block them */
    SIM_STEP_PROPAGATES = 2,  /* a computation: undefined inputs make the result undefined, which is no fault yet */
    SIM_STEP_ANY_DEFINED = 4, /* of those: one defined input is enough (and with false) */
    SIM_STEP_WAITS = 8,       /* mbarrier test_wait or try_wait: false and a retry mean "not yet" */
    SIM_STEP_EFFECT = 16,     /* others may notice it: memory, barriers, asynchronous operations */
    SIM_STEP_ASYNC = 32,      /* may touch registers that asynchronous operations own (wgmma) */
    SIM_STEP_SELECTS = 64     /* selp, whose result depends on the selected input alone */
};

typedef struct sim_step {
    const ptx_instr *instr;
    sim_exec exec;
    int guard; /* slot or -1 */
    bool guard_negated;
    uint8_t gather; /* ptx_gather */
    uint8_t flags;
    uint32_t first_slot; /* in sim_program.slots: reads, then reads not checked for being defined, then writes */
    uint16_t num_reads, num_unchecked, num_writes;
} sim_step;

typedef struct sim_program {
    sim_step *steps; /* num_steps */
    uint32_t num_steps;
    int *slots;
} sim_program;

/* false: out of memory. */
bool sim_program_init(sim_program *program, const ptx_function *function);
void sim_program_destroy(sim_program *program);

/* ---- Lanes of a warp (schedule.c) ---- */

typedef struct sim_schedule {
    const sim_program *program;
    uint32_t *written; /* per register slot: lanes that have a defined value in it. Results are noted as defined before
                        * exec, which may take lanes back. */
    uint32_t *tagged,
        *tags; /* per slot: lanes whose value has a claim, and these (race_claim.h); NULL: there are none */

    uint32_t group; /* lanes being run, all at group_pc; their warp->pc is stale meanwhile */
    uint32_t group_pc;
    uint32_t merge_pc; /* the next place above group_pc where other lanes stand; UINT32_MAX if none */
    uint32_t others;   /* live lanes that neither belong to the group nor are blocked */
    uint32_t parked;   /* stand at an instruction that needs lanes which are not there yet */
    uint32_t retried;  /* answered SIM_RETRY in this slice */
    uint32_t blocked;  /* wait at a CTA barrier, which frees them (exec_control.c) */
    int leader;        /* the lane whose group runs, or -1: the group with the smallest pc */
    unsigned turn;     /* instructions until the choice of the group is reconsidered */

    uint64_t since_wait; /* instructions since a wait last failed here */

    uint32_t barrier_waiting[SIM_BARRIERS]; /* lanes blocked at each barrier */
    uint32_t barrier_arrived[SIM_BARRIERS]; /* lanes that have arrived without waiting */
    uint32_t barrier_true[SIM_BARRIERS];    /* of the waiting ones: those with a true predicate (bar.red) */
} sim_schedule;

/* selp: whether the register, one of its inputs, matters for the lane. */
bool sim_selects(sim_warp *warp, const ptx_instr *instr, int lane, int slot);

/* What a slice did, added up over a CTA's slices. */
typedef struct sim_slice {
    unsigned executed; /* instructions that did something: neither retries nor waits for other lanes */
    bool effect;       /* one of them was noticeable to others */
} sim_slice;

/* Runs up to `budget` instructions of a warp. false: sim_fault has been called. */
bool sim_warp_slice(sim_warp *warp, unsigned budget, sim_slice *slice);

static inline uint32_t sim_live(const sim_warp *warp) {
    return warp->exists & ~warp->exited;
}

static inline bool sim_stopped(const sim_launch *launch) {
    return __atomic_load_n(&launch->stop, __ATOMIC_RELAXED);
}

/* ---- CTA barriers (exec_control.c) ---- */

/* Lanes have exited: barriers that waited for all lanes may be complete. */
sim_result sim_barriers_recheck(sim_warp *warp, const ptx_instr *instr);
/* Threads that have arrived at a barrier, and how many it waits for. */
int sim_barrier_arrivals(const sim_cta *cta, int id, int *expected);
/* Whether the instruction may change next_pc. */
bool sim_moves_pc(const ptx_instr *instr);

/* ---- Binding (form.c) ---- */

/* A form of an instruction: its modifiers joined by dots, without "cta", and its operands as letters. d: result, p:
 * result with an optional second one (d|p), v: value, q: predicate, maybe negated, i: integer literal, l: label; what
 * follows
 * '?' is optional. */
typedef struct sim_form {
    const char *opcode;
    const char *modifiers;
    const char *operands;
    sim_exec exec;
    ptx_gather gather;
    int gather_operand;
    uint64_t data; /* goes to instr->data[0] */
} sim_form;

/* Binds to the row that fits, of a table that ends with a NULL opcode. False with a message, or, if no row has the
 * opcode, without. */
bool sim_bind_form(ptx_instr *instr, const sim_form *forms, char *error, size_t error_size);

/* ---- Reports (report.c) ---- */

/* Reports that nothing in the CTA can run any more, or that it only waits: where every lane stands. */
void sim_report_stuck(sim_cta *cta, const char *what);
/* A report without an instruction. */
void sim_launch_fault(sim_launch *launch, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
