/* SPDX-License-Identifier: MIT
 *
 * Finding and choosing NVRTC, and reading what it says, with libraries that only pretend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/nvrtc.h"
#include "jit_testing.h"

static attns_nvrtc_set *open_set(const char *paths) {
    attns_nvrtc_set *set = NULL;
    attns_logger silent = {.level = ATTNS_LOG_NONE};
    attns_status status = attns_nvrtc_set_open(&set, paths, &silent);
    if (status != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    return set;
}

static void check_unusable(const char *paths, const char *part) {
    attns_nvrtc_set *set = NULL;
    attns_logger silent = {.level = ATTNS_LOG_NONE};
    assert_int_equal(attns_nvrtc_set_open(&set, paths, &silent), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_null(set);
    assert_contains(attns_last_error(), part);
}

static void test_names_what_was_looked_for(void **state) {
    (void)state;
    check_unusable("/nonexistent/a.so:/nonexistent/b.so", "/nonexistent/a.so (No such file");
    assert_contains(attns_last_error(), "/nonexistent/b.so (No such file");
    check_unusable("libattns-no-such-library.so.7", "libattns-no-such-library.so.7 (");
    check_unusable(FAKE_NVRTC_12_4, "version 12.4, 12.8 or newer is needed");
    assert_contains(attns_last_error(), FAKE_NVRTC_12_4);
    check_unusable(FAKE_CUDA_PATH, "has no nvrtcVersion: too old");
    check_unusable(":", "list of paths is empty");
}

static void check_choice(attns_nvrtc_set *set, const char *arch, int version) {
    const attns_nvrtc *nvrtc = NULL;
    attns_status status = attns_nvrtc_for_arch(set, arch, &nvrtc);
    if (version) {
        assert_int_equal(status, ATTNS_OK);
        assert_int_equal(attns_nvrtc_version(nvrtc), version);
    } else {
        assert_int_equal(status, ATTNS_ERROR_UNSUPPORTED_DEVICE);
        assert_contains(attns_last_error(), arch);
        assert_contains(attns_last_error(), attns_nvrtc_archs(set));
    }
}

static void test_newest_that_knows_the_target(void **state) {
    (void)state;
    attns_nvrtc_set *set = open_set(FAKE_NVRTC_12_8 ":" FAKE_NVRTC_12_4 ":/nonexistent/x.so:" FAKE_NVRTC_99_1);
    assert_int_equal(attns_nvrtc_version(attns_nvrtc_newest(set)), 99010);
    assert_string_equal(attns_nvrtc_archs(set), "sm_75 sm_80 sm_90 sm_100 sm_103");
    check_choice(set, "sm_90a", 99010);
    check_choice(set, "sm_90", 99010);
    check_choice(set, "compute_90a", 99010);
    check_choice(set, "sm_103a", 99010);
    check_choice(set, "sm_100f", 99010);
    check_choice(set, "sm_75", 12080);
    check_choice(set, "sm_80a", 0);
    check_choice(set, "sm_90f", 0);
    check_choice(set, "sm_120a", 0);
    check_choice(set, "sm_90b", 0);
    check_choice(set, "sm_90a ", 0);
    check_choice(set, "sm_", 0);
    check_choice(set, "sm_-90", 0);
    check_choice(set, "gfx942", 0);
    attns_nvrtc_set_close(set);

    set = open_set(FAKE_NVRTC_12_8);
    check_choice(set, "sm_100a", 12080);
    check_choice(set, "sm_100f", 0); /* the family suffix came with 12.9 */
    attns_nvrtc_set_close(set);
}

static void test_one_library_under_two_names_counts_once(void **state) {
    jit_fixture *fixture = *state;
    char *alias = path_join(fixture->dir, "alias.so"), paths[4096], *real = realpath(FAKE_NVRTC_99_1, NULL);
    char command[4096];
    snprintf(command, sizeof command, "ln -s '%s' '%s'", FAKE_NVRTC_99_1, alias);
    assert_int_equal(system(command), 0);
    snprintf(paths, sizeof paths, "%s:%s", alias, FAKE_NVRTC_99_1);
    attns_logger logger = {log_to_record, &fixture->log, ATTNS_LOG_DEBUG};
    attns_nvrtc_set *set = NULL;
    assert_int_equal(attns_nvrtc_set_open(&set, paths, &logger), ATTNS_OK);
    assert_int_equal(fixture->log.lines[ATTNS_LOG_DEBUG], 1);
    assert_string_equal(attns_nvrtc_path(attns_nvrtc_newest(set)), real);
    attns_nvrtc_set_close(set);
    free(alias);
    free(real);
}

