/* SPDX-License-Identifier: MIT
 *
 * What the families of scalar instructions share: rules that bind an instruction by its written form, and the loop over
 * lanes. */
#ifndef PTXSIM_EXEC_H_
#define PTXSIM_EXEC_H_

#include <string.h>

#include "sim.h"

/* ---- Types ---- */

typedef struct exec_type {
    const char *name;
    char kind; /* p: predicate, b: untyped, u: unsigned, s: signed, f: floating point, x: packed or narrow float */
    unsigned char width; /* bits */
} exec_type;

/* The type a modifier names; NULL if it is not a type. */
const exec_type *exec_find_type(const char *modifier);
/* An instruction's first (direction 1) or last (-1) modifier that is a type; NULL if it has none. */
const exec_type *exec_instr_type(const ptx_instr *instr, int direction);

/* ---- Binding ---- */

/* One written form of an instruction. Modifiers are matched in order; those that are not there must be optional.
 * Operands, one letter each:
 *   d  destination: a register, or _
 *   q  destination with an optional second register, d|p
 *   s  source of the last type
 *   t  source of the first type
 *   p  predicate source, !p allowed
 *   i  integer literal
 *   m  register, vector or source: mov's; its prepare looks at it */
typedef struct exec_rule {
    const char *opcode;
    const char *modifiers; /* "rn|rz ftz? f32": alternatives parted by |, and ? if none of them need be there */
    const char *operands;
    sim_exec exec;
    bool (*prepare)(ptx_instr *instr, char *error, size_t error_size); /* more checks, data[2] and data[3]; or NULL */
} exec_rule;

/* Binds an instruction by the first of the rules that fits (they end with a NULL opcode). `types` names the types of
 * the family, parted by |: without a fitting rule an instruction whose last type is none of them is left to other
 * families, as ptx.h describes; NULL: all types. Fills data[0] (64 - width of the last type) and data[1] (the flags
 * below), and turns real literals into the bits of their type. */
bool exec_bind(const exec_rule *rules, const char *types, ptx_instr *instr, char *error, size_t error_size);

/* Whether `word` is one of `list`'s words, which are parted by |. */
bool exec_listed(const char *list, const char *word);

/* ---- Flags, in data[1] ---- */

enum {
    EXEC_FTZ = 1 << 0,
    EXEC_SAT = 1 << 1,
    EXEC_SATFINITE = 1 << 2,
    EXEC_NAN = 1 << 3,
    EXEC_RELU = 1 << 4,
    EXEC_XORSIGN = 1 << 5,
    EXEC_CLAMP = 1 << 6,
    EXEC_HI = 1 << 7,
    EXEC_CC = 1 << 8,
    EXEC_ROUNDING_SHIFT = 12 /* an exec_rounding */
};

typedef enum exec_rounding {
    EXEC_RN, /* to nearest, ties to even; also where no rounding is written */
    EXEC_RZ,
    EXEC_RM,
    EXEC_RP,
    EXEC_RNA /* to nearest, ties away from zero */
} exec_rounding;

static inline exec_rounding exec_rounding_of(unsigned flags) {
    return (exec_rounding)(flags >> EXEC_ROUNDING_SHIFT & 7);
}

/* ---- Values ---- */

/* Bits of the type whose width is 64 - shift, as a number. */
static inline uint64_t exec_unsigned(uint64_t bits, unsigned shift) {
    return bits << shift >> shift;
}

static inline int64_t exec_signed(uint64_t bits, unsigned shift) {
    return (int64_t)(bits << shift) >> shift;
}

static inline float exec_float(uint64_t bits) {
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return value;
}

static inline double exec_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define EXEC_NAN_F32 UINT32_C(0x7fffffff)
#define EXEC_NAN_F16 UINT32_C(0x7fff) /* and bf16 */

/* Bits of a result: every NaN is the canonical one. */
static inline uint64_t exec_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return value != value ? EXEC_NAN_F32 : bits;
}

static inline uint64_t exec_double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* A float without its subnormals: they become zeros of the same sign. */
static inline uint64_t exec_flush(uint64_t bits) {
    return (bits & 0x7f800000) ? bits : bits & 0x80000000;
}

/* ---- Lanes ---- */

/* For operands other than plain registers: fills `buffer` for the lanes of `mask` and returns it. */
const uint64_t *exec_fill(sim_warp *warp, const ptx_operand *operand, uint64_t *buffer, uint32_t mask);

/* A source's values by lane; they may be wider than the instruction's type. `buffer` has SIM_LANES places. */
static inline const uint64_t *exec_source(sim_warp *warp, const ptx_operand *operand, uint64_t *buffer, uint32_t mask) {
    if (operand->kind == PTX_OPERAND_REGISTER && !operand->negated)
        return sim_register(warp, operand->slot);
    return exec_fill(warp, operand, buffer, mask);
}

/* Where a result goes, by lane; `buffer` for a sink. */
static inline uint64_t *exec_destination(sim_warp *warp, const ptx_operand *operand, uint64_t *buffer) {
    return operand->kind == PTX_OPERAND_REGISTER ? sim_register(warp, operand->slot) : buffer;
}

/* Runs the block in braces for each lane of mask, in which `lane` is its number. A full mask, the usual case, has a
 * loop of its own, which compilers make much faster. */
#define EXEC_LANES(mask, ...)                                                                                          \
    do {                                                                                                               \
        if ((mask) == UINT32_MAX) {                                                                                    \
            for (int lane = 0; lane < SIM_LANES; lane++)                                                               \
                __VA_ARGS__                                                                                            \
        } else {                                                                                                       \
            for (uint32_t lanes_left = (mask); lanes_left; lanes_left &= lanes_left - 1) {                             \
                const int lane = __builtin_ctz(lanes_left);                                                            \
                __VA_ARGS__                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

/* Defines the exec function `name` of an instruction with one destination and `count` sources: `expression` gives the
 * result's bits from the sources' bits a, b, c, e (one to four of them), `shift` and `flags`. */
#define EXEC_DEFINE(name, count, expression)                                                                           \
    static sim_result name(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {                                    \
        uint64_t buffers[5][SIM_LANES];                                                                                \
        uint64_t *const d = exec_destination(warp, &instr->operands[0], buffers[0]);                                   \
        const uint64_t *const as = exec_source(warp, &instr->operands[1], buffers[1], mask);                           \
        const uint64_t *const bs = (count) > 1 ? exec_source(warp, &instr->operands[2], buffers[2], mask) : as;        \
        const uint64_t *const cs = (count) > 2 ? exec_source(warp, &instr->operands[3], buffers[3], mask) : as;        \
        const uint64_t *const es = (count) > 3 ? exec_source(warp, &instr->operands[4], buffers[4], mask) : as;        \
        const unsigned shift = (unsigned)instr->data[0];                                                               \
        const unsigned flags = (unsigned)instr->data[1];                                                               \
        (void)bs, (void)cs, (void)es, (void)shift, (void)flags;                                                        \
        EXEC_LANES(mask, {                                                                                             \
            const uint64_t a = as[lane], b = bs[lane], c = cs[lane], e = es[lane];                                     \
            (void)b, (void)c, (void)e;                                                                                 \
            d[lane] = (expression);                                                                                    \
        });                                                                                                            \
        return SIM_DONE;                                                                                               \
    }

/* Families whose opcodes are listed by another one's table. */
bool exec_bind_compare(ptx_instr *instr, char *error, size_t error_size);

#endif
