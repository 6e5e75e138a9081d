/* SPDX-License-Identifier: MIT
 * tcgen05.mma: its forms, its instruction descriptor (PTX ISA, "Instruction descriptor", "Matrix Shape"), and its
 * accesses to tensor memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "exec.h"
#include "tcgen05.h"

/* data[0]: kind, data[1]: scales a row (0: no block scaling), data[2]: flags */
enum { A_IN_TMEM = 1, HAS_MASK = 2, HAS_SCALE_DOWN = 4, WEIGHTS = 8 /* .ws */ };

/* ---- Binding --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tcgen05_kind kind;
    bool scaled;
} KINDS[] = {{"kind::f16", TCGEN05_F16, false},          {"kind::tf32", TCGEN05_TF32, false},
             {"kind::f8f6f4", TCGEN05_F8F6F4, false},    {"kind::i8", TCGEN05_I8, false},
             {"kind::mxf8f6f4", TCGEN05_MXF8F6F4, true}, {"kind::mxf4", TCGEN05_MXF4, true},
             {"kind::mxf4nvf4", TCGEN05_MXF4NVF4, true}};

/* Valid kinds of each spelling (bits), and the scales a row that it stands for. */
static const struct {
    const char *name;
    unsigned kinds;
    int scales[7]; /* by kind */
} VECTORS[] = {
    {"scale_vec::1X", 1u << TCGEN05_MXF8F6F4, {[TCGEN05_MXF8F6F4] = 1}},
    {"scale_vec::2X", 1u << TCGEN05_MXF4 | 1u << TCGEN05_MXF4NVF4, {[TCGEN05_MXF4] = 2, [TCGEN05_MXF4NVF4] = 2}},
    {"scale_vec::4X", 1u << TCGEN05_MXF4NVF4, {[TCGEN05_MXF4NVF4] = 4}},
    {"block16", 1u << TCGEN05_MXF4NVF4, {[TCGEN05_MXF4NVF4] = 4}},
    {"block32",
     1u << TCGEN05_MXF8F6F4 | 1u << TCGEN05_MXF4 | 1u << TCGEN05_MXF4NVF4,
     {[TCGEN05_MXF8F6F4] = 1, [TCGEN05_MXF4] = 2, [TCGEN05_MXF4NVF4] = 2}},
};

/* Modifiers after the kind. */
static const char *check_modifiers(ptx_instr *instr, int next, bool scaled, tcgen05_kind kind) {
    if (scaled) {
        if (next == instr->num_modifiers || strcmp(instr->modifiers[next], "block_scale") != 0)
            return "this kind needs .block_scale";
        next++;
        instr->data[1] = kind == TCGEN05_MXF8F6F4 ? 1 : kind == TCGEN05_MXF4 ? 2 : 0;
        for (size_t i = 0; next < instr->num_modifiers && i < sizeof(VECTORS) / sizeof(*VECTORS); i++) {
            if (strcmp(instr->modifiers[next], VECTORS[i].name) != 0)
                continue;
            if (!(VECTORS[i].kinds >> kind & 1))
                return "this kind does not have this size of scale vectors";
            instr->data[1] = (uint64_t)VECTORS[i].scales[kind];
            next++;
            break;
        }
        if (instr->data[1] == 0)
            return "this kind needs the size of its scale vectors";
    }
    /* What may be kept in the collector changes no result: its source must stay as it is until completion. */
    static const char *const collectors[] = {
        "collector::a::", "collector::b::", "collector::b0::", "collector::b1::", "collector::b2::", "collector::b3::"};
    static const char uses[] = "fill|use|lastuse|discard";
    const int first = instr->data[2] & WEIGHTS ? 2 : 0;
    for (int i = first; i < (first == 2 ? 6 : 2) && next < instr->num_modifiers; i++) {
        const size_t length = strlen(collectors[i]);
        if (strncmp(instr->modifiers[next], collectors[i], length) == 0 &&
            exec_listed(uses, instr->modifiers[next] + length))
            next++;
    }
    return next == instr->num_modifiers ? NULL : "a modifier is not known";
}

static bool is_plain(const ptx_operand *operand) {
    return operand->kind == PTX_OPERAND_REGISTER && !operand->negated && operand->pair < 0;
}

static bool is_address(const ptx_operand *operand) {
    return operand->kind == PTX_OPERAND_ADDRESS && operand->num_elements == 0;
}

