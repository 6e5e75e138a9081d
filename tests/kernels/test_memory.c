/* SPDX-License-Identifier: MIT
 *
 * Addresses: pools and outputs beyond 32-bit offsets, hostile block ids, and the layout of a block by closed forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static bool is_fp4(void) {
    return fx.variant == ATTNS_VARIANT_FP4;
}

static int smallest_head_dim(void) {
    return is_fp4() ? 64 : 32;
}

/* One request of `count` blocks that lie `stride` bytes apart in a pool that holds nothing else: the bits must be those
 * of a compact pool. */
static void scattered_blocks(int64_t stride, const int32_t *ids, int count, int block_size) {
    int32_t len = count * block_size, highest = 0;
    struct logits_case c = {
        .batch = 1, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = block_size, .lens = &len};
    struct logits_data data;
    struct logits_device dev;
    struct gpu_buffer pool;
    make_data(&data, &c);
    for (int i = 0; i < count; i++)
        highest = ids[i] > highest ? ids[i] : highest;
    size_t bytes = (size_t)highest * (size_t)stride + (size_t)data.block_bytes;
    if (bytes + (64u << 20) > free_memory()) {
        print_message("skipped: needs %zu MiB of device memory\n", bytes >> 20);
        logits_data_free(&data);
        skip();
    }
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *compact = call_and_download(&dev);
    check_image(&data, compact, NULL);

    assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &pool, bytes, GPU_FLUSH_END));
    must(fx.gpu.memset_d8(pool.ptr, 0xff, bytes)); /* NaN, values or scales, wherever a wrong offset leads */
    for (int i = 0; i < count; i++)
        must(fx.gpu.memcpy_htod(pool.ptr + (size_t)ids[i] * (size_t)stride, data.kv + data.tables[i] * data.kv_stride,
                                (size_t)data.block_bytes));
    must(fx.gpu.memcpy_htod(dev.tables.ptr, ids, (size_t)count * 4));
    dev.tensors.kv.data = (void *)(uintptr_t)pool.ptr;
    dev.tensors.kv_shape[0] = (int64_t)highest + 1;
    dev.tensors.kv_strides[0] = stride;
    assert_true(logits_poison(&dev, fx.stream));
    uint8_t *scattered = call_and_download(&dev);
    assert_memory_equal(compact, scattered, data.out_image_bytes);
    free(compact);
    free(scattered);
    gpu_buffer_free(&fx.gpu, &pool);
    logits_device_free(&dev);
    logits_data_free(&data);
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
    struct logits_case c = {.batch = B,
                            .next_n = 2,
                            .heads = 64,
                            .head_dim = 128,
                            .block_size = 64,
                            .min_len = LEN,
                            .max_len = LEN,
                            .out_dtype = ATTNS_DTYPE_F32,
                            .bare_out = true};
    size_t bytes = (size_t)(ROWS - 1) * STRIDE * 4 + SHOWN * 4;
    if (bytes + (512u << 20) > free_memory()) {
        print_message("skipped: needs %zu MiB of device memory\n", bytes >> 20);
        skip();
    }
    struct logits_data data;
    struct logits_device dev;
    struct gpu_buffer out;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *compact = call_and_download(&dev);
    struct logits_check_options options = {.max_work = 1e9};
    check_image(&data, compact, &options);

    assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &out, bytes, GPU_FLUSH_END));
    must(fx.gpu.memset_d32(out.ptr, LOGITS_POISON, bytes / 4));
    must(fx.gpu.ctx_synchronize());
    dev.tensors.out.data = (void *)(uintptr_t)out.ptr;
    dev.tensors.out_strides[0] = STRIDE;
    assert_int_equal(logits_queue(&dev, fx.ctx, fx.stream), ATTNS_OK);
    assert_int_equal(gpu_wait_stream(&fx.gpu, fx.stream, 20), CUDA_SUCCESS);
    uint32_t row_bits[SHOWN], before[SHOWN];
    for (int row = 0; row < ROWS; row++) {
        size_t at = (size_t)row * STRIDE * 4;
        int64_t limit = LEN - 1 + row % 2;
        must(fx.gpu.memcpy_dtoh(row_bits, out.ptr + at, sizeof row_bits));
        if (memcmp(row_bits, compact + logits_image_at(&data, row, 0), (size_t)limit * 4))
            fail_msg("row %d (byte %zu of the output) is wrong", row, at);
        for (int64_t p = limit; p < SHOWN; p++)
            assert_int_equal(row_bits[p], LOGITS_POISON);
        if (row > 0) {
            must(fx.gpu.memcpy_dtoh(before, out.ptr + at - sizeof before, sizeof before));
            for (int p = 0; p < SHOWN; p++)
                assert_int_equal(before[p], LOGITS_POISON);
        }
    }
    free(compact);
    gpu_buffer_free(&fx.gpu, &out);
    logits_device_free(&dev);
    logits_data_free(&data);
}

/* Blocks out of range read as zeros, whatever lies around the pool. */
static void test_hostile_block_ids(void **state) {
    (void)state;
    struct rng r = rng_make(next_seed());
    for (int i = 0; i < 30; i++) {
        struct logits_case c = {.batch = 9,
                                .next_n = 1 + i % 4,
                                .heads = 32,
                                .head_dim = i % 3 ? 32 << i % 3 : smallest_head_dim(),
                                .block_size = 16 << i % 5,
                                .max_len = 900,
                                .bare_out = true,
                                .kv_pad_bytes = i % 2 ? 112 : 0,
                                .clean = i % 7 == 0};
        struct logits_data data;
        struct logits_device dev;
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
        upload_data(&dev, &data, i % 3 == 0 ? LOGITS_GUARD_START : LOGITS_GUARD_END, NULL);
        uint8_t *image = call_and_download(&dev);
        struct logits_check_options options = {.max_work = 5e8};
        check_image(&data, image, &options);
        free(image);
        logits_device_free(&dev);
        logits_data_free(&data);
    }
}

