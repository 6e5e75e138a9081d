/* SPDX-License-Identifier: MIT
 *
 * The reader of bundles: any bytes, the same with a sealed index, and those with every entry sealed too. All that an
 * accepted index leads to lies within the bytes, is in order, and is found by its key. */
#include "bundle.h"
#include "bytes.h"
#include "entry.h"
#include "fuzz.h"
#include "hash.h"

enum { AT_COUNT = 12, AT_TOTAL = 16, AT_CHECKSUM = 24, HEADER = 56, ITEM = 52, ENTRY_TOTAL = 16 };

static void check(const uint8_t *bytes, size_t size) {
    attns_cache_bundle_view view;
    if (attns_cache_bundle_parse(bytes, size, &view) != NULL) {
        PROMISE(view.bytes == NULL && view.count == 0);
        return;
    }
    size_t sum = HEADER + (size_t)view.count * ITEM;
    for (uint32_t i = 0; i < view.count; i++) {
        const attns_cache_bundle_item item = attns_cache_bundle_at(&view, i);
        PROMISE(lies_within(item.bytes, item.size, bytes, size) && item.build != 0);
        attns_cache_bundle_item found;
        PROMISE(attns_cache_bundle_find(&view, item.digest, item.build, &found) && found.bytes == item.bytes);
        PROMISE(attns_cache_bundle_find(&view, item.digest, UINT32_MAX, &found) && found.build >= item.build);
        attns_cache_entry_view entry;
        if (attns_cache_entry_parse(item.bytes, item.size, &entry) == NULL)
            PROMISE(lies_within(entry.payload, entry.payload_size, item.bytes, item.size));
        sum += item.size;
    }
    PROMISE(sum == size);
    static const uint8_t absent[ATTNS_CACHE_KEY_BYTES] = {0};
    attns_cache_bundle_item none;
    if (attns_cache_bundle_find(&view, absent, UINT32_MAX, &none))
        PROMISE(memcmp(none.digest, absent, sizeof absent) == 0);
}

/* Offsets and sizes stay as they are: those are for the fuzzer. */
static void seal_index(uint8_t *bytes, size_t size) {
    const uint32_t count = attns_cache_get_u32(bytes + AT_COUNT);
    if (count > (size - HEADER) / ITEM)
        return;
    attns_cache_put_u64(bytes + AT_TOTAL, size);
    attns_cache_hasher hasher;
    attns_cache_hash_begin(&hasher);
    attns_cache_hash_add(&hasher, bytes, AT_CHECKSUM);
    attns_cache_hash_add(&hasher, bytes + HEADER, (size_t)count * ITEM);
    attns_cache_hash_end(&hasher, bytes + AT_CHECKSUM);
}

static void seal_entries(uint8_t *bytes, size_t size) {
    attns_cache_bundle_view view;
    if (attns_cache_bundle_parse(bytes, size, &view) != NULL)
        return;
    for (uint32_t i = 0; i < view.count; i++) {
        const attns_cache_bundle_item item = attns_cache_bundle_at(&view, i);
        uint8_t *const entry = bytes + (item.bytes - bytes);
        if (item.size < ENTRY_TOTAL + 8 + ATTNS_CACHE_HASH_BYTES)
            continue;
        attns_cache_put_u64(entry + ENTRY_TOTAL, item.size);
        attns_cache_hash(entry + item.size - ATTNS_CACHE_HASH_BYTES, entry, item.size - ATTNS_CACHE_HASH_BYTES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *const bytes = exact_copy(data, size);
    check(bytes, size);
    if (size >= HEADER) {
        seal_index(bytes, size);
        check(bytes, size);
        seal_entries(bytes, size);
        check(bytes, size);
    }
    free(bytes);
    return 0;
}
