/* SPDX-License-Identifier: MIT
 * wgmma: warpgroups, groups of products, fences, and who owns the registers meanwhile.
 *
 * A product starts when the four warps of an aligned warpgroup have issued it, and is computed at a random time after
 * all of them have committed it; products of a warpgroup are computed in order. Its registers belong to it until the
 * warp has waited for its group. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wgmma.h"

enum { MAX_PRODUCTS = 256 }; /* more than may be issued without a wait */

struct sim_warpgroup {
    wgmma_product *partial;           /* issued by some of the warps, oldest first */
    uint64_t done;                    /* products computed */
    race_done finished[MAX_PRODUCTS]; /* of the last ones, by number */
};

/* Of a warp. Products and groups are numbered from 0. */
struct sim_wgmma_state {
    bool fenced;                          /* wgmma.fence has been executed at least once */
    uint64_t issued, committed, released; /* products issued, in committed groups, and waited for */
    const ptx_instr **instrs;             /* of the products [released, issued) */
    size_t instr_capacity;
    uint64_t *ends; /* products before the end of each committed group that has not been waited for */
    size_t num_ends, end_capacity;
    uint64_t *results; /* per slot: hash of the result that was waited for since the last fence; 0: none */
    bool has_results;
};

static struct sim_wgmma_state *state_of(sim_warp *warp, const ptx_instr *instr) {
    struct sim_async_state *cta_state = sim_async_state_of(warp, instr);
    if (cta_state == NULL)
        return NULL;
    if (cta_state->warpgroups == NULL)
        cta_state->warpgroups = calloc(SIM_MAX_WARPS / WGMMA_WARPS, sizeof(struct sim_warpgroup));
    if (warp->wgmma == NULL && cta_state->warpgroups != NULL) {
        struct sim_wgmma_state *state = calloc(1, sizeof(*state));
        uint64_t *results = calloc((size_t)warp->cta->launch->function->num_slots + 1, sizeof(*results));
        if (state != NULL && results != NULL) {
            state->results = results;
            warp->wgmma = state;
        } else {
            free(state);
            free(results);
        }
    }
    if (warp->wgmma == NULL)
        sim_fault(warp, instr, -1, "the simulator is out of memory");
    return warp->wgmma;
}

void sim_wgmma_free(sim_cta *cta) {
    for (int w = 0; w < cta->num_warps; w++) {
        struct sim_wgmma_state *state = cta->warps[w].wgmma;
        if (state == NULL)
            continue;
        free(state->instrs);
        free(state->ends);
        free(state->results);
        free(state);
        cta->warps[w].wgmma = NULL;
    }
    if (cta->async_state == NULL || cta->async_state->warpgroups == NULL)
        return;
    for (int g = 0; g < SIM_MAX_WARPS / WGMMA_WARPS; g++) {
        while (cta->async_state->warpgroups[g].partial != NULL) {
            wgmma_product *product = cta->async_state->warpgroups[g].partial;
            cta->async_state->warpgroups[g].partial = product->next;
            sim_async_discard(&product->base);
        }
    }
    free(cta->async_state->warpgroups);
    cta->async_state->warpgroups = NULL;
}

static bool whole_warp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (mask != UINT32_MAX) {
        sim_fault(warp, instr, -1, "only lanes %#" PRIx32 " of the warp execute it; all 32 must", mask);
        return false;
    }
    if (warp->index / WGMMA_WARPS * WGMMA_WARPS + WGMMA_WARPS > warp->cta->num_warps) {
        sim_fault(warp, instr, -1, "warp %d is not in a complete warpgroup: the CTA has %d warps", warp->index,
                  warp->cta->num_warps);
        return false;
    }
    return true;
}

/* ---- Registers ------------------------------------------------------------------------------------------------- */

static uint64_t hash_slot(sim_warp *warp, int slot) {
    const uint64_t *lanes = sim_register(warp, slot);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < SIM_LANES; i++)
        hash = (hash ^ (uint32_t)lanes[i]) * UINT64_C(0x100000001b3);
    return hash | 1;
}

static void own_registers(sim_warp *warp, const ptx_instr *instr, int by) {
    for (int o = 0; o < 2; o++) {
        const ptx_operand *operand = &instr->operands[o];
        for (int i = 0; operand->kind == PTX_OPERAND_VECTOR && i < operand->num_elements; i++) {
            uint8_t *owners = &warp->register_pending[operand->elements[i].slot];
            *owners = (uint8_t)(*owners + by);
        }
    }
}

/* Whether accumulators were touched since they were waited for, without a fence: read by others when the product
 * overwrites them, or changed. */
