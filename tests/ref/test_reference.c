/* SPDX-License-Identifier: MIT
 *
 * What the CPU reference computes, against closed forms and against a second, naive implementation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "problem.h"
#include "ref/number_formats.h"

/* ---- Closed forms ---------------------------------------------------------------------------------------------- */

/* Keys with a single 1, at dimension (5 * token) mod D; per-token scales 2^((7t mod 17) - 8); blocks permuted. Then the
 * logit of token t is a power of two times a sum over heads of weights and single elements of q: exact. */
static void test_one_hot(void **state) {
    (void)state;
    static const int64_t dims[] = {32, 64, 128}, block_sizes[] = {16, 32, 64, 128, 256};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 5; s++) {
            problem p = {.batch = 3, .next_n = 2, .heads = 8, .dim = dims[d], .block_size = block_sizes[s]};
            p.table_width = 600 / p.block_size + 1;
            p.num_blocks = p.batch * p.table_width + 2;
            p.max_seq_len = 600;
            make_problem(&p);
            for (int64_t i = 0; i < p.rows * p.heads * p.dim; i++)
                p.q[i] = random_e4m3();
            for (int64_t i = 0; i < p.rows * p.heads; i++)
                p.weights[i] = (float)(random_below(33) - 16) / 8.0f;
            int32_t *const order = allocate(p.num_blocks, sizeof *order);
            for (int i = 0; i < p.num_blocks; i++) {
                const int j = random_below(i + 1);
                order[i] = order[j];
                order[j] = i;
            }
            memcpy(p.tables, order, (size_t)(p.batch * p.table_width) * sizeof *order);
            free(order);
            for (int64_t b = 0; b < p.batch; b++) {
                p.lens[b] = 600 - (int32_t)b * 37;
                for (int64_t token = 0; token < p.lens[b]; token++) {
                    const int64_t block = p.tables[b * p.table_width + token / p.block_size];
                    key_of(&p, block, token % p.block_size)[5 * token % p.dim] = 0x38; /* 1.0 */
                    set_scale(&p, block, token % p.block_size, ldexpf(1, (int)(7 * token % 17) - 8));
                }
            }
            run(&p);
            for (int64_t row = 0; row < p.rows; row++) {
                const int64_t limit = p.lens[row / 2] - 1 + row % 2;
                check_written(&p, row, limit);
                for (int64_t token = 0; token < limit; token++) {
                    double sum = 0, abs_sum = 0;
                    for (int64_t h = 0; h < p.heads; h++) {
                        const double w = (double)p.weights[row * p.heads + h];
                        const double x = attns_e4m3_to_double(p.q[(row * p.heads + h) * p.dim + 5 * token % p.dim]);
                        sum += x > 0 ? w * x : 0;
                        abs_sum += fabs(w * x);
                    }
                    const double scale = ldexp(1, (int)(7 * token % 17) - 8);
                    assert_true(out_at(&p, row, token) == scale * sum);
                    assert_true(p.abs_sum[row * p.out_width + token] == scale * abs_sum);
                }
            }
            free_problem(&p);
        }
}

/* One head is 1 * 1, one -1 * 1 with weight 100: ReLU acts before the weights, and a negative weight stays. */
static void test_relu_before_weights(void **state) {
    (void)state;
    problem p = {.batch = 1, .next_n = 1, .heads = 8, .dim = 32, .block_size = 16};
    p.table_width = p.num_blocks = 1;
    p.max_seq_len = 2;
    make_problem(&p);
    p.lens[0] = 2;
    p.q[0] = 0x38;
    p.q[32] = 0xb8;
    p.weights[0] = -3;
    p.weights[1] = 100;
    key_of(&p, 0, 0)[0] = 0x38; /* 1 */
    key_of(&p, 0, 1)[0] = 0xb0; /* -0.5 */
    set_scale(&p, 0, 0, 2);
    set_scale(&p, 0, 1, -4);
    run(&p);
    assert_true(out_at(&p, 0, 0) == 2 * -3.0);
    assert_true(out_at(&p, 0, 1) == -4 * 100 * 0.5);
    assert_true(p.abs_sum[0] == 2 * 103.0);
    assert_true(p.abs_sum[1] == 4 * 103 * 0.5);
    free_problem(&p);
}

