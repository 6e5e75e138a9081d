/* SPDX-License-Identifier: MIT
 *
 * Branches, exits, CTA barriers, and what concerns the run as a whole. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "race.h"
#include "tmem.h"

/* ---- Branches and exits ---- */

static sim_result exec_branch(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint32_t target = (uint32_t)instr->operands[0].target;
    for (int lane = 0; lane < SIM_LANES; lane++)
        if (mask >> lane & 1)
            warp->next_pc[lane] = target;
    return SIM_DONE;
}

static sim_result exec_indexed_branch(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *targets = &instr->operands[1];
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const uint32_t index = (uint32_t)sim_operand(warp, &instr->operands[0], lane);
        if (index >= (uint32_t)targets->num_elements)
            return sim_fault(warp, instr, lane, "index %u, but there are %d branch targets", index,
                             targets->num_elements);
        warp->next_pc[lane] = (uint32_t)targets->elements[index].target;
    }
    return SIM_DONE;
}

/* A return is an exit: what kernels call has become part of them (inline.c). */
static sim_result exec_exit(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)instr;
    warp->exited |= mask;
    return SIM_DONE;
}

static sim_result exec_trap(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return sim_fault(warp, instr, __builtin_ctz(mask), "%s", instr->opcode);
}

/* Hints, and instructions about what this machine does not model. */
static sim_result exec_nothing(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)warp, (void)instr, (void)mask;
    return SIM_DONE;
}

/* ---- Other grids ----
 *
 * The launch before has always completed here. Its accesses are remembered, and what a thread does before it has waited
 * is checked against them (race_global.c). */

static sim_result exec_grid_wait(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)instr;
    race_grid_wait(warp, mask);
    if (!warp->cta->triggered)
        __atomic_store_n(&warp->cta->launch->waited_first, true, __ATOMIC_RELAXED);
    return SIM_DONE;
}

static sim_result exec_grid_trigger(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)instr, (void)mask;
    warp->cta->triggered = true;
    return SIM_DONE;
}

/* ---- Registers ---- */

/* data[0]: inc. It waits until the other warps have given up enough of the CTA's registers. */
static sim_result exec_registers(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const sim_cta *cta = warp->cta;
    const unsigned wanted = (unsigned)instr->operands[0].bits;
    (void)mask;
    if (instr->data[0] ? wanted < warp->max_registers : wanted > warp->max_registers)
        return sim_fault(warp, instr, -1, "the warp has %u registers a thread already, %s than %u", warp->max_registers,
                         instr->data[0] ? "more" : "fewer", wanted);
    unsigned held = wanted * SIM_LANES;
    for (int i = 0; i < cta->num_warps; i++)
        held += i == warp->index ? 0 : cta->warps[i].max_registers * SIM_LANES;
    if (held > cta->registers)
        return SIM_RETRY;
    warp->max_registers = wanted;
    return SIM_DONE;
}

/* ---- CTA barriers ----
 *
 * The lanes that have arrived at each barrier are kept as masks in their warps. A warp takes part as a whole once one
 * of its lanes does: lanes that have exited or never existed count as having arrived. */

enum { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_POPC, BARRIER_AND, BARRIER_OR };

static uint32_t arrived_lanes(const sim_warp *warp, int id) {
    return warp->schedule->barrier_waiting[id] | warp->schedule->barrier_arrived[id];
}

int sim_barrier_arrivals(const sim_cta *cta, int id, int *expected) {
    int arrived = 0, all = 0;
    for (int i = 0; i < cta->num_warps; i++) {
        const sim_warp *warp = &cta->warps[i];
        uint32_t here = arrived_lanes(warp, id), live = sim_live(warp);
        if (here)
            arrived += __builtin_popcount(here | ~live);
        if (here || live)
            all += SIM_LANES;
    }
    /* Without a count a barrier waits for every warp that has not exited. */
    *expected = cta->barriers[id].expected > 0 ? cta->barriers[id].expected : all;
    return arrived;
}

