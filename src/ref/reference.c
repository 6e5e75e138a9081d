/* SPDX-License-Identifier: MIT
 *
 * fp8_paged_mqa_logits and fp4_paged_mqa_logits on the CPU, in double.
 *
 * A product of two E4M3 numbers is a multiple of 2^-18 and the sum of 128 of them stays below 2^25, so that the dot
 * products are exact in double in any order; only the weights, the head sum and the token's scale round. A number of
 * MXFP4 with its scale is exact in double too, and so is a product of two (2^-256 to 36 * 2^254 in magnitude); the dot
 * products are exact where the scales lie within 2^40 of each other, and round like any sum in double elsewhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "ops/logits_args.h"
#include "ref/abs_sum.h"
#include "ref/number_formats.h"

/* Tokens computed side by side: enough independent sums to hide the latency of additions. */
#define TILE_TOKENS  8
#define MAX_HEAD_DIM 128

/* Everything that is constant over one call. */
typedef struct reference {
    attns_logits_args args;
    attns_tensor abs_sum; /* data NULL if not wanted */
    double e4m3[256], e2m1[16], e8m0[256];
    double *q;     /* [H, D] of the slot at work */
    double *abs_q; /* its magnitudes */
} reference;

/* The keys of one tile, dimension-major, so that neighbouring tokens are neighbours in memory. */
typedef struct key_tile {
    double keys[MAX_HEAD_DIM][TILE_TOKENS];
    double abs_keys[MAX_HEAD_DIM][TILE_TOKENS];
    double scales[TILE_TOKENS]; /* of whole tokens: fp8's; 1 for fp4 */
} key_tile;

#define VALUES_PER_SCALE 32 /* of MXFP4 */

/* ---- Reading ------------------------------------------------------------------------------------------------- */

static int32_t read_int32(const char *address) {
    int32_t value;
    memcpy(&value, address, sizeof value);
    return value;
}

