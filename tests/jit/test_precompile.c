/* SPDX-License-Identifier: MIT
 *
 * attns_precompile_paged_mqa_logits with a compiler that only pretends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_testing.h"

static const char *const sm90[] = {"sm_90a"};

/* next_n 1 to 4, next_n 2 for much work, and the schedule. */
enum { DEFAULT_KERNELS = 4 + 2 + 1 }; /* next_n 1 to 4, two of them with another for much work, and the schedule */

typedef struct progress_record {
    size_t calls, total, failed;
    size_t from[4]; /* by attns_kernel_source */
    int inside;     /* calls are serialised */
    bool overlapped;
    char kernels[64][128];
    char last_message[512];
    attns_context *ctx;
} progress_record;

static void record_progress(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    progress_record *record = user;
    record->overlapped |= record->inside++ != 0;
    record->calls++;
    record->overlapped |= done != record->calls;
    record->total = total;
    if (result->status == ATTNS_OK)
        record->from[result->source]++;
    else
        record->failed++;
    if (record->calls <= 64)
        snprintf(record->kernels[record->calls - 1], 128, "%s", result->kernel);
    if (result->status != ATTNS_OK)
        snprintf(record->last_message, sizeof record->last_message, "%s", result->message);
    else if (result->message[0] || strcmp(result->arch, "sm_90a") != 0 || result->registers != 42 ||
             result->spill_bytes != 0 || !(result->seconds >= 0))
        record->overlapped = true;
    record->inside--;
}

static attns_precompile_params base_params(progress_record *record) {
    memset(record, 0, sizeof *record);
    return (attns_precompile_params){
        .archs = sm90, .num_archs = 1, .jobs = 3, .progress = record_progress, .progress_user = record};
}

static void run(attns_context *ctx, const attns_precompile_params *params) {
    if (attns_precompile_paged_mqa_logits(ctx, params) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

static void test_product_of_the_lists(void **state) {
    attns_context *ctx = jit_context(*state);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    const int heads[] = {32, 64, 32}, next_ns[] = {1, 2};
    const attns_dtype out[] = {ATTNS_DTYPE_DEFAULT, ATTNS_DTYPE_F32, ATTNS_DTYPE_BF16};
    params.num_heads = heads, params.num_num_heads = 3;
    params.next_ns = next_ns, params.num_next_ns = 2;
    params.out_dtypes = out, params.num_out_dtypes = 3;
    int before = fake_compiles(FAKE_NVRTC_99_1);
    run(ctx, &params);
    /* 2 x 2 x 2 without the repeated values, 64 heads with next_n 2 for much work, and the schedule */
    assert_int_equal(record.total, 8 + 2 + 1);
    assert_int_equal(record.calls, 11);
    assert_int_equal(record.from[ATTNS_FROM_COMPILER], 11);
    assert_false(record.overlapped);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 11);
    assert_int_equal(counters_of(ctx).compiles, 11);
    int schedules = 0;
    for (size_t i = 0; i < 11; i++) {
        schedules += strstr(record.kernels[i], "schedule") != NULL;
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(record.kernels[i], record.kernels[k]);
    }
    assert_int_equal(schedules, 1);

    params = base_params(&record);
    params.num_heads = heads, params.num_num_heads = 3;
    params.next_ns = next_ns, params.num_next_ns = 2;
    params.out_dtypes = out, params.num_out_dtypes = 3;
    run(ctx, &params);
    assert_int_equal(record.from[ATTNS_FROM_DISK], 11);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 11);
    attns_context_destroy(ctx);
}

static void test_serving_finds_what_was_precompiled(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    run(ctx, &params);
    assert_int_equal(record.total, DEFAULT_KERNELS);
    attns_context_destroy(ctx);

    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(fixture);
    for (int next_n = 1; next_n <= 4; next_n++) {
        attns_problem problem = fp8_problem(64, next_n);
        attns_plan plan = plan_for_sm90(&problem);
        attns_image image;
        assert_int_equal(attns_image_get(ctx, &plan, false, 0, &image), ATTNS_OK);
        attns_image_free(&image);
        if (plan.much_tiles == 0)
            continue;
        problem.much_work = 1;
        plan = plan_for_sm90(&problem);
        assert_int_equal(attns_image_get(ctx, &plan, false, 0, &image), ATTNS_OK);
        attns_image_free(&image);
    }
    assert_int_equal(counters_of(ctx).disk_hits, DEFAULT_KERNELS - 1); /* without the schedule kernel */
    attns_context_destroy(ctx);
}

