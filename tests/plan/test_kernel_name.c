/* SPDX-License-Identifier: MIT
 *
 * Names of kernels: printed and read back, found in logs, refused where they are damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/kernel_name.h"
#include "testing.h"

static uint64_t seed;

static int pick(int bound) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)bound);
}

static attns_problem random_problem(void) {
    if (pick(8) == 0)
        return (attns_problem){.kind = ATTNS_KERNEL_SCHEDULE};
    const bool fp4 = pick(2);
    return (attns_problem){.kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
                           .num_heads = 1 + pick(200),
                           .head_dim = 1 + pick(999999),
                           .block_size = 1 + pick(300),
                           .next_n = 1 + pick(9),
                           .out_dtype = ATTNS_DTYPE_F32 + pick(3),
                           .acc_dtype = fp4 ? 0 : ATTNS_DTYPE_F32 + pick(3),
                           .epi_dtype = fp4 ? 0 : ATTNS_DTYPE_F32 + pick(3),
                           .kv_sf_interleaved = fp4 ? pick(2) : 0,
                           .much_work = fp4 ? 0 : pick(2)};
}

static void test_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const attns_problem problem = random_problem();
        char name[128], text[200];
        const bool portable = pick(2);
        attns_kernel_name_print(&problem, portable, name, sizeof name);
        attns_kernel_reference reference;
        const char *end;
        assert_int_equal(attns_kernel_reference_parse(name, &reference, &end), ATTNS_KERNEL_FOUND);
        assert_memory_equal(&reference.problem, &problem, sizeof problem);
        assert_string_equal(end, "");
        assert_string_equal(reference.arch, "");
        assert_int_equal(reference.portable, portable);
        const bool ptx = pick(2);
        snprintf(text, sizeof text, "%s for sm_103a%s", name, ptx ? " (PTX)" : "");
        assert_int_equal(attns_kernel_reference_parse(text, &reference, &end), ATTNS_KERNEL_FOUND);
        assert_memory_equal(&reference.problem, &problem, sizeof problem);
        assert_string_equal(end, "");
        assert_string_equal(reference.arch, "sm_103a");
        assert_int_equal(reference.ptx, ptx);
    }
}

/* What the plans are called is what the parser reads. */
static void test_plans_have_these_names(void **state) {
    (void)state;
    attns_target target;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    int planned = 0;
    for (int i = 0; i < 20000; i++) {
        attns_problem problem = random_problem();
        problem.num_heads = problem.num_heads ? 8 * (1 + pick(16)) : 0;
        problem.head_dim = problem.head_dim ? 32 << pick(3) : 0;
        problem.block_size = problem.block_size ? 16 << pick(5) : 0;
        attns_plan plan;
        if (attns_plan_make(&problem, &target, ATTNS_CHOOSE_AUTO, &plan) != ATTNS_OK)
            continue;
        planned++;
        attns_kernel_reference reference;
        const char *end;
        assert_int_equal(attns_kernel_reference_parse(plan.name, &reference, &end), ATTNS_KERNEL_FOUND);
        assert_memory_equal(&reference.problem, &problem, sizeof problem);
        assert_string_equal(end, "");
    }
    assert_true(planned > 1000);
}

#define NAME "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f16 epi=f32"

