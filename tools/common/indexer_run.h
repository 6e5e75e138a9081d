/* SPDX-License-Identifier: MIT
 *
 * An indexer_scores case on the GPU: upload, call, download, check. Works in the CUDA context that is current on the
 * calling thread. */
#ifndef ATTNS_TOOLS_COMMON_INDEXER_RUN_H_
#define ATTNS_TOOLS_COMMON_INDEXER_RUN_H_

#include "common/gpu.h"
#include "common/indexer_case.h"
#include "common/indexer_check.h"
#include "common/run.h"

/* The buffers of one call. Self-referencing: do not copy. */
struct indexer_device {
    const struct gpu *gpu;
    const struct indexer_data *data;
    struct gpu_buffer query, query_scales, keys, key_scales, tables, lens, requests, scores; /* scores: the image */
    struct indexer_tensors tensors;
    attns_indexer_scores_params params;
};

/* Copies the data up and poisons the output. false after printing why; nothing is then left allocated. */
bool indexer_upload(struct indexer_device *dev, const struct gpu *gpu, const struct indexer_data *data,
                    enum logits_placement placement);
void indexer_device_free(struct indexer_device *dev);

/* Poisons the output again, in stream order. */
bool indexer_poison(const struct indexer_device *dev, CUstream stream);

/* Queues the call. Prints attns_last_error on failure. */
attns_status indexer_queue(const struct indexer_device *dev, attns_context *ctx, CUstream stream);

/* Waits for the stream (at most 20 s) and returns the output's image (malloc), NULL after printing why. */
uint8_t *indexer_download(const struct indexer_device *dev, CUstream stream);

/* All of it. false after printing the case and what went wrong. `report` may be NULL. */
bool indexer_run_case(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct indexer_case *c,
                      enum logits_placement placement, const struct indexer_check_options *options,
                      struct indexer_report *report);

#endif
