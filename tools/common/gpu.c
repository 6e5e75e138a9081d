/* SPDX-License-Identifier: MIT */
#include "common/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool refuse(struct gpu *gpu, const char *what, const char *detail) {
    snprintf(gpu->reason, sizeof gpu->reason, "%s: %s", what, detail);
    if (gpu->handle)
        dlclose(gpu->handle);
    gpu->handle = NULL;
    return false;
}

static bool refuse_result(struct gpu *gpu, const char *call, CUresult result) {
    const char *name = NULL;
    if (gpu->get_error_name(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    return refuse(gpu, call, name);
}

/* POSIX lets a data pointer hold a function address; ISO C wants the detour through memory. */
static bool bind(void *handle, const char *symbol, void *member) {
    void *address = dlsym(handle, symbol);
    memcpy(member, &address, sizeof address);
    return address != NULL;
}

bool gpu_open(struct gpu *gpu, int ordinal) {
    memset(gpu, 0, sizeof *gpu);
    const char *path = getenv("ATTNS_LIBCUDA");
    if (!path || !*path)
        path = "libcuda.so.1";
    gpu->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!gpu->handle)
        return refuse(gpu, "no CUDA driver", dlerror());
#define GPU_BIND(member, symbol, params)                                                                               \
    if (!bind(gpu->handle, symbol, &gpu->member))                                                                      \
        return refuse(gpu, path, "no entry point " symbol);
    GPU_FUNCTIONS(GPU_BIND)
#undef GPU_BIND

    CUresult result = gpu->init(0);
    if (result != CUDA_SUCCESS)
        return refuse_result(gpu, "cuInit", result);
    int count = 0, major = 0, minor = 0;
    gpu->driver_get_version(&gpu->driver_version);
    if ((result = gpu->device_get_count(&count)) != CUDA_SUCCESS)
        return refuse_result(gpu, "cuDeviceGetCount", result);
    if (ordinal < 0 || ordinal >= count) {
        char detail[64];
        snprintf(detail, sizeof detail, "device %d asked for, %d present", ordinal, count);
        return refuse(gpu, "no such CUDA device", detail);
    }
    gpu->ordinal = ordinal;
    if ((result = gpu->device_get(&gpu->device, ordinal)) != CUDA_SUCCESS)
        return refuse_result(gpu, "cuDeviceGet", result);
    gpu->device_get_name(gpu->name, (int)sizeof gpu->name, gpu->device);
    gpu->device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->device);
    gpu->device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->device);
    gpu->device_get_attribute(&gpu->num_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device);
    gpu->device_get_attribute(&gpu->l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu->device);
    gpu->compute_capability = major * 10 + minor;
    if ((result = gpu->primary_ctx_retain(&gpu->context, gpu->device)) != CUDA_SUCCESS)
        return refuse_result(gpu, "cuDevicePrimaryCtxRetain", result);
    if ((result = gpu->ctx_set_current(gpu->context)) != CUDA_SUCCESS) {
        gpu->primary_ctx_release(gpu->device);
        return refuse_result(gpu, "cuCtxSetCurrent", result);
    }
    return true;
}

void gpu_close(struct gpu *gpu) {
    if (!gpu->handle)
        return;
    gpu->ctx_set_current(NULL);
    gpu->primary_ctx_release(gpu->device);
    dlclose(gpu->handle);
    memset(gpu, 0, sizeof *gpu);
}

bool gpu_use(const struct gpu *gpu) {
    return gpu_ok(gpu, gpu->ctx_set_current(gpu->context), "cuCtxSetCurrent");
}

bool gpu_ok(const struct gpu *gpu, CUresult result, const char *call) {
    if (result == CUDA_SUCCESS)
        return true;
    const char *name = NULL, *text = NULL;
    gpu->get_error_name(result, &name);
    gpu->get_error_string(result, &text);
    fprintf(stderr, "%s: %s (%s)\n", call, name ? name : "unknown error", text ? text : "no text");
    return false;
}

