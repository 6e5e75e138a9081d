/* SPDX-License-Identifier: MIT
 *
 * MXFP4's numbers one by one: every E2M1 code at every place of a row, and every scale from 2^-127 to 2^127 on either
 * side, wherever float32 holds the product. Also NaN scales where nothing may read them, and weights that float16 does
 * not hold. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { EXPONENTS = 255, HEADS = 8 };

/* What varies with the request b = 0 .. 254. */
enum sweep { SWEEP_KEYS, SWEEP_QUERIES, SWEEP_BOTH, NUM_SWEEPS };

static const char *const sweep_names[] = {"2^-127 .. 2^127 on keys", "2^-127 .. 2^127 on queries",
                                          "2^-127 .. 2^127 on queries, its inverse on keys"};

static uint8_t key_exponent(enum sweep sweep, int64_t b) {
    return (uint8_t)(sweep == SWEEP_KEYS ? b : sweep == SWEEP_QUERIES ? 127 : 254 - b);
}

static uint8_t query_exponent(enum sweep sweep, int64_t b) {
    return (uint8_t)(sweep == SWEEP_KEYS ? 127 : b);
}

/* The single number of a token that is not zero: its dim and its code. Over all requests every code comes to every dim,
 * zero and negative zero among them. */
static int hot_dim(int head_dim, int64_t b, int64_t p) {
    return (int)((2 * p + p / (head_dim / 2) + 5 * b) % head_dim);
}

static uint8_t hot_code(int64_t b, int64_t p) {
    return (uint8_t)((p + b / 8) % 16);
}

/* Positive codes other than zero, another one at every dim of a row: a wrong dim shows. */
static uint8_t query_code(int dim, int64_t b) {
    return (uint8_t)(1 + (dim * 3 + b) % 7);
}

static void set_nibble(uint8_t *bytes, int dim, uint8_t code) {
    const int shift = 4 * (dim % 2);
    bytes[dim / 2] = (uint8_t)((bytes[dim / 2] & ~(15 << shift)) | code << shift);
}

/* Head 0 holds the query, head 1 its negative, with weights 1 and -2: one of the two is left by ReLU. The other heads
 * weigh nothing. Groups without the hot dim have scales of any size. */
static void write_request(struct logits_data *d, enum sweep sweep, int64_t b) {
    const struct logits_case *c = &d->c;
    uint8_t *q = d->q + b * d->q_request_stride;
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < c->head_dim; i++)
            set_nibble(q + h * d->value_bytes, i, (uint8_t)(query_code(i, b) | (h == 1 ? 8 : 0)));
        d->weights[b * d->weights_stride + h] = h == 0 ? 1.0f : h == 1 ? -2.0f : 0.0f;
        const uint32_t scales = query_exponent(sweep, b) * 0x01010101u;
        memcpy(&d->q_sf[b * d->q_sf_request_stride + h], &scales, sizeof scales);
    }
    const int64_t id = d->tables[b * d->table_stride];
    for (int64_t p = 0; p < c->block_size; p++) {
        uint8_t *k = d->kv + id * d->kv_stride + p * d->value_bytes;
        const int hot = hot_dim(c->head_dim, b, p);
        memset(k, 0, (size_t)d->value_bytes);
        set_nibble(k, hot, hot_code(b, p));
        for (int g = 0; g < d->scale_bytes; g++)
            *fp4_k_scale(d, id, p, g) = (uint8_t)(g == hot / 32 ? key_exponent(sweep, b) : (p * 37 + b + g) % 255);
    }
}

static double expected_logit(int head_dim, enum sweep sweep, int64_t b, int64_t p) {
    const double k = (double)fp4_e2m1(hot_code(b, p)) * fp4_e8m0(key_exponent(sweep, b));
    const double q = (double)fp4_e2m1(query_code(hot_dim(head_dim, b, p), b)) * fp4_e8m0(query_exponent(sweep, b));
    return k > 0 ? q * k : 2 * q * k;
}

static void check_sweep(int head_dim, int block_size, bool interleaved, enum sweep sweep) {
    static int32_t lens[EXPONENTS];
    for (int b = 0; b < EXPONENTS; b++)
        lens[b] = block_size;
    struct logits_case c = {.batch = EXPONENTS,
                            .next_n = 1,
                            .heads = HEADS,
                            .head_dim = head_dim,
                            .block_size = block_size,
                            .sf_interleaved = interleaved,
                            .lens = lens,
                            .out_dtype = ATTNS_DTYPE_F32};
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    for (int64_t b = 0; b < EXPONENTS; b++)
        write_request(&data, sweep, b);
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    int64_t held = 0;
    for (int64_t b = 0; b < EXPONENTS; b++)
        for (int64_t p = 0; p < block_size; p++) {
            const double expected = expected_logit(head_dim, sweep, b, p);
            if (fabs(expected) > (double)FLT_MAX)
                continue;
            held++;
            const double got = logits_image_value(&data, image, b, p);
            if (got != expected)
                fail_msg("D=%d block=%d%s, %s: request %lld, token %lld, dim %d, code %d: got %.9g, expected %.9g",
                         head_dim, block_size, interleaved ? " interleaved" : "", sweep_names[sweep], (long long)b,
                         (long long)p, hot_dim(head_dim, b, p), hot_code(b, p), got, expected);
        }
    assert_true(held >= (EXPONENTS - 6) * block_size); /* 36 * 2^122 and more is what float32 may lack room for */
    free(image);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_every_code_and_scale_d128(void **state) {
    (void)state;
    for (int sweep = 0; sweep < NUM_SWEEPS; sweep++)
        check_sweep(128, 64, false, (enum sweep)sweep);
}

static void test_every_code_and_scale_d64(void **state) {
    (void)state;
    for (int sweep = 0; sweep < NUM_SWEEPS; sweep++)
        check_sweep(64, 64, false, (enum sweep)sweep);
}

/* The order is of the keys' scales: the queries' need no sweep of their own. */
static void test_every_code_and_scale_interleaved(void **state) {
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim *= 2) {
        check_sweep(head_dim, 128, true, SWEEP_KEYS);
        check_sweep(head_dim, 128, true, SWEEP_BOTH);
    }
}

