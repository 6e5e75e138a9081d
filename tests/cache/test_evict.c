/* SPDX-License-Identifier: MIT
 *
 * The size bound: which entries go, how many, and what never goes. */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

enum { BUILD = 12080, PAYLOAD = 10000, MANY = 16 };

static attns_cache_key keys[MANY + 8];
static uint64_t entry_bytes;

static bool put(attns_cache *cache, int i) {
    static const uint8_t payload[PAYLOAD] = {1};
    return attns_cache_store(cache, &keys[i], BUILD, "", payload, sizeof payload);
}

static bool get(attns_cache *cache, int i) {
    attns_cache_entry entry;
    if (!attns_cache_lookup(cache, &keys[i], 0, &entry))
        return false;
    assert_int_equal(entry.payload_size, PAYLOAD);
    attns_cache_entry_free(&entry);
    return true;
}

static bool present(int i) {
    char path[512];
    entry_path(path, scratch, &keys[i], BUILD);
    return path_exists(path);
}

static void set_age(const char *path, long age) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec times[2] = {{.tv_sec = now.tv_sec - age}, {.tv_sec = now.tv_sec - age}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void age_entry(int i, long age) {
    char path[512];
    entry_path(path, scratch, &keys[i], BUILD);
    set_age(path, age);
}

static long age_of(int i) {
    char path[512];
    struct stat st;
    entry_path(path, scratch, &keys[i], BUILD);
    assert_int_equal(stat(path, &st), 0);
    return (long)(time(NULL) - st.st_mtim.tv_sec);
}

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
    for (int i = 0; i < MANY + 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "key %02d", i);
        keys[i] = key_of(name);
    }
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    attns_cache_stats stats;
    assert_true(put(cache, 0));
    attns_cache_get_stats(cache, &stats);
    entry_bytes = stats.bytes;
    attns_cache_close(cache);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < MANY + 8; i++)
        attns_cache_key_free(&keys[i]);
    remove_scratch(NULL);
    return 0;
}

static void least_recently_used_first(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, MANY * entry_bytes, &log);
    for (int i = 0; i < MANY; i++) {
        assert_true(put(cache, i));
        age_entry(i, 100000 - 1000 * i);
    }
    for (int i = 0; i < MANY; i++)
        assert_true(present(i)); /* exactly at the bound: nothing goes */
    /* The two oldest are used again and so become the youngest. */
    assert_true(get(cache, 0));
    assert_true(get(cache, 1));
    assert_in_range(age_of(0), 0, 100);
    assert_true(put(cache, MANY));
    /* Above the bound: down to 7/8 of it, which is 14 entries of 17. */
    for (int i = 0; i <= MANY; i++)
        assert_int_equal(present(i), i < 2 || i > 4);
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries, 14);
    assert_int_equal(stats.bytes, 14 * entry_bytes);
    assert_int_equal(log.warnings, 0);
    attns_cache_close(cache);
}

static void bound_holds_throughout(void **state) {
    (void)state;
    log_record log;
    attns_cache *cache = open_cache(scratch, NULL, 5 * entry_bytes + 100, &log);
    attns_cache_stats stats;
    for (int i = 0; i < MANY + 8; i++) {
        assert_true(put(cache, i));
        assert_true(present(i)); /* never the one just stored */
        attns_cache_get_stats(cache, &stats);
        assert_in_range(stats.bytes, entry_bytes, 5 * entry_bytes + 100);
    }
    attns_cache_close(cache);
    /* What a larger bound let in goes with the first store under a smaller one. */
    cache = open_cache(scratch, NULL, 2 * entry_bytes, &log);
    assert_true(put(cache, 3));
    attns_cache_get_stats(cache, &stats);
    assert_int_equal(stats.bytes, entry_bytes);
    assert_true(present(3));
    attns_cache_close(cache);
    /* An entry larger than the whole bound is not stored, and costs no other its place. */
    cache = open_cache(scratch, NULL, entry_bytes - 1, &log);
    assert_false(put(cache, 4));
    assert_true(present(3));
    assert_int_equal(log.warnings, 0);
    attns_cache_close(cache);
}

/* What other processes store is seen in time. */
static void counts_what_others_store(void **state) {
    (void)state;
    log_record log, other_log;
    attns_cache *const cache = open_cache(scratch, NULL, 4 * entry_bytes, &log);
    attns_cache *const other = open_cache(scratch, NULL, 1000 * entry_bytes, &other_log);
    assert_true(put(cache, 1));
    for (int i = 2; i < MANY; i++)
        assert_true(put(other, i));
    assert_true(put(cache, MANY));
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    assert_in_range(stats.bytes, entry_bytes, 4 * entry_bytes);
    attns_cache_close(cache);
    attns_cache_close(other);
}

