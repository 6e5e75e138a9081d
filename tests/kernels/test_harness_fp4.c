/* SPDX-License-Identifier: MIT
 *
 * The harness over MXFP4: its reference against a second opinion, right outputs accepted, among them those of a tensor
 * core that drops bits, and faults that only this variant can have found. Needs no GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random_case.h"
#include "common/recompute.h"
#include "support.h"

static struct rng rng;

static const struct logits_case plain = {.variant = ATTNS_VARIANT_FP4,
                                         .batch = 3,
                                         .next_n = 2,
                                         .heads = 16,
                                         .head_dim = 128,
                                         .block_size = 16,
                                         .min_len = 20,
                                         .max_len = 90,
                                         .out_dtype = ATTNS_DTYPE_F32,
                                         .out_pad = 5};

static void make(struct logits_data *d, struct logits_case c) {
    c.seed = rng_next(&rng);
    assert_true(logits_data_make(d, &c));
}

static struct logits_case random_case(int64_t max_tokens) {
    struct logits_case c;
    memset(&c, 0, sizeof c);
    c.variant = ATTNS_VARIANT_FP4;
    logits_random_shape(&rng, &c);
    logits_random_layout(&rng, &c, max_tokens);
    return c;
}

static bool accepts(const struct logits_data *d, const uint8_t *image, struct logits_report *r) {
    static struct logits_report unused;
    return logits_check(d, image, NULL, r ? r : &unused);
}

static void test_reference_agrees_with_a_second_opinion(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        const struct logits_case c = random_case(40);
        struct logits_data d;
        struct recompute_report r;
        assert_true(logits_data_make(&d, &c));
        if (!logits_recompute_check(&d, &r))
            fail_msg("%llu wrong, %llu stray: %s", (unsigned long long)r.wrong, (unsigned long long)r.stray, r.first);
        logits_data_free(&d);
    }
}

static void test_reference_output_is_accepted(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        const struct logits_case c = random_case(300);
        struct logits_data d;
        struct logits_report r;
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

/* ---- Arithmetic of kernels ---- */

/* `x` without the bits below 2^-bits of the largest exponent, towards zero. */
static double truncated(double x, int largest_exponent, int bits) {
    const double unit = ldexp(1, largest_exponent - bits);
    return x == 0 ? 0 : trunc(x / unit) * unit;
}

static int exponent_of(double x) {
    int exponent;
    frexp(x, &exponent);
    return x == 0 ? -2000 : exponent - 1;
}

/* A dot product by a tensor core that takes `step` products and the accumulator at a time, aligns them to the largest,
 * and keeps `bits` bits below it and of the sum. */
static double tensor_core_dot(const double *q, const double *k, int dims, int step, int bits) {
    double acc = 0;
    for (int d0 = 0; d0 < dims; d0 += step) {
        int largest = exponent_of(acc);
        for (int i = d0; i < d0 + step; i++)
            largest = exponent_of(q[i] * k[i]) > largest ? exponent_of(q[i] * k[i]) : largest;
        double sum = truncated(acc, largest, bits);
        for (int i = d0; i < d0 + step; i++)
            sum += truncated(q[i] * k[i], largest, bits);
        acc = truncated(sum, exponent_of(sum), bits);
    }
    return acc;
}

/* What a kernel with such a tensor core would write, its epilogue in float32. */
static uint8_t *kernel_image(const struct logits_data *d, int step, int bits) {
    const struct logits_case *c = &d->c;
    uint8_t *image = reference_image(d); /* for what is not a logit */
    float numbers[128];
    double q[128], k[128];
    for (int64_t row = 0; row < (int64_t)c->batch * c->next_n; row++) {
        const int64_t b = row / c->next_n, t = row % c->next_n;
        for (int64_t p = 0; p < logits_limit(d, b, t); p++) {
            const int64_t id = d->tables[b * d->table_stride + p / c->block_size];
            logits_k(d, id, p % c->block_size, numbers);
            for (int i = 0; i < c->head_dim; i++)
                k[i] = (double)numbers[i] * logits_k_scale(d, id, p % c->block_size, i / 32);
            float sum = 0;
            for (int h = 0; h < c->heads; h++) {
                logits_q(d, b, t, h, numbers);
                for (int i = 0; i < c->head_dim; i++)
                    q[i] = (double)numbers[i] * logits_q_scale(d, b, t, h, i / 32);
                const float dot = (float)tensor_core_dot(q, k, c->head_dim, step, bits);
                sum = fmaf(d->weights[row * d->weights_stride + h], dot > 0 ? dot : 0, sum);
            }
            put_value(d, image, row, p, (double)sum);
        }
    }
    return image;
}

