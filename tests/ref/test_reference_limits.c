/* SPDX-License-Identifier: MIT
 *
 * Which elements the CPU reference reads and writes: limits, hostile input, strides, optional arguments. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "problem.h"

/* ---- Limits ---------------------------------------------------------------------------------------------------- */

static void test_causal_bound(void **state) {
    (void)state;
    problem p;
    make_small(&p, 2, 4, false);
    p.lens[0] = 8;
    p.lens[1] = 2;
    run(&p);
    static const int64_t limits[] = {5, 6, 7, 8, 0, 0, 1, 2};
    check_against_naive(&p, limits);
    free_problem(&p);
}

static void test_zero_lengths(void **state) {
    (void)state;
    problem p;
    make_small(&p, 3, 2, false);
    p.lens[1] = 1;
    run(&p);
    static const int64_t limits[] = {0, 0, 0, 1, 0, 0};
    check_against_naive(&p, limits);
    free_problem(&p);
}

static void test_two_dimensional_lens(void **state) {
    (void)state;
    problem p;
    make_small(&p, 2, 4, true);
    static const int32_t lens[] = {9, 0, 24, 3, -1, 17, INT32_MAX, 1}; /* in no order */
    static const int64_t limits[] = {9, 0, 24, 3, 0, 17, 24, 1};
    memcpy(p.lens, lens, sizeof lens);
    run(&p);
    check_against_naive(&p, limits);
    free_problem(&p);
}

