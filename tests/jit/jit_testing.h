/* SPDX-License-Identifier: MIT
 *
 * Contexts on the fake driver and the fake compiler, and templates that any plan fills. */
#ifndef ATTNS_TESTS_JIT_JIT_TESTING_H_
#define ATTNS_TESTS_JIT_JIT_TESTING_H_

#include "testing.h"

#include "core/context.h"
#include "fake_cuda.h"
#include "jit/kernel_store.h"

typedef struct jit_fixture {
    char *dir;       /* scratch */
    char *templates; /* dir/templates, override directory */
    char *cache;     /* dir/cache, not yet made */
    log_record log;
    attns_context_params params; /* fake libraries, the folders above, everything logged */
} jit_fixture;

/* cmocka setup and teardown: *state is a jit_fixture. */
int jit_setup(void **state);
int jit_teardown(void **state);

attns_context *jit_context(const jit_fixture *fixture);

attns_problem fp8_problem(int num_heads, int next_n);
attns_plan plan_for_sm90(const attns_problem *problem);

/* Writes a template under the plan's file name that uses each of its placeholders; `body` is appended. */
void write_template(const jit_fixture *fixture, const attns_plan *plan, const char *body);
/* For the fp8 and the schedule kernel. */
void write_all_templates(const jit_fixture *fixture, const char *body);

/* A function of a library that this process has open, or opens now. */
void *library_symbol(const char *path, const char *name);
fake_cuda_state *fake_cuda(void);
/* Compiles that the fake NVRTC at `path` was asked for, over all contexts. */
int fake_compiles(const char *path);
/* The most of them that ran at a time since the last call. */
int fake_peak(const char *path);

attns_counters counters_of(const attns_context *ctx);

#endif
