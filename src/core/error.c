/* SPDX-License-Identifier: MIT */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[ATTNS_ERROR_BYTES];

/* What is kept of the end of a message that is too long. */
#define TAIL_BYTES 2048

/* `text` has `size` characters, too many for `message`. */
static void shorten(const char *text, size_t size) {
    static const char gap[] = "\n[... the middle of this message is left out ...]\n";
    size_t head = ATTNS_ERROR_BYTES - 1 - TAIL_BYTES - (sizeof gap - 1);
    memcpy(message, text, head);
    memcpy(message + head, gap, sizeof gap - 1);
    memcpy(message + head + sizeof gap - 1, text + size - TAIL_BYTES, TAIL_BYTES);
    message[ATTNS_ERROR_BYTES - 1] = '\0';
}

attns_status attns_fail(attns_status status, const char *format, ...) {
    /* Formatted beside the message, which the arguments may point into. */
    char text[ATTNS_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size < 0)
        size = snprintf(text, sizeof text, "%s", attns_status_string(status));

    char *whole = NULL;
    if ((size_t)size >= sizeof text)
        whole = malloc((size_t)size + 1);
    if (whole) {
        va_start(args, format);
        vsnprintf(whole, (size_t)size + 1, format, args);
        va_end(args);
        shorten(whole, (size_t)size);
        free(whole);
    } else {
        memcpy(message, text, strlen(text) + 1); /* short, or cut at the end when memory is exhausted */
    }
    return status;
}

void attns_error_save(attns_saved_error *saved) {
    memcpy(saved->text, message, strlen(message) + 1);
}

void attns_error_restore(const attns_saved_error *saved) {
    memcpy(message, saved->text, strlen(saved->text) + 1);
}

const char *attns_last_error(void) {
    return message;
}

const char *attns_status_string(attns_status status) {
    switch (status) {
    case ATTNS_OK:
        return "success";
    case ATTNS_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case ATTNS_ERROR_UNSUPPORTED:
        return "unsupported configuration";
    case ATTNS_ERROR_UNSUPPORTED_DEVICE:
        return "unsupported device or compile target";
    case ATTNS_ERROR_LIBRARY_NOT_FOUND:
        return "libcuda or libnvrtc not found";
    case ATTNS_ERROR_COMPILE:
        return "kernel compilation failed";
    case ATTNS_ERROR_WOULD_COMPILE:
        return "kernel not ready during stream capture";
    case ATTNS_ERROR_CUDA:
        return "CUDA driver error";
    case ATTNS_ERROR_OUT_OF_MEMORY:
        return "out of host memory";
    case ATTNS_ERROR_IO:
        return "file error";
    case ATTNS_ERROR_INTERNAL:
        return "internal error";
    }
    return "unknown status";
}

#define TEXT_OF(number)   #number
#define NUMBER_TEXT(name) TEXT_OF(name)

const char *attns_version(void) {
    return NUMBER_TEXT(ATTNS_VERSION_MAJOR) "." NUMBER_TEXT(ATTNS_VERSION_MINOR) "." NUMBER_TEXT(ATTNS_VERSION_PATCH);
}
