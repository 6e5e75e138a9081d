/* SPDX-License-Identifier: MIT */
#include "common/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"

#define WAIT_SECONDS 20.0

static bool upload(const struct gpu *gpu, struct gpu_buffer *buffer, const void *from, size_t bytes,
                   enum logits_placement placement) {
    bool ok = placement == LOGITS_PLAIN
                  ? gpu_buffer_alloc(gpu, buffer, bytes)
                  : gpu_buffer_alloc_guarded(gpu, buffer, bytes,
                                             placement == LOGITS_GUARD_END ? GPU_FLUSH_END : GPU_FLUSH_START);
    return ok && (!from || gpu_ok(gpu, gpu->memcpy_htod(buffer->ptr, from, bytes), "cuMemcpyHtoD"));
}

bool logits_upload(struct logits_device *dev, const struct gpu *gpu, const struct logits_data *data,
                   enum logits_placement placement, const struct logits_device *pool) {
    memset(dev, 0, sizeof *dev);
    dev->gpu = gpu;
    dev->data = data;
    size_t meta_bytes = data->c.num_shares ? (size_t)(data->c.num_shares + 1) * 8 : 0;
    bool ok = upload(gpu, &dev->q, data->q, data->q_bytes, placement) &&
              (!data->q_sf || upload(gpu, &dev->q_sf, data->q_sf, data->q_sf_bytes, placement)) &&
              (pool || upload(gpu, &dev->kv, data->kv, data->kv_bytes, placement)) &&
              upload(gpu, &dev->weights, data->weights, data->weights_bytes, placement) &&
              upload(gpu, &dev->tables, data->tables, data->tables_bytes, placement) &&
              upload(gpu, &dev->lens, data->lens, data->lens_bytes, placement) &&
              (!meta_bytes || upload(gpu, &dev->meta, NULL, meta_bytes, placement)) &&
              upload(gpu, &dev->out, NULL, data->out_image_bytes, placement) && logits_poison(dev, NULL) &&
              gpu_ok(gpu, gpu->ctx_synchronize(), "cuCtxSynchronize");
    if (!ok) {
        logits_device_free(dev);
        return false;
    }
    dev->kv_at = pool ? pool->kv_at : dev->kv.ptr;
    struct logits_addresses at = {.q = (void *)(uintptr_t)dev->q.ptr,
                                  .q_sf = (void *)(uintptr_t)dev->q_sf.ptr,
                                  .kv = (void *)(uintptr_t)dev->kv_at,
                                  .weights = (void *)(uintptr_t)dev->weights.ptr,
                                  .tables = (void *)(uintptr_t)dev->tables.ptr,
                                  .lens = (void *)(uintptr_t)dev->lens.ptr,
                                  .meta = (void *)(uintptr_t)dev->meta.ptr,
                                  .out = (void *)(uintptr_t)(dev->out.ptr + data->out_front_bytes)};
    logits_tensors_make(&dev->tensors, &dev->call, data, (DLDevice){kDLCUDA, gpu->ordinal}, &at);
    return true;
}

