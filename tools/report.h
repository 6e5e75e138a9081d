/* SPDX-License-Identifier: MIT
 *
 * Machine-readable output: one JSON object per line on stdout. Without jansson the build has no JSON and
 * report_available says so; nothing else may then be called. Keys must outlive the call only. */
#ifndef ATTNS_TOOLS_REPORT_H_
#define ATTNS_TOOLS_REPORT_H_

#include <stdbool.h>
#include <stdint.h>

bool report_available(void);

/* Opens an object: the line itself (key NULL, nothing open), a member (key), or an element of an open array. */
void report_object(const char *key);
void report_array(const char *key);
/* Closes what was opened last; closing the outermost object prints the line. */
void report_close(void);

/* A member of the open object, or an element of the open array (key NULL). NULL text is null; a real that is not
 * finite is null. */
void report_text(const char *key, const char *text);
void report_int(const char *key, int64_t value);
void report_real(const char *key, double value);
void report_bool(const char *key, bool value);

#endif
