/* SPDX-License-Identifier: MIT */
#include "temp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "fs.h"
#include "name.h"

/* How often a sweeper may come between the making of a file and its lock. */
#define TRIES 4

/* The whole file. Returns 0 or an errno. */
static int lock_file(int fd, short type) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    while (attns_cache_fs_setlk(fd, &range) != 0) {
        if (errno != EINTR)
            return errno == EACCES ? EAGAIN : errno;
    }
    return 0;
}

/* Whether the new file is ours for good: locked, and not removed before it was. Without working locks it is ours too;
 * then its age protects it. */
static bool is_secured(int fd) {
    const int error = lock_file(fd, F_WRLCK);
    struct stat st;
    return error != 0 ? error != EAGAIN : attns_cache_fs_fstat(fd, &st) != 0 || st.st_nlink != 0;
}

int attns_cache_temp_create(const attns_cache_tier *tier, int shard_fd, char name[ATTNS_CACHE_TEMP_NAME_CHARS],
                            const char *shown, attns_cache_fault *fault) {
    for (int attempt = 1;; attempt++) {
        uint8_t random[16];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
            attns_cache_fault_set(fault, errno, "cannot draw a name for a temporary file of '%s'", shown);
            return -1;
        }
        attns_cache_temp_name(name, random);
        const int fd = attns_cache_open_retry(shard_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                              attns_cache_file_mode(tier));
        if (fd < 0) {
            attns_cache_fault_set(fault, errno, "cannot create a temporary file for '%s'", shown);
            return -1;
        }
        if (tier->shared)
            (void)fchmod(fd, attns_cache_file_mode(tier)); /* whatever the umask took away */
        if (is_secured(fd) || attempt == TRIES)
            return fd;
        (void)attns_cache_fs_unlinkat(shard_fd, name, 0);
        attns_cache_fs_close(fd);
    }
}

/* A clock that was set back makes files of the future; they are as old as they are ahead. */
static int64_t age_of(const struct stat *st) {
    return llabs((long long)time(NULL) - (long long)st->st_mtim.tv_sec);
}

bool attns_cache_temp_sweep(int shard_fd, const char *name, const struct stat *st) {
    const int64_t age = age_of(st);
    if (age < ATTNS_CACHE_TEMP_GRACE_SECONDS)
        return false;
    const int fd = attns_cache_open_retry(shard_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    const int error = fd >= 0 ? lock_file(fd, F_RDLCK) : errno;
    const bool abandoned = error == 0 || (error != EAGAIN && age > ATTNS_CACHE_TEMP_STALE_SECONDS);
    const bool removed = abandoned && attns_cache_fs_unlinkat(shard_fd, name, 0) == 0;
    if (fd >= 0)
        attns_cache_fs_close(fd);
    return removed;
}
