/* SPDX-License-Identifier: MIT */
#include "jit/kernel_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/record.h"

/* A cubin in the driver. A CUlibrary belongs to no CUDA context, so one load serves all of them. The thread that adds
 * it loads it without holding the mutex; others who want it wait for module_settled. */
struct attns_module {
    attns_problem problem;
    char arch[16];
    bool loaded; /* false while the thread that added it is at work */
    CUlibrary library;
    CUkernel kernel;
    struct attns_module *next;
};

/* ---- Warm path ---- */

/* The products do not wait for each other, as they would in a chain: the hash is a tenth of what a warm call computes.
 * Kernels for little and for much work are in one bucket, as only they know what is much. */
static size_t bucket_of(const attns_problem *p, unsigned long long cuda_ctx_id) {
    static const uint64_t golden =
        0x9e3779b97f4a7c15u; /* 2^64 divided by the golden ratio: odd, and so are its powers */
    const uint64_t golden2 = golden * golden, golden3 = golden2 * golden, golden4 = golden3 * golden;
    const uint64_t shape = (uint64_t)(uint32_t)p->num_heads << 32 | (uint32_t)p->head_dim;
    const uint64_t blocks = (uint64_t)(uint32_t)p->block_size << 32 | (uint32_t)p->next_n;
    const uint32_t options = (uint32_t)p->kind | (uint32_t)p->out_dtype << 8 | (uint32_t)p->acc_dtype << 16 |
                             (uint32_t)p->epi_dtype << 20 | (uint32_t)p->kv_sf_interleaved << 24;
    const uint64_t hash = shape * golden + blocks * golden2 + options * golden3 + cuda_ctx_id * golden4;
    return (size_t)(hash >> 56) % ATTNS_KERNEL_BUCKETS;
}

/* The kernel is for the problem, and for a call with so many tiles. */
static bool serves(const attns_kernel *kernel, const attns_problem *problem, int64_t tiles) {
    return memcmp(&kernel->problem, problem, offsetof(attns_problem, much_work)) == 0 &&
           kernel->problem.much_work == attns_plan_has_much_work(&kernel->plan, tiles, kernel->num_sms);
}

static const attns_kernel *find_kernel(attns_context *ctx, size_t bucket, const attns_problem *problem, int64_t tiles,
                                       unsigned long long cuda_ctx_id) {
    const attns_kernel *kernel = atomic_load_explicit(&ctx->kernels[bucket], memory_order_acquire);
    while (kernel && (kernel->cuda_ctx_id != cuda_ctx_id || !serves(kernel, problem, tiles)))
        kernel = kernel->next;
    return kernel;
}

static bool is_default_stream(CUstream stream) {
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* Makes the CUDA context of `stream` current. The default streams are those of the context that is current already. */
static attns_status enter_cuda_context(const attns_driver *driver, CUstream stream, CUcontext *cuda_ctx, bool *pushed) {
    CUcontext current = NULL;
    attns_status status = attns_driver_check(driver, driver->ctx_get_current(&current), "cuCtxGetCurrent");
    if (status != ATTNS_OK)
        return status;
    *cuda_ctx = current;
    if (!is_default_stream(stream)) {
        status = attns_driver_check(driver, driver->stream_get_ctx(stream, cuda_ctx), "stream: cuStreamGetCtx");
        if (status != ATTNS_OK)
            return status;
    }
    if (!*cuda_ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "stream: a default stream was given (NULL, legacy or per-thread), and this thread has no "
                          "current CUDA context that it could belong to");
    if (*cuda_ctx == current)
        return ATTNS_OK;
    status = attns_driver_check(driver, driver->ctx_push_current(*cuda_ctx), "cuCtxPushCurrent");
    *pushed = status == ATTNS_OK;
    return status;
}

/* Managed memory (which DLPack gives device 0) goes with any device. */
static attns_status check_device(DLDevice tensors, int ordinal) {
    if (tensors.device_type != kDLCUDA || tensors.device_id == ordinal)
        return ATTNS_OK;
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                      "stream: belongs to cuda:%d, accepted: a stream of cuda:%d, where the tensors are", ordinal,
                      tensors.device_id);
}

