/* SPDX-License-Identifier: MIT
 *
 * The machine: a launch has CTAs, a CTA has warps, a warp has 32 lanes with a program counter and registers each.
 *
 * Everything of one CTA runs on one host thread; different CTAs may run on different host threads at once. Warps and
 * asynchronous operations of a CTA are interleaved at random, from the launch's seed, so that many orders are tried. */
#ifndef PTXSIM_SIM_H_
#define PTXSIM_SIM_H_

#include <stdarg.h>

#include "ptx.h"

#define SIM_LANES 32

/* Generic addresses: shared and local memory of the running CTA appear in windows; everything else is global. A device
 * pointer is a host pointer. */
#define SIM_SHARED_WINDOW UINT64_C(0x7c0000000000)
#define SIM_LOCAL_WINDOW  UINT64_C(0x7d0000000000)
#define SIM_WINDOW_BYTES  UINT64_C(0x000100000000)
#define SIM_PARAM_WINDOW  UINT64_C(0x7e0000000000) /* kernel parameters, for cvta.param and tensor maps */

struct sim_device; /* memory.h */
struct sim_schedule; /* engine.h */
struct sim_race;     /* race.h */
struct race_launch;

typedef struct sim_dim {
    unsigned x, y, z;
} sim_dim;

/* Where a launch went wrong. */
typedef struct sim_place {
    sim_dim cta, thread;
    int warp, lane;     /* -1: of no warp, or of the whole warp */
    int ptx_line;       /* 0: of no instruction */
    const char *source; /* of the module; NULL: not known */
    int source_line;
} sim_place;

typedef struct sim_launch {
    struct sim_device *device;
    const ptx_module *module;
    const ptx_function *function;
    uint8_t *module_image; /* global and const variables at module scope, by ptx_variable.offset; registered memory */
    sim_dim grid, block;
    const uint8_t *params; /* function->param_bytes */
    size_t dynamic_shared_bytes;
    uint64_t seed;
    uint64_t step_limit;  /* instructions of warps in all CTAs together before the launch counts as livelocked; 0: default */
    uint64_t grid_id;     /* %gridid */
    bool allow_undefined; /* registers that were never written read as zeros; else their use is a fault */
    int num_sms;
    bool ignore_races;        /* no happens-before: for measurements, and kernels that race on purpose */
    struct race_launch *race; /* while it runs, if races are looked for; `keep_race`: the caller's afterwards */
    bool keep_race;
    /* Launches before that may still be running, until griddepcontrol.wait (programmatic dependent launch). */
    struct race_launch *const *before;
    int num_before;
    bool waited_first; /* result: some CTA waited for them before it let the next launch start */
    int tensor_bits;   /* tensor_sum.h; 0: the ideal unit */
    bool stop; /* a CTA has faulted: the others end soon (relaxed reads suffice) */
    sim_place fault_place;
    char fault[2048]; /* first fault, "" if none; written once under the device's lock */
} sim_launch;

struct sim_async; /* an asynchronous operation under way; async.h */
struct sim_async_state; /* what asynchronous operations, barriers and proxies need of a CTA; async.h */

typedef struct sim_cta {
    sim_launch *launch;
    sim_dim id;
    unsigned linear_id;
    uint8_t *shared; /* static_shared_bytes, then dynamic */
    size_t shared_bytes;
    uint8_t *shared_written; /* one bit a byte: has been written */
    struct sim_warp *warps;
    int num_warps;
    int running_warps; /* not all lanes exited */
    uint64_t random;   /* sim_random's state */
    struct sim_async *pending; /* list, oldest first */
    struct sim_async_state *async_state; /* NULL until it is needed; freed by sim_async_free */
    uint64_t steps;
    unsigned registers;    /* that the CTA was launched with, of all its threads (setmaxnreg) */
    bool triggered;        /* griddepcontrol.launch_dependents has been executed */
    struct sim_race *race; /* NULL: races are not looked for */
    /* The 16 named barriers: threads that have arrived, the count they gave (0: none); exec_control.c */
    struct {
        int arrived, expected;
        struct race_clock *point; /* what the arrivals release (race.h) */
    } barriers[16];
} sim_cta;

typedef struct sim_warp {
    sim_cta *cta;
    int index;          /* in the CTA */
    uint32_t exists;    /* lanes the block has */
    uint32_t exited;
    unsigned max_registers; /* of a thread (setmaxnreg) */
    uint32_t pc[SIM_LANES];
    uint32_t next_pc[SIM_LANES]; /* what exec may change: preset to pc + 1 for the lanes of mask */
    uint64_t *registers; /* [slot * SIM_LANES + lane]; narrower values are zero-extended */
    uint8_t *register_pending; /* per slot: an asynchronous operation (wgmma) still owns it; using it is a fault */
    uint8_t *local; /* local_bytes for each lane */
    uint8_t *local_written; /* per byte: 1 once it has been written */
    uint32_t carry; /* condition code CC.CF of add.cc, subc and their like: one bit a lane */
    uint32_t readers; /* of the bytes that a lane reads, with the same instruction; 0: that lane alone */
    /* wgmma groups: operations issued since the last commit, committed groups not yet waited for */
    struct sim_wgmma_state *wgmma;
    struct sim_schedule *schedule;
} sim_warp;

/* ---- Registers and operands (engine.c) ---- */

static inline uint64_t *sim_register(sim_warp *warp, int slot) {
    return warp->registers + (size_t)slot * SIM_LANES;
}

/* The value of a scalar operand in one lane, as raw bits: register, integer, special register (zero-extended), or the
 * address of a variable in its own space. A real literal is an error here (see sim_operand_real). */
uint64_t sim_operand(sim_warp *warp, const ptx_operand *operand, int lane);
/* Bits of a floating point operand of 32 or 64 bits, decimal literals included. */
uint64_t sim_operand_real(sim_warp *warp, const ptx_operand *operand, int lane, int bits);
void sim_set(sim_warp *warp, const ptx_operand *operand, int lane, uint64_t bits); /* a sink is ignored */
/* Address of an ADDRESS operand in `space` (for shared: offset or window address as PTX computes with them). */
uint64_t sim_address(sim_warp *warp, const ptx_operand *operand, int lane);
/* "%tid.x", "%ctaid.y", "%laneid", "%warpid", "%clock64", "%globaltimer", "%nsmid", ...; false if unknown. A NULL
 * warp only asks whether the name is known (for binding). */
bool sim_special(sim_warp *warp, const char *name, int lane, uint64_t *value);

uint64_t sim_random(sim_cta *cta);

/* Ends the launch with a report: what, kernel, CTA, warp, lane (-1: the warp), PTX line and text, template line. Always
 * returns SIM_FAULT. */
sim_result sim_fault(sim_warp *warp, const ptx_instr *instr, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* An instruction as reports give it: PTX line, text, template line. */
void sim_describe(const sim_launch *launch, const ptx_instr *instr, char *buffer, size_t size);

/* ---- Running (engine.c) ---- */

/* Runs all CTAs. false: launch->fault says why. */
bool sim_run(sim_launch *launch);
/* Lets pending asynchronous operations of a CTA make progress: each at a random time; `all`: until none is left that can.
 * Returns whether anything happened. (async.c) */
bool sim_async_progress(sim_cta *cta, bool all);
void sim_async_free(sim_cta *cta);

#endif