void logits_device_free(struct logits_device *dev) {
    struct gpu_buffer *all[] = {&dev->q,      &dev->q_sf, &dev->kv,   &dev->weights,
                                &dev->tables, &dev->lens, &dev->meta, &dev->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_buffer_free(dev->gpu, all[i]);
}

bool logits_poison(const struct logits_device *dev, CUstream stream) {
    return gpu_ok(dev->gpu,
                  dev->gpu->memset_d16_async(dev->out.ptr, (unsigned short)(LOGITS_POISON & 0xffff),
                                             dev->data->out_image_bytes / 2, stream),
                  "cuMemsetD16Async");
}

static attns_status told(attns_status status, const char *what) {
    if (status != ATTNS_OK)
        fprintf(stderr, "%s: %s: %s\n", what, attns_status_string(status), attns_last_error());
    return status;
}

attns_status logits_queue_schedule(const struct logits_device *dev, attns_context *ctx, CUstream stream) {
    attns_schedule_params p = {.seq_lens = &dev->tensors.lens,
                               .schedule_meta = &dev->tensors.meta,
                               .variant = dev->call.variant,
                               .next_n = dev->data->c.next_n};
    return told(attns_compute_paged_mqa_logits_schedule(ctx, &p, stream), "compute_paged_mqa_logits_schedule");
}

/* On Hopper the tuned fp4 kernel serves, unless the context was told otherwise. */
static enum logits_fp4_sums fp4_sums_of(const struct logits_device *dev, const attns_context *ctx) {
    bool tuned = ctx->family_choice != ATTNS_CHOOSE_PORTABLE && (!ctx->arch || strcmp(ctx->arch, "sm_90a") == 0);
    return dev->gpu->compute_capability == 90 && tuned ? LOGITS_FP4_ON_FP8_TENSOR_CORES : LOGITS_FP4_FLOAT32;
}

attns_status logits_queue_logits(const struct logits_device *dev, attns_context *ctx, CUstream stream) {
    logits_check_fp4_sums(fp4_sums_of(dev, ctx));
    return told(logits_call_run(ctx, &dev->call, stream),
                dev->call.variant == ATTNS_VARIANT_FP4 ? "fp4_paged_mqa_logits" : "fp8_paged_mqa_logits");
}

attns_status logits_queue(const struct logits_device *dev, attns_context *ctx, CUstream stream) {
    attns_status status = dev->call.fp8.schedule_meta ? logits_queue_schedule(dev, ctx, stream) : ATTNS_OK;
    return status == ATTNS_OK ? logits_queue_logits(dev, ctx, stream) : status;
}

uint8_t *logits_download(const struct logits_device *dev, CUstream stream) {
    const struct gpu *gpu = dev->gpu;
    CUresult waited = gpu_wait_stream(gpu, stream, WAIT_SECONDS);
    if (waited == CUDA_ERROR_NOT_READY) {
        fprintf(stderr, "the stream has not finished after %.0f s: a kernel hangs\n", WAIT_SECONDS);
        return NULL;
    }
    if (!gpu_ok(gpu, waited, "kernel"))
        return NULL;
    uint8_t *image = malloc(dev->data->out_image_bytes);
    if (image && gpu_ok(gpu, gpu->memcpy_dtoh(image, dev->out.ptr, dev->data->out_image_bytes), "cuMemcpyDtoH"))
        return image;
    free(image);
    return NULL;
}

bool logits_run_data(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct logits_data *data,
                     enum logits_placement placement, const struct logits_check_options *options,
                     struct logits_report *report) {
    struct logits_device dev;
    struct logits_report own;
    char text[400];
    if (!report)
        report = &own;
    memset(report, 0, sizeof *report);
    logits_case_text(&data->c, text, sizeof text);
    bool ok = logits_upload(&dev, gpu, data, placement, NULL);
    if (ok) {
        uint8_t *image = logits_queue(&dev, ctx, stream) == ATTNS_OK ? logits_download(&dev, stream) : NULL;
        ok = image && logits_check(data, image, options, report);
        if (image && !ok)
            logits_report_print(report, text);
        free(image);
        logits_device_free(&dev);
    }
    if (!ok)
        fprintf(stderr, "failed: %s\n", text);
    return ok;
}

bool logits_run_case(const struct gpu *gpu, attns_context *ctx, CUstream stream, const struct logits_case *c,
                     enum logits_placement placement, const struct logits_check_options *options,
                     struct logits_report *report) {
    struct logits_data data;
    struct logits_case placed = *c;
    placed.bare_out = c->bare_out || placement != LOGITS_PLAIN;
    if (!logits_data_make(&data, &placed))
        return false;
    bool ok = logits_run_data(gpu, ctx, stream, &data, placement, options, report);
    logits_data_free(&data);
    return ok;
}

/* ---- Compiling ahead ---- */

struct precompiler {
    const attns_context_params *params;
    const struct logits_case *cases;
    size_t num_cases, next;
    bool failed;
    pthread_mutex_t mutex;
};

static bool same_kernel(const struct logits_case *a, const struct logits_case *b) {
    return a->variant == b->variant && a->sf_interleaved == b->sf_interleaved && a->heads == b->heads &&
           a->head_dim == b->head_dim && a->block_size == b->block_size && a->next_n == b->next_n &&
           a->out_dtype == b->out_dtype && a->acc_dtype == b->acc_dtype && a->epi_dtype == b->epi_dtype;
}

static attns_status precompile_one(attns_context *ctx, const struct logits_case *c, attns_precompile_fn progress,
                                   void *user) {
    attns_variant variant = c->variant ? c->variant : ATTNS_VARIANT_FP8;
    attns_precompile_params p = {.variants = &variant,
                                 .num_variants = 1,
                                 .num_heads = &c->heads,
                                 .num_num_heads = 1,
                                 .head_dims = &c->head_dim,
                                 .num_head_dims = 1,
                                 .block_sizes = &c->block_size,
                                 .num_block_sizes = 1,
                                 .next_ns = &c->next_n,
                                 .num_next_ns = 1,
                                 .out_dtypes = c->out_dtype ? &c->out_dtype : NULL,
                                 .num_out_dtypes = c->out_dtype ? 1 : 0,
                                 .acc_dtypes = c->acc_dtype ? &c->acc_dtype : NULL,
                                 .num_acc_dtypes = c->acc_dtype ? 1 : 0,
                                 .epi_dtypes = c->epi_dtype ? &c->epi_dtype : NULL,
                                 .num_epi_dtypes = c->epi_dtype ? 1 : 0,
                                 .kv_sf_interleaved = &c->sf_interleaved,
                                 .num_kv_sf_interleaved = 1,
                                 .jobs = 1,
                                 .progress = progress,
                                 .progress_user = user};
    return attns_precompile_paged_mqa_logits(ctx, &p);
}

/* Each thread has a context of its own: they meet in the cache on disk. */
static void *precompile_thread(void *argument) {
    struct precompiler *k = argument;
    attns_context *ctx = NULL;
    bool created = told(attns_context_create(&ctx, k->params), "attns_context_create") == ATTNS_OK;
    bool ok = created;
    while (created) {
        pthread_mutex_lock(&k->mutex);
        size_t i = k->next++;
        pthread_mutex_unlock(&k->mutex);
        if (i >= k->num_cases)
            break;
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = same_kernel(&k->cases[i], &k->cases[j]);
        if (!seen && told(precompile_one(ctx, &k->cases[i], NULL, NULL), "precompile") != ATTNS_OK)
            ok = false;
    }
    attns_context_destroy(ctx);
    if (!ok) {
        pthread_mutex_lock(&k->mutex);
        k->failed = true;
        pthread_mutex_unlock(&k->mutex);
    }
    return NULL;
}

static void take_total(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    (void)done, (void)result;
    *(size_t *)user = total;
}

size_t logits_num_kernels(attns_context *ctx, const struct logits_case *c) {
    size_t total = 0;
    if (told(precompile_one(ctx, c, take_total, &total), "precompile") != ATTNS_OK)
        return 0;
    return total - 1; /* the schedule kernel came along */
}

bool logits_precompile(const attns_context_params *params, const struct logits_case *cases, size_t num_cases) {
    struct precompiler k = {.params = params, .cases = cases, .num_cases = num_cases};
    pthread_mutex_init(&k.mutex, NULL);
    pthread_t ids[16];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    while (started + 1 < cpus && started < 15 && pthread_create(&ids[started], NULL, precompile_thread, &k) == 0)
        started++;
    precompile_thread(&k);
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    pthread_mutex_destroy(&k.mutex);
    return !k.failed;
}
