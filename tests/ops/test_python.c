/* SPDX-License-Identifier: MIT
 *
 * python.h with a stand-in for CPython: capsules and functions that count their references, and a global lock. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <attn_scores/python.h>

/* ---- Python ---- */

typedef struct method_definition {
    const char *name;
    void *(*function)(void *self, void *const *objects, ptrdiff_t count);
    int flags;
    const char *doc;
} method_definition;

typedef struct object {
    int references;
    void *pointer;                       /* of a capsule */
    const method_definition *definition; /* of a function */
    struct object *self;
    long value; /* of an int */
} object;

static bool has_lock = true;
static int thread_state, num_saved;
static bool fail_capsule, fail_function;

static object *new_object(void) {
    object *const made = calloc(1, sizeof *made);
    assert_non_null(made);
    assert_true(has_lock);
    made->references = 1;
    return made;
}

static void dec_ref(void *pointer) {
    object *const dropped = pointer;
    assert_true(has_lock);
    if (--dropped->references > 0)
        return;
    if (dropped->self)
        dec_ref(dropped->self);
    free(dropped);
}

static void *capsule_new(void *pointer, const char *name, void (*destructor)(void *)) {
    assert_null(name);
    assert_null((void *)(uintptr_t)destructor);
    if (fail_capsule)
        return NULL;
    object *const capsule = new_object();
    capsule->pointer = pointer;
    return capsule;
}

static void *capsule_get_pointer(void *capsule, const char *name) {
    assert_null(name);
    assert_true(has_lock);
    return ((object *)capsule)->pointer;
}

static void *cfunction_new(void *definition, void *self, void *module) {
    assert_null(module);
    if (fail_function)
        return NULL;
    object *const function = new_object();
    function->definition = definition;
    function->self = self;
    function->self->references++;
    return function;
}

static void *long_from_long(long value) {
    object *const number = new_object();
    number->value = value;
    return number;
}

static void *eval_save_thread(void) {
    assert_true(has_lock);
    has_lock = false;
    num_saved++;
    return &thread_state;
}

static void eval_restore_thread(void *state) {
    assert_ptr_equal(state, &thread_state);
    assert_false(has_lock);
    has_lock = true;
}

static const attns_python_api api = {
    .capsule_new = capsule_new,
    .capsule_get_pointer = capsule_get_pointer,
    .cfunction_new = cfunction_new,
    .long_from_long = long_from_long,
    .dec_ref = dec_ref,
    .eval_save_thread = eval_save_thread,
    .eval_restore_thread = eval_restore_thread,
};

#define RAISED LONG_MIN

/* What Python does with a function: RAISED for NULL. */
static long invoke(object *function, void *const *objects, ptrdiff_t count) {
    object *const result = function->definition->function(function->self, objects, count);
    assert_true(has_lock);
    if (!result)
        return RAISED;
    const long value = result->value;
    dec_ref(result);
    return value;
}

/* ---- A framework whose objects are DLTensors ---- */

static int num_described;

static int describe(void *given, DLTensor *tensor) {
    assert_true(has_lock);
    if (!given)
        return -1;
    *tensor = *(const DLTensor *)given;
    num_described++;
    return 0;
}

static int stream_device = -1;
static CUstream const side_stream = (CUstream)(uintptr_t)0x1230;

static int current_stream(DLDeviceType type, int32_t id, void **stream) {
    assert_true(has_lock);
    assert_int_equal(type, kDLCUDA);
    stream_device = id;
    *stream = side_stream;
    return id < 8 ? 0 : -1;
}

static DLTensor on_device(DLDeviceType type, int ndim, int64_t *shape, DLDataType dtype) {
    static _Alignas(16) char memory[16];
    return (DLTensor){.data = memory, .device = {type, 0}, .ndim = ndim, .shape = shape, .dtype = dtype};
}

/* ---- A schedule, which the library computes on the host ---- */

static const DLDataType int32 = {kDLInt, 32, 1};

typedef struct schedule_call {
    attns_schedule_params params;
    DLTensor tensors[2];
    attns_python_call call;
    object *function;
} schedule_call;

static void setup_schedule(schedule_call *made) {
    *made = (schedule_call){
        .params = {.seq_lens = &made->tensors[0], .schedule_meta = &made->tensors[1], .variant = ATTNS_VARIANT_FP8},
        .call = {.operation = ATTNS_OPERATION_COMPUTE_PAGED_MQA_LOGITS_SCHEDULE,
                 .params = &made->params,
                 .describe = describe,
                 .current_stream = current_stream,
                 .tensors = made->tensors,
                 .count = 2},
    };
    made->function = attns_python_function(&made->call);
    assert_non_null(made->function);
    assert_int_equal(made->function->definition->flags, 0x80);
    assert_int_equal(made->function->self->references, 1);
}

