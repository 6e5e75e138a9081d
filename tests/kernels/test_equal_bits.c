/* SPDX-License-Identifier: MIT
 *
 * A row's bits follow from its own inputs alone: not from next_n, the batch around it, its place, the schedule, the
 * number of shares, the options or the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Rows [0, rows) of b against rows map[row] of a (NULL: the same numbers). */
static void rows_must_agree(const struct logits_data *a, const uint8_t *image_a, const int *map,
                            const struct logits_data *b, const uint8_t *image_b, const char *what) {
    int rows = b->c.batch * b->c.next_n;
    for (int row = 0; row < rows; row++) {
        int other = map ? map[row / b->c.next_n] * b->c.next_n + row % b->c.next_n : row;
        int64_t column = logits_rows_differ(b, image_b, row, a, image_a, other);
        if (column < 0)
            continue;
        char text[400];
        fail_msg("%s: row %d differs from row %d at column %lld (%.9g, %.9g): %s", what, row, other, (long long)column,
                 logits_image_value(b, image_b, row, column), logits_image_value(a, image_a, other, column),
                 logits_case_text(&a->c, text, sizeof text));
    }
}

/* Calls `data` over the pool of `pool` and compares with the image of `base`. */
static void must_agree(const struct logits_data *base, const uint8_t *base_image, const struct logits_device *pool,
                       const struct logits_data *data, const int *map, const char *what) {
    struct logits_device dev;
    upload_data(&dev, data, LOGITS_PLAIN, pool);
    uint8_t *image = call_and_download(&dev);
    rows_must_agree(base, base_image, map, data, image, what);
    free(image);
    logits_device_free(&dev);
}

