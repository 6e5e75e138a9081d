/* SPDX-License-Identifier: MIT
 * Operands of tcgen05: where shared memory descriptors say they lie, and what their bits mean (PTX ISA, "Shared memory
 * descriptor", "Canonical Layouts", "Packing formats", "Block Scaling"). */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "exec_formats.h"
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

int tcgen05_in_piece(tcgen05_type type) {
    switch (type) {
    case TCGEN05_E_TF32:
        return 4;
    case TCGEN05_E_F16:
    case TCGEN05_E_BF16:
        return 8;
    case TCGEN05_E_PACKED_E2M1:
        return 32;
    default: /* of 4 or 6 bits, too: they are followed by padding */
        return 16;
    }
}

static double narrow_values[TCGEN05_E_INVALID][256]; /* of types of up to 8 bits */
static double ue8m0_values[256], ue4m3_values[256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    static const struct {
        tcgen05_type type;
        const char *name;
    } formats[] = {{TCGEN05_E_E4M3, "e4m3"},
                   {TCGEN05_E_E5M2, "e5m2"},
                   {TCGEN05_E_E2M3, "e2m3"},
                   {TCGEN05_E_E3M2, "e3m2"},
                   {TCGEN05_E_E2M1, "e2m1"}};
    for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
        const exec_format *format = exec_find_format(formats[f].name);
        for (unsigned i = 0; i < 1u << format->width; i++)
            narrow_values[formats[f].type][i] = exec_decode(format, i);
    }
    const exec_format *e4m3 = exec_find_format("e4m3");
    for (unsigned i = 0; i < 256; i++) {
        narrow_values[TCGEN05_E_U8][i] = i;
        narrow_values[TCGEN05_E_S8][i] = (int8_t)i;
        ue8m0_values[i] = i == 255 ? (double)NAN : ldexp(1, (int)i - 127);
        ue4m3_values[i] = exec_decode(e4m3, i & 0x7f);
    }
}

/* The elements of 16 bytes of shared memory. */
static void decode_piece(tcgen05_type type, const uint8_t *from, double *values) {
    uint16_t half[8];
    uint32_t word[4];
    switch (type) {
    case TCGEN05_E_F16:
    case TCGEN05_E_BF16:
        memcpy(half, from, 16);
        for (int i = 0; i < 8; i++)
            values[i] = type == TCGEN05_E_F16 ? exec_f16(half[i]) : exec_bf16(half[i]);
        break;
    case TCGEN05_E_TF32: /* the lower 13 bits are not used */
        memcpy(word, from, 16);
        for (int i = 0; i < 4; i++)
            values[i] = (double)exec_float(word[i] & 0xffffe000);
        break;
    case TCGEN05_E_PACKED_E2M1:
        for (int i = 0; i < 32; i++)
            values[i] = narrow_values[TCGEN05_E_E2M1][from[i / 2] >> i % 2 * 4 & 15];
        break;
    case TCGEN05_E_E2M1: /* 8 bytes and 8 of padding */
        for (int i = 0; i < 16; i++)
            values[i] = narrow_values[type][from[i / 2] >> i % 2 * 4 & 15];
        break;
    case TCGEN05_E_E2M3: /* 12 bytes and 4 of padding */
    case TCGEN05_E_E3M2:
        for (int i = 0; i < 16; i++) {
            const int at = 6 * i;
            values[i] = narrow_values[type][((unsigned)from[at / 8] | (unsigned)from[at / 8 + 1] << 8) >> at % 8 & 63];
        }
        break;
    default:
        for (int i = 0; i < 16; i++)
            values[i] = narrow_values[type][from[i]];
        break;
    }
}

/* The elements of a word of tensor memory; their number. Narrow types have a byte each: of 4 bits in its middle, of 6
 * below. */
static int decode_word(tcgen05_type type, uint32_t word, double *values) {
    switch (type) {
    case TCGEN05_E_F16:
    case TCGEN05_E_BF16:
        for (int i = 0; i < 2; i++)
            values[i] = type == TCGEN05_E_F16 ? exec_f16(word >> 16 * i & 0xffff) : exec_bf16(word >> 16 * i);
        return 2;
    case TCGEN05_E_TF32:
        values[0] = (double)exec_float(word & 0xffffe000);
        return 1;
    case TCGEN05_E_PACKED_E2M1:
        for (int i = 0; i < 8; i++)
            values[i] = narrow_values[TCGEN05_E_E2M1][word >> 4 * i & 15];
        return 8;
    default:
        for (int i = 0; i < 4; i++) {
            const uint32_t byte = word >> 8 * i & 0xff;
            values[i] = narrow_values[type][type == TCGEN05_E_E2M1                             ? byte >> 2 & 15
                                            : type == TCGEN05_E_E2M3 || type == TCGEN05_E_E3M2 ? byte & 63
                                                                                               : byte];
        }
        return 4;
    }
}

/* ---- Operands in shared memory --------------------------------------------------------------------------------- */

typedef struct operand {
    const char *name;
    const tcgen05_layout *layout;
    tcgen05_type type;
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

static bool convert_operand(const tcgen05_product *p, const operand *o, const bool *undefined, double *out,
                            size_t mn_step, size_t k_step) {
    sim_cta *cta = p->base.base.warp->cta;
    race_memory *shared = race_shared(cta);
    const int in_piece = tcgen05_in_piece(o->type);
    for (size_t i = 0; i < num_pieces(o); i++) {
        int mn, k;
        double values[32];
        const size_t offset = locate(o, i, &mn, &k);
        if (!undefined[mn] && !race_unit_access(shared, &p->base.base, offset, 16, RACE_READ))
            return false;
        decode_piece(o->type, cta->shared + offset, values);
        double *to = out + (size_t)mn * mn_step + (size_t)k * k_step;
        const size_t step = o->layout->mn_major ? mn_step : k_step;
        for (int e = 0; e < in_piece; e++)
            to[(size_t)e * step] = values[e];
    }
    return true;
}

/* ---- Operands in tensor memory --------------------------------------------------------------------------------- */

static void convert_a_in_tmem(tcgen05_product *p, const tmem *t, double *a) {
    for (int m = 0; m < p->m; m++) {
        const uint32_t lane = tcgen05_lane(p, m);
        for (uint32_t c = 0, k = 0; c < 8; c++) {
            double values[8];
            const int count = decode_word(p->a, t->cells[p->a_column + c][lane], values);
            if (!(t->written[p->a_column + c][lane / 32] >> lane % 32 & 1))
                p->a_undefined[m] = true;
            for (int e = 0; e < count; e++)
                a[k++ * (uint32_t)p->m + (uint32_t)m] = values[e];
        }
    }
}

/* The scales of a row lie in a word of lane row % 32, column row / 32, and again in each quarter of the lanes, which
 * must not differ. `rows` NULL: A's. false after sim_fault. */
static bool apply_scales(tcgen05_product *p, const tmem *t, const tcgen05_scale *scale, const char *name, int size,
                         double *values, size_t mn_step, size_t k_step, bool *undefined) {
    const struct sim_async *op = &p->base.base;
    const int block = p->k / p->scales;
    const double *table = p->ue8m0 ? ue8m0_values : ue4m3_values;
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
            const double factor = table[word >> 8 * (scale->id + (unsigned)g) & 0xff];
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
    pthread_once(&tables_once, fill_tables);
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
