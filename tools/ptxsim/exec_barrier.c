/* SPDX-License-Identifier: MIT
 * mbarrier objects in shared memory (PTX ISA, "mbarrier"). A phase ends when its pending arrivals and its pending bytes
 * are both zero. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "async.h"
#include "memory.h"
#include "tmem.h"

enum { MAX_COUNT = (1 << 20) - 1 };

/* ---- Objects --------------------------------------------------------------------------------------------------- */

/* What the 8 bytes hold: a mix of everything, so that a stray store is noticed. */
static uint64_t seal(const sim_mbarrier *barrier, size_t offset) {
    uint64_t x = (uint64_t)barrier->phase << 40 ^ (uint64_t)barrier->pending << 20 ^ barrier->expected;
    x ^= (uint64_t)(uint32_t)barrier->tx << 8 ^ (uint64_t)offset << 32;
    x = (x ^ UINT64_C(0x6d62617272696572)) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static void store(sim_cta *cta, sim_mbarrier *barrier, size_t offset) {
    barrier->word = seal(barrier, offset);
    memcpy(cta->shared + offset, &barrier->word, sizeof(barrier->word));
}

/* The slot at a checked address; NULL after sim_fault. */
static sim_mbarrier *slot_at(sim_warp *warp, const ptx_instr *instr, uint64_t address, size_t *offset) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL || sim_async_access(warp, instr, true, address, 8, 8, false) == NULL)
        return NULL;
    *offset = (size_t)sim_shared_offset(address);
    return &state->mbarriers[*offset / 8];
}

/* The live barrier there; NULL after sim_fault. */
static sim_mbarrier *barrier_at(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, size_t *offset) {
    sim_mbarrier *barrier = slot_at(warp, instr, address, offset);
    if (barrier == NULL)
        return NULL;
    if (!barrier->live) {
        sim_fault(warp, instr, lane, "there is no initialised mbarrier at shared offset %#zx", *offset);
        return NULL;
    }
    if (memcmp(warp->cta->shared + *offset, &barrier->word, 8) != 0 || !shadow_written(warp->cta, *offset, 8)) {
        sim_fault(warp, instr, lane, "the mbarrier at shared offset %#zx has been overwritten", *offset);
        return NULL;
    }
    return barrier;
}

/* Same for a lane, whose use of the barrier must be ordered after its initialisation. */
static sim_mbarrier *barrier_of(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, size_t *offset) {
    sim_mbarrier *barrier = barrier_at(warp, instr, lane, address, offset);
    const unsigned kind = RACE_WRITE | RACE_STRONG | RACE_CHECK;
    return barrier != NULL && race_access(race_shared(warp->cta), warp, instr, lane, *offset, 8, kind) ? barrier : NULL;
}

/* Ends the phase if nothing is pending any more. */
static void settle(sim_cta *cta, sim_mbarrier *barrier, size_t offset) {
    if (barrier->pending == 0 && barrier->tx == 0) {
        barrier->phase++;
        barrier->pending = barrier->expected;
        tmem_phase_ended(cta, offset);
        race_copy(cta, &barrier->completed, barrier->arrived);
    }
    store(cta, barrier, offset);
}

static bool add_tx(sim_warp *warp, const ptx_instr *instr, int lane, sim_mbarrier *barrier, size_t offset,
                   int64_t bytes) {
    const int64_t tx = barrier->tx + bytes;
    if (tx < -MAX_COUNT || tx > MAX_COUNT) {
        sim_fault(warp, instr, lane,
                  "the byte count of the mbarrier at shared offset %#zx becomes %" PRId64 ", out of range", offset, tx);
        return false;
    }
    barrier->tx = (int32_t)tx;
    return true;
}

static bool arrive(sim_warp *warp, const ptx_instr *instr, int lane, sim_mbarrier *barrier, size_t offset,
                   uint32_t count) {
    if (count == 0 || count > barrier->pending) {
        sim_fault(warp, instr, lane,
                  "%" PRIu32 " arrivals on the mbarrier at shared offset %#zx, which expects %" PRIu32
                  " a phase and awaits %" PRIu32 " more",
                  count, offset, barrier->expected, barrier->pending);
        return false;
    }
    barrier->pending -= count;
    return true;
}

