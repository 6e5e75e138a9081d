/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/template.h"
#include "testing.h"

static int setup(void **state) {
    *state = scratch_make();
    return 0;
}

static int teardown(void **state) {
    scratch_remove(*state);
    return 0;
}

static void check_fill(const char *dir, const attns_placeholder *placeholders, size_t count, const char *expected) {
    char *source = NULL;
    attns_status status = attns_template_fill(dir, "a.cu", placeholders, count, &source);
    if (status != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    assert_string_equal(source, expected);
    free(source);
}

static void check_error(const char *dir, const char *file, const attns_placeholder *placeholders, size_t count,
                        attns_status expected, const char *part) {
    char *source = (char *)1;
    assert_int_equal(attns_template_fill(dir, file, placeholders, count, &source), expected);
    assert_null(source);
    assert_contains(attns_last_error(), part);
}

static void test_placeholders(void **state) {
    const attns_placeholder values[] = {{"N", "64"}, {"LONG_NAME_2", "float"}};
    file_write(*state, "a.cu", "x@N@y@LONG_NAME_2@@N@\n@ @n@ @@ @N a@b @N@");
    check_fill(*state, values, 2, "#line 1 \"templates/a.cu\"\nx64yfloat64\n@ @n@ @@ @N a@b 64\n");
}

static void test_values_are_not_filled_again(void **state) {
    const attns_placeholder values[] = {{"A", "@B@"}, {"B", "1"}};
    file_write(*state, "a.cu", "@A@ @B@\n");
    check_fill(*state, values, 2, "#line 1 \"templates/a.cu\"\n@B@ 1\n");
}

static void test_includes_once_with_line_numbers(void **state) {
    const attns_placeholder values[] = {{"N", "7"}};
    file_write(*state, "a.cu", "one\n#include \"lib/b.cuh\"\nthree\n  #  include \"lib/c.cuh\" // again\nfive\n");
    file_write(*state, "lib/b.cuh", "#pragma once\n#include \"lib/c.cuh\"\nb @N@\n");
    file_write(*state, "lib/c.cuh", "#include \"lib/b.cuh\"\nc");
    check_fill(*state, values, 1,
               "#line 1 \"templates/a.cu\"\none\n"
               "#line 1 \"templates/lib/b.cuh\"\n\n"
               "#line 1 \"templates/lib/c.cuh\"\n\nc\n"
               "#line 3 \"templates/lib/b.cuh\"\nb 7\n"
               "#line 3 \"templates/a.cu\"\nthree\n\nfive\n");
}

static void test_comments_hide_directives(void **state) {
    const char *text = "/* text\n#include \"nowhere.cuh\"\n*/ x\n// #include \"nowhere.cuh\"\n"
                       "const char *s = \"/*\";\nint n = 1'000 /* ' */;\nchar c = '\"'; // /*\n#include_next\n";
    char expected[512];
    file_write(*state, "a.cu", text);
    snprintf(expected, sizeof expected, "#line 1 \"templates/a.cu\"\n%s", text);
    check_fill(*state, NULL, 0, expected);
    /* None of the lines above left the filler believing in an open comment. */
    file_write(*state, "b.cuh", "b\n");
    char with_include[512];
    snprintf(with_include, sizeof with_include, "%s#include \"b.cuh\"\n", text);
    file_write(*state, "a.cu", with_include);
    snprintf(expected, sizeof expected,
             "#line 1 \"templates/a.cu\"\n%s#line 1 \"templates/b.cuh\"\nb\n#line 10 \"templates/a.cu\"\n", text);
    check_fill(*state, NULL, 0, expected);
}

static void test_placeholder_errors(void **state) {
    const attns_placeholder one[] = {{"N", "1"}};
    const attns_placeholder two[] = {{"N", "1"}, {"UNUSED", "17"}};
    const attns_placeholder twice[] = {{"N", "1"}, {"N", "2"}};
    const attns_placeholder lower[] = {{"n", "1"}};
    const attns_placeholder empty[] = {{"N", ""}};
    file_write(*state, "a.cu", "@N@\n#include \"lib/b.cuh\"\n");
    file_write(*state, "lib/b.cuh", "\n\nint x = @OTHER@;\n");
    check_error(*state, "a.cu", one, 1, ATTNS_ERROR_IO, "lib/b.cuh:3: placeholder @OTHER@ has no value");
    file_write(*state, "lib/b.cuh", "\n");
    check_error(*state, "a.cu", two, 2, ATTNS_ERROR_IO, "a.cu: placeholder @UNUSED@ has the value 17, but no file");
    const attns_placeholder unused_first[] = {two[1], two[0]};
    check_error(*state, "a.cu", unused_first, 2, ATTNS_ERROR_IO, "@UNUSED@");
    check_error(*state, "a.cu", twice, 2, ATTNS_ERROR_INTERNAL, "@N@ is given twice");
    check_error(*state, "a.cu", lower, 1, ATTNS_ERROR_INTERNAL, "'n' is not a placeholder name");
    check_error(*state, "a.cu", empty, 1, ATTNS_ERROR_INTERNAL, "no value");
}

static void test_include_errors(void **state) {
    const char *const wrong[][2] = {
        {"#include <cuda_fp8.h>", "a.cu:2: #include <cuda_fp8.h>: only"},
        {"#include MACRO", "a.cu:2: #include MACRO: only"},
        {"#include \"open", "a.cu:2: #include \"open: only"},
        {"#include", "a.cu:2: #include : only"},
        {"#include \"lib/missing.cuh\"", "lib/missing.cuh: No such file"},
        {"#include \"../escape.cuh\"", "'../escape.cuh' is not a path inside"},
        {"#include \"lib/../../escape.cuh\"", "is not a path inside"},
        {"#include \"/etc/passwd\"", "'/etc/passwd' is not a path inside"},
        {"#include \"./b.cuh\"", "is not a path inside"},
        {"#include \"lib//b.cuh\"", "is not a path inside"},
        {"#include \"\"", "'' is not a path inside"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "first\n%s\n", wrong[i][0]);
        file_write(*state, "a.cu", text);
        check_error(*state, "a.cu", NULL, 0, ATTNS_ERROR_IO, wrong[i][1]);
        assert_contains(attns_last_error(), "a.cu:2");
        assert_contains(attns_last_error(), *state);
    }
}

static void test_kernel_file_errors(void **state) {
    check_error(*state, "missing.cu", NULL, 0, ATTNS_ERROR_IO, "missing.cu: No such file");
    check_error(*state, "../a.cu", NULL, 0, ATTNS_ERROR_IO, "'../a.cu' is not a path inside");
    check_error("/nonexistent/folder", "a.cu", NULL, 0, ATTNS_ERROR_IO, "/nonexistent/folder/a.cu");
    check_error(*state, "..", NULL, 0, ATTNS_ERROR_IO, "is not a path inside");
    file_write(*state, "lib/x", "");
    check_error(*state, "lib", NULL, 0, ATTNS_ERROR_IO, "lib: ");
    char *path = path_join(*state, "a.cu");
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_int_equal(fwrite("a\0b\n", 1, 4, stream), 4);
    fclose(stream);
    free(path);
    check_error(*state, "a.cu", NULL, 0, ATTNS_ERROR_IO, "NUL byte");
}

static void test_too_many_files(void **state) {
    for (int i = 0; i < 70; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "f%d.cuh", i);
        snprintf(text, sizeof text, "#include \"f%d.cuh\"\n", i + 1);
        file_write(*state, name, text);
    }
    check_error(*state, "f0.cuh", NULL, 0, ATTNS_ERROR_IO, "more than 64 files");
}

