/* SPDX-License-Identifier: MIT
 *
 * st.async and red.async: stores and reductions into shared memory of the cluster, which is the CTA's own, that
 * complete on an mbarrier; and what changes tensor maps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"
#include "tensor_map.h"

/* ---- st.async, red.async: data[0] access_op, data[1] access_kind, data[2] bytes of an element, data[3] elements ----
 */

typedef struct store {
    struct sim_async base;
    access_step step;
    size_t to, elements;
    uint64_t values[4], barrier;
} store;

/* Its accesses belong to the generic proxy, and are weak (st) or relaxed (red). */
static sim_async_step store_step(sim_cta *cta, struct sim_async *op) {
    const store *s = (const store *)op;
    const size_t size = s->step.bytes * s->elements;
    const bool reduces = s->step.op != ACCESS_NO_OP;
    if (reduces && !shadow_written(cta, s->to, size)) {
        sim_fault(op->warp, op->instr, op->lane, "reduces %zu bytes at shared offset %#zx, which nothing has written",
                  size, s->to);
        return SIM_ASYNC_DONE;
    }
    if (!race_unit_access(race_shared(cta), op, s->to, size, RACE_WRITE | (reduces ? RACE_STRONG : 0)))
        return SIM_ASYNC_DONE;
    for (size_t i = 0; i < s->elements; i++) {
        uint8_t *at = cta->shared + s->to + i * s->step.bytes;
        if (reduces)
            access_apply(&s->step, at, s->values[i], 0);
        else
            memcpy(at, &s->values[i], s->step.bytes);
    }
    if (shadow_store_generic(op->warp, op->instr, s->to, size))
        sim_mbarrier_complete_tx(op, s->barrier, (uint32_t)size);
    return SIM_ASYNC_DONE;
}

static sim_result exec_store(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        store *s = (store *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*s), SIM_ASYNC_BULK_LOAD);
        if (s == NULL)
            return SIM_FAULT;
        s->step = (access_step){.op = (access_op)instr->data[0],
                                .kind = (access_kind)instr->data[1],
                                .bytes = (size_t)instr->data[2],
                                .packed = 1};
        s->elements = (size_t)instr->data[3];
        const ptx_operand *values = &instr->operands[1];
        for (size_t i = 0; i < s->elements; i++) {
            const ptx_operand *one = values->kind == PTX_OPERAND_VECTOR ? &values->elements[i] : values;
            s->values[i] = sim_operand_real(warp, one, lane, (int)(8 * s->step.bytes));
        }
        const uint64_t to = sim_address(warp, &instr->operands[0], lane);
        const size_t size = s->step.bytes * s->elements;
        s->barrier = sim_address(warp, &instr->operands[2], lane);
        s->to = (size_t)sim_shared_offset(to);
        s->base.step = store_step;
        if (sim_async_access(warp, instr, true, to, size, size, true) == NULL ||
            !sim_mbarrier_check(warp, instr, lane, s->barrier)) {
            sim_async_discard(&s->base);
            return SIM_FAULT;
        }
        sim_async_queue(warp->cta, &s->base);
    }
    return SIM_DONE;
}

/* Modifiers of the two in order, those with ? optional; then the operation (red), the vector (st) and the type. */
static int after_common(const ptx_instr *instr, bool reduces) {
    static const char *const stores[] = {"async", "weak?", "shared::cluster", "mbarrier::complete_tx::bytes"};
    static const char *const reductions[] = {"async", "relaxed?", "cluster?", "shared::cluster",
                                             "mbarrier::complete_tx::bytes"};
    const char *const *words = reduces ? reductions : stores;
    int next = 0;
    for (int i = 0; i < (reduces ? 5 : 4); i++) {
        const size_t length = strcspn(words[i], "?");
        const char *given = next < instr->num_modifiers ? instr->modifiers[next] : "";
        if (strlen(given) == length && memcmp(given, words[i], length) == 0)
            next++;
        else if (words[i][length] == '\0')
            return -1;
    }
    return next;
}

static bool set_type(ptx_instr *instr, const char *name) {
    static const struct {
        const char *name;
        access_kind kind;
        unsigned bytes;
    } types[] = {{"b32", ACCESS_UNTYPED, 4},  {"b64", ACCESS_UNTYPED, 8}, {"u32", ACCESS_UNSIGNED, 4},
                 {"u64", ACCESS_UNSIGNED, 8}, {"s32", ACCESS_SIGNED, 4},  {"s64", ACCESS_SIGNED, 8},
                 {"f32", ACCESS_FLOAT, 4},    {"f64", ACCESS_FLOAT, 8}};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        instr->data[1] = types[i].kind;
        instr->data[2] = types[i].bytes;
        return true;
    }
    return false;
}