static void test_a_table_of_nothing_but_hostile_ids(void **state) {
    (void)state;
    struct logits_case c = {.batch = 5, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700};
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    for (size_t k = 0; k < data.tables_bytes / 4; k++)
        data.tables[k] = k % 2 ? INT32_MIN : INT32_MAX;
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    for (int64_t row = 0; row < 10; row++)
        for (int64_t p = 0; p < logits_limit(&data, row / 2, row % 2); p++)
            assert_true(logits_image_value(&data, image, row, p) == 0.0);
    check_image(&data, image, NULL);
    free(image);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static double rounded_to(int32_t dtype, double x) {
    return dtype == ATTNS_DTYPE_F16    ? half_to_double(double_to_half(x))
           : dtype == ATTNS_DTYPE_BF16 ? bfloat_to_double(double_to_bfloat(x))
                                       : x;
}

/* K holds a single 1.0 per token: logit = s * sum_h w_h * relu(q[h, p % D]), which float32 holds exactly in any order
 * of summation, and a 16-bit score after one rounding to nearest. Wrong tokens, dims, scales or blocks cannot hide, nor
 * scores that are cut. */
static void check_one_hot(struct logits_case c) {
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    for (int64_t row = 0; row < c.batch * c.next_n; row++) {
        int64_t b = row / c.next_n, t = row % c.next_n;
        for (int64_t p = 0; p < logits_limit(&data, b, t); p++) {
            double expected = 0;
            for (int h = 0; h < c.heads; h++) {
                float q[128];
                logits_q(&data, b, t, h, q);
                double x = (double)q[p % c.head_dim] *
                           logits_q_scale(&data, b, t, h, (int)(p % c.head_dim / 32));
                expected += (double)data.weights[row * data.weights_stride + h] * (x > 0 ? x : 0);
            }
            expected = rounded_to(c.out_dtype, expected * ldexp(1, (int)(7 * p % 17) - 8));
            double got = logits_image_value(&data, image, row, p);
            if (got != expected) {
                char text[256];
                fail_msg("%s: b=%lld t=%lld p=%lld: got %.9g, expected %.9g",
                         logits_case_text(&data.c, text, sizeof text), (long long)b, (long long)t, (long long)p, got,
                         expected);
            }
        }
    }
    free(image);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_one_hot_keys_have_closed_forms(void **state) {
    (void)state;
    for (int dim = smallest_head_dim(); dim <= 128; dim *= 2)
        for (int block = 16; block <= 256; block *= 2) {
            struct logits_case c = {.batch = 4,
                                    .next_n = 1 + dim / 64,
                                    .heads = 8,
                                    .head_dim = dim,
                                    .block_size = block,
                                    .max_len = 1000,
                                    .min_len = 300,
                                    .sf_interleaved = is_fp4() && block == 128,
                                    .out_dtype = ATTNS_DTYPE_F32,
                                    .values = LOGITS_VALUES_ONE_HOT};
            check_one_hot(c);
            c.heads = 64;
            c.sf_interleaved = false;
            check_one_hot(c);
            c.out_dtype = block == 16 || block == 64 ? ATTNS_DTYPE_F16 : ATTNS_DTYPE_BF16;
            check_one_hot(c);
        }
}

/* Into request 0, token 69; request 1, token 9; request 2: slot 0, its whole row, and slot 1 likewise. fp4's numbers
 * are NaN through their scales alone. */
static void put_nans(struct logits_data *data) {
    const float nan_scale = NAN;
    const int64_t first = data->tables[1], second = data->tables[data->table_stride];
    if (is_fp4()) {
        *fp4_k_scale(data, first, 5, 2) = 0xff;
        *fp4_k_scale(data, second, 9, 0) = 0xff;
        data->q_sf[2 * data->q_sf_request_stride + 3] |= 0xff00;
    } else {
        data->kv[first * data->kv_stride + 5 * 128 + 77] = 0x7f;
        memcpy(data->kv + second * data->kv_stride + 64 * 128 + 9 * 4, &nan_scale, 4);
        data->q[2 * data->q_request_stride + 3 * 128 + 1] = 0xff;
    }
    data->weights[5 * data->weights_stride + 10] = NAN;
}

/* A NaN in one key, scale or weight shows exactly where the formula has it. */
static void test_nan_goes_where_the_formula_says(void **state) {
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        struct logits_case c = {.batch = 3,
                                .next_n = 2,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .min_len = 300,
                                .max_len = 600,
                                .out_dtype = dtype ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32};
        struct logits_data data;
        struct logits_device dev;
        make_data(&data, &c);
        put_nans(&data);
        upload_data(&dev, &data, LOGITS_PLAIN, NULL);
        uint8_t *image = call_and_download(&dev);
        struct logits_check_options options = {.hostile_values = true};
        check_image(&data, image, &options);
        assert_true(isnan(logits_image_value(&data, image, 0, 69)) && isnan(logits_image_value(&data, image, 1, 69)));
        assert_false(isnan(logits_image_value(&data, image, 0, 68)) || isnan(logits_image_value(&data, image, 0, 70)));
        assert_true(isnan(logits_image_value(&data, image, 2, 9)));
        assert_true(isnan(logits_image_value(&data, image, 4, 0)) && isnan(logits_image_value(&data, image, 5, 299)));
        free(image);
        logits_device_free(&dev);
        logits_data_free(&data);
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
