/* SPDX-License-Identifier: MIT
 *
 * Bundles: their bytes, what is found in them, what is refused, and how they come about. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bundle.h"
#include "bytes.h"
#include "hash.h"
#include "manage.h"

enum { KEYS = 40, OLD = 12080, NEW = 13000 };

static char bundle_path[512], dir[512];
static attns_cache_key keys[KEYS];

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
    format_path(bundle_path, "%s/kernels.attns", scratch);
    format_path(dir, "%s/cache", scratch);
    for (int i = 0; i < KEYS; i++) {
        char name[32];
        snprintf(name, sizeof name, "key %d", i);
        keys[i] = key_of(name);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < KEYS; i++)
        attns_cache_key_free(&keys[i]);
    remove_scratch(NULL);
    return 0;
}

/* ---- Exporting, as the command does ---- */

typedef struct collection {
    attns_cache_bundle_item items[4 * KEYS];
    uint32_t count, damaged;
} collection;

static void collect(void *user, const attns_cache_found *found) {
    collection *const all = user;
    if (found->damage != NULL) {
        all->damaged++;
        return;
    }
    uint8_t *const bytes = malloc(found->size + ATTNS_CACHE_KEY_BYTES);
    assert_non_null(bytes);
    memcpy(bytes, found->bytes, found->size);
    memcpy(bytes + found->size, found->digest, ATTNS_CACHE_KEY_BYTES);
    assert_true(all->count < 4 * KEYS);
    all->items[all->count++] = (attns_cache_bundle_item){
        .digest = bytes + found->size, .build = found->build, .bytes = bytes, .size = (size_t)found->size};
}

static void free_collection(collection *all) {
    for (uint32_t i = 0; i < all->count; i++)
        free((void *)all->items[i].bytes);
    memset(all, 0, sizeof *all);
}

/* Every even key of the old build, every third of the new one. */
static uint32_t fill(const char *path) {
    log_record log;
    attns_cache *const cache = open_cache(path, NULL, 0, &log);
    uint32_t count = 0;
    for (int i = 0; i < KEYS; i++) {
        if (i % 2 == 0 && ++count)
            assert_true(store_of(cache, &keys[i], OLD));
        if (i % 3 == 0 && ++count)
            assert_true(store_of(cache, &keys[i], NEW));
    }
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);
    return count;
}

static uint32_t expected_build(int i) {
    return i % 3 == 0 ? NEW : i % 2 == 0 ? OLD : 0;
}

static void export_to(const char *from, const char *path) {
    log_record log;
    attns_cache *const cache = open_cache(from, NULL, 0, &log);
    collection all = {.count = 0};
    attns_cache_visit(cache, collect, &all);
    attns_cache_fault fault = {0};
    if (!attns_cache_bundle_write(path, all.items, all.count, &fault))
        fail_msg("%s", fault.text);
    attns_cache_close(cache);
    free_collection(&all);
}

static void make_bundle(void) {
    fill(dir);
    export_to(dir, bundle_path);
}

/* ---- Tests ---- */

static void found_in_a_bundle(void **state) {
    (void)state;
    make_bundle();
    log_record log;
    const int fds = count_open_fds();
    attns_cache *cache = open_cache(NULL, bundle_path, 0, &log);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEYS; i++) {
            assert_int_equal(lookup_of(cache, &keys[i], 0), expected_build(i));
            assert_int_equal(lookup_of(cache, &keys[i], OLD), i % 2 == 0 ? OLD : 0);
            assert_int_equal(lookup_of(cache, &keys[i], NEW), i % 3 == 0 ? NEW : 0);
            assert_int_equal(lookup_of(cache, &keys[i], NEW + 1), 0);
            assert_int_equal(lookup_of(cache, &keys[i], 1), 0);
        }
        /* Removed while in use: what is mapped stays. */
        assert_int_equal(unlink(bundle_path), round == 0 ? 0 : -1);
    }
    assert_int_equal(log.lines, 0);
    attns_cache_close(cache);
    assert_int_equal(count_open_fds(), fds);
}

