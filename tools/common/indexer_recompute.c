/* SPDX-License-Identifier: MIT */
#include "common/indexer_recompute.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED 12345.678

/* Element `dim` of a row, NVFP4: byte dim / 2 of the values, byte dim / 16 of the scales. */
static long double nvfp4_value(const uint8_t *row, const uint8_t *scales, int dim) {
    static const int twice[] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int code = dim % 2 ? row[dim / 2] / 16 : row[dim / 2] % 16;
    const int scale = scales[dim / 16] % 128, exponent = scale / 8, mantissa = scale % 8;
    long double value = (long double)twice[code % 8] / 2;
    if (scale == 127)
        return (long double)NAN;
    value *= exponent == 0 ? (long double)mantissa / 512 : powl(2, exponent - 10) * (8 + mantissa);
    return (code >= 8) != (scales[dim / 16] >= 128) ? -value : value;
}

/* bfloat16: 1 sign bit, 8 exponent bits with bias 127, 7 mantissa bits. */
static long double bf16_value(const uint8_t *row, int dim) {
    const int code = row[2 * dim] + 256 * row[2 * dim + 1];
    const int exponent = code / 128 % 256, mantissa = code % 128;
    const long double sign = code >= 32768 ? -1 : 1;
    if (exponent == 255)
        return mantissa ? (long double)NAN : sign * (long double)INFINITY;
    return sign * powl(2, (exponent ? exponent : 1) - 134) * ((exponent ? 128 : 0) + mantissa);
}

static long double value(const struct indexer_data *d, const uint8_t *row, const uint8_t *scales, int dim) {
    return d->c.nvfp4 ? nvfp4_value(row, scales, dim) : bf16_value(row, dim);
}

static long double score(const struct indexer_data *d, int64_t row, int64_t p, long double *abs_sum) {
    const int64_t group = row / d->c.rows, request = d->requests[group * d->c.request_stride];
    const int64_t page = request < 0 || request >= d->num_requests
                             ? -1
                             : d->tables[request * d->table_stride + p / INDEXER_PAGE_KEYS];
    const uint8_t *const query = d->query + row * d->query_stride;
    const uint8_t *const query_scales = d->c.nvfp4 ? d->query_scales + row * d->query_scale_stride : NULL;
    const int64_t slot = p % INDEXER_PAGE_KEYS;
    long double sum = 0;
    *abs_sum = 0;
    if (page < 0 || page >= d->num_pages)
        return 0;
    for (int i = 0; i < INDEXER_DIM; i++) {
        const uint8_t *const key = d->keys + page * d->page_stride + slot * d->row_bytes;
        const uint8_t *const scales = d->c.nvfp4 ? d->key_scales + page * d->scale_page_stride + slot * 8 : NULL;
        const long double x = value(d, query, query_scales, i) * value(d, key, scales, i);
        sum += x;
        *abs_sum += fabsl(x);
    }
    return sum;
}

static void judge(const struct indexer_data *d, const double *scores, const double *sums, struct recompute_report *r) {
    for (int64_t row = 0; row < d->rows; row++) {
        const int64_t len = d->lens[row / d->c.rows * d->c.lens_stride];
        for (int64_t p = 0; p < d->max_context; p++) {
            const double got = scores[row * d->max_context + p], got_sum = sums[row * d->max_context + p];
            if (p >= len) {
                const bool same = got == UNTOUCHED && got_sum == UNTOUCHED;
                same ? r->untouched++ : r->stray++;
                continue;
            }
            long double abs_sum;
            const long double expected = score(d, row, p, &abs_sum);
            const double off = (double)fmaxl(fabsl((long double)got - expected), fabsl((long double)got_sum - abs_sum));
            r->compared++;
            if (!(off <= 136 * 0x1p-53 * (double)abs_sum) && r->wrong++ == 0)
                snprintf(r->first, sizeof r->first, "row %lld key %lld: %.17g, expected %.17Lg", (long long)row,
                         (long long)p, got, expected);
            if (abs_sum > 0)
                r->worst = fmax(r->worst, off / (double)abs_sum);
        }
    }
}

bool indexer_recompute_check(const struct indexer_data *d, struct recompute_report *r) {
    const size_t count = (size_t)(d->rows * d->max_context);
    double *const scores = malloc(2 * count * sizeof *scores);
    memset(r, 0, sizeof *r);
    if (!scores)
        return false;
    for (size_t i = 0; i < 2 * count; i++)
        scores[i] = UNTOUCHED;
    struct indexer_tensors t;
    attns_indexer_scores_params params;
    const struct indexer_addresses at = {.query = d->query,
                                         .query_scales = d->query_scales,
                                         .keys = d->keys,
                                         .key_scales = d->key_scales,
                                         .tables = d->tables,
                                         .lens = d->lens,
                                         .requests = d->requests,
                                         .scores = scores};
    indexer_tensors_make(&t, &params, d, (DLDevice){kDLCPU, 0}, &at);
    t.scores.dtype.bits = 64;
    t.scores.strides[0] = d->max_context;
    DLTensor abs_sum = t.scores;
    abs_sum.data = scores + count;
    if (attns_reference_indexer_scores(&params, &abs_sum) == ATTNS_OK)
        judge(d, scores, scores + count, r);
    else
        snprintf(r->first, sizeof r->first, "%s", attns_last_error());
    free(scores);
    r->ok = !r->first[0] && !r->wrong && !r->stray;
    return r->ok;
}
