/* SPDX-License-Identifier: MIT */
#include "exec.h"

#include <stdio.h>

static const exec_type types[] = {
    {"b32", 'b', 32},    {"s32", 's', 32},   {"u32", 'u', 32},     {"f32", 'f', 32},    {"pred", 'p', 1},
    {"b64", 'b', 64},    {"s64", 's', 64},   {"u64", 'u', 64},     {"f64", 'f', 64},    {"b16", 'b', 16},
    {"s16", 's', 16},    {"u16", 'u', 16},   {"f16", 'f', 16},     {"bf16", 'f', 16},   {"b8", 'b', 8},
    {"s8", 's', 8},      {"u8", 'u', 8},     {"s4", 's', 4},       {"u4", 'u', 4},      {"s2", 's', 2},
    {"u2", 'u', 2},      {"f16x2", 'x', 32}, {"bf16x2", 'x', 32},  {"f32x2", 'x', 64},  {"u16x2", 'x', 32},
    {"s16x2", 'x', 32},  {"tf32", 'x', 32},  {"e4m3x2", 'x', 16},  {"e5m2x2", 'x', 16}, {"e2m3x2", 'x', 16},
    {"e3m2x2", 'x', 16}, {"e2m1x2", 'x', 8}, {"ue8m0x2", 'x', 16}, {"b128", 'b', 128},
};

const exec_type *exec_find_type(const char *modifier) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (!strcmp(types[i].name, modifier))
            return &types[i];
    return NULL;
}

const exec_type *exec_instr_type(const ptx_instr *instr, int direction) {
    for (int i = direction > 0 ? 0 : instr->num_modifiers - 1; i >= 0 && i < instr->num_modifiers; i += direction) {
        const exec_type *type = exec_find_type(instr->modifiers[i]);
        if (type)
            return type;
    }
    return NULL;
}

/* ---- Matching ---- */

bool exec_listed(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (;;) {
        const size_t here = strcspn(list, "|");
        if (here == length && !memcmp(list, word, length))
            return true;
        if (!list[here])
            return false;
        list += here + 1;
    }
}

/* Whether the modifiers are those of a rule, in its order. An optional one is taken where it fits: no rule has the same
 * word in two neighbouring places where that could be wrong. */
static bool modifiers_match(const char *rule, const ptx_instr *instr) {
    int next = 0;
    while (*rule) {
        char alternatives[160];
        size_t length = strcspn(rule, " ");
        const bool optional = length > 0 && rule[length - 1] == '?';
        const size_t words = optional ? length - 1 : length;
        if (words >= sizeof(alternatives))
            return false;
        memcpy(alternatives, rule, words);
        alternatives[words] = '\0';
        if (next < instr->num_modifiers && exec_listed(alternatives, instr->modifiers[next]))
            next++;
        else if (!optional)
            return false;
        rule += length;
        rule += strspn(rule, " ");
    }
    return next == instr->num_modifiers;
}

static uint64_t modifier_flags(const ptx_instr *instr) {
    static const struct {
        const char *name;
        unsigned flag;
    } flags[] = {
        {"ftz", EXEC_FTZ},
        {"sat", EXEC_SAT},
        {"satfinite", EXEC_SATFINITE},
        {"NaN", EXEC_NAN},
        {"relu", EXEC_RELU},
        {"xorsign", EXEC_XORSIGN},
        {"clamp", EXEC_CLAMP},
        {"hi", EXEC_HI},
        {"cc", EXEC_CC},
        {"rz", EXEC_RZ << EXEC_ROUNDING_SHIFT},
        {"rzi", EXEC_RZ << EXEC_ROUNDING_SHIFT},
        {"rm", EXEC_RM << EXEC_ROUNDING_SHIFT},
        {"rmi", EXEC_RM << EXEC_ROUNDING_SHIFT},
        {"rp", EXEC_RP << EXEC_ROUNDING_SHIFT},
        {"rpi", EXEC_RP << EXEC_ROUNDING_SHIFT},
        {"rna", EXEC_RNA << EXEC_ROUNDING_SHIFT},
    };
    unsigned result = 0;
    for (int i = 0; i < instr->num_modifiers; i++)
        for (size_t j = 0; j < sizeof(flags) / sizeof(flags[0]); j++)
            if (!strcmp(flags[j].name, instr->modifiers[i]))
                result |= flags[j].flag;
    return result;
}

/* ---- Operands ---- */

static bool fold_real(ptx_operand *operand, const exec_type *type) {
    if (type && !strcmp(type->name, "f32")) {
        const float value = (float)operand->real;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        operand->bits = bits;
    } else if (type && !strcmp(type->name, "f64")) {
        operand->bits = exec_double_bits(operand->real);
    } else {
        return false;
    }
    operand->kind = PTX_OPERAND_INTEGER;
    return true;
}

