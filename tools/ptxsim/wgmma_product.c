/* SPDX-License-Identifier: MIT
 * The arithmetic of wgmma, and where its operands lie.
 *
 * Each instruction adds its K products exactly enough (binary64) and rounds once, or as PTXSIM_TENSOR_BITS has it
 * (tensor_sum.h). */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "exec_formats.h"
#include "race_claim.h"
#include "tensor_sum.h"
#include "wgmma.h"

/* ---- Types ----------------------------------------------------------------------------------------------------- */

static double fp8_values[2][256]; /* E4M3, E5M2 */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    const exec_format *const formats[2] = {exec_find_format("e4m3"), exec_find_format("e5m2")};
    for (int f = 0; f < 2; f++) {
        for (unsigned i = 0; i < 256; i++)
            fp8_values[f][i] = exec_decode(formats[f], i);
    }
}

static double element_value(wgmma_type type, const uint8_t *at) {
    uint16_t wide = 0;
    uint32_t word = 0;
    switch (type) {
    case WGMMA_S8:
        return (int8_t)*at;
    case WGMMA_U8:
        return *at;
    case WGMMA_TF32: /* the lower 13 bits are not used; a NaN stays one */
        memcpy(&word, at, 4);
        return (double)exec_float((word & 0x7fffffff) > 0x7f800000 ? EXEC_NAN_F32 : word & 0xffffe000);
    case WGMMA_E4M3:
    case WGMMA_E5M2:
        return fp8_values[type == WGMMA_E5M2][*at];
    case WGMMA_F16:
        memcpy(&wide, at, 2);
        return exec_f16(wide);
    default:
        memcpy(&wide, at, 2);
        return exec_bf16(wide);
    }
}

/* ---- Operands in shared memory --------------------------------------------------------------------------------- */

/* A matrix descriptor. An operand is made of 16-byte pieces along its contiguous dimension. */
typedef struct layout {
    size_t start, leading, stride;
    unsigned swizzle; /* bytes: 0, 32, 64, 128 */
    bool transposed;
} layout;

#define RESERVED_BITS UINT64_C(0x3ff1c000c000c000)

static bool decode_layout(const wgmma_product *p, uint64_t descriptor, bool transposed, const char *name, layout *l) {
    static const unsigned swizzles[] = {0, 128, 64, 32};
    sim_warp *warp = p->base.warp;
    l->start = (descriptor & 0x3fff) << 4;
    l->leading = (descriptor >> 16 & 0x3fff) << 4;
    l->stride = (descriptor >> 32 & 0x3fff) << 4;
    l->swizzle = swizzles[descriptor >> 62];
    l->transposed = transposed;
    if (descriptor & RESERVED_BITS) {
        sim_fault(warp, p->base.instr, -1, "descriptor of %s, %#" PRIx64 ": reserved bits are set", name, descriptor);
        return false;
    }
    if (descriptor >> 49 & 7) {
        sim_fault(warp, p->base.instr, -1, "descriptor of %s, %#" PRIx64 ": base offsets other than 0 are not modelled",
                  name, descriptor);
        return false;
    }
    if (l->swizzle != 0 && l->start % (8 * l->swizzle) >= l->swizzle) {
        sim_fault(
            warp, p->base.instr, -1,
            "descriptor of %s: shared offset %#zx is not in the first row of a swizzle pattern, which repeats every "
            "%u bytes",
            name, l->start, 8 * l->swizzle);
        return false;
    }
    return true;
}

/* Where a piece lies. Not transposed: row `mn`, and `k` counts pieces. Transposed: `mn` counts pieces, `k` elements. */
static size_t piece_offset(const layout *l, size_t mn, size_t k) {
    const size_t width = l->swizzle;
    if (!l->transposed) {
        if (width == 0)
            return l->start + mn / 8 * l->stride + mn % 8 * 16 + k * l->leading;
        return sim_swizzle(l->start + mn / 8 * l->stride + mn % 8 * width + k * 16, l->swizzle);
    }
    if (width == 0)
        return l->start + mn * l->stride + k / 8 * l->leading + k % 8 * 16;
    const size_t pieces = width / 16;
    return sim_swizzle(l->start + mn / pieces * l->leading + mn % pieces * 16 + k / 8 * l->stride + k % 8 * width,
                       l->swizzle);
}

