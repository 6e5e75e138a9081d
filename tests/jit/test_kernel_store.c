/* SPDX-License-Identifier: MIT
 *
 * From a problem to a launchable kernel, on a driver and a compiler that only pretend. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_testing.h"

/* ---- What a warm call must not do (linked with --wrap) ---- */

static atomic_int forbidden_calls;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *data);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
char *__real_getenv(const char *name);
char *__real_secure_getenv(const char *name);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *data);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
char *__wrap_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);

void *__wrap_malloc(size_t size) {
    forbidden_calls++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    forbidden_calls++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
    forbidden_calls++;
    return __real_realloc(old, size);
}

void __wrap_free(void *data) {
    forbidden_calls++;
    __real_free(data);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    forbidden_calls++;
    return __real_pthread_mutex_lock(mutex);
}

char *__wrap_getenv(const char *name) {
    forbidden_calls++;
    return __real_getenv(name);
}

char *__wrap_secure_getenv(const char *name) {
    forbidden_calls++;
    return __real_secure_getenv(name);
}

/* ---- Fixture: one CUDA context per device, a stream in each; the first is current ---- */

static fake_cuda_state *fake;
static fake_cuda_set_current_fn set_current;
static fake_cuda_capture_mode_fn capture_mode;
static struct CUctx_st cuda_ctx[2];
static struct CUstream_st stream[2];

static int setup(void **state) {
    fake = fake_cuda();
    void *address = library_symbol(FAKE_CUDA_PATH, "fake_cuda_set_current");
    memcpy(&set_current, &address, sizeof set_current);
    address = library_symbol(FAKE_CUDA_PATH, "fake_cuda_capture_mode");
    memcpy(&capture_mode, &address, sizeof capture_mode);
    for (int i = 0; i < 2; i++) {
        cuda_ctx[i] = (struct CUctx_st){.id = (unsigned long long)i + 1, .device = i};
        stream[i].ctx = &cuda_ctx[i];
        atomic_store(&stream[i].capture, CU_STREAM_CAPTURE_STATUS_NONE);
    }
    fake->capturing = NULL;
    set_current(&cuda_ctx[0]);
    return jit_setup(state);
}

/* Every test leaves the driver as it was. */
static int teardown(void **state) {
    jit_teardown(state);
    for (int i = 0; i < FAKE_NUM_CALLS; i++)
        if (fake->fail_times[i])
            return -1;
    return fake->libraries_alive || fake->contexts_pushed || capture_mode() != CU_STREAM_CAPTURE_MODE_GLOBAL ? -1 : 0;
}

