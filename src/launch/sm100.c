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

attns_status attns_launch_sm100(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_problem *const p = &args->problem;
    const bool fp4 = p->kind == ATTNS_KERNEL_FP4_LOGITS;
    const int row_bytes = fp4 ? p->head_dim / 2 : p->head_dim;
    const int box_tokens = min(p->block_size, use->kernel->plan.tile_tokens);
    sm100_kernel_arguments arguments = {0};
    ATTNS_TRY(attns_encode_q(use->driver, args, row_bytes, &arguments.q));
    ATTNS_TRY(attns_encode_k(use->driver, args, row_bytes, box_tokens, &arguments.k));
    ATTNS_TRY(attns_encode_scales(use->driver, args, row_bytes, box_tokens, &arguments.scales));
    if (fp4) {
        arguments.q_sf = args->q_sf.data;
        arguments.q_sf_stride_b = attns_tensor_element_stride(&args->q_sf, 0);
        arguments.q_sf_stride_t = attns_tensor_element_stride(&args->q_sf, 1);
    }
    attns_fill_common_arguments(args, &arguments.common);
    attns_choose_ctas(args, use->kernel, 1, &arguments.common);
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}
