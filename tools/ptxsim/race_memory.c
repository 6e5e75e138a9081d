/* SPDX-License-Identifier: MIT
 * Which accesses the bytes of a CTA's memories have seen last. */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "race_claim.h"

/* ---- Pages ---- */

static void release_reads(struct sim_race *race, race_reads *reads) {
    for (uint32_t i = reads->next; i != 0;) {
        const uint32_t next = race->reads[i].next;
        race->reads[i].next = race->free_reads;
        race->free_reads = i;
        i = next;
    }
    *reads = (race_reads){0};
}

static uint32_t new_reads(struct sim_race *race) {
    const uint32_t index = race->free_reads;
    if (index != 0) {
        race->free_reads = race->reads[index].next;
        return index;
    }
    if (race->num_reads >= race->reads_capacity) {
        const uint32_t capacity = race->reads_capacity == 0 ? 1024 : 2 * race->reads_capacity;
        race_reads *reads = realloc(race->reads, capacity * sizeof(*reads));
        if (reads == NULL)
            return 0;
        race->reads = reads;
        race->reads_capacity = capacity;
    }
    return race->num_reads++;
}

/* The same list again. What memory is too short for is forgotten. */
static uint32_t copy_list(struct sim_race *race, uint32_t list) {
    uint32_t first = 0, last = 0;
    for (; list != 0; list = race->reads[list].next) {
        const uint32_t index = new_reads(race);
        if (index == 0)
            break;
        race->reads[index] = race->reads[list];
        race->reads[index].next = 0;
        if (last != 0)
            race->reads[last].next = index;
        else
            first = index;
        last = index;
    }
    return first;
}

static bool reserve(race_page *page, unsigned shift) {
    const size_t cells = (size_t)1 << (RACE_PAGE_SHIFT - shift);
    if (cells > page->capacity) {
        race_cell *grown = realloc(page->cells, cells * sizeof(*grown));
        if (grown == NULL)
            return false;
        page->cells = grown;
        page->capacity = cells;
    }
    page->shift = shift;
    return true;
}

/* Cells for fewer bytes each, from the last one on, because they take the place of the old ones. */
static bool refine(struct sim_race *race, race_page *page, unsigned shift) {
    const unsigned parts = 1u << (page->shift - shift);
    const size_t cells = (size_t)1 << (RACE_PAGE_SHIFT - page->shift);
    if (!reserve(page, shift))
        return false;
    for (size_t i = cells; i-- > 0;) {
        const race_cell old = page->cells[i];
        for (unsigned part = parts; part-- > 0;) {
            race_cell *cell = &page->cells[i * parts + part];
            *cell = old;
            if (part != 0 && old.reads.next != 0)
                cell->reads.next = copy_list(race, old.reads.next);
        }
    }
    return true;
}

/* Log2 of the bytes that divide both, as the shadow has it: 4, 2 or 0. */
static inline unsigned shift_for(size_t offset, size_t size) {
    const size_t both = offset | size;
    return (both & 15) == 0 ? 4 : (both & 3) == 0 ? 2 : 0;
}

static race_page *page_for(race_memory *memory, size_t offset, size_t size) {
    race_page *page = &memory->pages[offset >> RACE_PAGE_SHIFT];
    if (page->generation != memory->race->generation) {
        if (!reserve(page, RACE_COARSE))
            return NULL;
        memset(page->cells, 0, sizeof(race_cell) << (RACE_PAGE_SHIFT - RACE_COARSE));
        page->generation = memory->race->generation;
        page->strong_writes = false;
    }
    const unsigned shift = shift_for(offset, size);
    return shift >= page->shift || refine(memory->race, page, shift) ? page : NULL;
}

/* ---- Cells ---- */

/* A lane of the reads that the party does not know; -1 if it knows all. */
static int unknown_lane(const race_party *party, const race_reads *reads) {
    const uint32_t who = race_who(reads->entry), time = race_time(reads->entry);
    if (who >= RACE_UNIT_WHO) {
        const uint32_t place = party->warp->cta->race->threads + who - RACE_UNIT_WHO;
        return race_knows(party, place, time) ? -1 : 0;
    }
    const uint32_t first = who * SIM_LANES;
    for (uint32_t rest = reads->lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (!race_knows(party, first + (uint32_t)lane, time))
            return lane;
    }
    return -1;
}

