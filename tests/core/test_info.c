/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "fake_cuda.h"
#include "testing.h"

static fake_cuda_state *fake;

static int open_fake(void **state) {
    (void)state;
    void *handle = dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return -1;
    fake_cuda_get_state_fn get_state;
    void *address = dlsym(handle, "fake_cuda_get_state");
    memcpy(&get_state, &address, sizeof get_state);
    fake = get_state();
    return 0;
}

static attns_context *make_context(const char *cache_dir) {
    attns_context_params params = {
        .libcuda_path = FAKE_CUDA_PATH, .libnvrtc_path = "/nonexistent/nvrtc", .cache_dir = cache_dir};
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    return ctx;
}

static void test_info_with_a_driver_only(void **state) {
    (void)state;
    char *dir = scratch_make();
    char *cache = path_join(dir, "cache");
    attns_context *ctx = make_context(cache);
    attns_fail(ATTNS_ERROR_IO, "an earlier failure");
    attns_info info;
    assert_int_equal(attns_get_info(ctx, &info), ATTNS_OK);
    assert_string_equal(attns_last_error(), "an earlier failure");
    char *real = realpath(FAKE_CUDA_PATH, NULL);
    assert_string_equal(info.libcuda, real);
    free(real);
    assert_null(info.libcuda_error);
    assert_int_equal(info.driver_version, 13000);
    assert_int_equal(info.num_devices, FAKE_NUM_DEVICES);
    assert_null(info.libnvrtc);
    assert_contains(info.libnvrtc_error, "/nonexistent/nvrtc");
    assert_null(info.nvrtc_archs);
    assert_int_equal(info.nvrtc_version, 0);
    assert_string_equal(info.cache_dir, cache);
    assert_string_equal(info.cache_readonly_dirs, "");
    assert_int_equal(info.cache_entries, 0);
    assert_int_equal(info.cache_max_bytes, 1 << 30);
    attns_context_destroy(ctx);
    free(cache);
    scratch_remove(dir);
}

static void test_info_without_a_driver(void **state) {
    (void)state;
    attns_context_params params = {
        .libcuda_path = "/nonexistent/cuda", .libnvrtc_path = "/nonexistent/nvrtc", .cache_dir = ""};
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    attns_info info;
    assert_int_equal(attns_get_info(ctx, &info), ATTNS_OK);
    assert_null(info.libcuda);
    assert_contains(info.libcuda_error, "/nonexistent/cuda");
    assert_int_equal(info.num_devices, 0);
    assert_null(info.cache_dir);
    attns_device_info device;
    assert_int_equal(attns_get_device_info(ctx, 0, &device), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    attns_context_destroy(ctx);
}

static void test_device(void **state) {
    (void)state;
    attns_context *ctx = make_context("");
    attns_device_info device;
    assert_int_equal(attns_get_device_info(ctx, 1, &device), ATTNS_OK);
    assert_string_equal(device.name, "Fake device 1");
    assert_string_equal(device.arch, "sm_90a");
    assert_int_equal(device.compute_capability, 90);
    assert_int_equal(device.num_sms, 78);
    assert_int_equal(device.l2_bytes, 50 << 20);
    assert_int_equal(device.shared_bytes_per_sm, 233472);
    assert_true(device.memory_bytes == (uint64_t)2 << 30);

    /* One that the library has no kernels for is described without a target, and that is no failure. */
    fake->compute_capability[1] = 35;
    attns_fail(ATTNS_ERROR_IO, "an earlier failure");
    assert_int_equal(attns_get_device_info(ctx, 1, &device), ATTNS_OK);
    assert_string_equal(device.arch, "");
    assert_int_equal(device.compute_capability, 35);
    assert_string_equal(attns_last_error(), "an earlier failure");
    fake->compute_capability[1] = 90;
    attns_context_destroy(ctx);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    attns_context *ctx = make_context("");
    attns_info info;
    attns_device_info device;
    assert_int_equal(attns_get_info(NULL, &info), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "ctx");
    assert_int_equal(attns_get_info(ctx, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "info");
    assert_int_equal(attns_get_device_info(NULL, 0, &device), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attns_get_device_info(ctx, 0, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    const int ordinals[] = {-1, FAKE_NUM_DEVICES};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attns_get_device_info(ctx, ordinals[i], &device), ATTNS_ERROR_INVALID_ARGUMENT);
        assert_contains(attns_last_error(), i ? "ordinal: 2, accepted: 0 to 1" : "ordinal: -1, accepted: 0 to 1");
    }
    attns_context_destroy(ctx);
}

static void test_failing_driver_calls(void **state) {
    (void)state;
    attns_context *ctx = make_context("");
    const fake_call calls[] = {FAKE_device_get_count, FAKE_device_get, FAKE_device_get_name, FAKE_device_total_mem,
                               FAKE_device_get_attribute};
    const char *const names[] = {"cuDeviceGetCount", "cuDeviceGet:", "cuDeviceGetName", "cuDeviceTotalMem",
                                 "cuDeviceGetAttribute"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        attns_device_info device = {.num_sms = 12345};
        fake->fail_result[calls[i]] = CUDA_ERROR_OUT_OF_MEMORY;
        fake->fail_times[calls[i]] = 1;
        assert_int_equal(attns_get_device_info(ctx, 0, &device), ATTNS_ERROR_CUDA);
        assert_contains(attns_last_error(), names[i]);
        assert_contains(attns_last_error(), "CUDA_ERROR_OUT_OF_MEMORY");
        assert_int_equal(device.num_sms, 12345);
    }
    attns_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info_with_a_driver_only),
        cmocka_unit_test(test_info_without_a_driver),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_failing_driver_calls),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
