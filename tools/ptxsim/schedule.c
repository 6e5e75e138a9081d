/* SPDX-License-Identifier: MIT
 *
 * Runs the lanes of a warp. Each lane has a program counter of its own; lanes that stand at the same instruction run
 * together, as a group. The group with the smallest program counter goes first, which reconverges structured code, but
 * others get their turn after a while, and at once where the first one only waits, so that a lane which spins never
 * starves another one of its warp. */
#include "async.h"
#include "engine.h"
#include "race_claim.h"

enum {
    TURN = 1024,       /* instructions of the first group before another one gets a turn */
    TURN_OF_OTHER = 96 /* at most, of the other one */
};

static inline int lowest_lane(uint32_t mask) {
    return __builtin_ctz(mask);
}

/* ---- Groups ---- */

static void leave_group(sim_warp *warp) {
    sim_schedule *s = warp->schedule;
    for (uint32_t rest = s->group; rest; rest &= rest - 1)
        warp->pc[lowest_lane(rest)] = s->group_pc;
}

/* Chooses the group to run from warp->pc. false: no lane can run now. */
static bool enter_group(sim_warp *warp) {
    sim_schedule *s = warp->schedule;
    uint32_t live = sim_live(warp) & ~s->blocked, candidates = live & ~s->parked & ~s->retried;
    s->group = 0;
    s->merge_pc = UINT32_MAX;
    if (!candidates)
        return false;
    uint32_t pc = UINT32_MAX;
    if (s->leader >= 0 && (candidates >> s->leader & 1)) {
        pc = warp->pc[s->leader];
    } else {
        s->leader = -1;
        for (uint32_t rest = candidates; rest; rest &= rest - 1) {
            uint32_t at = warp->pc[lowest_lane(rest)];
            pc = at < pc ? at : pc;
        }
    }
    for (uint32_t rest = live; rest; rest &= rest - 1) {
        int lane = lowest_lane(rest);
        uint32_t at = warp->pc[lane];
        if (at == pc)
            s->group |= UINT32_C(1) << lane;
        else if (at > pc && at < s->merge_pc)
            s->merge_pc = at;
    }
    s->group_pc = pc;
    s->others = live & ~s->group;
    s->parked &= ~s->group;
    s->retried &= ~s->group;
    return true;
}

/* Another group's turn: a random one's for a short while, then again the first one's. */
static void rotate(sim_warp *warp) {
    sim_schedule *s = warp->schedule;
    uint32_t others = s->others & ~s->parked & ~s->retried;
    if (s->leader >= 0 || !others) {
        s->leader = -1;
        s->turn = TURN;
        return;
    }
    uint64_t random = sim_random(warp->cta);
    for (unsigned skip = (unsigned)(random % (unsigned)__builtin_popcount(others)); skip; skip--)
        others &= others - 1;
    s->leader = lowest_lane(others);
    s->turn = 1 + (unsigned)(random >> 32) % TURN_OF_OTHER;
}

/* The lanes of `stay` remain at this instruction, the others of the group go on to the next one. */
static bool split_group(sim_warp *warp, uint32_t stay) {
    sim_schedule *s = warp->schedule;
    for (uint32_t rest = s->group; rest; rest &= rest - 1) {
        int lane = lowest_lane(rest);
        warp->pc[lane] = s->group_pc + (stay >> lane & 1 ? 0 : 1);
    }
    return enter_group(warp);
}

/* ---- Checks before an instruction ---- */

static int operand_with_slot(const ptx_instr *instr, int slot) {
    for (int i = 0; i < instr->num_operands; i++) {
        const ptx_operand *operand = &instr->operands[i];
        if ((operand->kind == PTX_OPERAND_REGISTER || operand->kind == PTX_OPERAND_ADDRESS) && operand->slot == slot)
            return i + 1;
        for (int j = 0; j < operand->num_elements; j++)
            if (operand->elements[j].kind == PTX_OPERAND_REGISTER && operand->elements[j].slot == slot)
                return i + 1;
    }
    return 0;
}

