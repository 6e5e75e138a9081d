/* SPDX-License-Identifier: MIT */
#include "ops/fp8_args.h"

#include <inttypes.h>

#include "core/error.h"

/* The shapes that the kernels are made for. */
#define HEADS_MULTIPLE 8
#define MAX_NUM_HEADS  128

/* TMA takes addresses and strides that are multiples of 16 bytes, and strides below 2^40 bytes. */
#define TMA_ALIGNMENT  16
#define TMA_MAX_STRIDE ((INT64_C(1) << 40) - TMA_ALIGNMENT)

/* The formatting of failures stays off the straight line that every call runs. */
#define COLD __attribute__((cold, noinline))

static const attns_dtype_set q_dtypes = {
    "float8_e4m3fn, or uint8 that holds its bytes (float8_e5m2 is as wide, but its bits mean other values)",
    {{ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, {kDLUInt, 8, 1}},
    2};
static const attns_dtype_set kv_dtypes = {"uint8 (float8_e4m3fn values, then float32 scales)", {{kDLUInt, 8, 1}}, 1};
static const attns_dtype_set int32_dtype = {"int32", {{kDLInt, 32, 1}}, 1};
static const attns_dtype_set float32_dtype = {"float32", {{kDLFloat, 32, 1}}, 1};
static const attns_dtype_set out_dtypes = {
    "float32, float16 or bfloat16", {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}}, 3};
static const attns_dtype_set reference_out_dtypes = {
    "float32, float16, bfloat16 or float64",
    {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}},
    4};

/* ---- Presence, rank, device, dtype --------------------------------------------------------------------------- */

static attns_status read_tensors(const attns_fp8_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_fp8_args *args) {
    ATTNS_TRY(attns_tensor_read(params->q, "q", 4, 4, &args->q));
    ATTNS_TRY(attns_tensor_read(params->kv_fused, "kv_fused", 4, 4, &args->kv));
    ATTNS_TRY(attns_tensor_read(params->weights, "weights", 2, 2, &args->weights));
    ATTNS_TRY(attns_tensor_read(params->block_tables, "block_tables", 2, 2, &args->block_tables));
    ATTNS_TRY(attns_tensor_read(params->seq_lens, "seq_lens", 1, 2, &args->seq_lens));
    ATTNS_TRY(attns_tensor_read(params->out, "out", 2, 2, &args->out));
    if (params->schedule_meta)
        ATTNS_TRY(attns_tensor_read(params->schedule_meta, "schedule_meta", 2, 2, &args->schedule_meta));
    else
        args->schedule_meta.data = NULL;

    const attns_tensor *const tensors[] = {&args->q,        &args->kv,  &args->weights,      &args->block_tables,
                                           &args->seq_lens, &args->out, &args->schedule_meta};
    const int count = params->schedule_meta ? 7 : 6;
    const attns_tensor *reference = &args->q;
    for (int i = 0; i < count; i++) {
        ATTNS_TRY(attns_tensor_check_device(tensors[i], device_type == kDLCPU, device_type != kDLCPU));
        ATTNS_TRY(attns_tensor_check_same_device(tensors[i], reference));
        if (reference->device.device_type == kDLCUDAManaged)
            reference = tensors[i];
    }
    args->device = reference->device;

    ATTNS_TRY(attns_tensor_check_dtype(&args->q, &q_dtypes));
    ATTNS_TRY(attns_tensor_check_dtype(&args->kv, &kv_dtypes));
    ATTNS_TRY(attns_tensor_check_dtype(&args->weights, &float32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->block_tables, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->seq_lens, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->out, device_type == kDLCPU ? &reference_out_dtypes : &out_dtypes));
    if (params->schedule_meta)
        ATTNS_TRY(attns_tensor_check_dtype(&args->schedule_meta, &int32_dtype));
    return ATTNS_OK;
}

/* ---- Shapes -------------------------------------------------------------------------------------------------- */

COLD static attns_status fail_unsupported(const attns_tensor *tensor, const char *meaning, int dim,
                                          const char *accepted) {
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: %s (shape[%d]) is %" PRId64 ", accepted: %s", tensor->name, meaning,
                      dim, tensor->shape[dim], accepted);
}

attns_status attns_fp8_check_next_n(const attns_tensor *tensor, int dim) {
    if (tensor->shape[dim] < 1 || tensor->shape[dim] > ATTNS_FP8_MAX_NEXT_N)
        return fail_unsupported(tensor, "next_n", dim, "1 to 8");
    return ATTNS_OK;
}

