/* SPDX-License-Identifier: MIT
 * Claims of a CTA, and how registers carry them. */
#include "race_claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"

enum {
    MAX_NODES = 1 << 20, /* then all are forgotten: later writes do not conflict with the reads of before */
    JOINS = 1 << 12,     /* of which the result is remembered */
    RACED = 256          /* conflicts that are told apart in reports; later ones are reported as the last */
};

typedef struct node {
    uint32_t left, right; /* 0: a row's */
    uint32_t raced;       /* 1 + index of the conflict; 0: none */
    uint32_t place, time; /* of a row's last read, as in clocks */
    uint32_t earlier;     /* the claim of a read of the row before that, which is not kept; 0: none */
    bool used;            /* and what it is made of */
} node;

/* Reads at one time belong to one claim. */
typedef struct moment {
    uint32_t time, place, claim;
} moment;

/* A write that has met a claim's read. */
typedef struct conflict {
    const ptx_instr *write, *read;
    const char *memory;
    size_t offset;
    int warp, lane; /* -1: an asynchronous operation */
} conflict;

struct race_claims {
    node *nodes;
    uint32_t num_nodes, node_capacity; /* nodes[0] is not used */
    moment *moments;                   /* by time */
    size_t num_moments, moment_capacity;
    struct {
        uint32_t a, b, joined;
    } joins[JOINS];
    conflict conflicts[RACED];
    uint32_t num_conflicts;
    uint32_t *stack; /* of use */
    uint32_t stack_capacity;
    size_t slots; /* of a warp */
    int warps;
    uint32_t *tagged; /* per warp and slot: lanes that have a claim */
    uint32_t *tags;   /* per warp, slot and lane */
};

static struct race_claims *claims_of(const sim_warp *warp) {
    return warp->schedule->tagged != NULL ? warp->cta->race->claims : NULL;
}

/* ---- Nodes ---- */

static void forget_all(struct race_claims *c) {
    c->num_nodes = 1;
    c->num_moments = 0;
    c->num_conflicts = 0;
    memset(c->joins, 0, sizeof(c->joins));
    memset(c->tagged, 0, (size_t)c->warps * c->slots * sizeof(*c->tagged));
}

static uint32_t new_node(struct race_claims *c, uint32_t left, uint32_t right) {
    if (c->num_nodes >= c->node_capacity) {
        const uint32_t capacity = c->node_capacity == 0 ? 4096 : 2 * c->node_capacity;
        node *nodes = capacity <= MAX_NODES ? realloc(c->nodes, capacity * sizeof(*nodes)) : NULL;
        if (nodes == NULL)
            return 0;
        c->nodes = nodes;
        c->node_capacity = capacity;
    }
    c->nodes[c->num_nodes] = (node){.left = left, .right = right};
    return c->num_nodes++;
}

uint32_t race_claim_join(sim_cta *cta, uint32_t a, uint32_t b) {
    struct race_claims *c = cta->race->claims;
    if (a == 0 || b == 0 || a == b)
        return a != 0 ? a : b;
    const uint32_t place = (a * UINT32_C(0x9e3779b1) ^ b * UINT32_C(0x85ebca6b)) >> 20 & (JOINS - 1);
    if (c->joins[place].a == a && c->joins[place].b == b)
        return c->joins[place].joined;
    const uint32_t joined = new_node(c, a, b);
    if (joined == 0) /* out of memory: the other claim is lost */
        return a;
    c->joins[place].a = a;
    c->joins[place].b = b;
    c->joins[place].joined = joined;
    return joined;
}

bool race_claim_extend(sim_cta *cta, const struct sim_async *op, uint32_t claim) {
    struct sim_race *race = cta->race;
    struct race_claims *c = race->claims;
    if (c->num_moments >= c->moment_capacity) {
        const size_t capacity = c->moment_capacity == 0 ? 1024 : 2 * c->moment_capacity;
        moment *moments = realloc(c->moments, capacity * sizeof(*moments));
        if (moments == NULL)
            return false;
        c->moments = moments;
        c->moment_capacity = capacity;
    }
    c->moments[c->num_moments++] = (moment){++race->now, op->unit.place, claim};
    c->nodes[claim].place = op->unit.place;
    c->nodes[claim].time = race->now;
    return true;
}

