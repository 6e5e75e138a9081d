/* SPDX-License-Identifier: MIT
 *
 * Judges an output of indexer_scores: values against the CPU reference, and every byte that the call does not own against
 * the poison it held before. Needs no GPU: it looks at a host copy. */
#ifndef ATTNS_TOOLS_COMMON_INDEXER_CHECK_H_
#define ATTNS_TOOLS_COMMON_INDEXER_CHECK_H_

#include "common/indexer_case.h"

struct indexer_check_options {
    int64_t max_keys;    /* keys of which all rows' scores are compared with the reference; of a larger call, random pages.
                            0: 200,000 */
    bool hostile_values; /* NaN may be in the inputs: where the reference has NaN, NaN is demanded */
};

struct indexer_report {
    bool ok;
    uint64_t owned;      /* elements that the call must write */
    uint64_t compared;   /* of those, with the reference */
    uint64_t wrong;      /* outside the tolerance, or NaN */
    uint64_t unwritten;  /* owned elements that still hold the poison */
    uint64_t not_finite; /* owned elements that are not */
    uint64_t stray;      /* elements or bytes changed that the call does not own */
    double worst;        /* largest |got - expected| / tolerance */
    double deviation;    /* mean square of the error over that of the scores, both relative to sums of absolute terms */
    char first[1000];    /* the first findings, one per line */
};

/* `image` is image_bytes long: guard bands and everything between, as downloaded. Returns report->ok. */
bool indexer_check(const struct indexer_data *data, const void *image, const struct indexer_check_options *options,
                   struct indexer_report *report);
void indexer_report_print(const struct indexer_report *report, const char *title);

/* A poisoned image (malloc), as indexer_check expects of an output that nobody has written. */
uint8_t *indexer_image_make(const struct indexer_data *data);
/* Bytes from the start of the image to a score. */
size_t indexer_image_at(const struct indexer_data *data, int64_t row, int64_t column);
float indexer_image_value(const struct indexer_data *data, const void *image, int64_t row, int64_t column);

#endif
