/* SPDX-License-Identifier: MIT
 *
 * A driver library without a GPU: it keeps contexts, streams, captures and loaded libraries in memory, records every
 * call, and fails on request. Loaded by path in place of libcuda. */
#ifndef ATTNS_TESTS_CORE_FAKE_CUDA_H_
#define ATTNS_TESTS_CORE_FAKE_CUDA_H_

#include <stdatomic.h>

#include "core/driver.h"

typedef enum fake_call {
#define FAKE_CALL_ENUM(member, symbol, params) FAKE_##member,
    ATTNS_DRIVER_FUNCTIONS(FAKE_CALL_ENUM)
#undef FAKE_CALL_ENUM
        FAKE_NUM_CALLS
} fake_call;

/* What a fake cubin starts with (see fake_nvrtc.c); anything else is CUDA_ERROR_INVALID_IMAGE. */
#define FAKE_CUBIN_MAGIC "FAKE CUBIN "

struct CUctx_st {
    unsigned long long id;
    int device;
};

struct CUstream_st {
    struct CUctx_st *ctx;
    _Atomic(CUstreamCaptureStatus) capture; /* of global mode while ACTIVE */
};

struct CUfunc_st {
    struct CUctx_st *ctx;
    struct CUkern_st *kernel;
    int max_dynamic_shared;
    int carveout;
};

#define FAKE_NUM_DEVICES 2

typedef struct fake_cuda_state {
    atomic_int calls[FAKE_NUM_CALLS];
    /* The next `fail_times` calls of a function return `fail_result` and do nothing else. */
    atomic_int fail_times[FAKE_NUM_CALLS];
    atomic_int fail_result[FAKE_NUM_CALLS];
    int compute_capability[FAKE_NUM_DEVICES];
    int num_sms[FAKE_NUM_DEVICES];
    struct CUstream_st *capturing; /* the stream under capture, NULL if none */
    atomic_int libraries_alive;
    atomic_int contexts_pushed; /* pushes minus pops, over all threads */
} fake_cuda_state;

/* Exported by the library as fake_cuda_get_state. */
typedef fake_cuda_state *(*fake_cuda_get_state_fn)(void);
/* Makes `ctx` the only context of the calling thread; exported as fake_cuda_set_current. */
typedef void (*fake_cuda_set_current_fn)(struct CUctx_st *ctx);
/* The calling thread's capture mode; exported as fake_cuda_capture_mode. */
typedef CUstreamCaptureMode (*fake_cuda_capture_mode_fn)(void);

#endif