/* Behind a writable directory and before another bundle; used in place, copied nowhere. */
static void in_its_place_among_the_tiers(void **state) {
    (void)state;
    make_bundle();
    char own[512], other[512], list[2000];
    format_path(own, "%s/own", scratch);
    format_path(other, "%s/other.attns", scratch);
    log_record log;
    attns_cache *cache = open_cache(own, NULL, 0, &log);
    assert_true(store_of(cache, &keys[1], NEW + 7));
    attns_cache_close(cache);
    export_to(own, other);
    snprintf(list, sizeof list, "%s/absent:%s:%s", scratch, bundle_path, other);
    format_path(own, "%s/third", scratch);
    cache = open_cache(own, list, 0, &log);
    attns_cache_entry entry;
    assert_true(attns_cache_lookup(cache, &keys[0], 0, &entry));
    assert_true(entry.from_readonly);
    attns_cache_entry_free(&entry);
    assert_int_equal(lookup_of(cache, &keys[1], 0), NEW + 7); /* from the second bundle */
    assert_true(store_of(cache, &keys[0], OLD + 1));
    assert_int_equal(lookup_of(cache, &keys[0], 0), OLD + 1); /* the writable tier comes first */
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries, 1);
    attns_cache_close(cache);
}

/* A bundle that is mounted after the cache was opened. */
static void appears_later(void **state) {
    (void)state;
    fill(dir);
    log_record log;
    attns_cache *cache = open_cache(NULL, bundle_path, 0, &log);
    assert_int_equal(lookup_of(cache, &keys[0], 0), 0);
    export_to(dir, bundle_path);
    assert_int_equal(lookup_of(cache, &keys[0], 0), NEW);
    attns_cache_close(cache);
}

/* The same entries give the same bytes, whatever the order in which they were made, the path, the times and the
 * process. */
static void reproducible(void **state) {
    (void)state;
    make_bundle();
    char second[512], path[512];
    format_path(second, "%s/elsewhere/deep/down", scratch);
    format_path(path, "%s/second.attns", scratch);
    log_record log;
    attns_cache *const cache = open_cache(second, NULL, 0, &log);
    for (int i = KEYS - 1; i >= 0; i--) {
        if (i % 3 == 0)
            assert_true(store_of(cache, &keys[i], NEW));
        if (i % 2 == 0)
            assert_true(store_of(cache, &keys[i], OLD));
    }
    attns_cache_close(cache);
    export_to(second, path);
    size_t size_a, size_b;
    uint8_t *const a = read_file(bundle_path, &size_a), *const b = read_file(path, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(a, b, size_a);
    free(a);
    free(b);
    /* And a bundle of a bundle is that bundle. */
    attns_cache *const reader = open_cache(NULL, bundle_path, 0, &log);
    collection all = {.count = 0};
    attns_cache_visit(reader, collect, &all);
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_write(path, all.items, all.count, &fault));
    attns_cache_close(reader);
    free_collection(&all);
    uint8_t *const c = read_file(path, &size_b), *const d = read_file(bundle_path, &size_a);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(c, d, size_a);
    free(c);
    free(d);
}

static void imported(void **state) {
    (void)state;
    const uint32_t count = fill(dir);
    export_to(dir, bundle_path);
    char target[512];
    format_path(target, "%s/target", scratch);
    log_record log;
    attns_cache *const cache = open_cache(target, NULL, 0, &log);
    for (int round = 0; round < 2; round++) {
        collection all = {.count = 0};
        attns_cache_fault fault = {0};
        assert_true(attns_cache_bundle_visit(bundle_path, collect, &all, &fault));
        assert_int_equal(all.count, count);
        for (uint32_t i = 0; i < all.count; i++) {
            const attns_cache_found found = {.digest = all.items[i].digest,
                                             .build = all.items[i].build,
                                             .bytes = all.items[i].bytes,
                                             .size = all.items[i].size};
            assert_int_equal(attns_cache_import(cache, &found), round == 0 ? ATTNS_CACHE_STORED : ATTNS_CACHE_PRESENT);
        }
        free_collection(&all);
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(lookup_of(cache, &keys[i], 0), expected_build(i));
    /* A damaged entry is no reason to leave the sound one out. */
    char path[512];
    entry_path(path, target, &keys[0], NEW);
    write_file(path, "attnsCB\n", 8);
    collection all = {.count = 0};
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_visit(bundle_path, collect, &all, &fault));
    uint32_t stored = 0;
    for (uint32_t i = 0; i < all.count; i++) {
        const attns_cache_found found = {.digest = all.items[i].digest,
                                         .build = all.items[i].build,
                                         .bytes = all.items[i].bytes,
                                         .size = all.items[i].size};
        stored += attns_cache_import(cache, &found) == ATTNS_CACHE_STORED;
    }
    assert_int_equal(stored, 1);
    assert_int_equal(lookup_of(cache, &keys[0], NEW), NEW);
    free_collection(&all);
    attns_cache_close(cache);
}

static void empty_bundle(void **state) {
    (void)state;
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_write(bundle_path, NULL, 0, &fault));
    log_record log;
    attns_cache *const cache = open_cache(NULL, bundle_path, 0, &log);
    assert_int_equal(lookup_of(cache, &keys[0], 0), 0);
    assert_int_equal(log.lines, 0);
    attns_cache_close(cache);
}

