/* SPDX-License-Identifier: MIT
 *
 * mma.sync.m16n8kK: forms, fragments and results.
 *
 * Fragments (PTX ISA, "Matrix Fragments for mma.m16n8kK"), for lane l of group g = l / 4 and place t = l % 4, registers
 * of E elements each: register r of A has row g + 8 (r % 2), columns E (t + 4 (r / 2)) and following; register r of B
 * has column g, rows E (t + 4 r) and following; accumulators have row g (first half) or g + 8, columns 2 t and 2 t + 1.
 *
 * Scale factors (PTX ISA, "Block Scaling for mma.sync"): of A from the two lanes of each group named by thread-id, the
 * first for row g, the second for row g + 8; of B from one lane of each group for column g; from byte-id on, one byte
 * for each block along K. Measurements on sm_120 that are published agree. */
#include <stdio.h>
#include <string.h>

#include "async.h"
#include "exec_formats.h"
#include "mma.h"
#include "tensor_sum.h"

/* ---- Forms ---- */

typedef enum sum_type { SUM_F32, SUM_F16, SUM_S32 } sum_type;

typedef struct form {
    const char *kind; /* NULL: none */
    int k;
    const char *types;   /* of A and B */
    bool mixed;          /* which may differ */
    const char *sums;    /* types of C and D, which may not */
    const char *scales;  /* their type; NULL: none */
    int blocks;          /* scale factors along K */
    bool blocks_default; /* which need not be written */
} form;

#define FP8  "e4m3|e5m2"
#define FP64 "e4m3|e5m2|e2m3|e3m2|e2m1"

static const form forms[] = {
    {NULL, 8, "f16", false, "f16|f32", NULL, 1, false},
    {NULL, 16, "f16", false, "f16|f32", NULL, 1, false},
    {NULL, 8, "bf16", false, "f32", NULL, 1, false},
    {NULL, 16, "bf16", false, "f32", NULL, 1, false},
    {NULL, 4, "tf32", false, "f32", NULL, 1, false},
    {NULL, 8, "tf32", false, "f32", NULL, 1, false},
    {NULL, 16, FP8, true, "f16|f32", NULL, 1, false},
    {NULL, 32, FP8, true, "f16|f32", NULL, 1, false},
    {NULL, 16, "u8|s8", true, "s32", NULL, 1, false},
    {NULL, 32, "u8|s8", true, "s32", NULL, 1, false},
    {NULL, 32, "u4|s4", true, "s32", NULL, 1, false},
    {NULL, 64, "u4|s4", true, "s32", NULL, 1, false},
    {"kind::f8f6f4", 32, FP64, true, "f16|f32", NULL, 1, false},
    {"kind::mxf8f6f4", 32, FP64, true, "f32", "ue8m0", 1, true},
    {"kind::mxf4", 64, "e2m1", false, "f32", "ue8m0", 2, true},
    {"kind::mxf4nvf4", 64, "e2m1", false, "f32", "ue8m0", 2, false},
    {"kind::mxf4nvf4", 64, "e2m1", false, "f32", "ue4m3", 4, false},
};

/* What bind leaves in data[0]. */
typedef struct bound {
    uint8_t k, blocks, a, b, sum;
    bool scaled, ue4m3, satfinite;
} bound;
_Static_assert(sizeof(bound) == sizeof(uint64_t), "fits into a field of data");

static bound bound_of(const ptx_instr *instr) {
    bound result;
    memcpy(&result, &instr->data[0], sizeof result);
    return result;
}

/* ---- Registers ---- */

static const ptx_operand *element(const ptx_operand *operand, int i) {
    return operand->kind == PTX_OPERAND_VECTOR ? &operand->elements[i] : operand;
}

static int elements(const ptx_operand *operand) {
    return operand->kind == PTX_OPERAND_VECTOR ? operand->num_elements : 1;
}

/* Lanes in which a register has no value. */
static uint32_t undefined_lanes(const sim_warp *warp, const ptx_operand *operand) {
    return operand->kind == PTX_OPERAND_REGISTER ? ~sim_defined_lanes(warp, operand->slot) : 0;
}

