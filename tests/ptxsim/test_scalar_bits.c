/* SPDX-License-Identifier: MIT
 *
 * Instructions on bits, fields and bytes, against loops over single bits. */
#include "scalar_machine.h"

static int bit(uint64_t x, int i) {
    return (int)(x >> i & 1);
}

/* A field's position or length is a byte; the 64-bit forms, as on an H200, see all 32 bits. */
static int field_number(uint64_t source, int bits) {
    const uint32_t number = (uint32_t)source;
    return bits == 32 ? (int)(number & 0xff) : number < 256 ? (int)number : 256;
}

static uint64_t field_extract(const uint64_t *s, int bits, int is_signed) {
    const int position = field_number(s[1], bits), length = field_number(s[2], bits);
    const int last = position + length - 1 < bits - 1 ? position + length - 1 : bits - 1;
    const int fill = is_signed && length ? bit(s[0], last) : 0;
    uint64_t result = 0;
    for (int i = 0; i < bits; i++)
        result |= (uint64_t)(i < length && position + i < bits ? bit(s[0], position + i) : fill) << i;
    return result;
}

static uint64_t field_insert(const uint64_t *s, int bits) {
    const int position = field_number(s[2], bits), length = field_number(s[3], bits);
    uint64_t result = 0;
    for (int i = 0; i < bits; i++)
        result |= (uint64_t)(i >= position && i < position + length ? bit(s[0], i - position) : bit(s[1], i)) << i;
    return result;
}

static uint64_t highest(uint64_t a, int bits, int is_signed, int shift_amount) {
    const int unlike = is_signed && bit(a, bits - 1) ? 0 : 1;
    for (int i = bits - 1; i >= 0; i--)
        if (bit(a, i) == unlike)
            return (uint64_t)(shift_amount ? bits - 1 - i : i);
    return UINT32_MAX;
}

static uint64_t reversed(uint64_t a, int bits) {
    uint64_t result = 0;
    for (int i = 0; i < bits; i++)
        result |= (uint64_t)bit(a, i) << (bits - 1 - i);
    return result;
}

static uint64_t population(uint64_t a) {
    uint64_t result = 0;
    for (int i = 0; i < 64; i++)
        result += (uint64_t)bit(a, i);
    return result;
}

static uint64_t leading_zeros(uint64_t a, int bits) {
    int zeros = 0;
    while (zeros < bits && !bit(a, bits - 1 - zeros))
        zeros++;
    return (uint64_t)zeros;
}

static uint64_t funnel(const uint64_t *s, int left, int clamp) {
    const uint32_t amount = (uint32_t)s[2];
    const int n = (int)(clamp ? (amount > 32 ? 32 : amount) : amount % 32);
    uint64_t result = 0;
    for (int i = 0; i < 32; i++) {
        const int from = left ? 32 + i - n : i + n;
        result |= (uint64_t)(from < 32 ? bit(s[0], from) : bit(s[1], from - 32)) << i;
    }
    return result;
}

static uint64_t selected_bytes(const uint64_t *s, const int *bytes) {
    uint64_t result = 0;
    for (int i = 0; i < 4; i++) {
        const int from = bytes[i] & 7;
        uint8_t byte = (uint8_t)(from < 4 ? s[0] >> 8 * from : s[1] >> 8 * (from - 4));
        if (bytes[i] & 8)
            byte = (uint8_t)((int8_t)byte >> 7);
        result |= (uint64_t)byte << 8 * i;
    }
    return result;
}

static uint64_t permuted(const uint64_t *s) {
    const int bytes[4] = {s[2] & 15, s[2] >> 4 & 15, s[2] >> 8 & 15, s[2] >> 12 & 15};
    return selected_bytes(s, bytes);
}

/* Byte i of each mode, as the ISA's tables follow from shifting and clamping the selector n. */
#define PERMUTATION(name, byte)                                                                                        \
    static uint64_t name(const uint64_t *s) {                                                                          \
        const int n = s[2] & 3;                                                                                        \
        int bytes[4];                                                                                                  \
        for (int i = 0; i < 4; i++)                                                                                    \
            bytes[i] = (byte);                                                                                         \
        return selected_bytes(s, bytes);                                                                               \
    }