static void test_embedded_files(void **state) {
    (void)state;
    check_error(NULL, "missing.cu", NULL, 0, ATTNS_ERROR_INTERNAL, "templates/missing.cu: no such file");
    int kernels = 0;
    for (const attns_embedded_file *file = attns_embedded_templates; file->name; file++) {
        if (file[1].name)
            assert_true(strcmp(file->name, file[1].name) < 0);
        const char *suffix = strrchr(file->name, '.');
        assert_non_null(suffix);
        kernels += strcmp(suffix, ".cu") == 0;
        assert_true(strlen(file->text) > 0);
    }
    assert_true(kernels >= 2);
}

/* The same file embedded and from its folder gives the same source, so that the cache key does not tell them apart. */
static void test_folder_does_not_show(void **state) {
    const attns_embedded_file *kernel = NULL;
    for (const attns_embedded_file *file = attns_embedded_templates; file->name; file++) {
        file_write(*state, file->name, file->text);
        if (strcmp(file->name, "schedule.cu") == 0)
            kernel = file;
    }
    assert_non_null(kernel);
    attns_placeholder values[64];
    size_t count = 0;
    char names[64][32];
    /* Whatever placeholders it has, at one level of includes or the other, get a value by trial. */
    for (;;) {
        char *embedded = NULL, *from_dir = NULL;
        attns_status status = attns_template_fill(NULL, kernel->name, values, count, &embedded);
        if (status == ATTNS_OK) {
            assert_int_equal(attns_template_fill(*state, kernel->name, values, count, &from_dir), ATTNS_OK);
            assert_string_equal(embedded, from_dir);
            assert_lacks(embedded, *state);
            free(embedded);
            free(from_dir);
            return;
        }
        assert_int_equal(status, ATTNS_ERROR_INTERNAL);
        const char *missing = strstr(attns_last_error(), "placeholder @");
        assert_non_null(missing);
        assert_true(count < 64);
        assert_int_equal(sscanf(missing, "placeholder @%31[A-Z0-9_]@ has no value", names[count]), 1);
        values[count] = (attns_placeholder){.name = names[count], .value = "1"};
        count++;
    }
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_placeholders),
        TEST(test_values_are_not_filled_again),
        TEST(test_includes_once_with_line_numbers),
        TEST(test_comments_hide_directives),
        TEST(test_placeholder_errors),
        TEST(test_include_errors),
        TEST(test_kernel_file_errors),
        TEST(test_too_many_files),
        TEST(test_embedded_files),
        TEST(test_folder_does_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
