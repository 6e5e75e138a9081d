/* SPDX-License-Identifier: MIT */
#include "dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"
#include "fs.h"
#include "name.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

void attns_cache_fault_set(attns_cache_fault *fault, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    fault->code = code;
    if (code > 0 && printed >= 0 && (size_t)printed < sizeof fault->text) {
        char buffer[128];
        snprintf(fault->text + printed, sizeof fault->text - (size_t)printed, ": %s",
                 strerror_r(code, buffer, sizeof buffer));
    }
}

int attns_cache_open_retry(int dir, const char *name, int flags, unsigned mode) {
    int fd;
    do {
        fd = attns_cache_fs_openat(dir, name, flags, (mode_t)mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* In a shared tier new files take the group of their directory, not that of the process. */
unsigned attns_cache_dir_mode(const attns_cache_tier *tier) {
    return tier->shared ? 02770 : 0700;
}

unsigned attns_cache_file_mode(const attns_cache_tier *tier) {
    return tier->shared ? 0660 : 0600;
}

bool attns_cache_is_trusted(const attns_cache_tier *tier, const struct stat *st, const char *shown,
                            attns_cache_fault *fault) {
    const uid_t self = geteuid();
    if (st->st_uid != self && (tier->writable || st->st_uid != 0) && !tier->shared) {
        attns_cache_fault_set(
            fault, ATTNS_CACHE_REFUSED_OWNER,
            "'%s' belongs to user %lu, not to user %lu%s (cache_shared or ATTNS_CACHE_SHARED=1 accepts "
            "it)",
            shown, (unsigned long)st->st_uid, (unsigned long)self, tier->writable ? "" : " or root");
        return false;
    }
    const mode_t refused = tier->shared ? S_IWOTH : S_IWGRP | S_IWOTH;
    if ((st->st_mode & refused) != 0) {
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_MODE,
                              "'%s' has mode %04o: others may write to it (chmod %s-w makes it usable)", shown,
                              (unsigned)st->st_mode & 07777u, tier->shared ? "o" : "go");
        return false;
    }
    return true;
}

/* Opens one directory and checks what was opened. */
static int open_checked(const attns_cache_tier *tier, int dir, const char *name, int flags, const char *shown,
                        attns_cache_fault *fault) {
    const int fd = attns_cache_open_retry(dir, name, OPEN_DIR | flags, 0);
    if (fd < 0) {
        const int error = errno;
        struct stat st;
        if ((error == ENOTDIR || error == ELOOP) && (flags & O_NOFOLLOW) != 0 &&
            attns_cache_fs_fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_LINK,
                                  "'%s' is a symbolic link (name the directory that it leads to instead)", shown);
        else
            attns_cache_fault_set(fault, error, "cannot open the directory '%s'", shown);
        return -1;
    }
    struct stat st;
    if (attns_cache_fs_fstat(fd, &st) != 0)
        attns_cache_fault_set(fault, errno, "cannot examine the directory '%s'", shown);
    else if (attns_cache_is_trusted(tier, &st, shown, fault))
        return fd;
    attns_cache_fs_close(fd);
    return -1;
}

/* Opens a directory that was just made, or that somebody else made meanwhile. The umask may have taken away what the
 * group of a shared tier needs. */
static int open_created(const attns_cache_tier *tier, int dir, const char *name, int flags, const char *shown,
                        attns_cache_fault *fault) {
    const int fd = open_checked(tier, dir, name, flags, shown, fault);
    if (fd >= 0 && tier->shared)
        (void)fchmod(fd, attns_cache_dir_mode(tier));
    return fd;
}

/* Makes `path` and its missing parents; leaves those alone that exist. Returns 0 or an errno. `path` is restored. */
static int make_path(char *path) {
    if (attns_cache_fs_mkdirat(AT_FDCWD, path, 0700) == 0 || errno == EEXIST)
        return 0;
    if (errno != ENOENT)
        return errno;
    char *const slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return ENOENT;
    *slash = '\0';
    const int error = make_path(path);
    *slash = '/';
    if (error != 0)
        return error;
    return attns_cache_fs_mkdirat(AT_FDCWD, path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

/* Parents may be symbolic links: /home often is one. The last component of the writable tier may not, since new files
 * would go wherever it leads; for a tier that is only read what counts is the directory reached. */
static int open_top(const attns_cache_tier *tier, bool create, attns_cache_fault *fault) {
    const int flags = tier->writable ? O_NOFOLLOW : 0;
    const int fd = open_checked(tier, AT_FDCWD, tier->path, flags, tier->path, fault);
    if (fd >= 0 || !create || fault->code != ENOENT)
        return fd;
    char *const path = strdup(tier->path);
    const int error = path != NULL ? make_path(path) : ENOMEM;
    free(path);
    if (error != 0) {
        attns_cache_fault_set(fault, error, "cannot create the directory '%s'", tier->path);
        return -1;
    }
    return open_created(tier, AT_FDCWD, tier->path, flags, tier->path, fault);
}

static int open_sub(const attns_cache_tier *tier, int dir, const char *name, const char *shown, bool create,
                    attns_cache_fault *fault) {
    const int fd = open_checked(tier, dir, name, O_NOFOLLOW, shown, fault);
    if (fd >= 0 || !create || fault->code != ENOENT)
        return fd;
    if (attns_cache_fs_mkdirat(dir, name, 0700) != 0 && errno != EEXIST) {
        attns_cache_fault_set(fault, errno, "cannot create the directory '%s'", shown);
        return -1;
    }
    return open_created(tier, dir, name, O_NOFOLLOW, shown, fault);
}

bool attns_cache_tier_check(const attns_cache_tier *tier, attns_cache_fault *fault) {
    const int fd = open_top(tier, false, fault);
    if (fd < 0)
        return false;
    attns_cache_fs_close(fd);
    return true;
}

int attns_cache_version_open(const attns_cache_tier *tier, bool create, attns_cache_fault *fault) {
    const int top = open_top(tier, create, fault);
    if (top < 0)
        return -1;
    char shown[400];
    snprintf(shown, sizeof shown, "%s/%s", tier->path, ATTNS_CACHE_VERSION_DIR);
    const int fd = open_sub(tier, top, ATTNS_CACHE_VERSION_DIR, shown, create, fault);
    attns_cache_fs_close(top);
    return fd;
}

int attns_cache_shard_open(const attns_cache_tier *tier, int version_fd, uint8_t shard, bool create,
                           attns_cache_fault *fault) {
    char name[ATTNS_CACHE_SHARD_NAME_CHARS];
    attns_cache_shard_name(name, shard);
    char shown[400];
    snprintf(shown, sizeof shown, "%s/%s/%s", tier->path, ATTNS_CACHE_VERSION_DIR, name);
    return open_sub(tier, version_fd, name, shown, create, fault);
}