static void begin_capture(struct CUstream_st *captured) {
    atomic_store(&captured->capture, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    fake->capturing = captured;
}

static void end_capture(struct CUstream_st *captured) {
    assert_int_equal(atomic_load(&captured->capture), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    atomic_store(&captured->capture, CU_STREAM_CAPTURE_STATUS_NONE);
    fake->capturing = NULL;
}

/* Managed memory belongs to no device in particular. */
static const DLDevice any_device = {kDLCUDAManaged, 0};

static const attns_kernel *acquire_for(attns_context *ctx, attns_problem problem, int64_t tiles, CUstream on) {
    attns_kernel_use use;
    attns_status status = attns_kernel_acquire(ctx, &problem, tiles, any_device, on, &use);
    if (status != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    attns_kernel_release(&use);
    return use.kernel;
}

static const attns_kernel *acquire(attns_context *ctx, attns_problem problem, CUstream on) {
    return acquire_for(ctx, problem, 0, on);
}

static void check_failure(attns_context *ctx, attns_problem problem, CUstream on, attns_status expected,
                          const char *part) {
    attns_kernel_use use;
    int pushed = fake->contexts_pushed;
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, any_device, on, &use), expected);
    assert_contains(attns_last_error(), part);
    assert_int_equal(fake->contexts_pushed, pushed);
    assert_int_equal(capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void check_counters(const attns_context *ctx, uint64_t compiles, uint64_t disk, uint64_t memory,
                           uint64_t loads) {
    attns_counters counters = counters_of(ctx);
    assert_int_equal(counters.compiles, compiles);
    assert_int_equal(counters.disk_hits, disk);
    assert_int_equal(counters.memory_hits, memory);
    assert_int_equal(counters.module_loads, loads);
}

/* ---- Finding kernels ---- */

static void test_first_compiles_second_is_warm(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    attns_plan plan = plan_for_sm90(&problem);
    const attns_kernel *kernel = acquire(ctx, problem, &stream[0]);
    check_counters(ctx, 1, 0, 0, 1);
    assert_memory_equal(&kernel->problem, &problem, sizeof problem);
    assert_string_equal(kernel->plan.name, plan.name);
    assert_int_equal(kernel->device_ordinal, 0);
    assert_int_equal(kernel->num_sms, 132);
    assert_int_equal(kernel->cuda_ctx_id, 1);
    int shared = attns_plan_most_shared_bytes(&plan);
    assert_true(shared > 0);
    assert_int_equal(kernel->function->max_dynamic_shared, shared);
    assert_int_equal(kernel->function->carveout, 100);
    assert_ptr_equal(acquire(ctx, problem, &stream[0]), kernel);
    check_counters(ctx, 1, 0, 1, 1);
    attns_context_destroy(ctx);
}

static void test_warm_call_does_nothing_slow(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    acquire(ctx, problem, &stream[0]);
    for (int i = 0; i < FAKE_NUM_CALLS; i++)
        fake->calls[i] = 0;
    atomic_store(&forbidden_calls, 0);
    enum { ROUNDS = 1000 };
    attns_status status = ATTNS_OK;
    for (int i = 0; i < ROUNDS && status == ATTNS_OK; i++) {
        attns_kernel_use use;
        status = attns_kernel_acquire(ctx, &problem, 0, any_device, &stream[0], &use);
        if (status == ATTNS_OK)
            attns_kernel_release(&use);
    }
    assert_int_equal(atomic_load(&forbidden_calls), 0);
    assert_int_equal(status, ATTNS_OK);
    for (int i = 0; i < FAKE_NUM_CALLS; i++) {
        int allowed = i == FAKE_ctx_get_current || i == FAKE_stream_get_ctx || i == FAKE_ctx_get_id;
        assert_int_equal(fake->calls[i], allowed ? ROUNDS : 0);
    }
    check_counters(ctx, 1, 0, ROUNDS, 1);
    /* The interposed functions do count: a cold call is far from free. */
    acquire(ctx, fp8_problem(64, 2), &stream[0]);
    assert_true(atomic_load(&forbidden_calls) > 10);
    attns_context_destroy(ctx);
}

/* Little and much work have kernels of their own where the plan says so, each built when a call first needs it. What is
 * much depends on the device, which has 132 SMs, the other one 78. */
static void test_little_and_much_work(void **state) {
    attns_context *ctx = jit_context(*state);
    const attns_problem problem = fp8_problem(64, 2);
    const int64_t much = (int64_t)plan_for_sm90(&problem).much_tiles * 132;
    const attns_kernel *const large = acquire_for(ctx, problem, much, &stream[0]);
    check_counters(ctx, 1, 0, 0, 1);
    const attns_kernel *const small = acquire_for(ctx, problem, much - 1, &stream[0]);
    check_counters(ctx, 2, 0, 0, 2);
    assert_int_equal(large->problem.much_work, 1);
    assert_memory_equal(&small->problem, &problem, sizeof problem);
    assert_string_not_equal(large->plan.name, small->plan.name);

    atomic_store(&forbidden_calls, 0);
    for (int i = 0; i < 10; i++)
        assert_ptr_equal(acquire_for(ctx, problem, i % 2 ? much + i : i, &stream[0]), i % 2 ? large : small);
    assert_int_equal(atomic_load(&forbidden_calls), 0);
    check_counters(ctx, 2, 0, 10, 2);
    assert_int_equal(acquire_for(ctx, problem, much - 1, &stream[1])->problem.much_work, 1);
    assert_int_equal(acquire_for(ctx, problem, 78, &stream[1])->problem.much_work, 0);
    check_counters(ctx, 2, 0, 10, 2); /* the other device's kernels are the same modules */

    const attns_kernel *const only = acquire_for(ctx, fp8_problem(64, 1), 0, &stream[0]);
    assert_ptr_equal(acquire_for(ctx, fp8_problem(64, 1), INT64_MAX, &stream[0]), only);
    attns_context_destroy(ctx);
}

static void test_each_problem_has_its_kernel(void **state) {
    attns_context *ctx = jit_context(*state);
    const attns_kernel *kernels[10];
    for (int i = 0; i < 8; i++)
        kernels[i] = acquire(ctx, fp8_problem(i % 2 ? 64 : 32, i / 2 + 1), &stream[0]);
    const attns_problem schedule = {.kind = ATTNS_KERNEL_SCHEDULE};
    kernels[8] = acquire(ctx, schedule, &stream[0]);
    kernels[9] = acquire(ctx, fp8_problem(128, 1), &stream[0]);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(kernels[i], kernels[k]);
        assert_ptr_equal(acquire(ctx, kernels[i]->problem, &stream[0]), kernels[i]);
    }
    check_counters(ctx, 10, 0, 10, 10);
    attns_context_destroy(ctx);
}

/* Tensors on another device than the stream's are refused before anything is compiled, and also when warm. */
static void test_wrong_device(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    const DLDevice right = {kDLCUDA, 1}, wrong = {kDLCUDA, 0};
    attns_kernel_use use;
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, wrong, &stream[1], &use), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_contains(attns_last_error(), "stream: belongs to cuda:1, accepted: a stream of cuda:0");
    check_counters(ctx, 0, 0, 0, 0);
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, right, &stream[1], &use), ATTNS_OK);
    attns_kernel_release(&use);
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, wrong, &stream[1], &use), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(fake->contexts_pushed, 0);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);
}

