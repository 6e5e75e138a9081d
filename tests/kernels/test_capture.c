/* SPDX-License-Identifier: MIT
 *
 * Stream capture: what a call leaves in a graph, replays with other contents, and capturing with a cold library, a warm
 * disk cache or a fresh process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static const char *self_path;

/* ---- What is in the graph ---- */

static CUgraph capture(const struct logits_device *dev, attns_context *ctx) {
    CUgraph graph = NULL;
    must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    attns_status status = logits_queue(dev, ctx, fx.stream);
    must(fx.gpu.stream_end_capture(fx.stream, &graph));
    assert_int_equal(status, ATTNS_OK);
    return graph;
}

static void test_a_call_is_one_kernel_and_nothing_else(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int variant = 0; variant < 6; variant++) {
            struct logits_case c = {.batch = variant == 5 ? 5000 : 4,
                                    .next_n = n,
                                    .heads = 64,
                                    .head_dim = 128,
                                    .block_size = 64,
                                    .max_len = variant == 5 ? 20 : 3000,
                                    .clean = variant == 1 || variant == 4,
                                    .pdl = variant == 2,
                                    .per_slot_lens = variant == 3,
                                    .num_shares = variant == 4 ? fx.gpu.num_sms : 0};
            struct logits_data data;
            struct logits_device dev;
            struct gpu_graph_nodes nodes;
            make_data(&data, &c);
            upload_data(&dev, &data, LOGITS_PLAIN, NULL);
            free(call_and_download(&dev));
            CUgraph graph = capture(&dev, fx.ctx);
            assert_true(gpu_graph_count(&fx.gpu, graph, &nodes));
            size_t expected = c.num_shares ? 2 : 1; /* schedule and logits, or logits alone */
            assert_int_equal(nodes.total, expected);
            assert_int_equal(nodes.kernels, expected);
            must(fx.gpu.graph_destroy(graph));
            logits_device_free(&dev);
            logits_data_free(&data);
        }
}

/* ---- Replays ---- */

/* Overwrites the contents of dev's buffers with those of another data set of the same layout. */
static void put_contents(const struct logits_device *dev, const struct logits_data *data) {
    assert_true(dev->data->kv_bytes == data->kv_bytes && dev->data->tables_bytes == data->tables_bytes);
    assert_true(dev->data->lens_bytes == data->lens_bytes && dev->data->out_image_bytes == data->out_image_bytes);
    must(fx.gpu.memcpy_htod(dev->q.ptr, data->q, data->q_bytes));
    if (data->q_sf)
        must(fx.gpu.memcpy_htod(dev->q_sf.ptr, data->q_sf, data->q_sf_bytes));
    must(fx.gpu.memcpy_htod(dev->kv.ptr, data->kv, data->kv_bytes));
    must(fx.gpu.memcpy_htod(dev->weights.ptr, data->weights, data->weights_bytes));
    must(fx.gpu.memcpy_htod(dev->tables.ptr, data->tables, data->tables_bytes));
    must(fx.gpu.memcpy_htod(dev->lens.ptr, data->lens, data->lens_bytes));
    must(fx.gpu.ctx_synchronize());
}

static void test_replays_follow_changed_contents(void **state) {
    (void)state;
    static const int32_t lens[][8] = {{1, 1, 1, 1, 1, 1, 1, 1},
                                      {131072, 1, 70000, 4096, 131071, 64, 65, 9},
                                      {0, 0, 0, 0, 0, 0, 0, 0},
                                      {5, 0, 131072, 0, 0, 0, 0, 2000},
                                      {300, 301, 302, 303, 304, 305, 306, 307}};
    for (int variant = 0; variant < 3; variant++) {
        struct logits_case c = {.batch = 8,
                                .next_n = 1 + variant,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .max_seq_len = 131072,
                                .table_width = 2048,
                                .pool_blocks = 2500,
                                .num_shares = variant == 1 ? 0 : fx.gpu.num_sms,
                                .clean = variant == 2};
        struct logits_data first;
        struct logits_device dev;
        c.lens = lens[0];
        make_data(&first, &c);
        upload_data(&dev, &first, LOGITS_PLAIN, NULL);
        free(call_and_download(&dev));
        CUgraph graph = capture(&dev, fx.ctx);
        CUgraphExec exec;
        must(fx.gpu.graph_instantiate(&exec, graph, 0));
        for (int i = 0; i < 5; i++) {
            struct logits_data data;
            struct logits_device eager_dev;
            c.lens = lens[i];
            make_data(&data, &c);
            upload_data(&eager_dev, &data, LOGITS_PLAIN, NULL);
            uint8_t *eager = call_and_download(&eager_dev);
            put_contents(&dev, &data);
            for (int replay = 0; replay < 2; replay++) {
                assert_true(logits_poison(&dev, fx.stream));
                must(fx.gpu.graph_launch(exec, fx.stream));
                uint8_t *replayed = logits_download(&dev, fx.stream);
                assert_non_null(replayed);
                assert_memory_equal(eager, replayed, data.out_image_bytes);
                free(replayed);
            }
            struct logits_check_options options = {.max_work = 3e8};
            check_image(&data, eager, &options);
            free(eager);
            logits_device_free(&eager_dev);
            logits_data_free(&data);
        }
        must(fx.gpu.graph_exec_destroy(exec));
        must(fx.gpu.graph_destroy(graph));
        logits_device_free(&dev);
        logits_data_free(&first);
    }
}

