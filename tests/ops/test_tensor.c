/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/tensor.h"

#define INVALID ATTNS_ERROR_INVALID_ARGUMENT

static char storage[64];

static DLTensor make_tensor(int ndim, int64_t *shape, int64_t *strides) {
    return (DLTensor){
        .data = storage,
        .device = {kDLCPU, 0},
        .ndim = ndim,
        .dtype = {kDLFloat, 32, 1},
        .shape = shape,
        .strides = strides,
    };
}

static void expect(attns_status status, const char *message) {
    assert_int_equal(status, INVALID);
    assert_string_equal(attns_last_error(), message);
}

static void test_compact_strides(void **state) {
    (void)state;
    int64_t shape[] = {2, 3, 5, 7};
    DLTensor tensor = make_tensor(4, shape, NULL);
    tensor.byte_offset = 20;
    attns_tensor read;
    assert_int_equal(attns_tensor_read(&tensor, "x", 1, 4, &read), ATTNS_OK);
    assert_string_equal(read.name, "x");
    assert_ptr_equal(read.data, storage + 20);
    assert_int_equal(read.ndim, 4);
    assert_int_equal(read.element_bytes, 4);
    const int64_t strides[] = {420, 140, 28, 4};
    assert_memory_equal(read.stride, strides, sizeof strides);
    assert_memory_equal(read.shape, shape, sizeof shape);
    assert_int_equal(attns_tensor_check_dense(&read, 0), ATTNS_OK);
}

static void test_given_strides(void **state) {
    (void)state;
    int64_t shape[] = {2, 3, 5}, strides[] = {100, 0, 2};
    const DLTensor tensor = make_tensor(3, shape, strides);
    attns_tensor read;
    assert_int_equal(attns_tensor_read(&tensor, "x", 3, 3, &read), ATTNS_OK);
    assert_int_equal(read.stride[0], 400);
    assert_int_equal(read.stride[1], 0);
    assert_int_equal(read.stride[2], 8);
    expect(attns_tensor_check_dense(&read, 2), "x: stride[2] is 2, accepted: 1 (dense)");
}

/* DLPack allows any stride in a dimension of size 1. */
static void test_size_one_strides(void **state) {
    (void)state;
    int64_t shape[] = {1, 4, 1, 3}, strides[] = {-9, 3, INT64_MAX, 1};
    const DLTensor tensor = make_tensor(4, shape, strides);
    attns_tensor read;
    assert_int_equal(attns_tensor_read(&tensor, "x", 4, 4, &read), ATTNS_OK);
    const int64_t compact[] = {48, 12, 12, 4};
    assert_memory_equal(read.stride, compact, sizeof compact);
    assert_int_equal(attns_tensor_check_dense(&read, 0), ATTNS_OK);
    assert_int_equal(attns_tensor_check_aligned(&read, 4, 4), ATTNS_OK);
}

static void test_empty(void **state) {
    (void)state;
    int64_t shape[] = {4, 0, 3};
    DLTensor tensor = make_tensor(3, shape, NULL);
    tensor.data = NULL;
    tensor.byte_offset = 8;
    attns_tensor read;
    assert_int_equal(attns_tensor_read(&tensor, "x", 3, 3, &read), ATTNS_OK);
    assert_null(read.data);
    assert_int_equal(attns_tensor_check_dense(&read, 0), ATTNS_OK);
    shape[1] = 1;
    expect(attns_tensor_read(&tensor, "x", 3, 3, &read), "x: data is NULL, accepted: the address of the elements");
}

