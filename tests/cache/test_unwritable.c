/* SPDX-License-Identifier: MIT
 *
 * Directories that cannot be written, are full, or go away while in use: a miss, one warning per cause, and work goes
 * on. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUILD = 12080, CANNOT_MOUNT = 77 };

static void below_a_file(void **state) {
    (void)state;
    attns_cache_key key = key_of("below a file");
    char file[512], dir[512];
    format_path(file, "%s/file", scratch);
    write_file(file, "x", 1);
    static const char *const tails[] = {"", "/cache", "/deep/cache"};
    for (size_t i = 0; i < 3; i++) {
        format_path(dir, "%s%s", file, tails[i]);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(lookup_of(cache, &key, 0), 0);
            assert_false(store_of(cache, &key, BUILD));
            assert_int_equal(attns_cache_lock(cache, &key, 5.0), -1);
        }
        assert_int_equal(log.warnings, 1);
        assert_non_null(strstr(log.last, dir));
        attns_cache_stats stats;
        attns_cache_get_stats(cache, &stats);
        assert_null(stats.dir); /* dropped */
        attns_cache_close(cache);
    }
    attns_cache_key_free(&key);
}

/* The parts inside the cache are files. */
static void files_where_directories_belong(void **state) {
    (void)state;
    attns_cache_key key = key_of("files");
    char dir[512], path[512];
    for (int level = 0; level < 2; level++) {
        format_path(dir, "%s/cache%d", scratch, level);
        entry_path(path, dir, &key, BUILD);
        *strrchr(path, '/') = '\0';
        if (level == 0)
            *strrchr(path, '/') = '\0';
        assert_int_equal(mkdir(dir, 0700), 0);
        if (level == 1) {
            char version[512];
            format_path(version, "%s/v1", dir);
            assert_int_equal(mkdir(version, 0700), 0);
        }
        write_file(path, "x", 1);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(lookup_of(cache, &key, 0), 0);
            assert_false(store_of(cache, &key, BUILD));
        }
        assert_int_equal(log.warnings, 1);
        assert_non_null(strstr(log.last, path));
        attns_cache_close(cache);
    }
    attns_cache_key_free(&key);
}

