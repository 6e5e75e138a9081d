/* SPDX-License-Identifier: MIT
 *
 * indexer_scores on the device: values, exact reads and writes, equal bits whatever the grouping, hostile contents.
 * Every test runs both formats. test_indexer_calls.c has capture, pools and large offsets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/indexer_run.h"
#include "support.h"

/* ---- Helpers ---- */

static void run_indexer(const struct indexer_case *c, enum logits_placement placement) {
    for (int format = 0; format < 2; format++) {
        struct indexer_case seeded = *c;
        seeded.nvfp4 = format;
        seeded.one_cache = c->one_cache && format;
        seeded.seed = next_seed();
        assert_true(indexer_run_case(&fx.gpu, fx.ctx, fx.stream, &seeded, placement, NULL, NULL));
    }
}

static void make_indexer(struct indexer_data *data, struct indexer_case c, bool nvfp4) {
    c.nvfp4 = nvfp4;
    c.seed = next_seed();
    assert_true(indexer_data_make(data, &c));
}

static uint8_t *call_indexer(const struct indexer_device *dev) {
    assert_int_equal(indexer_queue(dev, fx.ctx, fx.stream), ATTNS_OK);
    uint8_t *image = indexer_download(dev, fx.stream);
    assert_non_null(image);
    return image;
}

/* Uploads, calls, judges and returns the image. */
static uint8_t *run_data(const struct indexer_data *data, enum logits_placement placement, bool hostile_values) {
    struct indexer_device dev;
    struct indexer_report report;
    const struct indexer_check_options options = {.hostile_values = hostile_values};
    char text[500];
    assert_true(indexer_upload(&dev, &fx.gpu, data, placement));
    uint8_t *image = call_indexer(&dev);
    indexer_device_free(&dev);
    if (!indexer_check(data, image, &options, &report)) {
        indexer_report_print(&report, indexer_case_text(&data->c, text, sizeof text));
        fail_msg("wrong output: %s", text);
    }
    return image;
}

/* ---- Shapes ---- */

static void test_every_group_size(void **state) {
    (void)state;
    for (int rows = 1; rows <= 8; rows++)
        run_indexer(&(struct indexer_case){.groups = 5, .rows = rows, .max_len = 700, .score_pad = rows % 3},
                    LOGITS_PLAIN);
}

/* Up to and past the number of groups that a warp plans from registers, and that small CTAs are launched for. */
static void test_numbers_of_groups(void **state) {
    (void)state;
    static const int counts[] = {1, 31, 32, 33, 65, 1025, 2, 64, 127, 1023, 1024, 5000, 30000};
    const size_t tried = software_gpu() ? 6 : sizeof counts / sizeof counts[0];
    for (size_t i = 0; i < tried; i++)
        run_indexer(&(struct indexer_case){.groups = counts[i], .rows = 1, .min_len = -20, .max_len = 40},
                    LOGITS_PLAIN);
}

static void test_lengths_around_units_and_pages(void **state) {
    (void)state;
    static const int32_t lens[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 300, 513};
    run_indexer(&(struct indexer_case){.groups = 20, .rows = 2, .lens = lens, .one_cache = true}, LOGITS_PLAIN);
}

/* One long group among many short and empty ones, wherever it stands. */
static void test_uneven_groups(void **state) {
    (void)state;
    static int32_t lens[600];
    for (int place = 0; place < 3; place++) {
        for (int i = 0; i < 600; i++)
            lens[i] = i % 3 == 0 ? 5 : 0;
        lens[place * 299] = 9000;
        run_indexer(&(struct indexer_case){.groups = 600, .rows = 1, .lens = lens, .max_context = 9000}, LOGITS_PLAIN);
    }
}

static void test_empty_groups_touch_nothing(void **state) {
    (void)state;
    static const int counts[] = {1, 31, 32, 33, 250, 2048};
    static int32_t lens[2048];
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        run_indexer(&(struct indexer_case){.groups = counts[i], .rows = 3, .lens = lens, .max_context = 128},
                    LOGITS_GUARD_END);
}

static void test_random_configurations(void **state) {
    (void)state;
    const char *wanted = getenv("ATTNS_TEST_RANDOM");
    const int count = wanted && *wanted ? atoi(wanted) : 300;
    struct rng r = rng_make(next_seed());
    int failed = 0;
    for (int i = 0; i < count; i++) {
        struct indexer_case c;
        indexer_random_case(&r, &c, software_gpu() ? 3000 : 50000);
        failed +=
            !indexer_run_case(&fx.gpu, fx.ctx, fx.stream, &c, i % 3 == 2 ? LOGITS_GUARD_END : LOGITS_PLAIN, NULL, NULL);
    }
    printf("%d random configurations, %d wrong\n", count, failed);
    assert_int_equal(failed, 0);
}

