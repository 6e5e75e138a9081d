/* SPDX-License-Identifier: MIT
 *
 * The tolerance
 *
 * It is computed for every element from that element's own inputs, so that it neither raises a false alarm nor hides a
 * fault behind the largest value of the output.
 *
 * Hopper's FP8 tensor core takes one K step (32 products) and the accumulator at a time: it aligns them to the largest
 * exponent among them, keeps 13 bits below that exponent, drops the rest, and adds exactly; the sum is kept with 13
 * fraction bits. An H200 does so bit by bit (tests/ptxsim/probes). The exponent of a product is the sum of its
 * factors', where a subnormal factor has that of 2^-6, the smallest normal number. With u = 2^-13 and M the largest
 * among the accumulator's magnitude and the products of factors' magnitudes, subnormal ones taken for 2^-6 (so that
 * neither a product nor 2 to its exponent is larger), a step thus errs by
 *     less than u*M for each product, and less than the product itself: at most min(sum |x_i|, 32*u*M),
 *     less than u*M for aligning the accumulator,
 *     less than u*|new accumulator| for keeping 13 bits of it.
 * The K steps run in the order of D. A float16 accumulator (acc_dtype) is rounded to 11 bits after each step, by at
 * most 2^-10 of it if the hardware truncates, or 2^-24 in the subnormal range. Call the sum over the steps e_h.
 *
 * That is fp8. For fp4 a product of two numbers with their scales is exact in float32 wherever float32 can hold it,
 * and they are summed in float32 in an order and in groups that a kernel may choose: a tensor core may align all terms
 * of a group to the largest and drop what float32 has no bits for (u = 2^-23) instead of rounding. No term and no
 * partial sum is larger than A_h = sum_d |q_d k_d|, so that D terms, and rounding the sum once for each of at most 16
 * groups, err by
 *     e_h <= (D + 16) u A_h + D 2^-149,
 * the last for what falls below the smallest float32.
 *
 * Hopper's fp4 kernel lets the FP8 tensor cores add, relative to each token's and head's largest scale, which shifts
 * exponents and makes nothing subnormal. So e_h is that of fp8, with the products' scales in them and with K steps as
 * the kernel makes them: step j takes the 8 dims from 8j on of each quarter of D. For scores of 16 bits it also rounds
 * relu_h to float16, which is 2^-11 of it and never subnormal, and keeps weights to 16 bits or more: e_h grows by
 * (2^-11 + 2^-16) (relu_h + e_h).
 *
 * ReLU does not enlarge an error. The float32 epilogue rounds a product and at most H sums per head:
 *     E = sum_h |w_h| e_h + (H + 4) 2^-24 sum_h |w_h| (relu_h + e_h).
 * A float16 epilogue first rounds relu_h and w_h to float16 (2^-11 each, 2^-25 if subnormal) and then sums with 2^-11.
 * Scaling by s_p rounds once more (2^-23 covers it and its neighbours), and the output dtype once (half a unit in the
 * last place). A float16 output overflows to infinity from 65520 on, as IEEE 754 has it.
 *
 * Beside these bounds, which hold for each element, the deviation of all compared elements together must be small: a
 * systematic loss of precision that stays inside the bounds still shows there. Modelled Hopper arithmetic gives about
 * 3e-8 with float32 accumulation and epilogue; the limit is 1e-6 (DeepGEMM's own tests allow 1e-3), and 1e-3 with
 * float16 in either place, plus the output's own rounding. Where fp4's arithmetic has float32's precision throughout,
 * models of it give 1e-15, and the limit is 1e-12; where FP8 tensor cores add, it is fp8's. */
#include "common/check.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rng.h"

#define K_STEP       32
#define E4M3_NORMAL  0x1p-6f /* the smallest normal number */
#define MAX_HEAD_DIM 128
#define MAX_THREADS  16
#define LANES        8             /* heads taken at a time; their number is a multiple of it */
#define SHORT_RUN    (64 * 8192.0) /* work below which threads do not pay */

/* ---- 16-bit formats ---- */

