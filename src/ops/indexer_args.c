/* SPDX-License-Identifier: MIT */
#include "ops/indexer_args.h"

#include <inttypes.h>

#include "core/error.h"

/* The kernel counts rows and keys in int32, with room for rounding up. */
#define MAX_COUNT (INT64_C(1) << 30)

/* Keys and queries are copied by 16 bytes, the scales of a row are 8 bytes. */
#define ROW_ALIGNMENT   16
#define SCALE_ALIGNMENT 8

#define SCALES_PER_ROW (ATTNS_INDEXER_HEAD_DIM / ATTNS_INDEXER_SCALE_SIZE)

static const attns_dtype_set query_dtypes = {
    "bfloat16, or for NVFP4 uint8 (two float4_e2m1fn in a byte) or float4_e2m1fn of 2 lanes",
    {{kDLBfloat, 16, 1}, {kDLUInt, 8, 1}, {ATTNS_DL_FLOAT4_E2M1FN, 4, 2}},
    3};
static const attns_dtype_set bf16_dtype = {"bfloat16, as query is", {{kDLBfloat, 16, 1}}, 1};
static const attns_dtype_set nvfp4_dtypes = {
    "uint8 (two float4_e2m1fn in a byte) or float4_e2m1fn of 2 lanes, as query is",
    {{kDLUInt, 8, 1}, {ATTNS_DL_FLOAT4_E2M1FN, 4, 2}},
    2};
static const attns_dtype_set scale_dtypes = {
    "float8_e4m3fn, or uint8 that holds its bytes", {{ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, {kDLUInt, 8, 1}}, 2};
static const attns_dtype_set int32_dtype = {"int32", {{kDLInt, 32, 1}}, 1};
static const attns_dtype_set scores_dtype = {"float32", {{kDLFloat, 32, 1}}, 1};
static const attns_dtype_set reference_scores_dtypes = {
    "float32 or float64", {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}}, 2};

/* ---- Presence, rank, device, dtype --------------------------------------------------------------------------- */

ATTNS_COLD static attns_status fail_scales(const char *name, bool given) {
    if (given)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "%s: given, accepted: NULL, as query is bfloat16 (only NVFP4 has scales)", name);
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: is NULL, accepted: a tensor of E4M3 scales, as query is NVFP4",
                      name);
}

static attns_status read_format(const attns_indexer_scores_params *params, DLDeviceType device_type,
                                attns_indexer_args *args) {
    ATTNS_TRY(attns_tensor_check_dtype(&args->query, &query_dtypes));
    args->nvfp4 = args->query.dtype.code != kDLBfloat;
    ATTNS_TRY(attns_tensor_check_dtype(&args->key_cache, args->nvfp4 ? &nvfp4_dtypes : &bf16_dtype));
    if (!params->query_scales == args->nvfp4)
        return fail_scales("query_scales", params->query_scales != NULL);
    if (!params->key_scales == args->nvfp4)
        return fail_scales("key_scales", params->key_scales != NULL);
    if (args->nvfp4) {
        ATTNS_TRY(attns_tensor_check_dtype(&args->query_scales, &scale_dtypes));
        ATTNS_TRY(attns_tensor_check_dtype(&args->key_scales, &scale_dtypes));
    }
    ATTNS_TRY(attns_tensor_check_dtype(&args->block_table, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->context_lengths, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->requests, &int32_dtype));
    return attns_tensor_check_dtype(&args->scores, device_type == kDLCPU ? &reference_scores_dtypes : &scores_dtype);
}

static attns_status read_tensors(const attns_indexer_scores_params *params, DLDeviceType device_type,
                                 attns_indexer_args *args) {
    ATTNS_TRY(attns_tensor_read(params->query, "query", 2, 2, &args->query));
    ATTNS_TRY(attns_tensor_read(params->key_cache, "key_cache", 3, 3, &args->key_cache));
    ATTNS_TRY(attns_tensor_read(params->block_table, "block_table", 2, 2, &args->block_table));
    ATTNS_TRY(attns_tensor_read(params->context_lengths, "context_lengths", 1, 1, &args->context_lengths));
    ATTNS_TRY(attns_tensor_read(params->requests, "requests", 1, 1, &args->requests));
    ATTNS_TRY(attns_tensor_read(params->scores, "scores", 2, 2, &args->scores));
    args->query_scales.data = args->key_scales.data = NULL;
    if (params->query_scales)
        ATTNS_TRY(attns_tensor_read(params->query_scales, "query_scales", 2, 2, &args->query_scales));
    if (params->key_scales)
        ATTNS_TRY(attns_tensor_read(params->key_scales, "key_scales", 3, 3, &args->key_scales));

    const attns_tensor *const tensors[] = {
        &args->query,    &args->key_cache, &args->block_table,  &args->context_lengths,
        &args->requests, &args->scores,    &args->query_scales, &args->key_scales,
    };
    const bool given[] = {true, true, true, true, true, true, params->query_scales != NULL, params->key_scales != NULL};
    const attns_tensor *reference = &args->query;
    for (int i = 0; i < 8; i++) {
        if (!given[i])
            continue;
        ATTNS_TRY(attns_tensor_check_device(tensors[i], device_type == kDLCPU, device_type != kDLCPU));
        ATTNS_TRY(attns_tensor_check_same_device(tensors[i], reference));
        if (reference->device.device_type == kDLCUDAManaged)
            reference = tensors[i];
    }
    args->device = reference->device;
    return read_format(params, device_type, args);
}

/* ---- Shapes -------------------------------------------------------------------------------------------------- */