/* Whether the harness accepts what a kernel with such a tensor core would write for random inputs. */
static bool precision_is_accepted(int step, int bits, int head_dim, enum logits_values values,
                                  struct logits_report *report) {
    struct logits_data d;
    struct logits_case c = plain;
    c.head_dim = head_dim;
    c.values = values;
    make(&d, c);
    uint8_t *image = kernel_image(&d, step, bits);
    const bool accepted = accepts(&d, image, report);
    printf("%s, steps of %d, %d bits: worst %.3g of tolerance, deviation %.3g\n",
           values == LOGITS_VALUES_ALL_CODES ? "all codes" : "moderate", step, bits, report->worst, report->deviation);
    free(image);
    logits_data_free(&d);
    return accepted;
}

/* float32 that drops bits instead of rounding passes, whatever the group; a tensor core that keeps the 13 bits of
 * Hopper's FP8, or a bfloat16 accumulator, does not. */
static void test_precision(void **state) {
    (void)state;
    static const struct {
        int step, bits;
        bool good;
    } kernels[] = {{16, 23, true}, {32, 23, true}, {64, 23, true}, {16, 8, false}, {32, 13, false}};
    for (int values = 0; values < 2; values++)
        for (size_t i = 0; i < 5 - (size_t)values; i++) {
            struct logits_report r;
            const enum logits_values kind = values ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE;
            const int head_dim = i % 2 ? 64 : 128;
            bool accepted = precision_is_accepted(kernels[i].step, kernels[i].bits, head_dim, kind, &r);
            /* In most of the second kind one scale outweighs all others, so few bits may do, for once. */
            for (int again = 0; values && !kernels[i].good && accepted && again < 3; again++)
                accepted = precision_is_accepted(kernels[i].step, kernels[i].bits, head_dim, kind, &r);
            if (accepted != kernels[i].good) {
                logits_report_print(&r, "modelled tensor core");
                fail_msg("%s", accepted ? "a lack of precision was not found" : "float32 was refused");
            }
            assert_true(!kernels[i].good || r.deviation < 1e-13);
        }
}

/* ---- Faults ---- */

static void swap_nibbles(uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(bytes[i] << 4 | bytes[i] >> 4);
}

/* Changes what a kernel with the fault would have seen. */
static void plant(struct logits_data *d, int fault) {
    const struct logits_case *c = &d->c;
    switch (fault) {
    case 0:
        swap_nibbles(d->q, d->q_bytes); /* alone: in the keys too it would cancel out */
        break;
    case 1:
        for (int64_t id = 0; id < d->num_blocks; id++)
            for (int64_t slot = 0; slot < c->block_size; slot++)
                *fp4_k_scale(d, id, slot, 1) = *fp4_k_scale(d, id, slot, 0);
        break;
    case 2:
        for (size_t i = 0; i < d->q_sf_bytes / 4; i++)
            d->q_sf[i] = (int32_t)__builtin_bswap32((uint32_t)d->q_sf[i]);
        break;
    case 3:
        for (int64_t id = 0; id < d->num_blocks; id++)
            for (int64_t slot = 0; slot < c->block_size; slot++)
                for (int g = 0; g < d->scale_bytes; g++)
                    ++*fp4_k_scale(d, id, slot, g);
        break;
    case 4:
        d->c.sf_interleaved = !d->c.sf_interleaved;
        break;
    case 5: /* the sign of one code lost: -0.5 becomes 0.5 */
        for (size_t i = 0; i < d->q_bytes; i++)
            if (d->q[i] >> 4 == 9)
                d->q[i] &= 0x7f;
        break;
    default: /* the largest magnitude taken for the next smaller one */
        for (size_t i = 0; i < d->q_bytes; i++)
            if ((d->q[i] & 7) == 7)
                d->q[i]--;
        break;
    }
}

