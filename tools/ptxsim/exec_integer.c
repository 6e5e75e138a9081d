/* SPDX-License-Identifier: MIT
 *
 * Integer and logic instructions. Results are computed with 64 bits for every width: sources are extended from their
 * type where that matters, results are cut to it. */
#include "exec.h"

/* In the expressions of this file: sources as numbers of the instruction's type, and a result cut to it. */
#define S(x)  exec_signed(x, shift)
#define U(x)  exec_unsigned(x, shift)
#define WIDTH (64 - shift)

typedef unsigned __int128 uint128;
typedef __int128 int128;

static inline int64_t clamp_s32(int64_t value) {
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
}

/* ---- Arithmetic ---- */

EXEC_DEFINE(exec_add, 2, U(a + b))
EXEC_DEFINE(exec_sub, 2, U(a - b))
EXEC_DEFINE(exec_add_sat, 2, U((uint64_t)clamp_s32(S(a) + S(b))))
EXEC_DEFINE(exec_sub_sat, 2, U((uint64_t)clamp_s32(S(a) - S(b))))

static inline uint64_t high_unsigned(uint64_t a, uint64_t b, unsigned shift) {
    return U((uint64_t)((uint128)U(a) * U(b) >> WIDTH));
}

static inline uint64_t high_signed(uint64_t a, uint64_t b, unsigned shift) {
    return U((uint64_t)((int128)S(a) * S(b) >> WIDTH));
}

EXEC_DEFINE(exec_mul_lo, 2, U(a *b))
EXEC_DEFINE(exec_mul_hi_u, 2, high_unsigned(a, b, shift))
EXEC_DEFINE(exec_mul_hi_s, 2, high_signed(a, b, shift))
EXEC_DEFINE(exec_mad_lo, 3, U(a *b + c))
EXEC_DEFINE(exec_mad_hi_u, 3, U(high_unsigned(a, b, shift) + c))
EXEC_DEFINE(exec_mad_hi_s, 3, U(high_signed(a, b, shift) + c))
EXEC_DEFINE(exec_mad_hi_sat, 3, U((uint64_t)clamp_s32(S(high_signed(a, b, shift)) + S(c))))

/* The result is twice as wide as the sources: 64 - 2 * width = 2 * shift - 64. */
#define WIDE(x) exec_unsigned(x, 2 * shift - 64)
EXEC_DEFINE(exec_mul_wide_u, 2, WIDE(U(a) * U(b)))
EXEC_DEFINE(exec_mul_wide_s, 2, WIDE((uint64_t)(S(a) * S(b))))
EXEC_DEFINE(exec_mad_wide_u, 3, WIDE(U(a) * U(b) + c))
EXEC_DEFINE(exec_mad_wide_s, 3, WIDE((uint64_t)(S(a) * S(b)) + c))

/* Products of the lower 24 bits, of whose 48 bits .lo gives the lower and .hi the upper 32. */
static inline int64_t product24(uint64_t a, uint64_t b, bool is_signed, unsigned flags) {
    const int64_t product =
        is_signed ? exec_signed(a, 40) * exec_signed(b, 40) : (int64_t)(exec_unsigned(a, 40) * exec_unsigned(b, 40));
    return flags & EXEC_HI ? product >> 16 : product;
}

EXEC_DEFINE(exec_mul24_u, 2, U((uint64_t)product24(a, b, false, flags)))
EXEC_DEFINE(exec_mul24_s, 2, U((uint64_t)product24(a, b, true, flags)))
EXEC_DEFINE(exec_mad24_u, 3, U((uint64_t)product24(a, b, false, flags) + c))
EXEC_DEFINE(exec_mad24_s, 3, U((uint64_t)product24(a, b, true, flags) + c))
EXEC_DEFINE(exec_mad24_sat, 3, U((uint64_t)clamp_s32(S((uint64_t)product24(a, b, true, flags)) + S(c))))

static inline uint64_t distance(bool less, uint64_t a, uint64_t b) {
    return less ? b - a : a - b;
}

