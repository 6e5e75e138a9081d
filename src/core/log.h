/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_CORE_LOG_H_
#define ATTNS_CORE_LOG_H_

#include <attn_scores/attn_scores.h>

typedef struct attns_logger {
    attns_log_fn fn;
    void *user;
    attns_log_level level;
} attns_logger;

/* Formats one line and hands it to the logger if `level` is delivered. */
void attns_log(const attns_logger *logger, attns_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
