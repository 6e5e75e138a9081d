/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_CORE_ERROR_H_
#define ATTNS_CORE_ERROR_H_

#include <attn_scores/attn_scores.h>

/* Size of a thread's message with its NUL. Of a longer one (a compiler's log) the middle is left out: the first errors
 * and the last lines are what a reader needs. */
#define ATTNS_ERROR_BYTES 8192

/* Sets the calling thread's message (attns_last_error) and returns `status`. Messages name the argument, the value
 * given and what is accepted: "weights: dtype is float16, accepted: float32". The arguments may point into the current
 * message. */
attns_status attns_fail(attns_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a step whose failure the caller does not see: keeps its message from replacing that of an earlier failed call. */
typedef struct attns_saved_error {
    char text[ATTNS_ERROR_BYTES];
} attns_saved_error;
void attns_error_save(attns_saved_error *saved);
void attns_error_restore(const attns_saved_error *saved);

#endif