uint32_t race_claim_new(sim_cta *cta, const struct sim_async *op) {
    const uint32_t claim = new_node(cta->race->claims, 0, 0);
    return claim != 0 && race_claim_extend(cta, op, claim) ? claim : 0;
}

bool race_claims_begin(sim_cta *cta) {
    struct sim_race *race = cta->race;
    if (race == NULL)
        return false;
    struct race_claims *c = race->claims;
    if (c == NULL) {
        const size_t slots = (size_t)cta->launch->function->num_slots;
        const size_t registers = (size_t)cta->num_warps * slots;
        c = race->claims = calloc(1, sizeof(*c));
        if (c == NULL)
            return false;
        c->slots = slots;
        c->warps = cta->num_warps;
        c->tagged = calloc(registers + 1, sizeof(*c->tagged));
        c->tags = calloc(registers * SIM_LANES + 1, sizeof(*c->tags));
    }
    if (c->tagged == NULL || c->tags == NULL)
        return false;
    if (c->num_nodes == 0 || c->num_nodes > MAX_NODES / 2 || c->num_moments > MAX_NODES / 2)
        forget_all(c);
    for (int w = 0; w < cta->num_warps; w++) {
        cta->warps[w].schedule->tagged = c->tagged + (size_t)w * c->slots;
        cta->warps[w].schedule->tags = c->tags + (size_t)w * c->slots * SIM_LANES;
    }
    return true;
}

void race_claims_reset(struct sim_race *race) {
    if (race->claims != NULL)
        race->claims->num_nodes = 0;
}

void race_claims_free(struct sim_race *race) {
    struct race_claims *c = race->claims;
    if (c == NULL)
        return;
    free(c->nodes);
    free(c->moments);
    free(c->stack);
    free(c->tagged);
    free(c->tags);
    free(c);
    race->claims = NULL;
}

/* ---- Conflicts ---- */

static uint32_t claim_at(const struct race_claims *c, uint32_t time, uint32_t place) {
    size_t low = 0, high = c->num_moments;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c->moments[middle].time < time)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found = low < c->num_moments && c->moments[low].time == time && c->moments[low].place == place;
    return found ? c->moments[low].claim : 0;
}

static uint32_t claim_of_read(const struct sim_race *race, race_entry read) {
    const struct race_claims *c = race->claims;
    if (c == NULL || c->num_nodes == 0 || race_who(read) < RACE_UNIT_WHO)
        return 0;
    return claim_at(c, race_time(read), race->threads + race_who(read) - RACE_UNIT_WHO);
}

bool race_claim_follows(struct sim_race *race, race_entry read) {
    struct race_claims *c = race->claims;
    const uint32_t old = claim_of_read(race, read), new = old != 0 ? c->moments[c->num_moments - 1].claim : 0;
    if (old == 0 || old == new || (c->nodes[new].earlier != 0 && c->nodes[new].earlier != old))
        return old != 0 && old == new;
    c->nodes[new].earlier = old;
    return true;
}

bool race_claim_excuses(struct sim_race *race, const race_party *party, const race_memory *memory, size_t offset,
                        unsigned kind, race_entry read) {
    struct race_claims *c = race->claims;
    const uint32_t claim = kind & RACE_QUIET ? 0 : claim_of_read(race, read);
    if (claim == 0)
        return false;
    for (uint32_t at = claim; at != 0 && !race_knows(party, c->nodes[at].place, c->nodes[at].time);
         at = c->nodes[at].earlier) {
        if (c->nodes[at].used)
            return false;
    }
    const ptx_function *function = race->cta->launch->function;
    const uint32_t index = read & UINT16_MAX;
    const bool is_unit = party->place >= race->threads;
    if (c->num_conflicts < RACED)
        c->num_conflicts++;
    c->conflicts[c->num_conflicts - 1] = (conflict){.write = party->instr,
                                                    .read = index < UINT16_MAX ? &function->instrs[index] : NULL,
                                                    .memory = memory->name,
                                                    .offset = offset,
                                                    .warp = is_unit ? -1 : party->warp->index,
                                                    .lane = is_unit ? -1 : party->lane};
    for (uint32_t at = claim; at != 0 && !race_knows(party, c->nodes[at].place, c->nodes[at].time);
         at = c->nodes[at].earlier) {
        if (c->nodes[at].raced == 0)
            c->nodes[at].raced = c->num_conflicts;
    }
    return true;
}