/* ---- A second implementation ----------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

static void test_random(void **state) {
    (void)state;
    static const int64_t dims[] = {32, 64, 128}, block_sizes[] = {16, 32, 64, 128, 256};
    for (int round = 0; round < 60; round++) {
        problem p = {0};
        p.batch = 1 + random_below(4);
        p.next_n = 1 + random_below(8);
        p.heads = 8 * (1 + random_below(4));
        p.dim = dims[random_below(3)];
        p.block_size = block_sizes[random_below(5)];
        p.table_width = 1 + random_below(3);
        p.num_blocks = 1 + random_below(5);
        p.block_stride = p.block_size * (p.dim + 4) + 16 * random_below(3);
        p.max_seq_len = 1 + random_below(150);
        p.out_width = p.max_seq_len + random_below(20);
        p.two_dimensional_lens = random_below(2);
        make_problem(&p);
        fill_random(&p);
        int64_t limits[4 * 8];
        const int64_t cap = clamp(p.max_seq_len, 0, p.table_width * p.block_size);
        for (int64_t i = 0; i < (p.two_dimensional_lens ? p.rows : p.batch); i++)
            p.lens[i] = random_below((int)p.max_seq_len + 10) - 5;
        for (int64_t row = 0; row < p.rows; row++) {
            if (p.two_dimensional_lens)
                limits[row] = clamp(p.lens[row], 0, cap);
            else
                limits[row] = clamp(clamp(p.lens[row / p.next_n], 0, cap) - p.next_n + 1 + row % p.next_n, 0, cap);
        }
        run(&p);
        check_against_naive(&p, limits);
        free_problem(&p);
    }
}

/* The slots of one call give the bits of the same rows as requests of their own. */
static void test_flattened(void **state) {
    (void)state;
    problem p = {.batch = 2, .next_n = 4, .heads = 16, .dim = 64, .block_size = 32};
    p.table_width = 4;
    p.num_blocks = 8;
    p.max_seq_len = 100;
    make_problem(&p);
    fill_random(&p);
    p.lens[0] = 97;
    p.lens[1] = 3;
    run(&p);

    problem flat = {.batch = 8, .next_n = 1, .heads = 16, .dim = 64, .block_size = 32};
    flat.table_width = 4;
    flat.num_blocks = 8;
    flat.max_seq_len = 100;
    make_problem(&flat);
    memcpy(flat.q, p.q, (size_t)(p.rows * p.heads * p.dim));
    memcpy(flat.kv, p.kv, (size_t)(p.num_blocks * p.block_stride));
    memcpy(flat.weights, p.weights, (size_t)(p.rows * p.heads) * sizeof(float));
    for (int64_t row = 0; row < 8; row++) {
        memcpy(flat.tables + row * 4, p.tables + row / 4 * 4, 4 * sizeof(int32_t));
        flat.lens[row] = p.lens[row / 4] - 3 + (int32_t)(row % 4);
    }
    run(&flat);
    assert_memory_equal(p.out, flat.out, (size_t)(p.rows * p.out_width * 8));
    assert_memory_equal(p.abs_sum, flat.abs_sum, (size_t)(p.rows * p.out_width * 8));
    free_problem(&p);
    free_problem(&flat);
}

/* ---- Output formats -------------------------------------------------------------------------------------------- */

static void test_out_dtypes(void **state) {
    (void)state;
    static const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    problem exact = {.batch = 2, .next_n = 2, .heads = 8, .dim = 32, .block_size = 16};
    exact.table_width = 3;
    exact.num_blocks = 6;
    exact.max_seq_len = 47;
    make_problem(&exact);
    fill_random(&exact);
    exact.lens[0] = 47;
    exact.lens[1] = 20;
    run(&exact);
    for (int i = 0; i < 3; i++) {
        problem p = exact;
        p.out_dtype = dtypes[i];
        p.t_out.dtype = dtypes[i];
        p.params.out = &p.t_out;
        const size_t bytes = dtypes[i].bits / 8u;
        p.out = allocate(p.rows * p.out_width, bytes);
        p.t_out.data = p.out;
        memset(p.out, POISON_BYTE, (size_t)(p.rows * p.out_width) * bytes);
        run(&p);
        for (int64_t row = 0; row < p.rows; row++) {
            const int64_t limit = p.lens[row / 2] - 1 + row % 2;
            check_written(&p, row, limit);
            for (int64_t column = 0; column < limit; column++) {
                const uint8_t *const address = p.out + (size_t)(row * p.out_width + column) * bytes;
                const double logit = out_at(&exact, row, column);
                if (bytes == 4) {
                    const float rounded = (float)logit;
                    assert_memory_equal(address, &rounded, sizeof rounded);
                } else {
                    const uint16_t code = i == 1 ? attns_double_to_f16(logit) : attns_double_to_bf16(logit);
                    assert_memory_equal(address, &code, sizeof code);
                }
            }
        }
        free(p.out);
    }
    free_problem(&exact);
}

