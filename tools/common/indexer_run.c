/* SPDX-License-Identifier: MIT */
#include "common/indexer_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SECONDS 20.0

static bool upload(const struct gpu *gpu, struct gpu_buffer *buffer, const void *from, size_t bytes,
                   enum logits_placement placement) {
    if (bytes == 0)
        return true;
    const bool ok = placement == LOGITS_PLAIN
                        ? gpu_buffer_alloc(gpu, buffer, bytes)
                        : gpu_buffer_alloc_guarded(gpu, buffer, bytes,
                                                   placement == LOGITS_GUARD_END ? GPU_FLUSH_END : GPU_FLUSH_START);
    return ok && (!from || gpu_ok(gpu, gpu->memcpy_htod(buffer->ptr, from, bytes), "cuMemcpyHtoD"));
}

static void *address(CUdeviceptr ptr) {
    return (void *)(uintptr_t)ptr;
}

bool indexer_upload(struct indexer_device *dev, const struct gpu *gpu, const struct indexer_data *d,
                    enum logits_placement placement) {
    memset(dev, 0, sizeof *dev);
    dev->gpu = gpu;
    dev->data = d;
    const bool ok = upload(gpu, &dev->query, d->query, d->query_bytes, placement) &&
                    upload(gpu, &dev->query_scales, d->query_scales, d->query_scale_bytes, placement) &&
                    upload(gpu, &dev->keys, d->keys, d->key_bytes, placement) &&
                    upload(gpu, &dev->key_scales, d->key_scales, d->key_scale_bytes, placement) &&
                    upload(gpu, &dev->tables, d->tables, d->table_bytes, placement) &&
                    upload(gpu, &dev->lens, d->lens, d->len_bytes, placement) &&
                    upload(gpu, &dev->requests, d->requests, d->request_bytes, placement) &&
                    upload(gpu, &dev->scores, NULL, d->image_bytes, placement) && indexer_poison(dev, NULL) &&
                    gpu_ok(gpu, gpu->ctx_synchronize(), "cuCtxSynchronize");
    if (!ok) {
        indexer_device_free(dev);
        return false;
    }
    const struct indexer_addresses at = {
        .query = address(dev->query.ptr),
        .query_scales = address(dev->query_scales.ptr),
        .keys = address(dev->keys.ptr),
        .key_scales = address(d->c.one_cache ? dev->keys.ptr + (CUdeviceptr)(d->key_scales - d->keys)
                                             : dev->key_scales.ptr),
        .tables = address(dev->tables.ptr),
        .lens = address(dev->lens.ptr),
        .requests = address(dev->requests.ptr),
        .scores = address(dev->scores.ptr + d->front_bytes),
    };
    indexer_tensors_make(&dev->tensors, &dev->params, d, (DLDevice){kDLCUDA, gpu->ordinal}, &at);
    return true;
}

void indexer_device_free(struct indexer_device *dev) {
    struct gpu_buffer *all[] = {&dev->query,  &dev->query_scales, &dev->keys,     &dev->key_scales,
                                &dev->tables, &dev->lens,         &dev->requests, &dev->scores};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_buffer_free(dev->gpu, all[i]);
}

bool indexer_poison(const struct indexer_device *dev, CUstream stream) {
    return gpu_ok(dev->gpu,
                  dev->gpu->memset_d32_async(dev->scores.ptr, INDEXER_POISON, dev->data->image_bytes / 4, stream),
                  "cuMemsetD32Async");
}

attns_status indexer_queue(const struct indexer_device *dev, attns_context *ctx, CUstream stream) {
    const attns_status status = attns_indexer_scores(ctx, &dev->params, stream);
    if (status != ATTNS_OK)
        fprintf(stderr, "indexer_scores: %s: %s\n", attns_status_string(status), attns_last_error());
    return status;
}

uint8_t *indexer_download(const struct indexer_device *dev, CUstream stream) {
    const struct gpu *gpu = dev->gpu;
    const CUresult waited = gpu_wait_stream(gpu, stream, WAIT_SECONDS);
    if (waited == CUDA_ERROR_NOT_READY) {
        fprintf(stderr, "the stream has not finished after %.0f s: a kernel hangs\n", WAIT_SECONDS);
        return NULL;
    }
    if (!gpu_ok(gpu, waited, "kernel"))
        return NULL;
    uint8_t *image = malloc(dev->data->image_bytes);
    if (image && gpu_ok(gpu, gpu->memcpy_dtoh(image, dev->scores.ptr, dev->data->image_bytes), "cuMemcpyDtoH"))
        return image;
    free(image);
    return NULL;
}

bool indexer_run_case(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct indexer_case *c,
                      enum logits_placement placement, const struct indexer_check_options *options,
                      struct indexer_report *report) {
    struct indexer_data data;
    struct indexer_device dev;
    struct indexer_report own;
    struct indexer_case placed = *c;
    char text[500];
    placed.bare_scores = c->bare_scores || placement != LOGITS_PLAIN;
    report = report ? report : &own;
    memset(report, 0, sizeof *report);
    if (!indexer_data_make(&data, &placed))
        return false;
    bool ok = indexer_upload(&dev, gpu, &data, placement);
    if (ok) {
        uint8_t *image = indexer_queue(&dev, ctx, stream) == ATTNS_OK ? indexer_download(&dev, stream) : NULL;
        ok = image && indexer_check(&data, image, options, report);
        if (image && !ok)
            indexer_report_print(report, indexer_case_text(&data.c, text, sizeof text));
        free(image);
        indexer_device_free(&dev);
    }
    if (!ok)
        fprintf(stderr, "failed: %s\n", indexer_case_text(&placed, text, sizeof text));
    indexer_data_free(&data);
    return ok;
}
