/* SPDX-License-Identifier: MIT
 *
 * The checked arguments of indexer_scores, shared by the GPU call and the CPU reference. */
#ifndef ATTNS_OPS_INDEXER_ARGS_H_
#define ATTNS_OPS_INDEXER_ARGS_H_

#include "ops/tensor.h"
#include "plan/plan.h"

#define ATTNS_INDEXER_HEAD_DIM   128
#define ATTNS_INDEXER_PAGE_KEYS  64
#define ATTNS_INDEXER_MAX_ROWS   8  /* of a group */
#define ATTNS_INDEXER_SCALE_SIZE 16 /* values that share a scale */

typedef struct attns_indexer_args {
    attns_problem problem;
    bool nvfp4;
    int64_t rows;   /* 0: nothing to do, the rest of the struct is not filled */
    int64_t groups; /* rows / groups is 1 to 8 */
    int64_t rows_per_group;
    int64_t num_pages, num_requests;
    int64_t max_context; /* lengths are clamped to this; the block table covers it */
    attns_tensor query, query_scales, key_cache, key_scales, block_table, context_lengths, requests, scores;
    DLDevice device; /* of the tensors; kDLCUDAManaged only if all are managed memory */
    bool enable_pdl;
} attns_indexer_args;

/* Checks presence, dtype, rank, shape, strides, alignment and overlap. `device_type` is kDLCUDA for the call
 * (kDLCUDAManaged is accepted for it) or kDLCPU for the reference, which also accepts float64 scores. */
attns_status attns_indexer_args_read(const attns_indexer_scores_params *params, DLDeviceType device_type,
                                     attns_indexer_args *args);

#endif
