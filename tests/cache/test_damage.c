/* SPDX-License-Identifier: MIT
 *
 * Damaged entries: never a hit, told once, removed from the writable tier and replaced, never touched in a read-only
 * one. */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "hash.h"

enum { BUILD = 12080, OLDER = 12010 };

/* Each changes the file at `path`, a sound entry of `bytes`; `other` is the path of another key's entry. */
typedef void (*damage_fn)(const char *path, uint8_t *bytes, size_t size, const char *other);

static void cut_to_0(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)size;
    (void)other;
    write_file(path, bytes, 0);
}

static void cut_to_1(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)size;
    (void)other;
    write_file(path, bytes, 1);
}

static void cut_to_half(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    write_file(path, bytes, size / 2);
}

static void cut_by_1(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    write_file(path, bytes, size - 1);
}

static void header_only(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)size;
    (void)other;
    write_file(path, bytes, 72);
}

static void last_byte_flipped(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[size - 1] ^= 0xff;
    write_file(path, bytes, size);
}

static void middle_bit_flipped(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[size / 2] ^= 0x10;
    write_file(path, bytes, size);
}

static void first_byte_flipped(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[0] ^= 0xff;
    write_file(path, bytes, size);
}

static void junk_appended(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)bytes;
    (void)size;
    (void)other;
    FILE *const file = fopen(path, "ab");
    assert_non_null(file);
    assert_true(fputs("junk", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void zeros(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    memset(bytes, 0, size);
    write_file(path, bytes, size);
}

static void zeros_from_half(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    memset(bytes + size / 2, 0, size - size / 2);
    write_file(path, bytes, size);
}

static void foreign_version(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[8]++;
    attns_cache_hash(bytes + size - ATTNS_CACHE_HASH_BYTES, bytes, size - ATTNS_CACHE_HASH_BYTES);
    write_file(path, bytes, size);
}

static void swapped_with_another_key(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)bytes;
    (void)size;
    size_t other_size;
    uint8_t *const other_bytes = read_file(other, &other_size);
    write_file(path, other_bytes, other_size);
    free(other_bytes);
}

/* The digest collides but the key text does not: as it would be if the hash were ever broken. */
static void other_key_text(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[72] ^= 1;
    attns_cache_hash(bytes + size - ATTNS_CACHE_HASH_BYTES, bytes, size - ATTNS_CACHE_HASH_BYTES);
    write_file(path, bytes, size);
}

static void another_build_inside(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)other;
    bytes[12]++;
    attns_cache_hash(bytes + size - ATTNS_CACHE_HASH_BYTES, bytes, size - ATTNS_CACHE_HASH_BYTES);
    write_file(path, bytes, size);
}

/* Must cost neither the memory nor the time to read it. */
static void huge(const char *path, uint8_t *bytes, size_t size, const char *other) {
    (void)bytes;
    (void)size;
    (void)other;
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
}

static const struct {
    const char *name;
    damage_fn apply;
} damages[] = {
    {"cut to nothing", cut_to_0},
    {"cut to one byte", cut_to_1},
    {"cut to half", cut_to_half},
    {"cut by one byte", cut_by_1},
    {"header only", header_only},
    {"last byte flipped", last_byte_flipped},
    {"middle bit flipped", middle_bit_flipped},
    {"first byte flipped", first_byte_flipped},
    {"junk appended", junk_appended},
    {"zeros", zeros},
    {"zeros from half", zeros_from_half},
    {"foreign version", foreign_version},
    {"swapped with another key's entry", swapped_with_another_key},
    {"other key text", other_key_text},
    {"another build inside", another_build_inside},
    {"huge", huge},
};
enum { NUM_DAMAGES = sizeof damages / sizeof damages[0] };

static void apply(size_t i, const char *path, const char *other) {
    size_t size;
    uint8_t *const bytes = read_file(path, &size);
    damages[i].apply(path, bytes, size, other);
    free(bytes);
}

