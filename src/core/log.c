/* SPDX-License-Identifier: MIT */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *level_name(attns_log_level level) {
    switch (level) {
    case ATTNS_LOG_ERROR:
        return "error";
    case ATTNS_LOG_WARNING:
        return "warning";
    case ATTNS_LOG_INFO:
        return "info";
    default:
        return "debug";
    }
}

void attns_log(const attns_logger *logger, attns_log_level level, const char *format, ...) {
    if (level <= ATTNS_LOG_NONE || level > logger->level)
        return;
    char line[4096];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size < 0)
        return;
    /* A callback gets one line whatever a path or a foreign message holds. */
    for (char *c = line; (c = strpbrk(c, "\r\n")) != NULL;)
        *c = ' ';
    if (logger->fn)
        logger->fn(logger->user, level, line);
    else
        fprintf(stderr, "attn-scores: %s: %s\n", level_name(level), line);
}