/* One operand: `size` rows (M or N), the values out[k * pitch + mn]. `undefined` is set for rows that come from global
 * memory which nothing had written and, if they are `optional`, for those that have not been written, which else are a
 * fault. `out` NULL: checks alone. */
typedef struct operand {
    const char *name;
    uint64_t descriptor;
    bool transposed, negate, optional;
    wgmma_type type;
    int size;
    size_t pitch;
    double *out;
    bool *undefined;
    uint32_t *claims; /* per row, if it is optional (race_claim.h); 0: its reads are not kept */
} operand;

static bool piece_ok(const wgmma_product *p, const operand *o, size_t offset, bool *defined) {
    sim_warp *warp = p->base.warp;
    sim_cta *cta = warp->cta;
    if (offset + 16 > cta->shared_bytes) {
        sim_fault(warp, p->base.instr, -1, "%s reaches shared offset %#zx: the CTA has %zu bytes", o->name, offset + 16,
                  cta->shared_bytes);
        return false;
    }
    *defined = shadow_written(cta, offset, 16);
    if (!*defined && (o->optional || (shadow_uninitialised(cta, offset, 16) && !shadow_awaited(cta, offset, 16)))) {
        shadow_note_undefined(warp, p->base.instr, offset, 16);
        return true;
    }
    /* A store that nothing orders before the product has no fence either. */
    if (o->optional && shadow_dirty(cta, offset, 16) != 0 &&
        !race_unit_access(race_shared(cta), &p->base, offset, 16, RACE_READ | RACE_CHECK | RACE_QUIET)) {
        shadow_note_race(warp, p->base.instr, offset);
        *defined = false;
        return true;
    }
    return shadow_check_async_read(warp, p->base.instr, -1, offset, 16);
}

/* The claim for a row of B: that of the accumulators which its column goes to, if they have one, or a new one. */
static uint32_t claim_for(const wgmma_product *p, size_t row) {
    sim_cta *cta = p->base.warp->cta;
    if (p->base.unit.clock == NULL)
        return 0;
    if (p->chained) {
        const int lane = (int)(row % 8 / 2);
        const size_t index = p->shape.half ? row / 8 * 2 : row / 8 * 4 + row % 2;
        const uint32_t claim =
            race_claim_of(&cta->warps[p->first_warp], p->base.instr->operands[0].elements[index].slot, lane);
        if (claim != 0)
            return race_claim_extend(cta, &p->base, claim) ? claim : 0;
    }
    return race_claim_new(cta, &p->base);
}

/* Columns of B that the kernel does not use may lie where something else happens: if the read of one races with a write
 * before it, the column is undefined, and later writes conflict with the reads only if the column is used. */
static bool race_ok(const wgmma_product *p, const operand *o, uint32_t claim, size_t offset, bool *defined) {
    race_memory *shared = race_shared(p->base.warp->cta);
    if (!o->optional)
        return race_unit_access(shared, &p->base, offset, 16, RACE_READ);
    const unsigned kept = claim != 0 ? 0 : RACE_CHECK;
    if (!race_unit_access(shared, &p->base, offset, 16, RACE_READ | RACE_QUIET | kept)) {
        shadow_note_race(p->base.warp, p->base.instr, offset);
        *defined = false;
    }
    return true;
}

static bool read_operand(const wgmma_product *p, const operand *o) {
    layout l;
    if (!decode_layout(p, o->descriptor, o->transposed, o->name, &l))
        return false;
    const size_t bytes = (size_t)p->shape.element_bytes;
    const size_t in_piece = 16 / bytes;
    const size_t outer = o->transposed ? (size_t)o->size / in_piece : (size_t)o->size;
    const size_t inner = o->transposed ? (size_t)p->shape.k : (size_t)p->shape.k / in_piece;
    const double sign = o->negate ? -1.0 : 1.0;
    const bool claims = o->optional && o->out != NULL && race_claims_begin(p->base.warp->cta);
    for (size_t mn = 0; mn < outer; mn++) {
        const size_t rows = o->transposed ? in_piece : 1;
        const uint32_t claim = claims ? claim_for(p, mn * rows) : 0;
        for (size_t i = 0; claims && i < rows; i++)
            o->claims[mn * rows + i] = claim;
        for (size_t k = 0; k < inner; k++) {
            const size_t offset = piece_offset(&l, mn, k);
            bool defined = false;
            if (!piece_ok(p, o, offset, &defined))
                return false;
            if (o->out != NULL && !race_ok(p, o, claim, offset, &defined))
                return false;
            for (size_t i = 0; i < in_piece; i++) {
                const size_t row = o->transposed ? mn * in_piece + i : mn;
                const size_t column = o->transposed ? k : k * in_piece + i;
                if (!defined)
                    o->undefined[row] = true;
                if (o->out != NULL)
                    o->out[column * o->pitch + row] =
                        sign * element_value(o->type, p->base.warp->cta->shared + offset + i * bytes);
            }
        }
    }
    return true;
}

