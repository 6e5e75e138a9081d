/* SPDX-License-Identifier: MIT
 *
 * Addresses: pools and outputs beyond 32-bit offsets, hostile block ids, and the layout of a block by closed forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* One request of `count` blocks that lie `stride` bytes apart in a pool that holds nothing else: the bits must be those
 * of a compact pool. */
static void scattered_blocks(int64_t stride, const int32_t *ids, int count, int block_size) {
    int32_t len = count * block_size, highest = 0;
    struct fp8_case c = {.batch = 1, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = block_size, .lens = &len};
    struct fp8_data data;
    struct fp8_device dev;
    struct gpu_buffer pool;
    make_data(&data, &c);
    for (int i = 0; i < count; i++)
        highest = ids[i] > highest ? ids[i] : highest;
    size_t bytes = (size_t)highest * (size_t)stride + (size_t)data.block_bytes;
    if (bytes + (64u << 20) > free_memory()) {
        print_message("skipped: needs %zu MiB of device memory\n", bytes >> 20);
        fp8_data_free(&data);
        skip();
    }
    upload_data(&dev, &data, FP8_PLAIN, NULL);
    uint8_t *compact = call_and_download(&dev);
    check_image(&data, compact, NULL);

    assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &pool, bytes, GPU_FLUSH_END));
    must(fx.gpu.memset_d8(pool.ptr, 0x7f, bytes)); /* NaN values wherever a wrong offset leads */
    for (int i = 0; i < count; i++)
        must(fx.gpu.memcpy_htod(pool.ptr + (size_t)ids[i] * (size_t)stride, data.kv + data.tables[i] * data.kv_stride,
                                (size_t)data.block_bytes));
    must(fx.gpu.memcpy_htod(dev.tables.ptr, ids, (size_t)count * 4));
    dev.tensors.kv.data = (void *)(uintptr_t)pool.ptr;
    dev.tensors.kv_shape[0] = (int64_t)highest + 1;
    dev.tensors.kv_strides[0] = stride;
    assert_true(fp8_poison(&dev, fx.stream));
    uint8_t *scattered = call_and_download(&dev);
    assert_memory_equal(compact, scattered, data.out_image_bytes);
    free(compact);
    free(scattered);
    gpu_buffer_free(&fx.gpu, &pool);
    fp8_device_free(&dev);
    fp8_data_free(&data);
}

static void test_blocks_beyond_2_and_4_gib(void **state) {
    (void)state;
    static const int32_t ids[] = {1495, 0, 1496, 4564, 1, 2990, 2991};
    for (int block = 16; block <= 256; block *= 2)
        scattered_blocks(1435968, ids, 7, block);
}

static void test_packed_pool_of_another_stride(void **state) {
    (void)state;
    static const int32_t ids[] = {2142, 2143, 0, 4285, 4286};
    scattered_blocks(1002240, ids, 5, 64);
}

