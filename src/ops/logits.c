/* SPDX-License-Identifier: MIT
 *
 * The logits operations: check the arguments, find the kernel, launch it. */
#include "core/error.h"
#include "jit/kernel_store.h"
#include "launch/launch.h"

/* The most that the call can have, as far as the host knows. */
static int64_t num_tiles(const attns_logits_args *args) {
    return args->batch * ((args->max_seq_len + ATTNS_TILE_TOKENS - 1) / ATTNS_TILE_TOKENS);
}

static attns_status run(attns_context *ctx, const attns_logits_args *args, CUstream stream) {
    attns_kernel_use use;
    ATTNS_TRY(attns_kernel_acquire(ctx, &args->problem, num_tiles(args), args->device, stream, &use));
    const attns_status status = attns_launch_logits(args, &use, stream);
    attns_kernel_release(&use);
    return status;
}

attns_status attns_fp8_paged_mqa_logits(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params,
                                        CUstream stream) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: is NULL, accepted: a context");
    attns_logits_args args;
    ATTNS_TRY(attns_fp8_args_read(params, kDLCUDA, &args));
    return args.batch == 0 ? ATTNS_OK : run(ctx, &args, stream);
}

attns_status attns_fp4_paged_mqa_logits(attns_context *ctx, const attns_fp4_paged_mqa_logits_params *params,
                                        CUstream stream) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: is NULL, accepted: a context");
    attns_logits_args args;
    ATTNS_TRY(attns_fp4_args_read(params, kDLCUDA, &args));
    return args.batch == 0 ? ATTNS_OK : run(ctx, &args, stream);
}