static void test_faults_of_the_format_are_found(void **state) {
    (void)state;
    enum { FAULTS = 7 };
    for (int fault = 0; fault < FAULTS; fault++)
        for (int round = 0; round < 6; round++) {
            struct logits_data right, wrong;
            struct logits_case c = plain;
            c.values = round % 2 ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE;
            c.out_dtype = round < 3 ? ATTNS_DTYPE_F32 : ATTNS_DTYPE_BF16;
            c.block_size = 128;
            c.sf_interleaved = round % 3 == 0;
            c.seed = rng_next(&rng);
            assert_true(logits_data_make(&right, &c) && logits_data_make(&wrong, &c));
            plant(&wrong, fault);
            uint8_t *image = reference_image(&wrong);
            if (accepts(&right, image, NULL))
                fail_msg("fault %d not found in round %d", fault, round);
            free(image);
            logits_data_free(&right);
            logits_data_free(&wrong);
        }
}

/* NaN where the formula has it is demanded, and tolerated nowhere else. */
static void test_nan_scales(void **state) {
    (void)state;
    struct logits_data d;
    struct logits_report r;
    const struct logits_check_options hostile = {.hostile_values = true};
    make(&d, plain);
    *fp4_k_scale(&d, d.tables[0], 3, 1) = 0xff;
    d.q_sf[2 * d.q_sf_request_stride + d.q_sf_slot_stride + 4] |= 0xff0000; /* request 2, slot 1 */
    uint8_t *image = reference_image(&d);
    assert_true(isnan(logits_image_value(&d, image, 0, 3)) && isnan(logits_image_value(&d, image, 1, 3)));
    assert_true(isnan(logits_image_value(&d, image, 5, 0)) && isnan(logits_image_value(&d, image, 5, 18)));
    assert_false(isnan(logits_image_value(&d, image, 0, 2)) || isnan(logits_image_value(&d, image, 4, 0)));
    assert_true(logits_check(&d, image, &hostile, &r));
    assert_false(logits_check(&d, image, NULL, &r));
    put_value(&d, image, 5, 7, 1.0);
    assert_false(logits_check(&d, image, &hostile, &r));
    put_value(&d, image, 5, 7, NAN);
    put_value(&d, image, 4, 7, NAN);
    assert_false(logits_check(&d, image, &hostile, &r));
    free(image);
    logits_data_free(&d);
}

static void test_flattened_and_gathered_data_mean_the_same(void **state) {
    (void)state;
    struct logits_data d, flat, part;
    struct logits_case c = plain;
    c.per_slot_lens = rng_below(&rng, 2);
    c.q_slot_pad = 16;
    c.q_request_pad = 32;
    make(&d, c);
    assert_true(logits_data_flatten(&flat, &d));
    const int chosen[] = {2, 0, 2};
    assert_true(logits_data_subset(&part, &d, chosen, 3, NULL));
    uint8_t *image = reference_image(&d), *flat_image = reference_image(&flat), *part_image = reference_image(&part);
    assert_true(accepts(&flat, flat_image, NULL) && accepts(&part, part_image, NULL));
    for (int64_t row = 0; row < 6; row++) {
        assert_int_equal(logits_rows_differ(&d, image, row, &flat, flat_image, row), -1);
        assert_int_equal(logits_rows_differ(&part, part_image, row, &d, image, chosen[row / 2] * 2 + row % 2), -1);
    }
    free(image);
    free(flat_image);
    free(part_image);
    logits_data_free(&part);
    logits_data_free(&flat);
    logits_data_free(&d);
}

int main(void) {
    rng = rng_make(choose_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_agrees_with_a_second_opinion),
        cmocka_unit_test(test_reference_output_is_accepted),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_faults_of_the_format_are_found),
        cmocka_unit_test(test_nan_scales),
        cmocka_unit_test(test_flattened_and_gathered_data_mean_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
