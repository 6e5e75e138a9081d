/* SPDX-License-Identifier: MIT */
#include "ops/logits_args.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/error.h"
#include "plan/supported.h"

/* TMA takes addresses and strides that are multiples of 16 bytes, and strides below 2^40 bytes. */
#define TMA_ALIGNMENT  16
#define TMA_MAX_STRIDE ((INT64_C(1) << 40) - TMA_ALIGNMENT)

static const attns_dtype_set int32_dtype = {"int32", {{kDLInt, 32, 1}}, 1};
static const attns_dtype_set float32_dtype = {"float32", {{kDLFloat, 32, 1}}, 1};
static const attns_dtype_set out_dtypes = {
    "float32, float16 or bfloat16", {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}}, 3};
static const attns_dtype_set reference_out_dtypes = {
    "float32, float16, bfloat16 or float64",
    {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}},
    4};

/* ---- Presence, rank, device, dtype --------------------------------------------------------------------------- */

static attns_status read_tensors(const attns_logits_inputs *inputs, DLDeviceType device_type, attns_logits_args *args) {
    ATTNS_TRY(attns_tensor_read(inputs->q, "q", 4, 4, &args->q));
    if (inputs->kind == ATTNS_KERNEL_FP4_LOGITS)
        ATTNS_TRY(attns_tensor_read(inputs->q_sf, "q_sf", 3, 3, &args->q_sf));
    ATTNS_TRY(attns_tensor_read(inputs->kv_fused, "kv_fused", 4, 4, &args->kv));
    ATTNS_TRY(attns_tensor_read(inputs->weights, "weights", 2, 2, &args->weights));
    ATTNS_TRY(attns_tensor_read(inputs->block_tables, "block_tables", 2, 2, &args->block_tables));
    ATTNS_TRY(attns_tensor_read(inputs->seq_lens, "seq_lens", 1, 2, &args->seq_lens));
    ATTNS_TRY(attns_tensor_read(inputs->out, "out", 2, 2, &args->out));
    if (inputs->schedule_meta)
        ATTNS_TRY(attns_tensor_read(inputs->schedule_meta, "schedule_meta", 2, 2, &args->schedule_meta));
    else
        args->schedule_meta.data = NULL;

    const attns_tensor *tensors[8] = {&args->q,        &args->kv,  &args->weights, &args->block_tables,
                                      &args->seq_lens, &args->out, NULL,           NULL};
    int count = 6;
    if (inputs->kind == ATTNS_KERNEL_FP4_LOGITS)
        tensors[count++] = &args->q_sf;
    if (inputs->schedule_meta)
        tensors[count++] = &args->schedule_meta;
    const attns_tensor *reference = &args->q;
    for (int i = 0; i < count; i++) {
        ATTNS_TRY(attns_tensor_check_device(tensors[i], device_type == kDLCPU, device_type != kDLCPU));
        ATTNS_TRY(attns_tensor_check_same_device(tensors[i], reference));
        if (reference->device.device_type == kDLCUDAManaged)
            reference = tensors[i];
    }
    args->device = reference->device;

    ATTNS_TRY(attns_tensor_check_dtype(&args->q, inputs->q_dtypes));
    if (inputs->kind == ATTNS_KERNEL_FP4_LOGITS)
        ATTNS_TRY(attns_tensor_check_dtype(&args->q_sf, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->kv, inputs->kv_dtypes));
    ATTNS_TRY(attns_tensor_check_dtype(&args->weights, &float32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->block_tables, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->seq_lens, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(&args->out, device_type == kDLCPU ? &reference_out_dtypes : &out_dtypes));
    if (inputs->schedule_meta)
        ATTNS_TRY(attns_tensor_check_dtype(&args->schedule_meta, &int32_dtype));
    return ATTNS_OK;
}

/* ---- Shapes -------------------------------------------------------------------------------------------------- */

ATTNS_COLD static attns_status fail_unsupported(const attns_tensor *tensor, int dim, int values_per_element,
                                                const attns_shape_rule *rule) {
    char factor[16] = "";
    if (values_per_element > 1)
        snprintf(factor, sizeof factor, "%d * ", values_per_element);
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: %s (%sshape[%d]) is %" PRId64 ", accepted: %s", tensor->name,
                      rule->name, factor, dim, values_per_element * tensor->shape[dim], rule->accepted);
}