PERMUTATION(prmt_f4e, n + i)
PERMUTATION(prmt_b4e, (n - i) & 7)
PERMUTATION(prmt_rc8, n)
PERMUTATION(prmt_ecl, i > n ? i : n)
PERMUTATION(prmt_ecr, i < n ? i : n)
PERMUTATION(prmt_rc16, (n & 1) * 2 + (i & 1))

static uint64_t table_lookup(const uint64_t *s) {
    uint64_t result = 0;
    for (int i = 0; i < 32; i++)
        result |= (uint64_t)bit(s[3], 4 * bit(s[0], i) + 2 * bit(s[1], i) + bit(s[2], i)) << i;
    return result;
}

static uint64_t mask_of(const uint64_t *s, int clamp) {
    const uint32_t start = (uint32_t)s[0], length = (uint32_t)s[1];
    const uint32_t from = clamp ? (start > 32 ? 32 : start) : start % 32;
    const uint32_t count = clamp ? (length > 32 ? 32 : length) : length % 32;
    uint64_t result = 0;
    for (uint32_t i = 0; i < 32; i++)
        result |= (uint64_t)(i >= from && i < from + count) << i;
    return result;
}

static uint64_t extended(const uint64_t *s, int is_signed, int clamp) {
    const uint32_t amount = (uint32_t)s[1];
    const int width = (int)(clamp ? (amount > 32 ? 32 : amount) : amount % 32);
    uint64_t result = 0;
    for (int i = 0; i < 32 && width > 0; i++)
        result |= (uint64_t)(i < width ? bit(s[0], i) : is_signed ? bit(s[0], width - 1) : 0) << i;
    return result;
}

FORMULA(bfe_u32, uint32_t, 32, field_extract(s, 32, 0))
FORMULA(bfe_s32, uint32_t, 32, field_extract(s, 32, 1))
FORMULA(bfe_u64, uint32_t, 64, field_extract(s, 64, 0))
FORMULA(bfe_s64, uint32_t, 64, field_extract(s, 64, 1))
FORMULA(bfi_b32, uint32_t, 32, field_insert(s, 32))
FORMULA(bfi_b64, uint32_t, 64, field_insert(s, 64))
FORMULA(bfind_u32, uint32_t, 32, highest(s[0], 32, 0, 0))
FORMULA(bfind_s32, uint32_t, 32, highest(s[0], 32, 1, 0))
FORMULA(bfind_u64, uint32_t, 32, highest(s[0], 64, 0, 0))
FORMULA(bfind_s64, uint32_t, 32, highest(s[0], 64, 1, 0))
FORMULA(bfind_shift_u32, uint32_t, 32, highest(s[0], 32, 0, 1))
FORMULA(bfind_shift_s64, uint32_t, 32, highest(s[0], 64, 1, 1))
FORMULA(brev_b32, uint32_t, 32, reversed(s[0], 32))
FORMULA(brev_b64, uint32_t, 64, reversed(s[0], 64))
FORMULA(popc, uint32_t, 32, population(s[0]))
FORMULA(clz_b32, uint32_t, 32, leading_zeros(s[0], 32))
FORMULA(clz_b64, uint32_t, 32, leading_zeros(s[0], 64))
FORMULA(shf_l_wrap, uint32_t, 32, funnel(s, 1, 0))
FORMULA(shf_l_clamp, uint32_t, 32, funnel(s, 1, 1))
FORMULA(shf_r_wrap, uint32_t, 32, funnel(s, 0, 0))
FORMULA(shf_r_clamp, uint32_t, 32, funnel(s, 0, 1))
FORMULA(bmsk_wrap, uint32_t, 32, mask_of(s, 0))
FORMULA(bmsk_clamp, uint32_t, 32, mask_of(s, 1))
FORMULA(szext_u, uint32_t, 32, extended(s, 0, 0))
FORMULA(szext_s, uint32_t, 32, extended(s, 1, 1))

