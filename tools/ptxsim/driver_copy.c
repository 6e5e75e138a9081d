/* SPDX-License-Identifier: MIT
 *
 * Copies and fills. */
#include "driver_state.h"

static CUresult submit(CUcontext ctx, CUstream handle, operation *op) {
    CUstream stream;
    CUresult result = stream_find(ctx, handle, &stream);
    return result == CUDA_SUCCESS ? stream_submit(stream, op) : result;
}

/* The synchronous calls go through the legacy stream and wait, which captures forbid. */
static CUresult submit_and_wait(CUcontext ctx, operation *op) {
    CUresult result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        result = submit(ctx, CU_STREAM_LEGACY, op);
    CUstream legacy;
    if (result == CUDA_SUCCESS && stream_find(ctx, CU_STREAM_LEGACY, &legacy) == CUDA_SUCCESS)
        queue_drain_stream(legacy);
    return result == CUDA_SUCCESS ? ctx->sticky : result;
}

static operation copy_to_device(CUdeviceptr to, const void *from, size_t bytes) {
    return (operation){.kind = OPERATION_COPY, .copy = {to, (uint64_t)(uintptr_t)from, bytes, true, false}};
}

static operation copy_to_host(void *to, CUdeviceptr from, size_t bytes) {
    return (operation){.kind = OPERATION_COPY, .copy = {(uint64_t)(uintptr_t)to, from, bytes, false, true}};
}

static operation copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return (operation){.kind = OPERATION_COPY, .copy = {to, from, bytes, true, true}};
}

static operation fill(CUdeviceptr to, unsigned value, size_t count, unsigned width) {
    return (operation){.kind = OPERATION_SET, .set = {to, value, count, width}};
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER_CONTEXT();
    operation op = copy_to_device(to, from, bytes);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    ENTER_CONTEXT();
    operation op = copy_to_host(to, from, bytes);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER_CONTEXT();
    operation op = copy_on_device(to, from, bytes);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT();
    operation op = copy_to_device(to, from, bytes);
    LEAVE(submit(ctx, stream, &op));
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT();
    operation op = copy_to_host(to, from, bytes);
    LEAVE(submit(ctx, stream, &op));
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT();
    operation op = copy_on_device(to, from, bytes);
    LEAVE(submit(ctx, stream, &op));
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 1);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 2);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 4);
    LEAVE(submit_and_wait(ctx, &op));
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 1);
    LEAVE(submit(ctx, stream, &op));
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 2);
    LEAVE(submit(ctx, stream, &op));
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    ENTER_CONTEXT();
    operation op = fill(to, value, count, 4);
    LEAVE(submit(ctx, stream, &op));
}
