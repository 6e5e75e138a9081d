/* SPDX-License-Identifier: MIT */
#include "hash.h"

void attns_cache_hash_begin(attns_cache_hasher *hasher) {
    /* Picks the fastest implementation, once per process. It fails only where there is no source of randomness, which
     * hashing does not need. */
    const int unneeded = sodium_init();
    (void)unneeded;
    crypto_generichash_init(&hasher->state, NULL, 0, ATTNS_CACHE_HASH_BYTES);
}

void attns_cache_hash_add(attns_cache_hasher *hasher, const void *bytes, size_t size) {
    if (size != 0)
        crypto_generichash_update(&hasher->state, bytes, size);
}

void attns_cache_hash_end(attns_cache_hasher *hasher, uint8_t digest[ATTNS_CACHE_HASH_BYTES]) {
    crypto_generichash_final(&hasher->state, digest, ATTNS_CACHE_HASH_BYTES);
}

void attns_cache_hash(uint8_t digest[ATTNS_CACHE_HASH_BYTES], const void *bytes, size_t size) {
    attns_cache_hasher hasher;
    attns_cache_hash_begin(&hasher);
    attns_cache_hash_add(&hasher, bytes, size);
    attns_cache_hash_end(&hasher, digest);
}