static double read_little_endian_float32(const uint8_t *bytes) {
    const uint32_t bits =
        (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Tokens that slot `slot` of `request` sees. */
static int64_t visible_tokens(const attns_logits_args *args, int64_t request, int64_t slot) {
    const char *const lens = args->seq_lens.data + request * args->seq_lens.stride[0];
    const int64_t given = read_int32(args->per_slot_lens ? lens + slot * args->seq_lens.stride[1] : lens);
    const int64_t len = given < 0 ? 0 : given < args->max_seq_len ? given : args->max_seq_len;
    if (args->per_slot_lens)
        return len;
    const int64_t limit = len - args->problem.next_n + 1 + slot;
    return limit > 0 ? limit : 0;
}

/* One row of D numbers. */
static void decode_fp8(const reference *ref, const uint8_t *codes, double *values) {
    for (int d = 0; d < ref->args.problem.head_dim; d++)
        values[d] = ref->e4m3[codes[d]];
}

static void decode_fp4(const reference *ref, const uint8_t *codes, const uint8_t *scales, double *values) {
    for (int d = 0; d < ref->args.problem.head_dim; d++) {
        const unsigned code = d % 2 ? codes[d / 2] >> 4u : codes[d / 2] & 15u;
        values[d] = ref->e2m1[code] * ref->e8m0[scales[d / VALUES_PER_SCALE]];
    }
}

static void load_query(reference *ref, int64_t request, int64_t slot) {
    const attns_problem *const p = &ref->args.problem;
    const attns_tensor *const q = &ref->args.q, *const q_sf = &ref->args.q_sf;
    const uint8_t *codes = (const uint8_t *)(q->data + request * q->stride[0] + slot * q->stride[1]);
    for (int h = 0; h < p->num_heads; h++) { /* heads and dims are dense */
        double *const values = ref->q + h * p->head_dim;
        if (p->kind == ATTNS_KERNEL_FP4_LOGITS) {
            const char *const word = q_sf->data + request * q_sf->stride[0] + slot * q_sf->stride[1];
            const uint32_t bits = (uint32_t)read_int32(word + h * (int64_t)sizeof(int32_t));
            uint8_t scales[4];
            for (unsigned k = 0; k < 4; k++)
                scales[k] = (uint8_t)(bits >> 8 * k);
            decode_fp4(ref, codes, scales, values);
            codes += p->head_dim / 2;
        } else {
            decode_fp8(ref, codes, values);
            codes += p->head_dim;
        }
    }
    for (int i = 0; i < p->num_heads * p->head_dim; i++)
        ref->abs_q[i] = fabs(ref->q[i]);
}

/* Where the scales of a token lie among those of its block. */
static int64_t scale_slot(const attns_problem *p, int64_t token) {
    return p->kv_sf_interleaved ? token % 32 * 4 + token / 32 : token;
}

/* The numbers and the scale of one token. */
static double load_key(const reference *ref, const uint8_t *block, int64_t token, double *values) {
    const attns_problem *const p = &ref->args.problem;
    const int64_t block_size = p->block_size;
    if (p->kind == ATTNS_KERNEL_FP4_LOGITS) {
        const int64_t scales = block_size * p->head_dim / 2 + scale_slot(p, token) * (p->head_dim / VALUES_PER_SCALE);
        decode_fp4(ref, block + token * p->head_dim / 2, block + scales, values);
        return 1;
    }
    decode_fp8(ref, block + token * p->head_dim, values);
    return read_little_endian_float32(block + block_size * p->head_dim + token * (int64_t)sizeof(float));
}

/* Tokens [first, first + count) of a request; a tile lies within one block, as every block size is a multiple of it.
 * The unused rest of the tile repeats the last token, so that it holds numbers, and is not stored. */
static void load_keys(const reference *ref, int64_t request, int64_t first, int64_t count, key_tile *tile) {
    const attns_logits_args *const args = &ref->args;
    const int64_t block_size = args->problem.block_size;
    const char *const table = args->block_tables.data + request * args->block_tables.stride[0];
    const int64_t id = read_int32(table + first / block_size * args->block_tables.stride[1]);
    if (id < 0 || id >= args->num_blocks) {
        memset(tile, 0, sizeof *tile);
        return;
    }
    const uint8_t *const block = (const uint8_t *)(args->kv.data + id * args->kv.stride[0]);
    for (int i = 0; i < TILE_TOKENS; i++) {
        double values[MAX_HEAD_DIM];
        tile->scales[i] = load_key(ref, block, first % block_size + (i < count ? i : count - 1), values);
        for (int d = 0; d < args->problem.head_dim; d++) {
            tile->keys[d][i] = values[d];
            tile->abs_keys[d][i] = fabs(values[d]);
        }
    }
}

/* ---- Computing ----------------------------------------------------------------------------------------------- */

/* Two doubles, which is a register of every 64-bit target. Spelled out because gcc 12 leaves the sums of the plain loop
 * in memory, at a third of the speed. */
typedef double double2 __attribute__((vector_size(2 * sizeof(double))));

static double2 load2(const double *address) {
    double2 pair;
    memcpy(&pair, address, sizeof pair);
    return pair;
}

/* dots[i] = q . keys[:, i] for the 8 tokens of a tile. */
static void dot_products(const double *q, const double (*keys)[TILE_TOKENS], int head_dim, double *dots) {
    double2 a = {0, 0}, b = a, c = a, d = a;
    for (int dim = 0; dim < head_dim; dim++) {
        const double2 value = {q[dim], q[dim]};
        a += value * load2(keys[dim]);
        b += value * load2(keys[dim] + 2);
        c += value * load2(keys[dim] + 4);
        d += value * load2(keys[dim] + 6);
    }
    const double2 sums[TILE_TOKENS / 2] = {a, b, c, d};
    memcpy(dots, sums, sizeof sums);
}

static void store(const attns_tensor *tensor, int64_t row, int64_t column, double value) {
    char *const address = tensor->data + row * tensor->stride[0] + column * tensor->element_bytes;
    if (tensor->element_bytes == 8) {
        memcpy(address, &value, sizeof value);
    } else if (tensor->element_bytes == 4) {
        const float rounded = (float)value;
        memcpy(address, &rounded, sizeof rounded);
    } else {
        const uint16_t code =
            tensor->dtype.code == kDLBfloat ? attns_double_to_bf16(value) : attns_double_to_f16(value);
        memcpy(address, &code, sizeof code);
    }
}

static void compute_tile(const reference *ref, const key_tile *tile, int64_t row, int64_t first, int64_t count) {
    const int head_dim = ref->args.problem.head_dim;
    const char *const weights = ref->args.weights.data + row * ref->args.weights.stride[0];
    double logits[TILE_TOKENS] = {0};
    double magnitudes[TILE_TOKENS] = {0};
    for (int h = 0; h < ref->args.problem.num_heads; h++) {
        double dots[TILE_TOKENS];
        float weight;
        memcpy(&weight, weights + h * (int64_t)sizeof weight, sizeof weight);
        dot_products(ref->q + h * head_dim, tile->keys, head_dim, dots);
        for (int i = 0; i < TILE_TOKENS; i++)
            logits[i] += (double)weight * (dots[i] < 0 ? 0 : dots[i]); /* a NaN stays one */
        if (!ref->abs_sum.data)
            continue;
        dot_products(ref->abs_q + h * head_dim, tile->abs_keys, head_dim, dots);
        for (int i = 0; i < TILE_TOKENS; i++)
            magnitudes[i] += fabs((double)weight) * dots[i];
    }
    for (int i = 0; i < count; i++) {
        store(&ref->args.out, row, first + i, tile->scales[i] * logits[i]);
        if (ref->abs_sum.data)
            store(&ref->abs_sum, row, first + i, fabs(tile->scales[i]) * magnitudes[i]);
    }
}

static void compute_row(reference *ref, int64_t request, int64_t slot, key_tile *tile) {
    const int64_t row = request * ref->args.problem.next_n + slot;
    const int64_t limit = visible_tokens(&ref->args, request, slot);
    if (limit > 0)
        load_query(ref, request, slot);
    for (int64_t first = 0; first < limit; first += TILE_TOKENS) {
        const int64_t count = limit - first < TILE_TOKENS ? limit - first : TILE_TOKENS;
        load_keys(ref, request, first, count, tile);
        compute_tile(ref, tile, row, first, count);
    }
    for (int64_t column = limit; column < ref->args.clean_until; column++) {
        store(&ref->args.out, row, column, -INFINITY);
        if (ref->abs_sum.data)
            store(&ref->abs_sum, row, column, 0); /* a constant carries no rounding error */
    }
}

/* The arguments are read. */
static attns_status compute(reference *ref, const DLTensor *abs_sum) {
    ATTNS_TRY(attns_abs_sum_read(abs_sum, &ref->args.out, &ref->abs_sum));
    if (ref->args.batch == 0)
        return ATTNS_OK;

    const size_t q_count = (size_t)ref->args.problem.num_heads * (size_t)ref->args.problem.head_dim;
    ref->q = malloc(2 * q_count * sizeof *ref->q);
    key_tile *const tile = malloc(sizeof *tile);
    if (!ref->q || !tile) {
        free(ref->q);
        free(tile);
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "reference: no memory for %zu queries and a tile of keys",
                          q_count);
    }
    ref->abs_q = ref->q + q_count;
    for (int code = 0; code < 256; code++) {
        ref->e4m3[code] = attns_e4m3_to_double((uint8_t)code);
        ref->e8m0[code] = attns_e8m0_to_double((uint8_t)code);
        ref->e2m1[code & 15] = attns_e2m1_to_double((uint8_t)code);
    }
    for (int64_t request = 0; request < ref->args.batch; request++)
        for (int64_t slot = 0; slot < ref->args.problem.next_n; slot++)
            compute_row(ref, request, slot, tile);
    free(ref->q);
    free(tile);
    return ATTNS_OK;
}

attns_status attns_reference_fp8_paged_mqa_logits(const attns_fp8_paged_mqa_logits_params *params,
                                                  const DLTensor *abs_sum) {
    reference ref;
    ATTNS_TRY(attns_fp8_args_read(params, kDLCPU, &ref.args));
    return compute(&ref, abs_sum);
}

attns_status attns_reference_fp4_paged_mqa_logits(const attns_fp4_paged_mqa_logits_params *params,
                                                  const DLTensor *abs_sum) {
    reference ref;
    ATTNS_TRY(attns_fp4_args_read(params, kDLCPU, &ref.args));
    return compute(&ref, abs_sum);
}
