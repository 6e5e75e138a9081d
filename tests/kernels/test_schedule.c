/* SPDX-License-Identifier: MIT
 *
 * The schedule: its bits against a model, batches of every size, and schedules that do not belong to the call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Row i of a schedule for lens: the request and its tile (of 64 tokens) where share i of the work starts. */
static void model(const int64_t *lens, int batch, int shares, int32_t *meta) {
    int64_t total = 0;
    for (int b = 0; b < batch; b++)
        total += lens[b] > 0 ? (lens[b] + 63) / 64 : 0;
    int b = 0;
    int64_t before = 0;
    for (int i = 0; i <= shares; i++) {
        int64_t target = total / shares * i + total % shares * i / shares;
        for (; b < batch; b++) {
            int64_t tiles = lens[b] > 0 ? (lens[b] + 63) / 64 : 0;
            if (target < before + tiles)
                break;
            before += tiles;
        }
        meta[2 * i] = target == total ? batch : b;
        meta[2 * i + 1] = target == total ? 0 : (int32_t)(target - before);
    }
}

enum length_kind { ALL_ZERO, HALF_ZERO, RANDOM, HOSTILE, ONE_LONG, ALL_MAX, NUM_KINDS };

static int32_t length_of(struct rng *r, enum length_kind kind, int b) {
    static const int32_t hostile[] = {INT32_MIN, -1, 0, 1, 63, 64, 65, 1 << 20, INT32_MAX};
    switch (kind) {
    case ALL_ZERO:
        return 0;
    case HALF_ZERO:
        return b % 2 ? 0 : (int32_t)rng_range(r, 1, 500);
    case HOSTILE:
        return hostile[rng_below(r, 9)];
    case ALL_MAX:
        return INT32_MAX;
    case ONE_LONG:
        return b == 5 ? 1000000 : 70;
    default:
        return (int32_t)rng_range(r, 0, 5000);
    }
}

/* One schedule on the GPU and on the CPU, from the same strided lens; both must have the bits of the model. */
static void check_schedule(int batch, int slots, int shares, enum length_kind kind) {
    struct rng r = rng_make(next_seed());
    int64_t stride = 1 + rng_below(&r, 3), request_stride = slots * stride + rng_below(&r, 4);
    if (slots == 1)
        request_stride = stride;
    size_t entries = (size_t)((batch - 1) * request_stride + (slots - 1) * stride + 1);
    size_t meta_bytes = (size_t)(shares + 1) * 8, guard = 256;
    int32_t *lens = malloc(entries * 4), *expected = malloc(meta_bytes), *host = malloc(meta_bytes);
    int64_t *longest = calloc((size_t)batch, sizeof *longest);
    uint8_t *image = malloc(meta_bytes + 2 * guard);
    assert_true(lens && expected && host && longest && image);
    memset(lens, 0x11, entries * 4);
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < slots; t++) {
            int32_t len = length_of(&r, kind, b);
            lens[b * request_stride + t * stride] = len;
            longest[b] = len > longest[b] ? len : longest[b];
        }
    model(longest, batch, shares, expected);

    struct gpu_buffer lens_buffer, meta_buffer;
    assert_true(gpu_buffer_alloc_guarded(&fx.gpu, &lens_buffer, entries * 4, GPU_FLUSH_END));
    assert_true(gpu_buffer_alloc(&fx.gpu, &meta_buffer, meta_bytes + 2 * guard));
    must(fx.gpu.memcpy_htod(lens_buffer.ptr, lens, entries * 4));
    must(fx.gpu.memset_d8(meta_buffer.ptr, 0xc7, meta_bytes + 2 * guard));
    must(fx.gpu.ctx_synchronize());

    int64_t lens_shape[2] = {batch, slots}, lens_strides[2] = {request_stride, stride}, meta_shape[2] = {shares + 1, 2};
    DLDataType int32 = {kDLInt, 32, 1};
    DLTensor lens_tensor = {.data = (void *)(uintptr_t)lens_buffer.ptr,
                            .device = {kDLCUDA, fx.gpu.ordinal},
                            .ndim = slots == 1 ? 1 : 2,
                            .dtype = int32,
                            .shape = lens_shape,
                            .strides = lens_strides};
    DLTensor meta_tensor = {.data = (void *)(uintptr_t)(meta_buffer.ptr + guard),
                            .device = {kDLCUDA, fx.gpu.ordinal},
                            .ndim = 2,
                            .dtype = int32,
                            .shape = meta_shape};
    attns_schedule_params p = {.seq_lens = &lens_tensor, .schedule_meta = &meta_tensor, .next_n = slots};
    if (attns_compute_paged_mqa_logits_schedule(fx.ctx, &p, fx.stream) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    assert_int_equal(gpu_wait_stream(&fx.gpu, fx.stream, 5), CUDA_SUCCESS);
    must(fx.gpu.memcpy_dtoh(image, meta_buffer.ptr, meta_bytes + 2 * guard));
    for (size_t i = 0; i < guard; i++)
        assert_true(image[i] == 0xc7 && image[guard + meta_bytes + i] == 0xc7);

    lens_tensor.data = lens;
    lens_tensor.device.device_type = meta_tensor.device.device_type = kDLCPU;
    lens_tensor.device.device_id = meta_tensor.device.device_id = 0;
    meta_tensor.data = host;
    if (attns_compute_paged_mqa_logits_schedule(NULL, &p, NULL) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    if (memcmp(host, expected, meta_bytes) || memcmp(image + guard, expected, meta_bytes)) {
        const int32_t *device = (const int32_t *)(const void *)(image + guard);
        for (int i = 0; i <= shares; i++)
            if (memcmp(host + 2 * i, expected + 2 * i, 8) || memcmp(device + 2 * i, expected + 2 * i, 8))
                fail_msg("B=%d slots=%d shares=%d lens kind %d: row %d is {%d, %d} on the GPU, {%d, %d} on the CPU, "
                         "{%d, %d} expected",
                         batch, slots, shares, (int)kind, i, device[2 * i], device[2 * i + 1], host[2 * i],
                         host[2 * i + 1], expected[2 * i], expected[2 * i + 1]);
    }
    gpu_buffer_free(&fx.gpu, &lens_buffer);
    gpu_buffer_free(&fx.gpu, &meta_buffer);
    free(lens);
    free(expected);
    free(host);
    free(longest);
    free(image);
}

static void test_bits_equal_a_model_on_gpu_and_cpu(void **state) {
    (void)state;
    static const int batches[] = {1, 2, 8, 31, 32, 33, 64, 250, 256, 2048, 4096, 16385, 32768};
    static const int shares[] = {1, 2, 78, 132, 133, 1000};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            size_t s = (b + (size_t)kind) % 6;
            check_schedule(batches[b], 1, shares[s], (enum length_kind)kind);
            check_schedule(batches[b], 1, 132, (enum length_kind)kind);
            check_schedule(batches[b], 1 + (int)((b + (size_t)kind) % 8), shares[(s + 3) % 6], (enum length_kind)kind);
        }
}

