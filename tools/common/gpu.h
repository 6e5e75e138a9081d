/* SPDX-License-Identifier: MIT
 *
 * The driver entry points that the tools and the tests need beyond the library's own, opened at run time so that
 * every program starts on a machine without a GPU.
 *
 * Threads: a struct gpu is read-only once open; the CUDA context is current on the thread that called gpu_open, other
 * threads call gpu_use first. */
#ifndef ATTNS_TOOLS_COMMON_GPU_H_
#define ATTNS_TOOLS_COMMON_GPU_H_

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(member, "exported symbol", parameters). The symbol is the versioned one that cuda.h's macro maps to;
 * cuCtxCreate_v2 keeps its three-argument signature whatever cuda.h says. */
#define GPU_FUNCTIONS(X)                                                                                               \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(driver_get_version, "cuDriverGetVersion", (int *))                                                               \
    X(get_error_name, "cuGetErrorName", (CUresult, const char **))                                                     \
    X(get_error_string, "cuGetErrorString", (CUresult, const char **))                                                 \
    X(device_get, "cuDeviceGet", (CUdevice *, int))                                                                    \
    X(device_get_count, "cuDeviceGetCount", (int *))                                                                   \
    X(device_get_name, "cuDeviceGetName", (char *, int, CUdevice))                                                     \
    X(device_get_attribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))                             \
    X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                         \
    X(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                                 \
    X(ctx_create, "cuCtxCreate_v2", (CUcontext *, unsigned, CUdevice))                                                 \
    X(ctx_pop, "cuCtxPopCurrent_v2", (CUcontext *))                                                                    \
    X(ctx_destroy, "cuCtxDestroy_v2", (CUcontext))                                                                     \
    X(ctx_set_current, "cuCtxSetCurrent", (CUcontext))                                                                 \
    X(ctx_get_current, "cuCtxGetCurrent", (CUcontext *))                                                               \
    X(ctx_synchronize, "cuCtxSynchronize", (void))                                                                     \
    X(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                             \
    X(mem_free, "cuMemFree_v2", (CUdeviceptr))                                                                         \
    X(mem_alloc_host, "cuMemAllocHost_v2", (void **, size_t))                                                          \
    X(mem_free_host, "cuMemFreeHost", (void *))                                                                        \
    X(mem_get_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                                           \
    X(memset_d8, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t))                                                \
    X(memset_d16, "cuMemsetD16_v2", (CUdeviceptr, unsigned short, size_t))                                             \
    X(memset_d32, "cuMemsetD32_v2", (CUdeviceptr, unsigned, size_t))                                                   \
    X(memset_d8_async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                              \
    X(memset_d16_async, "cuMemsetD16Async", (CUdeviceptr, unsigned short, size_t, CUstream))                           \
    X(memset_d32_async, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, CUstream))                                 \
    X(memcpy_htod, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                                             \
    X(memcpy_dtoh, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                                                   \
    X(memcpy_dtod, "cuMemcpyDtoD_v2", (CUdeviceptr, CUdeviceptr, size_t))                                              \
    X(memcpy_htod_async, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                        \
    X(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                              \
    X(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                         \
    X(mem_granularity, "cuMemGetAllocationGranularity",                                                                \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))                                       \
    X(mem_address_reserve, "cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))    \
    X(mem_address_free, "cuMemAddressFree", (CUdeviceptr, size_t))                                                     \
    X(mem_create, "cuMemCreate",                                                                                       \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))                       \
    X(mem_release, "cuMemRelease", (CUmemGenericAllocationHandle))                                                     \
    X(mem_map, "cuMemMap", (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))            \
    X(mem_unmap, "cuMemUnmap", (CUdeviceptr, size_t))                                                                  \
    X(mem_set_access, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                        \
    X(stream_create, "cuStreamCreate", (CUstream *, unsigned))                                                         \
    X(stream_destroy, "cuStreamDestroy_v2", (CUstream))                                                                \
    X(stream_synchronize, "cuStreamSynchronize", (CUstream))                                                           \
    X(stream_query, "cuStreamQuery", (CUstream))                                                                       \
    X(stream_wait_event, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                           \
    X(event_create, "cuEventCreate", (CUevent *, unsigned))                                                            \
    X(event_record, "cuEventRecord", (CUevent, CUstream))                                                              \
    X(event_query, "cuEventQuery", (CUevent))                                                                          \
    X(event_synchronize, "cuEventSynchronize", (CUevent))                                                              \
    X(event_elapsed, "cuEventElapsedTime", (float *, CUevent, CUevent))                                                \
    X(event_destroy, "cuEventDestroy_v2", (CUevent))                                                                   \
    X(stream_begin_capture, "cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode))                                \
    X(stream_end_capture, "cuStreamEndCapture", (CUstream, CUgraph *))                                                 \
    X(stream_is_capturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))                                 \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long))                  \
    X(graph_launch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                          \
    X(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec))                                                         \
    X(graph_destroy, "cuGraphDestroy", (CUgraph))                                                                      \
    X(graph_get_nodes, "cuGraphGetNodes", (CUgraph, CUgraphNode *, size_t *))                                          \
    X(graph_node_get_type, "cuGraphNodeGetType", (CUgraphNode, CUgraphNodeType *))                                     \
    X(module_load_data, "cuModuleLoadData", (CUmodule *, const void *))                                                \
    X(module_unload, "cuModuleUnload", (CUmodule))                                                                     \
    X(module_get_function, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                              \
    X(func_set_attribute, "cuFuncSetAttribute", (CUfunction, CUfunction_attribute, int))                               \
    X(launch_kernel, "cuLaunchKernel",                                                                                 \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    X(launch_kernel_ex, "cuLaunchKernelEx", (const CUlaunchConfig *, CUfunction, void **, void **))

struct gpu {
#define GPU_MEMBER(member, symbol, params) CUresult(CUDAAPI *member) params;
    GPU_FUNCTIONS(GPU_MEMBER)
#undef GPU_MEMBER
    void *handle;
    int driver_version;
    int ordinal;
    CUdevice device;
    CUcontext context; /* the primary one, retained and current on the opening thread */
    char name[128];
    int compute_capability; /* 90 for 9.0 */
    int num_sms;
    int l2_bytes;
    char reason[512]; /* why gpu_open returned false */
};

/* Opens libcuda ($ATTNS_LIBCUDA, then libcuda.so.1), takes device `ordinal`'s primary context and makes it current.
 * false with gpu->reason filled if there is no driver, no such device, or an entry point is missing; gpu_close is then
 * not needed. */
bool gpu_open(struct gpu *gpu, int ordinal);
void gpu_close(struct gpu *gpu);

/* Makes the primary context current on the calling thread. */
bool gpu_use(const struct gpu *gpu);

/* true for CUDA_SUCCESS, else prints "CALL: CUDA_ERROR_X (text)" to stderr and returns false. */
bool gpu_ok(const struct gpu *gpu, CUresult result, const char *call);

/* Waits for the event at most `seconds`; CUDA_ERROR_NOT_READY when time is up. A kernel that hangs is thus reported
 * instead of hanging the program. */
CUresult gpu_wait_event(const struct gpu *gpu, CUevent event, double seconds);
/* Likewise for everything queued on the stream. */
CUresult gpu_wait_stream(const struct gpu *gpu, CUstream stream, double seconds);

/* Device memory. Zero-initialise; release with gpu_buffer_free (a no-op on a zeroed struct). */
struct gpu_buffer {
    CUdeviceptr ptr; /* first of `bytes` usable bytes */
    size_t bytes;
    CUdeviceptr range; /* reserved addresses of a guarded buffer, 0 for a plain one */
    size_t range_bytes, mapped_bytes;
    CUmemGenericAllocationHandle memory;
};

bool gpu_buffer_alloc(const struct gpu *gpu, struct gpu_buffer *buffer, size_t bytes);

enum gpu_flush {
    GPU_FLUSH_END,  /* the byte after the buffer is unmapped */
    GPU_FLUSH_START /* the byte before the buffer is unmapped */
};

/* A buffer between unmapped addresses on both sides (at least one granule, 2 MiB), flush against one of them: an
 * access beyond it is a fault. With GPU_FLUSH_END its alignment is that of `bytes`. */
bool gpu_buffer_alloc_guarded(const struct gpu *gpu, struct gpu_buffer *buffer, size_t bytes, enum gpu_flush flush);
void gpu_buffer_free(const struct gpu *gpu, struct gpu_buffer *buffer);

/* Node counts of a captured graph. */
struct gpu_graph_nodes {
    size_t total, kernels, memcpys, memsets, hosts, allocs, frees;
};
bool gpu_graph_count(const struct gpu *gpu, CUgraph graph, struct gpu_graph_nodes *nodes);

/* Loads a cubin (or PTX) into the current context and finds one kernel of it. */
bool gpu_load_kernel(const struct gpu *gpu, const void *image, const char *name, CUmodule *module,
                     CUfunction *function);

#endif
