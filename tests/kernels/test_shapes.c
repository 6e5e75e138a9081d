/* SPDX-License-Identifier: MIT
 *
 * Every shape the library promises, against the reference; every other shape refused before anything happens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define MAX_CASES 256

static struct logits_case list[MAX_CASES];
static size_t count;

static bool is_fp4(void) {
    return fx.variant == ATTNS_VARIANT_FP4;
}

/* Nothing for a case that the variant does not have. */
static void add(struct logits_case c) {
    assert_true(count < MAX_CASES);
    c.variant = fx.variant;
    if (!logits_case_exists(&c))
        return;
    if (!c.batch)
        c.batch = 3;
    if (!c.max_len)
        c.max_len = 400;
    c.out_pad = 1;
    list[count++] = c;
}

static void run_list(enum logits_placement placement) {
    static const struct logits_check_options options = {.max_work = 2e8};
    compile_ahead(list, count);
    for (size_t i = 0; i < count; i++)
        run_case_with(&list[i], placement, &options);
    count = 0;
}

static void test_every_head_count_with_every_next_n(void **state) {
    (void)state;
    for (int heads = 8; heads <= 128; heads += 8)
        for (int n = 1; n <= 8; n++)
            add((struct logits_case){.heads = heads,
                                     .next_n = n,
                                     .head_dim = 128,
                                     .block_size = 64,
                                     .values = n % 2 ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE});
    run_list(LOGITS_PLAIN);
}

static void test_every_head_dim_with_every_block_size(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128}, blocks[] = {16, 32, 64, 128, 256}, heads[] = {8, 16, 32, 64};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 5; b++)
            for (int h = 0; h < 4; h++)
                add((struct logits_case){.heads = heads[h],
                                         .next_n = 1 + (d + b + h) % 4,
                                         .head_dim = dims[d],
                                         .block_size = blocks[b],
                                         .max_len = 700,
                                         .sf_interleaved = is_fp4() && blocks[b] == 128 && h % 2,
                                         .kv_pad_bytes = 16 * (b % 3)});
    run_list(LOGITS_PLAIN);
}

static void test_every_dtype_combination(void **state) {
    (void)state;
    static const attns_dtype outs[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    static const attns_dtype inner[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16};
    for (int o = 0; o < 3; o++)
        for (int a = 0; a < 2; a++)
            for (int e = 0; e < 2; e++)
                for (int n = 1; n <= 3; n++)
                    add((struct logits_case){.heads = n == 2 ? 24 : 64,
                                             .next_n = n,
                                             .head_dim = n == 3 ? 64 : 128,
                                             .block_size = 64,
                                             .out_dtype = outs[o],
                                             .acc_dtype = inner[a],
                                             .epi_dtype = inner[e],
                                             .out_offset = 1,
                                             .clean = n == 2});
    run_list(LOGITS_PLAIN);
}

static void test_guard_pages_around_every_buffer(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128}, blocks[] = {16, 32, 64, 128, 256};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 5; b++)
            add((struct logits_case){.heads = 16 << d, .next_n = 1 + b, .head_dim = dims[d], .block_size = blocks[b]});
    size_t saved = count;
    run_list(LOGITS_GUARD_END);
    count = saved;
    run_list(LOGITS_GUARD_START);
}

/* The call must fail with a message that holds `given`, and must not compile, load, launch or write. */
static void must_be_refused(struct logits_case c, const char *given) {
    struct logits_data data;
    struct logits_device dev;
    attns_counters before, after;
    c.batch = 2;
    c.max_len = 100;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    attns_get_counters(fx.ctx, &before);
    attns_status status = logits_call_run(fx.ctx, &dev.call, fx.stream);
    attns_get_counters(fx.ctx, &after);
    if (status != ATTNS_ERROR_UNSUPPORTED && status != ATTNS_ERROR_INVALID_ARGUMENT)
        fail_msg("H=%d D=%d block=%d next_n=%d: %s", c.heads, c.head_dim, c.block_size, c.next_n,
                 attns_status_string(status));
    if (!strstr(attns_last_error(), given))
        fail_msg("'%s' does not name the value %s", attns_last_error(), given);
    assert_memory_equal(&before, &after, sizeof before);
    uint8_t *image = logits_download(&dev, fx.stream), *poison = logits_image_make(&data);
    assert_true(image && poison);
    assert_memory_equal(image, poison, data.out_image_bytes);
    free(image);
    free(poison);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_head_counts_work_or_are_refused(void **state) {
    (void)state;
    static const int heads[] = {1, 4, 8, 10, 12, 16, 24, 32, 48, 64, 128, 132, 136};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int n = 1; n <= 4; n++) {
            struct logits_case c = {.batch = 2,
                                    .heads = heads[i],
                                    .next_n = n,
                                    .head_dim = 128,
                                    .block_size = 64,
                                    .max_len = 100,
                                    .weights_pad = (4 - heads[i] % 4) % 4};
            char given[16];
            snprintf(given, sizeof given, "%d", heads[i]);
            if (heads[i] % 8 == 0 && heads[i] <= 128)
                run_case(&c, LOGITS_PLAIN);
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
        struct logits_case c = {.batch = 2,
                                .heads = 32,
                                .next_n = 1,
                                .head_dim = 128,
                                .block_size = size,
                                .max_len = 100,
                                .kv_pad_bytes = (16 - size * (is_fp4() ? 68 : 132) % 16) % 16};
        char given[16];
        snprintf(given, sizeof given, "%d", size);
        if (size == 16 || size == 32 || size == 64 || size == 128 || size == 256)
            run_case(&c, LOGITS_PLAIN);
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
        must_be_refused((struct logits_case){.heads = 32, .next_n = 1, .head_dim = dims[i], .block_size = 64}, given);
    }
    must_be_refused((struct logits_case){.heads = 32, .next_n = 9, .head_dim = 128, .block_size = 64}, "9");
    must_be_refused((struct logits_case){.heads = 32, .next_n = 16, .head_dim = 128, .block_size = 64}, "16");
    const struct logits_case usual = {.heads = 32, .next_n = 1, .head_dim = 128, .block_size = 64};
    struct logits_case other = usual;
    if (is_fp4()) {
        other.head_dim = 32;
        must_be_refused(other, "32");
        for (int block = 16; block <= 256; block *= 2) {
            other = usual;
            other.block_size = block;
            other.sf_interleaved = true;
            if (block != 128)
                must_be_refused(other, "is_kv_sf_interleaved: is true with block_size");
        }
        return;
    }
    other.acc_dtype = ATTNS_DTYPE_BF16;
    must_be_refused(other, "acc_dtype");
    other = usual;
    other.epi_dtype = ATTNS_DTYPE_BF16;
    must_be_refused(other, "epi_dtype");
}

static void test_empty_batch_is_success(void **state) {
    (void)state;
    struct logits_case c = {.batch = 1, .heads = 64, .next_n = 2, .head_dim = 128, .block_size = 64};
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    dev.tensors.q_shape[0] = dev.tensors.q_sf_shape[0] = dev.tensors.weights_shape[0] = dev.tensors.tables_shape[0] = 0;
    dev.tensors.lens_shape[0] = dev.tensors.out_shape[0] = 0;
    uint8_t *image = call_and_download(&dev), *poison = logits_image_make(&data);
    assert_memory_equal(image, poison, data.out_image_bytes);
    free(image);
    free(poison);
    logits_device_free(&dev);
    logits_data_free(&data);
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
