/* SPDX-License-Identifier: MIT
 *
 * Checks on DLTensor arguments. Every failure names the argument, what was given and what is accepted. */
#ifndef ATTNS_OPS_TENSOR_H_
#define ATTNS_OPS_TENSOR_H_

#include <attn_scores/attn_scores.h>

#define ATTNS_TRY(call)                                                                                                \
    do {                                                                                                               \
        const attns_status try_status = (call);                                                                        \
        if (try_status != ATTNS_OK)                                                                                    \
            return try_status;                                                                                         \
    } while (0)

/* A DLTensor taken apart: address with byte_offset applied, strides in bytes, element size. */
typedef struct attns_tensor {
    const char *name; /* of the argument, static */
    char *data;
    int ndim;
    int64_t shape[4];
    int64_t stride[4]; /* bytes; compact row-major ones if DLTensor.strides is NULL */
    int64_t element_bytes;
    DLDataType dtype;
    DLDevice device;
} attns_tensor;

/* Non-NULL tensor and data (data may be NULL if a dimension is 0), ndim in [min_ndim, max_ndim], lanes 1 (or 2 of 4
 * bits, which are one byte), no negative shape or stride. Dimensions of size 1 have their stride replaced by the
 * compact one, as DLPack allows any there. */
attns_status attns_tensor_read(const DLTensor *tensor, const char *name, int min_ndim, int max_ndim, attns_tensor *out);

typedef struct attns_dtype_set {
    const char *accepted; /* "float8_e4m3fn or uint8" */
    DLDataType types[4];
    int count;
} attns_dtype_set;
attns_status attns_tensor_check_dtype(const attns_tensor *tensor, const attns_dtype_set *set);

/* Every call makes dozens of these checks: the comparisons are inline, the messages of failures are not. */
#define ATTNS_COLD __attribute__((cold, noinline))
ATTNS_COLD attns_status attns_tensor_fail_dim(const attns_tensor *tensor, int dim, int64_t expected, const char *what);
ATTNS_COLD attns_status attns_tensor_fail_range(const attns_tensor *tensor, int dim, int64_t min, int64_t max,
                                                const char *what);
ATTNS_COLD attns_status attns_tensor_fail_stride(const attns_tensor *tensor, int dim, const char *bound, int64_t limit,
                                                 const char *why);
ATTNS_COLD attns_status attns_tensor_fail_device(const attns_tensor *tensor, bool host, bool cuda);
ATTNS_COLD attns_status attns_tensor_fail_same_device(const attns_tensor *tensor, const attns_tensor *reference);

/* shape[dim] == expected; `what` explains the number in the message, e.g. "B (from q)". */
static inline attns_status attns_tensor_check_dim(const attns_tensor *tensor, int dim, int64_t expected,
                                                  const char *what) {
    return tensor->shape[dim] == expected ? ATTNS_OK : attns_tensor_fail_dim(tensor, dim, expected, what);
}

static inline attns_status attns_tensor_check_range(const attns_tensor *tensor, int dim, int64_t min, int64_t max,
                                                    const char *what) {
    return tensor->shape[dim] >= min && tensor->shape[dim] <= max
               ? ATTNS_OK
               : attns_tensor_fail_range(tensor, dim, min, max, what);
}

attns_status attns_tensor_check_dense(const attns_tensor *tensor, int first_dim); /* dims first_dim.. are compact */
attns_status attns_tensor_check_aligned(const attns_tensor *tensor, int64_t bytes, int strides); /* address and the
                                                                           first `strides` strides of dims > 1 */
/* Bounds of the stride of a dim > 1, in bytes; `why` explains the bound in the message. */
static inline attns_status attns_tensor_check_min_stride(const attns_tensor *tensor, int dim, int64_t bytes,
                                                         const char *why) {
    return tensor->stride[dim] >= bytes || tensor->shape[dim] <= 1
               ? ATTNS_OK
               : attns_tensor_fail_stride(tensor, dim, "at least", bytes, why);
}

static inline attns_status attns_tensor_check_max_stride(const attns_tensor *tensor, int dim, int64_t bytes,
                                                         const char *why) {
    return tensor->stride[dim] <= bytes || tensor->shape[dim] <= 1
               ? ATTNS_OK
               : attns_tensor_fail_stride(tensor, dim, "at most", bytes, why);
}

/* Pageable or pinned. */
static inline bool attns_tensor_on_host(const attns_tensor *tensor) {
    return tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost;
}

/* Device or managed memory. */
static inline bool attns_tensor_on_cuda(const attns_tensor *tensor) {
    return tensor->device.device_type == kDLCUDA || tensor->device.device_type == kDLCUDAManaged;
}

/* Whether host memory, and CUDA device or managed memory, will do. */
static inline attns_status attns_tensor_check_device(const attns_tensor *tensor, bool host, bool cuda) {
    return (cuda && attns_tensor_on_cuda(tensor)) || (host && attns_tensor_on_host(tensor))
               ? ATTNS_OK
               : attns_tensor_fail_device(tensor, host, cuda);
}

/* Only device memory belongs to one device: DLPack gives host and managed memory the id 0, whatever it serves. Managed
 * memory goes with every CUDA device, so compare with a tensor in device memory where there is one. */
static inline attns_status attns_tensor_check_same_device(const attns_tensor *tensor, const attns_tensor *reference) {
    const DLDevice a = tensor->device;
    const DLDevice b = reference->device;
    const bool same = a.device_type == b.device_type && a.device_id == b.device_id;
    return same || (attns_tensor_on_host(tensor) && attns_tensor_on_host(reference)) ||
                   (attns_tensor_on_cuda(tensor) && attns_tensor_on_cuda(reference) &&
                    (a.device_type == kDLCUDAManaged || b.device_type == kDLCUDAManaged))
               ? ATTNS_OK
               : attns_tensor_fail_same_device(tensor, reference);
}

/* The stride in elements. Not for a dtype that has not been checked: sizes that are accepted are powers of two. */
static inline int64_t attns_tensor_element_stride(const attns_tensor *tensor, int dim) {
    return tensor->stride[dim] >> __builtin_ctzll((unsigned long long)tensor->element_bytes);
}

#endif
