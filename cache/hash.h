/* SPDX-License-Identifier: MIT
 *
 * BLAKE2b-256, for keys and checksums. */
#ifndef ATTNS_CACHE_HASH_H_
#define ATTNS_CACHE_HASH_H_

#include <stddef.h>
#include <stdint.h>

#include <sodium.h>

#define ATTNS_CACHE_HASH_BYTES 32

typedef struct attns_cache_hasher {
    crypto_generichash_state state;
} attns_cache_hasher;

void attns_cache_hash_begin(attns_cache_hasher *hasher);
void attns_cache_hash_add(attns_cache_hasher *hasher, const void *bytes, size_t size);
void attns_cache_hash_end(attns_cache_hasher *hasher, uint8_t digest[ATTNS_CACHE_HASH_BYTES]);

/* All three for one buffer. */
void attns_cache_hash(uint8_t digest[ATTNS_CACHE_HASH_BYTES], const void *bytes, size_t size);

#endif
