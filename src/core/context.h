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

#define ATTNS_KERNEL_BUCKETS 256

struct attns_kernel;
struct attns_module;

struct attns_context {
    attns_logger logger;

    /* Settings, fixed at creation. NULL where unset. */
    char *libcuda_path;
    char *libnvrtc_path;
    char *template_dir;
    char *dump_dir;
    bool allow_compile_in_capture;

    attns_cache *cache;

    /* Guards everything below that is not atomic; never taken by a warm call. */
    pthread_mutex_t mutex;

    /* Opened on first use; the atomic pointer is what warm calls read. */
    attns_driver driver_storage;
    _Atomic(const attns_driver *) driver;
    attns_nvrtc_set *nvrtc;
    char *info_nvrtc_error;
    char *info_driver_error;

    /* Kernels by hash of (problem, CUDA context id): lists that only grow at the head. */
    _Atomic(struct attns_kernel *) kernels[ATTNS_KERNEL_BUCKETS];
    struct attns_module *modules; /* loaded cubins, shared by the kernels of all CUDA contexts */

    atomic_uint_fast64_t compiles, disk_hits, memory_hits, module_loads;
};

/* The driver, opened if need be. Lock-free once open. */
attns_status attns_context_driver(attns_context *ctx, const attns_driver **driver);
/* The NVRTC libraries, opened if need be. */
attns_status attns_context_nvrtc(attns_context *ctx, attns_nvrtc_set **set);

#endif
