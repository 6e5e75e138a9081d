/* SPDX-License-Identifier: MIT
 *
 * The cache's system calls (cache/fs.h) with faults on command. For one thread. */
#ifndef ATTNS_TESTS_CACHE_FAULTY_FS_H_
#define ATTNS_TESTS_CACHE_FAULTY_FS_H_

#include <stdbool.h>
#include <stddef.h>

typedef enum faulty_call {
    FAULTY_OPENAT,
    FAULTY_MKDIRAT,
    FAULTY_FSTAT,
    FAULTY_FSTATAT,
    FAULTY_READ,
    FAULTY_WRITE,
    FAULTY_CLOSE,
    FAULTY_RENAMEAT,
    FAULTY_UNLINKAT,
    FAULTY_FUTIMENS,
    FAULTY_SETLK,
    FAULTY_READDIR,
    FAULTY_NUM_CALLS
} faulty_call;

typedef struct faulty_plan {
    faulty_call call;
    int error;      /* errno of the fault; 0 with FAULTY_READ or FAULTY_WRITE: returns 0 */
    unsigned first; /* so many calls of that kind succeed before */
    bool stays;     /* every later one fails too */
    bool performed; /* mkdirat, renameat, unlinkat: done nevertheless, as over NFS when a reply is lost */
} faulty_plan;

void faulty_fs_set(const faulty_plan *plan); /* resets the counts; NULL: no faults */
unsigned faulty_fs_count(faulty_call call);  /* calls since the last set */
unsigned faulty_fs_faults(void);             /* of them failed on command */

/* Reads and writes move at most so many bytes at a time; 0: no limit. */
void faulty_fs_limit_transfers(size_t bytes);

const char *faulty_fs_name(faulty_call call);

#endif