static void test_the_operation_is_called(void **state) {
    (void)state;
    schedule_call s;
    setup_schedule(&s);
    int32_t lens[3] = {100, 1000, 10}, direct[5][2], called[5][2];
    int64_t lens_shape[] = {3}, meta_shape[] = {5, 2};
    DLTensor seq_lens = on_device(kDLCPU, 1, lens_shape, int32), meta = on_device(kDLCPU, 2, meta_shape, int32);
    seq_lens.data = lens;
    meta.data = direct;
    const attns_schedule_params params = {.seq_lens = &seq_lens, .schedule_meta = &meta, .variant = ATTNS_VARIANT_FP8};
    assert_int_equal(attns_compute_paged_mqa_logits_schedule(NULL, &params, NULL), ATTNS_OK);
    meta.data = called;
    memset(called, 0x55, sizeof called);
    num_saved = num_described = 0;
    stream_device = -1;
    void *objects[] = {&seq_lens, &meta};
    assert_int_equal(invoke(s.function, objects, 2), ATTNS_OK);
    assert_memory_equal(called, direct, sizeof called);
    assert_int_equal(num_described, 2);
    assert_int_equal(num_saved, 1); /* the operation ran without the lock */
    assert_int_equal(stream_device, -1);
    dec_ref(s.function);
}

static void test_failures(void **state) {
    (void)state;
    schedule_call s;
    setup_schedule(&s);
    int64_t shape[] = {3};
    DLTensor tensor = on_device(kDLCPU, 1, shape, int32);
    void *objects[] = {&tensor, NULL};
    num_saved = 0;
    assert_int_equal(invoke(s.function, objects, 2), RAISED); /* the second cannot be described */
    assert_int_equal(invoke(s.function, objects, 1), ATTNS_ERROR_INTERNAL);
    assert_string_equal(attns_last_error(), "objects: are 1, accepted: 2");
    assert_int_equal(num_saved, 0);

    objects[1] = &tensor;
    assert_int_equal(invoke(s.function, objects, 2), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attns_last_error(), "schedule_meta: rank is 1, accepted: 2");
    assert_int_equal(num_saved, 1);

    tensor.device = (DLDevice){kDLCUDA, 8}; /* of which current_stream fails */
    assert_int_equal(invoke(s.function, objects, 2), RAISED);
    assert_int_equal(stream_device, 8);
    s.call.current_stream = NULL;
    assert_int_equal(invoke(s.function, objects, 2), ATTNS_ERROR_INVALID_ARGUMENT);

    s.call.operation = (attns_operation)5;
    assert_int_equal(invoke(s.function, objects, 2), ATTNS_ERROR_INTERNAL);
    dec_ref(s.function);

    fail_capsule = true;
    assert_null(attns_python_function(&s.call));
    fail_capsule = false;
    fail_function = true;
    assert_null(attns_python_function(&s.call)); /* and the capsule is freed */
    fail_function = false;
}

/* ---- Logits operations: what becomes of out ---- */

static DLTensor out_seen;
static int64_t shape_seen[2], strides_seen[2];
static attns_context *ctx_seen;
static CUstream stream_seen;
static attns_status logits_status;

static attns_status see(attns_context *ctx, const DLTensor *out, CUstream stream) {
    assert_false(has_lock);
    ctx_seen = ctx;
    stream_seen = stream;
    out_seen = *out;
    memcpy(shape_seen, out->shape, (size_t)out->ndim * sizeof *shape_seen);
    memset(strides_seen, 0, sizeof strides_seen);
    if (out->strides)
        memcpy(strides_seen, out->strides, (size_t)out->ndim * sizeof *strides_seen);
    return logits_status;
}

attns_status __wrap_attns_fp8_paged_mqa_logits(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params,
                                               CUstream stream);
attns_status __wrap_attns_fp8_paged_mqa_logits(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params,
                                               CUstream stream) {
    return see(ctx, params->out, stream);
}

attns_status __wrap_attns_fp4_paged_mqa_logits(attns_context *ctx, const attns_fp4_paged_mqa_logits_params *params,
                                               CUstream stream);
attns_status __wrap_attns_fp4_paged_mqa_logits(attns_context *ctx, const attns_fp4_paged_mqa_logits_params *params,
                                               CUstream stream) {
    return see(ctx, params->out, stream);
}

