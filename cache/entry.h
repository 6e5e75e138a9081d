/* SPDX-License-Identifier: MIT
 *
 * The bytes of an entry. Pure functions on buffers: no files, no state; every function may be called from any thread.
 */
#ifndef ATTNS_CACHE_ENTRY_H_
#define ATTNS_CACHE_ENTRY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubin_cache.h"

/* Borrows everything it points to. After a parse the pointers lie inside the parsed buffer. */
typedef struct attns_cache_entry_view {
    uint32_t build;        /* from 1 */
    const uint8_t *digest; /* ATTNS_CACHE_KEY_BYTES */
    const char *key_text;  /* not terminated */
    size_t key_text_size;
    const char *meta; /* not terminated; holds no NUL */
    size_t meta_size;
    const uint8_t *payload;
    size_t payload_size; /* from 1 */
} attns_cache_entry_view;

/* Size in bytes of the entry that would be written, 0 if it is not one that a reader would accept (build 0, empty
 * payload, above ATTNS_CACHE_ENTRY_MAX_BYTES). */
size_t attns_cache_entry_size(const attns_cache_entry_view *view);

/* Writes exactly attns_cache_entry_size(view) bytes, which must not be 0. */
void attns_cache_entry_serialise(const attns_cache_entry_view *view, uint8_t *bytes);

/* NULL if the bytes are one sound entry, otherwise what is wrong with them (a constant text), and *view is zeroed.
 * Never reads beyond bytes[size - 1], whatever they hold, and allocates nothing. */
const char *attns_cache_entry_parse(const uint8_t *bytes, size_t size, attns_cache_entry_view *view);

/* NULL if a sound entry is the one for this key and build, otherwise what differs (a constant text). */
const char *attns_cache_entry_mismatch(const attns_cache_entry_view *view, const attns_cache_key *key, uint32_t build);

#endif