static void test_streams_context_is_made_current(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    attns_kernel_use use;
    CUcontext current;
    for (int round = 0; round < 2; round++) { /* cold, then warm */
        assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, any_device, &stream[1], &use), ATTNS_OK);
        assert_true(use.pushed);
        use.driver->ctx_get_current(&current);
        assert_ptr_equal(current, &cuda_ctx[1]);
        assert_int_equal(use.kernel->device_ordinal, 1);
        assert_int_equal(use.kernel->num_sms, 78);
        attns_kernel_release(&use);
        use.driver->ctx_get_current(&current);
        assert_ptr_equal(current, &cuda_ctx[0]);
    }
    /* Also from a thread without any context. */
    set_current(NULL);
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, any_device, &stream[1], &use), ATTNS_OK);
    attns_kernel_release(&use);
    use.driver->ctx_get_current(&current);
    assert_null(current);
    attns_context_destroy(ctx);
}

static void test_cuda_contexts_share_the_module(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    const attns_kernel *first = acquire(ctx, problem, &stream[0]), *second = acquire(ctx, problem, &stream[1]);
    assert_ptr_not_equal(first, second);
    assert_ptr_not_equal(first->function, second->function);
    assert_ptr_equal(second->function->ctx, &cuda_ctx[1]);
    assert_true(second->function->max_dynamic_shared > 0);
    check_counters(ctx, 1, 0, 0, 1);

    /* A CUDA context made anew at the same address is another context. */
    cuda_ctx[0].id = 77;
    const attns_kernel *third = acquire(ctx, problem, &stream[0]);
    assert_ptr_not_equal(third, first);
    assert_int_equal(third->cuda_ctx_id, 77);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);
}

static void test_default_streams(void **state) {
    attns_context *ctx = jit_context(*state);
    attns_problem problem = fp8_problem(64, 1);
    CUstream const streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    const attns_kernel *kernel = acquire(ctx, problem, &stream[1]);
    set_current(&cuda_ctx[1]);
    int asked = fake->calls[FAKE_stream_get_ctx];
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(acquire(ctx, problem, streams[i]), kernel);
    assert_int_equal(fake->calls[FAKE_stream_get_ctx], asked);
    set_current(NULL);
    for (int i = 0; i < 3; i++)
        check_failure(ctx, problem, streams[i], ATTNS_ERROR_INVALID_ARGUMENT, "stream: ");
    attns_context_destroy(ctx);
}

static void test_library_contexts_are_independent(void **state) {
    attns_problem problem = fp8_problem(64, 1);
    attns_context *a = jit_context(*state), *b = jit_context(*state);
    const attns_kernel *kernel = acquire(a, problem, &stream[0]);
    assert_ptr_not_equal(acquire(b, problem, &stream[0]), kernel);
    check_counters(a, 1, 0, 0, 1);
    check_counters(b, 0, 1, 0, 1);
    assert_int_equal(fake->libraries_alive, 2);
    attns_context_destroy(a);
    assert_int_equal(fake->libraries_alive, 1);
    acquire(b, problem, &stream[0]);
    attns_context_destroy(b);
    assert_int_equal(fake->libraries_alive, 0);
    a = jit_context(*state);
    acquire(a, problem, &stream[0]);
    check_counters(a, 0, 1, 0, 1);
    attns_context_destroy(a);
}

