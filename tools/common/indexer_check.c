/* SPDX-License-Identifier: MIT
 *
 * The tolerance
 *
 * Products of two bfloat16 or two dequantised NVFP4 numbers are exact in a tensor core. It adds a step of 16 products and
 * the accumulator at a time (or in two halves): aligned to the largest of them, with at least 23 bits below its leading
 * one, the rest dropped (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021). So a step
 * errs by less than 17 * 2^-23 of the largest magnitude in it, which is at most S, the sum of absolute terms, and its
 * result is cut to float32, by at most 2^-23 S. Two halves are 2 * 10 such units. Eight steps:
 *     160 * 2^-23 S.
 * This holds for every element; the deviation of all elements together must also be small: cutting errors of that size
 * are 2^-24 S or so in the mean, a score is a tenth of S in the mean, so 1e-9 leaves a factor of hundreds. */
#include "common/indexer_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELATIVE_TOLERANCE (160 * 0x1p-23)
#define LARGEST_DEVIATION  1e-9
#define DEFAULT_KEYS       200000
#define MAX_ROWS           8

static void finding(struct indexer_report *r, const char *format, ...) {
    const size_t used = strlen(r->first);
    va_list args;
    va_start(args, format);
    if (used + 2 < sizeof r->first) {
        vsnprintf(r->first + used, sizeof r->first - used - 1, format, args);
        strcat(r->first, "\n");
    }
    va_end(args);
}

/* ---- The image ---- */

size_t indexer_image_at(const struct indexer_data *d, int64_t row, int64_t column) {
    return d->front_bytes + (size_t)(row * d->score_stride + column) * sizeof(float);
}

float indexer_image_value(const struct indexer_data *d, const void *image, int64_t row, int64_t column) {
    float value;
    memcpy(&value, (const uint8_t *)image + indexer_image_at(d, row, column), sizeof value);
    return value;
}

uint8_t *indexer_image_make(const struct indexer_data *d) {
    uint8_t *image = malloc(d->image_bytes);
    const uint32_t poison = INDEXER_POISON;
    for (size_t i = 0; image && i < d->image_bytes; i += sizeof poison)
        memcpy(image + i, &poison, sizeof poison);
    return image;
}

static bool is_poison(const uint8_t *at) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits == INDEXER_POISON;
}

/* All offsets are multiples of an element. */
static void check_untouched(const uint8_t *image, size_t from, size_t to, const char *where, struct indexer_report *r) {
    for (size_t at = from; at < to; at += sizeof(float))
        if (!is_poison(image + at) && r->stray++ < 4)
            finding(r, "stray: byte %zu of the output (%s) was written", at, where);
}

static void check_ownership(const struct indexer_data *d, const uint8_t *image, bool hostile, struct indexer_report *r) {
    check_untouched(image, 0, d->front_bytes, "before the first row", r);
    for (int64_t row = 0; row < d->rows; row++) {
        const int64_t limit = indexer_limit(d, row / d->c.rows);
        for (int64_t p = 0; p < limit; p++) {
            const bool unwritten = is_poison(image + indexer_image_at(d, row, p));
            r->owned++;
            if (unwritten && r->unwritten++ < 4)
                finding(r, "unwritten: row %lld, key %lld", (long long)row, (long long)p);
            else if (!unwritten && !hostile && !isfinite(indexer_image_value(d, image, row, p)) && r->not_finite++ < 4)
                finding(r, "not finite: row %lld, key %lld", (long long)row, (long long)p);
        }
        const size_t end = row + 1 < d->rows ? indexer_image_at(d, row + 1, 0) : d->image_bytes;
        check_untouched(image, indexer_image_at(d, row, limit), end, "past a row's end", r);
    }
}

/* ---- Values ---- */

struct sums {
    double errors, squares;
};

static void compare(const struct indexer_data *d, const uint8_t *image, int64_t row, int64_t p, double expected,
                    double magnitude, const struct indexer_check_options *o, struct indexer_report *r,
                    struct sums *sums) {
    const double got = (double)indexer_image_value(d, image, row, p);
    const double tolerance = RELATIVE_TOLERANCE * magnitude + 0x1p-149;
    r->compared++;
    const bool ok = o->hostile_values && !isfinite(expected) ? isnan(expected) ? isnan(got) : got == expected
                                                            : fabs(got - expected) <= tolerance; /* false for NaN */
    if (!ok && r->wrong++ < 4)
        finding(r, "wrong: row %lld key %lld got %.9g expected %.9g, off by %.3g, tolerance %.3g", (long long)row,
                (long long)p, got, expected, got - expected, tolerance);
    if (!isfinite(got) || !isfinite(expected) || magnitude == 0)
        return;
    r->worst = fmax(r->worst, fabs(got - expected) / tolerance);
    sums->errors += (got - expected) / magnitude * ((got - expected) / magnitude);
    sums->squares += expected / magnitude * (expected / magnitude);
}