/* The same lengths through strides: transposed, one row for all requests, and a [B] column of a wider array. */
static void test_lens_strides(void **state) {
    (void)state;
    static const int32_t storage[] = {9, 2, 24, 3, 11, 17};
    static const struct {
        int ndim;
        int64_t strides[2], limits[6];
    } rows[] = {
        {2, {1, 2}, {9, 24, 11, 2, 3, 17}}, {2, {0, 2}, {9, 24, 11, 9, 24, 11}}, {2, {0, 0}, {9, 9, 9, 9, 9, 9}},
        {1, {2, 0}, {7, 8, 9, 22, 23, 24}}, {1, {0, 0}, {7, 8, 9, 7, 8, 9}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        problem p;
        make_small(&p, 2, 3, true);
        int64_t strides[2];
        memcpy(strides, rows[i].strides, sizeof strides);
        memcpy(p.lens, storage, sizeof storage);
        p.t_lens.ndim = rows[i].ndim;
        p.t_lens.strides = strides;
        run(&p);
        check_against_naive(&p, rows[i].limits);
        free_problem(&p);
    }
}

/* Lengths beyond the output, beyond the table and below zero; the table is exactly as large as it says. */
static void test_hostile_lengths(void **state) {
    (void)state;
    static const int32_t lens[] = {INT32_MAX, INT32_MIN, -1, 25, 1000};
    problem p;
    make_small(&p, 5, 1, false);
    memcpy(p.lens, lens, sizeof lens);
    run(&p);
    static const int64_t by_max_seq_len[] = {24, 0, 0, 24, 24};
    check_against_naive(&p, by_max_seq_len);
    free_problem(&p);

    make_small(&p, 5, 1, false);
    memcpy(p.lens, lens, sizeof lens);
    p.params.max_seq_len = 0; /* the width of out, 30; the table covers 32 */
    run(&p);
    static const int64_t by_width[] = {30, 0, 0, 25, 30};
    check_against_naive(&p, by_width);
    free_problem(&p);

    p = (problem){.batch = 5, .next_n = 1, .heads = 8, .dim = 32, .block_size = 16};
    p.table_width = 1;
    p.num_blocks = 2;
    p.max_seq_len = 100;
    make_problem(&p);
    fill_random(&p);
    memcpy(p.lens, lens, sizeof lens);
    run(&p);
    static const int64_t by_table[] = {16, 0, 0, 16, 16};
    check_against_naive(&p, by_table);
    free_problem(&p);
}

static void test_hostile_block_ids(void **state) {
    (void)state;
    static const int32_t ids[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        problem p;
        make_small(&p, 2, 1, false);
        p.lens[0] = p.lens[1] = 24;
        p.tables[0] = ids[i];
        run(&p);
        static const int64_t limits[] = {24, 24};
        check_against_naive(&p, limits);
        for (int64_t column = 0; column < 16; column++) {
            assert_true(out_at(&p, 0, column) == 0);
            assert_true(p.abs_sum[column] == 0);
        }
        assert_true(p.abs_sum[16] > 0);
        free_problem(&p);
    }
}

/* Nothing past a row's own blocks is read, not even the id. */
static void test_exact_table_width(void **state) {
    (void)state;
    static const int64_t lens[] = {1, 16, 17, 33, 65};
    for (int i = 0; i < 5; i++) {
        problem p = {.batch = 1, .next_n = 1, .heads = 8, .dim = 32, .block_size = 16};
        p.table_width = attns_min_block_table_width(lens[i], 16);
        p.num_blocks = 2;
        p.max_seq_len = 1000;
        make_problem(&p);
        fill_random(&p);
        p.lens[0] = (int32_t)lens[i];
        run(&p);
        check_against_naive(&p, &lens[i]);
        free_problem(&p);
    }
}

static void test_clean_logits(void **state) {
    (void)state;
    problem p, plain;
    const uint64_t seed = random_state;
    make_small(&p, 3, 2, false);
    random_state = seed;
    make_small(&plain, 3, 2, false);
    static const int32_t lens[] = {10, 0, INT32_MAX};
    static const int64_t limits[] = {9, 10, 0, 0, 23, 24};
    memcpy(p.lens, lens, sizeof lens);
    memcpy(plain.lens, lens, sizeof lens);
    p.params.clean_logits = true;
    run(&p);
    run(&plain);
    for (int64_t row = 0; row < 6; row++) {
        check_written(&p, row, p.max_seq_len);
        assert_memory_equal(p.out + row * p.out_width * 8, plain.out + row * p.out_width * 8, (size_t)limits[row] * 8);
        for (int64_t column = limits[row]; column < p.max_seq_len; column++) {
            assert_true(out_at(&p, row, column) == -(double)INFINITY);
            assert_true(p.abs_sum[row * p.out_width + column] == 0);
        }
    }
    free_problem(&p);
    free_problem(&plain);
}

/* ---- Strides, optional arguments, errors ------------------------------------------------------------------------ */

static void test_strides(void **state) {
    (void)state;
    enum { Q_ROW = 8 * 32 + 16, W_ROW = 12, T_ROW = 5, O_ROW = 37 };
    problem p;
    make_small(&p, 2, 2, false);
    p.lens[0] = 24;
    p.lens[1] = 13;
    run(&p);
    uint8_t *const q = allocate(3 * Q_ROW + 8 * 32, 1);
    float *const weights = allocate(3 * W_ROW + 8, sizeof *weights);
    int32_t *const tables = allocate(T_ROW + 2, sizeof *tables);
    double *const out = allocate(3 * O_ROW + 24, sizeof *out);
    memset(out, POISON_BYTE, (3 * O_ROW + 24) * sizeof *out);
    for (int row = 0; row < 4; row++) {
        memcpy(q + row * Q_ROW, p.q + row * 8 * 32, 8 * 32);
        memcpy(weights + row * W_ROW, p.weights + row * 8, 8 * sizeof *weights);
    }
    memcpy(tables, p.tables, 2 * sizeof *tables);
    memcpy(tables + T_ROW, p.tables + 2, 2 * sizeof *tables);
    problem strided = p;
    int64_t q_strides[] = {2 * Q_ROW, Q_ROW, 32, 1}, weights_strides[] = {W_ROW, 1}, tables_strides[] = {T_ROW, 1},
            out_strides[] = {O_ROW, 1};
    strided.t_q.data = q;
    strided.t_q.strides = q_strides;
    strided.t_weights.data = weights;
    strided.t_weights.strides = weights_strides;
    strided.t_tables.data = tables;
    strided.t_tables.strides = tables_strides;
    strided.t_out.data = out;
    strided.t_out.strides = out_strides;
    strided.params.q = &strided.t_q;
    strided.params.weights = &strided.t_weights;
    strided.params.block_tables = &strided.t_tables;
    strided.params.out = &strided.t_out;
    run_with(&strided, NULL);
    static const int64_t limits[] = {23, 24, 12, 13};
    for (int row = 0; row < 4; row++) {
        assert_memory_equal(out + row * O_ROW, p.out + row * p.out_width * 8, (size_t)limits[row] * 8);
        const int64_t end = row < 3 ? O_ROW : 24;
        assert_true(is_poison(out + row * O_ROW + limits[row], (size_t)(end - limits[row]) * 8));
    }
    free(q);
    free(weights);
    free(tables);
    free(out);
    free_problem(&p);
}

static void test_empty_batch(void **state) {
    (void)state;
    problem p;
    make_small(&p, 1, 1, false);
    p.lens[0] = 10;
    p.q_shape[0] = p.weights_shape[0] = p.tables_shape[0] = p.lens_shape[0] = p.out_shape[0] = 0;
    p.t_q.data = p.t_out.data = p.t_abs_sum.data = NULL;
    run(&p);
    check_written(&p, 0, 0);
    free_problem(&p);
}

static void expect_failure(const problem *p, const char *message) {
    assert_int_equal(attns_reference_fp8_paged_mqa_logits(&p->params, &p->t_abs_sum), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attns_last_error(), message);
    check_written(p, 0, 0);
}

static void test_wrong_abs_sum(void **state) {
    (void)state;
    problem p;
    make_small(&p, 2, 1, false);
    p.lens[0] = 10;
    p.t_abs_sum.dtype.bits = 32;
    expect_failure(&p, "abs_sum: dtype is float32, accepted: float64");
    p.t_abs_sum.dtype.bits = 64;
    p.t_abs_sum.ndim = 1;
    expect_failure(&p, "abs_sum: rank is 1, accepted: 2");
    p.t_abs_sum.ndim = 2;
    p.t_abs_sum.device.device_type = kDLCUDA;
    expect_failure(&p, "abs_sum: device is cuda:0, accepted: host memory (cpu or cuda_host)");
    p.t_abs_sum.device.device_type = kDLCPU;
    int64_t shape[] = {3, 30}, strides[] = {29, 1};
    p.t_abs_sum.shape = shape;
    expect_failure(&p, "abs_sum: shape[0] is 3, accepted: 2 (rows of out)");
    shape[0] = 2;
    shape[1] = 29;
    expect_failure(&p, "abs_sum: shape[1] is 29, accepted: 30 (columns of out)");
    shape[1] = 30;
    p.t_abs_sum.strides = strides;
    expect_failure(&p,
                   "abs_sum: stride[0] is 29, accepted: at least 30 elements (its columns, as rows may not overlap)");
    strides[1] = 2;
    expect_failure(&p, "abs_sum: stride[1] is 2, accepted: 1 (dense)");
    p.t_abs_sum.strides = NULL;
    p.t_abs_sum.data = NULL;
    expect_failure(&p, "abs_sum: data is NULL, accepted: the address of the elements");
    p.t_abs_sum.data = p.abs_sum;
    run(&p);
    free_problem(&p);
}

int main(int argc, char **argv) {
    seed_random(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal_bound),
        cmocka_unit_test(test_zero_lengths),
        cmocka_unit_test(test_two_dimensional_lens),
        cmocka_unit_test(test_lens_strides),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_hostile_block_ids),
        cmocka_unit_test(test_exact_table_width),
        cmocka_unit_test(test_clean_logits),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_empty_batch),
        cmocka_unit_test(test_wrong_abs_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
