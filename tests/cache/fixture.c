/* SPDX-License-Identifier: MIT */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Scratch directories ---- */

char scratch[256];

int make_scratch(void **unused) {
    (void)unused;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/attns-cache-test-XXXXXX", base != NULL && *base == '/' ? base : "/tmp");
    assert_non_null(mkdtemp(scratch));
    assert_int_equal(chmod(scratch, 0755), 0);
    return 0;
}

int remove_scratch(void **unused) {
    (void)unused;
    remove_tree(scratch);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void remove_tree(const char *path) {
    assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void format_path(char path[512], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(path, 512, format, arguments);
    va_end(arguments);
    assert_in_range(printed, 1, 511);
}

bool path_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

void write_file(const char *path, const void *bytes, size_t size) {
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

uint8_t *read_file(const char *path, size_t *size) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *size = (size_t)st.st_size;
    uint8_t *const bytes = malloc(*size + 1);
    assert_non_null(bytes);
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static file_counts counting;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st;
    const char *const name = path + walk->base;
    const size_t size = strlen(name);
    if (type == FTW_D || type == FTW_DP || strcmp(name, "lock") == 0)
        return 0;
    if (size > 6 && strcmp(name + size - 6, ".cubin") == 0)
        counting.entries++;
    else if (strncmp(name, ".tmp-", 5) == 0)
        counting.temps++;
    else
        counting.others++;
    return 0;
}

file_counts count_files(const char *path) {
    counting = (file_counts){0};
    assert_int_equal(nftw(path, count_one, 16, FTW_PHYS), 0);
    return counting;
}

int count_open_fds(void) {
    DIR *const dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    int count = -1; /* the directory's own */
    for (const struct dirent *item = readdir(dir); item != NULL; item = readdir(dir))
        count += item->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* ---- Recorded log ---- */

void record_log(void *user, int level, const char *message) {
    log_record *const record = user;
    const size_t used = strlen(record->text);
    snprintf(record->text + used, sizeof record->text - used, "%d %s\n", level, message);
    record->lines++;
    if (level <= 2) {
        record->warnings++;
        snprintf(record->last, sizeof record->last, "%s", message);
    }
}

attns_cache *open_cache(const char *dir, const char *readonly_dirs, uint64_t max_bytes, log_record *record) {
    memset(record, 0, sizeof *record);
    const attns_cache_params params = {
        .dir = dir, .readonly_dirs = readonly_dirs, .max_bytes = max_bytes, .log = record_log, .log_user = record};
    attns_cache *const cache = attns_cache_open(&params);
    assert_non_null(cache);
    return cache;
}

/* ---- Random numbers ---- */

static uint64_t random_state;

void seed_random(void) {
    const char *const text = getenv("ATTNS_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        text != NULL ? strtoull(text, NULL, 0) : (uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec;
    random_state = seed;
    printf("seed %" PRIu64 " (repeat with ATTNS_TEST_SEED=%" PRIu64 ")\n", seed, seed);
    fflush(stdout);
}

/* A Weyl sequence through a 64-bit finaliser: any seed is good, 0 included. */
static uint64_t scramble(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t value = *state;
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t next_random(void) {
    return scramble(&random_state);
}

uint64_t random_below(uint64_t bound) {
    return next_random() % bound;
}

/* ---- Keys and payloads ---- */

attns_cache_key key_of(const char *name) {
    const attns_cache_key_field fields[] = {{"source", name, strlen(name)}, {"arch", "sm_90a", 6}};
    attns_cache_key key;
    assert_true(attns_cache_key_make(&key, fields, 2));
    return key;
}

void entry_path(char path[512], const char *dir, const attns_cache_key *key, uint32_t build) {
    char hex[2 * ATTNS_CACHE_KEY_BYTES + 1];
    for (size_t i = 0; i < ATTNS_CACHE_KEY_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", key->digest[i]);
    format_path(path, "%s/v1/%.2s/%s-%" PRIu32 ".cubin", dir, hex, hex, build);
}

uint8_t *payload_of(const attns_cache_key *key, uint32_t build, size_t *size) {
    uint64_t state = build;
    for (size_t i = 0; i < ATTNS_CACHE_KEY_BYTES; i++)
        state = state * 257 + key->digest[i];
    *size = 2000 + scramble(&state) % 6000;
    uint8_t *const bytes = malloc(*size);
    assert_non_null(bytes);
    for (size_t i = 0; i < *size; i++)
        bytes[i] = (uint8_t)scramble(&state);
    return bytes;
}

static void meta_of(char meta[64], const attns_cache_key *key, uint32_t build) {
    snprintf(meta, 64, "registers=%u build=%" PRIu32, (unsigned)key->digest[3], build);
}

bool store_of(attns_cache *cache, const attns_cache_key *key, uint32_t build) {
    size_t size;
    uint8_t *const payload = payload_of(key, build, &size);
    char meta[64];
    meta_of(meta, key, build);
    const bool stored = attns_cache_store(cache, key, build, meta, payload, size);
    free(payload);
    return stored;
}

bool entry_is_of(const attns_cache_entry *entry, const attns_cache_key *key, uint32_t build) {
    size_t size;
    uint8_t *const payload = payload_of(key, build, &size);
    char meta[64];
    meta_of(meta, key, build);
    const bool equal = entry->build == build && strcmp(entry->meta, meta) == 0 && entry->payload_size == size &&
                       memcmp(entry->payload, payload, size) == 0;
    free(payload);
    return equal;
}

uint32_t lookup_of(attns_cache *cache, const attns_cache_key *key, uint32_t build) {
    attns_cache_entry entry;
    memset(&entry, 0xa5, sizeof entry);
    if (!attns_cache_lookup(cache, key, build, &entry)) {
        assert_null(entry.meta);
        assert_null(entry.payload);
        assert_int_equal(entry.build, 0);
        return 0;
    }
    const uint32_t found = entry.build;
    assert_int_not_equal(found, 0);
    assert_true(entry_is_of(&entry, key, found));
    attns_cache_entry_free(&entry);
    return found;
}
