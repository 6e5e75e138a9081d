/* SPDX-License-Identifier: MIT
 *
 * Every wrong argument of fp8_paged_mqa_logits: the status, and a message with the argument's name, the value given and
 * what is accepted; and the variations that are legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/logits_args.h"

/* ---- A valid call -------------------------------------------------------------------------------------------- */

enum { Q, KV, WEIGHTS, TABLES, LENS, META, OUT, NUM_TENSORS, PARAMS };

enum {
    BATCH = 3,
    NEXT_N = 2,
    HEADS = 16,
    DIM = 64,
    BLOCK = 32,
    BLOCKS = 5,
    TABLE_WIDTH = 4,
    WIDTH = 112,
    MAX_LEN = 100
};
enum { ROWS = BATCH * NEXT_N, BLOCK_BYTES = BLOCK * (DIM + 4) };

#define POISON 0xa5

typedef struct call {
    DLTensor tensors[NUM_TENSORS];
    int64_t shapes[NUM_TENSORS][5];
    int64_t strides[NUM_TENSORS][5];
    attns_fp8_paged_mqa_logits_params params;
    _Alignas(16) uint8_t q[BATCH * NEXT_N * HEADS * DIM];
    _Alignas(16) uint8_t kv[BLOCKS * BLOCK_BYTES];
    _Alignas(16) float weights[ROWS * HEADS];
    int32_t tables[BATCH * TABLE_WIDTH];
    int32_t lens[BATCH * NEXT_N];
    int32_t meta[9 * 2];
    uint8_t out[ROWS * WIDTH * sizeof(double)];
} call;

static void set_tensor(call *c, int index, void *data, DLDataType dtype, int ndim, const int64_t *shape) {
    DLTensor *const tensor = &c->tensors[index];
    int64_t stride = 1;
    for (int dim = ndim - 1; dim >= 0; dim--) {
        c->shapes[index][dim] = shape[dim];
        c->strides[index][dim] = stride;
        stride *= shape[dim];
    }
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->shape = c->shapes[index];
    tensor->strides = c->strides[index];
}