static void test_extent(void **state) {
    (void)state;
    int64_t shape[] = {3, 2}, strides[] = {INT64_MAX / 8, 1};
    const DLTensor tensor = make_tensor(2, shape, strides);
    attns_tensor read;
    /* the last element ends at byte 2^63 - 8, and then at 2^63 */
    strides[0] = INT64_MAX / 8 - 1;
    assert_int_equal(attns_tensor_read(&tensor, "x", 2, 2, &read), ATTNS_OK);
    strides[0] = INT64_MAX / 8;
    expect(attns_tensor_read(&tensor, "x", 2, 2, &read),
           "x: shape[0] is 3 with stride 1152921504606846975, accepted: a tensor that spans less than 2^63 bytes");
    strides[0] = INT64_MAX;
    assert_int_equal(attns_tensor_read(&tensor, "x", 2, 2, &read), INVALID);
    int64_t huge[] = {INT64_MAX, INT64_MAX};
    const DLTensor compact = make_tensor(2, huge, NULL);
    assert_int_equal(attns_tensor_read(&compact, "x", 2, 2, &read), INVALID);
    int64_t zero[] = {0, 0};
    const DLTensor broadcast = make_tensor(2, huge, zero);
    assert_int_equal(attns_tensor_read(&broadcast, "x", 2, 2, &read), ATTNS_OK);
}

static void test_rank(void **state) {
    (void)state;
    int64_t shape[] = {3, 2, 1, 1, 1};
    DLTensor tensor = make_tensor(5, shape, NULL);
    attns_tensor read;
    expect(attns_tensor_read(&tensor, "x", 1, 2, &read), "x: rank is 5, accepted: 1 to 2");
    assert_int_equal(attns_tensor_read(&tensor, "x", 1, 5, &read), INVALID); /* more than attns_tensor holds */
    tensor.ndim = 0;
    expect(attns_tensor_read(&tensor, "x", 2, 2, &read), "x: rank is 0, accepted: 2");
    expect(attns_tensor_read(NULL, "x", 2, 2, &read), "x: is NULL, accepted: a tensor");
}

static void test_dtype_names(void **state) {
    (void)state;
    static const struct {
        DLDataType dtype;
        const char *name;
    } rows[] = {
        {{kDLInt, 64, 1}, "int64"},
        {{kDLUInt, 16, 1}, "uint16"},
        {{kDLFloat, 16, 1}, "float16"},
        {{kDLBfloat, 16, 1}, "bfloat16"},
        {{kDLComplex, 64, 1}, "complex64"},
        {{6, 8, 1}, "bool8"},
        {{7, 8, 1}, "float8_e3m4"},
        {{8, 8, 1}, "float8_e4m3"},
        {{ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, "float8_e4m3fn"},
        {{ATTNS_DL_FLOAT8_E5M2, 8, 1}, "float8_e5m2"},
        {{17, 4, 1}, "float4_e2m1fn"},
        {{18, 8, 1}, "DLPack code 18 of 8 bits"},
        {{255, 255, 1}, "DLPack code 255 of 255 bits"},
    };
    static const attns_dtype_set set = {"float32 or int32", {{kDLFloat, 32, 1}, {kDLInt, 32, 1}}, 2};
    int64_t shape[] = {4};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        DLTensor tensor = make_tensor(1, shape, NULL);
        attns_tensor read;
        char message[128];
        tensor.dtype = rows[i].dtype;
        assert_int_equal(attns_tensor_read(&tensor, "x", 1, 1, &read), ATTNS_OK);
        snprintf(message, sizeof message, "x: dtype is %s, accepted: float32 or int32", rows[i].name);
        expect(attns_tensor_check_dtype(&read, &set), message);
        tensor.dtype.lanes = 65535;
        snprintf(message, sizeof message, "x: dtype is %sx65535, accepted: a dtype of 1 lane", rows[i].name);
        expect(attns_tensor_read(&tensor, "x", 1, 1, &read), message);
    }
}

static void test_alignment(void **state) {
    (void)state;
    int64_t shape[] = {3, 2, 2}, strides[] = {16, 6, 1};
    DLTensor tensor = make_tensor(3, shape, strides);
    attns_tensor read;
    tensor.data = (void *)0x1000;
    assert_int_equal(attns_tensor_read(&tensor, "x", 3, 3, &read), ATTNS_OK);
    assert_int_equal(attns_tensor_check_aligned(&read, 64, 1), ATTNS_OK);
    expect(attns_tensor_check_aligned(&read, 16, 2),
           "x: stride[1] is 6, accepted: a multiple of 16 bytes (given: 24 bytes)");
    tensor.byte_offset = 8;
    assert_int_equal(attns_tensor_read(&tensor, "x", 3, 3, &read), ATTNS_OK);
    expect(attns_tensor_check_aligned(&read, 16, 0), "x: address is 0x1008, accepted: a multiple of 16 bytes");
    assert_int_equal(attns_tensor_check_aligned(&read, 8, 2), ATTNS_OK);
}

