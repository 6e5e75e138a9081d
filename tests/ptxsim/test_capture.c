/* SPDX-License-Identifier: MIT
 *
 * Streams, events, stream capture and graphs of libptxsim_cuda.so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The symbol that this project looks up; cuda.h may name a newer one. */
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

/* add: *at += value. */
static const char ptx[] = ".version 8.3\n"
                          ".target sm_90a\n"
                          ".address_size 64\n"
                          ".visible .entry add(.param .u64 at, .param .u32 value)\n"
                          "{\n"
                          "  .reg .b32 %r<4>;\n"
                          "  .reg .b64 %rd<2>;\n"
                          "  ld.param.u64 %rd1, [at];\n"
                          "  ld.param.u32 %r1, [value];\n"
                          "  ld.global.u32 %r2, [%rd1];\n"
                          "  add.s32 %r3, %r2, %r1;\n"
                          "  st.global.u32 [%rd1], %r3;\n"
                          "  ret;\n"
                          "}\n";

static CUcontext primary;
static CUmodule module;
static CUfunction add;
static CUstream stream;
static CUdeviceptr word;

#define must(call) assert_int_equal((call), CUDA_SUCCESS)

static int setup(void **state) {
    (void)state;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary) ||
                   cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&add, module, "add") ||
                   cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuMemAlloc(&word, 4) || cuMemsetD32(word, 0, 1)
               ? -1
               : 0;
}

static int teardown(void **state) {
    (void)state;
    return cuCtxSetCurrent(NULL) || cuDevicePrimaryCtxRelease(0) ? -1 : 0;
}

static CUresult queue_add(CUdeviceptr at, uint32_t value, CUstream on) {
    void *params[] = {&at, &value};
    return cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, on, params, NULL);
}

static uint32_t word_now(void) {
    uint32_t value = 0;
    must(cuMemcpyDtoH(&value, word, 4));
    return value;
}

static CUstreamCaptureStatus status_of(CUstream of) {
    CUstreamCaptureStatus status;
    must(cuStreamIsCapturing(of, &status));
    return status;
}