static CUresult poll_until(const struct gpu *gpu, CUevent event, CUstream stream, double seconds) {
    double end = seconds_now() + seconds;
    for (;;) {
        CUresult result = event ? gpu->event_query(event) : gpu->stream_query(stream);
        if (result != CUDA_ERROR_NOT_READY || seconds_now() > end)
            return result;
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

CUresult gpu_wait_event(const struct gpu *gpu, CUevent event, double seconds) {
    return poll_until(gpu, event, NULL, seconds);
}

CUresult gpu_wait_stream(const struct gpu *gpu, CUstream stream, double seconds) {
    return poll_until(gpu, NULL, stream, seconds);
}

bool gpu_buffer_alloc(const struct gpu *gpu, struct gpu_buffer *buffer, size_t bytes) {
    memset(buffer, 0, sizeof *buffer);
    buffer->bytes = bytes;
    return gpu_ok(gpu, gpu->mem_alloc(&buffer->ptr, bytes ? bytes : 1), "cuMemAlloc");
}

bool gpu_buffer_alloc_guarded(const struct gpu *gpu, struct gpu_buffer *buffer, size_t bytes, enum gpu_flush flush) {
    memset(buffer, 0, sizeof *buffer);
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = gpu->ordinal;
    size_t granule = 0;
    if (!gpu_ok(gpu, gpu->mem_granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                "cuMemGetAllocationGranularity"))
        return false;
    size_t mapped = bytes ? (bytes + granule - 1) / granule * granule : granule;
    size_t reserved = mapped + 2 * granule;
    CUdeviceptr range = 0;
    if (!gpu_ok(gpu, gpu->mem_address_reserve(&range, reserved, 0, 0, 0), "cuMemAddressReserve"))
        return false;
    CUmemGenericAllocationHandle memory = 0;
    if (!gpu_ok(gpu, gpu->mem_create(&memory, mapped, &prop, 0), "cuMemCreate")) {
        gpu->mem_address_free(range, reserved);
        return false;
    }
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!gpu_ok(gpu, gpu->mem_map(range + granule, mapped, 0, memory, 0), "cuMemMap")) {
        gpu->mem_release(memory);
        gpu->mem_address_free(range, reserved);
        return false;
    }
    buffer->range = range;
    buffer->range_bytes = reserved;
    buffer->mapped_bytes = mapped;
    buffer->memory = memory;
    buffer->bytes = bytes;
    buffer->ptr = range + granule + (flush == GPU_FLUSH_END ? mapped - bytes : 0);
    if (!gpu_ok(gpu, gpu->mem_set_access(range + granule, mapped, &access, 1), "cuMemSetAccess")) {
        gpu_buffer_free(gpu, buffer);
        return false;
    }
    return true;
}

void gpu_buffer_free(const struct gpu *gpu, struct gpu_buffer *buffer) {
    if (buffer->range) {
        size_t granule = (buffer->range_bytes - buffer->mapped_bytes) / 2;
        gpu->ctx_synchronize();
        gpu->mem_unmap(buffer->range + granule, buffer->mapped_bytes);
        gpu->mem_release(buffer->memory);
        gpu->mem_address_free(buffer->range, buffer->range_bytes);
    } else if (buffer->ptr) {
        gpu->mem_free(buffer->ptr);
    }
    memset(buffer, 0, sizeof *buffer);
}

bool gpu_graph_count(const struct gpu *gpu, CUgraph graph, struct gpu_graph_nodes *nodes) {
    memset(nodes, 0, sizeof *nodes);
    size_t count = 0;
    if (!gpu_ok(gpu, gpu->graph_get_nodes(graph, NULL, &count), "cuGraphGetNodes"))
        return false;
    CUgraphNode *list = calloc(count + 1, sizeof *list);
    bool ok = list && gpu_ok(gpu, gpu->graph_get_nodes(graph, list, &count), "cuGraphGetNodes");
    for (size_t i = 0; ok && i < count; i++) {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        ok = gpu_ok(gpu, gpu->graph_node_get_type(list[i], &type), "cuGraphNodeGetType");
        nodes->kernels += type == CU_GRAPH_NODE_TYPE_KERNEL;
        nodes->memcpys += type == CU_GRAPH_NODE_TYPE_MEMCPY;
        nodes->memsets += type == CU_GRAPH_NODE_TYPE_MEMSET;
        nodes->hosts += type == CU_GRAPH_NODE_TYPE_HOST;
        nodes->allocs += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        nodes->frees += type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    }
    nodes->total = count;
    free(list);
    return ok;
}

bool gpu_load_kernel(const struct gpu *gpu, const void *image, const char *name, CUmodule *module,
                     CUfunction *function) {
    if (!gpu_ok(gpu, gpu->module_load_data(module, image), "cuModuleLoadData"))
        return false;
    if (gpu_ok(gpu, gpu->module_get_function(function, *module, name), "cuModuleGetFunction"))
        return true;
    gpu->module_unload(*module);
    return false;
}