EXEC_DEFINE(exec_sad_u, 3, U(distance(U(a) < U(b), a, b) + c))
EXEC_DEFINE(exec_sad_s, 3, U(distance(S(a) < S(b), a, b) + c))

/* Division by zero is unspecified; here, as on an H200, quotient and remainder are all ones. The smallest number by -1
 * wraps around. */
static inline uint64_t quotient(int64_t a, int64_t b) {
    return b == 0 ? UINT64_MAX : b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
}

static inline uint64_t remainder_signed(int64_t a, int64_t b) {
    return b == 0 ? UINT64_MAX : b == -1 ? 0 : (uint64_t)(a % b);
}

EXEC_DEFINE(exec_div_u, 2, U(U(b) ? U(a) / U(b) : UINT64_MAX))
EXEC_DEFINE(exec_div_s, 2, U(quotient(S(a), S(b))))
EXEC_DEFINE(exec_rem_u, 2, U(U(b) ? U(a) % U(b) : UINT64_MAX))
EXEC_DEFINE(exec_rem_s, 2, U(remainder_signed(S(a), S(b))))

EXEC_DEFINE(exec_abs, 1, U(S(a) < 0 ? 0 - a : a))
EXEC_DEFINE(exec_neg, 1, U(0 - a))

static inline int64_t relu(int64_t value, unsigned flags) {
    return (flags & EXEC_RELU) && value < 0 ? 0 : value;
}

EXEC_DEFINE(exec_min_u, 2, U(a) < U(b) ? U(a) : U(b))
EXEC_DEFINE(exec_max_u, 2, U(a) > U(b) ? U(a) : U(b))
EXEC_DEFINE(exec_min_s, 2, U((uint64_t)relu(S(a) < S(b) ? S(a) : S(b), flags)))
EXEC_DEFINE(exec_max_s, 2, U((uint64_t)relu(S(a) > S(b) ? S(a) : S(b), flags)))

/* Two 16-bit numbers in a register: the operation on both halves. */
#define HALVES(half) ((uint64_t)(uint16_t)(half(a, b)) | (uint64_t)(uint16_t)(half(a >> 16, b >> 16)) << 16)
#define ADD16(x, y)  ((x) + (y))
#define MIN16U(x, y) ((uint16_t)(x) < (uint16_t)(y) ? (x) : (y))
#define MAX16U(x, y) ((uint16_t)(x) > (uint16_t)(y) ? (x) : (y))
#define MIN16S(x, y) relu((int16_t)(x) < (int16_t)(y) ? (int16_t)(x) : (int16_t)(y), flags)
#define MAX16S(x, y) relu((int16_t)(x) > (int16_t)(y) ? (int16_t)(x) : (int16_t)(y), flags)
EXEC_DEFINE(exec_add_x2, 2, HALVES(ADD16))
EXEC_DEFINE(exec_min_ux2, 2, HALVES(MIN16U))
EXEC_DEFINE(exec_max_ux2, 2, HALVES(MAX16U))
EXEC_DEFINE(exec_min_sx2, 2, HALVES(MIN16S))
EXEC_DEFINE(exec_max_sx2, 2, HALVES(MAX16S))

/* Dot products of four bytes with four, or of two 16-bit numbers with two bytes (the upper two with .hi). data[2]:
 * whether a (bit 0) and b (bit 1) are signed. */
static inline int64_t field(uint64_t bits, unsigned index, unsigned width, bool is_signed) {
    const uint64_t moved = bits >> index * width;
    return is_signed ? exec_signed(moved, 64 - width) : (int64_t)exec_unsigned(moved, 64 - width);
}

static bool prepare_dot(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] =
        (exec_instr_type(instr, 1)->kind == 's' ? 1u : 0) | (exec_instr_type(instr, -1)->kind == 's' ? 2u : 0);
    return true;
}

