/* SPDX-License-Identifier: MIT
 *
 * Processes killed at random moments while they share a directory. Each looks its keys up and makes what is missing, as
 * ranks of a serving fleet do; a parent kills one after the other with SIGKILL and starts it anew. Whenever they are
 * killed: what was stored once is found ever after and is right, nobody waits for the dead, and nothing is left behind.
 *
 *   ATTNS_TORTURE_KILLS   how many (default 120)
 *   ATTNS_TEST_SEED       repeats the random choices of the parent */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "format.h"
#include "manage.h"

enum { PROCESSES = 8, KEYS = 8, BUILD = 13000 };

/* Nobody waits for a lock as long as this, though its holder is killed again and again: a compile takes a few
 * milliseconds here. */
#define LONGEST_WAIT_SECONDS 10.0

static attns_cache_key keys[KEYS];

typedef struct shared {
    /* A key's generation: odd while it is being taken away, so that what is missing then is no loss. */
    atomic_uint generation[KEYS];
    atomic_uint published[KEYS]; /* the generation in which somebody saw it stored */
    atomic_ullong lookups, hits, compiles, locked, stores;
    atomic_uint longest_wait_us;
    atomic_int fault; /* the first thing that went wrong, by line; 0: nothing */
} shared;

static shared *all;

static void blame(int line) {
    int none = 0;
    atomic_compare_exchange_strong(&all->fault, &none, line);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            blame(__LINE__);                                                                                           \
    } while (0)

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A compiler: takes a while, and may be killed in the middle. */
static void compile(uint64_t microseconds) {
    const double end = seconds_now() + 1e-6 * (double)microseconds;
    while (seconds_now() < end)
        ;
}

/* Looks the key up; a hit with wrong contents is a fault, and so is a miss of what had been stored and not taken away.
 */
static bool look(attns_cache *cache, int which) {
    const unsigned generation = atomic_load(&all->generation[which]);
    const bool must_hit = generation % 2 == 0 && atomic_load(&all->published[which]) == generation + 1;
    attns_cache_entry entry;
    const bool hit = attns_cache_lookup(cache, &keys[which], 0, &entry);
    atomic_fetch_add(&all->lookups, 1);
    if (hit) {
        EXPECT(entry_is_of(&entry, &keys[which], BUILD));
        attns_cache_entry_free(&entry);
        atomic_fetch_add(&all->hits, 1);
    }
    if (!hit && must_hit && atomic_load(&all->generation[which]) == generation)
        blame(__LINE__);
    return hit;
}

static void make(attns_cache *cache, int which) {
    const double start = seconds_now();
    const int lock = attns_cache_lock(cache, &keys[which], 2 * LONGEST_WAIT_SECONDS);
    const double waited = seconds_now() - start;
    EXPECT(lock >= 0);
    EXPECT(waited < LONGEST_WAIT_SECONDS);
    unsigned longest = atomic_load(&all->longest_wait_us);
    while (waited * 1e6 > longest &&
           !atomic_compare_exchange_weak(&all->longest_wait_us, &longest, (unsigned)(waited * 1e6)))
        ;
    atomic_fetch_add(&all->locked, 1);
    if (!look(cache, which)) {
        const unsigned generation = atomic_load(&all->generation[which]);
        compile(500 + random_below(4000));
        atomic_fetch_add(&all->compiles, 1);
        EXPECT(store_of(cache, &keys[which], BUILD));
        atomic_fetch_add(&all->stores, 1);
        /* Whoever takes it away waits for this lock, so the generation is still the same. */
        if (generation % 2 == 0)
            atomic_store(&all->published[which], generation + 1);
        EXPECT(look(cache, which));
    }
    attns_cache_unlock(lock);
}

/* Takes a key away, as eviction would, so that there is always something to make. */
static void take_away(attns_cache *cache, int which) {
    const int lock = attns_cache_lock(cache, &keys[which], 0);
    if (lock < 0)
        return;
    if (atomic_load(&all->generation[which]) % 2 == 0)
        atomic_fetch_add(&all->generation[which], 1);
    EXPECT(attns_cache_remove(cache, keys[which].digest, BUILD));
    atomic_fetch_add(&all->generation[which], 1);
    attns_cache_unlock(lock);
}