static uint64_t reduction(const sim_cta *cta, int id, uint64_t op) {
    unsigned count = 0;
    bool all = true;
    for (int i = 0; i < cta->num_warps; i++) {
        const sim_schedule *s = cta->warps[i].schedule;
        count += (unsigned)__builtin_popcount(s->barrier_true[id]);
        all &= s->barrier_true[id] == s->barrier_waiting[id];
    }
    return op == BARRIER_POPC ? count : op == BARRIER_AND ? all : count > 0;
}

static void give_result(sim_warp *warp, const ptx_instr *instr, int lane, int id) {
    if (instr->data[0] >= BARRIER_POPC)
        sim_set(warp, &instr->operands[0], lane, reduction(warp->cta, id, instr->data[0]));
}

/* Frees whom the barrier held if all have arrived. `current`: lanes of `running` that are executing `instr`, which go
 * on to the next instruction by next_pc; those blocked before go on by pc. */
static sim_result complete_barrier(sim_cta *cta, int id, sim_warp *running, const ptx_instr *instr, uint32_t current) {
    int expected, arrived = sim_barrier_arrivals(cta, id, &expected);
    if (arrived == 0 || arrived < expected)
        return SIM_DONE;
    if (arrived > expected)
        return sim_fault(running, instr, -1, "%d threads arrive at barrier %d, which waits for %d", arrived, id,
                         expected);
    for (int i = 0; i < cta->num_warps; i++) {
        sim_warp *warp = &cta->warps[i];
        uint32_t lanes = warp->schedule->barrier_waiting[id];
        if (lanes)
            tmem_waited_named(warp, id);
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            int lane = __builtin_ctz(rest);
            bool now = warp == running && (current >> lane & 1);
            give_result(warp, now ? instr : &cta->launch->function->instrs[warp->pc[lane]], lane, id);
            if (now)
                warp->next_pc[lane]++;
            else
                warp->pc[lane]++;
        }
        warp->schedule->blocked &= ~lanes;
        race_acquire(warp, lanes, cta->barriers[id].point);
    }
    race_drop(cta, &cta->barriers[id].point);
    for (int i = 0; i < cta->num_warps; i++) {
        sim_schedule *s = cta->warps[i].schedule;
        s->barrier_waiting[id] = s->barrier_arrived[id] = s->barrier_true[id] = 0;
    }
    cta->barriers[id].expected = 0;
    cta->barriers[id].arrived = 0;
    return SIM_DONE;
}

sim_result sim_barriers_recheck(sim_warp *warp, const ptx_instr *instr) {
    for (int id = 0; id < SIM_BARRIERS; id++)
        if (warp->cta->barriers[id].arrived > 0 && complete_barrier(warp->cta, id, warp, instr, 0) == SIM_FAULT)
            return SIM_FAULT;
    return SIM_DONE;
}

/* Operand that holds the thread count, or NULL; the barrier's number stands before it. */
static const ptx_operand *count_operand(const ptx_instr *instr) {
    int i = instr->data[0] >= BARRIER_POPC ? 2 : 1;
    bool given = instr->data[0] >= BARRIER_POPC ? instr->num_operands == 4 : instr->num_operands == 2;
    return given ? &instr->operands[i] : NULL;
}