static inline uint64_t dot(uint64_t a, uint64_t b, uint64_t c, unsigned terms, unsigned first, uint64_t signs) {
    for (unsigned i = 0; i < terms; i++)
        c += (uint64_t)(field(a, i, 32 / terms, signs & 1) * field(b, first + i, 8, signs & 2));
    return (uint32_t)c;
}

EXEC_DEFINE(exec_dp4a, 3, dot(a, b, c, 4, 0, instr->data[2]))
EXEC_DEFINE(exec_dp2a, 3, dot(a, b, c, 2, flags &EXEC_HI ? 2 : 0, instr->data[2]))

/* ---- Extended precision: add.cc and its like, with the warp's carry flags ---- */

enum { CARRY_IN = 1, CARRY_SUBTRACT = 2, CARRY_MULTIPLY = 4, CARRY_SIGNED = 8 };

static bool prepare_carry(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    const size_t length = strlen(instr->opcode);
    uint64_t kind = instr->opcode[length - 1] == 'c' ? CARRY_IN : 0;
    if (!strncmp(instr->opcode, "sub", 3))
        kind |= CARRY_SUBTRACT;
    if (!strncmp(instr->opcode, "mad", 3))
        kind |= CARRY_MULTIPLY;
    if (exec_instr_type(instr, -1)->kind == 's')
        kind |= CARRY_SIGNED;
    instr->data[2] = kind;
    return true;
}

static sim_result exec_carry(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffers[4][SIM_LANES];
    const unsigned shift = (unsigned)instr->data[0], flags = (unsigned)instr->data[1];
    const unsigned kind = (unsigned)instr->data[2];
    uint64_t *const d = exec_destination(warp, &instr->operands[0], buffers[0]);
    const uint64_t *const as = exec_source(warp, &instr->operands[1], buffers[1], mask);
    const uint64_t *const bs = exec_source(warp, &instr->operands[2], buffers[2], mask);
    const uint64_t *const cs = kind & CARRY_MULTIPLY ? exec_source(warp, &instr->operands[3], buffers[3], mask) : bs;
    uint32_t carry = warp->carry;
    EXEC_LANES(mask, {
        uint64_t x = as[lane];
        const uint64_t y = U(cs[lane]), in = kind & CARRY_IN ? warp->carry >> lane & 1 : 0;
        if (kind & CARRY_MULTIPLY)
            x = !(flags & EXEC_HI)    ? x * bs[lane]
                : kind & CARRY_SIGNED ? high_signed(x, bs[lane], shift)
                                      : high_unsigned(x, bs[lane], shift);
        /* A borrow leaves the bits above the width set. */
        const uint128 result = kind & CARRY_SUBTRACT ? (uint128)U(x) - y - in : (uint128)U(x) + y + in;
        d[lane] = U((uint64_t)result);
        carry = (carry & ~(UINT32_C(1) << lane)) | (uint32_t)(result >> WIDTH & 1) << lane;
    });
    if (flags & EXEC_CC)
        warp->carry = carry;
    return SIM_DONE;
}

/* ---- Logic and shifts ---- */

EXEC_DEFINE(exec_and, 2, U(a &b))
EXEC_DEFINE(exec_or, 2, U(a | b))
EXEC_DEFINE(exec_xor, 2, U(a ^ b))
EXEC_DEFINE(exec_not, 1, U(~a))
EXEC_DEFINE(exec_cnot, 1, U(a) == 0)

/* Amounts are 32-bit unsigned; those above the width act like the width. */
EXEC_DEFINE(exec_shl, 2, (uint32_t)b >= WIDTH ? 0 : U(a << (uint32_t)b))
EXEC_DEFINE(exec_shr_u, 2, (uint32_t)b >= WIDTH ? 0 : U(a) >> (uint32_t)b)
EXEC_DEFINE(exec_shr_s, 2, U((uint64_t)(S(a) >> ((uint32_t)b >= WIDTH ? WIDTH - 1 : (uint32_t)b))))

/* Funnel shifts of b:a by c. */
static inline unsigned funnel_amount(uint64_t c, unsigned flags) {
    const uint32_t amount = (uint32_t)c;
    return !(flags & EXEC_CLAMP) ? amount & 31 : amount > 32 ? 32 : amount;
}

