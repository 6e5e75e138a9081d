/* SPDX-License-Identifier: MIT
 *
 * Lengths, causal limits, table and output widths: what is read and what is written, to the element. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Queues the call inside a capture and replays the graph once. */
static uint8_t *captured_call(const struct logits_device *dev) {
    CUgraph graph;
    CUgraphExec exec;
    must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    attns_status status = logits_queue(dev, fx.ctx, fx.stream);
    must(fx.gpu.stream_end_capture(fx.stream, &graph));
    assert_int_equal(status, ATTNS_OK);
    must(fx.gpu.graph_instantiate(&exec, graph, 0));
    must(fx.gpu.graph_launch(exec, fx.stream));
    uint8_t *image = logits_download(dev, fx.stream);
    assert_non_null(image);
    must(fx.gpu.graph_exec_destroy(exec));
    must(fx.gpu.graph_destroy(graph));
    return image;
}

static void test_table_of_natural_width_ends_at_a_guard_page(void **state) {
    (void)state;
    static const int lengths[] = {1, 33, 65, 257, 385, 1025}, blocks[] = {16, 32, 64, 128, 256};
    for (int n = 1; n <= 3; n += 2)
        for (int b = 0; b < 5; b++)
            for (int i = 0; i < 6; i++) {
                struct logits_case c = {.batch = 3,
                                        .next_n = n,
                                        .heads = 64,
                                        .head_dim = 128,
                                        .block_size = blocks[b],
                                        .min_len = lengths[i],
                                        .max_len = lengths[i],
                                        .bare_out = true};
                struct logits_data data;
                struct logits_device dev;
                make_data(&data, &c);
                assert_int_equal(data.table_width, attns_min_block_table_width(lengths[i], blocks[b]));
                upload_data(&dev, &data, LOGITS_GUARD_END, NULL);
                uint8_t *eager = call_and_download(&dev);
                check_image(&data, eager, NULL);
                assert_true(logits_poison(&dev, fx.stream));
                must(fx.gpu.stream_synchronize(fx.stream));
                uint8_t *captured = captured_call(&dev);
                assert_memory_equal(eager, captured, data.out_image_bytes);
                free(eager);
                free(captured);
                logits_device_free(&dev);
                logits_data_free(&data);
            }
}

