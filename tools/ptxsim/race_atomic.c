/* SPDX-License-Identifier: MIT
 * Release and acquire patterns (PTX ISA, "Memory Consistency Model", "Release and Acquire Patterns"): a strong write
 * releases what its thread did and knew at its last fence, or, if it is .release itself, until now; a strong read that
 * comes after it acquires this with the thread's next fence, or, if it is .acquire, at once. Fences and accesses of CTA
 * scope do so within a CTA.
 *
 * A location keeps everything that was ever released through it: that a later write without a fence would hide an
 * earlier one is not modelled, so that such a race may pass. A release is noted before the access and an acquire
 * follows it, because other CTAs run on other host threads at the same time. */
#include <stdlib.h>
#include <string.h>

#include "race_global.h"

enum { CTA_SCOPE, DEVICE_SCOPE, SCOPES };

/* Of a thread. */
struct race_pattern {
    race_clock *fenced[SCOPES]; /* what it knew at its last fence of that scope, and when that was */
    uint32_t fence_time[SCOPES];
    const race_foreign *seen; /* released by what it has read since its last fence */
    race_clock *seen_shared;
};

/* A location of shared memory. */
struct race_spot {
    struct race_spot *next;
    uint64_t offset;
    race_clock *released;
};

static struct race_pattern *pattern_of(struct sim_race *race, uint32_t place) {
    if (race->patterns == NULL)
        race->patterns = calloc(race->threads, sizeof(*race->patterns));
    return race->patterns != NULL ? &race->patterns[place] : NULL;
}

/* ---- Lists of foreign knowledge ---- */

static bool has_suffix(const race_foreign *list, const race_foreign *suffix) {
    while (list != NULL && list != suffix)
        list = list->next;
    return list == suffix;
}

static const race_foreign *find_cta(const race_foreign *list, unsigned cta, bool device) {
    while (list != NULL && (list->cta != cta || list->device != device))
        list = list->next;
    return list;
}

/* The list without one of its nodes, NULL if memory is short. */
static const race_foreign *without(struct race_launch *launch, const race_foreign *list, const race_foreign *node) {
    if (list == node)
        return node->next;
    race_foreign *copy = race_launch_alloc(launch, sizeof(*copy));
    if (copy == NULL)
        return NULL;
    *copy = *list;
    copy->next = without(launch, list->next, node);
    return copy;
}

/* Adds a CTA's times to a list. */
static const race_foreign *add_times(struct race_launch *launch, uint32_t places, const race_foreign *list,
                                     unsigned cta, bool device, const uint32_t *time) {
    const race_foreign *old = find_cta(list, cta, device);
    if (old != NULL && old->time == time)
        return list;
    race_foreign *node = race_launch_alloc(launch, sizeof(*node));
    uint32_t *merged = race_launch_alloc(launch, places * sizeof(uint32_t));
    if (node == NULL || merged == NULL)
        return list;
    memcpy(merged, time, places * sizeof(uint32_t));
    for (uint32_t i = 0; old != NULL && i < places; i++)
        merged[i] = merged[i] > old->time[i] ? merged[i] : old->time[i];
    node->cta = cta;
    node->device = device;
    node->time = merged;
    node->next = old != NULL ? without(launch, list, old) : list;
    return node;
}

static const race_foreign *merge(struct race_launch *launch, uint32_t places, const race_foreign *a,
                                 const race_foreign *b) {
    if (has_suffix(a, b))
        return a;
    if (has_suffix(b, a))
        return b;
    for (; b != NULL; b = b->next)
        a = add_times(launch, places, a, b->cta, b->device, b->time);
    return a;
}

bool race_add_foreign(struct sim_race *race, race_clock *clock, const race_foreign *foreign) {
    race_launch_lock(race->launch);
    clock->foreign = merge(race->launch, race->places, clock->foreign, foreign);
    race_launch_unlock(race->launch);
    return true;
}

/* ---- Release ---- */

static race_location *location_of(struct race_launch *launch, uint64_t address, bool make) {
    race_location **first = race_launch_locations(launch, address);
    race_location *at = *first;
    while (at != NULL && at->address != address)
        at = at->next;
    if (at == NULL && make) {
        at = race_launch_alloc(launch, sizeof(*at));
        if (at != NULL) {
            at->address = address;
            at->next = *first;
            *first = at;
        }
    }
    return at;
}

static struct race_spot *spot_of(struct sim_race *race, uint64_t offset, bool make) {
    struct race_spot *at = race->spots;
    while (at != NULL && at->offset != offset)
        at = at->next;
    if (at == NULL && make) {
        at = calloc(1, sizeof(*at));
        if (at != NULL) {
            at->offset = offset;
            at->next = race->spots;
            race->spots = at;
        }
    }
    return at;
}