/* ---- Memory ---- */

/* Every buffer ends, or starts, at an unmapped page; the block table is exactly as wide as the longest group needs. */
static void test_guard_pages(void **state) {
    (void)state;
    static const int32_t lens[] = {1, 65, 1000, 33, 257, 64, 385};
    for (int one_cache = 0; one_cache < 2; one_cache++) {
        const struct indexer_case c = {.groups = 7, .rows = 4, .lens = lens, .one_cache = one_cache};
        run_indexer(&c, LOGITS_GUARD_END);
        run_indexer(&c, LOGITS_GUARD_START);
    }
}

static void test_score_rows_of_any_stride(void **state) {
    (void)state;
    static const int widths[] = {257, 300, 513, 4097};
    for (size_t i = 0; i < 4; i++) {
        const struct indexer_case c = {.groups = 3,
                                       .rows = 2,
                                       .min_len = widths[i],
                                       .max_len = widths[i],
                                       .score_offset = (int64_t)i,
                                       .score_pad = (int64_t)i % 2};
        run_indexer(&c, LOGITS_PLAIN);
    }
}

/* ---- Values ---- */

/* A key is a single 1.0 with a power of two of its own, 2^-6 to 2^6, as value or scale: any other key's, or any other
 * 16 values', shows. */
static void test_values_in_closed_form(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct indexer_data data;
        make_indexer(&data,
                     (struct indexer_case){.groups = 4,
                                           .rows = 1 + 2 * i,
                                           .min_len = 300,
                                           .max_len = 600,
                                           .one_cache = i == 3,
                                           .values = INDEXER_VALUES_ONE_HOT},
                     i % 2);
        uint8_t *image = run_data(&data, LOGITS_PLAIN, false);
        for (int64_t row = 0; row < data.rows; row++)
            for (int64_t p = 0; p < indexer_limit(&data, row / data.c.rows); p++) {
                const double got = (double)indexer_image_value(&data, image, row, p);
                if (got != indexer_one_hot_score(&data, row, p))
                    fail_msg("row %lld key %lld: got %.9g, expected %.9g", (long long)row, (long long)p, got,
                             indexer_one_hot_score(&data, row, p));
            }
        free(image);
        indexer_data_free(&data);
    }
}

/* No ReLU, no weight, no factor: with keys that are the query negated every score is minus the query's square sum. */
static void test_values_stay_negative(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        struct indexer_data data;
        make_indexer(&data, (struct indexer_case){.groups = 1, .rows = 1, .min_len = 100, .max_len = 100}, format);
        const int request = *indexer_request(&data, 0);
        for (int64_t p = 0; p < 100; p++) {
            const int64_t page = data.tables[request * data.table_stride + p / INDEXER_PAGE_KEYS];
            uint8_t *const key = indexer_key(&data, page, p % INDEXER_PAGE_KEYS);
            memcpy(key, data.query, (size_t)data.row_bytes);
            for (int64_t i = format ? 0 : 1; i < data.row_bytes; i += format ? 1 : 2)
                key[i] ^= format ? 0x88 : 0x80;
            if (format)
                memcpy(indexer_scales(&data, page, p % INDEXER_PAGE_KEYS), data.query_scales, 8);
        }
        uint8_t *image = run_data(&data, LOGITS_PLAIN, false);
        for (int64_t p = 0; p < 100; p++) {
            assert_true(indexer_image_value(&data, image, 0, p) < 0);
            assert_true(indexer_image_value(&data, image, 0, p) == indexer_image_value(&data, image, 0, 0));
        }
        free(image);
        indexer_data_free(&data);
    }
}