ATTNS_COLD static attns_status fail_groups(int64_t rows, int64_t groups) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                      "context_lengths: shape[0] (groups) is %" PRId64 " for %" PRId64
                      " rows, accepted: a divisor of the rows, with 1 to %d rows in each group",
                      groups, rows, ATTNS_INDEXER_MAX_ROWS);
}

static attns_status check_shapes(attns_indexer_args *args) {
    const int64_t row_elements = args->nvfp4 ? ATTNS_INDEXER_HEAD_DIM / 2 : ATTNS_INDEXER_HEAD_DIM;
    const char *const row_text = args->nvfp4 ? "the bytes of 128 values" : "the head dim";
    ATTNS_TRY(attns_tensor_check_range(&args->query, 0, 0, MAX_COUNT, "rows"));
    ATTNS_TRY(attns_tensor_check_dim(&args->query, 1, row_elements, row_text));
    const int64_t rows = args->rows = args->query.shape[0];
    const int64_t groups = args->groups = args->context_lengths.shape[0];
    if (rows != 0 && (groups == 0 || rows % groups != 0 || rows / groups > ATTNS_INDEXER_MAX_ROWS))
        return fail_groups(rows, groups);

    ATTNS_TRY(attns_tensor_check_range(&args->key_cache, 0, rows > 0, INT32_MAX, "pages"));
    ATTNS_TRY(attns_tensor_check_dim(&args->key_cache, 1, ATTNS_INDEXER_PAGE_KEYS, "the keys of a page"));
    ATTNS_TRY(attns_tensor_check_dim(&args->key_cache, 2, row_elements, row_text));
    if (args->nvfp4) {
        ATTNS_TRY(attns_tensor_check_dim(&args->query_scales, 0, rows, "rows of query"));
        ATTNS_TRY(attns_tensor_check_dim(&args->query_scales, 1, SCALES_PER_ROW, "one for 16 values"));
        ATTNS_TRY(attns_tensor_check_dim(&args->key_scales, 0, args->key_cache.shape[0], "pages of key_cache"));
        ATTNS_TRY(attns_tensor_check_dim(&args->key_scales, 1, ATTNS_INDEXER_PAGE_KEYS, "the keys of a page"));
        ATTNS_TRY(attns_tensor_check_dim(&args->key_scales, 2, SCALES_PER_ROW, "one for 16 values"));
    }
    ATTNS_TRY(attns_tensor_check_dim(&args->requests, 0, groups, "groups of context_lengths"));
    ATTNS_TRY(attns_tensor_check_dim(&args->scores, 0, rows, "rows of query"));
    ATTNS_TRY(attns_tensor_check_range(&args->scores, 1, 0, MAX_COUNT, "max_context"));
    args->max_context = args->scores.shape[1];
    ATTNS_TRY(attns_tensor_check_range(&args->block_table, 0, 0, INT32_MAX, "requests"));
    return attns_tensor_check_range(&args->block_table, 1,
                                    attns_min_block_table_width(args->max_context, ATTNS_INDEXER_PAGE_KEYS), INT32_MAX,
                                    "blocks, at least the pages of max_context (shape[1] of scores)");
}

/* ---- Strides and addresses ----------------------------------------------------------------------------------- */

/* Inputs are only read, so their rows may overlap or be one row repeated; pages may not. */
static attns_status check_pages(const attns_tensor *tensor, int64_t alignment) {
    ATTNS_TRY(attns_tensor_check_dense(tensor, 1));
    ATTNS_TRY(attns_tensor_check_aligned(tensor, alignment, 1));
    return attns_tensor_check_min_stride(tensor, 0, tensor->shape[1] * tensor->shape[2] * tensor->element_bytes,
                                         "the bytes of one page");
}

static attns_status check_layout(const attns_indexer_args *args) {
    ATTNS_TRY(attns_tensor_check_dense(&args->query, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->query, ROW_ALIGNMENT, 1));
    ATTNS_TRY(check_pages(&args->key_cache, ROW_ALIGNMENT));
    if (args->nvfp4) {
        ATTNS_TRY(attns_tensor_check_dense(&args->query_scales, 1));
        ATTNS_TRY(attns_tensor_check_aligned(&args->query_scales, SCALE_ALIGNMENT, 1));
        ATTNS_TRY(check_pages(&args->key_scales, SCALE_ALIGNMENT));
    }
    ATTNS_TRY(attns_tensor_check_dense(&args->block_table, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->block_table, args->block_table.element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_aligned(&args->context_lengths, args->context_lengths.element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_aligned(&args->requests, args->requests.element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_dense(&args->scores, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->scores, args->scores.element_bytes, 0));
    return attns_tensor_check_min_stride(&args->scores, 0, args->max_context * args->scores.element_bytes,
                                         "max_context (shape[1]), as rows may not overlap");
}

attns_status attns_indexer_args_read(const attns_indexer_scores_params *params, DLDeviceType device_type,
                                     attns_indexer_args *args) {
    if (!params)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "params: is NULL, accepted: a params struct");
    ATTNS_TRY(read_tensors(params, device_type, args));
    ATTNS_TRY(check_shapes(args));
    if (args->rows == 0)
        return ATTNS_OK; /* empty tensors come with strides and addresses of any kind */
    ATTNS_TRY(check_layout(args));
    args->problem = (attns_problem){.kind = args->nvfp4 ? ATTNS_KERNEL_INDEXER_NVFP4 : ATTNS_KERNEL_INDEXER_BF16};
    args->rows_per_group = args->rows / args->groups;
    args->num_pages = args->key_cache.shape[0];
    args->num_requests = args->block_table.shape[0];
    args->enable_pdl = params->enable_pdl;
    return ATTNS_OK;
}