typedef struct arch_record {
    char archs[64][16];
    size_t count;
} arch_record;

static void record_arch(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    (void)done, (void)total;
    arch_record *record = user;
    if (result->status == ATTNS_OK && record->count < 64)
        snprintf(record->archs[record->count++], sizeof record->archs[0], "%s", result->arch);
}

/* Every architecture that the compiler knows, from 8.0 on, is compiled for if there is a kernel, and nothing else is:
 * the fake one knows 80, 90, 100 and 103. */
static void test_all_archs(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.template_dir = ""; /* the shipped templates, whichever there are */
    static const char *const all[] = {"all", "sm_90a"}, *const best[] = {"sm_80", "sm_90a", "sm_100a", "sm_103a"};
    static const int next_ns[] = {1};
    attns_context *ctx = jit_context(fixture);
    arch_record record = {.count = 0};
    const attns_precompile_params params = {.archs = all,
                                            .num_archs = 2, /* the second is among the first */
                                            .next_ns = next_ns,
                                            .num_next_ns = 1,
                                            .progress = record_arch,
                                            .progress_user = &record};
    run(ctx, &params);
    size_t expected = 0;
    for (int i = 0; i < 4; i++) {
        attns_target target;
        size_t found = 0;
        for (size_t k = 0; k < record.count; k++)
            found += strcmp(record.archs[k], best[i]) == 0;
        const attns_problem fp8 = {.kind = ATTNS_KERNEL_FP8_LOGITS};
        attns_selection selection;
        const bool exists = attns_target_from_arch(best[i], &target) == ATTNS_OK &&
                            attns_plan_select(&fp8, &target, ATTNS_CHOOSE_AUTO, &selection) == ATTNS_OK;
        assert_int_equal(found, exists ? 2 : 0); /* logits and schedule */
        expected += found;
    }
    assert_int_equal(record.count, expected);
    assert_true(expected >= 2);
    attns_context_destroy(ctx);

    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(fixture);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_contains(attns_last_error(), "archs: all");
    attns_context_destroy(ctx);
}

/* Both variants by one call: each with its own default output; acc_dtypes are of fp8 alone, interleaved scales of
 * blocks of 128. What has no kernel fails as a whole, before anything is compiled. */
static void test_variants(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.template_dir = "";
    static const attns_variant variants[] = {ATTNS_VARIANT_FP8, ATTNS_VARIANT_FP4};
    static const attns_dtype accs[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16};
    static const bool orders[] = {false, true};
    static const int next_ns[] = {1}, block_sizes[] = {64, 128};
    attns_context *ctx = jit_context(fixture);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    params.variants = variants, params.num_variants = 2;
    params.acc_dtypes = accs, params.num_acc_dtypes = 2;
    params.kv_sf_interleaved = orders, params.num_kv_sf_interleaved = 2;
    params.next_ns = next_ns, params.num_next_ns = 1;
    params.block_sizes = block_sizes, params.num_block_sizes = 2;
    const attns_problem fp4 = {.kind = ATTNS_KERNEL_FP4_LOGITS};
    attns_target target;
    attns_selection selection;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    if (attns_plan_select(&fp4, &target, ATTNS_CHOOSE_AUTO, &selection) == ATTNS_OK) {
        run(ctx, &params);
        assert_int_equal(record.total, 4 + 3 + 1);
        int bf16 = 0, interleaved = 0;
        for (size_t i = 0; i < record.total; i++) {
            bf16 += strstr(record.kernels[i], "fp4_") && strstr(record.kernels[i], "out=bf16");
            interleaved += strstr(record.kernels[i], "interleaved") != NULL;
        }
        assert_int_equal(bf16, 3);
        assert_int_equal(interleaved, 1);
    } else {
        assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_UNSUPPORTED);
        assert_contains(attns_last_error(), "fp4_paged_mqa_logits: there is no kernel for sm_90a");
        assert_int_equal(counters_of(ctx).compiles, 0);
    }
    static const int dims[] = {32};
    params.variants = &variants[1], params.num_variants = 1;
    params.head_dims = dims, params.num_head_dims = 1;
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_UNSUPPORTED);
    assert_contains(attns_last_error(), "head_dim: is 32, accepted: 64 or 128");
    attns_context_destroy(ctx);
}

