/* SPDX-License-Identifier: MIT */
#include "common/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rng.h"

#define E4M3_NAN 0x7f
#define E4M3_ONE 0x38
#define E2M1_ONE 0x2

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static void *alloc_zero(size_t bytes) {
    size_t rounded = (bytes + 127) / 64 * 64;
    void *p = aligned_alloc(64, rounded);
    if (p)
        memset(p, 0, rounded);
    else
        fprintf(stderr, "test data: out of memory (%zu bytes)\n", bytes);
    return p;
}

bool logits_case_exists(const struct logits_case *c) {
    if (c->variant != ATTNS_VARIANT_FP4)
        return true;
    return c->head_dim != 32 && c->acc_dtype <= ATTNS_DTYPE_F32 && c->epi_dtype <= ATTNS_DTYPE_F32;
}

/* ---- Numbers ---- */

/* Maps a random byte to bytes of the wanted distribution. Every byte is two numbers of fp4, whose magnitudes are left
 * to the scales. */
static void make_code_table(attns_variant variant, enum logits_values values, uint8_t table[256]) {
    for (int i = 0; i < 256; i++) {
        uint8_t sign = (uint8_t)(i & 0x80);
        if (variant == ATTNS_VARIANT_FP4)
            table[i] = (uint8_t)i;
        else if (values == LOGITS_VALUES_ALL_CODES)
            table[i] = (uint8_t)((i & 0x7f) == E4M3_NAN ? sign | E4M3_ONE : i);
        else if (values == LOGITS_VALUES_ONE_HOT) /* 0 or an integer 1..3 times 2^-1..2^1 */
            table[i] = (uint8_t)(i % 8 == 0 ? 0 : sign | ((6 + i % 3) << 3) | (i % 2 ? 4 : 0));
        else
            table[i] = (uint8_t)(sign | ((3 + (i & 0x7f) / 8 % 6) << 3) | (i & 7));
    }
}

static void fill_codes(struct rng *r, const uint8_t table[256], uint8_t *out, int64_t count) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t bits = rng_next(r);
        for (int k = 0; k < 8; k++)
            out[i + k] = table[(bits >> (8 * k)) & 255];
    }
    for (; i < count; i++)
        out[i] = table[rng_next(r) & 255];
}

/* A random scale of fp4. The moderate ones keep dot products below 2^10; those of ONE_HOT are of groups without the
 * one, where they must not matter. */
static uint8_t random_scale(struct rng *r, enum logits_values values, bool is_key) {
    switch (values) {
    case LOGITS_VALUES_ALL_CODES:
        return (uint8_t)rng_range(r, 127 - 50, 127 + 50);
    case LOGITS_VALUES_ONE_HOT:
        return (uint8_t)(is_key ? rng_range(r, 1, 254) : rng_range(r, 127 - 4, 127 + 4));
    default:
        return (uint8_t)(is_key ? rng_range(r, 127 - 6, 127 - 2) : rng_range(r, 127 - 4, 127));
    }
}

/* 2^-8 .. 2^8, another one for each token. */
static int token_exponent(int64_t token) {
    return (int)(7 * token % 17) - 8;
}

static void put_token_scale(struct logits_data *d, int64_t id, int64_t slot, float scale) {
    memcpy(d->kv + id * d->kv_stride + (int64_t)d->c.block_size * d->value_bytes + slot * 4, &scale, sizeof scale);
}

/* Makes NaN of everything that a token scores. */
static void put_nan_scale(struct logits_data *d, int64_t id, int64_t slot) {
    if (d->c.variant == ATTNS_VARIANT_FP4)
        for (int g = 0; g < d->scale_bytes; g++)
            *fp4_k_scale(d, id, slot, g) = 0xff;
    else
        put_token_scale(d, id, slot, NAN);
}

/* ---- Lengths ---- */

int32_t *logits_len(const struct logits_data *d, int64_t b, int64_t t) {
    return d->lens + (d->c.per_slot_lens ? b * d->lens_request_stride + t * d->lens_stride : b * d->lens_stride);
}

