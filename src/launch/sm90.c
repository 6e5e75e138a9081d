/* SPDX-License-Identifier: MIT
 *
 * Hopper's kernels: everything but weights, tables and lengths arrives by TMA. */
#include "launch/launch.h"

enum {
    TILE_TOKENS = 64,
    MANY_TILES = 24, /* for an SM: from here on more, smaller CTAs pay; measured on an H200 */
};

/* The kernel's argument: as `struct Arguments` in templates/fp8_paged_mqa_logits_sm90.cu. */
typedef struct fp8_kernel_arguments {
    CUtensorMap q;
    CUtensorMap k;
    CUtensorMap scales;
    attns_common_arguments common;
} fp8_kernel_arguments;

static int min(int a, int b) {
    return a < b ? a : b;
}

static CUtensorMapSwizzle swizzle_of(int head_dim) {
    return head_dim == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : head_dim == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                            : CU_TENSOR_MAP_SWIZZLE_32B;
}

/* Byte tensors by boxes of whole rows of D bytes; `sizes` and `box` innermost first, `strides` in bytes without the
 * innermost. */
static attns_status encode_bytes(const attns_driver *driver, CUtensorMap *map, int head_dim, int rank, void *data,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box) {
    static const cuuint32_t ones[4] = {1, 1, 1, 1};
    return attns_driver_check(
        driver,
        driver->tensor_map_encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, (cuuint32_t)rank, data, sizes, strides, box,
                                        ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(head_dim),
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
}

/* [B, next_n, H, D]: one box is the heads of one query slot. */
static attns_status encode_q(const attns_driver *driver, const attns_logits_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[4] = {(cuuint64_t)p->head_dim, (cuuint64_t)p->num_heads, (cuuint64_t)p->next_n,
                                 (cuuint64_t)args->batch};
    const cuuint64_t strides[3] = {(cuuint64_t)args->q.stride[2], (cuuint64_t)args->q.stride[1],
                                   (cuuint64_t)args->q.stride[0]};
    const cuuint32_t box[4] = {(cuuint32_t)p->head_dim, (cuuint32_t)p->num_heads, 1, 1};
    return encode_bytes(driver, map, p->head_dim, 4, args->q.data, sizes, strides, box);
}

/* The values of the pool as [num_blocks, block_size, D]: one box is the part of a block that a tile takes. */
static attns_status encode_k(const attns_driver *driver, const attns_logits_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[3] = {(cuuint64_t)p->head_dim, (cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[2] = {(cuuint64_t)p->head_dim, (cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[3] = {(cuuint32_t)p->head_dim, (cuuint32_t)min(p->block_size, TILE_TOKENS), 1};
    return encode_bytes(driver, map, p->head_dim, 3, args->kv.data, sizes, strides, box);
}

/* The scales of the pool as [num_blocks, block_size]. Out-of-range blocks read as zeros here too. */
static attns_status encode_scales(const attns_driver *driver, const attns_logits_args *args, CUtensorMap *map) {
    static const cuuint32_t ones[2] = {1, 1};
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[2] = {(cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[1] = {(cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[2] = {(cuuint32_t)min(p->block_size, TILE_TOKENS), 1};
    return attns_driver_check(
        driver,
        driver->tensor_map_encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
                                        args->kv.data + (int64_t)p->block_size * p->head_dim, sizes, strides, box, ones,
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
}

static attns_status encode(const attns_driver *driver, const attns_logits_args *args, fp8_kernel_arguments *arguments) {
    ATTNS_TRY(encode_q(driver, args, &arguments->q));
    ATTNS_TRY(encode_k(driver, args, &arguments->k));
    return encode_scales(driver, args, &arguments->scales);
}

attns_status attns_launch_sm90(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    fp8_kernel_arguments arguments;
    ATTNS_TRY(encode(use->driver, args, &arguments));
    attns_fill_common_arguments(args, &arguments.common);
    attns_choose_ctas(args, use->kernel, MANY_TILES, &arguments.common);
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}