static bool check_fence(sim_warp *warp, const ptx_instr *instr, bool accumulate) {
    const struct sim_wgmma_state *state = warp->wgmma;
    if (!state->fenced) {
        sim_fault(warp, instr, -1, "no wgmma.fence before the first wgmma.mma_async");
        return false;
    }
    const ptx_operand *d = &instr->operands[0];
    for (int i = 0; state->has_results && i < d->num_elements; i++) {
        const uint64_t result = state->results[d->elements[i].slot];
        if (result == 0 || (accumulate && result == hash_slot(warp, d->elements[i].slot)))
            continue;
        sim_fault(warp, instr, -1, "accumulator %d was used since the last wgmma.wait_group, without a wgmma.fence", i);
        return false;
    }
    return true;
}

/* ---- mma_async: data[0] and data[1] hold the shape ------------------------------------------------------------- */

static void pack_shape(ptx_instr *instr, const wgmma_shape *s) {
    instr->data[0] = (uint64_t)s->n | (uint64_t)s->k << 16 | (uint64_t)s->a << 32 | (uint64_t)s->b << 40;
    instr->data[1] = (uint64_t)s->half | (uint64_t)s->a_in_registers << 1 | (uint64_t)s->negate_a << 2 |
                     (uint64_t)s->negate_b << 3 | (uint64_t)s->transpose_a << 4 | (uint64_t)s->transpose_b << 5 |
                     (uint64_t)s->whole << 6 | (uint64_t)s->saturates << 7;
}

static wgmma_shape unpack_shape(const ptx_instr *instr) {
    const uint64_t flags = instr->data[1];
    wgmma_shape s = {.n = (int)(instr->data[0] & 0xffff),
                     .k = (int)(instr->data[0] >> 16 & 0xffff),
                     .a = (wgmma_type)(instr->data[0] >> 32 & 0xff),
                     .b = (wgmma_type)(instr->data[0] >> 40 & 0xff),
                     .half = flags & 1,
                     .a_in_registers = flags >> 1 & 1,
                     .negate_a = flags >> 2 & 1,
                     .negate_b = flags >> 3 & 1,
                     .transpose_a = flags >> 4 & 1,
                     .transpose_b = flags >> 5 & 1,
                     .whole = flags >> 6 & 1,
                     .saturates = flags >> 7 & 1};
    s.element_bytes = 32 / s.k;
    return s;
}

/* The operand's value, which must be the same in all lanes. */
static bool uniform(sim_warp *warp, const ptx_instr *instr, int operand, uint64_t *value) {
    *value = sim_operand(warp, &instr->operands[operand], 0);
    for (int lane = 1; lane < SIM_LANES; lane++) {
        const uint64_t other = sim_operand(warp, &instr->operands[operand], lane);
        if (other == *value)
            continue;
        sim_fault(warp, instr, lane, "operand %d is %#" PRIx64 " in this lane and %#" PRIx64 " in lane 0", operand,
                  other, *value);
        return false;
    }
    return true;
}

static sim_async_step product_step(sim_cta *cta, struct sim_async *op) {
    const wgmma_product *product = (const wgmma_product *)op;
    struct sim_warpgroup *group = &cta->async_state->warpgroups[product->first_warp / WGMMA_WARPS];
    bool ready = group->done == product->number;
    for (int w = 0; w < WGMMA_WARPS; w++)
        ready = ready && cta->warps[product->first_warp + w].wgmma->committed > product->number;
    if (!ready)
        return SIM_ASYNC_BLOCKED;
    if (wgmma_compute(product)) {
        group->finished[product->number % MAX_PRODUCTS] = race_unit_finish(cta, &op->unit);
        group->done++;
    }
    return SIM_ASYNC_DONE;
}

/* The product with the warp's next number: a new one, or one that other warps have issued. */
static wgmma_product *find_product(sim_warp *warp, const ptx_instr *instr, struct sim_warpgroup *group) {
    wgmma_product **link = &group->partial;
    while (*link != NULL && (*link)->number != warp->wgmma->issued)
        link = &(*link)->next;
    if (*link != NULL)
        return *link;
    wgmma_product *product = (wgmma_product *)sim_async_new(warp, instr, 0, sizeof(*product), SIM_ASYNC_WGMMA);
    if (product == NULL)
        return NULL;
    product->base.step = product_step;
    product->number = warp->wgmma->issued;
    product->first_warp = warp->index / WGMMA_WARPS * WGMMA_WARPS;
    product->shape = unpack_shape(instr);
    *link = product;
    return product;
}

