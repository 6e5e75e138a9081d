/* SPDX-License-Identifier: MIT */
#include "common/indexer_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALES      8
#define E4M3_NAN    0x7f
#define BF16_NAN    0x7fff
#define E2M1_ONE    2
#define ONE_HOT_DIM(position) (5 * (position) % INDEXER_DIM)

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static void *alloc_filled(size_t bytes, int value) {
    const size_t rounded = (bytes + 127) / 64 * 64;
    void *p = aligned_alloc(64, rounded);
    if (p)
        memset(p, value, rounded);
    else
        fprintf(stderr, "test data: out of memory (%zu bytes)\n", bytes);
    return p;
}

int32_t *indexer_len(const struct indexer_data *d, int64_t group) {
    return d->lens + group * d->c.lens_stride;
}

int32_t *indexer_request(const struct indexer_data *d, int64_t group) {
    return d->requests + group * d->c.request_stride;
}

int64_t indexer_limit(const struct indexer_data *d, int64_t group) {
    const int64_t len = *indexer_len(d, group);
    return len < 0 ? 0 : len < d->max_context ? len : d->max_context;
}

uint8_t *indexer_key(const struct indexer_data *d, int64_t page, int64_t slot) {
    return d->keys + page * d->page_stride + slot * d->row_bytes;
}

uint8_t *indexer_scales(const struct indexer_data *d, int64_t page, int64_t slot) {
    return d->key_scales + page * d->scale_page_stride + slot * SCALES;
}

/* ---- Values ---- */

static void put_bf16(uint8_t *at, double value) {
    const float single = (float)value; /* has 8 significant bits */
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    const uint16_t code = (uint16_t)(bits >> 16);
    memcpy(at, &code, sizeof code);
}

static double random_bf16(struct rng *r) {
    const double magnitude = ldexp((double)rng_range(r, 128, 255), (int)rng_range(r, -11, -4));
    return rng_below(r, 2) ? magnitude : -magnitude;
}

/* E4M3 of 2^exponent (1 + eighths / 8), exponent -6 .. 8. */
static uint8_t scale_code(int exponent, int64_t eighths) {
    return (uint8_t)((exponent + 7) << 3 | (int)eighths);
}

/* A power of two of the token's own, so that a neighbour's cannot be taken for it. */
static int token_exponent(int64_t position) {
    return (int)((7 * position) % 13) - 6;
}

static void random_row(const struct indexer_data *d, struct rng *r, uint8_t *row, uint8_t *scales, int64_t position) {
    if (!d->c.nvfp4) {
        for (int i = 0; i < INDEXER_DIM; i++)
            put_bf16(row + 2 * i, ldexp(random_bf16(r), token_exponent(position)));
        return;
    }
    for (int i = 0; i < INDEXER_DIM / 2; i += 8) {
        const uint64_t bits = rng_next(r);
        memcpy(row + i, &bits, sizeof bits);
    }
    for (int i = 0; i < SCALES; i++) {
        scales[i] = scale_code(token_exponent(position + 3 * i), rng_below(r, 8));
        if (rng_below(r, 32) == 0)
            scales[i] |= 0x80;
    }
}

static void one_hot_row(const struct indexer_data *d, uint8_t *row, uint8_t *scales, int64_t position) {
    const int dim = (int)ONE_HOT_DIM(position);
    memset(row, 0, (size_t)d->row_bytes);
    if (!d->c.nvfp4) {
        put_bf16(row + 2 * dim, ldexp(1, token_exponent(position)));
        return;
    }
    row[dim / 2] = (uint8_t)(E2M1_ONE << 4 * (dim % 2));
    for (int i = 0; i < SCALES; i++)
        scales[i] = scale_code(token_exponent(position + i - dim / 16), 0);
}

