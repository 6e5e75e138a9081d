/* SPDX-License-Identifier: MIT */
#include "core/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `extra` more characters and the NUL. */
static bool reserve(attns_strbuf *buf, size_t extra) {
    if (buf->failed)
        return false;
    if (extra >= SIZE_MAX / 2 - buf->size) {
        buf->failed = true;
        return false;
    }
    size_t needed = buf->size + extra + 1;
    if (needed <= buf->capacity)
        return true;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    char *text = realloc(buf->text, capacity);
    if (!text) {
        buf->failed = true;
        return false;
    }
    buf->text = text;
    buf->capacity = capacity;
    return true;
}

void attns_strbuf_append(attns_strbuf *buf, const char *data, size_t size) {
    if (!reserve(buf, size))
        return;
    if (size)
        memcpy(buf->text + buf->size, data, size);
    buf->size += size;
    buf->text[buf->size] = '\0';
}

void attns_strbuf_puts(attns_strbuf *buf, const char *text) {
    attns_strbuf_append(buf, text, strlen(text));
}

void attns_strbuf_printf(attns_strbuf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0) {
        buf->failed = true;
        return;
    }
    if (!reserve(buf, (size_t)size))
        return;
    va_start(args, format);
    vsnprintf(buf->text + buf->size, (size_t)size + 1, format, args);
    va_end(args);
    buf->size += (size_t)size;
}

const char *attns_strbuf_text(const attns_strbuf *buf) {
    return buf->text ? buf->text : "";
}

char *attns_strbuf_take(attns_strbuf *buf) {
    char *text = NULL;
    if (reserve(buf, 0)) {
        buf->text[buf->size] = '\0';
        text = buf->text;
        buf->text = NULL;
    }
    attns_strbuf_free(buf);
    return text;
}

void attns_strbuf_free(attns_strbuf *buf) {
    free(buf->text);
    *buf = (attns_strbuf){0};
}
