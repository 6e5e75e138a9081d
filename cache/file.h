/* SPDX-License-Identifier: MIT
 *
 * Files inside one shard directory: reading whole, publishing whole, removing. */
#ifndef ATTNS_CACHE_FILE_H_
#define ATTNS_CACHE_FILE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dir.h"

typedef enum attns_cache_read_result {
    ATTNS_CACHE_READ_OK,
    ATTNS_CACHE_READ_ABSENT,  /* no such file */
    ATTNS_CACHE_READ_DAMAGED, /* not a file that a cache would have written; `damage` says why */
    ATTNS_CACHE_READ_FAILED   /* the system would not let us read it; *fault says why */
} attns_cache_read_result;

typedef struct attns_cache_file {
    int fd;         /* -1 if it could not be opened */
    struct stat st; /* valid if fd >= 0 */
    uint8_t *bytes; /* malloc */
    size_t size;
    char damage[512];
} attns_cache_file;

/* Opens and reads `name`, without following a link and without waiting on a FIFO or device. Whatever the result,
 * release with attns_cache_file_close. `shown` is its path for messages. */
attns_cache_read_result attns_cache_file_read(const attns_cache_tier *tier, int shard_fd, const char *name,
                                              const char *shown, attns_cache_file *file, attns_cache_fault *fault);
void attns_cache_file_close(attns_cache_file *file);

/* Marks the file as used now, if its time is not recent already. Best effort. */
void attns_cache_file_touch(const attns_cache_file *file);

/* Removes the damaged `name`, unless another process has replaced it since it was opened as `file`, which must still
 * be open. Returns whether the damaged file is gone. */
bool attns_cache_file_remove(int shard_fd, const char *name, const attns_cache_file *file);

/* Makes `bytes` appear as `name`, whole or not at all. On failure *fault is set and nothing is left behind. */
bool attns_cache_file_publish(const attns_cache_tier *tier, int shard_fd, const char *name, const char *shown,
                              const uint8_t *bytes, size_t size, attns_cache_fault *fault);

#endif
