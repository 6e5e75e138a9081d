/* SPDX-License-Identifier: MIT
 *
 * libcuda, opened at run time. One table of entry points; nothing in the library links against libcuda. */
#ifndef ATTNS_CORE_DRIVER_H_
#define ATTNS_CORE_DRIVER_H_

#include <attn_scores/attn_scores.h>
#include <cuda.h>

/* X(member, "exported symbol", (parameters)). The symbol is the versioned one that cuda.h's macro maps to. */
#define ATTNS_DRIVER_FUNCTIONS(X)                                                                                      \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(driver_get_version, "cuDriverGetVersion", (int *))                                                               \
    X(get_error_name, "cuGetErrorName", (CUresult, const char **))                                                     \
    X(get_error_string, "cuGetErrorString", (CUresult, const char **))                                                 \
    X(device_get, "cuDeviceGet", (CUdevice *, int))                                                                    \
    X(device_get_count, "cuDeviceGetCount", (int *))                                                                   \
    X(device_get_name, "cuDeviceGetName", (char *, int, CUdevice))                                                     \
    X(device_get_attribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))                             \
    X(device_total_mem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))                                                   \
    X(ctx_get_current, "cuCtxGetCurrent", (CUcontext *))                                                               \
    X(ctx_push_current, "cuCtxPushCurrent_v2", (CUcontext))                                                            \
    X(ctx_pop_current, "cuCtxPopCurrent_v2", (CUcontext *))                                                            \
    X(ctx_get_device, "cuCtxGetDevice", (CUdevice *))                                                                  \
    X(ctx_get_id, "cuCtxGetId", (CUcontext, unsigned long long *))                                                     \
    X(stream_get_ctx, "cuStreamGetCtx", (CUstream, CUcontext *))                                                       \
    X(stream_is_capturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))                                 \
    X(thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode *))               \
    X(library_load_data, "cuLibraryLoadData",                                                                          \
      (CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *, void **, unsigned))            \
    X(library_unload, "cuLibraryUnload", (CUlibrary))                                                                  \
    X(library_get_kernel, "cuLibraryGetKernel", (CUkernel *, CUlibrary, const char *))                                 \
    X(kernel_get_function, "cuKernelGetFunction", (CUfunction *, CUkernel))                                            \
    X(func_set_attribute, "cuFuncSetAttribute", (CUfunction, CUfunction_attribute, int))                               \
    X(func_get_attribute, "cuFuncGetAttribute", (int *, CUfunction_attribute, CUfunction))                             \
    X(tensor_map_encode_tiled, "cuTensorMapEncodeTiled",                                                               \
      (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,                 \
       const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,      \
       CUtensorMapFloatOOBfill))                                                                                       \
    X(launch_kernel_ex, "cuLaunchKernelEx", (const CUlaunchConfig *, CUfunction, void **, void **))

typedef struct attns_driver {
#define ATTNS_DRIVER_MEMBER(member, symbol, params) CUresult(CUDAAPI *member) params;
    ATTNS_DRIVER_FUNCTIONS(ATTNS_DRIVER_MEMBER)
#undef ATTNS_DRIVER_MEMBER
    void *handle; /* dlopen handle; kept open until process exit */
    char *path;   /* what was opened */
    int version;  /* cuDriverGetVersion */
} attns_driver;

/* Opens libcuda and fills the table; calls cuInit(0). `path` NULL means "libcuda.so.1", then the folders where drivers
 * usually lie. A toolkit's stub library is recognised (cuInit answers CUDA_ERROR_STUB_LIBRARY, or it lies in a folder
 * named stubs) and passed over. ATTNS_ERROR_LIBRARY_NOT_FOUND: the message names all that was looked for and why each
 * was refused. ATTNS_ERROR_CUDA: a driver is there, but cuInit failed (no device, for one). */
attns_status attns_driver_open(attns_driver *driver, const char *path);
void attns_driver_close(attns_driver *driver); /* frees the table; libcuda stays loaded */

/* attns_fail(ATTNS_ERROR_CUDA, "cuLaunchKernelEx: CUDA_ERROR_X (text)"). */
attns_status attns_driver_fail(const attns_driver *driver, CUresult result, const char *call) __attribute__((cold));

/* ATTNS_OK or attns_driver_fail. */
static inline attns_status attns_driver_check(const attns_driver *driver, CUresult result, const char *call) {
    return result == CUDA_SUCCESS ? ATTNS_OK : attns_driver_fail(driver, result, call);
}

#endif
