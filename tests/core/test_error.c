/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "testing.h"

static void test_status_texts_differ(void **state) {
    (void)state;
    for (int i = ATTNS_OK; i <= ATTNS_ERROR_INTERNAL; i++)
        for (int k = ATTNS_OK; k < i; k++)
            assert_string_not_equal(attns_status_string((attns_status)i), attns_status_string((attns_status)k));
    assert_string_equal(attns_status_string((attns_status)99), attns_status_string((attns_status)-1));
}

static void test_version_is_the_headers(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", ATTNS_VERSION_MAJOR, ATTNS_VERSION_MINOR, ATTNS_VERSION_PATCH);
    assert_string_equal(attns_version(), text);
}

static void test_message_and_status_come_back(void **state) {
    (void)state;
    assert_int_equal(attns_fail(ATTNS_ERROR_IO, "file %s, line %d", "x", 7), ATTNS_ERROR_IO);
    assert_string_equal(attns_last_error(), "file x, line 7");
}

static void test_message_may_quote_the_last_one(void **state) {
    (void)state;
    attns_fail(ATTNS_ERROR_CUDA, "inner");
    attns_fail(ATTNS_ERROR_CUDA, "outer: %s", attns_last_error());
    assert_string_equal(attns_last_error(), "outer: inner");
}

static void test_long_message_keeps_both_ends(void **state) {
    (void)state;
    enum { SIZE = 100000 };
    char *log = malloc(SIZE + 1);
    assert_non_null(log);
    memset(log, 'x', SIZE);
    memcpy(log, "FIRST", 5);
    memcpy(log + SIZE - 4, "LAST", 5);
    attns_fail(ATTNS_ERROR_COMPILE, "kernel: %s", log);
    const char *message = attns_last_error();
    assert_int_equal(strncmp(message, "kernel: FIRST", 13), 0);
    assert_int_equal(strlen(message), ATTNS_ERROR_BYTES - 1);
    assert_string_equal(message + strlen(message) - 4, "LAST");
    assert_contains(message, "left out");
    /* Quoting the longest message possible shortens it once more and keeps the ends. */
    attns_fail(ATTNS_ERROR_COMPILE, "again: %s", attns_last_error());
    assert_int_equal(strncmp(attns_last_error(), "again: kernel: FIRST", 20), 0);
    assert_string_equal(attns_last_error() + strlen(attns_last_error()) - 4, "LAST");
    free(log);
}

static void test_longest_message_that_fits_is_whole(void **state) {
    (void)state;
    char text[ATTNS_ERROR_BYTES + 1];
    memset(text, 'y', sizeof text);
    text[ATTNS_ERROR_BYTES - 1] = '\0';
    attns_fail(ATTNS_ERROR_IO, "%s", text);
    assert_string_equal(attns_last_error(), text);
    text[ATTNS_ERROR_BYTES - 1] = 'z';
    text[ATTNS_ERROR_BYTES] = '\0';
    attns_fail(ATTNS_ERROR_IO, "%s", text);
    assert_contains(attns_last_error(), "left out");
}

static void *fail_elsewhere(void *first) {
    snprintf(first, 64, "%s", attns_last_error());
    attns_fail(ATTNS_ERROR_IO, "other thread");
    return NULL;
}

static void test_message_belongs_to_the_thread(void **state) {
    (void)state;
    char first[64] = "unset";
    attns_fail(ATTNS_ERROR_IO, "this thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, first), 0);
    pthread_join(thread, NULL);
    assert_string_equal(first, "");
    assert_string_equal(attns_last_error(), "this thread");
}

static void test_saved_message_is_restored(void **state) {
    (void)state;
    attns_saved_error saved;
    attns_fail(ATTNS_ERROR_IO, "to be kept");
    attns_error_save(&saved);
    attns_fail(ATTNS_ERROR_IO, "hidden");
    attns_error_restore(&saved);
    assert_string_equal(attns_last_error(), "to be kept");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts_differ),           cmocka_unit_test(test_version_is_the_headers),
        cmocka_unit_test(test_message_and_status_come_back),  cmocka_unit_test(test_message_may_quote_the_last_one),
        cmocka_unit_test(test_long_message_keeps_both_ends),  cmocka_unit_test(test_longest_message_that_fits_is_whole),
        cmocka_unit_test(test_message_belongs_to_the_thread), cmocka_unit_test(test_saved_message_is_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