static int64_t length_cap(const struct logits_data *d) {
    int64_t table_tokens = d->table_width * d->c.block_size;
    return d->max_seq_len < table_tokens ? d->max_seq_len : table_tokens;
}

static int64_t clamp(int64_t value, int64_t high) {
    return value < 0 ? 0 : value > high ? high : value;
}

int64_t logits_limit(const struct logits_data *d, int64_t b, int64_t t) {
    int64_t len = clamp(*logits_len(d, b, t), length_cap(d));
    if (d->c.per_slot_lens)
        return len;
    int64_t limit = len - d->c.next_n + 1 + t;
    return limit < 0 ? 0 : limit;
}

int64_t logits_clean_until(const struct logits_data *d) {
    return d->c.clean ? d->max_seq_len : 0;
}

/* Tokens of request b that some slot sees. */
static int64_t visible_tokens(const struct logits_data *d, int64_t b) {
    int64_t most = 0;
    for (int t = 0; t < d->c.next_n; t++) {
        int64_t limit = logits_limit(d, b, t);
        most = limit > most ? limit : most;
    }
    return most;
}

static void set_layout(struct logits_data *d) {
    const struct logits_case *c = &d->c;
    bool fp4 = c->variant == ATTNS_VARIANT_FP4;
    d->value_bytes = fp4 ? c->head_dim / 2 : c->head_dim;
    d->scale_bytes = fp4 ? c->head_dim / 32 : 4;
    d->block_bytes = (int64_t)c->block_size * (d->value_bytes + d->scale_bytes);
    d->kv_stride = d->block_bytes + c->kv_pad_bytes;
    d->q_slot_stride = (int64_t)c->heads * d->value_bytes + c->q_slot_pad;
    d->q_request_stride = d->q_slot_stride * c->next_n + c->q_request_pad;
    d->q_bytes = (size_t)(d->q_request_stride * c->batch);
    d->q_sf_slot_stride = c->heads + c->q_slot_pad;
    d->q_sf_request_stride = d->q_sf_slot_stride * c->next_n + c->q_request_pad;
    d->q_sf_bytes = fp4 ? (size_t)(d->q_sf_request_stride * c->batch) * sizeof(int32_t) : 0;
    d->weights_stride = c->heads + c->weights_pad;
    d->weights_bytes = (size_t)(d->weights_stride * c->batch * c->next_n) * sizeof(float);
    d->lens_stride = c->lens_stride ? c->lens_stride : 1;
    d->lens_request_stride = c->lens_request_stride ? c->lens_request_stride : c->next_n * d->lens_stride;
    int64_t last_len = c->per_slot_lens ? (c->batch - 1) * d->lens_request_stride + (c->next_n - 1) * d->lens_stride
                                        : (c->batch - 1) * d->lens_stride;
    d->lens_bytes = (size_t)(last_len + 1) * sizeof(int32_t);
}

static void set_table_and_out_layout(struct logits_data *d, int64_t columns_needed) {
    const struct logits_case *c = &d->c;
    d->table_width = c->table_width ? c->table_width : columns_needed + c->table_extra;
    if (d->table_width < 1)
        d->table_width = 1;
    d->table_stride = d->table_width + c->table_pad;
    /* Ends with the last row, so that a guard page can follow it. */
    d->tables_bytes = (size_t)(d->table_stride * (c->batch - 1) + d->table_width) * sizeof(int32_t);

    d->out_width = d->max_seq_len + c->out_extra;
    d->out_stride = d->out_width + c->out_pad;
    d->out_element_bytes = c->out_dtype == ATTNS_DTYPE_F32 ? 4 : 2;
    size_t guard = c->bare_out ? 0 : LOGITS_GUARD_BYTES;
    int64_t rows = (int64_t)c->batch * c->next_n;
    size_t body = (size_t)(c->out_offset + (rows - 1) * d->out_stride + d->out_width) * d->out_element_bytes;
    d->out_front_bytes = guard + (size_t)c->out_offset * d->out_element_bytes;
    d->out_image_bytes = guard + body + guard;
}

