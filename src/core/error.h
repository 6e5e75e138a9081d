/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_CORE_ERROR_H_
#define ATTNS_CORE_ERROR_H_

#include <attn_scores/attn_scores.h>

/* Sets the calling thread's message (attns_last_error) and returns `status`. Messages name the argument, the value
 * given and what is accepted: "weights: dtype is float16, accepted: float32". */
attns_status attns_fail(attns_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
