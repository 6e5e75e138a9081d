/* SPDX-License-Identifier: MIT
 *
 * Every wrong argument of indexer_scores, in both formats: the status, and a message with the argument's name, the
 * value given and what is accepted; and the variations that are legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/indexer_args.h"

enum { QUERY, QUERY_SCALES, KEYS, KEY_SCALES, TABLE, LENS, REQUESTS, SCORES, NUM_TENSORS };
enum { GROUPS = 3, GROUP_ROWS = 4, ROWS = GROUPS * GROUP_ROWS, PAGES = 5, NUM_REQUESTS = 2, WIDTH = 130, BLOCKS = 3 };

/* Nothing is read through the addresses, except by the reference when all is right. */
typedef struct call {
    DLTensor tensors[NUM_TENSORS];
    int64_t shapes[NUM_TENSORS][3], strides[NUM_TENSORS][3];
    attns_indexer_scores_params params;
    _Alignas(16) uint8_t bytes[NUM_TENSORS][PAGES * 64 * 256];
} call;

static call c;

static void set_tensor(int index, DLDataType dtype, int ndim, const int64_t *shape) {
    int64_t stride = 1;
    for (int dim = ndim - 1; dim >= 0; dim--) {
        c.shapes[index][dim] = shape[dim];
        c.strides[index][dim] = stride;
        stride *= shape[dim];
    }
    c.tensors[index] = (DLTensor){.data = c.bytes[index],
                                  .device = {kDLCUDA, 0},
                                  .ndim = ndim,
                                  .dtype = dtype,
                                  .shape = c.shapes[index],
                                  .strides = c.strides[index]};
}

static void make_call(DLDeviceType device_type, bool nvfp4) {
    static const DLDataType bf16 = {kDLBfloat, 16, 1}, uint8 = {kDLUInt, 8, 1}, int32 = {kDLInt, 32, 1},
                            float32 = {kDLFloat, 32, 1}, e4m3 = {ATTNS_DL_FLOAT8_E4M3FN, 8, 1};
    const DLDataType values = nvfp4 ? uint8 : bf16;
    const int64_t row = nvfp4 ? 64 : 128;
    memset(&c, 0, sizeof c);
    set_tensor(QUERY, values, 2, (int64_t[]){ROWS, row});
    set_tensor(QUERY_SCALES, e4m3, 2, (int64_t[]){ROWS, 8});
    set_tensor(KEYS, values, 3, (int64_t[]){PAGES, 64, row});
    set_tensor(KEY_SCALES, e4m3, 3, (int64_t[]){PAGES, 64, 8});
    set_tensor(TABLE, int32, 2, (int64_t[]){NUM_REQUESTS, BLOCKS});
    set_tensor(LENS, int32, 1, (int64_t[]){GROUPS});
    set_tensor(REQUESTS, int32, 1, (int64_t[]){GROUPS});
    set_tensor(SCORES, float32, 2, (int64_t[]){ROWS, WIDTH});
    for (int i = 0; i < NUM_TENSORS; i++)
        c.tensors[i].device.device_type = device_type;
    c.params = (attns_indexer_scores_params){
        .query = &c.tensors[QUERY],
        .query_scales = nvfp4 ? &c.tensors[QUERY_SCALES] : NULL,
        .key_cache = &c.tensors[KEYS],
        .key_scales = nvfp4 ? &c.tensors[KEY_SCALES] : NULL,
        .block_table = &c.tensors[TABLE],
        .context_lengths = &c.tensors[LENS],
        .requests = &c.tensors[REQUESTS],
        .scores = &c.tensors[SCORES],
    };
}

static void set_rows(int64_t rows, int64_t groups) {
    c.shapes[QUERY][0] = c.shapes[QUERY_SCALES][0] = c.shapes[SCORES][0] = rows;
    c.shapes[LENS][0] = c.shapes[REQUESTS][0] = groups;
}

