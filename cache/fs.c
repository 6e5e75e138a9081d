/* SPDX-License-Identifier: MIT */
#include "fs.h"

#include <stdio.h>
#include <unistd.h>

int attns_cache_fs_openat(int dir, const char *name, int flags, mode_t mode) {
    return openat(dir, name, flags, mode);
}

int attns_cache_fs_mkdirat(int dir, const char *name, mode_t mode) {
    return mkdirat(dir, name, mode);
}

int attns_cache_fs_fstat(int fd, struct stat *st) {
    return fstat(fd, st);
}

int attns_cache_fs_fstatat(int dir, const char *name, struct stat *st, int flags) {
    return fstatat(dir, name, st, flags);
}

ssize_t attns_cache_fs_read(int fd, void *bytes, size_t size) {
    return read(fd, bytes, size);
}

ssize_t attns_cache_fs_write(int fd, const void *bytes, size_t size) {
    return write(fd, bytes, size);
}

int attns_cache_fs_close(int fd) {
    return close(fd);
}

int attns_cache_fs_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name) {
    return renameat(old_dir, old_name, new_dir, new_name);
}

int attns_cache_fs_unlinkat(int dir, const char *name, int flags) {
    return unlinkat(dir, name, flags);
}

int attns_cache_fs_futimens(int fd, const struct timespec times[2]) {
    return futimens(fd, times);
}

int attns_cache_fs_setlk(int fd, struct flock *range) {
    return fcntl(fd, F_OFD_SETLK, range);
}

struct dirent *attns_cache_fs_readdir(DIR *dir) {
    return readdir(dir);
}