double half_to_double(uint16_t bits) {
    int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    double magnitude = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double bfloat_to_double(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

/* Rounds to `precision` bits with the least exponent `min_exponent` (of the last bit of a subnormal). */
static double round_to(double value, int precision, int min_exponent) {
    if (value == 0 || !isfinite(value))
        return value;
    int exponent;
    frexp(value, &exponent); /* value = m * 2^exponent, m in [0.5, 1) */
    int unit = exponent - precision < min_exponent ? min_exponent : exponent - precision;
    return ldexp(nearbyint(ldexp(value, -unit)), unit);
}

uint16_t double_to_half(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(round_to(value, 11, -24));
    if (isnan(value))
        return 0x7fff;
    if (magnitude > 65504.0)
        return sign | 0x7c00;
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)ldexp(magnitude, 24));
    int exponent;
    double m = frexp(magnitude, &exponent);
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(m, 11) - 1024));
}

uint16_t double_to_bfloat(double value) {
    if (isnan(value))
        return 0x7fff;
    float rounded = (float)round_to(value, 8, -133);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* ---- The image ---- */

size_t logits_image_at(const struct logits_data *d, int64_t row, int64_t column) {
    return d->out_front_bytes + (size_t)(row * d->out_stride + column) * d->out_element_bytes;
}

double logits_image_value(const struct logits_data *d, const void *image, int64_t row, int64_t column) {
    const uint8_t *at = (const uint8_t *)image + logits_image_at(d, row, column);
    if (d->out_element_bytes == 4) {
        float value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return d->c.out_dtype == ATTNS_DTYPE_F16 ? half_to_double(bits) : bfloat_to_double(bits);
}

/* The poison repeats every two bytes, so that any element-aligned offset shows the same pattern. */
static uint8_t poison_byte(size_t offset) {
    return offset % 2 ? (uint8_t)((LOGITS_POISON >> 8) & 255) : (uint8_t)(LOGITS_POISON & 255);
}

uint8_t *logits_image_make(const struct logits_data *d) {
    uint8_t *image = malloc(d->out_image_bytes);
    for (size_t i = 0; image && i < d->out_image_bytes; i++)
        image[i] = poison_byte(i);
    return image;
}

int64_t logits_rows_differ(const struct logits_data *a, const void *image_a, int64_t row_a, const struct logits_data *b,
                           const void *image_b, int64_t row_b) {
    int64_t limit = logits_limit(a, row_a / a->c.next_n, row_a % a->c.next_n);
    if (limit != logits_limit(b, row_b / b->c.next_n, row_b % b->c.next_n) || a->c.out_dtype != b->c.out_dtype)
        return 0;
    const uint8_t *x = (const uint8_t *)image_a + logits_image_at(a, row_a, 0);
    const uint8_t *y = (const uint8_t *)image_b + logits_image_at(b, row_b, 0);
    for (int64_t p = 0; p < limit; p++)
        if (memcmp(x + (size_t)p * a->out_element_bytes, y + (size_t)p * a->out_element_bytes, a->out_element_bytes))
            return p;
    return -1;
}

/* ---- Findings ---- */

static void finding(struct logits_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void finding(struct logits_report *r, const char *format, ...) {
    size_t used = strlen(r->first);
    if (used + 200 > sizeof r->first)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->first + used, sizeof r->first - used - 1, format, args);
    va_end(args);
    strcat(r->first, "\n");
}

void logits_report_print(const struct logits_report *r, const char *title) {
    fprintf(stderr,
            "%s: %s: %llu owned, %llu compared, %llu wrong, %llu unwritten, %llu not finite, %llu not clean, %llu "
            "stray, worst %.3g of tolerance, deviation %.3g\n%s",
            title, r->ok ? "ok" : "FAILED", (unsigned long long)r->owned, (unsigned long long)r->compared,
            (unsigned long long)r->wrong, (unsigned long long)r->unwritten, (unsigned long long)r->not_finite,
            (unsigned long long)r->not_clean, (unsigned long long)r->stray, r->worst, r->deviation, r->first);
}

/* ---- Who owns which element ---- */

static void check_untouched(const uint8_t *image, size_t from, size_t to, const char *where, struct logits_report *r) {
    const uint64_t poison8 = (uint64_t)LOGITS_POISON << 32 | LOGITS_POISON;
    for (size_t i = from; i < to; i++) {
        uint64_t next8;
        while (i % 2 == 0 && i + 8 <= to && (memcpy(&next8, image + i, sizeof next8), next8 == poison8))
            i += 8;
        if (i == to || image[i] == poison_byte(i))
            continue;
        if (r->stray++ < 3)
            finding(r, "stray write %s: byte %zu of the image (%zu past its start) is 0x%02x", where, i, i - from,
                    image[i]);
    }
}

static void check_row_ownership(const struct logits_data *d, const uint8_t *image, int64_t row,
                                const struct logits_check_options *o, struct logits_report *r) {
    int64_t n = d->c.next_n, limit = logits_limit(d, row / n, row % n), clean = logits_clean_until(d);
    bool may_overflow = d->c.out_dtype == ATTNS_DTYPE_F16 || d->c.epi_dtype == ATTNS_DTYPE_F16;
    r->owned += (uint64_t)limit;
    for (int64_t p = 0; p < limit; p++) {
        size_t at = logits_image_at(d, row, p);
        bool untouched = true;
        for (size_t i = 0; i < d->out_element_bytes; i++)
            untouched = untouched && image[at + i] == poison_byte(at + i);
        double value = logits_image_value(d, image, row, p);
        if (untouched) {
            if (!o->partial && r->unwritten++ < 3)
                finding(r, "not written: b=%lld t=%lld p=%lld, limit %lld", (long long)(row / n), (long long)(row % n),
                        (long long)p, (long long)limit);
        } else if (!o->hostile_values && (isnan(value) || (isinf(value) && !may_overflow))) {
            if (r->not_finite++ < 3)
                finding(r, "not finite: b=%lld t=%lld p=%lld is %g", (long long)(row / n), (long long)(row % n),
                        (long long)p, value);
        }
    }
    for (int64_t p = limit; p < clean; p++) {
        double value = logits_image_value(d, image, row, p);
        size_t at = logits_image_at(d, row, p);
        bool poison = image[at] == poison_byte(at) && image[at + 1] == poison_byte(at + 1);
        if (!(isinf(value) && value < 0) && !(o->partial && poison) && r->not_clean++ < 3)
            finding(r, "not -inf: b=%lld t=%lld p=%lld is %g, limit %lld, cleaned to %lld", (long long)(row / n),
                    (long long)(row % n), (long long)p, value, (long long)limit, (long long)clean);
    }
    int64_t end = limit > clean ? limit : clean, rows = (int64_t)d->c.batch * n;
    size_t next = row + 1 < rows ? logits_image_at(d, row + 1, 0) : d->out_image_bytes;
    char where[96];
    snprintf(where, sizeof where, "after b=%lld t=%lld, which ends at column %lld", (long long)(row / n),
             (long long)(row % n), (long long)end);
    check_untouched(image, logits_image_at(d, row, end), next, where, r);
}

/* ---- Values ---- */

/* A stretch of whole blocks of one request. */
struct stretch {
    int64_t b, first_block, num_blocks;
};

struct checker {
    const struct logits_data *d;
    const uint8_t *image;
    const struct logits_check_options *options;
    const struct stretch *stretches;
    int64_t num_stretches, next; /* next is claimed under the mutex */
    struct logits_report *report;
    double squared_differences, squares;
    bool failed;
    pthread_mutex_t mutex;
};

#define GROUP  32 /* numbers that share a scale in fp4 */
#define GROUPS 4  /* at most */

struct scratch {
    float *q, *aligned_q; /* [next_n, H / LANES, D, LANES] */
    double *q_scales;     /* [next_n, H / LANES, GROUPS, LANES] */
    float *k, *aligned_k; /* [D] */
    double k_scales[GROUPS];
    double *ref; /* [next_n, tokens] */
};

static int64_t seen_in(const struct logits_data *d, const struct stretch *s, int64_t t) {
    int64_t limit = logits_limit(d, s->b, t) - s->first_block * d->c.block_size;
    int64_t most = s->num_blocks * d->c.block_size;
    return limit < 0 ? 0 : limit > most ? most : limit;
}

/* The public reference, asked for this request and these columns of its table alone. */
static bool reference_stretch(const struct logits_data *d, const struct stretch *s, double *ref) {
    struct logits_tensors t;
    struct logits_call call;
    int64_t tokens = s->num_blocks * d->c.block_size;
    int32_t lens[64];
    for (int i = 0; i < d->c.next_n && i < 64; i++)
        lens[i] = (int32_t)seen_in(d, s, i);
    struct logits_addresses at = {.q = d->q + s->b * d->q_request_stride,
                                  .q_sf = d->q_sf ? d->q_sf + s->b * d->q_sf_request_stride : NULL,
                                  .kv = d->kv,
                                  .weights = d->weights + s->b * d->c.next_n * d->weights_stride,
                                  .tables = d->tables + s->b * d->table_stride + s->first_block,
                                  .lens = lens,
                                  .out = ref};
    logits_tensors_make(&t, &call, d, (DLDevice){kDLCPU, 0}, &at);
    t.q_shape[0] = t.q_sf_shape[0] = 1;
    t.weights_shape[0] = d->c.next_n;
    t.tables_shape[0] = 1;
    t.tables_shape[1] = s->num_blocks;
    t.lens.ndim = 2;
    t.lens_shape[0] = 1;
    t.lens_shape[1] = d->c.next_n;
    t.lens_strides[0] = d->c.next_n;
    t.lens_strides[1] = 1;
    t.out.dtype.code = kDLFloat;
    t.out.dtype.bits = 64;
    t.out_shape[0] = d->c.next_n;
    t.out_shape[1] = t.out_strides[0] = tokens;
    call.fp8.max_seq_len = call.fp4.max_seq_len = tokens;
    call.fp8.clean_logits = call.fp4.clean_logits = false;
    if (logits_call_reference(&call, NULL) == ATTNS_OK)
        return true;
    fprintf(stderr, "reference: %s\n", attns_last_error());
    return false;
}

static enum logits_fp4_sums fp4_sums = LOGITS_FP4_FLOAT32;

void logits_check_fp4_sums(enum logits_fp4_sums sums) {
    fp4_sums = sums;
}

/* fmax and fmin without a call; b may be NaN, and is left out then. */
static inline double larger(double a, double b) {
    return b > a ? b : a;
}

static inline double smaller(double a, double b) {
    return b < a ? b : a;
}

/* A factor's magnitude as tensor cores align it: numbers below the smallest normal one count as that. */
static inline float aligned(float x) {
    const float magnitude = fabsf(x);
    return magnitude >= E4M3_NORMAL || magnitude == 0 ? magnitude : E4M3_NORMAL;
}

/* Of the products of LANES heads and a token. */
struct sums {
    double dot[LANES], magnitude[LANES], error[LANES]; /* sum q k, sum |q k|, e_h on FP8 tensor cores */
};

/* A K step of FP8 tensor cores: sums of its products and of their magnitudes, and the largest one. */
static inline void add_step(struct sums *s, const double sum[LANES], const double magnitude[LANES],
                            const double largest[LANES]) {
    const double u = 0x1p-13;
    for (int j = 0; j < LANES; j++) {
        const double before = fabs(s->dot[j]) + s->error[j], m = larger(largest[j], before);
        s->dot[j] += sum[j];
        s->magnitude[j] += magnitude[j];
        s->error[j] += smaller(magnitude[j], K_STEP * u * m) + (before > 0 ? u * m : 0);
        s->error[j] += u * (fabs(s->dot[j]) + s->error[j]);
    }
}

/* q, aligned_q: [D, LANES]. */
static struct sums fp8_sums(const struct logits_case *c, const float *q, const float *aligned_q, const float *k,
                            const float *aligned_k) {
    struct sums s = {0};
    for (int step = 0; step < c->head_dim; step += K_STEP) {
        float sum[LANES] = {0}, magnitude[LANES] = {0}, largest[LANES] = {0};
        for (int d = step; d < step + K_STEP; d++)
            for (int j = 0; j < LANES; j++) {
                const float x = q[d * LANES + j] * k[d], a = aligned_q[d * LANES + j] * aligned_k[d];
                sum[j] += x;
                magnitude[j] += fabsf(x);
                largest[j] = a > largest[j] ? a : largest[j];
            }
        double wide[3][LANES];
        for (int j = 0; j < LANES; j++) {
            wide[0][j] = (double)sum[j];
            wide[1][j] = (double)magnitude[j];
            wide[2][j] = (double)largest[j];
        }
        add_step(&s, wide[0], wide[1], wide[2]);
        for (int j = 0; j < LANES && c->acc_dtype == ATTNS_DTYPE_F16; j++)
            s.error[j] += 0x1p-10 * (fabs(s.dot[j]) + s.error[j]) + 0x1p-24;
    }
    return s;
}

/* q: [D, LANES], q_scales: [GROUPS, LANES]. A quarter's dims of a step lie in one group; their sums are small multiples
 * of a quarter and thus exact in float32. */
static struct sums fp4_sums_of(const struct logits_case *c, const float *q, const double *q_scales, const float *k,
                               const double *k_scales) {
    enum { DIMS = K_STEP / 4 };
    struct sums s = {0};
    for (int step = 0; step < c->head_dim / K_STEP; step++) {
        double wide[3][LANES] = {0};
        for (int quarter = 0; quarter < 4; quarter++) {
            const int first = quarter * c->head_dim / 4 + step * DIMS, group = first / GROUP;
            float sum[LANES] = {0}, magnitude[LANES] = {0}, largest[LANES] = {0};
            for (int d = first; d < first + DIMS; d++)
                for (int j = 0; j < LANES; j++) {
                    const float x = q[d * LANES + j] * k[d], size = fabsf(x);
                    sum[j] += x;
                    magnitude[j] += size;
                    largest[j] = size > largest[j] ? size : largest[j];
                }
            for (int j = 0; j < LANES; j++) {
                const double scale = q_scales[group * LANES + j] * k_scales[group];
                wide[0][j] += (double)sum[j] * scale;
                wide[1][j] += (double)magnitude[j] * scale;
                wide[2][j] = larger(wide[2][j], (double)largest[j] * scale);
            }
        }
        add_step(&s, wide[0], wide[1], wide[2]);
    }
    return s;
}

/* E of one element before scaling, from e_h; and adds up sum |w| sum |q k|. */
struct bound {
    double weighted_errors, weighted_relu, half_terms, abs_sum;
};

static void add_fp8_heads(struct bound *b, const struct sums *s, const float *w) {
    for (int j = 0; j < LANES; j++) {
        const double relu = larger(0, s->dot[j]), weight = fabs((double)w[j]);
        b->weighted_errors += weight * s->error[j];
        b->weighted_relu += weight * (relu + s->error[j]);
        b->half_terms += 0x1p-25 * (relu + s->error[j] + weight + 1);
        b->abs_sum += weight * s->magnitude[j];
    }
}

static void add_fp4_heads(struct bound *b, const struct logits_case *c, const struct sums *s, const float *w) {
    const bool on_fp8 = fp4_sums == LOGITS_FP4_ON_FP8_TENSOR_CORES, short_scores = c->out_dtype != ATTNS_DTYPE_F32;
    for (int j = 0; j < LANES; j++) {
        const double relu = larger(0, s->dot[j]), weight = fabs((double)w[j]);
        double error = (c->head_dim + 16) * 0x1p-23 * s->magnitude[j] + c->head_dim * 0x1p-149;
        if (on_fp8)
            error += s->error[j];
        if (on_fp8 && short_scores)
            error += (0x1p-11 + 0x1p-16) * (relu + error);
        b->weighted_errors += weight * error;
        b->weighted_relu += weight * (relu + error);
        b->abs_sum += weight * s->magnitude[j];
    }
}

static double total_of(const struct bound *b, const struct logits_case *c) {
    if (c->variant != ATTNS_VARIANT_FP4 && c->epi_dtype == ATTNS_DTYPE_F16)
        return b->weighted_errors + (c->heads + 4) * 0x1p-11 * b->weighted_relu + b->half_terms;
    return b->weighted_errors + (c->heads + 4) * 0x1p-24 * b->weighted_relu;
}

/* Whether `got` is a correctly rounded neighbour of something within `error` of `expected`. */
static bool within(const struct logits_case *c, double got, double expected, double error, double *tolerance) {
    double reach = fabs(expected) + error;
    switch (c->out_dtype) {
    case ATTNS_DTYPE_F16:
        *tolerance = error + reach * 0x1p-11 + 0x1p-25;
        if (isinf(got)) /* terms that cancel can leave a sum of either sign */
            return (got > 0 ? expected : -expected) + error >= 65520.0;
        if (fabs(expected) - error >= 65520.0)
            return false;
        break;
    case ATTNS_DTYPE_BF16:
        *tolerance = error + reach * 0x1p-8 + 0x1p-134;
        break;
    default:
        *tolerance = error + reach * 0x1p-24 + 0x1p-126;
        break;
    }
    return fabs(got - expected) <= *tolerance; /* false for NaN */
}

static void compare_element(struct checker *k, const struct stretch *s, int64_t t, int64_t p, double expected,
                            double error, double abs_sum, struct logits_report *r, double *differences,
                            double *squares) {
    const struct logits_data *d = k->d;
    int64_t row = s->b * d->c.next_n + t;
    size_t at = logits_image_at(d, row, p);
    if (k->image[at] == poison_byte(at) && k->image[at + 1] == poison_byte(at + 1) && k->options->partial)
        return;
    double got = logits_image_value(d, k->image, row, p), tolerance = 0;
    r->compared++;
    bool ok;
    if (k->options->hostile_values && !isfinite(expected))
        ok = isnan(expected) ? isnan(got) : got == expected;
    else
        ok = within(&d->c, got, expected, error, &tolerance);
    if (!ok && r->wrong++ < 4)
        finding(r, "wrong: b=%lld t=%lld p=%lld got %.9g expected %.9g, off by %.3g, tolerance %.3g", (long long)s->b,
                (long long)t, (long long)p, got, expected, got - expected, tolerance);
    r->overflowed += ok && isinf(got);
    if (!isfinite(got) || !isfinite(expected))
        return;
    if (tolerance > 0)
        r->worst = fmax(r->worst, fabs(got - expected) / tolerance);
    if (abs_sum > 0) {
        double x = got / abs_sum, y = expected / abs_sum;
        *differences += (x - y) * (x - y);
        *squares += x * x + y * y;
    }
}

static void load_queries(const struct logits_data *d, int64_t b, int t, int groups, const struct scratch *w) {
    const struct logits_case *c = &d->c;
    float q[MAX_HEAD_DIM];
    for (int h = 0; h < c->heads; h++) {
        const int64_t first = (int64_t)t * c->heads + h / LANES * LANES;
        logits_q(d, b, t, h, q);
        for (int i = 0; i < c->head_dim; i++) {
            const int64_t at = first * c->head_dim + i * LANES + h % LANES;
            w->q[at] = q[i];
            w->aligned_q[at] = aligned(q[i]);
        }
        for (int g = 0; g < groups; g++)
            w->q_scales[first * GROUPS + g * LANES + h % LANES] = logits_q_scale(d, b, t, h, g);
    }
}

static bool check_stretch(struct checker *k, const struct stretch *s, struct scratch *w) {
    const struct logits_data *d = k->d;
    const struct logits_case *c = &d->c;
    if (!reference_stretch(d, s, w->ref))
        return false;
    int64_t slot_size = (int64_t)c->heads * c->head_dim, tokens = s->num_blocks * c->block_size, most = 0;
    int groups = c->variant == ATTNS_VARIANT_FP4 ? c->head_dim / GROUP : 0;
    for (int t = 0; t < c->next_n; t++) {
        load_queries(d, s->b, t, groups, w);
        most = seen_in(d, s, t) > most ? seen_in(d, s, t) : most;
    }
    struct logits_report mine = {0};
    double differences = 0, squares = 0;
    for (int64_t i = 0; i < most; i++) {
        int64_t id = d->tables[s->b * d->table_stride + s->first_block + i / c->block_size], slot = i % c->block_size;
        bool exists = id >= 0 && id < d->num_blocks;
        memset(w->k, 0, (size_t)c->head_dim * sizeof *w->k);
        if (exists)
            logits_k(d, id, slot, w->k);
        for (int dim = 0; dim < c->head_dim; dim++)
            w->aligned_k[dim] = aligned(w->k[dim]);
        for (int g = 0; g < groups; g++)
            w->k_scales[g] = exists ? logits_k_scale(d, id, slot, g) : 0;
        double scale = exists ? fabs((double)logits_token_scale(d, id, slot)) : 0;
        for (int t = 0; t < c->next_n; t++) {
            if (i >= seen_in(d, s, t))
                continue;
            const float *weights = d->weights + (s->b * c->next_n + t) * d->weights_stride;
            struct bound bound = {0};
            for (int h = 0; h < c->heads; h += LANES) {
                const int64_t at = t * slot_size + h * c->head_dim;
                if (groups) {
                    const double *q_scales = w->q_scales + (t * c->heads + h) * GROUPS;
                    const struct sums sums = fp4_sums_of(c, w->q + at, q_scales, w->k, w->k_scales);
                    add_fp4_heads(&bound, c, &sums, weights + h);
                } else {
                    const struct sums sums = fp8_sums(c, w->q + at, w->aligned_q + at, w->k, w->aligned_k);
                    add_fp8_heads(&bound, &sums, weights + h);
                }
            }
            double expected = w->ref[t * tokens + i];
            double error = total_of(&bound, c) * scale + 0x1p-23 * fabs(expected);
            compare_element(k, s, t, s->first_block * c->block_size + i, expected, error, bound.abs_sum * scale, &mine,
                            &differences, &squares);
        }
    }
    pthread_mutex_lock(&k->mutex);
    k->report->compared += mine.compared;
    k->report->overflowed += mine.overflowed;
    k->report->wrong += mine.wrong;
    k->report->worst = fmax(k->report->worst, mine.worst);
    if (mine.first[0] && strlen(k->report->first) + strlen(mine.first) < sizeof k->report->first)
        strcat(k->report->first, mine.first);
    k->squared_differences += differences;
    k->squares += squares;
    pthread_mutex_unlock(&k->mutex);
    return true;
}

static void *checker_thread(void *argument) {
    struct checker *k = argument;
    const struct logits_case *c = &k->d->c;
    size_t slots = (size_t)c->next_n * (size_t)c->heads * (size_t)c->head_dim;
    int64_t most = 1;
    for (int64_t i = 0; i < k->num_stretches; i++)
        most = k->stretches[i].num_blocks > most ? k->stretches[i].num_blocks : most;
    struct scratch w;
    w.q = malloc(slots * sizeof *w.q);
    w.aligned_q = malloc(slots * sizeof *w.aligned_q);
    w.k = malloc((size_t)c->head_dim * sizeof *w.k);
    w.aligned_k = malloc((size_t)c->head_dim * sizeof *w.aligned_k);
    w.ref = malloc((size_t)c->next_n * (size_t)(most * c->block_size) * sizeof *w.ref);
    w.q_scales = malloc((size_t)c->next_n * (size_t)c->heads * GROUPS * sizeof *w.q_scales);
    bool ok = w.q && w.aligned_q && w.k && w.aligned_k && w.ref && w.q_scales;
    while (ok) {
        pthread_mutex_lock(&k->mutex);
        int64_t i = k->failed ? k->num_stretches : k->next++;
        pthread_mutex_unlock(&k->mutex);
        if (i >= k->num_stretches)
            break;
        ok = check_stretch(k, &k->stretches[i], &w);
    }
    if (!ok) {
        pthread_mutex_lock(&k->mutex);
        k->failed = true;
        pthread_mutex_unlock(&k->mutex);
    }
    free(w.q);
    free(w.aligned_q);
    free(w.q_scales);
    free(w.k);
    free(w.aligned_k);
    free(w.ref);
    return NULL;
}

static int64_t blocks_seen(const struct logits_data *d, int64_t b) {
    int64_t most = 0;
    for (int t = 0; t < d->c.next_n; t++) {
        int64_t limit = logits_limit(d, b, t);
        most = limit > most ? limit : most;
    }
    return (most + d->c.block_size - 1) / d->c.block_size;
}

/* All stretches if the work allows it, otherwise random ones: every third at a request's end, where bounds go wrong,
 * every sixth at its start. Returns malloc'ed. */
static struct stretch *choose_stretches(const struct logits_data *d, double max_work, int64_t *count) {
    const struct logits_case *c = &d->c;
    int64_t unit = c->block_size >= 64 ? 1 : 64 / c->block_size; /* blocks of one stretch */
    double token_work = (double)c->next_n * c->heads * c->head_dim;
    double stretch_work = token_work * (double)(unit * c->block_size);
    int64_t total = 0;
    for (int64_t b = 0; b < c->batch; b++)
        total += (blocks_seen(d, b) + unit - 1) / unit;
    bool all = (double)total * stretch_work <= max_work;
    int64_t wanted = all ? total : (int64_t)(max_work / stretch_work) + 1;
    struct stretch *list = malloc((size_t)(wanted + 1) * sizeof *list);
    *count = 0;
    if (!list || total == 0)
        return list;
    if (all) {
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t n = blocks_seen(d, b), j = 0; j < n; j += unit)
                list[(*count)++] = (struct stretch){b, j, n - j < unit ? n - j : unit};
        return list;
    }
    struct rng r = rng_make(c->seed + 1);
    while (*count < wanted) {
        int64_t b = rng_below(&r, c->batch), n = blocks_seen(d, b);
        if (n == 0)
            continue;
        int64_t pieces = (n + unit - 1) / unit, kind = rng_below(&r, 6);
        int64_t j = (kind < 2 ? pieces - 1 : kind == 2 ? 0 : rng_below(&r, pieces)) * unit;
        list[(*count)++] = (struct stretch){b, j, n - j < unit ? n - j : unit};
    }
    return list;
}

static bool check_values(struct checker *k, double max_work) {
    struct stretch *list = choose_stretches(k->d, max_work, &k->num_stretches);
    if (!list)
        return false;
    k->stretches = list;
    const struct logits_case *c = &k->d->c;
    double work = (double)k->num_stretches * 64 * c->next_n * c->heads * c->head_dim;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = work < SHORT_RUN ? 1 : cpus > MAX_THREADS ? MAX_THREADS : cpus < 1 ? 1 : (int)cpus;
    pthread_t ids[MAX_THREADS];
    int started = 0;
    while (started + 1 < threads && pthread_create(&ids[started], NULL, checker_thread, k) == 0)
        started++;
    checker_thread(k);
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    free(list);
    return !k->failed;
}

/* What rounding alone may contribute to the deviation, with room. */
static double deviation_limit(const struct logits_case *c) {
    bool f16 = c->acc_dtype == ATTNS_DTYPE_F16 || c->epi_dtype == ATTNS_DTYPE_F16;
    bool fine = c->variant == ATTNS_VARIANT_FP4 && fp4_sums == LOGITS_FP4_FLOAT32;
    double limit = fine ? 1e-12 : f16 ? 1e-3 : 1e-6;
    return limit + (c->out_dtype == ATTNS_DTYPE_BF16 ? 0x1p-16 : c->out_dtype == ATTNS_DTYPE_F16 ? 0x1p-22 : 0);
}

bool logits_check(const struct logits_data *d, const void *image, const struct logits_check_options *options,
                  struct logits_report *report) {
    static const struct logits_check_options defaults;
    const struct logits_check_options *o = options ? options : &defaults;
    memset(report, 0, sizeof *report);
    check_untouched(image, 0, d->out_front_bytes, "before the first row", report);
    for (int64_t row = 0; row < (int64_t)d->c.batch * d->c.next_n; row++)
        check_row_ownership(d, image, row, o, report);

    struct checker k = {.d = d, .image = image, .options = o, .report = report};
    pthread_mutex_init(&k.mutex, NULL);
    bool ran = check_values(&k, o->max_work > 0 ? o->max_work : 2e9);
    pthread_mutex_destroy(&k.mutex);
    if (!ran)
        finding(report, "the reference could not be computed");
    report->deviation = k.squares > 0 ? k.squared_differences / k.squares : 0;
    /* Where float16 has overflowed, what is left are sums whose terms nearly cancel: not a fair sample. */
    bool precise = report->overflowed > 0 || report->deviation <= deviation_limit(&d->c);
    if (!precise)
        finding(report, "imprecise: deviation %.3g of all compared elements, at most %.3g", report->deviation,
                deviation_limit(&d->c));
    if (report->owned > 0 && report->compared == 0 && !o->partial)
        finding(report, "nothing was compared");
    report->ok = ran && precise && !report->wrong && !report->unwritten && !report->not_finite && !report->not_clean &&
                 !report->stray && (report->owned == 0 || report->compared > 0 || o->partial);
    return report->ok;
}