/* All codes of E4M3 as a scale, subnormal, negative and NaN ones among them, against 1.0. */
static void test_values_of_every_scale_code(void **state) {
    (void)state;
    struct indexer_data data;
    make_indexer(
        &data,
        (struct indexer_case){.groups = 1, .rows = 1, .min_len = 256, .max_len = 256, .values = INDEXER_VALUES_ONE_HOT},
        true);
    memset(data.query, 0x22, 64);       /* 1.0 everywhere */
    memset(data.query_scales, 0x38, 8); /* 1.0 */
    for (int p = 0; p < 256; p++) {
        const int64_t page = data.tables[*indexer_request(&data, 0) * data.table_stride + p / INDEXER_PAGE_KEYS];
        memset(indexer_scales(&data, page, p % INDEXER_PAGE_KEYS), p, 8);
    }
    uint8_t *image = run_data(&data, LOGITS_PLAIN, true);
    for (int p = 0; p < 256; p++) {
        const int exponent = p >> 3 & 15, mantissa = p & 7;
        const double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        const double got = (double)indexer_image_value(&data, image, 0, p);
        if ((p & 0x7f) == 0x7f)
            assert_true(isnan(got));
        else if (got != (p & 0x80 ? -magnitude : magnitude))
            fail_msg("scale code %#x: got %g", (unsigned)p, got);
    }
    free(image);
    indexer_data_free(&data);
}

/* A NaN in one key or query shows exactly where the formula has it. */
static void test_values_that_are_nan(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        struct indexer_data data;
        make_indexer(&data, (struct indexer_case){.groups = 3, .rows = 2, .min_len = 200, .max_len = 400}, format);
        const int32_t *table = data.tables + *indexer_request(&data, 0) * data.table_stride;
        const uint16_t bf16_nan = 0x7fc0;
        if (format) {
            indexer_scales(&data, table[1], 5)[3] = 0x7f;
            data.query_scales[4 * data.query_scale_stride] = 0xff;
        } else {
            memcpy(indexer_key(&data, table[1], 5) + 2 * 77, &bf16_nan, 2);
            memcpy(data.query + 4 * data.query_stride, &bf16_nan, 2);
        }
        uint8_t *image = run_data(&data, LOGITS_PLAIN, true);
        assert_true(isnan(indexer_image_value(&data, image, 0, 69)) && isnan(indexer_image_value(&data, image, 1, 69)));
        assert_true(isfinite(indexer_image_value(&data, image, 0, 68)));
        assert_true(isfinite(indexer_image_value(&data, image, 0, 70)));
        assert_true(isnan(indexer_image_value(&data, image, 4, 0)) && isnan(indexer_image_value(&data, image, 4, 199)));
        assert_true(isfinite(indexer_image_value(&data, image, 5, 0)));
        free(image);
        indexer_data_free(&data);
    }
}

/* ---- Equal bits ---- */

/* The scores of one call again, with every row as a group of its own, and with the groups in reverse order: over the
 * same pool, tables and queries. */
static void test_bits_do_not_depend_on_grouping(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct indexer_data data;
        make_indexer(&data, (struct indexer_case){.groups = 6, .rows = i < 2 ? 4 : 7, .min_len = 1, .max_len = 900},
                     i % 2);
        struct indexer_device dev;
        assert_true(indexer_upload(&dev, &fx.gpu, &data, LOGITS_PLAIN));
        uint8_t *grouped = call_indexer(&dev);

        int32_t *lens = malloc((size_t)data.rows * 4), *requests = malloc((size_t)data.rows * 4);
        for (int64_t row = 0; row < data.rows; row++) {
            lens[row] = *indexer_len(&data, row / data.c.rows);
            requests[row] = *indexer_request(&data, row / data.c.rows);
        }
        struct gpu_buffer len_buffer, request_buffer;
        assert_true(gpu_buffer_alloc(&fx.gpu, &len_buffer, (size_t)data.rows * 4));
        assert_true(gpu_buffer_alloc(&fx.gpu, &request_buffer, (size_t)data.rows * 4));
        must(fx.gpu.memcpy_htod(len_buffer.ptr, lens, (size_t)data.rows * 4));
        must(fx.gpu.memcpy_htod(request_buffer.ptr, requests, (size_t)data.rows * 4));
        dev.tensors.context_lengths.data = (void *)(uintptr_t)len_buffer.ptr;
        dev.tensors.requests.data = (void *)(uintptr_t)request_buffer.ptr;
        dev.tensors.context_lengths.shape[0] = dev.tensors.requests.shape[0] = data.rows;
        assert_true(indexer_poison(&dev, fx.stream));
        uint8_t *alone = call_indexer(&dev);
        assert_memory_equal(grouped, alone, data.image_bytes);

        /* Row r of the query tensor is now the last but r: strides stay positive, so the rows themselves move. */
        uint8_t *query = malloc(data.query_bytes), *scales = malloc(data.query_scale_bytes + 1);
        for (int64_t row = 0; row < data.rows; row++) {
            const int64_t other = data.rows - 1 - row;
            memcpy(query + row * data.query_stride, data.query + other * data.query_stride, (size_t)data.row_bytes);
            if (data.c.nvfp4)
                memcpy(scales + row * 8, data.query_scales + other * 8, 8);
            lens[row] = *indexer_len(&data, other / data.c.rows);
            requests[row] = *indexer_request(&data, other / data.c.rows);
        }
        must(fx.gpu.memcpy_htod(dev.query.ptr, query, data.query_bytes));
        if (data.c.nvfp4)
            must(fx.gpu.memcpy_htod(dev.query_scales.ptr, scales, data.query_scale_bytes));
        must(fx.gpu.memcpy_htod(len_buffer.ptr, lens, (size_t)data.rows * 4));
        must(fx.gpu.memcpy_htod(request_buffer.ptr, requests, (size_t)data.rows * 4));
        assert_true(indexer_poison(&dev, fx.stream));
        uint8_t *reversed = call_indexer(&dev);
        for (int64_t row = 0; row < data.rows; row++)
            assert_memory_equal(reversed + indexer_image_at(&data, row, 0),
                                grouped + indexer_image_at(&data, data.rows - 1 - row, 0),
                                (size_t)data.max_context * 4);
        free(query), free(scales), free(lens), free(requests);
        free(grouped), free(alone), free(reversed);
        gpu_buffer_free(&fx.gpu, &len_buffer);
        gpu_buffer_free(&fx.gpu, &request_buffer);
        indexer_device_free(&dev);
        indexer_data_free(&data);
    }
}