/* Publishes a clock in which the thread's own time is `time`. */
static void publish(struct sim_race *race, uint32_t place, const race_clock *known, uint32_t time, bool shared,
                    uint64_t address, bool device) {
    race_clock *clock = race_clock_new(race, known);
    if (clock == NULL)
        return;
    clock->time[place] = time;
    if (shared) {
        struct race_spot *spot = spot_of(race, address, true);
        if (spot != NULL)
            race_add_clock(race, &spot->released, clock);
    } else {
        race_launch_lock(race->launch);
        race_location *location = location_of(race->launch, address, true);
        if (location != NULL) {
            location->released = merge(race->launch, race->places, location->released, clock->foreign);
            location->released =
                add_times(race->launch, race->places, location->released, race->cta->linear_id, device, clock->time);
        }
        race_launch_unlock(race->launch);
    }
    race_drop(race->cta, &clock);
}

void race_strong_before(sim_warp *warp, int lane, bool shared, uint64_t address, unsigned kind) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL || !(kind & RACE_WRITE))
        return;
    const uint32_t place = (uint32_t)warp->index * SIM_LANES + (uint32_t)lane;
    const bool device = (kind & RACE_DEVICE) != 0;
    if (kind & RACE_RELEASE) {
        publish(race, place, race->lanes[place], race->now++, shared, address, device);
        return;
    }
    const struct race_pattern *pattern = race->patterns != NULL ? &race->patterns[place] : NULL;
    for (int scope = CTA_SCOPE; pattern != NULL && scope < SCOPES; scope++) {
        if (pattern->fence_time[scope] != 0)
            publish(race, place, pattern->fenced[scope], pattern->fence_time[scope], shared, address,
                    device && scope == DEVICE_SCOPE);
    }
}

/* ---- Acquire ---- */

static void acquire_list(struct sim_race *race, sim_warp *warp, int lane, const race_foreign *list, bool device) {
    const unsigned cta = race->cta->linear_id;
    race_clock *point = race_clock_new(race, NULL);
    if (point == NULL)
        return;
    race_launch_lock(race->launch);
    for (const race_foreign *f = list; f != NULL; f = f->next) {
        if (f->cta == cta) {
            for (uint32_t i = 0; i < race->places; i++)
                point->time[i] = point->time[i] > f->time[i] ? point->time[i] : f->time[i];
        } else if (device && f->device) {
            point->foreign = add_times(race->launch, race->places, point->foreign, f->cta, true, f->time);
        }
    }
    race_launch_unlock(race->launch);
    race_acquire(warp, UINT32_C(1) << lane, point);
    race_drop(race->cta, &point);
}

void race_strong_after(sim_warp *warp, int lane, bool shared, uint64_t address, unsigned kind) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL || !(kind & RACE_READS))
        return;
    const uint32_t place = (uint32_t)warp->index * SIM_LANES + (uint32_t)lane;
    if (shared) {
        struct race_spot *spot = spot_of(race, address, false);
        if (spot == NULL)
            return;
        if (kind & RACE_ACQUIRE) {
            race_acquire(warp, UINT32_C(1) << lane, spot->released);
            return;
        }
        struct race_pattern *pattern = pattern_of(race, place);
        if (pattern != NULL)
            race_add_clock(race, &pattern->seen_shared, spot->released);
        return;
    }
    race_launch_lock(race->launch);
    const race_location *location = location_of(race->launch, address, false);
    const race_foreign *released = location != NULL ? location->released : NULL;
    struct race_pattern *pattern = released != NULL && !(kind & RACE_ACQUIRE) ? pattern_of(race, place) : NULL;
    if (pattern != NULL)
        pattern->seen = merge(race->launch, race->places, pattern->seen, released);
    race_launch_unlock(race->launch);
    if (released != NULL && (kind & RACE_ACQUIRE))
        acquire_list(race, warp, lane, released, kind & RACE_DEVICE);
}

void race_fence(sim_warp *warp, uint32_t lanes, bool device) {
    struct sim_race *race = warp->cta->race;
    if (race == NULL)
        return;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const uint32_t place = (uint32_t)warp->index * SIM_LANES + (uint32_t)lane;
        struct race_pattern *pattern = pattern_of(race, place);
        if (pattern == NULL)
            return;
        if (pattern->seen_shared != NULL)
            race_acquire(warp, UINT32_C(1) << lane, pattern->seen_shared);
        race_drop(race->cta, &pattern->seen_shared);
        if (pattern->seen != NULL)
            acquire_list(race, warp, lane, pattern->seen, device);
        pattern->seen = NULL;
        for (int scope = CTA_SCOPE; scope <= (device ? DEVICE_SCOPE : CTA_SCOPE); scope++) {
            race_copy(race->cta, &pattern->fenced[scope], race->lanes[place]);
            pattern->fence_time[scope] = race->now;
        }
    }
    race->now++;
}

void race_patterns_reset(struct sim_race *race) {
    free(race->patterns);
    race->patterns = NULL;
    while (race->spots != NULL) {
        struct race_spot *next = race->spots->next;
        free(race->spots);
        race->spots = next;
    }
}