/* ---- Capture ---- */

static void test_capture_of_an_unprepared_kernel(void **state) {
    attns_context *ctx = jit_context(*state);
    int compiles = fake_compiles(FAKE_NVRTC_99_1), loads = fake->calls[FAKE_library_load_data];
    begin_capture(&stream[0]);
    attns_problem problem = fp8_problem(64, 3);
    check_failure(ctx, problem, &stream[0], ATTNS_ERROR_WOULD_COMPILE,
                  "attn-scores precompile --kernel 'fp8_paged_mqa_logits h64 d128 b64 n3 out=f32 acc=f32 epi=f32 for "
                  "sm_90a' --cache-dir '");
    attns_plan plan = plan_for_sm90(&problem);
    assert_contains(attns_last_error(), plan.name);
    check_failure(ctx, (attns_problem){.kind = ATTNS_KERNEL_SCHEDULE}, &stream[0], ATTNS_ERROR_WOULD_COMPILE,
                  "attn-scores precompile --kernel 'paged_mqa_logits_schedule for sm_90a' ");
    end_capture(&stream[0]); /* asserts that the capture is still valid */
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), compiles);
    assert_int_equal(fake->calls[FAKE_library_load_data], loads);
    /* The failure leaves nothing behind. */
    acquire(ctx, problem, &stream[0]);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);
}

/* A capture needs the kernel for its own work: the other one is not enough. */
static void test_capture_with_much_work(void **state) {
    attns_context *ctx = jit_context(*state);
    const attns_problem problem = fp8_problem(64, 2);
    acquire(ctx, problem, &stream[0]);
    attns_kernel_use use;
    begin_capture(&stream[0]);
    assert_int_equal(attns_kernel_acquire(ctx, &problem, INT64_MAX, any_device, &stream[0], &use),
                     ATTNS_ERROR_WOULD_COMPILE);
    end_capture(&stream[0]);
    assert_contains(attns_last_error(), "--kernel 'fp8_paged_mqa_logits h64 d128 b64 n2 out=f32 acc=f32 epi=f32 much "
                                        "work for sm_90a' --cache-dir");
    const int next_n = 2;
    const attns_precompile_params params = {.next_ns = &next_n, .num_next_ns = 1};
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_OK);
    const int compiles = fake_compiles(FAKE_NVRTC_99_1);
    begin_capture(&stream[0]);
    assert_int_equal(acquire_for(ctx, problem, INT64_MAX, &stream[0])->problem.much_work, 1);
    end_capture(&stream[0]);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), compiles);
    attns_context_destroy(ctx);
}

static void test_capture_loads_from_disk(void **state) {
    attns_problem problem = fp8_problem(64, 1);
    attns_context *ctx = jit_context(*state);
    acquire(ctx, problem, &stream[0]);
    attns_context_destroy(ctx);
    ctx = jit_context(*state);
    begin_capture(&stream[0]);
    const attns_kernel *kernel = acquire(ctx, problem, &stream[0]);
    assert_ptr_equal(acquire(ctx, problem, &stream[0]), kernel);
    end_capture(&stream[0]);
    check_counters(ctx, 0, 1, 1, 1);
    attns_context_destroy(ctx);
}

static void test_compiling_in_capture_if_allowed(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.allow_compile_in_capture = true;
    attns_context *ctx = jit_context(fixture);
    begin_capture(&stream[0]);
    acquire(ctx, fp8_problem(64, 1), &stream[0]);
    end_capture(&stream[0]);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);
}

/* A stream that does not capture may compile while another one does, and leaves that capture valid. */
static void test_capture_on_another_stream_survives(void **state) {
    attns_context *ctx = jit_context(*state);
    begin_capture(&stream[1]);
    acquire(ctx, fp8_problem(64, 1), &stream[0]);
    end_capture(&stream[1]);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);
}

