/* SPDX-License-Identifier: MIT
 *
 * One shape of indexer_scores: its inputs and the measured call. An NVFP4 page is one piece of a cache, keys then
 * scales. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"

enum { PAGE_KEYS = 64, HEAD_DIM = 128, SHORT_PART = 64 };

struct inputs {
    const bench_indexer_shape *shape;
    const bench_settings *settings;
    int64_t table_width, num_pages, total_keys, page_bytes;
    size_t pool_bytes;
    int pools;
    struct gpu_buffer query, query_scales, tables, lens, requests, scores;
    int64_t query_shape[2], query_scale_shape[2], key_shape[3], key_strides[3], scale_shape[3], scale_strides[3];
    int64_t table_shape[2], group_shape[1], score_shape[2];
    DLTensor query_tensor, query_scale_tensor, key_tensor, scale_tensor, table_tensor, len_tensor, request_tensor,
        score_tensor;
    attns_indexer_scores_params call;
};

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static int64_t key_bytes(const bench_indexer_shape *shape) {
    return shape->nvfp4 ? HEAD_DIM / 2 + HEAD_DIM / 16 : HEAD_DIM * 2;
}

static int keys_of(const bench_indexer_shape *shape, int group) {
    return shape->one_long && group > 0 ? (int)ceil_div(shape->keys, SHORT_PART) : shape->keys;
}

static int64_t pages_of(const bench_indexer_shape *shape) {
    int64_t pages = 0;
    for (int g = 0; g < shape->groups; g++) {
        pages += ceil_div(keys_of(shape, g), PAGE_KEYS);
    }
    return pages;
}

bench_memory bench_indexer_memory(const bench *b, const bench_indexer_shape *shape) {
    const size_t rows = (size_t)shape->groups * (size_t)shape->rows, groups = (size_t)shape->groups;
    const size_t width = (size_t)ceil_div(shape->keys, PAGE_KEYS);
    bench_memory memory;
    memory.pool_bytes = (size_t)(pages_of(shape) * PAGE_KEYS * key_bytes(shape));
    memory.pools = bench_pools(b, memory.pool_bytes);
    memory.arena_bytes = memory.pool_bytes * (size_t)memory.pools;
    memory.other_bytes = rows * ((size_t)shape->keys * 4 + HEAD_DIM * 2) + groups * (width * 4 + 8);
    return memory;
}

/* ---- Inputs ---- */

static bool fill_pages(bench *b, const struct inputs *in, uint64_t seed) {
    CUdeviceptr words = b->arena.ptr;
    int64_t num_words = (int64_t)(in->pool_bytes / 4) * in->pools;
    int page_words = (int)(in->page_bytes / 4);
    int value_words = in->shape->nvfp4 ? PAGE_KEYS * HEAD_DIM / 2 / 4 : page_words;
    void *arguments[] = {&words, &num_words, &page_words, &value_words, &seed};
    return gpu_ok(&b->gpu,
                  b->gpu.launch_kernel(b->fill_pages_kernel, (unsigned)b->gpu.num_sms * 8, 1, 1, 256, 1, 1, 0,
                                       b->stream, arguments, NULL),
                  "launch of bench_fill_pages") &&
           gpu_ok(&b->gpu, b->gpu.stream_synchronize(b->stream), "cuStreamSynchronize");
}

/* bfloat16 of random sign and 0.5 .. 2, or random E2M1 values with E4M3 scales of 0.25 .. 1. */
static bool make_queries(bench *b, struct inputs *in, uint64_t *random) {
    const size_t rows = (size_t)in->shape->groups * (size_t)in->shape->rows;
    const size_t bytes = rows * (in->shape->nvfp4 ? HEAD_DIM / 2 : HEAD_DIM * 2), scale_bytes = rows * HEAD_DIM / 16;
    uint8_t *query = malloc(bytes), *scales = malloc(scale_bytes);
    bool ok = query != NULL && scales != NULL;
    for (size_t i = 0; ok && i < bytes; i++) {
        query[i] = (uint8_t)bench_random(random);
        if (!in->shape->nvfp4 && i % 2 == 1) {
            query[i] = (uint8_t)((query[i] & 0x80) | 0x3f);
        }
    }
    for (size_t i = 0; ok && i < scale_bytes; i++) {
        scales[i] = (uint8_t)(0x28 + bench_random(random) % 16);
    }
    ok = ok && bench_upload(b, &in->query, query, bytes) && bench_upload(b, &in->query_scales, scales, scale_bytes);
    free(query);
    free(scales);
    return ok;
}