static attns_status check_shape_field(attns_kernel_kind kind, attns_shape_field field, const attns_tensor *tensor,
                                      int dim, int values_per_element) {
    const attns_shape_rule *const rule = attns_shape_rule_of(kind, field);
    /* Where the product would not fit, the factor alone is too large. */
    const int64_t shape = tensor->shape[dim];
    if (!attns_shape_accepts(rule, shape > rule->max ? shape : values_per_element * shape))
        return fail_unsupported(tensor, dim, shape > rule->max ? 1 : values_per_element, rule);
    return ATTNS_OK;
}

attns_status attns_check_next_n(const attns_tensor *tensor, int dim) {
    return check_shape_field(ATTNS_KERNEL_FP8_LOGITS, ATTNS_SHAPE_NEXT_N, tensor, dim, 1);
}

static attns_status check_supported(const attns_logits_inputs *inputs, const attns_logits_args *args) {
    const attns_kernel_kind kind = inputs->kind;
    ATTNS_TRY(check_shape_field(kind, ATTNS_SHAPE_NEXT_N, &args->q, 1, 1));
    ATTNS_TRY(check_shape_field(kind, ATTNS_SHAPE_NUM_HEADS, &args->q, 2, 1));
    ATTNS_TRY(check_shape_field(kind, ATTNS_SHAPE_HEAD_DIM, &args->q, 3, inputs->values_per_byte));
    return check_shape_field(kind, ATTNS_SHAPE_BLOCK_SIZE, &args->kv, 1, 1);
}

