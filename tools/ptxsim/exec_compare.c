/* SPDX-License-Identifier: MIT
 *
 * Comparisons and selections: setp, set, selp, slct. */
#include "exec_formats.h"

#include <stdio.h>

/* The order of the names below. For integers LO to HS are LT to GE of unsigned numbers. */
enum comparison {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_EQU,
    COMPARE_NEU,
    COMPARE_LTU,
    COMPARE_LEU,
    COMPARE_GTU,
    COMPARE_GEU,
    COMPARE_NUM,
    COMPARE_NAN
};
static const char *const comparison_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                               "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
static const char *const unsigned_names[] = {"lo", "ls", "hi", "hs"};

#define BIT_COMPARISONS   "eq|ne"
#define ORDER_COMPARISONS "eq|ne|lt|le|gt|ge"
#define COMPARISONS_U     ORDER_COMPARISONS "|lo|ls|hi|hs"
#define COMPARISONS_F     ORDER_COMPARISONS "|equ|neu|ltu|leu|gtu|geu|num|nan"

/* How the sources are read. */
enum reading { READ_UNSIGNED, READ_SIGNED, READ_F16, READ_BF16, READ_F32, READ_F64, READ_F16X2, READ_BF16X2 };

/* How a predicate is mixed in. */
enum mixing { MIX_NONE, MIX_AND, MIX_OR, MIX_XOR };

