/* SPDX-License-Identifier: MIT
 *
 * Embedding example: how a serving runtime uses the library, with the public header and the driver API alone.
 *
 *   1. Deploy time: precompile the kernels of the model into a cache directory. Needs no GPU.
 *   2. Start-up: create a context over that cache, allocate the KV pool, capture one decode step in a CUDA graph.
 *   3. Serving: write the grown lengths, block tables and new tokens into the captured buffers and replay the graph.
 *
 * The model has two kinds of layers: some score tokens by FP8 logits over all heads, others by one NVFP4 query head
 * (indexer_scores). Both use the same block table.
 *
 * Along the way scores of random rows are compared with the library's double-precision reference, and the counters
 * prove that serving never compiled.
 *
 * Usage: serving_loop CACHE_DIR [--schedule] [--seed N]
 *   CACHE_DIR   where the kernels go
 *   --schedule  compute schedule_meta with the helper in every step instead of letting the call schedule itself
 *   --seed      repeats the run that printed this seed
 * Exit code: 0 success, 1 failure, 77 the deploy part succeeded and there is no GPU for the rest. */
#include <attn_scores/attn_scores.h>
#include <cuda.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A small model: what a real runtime takes from its configuration. */
enum {
    NUM_HEADS = 64,
    HEAD_DIM = 128,
    BLOCK_SIZE = 64,
    NEXT_N = 2,
    BATCH = 6,
    MAX_SEQ_LEN = 2048,
    TABLE_WIDTH = MAX_SEQ_LEN / BLOCK_SIZE,
    NUM_BLOCKS = BATCH * TABLE_WIDTH,
    BLOCK_BYTES = BLOCK_SIZE * (HEAD_DIM + 4),
    INDEX_KEY_BYTES = HEAD_DIM / 2,   /* NVFP4: two values in a byte */
    INDEX_KEY_SCALES = HEAD_DIM / 16, /* a byte for every 16 values */
    INDEX_PAGE_BYTES = BLOCK_SIZE * (INDEX_KEY_BYTES + INDEX_KEY_SCALES),
    STEPS = 24
};