ATTNS_COLD static attns_status fail_max_seq_len(int64_t given, const attns_tensor *out) {
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

static attns_status check_q_sf(const attns_logits_args *args) {
    ATTNS_TRY(attns_tensor_check_dim(&args->q_sf, 0, args->q.shape[0], "B of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->q_sf, 1, args->q.shape[1], "next_n of q"));
    return attns_tensor_check_dim(&args->q_sf, 2, args->q.shape[2], "H of q");
}

static attns_status check_shapes(const attns_logits_inputs *inputs, attns_logits_args *args) {
    ATTNS_TRY(check_supported(inputs, args));
    const int64_t batch = args->q.shape[0];
    const int64_t next_n = args->q.shape[1];
    const int64_t head_dim = args->q.shape[3] * inputs->values_per_byte;
    const int64_t scales = inputs->values_per_scale ? head_dim / inputs->values_per_scale : 1;
    const int64_t token_bytes = args->q.shape[3] + scales * inputs->scale_bytes;
    ATTNS_TRY(attns_tensor_check_range(&args->q, 0, 0, INT32_MAX / (int32_t)next_n, "B, with B*next_n within int32"));
    if (inputs->kind == ATTNS_KERNEL_FP4_LOGITS)
        ATTNS_TRY(check_q_sf(args));
    ATTNS_TRY(attns_tensor_check_range(&args->kv, 0, batch > 0, INT32_MAX, "num_blocks"));
    ATTNS_TRY(attns_tensor_check_dim(&args->kv, 2, 1, "the single KV head"));
    ATTNS_TRY(attns_tensor_check_dim(&args->kv, 3, token_bytes, inputs->kv_dim_text));
    ATTNS_TRY(attns_tensor_check_dim(&args->weights, 0, batch * next_n, "B*next_n of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->weights, 1, args->q.shape[2], "H of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->block_tables, 0, batch, "B of q"));
    ATTNS_TRY(attns_tensor_check_range(&args->block_tables, 1, 0, INT32_MAX, "W"));
    ATTNS_TRY(attns_tensor_check_dim(&args->seq_lens, 0, batch, "B of q"));
    if (args->seq_lens.ndim == 2)
        ATTNS_TRY(attns_tensor_check_dim(&args->seq_lens, 1, next_n, "next_n of q"));
    ATTNS_TRY(attns_tensor_check_dim(&args->out, 0, batch * next_n, "B*next_n of q"));
    if (inputs->schedule_meta) {
        ATTNS_TRY(attns_tensor_check_range(&args->schedule_meta, 0, 2, INT32_MAX, "num_sms+1"));
        ATTNS_TRY(attns_tensor_check_dim(&args->schedule_meta, 1, 2, "a request and a tile"));
    }

    const int64_t width = args->out.shape[1];
    const int64_t max_seq_len = inputs->max_seq_len != 0 ? inputs->max_seq_len : width;
    if (max_seq_len < 0 || max_seq_len > INT32_MAX || max_seq_len > width)
        return fail_max_seq_len(inputs->max_seq_len, &args->out);
    const int64_t table_tokens = args->block_tables.shape[1] * args->kv.shape[1]; /* below 2^31 * 256 */
    args->max_seq_len = max_seq_len < table_tokens ? max_seq_len : table_tokens;
    args->clean_until = inputs->clean_logits ? max_seq_len : 0;
    return ATTNS_OK;
}

/* ---- Strides and addresses ----------------------------------------------------------------------------------- */

/* Inputs are only read, so their rows may overlap or be one row repeated; blocks of the pool may not. */
static attns_status check_layout(const attns_logits_inputs *inputs, const attns_logits_args *args,
                                 int64_t max_seq_len) {
    ATTNS_TRY(attns_tensor_check_dense(&args->q, 2));
    ATTNS_TRY(attns_tensor_check_aligned(&args->q, TMA_ALIGNMENT, 2));
    ATTNS_TRY(attns_tensor_check_max_stride(&args->q, 0, TMA_MAX_STRIDE, "below 2^40 bytes"));
    ATTNS_TRY(attns_tensor_check_max_stride(&args->q, 1, TMA_MAX_STRIDE, "below 2^40 bytes"));

    if (inputs->kind == ATTNS_KERNEL_FP4_LOGITS) {
        ATTNS_TRY(attns_tensor_check_dense(&args->q_sf, 2));
        ATTNS_TRY(attns_tensor_check_aligned(&args->q_sf, TMA_ALIGNMENT, 2));
        ATTNS_TRY(attns_tensor_check_max_stride(&args->q_sf, 0, TMA_MAX_STRIDE, "below 2^40 bytes"));
        ATTNS_TRY(attns_tensor_check_max_stride(&args->q_sf, 1, TMA_MAX_STRIDE, "below 2^40 bytes"));
    }

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

    if (inputs->schedule_meta) {
        ATTNS_TRY(attns_tensor_check_dense(&args->schedule_meta, 0));
        ATTNS_TRY(attns_tensor_check_aligned(&args->schedule_meta, args->schedule_meta.element_bytes, 0));
    }
    return ATTNS_OK;
}

/* ---- All together -------------------------------------------------------------------------------------------- */

static int32_t out_dtype(const attns_tensor *out) {
    if (out->dtype.code == kDLBfloat)
        return ATTNS_DTYPE_BF16;
    return out->dtype.bits == 16 ? ATTNS_DTYPE_F16 : ATTNS_DTYPE_F32;
}

attns_status attns_logits_args_read(const attns_logits_inputs *inputs, DLDeviceType device_type,
                                    attns_logits_args *args) {
    ATTNS_TRY(read_tensors(inputs, device_type, args));
    ATTNS_TRY(check_shapes(inputs, args));
    args->problem = (attns_problem){
        .kind = inputs->kind,
        .num_heads = (int32_t)args->q.shape[2],
        .head_dim = (int32_t)args->q.shape[3] * inputs->values_per_byte,
        .block_size = (int32_t)args->kv.shape[1],
        .next_n = (int32_t)args->q.shape[1],
        .out_dtype = out_dtype(&args->out),
    };
    args->batch = args->q.shape[0];
    if (args->batch == 0)
        return ATTNS_OK; /* empty tensors come with strides and addresses of any kind */

    const int64_t max_seq_len = inputs->max_seq_len != 0 ? inputs->max_seq_len : args->out.shape[1];
    ATTNS_TRY(check_layout(inputs, args, max_seq_len));
    args->num_blocks = args->kv.shape[0];
    args->table_width = args->block_tables.shape[1];
    args->per_slot_lens = args->seq_lens.ndim == 2;
    args->num_shares = inputs->schedule_meta ? args->schedule_meta.shape[0] - 1 : 0;
    args->enable_pdl = inputs->enable_pdl;
    return ATTNS_OK;
}
