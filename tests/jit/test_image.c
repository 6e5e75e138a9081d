/* SPDX-License-Identifier: MIT
 *
 * Source to cubin through the disk cache, with a compiler that only pretends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit_testing.h"

static attns_plan the_plan(void) {
    attns_problem problem = fp8_problem(64, 1);
    return plan_for_sm90(&problem);
}

static attns_image get(attns_context *ctx, const attns_plan *plan, uint32_t build) {
    attns_image image;
    attns_status status = attns_image_get(ctx, plan, true, build, &image);
    if (status != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    return image;
}

/* One image_get in a context of its own, as another process would: where it came from. */
static attns_kernel_source source_of(const jit_fixture *fixture) {
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, 0);
    attns_kernel_source source = image.source;
    attns_counters counters = counters_of(ctx);
    assert_int_equal(counters.compiles, source == ATTNS_FROM_COMPILER);
    assert_int_equal(counters.disk_hits, source == ATTNS_FROM_DISK);
    attns_image_free(&image);
    attns_context_destroy(ctx);
    return source;
}

static void test_compiled_once_then_from_disk(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    int before = fake_compiles(FAKE_NVRTC_99_1);
    attns_image first = get(ctx, &plan, 0), second = get(ctx, &plan, 0);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
    assert_int_equal(first.source, ATTNS_FROM_COMPILER);
    assert_int_equal(second.source, ATTNS_FROM_DISK);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    assert_int_equal(first.registers, 42);
    assert_int_equal(second.registers, 42);
    assert_int_equal(second.spill_bytes, 0);
    assert_true(second.seconds == 0.0);
    assert_int_equal(fixture->log.lines[ATTNS_LOG_INFO], 1);
    assert_contains(fixture->log.text, "3: compiled ");
    assert_contains(fixture->log.text, "42 registers, 0 bytes spilled");
    attns_image_free(&first);
    attns_image_free(&second);
    attns_context_destroy(ctx);

    /* Another process, and without any NVRTC at all. */
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
}

static void test_no_header_and_no_machine_path_reaches_the_compiler(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, 0);
    assert_contains(image.data, "--gpu-architecture=sm_90a");
    assert_contains(image.data, "-std=c++17");
    assert_contains(image.data, "#line 1 \"templates/");
    assert_lacks(image.data, fixture->dir);
    assert_lacks(image.data, "-I");
    attns_image_free(&image);
    attns_context_destroy(ctx);
}

/* NVRTC is asked for PTX, and the two kinds of images of one kernel lie side by side in the cache. */
static void test_ptx_is_another_image(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    fixture->params.load_ptx = true;
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, 0);
    assert_int_equal(image.source, ATTNS_FROM_COMPILER);
    assert_contains(image.data, "--gpu-architecture=compute_90a");
    assert_lacks(image.data, "--gpu-architecture=sm_90a");
    assert_contains(image.data, "--generate-line-info");
    assert_int_equal(((const char *)image.data)[image.size - 1], '\0'); /* the driver takes PTX as a string */
    assert_contains(fixture->log.text, "for sm_90a (PTX) in ");
    attns_image again = get(ctx, &plan, 0);
    assert_int_equal(again.source, ATTNS_FROM_DISK);
    assert_int_equal(again.size, image.size);
    assert_memory_equal(again.data, image.data, image.size);
    attns_image_free(&image);
    attns_image_free(&again);
    attns_context_destroy(ctx);
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    fixture->params.load_ptx = false;
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    fixture->params.load_ptx = true;
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    fixture->params.cache_dir = "";
    ctx = jit_context(fixture);
    assert_int_equal(attns_image_get(ctx, &plan, true, 0, &image), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_contains(attns_last_error(), "for sm_90a (PTX) is in no cache directory");
    attns_context_destroy(ctx);
}

static void test_readonly_tier(void **state) {
    jit_fixture *fixture = *state;
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    char *writable = path_join(fixture->dir, "other");
    fixture->params.cache_readonly_dirs = fixture->cache;
    fixture->params.cache_dir = writable;
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    fixture->params.cache_dir = "";
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    free(writable);
}

static void test_path_of_the_cache_does_not_matter(void **state) {
    jit_fixture *fixture = *state;
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    char *moved = path_join(fixture->dir, "moved"), *templates = path_join(fixture->dir, "templates2");
    assert_int_equal(rename(fixture->cache, moved), 0);
    assert_int_equal(rename(fixture->templates, templates), 0);
    fixture->params.cache_dir = moved;
    fixture->params.template_dir = templates;
    setenv("CUDA_HOME", "/nonexistent", 1);
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    free(moved);
    free(templates);
}

