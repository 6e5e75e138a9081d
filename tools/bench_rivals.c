/* SPDX-License-Identifier: MIT */
#include "bench_rivals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DeepGEMM 2.6.1, commit 54e2261, float32 scores, [B, next_n] lengths: the median of 7 replays of a graph that holds
 * the schedule kernel and the logits kernel of every call, pools rotated. Of a shape that was measured twice the faster
 * figure stands here. */
static const bench_rival_row h200_rows[] = {
    {1, 4096, 1, 64, 128, 64, false, 5.56},     {1, 16384, 1, 64, 128, 64, false, 6.13},
    {1, 131072, 1, 64, 128, 64, false, 10.77},  {4, 16384, 1, 64, 128, 64, false, 8.80},
    {16, 4096, 1, 64, 128, 64, false, 9.04},    {16, 16384, 1, 64, 128, 64, false, 16.25},
    {64, 4096, 1, 64, 128, 64, false, 16.69},   {64, 16384, 1, 64, 128, 64, false, 43.45},
    {64, 65536, 1, 64, 128, 64, false, 146.06}, {128, 8192, 1, 64, 128, 64, false, 43.36},
    {256, 8192, 1, 64, 128, 64, false, 80.49},  {256, 32768, 1, 64, 128, 64, false, 285.77},
    {1, 4096, 2, 64, 128, 64, false, 6.46},     {1, 16384, 2, 64, 128, 64, false, 6.67},
    {1, 131072, 2, 64, 128, 64, false, 11.64},  {4, 16384, 2, 64, 128, 64, false, 9.32},
    {16, 4096, 2, 64, 128, 64, false, 9.72},    {16, 16384, 2, 64, 128, 64, false, 17.60},
    {64, 4096, 2, 64, 128, 64, false, 18.14},   {64, 16384, 2, 64, 128, 64, false, 45.69},
    {64, 65536, 2, 64, 128, 64, false, 152.82}, {128, 8192, 2, 64, 128, 64, false, 50.34},
    {256, 8192, 2, 64, 128, 64, false, 91.92},  {256, 32768, 2, 64, 128, 64, false, 299.71},
    {16, 16384, 1, 64, 128, 64, true, 20.04},   {16, 16384, 2, 64, 128, 64, true, 21.03},
    {64, 16384, 1, 64, 128, 64, true, 43.79},   {64, 16384, 2, 64, 128, 64, true, 46.41},
    {256, 8192, 1, 64, 128, 64, true, 81.18},   {256, 8192, 2, 64, 128, 64, true, 86.98},
    {64, 16384, 1, 32, 128, 64, false, 42.73},  {64, 16384, 2, 32, 128, 64, false, 44.87},
};

const bench_pair bench_deepgemm_shapes[] = {
    {1, 4096},  {1, 16384},  {1, 131072}, {4, 16384},  {16, 4096},  {16, 16384},
    {64, 4096}, {64, 16384}, {64, 65536}, {128, 8192}, {256, 8192}, {256, 32768},
};
const size_t bench_num_deepgemm_shapes = sizeof(bench_deepgemm_shapes) / sizeof(bench_deepgemm_shapes[0]);

bench_rivals bench_rivals_built_in(const char *device_name) {
    bench_rivals rivals = {0};
    if (strstr(device_name, "H200") != NULL) {
        rivals.rows = h200_rows;
        rivals.count = sizeof(h200_rows) / sizeof(h200_rows[0]);
        snprintf(rivals.source, sizeof(rivals.source),
                 "2.6.1, commit 54e2261, measured on another H200, schedule and logits kernels together");
    }
    return rivals;
}

void bench_rivals_free(bench_rivals *rivals) {
    free(rivals->allocated);
    memset(rivals, 0, sizeof(*rivals));
}

double bench_rival_us(const bench_rivals *rivals, const bench_shape *shape, const bench_settings *settings) {
    if (shape->variant != ATTNS_VARIANT_FP8 || shape->out_dtype != ATTNS_DTYPE_F32 || settings->clean) {
        return 0;
    }
    double us = 0;
    for (size_t i = 0; i < rivals->count; i++) {
        const bench_rival_row *row = &rivals->rows[i];
        if (row->batch == shape->batch && row->seq_len == shape->seq_len && row->next_n == shape->next_n &&
            row->num_heads == shape->num_heads && row->head_dim == shape->head_dim &&
            row->block_size == shape->block_size && row->jitter == settings->jitter && (us == 0 || row->us < us)) {
            us = row->us;
        }
    }
    return us;
}

