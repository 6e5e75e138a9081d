/* SPDX-License-Identifier: MIT
 *
 * One fp8_paged_mqa_logits call as test data on the host: a description, and the tensors generated from it.
 *
 * What the generator builds in, because tests without it miss faults: randomly permuted blocks, scales that differ by
 * powers of two from token to token, weights of both signs, blocks that no request owns and tokens past a request's
 * end full of NaN, table columns past a request's end full of garbage. */
#ifndef ATTNS_TOOLS_COMMON_CASE_H_
#define ATTNS_TOOLS_COMMON_CASE_H_

#include <attn_scores/attn_scores.h>

enum fp8_values {
    FP8_VALUES_MODERATE = 0, /* 2^-4 .. 2^1.9, both signs: nothing overflows in float16 */
    FP8_VALUES_ALL_CODES,    /* every finite E4M3 code alike: magnitudes from 2^-9 to 448 */
    FP8_VALUES_ONE_HOT       /* token p has a single 1.0 at dim p % D, weights and q are small powers of two times small
                                integers: every logit has a closed form that float32 holds exactly */
};

/* All-zero fields mean the default given. Strides and paddings are in elements unless they say bytes. */
struct fp8_case {
    int batch, next_n, heads, head_dim, block_size; /* all > 0 */
    attns_dtype out_dtype, acc_dtype, epi_dtype;    /* default f32 */
    enum fp8_values values;

    const int32_t *lens;  /* [B], or [B, next_n] with per_slot_lens; any values. NULL: uniform in [min_len, max_len] */
    int min_len, max_len; /* default max_len: 256 */
    bool per_slot_lens;
    int64_t max_seq_len; /* default: the largest length (lens > 0), at least 1 */

    bool clean, pdl;
    int num_shares; /* > 0: called with a schedule_meta of so many shares */

    int64_t kv_pad_bytes;                     /* between blocks, a multiple of 16 */
    int64_t q_slot_pad, q_request_pad;        /* multiples of 16 */
    int64_t weights_pad;                      /* a multiple of 4 */
    int64_t table_width;                      /* default: what the longest request needs, plus table_extra */
    int64_t table_extra, table_pad;           /* columns of garbage; elements between rows */
    int64_t lens_stride, lens_request_stride; /* default: compact. lens_stride is that of the last dimension */
    int64_t out_extra, out_pad, out_offset;   /* columns past max_seq_len; elements between rows; before the first */
    bool bare_out;                            /* no guard bands around out (for buffers that end at a guard page) */

    int64_t pool_blocks; /* default: every request has blocks of its own. Otherwise all pick from so many, which keeps
                            the pool of a huge batch small */
    uint64_t seed;
};

/* Everything generated. Read-only once made, so that threads may share it. */
struct fp8_data {
    struct fp8_case c; /* defaults filled in; c.lens is NULL, see lens */
    int64_t num_blocks, block_bytes, kv_stride;
    int64_t q_slot_stride, q_request_stride, weights_stride;
    int64_t table_width, table_stride;
    int64_t lens_stride, lens_request_stride;
    int64_t max_seq_len, out_width, out_stride;
    size_t out_element_bytes;
    size_t out_front_bytes; /* guard band and out_offset: bytes before element [0, 0] */
    size_t out_image_bytes; /* both guard bands and everything between */
    size_t q_bytes, kv_bytes, weights_bytes, tables_bytes, lens_bytes;

    uint8_t *q;
    uint8_t *kv;
    float *weights;
    int32_t *tables;
    int32_t *lens;
    bool borrowed_kv; /* kv belongs to another fp8_data */
};

/* Bytes of poison around an output. */
#define FP8_GUARD_BYTES 4096
/* The poison: a NaN in float32, float16 and bfloat16 alike, and no kernel's canonical NaN. */
#define FP8_POISON 0xFFA5FFA5u

/* false only if memory is exhausted (a message is printed). */
bool fp8_data_make(struct fp8_data *data, const struct fp8_case *c);
void fp8_data_free(struct fp8_data *data);

/* The requests chosen[0..count) of `from`, in that order, over the same pool (borrowed: keep `from` alive). Layout
 * paddings as in `like`, whose batch, shapes and lens are ignored; NULL: as in `from`. */
bool fp8_data_subset(struct fp8_data *data, const struct fp8_data *from, const int *chosen, int count,
                     const struct fp8_case *like);

/* Every query slot of `from` as a request of its own with next_n 1, over the same pool (borrowed). Row r of one is row
 * r of the other. */
bool fp8_data_flatten(struct fp8_data *data, const struct fp8_data *from);

/* The column where slot t of request b stops: tokens it sees, after all clamping. */
int64_t fp8_limit(const struct fp8_data *data, int64_t b, int64_t t);
/* The length entry of (b, t); t is ignored for 1-D lens. */
int32_t *fp8_len(const struct fp8_data *data, int64_t b, int64_t t);
/* First column that clean_logits leaves alone; 0 without it. */
int64_t fp8_clean_until(const struct fp8_data *data);
/* Scale of token `slot` of block `id`, which is in range. */
float fp8_scale(const struct fp8_data *data, int64_t id, int64_t slot);

/* Value of an E4M3 (fn) byte; NaN for 0x7f and 0xff. */
float fp8_e4m3(uint8_t code);

/* One line that tells the cases of a run apart and holds the seed. Returns buffer. */
const char *fp8_case_text(const struct fp8_case *c, char *buffer, size_t size);

/* The call's tensors over given addresses. Self-referencing: do not copy. */
struct fp8_tensors {
    DLTensor q, kv, weights, tables, lens, meta, out;
    int64_t q_shape[4], q_strides[4], kv_shape[4], kv_strides[4], weights_shape[2], weights_strides[2];
    int64_t tables_shape[2], tables_strides[2], lens_shape[2], lens_strides[2], meta_shape[2];
    int64_t out_shape[2], out_strides[2];
};

struct fp8_addresses {
    void *q, *kv, *weights, *tables, *lens, *meta; /* meta NULL: no schedule */
    void *out;                                     /* element [0, 0] */
};

/* Fills tensors and the params of the call. */
void fp8_tensors_make(struct fp8_tensors *tensors, attns_fp8_paged_mqa_logits_params *params,
                      const struct fp8_data *data, DLDevice device, const struct fp8_addresses *at);

#endif