/* data[2]: comparison, reading, mixing, a byte each; data[3], for set: result for true. */
static bool prepare_compare(ptx_instr *instr, char *error, size_t error_size) {
    static const struct {
        const char *type;
        enum reading reading;
    } readings[] = {{"f16", READ_F16}, {"bf16", READ_BF16},   {"f32", READ_F32},
                    {"f64", READ_F64}, {"f16x2", READ_F16X2}, {"bf16x2", READ_BF16X2}};
    const exec_type *source = exec_instr_type(instr, -1), *result = exec_instr_type(instr, 1);
    unsigned comparison = 0, reading = source->kind == 's' ? READ_SIGNED : READ_UNSIGNED;
    for (unsigned i = 0; i < sizeof(comparison_names) / sizeof(comparison_names[0]); i++)
        if (!strcmp(instr->modifiers[0], comparison_names[i]))
            comparison = i;
    for (unsigned i = 0; i < sizeof(unsigned_names) / sizeof(unsigned_names[0]); i++)
        if (!strcmp(instr->modifiers[0], unsigned_names[i]))
            comparison = COMPARE_LT + i;
    for (unsigned i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
        if (!strcmp(source->name, readings[i].type))
            reading = readings[i].reading;
    const unsigned mixing = ptx_has(instr, "and")   ? MIX_AND
                            : ptx_has(instr, "or")  ? MIX_OR
                            : ptx_has(instr, "xor") ? MIX_XOR
                                                    : MIX_NONE;
    if ((mixing != MIX_NONE) != (instr->num_operands == 4)) {
        snprintf(error, error_size, "%s: a third source belongs to .and, .or and .xor", instr->opcode);
        return false;
    }
    instr->data[2] = comparison | reading << 8 | mixing << 16;
    const bool pairs = reading == READ_F16X2 || reading == READ_BF16X2; /* each half all ones */
    instr->data[3] = !strcmp(result->name, "f32")      ? UINT64_C(0x3f800000)
                     : !strcmp(result->name, "f16")    ? UINT64_C(0x3c00)
                     : !strcmp(result->name, "bf16")   ? UINT64_C(0x3f80)
                     : !strcmp(result->name, "f16x2")  ? UINT64_C(0x3c00)
                     : !strcmp(result->name, "bf16x2") ? UINT64_C(0x3f80)
                     : pairs                           ? UINT64_C(0xffff)
                                                       : UINT64_MAX >> (64 - result->width);
    return true;
}

/* One bit a lane: whether the condition holds. */
#define COMPARE_LANES(condition)                                                                                       \
    EXEC_LANES(mask, { result |= (uint32_t)(condition) << lane; });                                                    \
    break

/* LT to GE, which numbers of all kinds have. */
#define COMPARE_ORDER                                                                                                  \
    case COMPARE_EQ:                                                                                                   \
        COMPARE_LANES(xs[lane] == ys[lane]);                                                                           \
    case COMPARE_LT:                                                                                                   \
        COMPARE_LANES(xs[lane] < ys[lane]);                                                                            \
    case COMPARE_LE:                                                                                                   \
        COMPARE_LANES(xs[lane] <= ys[lane]);                                                                           \
    case COMPARE_GT:                                                                                                   \
        COMPARE_LANES(xs[lane] > ys[lane]);                                                                            \
    case COMPARE_GE:                                                                                                   \
        COMPARE_LANES(xs[lane] >= ys[lane])

static uint32_t compare_signed(unsigned comparison, const int64_t *xs, const int64_t *ys, uint32_t mask) {
    uint32_t result = 0;
    switch (comparison) {
        COMPARE_ORDER;
    default: /* NE */
        COMPARE_LANES(xs[lane] != ys[lane]);
    }
    return result;
}

static uint32_t compare_unsigned(unsigned comparison, const uint64_t *xs, const uint64_t *ys, uint32_t mask) {
    uint32_t result = 0;
    switch (comparison) {
        COMPARE_ORDER;
    default: /* NE */
        COMPARE_LANES(xs[lane] != ys[lane]);
    }
    return result;
}

/* With a NaN the ordered comparisons are false, .ne included, and the unordered ones true. */
static uint32_t compare_float(unsigned comparison, const double *xs, const double *ys, uint32_t mask) {
    uint32_t result = 0;
    switch (comparison) {
        COMPARE_ORDER;
    case COMPARE_NE:
        COMPARE_LANES(xs[lane] < ys[lane] || xs[lane] > ys[lane]);
    case COMPARE_EQU:
        COMPARE_LANES(!(xs[lane] < ys[lane] || xs[lane] > ys[lane]));
    case COMPARE_NEU:
        COMPARE_LANES(xs[lane] != ys[lane]);
    case COMPARE_LTU:
        COMPARE_LANES(!(xs[lane] >= ys[lane]));
    case COMPARE_LEU:
        COMPARE_LANES(!(xs[lane] > ys[lane]));
    case COMPARE_GTU:
        COMPARE_LANES(!(xs[lane] <= ys[lane]));
    case COMPARE_GEU:
        COMPARE_LANES(!(xs[lane] < ys[lane]));
    case COMPARE_NUM:
        COMPARE_LANES(xs[lane] == xs[lane] && ys[lane] == ys[lane]);
    default: /* NAN */
        COMPARE_LANES(xs[lane] != xs[lane] || ys[lane] != ys[lane]);
    }
    return result;
}

static void read_floats(enum reading reading, const uint64_t *bits, unsigned half, unsigned flags, uint32_t mask,
                        double *values) {
    const bool flush = flags & EXEC_FTZ;
    switch (reading) {
    case READ_F32:
        EXEC_LANES(mask, { values[lane] = (double)exec_float(flush ? exec_flush(bits[lane]) : bits[lane]); });
        break;
    case READ_F64:
        EXEC_LANES(mask, { values[lane] = exec_double(bits[lane]); });
        break;
    case READ_F16:
    case READ_F16X2:
        EXEC_LANES(mask, {
            const uint64_t code = bits[lane] >> 16 * half;
            values[lane] = flush && !(code & 0x7c00) ? 0 : exec_f16(code);
        });
        break;
    default:
        EXEC_LANES(mask, { values[lane] = exec_bf16(bits[lane] >> 16 * half); });
    }
}

/* Compares the lanes' sources; half 1 looks at the upper halves of packed ones. */
static uint32_t compare(sim_warp *warp, const ptx_instr *instr, uint32_t mask, unsigned half) {
    uint64_t buffers[2][SIM_LANES];
    const unsigned shift = (unsigned)instr->data[0], flags = (unsigned)instr->data[1];
    const unsigned comparison = instr->data[2] & 0xff;
    const enum reading reading = (enum reading)(instr->data[2] >> 8 & 0xff);
    const uint64_t *const as = exec_source(warp, &instr->operands[1], buffers[0], mask);
    const uint64_t *const bs = exec_source(warp, &instr->operands[2], buffers[1], mask);
    if (reading == READ_SIGNED) {
        int64_t xs[SIM_LANES], ys[SIM_LANES];
        EXEC_LANES(mask, {
            xs[lane] = exec_signed(as[lane], shift);
            ys[lane] = exec_signed(bs[lane], shift);
        });
        return compare_signed(comparison, xs, ys, mask);
    }
    if (reading == READ_UNSIGNED) {
        uint64_t xs[SIM_LANES], ys[SIM_LANES];
        EXEC_LANES(mask, {
            xs[lane] = exec_unsigned(as[lane], shift);
            ys[lane] = exec_unsigned(bs[lane], shift);
        });
        return compare_unsigned(comparison, xs, ys, mask);
    }
    double xs[SIM_LANES], ys[SIM_LANES];
    read_floats(reading, as, half, flags, mask, xs);
    read_floats(reading, bs, half, flags, mask, ys);
    return compare_float(comparison, xs, ys, mask);
}

/* One bit a lane: the third source; not used without mixing. */
static uint32_t third_source(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffer[SIM_LANES];
    uint32_t result = 0;
    if (instr->num_operands == 4) {
        const uint64_t *const cs = exec_source(warp, &instr->operands[3], buffer, mask);
        EXEC_LANES(mask, { result |= (uint32_t)(cs[lane] & 1) << lane; });
    }
    return result;
}

static uint32_t mix(const ptx_instr *instr, uint32_t compared, uint32_t third) {
    switch (instr->data[2] >> 16 & 0xff) {
    case MIX_AND:
        return compared & third;
    case MIX_OR:
        return compared | third;
    case MIX_XOR:
        return compared ^ third;
    default:
        return compared;
    }
}

static void store_predicate(sim_warp *warp, int slot, uint32_t bits, uint32_t mask) {
    if (slot >= 0) {
        uint64_t *const d = sim_register(warp, slot);
        EXEC_LANES(mask, { d[lane] = bits >> lane & 1; });
    }
}

/* p|q: q takes the comparison's opposite, or for packed sources that of the upper halves. */
static sim_result exec_setp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *result = &instr->operands[0];
    const enum reading reading = (enum reading)(instr->data[2] >> 8 & 0xff);
    const uint32_t third = third_source(warp, instr, mask);
    const uint32_t first = compare(warp, instr, mask, 0);
    uint32_t second = 0;
    if (result->pair >= 0)
        second = reading == READ_F16X2 || reading == READ_BF16X2 ? compare(warp, instr, mask, 1) : ~first;
    if (result->kind == PTX_OPERAND_REGISTER)
        store_predicate(warp, result->slot, mix(instr, first, third), mask);
    store_predicate(warp, result->pair, mix(instr, second, third), mask);
    return SIM_DONE;
}