static inline bool conflict(unsigned a, unsigned b) {
    return ((a | b) & RACE_WRITE) != 0 && (a & b & RACE_STRONG) == 0;
}

/* The lanes of one instruction may write the same value to the same bytes, which hardware defines; whether it is the
 * same is for the caller to see. */
static bool is_twin(const struct sim_race *race, const race_party *party, race_entry write, unsigned kind) {
    return (kind & (RACE_WRITE | RACE_STRONG)) == RACE_WRITE && race_time(write) == race->now &&
           party->place < race->threads && race_who(write) / SIM_LANES == party->place / SIM_LANES &&
           (write & UINT16_MAX) == race_instr_index(race->cta, party->instr);
}

static bool check(struct sim_race *race, const race_memory *memory, const race_page *page, const race_party *party,
                  const race_cell *cell, unsigned kind, size_t offset, size_t size) {
    const race_entry write = cell->write;
    if (write != 0 && !race_knows(party, race_who(write), race_time(write))) {
        if (!is_twin(race, party, write, kind))
            return race_fault(party, memory->name, offset, size, kind, write, true, 0, race->cta->linear_id);
        race->twins = true;
    }
    if (!(kind & RACE_WRITE) && !page->strong_writes)
        return true;
    for (const race_reads *reads = &cell->reads; reads->entry != 0; reads = &race->reads[reads->next]) {
        const int lane = conflict(kind, race_kind(reads->entry)) ? unknown_lane(party, reads) : -1;
        if (lane >= 0 && !race_claim_excuses(race, party, memory, offset, kind, reads->entry))
            return race_fault(party, memory->name, offset, size, kind, reads->entry, false, lane, race->cta->linear_id);
        if (reads->next == 0)
            break;
    }
    return true;
}

/* Keeps a read or strong access: older ones of the same lanes and kind need not be kept, as who is ordered after the
 * new one is ordered after them. Of reads with claims that the party knows, the new one keeps track. */
static void keep_read(struct sim_race *race, race_cell *cell, const race_party *party, race_entry entry, bool claims) {
    const uint64_t same = UINT64_C(0xffff) << 16; /* who and kind */
    uint32_t at = 0;
    race_reads *reads = &cell->reads, *empty = NULL;
    for (;; reads = &race->reads[at]) {
        if (reads->entry == 0 || reads->lanes == 0) {
            empty = empty != NULL ? empty : reads;
        } else if (((reads->entry ^ entry) & same) == 0) {
            if (race_time(reads->entry) == race_time(entry) || (reads->lanes & ~party->lanes) == 0) {
                reads->entry = entry;
                reads->lanes |= party->lanes;
                return;
            }
            reads->lanes &= ~party->lanes;
        } else if (claims && unknown_lane(party, reads) < 0 && race_claim_follows(race, reads->entry)) {
            reads->entry = entry;
            return;
        }
        if (reads->next == 0)
            break;
        at = reads->next;
    }
    if (empty == NULL) {
        const uint32_t index = new_reads(race);
        if (index == 0)
            return;
        reads = at == 0 ? &cell->reads : &race->reads[at]; /* the pool may have moved */
        reads->next = index;
        empty = &race->reads[index];
        empty->next = 0;
    }
    empty->entry = entry;
    empty->lanes = party->lanes;
}

