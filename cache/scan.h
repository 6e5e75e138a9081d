/* SPDX-License-Identifier: MIT
 *
 * Walking the directories of a tier. */
#ifndef ATTNS_CACHE_SCAN_H_
#define ATTNS_CACHE_SCAN_H_

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dir.h"

/* The largest build up to `limit` of which the shard holds an entry for this key, 0 if none. Returns 0 or an errno. */
int attns_cache_scan_newest(int shard_fd, const uint8_t *digest, uint32_t limit, uint32_t *build);

/* Called with each regular file whose name is that of an entry (`digest` and `build` set) or of a temporary file
 * (`digest` NULL). May remove the file. Returns false to end the walk. */
typedef bool (*attns_cache_scan_fn)(void *user, int shard_fd, uint8_t shard, const char *name, const uint8_t *digest,
                                    uint32_t build, const struct stat *st);

/* Walks all shards. What cannot be opened, or vanishes meanwhile, is passed over. */
void attns_cache_scan(const attns_cache_tier *tier, int version_fd, attns_cache_scan_fn visit, void *user);

#endif