static void test_bits(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"bfe.u32 %r0, %r1, %r2, %r3", bfe_u32},
        {"bfe.s32 %r0, %r1, %r2, %r3", bfe_s32},
        {"bfe.u64 %d0, %d1, %r2, %r3", bfe_u64},
        {"bfe.s64 %d0, %d1, %r2, %r3", bfe_s64},
        {"bfi.b32 %r0, %r1, %r2, %r3, %r4", bfi_b32},
        {"bfi.b64 %d0, %d1, %d2, %r3, %r4", bfi_b64},
        {"bfind.u32 %r0, %r1", bfind_u32},
        {"bfind.s32 %r0, %r1", bfind_s32},
        {"bfind.u64 %r0, %d1", bfind_u64},
        {"bfind.s64 %r0, %d1", bfind_s64},
        {"bfind.shiftamt.u32 %r0, %r1", bfind_shift_u32},
        {"bfind.shiftamt.s64 %r0, %d1", bfind_shift_s64},
        {"brev.b32 %r0, %r1", brev_b32},
        {"brev.b64 %d0, %d1", brev_b64},
        {"popc.b32 %r0, %r1", popc},
        {"popc.b64 %r0, %d1", popc},
        {"clz.b32 %r0, %r1", clz_b32},
        {"clz.b64 %r0, %d1", clz_b64},
        {"shf.l.wrap.b32 %r0, %r1, %r2, %r3", shf_l_wrap},
        {"shf.l.clamp.b32 %r0, %r1, %r2, %r3", shf_l_clamp},
        {"shf.r.wrap.b32 %r0, %r1, %r2, %r3", shf_r_wrap},
        {"shf.r.clamp.b32 %r0, %r1, %r2, %r3", shf_r_clamp},
        {"prmt.b32 %r0, %r1, %r2, %r3", permuted},
        {"prmt.b32.f4e %r0, %r1, %r2, %r3", prmt_f4e},
        {"prmt.b32.b4e %r0, %r1, %r2, %r3", prmt_b4e},
        {"prmt.b32.rc8 %r0, %r1, %r2, %r3", prmt_rc8},
        {"prmt.b32.ecl %r0, %r1, %r2, %r3", prmt_ecl},
        {"prmt.b32.ecr %r0, %r1, %r2, %r3", prmt_ecr},
        {"prmt.b32.rc16 %r0, %r1, %r2, %r3", prmt_rc16},
        {"bmsk.wrap.b32 %r0, %r1, %r2", bmsk_wrap},
        {"bmsk.clamp.b32 %r0, %r1, %r2", bmsk_clamp},
        {"szext.wrap.u32 %r0, %r1, %r2", szext_u},
        {"szext.clamp.s32 %r0, %r1, %r2", szext_s},
    };
    check_cases(cases, COUNT(cases), any_integer, 300);
    for (int table = 0; table < 256; table++) {
        char text[64];
        snprintf(text, sizeof(text), "lop3.b32 %%r0, %%r1, %%r2, %%r3, 0x%x", table);
        check_instruction(text, table_lookup, any_integer, 4);
    }
}

static void test_lop3_predicate(void **state) {
    (void)state;
    for (int is_or = 0; is_or < 2; is_or++) {
        machine m;
        machine_init(&m, is_or ? "lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 0x80, !%p1"
                               : "lop3.and.b32 %r0|%p0, %r1, %r2, %r3, 0x80, !%p1");
        const int pair = m.instr->operands[0].pair;
        for (int lane = 0; lane < SIM_LANES; lane++) {
            for (int i = 1; i < 4; i++)
                machine_operand(&m, i)[lane] = lane & 1 ? UINT32_MAX >> lane : UINT64_C(1) << lane >> i;
            machine_operand(&m, 5)[lane] = lane >> 1 & 1;
        }
        machine_run(&m, UINT32_MAX);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const uint64_t both =
                machine_operand(&m, 1)[lane] & machine_operand(&m, 2)[lane] & machine_operand(&m, 3)[lane];
            const int q = !(lane >> 1 & 1);
            assert_int_equal(machine_operand(&m, 0)[lane], both);
            assert_int_equal(machine_lanes(&m, pair)[lane], is_or ? (both != 0) || q : (both != 0) && q);
        }
        machine_destroy(&m);
    }
}

static void test_refusals(void **state) {
    (void)state;
    assert_refused("bfe.b32 %r0, %r1, %r2, %r3", "bfe.b32");
    assert_refused("lop3.b32 %r0, %r1, %r2, %r3, %r4", "operand 5");
    assert_refused("prmt.b32.f5e %r0, %r1, %r2, %r3", "prmt.b32.f5e");
    assert_refused("shf.l.b32 %r0, %r1, %r2, %r3", "shf.l.b32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_lop3_predicate),
        cmocka_unit_test(test_refusals),
    };
    seed_randomly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