/* The order of the scales changes where they lie, nothing else: the same numbers give the same bits. */
static void test_interleaved_scales_give_the_same_bits(void **state) {
    (void)state;
    for (int head_dim = 64; head_dim <= 128; head_dim *= 2) {
        struct logits_case c = {.batch = 5,
                                .next_n = 2,
                                .heads = 64,
                                .head_dim = head_dim,
                                .block_size = 128,
                                .max_len = 1000,
                                .values = LOGITS_VALUES_ALL_CODES,
                                .seed = next_seed()};
        struct logits_data plain, interleaved;
        struct logits_device dev[2];
        make_data(&plain, &c);
        c.sf_interleaved = true;
        make_data(&interleaved, &c); /* the same seed: the same numbers */
        upload_data(&dev[0], &plain, LOGITS_PLAIN, NULL);
        upload_data(&dev[1], &interleaved, LOGITS_PLAIN, NULL);
        uint8_t *a = call_and_download(&dev[0]), *b = call_and_download(&dev[1]);
        check_image(&plain, a, NULL);
        check_image(&interleaved, b, NULL);
        assert_memory_equal(a, b, plain.out_image_bytes);
        free(a);
        free(b);
        for (int i = 0; i < 2; i++)
            logits_device_free(&dev[i]);
        logits_data_free(&plain);
        logits_data_free(&interleaved);
    }
}

/* Half of the heads weigh 1 + 2^-13, the others -1, and all hold the same query: what is left of a score is what a
 * weight has beyond the 11 bits of a float16. */
static void check_small_differences_of_weights(int next_n, int heads, int32_t out_dtype) {
    struct logits_case c = {.batch = 3,
                            .next_n = next_n,
                            .heads = heads,
                            .head_dim = 128,
                            .block_size = 64,
                            .min_len = 64,
                            .max_len = 64,
                            .out_dtype = out_dtype};
    struct logits_data data;
    struct logits_device dev;
    make_data(&data, &c);
    for (int64_t b = 0; b < c.batch; b++)
        for (int slot = 0; slot < next_n; slot++) {
            uint8_t *q = data.q + b * data.q_request_stride + slot * data.q_slot_stride;
            for (int h = 0; h < heads; h++) {
                for (int i = 0; i < c.head_dim; i++)
                    set_nibble(q + h * data.value_bytes, i, query_code(i, b + slot));
                const uint32_t scales = 127 * 0x01010101u;
                memcpy(&data.q_sf[b * data.q_sf_request_stride + slot * data.q_sf_slot_stride + h], &scales, 4);
                data.weights[(b * next_n + slot) * data.weights_stride + h] = h % 2 == 0 ? 1 + 0x1p-13f : -1;
            }
        }
    for (int64_t b = 0; b < c.batch; b++) {
        const int64_t id = data.tables[b * data.table_stride];
        for (int64_t p = 0; p < c.block_size; p++) {
            memset(data.kv + id * data.kv_stride + p * data.value_bytes, 0, (size_t)data.value_bytes);
            set_nibble(data.kv + id * data.kv_stride + p * data.value_bytes, hot_dim(c.head_dim, b, p), hot_code(b, p));
            for (int g = 0; g < data.scale_bytes; g++)
                *fp4_k_scale(&data, id, p, g) = 127;
        }
    }
    upload_data(&dev, &data, LOGITS_PLAIN, NULL);
    uint8_t *image = call_and_download(&dev);
    for (int64_t row = 0; row < c.batch * next_n; row++)
        for (int64_t p = 0; p < logits_limit(&data, row / next_n, row % next_n); p++) {
            const int64_t b = row / next_n, slot = row % next_n;
            const double k = (double)fp4_e2m1(hot_code(b, p));
            const double q = (double)fp4_e2m1(query_code(hot_dim(c.head_dim, b, p), b + slot));
            const double expected = k > 0 ? q * k * 0x1p-13 * heads / 2 : 0;
            const double got = logits_image_value(&data, image, row, p);
            if (got != expected)
                fail_msg("next_n=%d H=%d: request %lld, slot %lld, token %lld: got %.9g, expected %.9g", next_n, heads,
                         (long long)b, (long long)slot, (long long)p, got, expected);
        }
    free(image);
    logits_device_free(&dev);
    logits_data_free(&data);
}

static void test_weights_have_more_bits_than_float16(void **state) {
    (void)state;
    check_small_differences_of_weights(1, 64, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(2, 64, ATTNS_DTYPE_BF16);
    check_small_differences_of_weights(3, 64, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(4, 64, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(5, 24, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(8, 8, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(2, 128, ATTNS_DTYPE_F16);
    check_small_differences_of_weights(2, 40, ATTNS_DTYPE_F32);
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_and_scale_d128),
        cmocka_unit_test(test_every_code_and_scale_d64),
        cmocka_unit_test(test_every_code_and_scale_interleaved),
        cmocka_unit_test(test_interleaved_scales_give_the_same_bits),
        cmocka_unit_test(test_weights_have_more_bits_than_float16),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
