/* SPDX-License-Identifier: MIT
 * Which tcgen05 operations are ordered, and what must not be touched before (tmem.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tmem.h"

/* ---- Clocks ---------------------------------------------------------------------------------------------------- */

static void join(tmem_clock *into, const tmem_clock *from) {
    uint32_t *a = into->issued;
    const uint32_t *b = from->issued;
    for (size_t i = 0; i < sizeof(*into) / sizeof(*a); i++)
        a[i] = a[i] > b[i] ? a[i] : b[i];
}

void tmem_fence_before(tmem *t, const sim_warp *warp) {
    tmem_warp *w = &t->warps[warp->index];
    w->told.issued[warp->index] = w->issued;
    w->told.loaded[warp->index] = w->known.loaded[warp->index];
    w->told.stored[warp->index] = w->known.stored[warp->index];
}

void tmem_fence_after(tmem *t, const sim_warp *warp) {
    join(&t->warps[warp->index].known, &t->warps[warp->index].heard);
}

/* A commit is a fence::before_thread_sync, too. */
void tmem_commit_clock(const tmem *t, const sim_warp *warp, tmem_clock *clock) {
    const tmem_warp *w = &t->warps[warp->index];
    *clock = w->heard;
    join(clock, &w->told);
    clock->issued[warp->index] = clock->done[warp->index] = w->issued;
    clock->loaded[warp->index] = w->known.loaded[warp->index];
    clock->stored[warp->index] = w->known.stored[warp->index];
}

bool tmem_read_shared(const tmem_pending *op, size_t offset) {
    sim_warp *warp = op->base.warp;
    tmem_warp *w = &tmem_if_any(warp->cta)->warps[warp->index];
    if (w->reader.clock == NULL)
        race_unit_issue(&w->reader, warp, op->base.mask);
    /* With what this operation knows. */
    struct sim_async reader = op->base;
    reader.unit.place = w->reader.place;
    return race_unit_access(race_shared(warp->cta), &reader, offset, 16, RACE_READ);
}

void tmem_finish(sim_cta *cta, const tmem_pending *op) {
    tmem_warp *w = &tmem_if_any(cta)->warps[op->op.warp];
    w->finished = race_unit_finish(cta, &w->reader);
    for (struct sim_async *other = cta->pending; other != NULL; other = other->next) {
        tmem_commit *commit = (tmem_commit *)other;
        if (other->kind == SIM_ASYNC_TCGEN05 && commit->base.op.type == TMEM_NOTHING && other->warp == op->base.warp &&
            commit->clock.done[op->op.warp] > op->op.number)
            commit->finished = w->finished;
    }
}

static tmem_mbarrier *find_mbarrier(tmem *t, size_t offset, bool make) {
    for (size_t i = 0; i < t->num_mbarriers; i++) {
        if (t->mbarriers[i].offset == offset)
            return &t->mbarriers[i];
    }
    if (!make)
        return NULL;
    if (t->num_mbarriers == t->mbarrier_capacity) {
        const size_t capacity = t->mbarrier_capacity == 0 ? 16 : 2 * t->mbarrier_capacity;
        tmem_mbarrier *mbarriers = realloc(t->mbarriers, capacity * sizeof(*mbarriers));
        if (mbarriers == NULL)
            return NULL;
        t->mbarriers = mbarriers;
        t->mbarrier_capacity = capacity;
    }
    tmem_mbarrier *found = &t->mbarriers[t->num_mbarriers++];
    memset(found, 0, sizeof(*found));
    found->offset = offset;
    return found;
}

void tmem_tell_mbarrier(sim_cta *cta, const tmem_clock *clock, size_t offset) {
    tmem *t = tmem_if_any(cta);
    tmem_mbarrier *barrier = t != NULL ? find_mbarrier(t, offset, true) : NULL;
    if (barrier != NULL)
        join(&barrier->arriving, clock);
}

/* What a warp passes on by synchronising: what it has heard, and of its own what a fence has covered. */
static void passed_on(const tmem *t, const sim_warp *warp, tmem_clock *clock) {
    *clock = t->warps[warp->index].heard;
    join(clock, &t->warps[warp->index].told);
}

void tmem_arrive(sim_warp *warp, size_t offset) {
    const tmem *t = tmem_if_any(warp->cta);
    if (t == NULL)
        return;
    tmem_clock clock;
    passed_on(t, warp, &clock);
    tmem_tell_mbarrier(warp->cta, &clock, offset);
}