/* Whether the warp's last product, not waited for, has the same accumulators. */
static bool is_chained(const sim_warp *warp, const ptx_instr *instr) {
    const struct sim_wgmma_state *state = warp->wgmma;
    if (state->issued == state->released)
        return false;
    const ptx_operand *d = &instr->operands[0],
                      *last = &state->instrs[state->issued - state->released - 1]->operands[0];
    bool same = d->num_elements == last->num_elements;
    for (int i = 0; i < d->num_elements && same; i++)
        same = d->elements[i].slot == last->elements[i].slot;
    return same;
}

static bool note_issued(sim_warp *warp, const ptx_instr *instr) {
    struct sim_wgmma_state *state = warp->wgmma;
    const size_t count = (size_t)(state->issued - state->released);
    if (count >= 200) {
        sim_fault(warp, instr, -1, "%zu products have been issued without wgmma.wait_group", count);
        return false;
    }
    if (count == state->instr_capacity) {
        const size_t capacity = count == 0 ? 16 : 2 * count;
        const ptx_instr **instrs = realloc(state->instrs, capacity * sizeof(const ptx_instr *));
        if (instrs == NULL) {
            sim_fault(warp, instr, -1, "the simulator is out of memory");
            return false;
        }
        state->instrs = instrs;
        state->instr_capacity = capacity;
    }
    state->instrs[count] = instr;
    state->issued++;
    own_registers(warp, instr, 1);
    return true;
}

static sim_result exec_mma(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask) || state_of(warp, instr) == NULL)
        return SIM_FAULT;
    const wgmma_shape shape = unpack_shape(instr);
    uint64_t a = 0, b = 0, accumulate = 0;
    if ((!shape.a_in_registers && !uniform(warp, instr, 1, &a)) || !uniform(warp, instr, 2, &b) ||
        !uniform(warp, instr, 3, &accumulate) || !check_fence(warp, instr, accumulate & 1))
        return SIM_FAULT;
    struct sim_warpgroup *group = &warp->cta->async_state->warpgroups[warp->index / WGMMA_WARPS];
    wgmma_product *product = find_product(warp, instr, group);
    if (product == NULL)
        return SIM_FAULT;
    if (product->issued == 0) {
        product->a = a;
        product->b = b;
        product->accumulate = accumulate & 1;
        product->chained = product->accumulate;
    } else if (product->base.instr != instr || product->a != a || product->b != b ||
               product->accumulate != (accumulate & 1)) {
        return sim_fault(
            warp, instr, -1,
            "the warps of the warpgroup do not issue the same wgmma: warp %d is at line %d with descriptors "
            "%#" PRIx64 " and %#" PRIx64 ", this one has %#" PRIx64 " and %#" PRIx64,
            product->base.warp->index, product->base.instr->line, product->a, product->b, a, b);
    }
    const int w = warp->index % WGMMA_WARPS;
    for (int i = 0; shape.a_in_registers && i < WGMMA_A_REGISTERS; i++) {
        for (int lane = 0; lane < SIM_LANES; lane++)
            product->a_registers[w][i][lane] = (uint32_t)sim_register(warp, instr->operands[1].elements[i].slot)[lane];
    }
    for (int i = 0; i < instr->operands[0].num_elements; i++)
        product->undefined[w][i] = ~sim_defined_lanes(warp, instr->operands[0].elements[i].slot);
    product->chained = product->chained && is_chained(warp, instr);
    if (!note_issued(warp, instr))
        return SIM_FAULT;
    race_unit_issue(&product->base.unit, warp, UINT32_MAX);
    product->issued |= 1u << w;
    if (product->issued != (1u << WGMMA_WARPS) - 1)
        return SIM_DONE;
    group->partial = product->next; /* the oldest: every warp issues in order */
    product->next = NULL;
    sim_async_queue(warp->cta, &product->base);
    return wgmma_check_operands(product) ? SIM_DONE : SIM_FAULT;
}

/* ---- fence, commit_group, wait_group --------------------------------------------------------------------------- */

static sim_result exec_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask) || state_of(warp, instr) == NULL)
        return SIM_FAULT;
    warp->wgmma->fenced = true;
    if (warp->wgmma->has_results)
        memset(warp->wgmma->results, 0, (size_t)warp->cta->launch->function->num_slots * sizeof(*warp->wgmma->results));
    warp->wgmma->has_results = false;
    return SIM_DONE;
}

