/* SPDX-License-Identifier: MIT
 *
 * From a problem to a kernel that can be launched: memory -> disk cache -> fill template and compile. */
#ifndef ATTNS_JIT_KERNEL_STORE_H_
#define ATTNS_JIT_KERNEL_STORE_H_

#include "core/context.h"
#include "plan/plan.h"

/* One kernel, loaded in one CUDA context. Immutable and alive until the attns_context is destroyed. */
typedef struct attns_kernel {
    attns_problem problem;          /* with much_work */
    unsigned long long cuda_ctx_id; /* cuCtxGetId: unlike a CUcontext, never reused */
    CUfunction function;            /* its dynamic shared memory limit is already raised to the plan's maximum */
    attns_plan plan;
    int device_ordinal;
    int num_sms;
    struct attns_kernel *next;
} attns_kernel;

/* A kernel taken for one launch. */
typedef struct attns_kernel_use {
    const attns_kernel *kernel;
    const attns_driver *driver;
    bool pushed; /* the stream's CUDA context was made current for the launch */
} attns_kernel_use;

/* Finds (or builds and loads) the kernel for `problem` in the CUDA context of `stream` and makes that context current.
 * Warm: no allocation, no lock, no system call. A miss takes the context's mutex; loading runs under relaxed capture
 * mode so that a capture on this thread survives it. `device` is where the caller's tensors lie: that the stream
 * belongs to it is checked before anything is compiled. Of a problem with two kernels, for little and for much work
 * (attns_plan.much_tiles), it is the one for `tiles`, the most tiles that the call can have; 0 for other operations.
 * problem->much_work is 0. Pair every ATTNS_OK with attns_kernel_release. */
attns_status attns_kernel_acquire(attns_context *ctx, const attns_problem *problem, int64_t tiles, DLDevice device,
                                  CUstream stream, attns_kernel_use *use);
void attns_kernel_release(const attns_kernel_use *use);

/* Unloads and frees every kernel: for attns_context_destroy. */
void attns_kernel_store_clear(attns_context *ctx);

typedef struct attns_image {
    void *data; /* malloc: cubin, or PTX with its NUL if the context loads PTX */
    size_t size;
    attns_kernel_source source;
    bool cached; /* a cache holds it; otherwise it is in memory only */
    int registers, spill_bytes;
    double seconds; /* of the compile; 0 for disk hits */
} attns_image;

/* The image of a plan: from disk, else compiled and published (a failed compile never is). `build` as in
 * attns_cache_lookup: a serving call passes 0 (any NVRTC's cubin of this very source is good, and NVRTC stays
 * unopened), precompile passes the build it would compile with, so that an upgrade recompiles. A cubin that no cache
 * directory takes is kept in the context. Without may_compile a miss is ATTNS_ERROR_WOULD_COMPILE. Takes no lock of the
 * context for longer than a list walk: compiles of several threads run side by side. */
attns_status attns_image_get(attns_context *ctx, const attns_plan *plan, bool may_compile, uint32_t build,
                             attns_image *image);
/* Compiles without looking anywhere and replaces what is cached: for an image the driver would not load. */
attns_status attns_image_rebuild(attns_context *ctx, const attns_plan *plan, attns_image *image);
void attns_image_free(attns_image *image);

/* Frees the images kept in the context: for attns_context_destroy. */
void attns_image_clear(attns_context *ctx);

/* What the bits of an image depend on, apart from NVRTC's version: the filled source, every option, the target as NVRTC
 * is told it ("sm_90a" for a cubin, "compute_90a" for PTX). */
bool attns_image_key(const char *arch, const char *source, const char *const *options, size_t num_options,
                     attns_cache_key *key);

#endif
