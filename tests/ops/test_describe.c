/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <attn_scores/attn_scores.h>

/* An object of a framework: a number. */
static int describe_number(void *object, DLTensor *tensor) {
    const int *number = object;
    if (*number < 0)
        return -1;
    tensor->ndim = *number;
    return 0;
}

static void test_all_are_described(void **state) {
    (void)state;
    int numbers[] = {3, 1, 4};
    void *objects[] = {&numbers[2], &numbers[0], &numbers[1]};
    DLTensor tensors[4] = {{.ndim = 9}, {.ndim = 9}, {.ndim = 9}, {.ndim = 9}};
    attns_describe_params params = {.describe = describe_number, .tensors = tensors, .count = 3};
    assert_int_equal(attns_describe_tensors(&params, objects), 3);
    assert_int_equal(tensors[0].ndim, 4);
    assert_int_equal(tensors[1].ndim, 3);
    assert_int_equal(tensors[2].ndim, 1);
    assert_int_equal(tensors[3].ndim, 9);
    params.count = 0;
    assert_int_equal(attns_describe_tensors(&params, NULL), 0);
}

static void test_it_stops_at_the_first_failure(void **state) {
    (void)state;
    int numbers[] = {2, -1, 5};
    void *objects[] = {&numbers[0], &numbers[1], &numbers[2]};
    DLTensor tensors[3] = {{.ndim = 9}, {.ndim = 9}, {.ndim = 9}};
    const attns_describe_params params = {.describe = describe_number, .tensors = tensors, .count = 3};
    assert_int_equal(attns_describe_tensors(&params, objects), 1);
    assert_int_equal(tensors[0].ndim, 2);
    assert_int_equal(tensors[1].ndim, 9);
    assert_int_equal(tensors[2].ndim, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_described),
        cmocka_unit_test(test_it_stops_at_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
