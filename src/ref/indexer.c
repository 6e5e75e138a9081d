/* SPDX-License-Identifier: MIT
 *
 * indexer_scores on the CPU, in double.
 *
 * Products of two NVFP4 numbers are multiples of 2^-20 below 2^23, so that their sum is exact in double. bfloat16 has a
 * wide range of exponents; there a sum rounds as usual. */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "ops/indexer_args.h"
#include "ref/abs_sum.h"
#include "ref/number_formats.h"

enum { HEAD_DIM = ATTNS_INDEXER_HEAD_DIM, PAGE_KEYS = ATTNS_INDEXER_PAGE_KEYS, SCALE_SIZE = ATTNS_INDEXER_SCALE_SIZE };

/* The 128 numbers of a row of queries or keys; `scales` is NULL for bfloat16. */
static void decode_row(const char *row, const char *scales, double *values) {
    if (!scales) {
        for (int d = 0; d < HEAD_DIM; d++) {
            uint16_t code;
            memcpy(&code, row + 2 * d, sizeof code);
            values[d] = attns_bf16_to_double(code);
        }
        return;
    }
    for (int d = 0; d < HEAD_DIM; d++) {
        const uint8_t pair = (uint8_t)row[d / 2];
        values[d] = attns_e2m1_to_double(d % 2 ? pair >> 4 : pair) *
                    attns_e4m3_to_double((uint8_t)scales[d / SCALE_SIZE]);
    }
}

static int64_t read_entry(const attns_tensor *tensor, int64_t index) {
    int32_t value;
    memcpy(&value, tensor->data + index * tensor->stride[0], sizeof value);
    return value;
}

/* Key `position` of a request; false if its request or page does not exist. */
static bool load_key(const attns_indexer_args *args, int64_t request, int64_t position, double *key) {
    if (request < 0 || request >= args->num_requests)
        return false;
    int32_t page;
    memcpy(&page,
           args->block_table.data + request * args->block_table.stride[0] +
               position / PAGE_KEYS * args->block_table.stride[1],
           sizeof page);
    if (page < 0 || page >= args->num_pages)
        return false;
    const int64_t slot = position % PAGE_KEYS;
    decode_row(args->key_cache.data + page * args->key_cache.stride[0] + slot * args->key_cache.stride[1],
               args->nvfp4 ? args->key_scales.data + page * args->key_scales.stride[0] +
                                 slot * args->key_scales.stride[1]
                           : NULL,
               key);
    return true;
}

static void store(const attns_tensor *tensor, int64_t row, int64_t column, double value) {
    char *const address = tensor->data + row * tensor->stride[0] + column * tensor->element_bytes;
    const float rounded = (float)value;
    if (tensor->element_bytes == 8)
        memcpy(address, &value, sizeof value);
    else
        memcpy(address, &rounded, sizeof rounded);
}

static void score_group(const attns_indexer_args *args, const attns_tensor *abs_sum, int64_t group) {
    const int64_t given = read_entry(&args->context_lengths, group);
    const int64_t length = given < 0 ? 0 : given < args->max_context ? given : args->max_context;
    if (length == 0)
        return;
    const int64_t request = read_entry(&args->requests, group);
    double queries[ATTNS_INDEXER_MAX_ROWS][HEAD_DIM], key[HEAD_DIM];
    for (int64_t i = 0; i < args->rows_per_group; i++) {
        const int64_t row = group * args->rows_per_group + i;
        decode_row(args->query.data + row * args->query.stride[0],
                   args->nvfp4 ? args->query_scales.data + row * args->query_scales.stride[0] : NULL, queries[i]);
    }
    for (int64_t position = 0; position < length; position++) {
        if (!load_key(args, request, position, key))
            memset(key, 0, sizeof key);
        for (int64_t i = 0; i < args->rows_per_group; i++) {
            double score = 0, magnitude = 0;
            for (int d = 0; d < HEAD_DIM; d++) {
                score += queries[i][d] * key[d];
                magnitude += fabs(queries[i][d] * key[d]);
            }
            const int64_t row = group * args->rows_per_group + i;
            store(&args->scores, row, position, score);
            if (abs_sum->data)
                store(abs_sum, row, position, magnitude);
        }
    }
}

attns_status attns_reference_indexer_scores(const attns_indexer_scores_params *params, const DLTensor *abs_sum) {
    attns_indexer_args args;
    attns_tensor magnitudes;
    ATTNS_TRY(attns_indexer_args_read(params, kDLCPU, &args));
    ATTNS_TRY(attns_abs_sum_read(abs_sum, &args.scores, &magnitudes));
    for (int64_t group = 0; args.rows > 0 && group < args.groups; group++)
        score_group(&args, &magnitudes, group);
    return ATTNS_OK;
}
