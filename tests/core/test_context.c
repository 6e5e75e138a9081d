/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/context.h"
#include "testing.h"

/* ---- Allocations of the library, counted and failed on request (linked with --wrap) ---- */

static int live_allocations;
static int fail_after = -1; /* the allocation of this number fails; -1: none */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *data);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t limit);
void __wrap_free(void *data);

static void *counted(void *data) {
    live_allocations += data != NULL;
    return data;
}

static int fails(void) {
    return fail_after >= 0 && fail_after-- == 0;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size) {
    if (fails())
        return NULL;
    void *data = __real_realloc(old, size);
    live_allocations += !old && data;
    return data;
}

char *__wrap_strndup(const char *text, size_t limit) {
    size_t size = strnlen(text, limit);
    char *copy = __wrap_calloc(1, size + 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

char *__wrap_strdup(const char *text) {
    return __wrap_strndup(text, SIZE_MAX);
}

void __wrap_free(void *data) {
    live_allocations -= data != NULL;
    __real_free(data);
}

/* ---- Environment ---- */

static const char *const variables[] = {"ATTNS_LIBCUDA",      "ATTNS_LIBNVRTC",
                                        "ATTNS_TEMPLATE_DIR", "ATTNS_DUMP_DIR",
                                        "ATTNS_CACHE_DIR",    "ATTNS_CACHE_READONLY_DIRS",
                                        "XDG_CACHE_HOME",     "HOME",
                                        "ATTNS_LOAD_PTX",     "ATTNS_KERNEL_FAMILY",
                                        "ATTNS_ARCH",         "ATTNS_FORBID_COMPILE",
                                        "ATTNS_CACHE_SHARED", "ATTNS_RECORD"};

static int clear_environment(void **state) {
    *state = scratch_make();
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    return 0;
}

static int remove_scratch(void **state) {
    scratch_remove(*state);
    return 0;
}

/* The writable cache of a context made now, or "none". */
static void check_cache_dir(const char *field, const char *expected) {
    log_record record = LOG_RECORD_INIT;
    attns_context_params params = {
        .log = log_to_record, .log_user = &record, .log_level = ATTNS_LOG_INFO, .cache_dir = field};
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    assert_string_equal(stats.dir ? stats.dir : "none", expected);
    attns_context_destroy(ctx);
}

static void test_cache_dir_order(void **state) {
    char *home = path_join(*state, "home"), *xdg = path_join(*state, "xdg"), *own = path_join(*state, "own");
    char *in_home = path_join(home, ".cache/attn-scores"), *in_xdg = path_join(xdg, "attn-scores");
    char *field = path_join(*state, "field");
    mkdir(home, 0700);

    setenv("HOME", home, 1);
    check_cache_dir(NULL, in_home);
    setenv("XDG_CACHE_HOME", xdg, 1);
    check_cache_dir(NULL, in_xdg);
    setenv("XDG_CACHE_HOME", "", 1);
    check_cache_dir(NULL, in_home);
    setenv("XDG_CACHE_HOME", "relative/cache", 1);
    check_cache_dir(NULL, in_home);
    setenv("ATTNS_CACHE_DIR", own, 1);
    check_cache_dir(NULL, own);
    check_cache_dir(field, field);
    check_cache_dir("", "none");

    /* A place that cannot be written is passed over: a file, something below one, a folder that others may write to. */
    char *file = path_join(*state, "file"), *below = path_join(file, "cache"), *open_folder = path_join(*state, "open");
    file_write(*state, "file", "");
    mkdir(open_folder, 0700);
    chmod(open_folder, 0777);
    check_cache_dir(file, own);
    check_cache_dir(below, own);
    check_cache_dir(open_folder, own);
    setenv("ATTNS_CACHE_DIR", below, 1);
    check_cache_dir(file, in_home);
    setenv("XDG_CACHE_HOME", xdg, 1);
    check_cache_dir(file, in_xdg);
    setenv("XDG_CACHE_HOME", file, 1);
    check_cache_dir(NULL, in_home);
    setenv("HOME", file, 1);
    check_cache_dir(NULL, "none");
    setenv("HOME", home, 1);
    free(file), free(below), free(open_folder);

    setenv("ATTNS_CACHE_DIR", "", 1);
    check_cache_dir(NULL, "none");
    check_cache_dir(field, field);

    free(home), free(xdg), free(own), free(in_home), free(in_xdg), free(field);
}

static void test_without_a_home_kernels_stay_in_memory(void **state) {
    (void)state;
    const char *const homes[] = {NULL, "", "/", "//", "relative"};
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        if (homes[i])
            setenv("HOME", homes[i], 1);
        else
            unsetenv("HOME");
        log_record record = LOG_RECORD_INIT;
        attns_context_params params = {.log = log_to_record, .log_user = &record, .log_level = ATTNS_LOG_INFO};
        attns_context *ctx = NULL;
        assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
        attns_cache_stats stats;
        attns_cache_get_stats(ctx->cache, &stats);
        assert_null(stats.dir);
        assert_int_equal(record.lines[ATTNS_LOG_INFO], 1);
        assert_int_equal(record.lines[ATTNS_LOG_WARNING] + record.lines[ATTNS_LOG_ERROR], 0);
        assert_contains(record.text, "memory");
        attns_context_destroy(ctx);
    }
}

static void test_fields_win_over_variables(void **state) {
    (void)state;
    setenv("HOME", *state, 1);
    setenv("ATTNS_LIBCUDA", "env-cuda", 1);
    setenv("ATTNS_LIBNVRTC", "env-nvrtc", 1);
    setenv("ATTNS_TEMPLATE_DIR", "env-templates", 1);
    setenv("ATTNS_DUMP_DIR", "env-dump", 1);
    char *tier = path_join(*state, "tier");
    setenv("ATTNS_CACHE_READONLY_DIRS", tier, 1);
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, NULL), ATTNS_OK);
    assert_string_equal(ctx->libcuda_path, "env-cuda");
    assert_string_equal(ctx->libnvrtc_path, "env-nvrtc");
    assert_string_equal(ctx->template_dir, "env-templates");
    assert_string_equal(ctx->dump_dir, "env-dump");
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    assert_string_equal(stats.readonly_dirs, tier);
    attns_context_destroy(ctx);
    free(tier);

    char cuda[] = "field-cuda", dump[] = "";
    attns_context_params params = {.libcuda_path = cuda,
                                   .libnvrtc_path = "field-nvrtc",
                                   .template_dir = "field-templates",
                                   .dump_dir = dump,
                                   .cache_readonly_dirs = "",
                                   .allow_compile_in_capture = true};
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    memset(cuda, 'x', sizeof cuda - 1); /* strings are copied */
    setenv("ATTNS_DUMP_DIR", "later", 1);
    assert_string_equal(ctx->libcuda_path, "field-cuda");
    assert_string_equal(ctx->libnvrtc_path, "field-nvrtc");
    assert_string_equal(ctx->template_dir, "field-templates");
    assert_null(ctx->dump_dir);
    assert_true(ctx->allow_compile_in_capture);
    attns_cache_get_stats(ctx->cache, &stats);
    assert_string_equal(stats.readonly_dirs, "");
    attns_context_destroy(ctx);
}