bool sim_mbarrier_check(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address) {
    size_t offset = 0;
    const sim_mbarrier *barrier = barrier_of(warp, instr, lane, address, &offset);
    if (barrier == NULL)
        return false;
    if (!barrier->fenced) {
        sim_fault(warp, instr, lane,
                  "the mbarrier at shared offset %#zx was initialised by warp %d without "
                  "fence.mbarrier_init or fence.proxy.async afterwards",
                  offset, barrier->writer);
        return false;
    }
    return true;
}

bool sim_mbarrier_complete_tx(struct sim_async *op, uint64_t address, uint32_t bytes) {
    size_t offset = 0;
    sim_cta *cta = op->warp->cta;
    sim_mbarrier *barrier = barrier_at(op->warp, op->instr, op->lane, address, &offset);
    if (barrier == NULL || !add_tx(op->warp, op->instr, op->lane, barrier, offset, -(int64_t)bytes))
        return false;
    race_unit_release(cta, &op->unit, &barrier->arrived);
    settle(cta, barrier, offset);
    return true;
}

bool sim_mbarrier_arrive_async(struct sim_async *op, int lane, uint64_t address, uint32_t count) {
    size_t offset = 0;
    sim_cta *cta = op->warp->cta;
    sim_mbarrier *barrier = barrier_at(op->warp, op->instr, lane, address, &offset);
    if (barrier == NULL || !arrive(op->warp, op->instr, lane, barrier, offset, count))
        return false;
    race_unit_release(cta, &op->unit, &barrier->arrived);
    settle(cta, barrier, offset);
    return true;
}

/* ---- Reports --------------------------------------------------------------------------------------------------- */

static size_t describe(const sim_mbarrier *barrier, size_t offset, char *text, size_t size) {
    const int length =
        snprintf(text, size,
                 "mbarrier at shared %#zx, in phase %" PRIu32 " (parity %" PRIu32 "): %" PRIu32 " of %" PRIu32
                 " arrivals and %" PRId32 " bytes missing",
                 offset, barrier->phase, barrier->phase & 1, barrier->pending, barrier->expected, barrier->tx);
    return length > 0 ? (size_t)length : 0;
}

void sim_mbarrier_report(const sim_cta *cta, char *text, size_t size) {
    size_t used = 0;
    if (size > 0)
        text[0] = '\0';
    if (cta->async_state == NULL)
        return;
    for (size_t i = cta->async_state->mbarriers_begin; i < cta->async_state->mbarriers_end && used < size; i++) {
        if (!cta->async_state->mbarriers[i].live)
            continue;
        used += describe(&cta->async_state->mbarriers[i], 8 * i, text + used, size - used);
        if (used + 1 < size) {
            text[used++] = '\n';
            text[used] = '\0';
        }
    }
}

/* ---- Instructions ---------------------------------------------------------------------------------------------- */

typedef enum action {
    INIT,
    INVAL,
    EXPECT_TX,
    COMPLETE_TX,
    ARRIVE, /* also with expect_tx, and drop */
    WAIT,
    PENDING_COUNT
} action;

enum { DROP = 1, WITH_TX = 2, NO_COMPLETE = 4, PARITY = 8, TRY = 16, RELAXED = 32 };

/* data[0]: action, data[1]: flags above */

static sim_result exec_init(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint32_t count = (uint32_t)sim_operand(warp, &instr->operands[1], lane);
        size_t offset = 0;
        sim_mbarrier *barrier = slot_at(warp, instr, sim_address(warp, &instr->operands[0], lane), &offset);
        if (barrier == NULL)
            return SIM_FAULT;
        if (count == 0 || count > MAX_COUNT)
            return sim_fault(warp, instr, lane, "mbarrier of %" PRIu32 " arrivals: 1 to %d are accepted", count,
                             MAX_COUNT);
        if (barrier->live && memcmp(warp->cta->shared + offset, &barrier->word, 8) == 0)
            return sim_fault(warp, instr, lane, "there already is an mbarrier at shared offset %#zx", offset);
        if (!race_access(race_shared(warp->cta), warp, instr, lane, offset, 8, RACE_WRITE))
            return SIM_FAULT;
        *barrier = (sim_mbarrier){.live = true, .writer = (uint8_t)warp->index, .expected = count, .pending = count};
        store(warp->cta, barrier, offset);
        shadow_store_async(warp->cta, offset, 8);
        struct sim_async_state *state = warp->cta->async_state;
        if (state->mbarriers_end == 0 || offset / 8 < state->mbarriers_begin)
            state->mbarriers_begin = offset / 8;
        if (offset / 8 >= state->mbarriers_end)
            state->mbarriers_end = offset / 8 + 1;
    }
    return SIM_DONE;
}

