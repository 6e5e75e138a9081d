/* SPDX-License-Identifier: MIT
 *
 * Serving without compiling: calls that must not compile, the record of what a run used, precompiling exactly that, and
 * how many compiles run at a time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_testing.h"

static struct CUctx_st cuda_ctx = {.id = 1};
static struct CUstream_st stream = {.ctx = &cuda_ctx};
static const DLDevice any_device = {kDLCUDAManaged, 0};

static int setup(void **state) {
    fake_cuda_set_current_fn set_current;
    void *address = library_symbol(FAKE_CUDA_PATH, "fake_cuda_set_current");
    memcpy(&set_current, &address, sizeof set_current);
    set_current(&cuda_ctx);
    unsetenv("ATTNS_FORBID_COMPILE");
    fake_cuda()->compute_capability[0] = 90;
    return jit_setup(state);
}

static attns_status acquire(attns_context *ctx, attns_problem problem) {
    attns_kernel_use use;
    const attns_status status = attns_kernel_acquire(ctx, &problem, 0, any_device, &stream, &use);
    if (status == ATTNS_OK)
        attns_kernel_release(&use);
    return status;
}

static void acquire_well(attns_context *ctx, attns_problem problem) {
    if (acquire(ctx, problem) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

static const attns_problem schedule = {.kind = ATTNS_KERNEL_SCHEDULE};

static void precompile(attns_context *ctx, const char *const *kernels, size_t count) {
    const attns_precompile_params params = {.kernels = kernels, .num_kernels = count};
    if (attns_precompile_paged_mqa_logits(ctx, &params) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

/* ---- Calls that must not compile ---- */

static void test_a_miss_is_an_error_at_once(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.forbid_compile = true;
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc"; /* not even looked for */
    attns_context *ctx = jit_context(fixture);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(acquire(ctx, fp8_problem(64, 2)), ATTNS_ERROR_WOULD_COMPILE);
        assert_contains(attns_last_error(),
                        "fp8_paged_mqa_logits h64 d128 b64 n2 out=f32 acc=f32 epi=f32 for sm_90a: ");
        assert_contains(attns_last_error(), "compiling is forbidden");
    }
    /* The command of the message, taken at its word. */
    char name[256];
    const char *const quote = strstr(attns_last_error(), "--kernel '") + strlen("--kernel '");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(quote, "'"), quote);
    char part[600];
    snprintf(part, sizeof part, "--cache-dir '%s'", fixture->cache);
    assert_contains(attns_last_error(), part);
    attns_context_destroy(ctx);

    fixture->params.forbid_compile = false;
    fixture->params.libnvrtc_path = FAKE_NVRTC_99_1;
    ctx = jit_context(fixture);
    precompile(ctx, (const char *[]){name}, 1);
    assert_int_equal(counters_of(ctx).compiles, 1);
    attns_context_destroy(ctx);

    setenv("ATTNS_FORBID_COMPILE", "1", 1);
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(fixture);
    acquire_well(ctx, fp8_problem(64, 2));
    assert_int_equal(acquire(ctx, schedule), ATTNS_ERROR_WOULD_COMPILE);
    assert_int_equal(counters_of(ctx).compiles, 0);
    attns_context_destroy(ctx);
}

/* A device that several targets' code runs on takes whichever a cache holds, as far down as PTX for every device. */
static void test_any_target_that_is_cached_serves(void **state) {
    jit_fixture *fixture = *state;
    static const char *const cached[] = {"sm_100a", "sm_100f", "sm_100", "compute_80"};
    fake_cuda()->compute_capability[0] = 100;
    for (int i = 0; i < 4; i++) {
        char dir[32], name[64];
        snprintf(dir, sizeof dir, "cache-%d", i);
        snprintf(name, sizeof name, "paged_mqa_logits_schedule for %s", cached[i]);
        char *cache = path_join(fixture->dir, dir);
        fixture->params.cache_dir = cache;
        fixture->params.forbid_compile = false;
        attns_context *ctx = jit_context(fixture);
        precompile(ctx, (const char *[]){name}, 1);
        attns_context_destroy(ctx);
        fixture->params.forbid_compile = true;
        ctx = jit_context(fixture);
        acquire_well(ctx, schedule);
        assert_int_equal(counters_of(ctx).compiles, 0);
        assert_int_equal(counters_of(ctx).disk_hits, 1);
        attns_context_destroy(ctx);
        free(cache);
    }
}

static void test_ptx_command_says_so(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.forbid_compile = fixture->params.load_ptx = true;
    attns_context *ctx = jit_context(fixture);
    assert_int_equal(acquire(ctx, schedule), ATTNS_ERROR_WOULD_COMPILE);
    assert_contains(attns_last_error(), "paged_mqa_logits_schedule for sm_90a (PTX): ");
    assert_contains(attns_last_error(), "ATTNS_LOAD_PTX=1 attn-scores precompile ");
    attns_context_destroy(ctx);
}

