/* SPDX-License-Identifier: MIT
 *
 * The harness tested: it must accept right outputs, among them outputs with the rounding of Hopper's tensor cores, and
 * object to every kind of wrong one. Needs no GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random_case.h"
#include "common/recompute.h"
#include "support.h"

static struct rng rng;

/* ---- Outputs to judge ---- */

/* Exponent of a number as tensor cores align it: no less than `smallest`, that of the smallest normal one. */
static int exponent_of(double x, int smallest) {
    int exponent;
    frexp(x, &exponent);
    return exponent - 1 > smallest ? exponent - 1 : smallest;
}

/* Drops what lies below 2^-13 of the largest exponent among the terms of one K step, towards zero. */
static double truncated(double x, int largest_exponent) {
    double unit = ldexp(1, largest_exponent - 13);
    return trunc(x / unit) * unit;
}

/* The dot product as Hopper's FP8 tensor core forms it, bit by bit: the software GPU agrees with a recording of an H200
 * (tests/ptxsim/probes) with the same sums. */
static double hopper_dot(const float *q, const float *k, int dims) {
    double acc = 0;
    for (int d0 = 0; d0 < dims; d0 += 32) {
        int largest = acc != 0 ? exponent_of(acc, -126) : -1000;
        for (int i = d0; i < d0 + 32; i++) {
            if (q[i] == 0 || k[i] == 0)
                continue;
            int exponent = exponent_of((double)q[i], -6) + exponent_of((double)k[i], -6);
            largest = exponent > largest ? exponent : largest;
        }
        double sum = truncated(acc, largest);
        for (int i = d0; i < d0 + 32; i++)
            sum += truncated((double)(q[i] * k[i]), largest);
        acc = sum != 0 ? truncated(sum, exponent_of(sum, -126)) : 0;
    }
    return acc;
}

/* What a Hopper kernel would write: tensor core as above, epilogue in float32. */
static uint8_t *hopper_image(const struct logits_data *d) {
    const struct logits_case *c = &d->c;
    uint8_t *image = reference_image(d); /* for what is not a logit */
    float q[128], k[128];
    for (int64_t row = 0; row < (int64_t)c->batch * c->next_n; row++) {
        int64_t b = row / c->next_n, t = row % c->next_n;
        for (int64_t p = 0; p < logits_limit(d, b, t); p++) {
            int64_t id = d->tables[b * d->table_stride + p / c->block_size];
            const uint8_t *from = d->kv + id * d->kv_stride + p % c->block_size * c->head_dim;
            for (int i = 0; i < c->head_dim; i++)
                k[i] = fp8_e4m3(from[i]);
            float sum = 0;
            for (int h = 0; h < c->heads; h++) {
                const uint8_t *codes = d->q + b * d->q_request_stride + t * d->q_slot_stride + h * c->head_dim;
                for (int i = 0; i < c->head_dim; i++)
                    q[i] = fp8_e4m3(codes[i]);
                float dot = (float)hopper_dot(q, k, c->head_dim);
                sum = fmaf(d->weights[row * d->weights_stride + h], dot > 0 ? dot : 0, sum);
            }
            put_value(d, image, row, p, (double)(sum * logits_token_scale(d, id, p % c->block_size)));
        }
    }
    return image;
}

static void make(struct logits_data *d, struct logits_case c) {
    c.seed = rng_next(&rng);
    assert_true(logits_data_make(d, &c));
}

static bool accepts(const struct logits_data *d, const uint8_t *image, struct logits_report *r) {
    static struct logits_report unused;
    return logits_check(d, image, NULL, r ? r : &unused);
}

/* ---- Tests ---- */

