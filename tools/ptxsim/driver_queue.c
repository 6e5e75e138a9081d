/* SPDX-License-Identifier: MIT
 *
 * Work that has been queued and not done yet. What nothing orders is done in an order drawn from the seed: now and then
 * when something is queued, and for the rest when somebody waits for it. What is ordered: work of one stream; work
 * after an event for the streams that wait for it; the legacy stream and the streams that synchronise with it. */
#include "driver_state.h"

#include <stdlib.h>

typedef enum queued_kind { QUEUED_WORK, QUEUED_RECORD, QUEUED_WAIT } queued_kind;

struct queued {
    struct queued *next;
    queued_kind kind;
    uint64_t number;
    operation work;
    CUevent event; /* to record */
    uint64_t event_id;
    uint64_t stream_id, awaited; /* to wait for: what that stream has up to this number */
};

static uint64_t draw(void) {
    uint64_t z = driver.random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static CUstream stream_of(object *at) {
    return at->kind == OBJECT_STREAM ? (CUstream)(void *)at : NULL;
}

/* ---- Order ---- */

static bool has_before(const struct CUstream_st *stream, uint64_t number) {
    return stream->first && stream->first->number < number;
}

bool queue_pending(uint64_t stream_id, uint64_t number) {
    for (object *at = driver.objects; at; at = at->next)
        if (at->id == stream_id && stream_of(at))
            return has_before(stream_of(at), number + 1);
    return false;
}

static bool is_legacy(const struct CUstream_st *stream) {
    return stream->is_default && stream->blocking;
}

/* Streams that synchronise with the legacy one: not those made CU_STREAM_NON_BLOCKING. */
static bool joins_legacy(const struct CUstream_st *stream) {
    return stream->blocking || stream->is_default;
}

static bool ready(CUstream stream) {
    const struct queued *item = stream->first;
    if (item->kind == QUEUED_WAIT && queue_pending(item->stream_id, item->awaited))
        return false;
    if (!joins_legacy(stream))
        return true;
    for (object *at = driver.objects; at; at = at->next) {
        CUstream other = stream_of(at);
        if (other && other != stream && at->ctx == stream->base.ctx && joins_legacy(other) &&
            is_legacy(stream) != is_legacy(other) && has_before(other, item->number))
            return false;
    }
    return true;
}

/* ---- Doing ---- */

static void do_first(CUstream stream) {
    struct queued *item = stream->first;
    CUcontext ctx = stream->base.ctx;
    stream->first = item->next;
    if (!stream->first)
        stream->last = NULL;
    if (item->kind == QUEUED_WORK && ctx->sticky == CUDA_SUCCESS)
        operation_run(stream, &item->work);
    if (item->kind == QUEUED_RECORD && object_is(OBJECT_EVENT, item->event) && item->event->base.id == item->event_id &&
        item->event->number == item->number)
        item->event->seconds = seconds_now();
    operation_free(&item->work);
    free(item);
}

/* Does something that may be done now. false: there is nothing. */
static bool step(void) {
    CUstream chosen = NULL;
    uint64_t seen = 0;
    for (object *at = driver.objects; at; at = at->next) {
        CUstream stream = stream_of(at);
        if (stream && stream->first && ready(stream) && draw() % ++seen == 0)
            chosen = stream;
    }
    if (chosen)
        do_first(chosen);
    return chosen != NULL;
}

void queue_drain_stream(CUstream stream) {
    while (stream->first && step())
        ;
}

void queue_drain_context(CUcontext ctx) {
    bool left = true;
    while (left) {
        left = false;
        for (object *at = driver.objects; at && !left; at = at->next)
            left = stream_of(at) && stream_of(at)->first && (!ctx || at->ctx == ctx);
        left = left && step();
    }
}

void queue_drain_event(CUevent event) {
    while (queue_pending(event->stream, event->number) && step())
        ;
}

bool queue_poll(void) {
    return draw() % 4 == 0;
}

/* ---- Adding ---- */

static struct queued *add(CUstream stream, queued_kind kind) {
    struct queued *item = calloc(1, sizeof *item);
    if (!item)
        return NULL;
    item->kind = kind;
    item->number = ++driver.queued;
    *(stream->last ? &stream->last->next : &stream->first) = item;
    stream->last = item;
    return item;
}

/* After something was added. */
static void sometimes_work(void) {
    unsigned steps = (unsigned)(draw() >> 32) % 4; /* none as often as some */
    for (; steps > 1 && step(); steps--)
        ;
}

CUresult queue_work(CUstream stream, operation *work) {
    struct queued *item = add(stream, QUEUED_WORK);
    if (!item)
        return CUDA_ERROR_OUT_OF_MEMORY;
    item->work = *work;
    if (work->kind == OPERATION_KERNEL)
        work->kernel.params = NULL;
    sometimes_work();
    return CUDA_SUCCESS;
}

CUresult queue_record(CUstream stream, CUevent event) {
    struct queued *item = add(stream, QUEUED_RECORD);
    if (!item)
        return CUDA_ERROR_OUT_OF_MEMORY;
    item->event = event;
    item->event_id = event->base.id;
    event->number = item->number;
    sometimes_work();
    return CUDA_SUCCESS;
}

CUresult queue_wait(CUstream stream, CUevent event) {
    if (event->stream == stream->base.id || !queue_pending(event->stream, event->number))
        return CUDA_SUCCESS;
    struct queued *item = add(stream, QUEUED_WAIT);
    if (!item)
        return CUDA_ERROR_OUT_OF_MEMORY;
    item->stream_id = event->stream;
    item->awaited = event->number;
    return CUDA_SUCCESS;
}

/* ---- Kernels that may overlap ---- */

void queue_forget_kernels(CUstream stream) {
    for (int i = 0; i < stream->num_before; i++)
        race_launch_free(stream->before[i]);
    free(stream->before);
    stream->before = NULL;
    stream->num_before = 0;
}

void queue_note_kernel(CUstream stream, struct race_launch *accesses, bool waited_first) {
    /* If this kernel waited before it let the next one start, those before it are done by then. */
    if (waited_first)
        queue_forget_kernels(stream);
    struct race_launch **grown = realloc(stream->before, (size_t)(stream->num_before + 1) * sizeof *grown);
    if (!grown) {
        race_launch_free(accesses);
        return;
    }
    stream->before = grown;
    stream->before[stream->num_before++] = accesses;
}

void queue_forget_all_kernels(void) {
    for (object *at = driver.objects; at; at = at->next)
        if (stream_of(at))
            queue_forget_kernels(stream_of(at));
}
