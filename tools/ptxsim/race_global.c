/* SPDX-License-Identifier: MIT
 * Which accesses global memory has seen in this launch. CTAs run on several host threads, so that a page has a lock.
 *
 * Of the reads since the last write those of every party are kept: two in the cell, more of them in a table. Once all
 * of it takes MAX_SHADOW bytes, neither further pages are watched nor further readers kept. */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "race_global.h"

enum { BUCKETS = 1 << 16, KEPT = 2 };
#define DEVICE_BIT UINT32_C(0x80000000) /* in reads.cta: strong at device scope */
#define MAX_SHADOW ((size_t)1 << 30)    /* further pages are not watched */

typedef struct global_reads {
    race_entry entry;
    uint32_t lanes, cta;
} global_reads;

/* More of them: open addressing by CTA, warp or unit, and kind. Of the same ones there are several if their lanes read
 * at different times. Places without lanes are free, but searches go on behind those that have had some (cta is kept).
 */
typedef struct reader_table {
    uint32_t capacity, used; /* a power of two; places that have or had lanes */
    bool has_writes;         /* strong ones are among them */
    global_reads places[];
} reader_table;

typedef struct global_cell {
    race_entry write;
    uint32_t write_cta;
    global_reads reads[KEPT];
    reader_table *more; /* NULL: none */
} global_cell;

typedef struct global_page {
    uint64_t key; /* address >> RACE_PAGE_SHIFT */
    struct global_page *next;
    bool lock;
    unsigned shift;
    global_cell *cells;
} global_page;

struct race_launch {
    const ptx_function *function;
    pthread_mutex_t lock; /* for adding pages, memory and locations */
    global_page *buckets[BUCKETS];
    size_t shadow_bytes;
    struct race_block *blocks;
    struct race_location *locations[RACE_LOCATION_BUCKETS];
};

/* ---- Launch ---- */

typedef struct race_block {
    struct race_block *next;
    uint64_t data[];
} race_block;

struct race_launch *race_launch_new(const ptx_function *function) {
    struct race_launch *launch = calloc(1, sizeof(*launch));
    if (launch != NULL) {
        launch->function = function;
        pthread_mutex_init(&launch->lock, NULL);
    }
    return launch;
}

void race_launch_free(struct race_launch *launch) {
    if (launch == NULL)
        return;
    for (size_t b = 0; b < BUCKETS; b++) {
        while (launch->buckets[b] != NULL) {
            global_page *page = launch->buckets[b];
            launch->buckets[b] = page->next;
            for (size_t i = 0; i < (size_t)1 << (RACE_PAGE_SHIFT - page->shift); i++)
                free(page->cells[i].more);
            free(page->cells);
            free(page);
        }
    }
    while (launch->blocks != NULL) {
        race_block *next = launch->blocks->next;
        free(launch->blocks);
        launch->blocks = next;
    }
    pthread_mutex_destroy(&launch->lock);
    free(launch);
}