static sim_result exec_set(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffer[SIM_LANES];
    const enum reading reading = (enum reading)(instr->data[2] >> 8 & 0xff);
    const bool packed = reading == READ_F16X2 || reading == READ_BF16X2;
    const uint32_t third = third_source(warp, instr, mask);
    const uint32_t low = mix(instr, compare(warp, instr, mask, 0), third);
    const uint32_t high = packed ? mix(instr, compare(warp, instr, mask, 1), third) : 0;
    uint64_t *const d = exec_destination(warp, &instr->operands[0], buffer);
    const uint64_t yes = instr->data[3];
    EXEC_LANES(mask, { d[lane] = (low >> lane & 1 ? yes : 0) | (high >> lane & 1 ? yes << 16 : 0); });
    return SIM_DONE;
}

EXEC_DEFINE(exec_selp, 3, exec_unsigned(c & 1 ? a : b, shift))

/* a if c >= 0; -0 is, a NaN is not. data[2]: the result's 64 - width; data[3]: c is a float. */
static bool prepare_slct(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = 64u - exec_instr_type(instr, 1)->width;
    instr->data[3] = exec_instr_type(instr, -1)->kind == 'f';
    return true;
}

static inline bool not_negative(uint64_t bits, bool is_float, unsigned flags) {
    return is_float ? exec_float(flags & EXEC_FTZ ? exec_flush(bits) : bits) >= 0 : (int32_t)bits >= 0;
}

