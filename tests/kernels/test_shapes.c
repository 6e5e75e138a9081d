/* SPDX-License-Identifier: MIT
 *
 * Every shape the library promises, against the reference; every other shape refused before anything happens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define MAX_CASES 256

static struct fp8_case list[MAX_CASES];
static size_t count;

static void add(struct fp8_case c) {
    assert_true(count < MAX_CASES);
    if (!c.batch)
        c.batch = 3;
    if (!c.max_len)
        c.max_len = 400;
    c.out_pad = 1;
    list[count++] = c;
}

static void run_list(enum fp8_placement placement) {
    static const struct fp8_check_options options = {.max_work = 2e8};
    compile_ahead(list, count);
    for (size_t i = 0; i < count; i++)
        run_case_with(&list[i], placement, &options);
    count = 0;
}

static void test_every_head_count_with_every_next_n(void **state) {
    (void)state;
    for (int heads = 8; heads <= 128; heads += 8)
        for (int n = 1; n <= 8; n++)
            add((struct fp8_case){.heads = heads,
                                  .next_n = n,
                                  .head_dim = 128,
                                  .block_size = 64,
                                  .values = n % 2 ? FP8_VALUES_ALL_CODES : FP8_VALUES_MODERATE});
    run_list(FP8_PLAIN);
}

static void test_every_head_dim_with_every_block_size(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128}, blocks[] = {16, 32, 64, 128, 256}, heads[] = {8, 16, 32, 64};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 5; b++)
            for (int h = 0; h < 4; h++)
                add((struct fp8_case){.heads = heads[h],
                                      .next_n = 1 + (d + b + h) % 4,
                                      .head_dim = dims[d],
                                      .block_size = blocks[b],
                                      .max_len = 700,
                                      .kv_pad_bytes = 16 * (b % 3)});
    run_list(FP8_PLAIN);
}

static void test_every_dtype_combination(void **state) {
    (void)state;
    static const attns_dtype outs[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    static const attns_dtype inner[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16};
    for (int o = 0; o < 3; o++)
        for (int a = 0; a < 2; a++)
            for (int e = 0; e < 2; e++)
                for (int n = 1; n <= 3; n++)
                    add((struct fp8_case){.heads = n == 2 ? 24 : 64,
                                          .next_n = n,
                                          .head_dim = n == 3 ? 64 : 128,
                                          .block_size = 64,
                                          .out_dtype = outs[o],
                                          .acc_dtype = inner[a],
                                          .epi_dtype = inner[e],
                                          .out_offset = 1,
                                          .clean = n == 2});
    run_list(FP8_PLAIN);
}

static void test_guard_pages_around_every_buffer(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128}, blocks[] = {16, 32, 64, 128, 256};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 5; b++)
            add((struct fp8_case){.heads = 16 << d, .next_n = 1 + b, .head_dim = dims[d], .block_size = blocks[b]});
    size_t saved = count;
    run_list(FP8_GUARD_END);
    count = saved;
    run_list(FP8_GUARD_START);
}

/* The call must fail with a message that holds `given`, and must not compile, load, launch or write. */
static void must_be_refused(struct fp8_case c, const char *given) {
    struct fp8_data data;
    struct fp8_device dev;
    attns_counters before, after;
    c.batch = 2;
    c.max_len = 100;
    make_data(&data, &c);
    upload_data(&dev, &data, FP8_PLAIN, NULL);
    attns_get_counters(fx.ctx, &before);
    attns_status status = attns_fp8_paged_mqa_logits(fx.ctx, &dev.params, fx.stream);
    attns_get_counters(fx.ctx, &after);
    if (status != ATTNS_ERROR_UNSUPPORTED && status != ATTNS_ERROR_INVALID_ARGUMENT)
        fail_msg("H=%d D=%d block=%d next_n=%d: %s", c.heads, c.head_dim, c.block_size, c.next_n,
                 attns_status_string(status));
    if (!strstr(attns_last_error(), given))
        fail_msg("'%s' does not name the value %s", attns_last_error(), given);
    assert_memory_equal(&before, &after, sizeof before);
    uint8_t *image = fp8_download(&dev, fx.stream), *poison = fp8_image_make(&data);
    assert_true(image && poison);
    assert_memory_equal(image, poison, data.out_image_bytes);
    free(image);
    free(poison);
    fp8_device_free(&dev);
    fp8_data_free(&data);
}