/* ---- Hostile contents ---- */

static void test_hostile_lengths(void **state) {
    (void)state;
    static const int32_t lens[] = {INT32_MIN, -1, INT32_MAX, 200, INT32_MAX - 1, 0, 1 << 30, -64, 201, 16};
    run_indexer(&(struct indexer_case){.groups = 10, .rows = 2, .lens = lens, .max_context = 200}, LOGITS_GUARD_END);
}

/* Pages and requests out of range read as zeros, whatever lies around the pool; those past a group's length do no harm.
 */
static void test_hostile_pages_and_requests(void **state) {
    (void)state;
    struct rng r = rng_make(next_seed());
    for (int i = 0; i < 12; i++) {
        struct indexer_data data;
        make_indexer(&data,
                     (struct indexer_case){.groups = i < 6 ? 9 : 40,
                                           .rows = 1 + i % 8,
                                           .max_len = 500,
                                           .bare_scores = true,
                                           .one_cache = i % 4 == 3},
                     i % 2);
        const int32_t hostile[] = {-1,
                                   INT32_MIN,
                                   INT32_MIN + 1,
                                   INT32_MAX,
                                   (int32_t)data.num_pages,
                                   (int32_t)data.num_pages + 1,
                                   -(int32_t)data.num_pages,
                                   (int32_t)(0x100000000 / data.page_stride)};
        for (size_t k = 0; k < data.table_bytes / 4; k++)
            if (rng_below(&r, 3) == 0)
                data.tables[k] = hostile[rng_below(&r, 8)];
        for (int64_t g = 0; g < data.c.groups; g++)
            if (rng_below(&r, 4) == 0)
                *indexer_request(&data, g) =
                    rng_below(&r, 2) ? hostile[rng_below(&r, 4)] : (int32_t)(data.num_requests + rng_below(&r, 3));
        free(run_data(&data, i % 3 == 0 ? LOGITS_GUARD_START : LOGITS_GUARD_END, false));
        indexer_data_free(&data);
    }
}

int main(void) {
    fx.without_logits = true;
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_group_size),
        cmocka_unit_test(test_numbers_of_groups),
        cmocka_unit_test(test_lengths_around_units_and_pages),
        cmocka_unit_test(test_uneven_groups),
        cmocka_unit_test(test_empty_groups_touch_nothing),
        cmocka_unit_test(test_random_configurations),
        cmocka_unit_test(test_guard_pages),
        cmocka_unit_test(test_score_rows_of_any_stride),
        cmocka_unit_test(test_values_in_closed_form),
        cmocka_unit_test(test_values_stay_negative),
        cmocka_unit_test(test_values_of_every_scale_code),
        cmocka_unit_test(test_values_that_are_nan),
        cmocka_unit_test(test_bits_do_not_depend_on_grouping),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_hostile_pages_and_requests),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
