/* SPDX-License-Identifier: MIT
 *
 * One shape: its inputs, the logits call and the streaming yardstick over the same pools. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"
#include "ref/number_formats.h"

#define TILE_TOKENS 64

/* Rings and stages of bench_streaming.cu. */
#define STREAM_THREADS     256
#define STREAM_STAGES      12
#define STREAM_CTAS_PER_SM 2

/* Layout of StreamParams in bench_streaming.cu. */
struct stream_params {
    CUdeviceptr pool, units, positions, out;
    int64_t row_stride;
    int tiles, tiles_per_request;
    int units_per_tile, units_per_block, unit_tokens;
    int value_bytes, scale_bytes;
    int next_n, out_bytes;
};

struct inputs {
    const bench_shape *shape;
    const bench_settings *settings;
    int max_seq_len;
    int table_width;
    int64_t num_blocks, row_stride, total_tokens;
    size_t pool_bytes;
    int pools;

    struct gpu_buffer q, q_sf, weights, tables, lens, meta, out, units, positions;

    int64_t q_shape[4], q_sf_shape[3], kv_shape[4], weights_shape[2], tables_shape[2], lens_shape[1], meta_shape[2],
        out_shape[2];
    DLTensor q_tensor, q_sf_tensor, kv_tensor, weights_tensor, tables_tensor, lens_tensor, meta_tensor, out_tensor;
    attns_fp8_paged_mqa_logits_params fp8;
    attns_fp4_paged_mqa_logits_params fp4;
    attns_schedule_params schedule;
    struct stream_params stream;
};

static int ceil_div(int a, int b) {
    return a / b + (a % b != 0);
}

int bench_max_seq_len(const bench_shape *shape, const bench_settings *settings) {
    return settings->jitter ? (int)((int64_t)shape->seq_len * 13 / 10) : shape->seq_len;
}

bench_memory bench_memory_of(const bench *b, const bench_shape *shape, const bench_settings *settings) {
    int max_seq_len = bench_max_seq_len(shape, settings);
    size_t width = (size_t)ceil_div(max_seq_len, shape->block_size);
    size_t block_bytes = (size_t)(shape->block_size * bench_token_bytes(shape));
    size_t batch = (size_t)shape->batch, rows = batch * (size_t)shape->next_n;
    bench_memory memory;
    memory.pool_bytes = batch * width * block_bytes;
    memory.pools = bench_pools(b, memory.pool_bytes);
    memory.arena_bytes = memory.pool_bytes * (size_t)memory.pools;
    size_t tiles = batch * (size_t)ceil_div(max_seq_len, TILE_TOKENS);
    memory.other_bytes =
        rows * (size_t)shape->num_heads * (size_t)(bench_value_bytes(shape) + 8) + batch * width * 4 + batch * 4 +
        rows * ((size_t)max_seq_len + TILE_TOKENS) * (size_t)(bench_out_bits(shape->out_dtype) / 8) + tiles * 24;
    return memory;
}

/* ---- Inputs -------------------------------------------------------------------------------------------------- */

/* In [-510, 510], near normal. */
static int near_normal(uint64_t *random) {
    uint64_t bits = bench_random(random);
    return (int)((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24 & 255)) - 510;
}

/* As the KV values of bench_streaming.cu: the largest 448, or 6 with a scale from 2^-3 to 1. */
static bool make_queries(bench *b, struct inputs *in, uint64_t *random) {
    const bench_shape *s = in->shape;
    bool fp4 = s->variant == ATTNS_VARIANT_FP4;
    size_t heads = (size_t)s->batch * (size_t)s->next_n * (size_t)s->num_heads;
    size_t bytes = heads * (size_t)bench_value_bytes(s);
    uint8_t *q = malloc(bytes);
    uint32_t *scales = malloc(heads * sizeof(uint32_t));
    bool ok = q != NULL && scales != NULL;
    for (size_t i = 0; ok && i < bytes; i++) {
        if (fp4) {
            unsigned low = attns_double_to_e2m1(near_normal(random) * (6.0 / 340.0));
            q[i] = (uint8_t)(low | (unsigned)attns_double_to_e2m1(near_normal(random) * (6.0 / 340.0)) << 4);
        } else {
            q[i] = attns_double_to_e4m3(near_normal(random) * (448.0 / 510.0));
        }
    }
    for (size_t i = 0; ok && i < heads; i++) {
        scales[i] = 0x7c7c7c7cu + (uint32_t)(bench_random(random) & 0x03030303u);
    }
    ok = ok && bench_upload(b, &in->q, q, bytes) &&
         (!fp4 || bench_upload(b, &in->q_sf, scales, heads * sizeof(uint32_t)));
    free(q);
    free(scales);
    return ok;
}

