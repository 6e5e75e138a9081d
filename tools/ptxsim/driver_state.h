/* SPDX-License-Identifier: MIT
 *
 * What the entry points of libptxsim_cuda.so share: the one device, the objects behind libcuda's handles, and
 * operations on streams.
 *
 * Every entry point holds one lock (driver_lock) while it looks at or changes anything but the calling thread's own
 * stack of contexts. Work runs to its end in some entry point, also under the lock, so memory never changes beneath a
 * kernel (driver_queue.c). */
#ifndef PTXSIM_DRIVER_STATE_H_
#define PTXSIM_DRIVER_STATE_H_

/* The folder is compiled with hidden visibility; what cuda.h declares is what the library exports. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "device.h"
#include "memory.h"
#include "race.h"
#include "sim.h"

/* ---- Objects ---- */

typedef enum object_kind {
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_EXEC,
    OBJECT_KINDS
} object_kind;

/* First member of everything behind a handle. A handle is believed only if it is in the list of live objects. */
typedef struct object {
    object_kind kind;
    uint64_t id;   /* never reused, unlike the address */
    CUcontext ctx; /* the context that owns it, NULL: none */
    struct object *next;
} object;

struct CUctx_st {
    object base;
    bool primary;
    CUresult sticky; /* after a fault every call in the context answers with it */
};

typedef struct capture {
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalidated;
    CUgraph graph; /* being filled */
    struct capture *next;
} capture;

struct CUstream_st {
    object base;
    bool blocking;   /* synchronises with the legacy stream */
    bool is_default; /* the legacy or a per-thread stream of its context */
    capture *capture;
    struct queued *first, *last; /* work not done yet (driver_queue.c) */
    /* Kernels that may still run when the next one starts, if that is launched so; of one chain of launches. */
    struct race_launch **before;
    int num_before;
    uint64_t chain;
    uint64_t capture_steps, joined_steps; /* equal: all that was captured here has been joined by another stream */
};

struct CUevent_st {
    object base;
    bool timed, recorded;
    double seconds;   /* when it was recorded */
    capture *capture; /* recorded last in this capture */
    uint64_t stream;  /* id of the stream, and its capture_steps then */
    uint64_t steps;
    uint64_t number; /* in the queue of that stream */
};

/* One module of PTX. CUmodule and CUlibrary are both this. */
struct CUlib_st {
    object base;
    ptx_module *module;
    size_t image_bytes;
};

struct CUkern_st {
    object base;
    CUlibrary library;
    const ptx_function *code;
};

struct CUfunc_st {
    object base; /* of the context it runs in */
    CUlibrary library;
    const ptx_function *code;
    CUdeviceptr image; /* the module's variables in this context, 0 if it has none; shared by functions of both */
    int max_dynamic_shared;
    int carveout;
};

/* ---- Operations on a stream ---- */

typedef enum operation_kind { OPERATION_KERNEL, OPERATION_COPY, OPERATION_SET } operation_kind;

typedef struct operation {
    operation_kind kind;
    struct {
        CUfunction function;
        uint64_t function_id;
        sim_dim grid, block;
        size_t dynamic_shared;
        uint8_t *params; /* malloc, or NULL */
        size_t param_bytes;
        bool overlaps;  /* programmatic dependent launch: may start before the kernel before it has ended */
        uint64_t chain; /* stream that it was captured in; 0: it was not */
    } kernel;
    struct {
        uint64_t to, from;
        size_t bytes;
        bool to_device, from_device; /* device ends are checked against the live ranges */
    } copy;
    struct {
        uint64_t to;
        unsigned value;
        size_t count;
        unsigned width; /* bytes */
    } set;
} operation;

struct CUgraphNode_st {
    object base;
    operation operation;
    CUgraphNode next_node;
};

struct CUgraph_st {
    object base;
    CUgraphNode first, last;
    size_t num_nodes;
};

struct CUgraphExec_st {
    object base;
    operation *operations;
    size_t num_operations;
};

/* ---- State ---- */

typedef struct driver_state {
    pthread_mutex_t lock;
    bool initialised;
    sim_device device;
    device_model model; /* valid once initialised */
    object *objects;
    uint64_t last_id;
    capture *captures;
    CUcontext primary;
    unsigned primary_users;
    size_t allocated; /* bytes of device memory in use */
    uint64_t seed, launches;
    uint64_t queued, random;
    bool ignore_races, exit_on_fault; /* PTXSIM_RACES=0, PTXSIM_ON_FAULT=exit */
    char report_file[4096];           /* PTXSIM_REPORT */
    char last_fault[4096];
} driver_state;

extern driver_state driver;

void driver_lock(void);
void driver_unlock(void);
/* A line on stderr that says what was wrong with a call, beyond its error code. */
void driver_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Brackets of an entry point. ENTER: initialised, or CUDA_ERROR_NOT_INITIALIZED. ENTER_CONTEXT: moreover a live context
 * without a sticky error is current; it is declared as `ctx`. LEAVE(result) ends the entry point. */
