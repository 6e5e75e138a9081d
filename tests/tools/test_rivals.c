/* SPDX-License-Identifier: MIT
 *
 * The figures that attn-scores bench prints beside its own: those built in, and files of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_rivals.h"

#define SHAPE "\"B\": 4, \"ctx\": 16384, \"next_n\": 2, \"H\": 64, \"D\": 128, \"bkv\": 64"

static const bench_shape shape = {
    .variant = ATTNS_VARIANT_FP8,
    .batch = 4,
    .seq_len = 16384,
    .next_n = 2,
    .num_heads = 64,
    .head_dim = 128,
    .block_size = 64,
    .out_dtype = ATTNS_DTYPE_F32,
};
static const bench_settings settings = {.replays = 1};
static const bench_settings jittered = {.replays = 1, .jitter = true};

static char error[400];

static bool load_bytes(bench_rivals *rivals, const char *text, size_t length) {
    char path[] = "/tmp/attns-rivals-XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, text, length), length);
    close(descriptor);
    memset(error, 0, sizeof(error));
    const bool ok = bench_rivals_load(rivals, path, error, sizeof(error));
    unlink(path);
    if (!ok) {
        assert_non_null(strstr(error, path));
        assert_int_equal(rivals->count, 0);
        assert_null(rivals->allocated);
    }
    return ok;
}

static void load(bench_rivals *rivals, const char *text) {
    if (!load_bytes(rivals, text, strlen(text))) {
        fail_msg("%s\n%s", error, text);
    }
}

static void refused(const char *text, const char *mentioned) {
    bench_rivals rivals;
    assert_false(load_bytes(&rivals, text, strlen(text)));
    if (strstr(error, mentioned) == NULL) {
        fail_msg("'%s' does not mention '%s'", error, mentioned);
    }
}

static void test_built_in(void **state) {
    (void)state;
    const bench_rivals rivals = bench_rivals_built_in("NVIDIA H200");
    assert_true(bench_rival_us(&rivals, &shape, &settings) == 9.32);
    assert_true(bench_rival_us(&rivals, &shape, &jittered) == 0);
    assert_string_equal(rivals.device, "");
    for (size_t i = 0; i < bench_num_deepgemm_shapes; i++) { /* the preset's shapes all have figures */
        bench_shape preset = shape;
        preset.batch = bench_deepgemm_shapes[i].batch;
        preset.seq_len = bench_deepgemm_shapes[i].seq_len;
        for (preset.next_n = 1; preset.next_n <= 2; preset.next_n++) {
            assert_true(bench_rival_us(&rivals, &preset, &settings) > 5);
        }
    }
    const bench_rivals other = bench_rivals_built_in("NVIDIA H100");
    assert_true(bench_rival_us(&other, &shape, &settings) == 0);
}

static void test_only_what_was_measured(void **state) {
    (void)state;
    bench_rivals rivals;
    load(&rivals, "{" SHAPE ", \"us_both\": 9.5}\n");
    assert_int_equal(rivals.count, 1);
    assert_true(bench_rival_us(&rivals, &shape, &settings) == 9.5);

    bench_shape others[8];
    for (size_t i = 0; i < 8; i++) {
        others[i] = shape;
    }
    others[0].batch = 5;
    others[1].seq_len = 16383;
    others[2].next_n = 1;
    others[3].num_heads = 32;
    others[4].head_dim = 64;
    others[5].block_size = 32;
    others[6].out_dtype = ATTNS_DTYPE_BF16;
    others[7].variant = ATTNS_VARIANT_FP4;
    for (size_t i = 0; i < 8; i++) {
        assert_true(bench_rival_us(&rivals, &others[i], &settings) == 0);
    }
    const bench_settings clean = {.replays = 1, .clean = true};
    assert_true(bench_rival_us(&rivals, &shape, &clean) == 0);
    assert_true(bench_rival_us(&rivals, &shape, &jittered) == 0);
    bench_rivals_free(&rivals);
    assert_int_equal(rivals.count, 0);
}

static void test_lines(void **state) {
    (void)state;
    bench_rivals rivals;
    /* Unknown members, empty lines, jitter beside none, a repeated shape, whole microseconds, no newline at the end. */
    load(&rivals,
         "{\"library\": \"sgl-deep-gemm 0.1.5\", \"device\": \"NVIDIA H200\", " SHAPE
         ", \"jitter\": false, \"us_main\": 7.1, \"us_both\": 9.5, \"host_us\": null, \"more\": {\"B\": [1]}}\n"
         "\n \t\r\n"
         "{" SHAPE ", \"jitter\": true, \"us_both\": 11, \"device\": \"another\"}\r\n"
         "{" SHAPE ", \"us_both\": 9.25}\n"
         "{" SHAPE ", \"us_both\": 9.75}");
    assert_int_equal(rivals.count, 4);
    assert_true(bench_rival_us(&rivals, &shape, &settings) == 9.25);
    assert_true(bench_rival_us(&rivals, &shape, &jittered) == 11);
    assert_string_equal(rivals.device, "NVIDIA H200");
    assert_string_equal(rivals.source, "sgl-deep-gemm 0.1.5 on NVIDIA H200");
    bench_rivals_free(&rivals);

    load(&rivals, "{" SHAPE ", \"us_both\": 9.5, \"library\": 3, \"pdl\": true}\n");
    assert_string_equal(rivals.device, "");
    assert_string_equal(rivals.source, "unknown version on an unknown device, PDL on");
    bench_rivals_free(&rivals);
}