/* What the results cannot depend on: rows of A, columns of B and elements of C that come from registers or shared
 * memory never written. As only a store of them would be a mistake, results there are undefined rather than reported.
 */
typedef struct gaps {
    unsigned rows, columns; /* bits */
    uint8_t sums[MMA_M];    /* bits of columns, for each row */
} gaps;

static void note_gaps(unsigned *bits, uint32_t lanes, int first) {
    for (; lanes; lanes &= lanes - 1)
        *bits |= 1u << (__builtin_ctz(lanes) / 4 + first);
}

static void read_a(sim_warp *warp, const ptx_instr *instr, mma_type type, mma_product *p, gaps *g) {
    const int per_register = 32 / mma_type_bits(type), count = elements(&instr->operands[1]);
    uint64_t buffer[SIM_LANES];
    for (int r = 0; r < count; r++) {
        const ptx_operand *operand = element(&instr->operands[1], r);
        const int row = 8 * (r % 2), column = 4 * per_register * (r / 2);
        mma_decode(type, exec_source(warp, operand, buffer, UINT32_MAX), &p->a[row][column], MMA_MAX_K,
                   (size_t)per_register, 1);
        note_gaps(&g->rows, undefined_lanes(warp, operand), row);
    }
}

static void read_b(sim_warp *warp, const ptx_instr *instr, mma_type type, mma_product *p, gaps *g) {
    const int per_register = 32 / mma_type_bits(type), count = elements(&instr->operands[2]);
    uint64_t buffer[SIM_LANES];
    for (int r = 0; r < count; r++) {
        const ptx_operand *operand = element(&instr->operands[2], r);
        mma_decode(type, exec_source(warp, operand, buffer, UINT32_MAX), p->b[4 * r * per_register], 1,
                   (size_t)per_register * MMA_N, MMA_N);
        note_gaps(&g->columns, undefined_lanes(warp, operand), 0);
    }
}

/* Where accumulator register r of a lane lies; f16 registers have the column after it, too. */
static int sum_row(sum_type sum, int r, int lane) {
    return lane / 4 + 8 * (sum == SUM_F16 ? r : r / 2);
}

static int sum_column(sum_type sum, int r, int lane) {
    return lane % 4 * 2 + (sum == SUM_F16 ? 0 : r % 2);
}

static void read_c(sim_warp *warp, const ptx_instr *instr, sum_type sum, mma_product *p, gaps *g) {
    uint64_t buffer[SIM_LANES];
    for (int r = 0; r < elements(&instr->operands[3]); r++) {
        const ptx_operand *operand = element(&instr->operands[3], r);
        const uint64_t *lanes = exec_source(warp, operand, buffer, UINT32_MAX);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            double *to = &p->c[sum_row(sum, r, lane)][sum_column(sum, r, lane)];
            if (sum == SUM_F16) {
                to[0] = exec_f16(lanes[lane] & 0xffff);
                to[1] = exec_f16(lanes[lane] >> 16 & 0xffff);
            } else {
                to[0] = sum == SUM_F32 ? (double)exec_float(lanes[lane]) : (double)(int32_t)lanes[lane];
            }
        }
        for (uint32_t undefined = undefined_lanes(warp, operand); undefined; undefined &= undefined - 1) {
            const int lane = __builtin_ctz(undefined), row = sum_row(sum, r, lane);
            g->sums[row] = (uint8_t)(g->sums[row] | (sum == SUM_F16 ? 3u : 1u) << sum_column(sum, r, lane));
        }
    }
}

/* ---- Scale factors ---- */

/* One of byte-id and thread-id, which must be the same in all lanes and at most `max`, a multiple of `step`. */
static bool read_selector(sim_warp *warp, const ptx_instr *instr, const ptx_operand *operand, const char *name, int max,
                          int step, int *value) {
    const uint64_t first = sim_operand(warp, operand, 0) & 0xffff;
    for (int lane = 1; lane < SIM_LANES; lane++) {
        if ((sim_operand(warp, operand, lane) & 0xffff) != first) {
            sim_fault(warp, instr, lane, "%s differs between lanes", name);
            return false;
        }
    }
    *value = (int)first;
    if (undefined_lanes(warp, operand) || *value > max || *value % step != 0) {
        sim_fault(warp, instr, -1, "%s is %d; accepted are multiples of %d up to %d", name, *value, step, max);
        return false;
    }
    return true;
}

