/* SPDX-License-Identifier: MIT
 *
 * Costs that must not have a cliff. The limits are wide (bench measures performance); what they catch is a share that
 * is not split, a scan that is quadratic, a second pass, or host work that a warm call has no business doing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support.h"

/* ---- Device time ---- */

static double device_seconds(const struct logits_device *dev, bool schedule_alone, int calls) {
    CUevent start, stop;
    float milliseconds = 0;
    double best = 1e9;
    must(fx.gpu.event_create(&start, 0));
    must(fx.gpu.event_create(&stop, 0));
    for (int round = 0; round < 5; round++) {
        must(fx.gpu.event_record(start, fx.stream));
        for (int i = 0; i < calls; i++)
            assert_int_equal(schedule_alone ? logits_queue_schedule(dev, fx.ctx, fx.stream)
                                            : logits_queue_logits(dev, fx.ctx, fx.stream),
                             ATTNS_OK);
        must(fx.gpu.event_record(stop, fx.stream));
        assert_int_equal(gpu_wait_event(&fx.gpu, stop, 30), CUDA_SUCCESS);
        must(fx.gpu.event_elapsed(&milliseconds, start, stop));
        double each = (double)milliseconds * 1e-3 / calls;
        best = each < best ? each : best;
    }
    must(fx.gpu.event_destroy(start));
    must(fx.gpu.event_destroy(stop));
    return best;
}

struct timing {
    double logits, schedule;
};

static struct timing time_case(const struct logits_case *c) {
    struct logits_data data;
    struct logits_device dev;
    struct timing t = {0, 0};
    make_data(&data, c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    struct logits_check_options options = {.max_work = 1e8};
    check_image(&data, image, &options);
    free(image);
    t.logits = device_seconds(&dev, false, 20);
    if (c->num_shares)
        t.schedule = device_seconds(&dev, true, 20);
    logits_device_free(&dev);
    logits_data_free(&data);
    return t;
}

static struct logits_case indexer(int batch, int len) {
    return (struct logits_case){.batch = batch,
                                .next_n = 1,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .min_len = len,
                                .max_len = len,
                                .pool_blocks = 20000};
}

static void test_large_batches_have_no_cliff(void **state) {
    (void)state;
    static const int batches[] = {2048, 4096, 8192, 16384, 32768};
    struct timing last = {0, 0};
    for (int i = 0; i < 5; i++) {
        struct logits_case c = indexer(batches[i], 512);
        struct timing own = time_case(&c);
        c.num_shares = fx.gpu.num_sms;
        struct timing given = time_case(&c);
        print_message("B=%d x 512: %.1f us, with a schedule %.1f us, the schedule %.1f us\n", batches[i],
                      own.logits * 1e6, given.logits * 1e6, given.schedule * 1e6);
        if (last.logits > 0) {
            assert_true(own.logits < 3 * last.logits);
            assert_true(given.schedule < 4 * last.schedule);
        }
        last.logits = own.logits;
        last.schedule = given.schedule;
    }
}

/* The tuned MXFP4 kernel of a GPU without tensor cores for it. */
static bool widens_in_math_warps(void) {
    return fx.variant == ATTNS_VARIANT_FP4 && fx.gpu.compute_capability == 90;
}

static void test_work_is_spread_evenly(void **state) {
    (void)state;
    struct logits_case one = indexer(1, 131072), two = indexer(2, 131072);
    double t1 = time_case(&one).logits, t2 = time_case(&two).logits;
    print_message("128K: B=1 %.1f us, B=2 %.1f us\n", t1 * 1e6, t2 * 1e6);
    assert_true(t2 < 2.2 * t1);

    static int32_t skewed_lens[64], even_lens[64];
    for (int b = 0; b < 64; b++) {
        skewed_lens[b] = b == 17 ? 500000 : 128;
        even_lens[b] = 508064 / 64;
    }
    struct logits_case skewed = indexer(64, 0), even = indexer(64, 0);
    skewed.lens = skewed_lens;
    even.lens = even_lens;
    double ts = time_case(&skewed).logits, te = time_case(&even).logits;
    print_message("508K tokens: one long request %.1f us, evenly %.1f us\n", ts * 1e6, te * 1e6);
    /* A share counts tiles, not requests, and some have 30 short ones. Hopper's MXFP4 kernel widens the queries of each,
     * with all warps and nothing else under way, which takes long against its two tiles: 48.3 us against 19.1 on an
     * H200. */
    assert_true(ts < (widens_in_math_warps() ? 3 : 1.5) * te);
}

/* Of the KV and of the logit. */
static double token_bytes(void) {
    return fx.variant == ATTNS_VARIANT_FP4 ? 64 + 4 + 2 : 128 + 4 + 4;
}

static void test_one_long_request_uses_the_memory_bandwidth(void **state) {
    (void)state;
    enum { TOKENS = 1 << 20 };
    struct logits_case c = indexer(1, TOKENS);
    double t = time_case(&c).logits, bytes = (double)TOKENS * token_bytes();
    /* A copy inside the device moves each byte twice. */
    struct gpu_buffer from, to;
    const size_t size = (size_t)1 << 30;
    CUevent start, stop;
    float milliseconds = 0;
    assert_true(gpu_buffer_alloc(&fx.gpu, &from, size) && gpu_buffer_alloc(&fx.gpu, &to, size));
    must(fx.gpu.event_create(&start, 0));
    must(fx.gpu.event_create(&stop, 0));
    must(fx.gpu.memcpy_dtod_async(to.ptr, from.ptr, size, fx.stream));
    must(fx.gpu.event_record(start, fx.stream));
    for (int i = 0; i < 5; i++)
        must(fx.gpu.memcpy_dtod_async(to.ptr, from.ptr, size, fx.stream));
    must(fx.gpu.event_record(stop, fx.stream));
    must(fx.gpu.event_synchronize(stop));
    must(fx.gpu.event_elapsed(&milliseconds, start, stop));
    double copy = 5 * 2 * (double)size / ((double)milliseconds * 1e-3), own = bytes / t;
    print_message("1M tokens: %.1f us, %.0f GB/s, %.0f %% of a copy's %.0f GB/s\n", t * 1e6, own * 1e-9,
                  100 * own / copy, copy * 1e-9);
    /* Where math warps widen MXFP4 they are the limit, not memory: 57 % on an H200. See templates/README.md. */
    assert_true(own > (widens_in_math_warps() ? 0.5 : 0.6) * copy);
    must(fx.gpu.event_destroy(start));
    must(fx.gpu.event_destroy(stop));
    gpu_buffer_free(&fx.gpu, &from);
    gpu_buffer_free(&fx.gpu, &to);
}

/* ---- Host work ----
 *
 * The linker sends these calls of the library (which is linked statically here) through the counters below. */

static volatile unsigned long counted; /* volatile: compilers know that malloc changes no variable */

#define COUNTED(type, name, params, args)                                                                              \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params {                                                                                        \
        counted++;                                                                                                     \
        return __real_##name args;                                                                                     \
    }