static bool fault(sim_warp *warp, const ptx_instr *instr, int lane, const conflict *f) {
    const sim_launch *launch = warp->cta->launch;
    char read[600] = "an instruction", write[600] = "an instruction", who[64] = "an asynchronous operation";
    if (f->read != NULL)
        sim_describe(launch, f->read, read, sizeof(read));
    if (f->write != NULL)
        sim_describe(launch, f->write, write, sizeof(write));
    if (f->warp >= 0)
        snprintf(who, sizeof(who), "warp %d, lane %d", f->warp, f->lane);
    sim_fault(warp, instr, lane,
              "data race: uses a column of a product whose row of B, at %s %#zx, %s has written to, and nothing orders "
              "this after the product's read\n  the product: at %s\n  the write: at %s\n  expected between them: the "
              "completion of the product, waited for, and an arrival afterwards",
              f->memory, f->offset, who, read, write);
    return false;
}

/* Marks a claim and what it is made of as used. Returns a conflict that one of them has met, or NULL. */
static const conflict *use(struct race_claims *c, uint32_t claim) {
    const conflict *found = NULL;
    uint32_t depth = 0;
    for (uint32_t at = claim;;) {
        node *n = &c->nodes[at];
        uint32_t next = 0;
        if (!n->used) {
            n->used = true;
            if (n->raced != 0)
                found = &c->conflicts[n->raced - 1];
            next = n->left;
            if (n->right != 0 && depth == c->stack_capacity) {
                const uint32_t capacity = depth == 0 ? 64 : 2 * depth;
                uint32_t *stack = realloc(c->stack, capacity * sizeof(*stack));
                if (stack != NULL) {
                    c->stack = stack;
                    c->stack_capacity = capacity;
                }
            }
            if (n->right != 0 && depth < c->stack_capacity)
                c->stack[depth++] = n->right;
        }
        if (next != 0)
            at = next;
        else if (depth > 0)
            at = c->stack[--depth];
        else
            return found;
    }
}

/* ---- Registers ---- */

uint32_t race_claim_of(const sim_warp *warp, int slot, int lane) {
    const sim_schedule *s = warp->schedule;
    return s->tagged[slot] >> lane & 1 ? s->tags[(size_t)slot * SIM_LANES + (size_t)lane] : 0;
}

void race_claim_set(sim_warp *warp, int slot, uint32_t lanes, const uint32_t claims[SIM_LANES]) {
    sim_schedule *s = warp->schedule;
    uint32_t *tags = s->tags + (size_t)slot * SIM_LANES, tagged = 0;
    if (lanes == UINT32_MAX) {
        for (int lane = 0; lane < SIM_LANES; lane++)
            tagged |= (uint32_t)(claims[lane] != 0) << lane;
        memcpy(tags, claims, SIM_LANES * sizeof(*tags));
        s->tagged[slot] = tagged;
        return;
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        tags[lane] = claims[lane];
        tagged |= (uint32_t)(claims[lane] != 0) << lane;
    }
    s->tagged[slot] = (s->tagged[slot] & ~lanes) | tagged;
}

bool race_claim_use(sim_warp *warp, const ptx_instr *instr, int slot, uint32_t lanes) {
    struct race_claims *c = claims_of(warp);
    for (uint32_t rest = lanes & warp->schedule->tagged[slot]; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const uint32_t claim = warp->schedule->tags[(size_t)slot * SIM_LANES + (size_t)lane];
        const conflict *met = c->nodes[claim].used ? NULL : use(c, claim);
        if (met != NULL && !warp->cta->launch->allow_undefined)
            return fault(warp, instr, lane, met);
    }
    return true;
}