static inline uint64_t pair32(uint64_t low, uint64_t high) {
    return (uint32_t)low | high << 32;
}

EXEC_DEFINE(exec_shf_l, 3, pair32(a, b) << funnel_amount(c, flags) >> 32)
EXEC_DEFINE(exec_shf_r, 3, (uint32_t)(pair32(a, b) >> funnel_amount(c, flags)))

/* ---- Bit fields ---- */

static inline uint64_t ones(unsigned count) {
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* Position and length of a field are bytes by the ISA; of 64-bit forms an H200 looks at all 32 bits. What lies above
 * the width is taken from the sign (bfe) or left out (bfi). */
static inline unsigned field_number(uint64_t bits, unsigned shift) {
    const uint32_t number = (uint32_t)bits;
    return shift ? number & 0xff : number < 256 ? number : 255;
}

static inline uint64_t extract(uint64_t a, uint64_t b, uint64_t c, unsigned shift, bool is_signed) {
    const unsigned position = field_number(b, shift), length = field_number(c, shift), top = WIDTH - 1;
    const unsigned last = position + length - 1 < top ? position + length - 1 : top; /* unused if length is 0 */
    const unsigned present = position > top ? 0 : length < WIDTH - position ? length : WIDTH - position;
    const uint64_t bits = position > top ? 0 : U(a) >> position & ones(present);
    const bool fill = is_signed && length > 0 && (U(a) >> last & 1);
    return U(fill ? bits | ~ones(present) : bits);
}

static inline uint64_t insert(uint64_t a, uint64_t b, uint64_t c, uint64_t e, unsigned shift) {
    const unsigned position = field_number(c, shift), length = field_number(e, shift);
    const uint64_t mask = position >= WIDTH ? 0 : ones(length) << position;
    return U((b & ~mask) | (position >= WIDTH ? 0 : a << position & mask));
}

EXEC_DEFINE(exec_bfe_u, 3, extract(a, b, c, shift, false))
EXEC_DEFINE(exec_bfe_s, 3, extract(a, b, c, shift, true))
EXEC_DEFINE(exec_bfi, 4, insert(a, b, c, e, shift))

/* Highest bit that differs from the sign, or the shift that brings it to the top. */
static inline uint64_t find(uint64_t bits, unsigned shift, bool shift_amount) {
    const unsigned zeros = bits ? (unsigned)__builtin_clzll(bits) : 0;
    return !bits ? UINT32_MAX : shift_amount ? zeros - shift : 63 - zeros;
}

EXEC_DEFINE(exec_bfind_u, 1, find(U(a), shift, false))
EXEC_DEFINE(exec_bfind_s, 1, find(S(a) < 0 ? U(~a) : U(a), shift, false))
EXEC_DEFINE(exec_bfind_shift_u, 1, find(U(a), shift, true))
EXEC_DEFINE(exec_bfind_shift_s, 1, find(S(a) < 0 ? U(~a) : U(a), shift, true))

static inline uint64_t reverse(uint64_t x) {
    x = (x >> 1 & UINT64_C(0x5555555555555555)) | (x & UINT64_C(0x5555555555555555)) << 1;
    x = (x >> 2 & UINT64_C(0x3333333333333333)) | (x & UINT64_C(0x3333333333333333)) << 2;
    x = (x >> 4 & UINT64_C(0x0f0f0f0f0f0f0f0f)) | (x & UINT64_C(0x0f0f0f0f0f0f0f0f)) << 4;
    return __builtin_bswap64(x);
}

EXEC_DEFINE(exec_brev, 1, reverse(a) >> shift)
EXEC_DEFINE(exec_popc, 1, (uint64_t)__builtin_popcountll(U(a)))
EXEC_DEFINE(exec_clz, 1, U(a) ? (uint64_t)__builtin_clzll(U(a)) - shift : WIDTH)

static inline unsigned bit_amount(uint64_t bits, unsigned flags) {
    const uint32_t amount = (uint32_t)bits;
    return flags & EXEC_CLAMP ? (amount > 32 ? 32 : amount) : amount & 31;
}

static inline uint64_t bit_mask(uint64_t a, uint64_t b, unsigned flags) {
    return (uint32_t)(ones(bit_amount(b, flags)) << bit_amount(a, flags));
}

static inline uint64_t extend(uint64_t a, unsigned width, bool is_signed) {
    if (width == 0)
        return 0;
    return is_signed ? (uint32_t)exec_signed(a, 64 - width) : exec_unsigned(a, 64 - width);
}

EXEC_DEFINE(exec_bmsk, 2, bit_mask(a, b, flags))
EXEC_DEFINE(exec_szext_u, 2, extend(a, bit_amount(b, flags), false))
EXEC_DEFINE(exec_szext_s, 2, extend(a, bit_amount(b, flags), true))

/* ---- prmt ---- */

/* Bytes a result takes from b:a, a nibble each, by the mode and the lower two bits of c. */
static const struct {
    const char *mode;
    uint16_t selectors[4];
} permutations[] = {
    {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
    {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
    {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}},
};

static bool prepare_permute(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    for (size_t i = 0; i < sizeof(permutations) / sizeof(permutations[0]); i++)
        if (ptx_has(instr, permutations[i].mode))
            instr->data[2] = i;
    return true;
}

/* A nibble's highest bit asks for the byte's sign, eight times. */
static inline uint64_t permute(uint64_t a, uint64_t b, unsigned selector) {
    const uint64_t bytes = pair32(a, b);
    uint64_t result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned nibble = selector >> 4 * i;
        uint64_t byte = bytes >> 8 * (nibble & 7) & 0xff;
        if (nibble & 8)
            byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

EXEC_DEFINE(exec_prmt, 3, permute(a, b, (unsigned)c))
EXEC_DEFINE(exec_prmt_mode, 3, permute(a, b, permutations[instr->data[2]].selectors[c & 3]))

/* ---- lop3 ---- */

/* Bit 4a + 2b + c of the table is the result. */
static inline uint64_t lookup(uint64_t a, uint64_t b, uint64_t c, uint64_t table) {
    uint64_t result = 0;
    for (unsigned i = 0; i < 8; i++)
        if (table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return (uint32_t)result;
}

EXEC_DEFINE(exec_lop3, 4, lookup(a, b, c, e))

/* d|p: also whether the result is not zero, combined with a predicate. data[2]: or. */
static bool prepare_lop3_bool(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = ptx_has(instr, "or");
    return true;
}

static sim_result exec_lop3_bool(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t buffers[5][SIM_LANES];
    const ptx_operand *operands = instr->operands;
    uint64_t *const d = exec_destination(warp, &operands[0], buffers[0]);
    const uint64_t *const as = exec_source(warp, &operands[1], buffers[1], mask);
    const uint64_t *const bs = exec_source(warp, &operands[2], buffers[2], mask);
    const uint64_t *const cs = exec_source(warp, &operands[3], buffers[3], mask);
    const uint64_t *const qs = exec_source(warp, &operands[5], buffers[4], mask);
    EXEC_LANES(mask, {
        const uint64_t result = lookup(as[lane], bs[lane], cs[lane], operands[4].bits);
        const uint64_t q = qs[lane] & 1;
        d[lane] = result;
        if (operands[0].pair >= 0)
            sim_register(warp, operands[0].pair)[lane] = instr->data[2] ? (result != 0) | q : (result != 0) & q;
    });
    return SIM_DONE;
}

/* ---- Rules ---- */

#define UNSIGNED "u16|u32|u64"
#define SIGNED   "s16|s32|s64"
#define NUMBERS  UNSIGNED "|" SIGNED
#define BITS     "b16|b32|b64"

static const exec_rule rules[] = {
    {"add", NUMBERS, "dss", exec_add, NULL},
    {"add", "sat s32", "dss", exec_add_sat, NULL},
    {"add", "u16x2|s16x2", "dss", exec_add_x2, NULL},
    {"add", "cc u32|s32|u64|s64", "dss", exec_carry, prepare_carry},
    {"addc", "cc? u32|s32|u64|s64", "dss", exec_carry, prepare_carry},
    {"sub", NUMBERS, "dss", exec_sub, NULL},
    {"sub", "sat s32", "dss", exec_sub_sat, NULL},
    {"sub", "cc u32|s32|u64|s64", "dss", exec_carry, prepare_carry},
    {"subc", "cc? u32|s32|u64|s64", "dss", exec_carry, prepare_carry},
    {"mul", "lo " NUMBERS, "dss", exec_mul_lo, NULL},
    {"mul", "hi " UNSIGNED, "dss", exec_mul_hi_u, NULL},
    {"mul", "hi " SIGNED, "dss", exec_mul_hi_s, NULL},
    {"mul", "wide u16|u32", "dss", exec_mul_wide_u, NULL},
    {"mul", "wide s16|s32", "dss", exec_mul_wide_s, NULL},
    {"mad", "lo " NUMBERS, "dsss", exec_mad_lo, NULL},
    {"mad", "hi " UNSIGNED, "dsss", exec_mad_hi_u, NULL},
    {"mad", "hi " SIGNED, "dsss", exec_mad_hi_s, NULL},
    {"mad", "hi sat s32", "dsss", exec_mad_hi_sat, NULL},
    {"mad", "wide u16|u32", "dsss", exec_mad_wide_u, NULL},
    {"mad", "wide s16|s32", "dsss", exec_mad_wide_s, NULL},
    {"mad", "lo|hi cc u32|s32|u64|s64", "dsss", exec_carry, prepare_carry},
    {"madc", "lo|hi cc? u32|s32|u64|s64", "dsss", exec_carry, prepare_carry},
    {"mul24", "lo|hi u32", "dss", exec_mul24_u, NULL},
    {"mul24", "lo|hi s32", "dss", exec_mul24_s, NULL},
    {"mad24", "lo|hi u32", "dsss", exec_mad24_u, NULL},
    {"mad24", "lo|hi s32", "dsss", exec_mad24_s, NULL},
    {"mad24", "hi sat s32", "dsss", exec_mad24_sat, NULL},
    {"sad", UNSIGNED, "dsss", exec_sad_u, NULL},
    {"sad", SIGNED, "dsss", exec_sad_s, NULL},
    {"div", UNSIGNED, "dss", exec_div_u, NULL},
    {"div", SIGNED, "dss", exec_div_s, NULL},
    {"rem", UNSIGNED, "dss", exec_rem_u, NULL},
    {"rem", SIGNED, "dss", exec_rem_s, NULL},
    {"abs", SIGNED, "ds", exec_abs, NULL},
    {"neg", SIGNED, "ds", exec_neg, NULL},
    {"min", UNSIGNED, "dss", exec_min_u, NULL},
    {"min", SIGNED, "dss", exec_min_s, NULL},
    {"min", "relu s32", "dss", exec_min_s, NULL},
    {"min", "s32 relu", "dss", exec_min_s, NULL},
    {"min", "s16x2 relu", "dss", exec_min_sx2, NULL},
    {"min", "u16x2", "dss", exec_min_ux2, NULL},
    {"min", "relu? s16x2", "dss", exec_min_sx2, NULL},
    {"max", UNSIGNED, "dss", exec_max_u, NULL},
    {"max", SIGNED, "dss", exec_max_s, NULL},
    {"max", "relu s32", "dss", exec_max_s, NULL},
    {"max", "s32 relu", "dss", exec_max_s, NULL},
    {"max", "s16x2 relu", "dss", exec_max_sx2, NULL},
    {"max", "u16x2", "dss", exec_max_ux2, NULL},
    {"max", "relu? s16x2", "dss", exec_max_sx2, NULL},
    {"dp4a", "u32|s32 u32|s32", "dsss", exec_dp4a, prepare_dot},
    {"dp2a", "lo|hi u32|s32 u32|s32", "dsss", exec_dp2a, prepare_dot},

    {"and", BITS, "dss", exec_and, NULL},
    {"and", "pred", "dpp", exec_and, NULL},
    {"or", BITS, "dss", exec_or, NULL},
    {"or", "pred", "dpp", exec_or, NULL},
    {"xor", BITS, "dss", exec_xor, NULL},
    {"xor", "pred", "dpp", exec_xor, NULL},
    {"not", BITS, "ds", exec_not, NULL},
    {"not", "pred", "dp", exec_not, NULL},
    {"cnot", BITS, "ds", exec_cnot, NULL},
    {"shl", BITS, "dss", exec_shl, NULL},
    {"shr", UNSIGNED "|" BITS, "dss", exec_shr_u, NULL},
    {"shr", SIGNED, "dss", exec_shr_s, NULL},
    {"shf", "l wrap|clamp b32", "dsss", exec_shf_l, NULL},
    {"shf", "r wrap|clamp b32", "dsss", exec_shf_r, NULL},

    {"bfe", "u32|u64", "dsss", exec_bfe_u, NULL},
    {"bfe", "s32|s64", "dsss", exec_bfe_s, NULL},
    {"bfi", "b32|b64", "dssss", exec_bfi, NULL},
    {"bfind", "u32|u64", "ds", exec_bfind_u, NULL},
    {"bfind", "s32|s64", "ds", exec_bfind_s, NULL},
    {"bfind", "shiftamt u32|u64", "ds", exec_bfind_shift_u, NULL},
    {"bfind", "shiftamt s32|s64", "ds", exec_bfind_shift_s, NULL},
    {"brev", "b32|b64", "ds", exec_brev, NULL},
    {"popc", "b32|b64", "ds", exec_popc, NULL},
    {"clz", "b32|b64", "ds", exec_clz, NULL},
    {"bmsk", "wrap|clamp b32", "dss", exec_bmsk, NULL},
    {"szext", "wrap|clamp u32", "dss", exec_szext_u, NULL},
    {"szext", "wrap|clamp s32", "dss", exec_szext_s, NULL},
    {"prmt", "b32", "dsss", exec_prmt, NULL},
    {"prmt", "b32 f4e|b4e|rc8|ecl|ecr|rc16", "dsss", exec_prmt_mode, prepare_permute},
    {"lop3", "b32", "dsssi", exec_lop3, NULL},
    {"lop3", "or|and b32", "qsssip", exec_lop3_bool, prepare_lop3_bool},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool bind_integer(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, NUMBERS "|" BITS "|u16x2|s16x2|pred", instr, error, error_size);
}

const sim_op sim_ops_integer[] = {
    {"add", bind_integer},
    {"addc", bind_integer},
    {"sub", bind_integer},
    {"subc", bind_integer},
    {"mul", bind_integer},
    {"mad", bind_integer},
    {"madc", bind_integer},
    {"mul24", bind_integer},
    {"mad24", bind_integer},
    {"sad", bind_integer},
    {"div", bind_integer},
    {"rem", bind_integer},
    {"abs", bind_integer},
    {"neg", bind_integer},
    {"min", bind_integer},
    {"max", bind_integer},
    {"dp4a", bind_integer},
    {"dp2a", bind_integer},
    {"and", bind_integer},
    {"or", bind_integer},
    {"xor", bind_integer},
    {"not", bind_integer},
    {"cnot", bind_integer},
    {"shl", bind_integer},
    {"shr", bind_integer},
    {"shf", bind_integer},
    {"bfe", bind_integer},
    {"bfi", bind_integer},
    {"bfind", bind_integer},
    {"brev", bind_integer},
    {"popc", bind_integer},
    {"clz", bind_integer},
    {"bmsk", bind_integer},
    {"szext", bind_integer},
    {"prmt", bind_integer},
    {"lop3", bind_integer},
    {NULL, NULL},
};