/* ---- The driver API, opened at run time so that the deploy part runs anywhere -------------------------------- */

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(device_get, "cuDeviceGet", (CUdevice *, int))                                                                    \
    X(device_get_attribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))                             \
    X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                         \
    X(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                                 \
    X(ctx_set_current, "cuCtxSetCurrent", (CUcontext))                                                                 \
    X(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                             \
    X(mem_free, "cuMemFree_v2", (CUdeviceptr))                                                                         \
    X(memcpy_htod_async, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                        \
    X(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                              \
    X(stream_create, "cuStreamCreate", (CUstream *, unsigned))                                                         \
    X(stream_destroy, "cuStreamDestroy_v2", (CUstream))                                                                \
    X(stream_synchronize, "cuStreamSynchronize", (CUstream))                                                           \
    X(stream_begin_capture, "cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode))                                \
    X(stream_end_capture, "cuStreamEndCapture", (CUstream, CUgraph *))                                                 \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long))                  \
    X(graph_launch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                          \
    X(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec))                                                         \
    X(graph_destroy, "cuGraphDestroy", (CUgraph))

struct driver {
#define DRIVER_MEMBER(member, symbol, params) CUresult(CUDAAPI *member) params;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

static struct driver cu;

static bool open_driver(void) {
    const char *path = getenv("ATTNS_LIBCUDA");
    void *library = dlopen(path == NULL || *path == '\0' ? "libcuda.so.1" : path, RTLD_NOW | RTLD_NODELETE);
    if (library == NULL) {
        return false;
    }
    void *address;
#define DRIVER_BIND(member, symbol, params)                                                                            \
    address = dlsym(library, symbol);                                                                                  \
    memcpy(&cu.member, &address, sizeof(address));                                                                     \
    if (address == NULL) {                                                                                             \
        return false;                                                                                                  \
    }
    DRIVER_FUNCTIONS(DRIVER_BIND)
#undef DRIVER_BIND
    CUdevice device;
    return cu.init(0) == CUDA_SUCCESS && cu.device_get(&device, 0) == CUDA_SUCCESS;
}

/* An example stops at the first error; a runtime would report it to its caller. */
static void check_cuda(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", call, (int)result);
        exit(1);
    }
}

static void check(attns_status status, const char *call) {
    if (status != ATTNS_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, attns_status_string(status), attns_last_error());
        exit(1);
    }
}

/* ---- Deploy time --------------------------------------------------------------------------------------------- */

static void on_kernel(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    (void)user;
    printf("[%zu/%zu] %s %s%s: %.2f s\n", done, total, result->arch, result->kernel,
           result->source == ATTNS_FROM_DISK ? " (already cached)" : "", result->seconds);
}

static void deploy(const char *cache_dir) {
    attns_context *ctx;
    check(attns_context_create(&ctx, &(attns_context_params){.cache_dir = cache_dir}), "attns_context_create");
    const char *arch = "sm_90a";
    const attns_variant variants[] = {ATTNS_VARIANT_FP8, ATTNS_VARIANT_INDEXER_NVFP4};
    const int num_heads = NUM_HEADS, head_dim = HEAD_DIM, block_size = BLOCK_SIZE, next_n = NEXT_N;
    const attns_precompile_params params = {
        .archs = &arch,
        .num_archs = 1,
        .variants = variants,
        .num_variants = 2,
        .num_heads = &num_heads,
        .num_num_heads = 1,
        .head_dims = &head_dim,
        .num_head_dims = 1,
        .block_sizes = &block_size,
        .num_block_sizes = 1,
        .next_ns = &next_n,
        .num_next_ns = 1,
        .progress = on_kernel,
    };
    check(attns_precompile_paged_mqa_logits(ctx, &params), "attns_precompile_paged_mqa_logits");
    attns_context_destroy(ctx);
}

/* ---- The model's buffers, on the device and as the host's copy of the truth ---------------------------------- */

static uint64_t random_state;

static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* A finite e4m3 value of moderate size: sign, exponent 4..9, mantissa. */
static uint8_t random_e4m3(void) {
    uint32_t bits = random_bits();
    return (uint8_t)((bits & 0x80) | (4 + (bits >> 8) % 6) << 3 | (bits >> 16 & 7));
}

/* A positive E4M3 scale of 2^-3 to almost 2. */
static uint8_t random_scale(void) {
    return (uint8_t)(0x20 + random_bits() % 32);
}

/* One buffer with a device and a host side and the tensors that describe them. */
struct buffer {
    size_t bytes;
    int64_t shape[4];
    void *host;
    CUdeviceptr device;
    DLTensor on_device, on_host;
};

static void buffer_make(struct buffer *b, int ndim, const int64_t *shape, DLDataTypeCode code, int bits) {
    b->bytes = (size_t)bits / 8;
    for (int i = 0; i < ndim; i++) {
        b->shape[i] = shape[i];
        b->bytes *= (size_t)shape[i];
    }
    b->host = calloc(1, b->bytes);
    if (b->host == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    check_cuda(cu.mem_alloc(&b->device, b->bytes), "cuMemAlloc");
    b->on_host = (DLTensor){
        .data = b->host,
        .device = {kDLCPU, 0},
        .ndim = ndim,
        .dtype = {(uint8_t)code, (uint8_t)bits, 1},
        .shape = b->shape,
    };
    b->on_device = b->on_host;
    b->on_device.data = (void *)(uintptr_t)b->device;
    b->on_device.device = (DLDevice){kDLCUDA, 0};
}

static void buffer_upload(const struct buffer *b, CUstream stream) {
    check_cuda(cu.memcpy_htod_async(b->device, b->host, b->bytes, stream), "cuMemcpyHtoDAsync");
}

static void buffer_free(struct buffer *b) {
    cu.mem_free(b->device);
    free(b->host);
}

struct model {
    struct buffer q, kv, weights, tables, lens, meta, out;
    struct buffer index_q, index_q_scales, index_cache, requests, scores;
    int32_t *free_blocks; /* a stack */
    int num_free;
};

static void model_make(struct model *m, int num_sms) {
    buffer_make(&m->q, 4, (int64_t[]){BATCH, NEXT_N, NUM_HEADS, HEAD_DIM}, kDLUInt, 8);
    buffer_make(&m->kv, 4, (int64_t[]){NUM_BLOCKS, BLOCK_SIZE, 1, HEAD_DIM + 4}, kDLUInt, 8);
    buffer_make(&m->weights, 2, (int64_t[]){BATCH * NEXT_N, NUM_HEADS}, kDLFloat, 32);
    buffer_make(&m->tables, 2, (int64_t[]){BATCH, TABLE_WIDTH}, kDLInt, 32);
    buffer_make(&m->lens, 1, (int64_t[]){BATCH}, kDLInt, 32);
    buffer_make(&m->meta, 2, (int64_t[]){num_sms + 1, 2}, kDLInt, 32);
    buffer_make(&m->out, 2, (int64_t[]){BATCH * NEXT_N, MAX_SEQ_LEN}, kDLFloat, 32);
    buffer_make(&m->index_q, 2, (int64_t[]){BATCH * NEXT_N, INDEX_KEY_BYTES}, kDLUInt, 8);
    buffer_make(&m->index_q_scales, 2, (int64_t[]){BATCH * NEXT_N, INDEX_KEY_SCALES}, kDLUInt, 8);
    buffer_make(&m->index_cache, 2, (int64_t[]){NUM_BLOCKS, INDEX_PAGE_BYTES}, kDLUInt, 8);
    buffer_make(&m->requests, 1, (int64_t[]){BATCH}, kDLInt, 32);
    buffer_make(&m->scores, 2, (int64_t[]){BATCH * NEXT_N, MAX_SEQ_LEN}, kDLFloat, 32);
    for (int32_t i = 0; i < BATCH; i++) {
        ((int32_t *)m->requests.host)[i] = i; /* group i, the NEXT_N rows of request i, uses row i of the block table */
    }
    /* Blocks are handed out in random order, as after hours of serving. */
    m->free_blocks = malloc(NUM_BLOCKS * sizeof(int32_t));
    if (m->free_blocks == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    m->num_free = NUM_BLOCKS;
    for (int32_t i = 0; i < NUM_BLOCKS; i++) {
        int32_t other = (int32_t)(random_bits() % (uint32_t)(i + 1));
        m->free_blocks[i] = m->free_blocks[other];
        m->free_blocks[other] = i;
    }
}

static void model_free(struct model *m) {
    struct buffer *buffers[] = {&m->q,   &m->kv,      &m->weights,        &m->tables,      &m->lens,     &m->meta,
                                &m->out, &m->index_q, &m->index_q_scales, &m->index_cache, &m->requests, &m->scores};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        buffer_free(buffers[i]);
    }
    free(m->free_blocks);
}

/* Appends one token to a request: the values and the scale of its FP8 key, in the block layout of the header, and its
 * NVFP4 key. */
static void append_token(struct model *m, int request) {
    int32_t *len = (int32_t *)m->lens.host + request;
    int32_t *table = (int32_t *)m->tables.host + request * TABLE_WIDTH;
    if (*len % BLOCK_SIZE == 0) {
        table[*len / BLOCK_SIZE] = m->free_blocks[--m->num_free];
    }
    uint8_t *block = (uint8_t *)m->kv.host + (size_t)table[*len / BLOCK_SIZE] * BLOCK_BYTES;
    int slot = *len % BLOCK_SIZE;
    for (int d = 0; d < HEAD_DIM; d++) {
        block[slot * HEAD_DIM + d] = random_e4m3();
    }
    float scale = ldexpf(1.0f + (float)(random_bits() >> 9) * 0x1p-23f, -(int)(random_bits() % 8));
    memcpy(block + BLOCK_SIZE * HEAD_DIM + slot * 4, &scale, sizeof(scale));

    uint8_t *page = (uint8_t *)m->index_cache.host + (size_t)table[*len / BLOCK_SIZE] * INDEX_PAGE_BYTES;
    for (int i = 0; i < INDEX_KEY_BYTES; i++) {
        page[slot * INDEX_KEY_BYTES + i] = (uint8_t)random_bits();
    }
    for (int i = 0; i < INDEX_KEY_SCALES; i++) {
        page[BLOCK_SIZE * INDEX_KEY_BYTES + slot * INDEX_KEY_SCALES + i] = random_scale();
    }
    ++*len;
}

/* What the layers before the indexer would have produced for this step. */
static void new_step(struct model *m, int step) {
    for (size_t i = 0; i < m->q.bytes; i++) {
        ((uint8_t *)m->q.host)[i] = random_e4m3();
    }
    for (size_t i = 0; i < m->weights.bytes / sizeof(float); i++) {
        ((float *)m->weights.host)[i] = (float)random_bits() * 0x1p-31f - 1.0f;
    }
    for (size_t i = 0; i < m->index_q.bytes; i++) {
        ((uint8_t *)m->index_q.host)[i] = (uint8_t)random_bits();
    }
    for (size_t i = 0; i < m->index_q_scales.bytes; i++) {
        ((uint8_t *)m->index_q_scales.host)[i] = random_scale();
    }
    for (int request = 0; request < BATCH; request++) {
        /* Request 0 joins late: until then its length is 0. The others prefill, then accept 1 .. NEXT_N tokens. */
        int tokens = 1 + (int)(random_bits() % NEXT_N);
        if (request == 0) {
            tokens = step < STEPS / 2 ? 0 : tokens + 100;
        } else if (step == 0) {
            tokens = 100 + (int)(random_bits() % (MAX_SEQ_LEN / 2));
        }
        int32_t room = MAX_SEQ_LEN - ((int32_t *)m->lens.host)[request];
        for (int i = 0; i < tokens && i < room; i++) {
            append_token(m, request);
        }
    }
}

static void upload_step(const struct model *m, CUstream stream) {
    buffer_upload(&m->q, stream);
    buffer_upload(&m->kv, stream);
    buffer_upload(&m->weights, stream);
    buffer_upload(&m->tables, stream);
    buffer_upload(&m->lens, stream);
    buffer_upload(&m->index_q, stream);
    buffer_upload(&m->index_q_scales, stream);
    buffer_upload(&m->index_cache, stream);
    buffer_upload(&m->requests, stream);
}

/* ---- Serving ------------------------------------------------------------------------------------------------- */

/* Keys and scales of a page lie behind one another, so both tensors are views of one cache, on either side. */
struct index_views {
    DLTensor keys, scales;
    int64_t key_shape[3], key_strides[3], scale_shape[3], scale_strides[3];
};

static void index_views_make(struct index_views *v, const DLTensor *cache) {
    *v = (struct index_views){
        .keys = *cache,
        .scales = *cache,
        .key_shape = {NUM_BLOCKS, BLOCK_SIZE, INDEX_KEY_BYTES},
        .key_strides = {INDEX_PAGE_BYTES, INDEX_KEY_BYTES, 1},
        .scale_shape = {NUM_BLOCKS, BLOCK_SIZE, INDEX_KEY_SCALES},
        .scale_strides = {INDEX_PAGE_BYTES, INDEX_KEY_SCALES, 1},
    };
    v->keys.ndim = v->scales.ndim = 3;
    v->keys.shape = v->key_shape;
    v->keys.strides = v->key_strides;
    v->scales.shape = v->scale_shape;
    v->scales.strides = v->scale_strides;
    v->scales.byte_offset = BLOCK_SIZE * INDEX_KEY_BYTES;
}

static void score_by_one_head(attns_context *ctx, const struct model *m, CUstream stream) {
    struct index_views cache;
    index_views_make(&cache, &m->index_cache.on_device);
    const attns_indexer_scores_params params = {
        .query = &m->index_q.on_device,
        .query_scales = &m->index_q_scales.on_device,
        .key_cache = &cache.keys,
        .key_scales = &cache.scales,
        .block_table = &m->tables.on_device,
        .context_lengths = &m->lens.on_device,
        .requests = &m->requests.on_device,
        .scores = &m->scores.on_device,
    };
    check(attns_indexer_scores(ctx, &params, stream), "attns_indexer_scores");
}

static void decode_step(attns_context *ctx, const struct model *m, bool with_schedule, CUstream stream) {
    if (with_schedule) {
        const attns_schedule_params schedule = {
            .seq_lens = &m->lens.on_device,
            .schedule_meta = &m->meta.on_device,
            .next_n = NEXT_N,
        };
        check(attns_compute_paged_mqa_logits_schedule(ctx, &schedule, stream),
              "attns_compute_paged_mqa_logits_schedule");
    }
    const attns_fp8_paged_mqa_logits_params params = {
        .q = &m->q.on_device,
        .kv_fused = &m->kv.on_device,
        .weights = &m->weights.on_device,
        .block_tables = &m->tables.on_device,
        .seq_lens = &m->lens.on_device,
        .schedule_meta = with_schedule ? &m->meta.on_device : NULL,
        .out = &m->out.on_device,
        .max_seq_len = MAX_SEQ_LEN,
    };
    check(attns_fp8_paged_mqa_logits(ctx, &params, stream), "attns_fp8_paged_mqa_logits");
    score_by_one_head(ctx, m, stream);
}

static CUgraphExec capture_step(attns_context *ctx, const struct model *m, bool with_schedule, CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    check_cuda(cu.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    decode_step(ctx, m, with_schedule, stream);
    check_cuda(cu.stream_end_capture(stream, &graph), "cuStreamEndCapture");
    check_cuda(cu.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
    check_cuda(cu.graph_destroy(graph), "cuGraphDestroy");
    return exec;
}

/* Compares one request's rows with the reference; returns the number of wrong rows. The tensor cores of sm_90 align the
 * products of a step of 32 to the largest of them and keep 13 fraction bits, which by a model of that arithmetic costs
 * about 2e-4 of a row in the root mean square; 1e-3 leaves room for unlucky rows (of 100 tokens or more), and one
 * misplaced score among MAX_SEQ_LEN is well above it. */
static int check_request(const struct model *m, int request) {
    static double expected[NEXT_N][MAX_SEQ_LEN];
    int64_t q_shape[] = {1, NEXT_N, NUM_HEADS, HEAD_DIM}, weights_shape[] = {NEXT_N, NUM_HEADS};
    int64_t tables_shape[] = {1, TABLE_WIDTH}, lens_shape[] = {1}, out_shape[] = {NEXT_N, MAX_SEQ_LEN};
    DLTensor q = m->q.on_host, weights = m->weights.on_host, tables = m->tables.on_host, lens = m->lens.on_host;
    q.shape = q_shape;
    q.byte_offset = (uint64_t)request * NEXT_N * NUM_HEADS * HEAD_DIM;
    weights.shape = weights_shape;
    weights.byte_offset = (uint64_t)request * NEXT_N * NUM_HEADS * sizeof(float);
    tables.shape = tables_shape;
    tables.byte_offset = (uint64_t)request * TABLE_WIDTH * sizeof(int32_t);
    lens.shape = lens_shape;
    lens.byte_offset = (uint64_t)request * sizeof(int32_t);
    DLTensor out = {.data = expected, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 64, 1}, .shape = out_shape};
    const attns_fp8_paged_mqa_logits_params params = {
        .q = &q,
        .kv_fused = &m->kv.on_host,
        .weights = &weights,
        .block_tables = &tables,
        .seq_lens = &lens,
        .out = &out,
        .max_seq_len = MAX_SEQ_LEN,
    };
    check(attns_reference_fp8_paged_mqa_logits(&params, NULL), "attns_reference_fp8_paged_mqa_logits");

    int wrong = 0;
    const int32_t len = ((const int32_t *)m->lens.host)[request];
    for (int t = 0; t < NEXT_N; t++) {
        const float *row = (const float *)m->out.host + (int64_t)(request * NEXT_N + t) * MAX_SEQ_LEN;
        double error = 0, size = 0;
        for (int p = 0; p < len - NEXT_N + 1 + t; p++) {
            double difference = (double)row[p] - expected[t][p];
            error += difference * difference;
            size += expected[t][p] * expected[t][p];
        }
        /* Written so that NaN counts as wrong. */
        if (!(sqrt(error) <= 1e-3 * sqrt(size))) {
            fprintf(stderr, "request %d, slot %d, %d tokens: relative error %g\n", request, t, len, sqrt(error / size));
            wrong++;
        }
    }
    return wrong;
}

/* The same for all rows of indexer_scores: one head of 128 exact products, summed in float32. */
static int check_scores(const struct model *m) {
    static double expected[BATCH * NEXT_N][MAX_SEQ_LEN], sizes[BATCH * NEXT_N][MAX_SEQ_LEN];
    struct index_views cache;
    index_views_make(&cache, &m->index_cache.on_host);
    DLTensor scores = m->scores.on_host, abs_sum;
    scores.data = expected;
    scores.dtype.bits = 64;
    abs_sum = scores;
    abs_sum.data = sizes;
    const attns_indexer_scores_params params = {
        .query = &m->index_q.on_host,
        .query_scales = &m->index_q_scales.on_host,
        .key_cache = &cache.keys,
        .key_scales = &cache.scales,
        .block_table = &m->tables.on_host,
        .context_lengths = &m->lens.on_host,
        .requests = &m->requests.on_host,
        .scores = &scores,
    };
    check(attns_reference_indexer_scores(&params, &abs_sum), "attns_reference_indexer_scores");

    int wrong = 0;
    for (int row = 0; row < BATCH * NEXT_N; row++) {
        const float *got = (const float *)m->scores.host + (int64_t)row * MAX_SEQ_LEN;
        const int32_t len = ((const int32_t *)m->lens.host)[row / NEXT_N];
        int32_t p = 0;
        /* 128 roundings at most, each of 2^-23 of what is summed at the most; written so that NaN counts as wrong. */
        while (p < len && fabs((double)got[p] - expected[row][p]) <= 0x1p-16 * sizes[row][p]) {
            p++;
        }
        if (p < len) {
            fprintf(stderr, "row %d, key %d of %d: %g instead of %g\n", row, (int)p, (int)len, (double)got[p],
                    expected[row][p]);
            wrong++;
        }
    }
    return wrong;
}

static int serve(const char *cache_dir, bool with_schedule) {
    CUdevice device;
    CUcontext cuda;
    CUstream stream;
    int num_sms = 0;
    check_cuda(cu.device_get(&device, 0), "cuDeviceGet");
    check_cuda(cu.device_get_attribute(&num_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
               "cuDeviceGetAttribute");
    check_cuda(cu.primary_ctx_retain(&cuda, device), "cuDevicePrimaryCtxRetain");
    check_cuda(cu.ctx_set_current(cuda), "cuCtxSetCurrent");
    check_cuda(cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

    attns_context *ctx;
    check(attns_context_create(&ctx, &(attns_context_params){.cache_dir = cache_dir}), "attns_context_create");
    struct model model;
    model_make(&model, num_sms);
    /* The kernels are on disk, so the very first call may be the captured one. */
    CUgraphExec step_graph = capture_step(ctx, &model, with_schedule, stream);

    int wrong = 0, step = 0;
    for (; step < STEPS && wrong == 0; step++) {
        new_step(&model, step);
        upload_step(&model, stream);
        check_cuda(cu.graph_launch(step_graph, stream), "cuGraphLaunch");
        check_cuda(cu.memcpy_dtoh_async(model.out.host, model.out.device, model.out.bytes, stream),
                   "cuMemcpyDtoHAsync");
        check_cuda(cu.memcpy_dtoh_async(model.scores.host, model.scores.device, model.scores.bytes, stream),
                   "cuMemcpyDtoHAsync");
        check_cuda(cu.stream_synchronize(stream), "cuStreamSynchronize");
        wrong = check_request(&model, (int)(random_bits() % BATCH)) + check_request(&model, step % BATCH) +
                check_scores(&model);
    }

    attns_counters counters;
    attns_get_counters(ctx, &counters);
    printf("%d steps served; %d wrong rows; %llu compiles, %llu kernels from disk\n", step, wrong,
           (unsigned long long)counters.compiles, (unsigned long long)counters.disk_hits);
    /* A graph must not outlive the context whose kernels it holds. */
    check_cuda(cu.graph_exec_destroy(step_graph), "cuGraphExecDestroy");
    attns_context_destroy(ctx);
    model_free(&model);
    check_cuda(cu.stream_destroy(stream), "cuStreamDestroy");
    check_cuda(cu.primary_ctx_release(device), "cuDevicePrimaryCtxRelease");
    return wrong == 0 && counters.compiles == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    static const char usage[] = "CACHE_DIR [--schedule] [--seed N]";
    const char *cache_dir = NULL;
    bool with_schedule = false;
    random_state = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--schedule") == 0) {
            with_schedule = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            char *end;
            random_state = strtoull(argv[++i], &end, 10);
            if (*end != '\0') {
                fprintf(stderr, "%s: --seed: '%s' is not a number; usage: %s\n", argv[0], argv[i], usage);
                return 2;
            }
        } else if (argv[i][0] != '-' && cache_dir == NULL) {
            cache_dir = argv[i];
        } else {
            fprintf(stderr, "%s: '%s' is not accepted; usage: %s\n", argv[0], argv[i], usage);
            return 2;
        }
    }
    if (cache_dir == NULL) {
        fprintf(stderr, "%s: CACHE_DIR is missing; usage: %s\n", argv[0], usage);
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)random_state);
    deploy(cache_dir);
    if (!open_driver()) {
        printf("no GPU here: the kernels are compiled and cached, serving is left out\n");
        return 77;
    }
    return serve(cache_dir, with_schedule);
}
