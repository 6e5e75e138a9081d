/* SPDX-License-Identifier: MIT
 * Clocks of a CTA's parties, and how they are passed on. */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "race_claim.h"

/* ---- Clocks ---- */

/* A copy for one user; NULL only if memory is short, which then means "knows nothing" and is reported by the caller as
 * a race at worst. */
race_clock *race_clock_new(struct sim_race *race, const race_clock *from) {
    race_clock *clock = race->free;
    if (clock != NULL) {
        race->free = clock->next_free;
    } else {
        clock = malloc(sizeof(*clock) + race->places * sizeof(uint32_t));
        if (clock == NULL)
            return NULL;
        clock->next = race->clocks;
        race->clocks = clock;
    }
    clock->users = 1;
    clock->foreign = from != NULL ? from->foreign : NULL;
    if (from != NULL)
        memcpy(clock->time, from->time, race->places * sizeof(uint32_t));
    else
        memset(clock->time, 0, race->places * sizeof(uint32_t));
    return clock;
}

static void drop(struct sim_race *race, race_clock *clock) {
    if (clock == NULL || --clock->users > 0)
        return;
    clock->next_free = race->free;
    race->free = clock;
}

static race_clock *share(race_clock *clock) {
    if (clock != NULL)
        clock->users++;
    return clock;
}

static void replace(struct sim_race *race, race_clock **place, race_clock *clock) {
    drop(race, *place);
    *place = clock;
}

static void add_times(uint32_t *to, const uint32_t *from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

static bool knows_all(const uint32_t *times, const uint32_t *of, uint32_t count) {
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++)
        missing |= (uint32_t)(times[i] < of[i]);
    return missing == 0;
}

/* A clock that *place alone uses, made of it. */
static race_clock *own(struct sim_race *race, race_clock **place) {
    if (*place != NULL && (*place)->users == 1)
        return *place;
    race_clock *copy = race_clock_new(race, *place);
    if (copy != NULL)
        replace(race, place, copy);
    return copy;
}

static void add_clock(struct sim_race *race, race_clock *to, const race_clock *from) {
    add_times(to->time, from->time, race->places);
    if (from->foreign != NULL && from->foreign != to->foreign)
        race_add_foreign(race, to, from->foreign);
}

void race_add_clock(struct sim_race *race, race_clock **to, const race_clock *from) {
    race_clock *clock = from != NULL && from != *to ? own(race, to) : NULL;
    if (clock != NULL)
        add_clock(race, clock, from);
}

static inline uint32_t place_of(const sim_warp *warp, int lane) {
    return (uint32_t)warp->index * SIM_LANES + (uint32_t)lane;
}

/* ---- Meeting points ---- */

void race_release(sim_warp *warp, uint32_t lanes, race_clock **point) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL || lanes == 0)
        return;
    race_clock *to = own(race, point);
    if (to == NULL)
        return;
    const race_clock *last = NULL;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        const race_clock *from = race->lanes[place_of(warp, __builtin_ctz(rest))];
        if (from != last && from != NULL)
            add_clock(race, to, from);
        last = from;
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
        to->time[place_of(warp, __builtin_ctz(rest))] = race->now;
    race->now++;
}

/* Lanes with the same clock, the usual case, get the same new one. */
void race_acquire(sim_warp *warp, uint32_t lanes, const race_clock *point) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL || point == NULL)
        return;
    race_clock *before = NULL, *after = NULL;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        race_clock **lane = &race->lanes[place_of(warp, __builtin_ctz(rest))];
        if (after == NULL || *lane != before) {
            drop(race, before);
            drop(race, after);
            before = share(*lane);
            if (before != NULL && knows_all(before->time, point->time, race->places) &&
                (point->foreign == NULL || point->foreign == before->foreign)) {
                after = share(before);
            } else {
                after = race_clock_new(race, before);
                if (after == NULL)
                    break;
                add_clock(race, after, point);
            }
        }
        if (*lane != after)
            replace(race, lane, share(after));
    }
    drop(race, before);
    drop(race, after);
}

