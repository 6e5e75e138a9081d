/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <attn_scores/attn_scores.h>

static void test_min_block_table_width(void **state) {
    (void)state;
    assert_int_equal(attns_min_block_table_width(1, 64), 1);
    assert_int_equal(attns_min_block_table_width(64, 64), 1);
    assert_int_equal(attns_min_block_table_width(65, 64), 2);
    assert_int_equal(attns_min_block_table_width(257, 64), 5);
    assert_int_equal(attns_min_block_table_width(1025, 32), 33);
    for (int64_t block_size = 1; block_size <= 300; block_size++)
        for (int64_t seq_len = 1; seq_len <= 1100; seq_len += 7) {
            const int64_t width = attns_min_block_table_width(seq_len, block_size);
            assert_true(width * block_size >= seq_len);
            assert_true((width - 1) * block_size < seq_len);
        }
}

static void test_min_block_table_width_limits(void **state) {
    (void)state;
    assert_int_equal(attns_min_block_table_width(0, 64), 0);
    assert_int_equal(attns_min_block_table_width(-5, 64), 0);
    assert_int_equal(attns_min_block_table_width(INT64_MIN, 64), 0);
    assert_int_equal(attns_min_block_table_width(100, 0), 0);
    assert_int_equal(attns_min_block_table_width(100, -1), 0);
    assert_int_equal(attns_min_block_table_width(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(attns_min_block_table_width(INT64_MAX, 2), INT64_MAX / 2 + 1);
    assert_int_equal(attns_min_block_table_width(INT64_MAX, INT64_MAX), 1);
    assert_int_equal(attns_min_block_table_width(1, INT64_MAX), 1);
}

static void test_padded_seq_len(void **state) {
    (void)state;
    assert_int_equal(attns_padded_seq_len(1), 256);
    assert_int_equal(attns_padded_seq_len(256), 256);
    assert_int_equal(attns_padded_seq_len(257), 512);
    assert_int_equal(attns_padded_seq_len(1048576), 1048576);
    for (int64_t len = 1; len < 3000; len++) {
        const int64_t padded = attns_padded_seq_len(len);
        assert_int_equal(padded % 256, 0);
        assert_true(padded >= len && padded - len < 256);
    }
}

static void test_padded_seq_len_limits(void **state) {
    (void)state;
    assert_int_equal(attns_padded_seq_len(0), 0);
    assert_int_equal(attns_padded_seq_len(-1), 0);
    assert_int_equal(attns_padded_seq_len(INT64_MIN), 0);
    assert_int_equal(attns_padded_seq_len(INT64_C(1) << 40), INT64_C(1) << 40);
    assert_int_equal(attns_padded_seq_len(INT64_MAX - 255), INT64_MAX - 255);
    assert_int_equal(attns_padded_seq_len(INT64_MAX - 256), INT64_MAX - 255);
    assert_int_equal(attns_padded_seq_len(INT64_MAX - 254), INT64_MAX);
    assert_int_equal(attns_padded_seq_len(INT64_MAX), INT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_min_block_table_width),
        cmocka_unit_test(test_min_block_table_width_limits),
        cmocka_unit_test(test_padded_seq_len),
        cmocka_unit_test(test_padded_seq_len_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
