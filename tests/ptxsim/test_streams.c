/* SPDX-License-Identifier: MIT
 *
 * Order between streams and between kernels that may overlap, and what becomes of a fault (libptxsim_cuda.so). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptxsim.h"

#define HEAD               ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [to];\nld.param.u64 %rd2, [from];\n"
#define KERNEL(name, body) ".visible .entry " name "(.param .u64 to, .param .u64 from)\n{\n" HEAD body "ret;\n}\n"
#define COPY               "ld.global.u32 %r1, [%rd2];\nst.global.u32 [%rd1], %r1;\n"
static const char ptx[] = ".version 8.3\n.target sm_90a\n.address_size 64\n" KERNEL("plain", COPY)
    KERNEL("early", "griddepcontrol.launch_dependents;\n" COPY)
        KERNEL("waits", "griddepcontrol.wait;\n" COPY "griddepcontrol.launch_dependents;\n")
            KERNEL("late", COPY "griddepcontrol.wait;\n")
                KERNEL("stores_early", "st.global.u32 [%rd2], 1;\ngriddepcontrol.wait;\n");

static CUcontext ctx;
static CUmodule module;
static CUstream streams[2];
static CUdeviceptr words;
static const char *report_file;

#define must(call) assert_int_equal((call), CUDA_SUCCESS)

static int setup(void **state) {
    (void)state;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(ctx) != CUDA_SUCCESS || cuModuleLoadData(&module, ptx) != CUDA_SUCCESS ||
        cuMemAlloc(&words, 256) != CUDA_SUCCESS || cuMemsetD32(words, 0, 64) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < 2; i++)
        if (cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return -1;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return cuCtxSetCurrent(NULL) == CUDA_SUCCESS && cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS ? 0 : -1;
}

static void launch(const char *name, CUstream stream, bool overlaps, int to, int from) {
    CUfunction function;
    CUdeviceptr arguments[] = {words + 4 * (CUdeviceptr)to, words + 4 * (CUdeviceptr)from};
    void *params[] = {&arguments[0], &arguments[1]};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = overlaps ? 1 : 0};
    must(cuModuleGetFunction(&function, module, name));
    must(cuLaunchKernelEx(&config, function, params, NULL));
}

static uint32_t word(int i) {
    uint32_t value = 0;
    must(cuCtxSynchronize());
    must(cuMemcpyDtoH(&value, words + 4 * (CUdeviceptr)i, 4));
    return value;
}

/* ---- Streams ---- */

enum { ORDERED_NOT, BY_EVENT, BY_LEGACY, BY_HOST };

/* Word 1 is set in one stream and copied in the other; how often the copy came first. */
static int stale_copies(int how) {
    int stale = 0;
    CUevent event;
    CUstream first = streams[0];
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (how == BY_LEGACY)
        first = NULL;
    CUstream second = streams[1], made = NULL;
    if (how == BY_LEGACY) {
        must(cuStreamCreate(&made, CU_STREAM_DEFAULT));
        second = made;
    }
    for (uint32_t round = 1; round <= 60; round++) {
        must(cuMemsetD32Async(words + 4, round, 1, first));
        if (how == BY_EVENT) {
            must(cuEventRecord(event, first));
            must(cuStreamWaitEvent(second, event, 0));
        } else if (how == BY_HOST) {
            must(cuStreamSynchronize(first));
        }
        launch("plain", second, false, 2, 1);
        stale += word(2) != round;
    }
    must(cuEventDestroy(event));
    if (made)
        must(cuStreamDestroy(made));
    return stale;
}

static void test_unordered_streams_run_in_any_order(void **state) {
    (void)state;
    int stale = stale_copies(ORDERED_NOT);
    assert_true(stale > 5 && stale < 55);
}

static void test_what_orders_streams(void **state) {
    (void)state;
    assert_int_equal(stale_copies(BY_EVENT), 0);
    assert_int_equal(stale_copies(BY_LEGACY), 0);
    assert_int_equal(stale_copies(BY_HOST), 0);
}

static void test_queries_and_events(void **state) {
    (void)state;
    CUevent event;
    int not_ready = 0;
    must(cuEventCreate(&event, 0));
    for (int round = 0; round < 200; round++) {
        must(cuMemsetD32Async(words, (unsigned)round, 1, streams[0]));
        must(cuEventRecord(event, streams[0]));
        CUresult result = cuEventQuery(event);
        not_ready += result == CUDA_ERROR_NOT_READY;
        must(cuEventSynchronize(event));
        must(cuEventQuery(event));
    }
    assert_true(not_ready > 0);
    must(cuStreamSynchronize(streams[0]));
    must(cuStreamQuery(streams[0]));
    assert_int_equal(word(0), 199);
    must(cuEventDestroy(event));
}

/* ---- Kernels that may overlap ---- */

