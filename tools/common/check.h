/* SPDX-License-Identifier: MIT
 *
 * Judges an output of a logits operation: values against the CPU reference, and every byte that the call does not
 * own against the poison it held before. Needs no GPU: it looks at a host copy. */
#ifndef ATTNS_TOOLS_COMMON_CHECK_H_
#define ATTNS_TOOLS_COMMON_CHECK_H_

#include "common/case.h"

struct logits_check_options {
    /* Multiply-adds the reference may spend; a larger output has all its elements checked for being written, finite,
     * cleaned or left alone, and random stretches of it against the reference. 0: 2e9 (some seconds on one core). */
    double max_work;
    bool partial;        /* owned elements may also be unwritten (a foreign schedule) */
    bool hostile_values; /* NaN and infinities may be in the inputs: where the reference has NaN, NaN is demanded */
};

struct logits_report {
    bool ok;
    uint64_t owned;      /* elements that the call must write as logits */
    uint64_t compared;   /* of those, against the reference */
    uint64_t overflowed; /* of those, infinite as they have to be */
    uint64_t wrong;      /* outside the tolerance, or NaN */
    uint64_t unwritten;  /* owned elements that still hold the poison */
    uint64_t not_finite; /* owned NaN or infinity found without the reference */
    uint64_t not_clean;  /* elements that should be -inf and are not */
    uint64_t stray;      /* bytes or elements changed that the call does not own */
    double worst;        /* largest |got - expected| / tolerance */
    double deviation;    /* 1 - 2<x,y> / (<x,x> + <y,y>) over compared elements, each divided by its own sum of
                            absolute terms so that all scales count alike */
    char first[2000];    /* the first few findings, one per line */
};

/* What adds up the products of the fp4 kernels whose outputs are checked, which bounds its errors. For the whole
 * process; LOGITS_FP4_FLOAT32 until another is set, as logits_queue_logits does for the kernel it calls. */
enum logits_fp4_sums { LOGITS_FP4_FLOAT32 = 0, LOGITS_FP4_ON_FP8_TENSOR_CORES };
void logits_check_fp4_sums(enum logits_fp4_sums sums);

/* `image` is out_image_bytes long: guard bands and everything between, as downloaded. Returns report->ok. Uses up to
 * 16 threads. */
bool logits_check(const struct logits_data *data, const void *image, const struct logits_check_options *options,
                  struct logits_report *report);

/* One line of counts, worst and deviation, then the findings. */
void logits_report_print(const struct logits_report *report, const char *title);

/* A poisoned image (malloc), as logits_check expects of an output that nobody has written. */
uint8_t *logits_image_make(const struct logits_data *data);
/* Bytes from the start of the image to element [row, column]. */
size_t logits_image_at(const struct logits_data *data, int64_t row, int64_t column);
double logits_image_value(const struct logits_data *data, const void *image, int64_t row, int64_t column);

/* Compares the owned elements of row `row_a` of one output with those of row `row_b` of another, bit by bit. Returns
 * the first column that differs, or -1. Limits and dtypes of the two must be alike, or the result is 0. */
int64_t logits_rows_differ(const struct logits_data *a, const void *image_a, int64_t row_a, const struct logits_data *b,
                           const void *image_b, int64_t row_b);

/* float16 and bfloat16 bits to double and back (round to nearest even). */
double half_to_double(uint16_t bits);
double bfloat_to_double(uint16_t bits);
uint16_t double_to_half(double value);
uint16_t double_to_bfloat(double value);

#endif
