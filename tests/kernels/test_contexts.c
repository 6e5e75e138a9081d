/* SPDX-License-Identifier: MIT
 *
 * Library contexts, CUDA contexts, threads and streams in every combination that a server may bring, and serving
 * without NVRTC. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static const struct logits_case usual = {
    .batch = 6, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 700};

/* Runs the usual case on a stream of the CUDA context `owner`, with `current` current on the calling thread. */
static void run_in(attns_context *ctx, CUcontext owner, CUcontext current, const struct logits_case *c) {
    struct logits_data data;
    struct logits_device dev;
    CUstream stream;
    CUcontext found;
    must(fx.gpu.ctx_set_current(owner));
    make_data(&data, c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    must(fx.gpu.stream_create(&stream, CU_STREAM_NON_BLOCKING));
    must(fx.gpu.ctx_set_current(current));
    assert_int_equal(logits_queue(&dev, ctx, stream), ATTNS_OK);
    must(fx.gpu.ctx_get_current(&found));
    assert_ptr_equal(found, current);
    must(fx.gpu.ctx_set_current(owner));
    uint8_t *image = logits_download(&dev, stream);
    assert_non_null(image);
    check_image(&data, image, NULL);
    free(image);
    must(fx.gpu.stream_destroy(stream));
    logits_device_free(&dev);
    logits_data_free(&data);
}

/* A new CUDA context that is not on this thread's stack of contexts, so that setting NULL leaves none current. */
static CUcontext make_cuda_context(void) {
    CUcontext made, popped;
    must(fx.gpu.ctx_create(&made, 0, fx.gpu.device));
    must(fx.gpu.ctx_pop(&popped));
    assert_ptr_equal(popped, made);
    return made;
}

static void test_two_cuda_contexts_on_one_device(void **state) {
    (void)state;
    CUcontext second = make_cuda_context();
    struct logits_case c = usual;
    for (int round = 0; round < 3; round++) {
        c.num_shares = round == 1 ? 132 : 0;
        run_in(fx.ctx, second, second, &c);
        run_in(fx.ctx, fx.gpu.context, fx.gpu.context, &c);
        run_in(fx.ctx, second, fx.gpu.context, &c); /* the stream's context counts, not the current one */
        run_in(fx.ctx, fx.gpu.context, second, &c);
        run_in(fx.ctx, second, NULL, &c);
        run_in(fx.ctx, fx.gpu.context, NULL, &c);
    }
    must(fx.gpu.ctx_set_current(fx.gpu.context));
    must(fx.gpu.ctx_destroy(second));
    run_in(fx.ctx, fx.gpu.context, fx.gpu.context, &c);
}

static void test_cuda_context_destroyed_and_recreated(void **state) {
    (void)state;
    for (int round = 0; round < 4; round++) {
        CUcontext passing = make_cuda_context();
        run_in(fx.ctx, passing, passing, &usual);
        must(fx.gpu.ctx_set_current(fx.gpu.context));
        must(fx.gpu.ctx_destroy(passing));
        must(fx.gpu.ctx_set_current(fx.gpu.context));
    }
}

static void test_library_context_destroyed_and_recreated(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        attns_context *ctx = make_context(NULL, NULL, NULL);
        attns_counters counters;
        run_in(ctx, fx.gpu.context, fx.gpu.context, &usual);
        run_in(ctx, fx.gpu.context, fx.gpu.context, &usual);
        attns_get_counters(ctx, &counters);
        assert_int_equal(counters.module_loads, 1);
        assert_int_equal(counters.memory_hits, 1);
        assert_int_equal(counters.compiles + counters.disk_hits, 1);
        attns_context_destroy(ctx);
    }
}

static void test_legacy_default_stream(void **state) {
    (void)state;
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &usual);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    assert_int_equal(logits_queue(&dev, fx.ctx, NULL), ATTNS_OK);
    uint8_t *image = logits_download(&dev, NULL);
    assert_non_null(image);
    check_image(&data, image, NULL);
    free(image);
    logits_device_free(&dev);
    logits_data_free(&data);
}

/* ---- Threads ---- */

#define THREADS 8

struct worker {
    attns_context *ctx;
    CUcontext cuda_context;
    int number;
    uint64_t seed;
    bool ok;
};

static struct logits_case case_of_worker(int number, int round) {
    struct logits_case c = usual;
    c.next_n = 1 + (number + round) % 4; /* kernels in common with the others, in another order */
    c.num_shares = (number + round) % 3 == 0 ? 132 : 0;
    return c;
}

