/* SPDX-License-Identifier: MIT
 * cp.async with its groups, the forms of cp.async.bulk, and fences. */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"

/* ---- cp.async of 4, 8 or 16 bytes a lane ----------------------------------------------------------------------- */

/* data[0]: cache policy is operand data[0] (0: none), data[1]: only 16 bytes */

typedef struct copy {
    struct sim_async base;
    size_t bytes;
    size_t to[SIM_LANES];
    const uint8_t *from[SIM_LANES];
    race_copy_unit units[SIM_LANES];
    size_t taken[SIM_LANES]; /* bytes copied; the rest are zeros */
} copy;

static bool copy_fills(const struct sim_async *op, size_t offset, size_t size) {
    const copy *c = (const copy *)op;
    for (uint32_t lanes = op->mask; lanes != 0; lanes &= lanes - 1) {
        const size_t to = c->to[__builtin_ctz(lanes)];
        if (to < offset + size && offset < to + c->bytes)
            return true;
    }
    return false;
}

/* Its writes belong to the generic proxy, as an ordinary store's. */
static sim_async_step copy_step(sim_cta *cta, struct sim_async *op) {
    copy *c = (copy *)op;
    for (uint32_t lanes = op->mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        uint8_t *to = cta->shared + c->to[lane];
        if (!race_copy_access(race_shared(cta), op, lane, &c->units[lane], c->to[lane], c->bytes) ||
            !race_unit_access_global(op, (uint64_t)(uintptr_t)c->from[lane], c->taken[lane], RACE_READ))
            break;
        memset(to, 0, c->bytes);
        if (c->taken[lane] != 0)
            memcpy(to, c->from[lane], c->taken[lane]);
        if (!shadow_store_generic(op->warp, op->instr, c->to[lane], c->bytes))
            break;
        for (size_t i = 0; i < c->taken[lane]; i++) {
            if (!sim_valid(cta->launch->device, (uint64_t)(uintptr_t)c->from[lane] + i, 1))
                shadow_set_uninitialised(cta, c->to[lane] + i, 1);
        }
    }
    return SIM_ASYNC_DONE;
}

static void copy_destroy(struct sim_async *op) {
    copy *c = (copy *)op;
    for (int lane = 0; lane < SIM_LANES; lane++)
        race_copy_free(op->warp->cta, &c->units[lane]);
}

/* Bytes to take from memory: a smaller count, or none if a predicate says so. */
static size_t copy_taken(sim_warp *warp, const ptx_instr *instr, int lane, size_t bytes) {
    const int operands = instr->num_operands - (instr->data[0] != 0 ? 1 : 0);
    if (operands < 4)
        return bytes;
    const uint64_t value = sim_operand(warp, &instr->operands[3], lane);
    if (instr->operands[3].width == 1)
        return value & 1 ? 0 : bytes;
    return (uint32_t)value;
}

static bool copy_prepare(copy *c, sim_warp *warp, const ptx_instr *instr, int lane) {
    const uint64_t to = sim_address(warp, &instr->operands[0], lane);
    const uint64_t from = sim_address(warp, &instr->operands[1], lane);
    c->bytes = (size_t)sim_operand(warp, &instr->operands[2], lane);
    c->taken[lane] = copy_taken(warp, instr, lane, c->bytes);
    if ((c->bytes != 4 && c->bytes != 8 && c->bytes != 16) || (instr->data[1] && c->bytes != 16)) {
        sim_fault(warp, instr, lane, "copies %zu bytes; %s are accepted", c->bytes,
                  instr->data[1] ? "16" : "4, 8 or 16");
        return false;
    }
    if (c->taken[lane] > c->bytes) {
        sim_fault(warp, instr, lane, "source size %zu is above the copy's size %zu", c->taken[lane], c->bytes);
        return false;
    }
    if (instr->data[0] != 0 && !access_check_policy(warp, instr, lane, &instr->operands[instr->data[0]]))
        return false;
    if (from % c->bytes != 0) {
        sim_fault(warp, instr, lane, "global address %#llx is not a multiple of %zu", (unsigned long long)from,
                  c->bytes);
        return false;
    }
    if (sim_async_access(warp, instr, true, to, c->bytes, c->bytes, true) == NULL)
        return false;
    if (c->taken[lane] != 0) {
        c->from[lane] = sim_async_access(warp, instr, false, from, c->taken[lane], 0, false);
        if (c->from[lane] == NULL)
            return false;
    }
    c->to[lane] = (size_t)sim_shared_offset(to);
    if (shadow_awaited(warp->cta, c->to[lane], c->bytes)) {
        sim_fault(warp, instr, lane, "another copy into shared offset %#zx is under way", c->to[lane]);
        return false;
    }
    return true;
}