static void set_dtype(int index, int code, int bits, int lanes) {
    c.tensors[index].dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
}

/* ---- Wrong input ---- */

enum { BF16 = 1, NVFP4 = 2, BOTH = 3 };

#define INVALID ATTNS_ERROR_INVALID_ARGUMENT

/* Makes the call wrong by `edit`, in the formats given, for a device and for the reference. */
#define CHECK_WRONG(formats, edit, message)                                                                            \
    do {                                                                                                               \
        for (int i = 0; i < 4; i++) {                                                                                  \
            const bool nvfp4 = i & 1;                                                                                  \
            const DLDeviceType type = i & 2 ? kDLCPU : kDLCUDA;                                                        \
            if (!((formats) & (nvfp4 ? NVFP4 : BF16)))                                                                 \
                continue;                                                                                              \
            attns_indexer_args args;                                                                                   \
            make_call(type, nvfp4);                                                                                    \
            edit;                                                                                                      \
            const attns_status status = attns_indexer_args_read(&c.params, type, &args);                               \
            if (status != INVALID || strncmp(attns_last_error(), message, strlen(message)) != 0)                       \
                fail_msg("%s, " #edit ": status %d, \"%s\" instead of \"%s\"", nvfp4 ? "nvfp4" : "bf16", (int)status,  \
                         attns_last_error(), message);                                                                 \
        }                                                                                                              \
    } while (0)

