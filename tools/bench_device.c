/* SPDX-License-Identifier: MIT
 *
 * The device side of attn-scores bench that knows nothing of a single shape: yardstick kernels, arena, graph timing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"
#include "core/context.h"
#include "jit/template.h"

/* Generated from bench_streaming.cu and bench_indexer.cu. */
extern const char bench_streaming_source[], bench_indexer_source[];

/* Together the pools of a shape are at least this large, and at least four times L2. */
#define ARENA_MIN_BYTES ((size_t)400 * 1000 * 1000)
/* A graph node per pool; more make capturing slow. */
#define MAX_POOLS 8192
/* A replay should last long enough that the launch of the graph does not show. */
#define REPLAY_US 2000.0
/* A replay that takes longer than this hangs. */
#define REPLAY_SECONDS 30.0

static const char *embedded(const char *name) {
    for (const attns_embedded_file *file = attns_embedded_templates; file->name != NULL; file++) {
        if (strcmp(file->name, name) == 0) {
            return file->text;
        }
    }
    return "";
}

static attns_status compile_kernels(attns_context *ctx, const char *arch, bench_op op, attns_compile_output *output) {
    const bool indexer = op == BENCH_INDEXER;
    const char *name = indexer ? "bench_indexer.cu" : "bench_streaming.cu";
    const char *parts[] = {embedded("lib/base.cuh"), indexer ? "" : embedded("lib/mbarrier.cuh"),
                           indexer ? "" : embedded("lib/tma.cuh"),
                           indexer ? bench_indexer_source : bench_streaming_source};
    size_t size = 1;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size += strlen(parts[i]);
    }
    char *source = malloc(size);
    if (source == NULL) {
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "no memory for the source of %s", name);
    }
    source[0] = '\0';
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        strcat(source, parts[i]);
    }
    char target[32];
    snprintf(target, sizeof(target), "%s%s", ctx->load_ptx ? "compute_" : "",
             ctx->load_ptx ? strchr(arch, '_') + 1 : arch);
    attns_nvrtc_set *set;
    const attns_nvrtc *nvrtc;
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status == ATTNS_OK) {
        status = attns_nvrtc_for_arch(set, target, &nvrtc);
    }
    if (status == ATTNS_OK) {
        status = attns_nvrtc_compile(nvrtc, name, source, target, NULL, 0, output);
    }
    free(source);
    return status;
}

