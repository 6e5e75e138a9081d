/* SPDX-License-Identifier: MIT
 *
 * Stream capture: which calls it takes in, which it forbids, and what invalidates it (CUDA driver API, "Stream
 * Management"). */
#include "driver_state.h"

#include <stdlib.h>

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Whether the capture forbids unsafe calls on the calling thread. */
static bool forbids(const capture *c) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return true;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void) {
    bool forbidden = false;
    for (capture *c = driver.captures; c; c = c->next)
        if (forbids(c))
            forbidden = c->invalidated = true;
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* The legacy stream waits for the blocking streams of its context, which a capture cannot express. */
static bool legacy_waits_for(const capture *c, CUcontext ctx) {
    return c->origin->base.ctx == ctx && c->origin->blocking;
}

CUresult capture_check_stream(CUstream stream) {
    if (stream->capture)
        return stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    bool disturbed = false;
    if (stream->is_default && stream->blocking)
        for (capture *c = driver.captures; c; c = c->next)
            if (legacy_waits_for(c, stream->base.ctx))
                disturbed = c->invalidated = true;
    return disturbed ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult capture_check_wait(CUcontext ctx, CUstream stream) {
    bool forbidden = false;
    for (capture *c = driver.captures; c; c = c->next)
        if (stream ? stream->capture == c : c->origin->base.ctx == ctx)
            forbidden = c->invalidated = true;
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Takes every stream and event out of the capture and frees it, but not its graph. */
static void end(capture *c) {
    for (object *at = driver.objects; at; at = at->next)
        if (at->kind == OBJECT_STREAM && ((CUstream)(void *)at)->capture == c)
            ((CUstream)(void *)at)->capture = NULL;
        else if (at->kind == OBJECT_EVENT && ((CUevent)(void *)at)->capture == c)
            ((CUevent)(void *)at)->capture = NULL;
    capture **link = &driver.captures;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    free(c);
}

void capture_forget_stream(CUstream stream) {
    capture *c = stream->capture;
    if (!c)
        return;
    c->invalidated = true;
    if (c->origin == stream) {
        graph_remove(c->graph);
        end(c);
    }
}

static bool all_joined(const capture *c) {
    for (const object *at = driver.objects; at; at = at->next) {
        const struct CUstream_st *stream = (const struct CUstream_st *)(const void *)at;
        if (at->kind == OBJECT_STREAM && stream->capture == c && stream != c->origin &&
            stream->joined_steps != stream->capture_steps)
            return false;
    }
    return true;
}

/* ---- Entry points ---- */

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode previous = thread_mode;
    thread_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    ENTER_CONTEXT();
    CUstream stream;
    CUresult result = stream_find(ctx, handle, &stream);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (stream->is_default && stream->blocking)
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->capture) {
        stream->capture->invalidated = true;
        LEAVE(CUDA_ERROR_ILLEGAL_STATE);
    }
    capture *added = calloc(1, sizeof *added);
    if (added)
        added->graph = object_add(OBJECT_GRAPH, sizeof *added->graph, NULL);
    if (!added || !added->graph) {
        free(added);
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    added->origin = stream;
    added->mode = mode;
    added->thread = pthread_self();
    added->next = driver.captures;
    driver.captures = added;
    stream->capture = added;
    stream->capture_steps = stream->joined_steps = 0;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    ENTER_CONTEXT();
    CUstream stream;
    CUresult result = stream_find(ctx, handle, &stream);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    capture *c = stream->capture;
    if (!graph)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    if (!c)
        LEAVE(CUDA_ERROR_ILLEGAL_STATE);
    if (c->origin != stream)
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    result = c->invalidated   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : !all_joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                              : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *graph = c->graph;
    else
        graph_remove(c->graph);
    end(c);
    LEAVE(result);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    ENTER_CONTEXT();
    CUstream stream;
    if (!status)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = stream_find(ctx, handle, &stream);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    *status = !stream->capture               ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                             : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!stream->capture && stream->is_default && stream->blocking)
        for (const capture *c = driver.captures; c; c = c->next)
            if (legacy_waits_for(c, ctx))
                LEAVE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    LEAVE(CUDA_SUCCESS);
}