static attns_status acquire_cold(attns_context *ctx, const attns_driver *driver, const attns_problem *problem,
                                 int64_t tiles, DLDevice device, unsigned long long cuda_ctx_id, CUstream stream,
                                 const attns_kernel **kernel);

attns_status attns_kernel_acquire(attns_context *ctx, const attns_problem *problem, int64_t tiles, DLDevice device,
                                  CUstream stream, attns_kernel_use *use) {
    *use = (attns_kernel_use){.driver = atomic_load_explicit(&ctx->driver, memory_order_acquire)};
    attns_status status = ATTNS_OK;
    if (!use->driver)
        status = attns_context_driver(ctx, &use->driver);
    CUcontext cuda_ctx = NULL;
    if (status == ATTNS_OK)
        status = enter_cuda_context(use->driver, stream, &cuda_ctx, &use->pushed);
    if (status != ATTNS_OK)
        return status;

    unsigned long long id = 0;
    status = attns_driver_check(use->driver, use->driver->ctx_get_id(cuda_ctx, &id), "cuCtxGetId");
    if (status == ATTNS_OK) {
        use->kernel = find_kernel(ctx, bucket_of(problem, id), problem, tiles, id);
        if (!use->kernel)
            status = acquire_cold(ctx, use->driver, problem, tiles, device, id, stream, &use->kernel);
        else if ((status = check_device(device, use->kernel->device_ordinal)) == ATTNS_OK)
            atomic_fetch_add_explicit(&ctx->memory_hits, 1, memory_order_relaxed);
    }
    if (status != ATTNS_OK)
        attns_kernel_release(use);
    return status;
}

void attns_kernel_release(const attns_kernel_use *use) {
    CUcontext popped;
    if (use->pushed)
        use->driver->ctx_pop_current(&popped);
}

/* ---- Cold path ---- */

/* What a kernel is built for: everything acquire_cold finds out before it takes the mutex. */
typedef struct cold_request {
    attns_problem problem; /* much_work is that of the plan */
    int64_t tiles;
    unsigned long long cuda_ctx_id;
    int device_ordinal;
    int num_sms;
    bool may_compile;
    attns_plan plan;
} cold_request;

