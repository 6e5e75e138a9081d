/* SPDX-License-Identifier: MIT
 *
 * mov, with vectors taken apart and put together, and conversions between state spaces and generic addresses.
 * Selections and comparisons are in exec_compare.c. */
#include "exec.h"

#include <stdio.h>

/* ---- mov ---- */

EXEC_DEFINE(exec_mov, 1, exec_unsigned(a, shift))

#define MAX_ELEMENTS 4

/* {d, e, ...}, a: the elements take a's bits from the lowest on. data[2]: bits of an element. */
static sim_result exec_unpack(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffer[SIM_LANES], source[SIM_LANES];
    const ptx_operand *vector = &instr->operands[0];
    const unsigned width = (unsigned)instr->data[2];
    const uint64_t *const as = exec_source(warp, &instr->operands[1], buffer, mask);
    EXEC_LANES(mask, { source[lane] = as[lane]; }); /* an element may be the source's own register */
    for (int i = 0; i < vector->num_elements; i++) {
        if (vector->elements[i].kind != PTX_OPERAND_REGISTER)
            continue;
        uint64_t *const d = sim_register(warp, vector->elements[i].slot);
        const unsigned position = (unsigned)i * width;
        EXEC_LANES(mask, { d[lane] = exec_unsigned(source[lane] >> position, 64 - width); });
    }
    return SIM_DONE;
}

/* d, {a, b, ...} */
static sim_result exec_pack(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffer[SIM_LANES], packed[SIM_LANES] = {0}, sink[SIM_LANES];
    const ptx_operand *vector = &instr->operands[1];
    const unsigned width = (unsigned)instr->data[2];
    for (int i = 0; i < vector->num_elements; i++) {
        const uint64_t *const as = exec_source(warp, &vector->elements[i], buffer, mask);
        const unsigned position = (unsigned)i * width;
        EXEC_LANES(mask, { packed[lane] |= exec_unsigned(as[lane], 64 - width) << position; });
    }
    uint64_t *const d = exec_destination(warp, &instr->operands[0], sink);
    EXEC_LANES(mask, { d[lane] = packed[lane]; });
    return SIM_DONE;
}

/* Whether a vector's elements suit mov: registers, or as `source` literals too, as `result` sinks too. */
static bool suits(const ptx_operand *vector, bool result, int width) {
    for (int i = 0; i < vector->num_elements; i++) {
        const ptx_operand *element = &vector->elements[i];
        const bool other = element->kind == (result ? PTX_OPERAND_SINK : PTX_OPERAND_INTEGER);
        if (element->negated || (element->kind != PTX_OPERAND_REGISTER && !other))
            return false;
        if (element->kind == PTX_OPERAND_REGISTER && element->width != 0 && element->width != width)
            return false;
    }
    return true;
}

static bool prepare_vector(ptx_instr *instr, char *error, size_t error_size) {
    const bool unpacks = instr->operands[0].kind == PTX_OPERAND_VECTOR;
    const ptx_operand *vector = &instr->operands[unpacks ? 0 : 1], *scalar = &instr->operands[unpacks ? 1 : 0];
    const exec_type *type = exec_instr_type(instr, -1);
    const char *wrong = NULL;
    if (vector->kind != PTX_OPERAND_VECTOR || scalar->kind == PTX_OPERAND_VECTOR)
        wrong = "one operand must be a vector, the other a scalar";
    else if (vector->num_elements != 2 && vector->num_elements != MAX_ELEMENTS)
        wrong = "a vector must have 2 or 4 elements";
    else if (type->width / vector->num_elements < 8)
        wrong = "elements must have 8 bits at least";
    else if (!suits(vector, unpacks, type->width / vector->num_elements))
        wrong = "elements must be registers that fill the type";
    else if (scalar->negated || (scalar->kind != PTX_OPERAND_REGISTER &&
                                 scalar->kind != (unpacks ? PTX_OPERAND_INTEGER : PTX_OPERAND_SINK)))
        wrong = "the scalar must be a register";
    if (wrong) {
        snprintf(error, error_size, "mov.%s: %s", type->name, wrong);
        return false;
    }
    instr->exec = unpacks ? exec_unpack : exec_pack;
    instr->data[2] = type->width / (unsigned)vector->num_elements;
    return true;
}

