/* SPDX-License-Identifier: MIT
 *
 * A cubin is code: directories and files that somebody else could have written, or that are not what they seem, are
 * left alone. Nothing here may hang either. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUILD = 12080, STRANGER = 54321 };

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
    alarm(60); /* a FIFO that is waited on ends the test */
    return 0;
}

/* Fills `dir` as its own cache. */
static void fill(const char *dir, const attns_cache_key *key) {
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    assert_true(store_of(cache, key, BUILD));
    attns_cache_close(cache);
}

/* Each directory of a filled tier in turn: 0 the tier itself, 1 its version, 2 the shard. */
static void level_path(char path[512], const char *dir, const attns_cache_key *key, int level) {
    entry_path(path, dir, key, BUILD);
    for (int i = level; i < 3; i++)
        *strrchr(path, '/') = '\0';
}

static void assert_unusable(const char *dir, const char *readonly_dirs, const attns_cache_key *key, const char *why) {
    log_record log;
    attns_cache *const cache = open_cache(dir, readonly_dirs, 0, &log);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lookup_of(cache, key, 0), 0);
        assert_int_equal(lookup_of(cache, key, BUILD), 0);
        assert_false(store_of(cache, key, BUILD));
    }
    if (log.warnings != 1 || strstr(log.last, why) == NULL)
        fail_msg("expected one warning with '%s', got %u:\n%s", why, log.warnings, log.text);
    attns_cache_close(cache);
}

static void modes_of_directories(void **state) {
    (void)state;
    static const mode_t bad[] = {0777, 0722, 0770, 0720, 0702, 01777, 02770};
    attns_cache_key key = key_of("modes");
    char dir[512], path[512];
    format_path(dir, "%s/cache", scratch);
    fill(dir, &key);
    for (int level = 0; level < 3; level++) {
        level_path(path, dir, &key, level);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            assert_int_equal(chmod(path, bad[i]), 0);
            char mode[16];
            snprintf(mode, sizeof mode, "mode %04o", bad[i]);
            assert_unusable(dir, NULL, &key, mode);
            assert_unusable(NULL, dir, &key, mode);
        }
        /* Readable by all is fine: that is how a cache is shipped. */
        assert_int_equal(chmod(path, 0755), 0);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        assert_int_equal(lookup_of(cache, &key, 0), BUILD);
        assert_true(store_of(cache, &key, BUILD));
        assert_int_equal(log.lines, 0);
        attns_cache_close(cache);
    }
    attns_cache_key_free(&key);
}

/* A second refused tier is told of as well, though its cause is the same. */
static void each_refused_tier_is_told(void **state) {
    (void)state;
    char a[512], b[512], list[1100];
    format_path(a, "%s/a", scratch);
    format_path(b, "%s/b", scratch);
    snprintf(list, sizeof list, "%s:%s", a, b);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir(i == 0 ? a : b, 0700), 0);
        assert_int_equal(chmod(i == 0 ? a : b, 0777), 0);
    }
    log_record log;
    attns_cache *const cache = open_cache(NULL, list, 0, &log);
    assert_int_equal(log.warnings, 2);
    assert_non_null(strstr(log.text, a));
    assert_non_null(strstr(log.text, b));
    attns_cache_close(cache);
}

static void owners_of_directories(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: giving directories to another user needs root\n");
        skip();
    }
    attns_cache_key key = key_of("owners");
    char dir[512], path[512];
    format_path(dir, "%s/cache", scratch);
    fill(dir, &key);
    for (int level = 0; level < 3; level++) {
        level_path(path, dir, &key, level);
        assert_int_equal(chown(path, STRANGER, STRANGER), 0);
        assert_unusable(dir, NULL, &key, "belongs to user 54321");
        assert_unusable(NULL, dir, &key, "belongs to user 54321");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    attns_cache_key_free(&key);
}

