/* SPDX-License-Identifier: MIT
 * Allocation of tensor memory (PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit").
 *
 * CTAs run one at a time. That another one on the same multiprocessor holds columns is made up: now and then the first
 * allocation of a CTA finds some taken, which gives it other columns, or makes it wait for a while. */
#include "tmem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALLOCATIONS = TMEM_COLUMNS / TMEM_UNIT };

tmem *tmem_of(sim_warp *warp, const ptx_instr *instr) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL || state->tmem != NULL)
        return state != NULL ? state->tmem : NULL;
    tmem *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        sim_fault(warp, instr, -1, "the simulator is out of memory");
        return NULL;
    }
    memset(t->cells, 0xa5, sizeof(t->cells));
    state->tmem = t;
    return t;
}

void tmem_free(sim_cta *cta) {
    tmem *t = tmem_if_any(cta);
    if (t == NULL)
        return;
    for (int w = 0; w < SIM_MAX_WARPS; w++) {
        free(t->warps[w].owned);
        race_unit_free(cta, &t->warps[w].reader);
    }
    free(t->mbarriers);
    free(t);
    cta->async_state->tmem = NULL;
}

bool tmem_check_exit(sim_cta *cta) {
    const tmem *t = tmem_if_any(cta);
    for (int i = 0; t != NULL && i < ALLOCATIONS; i++) {
        const tmem_allocation *a = &t->allocations[i];
        if (a->columns == 0)
            continue;
        sim_fault(&cta->warps[a->warp], a->instr, -1,
                  "the CTA has exited without tcgen05.dealloc of %d columns of tensor memory, from column %d on",
                  a->columns, a->first);
        return false;
    }
    return true;
}

/* ---- Allocating ------------------------------------------------------------------------------------------------ */

static bool overlaps(const tmem_allocation *a, int first, int columns) {
    return a->columns != 0 && first < a->first + a->columns && a->first < first + columns;
}

static bool is_free(const tmem *t, int first, int columns) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (overlaps(&t->allocations[i], first, columns))
            return false;
    }
    return !overlaps(&t->neighbour, first, columns);
}

static bool any_live(const tmem *t, bool exclusive) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (t->allocations[i].columns != 0 && (!exclusive || t->allocations[i].exclusive))
            return true;
    }
    return !exclusive && t->neighbour.columns != 0;
}

static sim_async_step neighbour_step(sim_cta *cta, struct sim_async *op) {
    (void)op;
    cta->async_state->tmem->neighbour.columns = 0;
    return SIM_ASYNC_DONE;
}

/* A neighbour allocates as many columns as this CTA, so that the two may fit or not. */
static bool invent_neighbour(sim_warp *warp, const ptx_instr *instr, tmem *t, int columns, bool exclusive,
                             int capacity) {
    const uint64_t random = sim_random(warp->cta);
    if (random % 4 != 0)
        return true;
    const int places = exclusive ? 1 : capacity / columns;
    const int first = (int)(random >> 8) % places * columns;
    struct sim_async *op = sim_async_new(warp, instr, 0, sizeof(*op), SIM_ASYNC_NEIGHBOUR);
    if (op == NULL)
        return false;
    t->neighbour = (tmem_allocation){.first = first, .columns = columns, .exclusive = exclusive, .warp = -1};
    op->step = neighbour_step;
    op->read_done = true;
    sim_async_queue(warp->cta, op);
    return true;
}

static bool check_columns(sim_warp *warp, const ptx_instr *instr, uint32_t columns, bool exclusive, int capacity) {
    if (exclusive) {
        if (columns != 0 && columns % TMEM_UNIT == 0 && columns <= (uint32_t)capacity)
            return true;
        sim_fault(warp, instr, -1, "%" PRIu32 " columns: a multiple of 32 from 32 to %d is accepted", columns,
                  capacity);
        return false;
    }
    if (columns >= TMEM_UNIT && columns <= TMEM_SHARED_COLUMNS && (columns & (columns - 1)) == 0)
        return true;
    sim_fault(warp, instr, -1, "%" PRIu32 " columns: a power of two from 32 to %d is accepted", columns,
              TMEM_SHARED_COLUMNS);
    return false;
}

