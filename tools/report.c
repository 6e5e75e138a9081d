/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef ATTNS_HAVE_JANSSON

#include <jansson.h>
#include <math.h>

#define MAX_DEPTH 8

static json_t *open_values[MAX_DEPTH];
static int depth;

bool report_available(void) {
    return true;
}

/* Puts `value` where it belongs; takes the reference. */
static void put(const char *key, json_t *value) {
    assert(depth > 0 && value != NULL);
    json_t *parent = open_values[depth - 1];
    int failed = json_is_array(parent) ? json_array_append_new(parent, value) : json_object_set_new(parent, key, value);
    if (failed) {
        fputs("attn-scores: out of memory, or text that is not UTF-8\n", stderr);
        exit(1);
    }
}

static void open_value(const char *key, json_t *value) {
    assert(depth < MAX_DEPTH);
    if (depth > 0) {
        put(key, value);
    }
    open_values[depth++] = value;
}

void report_object(const char *key) {
    open_value(key, json_object());
}

void report_array(const char *key) {
    open_value(key, json_array());
}

void report_close(void) {
    assert(depth > 0);
    depth--;
    if (depth == 0) {
        json_dumpf(open_values[0], stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
        putchar('\n');
        fflush(stdout);
        json_decref(open_values[0]);
    }
}

void report_text(const char *key, const char *text) {
    /* Paths and compiler logs need not be UTF-8; null says that a text could not be shown. */
    json_t *value = text == NULL ? NULL : json_string(text);
    put(key, value == NULL ? json_null() : value);
}

void report_int(const char *key, int64_t value) {
    put(key, json_integer(value));
}

void report_real(const char *key, double value) {
    put(key, isfinite(value) ? json_real(value) : json_null());
}

void report_bool(const char *key, bool value) {
    put(key, json_boolean(value));
}

#else

bool report_available(void) {
    return false;
}

static void unavailable(void) {
    fputs("attn-scores: this build has no JSON\n", stderr);
    abort();
}

void report_object(const char *key) {
    (void)key;
    unavailable();
}

void report_array(const char *key) {
    (void)key;
    unavailable();
}

void report_close(void) {
    unavailable();
}

void report_text(const char *key, const char *text) {
    (void)key;
    (void)text;
    unavailable();
}

void report_int(const char *key, int64_t value) {
    (void)key;
    (void)value;
    unavailable();
}

void report_real(const char *key, double value) {
    (void)key;
    (void)value;
    unavailable();
}

void report_bool(const char *key, bool value) {
    (void)key;
    (void)value;
    unavailable();
}

#endif
