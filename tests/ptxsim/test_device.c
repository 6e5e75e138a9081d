/* SPDX-License-Identifier: MIT
 *
 * The devices that libptxsim_cuda.so poses as. The driver reads its environment once, so each runs in a process of its
 * own. */
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

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device);

static const struct {
    const char *wanted, *name;
    int major, minor, optin_kib, sm_kib, threads;
    const char *runs, *refused; /* targets */
} devices[] = {
    {"sm_80", "sm_80", 8, 0, 163, 164, 2048, "sm_80", "sm_86"},
    {"sm_86", "sm_86", 8, 6, 99, 100, 1536, "sm_80", "sm_87"},
    {"sm_87", "sm_87", 8, 7, 163, 164, 1536, "sm_86", "sm_89"},
    {"sm_89", "sm_89", 8, 9, 99, 100, 1536, "sm_89", "sm_90"},
    {"sm_90", "sm_90a", 9, 0, 227, 228, 2048, "sm_90a", "sm_100"},
    {"sm_90a", "sm_90a", 9, 0, 227, 228, 2048, "sm_80", "sm_100a"},
    {"sm_100a", "sm_100a", 10, 0, 227, 228, 2048, "sm_100f", "sm_90a"},
    {"sm_103a", "sm_103a", 10, 3, 227, 228, 2048, "sm_100f", "sm_100a"},
    {"sm_107a", "sm_107a", 10, 7, 227, 228, 2048, "sm_107f", "sm_103a"},
    {"sm_110", "sm_110a", 11, 0, 227, 228, 1536, "sm_101a", "sm_100f"},
    {"sm_120a", "sm_120a", 12, 0, 99, 100, 1536, "sm_120f", "sm_121"},
    {"sm_121a", "sm_121a", 12, 1, 99, 100, 1536, "sm_120f", "sm_120a"},
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s: %s\n", devices[i].wanted, #condition);                                                \
            return false;                                                                                              \
        }                                                                                                              \
    } while (0)

static int attribute(CUdevice_attribute which) {
    int value = -1;
    cuDeviceGetAttribute(&value, which, 0);
    return value;
}

static CUresult load(const char *target, const char *version) {
    char text[256];
    snprintf(text, sizeof text, ".version %s\n.target %s\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n",
             version, target);
    CUmodule module;
    return cuModuleLoadData(&module, text);
}

static bool check_device(size_t i) {
    char name[100];
    CUcontext ctx;
    setenv("PTXSIM_DEVICE", devices[i].wanted, 1);
    setenv("PTXSIM_SMS", "9", 1);
    CHECK(cuInit(0) == CUDA_SUCCESS);
    CHECK(cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS && strstr(name, devices[i].name));
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == devices[i].major);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == devices[i].minor);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 9);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) == 48 << 10);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == devices[i].optin_kib << 10);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) == devices[i].sm_kib << 10);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) == 1024);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) == devices[i].threads);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) == 65536);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) == (devices[i].major >= 9));
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) >= 4 << 20);
    CHECK(cuCtxCreate_v2(&ctx, 0, 0) == CUDA_SUCCESS);
    CHECK(load(devices[i].runs, "9.5") == CUDA_SUCCESS);
    CHECK(load("sm_75", "6.3") == CUDA_SUCCESS);
    CHECK(load(devices[i].refused, "9.0") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(load(devices[i].runs, "9.6") == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    CHECK(load("sm_90q", "9.0") == CUDA_ERROR_INVALID_PTX);
    CHECK(cuCtxDestroy(ctx) == CUDA_SUCCESS);
    return true;
}

/* In a process of its own; what it returns. */
static bool apart(bool (*check)(size_t), size_t i) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(check(i) ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_devices(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!apart(check_device, i))
            fail_msg("%s", devices[i].wanted);
}

static const struct {
    const char *variable, *value;
} wrong[] = {
    {"PTXSIM_DEVICE", "sm_75"},  {"PTXSIM_DEVICE", "sm_80a"},      {"PTXSIM_DEVICE", "gpu"},
    {"PTXSIM_SMS", "0"},         {"PTXSIM_SMS", "1025"},           {"PTXSIM_SMS", "4x"},
    {"PTXSIM_TENSOR_BITS", "7"}, {"PTXSIM_TENSOR_BITS", "narrow"},
};

static bool check_wrong(size_t i) {
    setenv(wrong[i].variable, wrong[i].value, 1);
    return cuInit(0) == CUDA_ERROR_NO_DEVICE;
}

static void test_wrong(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!apart(check_wrong, i))
            fail_msg("%s=%s was accepted", wrong[i].variable, wrong[i].value);
}

/* Tensor cores as on Hopper: of that device alone. */
static bool check_hopper(size_t other) {
    setenv("PTXSIM_TENSOR_BITS", "hopper", 1);
    setenv("PTXSIM_DEVICE", other ? "sm_100a" : "sm_90a", 1);
    return cuInit(0) == (other ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS);
}

static void test_hopper(void **unused) {
    (void)unused;
    assert_true(apart(check_hopper, 0));
    assert_true(apart(check_hopper, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices), cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_hopper)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