static attns_status check_supported(const attns_fp8_args *args) {
    const int64_t num_heads = args->q.shape[2];
    const int64_t head_dim = args->q.shape[3];
    const int64_t block_size = args->kv.shape[1];
    ATTNS_TRY(attns_fp8_check_next_n(&args->q, 1));
    if (num_heads < HEADS_MULTIPLE || num_heads > MAX_NUM_HEADS || num_heads % HEADS_MULTIPLE != 0)
        return fail_unsupported(&args->q, "num_heads", 2, "8 to 128 in multiples of 8");
    if (head_dim != 32 && head_dim != 64 && head_dim != 128)
        return fail_unsupported(&args->q, "head_dim", 3, "32, 64 or 128");
    if (block_size != 16 && block_size != 32 && block_size != 64 && block_size != 128 && block_size != 256)
        return fail_unsupported(&args->kv, "block_size", 1, "16, 32, 64, 128 or 256");
    return ATTNS_OK;
}

COLD static attns_status fail_max_seq_len(const attns_fp8_paged_mqa_logits_params *params, const attns_tensor *out) {
    const int64_t given = params->max_seq_len;
    if (given == 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "max_seq_len: is 0 (the width of out, %" PRId64 "), accepted: 0 to %d", out->shape[1],
                          INT32_MAX);
    if (given < 0 || given > INT32_MAX)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "max_seq_len: is %" PRId64 ", accepted: 0 to %d", given,
                          INT32_MAX);
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                      "out: shape[1] is %" PRId64 ", accepted: %" PRId64 " (max_seq_len) or more", out->shape[1],
                      given);
}