static void test_output_as_wide_as_the_longest_request(void **state) {
    (void)state;
    static const int widths[] = {257, 300, 513, 4097, 1, 63};
    static const int blocks[] = {64, 64, 128, 64, 64, 16};
    static const attns_dtype outs[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    for (int i = 0; i < 6; i++)
        for (int o = 0; o < 3; o++) {
            struct logits_case c = {.batch = 4,
                                    .next_n = 1 + i % 3,
                                    .heads = 64,
                                    .head_dim = 128,
                                    .block_size = blocks[i],
                                    .min_len = widths[i],
                                    .max_len = widths[i],
                                    .out_dtype = outs[o]};
            struct logits_data data;
            make_data(&data, &c);
            assert_int_equal(data.out_stride, widths[i]); /* no column to spare between rows */
            logits_data_free(&data);
            run_case(&c, LOGITS_PLAIN);
            run_case(&c, LOGITS_GUARD_END);
            c.clean = true;
            run_case(&c, LOGITS_GUARD_END);
        }
}

/* The number of leading written elements of a row; fails if a written one follows an unwritten one. */
static int64_t written(const struct logits_data *data, const uint8_t *image, int64_t row) {
    uint8_t *poison = logits_image_make(data);
    assert_non_null(poison);
    int64_t count = 0;
    bool ended = false;
    for (int64_t p = 0; p < data->out_width; p++) {
        size_t at = logits_image_at(data, row, p);
        bool touched = memcmp(image + at, poison + at, data->out_element_bytes) != 0;
        assert_false(touched && ended);
        ended = !touched;
        count += touched;
    }
    free(poison);
    return count;
}

/* Limits written out by hand, not taken from the harness. */
static void test_causal_limit_of_every_slot(void **state) {
    (void)state;
    static const struct {
        int len, next_n, sees[8];
    } expected[] = {
        {8, 4, {5, 6, 7, 8}},  {2, 4, {0, 0, 1, 2}},
        {4, 4, {1, 2, 3, 4}},  {3, 4, {0, 1, 2, 3}},
        {1, 2, {0, 1}},        {1, 8, {0, 0, 0, 0, 0, 0, 0, 1}},
        {64, 2, {63, 64}},     {65, 2, {64, 65}},
        {66, 3, {64, 65, 66}}, {130, 5, {126, 127, 128, 129, 130}},
        {0, 4, {0, 0, 0, 0}},  {-7, 3, {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int32_t lens[3] = {200, expected[i].len, 77};
        struct logits_case c = {.batch = 3,
                                .next_n = expected[i].next_n,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .lens = lens,
                                .out_extra = 30};
        struct logits_data data;
        struct logits_device dev;
        make_data(&data, &c);
        upload_data(&dev, &data, LOGITS_PLAIN, NULL);
        uint8_t *image = call_and_download(&dev);
        for (int t = 0; t < c.next_n; t++)
            assert_int_equal(written(&data, image, c.next_n + t), expected[i].sees[t]);
        check_image(&data, image, NULL);
        free(image);
        logits_device_free(&dev);
        logits_data_free(&data);
    }
}

static void test_per_slot_lengths_in_any_order(void **state) {
    (void)state;
    static const int32_t lens[] = {100, 7, 0, 300, 300, 299, 1, 64, 0, 0, 0, 0};
    for (int clean = 0; clean < 2; clean++) {
        struct logits_case c = {.batch = 3,
                                .next_n = 4,
                                .heads = 32,
                                .head_dim = 128,
                                .block_size = 32,
                                .lens = lens,
                                .per_slot_lens = true,
                                .out_extra = 5,
                                .clean = clean};
        struct logits_data data;
        struct logits_device dev;
        make_data(&data, &c);
        upload_data(&dev, &data, LOGITS_PLAIN, NULL);
        uint8_t *image = call_and_download(&dev);
        for (int64_t row = 0; row < 12; row++)
            assert_int_equal(written(&data, image, row), clean ? 300 : lens[row]);
        check_image(&data, image, NULL);
        free(image);
        logits_device_free(&dev);
        logits_data_free(&data);
    }
}

static void test_strided_lengths(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct logits_case c = {.batch = 17,
                                .next_n = 4,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .max_len = 500,
                                .per_slot_lens = i % 2 == 0,
                                .lens_stride = i % 3 == 0 ? 1 : i % 3 + 1,
                                .num_shares = i % 4 == 3 ? 132 : 0};
        /* a [B, 4] slice of [B, 8], or of something wider */
        c.lens_request_stride = c.per_slot_lens ? 8 * c.lens_stride : 0;
        run_case(&c, LOGITS_PLAIN);
        run_case(&c, LOGITS_GUARD_END);
    }
}

/* Two calls in flight at once on two streams, each with lens as a slice. */
static void test_strided_lengths_under_concurrency(void **state) {
    (void)state;
    struct logits_case c = {.batch = 60,
                            .next_n = 4,
                            .heads = 64,
                            .head_dim = 128,
                            .block_size = 64,
                            .max_len = 1500,
                            .per_slot_lens = true,
                            .lens_request_stride = 8};
    int rounds = 50;
    if (software_gpu()) { /* slow, but all orders of the two streams' work are as likely there */
        c.batch = 9;
        c.max_len = 500;
        rounds = 4;
    }
    struct logits_data data[2];
    struct logits_device dev[2];
    CUstream streams[2] = {fx.stream, NULL};
    must(fx.gpu.stream_create(&streams[1], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        make_data(&data[i], &c);
        upload_data(&dev[i], &data[i], LOGITS_PLAIN, NULL);
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(logits_queue(&dev[i], fx.ctx, streams[i]), ATTNS_OK);
    for (int i = 0; i < 2; i++) {
        struct logits_check_options options = {.max_work = 5e8};
        uint8_t *image = logits_download(&dev[i], streams[i]);
        assert_non_null(image);
        check_image(&data[i], image, &options);
        free(image);
        logits_device_free(&dev[i]);
        logits_data_free(&data[i]);
    }
    must(fx.gpu.stream_destroy(streams[1]));
}

static void test_lengths_beyond_the_table_are_clamped(void **state) {
    (void)state;
    static int32_t lens[16];
    for (int b = 0; b < 16; b++)
        lens[b] = 4096;
    for (int block = 16; block <= 64; block *= 2)
        for (int n = 1; n <= 2; n++)
            for (int clean = 0; clean < 2; clean++) {
                struct logits_case c = {.batch = 16,
                                        .next_n = n,
                                        .heads = 64,
                                        .head_dim = 128,
                                        .block_size = block,
                                        .lens = lens,
                                        .max_seq_len = 4096,
                                        .table_width = 2048 / block, /* half of what the lengths ask for */
                                        .num_shares = block == 32 ? 132 : 0,
                                        .clean = clean};
                struct logits_check_options options = {.max_work = 5e8};
                run_case_with(&c, LOGITS_GUARD_END, &options);
            }
}

static void test_hostile_lengths(void **state) {
    (void)state;
    const int32_t longest = software_gpu() ? 300 : 700;
    const int32_t values[] = {INT32_MIN,   INT32_MIN + 1, -65,           -1,       0, 1, longest,
                              longest + 1, 1 << 30,       INT32_MAX - 1, INT32_MAX};
    struct rng r = rng_make(next_seed());
    for (int i = 0; i < 24; i++) {
        int32_t lens[50 * 8];
        for (int k = 0; k < 400; k++)
            lens[k] = rng_below(&r, 3) ? values[rng_below(&r, 11)] : (int32_t)rng_range(&r, -10, longest + 20);
        struct logits_case c = {.batch = 50,
                                .next_n = 1 + i % 8,
                                .heads = 32,
                                .head_dim = 64,
                                .block_size = i % 2 ? 64 : 16,
                                .lens = lens,
                                .per_slot_lens = i % 3 == 0,
                                .max_seq_len = longest,
                                .table_width = i % 4 == 1 ? longest / 75 : 0,
                                .num_shares = i % 5 == 2 ? 132 : 0,
                                .clean = i % 2 == 0};
        struct logits_check_options options = {.max_work = 3e8};
        run_case_with(&c, i % 6 < 3 ? LOGITS_GUARD_END : LOGITS_PLAIN, &options);
    }
}

/* On: -inf from each row's limit to max_seq_len. Off: the same bits where logits are, nothing elsewhere. */
static void test_clean_fills_and_changes_no_logit(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct logits_case c = {.batch = 20,
                                .next_n = 1 + i % 4,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .max_len = 600,
                                .max_seq_len = i % 2 ? 9001 : 601,
                                .out_extra = i,
                                .out_pad = i % 3,
                                .out_offset = i % 5,
                                .per_slot_lens = i >= 5,
                                .num_shares = i % 4 == 2 ? 132 : 0,
                                .out_dtype = i % 3 == 0   ? ATTNS_DTYPE_F32
                                             : i % 3 == 1 ? ATTNS_DTYPE_F16
                                                          : ATTNS_DTYPE_BF16,
                                .clean = true,
                                .seed = next_seed()};
        struct logits_data on, off;
        struct logits_device dev_on, dev_off;
        make_data(&on, &c);
        c.clean = false;
        make_data(&off, &c);
        upload_data(&dev_on, &on, LOGITS_PLAIN, NULL);
        upload_data(&dev_off, &off, LOGITS_PLAIN, NULL);
        uint8_t *cleaned = call_and_download(&dev_on), *plain = call_and_download(&dev_off);
        struct logits_check_options options = {.max_work = 3e8};
        check_image(&on, cleaned, &options);
        check_image(&off, plain, &options);
        for (int64_t row = 0; row < 20 * c.next_n; row++)
            assert_int_equal(logits_rows_differ(&on, cleaned, row, &off, plain, row), -1);
        free(cleaned);
        free(plain);
        logits_device_free(&dev_on);
        logits_device_free(&dev_off);
        logits_data_free(&on);
        logits_data_free(&off);
    }
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_of_natural_width_ends_at_a_guard_page),
        cmocka_unit_test(test_output_as_wide_as_the_longest_request),
        cmocka_unit_test(test_causal_limit_of_every_slot),
        cmocka_unit_test(test_per_slot_lengths_in_any_order),
        cmocka_unit_test(test_strided_lengths),
        cmocka_unit_test(test_strided_lengths_under_concurrency),
        cmocka_unit_test(test_lengths_beyond_the_table_are_clamped),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_clean_fills_and_changes_no_logit),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