/* A's fragments: lane l of warp w holds rows 16 w + l / 4 (registers 0, 2) and 8 further (1, 3), in 4 bytes each from
 * byte 4 (l % 4) on (registers 0, 1) or 16 bytes further (2, 3). */
static void read_registers(const wgmma_product *p, const operand *o) {
    const int in_register = 4 / p->shape.element_bytes;
    const double sign = o->negate ? -1.0 : 1.0;
    for (int w = 0; w < WGMMA_WARPS; w++) {
        for (int r = 0; r < WGMMA_A_REGISTERS; r++) {
            for (int lane = 0; lane < SIM_LANES; lane++) {
                const size_t row = (size_t)(16 * w + lane / 4 + 8 * (r % 2));
                const size_t column = (size_t)(in_register * (lane % 4 + 4 * (r / 2)));
                const uint8_t *bytes = (const uint8_t *)&p->a_registers[w][r][lane];
                for (int i = 0; i < in_register; i++)
                    o->out[(column + (size_t)i) * o->pitch + row] =
                        sign * element_value(o->type, bytes + i * p->shape.element_bytes);
            }
        }
    }
}

static bool read_both(const wgmma_product *p, double *a, double *b, bool *undefined_rows, bool *undefined,
                      uint32_t *claims) {
    const wgmma_shape *s = &p->shape;
    const operand left = {.name = "A",
                          .descriptor = p->a,
                          .transposed = s->transpose_a,
                          .negate = s->negate_a,
                          .type = s->a,
                          .size = WGMMA_M,
                          .pitch = WGMMA_M,
                          .out = a,
                          .undefined = undefined_rows};
    const operand right = {.name = "B",
                           .descriptor = p->b,
                           .transposed = s->transpose_b,
                           .negate = s->negate_b,
                           .optional = true,
                           .type = s->b,
                           .size = s->n,
                           .pitch = WGMMA_MAX_N,
                           .out = b,
                           .undefined = undefined,
                           .claims = claims};
    pthread_once(&tables_once, fill_tables);
    if (!s->a_in_registers) {
        if (!read_operand(p, &left))
            return false;
    } else if (a != NULL) {
        read_registers(p, &left);
    }
    return read_operand(p, &right);
}

bool wgmma_check_operands(const wgmma_product *product) {
    bool undefined[WGMMA_MAX_N] = {false}, undefined_rows[WGMMA_M] = {false};
    return read_both(product, NULL, NULL, undefined_rows, undefined, NULL);
}

/* ---- Product --------------------------------------------------------------------------------------------------- */

/* sums[n] = sum over k of a[k][row] b[k][n]; n in pieces of 8, which compilers turn into vector instructions. A product
 * is exact, so that it does not matter whether they fuse it with the addition. */
static inline __attribute__((always_inline)) void multiply(const wgmma_shape *s, const double *a, const double *b,
                                                           size_t row, double *sums) {
    for (size_t n = 0; n < (size_t)s->n; n += 8) {
        double part[8] = {0};
        for (size_t k = 0; k < (size_t)s->k; k++) {
            const double x = a[k * WGMMA_M + row];
            const double *y = b + k * WGMMA_MAX_N + n;
            for (size_t i = 0; i < 8; i++)
                part[i] += x * y[i];
        }
        memcpy(sums + n, part, sizeof(part));
    }
}

