/* SPDX-License-Identifier: MIT
 *
 * The checked arguments of fp8_paged_mqa_logits, shared by the GPU call and the CPU reference. */
#ifndef ATTNS_OPS_FP8_ARGS_H_
#define ATTNS_OPS_FP8_ARGS_H_

#include "ops/tensor.h"
#include "plan/plan.h"

#define ATTNS_FP8_MAX_NEXT_N 8

typedef struct attns_fp8_args {
    attns_problem problem;
    int64_t batch; /* B; 0: nothing to do, the rest of the struct is not filled */
    int64_t num_blocks;
    int64_t table_width; /* W */
    int64_t max_seq_len; /* lengths are clamped to this: already min(max_seq_len, W*block_size) */
    int64_t clean_until; /* columns [limit, clean_until) get -inf; 0 without clean_logits; params->max_seq_len */
    bool per_slot_lens;  /* seq_lens is [B, next_n] */
    int64_t num_shares;  /* rows of schedule_meta - 1; 0 without one */
    attns_tensor q, kv, weights, block_tables, seq_lens, schedule_meta, out;
    DLDevice device; /* of the tensors; kDLCUDAManaged only if all are managed memory */
    bool enable_pdl;
} attns_fp8_args;

/* Checks everything CONTRACT-level: presence, dtype, rank, shape, strides, alignment, overlap, supported values.
 * `device_type` is kDLCUDA for the call (kDLCUDAManaged is accepted for it) or kDLCPU for the reference, which also
 * accepts a float64 out (out_dtype then stays F32 in the problem). The supported shapes are those of attns_plan_make's
 * documentation; the same table serves both. */
attns_status attns_fp8_args_read(const attns_fp8_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_fp8_args *args);

/* shape[dim] of `tensor` is a next_n that the kernels support. */
attns_status attns_fp8_check_next_n(const attns_tensor *tensor, int dim);

#endif