static double bf16_at(const uint8_t *at) {
    uint32_t bits;
    uint16_t code;
    float value;
    memcpy(&code, at, sizeof code);
    bits = (uint32_t)code << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double e2m1(int code) {
    static const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

double indexer_one_hot_score(const struct indexer_data *d, int64_t row, int64_t position) {
    const int dim = (int)ONE_HOT_DIM(position);
    const uint8_t *const query = d->query + row * d->query_stride;
    const double factor = ldexp(1, token_exponent(position));
    if (!d->c.nvfp4)
        return bf16_at(query + 2 * dim) * factor;
    const int scale = d->query_scales[row * d->query_scale_stride + dim / 16];
    const double magnitude = ldexp(8 + (scale & 7), (scale >> 3 & 15) - 10);
    return e2m1(query[dim / 2] >> 4 * (dim % 2) & 15) * (scale & 0x80 ? -magnitude : magnitude) * factor;
}

/* ---- Layout ---- */

static void fill_defaults(struct indexer_data *d, const struct indexer_case *c) {
    memset(d, 0, sizeof *d);
    d->c = *c;
    d->c.lens = NULL;
    if (!d->c.max_len)
        d->c.max_len = c->min_len > 256 ? c->min_len : 256;
    if (!d->c.lens_stride)
        d->c.lens_stride = 1;
    if (!d->c.request_stride)
        d->c.request_stride = 1;
    d->rows = (int64_t)c->groups * c->rows;
    d->row_bytes = c->nvfp4 ? INDEXER_DIM / 2 : INDEXER_DIM * 2;
    const int64_t page_bytes = INDEXER_PAGE_KEYS * (d->row_bytes + (c->one_cache ? SCALES : 0));
    d->page_stride = page_bytes + c->key_pad_bytes;
    d->scale_page_stride = c->one_cache ? d->page_stride : INDEXER_PAGE_KEYS * SCALES + c->scale_pad_bytes;
    d->query_stride = d->row_bytes + c->query_pad_bytes;
    d->query_bytes = (size_t)((d->rows - 1) * d->query_stride + d->row_bytes);
    d->query_scale_stride = SCALES + c->query_scale_pad_bytes;
    d->query_scale_bytes = c->nvfp4 ? (size_t)((d->rows - 1) * d->query_scale_stride + SCALES) : 0;
    d->len_bytes = (size_t)((c->groups - 1) * d->c.lens_stride + 1) * sizeof(int32_t);
    d->request_bytes = (size_t)((c->groups - 1) * d->c.request_stride + 1) * sizeof(int32_t);
}

static void set_table_and_scores(struct indexer_data *d) {
    d->table_width = ceil_div(d->max_context, INDEXER_PAGE_KEYS) + d->c.table_extra;
    d->table_stride = d->table_width + d->c.table_pad;
    /* Ends with the last row, so that a guard page can follow it. */
    d->table_bytes = (size_t)((d->num_requests - 1) * d->table_stride + d->table_width) * sizeof(int32_t);
    d->score_stride = d->max_context + d->c.score_pad;
    const size_t guard = d->c.bare_scores ? 0 : INDEXER_GUARD_BYTES;
    d->front_bytes = guard + (size_t)d->c.score_offset * sizeof(float);
    d->image_bytes = d->front_bytes + (size_t)((d->rows - 1) * d->score_stride + d->max_context) * sizeof(float) + guard;
}

static int32_t garbage_id(struct rng *r, int64_t count, int64_t poison) {
    const int32_t ids[] = {INT32_MIN, INT32_MAX, -1, (int32_t)count, (int32_t)poison, (int32_t)poison};
    return ids[rng_below(r, 6)];
}

static bool fill_lens(struct indexer_data *d, const int32_t *given, struct rng *r) {
    d->lens = alloc_filled(d->len_bytes, 0);
    d->requests = alloc_filled(d->request_bytes, 0);
    if (!d->lens || !d->requests)
        return false;
    /* Gaps hold what a kernel that ignores a stride would trip over. */
    for (size_t i = 0; i < d->len_bytes / sizeof(int32_t); i++)
        d->lens[i] = i % 2 ? INT32_MAX : 1;
    for (size_t i = 0; i < d->request_bytes / sizeof(int32_t); i++)
        d->requests[i] = i % 2 ? INT32_MAX : -1;
    int64_t longest = 1;
    for (int64_t g = 0; g < d->c.groups; g++) {
        const int32_t len = given ? given[g] : (int32_t)rng_range(r, d->c.min_len, d->c.max_len);
        *indexer_len(d, g) = len;
        longest = len > longest ? len : longest;
    }
    d->max_context = d->c.max_context ? d->c.max_context : longest;
    return true;
}

/* Groups to requests: a permutation with two rows to spare, in which every eighth group or so shares its neighbour's
 * request. */
static void fill_requests(struct indexer_data *d, struct rng *r, int64_t *tokens) {
    const int64_t first = rng_below(r, d->num_requests);
    int64_t step = d->num_requests > 3 ? 3 : 1;
    while (d->num_requests % step == 0 && step > 1)
        step += 2;
    int32_t last = (int32_t)first;
    for (int64_t g = 0; g < d->c.groups; g++) {
        const int64_t limit = indexer_limit(d, g);
        if (g == 0 || rng_below(r, 8) != 0)
            last = (int32_t)((first + g % d->num_requests * (step % d->num_requests)) % d->num_requests);
        *indexer_request(d, g) = limit > 0 ? last : garbage_id(r, d->num_requests, d->num_requests);
        if (limit > tokens[last])
            tokens[last] = limit;
    }
}

static void fill_page(struct indexer_data *d, struct rng *r, int64_t page, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint8_t *const scales = d->c.nvfp4 ? indexer_scales(d, page, i) : NULL;
        if (d->c.values == INDEXER_VALUES_ONE_HOT)
            one_hot_row(d, indexer_key(d, page, i), scales, first + i);
        else
            random_row(d, r, indexer_key(d, page, i), scales, first + i);
    }
}

static void shuffle(struct rng *r, int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = rng_below(r, i + 1);
        const int32_t swap = ids[i];
        ids[i] = ids[j];
        ids[j] = swap;
    }
}

