/* SPDX-License-Identifier: MIT
 *
 * Cuts a batch into shares of equal work. The unit is a tile of 64 tokens of one request: tile number n of the batch
 * counts through the requests in order. Share i takes the tiles from floor(T*i/num_shares) to
 * floor(T*(i+1)/num_shares), and row i of the result says where it starts, as {request, tile within it}; the end is {B,
 * 0}. */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "jit/kernel_store.h"
#include "ops/logits_args.h"
#include "plan/supported.h"

#define TILE_TOKENS 64

typedef struct schedule_args {
    int64_t batch;
    int64_t slots; /* lengths per request: 1, or next_n of a 2-D seq_lens */
    int64_t num_shares;
    bool on_host;
    attns_tensor seq_lens, meta;
} schedule_args;

static const attns_dtype_set int32_dtype = {"int32", {{kDLInt, 32, 1}}, 1};

static attns_status check_next_n(const attns_schedule_params *params, const attns_tensor *seq_lens) {
    const int64_t next_n = params->next_n;
    if (next_n < 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "next_n: is %" PRId64 ", accepted: 0 (default) to 8", next_n);
    if (next_n > ATTNS_MAX_NEXT_N)
        return attns_fail(ATTNS_ERROR_UNSUPPORTED, "next_n: is %" PRId64 ", accepted: 0 (default) to 8", next_n);
    if (seq_lens->ndim == 1)
        return ATTNS_OK;
    ATTNS_TRY(attns_check_next_n(seq_lens, 1));
    if (next_n != 0)
        ATTNS_TRY(attns_tensor_check_dim(seq_lens, 1, next_n, "next_n"));
    return ATTNS_OK;
}

static attns_status read_args(const attns_schedule_params *params, schedule_args *args) {
    if (!params)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "params: is NULL, accepted: a params struct");
    const int variant = (int)params->variant;
    if (variant != 0 && variant != ATTNS_VARIANT_FP8 && variant != ATTNS_VARIANT_FP4)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "variant: is %d, accepted: 0 (default), 1 (fp8) or 2 (fp4)",
                          variant);

    attns_tensor *const seq_lens = &args->seq_lens;
    attns_tensor *const meta = &args->meta;
    ATTNS_TRY(attns_tensor_read(params->seq_lens, "seq_lens", 1, 2, seq_lens));
    ATTNS_TRY(attns_tensor_read(params->schedule_meta, "schedule_meta", 2, 2, meta));
    args->on_host = attns_tensor_on_host(seq_lens);
    ATTNS_TRY(attns_tensor_check_device(seq_lens, true, true));
    ATTNS_TRY(attns_tensor_check_same_device(meta, seq_lens));
    ATTNS_TRY(attns_tensor_check_dtype(seq_lens, &int32_dtype));
    ATTNS_TRY(attns_tensor_check_dtype(meta, &int32_dtype));
    ATTNS_TRY(check_next_n(params, seq_lens));
    ATTNS_TRY(attns_tensor_check_range(seq_lens, 0, 0, INT32_MAX, "B"));
    ATTNS_TRY(attns_tensor_check_range(meta, 0, 2, INT32_MAX, "num_sms+1"));
    ATTNS_TRY(attns_tensor_check_dim(meta, 1, 2, "a request and a tile"));
    ATTNS_TRY(attns_tensor_check_aligned(seq_lens, seq_lens->element_bytes, 0));
    ATTNS_TRY(attns_tensor_check_dense(meta, 0));
    ATTNS_TRY(attns_tensor_check_aligned(meta, meta->element_bytes, 0));

    args->batch = seq_lens->shape[0];
    args->slots = seq_lens->ndim == 2 ? seq_lens->shape[1] : 1;
    args->num_shares = meta->shape[0] - 1;
    return ATTNS_OK;
}

/* ---- Host ---------------------------------------------------------------------------------------------------- */

static int64_t num_tiles(const schedule_args *args, int64_t request) {
    const char *lens = args->seq_lens.data + request * args->seq_lens.stride[0];
    int64_t longest = 0;
    for (int64_t slot = 0; slot < args->slots; slot++) {
        int32_t len;
        memcpy(&len, args->slots > 1 ? lens + slot * args->seq_lens.stride[1] : lens, sizeof len);
        if (len > longest)
            longest = len;
    }
    return (longest + TILE_TOKENS - 1) / TILE_TOKENS;
}

static void schedule_on_host(const schedule_args *args) {
    int64_t total = 0;
    for (int64_t request = 0; request < args->batch; request++)
        total += num_tiles(args, request);

    const int64_t quotient = total / args->num_shares;
    const int64_t remainder = total % args->num_shares;
    int32_t(*const rows)[2] = (int32_t(*)[2])(void *)args->meta.data;
    int64_t request = -1, before = 0, after = 0; /* tiles of the requests below and up to `request` */
    for (int64_t share = 0; share <= args->num_shares; share++) {
        /* floor(total * share / num_shares) without the product, which may pass 64 bits */
        const int64_t target = quotient * share + remainder * share / args->num_shares;
        while (after <= target && request < args->batch) {
            request++;
            before = after;
            if (request < args->batch)
                after += num_tiles(args, request);
        }
        rows[share][0] = (int32_t)request;
        rows[share][1] = (int32_t)(target - before);
    }
}

/* ---- Device -------------------------------------------------------------------------------------------------- */

static attns_status launch(const schedule_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_kernel *const kernel = use->kernel;
    void *seq_lens = args->seq_lens.data;
    void *meta = args->meta.data;
    long long stride_b = attns_tensor_element_stride(&args->seq_lens, 0);
    long long stride_t = args->slots > 1 ? attns_tensor_element_stride(&args->seq_lens, 1) : 0;
    int batch = (int)args->batch;
    int slots = (int)args->slots;
    int num_shares = (int)args->num_shares;
    void *kernel_params[] = {&seq_lens, &stride_b, &stride_t, &batch, &slots, &num_shares, &meta};
    const CUlaunchConfig config = {
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)kernel->plan.threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream,
    };
    return attns_driver_check(
        use->driver, use->driver->launch_kernel_ex(&config, kernel->function, kernel_params, NULL), "cuLaunchKernelEx");
}

static attns_status schedule_on_device(attns_context *ctx, const schedule_args *args, CUstream stream) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "ctx: is NULL, accepted: a context, as seq_lens is on a device");
    const attns_problem problem = {.kind = ATTNS_KERNEL_SCHEDULE};
    const bool managed = args->seq_lens.device.device_type == kDLCUDAManaged;
    const DLDevice device = managed ? args->meta.device : args->seq_lens.device;
    attns_kernel_use use;
    ATTNS_TRY(attns_kernel_acquire(ctx, &problem, 0, device, stream, &use));
    const attns_status status = launch(args, &use, stream);
    attns_kernel_release(&use);
    return status;
}

attns_status attns_compute_paged_mqa_logits_schedule(attns_context *ctx, const attns_schedule_params *params,
                                                     CUstream stream) {
    schedule_args args;
    ATTNS_TRY(read_args(params, &args));
    if (!args.on_host)
        return schedule_on_device(ctx, &args, stream);
    schedule_on_host(&args);
    return ATTNS_OK;
}
