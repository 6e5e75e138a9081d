/* SPDX-License-Identifier: MIT
 * Operands of tcgen05: where shared memory descriptors say they lie, and what their bits mean (PTX ISA, "Shared memory
 * descriptor", "Canonical Layouts", "Packing formats", "Block Scaling"). */
#include <inttypes.h>
#include <string.h>

#include "tcgen05.h"

/* ---- Shared memory descriptors --------------------------------------------------------------------------------- */

#define RESERVED_BITS UINT64_C(0x1fe1c000c000c000) /* all but 46, which is 1 */
#define FIXED_BIT     (UINT64_C(1) << 46)

bool tcgen05_decode_layout(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t descriptor, bool mn_major,
                           const char *name, tcgen05_layout *l) {
    static const unsigned widths[8] = {0, 128, 128, 1, 64, 1, 32, 1};
    const char *wrong = NULL;
    l->start = (descriptor & 0x3fff) << 4;
    l->leading = (descriptor >> 16 & 0x3fff) << 4;
    l->stride = (descriptor >> 32 & 0x3fff) << 4;
    l->base = (unsigned)(descriptor >> 49 & 7);
    l->width = widths[descriptor >> 61];
    l->wide_atoms = descriptor >> 61 == 1;
    l->mn_major = mn_major;
    if (l->width == 1)
        wrong = "swizzling modes 3, 5 and 7 do not exist";
    else if ((descriptor & RESERVED_BITS) != FIXED_BIT)
        wrong = "bits 46 to 48 must be 1, and 14, 15, 30, 31, 53 to 60 zero";
    else if (descriptor >> 52 & 1)
        wrong = "an absolute leading dimension is for K of 48 bytes, which cta_group::1 does not have";
    else if (l->width == 0 && l->base != 0)
        wrong = "a base offset without swizzling";
    else if (l->width != 0 && ((l->start >> 7) - l->base) % (l->wide_atoms ? 4 : l->width / 16) != 0)
        wrong = "the start is not in the first row of the swizzle pattern";
    if (wrong == NULL)
        return true;
    sim_fault(warp, instr, lane, "descriptor of %s, %#" PRIx64 ": %s", name, descriptor, wrong);
    return false;
}

/* A swizzle exchanges pieces of a row by the row's number in the pattern, which address bits from 7 on tell; rows of
 * fewer than 128 bytes share one. */
static size_t swizzled(const tcgen05_layout *l, size_t offset) {
    if (l->width == 0)
        return offset;
    const size_t row = (offset >> 7) - l->base;
    if (l->wide_atoms)
        return offset ^ (row & 3) << 5;
    return offset ^ (row & (l->width / 16 - 1)) << 4;
}

size_t tcgen05_piece(const tcgen05_layout *l, size_t mn, size_t k) {
    const size_t width = l->width;
    if (!l->mn_major) {
        if (width == 0)
            return l->start + mn / 8 * l->stride + mn % 8 * 16 + k * l->leading;
        return swizzled(l, l->start + mn / 8 * l->stride + mn % 8 * width + k * 16);
    }
    if (width == 0)
        return l->start + mn * l->stride + k / 8 * l->leading + k % 8 * 16;
    const size_t pieces = width / 16, rows = l->wide_atoms ? 4 : 8;
    return swizzled(l,
                    l->start + mn / pieces * l->leading + mn % pieces * 16 + k / rows * l->stride + k % rows * width);
}

bool tcgen05_read_piece(sim_warp *warp, int lane, const tmem_op *op, const char *name, size_t offset, bool *defined) {
    sim_cta *cta = warp->cta;
    if (offset + 16 > cta->shared_bytes) {
        sim_fault(warp, op->instr, lane, "%s reaches shared offset %#zx: the CTA has %zu bytes", name, offset + 16,
                  cta->shared_bytes);
        return false;
    }
    *defined = shadow_written(cta, offset, 16);
    if (*defined || shadow_awaited(cta, offset, 16))
        return shadow_check_async_read(warp, op->instr, lane, offset, 16);
    shadow_note_undefined(warp, op->instr, offset, 16);
    return true;
}

/* ---- Elements -------------------------------------------------------------------------------------------------- */