static void symbolic_links_to_directories(void **state) {
    (void)state;
    attns_cache_key key = key_of("links");
    char dir[512], path[512], moved[512];
    format_path(dir, "%s/cache", scratch);
    format_path(moved, "%s/moved", scratch);
    fill(dir, &key);
    for (int level = 0; level < 3; level++) {
        level_path(path, dir, &key, level);
        assert_int_equal(rename(path, moved), 0);
        assert_int_equal(symlink(moved, path), 0);
        assert_unusable(dir, NULL, &key, "symbolic link");
        if (level == 0) {
            char slashes[512];
            format_path(slashes, "%s//", dir);
            assert_unusable(slashes, NULL, &key, "symbolic link");
            /* A read-only tier is judged by where the link leads. */
            log_record log;
            attns_cache *const cache = open_cache(NULL, dir, 0, &log);
            assert_int_equal(lookup_of(cache, &key, 0), BUILD);
            assert_int_equal(log.lines, 0);
            attns_cache_close(cache);
            assert_int_equal(chmod(moved, 0777), 0);
            assert_unusable(NULL, dir, &key, "mode 0777");
            assert_int_equal(chmod(moved, 0700), 0);
        } else {
            assert_unusable(NULL, dir, &key, "symbolic link");
        }
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rename(moved, path), 0);
    }
    /* Dangling: nothing is created where it points. */
    level_path(path, dir, &key, 1);
    assert_int_equal(rename(path, moved), 0);
    char target[512];
    format_path(target, "%s/target", scratch);
    assert_int_equal(symlink(target, path), 0);
    assert_unusable(dir, NULL, &key, "symbolic link");
    assert_false(path_exists(target));
    attns_cache_key_free(&key);
}

static void symbolic_links_above(void **state) {
    (void)state;
    attns_cache_key key = key_of("home");
    char real[512], home[512], dir[512];
    format_path(real, "%s/data/home", scratch);
    format_path(home, "%s/data", scratch);
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(mkdir(real, 0755), 0);
    format_path(home, "%s/home", scratch);
    assert_int_equal(symlink(real, home), 0);
    format_path(dir, "%s/user/.cache/cubins", home);
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    assert_true(store_of(cache, &key, BUILD));
    assert_int_equal(lookup_of(cache, &key, 0), BUILD);
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);
    format_path(dir, "%s/user/.cache/cubins/v1", real);
    assert_true(path_exists(dir));
    attns_cache_key_free(&key);
}

/* ---- What stands in an entry's place ---- */

static void place_link_to_sound_entry(const char *path) {
    char moved[512];
    format_path(moved, "%s/sound", scratch);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
}

static void place_dangling_link(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
}

static void place_link_to_itself(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(strrchr(path, '/') + 1, path), 0);
}

static void place_fifo(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void place_socket(const char *path) {
    char near[64], here[512];
    assert_int_equal(unlink(path), 0);
    /* The address holds too few characters for the whole path. */
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(scratch), 0);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    snprintf(near, sizeof near, "%s", "socket");
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(rename(near, path), 0);
    close(fd);
    assert_int_equal(chdir(here), 0);
}

static void make_group_writable(const char *path) {
    assert_int_equal(chmod(path, 0660), 0);
}

static void impostors(void **state) {
    (void)state;
    static void (*const place[])(const char *path) = {
        place_link_to_sound_entry, place_dangling_link, place_link_to_itself, place_fifo, place_socket,
        make_group_writable};
    attns_cache_key key = key_of("impostor");
    char dir[512], path[512];
    format_path(dir, "%s/cache", scratch);
    entry_path(path, dir, &key, BUILD);
    const int fds = count_open_fds();
    for (size_t i = 0; i < sizeof place / sizeof place[0]; i++) {
        for (uint32_t build = 0; build <= BUILD; build += BUILD) {
            print_message("case %zu\n", i);
            fill(dir, &key);
            place[i](path);
            /* Left alone in a read-only tier. */
            log_record log;
            attns_cache *cache = open_cache(NULL, dir, 0, &log);
            for (int j = 0; j < 3; j++)
                assert_int_equal(lookup_of(cache, &key, build), 0);
            assert_int_equal(log.warnings, 1);
            assert_true(path_exists(path));
            attns_cache_close(cache);
            /* Removed from a writable one. */
            cache = open_cache(dir, NULL, 0, &log);
            assert_int_equal(lookup_of(cache, &key, build), 0);
            assert_int_equal(log.warnings, 1);
            assert_false(path_exists(path));
            assert_int_equal(lookup_of(cache, &key, build), 0);
            /* Replaced by a store that comes first. */
            fill(dir, &key);
            if (i == 0) {
                char moved[512];
                format_path(moved, "%s/sound", scratch);
                assert_true(path_exists(moved)); /* what a link led to is none of ours */
                assert_int_equal(unlink(moved), 0);
            }
            place[i](path);
            assert_true(store_of(cache, &key, BUILD));
            assert_int_equal(lookup_of(cache, &key, build), BUILD);
            assert_int_equal(log.warnings, 1);
            attns_cache_close(cache);
        }
    }
    assert_int_equal(count_open_fds(), fds);
    attns_cache_key_free(&key);
}