static const char *check_source(ptx_operand *operand, const exec_type *type) {
    if (operand->kind == PTX_OPERAND_REAL && !fold_real(operand, type))
        return "must not be a real literal with this type";
    if (operand->kind != PTX_OPERAND_REGISTER && operand->kind != PTX_OPERAND_SPECIAL &&
        operand->kind != PTX_OPERAND_INTEGER && operand->kind != PTX_OPERAND_SYMBOL)
        return "must be a register, literal or variable";
    if (operand->negated)
        return "must not be negated";
    return NULL;
}

/* What is wrong with an operand, or NULL. */
static const char *check_operand(char letter, ptx_operand *operand, const exec_type *first, const exec_type *last) {
    switch (letter) {
    case 'd':
    case 'q':
        if (operand->kind != PTX_OPERAND_REGISTER && operand->kind != PTX_OPERAND_SINK)
            return "must be a register";
        if (operand->negated)
            return "must not be negated";
        return letter == 'd' && operand->kind == PTX_OPERAND_REGISTER && operand->pair >= 0
                   ? "must be a single register"
                   : NULL;
    case 's':
        return check_source(operand, last);
    case 't':
        return check_source(operand, first);
    case 'p':
        if (operand->kind == PTX_OPERAND_INTEGER && !operand->negated)
            return NULL;
        if (operand->kind == PTX_OPERAND_SPECIAL && strcmp(operand->name, "%is_explicit_cluster") == 0)
            return NULL;
        return operand->kind == PTX_OPERAND_REGISTER && operand->width <= 1 ? NULL : "must be a predicate";
    case 'i':
        return operand->kind == PTX_OPERAND_INTEGER ? NULL : "must be an integer literal";
    default:
        return NULL;
    }
}

static void join_modifiers(const ptx_instr *instr, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < instr->num_modifiers && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ".%s", instr->modifiers[i]);
}

bool exec_bind(const exec_rule *rules, const char *own_types, ptx_instr *instr, char *error, size_t error_size) {
    const exec_type *first = exec_instr_type(instr, 1), *last = exec_instr_type(instr, -1);
    const exec_rule *matching = NULL;
    bool known = false;
    char written[256];
    error[0] = '\0';
    for (; rules->opcode; rules++) {
        if (strcmp(rules->opcode, instr->opcode))
            continue;
        known = true;
        if (!modifiers_match(rules->modifiers, instr))
            continue;
        matching = rules;
        if ((int)strlen(rules->operands) == instr->num_operands)
            break;
    }
    join_modifiers(instr, written, sizeof(written));
    if (!matching) {
        if (!own_types || (last && exec_listed(own_types, last->name)))
            snprintf(error, error_size, known ? "%s%s: these modifiers are not supported" : "%s%s is not supported",
                     instr->opcode, written);
        return false;
    }
    if (!rules->opcode) {
        snprintf(error, error_size, "%s%s: %d operands, %zu expected", instr->opcode, written, instr->num_operands,
                 strlen(matching->operands));
        return false;
    }
    for (int i = 0; i < instr->num_operands; i++) {
        const char *wrong = check_operand(matching->operands[i], &instr->operands[i], first, last);
        if (wrong) {
            snprintf(error, error_size, "%s%s: operand %d %s", instr->opcode, written, i + 1, wrong);
            return false;
        }
    }
    instr->exec = matching->exec;
    instr->gather = PTX_GATHER_NONE;
    instr->data[0] = last && last->width <= 64 ? 64u - last->width : 0;
    instr->data[1] = modifier_flags(instr);
    instr->data[2] = instr->data[3] = 0;
    return !matching->prepare || matching->prepare(instr, error, error_size);
}

const uint64_t *exec_fill(sim_warp *warp, const ptx_operand *operand, uint64_t *buffer, uint32_t mask) {
    if (operand->kind == PTX_OPERAND_INTEGER) {
        const uint64_t bits = operand->negated ? operand->bits ^ 1 : operand->bits;
        for (int lane = 0; lane < SIM_LANES; lane++)
            buffer[lane] = bits;
    } else if (operand->kind == PTX_OPERAND_REGISTER) {
        const uint64_t *values = sim_register(warp, operand->slot);
        for (int lane = 0; lane < SIM_LANES; lane++)
            buffer[lane] = values[lane] ^ 1; /* !p */
    } else {
        EXEC_LANES(mask, { buffer[lane] = sim_operand(warp, operand, lane); });
    }
    return buffer;
}