static void test_reference_agrees_with_a_second_opinion(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct logits_case c;
        struct logits_data d;
        struct recompute_report r;
        memset(&c, 0, sizeof c);
        logits_random_shape(&rng, &c);
        logits_random_layout(&rng, &c, 40);
        assert_true(logits_data_make(&d, &c));
        bool ok = logits_recompute_check(&d, &r);
        if (!ok)
            fail_msg("%llu wrong, %llu stray: %s", (unsigned long long)r.wrong, (unsigned long long)r.stray, r.first);
        logits_data_free(&d);
    }
}

static void test_reference_output_is_accepted(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct logits_case c;
        struct logits_data d;
        struct logits_report r;
        memset(&c, 0, sizeof c);
        logits_random_shape(&rng, &c);
        logits_random_layout(&rng, &c, 300);
        assert_true(logits_data_make(&d, &c));
        uint8_t *image = reference_image(&d);
        if (!accepts(&d, image, &r)) {
            char text[400];
            logits_report_print(&r, logits_case_text(&c, text, sizeof text));
            fail_msg("a right output was refused");
        }
        assert_true(r.compared == r.owned);
        free(image);
        logits_data_free(&d);
    }
}

/* The model of the tensor core must pass, with room below the limit of the deviation. */
static void test_hopper_rounding_is_accepted(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128};
    double worst = 0, deviation = 0;
    for (int values = 0; values < 2; values++)
        for (int i = 0; i < 3; i++)
            for (int heads = 8; heads <= 64; heads += 56) {
                struct logits_data d;
                struct logits_report r;
                make(&d, (struct logits_case){.batch = 2,
                                              .next_n = 2,
                                              .heads = heads,
                                              .head_dim = dims[i],
                                              .block_size = 32,
                                              .max_len = 150,
                                              .values = values ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE});
                uint8_t *image = hopper_image(&d);
                if (!accepts(&d, image, &r)) {
                    logits_report_print(&r, "modelled tensor core");
                    fail_msg("the rounding of the hardware was refused");
                }
                worst = fmax(worst, r.worst);
                deviation = fmax(deviation, r.deviation);
                free(image);
                logits_data_free(&d);
            }
    printf("modelled tensor core: worst %.3g of tolerance, deviation %.3g\n", worst, deviation);
    assert_true(deviation < 2e-7);
    assert_true(worst > 0);
}

/* One product with a subnormal factor, whose exponent is far above its magnitude, makes the tensor core drop all
 * others; the bound is little more than that. */
static void test_rounding_below_subnormal_factors_is_accepted(void **state) {
    (void)state;
    struct logits_data d;
    struct logits_report r;
    make(&d, (struct logits_case){
                 .batch = 1, .next_n = 1, .heads = 8, .head_dim = 32, .block_size = 16, .min_len = 1, .max_len = 40});
    for (int h = 0; h < d.c.heads; h++) {
        memset(d.q + h * d.c.head_dim, 0x0f, (size_t)d.c.head_dim); /* 1.875 2^-6 */
        d.q[h * d.c.head_dim] = 0x78;                               /* 2^8 */
        d.weights[h] = 1;
    }
    for (int64_t p = 0; p < logits_limit(&d, 0, 0); p++) {
        uint8_t *k = d.kv + d.tables[p / d.c.block_size] * d.kv_stride + p % d.c.block_size * d.c.head_dim;
        memset(k, 0x08, (size_t)d.c.head_dim); /* 2^-6 */
        k[0] = 0x01;                           /* 2^-9 */
    }
    uint8_t *image = hopper_image(&d);
    accepts(&d, image, &r);
    assert_int_equal(r.wrong, 0);
    assert_true(r.worst > 0.8);
    free(image);
    logits_data_free(&d);
}

static const struct logits_case plain = {
    .batch = 3, .next_n = 2, .heads = 16, .head_dim = 64, .block_size = 16, .min_len = 20, .max_len = 90, .out_pad = 5};

/* Applies one fault to a right output. */
typedef void (*fault_fn)(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column);

