/* SPDX-License-Identifier: MIT
 *
 * Which tiers a cache has: places that can be written and places that cannot, sharing, and what is read where. */
#include "fixture.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUILD = 13000, STRANGER = 54321, FRIENDS = 60001 };

static attns_cache *open_first_of(const char *const *dirs, size_t num_dirs, bool shared, log_record *log) {
    memset(log, 0, sizeof *log);
    const attns_cache_params params = {
        .dirs = dirs, .num_dirs = num_dirs, .shared = shared, .log = record_log, .log_user = log};
    attns_cache *const cache = attns_cache_open(&params);
    assert_non_null(cache);
    return cache;
}

/* Runs `body` as another user. Its return value is 0 if all is well. */
static void as_user(unsigned uid, unsigned gid, int (*body)(void *), void *argument) {
    if (geteuid() != 0) {
        print_message("skipped: becoming another user needs root\n");
        skip();
    }
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        umask(022);
        if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
            _exit(99);
        _exit(body(argument));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("as user %u: status 0x%x", uid, (unsigned)status);
}

static void the_first_that_can_be_written(void **state) {
    (void)state;
    attns_cache_key key = key_of("candidates");
    char file[512], below[512], open_dir[512], fresh[512], last[512];
    format_path(file, "%s/file", scratch);
    format_path(below, "%s/file/below", scratch);
    format_path(open_dir, "%s/open", scratch);
    format_path(fresh, "%s/a/b/c", scratch);
    format_path(last, "%s/last", scratch);
    write_file(file, "x", 1);
    assert_int_equal(mkdir(open_dir, 0700), 0);
    assert_int_equal(chmod(open_dir, 0777), 0);
    const char *const dirs[] = {NULL, "", file, below, open_dir, fresh, last};
    log_record log;
    attns_cache *cache = open_first_of(dirs, 7, false, &log);
    assert_string_equal(attns_cache_writable_dir(cache), fresh);
    assert_int_equal(log.warnings, 3); /* one for each place passed over */
    assert_true(store_of(cache, &key, BUILD));
    assert_int_equal(lookup_of(cache, &key, 0), BUILD);
    assert_int_equal(log.warnings, 3);
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    assert_string_equal(stats.readonly_dirs, "");
    assert_false(path_exists(last));
    attns_cache_close(cache);
    /* None at all: memory only, and nothing more is said. */
    cache = open_first_of(dirs, 5, false, &log);
    assert_null(attns_cache_writable_dir(cache));
    assert_false(store_of(cache, &key, BUILD));
    assert_int_equal(lookup_of(cache, &key, 0), 0);
    assert_int_equal(log.warnings, 3);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
}

/* ---- A cache of the image, named as if it could be written ---- */

typedef struct shipped {
    char image[512], own[512];
    attns_cache_key in_image, fresh;
} shipped;

static int use_shipped(void *argument) {
    shipped *const at = argument;
    const char *const dirs[] = {at->image, at->own};
    log_record log;
    memset(&log, 0, sizeof log);
    const attns_cache_params params = {.dirs = dirs, .num_dirs = 2, .log = record_log, .log_user = &log};
    attns_cache *const cache = attns_cache_open(&params);
    attns_cache_entry entry;
    if (cache == NULL || log.warnings != 1 || strstr(log.last, "it is only read") == NULL)
        return 1;
    if (strcmp(attns_cache_writable_dir(cache), at->own) != 0)
        return 2;
    if (!attns_cache_lookup(cache, &at->in_image, 0, &entry) || !entry.from_readonly)
        return 3;
    attns_cache_entry_free(&entry);
    if (!store_of(cache, &at->fresh, BUILD) || !attns_cache_lookup(cache, &at->fresh, 0, &entry) || entry.from_readonly)
        return 4;
    attns_cache_entry_free(&entry);
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    if (strcmp(stats.readonly_dirs, at->image) != 0 || stats.entries != 1 || log.warnings != 1)
        return 5;
    attns_cache_close(cache);
    return 0;
}

