/* SPDX-License-Identifier: MIT
 *
 * One cache object, many threads, everything at once; made for ThreadSanitizer, good without it. */
#include "fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "manage.h"

enum { THREADS = 8, KEYS = 8, ROUNDS = 60, OLD = 12080, NEW = 13000 };

static char dir[512], bundle_path[512];
static attns_cache_key keys[KEYS];

typedef struct collection {
    attns_cache_bundle_item items[KEYS];
    uint32_t count;
} collection;

static void collect(void *user, const attns_cache_found *found) {
    collection *const all = user;
    assert_null(found->damage);
    uint8_t *const bytes = malloc(found->size + ATTNS_CACHE_KEY_BYTES);
    assert_non_null(bytes);
    memcpy(bytes, found->bytes, found->size);
    memcpy(bytes + found->size, found->digest, ATTNS_CACHE_KEY_BYTES);
    all->items[all->count++] = (attns_cache_bundle_item){
        .digest = bytes + found->size, .build = found->build, .bytes = bytes, .size = (size_t)found->size};
}

/* Half of the keys, of the older build. */
static void write_bundle(void) {
    char from[512];
    format_path(from, "%s/from", scratch);
    log_record log;
    attns_cache *const cache = open_cache(from, NULL, 0, &log);
    for (int i = 0; i < KEYS; i += 2)
        assert_true(store_of(cache, &keys[i], OLD));
    collection all = {.count = 0};
    attns_cache_visit(cache, collect, &all);
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_write(bundle_path, all.items, all.count, &fault));
    for (uint32_t i = 0; i < all.count; i++)
        free((void *)all.items[i].bytes);
    attns_cache_close(cache);
}

typedef struct thread_work {
    attns_cache *cache;
    int index;
    atomic_int *wrong;
} thread_work;

static void check(thread_work *work, const attns_cache_key *key, uint32_t build) {
    attns_cache_entry entry;
    if (!attns_cache_lookup(work->cache, key, build, &entry))
        return;
    if (!entry_is_of(&entry, key, entry.build) || (build != 0 && entry.build != build))
        atomic_fetch_add(work->wrong, 1);
    attns_cache_entry_free(&entry);
}

static void *run(void *argument) {
    thread_work *const work = argument;
    for (int i = 0; i < ROUNDS; i++) {
        const attns_cache_key *const key = &keys[(i + work->index) % KEYS];
        switch ((i + 3 * work->index) % 6) {
        case 0: {
            const int lock = attns_cache_lock(work->cache, key, 30.0);
            if (lock < 0 || !store_of(work->cache, key, NEW))
                atomic_fetch_add(work->wrong, 1);
            attns_cache_unlock(lock);
            break;
        }
        case 1:
            check(work, key, OLD);
            break;
        case 2: {
            attns_cache_stats stats;
            attns_cache_get_stats(work->cache, &stats);
            break;
        }
        case 3:
            attns_cache_remove(work->cache, key->digest, NEW);
            break;
        case 4:
            attns_cache_sweep(work->cache);
            break;
        default:
            check(work, key, 0);
            break;
        }
    }
    return NULL;
}

static void log_nothing(void *user, int level, const char *message) {
    (void)message;
    if (level <= 2)
        atomic_fetch_add((atomic_int *)user, 1);
}

static void everything_at_once(void **state) {
    (void)state;
    make_scratch(NULL);
    format_path(dir, "%s/cache", scratch);
    format_path(bundle_path, "%s/bundle", scratch);
    for (int i = 0; i < KEYS; i++) {
        char name[32];
        snprintf(name, sizeof name, "key %d", i);
        keys[i] = key_of(name);
    }
    atomic_int warnings = 0, wrong = 0;
    /* The bound is too small for all keys, so that eviction goes on meanwhile; the bundle appears while they run. */
    const attns_cache_params params = {
        .dir = dir, .readonly_dirs = bundle_path, .max_bytes = 30000, .log = log_nothing, .log_user = &warnings};
    attns_cache *const cache = attns_cache_open(&params);
    assert_non_null(cache);
    pthread_t ids[THREADS];
    thread_work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (thread_work){.cache = cache, .index = i, .wrong = &wrong};
        assert_int_equal(pthread_create(&ids[i], NULL, run, &work[i]), 0);
    }
    write_bundle();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(ids[i], NULL), 0);
    assert_int_equal(wrong, 0);
    /* Of the bundle: that it is not there yet, and that it came after it was looked for and before a folder was. */
    assert_in_range(warnings, 0, 2);
    assert_int_equal(count_files(dir).temps, 0);
    for (int i = 0; i < KEYS; i += 2)
        assert_int_equal(lookup_of(cache, &keys[i], OLD), OLD);
    attns_cache_close(cache);
    for (int i = 0; i < KEYS; i++)
        attns_cache_key_free(&keys[i]);
    remove_scratch(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