static void test_presence_and_rank(void **state) {
    (void)state;
    CHECK_WRONG(BOTH, c.params.query = NULL, "query: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.params.key_cache = NULL, "key_cache: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.params.block_table = NULL, "block_table: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.params.context_lengths = NULL, "context_lengths: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.params.requests = NULL, "requests: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.params.scores = NULL, "scores: is NULL, accepted: a tensor");
    CHECK_WRONG(BOTH, c.tensors[QUERY].data = NULL, "query: data is NULL");
    CHECK_WRONG(BOTH, c.tensors[KEYS].data = NULL, "key_cache: data is NULL");
    CHECK_WRONG(NVFP4, c.tensors[KEY_SCALES].data = NULL, "key_scales: data is NULL");
    CHECK_WRONG(BOTH, c.tensors[SCORES].shape = NULL, "scores: shape is NULL");
    CHECK_WRONG(BOTH, c.tensors[QUERY].ndim = 3, "query: rank is 3, accepted: 2");
    CHECK_WRONG(NVFP4, c.tensors[QUERY_SCALES].ndim = 1, "query_scales: rank is 1, accepted: 2");
    CHECK_WRONG(BOTH, c.tensors[KEYS].ndim = 2, "key_cache: rank is 2, accepted: 3");
    CHECK_WRONG(NVFP4, c.tensors[KEY_SCALES].ndim = 2, "key_scales: rank is 2, accepted: 3");
    CHECK_WRONG(BOTH, c.tensors[TABLE].ndim = 1, "block_table: rank is 1, accepted: 2");
    CHECK_WRONG(BOTH, c.tensors[LENS].ndim = 2, "context_lengths: rank is 2, accepted: 1");
    CHECK_WRONG(BOTH, c.tensors[REQUESTS].ndim = 2, "requests: rank is 2, accepted: 1");
    CHECK_WRONG(BOTH, c.tensors[SCORES].ndim = 1, "scores: rank is 1, accepted: 2");
}

static void test_formats(void **state) {
    (void)state;
    static const char query[] =
        "query: dtype is %s, accepted: bfloat16, or for NVFP4 uint8 (two float4_e2m1fn in a byte)";
    char message[160];
    snprintf(message, sizeof message, query, "float16");
    CHECK_WRONG(BOTH, set_dtype(QUERY, kDLFloat, 16, 1), message);
    snprintf(message, sizeof message, query, "int8");
    CHECK_WRONG(BOTH, set_dtype(QUERY, kDLInt, 8, 1), message);
    snprintf(message, sizeof message, query, "float4_e2m1fn"); /* one number in an element */
    CHECK_WRONG(NVFP4, set_dtype(QUERY, ATTNS_DL_FLOAT4_E2M1FN, 4, 1), message);
    CHECK_WRONG(BF16, set_dtype(KEYS, kDLFloat, 16, 1), "key_cache: dtype is float16, accepted: bfloat16, as query is");

    /* Mixed: keys of the other format, scales missing or superfluous. */
    CHECK_WRONG(BF16, set_dtype(KEYS, kDLUInt, 8, 1), "key_cache: dtype is uint8, accepted: bfloat16, as query is");
    CHECK_WRONG(NVFP4, set_dtype(KEYS, kDLBfloat, 16, 1), "key_cache: dtype is bfloat16, accepted: uint8 (two");
    CHECK_WRONG(BF16, c.params.query_scales = &c.tensors[QUERY_SCALES],
                "query_scales: given, accepted: NULL, as query is bfloat16");
    CHECK_WRONG(BF16, c.params.key_scales = &c.tensors[KEY_SCALES],
                "key_scales: given, accepted: NULL, as query is bfloat16");
    CHECK_WRONG(NVFP4, c.params.query_scales = NULL,
                "query_scales: is NULL, accepted: a tensor of E4M3 scales, as query is NVFP4");
    CHECK_WRONG(NVFP4, c.params.key_scales = NULL,
                "key_scales: is NULL, accepted: a tensor of E4M3 scales, as query is NVFP4");

    CHECK_WRONG(NVFP4, set_dtype(QUERY_SCALES, kDLFloat, 32, 1),
                "query_scales: dtype is float32, accepted: float8_e4m3fn");
    CHECK_WRONG(NVFP4, set_dtype(KEY_SCALES, kDLInt, 8, 1), "key_scales: dtype is int8, accepted: float8_e4m3fn");
    CHECK_WRONG(BOTH, set_dtype(TABLE, kDLInt, 64, 1), "block_table: dtype is int64, accepted: int32");
    CHECK_WRONG(BOTH, set_dtype(LENS, kDLInt, 64, 1), "context_lengths: dtype is int64, accepted: int32");
    CHECK_WRONG(BOTH, set_dtype(LENS, kDLUInt, 32, 1), "context_lengths: dtype is uint32, accepted: int32");
    CHECK_WRONG(BOTH, set_dtype(REQUESTS, kDLInt, 16, 1), "requests: dtype is int16, accepted: int32");
    CHECK_WRONG(BOTH, set_dtype(SCORES, kDLBfloat, 16, 1), "scores: dtype is bfloat16, accepted: float32");
    CHECK_WRONG(BOTH, set_dtype(SCORES, kDLFloat, 32, 2), "scores: dtype is float32x2, accepted: a dtype of 1 lane");
}

static void test_devices(void **state) {
    (void)state;
    CHECK_WRONG(BOTH, c.tensors[QUERY].device.device_type = kDLROCM, "query: device is rocm:0, accepted: ");
    CHECK_WRONG(BOTH, c.tensors[SCORES].device.device_type = kDLROCM, "scores: device is rocm:0, accepted: ");
    CHECK_WRONG(NVFP4, c.tensors[KEY_SCALES].device.device_type = kDLROCM, "key_scales: device is rocm:0, accepted: ");
    attns_indexer_args args;
    for (int i = 0; i < NUM_TENSORS; i++) {
        make_call(kDLCUDA, true);
        c.tensors[i].device.device_type = kDLCPU;
        assert_int_equal(attns_indexer_args_read(&c.params, kDLCUDA, &args), INVALID);
        assert_non_null(strstr(attns_last_error(), ": device is cpu, accepted: a CUDA device"));
        c.tensors[i].device = (DLDevice){kDLCUDA, 1};
        assert_int_equal(attns_indexer_args_read(&c.params, kDLCUDA, &args), INVALID);
        assert_non_null(strstr(attns_last_error(), ": device is cuda:"));
    }
}

static void test_rows_and_groups(void **state) {
    (void)state;
    static const char accepted[] = " rows, accepted: a divisor of the rows, with 1 to 8 rows in each group";
    static const int64_t wrong[][2] = {{12, 5}, {12, 0}, {12, 13}, {9, 1}, {4097, 512}, {12, 24}, {1, 2}};
    char message[200];
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        snprintf(message, sizeof message, "context_lengths: shape[0] (groups) is %d for %d%s", (int)wrong[k][1],
                 (int)wrong[k][0], accepted);
        CHECK_WRONG(BOTH, set_rows(wrong[k][0], wrong[k][1]), message);
    }
    CHECK_WRONG(BOTH, c.shapes[REQUESTS][0] = 2, "requests: shape[0] is 2, accepted: 3 (groups of context_lengths)");
    CHECK_WRONG(BOTH, c.shapes[SCORES][0] = 3, "scores: shape[0] is 3, accepted: 12 (rows of query)");
    CHECK_WRONG(NVFP4, c.shapes[QUERY_SCALES][0] = 3, "query_scales: shape[0] is 3, accepted: 12 (rows of query)");
    CHECK_WRONG(BOTH, set_rows((INT64_C(1) << 30) + 1, 1), "query: shape[0] is 1073741825, accepted: 0 to 1073741824");
}