void *race_launch_alloc(struct race_launch *launch, size_t bytes) {
    race_block *block = calloc(1, sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->next = launch->blocks;
    launch->blocks = block;
    return block->data;
}

void race_launch_lock(struct race_launch *launch) {
    pthread_mutex_lock(&launch->lock);
}

void race_launch_unlock(struct race_launch *launch) {
    pthread_mutex_unlock(&launch->lock);
}

struct race_location **race_launch_locations(struct race_launch *launch, uint64_t address) {
    return &launch->locations[(address >> 2) % RACE_LOCATION_BUCKETS];
}

/* ---- Pages ---- */

static global_page *find_page(struct race_launch *launch, uint64_t key) {
    global_page *page = __atomic_load_n(&launch->buckets[key % BUCKETS], __ATOMIC_ACQUIRE);
    while (page != NULL && page->key != key)
        page = page->next;
    return page;
}

/* NULL: out of memory, or of what is set aside for this. */
static global_page *page_of(struct race_launch *launch, uint64_t key) {
    global_page *page = find_page(launch, key);
    if (page != NULL)
        return page;
    const size_t bytes = sizeof(global_cell) << (RACE_PAGE_SHIFT - RACE_COARSE);
    pthread_mutex_lock(&launch->lock);
    page = find_page(launch, key);
    if (page == NULL && launch->shadow_bytes + bytes <= MAX_SHADOW) {
        page = calloc(1, sizeof(*page));
        global_cell *cells = calloc(1, bytes);
        if (page == NULL || cells == NULL) {
            free(page);
            free(cells);
            page = NULL;
        } else {
            *page =
                (global_page){.key = key, .shift = RACE_COARSE, .cells = cells, .next = launch->buckets[key % BUCKETS]};
            launch->shadow_bytes += bytes;
            __atomic_store_n(&launch->buckets[key % BUCKETS], page, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&launch->lock);
    return page;
}

static void lock_page(global_page *page) {
    while (__atomic_test_and_set(&page->lock, __ATOMIC_ACQUIRE))
        ;
}

static void unlock_page(global_page *page) {
    __atomic_clear(&page->lock, __ATOMIC_RELEASE);
}

/* ---- Readers ---- */

static size_t table_bytes(uint32_t capacity) {
    return sizeof(reader_table) + capacity * sizeof(global_reads);
}

static reader_table *new_table(struct race_launch *launch, uint32_t capacity) {
    const size_t bytes = table_bytes(capacity);
    if (__atomic_load_n(&launch->shadow_bytes, __ATOMIC_RELAXED) + bytes > MAX_SHADOW)
        return NULL;
    reader_table *table = calloc(1, bytes);
    if (table == NULL)
        return NULL;
    table->capacity = capacity;
    __atomic_add_fetch(&launch->shadow_bytes, bytes, __ATOMIC_RELAXED);
    return table;
}

static void free_table(struct race_launch *launch, reader_table *table) {
    if (table == NULL)
        return;
    __atomic_sub_fetch(&launch->shadow_bytes, table_bytes(table->capacity), __ATOMIC_RELAXED);
    free(table);
}

static uint32_t first_place(const reader_table *table, uint32_t cta, race_entry entry) {
    const uint64_t key = (uint64_t)cta << 16 | (entry >> 16 & 0xffff);
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (table->capacity - 1);
}

static bool same_reader(const global_reads *reads, uint32_t cta, race_entry entry) {
    return reads->cta == cta && ((reads->entry ^ entry) & UINT64_C(0xffff) << 16) == 0; /* who and kind */
}

/* Takes what the lanes have read before, which is older, out of `reads`. true: the new entry has its place there. */
static bool renew(global_reads *reads, const global_reads *now) {
    if (race_time(reads->entry) == race_time(now->entry) || (reads->lanes & ~now->lanes) == 0) {
        reads->entry = now->entry;
        reads->lanes |= now->lanes;
        return true;
    }
    reads->lanes &= ~now->lanes;
    return false;
}

/* Into a table that has room. */
static void put_reader(reader_table *table, const global_reads *now) {
    uint32_t at = first_place(table, now->cta, now->entry);
    global_reads *free_place = NULL;
    for (; table->places[at].entry != 0; at = (at + 1) & (table->capacity - 1)) {
        global_reads *reads = &table->places[at];
        if (reads->lanes == 0) {
            free_place = free_place != NULL ? free_place : reads;
        } else if (same_reader(reads, now->cta, now->entry) && renew(reads, now)) {
            return;
        }
    }
    if (free_place == NULL) {
        free_place = &table->places[at];
        table->used++;
    }
    *free_place = *now;
    table->has_writes |= (race_kind(now->entry) & RACE_WRITE) != 0;
}

static void keep_in_table(struct race_launch *launch, reader_table **table, const global_reads *now) {
    const uint32_t capacity = *table != NULL ? (*table)->capacity : 0;
    if (capacity == 0 || (*table)->used >= capacity / 4 * 3) {
        reader_table *grown = new_table(launch, capacity == 0 ? 8 : 2 * capacity);
        if (grown == NULL && (capacity == 0 || (*table)->used + 1 >= capacity))
            return;
        for (uint32_t i = 0; i < capacity && grown != NULL; i++) {
            if ((*table)->places[i].lanes != 0)
                put_reader(grown, &(*table)->places[i]);
        }
        if (grown != NULL) {
            free_table(launch, *table);
            *table = grown;
        }
    }
    put_reader(*table, now);
}

static bool refine(struct race_launch *launch, global_page *page, unsigned shift) {
    const size_t parts = (size_t)1 << (page->shift - shift);
    const size_t cells = (size_t)1 << (RACE_PAGE_SHIFT - page->shift);
    global_cell *fine = malloc(cells * parts * sizeof(*fine));
    if (fine == NULL)
        return false;
    for (size_t i = 0; i < cells * parts; i++) {
        const global_cell *old = &page->cells[i / parts];
        fine[i] = *old;
        if (old->more != NULL && i % parts != 0) {
            fine[i].more = new_table(launch, old->more->capacity);
            if (fine[i].more != NULL)
                memcpy(fine[i].more, old->more, table_bytes(old->more->capacity));
        }
    }
    free(page->cells);
    page->cells = fine;
    page->shift = shift;
    __atomic_add_fetch(&launch->shadow_bytes, cells * (parts - 1) * sizeof(*fine), __ATOMIC_RELAXED);
    return true;
}

/* ---- Cells ---- */

/* Up to which time the party knows the accesses of each place in a CTA; NULL: none. */
static const uint32_t *times_of(const race_party *party, uint32_t cta) {
    if (cta == party->warp->cta->linear_id)
        return party->clock->time;
    for (const race_foreign *f = party->clock->foreign; f != NULL; f = f->next) {
        if (f->cta == cta)
            return f->time;
    }
    return NULL;
}

/* A lane of reads that is not known; -1: all are. */
static int unknown_lane(const race_party *party, const global_reads *reads) {
    const uint32_t cta = reads->cta & ~DEVICE_BIT, who = race_who(reads->entry);
    const bool own = cta == party->warp->cta->linear_id;
    const uint32_t *times = times_of(party, cta);
    const uint32_t first =
        who >= RACE_UNIT_WHO ? party->warp->cta->race->threads + who - RACE_UNIT_WHO : who * SIM_LANES;
    for (uint32_t rest = reads->lanes; rest != 0; rest &= rest - 1) {
        const uint32_t place = first + (uint32_t)__builtin_ctz(rest);
        if (own && place == party->place)
            continue;
        if (times == NULL || times[place] < race_time(reads->entry))
            return __builtin_ctz(rest);
    }
    return -1;
}

typedef struct access {
    const race_party *party;
    unsigned kind;
    race_entry entry; /* as a write, or as reads */
    uint32_t cta;
    uint64_t address; /* of the cell, for a report */
    size_t size;
} access;

/* Whether a kept access may race with this one: one writes, and not both are strong at a scope that holds both. */
static bool conflict(const access *a, const global_reads *reads) {
    const unsigned other = race_kind(reads->entry);
    if (((a->kind | other) & RACE_WRITE) == 0)
        return false;
    if ((a->kind & other & RACE_STRONG) == 0)
        return true;
    const uint32_t cta = reads->cta & ~DEVICE_BIT;
    return cta != a->cta && !((a->kind & RACE_DEVICE) && (reads->cta & DEVICE_BIT));
}

static bool is_twin(const struct sim_race *race, const access *a, const global_cell *cell) {
    return (a->kind & (RACE_WRITE | RACE_STRONG)) == RACE_WRITE && cell->write_cta == a->cta &&
           race_time(cell->write) == race->now && a->party->place < race->threads &&
           race_who(cell->write) / SIM_LANES == a->party->place / SIM_LANES &&
           (cell->write & UINT16_MAX) == (a->entry & UINT16_MAX);
}

/* What races, for a report once the page is unlocked. */
typedef struct found {
    race_entry entry;
    bool is_place;
    int lane;
    uint32_t cta;
    bool proxy; /* ordered, but without a proxy fence */
} found;

/* Whether a proxy fence of the writer's warp, or of the reader's, lies between an ordinary write and a copy's read, or
 * the use as a tensor map. Of another CTA's write only the reader's fence is seen. */
static bool proxy_fenced(const struct sim_race *race, const access *a, const global_cell *cell) {
    const race_proxy proxy = a->kind & RACE_AS_MAP ? RACE_PROXY_TENSORMAP : RACE_PROXY_ASYNC;
    const uint32_t *fences = race->proxy_fences[proxy], place = race_who(cell->write), time = race_time(cell->write);
    const uint32_t mine = fences[a->party->warp->index % 32];
    if (place >= race->threads) /* a copy wrote it */
        return proxy == RACE_PROXY_ASYNC || mine != 0;
    if (cell->write_cta != a->cta)
        return mine != 0 || proxy == RACE_PROXY_ASYNC;
    return mine >= time || (proxy == RACE_PROXY_ASYNC && fences[place / SIM_LANES] >= time);
}

static bool check_reads(const access *a, const global_reads *reads, found *f) {
    const int lane = reads->lanes != 0 && conflict(a, reads) ? unknown_lane(a->party, reads) : -1;
    if (lane >= 0)
        *f = (found){reads->entry, false, lane, reads->cta & ~DEVICE_BIT, false};
    return lane < 0;
}

static bool check(struct sim_race *race, const access *a, const global_cell *cell, found *f) {
    const race_party *party = a->party;
    if (cell->write != 0 && !(cell->write_cta == a->cta && race_who(cell->write) == party->place)) {
        const uint32_t *times = times_of(party, cell->write_cta);
        if (times == NULL || times[race_who(cell->write)] < race_time(cell->write)) {
            if (!is_twin(race, a, cell)) {
                *f = (found){cell->write, true, 0, cell->write_cta, false};
                return false;
            }
            race->twins = true;
        }
    }
    if (cell->write != 0 && (a->kind & (RACE_BY_COPY | RACE_AS_MAP)) && !proxy_fenced(race, a, cell)) {
        *f = (found){.entry = cell->write, .cta = cell->write_cta, .proxy = true};
        return false;
    }
    for (int i = 0; i < KEPT; i++) {
        if (!check_reads(a, &cell->reads[i], f))
            return false;
    }
    const reader_table *more = cell->more;
    const bool in_table = more != NULL && ((a->kind & RACE_WRITE) || more->has_writes);
    for (uint32_t i = 0; in_table && i < more->capacity; i++) {
        if (!check_reads(a, &more->places[i], f))
            return false;
    }
    return true;
}

static void keep(struct race_launch *launch, const access *a, global_cell *cell) {
    if ((a->kind & (RACE_WRITE | RACE_STRONG)) == RACE_WRITE) {
        cell->write = a->entry;
        cell->write_cta = a->cta;
        memset(cell->reads, 0, sizeof(cell->reads));
        free_table(launch, cell->more);
        cell->more = NULL;
        return;
    }
    const global_reads now = {a->entry, a->party->lanes, a->cta | (a->kind & RACE_DEVICE ? DEVICE_BIT : 0)};
    global_reads *to = NULL;
    for (int i = 0; i < KEPT; i++) {
        global_reads *reads = &cell->reads[i];
        if (reads->lanes != 0 && same_reader(reads, now.cta, now.entry) && renew(reads, &now))
            return;
        if (reads->lanes == 0 && to == NULL)
            to = reads;
    }
    if (to != NULL && cell->more == NULL)
        *to = now;
    else
        keep_in_table(launch, &cell->more, &now);
}

static bool access_part(struct sim_race *race, global_page *page, access *a, uint64_t address, size_t size, found *f) {
    const size_t both = (size_t)(address | size);
    const unsigned shift = (both & 15) == 0 ? 4 : (both & 3) == 0 ? 2 : 0;
    bool ok = true;
    lock_page(page);
    if (shift < page->shift && !refine(race->launch, page, shift)) {
        unlock_page(page);
        return true;
    }
    const size_t first = (size_t)(address & (((uint64_t)1 << RACE_PAGE_SHIFT) - 1)) >> page->shift;
    for (size_t i = 0; i < size >> page->shift && ok; i++) {
        global_cell *cell = &page->cells[first + i];
        if (cell->write == 0 && cell->reads[0].entry == a->entry && cell->reads[0].cta == a->cta &&
            cell->reads[1].lanes == 0 && cell->more == NULL && (a->kind & (RACE_WRITE | RACE_CHECK)) == 0) {
            cell->reads[0].lanes |= a->party->lanes; /* reads of a warp at the same time */
            continue;
        }
        ok = check(race, a, cell, f);
        a->address = address + (i << page->shift);
        a->size = (size_t)1 << page->shift;
        if (ok && !(a->kind & RACE_CHECK))
            keep(race->launch, a, cell);
    }
    unlock_page(page);
    return ok;
}

/* ---- Launches before that have not been waited for -------------------------------------------------------------- */

/* An access of `earlier` with which one of that kind races; 0: none. */
static race_entry unfinished(const struct race_launch *earlier, uint64_t address, size_t size, unsigned kind) {
    for (uint64_t at = address; at < address + size;) {
        const uint64_t end = ((at >> RACE_PAGE_SHIFT) + 1) << RACE_PAGE_SHIFT;
        const uint64_t stop = end < address + size ? end : address + size;
        const global_page *page = find_page((struct race_launch *)(uintptr_t)earlier, at >> RACE_PAGE_SHIFT);
        for (; page != NULL && at < stop; at = (at >> page->shift << page->shift) + (UINT64_C(1) << page->shift)) {
            const global_cell *cell = &page->cells[(at & ((UINT64_C(1) << RACE_PAGE_SHIFT) - 1)) >> page->shift];
            if (cell->write != 0)
                return cell->write;
            const uint32_t readers = KEPT + (cell->more != NULL ? cell->more->capacity : 0);
            for (uint32_t i = 0; i < readers; i++) {
                const global_reads *reads = i < KEPT ? &cell->reads[i] : &cell->more->places[i - KEPT];
                if (reads->lanes != 0 && ((kind | race_kind(reads->entry)) & RACE_WRITE))
                    return reads->entry;
            }
        }
        at = stop;
    }
    return 0;
}

static bool check_before(struct sim_race *race, const race_party *party, uint64_t address, size_t size, unsigned kind) {
    const sim_launch *launch = race->cta->launch;
    for (int i = 0; i < launch->num_before; i++) {
        const race_entry entry = unfinished(launch->before[i], address, size, kind);
        if (entry == 0)
            continue;
        const ptx_function *function = launch->before[i]->function;
        const uint32_t index = entry & UINT16_MAX;
        sim_fault(party->warp, party->instr, party->lane,
                  "%s %zu bytes at global %#llx before griddepcontrol.wait, which kernel %s before it, maybe still "
                  "running, %s at PTX line %d: %.120s",
                  kind & RACE_WRITE ? "writes" : "reads", size, (unsigned long long)address, function->name,
                  race_kind(entry) & RACE_WRITE ? "writes" : "reads",
                  index < UINT16_MAX ? function->instrs[index].line : 0,
                  index < UINT16_MAX && function->instrs[index].text ? function->instrs[index].text : "");
        return false;
    }
    return true;
}

static bool access_bytes(struct sim_race *race, const race_party *party, uint64_t address, size_t size, unsigned kind) {
    const bool is_write = (kind & (RACE_WRITE | RACE_STRONG)) == RACE_WRITE;
    access a = {.party = party,
                .kind = kind,
                .cta = race->cta->linear_id,
                .entry = race_pack(party->time, is_write ? party->place : party->who, kind,
                                   race_instr_index(race->cta, party->instr))};
    if (race->cta->launch->num_before > 0 && party->clock->time[race->grid_place] == 0 &&
        !check_before(race, party, address, size, kind))
        return false;
    while (size > 0) {
        const uint64_t key = address >> RACE_PAGE_SHIFT;
        const uint64_t end = (key + 1) << RACE_PAGE_SHIFT;
        const size_t part = size < end - address ? size : (size_t)(end - address);
        if (race->last_page == NULL || race->last_key != key) {
            race->last_page = page_of(race->launch, key);
            race->last_key = key;
        }
        found f;
        if (race->last_page != NULL && !access_part(race, race->last_page, &a, address, part, &f))
            return f.proxy ? race_proxy_fault(party, a.address, a.size, kind, f.entry)
                           : race_fault(party, "global", a.address, a.size, kind, f.entry, f.is_place, f.lane, f.cta);
        address += part;
        size -= part;
    }
    return true;
}

bool race_access_global(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, size_t size,
                        unsigned kind) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL)
        return true;
    const race_party party = race_lane_party(race, warp, instr, lane);
    return party.clock == NULL || access_bytes(race, &party, address, size, kind);
}

bool race_unit_access_global(const struct sim_async *op, uint64_t address, size_t size, unsigned kind) {
    struct sim_race *race = op->warp->cta->race;
    if (race == NULL || op->unit.clock == NULL)
        return true;
    const race_party party = race_unit_party(race, op);
    return access_bytes(race, &party, address, size, kind);
}
