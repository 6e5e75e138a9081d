/* SPDX-License-Identifier: MIT
 *
 * The checked arguments of a logits operation, whatever its variant: what the GPU calls hand to src/launch/, and what
 * the CPU references compute from. */
#ifndef ATTNS_OPS_LOGITS_ARGS_H_
#define ATTNS_OPS_LOGITS_ARGS_H_

#include "ops/tensor.h"
#include "plan/plan.h"

typedef struct attns_logits_args {
    attns_problem problem;
    int64_t batch; /* B; 0: nothing to do, only `problem` is filled besides */
    int64_t num_blocks;
    int64_t table_width; /* W */
    int64_t max_seq_len; /* lengths are clamped to this: already min(max_seq_len, W*block_size) */
    int64_t clean_until; /* columns [limit, clean_until) get -inf; 0 without clean_logits; params->max_seq_len */
    bool per_slot_lens;  /* seq_lens is [B, next_n] */
    int64_t num_shares;  /* rows of schedule_meta - 1; 0 without one */
    attns_tensor q, kv, weights, block_tables, seq_lens, schedule_meta, out;
    attns_tensor q_sf; /* fp4 only */
    DLDevice device;   /* of the tensors; kDLCUDAManaged only if all are managed memory */
    bool enable_pdl;
} attns_logits_args;

/* Check everything CONTRACT-level: presence, dtype, rank, shape, strides, alignment, overlap, supported values
 * (src/plan/supported.h). `device_type` is kDLCUDA for the call (kDLCUDAManaged is accepted for it) or kDLCPU for the
 * reference, which also accepts a float64 out (out_dtype then stays F32 in the problem). */
attns_status attns_fp8_args_read(const attns_fp8_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_logits_args *args);
attns_status attns_fp4_args_read(const attns_fp4_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_logits_args *args);

/* What the variants' params structs have in common, and how their tensors differ. */
typedef struct attns_logits_inputs {
    attns_kernel_kind kind;
    const DLTensor *q, *q_sf, *kv_fused, *weights, *block_tables, *seq_lens, *schedule_meta, *out;
    int64_t max_seq_len;
    bool clean_logits, enable_pdl;
    const attns_dtype_set *q_dtypes, *kv_dtypes;
    int values_per_byte;     /* of q and kv_fused */
    int values_per_scale;    /* of kv_fused; 0: all of a token's */
    int scale_bytes;         /* of one scale */
    const char *kv_dim_text; /* explains the last dim of kv_fused in messages */
} attns_logits_inputs;

/* The checks that all variants share; for the two functions above. Options of a variant are left to them. */
attns_status attns_logits_args_read(const attns_logits_inputs *inputs, DLDeviceType device_type,
                                    attns_logits_args *args);

/* shape[dim] of `tensor` is a next_n that the kernels support. */
attns_status attns_check_next_n(const attns_tensor *tensor, int dim);

#endif