/* The check above can fail: the fake driver does invalidate a capture that is not protected. */
static void test_fake_driver_invalidates_captures(void **state) {
    (void)state;
    attns_driver driver;
    assert_int_equal(attns_driver_open(&driver, FAKE_CUDA_PATH), ATTNS_OK);
    begin_capture(&stream[0]);
    CUlibrary library;
    assert_int_equal(driver.library_load_data(&library, FAKE_CUBIN_MAGIC, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(atomic_load(&stream[0].capture), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    fake->capturing = NULL;
    attns_driver_close(&driver);
}

/* ---- Failures ---- */

static void test_every_driver_call_may_fail(void **state) {
    const struct {
        fake_call call;
        const char *name;
    } calls[] = {
        {FAKE_ctx_get_current, "cuCtxGetCurrent"},
        {FAKE_stream_get_ctx, "stream: cuStreamGetCtx"},
        {FAKE_ctx_push_current, "cuCtxPushCurrent"},
        {FAKE_ctx_get_id, "cuCtxGetId"},
        {FAKE_ctx_get_device, "cuCtxGetDevice"},
        {FAKE_device_get_attribute, "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)"},
        {FAKE_device_get_count, "cuDeviceGetCount"},
        {FAKE_device_get, "cuDeviceGet:"},
        {FAKE_stream_is_capturing, "cuStreamIsCapturing"},
        {FAKE_thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode"},
        {FAKE_library_load_data, "cuLibraryLoadData"},
        {FAKE_library_get_kernel, "cuLibraryGetKernel"},
        {FAKE_kernel_get_function, "cuKernelGetFunction"},
        {FAKE_func_set_attribute, "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)"},
    };
    jit_fixture *fixture = *state;
    fixture->params.cache_dir = ""; /* so that a failed load is not tried again by compiling */
    attns_problem problem = fp8_problem(64, 1);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        attns_context *ctx = jit_context(fixture);
        fake->fail_result[calls[i].call] = CUDA_ERROR_OUT_OF_MEMORY;
        fake->fail_times[calls[i].call] = 1;
        check_failure(ctx, problem, &stream[1], ATTNS_ERROR_CUDA, calls[i].name);
        assert_contains(attns_last_error(), "CUDA_ERROR_OUT_OF_MEMORY");
        assert_int_equal(fake->fail_times[calls[i].call], 0);
        acquire(ctx, problem, &stream[1]);
        attns_context_destroy(ctx);
        assert_int_equal(fake->libraries_alive, 0);
    }
}

/* A cubin from disk that the driver refuses is compiled once more and replaced. */
static void test_unloadable_entry_is_rebuilt(void **state) {
    attns_problem problem = fp8_problem(64, 1);
    attns_context *ctx = jit_context(*state);
    acquire(ctx, problem, &stream[0]);
    attns_context_destroy(ctx);
    const fake_call calls[] = {FAKE_library_load_data, FAKE_library_get_kernel, FAKE_kernel_get_function};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ctx = jit_context(*state);
        fake->fail_result[calls[i]] = CUDA_ERROR_INVALID_IMAGE;
        fake->fail_times[calls[i]] = 1;
        acquire(ctx, problem, &stream[0]);
        check_counters(ctx, 1, 1, 0, 1);
        attns_context_destroy(ctx);
    }
    jit_fixture *fixture = *state;
    assert_contains(fixture->log.text, "could not be loaded, compiling again");

    /* Once, not for ever. */
    ctx = jit_context(*state);
    fake->fail_result[FAKE_library_load_data] = CUDA_ERROR_INVALID_IMAGE;
    fake->fail_times[FAKE_library_load_data] = 2;
    check_failure(ctx, problem, &stream[0], ATTNS_ERROR_CUDA, "cuLibraryLoadData: CUDA_ERROR_INVALID_IMAGE");
    check_counters(ctx, 1, 1, 0, 0);
    attns_context_destroy(ctx);

    /* Not while capturing, and not without a compiler. */
    ctx = jit_context(*state);
    begin_capture(&stream[0]);
    fake->fail_times[FAKE_library_load_data] = 1;
    check_failure(ctx, problem, &stream[0], ATTNS_ERROR_CUDA, "cuLibraryLoadData: CUDA_ERROR_INVALID_IMAGE");
    end_capture(&stream[0]);
    check_counters(ctx, 0, 1, 0, 0);
    attns_context_destroy(ctx);
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(*state);
    fake->fail_times[FAKE_library_load_data] = 1;
    check_failure(ctx, problem, &stream[0], ATTNS_ERROR_LIBRARY_NOT_FOUND, "could not be loaded and must be compiled");
    attns_context_destroy(ctx);
}

static void test_refusals(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    int compiles = fake_compiles(FAKE_NVRTC_99_1);
    fake->compute_capability[0] = 35;
    check_failure(ctx, fp8_problem(64, 1), &stream[0], ATTNS_ERROR_UNSUPPORTED_DEVICE, "3.5");
    fake->compute_capability[0] = 90;
    check_failure(ctx, fp8_problem(63, 1), &stream[0], ATTNS_ERROR_UNSUPPORTED, "63");
    write_all_templates(fixture, "FAKE_ERROR\n");
    check_failure(ctx, fp8_problem(64, 1), &stream[0], ATTNS_ERROR_COMPILE, "\"nonsense\" is undefined");
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), compiles + 1);
    write_all_templates(fixture, "@NOT_GIVEN@\n");
    check_failure(ctx, fp8_problem(64, 1), &stream[0], ATTNS_ERROR_IO, "@NOT_GIVEN@");
    write_all_templates(fixture, "");
    acquire(ctx, fp8_problem(64, 1), &stream[0]);
    attns_context_destroy(ctx);

    fixture->params.libcuda_path = "/nonexistent/cuda";
    ctx = jit_context(fixture);
    attns_kernel_use use;
    attns_problem problem = fp8_problem(64, 1);
    assert_int_equal(attns_kernel_acquire(ctx, &problem, 0, any_device, NULL, &use), ATTNS_ERROR_LIBRARY_NOT_FOUND);
    assert_contains(attns_last_error(), "/nonexistent/cuda");
    attns_context_destroy(ctx);
}