/* Of a computation: the lanes whose result has a claim. */
static uint32_t carried(const sim_schedule *s, const sim_step *step, const int *slots) {
    uint32_t any = 0, every = UINT32_MAX;
    for (int i = 0; i < step->num_reads; i++) {
        any |= s->tagged[slots[i]];
        every &= s->tagged[slots[i]];
    }
    return step->flags & SIM_STEP_ANY_DEFINED ? any & every : any;
}

/* Adds the claims of a register's lanes to those given. Lanes often have those of the lane four before (wgmma's
 * accumulators). */
static void add_claims(sim_warp *warp, int slot, uint32_t lanes, uint32_t claims[SIM_LANES]) {
    const sim_schedule *s = warp->schedule;
    const uint32_t *tags = s->tags + (size_t)slot * SIM_LANES;
    uint32_t before[SIM_LANES];
    memcpy(before, claims, sizeof(before));
    for (uint32_t rest = lanes & s->tagged[slot]; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const bool same = lane >= 4 && (lanes & s->tagged[slot]) >> (lane - 4) & 1 &&
                          before[lane] == before[lane - 4] && tags[lane] == tags[lane - 4];
        claims[lane] = same ? claims[lane - 4] : race_claim_join(warp->cta, before[lane], tags[lane]);
    }
}

static uint32_t selecting_lanes(sim_warp *warp, const sim_step *step, int slot, uint32_t lanes) {
    uint32_t selecting = 0;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        selecting |= (uint32_t)sim_selects(warp, step->instr, lane, slot) << lane;
    }
    return selecting;
}

static void carry(sim_warp *warp, const sim_step *step, uint32_t mask) {
    const sim_schedule *s = warp->schedule;
    const int *reads = s->program->slots + step->first_slot, *writes = reads + step->num_reads + step->num_unchecked;
    const uint32_t lanes = carried(s, step, reads) & mask;
    uint32_t claims[SIM_LANES];
    if (lanes != 0)
        memset(claims, 0, sizeof(claims));
    for (int i = 0; i < step->num_reads && lanes != 0; i++)
        add_claims(warp, reads[i],
                   step->flags & SIM_STEP_SELECTS ? selecting_lanes(warp, step, reads[i], lanes) : lanes, claims);
    for (int i = 0; i < step->num_writes; i++) {
        if (lanes != 0)
            race_claim_set(warp, writes[i], mask, claims);
        else
            s->tagged[writes[i]] &= ~mask;
    }
}

bool race_claim_step(sim_warp *warp, const sim_step *step, uint32_t mask) {
    const sim_schedule *s = warp->schedule;
    const int *slots = s->program->slots + step->first_slot;
    if (step->flags & SIM_STEP_PROPAGATES) {
        carry(warp, step, mask);
        return true;
    }
    /* Shuffles pass claims on themselves; a wgmma's accumulators keep theirs until it is computed. mma.sync uses all it
     * reads: its results have no claims. */
    const bool is_mma = strcmp(step->instr->opcode, "mma") == 0;
    for (int i = 0; i < step->num_reads; i++) {
        if (!race_claim_use(warp, step->instr, slots[i], mask))
            return false;
    }
    slots += step->num_reads;
    for (int i = 1; i < step->instr->num_operands && is_mma; i++) {
        const ptx_operand *operand = &step->instr->operands[i];
        const bool is_list = operand->kind == PTX_OPERAND_VECTOR;
        for (int e = 0; e < (is_list ? operand->num_elements : 1); e++) {
            const ptx_operand *one = is_list ? &operand->elements[e] : operand;
            if (one->kind == PTX_OPERAND_REGISTER && !race_claim_use(warp, step->instr, one->slot, mask))
                return false;
        }
    }
    const ptx_operand *d = &step->instr->operands[0];
    for (int e = 0; is_mma && e < d->num_elements; e++) {
        if (d->elements[e].kind == PTX_OPERAND_REGISTER)
            s->tagged[d->elements[e].slot] = 0;
    }
    slots += step->num_unchecked;
    for (int i = 0; i < step->num_writes && step->num_unchecked == 0; i++)
        s->tagged[slots[i]] &= ~mask;
    return true;
}
