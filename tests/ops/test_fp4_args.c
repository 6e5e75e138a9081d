/* SPDX-License-Identifier: MIT
 *
 * What fp4_paged_mqa_logits checks besides what it shares with fp8 (test_fp8_args.c has all of that): q and its scales,
 * the bytes of a token, sf_vec_size, the order of scales. And that the shared checks run for it too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/logits_args.h"

enum { Q, Q_SF, KV, WEIGHTS, TABLES, LENS, META, OUT, NUM_TENSORS };
enum {
    BATCH = 3,
    NEXT_N = 2,
    HEADS = 16,
    DIM = 128,
    BLOCK = 128,
    BLOCKS = 5,
    WIDTH = 112,
    TOKEN_BYTES = DIM / 2 + DIM / 32
};
enum { ROWS = BATCH * NEXT_N };

/* Nothing is read through the addresses, except by the reference when all is right. */
typedef struct call {
    DLTensor tensors[NUM_TENSORS];
    int64_t shapes[NUM_TENSORS][4], strides[NUM_TENSORS][4];
    attns_fp4_paged_mqa_logits_params params;
    _Alignas(16) uint8_t bytes[NUM_TENSORS][BLOCKS * BLOCK * TOKEN_BYTES];
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

static void make_call(DLDeviceType device_type) {
    static const DLDataType uint8 = {kDLUInt, 8, 1}, int32 = {kDLInt, 32, 1}, float32 = {kDLFloat, 32, 1},
                            bf16 = {kDLBfloat, 16, 1};
    memset(&c, 0, sizeof c);
    set_tensor(Q, uint8, 4, (int64_t[]){BATCH, NEXT_N, HEADS, DIM / 2});
    set_tensor(Q_SF, int32, 3, (int64_t[]){BATCH, NEXT_N, HEADS});
    set_tensor(KV, uint8, 4, (int64_t[]){BLOCKS, BLOCK, 1, TOKEN_BYTES});
    set_tensor(WEIGHTS, float32, 2, (int64_t[]){ROWS, HEADS});
    set_tensor(TABLES, int32, 2, (int64_t[]){BATCH, 1});
    set_tensor(LENS, int32, 1, (int64_t[]){BATCH});
    set_tensor(META, int32, 2, (int64_t[]){9, 2});
    set_tensor(OUT, bf16, 2, (int64_t[]){ROWS, WIDTH});
    for (int i = 0; i < NUM_TENSORS; i++)
        c.tensors[i].device.device_type = device_type;
    c.params = (attns_fp4_paged_mqa_logits_params){
        .q = &c.tensors[Q],
        .q_sf = &c.tensors[Q_SF],
        .kv_fused = &c.tensors[KV],
        .weights = &c.tensors[WEIGHTS],
        .block_tables = &c.tensors[TABLES],
        .seq_lens = &c.tensors[LENS],
        .schedule_meta = &c.tensors[META],
        .out = &c.tensors[OUT],
    };
}

static void set_dim(int64_t dim) {
    c.shapes[Q][3] = dim / 2;
    c.shapes[KV][3] = dim / 2 + dim / 32;
    c.tensors[Q].strides = c.tensors[KV].strides = NULL;
}

/* ---- Wrong input ---- */

/* Makes the call wrong by `edit`, for a device and for the reference. */
#define CHECK_WRONG(edit, expected, message)                                                                           \
    do {                                                                                                               \
        static const DLDeviceType types[] = {kDLCUDA, kDLCPU};                                                         \
        for (int type = 0; type < 2; type++) {                                                                         \
            attns_logits_args args;                                                                                    \
            make_call(types[type]);                                                                                    \
            edit;                                                                                                      \
            const attns_status status = attns_fp4_args_read(&c.params, types[type], &args);                            \
            if (status != (expected) || strncmp(attns_last_error(), message, strlen(message)) != 0)                    \
                fail_msg(#edit ": status %d, \"%s\" instead of \"%s\"", (int)status, attns_last_error(), message);     \
        }                                                                                                              \
    } while (0)

#define INVALID     ATTNS_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED ATTNS_ERROR_UNSUPPORTED

static void test_query(void **state) {
    (void)state;
    static const char dtypes[] = "accepted: uint8 (two float4_e2m1fn in a byte) or float4_e2m1fn of 2 lanes";
    char message[160];
    CHECK_WRONG(c.params.q = NULL, INVALID, "q: is NULL, accepted: a tensor");
    CHECK_WRONG(c.tensors[Q].ndim = 3, INVALID, "q: rank is 3, accepted: 4");
    snprintf(message, sizeof message, "q: dtype is float8_e4m3fn, %s", dtypes);
    CHECK_WRONG(c.tensors[Q].dtype.code = ATTNS_DL_FLOAT8_E4M3FN, INVALID, message);
    snprintf(message, sizeof message, "q: dtype is int8, %s", dtypes);
    CHECK_WRONG(c.tensors[Q].dtype.code = kDLInt, INVALID, message);
    snprintf(message, sizeof message, "q: dtype is float4_e2m1fn, %s", dtypes); /* one number in an element */
    CHECK_WRONG((c.tensors[Q].dtype = (DLDataType){ATTNS_DL_FLOAT4_E2M1FN, 4, 1}), INVALID, message);
    snprintf(message, sizeof message, "q: dtype is int4x2, %s", dtypes);
    CHECK_WRONG((c.tensors[Q].dtype = (DLDataType){kDLInt, 4, 2}), INVALID, message);
    CHECK_WRONG((c.tensors[Q].dtype = (DLDataType){ATTNS_DL_FLOAT4_E2M1FN, 4, 4}), INVALID,
                "q: dtype is float4_e2m1fnx4, accepted: a dtype of 1 lane");
    CHECK_WRONG(set_dim(32), UNSUPPORTED, "q: head_dim (2 * shape[3]) is 32, accepted: 64 or 128");
    CHECK_WRONG(set_dim(96), UNSUPPORTED, "q: head_dim (2 * shape[3]) is 96, accepted: 64 or 128");
    CHECK_WRONG(set_dim(256), UNSUPPORTED, "q: head_dim (2 * shape[3]) is 256, accepted: 64 or 128");
    CHECK_WRONG((c.shapes[Q][3] = INT64_MAX / 2, c.shapes[Q][0] = c.shapes[Q][1] = c.shapes[Q][2] = 1,
                 c.tensors[Q].strides = NULL),
                UNSUPPORTED, "q: num_heads (shape[2]) is 1, accepted: 8 to 128 in multiples of 8");
    CHECK_WRONG(c.shapes[Q][2] = 12, UNSUPPORTED, "q: num_heads (shape[2]) is 12, accepted: 8 to 128");
    CHECK_WRONG(c.shapes[Q][1] = 9, UNSUPPORTED, "q: next_n (shape[1]) is 9, accepted: 1 to 8");
    CHECK_WRONG(c.strides[Q][2] = DIM, INVALID, "q: stride[2] is 128, accepted: 64 (dense)");
    CHECK_WRONG(c.strides[Q][1] = HEADS * DIM / 2 + 8, INVALID, "q: stride[1] is 1032, accepted: a multiple of 16");
    CHECK_WRONG(c.tensors[Q].byte_offset = 8, INVALID, "q: address is 0x");
}

static void test_query_scales(void **state) {
    (void)state;
    CHECK_WRONG(c.params.q_sf = NULL, INVALID, "q_sf: is NULL, accepted: a tensor");
    CHECK_WRONG(c.tensors[Q_SF].data = NULL, INVALID, "q_sf: data is NULL");
    CHECK_WRONG(c.tensors[Q_SF].ndim = 4, INVALID, "q_sf: rank is 4, accepted: 3");
    CHECK_WRONG(c.tensors[Q_SF].ndim = 2, INVALID, "q_sf: rank is 2, accepted: 3");
    CHECK_WRONG(c.tensors[Q_SF].dtype.bits = 8, INVALID, "q_sf: dtype is int8, accepted: int32");
    CHECK_WRONG(c.tensors[Q_SF].dtype.code = kDLUInt, INVALID, "q_sf: dtype is uint32, accepted: int32");
    CHECK_WRONG(c.shapes[Q_SF][0] = 2, INVALID, "q_sf: shape[0] is 2, accepted: 3 (B of q)");
    CHECK_WRONG(c.shapes[Q_SF][1] = 1, INVALID, "q_sf: shape[1] is 1, accepted: 2 (next_n of q)");
    CHECK_WRONG(c.shapes[Q_SF][2] = 8, INVALID, "q_sf: shape[2] is 8, accepted: 16 (H of q)");
    CHECK_WRONG(c.strides[Q_SF][2] = 2, INVALID, "q_sf: stride[2] is 2, accepted: 1 (dense)");
    CHECK_WRONG(c.strides[Q_SF][1] = HEADS + 2, INVALID, "q_sf: stride[1] is 18, accepted: a multiple of 16 bytes");
    CHECK_WRONG(c.strides[Q_SF][0] = 33, INVALID, "q_sf: stride[0] is 33, accepted: a multiple of 16 bytes");
    CHECK_WRONG(c.strides[Q_SF][0] = INT64_C(1) << 38, INVALID, "q_sf: stride[0] is 274877906944, accepted: at most");
    CHECK_WRONG(c.strides[Q_SF][0] = -32, INVALID, "q_sf: stride[0] is -32, accepted: 0 or more");
    CHECK_WRONG(c.tensors[Q_SF].byte_offset = 4, INVALID, "q_sf: address is 0x");
    CHECK_WRONG(c.tensors[Q_SF].device.device_type = kDLROCM, INVALID, "q_sf: device is rocm:0");
}

static void test_keys(void **state) {
    (void)state;
    CHECK_WRONG(c.params.kv_fused = NULL, INVALID, "kv_fused: is NULL");
    CHECK_WRONG(c.tensors[KV].dtype.code = kDLInt, INVALID,
                "kv_fused: dtype is int8, accepted: uint8 (float4_e2m1fn values, then float8_e8m0fnu scales)");
    CHECK_WRONG(c.shapes[KV][3] = DIM + 4, INVALID,
                "kv_fused: shape[3] is 132, accepted: 68 (D/2 + D/32 with D/2 of q)");
    CHECK_WRONG(c.shapes[KV][3] = DIM / 2, INVALID, "kv_fused: shape[3] is 64, accepted: 68");
    CHECK_WRONG((set_dim(64), c.shapes[KV][3] = 68), INVALID, "kv_fused: shape[3] is 68, accepted: 34");
    CHECK_WRONG(c.shapes[KV][1] = 48, UNSUPPORTED, "kv_fused: block_size (shape[1]) is 48, accepted: 16, 32");
    CHECK_WRONG(c.shapes[KV][2] = 2, INVALID, "kv_fused: shape[2] is 2, accepted: 1");
    CHECK_WRONG(c.strides[KV][0] = BLOCK * TOKEN_BYTES - 16, INVALID,
                "kv_fused: stride[0] is 8688, accepted: at least 8704 elements (the bytes of one block)");
    CHECK_WRONG(c.strides[KV][0] = BLOCK * TOKEN_BYTES + 8, INVALID,
                "kv_fused: stride[0] is 8712, accepted: a multiple of 16 bytes");
    CHECK_WRONG(c.tensors[KV].byte_offset = 8, INVALID, "kv_fused: address is 0x");
}

static void test_shared_checks(void **state) {
    (void)state;
    CHECK_WRONG(c.params.weights = NULL, INVALID, "weights: is NULL");
    CHECK_WRONG(c.tensors[WEIGHTS].dtype.bits = 16, INVALID, "weights: dtype is float16, accepted: float32");
    CHECK_WRONG(c.shapes[TABLES][0] = 4, INVALID, "block_tables: shape[0] is 4, accepted: 3 (B of q)");
    CHECK_WRONG(c.tensors[LENS].dtype.bits = 64, INVALID, "seq_lens: dtype is int64, accepted: int32");
    CHECK_WRONG(c.shapes[META][0] = 1, INVALID, "schedule_meta: shape[0] is 1");
    CHECK_WRONG(c.shapes[OUT][0] = 5, INVALID, "out: shape[0] is 5, accepted: 6 (B*next_n of q)");
    CHECK_WRONG(c.params.max_seq_len = WIDTH + 1, INVALID, "out: shape[1] is 112, accepted: 113 (max_seq_len) or more");
    CHECK_WRONG(c.params.max_seq_len = -1, INVALID, "max_seq_len: is -1");
}

static void test_options(void **state) {
    (void)state;
    CHECK_WRONG(c.params.sf_vec_size = 16, UNSUPPORTED, "sf_vec_size: is 16, accepted: 0 (default, 32) or 32");
    CHECK_WRONG(c.params.sf_vec_size = 64, UNSUPPORTED, "sf_vec_size: is 64, accepted: 0 (default, 32) or 32");
    CHECK_WRONG(c.params.sf_vec_size = -1, INVALID, "sf_vec_size: is -1, accepted: 0 (default, 32) or 32");
    static const int blocks[] = {16, 32, 64, 256};
    for (int i = 0; i < 4; i++) {
        char message[128];
        snprintf(message, sizeof message,
                 "is_kv_sf_interleaved: is true with block_size %d, accepted: false, or true with block_size 128",
                 blocks[i]);
        CHECK_WRONG((c.params.is_kv_sf_interleaved = true, c.shapes[KV][1] = blocks[i], c.tensors[KV].strides = NULL),
                    UNSUPPORTED, message);
    }
}

static void test_missing_params(void **state) {
    (void)state;
    attns_logits_args args;
    assert_int_equal(attns_fp4_args_read(NULL, kDLCUDA, &args), INVALID);
    assert_string_equal(attns_last_error(), "params: is NULL, accepted: a params struct");
    assert_int_equal(attns_fp4_paged_mqa_logits(NULL, &c.params, NULL), INVALID);
    assert_string_equal(attns_last_error(), "ctx: is NULL, accepted: a context");
}

/* ---- Legal input ---- */

static void read_ok(attns_logits_args *args) {
    if (attns_fp4_args_read(&c.params, kDLCUDA, args) != ATTNS_OK)
        fail_msg("\"%s\"", attns_last_error());
}

static void test_every_supported_shape(void **state) {
    (void)state;
    static const int blocks[] = {16, 32, 64, 128, 256};
    attns_logits_args args;
    for (int heads = 0; heads <= 136; heads += heads % 8 == 7 ? 1 : heads % 8 == 0 ? 1 : 6)
        for (int dim = 64; dim <= 128; dim += 64)
            for (int b = 0; b < 5; b++)
                for (int next_n = 1; next_n <= 8; next_n++) {
                    make_call(kDLCUDA);
                    for (int i = 0; i < NUM_TENSORS; i++)
                        c.tensors[i].strides = NULL;
                    set_dim(dim);
                    c.shapes[Q][1] = c.shapes[Q_SF][1] = next_n;
                    c.shapes[Q][2] = c.shapes[Q_SF][2] = c.shapes[WEIGHTS][1] = heads;
                    c.shapes[KV][1] = blocks[b];
                    c.shapes[WEIGHTS][0] = c.shapes[OUT][0] = BATCH * next_n;
                    c.params.is_kv_sf_interleaved = blocks[b] == 128 && next_n % 2;
                    const attns_status status = attns_fp4_args_read(&c.params, kDLCUDA, &args);
                    assert_int_equal(status, heads >= 8 && heads <= 128 && heads % 8 == 0 ? ATTNS_OK : UNSUPPORTED);
                    if (status != ATTNS_OK)
                        continue;
                    const attns_problem expected = {.kind = ATTNS_KERNEL_FP4_LOGITS,
                                                    .num_heads = heads,
                                                    .head_dim = dim,
                                                    .block_size = blocks[b],
                                                    .next_n = next_n,
                                                    .out_dtype = ATTNS_DTYPE_BF16,
                                                    .kv_sf_interleaved = blocks[b] == 128 && next_n % 2};
                    assert_memory_equal(&args.problem, &expected, sizeof expected);
                }
}

static void test_args(void **state) {
    (void)state;
    attns_logits_args args;
    make_call(kDLCUDA);
    c.tensors[Q].dtype = (DLDataType){ATTNS_DL_FLOAT4_E2M1FN, 4, 2};
    c.tensors[OUT].dtype = (DLDataType){kDLFloat, 32, 1};
    c.params.sf_vec_size = 32;
    c.params.enable_pdl = true;
    c.strides[Q_SF][0] = 4 * HEADS;
    c.strides[Q][1] = 0; /* inputs are only read: slots may be one */
    read_ok(&args);
    assert_int_equal(args.batch, BATCH);
    assert_int_equal(args.num_blocks, BLOCKS);
    assert_int_equal(args.max_seq_len, WIDTH);
    assert_int_equal(args.num_shares, 8);
    assert_true(args.enable_pdl);
    assert_int_equal(args.problem.out_dtype, ATTNS_DTYPE_F32);
    assert_int_equal(args.q.stride[0], NEXT_N * HEADS * DIM / 2); /* bytes */
    assert_int_equal(args.q.stride[1], 0);
    assert_int_equal(args.q.element_bytes, 1);
    assert_int_equal(args.q_sf.stride[0], 4 * HEADS * 4);
    assert_ptr_equal(args.q_sf.data, c.bytes[Q_SF]);
    c.tensors[OUT].dtype = (DLDataType){kDLFloat, 16, 1};
    read_ok(&args);
    assert_int_equal(args.problem.out_dtype, ATTNS_DTYPE_F16);
}

static void test_empty_batch(void **state) {
    (void)state;
    static const int empty[] = {Q, Q_SF, WEIGHTS, TABLES, LENS, OUT};
    attns_logits_args args;
    make_call(kDLCUDA);
    for (int i = 0; i < 6; i++) {
        c.shapes[empty[i]][0] = 0;
        c.tensors[empty[i]].data = NULL;
        c.strides[empty[i]][0] = 3;
    }
    read_ok(&args);
    assert_int_equal(args.batch, 0);
    c.params.sf_vec_size = 16;
    assert_int_equal(attns_fp4_args_read(&c.params, kDLCUDA, &args), UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),       cmocka_unit_test(test_query_scales),
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_shared_checks),
        cmocka_unit_test(test_options),     cmocka_unit_test(test_missing_params),
        cmocka_unit_test(test_args),        cmocka_unit_test(test_every_supported_shape),
        cmocka_unit_test(test_empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