void tmem_phase_ended(sim_cta *cta, size_t offset) {
    tmem *t = tmem_if_any(cta);
    tmem_mbarrier *barrier = t != NULL ? find_mbarrier(t, offset, false) : NULL;
    if (barrier != NULL)
        join(&barrier->ended, &barrier->arriving);
}

void tmem_waited(sim_warp *warp, size_t offset) {
    tmem *t = tmem_if_any(warp->cta);
    const tmem_mbarrier *barrier = t != NULL ? find_mbarrier(t, offset, false) : NULL;
    if (barrier != NULL)
        join(&t->warps[warp->index].heard, &barrier->ended);
}

void tmem_arrive_named(sim_warp *warp, int id) {
    tmem *t = tmem_if_any(warp->cta);
    if (t == NULL)
        return;
    tmem_clock clock;
    passed_on(t, warp, &clock);
    join(&t->named[id], &clock);
}

void tmem_waited_named(sim_warp *warp, int id) {
    tmem *t = tmem_if_any(warp->cta);
    if (t != NULL)
        join(&t->warps[warp->index].heard, &t->named[id]);
}

/* ---- Order of operations --------------------------------------------------------------------------------------- */

tmem_op tmem_issue(tmem *t, const sim_warp *warp, const ptx_instr *instr, tmem_op_type type, uint32_t key) {
    tmem_warp *w = &t->warps[warp->index];
    uint32_t *counter = type == TMEM_LD ? &w->loads : type == TMEM_ST ? &w->stores : &w->issued;
    return (tmem_op){
        .type = (uint8_t)type, .warp = (uint8_t)warp->index, .number = (*counter)++, .key = key, .instr = instr};
}

/* The pairs that the section "Pipelined tcgen05 Instructions" lists. */
bool tmem_pipelined(const tmem_op *first, const tmem_op *second) {
    switch (first->type) {
    case TMEM_MMA:
        return (second->type == TMEM_MMA && first->key == second->key) || second->type == TMEM_SHIFT;
    case TMEM_CP:
    case TMEM_CP_4X256B:
        return second->type == TMEM_MMA;
    case TMEM_SHIFT:
        return second->type == TMEM_MMA || second->type == TMEM_CP_4X256B;
    default:
        return false;
    }
}

static bool has_completed(const tmem_clock *clock, const tmem_op *op) {
    const uint32_t *counts = op->type == TMEM_LD ? clock->loaded : op->type == TMEM_ST ? clock->stored : clock->done;
    return counts[op->warp] > op->number;
}

/* Copies and shifts need not be: the end of an mma that comes after them says as much. */
static bool observed(const tmem *t, const tmem_op *op) {
    bool seen = op->type != TMEM_MMA && op->type != TMEM_LD && op->type != TMEM_ST;
    for (int w = 0; w < SIM_MAX_WARPS && !seen; w++)
        seen = has_completed(&t->warps[w].known, op) || has_completed(&t->warps[w].heard, op);
    return seen;
}

const tmem_op *tmem_unobserved(const tmem *t, int first, int columns) {
    for (int c = first; c < first + columns; c++) {
        for (int g = 0; g < TMEM_GROUPS; g++) {
            const tmem_cells *cells = &t->accesses[c][g];
            if (!observed(t, &cells->writer))
                return &cells->writer;
            for (int i = 0; i < TMEM_READERS; i++) {
                if (!observed(t, &cells->readers[i]))
                    return &cells->readers[i];
            }
        }
    }
    return NULL;
}

/* Whether `before` comes before an operation that `op->warp` issues now. */
static bool ordered(const tmem *t, const tmem_op *before, const tmem_op *op) {
    const tmem_clock *known = &t->warps[op->warp].known;
    if (has_completed(known, before))
        return true;
    return tmem_pipelined(before, op) && (before->warp == op->warp || known->issued[before->warp] > before->number);
}

static const char *name_of(const tmem_op *op) {
    static const char *const names[] = {"", "mma", "cp", "cp", "shift", "ld", "st"};
    return names[op->type];
}

