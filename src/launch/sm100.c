/* SPDX-License-Identifier: MIT
 *
 * The tcgen05 kernels, FP8 and MXFP4: everything but tables and lengths arrives by TMA or bulk copies. */
#include "launch/launch.h"

/* The kernel's argument: as `struct Arguments` in templates/paged_mqa_logits_sm100.cu. */
typedef struct sm100_kernel_arguments {
    CUtensorMap q;
    CUtensorMap k;
    CUtensorMap scales;
    const void *q_sf;
    long long q_sf_stride_b, q_sf_stride_t;
    attns_common_arguments common;
} sm100_kernel_arguments;

static int min(int a, int b) {
    return a < b ? a : b;
}

static bool is_fp4(const attns_logits_args *args) {
    return args->problem.kind == ATTNS_KERNEL_FP4_LOGITS;
}

static int row_bytes(const attns_logits_args *args) {
    return is_fp4(args) ? args->problem.head_dim / 2 : args->problem.head_dim;
}

static cuuint32_t box_tokens(const attns_logits_args *args, const attns_plan *plan) {
    return (cuuint32_t)min(args->problem.block_size, plan->tile_tokens);
}

/* Boxes of `type`, innermost dimension first; `strides` in bytes without the innermost. Coordinates outside read as
 * zeros: so do blocks out of range. */
static attns_status encode_map(const attns_driver *driver, CUtensorMap *map, CUtensorMapDataType type, int rank,
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
static CUtensorMapSwizzle swizzle_of(int bytes) {
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                         : CU_TENSOR_MAP_SWIZZLE_32B;
}

/* [B, next_n, H, row]: one box is the heads of one query slot. */
static attns_status encode_q(const attns_driver *driver, const attns_logits_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const int row = row_bytes(args);
    const cuuint64_t sizes[4] = {(cuuint64_t)row, (cuuint64_t)p->num_heads, (cuuint64_t)p->next_n,
                                 (cuuint64_t)args->batch};
    const cuuint64_t strides[3] = {(cuuint64_t)args->q.stride[2], (cuuint64_t)args->q.stride[1],
                                   (cuuint64_t)args->q.stride[0]};
    const cuuint32_t box[4] = {(cuuint32_t)row, (cuuint32_t)p->num_heads, 1, 1};
    return encode_map(driver, map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, args->q.data, sizes, strides, box, swizzle_of(row),
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

/* The values of the pool as [num_blocks, block_size, row]: one box is the part of a block that a tile takes. */
static attns_status encode_k(const attns_driver *driver, const attns_logits_args *args, const attns_plan *plan,
                             CUtensorMap *map) {
    const int row = row_bytes(args);
    const cuuint64_t sizes[3] = {(cuuint64_t)row, (cuuint64_t)args->problem.block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[2] = {(cuuint64_t)row, (cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[3] = {(cuuint32_t)row, box_tokens(args, plan), 1};
    return encode_map(driver, map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, args->kv.data, sizes, strides, box,
                      swizzle_of(row), CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

/* The scales of the pool, behind a block's values, as [num_blocks, block_size]: a token's float32, or its D/32 bytes.
 */
static attns_status encode_scales(const attns_driver *driver, const attns_logits_args *args, const attns_plan *plan,
                                  CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const CUtensorMapDataType type = !is_fp4(args)        ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : p->head_dim == 128 ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                                          : CU_TENSOR_MAP_DATA_TYPE_UINT16;
    const cuuint64_t sizes[2] = {(cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[1] = {(cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[2] = {box_tokens(args, plan), 1};
    return encode_map(driver, map, type, 2, args->kv.data + (int64_t)p->block_size * row_bytes(args), sizes, strides,
                      box, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

attns_status attns_launch_sm100(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_plan *const plan = &use->kernel->plan;
    sm100_kernel_arguments arguments = {0};
    ATTNS_TRY(encode_q(use->driver, args, &arguments.q));
    ATTNS_TRY(encode_k(use->driver, args, plan, &arguments.k));
    ATTNS_TRY(encode_scales(use->driver, args, plan, &arguments.scales));
    if (is_fp4(args)) {
        arguments.q_sf = args->q_sf.data;
        arguments.q_sf_stride_b = attns_tensor_element_stride(&args->q_sf, 0);
        arguments.q_sf_stride_t = attns_tensor_element_stride(&args->q_sf, 1);
    }
    attns_fill_common_arguments(args, &arguments.common);
    attns_choose_ctas(args, use->kernel, 1, &arguments.common);
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}
