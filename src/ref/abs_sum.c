/* SPDX-License-Identifier: MIT */
#include "ref/abs_sum.h"

#include <stdio.h>

static const attns_dtype_set float64_dtype = {"float64", {{kDLFloat, 64, 1}}, 1};

attns_status attns_abs_sum_read(const DLTensor *abs_sum, const attns_tensor *out, attns_tensor *tensor) {
    tensor->data = NULL;
    if (!abs_sum)
        return ATTNS_OK;
    char rows[32], columns[32];
    snprintf(rows, sizeof rows, "rows of %s", out->name);
    snprintf(columns, sizeof columns, "columns of %s", out->name);
    ATTNS_TRY(attns_tensor_read(abs_sum, "abs_sum", 2, 2, tensor));
    ATTNS_TRY(attns_tensor_check_device(tensor, true, false));
    ATTNS_TRY(attns_tensor_check_dtype(tensor, &float64_dtype));
    ATTNS_TRY(attns_tensor_check_dim(tensor, 0, out->shape[0], rows));
    ATTNS_TRY(attns_tensor_check_dim(tensor, 1, out->shape[1], columns));
    if (out->shape[0] == 0)
        return ATTNS_OK;
    ATTNS_TRY(attns_tensor_check_dense(tensor, 1));
    ATTNS_TRY(attns_tensor_check_aligned(tensor, tensor->element_bytes, 0));
    return attns_tensor_check_min_stride(tensor, 0, tensor->shape[1] * tensor->element_bytes,
                                         "its columns, as rows may not overlap");
}