/* In a child: what attns_image_get answers for the_plan(). */
static int get_in_child(const char *templates, const char *cache) {
    attns_plan plan = the_plan();
    attns_context_params params = {
        .libnvrtc_path = FAKE_NVRTC_99_1, .template_dir = templates, .cache_dir = cache, .cache_readonly_dirs = ""};
    attns_context *ctx = NULL;
    attns_image image;
    if (attns_context_create(&ctx, &params) != ATTNS_OK || attns_image_get(ctx, &plan, true, 0, &image) != ATTNS_OK) {
        printf("%s\n", attns_last_error());
        return 1;
    }
    attns_counters counters = counters_of(ctx);
    printf("source %d, compiles %d, disk hits %d, compiler runs %d\n", (int)image.source, (int)counters.compiles,
           (int)counters.disk_hits, fake_compiles(FAKE_NVRTC_99_1));
    attns_image_free(&image);
    attns_context_destroy(ctx);
    return 0;
}

/* Other processes, with another environment, working directory and address layout. */
static void test_other_processes_compile_nothing(void **state) {
    jit_fixture *fixture = *state;
    char *self = realpath("/proc/self/exe", NULL);
    for (int i = 0; i < 3; i++) {
        char command[8192], output[4096];
        snprintf(command, sizeof command, "cd '%s' && env -i NUMBER=%d PATH=/nonexistent '%s' --get '%s' '%s' 2>&1",
                 i ? "/" : fixture->dir, i, self, fixture->templates, fixture->cache);
        FILE *child = popen(command, "r");
        assert_non_null(child);
        size_t size = fread(output, 1, sizeof output - 1, child);
        output[size] = '\0';
        int rc = pclose(child);
        assert_contains(output, i ? "source 2, compiles 0, disk hits 1, compiler runs 0"
                                  : "source 1, compiles 1, disk hits 0, compiler runs 1");
        assert_int_equal(rc, 0);
    }
    free(self);
}

static void test_one_source_byte_compiles_again(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    write_template(fixture, &plan, "// 1\n");
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    write_template(fixture, &plan, "// 2\n");
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    write_template(fixture, &plan, "// 1\n"); /* with a newer mtime */
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
}

static uint32_t build_of(attns_context *ctx) {
    attns_nvrtc_set *set = NULL;
    const attns_nvrtc *nvrtc = NULL;
    assert_int_equal(attns_context_nvrtc(ctx, &set), ATTNS_OK);
    assert_int_equal(attns_nvrtc_for_arch(set, "sm_90a", &nvrtc), ATTNS_OK);
    return attns_nvrtc_build(nvrtc);
}

static void test_build_number(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    fixture->params.libnvrtc_path = FAKE_NVRTC_12_8;
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, build_of(ctx));
    assert_int_equal(image.source, ATTNS_FROM_COMPILER);
    attns_image_free(&image);
    attns_context_destroy(ctx);

    /* Serving takes the old cubin, precompiling with a newer NVRTC makes a new one. */
    fixture->params.libnvrtc_path = FAKE_NVRTC_99_1;
    ctx = jit_context(fixture);
    image = get(ctx, &plan, 0);
    assert_int_equal(image.source, ATTNS_FROM_DISK);
    assert_contains(image.data, FAKE_CUBIN_MAGIC "12.8");
    attns_image_free(&image);
    image = get(ctx, &plan, build_of(ctx));
    assert_int_equal(image.source, ATTNS_FROM_COMPILER);
    attns_image_free(&image);
    image = get(ctx, &plan, build_of(ctx));
    assert_int_equal(image.source, ATTNS_FROM_DISK);
    attns_image_free(&image);
    image = get(ctx, &plan, 0);
    assert_int_equal(image.source, ATTNS_FROM_DISK);
    assert_contains(image.data, FAKE_CUBIN_MAGIC "99.1");
    attns_image_free(&image);
    attns_context_destroy(ctx);
}

static void assert_keys_differ(const attns_cache_key *a, const attns_cache_key *b) {
    assert_memory_not_equal(a->digest, b->digest, sizeof a->digest);
}