static sim_result arrive(sim_warp *warp, const ptx_instr *instr, uint32_t lanes, uint64_t id, uint64_t count) {
    sim_cta *cta = warp->cta;
    int first = __builtin_ctz(lanes), slots = cta->num_warps * SIM_LANES;
    if (id >= SIM_BARRIERS)
        return sim_fault(warp, instr, first, "there is no barrier %llu: a CTA has 0 to %d", (unsigned long long)id,
                         SIM_BARRIERS - 1);
    int b = (int)id;
    if (count_operand(instr)) {
        if (count == 0 || count % SIM_LANES != 0 || count > (uint64_t)slots)
            return sim_fault(warp, instr, first,
                             "barrier %d waits for %llu threads: must be a multiple of %d, up to the CTA's %d", b,
                             (unsigned long long)count, SIM_LANES, slots);
    }
    sim_schedule *s = warp->schedule;
    if (cta->barriers[b].arrived > 0 && cta->barriers[b].expected != (int)count)
        return sim_fault(warp, instr, first, "barrier %d was entered with a count of %d by others, but here with %llu",
                         b, cta->barriers[b].expected, (unsigned long long)count);
    uint32_t again = lanes & arrived_lanes(warp, b);
    if (again)
        return sim_fault(warp, instr, __builtin_ctz(again), "arrives at barrier %d again before others have arrived",
                         b);
    tmem_arrive_named(warp, b);
    cta->barriers[b].expected = (int)count;
    cta->barriers[b].arrived += __builtin_popcount(lanes);
    race_release(warp, lanes, &cta->barriers[b].point);
    if (instr->data[0] == BARRIER_ARRIVE) {
        s->barrier_arrived[b] |= lanes;
    } else {
        s->barrier_waiting[b] |= lanes;
        s->blocked |= lanes;
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            int lane = __builtin_ctz(rest);
            warp->next_pc[lane]--; /* stays, until the barrier lets it go */
            if (instr->data[0] >= BARRIER_POPC &&
                (sim_operand(warp, &instr->operands[instr->num_operands - 1], lane) & 1))
                s->barrier_true[b] |= UINT32_C(1) << lane;
        }
    }
    return complete_barrier(cta, b, warp, instr, lanes);
}

static sim_result exec_barrier(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *id = &instr->operands[instr->data[0] >= BARRIER_POPC ? 1 : 0], *count = count_operand(instr);
    uint32_t rest = mask;
    while (rest) {
        int first = __builtin_ctz(rest);
        uint64_t number = sim_operand(warp, id, first), threads = count ? sim_operand(warp, count, first) : 0;
        uint32_t lanes = 0;
        for (uint32_t others = rest; others; others &= others - 1) {
            int lane = __builtin_ctz(others);
            if (sim_operand(warp, id, lane) == number && (!count || sim_operand(warp, count, lane) == threads))
                lanes |= UINT32_C(1) << lane;
        }
        if (instr->gather == PTX_GATHER_ALIGNED && lanes != mask)
            return sim_fault(warp, instr, first, "the lanes of a warp name different barriers or counts");
        if (arrive(warp, instr, lanes, number, threads) == SIM_FAULT)
            return SIM_FAULT;
        rest &= ~lanes;
    }
    return SIM_DONE;
}

bool sim_moves_pc(const ptx_instr *instr) {
    return instr->exec == exec_branch || instr->exec == exec_indexed_branch || instr->exec == exec_exit ||
           instr->exec == exec_barrier;
}

/* ---- Binding ---- */

#define NONE    PTX_GATHER_NONE
#define ALIGNED PTX_GATHER_ALIGNED

