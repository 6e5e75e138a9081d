/* SPDX-License-Identifier: MIT
 *
 * The kernels of a context and its cache from many threads at once: calls, precompiling, figures; made for
 * ThreadSanitizer, good without it. The compiler and the driver only pretend. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "jit_testing.h"

enum { THREADS = 8, ROUNDS = 40, NUM_PROBLEMS = 6 };

static fake_cuda_set_current_fn set_current;
static struct CUctx_st cuda_ctx[2];
static struct CUstream_st stream[2];
static const DLDevice any_device = {kDLCUDAManaged, 0};

typedef struct thread_work {
    attns_context *ctx;
    int index;
    atomic_int *wrong;
} thread_work;

static attns_problem problem_of(int which) {
    return which == 0 ? (attns_problem){.kind = ATTNS_KERNEL_SCHEDULE} : fp8_problem(8 * which, 1);
}

static void *run(void *argument) {
    thread_work *const work = argument;
    set_current(&cuda_ctx[work->index % 2]);
    for (int i = 0; i < ROUNDS; i++) {
        const attns_problem problem = problem_of((i + work->index) % NUM_PROBLEMS);
        attns_kernel_use use;
        if (i % 10 == 9 && work->index < 2) {
            const int heads[] = {8, 16, 24}, next_n[] = {1};
            const char *const archs[] = {"sm_90a"};
            const attns_precompile_params params = {.archs = archs,
                                                    .num_archs = 1,
                                                    .num_heads = heads,
                                                    .num_num_heads = 3,
                                                    .next_ns = next_n,
                                                    .num_next_ns = 1,
                                                    .jobs = 2};
            if (attns_precompile_paged_mqa_logits(work->ctx, &params) != ATTNS_OK)
                atomic_fetch_add(work->wrong, 1);
        } else if (i % 7 == 6) {
            attns_info info;
            attns_counters counters;
            attns_get_counters(work->ctx, &counters);
            if (attns_get_info(work->ctx, &info) != ATTNS_OK)
                atomic_fetch_add(work->wrong, 1);
        } else if (attns_kernel_acquire(work->ctx, &problem, 0, any_device, &stream[(i + work->index) % 2], &use) ==
                   ATTNS_OK) {
            if (memcmp(&use.kernel->problem, &problem, sizeof problem) != 0)
                atomic_fetch_add(work->wrong, 1);
            attns_kernel_release(&use);
        } else {
            atomic_fetch_add(work->wrong, 1);
        }
    }
    return NULL;
}

static void check(jit_fixture *fixture, uint64_t expected_compiles) {
    attns_context *ctx = jit_context(fixture);
    atomic_int wrong = 0;
    pthread_t threads[THREADS];
    thread_work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (thread_work){.ctx = ctx, .index = i, .wrong = &wrong};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(counters_of(ctx).compiles, expected_compiles);
    attns_context_destroy(ctx);
}

/* Cold, from disk, and without any disk: each kernel is compiled once at most. */
static void test_everything_at_once(void **state) {
    jit_fixture *fixture = *state;
    char *record = path_join(fixture->dir, "record");
    fixture->params.record_path = record;
    check(fixture, NUM_PROBLEMS);
    check(fixture, 0);
    fixture->params.cache_dir = "";
    check(fixture, NUM_PROBLEMS);
    free(record);
}

static int setup(void **state) {
    void *address = library_symbol(FAKE_CUDA_PATH, "fake_cuda_set_current");
    memcpy(&set_current, &address, sizeof set_current);
    for (int i = 0; i < 2; i++) {
        cuda_ctx[i] = (struct CUctx_st){.id = (unsigned long long)i + 1, .device = i};
        stream[i].ctx = &cuda_ctx[i];
    }
    return jit_setup(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_everything_at_once, setup, jit_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