static void test_key_depends_on_each_part(void **state) {
    (void)state;
    const char *const options[] = {"-a", "-b"}, *const swapped[] = {"-b", "-a"}, *const joined[] = {"-a-b"};
    attns_cache_key keys[8] = {0};
    assert_true(attns_image_key("sm_90a", "source", options, 2, &keys[0]));
    assert_true(attns_image_key("sm_90", "source", options, 2, &keys[1]));
    assert_true(attns_image_key("sm_90a", "sourcf", options, 2, &keys[2]));
    assert_true(attns_image_key("sm_90a", "source", options, 1, &keys[3]));
    assert_true(attns_image_key("sm_90a", "source", swapped, 2, &keys[4]));
    assert_true(attns_image_key("sm_90a", "source", joined, 1, &keys[5]));
    assert_true(attns_image_key("sm_90a", "source\n", options, 2, &keys[6]));
    assert_true(attns_image_key("sm_90a", "source", options, 2, &keys[7]));
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < i; k++)
            assert_keys_differ(&keys[i], &keys[k]);
    assert_memory_equal(keys[0].digest, keys[7].digest, sizeof keys[0].digest);
    for (int i = 0; i < 8; i++)
        attns_cache_key_free(&keys[i]);
}

static void test_failed_compile_is_reported_and_not_cached(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    write_template(fixture, &plan, "FAKE_ERROR\n");
    int before = fake_compiles(FAKE_NVRTC_99_1);
    for (int i = 1; i <= 2; i++) {
        attns_image image;
        assert_int_equal(attns_image_get(ctx, &plan, true, 0, &image), ATTNS_ERROR_COMPILE);
        assert_contains(attns_last_error(), plan.name);
        assert_contains(attns_last_error(), "templates/broken.cu(3): error: identifier \"nonsense\" is undefined");
        assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + i);
        assert_null(image.data);
    }
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(counters_of(ctx).compiles, 0);
    attns_context_destroy(ctx);
}

static void test_may_not_compile(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    attns_image image;
    int before = fake_compiles(FAKE_NVRTC_99_1);
    assert_int_equal(attns_image_get(ctx, &plan, false, 0, &image), ATTNS_ERROR_WOULD_COMPILE);
    assert_contains(attns_last_error(), plan.name);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before);
    image = get(ctx, &plan, 0);
    attns_image_free(&image);
    assert_int_equal(attns_image_get(ctx, &plan, false, 0, &image), ATTNS_OK);
    assert_int_equal(image.source, ATTNS_FROM_DISK);
    attns_image_free(&image);
    attns_context_destroy(ctx);
}

static void test_without_nvrtc_a_miss_says_so(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    attns_context *ctx = jit_context(fixture);
    attns_image image;
    assert_int_equal(attns_image_get(ctx, &plan, true, 0, &image), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_contains(attns_last_error(), plan.name);
    assert_contains(attns_last_error(), "/nonexistent/nvrtc");
    attns_context_destroy(ctx);
}

/* No directory takes the cubin: it is kept in the context, compiled once. */
static void check_kept_in_memory(jit_fixture *fixture) {
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    int before = fake_compiles(FAKE_NVRTC_99_1);
    attns_image first = get(ctx, &plan, build_of(ctx)), second = get(ctx, &plan, 0);
    assert_int_equal(first.source, ATTNS_FROM_COMPILER);
    assert_int_equal(second.source, ATTNS_FROM_MEMORY);
    assert_int_equal(second.registers, 42);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
    attns_image_free(&first);
    attns_image_free(&second);
    attns_context_destroy(ctx);
}

static void test_without_a_cache_directory(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.cache_dir = "";
    check_kept_in_memory(fixture);
    assert_int_equal(fixture->log.lines[ATTNS_LOG_ERROR], 0);
}

static void test_with_an_impossible_cache_directory(void **state) {
    jit_fixture *fixture = *state;
    file_write(fixture->dir, "file", "not a folder");
    char *below_a_file = path_join(fixture->dir, "file/cache");
    fixture->params.cache_dir = below_a_file;
    check_kept_in_memory(fixture);
    assert_true(fixture->log.lines[ATTNS_LOG_WARNING] >= 1);
    free(below_a_file);
}

static void test_slow_code_is_warned_of(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, 0);
    attns_image_free(&image);
    fixture->log.size = 0;
    fixture->log.text[0] = '\0';
    write_template(fixture, &plan, "FAKE_SPILL\n");
    image = get(ctx, &plan, 0);
    assert_int_equal(image.spill_bytes, 368);
    attns_image_free(&image);
    assert_contains(fixture->log.text, "2: ");
    assert_contains(fixture->log.text, "368 bytes of registers spilled");
    fixture->log.size = 0;
    write_template(fixture, &plan, "FAKE_SERIALISED\n");
    image = get(ctx, &plan, 0);
    attns_image_free(&image);
    assert_contains(fixture->log.text, "2: ");
    assert_contains(fixture->log.text, "(C7514) Potential Performance Loss");
    assert_lacks(fixture->log.text, "C7600");
    attns_context_destroy(ctx);
}

