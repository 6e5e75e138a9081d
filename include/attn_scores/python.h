/* SPDX-License-Identifier: MIT
 *
 * The operations of attn_scores.h as functions that CPython calls directly: what the Python package uses for torch
 * tensors. A call through ctypes costs the host more than everything else before the launch, and two of them were
 * needed, one to describe the tensors.
 *
 * No Python.h is needed here and no libpython linked: objects are void pointers, and the caller brings the few
 * functions of Python's stable ABI (https://docs.python.org/3/c-api/stable.html) that are called.
 *
 * Threads: whatever is called here needs Python's global lock, and has it afterwards.
 */
#ifndef ATTN_SCORES_PYTHON_H_
#define ATTN_SCORES_PYTHON_H_

#include <attn_scores/attn_scores.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attns_operation {
    ATTNS_OPERATION_FP8_PAGED_MQA_LOGITS = 1,
    ATTNS_OPERATION_FP4_PAGED_MQA_LOGITS = 2,
    ATTNS_OPERATION_COMPUTE_PAGED_MQA_LOGITS_SCHEDULE = 3,
    ATTNS_OPERATION_INDEXER_SCORES = 4
} attns_operation;

/* Functions of the Python that calls. */
typedef struct attns_python_api {
    void *(*capsule_new)(void *pointer, const char *name, void (*destructor)(void *)); /* PyCapsule_New */
    void *(*capsule_get_pointer)(void *capsule, const char *name);                     /* PyCapsule_GetPointer */
    void *(*cfunction_new)(void *definition, void *self, void *module);                /* PyCFunction_NewEx */
    void *(*long_from_long)(long value);                                               /* PyLong_FromLong */
    void (*dec_ref)(void *object);                                                     /* Py_DecRef */
    void *(*eval_save_thread)(void);                                                   /* PyEval_SaveThread */
    void (*eval_restore_thread)(void *thread_state);                                   /* PyEval_RestoreThread */
} attns_python_api;

/* Copies `api`, all of whose members are set, for every function of this header: once in a process, before the first
 * use of any other. */
ATTNS_API void attns_python_bind(const attns_python_api *api);

/* What a function does. May be changed while no call of the function is under way. */
typedef struct attns_python_call {
    attns_operation operation;
    const void *params; /* attns_*_params of the operation; its tensors are elements of `tensors` or NULL */
    attns_context *ctx;
    CUstream stream;

    /* Two functions of the framework that objects are of, from the table in __dlpack_c_exchange_api__ of their type
     * (DLPack 1.3, DLPackExchangeAPI). 0 is success; else a Python exception is set. */
    int (*describe)(void *object, DLTensor *tensor); /* dltensor_from_py_object_no_sync: refers to the object's memory,
                                                        sizes and strides, keeps no reference */
    int (*current_stream)(DLDeviceType type, int32_t id, void **stream); /* current_work_stream: takes the place of
                                                                            `stream` if the first tensor is on a CUDA
                                                                            device. NULL: `stream` as it is */
    DLTensor *tensors;                                                   /* [count], written */
    size_t count;                                                        /* 1 or more */

    /* For the logits operations, whose q is the first and whose out the last of `tensors`: what out must be of, and
     * rows after B*next_n and columns after max_seq_len are left alone. bits 0: out is passed on as it is. */
    DLDataType out_dtype;
} attns_python_call;

/* What a function returns besides an attns_status. */
#define ATTNS_PYTHON_OUT_IN_PART (-1) /* as ATTNS_OK; out is larger than [B*next_n, max_seq_len] */
#define ATTNS_PYTHON_OUT_DTYPE   (-2) /* out is not of out_dtype, nothing has been done */

/* A new reference to a Python function that takes `count` objects, describes them and calls the operation without the
 * global lock. It returns an int: ATTNS_OK, what the operation returns, or one of the above. It raises what `describe`
 * and `current_stream` do. `call` is borrowed as long as the function lives. NULL with a Python exception on failure.
 */
ATTNS_API void *attns_python_function(attns_python_call *call);

#ifdef __cplusplus
}
#endif

#endif