static sim_result fault_undefined(sim_warp *warp, const sim_step *step, uint32_t mask) {
    const int *slots = warp->schedule->program->slots + step->first_slot;
    int lane = lowest_lane(mask);
    char note[512];
    sim_undefined_note(warp->cta, note, sizeof(note));
    for (int i = 0; i < step->num_reads; i++)
        if (!(warp->schedule->written[slots[i]] >> lane & 1))
            return sim_fault(warp, step->instr, lane,
                             "operand %d is undefined: it comes from a register or shared memory never written%s%s",
                             operand_with_slot(step->instr, slots[i]), note[0] ? "; " : "", note);
    return SIM_DONE;
}

bool sim_selects(sim_warp *warp, const ptx_instr *instr, int lane, int slot) {
    const ptx_operand *predicate = &instr->operands[3];
    const ptx_operand *taken = &instr->operands[sim_operand(warp, predicate, lane) & 1 ? 1 : 2];
    return (taken->kind == PTX_OPERAND_REGISTER && taken->slot == slot) ||
           (predicate->kind == PTX_OPERAND_REGISTER && predicate->slot == slot);
}

/* Lanes whose selected input is defined. */
static uint32_t selected_defined(sim_warp *warp, const sim_step *step, const int *slots, uint32_t mask) {
    uint32_t defined = mask;
    for (int i = 0; i < step->num_reads; i++) {
        for (uint32_t rest = defined & ~warp->schedule->written[slots[i]]; rest; rest &= rest - 1) {
            if (sim_selects(warp, step->instr, lowest_lane(rest), slots[i]))
                defined &= ~(UINT32_C(1) << lowest_lane(rest));
        }
    }
    return defined;
}

/* Lanes of `mask` whose inputs are all defined go into *defined. */
static sim_result check_registers(sim_warp *warp, const sim_step *step, uint32_t mask, uint32_t *defined) {
    const sim_schedule *s = warp->schedule;
    const int *slots = s->program->slots + step->first_slot;
    int inputs = step->num_reads, all = inputs + step->num_unchecked + step->num_writes;
    if (!(step->flags & SIM_STEP_ASYNC))
        for (int i = 0; i < all; i++)
            if (warp->register_pending[slots[i]])
                return sim_fault(
                    warp, step->instr, lowest_lane(mask),
                    "operand %d is a register that a wgmma or tcgen05.ld under way still owns (wait for it first)",
                    operand_with_slot(step->instr, slots[i]));
    uint32_t every = mask, any = 0;
    for (int i = 0; i < inputs; i++) {
        every &= s->written[slots[i]];
        any |= s->written[slots[i]];
    }
    *defined = every;
    if (every == mask)
        return SIM_DONE;
    if (step->flags & SIM_STEP_PROPAGATES) {
        if (step->flags & SIM_STEP_ANY_DEFINED)
            *defined = any & mask;
        else if (step->flags & SIM_STEP_SELECTS)
            *defined = selected_defined(warp, step, slots, mask);
        return SIM_DONE;
    }
    if (warp->cta->launch->allow_undefined) {
        *defined = mask;
        return SIM_DONE;
    }
    return fault_undefined(warp, step, mask & ~every);
}

static void mark_written(sim_warp *warp, const sim_step *step, uint32_t mask, uint32_t defined) {
    sim_schedule *s = warp->schedule;
    const int *slots = s->program->slots + step->first_slot + step->num_reads + step->num_unchecked;
    for (int i = 0; i < step->num_writes; i++)
        s->written[slots[i]] = (s->written[slots[i]] & ~mask) | (defined & mask);
}

/* ---- Lanes that an instruction needs ---- */

/* Splits off the first lane's fellows (same member mask) from *rest. *ready: all of its members are here. */
static sim_result gather_members(sim_warp *warp, const sim_step *step, uint32_t *rest, uint32_t *subset, bool *ready) {
    const ptx_operand *operand = &step->instr->operands[step->instr->gather_operand];
    uint32_t all = *rest;
    int first = lowest_lane(all);
    uint32_t members = (uint32_t)sim_operand(warp, operand, first), same = all;
    if (operand->kind == PTX_OPERAND_REGISTER) {
        same = 0;
        for (uint32_t lanes = all; lanes; lanes &= lanes - 1) {
            int lane = lowest_lane(lanes);
            if ((uint32_t)sim_operand(warp, operand, lane) == members)
                same |= UINT32_C(1) << lane;
        }
    }
    if (same & ~members)
        return sim_fault(warp, step->instr, lowest_lane(same & ~members),
                         "the member mask 0x%08x does not name this lane", members);
    uint32_t clash = members & all & ~same;
    if (clash)
        return sim_fault(warp, step->instr, lowest_lane(clash),
                         "lane %d names this lane in its member mask 0x%08x, but this lane gives 0x%08x", first,
                         members, (uint32_t)sim_operand(warp, operand, lowest_lane(clash)));
    *subset = same;
    *ready = (members & sim_live(warp)) == same;
    *rest = all & ~same;
    return SIM_DONE;
}