static void test_load_ptx_is_read_once(void **state) {
    setenv("HOME", *state, 1);
    static const struct {
        const char *value;
        bool field, expected;
    } accepted[] = {{NULL, false, false}, {"", false, false}, {"0", false, false}, {"1", false, true},
                    {NULL, true, true},   {"0", true, true},  {"1", true, true}};
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        unsetenv("ATTNS_LOAD_PTX");
        if (accepted[i].value)
            setenv("ATTNS_LOAD_PTX", accepted[i].value, 1);
        attns_context_params params = {.load_ptx = accepted[i].field};
        attns_context *ctx = NULL;
        assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
        setenv("ATTNS_LOAD_PTX", accepted[i].expected ? "0" : "1", 1); /* too late */
        assert_int_equal(ctx->load_ptx, accepted[i].expected);
        attns_context_destroy(ctx);
    }
    attns_context *ctx = NULL;
    setenv("ATTNS_LOAD_PTX", "yes", 1);
    assert_int_equal(attns_context_create(&ctx, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "ATTNS_LOAD_PTX: 'yes', accepted: 0 or 1");
    assert_null(ctx);
}

static void test_kernel_family_and_arch_are_read_once(void **state) {
    setenv("HOME", *state, 1);
    static const struct {
        const char *field, *value;
        attns_family_choice expected;
    } families[] = {{NULL, NULL, ATTNS_CHOOSE_AUTO},          {"", "", ATTNS_CHOOSE_AUTO},
                    {"auto", "tuned", ATTNS_CHOOSE_AUTO},     {NULL, "portable", ATTNS_CHOOSE_PORTABLE},
                    {"", "tuned", ATTNS_CHOOSE_TUNED},        {"portable", NULL, ATTNS_CHOOSE_PORTABLE},
                    {"tuned", "nonsense", ATTNS_CHOOSE_TUNED}};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        unsetenv("ATTNS_KERNEL_FAMILY");
        if (families[i].value)
            setenv("ATTNS_KERNEL_FAMILY", families[i].value, 1);
        const attns_context_params params = {.kernel_family = families[i].field, .arch = i % 2 ? "sm_90a" : ""};
        attns_context *ctx = NULL;
        assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
        setenv("ATTNS_KERNEL_FAMILY", "tuned", 1); /* too late */
        assert_int_equal(ctx->family_choice, families[i].expected);
        if (i % 2)
            assert_string_equal(ctx->arch, "sm_90a");
        else
            assert_null(ctx->arch);
        attns_context_destroy(ctx);
    }
    attns_context *ctx = NULL;
    setenv("ATTNS_KERNEL_FAMILY", "fastest", 1);
    assert_int_equal(attns_context_create(&ctx, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attns_last_error(), "ATTNS_KERNEL_FAMILY: is 'fastest', accepted: auto, tuned or portable");
    attns_context_params params = {.kernel_family = "sm90"};
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attns_last_error(), "kernel_family: is 'sm90', accepted: auto, tuned or portable");
    params.kernel_family = "auto";
    setenv("ATTNS_ARCH", "sm_20", 1);
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_ERROR_UNSUPPORTED_DEVICE);
    assert_contains(attns_last_error(), "arch: is sm_20, accepted: ");
    assert_null(ctx);
}