static void multiply_row_anywhere(const wgmma_shape *s, const double *a, const double *b, size_t row, double *sums) {
    multiply(s, a, b, row, sums);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void multiply_row_avx2(const wgmma_shape *s, const double *a,
                                                                  const double *b, size_t row, double *sums) {
    multiply(s, a, b, row, sums);
}
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define multiply_row_avx2 multiply_row_anywhere
#define HAS_AVX2          0
#endif

/* Exponents of the elements of one of the operands. */
static void find_exponents(wgmma_type type, const double *values, size_t count, int *exponents) {
    const int smallest = type == WGMMA_E4M3 ? -6 : type == WGMMA_E5M2 || type == WGMMA_F16 ? -14 : -126;
    for (size_t i = 0; i < count; i++)
        exponents[i] = tensor_exponent(values[i], smallest);
}

/* The same with every term cut; `accumulators`: the row's, added with them. */
static void multiply_row_cut(const wgmma_shape *s, const double *a, const double *b, const int *a_exponents,
                             const int *b_exponents, size_t row, int bits, const double *accumulators, double *sums) {
    tensor_term terms[WGMMA_MAX_K + 1];
    for (size_t n = 0; n < (size_t)s->n; n++) {
        for (size_t k = 0; k < (size_t)s->k; k++)
            terms[k] = (tensor_term){a[k * WGMMA_M + row] * b[k * WGMMA_MAX_N + n],
                                     a_exponents[k * WGMMA_M + row] + b_exponents[k * WGMMA_MAX_N + n]};
        terms[s->k] = (tensor_term){accumulators[n], tensor_exponent(accumulators[n], s->half ? -14 : -126)};
        sums[n] = tensor_sum(terms, (size_t)s->k + 1, bits);
    }
}

/* Where accumulator n of a row lies: lane 4 (row % 8) + q of warp row / 16 has columns 8 j + 2 q + {0, 1}; `high` rows
 * (8 to 15 of the warp's 16) come after the others. Halves: a pair in a register. */
static uint64_t *accumulator_at(const wgmma_product *p, size_t row, int n) {
    sim_warp *warp = &p->base.warp->cta->warps[p->first_warp + (int)(row / 16)];
    const ptx_operand *registers = p->base.instr->operands[0].elements;
    const int high = row % 16 >= 8, lane = (int)(row % 8) * 4 + n % 8 / 2;
    const int index = p->shape.half ? n / 8 * 2 + high : n / 8 * 4 + 2 * high + n % 2;
    return sim_register(warp, registers[index].slot) + lane;
}

static void read_row(const wgmma_product *p, size_t row, double *accumulators) {
    for (int n = 0; n < p->shape.n; n++) {
        const uint64_t bits = p->accumulate ? *accumulator_at(p, row, n) : 0;
        accumulators[n] = p->shape.half    ? exec_f16(bits >> 16 * (n % 2) & 0xffff)
                          : p->shape.whole ? (double)(int32_t)bits
                                           : (double)exec_float(bits);
    }
}

/* fraction: bits that an f32 is cut to, 0: rounded instead. */
static uint64_t encode(const wgmma_shape *s, double value, int fraction) {
    if (s->whole && s->saturates)
        value = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
    if (s->whole)
        return (uint32_t)(int64_t)value;
    if (s->half)
        return exec_f16_bits(value);
    return fraction ? tensor_f32(value, fraction) : exec_float_bits((float)value);
}

static void write_row(const wgmma_product *p, size_t row, const double *sums, const bool *undefined, int fraction) {
    for (int n = 0; n < p->shape.n; n++) {
        const uint64_t nan = p->shape.half ? EXEC_NAN_F16 : EXEC_NAN_F32;
        const uint64_t bits = undefined[n] ? nan : encode(&p->shape, sums[n], fraction);
        uint64_t *at = accumulator_at(p, row, n);
        *at = p->shape.half && n % 2 ? (*at & 0xffff) | bits << 16 : bits;
    }
}

/* The claims of accumulator i of a warp; of a pair of halves both. */
static void note_claims(const wgmma_product *p, sim_warp *warp, int i, uint32_t lanes, const uint32_t *claims) {
    const int slot = p->base.instr->operands[0].elements[i].slot;
    uint32_t of_places[4], of_lanes[SIM_LANES];
    for (int place = 0; place < 4; place++) {
        const int n = (p->shape.half ? i / 2 : i / 4) * 8 + 2 * place;
        of_places[place] = claims[p->shape.half ? n : n + i % 2];
        if (p->shape.half)
            of_places[place] = race_claim_join(warp->cta, of_places[place], claims[n + 1]);
    }
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t claim = of_places[lane % 4], old = p->accumulate ? race_claim_of(warp, slot, lane) : 0;
        const uint32_t both = old == 0 || old == claim ? claim : race_claim_join(warp->cta, old, claim);
        of_lanes[lane] = lanes >> lane & 1 ? both : 0;
    }
    race_claim_set(warp, slot, UINT32_MAX, of_lanes);
}

