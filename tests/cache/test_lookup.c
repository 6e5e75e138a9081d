/* SPDX-License-Identifier: MIT
 *
 * Storing and finding: round trips, choice of build, tiers, figures. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void round_trip(void **state) {
    (void)state;
    char dir[512];
    format_path(dir, "%s/missing/parents/cache", scratch);
    log_record log;
    attns_cache *cache = open_cache(dir, NULL, 0, &log);
    attns_cache_key key = key_of("round trip"), other = key_of("another");
    assert_int_equal(lookup_of(cache, &key, 0), 0);
    assert_false(path_exists(dir)); /* neither opening nor a miss creates anything */
    assert_true(store_of(cache, &key, 12080));
    assert_int_equal(lookup_of(cache, &key, 0), 12080);
    assert_int_equal(lookup_of(cache, &key, 12080), 12080);
    assert_int_equal(lookup_of(cache, &key, 12090), 0);
    assert_int_equal(lookup_of(cache, &other, 0), 0);
    attns_cache_close(cache);

    /* Another object, as another process would have it. */
    cache = open_cache(dir, "", 0, &log);
    attns_cache_entry entry;
    assert_true(attns_cache_lookup(cache, &key, 0, &entry));
    assert_true(entry_is_of(&entry, &key, 12080));
    assert_false(entry.from_readonly);
    attns_cache_entry_free(&entry);
    assert_null(entry.payload);
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);

    /* Modes: code must not be writable, nor a fresh cache readable, for anybody else. */
    char path[512];
    struct stat st;
    entry_path(path, dir, &key, 12080);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    for (int i = 0; i < 5; i++) {
        *strrchr(path, '/') = '\0';
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
    }
    const file_counts counts = count_files(dir);
    assert_int_equal(counts.entries, 1);
    assert_int_equal(counts.temps + counts.others, 0);
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
}

static void any_payload_and_meta(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_key key = key_of("any payload");
    static const size_t sizes[] = {1, 2, 4095, 4096, 4097, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *const payload = calloc(1, sizes[i]);
        assert_non_null(payload);
        payload[sizes[i] - 1] = 9;
        assert_true(attns_cache_store(cache, &key, 5, i % 2 != 0 ? NULL : "a=1\nb=2", payload, sizes[i]));
        attns_cache_entry entry;
        assert_true(attns_cache_lookup(cache, &key, 5, &entry));
        assert_string_equal(entry.meta, i % 2 != 0 ? "" : "a=1\nb=2");
        assert_int_equal(entry.payload_size, sizes[i]);
        assert_memory_equal(entry.payload, payload, sizes[i]);
        attns_cache_entry_free(&entry);
        free(payload);
    }
    assert_int_equal(log.warnings, 0);
    /* What could never be read back is refused, and said. */
    assert_false(attns_cache_store(cache, &key, 6, "", "", 0));
    assert_int_equal(log.warnings, 1);
    assert_false(attns_cache_store(cache, &key, 0, "", "x", 1));
    assert_int_equal(log.warnings, 2);
    assert_non_null(strstr(log.last, "build 0"));
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

static void choice_of_build(void **state) {
    (void)state;
    char path[512];
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_key key = key_of("builds"), other = key_of("other");
    /* Numbers, not text: 9 < 12080 < 13000 < 100000. */
    static const uint32_t builds[] = {12080, 9, 100000, 13000, UINT32_MAX, 1};
    for (size_t i = 0; i < 6; i++)
        assert_true(store_of(cache, &key, builds[i]));
    assert_true(store_of(cache, &other, 7));
    static const uint32_t descending[] = {UINT32_MAX, 100000, 13000, 12080, 9, 1, 0};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(lookup_of(cache, &key, 0), descending[i]);
        if (descending[i] == 0)
            break;
        assert_int_equal(lookup_of(cache, &key, descending[i]), descending[i]);
        entry_path(path, scratch, &key, descending[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(lookup_of(cache, &key, descending[i]), 0);
    }
    assert_int_equal(lookup_of(cache, &other, 0), 7);
    /* Storing again replaces. */
    assert_true(attns_cache_store(cache, &other, 7, "", "first", 5));
    assert_true(store_of(cache, &other, 7));
    assert_int_equal(lookup_of(cache, &other, 7), 7);
    assert_int_equal(count_files(scratch).entries, 1);
    assert_int_equal(log.lines, 0);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
}

/* Two keys in one shard directory, told apart by more than its name. */
static void neighbours(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_key key = key_of("neighbour"), near = {.digest = {(uint8_t)~key.digest[0]}};
    for (int i = 0; near.digest[0] != key.digest[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "near %d", i);
        attns_cache_key_free(&near);
        near = key_of(name);
    }
    assert_true(store_of(cache, &near, 900));
    assert_int_equal(lookup_of(cache, &key, 0), 0);
    assert_true(store_of(cache, &key, 100));
    assert_int_equal(lookup_of(cache, &key, 0), 100);
    assert_int_equal(lookup_of(cache, &near, 0), 900);
    assert_int_equal(lookup_of(cache, &key, 900), 0);
    assert_int_equal(log.lines, 0);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&near);
}

/* Tiers in their order, the writable one first; within a tier the newest build. */
static void tiers_in_order(void **state) {
    (void)state;
    char dir[512], first[512], second[512], list[2048];
    format_path(dir, "%s/own", scratch);
    format_path(first, "%s/first", scratch);
    format_path(second, "%s/second", scratch);
    snprintf(list, sizeof list, ":%s::%s/:", first, second);
    log_record log;
    attns_cache_key key = key_of("tiers"), deep = key_of("deep");
    attns_cache *cache = open_cache(first, NULL, 0, &log);
    assert_true(store_of(cache, &key, 20));
    assert_true(store_of(cache, &key, 25));
    attns_cache_close(cache);
    cache = open_cache(second, NULL, 0, &log);
    assert_true(store_of(cache, &key, 30));
    assert_true(store_of(cache, &deep, 31));
    attns_cache_close(cache);

    cache = open_cache(dir, list, 0, &log);
    assert_int_equal(lookup_of(cache, &key, 0), 25);
    assert_int_equal(lookup_of(cache, &key, 20), 20);
    assert_int_equal(lookup_of(cache, &key, 30), 30);
    assert_int_equal(lookup_of(cache, &deep, 0), 31);
    assert_int_equal(lookup_of(cache, &deep, 30), 0);
    attns_cache_entry entry;
    assert_true(attns_cache_lookup(cache, &deep, 0, &entry));
    assert_true(entry.from_readonly);
    attns_cache_entry_free(&entry);
    assert_false(path_exists(dir)); /* hits below do not create the tier above */
    assert_true(store_of(cache, &key, 10));
    assert_int_equal(lookup_of(cache, &key, 0), 10);
    attns_cache_close(cache);

    /* Read-only tiers alone. */
    cache = open_cache(NULL, list, 0, &log);
    assert_int_equal(lookup_of(cache, &key, 0), 25);
    assert_false(store_of(cache, &key, 40));
    assert_int_equal(attns_cache_lock(cache, &key, 1.0), -1);
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);

    /* One that is missing is told and does not hide the next; it may appear later. */
    char missing[512];
    format_path(missing, "%s/missing", scratch);
    snprintf(list, sizeof list, "%s:%s", missing, second);
    cache = open_cache(NULL, list, 0, &log);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.last, missing));
    assert_int_equal(lookup_of(cache, &key, 0), 30);
    assert_int_equal(rename(first, missing), 0);
    assert_int_equal(lookup_of(cache, &key, 0), 25);
    assert_int_equal(log.warnings, 1);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&deep);
}