/* Lengths of zero everywhere or in between, in batches around multiples of the warp. */
static void test_zero_lengths_in_batches_of_every_size(void **state) {
    (void)state;
    /* The last: more than 32 chunks of requests. */
    const int batches[] = {1, 8, 31, 32, 33, 64, 250, 256, software_gpu() ? 1056 : 2048};
    static int32_t lens[2048];
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        for (int half = 0; half < 2; half++)
            for (int shares = 0; shares <= 132; shares += 132)
                for (int clean = 0; clean < 2; clean++) {
                    for (int b = 0; b < batches[i]; b++)
                        lens[b] = half && b % 2 ? 100 + b % 50 : 0;
                    struct logits_case c = {.batch = batches[i],
                                            .next_n = 1 + clean,
                                            .heads = 64,
                                            .head_dim = 128,
                                            .block_size = 64,
                                            .lens = lens,
                                            .max_seq_len = 160,
                                            .num_shares = shares,
                                            .clean = clean};
                    static const struct logits_check_options options = {.max_work = 1e8};
                    run_case_with(&c, LOGITS_PLAIN, &options);
                }
}

static void test_large_batches_are_right(void **state) {
    (void)state;
    static const int batches[] = {4096, 8192, 12896, 16384, 32768};
    for (int i = 0; i < 5; i++) {
        struct logits_case c = {.batch = batches[i],
                                .next_n = 1,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .min_len = 3900,
                                .max_len = 4096,
                                .max_seq_len = 4096,
                                .pool_blocks = 3000,
                                .num_shares = i % 2 ? fx.gpu.num_sms : 0,
                                .out_dtype = i == 4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32};
        struct logits_check_options options = {.max_work = 4e8};
        run_case_with(&c, LOGITS_PLAIN, &options);
    }
}

/* More requests than the kernel's chunks of 32 can hold one by one, mostly empty, lengths where chunks meet. */
static void test_sparse_huge_batch(void **state) {
    (void)state;
    enum { BATCH = 40000 };
    int32_t *lens = calloc(BATCH, sizeof *lens);
    assert_non_null(lens);
    struct rng r = rng_make(next_seed());
    for (int i = 0; i < 300; i++)
        lens[rng_below(&r, BATCH)] = (int32_t)rng_range(&r, 1, 700);
    for (int b = 31; b < BATCH; b += 2048)
        lens[b] = lens[b + 1] = 65;
    struct logits_case c = {
        .batch = BATCH, .next_n = 1, .heads = 32, .head_dim = 64, .block_size = 32, .lens = lens, .max_seq_len = 700};
    struct logits_check_options options = {.max_work = 4e8};
    run_case_with(&c, LOGITS_PLAIN, &options);
    c.num_shares = 132;
    run_case_with(&c, LOGITS_PLAIN, &options);
    free(lens);
}

/* ---- Schedules that belong to another call ---- */