int tmem_allocate(sim_warp *warp, const ptx_instr *instr, uint32_t columns, bool exclusive, int capacity) {
    tmem *t = tmem_of(warp, instr);
    if (t == NULL || !check_columns(warp, instr, columns, exclusive, capacity))
        return -2;
    if (t->relinquished) {
        sim_fault(warp, instr, -1, "allocates after tcgen05.relinquish_alloc_permit");
        return -2;
    }
    if (t->last_columns != 0 && (int)columns > t->last_columns) {
        sim_fault(warp, instr, -1, "allocates %" PRIu32 " columns after %d: later allocations must not be larger",
                  columns, t->last_columns);
        return -2;
    }
    if (t->last_columns == 0 && t->neighbour.warp == 0) { /* the first one, not tried before */
        t->neighbour.warp = -1;
        if (!invent_neighbour(warp, instr, t, (int)columns, exclusive, exclusive ? capacity : TMEM_SHARED_COLUMNS))
            return -2;
    }
    if (any_live(t, true) || (t->neighbour.columns != 0 && t->neighbour.exclusive) || (exclusive && any_live(t, false)))
        return -1;
    const int step = exclusive ? capacity : (int)columns;
    for (int first = 0; first + (int)columns <= (exclusive ? capacity : TMEM_SHARED_COLUMNS); first += step) {
        if (!is_free(t, first, (int)columns))
            continue;
        int i = 0;
        while (t->allocations[i].columns != 0)
            i++;
        t->allocations[i] = (tmem_allocation){
            .first = first, .columns = (int)columns, .exclusive = exclusive, .warp = warp->index, .instr = instr};
        t->last_columns = (int)columns;
        return first;
    }
    return -1;
}

/* ---- Releasing ------------------------------------------------------------------------------------------------- */

static bool same(const tmem_op *a, const tmem_op *b) {
    return a->type == b->type && a->warp == b->warp && a->number == b->number;
}

/* An operation under way that touches some of the columns. */
static const struct sim_async *user_of(const sim_cta *cta, const tmem *t, int first, int columns) {
    for (const struct sim_async *pending = cta->pending; pending != NULL; pending = pending->next) {
        const tmem_op *op = &((const tmem_pending *)pending)->op;
        if (pending->kind != SIM_ASYNC_TCGEN05 || op->type == TMEM_NOTHING)
            continue;
        for (int i = 0; i < columns * TMEM_GROUPS; i++) {
            const tmem_cells *cells = &t->accesses[first + i / TMEM_GROUPS][i % TMEM_GROUPS];
            bool uses = same(&cells->writer, op);
            for (int r = 0; r < TMEM_READERS; r++)
                uses = uses || same(&cells->readers[r], op);
            if (uses)
                return pending;
        }
    }
    return NULL;
}

bool tmem_release(sim_warp *warp, const ptx_instr *instr, uint32_t address, uint32_t columns, bool exclusive) {
    tmem *t = tmem_of(warp, instr);
    if (t == NULL)
        return false;
    tmem_allocation *found = NULL;
    for (int i = 0; i < ALLOCATIONS; i++) {
        tmem_allocation *a = &t->allocations[i];
        if (a->columns != 0 && (uint32_t)a->first == address && (uint32_t)a->columns == columns)
            found = a;
    }
    if (found == NULL) {
        sim_fault(warp, instr, -1,
                  "address %#" PRIx32 " with %" PRIu32 " columns is no allocation of this CTA that is live", address,
                  columns);
        return false;
    }
    if (found->exclusive != exclusive) {
        sim_fault(warp, instr, -1, "what was allocated %s .exclusive must be released so",
                  found->exclusive ? "with" : "without");
        return false;
    }
    if (found->warp != warp->index) {
        sim_fault(warp, instr, -1, "warp %d has allocated these columns, and must release them", found->warp);
        return false;
    }
    const struct sim_async *user = user_of(warp->cta, t, found->first, found->columns);
    if (user != NULL) {
        sim_fault(warp, instr, -1, "releases columns that warp %d's tcgen05.%s of line %d is still using",
                  user->warp->index, user->instr->modifiers[0], user->instr->line);
        return false;
    }
    const tmem_op *last = tmem_unobserved(t, found->first, found->columns);
    if (last != NULL) {
        sim_fault(warp, instr, -1,
                  "releases columns without a wait for warp %d's tcgen05.%s of line %d, which uses them", last->warp,
                  last->instr->modifiers[0], last->instr->line);
        return false;
    }
    memset(t->accesses[found->first], 0, (size_t)found->columns * sizeof(t->accesses[0]));
    memset(t->written[found->first], 0, (size_t)found->columns * sizeof(t->written[0]));
    memset(t->cells[found->first], 0xa5, (size_t)found->columns * sizeof(t->cells[0]));
    found->columns = 0;
    return true;
}
