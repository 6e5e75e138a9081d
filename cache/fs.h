/* SPDX-License-Identifier: MIT
 *
 * Every system call of the cache that can fail for reasons outside the program, one plain function each: same
 * arguments, result and errno as the call it is named after. The fault tests link their own versions instead. */
#ifndef ATTNS_CACHE_FS_H_
#define ATTNS_CACHE_FS_H_

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

int attns_cache_fs_openat(int dir, const char *name, int flags, mode_t mode);
int attns_cache_fs_mkdirat(int dir, const char *name, mode_t mode);
int attns_cache_fs_fstat(int fd, struct stat *st);
int attns_cache_fs_fstatat(int dir, const char *name, struct stat *st, int flags);
ssize_t attns_cache_fs_read(int fd, void *bytes, size_t size);
ssize_t attns_cache_fs_write(int fd, const void *bytes, size_t size);
int attns_cache_fs_close(int fd);
int attns_cache_fs_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name);
int attns_cache_fs_unlinkat(int dir, const char *name, int flags);
int attns_cache_fs_futimens(int fd, const struct timespec times[2]);
int attns_cache_fs_setlk(int fd, struct flock *range); /* fcntl(F_OFD_SETLK) */
struct dirent *attns_cache_fs_readdir(DIR *dir);

#endif