static void begin(CUstreamCaptureMode mode) {
    must(cuStreamBeginCapture(stream, mode));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

static void end_invalidated(void) {
    CUgraph graph = (CUgraph)(void *)&graph;
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(queue_add(word, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    must(queue_add(word, 1, stream));
}

static void test_captured_work_runs_at_launch(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[8];
    CUgraphNodeType type;
    CUdeviceptr copy;
    size_t count = 0;
    must(cuMemAlloc(&copy, 4));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    uint32_t value = 5;
    void *params[] = {&word, &value};
    must(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    value = 1000; /* parameters were copied */
    must(cuMemcpyDtoDAsync(copy, word, 4, stream));
    must(cuMemsetD32Async(word, 100, 1, stream));
    must(queue_add(word, 1, stream));
    must(cuStreamEndCapture(stream, &graph));
    assert_int_equal(word_now(), 0); /* nothing has run */

    must(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 4);
    count = 8;
    must(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 4);
    static const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                               CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL};
    for (size_t i = 0; i < 4; i++) {
        must(cuGraphNodeGetType(nodes[i], &type));
        assert_int_equal(type, expected[i]);
    }
    must(cuGraphInstantiateWithFlags(&exec, graph, 0));
    must(cuGraphDestroy(graph)); /* the executable graph is a copy */
    assert_int_equal(cuGraphGetNodes(graph, NULL, &count), CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t copied = 0;
        must(cuGraphLaunch(exec, stream));
        must(cuStreamSynchronize(stream));
        assert_int_equal(word_now(), 101);
        must(cuMemcpyDtoH(&copied, copy, 4));
        assert_int_equal(copied, i ? 106 : 5);
    }
    must(cuGraphExecDestroy(exec));
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

static void test_global_capture_forbids_unsafe_calls(void **state) {
    (void)state;
    CUdeviceptr memory;
    CUmodule other;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuMemAlloc(&memory, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuModuleLoadData(&other, ptx), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(cuMemFree(word), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
}

static void test_relaxed_mode_permits_them(void **state) {
    (void)state;
    CUdeviceptr memory;
    CUgraph graph;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    must(cuMemAlloc(&memory, 4));
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphDestroy(graph));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    must(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    must(cuMemFree(memory));
    must(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuMemAlloc(&memory, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated();
    mode = (CUstreamCaptureMode)3;
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}

/* What another thread may do while this one captures. */
static void *allocate_elsewhere(void *result) {
    CUdeviceptr memory;
    CUgraph graph;
    CUresult *results = result;
    cuCtxSetCurrent(primary);
    results[0] = cuMemAlloc(&memory, 4);
    results[1] = cuStreamEndCapture(stream, &graph);
    return NULL;
}

static void test_other_threads(void **state) {
    (void)state;
    static const struct {
        CUstreamCaptureMode mode;
        CUresult allocating;
    } cases[] = {{CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
                 {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS}};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        CUresult results[2];
        CUgraph graph;
        begin(cases[i].mode);
        assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, results), 0);
        pthread_join(thread, NULL);
        assert_int_equal(results[0], cases[i].allocating);
        assert_int_equal(results[1], CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        assert_int_equal(cuStreamEndCapture(stream, &graph), i ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

static void test_default_streams(void **state) {
    (void)state;
    CUstream blocking;
    CUstreamCaptureStatus status;
    CUgraph graph;
    assert_int_equal(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    must(queue_add(word, 1, NULL)); /* a non-blocking stream does not mind the legacy one */
    must(cuStreamEndCapture(stream, &graph));
    must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    must(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(queue_add(word, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    must(cuStreamDestroy(blocking));
    assert_int_equal(queue_add(word, 1, blocking), CUDA_ERROR_INVALID_HANDLE);
}

static void test_forks_must_be_joined(void **state) {
    (void)state;
    CUstream side;
    CUevent fork_event, join_event;
    CUgraph graph;
    size_t count = 0;
    must(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    must(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    for (int joined = 0; joined < 2; joined++) {
        begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        must(cuEventRecord(fork_event, stream));
        assert_int_equal(cuEventQuery(fork_event), CUDA_ERROR_CAPTURED_EVENT);
        must(cuStreamWaitEvent(side, fork_event, 0));
        assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        must(queue_add(word, 1, side));
        assert_int_equal(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        must(cuEventRecord(join_event, side));
        if (joined)
            must(cuStreamWaitEvent(stream, join_event, 0));
        must(queue_add(word, 1, stream));
        if (!joined) {
            assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
            continue;
        }
        must(cuStreamEndCapture(stream, &graph));
        must(cuGraphGetNodes(graph, NULL, &count));
        assert_int_equal(count, 2);
        must(cuGraphDestroy(graph));
    }
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void test_events_measure_time(void **state) {
    (void)state;
    CUevent start, stop, untimed;
    float milliseconds = -1;
    must(cuEventCreate(&start, 0));
    must(cuEventCreate(&stop, 0));
    must(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    assert_int_equal(cuEventElapsedTime(&milliseconds, start, stop), CUDA_ERROR_INVALID_HANDLE); /* not recorded */
    must(cuEventRecord(start, stream));
    must(queue_add(word, 1, stream));
    must(cuEventRecord(stop, stream));
    must(cuEventRecord(untimed, stream));
    must(cuEventSynchronize(stop));
    must(cuEventQuery(stop));
    must(cuEventElapsedTime(&milliseconds, start, stop));
    assert_true(milliseconds > 0 && milliseconds < 60000);
    assert_int_equal(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    must(cuEventDestroy(start));
    assert_int_equal(cuEventRecord(start, stream), CUDA_ERROR_INVALID_HANDLE);
}

/* What a graph holds may be gone by the time it is launched. */
static void test_stale_graphs_are_faults(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        CUgraph graph;
        CUgraphExec exec;
        begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        if (i == 0)
            must(queue_add(word, 1, stream));
        else
            must(cuMemsetD32Async(word, 1, 1, stream));
        must(cuStreamEndCapture(stream, &graph));
        must(cuGraphInstantiateWithFlags(&exec, graph, 0));
        if (i == 0)
            must(cuModuleUnload(module));
        else
            must(cuMemFree(word));
        must(cuGraphLaunch(exec, stream));
        assert_int_equal(cuStreamSynchronize(stream), i ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED);
        must(cuGraphExecDestroy(exec));
        must(cuGraphDestroy(graph));
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_captured_work_runs_at_launch),
        TEST(test_global_capture_forbids_unsafe_calls),
        TEST(test_relaxed_mode_permits_them),
        TEST(test_other_threads),
        TEST(test_default_streams),
        TEST(test_forks_must_be_joined),
        TEST(test_events_measure_time),
        TEST(test_stale_graphs_are_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
