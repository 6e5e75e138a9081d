/* SPDX-License-Identifier: MIT */
#include "faulty_fs.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "fs.h"

static faulty_plan plan;
static bool planned;
static unsigned counts[FAULTY_NUM_CALLS], faults;
static size_t transfer_limit;

void faulty_fs_set(const faulty_plan *next) {
    planned = next != NULL;
    if (planned)
        plan = *next;
    for (int i = 0; i < FAULTY_NUM_CALLS; i++)
        counts[i] = 0;
    faults = 0;
}

unsigned faulty_fs_count(faulty_call call) {
    return counts[call];
}

unsigned faulty_fs_faults(void) {
    return faults;
}

void faulty_fs_limit_transfers(size_t bytes) {
    transfer_limit = bytes;
}

const char *faulty_fs_name(faulty_call call) {
    static const char *const names[FAULTY_NUM_CALLS] = {"openat",   "mkdirat",  "fstat", "fstatat",
                                                        "read",     "write",    "close", "renameat",
                                                        "unlinkat", "futimens", "setlk", "readdir"};
    return names[call];
}

/* Counts the call; whether it is to fail. */
static bool fails(faulty_call call) {
    const unsigned index = counts[call]++;
    if (!planned || plan.call != call || index < plan.first || (index > plan.first && !plan.stays))
        return false;
    faults++;
    return true;
}

static int fault(void) {
    errno = plan.error;
    return -1;
}

static size_t limited(size_t size) {
    return transfer_limit != 0 && size > transfer_limit ? transfer_limit : size;
}

int attns_cache_fs_openat(int dir, const char *name, int flags, mode_t mode) {
    return fails(FAULTY_OPENAT) ? fault() : openat(dir, name, flags, mode);
}

int attns_cache_fs_mkdirat(int dir, const char *name, mode_t mode) {
    if (!fails(FAULTY_MKDIRAT))
        return mkdirat(dir, name, mode);
    if (plan.performed)
        (void)!mkdirat(dir, name, mode);
    return fault();
}

int attns_cache_fs_fstat(int fd, struct stat *st) {
    return fails(FAULTY_FSTAT) ? fault() : fstat(fd, st);
}

int attns_cache_fs_fstatat(int dir, const char *name, struct stat *st, int flags) {
    return fails(FAULTY_FSTATAT) ? fault() : fstatat(dir, name, st, flags);
}

ssize_t attns_cache_fs_read(int fd, void *bytes, size_t size) {
    if (fails(FAULTY_READ))
        return plan.error != 0 ? fault() : 0;
    return read(fd, bytes, limited(size));
}

ssize_t attns_cache_fs_write(int fd, const void *bytes, size_t size) {
    if (fails(FAULTY_WRITE))
        return plan.error != 0 ? fault() : 0;
    return write(fd, bytes, limited(size));
}

int attns_cache_fs_close(int fd) {
    /* The descriptor is gone in any case, as on Linux. */
    const int result = close(fd);
    return fails(FAULTY_CLOSE) ? fault() : result;
}

int attns_cache_fs_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name) {
    if (!fails(FAULTY_RENAMEAT))
        return renameat(old_dir, old_name, new_dir, new_name);
    if (plan.performed)
        (void)!renameat(old_dir, old_name, new_dir, new_name);
    return fault();
}

int attns_cache_fs_unlinkat(int dir, const char *name, int flags) {
    if (!fails(FAULTY_UNLINKAT))
        return unlinkat(dir, name, flags);
    if (plan.performed)
        (void)!unlinkat(dir, name, flags);
    return fault();
}

int attns_cache_fs_futimens(int fd, const struct timespec times[2]) {
    return fails(FAULTY_FUTIMENS) ? fault() : futimens(fd, times);
}

int attns_cache_fs_setlk(int fd, struct flock *range) {
    return fails(FAULTY_SETLK) ? fault() : fcntl(fd, F_OFD_SETLK, range);
}

struct dirent *attns_cache_fs_readdir(DIR *dir) {
    if (!fails(FAULTY_READDIR))
        return readdir(dir);
    errno = plan.error;
    return NULL;
}