static void test_devices(void **state) {
    (void)state;
    static const DLDevice cpu = {kDLCPU, 0}, pinned = {kDLCUDAHost, 0}, cuda0 = {kDLCUDA, 0}, cuda1 = {kDLCUDA, 1},
                          managed = {kDLCUDAManaged, 0};
    const struct {
        DLDevice a, b;
        attns_status status;
    } rows[] = {
        {cpu, cpu, ATTNS_OK},           {cpu, pinned, ATTNS_OK}, {pinned, cpu, ATTNS_OK},    {cuda0, cuda0, ATTNS_OK},
        {cuda1, cuda1, ATTNS_OK},       {cuda0, cuda1, INVALID}, {cuda1, managed, ATTNS_OK}, {managed, cuda1, ATTNS_OK},
        {managed, managed, ATTNS_OK},   {cpu, cuda0, INVALID},   {cuda0, pinned, INVALID},   {managed, cpu, INVALID},
        {{kDLROCM, 0}, cuda0, INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const attns_tensor a = {.name = "a", .device = rows[i].a}, b = {.name = "b", .device = rows[i].b};
        assert_int_equal(attns_tensor_check_same_device(&a, &b), rows[i].status);
    }
    const attns_tensor host = {.name = "h", .device = cpu}, device = {.name = "d", .device = cuda1};
    assert_int_equal(attns_tensor_check_device(&host, true, false), ATTNS_OK);
    assert_int_equal(attns_tensor_check_device(&device, false, true), ATTNS_OK);
    assert_int_equal(attns_tensor_check_device(&device, true, true), ATTNS_OK);
    expect(attns_tensor_check_device(&host, false, true), "h: device is cpu, accepted: a CUDA device");
    expect(attns_tensor_check_device(&device, true, false),
           "d: device is cuda:1, accepted: host memory (cpu or cuda_host)");
    assert_true(attns_tensor_on_host(&host));
    assert_false(attns_tensor_on_host(&device));
}

static void test_bounds(void **state) {
    (void)state;
    int64_t shape[] = {3, 8}, strides[] = {10, 1};
    const DLTensor tensor = make_tensor(2, shape, strides);
    attns_tensor read;
    assert_int_equal(attns_tensor_read(&tensor, "x", 2, 2, &read), ATTNS_OK);
    assert_int_equal(attns_tensor_check_dim(&read, 0, 3, "B of q"), ATTNS_OK);
    expect(attns_tensor_check_dim(&read, 0, 4, "B of q"), "x: shape[0] is 3, accepted: 4 (B of q)");
    assert_int_equal(attns_tensor_check_range(&read, 1, 8, 8, "W"), ATTNS_OK);
    expect(attns_tensor_check_range(&read, 1, 9, 20, "W"), "x: shape[1] is 8, accepted: 9 to 20 (W)");
    expect(attns_tensor_check_range(&read, 1, 1, 7, "W"), "x: shape[1] is 8, accepted: 1 to 7 (W)");
    assert_int_equal(attns_tensor_check_min_stride(&read, 0, 40, "why"), ATTNS_OK);
    expect(attns_tensor_check_min_stride(&read, 0, 44, "why"),
           "x: stride[0] is 10, accepted: at least 11 elements (why)");
    assert_int_equal(attns_tensor_check_max_stride(&read, 0, 40, "why"), ATTNS_OK);
    expect(attns_tensor_check_max_stride(&read, 0, 36, "why"),
           "x: stride[0] is 10, accepted: at most 9 elements (why)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compact_strides),  cmocka_unit_test(test_given_strides),
        cmocka_unit_test(test_size_one_strides), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_extent),           cmocka_unit_test(test_rank),
        cmocka_unit_test(test_dtype_names),      cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_devices),          cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