/* NVRTC cannot compile without its builtins library: one that has it beside it goes before a newer one without. */
static void test_complete_library_goes_first(void **state) {
    jit_fixture *fixture = *state;
    char *old = path_join(fixture->dir, "libnvrtc.so.12"), *new = path_join(fixture->dir, "libnvrtc.so.13");
    char *builtins = path_join(fixture->dir, "libnvrtc-builtins.so.12.8"), paths[4096];
    file_copy(FAKE_NVRTC_12_8, old);
    file_copy(FAKE_NVRTC_99_1, new);
    snprintf(paths, sizeof paths, "%s:%s", new, old);
    attns_logger logger = {log_to_record, &fixture->log, ATTNS_LOG_WARNING};
    attns_nvrtc_set *set = NULL;
    assert_int_equal(attns_nvrtc_set_open(&set, paths, &logger), ATTNS_OK);
    assert_contains(fixture->log.text, "libnvrtc-builtins.so.99.1"); /* 12.8's may be installed on this machine */
    attns_nvrtc_set_close(set);

    file_copy(FAKE_CUDA_PATH, builtins); /* any library will do */
    assert_int_equal(attns_nvrtc_set_open(&set, paths, &logger), ATTNS_OK);
    assert_int_equal(attns_nvrtc_version(attns_nvrtc_newest(set)), 12080);
    check_choice(set, "sm_103a", 99010);
    attns_nvrtc_set_close(set);
    free(old), free(new), free(builtins);
}

static attns_status compile(const char *source, attns_compile_output *output) {
    attns_nvrtc_set *set = open_set(FAKE_NVRTC_99_1);
    const attns_nvrtc *nvrtc = NULL;
    assert_int_equal(attns_nvrtc_for_arch(set, "sm_90a", &nvrtc), ATTNS_OK);
    const char *const options[] = {"-one", "-two"};
    attns_status status = attns_nvrtc_compile(nvrtc, "kernel.cu", source, "sm_90a", options, 2, output);
    attns_nvrtc_set_close(set);
    return status;
}

static void test_options_reach_the_compiler(void **state) {
    (void)state;
    attns_compile_output output;
    assert_int_equal(compile("source text", &output), ATTNS_OK);
    assert_string_equal(output.image,
                        FAKE_CUBIN_MAGIC "99.1 kernel.cu --gpu-architecture=sm_90a -one -two\nsource text");
    assert_int_equal(output.image_size, strlen(output.image) + 1);
    assert_int_equal(output.registers, 42);
    assert_int_equal(output.spill_bytes, 0);
    assert_true(output.seconds >= 0 && output.seconds < 10);
    attns_compile_output_free(&output);
    assert_null(output.image);
}

static void test_worst_function_counts(void **state) {
    (void)state;
    attns_compile_output output;
    assert_int_equal(compile("FAKE_SPILL", &output), ATTNS_OK);
    assert_int_equal(output.registers, 64);
    assert_int_equal(output.spill_bytes, 368);
    attns_compile_output_free(&output);
    assert_int_equal(compile("FAKE_SERIALISED", &output), ATTNS_OK); /* a log without the figures */
    assert_int_equal(output.registers, -1);
    assert_int_equal(output.spill_bytes, -1);
    attns_compile_output_free(&output);
}

static void test_failures_bring_the_log(void **state) {
    (void)state;
    attns_compile_output output;
    assert_int_equal(compile("FAKE_ERROR", &output), ATTNS_ERROR_COMPILE);
    assert_null(output.image);
    assert_null(output.log);
    assert_contains(attns_last_error(), "kernel.cu for sm_90a: NVRTC 99.1 (");
    assert_contains(attns_last_error(), "NVRTC_ERROR_COMPILATION");
    assert_contains(attns_last_error(), "templates/broken.cu(3): error: identifier \"nonsense\" is undefined");
    assert_int_equal(compile("FAKE_LONG_LOG", &output), ATTNS_ERROR_COMPILE);
    assert_contains(attns_last_error(), "first line");
    assert_contains(attns_last_error(), "last line");
    assert_int_equal(compile("FAKE_BUILTINS", &output), ATTNS_ERROR_COMPILE);
    assert_contains(attns_last_error(), "libnvrtc-builtins.so.99.1");
    char *folder = realpath(FAKE_NVRTC_99_1, NULL);
    *strrchr(folder, '/') = '\0';
    assert_contains(attns_last_error(), folder);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_what_was_looked_for),
        cmocka_unit_test(test_newest_that_knows_the_target),
        cmocka_unit_test_setup_teardown(test_one_library_under_two_names_counts_once, jit_setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_complete_library_goes_first, jit_setup, jit_teardown),
        cmocka_unit_test(test_options_reach_the_compiler),
        cmocka_unit_test(test_worst_function_counts),
        cmocka_unit_test(test_failures_bring_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
