/* SPDX-License-Identifier: MIT
 *
 * Rounds of predecessor, call and consumer under programmatic dependent launch: the predecessor lets its dependents
 * start at once, waits, and only then writes what they read; the consumer starts early and reads what the call wrote.
 */
#ifndef ATTNS_TESTS_KERNELS_PDL_H_
#define ATTNS_TESTS_KERNELS_PDL_H_

#include "support.h"

/* Runs `rounds` rounds with a wait of `spin_ns` each, through `ctx`; with_schedule: calls bring a schedule that the
 * predecessor writes too; chained: two calls follow each other before the consumer. Returns the number of 16-bit words
 * of all outputs that were not what the same call gives on its own, UINT64_MAX after a fault of the software GPU; fails
 * the running test if something cannot be run. */
uint64_t pdl_wrong_words(attns_context *ctx, int rounds, int64_t spin_ns, bool with_schedule, bool chained);

#endif