/* ---- Generic addresses ---- */

static const struct {
    const char *name;
    uint64_t window; /* 0: generic addresses are those of the space */
} spaces[] = {
    {"global", 0},
    {"const", 0},
    {"shared", SIM_SHARED_WINDOW},
    {"shared::cta", SIM_SHARED_WINDOW},
    {"shared::cluster", SIM_SHARED_WINDOW},
    {"local", SIM_LOCAL_WINDOW},
    {"param", SIM_PARAM_WINDOW},
    {"param::entry", SIM_PARAM_WINDOW},
};
#define SPACES "global|const|shared|shared::cta|shared::cluster|local|param|param::entry"

/* data[2]: the window. */
static bool prepare_space(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        if (ptx_has(instr, spaces[i].name))
            instr->data[2] = spaces[i].window;
    return true;
}

static inline bool in_window(uint64_t address, uint64_t window) {
    return address - window < SIM_WINDOW_BYTES;
}

/* Global memory is what lies in none of the windows. */
static inline bool in_space(uint64_t address, uint64_t window) {
    if (window)
        return in_window(address, window);
    return !in_window(address, SIM_SHARED_WINDOW) && !in_window(address, SIM_LOCAL_WINDOW) &&
           !in_window(address, SIM_PARAM_WINDOW);
}

EXEC_DEFINE(exec_cvta, 1, exec_unsigned(a + instr->data[2], shift))

/* An address of another space would give one that means something else: hardware lets it pass, this machine does not.
 */
static sim_result exec_cvta_to(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffers[2][SIM_LANES];
    const uint64_t window = instr->data[2];
    uint64_t *const d = exec_destination(warp, &instr->operands[0], buffers[0]);
    const uint64_t *const as = exec_source(warp, &instr->operands[1], buffers[1], mask);
    EXEC_LANES(mask, {
        if (!in_space(as[lane], window))
            return sim_fault(warp, instr, lane,
                             "generic address 0x%llx does not lie in the state space it is converted to",
                             (unsigned long long)as[lane]);
        d[lane] = as[lane] - window;
    });
    return SIM_DONE;
}

EXEC_DEFINE(exec_isspacep, 1, in_space(a, instr->data[2]))

/* ---- Rules ---- */

#define WORDS "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"

static const exec_rule rules[] = {
    {"mov", "pred", "dp", exec_mov, NULL},
    {"cvta", SPACES " u64", "ds", exec_cvta, prepare_space},
    {"cvta", "to " SPACES " u64", "ds", exec_cvta_to, prepare_space},
    {"isspacep", "global|shared|shared::cta|shared::cluster|local|param|param::entry", "ds", exec_isspacep,
     prepare_space},
    {NULL, NULL, NULL, NULL, NULL},
};
static const exec_rule scalar_rules[] = {{"mov", WORDS, "ds", exec_mov, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static const exec_rule vector_rules[] = {
    {"mov", "b16|b32|b64", "mm", NULL, prepare_vector},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool bind_move(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, NULL, instr, error, error_size);
}

static bool bind_mov(ptx_instr *instr, char *error, size_t error_size) {
    bool vector = false;
    for (int i = 0; i < instr->num_operands; i++)
        vector |= instr->operands[i].kind == PTX_OPERAND_VECTOR;
    if (vector)
        return exec_bind(vector_rules, NULL, instr, error, error_size);
    return exec_bind(ptx_has(instr, "pred") ? rules : scalar_rules, NULL, instr, error, error_size);
}

const sim_op sim_ops_move[] = {
    {"mov", bind_mov},           {"cvta", bind_move},        {"isspacep", bind_move},     {"selp", exec_bind_compare},
    {"slct", exec_bind_compare}, {"set", exec_bind_compare}, {"setp", exec_bind_compare}, {NULL, NULL},
};
