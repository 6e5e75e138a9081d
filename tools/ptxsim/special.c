/* SPDX-License-Identifier: MIT
 *
 * Special registers. Clusters have one CTA each. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef struct context {
    sim_warp *warp;
    const sim_cta *cta;
    const sim_launch *launch;
    int lane;
} context;

static unsigned part(sim_dim dim, int axis) {
    return axis == 0 ? dim.x : axis == 1 ? dim.y : dim.z;
}

static uint64_t tid(const context *c, int axis) {
    sim_dim block = c->launch->block;
    unsigned linear = (unsigned)c->warp->index * SIM_LANES + (unsigned)c->lane;
    return axis == 0 ? linear % block.x : axis == 1 ? linear / block.x % block.y : linear / block.x / block.y;
}

static uint64_t ntid(const context *c, int axis) {
    return part(c->launch->block, axis);
}

static uint64_t ctaid(const context *c, int axis) {
    return part(c->cta->id, axis);
}

static uint64_t nctaid(const context *c, int axis) {
    return part(c->launch->grid, axis);
}

static uint64_t zero(const context *c, int axis) {
    (void)c, (void)axis;
    return 0;
}

static uint64_t one(const context *c, int axis) {
    (void)c, (void)axis;
    return 1;
}

static uint64_t laneid(const context *c, int axis) {
    (void)axis;
    return (unsigned)c->lane;
}

static uint64_t warpid(const context *c, int axis) {
    (void)axis;
    return (unsigned)c->warp->index;
}

static uint64_t nwarpid(const context *c, int axis) {
    (void)c, (void)axis;
    return 64; /* warp slots of an SM: an upper bound of %warpid, not the CTA's warps */
}

static uint64_t nsmid(const context *c, int axis) {
    (void)axis;
    return c->launch->num_sms > 0 ? (unsigned)c->launch->num_sms : 1;
}

static uint64_t smid(const context *c, int axis) {
    return c->cta->linear_id % nsmid(c, axis);
}

static uint64_t gridid(const context *c, int axis) {
    (void)axis;
    return c->launch->grid_id;
}

/* Time is counted in instructions of the CTA: one is a cycle and a nanosecond. Host time would make runs of the same
 * seed differ. */
static uint64_t clock64(const context *c, int axis) {
    (void)axis;
    return c->cta->steps;
}

static uint64_t clock_low(const context *c, int axis) {
    return (uint32_t)clock64(c, axis);
}

static uint64_t clock_high(const context *c, int axis) {
    return clock64(c, axis) >> 32;
}

static uint64_t dynamic_smem_size(const context *c, int axis) {
    (void)axis;
    return c->launch->dynamic_shared_bytes;
}

static uint64_t total_smem_size(const context *c, int axis) {
    (void)axis;
    return c->cta->shared_bytes;
}

static uint64_t lanemask_eq(const context *c, int axis) {
    (void)axis;
    return UINT32_C(1) << c->lane;
}

static uint64_t lanemask_lt(const context *c, int axis) {
    return lanemask_eq(c, axis) - 1;
}

static uint64_t lanemask_le(const context *c, int axis) {
    return lanemask_lt(c, axis) | lanemask_eq(c, axis);
}

static uint64_t lanemask_gt(const context *c, int axis) {
    return (uint32_t)~lanemask_le(c, axis);
}

static uint64_t lanemask_ge(const context *c, int axis) {
    return (uint32_t)~lanemask_lt(c, axis);
}

typedef struct special {
    const char *name;
    uint64_t (*value)(const context *context, int axis);
    bool axes; /* has .x, .y and .z */
} special;

/* Sorted by name. */
static const special specials[] = {
    {"%clock", clock_low, false},
    {"%clock64", clock64, false},
    {"%clock_hi", clock_high, false},
    {"%cluster_ctaid", zero, true},
    {"%cluster_ctarank", zero, false},
    {"%cluster_nctaid", one, true},
    {"%cluster_nctarank", one, false},
    {"%clusterid", ctaid, true},
    {"%ctaid", ctaid, true},
    {"%dynamic_smem_size", dynamic_smem_size, false},
    {"%globaltimer", clock64, false},
    {"%globaltimer_hi", clock_high, false},
    {"%globaltimer_lo", clock_low, false},
    {"%gridid", gridid, false},
    {"%is_explicit_cluster", zero, false},
    {"%laneid", laneid, false},
    {"%lanemask_eq", lanemask_eq, false},
    {"%lanemask_ge", lanemask_ge, false},
    {"%lanemask_gt", lanemask_gt, false},
    {"%lanemask_le", lanemask_le, false},
    {"%lanemask_lt", lanemask_lt, false},
    {"%nclusterid", nctaid, true},
    {"%nctaid", nctaid, true},
    {"%nsmid", nsmid, false},
    {"%ntid", ntid, true},
    {"%nwarpid", nwarpid, false},
    {"%smid", smid, false},
    {"%tid", tid, true},
    {"%total_smem_size", total_smem_size, false},
    {"%warpid", warpid, false},
};

typedef struct key {
    const char *name;
    size_t length; /* without the axis */
} key;

static int compare(const void *a, const void *b) {
    const key *wanted = a;
    const special *row = b;
    int order = strncmp(wanted->name, row->name, wanted->length);
    return order != 0 ? order : row->name[wanted->length] == '\0' ? 0 : -1;
}

bool sim_special(sim_warp *warp, const char *name, int lane, uint64_t *value) {
    const char *dot = strchr(name, '.');
    int axis = dot ? dot[1] - 'x' : 0;
    key wanted = {name, dot ? (size_t)(dot - name) : strlen(name)};
    const special *row = bsearch(&wanted, specials, sizeof(specials) / sizeof(specials[0]), sizeof(special), compare);
    if (!row || row->axes != (dot != NULL))
        return false;
    if (dot && (axis < 0 || axis > 2 || dot[2] != '\0'))
        return false;
    if (warp) { /* without one: only whether the name is known */
        struct context at = {warp, warp->cta, warp->cta->launch, lane};
        *value = row->value(&at, axis);
    }
    return true;
}