/* A directory in an entry's place cannot be replaced by a rename: told, never fatal, not removed. */
static void directory_in_an_entrys_place(void **state) {
    (void)state;
    attns_cache_key key = key_of("directory");
    char dir[512], path[512], inside[512];
    format_path(dir, "%s/cache", scratch);
    fill(dir, &key);
    entry_path(path, dir, &key, BUILD);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    format_path(inside, "%s/precious", path);
    write_file(inside, "x", 1);
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lookup_of(cache, &key, 0), 0);
        assert_false(store_of(cache, &key, BUILD));
    }
    assert_int_equal(log.warnings, 2);
    assert_true(path_exists(inside));
    assert_int_equal(count_files(dir).temps, 0);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

static void odd_lock_files(void **state) {
    (void)state;
    attns_cache_key key = key_of("lock");
    char dir[512], path[512], target[512];
    format_path(dir, "%s/cache", scratch);
    format_path(path, "%s/v1/lock", dir);
    format_path(target, "%s/target", scratch);
    fill(dir, &key);
    for (int i = 0; i < 3; i++) {
        unlink(path);
        if (i == 0)
            assert_int_equal(symlink(target, path), 0);
        else if (i == 1)
            assert_int_equal(mkfifo(path, 0600), 0);
        else
            assert_int_equal(mkdir(path, 0700), 0);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        assert_int_equal(attns_cache_lock(cache, &key, 5.0), -1);
        assert_int_equal(log.warnings, 1);
        assert_false(path_exists(target));
        assert_true(store_of(cache, &key, BUILD));
        assert_int_equal(lookup_of(cache, &key, 0), BUILD);
        attns_cache_close(cache);
    }
    attns_cache_key_free(&key);
}

/* ---- A container with a random user and no home ---- */

static int as_stranger(const char *shipped, const char *denied, const attns_cache_key *key) {
    if (setgroups(0, NULL) != 0 || setresgid(STRANGER, STRANGER, STRANGER) != 0 ||
        setresuid(STRANGER, STRANGER, STRANGER) != 0)
        return 2;
    log_record log;
    /* Below a directory that only root may write to. */
    attns_cache *cache = open_cache(denied, shipped, 0, &log);
    attns_cache_entry entry;
    for (int i = 0; i < 3; i++) {
        if (!attns_cache_lookup(cache, key, 0, &entry) || !entry.from_readonly || !entry_is_of(&entry, key, BUILD))
            return 3;
        attns_cache_entry_free(&entry);
        if (store_of(cache, key, BUILD + 1))
            return 4;
        if (attns_cache_lock(cache, key, 5.0) != -1)
            return 5;
    }
    if (log.warnings != 1 || strstr(log.last, "Permission denied") == NULL)
        return 6;
    attns_cache_close(cache);
    /* Root's own directory is not ours to write: named as the writable one, it is only read. */
    cache = open_cache(shipped, NULL, 0, &log);
    if (log.warnings != 1 || strstr(log.last, "belongs to user 0") == NULL || attns_cache_writable_dir(cache) != NULL)
        return 7;
    if (!attns_cache_lookup(cache, key, 0, &entry) || !entry.from_readonly)
        return 8;
    attns_cache_entry_free(&entry);
    if (store_of(cache, key, BUILD + 1) || log.warnings != 1)
        return 9;
    attns_cache_close(cache);
    return 0;
}

static void shipped_by_root_used_by_anybody(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: becoming another user needs root\n");
        skip();
    }
    attns_cache_key key = key_of("shipped");
    char shipped[512], denied[512], path[512];
    format_path(shipped, "%s/shipped", scratch);
    format_path(denied, "%s/no/such", scratch);
    fill(shipped, &key);
    entry_path(path, shipped, &key, BUILD);
    assert_int_equal(chmod(path, 0644), 0);
    for (int level = 0; level < 3; level++) {
        level_path(path, shipped, &key, level);
        assert_int_equal(chmod(path, 0755), 0);
    }
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(as_stranger(shipped, denied, &key));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    attns_cache_key_free(&key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(modes_of_directories, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(each_refused_tier_is_told, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(owners_of_directories, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(symbolic_links_to_directories, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(symbolic_links_above, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(impostors, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(directory_in_an_entrys_place, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(odd_lock_files, set_up, remove_scratch),
        cmocka_unit_test_setup_teardown(shipped_by_root_used_by_anybody, set_up, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