void race_copy(sim_cta *cta, race_clock **to, race_clock *from) {
    if (cta->race != NULL)
        replace(cta->race, to, share(from));
}

void race_drop(sim_cta *cta, race_clock **point) {
    if (cta->race != NULL)
        replace(cta->race, point, NULL);
}

void race_meet(sim_warp *warp, uint32_t lanes) {
    race_clock *point = NULL;
    race_release(warp, lanes, &point);
    race_acquire(warp, lanes, point);
    race_drop(warp->cta, &point);
}

void race_grid_wait(sim_warp *warp, uint32_t lanes) {
    if (warp->cta->race != NULL)
        race_observe(warp, lanes, (race_done){warp->cta->race->grid_place, 1});
}

void race_proxy_fence(sim_warp *warp, race_proxy proxy) {
    if (warp->cta->race != NULL)
        warp->cta->race->proxy_fences[proxy][warp->index % 32] = warp->cta->race->now++;
}

/* ---- Units ---- */

static bool take_place(struct sim_race *race, race_unit *unit) {
    for (int tries = 0; tries < RACE_UNITS; tries++) {
        race->next_unit = (race->next_unit + 1) % RACE_UNITS;
        if (!race->unit_busy[race->next_unit])
            break;
    }
    race->unit_busy[race->next_unit] = true;
    unit->place = race->threads + race->next_unit;
    return true;
}

void race_unit_issue(race_unit *unit, sim_warp *warp, uint32_t lanes) {
    struct sim_race *race = warp->cta->race;
    race_clock *issued = NULL;
    if (race == NULL || lanes == 0)
        return;
    race_release(warp, lanes, &issued);
    if (issued == NULL)
        return;
    if (unit->clock == NULL) {
        take_place(race, unit);
        unit->clock = issued;
        return;
    }
    /* What only some of the issuing warps know may not have happened for the others. */
    race_clock *common = own(race, &unit->clock);
    for (uint32_t i = 0; common != NULL && i < race->places; i++)
        common->time[i] = common->time[i] < issued->time[i] ? common->time[i] : issued->time[i];
    drop(race, issued);
}

race_done race_unit_finish(sim_cta *cta, race_unit *unit) {
    struct sim_race *race = cta->race;
    if (race == NULL || unit->clock == NULL)
        return (race_done){0, 0};
    return (race_done){unit->place, race->now++};
}

void race_unit_release(sim_cta *cta, race_unit *unit, race_clock **point) {
    struct sim_race *race = cta->race;
    if (race == NULL || unit->clock == NULL)
        return;
    race_clock *to = own(race, point);
    if (to == NULL)
        return;
    add_clock(race, to, unit->clock);
    to->time[unit->place] = race->now++;
}

void race_unit_observe(sim_cta *cta, race_unit *unit, race_done done) {
    race_clock *clock = cta->race != NULL && unit->clock != NULL ? own(cta->race, &unit->clock) : NULL;
    if (clock != NULL && clock->time[done.place] < done.time)
        clock->time[done.place] = done.time;
}

void race_copy_issue(race_copy_unit *unit, sim_warp *warp, int lane, uint32_t group) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL)
        return;
    unit->clock = share(race->lanes[place_of(warp, lane)]);
    unit->time = race->now++;
    unit->group = group;
}

void race_copy_free(sim_cta *cta, race_copy_unit *unit) {
    if (cta->race != NULL)
        replace(cta->race, &unit->clock, NULL);
}

race_done race_copy_done(const sim_warp *warp, int lane, uint32_t groups) {
    const struct sim_race *race = warp->cta->race;
    if (race == NULL || !race->has_copies)
        return (race_done){0, 0};
    return (race_done){race->threads + RACE_UNITS + place_of(warp, lane), groups};
}

void race_observe(sim_warp *warp, uint32_t lanes, race_done done) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL || done.time == 0)
        return;
    race_clock *point = race_clock_new(race, NULL);
    if (point == NULL)
        return;
    point->time[done.place] = done.time;
    race_acquire(warp, lanes, point);
    drop(race, point);
}