/* Lengths, requests in order, and tables that are one random permutation of the pool. */
static bool make_tables(bench *b, struct inputs *in, uint64_t *random) {
    const bench_indexer_shape *s = in->shape;
    const size_t groups = (size_t)s->groups;
    int32_t *ids = malloc((size_t)in->num_pages * sizeof(int32_t));
    int32_t *tables = calloc(groups * (size_t)in->table_width, sizeof(int32_t));
    int32_t *lens = malloc(groups * sizeof(int32_t)), *requests = malloc(groups * sizeof(int32_t));
    bool ok = ids != NULL && tables != NULL && lens != NULL && requests != NULL;
    for (int64_t i = 0; ok && i < in->num_pages; i++) {
        const int64_t other = (int64_t)(bench_random(random) % (uint64_t)(i + 1));
        ids[i] = ids[other];
        ids[other] = (int32_t)i;
    }
    int64_t next = 0;
    for (int g = 0; ok && g < s->groups; g++) {
        requests[g] = g;
        lens[g] = keys_of(s, g);
        if (in->settings->jitter) { /* 0.7 to 1 of it, so that the pool has room */
            lens[g] -= (int32_t)(bench_random(random) % (uint64_t)(3 * (int64_t)lens[g] / 10 + 1));
        }
        in->total_keys += lens[g];
        for (int64_t j = 0; j < ceil_div(lens[g], PAGE_KEYS); j++) {
            tables[g * in->table_width + j] = ids[next++];
        }
    }
    ok = ok && bench_upload(b, &in->tables, tables, groups * (size_t)in->table_width * sizeof(int32_t)) &&
         bench_upload(b, &in->lens, lens, groups * sizeof(int32_t)) &&
         bench_upload(b, &in->requests, requests, groups * sizeof(int32_t));
    free(ids);
    free(tables);
    free(lens);
    free(requests);
    return ok;
}

static void set_shape(int64_t *shape, int64_t a, int64_t b, int64_t c) {
    shape[0] = a;
    shape[1] = b;
    if (c > 0) {
        shape[2] = c;
    }
}

static void make_call(bench *b, struct inputs *in) {
    const struct gpu *gpu = &b->gpu;
    const bool nvfp4 = in->shape->nvfp4;
    const int64_t rows = (int64_t)in->shape->groups * in->shape->rows;
    const int64_t width = nvfp4 ? HEAD_DIM / 2 : HEAD_DIM, size = nvfp4 ? 1 : 2;
    const DLDataTypeCode code = nvfp4 ? kDLUInt : kDLBfloat;
    set_shape(in->query_shape, rows, width, 0);
    set_shape(in->query_scale_shape, rows, HEAD_DIM / 16, 0);
    set_shape(in->key_shape, in->num_pages, PAGE_KEYS, width);
    set_shape(in->key_strides, in->page_bytes / size, width, 1);
    set_shape(in->scale_shape, in->num_pages, PAGE_KEYS, HEAD_DIM / 16);
    set_shape(in->scale_strides, in->page_bytes, HEAD_DIM / 16, 1);
    set_shape(in->table_shape, in->shape->groups, in->table_width, 0);
    in->group_shape[0] = in->shape->groups;
    set_shape(in->score_shape, rows, in->shape->keys, 0);
    in->query_tensor = bench_tensor(gpu, in->query.ptr, in->query_shape, 2, code, (int)size * 8);
    in->query_scale_tensor = bench_tensor(gpu, in->query_scales.ptr, in->query_scale_shape, 2, kDLUInt, 8);
    in->key_tensor = bench_tensor(gpu, b->arena.ptr, in->key_shape, 3, code, (int)size * 8);
    in->key_tensor.strides = in->key_strides;
    in->scale_tensor = bench_tensor(gpu, b->arena.ptr, in->scale_shape, 3, kDLUInt, 8);
    in->scale_tensor.strides = in->scale_strides;
    in->table_tensor = bench_tensor(gpu, in->tables.ptr, in->table_shape, 2, kDLInt, 32);
    in->len_tensor = bench_tensor(gpu, in->lens.ptr, in->group_shape, 1, kDLInt, 32);
    in->request_tensor = bench_tensor(gpu, in->requests.ptr, in->group_shape, 1, kDLInt, 32);
    in->score_tensor = bench_tensor(gpu, in->scores.ptr, in->score_shape, 2, kDLFloat, 32);
    in->call = (attns_indexer_scores_params){
        .query = &in->query_tensor,
        .query_scales = nvfp4 ? &in->query_scale_tensor : NULL,
        .key_cache = &in->key_tensor,
        .key_scales = nvfp4 ? &in->scale_tensor : NULL,
        .block_table = &in->table_tensor,
        .context_lengths = &in->len_tensor,
        .requests = &in->request_tensor,
        .scores = &in->score_tensor,
        .enable_pdl = in->settings->pdl,
    };
}

