/* SPDX-License-Identifier: MIT
 *
 * For LD_PRELOAD: system calls of a real program fail on command, below one directory.
 *
 *   ATTNS_FAULTS        CALL:ERROR:FIRST:COUNT, e.g. write:28:0:1. The calls FIRST to FIRST+COUNT-1 of that name fail
 * with errno ERROR. ERROR 0 means what is no error: a write or read that moves one byte only. CALL with a "+" at its
 * end is carried out all the same, as over NFS when a reply is lost ATTNS_FAULTS_BELOW  the directory
 *   ATTNS_FAULTS_CLOCK  seconds by which the wall clock jumps to and fro, with every other question
 *   ATTNS_FAULTS_LOG    a file that gets a line for each fault */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_uint seen;
static __thread bool inside; /* what this file calls itself is left alone */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_below(const char *path) {
    const char *const below = getenv("ATTNS_FAULTS_BELOW");
    return below != NULL && strncmp(path, below, strlen(below)) == 0;
}

static bool fd_is_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return is_below(path);
}

static bool name_is_below(int dir, const char *name) {
    return name[0] == '/' ? is_below(name) : dir >= 0 && fd_is_below(dir);
}

/* Whether this call is one that fails; sets *error and *performed. */
static bool fails(const char *call, bool below, int *error, bool *performed) {
    char name[32];
    int code;
    unsigned first, count;
    const char *const plan = getenv("ATTNS_FAULTS");
    if (!below || plan == NULL || sscanf(plan, "%31[^:]:%d:%u:%u", name, &code, &first, &count) != 4)
        return false;
    const size_t length = strlen(name);
    *performed = name[length - 1] == '+';
    if (*performed)
        name[length - 1] = '\0';
    if (strcmp(name, call) != 0)
        return false;
    const unsigned index = atomic_fetch_add(&seen, 1);
    if (index < first || index - first >= count)
        return false;
    const char *const log = getenv("ATTNS_FAULTS_LOG");
    FILE *const file = log != NULL ? fopen(log, "ae") : NULL;
    if (file != NULL) {
        fprintf(file, "%s\n", plan);
        fclose(file);
    }
    *error = code;
    return true;
}

#define FAULT(call, below, perform)                                                                                    \
    do {                                                                                                               \
        int error = 0;                                                                                                 \
        bool performed = false;                                                                                        \
        if (!inside) {                                                                                                 \
            inside = true;                                                                                             \
            const bool failing = fails(call, below, &error, &performed);                                               \
            inside = false;                                                                                            \
            if (failing && error != 0) {                                                                               \
                if (performed)                                                                                         \
                    (void)(perform);                                                                                   \
                errno = error;                                                                                         \
                return -1;                                                                                             \
            }                                                                                                          \
            short_transfer = failing;                                                                                  \
        }                                                                                                              \
    } while (0)

/* Both names of a call: with and without 64-bit offsets, which are one and the same here. */
#define OPENAT(name)                                                                                                   \
    int name(int dir, const char *path, int flags, ...) {                                                              \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? (mode_t)va_arg(arguments, unsigned) : 0;            \
        va_end(arguments);                                                                                             \
        bool short_transfer = false;                                                                                   \
        FAULT("openat", name_is_below(dir, path), 0);                                                                  \
        (void)short_transfer;                                                                                          \
        return REAL(name)(dir, path, flags, mode);                                                                     \
    }
OPENAT(openat)
OPENAT(openat64)

int mkdirat(int dir, const char *path, mode_t mode) {
    bool short_transfer = false;
    FAULT("mkdirat", name_is_below(dir, path), REAL(mkdirat)(dir, path, mode));
    (void)short_transfer;
    return REAL(mkdirat)(dir, path, mode);
}

int renameat(int old_dir, const char *old_path, int new_dir, const char *new_path) {
    bool short_transfer = false;
    FAULT("renameat", name_is_below(new_dir, new_path), REAL(renameat)(old_dir, old_path, new_dir, new_path));
    (void)short_transfer;
    return REAL(renameat)(old_dir, old_path, new_dir, new_path);
}

int unlinkat(int dir, const char *path, int flags) {
    bool short_transfer = false;
    FAULT("unlinkat", name_is_below(dir, path), REAL(unlinkat)(dir, path, flags));
    (void)short_transfer;
    return REAL(unlinkat)(dir, path, flags);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    bool short_transfer = false;
    FAULT("write", fd_is_below(fd), 0);
    return REAL(write)(fd, bytes, short_transfer && size > 1 ? 1 : size);
}

ssize_t read(int fd, void *bytes, size_t size) {
    bool short_transfer = false;
    FAULT("read", fd_is_below(fd), 0);
    return REAL(read)(fd, bytes, short_transfer && size > 1 ? 1 : size);
}

int close(int fd) {
    bool short_transfer = false;
    FAULT("close", fd_is_below(fd), REAL(close)(fd));
    (void)short_transfer;
    return REAL(close)(fd);
}

int fsync(int fd) {
    bool short_transfer = false;
    FAULT("fsync", fd_is_below(fd), 0);
    (void)short_transfer;
    return REAL(fsync)(fd);
}

#define FSTAT(name, type)                                                                                              \
    int name(int fd, struct type *st) {                                                                                \
        bool short_transfer = false;                                                                                   \
        FAULT("fstat", fd_is_below(fd), 0);                                                                            \
        (void)short_transfer;                                                                                          \
        return REAL(name)(fd, st);                                                                                     \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

#define FSTATAT(name, type)                                                                                            \
    int name(int dir, const char *path, struct type *st, int flags) {                                                  \
        bool short_transfer = false;                                                                                   \
        FAULT("fstatat", name_is_below(dir, path), 0);                                                                 \
        (void)short_transfer;                                                                                          \
        return REAL(name)(dir, path, st, flags);                                                                       \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

int futimens(int fd, const struct timespec times[2]) {
    bool short_transfer = false;
    FAULT("futimens", fd_is_below(fd), 0);
    (void)short_transfer;
    return REAL(futimens)(fd, times);
}

#define FCNTL(name)                                                                                                    \
    int name(int fd, int command, ...) {                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, command);                                                                                  \
        void *const argument = va_arg(arguments, void *);                                                              \
        va_end(arguments);                                                                                             \
        bool short_transfer = false;                                                                                   \
        FAULT("setlk", command == F_OFD_SETLK && fd_is_below(fd), 0);                                                  \
        (void)short_transfer;                                                                                          \
        return REAL(name)(fd, command, argument);                                                                      \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- The wall clock ---- */

static time_t jump(void) {
    static atomic_uint asked;
    const char *const seconds = getenv("ATTNS_FAULTS_CLOCK");
    if (seconds == NULL)
        return 0;
    const long by = strtol(seconds, NULL, 10);
    return atomic_fetch_add(&asked, 1) % 2 == 0 ? by : -by;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    const int result = REAL(clock_gettime)(id, now);
    if (result == 0 && id == CLOCK_REALTIME)
        now->tv_sec += jump();
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    REAL(clock_gettime)(CLOCK_REALTIME, &now);
    const time_t seconds = now.tv_sec + jump();
    if (out != NULL)
        *out = seconds;
    return seconds;
}
