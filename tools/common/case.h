/* SPDX-License-Identifier: MIT
 *
 * One logits call, of either variant, as test data on the host: a description, and the tensors generated from it.
 *
 * What the generator builds in, because tests without it miss faults: randomly permuted blocks, scales that differ by
 * powers of two from token to token (fp4: from group to group), weights of both signs, blocks that no request owns and
 * tokens past a request's end full of NaN, table columns past a request's end full of garbage. */
#ifndef ATTNS_TOOLS_COMMON_CASE_H_
#define ATTNS_TOOLS_COMMON_CASE_H_

#include <attn_scores/attn_scores.h>

enum logits_values {
    LOGITS_VALUES_MODERATE = 0, /* nothing overflows in float16. fp8: 2^-4 .. 2^1.9, both signs; fp4: every code, scales
                                   from 2^-6 to 1 */
    LOGITS_VALUES_ALL_CODES, /* fp8: every finite code alike, 2^-9 to 448; fp4: every code, scales from 2^-50 to 2^50 */
    LOGITS_VALUES_ONE_HOT    /* token p has a single 1.0 at dim p % D, weights and q are small powers of two times
                                small integers: every logit has a closed form that float32 holds exactly */
};

/* All-zero fields mean the default given. Strides and paddings are in elements unless they say bytes. */
struct logits_case {
    attns_variant variant;                          /* default fp8 */
    int batch, next_n, heads, head_dim, block_size; /* all > 0 */
    attns_dtype out_dtype;                          /* default: f32 for fp8, bf16 for fp4 */
    attns_dtype acc_dtype, epi_dtype;               /* of fp8; default f32 */
    bool sf_interleaved;                            /* of fp4: is_kv_sf_interleaved */
    enum logits_values values;

    const int32_t *lens;  /* [B], or [B, next_n] with per_slot_lens; any values. NULL: uniform in [min_len, max_len] */
    int min_len, max_len; /* default max_len: 256 */
    bool per_slot_lens;
    int64_t max_seq_len; /* default: the largest length (lens > 0), at least 1 */

    bool clean, pdl;
    int num_shares; /* > 0: called with a schedule_meta of so many shares */

    int64_t kv_pad_bytes;                     /* between blocks, a multiple of 16 */
    int64_t q_slot_pad, q_request_pad;        /* multiples of 16; as many int32 in q_sf */
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
struct logits_data {
    struct logits_case c;         /* defaults filled in; c.lens is NULL, see lens */
    int value_bytes, scale_bytes; /* of one token: D and 4, or D/2 and D/32 */
    int64_t num_blocks, block_bytes, kv_stride;
    int64_t q_slot_stride, q_request_stride, weights_stride;
    int64_t q_sf_slot_stride, q_sf_request_stride;
    int64_t table_width, table_stride;
    int64_t lens_stride, lens_request_stride;
    int64_t max_seq_len, out_width, out_stride;
    size_t out_element_bytes;
    size_t out_front_bytes; /* guard band and out_offset: bytes before element [0, 0] */
    size_t out_image_bytes; /* both guard bands and everything between */
    size_t q_bytes, q_sf_bytes, kv_bytes, weights_bytes, tables_bytes, lens_bytes;

    uint8_t *q;
    int32_t *q_sf; /* fp4 only */
    uint8_t *kv;
    float *weights;
    int32_t *tables;
    int32_t *lens;
    bool borrowed_kv; /* kv belongs to another logits_data */
};

/* Bytes of poison around an output. */
#define LOGITS_GUARD_BYTES 4096
/* The poison: a NaN in float32, float16 and bfloat16 alike, and no kernel's canonical NaN. */
#define LOGITS_POISON 0xFFA5FFA5u

/* false only if memory is exhausted (a message is printed). */
bool logits_data_make(struct logits_data *data, const struct logits_case *c);
void logits_data_free(struct logits_data *data);

/* The requests chosen[0..count) of `from`, in that order, over the same pool (borrowed: keep `from` alive). Layout
 * paddings as in `like`, whose batch, shapes and lens are ignored; NULL: as in `from`. */
bool logits_data_subset(struct logits_data *data, const struct logits_data *from, const int *chosen, int count,
                        const struct logits_case *like);

/* Every query slot of `from` as a request of its own with next_n 1, over the same pool (borrowed). Row r of one is row
 * r of the other. */
bool logits_data_flatten(struct logits_data *data, const struct logits_data *from);

/* The column where slot t of request b stops: tokens it sees, after all clamping. */
int64_t logits_limit(const struct logits_data *data, int64_t b, int64_t t);
/* The length entry of (b, t); t is ignored for 1-D lens. */
int32_t *logits_len(const struct logits_data *data, int64_t b, int64_t t);
/* First column that clean_logits leaves alone; 0 without it. */
int64_t logits_clean_until(const struct logits_data *data);
/* Whether the variant has the shape and options of the case: fp4 lacks D 32, acc_dtype and epi_dtype. */
bool logits_case_exists(const struct logits_case *c);

/* ---- Numbers of one call ---- */

/* The D numbers of a head of a query slot, and of token `slot` of block `id`, which is in range: q[i] of fp8; fp4 still
 * lacks the scale. */
void logits_q(const struct logits_data *data, int64_t b, int64_t t, int h, float *values);
void logits_k(const struct logits_data *data, int64_t id, int64_t slot, float *values);

/* Scales of groups of 32 numbers; 1 for fp8, whose only scale is the token's. */
double logits_q_scale(const struct logits_data *data, int64_t b, int64_t t, int h, int group);
double logits_k_scale(const struct logits_data *data, int64_t id, int64_t slot, int group);
/* Scale of a whole token; 1 for fp4. */
float logits_token_scale(const struct logits_data *data, int64_t id, int64_t slot);

/* The scale byte of fp4 at a place that honours sf_interleaved. */
uint8_t *fp4_k_scale(const struct logits_data *data, int64_t id, int64_t slot, int group);

float fp8_e4m3(uint8_t code); /* NaN for 0x7f and 0xff */
float fp4_e2m1(uint8_t code); /* of the low 4 bits */
double fp4_e8m0(uint8_t code);

/* One line that tells the cases of a run apart and holds the seed. Returns buffer. */
const char *logits_case_text(const struct logits_case *c, char *buffer, size_t size);

/* The call's tensors over given addresses. Self-referencing: do not copy. */
struct logits_tensors {
    DLTensor q, q_sf, kv, weights, tables, lens, meta, out;
    int64_t q_shape[4], q_strides[4], q_sf_shape[3], q_sf_strides[3], kv_shape[4], kv_strides[4], weights_shape[2],
        weights_strides[2];
    int64_t tables_shape[2], tables_strides[2], lens_shape[2], lens_strides[2], meta_shape[2];
    int64_t out_shape[2], out_strides[2];
};

struct logits_addresses {
    void *q, *q_sf, *kv, *weights, *tables, *lens, *meta; /* meta NULL: no schedule */
    void *out;                                            /* element [0, 0] */
};

/* The params of one call, of the variant's own kind. */
struct logits_call {
    attns_variant variant;
    attns_fp8_paged_mqa_logits_params fp8;
    attns_fp4_paged_mqa_logits_params fp4;
};

/* Fills tensors and call. */
void logits_tensors_make(struct logits_tensors *tensors, struct logits_call *call, const struct logits_data *data,
                         DLDevice device, const struct logits_addresses *at);

attns_status logits_call_run(attns_context *ctx, const struct logits_call *call, CUstream stream);
attns_status logits_call_reference(const struct logits_call *call, const DLTensor *abs_sum);

#endif
