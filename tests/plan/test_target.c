/* SPDX-License-Identifier: MIT
 *
 * Targets and selection: what is compiled for which device, by which family. Written so that it holds whichever
 * kernels exist: a target is offered exactly if a kernel does. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "testing.h"

static const char *const known[] = {"sm_80",   "sm_86",   "sm_87",   "sm_88",   "sm_89",   "sm_90",   "sm_90a",
                                    "sm_100",  "sm_100f", "sm_100a", "sm_103",  "sm_103f", "sm_103a", "sm_107",
                                    "sm_107f", "sm_107a", "sm_110",  "sm_110f", "sm_110a", "sm_120",  "sm_120f",
                                    "sm_120a", "sm_121",  "sm_121f", "sm_121a"};
#define NUM_KNOWN (sizeof known / sizeof known[0])

static bool is_offered(const char *arch) {
    attns_target target;
    return attns_target_from_arch(arch, &target) == ATTNS_OK;
}

/* The portable family serves everything from sm_80 on, so any target without a tuned family says whether it exists. */
static bool has_portable(void) {
    return is_offered("sm_80");
}

static void test_sm90a(void **state) {
    (void)state;
    attns_target target, same;
    memset(&target, 0xaa, sizeof target);
    memset(&same, 0x55, sizeof same);
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    assert_string_equal(target.arch, "sm_90a");
    assert_int_equal(target.compute_capability, 90);
    assert_int_equal(target.suffix, 'a');
    assert_int_equal(target.shared_bytes_per_sm, 228 * 1024);
    assert_int_equal(target.shared_bytes_per_block, 227 * 1024);
    assert_int_equal(target.tuned, ATTNS_FAMILY_SM90);
    assert_int_equal(attns_target_from_compute_capability(90, &same), ATTNS_OK);
    assert_memory_equal(&same, &target, sizeof target);
}

static void test_targets_are_offered_if_they_have_kernels(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_KNOWN; i++) {
        attns_target target;
        const attns_status status = attns_target_from_arch(known[i], &target);
        if (status == ATTNS_OK) {
            assert_string_equal(target.arch, known[i]);
            assert_true(attns_target_has_kernels(&target));
            assert_true(target.shared_bytes_per_block == target.shared_bytes_per_sm - 1024);
            char number[16];
            snprintf(number, sizeof number, "sm_%d", target.compute_capability);
            assert_memory_equal(target.arch, number, strlen(number));
            assert_int_equal(target.suffix, target.arch[strlen(number)]);
            assert_false(attns_target_is_ptx(&target));
        } else {
            assert_int_equal(status, ATTNS_ERROR_UNSUPPORTED_DEVICE);
            char expected[64];
            snprintf(expected, sizeof expected, "arch: is %s, accepted: ", known[i]);
            assert_contains(attns_last_error(), expected);
        }
        if (has_portable())
            assert_int_equal(status, ATTNS_OK);
    }
}

/* PTX must run on every later chip, so it gets the smallest shared memory there is. */
static void test_ptx_targets(void **state) {
    (void)state;
    static const int numbers[] = {80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char arch[16];
        snprintf(arch, sizeof arch, "compute_%d", numbers[i]);
        attns_target target;
        assert_int_equal(attns_target_from_arch(arch, &target) == ATTNS_OK, has_portable());
        if (!has_portable())
            continue;
        assert_string_equal(target.arch, arch);
        assert_true(attns_target_is_ptx(&target));
        assert_int_equal(target.compute_capability, numbers[i]);
        assert_int_equal(target.shared_bytes_per_sm, 100 * 1024);
        assert_int_equal(target.shared_bytes_per_block, 99 * 1024);
        assert_int_equal(target.tuned, ATTNS_FAMILY_NONE);
    }
}