static attns_status check_shapes(const attns_fp8_paged_mqa_logits_params *params, attns_fp8_args *args) {
    ATTNS_TRY(check_supported(args));
    const int64_t batch = args->q.shape[0];
    const int64_t next_n = args->q.shape[1];
    ATTNS_TRY(attns_tensor_check_range(&args->q, 0, 0, INT32_MAX / next_n, "B, with B*next_n within int32"));
    ATTNS_TRY(attns_tensor_check_range(&args->kv, 0, batch > 0, INT32_MAX, "num_blocks"));
    ATTNS_TRY(attns_tensor_check_dim(&args->kv, 2, 1, "the single KV head"));
    ATTNS_TRY(attns_tensor_check_dim(&args->kv, 3, args->q.shape[3] + (int64_t)sizeof(float), "D+4 with D of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->weights, 0, batch * next_n, "B*next_n of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->weights, 1, args->q.shape[2], "H of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->block_tables, 0, batch, "B of q"));
    ATTNS_TRY(attns_tensor_check_range(&args->block_tables, 1, 0, INT32_MAX, "W"));
    ATTNS_TRY(attns_tensor_check_dim(&args->seq_lens, 0, batch, "B of q"));
    if (args->seq_lens.ndim == 2)
        ATTNS_TRY(attns_tensor_check_dim(&args->seq_lens, 1, next_n, "next_n of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->out, 0, batch * next_n, "B*next_n of q"));
    if (params->schedule_meta) {
        ATTNS_TRY(attns_tensor_check_range(&args->schedule_meta, 0, 2, INT32_MAX, "num_sms+1"));
        ATTNS_TRY(attns_tensor_check_dim(&args->schedule_meta, 1, 2, "a request and a tile"));
    }

    const int64_t width = args->out.shape[1];
    const int64_t max_seq_len = params->max_seq_len != 0 ? params->max_seq_len : width;
    if (max_seq_len < 0 || max_seq_len > INT32_MAX || max_seq_len > width)
        return fail_max_seq_len(params, &args->out);
    const int64_t table_tokens = args->block_tables.shape[1] * args->kv.shape[1]; /* below 2^31 * 256 */
    args->max_seq_len = max_seq_len < table_tokens ? max_seq_len : table_tokens;
    args->clean_until = params->clean_logits ? max_seq_len : 0;
    return ATTNS_OK;
}

/* ---- Strides and addresses ----------------------------------------------------------------------------------- */

/* Inputs are only read, so their rows may overlap or be one row repeated; blocks of the pool may not. */
static attns_status check_layout(const attns_fp8_paged_mqa_logits_params *params, const attns_fp8_args *args,
                                 int64_t max_seq_len) {
    ATTNS_TRY(attns_tensor_check_dense(&args->q, 2));
    ATTNS_TRY(attns_tensor_check_aligned(&args->q, TMA_ALIGNMENT, 2));
    ATTNS_TRY(attns_tensor_check_max_stride(&args->q, 0, TMA_MAX_STRIDE, "below 2^40 bytes"));
    ATTNS_TRY(attns_tensor_check_max_stride(&args->q, 1, TMA_MAX_STRIDE, "below 2^40 bytes"));

    ATTNS_TRY(attns_tensor_check_dense(&args->kv, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->kv, TMA_ALIGNMENT, 1));
    ATTNS_TRY(
        attns_tensor_check_min_stride(&args->kv, 0, args->kv.shape[1] * args->kv.shape[3], "the bytes of one block"));
    ATTNS_TRY(attns_tensor_check_max_stride(&args->kv, 0, TMA_MAX_STRIDE, "below 2^40 bytes"));

    ATTNS_TRY(attns_tensor_check_dense(&args->weights, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->weights, TMA_ALIGNMENT, 1));

    ATTNS_TRY(attns_tensor_check_dense(&args->block_tables, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->block_tables, args->block_tables.element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_aligned(&args->seq_lens, args->seq_lens.element_bytes, 0));

    ATTNS_TRY(attns_tensor_check_dense(&args->out, 1));
    ATTNS_TRY(attns_tensor_check_aligned(&args->out, args->out.element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_min_stride(&args->out, 0, max_seq_len * args->out.element_bytes,
                                            "max_seq_len, as rows may not overlap"));

    if (params->schedule_meta) {
        ATTNS_TRY(attns_tensor_check_dense(&args->schedule_meta, 0));
        ATTNS_TRY(attns_tensor_check_aligned(&args->schedule_meta, args->schedule_meta.element_bytes, 0));
    }
    return ATTNS_OK;
}

/* ---- Options ------------------------------------------------------------------------------------------------- */

static attns_status resolve_compute_dtype(const char *name, attns_dtype dtype, int32_t *resolved) {
    switch ((int)dtype) {
    case ATTNS_DTYPE_DEFAULT:
    case ATTNS_DTYPE_F32:
        *resolved = ATTNS_DTYPE_F32;
        return ATTNS_OK;
    case ATTNS_DTYPE_F16:
        *resolved = ATTNS_DTYPE_F16;
        return ATTNS_OK;
    case ATTNS_DTYPE_BF16:
        return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is bf16, accepted: default (f32), f32 or f16", name);
    default:
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: is %d, accepted: 0 (default, f32), 1 (f32) or 2 (f16)",
                          name, (int)dtype);
    }
}

static int32_t out_dtype(const attns_tensor *out) {
    if (out->dtype.code == kDLBfloat)
        return ATTNS_DTYPE_BF16;
    return out->dtype.bits == 16 ? ATTNS_DTYPE_F16 : ATTNS_DTYPE_F32;
}

attns_status attns_fp8_args_read(const attns_fp8_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_fp8_args *args) {
    if (!params)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "params: is NULL, accepted: a params struct");
    ATTNS_TRY(read_tensors(params, device_type, args));
    ATTNS_TRY(check_shapes(params, args));
    ATTNS_TRY(resolve_compute_dtype("acc_dtype", params->acc_dtype, &args->problem.acc_dtype));
    ATTNS_TRY(resolve_compute_dtype("epi_dtype", params->epi_dtype, &args->problem.epi_dtype));
    args->batch = args->q.shape[0];
    if (args->batch == 0)
        return ATTNS_OK; /* empty tensors come with strides and addresses of any kind */

    const int64_t max_seq_len = params->max_seq_len != 0 ? params->max_seq_len : args->out.shape[1];
    ATTNS_TRY(check_layout(params, args, max_seq_len));

    args->problem.kind = ATTNS_KERNEL_FP8_LOGITS;
    args->problem.num_heads = (int32_t)args->q.shape[2];
    args->problem.head_dim = (int32_t)args->q.shape[3];
    args->problem.block_size = (int32_t)args->kv.shape[1];
    args->problem.next_n = (int32_t)args->q.shape[1];
    args->problem.out_dtype = out_dtype(&args->out);
    args->num_blocks = args->kv.shape[0];
    args->table_width = args->block_tables.shape[1];
    args->per_slot_lens = args->seq_lens.ndim == 2;
    args->num_shares = params->schedule_meta ? args->schedule_meta.shape[0] - 1 : 0;
    args->enable_pdl = params->enable_pdl;
    return ATTNS_OK;
}