/* One page of one group, through the reference. */
static bool check_page(const struct indexer_data *d, const uint8_t *image, int64_t group, int64_t column,
                       const struct indexer_check_options *o, struct indexer_report *r, struct sums *sums) {
    double expected[MAX_ROWS][INDEXER_PAGE_KEYS], magnitudes[MAX_ROWS][INDEXER_PAGE_KEYS];
    const int64_t first = column * INDEXER_PAGE_KEYS, left = indexer_limit(d, group) - first;
    int32_t len = (int32_t)(left < INDEXER_PAGE_KEYS ? left : INDEXER_PAGE_KEYS);
    struct indexer_tensors t;
    attns_indexer_scores_params params;
    struct indexer_addresses at = {
        .query = d->query + group * d->c.rows * d->query_stride,
        .query_scales = d->c.nvfp4 ? d->query_scales + group * d->c.rows * d->query_scale_stride : NULL,
        .keys = d->keys,
        .key_scales = d->key_scales,
        .tables = d->tables + column,
        .lens = &len,
        .requests = indexer_request(d, group),
        .scores = expected,
    };
    indexer_tensors_make(&t, &params, d, (DLDevice){kDLCPU, 0}, &at);
    t.query.shape[0] = t.query_scales.shape[0] = t.scores.shape[0] = d->c.rows;
    t.context_lengths.shape[0] = t.requests.shape[0] = 1;
    t.block_table.shape[1] = 1;
    t.scores.dtype.bits = 64;
    t.scores.shape[1] = t.scores.strides[0] = INDEXER_PAGE_KEYS;
    DLTensor abs_sum = t.scores;
    abs_sum.data = magnitudes;
    if (attns_reference_indexer_scores(&params, &abs_sum) != ATTNS_OK) {
        finding(r, "reference: %s", attns_last_error());
        return false;
    }
    for (int i = 0; i < d->c.rows; i++)
        for (int32_t j = 0; j < len; j++)
            compare(d, image, group * d->c.rows + i, first + j, expected[i][j], magnitudes[i][j], o, r, sums);
    return true;
}

static int64_t pages_of(const struct indexer_data *d, int64_t group) {
    return (indexer_limit(d, group) + INDEXER_PAGE_KEYS - 1) / INDEXER_PAGE_KEYS;
}

bool indexer_check(const struct indexer_data *d, const void *image, const struct indexer_check_options *options,
                   struct indexer_report *r) {
    static const struct indexer_check_options defaults;
    const struct indexer_check_options *o = options ? options : &defaults;
    const int64_t budget = (o->max_keys ? o->max_keys : DEFAULT_KEYS) / INDEXER_PAGE_KEYS + 1;
    struct sums sums = {0, 0};
    int64_t pages = 0;
    bool ran = true;
    memset(r, 0, sizeof *r);
    check_ownership(d, image, o->hostile_values, r);
    for (int64_t g = 0; g < d->c.groups; g++)
        pages += pages_of(d, g);
    if (pages <= budget) {
        for (int64_t g = 0; g < d->c.groups; g++)
            for (int64_t column = 0; ran && column < pages_of(d, g); column++)
                ran = check_page(d, image, g, column, o, r, &sums);
    } else { /* every third at a group's end, where bounds go wrong */
        struct rng rng = rng_make(d->c.seed + 1);
        for (int64_t i = 0; ran && i < budget;) {
            const int64_t g = rng_below(&rng, d->c.groups), n = pages_of(d, g);
            if (n > 0) {
                ran = check_page(d, image, g, i % 3 == 0 ? n - 1 : rng_below(&rng, n), o, r, &sums);
                i++;
            }
        }
    }
    r->deviation = sums.squares > 0 ? sums.errors / sums.squares : 0;
    if (r->deviation > LARGEST_DEVIATION)
        finding(r, "imprecise: deviation %.3g, at most %.3g", r->deviation, LARGEST_DEVIATION);
    r->ok = ran && r->deviation <= LARGEST_DEVIATION && !r->wrong && !r->unwritten && !r->not_finite && !r->stray &&
            (r->owned == 0 || r->compared > 0);
    return r->ok;
}

void indexer_report_print(const struct indexer_report *r, const char *title) {
    fprintf(stderr,
            "%s: %s: %llu owned, %llu compared, %llu wrong, %llu unwritten, %llu not finite, %llu stray, worst %.3g of "
            "tolerance, deviation %.3g\n%s",
            r->ok ? "ok" : "WRONG", title, (unsigned long long)r->owned, (unsigned long long)r->compared,
            (unsigned long long)r->wrong, (unsigned long long)r->unwritten, (unsigned long long)r->not_finite,
            (unsigned long long)r->stray, r->worst, r->deviation, r->first);
}
