/* SPDX-License-Identifier: MIT */
#include "ops/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"

#define MAX_DIMS    4
#define TEXT_LENGTH 48

/* ---- Texts --------------------------------------------------------------------------------------------------- */

static const char *const float_kinds[] = {
    [7] = "float8_e3m4",      [8] = "float8_e4m3",    [9] = "float8_e4m3b11fnuz", [10] = "float8_e4m3fn",
    [11] = "float8_e4m3fnuz", [12] = "float8_e5m2",   [13] = "float8_e5m2fnuz",   [14] = "float8_e8m0fnu",
    [15] = "float6_e2m3fn",   [16] = "float6_e3m2fn", [17] = "float4_e2m1fn",
};

static void format_dtype(DLDataType dtype, char text[TEXT_LENGTH]) {
    static const char *const sized_kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    char lanes[8] = "";
    if (dtype.lanes != 1)
        snprintf(lanes, sizeof lanes, "x%u", (unsigned)dtype.lanes);
    if (dtype.code < sizeof sized_kinds / sizeof sized_kinds[0])
        snprintf(text, TEXT_LENGTH, "%s%u%s", sized_kinds[dtype.code], (unsigned)dtype.bits, lanes);
    else if (dtype.code < sizeof float_kinds / sizeof float_kinds[0])
        snprintf(text, TEXT_LENGTH, "%s%s", float_kinds[dtype.code], lanes);
    else
        snprintf(text, TEXT_LENGTH, "DLPack code %u of %u bits%s", (unsigned)dtype.code, (unsigned)dtype.bits, lanes);
}

static void format_device(DLDevice device, char text[TEXT_LENGTH]) {
    const int id = device.device_id;
    switch ((int)device.device_type) {
    case kDLCPU:
        snprintf(text, TEXT_LENGTH, "cpu");
        break;
    case kDLCUDA:
        snprintf(text, TEXT_LENGTH, "cuda:%d", id);
        break;
    case kDLCUDAHost:
        snprintf(text, TEXT_LENGTH, "cuda_host");
        break;
    case kDLCUDAManaged:
        snprintf(text, TEXT_LENGTH, "cuda_managed");
        break;
    case kDLROCM:
        snprintf(text, TEXT_LENGTH, "rocm:%d", id);
        break;
    default:
        snprintf(text, TEXT_LENGTH, "DLPack device type %d, id %d", (int)device.device_type, id);
        break;
    }
}

/* ---- Failures ------------------------------------------------------------------------------------------------ */

ATTNS_COLD static attns_status fail_null(const char *name, const char *what, const char *accepted) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: %sis NULL, accepted: %s", name, what, accepted);
}

ATTNS_COLD static attns_status fail_rank(const char *name, int ndim, int min_ndim, int max_ndim) {
    char range[TEXT_LENGTH];
    if (min_ndim == max_ndim)
        snprintf(range, sizeof range, "%d", min_ndim);
    else
        snprintf(range, sizeof range, "%d to %d", min_ndim, max_ndim);
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: rank is %d, accepted: %s", name, ndim, range);
}

ATTNS_COLD static attns_status fail_dtype(const char *name, DLDataType dtype, const char *accepted) {
    char text[TEXT_LENGTH];
    format_dtype(dtype, text);
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: dtype is %s, accepted: %s", name, text, accepted);
}

ATTNS_COLD static attns_status fail_dim(const char *name, int dim, const char *property, int64_t value,
                                        const char *accepted) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %" PRId64 ", accepted: %s", name, property, dim,
                      value, accepted);
}

ATTNS_COLD static attns_status fail_extent(const char *name, int dim, int64_t shape, int64_t stride) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                      "%s: shape[%d] is %" PRId64 " with stride %" PRId64
                      ", accepted: a tensor that spans less than 2^63 bytes",
                      name, dim, shape, stride);
}

/* ---- Checks -------------------------------------------------------------------------------------------------- */

attns_status attns_tensor_read(const DLTensor *tensor, const char *name, int min_ndim, int max_ndim,
                               attns_tensor *out) {
    if (!tensor)
        return fail_null(name, "", "a tensor");
    const int ndim = tensor->ndim;
    if (ndim < min_ndim || ndim > max_ndim || ndim > MAX_DIMS)
        return fail_rank(name, ndim, min_ndim, max_ndim);
    const bool is_packed_pair = tensor->dtype.lanes == 2 && tensor->dtype.bits == 4;
    if (tensor->dtype.lanes != 1 && !is_packed_pair)
        return fail_dtype(name, tensor->dtype, "a dtype of 1 lane");
    if (!tensor->shape)
        return fail_null(name, "shape ", "an array of rank lengths");

    out->name = name;
    out->ndim = ndim;
    out->dtype = tensor->dtype;
    out->device = tensor->device;
    out->element_bytes = is_packed_pair ? 1 : (tensor->dtype.bits + 7) / 8;

    /* `compact` is the stride of a dimension whose inner ones are packed, `end` the offset behind the last element. */
    const int64_t *const strides = tensor->strides;
    const int64_t element_bytes = out->element_bytes;
    int64_t compact = element_bytes;
    int64_t end = element_bytes;
    bool empty = false;
    for (int dim = ndim - 1; dim >= 0; dim--) {
        const int64_t shape = tensor->shape[dim];
        int64_t stride = compact;
        if (shape > 1) {
            int64_t span;
            if (strides && strides[dim] < 0)
                return fail_dim(name, dim, "stride", strides[dim], "0 or more");
            if ((strides && __builtin_mul_overflow(strides[dim], element_bytes, &stride)) ||
                __builtin_mul_overflow(shape - 1, stride, &span) || __builtin_add_overflow(end, span, &end))
                return fail_extent(name, dim, shape, strides ? strides[dim] : stride / element_bytes);
            if (__builtin_mul_overflow(compact, shape, &compact))
                compact = INT64_MAX; /* reached by broadcast shapes only; as a stride it is refused above */
        } else if (shape < 0) {
            return fail_dim(name, dim, "shape", shape, "0 or more");
        } else if (shape == 0) {
            empty = true;
        }
        out->shape[dim] = shape;
        out->stride[dim] = stride;
    }

    if (!tensor->data && !empty)
        return fail_null(name, "data ", "the address of the elements");
    out->data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    return ATTNS_OK;
}