static void test_unknown_archs(void **state) {
    (void)state;
    static const char *const archs[] = {"",
                                        "sm_75",
                                        "sm_90 a",
                                        "SM_90A",
                                        "sm_90aa",
                                        "sm_90a ",
                                        " sm_90a",
                                        "sm_90f",
                                        "sm_80a",
                                        "compute_90a",
                                        "compute_75",
                                        "compute",
                                        "compute_",
                                        "compute_100f",
                                        "90a",
                                        "sm_9",
                                        "sm_101a",
                                        "sm_130",
                                        "sm_",
                                        "sm_090",
                                        "sm_90a,sm_80",
                                        "%s%n",
                                        "an architecture with a long name"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        attns_target target, untouched;
        memset(&target, 0xaa, sizeof target);
        memset(&untouched, 0xaa, sizeof untouched);
        assert_int_equal(attns_target_from_arch(archs[i], &target), ATTNS_ERROR_UNSUPPORTED_DEVICE);
        char expected[128];
        snprintf(expected, sizeof expected, "arch: is %s, accepted: ", archs[i]);
        assert_memory_equal(attns_last_error(), expected, strlen(expected));
        assert_contains(attns_last_error(), "sm_90a");
        assert_memory_equal(&target, &untouched, sizeof target);
    }
    attns_target target;
    assert_int_equal(attns_target_from_arch(NULL, &target), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_memory_equal(attns_last_error(), "arch: is NULL, accepted: ", 25);
}

/* ---- Devices ---- */

typedef struct device_row {
    int compute_capability;
    const char *targets; /* in order, up to the PTX of the first plain target */
} device_row;

static const device_row devices[] = {
    {80, "sm_80 compute_80"},
    {86, "sm_86 compute_86"},
    {87, "sm_87 compute_87"},
    {88, "sm_88 compute_88"},
    {89, "sm_89 compute_89"},
    {90, "sm_90a sm_90 compute_90"},
    {100, "sm_100a sm_100f sm_100 compute_100"},
    {103, "sm_103a sm_103f sm_100f sm_103 compute_103"},
    {107, "sm_107a sm_107f sm_103f sm_100f sm_107 compute_107"},
    {110, "sm_110a sm_110f sm_110 compute_110"},
    {120, "sm_120a sm_120f sm_120 compute_120"},
    {121, "sm_121a sm_121f sm_120f sm_121 compute_121"},
    /* not in the table: a later minor revision, a later major one, one in between */
    {122, "sm_121f sm_120f sm_122 compute_121"},
    {130, "sm_130 compute_121"},
    {95, "sm_95 compute_90"},
};

/* A guess has no name that attns_target_from_arch accepts. */
static bool is_expected(const char *arch) {
    static const char *const guesses[] = {"sm_122", "sm_130", "sm_95"};
    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++)
        if (strcmp(arch, guesses[i]) == 0)
            return has_portable();
    return is_offered(arch);
}

static void test_devices(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        attns_target found[ATTNS_MAX_TARGETS], first;
        size_t count = 0, next = 0;
        const attns_status status = attns_targets_of_device(devices[i].compute_capability, found, &count);
        char names[128];
        snprintf(names, sizeof names, "%s", devices[i].targets);
        char *rest = NULL;
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            if (!is_expected(name))
                continue;
            if (next >= count)
                fail_msg("%d: %s is missing", devices[i].compute_capability, name);
            assert_string_equal(found[next++].arch, name);
        }
        /* What follows is the PTX of earlier chips, latest first. */
        for (; next < count; next++) {
            assert_true(attns_target_is_ptx(&found[next]));
            assert_true(found[next].compute_capability < found[next - 1].compute_capability);
        }
        assert_int_equal(status, count ? ATTNS_OK : ATTNS_ERROR_UNSUPPORTED_DEVICE);
        assert_int_equal(attns_target_from_compute_capability(devices[i].compute_capability, &first), status);
        if (count)
            assert_string_equal(first.arch, found[0].arch); /* not its bytes: a struct has padding */
        if (has_portable())
            assert_string_equal(found[count - 1].arch, "compute_80");
    }
}

static void test_devices_without_kernels(void **state) {
    (void)state;
    for (int capability = 0; capability <= 200; capability++) {
        attns_target target, untouched;
        memset(&target, 0xaa, sizeof target);
        memset(&untouched, 0xaa, sizeof untouched);
        const attns_status status = attns_target_from_compute_capability(capability, &target);
        if (capability >= 80 && status == ATTNS_OK)
            continue;
        char given[64];
        assert_true(capability != 90);
        assert_int_equal(status, ATTNS_ERROR_UNSUPPORTED_DEVICE);
        snprintf(given, sizeof given, "compute capability is %d.%d, accepted", capability / 10, capability % 10);
        assert_contains(attns_last_error(), given);
        assert_contains(attns_last_error(), "sm_90a");
        assert_memory_equal(&target, &untouched, sizeof target);
        assert_true(capability < 80 || !has_portable());
    }
}

/* ---- Selection ---- */

static attns_problem problem_of(attns_kernel_kind kind) {
    return (attns_problem){.kind = kind,
                           .num_heads = 64,
                           .head_dim = 128,
                           .block_size = 64,
                           .next_n = 1,
                           .out_dtype = ATTNS_DTYPE_F32,
                           .acc_dtype = kind == ATTNS_KERNEL_FP8_LOGITS ? ATTNS_DTYPE_F32 : ATTNS_DTYPE_DEFAULT,
                           .epi_dtype = kind == ATTNS_KERNEL_FP8_LOGITS ? ATTNS_DTYPE_F32 : ATTNS_DTYPE_DEFAULT};
}

