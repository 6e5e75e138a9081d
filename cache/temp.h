/* SPDX-License-Identifier: MIT
 *
 * Temporary files of a shard directory: entries while they are written. A writer keeps its file locked until the file
 * has its final name, so that what a killed writer left is told from what a live one is still writing. */
#ifndef ATTNS_CACHE_TEMP_H_
#define ATTNS_CACHE_TEMP_H_

#include "dir.h"
#include "format.h"

/* Creates one with an unpredictable name and locks it. Returns a descriptor to write to, or -1 with *fault set. `shown`
 * is the entry's path, for messages. */
int attns_cache_temp_create(const attns_cache_tier *tier, int shard_fd, char name[ATTNS_CACHE_TEMP_NAME_CHARS],
                            const char *shown, attns_cache_fault *fault);

/* Removes `name`, described by `st`, if its writer is gone. Returns whether it did. */
bool attns_cache_temp_sweep(int shard_fd, const char *name, const struct stat *st);

#endif