attns_status attns_tensor_check_dtype(const attns_tensor *tensor, const attns_dtype_set *set) {
    const DLDataType given = tensor->dtype;
    for (int i = 0; i < set->count; i++)
        if (memcmp(&given, &set->types[i], sizeof given) == 0)
            return ATTNS_OK;
    return fail_dtype(tensor->name, given, set->accepted);
}

attns_status attns_tensor_fail_dim(const attns_tensor *tensor, int dim, int64_t expected, const char *what) {
    char accepted[128];
    snprintf(accepted, sizeof accepted, "%" PRId64 " (%s)", expected, what);
    return fail_dim(tensor->name, dim, "shape", tensor->shape[dim], accepted);
}

attns_status attns_tensor_fail_range(const attns_tensor *tensor, int dim, int64_t min, int64_t max, const char *what) {
    char accepted[128];
    snprintf(accepted, sizeof accepted, "%" PRId64 " to %" PRId64 " (%s)", min, max, what);
    return fail_dim(tensor->name, dim, "shape", tensor->shape[dim], accepted);
}

ATTNS_COLD static attns_status fail_dense(const attns_tensor *tensor, int dim, int64_t expected) {
    char accepted[TEXT_LENGTH];
    snprintf(accepted, sizeof accepted, "%" PRId64 " (dense)", expected / tensor->element_bytes);
    return fail_dim(tensor->name, dim, "stride", tensor->stride[dim] / tensor->element_bytes, accepted);
}

attns_status attns_tensor_check_dense(const attns_tensor *tensor, int first_dim) {
    int64_t expected = tensor->element_bytes;
    for (int dim = tensor->ndim - 1; dim >= first_dim; dim--) {
        if (tensor->stride[dim] != expected && tensor->shape[dim] > 1)
            return fail_dense(tensor, dim, expected);
        if (tensor->shape[dim] > 0)
            expected *= tensor->shape[dim];
    }
    return ATTNS_OK;
}

ATTNS_COLD static attns_status fail_address(const attns_tensor *tensor, int64_t bytes) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: address is %p, accepted: a multiple of %" PRId64 " bytes",
                      tensor->name, (void *)tensor->data, bytes);
}

ATTNS_COLD static attns_status fail_stride_alignment(const attns_tensor *tensor, int dim, int64_t bytes) {
    char accepted[96];
    snprintf(accepted, sizeof accepted, "a multiple of %" PRId64 " bytes (given: %" PRId64 " bytes)", bytes,
             tensor->stride[dim]);
    return fail_dim(tensor->name, dim, "stride", tensor->stride[dim] / tensor->element_bytes, accepted);
}

attns_status attns_tensor_check_aligned(const attns_tensor *tensor, int64_t bytes, int strides) {
    const uint64_t mask = (uint64_t)bytes - 1; /* alignments are powers of two */
    if ((uintptr_t)tensor->data & mask)
        return fail_address(tensor, bytes);
    for (int dim = 0; dim < strides; dim++)
        if (((uint64_t)tensor->stride[dim] & mask) && tensor->shape[dim] > 1)
            return fail_stride_alignment(tensor, dim, bytes);
    return ATTNS_OK;
}

attns_status attns_tensor_fail_stride(const attns_tensor *tensor, int dim, const char *bound, int64_t limit,
                                      const char *why) {
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                      "%s: stride[%d] is %" PRId64 ", accepted: %s %" PRId64 " elements (%s)", tensor->name, dim,
                      tensor->stride[dim] / tensor->element_bytes, bound, limit / tensor->element_bytes, why);
}

static attns_status fail_device(const attns_tensor *tensor, const char *accepted) {
    char text[TEXT_LENGTH];
    format_device(tensor->device, text);
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: device is %s, accepted: %s", tensor->name, text, accepted);
}

attns_status attns_tensor_fail_device(const attns_tensor *tensor, bool host, bool cuda) {
    return fail_device(tensor, !cuda   ? "host memory (cpu or cuda_host)"
                               : !host ? "a CUDA device"
                                       : "host memory or a CUDA device");
}

attns_status attns_tensor_fail_same_device(const attns_tensor *tensor, const attns_tensor *reference) {
    char accepted[2 * TEXT_LENGTH];
    char text[TEXT_LENGTH];
    format_device(reference->device, text);
    snprintf(accepted, sizeof accepted, "%s, as %s", text, reference->name);
    return fail_device(tensor, accepted);
}