struct stat;
COUNTED(void *, malloc, (size_t n), (n))
COUNTED(void *, calloc, (size_t n, size_t each), (n, each))
COUNTED(void *, realloc, (void *p, size_t n), (p, n))
COUNTED(char *, getenv, (const char *name), (name))
COUNTED(char *, secure_getenv, (const char *name), (name))
COUNTED(int, stat, (const char *path, struct stat *info), (path, info))
COUNTED(int, access, (const char *path, int mode), (path, mode))
COUNTED(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double host_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_warm_calls_do_no_host_work_besides_the_launch(void **state) {
    (void)state;
    enum { CALLS = 10000, BETWEEN_SYNCS = 200 }; /* a full launch queue would make the host wait for the GPU */
    static double seconds[CALLS];
    struct logits_case c = indexer(4, 64);
    c.num_shares = fx.gpu.num_sms;
    struct logits_data data;
    struct logits_device dev;
    attns_counters before, after;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    free(call_and_download(&dev));
    attns_get_counters(fx.ctx, &before);
    counted = 0;
    void *volatile probe = malloc(1);
    free(probe);
    assert_int_equal(counted, 1); /* the counter is in place */
    counted = 0;
    for (int i = 0; i < CALLS; i++) {
        if (i % BETWEEN_SYNCS == 0)
            must(fx.gpu.stream_synchronize(fx.stream));
        double start = host_now();
        attns_status status = logits_call_run(fx.ctx, &dev.call, fx.stream);
        seconds[i] = host_now() - start;
        if (status != ATTNS_OK)
            fail_msg("%s", attns_last_error());
    }
    unsigned long work = counted;
    must(fx.gpu.stream_synchronize(fx.stream));
    attns_get_counters(fx.ctx, &after);
    assert_int_equal(work, 0);
    assert_int_equal(after.memory_hits - before.memory_hits, CALLS);
    assert_int_equal(after.module_loads, before.module_loads);
    qsort(seconds, CALLS, sizeof *seconds, ascending);
    print_message("a warm call takes the host %.2f us (median), %.2f us (99 of 100)\n", seconds[CALLS / 2] * 1e6,
                  seconds[CALLS / 100 * 99] * 1e6);
    assert_true(seconds[CALLS / 2] < 10e-6);
    logits_device_free(&dev);
    logits_data_free(&data);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_batches_have_no_cliff),
        cmocka_unit_test(test_work_is_spread_evenly),
        cmocka_unit_test(test_one_long_request_uses_the_memory_bandwidth),
        cmocka_unit_test(test_warm_calls_do_no_host_work_besides_the_launch),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