static void test_sizes(void **state) {
    (void)state;
    CHECK_WRONG(BF16, c.shapes[QUERY][1] = 64, "query: shape[1] is 64, accepted: 128 (the head dim)");
    CHECK_WRONG(NVFP4, c.shapes[QUERY][1] = 128, "query: shape[1] is 128, accepted: 64 (the bytes of 128 values)");
    CHECK_WRONG(BF16, c.shapes[KEYS][2] = 256, "key_cache: shape[2] is 256, accepted: 128 (the head dim)");
    CHECK_WRONG(NVFP4, c.shapes[KEYS][2] = 72, "key_cache: shape[2] is 72, accepted: 64 (the bytes of 128 values)");
    CHECK_WRONG(BOTH, c.shapes[KEYS][1] = 32, "key_cache: shape[1] is 32, accepted: 64 (the keys of a page)");
    CHECK_WRONG(BOTH, c.shapes[KEYS][0] = 0, "key_cache: shape[0] is 0, accepted: 1 to 2147483647 (pages)");
    CHECK_WRONG(BOTH, (c.shapes[KEYS][0] = INT64_C(1) << 31), "key_cache: shape[0] is 2147483648, accepted: 1 to");
    CHECK_WRONG(BOTH, c.shapes[KEYS][0] = -1, "key_cache: shape[0] is -1, accepted: 0 or more");
    CHECK_WRONG(NVFP4, c.shapes[QUERY_SCALES][1] = 4, "query_scales: shape[1] is 4, accepted: 8 (one for 16 values)");
    CHECK_WRONG(NVFP4, c.shapes[KEY_SCALES][0] = 4, "key_scales: shape[0] is 4, accepted: 5 (pages of key_cache)");
    CHECK_WRONG(NVFP4, c.shapes[KEY_SCALES][1] = 1, "key_scales: shape[1] is 1, accepted: 64 (the keys of a page)");
    CHECK_WRONG(NVFP4, c.shapes[KEY_SCALES][2] = 4, "key_scales: shape[2] is 4, accepted: 8 (one for 16 values)");
    CHECK_WRONG(BOTH, c.shapes[TABLE][1] = 2,
                "block_table: shape[1] is 2, accepted: 3 to 2147483647 (blocks, at least the pages of max_context");
    CHECK_WRONG(BOTH, (c.shapes[SCORES][1] = c.strides[SCORES][0] = 193),
                "block_table: shape[1] is 3, accepted: 4 to 2147483647");
    CHECK_WRONG(BOTH, (c.shapes[SCORES][1] = (INT64_C(1) << 30) + 1), "scores: shape[1] is 1073741825, accepted: 0 to");
}