static void fill_defaults(struct logits_data *d, const struct logits_case *c) {
    memset(d, 0, sizeof *d);
    d->c = *c;
    d->c.lens = NULL;
    if (!d->c.variant)
        d->c.variant = ATTNS_VARIANT_FP8;
    if (!d->c.out_dtype)
        d->c.out_dtype = d->c.variant == ATTNS_VARIANT_FP4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32;
    if (!d->c.acc_dtype)
        d->c.acc_dtype = ATTNS_DTYPE_F32;
    if (!d->c.epi_dtype)
        d->c.epi_dtype = ATTNS_DTYPE_F32;
    if (!d->c.max_len)
        d->c.max_len = d->c.min_len > 256 ? d->c.min_len : 256;
}

static bool fill_lens(struct logits_data *d, const int32_t *given, struct rng *r) {
    struct logits_case *c = &d->c;
    d->lens = alloc_zero(d->lens_bytes);
    if (!d->lens)
        return false;
    /* Gaps of a strided seq_lens hold what a kernel that ignores the stride would trip over. */
    for (size_t i = 0; i < d->lens_bytes / sizeof(int32_t); i++)
        d->lens[i] = i % 2 ? INT32_MAX : 1;
    int slots = c->per_slot_lens ? c->next_n : 1;
    int64_t longest = 1;
    for (int64_t b = 0; b < c->batch; b++) {
        for (int t = 0; t < slots; t++) {
            int32_t len = given ? given[b * slots + t] : (int32_t)rng_range(r, c->min_len, c->max_len);
            *logits_len(d, b, t) = len;
            longest = len > longest ? len : longest;
        }
    }
    d->max_seq_len = c->max_seq_len ? c->max_seq_len : longest;
    return true;
}

static int32_t garbage_id(struct rng *r, int64_t num_blocks, int64_t first_poison) {
    switch (rng_below(r, 6)) {
    case 0:
        return INT32_MIN;
    case 1:
        return INT32_MAX;
    case 2:
        return -1;
    case 3:
        return (int32_t)num_blocks;
    default: /* a block that exists and holds NaN */
        return (int32_t)first_poison;
    }
}

static void fill_token(struct logits_data *d, struct rng *r, const uint8_t codes[256], int64_t id, int64_t slot,
                       int64_t token) {
    const struct logits_case *c = &d->c;
    uint8_t *at = d->kv + id * d->kv_stride + slot * d->value_bytes;
    int64_t hot = token % c->head_dim;
    bool fp4 = c->variant == ATTNS_VARIANT_FP4, one_hot = c->values == LOGITS_VALUES_ONE_HOT;
    if (one_hot) {
        memset(at, 0, (size_t)d->value_bytes);
        if (fp4)
            at[hot / 2] = (uint8_t)(hot % 2 ? E2M1_ONE << 4 : E2M1_ONE);
        else
            at[hot] = E4M3_ONE;
    } else {
        fill_codes(r, codes, at, d->value_bytes);
    }
    if (!fp4) {
        double mantissa = one_hot ? 1.0 : 1.0 + rng_uniform(r);
        put_token_scale(d, id, slot, (float)ldexp(mantissa, token_exponent(token)));
        return;
    }
    for (int g = 0; g < d->scale_bytes; g++)
        *fp4_k_scale(d, id, slot, g) =
            one_hot && g == hot / 32 ? (uint8_t)(127 + token_exponent(token)) : random_scale(r, c->values, true);
}

static void fill_block(struct logits_data *d, struct rng *r, const uint8_t codes[256], int64_t id, int64_t first_token,
                       int64_t tokens) {
    for (int64_t i = 0; i < tokens; i++)
        fill_token(d, r, codes, id, i, first_token + i);
}