static bool is_predicate(const ptx_operand *operand) {
    return (operand->kind == PTX_OPERAND_REGISTER && operand->width <= 1 && operand->pair < 0) ||
           operand->kind == PTX_OPERAND_INTEGER;
}

static bool is_mask(const ptx_operand *operand) {
    for (int i = 0; i < operand->num_elements; i++) {
        if (!is_plain(&operand->elements[i]) && operand->elements[i].kind != PTX_OPERAND_INTEGER)
            return false;
    }
    return operand->kind == PTX_OPERAND_VECTOR && operand->num_elements == TMEM_LANES / 32;
}

static const char *check_operands(ptx_instr *instr, bool scaled, tcgen05_kind kind) {
    const ptx_operand *o = instr->operands;
    const int count = instr->num_operands;
    if (count < 5 || !is_address(&o[0]) || !(is_plain(&o[1]) || is_address(&o[1])) || !is_plain(&o[2]) ||
        !(is_plain(&o[3]) || o[3].kind == PTX_OPERAND_INTEGER))
        return "wrong operands";
    if (is_address(&o[1]))
        instr->data[2] |= A_IN_TMEM;
    if (scaled)
        return count == 7 && is_address(&o[4]) && is_address(&o[5]) && is_predicate(&o[6]) ? NULL : "wrong operands";
    int next = 4;
    if (instr->data[2] & WEIGHTS) { /* maybe with a mask of columns of B that count as zero, which must be 0 */
        const bool fits = is_predicate(&o[4]) &&
                          (count == 5 || (count == 6 && (is_plain(&o[5]) || o[5].kind == PTX_OPERAND_INTEGER)));
        return fits ? NULL : "wrong operands";
    }
    if (o[next].kind == PTX_OPERAND_VECTOR) {
        if (!is_mask(&o[next]))
            return "disable-output-lane takes four 32-bit registers";
        instr->data[2] |= HAS_MASK;
        next++;
    }
    if (next == count || !is_predicate(&o[next]))
        return "wrong operands";
    next++;
    if (next < count) {
        if ((kind != TCGEN05_F16 && kind != TCGEN05_TF32) || o[next].kind != PTX_OPERAND_INTEGER || o[next].bits > 15)
            return "scale-input-d is an integer from 0 to 15, of kinds f16 and tf32";
        instr->data[2] |= HAS_SCALE_DOWN;
        next++;
    }
    return next == count ? NULL : "wrong operands";
}

bool tcgen05_bind_mma(ptx_instr *instr, char *error, size_t error_size) {
    const size_t num_kinds = sizeof(KINDS) / sizeof(*KINDS);
    size_t k = 0;
    const char *wrong = NULL;
    if (ptx_has(instr, "sp"))
        wrong = "sparse matrices are not modelled";
    else if (ptx_has(instr, "ashift"))
        wrong = ".ashift is not modelled";
    const int ws = instr->num_modifiers > 1 && strcmp(instr->modifiers[1], "ws") == 0;
    instr->data[2] = ws ? WEIGHTS : 0;
    if (wrong == NULL && (instr->num_modifiers < 3 + ws || strcmp(instr->modifiers[1 + ws], "cta_group::1") != 0))
        wrong = "this form is not known";
    while (wrong == NULL && k < num_kinds && strcmp(instr->modifiers[2 + ws], KINDS[k].name) != 0)
        k++;
    if (wrong == NULL && (k == num_kinds || (ws && KINDS[k].scaled)))
        wrong = "this kind is not known";
    if (wrong == NULL)
        wrong = check_modifiers(instr, 3 + ws, KINDS[k].scaled, KINDS[k].kind);
    if (wrong == NULL)
        wrong = check_operands(instr, KINDS[k].scaled, KINDS[k].kind);
    if (wrong != NULL) {
        snprintf(error, error_size, "tcgen05.mma: %s", wrong);
        return false;
    }
    instr->data[0] = KINDS[k].kind;
    instr->exec = tcgen05_exec_mma;
    return true;
}

/* ---- The instruction descriptor -------------------------------------------------------------------------------- */

static unsigned bits(uint32_t value, int first, int last) {
    return value >> first & ((1u << (last - first + 1)) - 1);
}

