/* SPDX-License-Identifier: MIT
 *
 * What the tests of contexts and kernels share: scratch folders, files, recorded log lines. Failures end the test. */
#ifndef ATTNS_TESTS_CORE_TESTING_H_
#define ATTNS_TESTS_CORE_TESTING_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* After the four above. */
#include <cmocka.h>
#include <pthread.h>

#include <attn_scores/attn_scores.h>

/* A new empty folder (free); removed with all it holds by scratch_remove, which also frees. */
char *scratch_make(void);
void scratch_remove(char *dir);

/* "dir/name" in a new string (free). */
char *path_join(const char *dir, const char *name);
/* Writes dir/name, making the folders of `name`. */
void file_write(const char *dir, const char *name, const char *text);
/* The whole file, NUL-terminated (free). NULL if there is none. */
char *file_read(const char *path, size_t *size);
void file_copy(const char *from, const char *to);
/* Regular files below dir, at any depth, whose name contains `part`. */
int count_files(const char *dir, const char *part);

typedef struct log_record {
    pthread_mutex_t mutex;
    int lines[ATTNS_LOG_DEBUG + 1]; /* by level */
    char text[65536];               /* "level: line\n"... */
    size_t size;
} log_record;
#define LOG_RECORD_INIT                                                                                                \
    { .mutex = PTHREAD_MUTEX_INITIALIZER }
void log_to_record(void *record, attns_log_level level, const char *message);

/* Asserts that `text` contains `part`, printing both otherwise. */
void assert_contains(const char *text, const char *part);
void assert_lacks(const char *text, const char *part);

#endif