/* Uniform in [-1, 1). */
static bool make_weights(bench *b, struct inputs *in, uint64_t *random) {
    const bench_shape *s = in->shape;
    size_t count = (size_t)s->batch * (size_t)s->next_n * (size_t)s->num_heads;
    float *weights = malloc(count * sizeof(float));
    bool ok = weights != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        weights[i] = (float)(bench_random(random) >> 40) * 0x1p-23f - 1.0f;
    }
    ok = ok && bench_upload(b, &in->weights, weights, count * sizeof(float));
    free(weights);
    return ok;
}

/* Lengths, and block tables that are one random permutation of the pool. */
static int32_t *make_tables(struct inputs *in, int32_t *lens, uint64_t *random) {
    const bench_shape *s = in->shape;
    for (int r = 0; r < s->batch; r++) {
        int64_t percent_low = 70, percent_span = 60;
        lens[r] = s->seq_len;
        if (in->settings->jitter) {
            int64_t low = s->seq_len * percent_low / 100, span = s->seq_len * percent_span / 100;
            lens[r] = (int32_t)(low + (int64_t)(bench_random(random) % (uint64_t)(span + 1)));
        }
        in->total_tokens += lens[r];
    }
    int32_t *tables = malloc((size_t)in->num_blocks * sizeof(int32_t));
    if (tables == NULL) {
        return NULL;
    }
    for (int64_t i = 0; i < in->num_blocks; i++) {
        int64_t other = (int64_t)(bench_random(random) % (uint64_t)(i + 1));
        tables[i] = tables[other];
        tables[other] = (int32_t)i;
    }
    return tables;
}

/* The yardstick's work list (see StreamParams). */
static bool make_stream_work(bench *b, struct inputs *in, const int32_t *lens, const int32_t *tables) {
    const bench_shape *s = in->shape;
    struct stream_params *p = &in->stream;
    p->unit_tokens = s->block_size < TILE_TOKENS ? s->block_size : TILE_TOKENS;
    p->units_per_tile = TILE_TOKENS / p->unit_tokens;
    p->units_per_block = s->block_size / p->unit_tokens;
    p->tiles_per_request = ceil_div(in->max_seq_len, TILE_TOKENS);
    size_t most = (size_t)s->batch * (size_t)p->tiles_per_request;
    int32_t *units = malloc(most * (size_t)p->units_per_tile * sizeof(int32_t));
    int32_t *positions = malloc(most * 2 * sizeof(int32_t));
    bool ok = units != NULL && positions != NULL;
    size_t tile = 0;
    for (int r = 0; ok && r < s->batch; r++) {
        const int32_t *row = tables + (int64_t)r * in->table_width;
        for (int token = 0; token < lens[r]; token += TILE_TOKENS, tile++) {
            positions[2 * tile] = r;
            positions[2 * tile + 1] = token;
            for (int u = 0; u < p->units_per_tile; u++) {
                int first = token + u * p->unit_tokens;
                units[tile * (size_t)p->units_per_tile + (size_t)u] =
                    first >= lens[r]
                        ? -1
                        : row[first / s->block_size] * p->units_per_block + first % s->block_size / p->unit_tokens;
            }
        }
    }
    p->tiles = (int)tile;
    ok = ok && bench_upload(b, &in->units, units, tile * (size_t)p->units_per_tile * sizeof(int32_t));
    if (ok && in->settings->jitter) {
        ok = bench_upload(b, &in->positions, positions, tile * 2 * sizeof(int32_t));
    }
    free(units);
    free(positions);
    p->units = in->units.ptr;
    p->positions = in->positions.ptr;
    p->row_stride = in->row_stride;
    p->value_bytes = bench_value_bytes(s);
    p->scale_bytes = bench_scale_bytes(s);
    p->next_n = s->next_n;
    p->out_bytes = (bench_out_bits(s->out_dtype) / 8);
    p->out = in->out.ptr;
    return ok;
}

static void set_shape(int64_t *shape, int64_t a, int64_t b) {
    shape[0] = a;
    shape[1] = b;
}