/* No assertions here: they belong to the main thread. */
static void *work(void *argument) {
    struct worker *w = argument;
    struct rng r = rng_make(w->seed);
    CUstream stream = NULL;
    w->ok = gpu_ok(&fx.gpu, fx.gpu.ctx_set_current(w->cuda_context), "cuCtxSetCurrent") &&
            gpu_ok(&fx.gpu, fx.gpu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const int rounds = software_gpu() ? 4 : 12; /* slow, and each kernel once is enough to meet the other threads */
    for (int round = 0; w->ok && round < rounds; round++) {
        struct logits_case c = case_of_worker(w->number, round);
        struct logits_check_options options = {.max_work = 5e7};
        c.seed = rng_next(&r);
        w->ok = logits_run_case(&fx.gpu, w->ctx, stream, &c, LOGITS_PLAIN, &options, NULL);
    }
    if (stream)
        fx.gpu.stream_destroy(stream);
    return NULL;
}

static void run_threads(attns_context *ctx, CUcontext even, CUcontext odd) {
    pthread_t ids[THREADS];
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.ctx = ctx, .cuda_context = i % 2 ? odd : even, .number = i, .seed = next_seed()};
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    bool ok = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        ok = ok && workers[i].ok;
    }
    assert_true(ok);
}

static void test_threads_with_their_own_streams(void **state) {
    (void)state;
    attns_context *cold = make_context("", NULL, NULL);
    attns_counters counters;
    run_threads(cold, fx.gpu.context, fx.gpu.context);
    attns_get_counters(cold, &counters);
    assert_int_equal(counters.compiles, 5); /* next_n 1..4 and the schedule, each once */
    attns_context_destroy(cold);
}

static void test_threads_over_two_cuda_contexts(void **state) {
    (void)state;
    CUcontext second = make_cuda_context();
    must(fx.gpu.ctx_set_current(fx.gpu.context));
    run_threads(fx.ctx, fx.gpu.context, second);
    must(fx.gpu.ctx_destroy(second));
    must(fx.gpu.ctx_set_current(fx.gpu.context));
}

/* ---- Without NVRTC ---- */

static void test_warm_cache_serves_without_nvrtc(void **state) {
    (void)state;
    char *folder = make_folder();
    attns_context_params p = {.cache_dir = folder};
    struct logits_case c = usual;
    c.variant = fx.variant;
    c.num_shares = 132;
    assert_true(logits_precompile(&p, &c, 1));

    attns_context *ctx = make_context(folder, "/nonexistent/libnvrtc.so", NULL);
    attns_counters counters;
    run_in(ctx, fx.gpu.context, fx.gpu.context, &c);
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.compiles, 0);
    assert_int_equal(counters.disk_hits, 2);

    /* A kernel that is not there: refused with the name of what is missing, and nothing else suffers. */
    struct logits_data data;
    struct logits_device dev;
    struct logits_case other = usual;
    other.heads = 88;
    make_data(&data, &other);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    assert_int_equal(logits_call_run(ctx, &dev.call, fx.stream), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_non_null(strstr(attns_last_error(), "/nonexistent/libnvrtc.so"));
    logits_device_free(&dev);
    logits_data_free(&data);
    run_in(ctx, fx.gpu.context, fx.gpu.context, &c);
    attns_context_destroy(ctx);

    /* The same folder as a read-only tier. */
    attns_context_params readonly = {
        .cache_dir = "", .cache_readonly_dirs = folder, .libnvrtc_path = "/nonexistent/libnvrtc.so"};
    assert_int_equal(attns_context_create(&ctx, &readonly), ATTNS_OK);
    run_in(ctx, fx.gpu.context, fx.gpu.context, &c);
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.disk_hits, 2);
    attns_context_destroy(ctx);
    remove_folder(folder);
    free(folder);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_cuda_contexts_on_one_device),
        cmocka_unit_test(test_cuda_context_destroyed_and_recreated),
        cmocka_unit_test(test_library_context_destroyed_and_recreated),
        cmocka_unit_test(test_legacy_default_stream),
        cmocka_unit_test(test_threads_with_their_own_streams),
        cmocka_unit_test(test_threads_over_two_cuda_contexts),
        cmocka_unit_test(test_warm_cache_serves_without_nvrtc),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
