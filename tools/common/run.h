/* SPDX-License-Identifier: MIT
 *
 * A case on the GPU: upload, call, download, check. Works in the CUDA context that is current on the calling thread. */
#ifndef ATTNS_TOOLS_COMMON_RUN_H_
#define ATTNS_TOOLS_COMMON_RUN_H_

#include "common/case.h"
#include "common/check.h"
#include "common/gpu.h"

enum logits_placement {
    LOGITS_PLAIN,
    LOGITS_GUARD_END,  /* every buffer ends at an unmapped page (make the data with bare_out) */
    LOGITS_GUARD_START /* every buffer starts at one */
};

/* The buffers of one call. Self-referencing (call points into tensors): do not copy. */
struct logits_device {
    const struct gpu *gpu;
    const struct logits_data *data;
    struct gpu_buffer q, q_sf, kv, weights, tables, lens, meta, out; /* out holds the whole image */
    CUdeviceptr kv_at;                                               /* kv.ptr, or the pool of another logits_device */
    struct logits_tensors tensors;
    struct logits_call call;
};

/* Copies the data up and poisons the output. `pool`, if not NULL, holds the same kv already, which is then shared.
 * false after printing why; nothing is then left allocated. */
bool logits_upload(struct logits_device *dev, const struct gpu *gpu, const struct logits_data *data,
                   enum logits_placement placement, const struct logits_device *pool);
void logits_device_free(struct logits_device *dev);

/* Poisons the output again, in stream order. */
bool logits_poison(const struct logits_device *dev, CUstream stream);

/* Fills schedule_meta on the GPU (if the case has one) and queues the call. Prints attns_last_error on failure. */
attns_status logits_queue(const struct logits_device *dev, attns_context *ctx, CUstream stream);
attns_status logits_queue_schedule(const struct logits_device *dev, attns_context *ctx, CUstream stream);
attns_status logits_queue_logits(const struct logits_device *dev, attns_context *ctx, CUstream stream);

/* Waits for the stream (at most 20 s) and returns the output's image (malloc), NULL after printing why. */
uint8_t *logits_download(const struct logits_device *dev, CUstream stream);

/* All of it: data, upload, call, download, check. false after printing the case and what went wrong. `report` may be
 * NULL. */
bool logits_run_case(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct logits_case *c,
                     enum logits_placement placement, const struct logits_check_options *options,
                     struct logits_report *report);
bool logits_run_data(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct logits_data *data,
                     enum logits_placement placement, const struct logits_check_options *options,
                     struct logits_report *report);

/* How many kernels serve calls of the case's shape: 2 if there is one for little and one for much work. Has them
 * compiled. 0 after printing what failed. */
size_t logits_num_kernels(attns_context *ctx, const struct logits_case *c);

/* Compiles the kernels of several cases into the cache, on all processors; `params` are those of the context that will
 * use them. Cases that share a kernel cost one compile. All are tried; false after printing what failed. */
bool logits_precompile(const attns_context_params *params, const struct logits_case *cases, size_t num_cases);

#endif