/* Somebody else evicts: this process leaves it to them, and catches up later. */
static void one_evicts_at_a_time(void **state) {
    (void)state;
    char path[512];
    format_path(path, "%s/v1/lock", scratch);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)1 << 60, .l_len = 1};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &range), 0);
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 2 * entry_bytes, &log);
    for (int i = 0; i < 6; i++)
        assert_true(put(cache, i));
    assert_int_equal(count_files(scratch).entries, 6);
    close(fd);
    assert_true(put(cache, 6));
    assert_int_equal(count_files(scratch).entries, 1);
    assert_int_equal(log.warnings, 0);
    attns_cache_close(cache);
}

static void hits_renew_rarely(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    age_entry(0, ATTNS_CACHE_TOUCH_SECONDS / 2);
    assert_true(get(cache, 0));
    assert_in_range(age_of(0), ATTNS_CACHE_TOUCH_SECONDS / 2, ATTNS_CACHE_TOUCH_SECONDS);
    age_entry(0, ATTNS_CACHE_TOUCH_SECONDS + 10);
    assert_true(get(cache, 0));
    assert_in_range(age_of(0), 0, 100);
    /* A time from the future would make an entry immortal. */
    age_entry(0, -1000000);
    assert_true(get(cache, 0));
    assert_in_range(age_of(0), 0, 100);
    attns_cache_close(cache);
    /* A read-only tier keeps its times. */
    age_entry(0, 1000000);
    attns_cache *const reader = open_cache(NULL, scratch, 0, &log);
    assert_true(get(reader, 0));
    assert_in_range(age_of(0), 999990, 1000100);
    attns_cache_close(reader);
}

static void only_ours_is_deleted(void **state) {
    (void)state;
    static const char *const kept[] = {
        "README",
        ".tmp-notours",
        ".tmp-00112233445566778899aabbccddeeff0",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.cubin",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff-0.cubin",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff-1.cubin.bak",
    };
    enum { NUM_KEPT = sizeof kept / sizeof kept[0] };
    char shard[512], path[512], outside[512];
    entry_path(shard, scratch, &keys[0], BUILD);
    *strrchr(shard, '/') = '\0';
    for (size_t i = 0; i < NUM_KEPT; i++) {
        format_path(path, "%s/%s", shard, kept[i]);
        write_file(path, "x", 1);
        set_age(path, 10000000);
    }
    /* Beside the shards, and in directories that are none. */
    static const char stale[] = ".tmp-00112233445566778899aabbccddeeff";
    format_path(outside, "%s/%s", scratch, stale);
    write_file(outside, "x", 1);
    set_age(outside, 10000000);
    char directory[512];
    format_path(directory, "%s/v1/zz", scratch);
    assert_int_equal(mkdir(directory, 0700), 0);
    format_path(directory, "%s/v1/zz/%s", scratch, stale);
    write_file(directory, "x", 1);
    set_age(directory, 10000000);
    /* A link with the name of an entry: neither it nor what it leads to. */
    char target[512], entry_link[512];
    format_path(target, "%s/target", scratch);
    write_file(target, "x", 1);
    format_path(entry_link, "%s/00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff-3.cubin", shard);
    assert_int_equal(symlink(target, entry_link), 0);
    set_age(entry_link, 10000000);
    /* Temporary files: one that its writer has locked stays however old it is, and so does one so fresh that the writer
     * may just have made it. One without a writer goes. */
    char fresh[512], old[512], locked[512];
    format_path(locked, "%s/.tmp-000000000000000000000000000000fe", shard);
    write_file(locked, "x", 1);
    const int writer = open(locked, O_WRONLY | O_CLOEXEC);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(writer, F_OFD_SETLK, &range), 0);
    set_age(locked, 10000000);
    format_path(fresh, "%s/.tmp-000000000000000000000000000000ff", shard);
    format_path(old, "%s/%s", shard, stale);
    write_file(fresh, "x", 1);
    write_file(old, "x", 1);
    set_age(fresh, ATTNS_CACHE_TEMP_GRACE_SECONDS - 5);
    set_age(old, ATTNS_CACHE_TEMP_GRACE_SECONDS + 5);

    age_entry(0, 1000);
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, entry_bytes, &log);
    assert_true(put(cache, 1));
    assert_false(present(0));
    assert_true(present(1));
    for (size_t i = 0; i < NUM_KEPT; i++) {
        format_path(path, "%s/%s", shard, kept[i]);
        if (!path_exists(path))
            fail_msg("'%s' was deleted", kept[i]);
    }
    assert_true(path_exists(outside));
    assert_true(path_exists(directory));
    assert_true(path_exists(target));
    assert_true(path_exists(entry_link));
    assert_true(path_exists(fresh));
    assert_false(path_exists(old));
    assert_true(path_exists(locked));
    close(writer);
    assert_true(put(cache, 2)); /* sweeps again: the bound is passed */
    assert_false(path_exists(locked));
    attns_cache_close(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(least_recently_used_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bound_holds_throughout, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_what_others_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_evicts_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hits_renew_rarely, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_ours_is_deleted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
