/* SPDX-License-Identifier: MIT */
#include <attn_scores/python.h>

#include "core/error.h"

static attns_python_api python;

void attns_python_bind(const attns_python_api *api) {
    python = *api;
}

static attns_status operate(const attns_python_call *call, CUstream stream) {
    switch (call->operation) {
    case ATTNS_OPERATION_FP8_PAGED_MQA_LOGITS:
        return attns_fp8_paged_mqa_logits(call->ctx, call->params, stream);
    case ATTNS_OPERATION_FP4_PAGED_MQA_LOGITS:
        return attns_fp4_paged_mqa_logits(call->ctx, call->params, stream);
    case ATTNS_OPERATION_COMPUTE_PAGED_MQA_LOGITS_SCHEDULE:
        return attns_compute_paged_mqa_logits_schedule(call->ctx, call->params, stream);
    case ATTNS_OPERATION_INDEXER_SCORES:
        return attns_indexer_scores(call->ctx, call->params, stream);
    }
    return attns_fail(ATTNS_ERROR_INTERNAL, "operation: is %d, accepted: 1 to 4", (int)call->operation);
}

static int64_t max_seq_len(const attns_python_call *call) {
    if (call->operation == ATTNS_OPERATION_FP8_PAGED_MQA_LOGITS)
        return ((const attns_fp8_paged_mqa_logits_params *)call->params)->max_seq_len;
    return ((const attns_fp4_paged_mqa_logits_params *)call->params)->max_seq_len;
}

/* What out is described with where it is larger than what the operation writes. */
typedef struct out_part {
    int64_t shape[2], strides[2];
} out_part;

/* Whether out is larger; then its DLTensor describes the part that is written. What is wrong with q and out in other
 * ways is for the operation to say. */
static bool cut_out(const attns_python_call *call, out_part *part) {
    const DLTensor *const q = &call->tensors[0];
    DLTensor *const out = &call->tensors[call->count - 1];
    if (q->ndim != 4 || out->ndim != 2)
        return false;
    const int64_t rows = q->shape[0] * q->shape[1], columns = max_seq_len(call);
    const int64_t given_rows = out->shape[0], given_columns = out->shape[1];
    if (given_rows < rows || given_columns < columns || (given_rows == rows && given_columns == columns))
        return false;
    part->shape[0] = rows;
    part->shape[1] = columns;
    part->strides[0] = out->strides ? out->strides[0] : given_columns;
    part->strides[1] = out->strides ? out->strides[1] : 1;
    out->shape = part->shape;
    out->strides = part->strides;
    return true;
}

static bool is_dtype(DLDataType a, DLDataType b) {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* A METH_FASTCALL function (PyCFunctionFast). */
static void *call_objects(void *self, void *const *objects, ptrdiff_t count) {
    const attns_python_call *const call = python.capsule_get_pointer(self, NULL);
    if (!call)
        return NULL;
    if (count != (ptrdiff_t)call->count)
        return python.long_from_long(
            attns_fail(ATTNS_ERROR_INTERNAL, "objects: are %td, accepted: %zu", count, call->count));
    for (size_t i = 0; i < call->count; i++)
        if (call->describe(objects[i], &call->tensors[i]) != 0)
            return NULL;

    bool in_part = false;
    out_part part; /* until the operation has returned */
    if (call->out_dtype.bits) {
        if (!is_dtype(call->tensors[call->count - 1].dtype, call->out_dtype))
            return python.long_from_long(ATTNS_PYTHON_OUT_DTYPE);
        in_part = cut_out(call, &part);
    }

    void *stream = call->stream;
    const DLDevice device = call->tensors[0].device;
    if (call->current_stream && device.device_type == kDLCUDA &&
        call->current_stream(device.device_type, device.device_id, &stream) != 0)
        return NULL;

    void *const thread_state = python.eval_save_thread();
    const attns_status status = operate(call, stream);
    python.eval_restore_thread(thread_state);
    return python.long_from_long(status == ATTNS_OK && in_part ? ATTNS_PYTHON_OUT_IN_PART : (long)status);
}

/* PyMethodDef of Python's stable ABI. */
typedef struct method_definition {
    const char *name;
    void *(*function)(void *self, void *const *objects, ptrdiff_t count);
    int flags;
    const char *doc;
} method_definition;

#define PYTHON_METH_FASTCALL 0x80 /* Include/methodobject.h */

static method_definition definition = {
    .name = "attns_operation", .function = call_objects, .flags = PYTHON_METH_FASTCALL};

void *attns_python_function(attns_python_call *call) {
    void *const capsule = python.capsule_new(call, NULL, NULL);
    if (!capsule)
        return NULL;
    void *const function = python.cfunction_new(&definition, capsule, NULL);
    python.dec_ref(capsule);
    return function;
}