static void nan_value(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    put_value(d, image, row, column, NAN);
}
static void infinity_value(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    put_value(d, image, row, column, INFINITY);
}
/* |s| sum |w| sum |q k| of one element. */
static double absolute_sum(const struct logits_data *d, int64_t row, int64_t p) {
    const struct logits_case *c = &d->c;
    int64_t b = row / c->next_n, t = row % c->next_n, id = d->tables[b * d->table_stride + p / c->block_size];
    const uint8_t *k = d->kv + id * d->kv_stride + p % c->block_size * c->head_dim;
    const uint8_t *q = d->q + b * d->q_request_stride + t * d->q_slot_stride;
    double sum = 0;
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < c->head_dim; i++)
            sum += fabs(
                (double)(d->weights[row * d->weights_stride + h] * fp8_e4m3(q[h * c->head_dim + i]) * fp8_e4m3(k[i])));
    return sum * fabs((double)logits_token_scale(d, id, p % c->block_size));
}
static void off_by_a_fiftieth(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    put_value(d, image, row, column, logits_image_value(d, image, row, column) + absolute_sum(d, row, column) / 50);
}
static void wrong_sign(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    double value = logits_image_value(d, image, row, column), more = absolute_sum(d, row, column) / 50;
    put_value(d, image, row, column, value > 0 ? -value - more : -value + more);
}
static void unwritten(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    size_t at = logits_image_at(d, row, column);
    uint8_t *poison = logits_image_make(d);
    memcpy(image + at, poison + at, d->out_element_bytes);
    free(poison);
}
static void past_the_limit(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    (void)column;
    int64_t limit = logits_limit(d, row / d->c.next_n, row % d->c.next_n);
    put_value(d, image, row, limit, 0);
}
static void in_the_row_padding(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    (void)column;
    put_value(d, image, row, d->out_stride - 1, 1.5);
}
static void before_the_first_row(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    (void)row, (void)column;
    image[d->out_front_bytes - 1] ^= 1;
}
static void after_the_last_row(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    (void)row, (void)column;
    image[d->out_image_bytes - LOGITS_GUARD_BYTES] ^= 0x80;
}
static void last_byte_of_the_band(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    (void)row, (void)column;
    image[d->out_image_bytes - 1] ^= 0x40;
}
/* The largest of a row: its scale is the largest, its neighbours' are 2^7 and 2^10 times smaller. */
static void neighbours_swapped(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column) {
    for (int64_t p = 0; p < logits_limit(d, row / d->c.next_n, row % d->c.next_n); p++)
        if (fabs(logits_image_value(d, image, row, p)) > fabs(logits_image_value(d, image, row, column)))
            column = p;
    int64_t other = column ? column - 1 : column + 1;
    double a = logits_image_value(d, image, row, column), b = logits_image_value(d, image, row, other);
    put_value(d, image, row, column, b);
    put_value(d, image, row, other, a);
}

static void test_every_fault_is_found(void **state) {
    (void)state;
    static const struct {
        const char *name;
        fault_fn plant;
    } faults[] = {
        {"NaN", nan_value},
        {"infinity", infinity_value},
        {"off by a fiftieth of the sum of absolute terms", off_by_a_fiftieth},
        {"wrong sign", wrong_sign},
        {"not written", unwritten},
        {"one column past the limit", past_the_limit},
        {"row padding", in_the_row_padding},
        {"before the first row", before_the_first_row},
        {"after the last row", after_the_last_row},
        {"last byte of the guard band", last_byte_of_the_band},
        {"tokens swapped", neighbours_swapped},
    };
    static const attns_dtype dtypes[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        struct logits_data d;
        struct logits_case c = plain;
        c.out_dtype = dtypes[i];
        make(&d, c);
        uint8_t *right = reference_image(&d), *image = malloc(d.out_image_bytes);
        assert_non_null(image);
        assert_true(accepts(&d, right, NULL));
        for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
            for (int round = 0; round < 8; round++) {
                int64_t row = rng_below(&rng, 6), limit = logits_limit(&d, row / 2, row % 2);
                memcpy(image, right, d.out_image_bytes);
                faults[f].plant(&d, image, row, rng_below(&rng, limit));
                if (accepts(&d, image, NULL))
                    fail_msg("not found: %s (output dtype %d)", faults[f].name, (int)dtypes[i]);
            }
        free(right);
        free(image);
        logits_data_free(&d);
    }
}