/* The type that a code stands for; MMA_TYPES if none. */
static mma_type type_of(tcgen05_kind kind, unsigned code) {
    static const mma_type narrow[8] = {MMA_E4M3, MMA_E5M2, MMA_TYPES, MMA_E2M3,
                                       MMA_E3M2, MMA_E2M1, MMA_TYPES, MMA_TYPES};
    switch (kind) {
    case TCGEN05_F16:
        return code == 0 ? MMA_F16 : code == 1 ? MMA_BF16 : MMA_TYPES;
    case TCGEN05_TF32:
        return code == 2 ? MMA_TF32 : MMA_TYPES;
    case TCGEN05_I8:
        return code == 0 ? MMA_U8 : code == 1 ? MMA_S8 : MMA_TYPES;
    case TCGEN05_MXF4:
    case TCGEN05_MXF4NVF4:
        return code == 1 ? MMA_E2M1_PACKED : MMA_TYPES;
    default:
        return narrow[code];
    }
}

/* Bits that must be zero. */
static uint32_t reserved_bits(tcgen05_kind kind) {
    switch (kind) {
    case TCGEN05_F16:
    case TCGEN05_TF32:
    case TCGEN05_F8F6F4: /* 0-1: sparsity selector, 30-31: .ws */
        return UINT32_C(0xe080004b);
    case TCGEN05_I8:
        return UINT32_C(0xe0806043);
    case TCGEN05_MXF8F6F4:
        return UINT32_C(0x8700004b);
    default:
        return UINT32_C(0x0701904b);
    }
}

/* What the descriptor gets wrong, or NULL. */
static const char *check_shape(const tcgen05_product *p, uint32_t idesc) {
    const bool scaled = p->scales != 0;
    if (idesc & 4)
        return "sparse matrices are not modelled";
    if (idesc & (reserved_bits(p->kind) & ~(p->weights ? UINT32_C(0xc0000000) : 0)))
        return "bits that must be zero are set";
    if (p->a == MMA_TYPES || p->b == MMA_TYPES)
        return "this kind does not have the type of A or B";
    if (p->kind == TCGEN05_F16 && p->a != p->b)
        return "A and B have different types";
    if (p->kind == TCGEN05_F16 && p->a == MMA_BF16 && p->d == TCGEN05_D_F16)
        return "bf16 accumulates in f32";
    if (p->weights && ((p->m != 32 && p->m != 64 && p->m != 128) || (p->n != 64 && p->n != 128 && p->n != 256)))
        return "with .ws M must be 32, 64 or 128, and N 64, 128 or 256";
    if (p->weights && p->m != 128 && p->a_in_tmem)
        return "A in tensor memory with .ws is modelled with M = 128 alone";
    if (!p->weights && p->m != 128 && (scaled || p->m != 64))
        return scaled ? "M must be 128" : "M must be 64 or 128";
    if (p->n < 8 || p->n > 256)
        return "N must be 8 to 256";
    if (p->kind == TCGEN05_I8 && p->n > 32 && p->n % 16 != 0)
        return "N above 32 must be a multiple of 16";
    if (p->b_layout.mn_major && tcgen05_in_piece(p->b) == 16 && p->n % 16 != 0)
        return "N must be a multiple of 16 where 8-bit B is transposed";
    return NULL;
}

static bool decode_descriptor(tcgen05_product *p, sim_warp *warp, const ptx_instr *instr, int lane, uint32_t idesc) {
    const bool four_bits = p->kind == TCGEN05_MXF4 || p->kind == TCGEN05_MXF4NVF4;
    const char *wrong = NULL;
    p->scales = (int)instr->data[1];
    p->a = type_of(p->kind, bits(idesc, 7, 9));
    p->b = type_of(p->kind, bits(idesc, 10, four_bits ? 11 : 12));
    p->negate_a = bits(idesc, 13, 13);
    p->negate_b = bits(idesc, 14, 14);
    p->a_layout.mn_major = bits(idesc, 15, 15);
    p->b_layout.mn_major = bits(idesc, 16, 16);
    p->n = 8 * (int)bits(idesc, 17, 22);
    p->k = four_bits ? 64 : p->kind == TCGEN05_F16 ? 16 : p->kind == TCGEN05_TF32 ? 8 : 32;
    if (p->scales != 0) {
        p->m = 128 * (int)bits(idesc, 27, 28);
        p->d = TCGEN05_D_F32;
        p->ue8m0 = bits(idesc, 23, 23);
        p->scale_b.id = bits(idesc, 4, 5);
        p->scale_a.id = bits(idesc, 29, 30);
        const unsigned step = (unsigned)p->scales;
        if (p->scale_a.id % step != 0 || p->scale_b.id % step != 0)
            wrong = p->scales == 2 ? "scale factor ids must be 0 or 2" : "scale factor ids must be 0";
        else if (!p->ue8m0 && p->kind != TCGEN05_MXF4NVF4)
            wrong = "scales of this kind are UE8M0 (bit 23)";
        else if (!p->ue8m0 && p->scales != 4)
            wrong = "UE4M3 scales come in fours";
        else if (four_bits && idesc >> 31)
            wrong = "K = 96 is for cta_group::2";
    } else {
        static const tcgen05_accumulator accumulators[4] = {TCGEN05_D_F16, TCGEN05_D_F32, TCGEN05_D_S32};
        const unsigned d = bits(idesc, 4, 5);
        p->m = 16 * (int)bits(idesc, 24, 28);
        p->d = accumulators[d];
        p->saturate = p->kind == TCGEN05_I8 && bits(idesc, 3, 3);
        if (d == 3 || (p->kind == TCGEN05_I8) != (d == 2) || (p->kind == TCGEN05_TF32 && d != 1))
            wrong = "this kind does not have the type of D";
    }
    p->weights = instr->data[2] & WEIGHTS;
    if (wrong == NULL)
        wrong = check_shape(p, idesc);
    p->parts = p->weights && p->m < 128 ? 128 / p->m : 1;
    if (wrong == NULL)
        return true;
    sim_fault(warp, instr, lane, "instruction descriptor %#" PRIx32 " (M %d, N %d): %s", idesc, p->m, p->n, wrong);
    return false;
}

