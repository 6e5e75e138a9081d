/* SPDX-License-Identifier: MIT
 *
 * File names inside the cache. Pure functions; anything that does not parse here is never deleted. */
#ifndef ATTNS_CACHE_NAME_H_
#define ATTNS_CACHE_NAME_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubin_cache.h"
#include "format.h"

void attns_cache_hex(char *text, const uint8_t *bytes, size_t size); /* 2 * size + 1 chars, lower case */

/* "<2 hex>": the directory that holds keys whose first byte is `shard`. */
void attns_cache_shard_name(char name[ATTNS_CACHE_SHARD_NAME_CHARS], uint8_t shard);
bool attns_cache_shard_parse(const char *name, uint8_t *shard);

/* "<64 hex>-<build>.cubin"; the build in decimal, from 1, without leading zeros. */
void attns_cache_entry_name(char name[ATTNS_CACHE_ENTRY_NAME_CHARS], const uint8_t digest[ATTNS_CACHE_KEY_BYTES],
                            uint32_t build);
bool attns_cache_entry_name_parse(const char *name, uint8_t digest[ATTNS_CACHE_KEY_BYTES], uint32_t *build);

/* ".tmp-<32 hex>" of 16 random bytes. */
void attns_cache_temp_name(char name[ATTNS_CACHE_TEMP_NAME_CHARS], const uint8_t random[16]);
bool attns_cache_temp_name_matches(const char *name);

#endif
