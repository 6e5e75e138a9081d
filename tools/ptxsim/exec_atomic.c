/* SPDX-License-Identifier: MIT
 * atom and red: read, compute, write as one step, also between CTAs that run on different host threads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "exec_formats.h"
#include "memory.h"

/* data[0]: element bytes | kind << 8 | values in an element << 16 | elements << 24, data[1]: space, data[2]: access_op,
 * data[3]: flags
 */

enum { HINT = 1, HAS_RESULT = 2, ORDER_SHIFT = 8 /* of access_form.order */ };

static int64_t as_signed(uint64_t x, size_t bytes) {
    return (int64_t)(x << (64 - 8 * bytes)) >> (64 - 8 * bytes);
}

static uint64_t integer_op(access_op op, access_kind kind, size_t bytes, uint64_t old, uint64_t x) {
    const bool below = kind == ACCESS_SIGNED ? as_signed(x, bytes) < as_signed(old, bytes) : x < old;
    switch (op) {
    case ACCESS_AND:
        return old & x;
    case ACCESS_OR:
        return old | x;
    case ACCESS_XOR:
        return old ^ x;
    case ACCESS_ADD:
        return old + x;
    case ACCESS_INC:
        return old >= x ? 0 : old + 1;
    case ACCESS_DEC:
        return old == 0 || old > x ? x : old - 1;
    case ACCESS_MIN:
        return below ? x : old;
    case ACCESS_MAX:
        return below ? old : x;
    default:
        return x; /* exch */
    }
}

/* Sums of f32 in global memory flush subnormals (PTX ISA, "atom"). Of NaNs of f64 an H200 passes on the added one first
 * there, as it is; in shared memory the old one first, made quiet. */
static uint64_t float_add(access_kind kind, size_t bytes, bool global, uint64_t old, uint64_t x) {
    if (kind == ACCESS_HALF)
        return exec_f16_bits(exec_f16(old) + exec_f16(x));
    if (kind == ACCESS_BF16)
        return exec_bf16_bits(exec_add_odd(exec_bf16(old), exec_bf16(x)));
    if (bytes == 4) {
        const uint64_t sum = exec_float_bits(global ? exec_float(exec_flush(old)) + exec_float(exec_flush(x))
                                                    : exec_float(old) + exec_float(x));
        return global ? exec_flush(sum) : sum;
    }
    const double a = exec_double(old), b = exec_double(x), sum = a + b;
    if (sum == sum)
        return exec_double_bits(sum);
    if (a == a && b == b)
        return UINT64_C(0xfff8000000000000);
    return global ? (b != b ? x : old) : (a != a ? old : x) | UINT64_C(1) << 51;
}

static uint64_t float_op(const access_step *s, size_t bytes, uint64_t old, uint64_t x) {
    if (s->op != ACCESS_MIN && s->op != ACCESS_MAX)
        return float_add(s->kind, bytes, s->global, old, x);
    const double a = s->kind == ACCESS_HALF ? exec_f16(old) : exec_bf16(old);
    const double b = s->kind == ACCESS_HALF ? exec_f16(x) : exec_bf16(x);
    const bool takes_x = isnan(a) || (s->op == ACCESS_MIN ? b < a : b > a);
    return takes_x && !isnan(b) ? x : old;
}

static uint64_t apply(const access_step *s, uint64_t old, uint64_t x) {
    if (s->kind < ACCESS_FLOAT || s->op == ACCESS_EXCH)
        return integer_op(s->op, s->kind, s->bytes, old, x);
    if (s->packed == 2)
        return float_op(s, 2, old & 0xffff, x & 0xffff) | float_op(s, 2, old >> 16, x >> 16) << 16;
    return float_op(s, s->bytes, old, x);
}

#define DEFINE_STEP(type)                                                                                              \
    static uint64_t step_##type(const access_step *s, uint8_t *bytes, uint64_t x, uint64_t swap) {                     \
        type *at = (type *)(void *)bytes;                                                                              \
        type old = __atomic_load_n(at, __ATOMIC_RELAXED);                                                              \
        for (;;) {                                                                                                     \
            type next = old;                                                                                           \
            if (s->op != ACCESS_CAS)                                                                                   \
                next = (type)apply(s, old, (type)x);                                                                   \
            else if (old == (type)x)                                                                                   \
                next = (type)swap;                                                                                     \
            if (__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))                \
                return old;                                                                                            \
        }                                                                                                              \
    }
DEFINE_STEP(uint16_t)
DEFINE_STEP(uint32_t)
DEFINE_STEP(uint64_t)

uint64_t access_apply(const access_step *step, uint8_t *at, uint64_t x, uint64_t swap) {
    return step->bytes == 2   ? step_uint16_t(step, at, x, swap)
           : step->bytes == 4 ? step_uint32_t(step, at, x, swap)
                              : step_uint64_t(step, at, x, swap);
}

static uint64_t value_of(sim_warp *warp, const ptx_operand *operand, int lane, size_t bytes) {
    return operand->kind == PTX_OPERAND_REAL ? sim_operand_real(warp, operand, lane, (int)(8 * bytes))
                                             : sim_operand(warp, operand, lane);
}

static const ptx_operand *element(const ptx_operand *operand, size_t i) {
    return operand->kind == PTX_OPERAND_VECTOR ? &operand->elements[i] : operand;
}

