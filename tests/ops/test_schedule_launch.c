/* SPDX-License-Identifier: MIT
 *
 * What the schedule hands to the driver. The kernel store is replaced at link time (--wrap) by one that lends a fake
 * kernel and a driver table with a recording launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "jit/kernel_store.h"

attns_status __wrap_attns_kernel_acquire(attns_context *ctx, const attns_problem *problem, int64_t tiles,
                                         DLDevice device, CUstream stream, attns_kernel_use *use);
void __wrap_attns_kernel_release(const attns_kernel_use *use);

static attns_context context; /* only its address is used */
static char stream_storage, function_storage, lens_storage[64], meta_storage[64];
static CUstream const the_stream = (CUstream)(void *)&stream_storage;

static struct {
    int acquired, released, launched;
    attns_status acquire_status;
    CUresult launch_result;
    attns_problem problem;
    DLDevice device;
    CUlaunchConfig config;
    const void *lens;
    long long stride_b, stride_t;
    int batch, slots, num_shares;
    void *meta;
} record;

static CUresult CUDAAPI fake_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    assert_ptr_equal(function, &function_storage);
    assert_null(extra);
    record.launched++;
    record.config = *config;
    memcpy(&record.lens, params[0], sizeof record.lens);
    memcpy(&record.stride_b, params[1], sizeof record.stride_b);
    memcpy(&record.stride_t, params[2], sizeof record.stride_t);
    memcpy(&record.batch, params[3], sizeof record.batch);
    memcpy(&record.slots, params[4], sizeof record.slots);
    memcpy(&record.num_shares, params[5], sizeof record.num_shares);
    memcpy(&record.meta, params[6], sizeof record.meta);
    return record.launch_result;
}

static CUresult CUDAAPI fake_error_text(CUresult result, const char **text) {
    (void)result;
    *text = "fake error";
    return CUDA_SUCCESS;
}

static const attns_driver driver = {
    .launch_kernel_ex = fake_launch, .get_error_name = fake_error_text, .get_error_string = fake_error_text};
static attns_kernel kernel;

attns_status __wrap_attns_kernel_acquire(attns_context *ctx, const attns_problem *problem, int64_t tiles,
                                         DLDevice device, CUstream stream, attns_kernel_use *use) {
    assert_int_equal(tiles, 0);
    assert_ptr_equal(ctx, &context);
    assert_ptr_equal(stream, the_stream);
    record.device = device;
    record.acquired++;
    record.problem = *problem;
    if (record.acquire_status != ATTNS_OK)
        return record.acquire_status;
    kernel.function = (CUfunction)(void *)&function_storage;
    kernel.plan.threads = 1024;
    *use = (attns_kernel_use){.kernel = &kernel, .driver = &driver};
    return ATTNS_OK;
}

void __wrap_attns_kernel_release(const attns_kernel_use *use) {
    assert_ptr_equal(use->kernel, &kernel);
    record.released++;
}

static DLTensor lens, meta;
static int64_t lens_shape[2], lens_stride[2], meta_shape[2];
static attns_schedule_params params;

static int setup(void **state) {
    (void)state;
    memset(&record, 0, sizeof record);
    memcpy(lens_shape, (int64_t[]){300, 3}, sizeof lens_shape);
    memcpy(lens_stride, (int64_t[]){5, 7}, sizeof lens_stride);
    memcpy(meta_shape, (int64_t[]){133, 2}, sizeof meta_shape);
    const DLTensor common = {.device = {kDLCUDA, 1}, .dtype = {kDLInt, 32, 1}, .ndim = 2};
    lens = meta = common;
    lens.data = lens_storage;
    lens.byte_offset = 8;
    lens.shape = lens_shape;
    lens.strides = lens_stride;
    meta.data = meta_storage;
    meta.shape = meta_shape;
    params = (attns_schedule_params){.seq_lens = &lens, .schedule_meta = &meta};
    return 0;
}

