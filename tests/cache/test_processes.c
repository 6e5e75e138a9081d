/* SPDX-License-Identifier: MIT
 *
 * Many processes and threads on one directory, started from a barrier: cold starts of many ranks. */
#include "fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, KEYS = 8, ROUNDS = 20, BUILD = 12080 };

static attns_cache_key keys[KEYS];

static int set_up(void **state) {
    (void)state;
    make_scratch(NULL);
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

typedef struct shared {
    pthread_barrier_t barrier;
    unsigned builds[KEYS]; /* updated atomically: how often each key was made and stored, or hits in [0] */
} shared;

static shared *make_shared(unsigned parties) {
    shared *const all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    pthread_barrierattr_t attributes;
    assert_int_equal(pthread_barrierattr_init(&attributes), 0);
    assert_int_equal(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    assert_int_equal(pthread_barrier_init(&all->barrier, &attributes, parties), 0);
    return all;
}

/* 0: a miss, 1: right, 2: a hit with wrong contents. */
static int look(attns_cache *cache, const attns_cache_key *key, uint32_t build) {
    attns_cache_entry entry;
    if (!attns_cache_lookup(cache, key, build, &entry))
        return 0;
    const bool right = entry_is_of(&entry, key, BUILD);
    attns_cache_entry_free(&entry);
    return right ? 1 : 2;
}

/* Waits for the children and fails the test if one failed. */
static void join(const pid_t *children, int count) {
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("process %d: status 0x%x", i, (unsigned)status);
    }
}

/* One rank: every key is looked up, else made under its lock and stored, as a kernel would be. */
static int rank(shared *all, const char *dir, int index, bool locking) {
    log_record log;
    memset(&log, 0, sizeof log);
    const attns_cache_params params = {.dir = dir, .log = record_log, .log_user = &log};
    pthread_barrier_wait(&all->barrier);
    attns_cache *const cache = attns_cache_open(&params);
    if (cache == NULL)
        return 2;
    for (int i = 0; i < KEYS; i++) {
        const int which = (i + index) % KEYS;
        const attns_cache_key *const key = &keys[which];
        int seen = look(cache, key, 0);
        const int lock = seen == 0 && locking ? attns_cache_lock(cache, key, 30.0) : -1;
        if (seen == 0 && locking && lock < 0)
            return 3;
        if (lock >= 0)
            seen = look(cache, key, 0);
        if (seen == 2)
            return 4;
        if (seen == 0) {
            if (!store_of(cache, key, BUILD))
                return 5;
            __atomic_add_fetch(&all->builds[which], 1, __ATOMIC_RELAXED);
        }
        attns_cache_unlock(lock);
        if (look(cache, key, BUILD) != 1)
            return 6;
    }
    attns_cache_close(cache);
    return log.lines != 0 ? 7 : 0;
}

static void cold_starts(bool locking) {
    for (int round = 0; round < ROUNDS; round++) {
        char dir[512];
        format_path(dir, "%s/round%d", scratch, round);
        shared *const all = make_shared(PROCESSES);
        pid_t children[PROCESSES];
        fflush(stdout);
        for (int i = 0; i < PROCESSES; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0)
                _exit(rank(all, dir, i, locking));
        }
        join(children, PROCESSES);
        for (int i = 0; i < KEYS; i++) {
            assert_true(all->builds[i] >= 1);
            if (locking)
                assert_int_equal(all->builds[i], 1);
        }
        const file_counts counts = count_files(dir);
        assert_int_equal(counts.entries, KEYS);
        assert_int_equal(counts.temps, 0);
        assert_int_equal(counts.others, 0);
        munmap(all, sizeof *all);
    }
}

static void cold_starts_without_locks(void **state) {
    (void)state;
    cold_starts(false);
}

/* The lock saves the duplicate work, all of it. */
static void cold_starts_with_locks(void **state) {
    (void)state;
    cold_starts(true);
}

/* Writers replace entries, readers read them, a vandal damages them, and the bound is too small for all: whatever a
 * lookup returns is right. */
static int busy(shared *all, int index) {
    log_record log;
    memset(&log, 0, sizeof log);
    const attns_cache_params params = {.dir = scratch, .max_bytes = 30000, .log = record_log, .log_user = &log};
    attns_cache *const cache = attns_cache_open(&params);
    if (cache == NULL)
        return 2;
    pthread_barrier_wait(&all->barrier);
    unsigned hits = 0;
    for (int i = 0; i < 300; i++) {
        const attns_cache_key *const key = &keys[(i * 5 + index) % KEYS];
        if (index == 0 && i % 3 == 0) {
            /* Replaced by rename, as no process of ours would: torn in the middle. */
            char path[512], torn[512];
            entry_path(path, scratch, key, BUILD);
            format_path(torn, "%s/torn", scratch);
            FILE *const file = fopen(torn, "wb");
            if (file == NULL)
                return 3;
            fputs("attnsCB\ntorn", file);
            fclose(file);
            rename(torn, path);
            continue;
        }
        if (index % 2 == 0 && !store_of(cache, key, BUILD))
            return 4;
        const int seen = look(cache, key, index % 3 == 0 ? BUILD : 0);
        if (seen == 2)
            return 5;
        hits += seen == 1;
    }
    attns_cache_close(cache);
    /* Only damage may have been told. */
    static const char told[] = "2 cubin cache: dropped ";
    const char *end;
    for (const char *line = log.text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (*line <= '2' && strncmp(line, told, sizeof told - 1) != 0)
            return 6;
    }
    __atomic_add_fetch(&all->builds[0], hits, __ATOMIC_RELAXED);
    return 0;
}

static void everything_at_once(void **state) {
    (void)state;
    shared *const all = make_shared(PROCESSES);
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 30000, &log);
    assert_true(store_of(cache, &keys[0], BUILD));
    pid_t children[PROCESSES];
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(busy(all, i));
    }
    join(children, PROCESSES);
    assert_in_range(all->builds[0], 100, PROCESSES * 300);
    assert_int_equal(count_files(scratch).temps, 0);
    /* One more store settles what was left above the bound. */
    attns_cache_stats stats;
    assert_true(store_of(cache, &keys[1], BUILD));
    assert_true(store_of(cache, &keys[2], BUILD));
    attns_cache_get_stats(cache, &stats);
    assert_in_range(stats.bytes, 1, 30000);
    attns_cache_close(cache);
    munmap(all, sizeof *all);
}

/* One object, many threads. */
typedef struct thread_work {
    attns_cache *cache;
    int index;
    bool failed;
} thread_work;

static void *run_thread(void *argument) {
    thread_work *const work = argument;
    for (int i = 0; i < 100 && !work->failed; i++) {
        const attns_cache_key *const key = &keys[(i + work->index) % KEYS];
        const int lock = attns_cache_lock(work->cache, key, 30.0);
        work->failed = lock < 0 || !store_of(work->cache, key, BUILD) || look(work->cache, key, 0) != 1;
        attns_cache_unlock(lock);
    }
    return NULL;
}

static void threads(void **state) {
    (void)state;
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 1000000, &log);
    const int fds = count_open_fds();
    pthread_t ids[6];
    thread_work work[6];
    for (int i = 0; i < 6; i++) {
        work[i] = (thread_work){.cache = cache, .index = i};
        assert_int_equal(pthread_create(&ids[i], NULL, run_thread, &work[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        assert_false(work[i].failed);
    }
    assert_int_equal(log.lines, 0);
    assert_int_equal(count_open_fds(), fds);
    assert_int_equal(count_files(scratch).entries, KEYS);
    attns_cache_close(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cold_starts_without_locks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cold_starts_with_locks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(everything_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