static sim_result exec_atomic(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const size_t bytes = instr->data[0] & 0xff, elements = instr->data[0] >> 24;
    const int address = instr->data[3] & HAS_RESULT ? 1 : 0;
    access_step step = {.op = (access_op)instr->data[2],
                        .kind = (access_kind)(instr->data[0] >> 8 & 0xff),
                        .bytes = bytes,
                        .packed = (int)(instr->data[0] >> 16 & 0xff)};
    const bool cas = step.op == ACCESS_CAS;
    const unsigned order = (unsigned)(instr->data[3] >> ORDER_SHIFT);
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        if ((instr->data[3] & HINT) &&
            !access_check_policy(warp, instr, lane, &instr->operands[instr->num_operands - 1]))
            return SIM_FAULT;
        const uint64_t where = sim_address(warp, &instr->operands[address], lane);
        const ptx_space space = (ptx_space)instr->data[1];
        step.global = space == PTX_GLOBAL || (space == PTX_GENERIC && where - SIM_SHARED_WINDOW >= SIM_WINDOW_BYTES);
        /* Reading first finds bytes that were not written; the write then checks that it is allowed. */
        if (sim_access_kind(warp, instr, lane, space, where, bytes * elements,
                            (order & ~(unsigned)RACE_WRITE) | RACE_CHECK, NULL) == NULL)
            return SIM_FAULT;
        uint8_t *at = sim_access_kind(warp, instr, lane, space, where, bytes * elements, order, NULL);
        if (at == NULL)
            return SIM_FAULT;
        sim_strong_before(warp, lane, space, where, order);
        /* Each element on its own is atomic (PTX ISA, "red"). */
        uint64_t old[8];
        for (size_t i = 0; i < elements; i++, at += bytes) {
            const uint64_t x = value_of(warp, element(&instr->operands[address + 1], i), lane, bytes);
            const uint64_t swap = cas ? value_of(warp, &instr->operands[address + 2], lane, bytes) : 0;
            old[i] = access_apply(&step, at, x, swap);
        }
        sim_strong_after(warp, lane, space, where, order);
        for (size_t i = 0; i < elements && address == 1; i++)
            sim_set(warp, element(&instr->operands[0], i), lane, old[i]);
    }
    return SIM_DONE;
}

/* Operations of each kind of type, as bits. */
static unsigned ops_of(access_kind kind, int bytes) {
    const unsigned bitwise = 1u << ACCESS_AND | 1u << ACCESS_OR | 1u << ACCESS_XOR;
    const unsigned order = 1u << ACCESS_MIN | 1u << ACCESS_MAX;
    const unsigned wrap = bytes == 4 ? 1u << ACCESS_INC | 1u << ACCESS_DEC : 0;
    switch (kind) {
    case ACCESS_UNTYPED:
        return 1u << ACCESS_CAS | (bytes > 2 ? bitwise | 1u << ACCESS_EXCH : 0);
    case ACCESS_UNSIGNED:
        return 1u << ACCESS_ADD | order | wrap;
    case ACCESS_SIGNED:
        return (bytes == 4 ? 1u << ACCESS_ADD : 0) | order;
    default:
        return 1u << ACCESS_ADD;
    }
}

bool access_has_op(access_kind kind, int bytes, access_op op) {
    return ops_of(kind, bytes) >> op & 1;
}

static bool has_elements(const ptx_operand *operand, int count) {
    return operand->kind == PTX_OPERAND_VECTOR ? operand->num_elements == count : count == 1;
}

bool bind_atomic(ptx_instr *instr, char *error, size_t error_size) {
    if (instr->num_modifiers > 0 && strcmp(instr->modifiers[0], "async") == 0)
        return false; /* exec_store_async.c */
    const bool result = strcmp(instr->opcode, "atom") == 0;
    access_form form;
    if (!access_parse(instr, result ? ACCESS_ATOM : ACCESS_RED, &form, error, error_size))
        return false;
    if (!access_has_op(form.kind, form.bytes, form.op)) {
        snprintf(error, error_size, "%s: no such operation on this type", instr->opcode);
        return false;
    }
    const int operands = 2 + (result ? 1 : 0) + (form.op == ACCESS_CAS ? 1 : 0) + (form.hint ? 1 : 0);
    if (instr->num_operands != operands || instr->operands[result ? 1 : 0].kind != PTX_OPERAND_ADDRESS) {
        snprintf(error, error_size, "%s: wrong operands", instr->opcode);
        return false;
    }
    /* Vectors: additions of at most 32-bit floats in global memory. */
    const bool adds = form.op == ACCESS_ADD && form.kind >= ACCESS_FLOAT && form.bytes <= 4 && form.space == PTX_GLOBAL;
    if ((form.vector > 1 && !adds) || !has_elements(&instr->operands[result ? 2 : 1], form.vector) ||
        (result && !has_elements(&instr->operands[0], form.vector))) {
        snprintf(error, error_size, "%s: vectors are of floats that are added in global memory", instr->opcode);
        return false;
    }
    instr->exec = exec_atomic;
    instr->data[0] =
        (uint64_t)form.bytes | (uint64_t)form.kind << 8 | (uint64_t)form.packed << 16 | (uint64_t)form.vector << 24;
    instr->data[1] = (uint64_t)form.space;
    instr->data[2] = (uint64_t)form.op;
    instr->data[3] = (form.hint ? HINT : 0u) | (result ? HAS_RESULT : 0u) | form.order << ORDER_SHIFT;
    return true;
}