static void test_log_level_defaults(void **state) {
    (void)state;
    attns_context *ctx = NULL;
    attns_context_params params = {.cache_dir = ""};
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    assert_int_equal(ctx->logger.level, ATTNS_LOG_WARNING);
    attns_context_destroy(ctx);
    params.log = log_to_record;
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    assert_int_equal(ctx->logger.level, ATTNS_LOG_NONE);
    attns_context_destroy(ctx);
    params.log_level = (attns_log_level)7;
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "log_level: 7");
    assert_null(ctx);
}

static void test_wrong_calls(void **state) {
    (void)state;
    assert_int_equal(attns_context_create(NULL, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "ctx: NULL");
    attns_context_destroy(NULL);
    attns_counters counters = {.compiles = 7};
    attns_get_counters(NULL, &counters);
    assert_int_equal(counters.compiles, 7);
    setenv("HOME", *state, 1);
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, NULL), ATTNS_OK);
    attns_get_counters(ctx, NULL);
    attns_get_counters(ctx, &counters);
    assert_int_equal(counters.compiles + counters.disk_hits + counters.memory_hits + counters.module_loads, 0);
    attns_context_destroy(ctx);
}

/* Creation opens no library: paths that do not exist are no error before something needs them, and then the same one
 * each time. */
static void test_libraries_are_opened_on_first_use(void **state) {
    (void)state;
    attns_context *ctx = NULL;
    attns_context_params params = {
        .libcuda_path = "/nonexistent/cuda", .libnvrtc_path = "/nonexistent/nvrtc", .cache_dir = ""};
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    for (int i = 0; i < 2; i++) {
        const attns_driver *driver = NULL;
        attns_nvrtc_set *set = NULL;
        assert_int_equal(attns_context_driver(ctx, &driver), ATTNS_ERROR_LIBRARY_NOT_FOUND);
        assert_contains(attns_last_error(), "/nonexistent/cuda");
        assert_null(driver);
        assert_int_equal(attns_context_nvrtc(ctx, &set), ATTNS_ERROR_LIBRARY_NOT_FOUND);
        assert_contains(attns_last_error(), "/nonexistent/nvrtc");
        assert_null(set);
    }
    attns_context_destroy(ctx);
}

static void test_every_failed_allocation_is_survived(void **state) {
    setenv("HOME", *state, 1);
    char *tier = path_join(*state, "tier");
    attns_context_params params = {.libcuda_path = "a",
                                   .libnvrtc_path = "b",
                                   .template_dir = "c",
                                   .dump_dir = "d",
                                   .cache_readonly_dirs = tier,
                                   .arch = "sm_90a"};
    int failures = 0;
    for (int n = 0;; n++) {
        assert_in_range(n, 0, 1000);
        attns_context *ctx = NULL;
        int live = live_allocations;
        fail_after = n;
        attns_status status = attns_context_create(&ctx, &params);
        int reached = fail_after < 0;
        fail_after = -1;
        if (status == ATTNS_OK) {
            attns_context_destroy(ctx);
        } else {
            assert_int_equal(status, ATTNS_ERROR_OUT_OF_MEMORY);
            assert_null(ctx);
            failures++;
        }
        assert_int_equal(live_allocations, live);
        if (!reached)
            break;
    }
    assert_true(failures >= 5);
    free(tier);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, clear_environment, remove_scratch)
    const struct CMUnitTest tests[] = {
        TEST(test_cache_dir_order),
        TEST(test_without_a_home_kernels_stay_in_memory),
        TEST(test_fields_win_over_variables),
        TEST(test_load_ptx_is_read_once),
        TEST(test_kernel_family_and_arch_are_read_once),
        TEST(test_log_level_defaults),
        TEST(test_wrong_calls),
        TEST(test_libraries_are_opened_on_first_use),
        TEST(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
