/* SPDX-License-Identifier: MIT
 *
 * Programmatic dependent launch: inputs are read only after the previous kernel has completed, outputs are there before
 * the next one reads them. (That a kernel without its wait fails here is shown by the known-bad kernels.) */
#include "pdl.h"

#define SPIN_NS 100000

static void test_inputs_written_late_are_seen(void **state) {
    (void)state;
    assert_int_equal(pdl_wrong_words(fx.ctx, 1000, SPIN_NS, false, false), 0);
}

static void test_schedule_written_late_is_seen(void **state) {
    (void)state;
    assert_int_equal(pdl_wrong_words(fx.ctx, 300, SPIN_NS, true, false), 0);
}

static void test_two_calls_in_a_row(void **state) {
    (void)state;
    assert_int_equal(pdl_wrong_words(fx.ctx, 300, SPIN_NS, false, true), 0);
    assert_int_equal(pdl_wrong_words(fx.ctx, 300, 0, true, true), 0);
}

static void test_plain_launches_with_the_option_on(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n++) {
        struct logits_case c = {.batch = 5,
                                .next_n = n,
                                .heads = 64,
                                .head_dim = 128,
                                .block_size = 64,
                                .max_len = 700,
                                .pdl = true,
                                .clean = n % 2,
                                .num_shares = n % 3 ? 0 : 132};
        run_case(&c, LOGITS_PLAIN);
    }
}

int main(void) {
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_written_late_are_seen),
        cmocka_unit_test(test_schedule_written_late_is_seen),
        cmocka_unit_test(test_two_calls_in_a_row),
        cmocka_unit_test(test_plain_launches_with_the_option_on),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
