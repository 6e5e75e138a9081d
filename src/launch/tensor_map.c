/* SPDX-License-Identifier: MIT
 *
 * Tensor maps of queries, keys and scales, for the families that load them by TMA. */
#include "launch/launch.h"

attns_status attns_encode_map(const attns_driver *driver, CUtensorMap *map, CUtensorMapDataType type, int rank,
                              void *data, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
    static const cuuint32_t ones[4] = {1, 1, 1, 1};
    return attns_driver_check(driver,
                              driver->tensor_map_encode_tiled(map, type, (cuuint32_t)rank, data, sizes, strides, box,
                                                              ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                                                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                              "cuTensorMapEncodeTiled");
}

/* Rows of values are swizzled over their own width. */
static CUtensorMapSwizzle swizzle_of(int row_bytes) {
    return row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                             : CU_TENSOR_MAP_SWIZZLE_32B;
}

attns_status attns_encode_q(const attns_driver *driver, const attns_logits_args *args, int row_bytes,
                            CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[4] = {(cuuint64_t)row_bytes, (cuuint64_t)p->num_heads, (cuuint64_t)p->next_n,
                                 (cuuint64_t)args->batch};
    const cuuint64_t strides[3] = {(cuuint64_t)args->q.stride[2], (cuuint64_t)args->q.stride[1],
                                   (cuuint64_t)args->q.stride[0]};
    const cuuint32_t box[4] = {(cuuint32_t)row_bytes, (cuuint32_t)p->num_heads, 1, 1};
    return attns_encode_map(driver, map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, args->q.data, sizes, strides, box,
                            swizzle_of(row_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

attns_status attns_encode_k(const attns_driver *driver, const attns_logits_args *args, int row_bytes, int box_tokens,
                            CUtensorMap *map) {
    const cuuint64_t sizes[3] = {(cuuint64_t)row_bytes, (cuuint64_t)args->problem.block_size,
                                 (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[2] = {(cuuint64_t)row_bytes, (cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[3] = {(cuuint32_t)row_bytes, (cuuint32_t)box_tokens, 1};
    return attns_encode_map(driver, map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, args->kv.data, sizes, strides, box,
                            swizzle_of(row_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

attns_status attns_encode_scales(const attns_driver *driver, const attns_logits_args *args, int row_bytes,
                                 int box_tokens, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const CUtensorMapDataType type = p->kind != ATTNS_KERNEL_FP4_LOGITS ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : p->head_dim == 128               ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                                                        : CU_TENSOR_MAP_DATA_TYPE_UINT16;
    const cuuint64_t sizes[2] = {(cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[1] = {(cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[2] = {(cuuint32_t)box_tokens, 1};
    return attns_encode_map(driver, map, type, 2, args->kv.data + (int64_t)p->block_size * row_bytes, sizes, strides,
                            box, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}