static bool make_inputs(bench *b, struct inputs *in) {
    const bench_indexer_shape *s = in->shape;
    uint64_t random = in->settings->seed;
    const bench_memory memory = bench_indexer_memory(b, s);
    in->pool_bytes = memory.pool_bytes;
    in->pools = memory.pools;
    in->page_bytes = PAGE_KEYS * key_bytes(s);
    in->num_pages = pages_of(s);
    in->table_width = ceil_div(s->keys, PAGE_KEYS);
    const size_t score_bytes = (size_t)s->groups * (size_t)s->rows * (size_t)s->keys * sizeof(float);
    const bool ok = fill_pages(b, in, bench_random(&random)) && make_queries(b, in, &random) &&
                    make_tables(b, in, &random) && gpu_buffer_alloc(&b->gpu, &in->scores, score_bytes);
    if (ok) {
        make_call(b, in);
    } else {
        cli_error("bench", "the inputs of a shape could not be made");
    }
    return ok;
}

static bool enqueue_call(bench *b, void *user, int i) {
    struct inputs *in = user;
    char *const pool = (char *)(uintptr_t)(b->arena.ptr + (size_t)(i % in->pools) * in->pool_bytes);
    in->key_tensor.data = pool;
    in->scale_tensor.data = pool + (in->shape->nvfp4 ? PAGE_KEYS * HEAD_DIM / 2 : 0);
    const attns_status status = attns_indexer_scores(b->ctx, &in->call, b->stream);
    if (status != ATTNS_OK) {
        cli_fail("bench", status);
    }
    return status == ATTNS_OK;
}

int bench_measure_indexer(bench *b, const bench_indexer_shape *shape, const bench_settings *settings,
                          bench_indexer_result *result) {
    struct inputs in = {.shape = shape, .settings = settings};
    memset(result, 0, sizeof(*result));
    bool ok = make_inputs(b, &in);
    if (ok) {
        const double rows = (double)shape->groups * shape->rows;
        result->bytes =
            (double)in.total_keys * (double)(key_bytes(shape) + 4 * shape->rows) + rows * (double)key_bytes(shape);
        ok = bench_time_graph(b, bench_calls(in.pools, result->bytes), settings->replays, enqueue_call, &in,
                              &result->us) &&
             bench_count_launches(b, enqueue_call, &in, &result->launches) &&
             bench_time_host(b, enqueue_call, &in, result->us, &result->host_us, &result->launch_us);
    }
    struct gpu_buffer *buffers[] = {&in.query, &in.query_scales, &in.tables, &in.lens, &in.requests, &in.scores};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        gpu_buffer_free(&b->gpu, buffers[i]);
    }
    return ok ? CLI_OK : CLI_FAILED;
}