/* ---- Files --------------------------------------------------------------------------------------------------- */

#ifdef ATTNS_HAVE_JANSSON

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>

/* What is wrong with an object, or NULL. */
static const char *read_row(const json_t *object, bench_rival_row *row) {
    const struct {
        const char *name;
        int *value;
    } members[] = {{"B", &row->batch},     {"ctx", &row->seq_len}, {"next_n", &row->next_n},
                   {"H", &row->num_heads}, {"D", &row->head_dim},  {"bkv", &row->block_size}};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        json_int_t value = json_integer_value(json_object_get(object, members[i].name));
        if (value < 1 || value > INT_MAX) {
            return "\"B\", \"ctx\", \"next_n\", \"H\", \"D\" and \"bkv\" must be positive integers";
        }
        *members[i].value = (int)value;
    }
    row->us = json_number_value(json_object_get(object, "us_both"));
    if (!(row->us > 0) || !isfinite(row->us)) {
        return "\"us_both\" must be a positive number";
    }
    const json_t *jitter = json_object_get(object, "jitter");
    if (jitter != NULL && !json_is_boolean(jitter)) {
        return "\"jitter\" must be true or false";
    }
    row->jitter = json_is_true(jitter);
    return NULL;
}

static void read_names(bench_rivals *rivals, const json_t *object) {
    const char *library = json_string_value(json_object_get(object, "library"));
    const char *device = json_string_value(json_object_get(object, "device"));
    snprintf(rivals->device, sizeof(rivals->device), "%.95s", device == NULL ? "" : device);
    snprintf(rivals->source, sizeof(rivals->source), "%.60s on %.95s%s", library == NULL ? "unknown version" : library,
             device == NULL ? "an unknown device" : device,
             json_is_true(json_object_get(object, "pdl")) ? ", PDL on" : "");
}

/* One line that is not empty, into rows[rivals->count]. What is wrong with it goes to `problem`. */
static bool read_line(bench_rivals *rivals, bench_rival_row *rows, const char *line, size_t length, char *problem,
                      size_t problem_size) {
    json_error_t error;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    const char *wrong = object == NULL            ? error.text
                        : !json_is_object(object) ? "a JSON object is expected"
                                                  : read_row(object, &rows[rivals->count]);
    if (wrong == NULL && rivals->count++ == 0) {
        read_names(rivals, object);
    }
    if (wrong != NULL) {
        snprintf(problem, problem_size, "%s", wrong);
    }
    json_decref(object);
    return wrong == NULL;
}

static bool read_lines(bench_rivals *rivals, FILE *file, const char *path, char *error, size_t error_size) {
    char *line = NULL;
    size_t line_size = 0, room = 0;
    ssize_t length;
    bool ok = true;
    for (int number = 1; ok && (length = getline(&line, &line_size, file)) >= 0; number++) {
        if (strspn(line, " \t\r\n") == (size_t)length) {
            continue;
        }
        if (rivals->count == room) {
            room = room == 0 ? 64 : 2 * room;
            void *larger = realloc(rivals->allocated, room * sizeof(bench_rival_row));
            if (larger == NULL) {
                snprintf(error, error_size, "%s: out of memory", path);
                ok = false;
                break;
            }
            rivals->allocated = larger;
            rivals->rows = larger;
        }
        char problem[200];
        ok = read_line(rivals, rivals->allocated, line, (size_t)length, problem, sizeof(problem));
        if (!ok) {
            snprintf(error, error_size, "%s, line %d: %s", path, number, problem);
        }
    }
    if (ok && ferror(file)) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        ok = false;
    }
    free(line);
    if (ok && rivals->count == 0) {
        snprintf(error, error_size, "%s: there is no figure in it", path);
        ok = false;
    }
    return ok;
}

bool bench_rivals_load(bench_rivals *rivals, const char *path, char *error, size_t error_size) {
    memset(rivals, 0, sizeof(*rivals));
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return false;
    }
    bool ok = read_lines(rivals, file, path, error, error_size);
    fclose(file);
    if (!ok) {
        bench_rivals_free(rivals);
    }
    return ok;
}

#else

bool bench_rivals_load(bench_rivals *rivals, const char *path, char *error, size_t error_size) {
    memset(rivals, 0, sizeof(*rivals));
    snprintf(error, error_size, "%s: this build reads no JSON (jansson was not found when it was built)", path);
    return false;
}

#endif