static sim_result execute(sim_warp *warp, const sim_step *step, uint32_t mask, uint32_t defined) {
    if (warp->schedule->tagged != NULL && !race_claim_step(warp, step, mask))
        return SIM_FAULT;
    mark_written(warp, step, mask, defined);
    return step->exec(warp, step->instr, mask);
}

/* Runs an instruction that needs the lanes of its member mask, for each set of lanes that is complete. */
static sim_result execute_gathered(sim_warp *warp, const sim_step *step, uint32_t pass, uint32_t defined,
                                   uint32_t *waiting, uint32_t *retry) {
    uint32_t rest = pass;
    while (rest) {
        uint32_t subset = 0;
        bool ready = false;
        if (gather_members(warp, step, &rest, &subset, &ready) == SIM_FAULT)
            return SIM_FAULT;
        if (!ready) {
            *waiting |= subset;
            continue;
        }
        sim_result result = execute(warp, step, subset, defined);
        if (result == SIM_FAULT)
            return SIM_FAULT;
        if (result == SIM_RETRY)
            *retry |= subset;
    }
    return SIM_DONE;
}

/* ---- One instruction ---- */

static void note_wait(sim_warp *warp, const sim_step *step, uint32_t mask, sim_slice *slice) {
    sim_schedule *s = warp->schedule;
    const ptx_operand *result = &step->instr->operands[0];
    bool passed = false;
    if (result->kind == PTX_OPERAND_REGISTER)
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            passed |= (sim_register(warp, result->slot)[lowest_lane(rest)] & 1) != 0;
    if (passed) {
        slice->effect = true;
    } else {
        s->since_wait = 0;
        s->turn = 0;
    }
}

/* After an instruction that may have changed next_pc, exited or blocked lanes. `pass`: those that ran it. */
static sim_result follow(sim_warp *warp, const sim_step *step, uint32_t pass, uint32_t exited, uint32_t blocked,
                         bool *runs) {
    sim_schedule *s = warp->schedule;
    uint32_t next = s->group_pc + 1, target = warp->next_pc[lowest_lane(pass)];
    bool uniform = warp->exited == exited && s->blocked == blocked && (pass == s->group || target == next);
    for (uint32_t rest = pass; rest && uniform; rest &= rest - 1)
        uniform = warp->next_pc[lowest_lane(rest)] == target;
    if (uniform && !s->others) {
        s->group_pc = target;
        return SIM_DONE;
    }
    for (uint32_t rest = s->group; rest; rest &= rest - 1) {
        int lane = lowest_lane(rest);
        warp->pc[lane] = pass >> lane & 1 ? warp->next_pc[lane] : next;
    }
    s->group = 0;
    if (warp->exited != exited) {
        s->parked = 0;
        if (!sim_live(warp))
            warp->cta->running_warps--;
        if (sim_barriers_recheck(warp, step->instr) == SIM_FAULT)
            return SIM_FAULT;
    }
    *runs = enter_group(warp);
    return SIM_DONE;
}

/* Runs past the last instruction: the lanes exit. */
static sim_result fall_off(sim_warp *warp, bool *runs) {
    static const sim_step none = {.guard = -1};
    uint32_t exited = warp->exited, lanes = warp->schedule->group;
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        warp->next_pc[lowest_lane(rest)] = warp->schedule->group_pc;
    warp->exited |= lanes;
    return follow(warp, &none, lanes, exited, warp->schedule->blocked, runs);
}

static uint32_t guard_mask(sim_warp *warp, const sim_step *step) {
    const uint64_t *predicate = sim_register(warp, step->guard);
    uint32_t mask = 0;
    for (int lane = 0; lane < SIM_LANES; lane++)
        mask |= (uint32_t)(predicate[lane] & 1) << lane;
    return step->guard_negated ? ~mask : mask;
}

