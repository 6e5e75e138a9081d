/* SPDX-License-Identifier: MIT
 *
 * The entry points of libptxsim_cuda.so, called as a program calls libcuda: contexts, memory, launches and what they
 * refuse, faults and what comes after them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptxsim.h"

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device);

/* scale: out[i] = in[i] * factor for i < n. store: writes one word at an address. spin: waits for a word to change. */
static const char ptx[] = ".version 8.3\n"
                          ".target sm_90a\n"
                          ".address_size 64\n"
                          ".global .align 4 .u32 calls = 7;\n"
                          ".visible .entry scale(.param .u64 out, .param .u64 in, .param .u32 factor, .param .u32 n)\n"
                          "{\n"
                          "  .reg .pred %p<2>;\n"
                          "  .reg .b32 %r<8>;\n"
                          "  .reg .b64 %rd<8>;\n"
                          "  ld.param.u64 %rd1, [out];\n"
                          "  ld.param.u64 %rd2, [in];\n"
                          "  ld.param.u32 %r1, [factor];\n"
                          "  ld.param.u32 %r2, [n];\n"
                          "  mov.u32 %r3, %ctaid.x;\n"
                          "  mov.u32 %r4, %ntid.x;\n"
                          "  mov.u32 %r5, %tid.x;\n"
                          "  mad.lo.s32 %r6, %r3, %r4, %r5;\n"
                          "  setp.ge.u32 %p1, %r6, %r2;\n"
                          "  @%p1 bra DONE;\n"
                          "  mul.wide.u32 %rd3, %r6, 4;\n"
                          "  add.s64 %rd4, %rd1, %rd3;\n"
                          "  add.s64 %rd5, %rd2, %rd3;\n"
                          "  ld.global.u32 %r7, [%rd5];\n"
                          "  mul.lo.s32 %r7, %r7, %r1;\n"
                          "  st.global.u32 [%rd4], %r7;\n"
                          "DONE:\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry store(.param .u64 at)\n"
                          "{\n"
                          "  .reg .b32 %r<2>;\n"
                          "  .reg .b64 %rd<2>;\n"
                          "  ld.param.u64 %rd1, [at];\n"
                          "  mov.u32 %r1, 5;\n"
                          "  st.global.u32 [%rd1], %r1;\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry count(.param .u64 at)\n"
                          "{\n"
                          "  .reg .b32 %r<3>;\n"
                          "  .reg .b64 %rd<2>;\n"
                          "  ld.param.u64 %rd1, [at];\n"
                          "  ld.global.u32 %r1, [calls];\n"
                          "  add.s32 %r2, %r1, 1;\n"
                          "  st.global.u32 [calls], %r2;\n"
                          "  st.global.u32 [%rd1], %r2;\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry limited() .maxntid 64, 1, 1\n"
                          "{\n"
                          "  .shared .align 16 .b8 fixed[1024];\n"
                          "  ret;\n"
                          "}\n";

static CUcontext primary;
static CUmodule module;

#define must(call) assert_int_equal((call), CUDA_SUCCESS)

static int setup(void **state) {
    (void)state;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&primary, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(primary) != CUDA_SUCCESS)
        return -1;
    return cuModuleLoadData(&module, ptx) == CUDA_SUCCESS ? 0 : -1;
}

/* A context that has faulted answers nothing any more; it goes with its module. */
static int teardown(void **state) {
    (void)state;
    return cuCtxSetCurrent(NULL) == CUDA_SUCCESS && cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS ? 0 : -1;
}

