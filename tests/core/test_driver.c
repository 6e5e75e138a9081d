/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/driver.h"
#include "fake_cuda.h"
#include "testing.h"

static void assert_refused(const char *path, attns_status expected, const char *part) {
    attns_driver driver;
    assert_int_equal(attns_driver_open(&driver, path), expected);
    assert_contains(attns_last_error(), part);
    assert_null(driver.handle);
    assert_null(driver.path);
}

static void test_opens_by_path(void **state) {
    (void)state;
    attns_driver driver;
    assert_int_equal(attns_driver_open(&driver, FAKE_CUDA_PATH), ATTNS_OK);
    assert_int_equal(driver.version, 13000);
    char *real = realpath(FAKE_CUDA_PATH, NULL);
    assert_string_equal(driver.path, real);
    free(real);
    int count = 0;
    assert_int_equal(driver.device_get_count(&count), CUDA_SUCCESS);
    assert_int_equal(count, FAKE_NUM_DEVICES);
    attns_driver_close(&driver);
    assert_null(driver.path);
}

static void test_missing_file_is_named(void **state) {
    (void)state;
    assert_refused("/nonexistent/libcuda.so.1", ATTNS_ERROR_LIBRARY_NOT_FOUND, "/nonexistent/libcuda.so.1");
}

static void test_library_without_the_symbols_is_too_old(void **state) {
    (void)state;
    assert_refused("libm.so.6", ATTNS_ERROR_LIBRARY_NOT_FOUND, "has no cuInit: too old");
}

static void test_not_a_library(void **state) {
    (void)state;
    char *dir = scratch_make();
    file_write(dir, "libcuda.so.1", "text");
    char *path = path_join(dir, "libcuda.so.1");
    assert_refused(path, ATTNS_ERROR_LIBRARY_NOT_FOUND, path);
    free(path);
    scratch_remove(dir);
}

static void test_stub_is_known_by_its_folder(void **state) {
    (void)state;
    char *dir = scratch_make();
    file_write(dir, "stubs/placeholder", "");
    char *path = path_join(dir, "stubs/libcuda.so");
    file_copy(FAKE_CUDA_PATH, path);
    assert_refused(path, ATTNS_ERROR_LIBRARY_NOT_FOUND, "stub");
    /* Also behind a link from elsewhere. */
    char *alias = path_join(dir, "libcuda.so.1");
    assert_int_equal(symlink(path, alias), 0);
    assert_refused(alias, ATTNS_ERROR_LIBRARY_NOT_FOUND, "stub");
    assert_contains(attns_last_error(), alias);
    free(alias);
    free(path);
    scratch_remove(dir);
}

static void test_stub_is_known_by_its_answer(void **state) {
    (void)state;
    setenv("FAKE_CUDA_INIT", "34", 1); /* CUDA_ERROR_STUB_LIBRARY */
    assert_refused(FAKE_CUDA_PATH, ATTNS_ERROR_LIBRARY_NOT_FOUND, "stub");
    unsetenv("FAKE_CUDA_INIT");
}

static void test_toolkit_stub(void **state) {
    (void)state;
    const char *stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (access(stub, R_OK) != 0) {
        print_message("skipped: no CUDA toolkit with a stub library in /usr/local/cuda\n");
        skip();
    }
    assert_refused(stub, ATTNS_ERROR_LIBRARY_NOT_FOUND, "stub");
    /* A copy is known by what cuInit answers. */
    char *dir = scratch_make();
    char *path = path_join(dir, "libcuda.so.1");
    file_copy(stub, path);
    assert_refused(path, ATTNS_ERROR_LIBRARY_NOT_FOUND, "stub");
    free(path);
    scratch_remove(dir);
}

static void test_driver_without_device_is_a_cuda_error(void **state) {
    (void)state;
    setenv("FAKE_CUDA_INIT", "100", 1);
    assert_refused(FAKE_CUDA_PATH, ATTNS_ERROR_CUDA, "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device");
    assert_contains(attns_last_error(), "libfake_cuda.so");
    unsetenv("FAKE_CUDA_INIT");
}

static void test_unknown_error_has_its_number(void **state) {
    (void)state;
    setenv("FAKE_CUDA_INIT", "12345", 1);
    assert_refused(FAKE_CUDA_PATH, ATTNS_ERROR_CUDA, "cuInit: CUDA error 12345");
    unsetenv("FAKE_CUDA_INIT");
}

/* Runs in a child whose LD_LIBRARY_PATH has a stub first: prints what became of the default search. */
static int report_default_search(void) {
    attns_driver driver;
    attns_status status = attns_driver_open(&driver, NULL);
    if (status == ATTNS_OK)
        printf("opened %s\n", driver.path);
    else
        printf("failed %d %s\n", (int)status, attns_last_error());
    return 0;
}

static void test_stub_first_in_the_search_path_is_passed_over(void **state) {
    const char *self = *state;
    char *dir = scratch_make();
    char *path = path_join(dir, "libcuda.so.1");
    file_copy(FAKE_CUDA_PATH, path);
    char command[4096];
    snprintf(command, sizeof command, "FAKE_CUDA_INIT=34 LD_LIBRARY_PATH='%s' '%s' --default-search", dir, self);
    FILE *child = popen(command, "r");
    assert_non_null(child);
    char output[16384];
    size_t size = fread(output, 1, sizeof output - 1, child);
    output[size] = '\0';
    assert_int_equal(pclose(child), 0);
    if (strncmp(output, "opened ", 7) == 0) { /* this machine has a driver, and it was found behind the stub */
        assert_lacks(output, dir);
    } else if (strncmp(output, "failed 4 ", 9) == 0) {
        assert_contains(output, "libcuda.so.1 (a CUDA toolkit's stub library");
        assert_contains(output, path);
        assert_contains(output, "/usr/lib64/libcuda.so.1 (");
        assert_contains(output, "/usr/local/nvidia/lib64/libcuda.so.1 (");
    } else {
        assert_int_equal(strncmp(output, "failed 7 ", 9), 0); /* a driver without a device */
        assert_lacks(output, dir);
    }
    free(path);
    scratch_remove(dir);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--default-search") == 0)
        return report_default_search();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_by_path),
        cmocka_unit_test(test_missing_file_is_named),
        cmocka_unit_test(test_library_without_the_symbols_is_too_old),
        cmocka_unit_test(test_not_a_library),
        cmocka_unit_test(test_stub_is_known_by_its_folder),
        cmocka_unit_test(test_stub_is_known_by_its_answer),
        cmocka_unit_test(test_toolkit_stub),
        cmocka_unit_test(test_driver_without_device_is_a_cuda_error),
        cmocka_unit_test(test_unknown_error_has_its_number),
        cmocka_unit_test_prestate(test_stub_first_in_the_search_path_is_passed_over, argv[0]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
