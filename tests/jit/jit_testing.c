/* SPDX-License-Identifier: MIT */
#include "jit_testing.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/strbuf.h"

int jit_setup(void **state) {
    jit_fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    setenv("ATTNS_CACHE_DIR", "", 1); /* nothing is to end up in the user's own cache */
    fixture->dir = scratch_make();
    fixture->templates = path_join(fixture->dir, "templates");
    fixture->cache = path_join(fixture->dir, "cache");
    pthread_mutex_init(&fixture->log.mutex, NULL);
    fixture->params = (attns_context_params){
        .log = log_to_record,
        .log_user = &fixture->log,
        .log_level = ATTNS_LOG_DEBUG,
        .libcuda_path = FAKE_CUDA_PATH,
        .libnvrtc_path = FAKE_NVRTC_99_1,
        .template_dir = fixture->templates,
        .dump_dir = "",
        .cache_dir = fixture->cache,
        .cache_readonly_dirs = "",
    };
    write_all_templates(fixture, "");
    *state = fixture;
    return 0;
}

int jit_teardown(void **state) {
    jit_fixture *fixture = *state;
    free(fixture->templates);
    free(fixture->cache);
    scratch_remove(fixture->dir);
    pthread_mutex_destroy(&fixture->log.mutex);
    free(fixture);
    return 0;
}

attns_context *jit_context(const jit_fixture *fixture) {
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, &fixture->params), ATTNS_OK);
    return ctx;
}

attns_problem fp8_problem(int num_heads, int next_n) {
    return (attns_problem){.kind = ATTNS_KERNEL_FP8_LOGITS,
                           .num_heads = num_heads,
                           .head_dim = 128,
                           .block_size = 64,
                           .next_n = next_n,
                           .out_dtype = ATTNS_DTYPE_F32,
                           .acc_dtype = ATTNS_DTYPE_F32,
                           .epi_dtype = ATTNS_DTYPE_F32};
}

attns_plan plan_for_sm90(const attns_problem *problem) {
    attns_target target;
    attns_plan plan;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    assert_int_equal(attns_plan_make(problem, &target, ATTNS_CHOOSE_AUTO, &plan), ATTNS_OK);
    return plan;
}

void write_template(const jit_fixture *fixture, const attns_plan *plan, const char *body) {
    attns_strbuf text = {0};
    attns_strbuf_printf(&text, "extern \"C\" __global__ void %s() {}\n", plan->entry);
    for (size_t i = 0; i < plan->num_placeholders; i++)
        attns_strbuf_printf(&text, "// %s = @%s@\n", plan->placeholders[i].name, plan->placeholders[i].name);
    attns_strbuf_puts(&text, body);
    char *path = path_join("templates", plan->template_file);
    file_write(fixture->dir, path, attns_strbuf_text(&text));
    free(path);
    attns_strbuf_free(&text);
}

void write_all_templates(const jit_fixture *fixture, const char *body) {
    attns_problem problem = fp8_problem(64, 1);
    attns_plan plan = plan_for_sm90(&problem);
    write_template(fixture, &plan, body);
    problem = (attns_problem){.kind = ATTNS_KERNEL_SCHEDULE};
    plan = plan_for_sm90(&problem);
    write_template(fixture, &plan, body);
}

void *library_symbol(const char *path, const char *name) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    void *address = dlsym(handle, name);
    assert_non_null(address);
    return address;
}

fake_cuda_state *fake_cuda(void) {
    fake_cuda_get_state_fn function;
    void *address = library_symbol(FAKE_CUDA_PATH, "fake_cuda_get_state");
    memcpy(&function, &address, sizeof function);
    return function();
}

int fake_compiles(const char *path) {
    int (*function)(void);
    void *address = library_symbol(path, "fake_nvrtc_compiles");
    memcpy(&function, &address, sizeof function);
    return function();
}

int fake_peak(const char *path) {
    int (*function)(void);
    void *address = library_symbol(path, "fake_nvrtc_peak");
    memcpy(&function, &address, sizeof function);
    return function();
}

attns_counters counters_of(const attns_context *ctx) {
    attns_counters counters = {0};
    attns_get_counters(ctx, &counters);
    return counters;
}
