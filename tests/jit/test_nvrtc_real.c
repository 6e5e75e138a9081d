/* SPDX-License-Identifier: MIT
 *
 * The installed NVRTC: what it accepts, what its log looks like. Exit 77 where there is none. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/strbuf.h"
#include "jit/nvrtc.h"
#include "jit_testing.h"

static attns_nvrtc_set *set;

static const attns_nvrtc *nvrtc_for(const char *arch) {
    const attns_nvrtc *nvrtc = NULL;
    if (attns_nvrtc_for_arch(set, arch, &nvrtc) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    return nvrtc;
}

static void test_errors_name_the_template_line(void **state) {
    jit_fixture *fixture = *state;
    const attns_placeholder values[] = {{"TYPE", "float"}};
    file_write(fixture->templates, "broken.cu",
               "#include \"lib/good.cuh\"\n"
               "#include \"lib/bad.cuh\"\n"
               "extern \"C\" __global__ void kernel(@TYPE@ *out) {\n"
               "    *out = good() + nonsense;\n"
               "}\n");
    file_write(fixture->templates, "lib/good.cuh", "#pragma once\n__device__ float good() { return 1; }\n");
    file_write(fixture->templates, "lib/bad.cuh",
               "#include \"lib/good.cuh\"\n\n__device__ float bad() { return @TYPE@(unheard_of); }\n");
    char *source = NULL;
    assert_int_equal(attns_template_fill(fixture->templates, "broken.cu", values, 1, &source), ATTNS_OK);
    attns_compile_output output;
    assert_int_equal(attns_nvrtc_compile(nvrtc_for("sm_90a"), "broken.cu", source, "sm_90a", NULL, 0, &output),
                     ATTNS_ERROR_COMPILE);
    assert_contains(attns_last_error(), "templates/lib/bad.cuh(3): error: identifier \"unheard_of\"");
    assert_contains(attns_last_error(), "templates/broken.cu(4): error: identifier \"nonsense\"");
    assert_lacks(attns_last_error(), "good.cuh");
    free(source);
}

static void test_report_of_a_spilling_kernel(void **state) {
    (void)state;
    const char *source = "extern \"C\" __global__ void __launch_bounds__(1024) kernel(float *p, int n) {\n"
                         "    float a[64];\n"
                         "    for (int i = 0; i < 64; i++) a[i] = p[i] * n;\n"
                         "    for (int j = 0; j < n; j++)\n"
                         "        for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 1) & 63] + p[j];\n"
                         "    for (int i = 0; i < 64; i++) p[i + threadIdx.x] = a[i];\n"
                         "    p[n] = a[n & 63];\n"
                         "}\n";
    const char *const options[] = {"-std=c++17", "--ptxas-options=-v"};
    attns_compile_output output;
    assert_int_equal(attns_nvrtc_compile(nvrtc_for("sm_90a"), "spill.cu", source, "sm_90a", options, 2, &output),
                     ATTNS_OK);
    assert_in_range(output.registers, 32, 64);
    assert_true(output.spill_bytes >= 256); /* the array is indexed at run time, so it lies in local memory */
    assert_memory_equal(output.image, "\177ELF", 4);
    attns_compile_output_free(&output);
}

static void test_ptx_for_a_virtual_target(void **state) {
    (void)state;
    attns_compile_output output;
    assert_int_equal(attns_nvrtc_compile(nvrtc_for("compute_90a"), "empty.cu",
                                         "extern \"C\" __global__ void kernel() {}", "compute_90a", NULL, 0, &output),
                     ATTNS_OK);
    assert_contains(output.image, ".target sm_90a");
    assert_int_equal(strlen(output.image) + 1, output.image_size);
    attns_compile_output_free(&output);
}

