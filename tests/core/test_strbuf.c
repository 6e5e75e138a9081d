/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/strbuf.h"
#include "testing.h"

static void test_empty(void **state) {
    (void)state;
    attns_strbuf buf = {0};
    assert_string_equal(attns_strbuf_text(&buf), "");
    char *text = attns_strbuf_take(&buf);
    assert_string_equal(text, "");
    free(text);
}

static void test_grows_over_many_appends(void **state) {
    (void)state;
    attns_strbuf buf = {0};
    for (int i = 0; i < 1000; i++) {
        attns_strbuf_printf(&buf, "%04d", i);
        attns_strbuf_puts(&buf, ",");
        attns_strbuf_append(&buf, "ab", 1);
    }
    assert_false(buf.failed);
    assert_int_equal(buf.size, 6000);
    assert_int_equal(strlen(attns_strbuf_text(&buf)), 6000);
    for (int i = 0; i < 1000; i++) {
        char expected[8];
        snprintf(expected, sizeof expected, "%04d,a", i);
        assert_memory_equal(buf.text + 6 * i, expected, 6);
    }
    attns_strbuf_free(&buf);
    assert_int_equal(buf.capacity, 0);
}

static void test_impossible_size_fails_for_good(void **state) {
    (void)state;
    attns_strbuf buf = {0};
    attns_strbuf_puts(&buf, "kept");
    attns_strbuf_append(&buf, "x", SIZE_MAX - 2);
    assert_true(buf.failed);
    attns_strbuf_puts(&buf, "more");
    assert_string_equal(attns_strbuf_text(&buf), "kept");
    assert_null(attns_strbuf_take(&buf));
    assert_null(buf.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_grows_over_many_appends),
        cmocka_unit_test(test_impossible_size_fails_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