/* ---- What is wrong with a bundle ---- */

/* Makes the index's checksum right again. */
static void seal(uint8_t *bytes, uint32_t count) {
    attns_cache_hasher hasher;
    attns_cache_hash_begin(&hasher);
    attns_cache_hash_add(&hasher, bytes, 24);
    attns_cache_hash_add(&hasher, bytes + 56, (size_t)count * 52);
    attns_cache_hash_end(&hasher, bytes + 24);
}

static void refused(const char *why) {
    log_record log;
    attns_cache *const cache = open_cache(NULL, bundle_path, 0, &log);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lookup_of(cache, &keys[0], 0), 0);
    if (log.warnings != 1 || strstr(log.last, why) == NULL)
        fail_msg("expected one warning with '%s', got %u:\n%s", why, log.warnings, log.text);
    attns_cache_close(cache);
}

static void damaged_index(void **state) {
    (void)state;
    make_bundle();
    size_t size;
    uint8_t *const good = read_file(bundle_path, &size);
    uint8_t *const bytes = malloc(size + 1);
    const uint32_t count = attns_cache_get_u32(good + 12);
    for (int fault = 0; fault < 11; fault++) {
        size_t length = size;
        const char *why = "the checksum of its index differs";
        memcpy(bytes, good, size);
        bytes[size] = 0;
        switch (fault) {
        case 0:
            length = 0, why = "it is empty";
            break;
        case 1:
            length = 55, why = "shorter than a header";
            break;
        case 2:
            length = size - 1, why = "its length differs";
            break;
        case 3:
            length = size + 1, why = "its length differs";
            break;
        case 4:
            bytes[6] = 'B', why = "does not begin like a bundle";
            break;
        case 5:
            attns_cache_put_u32(bytes + 8, 2), why = "another format version";
            break;
        case 6:
            attns_cache_put_u32(bytes + 12, UINT32_MAX), why = "its index is longer than it";
            break;
        case 7:
            bytes[60] ^= 1;
            break;
        case 8: /* two keys change places */
            memcpy(bytes + 56, good + 56 + 52, ATTNS_CACHE_KEY_BYTES);
            memcpy(bytes + 56 + 52, good + 56, ATTNS_CACHE_KEY_BYTES);
            seal(bytes, count), why = "its index is not in order";
            break;
        case 9: /* an entry that would reach beyond the end */
            attns_cache_put_u64(bytes + 56 + 36, UINT64_MAX - 100);
            seal(bytes, count), why = "leads outside";
            break;
        case 10: /* or that begins elsewhere */
            attns_cache_put_u64(bytes + 56 + 44, 8);
            seal(bytes, count), why = "leads outside";
            break;
        }
        write_file(bundle_path, bytes, length);
        refused(why);
    }
    free(good);
    free(bytes);
}

/* Each entry is checked when it is used; the others serve on. A damaged one is told once and may be replaced. */
static void damaged_entries(void **state) {
    (void)state;
    make_bundle();
    size_t size;
    uint8_t *const bytes = read_file(bundle_path, &size);
    attns_cache_bundle_view view;
    assert_null(attns_cache_bundle_parse(bytes, size, &view));
    attns_cache_bundle_item item;
    assert_true(attns_cache_bundle_find(&view, keys[0].digest, UINT32_MAX, &item));
    assert_int_equal(item.build, NEW);
    bytes[item.bytes - bytes + 200] ^= 4;
    write_file(bundle_path, bytes, size);
    log_record log;
    char own[512];
    format_path(own, "%s/own", scratch);
    attns_cache *const cache = open_cache(own, bundle_path, 0, &log);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lookup_of(cache, &keys[0], NEW), 0);
        assert_int_equal(lookup_of(cache, &keys[0], 0), OLD); /* the older build is sound */
        assert_int_equal(lookup_of(cache, &keys[6], 0), NEW);
    }
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.last, "its checksum differs"));
    assert_true(store_of(cache, &keys[0], NEW));
    assert_int_equal(lookup_of(cache, &keys[0], 0), NEW);
    assert_int_equal(log.warnings, 1);
    attns_cache_close(cache);
    free(bytes);
}

