/* SPDX-License-Identifier: MIT
 *
 * What no kernel exists for: every value of every field that is not supported. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "testing.h"

static attns_target sm90(void) {
    attns_target target;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    return target;
}

/* ---- Problems ---- */

static bool is_num_heads(int value) {
    return value >= 8 && value <= 128 && value % 8 == 0;
}

static bool is_head_dim(int value) {
    return value == 32 || value == 64 || value == 128;
}

static bool is_block_size(int value) {
    return value == 16 || value == 32 || value == 64 || value == 128 || value == 256;
}

static bool is_next_n(int value) {
    return value >= 1 && value <= 8;
}

static bool is_output(int value) {
    return value == ATTNS_DTYPE_F32 || value == ATTNS_DTYPE_F16 || value == ATTNS_DTYPE_BF16;
}

static bool is_arithmetic(int value) {
    return value == ATTNS_DTYPE_F32 || value == ATTNS_DTYPE_F16;
}

typedef struct field_rule {
    const char *name;
    size_t offset; /* in attns_problem, of an int32_t */
    bool (*supported)(int value);
    bool is_dtype;
    const char *accepted;
} field_rule;

static const field_rule fields[] = {
    {"num_heads", offsetof(attns_problem, num_heads), is_num_heads, false, "8 to 128 in multiples of 8"},
    {"head_dim", offsetof(attns_problem, head_dim), is_head_dim, false, "32, 64 or 128"},
    {"block_size", offsetof(attns_problem, block_size), is_block_size, false, "16, 32, 64, 128 or 256"},
    {"next_n", offsetof(attns_problem, next_n), is_next_n, false, "1 to 8"},
    {"out_dtype", offsetof(attns_problem, out_dtype), is_output, true, "f32, f16, bf16"},
    {"acc_dtype", offsetof(attns_problem, acc_dtype), is_arithmetic, true, "f32, f16"},
    {"epi_dtype", offsetof(attns_problem, epi_dtype), is_arithmetic, true, "f32, f16"},
};

/* Supported but for one field. */
static const attns_problem neighbours[] = {
    {ATTNS_KERNEL_FP8_LOGITS, 8, 32, 16, 1, ATTNS_DTYPE_F16, ATTNS_DTYPE_F16, ATTNS_DTYPE_F16, 0, 0},
    {ATTNS_KERNEL_FP8_LOGITS, 64, 128, 64, 2, ATTNS_DTYPE_F32, ATTNS_DTYPE_F32, ATTNS_DTYPE_F32, 0, 0},
    {ATTNS_KERNEL_FP8_LOGITS, 128, 128, 256, 8, ATTNS_DTYPE_BF16, ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, 0, 0},
};

static void check_value(const field_rule *field, int value) {
    const attns_target target = sm90();
    for (size_t i = 0; i < sizeof neighbours / sizeof neighbours[0]; i++) {
        attns_problem problem = neighbours[i];
        memcpy((char *)&problem + field->offset, &(int32_t){value}, sizeof(int32_t));
        attns_plan plan;
        const attns_status status = attns_plan_make(&problem, &target, ATTNS_CHOOSE_AUTO, &plan);
        if (field->supported(value)) {
            if (status != ATTNS_OK)
                fail_msg("%s %d: %s", field->name, value, attns_last_error());
            continue;
        }
        if (status != ATTNS_ERROR_UNSUPPORTED)
            fail_msg("%s %d: %s", field->name, value, attns_status_string(status));
        char given[64], expected[256];
        if (!field->is_dtype)
            snprintf(given, sizeof given, "%d", value);
        else if (value >= ATTNS_DTYPE_DEFAULT && value <= ATTNS_DTYPE_BF16)
            snprintf(given, sizeof given, "%s", attns_dtype_name((attns_dtype)value));
        else
            snprintf(given, sizeof given, "%d", value); /* no dtype, so it has no name */
        snprintf(expected, sizeof expected, "%s: is %s", field->name, given);
        assert_memory_equal(attns_last_error(), expected, strlen(expected));
        snprintf(expected, sizeof expected, ", accepted: %s", field->accepted);
        assert_contains(attns_last_error(), expected);
    }
}

static void test_each_value_of_each_field(void **state) {
    (void)state;
    static const int far[] = {INT_MIN, INT_MIN + 8, -65536, 1024, 4096, 65536, INT_MAX - 7, INT_MAX};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        for (int value = -300; value <= 600; value++)
            check_value(&fields[f], value);
        for (size_t i = 0; i < sizeof far / sizeof far[0]; i++)
            check_value(&fields[f], far[i]);
    }
}

static void test_names_of_dtypes(void **state) {
    (void)state;
    assert_string_equal(attns_dtype_name(ATTNS_DTYPE_F32), "f32");
    assert_string_equal(attns_dtype_name(ATTNS_DTYPE_F16), "f16");
    assert_string_equal(attns_dtype_name(ATTNS_DTYPE_BF16), "bf16");
    assert_string_equal(attns_dtype_name(ATTNS_DTYPE_DEFAULT), "default");
}

static void test_unknown_kinds(void **state) {
    (void)state;
    const attns_target target = sm90();
    static const int kinds[] = {-1, 0, 99, INT_MAX};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        attns_problem problem = neighbours[0];
        problem.kind = kinds[i];
        attns_plan plan;
        assert_int_equal(attns_plan_make(&problem, &target, ATTNS_CHOOSE_AUTO, &plan), ATTNS_ERROR_INTERNAL);
        char number[32];
        snprintf(number, sizeof number, "kind %d ", kinds[i]);
        assert_contains(attns_last_error(), number);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_value_of_each_field),
        cmocka_unit_test(test_names_of_dtypes),
        cmocka_unit_test(test_unknown_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