static bool alloc_pool(struct indexer_data *d) {
    const struct indexer_case *c = &d->c;
    const int64_t page_bytes = INDEXER_PAGE_KEYS * (d->row_bytes + (c->one_cache ? SCALES : 0));
    d->key_bytes = (size_t)((d->num_pages - 1) * d->page_stride + page_bytes);
    /* 0x7f in every byte is NaN as a scale, and 0x7f7f is 3.4e38 as bfloat16, which overflows when multiplied. */
    d->keys = alloc_filled(d->key_bytes, E4M3_NAN);
    if (d->keys && c->one_cache)
        d->key_scales = d->keys + INDEXER_PAGE_KEYS * d->row_bytes;
    if (c->nvfp4 && !c->one_cache) {
        d->key_scale_bytes = (size_t)((d->num_pages - 1) * d->scale_page_stride + INDEXER_PAGE_KEYS * SCALES);
        d->key_scales = alloc_filled(d->key_scale_bytes, E4M3_NAN);
    }
    for (int64_t page = 0; d->keys && !c->nvfp4 && page < d->num_pages; page++) {
        const uint16_t code = BF16_NAN;
        for (int64_t i = 0; i < INDEXER_PAGE_KEYS * INDEXER_DIM; i++)
            memcpy(indexer_key(d, page, 0) + 2 * i, &code, sizeof code);
    }
    return d->keys && (!c->nvfp4 || d->key_scales);
}