static void make_call(call *c, DLDeviceType device_type) {
    static const DLDataType e4m3 = {ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, uint8 = {kDLUInt, 8, 1}, int32 = {kDLInt, 32, 1},
                            float32 = {kDLFloat, 32, 1};
    memset(c, 0, sizeof *c);
    memset(c->out, POISON, sizeof c->out);
    set_tensor(c, Q, c->q, e4m3, 4, (int64_t[]){BATCH, NEXT_N, HEADS, DIM});
    set_tensor(c, KV, c->kv, uint8, 4, (int64_t[]){BLOCKS, BLOCK, 1, DIM + 4});
    set_tensor(c, WEIGHTS, c->weights, float32, 2, (int64_t[]){ROWS, HEADS});
    set_tensor(c, TABLES, c->tables, int32, 2, (int64_t[]){BATCH, TABLE_WIDTH});
    set_tensor(c, LENS, c->lens, int32, 1, (int64_t[]){BATCH});
    set_tensor(c, META, c->meta, int32, 2, (int64_t[]){9, 2});
    set_tensor(c, OUT, c->out, float32, 2, (int64_t[]){ROWS, WIDTH});
    for (int i = 0; i < NUM_TENSORS; i++)
        c->tensors[i].device.device_type = device_type;
    for (int i = 0; i < BATCH; i++)
        c->lens[i] = 40 + i;
    c->params = (attns_fp8_paged_mqa_logits_params){
        .q = &c->tensors[Q],
        .kv_fused = &c->tensors[KV],
        .weights = &c->tensors[WEIGHTS],
        .block_tables = &c->tensors[TABLES],
        .seq_lens = &c->tensors[LENS],
        .schedule_meta = &c->tensors[META],
        .out = &c->tensors[OUT],
        .max_seq_len = MAX_LEN,
    };
}

/* ---- Edits that make it wrong, or another valid one ----------------------------------------------------------- */

typedef enum edit_kind {
    NONE,
    MISSING,
    NO_DATA,
    NO_SHAPE,
    NO_STRIDES,
    RANK,
    CODE,
    BITS,
    LANES,
    DEVICE_TYPE,
    DEVICE_ID,
    OFFSET,
    SHAPE,
    STRIDE,
    MAX_SEQ_LEN,
    ACC,
    EPI,
    CLEAN
} edit_kind;

typedef struct edit {
    int target;
    edit_kind kind;
    int64_t value;
    int dim;
} edit;

/* E(target, kind), E(target, kind, value) or E(target, kind, value, dim) */
#define E(...) EDIT_OF_4(__VA_ARGS__, 0, 0, 0)
#define EDIT_OF_4(target, kind, value, dim, ...)                                                                       \
    { target, kind, value, dim }

static void apply(call *c, const edit *e) {
    const DLTensor **const fields[] = {
        &c->params.q,        &c->params.kv_fused,      &c->params.weights, &c->params.block_tables,
        &c->params.seq_lens, &c->params.schedule_meta, &c->params.out};
    DLTensor *const tensor = e->target < NUM_TENSORS ? &c->tensors[e->target] : NULL;
    switch (e->kind) {
    case NONE:
        break;
    case MISSING:
        *fields[e->target] = NULL;
        break;
    case NO_DATA:
        tensor->data = NULL;
        break;
    case NO_SHAPE:
        tensor->shape = NULL;
        break;
    case NO_STRIDES:
        tensor->strides = NULL;
        break;
    case RANK:
        tensor->ndim = (int)e->value;
        break;
    case CODE:
        tensor->dtype.code = (uint8_t)e->value;
        break;
    case BITS:
        tensor->dtype.bits = (uint8_t)e->value;
        break;
    case LANES:
        tensor->dtype.lanes = (uint16_t)e->value;
        break;
    case DEVICE_TYPE:
        tensor->device.device_type = (DLDeviceType)e->value;
        break;
    case DEVICE_ID:
        tensor->device.device_id = (int)e->value;
        break;
    case OFFSET:
        tensor->byte_offset = (uint64_t)e->value;
        break;
    case SHAPE:
        tensor->shape[e->dim] = e->value;
        break;
    case STRIDE:
        tensor->strides[e->dim] = e->value;
        break;
    case MAX_SEQ_LEN:
        c->params.max_seq_len = e->value;
        break;
    case ACC:
        c->params.acc_dtype = (attns_dtype)e->value;
        break;
    case EPI:
        c->params.epi_dtype = (attns_dtype)e->value;
        break;
    case CLEAN:
        c->params.clean_logits = e->value != 0;
        break;
    }
}

static void apply_all(call *c, const edit *edits) {
    for (int i = 0; i < 5; i++)
        apply(c, &edits[i]);
}

/* ---- Wrong input --------------------------------------------------------------------------------------------- */

#define INVALID     ATTNS_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED ATTNS_ERROR_UNSUPPORTED
#define BIG         (INT64_C(1) << 40)

typedef struct wrong_input {
    edit edits[5];
    attns_status status;
    const char *name;     /* the message starts with it and a colon */
    const char *given;    /* and holds this, */
    const char *accepted; /* and this */
} wrong_input;

static const wrong_input wrong_inputs[] = {
    /* presence */
    {{E(Q, MISSING)}, INVALID, "q", "NULL", "tensor"},
    {{E(KV, MISSING)}, INVALID, "kv_fused", "NULL", "tensor"},
    {{E(WEIGHTS, MISSING)}, INVALID, "weights", "NULL", "tensor"},
    {{E(TABLES, MISSING)}, INVALID, "block_tables", "NULL", "tensor"},
    {{E(LENS, MISSING)}, INVALID, "seq_lens", "NULL", "tensor"},
    {{E(OUT, MISSING)}, INVALID, "out", "NULL", "tensor"},
    {{E(Q, NO_DATA)}, INVALID, "q", "data is NULL", "address"},
    {{E(KV, NO_DATA)}, INVALID, "kv_fused", "data is NULL", "address"},
    {{E(WEIGHTS, NO_DATA)}, INVALID, "weights", "data is NULL", "address"},
    {{E(TABLES, NO_DATA)}, INVALID, "block_tables", "data is NULL", "address"},
    {{E(LENS, NO_DATA)}, INVALID, "seq_lens", "data is NULL", "address"},
    {{E(META, NO_DATA)}, INVALID, "schedule_meta", "data is NULL", "address"},
    {{E(OUT, NO_DATA)}, INVALID, "out", "data is NULL", "address"},
    {{E(OUT, NO_DATA), E(OUT, OFFSET, 64)}, INVALID, "out", "data is NULL", "address"},
    {{E(KV, NO_SHAPE)}, INVALID, "kv_fused", "shape is NULL", "array"},

    /* rank */
    {{E(Q, RANK, 3)}, INVALID, "q", "rank is 3", "accepted: 4"},
    {{E(Q, RANK, 5)}, INVALID, "q", "rank is 5", "accepted: 4"},
    {{E(Q, RANK, -1)}, INVALID, "q", "rank is -1", "accepted: 4"},
    {{E(KV, RANK, 3)}, INVALID, "kv_fused", "rank is 3", "accepted: 4"},
    {{E(WEIGHTS, RANK, 1)}, INVALID, "weights", "rank is 1", "accepted: 2"},
    {{E(TABLES, RANK, 1)}, INVALID, "block_tables", "rank is 1", "accepted: 2"},
    {{E(LENS, RANK, 0)}, INVALID, "seq_lens", "rank is 0", "accepted: 1 to 2"},
    {{E(LENS, RANK, 3)}, INVALID, "seq_lens", "rank is 3", "accepted: 1 to 2"},
    {{E(META, RANK, 1)}, INVALID, "schedule_meta", "rank is 1", "accepted: 2"},
    {{E(OUT, RANK, 3)}, INVALID, "out", "rank is 3", "accepted: 2"},

    /* dtype */
    {{E(Q, CODE, ATTNS_DL_FLOAT8_E5M2)}, INVALID, "q", "float8_e5m2", "float8_e4m3fn"},
    {{E(Q, CODE, ATTNS_DL_FLOAT8_E5M2)}, INVALID, "q", "float8_e5m2", "bits mean other values"},
    {{E(Q, CODE, 11)}, INVALID, "q", "float8_e4m3fnuz", "float8_e4m3fn, or uint8"},
    {{E(Q, CODE, kDLInt)}, INVALID, "q", "int8", "float8_e4m3fn, or uint8"},
    {{E(Q, CODE, kDLFloat), E(Q, BITS, 16)}, INVALID, "q", "float16", "float8_e4m3fn, or uint8"},
    {{E(Q, CODE, 99)}, INVALID, "q", "code 99 of 8 bits", "float8_e4m3fn, or uint8"},
    {{E(Q, LANES, 4)}, INVALID, "q", "float8_e4m3fnx4", "1 lane"},
    {{E(KV, CODE, kDLInt)}, INVALID, "kv_fused", "int8", "accepted: uint8"},
    {{E(KV, CODE, ATTNS_DL_FLOAT8_E5M2)}, INVALID, "kv_fused", "float8_e5m2", "accepted: uint8"},
    {{E(KV, CODE, ATTNS_DL_FLOAT8_E4M3FN)}, INVALID, "kv_fused", "float8_e4m3fn", "accepted: uint8"},
    {{E(KV, LANES, 0)}, INVALID, "kv_fused", "uint8x0", "1 lane"},
    {{E(WEIGHTS, BITS, 16)}, INVALID, "weights", "float16", "accepted: float32"},
    {{E(WEIGHTS, CODE, kDLBfloat), E(WEIGHTS, BITS, 16)}, INVALID, "weights", "bfloat16", "accepted: float32"},
    {{E(WEIGHTS, BITS, 64)}, INVALID, "weights", "float64", "accepted: float32"},
    {{E(WEIGHTS, CODE, kDLInt)}, INVALID, "weights", "int32", "accepted: float32"},
    {{E(TABLES, BITS, 64)}, INVALID, "block_tables", "int64", "accepted: int32"},
    {{E(TABLES, CODE, kDLUInt)}, INVALID, "block_tables", "uint32", "accepted: int32"},
    {{E(LENS, BITS, 64)}, INVALID, "seq_lens", "int64", "accepted: int32"},
    {{E(LENS, CODE, kDLFloat)}, INVALID, "seq_lens", "float32", "accepted: int32"},
    {{E(META, BITS, 64)}, INVALID, "schedule_meta", "int64", "accepted: int32"},
    {{E(OUT, BITS, 8)}, INVALID, "out", "float8", "float32, float16"},
    {{E(OUT, CODE, kDLBfloat)}, INVALID, "out", "bfloat32", "float32, float16"},
    {{E(OUT, CODE, kDLInt)}, INVALID, "out", "int32", "float32, float16"},

    /* sizes that no kernel serves */
    {{E(Q, SHAPE, 10, 2)}, UNSUPPORTED, "q", "num_heads (shape[2]) is 10", "8 to 128 in multiples of 8"},
    {{E(Q, SHAPE, 4, 2)}, UNSUPPORTED, "q", "num_heads (shape[2]) is 4", "8 to 128 in multiples of 8"},
    {{E(Q, SHAPE, 0, 2)}, UNSUPPORTED, "q", "num_heads (shape[2]) is 0", "8 to 128 in multiples of 8"},
    {{E(Q, SHAPE, 136, 2)}, UNSUPPORTED, "q", "num_heads (shape[2]) is 136", "8 to 128 in multiples of 8"},
    {{E(Q, SHAPE, 96, 3)}, UNSUPPORTED, "q", "head_dim (shape[3]) is 96", "32, 64 or 128"},
    {{E(Q, SHAPE, 256, 3)}, UNSUPPORTED, "q", "head_dim (shape[3]) is 256", "32, 64 or 128"},
    {{E(Q, SHAPE, 0, 1)}, UNSUPPORTED, "q", "next_n (shape[1]) is 0", "1 to 8"},
    {{E(Q, SHAPE, 9, 1)}, UNSUPPORTED, "q", "next_n (shape[1]) is 9", "1 to 8"},
    {{E(KV, SHAPE, 1, 1)}, UNSUPPORTED, "kv_fused", "block_size (shape[1]) is 1", "16, 32, 64, 128 or 256"},
    {{E(KV, SHAPE, 8, 1)}, UNSUPPORTED, "kv_fused", "block_size (shape[1]) is 8", "16, 32, 64, 128 or 256"},
    {{E(KV, SHAPE, 48, 1)}, UNSUPPORTED, "kv_fused", "block_size (shape[1]) is 48", "16, 32, 64, 128 or 256"},
    {{E(KV, SHAPE, 1152, 1)}, UNSUPPORTED, "kv_fused", "block_size (shape[1]) is 1152", "16, 32, 64, 128 or 256"},

    /* sizes that disagree */
    {{E(Q, SHAPE, -3, 0)}, INVALID, "q", "shape[0] is -3", "0 or more"},
    {{E(Q, SHAPE, INT64_C(1) << 30, 0), E(Q, STRIDE, 0, 0)}, INVALID, "q", "is 1073741824", "0 to 1073741823"},
    {{E(KV, SHAPE, 0, 0)}, INVALID, "kv_fused", "shape[0] is 0", "1 to 2147483647 (num_blocks)"},
    {{E(KV, SHAPE, INT64_C(1) << 31, 0)}, INVALID, "kv_fused", "is 2147483648", "1 to 2147483647 (num_blocks)"},
    {{E(KV, SHAPE, 2, 2)}, INVALID, "kv_fused", "shape[2] is 2", "accepted: 1"},
    {{E(KV, SHAPE, DIM, 3)}, INVALID, "kv_fused", "shape[3] is 64", "accepted: 68 (D+4 with D of q)"},
    {{E(WEIGHTS, SHAPE, BATCH, 0)}, INVALID, "weights", "shape[0] is 3", "accepted: 6 (B*next_n of q)"},
    {{E(WEIGHTS, SHAPE, 8, 1)}, INVALID, "weights", "shape[1] is 8", "accepted: 16 (H of q)"},
    {{E(TABLES, SHAPE, 4, 0)}, INVALID, "block_tables", "shape[0] is 4", "accepted: 3 (B of q)"},
    {{E(TABLES, SHAPE, INT64_C(1) << 31, 1)}, INVALID, "block_tables", "is 2147483648", "0 to 2147483647"},
    {{E(LENS, SHAPE, ROWS, 0)}, INVALID, "seq_lens", "shape[0] is 6", "accepted: 3 (B of q)"},
    {{E(LENS, RANK, 2), E(LENS, SHAPE, 3, 1), E(LENS, STRIDE, 3, 0), E(LENS, STRIDE, 1, 1)},
     INVALID,
     "seq_lens",
     "shape[1] is 3",
     "accepted: 2 (next_n of q)"},
    {{E(OUT, SHAPE, BATCH, 0)}, INVALID, "out", "shape[0] is 3", "accepted: 6 (B*next_n of q)"},
    {{E(OUT, SHAPE, 99, 1)}, INVALID, "out", "shape[1] is 99", "accepted: 100 (max_seq_len) or more"},
    {{E(META, SHAPE, 1, 0)}, INVALID, "schedule_meta", "shape[0] is 1", "2 to 2147483647 (num_sms+1)"},
    {{E(META, SHAPE, 3, 1)}, INVALID, "schedule_meta", "shape[1] is 3", "accepted: 2"},

    /* strides */
    {{E(Q, STRIDE, 2, 3)}, INVALID, "q", "stride[3] is 2", "accepted: 1 (dense)"},
    {{E(Q, STRIDE, 80, 2)}, INVALID, "q", "stride[2] is 80", "accepted: 64 (dense)"},
    {{E(Q, STRIDE, HEADS *DIM + 8, 1)}, INVALID, "q", "stride[1] is 1032", "multiple of 16 bytes"},
    {{E(Q, STRIDE, 2 * HEADS * DIM + 4, 0)}, INVALID, "q", "stride[0] is 2052", "multiple of 16 bytes"},
    {{E(Q, STRIDE, BIG, 0)}, INVALID, "q", "stride[0] is 1099511627776", "at most 1099511627760 elements"},
    {{E(Q, STRIDE, BIG, 1)}, INVALID, "q", "stride[1] is 1099511627776", "below 2^40 bytes"},
    {{E(Q, STRIDE, -2048, 0)}, INVALID, "q", "stride[0] is -2048", "0 or more"},
    {{E(Q, STRIDE, INT64_MAX, 0)}, INVALID, "q", "stride 9223372036854775807", "less than 2^63 bytes"},
    {{E(WEIGHTS, STRIDE, INT64_MAX / 2, 0)}, INVALID, "weights", "stride 4611686018427387903", "less than 2^63 bytes"},
    {{E(KV, STRIDE, 2, 3)}, INVALID, "kv_fused", "stride[3] is 2", "accepted: 1 (dense)"},
    {{E(KV, STRIDE, DIM + 8, 1)}, INVALID, "kv_fused", "stride[1] is 72", "accepted: 68 (dense)"},
    {{E(KV, STRIDE, BLOCK_BYTES + 8, 0)}, INVALID, "kv_fused", "stride[0] is 2184", "multiple of 16 bytes"},
    {{E(KV, STRIDE, BLOCK_BYTES - 16, 0)}, INVALID, "kv_fused", "stride[0] is 2160", "at least 2176"},
    {{E(KV, STRIDE, 0, 0)}, INVALID, "kv_fused", "stride[0] is 0", "at least 2176"},
    {{E(KV, STRIDE, BIG, 0)}, INVALID, "kv_fused", "stride[0] is 1099511627776", "below 2^40 bytes"},
    {{E(KV, STRIDE, -BLOCK_BYTES, 0)}, INVALID, "kv_fused", "stride[0] is -2176", "0 or more"},
    {{E(WEIGHTS, STRIDE, 2, 1)}, INVALID, "weights", "stride[1] is 2", "accepted: 1 (dense)"},
    {{E(WEIGHTS, STRIDE, HEADS + 2, 0)}, INVALID, "weights", "stride[0] is 18", "16 bytes (given: 72 bytes)"},
    {{E(TABLES, STRIDE, 2, 1)}, INVALID, "block_tables", "stride[1] is 2", "accepted: 1 (dense)"},
    {{E(TABLES, STRIDE, -4, 0)}, INVALID, "block_tables", "stride[0] is -4", "0 or more"},
    {{E(LENS, STRIDE, -1, 0)}, INVALID, "seq_lens", "stride[0] is -1", "0 or more"},
    {{E(META, STRIDE, 4, 0)}, INVALID, "schedule_meta", "stride[0] is 4", "accepted: 2 (dense)"},
    {{E(OUT, STRIDE, 2, 1)}, INVALID, "out", "stride[1] is 2", "accepted: 1 (dense)"},
    {{E(OUT, STRIDE, MAX_LEN - 1, 0)}, INVALID, "out", "stride[0] is 99", "at least 100"},
    {{E(OUT, STRIDE, 0, 0)}, INVALID, "out", "stride[0] is 0", "rows may not overlap"},

    /* addresses */
    {{E(Q, OFFSET, 8)}, INVALID, "q", "address is 0x", "multiple of 16 bytes"},
    {{E(KV, OFFSET, 4)}, INVALID, "kv_fused", "address is 0x", "multiple of 16 bytes"},
    {{E(WEIGHTS, OFFSET, 4)}, INVALID, "weights", "address is 0x", "multiple of 16 bytes"},
    {{E(TABLES, OFFSET, 2)}, INVALID, "block_tables", "address is 0x", "multiple of 4 bytes"},
    {{E(LENS, OFFSET, 1)}, INVALID, "seq_lens", "address is 0x", "multiple of 4 bytes"},
    {{E(META, OFFSET, 2)}, INVALID, "schedule_meta", "address is 0x", "multiple of 4 bytes"},
    {{E(OUT, OFFSET, 2)}, INVALID, "out", "address is 0x", "multiple of 4 bytes"},
    {{E(OUT, BITS, 16), E(OUT, OFFSET, 1)}, INVALID, "out", "address is 0x", "multiple of 2 bytes"},

    /* scalars */
    {{E(PARAMS, MAX_SEQ_LEN, -1)}, INVALID, "max_seq_len", "is -1", "0 to 2147483647"},
    {{E(PARAMS, MAX_SEQ_LEN, INT64_C(1) << 31)}, INVALID, "max_seq_len", "is 2147483648", "0 to 2147483647"},
    {{E(PARAMS, MAX_SEQ_LEN, 0), E(OUT, SHAPE, INT64_C(1) << 31, 1), E(OUT, STRIDE, INT64_C(1) << 31, 0)},
     INVALID,
     "max_seq_len",
     "the width of out, 2147483648",
     "0 to 2147483647"},
    {{E(PARAMS, ACC, ATTNS_DTYPE_BF16)}, UNSUPPORTED, "acc_dtype", "bf16", "f32 or f16"},
    {{E(PARAMS, ACC, 4)}, INVALID, "acc_dtype", "is 4", "f32"},
    {{E(PARAMS, ACC, -1)}, INVALID, "acc_dtype", "is -1", "f32"},
    {{E(PARAMS, EPI, ATTNS_DTYPE_BF16)}, UNSUPPORTED, "epi_dtype", "bf16", "f32 or f16"},
    {{E(PARAMS, EPI, 99)}, INVALID, "epi_dtype", "is 99", "f32"},
};

/* Wrong for the call on a device only. */
static const wrong_input wrong_devices[] = {
    {{E(Q, DEVICE_TYPE, kDLCPU)}, INVALID, "q", "device is cpu", "a CUDA device"},
    {{E(Q, DEVICE_TYPE, kDLROCM), E(Q, DEVICE_ID, 3)}, INVALID, "q", "device is rocm:3", "a CUDA device"},
    {{E(LENS, DEVICE_TYPE, kDLCUDAHost)}, INVALID, "seq_lens", "device is cuda_host", "a CUDA device"},
    {{E(TABLES, DEVICE_TYPE, 77)}, INVALID, "block_tables", "device type 77", "a CUDA device"},
    {{E(Q, DEVICE_ID, 1)}, INVALID, "kv_fused", "device is cuda:0", "cuda:1, as q"},
    {{E(WEIGHTS, DEVICE_ID, 2)}, INVALID, "weights", "device is cuda:2", "cuda:0, as q"},
    {{E(META, DEVICE_ID, 1)}, INVALID, "schedule_meta", "device is cuda:1", "cuda:0, as q"},
    {{E(OUT, DEVICE_ID, 1)}, INVALID, "out", "device is cuda:1", "cuda:0, as q"},
    {{E(Q, DEVICE_TYPE, kDLCUDAManaged), E(OUT, DEVICE_ID, 1)},
     INVALID,
     "out",
     "device is cuda:1",
     "cuda:0, as kv_fused"},
    {{E(OUT, BITS, 64)}, INVALID, "out", "float64", "accepted: float32, float16 or bfloat16"},
};

/* And for the reference only. */
static const wrong_input wrong_hosts[] = {
    {{E(Q, DEVICE_TYPE, kDLCUDA)}, INVALID, "q", "device is cuda:0", "host memory"},
    {{E(KV, DEVICE_TYPE, kDLCUDAManaged)}, INVALID, "kv_fused", "device is cuda_managed", "host memory"},
    {{E(OUT, BITS, 64), E(OUT, OFFSET, 4)}, INVALID, "out", "address is 0x", "multiple of 8 bytes"},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static void check_failure(const wrong_input *row, int index, attns_status status) {
    const char *const message = attns_last_error();
    char start[32];
    snprintf(start, sizeof start, "%s: ", row->name);
    if (status != row->status || strncmp(message, start, strlen(start)) != 0 || !strstr(message, row->given) ||
        !strstr(message, row->accepted) || !strstr(message, "accepted"))
        fail_msg("row %d (%s, %s): status %d (%s), message \"%s\"", index, row->name, row->given, (int)status,
                 attns_status_string(status), message);
}

static void check_rows(const wrong_input *rows, int count, DLDeviceType device_type) {
    static call c;
    static attns_logits_args args;
    for (int i = 0; i < count; i++) {
        make_call(&c, device_type);
        apply_all(&c, rows[i].edits);
        check_failure(&rows[i], i, attns_fp8_args_read(&c.params, device_type, &args));
        if (device_type != kDLCPU)
            continue;
        check_failure(&rows[i], i, attns_reference_fp8_paged_mqa_logits(&c.params, NULL));
        for (size_t byte = 0; byte < sizeof c.out; byte++)
            assert_int_equal(c.out[byte], POISON);
    }
}

static void test_wrong_input(void **state) {
    (void)state;
    check_rows(wrong_inputs, COUNT(wrong_inputs), kDLCUDA);
    check_rows(wrong_inputs, COUNT(wrong_inputs), kDLCPU);
    check_rows(wrong_devices, COUNT(wrong_devices), kDLCUDA);
    check_rows(wrong_hosts, COUNT(wrong_hosts), kDLCPU);
}

static void test_missing_params(void **state) {
    (void)state;
    attns_logits_args args;
    assert_int_equal(attns_fp8_args_read(NULL, kDLCUDA, &args), INVALID);
    assert_string_equal(attns_last_error(), "params: is NULL, accepted: a params struct");
}

/* ---- Legal input --------------------------------------------------------------------------------------------- */

static const edit legal_inputs[][5] = {
    {E(PARAMS, NONE)},
    {E(META, MISSING)},
    {E(Q, CODE, kDLUInt)},
    {E(Q, NO_STRIDES), E(KV, NO_STRIDES), E(WEIGHTS, NO_STRIDES), E(LENS, NO_STRIDES), E(OUT, NO_STRIDES)},
    {E(META, NO_STRIDES), E(TABLES, NO_STRIDES)},
    {E(OUT, BITS, 16)},
    {E(OUT, BITS, 16), E(OUT, CODE, kDLBfloat)},
    {E(OUT, BITS, 16), E(OUT, OFFSET, 2)},
    {E(LENS, STRIDE, 0, 0)}, /* one length for all */
    {E(LENS, STRIDE, 2, 0)}, /* a column of a wider array */
    {E(LENS, RANK, 2), E(LENS, SHAPE, 2, 1), E(LENS, STRIDE, 2, 0), E(LENS, STRIDE, 1, 1)},
    {E(LENS, RANK, 2), E(LENS, SHAPE, 2, 1), E(LENS, STRIDE, 1, 0), E(LENS, STRIDE, 3, 1)}, /* transposed */
    {E(LENS, RANK, 2), E(LENS, SHAPE, 2, 1), E(LENS, STRIDE, 0, 0), E(LENS, STRIDE, 0, 1)}, /* broadcast */
    {E(KV, STRIDE, BLOCK_BYTES + 16, 0), E(KV, SHAPE, 4, 0)}, /* a view of a larger pool */
    {E(KV, STRIDE, BIG - 16, 0)},
    {E(KV, STRIDE, 12345, 2)}, /* a stride of a dimension of size 1 says nothing, */
    {E(KV, STRIDE, -7, 2)},    /* even if negative */
    {E(KV, SHAPE, 1, 0), E(KV, STRIDE, 3, 0)},
    {E(Q, STRIDE, HEADS *DIM + 16, 1), E(Q, STRIDE, 3 * HEADS * DIM, 0)},
    {E(Q, STRIDE, 0, 0), E(Q, STRIDE, 0, 1)},
    {E(WEIGHTS, STRIDE, HEADS + 4, 0)},
    {E(WEIGHTS, STRIDE, 0, 0)},
    {E(TABLES, STRIDE, 1, 0)},    /* rows of a table are only read: they may overlap, */
    {E(TABLES, STRIDE, 0, 0)},    /* be the same, */
    {E(TABLES, STRIDE, 1001, 0)}, /* or lie anywhere */
    {E(TABLES, OFFSET, 4)},
    {E(TABLES, SHAPE, 0, 1), E(TABLES, NO_DATA)}, /* no token is reachable */
    {E(OUT, STRIDE, MAX_LEN, 0)},                 /* rows as close as what is written */
    {E(OUT, STRIDE, 1001, 0), E(OUT, OFFSET, 4)},
    {E(OUT, SHAPE, MAX_LEN, 1)},
    {E(META, SHAPE, 2, 0)},
    {E(META, OFFSET, 4)},
    {E(PARAMS, MAX_SEQ_LEN, 0)},
    {E(PARAMS, MAX_SEQ_LEN, WIDTH)},
    {E(PARAMS, MAX_SEQ_LEN, 1)},
    {E(PARAMS, ACC, ATTNS_DTYPE_F32), E(PARAMS, EPI, ATTNS_DTYPE_F32)},
    {E(PARAMS, ACC, ATTNS_DTYPE_F16), E(PARAMS, EPI, ATTNS_DTYPE_F16)},
};

static const edit legal_devices[][5] = {
    {E(Q, DEVICE_TYPE, kDLCUDAManaged)},
    {E(OUT, DEVICE_TYPE, kDLCUDAManaged), E(LENS, DEVICE_TYPE, kDLCUDAManaged)},
};

static const edit legal_hosts[][5] = {
    {E(Q, DEVICE_TYPE, kDLCUDAHost), E(OUT, DEVICE_TYPE, kDLCUDAHost)},
    {E(OUT, BITS, 64)},
};

static void check_legal(const edit (*rows)[5], int count, DLDeviceType device_type) {
    static call c;
    static attns_logits_args args;
    for (int i = 0; i < count; i++) {
        make_call(&c, device_type);
        apply_all(&c, rows[i]);
        if (attns_fp8_args_read(&c.params, device_type, &args) != ATTNS_OK)
            fail_msg("row %d: \"%s\"", i, attns_last_error());
        assert_int_equal(args.batch, BATCH);
    }
}

static void test_legal_input(void **state) {
    (void)state;
    check_legal(legal_inputs, COUNT(legal_inputs), kDLCUDA);
    check_legal(legal_inputs, COUNT(legal_inputs), kDLCPU);
    check_legal(legal_devices, COUNT(legal_devices), kDLCUDA);
    check_legal(legal_hosts, COUNT(legal_hosts), kDLCPU);
}

/* All tensors on a device other than the first. */
static void test_second_device(void **state) {
    (void)state;
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    for (int i = 0; i < NUM_TENSORS; i++)
        c.tensors[i].device.device_id = 1;
    assert_int_equal(attns_fp8_args_read(&c.params, kDLCUDA, &args), ATTNS_OK);
    assert_int_equal(args.q.device.device_id, 1);
    c.tensors[KV].device = (DLDevice){kDLCUDAManaged, 0};
    assert_int_equal(attns_fp8_args_read(&c.params, kDLCUDA, &args), ATTNS_OK);
}

static void test_every_supported_shape(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 128}, blocks[] = {16, 32, 64, 128, 256};
    static call c;
    attns_logits_args args;
    for (int heads = 0; heads <= 136; heads++)
        for (int d = 0; d < COUNT(dims); d++)
            for (int b = 0; b < COUNT(blocks); b++)
                for (int next_n = 1; next_n <= 8; next_n++) {
                    make_call(&c, kDLCUDA); /* nothing is read: the buffers need not be that large */
                    for (int i = 0; i < NUM_TENSORS; i++)
                        c.tensors[i].strides = NULL;
                    memcpy(c.shapes[Q], (int64_t[]){BATCH, next_n, heads, dims[d]}, 4 * sizeof(int64_t));
                    memcpy(c.shapes[KV], (int64_t[]){BLOCKS, blocks[b], 1, dims[d] + 4}, 4 * sizeof(int64_t));
                    memcpy(c.shapes[WEIGHTS], (int64_t[]){BATCH * next_n, heads}, 2 * sizeof(int64_t));
                    c.shapes[OUT][0] = BATCH * next_n;
                    const attns_status status = attns_fp8_args_read(&c.params, kDLCUDA, &args);
                    assert_int_equal(status, heads >= 8 && heads <= 128 && heads % 8 == 0 ? ATTNS_OK : UNSUPPORTED);
                    if (status != ATTNS_OK)
                        continue;
                    assert_int_equal(args.problem.kind, ATTNS_KERNEL_FP8_LOGITS);
                    assert_int_equal(args.problem.num_heads, heads);
                    assert_int_equal(args.problem.head_dim, dims[d]);
                    assert_int_equal(args.problem.block_size, blocks[b]);
                    assert_int_equal(args.problem.next_n, next_n);
                    assert_int_equal(args.problem.out_dtype, ATTNS_DTYPE_F32);
                    assert_int_equal(args.problem.acc_dtype, ATTNS_DTYPE_F32);
                    assert_int_equal(args.problem.epi_dtype, ATTNS_DTYPE_F32);
                }
}

/* ---- What the struct says ------------------------------------------------------------------------------------- */

static void read_ok(call *c, attns_logits_args *args) {
    if (attns_fp8_args_read(&c->params, kDLCUDA, args) != ATTNS_OK)
        fail_msg("\"%s\"", attns_last_error());
}

static void test_args(void **state) {
    (void)state;
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    c.params.enable_pdl = true;
    c.params.acc_dtype = ATTNS_DTYPE_F16;
    c.tensors[KV].byte_offset = 32;
    c.strides[OUT][0] = 1001;
    c.strides[LENS][0] = 2;
    read_ok(&c, &args);
    assert_int_equal(args.num_blocks, BLOCKS);
    assert_int_equal(args.table_width, TABLE_WIDTH);
    assert_int_equal(args.max_seq_len, MAX_LEN);
    assert_int_equal(args.clean_until, 0);
    assert_int_equal(args.num_shares, 8);
    assert_false(args.per_slot_lens);
    assert_true(args.enable_pdl);
    assert_int_equal(args.problem.acc_dtype, ATTNS_DTYPE_F16);
    assert_int_equal(args.problem.epi_dtype, ATTNS_DTYPE_F32);
    assert_ptr_equal(args.kv.data, (char *)c.kv + 32);
    assert_int_equal(args.out.stride[0], 4004);
    assert_int_equal(args.seq_lens.stride[0], 8);
    assert_int_equal(args.q.stride[0], NEXT_N * HEADS * DIM);
    assert_int_equal(args.q.stride[1], HEADS * DIM);

    c.params.schedule_meta = NULL;
    read_ok(&c, &args);
    assert_int_equal(args.num_shares, 0);
    assert_null(args.schedule_meta.data);
}

static void test_lengths(void **state) {
    (void)state;
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    c.params.clean_logits = true;
    c.params.max_seq_len = 0;
    read_ok(&c, &args);
    assert_int_equal(args.max_seq_len, WIDTH);
    assert_int_equal(args.clean_until, WIDTH);

    c.shapes[TABLES][1] = 3; /* 96 tokens are reachable */
    read_ok(&c, &args);
    assert_int_equal(args.max_seq_len, 96);
    assert_int_equal(args.clean_until, WIDTH);

    c.params.max_seq_len = 50;
    read_ok(&c, &args);
    assert_int_equal(args.max_seq_len, 50);
    assert_int_equal(args.clean_until, 50);

    c.shapes[TABLES][1] = 0;
    read_ok(&c, &args);
    assert_int_equal(args.max_seq_len, 0);

    /* The largest of everything stays within 64 bits. */
    c.shapes[TABLES][1] = INT32_MAX;
    c.shapes[OUT][1] = INT32_MAX;
    c.strides[OUT][0] = INT32_MAX;
    c.params.max_seq_len = INT32_MAX;
    read_ok(&c, &args);
    assert_int_equal(args.max_seq_len, INT32_MAX);
    assert_int_equal(args.out.stride[0], INT64_C(4) * INT32_MAX);
}

static void test_out_dtypes(void **state) {
    (void)state;
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    c.tensors[OUT].dtype.bits = 16;
    read_ok(&c, &args);
    assert_int_equal(args.problem.out_dtype, ATTNS_DTYPE_F16);
    assert_int_equal(args.out.stride[0], 2 * WIDTH);
    c.tensors[OUT].dtype.code = kDLBfloat;
    read_ok(&c, &args);
    assert_int_equal(args.problem.out_dtype, ATTNS_DTYPE_BF16);
}

static void test_two_dimensional_lengths(void **state) {
    (void)state;
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    c.tensors[LENS].ndim = 2;
    c.shapes[LENS][1] = NEXT_N;
    c.strides[LENS][0] = 1;
    c.strides[LENS][1] = 3;
    read_ok(&c, &args);
    assert_true(args.per_slot_lens);
    assert_int_equal(args.seq_lens.stride[0], 4);
    assert_int_equal(args.seq_lens.stride[1], 12);
}

/* B == 0 is success whatever the empty tensors' addresses and strides are, but a wrong dtype or size stays wrong. */
static void test_empty_batch(void **state) {
    (void)state;
    static const int empty[] = {Q, WEIGHTS, TABLES, LENS, OUT};
    static call c;
    attns_logits_args args;
    make_call(&c, kDLCUDA);
    for (int i = 0; i < COUNT(empty); i++) {
        c.shapes[empty[i]][0] = 0;
        c.tensors[empty[i]].data = NULL;
        c.strides[empty[i]][0] = 3;
    }
    read_ok(&c, &args);
    assert_int_equal(args.batch, 0);
    c.shapes[KV][0] = 0;
    c.tensors[KV].data = NULL;
    read_ok(&c, &args);
    assert_int_equal(args.batch, 0);
    c.params.max_seq_len = 0;
    c.shapes[OUT][1] = 0;
    read_ok(&c, &args);
    assert_int_equal(args.batch, 0);
    c.tensors[Q].data = c.q + 1;
    read_ok(&c, &args);
    assert_int_equal(args.batch, 0);

    c.shapes[Q][2] = 12;
    assert_int_equal(attns_fp8_args_read(&c.params, kDLCUDA, &args), UNSUPPORTED);
    c.shapes[Q][2] = HEADS;
    c.tensors[LENS].dtype.bits = 64;
    assert_int_equal(attns_fp8_args_read(&c.params, kDLCUDA, &args), INVALID);
    c.tensors[LENS].dtype.bits = 32;
    c.params.q = NULL;
    assert_int_equal(attns_fp8_args_read(&c.params, kDLCUDA, &args), INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_input),
        cmocka_unit_test(test_missing_params),
        cmocka_unit_test(test_legal_input),
        cmocka_unit_test(test_second_device),
        cmocka_unit_test(test_every_supported_shape),
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_out_dtypes),
        cmocka_unit_test(test_two_dimensional_lengths),
        cmocka_unit_test(test_empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