static void test_head_counts_work_or_are_refused(void **state) {
    (void)state;
    static const int heads[] = {1, 4, 8, 10, 12, 16, 24, 32, 48, 64, 128, 132, 136};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int n = 1; n <= 4; n++) {
            struct fp8_case c = {.batch = 2,
                                 .heads = heads[i],
                                 .next_n = n,
                                 .head_dim = 128,
                                 .block_size = 64,
                                 .max_len = 100,
                                 .weights_pad = (4 - heads[i] % 4) % 4};
            char given[16];
            snprintf(given, sizeof given, "%d", heads[i]);
            if (heads[i] % 8 == 0 && heads[i] <= 128)
                run_case(&c, FP8_PLAIN);
            else
                must_be_refused(c, given);
        }
}

static void test_block_sizes_work_or_are_refused(void **state) {
    (void)state;
    static const int blocks[] = {1, 2, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1152};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        int size = blocks[i];
        /* The pool's own pitch must stay a multiple of 16 bytes for the block size to be what is wrong. */
        struct fp8_case c = {.batch = 2,
                             .heads = 32,
                             .next_n = 1,
                             .head_dim = 128,
                             .block_size = size,
                             .max_len = 100,
                             .kv_pad_bytes = (16 - size * 132 % 16) % 16};
        char given[16];
        snprintf(given, sizeof given, "%d", size);
        if (size == 16 || size == 32 || size == 64 || size == 128 || size == 256)
            run_case(&c, FP8_PLAIN);
        else
            must_be_refused(c, given);
    }
}

static void test_other_dims_and_slots_are_refused(void **state) {
    (void)state;
    static const int dims[] = {16, 48, 96, 192, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char given[16];
        snprintf(given, sizeof given, "%d", dims[i]);
        must_be_refused((struct fp8_case){.heads = 32, .next_n = 1, .head_dim = dims[i], .block_size = 64}, given);
    }
    must_be_refused((struct fp8_case){.heads = 32, .next_n = 9, .head_dim = 128, .block_size = 64}, "9");
    must_be_refused((struct fp8_case){.heads = 32, .next_n = 16, .head_dim = 128, .block_size = 64}, "16");
    must_be_refused((struct fp8_case){.heads = 32, .next_n = 1, .head_dim = 128, .block_size = 64, .acc_dtype = 3},
                    "acc_dtype");
    must_be_refused((struct fp8_case){.heads = 32, .next_n = 1, .head_dim = 128, .block_size = 64, .epi_dtype = 3},
                    "epi_dtype");
}

static void test_empty_batch_is_success(void **state) {
    (void)state;
    struct fp8_case c = {.batch = 1, .heads = 64, .next_n = 2, .head_dim = 128, .block_size = 64};
    struct fp8_data data;
    struct fp8_device dev;
    make_data(&data, &c);
    upload_data(&dev, &data, FP8_PLAIN, NULL);
    dev.tensors.q_shape[0] = dev.tensors.weights_shape[0] = dev.tensors.tables_shape[0] = 0;
    dev.tensors.lens_shape[0] = dev.tensors.out_shape[0] = 0;
    uint8_t *image = call_and_download(&dev), *poison = fp8_image_make(&data);
    assert_memory_equal(image, poison, data.out_image_bytes);
    free(image);
    free(poison);
    fp8_device_free(&dev);
    fp8_data_free(&data);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_head_count_with_every_next_n),
        cmocka_unit_test(test_every_head_dim_with_every_block_size),
        cmocka_unit_test(test_every_dtype_combination),
        cmocka_unit_test(test_guard_pages_around_every_buffer),
        cmocka_unit_test(test_head_counts_work_or_are_refused),
        cmocka_unit_test(test_block_sizes_work_or_are_refused),
        cmocka_unit_test(test_other_dims_and_slots_are_refused),
        cmocka_unit_test(test_empty_batch_is_success),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