/* Types of 4 and 6 bits that have a byte each elsewhere are packed in shared memory, 16 of them, and padded. */
static int padded_bits(mma_type type) {
    return type == MMA_E2M1 ? 4 : type == MMA_E2M3 || type == MMA_E3M2 ? 6 : 0;
}

int tcgen05_in_piece(mma_type type) {
    return 128 / mma_type_bits(type);
}

void tcgen05_unpack(const uint8_t *from, int bits, uint8_t to[16]) {
    for (int i = 0; i < 16; i++) {
        const int at = i * bits;
        const unsigned both = (unsigned)from[at / 8] | (unsigned)(at / 8 + 1 < 2 * bits ? from[at / 8 + 1] : 0) << 8;
        const unsigned value = both >> at % 8 & ((1u << bits) - 1);
        to[i] = (uint8_t)(bits == 4 ? value << 2 : value);
    }
}

/* 16 bytes of shared memory as four words, in which every element has its place. */
static void load_piece(mma_type type, const uint8_t *from, uint64_t *words) {
    uint8_t bytes[16];
    uint32_t narrow[4];
    if (padded_bits(type) != 0)
        tcgen05_unpack(from, padded_bits(type), bytes);
    memcpy(narrow, padded_bits(type) != 0 ? bytes : from, 16);
    for (int w = 0; w < 4; w++)
        words[w] = narrow[w];
}

/* ---- Operands in shared memory --------------------------------------------------------------------------------- */

typedef struct operand {
    const char *name;
    const tcgen05_layout *layout;
    mma_type type;
    int size, k; /* rows (M or N), and columns */
} operand;

static size_t num_pieces(const operand *o) {
    return (size_t)(o->size * o->k / tcgen05_in_piece(o->type));
}

/* Piece i: its first row and column. */
static size_t locate(const operand *o, size_t i, int *mn, int *k) {
    const int in_piece = tcgen05_in_piece(o->type);
    if (o->layout->mn_major) {
        const int pieces = o->size / in_piece;
        *mn = (int)i % pieces * in_piece;
        *k = (int)i / pieces;
        return tcgen05_piece(o->layout, (size_t)(*mn / in_piece), (size_t)*k);
    }
    const int pieces = o->k / in_piece;
    *mn = (int)i / pieces;
    *k = (int)i % pieces * in_piece;
    return tcgen05_piece(o->layout, (size_t)*mn, (size_t)(*k / in_piece));
}

static operand operand_a(const tcgen05_product *p) {
    return (operand){.name = "A", .layout = &p->a_layout, .type = p->a, .size = p->m, .k = p->k};
}

static operand operand_b(const tcgen05_product *p) {
    return (operand){.name = "B", .layout = &p->b_layout, .type = p->b, .size = p->n, .k = p->k};
}

static bool check_operand(tcgen05_product *p, const operand *o, bool *undefined) {
    const struct sim_async *op = &p->base.base;
    for (size_t i = 0; i < num_pieces(o); i++) {
        int mn, k;
        bool defined = false;
        if (!tcgen05_read_piece(op->warp, op->lane, &p->base.op, o->name, locate(o, i, &mn, &k), &defined))
            return false;
        const int rows = o->layout->mn_major ? tcgen05_in_piece(o->type) : 1;
        for (int r = 0; r < rows && !defined; r++)
            undefined[mn + r] = true;
    }
    return true;
}

bool tcgen05_check_operands(tcgen05_product *p) {
    const operand a = operand_a(p), b = operand_b(p);
    return (p->a_in_tmem || check_operand(p, &a, p->a_undefined)) && check_operand(p, &b, p->b_undefined);
}

/* Eight pieces at a time: K-major those of eight rows, else of eight columns of K. */
static bool convert_operand(const tcgen05_product *p, const operand *o, const bool *undefined, double *out,
                            size_t mn_step, size_t k_step) {
    const sim_cta *cta = p->base.base.warp->cta;
    const bool mn_major = o->layout->mn_major;
    const size_t in_word = (size_t)(32 / mma_type_bits(o->type)), step = mn_major ? mn_step : k_step;
    const size_t across = (size_t)((mn_major ? o->size : o->k) / tcgen05_in_piece(o->type));
    for (size_t i = 0; i < num_pieces(o); i += 8 * across) {
        for (size_t piece = i; piece < i + across; piece++) {
            uint64_t words[SIM_LANES];
            int mn = 0, k = 0;
            for (size_t j = 8; j-- > 0;) {
                const size_t offset = locate(o, piece + j * across, &mn, &k);
                if (!undefined[mn] && !tmem_read_shared(&p->base, offset))
                    return false;
                load_piece(o->type, cta->shared + offset, words + 4 * j);
            }
            mma_decode(o->type, words, out + (size_t)mn * mn_step + (size_t)k * k_step, mn_major ? k_step : mn_step,
                       in_word * step, step);
        }
    }
    return true;
}

