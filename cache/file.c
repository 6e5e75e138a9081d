/* SPDX-License-Identifier: MIT */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "format.h"
#include "fs.h"
#include "temp.h"

static attns_cache_read_result damaged(attns_cache_file *file, const char *why) {
    snprintf(file->damage, sizeof file->damage, "%s", why);
    return ATTNS_CACHE_READ_DAMAGED;
}

/* Reads st.st_size bytes. Returns 0, an errno, or -1 if the file is shorter than it was. */
static int read_all(attns_cache_file *file) {
    while (file->size < (size_t)file->st.st_size) {
        const ssize_t got =
            attns_cache_fs_read(file->fd, file->bytes + file->size, (size_t)file->st.st_size - file->size);
        if (got > 0)
            file->size += (size_t)got;
        else if (got == 0)
            return -1;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

attns_cache_read_result attns_cache_file_read(const attns_cache_tier *tier, int shard_fd, const char *name,
                                              const char *shown, attns_cache_file *file, attns_cache_fault *fault) {
    memset(file, 0, sizeof *file);
    file->fd = attns_cache_open_retry(shard_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (file->fd < 0) {
        switch (errno) {
        case ENOENT:
            return ATTNS_CACHE_READ_ABSENT;
        case ELOOP:
            return damaged(file, "it is a symbolic link");
        case ENXIO:
            return damaged(file, "it is not a regular file");
        default:
            attns_cache_fault_set(fault, errno, "cannot open '%s'", shown);
            return ATTNS_CACHE_READ_FAILED;
        }
    }
    if (attns_cache_fs_fstat(file->fd, &file->st) != 0) {
        attns_cache_fault_set(fault, errno, "cannot examine '%s'", shown);
        attns_cache_fs_close(file->fd);
        file->fd = -1;
        return ATTNS_CACHE_READ_FAILED;
    }
    if (!S_ISREG(file->st.st_mode))
        return damaged(file, "it is not a regular file");
    attns_cache_fault distrust;
    if (!attns_cache_is_trusted(tier, &file->st, name, &distrust))
        return damaged(file, distrust.text);
    if (file->st.st_size == 0)
        return damaged(file, "it is empty");
    if ((uint64_t)file->st.st_size > ATTNS_CACHE_ENTRY_MAX_BYTES)
        return damaged(file, "it is larger than any entry");
    file->bytes = malloc((size_t)file->st.st_size);
    const int error = file->bytes != NULL ? read_all(file) : ENOMEM;
    if (error < 0)
        return damaged(file, "it ends early");
    if (error > 0) {
        attns_cache_fault_set(fault, error, "cannot read '%s'", shown);
        return ATTNS_CACHE_READ_FAILED;
    }
    return ATTNS_CACHE_READ_OK;
}

void attns_cache_file_close(attns_cache_file *file) {
    if (file->fd >= 0)
        attns_cache_fs_close(file->fd);
    file->fd = -1;
    free(file->bytes);
    file->bytes = NULL;
}

void attns_cache_file_touch(const attns_cache_file *file) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* A time in the future would keep an entry for ever, so it is renewed as well. */
    const int64_t age = (int64_t)now.tv_sec - (int64_t)file->st.st_mtim.tv_sec;
    if (age >= 0 && age < ATTNS_CACHE_TOUCH_SECONDS)
        return;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    (void)attns_cache_fs_futimens(file->fd, times);
}

bool attns_cache_file_remove(int shard_fd, const char *name, const attns_cache_file *file) {
    struct stat st;
    if (attns_cache_fs_fstatat(shard_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT;
    /* The open descriptor keeps the inode number from being given to a successor. What could not be opened was no
     * regular file, so a regular file is a successor. */
    const bool replaced =
        file->fd >= 0 ? st.st_dev != file->st.st_dev || st.st_ino != file->st.st_ino : S_ISREG(st.st_mode);
    if (replaced)
        return true;
    return attns_cache_fs_unlinkat(shard_fd, name, 0) == 0 || errno == ENOENT;
}

/* Returns 0 or an errno. */
static int write_all(int fd, const uint8_t *bytes, size_t size) {
    while (size != 0) {
        const ssize_t put = attns_cache_fs_write(fd, bytes, size);
        if (put > 0) {
            bytes += put;
            size -= (size_t)put;
        } else if (put == 0) {
            return EIO;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Exceeding this limit would not fail the write but kill the process. */
static bool exceeds_file_size_limit(size_t size) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur;
}

/* There is no fsync. A crash of the machine may leave an entry that is empty or torn, which verification turns into a
 * miss; syncing every entry would cost precompile and cold starts up to tens of milliseconds per kernel for nothing
 * else. Network file systems write out on close, and close is checked, on one descriptor, while another one keeps the
 * lock until the file has its name. */
bool attns_cache_file_publish(const attns_cache_tier *tier, int shard_fd, const char *name, const char *shown,
                              const uint8_t *bytes, size_t size, attns_cache_fault *fault) {
    if (exceeds_file_size_limit(size)) {
        attns_cache_fault_set(fault, EFBIG, "cannot write '%s' of %zu bytes within the limit RLIMIT_FSIZE", shown,
                              size);
        return false;
    }
    char temp[ATTNS_CACHE_TEMP_NAME_CHARS];
    const int fd = attns_cache_temp_create(tier, shard_fd, temp, shown, fault);
    if (fd < 0)
        return false;
    const int keeper = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const char *step = "write";
    int error = write_all(fd, bytes, size);
    if (attns_cache_fs_close(fd) != 0 && error == 0) {
        error = errno;
        step = "finish";
    }
    if (error == 0 && attns_cache_fs_renameat(shard_fd, temp, shard_fd, name) != 0) {
        error = errno;
        step = "publish";
    }
    if (error != 0) {
        (void)attns_cache_fs_unlinkat(shard_fd, temp, 0);
        attns_cache_fault_set(fault, error, "cannot %s '%s'", step, shown);
    }
    if (keeper >= 0)
        attns_cache_fs_close(keeper);
    return error == 0;
}