/* Tells the engine which accumulators are undefined: those that were, those of rows that A and of columns that B
 * does not define; and the claims of the others. */
static void note_results(const wgmma_product *p, const bool *undefined_rows, const bool *undefined,
                         const uint32_t *claims) {
    const int count = wgmma_accumulators(&p->shape);
    const ptx_operand *registers = p->base.instr->operands[0].elements;
    for (int i = 0; i < count; i++) {
        uint32_t columns = 0;
        const int high = 8 * (p->shape.half ? i % 2 : i / 2 % 2);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const int n = (p->shape.half ? i / 2 : i / 4) * 8 + 2 * (lane % 4);
            const bool bad = p->shape.half ? undefined[n] || undefined[n + 1] : undefined[n + i % 2];
            columns |= (uint32_t)bad << lane;
        }
        for (int w = 0; w < WGMMA_WARPS; w++) {
            sim_warp *warp = &p->base.warp->cta->warps[p->first_warp + w];
            const int slot = registers[i].slot;
            uint32_t lanes = columns;
            for (int lane = 0; lane < SIM_LANES; lane++)
                lanes |= (uint32_t)undefined_rows[16 * w + lane / 4 + high] << lane;
            const uint32_t before = p->accumulate ? p->undefined[w][i] | ~sim_defined_lanes(warp, slot) : 0;
            sim_note_defined(warp, slot, ~(lanes | before), true);
            sim_note_defined(warp, slot, lanes | before, false);
            if (warp->schedule->tagged != NULL)
                note_claims(p, warp, i, ~(lanes | before), claims);
        }
    }
}

bool wgmma_compute(const wgmma_product *product) {
    static _Thread_local double a[WGMMA_MAX_K * WGMMA_M], b[WGMMA_MAX_K * WGMMA_MAX_N];
    double sums[WGMMA_MAX_N], accumulators[WGMMA_MAX_N];
    bool undefined[WGMMA_MAX_N] = {false}, undefined_rows[WGMMA_M] = {false};
    static _Thread_local int a_exponents[WGMMA_MAX_K * WGMMA_M], b_exponents[WGMMA_MAX_K * WGMMA_MAX_N];
    const wgmma_shape *s = &product->shape;
    const int setting = s->whole ? TENSOR_EXACT : product->base.warp->cta->launch->tensor_bits;
    const bool narrow = setting == TENSOR_HOPPER && s->element_bytes == 1;
    const int bits = narrow ? TENSOR_HOPPER_FP8_BITS : setting == TENSOR_HOPPER ? TENSOR_HOPPER_BITS : setting;
    const int fraction = narrow ? TENSOR_HOPPER_FP8_BITS : bits ? 23 : 0;
    uint32_t claims[WGMMA_MAX_N] = {0};
    if (!read_both(product, a, b, undefined_rows, undefined, claims))
        return false;
    if (bits != 0) {
        find_exponents(s->a, a, (size_t)s->k * WGMMA_M, a_exponents);
        find_exponents(s->b, b, (size_t)s->k * WGMMA_MAX_N, b_exponents);
    }
    for (size_t row = 0; row < WGMMA_M; row++) {
        read_row(product, row, accumulators);
        if (bits != 0) {
            multiply_row_cut(s, a, b, a_exponents, b_exponents, row, bits, accumulators, sums);
        } else {
            if (HAS_AVX2)
                multiply_row_avx2(s, a, b, row, sums);
            else
                multiply_row_anywhere(s, a, b, row, sums);
            for (int n = 0; n < s->n; n++)
                sums[n] += accumulators[n];
        }
        write_row(product, row, sums, undefined, fraction);
    }
    note_results(product, undefined_rows, undefined, claims);
    return true;
}