/* q [3, 2, 64, 128] and max_seq_len 500: six rows of 500. */
static void check_out(attns_operation operation, int ndim, int64_t rows, int64_t columns, const int64_t *strides,
                      long expected, int64_t seen_rows, int64_t seen_columns, int64_t seen_stride) {
    const DLDataType f8 = {ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, f32 = {kDLFloat, 32, 1};
    DLTensor tensors[2];
    const attns_fp8_paged_mqa_logits_params fp8 = {.q = &tensors[0], .out = &tensors[1], .max_seq_len = 500};
    const attns_fp4_paged_mqa_logits_params fp4 = {.q = &tensors[0], .out = &tensors[1], .max_seq_len = 500};
    attns_context *const ctx = (attns_context *)(uintptr_t)0x5670;
    CUstream const own_stream = (CUstream)(uintptr_t)0x4560;
    attns_python_call call = {
        .operation = operation,
        .params = operation == ATTNS_OPERATION_FP8_PAGED_MQA_LOGITS ? (const void *)&fp8 : (const void *)&fp4,
        .ctx = ctx,
        .stream = own_stream,
        .describe = describe,
        .current_stream = current_stream,
        .tensors = tensors,
        .count = 2,
        .out_dtype = f32,
    };
    int64_t q_shape[] = {3, 2, 64, 128}, out_shape[] = {rows, columns}, out_strides[2];
    DLTensor q = on_device(kDLCUDA, 4, q_shape, f8), out = on_device(kDLCUDA, ndim, out_shape, f32);
    q.device.device_id = 3;
    if (strides) {
        memcpy(out_strides, strides, sizeof out_strides);
        out.strides = out_strides;
    }
    void *objects[] = {&q, &out};
    object *const function = attns_python_function(&call);
    assert_non_null(function);
    logits_status = ATTNS_OK;
    assert_int_equal(invoke(function, objects, 2), expected);
    assert_int_equal(stream_device, 3);
    assert_ptr_equal(stream_seen, side_stream);
    assert_ptr_equal(ctx_seen, ctx);
    assert_ptr_equal(out_seen.data, out.data);
    assert_int_equal(shape_seen[0], seen_rows);
    if (ndim == 2)
        assert_int_equal(shape_seen[1], seen_columns);
    assert_int_equal(strides_seen[0], seen_stride);
    assert_int_equal(out_shape[0], rows); /* the object is as it was */
    assert_int_equal(out_shape[1], columns);

    logits_status = ATTNS_ERROR_CUDA;
    call.current_stream = NULL;
    assert_int_equal(invoke(function, objects, 2), ATTNS_ERROR_CUDA);
    assert_ptr_equal(stream_seen, own_stream);

    logits_status = ATTNS_OK;
    stream_seen = NULL;
    call.out_dtype.bits = 16;
    assert_int_equal(invoke(function, objects, 2), ATTNS_PYTHON_OUT_DTYPE);
    assert_null(stream_seen); /* nothing has been called */
    call.out_dtype = (DLDataType){0};
    assert_int_equal(invoke(function, objects, 2), ATTNS_OK);
    assert_int_equal(shape_seen[0], rows);
    dec_ref(function);
}

static void test_out_is_cut(void **state) {
    (void)state;
    const int64_t strided[] = {1024, 1};
    const attns_operation both[] = {ATTNS_OPERATION_FP8_PAGED_MQA_LOGITS, ATTNS_OPERATION_FP4_PAGED_MQA_LOGITS};
    for (size_t i = 0; i < 2; i++) {
        check_out(both[i], 2, 6, 500, NULL, ATTNS_OK, 6, 500, 0);
        check_out(both[i], 2, 6, 500, strided, ATTNS_OK, 6, 500, 1024);
        check_out(both[i], 2, 6, 512, NULL, ATTNS_PYTHON_OUT_IN_PART, 6, 500, 512);
        check_out(both[i], 2, 6, 512, strided, ATTNS_PYTHON_OUT_IN_PART, 6, 500, 1024);
        check_out(both[i], 2, 7, 500, NULL, ATTNS_PYTHON_OUT_IN_PART, 6, 500, 500);
        /* too small, or of another rank: for the operation to refuse */
        check_out(both[i], 2, 5, 512, NULL, ATTNS_OK, 5, 512, 0);
        check_out(both[i], 2, 7, 499, NULL, ATTNS_OK, 7, 499, 0);
        check_out(both[i], 1, 7, 0, NULL, ATTNS_OK, 7, 0, 0);
    }
}

static int bind_api(void **state) {
    (void)state;
    attns_python_bind(&api);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_operation_is_called),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_out_is_cut),
    };
    return cmocka_run_group_tests(tests, bind_api, NULL);
}