static void make_call(bench *b, struct inputs *in) {
    const bench_shape *s = in->shape;
    int64_t rows = (int64_t)s->batch * s->next_n;
    set_shape(in->q_shape, s->batch, s->next_n);
    set_shape(in->q_shape + 2, s->num_heads, bench_value_bytes(s));
    set_shape(in->q_sf_shape, s->batch, s->next_n);
    in->q_sf_shape[2] = s->num_heads;
    set_shape(in->kv_shape, in->num_blocks, s->block_size);
    set_shape(in->kv_shape + 2, 1, bench_token_bytes(s));
    set_shape(in->weights_shape, rows, s->num_heads);
    set_shape(in->tables_shape, s->batch, in->table_width);
    in->lens_shape[0] = s->batch;
    set_shape(in->meta_shape, b->gpu.num_sms + 1, 2);
    set_shape(in->out_shape, rows, in->row_stride);
    in->q_tensor = bench_tensor(&b->gpu, in->q.ptr, in->q_shape, 4, kDLUInt, 8);
    in->q_sf_tensor = bench_tensor(&b->gpu, in->q_sf.ptr, in->q_sf_shape, 3, kDLInt, 32);
    in->kv_tensor = bench_tensor(&b->gpu, b->arena.ptr, in->kv_shape, 4, kDLUInt, 8);
    in->weights_tensor = bench_tensor(&b->gpu, in->weights.ptr, in->weights_shape, 2, kDLFloat, 32);
    in->tables_tensor = bench_tensor(&b->gpu, in->tables.ptr, in->tables_shape, 2, kDLInt, 32);
    in->lens_tensor = bench_tensor(&b->gpu, in->lens.ptr, in->lens_shape, 1, kDLInt, 32);
    in->meta_tensor = bench_tensor(&b->gpu, in->meta.ptr, in->meta_shape, 2, kDLInt, 32);
    in->out_tensor = bench_tensor(&b->gpu, in->out.ptr, in->out_shape, 2, bench_out_code(s->out_dtype),
                                  bench_out_bits(s->out_dtype));
    in->fp8 = (attns_fp8_paged_mqa_logits_params){
        .q = &in->q_tensor,
        .kv_fused = &in->kv_tensor,
        .weights = &in->weights_tensor,
        .block_tables = &in->tables_tensor,
        .seq_lens = &in->lens_tensor,
        .schedule_meta = in->settings->schedule_meta ? &in->meta_tensor : NULL,
        .out = &in->out_tensor,
        .max_seq_len = in->max_seq_len,
        .clean_logits = in->settings->clean,
        .enable_pdl = in->settings->pdl,
    };
    in->fp4 = (attns_fp4_paged_mqa_logits_params){
        .q = &in->q_tensor,
        .q_sf = &in->q_sf_tensor,
        .kv_fused = &in->kv_tensor,
        .weights = &in->weights_tensor,
        .block_tables = &in->tables_tensor,
        .seq_lens = &in->lens_tensor,
        .schedule_meta = in->settings->schedule_meta ? &in->meta_tensor : NULL,
        .out = &in->out_tensor,
        .max_seq_len = in->max_seq_len,
        .clean_logits = in->settings->clean,
        .enable_pdl = in->settings->pdl,
    };
    in->schedule = (attns_schedule_params){
        .seq_lens = &in->lens_tensor,
        .schedule_meta = &in->meta_tensor,
        .variant = s->variant,
        .next_n = s->next_n,
    };
}

static bool make_inputs(bench *b, struct inputs *in) {
    const bench_shape *s = in->shape;
    uint64_t random = in->settings->seed;
    bench_memory memory = bench_memory_of(b, s, in->settings);
    in->pool_bytes = memory.pool_bytes;
    in->pools = memory.pools;
    in->max_seq_len = bench_max_seq_len(s, in->settings);
    in->table_width = ceil_div(in->max_seq_len, s->block_size);
    in->num_blocks = (int64_t)s->batch * in->table_width;
    /* Whole tiles, so that the yardstick needs no column check. */
    in->row_stride = (int64_t)ceil_div(in->max_seq_len, TILE_TOKENS) * TILE_TOKENS;

    int32_t *lens = malloc((size_t)s->batch * sizeof(int32_t));
    int32_t *tables = lens == NULL ? NULL : make_tables(in, lens, &random);
    size_t rows = (size_t)s->batch * (size_t)s->next_n;
    bool ok = tables != NULL && bench_fill(b, s, memory.arena_bytes, bench_random(&random)) &&
              make_queries(b, in, &random) && make_weights(b, in, &random) &&
              bench_upload(b, &in->tables, tables, (size_t)in->num_blocks * sizeof(int32_t)) &&
              bench_upload(b, &in->lens, lens, (size_t)s->batch * sizeof(int32_t)) &&
              gpu_buffer_alloc(&b->gpu, &in->meta, ((size_t)b->gpu.num_sms + 1) * 2 * sizeof(int32_t)) &&
              gpu_buffer_alloc(&b->gpu, &in->out,
                               rows * (size_t)in->row_stride * (size_t)(bench_out_bits(s->out_dtype) / 8)) &&
              make_stream_work(b, in, lens, tables);
    free(lens);
    free(tables);
    if (!ok) {
        cli_error("bench", "the inputs of a shape could not be made");
        return false;
    }
    make_call(b, in);
    return true;
}