static void test_layout(void **state) {
    (void)state;
    CHECK_WRONG(BOTH, c.strides[QUERY][1] = 2, "query: stride[1] is 2, accepted: 1 (dense)");
    CHECK_WRONG(BF16, c.strides[QUERY][0] = 132,
                "query: stride[0] is 132, accepted: a multiple of 16 bytes (given: 264 bytes)");
    CHECK_WRONG(NVFP4, c.strides[QUERY][0] = 72, "query: stride[0] is 72, accepted: a multiple of 16 bytes");
    CHECK_WRONG(BOTH, c.strides[QUERY][0] = -128, "query: stride[0] is -128, accepted: 0 or more");
    CHECK_WRONG(BOTH, c.tensors[QUERY].byte_offset = 8, "query: address is 0x");
    CHECK_WRONG(NVFP4, c.strides[QUERY_SCALES][0] = 12,
                "query_scales: stride[0] is 12, accepted: a multiple of 8 bytes");
    CHECK_WRONG(NVFP4, c.strides[QUERY_SCALES][1] = 2, "query_scales: stride[1] is 2, accepted: 1 (dense)");
    CHECK_WRONG(NVFP4, c.tensors[QUERY_SCALES].byte_offset = 4, "query_scales: address is 0x");

    CHECK_WRONG(BOTH, c.strides[KEYS][2] = 2, "key_cache: stride[2] is 2, accepted: 1 (dense)");
    CHECK_WRONG(BF16, c.strides[KEYS][1] = 136, "key_cache: stride[1] is 136, accepted: 128 (dense)");
    CHECK_WRONG(NVFP4, c.strides[KEYS][1] = 72, "key_cache: stride[1] is 72, accepted: 64 (dense)");
    CHECK_WRONG(BF16, c.strides[KEYS][0] = 64 * 128 + 4,
                "key_cache: stride[0] is 8196, accepted: a multiple of 16 bytes");
    CHECK_WRONG(NVFP4, c.strides[KEYS][0] = 64 * 72 + 8,
                "key_cache: stride[0] is 4616, accepted: a multiple of 16 bytes");
    CHECK_WRONG(BF16, c.strides[KEYS][0] = 63 * 128,
                "key_cache: stride[0] is 8064, accepted: at least 8192 elements (the");
    CHECK_WRONG(NVFP4, c.strides[KEYS][0] = 0,
                "key_cache: stride[0] is 0, accepted: at least 4096 elements (the bytes");
    CHECK_WRONG(BOTH, c.tensors[KEYS].byte_offset = 8, "key_cache: address is 0x");
    CHECK_WRONG(BOTH, c.strides[KEYS][0] = INT64_MAX / 4,
                "key_cache: shape[0] is 5 with stride 2305843009213693951, accepted: a tensor that spans");
    CHECK_WRONG(NVFP4, c.strides[KEY_SCALES][0] = 516, "key_scales: stride[0] is 516, accepted: a multiple of 8 bytes");
    CHECK_WRONG(NVFP4, c.strides[KEY_SCALES][0] = 504, "key_scales: stride[0] is 504, accepted: at least 512 elements");
    CHECK_WRONG(NVFP4, c.strides[KEY_SCALES][1] = 16, "key_scales: stride[1] is 16, accepted: 8 (dense)");
    CHECK_WRONG(NVFP4, c.tensors[KEY_SCALES].byte_offset = 4, "key_scales: address is 0x");

    CHECK_WRONG(BOTH, c.strides[TABLE][1] = 2, "block_table: stride[1] is 2, accepted: 1 (dense)");
    CHECK_WRONG(BOTH, c.tensors[TABLE].byte_offset = 2, "block_table: address is 0x");
    CHECK_WRONG(BOTH, c.tensors[LENS].byte_offset = 1, "context_lengths: address is 0x");
    CHECK_WRONG(BOTH, c.tensors[REQUESTS].byte_offset = 3, "requests: address is 0x");
    CHECK_WRONG(BOTH, c.strides[SCORES][1] = 2, "scores: stride[1] is 2, accepted: 1 (dense)");
    CHECK_WRONG(BOTH, c.strides[SCORES][0] = 129,
                "scores: stride[0] is 129, accepted: at least 130 elements (max_context (shape[1]), as rows");
    CHECK_WRONG(BOTH, c.strides[SCORES][0] = 0, "scores: stride[0] is 0, accepted: at least 130 elements");
    CHECK_WRONG(BOTH, c.tensors[SCORES].byte_offset = 2, "scores: address is 0x");
}