static void compare_with_flattened(struct logits_case c) {
    struct logits_data data, flat;
    struct logits_device dev;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    struct logits_check_options options = {.max_work = 1e8};
    check_image(&data, image, &options);
    assert_true(logits_data_flatten(&flat, &data));
    must_agree(&data, image, &dev, &flat, NULL, "flattened to next_n 1");
    free(image);
    logits_data_free(&flat);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_every_next_n_equals_the_flattened_call(void **state) {
    (void)state;
    struct logits_case cases[64];
    size_t count = 0;
    const int max_len = software_gpu() ? 600 : 1100; /* with few SMs, rings of stages are gone round even so */
    for (int n = 1; n <= 8; n++)
        for (int heads = 32; heads <= 64; heads += 32)
            for (int block = 32; block <= 64; block += 32) {
                cases[count++] = (struct logits_case){.batch = 7,
                                                      .next_n = n,
                                                      .heads = heads,
                                                      .head_dim = 128,
                                                      .block_size = block,
                                                      .max_len = max_len,
                                                      .values = LOGITS_VALUES_ALL_CODES};
            }
    compile_ahead(cases, count);
    for (size_t i = 0; i < count; i++) {
        compare_with_flattened(cases[i]);
        cases[i].per_slot_lens = true;
        compare_with_flattened(cases[i]);
    }
}

static void test_other_shapes_equal_the_flattened_call(void **state) {
    (void)state;
    static const attns_dtype f16 = ATTNS_DTYPE_F16;
    struct logits_case cases[] = {
        {.batch = 5, .next_n = 2, .heads = 8, .head_dim = 128, .block_size = 64, .max_len = 700},
        {.batch = 5, .next_n = 8, .heads = 8, .head_dim = 32, .block_size = 16, .max_len = 700},
        {.batch = 5, .next_n = 3, .heads = 40, .head_dim = 64, .block_size = 256, .max_len = 700},
        {.batch = 5, .next_n = 5, .heads = 72, .head_dim = 128, .block_size = 64, .max_len = 700},
        {.batch = 5, .next_n = 4, .heads = 96, .head_dim = 64, .block_size = 128, .max_len = 700},
        {.batch = 5, .next_n = 2, .heads = 128, .head_dim = 128, .block_size = 64, .max_len = 700},
        {.batch = 5, .next_n = 7, .heads = 128, .head_dim = 128, .block_size = 64, .max_len = 700},
        {.batch = 5, .next_n = 3, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700, .acc_dtype = f16},
        {.batch = 5, .next_n = 4, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700, .epi_dtype = f16},
        {.batch = 5, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700, .out_dtype = f16},
        {.batch = 5, .next_n = 3, .heads = 64, .head_dim = 64, .block_size = 16, .max_len = 700},
    };
    const size_t count = keep_existing(cases, sizeof cases / sizeof *cases);
    compile_ahead(cases, count);
    for (size_t i = 0; i < count; i++)
        compare_with_flattened(cases[i]);
}

static void test_batch_order_schedule_and_options_change_nothing(void **state) {
    (void)state;
    static const int32_t lens[] = {1500, 0, 63, 64, 65, 3000, 1, 640, 129, 2222, 5};
    enum { B = 11 };
    for (int n = 1; n <= 4; n++) {
        struct logits_case c = {.batch = B,
                                .next_n = n,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .lens = lens,
                                .values = LOGITS_VALUES_ALL_CODES};
        struct logits_data base, other;
        struct logits_device dev;
        make_data(&base, &c);
        upload_data(&dev, &base, LOGITS_PLAIN, NULL);
        uint8_t *image = call_and_download(&dev);
        struct logits_check_options options = {.max_work = 4e8};
        check_image(&base, image, &options);

        for (int round = 0; round < 5; round++)
            must_agree(&base, image, &dev, &base, NULL, "run again");
        for (int b = 0; b < B; b++) {
            assert_true(logits_data_subset(&other, &base, &b, 1, NULL));
            must_agree(&base, image, &dev, &other, &b, "alone");
            logits_data_free(&other);
        }
        struct rng r = rng_make(next_seed());
        for (int round = 0; round < 6; round++) {
            int chosen[300], count = round < 3 ? B : round < 5 ? 40 : 300;
            for (int i = 0; i < count; i++)
                chosen[i] = (int)rng_below(&r, B);
            struct logits_case like = {
                .out_pad = round, .table_pad = round, .q_request_pad = 16 * round, .clean = round & 1};
            assert_true(logits_data_subset(&other, &base, chosen, count, &like));
            must_agree(&base, image, &dev, &other, chosen, "in another batch");
            logits_data_free(&other);
        }
        static const int identity[B] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        static const int shares[] = {1, 2, 7, 78, 131, 132, 133, 500};
        for (int i = 0; i < 8; i++) {
            struct logits_case like = {.num_shares = shares[i]};
            assert_true(logits_data_subset(&other, &base, identity, B, &like));
            must_agree(&base, image, &dev, &other, NULL, "with a schedule");
            logits_data_free(&other);
        }
        for (int i = 0; i < 4; i++) {
            struct logits_case like = {
                .clean = i & 1, .pdl = i & 2, .out_offset = i, .out_extra = 3 * i, .table_extra = i};
            assert_true(logits_data_subset(&other, &base, identity, B, &like));
            must_agree(&base, image, &dev, &other, NULL, "with other options");
            logits_data_free(&other);
        }
        free(image);
        logits_device_free(&dev);
        logits_data_free(&base);
    }
}

/* A call that may have much work uses another kernel, where there is one: the same lengths, with a narrow and a wide
 * table. */
static void test_much_work_changes_nothing(void **state) {
    (void)state;
    static const attns_dtype f16 = ATTNS_DTYPE_F16;
    enum { B = 5 };
    static const int identity[B] = {0, 1, 2, 3, 4};
    struct logits_case cases[] = {
        {.next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1500},
        {.next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1500, .num_shares = 7},
        {.next_n = 1, .heads = 72, .head_dim = 128, .block_size = 128, .max_len = 900, .clean = true},
        {.next_n = 4, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1500},
        {.next_n = 2, .heads = 104, .head_dim = 128, .block_size = 64, .max_len = 900, .num_shares = 7, .clean = true},
        {.next_n = 8, .heads = 16, .head_dim = 64, .block_size = 64, .max_len = 700, .per_slot_lens = true},
        {.next_n = 3, .heads = 40, .head_dim = 32, .block_size = 256, .max_len = 900, .acc_dtype = f16, .pdl = true},
    };
    const size_t count = keep_existing(cases, sizeof cases / sizeof *cases);
    for (size_t i = 0; i < count; i++) {
        struct logits_case *const c = &cases[i];
        c->batch = B;
        c->values = c->acc_dtype ? LOGITS_VALUES_MODERATE : LOGITS_VALUES_ALL_CODES;
        c->max_seq_len = (int64_t)64 * (96 * fx.gpu.num_sms / B + 1); /* 96 tiles for each SM are much */
        struct logits_case like = {.num_shares = c->num_shares, .clean = c->clean, .pdl = c->pdl};
        like.table_extra = c->max_seq_len / c->block_size + 1;
        attns_context *ctx = make_context(NULL, NULL, NULL);
        struct logits_data little, much;
        struct logits_device little_dev, much_dev;
        make_data(&little, c);
        assert_true(logits_data_subset(&much, &little, identity, B, &like));
        upload_data(&little_dev, &little, LOGITS_PLAIN, NULL);
        upload_data(&much_dev, &much, LOGITS_PLAIN, &little_dev);
        const size_t num_kernels = logits_num_kernels(ctx, &little.c);
        attns_counters ahead, counters;
        attns_get_counters(ctx, &ahead);
        assert_int_equal(logits_queue(&little_dev, ctx, fx.stream), ATTNS_OK);
        uint8_t *little_image = logits_download(&little_dev, fx.stream);
        assert_int_equal(logits_queue(&much_dev, ctx, fx.stream), ATTNS_OK);
        uint8_t *much_image = logits_download(&much_dev, fx.stream);
        assert_non_null(little_image);
        assert_non_null(much_image);
        attns_get_counters(ctx, &counters);
        assert_int_equal(counters.compiles, ahead.compiles); /* all were compiled ahead */
        assert_int_equal(counters.module_loads, num_kernels + (c->num_shares ? 1 : 0));
        struct logits_check_options options = {.max_work = 1e8};
        check_image(&little, little_image, &options);
        rows_must_agree(&little, little_image, NULL, &much, much_image, "with much work");
        free(little_image);
        free(much_image);
        logits_device_free(&much_dev);
        logits_device_free(&little_dev);
        logits_data_free(&much);
        logits_data_free(&little);
        attns_context_destroy(ctx);
    }
}

/* The same content at other block ids, and with another distance between blocks. */
static void test_place_in_the_pool_changes_nothing(void **state) {
    (void)state;
    struct logits_case c = {
        .batch = 6, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .seed = next_seed()};
    struct logits_data a, b;
    struct logits_device dev_a, dev_b;
    make_data(&a, &c);
    c.kv_pad_bytes = 16 * 77;
    make_data(&b, &c); /* the same seed: the same numbers */
    assert_int_equal(a.num_blocks, b.num_blocks);
    upload_data(&dev_a, &a, LOGITS_PLAIN, NULL);
    upload_data(&dev_b, &b, LOGITS_PLAIN, NULL);
    uint8_t *image_a = call_and_download(&dev_a), *image_b = call_and_download(&dev_b);
    check_image(&a, image_a, NULL);
    rows_must_agree(&a, image_a, NULL, &b, image_b, "blocks further apart");

    /* Reverse the pool of b and its table. */
    uint8_t *moved = malloc(b.kv_bytes);
    assert_non_null(moved);
    memcpy(moved, b.kv, b.kv_bytes);
    for (int64_t id = 0; id < b.num_blocks; id++)
        memcpy(b.kv + (b.num_blocks - 1 - id) * b.kv_stride, moved + id * b.kv_stride, (size_t)b.block_bytes);
    for (size_t i = 0; i < b.tables_bytes / 4; i++)
        if (b.tables[i] >= 0 && b.tables[i] < b.num_blocks)
            b.tables[i] = (int32_t)(b.num_blocks - 1 - b.tables[i]);
    logits_device_free(&dev_b);
    upload_data(&dev_b, &b, LOGITS_PLAIN, NULL);
    free(image_b);
    image_b = call_and_download(&dev_b);
    rows_must_agree(&a, image_a, NULL, &b, image_b, "other block ids");
    free(moved);
    free(image_a);
    free(image_b);
    logits_device_free(&dev_a);
    logits_device_free(&dev_b);
    logits_data_free(&a);
    logits_data_free(&b);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_next_n_equals_the_flattened_call),
        cmocka_unit_test(test_other_shapes_equal_the_flattened_call),
        cmocka_unit_test(test_batch_order_schedule_and_options_change_nothing),
        cmocka_unit_test(test_much_work_changes_nothing),
        cmocka_unit_test(test_place_in_the_pool_changes_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