static bool read_scales(sim_warp *warp, const ptx_instr *instr, const bound *f, mma_product *p, gaps *g) {
    const ptx_operand *a = element(&instr->operands[4], 0), *b = element(&instr->operands[6], 0);
    const ptx_operand *of_a = instr->operands[5].elements, *of_b = instr->operands[7].elements;
    const int last_byte = 4 - f->blocks, byte_step = f->blocks;
    int a_byte, a_thread, b_byte, b_thread;
    if (!read_selector(warp, instr, &of_a[0], "byte-id of A", last_byte, byte_step, &a_byte) ||
        !read_selector(warp, instr, &of_a[1], "thread-id of A", 1, 1, &a_thread) ||
        !read_selector(warp, instr, &of_b[0], "byte-id of B", last_byte, byte_step, &b_byte) ||
        !read_selector(warp, instr, &of_b[1], "thread-id of B", 3, 1, &b_thread))
        return false;
    const uint32_t a_undefined = undefined_lanes(warp, a), b_undefined = undefined_lanes(warp, b);
    for (int m = 0; m < MMA_M; m++) {
        const int lane = m % 8 * 4 + 2 * a_thread + m / 8;
        const uint32_t bytes = (uint32_t)sim_operand(warp, a, lane);
        for (int i = 0; i < f->blocks; i++)
            p->a_scale[i][m] = mma_scale(f->ue4m3, (uint8_t)(bytes >> 8 * (a_byte + i)));
        g->rows |= (a_undefined >> lane & 1) << m;
    }
    for (int n = 0; n < MMA_N; n++) {
        const int lane = n * 4 + b_thread;
        const uint32_t bytes = (uint32_t)sim_operand(warp, b, lane);
        for (int i = 0; i < f->blocks; i++)
            p->b_scale[i][n] = mma_scale(f->ue4m3, (uint8_t)(bytes >> 8 * (b_byte + i)));
        g->columns |= (b_undefined >> lane & 1) << n;
    }
    return true;
}

/* ---- Results ---- */

static uint64_t sum_bits(const bound *f, double value, bool cut) {
    switch (f->sum) {
    case SUM_F16:
        return exec_f16_bits(value);
    case SUM_F32:
        return cut ? tensor_f32(value, 23) : exec_float_bits((float)value);
    default:
        if (f->satfinite)
            value = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
        return (uint32_t)(int64_t)value;
    }
}

/* Lanes whose part of result register r is undefined. */
static uint32_t result_gaps(sum_type sum, int r, const gaps *g) {
    uint32_t lanes = 0;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const int row = sum_row(sum, r, lane);
        const unsigned columns = (sum == SUM_F16 ? 3u : 1u) << sum_column(sum, r, lane);
        const bool gap = (g->rows >> row & 1) || ((g->columns | g->sums[row]) & columns);
        lanes |= (uint32_t)gap << lane;
    }
    return lanes;
}

static void write_d(sim_warp *warp, const ptx_instr *instr, const bound *f, const mma_product *p, const gaps *g) {
    static const gaps none;
    const bool all_defined = memcmp(g, &none, sizeof none) == 0;
    const sum_type sum = (sum_type)f->sum;
    for (int r = 0; r < elements(&instr->operands[0]); r++) {
        const ptx_operand *operand = element(&instr->operands[0], r);
        if (operand->kind != PTX_OPERAND_REGISTER)
            continue;
        uint64_t *to = sim_register(warp, operand->slot);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const double *sums = &p->c[sum_row(sum, r, lane)][sum_column(sum, r, lane)];
            if (sum == SUM_F32 && !p->bits)
                to[lane] = exec_float_bits((float)*sums);
            else if (sum == SUM_F16)
                to[lane] = sum_bits(f, sums[0], p->bits) | sum_bits(f, sums[1], p->bits) << 16;
            else
                to[lane] = sum_bits(f, *sums, p->bits);
        }
        const uint32_t undefined = all_defined ? 0 : result_gaps(sum, r, g);
        sim_note_defined(warp, operand->slot, ~undefined, true);
        if (undefined)
            sim_note_defined(warp, operand->slot, undefined, false);
    }
}

