/* SPDX-License-Identifier: MIT
 *
 * The portable kernels take plain addresses: nothing is encoded. */
#include "launch/launch.h"

/* The kernel's argument: as `struct Arguments` in templates/lib/portable.cuh. Strides in elements, which are bytes for
 * q and kv. */
typedef struct portable_arguments {
    const void *q;
    long long q_stride_b, q_stride_t;
    const void *q_sf;
    long long q_sf_stride_b, q_sf_stride_t;
    const void *kv;
    long long block_stride;
    int num_blocks;
    attns_common_arguments common;
} portable_arguments;

attns_status attns_launch_portable(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_plan *const plan = &use->kernel->plan;
    portable_arguments arguments = {
        .q = args->q.data,
        .q_stride_b = args->q.stride[0],
        .q_stride_t = args->q.stride[1],
        .kv = args->kv.data,
        .block_stride = args->kv.stride[0],
        .num_blocks = (int)args->num_blocks,
    };
    if (args->problem.kind == ATTNS_KERNEL_FP4_LOGITS) {
        arguments.q_sf = args->q_sf.data;
        arguments.q_sf_stride_b = attns_tensor_element_stride(&args->q_sf, 0);
        arguments.q_sf_stride_t = attns_tensor_element_stride(&args->q_sf, 1);
    }
    attns_fill_common_arguments(args, &arguments.common);
    arguments.common.ctas_per_sm = plan->max_ctas_per_sm;
    arguments.common.stages = plan->max_stages;
    return attns_launch_persistent(args, use, &arguments.common, &arguments, stream);
}
