/* SPDX-License-Identifier: MIT
 *
 * What the cache costs: looking up one entry, from a directory and from a bundle, and opening a bundle of 1,000
 * entries. For `meson test --benchmark cache_costs`; entries are of a kernel's size and lie in the page cache. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bundle.h"
#include "manage.h"

enum { ENTRIES = 1000, PAYLOAD = 50000, BUILD = 13000, REPEATS = 2000 };

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *seconds, int count) {
    qsort(seconds, (size_t)count, sizeof *seconds, ascending);
    print_message("%-48s median %8.3f ms, 99 of 100 within %8.3f ms\n", what, seconds[count / 2] * 1e3,
                  seconds[count * 99 / 100] * 1e3);
}

typedef struct collection {
    attns_cache_bundle_item items[ENTRIES];
    uint32_t count;
} collection;

static void collect(void *user, const attns_cache_found *found) {
    collection *const all = user;
    uint8_t *const bytes = malloc(found->size + ATTNS_CACHE_KEY_BYTES);
    assert_non_null(bytes);
    memcpy(bytes, found->bytes, found->size);
    memcpy(bytes + found->size, found->digest, ATTNS_CACHE_KEY_BYTES);
    all->items[all->count++] = (attns_cache_bundle_item){
        .digest = bytes + found->size, .build = found->build, .bytes = bytes, .size = (size_t)found->size};
}

static void lookups(const char *what, attns_cache *cache, const attns_cache_key *keys, uint32_t build) {
    static double seconds[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        attns_cache_entry entry;
        const double start = seconds_now();
        assert_true(attns_cache_lookup(cache, &keys[(i * 37) % ENTRIES], build, &entry));
        seconds[i] = seconds_now() - start;
        attns_cache_entry_free(&entry);
    }
    report(what, seconds, REPEATS);
}

static void costs(void **state) {
    (void)state;
    char dir[512], bundle[512];
    make_scratch(NULL);
    format_path(dir, "%s/cache", scratch);
    format_path(bundle, "%s/bundle", scratch);
    static attns_cache_key keys[ENTRIES];
    static collection all;
    uint8_t *const payload = malloc(PAYLOAD);
    assert_non_null(payload);
    log_record log;
    attns_cache *cache = open_cache(dir, NULL, 0, &log);
    static double seconds[REPEATS];
    for (int i = 0; i < ENTRIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "key %d", i);
        keys[i] = key_of(name);
        for (int k = 0; k < PAYLOAD; k++)
            payload[k] = (uint8_t)(k * (i + 3));
        const double start = seconds_now();
        assert_true(attns_cache_store(cache, &keys[i], BUILD, "kernel=x\n", payload, PAYLOAD));
        seconds[i] = seconds_now() - start;
    }
    report("store an entry of 50 KB", seconds, ENTRIES);
    lookups("look up an entry of 50 KB, build known", cache, keys, BUILD);
    lookups("look up an entry of 50 KB, newest build", cache, keys, 0);
    attns_cache_visit(cache, collect, &all);
    attns_cache_close(cache);
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_write(bundle, all.items, all.count, &fault));
    for (int i = 0; i < 200; i++) {
        const double start = seconds_now();
        cache = open_cache(NULL, bundle, 0, &log);
        seconds[i] = seconds_now() - start;
        if (i < 199)
            attns_cache_close(cache);
    }
    report("open a bundle of 1,000 entries, 50 MB", seconds, 200);
    lookups("look up an entry of 50 KB in a bundle", cache, keys, 0);
    attns_cache_close(cache);
    for (int i = 0; i < ENTRIES; i++)
        attns_cache_key_free(&keys[i]);
    for (uint32_t i = 0; i < all.count; i++)
        free((void *)all.items[i].bytes);
    free(payload);
    remove_scratch(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(costs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