/* With compiling forbidden precompile tells what is missing. */
static void test_precompile_only_checks(void **state) {
    jit_fixture *fixture = *state;
    const char *const kernels[] = {"paged_mqa_logits_schedule for sm_90a"};
    const attns_precompile_params params = {.kernels = kernels, .num_kernels = 1};
    const int before = fake_compiles(FAKE_NVRTC_99_1);
    fixture->params.forbid_compile = true;
    attns_context *ctx = jit_context(fixture);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_ERROR_WOULD_COMPILE);
    assert_contains(attns_last_error(), "paged_mqa_logits_schedule for sm_90a");
    attns_context_destroy(ctx);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before);
    fixture->params.forbid_compile = false;
    ctx = jit_context(fixture);
    precompile(ctx, kernels, 1);
    attns_context_destroy(ctx);
    fixture->params.forbid_compile = true;
    ctx = jit_context(fixture);
    precompile(ctx, kernels, 1);
    attns_context_destroy(ctx);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
}

/* ---- Records ---- */

static void test_recorded_and_precompiled(void **state) {
    jit_fixture *fixture = *state;
    char *record = path_join(fixture->dir, "record");
    fixture->params.record_path = record;
    for (int run = 0; run < 2; run++) {
        attns_context *ctx = jit_context(fixture);
        for (int i = 0; i < 3; i++) {
            acquire_well(ctx, fp8_problem(64, 3));
            acquire_well(ctx, fp8_problem(32, 1));
            acquire_well(ctx, schedule);
        }
        attns_context_destroy(ctx);
    }
    size_t size;
    char *text = file_read(record, &size);
    assert_non_null(text);
    static const char once[] = "fp8_paged_mqa_logits h64 d128 b64 n3 out=f32 acc=f32 epi=f32 for sm_90a\n"
                               "fp8_paged_mqa_logits h32 d128 b64 n1 out=f32 acc=f32 epi=f32 for sm_90a\n"
                               "paged_mqa_logits_schedule for sm_90a\n";
    char twice[2 * sizeof once];
    snprintf(twice, sizeof twice, "%s%s", once, once);
    assert_string_equal(text, twice);

    /* Elsewhere: exactly these, each once. */
    const char *kernels[16];
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        kernels[count++] = line;
    assert_int_equal(count, 6);
    char *other = path_join(fixture->dir, "other");
    fixture->params.record_path = NULL;
    fixture->params.cache_dir = other;
    attns_context *ctx = jit_context(fixture);
    precompile(ctx, kernels, count);
    assert_int_equal(counters_of(ctx).compiles, 3);
    attns_context_destroy(ctx);
    fixture->params.forbid_compile = true;
    ctx = jit_context(fixture);
    acquire_well(ctx, fp8_problem(64, 3));
    acquire_well(ctx, fp8_problem(32, 1));
    acquire_well(ctx, schedule);
    assert_int_equal(acquire(ctx, fp8_problem(64, 1)), ATTNS_ERROR_WOULD_COMPILE);
    attns_context_destroy(ctx);
    free(record), free(text), free(other);
}

static void test_a_record_that_cannot_be_written(void **state) {
    jit_fixture *fixture = *state;
    char *record = path_join(fixture->dir, "no/such/record");
    fixture->params.record_path = record;
    attns_context *ctx = jit_context(fixture);
    acquire_well(ctx, schedule);
    acquire_well(ctx, fp8_problem(64, 1));
    const char *const told =
        strstr(fixture->log.text, "no/such/record: kernels cannot be recorded there: No such file");
    assert_non_null(told);
    assert_null(strstr(told + 1, "no/such/record")); /* once, not for each kernel */
    attns_context_destroy(ctx);
    free(record);
}

/* ---- Kernels by name ---- */

static void refuse(attns_context *ctx, attns_precompile_params params, attns_status expected, const char *part) {
    const int before = fake_compiles(FAKE_NVRTC_99_1);
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), expected);
    assert_contains(attns_last_error(), part);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before);
}

#define KERNELS(...)                                                                                                   \
    .kernels = (const char *const[]){__VA_ARGS__},                                                                     \
    .num_kernels = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