static bool set_op(ptx_instr *instr, const char *name) {
    static const char *const ops[] = {"and", "or", "xor", "add", "inc", "dec", "min", "max"}; /* from ACCESS_AND on */
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (strcmp(ops[i], name) == 0)
            instr->data[0] = ACCESS_AND + i;
    }
    return instr->data[0] != ACCESS_NO_OP && instr->data[1] != ACCESS_FLOAT &&
           access_has_op((access_kind)instr->data[1], (int)instr->data[2], (access_op)instr->data[0]);
}

static bool bind_store(ptx_instr *instr, char *error, size_t error_size) {
    const bool reduces = strcmp(instr->opcode, "red") == 0;
    if (instr->num_modifiers == 0 || strcmp(instr->modifiers[0], "async") != 0)
        return false;
    const int next = after_common(instr, reduces), left = instr->num_modifiers - next;
    const ptx_operand *o = instr->operands;
    instr->data[3] = 1;
    bool ok = next > 0 && (left == 1 || left == 2) && set_type(instr, instr->modifiers[instr->num_modifiers - 1]) &&
              instr->num_operands == 3 && o[0].kind == PTX_OPERAND_ADDRESS && o[2].kind == PTX_OPERAND_ADDRESS;
    if (ok && reduces) {
        ok = left == 2 && set_op(instr, instr->modifiers[next]);
    } else if (ok && left == 2) {
        instr->data[3] = strcmp(instr->modifiers[next], "v2") == 0 ? 2 : 4;
        ok = instr->data[3] == 2 || strcmp(instr->modifiers[next], "v4") == 0;
    }
    const int values = o[1].kind == PTX_OPERAND_VECTOR ? o[1].num_elements : 1;
    if (!ok || (uint64_t)values != instr->data[3] || instr->data[2] * instr->data[3] > 16) {
        snprintf(error, error_size, "%s.async: this form is not implemented", instr->opcode);
        return false;
    }
    instr->exec = exec_store;
    return true;
}

/* ---- tensormap.replace: data[0] field, data[1] space, data[2] whether there is an index ----------------------------
 */

enum { MAP_BYTES = 128, PIECE = 64 };

/* The map's bytes, which the lane reads and writes. NULL after sim_fault. */
static uint8_t *map_at(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address,
                       bool write) {
    uint8_t *first = NULL;
    for (size_t at = 0; at < MAP_BYTES; at += PIECE) {
        uint8_t *bytes = sim_access(warp, instr, lane, space, address + at, PIECE, write);
        if (bytes == NULL)
            return NULL;
        first = at == 0 ? bytes : first;
    }
    return first;
}

static sim_result exec_replace(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_space space = (ptx_space)instr->data[1];
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t address = sim_address(warp, &instr->operands[0], lane);
        const uint32_t index = instr->data[2] ? (uint32_t)sim_operand(warp, &instr->operands[1], lane) : 0;
        const uint64_t value = sim_operand(warp, &instr->operands[instr->data[2] ? 2 : 1], lane);
        tensor_map map;
        const uint8_t *from = map_at(warp, instr, lane, space, address, false);
        uint8_t *to = from != NULL ? map_at(warp, instr, lane, space, address, true) : NULL;
        if (to == NULL)
            return SIM_FAULT;
        memcpy(&map, to, sizeof(map));
        if (!tensor_map_replace(&map, (tensor_map_field)instr->data[0], index, value))
            return sim_fault(warp, instr, lane,
                             "there is no tensor map at %#" PRIx64 ", or it has no such dimension, or %#" PRIx64
                             " is no value of the field",
                             address, value);
        memcpy(to, &map, sizeof(map));
    }
    return SIM_DONE;
}