/* NVRTC's output for the same source is the same, so two machines agree on what a key stands for. */
static void test_same_source_same_cubin(void **state) {
    (void)state;
    attns_compile_output output[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(attns_nvrtc_compile(nvrtc_for("sm_90a"), "same.cu",
                                             "extern \"C\" __global__ void kernel(int *p) { *p += 1; }", "sm_90a", NULL,
                                             0, &output[i]),
                         ATTNS_OK);
    assert_int_equal(output[0].image_size, output[1].image_size);
    assert_memory_equal(output[0].image, output[1].image, output[0].image_size);
    attns_compile_output_free(&output[0]);
    attns_compile_output_free(&output[1]);
}

/* ':'-separated folders of the libraries of this process, NVRTC's own apart. */
static void own_library_path(attns_strbuf *path) {
    void *self = dlopen(NULL, RTLD_LAZY);
    struct link_map *map = NULL;
    assert_non_null(self);
    assert_int_equal(dlinfo(self, RTLD_DI_LINKMAP, &map), 0);
    for (; map; map = map->l_next) {
        const char *slash = strrchr(map->l_name, '/');
        if (slash && !strstr(slash, "libnvrtc"))
            attns_strbuf_printf(path, "%s%.*s", path->size ? ":" : "", (int)(slash - map->l_name), map->l_name);
    }
    dlclose(self);
}

static bool is_in_path(const char *path, const char *file) {
    bool found = false;
    char *list = strdup(path), *rest = NULL;
    for (char *dir = strtok_r(list, ":", &rest); dir; dir = strtok_r(NULL, ":", &rest)) {
        char *name = path_join(dir, file);
        found |= access(name, F_OK) == 0;
        free(name);
    }
    free(list);
    return found;
}

static void link_or_copy(const char *from, const char *to) {
    if (link(from, to) != 0)
        file_copy(from, to);
}

/* A copy of libnvrtc in a folder of its own: without its builtins the error names file and folder, with them it
 * compiles although no search path leads there. The child's loader knows no more than the folders of this process's
 * own libraries; where other builtins lie among those, the test has nothing to hide. */
static void test_builtins_beside_the_library(void **state) {
    jit_fixture *fixture = *state;
    const char *loader = "/lib64/ld-linux-x86-64.so.2";
    const char *path = attns_nvrtc_path(attns_nvrtc_newest(set));
    int version = attns_nvrtc_version(attns_nvrtc_newest(set));
    attns_strbuf library_path = {0}, builtins = {0}, beside = {0}, command = {0};
    own_library_path(&library_path);
    attns_strbuf_printf(&builtins, "libnvrtc-builtins.so.%d.%d", version / 1000, version % 1000 / 10);
    attns_strbuf_printf(&beside, "%.*s/%s", (int)(strrchr(path, '/') - path), path, builtins.text);
    bool possible =
        access(loader, X_OK) == 0 && !is_in_path(library_path.text, builtins.text) && access(beside.text, R_OK) == 0;

    char *copy = path_join(fixture->dir, "libnvrtc.so.13"), *companion = path_join(fixture->dir, builtins.text);
    char *self = realpath("/proc/self/exe", NULL);
    attns_strbuf_printf(&command,
                        "env -u LD_LIBRARY_PATH %s --inhibit-cache --library-path '%s' '%s' --compile '%s' 2>&1",
                        loader, library_path.text, self, copy);
    if (possible)
        link_or_copy(path, copy);
    for (int with_builtins = 0; possible && with_builtins < 2; with_builtins++) {
        if (with_builtins)
            link_or_copy(beside.text, companion);
        FILE *child = popen(command.text, "r");
        assert_non_null(child);
        char output[16384];
        size_t size = fread(output, 1, sizeof output - 1, child);
        output[size] = '\0';
        int rc = pclose(child);
        if (with_builtins) {
            assert_contains(output, "compiled ");
            assert_int_equal(rc, 0);
        } else {
            assert_contains(output, "status 5");
            assert_contains(output, builtins.text);
            assert_contains(output, fixture->dir);
        }
    }
    free(copy), free(companion), free(self);
    attns_strbuf_free(&library_path);
    attns_strbuf_free(&builtins);
    attns_strbuf_free(&beside);
    attns_strbuf_free(&command);
    if (!possible) {
        print_message("skipped: no copy of this machine's NVRTC could be laid out in a folder of its own\n");
        skip();
    }
}

/* In a child of the test above. */
static int compile_with(const char *path) {
    attns_logger logger = {.level = ATTNS_LOG_WARNING};
    const attns_nvrtc *nvrtc = NULL;
    attns_compile_output output;
    attns_status status = attns_nvrtc_set_open(&set, path, &logger);
    if (status == ATTNS_OK)
        status = attns_nvrtc_for_arch(set, "sm_90a", &nvrtc);
    if (status == ATTNS_OK)
        status = attns_nvrtc_compile(nvrtc, "empty.cu", "extern \"C\" __global__ void kernel() {}", "sm_90a", NULL, 0,
                                     &output);
    if (status == ATTNS_OK) {
        printf("compiled %zu bytes\n", output.image_size);
        attns_compile_output_free(&output);
    } else {
        printf("status %d: %s\n", (int)status, attns_last_error());
    }
    attns_nvrtc_set_close(set);
    return status != ATTNS_OK;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--compile") == 0)
        return compile_with(argv[2]);
    attns_logger logger = {.level = ATTNS_LOG_WARNING};
    attns_status status = attns_nvrtc_set_open(&set, NULL, &logger);
    if (status == ATTNS_ERROR_LIBRARY_NOT_FOUND) {
        printf("skipped: %s\n", attns_last_error());
        return 77;
    }
    if (status != ATTNS_OK) {
        printf("%s\n", attns_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_errors_name_the_template_line, jit_setup, jit_teardown),
        cmocka_unit_test(test_report_of_a_spilling_kernel),
        cmocka_unit_test(test_ptx_for_a_virtual_target),
        cmocka_unit_test(test_same_source_same_cubin),
        cmocka_unit_test_setup_teardown(test_builtins_beside_the_library, jit_setup, jit_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    attns_nvrtc_set_close(set);
    return failed;
}