static void test_missing_params(void **state) {
    (void)state;
    attns_indexer_args args;
    assert_int_equal(attns_indexer_args_read(NULL, kDLCUDA, &args), INVALID);
    assert_string_equal(attns_last_error(), "params: is NULL, accepted: a params struct");
    assert_int_equal(attns_indexer_scores(NULL, NULL, NULL), INVALID);
    assert_string_equal(attns_last_error(), "ctx: is NULL, accepted: a context");
    assert_int_equal(attns_reference_indexer_scores(NULL, NULL), INVALID);
    assert_string_equal(attns_last_error(), "params: is NULL, accepted: a params struct");
}

/* Found before anything is compiled: the context has neither a driver nor a compiler. */
static void test_the_call_checks_first(void **state) {
    (void)state;
    attns_context *ctx = NULL;
    const attns_context_params params = {.libcuda_path = "/does/not/exist",
                                         .libnvrtc_path = "/does/not/exist",
                                         .cache_dir = "",
                                         .log_level = ATTNS_LOG_ERROR};
    assert_int_equal(attns_context_create(&ctx, &params), ATTNS_OK);
    make_call(kDLCUDA, true);
    c.params.key_scales = NULL;
    assert_int_equal(attns_indexer_scores(ctx, &c.params, NULL), INVALID);
    assert_non_null(strstr(attns_last_error(), "key_scales: is NULL"));
    make_call(kDLCUDA, false);
    set_rows(0, 0);
    assert_int_equal(attns_indexer_scores(ctx, &c.params, NULL), ATTNS_OK);
    attns_context_destroy(ctx);
}

/* ---- Legal input ---- */