int bench_open(bench *b, attns_context *ctx, int ordinal, bench_op op) {
    memset(b, 0, sizeof(*b));
    b->ctx = ctx;
    if (!gpu_open(&b->gpu, ordinal)) {
        cli_error("bench", "needs a GPU: %s", b->gpu.reason);
        return CLI_NO_GPU;
    }
    b->opened = true;
    attns_status status = attns_get_device_info(ctx, ordinal, &b->device);
    if (status != ATTNS_OK) {
        return cli_fail("bench", status);
    }
    if (b->device.arch[0] == '\0') {
        cli_error("bench", "there are no kernels for %s (compute capability %d.%d)", b->device.name,
                  b->device.compute_capability / 10, b->device.compute_capability % 10);
        return CLI_NO_GPU;
    }
    const struct gpu *gpu = &b->gpu;
    if (!gpu_ok(gpu, gpu->stream_create(&b->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate") ||
        !gpu_ok(gpu, gpu->event_create(&b->start, CU_EVENT_DEFAULT), "cuEventCreate") ||
        !gpu_ok(gpu, gpu->event_create(&b->stop, CU_EVENT_DEFAULT), "cuEventCreate")) {
        return CLI_FAILED;
    }
    attns_compile_output output;
    status = compile_kernels(ctx, b->device.arch, op, &output);
    if (status != ATTNS_OK) {
        return cli_fail("bench", status);
    }
    bool loaded = op == BENCH_INDEXER
                      ? gpu_load_kernel(gpu, output.image, "bench_fill_pages", &b->module, &b->fill_pages_kernel)
                      : gpu_load_kernel(gpu, output.image, "bench_stream", &b->module, &b->stream_kernel);
    attns_compile_output_free(&output);
    if (!loaded) {
        b->module = NULL;
        return CLI_FAILED;
    }
    if (op == BENCH_INDEXER) {
        return CLI_OK;
    }
    bool found =
        gpu_ok(gpu, gpu->module_get_function(&b->fill_kernel, b->module, "bench_fill"), "cuModuleGetFunction") &&
        gpu_ok(gpu, gpu->module_get_function(&b->fill_fp4_kernel, b->module, "bench_fill_fp4"), "cuModuleGetFunction");
    return found ? CLI_OK : CLI_FAILED;
}

void bench_close(bench *b) {
    if (!b->opened) {
        return;
    }
    const struct gpu *gpu = &b->gpu;
    gpu_buffer_free(gpu, &b->arena);
    if (b->module != NULL) {
        gpu->module_unload(b->module);
    }
    if (b->start != NULL) {
        gpu->event_destroy(b->start);
    }
    if (b->stop != NULL) {
        gpu->event_destroy(b->stop);
    }
    if (b->stream != NULL) {
        gpu->stream_destroy(b->stream);
    }
    gpu_close(&b->gpu);
    b->opened = false;
}

/* Work that never ends would also block every call that frees something, so the program ends here. */
static bool finished(bench *b, CUresult result, const char *what) {
    if (result == CUDA_ERROR_NOT_READY) {
        cli_error("bench", "%s did not end within %.0f seconds", what, REPLAY_SECONDS);
        _exit(CLI_FAILED);
    }
    return gpu_ok(&b->gpu, result, what);
}

int bench_value_bytes(const bench_shape *shape) {
    return shape->variant == ATTNS_VARIANT_FP4 ? shape->head_dim / 2 : shape->head_dim;
}

int bench_scale_bytes(const bench_shape *shape) {
    return shape->variant == ATTNS_VARIANT_FP4 ? shape->head_dim / 32 : 4;
}

int bench_token_bytes(const bench_shape *shape) {
    return bench_value_bytes(shape) + bench_scale_bytes(shape);
}

DLTensor bench_tensor(const struct gpu *gpu, CUdeviceptr data, int64_t *shape, int ndim, DLDataTypeCode code,
                      int bits) {
    return (DLTensor){
        .data = (void *)(uintptr_t)data,
        .device = {.device_type = kDLCUDA, .device_id = gpu->ordinal},
        .ndim = ndim,
        .dtype = {.code = (uint8_t)code, .bits = (uint8_t)bits, .lanes = 1},
        .shape = shape,
    };
}

DLDataTypeCode bench_out_code(attns_dtype dtype) {
    return dtype == ATTNS_DTYPE_BF16 ? kDLBfloat : kDLFloat;
}

int bench_out_bits(attns_dtype dtype) {
    return dtype == ATTNS_DTYPE_F32 ? 32 : 16;
}

bool bench_arena(bench *b, size_t bytes) {
    return gpu_buffer_alloc(&b->gpu, &b->arena, bytes);
}

bool bench_fill(bench *b, const bench_shape *shape, size_t bytes, uint64_t seed) {
    CUdeviceptr words = b->arena.ptr;
    int64_t num_words = (int64_t)(bytes / 4);
    int value_words = shape->block_size * bench_value_bytes(shape) / 4;
    int block_words = shape->block_size * bench_token_bytes(shape) / 4;
    CUfunction fill = shape->variant == ATTNS_VARIANT_FP4 ? b->fill_fp4_kernel : b->fill_kernel;
    void *arguments[] = {&words, &num_words, &block_words, &value_words, &seed};
    unsigned ctas = (unsigned)b->gpu.num_sms * 8;
    return gpu_ok(&b->gpu, b->gpu.launch_kernel(fill, ctas, 1, 1, 256, 1, 1, 0, b->stream, arguments, NULL),
                  "launch of bench_fill") &&
           finished(b, gpu_wait_stream(&b->gpu, b->stream, REPLAY_SECONDS), "bench_fill");
}

/* ---- Timing -------------------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof(values[0]), compare);
    return values[count / 2];
}

static bool replay(bench *b, CUgraphExec exec, float *ms) {
    const struct gpu *gpu = &b->gpu;
    return gpu_ok(gpu, gpu->event_record(b->start, b->stream), "cuEventRecord") &&
           gpu_ok(gpu, gpu->graph_launch(exec, b->stream), "cuGraphLaunch") &&
           gpu_ok(gpu, gpu->event_record(b->stop, b->stream), "cuEventRecord") &&
           finished(b, gpu_wait_event(gpu, b->stop, REPLAY_SECONDS), "replay of a graph") &&
           gpu_ok(gpu, gpu->event_elapsed(ms, b->start, b->stop), "cuEventElapsedTime");
}

/* Captures the calls; the capture is ended also if a call fails. */
static bool capture(bench *b, int calls, bench_enqueue enqueue, void *user, CUgraphExec *exec) {
    const struct gpu *gpu = &b->gpu;
    if (!gpu_ok(gpu, gpu->stream_begin_capture(b->stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture")) {
        return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < calls; i++) {
        ok = enqueue(b, user, i);
    }
    CUgraph graph = NULL;
    ok = gpu_ok(gpu, gpu->stream_end_capture(b->stream, &graph), "cuStreamEndCapture") && ok;
    ok = ok && gpu_ok(gpu, gpu->graph_instantiate(exec, graph, 0), "cuGraphInstantiate");
    if (graph != NULL) {
        gpu->graph_destroy(graph);
    }
    return ok;
}

bool bench_time_graph(bench *b, int calls, int replays, bench_enqueue enqueue, void *user, double *us) {
    /* The first call compiles and loads what it needs, which a capture would refuse. */
    if (!enqueue(b, user, 0) ||
        !finished(b, gpu_wait_stream(&b->gpu, b->stream, REPLAY_SECONDS), "first call of a shape")) {
        return false;
    }
    double *times = malloc((size_t)replays * sizeof(times[0]));
    if (times == NULL) {
        cli_error("bench", "out of memory");
        return false;
    }
    CUgraphExec exec = NULL;
    bool ok = capture(b, calls, enqueue, user, &exec);
    /* Warm-up: the first replay uploads the graph, and the clocks need some milliseconds of load to settle. */
    double warm_until = cli_now() + 0.015;
    float ms = 0;
    for (int i = 0; ok && (i < 2 || cli_now() < warm_until); i++) {
        ok = replay(b, exec, &ms);
    }
    for (int i = 0; ok && i < replays; i++) {
        ok = replay(b, exec, &ms);
        times[i] = 1e3 * (double)ms / calls;
    }
    if (ok) {
        *us = bench_median(times, (size_t)replays);
    }
    if (exec != NULL) {
        b->gpu.graph_exec_destroy(exec);
    }
    free(times);
    return ok;
}

bool bench_count_launches(bench *b, bench_enqueue enqueue, void *user, int *launches) {
    const struct gpu *gpu = &b->gpu;
    CUgraph graph = NULL;
    struct gpu_graph_nodes nodes = {0};
    if (!gpu_ok(gpu, gpu->stream_begin_capture(b->stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture")) {
        return false;
    }
    bool ok = enqueue(b, user, 0);
    ok = gpu_ok(gpu, gpu->stream_end_capture(b->stream, &graph), "cuStreamEndCapture") && ok;
    ok = ok && gpu_graph_count(gpu, graph, &nodes);
    if (graph != NULL) {
        gpu->graph_destroy(graph);
    }
    *launches = (int)nodes.kernels;
    return ok;
}

int bench_pools(const bench *b, size_t pool_bytes) {
    size_t wanted = (size_t)b->gpu.l2_bytes * 4;
    wanted = wanted < ARENA_MIN_BYTES ? ARENA_MIN_BYTES : wanted;
    const size_t pools = wanted / pool_bytes + (wanted % pool_bytes != 0);
    return (int)(pools > MAX_POOLS ? MAX_POOLS : pools);
}

int bench_calls(int pools, double bytes) {
    double expected_us = 3 + bytes / 4e6;
    int walks = (int)(REPLAY_US / (expected_us * pools)) + 1;
    int calls = pools * walks;
    return calls < 8 ? pools * (8 / pools + (8 % pools != 0)) : calls;
}

uint64_t bench_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

bool bench_upload(bench *b, struct gpu_buffer *buffer, const void *data, size_t bytes) {
    return gpu_buffer_alloc(&b->gpu, buffer, bytes) &&
           gpu_ok(&b->gpu, b->gpu.memcpy_htod(buffer->ptr, data, bytes), "cuMemcpyHtoD");
}

struct copy {
    CUdeviceptr from, to;
    size_t bytes;
};

static bool enqueue_copy(bench *b, void *user, int i) {
    const struct copy *copy = user;
    (void)i;
    return gpu_ok(&b->gpu, b->gpu.memcpy_dtod_async(copy->to, copy->from, copy->bytes, b->stream), "cuMemcpyDtoDAsync");
}

bool bench_copy_gbps(bench *b, int replays, double *gbps) {
    struct copy copy = {.from = b->arena.ptr, .bytes = b->arena.bytes / 2 & ~(size_t)255};
    copy.to = copy.from + copy.bytes;
    double us;
    if (!bench_time_graph(b, 4, replays, enqueue_copy, &copy, &us)) {
        return false;
    }
    *gbps = 2e-3 * (double)copy.bytes / us;
    return true;
}