/* ---- Targets ---- */

/* While set, the targets of every device. */
static const attns_target *targets_given;
static size_t num_targets_given;

attns_status __real_attns_targets_of_device(int compute_capability, attns_target targets[ATTNS_MAX_TARGETS],
                                            size_t *count);
attns_status __wrap_attns_targets_of_device(int compute_capability, attns_target targets[ATTNS_MAX_TARGETS],
                                            size_t *count);
attns_status __wrap_attns_targets_of_device(int compute_capability, attns_target targets[ATTNS_MAX_TARGETS],
                                            size_t *count) {
    if (!targets_given)
        return __real_attns_targets_of_device(compute_capability, targets, count);
    memcpy(targets, targets_given, num_targets_given * sizeof *targets);
    *count = num_targets_given;
    return ATTNS_OK;
}

static attns_target sm90_named(const char *arch) {
    attns_target target;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    snprintf(target.arch, sizeof target.arch, "%s", arch);
    return target;
}

/* The fake NVRTC knows 80, 90, 100 and 103. */
static void test_first_target_that_nvrtc_knows(void **state) {
    jit_fixture *fixture = *state;
    const attns_target targets[] = {sm90_named("sm_107a"), sm90_named("sm_103a"), sm90_named("sm_100f")};
    const attns_problem problem = fp8_problem(64, 1);
    targets_given = targets, num_targets_given = 3;
    attns_context *ctx = jit_context(fixture);
    attns_fail(ATTNS_ERROR_IO, "the message of an earlier call");
    assert_string_equal(acquire(ctx, problem, &stream[0])->plan.target.arch, "sm_103a");
    assert_string_equal(attns_last_error(), "the message of an earlier call");
    assert_contains(fixture->log.text, "compiled for sm_103a, as NVRTC does not know sm_107a");
    check_counters(ctx, 1, 0, 0, 1);
    acquire(ctx, problem, &stream[0]);
    check_counters(ctx, 1, 0, 1, 1);
    attns_context_destroy(ctx);

    /* None is known: what the best one lacks is what is told. */
    num_targets_given = 1;
    ctx = jit_context(fixture);
    check_failure(ctx, problem, &stream[0], ATTNS_ERROR_UNSUPPORTED_DEVICE, "sm_107a is not a target of NVRTC");
    attns_context_destroy(ctx);
    targets_given = NULL;
}

static void test_equally_good_target_from_the_cache(void **state) {
    jit_fixture *fixture = *state;
    const attns_target targets[] = {sm90_named("sm_103a"), sm90_named("sm_100f")};
    const attns_problem problem = fp8_problem(64, 1);
    targets_given = &targets[1], num_targets_given = 1;
    attns_context *ctx = jit_context(fixture);
    acquire(ctx, problem, &stream[0]);
    check_counters(ctx, 1, 0, 0, 1);
    attns_context_destroy(ctx);

    targets_given = targets, num_targets_given = 2;
    fixture->params.libnvrtc_path = "/nonexistent/nvrtc";
    ctx = jit_context(fixture);
    begin_capture(&stream[0]);
    assert_string_equal(acquire(ctx, problem, &stream[0])->plan.target.arch, "sm_100f");
    end_capture(&stream[0]);
    check_counters(ctx, 0, 1, 0, 1);
    check_failure(ctx, fp8_problem(64, 2), &stream[0], ATTNS_ERROR_LIBRARY_NOT_FOUND, "for sm_103a");
    attns_context_destroy(ctx);
    targets_given = NULL;
}