static void make_public(const char *dir) {
    char command[700];
    snprintf(command, sizeof command, "chmod -R a+rX,go-w '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void an_image_is_read_and_home_is_written(void **state) {
    (void)state;
    shipped at = {.in_image = key_of("in the image"), .fresh = key_of("fresh")};
    format_path(at.image, "%s/image", scratch);
    format_path(at.own, "%s/home/cache", scratch);
    char home[512];
    format_path(home, "%s/home", scratch);
    log_record log;
    attns_cache *const cache = open_cache(at.image, NULL, 0, &log);
    assert_true(store_of(cache, &at.in_image, BUILD));
    attns_cache_close(cache);
    make_public(at.image);
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(chown(home, STRANGER, STRANGER), geteuid() == 0 ? 0 : -1);
    as_user(STRANGER, STRANGER, use_shipped, &at);
    attns_cache_key_free(&at.in_image);
    attns_cache_key_free(&at.fresh);
}

/* ---- Sharing ---- */

typedef struct sharing {
    char dir[512];
    attns_cache_key theirs, ours;
    bool shared;
    bool expect; /* to find `theirs`, and to store `ours` */
} sharing;

static int use_shared(void *argument) {
    sharing *const at = argument;
    log_record log;
    memset(&log, 0, sizeof log);
    const attns_cache_params params = {.dir = at->dir, .shared = at->shared, .log = record_log, .log_user = &log};
    attns_cache *const cache = attns_cache_open(&params);
    attns_cache_entry entry;
    const bool found = attns_cache_lookup(cache, &at->theirs, 0, &entry);
    if (found)
        attns_cache_entry_free(&entry);
    const bool stored = store_of(cache, &at->ours, BUILD);
    const int lock = attns_cache_lock(cache, &at->ours, 0);
    const bool locked = lock >= 0;
    attns_cache_unlock(lock);
    attns_cache_close(cache);
    if (found != at->expect || stored != at->expect || locked != at->expect)
        return 1 + found + 2 * stored + 4 * locked;
    return at->expect ? log.warnings != 0 : log.warnings != 1;
}

/* Two users of one group, in a directory of theirs: only for those who ask for it, and never if everybody may write. */
static void shared_by_a_group(void **state) {
    (void)state;
    sharing at = {.theirs = key_of("theirs"), .ours = key_of("ours"), .shared = true, .expect = true};
    format_path(at.dir, "%s/shared", scratch);
    assert_int_equal(mkdir(at.dir, 0700), 0);
    assert_int_equal(chmod(at.dir, 02770), 0);
    assert_int_equal(chown(at.dir, 1001, FRIENDS), geteuid() == 0 ? 0 : -1);
    assert_int_equal(chmod(at.dir, 02770), 0);
    /* The first finds nothing and leaves `ours` there. */
    sharing first = at;
    first.expect = true;
    first.theirs = at.ours; /* looked up before it is stored: a miss would be unexpected, so store it beforehand */
    {
        log_record log;
        memset(&log, 0, sizeof log);
        const attns_cache_params params = {.dir = at.dir, .shared = true, .log = record_log, .log_user = &log};
        attns_cache *const cache = attns_cache_open(&params);
        assert_true(store_of(cache, &at.ours, BUILD));
        attns_cache_close(cache);
        assert_int_equal(log.warnings, 0);
    }
    char path[512];
    struct stat st;
    entry_path(path, at.dir, &at.ours, BUILD);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_int_equal(st.st_gid, FRIENDS);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02770);
    as_user(1001, FRIENDS, use_shared, &first);
    first.ours = at.theirs;
    as_user(1002, FRIENDS, use_shared, &first); /* replaces nothing, adds `theirs` */
    as_user(1001, FRIENDS, use_shared, &at);    /* and the first user finds it */

    sharing refused = at;
    refused.shared = refused.expect = false;
    as_user(1001, FRIENDS, use_shared, &refused); /* its own directory, but its group may write */
    refused.shared = true;
    assert_int_equal(chmod(at.dir, 02777), 0);
    as_user(1001, FRIENDS, use_shared, &refused);
    attns_cache_key_free(&at.theirs);
    attns_cache_key_free(&at.ours);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_that_can_be_written, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(an_image_is_read_and_home_is_written, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(shared_by_a_group, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