/* Fills the pool and the tables. Block ids are a random permutation; the last ones of it belong to nobody. */
static bool fill_pool(struct logits_data *d, struct rng *r, const uint8_t codes[256], int64_t used) {
    const struct logits_case *c = &d->c;
    int64_t poison = 1 + (used / 8 < 64 ? used / 8 : 64);
    d->num_blocks = used + poison;
    d->kv_bytes = (size_t)((d->num_blocks - 1) * d->kv_stride + d->block_bytes);
    d->kv = alloc_zero(d->kv_bytes);
    d->tables = alloc_zero(d->tables_bytes);
    int32_t *ids = alloc_zero((size_t)d->num_blocks * sizeof *ids);
    if (!d->kv || !d->tables || !ids) {
        free(ids);
        return false;
    }
    for (int64_t i = 0; i < d->num_blocks; i++)
        ids[i] = (int32_t)i;
    for (int64_t i = d->num_blocks - 1; i > 0; i--) {
        int64_t j = rng_below(r, i + 1);
        int32_t swap = ids[i];
        ids[i] = ids[j];
        ids[j] = swap;
    }
    memset(d->kv, E4M3_NAN, d->kv_bytes); /* no NaN yet in fp4, nor as float32, where four such bytes are 3.4e38 */
    for (int64_t id = 0; id < d->num_blocks; id++)
        for (int64_t slot = 0; slot < c->block_size; slot++)
            put_nan_scale(d, id, slot);

    bool shared = c->pool_blocks > 0;
    if (shared)
        for (int64_t i = 0; i < used; i++)
            fill_block(d, r, codes, ids[i], i * c->block_size, c->block_size);
    for (size_t i = 0; i < d->tables_bytes / sizeof(int32_t); i++)
        d->tables[i] = garbage_id(r, d->num_blocks, ids[used]);
    int64_t next = 0;
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t tokens = visible_tokens(d, b);
        for (int64_t j = 0; j < ceil_div(tokens, c->block_size); j++) {
            int64_t left = tokens - j * c->block_size;
            int64_t pick = shared ? rng_below(r, used) : next++;
            d->tables[b * d->table_stride + j] = ids[pick];
            if (!shared)
                fill_block(d, r, codes, ids[pick], j * c->block_size, left < c->block_size ? left : c->block_size);
        }
    }
    free(ids);
    return true;
}

static void fill_weights(struct logits_data *d, struct rng *r) {
    const struct logits_case *c = &d->c;
    for (size_t i = 0; i < d->weights_bytes / sizeof(float); i++)
        d->weights[i] = NAN;
    for (int64_t row = 0; row < (int64_t)c->batch * c->next_n; row++)
        for (int h = 0; h < c->heads; h++) {
            double w = c->values == LOGITS_VALUES_ONE_HOT
                           ? (double)(rng_range(r, 1, 3) * (rng_below(r, 2) ? 1 : -1)) * 0.5
                           : rng_normal(r);
            d->weights[row * d->weights_stride + h] = (float)w;
        }
}

/* Nothing but NaN between the rows, and in the bytes of q_sf that D = 64 leaves over. */
static bool alloc_q(struct logits_data *d) {
    d->q = alloc_zero(d->q_bytes);
    if (d->q)
        memset(d->q, E4M3_NAN, d->q_bytes);
    if (d->c.variant != ATTNS_VARIANT_FP4)
        return d->q != NULL;
    d->q_sf = alloc_zero(d->q_sf_bytes);
    if (d->q_sf)
        memset(d->q_sf, 0xff, d->q_sf_bytes);
    return d->q && d->q_sf;
}

static void fill_q(struct logits_data *d, struct rng *r, const uint8_t codes[256]) {
    const struct logits_case *c = &d->c;
    for (int64_t b = 0; b < c->batch; b++)
        for (int t = 0; t < c->next_n; t++) {
            fill_codes(r, codes, d->q + b * d->q_request_stride + t * d->q_slot_stride,
                       (int64_t)c->heads * d->value_bytes);
            for (int h = 0; d->q_sf && h < c->heads; h++) {
                uint32_t word = 0xffffffffu;
                for (int g = 0; g < d->scale_bytes && g < 4; g++)
                    word = (word & ~(0xffu << 8 * g)) | (uint32_t)random_scale(r, c->values, false) << 8 * g;
                memcpy(&d->q_sf[b * d->q_sf_request_stride + t * d->q_sf_slot_stride + h], &word, sizeof word);
            }
        }
}