static sim_result exec_copy(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    copy *c = (copy *)sim_async_new(warp, instr, mask, sizeof(*c), SIM_ASYNC_COPY);
    if (c == NULL)
        return SIM_FAULT;
    c->base.step = copy_step;
    c->base.fills = copy_fills;
    c->base.destroy = copy_destroy;
    bool ok = true;
    for (uint32_t lanes = mask; lanes != 0 && ok; lanes &= lanes - 1)
        ok = copy_prepare(c, warp, instr, __builtin_ctz(lanes));
    for (uint32_t lanes = mask; lanes != 0 && ok; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        race_copy_issue(&c->units[lane], warp, lane, c->base.group[lane] + 1);
    }
    if (!ok) {
        sim_async_discard(&c->base);
        return SIM_FAULT;
    }
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1)
        shadow_set_written(warp->cta, c->to[__builtin_ctz(lanes)], c->bytes, false);
    sim_async_queue(warp->cta, &c->base);
    return SIM_DONE;
}

/* ---- Groups: data[0] is the sim_group_kind, data[1] for waits whether reading is enough ------------------------ */

static sim_result exec_commit(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return SIM_FAULT;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1)
        state->groups[instr->data[0]][warp->index][__builtin_ctz(lanes)]++;
    return SIM_DONE;
}

/* Waits for all groups but the newest that have been committed; for every copy without an operand (wait_all). */
static sim_result exec_wait_group(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return SIM_FAULT;
    const unsigned kind = instr->data[0] == SIM_GROUP_COPY ? SIM_ASYNC_COPY : SIM_ASYNC_BULK_STORE;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint32_t open = state->groups[instr->data[0]][warp->index][lane];
        uint32_t limit = open + 1;
        if (instr->num_operands == 1) {
            const uint32_t left = (uint32_t)instr->operands[0].bits;
            limit = open > left ? open - left : 0;
        }
        if (sim_async_outstanding(warp, lane, 1u << kind, limit, instr->data[1] != 0))
            return SIM_RETRY;
        if (kind == SIM_ASYNC_COPY)
            race_observe(warp, UINT32_C(1) << lane, race_copy_done(warp, lane, limit));
        else
            sim_async_observe(warp, lane, limit, instr->data[1] != 0);
    }
    return SIM_DONE;
}

/* ---- Fences ---------------------------------------------------------------------------------------------------- */

/* data[0]: its scope is the CTA. All are as strong as acq_rel here, .acquire and .release included. */
static sim_result exec_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    race_fence(warp, mask, instr->data[0] == 0);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return SIM_DONE;
}

static sim_result exec_nothing(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)warp, (void)instr, (void)mask;
    return SIM_DONE;
}

/* Bits of data[0]: what becomes visible to the async proxy. */
enum { BARRIERS = 1, SHARED = 2, GLOBAL = 4 };

static sim_result exec_proxy_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)mask;
    if (instr->data[0] & (BARRIERS | SHARED))
        shadow_proxy_fence(warp, !(instr->data[0] & SHARED));
    if (instr->data[0] & GLOBAL)
        race_proxy_fence(warp, RACE_PROXY_ASYNC);
    return SIM_DONE;
}

/* Between the async proxy and the generic one, in either direction, with regard to shared memory. */
static sim_result exec_generic_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)instr;
    race_fence(warp, mask, false);
    shadow_proxy_fence(warp, false);
    return SIM_DONE;
}

/* fence.proxy.tensormap: the acquire side, which names the map, is the one that counts; the release is a fence. */
static sim_result exec_map_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    race_fence(warp, mask, instr->data[1] == 0);
    if (instr->data[0])
        race_proxy_fence(warp, RACE_PROXY_TENSORMAP);
    return SIM_DONE;
}

/* ---- Binding --------------------------------------------------------------------------------------------------- */

/* Written forms: modifiers in order, alternatives parted by |, optional ones with ?. Operands: a address, t address
 * with coordinates, g address with a column and four rows, v value, i integer literal, "[" what follows may be left
 * out. A cache policy, after those of the form, is there if and only if .L2::cache_hint is. */
typedef struct form {
    const char *opcode, *modifiers, *operands;
    sim_exec exec;
    uint64_t data[2];
} form;