static sim_result exec_mma(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (mask != UINT32_MAX)
        return sim_fault(warp, instr, -1, "only lanes %#x of the warp execute it; all 32 must", mask);
    static _Thread_local mma_product product;
    const bound f = bound_of(instr);
    gaps g = {0};
    product.k = f.k;
    product.blocks = f.blocks;
    product.scaled = f.scaled;
    product.bits = f.sum == SUM_S32 ? TENSOR_EXACT : warp->cta->launch->tensor_bits;
    product.a_type = (mma_type)f.a;
    product.b_type = (mma_type)f.b;
    product.half = f.sum == SUM_F16;
    read_a(warp, instr, (mma_type)f.a, &product, &g);
    read_b(warp, instr, (mma_type)f.b, &product, &g);
    read_c(warp, instr, (sum_type)f.sum, &product, &g);
    if (f.scaled && !read_scales(warp, instr, &f, &product, &g))
        return SIM_FAULT;
    mma_multiply(&product);
    write_d(warp, instr, &f, &product, &g);
    return SIM_DONE;
}

/* ---- Binding ---- */

static const struct {
    const char *name;
    mma_type type;
} element_types[] = {
    {"f16", MMA_F16},   {"bf16", MMA_BF16}, {"tf32", MMA_TF32}, {"e4m3", MMA_E4M3},
    {"e5m2", MMA_E5M2}, {"e2m3", MMA_E2M3}, {"e3m2", MMA_E3M2}, {"e2m1", MMA_E2M1},
    {"u8", MMA_U8},     {"s8", MMA_S8},     {"u4", MMA_U4},     {"s4", MMA_S4},
};

static mma_type find_type(const char *name, const form *f) {
    size_t i = 0;
    while (strcmp(element_types[i].name, name) != 0)
        i++;
    return f->k == 64 && element_types[i].type == MMA_E2M1 ? MMA_E2M1_PACKED : element_types[i].type;
}

/* The words of an instruction, sorted. */
typedef struct words {
    const char *kind, *types[5];
    int num_types, k, blocks; /* blocks 0: not written */
    bool sync, aligned, row, column, block_scale, satfinite;
} words;

static bool is_type(const char *word) {
    static const char *const others[] = {"f32", "s32", "ue8m0", "ue4m3"};
    for (size_t i = 0; i < sizeof element_types / sizeof *element_types; i++)
        if (strcmp(element_types[i].name, word) == 0)
            return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], word) == 0)
            return true;
    return false;
}

static bool sort_words(const ptx_instr *instr, words *w, const char **unknown) {
    for (int i = 0; i < instr->num_modifiers; i++) {
        const char *word = instr->modifiers[i];
        char end = '\0';
        *unknown = word;
        if (is_type(word)) {
            if (w->num_types == 5)
                return false;
            w->types[w->num_types++] = word;
        } else if (strncmp(word, "kind::", 6) == 0) {
            w->kind = word;
        } else if (sscanf(word, "scale_vec::%dX%c", &w->blocks, &end) == 1 ||
                   sscanf(word, "m16n8k%d%c", &w->k, &end) == 1) {
            continue;
        } else {
            bool *const flags[] = {&w->sync, &w->aligned, &w->row, &w->column, &w->block_scale, &w->satfinite};
            static const char *const names[] = {"sync", "aligned", "row", "col", "block_scale", "satfinite"};
            size_t f = 0;
            while (f < sizeof flags / sizeof *flags && (strcmp(names[f], word) != 0 || *flags[f]))
                f++;
            if (f == sizeof flags / sizeof *flags)
                return false;
            *flags[f] = true;
        }
    }
    return true;
}

