/* SPDX-License-Identifier: MIT
 *
 * One indexer_scores call as test data on the host: a description, and the tensors generated from it.
 *
 * What the generator builds in, because tests without it miss faults: permuted pages, requests in another order than the
 * groups and some shared by several groups, a magnitude or scale of its own for every token (and with NVFP4 for every 16
 * values of it), pages that no request owns and tokens past a request's end full of NaN, garbage in table columns past a
 * request's end and in the request ids of empty groups. */
#ifndef ATTNS_TOOLS_COMMON_INDEXER_CASE_H_
#define ATTNS_TOOLS_COMMON_INDEXER_CASE_H_

#include <attn_scores/attn_scores.h>

#include "common/rng.h"

#define INDEXER_PAGE_KEYS 64
#define INDEXER_DIM       128

enum indexer_values {
    INDEXER_VALUES_RANDOM = 0, /* all codes of E2M1; bfloat16 of 2^-4 .. 2^4 times a power of two of the token's own */
    INDEXER_VALUES_ONE_HOT     /* token p has a single 1.0, at dim 5 p % 128, times a power of two of its own: every score
                                  has a closed form that float32 holds exactly (indexer_one_hot_score) */
};

/* All-zero fields mean the default given. Paddings are in bytes if they say so, else in elements. */
struct indexer_case {
    bool nvfp4;
    int groups, rows; /* > 0; rows of a group */
    enum indexer_values values;

    const int32_t *lens;  /* [groups], any values. NULL: uniform in [min_len, max_len] */
    int min_len, max_len; /* default max_len: 256 */
    int64_t max_context;  /* default: the largest length, at least 1 */
    bool pdl;

    bool one_cache;                      /* NVFP4: a page's scales lie behind its keys, as views of one cache */
    int64_t key_pad_bytes;               /* between pages, a multiple of 16 */
    int64_t scale_pad_bytes;             /* between pages of scales, a multiple of 8; not with one_cache */
    int64_t query_pad_bytes;             /* between rows, a multiple of 16 */
    int64_t query_scale_pad_bytes;       /* between rows, a multiple of 8 */
    int64_t table_extra, table_pad;      /* columns of garbage; elements between rows */
    int64_t lens_stride, request_stride; /* default: 1 */
    int64_t score_pad, score_offset;     /* elements between rows; before the first */
    bool bare_scores;                    /* no guard bands (for buffers that end at a guard page) */

    int64_t pool_pages; /* default: every request has pages of its own. Otherwise all pick from so many */
    uint64_t seed;
};

/* Everything generated. Read-only once made. */
struct indexer_data {
    struct indexer_case c; /* defaults filled in; c.lens is NULL, see lens */
    int64_t rows;          /* of all groups */
    int64_t num_pages, num_requests;
    int64_t row_bytes; /* 256 or 64 */
    int64_t page_stride, scale_page_stride, query_stride, query_scale_stride;
    int64_t table_width, table_stride;
    int64_t max_context, score_stride;
    size_t front_bytes; /* guard band and score_offset: bytes before score [0, 0] */
    size_t image_bytes; /* both guard bands and everything between */
    size_t query_bytes, query_scale_bytes, key_bytes, key_scale_bytes, table_bytes, len_bytes, request_bytes;

    uint8_t *query, *query_scales, *keys;
    uint8_t *key_scales; /* with one_cache a place inside `keys`, and key_scale_bytes is 0 */
    int32_t *tables, *lens, *requests;
};

#define INDEXER_GUARD_BYTES 4096
#define INDEXER_POISON      0xFFA5FFA5u /* a NaN that no kernel produces */

/* false only if memory is exhausted (a message is printed). */
bool indexer_data_make(struct indexer_data *data, const struct indexer_case *c);
void indexer_data_free(struct indexer_data *data);

/* A random layout and format of at most about `max_keys` keys in all. */
void indexer_random_case(struct rng *r, struct indexer_case *c, int64_t max_keys);

int32_t *indexer_len(const struct indexer_data *data, int64_t group);
int32_t *indexer_request(const struct indexer_data *data, int64_t group);
/* The length after clamping. */
int64_t indexer_limit(const struct indexer_data *data, int64_t group);
uint8_t *indexer_key(const struct indexer_data *data, int64_t page, int64_t slot);
uint8_t *indexer_scales(const struct indexer_data *data, int64_t page, int64_t slot);

/* With INDEXER_VALUES_ONE_HOT: the exact score of a row and a position. */
double indexer_one_hot_score(const struct indexer_data *data, int64_t row, int64_t position);

/* One line that tells the cases of a run apart and holds the seed. Returns buffer. */
const char *indexer_case_text(const struct indexer_case *c, char *buffer, size_t size);

/* The call's tensors over given addresses. Self-referencing: do not copy. */
struct indexer_tensors {
    DLTensor query, query_scales, key_cache, key_scales, block_table, context_lengths, requests, scores;
    int64_t shapes[8][3], strides[8][3];
};

struct indexer_addresses {
    void *query, *query_scales, *keys, *key_scales, *tables, *lens, *requests;
    void *scores; /* element [0, 0] */
};

void indexer_tensors_make(struct indexer_tensors *tensors, attns_indexer_scores_params *params,
                          const struct indexer_data *data, DLDevice device, const struct indexer_addresses *at);

#endif