static sim_result exec_inval(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        size_t offset = 0;
        sim_mbarrier *barrier = barrier_at(warp, instr, lane, sim_address(warp, &instr->operands[0], lane), &offset);
        if (barrier == NULL || !race_access(race_shared(warp->cta), warp, instr, lane, offset, 8, RACE_WRITE))
            return SIM_FAULT;
        barrier->live = false;
        shadow_set_written(warp->cta, offset, 8, false);
    }
    return SIM_DONE;
}

static sim_result exec_tx(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const int64_t bytes = (uint32_t)sim_operand(warp, &instr->operands[1], lane);
        size_t offset = 0;
        sim_mbarrier *barrier = barrier_of(warp, instr, lane, sim_address(warp, &instr->operands[0], lane), &offset);
        if (barrier == NULL ||
            !add_tx(warp, instr, lane, barrier, offset, instr->data[0] == EXPECT_TX ? bytes : -bytes))
            return SIM_FAULT;
        settle(warp->cta, barrier, offset);
    }
    return SIM_DONE;
}

/* The opaque state that arrive returns: the phase before it, and what was pending. */
static uint64_t state_of(const sim_mbarrier *barrier) {
    return UINT64_C(0x5a) << 56 | (uint64_t)barrier->phase << 20 | barrier->pending;
}

static sim_result exec_arrive(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const uint64_t flags = instr->data[1];
    const bool has_operand = instr->num_operands == 3;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint32_t operand = has_operand ? (uint32_t)sim_operand(warp, &instr->operands[2], lane) : 1;
        size_t offset = 0;
        sim_mbarrier *barrier = barrier_of(warp, instr, lane, sim_address(warp, &instr->operands[1], lane), &offset);
        if (barrier == NULL)
            return SIM_FAULT;
        const uint64_t before = state_of(barrier);
        const uint32_t count = flags & WITH_TX ? 1 : operand;
        if ((flags & WITH_TX) && !add_tx(warp, instr, lane, barrier, offset, operand))
            return SIM_FAULT;
        if (!arrive(warp, instr, lane, barrier, offset, count))
            return SIM_FAULT;
        if (flags & DROP)
            barrier->expected -= count;
        if ((flags & NO_COMPLETE) && barrier->pending == 0 && barrier->tx == 0)
            return sim_fault(warp, instr, lane,
                             "arrive.noComplete ends the phase of the mbarrier at shared offset %#zx", offset);
        tmem_arrive(warp, offset);
        if (!(flags & RELAXED))
            race_release(warp, UINT32_C(1) << lane, &barrier->arrived);
        settle(warp->cta, barrier, offset);
        sim_set(warp, &instr->operands[0], lane, before);
    }
    return SIM_DONE;
}

/* Whether the phase that a lane asks for has ended: 1 or 0; -1 after sim_fault. */
static int phase_ended(sim_warp *warp, const ptx_instr *instr, int lane, const sim_mbarrier **found) {
    size_t offset = 0;
    const uint64_t wanted = sim_operand(warp, &instr->operands[2], lane);
    const sim_mbarrier *barrier = barrier_of(warp, instr, lane, sim_address(warp, &instr->operands[1], lane), &offset);
    *found = barrier;
    if (barrier == NULL)
        return -1;
    if (instr->data[1] & PARITY) {
        const uint32_t parity = (uint32_t)wanted;
        if (parity > 1) {
            sim_fault(warp, instr, lane, "phase parity is %" PRIu32 "; 0 or 1 is accepted", parity);
            return -1;
        }
        if ((barrier->phase & 1) != parity)
            tmem_waited(warp, offset);
        return (barrier->phase & 1) != parity;
    }
    const uint32_t phase = (uint32_t)(wanted >> 20);
    if (wanted >> 56 != 0x5a || (phase != barrier->phase && phase + 1 != barrier->phase)) {
        sim_fault(warp, instr, lane,
                  "%#" PRIx64 " is not the state of this or the last phase (%" PRIu32
                  ") of the mbarrier at shared offset %#zx",
                  wanted, barrier->phase, offset);
        return -1;
    }
    if (phase != barrier->phase)
        tmem_waited(warp, offset);
    return phase != barrier->phase;
}

