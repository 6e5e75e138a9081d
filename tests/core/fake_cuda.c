/* SPDX-License-Identifier: MIT */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The table has the versioned names; cuda.h's macros map the plain ones onto them. */
struct CUlib_st {
    char *image;
    struct CUkern_st *kernels;
};

struct CUkern_st {
    struct CUlib_st *library;
    char name[64];
    struct CUfunc_st *functions[8];
    int num_functions;
    struct CUkern_st *next;
};

#define MAX_DEPTH 8

static fake_cuda_state state = {.compute_capability = {90, 90}, .num_sms = {132, 78}};
static pthread_mutex_t library_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct CUctx_st *stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

fake_cuda_state *fake_cuda_get_state(void);
void fake_cuda_set_current(struct CUctx_st *ctx);
CUstreamCaptureMode fake_cuda_capture_mode(void);

fake_cuda_state *fake_cuda_get_state(void) {
    return &state;
}

void fake_cuda_set_current(struct CUctx_st *ctx) {
    depth = ctx ? 1 : 0;
    stack[0] = ctx;
}

CUstreamCaptureMode fake_cuda_capture_mode(void) {
    return capture_mode;
}

/* Counts the call; true if it is to fail with *result. */
static int must_fail(fake_call call, CUresult *result) {
    atomic_fetch_add(&state.calls[call], 1);
    int left = atomic_load(&state.fail_times[call]);
    while (left > 0)
        if (atomic_compare_exchange_weak(&state.fail_times[call], &left, left - 1)) {
            *result = (CUresult)atomic_load(&state.fail_result[call]);
            return 1;
        }
    return 0;
}

#define ENTER(member)                                                                                                  \
    do {                                                                                                               \
        CUresult failure;                                                                                              \
        if (must_fail(FAKE_##member, &failure))                                                                        \
            return failure;                                                                                            \
    } while (0)

/* As the driver: an unsafe call on a thread that is not in relaxed mode invalidates a capture and fails. */
static CUresult unsafe_call(void) {
    if (!state.capturing || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    atomic_store(&state.capturing->capture, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    ENTER(init);
    const char *result = getenv("FAKE_CUDA_INIT");
    return result ? (CUresult)atoi(result) : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(driver_get_version);
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    ENTER(get_error_name);
    switch (error) {
    case CUDA_ERROR_INVALID_IMAGE:
        *text = "CUDA_ERROR_INVALID_IMAGE";
        return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE:
        *text = "CUDA_ERROR_NO_DEVICE";
        return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *text = "CUDA_ERROR_OUT_OF_MEMORY";
        return CUDA_SUCCESS;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
        *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    ENTER(get_error_string);
    if (error != CUDA_ERROR_NO_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *text = "no CUDA-capable device is detected";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(device_get);
    *device = ordinal;
    return ordinal < FAKE_NUM_DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(device_get_count);
    *count = FAKE_NUM_DEVICES;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    ENTER(device_get_name);
    snprintf(name, (size_t)size, "Fake device %d", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(device_get_attribute);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = state.compute_capability[device] / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = state.compute_capability[device] % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = state.num_sms[device];
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 50 << 20;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = 233472;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER(device_total_mem);
    *bytes = (size_t)(device + 1) << 30;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
    ENTER(ctx_get_current);
    *ctx = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    ENTER(ctx_push_current);
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = ctx;
    atomic_fetch_add(&state.contexts_pushed, 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx) {
    ENTER(ctx_pop_current);
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctx = stack[--depth];
    atomic_fetch_sub(&state.contexts_pushed, 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(ctx_get_device);
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = stack[depth - 1]->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id) {
    ENTER(ctx_get_id);
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx) {
    ENTER(stream_get_ctx);
    *ctx = stream->ctx;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    ENTER(stream_is_capturing);
    int is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    *status = is_default ? CU_STREAM_CAPTURE_STATUS_NONE : atomic_load(&stream->capture);
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER(thread_exchange_stream_capture_mode);
    CUstreamCaptureMode previous = capture_mode;
    capture_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned num_jit, CUlibraryOption *options, void **values, unsigned num_options) {
    (void)jit_options, (void)jit_values, (void)num_jit, (void)options, (void)values, (void)num_options;
    ENTER(library_load_data);
    CUresult result = unsafe_call();
    if (result != CUDA_SUCCESS)
        return result;
    if (strncmp(code, FAKE_CUBIN_MAGIC, sizeof FAKE_CUBIN_MAGIC - 1) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    struct CUlib_st *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    loaded->image = strdup(code);
    *library = loaded;
    atomic_fetch_add(&state.libraries_alive, 1);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTER(library_unload);
    while (library->kernels) {
        struct CUkern_st *next = library->kernels->next;
        for (int i = 0; i < library->kernels->num_functions; i++)
            free(library->kernels->functions[i]);
        free(library->kernels);
        library->kernels = next;
    }
    free(library->image);
    free(library);
    atomic_fetch_sub(&state.libraries_alive, 1);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    ENTER(library_get_kernel);
    struct CUkern_st *found = calloc(1, sizeof *found);
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    found->library = library;
    snprintf(found->name, sizeof found->name, "%s", name);
    pthread_mutex_lock(&library_mutex);
    found->next = library->kernels;
    library->kernels = found;
    pthread_mutex_unlock(&library_mutex);
    *kernel = found;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    ENTER(kernel_get_function);
    CUresult result = unsafe_call();
    if (result != CUDA_SUCCESS)
        return result;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct CUctx_st *ctx = stack[depth - 1];
    pthread_mutex_lock(&library_mutex);
    *function = NULL;
    for (int i = 0; i < kernel->num_functions; i++)
        if (kernel->functions[i]->ctx == ctx)
            *function = kernel->functions[i];
    if (!*function) {
        *function = kernel->functions[kernel->num_functions++] = calloc(1, sizeof **function);
        (*function)->ctx = ctx;
        (*function)->kernel = kernel;
    }
    pthread_mutex_unlock(&library_mutex);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER(func_set_attribute);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        function->max_dynamic_shared = value;
    else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        function->carveout = value;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER(func_get_attribute);
    (void)attribute;
    *value = function->max_dynamic_shared;
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    (void)type, (void)rank, (void)address, (void)dim, (void)strides, (void)box, (void)element_strides;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    ENTER(tensor_map_encode_tiled);
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    (void)config, (void)function, (void)parameters, (void)extra;
    ENTER(launch_kernel_ex);
    return CUDA_SUCCESS;
}