static void test_clean_region_must_be_minus_infinity(void **state) {
    (void)state;
    struct logits_case c = plain;
    c.clean = true;
    c.max_seq_len = 100;
    c.out_extra = 3;
    struct logits_data d;
    make(&d, c);
    uint8_t *image = reference_image(&d);
    assert_true(accepts(&d, image, NULL));
    int64_t limit = logits_limit(&d, 1, 1);
    static const double wrong[] = {INFINITY, NAN, -3e38, 0};
    for (size_t i = 0; i < 4; i++) {
        put_value(&d, image, 3, i % 2 ? limit : 99, wrong[i]);
        assert_false(accepts(&d, image, NULL));
        put_value(&d, image, 3, i % 2 ? limit : 99, -INFINITY);
        assert_true(accepts(&d, image, NULL));
    }
    put_value(&d, image, 3, 100, -INFINITY); /* one column too many */
    assert_false(accepts(&d, image, NULL));
    free(image);
    logits_data_free(&d);
}

/* Kernels with a fault in the arithmetic, not in one element. */
static void test_systematic_faults_are_found(void **state) {
    (void)state;
    struct logits_data d, changed;
    struct logits_case c = plain;
    c.heads = 64;
    c.head_dim = 128;
    make(&d, c);
    changed = d;
    for (int fault = 0; fault < 4; fault++) {
        uint8_t *kv = malloc(d.kv_bytes), *q = malloc(d.q_bytes);
        float *weights = malloc(d.weights_bytes);
        assert_true(kv && q && weights);
        memcpy(kv, d.kv, d.kv_bytes);
        memcpy(q, d.q, d.q_bytes);
        memcpy(weights, d.weights, d.weights_bytes);
        changed.kv = kv;
        changed.q = q;
        changed.weights = weights;
        if (fault == 0) /* one head of 64 forgotten */
            for (int row = 0; row < 6; row++)
                weights[row * d.weights_stride + 63] = 0;
        if (fault == 1) /* two heads' weights swapped */
            for (int row = 0; row < 6; row++) {
                float w = weights[row * d.weights_stride];
                weights[row * d.weights_stride] = weights[row * d.weights_stride + 1];
                weights[row * d.weights_stride + 1] = w;
            }
        if (fault == 2) /* the last 8 dims of q ignored */
            for (size_t i = 0; i < d.q_bytes; i++)
                if (i % 128 >= 120)
                    q[i] = 0;
        if (fault == 3) /* every token with its block's first scale */
            for (int64_t id = 0; id < d.num_blocks; id++)
                for (int64_t slot = 1; slot < 16; slot++)
                    memcpy(kv + id * d.kv_stride + 16 * 128 + slot * 4, kv + id * d.kv_stride + 16 * 128, 4);
        uint8_t *image = reference_image(&changed);
        if (accepts(&d, image, NULL))
            fail_msg("systematic fault %d not found", fault);
        free(image);
        free(kv);
        free(q);
        free(weights);
    }
    logits_data_free(&d);
}

static void test_large_outputs_are_sampled_but_bounds_are_not(void **state) {
    (void)state;
    struct logits_data d;
    struct logits_case c = plain;
    c.batch = 40;
    c.max_len = 900;
    make(&d, c);
    uint8_t *image = reference_image(&d);
    struct logits_report r;
    struct logits_check_options small = {.max_work = 1e6};
    assert_true(logits_check(&d, image, &small, &r));
    assert_true(r.compared > 0 && r.compared < r.owned / 4);
    unwritten(&d, image, 17, 0);
    assert_false(logits_check(&d, image, &small, &r));
    assert_int_equal(r.unwritten, 1);
    struct logits_check_options partial = {.max_work = 1e6, .partial = true};
    assert_true(logits_check(&d, image, &partial, &r));
    free(image);
    logits_data_free(&d);
}

