/* SPDX-License-Identifier: MIT
 *
 * Integer instructions, comparisons, selections and moves against plain C on random and edge values. */
#include "run_ptx.h"
#include "scalar_machine.h"

/* ---- Arithmetic of all widths ---- */

/* High part of a product by schoolbook multiplication of the halves. */
static uint64_t high_product(uint64_t a, uint64_t b) {
    const uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    const uint64_t middle = (al * bl >> 32) + (uint32_t)(ah * bl) + (uint32_t)(al * bh);
    return ah * bh + (ah * bl >> 32) + (al * bh >> 32) + (middle >> 32);
}

static uint64_t high_u(uint64_t a, uint64_t b, int bits) {
    return bits == 64 ? high_product(a, b) : a * b >> bits;
}

static uint64_t high_s(int64_t a, int64_t b, int bits) {
    if (bits < 64)
        return (uint64_t)(a * b >> bits);
    return high_product((uint64_t)a, (uint64_t)b) - (a < 0 ? (uint64_t)b : 0) - (b < 0 ? (uint64_t)a : 0);
}

#define SHARED_FORMULAS(T, type, bits, high)                                                                           \
    FORMULA(add_##T, type, bits, (uint64_t)a + (uint64_t)b)                                                            \
    FORMULA(sub_##T, type, bits, (uint64_t)a - (uint64_t)b)                                                            \
    FORMULA(mul_##T, type, bits, (uint64_t)a *(uint64_t)b)                                                             \
    FORMULA(high_##T, type, bits, high(a, b, bits))                                                                    \
    FORMULA(mad_##T, type, bits, (uint64_t)a *(uint64_t)b + (uint64_t)c)                                               \
    FORMULA(mad_high_##T, type, bits, high(a, b, bits) + (uint64_t)c)                                                  \
    FORMULA(sad_##T, type, bits, (uint64_t)c + (a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b))        \
    FORMULA(min_##T, type, bits, a < b ? a : b)                                                                        \
    FORMULA(max_##T, type, bits, a < b ? b : a)
#define UNSIGNED_FORMULAS(T, type, bits)                                                                               \
    SHARED_FORMULAS(T, type, bits, high_u)                                                                             \
    FORMULA(div_##T, type, bits, b ? (uint64_t)(a / b) : UINT64_MAX)                                                   \
    FORMULA(rem_##T, type, bits, b ? (uint64_t)(a % b) : UINT64_MAX)                                                   \
    FORMULA(shr_##T, type, bits, (uint32_t)s[1] < (bits) ? a >> (uint32_t)s[1] : 0)                                    \
    FORMULA(shl_##T, type, bits, (uint32_t)s[1] < (bits) ? (uint64_t)a << (uint32_t)s[1] : 0)                          \
    FORMULA(and_##T, type, bits, a &b)                                                                                 \
    FORMULA(or_##T, type, bits, a | b)                                                                                 \
    FORMULA(xor_##T, type, bits, a ^ b)                                                                                \
    FORMULA(not_##T, type, bits, ~a)                                                                                   \
    FORMULA(cnot_##T, type, bits, !a)
#define SIGNED_FORMULAS(T, type, bits)                                                                                 \
    SHARED_FORMULAS(T, type, bits, high_s)                                                                             \
    FORMULA(div_##T, type, bits, b == 0 ? UINT64_MAX : b == -1 ? -(uint64_t)a : (uint64_t)(a / b))                     \
    FORMULA(rem_##T, type, bits, b == 0 ? UINT64_MAX : b == -1 ? 0 : (uint64_t)(a % b))                                \
    FORMULA(shr_##T, type, bits, a >> ((uint32_t)s[1] < (bits) ? (uint32_t)s[1] : (bits)-1))                           \
    FORMULA(abs_##T, type, bits, a < 0 ? -(uint64_t)a : (uint64_t)a)                                                   \
    FORMULA(neg_##T, type, bits, -(uint64_t)a)

UNSIGNED_FORMULAS(u16, uint16_t, 16)
UNSIGNED_FORMULAS(u32, uint32_t, 32)
UNSIGNED_FORMULAS(u64, uint64_t, 64)
SIGNED_FORMULAS(s16, int16_t, 16)
SIGNED_FORMULAS(s32, int32_t, 32)
SIGNED_FORMULAS(s64, int64_t, 64)

#define SHARED_CASES(T, r)                                                                                             \
    {"add." #T " %" r "0, %" r "1, %" r "2", add_##T}, {"sub." #T " %" r "0, %" r "1, %" r "2", sub_##T},              \
        {"mul.lo." #T " %" r "0, %" r "1, %" r "2", mul_##T}, {"mul.hi." #T " %" r "0, %" r "1, %" r "2", high_##T},   \
        {"mad.lo." #T " %" r "0, %" r "1, %" r "2, %" r "3", mad_##T},                                                 \
        {"mad.hi." #T " %" r "0, %" r "1, %" r "2, %" r "3", mad_high_##T},                                            \
        {"sad." #T " %" r "0, %" r "1, %" r "2, %" r "3", sad_##T}, {"min." #T " %" r "0, %" r "1, %" r "2", min_##T}, \
        {"max." #T " %" r "0, %" r "1, %" r "2", max_##T}, {"div." #T " %" r "0, %" r "1, %" r "2", div_##T},          \
        {"rem." #T " %" r "0, %" r "1, %" r "2", rem_##T}, {                                                           \
        "shr." #T " %" r "0, %" r "1, %r2", shr_##T                                                                    \
    }
#define SIGNED_CASES(T, r)                                                                                             \
    SHARED_CASES(T, r), {"abs." #T " %" r "0, %" r "1", abs_##T}, {                                                    \
        "neg." #T " %" r "0, %" r "1", neg_##T                                                                         \
    }
#define UNSIGNED_CASES(T, B, r)                                                                                        \
    SHARED_CASES(T, r), {"and." #B " %" r "0, %" r "1, %" r "2", and_##T},                                             \
        {"or." #B " %" r "0, %" r "1, %" r "2", or_##T}, {"xor." #B " %" r "0, %" r "1, %" r "2", xor_##T},            \
        {"not." #B " %" r "0, %" r "1", not_##T}, {"cnot." #B " %" r "0, %" r "1", cnot_##T},                          \
        {"shl." #B " %" r "0, %" r "1, %r2", shl_##T}, {                                                               \
        "shr." #B " %" r "0, %" r "1, %r2", shr_##T                                                                    \
    }

static void test_arithmetic(void **state) {
    (void)state;
    static const instruction_case cases[] = {UNSIGNED_CASES(u16, b16, "h"), UNSIGNED_CASES(u32, b32, "r"),
                                             UNSIGNED_CASES(u64, b64, "d"), SIGNED_CASES(s16, "h"),
                                             SIGNED_CASES(s32, "r"),        SIGNED_CASES(s64, "d")};
    check_cases(cases, COUNT(cases), any_integer, 200);
}

/* ---- Other arithmetic ---- */

static int64_t clamp32(int64_t x) {
    return x < -(INT64_C(1) << 31) ? -(INT64_C(1) << 31) : x > (INT64_C(1) << 31) - 1 ? (INT64_C(1) << 31) - 1 : x;
}

static int64_t low24(uint32_t x, int is_signed) {
    const int64_t low = x & 0xffffff;
    return is_signed && low >= 0x800000 ? low - 0x1000000 : low;
}

static uint64_t halves(const uint64_t *s, int64_t (*f)(int64_t, int64_t), int is_signed) {
    uint64_t result = 0;
    for (int i = 0; i < 2; i++) {
        const uint16_t x = (uint16_t)(s[0] >> 16 * i), y = (uint16_t)(s[1] >> 16 * i);
        const int64_t r = is_signed ? f((int16_t)x, (int16_t)y) : f(x, y);
        result |= (uint64_t)(uint16_t)r << 16 * i;
    }
    return result;
}

static int64_t plus(int64_t x, int64_t y) {
    return x + y;
}

static int64_t smaller(int64_t x, int64_t y) {
    return x < y ? x : y;
}

static int64_t larger(int64_t x, int64_t y) {
    return x > y ? x : y;
}

static int64_t smaller_relu(int64_t x, int64_t y) {
    return larger(smaller(x, y), 0);
}

static uint64_t dot(const uint64_t *s, int words, int first, int a_signed, int b_signed) {
    int64_t sum = (int64_t)s[2];
    for (int i = 0; i < words; i++) {
        const int width = 32 / words;
        int64_t x = (int64_t)cut(s[0] >> width * i, width), y = (int64_t)(s[1] >> 8 * (first + i) & 0xff);
        if (a_signed && x >> (width - 1))
            x -= INT64_C(1) << width;
        if (b_signed && y >= 128)
            y -= 256;
        sum += x * y;
    }
    return (uint32_t)sum;
}

FORMULA(add_sat, int32_t, 32, clamp32((int64_t)a + b))
FORMULA(sub_sat, int32_t, 32, clamp32((int64_t)a - b))
FORMULA(mad_hi_sat, int32_t, 32, clamp32(((int64_t)a * b >> 32) + c))
FORMULA(wide_u16, uint16_t, 32, (uint32_t)a *b)
FORMULA(wide_s16, int16_t, 32, (int32_t)a *b)
FORMULA(wide_u32, uint32_t, 64, (uint64_t)a *b)
FORMULA(wide_s32, int32_t, 64, (int64_t)a *b)
FORMULA(mad_wide_u16, uint16_t, 32, (uint64_t)a *b + s[2])
FORMULA(mad_wide_s16, int16_t, 32, (uint64_t)(a *b) + s[2])
FORMULA(mad_wide_u32, uint32_t, 64, (uint64_t)a *b + s[2])
FORMULA(mad_wide_s32, int32_t, 64, (uint64_t)((int64_t)a *b) + s[2])
FORMULA(mul24_lo_u, uint32_t, 32, low24(a, 0) * low24(b, 0))
FORMULA(mul24_lo_s, uint32_t, 32, low24(a, 1) * low24(b, 1))
FORMULA(mul24_hi_u, uint32_t, 32, low24(a, 0) * low24(b, 0) >> 16)
FORMULA(mul24_hi_s, uint32_t, 32, low24(a, 1) * low24(b, 1) >> 16)
FORMULA(mad24_lo_s, uint32_t, 32, low24(a, 1) * low24(b, 1) + c)
FORMULA(mad24_hi_u, uint32_t, 32, (low24(a, 0) * low24(b, 0) >> 16) + c)
FORMULA(mad24_hi_sat, uint32_t, 32, clamp32((int64_t)(int32_t)(low24(a, 1) * low24(b, 1) >> 16) + (int32_t)c))
FORMULA(min_relu, int32_t, 32, a < b ? (a < 0 ? 0 : a) : (b < 0 ? 0 : b))
FORMULA(max_relu, int32_t, 32, a > b ? (a < 0 ? 0 : a) : (b < 0 ? 0 : b))
FORMULA(add_x2, uint32_t, 32, halves(s, plus, 0))
FORMULA(min_ux2, uint32_t, 32, halves(s, smaller, 0))
FORMULA(max_ux2, uint32_t, 32, halves(s, larger, 0))
FORMULA(min_sx2, uint32_t, 32, halves(s, smaller, 1))
FORMULA(max_sx2, uint32_t, 32, halves(s, larger, 1))
FORMULA(min_relu_sx2, uint32_t, 32, halves(s, smaller_relu, 1))
FORMULA(dp4a_uu, uint32_t, 32, dot(s, 4, 0, 0, 0))
FORMULA(dp4a_us, uint32_t, 32, dot(s, 4, 0, 0, 1))
FORMULA(dp4a_ss, uint32_t, 32, dot(s, 4, 0, 1, 1))
FORMULA(dp2a_lo_su, uint32_t, 32, dot(s, 2, 0, 1, 0))
FORMULA(dp2a_hi_ss, uint32_t, 32, dot(s, 2, 2, 1, 1))
FORMULA(add_literal, uint32_t, 32, a - 7u)

static void test_special_arithmetic(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"add.sat.s32 %r0, %r1, %r2", add_sat},
        {"sub.sat.s32 %r0, %r1, %r2", sub_sat},
        {"mad.hi.sat.s32 %r0, %r1, %r2, %r3", mad_hi_sat},
        {"mul.wide.u16 %r0, %h1, %h2", wide_u16},
        {"mul.wide.s16 %r0, %h1, %h2", wide_s16},
        {"mul.wide.u32 %d0, %r1, %r2", wide_u32},
        {"mul.wide.s32 %d0, %r1, %r2", wide_s32},
        {"mad.wide.u16 %r0, %h1, %h2, %r3", mad_wide_u16},
        {"mad.wide.s16 %r0, %h1, %h2, %r3", mad_wide_s16},
        {"mad.wide.u32 %d0, %r1, %r2, %d3", mad_wide_u32},
        {"mad.wide.s32 %d0, %r1, %r2, %d3", mad_wide_s32},
        {"mul24.lo.u32 %r0, %r1, %r2", mul24_lo_u},
        {"mul24.lo.s32 %r0, %r1, %r2", mul24_lo_s},
        {"mul24.hi.u32 %r0, %r1, %r2", mul24_hi_u},
        {"mul24.hi.s32 %r0, %r1, %r2", mul24_hi_s},
        {"mad24.lo.s32 %r0, %r1, %r2, %r3", mad24_lo_s},
        {"mad24.hi.u32 %r0, %r1, %r2, %r3", mad24_hi_u},
        {"mad24.hi.sat.s32 %r0, %r1, %r2, %r3", mad24_hi_sat},
        {"min.relu.s32 %r0, %r1, %r2", min_relu},
        {"max.relu.s32 %r0, %r1, %r2", max_relu},
        {"add.u16x2 %r0, %r1, %r2", add_x2},
        {"min.u16x2 %r0, %r1, %r2", min_ux2},
        {"max.u16x2 %r0, %r1, %r2", max_ux2},
        {"min.s16x2 %r0, %r1, %r2", min_sx2},
        {"max.s16x2 %r0, %r1, %r2", max_sx2},
        {"min.relu.s16x2 %r0, %r1, %r2", min_relu_sx2},
        {"dp4a.u32.u32 %r0, %r1, %r2, %r3", dp4a_uu},
        {"dp4a.u32.s32 %r0, %r1, %r2, %r3", dp4a_us},
        {"dp4a.s32.s32 %r0, %r1, %r2, %r3", dp4a_ss},
        {"dp2a.lo.s32.u32 %r0, %r1, %r2, %r3", dp2a_lo_su},
        {"dp2a.hi.s32.s32 %r0, %r1, %r2, %r3", dp2a_hi_ss},
        {"add.s32 %r0, %r1, -7", add_literal},
    };
    check_cases(cases, COUNT(cases), any_integer, 300);
}

/* 128-bit sums, differences and products from 32-bit pieces, whose carries must hand over. */
static void test_carry(void **state) {
    (void)state;
    static const char *const texts[] = {"add.cc.u32 %r0, %r1, %r2",         "addc.cc.u32 %r0, %r1, %r2",
                                        "addc.u32 %r0, %r1, %r2",           "sub.cc.u32 %r0, %r1, %r2",
                                        "subc.cc.u32 %r0, %r1, %r2",        "subc.u32 %r0, %r1, %r2",
                                        "mad.lo.cc.u32 %r0, %r1, %r2, %r3", "madc.hi.u32 %r0, %r1, %r2, %r3"};
    machine m[8];
    for (size_t i = 0; i < COUNT(texts); i++)
        machine_init(&m[i], texts[i]);
    for (int round = 0; round < 2000; round++) {
        const uint64_t a[2] = {any_integer(64), any_integer(32)}, b[2] = {any_integer(64), any_integer(32)};
        for (int subtract = 0; subtract < 2; subtract++) {
            uint32_t words[3], carry = (uint32_t)random_bits();
            for (int i = 0; i < 3; i++) {
                machine *step = &m[3 * subtract + i];
                step->warp.carry = carry;
                machine_operand(step, 1)[5] = i < 2 ? (uint32_t)(a[0] >> 32 * i) : (uint32_t)a[1];
                machine_operand(step, 2)[5] = i < 2 ? (uint32_t)(b[0] >> 32 * i) : (uint32_t)b[1];
                machine_run(step, 1u << 5);
                words[i] = (uint32_t)machine_operand(step, 0)[5];
                if (i == 2)
                    assert_int_equal(step->warp.carry, carry); /* no .cc */
                else
                    assert_int_equal((step->warp.carry ^ carry) & ~(1u << 5), 0); /* other lanes' flags */
                carry = step->warp.carry;
            }
            const uint64_t low = subtract ? a[0] - b[0] : a[0] + b[0];
            const uint32_t over = subtract ? a[0] < b[0] : low < a[0];
            const uint32_t high = subtract ? (uint32_t)(a[1] - b[1] - over) : (uint32_t)(a[1] + b[1] + over);
            assert_int_equal(words[0] | (uint64_t)words[1] << 32, low);
            assert_int_equal(words[2], high);
        }
        /* A 64-bit multiply and add of 32-bit numbers. */
        const uint32_t x = (uint32_t)any_integer(32), y = (uint32_t)any_integer(32);
        const uint64_t z = any_integer(64);
        for (int i = 0; i < 2; i++) {
            machine_operand(&m[6 + i], 1)[9] = x;
            machine_operand(&m[6 + i], 2)[9] = y;
            machine_operand(&m[6 + i], 3)[9] = (uint32_t)(z >> 32 * i);
        }
        machine_run(&m[6], UINT32_MAX);
        m[7].warp.carry = m[6].warp.carry;
        machine_run(&m[7], UINT32_MAX);
        assert_int_equal(machine_operand(&m[6], 0)[9] | machine_operand(&m[7], 0)[9] << 32, (uint64_t)x * y + z);
    }
    for (size_t i = 0; i < COUNT(texts); i++)
        machine_destroy(&m[i]);
}

/* ---- Predicates, selections, moves ---- */

static uint64_t any_bit(int width) {
    return width == 1 ? random_bits() & 1 : any_integer(width);
}

FORMULA(pred_and, uint32_t, 1, a &b)
FORMULA(pred_or, uint32_t, 1, a | !b)
FORMULA(pred_xor, uint32_t, 1, a ^ b)
FORMULA(pred_not, uint32_t, 1, !a)
FORMULA(pred_mov, uint32_t, 1, a)
FORMULA(pred_one, uint32_t, 1, 1)
FORMULA(selp_b16, uint64_t, 16, c & 1 ? a : b)
FORMULA(selp_u64, uint64_t, 64, c & 1 ? b : a)
FORMULA(selp_literal, uint64_t, 32, c & 1 ? UINT64_MAX : 0)
FORMULA(selp_real, uint64_t, 32, c & 1 ? 0x3f800000 : b)
FORMULA(slct_s32, uint64_t, 64, (int32_t)(uint32_t)c >= 0 ? a : b)
FORMULA(mov_16, uint64_t, 16, a)
FORMULA(mov_32, uint64_t, 32, a)
FORMULA(mov_64, uint64_t, 64, a)
FORMULA(mov_minus_one, uint64_t, 32, UINT32_MAX)
FORMULA(mov_real, uint64_t, 32, 0xbf800000)
FORMULA(mov_double, uint64_t, 64, UINT64_C(0x3ff8000000000000))
FORMULA(mov_bits, uint64_t, 32, 0x40490fdb)

static void test_predicates_and_moves(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"and.pred %p0, %p1, %p2", pred_and},
        {"or.pred %p0, %p1, !%p2", pred_or},
        {"xor.pred %p0, %p1, %p2", pred_xor},
        {"not.pred %p0, %p1", pred_not},
        {"mov.pred %p0, %p1", pred_mov},
        {"mov.pred %p0, -1", pred_one},
        {"mov.pred %p0, !%p1", pred_not},
        {"selp.b16 %h0, %h1, %h2, %p3", selp_b16},
        {"selp.u64 %d0, %d1, %d2, !%p3", selp_u64},
        {"selp.b32 %r0, -1, 0, %p3", selp_literal},
        {"selp.f32 %r0, 1.0, %r2, %p3", selp_real},
        {"slct.u64.s32 %d0, %d1, %d2, %r3", slct_s32},
        {"mov.b16 %h0, %h1", mov_16},
        {"mov.u32 %r0, %r1", mov_32},
        {"mov.s64 %d0, %d1", mov_64},
        {"mov.u32 %r0, -1", mov_minus_one},
        {"mov.f32 %r0, -1.0", mov_real},
        {"mov.f64 %d0, 1.5", mov_double},
        {"mov.f32 %r0, 0f40490FDB", mov_bits},
    };
    check_cases(cases, COUNT(cases), any_bit, 100);
}

static void test_vectors(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int count, width;
    } cases[] = {{"mov.b64 {%r0, %r1}, %d0", 2, 32},
                 {"mov.b64 {%h0, %h1, %h2, %h3}, %d0", 4, 16},
                 {"mov.b32 {%h0, %h1}, %r0", 2, 16},
                 {"mov.b32 {%b0, %b1, %b2, %b3}, %r0", 4, 8},
                 {"mov.b16 {%b0, %b1}, %h0", 2, 8},
                 {"mov.b64 %d0, {%r0, %r1}", 2, 32},
                 {"mov.b64 %d0, {%h0, %h1, %h2, %h3}", 4, 16},
                 {"mov.b32 %r0, {%h0, %h1}", 2, 16},
                 {"mov.b32 %r0, {%b0, %b1, %b2, %b3}", 4, 8},
                 {"mov.b64 {%r0, _}, %d0", 1, 32}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        machine_init(&m, cases[i].text);
        const bool unpacks = m.instr->operands[0].kind == PTX_OPERAND_VECTOR;
        const ptx_operand *elements = m.instr->operands[unpacks ? 0 : 1].elements;
        uint64_t *const scalar = machine_operand(&m, unpacks ? 1 : 0);
        uint64_t values[SIM_LANES];
        for (int lane = 0; lane < SIM_LANES; lane++) {
            values[lane] = cut(random_bits(), cases[i].count * cases[i].width);
            if (unpacks)
                scalar[lane] = values[lane];
            for (int j = 0; j < cases[i].count && !unpacks; j++)
                machine_lanes(&m, elements[j].slot)[lane] = cut(values[lane] >> j * cases[i].width, cases[i].width);
        }
        machine_run(&m, 0xffff0fff);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const bool active = 0xffff0fffu >> lane & 1;
            for (int j = 0; j < cases[i].count && unpacks; j++)
                assert_int_equal(machine_lanes(&m, elements[j].slot)[lane],
                                 active ? cut(values[lane] >> j * cases[i].width, cases[i].width) : UNTOUCHED);
            if (!unpacks)
                assert_int_equal(scalar[lane], active ? values[lane] : UNTOUCHED);
        }
        machine_destroy(&m);
    }
}

FORMULA(to_generic_shared, uint64_t, 64, a + SIM_SHARED_WINDOW)
FORMULA(to_generic_local, uint64_t, 64, a + SIM_LOCAL_WINDOW)
FORMULA(same_address, uint64_t, 64, a)
FORMULA(is_shared, uint64_t, 1, a >= SIM_SHARED_WINDOW && a < SIM_SHARED_WINDOW + SIM_WINDOW_BYTES)
FORMULA(is_global, uint64_t, 1,
        a < SIM_SHARED_WINDOW || a >= SIM_PARAM_WINDOW + SIM_WINDOW_BYTES ||
            (a >= SIM_SHARED_WINDOW + SIM_WINDOW_BYTES && a < SIM_LOCAL_WINDOW) ||
            (a >= SIM_LOCAL_WINDOW + SIM_WINDOW_BYTES && a < SIM_PARAM_WINDOW))

static uint64_t any_address(int width) {
    static const uint64_t bases[] = {0, SIM_SHARED_WINDOW, SIM_LOCAL_WINDOW, SIM_PARAM_WINDOW,
                                     SIM_SHARED_WINDOW + SIM_WINDOW_BYTES};
    return cut(bases[random_bits() % COUNT(bases)] + random_bits() % 100000 - 8 * (random_bits() % 2), width);
}

static uint64_t any_offset(int width) {
    return random_bits() % 100000 & (width == 64 ? UINT64_MAX : 0);
}

static void test_addresses(void **state) {
    (void)state;
    check_instruction("cvta.shared.u64 %d0, %d1", to_generic_shared, any_offset, 20);
    check_instruction("cvta.local.u64 %d0, %d1", to_generic_local, any_offset, 20);
    check_instruction("cvta.global.u64 %d0, %d1", same_address, any_offset, 20);
    check_instruction("cvta.to.global.u64 %d0, %d1", same_address, any_offset, 20);
    check_instruction("isspacep.shared %p0, %d1", is_shared, any_address, 100);
    check_instruction("isspacep.global %p0, %d1", is_global, any_address, 100);
    machine m;
    machine_init(&m, "cvta.to.shared.u64 %d0, %d1");
    machine_operand(&m, 1)[3] = SIM_SHARED_WINDOW + 1234;
    machine_run(&m, 8);
    assert_int_equal(machine_operand(&m, 0)[3], 1234);
    machine_destroy(&m);
}

/* Variables' addresses, in their space and generic, lead to the same memory; those of another space are refused. */
static void test_addresses_of_variables(void **state) {
    (void)state;
    uint32_t out[32] = {0};
    ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = 5, .out = out, .out_words = 32};
    RUN_OK("mov.u64 %rd0, buffer;\nmul.wide.u32 %rd1, %tid, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
           "mad.lo.s32 %r2, %tid, 3, 7;\nst.shared.u32 [%rd2], %r2;\n"
           "cvta.shared.u64 %rd3, %rd2;\nld.u32 %r3, [%rd3];\ncvta.to.shared.u64 %rd4, %rd3;\n"
           "ld.shared.u32 %r4, [%rd4];\nadd.s32 %r5, %r3, %r4;\ncvta.to.global.u64 %rd5, %my_out;\n"
           "st.global.u32 [%rd5], %r5;\nret;",
           &run);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 2 * (3 * i + 7));
    RUN_FAULT("cvta.to.shared.u64 %rd0, %my_out;\nst.shared.u32 [%rd0], %tid;\nret;", &run, "state space");
    RUN_FAULT("mov.u64 %rd0, buffer;\ncvta.shared.u64 %rd1, %rd0;\ncvta.to.global.u64 %rd2, %rd1;\n"
              "st.global.u32 [%rd2], %tid;\nret;",
              &run, "state space");
}

/* ---- Comparisons ---- */

FORMULA(eq_u16, uint16_t, 1, a == b)
FORMULA(ne_u64, uint64_t, 1, a != b)
FORMULA(lt_u32, uint32_t, 1, a < b)
FORMULA(le_u64, uint64_t, 1, a <= b)
FORMULA(gt_u32, uint32_t, 1, a > b)
FORMULA(ge_u16, uint16_t, 1, a >= b)
FORMULA(lt_s16, int16_t, 1, a < b)
FORMULA(le_s32, int32_t, 1, a <= b)
FORMULA(gt_s64, int64_t, 1, a > b)
FORMULA(ge_s32, int32_t, 1, a >= b)
FORMULA(lt_and, int32_t, 1, a < b && (c & 1))
FORMULA(ge_or_not, uint32_t, 1, a >= b || !(c & 1))
FORMULA(ne_xor, uint32_t, 1, (a != b) ^ (c & 1))
FORMULA(set_u32, int32_t, 32, a < b ? UINT32_MAX : 0)
FORMULA(set_f32, uint64_t, 32, a != b ? 0x3f800000 : 0)
FORMULA(set_and, uint32_t, 32, a >= b && (c & 1) ? UINT32_MAX : 0)

static uint64_t close_integers(int width) {
    return width == 1 ? random_bits() & 1 : random_bits() % 2 ? cut(random_bits() % 4 - 2, width) : any_integer(width);
}

static void test_integer_comparisons(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"setp.eq.u16 %p0, %h1, %h2", eq_u16},
        {"setp.eq.b16 %p0, %h1, %h2", eq_u16},
        {"setp.ne.s64 %p0, %d1, %d2", ne_u64},
        {"setp.lt.u32 %p0, %r1, %r2", lt_u32},
        {"setp.lo.u32 %p0, %r1, %r2", lt_u32},
        {"setp.le.u64 %p0, %d1, %d2", le_u64},
        {"setp.ls.u64 %p0, %d1, %d2", le_u64},
        {"setp.gt.u32 %p0, %r1, %r2", gt_u32},
        {"setp.hi.u32 %p0, %r1, %r2", gt_u32},
        {"setp.ge.u16 %p0, %h1, %h2", ge_u16},
        {"setp.hs.u16 %p0, %h1, %h2", ge_u16},
        {"setp.lt.s16 %p0, %h1, %h2", lt_s16},
        {"setp.le.s32 %p0, %r1, %r2", le_s32},
        {"setp.gt.s64 %p0, %d1, %d2", gt_s64},
        {"setp.ge.s32 %p0, %r1, -1", ge_s32},
        {"setp.lt.and.s32 %p0, %r1, %r2, %p3", lt_and},
        {"setp.ge.or.u32 %p0, %r1, %r2, !%p3", ge_or_not},
        {"setp.ne.xor.b32 %p0, %r1, %r2, %p3", ne_xor},
        {"set.lt.u32.s32 %r0, %r1, %r2", set_u32},
        {"set.ne.f32.b64 %r0, %d1, %d2", set_f32},
        {"set.ge.and.u32.u32 %r0, %r1, %r2, %p3", set_and},
    };
    check_cases(cases, COUNT(cases), close_integers, 200);
}

static void test_pair_of_predicates(void **state) {
    (void)state;
    machine m;
    machine_init(&m, "setp.lt.or.s32 %p0|%p1, %r1, %r2, %p0");
    const int pair = m.instr->operands[0].pair;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        machine_operand(&m, 1)[lane] = lane & 1;
        machine_operand(&m, 2)[lane] = 1;
        machine_operand(&m, 0)[lane] = lane >> 1 & 1;
    }
    machine_run(&m, 0x0fffffff);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const bool c = lane >> 1 & 1, less = !(lane & 1), active = lane < 28;
        assert_int_equal(machine_operand(&m, 0)[lane], active ? less || c : c);
        assert_int_equal(machine_lanes(&m, pair)[lane], active ? !less || c : UNTOUCHED);
    }
    machine_destroy(&m);
}

/* ---- Refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    assert_refused("add.wrong.s32 %r0, %r1, %r2", "add.wrong.s32");
    assert_refused("add.f32x4 %r0, %r1, %r2", "add");
    assert_refused("add.s32 %r0, %r1", "2 operands, 3 expected");
    assert_refused("add.s32 %r0, %r1, 1.5", "operand 3");
    assert_refused("add.s32 5, %r1, %r2", "operand 1");
    assert_refused("setp.lo.s32 %p0, %r1, %r2", "setp.lo.s32");
    assert_refused("setp.lt.and.s32 %p0, %r1, %r2", "third source");
    assert_refused("setp.lt.s32 %p0, %r1, %r2, %p3", "third source");
    assert_refused("selp.b32 %r0, %r1, %r2, %r3", "operand 4");
    assert_refused("mul.s32 %r0, %r1, %r2", "mul.s32");
    assert_refused("mul.wide.u64 %d0, %d1, %d2", "mul.wide.u64");
    assert_refused("mov.b64 {%r0, %h1}, %d0", "fill the type");
    assert_refused("mov.b64 {%r0, %r1, %r2}, %d0", "2 or 4");
    assert_refused("mov.b128 %d0, %d1", "mov.b128");
    assert_refused("fma.rn.f16x4 %r0, %r1, %r2, %r3", "fma");
    assert_refused("fma.f32 %r0, %r1, %r2, %r3", "fma.f32");
    assert_refused("and.pred %p0, %r1, %p2", "operand 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_special_arithmetic),
        cmocka_unit_test(test_carry),
        cmocka_unit_test(test_predicates_and_moves),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_addresses_of_variables),
        cmocka_unit_test(test_integer_comparisons),
        cmocka_unit_test(test_pair_of_predicates),
        cmocka_unit_test(test_refusals),
    };
    seed_randomly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
