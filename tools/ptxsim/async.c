/* SPDX-License-Identifier: MIT
 * The queue of asynchronous operations of a CTA, and what else belongs to them (struct sim_async_state). */
#include "async.h"

#include <stdlib.h>
#include <string.h>

#include "tmem.h"

struct sim_async_state *sim_async_state_of(sim_warp *warp, const ptx_instr *instr) {
    sim_cta *cta = warp->cta;
    if (cta->async_state != NULL)
        return cta->async_state;
    if (cta->num_warps > SIM_MAX_WARPS) {
        sim_fault(warp, instr, -1, "the CTA has %d warps; at most %d are possible", cta->num_warps, SIM_MAX_WARPS);
        return NULL;
    }
    struct sim_async_state *state = calloc(1, sizeof(*state));
    if (state != NULL) {
        state->writer = calloc(cta->shared_bytes + 1, 1);
        state->mbarriers = calloc(cta->shared_bytes / 8 + 1, sizeof(*state->mbarriers));
    }
    if (state == NULL || state->writer == NULL || state->mbarriers == NULL) {
        if (state != NULL) {
            free(state->writer);
            free(state->mbarriers);
            free(state);
        }
        sim_fault(warp, instr, -1, "the simulator is out of memory");
        return NULL;
    }
    cta->async_state = state;
    return state;
}

struct sim_async *sim_async_new(sim_warp *warp, const ptx_instr *instr, uint32_t mask, size_t size,
                                sim_async_kind kind) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    struct sim_async *op = state != NULL ? calloc(1, size) : NULL;
    if (op == NULL) {
        if (state != NULL)
            sim_fault(warp, instr, -1, "the simulator is out of memory");
        return NULL;
    }
    op->kind = kind;
    op->warp = warp;
    op->instr = instr;
    op->mask = mask;
    op->lane = mask == 0 ? -1 : __builtin_ctz(mask);
    race_unit_issue(&op->unit, warp, mask);
    if (kind == SIM_ASYNC_COPY || kind == SIM_ASYNC_BULK_STORE) {
        const sim_group_kind groups = kind == SIM_ASYNC_COPY ? SIM_GROUP_COPY : SIM_GROUP_BULK;
        memcpy(op->group, state->groups[groups][warp->index], sizeof(op->group));
    }
    return op;
}

void sim_async_discard(struct sim_async *op) {
    race_unit_free(op->warp->cta, &op->unit);
    if (op->destroy != NULL)
        op->destroy(op);
    free(op);
}

/* Mostly short delays, now and then long ones: a fixed chance per call would hardly ever let an operation be overtaken
 * by many others. */
static unsigned random_delay(sim_cta *cta) {
    const uint64_t random = sim_random(cta);
    return (unsigned)(random >> 8) % (1u << random % 8);
}

void sim_async_queue(sim_cta *cta, struct sim_async *op) {
    op->delay = random_delay(cta);
    struct sim_async **end = &cta->pending;
    while (*end != NULL)
        end = &(*end)->next;
    op->next = NULL;
    *end = op;
}

bool sim_async_outstanding(const sim_warp *warp, int lane, unsigned kinds, uint32_t limit, bool read_only) {
    for (const struct sim_async *op = warp->cta->pending; op != NULL; op = op->next) {
        if (op->warp == warp && (kinds >> op->kind & 1) && (op->mask >> lane & 1) && op->group[lane] < limit &&
            !(read_only && op->read_done))
            return true;
    }
    return false;
}

/* ---- Bulk stores that have been done, until their lane waits for them ------------------------------------------- */

struct sim_finished {
    const sim_warp *warp;
    int lane;
    uint32_t group;
    race_done read, written;
};

static void note_finished(sim_cta *cta, struct sim_async *op) {
    struct sim_async_state *state = cta->async_state;
    if (op->kind != SIM_ASYNC_BULK_STORE || op->unit.clock == NULL)
        return;
    if (state->num_finished == state->finished_capacity) {
        const size_t capacity = state->finished_capacity == 0 ? 32 : 2 * state->finished_capacity;
        struct sim_finished *grown = realloc(state->finished, capacity * sizeof(*grown));
        if (grown == NULL) /* its accesses will look as if nobody had waited for them */
            return;
        state->finished = grown;
        state->finished_capacity = capacity;
    }
    state->finished[state->num_finished++] = (struct sim_finished){.warp = op->warp,
                                                                   .lane = op->lane,
                                                                   .group = op->group[op->lane],
                                                                   .read = op->read,
                                                                   .written = race_unit_finish(cta, &op->unit)};
}

void sim_async_observe(sim_warp *warp, int lane, uint32_t limit, bool read_only) {
    struct sim_async_state *state = warp->cta->async_state;
    const uint32_t bit = UINT32_C(1) << lane;
    for (size_t i = 0; i < state->num_finished;) {
        struct sim_finished *f = &state->finished[i];
        if (f->warp != warp || f->lane != lane || f->group >= limit) {
            i++;
            continue;
        }
        race_observe(warp, bit, read_only ? f->read : f->written);
        if (read_only)
            i++;
        else
            *f = state->finished[--state->num_finished];
    }
    for (const struct sim_async *op = warp->cta->pending; op != NULL && read_only; op = op->next) {
        if (op->kind == SIM_ASYNC_BULK_STORE && op->warp == warp && op->lane == lane && op->read_done &&
            op->group[lane] < limit)
            race_observe(warp, bit, op->read);
    }
}

/* ---- The queue ------------------------------------------------------------------------------------------------- */

/* One round over the queue, oldest first. */
static bool progress_once(sim_cta *cta, bool all) {
    bool moved = false;
    struct sim_async **link = &cta->pending;
    while (*link != NULL && !cta->launch->stop) {
        struct sim_async *op = *link;
        if (!all && op->delay > 0) {
            op->delay--;
            link = &op->next;
            continue;
        }
        const sim_async_step step = op->step(cta, op);
        moved = moved || step != SIM_ASYNC_BLOCKED;
        if (step == SIM_ASYNC_DONE) {
            *link = op->next;
            note_finished(cta, op);
            sim_async_discard(op);
            continue;
        }
        if (step == SIM_ASYNC_MOVED)
            op->delay = random_delay(cta);
        link = &op->next;
    }
    return moved;
}

bool sim_async_progress(sim_cta *cta, bool all) {
    bool moved = false;
    while (progress_once(cta, all)) {
        moved = true;
        if (!all)
            break;
    }
    return moved;
}

bool sim_async_exit(sim_cta *cta) {
    for (const struct sim_async *op = cta->pending; op != NULL; op = op->next) {
        if (op->read_done)
            continue;
        sim_fault(op->warp, op->instr, op->lane,
                  op->kind == SIM_ASYNC_WGMMA     ? "the CTA has exited without waiting for this product"
                  : op->kind == SIM_ASYNC_TCGEN05 ? "the CTA has exited without waiting for this operation"
                                                  : "the CTA has exited while this copy still used its shared memory");
        return false;
    }
    if (!tmem_check_exit(cta))
        return false;
    sim_async_progress(cta, true);
    return !cta->launch->stop;
}

void sim_async_free(sim_cta *cta) {
    sim_wgmma_free(cta);
    tmem_free(cta);
    while (cta->pending != NULL) {
        struct sim_async *op = cta->pending;
        cta->pending = op->next;
        sim_async_discard(op);
    }
    if (cta->async_state != NULL) {
        free(cta->async_state->writer);
        free(cta->async_state->mbarriers);
        free(cta->async_state->finished);
        free(cta->async_state);
        cta->async_state = NULL;
    }
}