/* ---- Tensor memory --------------------------------------------------------------------------------------------- */

static bool decode_address(tcgen05_product *p, sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address,
                           const char *what, uint32_t *column) {
    const uint32_t lanes = (uint32_t)address >> 16;
    *column = (uint32_t)address & 0xffff;
    if (lanes == p->lane_offset)
        return true;
    sim_fault(warp, instr, lane, "%s: address %#" PRIx32 " names lane %" PRIu32 ", but lane %" PRIu32 " is needed%s",
              what, (uint32_t)address, lanes, p->lane_offset, p->m == 64 ? " (that of D)" : " with M = 128");
    return false;
}

static bool in_area(const tmem_area *area, const tmem_area *other) {
    return area->columns != 0 && other->columns != 0 && (area->groups & other->groups) &&
           area->column < other->column + other->columns && other->column < area->column + area->columns;
}

/* Bits 30-31 of a scale's address are not part of it: some compilers keep the scale's id there. */
static bool decode_scale(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, const char *what,
                         uint32_t *column) {
    *column = (uint32_t)address & 0xffff;
    if ((address & 0x3fff0000) == 0)
        return true;
    sim_fault(warp, instr, lane, "%s: address %#" PRIx32 " does not name lane 0", what, (uint32_t)address);
    return false;
}

static bool access_tmem(tcgen05_product *p, sim_warp *warp, const ptx_instr *instr, int lane) {
    const ptx_operand *o = instr->operands;
    const uint64_t d = sim_address(warp, &o[0], lane);
    const bool half = p->m == 64 && !p->weights; /* of the lanes */
    p->lane_offset = half && (uint32_t)d >> 16 == 16 ? 16 : 0;
    if (!decode_address(p, warp, instr, lane, d, "D", &p->d_column))
        return false;
    const unsigned groups = !half ? 0xff : p->lane_offset ? 0xaa : 0x55;
    const tmem_area to = {.column = p->d_column, .columns = (uint32_t)(p->n / p->parts), .groups = groups};
    tmem_area from[3] = {{0}};
    static const char *const names[] = {"A", "the scales of A", "the scales of B"};
    if (p->a_in_tmem) {
        if (!decode_address(p, warp, instr, lane, sim_address(warp, &o[1], lane), "A", &p->a_column))
            return false;
        from[0] = (tmem_area){.column = p->a_column, .columns = 8, .groups = groups};
    }
    if (p->scales != 0) {
        if (!decode_scale(warp, instr, lane, sim_address(warp, &o[4], lane), names[1], &p->scale_a.column) ||
            !decode_scale(warp, instr, lane, sim_address(warp, &o[5], lane), names[2], &p->scale_b.column))
            return false;
        from[1] = (tmem_area){.column = p->scale_a.column, .columns = 4, .groups = 0xff};
        from[2] = (tmem_area){.column = p->scale_b.column, .columns = (uint32_t)(p->n + 31) / 32, .groups = 0xff};
    }
    /* The same descriptor fields make the same accumulator and shape. */
    const uint32_t key = p->d_column | p->lane_offset << 8 | (uint32_t)(p->m == 64) << 13 | (uint32_t)p->n << 14 |
                         (uint32_t)p->k << 23 | (uint32_t)(p->m == 32) << 30 | (uint32_t)p->weights << 31;
    p->base.op = tmem_issue(tmem_if_any(warp->cta), warp, instr, TMEM_MMA, key);
    for (int i = 0; i < 3; i++) {
        if (in_area(&from[i], &to)) {
            sim_fault(warp, instr, lane,
                      "%s, columns [%" PRIu32 ", %" PRIu32 "), overlap D, columns [%" PRIu32 ", %" PRIu32 ")", names[i],
                      from[i].column, from[i].column + from[i].columns, to.column, to.column + to.columns);
            return false;
        }
        if (from[i].columns != 0 && !tmem_access(warp, lane, &p->base.op, &from[i], false, names[i]))
            return false;
    }
    return tmem_access(warp, lane, &p->base.op, &to, true, "D");
}

