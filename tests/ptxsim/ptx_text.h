/* SPDX-License-Identifier: MIT
 *
 * The text of a kernel, written piece by piece. */
#ifndef PTX_TEXT_H_
#define PTX_TEXT_H_

#include "run_ptx.h"

typedef struct text {
    char bytes[1 << 17];
    size_t used;
} text;

static inline void add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void add(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(t->bytes + t->used, sizeof(t->bytes) - t->used, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && (size_t)length < sizeof(t->bytes) - t->used);
    t->used += (size_t)length;
}

/* Text that is no format. */
static inline void say(text *t, const char *plain) {
    add(t, "%s", plain);
}

#endif