static bool form_fits(const form *f, const words *w) {
    const bool kinds = f->kind ? w->kind && strcmp(f->kind, w->kind) == 0 : !w->kind;
    if (!kinds || f->k != w->k || w->num_types != (f->scales ? 5 : 4) || w->block_scale != (f->scales != NULL))
        return false;
    if (!exec_listed(f->types, w->types[1]) || !exec_listed(f->types, w->types[2]) ||
        (!f->mixed && strcmp(w->types[1], w->types[2]) != 0))
        return false;
    if (!exec_listed(f->sums, w->types[0]) || strcmp(w->types[0], w->types[3]) != 0)
        return false;
    if (!f->scales)
        return w->blocks == 0;
    return strcmp(f->scales, w->types[4]) == 0 && (w->blocks == f->blocks || (w->blocks == 0 && f->blocks_default));
}

static bool is_register_list(const ptx_operand *operand, int count, bool result) {
    if (elements(operand) != count)
        return false;
    for (int i = 0; i < count; i++) {
        const ptx_operand *e = element(operand, i);
        if (e->negated ||
            (e->kind != PTX_OPERAND_REGISTER && e->kind != (result ? PTX_OPERAND_SINK : PTX_OPERAND_INTEGER)))
            return false;
    }
    return true;
}

static bool is_selector(const ptx_operand *operand) {
    return operand->kind == PTX_OPERAND_VECTOR && is_register_list(operand, 2, false);
}

static bool operands_fit(const ptx_instr *instr, const bound *b) {
    const int of_a = b->k * mma_type_bits((mma_type)b->a) * MMA_M / 32 / SIM_LANES;
    const int of_b = b->k * mma_type_bits((mma_type)b->b) * MMA_N / 32 / SIM_LANES;
    const int sums = b->sum == SUM_F16 ? 2 : 4;
    if (instr->num_operands != (b->scaled ? 8 : 4) || !is_register_list(&instr->operands[0], sums, true) ||
        !is_register_list(&instr->operands[1], of_a, false) || !is_register_list(&instr->operands[2], of_b, false) ||
        !is_register_list(&instr->operands[3], sums, false))
        return false;
    return !b->scaled || (is_register_list(&instr->operands[4], 1, false) && is_selector(&instr->operands[5]) &&
                          is_register_list(&instr->operands[6], 1, false) && is_selector(&instr->operands[7]));
}

static bool bind_mma(ptx_instr *instr, char *error, size_t error_size) {
    words w = {0};
    const char *unknown = NULL;
    if (!sort_words(instr, &w, &unknown)) {
        snprintf(error, error_size, "mma: .%s is not known, or written twice", unknown);
        return false;
    }
    const form *f = forms, *end = forms + sizeof forms / sizeof *forms;
    while (f < end && !form_fits(f, &w))
        f++;
    if (f == end || !w.sync || !w.aligned || !w.row || !w.column) {
        snprintf(error, error_size, "mma: there is no such form (shape, kind, types, scale factors)");
        return false;
    }
    const char *sum = w.types[0];
    const bound b = {.k = (uint8_t)f->k,
                     .blocks = (uint8_t)f->blocks,
                     .a = (uint8_t)find_type(w.types[1], f),
                     .b = (uint8_t)find_type(w.types[2], f),
                     .sum = strcmp(sum, "f16") == 0   ? SUM_F16
                            : strcmp(sum, "f32") == 0 ? SUM_F32
                                                      : SUM_S32,
                     .scaled = f->scales != NULL,
                     .ue4m3 = f->scales && strcmp(f->scales, "ue4m3") == 0,
                     .satfinite = w.satfinite};
    if ((b.satfinite && b.sum != SUM_S32) || !operands_fit(instr, &b)) {
        snprintf(error, error_size,
                 b.satfinite && b.sum != SUM_S32 ? "mma: .satfinite is for integers"
                                                 : "mma: wrong number or kind of operands");
        return false;
    }
    instr->exec = exec_mma;
    instr->gather = PTX_GATHER_ALIGNED;
    memcpy(&instr->data[0], &b, sizeof b);
    return true;
}

const sim_op sim_ops_mma[] = {{"mma", bind_mma}, {NULL, NULL}};
