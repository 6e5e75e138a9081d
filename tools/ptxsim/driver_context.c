/* SPDX-License-Identifier: MIT
 *
 * CUDA contexts and each thread's stack of them. */
#include "driver_state.h"

#include <string.h>

#define MAX_DEPTH 64

/* cuda.h names the newest signature; callers that look symbols up by name may want this one. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice device)
    __attribute__((visibility("default")));

typedef struct stack_entry {
    CUcontext ctx;
    uint64_t id; /* tells a destroyed context from another at the same address */
} stack_entry;

static _Thread_local stack_entry stack[MAX_DEPTH];
static _Thread_local int depth;

CUresult context_current(CUcontext *ctx) {
    if (!depth || !stack[depth - 1].ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    const stack_entry *top = &stack[depth - 1];
    if (!object_is(OBJECT_CONTEXT, top->ctx) || top->ctx->base.id != top->id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ctx = top->ctx;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx) {
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = (stack_entry){ctx, ctx->base.id};
    return CUDA_SUCCESS;
}

static void destroy(CUcontext ctx) {
    queue_drain_context(ctx);
    stream_remove_all(ctx);
    for (object *at = driver.objects, *next; at; at = next) {
        next = at->next;
        if (at->ctx == ctx && at->kind == OBJECT_LIBRARY) {
            library_remove((CUlibrary)(void *)at);
            next = driver.objects; /* its functions have left the list, too */
        }
    }
    memory_remove_all(ctx);
    for (object *at = driver.objects, *next; at; at = next) {
        next = at->next;
        if (at->ctx == ctx) /* functions of libraries, and events; graphs and libraries belong to no context */
            object_remove(at);
    }
    object_remove(ctx);
}

/* ---- Entry points ---- */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
    ENTER();
    if (!ctx)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    if (!driver.primary) {
        driver.primary = object_add(OBJECT_CONTEXT, sizeof *driver.primary, NULL);
        if (!driver.primary)
            LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
        driver.primary->primary = true;
    }
    driver.primary_users++;
    *ctx = driver.primary;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER();
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    if (!driver.primary_users)
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (--driver.primary_users == 0) {
        destroy(driver.primary);
        driver.primary = NULL;
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice device) {
    (void)flags; /* how the host waits: nothing here waits */
    ENTER();
    if (!pctx)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (device != 0)
        LEAVE(CUDA_ERROR_INVALID_DEVICE);
    CUcontext made = object_add(OBJECT_CONTEXT, sizeof *made, NULL);
    if (!made)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = push(made);
    if (result != CUDA_SUCCESS)
        object_remove(made);
    else
        *pctx = made;
    LEAVE(result);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx) {
    ENTER();
    if (!object_is(OBJECT_CONTEXT, ctx) || ctx->primary)
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (depth && stack[depth - 1].ctx == ctx && stack[depth - 1].id == ctx->base.id)
        depth--;
    destroy(ctx);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx) {
    ENTER();
    if (!object_is(OBJECT_CONTEXT, ctx))
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    LEAVE(push(ctx));
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *ctx) {
    ENTER();
    if (!depth || !stack[depth - 1].ctx)
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (ctx)
        *ctx = stack[depth].ctx;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
    ENTER();
    if (ctx && !object_is(OBJECT_CONTEXT, ctx))
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (depth)
        depth--;
    LEAVE(ctx ? push(ctx) : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ctx) {
    ENTER();
    if (!ctx)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *ctx = depth ? stack[depth - 1].ctx : NULL;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
    ENTER();
    CUcontext ctx;
    CUresult result = context_current(&ctx);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    if (!device)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *device = 0;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long *id) {
    ENTER();
    if (!id)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!ctx) {
        CUresult result = context_current(&ctx);
        if (result != CUDA_SUCCESS)
            LEAVE(result);
    }
    if (!object_is(OBJECT_CONTEXT, ctx))
        LEAVE(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *id = ctx->base.id;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    ENTER_CONTEXT();
    CUresult result = capture_check_wait(ctx, NULL);
    if (result == CUDA_SUCCESS)
        queue_drain_context(ctx);
    LEAVE(result == CUDA_SUCCESS ? ctx->sticky : result);
}
