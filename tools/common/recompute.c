/* SPDX-License-Identifier: MIT */
#include "common/recompute.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* E4M3: 1 sign bit, 4 exponent bits with bias 7, 3 mantissa bits; 0x7f and 0xff are NaN, no infinities. */
static long double e4m3_value(unsigned code) {
    long double sign = code >= 128 ? -1 : 1;
    unsigned exponent = (code % 128) / 8, mantissa = code % 8;
    if (exponent == 15 && mantissa == 7)
        return (long double)NAN;
    if (exponent == 0)
        return sign * (long double)mantissa / 512;
    return sign * (8 + (long double)mantissa) * powl(2, (long double)exponent - 10);
}

/* E2M1: 1 sign bit, 2 exponent bits with bias 1, 1 mantissa bit. */
static long double e2m1_value(unsigned code) {
    long double sign = code >= 8 ? -1 : 1, mantissa = code % 2;
    unsigned exponent = code % 8 / 2;
    return sign * (exponent == 0 ? mantissa / 2 : (1 + mantissa / 2) * powl(2, (long double)exponent - 1));
}

/* E8M0: nothing but an exponent with bias 127. */
static long double e8m0_value(unsigned code) {
    return code == 255 ? (long double)NAN : powl(2, (long double)code - 127);
}

/* Whether slot t of request b sees position p. */
static bool sees(const struct logits_data *d, int64_t b, int64_t t, int64_t p) {
    int64_t covered = d->table_width * d->c.block_size;
    if (p >= d->max_seq_len || p >= covered)
        return false;
    if (d->c.per_slot_lens)
        return p < d->lens[b * d->lens_request_stride + t * d->lens_stride];
    int64_t len = d->lens[b * d->lens_stride];
    int64_t most = d->max_seq_len < covered ? d->max_seq_len : covered;
    if (len > most)
        len = most;
    return p <= len - d->c.next_n + t;
}

/* Dim i of a head of a query, and of a token of a block that exists. */
static long double query(const struct logits_data *d, const long double *value, int64_t b, int64_t t, int h, int i) {
    const struct logits_case *c = &d->c;
    const uint8_t *slot = d->q + b * d->q_request_stride + t * d->q_slot_stride;
    if (c->variant != ATTNS_VARIANT_FP4)
        return value[slot[h * c->head_dim + i]];
    unsigned pair = slot[(h * c->head_dim + i) / 2];
    int32_t word = d->q_sf[b * d->q_sf_request_stride + t * d->q_sf_slot_stride + h];
    return e2m1_value(i % 2 ? pair / 16 : pair % 16) * e8m0_value((unsigned)(word >> 8 * (i / 32)) & 0xff);
}

static long double key(const struct logits_data *d, const long double *value, const uint8_t *block, int64_t slot,
                       int i) {
    const struct logits_case *c = &d->c;
    if (c->variant != ATTNS_VARIANT_FP4)
        return value[block[slot * c->head_dim + i]];
    unsigned pair = block[(slot * c->head_dim + i) / 2];
    const uint8_t *scales = block + (int64_t)c->block_size * c->head_dim / 2;
    int64_t place = slot;
    for (int64_t k = 0; c->sf_interleaved && k < c->block_size; k++)
        if ((k % 4) * (c->block_size / 4) + k / 4 == slot)
            place = k;
    return e2m1_value(i % 2 ? pair / 16 : pair % 16) * e8m0_value(scales[place * (c->head_dim / 32) + i / 32]);
}

static long double logit(const struct logits_data *d, const long double *value, int64_t b, int64_t t, int64_t p,
                         long double *abs_sum) {
    const struct logits_case *c = &d->c;
    int64_t id = d->tables[b * d->table_stride + p / c->block_size], slot = p % c->block_size;
    const float *w = d->weights + (b * c->next_n + t) * d->weights_stride;
    bool exists = 0 <= id && id < d->num_blocks;
    const uint8_t *block = d->kv + (exists ? id : 0) * d->kv_stride;
    float stored = exists ? 1 : 0;
    if (exists && c->variant != ATTNS_VARIANT_FP4)
        memcpy(&stored, block + c->block_size * c->head_dim + 4 * slot, 4);
    long double scale = (long double)stored, sum = 0, k[128];
    for (int i = 0; i < c->head_dim; i++)
        k[i] = exists ? key(d, value, block, slot, i) : 0;
    *abs_sum = 0;
    for (int h = 0; h < c->heads; h++) {
        long double dot = 0, magnitude = 0;
        for (int i = 0; i < c->head_dim; i++) {
            long double x = query(d, value, b, t, h, i) * k[i];
            dot += x;
            magnitude += fabsl(x);
        }
        sum += (long double)w[h] * (dot > 0 ? dot : 0);
        *abs_sum += fabsl((long double)w[h]) * magnitude;
    }
    *abs_sum *= fabsl(scale);
    return scale * sum;
}