/* try_wait may suspend, for a while: it usually retries, now and then it gives up, as time limits would have it. */
static sim_result exec_wait(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const sim_mbarrier *barriers[SIM_LANES];
    uint32_t ended = 0;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const int result = phase_ended(warp, instr, lane, &barriers[lane]);
        if (result < 0)
            return SIM_FAULT;
        ended |= (uint32_t)result << lane;
    }
    if ((instr->data[1] & TRY) && ended != mask && sim_random(warp->cta) % 4 != 0)
        return SIM_RETRY;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        sim_set(warp, &instr->operands[0], lane, ended >> lane & 1);
    }
    for (uint32_t rest = instr->data[1] & RELAXED ? 0 : ended; rest != 0;) {
        const sim_mbarrier *barrier = barriers[__builtin_ctz(rest)];
        uint32_t same = 0;
        for (uint32_t lanes = rest; lanes != 0; lanes &= lanes - 1)
            same |= (uint32_t)(barriers[__builtin_ctz(lanes)] == barrier) << __builtin_ctz(lanes);
        race_acquire(warp, same, barrier->completed);
        rest &= ~same;
    }
    return SIM_DONE;
}

static sim_result exec_pending_count(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t state = sim_operand(warp, &instr->operands[1], lane);
        if (state >> 56 != 0x5a)
            return sim_fault(warp, instr, lane, "%#" PRIx64 " is not the state of an mbarrier", state);
        sim_set(warp, &instr->operands[0], lane, state & MAX_COUNT);
    }
    return SIM_DONE;
}

/* cp.async.mbarrier.arrive: bound in exec_async.c, which has waited for the lanes' copies to be queued. */
typedef struct copy_arrival {
    struct sim_async base;
    uint64_t address[SIM_LANES];
    uint32_t groups[SIM_LANES]; /* open when it was issued */
} copy_arrival;

static sim_async_step step_copy_arrival(sim_cta *cta, struct sim_async *op) {
    copy_arrival *arrival = (copy_arrival *)op;
    sim_async_step result = SIM_ASYNC_BLOCKED;
    for (uint32_t lanes = op->mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        /* The copies before it are ahead in the queue. */
        bool waits = false;
        for (const struct sim_async *other = cta->pending; other != op; other = other->next)
            waits = waits || (other->kind == SIM_ASYNC_COPY && other->warp == op->warp && (other->mask >> lane & 1));
        if (waits)
            continue;
        race_unit_observe(cta, &op->unit, race_copy_done(op->warp, lane, arrival->groups[lane] + 1));
        if (!sim_mbarrier_arrive_async(op, lane, arrival->address[lane], 1))
            return SIM_ASYNC_DONE;
        op->mask &= ~(UINT32_C(1) << lane);
        result = SIM_ASYNC_MOVED;
    }
    return op->mask == 0 ? SIM_ASYNC_DONE : result;
}

sim_result sim_mbarrier_arrive_after_copies(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    copy_arrival *arrival = (copy_arrival *)sim_async_new(warp, instr, mask, sizeof(*arrival), SIM_ASYNC_ARRIVAL);
    if (arrival == NULL)
        return SIM_FAULT;
    arrival->base.step = step_copy_arrival;
    arrival->base.read_done = true;
    const bool raise = !ptx_has(instr, "noinc");
    bool ok = true;
    for (uint32_t lanes = mask; lanes != 0 && ok; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        size_t offset = 0;
        arrival->address[lane] = sim_address(warp, &instr->operands[0], lane);
        arrival->groups[lane] = warp->cta->async_state->groups[SIM_GROUP_COPY][warp->index][lane];
        sim_mbarrier *barrier = barrier_of(warp, instr, lane, arrival->address[lane], &offset);
        ok = barrier != NULL;
        if (ok && raise) {
            barrier->pending++;
            store(warp->cta, barrier, offset);
        }
    }
    sim_async_queue(warp->cta, &arrival->base);
    return ok ? SIM_DONE : SIM_FAULT;
}