static attns_status run(void) {
    return attns_compute_paged_mqa_logits_schedule(&context, &params, the_stream);
}

static void test_two_dimensional(void **state) {
    (void)state;
    assert_int_equal(run(), ATTNS_OK);
    assert_int_equal(record.acquired, 1);
    assert_int_equal(record.released, 1);
    assert_int_equal(record.launched, 1);
    const attns_problem expected = {.kind = ATTNS_KERNEL_SCHEDULE};
    assert_memory_equal(&record.problem, &expected, sizeof expected);

    const CUlaunchConfig *const config = &record.config;
    assert_int_equal(config->gridDimX * config->gridDimY * config->gridDimZ, 1);
    assert_int_equal(config->blockDimX, 1024);
    assert_int_equal(config->blockDimY * config->blockDimZ, 1);
    assert_int_equal(config->sharedMemBytes, 0);
    assert_int_equal(config->numAttrs, 0);
    assert_ptr_equal(config->hStream, the_stream);

    assert_ptr_equal(record.lens, lens_storage + 8);
    assert_int_equal(record.stride_b, 5);
    assert_int_equal(record.stride_t, 7);
    assert_int_equal(record.batch, 300);
    assert_int_equal(record.slots, 3);
    assert_int_equal(record.num_shares, 132);
    assert_ptr_equal(record.meta, meta_storage);
}

static void test_one_dimensional(void **state) {
    (void)state;
    lens.ndim = 1;
    lens_stride[0] = INT64_C(1) << 40;
    lens.device.device_type = kDLCUDAManaged;
    lens.device.device_id = 0;
    assert_int_equal(run(), ATTNS_OK);
    assert_int_equal(record.stride_b, INT64_C(1) << 40);
    assert_int_equal(record.stride_t, 0);
    assert_int_equal(record.slots, 1);
}

static void test_empty_batch(void **state) {
    (void)state;
    lens_shape[0] = 0;
    lens.data = NULL;
    assert_int_equal(run(), ATTNS_OK);
    assert_int_equal(record.launched, 1); /* the rows are written all the same */
    assert_int_equal(record.batch, 0);
    assert_null(record.lens);
}

/* The store compares this device with the stream's. */
static void test_device_passed_on(void **state) {
    (void)state;
    lens.device.device_id = meta.device.device_id = 3;
    assert_int_equal(run(), ATTNS_OK);
    assert_int_equal(record.device.device_type, kDLCUDA);
    assert_int_equal(record.device.device_id, 3);
    lens.device = (DLDevice){kDLCUDAManaged, 0};
    assert_int_equal(run(), ATTNS_OK);
    assert_int_equal(record.device.device_type, kDLCUDA);
    assert_int_equal(record.device.device_id, 3);
}

static void test_failures(void **state) {
    (void)state;
    record.acquire_status = ATTNS_ERROR_WOULD_COMPILE;
    assert_int_equal(run(), ATTNS_ERROR_WOULD_COMPILE);
    assert_int_equal(record.launched, 0);
    assert_int_equal(record.released, 0);

    record.acquire_status = ATTNS_OK;
    record.launch_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(run(), ATTNS_ERROR_CUDA);
    assert_non_null(strstr(attns_last_error(), "cuLaunchKernelEx"));
    assert_int_equal(record.released, 1);
}

/* Nothing is looked for when the arguments are wrong. */
static void test_wrong_input_acquires_nothing(void **state) {
    (void)state;
    meta_shape[0] = 1;
    assert_int_equal(run(), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(record.acquired, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_two_dimensional, setup),
        cmocka_unit_test_setup(test_one_dimensional, setup),
        cmocka_unit_test_setup(test_empty_batch, setup),
        cmocka_unit_test_setup(test_device_passed_on, setup),
        cmocka_unit_test_setup(test_failures, setup),
        cmocka_unit_test_setup(test_wrong_input_acquires_nothing, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
