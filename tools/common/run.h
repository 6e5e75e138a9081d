/* SPDX-License-Identifier: MIT
 *
 * A case on the GPU: upload, call, download, check. Works in the CUDA context that is current on the calling thread. */
#ifndef ATTNS_TOOLS_COMMON_RUN_H_
#define ATTNS_TOOLS_COMMON_RUN_H_

#include "common/case.h"
#include "common/check.h"
#include "common/gpu.h"

enum fp8_placement {
    FP8_PLAIN,
    FP8_GUARD_END,  /* every buffer ends at an unmapped page (make the data with bare_out) */
    FP8_GUARD_START /* every buffer starts at one */
};

/* The buffers of one call. Self-referencing (params points into tensors): do not copy. */
struct fp8_device {
    const struct gpu *gpu;
    const struct fp8_data *data;
    struct gpu_buffer q, kv, weights, tables, lens, meta, out; /* out holds the whole image */
    CUdeviceptr kv_at;                                         /* kv.ptr, or the pool of another fp8_device */
    struct fp8_tensors tensors;
    attns_fp8_paged_mqa_logits_params params;
};

/* Copies the data up and poisons the output. `pool`, if not NULL, holds the same kv already, which is then shared.
 * false after printing why; nothing is then left allocated. */
bool fp8_upload(struct fp8_device *dev, const struct gpu *gpu, const struct fp8_data *data,
                enum fp8_placement placement, const struct fp8_device *pool);
void fp8_device_free(struct fp8_device *dev);

/* Poisons the output again, in stream order. */
bool fp8_poison(const struct fp8_device *dev, CUstream stream);

/* Fills schedule_meta on the GPU (if the case has one) and queues the call. Prints attns_last_error on failure. */
attns_status fp8_queue(const struct fp8_device *dev, attns_context *ctx, CUstream stream);
attns_status fp8_queue_schedule(const struct fp8_device *dev, attns_context *ctx, CUstream stream);
attns_status fp8_queue_logits(const struct fp8_device *dev, attns_context *ctx, CUstream stream);

/* Waits for the stream (at most 20 s) and returns the output's image (malloc), NULL after printing why. */
uint8_t *fp8_download(const struct fp8_device *dev, CUstream stream);

/* All of it: data, upload, call, download, check. false after printing the case and what went wrong. `report` may be
 * NULL. */
bool fp8_run_case(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct fp8_case *c,
                  enum fp8_placement placement, const struct fp8_check_options *options, struct fp8_report *report);
bool fp8_run_data(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct fp8_data *data,
                  enum fp8_placement placement, const struct fp8_check_options *options, struct fp8_report *report);

/* Compiles the kernels of several cases into the cache, on all processors; `params` are those of the context that will
 * use them. Cases that share a kernel cost one compile. All are tried; false after printing what failed. */
bool fp8_precompile(const attns_context_params *params, const struct fp8_case *cases, size_t num_cases);

#endif