static void quiet(void *user, int level, const char *message) {
    (void)user;
    if (level > 2)
        return;
    fprintf(stderr, "%s\n", message);
    blame(__LINE__);
}

static void serve(void) {
    const attns_cache_params params = {.dir = scratch, .log = quiet};
    for (;;) {
        attns_cache *const cache = attns_cache_open(&params);
        if (cache == NULL)
            _exit(2);
        for (int i = 0; i < 20; i++) {
            const int which = (int)random_below(KEYS);
            if (random_below(8) == 0)
                take_away(cache, which);
            else if (!look(cache, which))
                make(cache, which);
        }
        attns_cache_close(cache);
    }
}

static pid_t start_one(uint64_t seed) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL)
            _exit(3);
        setenv("ATTNS_TEST_SEED", text, 1);
        seed_random();
        serve();
    }
    return child;
}

/* Ten seconds later, as far as files can tell. */
static void age_temporary_files(void) {
    char command[512];
    snprintf(command, sizeof command, "find '%s' -name '.tmp-*' -exec touch -d '-%d seconds' {} +", scratch,
             ATTNS_CACHE_TEMP_GRACE_SECONDS + 1);
    assert_int_equal(system(command), 0);
}

static void killed_at_random_moments(void **state) {
    (void)state;
    const char *const text = getenv("ATTNS_TORTURE_KILLS");
    const long kills = text != NULL ? strtol(text, NULL, 10) : 120;
    seed_random();
    make_scratch(NULL);
    assert_int_equal(chmod(scratch, 0700), 0);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    for (int i = 0; i < KEYS; i++) {
        char name[32];
        snprintf(name, sizeof name, "key %d", i);
        keys[i] = key_of(name);
    }
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start_one(next_random());
    for (long i = 0; i < kills && atomic_load(&all->fault) == 0; i++) {
        const struct timespec pause = {.tv_nsec = (long)random_below(12000000)};
        nanosleep(&pause, NULL);
        const int victim = (int)random_below(PROCESSES);
        int status;
        assert_int_equal(kill(children[victim], SIGKILL), 0);
        assert_int_equal(waitpid(children[victim], &status, 0), children[victim]);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            fail_msg("a process ended by itself: status 0x%x", (unsigned)status);
        children[victim] = start_one(next_random());
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(kill(children[i], SIGKILL), 0);
        assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    }
    const unsigned left_behind = count_files(scratch).temps;
    print_message(
        "%ld kills: %llu lookups, %llu hits, %llu locks, %llu compiles, longest wait %.3f s, %u temporary files\n",
        kills, atomic_load(&all->lookups), atomic_load(&all->hits), atomic_load(&all->locked),
        atomic_load(&all->compiles), 1e-6 * (double)atomic_load(&all->longest_wait_us), left_behind);
    if (atomic_load(&all->fault) != 0)
        fail_msg("line %d", atomic_load(&all->fault));

    /* The survivor: whatever the dead held is free, every key is found or made, and one store sweeps what they left. */
    age_temporary_files();
    log_record log;
    attns_cache *const cache = open_cache(scratch, NULL, 0, &log);
    for (int i = 0; i < KEYS; i++) {
        const int lock = attns_cache_lock(cache, &keys[i], 0);
        assert_true(lock >= 0);
        attns_cache_unlock(lock);
        if (!look(cache, i))
            assert_true(store_of(cache, &keys[i], BUILD));
    }
    assert_int_equal(atomic_load(&all->fault), 0);
    attns_cache_key last = key_of("last");
    assert_true(store_of(cache, &last, BUILD));
    attns_cache_sweep(cache);
    const file_counts counts = count_files(scratch);
    assert_int_equal(counts.entries, KEYS + 1);
    assert_int_equal(counts.temps, 0);
    assert_int_equal(counts.others, 0);
    assert_int_equal(log.lines, 0);
    attns_cache_key_free(&last);
    attns_cache_close(cache);
    for (int i = 0; i < KEYS; i++)
        attns_cache_key_free(&keys[i]);
    munmap(all, sizeof *all);
    remove_scratch(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_random_moments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