static void figures(void **state) {
    (void)state;
    char dir[512], path[512];
    format_path(dir, "%s/own", scratch);
    log_record log;
    attns_cache *cache = open_cache(dir, "/nowhere/at/all", 12345678, &log);
    attns_cache_stats stats;
    memset(&stats, 0xa5, sizeof stats);
    attns_cache_get_stats(cache, &stats);
    assert_string_equal(stats.dir, dir);
    assert_string_equal(stats.readonly_dirs, "/nowhere/at/all");
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.bytes, 0);
    assert_int_equal(stats.max_bytes, 12345678);
    uint64_t bytes = 0;
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "figures %d", i);
        attns_cache_key key = key_of(name);
        assert_true(store_of(cache, &key, 3));
        entry_path(path, dir, &key, 3);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        bytes += (uint64_t)st.st_size;
        /* Files that are not entries are not counted. */
        strcat(path, "~");
        write_file(path, "junk", 4);
        attns_cache_key_free(&key);
    }
    attns_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries, 20);
    assert_int_equal(stats.bytes, bytes);
    attns_cache_close(cache);

    cache = open_cache(NULL, NULL, 0, &log);
    attns_cache_get_stats(cache, &stats);
    assert_null(stats.dir);
    assert_string_equal(stats.readonly_dirs, "");
    attns_cache_close(cache);
}

/* The same cache whatever its path, and a relative path stays where it was meant. */
static void path_is_not_in_the_key(void **state) {
    (void)state;
    char here[512], inside[512], moved[512];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(scratch), 0);
    log_record log;
    attns_cache_key key = key_of("moved");
    attns_cache *cache = open_cache("own/", NULL, 0, &log);
    assert_int_equal(chdir("/"), 0);
    assert_true(store_of(cache, &key, 3));
    attns_cache_close(cache);
    format_path(inside, "%s/own", scratch);
    assert_true(path_exists(inside));
    format_path(moved, "%s/elsewhere", scratch);
    assert_int_equal(rename(inside, moved), 0);
    cache = open_cache(moved, NULL, 0, &log);
    assert_int_equal(lookup_of(cache, &key, 0), 3);
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);
    assert_int_equal(chdir(here), 0);
    attns_cache_key_free(&key);
}

static void off(void **state) {
    (void)state;
    attns_cache_key key = key_of("off");
    assert_int_equal(lookup_of(NULL, &key, 0), 0);
    assert_false(store_of(NULL, &key, 1));
    assert_int_equal(attns_cache_lock(NULL, &key, 1.0), -1);
    attns_cache_unlock(-1);
    attns_cache_stats stats;
    attns_cache_get_stats(NULL, &stats);
    assert_null(stats.dir);
    assert_string_equal(stats.readonly_dirs, "");
    attns_cache_close(NULL);
    log_record log;
    attns_cache *const cache = open_cache("", "", 0, &log);
    assert_int_equal(lookup_of(cache, &key, 0), 0);
    assert_false(store_of(cache, &key, 1));
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);
    attns_cache_key_free(&key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(any_payload_and_meta, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(choice_of_build, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(neighbours, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(tiers_in_order, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(figures, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(path_is_not_in_the_key, make_scratch, remove_scratch),
        cmocka_unit_test(off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