static void in_the_writable_tier(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_key key = key_of("damaged"), other = key_of("other");
    char path[512], other_path[512];
    entry_path(path, scratch, &key, BUILD);
    entry_path(other_path, scratch, &other, BUILD);
    assert_true(store_of(cache, &other, BUILD));
    /* By build and by scan. */
    for (uint32_t build = 0; build <= BUILD; build += BUILD) {
        for (size_t i = 0; i < NUM_DAMAGES; i++) {
            print_message("%s\n", damages[i].name);
            assert_true(store_of(cache, &key, BUILD));
            apply(i, path, other_path);
            const unsigned before = log.warnings;
            assert_int_equal(lookup_of(cache, &key, build), 0);
            assert_int_equal(log.warnings, before + 1);
            assert_non_null(strstr(log.last, path));
            assert_false(path_exists(path));
            assert_int_equal(lookup_of(cache, &key, build), 0);
            assert_int_equal(log.warnings, before + 1);
            assert_true(store_of(cache, &key, BUILD));
            assert_int_equal(lookup_of(cache, &key, build), BUILD);
            /* A store that was not preceded by a lookup repairs as well. */
            apply(i, path, other_path);
            assert_true(store_of(cache, &key, BUILD));
            assert_int_equal(lookup_of(cache, &key, build), BUILD);
            assert_int_equal(log.warnings, before + 1);
        }
    }
    assert_int_equal(lookup_of(cache, &other, 0), BUILD);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
}

/* The newest build is damaged: the next older one serves, in the same call. */
static void older_build_serves(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_key key = key_of("damaged"), other = key_of("other");
    char path[512], other_path[512];
    entry_path(path, scratch, &key, BUILD);
    entry_path(other_path, scratch, &other, BUILD);
    assert_true(store_of(cache, &other, BUILD));
    assert_true(store_of(cache, &key, OLDER));
    for (size_t i = 0; i < NUM_DAMAGES; i++) {
        assert_true(store_of(cache, &key, BUILD));
        apply(i, path, other_path);
        assert_int_equal(lookup_of(cache, &key, 0), OLDER);
        assert_false(path_exists(path));
    }
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
}

static void in_a_readonly_tier(void **state) {
    (void)state;
    char below[512], above[512], path[512], other_path[512];
    format_path(below, "%s/below", scratch);
    format_path(above, "%s/above", scratch);
    log_record log;
    attns_cache_key key = key_of("damaged"), other = key_of("other");
    entry_path(path, below, &key, BUILD);
    entry_path(other_path, below, &other, BUILD);
    for (size_t i = 0; i < NUM_DAMAGES; i++) {
        print_message("%s\n", damages[i].name);
        attns_cache *cache = open_cache(below, NULL, 0, &log);
        assert_true(store_of(cache, &key, BUILD));
        assert_true(store_of(cache, &other, BUILD));
        attns_cache_close(cache);
        apply(i, path, other_path);
        struct stat before, after;
        assert_int_equal(stat(path, &before), 0);

        cache = open_cache(above, below, 0, &log);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(lookup_of(cache, &key, 0), 0);
            assert_int_equal(lookup_of(cache, &key, BUILD), 0);
        }
        assert_int_equal(log.warnings, 1); /* it stays, so it is told once and not at every lookup */
        assert_non_null(strstr(log.last, path));
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(after.st_size, before.st_size);
        assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
        assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
        /* Rebuilt in the tier above, which then serves. */
        assert_true(store_of(cache, &key, BUILD));
        assert_int_equal(lookup_of(cache, &key, 0), BUILD);
        assert_int_equal(lookup_of(cache, &other, 0), BUILD);
        attns_cache_close(cache);
        remove_tree(above);
    }
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
}

/* Between the reading of a damaged entry and its removal another process has replaced it: the good one stays. */
static void successor_is_not_removed(void **state) {
    (void)state;
    char bad[512], good[512];
    format_path(bad, "%s/entry", scratch);
    format_path(good, "%s/successor", scratch);
    const int fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    const attns_cache_tier tier = {.path = scratch, .writable = true};
    for (int kind = 0; kind < 2; kind++) {
        /* A file that could be opened and one that could not. */
        if (kind == 0)
            write_file(bad, "", 0);
        else
            assert_int_equal(symlink("nowhere", bad), 0);
        attns_cache_file file;
        attns_cache_fault fault;
        assert_int_equal(attns_cache_file_read(&tier, fd, "entry", bad, &file, &fault), ATTNS_CACHE_READ_DAMAGED);
        write_file(good, "good", 4);
        assert_int_equal(rename(good, bad), 0);
        assert_true(attns_cache_file_remove(fd, "entry", &file));
        attns_cache_file_close(&file);
        assert_true(path_exists(bad));
        /* Already gone counts as removed. */
        assert_int_equal(unlink(bad), 0);
        write_file(bad, "", 0);
        assert_int_equal(attns_cache_file_read(&tier, fd, "entry", bad, &file, &fault), ATTNS_CACHE_READ_DAMAGED);
        assert_true(attns_cache_file_remove(fd, "entry", &file));
        assert_false(path_exists(bad));
        assert_true(attns_cache_file_remove(fd, "entry", &file));
        attns_cache_file_close(&file);
    }
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_the_writable_tier, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(older_build_serves, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(in_a_readonly_tier, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(successor_is_not_removed, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