static bool access_bytes(race_memory *memory, const race_party *party, size_t offset, size_t size, unsigned kind) {
    struct sim_race *race = memory->race;
    const uint32_t instr = race_instr_index(race->cta, party->instr);
    const bool is_write = (kind & (RACE_WRITE | RACE_STRONG)) == RACE_WRITE;
    const race_entry entry = race_pack(party->time, is_write ? party->place : party->who, kind, instr);
    while (size > 0) {
        const size_t in_page = ((size_t)1 << RACE_PAGE_SHIFT) - (offset & (((size_t)1 << RACE_PAGE_SHIFT) - 1));
        const size_t part = size < in_page ? size : in_page;
        race_page *page = page_for(memory, offset, part);
        if (page == NULL) /* no memory: this access is not seen */
            return true;
        const size_t first = (offset & (((size_t)1 << RACE_PAGE_SHIFT) - 1)) >> page->shift;
        for (size_t i = 0; i < part >> page->shift; i++) {
            race_cell *cell = &page->cells[first + i];
            /* Most accesses find what their party, or its warp at the same time, did before. */
            if (!is_write && cell->write == 0 && cell->reads.next == 0 && (kind & RACE_WRITE) == 0 &&
                cell->reads.entry == entry && (kind & RACE_CHECK) == 0) {
                cell->reads.lanes |= party->lanes;
                continue;
            }
            if (!check(race, memory, page, party, cell, kind, offset + (i << page->shift), (size_t)1 << page->shift))
                return false;
            if (kind & RACE_CHECK)
                continue;
            if (is_write) {
                cell->write = entry;
                if (cell->reads.entry != 0 || cell->reads.next != 0)
                    release_reads(race, &cell->reads);
            } else {
                page->strong_writes |= (kind & RACE_WRITE) != 0;
                keep_read(race, cell, party, entry, (kind & RACE_QUIET) != 0);
            }
        }
        offset += part;
        size -= part;
    }
    return true;
}

/* ---- Interface ---- */

bool race_access(race_memory *memory, sim_warp *warp, const ptx_instr *instr, int lane, size_t offset, size_t size,
                 unsigned kind) {
    if (memory == NULL)
        return true;
    const race_party party = race_lane_party(memory->race, warp, instr, lane);
    return party.clock == NULL || access_bytes(memory, &party, offset, size, kind);
}

bool race_unit_access(race_memory *memory, const struct sim_async *op, size_t offset, size_t size, unsigned kind) {
    if (memory == NULL || op->unit.clock == NULL)
        return true;
    const race_party party = race_unit_party(memory->race, op);
    return access_bytes(memory, &party, offset, size, kind);
}

bool race_copy_access(race_memory *memory, const struct sim_async *op, int lane, race_copy_unit *unit, size_t offset,
                      size_t size) {
    if (memory == NULL || unit->clock == NULL || !memory->race->has_copies)
        return true;
    const race_party party = {.clock = unit->clock,
                              .time = unit->group,
                              .place = race_copy_done(op->warp, lane, 1).place,
                              .also = (uint32_t)op->warp->index * SIM_LANES + (uint32_t)lane,
                              .also_until = unit->time,
                              .warp = op->warp,
                              .instr = op->instr,
                              .lane = lane};
    return access_bytes(memory, &party, offset, size, RACE_WRITE);
}

race_memory *race_shared(sim_cta *cta) {
    return cta->race != NULL ? &cta->race->shared : NULL;
}

bool race_memory_init(race_memory *memory, struct sim_race *race, const char *name, size_t bytes) {
    *memory = (race_memory){.race = race, .name = name, .bytes = bytes};
    memory->num_pages = (bytes >> RACE_PAGE_SHIFT) + 1;
    memory->pages = calloc(memory->num_pages, sizeof(*memory->pages));
    return memory->pages != NULL;
}

void race_memory_destroy(race_memory *memory) {
    for (size_t i = 0; memory->pages != NULL && i < memory->num_pages; i++)
        free(memory->pages[i].cells);
    free(memory->pages);
    memory->pages = NULL;
}

race_memory *race_memory_new(sim_cta *cta, const char *name, size_t bytes) {
    struct sim_race *race = cta->race;
    race_memory *memory = race != NULL ? calloc(1, sizeof(*memory)) : NULL;
    if (memory == NULL || !race_memory_init(memory, race, name, bytes)) {
        free(memory);
        return NULL;
    }
    memory->next = race->more;
    race->more = memory;
    return memory;
}

void race_memory_reset(struct sim_race *race) {
    while (race->more != NULL) {
        race_memory *next = race->more->next;
        race_memory_destroy(race->more);
        free(race->more);
        race->more = next;
    }
    race->num_reads = 1;
    race->free_reads = 0;
}
