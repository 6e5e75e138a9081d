/* SPDX-License-Identifier: MIT */
#include "common/random_case.h"

#include <stdlib.h>
#include <string.h>

#define PICK(r, list) ((list)[rng_below((r), (int64_t)(sizeof(list) / sizeof *(list)))])

static bool chance(struct rng *r, int percent) {
    return rng_below(r, 100) < percent;
}

void logits_random_shape(struct rng *r, struct logits_case *c) {
    static const int dims[] = {32, 64, 128, 128}, blocks[] = {16, 32, 64, 64, 128, 256};
    static const attns_dtype outs[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    c->heads = 8 * (int)rng_range(r, 1, 16);
    bool fp4 = c->variant == ATTNS_VARIANT_FP4;
    c->head_dim = fp4 ? dims[rng_range(r, 1, 3)] : PICK(r, dims);
    c->block_size = PICK(r, blocks);
    c->next_n = chance(r, 30) ? 1 : (int)rng_range(r, 1, 8);
    c->out_dtype = PICK(r, outs);
    c->acc_dtype = !fp4 && chance(r, 10) ? ATTNS_DTYPE_F16 : ATTNS_DTYPE_F32;
    c->epi_dtype = !fp4 && chance(r, 10) ? ATTNS_DTYPE_F16 : ATTNS_DTYPE_F32;
    c->sf_interleaved = fp4 && c->block_size == 128 && chance(r, 50);
}

static int random_max_len(struct rng *r, int64_t most) {
    static const int around[] = {2047, 2048, 2049, 5000, 50000};
    int len = (int)(chance(r, 50) ? rng_range(r, 1, 300) : chance(r, 50) ? rng_range(r, 300, 2100) : PICK(r, around));
    return len > most ? (int)most : len;
}

void logits_random_layout(struct rng *r, struct logits_case *c, int64_t max_tokens) {
    static const int shares[] = {1, 7, 78, 132, 300};
    int64_t per_request = max_tokens / c->next_n;
    c->max_len = random_max_len(r, per_request < 1 ? 1 : per_request);
    int64_t most = per_request / c->max_len;
    int64_t wanted = chance(r, 60) ? rng_range(r, 1, 8) : chance(r, 75) ? rng_range(r, 9, 64) : rng_range(r, 65, 400);
    c->batch = (int)(wanted > most ? (most < 1 ? 1 : most) : wanted);
    c->min_len = chance(r, 25) ? c->max_len : chance(r, 50) ? 0 : (int)rng_range(r, 0, c->max_len);
    c->per_slot_lens = chance(r, 25);
    c->clean = chance(r, 25);
    c->pdl = chance(r, 15);
    c->num_shares = chance(r, 30) ? PICK(r, shares) : 0;
    if (chance(r, 20))
        c->max_seq_len = c->max_len + rng_range(r, 1, 200);
    bool f16 = c->acc_dtype == ATTNS_DTYPE_F16 || c->epi_dtype == ATTNS_DTYPE_F16;
    c->values = !f16 && chance(r, 40) ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE;
    c->kv_pad_bytes = chance(r, 40) ? 16 * rng_range(r, 1, 64) : 0;
    c->q_slot_pad = chance(r, 20) ? 16 * rng_range(r, 1, 9) : 0;
    c->q_request_pad = chance(r, 20) ? 16 * rng_range(r, 1, 9) : 0;
    c->weights_pad = chance(r, 20) ? 4 * rng_range(r, 1, 9) : 0;
    c->table_extra = chance(r, 30) ? rng_range(r, 1, 9) : 0;
    c->table_pad = chance(r, 30) ? rng_range(r, 1, 9) : 0;
    c->lens_stride = chance(r, 20) ? rng_range(r, 2, 4) : 0;
    c->lens_request_stride =
        c->per_slot_lens && chance(r, 30) ? (c->lens_stride ? c->lens_stride : 1) * c->next_n + rng_range(r, 1, 9) : 0;
    c->out_extra = chance(r, 50) ? rng_range(r, 0, 70) : 0;
    c->out_pad = chance(r, 50) ? rng_range(r, 0, 70) : 0;
    c->out_offset = rng_below(r, 4);
    c->pool_blocks = chance(r, 10) ? rng_range(r, 1, 200) : 0;
    c->seed = rng_next(r);
}

struct logits_case *logits_random_cases(attns_variant variant, uint64_t seed, size_t count, size_t num_shapes,
                                        int64_t max_tokens) {
    struct rng r = rng_make(seed);
    struct logits_case *cases = calloc(count ? count : 1, sizeof *cases);
    struct logits_case *shapes = calloc(num_shapes, sizeof *shapes);
    if (!cases || !shapes) {
        free(cases);
        free(shapes);
        return NULL;
    }
    for (size_t i = 0; i < num_shapes; i++) {
        shapes[i].variant = variant;
        logits_random_shape(&r, &shapes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        cases[i] = shapes[i < num_shapes ? i : (size_t)rng_below(&r, (int64_t)num_shapes)];
        logits_random_layout(&r, &cases[i], max_tokens);
    }
    free(shapes);
    return cases;
}