static bool fill_pool(struct indexer_data *d, struct rng *r, const int64_t *tokens) {
    int64_t used = d->c.pool_pages;
    if (!used)
        for (int64_t q = 0; q < d->num_requests; q++)
            used += ceil_div(tokens[q], INDEXER_PAGE_KEYS);
    d->num_pages = used + 1 + (used / 8 < 64 ? used / 8 : 64);
    int32_t *ids = malloc((size_t)d->num_pages * sizeof *ids);
    d->tables = alloc_filled(d->table_bytes, 0);
    if (!ids || !d->tables || !alloc_pool(d)) {
        free(ids);
        return false;
    }
    shuffle(r, ids, d->num_pages);
    for (size_t i = 0; i < d->table_bytes / sizeof(int32_t); i++)
        d->tables[i] = garbage_id(r, d->num_pages, ids[used]);
    for (int64_t i = 0; i < d->c.pool_pages; i++)
        fill_page(d, r, ids[i], i * INDEXER_PAGE_KEYS, INDEXER_PAGE_KEYS);
    int64_t next = 0;
    for (int64_t q = 0; q < d->num_requests; q++)
        for (int64_t first = 0; first < tokens[q]; first += INDEXER_PAGE_KEYS) {
            const int64_t left = tokens[q] - first;
            const int64_t pick = d->c.pool_pages ? rng_below(r, used) : next++;
            d->tables[q * d->table_stride + first / INDEXER_PAGE_KEYS] = ids[pick];
            if (!d->c.pool_pages)
                fill_page(d, r, ids[pick], first, left < INDEXER_PAGE_KEYS ? left : INDEXER_PAGE_KEYS);
        }
    free(ids);
    return true;
}

static bool fill_queries(struct indexer_data *d, struct rng *r) {
    d->query = alloc_filled(d->query_bytes, E4M3_NAN);
    d->query_scales = d->query_scale_bytes ? alloc_filled(d->query_scale_bytes, E4M3_NAN) : NULL;
    if (!d->query || (d->query_scale_bytes && !d->query_scales))
        return false;
    for (int64_t row = 0; row < d->rows; row++)
        random_row(d, r, d->query + row * d->query_stride,
                   d->query_scales ? d->query_scales + row * d->query_scale_stride : NULL, row % d->c.rows);
    return true;
}

bool indexer_data_make(struct indexer_data *d, const struct indexer_case *c) {
    fill_defaults(d, c);
    struct rng r = rng_make(c->seed);
    d->num_requests = c->groups + 2;
    int64_t *tokens = calloc((size_t)d->num_requests, sizeof *tokens);
    bool ok = tokens && fill_lens(d, c->lens, &r);
    if (ok) {
        set_table_and_scores(d);
        fill_requests(d, &r, tokens);
        ok = fill_pool(d, &r, tokens) && fill_queries(d, &r);
    }
    free(tokens);
    if (!ok)
        indexer_data_free(d);
    return ok;
}

void indexer_data_free(struct indexer_data *d) {
    free(d->query);
    free(d->query_scales);
    free(d->keys);
    if (!d->c.one_cache)
        free(d->key_scales);
    free(d->tables);
    free(d->lens);
    free(d->requests);
    memset(d, 0, sizeof *d);
}

void indexer_random_case(struct rng *r, struct indexer_case *c, int64_t max_keys) {
    static const int group_counts[] = {1, 2, 3, 7, 16, 31, 32, 33, 70};
    *c = (struct indexer_case){.nvfp4 = rng_below(r, 2), .rows = (int)rng_range(r, 1, 8), .seed = rng_next(r)};
    c->groups = group_counts[rng_below(r, 9)];
    const int64_t most = max_keys / c->groups;
    c->max_len = (int)rng_range(r, 1, most > 1 ? most : 1);
    c->min_len = (int)rng_range(r, -3, c->max_len);
    c->max_context = rng_below(r, 4) == 0 ? rng_range(r, 1, c->max_len + 70) : 0;
    c->one_cache = c->nvfp4 && rng_below(r, 2);
    c->key_pad_bytes = 16 * rng_below(r, 5);
    c->scale_pad_bytes = 8 * rng_below(r, 5);
    c->query_pad_bytes = 16 * rng_below(r, 3);
    c->query_scale_pad_bytes = 8 * rng_below(r, 3);
    c->table_extra = rng_below(r, 3);
    c->table_pad = rng_below(r, 3);
    c->lens_stride = rng_range(r, 1, 3);
    c->request_stride = rng_range(r, 1, 3);
    c->score_pad = rng_below(r, 2) * rng_below(r, 9);
    c->score_offset = rng_below(r, 4);
    c->pdl = rng_below(r, 4) == 0;
}