/* Copies a map from shared to global memory, once for the warp, and releases it to the tensormap proxy. */
static sim_result exec_publish(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const uint64_t to_address = sim_address(warp, &instr->operands[0], 0);
    const uint64_t from_address = sim_address(warp, &instr->operands[1], 0);
    for (int lane = 1; lane < SIM_LANES; lane++) {
        if (sim_address(warp, &instr->operands[0], lane) != to_address ||
            sim_address(warp, &instr->operands[1], lane) != from_address)
            return sim_fault(warp, instr, lane, "the lanes give different addresses");
    }
    const uint8_t *from = map_at(warp, instr, 0, PTX_SHARED, from_address, false);
    uint8_t *to = from != NULL ? map_at(warp, instr, 0, PTX_GLOBAL, to_address, true) : NULL;
    if (to == NULL)
        return SIM_FAULT;
    memcpy(to, from, MAP_BYTES);
    race_meet(warp, mask);
    race_fence(warp, mask, instr->data[0] != 0);
    return SIM_DONE;
}

static const struct {
    const char *name;
    tensor_map_field field;
    bool indexed;
    const char *type;
} FIELDS[] = {
    {"global_address", TENSOR_MAP_ADDRESS, false, "b64"},
    {"rank", TENSOR_MAP_RANK, false, "b32"},
    {"box_dim", TENSOR_MAP_BOX, true, "b32"},
    {"global_dim", TENSOR_MAP_SIZE, true, "b32"},
    {"global_stride", TENSOR_MAP_STRIDE, true, "b64"},
    {"element_stride", TENSOR_MAP_ELEMENT_STRIDE, true, "b32"},
    {"elemtype", TENSOR_MAP_TYPE, false, "b32"},
    {"interleave_layout", TENSOR_MAP_INTERLEAVE, false, "b32"},
    {"swizzle_mode", TENSOR_MAP_SWIZZLE, false, "b32"},
    {"fill_mode", TENSOR_MAP_FILL, false, "b32"},
};

static bool bind_replace(ptx_instr *instr) {
    const char *const *m = (const char *const *)instr->modifiers;
    if (instr->num_modifiers != 6 || strcmp(m[1], "tile") != 0 || strcmp(m[4], "b1024") != 0)
        return false;
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++) {
        if (strcmp(FIELDS[i].name, m[2]) != 0)
            continue;
        instr->data[0] = FIELDS[i].field;
        instr->data[1] = strcmp(m[3], "global") == 0 ? PTX_GLOBAL : PTX_SHARED;
        instr->data[2] = FIELDS[i].indexed;
        instr->exec = exec_replace;
        return (instr->data[1] == PTX_GLOBAL || strcmp(m[3], "shared::cta") == 0) &&
               strcmp(m[5], FIELDS[i].type) == 0 && instr->num_operands == (FIELDS[i].indexed ? 3 : 2) &&
               instr->operands[0].kind == PTX_OPERAND_ADDRESS &&
               (!FIELDS[i].indexed || instr->operands[1].kind == PTX_OPERAND_INTEGER);
    }
    return false;
}

static bool bind_publish(ptx_instr *instr) {
    static const char *const words[] = {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic",
                                        "release",       NULL,     "sync",        "aligned"};
    const int count = sizeof(words) / sizeof(*words);
    bool ok = instr->num_modifiers == count && instr->num_operands == 3 &&
              instr->operands[0].kind == PTX_OPERAND_ADDRESS && instr->operands[1].kind == PTX_OPERAND_ADDRESS &&
              instr->operands[2].kind == PTX_OPERAND_INTEGER && instr->operands[2].bits == MAP_BYTES;
    for (int i = 0; i < count && ok; i++)
        ok = words[i] == NULL || strcmp(words[i], instr->modifiers[i]) == 0;
    if (!ok)
        return false;
    const char *scope = instr->modifiers[5];
    instr->data[0] = strcmp(scope, "gpu") == 0 || strcmp(scope, "sys") == 0;
    instr->gather = PTX_GATHER_ALIGNED;
    instr->exec = exec_publish;
    return instr->data[0] || strcmp(scope, "cta") == 0 || strcmp(scope, "cluster") == 0;
}

static bool bind_tensor_map(ptx_instr *instr, char *error, size_t error_size) {
    const bool replaces = instr->num_modifiers > 0 && strcmp(instr->modifiers[0], "replace") == 0;
    if (replaces ? bind_replace(instr) : bind_publish(instr))
        return true;
    snprintf(error, error_size, "tensormap: this form is not implemented");
    return false;
}

const sim_op sim_ops_store_async[] = {
    {"st", bind_store}, {"red", bind_store}, {"tensormap", bind_tensor_map}, {NULL, NULL}};