static sim_result exec_commit(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask) || state_of(warp, instr) == NULL)
        return SIM_FAULT;
    struct sim_wgmma_state *state = warp->wgmma;
    if (state->num_ends == state->end_capacity) {
        const size_t capacity = state->end_capacity == 0 ? 8 : 2 * state->end_capacity;
        uint64_t *ends = realloc(state->ends, capacity * sizeof(*ends));
        if (ends == NULL)
            return sim_fault(warp, instr, -1, "the simulator is out of memory");
        state->ends = ends;
        state->end_capacity = capacity;
    }
    state->ends[state->num_ends++] = state->issued;
    state->committed = state->issued;
    return SIM_DONE;
}

static void release_product(sim_warp *warp, const ptx_instr *instr) {
    own_registers(warp, instr, -1);
    const ptx_operand *d = &instr->operands[0];
    for (int i = 0; i < d->num_elements; i++) {
        if (warp->register_pending[d->elements[i].slot] == 0)
            warp->wgmma->results[d->elements[i].slot] = hash_slot(warp, d->elements[i].slot);
    }
    warp->wgmma->has_results = true;
}

static sim_result exec_wait(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask) || state_of(warp, instr) == NULL)
        return SIM_FAULT;
    struct sim_wgmma_state *state = warp->wgmma;
    const size_t left = (size_t)instr->operands[0].bits;
    if (state->num_ends <= left)
        return SIM_DONE;
    const size_t groups = state->num_ends - left;
    const uint64_t end = state->ends[groups - 1];
    if (warp->cta->async_state->warpgroups[warp->index / WGMMA_WARPS].done < end)
        return SIM_RETRY;
    const size_t count = (size_t)(end - state->released);
    for (size_t i = 0; i < count; i++)
        release_product(warp, state->instrs[i]);
    const struct sim_warpgroup *group = &warp->cta->async_state->warpgroups[warp->index / WGMMA_WARPS];
    for (uint64_t number = state->released; number < end; number++)
        race_observe(warp, UINT32_MAX, group->finished[number % MAX_PRODUCTS]);
    if (count > 0)
        memmove(state->instrs, state->instrs + count, (size_t)(state->issued - end) * sizeof(*state->instrs));
    state->released = end;
    memmove(state->ends, state->ends + groups, left * sizeof(*state->ends));
    state->num_ends = left;
    return SIM_DONE;
}

/* ---- Binding --------------------------------------------------------------------------------------------------- */

/* Types of A and B, and of D. */
static const struct {
    const char *a, *b, *d;
    wgmma_type a_type, b_type;
    int k;
} TYPES[] = {
    {"e4m3", "e4m3", "f32", WGMMA_E4M3, WGMMA_E4M3, 32}, {"e4m3", "e4m3", "f16", WGMMA_E4M3, WGMMA_E4M3, 32},
    {"e4m3", "e5m2", "f32", WGMMA_E4M3, WGMMA_E5M2, 32}, {"e4m3", "e5m2", "f16", WGMMA_E4M3, WGMMA_E5M2, 32},
    {"e5m2", "e4m3", "f32", WGMMA_E5M2, WGMMA_E4M3, 32}, {"e5m2", "e4m3", "f16", WGMMA_E5M2, WGMMA_E4M3, 32},
    {"e5m2", "e5m2", "f32", WGMMA_E5M2, WGMMA_E5M2, 32}, {"e5m2", "e5m2", "f16", WGMMA_E5M2, WGMMA_E5M2, 32},
    {"f16", "f16", "f32", WGMMA_F16, WGMMA_F16, 16},     {"f16", "f16", "f16", WGMMA_F16, WGMMA_F16, 16},
    {"bf16", "bf16", "f32", WGMMA_BF16, WGMMA_BF16, 16}, {"tf32", "tf32", "f32", WGMMA_TF32, WGMMA_TF32, 8},
    {"s8", "s8", "s32", WGMMA_S8, WGMMA_S8, 32},         {"s8", "u8", "s32", WGMMA_S8, WGMMA_U8, 32},
    {"u8", "s8", "s32", WGMMA_U8, WGMMA_S8, 32},         {"u8", "u8", "s32", WGMMA_U8, WGMMA_U8, 32},
};

/* "m64n128k32" with that k; n, or 0. */
static int parse_n(const char *text, int k) {
    int n = 0;
    for (n = 8; n <= WGMMA_MAX_N; n += 8) {
        char expected[24];
        snprintf(expected, sizeof(expected), "m64n%dk%d", n, k);
        if (strcmp(expected, text) == 0)
            return n;
    }
    return 0;
}