static attns_status describe_device(const attns_driver *driver, cold_request *request, int *compute_capability) {
    CUdevice device;
    int major = 0, minor = 0, count = 0;
    attns_status status = attns_driver_check(driver, driver->ctx_get_device(&device), "cuCtxGetDevice");
    if (status == ATTNS_OK)
        status = attns_driver_check(
            driver, driver->device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
            "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)");
    if (status == ATTNS_OK)
        status = attns_driver_check(
            driver, driver->device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
            "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MINOR)");
    if (status == ATTNS_OK)
        status = attns_driver_check(
            driver, driver->device_get_attribute(&request->num_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
            "cuDeviceGetAttribute(MULTIPROCESSOR_COUNT)");
    if (status == ATTNS_OK)
        status = attns_driver_check(driver, driver->device_get_count(&count), "cuDeviceGetCount");
    request->device_ordinal = -1;
    for (int i = 0; i < count && status == ATTNS_OK && request->device_ordinal < 0; i++) {
        CUdevice candidate;
        status = attns_driver_check(driver, driver->device_get(&candidate, i), "cuDeviceGet");
        if (status == ATTNS_OK && candidate == device)
            request->device_ordinal = i;
    }
    *compute_capability = 10 * major + minor;
    return status;
}

static attns_status load_image(attns_context *ctx, const attns_driver *driver, const cold_request *request,
                               const attns_image *image, struct attns_module *module) {
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    attns_status status = attns_driver_check(
        driver, driver->library_load_data(&library, image->data, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
    if (status != ATTNS_OK)
        return status;
    status = attns_driver_check(driver, driver->library_get_kernel(&kernel, library, request->plan.entry),
                                "cuLibraryGetKernel");
    /* A driver that loads lazily meets the machine code only here. */
    if (status == ATTNS_OK)
        status = attns_driver_check(driver, driver->kernel_get_function(&function, kernel), "cuKernelGetFunction");
    if (status != ATTNS_OK) {
        driver->library_unload(library);
        return status;
    }
    atomic_fetch_add_explicit(&ctx->module_loads, 1, memory_order_relaxed);
    module->library = library;
    module->kernel = kernel;
    return ATTNS_OK;
}

/* Finds the image and loads it. Runs without the mutex. */
static attns_status load_module(attns_context *ctx, const attns_driver *driver, const cold_request *request,
                                struct attns_module *module) {
    attns_image image;
    attns_status status = attns_image_get(ctx, &request->plan, request->may_compile, 0, &image);
    if (status != ATTNS_OK)
        return status;
    status = load_image(ctx, driver, request, &image, module);
    if (status == ATTNS_ERROR_CUDA && image.source == ATTNS_FROM_DISK && request->may_compile) {
        attns_log(&ctx->logger, ATTNS_LOG_WARNING,
                  "%s for %s: the cached cubin could not be loaded, compiling again: %s", request->plan.name,
                  request->plan.target.arch, attns_last_error());
        attns_image_free(&image);
        status = attns_image_rebuild(ctx, &request->plan, &image);
        if (status == ATTNS_OK)
            status = load_image(ctx, driver, request, &image, module);
    }
    if (status == ATTNS_ERROR_CUDA)
        attns_fail(status, "%s for %s: %s", request->plan.name, request->plan.target.arch, attns_last_error());
    attns_image_free(&image);
    return status;
}

/* The loaded module in *out, with the mutex held on entry and return but not in between. */
static attns_status obtain_module(attns_context *ctx, const attns_driver *driver, const cold_request *request,
                                  struct attns_module **out) {
    for (;;) {
        struct attns_module *module = ctx->modules;
        while (module && (memcmp(&module->problem, &request->problem, sizeof module->problem) != 0 ||
                          strcmp(module->arch, request->plan.target.arch) != 0))
            module = module->next;
        if (!module)
            break;
        if (module->loaded) {
            *out = module;
            return ATTNS_OK;
        }
        pthread_cond_wait(&ctx->module_settled, &ctx->mutex); /* then look again: it may have been given up */
    }

    struct attns_module *module = calloc(1, sizeof *module);
    if (!module)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s: out of memory", request->plan.name);
    module->problem = request->problem;
    memcpy(module->arch, request->plan.target.arch, sizeof module->arch);
    module->next = ctx->modules;
    ctx->modules = module;

    pthread_mutex_unlock(&ctx->mutex);
    attns_status status = load_module(ctx, driver, request, module);
    if (status == ATTNS_OK)
        attns_record_kernel(ctx, &request->plan);
    pthread_mutex_lock(&ctx->mutex);

    if (status == ATTNS_OK) {
        module->loaded = true;
        *out = module;
    } else {
        struct attns_module **link = &ctx->modules;
        while (*link != module)
            link = &(*link)->next;
        *link = module->next;
        free(module);
    }
    pthread_cond_broadcast(&ctx->module_settled);
    return status;
}

/* The module's function in the current CUDA context, ready to launch. */
static attns_status make_kernel(const attns_driver *driver, const cold_request *request,
                                const struct attns_module *module, attns_kernel *kernel) {
    kernel->problem = request->problem;
    kernel->cuda_ctx_id = request->cuda_ctx_id;
    kernel->plan = request->plan;
    kernel->device_ordinal = request->device_ordinal;
    kernel->num_sms = request->num_sms;
    attns_status status = attns_driver_check(driver, driver->kernel_get_function(&kernel->function, module->kernel),
                                             "cuKernelGetFunction");
    const int shared = attns_plan_most_shared_bytes(&request->plan);
    if (status == ATTNS_OK && shared > 0) {
        status = attns_driver_check(
            driver,
            driver->func_set_attribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
            "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
        if (status == ATTNS_OK)
            status = attns_driver_check(driver,
                                        driver->func_set_attribute(kernel->function,
                                                                   CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                                                   CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
                                        "cuFuncSetAttribute(PREFERRED_SHARED_MEMORY_CARVEOUT)");
    }
    if (status != ATTNS_OK)
        return attns_fail(status, "%s for %s: %s", request->plan.name, request->plan.target.arch, attns_last_error());
    return ATTNS_OK;
}

static attns_status add_kernel(attns_context *ctx, const attns_driver *driver, const cold_request *request,
                               const attns_kernel **out) {
    size_t bucket = bucket_of(&request->problem, request->cuda_ctx_id);
    struct attns_module *module = NULL;
    pthread_mutex_lock(&ctx->mutex);
    attns_status status = obtain_module(ctx, driver, request, &module);
    /* While this thread waited or loaded, another may have added the same kernel. */
    *out =
        status == ATTNS_OK ? find_kernel(ctx, bucket, &request->problem, request->tiles, request->cuda_ctx_id) : NULL;
    if (status == ATTNS_OK && !*out) {
        attns_kernel *kernel = calloc(1, sizeof *kernel);
        status = kernel ? make_kernel(driver, request, module, kernel)
                        : attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s: out of memory", request->plan.name);
        if (status == ATTNS_OK) {
            kernel->next = atomic_load_explicit(&ctx->kernels[bucket], memory_order_relaxed);
            atomic_store_explicit(&ctx->kernels[bucket], kernel, memory_order_release);
            *out = kernel;
        } else {
            free(kernel);
        }
    }
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

/* ---- Choosing the target ---- */

/* The targets that the device runs, best first, without those that have no kernel for the problem. */
static attns_status find_candidates(attns_context *ctx, const attns_problem *problem, int compute_capability,
                                    attns_target targets[ATTNS_MAX_TARGETS], size_t *count) {
    attns_status status;
    attns_plan plan;
    *count = 1;
    if (ctx->arch)
        status = attns_target_from_arch(ctx->arch, &targets[0]);
    else
        status = attns_targets_of_device(compute_capability, targets, count);
    if (status != ATTNS_OK)
        return status;
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (attns_plan_make(problem, &targets[i], ctx->family_choice, &plan) == ATTNS_OK)
            targets[kept++] = targets[i];
    *count = kept;
    return kept ? ATTNS_OK : attns_plan_make(problem, &targets[0], ctx->family_choice, &plan);
}

/* Keeps of the candidates those whose machine code is as good as that of the first: sm_103a, sm_103f, sm_100f. */
static size_t keep_equals(attns_context *ctx, const attns_problem *problem, const attns_target *targets, size_t count,
                          attns_target equals[ATTNS_MAX_TARGETS]) {
    attns_family best = ATTNS_FAMILY_NONE;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        attns_selection selection = {.family = ATTNS_FAMILY_NONE};
        if (problem->kind != ATTNS_KERNEL_SCHEDULE)
            attns_plan_select(problem, &targets[i], ctx->family_choice, &selection); /* a candidate has a kernel */
        if (i == 0)
            best = selection.family;
        if (!attns_target_is_ptx(&targets[i]) && selection.family == best && !targets[i].suffix == !targets[0].suffix)
            equals[kept++] = targets[i];
    }
    return kept;
}

/* The plan for a target: of the kernel for much work if there is one and the call has so much. */
static attns_status make_plan(const attns_context *ctx, cold_request *request, const attns_target *target) {
    request->problem.much_work = 0;
    const attns_status status = attns_plan_make(&request->problem, target, ctx->family_choice, &request->plan);
    if (status != ATTNS_OK || !attns_plan_has_much_work(&request->plan, request->tiles, request->num_sms))
        return status;
    request->problem.much_work = 1;
    return attns_plan_make(&request->problem, target, ctx->family_choice, &request->plan);
}

/* Whichever of them a cache holds: that is better than compiling the best one in the serving path. */
static attns_status add_cached(attns_context *ctx, const attns_driver *driver, cold_request *request,
                               const attns_target *targets, size_t count, const attns_kernel **kernel) {
    attns_status status = ATTNS_ERROR_WOULD_COMPILE;
    request->may_compile = false;
    for (size_t i = 0; i < count && status != ATTNS_OK; i++) {
        status = make_plan(ctx, request, &targets[i]);
        if (status == ATTNS_OK)
            status = add_kernel(ctx, driver, request, kernel);
    }
    return status;
}

/* The first target that NVRTC knows; without any NVRTC, or where compiling is forbidden, the first one that a cache
 * holds. If there is none, it is the best target's failure that is told. */
static attns_status add_compiled(attns_context *ctx, const attns_driver *driver, cold_request *request,
                                 const attns_target *targets, size_t count, const attns_kernel **kernel) {
    attns_saved_error message;
    attns_status first = ATTNS_OK;
    for (size_t i = 0; i < count; i++) {
        attns_status status = make_plan(ctx, request, &targets[i]);
        if (status == ATTNS_OK)
            status = add_kernel(ctx, driver, request, kernel);
        if (status == ATTNS_OK) {
            if (i > 0)
                attns_log(&ctx->logger, ATTNS_LOG_WARNING, "%s: compiled for %s, as NVRTC does not know %s",
                          request->plan.name, targets[i].arch, targets[0].arch);
            return ATTNS_OK;
        }
        if (i == 0) {
            first = status;
            const bool try_next = status == ATTNS_ERROR_UNSUPPORTED_DEVICE || status == ATTNS_ERROR_LIBRARY_NOT_FOUND ||
                                  (status == ATTNS_ERROR_WOULD_COMPILE && ctx->forbid_compile);
            if (!try_next)
                return status;
            attns_error_save(&message);
        }
    }
    attns_error_restore(&message);
    return first;
}

static attns_status acquire_cold(attns_context *ctx, const attns_driver *driver, const attns_problem *problem,
                                 int64_t tiles, DLDevice device, unsigned long long cuda_ctx_id, CUstream stream,
                                 const attns_kernel **kernel) {
    cold_request request = {.problem = *problem, .tiles = tiles, .cuda_ctx_id = cuda_ctx_id};
    attns_target targets[ATTNS_MAX_TARGETS], equals[ATTNS_MAX_TARGETS];
    size_t count = 0;
    int compute_capability = 0;
    attns_saved_error saved;
    attns_error_save(&saved);
    attns_status status = describe_device(driver, &request, &compute_capability);
    if (status == ATTNS_OK)
        status = check_device(device, request.device_ordinal);
    if (status == ATTNS_OK)
        status = find_candidates(ctx, problem, compute_capability, targets, &count);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (status == ATTNS_OK)
        status = attns_driver_check(driver, driver->stream_is_capturing(stream, &capture), "cuStreamIsCapturing");
    if (status != ATTNS_OK)
        return status;

    /* In the default mode, loading code would invalidate any capture that this thread, or in global mode any thread,
     * has under way. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    status = attns_driver_check(driver, driver->thread_exchange_stream_capture_mode(&mode),
                                "cuThreadExchangeStreamCaptureMode");
    if (status != ATTNS_OK)
        return status;
    const size_t num_equals = keep_equals(ctx, problem, targets, count, equals);
    status = ATTNS_ERROR_WOULD_COMPILE;
    if (num_equals > 1)
        status = add_cached(ctx, driver, &request, equals, num_equals, kernel);
    if (status != ATTNS_OK) {
        request.may_compile =
            !ctx->forbid_compile && (capture == CU_STREAM_CAPTURE_STATUS_NONE || ctx->allow_compile_in_capture);
        status = add_compiled(ctx, driver, &request, targets, count, kernel);
    }
    if (status == ATTNS_OK)
        attns_error_restore(&saved);
    driver->thread_exchange_stream_capture_mode(&mode);
    return status;
}

void attns_kernel_store_clear(attns_context *ctx) {
    const attns_driver *driver = atomic_load_explicit(&ctx->driver, memory_order_acquire);
    for (size_t i = 0; i < ATTNS_KERNEL_BUCKETS; i++) {
        attns_kernel *kernel = atomic_load_explicit(&ctx->kernels[i], memory_order_relaxed);
        while (kernel) {
            attns_kernel *next = kernel->next;
            free(kernel);
            kernel = next;
        }
        atomic_store_explicit(&ctx->kernels[i], NULL, memory_order_relaxed);
    }
    while (ctx->modules) {
        struct attns_module *next = ctx->modules->next;
        driver->library_unload(ctx->modules->library);
        free(ctx->modules);
        ctx->modules = next;
    }
}
