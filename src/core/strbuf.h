/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_CORE_STRBUF_H_
#define ATTNS_CORE_STRBUF_H_

#include <stdbool.h>
#include <stddef.h>

/* A text that grows. Zero-initialise it. When memory runs out, `failed` is set and all further appends are no-ops, so
 * that one check at the end is enough. */
typedef struct attns_strbuf {
    char *text; /* malloc, NUL-terminated; NULL while empty */
    size_t size;
    size_t capacity;
    bool failed;
} attns_strbuf;

void attns_strbuf_append(attns_strbuf *buf, const char *data, size_t size);
void attns_strbuf_puts(attns_strbuf *buf, const char *text);
void attns_strbuf_printf(attns_strbuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text, never NULL ("" while empty); belongs to the buffer. */
const char *attns_strbuf_text(const attns_strbuf *buf);
/* Hands the text over to the caller (free) and empties the buffer. NULL if memory ran out. */
char *attns_strbuf_take(attns_strbuf *buf);
void attns_strbuf_free(attns_strbuf *buf);

#endif