const char *indexer_case_text(const struct indexer_case *c, char *buffer, size_t size) {
    snprintf(buffer, size,
             "%s%s groups=%d rows=%d len=%d..%d max_context=%lld pads(key=%lld scale=%lld query=%lld,%lld table=%lld,%lld "
             "score=%lld,%lld) strides=%lld,%lld%s%s seed=%llu",
             c->nvfp4 ? "nvfp4" : "bf16", c->one_cache ? " one cache" : "", c->groups, c->rows, c->min_len, c->max_len,
             (long long)c->max_context, (long long)c->key_pad_bytes, (long long)c->scale_pad_bytes,
             (long long)c->query_pad_bytes, (long long)c->query_scale_pad_bytes, (long long)c->table_extra,
             (long long)c->table_pad, (long long)c->score_pad, (long long)c->score_offset, (long long)c->lens_stride,
             (long long)c->request_stride, c->pdl ? " pdl" : "",
             c->values == INDEXER_VALUES_ONE_HOT ? " one-hot" : "", (unsigned long long)c->seed);
    return buffer;
}

/* ---- Tensors ---- */

static void set_tensor(struct indexer_tensors *t, int index, DLTensor *tensor, void *data, DLDevice device,
                       DLDataType dtype, int ndim, const int64_t *shape, const int64_t *strides) {
    memcpy(t->shapes[index], shape, (size_t)ndim * sizeof *shape);
    memcpy(t->strides[index], strides, (size_t)ndim * sizeof *strides);
    *tensor = (DLTensor){.data = data,
                         .device = device,
                         .ndim = ndim,
                         .dtype = dtype,
                         .shape = t->shapes[index],
                         .strides = t->strides[index]};
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}

void indexer_tensors_make(struct indexer_tensors *t, attns_indexer_scores_params *params, const struct indexer_data *d,
                          DLDevice device, const struct indexer_addresses *at) {
    const DLDataType value = d->c.nvfp4 ? (DLDataType){kDLUInt, 8, 1} : (DLDataType){kDLBfloat, 16, 1};
    const DLDataType scale = {ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, int32 = {kDLInt, 32, 1}, float32 = {kDLFloat, 32, 1};
    const int64_t size = d->c.nvfp4 ? 1 : 2, width = d->row_bytes / size;
    set_tensor(t, 0, &t->query, at->query, device, value, 2, DIMS(d->rows, width), DIMS(d->query_stride / size, 1));
    set_tensor(t, 1, &t->query_scales, at->query_scales, device, scale, 2, DIMS(d->rows, SCALES),
               DIMS(d->query_scale_stride, 1));
    set_tensor(t, 2, &t->key_cache, at->keys, device, value, 3, DIMS(d->num_pages, INDEXER_PAGE_KEYS, width),
               DIMS(d->page_stride / size, width, 1));
    set_tensor(t, 3, &t->key_scales, at->key_scales, device, scale, 3, DIMS(d->num_pages, INDEXER_PAGE_KEYS, SCALES),
               DIMS(d->scale_page_stride, SCALES, 1));
    set_tensor(t, 4, &t->block_table, at->tables, device, int32, 2, DIMS(d->num_requests, d->table_width),
               DIMS(d->table_stride, 1));
    set_tensor(t, 5, &t->context_lengths, at->lens, device, int32, 1, DIMS(d->c.groups), DIMS(d->c.lens_stride));
    set_tensor(t, 6, &t->requests, at->requests, device, int32, 1, DIMS(d->c.groups), DIMS(d->c.request_stride));
    set_tensor(t, 7, &t->scores, at->scores, device, float32, 2, DIMS(d->rows, d->max_context),
               DIMS(d->score_stride, 1));
    *params = (attns_indexer_scores_params){
        .query = &t->query,
        .query_scales = d->c.nvfp4 ? &t->query_scales : NULL,
        .key_cache = &t->key_cache,
        .key_scales = d->c.nvfp4 ? &t->key_scales : NULL,
        .block_table = &t->block_table,
        .context_lengths = &t->context_lengths,
        .requests = &t->requests,
        .scores = &t->scores,
        .enable_pdl = d->c.pdl,
    };
}