static void test_arch_that_was_asked_for(void **state) {
    jit_fixture *fixture = *state;
    fake->compute_capability[0] = 35;
    fixture->params.arch = "sm_90a";
    attns_context *ctx = jit_context(fixture);
    assert_string_equal(acquire(ctx, fp8_problem(64, 1), &stream[0])->plan.target.arch, "sm_90a");
    attns_context_destroy(ctx);
    fake->compute_capability[0] = 90;
}

/* ---- Threads ---- */

typedef struct thread_work {
    attns_context *ctx;
    pthread_barrier_t *barrier;
    int index;
    attns_status status;
    const attns_kernel *kernel;
    char error[512];
} thread_work;

static void *acquire_in_thread(void *argument) {
    thread_work *work = argument;
    attns_problem problem = fp8_problem(64, 1);
    attns_kernel_use use = {0};
    pthread_barrier_wait(work->barrier);
    work->status = attns_kernel_acquire(work->ctx, &problem, 0, any_device, &stream[work->index % 2], &use);
    work->kernel = use.kernel;
    if (work->status == ATTNS_OK)
        attns_kernel_release(&use);
    else
        snprintf(work->error, sizeof work->error, "%s", attns_last_error());
    return NULL;
}

static void run_threads(attns_context *ctx, thread_work work[8]) {
    pthread_t threads[8];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++) {
        work[i] = (thread_work){.ctx = ctx, .barrier = &barrier, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_in_thread, &work[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void test_threads_share_compile_and_load(void **state) {
    jit_fixture *fixture = *state;
    write_all_templates(fixture, "FAKE_SLOW\n");
    attns_context *ctx = jit_context(fixture);
    int compiles = fake_compiles(FAKE_NVRTC_99_1);
    thread_work work[8];
    run_threads(ctx, work);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(work[i].status, ATTNS_OK);
        assert_ptr_equal(work[i].kernel, work[i % 2].kernel); /* one for each CUDA context */
    }
    assert_ptr_not_equal(work[0].kernel, work[1].kernel);
    assert_int_equal(fake_compiles(FAKE_NVRTC_99_1), compiles + 1);
    attns_counters counters = counters_of(ctx);
    assert_int_equal(counters.compiles, 1);
    assert_int_equal(counters.module_loads, 1);
    attns_context_destroy(ctx);
}

static void test_threads_all_learn_of_a_failure(void **state) {
    jit_fixture *fixture = *state;
    write_all_templates(fixture, "FAKE_ERROR\n");
    attns_context *ctx = jit_context(fixture);
    thread_work work[8];
    run_threads(ctx, work);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(work[i].status, ATTNS_ERROR_COMPILE);
        assert_contains(work[i].error, "\"nonsense\" is undefined");
    }
    check_counters(ctx, 0, 0, 0, 0);
    attns_context_destroy(ctx);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_first_compiles_second_is_warm),
        TEST(test_warm_call_does_nothing_slow),
        TEST(test_little_and_much_work),
        TEST(test_each_problem_has_its_kernel),
        TEST(test_wrong_device),
        TEST(test_streams_context_is_made_current),
        TEST(test_cuda_contexts_share_the_module),
        TEST(test_default_streams),
        TEST(test_library_contexts_are_independent),
        TEST(test_capture_of_an_unprepared_kernel),
        TEST(test_capture_with_much_work),
        TEST(test_capture_loads_from_disk),
        TEST(test_compiling_in_capture_if_allowed),
        TEST(test_capture_on_another_stream_survives),
        TEST(test_fake_driver_invalidates_captures),
        TEST(test_every_driver_call_may_fail),
        TEST(test_unloadable_entry_is_rebuilt),
        TEST(test_refusals),
        TEST(test_first_target_that_nvrtc_knows),
        TEST(test_equally_good_target_from_the_cache),
        TEST(test_arch_that_was_asked_for),
        TEST(test_threads_share_compile_and_load),
        TEST(test_threads_all_learn_of_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
