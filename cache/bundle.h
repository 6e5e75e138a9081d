/* SPDX-License-Identifier: MIT
 *
 * The bytes of a bundle: many entries in one file, behind an index. Pure functions on buffers, like those of entry.h.
 */
#ifndef ATTNS_CACHE_BUNDLE_H_
#define ATTNS_CACHE_BUNDLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubin_cache.h"

/* Borrows the bytes. */
typedef struct attns_cache_bundle_view {
    const uint8_t *bytes;
    size_t size;
    uint32_t count;
} attns_cache_bundle_view;

/* One entry of it. The bytes are not checked: attns_cache_entry_parse does that. */
typedef struct attns_cache_bundle_item {
    const uint8_t *digest; /* ATTNS_CACHE_KEY_BYTES */
    uint32_t build;
    const uint8_t *bytes;
    size_t size;
} attns_cache_bundle_item;

/* NULL if the bytes begin with a sound header and index that describe exactly `size` bytes, otherwise what is wrong (a
 * constant text), and *view is zeroed. Reads no entry. Never reads beyond bytes[size - 1], whatever they hold, and
 * allocates nothing. */
const char *attns_cache_bundle_parse(const uint8_t *bytes, size_t size, attns_cache_bundle_view *view);

/* `index` is below view->count. In ascending order of (digest, build). */
attns_cache_bundle_item attns_cache_bundle_at(const attns_cache_bundle_view *view, uint32_t index);

/* The item of the newest build up to `limit` for this digest. */
bool attns_cache_bundle_find(const attns_cache_bundle_view *view, const uint8_t *digest, uint32_t limit,
                             attns_cache_bundle_item *item);

/* The header and index of a bundle of these items, which are sorted here; `digest`, `build` and `size` are used. The
 * entries follow them in the order that `items` is left in. Malloc; NULL if memory is exhausted or two items have the
 * same digest and build. The same items give the same bytes. */
uint8_t *attns_cache_bundle_head(attns_cache_bundle_item *items, uint32_t count, size_t *size);

#endif