/* ---- Issuing --------------------------------------------------------------------------------------------------- */

static sim_async_step product_step(sim_cta *cta, struct sim_async *op) {
    tcgen05_product *product = (tcgen05_product *)op;
    if (tcgen05_must_wait(cta, &product->base))
        return SIM_ASYNC_BLOCKED;
    if (tcgen05_compute(product))
        tmem_finish(cta, &product->base);
    return SIM_ASYNC_DONE;
}

static bool issue(tcgen05_product *p, sim_warp *warp, const ptx_instr *instr, int lane) {
    const ptx_operand *o = instr->operands;
    p->kind = (tcgen05_kind)instr->data[0];
    p->a_in_tmem = instr->data[2] & A_IN_TMEM;
    if (!decode_descriptor(p, warp, instr, lane, (uint32_t)sim_operand(warp, &o[3], lane)))
        return false;
    int next = p->scales != 0 ? 6 : 4;
    if (instr->data[2] & HAS_MASK) {
        for (int i = 0; i < TMEM_LANES / 32; i++)
            p->disabled[i] = (uint32_t)sim_operand(warp, &o[next].elements[i], lane);
        next++;
    }
    p->accumulate = sim_operand(warp, &o[next], lane) & 1;
    if (p->weights && instr->num_operands == 6 && sim_operand(warp, &o[5], lane) != 0) {
        sim_fault(warp, instr, lane, "masks of zero columns are not modelled");
        return false;
    }
    p->scale_factor = instr->data[2] & HAS_SCALE_DOWN ? 1.0 / (double)(1 << o[next + 1].bits) : 1.0;
    if (p->a_in_tmem && p->a_layout.mn_major) {
        sim_fault(warp, instr, lane, "A in tensor memory cannot be transposed");
        return false;
    }
    const bool a_mn = p->a_layout.mn_major, b_mn = p->b_layout.mn_major;
    if (!p->a_in_tmem &&
        !tcgen05_decode_layout(warp, instr, lane, sim_operand(warp, &o[1], lane), a_mn, "A", &p->a_layout))
        return false;
    if (!tcgen05_decode_layout(warp, instr, lane, sim_operand(warp, &o[2], lane), b_mn, "B", &p->b_layout))
        return false;
    const bool wide_a = a_mn && p->a_layout.wide_atoms != (p->kind == TCGEN05_TF32);
    const bool wide_b = b_mn && p->b_layout.wide_atoms != (p->kind == TCGEN05_TF32);
    if (wide_a || wide_b) {
        sim_fault(warp, instr, lane, "%s is transposed: %s", wide_a ? "A" : "B",
                  p->kind == TCGEN05_TF32 ? "tf32 needs 128-byte swizzling with 32-byte atoms"
                                          : "32-byte atoms are for tf32 alone");
        return false;
    }
    return access_tmem(p, warp, instr, lane) && tcgen05_check_operands(p);
}

sim_result tcgen05_exec_mma(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (tmem_of(warp, instr) == NULL)
        return SIM_FAULT;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        tcgen05_product *p =
            (tcgen05_product *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*p), SIM_ASYNC_TCGEN05);
        if (p == NULL)
            return SIM_FAULT;
        p->base.base.step = product_step;
        if (!issue(p, warp, instr, lane)) {
            sim_async_discard(&p->base.base);
            return SIM_FAULT;
        }
        sim_async_queue(warp->cta, &p->base.base);
    }
    return SIM_DONE;
}