static void test_found_in_logs(void **state) {
    (void)state;
    static const struct {
        const char *line, *name, *arch, *rest;
    } found[] = {
        {NAME, NAME, "", ""},
        {NAME " for sm_90a", NAME, "sm_90a", ""},
        {"attn-scores: compiled " NAME " for sm_90a in 0.312 s: 90 registers", NAME, "sm_90a",
         " in 0.312 s: 90 registers"},
        {"2026-01-01 W " NAME " for sm_90a (PTX): from the disk cache", NAME, "sm_90a", ": from the disk cache"},
        {"attn-scores precompile --kernel '" NAME " for sm_100f' --cache-dir '/x'", NAME, "sm_100f",
         "' --cache-dir '/x'"},
        {NAME ": could not be loaded", NAME, "", ": could not be loaded"},
        {NAME " much work for sm_90a: compiled", NAME " much work", "sm_90a", ": compiled"},
        {NAME " much worked on", NAME, "", " much worked on"},
        {NAME " for you", NAME, "", " for you"},
        {NAME " for compute_80", NAME, "compute_80", ""},
        {"\"paged_mqa_logits_schedule for sm_90a\"", "paged_mqa_logits_schedule", "sm_90a", "\""},
        {"paged_mqa_logits_schedule", "paged_mqa_logits_schedule", "", ""},
        {"fp4_paged_mqa_logits h64 d128 b128 n2 out=bf16 interleaved portable for sm_89: compiled",
         "fp4_paged_mqa_logits h64 d128 b128 n2 out=bf16 interleaved portable", "sm_89", ": compiled"},
        {"fp4_paged_mqa_logits h64 d128 b128 n2 out=bf16 and so on", "fp4_paged_mqa_logits h64 d128 b128 n2 out=bf16",
         "", " and so on"},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        attns_kernel_reference reference;
        const char *start, *end;
        char name[128];
        print_message("'%s'\n", found[i].line);
        assert_int_equal(attns_kernel_reference_find(found[i].line, &reference, &start, &end), ATTNS_KERNEL_FOUND);
        attns_kernel_name_print(&reference.problem, reference.portable, name, sizeof name);
        assert_string_equal(name, found[i].name);
        assert_memory_equal(start, name, strlen(name));
        assert_string_equal(reference.arch, found[i].arch);
        assert_string_equal(end, found[i].rest);
    }
    static const char *const passed_over[] = {
        "",
        "server started",
        "fp8_paged_mqa_logits: q: dtype is float16, accepted: float8_e4m3fn",
        "attns_fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f16 epi=f32",
        "attns_compute_paged_mqa_logits_schedule: num_sms",
        "fp8_paged_mqa_logits has h64",
        "paged_mqa_logits_schedules",
    };
    for (size_t i = 0; i < sizeof passed_over / sizeof passed_over[0]; i++) {
        attns_kernel_reference reference;
        const char *start, *end;
        print_message("'%s'\n", passed_over[i]);
        assert_int_equal(attns_kernel_reference_find(passed_over[i], &reference, &start, &end), ATTNS_KERNEL_NOT_FOUND);
    }
}

static void test_damaged_names(void **state) {
    (void)state;
    static const struct {
        const char *text, *at;
    } damaged[] = {
        {"fp8_paged_mqa_logits h64", ""},
        {"fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f16", ""},
        {"fp8_paged_mqa_logits h064 d128 b64 n1 out=f32 acc=f16 epi=f32", " h064 d128 b64 n1 out=f32 acc=f16 epi=f32"},
        {"fp8_paged_mqa_logits h1234567 d1 b1 n1 out=f32 acc=f16 epi=f32",
         " h1234567 d1 b1 n1 out=f32 acc=f16 epi=f32"},
        {"fp8_paged_mqa_logits h64 b64 d128 n1 out=f32 acc=f16 epi=f32", " b64 d128 n1 out=f32 acc=f16 epi=f32"},
        {"fp8_paged_mqa_logits h64 d128 b64 n-1 out=f32 acc=f16 epi=f32", " n-1 out=f32 acc=f16 epi=f32"},
        {"fp8_paged_mqa_logits h64 d128 b64 n1 out=f8 acc=f16 epi=f32", " out=f8 acc=f16 epi=f32"},
        {"fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f16 epi=f322", " epi=f322"},
        {"fp8_paged_mqa_logits h64  d128 b64 n1 out=f32 acc=f16 epi=f32", "  d128 b64 n1 out=f32 acc=f16 epi=f32"},
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        attns_kernel_reference reference;
        const char *start, *end;
        print_message("'%s'\n", damaged[i].text);
        assert_int_equal(attns_kernel_reference_find(damaged[i].text, &reference, &start, &end),
                         ATTNS_KERNEL_MALFORMED);
        assert_ptr_equal(start, damaged[i].text);
        assert_string_equal(end, damaged[i].at);
    }
}

/* Random changes of a name: what is still read prints as it was written. */
static void test_random_changes(void **state) {
    (void)state;
    static const char text[] = "x " NAME " for sm_90a (PTX) y";
    static const char letters[] = " =_hdbnfox0123456789ac()'";
    for (int i = 0; i < 200000; i++) {
        char line[sizeof text], name[128];
        memcpy(line, text, sizeof text);
        for (int k = pick(4); k >= 0; k--)
            line[pick(sizeof text - 1)] = letters[pick(sizeof letters - 1)];
        line[pick(20) == 0 ? pick(sizeof text - 1) : (int)sizeof text - 1] = '\0';
        attns_kernel_reference reference;
        const char *start, *end;
        if (attns_kernel_reference_find(line, &reference, &start, &end) != ATTNS_KERNEL_FOUND)
            continue;
        attns_kernel_name_print(&reference.problem, reference.portable, name, sizeof name);
        assert_memory_equal(start, name, strlen(name));
        assert_in_range((uintptr_t)end, (uintptr_t)start, (uintptr_t)line + strlen(line));
    }
}

int main(void) {
    const char *const given = getenv("ATTNS_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("ATTNS_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_plans_have_these_names),
        cmocka_unit_test(test_found_in_logs),  cmocka_unit_test(test_damaged_names),
        cmocka_unit_test(test_random_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
