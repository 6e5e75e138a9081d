/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "testing.h"

static void test_only_lines_up_to_the_level(void **state) {
    (void)state;
    for (int level = ATTNS_LOG_NONE; level <= ATTNS_LOG_DEBUG; level++) {
        log_record record = LOG_RECORD_INIT;
        attns_logger logger = {log_to_record, &record, (attns_log_level)level};
        for (int i = ATTNS_LOG_NONE; i <= ATTNS_LOG_DEBUG; i++)
            attns_log(&logger, (attns_log_level)i, "line %d", i);
        assert_int_equal(record.lines[0], 0);
        for (int i = ATTNS_LOG_ERROR; i <= ATTNS_LOG_DEBUG; i++)
            assert_int_equal(record.lines[i], i <= level);
    }
}

static void test_one_line_without_newlines(void **state) {
    (void)state;
    log_record record = LOG_RECORD_INIT;
    attns_logger logger = {log_to_record, &record, ATTNS_LOG_DEBUG};
    attns_log(&logger, ATTNS_LOG_INFO, "a\nb\r\nc%s", "\n");
    assert_string_equal(record.text, "3: a b  c \n");
}

static void test_long_line_is_cut(void **state) {
    (void)state;
    log_record record = LOG_RECORD_INIT;
    attns_logger logger = {log_to_record, &record, ATTNS_LOG_DEBUG};
    char text[20000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    attns_log(&logger, ATTNS_LOG_INFO, "%s", text);
    assert_int_equal(record.lines[ATTNS_LOG_INFO], 1);
    assert_true(strlen(record.text) > 1000 && strlen(record.text) < sizeof text);
}

static void test_without_a_callback_lines_go_to_stderr(void **state) {
    (void)state;
    char *dir = scratch_make();
    char *path = path_join(dir, "stderr");
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "w", stderr));
    attns_logger logger = {.level = ATTNS_LOG_WARNING};
    attns_log(&logger, ATTNS_LOG_WARNING, "seen %d", 1);
    attns_log(&logger, ATTNS_LOG_INFO, "not seen");
    fflush(stderr);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    char *text = file_read(path, NULL);
    assert_string_equal(text, "attn-scores: warning: seen 1\n");
    free(text);
    free(path);
    scratch_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_lines_up_to_the_level),
        cmocka_unit_test(test_one_line_without_newlines),
        cmocka_unit_test(test_long_line_is_cut),
        cmocka_unit_test(test_without_a_callback_lines_go_to_stderr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
