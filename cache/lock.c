/* SPDX-License-Identifier: MIT
 *
 * Advisory locks: open-file-description locks on single bytes of one file, <tier>/<version>/lock. A byte per key gives
 * every key its own lock with one file that never needs to go away; such a lock belongs to the open file, so threads
 * exclude each other too, and the kernel releases it when its holder dies, however it dies. */
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "format.h"
#include "fs.h"
#include "state.h"

static const char lock_name[] = "lock";

enum { LEVEL_INFO = 3 };

/* While polling: quick for short compiles, gentle on a network file system for long ones. */
#define POLL_FIRST_SECONDS 0.001
#define POLL_LAST_SECONDS  0.05

static int set_lock(int fd, short type, int64_t offset) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
    int result;
    do {
        result = attns_cache_fs_setlk(fd, &range);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* Opens the lock file, creating it if need be. */
static int open_lock_file(int version_fd, const attns_cache_tier *tier, attns_cache_fault *fault) {
    const int fd =
        attns_cache_open_retry(version_fd, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                               attns_cache_file_mode(tier));
    struct stat st;
    if (fd < 0 || attns_cache_fs_fstat(fd, &st) != 0)
        attns_cache_fault_set(fault, errno, "cannot open the lock file in '%s/%s'", tier->path,
                              ATTNS_CACHE_VERSION_DIR);
    else if (!S_ISREG(st.st_mode))
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_KIND, "the lock file in '%s/%s' is not a regular file",
                              tier->path, ATTNS_CACHE_VERSION_DIR);
    else if (attns_cache_is_trusted(tier, &st, lock_name, fault)) {
        if (tier->shared && st.st_uid == geteuid())
            (void)fchmod(fd, attns_cache_file_mode(tier)); /* whatever the umask took away */
        return fd;
    }
    if (fd >= 0)
        attns_cache_fs_close(fd);
    return -1;
}

/* Returns whether the lock was taken; otherwise *fault tells EAGAIN (held elsewhere) from other causes. */
static bool take(int fd, const attns_cache_tier *tier, int64_t offset, attns_cache_fault *fault) {
    if (set_lock(fd, F_WRLCK, offset) == 0)
        return true;
    attns_cache_fault_set(fault, errno == EACCES ? EAGAIN : errno, "cannot lock in '%s/%s'", tier->path,
                          ATTNS_CACHE_VERSION_DIR);
    return false;
}

int attns_cache_lock_try(int version_fd, const attns_cache_tier *tier, int64_t offset, attns_cache_fault *fault) {
    const int fd = open_lock_file(version_fd, tier, fault);
    if (fd < 0 || take(fd, tier, offset, fault))
        return fd;
    attns_cache_fs_close(fd);
    return -1;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The first seven bytes of the digest: 56 bits, far apart enough that two keys practically never share a byte, and
 * below the offsets that any file system refuses. */
static int64_t key_offset(const attns_cache_key *key) {
    int64_t offset = 0;
    for (int i = 0; i < 7; i++)
        offset = offset * 256 + key->digest[i];
    return offset;
}

int attns_cache_lock(attns_cache *cache, const attns_cache_key *key, double timeout_seconds) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL)
        return -1;
    const double deadline = seconds_now() + timeout_seconds;
    attns_cache_fault fault;
    const int version_fd = attns_cache_version_open(tier, true, &fault);
    if (version_fd < 0) {
        attns_cache_report_fault(cache, tier, &fault);
        return -1;
    }
    const int fd = open_lock_file(version_fd, tier, &fault);
    attns_cache_fs_close(version_fd);
    if (fd < 0) {
        attns_cache_report_fault(cache, tier, &fault);
        return -1;
    }
    double pause = POLL_FIRST_SECONDS;
    while (!take(fd, tier, key_offset(key), &fault)) {
        /* Written so that a timeout that is no number does not wait. */
        const double left = deadline - seconds_now();
        if (fault.code != EAGAIN || !(left > 0)) {
            attns_cache_fs_close(fd);
            /* A file system without locks is nothing to warn of: some work may be done twice. */
            if (fault.code != EAGAIN && attns_cache_is_news(cache, tier, (uint64_t)fault.code | UINT64_C(1) << 32))
                attns_cache_report(cache, LEVEL_INFO, "cubin cache: %s; going on without locks", fault.text);
            return -1;
        }
        const double nap = pause < left ? pause : left;
        const struct timespec span = {.tv_nsec = (long)(nap * 1e9)};
        nanosleep(&span, NULL);
        pause = pause * 1.5 < POLL_LAST_SECONDS ? pause * 1.5 : POLL_LAST_SECONDS;
    }
    return fd;
}

void attns_cache_unlock(int handle) {
    if (handle < 0)
        return;
    /* Unlocked by name and not by closing alone: a child forked meanwhile shares the open file and would keep it. The
     * range covers every byte, for the handle alone does not tell which one it is. */
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    (void)attns_cache_fs_setlk(handle, &range);
    attns_cache_fs_close(handle);
}