static void expect_fault(const char *part) {
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    if (!strstr(ptxsim_last_fault(), part))
        fail_msg("'%s' is not in: %s", part, ptxsim_last_fault());
    assert_int_equal(teardown(NULL), 0);
    assert_int_equal(setup(NULL), 0);
}

static void test_inputs_read_before_the_wait(void **state) {
    (void)state;
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], true, 2, 1);
    expect_fault("before griddepcontrol.wait, which kernel early before it");
    launch("plain", streams[0], false, 1,
           0); /* it ends without a trigger, but its memory is not promised before the wait */
    launch("late", streams[0], true, 2, 1);
    expect_fault("before griddepcontrol.wait");
    launch("early", streams[0], false, 1, 3); /* overwrites what the kernel before may still have to read */
    launch("stores_early", streams[0], true, 0, 3);
    expect_fault("writes 4 bytes");
}

/* A kernel that has not waited when it lets the next one start does not shield it from the one before. */
static void test_chains(void **state) {
    (void)state;
    launch("early", streams[0], false, 1, 0);
    launch("early", streams[0], true, 3, 4);
    launch("late", streams[0], true, 2, 1);
    expect_fault("which kernel early before it");
    launch("early", streams[0], false, 1, 0);
    launch("waits", streams[0], true, 3, 4);
    launch("late", streams[0], true, 2, 1);
    must(cuCtxSynchronize());
}

static void test_what_ends_the_overlap(void **state) {
    (void)state;
    launch("early", streams[0], false, 1, 0);
    launch("waits", streams[0], true, 2, 1);
    must(cuCtxSynchronize());
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], false, 2, 1); /* an ordinary launch */
    must(cuCtxSynchronize());
    launch("early", streams[0], false, 1, 0);
    must(cuMemsetD32Async(words + 40, 0, 1, streams[0]));
    launch("late", streams[0], true, 2, 1);
    must(cuCtxSynchronize());
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], true, 5, 6); /* other data */
    must(cuCtxSynchronize());
}

/* The same in a graph. */
static void test_overlap_in_a_graph(void **state) {
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    must(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], true, 2, 1);
    must(cuStreamEndCapture(streams[0], &graph));
    must(cuGraphInstantiateWithFlags(&exec, graph, 0));
    must(cuGraphLaunch(exec, streams[1]));
    must(cuGraphDestroy(graph));
    expect_fault("before griddepcontrol.wait");
    must(cuGraphExecDestroy(exec));
}

/* ---- Reports ---- */

static void test_report_file(void **state) {
    (void)state;
    char line[4096] = "";
    assert_int_equal(truncate(report_file, 0), 0);
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], true, 2, 1);
    expect_fault("before griddepcontrol.wait");
    FILE *file = fopen(report_file, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_null(fgets(line + strlen(line), 8, file));
    fclose(file);
    const char *const parts[] = {"{\"seed\": ",
                                 "\"check\": \"dependent-launch\"",
                                 "\"error\": \"CUDA_ERROR_LAUNCH_FAILED\"",
                                 "\"kernel\": \"late\"",
                                 "\"cta\": [0, 0, 0]",
                                 "\"thread\": [0, 0, 0]",
                                 "\"ptx_line\": ",
                                 "\"report\": \"reads 4 bytes",
                                 "\\u000a"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(line, parts[i]))
            fail_msg("'%s' is not in: %s", parts[i], line);
}

static int run_child(const char *self, const char *name, const char *value) {
    pid_t child = fork();
    if (child == 0) {
        setenv(name, value, 1);
        execl(self, self, "--fault", (char *)NULL);
        _exit(1);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char self[4096];

static void test_exit_on_fault_and_races_off(void **state) {
    (void)state;
    assert_int_equal(run_child(self, "PTXSIM_ON_FAULT", "exit"), 97);
    assert_int_equal(run_child(self, "PTXSIM_ON_FAULT", "error"), 10);
    assert_int_equal(run_child(self, "PTXSIM_RACES", "0"), 20);
}

/* In a process of its own: 10 after a reported fault, 20 without one. */
static int fault_in_child(void) {
    if (setup(NULL))
        return 1;
    launch("early", streams[0], false, 1, 0);
    launch("late", streams[0], true, 2, 1);
    return cuCtxSynchronize() == CUDA_SUCCESS ? 20 : 10;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--fault") == 0)
        return fault_in_child();
    char file[] = "/tmp/ptxsim-report-XXXXXX";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int made = mkstemp(file);
    if (length <= 0 || made < 0)
        return 1;
    close(made);
    report_file = file;
    setenv("PTXSIM_REPORT", file, 1);
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_unordered_streams_run_in_any_order),
        TEST(test_what_orders_streams),
        TEST(test_queries_and_events),
        TEST(test_inputs_read_before_the_wait),
        TEST(test_chains),
        TEST(test_what_ends_the_overlap),
        TEST(test_overlap_in_a_graph),
        TEST(test_report_file),
        TEST(test_exit_on_fault_and_races_off),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed ? 1 : 0;
}