static void test_defaults_use_the_devices(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    run(ctx, NULL);
    assert_int_equal(counters_of(ctx).compiles, DEFAULT_KERNELS); /* both devices have the same target */
    attns_context_destroy(ctx);

    fake_cuda_state *fake = fake_cuda();
    fake->compute_capability[0] = 35;
    ctx = jit_context(fixture);
    run(ctx, NULL);
    assert_int_equal(counters_of(ctx).disk_hits, DEFAULT_KERNELS);
    assert_contains(fixture->log.text, "device 0, Fake device 0");
    fake->compute_capability[1] = 35;
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, NULL), ATTNS_ERROR_UNSUPPORTED_DEVICE);
    assert_contains(attns_last_error(), "archs: not given");
    fake->compute_capability[0] = fake->compute_capability[1] = 90;
    attns_context_destroy(ctx);

    fixture->params.libcuda_path = "/nonexistent/cuda";
    ctx = jit_context(fixture);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "archs: not given");
    assert_contains(attns_last_error(), "/nonexistent/cuda");
    attns_context_destroy(ctx);
}

static void check_refused(attns_context *ctx, const attns_precompile_params *params, attns_status expected,
                          const char *part) {
    int before = fake_compiles(FAKE_NVRTC_99_1);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, params), expected);
    assert_contains(attns_last_error(), part);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before);
}

static void test_everything_is_checked_before_anything_is_compiled(void **state) {
    attns_context *ctx = jit_context(*state);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    const int heads[] = {64, 32, 63}, none[] = {0};
    const char *const archs[] = {"sm_90a", "sm_35"}, *const hole[] = {"sm_90a", NULL};
    const attns_variant variants[] = {ATTNS_VARIANT_FP8, (attns_variant)7};
    params.num_heads = heads, params.num_num_heads = 3;
    check_refused(ctx, &params, ATTNS_ERROR_UNSUPPORTED, "63");
    params = base_params(&record);
    params.archs = archs, params.num_archs = 2;
    check_refused(ctx, &params, ATTNS_ERROR_UNSUPPORTED_DEVICE, "sm_35");
    params.archs = hole;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "archs: entry 1 is NULL");
    params.archs = NULL;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "archs: NULL, but num_archs is 2");
    params = base_params(&record);
    params.num_archs = 0;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "archs: a list, but num_archs is 0");
    params = base_params(&record);
    params.variants = variants, params.num_variants = 2;
    check_refused(ctx, &params, ATTNS_ERROR_UNSUPPORTED, "variants: 7");
    params = base_params(&record);
    params.num_next_ns = 3;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "next_ns: NULL, but num_next_ns is 3");
    params = base_params(&record);
    params.block_sizes = none;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "block_sizes: empty");
    params = base_params(&record);
    params.jobs = -1;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "jobs: -1");
    params = base_params(&record);
    check_refused(NULL, &params, ATTNS_ERROR_INVALID_ARGUMENT, "ctx: NULL");
    enum { MANY = 400 };
    int many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = 64;
    params.num_heads = params.head_dims = params.next_ns = many;
    params.num_num_heads = params.num_head_dims = params.num_next_ns = MANY;
    check_refused(ctx, &params, ATTNS_ERROR_INVALID_ARGUMENT, "more than");
    assert_int_equal(record.calls, 0);
    attns_context_destroy(ctx);
}

/* One kernel fails, the others are built all the same. */
static void test_failures_do_not_stop_the_rest(void **state) {
    jit_fixture *fixture = *state;
    attns_problem schedule = {.kind = ATTNS_KERNEL_SCHEDULE};
    attns_plan plan = plan_for_sm90(&schedule);
    write_template(fixture, &plan, "FAKE_ERROR\n");
    attns_context *ctx = jit_context(fixture);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_COMPILE);
    assert_contains(attns_last_error(), "\"nonsense\" is undefined");
    assert_contains(attns_last_error(), plan.name);
    assert_contains(record.last_message, "\"nonsense\" is undefined");
    assert_int_equal(record.calls, DEFAULT_KERNELS);
    assert_int_equal(record.failed, 1);
    assert_int_equal(record.from[ATTNS_FROM_COMPILER], DEFAULT_KERNELS - 1);
    attns_context_destroy(ctx);
}