void race_unit_free(sim_cta *cta, race_unit *unit) {
    struct sim_race *race = cta->race;
    if (race == NULL || unit->clock == NULL)
        return;
    race->unit_busy[unit->place - race->threads] = false;
    replace(race, &unit->clock, NULL);
}

bool race_twins(sim_cta *cta) {
    const bool found = cta->race != NULL && cta->race->twins;
    if (found)
        cta->race->twins = false;
    return found;
}

/* ---- State ---- */

race_party race_lane_party(const struct sim_race *race, sim_warp *warp, const ptx_instr *instr, int lane) {
    const uint32_t place = place_of(warp, lane);
    return (race_party){.clock = race->lanes[place],
                        .place = place,
                        .who = (uint32_t)warp->index,
                        .lanes = warp->readers != 0 ? warp->readers : UINT32_C(1) << lane,
                        .time = race->now,
                        .warp = warp,
                        .instr = instr,
                        .lane = lane};
}

race_party race_unit_party(const struct sim_race *race, const struct sim_async *op) {
    return (race_party){.clock = op->unit.clock,
                        .place = op->unit.place,
                        .who = RACE_UNIT_WHO + op->unit.place - race->threads,
                        .lanes = 1,
                        .time = race->now,
                        .warp = op->warp,
                        .instr = op->instr,
                        .lane = op->lane};
}

uint32_t race_instr_index(const sim_cta *cta, const ptx_instr *instr) {
    const ptx_function *function = cta->launch->function;
    const size_t index = instr != NULL ? (size_t)(instr - function->instrs) : UINT16_MAX;
    return index < UINT16_MAX && index < (size_t)function->num_instrs ? (uint32_t)index : UINT16_MAX;
}

struct sim_race *race_state_new(const sim_launch *launch, int num_warps, size_t shared_bytes) {
    struct sim_race *race = calloc(1, sizeof(*race));
    if (race == NULL)
        return NULL;
    race->launch = launch->race;
    race->threads = (uint32_t)num_warps * SIM_LANES;
    for (int i = 0; i < launch->function->num_instrs && !race->has_copies; i++) {
        const ptx_instr *instr = &launch->function->instrs[i];
        race->has_copies = strcmp(instr->opcode, "cp") == 0 && (ptx_has(instr, "ca") || ptx_has(instr, "cg"));
    }
    race->grid_place = race->threads + RACE_UNITS + (race->has_copies ? race->threads : 0);
    race->places = race->grid_place + 1;
    race->lanes = calloc(race->threads, sizeof(race_clock *));
    if (race->lanes != NULL && race_memory_init(&race->shared, race, "shared", shared_bytes))
        return race;
    race_state_free(race);
    return NULL;
}

void race_state_reset(struct sim_race *race, sim_cta *cta) {
    race->cta = cta;
    race->generation++;
    race->now = 1;
    race->next_unit = 0;
    memset(race->proxy_fences, 0, sizeof(race->proxy_fences));
    memset(race->unit_busy, 0, sizeof(race->unit_busy));
    race->free = NULL;
    for (race_clock *clock = race->clocks; clock != NULL; clock = clock->next) {
        clock->next_free = race->free;
        race->free = clock;
    }
    race_clock *nothing = race_clock_new(race, NULL);
    for (uint32_t i = 0; i < race->threads; i++)
        race->lanes[i] = share(nothing);
    drop(race, nothing);
    race_memory_reset(race);
    race_patterns_reset(race);
    race_claims_reset(race);
    race->last_page = NULL;
    race->twins = false;
}

void race_state_free(struct sim_race *race) {
    if (race == NULL)
        return;
    while (race->clocks != NULL) {
        race_clock *next = race->clocks->next;
        free(race->clocks);
        race->clocks = next;
    }
    race_memory_destroy(&race->shared);
    race_memory_reset(race);
    free(race->reads);
    race_patterns_reset(race);
    race_claims_free(race);
    free(race->lanes);
    free(race);
}