static void test_flattened_and_gathered_data_mean_the_same(void **state) {
    (void)state;
    struct logits_data d, flat, part;
    struct logits_case c = plain;
    c.per_slot_lens = rng_below(&rng, 2);
    c.q_slot_pad = 16;
    c.lens_stride = 2;
    c.min_len = 0;
    c.table_extra = 2;
    make(&d, c);
    assert_true(logits_data_flatten(&flat, &d));
    const int chosen[] = {2, 0, 2};
    assert_true(logits_data_subset(&part, &d, chosen, 3, NULL));
    uint8_t *image = reference_image(&d), *flat_image = reference_image(&flat), *part_image = reference_image(&part);
    assert_true(accepts(&flat, flat_image, NULL));
    assert_true(accepts(&part, part_image, NULL));
    for (int64_t row = 0; row < 6; row++) {
        assert_int_equal(logits_rows_differ(&d, image, row, &flat, flat_image, row), -1);
        assert_int_equal(logits_rows_differ(&part, part_image, row, &d, image, chosen[row / 2] * 2 + row % 2), -1);
    }
    int64_t row = logits_limit(&d, 0, 1) ? 1 : logits_limit(&d, 1, 1) ? 3 : 5, limit = logits_limit(&d, row / 2, 1);
    if (limit > 0) {
        flat_image[logits_image_at(&flat, row, limit - 1)] ^= 1;
        assert_int_equal(logits_rows_differ(&d, image, row, &flat, flat_image, row), limit - 1);
    }
    free(image);
    free(flat_image);
    free(part_image);
    logits_data_free(&part);
    logits_data_free(&flat);
    logits_data_free(&d);
}

static void test_sixteen_bit_formats_round_trip(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        double half = half_to_double((uint16_t)bits), bfloat = bfloat_to_double((uint16_t)bits);
        if (!isnan(half))
            assert_int_equal(double_to_half(half), bits);
        if (!isnan(bfloat))
            assert_int_equal(double_to_bfloat(bfloat), bits);
    }
    assert_int_equal(double_to_half(65519.0), 0x7bff);
    assert_int_equal(double_to_half(65520.0), 0x7c00);
    assert_int_equal(double_to_half(1.0 + 0x1p-11), 0x3c00); /* a tie goes to even */
    assert_int_equal(double_to_half(1.0 + 0x3p-11), 0x3c02);
    assert_int_equal(double_to_half(-0x1p-25), 0x8000);
    assert_int_equal(double_to_bfloat(1.0 + 0x1p-8), 0x3f80);
    assert_int_equal(double_to_bfloat(1.0 + 0x3p-8), 0x3f82);
    assert_true((double)fp8_e4m3(0x7e) == 448.0 && (double)fp8_e4m3(0x01) == 0x1p-9 && (double)fp8_e4m3(0xb8) == -1.0);
}

int main(void) {
    rng = rng_make(choose_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_agrees_with_a_second_opinion),
        cmocka_unit_test(test_reference_output_is_accepted),
        cmocka_unit_test(test_hopper_rounding_is_accepted),
        cmocka_unit_test(test_rounding_below_subnormal_factors_is_accepted),
        cmocka_unit_test(test_every_fault_is_found),
        cmocka_unit_test(test_clean_region_must_be_minus_infinity),
        cmocka_unit_test(test_systematic_faults_are_found),
        cmocka_unit_test(test_large_outputs_are_sampled_but_bounds_are_not),
        cmocka_unit_test(test_flattened_and_gathered_data_mean_the_same),
        cmocka_unit_test(test_sixteen_bit_formats_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