static void test_many_lines_and_long_names(void **state) {
    (void)state;
    enum { LINES = 1000 };
    char *text = malloc(LINES * 128 + 2048);
    assert_non_null(text);
    char name[901];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    size_t length =
        (size_t)sprintf(text, "{" SHAPE ", \"us_both\": 1, \"library\": \"%s\", \"device\": \"%s\"}\n", name, name);
    for (int i = 1; i < LINES; i++) {
        length += (size_t)sprintf(text + length,
                                  "{\"B\": %d, \"ctx\": 64, \"next_n\": 1, \"H\": 8, \"D\": 64, \"bkv\": 16, "
                                  "\"us_both\": %d.5}\n",
                                  i, i);
    }
    bench_rivals rivals;
    load(&rivals, text);
    assert_int_equal(rivals.count, LINES);
    bench_shape small = {ATTNS_VARIANT_FP8, LINES - 1, 64, 1, 8, 64, 16, ATTNS_DTYPE_F32};
    assert_true(bench_rival_us(&rivals, &small, &settings) == LINES - 0.5);
    bench_rivals_free(&rivals);
    free(text);
}

static void test_malformed(void **state) {
    (void)state;
    const char good[] = "{" SHAPE ", \"us_both\": 9.5}\n";
    char second[400];
    static const struct {
        const char *line, *mentioned;
    } cases[] = {
        {"{" SHAPE ", \"us_both\": 9.5", "line 2"},
        {"{" SHAPE ", \"us_both\": 9.5} {}", "line 2"},
        {"{" SHAPE ", \"us_both\": NaN}", "line 2"},
        {"{" SHAPE ", \"us_both\": 9.5, \"us_both\": 1}", "line 2"},
        {"# B ctx", "line 2"},
        {"[4, 16384]", "object"},
        {"9.5", "line 2"},
        {"{}", "\"ctx\""},
        {"{" SHAPE "}", "us_both"},
        {"{" SHAPE ", \"us_both\": \"9.5\"}", "us_both"},
        {"{" SHAPE ", \"us_both\": 0}", "us_both"},
        {"{" SHAPE ", \"us_both\": -1}", "us_both"},
        {"{" SHAPE ", \"us_both\": 1e999}", "line 2"},
        {"{" SHAPE ", \"us_both\": 9.5, \"jitter\": 1}", "jitter"},
        {"{\"B\": 4, \"ctx\": 64, \"next_n\": 2, \"H\": 64, \"D\": 128, \"us_both\": 9.5}", "\"bkv\""},
        {"{\"B\": 0, \"ctx\": 64, \"next_n\": 2, \"H\": 64, \"D\": 128, \"bkv\": 64, \"us_both\": 9.5}", "\"B\""},
        {"{\"B\": 4.0, \"ctx\": 64, \"next_n\": 2, \"H\": 64, \"D\": 128, \"bkv\": 64, \"us_both\": 9.5}", "\"B\""},
        {"{\"B\": 4294967297, \"ctx\": 64, \"next_n\": 2, \"H\": 64, \"D\": 128, \"bkv\": 64, \"us_both\": 9}",
         "\"B\""},
        {"{" SHAPE ", \"us_both\": 9.5, \"library\": \"\xff\"}", "line 2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(second, sizeof(second), "%s%s\n", good, cases[i].line);
        refused(second, "line 2");
        refused(second, cases[i].mentioned);
    }
    refused("", "no figure");
    refused("\n\n", "no figure");

    static const char zero[] = "{" SHAPE ", \"us_both\": 9.5}\n{\0}\n";
    bench_rivals rivals;
    assert_false(load_bytes(&rivals, zero, sizeof(zero) - 1));
    assert_non_null(strstr(error, "line 2"));
}

static void test_unreadable(void **state) {
    (void)state;
    bench_rivals rivals;
    assert_false(bench_rivals_load(&rivals, "/no/such/file.jsonl", error, sizeof(error)));
    assert_string_equal(error, "/no/such/file.jsonl: No such file or directory");
    assert_false(bench_rivals_load(&rivals, "/tmp", error, sizeof(error)));
    assert_string_equal(error, "/tmp: Is a directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in),  cmocka_unit_test(test_only_what_was_measured),
        cmocka_unit_test(test_lines),     cmocka_unit_test(test_many_lines_and_long_names),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