int logits_recompute_terms(const struct logits_case *c) {
    return c->heads + 8 + (c->variant == ATTNS_VARIANT_FP4 ? c->head_dim : 0);
}

static void judge(const struct logits_data *d, const double *out, const double *abs_sums, double poison,
                  struct recompute_report *r) {
    const struct logits_case *c = &d->c;
    long double value[256];
    for (unsigned code = 0; code < 256; code++)
        value[code] = e4m3_value(code);
    for (int64_t row = 0; row < (int64_t)c->batch * c->next_n; row++) {
        for (int64_t p = 0; p < d->out_width; p++) {
            double got = out[row * d->out_width + p], got_abs = abs_sums[row * d->out_width + p];
            int64_t b = row / c->next_n, t = row % c->next_n;
            bool ok;
            if (sees(d, b, t, p)) {
                long double abs_sum, expected = logit(d, value, b, t, p, &abs_sum);
                /* Sums of H terms in double, each rounded once, and a product; for fp4 sums of D terms too. */
                int terms = logits_recompute_terms(c);
                long double room = terms * 0x1p-53L * abs_sum;
                ok = fabsl((long double)got - expected) <= room &&
                     fabsl((long double)got_abs - abs_sum) <= (c->head_dim + c->heads + 8) * 0x1p-53L * abs_sum;
                if (abs_sum > 0)
                    r->worst = fmax(r->worst, (double)(fabsl((long double)got - expected) / abs_sum));
                r->compared++;
            } else if (c->clean && p < d->max_seq_len) {
                ok = isinf(got) && got < 0;
                r->compared++;
            } else {
                if (memcmp(&got, &poison, sizeof got) == 0)
                    r->untouched++;
                else
                    r->stray++;
                continue;
            }
            if (!ok && r->wrong++ == 0)
                snprintf(r->first, sizeof r->first, "b=%lld t=%lld p=%lld: reference %.17g, abs_sum %.17g",
                         (long long)b, (long long)t, (long long)p, got, got_abs);
        }
    }
}

bool logits_recompute_check(const struct logits_data *d, struct recompute_report *r) {
    memset(r, 0, sizeof *r);
    int64_t rows = (int64_t)d->c.batch * d->c.next_n;
    size_t count = (size_t)(rows * d->out_width);
    double *out = malloc(count * sizeof *out), *abs_sums = malloc(count * sizeof *abs_sums);
    const double poison = 1.2345678901234567e-200;
    struct logits_tensors t;
    struct logits_call call;
    if (out && abs_sums) {
        for (size_t i = 0; i < count; i++)
            out[i] = abs_sums[i] = poison;
        struct logits_addresses at = {.q = d->q,
                                      .q_sf = d->q_sf,
                                      .kv = d->kv,
                                      .weights = d->weights,
                                      .tables = d->tables,
                                      .lens = d->lens,
                                      .out = out};
        logits_tensors_make(&t, &call, d, (DLDevice){kDLCPU, 0}, &at);
        t.out.dtype.code = kDLFloat;
        t.out.dtype.bits = 64;
        t.out_strides[0] = d->out_width;
        DLTensor abs_tensor = t.out;
        abs_tensor.data = abs_sums;
        attns_status status = logits_call_reference(&call, &abs_tensor);
        if (status == ATTNS_OK)
            judge(d, out, abs_sums, poison, r);
        else
            snprintf(r->first, sizeof r->first, "%s: %s", attns_status_string(status), attns_last_error());
        r->ok = status == ATTNS_OK && r->wrong == 0 && r->stray == 0;
    }
    free(out);
    free(abs_sums);
    return r->ok;
}