/* What is missing between two operations. */
static void explain(const tmem *t, const tmem_op *before, const tmem_op *op, char *text, size_t size) {
    const bool register_op = before->type == TMEM_LD || before->type == TMEM_ST;
    const tmem_warp *own = &t->warps[before->warp];
    const tmem_clock *heard = &t->warps[op->warp].heard;
    if (has_completed(heard, before) || (tmem_pipelined(before, op) && heard->issued[before->warp] > before->number))
        snprintf(text, size, "tcgen05.fence::after_thread_sync is missing");
    else if (register_op && !has_completed(&own->known, before))
        snprintf(text, size, "tcgen05.wait::%s is missing", name_of(before));
    else if (register_op)
        snprintf(text, size,
                 "tcgen05.fence::before_thread_sync there, a barrier, and tcgen05.fence::after_thread_sync here are "
                 "needed");
    else if (tmem_pipelined(before, op))
        snprintf(text, size,
                 "its warp must tell this one by tcgen05.fence::before_thread_sync and a barrier, followed by "
                 "tcgen05.fence::after_thread_sync");
    else
        snprintf(text, size,
                 "its completion has not been observed (tcgen05.commit, a wait for the mbarrier, then "
                 "tcgen05.fence::after_thread_sync)");
}

static bool fault_unordered(sim_warp *warp, int lane, const tmem_op *before, const tmem_op *op, uint32_t column,
                            int group, const char *what, bool wrote, bool write) {
    char missing[256];
    explain(tmem_if_any(warp->cta), before, op, missing, sizeof(missing));
    sim_fault(warp, op->instr, lane,
              "%s: %s column %" PRIu32 ", lanes %d to %d of tensor memory, which tcgen05.%s of warp %d at line %d %s: "
              "%s",
              what, write ? "writes" : "reads", column, 16 * group, 16 * group + 15, name_of(before), before->warp,
              before->instr->line, wrote ? "writes" : "reads", missing);
    return false;
}

/* ---- Accesses -------------------------------------------------------------------------------------------------- */

static bool check_allocated(sim_warp *warp, int lane, const tmem *t, const tmem_op *op, const tmem_area *area,
                            const char *what) {
    uint32_t end = area->column;
    bool found = end < TMEM_COLUMNS;
    while (found && end < area->column + area->columns) {
        found = false;
        for (int i = 0; i < TMEM_COLUMNS / TMEM_UNIT && !found; i++) {
            const tmem_allocation *a = &t->allocations[i];
            found = a->columns != 0 && end >= (uint32_t)a->first && end < (uint32_t)(a->first + a->columns);
            if (found)
                end = (uint32_t)(a->first + a->columns);
        }
    }
    if (found)
        return true;
    sim_fault(warp, op->instr, lane,
              "%s: columns [%" PRIu32 ", %" PRIu32 ") of tensor memory: the CTA has not allocated column %" PRIu32
              " (or has released it)",
              what, area->column, area->column + area->columns, end);
    return false;
}

static void note_reader(tmem_cells *cells, const tmem_op *op) {
    int place = 0;
    for (int i = 0; i < TMEM_READERS; i++) {
        const tmem_op *reader = &cells->readers[i];
        if (reader->type == TMEM_NOTHING || (reader->warp == op->warp && reader->type == op->type)) {
            place = i;
            break;
        }
    }
    cells->readers[place] = *op;
}

bool tmem_access(sim_warp *warp, int lane, const tmem_op *op, const tmem_area *area, bool write, const char *what) {
    tmem *t = tmem_if_any(warp->cta);
    if (!check_allocated(warp, lane, t, op, area, what))
        return false;
    for (uint32_t c = area->column; c < area->column + area->columns; c++) {
        for (int g = 0; g < TMEM_GROUPS; g++) {
            if (!(area->groups >> g & 1))
                continue;
            tmem_cells *cells = &t->accesses[c][g];
            if (cells->writer.type != TMEM_NOTHING && !ordered(t, &cells->writer, op))
                return fault_unordered(warp, lane, &cells->writer, op, c, g, what, true, write);
            if (!write) {
                note_reader(cells, op);
                continue;
            }
            for (int i = 0; i < TMEM_READERS && cells->readers[i].type != TMEM_NOTHING; i++) {
                if (!ordered(t, &cells->readers[i], op))
                    return fault_unordered(warp, lane, &cells->readers[i], op, c, g, what, false, write);
                cells->readers[i].type = TMEM_NOTHING;
            }
            cells->writer = *op;
        }
    }
    return true;
}