/* *runs: a group is still chosen. */
static sim_result run_step(sim_warp *warp, sim_slice *slice, bool *runs) {
    sim_schedule *s = warp->schedule;
    if (s->group_pc >= s->program->num_steps)
        return fall_off(warp, runs);
    const sim_step *step = &s->program->steps[s->group_pc];
    uint32_t pass = s->group, defined = 0;
    if (step->guard >= 0) {
        uint32_t undefined = s->group & ~s->written[step->guard];
        if (undefined && !warp->cta->launch->allow_undefined)
            return sim_fault(warp, step->instr, lowest_lane(undefined), "the guard is undefined");
        if (warp->register_pending[step->guard])
            return sim_fault(warp, step->instr, lowest_lane(s->group),
                             "the guard is a register that a wgmma or tcgen05.ld still owns");
        if (s->tagged != NULL && !race_claim_use(warp, step->instr, step->guard, s->group))
            return SIM_FAULT;
        pass &= guard_mask(warp, step);
        if (!pass) {
            s->group_pc++;
            slice->executed++;
            return SIM_DONE;
        }
    }
    if (check_registers(warp, step, pass, &defined) == SIM_FAULT)
        return SIM_FAULT;

    uint32_t waiting = 0, retry = 0;
    sim_result result;
    if (step->gather == PTX_GATHER_MASK) {
        result = execute_gathered(warp, step, pass, defined, &waiting, &retry);
    } else if (step->gather == PTX_GATHER_ALIGNED && pass != sim_live(warp)) {
        if (pass != s->group)
            return sim_fault(
                warp, step->instr, lowest_lane(s->group & ~pass),
                "all lanes of the warp must execute this instruction, but the guard keeps lanes 0x%08x away",
                s->group & ~pass);
        waiting = pass;
        result = SIM_DONE;
    } else if (step->flags & SIM_STEP_MOVES_PC) {
        uint32_t exited = warp->exited, blocked = s->blocked;
        for (int lane = 0; lane < SIM_LANES; lane++)
            warp->next_pc[lane] = s->group_pc + 1;
        result = execute(warp, step, pass, defined);
        if (result == SIM_DONE) {
            slice->executed++;
            slice->effect |= (step->flags & SIM_STEP_EFFECT) != 0;
            return follow(warp, step, pass, exited, blocked, runs);
        }
        retry = pass;
    } else {
        result = execute(warp, step, pass, defined);
        if (result == SIM_RETRY)
            retry = pass;
    }
    if (result == SIM_FAULT)
        return SIM_FAULT;

    uint32_t stay = waiting | retry;
    if (stay != s->group) {
        slice->executed++;
        slice->effect |= (step->flags & SIM_STEP_EFFECT) && (pass & ~stay);
    }
    if (step->flags & SIM_STEP_WAITS) {
        if (pass & ~stay)
            note_wait(warp, step, pass & ~stay, slice);
        else
            s->since_wait = 0;
    }
    if (!stay) {
        s->group_pc++;
        return SIM_DONE;
    }
    s->parked |= waiting;
    s->retried |= retry;
    s->leader = -1;
    s->turn = TURN;
    *runs = split_group(warp, stay);
    return SIM_DONE;
}

bool sim_warp_slice(sim_warp *warp, unsigned budget, sim_slice *slice) {
    sim_schedule *s = warp->schedule;
    *slice = (sim_slice){0};
    s->retried = 0;
    if (!enter_group(warp))
        return true;
    /* Now and then out of turn, for orders that the usual policy never gives. */
    if (s->others && sim_random(warp->cta) % 8 == 0) {
        rotate(warp);
        leave_group(warp);
        enter_group(warp);
    }
    bool runs = true;
    while (runs && slice->executed < budget) {
        if (s->group_pc == s->merge_pc || s->turn == 0) {
            if (s->turn == 0)
                rotate(warp);
            leave_group(warp);
            runs = enter_group(warp);
            continue;
        }
        unsigned before = slice->executed;
        if (run_step(warp, slice, &runs) == SIM_FAULT)
            return false;
        unsigned steps = slice->executed - before;
        warp->cta->steps += steps;
        s->since_wait += steps;
        if (s->turn > 0)
            s->turn--;
    }
    if (runs)
        leave_group(warp);
    s->group = 0;
    return true;
}