static const sim_form forms[] = {
    {"bra", "", "l", exec_branch, NONE, 0, 0},
    {"bra", "uni", "l", exec_branch, NONE, 0, 0},
    {"ret", "", "", exec_exit, NONE, 0, 0},
    {"ret", "uni", "", exec_exit, NONE, 0, 0},
    {"exit", "", "", exec_exit, NONE, 0, 0},
    {"trap", "", "", exec_trap, NONE, 0, 0},
    {"brkpt", "", "", exec_trap, NONE, 0, 0},
    {"nanosleep", "u32", "v", exec_nothing, NONE, 0, 0},
    {"pmevent", "", "i", exec_nothing, NONE, 0, 0},
    {"pmevent", "mask", "i", exec_nothing, NONE, 0, 0},
    {"griddepcontrol", "wait", "", exec_grid_wait, NONE, 0, 0},
    {"griddepcontrol", "launch_dependents", "", exec_grid_trigger, NONE, 0, 0},
    {"setmaxnreg", "inc.sync.aligned.u32", "i", exec_registers, ALIGNED, 0, 1},
    {"setmaxnreg", "dec.sync.aligned.u32", "i", exec_registers, ALIGNED, 0, 0},
    {"bar", "sync", "v?v", exec_barrier, ALIGNED, 0, BARRIER_SYNC},
    {"bar", "arrive", "vv", exec_barrier, ALIGNED, 0, BARRIER_ARRIVE},
    {"bar", "red.popc.u32", "dvq", exec_barrier, ALIGNED, 0, BARRIER_POPC},
    {"bar", "red.popc.u32", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_POPC},
    {"bar", "red.and.pred", "dvq", exec_barrier, ALIGNED, 0, BARRIER_AND},
    {"bar", "red.and.pred", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_AND},
    {"bar", "red.or.pred", "dvq", exec_barrier, ALIGNED, 0, BARRIER_OR},
    {"bar", "red.or.pred", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_OR},
    {"barrier", "sync", "v?v", exec_barrier, NONE, 0, BARRIER_SYNC},
    {"barrier", "sync.aligned", "v?v", exec_barrier, ALIGNED, 0, BARRIER_SYNC},
    {"barrier", "arrive", "vv", exec_barrier, NONE, 0, BARRIER_ARRIVE},
    {"barrier", "arrive.aligned", "vv", exec_barrier, ALIGNED, 0, BARRIER_ARRIVE},
    {"barrier", "red.popc.u32", "dvq", exec_barrier, NONE, 0, BARRIER_POPC},
    {"barrier", "red.popc.u32", "dvvq", exec_barrier, NONE, 0, BARRIER_POPC},
    {"barrier", "red.popc.aligned.u32", "dvq", exec_barrier, ALIGNED, 0, BARRIER_POPC},
    {"barrier", "red.popc.aligned.u32", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_POPC},
    {"barrier", "red.and.pred", "dvq", exec_barrier, NONE, 0, BARRIER_AND},
    {"barrier", "red.and.pred", "dvvq", exec_barrier, NONE, 0, BARRIER_AND},
    {"barrier", "red.and.aligned.pred", "dvq", exec_barrier, ALIGNED, 0, BARRIER_AND},
    {"barrier", "red.and.aligned.pred", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_AND},
    {"barrier", "red.or.pred", "dvq", exec_barrier, NONE, 0, BARRIER_OR},
    {"barrier", "red.or.pred", "dvvq", exec_barrier, NONE, 0, BARRIER_OR},
    {"barrier", "red.or.aligned.pred", "dvq", exec_barrier, ALIGNED, 0, BARRIER_OR},
    {"barrier", "red.or.aligned.pred", "dvvq", exec_barrier, ALIGNED, 0, BARRIER_OR},
    {NULL, NULL, NULL, NULL, NONE, 0, 0},
};

static bool bind(ptx_instr *instr, char *error, size_t error_size) {
    return sim_bind_form(instr, forms, error, error_size);
}

/* bar.warp.sync belongs to the warp instructions. */
static bool bind_bar(ptx_instr *instr, char *error, size_t error_size) {
    return !ptx_has(instr, "warp") && bind(instr, error, error_size);
}

static bool bind_indexed(ptx_instr *instr, char *error, size_t error_size) {
    const bool fits = instr->num_operands == 2 && instr->operands[0].kind == PTX_OPERAND_REGISTER &&
                      !instr->operands[0].negated && ptx_has(instr, "idx") &&
                      instr->num_modifiers == (ptx_has(instr, "uni") ? 2 : 1);
    if (!fits) {
        snprintf(error, error_size, "brx: it is brx.idx with a register and a list of targets");
        return false;
    }
    instr->exec = exec_indexed_branch;
    return true;
}

static bool bind_setmaxnreg(ptx_instr *instr, char *error, size_t error_size) {
    if (!bind(instr, error, error_size))
        return false;
    uint64_t registers = instr->operands[0].bits;
    if (registers >= 24 && registers <= 256 && registers % 8 == 0)
        return true;
    snprintf(error, error_size, "setmaxnreg takes a multiple of 8 from 24 to 256, not %lld", (long long)registers);
    return false;
}

const sim_op sim_ops_control[] = {
    {"bra", bind},
    {"brx", bind_indexed},
    {"ret", bind},
    {"exit", bind},
    {"trap", bind},
    {"brkpt", bind},
    {"nanosleep", bind},
    {"pmevent", bind},
    {"griddepcontrol", bind},
    {"setmaxnreg", bind_setmaxnreg},
    {"bar", bind_bar},
    {"barrier", bind},
    {NULL, NULL},
};
