/* SPDX-License-Identifier: MIT
 *
 * Calls of indexer_scores one after another: captured, replayed, over pools of other strides, over memory of many GiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/indexer_run.h"
#include "support.h"

static void make_indexer(struct indexer_data *data, struct indexer_case c, bool nvfp4) {
    c.nvfp4 = nvfp4;
    c.seed = next_seed();
    assert_true(indexer_data_make(data, &c));
}

static void judge(const struct indexer_data *data, uint8_t *image) {
    struct indexer_report report;
    char text[500];
    assert_non_null(image);
    if (!indexer_check(data, image, NULL, &report)) {
        indexer_report_print(&report, indexer_case_text(&data->c, text, sizeof text));
        fail_msg("wrong output: %s", text);
    }
    free(image);
}

/* Two pools of the same shape with other strides, and other alignments, in both orders, twice: nothing of one call may
 * survive into the next. */
static void test_pools_of_other_strides(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        const struct indexer_case shape = {.groups = 5, .rows = 2, .min_len = 300, .max_len = 300};
        struct indexer_case cases[3] = {shape, shape, shape};
        cases[1].key_pad_bytes = 4096 + 16;
        cases[1].scale_pad_bytes = 8;
        cases[2].one_cache = format;
        cases[2].key_pad_bytes = 48;
        cases[2].scale_pad_bytes = 24;
        struct indexer_data data[3];
        struct indexer_device dev[3];
        for (int i = 0; i < 3; i++) {
            make_indexer(&data[i], cases[i], format);
            assert_true(indexer_upload(&dev[i], &fx.gpu, &data[i], LOGITS_PLAIN));
        }
        static const int order[] = {0, 1, 0, 2, 1, 2, 0};
        for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
            const int at = order[i];
            assert_true(indexer_poison(&dev[at], fx.stream));
            assert_int_equal(indexer_queue(&dev[at], fx.ctx, fx.stream), ATTNS_OK);
            judge(&data[at], indexer_download(&dev[at], fx.stream));
        }
        for (int i = 0; i < 3; i++) {
            indexer_device_free(&dev[i]);
            indexer_data_free(&data[i]);
        }
    }
}

/* ---- Capture ---- */

static CUgraphExec capture(const struct indexer_device *dev, attns_context *ctx, size_t *kernels) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    struct gpu_graph_nodes nodes;
    must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const attns_status status = indexer_queue(dev, ctx, fx.stream);
    must(fx.gpu.stream_end_capture(fx.stream, &graph));
    assert_int_equal(status, ATTNS_OK);
    assert_true(gpu_graph_count(&fx.gpu, graph, &nodes));
    assert_int_equal(nodes.total, nodes.kernels);
    *kernels = nodes.kernels;
    must(fx.gpu.graph_instantiate(&exec, graph, 0));
    must(fx.gpu.graph_destroy(graph));
    return exec;
}

static void precompile_into(const char *folder) {
    static const attns_variant variants[] = {ATTNS_VARIANT_INDEXER_BF16, ATTNS_VARIANT_INDEXER_NVFP4};
    attns_context *ctx = make_context(folder, NULL, NULL);
    const attns_precompile_params params = {.variants = variants, .num_variants = 2};
    if (attns_precompile_paged_mqa_logits(ctx, &params) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    attns_counters counters;
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.compiles, 2);
    attns_context_destroy(ctx);
}

/* The first call of a context is the captured one; replays follow new lengths, requests, tables, queries and keys. */
static void test_first_call_captured_and_replayed(void **state) {
    (void)state;
    char *folder = make_folder();
    precompile_into(folder);
    for (int format = 0; format < 2; format++) {
        attns_context *ctx = make_context(folder, NULL, NULL);
        struct indexer_case c = {.groups = 40, .rows = 3, .max_len = 300, .max_context = 320, .pool_pages = 30};
        struct indexer_data first, other;
        struct indexer_device dev;
        make_indexer(&first, c, format);
        assert_true(indexer_upload(&dev, &fx.gpu, &first, LOGITS_PLAIN));
        size_t kernels = 0;
        CUgraphExec exec = capture(&dev, ctx, &kernels);
        assert_int_equal(kernels, 1);
        attns_counters counters;
        attns_get_counters(ctx, &counters);
        assert_int_equal(counters.compiles, 0);
        assert_int_equal(counters.disk_hits, 1);
        must(fx.gpu.graph_launch(exec, fx.stream));
        judge(&first, indexer_download(&dev, fx.stream));
        for (int round = 0; round < 3; round++) {
            c.min_len = round == 1 ? 0 : -50; /* all empty once */
            c.max_len = round == 1 ? 0 : 300;
            static const int32_t zeros[40];
            c.lens = round == 1 ? zeros : NULL;
            make_indexer(&other, c, format);
            assert_true(other.key_bytes == first.key_bytes && other.image_bytes == first.image_bytes);
            must(fx.gpu.memcpy_htod(dev.keys.ptr, other.keys, other.key_bytes));
            if (format) {
                must(fx.gpu.memcpy_htod(dev.key_scales.ptr, other.key_scales, other.key_scale_bytes));
                must(fx.gpu.memcpy_htod(dev.query_scales.ptr, other.query_scales, other.query_scale_bytes));
            }
            must(fx.gpu.memcpy_htod(dev.query.ptr, other.query, other.query_bytes));
            must(fx.gpu.memcpy_htod(dev.tables.ptr, other.tables, other.table_bytes));
            must(fx.gpu.memcpy_htod(dev.lens.ptr, other.lens, other.len_bytes));
            must(fx.gpu.memcpy_htod(dev.requests.ptr, other.requests, other.request_bytes));
            assert_true(indexer_poison(&dev, fx.stream));
            must(fx.gpu.graph_launch(exec, fx.stream));
            judge(&other, indexer_download(&dev, fx.stream));
            indexer_data_free(&other);
        }
        must(fx.gpu.graph_exec_destroy(exec));
        attns_context_destroy(ctx);
        indexer_device_free(&dev);
        indexer_data_free(&first);
    }
    remove_folder(folder);
    free(folder);
}