static void removed_while_running(void **state) {
    (void)state;
    attns_cache_key key = key_of("removed");
    char dir[512], path[512];
    format_path(dir, "%s/parent/cache", scratch);
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    const int fds = count_open_fds();
    for (int level = 0; level < 4; level++) {
        assert_true(store_of(cache, &key, BUILD));
        assert_int_equal(lookup_of(cache, &key, 0), BUILD);
        entry_path(path, dir, &key, BUILD);
        for (int i = 0; i < level + 1; i++)
            *strrchr(path, '/') = '\0';
        remove_tree(path);
        assert_int_equal(lookup_of(cache, &key, 0), 0);
        assert_int_equal(lookup_of(cache, &key, BUILD), 0);
        const int lock = attns_cache_lock(cache, &key, 1.0);
        assert_true(lock >= 0);
        attns_cache_unlock(lock);
    }
    assert_true(store_of(cache, &key, BUILD));
    assert_int_equal(lookup_of(cache, &key, 0), BUILD);
    assert_int_equal(log.lines, 0);
    assert_int_equal(count_open_fds(), fds);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

/* Without the check the kernel would kill the process at the limit. */
static void file_size_limit(void **state) {
    (void)state;
    attns_cache_key key = key_of("limit");
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool stored = store_of(cache, &key, BUILD);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(stored);
    assert_int_equal(log.warnings, 1);
    assert_int_equal(count_files(scratch).temps + count_files(scratch).entries, 0);
    assert_true(store_of(cache, &key, BUILD));
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

static void too_many_open_files(void **state) {
    (void)state;
    attns_cache_key key = key_of("descriptors");
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    assert_true(store_of(cache, &key, BUILD));
    /* From no descriptor left to a few: each step of an operation runs out in turn. */
    int held[2048], count = 0;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit small = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    while (count < 2048 && (held[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    bool hit = false, stored = false, locked = false;
    for (int spare = 0; spare < 8 && count > 0; spare++) {
        hit = lookup_of(cache, &key, 0) == BUILD;
        stored = store_of(cache, &key, BUILD);
        const int lock = attns_cache_lock(cache, &key, 1.0);
        locked = lock >= 0;
        attns_cache_unlock(lock);
        if (spare == 0)
            assert_false(hit || stored || locked);
        close(held[--count]);
    }
    while (count > 0)
        close(held[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(hit && stored && locked);
    assert_int_equal(log.warnings, 1);
    assert_int_equal(lookup_of(cache, &key, BUILD), BUILD);
    assert_int_equal(count_files(scratch).temps, 0);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

/* ---- File systems of our own, in a mount namespace of a child ---- */

static bool write_text(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* A private mount namespace; without root by way of a user namespace. */
static bool enter_namespace(void) {
    char map[64];
    const unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();
    if (uid == 0) {
        if (unshare(CLONE_NEWNS) != 0)
            return false;
    } else {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        if (!write_text("/proc/self/uid_map", map) || !write_text("/proc/self/setgroups", "deny"))
            return false;
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        if (!write_text("/proc/self/gid_map", map))
            return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Runs `body` in a child that has its own mounts; skips the test, with the reason, where that is not permitted. */
static void in_namespace(int (*body)(const char *dir)) {
    char dir[512];
    format_path(dir, "%s/mount", scratch);
    assert_int_equal(mkdir(dir, 0700), 0);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!enter_namespace())
            _exit(CANNOT_MOUNT);
        _exit(body(dir));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        print_message("skipped: this user may not mount a file system in a namespace of its own\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* 64 KB: fills up while storing. What was stored before stays good, the rest is told once. */
static int fill_small_disk(const char *dir) {
    if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0700") != 0)
        return CANNOT_MOUNT;
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    bool stored[64];
    unsigned good = 0;
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "full %d", i);
        attns_cache_key key = key_of(name);
        const int lock = attns_cache_lock(cache, &key, 1.0);
        stored[i] = store_of(cache, &key, BUILD);
        attns_cache_unlock(lock);
        good += stored[i];
        attns_cache_key_free(&key);
    }
    if (good == 0 || good == 64)
        return 2;
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "full %d", i);
        attns_cache_key key = key_of(name);
        attns_cache_entry entry;
        const bool hit = attns_cache_lookup(cache, &key, 0, &entry);
        if (hit != stored[i] || (hit && !entry_is_of(&entry, &key, BUILD)))
            return 3;
        if (hit)
            attns_cache_entry_free(&entry);
        attns_cache_key_free(&key);
    }
    const file_counts counts = count_files(dir);
    if (counts.entries != good || counts.temps != 0 || counts.others != 0)
        return 4;
    if (log.warnings != 1 || strstr(log.last, "No space left") == NULL)
        return 5;
    attns_cache_close(cache);
    return 0;
}

static void full_disk(void **state) {
    (void)state;
    in_namespace(fill_small_disk);
}

/* The bound of the cache is what keeps a small disk from filling up. */
static int bounded_on_small_disk(const char *dir) {
    if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0700") != 0)
        return CANNOT_MOUNT;
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 200000, &log);
    for (int i = 0; i < 400; i++) {
        char name[32];
        snprintf(name, sizeof name, "bounded %d", i);
        attns_cache_key key = key_of(name);
        if (!store_of(cache, &key, BUILD))
            return 2;
        attns_cache_key_free(&key);
    }
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    if (stats.bytes > 200000 || stats.bytes < 150000 || log.warnings != 0)
        return 3;
    attns_cache_close(cache);
    return 0;
}

static void bounded_on_a_small_disk(void **state) {
    (void)state;
    in_namespace(bounded_on_small_disk);
}

/* Remounted read-only under a running cache: hits stay hits, even of entries whose time would be renewed. */
static int read_only_mount(const char *dir) {
    if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0700") != 0)
        return CANNOT_MOUNT;
    attns_cache_key key = key_of("read-only mount"), damaged = key_of("damaged"), other = key_of("other");
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    char path[512];
    if (!store_of(cache, &key, BUILD) || !store_of(cache, &damaged, BUILD))
        return 2;
    entry_path(path, dir, &damaged, BUILD);
    if (truncate(path, 10) != 0)
        return 3;
    entry_path(path, dir, &key, BUILD);
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    if (utimensat(AT_FDCWD, path, old, 0) != 0)
        return 4;
    if (mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) != 0)
        return CANNOT_MOUNT;
    attns_cache_entry entry;
    for (int i = 0; i < 3; i++) {
        if (!attns_cache_lookup(cache, &key, 0, &entry) || !entry_is_of(&entry, &key, BUILD))
            return 5;
        attns_cache_entry_free(&entry);
        if (attns_cache_lookup(cache, &damaged, 0, &entry) || store_of(cache, &other, BUILD))
            return 6;
        const int lock = attns_cache_lock(cache, &other, 5.0);
        if (lock >= 0)
            return 7;
    }
    if (log.warnings != 2) /* the damage, and that nothing can be written */
        return 8;
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&damaged);
    attns_cache_key_free(&other);
    return 0;
}

static void remounted_read_only(void **state) {
    (void)state;
    in_namespace(read_only_mount);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(below_a_file, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(files_where_directories_belong, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(removed_while_running, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(file_size_limit, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(too_many_open_files, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(full_disk, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(bounded_on_a_small_disk, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(remounted_read_only, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