/* Rows past 2 GiB and past 2^31 elements of the output. */
static void test_output_rows_beyond_2_gib(void **state) {
    (void)state;
    enum { STRIDE = 1048576, B = 1025, ROWS = 2 * B, LEN = 300, SHOWN = 512 };
    struct fp8_case c = {.batch = B,
                         .next_n = 2,
                         .heads = 64,
                         .head_dim = 128,
                         .block_size = 64,
                         .min_len = LEN,
                         .max_len = LEN,
                         .bare_out = true};
    size_t bytes = (size_t)(ROWS - 1) * STRIDE * 4 + SHOWN * 4;
    if (bytes + (512u << 20) > free_memory()) {
        print_message("skipped: needs %zu MiB of device memory\n", bytes >> 20);
        skip();
    }
    struct fp8_data data;
    struct fp8_device dev;
    struct gpu_buffer out;
    make_data(&data, &c);
    upload_data(&dev, &data, FP8_PLAIN, NULL);
    uint8_t *compact = call_and_download(&dev);
    struct fp8_check_options options = {.max_work = 1e9};
    check_image(&data, compact, &options);

    assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &out, bytes, GPU_FLUSH_END));
    must(fx.gpu.memset_d32(out.ptr, FP8_POISON, bytes / 4));
    must(fx.gpu.ctx_synchronize());
    dev.tensors.out.data = (void *)(uintptr_t)out.ptr;
    dev.tensors.out_strides[0] = STRIDE;
    assert_int_equal(fp8_queue(&dev, fx.ctx, fx.stream), ATTNS_OK);
    assert_int_equal(gpu_wait_stream(&fx.gpu, fx.stream, 20), CUDA_SUCCESS);
    uint32_t row_bits[SHOWN], before[SHOWN];
    for (int row = 0; row < ROWS; row++) {
        size_t at = (size_t)row * STRIDE * 4;
        int64_t limit = LEN - 1 + row % 2;
        must(fx.gpu.memcpy_dtoh(row_bits, out.ptr + at, sizeof row_bits));
        if (memcmp(row_bits, compact + fp8_image_at(&data, row, 0), (size_t)limit * 4))
            fail_msg("row %d (byte %zu of the output) is wrong", row, at);
        for (int64_t p = limit; p < SHOWN; p++)
            assert_int_equal(row_bits[p], FP8_POISON);
        if (row > 0) {
            must(fx.gpu.memcpy_dtoh(before, out.ptr + at - sizeof before, sizeof before));
            for (int p = 0; p < SHOWN; p++)
                assert_int_equal(before[p], FP8_POISON);
        }
    }
    free(compact);
    gpu_buffer_free(&fx.gpu, &out);
    fp8_device_free(&dev);
    fp8_data_free(&data);
}

/* Blocks out of range read as zeros, whatever lies around the pool. */
static void test_hostile_block_ids(void **state) {
    (void)state;
    struct rng r = rng_make(next_seed());
    for (int i = 0; i < 30; i++) {
        struct fp8_case c = {.batch = 9,
                             .next_n = 1 + i % 4,
                             .heads = 32,
                             .head_dim = 32 << i % 3,
                             .block_size = 16 << i % 5,
                             .max_len = 900,
                             .bare_out = true,
                             .kv_pad_bytes = i % 2 ? 112 : 0,
                             .clean = i % 7 == 0};
        struct fp8_data data;
        struct fp8_device dev;
        make_data(&data, &c);
        const int32_t hostile[] = {-1,
                                   INT32_MIN,
                                   INT32_MIN + 1,
                                   INT32_MAX,
                                   INT32_MAX - 1,
                                   (int32_t)data.num_blocks,
                                   (int32_t)data.num_blocks + 1,
                                   (int32_t)(0x100000000 / data.kv_stride),
                                   -(int32_t)data.num_blocks};
        for (size_t k = 0; k < data.tables_bytes / 4; k++)
            if (rng_below(&r, 3) == 0)
                data.tables[k] = hostile[rng_below(&r, 9)];
        upload_data(&dev, &data, i % 3 == 0 ? FP8_GUARD_START : FP8_GUARD_END, NULL);
        uint8_t *image = call_and_download(&dev);
        struct fp8_check_options options = {.max_work = 5e8};
        check_image(&data, image, &options);
        free(image);
        fp8_device_free(&dev);
        fp8_data_free(&data);
    }
}