bool logits_data_make(struct logits_data *d, const struct logits_case *c) {
    fill_defaults(d, c);
    struct rng r = rng_make(c->seed);
    uint8_t codes[256];
    make_code_table(d->c.variant, c->values, codes);
    set_layout(d);
    if (!fill_lens(d, c->lens, &r))
        return false;

    /* The table's width limits the lengths and follows from them: give it all that max_seq_len could ask for first. */
    d->table_width = c->table_width ? c->table_width : ceil_div(d->max_seq_len, c->block_size);
    int64_t columns = 0, used = 0;
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t need = ceil_div(visible_tokens(d, b), c->block_size);
        columns = need > columns ? need : columns;
        used += need;
    }
    /* A cap by the table must not bite where the case did not ask for it: the newest slot's length counts. */
    for (int64_t b = 0; b < c->batch; b++)
        for (int t = 0; t < (c->per_slot_lens ? c->next_n : 1); t++) {
            int64_t need = ceil_div(clamp(*logits_len(d, b, t), length_cap(d)), c->block_size);
            columns = need > columns ? need : columns;
        }
    set_table_and_out_layout(d, columns);
    if (c->pool_blocks > 0)
        used = c->pool_blocks;
    d->weights = alloc_zero(d->weights_bytes);
    if (!alloc_q(d) || !d->weights || !fill_pool(d, &r, codes, used)) {
        logits_data_free(d);
        return false;
    }
    fill_q(d, &r, codes);
    fill_weights(d, &r);
    return true;
}

void logits_data_free(struct logits_data *d) {
    free(d->q);
    free(d->q_sf);
    if (!d->borrowed_kv)
        free(d->kv);
    free(d->weights);
    free(d->tables);
    free(d->lens);
    memset(d, 0, sizeof *d);
}

/* Row-wise copy of requests into a data set whose c and lens are set; takes over the pool of `from`. */
static bool gather(struct logits_data *d, const struct logits_data *from, const int *request, const int *slot) {
    const struct logits_case *c = &d->c;
    set_table_and_out_layout(d, from->table_width);
    d->num_blocks = from->num_blocks;
    d->kv_bytes = from->kv_bytes;
    d->kv = from->kv;
    d->borrowed_kv = true;
    d->weights = alloc_zero(d->weights_bytes);
    d->tables = alloc_zero(d->tables_bytes);
    if (!alloc_q(d) || !d->weights || !d->tables) {
        logits_data_free(d);
        return false;
    }
    struct rng r = rng_make(from->c.seed ^ 0x5eed);
    for (size_t i = 0; i < d->weights_bytes / sizeof(float); i++)
        d->weights[i] = NAN;
    for (size_t i = 0; i < d->tables_bytes / sizeof(int32_t); i++)
        d->tables[i] = garbage_id(&r, d->num_blocks, d->num_blocks);
    for (int64_t b = 0; b < c->batch; b++) {
        memcpy(d->tables + b * d->table_stride, from->tables + request[b] * from->table_stride,
               (size_t)from->table_width * sizeof(int32_t));
        for (int t = 0; t < c->next_n; t++) {
            int64_t source_slot = slot ? slot[b] : t;
            memcpy(d->q + b * d->q_request_stride + t * d->q_slot_stride,
                   from->q + request[b] * from->q_request_stride + source_slot * from->q_slot_stride,
                   (size_t)c->heads * (size_t)d->value_bytes);
            if (d->q_sf)
                memcpy(d->q_sf + b * d->q_sf_request_stride + t * d->q_sf_slot_stride,
                       from->q_sf + request[b] * from->q_sf_request_stride + source_slot * from->q_sf_slot_stride,
                       (size_t)c->heads * sizeof(int32_t));
            memcpy(d->weights + (b * c->next_n + t) * d->weights_stride,
                   from->weights + (request[b] * from->c.next_n + source_slot) * from->weights_stride,
                   (size_t)c->heads * sizeof(float));
        }
    }
    return true;
}

