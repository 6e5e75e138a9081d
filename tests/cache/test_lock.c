/* SPDX-License-Identifier: MIT
 *
 * Advisory locks: exclusion by key, time limits, holders that die. */
#include "fixture.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static attns_cache *cache;
static attns_cache_key key, other;
static log_record record;

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
    cache = open_cache(scratch, NULL, 0, &record);
    key = key_of("key");
    other = key_of("other");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    assert_int_equal(record.lines, 0);
    attns_cache_close(cache);
    attns_cache_key_free(&key);
    attns_cache_key_free(&other);
    remove_scratch(NULL);
    return 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void assert_free(const attns_cache_key *of) {
    const int lock = attns_cache_lock(cache, of, 0);
    assert_true(lock >= 0);
    attns_cache_unlock(lock);
}

static void exclusion_by_key(void **state) {
    (void)state;
    const int fds = count_open_fds();
    const int lock = attns_cache_lock(cache, &key, 0);
    assert_true(lock >= 0);
    assert_int_equal(attns_cache_lock(cache, &key, 0), -1);
    /* Another key, even one whose digest begins alike, is not held up. */
    assert_free(&other);
    attns_cache_key near = key_of("key");
    near.digest[6] ^= 1;
    assert_free(&near);
    attns_cache_key_free(&near);
    attns_cache_unlock(lock);
    assert_free(&key);
    assert_int_equal(count_open_fds(), fds);
}

static void time_limits(void **state) {
    (void)state;
    const int lock = attns_cache_lock(cache, &key, 0);
    assert_true(lock >= 0);
    double start = seconds();
    assert_int_equal(attns_cache_lock(cache, &key, 0.3), -1);
    double took = seconds() - start;
    assert_true(took >= 0.3 && took < 5);
    static const double none[] = {0, -1, -1e300};
    for (size_t i = 0; i < 3; i++) {
        start = seconds();
        assert_int_equal(attns_cache_lock(cache, &key, none[i]), -1);
        assert_true(seconds() - start < 2);
    }
    start = seconds();
    assert_int_equal(attns_cache_lock(cache, &key, (double)NAN), -1);
    assert_true(seconds() - start < 2);
    attns_cache_unlock(lock);
    /* No waiting where nobody holds it, however long one would. */
    const int again = attns_cache_lock(cache, &key, (double)INFINITY);
    assert_true(again >= 0);
    attns_cache_unlock(again);
}

/* A child that locks the key, says so through a pipe and then waits to be killed. */
static pid_t start_holder(void) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int lock = attns_cache_lock(cache, &key, 5);
        const char answer = lock >= 0 ? 'y' : 'n';
        if (write(ready[1], &answer, 1) != 1)
            _exit(2);
        for (;;)
            pause();
    }
    char answer = 'n';
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void *kill_later(void *argument) {
    const struct timespec span = {.tv_nsec = 300000000};
    nanosleep(&span, NULL);
    kill(*(const pid_t *)argument, SIGKILL);
    return NULL;
}

static void killed_holder(void **state) {
    (void)state;
    pid_t child = start_holder();
    assert_int_equal(attns_cache_lock(cache, &key, 0.05), -1);
    assert_free(&other);
    pthread_t killer;
    const double start = seconds();
    assert_int_equal(pthread_create(&killer, NULL, kill_later, &child), 0);
    const int lock = attns_cache_lock(cache, &key, 30);
    const double took = seconds() - start;
    assert_true(lock >= 0);
    assert_true(took >= 0.25 && took < 2.3); /* the holder's life and less than 2 s */
    assert_int_equal(pthread_join(killer, NULL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    attns_cache_unlock(lock);
    /* What it left behind is harmless, and the file is the same one for ever. */
    char path[512];
    format_path(path, "%s/v1/lock", scratch);
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    child = start_holder();
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_free(&key);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(after.st_size, 0);
}

/* A child forked while the lock is held inherits the open file; the release by its owner must count nevertheless. */
static void forked_child_keeps_nothing(void **state) {
    (void)state;
    const int lock = attns_cache_lock(cache, &key, 0);
    assert_true(lock >= 0);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (;;)
            pause();
    }
    attns_cache_unlock(lock);
    const int again = attns_cache_lock(cache, &key, 0);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(again >= 0);
    attns_cache_unlock(again);
}

/* Locks are no condition of anything: entries are read and written while somebody holds the key. */
static void locks_do_not_bar_entries(void **state) {
    (void)state;
    const pid_t child = start_holder();
    const double start = seconds();
    assert_true(store_of(cache, &key, 7));
    assert_int_equal(lookup_of(cache, &key, 0), 7);
    assert_true(seconds() - start < 2);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exclusion_by_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(time_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed_holder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forked_child_keeps_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(locks_do_not_bar_entries, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
