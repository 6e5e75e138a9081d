/* SPDX-License-Identifier: MIT
 *
 * indexer_scores once more, straight from the formula and without regard to speed: a second opinion on the library's CPU
 * reference. Shares no code with it. */
#ifndef ATTNS_TOOLS_COMMON_INDEXER_RECOMPUTE_H_
#define ATTNS_TOOLS_COMMON_INDEXER_RECOMPUTE_H_

#include "common/indexer_case.h"
#include "common/recompute.h"

/* Runs attns_reference_indexer_scores on the data, into float64, and judges every element of it. */
bool indexer_recompute_check(const struct indexer_data *data, struct recompute_report *report);

#endif