bool logits_data_subset(struct logits_data *d, const struct logits_data *from, const int *chosen, int count,
                        const struct logits_case *like) {
    struct logits_case c = like ? *like : from->c;
    c.batch = count;
    c.variant = from->c.variant;
    c.out_dtype = from->c.out_dtype;
    c.acc_dtype = from->c.acc_dtype;
    c.epi_dtype = from->c.epi_dtype;
    c.sf_interleaved = from->c.sf_interleaved;
    c.next_n = from->c.next_n;
    c.heads = from->c.heads;
    c.head_dim = from->c.head_dim;
    c.block_size = from->c.block_size;
    c.per_slot_lens = from->c.per_slot_lens;
    c.max_seq_len = from->max_seq_len;
    c.kv_pad_bytes = from->c.kv_pad_bytes;
    c.pool_blocks = from->c.pool_blocks;
    c.table_width = 0;
    c.table_extra = like ? like->table_extra : 0; /* the width of `from` has its own in it */
    c.seed = from->c.seed;
    fill_defaults(d, &c);
    set_layout(d);
    int slots = c.per_slot_lens ? c.next_n : 1;
    int32_t *lens = alloc_zero((size_t)count * (size_t)slots * sizeof *lens);
    bool ok = lens != NULL;
    for (int b = 0; ok && b < count; b++)
        for (int t = 0; t < slots; t++)
            lens[b * slots + t] = *logits_len(from, chosen[b], t);
    ok = ok && fill_lens(d, lens, NULL);
    free(lens);
    return ok && gather(d, from, chosen, NULL);
}

bool logits_data_flatten(struct logits_data *d, const struct logits_data *from) {
    struct logits_case c = from->c;
    int n = from->c.next_n, count = from->c.batch * n;
    c.batch = count;
    c.next_n = 1;
    c.per_slot_lens = false;
    c.max_seq_len = from->max_seq_len;
    c.table_width = 0;
    c.table_extra = 0;
    c.q_request_pad = 0;
    c.lens_stride = 0;
    c.lens_request_stride = 0;
    fill_defaults(d, &c);
    set_layout(d);
    int32_t *lens = alloc_zero((size_t)count * sizeof *lens);
    int *request = alloc_zero((size_t)count * sizeof *request), *slot = alloc_zero((size_t)count * sizeof *slot);
    bool ok = lens && request && slot;
    for (int i = 0; ok && i < count; i++) {
        request[i] = i / n;
        slot[i] = i % n;
        lens[i] = (int32_t)logits_limit(from, i / n, i % n);
    }
    ok = ok && fill_lens(d, lens, NULL) && gather(d, from, request, slot);
    free(lens);
    free(request);
    free(slot);
    return ok;
}

static const char *dtype_text(attns_dtype dtype) {
    return dtype == ATTNS_DTYPE_F16 ? "f16" : dtype == ATTNS_DTYPE_BF16 ? "bf16" : "f32";
}

const char *logits_case_text(const struct logits_case *c, char *buffer, size_t size) {
    static const char *const values[] = {"moderate", "all-codes", "one-hot"};
    bool fp4 = c->variant == ATTNS_VARIANT_FP4;
    char options[48] = "";
    if (!fp4)
        snprintf(options, sizeof options, " acc=%s epi=%s", dtype_text(c->acc_dtype), dtype_text(c->epi_dtype));
    int n = snprintf(buffer, size, "%s B=%d next_n=%d H=%d D=%d block=%d out=%s%s len=%d..%d%s%s%s%s %s",
                     fp4 ? "fp4" : "fp8", c->batch, c->next_n, c->heads, c->head_dim, c->block_size,
                     fp4 && !c->out_dtype ? "bf16" : dtype_text(c->out_dtype), options, c->min_len, c->max_len,
                     c->sf_interleaved ? " interleaved" : "", c->per_slot_lens ? " 2-D" : "", c->clean ? " clean" : "",
                     c->pdl ? " pdl" : "", values[c->values]);
    if (c->num_shares && n > 0 && (size_t)n < size)
        n += snprintf(buffer + n, size - (size_t)n, " shares=%d", c->num_shares);
    if (n > 0 && (size_t)n < size)
        snprintf(buffer + n, size - (size_t)n, " seed=%llu", (unsigned long long)c->seed);
    return buffer;
}
