/* SPDX-License-Identifier: MIT */
#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "format.h"
#include "hash.h"

/* Offsets; README.md has the grammar. */
enum {
    AT_MAGIC = 0,
    AT_FORMAT = 8,
    AT_COUNT = 12,
    AT_TOTAL = 16,
    AT_CHECKSUM = 24, /* of the header before it and of the index */
    HEADER_BYTES = AT_CHECKSUM + ATTNS_CACHE_HASH_BYTES,

    ITEM_DIGEST = 0,
    ITEM_BUILD = ATTNS_CACHE_KEY_BYTES,
    ITEM_SIZE = ITEM_BUILD + 4,
    ITEM_OFFSET = ITEM_SIZE + 8,
    ITEM_BYTES = ITEM_OFFSET + 8
};

static const uint8_t magic[8] = {'a', 't', 't', 'n', 's', 'C', 'X', '\n'};

static void hash_head(uint8_t checksum[ATTNS_CACHE_HASH_BYTES], const uint8_t *bytes, uint32_t count) {
    attns_cache_hasher hasher;
    attns_cache_hash_begin(&hasher);
    attns_cache_hash_add(&hasher, bytes, AT_CHECKSUM);
    attns_cache_hash_add(&hasher, bytes + HEADER_BYTES, (size_t)count * ITEM_BYTES);
    attns_cache_hash_end(&hasher, checksum);
}

/* As memcmp, of (digest, build). */
static int compare(const uint8_t *digest_a, uint32_t build_a, const uint8_t *digest_b, uint32_t build_b) {
    const int order = memcmp(digest_a, digest_b, ATTNS_CACHE_KEY_BYTES);
    return order != 0 ? order : (build_a > build_b) - (build_a < build_b);
}

/* ---- Reading ---- */

attns_cache_bundle_item attns_cache_bundle_at(const attns_cache_bundle_view *view, uint32_t index) {
    const uint8_t *const at = view->bytes + HEADER_BYTES + (size_t)index * ITEM_BYTES;
    return (attns_cache_bundle_item){.digest = at + ITEM_DIGEST,
                                     .build = attns_cache_get_u32(at + ITEM_BUILD),
                                     .bytes = view->bytes + attns_cache_get_u64(at + ITEM_OFFSET),
                                     .size = (size_t)attns_cache_get_u64(at + ITEM_SIZE)};
}

/* The entries lie end to end behind the index, in its order: there is one bundle for a set of entries, and no byte that
 * belongs to none of them. */
static const char *check_index(const uint8_t *bytes, uint64_t size, uint32_t count) {
    uint64_t offset = HEADER_BYTES + (uint64_t)count * ITEM_BYTES;
    const uint8_t *at = bytes + HEADER_BYTES;
    for (uint32_t i = 0; i < count; i++, at += ITEM_BYTES) {
        const uint32_t build = attns_cache_get_u32(at + ITEM_BUILD);
        const uint64_t entry_size = attns_cache_get_u64(at + ITEM_SIZE);
        if (build == 0)
            return "its index names no build";
        if (i != 0 && compare(at - ITEM_BYTES + ITEM_DIGEST, attns_cache_get_u32(at - ITEM_BYTES + ITEM_BUILD),
                              at + ITEM_DIGEST, build) >= 0)
            return "its index is not in order";
        if (attns_cache_get_u64(at + ITEM_OFFSET) != offset || entry_size > size - offset)
            return "its index leads outside of it";
        offset += entry_size;
    }
    return offset == size ? NULL : "its parts do not add up to its length";
}

static const char *check(const uint8_t *bytes, size_t size) {
    if (size == 0)
        return "it is empty";
    if (size < HEADER_BYTES)
        return "it is shorter than a header";
    if (memcmp(bytes + AT_MAGIC, magic, sizeof magic) != 0)
        return "it does not begin like a bundle";
    if (attns_cache_get_u32(bytes + AT_FORMAT) != ATTNS_CACHE_FORMAT_VERSION)
        return "it has another format version";
    if (attns_cache_get_u64(bytes + AT_TOTAL) != size)
        return "its length differs from the one recorded";
    const uint32_t count = attns_cache_get_u32(bytes + AT_COUNT);
    if (count > (size - HEADER_BYTES) / ITEM_BYTES)
        return "its index is longer than it";
    uint8_t checksum[ATTNS_CACHE_HASH_BYTES];
    hash_head(checksum, bytes, count);
    if (memcmp(checksum, bytes + AT_CHECKSUM, sizeof checksum) != 0)
        return "the checksum of its index differs";
    return check_index(bytes, size, count);
}

const char *attns_cache_bundle_parse(const uint8_t *bytes, size_t size, attns_cache_bundle_view *view) {
    memset(view, 0, sizeof *view);
    const char *const fault = check(bytes, size);
    if (fault == NULL)
        *view = (attns_cache_bundle_view){.bytes = bytes, .size = size, .count = attns_cache_get_u32(bytes + AT_COUNT)};
    return fault;
}

bool attns_cache_bundle_find(const attns_cache_bundle_view *view, const uint8_t *digest, uint32_t limit,
                             attns_cache_bundle_item *item) {
    /* The number of items up to (digest, limit). */
    uint32_t low = 0, high = view->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const attns_cache_bundle_item at = attns_cache_bundle_at(view, middle);
        if (compare(at.digest, at.build, digest, limit) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    *item = attns_cache_bundle_at(view, low - 1);
    return memcmp(item->digest, digest, ATTNS_CACHE_KEY_BYTES) == 0;
}

/* ---- Writing ---- */

static int compare_items(const void *a, const void *b) {
    const attns_cache_bundle_item *const x = a, *const y = b;
    return compare(x->digest, x->build, y->digest, y->build);
}

uint8_t *attns_cache_bundle_head(attns_cache_bundle_item *items, uint32_t count, size_t *size) {
    *size = HEADER_BYTES + (size_t)count * ITEM_BYTES;
    uint8_t *const bytes = malloc(*size);
    if (bytes == NULL)
        return NULL;
    if (count != 0)
        qsort(items, count, sizeof *items, compare_items);
    uint64_t offset = *size;
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0 && compare_items(&items[i - 1], &items[i]) == 0) {
            free(bytes);
            return NULL;
        }
        uint8_t *const at = bytes + HEADER_BYTES + (size_t)i * ITEM_BYTES;
        memcpy(at + ITEM_DIGEST, items[i].digest, ATTNS_CACHE_KEY_BYTES);
        attns_cache_put_u32(at + ITEM_BUILD, items[i].build);
        attns_cache_put_u64(at + ITEM_SIZE, items[i].size);
        attns_cache_put_u64(at + ITEM_OFFSET, offset);
        offset += items[i].size;
    }
    memcpy(bytes + AT_MAGIC, magic, sizeof magic);
    attns_cache_put_u32(bytes + AT_FORMAT, ATTNS_CACHE_FORMAT_VERSION);
    attns_cache_put_u32(bytes + AT_COUNT, count);
    attns_cache_put_u64(bytes + AT_TOTAL, offset);
    hash_head(bytes + AT_CHECKSUM, bytes, count);
    return bytes;
}