#define ENTER()                                                                                                        \
    driver_lock();                                                                                                     \
    if (!driver.initialised)                                                                                           \
    LEAVE(CUDA_ERROR_NOT_INITIALIZED)
#define ENTER_CONTEXT()                                                                                                \
    ENTER();                                                                                                           \
    CUcontext ctx = NULL;                                                                                              \
    {                                                                                                                  \
        CUresult entered = context_current(&ctx);                                                                      \
        if (entered == CUDA_SUCCESS)                                                                                   \
            entered = ctx->sticky;                                                                                     \
        if (entered != CUDA_SUCCESS)                                                                                   \
            LEAVE(entered);                                                                                            \
    }
#define LEAVE(result)                                                                                                  \
    do {                                                                                                               \
        CUresult left = (result);                                                                                      \
        driver_unlock();                                                                                               \
        return left;                                                                                                   \
    } while (0)

/* A zeroed object of `size` bytes in the list, NULL without memory. object_remove also frees it. */
void *object_add(object_kind kind, size_t size, CUcontext ctx);
bool object_is(object_kind kind, const void *handle);
void object_remove(void *handle);

/* ---- Contexts (driver_context.c) ---- */

/* The calling thread's current context: CUDA_ERROR_INVALID_CONTEXT if none, CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult context_current(CUcontext *ctx);

/* ---- Memory (driver_memory.c) ---- */

/* Mapped, poisoned and registered memory of `ctx` between unmapped pages. */
CUresult memory_add(CUcontext ctx, size_t bytes, bool host, CUdeviceptr *address);
CUresult memory_remove(CUdeviceptr address, bool host);
void memory_remove_all(CUcontext ctx);

/* ---- Streams and captures (driver_stream.c, driver_capture.c) ---- */

/* The stream of a handle, default streams included, which must belong to `ctx`. */
CUresult stream_find(CUcontext ctx, CUstream handle, CUstream *stream);
void stream_remove_all(CUcontext ctx);

/* Queues the operation, or captures it. Takes over operation->kernel.params in every case. */
CUresult stream_submit(CUstream stream, operation *op);
/* Whether work in this stream is refused because of captures under way; invalidates those it disturbs. */
CUresult capture_check_stream(CUstream stream);
/* For calls that a capture of this thread, or a global one, forbids; invalidates the captures concerned. */
CUresult capture_check_unsafe(void);
/* For calls that wait for `stream` (NULL: for all streams of ctx). */
CUresult capture_check_wait(CUcontext ctx, CUstream stream);
CUresult capture_append(capture *c, const operation *op);
void capture_forget_stream(CUstream stream);
void graph_remove(CUgraph graph); /* with its nodes */
double seconds_now(void);

/* ---- Queued work (driver_queue.c) ---- */

/* Takes over work->kernel.params if it succeeds. */
CUresult queue_work(CUstream stream, operation *work);
CUresult queue_record(CUstream stream, CUevent event);
CUresult queue_wait(CUstream stream, CUevent event);
/* Whether the stream has something that was queued up to this number. */
bool queue_pending(uint64_t stream_id, uint64_t number);
/* Work until nothing is left of the stream, the context (NULL: all), or before the event. */
void queue_drain_stream(CUstream stream);
void queue_drain_context(CUcontext ctx);
void queue_drain_event(CUevent event);
/* Whether somebody who asks for the state of something unfinished is to learn that it is not ready; else it is to be
 * finished now. Rarely true, because work does not go on by itself. */
bool queue_poll(void);
/* A kernel has run in the stream: what it accessed is known until the kernels before the next one are certainly done. */
void queue_note_kernel(CUstream stream, struct race_launch *accesses, bool waited_first);
void queue_forget_kernels(CUstream stream);
void queue_forget_all_kernels(void);

/* ---- Operations (driver_operation.c, driver_launch.c) ---- */

CUresult operation_check(const operation *op);
/* Whether host memory that it touches may be gone or changed when the call has returned. */
bool operation_uses_pageable(const operation *op);
/* Runs it in the stream's context. What fails here is what would fail on a device: it becomes sticky. */
void operation_run(CUstream stream, const operation *op);
bool operation_copy(operation *to, const operation *from); /* false: out of memory */
void operation_free(operation *op);
void kernel_run(CUstream stream, const operation *op);
/* Keeps, prints and records the report, and makes the code that fits it sticky. `launch`: whose fault it is, or NULL. May
 * end the process (PTXSIM_ON_FAULT). (driver_report.c) */
void context_fault(CUcontext ctx, const char *report, const sim_launch *launch);

/* ---- Code (driver_module.c) ---- */

/* The function of `code` in `ctx`, made on first use. */
CUresult function_get(CUlibrary library, const ptx_function *code, CUcontext ctx, CUfunction *function);
int function_registers(const ptx_function *code);
void library_remove(CUlibrary library); /* with its kernels and functions */

#endif
