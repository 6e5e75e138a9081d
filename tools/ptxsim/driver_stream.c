/* SPDX-License-Identifier: MIT
 *
 * Streams and events. */
#include "driver_state.h"

#include <time.h>

/* cuda.h names a newer function of the same signature; callers that look symbols up by name may want this one. */
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
    __attribute__((visibility("default")));

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Streams ---- */

/* The legacy stream and the per-thread streams of a context are one object each here: all run in order anyway. */
static CUstream default_stream(CUcontext ctx, bool blocking) {
    for (object *at = driver.objects; at; at = at->next) {
        CUstream stream = (CUstream)(void *)at;
        if (at->kind == OBJECT_STREAM && at->ctx == ctx && stream->is_default && stream->blocking == blocking)
            return stream;
    }
    CUstream added = object_add(OBJECT_STREAM, sizeof *added, ctx);
    if (added) {
        added->is_default = true;
        added->blocking = blocking;
    }
    return added;
}

CUresult stream_find(CUcontext ctx, CUstream handle, CUstream *stream) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        *stream = default_stream(ctx, handle != CU_STREAM_PER_THREAD);
        return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!object_is(OBJECT_STREAM, handle) || handle->base.ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = handle;
    return CUDA_SUCCESS;
}

void stream_remove_all(CUcontext ctx) {
    for (object *at = driver.objects, *next; at; at = next) {
        next = at->next;
        if (at->kind == OBJECT_STREAM && at->ctx == ctx) {
            capture_forget_stream((CUstream)(void *)at);
            queue_forget_kernels((CUstream)(void *)at);
            object_remove(at);
            next = driver.objects; /* a capture that ends takes its graph out of the list, too */
        }
    }
}

CUresult stream_submit(CUstream stream, operation *op) {
    CUresult result = operation_check(op);
    if (result == CUDA_SUCCESS)
        result = capture_check_stream(stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        result = capture_append(stream->capture, op);
        stream->capture_steps++;
    } else if (result == CUDA_SUCCESS) {
        result = queue_work(stream, op);
        /* What touches such memory is done when the call returns. */
        if (result == CUDA_SUCCESS && operation_uses_pageable(op))
            queue_drain_stream(stream);
    }
    operation_free(op);
    return result;
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER_CONTEXT();
    if (!stream || flags > CU_STREAM_NON_BLOCKING)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUstream added = object_add(OBJECT_STREAM, sizeof *added, ctx);
    if (!added)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    added->blocking = flags == CU_STREAM_DEFAULT;
    *stream = added;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
    ENTER();
    if (!object_is(OBJECT_STREAM, stream) || stream->is_default)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    capture_forget_stream(stream);
    queue_drain_stream(stream);
    queue_forget_kernels(stream);
    object_remove(stream);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *stream_ctx) {
    ENTER();
    if (!stream_ctx)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        LEAVE(context_current(stream_ctx));
    if (!object_is(OBJECT_STREAM, handle))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    *stream_ctx = handle->base.ctx;
    LEAVE(CUDA_SUCCESS);
}

static CUresult wait(CUcontext ctx, CUstream handle, bool query) {
    CUstream stream;
    CUresult result = stream_find(ctx, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_check_wait(ctx, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!query || !queue_poll())
        queue_drain_stream(stream);
    return ctx->sticky != CUDA_SUCCESS ? ctx->sticky : stream->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    ENTER_CONTEXT();
    LEAVE(wait(ctx, handle, false));
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
    ENTER_CONTEXT();
    LEAVE(wait(ctx, handle, true));
}

/* ---- Events ---- */

static bool is_event(CUevent event) {
    return object_is(OBJECT_EVENT, event);
}

CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags) {
    ENTER_CONTEXT();
    if (!event || flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUevent added = object_add(OBJECT_EVENT, sizeof *added, ctx);
    if (!added)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    added->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    *event = added;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
    ENTER();
    if (!is_event(event))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    object_remove(event);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream handle) {
    ENTER_CONTEXT();
    CUstream stream;
    if (!is_event(event) || event->base.ctx != ctx)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    CUresult result = stream_find(ctx, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_check_stream(stream);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    event->capture = stream->capture;
    event->stream = stream->base.id;
    event->steps = stream->capture_steps;
    if (!stream->capture) {
        event->recorded = true;
        result = queue_record(stream, event);
    }
    LEAVE(result);
}

/* Inside a capture the wait makes `stream` part of it, and joins the stream that recorded the event. */
static CUresult wait_in_capture(CUstream stream, CUevent event) {
    if (stream->capture && stream->capture != event->capture)
        return event->capture ? CUDA_ERROR_STREAM_CAPTURE_MERGE : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (stream->is_default)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream->capture = event->capture;
    stream->capture_steps++;
    for (object *at = driver.objects; at; at = at->next) {
        CUstream from = (CUstream)(void *)at;
        if (at->kind == OBJECT_STREAM && at->id == event->stream && from->joined_steps < event->steps)
            from->joined_steps = event->steps;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    ENTER_CONTEXT();
    CUstream stream;
    if (!is_event(event) || flags)
        LEAVE(is_event(event) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    CUresult result = stream_find(ctx, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_check_stream(stream);
    if (result == CUDA_SUCCESS && (stream->capture || event->capture) && (event->capture || event->recorded))
        result = wait_in_capture(stream, event);
    else if (result == CUDA_SUCCESS && event->recorded)
        result = queue_wait(stream, event);
    LEAVE(result);
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
    ENTER_CONTEXT();
    if (!is_event(event))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture)
        LEAVE(CUDA_ERROR_CAPTURED_EVENT);
    if (event->recorded && !queue_poll())
        queue_drain_event(event);
    bool pending = event->recorded && queue_pending(event->stream, event->number);
    LEAVE(event->base.ctx->sticky != CUDA_SUCCESS ? event->base.ctx->sticky
          : pending                               ? CUDA_ERROR_NOT_READY
                                                  : CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    ENTER_CONTEXT();
    if (!is_event(event))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    if (!event->capture && event->recorded)
        queue_drain_event(event);
    LEAVE(event->capture ? CUDA_ERROR_CAPTURED_EVENT : event->base.ctx->sticky);
}

CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER();
    if (!milliseconds)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!is_event(start) || !is_event(end) || !start->timed || !end->timed || !start->recorded || !end->recorded)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    if (queue_pending(start->stream, start->number) || queue_pending(end->stream, end->number))
        LEAVE(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((end->seconds - start->seconds) * 1e3);
    LEAVE(CUDA_SUCCESS);
}
