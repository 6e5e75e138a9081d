/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_CORE_CONTEXT_H_
#define ATTNS_CORE_CONTEXT_H_

#include <attn_scores/attn_scores.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/driver.h"
#include "core/error.h"
#include "core/log.h"
#include "cubin_cache.h"
#include "jit/nvrtc.h"
#include "plan/plan.h"

#define ATTNS_KERNEL_BUCKETS 256

struct attns_kernel;
struct attns_module;
struct attns_kept_image;
struct attns_rebuilt;
struct attns_compile_claim;

struct attns_context {
    attns_logger logger;

    /* Settings, fixed at creation. NULL where unset. */
    char *libcuda_path;
    char *libnvrtc_path;
    char *template_dir;
    char *dump_dir;
    char *record_path;
    bool allow_compile_in_capture;
    bool forbid_compile;
    bool load_ptx;
    int compile_threads; /* from 1 */
    attns_family_choice family_choice;
    char *arch; /* compile for this, whatever the device */

    attns_cache *cache;

    /* Guards everything below that is not atomic; never taken by a warm call, never held while compiling. */
    pthread_mutex_t mutex;
    pthread_cond_t module_settled; /* signalled when an attns_module has been loaded or given up */

    /* Opened on first use; the atomic pointer is what warm calls read. A failure is final for the context: its status
     * and message are kept and answered again. */
    attns_driver driver_storage;
    _Atomic(const attns_driver *) driver;
    attns_status driver_status;
    char *info_driver_error; /* NULL if there was none */
    attns_nvrtc_set *nvrtc;
    attns_status nvrtc_status;
    char *info_nvrtc_error;

    /* Kernels by hash of (problem, CUDA context id): lists that only grow at the head. */
    _Atomic(struct attns_kernel *) kernels[ATTNS_KERNEL_BUCKETS];
    struct attns_module *modules;         /* loaded cubins, shared by the kernels of all CUDA contexts */
    struct attns_kept_image *kept_images; /* compiled cubins that no cache directory took */
    struct attns_rebuilt *rebuilt;        /* keys that were compiled again because the driver refused what was cached */

    struct attns_compile_claim *compile_claims; /* keys that a thread is at work on */
    int compiling;                              /* threads at the compiler, at most compile_threads */
    pthread_cond_t compile_settled;             /* signalled when either has become less */

    atomic_bool record_failed; /* told already */

    atomic_uint_fast64_t compiles, disk_hits, memory_hits, module_loads;
};

/* The driver, opened if need be. Lock-free once open. */
attns_status attns_context_driver(attns_context *ctx, const attns_driver **driver);
/* The NVRTC libraries, opened if need be. */
attns_status attns_context_nvrtc(attns_context *ctx, attns_nvrtc_set **set);

#endif
