/* SPDX-License-Identifier: MIT
 *
 * Hopper's kernels: keys and their scales arrive by TMA, FP8 queries too. */
#include "launch/launch.h"

enum {
    TILE_TOKENS = 64,
    MANY_TILES = 24, /* for an SM: from here on more, smaller CTAs pay; measured on an H200 */
};

/* The kernels' arguments: as `struct Arguments` in templates/fp8_paged_mqa_logits_sm90.cu and
 * fp4_paged_mqa_logits_sm90.cu. Strides in bytes. */
typedef struct fp8_kernel_arguments {
    CUtensorMap q;
    CUtensorMap k;
    CUtensorMap scales;
    attns_common_arguments common;
} fp8_kernel_arguments;

typedef struct fp4_kernel_arguments {
    CUtensorMap k;
    CUtensorMap scales;
    const void *q;
    long long q_stride_b, q_stride_t;
    const void *q_sf;
    long long q_sf_stride_b, q_sf_stride_t;
    attns_common_arguments common;
} fp4_kernel_arguments;

static int min(int a, int b) {
    return a < b ? a : b;
}

static attns_status launch_fp8(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_problem *const p = &args->problem;
    fp8_kernel_arguments arguments;
    const int box_tokens = min(p->block_size, TILE_TOKENS);
    ATTNS_TRY(attns_encode_q(use->driver, args, p->head_dim, &arguments.q));
    ATTNS_TRY(attns_encode_k(use->driver, args, p->head_dim, box_tokens, &arguments.k));
    ATTNS_TRY(attns_encode_scales(use->driver, args, p->head_dim, box_tokens, &arguments.scales));
    attns_fill_common_arguments(args, &arguments.common);
    attns_choose_ctas(args, use->kernel, MANY_TILES, &arguments.common);
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}

/* The numbers of the pool, which lanes read, not wgmma: not swizzled, so that rows may be long, which TMA likes better
 * than tokens of 64 bytes. One box is the part of a block that a tile takes. */
static attns_status encode_packed_k(const attns_driver *driver, const attns_logits_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const int token_bytes = p->head_dim / 2;
    const int box_bytes = min(p->block_size, TILE_TOKENS) * token_bytes;
    const int row_bytes = min(box_bytes, 1024);
    const cuuint64_t sizes[3] = {(cuuint64_t)(row_bytes / 4), (cuuint64_t)(p->block_size * token_bytes / row_bytes),
                                 (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[2] = {(cuuint64_t)row_bytes, (cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[3] = {(cuuint32_t)(row_bytes / 4), (cuuint32_t)(box_bytes / row_bytes), 1};
    return attns_encode_map(driver, map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, args->kv.data, sizes, strides, box,
                            CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

static attns_status launch_fp4(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_problem *const p = &args->problem;
    fp4_kernel_arguments arguments;
    ATTNS_TRY(encode_packed_k(use->driver, args, &arguments.k));
    ATTNS_TRY(attns_encode_scales(use->driver, args, p->head_dim / 2,
                                  p->kv_sf_interleaved ? p->block_size : min(p->block_size, TILE_TOKENS),
                                  &arguments.scales));
    arguments.q = args->q.data;
    arguments.q_stride_b = args->q.stride[0];
    arguments.q_stride_t = args->q.stride[1];
    arguments.q_sf = args->q_sf.data;
    arguments.q_sf_stride_b = args->q_sf.stride[0];
    arguments.q_sf_stride_t = args->q_sf.stride[1];
    attns_fill_common_arguments(args, &arguments.common);
    attns_choose_ctas(args, use->kernel, MANY_TILES, &arguments.common);
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}

attns_status attns_launch_sm90(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    return args->problem.kind == ATTNS_KERNEL_FP4_LOGITS ? launch_fp4(args, use, stream)
                                                         : launch_fp8(args, use, stream);
}