static void read_ok(attns_indexer_args *args) {
    if (attns_indexer_args_read(&c.params, kDLCUDA, args) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

static void test_args(void **state) {
    (void)state;
    attns_indexer_args args;
    make_call(kDLCUDA, false);
    c.params.enable_pdl = true;
    c.strides[QUERY][0] = 0; /* inputs are only read: rows may be one */
    c.strides[KEYS][0] = 64 * 128 + 8;
    c.strides[SCORES][0] = 131;
    c.strides[LENS][0] = 0;
    c.strides[REQUESTS][0] = 7;
    read_ok(&args);
    assert_int_equal(args.problem.kind, ATTNS_KERNEL_INDEXER_BF16);
    assert_false(args.nvfp4);
    assert_int_equal(args.rows, ROWS);
    assert_int_equal(args.groups, GROUPS);
    assert_int_equal(args.rows_per_group, GROUP_ROWS);
    assert_int_equal(args.num_pages, PAGES);
    assert_int_equal(args.num_requests, NUM_REQUESTS);
    assert_int_equal(args.max_context, WIDTH);
    assert_int_equal(args.query.stride[0], 0);
    assert_int_equal(args.key_cache.stride[0], 64 * 256 + 16); /* bytes */
    assert_int_equal(args.scores.stride[0], 131 * 4);
    assert_int_equal(args.requests.stride[0], 28);
    assert_true(args.enable_pdl);

    make_call(kDLCUDA, true);
    set_dtype(QUERY, ATTNS_DL_FLOAT4_E2M1FN, 4, 2);
    set_dtype(KEY_SCALES, kDLUInt, 8, 1);
    c.tensors[KEY_SCALES].data = c.bytes[KEYS] + 64 * 64; /* views of one cache */
    c.strides[KEYS][0] = c.strides[KEY_SCALES][0] = 64 * 72;
    read_ok(&args);
    assert_int_equal(args.problem.kind, ATTNS_KERNEL_INDEXER_NVFP4);
    assert_true(args.nvfp4);
    assert_int_equal(args.key_cache.stride[0], 64 * 72);
    assert_int_equal(args.key_scales.stride[0], 64 * 72);
    assert_ptr_equal(args.key_scales.data, c.bytes[KEYS] + 64 * 64);
    c.strides[KEY_SCALES][0] = 520; /* 8 bytes, not 16 */
    c.tensors[KEY_SCALES].data = c.bytes[KEY_SCALES] + 8;
    read_ok(&args);
    assert_int_equal(args.key_scales.stride[0], 520);
}

static void test_every_group_size(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        attns_indexer_args args;
        make_call(kDLCUDA, i % 2);
        set_rows(3 * (1 + i / 2), 3);
        read_ok(&args);
        assert_int_equal(args.rows_per_group, 1 + i / 2);
        assert_int_equal(args.groups, 3);
    }
}

static void test_managed_memory(void **state) {
    (void)state;
    attns_indexer_args args;
    make_call(kDLCUDA, true);
    for (int i = 0; i < NUM_TENSORS; i++)
        if (i != KEYS)
            c.tensors[i].device = (DLDevice){kDLCUDAManaged, 0};
    c.tensors[KEYS].device.device_id = 1;
    read_ok(&args);
    assert_int_equal(args.device.device_type, kDLCUDA);
    assert_int_equal(args.device.device_id, 1);
}

/* No rows is success whatever the empty tensors' addresses and strides are, but a wrong dtype or size stays wrong. */
static void test_no_rows(void **state) {
    (void)state;
    static const int empty[] = {QUERY, QUERY_SCALES, LENS, REQUESTS, SCORES};
    for (int nvfp4 = 0; nvfp4 < 2; nvfp4++) {
        attns_indexer_args args;
        make_call(kDLCUDA, nvfp4);
        set_rows(0, 0);
        c.shapes[KEYS][0] = c.shapes[KEY_SCALES][0] = 0;
        for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
            c.tensors[empty[i]].data = NULL;
            c.strides[empty[i]][0] = 3;
        }
        read_ok(&args);
        assert_int_equal(args.rows, 0);
        c.shapes[QUERY][1] = 96;
        assert_int_equal(attns_indexer_args_read(&c.params, kDLCUDA, &args), INVALID);
    }
}

static void test_the_reference_writes_float64_too(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        make_call(kDLCPU, i % 2);
        if (i / 2)
            set_dtype(SCORES, kDLFloat, 64, 1);
        memset(c.bytes[SCORES], 0xa5, sizeof c.bytes[SCORES]);
        ((int32_t *)(void *)c.bytes[LENS])[1] = 2;
        assert_int_equal(attns_reference_indexer_scores(&c.params, NULL), ATTNS_OK);
        const size_t element = i / 2 ? 8 : 4;
        for (size_t k = 0; k < ROWS * WIDTH; k++) {
            const size_t row = k / WIDTH, column = k % WIDTH;
            const bool written = row / GROUP_ROWS == 1 && column < 2;
            for (size_t b = 0; b < element; b++)
                assert_int_equal(c.bytes[SCORES][k * element + b], written ? 0 : 0xa5);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presence_and_rank),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_rows_and_groups),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_missing_params),
        cmocka_unit_test(test_the_call_checks_first),
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_every_group_size),
        cmocka_unit_test(test_managed_memory),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_the_reference_writes_float64_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