/* ---- Cold captures ---- */

static const struct logits_case cold_case = {
    .batch = 3, .next_n = 2, .heads = 24, .head_dim = 64, .block_size = 32, .max_len = 300};

static void test_cold_capture_is_refused_and_stays_valid(void **state) {
    (void)state;
    attns_context *cold = make_context("", NULL, NULL);
    struct logits_data data;
    struct logits_device dev;
    attns_counters counters;
    make_data(&data, &cold_case);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    CUgraph graph = NULL;
    CUgraphExec exec;
    struct gpu_graph_nodes nodes;
    must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    attns_status refused = logits_call_run(cold, &dev.call, fx.stream);
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    CUresult asked = fx.gpu.stream_is_capturing(fx.stream, &capturing);
    attns_status warm = logits_queue(&dev, fx.ctx, fx.stream); /* another context may still add to it, or be refused */
    CUresult filled = fx.gpu.memset_d8_async(dev.out.ptr, 0x5a, 16, fx.stream);
    must(fx.gpu.stream_end_capture(fx.stream, &graph));
    assert_int_equal(refused, ATTNS_ERROR_WOULD_COMPILE);
    must(asked);
    assert_int_equal(capturing, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    must(filled);
    attns_get_counters(cold, &counters);
    assert_int_equal(counters.compiles, 0);
    assert_true(warm == ATTNS_OK || warm == ATTNS_ERROR_WOULD_COMPILE);
    assert_true(gpu_graph_count(&fx.gpu, graph, &nodes));
    assert_int_equal(nodes.memsets, 1);
    assert_int_equal(nodes.total, warm == ATTNS_OK ? 2 : 1);
    must(fx.gpu.graph_instantiate(&exec, graph, 0));
    must(fx.gpu.graph_launch(exec, fx.stream));
    must(fx.gpu.stream_synchronize(fx.stream));
    must(fx.gpu.graph_exec_destroy(exec));
    must(fx.gpu.graph_destroy(graph));

    /* Outside the capture the same call compiles, and then it can be captured. */
    assert_true(logits_poison(&dev, fx.stream));
    assert_int_equal(logits_queue(&dev, cold, fx.stream), ATTNS_OK);
    uint8_t *image = logits_download(&dev, fx.stream);
    assert_non_null(image);
    check_image(&data, image, NULL);
    free(image);
    attns_get_counters(cold, &counters);
    assert_int_equal(counters.compiles, 1);
    graph = capture(&dev, cold);
    must(fx.gpu.graph_destroy(graph));
    logits_device_free(&dev);
    logits_data_free(&data);
    attns_context_destroy(cold);
}

static void test_schedule_in_a_cold_capture_is_refused_alike(void **state) {
    (void)state;
    attns_context *cold = make_context("", NULL, NULL);
    struct logits_case c = cold_case;
    struct logits_data data;
    struct logits_device dev;
    c.num_shares = 132;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    CUgraph graph = NULL;
    must(fx.gpu.stream_begin_capture(fx.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    attns_schedule_params p = {.seq_lens = &dev.tensors.lens, .schedule_meta = &dev.tensors.meta};
    attns_status refused = attns_compute_paged_mqa_logits_schedule(cold, &p, fx.stream);
    must(fx.gpu.stream_end_capture(fx.stream, &graph));
    assert_int_equal(refused, ATTNS_ERROR_WOULD_COMPILE);
    must(fx.gpu.graph_destroy(graph));
    logits_device_free(&dev);
    logits_data_free(&data);
    attns_context_destroy(cold);
}

/* Replays a capture that `ctx` makes right now, and checks the output. */
static void capture_replay_check(attns_context *ctx, const struct logits_case *c) {
    struct logits_data data;
    struct logits_device dev;
    CUgraphExec exec;
    make_data(&data, c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    CUgraph graph = capture(&dev, ctx);
    must(fx.gpu.graph_instantiate(&exec, graph, 0));
    must(fx.gpu.graph_launch(exec, fx.stream));
    uint8_t *image = logits_download(&dev, fx.stream);
    assert_non_null(image);
    check_image(&data, image, NULL);
    free(image);
    must(fx.gpu.graph_exec_destroy(exec));
    must(fx.gpu.graph_destroy(graph));
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_compiling_in_a_capture_can_be_allowed(void **state) {
    (void)state;
    attns_context_params p = {.cache_dir = "", .allow_compile_in_capture = true};
    attns_context *ctx = NULL;
    attns_counters counters;
    assert_int_equal(attns_context_create(&ctx, &p), ATTNS_OK);
    capture_replay_check(ctx, &cold_case);
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.compiles, 1);
    attns_context_destroy(ctx);
}

/* ---- A fresh process ---- */

/* The kernels that the fresh process captures: all next_n, dtypes, large and small batches, with a schedule, next_n 2
 * with little and with much work. */
enum { FRESH_CASES = 9 };
static size_t fresh_cases(struct logits_case *cases) {
    size_t count = 0;
    for (int n = 1; n <= 8; n++)
        cases[count++] = (struct logits_case){.variant = fx.variant,
                                              .batch = n % 2 || n == 2 ? 3 : 700,
                                              .next_n = n,
                                              .heads = 64,
                                              .head_dim = 128,
                                              .block_size = 64,
                                              .max_len = 150,
                                              .num_shares = n % 3 ? 0 : 132,
                                              .clean = n == 4,
                                              .out_dtype = n == 5   ? ATTNS_DTYPE_F16
                                                           : n == 6 ? ATTNS_DTYPE_BF16
                                                                    : ATTNS_DTYPE_F32};
    cases[count] = cases[1];
    cases[count].max_seq_len = (int64_t)64 * 32 * fx.gpu.num_sms; /* times 3 requests: 96 tiles for each SM */
    cases[count++].table_width = 32 * fx.gpu.num_sms;
    return count;
}

/* In the child: the very first calls are inside captures and must find their kernels on disk, without NVRTC. */
static const char *child_cache;
static void child_captures_first(void **state) {
    (void)state;
    struct logits_case cases[FRESH_CASES];
    size_t count = fresh_cases(cases);
    attns_context *ctx = make_context(child_cache, "/nonexistent/libnvrtc.so", NULL);
    for (size_t i = 0; i < count; i++)
        capture_replay_check(ctx, &cases[i]);
    attns_counters counters;
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.compiles, 0);
    /* Each case its own, but for the last on a device with one kernel for next_n 2; and the schedule kernel. */
    assert_int_equal(counters.disk_hits, count + logits_num_kernels(fx.ctx, &cases[1]) - 2 + 1);
    attns_context_destroy(ctx);
}

static void test_fresh_process_captures_from_the_disk_cache(void **state) {
    (void)state;
    char *folder = make_folder();
    struct logits_case cases[FRESH_CASES];
    attns_context_params p = {.cache_dir = folder};
    assert_true(logits_precompile(&p, cases, fresh_cases(cases)));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(self_path, self_path, "--captures-first", folder, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    remove_folder(folder);
    free(folder);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv) {
    self_path = "/proc/self/exe";
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest child_tests[] = {cmocka_unit_test(child_captures_first)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_is_one_kernel_and_nothing_else),
        cmocka_unit_test(test_replays_follow_changed_contents),
        cmocka_unit_test(test_cold_capture_is_refused_and_stays_valid),
        cmocka_unit_test(test_schedule_in_a_cold_capture_is_refused_alike),
        cmocka_unit_test(test_compiling_in_a_capture_can_be_allowed),
        cmocka_unit_test(test_fresh_process_captures_from_the_disk_cache),
    };
    int failed;
    if (argc == 3 && strcmp(argv[1], "--captures-first") == 0) {
        child_cache = argv[2];
        failed = cmocka_run_group_tests(child_tests, NULL, NULL);
    } else {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    fixture_close();
    return failed ? 1 : 0;
}