/* Calls with this content of schedule_meta: within 5 s, nothing stray, everything that is written right. */
static void call_with_meta(struct logits_device *dev, const int32_t *meta, int shares, const char *what) {
    must(fx.gpu.memcpy_htod(dev->meta.ptr, meta, (size_t)(shares + 1) * 8));
    assert_true(logits_poison(dev, fx.stream));
    dev->tensors.meta_shape[0] = shares + 1;
    assert_int_equal(logits_queue_logits(dev, fx.ctx, fx.stream), ATTNS_OK);
    CUresult waited = gpu_wait_stream(&fx.gpu, fx.stream, 5);
    if (waited != CUDA_SUCCESS)
        fail_msg("schedule '%s' of %d shares: %s", what, shares,
                 waited == CUDA_ERROR_NOT_READY ? "the kernel hangs" : "the kernel faults");
    uint8_t *image = logits_download(dev, fx.stream);
    assert_non_null(image);
    struct logits_report report;
    struct logits_check_options options = {.partial = true, .max_work = 1e8};
    if (!logits_check(dev->data, image, &options, &report)) {
        logits_report_print(&report, what);
        fail_msg("wrong output with schedule '%s' of %d shares", what, shares);
    }
    free(image);
}

static void test_foreign_schedules_neither_hang_nor_stray(void **state) {
    (void)state;
    enum { MAX_SHARES = 500 };
    static const int share_counts[] = {1, 7, 132, MAX_SHARES};
    static int32_t meta[2 * (MAX_SHARES + 1)];
    struct rng r = rng_make(next_seed());
    for (int n = 1; n <= 4; n += 3) {
        struct logits_case c = {.batch = 6,
                                .next_n = n,
                                .heads = 32,
                                .head_dim = 64,
                                .block_size = 64,
                                .max_len = 2500,
                                .clean = n == 4,
                                .num_shares = MAX_SHARES};
        struct logits_data data;
        struct logits_device dev;
        make_data(&data, &c);
        upload_data(&dev, &data, LOGITS_PLAIN, NULL);
        for (int k = 0; k < 4; k++) {
            int shares = share_counts[k];
            static const int other_batches[] = {1, 3, 40, 5000};
            for (int o = 0; o < 4; o++) {
                static int64_t lens[5000];
                for (int b = 0; b < other_batches[o]; b++)
                    lens[b] = rng_range(&r, 0, 6000);
                model(lens, other_batches[o], shares, meta);
                call_with_meta(&dev, meta, shares, "of another batch");
            }
            static const int32_t extremes[] = {INT32_MIN, INT32_MIN + 1, -1, 0, 1, 5, 6, 7, INT32_MAX - 1, INT32_MAX};
            for (int e = 0; e < 10; e++) {
                for (int i = 0; i < 2 * (shares + 1); i++)
                    meta[i] = extremes[e];
                call_with_meta(&dev, meta, shares, "one extreme value");
            }
            for (int round = 0; round < 12; round++) {
                for (int i = 0; i < 2 * (shares + 1); i++)
                    meta[i] = round % 3 == 0   ? extremes[rng_below(&r, 10)]
                              : round % 3 == 1 ? (int32_t)rng_next(&r)
                                               : (int32_t)rng_range(&r, -3, 45);
                call_with_meta(&dev, meta, shares,
                               round % 3 == 0   ? "random extremes"
                               : round % 3 == 1 ? "random bits"
                                                : "random small numbers");
            }
            for (int i = 0; i <= shares; i++) {
                meta[2 * i] = 6 - 6 * i / shares; /* backwards */
                meta[2 * i + 1] = i;
            }
            call_with_meta(&dev, meta, shares, "backwards");
        }
        logits_device_free(&dev);
        logits_data_free(&data);
    }
}

/* A schedule made for lengths that have since changed. */
static void test_stale_schedule_costs_at_most_missing_work(void **state) {
    (void)state;
    struct logits_case c = {.batch = 40,
                            .next_n = 2,
                            .heads = 64,
                            .head_dim = 128,
                            .block_size = 64,
                            .max_len = software_gpu() ? 500 : 1200,
                            .num_shares = fx.gpu.num_sms};
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    int64_t lens[40];
    int32_t *meta = malloc((size_t)(c.num_shares + 1) * 8);
    assert_non_null(meta);
    for (int round = 0; round < 8; round++) {
        struct rng r = rng_make(next_seed());
        for (int b = 0; b < 40; b++)
            lens[b] = round < 2 ? *logits_len(&data, b, 0) + round : rng_range(&r, 0, round < 5 ? 100 : 100000);
        model(lens, 40, c.num_shares, meta);
        call_with_meta(&dev, meta, c.num_shares, "of earlier lengths");
    }
    free(meta);
    logits_device_free(&dev);
    logits_data_free(&data);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_equal_a_model_on_gpu_and_cpu),
        cmocka_unit_test(test_zero_lengths_in_batches_of_every_size),
        cmocka_unit_test(test_large_batches_are_right),
        cmocka_unit_test(test_sparse_huge_batch),
        cmocka_unit_test(test_foreign_schedules_neither_hang_nor_stray),
        cmocka_unit_test(test_stale_schedule_costs_at_most_missing_work),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