static bool is_registers(const ptx_operand *operand, int count) {
    if (operand->kind != PTX_OPERAND_VECTOR || operand->num_elements != count)
        return false;
    for (int i = 0; i < count; i++) {
        if (operand->elements[i].kind != PTX_OPERAND_REGISTER)
            return false;
    }
    return true;
}

/* An immediate that must be one of two values; whether it is the second. */
static bool choose(const ptx_operand *operand, int64_t first, int64_t second, bool *is_second) {
    *is_second = operand->kind == PTX_OPERAND_INTEGER && (int32_t)operand->bits == (int32_t)second;
    return *is_second || (operand->kind == PTX_OPERAND_INTEGER && (int32_t)operand->bits == (int32_t)first);
}

static bool bind_mma(ptx_instr *instr, char *error, size_t error_size) {
    const size_t count = sizeof(TYPES) / sizeof(*TYPES);
    size_t t = 0;
    wgmma_shape s = {0};
    s.saturates = instr->num_modifiers == 8 && strcmp(instr->modifiers[7], "satfinite") == 0;
    const bool counted = instr->num_modifiers == 7 + s.saturates;
    for (; counted && t < count; t++) {
        if (strcmp(instr->modifiers[4], TYPES[t].d) == 0 && strcmp(instr->modifiers[5], TYPES[t].a) == 0 &&
            strcmp(instr->modifiers[6], TYPES[t].b) == 0)
            break;
    }
    s.whole = counted && t < count && strcmp(TYPES[t].d, "s32") == 0;
    if (counted && t < count)
        s.n = parse_n(instr->modifiers[3], TYPES[t].k);
    /* Integers have fewer widths. */
    if (s.n == 0 || (s.whole && s.n > 32 && s.n % 16 != 0) || (s.saturates && !s.whole)) {
        snprintf(error, error_size, "wgmma.mma_async: this shape or these types are not implemented");
        return false;
    }
    s.k = TYPES[t].k;
    s.a = TYPES[t].a_type;
    s.b = TYPES[t].b_type;
    s.half = strcmp(TYPES[t].d, "f16") == 0;
    s.a_in_registers = instr->num_operands > 1 && instr->operands[1].kind == PTX_OPERAND_VECTOR;
    const int transposes = s.k != 16 ? 0 : s.a_in_registers ? 1 : 2;
    const ptx_operand *o = instr->operands;
    bool ok = instr->num_operands == (s.whole ? 4 : 6 + transposes) && is_registers(&o[0], wgmma_accumulators(&s)) &&
              (s.a_in_registers ? is_registers(&o[1], WGMMA_A_REGISTERS) : o[1].kind == PTX_OPERAND_REGISTER) &&
              o[2].kind == PTX_OPERAND_REGISTER &&
              (s.whole || (choose(&o[4], 1, -1, &s.negate_a) && choose(&o[5], 1, -1, &s.negate_b)));
    if (ok && transposes == 2)
        ok = choose(&o[6], 0, 1, &s.transpose_a);
    if (ok && transposes > 0)
        ok = choose(&o[5 + transposes], 0, 1, &s.transpose_b);
    if (!ok) {
        snprintf(error, error_size, "wgmma.mma_async: wrong operands");
        return false;
    }
    pack_shape(instr, &s);
    instr->exec = exec_mma;
    return true;
}

static bool bind_wgmma(ptx_instr *instr, char *error, size_t error_size) {
    static const struct {
        const char *name;
        int operands; /* -1: mma_async */
        sim_exec exec;
    } actions[] = {{"fence", 0, exec_fence},
                   {"commit_group", 0, exec_commit},
                   {"wait_group", 1, exec_wait},
                   {"mma_async", -1, exec_mma}};
    const char *const *m = (const char *const *)instr->modifiers;
    if (instr->num_modifiers >= 3 && strcmp(m[1], "sync") == 0 && strcmp(m[2], "aligned") == 0) {
        for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++) {
            if (strcmp(m[0], actions[i].name) != 0)
                continue;
            instr->gather = PTX_GATHER_ALIGNED;
            if (actions[i].operands < 0)
                return bind_mma(instr, error, error_size);
            if (instr->num_modifiers != 3 || instr->num_operands != actions[i].operands ||
                (actions[i].operands == 1 && instr->operands[0].kind != PTX_OPERAND_INTEGER))
                break;
            instr->exec = actions[i].exec;
            return true;
        }
    }
    snprintf(error, error_size, "wgmma.%s: this form is not implemented", instr->num_modifiers > 0 ? m[0] : "");
    return false;
}

const sim_op sim_ops_wgmma[] = {{"wgmma", bind_wgmma}, {NULL, NULL}};