/* A logit just above a tie of the 16-bit format and so close to it that a float in between would fall onto the tie. */
static void test_single_rounding(void **state) {
    (void)state;
    static const struct {
        DLDataType dtype;
        float tie;
        uint16_t code;
    } rows[] = {{{kDLFloat, 16, 1}, 1 + 0x1p-11f, 0x3c01}, {{kDLBfloat, 16, 1}, 1 + 0x1p-8f, 0x3f81}};
    for (int i = 0; i < 2; i++) {
        problem p = {.batch = 1, .next_n = 1, .heads = 8, .dim = 32, .block_size = 16, .out_dtype = rows[i].dtype};
        p.table_width = p.num_blocks = 1;
        p.max_seq_len = 1;
        make_problem(&p);
        p.lens[0] = 1;
        p.q[0] = p.q[32] = 0x38;
        p.weights[0] = rows[i].tie;
        p.weights[1] = 0x1p-30f;
        key_of(&p, 0, 0)[0] = 0x38;
        set_scale(&p, 0, 0, 1);
        run(&p);
        uint16_t code;
        memcpy(&code, p.out, sizeof code);
        assert_int_equal(code, rows[i].code);
        free_problem(&p);
    }
}

/* ---- Special values -------------------------------------------------------------------------------------------- */

static void test_nan(void **state) {
    (void)state;
    for (int where = 0; where < 5; where++) {
        problem p;
        make_small(&p, 2, 1, false);
        p.lens[0] = p.lens[1] = 24;
        for (int i = 0; i < 4; i++)
            p.tables[i] = i;
        int64_t bad_row = 0, bad_column = -1; /* -1: the whole row */
        switch (where) {
        case 0: /* an element of a key, of either sign: ReLU keeps it */
            key_of(&p, 0, 5)[7] = 0xff;
            bad_column = 5;
            break;
        case 1:
            p.q[11] = 0x7f;
            break;
        case 2:
            p.weights[3] = NAN;
            break;
        case 3:
            set_scale(&p, 3, 2, NAN);
            bad_row = 1;
            bad_column = 18;
            break;
        case 4: /* an infinite scale times a sum of 0 */
            memset(key_of(&p, 1, 0), 0, 32);
            set_scale(&p, 1, 0, INFINITY);
            bad_column = 16;
            break;
        }
        run(&p);
        for (int64_t row = 0; row < 2; row++)
            for (int64_t column = 0; column < 24; column++) {
                const bool bad = row == bad_row && (bad_column < 0 || column == bad_column);
                assert_int_equal(isnan(out_at(&p, row, column)) != 0, bad);
            }
        free_problem(&p);
    }
}

/* A block id out of range reads as zeros; NaN in q or infinity in the weights then give what the formula gives. */
static void test_nan_times_zero_block(void **state) {
    (void)state;
    problem p;
    make_small(&p, 2, 1, false);
    p.lens[0] = p.lens[1] = 2;
    p.tables[0] = p.tables[2] = -1;
    p.q[0] = 0x7f;
    p.weights[p.heads] = INFINITY;
    run(&p);
    assert_true(isnan(out_at(&p, 0, 0)) && isnan(out_at(&p, 0, 1)));
    assert_true(isnan(out_at(&p, 1, 0)) && isnan(out_at(&p, 1, 1)));
    free_problem(&p);
}

static void test_extreme_values(void **state) {
    (void)state;
    problem p = {.batch = 1, .next_n = 1, .heads = 128, .dim = 128, .block_size = 16};
    p.table_width = p.num_blocks = 1;
    p.max_seq_len = 3;
    make_problem(&p);
    p.lens[0] = 3;
    memset(p.q, 0x7e, (size_t)(p.heads * p.dim)); /* 448 */
    memset(key_of(&p, 0, 0), 0x7e, 128);
    memset(key_of(&p, 0, 1), 0x01, 128); /* 2^-9 */
    for (int d = 0; d < 128; d++)        /* +-448 cancel down to one 2^-9 */
        key_of(&p, 0, 2)[d] = d == 0 ? 0x01 : d == 127 ? 0 : d % 2 ? 0x7e : 0xfe;
    for (int i = 0; i < 3; i++)
        set_scale(&p, 0, i, 1);
    for (int h = 0; h < 128; h++)
        p.weights[h] = 1;
    run(&p);
    assert_true(out_at(&p, 0, 0) == 128.0 * 128 * 448 * 448);
    assert_true(out_at(&p, 0, 1) == 128.0 * 128 * 448 / 512);
    assert_true(out_at(&p, 0, 2) == 128.0 * 448 / 512);
    free_problem(&p);
}

int main(int argc, char **argv) {
    seed_random(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_hot),
        cmocka_unit_test(test_relu_before_weights),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_flattened),
        cmocka_unit_test(test_out_dtypes),
        cmocka_unit_test(test_single_rounding),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_nan_times_zero_block),
        cmocka_unit_test(test_extreme_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
