/* SPDX-License-Identifier: MIT
 *
 * Random configurations, as many as $ATTNS_TEST_RANDOM or the argument says (default 300, --full 5000): shapes, layouts
 * and options drawn at random, every output judged in full. Nothing that is not finite may come out of finite inputs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random_case.h"
#include "support.h"

#define SHAPES 64

static size_t num_cases = 300;

/* On the software GPU with less work: a token may take a millisecond there (MXFP4 with scales of every size). */
static void run_random(size_t count, int64_t max_tokens, double max_work) {
    struct logits_case *cases = logits_random_cases(fx.variant, next_seed(), count, SHAPES, max_tokens);
    assert_non_null(cases);
    compile_ahead(cases, count);
    struct logits_check_options options = {.max_work = max_work};
    size_t failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += !logits_run_case(&fx.gpu, fx.ctx, fx.stream, &cases[i], i % 4 == 3 ? LOGITS_GUARD_END : LOGITS_PLAIN,
                                   &options, NULL);
    free(cases);
    printf("%zu random configurations, %zu wrong\n", count, failed);
    assert_int_equal(failed, 0);
}

static void test_random_configurations(void **state) {
    (void)state;
    run_random(num_cases - num_cases / 10, software_gpu() ? 10000 : 20000, 1e8);
}

static void test_random_long_configurations(void **state) {
    (void)state;
    run_random(num_cases / 10, software_gpu() ? 20000 : 200000, 4e8);
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : getenv("ATTNS_TEST_RANDOM");
    if (wanted && *wanted)
        num_cases = strcmp(wanted, "--full") == 0 ? 5000 : strtoul(wanted, NULL, 10);
    if (num_cases < 10) {
        fprintf(stderr, "number of configurations: '%s', accepted: 10 or more, or --full\n", wanted);
        return 2;
    }
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_configurations),
        cmocka_unit_test(test_random_long_configurations),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