/* An entry under the index line of another. */
static void swapped_entries(void **state) {
    (void)state;
    log_record log;
    attns_cache *cache = open_cache(dir, NULL, 0, &log);
    assert_true(store_of(cache, &keys[0], NEW));
    assert_true(store_of(cache, &keys[1], NEW));
    collection all = {.count = 0};
    attns_cache_visit(cache, collect, &all);
    attns_cache_close(cache);
    const uint8_t *const digest = all.items[0].digest;
    all.items[0].digest = all.items[1].digest;
    all.items[1].digest = digest;
    attns_cache_fault fault = {0};
    assert_true(attns_cache_bundle_write(bundle_path, all.items, 2, &fault));
    free_collection(&all);
    cache = open_cache(NULL, bundle_path, 0, &log);
    assert_int_equal(lookup_of(cache, &keys[0], 0), 0);
    assert_int_equal(lookup_of(cache, &keys[1], NEW), 0);
    assert_int_equal(log.warnings, 2);
    assert_non_null(strstr(log.last, "it belongs to another key"));
    attns_cache_close(cache);
}

static void shortened_while_in_use(void **state) {
    (void)state;
    make_bundle();
    log_record log;
    attns_cache *const cache = open_cache(NULL, bundle_path, 0, &log);
    assert_int_equal(lookup_of(cache, &keys[0], 0), NEW);
    assert_int_equal(truncate(bundle_path, 100), 0);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(lookup_of(cache, &keys[i], 0), 0);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.last, "shortened"));
    attns_cache_close(cache);
}

static void untrusted_files(void **state) {
    (void)state;
    make_bundle();
    assert_int_equal(chmod(bundle_path, 0664), 0);
    refused("mode 0664");
    assert_int_equal(chmod(bundle_path, 0646), 0);
    refused("mode 0646");
    assert_int_equal(chmod(bundle_path, 0644), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(bundle_path, 54321, 54321), 0);
        refused("belongs to user 54321");
        assert_int_equal(chown(bundle_path, 0, 0), 0);
    }
    char kept[512];
    format_path(kept, "%s/kept", scratch);
    assert_int_equal(rename(bundle_path, kept), 0);
    assert_int_equal(mkfifo(bundle_path, 0600), 0);
    refused("neither a directory nor a regular file");
    assert_int_equal(unlink(bundle_path), 0);
    assert_int_equal(symlink("/dev/zero", bundle_path), 0);
    refused("neither a directory nor a regular file");
}

/* Random changes, half of them with an index that is sealed again: no read outside of the bytes (they end where memory
 * ends), and what is found is right. */
static void random_changes(void **state) {
    (void)state;
    seed_random();
    make_bundle();
    size_t size;
    uint8_t *const good = read_file(bundle_path, &size);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (size + page - 1) / page * page;
    uint8_t *const area = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(area, MAP_FAILED);
    assert_int_equal(mprotect(area + room, page, PROT_NONE), 0);
    const uint32_t count = attns_cache_get_u32(good + 12);
    const size_t head = 56 + (size_t)count * 52;
    unsigned sound = 0;
    for (int i = 0; i < 20000; i++) {
        const size_t length = random_below(4) == 0 ? random_below(size + 1) : size;
        uint8_t *const bytes = area + room - length;
        memcpy(bytes, good, length);
        for (uint64_t k = random_below(4); k > 0 && length > 0; k--)
            bytes[random_below(random_below(2) != 0 && length > head ? head : length)] ^=
                (uint8_t)(1 << random_below(8));
        if (random_below(2) != 0 && length > head) {
            if (random_below(2) != 0)
                attns_cache_put_u64(bytes + 16, length);
            const uint32_t now = attns_cache_get_u32(bytes + 12);
            if (now <= (length - 56) / 52)
                seal(bytes, now);
        }
        attns_cache_bundle_view view;
        if (attns_cache_bundle_parse(bytes, length, &view) != NULL)
            continue;
        sound++;
        const attns_cache_key *const key = &keys[random_below(KEYS)];
        attns_cache_bundle_item item;
        attns_cache_entry_view entry;
        if (attns_cache_bundle_find(&view, key->digest, UINT32_MAX, &item) &&
            attns_cache_entry_parse(item.bytes, item.size, &entry) == NULL &&
            attns_cache_entry_mismatch(&entry, key, item.build) == NULL) {
            size_t payload_size;
            uint8_t *const payload = payload_of(key, item.build, &payload_size);
            assert_int_equal(entry.payload_size, payload_size);
            assert_memory_equal(entry.payload, payload, payload_size);
            free(payload);
        }
    }
    assert_in_range(sound, 100, 20000);
    munmap(area, room + page);
    free(good);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(found_in_a_bundle), TEST(in_its_place_among_the_tiers),
        TEST(appears_later),     TEST(reproducible),
        TEST(imported),          TEST(empty_bundle),
        TEST(damaged_index),     TEST(damaged_entries),
        TEST(swapped_entries),   TEST(shortened_while_in_use),
        TEST(untrusted_files),   TEST(random_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