static void test_a_table_of_nothing_but_hostile_ids(void **state) {
    (void)state;
    struct fp8_case c = {.batch = 5, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700};
    struct fp8_data data;
    struct fp8_device dev;
    make_data(&data, &c);
    for (size_t k = 0; k < data.tables_bytes / 4; k++)
        data.tables[k] = k % 2 ? INT32_MIN : INT32_MAX;
    upload_data(&dev, &data, FP8_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    for (int64_t row = 0; row < 10; row++)
        for (int64_t p = 0; p < fp8_limit(&data, row / 2, row % 2); p++)
            assert_true(fp8_image_value(&data, image, row, p) == 0.0);
    check_image(&data, image, NULL);
    free(image);
    fp8_device_free(&dev);
    fp8_data_free(&data);
}

/* K holds a single 1.0 per token: logit = s * sum_h w_h * relu(q[h, p % D]), which float32 holds exactly in any order
 * of summation. Wrong tokens, dims, scales or blocks cannot hide. */
static void test_one_hot_keys_have_closed_forms(void **state) {
    (void)state;
    for (int dim = 32; dim <= 128; dim *= 2)
        for (int block = 16; block <= 256; block *= 2)
            for (int heads = 8; heads <= 64; heads += 56) {
                struct fp8_case c = {.batch = 4,
                                     .next_n = 1 + dim / 64,
                                     .heads = heads,
                                     .head_dim = dim,
                                     .block_size = block,
                                     .max_len = 1000,
                                     .min_len = 300,
                                     .values = FP8_VALUES_ONE_HOT};
                struct fp8_data data;
                struct fp8_device dev;
                make_data(&data, &c);
                upload_data(&dev, &data, FP8_PLAIN, NULL);
                uint8_t *image = call_and_download(&dev);
                for (int64_t row = 0; row < 4 * c.next_n; row++) {
                    int64_t b = row / c.next_n, t = row % c.next_n;
                    const uint8_t *q = data.q + b * data.q_request_stride + t * data.q_slot_stride;
                    for (int64_t p = 0; p < fp8_limit(&data, b, t); p++) {
                        double expected = 0;
                        for (int h = 0; h < heads; h++) {
                            double x = (double)fp8_e4m3(q[h * dim + p % dim]);
                            expected += (double)data.weights[row * data.weights_stride + h] * (x > 0 ? x : 0);
                        }
                        expected *= ldexp(1, (int)(7 * p % 17) - 8);
                        double got = fp8_image_value(&data, image, row, p);
                        if (got != expected)
                            fail_msg("H=%d D=%d block=%d b=%lld t=%lld p=%lld: got %.9g, expected %.9g", heads, dim,
                                     block, (long long)b, (long long)t, (long long)p, got, expected);
                    }
                }
                free(image);
                fp8_device_free(&dev);
                fp8_data_free(&data);
            }
}

/* A NaN in one key, scale or weight shows exactly where the formula has it. */
static void test_nan_goes_where_the_formula_says(void **state) {
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        struct fp8_case c = {.batch = 3,
                             .next_n = 2,
                             .heads = 64,
                             .head_dim = 128,
                             .block_size = 64,
                             .min_len = 300,
                             .max_len = 600,
                             .out_dtype = dtype ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32};
        struct fp8_data data;
        struct fp8_device dev;
        make_data(&data, &c);
        data.kv[data.tables[1] * data.kv_stride + 5 * 128 + 77] = 0x7f; /* request 0, token 69 */
        float nan_scale = NAN;
        memcpy(data.kv + data.tables[data.table_stride] * data.kv_stride + 64 * 128 + 9 * 4, &nan_scale, 4);
        data.q[2 * data.q_request_stride + 3 * 128 + 1] = 0xff; /* request 2, slot 0: its whole row */
        data.weights[5 * data.weights_stride + 10] = NAN;       /* request 2, slot 1: likewise */
        upload_data(&dev, &data, FP8_PLAIN, NULL);
        uint8_t *image = call_and_download(&dev);
        struct fp8_check_options options = {.hostile_values = true};
        check_image(&data, image, &options);
        assert_true(isnan(fp8_image_value(&data, image, 0, 69)) && isnan(fp8_image_value(&data, image, 1, 69)));
        assert_false(isnan(fp8_image_value(&data, image, 0, 68)) || isnan(fp8_image_value(&data, image, 0, 70)));
        assert_true(isnan(fp8_image_value(&data, image, 2, 9)));
        assert_true(isnan(fp8_image_value(&data, image, 4, 0)) && isnan(fp8_image_value(&data, image, 5, 299)));
        free(image);
        fp8_device_free(&dev);
        fp8_data_free(&data);
    }
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_beyond_2_and_4_gib),
        cmocka_unit_test(test_packed_pool_of_another_stride),
        cmocka_unit_test(test_output_rows_beyond_2_gib),
        cmocka_unit_test(test_hostile_block_ids),
        cmocka_unit_test(test_a_table_of_nothing_but_hostile_ids),
        cmocka_unit_test(test_one_hot_keys_have_closed_forms),
        cmocka_unit_test(test_nan_goes_where_the_formula_says),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
