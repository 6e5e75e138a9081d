/* SPDX-License-Identifier: MIT
 *
 * Every system call of the cache fails in every way at every place: nothing crashes, leaks, hangs, shows a partial
 * file or returns wrong contents, and afterwards work goes on. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "faulty_fs.h"

enum { BUILD = 12080, OLDER = 12010, MAX_BYTES = 40000 };

static const int errors[] = {ENOSPC, EDQUOT, EIO, ESTALE, EBUSY, ENOENT, EACCES};
enum { NUM_ERRORS = sizeof errors / sizeof errors[0] };

static char dir[512], shipped[512];
static attns_cache_key made, kept, two, old_key, below;

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
    format_path(dir, "%s/cache", scratch);
    format_path(shipped, "%s/shipped", scratch);
    made = key_of("made");
    kept = key_of("kept");
    two = key_of("two builds");
    old_key = key_of("old");
    below = key_of("below");
    faulty_fs_set(NULL);
    faulty_fs_limit_transfers(0);
    log_record log;
    attns_cache *const cache = open_cache(shipped, NULL, 0, &log);
    assert_true(store_of(cache, &below, BUILD));
    attns_cache_close(cache);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    faulty_fs_set(NULL);
    faulty_fs_limit_transfers(0);
    attns_cache_key_free(&made);
    attns_cache_key_free(&kept);
    attns_cache_key_free(&two);
    attns_cache_key_free(&old_key);
    attns_cache_key_free(&below);
    remove_scratch(NULL);
    return 0;
}

/* The writable tier as the next scenario finds it: some entries, one due for renewal, and a stale temporary file. */
static void prepare(bool exists) {
    char path[512];
    if (path_exists(dir))
        remove_tree(dir);
    if (!exists)
        return;
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    assert_true(store_of(cache, &kept, BUILD));
    assert_true(store_of(cache, &two, OLDER));
    assert_true(store_of(cache, &two, BUILD));
    assert_true(store_of(cache, &old_key, BUILD));
    attns_cache_close(cache);
    assert_int_equal(log.lines, 0);
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    entry_path(path, dir, &old_key, BUILD);
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    *strrchr(path, '/') = '\0';
    strcat(path, "/.tmp-00112233445566778899aabbccddeeff");
    write_file(path, "x", 1);
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

/* What a process does with its cache. Hits are checked by lookup_of; whether there are any depends on the faults. */
static void work(attns_cache *cache) {
    lookup_of(cache, &made, 0);
    const int lock = attns_cache_lock(cache, &made, 0.0);
    store_of(cache, &made, BUILD);
    attns_cache_unlock(lock);
    lookup_of(cache, &made, BUILD);
    lookup_of(cache, &two, 0);
    lookup_of(cache, &kept, 0);
    lookup_of(cache, &old_key, 0);
    lookup_of(cache, &below, 0);
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    store_of(cache, &kept, BUILD);
}

static unsigned scenarios, faults;

/* One scenario under one plan, and everything that must hold then. Returns whether the fault occurred. */
static bool survive(const faulty_plan *plan, bool exists, uint64_t max_bytes) {
    char what[160];
    snprintf(what, sizeof what, "%s call %u -> %s%s%s, %s directory, bound %" PRIu64, faulty_fs_name(plan->call),
             plan->first, strerror(plan->error), plan->stays ? ", stays" : "", plan->performed ? ", performed" : "",
             exists ? "filled" : "new", max_bytes);
    prepare(exists);
    const int fds = count_open_fds();
    log_record log;
    faulty_fs_set(plan);
    attns_cache *const cache = open_cache(dir, shipped, max_bytes, &log);
    work(cache);
    const bool occurred = faulty_fs_faults() != 0;
    scenarios++;
    faults += faulty_fs_faults();
    faulty_fs_set(NULL);
    /* One cause, one line; both tiers may meet it. */
    if (log.warnings > 2)
        fail_msg("%s: %u warnings:\n%s", what, log.warnings, log.text);
    if (count_open_fds() != fds)
        fail_msg("%s: descriptors leaked", what);
    if (path_exists(dir) && plan->call != FAULTY_UNLINKAT) {
        /* At most the stale one, if the walk could not see it. */
        const file_counts counts = count_files(dir);
        if (counts.temps > (exists ? 1 : 0) || counts.others != 0)
            fail_msg("%s: left %u temporary files", what, counts.temps);
    }
    /* Whatever is visible is sound: a fresh object finds nothing to complain of. */
    log_record fresh_log;
    attns_cache *const fresh = open_cache(dir, shipped, 0, &fresh_log);
    lookup_of(fresh, &made, 0);
    lookup_of(fresh, &kept, 0);
    lookup_of(fresh, &two, OLDER);
    lookup_of(fresh, &two, BUILD);
    lookup_of(fresh, &old_key, 0);
    assert_int_equal(lookup_of(fresh, &below, 0), BUILD);
    if (fresh_log.lines != 0)
        fail_msg("%s: left something unsound:\n%s", what, fresh_log.text);
    attns_cache_close(fresh);
    /* Faults over, work goes on in the same object (unless its directory was refused for good when it was opened). */
    attns_cache_stats stats;
    attns_cache_get_stats(cache, &stats);
    if (stats.dir != NULL) {
        if (!store_of(cache, &made, BUILD) || lookup_of(cache, &made, 0) != BUILD)
            fail_msg("%s: does not recover", what);
    } else if (plan->call != FAULTY_OPENAT && plan->call != FAULTY_FSTAT) {
        fail_msg("%s: directory dropped", what);
    }
    attns_cache_close(cache);
    return occurred;
}

/* How often each call is made when nothing fails. */
static unsigned calls_without_faults(faulty_call call, bool exists, uint64_t max_bytes) {
    prepare(exists);
    log_record log;
    faulty_fs_set(NULL);
    attns_cache *const cache = open_cache(dir, shipped, max_bytes, &log);
    work(cache);
    const unsigned count = faulty_fs_count(call);
    attns_cache_close(cache);
    assert_int_equal(log.warnings, 0);
    return count;
}

/* All that can befall one call. The code tells ENOENT and ESTALE from the rest, so those two are tried at every place
 * and the rest in turn; at the first two places, all. */
static unsigned fail_call(faulty_call call, unsigned first, bool exists, uint64_t max_bytes) {
    unsigned runs = 0;
    for (size_t e = 0; e < NUM_ERRORS; e++) {
        const bool special = errors[e] == ENOENT || errors[e] == ESTALE;
        if (first >= 2 && !special && e != first % NUM_ERRORS)
            continue;
        faulty_plan plan = {call, errors[e], first, (first + e) % 2 != 0, false};
        assert_true(survive(&plan, exists, max_bytes));
        runs++;
        if (call == FAULTY_MKDIRAT || call == FAULTY_RENAMEAT || call == FAULTY_UNLINKAT) {
            plan.performed = true;
            survive(&plan, exists, max_bytes);
            runs++;
        }
        if (first < 2) {
            plan.stays = !plan.stays;
            survive(&plan, exists, max_bytes);
            runs++;
        }
    }
    return runs;
}

static void every_call(bool exists, uint64_t max_bytes) {
    unsigned runs = 0;
    for (int call = 0; call < FAULTY_NUM_CALLS; call++) {
        const unsigned count = calls_without_faults((faulty_call)call, exists, max_bytes);
        for (unsigned first = 0; first < count; first++)
            runs += fail_call((faulty_call)call, first, exists, max_bytes);
    }
    print_message("%u runs\n", runs);
    assert_true(runs > 400);
}

static void every_call_in_a_new_directory(void **state) {
    (void)state;
    every_call(false, 0);
}

/* With a bound that forces eviction. */
static void every_call_in_a_full_directory(void **state) {
    (void)state;
    every_call(true, 9000);
}

/* A failed publish says so, once, and leaves neither entry nor temporary file. */
static void failed_publish(void **state) {
    (void)state;
    static const faulty_call calls[] = {FAULTY_WRITE, FAULTY_RENAMEAT};
    for (size_t c = 0; c < 2; c++) {
        for (size_t e = 0; e < NUM_ERRORS; e++) {
            prepare(false);
            log_record log;
            attns_cache *const cache = open_cache(dir, NULL, 0, &log);
            const faulty_plan plan = {calls[c], errors[e], 0, true, false};
            faulty_fs_set(&plan);
            for (int i = 0; i < 5; i++)
                assert_false(store_of(cache, &made, BUILD));
            faulty_fs_set(NULL);
            assert_int_equal(log.warnings, 1);
            assert_non_null(strstr(log.last, strerror(errors[e])));
            const file_counts counts = count_files(dir);
            assert_int_equal(counts.entries + counts.temps + counts.others, 0);
            assert_int_equal(lookup_of(cache, &made, 0), 0);
            attns_cache_close(cache);
        }
    }
}

/* Data that a network file system writes out on close fails there. */
static void failed_close(void **state) {
    (void)state;
    for (size_t e = 0; e < NUM_ERRORS; e++) {
        prepare(true);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        faulty_plan plan = {FAULTY_CLOSE, errors[e], 0, true, false};
        faulty_fs_set(&plan);
        assert_false(store_of(cache, &made, BUILD));
        faulty_fs_set(NULL);
        assert_int_equal(log.warnings, 1);
        assert_int_equal(lookup_of(cache, &made, 0), 0);
        assert_int_equal(count_files(dir).temps, 1); /* that of prepare */
        attns_cache_close(cache);
    }
}

/* A disk that fills up in the middle of an entry. */
static void full_after_some_bytes(void **state) {
    (void)state;
    faulty_fs_limit_transfers(100);
    for (unsigned first = 0; first < 20; first++) {
        prepare(false);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        const faulty_plan plan = {FAULTY_WRITE, ENOSPC, first, true, false};
        faulty_fs_set(&plan);
        assert_false(store_of(cache, &made, BUILD));
        faulty_fs_set(NULL);
        assert_int_equal(count_files(dir).temps + count_files(dir).entries, 0);
        attns_cache_close(cache);
    }
}

/* A directory that vanishes, or a handle that goes stale, once: the second try succeeds and nobody need know. */
static void vanished_once(void **state) {
    (void)state;
    static const int passing[] = {ENOENT, ESTALE};
    static const faulty_call calls[] = {FAULTY_WRITE, FAULTY_RENAMEAT};
    for (size_t i = 0; i < 2; i++) {
        for (size_t c = 0; c < 2; c++) {
            prepare(true);
            log_record log;
            attns_cache *const cache = open_cache(dir, NULL, 0, &log);
            const faulty_plan plan = {calls[c], passing[i], 0, false, false};
            faulty_fs_set(&plan);
            assert_true(store_of(cache, &made, BUILD));
            assert_int_equal(faulty_fs_faults(), 1);
            const faulty_plan stale = {FAULTY_READ, ESTALE, 0, false, false};
            faulty_fs_set(&stale);
            assert_int_equal(lookup_of(cache, &made, BUILD), BUILD);
            assert_int_equal(faulty_fs_faults(), 1);
            faulty_fs_set(NULL);
            assert_int_equal(log.lines, 0);
            attns_cache_close(cache);
        }
    }
}

/* Errors of reading are the system's, not the entry's: it stays. */
static void unreadable_is_not_damaged(void **state) {
    (void)state;
    static const faulty_call calls[] = {FAULTY_READ, FAULTY_FSTAT};
    for (size_t c = 0; c < 2; c++) {
        for (size_t e = 0; e < NUM_ERRORS; e++) {
            prepare(true);
            log_record log;
            attns_cache *const cache = open_cache(dir, NULL, 0, &log);
            /* The fourth fstat is that of the entry. */
            const faulty_plan plan = {calls[c], errors[e], calls[c] == FAULTY_FSTAT ? 3 : 0, true, false};
            faulty_fs_set(&plan);
            assert_int_equal(lookup_of(cache, &kept, BUILD), 0);
            assert_true(faulty_fs_faults() != 0);
            faulty_fs_set(NULL);
            assert_int_equal(lookup_of(cache, &kept, BUILD), BUILD);
            attns_cache_close(cache);
        }
    }
}

static void short_transfers(void **state) {
    (void)state;
    static const size_t limits[] = {1, 7, 4096};
    for (size_t i = 0; i < 3; i++) {
        prepare(false);
        faulty_fs_limit_transfers(limits[i]);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, 0, &log);
        assert_true(store_of(cache, &made, BUILD));
        assert_int_equal(lookup_of(cache, &made, 0), BUILD);
        assert_int_equal(log.lines, 0);
        attns_cache_close(cache);
    }
    faulty_fs_limit_transfers(0);
    /* Neither progress nor an error. */
    prepare(false);
    log_record log;
    attns_cache *const cache = open_cache(dir, NULL, 0, &log);
    const faulty_plan none_written = {FAULTY_WRITE, 0, 0, true, false};
    faulty_fs_set(&none_written);
    assert_false(store_of(cache, &made, BUILD));
    faulty_fs_set(NULL);
    assert_int_equal(count_files(dir).temps, 0);
    assert_true(store_of(cache, &made, BUILD));
    const faulty_plan none_read = {FAULTY_READ, 0, 0, true, false};
    faulty_fs_set(&none_read);
    assert_int_equal(lookup_of(cache, &made, BUILD), 0);
    faulty_fs_set(NULL);
    attns_cache_close(cache);
}

