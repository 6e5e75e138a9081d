/* SPDX-License-Identifier: MIT
 *
 * indexer_scores: check the arguments, find the kernel, launch it. */
#include "core/error.h"
#include "jit/kernel_store.h"
#include "launch/launch.h"

attns_status attns_indexer_scores(attns_context *ctx, const attns_indexer_scores_params *params, CUstream stream) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: is NULL, accepted: a context");
    attns_indexer_args args;
    ATTNS_TRY(attns_indexer_args_read(params, kDLCUDA, &args));
    if (args.rows == 0)
        return ATTNS_OK;
    attns_kernel_use use;
    ATTNS_TRY(attns_kernel_acquire(ctx, &args.problem, 0, args.device, stream, &use));
    const attns_status status = args.max_context == 0 ? ATTNS_OK : attns_launch_indexer(&args, &use, stream);
    attns_kernel_release(&use);
    return status;
}