static void test_newer_nvrtc_compiles_again(void **state) {
    jit_fixture *fixture = *state;
    progress_record record;
    attns_precompile_params params = base_params(&record);
    const char *const libraries[] = {FAKE_NVRTC_12_8, FAKE_NVRTC_99_1, FAKE_NVRTC_99_1};
    const attns_kernel_source sources[] = {ATTNS_FROM_COMPILER, ATTNS_FROM_COMPILER, ATTNS_FROM_DISK};
    for (int i = 0; i < 3; i++) {
        fixture->params.libnvrtc_path = libraries[i];
        attns_context *ctx = jit_context(fixture);
        params = base_params(&record);
        run(ctx, &params);
        assert_int_equal(record.from[sources[i]], DEFAULT_KERNELS);
        attns_context_destroy(ctx);
    }
}

/* A patch release has the version of the one before and other code. */
static void test_another_build_of_one_version_compiles_again(void **state) {
    jit_fixture *fixture = *state;
    const char *const libraries[] = {FAKE_NVRTC_99_1, FAKE_NVRTC_99_1_patched, FAKE_NVRTC_99_1_patched,
                                     FAKE_NVRTC_99_1};
    const size_t compiled[] = {DEFAULT_KERNELS, DEFAULT_KERNELS, 0, 0};
    for (int i = 0; i < 4; i++) {
        fixture->params.libnvrtc_path = libraries[i];
        attns_context *ctx = jit_context(fixture);
        progress_record record;
        attns_precompile_params params = base_params(&record);
        run(ctx, &params);
        assert_int_equal(record.from[ATTNS_FROM_COMPILER], compiled[i]);
        assert_int_equal(record.from[ATTNS_FROM_DISK], DEFAULT_KERNELS - compiled[i]);
        attns_context_destroy(ctx);
    }
}

static void test_without_nvrtc(void **state) {
    jit_fixture *fixture = *state;
    progress_record record;
    attns_precompile_params params = base_params(&record);
    attns_context *ctx = jit_context(fixture);
    run(ctx, &params);
    attns_context_destroy(ctx);

    /* All is there: success. One is missing: NVRTC's own message. */
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(fixture);
    params = base_params(&record);
    run(ctx, &params);
    assert_int_equal(record.from[ATTNS_FROM_DISK], DEFAULT_KERNELS);
    const int next_ns[] = {1, 5};
    params = base_params(&record);
    params.next_ns = next_ns, params.num_next_ns = 2;
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_contains(attns_last_error(), "/nonexistent/nvrtc");
    assert_int_equal(record.from[ATTNS_FROM_DISK], 2);
    assert_int_equal(record.failed, 1);
    attns_context_destroy(ctx);
}

/* Without a cache directory the kernels still serve this process. */
static void test_without_a_cache(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.cache_dir = "";
    attns_context *ctx = jit_context(fixture);
    progress_record record;
    attns_precompile_params params = base_params(&record);
    params.jobs = 0;
    run(ctx, &params);
    assert_int_equal(record.from[ATTNS_FROM_COMPILER], DEFAULT_KERNELS);
    params = base_params(&record);
    run(ctx, &params);
    assert_int_equal(record.from[ATTNS_FROM_MEMORY], DEFAULT_KERNELS);
    attns_context_destroy(ctx);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, jit_setup, jit_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_product_of_the_lists),
        TEST(test_serving_finds_what_was_precompiled),
        TEST(test_all_archs),
        TEST(test_variants),
        TEST(test_defaults_use_the_devices),
        TEST(test_everything_is_checked_before_anything_is_compiled),
        TEST(test_failures_do_not_stop_the_rest),
        TEST(test_newer_nvrtc_compiles_again),
        TEST(test_another_build_of_one_version_compiles_again),
        TEST(test_without_nvrtc),
        TEST(test_without_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
