/* SPDX-License-Identifier: MIT
 *
 * What the cache tests share: scratch directories, recorded logs, seeded random numbers, keys and payloads that can be
 * checked from their name alone. Helpers end the test through cmocka if their own preparation fails. */
#ifndef ATTNS_TESTS_CACHE_FIXTURE_H_
#define ATTNS_TESTS_CACHE_FIXTURE_H_

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

#include "cubin_cache.h"

/* ---- Scratch directories ---- */

/* The directory of the test that runs: fresh, of mode 0755, so that other users can reach what is put below it. */
extern char scratch[256];
int make_scratch(void **unused); /* for a test's setup, or called by it */
int remove_scratch(void **unused);
void remove_tree(const char *path); /* with everything in it */

__attribute__((format(printf, 2, 3))) void format_path(char path[512], const char *format, ...);

bool path_exists(const char *path); /* does not follow links */
void write_file(const char *path, const void *bytes, size_t size);
uint8_t *read_file(const char *path, size_t *size); /* malloc */

typedef struct file_counts {
    unsigned entries, temps, others; /* by name, in all directories below; lock files are not counted */
} file_counts;
file_counts count_files(const char *path);

int count_open_fds(void);

/* ---- Recorded log ---- */

typedef struct log_record {
    unsigned warnings; /* levels 1 and 2 */
    unsigned lines;
    char last[1200]; /* the last line of those */
    char text[16384];
} log_record;
void record_log(void *user, int level, const char *message);

/* A cache that logs into *record (reset here). */
attns_cache *open_cache(const char *dir, const char *readonly_dirs, uint64_t max_bytes, log_record *record);

/* ---- Random numbers ---- */

/* Seeds from ATTNS_TEST_SEED, else from the clock, and prints the seed. */
void seed_random(void);
uint64_t next_random(void);
uint64_t random_below(uint64_t bound);

/* ---- Keys and payloads ---- */

attns_cache_key key_of(const char *name);
void entry_path(char path[512], const char *dir, const attns_cache_key *key, uint32_t build);

/* The payload that stands for a key and a build; its size depends on both. */
uint8_t *payload_of(const attns_cache_key *key, uint32_t build, size_t *size); /* malloc */

bool store_of(attns_cache *cache, const attns_cache_key *key, uint32_t build);

/* Whether *entry is exactly what store_of stored. */
bool entry_is_of(const attns_cache_entry *entry, const attns_cache_key *key, uint32_t build);

/* Looks up (0: newest) and returns the build found, 0 for a miss. Fails the test if a hit has wrong contents. */
uint32_t lookup_of(attns_cache *cache, const attns_cache_key *key, uint32_t build);

#endif
