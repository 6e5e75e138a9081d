/* SPDX-License-Identifier: MIT
 *
 * The tensors of a case as the library takes them. */
#include <string.h>

#include "common/case.h"

static DLTensor tensor(void *data, DLDevice device, uint8_t code, uint8_t bits, int ndim, int64_t *shape,
                       int64_t *strides) {
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device = device;
    t.ndim = ndim;
    t.dtype.code = code;
    t.dtype.bits = bits;
    t.dtype.lanes = 1;
    t.shape = shape;
    t.strides = strides;
    return t;
}

static void set_dims(int64_t *to, int64_t a, int64_t b, int64_t c, int64_t d) {
    to[0] = a;
    to[1] = b;
    to[2] = c;
    to[3] = d;
}

static void set_3d(int64_t *to, int64_t a, int64_t b, int64_t c) {
    to[0] = a;
    to[1] = b;
    to[2] = c;
}

static void set_2d(int64_t *to, int64_t a, int64_t b) {
    to[0] = a;
    to[1] = b;
}

void logits_tensors_make(struct logits_tensors *t, struct logits_call *call, const struct logits_data *d,
                         DLDevice device, const struct logits_addresses *at) {
    const struct logits_case *c = &d->c;
    bool fp4 = c->variant == ATTNS_VARIANT_FP4;
    int64_t rows = (int64_t)c->batch * c->next_n, token_bytes = d->value_bytes + d->scale_bytes;
    set_dims(t->q_shape, c->batch, c->next_n, c->heads, d->value_bytes);
    set_dims(t->q_strides, d->q_request_stride, d->q_slot_stride, d->value_bytes, 1);
    t->q = tensor(at->q, device, fp4 ? kDLUInt : ATTNS_DL_FLOAT8_E4M3FN, 8, 4, t->q_shape, t->q_strides);
    set_3d(t->q_sf_shape, c->batch, c->next_n, c->heads);
    set_3d(t->q_sf_strides, d->q_sf_request_stride, d->q_sf_slot_stride, 1);
    t->q_sf = tensor(at->q_sf, device, kDLInt, 32, 3, t->q_sf_shape, t->q_sf_strides);
    set_dims(t->kv_shape, d->num_blocks, c->block_size, 1, token_bytes);
    set_dims(t->kv_strides, d->kv_stride, token_bytes, token_bytes, 1);
    t->kv = tensor(at->kv, device, kDLUInt, 8, 4, t->kv_shape, t->kv_strides);
    set_2d(t->weights_shape, rows, c->heads);
    set_2d(t->weights_strides, d->weights_stride, 1);
    t->weights = tensor(at->weights, device, kDLFloat, 32, 2, t->weights_shape, t->weights_strides);
    set_2d(t->tables_shape, c->batch, d->table_width);
    set_2d(t->tables_strides, d->table_stride, 1);
    t->tables = tensor(at->tables, device, kDLInt, 32, 2, t->tables_shape, t->tables_strides);
    set_2d(t->lens_shape, c->batch, c->next_n);
    if (c->per_slot_lens)
        set_2d(t->lens_strides, d->lens_request_stride, d->lens_stride);
    else
        set_2d(t->lens_strides, d->lens_stride, 1);
    t->lens = tensor(at->lens, device, kDLInt, 32, c->per_slot_lens ? 2 : 1, t->lens_shape, t->lens_strides);
    set_2d(t->meta_shape, c->num_shares + 1, 2);
    t->meta = tensor(at->meta, device, kDLInt, 32, 2, t->meta_shape, NULL);
    set_2d(t->out_shape, rows, d->out_width);
    set_2d(t->out_strides, d->out_stride, 1);
    t->out = tensor(at->out, device, c->out_dtype == ATTNS_DTYPE_BF16 ? kDLBfloat : kDLFloat,
                    (uint8_t)(8 * d->out_element_bytes), 2, t->out_shape, t->out_strides);

    memset(call, 0, sizeof *call);
    call->variant = c->variant;
    call->fp8 = (attns_fp8_paged_mqa_logits_params){
        .q = &t->q,
        .kv_fused = &t->kv,
        .weights = &t->weights,
        .block_tables = &t->tables,
        .seq_lens = &t->lens,
        .schedule_meta = at->meta ? &t->meta : NULL,
        .out = &t->out,
        .max_seq_len = d->max_seq_len,
        .acc_dtype = c->acc_dtype,
        .epi_dtype = c->epi_dtype,
        .clean_logits = c->clean,
        .enable_pdl = c->pdl,
    };
    call->fp4 = (attns_fp4_paged_mqa_logits_params){
        .q = &t->q,
        .q_sf = &t->q_sf,
        .kv_fused = &t->kv,
        .weights = &t->weights,
        .block_tables = &t->tables,
        .seq_lens = &t->lens,
        .schedule_meta = at->meta ? &t->meta : NULL,
        .out = &t->out,
        .max_seq_len = d->max_seq_len,
        .is_kv_sf_interleaved = c->sf_interleaved,
        .clean_logits = c->clean,
        .enable_pdl = c->pdl,
    };
}

attns_status logits_call_run(attns_context *ctx, const struct logits_call *call, CUstream stream) {
    return call->variant == ATTNS_VARIANT_FP4 ? attns_fp4_paged_mqa_logits(ctx, &call->fp4, stream)
                                              : attns_fp8_paged_mqa_logits(ctx, &call->fp8, stream);
}

attns_status logits_call_reference(const struct logits_call *call, const DLTensor *abs_sum) {
    return call->variant == ATTNS_VARIANT_FP4 ? attns_reference_fp4_paged_mqa_logits(&call->fp4, abs_sum)
                                              : attns_reference_fp8_paged_mqa_logits(&call->fp8, abs_sum);
}