/* Signals without SA_RESTART. */
static void interrupted_calls(void **state) {
    (void)state;
    static const faulty_call calls[] = {FAULTY_OPENAT, FAULTY_READ, FAULTY_WRITE, FAULTY_SETLK};
    for (size_t c = 0; c < 4; c++) {
        for (unsigned first = 0; first < 12; first++) {
            prepare(true);
            log_record log;
            attns_cache *const cache = open_cache(dir, NULL, 0, &log);
            const faulty_plan plan = {calls[c], EINTR, first, false, false};
            faulty_fs_set(&plan);
            const int lock = attns_cache_lock(cache, &made, 0);
            assert_true(lock >= 0);
            assert_true(store_of(cache, &made, BUILD));
            attns_cache_unlock(lock);
            assert_int_equal(lookup_of(cache, &made, 0), BUILD);
            assert_int_equal(lookup_of(cache, &two, OLDER), OLDER);
            if (first == 0)
                assert_int_equal(faulty_fs_faults(), 1);
            faulty_fs_set(NULL);
            assert_int_equal(log.lines, 0);
            attns_cache_close(cache);
        }
    }
}

/* A file system without locks: no waiting, no warning, and everything else works, the bound included. */
static void no_locks(void **state) {
    (void)state;
    static const int refusals[] = {ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL, EIO};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        prepare(true);
        log_record log;
        attns_cache *const cache = open_cache(dir, NULL, MAX_BYTES, &log);
        const faulty_plan plan = {FAULTY_SETLK, refusals[i], 0, true, false};
        faulty_fs_set(&plan);
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int j = 0; j < 3; j++)
            assert_int_equal(attns_cache_lock(cache, &made, 60), -1);
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_true(end.tv_sec - start.tv_sec < 5);
        assert_int_equal(log.lines, 1);
        assert_int_equal(log.warnings, 0);
        for (int j = 0; j < 20; j++) {
            char name[32];
            snprintf(name, sizeof name, "no locks %d", j);
            attns_cache_key key = key_of(name);
            assert_true(store_of(cache, &key, BUILD));
            assert_int_equal(lookup_of(cache, &key, 0), BUILD);
            attns_cache_key_free(&key);
        }
        attns_cache_stats stats;
        attns_cache_get_stats(cache, &stats);
        assert_in_range(stats.bytes, 1, MAX_BYTES);
        faulty_fs_set(NULL);
        attns_cache_close(cache);
    }
}

int main(void) {
    /* Thousands of directories are made and removed, and the faults do not come from the file system: one in memory
     * will do. */
    if (access("/dev/shm", W_OK | X_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_call_in_a_new_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_call_in_a_full_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failed_publish, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failed_close, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_after_some_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(vanished_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unreadable_is_not_damaged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_transfers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(interrupted_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_locks, set_up, tear_down),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%u scenarios, %u system calls failed\n", scenarios, faults);
    return failed;
}