static void test_dump(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    char *dump = path_join(fixture->dir, "dump");
    fixture->params.dump_dir = dump;
    assert_int_equal(source_of(fixture), ATTNS_FROM_COMPILER);
    assert_int_equal(count_files(dump, ""), 1);
    assert_int_equal(count_files(dump, ".sm_90a.cu"), 1);
    char *name = strdup(plan.name);
    for (char *c = name; *c; c++)
        if (*c == ' ' || *c == '=')
            *c = '_';
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.sm_90a.cu", dump, name);
    char *dumped = file_read(path, NULL), *filled = NULL;
    assert_non_null(dumped);
    assert_int_equal(
        attns_template_fill(fixture->templates, plan.template_file, plan.placeholders, plan.num_placeholders, &filled),
        ATTNS_OK);
    assert_string_equal(dumped, filled);
    free(dumped), free(filled);
    /* Hits are dumped too. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    assert_int_equal(count_files(dump, ""), 1);
    /* An impossible folder costs a warning. */
    fixture->params.dump_dir = path;
    int before = fixture->log.lines[ATTNS_LOG_WARNING];
    assert_int_equal(source_of(fixture), ATTNS_FROM_DISK);
    assert_int_equal(fixture->log.lines[ATTNS_LOG_WARNING], before + 1);
    free(name);
    free(dump);
}

static void test_rebuild_replaces_the_entry(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    attns_context *ctx = jit_context(fixture);
    attns_image image = get(ctx, &plan, 0);
    attns_image_free(&image);
    assert_int_equal(attns_image_rebuild(ctx, &plan, &image), ATTNS_OK);
    assert_int_equal(image.source, ATTNS_FROM_COMPILER);
    attns_image_free(&image);
    assert_int_equal(counters_of(ctx).compiles, 2);
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    assert_int_equal(stats.entries, 1);
    attns_context_destroy(ctx);
}

static void *get_in_thread(void *argument) {
    attns_plan plan = the_plan();
    attns_image image = {0};
    attns_status status = attns_image_get(argument, &plan, true, 0, &image);
    attns_image_free(&image);
    return (void *)(intptr_t)status;
}

static void test_threads_share_one_compile(void **state) {
    jit_fixture *fixture = *state;
    attns_plan plan = the_plan();
    write_template(fixture, &plan, "FAKE_SLOW\n");
    attns_context *ctx = jit_context(fixture);
    int before = fake_compiles(FAKE_NVRTC_99_1);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, ctx), 0);
    for (int i = 0; i < 8; i++) {
        void *status;
        pthread_join(threads[i], &status);
        assert_int_equal((intptr_t)status, ATTNS_OK);
    }
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), before + 1);
    attns_context_destroy(ctx);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--get") == 0)
        return get_in_child(argv[2], argv[3]);
#define TEST(function) cmocka_unit_test_setup_teardown(function, jit_setup, jit_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_compiled_once_then_from_disk),
        TEST(test_no_header_and_no_machine_path_reaches_the_compiler),
        TEST(test_ptx_is_another_image),
        TEST(test_readonly_tier),
        TEST(test_path_of_the_cache_does_not_matter),
        TEST(test_other_processes_compile_nothing),
        TEST(test_one_source_byte_compiles_again),
        TEST(test_build_number),
        TEST(test_key_depends_on_each_part),
        TEST(test_failed_compile_is_reported_and_not_cached),
        TEST(test_may_not_compile),
        TEST(test_without_nvrtc_a_miss_says_so),
        TEST(test_without_a_cache_directory),
        TEST(test_with_an_impossible_cache_directory),
        TEST(test_slow_code_is_warned_of),
        TEST(test_dump),
        TEST(test_rebuild_replaces_the_entry),
        TEST(test_threads_share_one_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