static void test_tuned_kernels_are_preferred(void **state) {
    (void)state;
    attns_target target;
    attns_selection selection;
    const attns_problem problem = problem_of(ATTNS_KERNEL_FP8_LOGITS);
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    assert_int_equal(attns_plan_select(&problem, &target, ATTNS_CHOOSE_AUTO, &selection), ATTNS_OK);
    assert_int_equal(selection.family, ATTNS_FAMILY_SM90);
    assert_string_equal(selection.reason, "tuned for sm_90a");
    assert_int_equal(attns_plan_select(&problem, &target, ATTNS_CHOOSE_TUNED, &selection), ATTNS_OK);
    assert_int_equal(selection.family, ATTNS_FAMILY_SM90);
}

/* Whatever is chosen is made for the target and keeps to the choice, and the plan says so; what cannot be chosen gives
 * a reason. */
static void test_choices(void **state) {
    (void)state;
    static const attns_kernel_kind kinds[] = {ATTNS_KERNEL_FP8_LOGITS, ATTNS_KERNEL_FP4_LOGITS};
    for (size_t i = 0; i < NUM_KNOWN * 2 * 3; i++) {
        const attns_problem problem = problem_of(kinds[i % 2]);
        const attns_family_choice choice = (attns_family_choice)(i / 2 % 3);
        attns_target target;
        attns_selection selection;
        attns_plan plan;
        if (attns_target_from_arch(known[i / 6], &target) != ATTNS_OK)
            continue;
        const attns_status status = attns_plan_select(&problem, &target, choice, &selection);
        assert_int_equal(attns_plan_make(&problem, &target, choice, &plan), status);
        if (status != ATTNS_OK) {
            assert_int_equal(status, ATTNS_ERROR_UNSUPPORTED);
            assert_true(strlen(attns_last_error()) > 20);
            continue;
        }
        const bool portable = selection.family == ATTNS_FAMILY_PORTABLE;
        assert_true(portable || selection.family == target.tuned);
        assert_true(choice != ATTNS_CHOOSE_TUNED || !portable);
        assert_true(choice != ATTNS_CHOOSE_PORTABLE || portable);
        assert_memory_equal(selection.reason, portable ? "portable: " : "tuned for ", 10);
        assert_int_equal(plan.family, selection.family);
        assert_memory_equal(&plan.target, &target, sizeof target);
        assert_int_equal(strstr(plan.name, " portable") != NULL, portable);
        assert_true(plan.threads > 0 && plan.tile_tokens > 0 && plan.min_stages > 0);
        assert_true(plan.min_ctas_per_sm > 0 && plan.min_ctas_per_sm <= plan.max_ctas_per_sm);
        for (int ctas = plan.min_ctas_per_sm; ctas <= plan.max_ctas_per_sm; ctas++) {
            int stages = attns_plan_stages(&plan, ctas);
            if (portable && stages > plan.max_stages) /* its number of stages is compiled in */
                stages = plan.max_stages;
            assert_true(stages >= plan.min_stages && stages <= plan.max_stages);
            assert_true(ctas > plan.min_ctas_per_sm || stages == plan.max_stages);
            assert_true(attns_plan_shared_bytes(&plan, stages) <= target.shared_bytes_per_block);
        }
    }
}

static void test_names(void **state) {
    (void)state;
    attns_family_choice choice = ATTNS_CHOOSE_TUNED;
    assert_true(attns_family_choice_parse("auto", &choice) && choice == ATTNS_CHOOSE_AUTO);
    assert_true(attns_family_choice_parse("tuned", &choice) && choice == ATTNS_CHOOSE_TUNED);
    assert_true(attns_family_choice_parse("portable", &choice) && choice == ATTNS_CHOOSE_PORTABLE);
    assert_false(attns_family_choice_parse("", &choice));
    assert_false(attns_family_choice_parse("Portable", &choice));
    assert_int_equal(choice, ATTNS_CHOOSE_PORTABLE);
    assert_string_equal(attns_family_name(ATTNS_FAMILY_SM90), "sm90");
    assert_string_equal(attns_family_name(ATTNS_FAMILY_SM100), "sm100");
    assert_string_equal(attns_family_name(ATTNS_FAMILY_PORTABLE), "portable");
    assert_string_equal(attns_family_name(ATTNS_FAMILY_NONE), "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sm90a),
        cmocka_unit_test(test_targets_are_offered_if_they_have_kernels),
        cmocka_unit_test(test_ptx_targets),
        cmocka_unit_test(test_unknown_archs),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_devices_without_kernels),
        cmocka_unit_test(test_tuned_kernels_are_preferred),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