/* ---- Operands in tensor memory --------------------------------------------------------------------------------- */

static void convert_a_in_tmem(tcgen05_product *p, const tmem *t, double *a) {
    const size_t m = (size_t)p->m, in_word = (size_t)(32 / mma_type_bits(p->a));
    for (size_t c = 0; c < 8; c++) {
        const uint32_t column = p->a_column + (uint32_t)c;
        for (int first = 0; first < p->m; first += SIM_LANES) {
            uint64_t words[SIM_LANES];
            for (int i = 0; i < SIM_LANES; i++) {
                const uint32_t lane = tcgen05_lane(p, first + i);
                words[i] = t->cells[column][lane];
                if (!(t->written[column][lane / 32] >> lane % 32 & 1))
                    p->a_undefined[first + i] = true;
            }
            mma_decode(p->a, words, a + c * in_word * m + (size_t)first, 4, 1, m);
        }
    }
}

/* The scales of a row lie in a word of lane row % 32, column row / 32, and again in each quarter of the lanes, which
 * must not differ. false after sim_fault. */
static bool apply_scales(tcgen05_product *p, const tmem *t, const tcgen05_scale *scale, const char *name, int size,
                         double *values, size_t mn_step, size_t k_step, bool *undefined) {
    const struct sim_async *op = &p->base.base;
    const int block = p->k / p->scales;
    const uint32_t used = (p->scales == 4 ? UINT32_MAX : (UINT32_C(1) << 8 * p->scales) - 1) << 8 * scale->id;
    for (int mn = 0; mn < size; mn++) {
        const uint32_t column = scale->column + (uint32_t)mn / 32;
        const uint32_t word = t->cells[column][mn % 32];
        bool defined = true, same = true;
        for (int quarter = 0; quarter < TMEM_LANES / 32; quarter++) {
            defined = defined && t->written[column][quarter] >> mn % 32 & 1;
            same = same && ((t->cells[column][mn % 32 + 32 * quarter] ^ word) & used) == 0;
        }
        if (!defined) {
            undefined[mn] = true;
            continue;
        }
        if (!same) {
            sim_fault(op->warp, op->instr, op->lane,
                      "%s in column %" PRIu32 ": lanes %d, %d, %d and %d of tensor memory differ; scales must be the "
                      "same in all quarters of the lanes",
                      name, column, mn % 32, mn % 32 + 32, mn % 32 + 64, mn % 32 + 96);
            return false;
        }
        for (int g = 0; g < p->scales; g++) {
            const double factor = mma_scale(!p->ue8m0, (uint8_t)(word >> 8 * (scale->id + (unsigned)g)));
            double *at = values + (size_t)mn * mn_step + (size_t)(g * block) * k_step;
            for (int k = 0; k < block; k++)
                at[(size_t)k * k_step] *= factor;
        }
    }
    return true;
}

static void negate(double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = -values[i];
}

bool tcgen05_convert_operands(tcgen05_product *p, double *a, double *b) {
    const tmem *t = tmem_if_any(p->base.base.warp->cta);
    const operand left = operand_a(p), right = operand_b(p);
    const size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k;
    if (p->a_in_tmem)
        convert_a_in_tmem(p, t, a);
    else if (!convert_operand(p, &left, p->a_undefined, a, 1, m))
        return false;
    if (!convert_operand(p, &right, p->b_undefined, b, k, 1))
        return false;
    if (p->negate_a)
        negate(a, m * k);
    if (p->negate_b)
        negate(b, n * k);
    return p->scales == 0 || (apply_scales(p, t, &p->scale_a, "the scales of A", p->m, a, 1, m, p->a_undefined) &&
                              apply_scales(p, t, &p->scale_b, "the scales of B", p->n, b, k, 1, p->b_undefined));
}