static void test_names_are_checked_before_anything_is_compiled(void **state) {
    attns_context *ctx = jit_context(*state);
    static const char good[] = "paged_mqa_logits_schedule for sm_90a";
    static const int heads[] = {64};
    refuse(ctx, (attns_precompile_params){KERNELS(good, "fp8_paged_mqa_logits h64 d128 for sm_90a")},
           ATTNS_ERROR_INVALID_ARGUMENT, "names no kernel (from ' for sm_90a' on)");
    refuse(ctx, (attns_precompile_params){KERNELS(good, "something else")}, ATTNS_ERROR_INVALID_ARGUMENT,
           "'something else' names no kernel");
    refuse(ctx, (attns_precompile_params){KERNELS("paged_mqa_logits_schedule for sm_90a, too")},
           ATTNS_ERROR_INVALID_ARGUMENT, "(from ', too' on)");
    refuse(ctx, (attns_precompile_params){KERNELS(good, NULL)}, ATTNS_ERROR_INVALID_ARGUMENT, "(NULL)");
    refuse(ctx, (attns_precompile_params){KERNELS("paged_mqa_logits_schedule for sm_90a (PTX)")},
           ATTNS_ERROR_INVALID_ARGUMENT, "ATTNS_LOAD_PTX=1");
    refuse(ctx, (attns_precompile_params){KERNELS(good, "paged_mqa_logits_schedule for sm_35")},
           ATTNS_ERROR_UNSUPPORTED_DEVICE, "sm_35");
    refuse(ctx,
           (attns_precompile_params){
               KERNELS(good, "fp8_paged_mqa_logits h63 d128 b64 n1 out=f32 acc=f32 epi=f32 for sm_90a")},
           ATTNS_ERROR_UNSUPPORTED, "num_heads: is 63");
    refuse(ctx, (attns_precompile_params){KERNELS(good), .num_heads = heads, .num_num_heads = 1},
           ATTNS_ERROR_INVALID_ARGUMENT, "give either");
    refuse(ctx, (attns_precompile_params){.num_kernels = 1}, ATTNS_ERROR_INVALID_ARGUMENT, "num_kernels is 1");
    attns_context_destroy(ctx);
}

/* Names without a target are for those of the list, or of the devices. */
static void test_names_without_a_target(void **state) {
    attns_context *ctx = jit_context(*state);
    static const char *const archs[] = {"sm_90a"};
    const attns_precompile_params listed = {KERNELS("paged_mqa_logits_schedule"), .archs = archs, .num_archs = 1};
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &listed), ATTNS_OK);
    assert_int_equal(counters_of(ctx).compiles, 1);
    const attns_precompile_params of_devices = {KERNELS("fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f32 epi=f32",
                                                        "paged_mqa_logits_schedule for sm_90a")};
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &of_devices), ATTNS_OK);
    assert_int_equal(counters_of(ctx).compiles, 2);
    attns_context_destroy(ctx);
}

/* ---- Compiles at a time ---- */

typedef struct thread_work {
    attns_context *ctx;
    int num_heads;
    attns_status status;
} thread_work;

static void *get_image(void *argument) {
    thread_work *work = argument;
    const attns_problem problem = fp8_problem(work->num_heads, 1);
    attns_plan plan = plan_for_sm90(&problem);
    attns_image image;
    work->status = attns_image_get(work->ctx, &plan, true, 0, &image);
    attns_image_free(&image);
    return NULL;
}

static int peak_with(jit_fixture *fixture, int limit) {
    enum { THREADS = 12 };
    fixture->params.compile_threads = limit;
    fixture->params.cache_dir = ""; /* no lock of the cache helps here */
    attns_context *ctx = jit_context(fixture);
    fake_peak(FAKE_NVRTC_99_1);
    pthread_t threads[THREADS];
    thread_work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (thread_work){.ctx = ctx, .num_heads = 8 * (1 + i % 6)};
        assert_int_equal(pthread_create(&threads[i], NULL, get_image, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].status, ATTNS_OK);
    }
    assert_int_equal(counters_of(ctx).compiles, 6); /* two threads for each key */
    attns_context_destroy(ctx);
    return fake_peak(FAKE_NVRTC_99_1);
}

static void test_compiles_run_side_by_side_up_to_a_limit(void **state) {
    write_all_templates(*state, "FAKE_SLOW\n");
    assert_int_equal(peak_with(*state, 1), 1);
    assert_int_equal(peak_with(*state, 3), 3);
    assert_in_range(peak_with(*state, 100), 4, 6);
    jit_fixture *fixture = *state;
    attns_context *ctx;
    fixture->params.compile_threads = -1;
    assert_int_equal(attns_context_create(&ctx, &fixture->params), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "compile_threads: -1");
}

/* ---- Bad entries ---- */

/* What the driver refuses is compiled again once, not at every call. */
static void test_rebuilt_once(void **state) {
    jit_fixture *fixture = *state;
    write_all_templates(fixture, "FAKE_INVALID\n");
    attns_context *ctx = jit_context(fixture);
    precompile(ctx, (const char *[]){"paged_mqa_logits_schedule for sm_90a"}, 1);
    attns_context_destroy(ctx);
    ctx = jit_context(fixture);
    const int before = fake_compiles(FAKE_NVRTC_99_1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(acquire(ctx, schedule), ATTNS_ERROR_CUDA);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
    attns_context_destroy(ctx);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, jit_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_miss_is_an_error_at_once),
        TEST(test_any_target_that_is_cached_serves),
        TEST(test_ptx_command_says_so),
        TEST(test_precompile_only_checks),
        TEST(test_recorded_and_precompiled),
        TEST(test_a_record_that_cannot_be_written),
        TEST(test_names_are_checked_before_anything_is_compiled),
        TEST(test_names_without_a_target),
        TEST(test_compiles_run_side_by_side_up_to_a_limit),
        TEST(test_rebuilt_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
