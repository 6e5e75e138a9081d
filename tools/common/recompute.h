/* SPDX-License-Identifier: MIT
 *
 * The formulas of both variants written down once more, in long double and without regard to speed: a second
 * opinion on the library's CPU reference. Shares no code with it. */
#ifndef ATTNS_TOOLS_COMMON_RECOMPUTE_H_
#define ATTNS_TOOLS_COMMON_RECOMPUTE_H_

#include "common/case.h"

struct recompute_report {
    bool ok;
    uint64_t compared;
    uint64_t wrong;     /* values or absolute sums off by more than double rounding, or not -inf where cleaned */
    uint64_t untouched; /* elements that had to stay as they were, and did */
    uint64_t stray;     /* and those that did not */
    double worst;       /* largest |reference - recomputed| / sum of absolute terms */
    char first[500];
};

/* Roundings of double that an element may have: its error is at most so many times 2^-53 of the absolute sum. */
int logits_recompute_terms(const struct logits_case *c);

/* Runs the reference on the data, into float64, and judges every element of it. */
bool logits_recompute_check(const struct logits_data *data, struct recompute_report *report);

#endif