/* An unprepared kernel is an error that names it and leaves the capture valid. */
static void test_cold_capture_is_refused(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        attns_context *ctx = make_context("", NULL, NULL);
        struct indexer_data data;
        struct indexer_device dev;
        CUgraph graph = NULL;
        make_indexer(&data, (struct indexer_case){.groups = 2, .rows = 1}, format);
        assert_true(indexer_upload(&dev, &fx.gpu, &data, LOGITS_PLAIN));
        must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        assert_int_equal(attns_indexer_scores(ctx, &dev.params, fx.stream), ATTNS_ERROR_WOULD_COMPILE);
        assert_non_null(strstr(attns_last_error(), format ? "indexer_scores_nvfp4" : "indexer_scores_bf16"));
        must(fx.gpu.stream_end_capture(fx.stream, &graph));
        must(fx.gpu.graph_destroy(graph));
        attns_context_destroy(ctx);
        indexer_device_free(&dev);
        indexer_data_free(&data);
    }
}

/* ---- Large offsets ---- */

/* Pages 1.4 MB apart, up to 6.5 GB from the pool's start, and rows of scores past 2 GiB: the bits of a compact call. */
static void test_offsets_beyond_4_gib(void **state) {
    (void)state;
    enum { STRIDE = 1435968, PAGES = 5, ROW_STRIDE = 400000000 };
    static const int32_t places[PAGES] = {1495, 0, 4564, 1496, 2991};
    for (int format = 0; format < 2; format++) {
        struct indexer_data data;
        struct indexer_device dev;
        struct gpu_buffer pool, scores;
        make_indexer(
            &data,
            (struct indexer_case){
                .groups = 1, .rows = 8, .min_len = 300, .max_len = 300, .one_cache = format, .bare_scores = true},
            format);
        const size_t page_bytes = (size_t)data.page_stride;
        const size_t bytes = (size_t)4564 * STRIDE + page_bytes, score_bytes = ((size_t)7 * ROW_STRIDE + 300) * 4;
        if (bytes + score_bytes + (64u << 20) > free_memory()) {
            print_message("skipped: needs %zu MiB of device memory\n", (bytes + score_bytes) >> 20);
            indexer_data_free(&data);
            skip();
        }
        assert_true(indexer_upload(&dev, &fx.gpu, &data, LOGITS_PLAIN));
        assert_int_equal(indexer_queue(&dev, fx.ctx, fx.stream), ATTNS_OK);
        uint8_t *compact = indexer_download(&dev, fx.stream);
        assert_non_null(compact);

        assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &pool, bytes, GPU_FLUSH_END));
        assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &scores, score_bytes, GPU_FLUSH_END));
        must(fx.gpu.memset_d8(pool.ptr, 0x7f, bytes));
        const int32_t *table = data.tables + *indexer_request(&data, 0) * data.table_stride;
        for (int i = 0; i < PAGES; i++)
            must(fx.gpu.memcpy_htod(pool.ptr + (size_t)places[i] * STRIDE, data.keys + table[i] * data.page_stride,
                                    page_bytes));
        must(fx.gpu.memcpy_htod(dev.tables.ptr + (size_t)((table - data.tables) * 4), places, sizeof places));
        dev.tensors.key_cache.data = (void *)(uintptr_t)pool.ptr;
        dev.tensors.key_cache.shape[0] = dev.tensors.key_scales.shape[0] = 4565;
        dev.tensors.key_cache.strides[0] = format ? STRIDE : STRIDE / 2;
        dev.tensors.key_scales.data = (void *)(uintptr_t)(pool.ptr + INDEXER_PAGE_KEYS * 64);
        dev.tensors.key_scales.strides[0] = STRIDE;
        dev.tensors.scores.data = (void *)(uintptr_t)scores.ptr;
        dev.tensors.scores.strides[0] = ROW_STRIDE;
        assert_int_equal(indexer_queue(&dev, fx.ctx, fx.stream), ATTNS_OK);
        assert_int_equal(gpu_wait_stream(&fx.gpu, fx.stream, 20), CUDA_SUCCESS);
        for (int64_t row = 0; row < 8; row++) {
            float got[300];
            must(fx.gpu.memcpy_dtoh(got, scores.ptr + (size_t)row * ROW_STRIDE * 4, sizeof got));
            assert_memory_equal(got, compact + indexer_image_at(&data, row, 0), sizeof got);
        }
        free(compact);
        gpu_buffer_free(&fx.gpu, &pool);
        gpu_buffer_free(&fx.gpu, &scores);
        indexer_device_free(&dev);
        indexer_data_free(&data);
    }
}

int main(void) {
    fx.without_logits = true;
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pools_of_other_strides),
        cmocka_unit_test(test_first_call_captured_and_replayed),
        cmocka_unit_test(test_cold_capture_is_refused),
        cmocka_unit_test(test_offsets_beyond_4_gib),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
