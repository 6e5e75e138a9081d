/* SPDX-License-Identifier: MIT
 *
 * What an operator does with a cache: look through it, remove, export and import. For `attn-scores cache`; the library
 * itself needs none of it. */
#ifndef ATTNS_CACHE_MANAGE_H_
#define ATTNS_CACHE_MANAGE_H_

#include "bundle.h"
#include "dir.h"
#include "entry.h"

/* An entry of any tier. Everything is borrowed for the duration of the visit. */
typedef struct attns_cache_found {
    const char *tier; /* path of the directory or bundle */
    bool writable;    /* it lies in the writable tier */
    bool bundled;
    const uint8_t *digest; /* as its name or the bundle's index says */
    uint32_t build;
    uint64_t size;      /* bytes */
    int64_t used;       /* time of the last use in seconds since 1970; 0 in a bundle */
    const char *damage; /* NULL: it is sound, and what follows is set */
    attns_cache_entry_view entry;
    const uint8_t *bytes;
} attns_cache_found;

typedef void (*attns_cache_visit_fn)(void *user, const attns_cache_found *found);

/* Reads and verifies every entry of every tier, in the order in which lookups ask the tiers. Changes nothing. */
void attns_cache_visit(attns_cache *cache, attns_cache_visit_fn visit, void *user);

/* Visits the entries of one bundle that is no tier. Whoever names the file vouches for its owner; one that everybody
 * may write to is refused. false with *fault set if it cannot be opened. */
bool attns_cache_bundle_visit(const char *path, attns_cache_visit_fn visit, void *user, attns_cache_fault *fault);

/* Removes an entry from the writable tier. Returns whether it is gone. */
bool attns_cache_remove(attns_cache *cache, const uint8_t *digest, uint32_t build);

/* Removes the temporary files of dead writers from the writable tier; returns how many. */
size_t attns_cache_sweep(attns_cache *cache);

/* Writes a bundle of these items, which are sorted: whole or not at all, by rename. false with *fault set otherwise. */
bool attns_cache_bundle_write(const char *path, attns_cache_bundle_item *items, uint32_t count,
                              attns_cache_fault *fault);

typedef enum attns_cache_imported {
    ATTNS_CACHE_STORED,
    ATTNS_CACHE_PRESENT,
    ATTNS_CACHE_NOT_STORED
} attns_cache_imported;

/* Stores a sound entry in the writable tier unless it holds it already. */
attns_cache_imported attns_cache_import(attns_cache *cache, const attns_cache_found *found);

#endif