static CUfunction function(const char *name) {
    CUfunction found = NULL;
    must(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUdeviceptr words(const uint32_t *values, size_t count) {
    CUdeviceptr made = 0;
    must(cuMemAlloc(&made, count * 4));
    if (values)
        must(cuMemcpyHtoD(made, values, count * 4));
    return made;
}

static CUresult launch_store(CUdeviceptr at) {
    void *params[] = {&at};
    return cuLaunchKernel(function("store"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

/* ---- Names ---- */

static void test_only_modelled_calls_exist(void **state) {
    (void)state;
    void *self = dlopen(NULL, RTLD_NOW);
    assert_non_null(dlsym(self, "cuLaunchKernelEx"));
    assert_non_null(dlsym(self, "cuMemAlloc_v2"));
    assert_non_null(dlsym(self, "cuCtxCreate_v2"));
    assert_non_null(dlsym(self, "cuEventElapsedTime"));
    assert_null(dlsym(self, "cuMemAllocManaged"));
    assert_null(dlsym(self, "cuGetProcAddress_v2"));
    assert_null(dlsym(self, "sim_run")); /* nothing of the inside */
    dlclose(self);
    const char *text = NULL;
    must(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    must(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    assert_int_equal(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

static void test_device(void **state) {
    (void)state;
    int value = 0, count = 0;
    char name[64];
    CUdevice device = -1;
    size_t total = 0, available = 0;
    must(cuDriverGetVersion(&value));
    assert_int_equal(value, 13050);
    must(cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    assert_int_equal(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    must(cuDeviceGet(&device, 0));
    must(cuDeviceGetName(name, sizeof name, device));
    assert_non_null(strstr(name, "sm_90a"));
    must(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    assert_int_equal(value, 9);
    must(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    assert_int_equal(value, 3); /* PTXSIM_SMS of this program */
    assert_int_equal(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, device), CUDA_ERROR_INVALID_VALUE);
    must(cuDeviceTotalMem(&total, device));
    must(cuMemGetInfo(&available, &total));
    assert_true(available <= total);
}

/* ---- Contexts ---- */

static void test_context_stack_and_ids(void **state) {
    (void)state;
    unsigned long long primary_id, id, last = 0;
    CUcontext made, popped, current;
    must(cuCtxGetId(primary, &primary_id));
    for (int i = 0; i < 20; i++) {
        must(cuCtxCreate_v2(&made, 0, 0));
        must(cuCtxGetId(made, &id));
        assert_true(id > last && id != primary_id);
        last = id;
        must(cuCtxGetCurrent(&current));
        assert_ptr_equal(current, made);
        must(cuCtxDestroy(made));
        must(cuCtxGetCurrent(&current));
        assert_ptr_equal(current, primary);
    }
    must(cuCtxCreate_v2(&made, 0, 0));
    must(cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, made);
    must(cuCtxPushCurrent(made));
    CUdeviceptr memory;
    size_t before = 0, total, after = 0;
    must(cuMemGetInfo(&before, &total));
    must(cuMemAlloc(&memory, 1000));
    must(cuCtxDestroy(made)); /* frees the memory, too */
    must(cuMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    assert_int_equal(cuCtxPushCurrent(made), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    must(cuCtxSetCurrent(NULL));
    assert_int_equal(cuMemAlloc(&memory, 4), CUDA_ERROR_INVALID_CONTEXT);
    must(cuCtxSetCurrent(primary));
}

static void *without_a_context(void *result) {
    CUdeviceptr memory;
    CUcontext current = primary;
    *(bool *)result = cuMemAlloc(&memory, 4) == CUDA_ERROR_INVALID_CONTEXT &&
                      cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL;
    return NULL;
}

static void test_each_thread_has_its_own_stack(void **state) {
    (void)state;
    pthread_t thread;
    bool ok = false;
    assert_int_equal(pthread_create(&thread, NULL, without_a_context, &ok), 0);
    pthread_join(thread, NULL);
    assert_true(ok);
}

/* ---- Memory ---- */

static void test_memory_and_copies(void **state) {
    (void)state;
    uint32_t in[64], out[64];
    for (uint32_t i = 0; i < 64; i++)
        in[i] = i * 0x01010101;
    CUdeviceptr a = words(NULL, 64), b = words(NULL, 64);
    assert_int_equal(a % 256, 0);
    must(cuMemcpyDtoH(out, a, sizeof out));
    assert_int_equal(out[5], 0x7f7f7f7f); /* fresh memory is neither zero nor somebody's old data */
    must(cuMemcpyHtoD(a, in, sizeof in));
    must(cuMemcpyDtoD(b, a, sizeof in));
    must(cuMemcpyDtoH(out, b, sizeof out));
    assert_memory_equal(in, out, sizeof in);
    must(cuMemsetD16(b + 2, 0x1234, 3));
    must(cuMemsetD8(b, 0xee, 1));
    must(cuMemsetD32(b + 8, 0xdeadbeef, 2));
    must(cuMemcpyDtoH(out, b, sizeof out));
    assert_int_equal(out[0], 0x123400ee);
    assert_int_equal(out[1], 0x12341234);
    assert_int_equal(out[2], 0xdeadbeef);
    assert_int_equal(out[3], 0xdeadbeef);
    assert_int_equal(out[4], in[4]);
    assert_int_equal(cuMemcpyHtoD(a + 4, in, sizeof in), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(out, a - 1, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    must(cuMemFree(a));
    assert_int_equal(cuMemcpyDtoH(out, a, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    assert_true(words(NULL, 64) != a);
    must(cuMemFree(b));
    CUdeviceptr huge;
    assert_int_equal(cuMemAlloc(&huge, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc(&huge, 0), CUDA_ERROR_INVALID_VALUE);
    void *host;
    must(cuMemAllocHost(&host, 100));
    memset(host, 1, 100);
    must(cuMemFreeHost(host));
}

static void test_virtual_memory(void **state) {
    (void)state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr range;
    size_t granule = 0;
    uint32_t value = 99;
    must(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granule, 2 << 20);
    must(cuMemAddressReserve(&range, 4 * granule, 0, 0, 0));
    assert_int_equal(cuMemCreate(&memory, granule + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    must(cuMemCreate(&memory, granule, &prop, 0));
    must(cuMemMap(range + granule, granule, 0, memory, 0));
    assert_int_equal(cuMemcpyHtoD(range + granule, &value, 4), CUDA_ERROR_INVALID_VALUE); /* no access yet */
    must(cuMemSetAccess(range + granule, granule, &access, 1));
    must(cuMemcpyHtoD(range + 2 * granule - 4, &value, 4));
    assert_int_equal(cuMemcpyHtoD(range + 2 * granule, &value, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(range, 4 * granule), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    /* The same memory at a second place. */
    must(cuMemMap(range + 3 * granule, granule, 0, memory, 0));
    must(cuMemSetAccess(range + 3 * granule, granule, &access, 1));
    value = 0;
    must(cuMemcpyDtoH(&value, range + 4 * granule - 4, 4));
    assert_int_equal(value, 99);
    must(cuMemRelease(memory)); /* lives on while it is mapped */
    must(cuMemUnmap(range + 3 * granule, granule));
    must(cuMemcpyDtoH(&value, range + 2 * granule - 4, 4));
    must(cuMemUnmap(range + granule, granule));
    assert_int_equal(cuMemcpyDtoH(&value, range + 2 * granule - 4, 4), CUDA_ERROR_INVALID_VALUE);
    must(cuMemAddressFree(range, 4 * granule));
}

/* ---- Code ---- */

static void test_code_that_cannot_be_loaded(void **state) {
    (void)state;
    CUmodule other;
    CUlibrary library;
    CUfunction found;
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    static const char cubin[64] = "\x7f"
                                  "ELF\x02\x01\x01";
    assert_int_equal(cuModuleLoadData(&other, cubin), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryLoadData(&library, cubin, options, values, 2, NULL, NULL, 0), CUDA_ERROR_INVALID_IMAGE);
    assert_non_null(strstr(log, "ATTNS_LOAD_PTX"));
    static const char unknown[] = ".version 8.3\n.target sm_90a\n.address_size 64\n"
                                  ".visible .entry k()\n{\n  frobnicate.u32;\n  ret;\n}\n";
    assert_int_equal(cuLibraryLoadData(&library, unknown, options, values, 2, NULL, NULL, 0), CUDA_ERROR_INVALID_PTX);
    assert_non_null(strstr(log, "frobnicate"));
    assert_non_null(strstr(log, "line 6"));
    static const char blackwell[] =
        ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n";
    assert_int_equal(cuModuleLoadData(&other, blackwell), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuModuleLoadData(&other, ""), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(cuModuleGetFunction(&found, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleUnload((CUmodule)(void *)log), CUDA_ERROR_INVALID_HANDLE);
}

static void test_function_attributes(void **state) {
    (void)state;
    CUfunction f = function("limited");
    int value = 0, blocks = 0;
    must(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    assert_int_equal(value, 64);
    must(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
    assert_int_equal(value, 1024);
    must(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function("scale")));
    assert_in_range(value, 1, 255);
    assert_int_equal(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448),
                     CUDA_ERROR_INVALID_VALUE);
    must(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 231424));
    must(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 64, 231424));
    assert_int_equal(blocks, 1);
    must(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 64, 0));
    assert_int_equal(blocks, 32);
}

static void test_each_context_has_its_own_variables(void **state) {
    (void)state;
    CUlibrary library;
    CUkernel kernel;
    CUfunction first, again, second;
    CUcontext other;
    must(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    must(cuLibraryGetKernel(&kernel, library, "count"));
    must(cuKernelGetFunction(&first, kernel));
    must(cuKernelGetFunction(&again, kernel));
    assert_ptr_equal(first, again);
    uint32_t counted = 0;
    CUdeviceptr at = words(NULL, 1);
    void *params[] = {&at};
    for (uint32_t i = 1; i <= 3; i++) {
        must(cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        must(cuMemcpyDtoH(&counted, at, 4));
        assert_int_equal(counted, 7 + i);
    }
    must(cuCtxCreate_v2(&other, 0, 0));
    must(cuKernelGetFunction(&second, kernel));
    assert_ptr_not_equal(first, second);
    assert_int_equal(cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
    must(cuLaunchKernel(second, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    must(cuMemcpyDtoH(&counted, at, 4));
    assert_int_equal(counted, 8);
    must(cuCtxDestroy(other));
    must(cuLibraryUnload(library));
    assert_int_equal(cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* ---- Launches ---- */

static void test_launch(void **state) {
    (void)state;
    enum { N = 1000 };
    uint32_t in[N], out[N], factor = 3, n = N;
    for (uint32_t i = 0; i < N; i++)
        in[i] = i;
    CUdeviceptr from = words(in, N), to = words(NULL, N);
    void *params[] = {&to, &from, &factor, &n};
    must(cuLaunchKernel(function("scale"), 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    must(cuMemcpyDtoH(out, to, sizeof out));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(out[i], 3 * i);

    struct {
        CUdeviceptr to, from;
        uint32_t factor, n;
    } packed = {to, from, 5, N};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 128,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    must(cuLaunchKernelEx(&config, function("scale"), NULL, extra));
    must(cuMemcpyDtoH(out, to, sizeof out));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(out[i], 5 * i);
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = 2;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    assert_int_equal(cuLaunchKernelEx(&config, function("scale"), NULL, extra), CUDA_ERROR_NOT_SUPPORTED);
    must(cuMemFree(from));
    must(cuMemFree(to));
}

static void test_launches_that_are_refused(void **state) {
    (void)state;
    static const struct {
        unsigned grid[3], block[3], shared;
        CUresult expected;
    } shapes[] = {
        {{1, 1, 1}, {64, 1, 1}, 48 * 1024 - 1024, CUDA_SUCCESS},
        {{1, 1, 1}, {64, 1, 1}, 48 * 1024 - 1023, CUDA_ERROR_INVALID_VALUE}, /* static and dynamic share 48 KiB */
        {{1, 1, 1}, {65, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},                /* .maxntid */
        {{0, 1, 1}, {64, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {64, 0, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 65536, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {1, 1, 65}, 0, CUDA_ERROR_INVALID_VALUE},
    };
    CUfunction f = function("limited");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_int_equal(cuLaunchKernel(f, shapes[i].grid[0], shapes[i].grid[1], shapes[i].grid[2], shapes[i].block[0],
                                        shapes[i].block[1], shapes[i].block[2], shapes[i].shared, NULL, NULL, NULL),
                         shapes[i].expected);
    must(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    must(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 100000, NULL, NULL, NULL));
    assert_int_equal(cuLaunchKernel(function("scale"), 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(function("store"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE); /* no parameters */
    must(cuCtxSynchronize());
}

/* ---- Faults ---- */

static void test_a_fault_is_reported_and_sticks(void **state) {
    (void)state;
    CUdeviceptr at = words(NULL, 16), other;
    CUcontext second;
    CUstream stream;
    CUevent event;
    uint32_t value;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&event, 0));
    must(launch_store(at + 60));
    must(cuMemcpyDtoH(&value, at + 60, 4));
    assert_int_equal(value, 5);
    must(launch_store(at + 64)); /* one past the end: like on a device, the launch itself succeeds */
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    const char *report = ptxsim_last_fault();
    char address[32];
    snprintf(address, sizeof address, "%llx", (unsigned long long)at + 64);
    assert_non_null(strstr(report, address));
    assert_non_null(strstr(report, "store"));
    assert_non_null(strstr(report, "st.global.u32"));
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemcpyDtoH(&value, at, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemAlloc(&other, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Other contexts go on. */
    must(cuCtxCreate_v2(&second, 0, 0));
    must(cuMemAlloc(&other, 4));
    must(cuCtxDestroy(second));
}

static void test_misalignment_and_use_after_free(void **state) {
    (void)state;
    CUdeviceptr at = words(NULL, 16);
    must(launch_store(at + 2));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
    teardown(NULL);
    assert_int_equal(setup(NULL), 0);
    at = words(NULL, 16);
    must(cuMemFree(at));
    must(launch_store(at));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A hang becomes an error, with the place of every thread in the report. */
static void test_deadlock(void **state) {
    (void)state;
    static const char text[] = ".version 8.3\n.target sm_90a\n.address_size 64\n"
                               ".visible .entry hang()\n{\n"
                               "  .reg .pred %p<2>;\n  .reg .b32 %r<2>;\n"
                               "  mov.u32 %r1, %tid.x;\n"
                               "  setp.lt.u32 %p1, %r1, 32;\n"
                               "  @%p1 bra DONE;\n"
                               "  barrier.sync 1, 64;\n"
                               "DONE:\n  ret;\n}\n";
    CUmodule loaded;
    CUfunction hang;
    must(cuModuleLoadData(&loaded, text));
    must(cuModuleGetFunction(&hang, loaded, "hang"));
    must(cuLaunchKernel(hang, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
    assert_non_null(strstr(ptxsim_last_fault(), "barrier.sync"));
}

int main(void) {
    setenv("PTXSIM_SMS", "3", 1);
    setenv("PTXSIM_DEVICE", "sm_75", 1);
    if (cuInit(0) != CUDA_ERROR_NO_DEVICE) { /* said on stderr, with what is accepted; then it can still be mended */
        fprintf(stderr, "PTXSIM_DEVICE=sm_75 was accepted\n");
        return 1;
    }
    unsetenv("PTXSIM_DEVICE");
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_only_modelled_calls_exist),
        TEST(test_device),
        TEST(test_context_stack_and_ids),
        TEST(test_each_thread_has_its_own_stack),
        TEST(test_memory_and_copies),
        TEST(test_virtual_memory),
        TEST(test_code_that_cannot_be_loaded),
        TEST(test_function_attributes),
        TEST(test_each_context_has_its_own_variables),
        TEST(test_launch),
        TEST(test_launches_that_are_refused),
        TEST(test_a_fault_is_reported_and_sticks),
        TEST(test_misalignment_and_use_after_free),
        TEST(test_deadlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