static void free_inputs(bench *b, struct inputs *in) {
    struct gpu_buffer *buffers[] = {&in->q,    &in->q_sf, &in->weights, &in->tables,   &in->lens,
                                    &in->meta, &in->out,  &in->units,   &in->positions};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        gpu_buffer_free(&b->gpu, buffers[i]);
    }
}

/* ---- Calls --------------------------------------------------------------------------------------------------- */

static bool enqueue_call(bench *b, void *user, int i) {
    struct inputs *in = user;
    in->kv_tensor.data = (void *)(uintptr_t)(b->arena.ptr + (size_t)(i % in->pools) * in->pool_bytes);
    attns_status status = ATTNS_OK;
    if (in->settings->schedule_meta) {
        status = attns_compute_paged_mqa_logits_schedule(b->ctx, &in->schedule, b->stream);
    }
    if (status == ATTNS_OK) {
        status = in->shape->variant == ATTNS_VARIANT_FP4 ? attns_fp4_paged_mqa_logits(b->ctx, &in->fp4, b->stream)
                                                         : attns_fp8_paged_mqa_logits(b->ctx, &in->fp8, b->stream);
    }
    if (status != ATTNS_OK) {
        cli_fail("bench", status);
    }
    return status == ATTNS_OK;
}

static bool enqueue_stream(bench *b, void *user, int i) {
    struct inputs *in = user;
    in->stream.pool = b->arena.ptr + (size_t)(i % in->pools) * in->pool_bytes;
    unsigned shared = (unsigned)(STREAM_STAGES * TILE_TOKENS * bench_token_bytes(in->shape));
    void *arguments[] = {&in->stream};
    return gpu_ok(&b->gpu,
                  b->gpu.launch_kernel(b->stream_kernel, (unsigned)b->gpu.num_sms * STREAM_CTAS_PER_SM, 1, 1,
                                       STREAM_THREADS, 1, 1, shared, b->stream, arguments, NULL),
                  "launch of bench_stream");
}

int bench_measure(bench *b, const bench_shape *shape, const bench_settings *settings, bench_result *result) {
    struct inputs in = {.shape = shape, .settings = settings};
    memset(result, 0, sizeof(*result));
    bool ok = make_inputs(b, &in);
    if (ok) {
        double rows = (double)shape->batch * shape->next_n;
        double tokens = (double)in.total_tokens;
        int query_scales = shape->variant == ATTNS_VARIANT_FP4 ? 4 : 0; /* and the weights */
        result->bytes = tokens * bench_token_bytes(shape) +
                        rows * shape->num_heads * (bench_value_bytes(shape) + query_scales + 4) +
                        tokens * shape->next_n * (bench_out_bits(shape->out_dtype) / 8);
        result->flops = 2.0 * tokens * shape->next_n * shape->num_heads * shape->head_dim;
        result->fits_l2 = (double)in.pool_bytes * in.pools < 4.0 * b->gpu.l2_bytes;
        int shared = STREAM_STAGES * TILE_TOKENS * bench_token_bytes(shape);
        int calls = bench_calls(in.pools, result->bytes);
        ok =
            gpu_ok(&b->gpu,
                   b->gpu.func_set_attribute(b->stream_kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
                   "cuFuncSetAttribute") &&
            bench_time_graph(b, calls, settings->replays, enqueue_call, &in, &result->us) &&
            bench_time_graph(b, calls, settings->replays, enqueue_stream, &in, &result->limit_us) &&
            bench_time_host(b, enqueue_call, &in, result->us, &result->host_us, &result->launch_us);
    }
    free_inputs(b, &in);
    return ok ? CLI_OK : CLI_FAILED;
}