EXEC_DEFINE(exec_slct, 3, exec_unsigned(not_negative(c, instr->data[3], flags) ? a : b, (unsigned)instr->data[2]))

/* ---- Rules ---- */

#define MIXING     "and|or|xor?"
#define WORDS      "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"
#define RESULTS    "u32|s32|f32"
#define RESULTS_16 "u16|s16|u32|s32"

static const exec_rule rules[] = {
    {"setp", BIT_COMPARISONS " " MIXING " b16|b32|b64", "qss", exec_setp, prepare_compare},
    {"setp", BIT_COMPARISONS " " MIXING " b16|b32|b64", "qssp", exec_setp, prepare_compare},
    {"setp", COMPARISONS_U " " MIXING " u16|u32|u64", "qss", exec_setp, prepare_compare},
    {"setp", COMPARISONS_U " " MIXING " u16|u32|u64", "qssp", exec_setp, prepare_compare},
    {"setp", ORDER_COMPARISONS " " MIXING " s16|s32|s64", "qss", exec_setp, prepare_compare},
    {"setp", ORDER_COMPARISONS " " MIXING " s16|s32|s64", "qssp", exec_setp, prepare_compare},
    {"setp", COMPARISONS_F " " MIXING " ftz? f32|f16|f16x2", "qss", exec_setp, prepare_compare},
    {"setp", COMPARISONS_F " " MIXING " ftz? f32|f16|f16x2", "qssp", exec_setp, prepare_compare},
    {"setp", COMPARISONS_F " " MIXING " f64|bf16|bf16x2", "qss", exec_setp, prepare_compare},
    {"setp", COMPARISONS_F " " MIXING " f64|bf16|bf16x2", "qssp", exec_setp, prepare_compare},
    {"set", BIT_COMPARISONS " " MIXING " " RESULTS " b16|b32|b64", "dss", exec_set, prepare_compare},
    {"set", BIT_COMPARISONS " " MIXING " " RESULTS " b16|b32|b64", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_U " " MIXING " " RESULTS " u16|u32|u64", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_U " " MIXING " " RESULTS " u16|u32|u64", "dssp", exec_set, prepare_compare},
    {"set", ORDER_COMPARISONS " " MIXING " " RESULTS " s16|s32|s64", "dss", exec_set, prepare_compare},
    {"set", ORDER_COMPARISONS " " MIXING " " RESULTS " s16|s32|s64", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? " RESULTS " f32|f64", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? " RESULTS " f32|f64", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? f16|" RESULTS_16 " f16", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? f16|" RESULTS_16 " f16", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " bf16|" RESULTS_16 " bf16", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " bf16|" RESULTS_16 " bf16", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? f16x2|u32|s32 f16x2", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " ftz? f16x2|u32|s32 f16x2", "dssp", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " bf16x2|u32|s32 bf16x2", "dss", exec_set, prepare_compare},
    {"set", COMPARISONS_F " " MIXING " bf16x2|u32|s32 bf16x2", "dssp", exec_set, prepare_compare},
    {"selp", WORDS, "dssp", exec_selp, NULL},
    {"slct", WORDS " s32", "dtts", exec_slct, prepare_slct},
    {"slct", "ftz? " WORDS " f32", "dtts", exec_slct, prepare_slct},
    {NULL, NULL, NULL, NULL, NULL},
};

bool exec_bind_compare(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, NULL, instr, error, error_size);
}
