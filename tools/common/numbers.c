/* SPDX-License-Identifier: MIT
 *
 * The numbers that the bytes of a call mean. */
#include <math.h>
#include <string.h>

#include "common/case.h"

float fp8_e4m3(uint8_t code) {
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f)
        return NAN;
    /* (8 + mantissa) 2^(exponent - 10), without a call: this is done for every byte of a call. */
    const float steps = (float)(exponent == 0 ? mantissa : 8 + mantissa);
    const float magnitude = steps * (float)(1 << (exponent == 0 ? 1 : exponent)) * 0x1p-10f;
    return code & 0x80 ? -magnitude : magnitude;
}

float fp4_e2m1(uint8_t code) {
    static const float values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return values[code & 15];
}

double fp4_e8m0(uint8_t code) {
    return code == 0xff ? (double)NAN : ldexp(1, code - 127);
}

static bool is_fp4(const struct logits_data *d) {
    return d->c.variant == ATTNS_VARIANT_FP4;
}

static void decode(const struct logits_data *d, const uint8_t *from, float *values) {
    for (int i = 0; i < d->c.head_dim; i++)
        values[i] = is_fp4(d) ? fp4_e2m1((uint8_t)(from[i / 2] >> 4 * (i % 2))) : fp8_e4m3(from[i]);
}

void logits_q(const struct logits_data *d, int64_t b, int64_t t, int h, float *values) {
    decode(d, d->q + b * d->q_request_stride + t * d->q_slot_stride + (int64_t)h * d->value_bytes, values);
}

void logits_k(const struct logits_data *d, int64_t id, int64_t slot, float *values) {
    decode(d, d->kv + id * d->kv_stride + slot * d->value_bytes, values);
}

double logits_q_scale(const struct logits_data *d, int64_t b, int64_t t, int h, int group) {
    if (!is_fp4(d))
        return 1;
    uint32_t word;
    memcpy(&word, &d->q_sf[b * d->q_sf_request_stride + t * d->q_sf_slot_stride + h], sizeof word);
    return fp4_e8m0((uint8_t)(word >> 8 * group));
}

uint8_t *fp4_k_scale(const struct logits_data *d, int64_t id, int64_t slot, int group) {
    /* Four columns (of 32 tokens in the only block size that is accepted), read row by row. */
    const int64_t rows = d->c.block_size / 4;
    int64_t place = d->c.sf_interleaved ? slot % rows * 4 + slot / rows : slot;
    return d->kv + id * d->kv_stride + (int64_t)d->c.block_size * d->value_bytes + place * d->scale_bytes + group;
}

double logits_k_scale(const struct logits_data *d, int64_t id, int64_t slot, int group) {
    return is_fp4(d) ? fp4_e8m0(*fp4_k_scale(d, id, slot, group)) : 1;
}

float logits_token_scale(const struct logits_data *d, int64_t id, int64_t slot) {
    float scale = 1;
    if (!is_fp4(d))
        memcpy(&scale, d->kv + id * d->kv_stride + (int64_t)d->c.block_size * d->value_bytes + slot * 4, sizeof scale);
    return scale;
}