#define DIMS      "1d|2d|3d|4d|5d"
#define MBAR      "mbarrier::complete_tx::bytes"
#define HINT      "L2::cache_hint?"
#define OPERATION "add|min|max|inc|dec|and|or|xor"
#define REDUCTION OPERATION " noftz? f16|bf16|b32|u32|s32|b64|u64|s64|f32|f64"
static const form FORMS[] = {
    {"cp", "async ca shared|shared::cta global " HINT " L2::64B|L2::128B|L2::256B?", "aai[v", exec_copy, {0, 0}},
    {"cp", "async cg shared|shared::cta global " HINT " L2::64B|L2::128B|L2::256B?", "aai[v", exec_copy, {0, 1}},
    {"cp", "async commit_group", "", exec_commit, {SIM_GROUP_COPY, 0}},
    {"cp", "async wait_group", "i", exec_wait_group, {SIM_GROUP_COPY, 0}},
    {"cp", "async wait_all", "", exec_wait_group, {SIM_GROUP_COPY, 0}},
    {"cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "a", sim_mbarrier_arrive_after_copies, {0, 0}},
    {"cp", "async bulk commit_group", "", exec_commit, {SIM_GROUP_BULK, 0}},
    {"cp", "async bulk wait_group", "i", exec_wait_group, {SIM_GROUP_BULK, 0}},
    {"cp", "async bulk wait_group read", "i", exec_wait_group, {SIM_GROUP_BULK, 1}},
    {"cp", "async bulk shared::cluster|shared::cta global " MBAR " " HINT, "aava", exec_bulk_load, {0, 0}},
    {"cp", "async bulk shared::cluster global " MBAR " multicast::cluster " HINT, "aavav", exec_bulk_load, {0, 4}},
    {"cp", "async bulk shared::cluster shared::cta " MBAR, "aava", exec_bulk_local, {0, 0}},
    {"cp", "async bulk global shared::cta bulk_group " HINT, "aav", exec_bulk_store, {0, 0}},
    {"cp", "async bulk global shared::cta bulk_group cp_mask", "aavv", exec_bulk_store, {0, 3}},
    {"cp", "reduce async bulk global shared::cta bulk_group " HINT " " REDUCTION, "aav", exec_bulk_store, {0, 0}},
    {"cp", "reduce async bulk shared::cluster shared::cta " MBAR " " REDUCTION, "aava", exec_bulk_local, {0, 0}},
    {"cp", "async bulk prefetch L2 global " HINT, "av", exec_bulk_prefetch, {0, 0}},
    {"cp",
     "async bulk tensor " DIMS " shared::cluster|shared::cta global tile? " MBAR " cta_group::1? " HINT,
     "ata",
     exec_tensor_load,
     {0, 0}},
    {"cp",
     "async bulk tensor " DIMS " shared::cluster global tile? " MBAR " multicast::cluster cta_group::1? " HINT,
     "atav",
     exec_tensor_load,
     {0, 3}},
    {"cp",
     "async bulk tensor 2d shared::cluster|shared::cta global tile::gather4 " MBAR " cta_group::1? " HINT,
     "aga",
     exec_tensor_load,
     {0, 0}},
    {"cp",
     "async bulk tensor 2d shared::cluster global tile::gather4 " MBAR " multicast::cluster cta_group::1? " HINT,
     "agav",
     exec_tensor_load,
     {0, 3}},
    {"cp", "async bulk tensor 2d global shared::cta tile::scatter4 bulk_group " HINT, "ga", exec_tensor_store, {0, 0}},
    {"cp",
     "reduce async bulk tensor " DIMS " global shared::cta " OPERATION " tile? bulk_group " HINT,
     "ta",
     exec_tensor_store,
     {0, 0}},
    {"cp", "async bulk tensor " DIMS " global shared::cta tile? bulk_group " HINT, "ta", exec_tensor_store, {0, 0}},
    {"cp", "async bulk prefetch tensor " DIMS " L2 global tile? " HINT, "t", exec_tensor_prefetch, {0, 0}},
    {"cp", "async bulk prefetch tensor 2d L2 global tile::gather4 " HINT, "g", exec_tensor_prefetch, {0, 0}},
    {"fence", "sc|acq_rel|acquire|release? cta|cluster", "", exec_fence, {1, 0}},
    {"fence", "sc|acq_rel|acquire|release? gpu|sys", "", exec_fence, {0, 0}},
    {"fence", "proxy alias", "", exec_nothing, {0, 0}},
    {"fence", "proxy async", "", exec_proxy_fence, {SHARED | GLOBAL, 0}},
    {"fence", "proxy async shared::cta|shared::cluster", "", exec_proxy_fence, {SHARED, 0}},
    {"fence", "proxy async global", "", exec_proxy_fence, {GLOBAL, 0}},
    {"fence", "proxy tensormap::generic release cta|cluster", "", exec_map_fence, {0, 1}},
    {"fence", "proxy tensormap::generic release gpu|sys", "", exec_map_fence, {0, 0}},
    {"fence", "proxy tensormap::generic acquire cta|cluster", "ai", exec_map_fence, {1, 1}},
    {"fence", "proxy tensormap::generic acquire gpu|sys", "ai", exec_map_fence, {1, 0}},
    {"fence", "mbarrier_init release cluster", "", exec_proxy_fence, {BARRIERS, 0}},
    /* Of shared memory alone; as strong as the others here. */
    {"fence", "acquire sync_restrict::shared::cluster cluster", "", exec_fence, {1, 0}},
    {"fence", "release sync_restrict::shared::cta cluster", "", exec_fence, {1, 0}},
    {"fence", "proxy async::generic acquire sync_restrict::shared::cluster cluster", "", exec_generic_fence, {0, 0}},
    {"fence", "proxy async::generic release sync_restrict::shared::cta cluster", "", exec_generic_fence, {0, 0}},
    {"membar", "proxy alias", "", exec_nothing, {0, 0}},
    {"membar", "cta", "", exec_fence, {1, 0}},
    {"membar", "gl|sys", "", exec_fence, {0, 0}},
};

static bool is_one_of(const char *list, size_t size, const char *word) {
    const size_t length = strlen(word);
    for (size_t at = 0; at <= size;) {
        const char *end = memchr(list + at, '|', size - at);
        const size_t here = end != NULL ? (size_t)(end - list) - at : size - at;
        if (here == length && memcmp(list + at, word, length) == 0)
            return true;
        at += here + 1;
    }
    return false;
}

static bool modifiers_fit(const char *pattern, const ptx_instr *instr) {
    int next = 0;
    while (*pattern != '\0') {
        const size_t length = strcspn(pattern, " ");
        const bool optional = length > 0 && pattern[length - 1] == '?';
        if (next < instr->num_modifiers && is_one_of(pattern, length - optional, instr->modifiers[next]))
            next++;
        else if (!optional)
            return false;
        pattern += length;
        pattern += strspn(pattern, " ");
    }
    return next == instr->num_modifiers;
}

/* The dimensions of a tensor copy; 0 if it is none. */
static int dimensions(const ptx_instr *instr) {
    for (int i = 0; i < instr->num_modifiers; i++) {
        const char *m = instr->modifiers[i];
        if (m[0] >= '1' && m[0] <= '5' && strcmp(m + 1, "d") == 0)
            return m[0] - '0';
    }
    return 0;
}

static bool operand_fits(const ptx_instr *instr, char letter, const ptx_operand *operand) {
    switch (letter) {
    case 'a':
        return operand->kind == PTX_OPERAND_ADDRESS && operand->num_elements == 0;
    case 't':
        return operand->kind == PTX_OPERAND_ADDRESS && operand->num_elements == dimensions(instr);
    case 'g':
        return operand->kind == PTX_OPERAND_ADDRESS && operand->num_elements == 5;
    case 'i':
        return operand->kind == PTX_OPERAND_INTEGER;
    default:
        return operand->kind == PTX_OPERAND_REGISTER || operand->kind == PTX_OPERAND_INTEGER;
    }
}

static bool operands_fit(const char *letters, const ptx_instr *instr, int count) {
    int next = 0;
    bool optional = false;
    for (; *letters != '\0'; letters++) {
        if (*letters == '[') {
            optional = true;
            continue;
        }
        if (next == count)
            return optional;
        if (!operand_fits(instr, *letters, &instr->operands[next++]))
            return false;
    }
    return next == count;
}

static bool bind_form(ptx_instr *instr, char *error, size_t error_size) {
    const int policy = ptx_has(instr, "L2::cache_hint") ? 1 : 0;
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(*FORMS); i++) {
        const form *f = &FORMS[i];
        if (strcmp(f->opcode, instr->opcode) != 0 || !modifiers_fit(f->modifiers, instr))
            continue;
        const int count = instr->num_operands - policy;
        if (!operands_fit(f->operands, instr, count) ||
            (policy && !operand_fits(instr, 'v', &instr->operands[count]))) {
            snprintf(error, error_size, "%s: wrong operands for this form", instr->opcode);
            return false;
        }
        if (instr->num_modifiers > 0 && strcmp(instr->modifiers[0], "reduce") == 0 && !bulk_reduction_fits(instr)) {
            snprintf(error, error_size, "cp.reduce: no such operation on this type");
            return false;
        }
        instr->exec = f->exec;
        instr->data[0] = f->data[0];
        instr->data[1] = f->data[1];
        if (policy)
            instr->data[0] = (uint64_t)count;
        return true;
    }
    char text[160] = "";
    for (int i = 0; i < instr->num_modifiers && strlen(text) < 100; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ".%.40s", instr->modifiers[i]);
    snprintf(error, error_size, "%s%s is not implemented", instr->opcode, text);
    return false;
}

const sim_op sim_ops_async[] = {{"cp", bind_form}, {"fence", bind_form}, {"membar", bind_form}, {NULL, NULL}};