/* ---- Binding --------------------------------------------------------------------------------------------------- */

/* By the first modifier. An address is operands[address]. */
static const struct {
    const char *name;
    action action;
    uint64_t flags;
    int min_operands, max_operands, address;
    sim_exec exec;
} ACTIONS[] = {
    {"init", INIT, 0, 2, 2, 0, exec_init},
    {"inval", INVAL, 0, 1, 1, 0, exec_inval},
    {"expect_tx", EXPECT_TX, 0, 2, 2, 0, exec_tx},
    {"complete_tx", COMPLETE_TX, 0, 2, 2, 0, exec_tx},
    {"arrive", ARRIVE, 0, 2, 3, 1, exec_arrive},
    {"arrive_drop", ARRIVE, DROP, 2, 3, 1, exec_arrive},
    {"test_wait", WAIT, 0, 3, 3, 1, exec_wait},
    {"try_wait", WAIT, TRY, 3, 4, 1, exec_wait},
    {"pending_count", PENDING_COUNT, 0, 2, 2, -1, exec_pending_count},
};

/* Further modifiers, and the actions (bits) that have them. */
static const struct {
    const char *name;
    unsigned actions;
    uint64_t flags;
} MODIFIERS[] = {
    {"b64", ~0u, 0},
    {"shared", ~0u, 0},
    {"shared::cta", ~0u, 0},
    {"shared::cluster", 1u << ARRIVE | 1u << EXPECT_TX | 1u << COMPLETE_TX, 0},
    {"expect_tx", 1u << ARRIVE, WITH_TX},
    {"noComplete", 1u << ARRIVE, NO_COMPLETE},
    {"parity", 1u << WAIT, PARITY},
    {"release", 1u << ARRIVE, 0},
    {"acquire", 1u << WAIT, 0},
    {"relaxed", 1u << ARRIVE | 1u << WAIT | 1u << EXPECT_TX | 1u << COMPLETE_TX, RELAXED},
    {"cta", 1u << ARRIVE | 1u << WAIT | 1u << EXPECT_TX | 1u << COMPLETE_TX, 0},
    {"cluster", 1u << ARRIVE | 1u << WAIT | 1u << EXPECT_TX | 1u << COMPLETE_TX, 0},
};

static bool bind_mbarrier(ptx_instr *instr, char *error, size_t error_size) {
    size_t a = 0;
    const size_t num_actions = sizeof(ACTIONS) / sizeof(*ACTIONS);
    while (a < num_actions && (instr->num_modifiers == 0 || strcmp(instr->modifiers[0], ACTIONS[a].name) != 0))
        a++;
    if (a == num_actions) {
        snprintf(error, error_size, "mbarrier.%s is not implemented",
                 instr->num_modifiers == 0 ? "" : instr->modifiers[0]);
        return false;
    }
    uint64_t flags = ACTIONS[a].flags;
    for (int i = 1; i < instr->num_modifiers; i++) {
        size_t m = 0;
        const size_t num_modifiers = sizeof(MODIFIERS) / sizeof(*MODIFIERS);
        while (m < num_modifiers && (strcmp(instr->modifiers[i], MODIFIERS[m].name) != 0 ||
                                     !(MODIFIERS[m].actions >> ACTIONS[a].action & 1)))
            m++;
        if (m == num_modifiers) {
            snprintf(error, error_size, "mbarrier.%s: .%s is not implemented", ACTIONS[a].name, instr->modifiers[i]);
            return false;
        }
        flags |= MODIFIERS[m].flags;
    }
    const int min = flags & (WITH_TX | NO_COMPLETE) ? 3 : ACTIONS[a].min_operands;
    if (instr->num_operands < min || instr->num_operands > ACTIONS[a].max_operands ||
        (ACTIONS[a].address >= 0 && instr->operands[ACTIONS[a].address].kind != PTX_OPERAND_ADDRESS)) {
        snprintf(error, error_size, "mbarrier.%s: wrong operands", ACTIONS[a].name);
        return false;
    }
    instr->exec = ACTIONS[a].exec;
    instr->data[0] = ACTIONS[a].action;
    instr->data[1] = flags;
    return true;
}

const sim_op sim_ops_barrier[] = {{"mbarrier", bind_mbarrier}, {NULL, NULL}};
