/* SPDX-License-Identifier: MIT */
#include "entry.h"

#include <string.h>

#include "bytes.h"
#include "format.h"
#include "hash.h"

/* Offsets in the fixed header; README.md has the grammar. */
enum {
    AT_MAGIC = 0,
    AT_FORMAT = 8,
    AT_BUILD = 12,
    AT_TOTAL = 16,
    AT_KEY_TEXT_SIZE = 24,
    AT_META_SIZE = 28,
    AT_PAYLOAD_SIZE = 32,
    AT_DIGEST = 40,
    HEADER_BYTES = AT_DIGEST + ATTNS_CACHE_KEY_BYTES,
    CHECKSUM_BYTES = ATTNS_CACHE_HASH_BYTES
};

static const uint8_t magic[8] = {'a', 't', 't', 'n', 's', 'C', 'B', '\n'};

size_t attns_cache_entry_size(const attns_cache_entry_view *view) {
    size_t size = HEADER_BYTES + CHECKSUM_BYTES;
    const size_t parts[] = {view->key_text_size, view->meta_size, view->payload_size};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i] > ATTNS_CACHE_ENTRY_MAX_BYTES - size)
            return 0;
        size += parts[i];
    }
    return view->build != 0 && view->payload_size != 0 ? size : 0;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
    if (size != 0)
        memcpy(at, bytes, size);
    return at + size;
}

void attns_cache_entry_serialise(const attns_cache_entry_view *view, uint8_t *bytes) {
    const size_t total = attns_cache_entry_size(view);
    memcpy(bytes + AT_MAGIC, magic, sizeof magic);
    attns_cache_put_u32(bytes + AT_FORMAT, ATTNS_CACHE_FORMAT_VERSION);
    attns_cache_put_u32(bytes + AT_BUILD, view->build);
    attns_cache_put_u64(bytes + AT_TOTAL, total);
    attns_cache_put_u32(bytes + AT_KEY_TEXT_SIZE, (uint32_t)view->key_text_size);
    attns_cache_put_u32(bytes + AT_META_SIZE, (uint32_t)view->meta_size);
    attns_cache_put_u64(bytes + AT_PAYLOAD_SIZE, view->payload_size);
    memcpy(bytes + AT_DIGEST, view->digest, ATTNS_CACHE_KEY_BYTES);
    uint8_t *at = bytes + HEADER_BYTES;
    at = put_bytes(at, view->key_text, view->key_text_size);
    at = put_bytes(at, view->meta, view->meta_size);
    at = put_bytes(at, view->payload, view->payload_size);
    attns_cache_hash(at, bytes, total - CHECKSUM_BYTES);
}

static const char *check(const uint8_t *bytes, size_t size, attns_cache_entry_view *view) {
    if (size == 0)
        return "it is empty";
    if (size < HEADER_BYTES + CHECKSUM_BYTES)
        return "it is shorter than a header";
    if (memcmp(bytes + AT_MAGIC, magic, sizeof magic) != 0)
        return "it does not begin like an entry";
    if (attns_cache_get_u32(bytes + AT_FORMAT) != ATTNS_CACHE_FORMAT_VERSION)
        return "it has another format version";
    if (size > ATTNS_CACHE_ENTRY_MAX_BYTES || attns_cache_get_u64(bytes + AT_TOTAL) != size)
        return "its length differs from the one recorded";

    /* Two 32-bit sizes and one that is bounded first: the sum cannot wrap. */
    const uint64_t key_text_size = attns_cache_get_u32(bytes + AT_KEY_TEXT_SIZE);
    const uint64_t meta_size = attns_cache_get_u32(bytes + AT_META_SIZE);
    const uint64_t payload_size = attns_cache_get_u64(bytes + AT_PAYLOAD_SIZE);
    const uint64_t body_size = size - HEADER_BYTES - CHECKSUM_BYTES;
    if (payload_size > body_size || key_text_size + meta_size + payload_size != body_size)
        return "its parts do not add up to its length";

    uint8_t checksum[CHECKSUM_BYTES];
    attns_cache_hash(checksum, bytes, size - CHECKSUM_BYTES);
    if (memcmp(checksum, bytes + size - CHECKSUM_BYTES, CHECKSUM_BYTES) != 0)
        return "its checksum differs";

    view->build = attns_cache_get_u32(bytes + AT_BUILD);
    view->digest = bytes + AT_DIGEST;
    view->key_text = (const char *)bytes + HEADER_BYTES;
    view->key_text_size = (size_t)key_text_size;
    view->meta = view->key_text + view->key_text_size;
    view->meta_size = (size_t)meta_size;
    view->payload = (const uint8_t *)view->meta + view->meta_size;
    view->payload_size = (size_t)payload_size;
    if (view->build == 0)
        return "it names no build";
    if (view->payload_size == 0)
        return "it has no payload";
    if (memchr(view->meta, '\0', view->meta_size) != NULL)
        return "its metadata holds a zero byte";
    return NULL;
}

const char *attns_cache_entry_parse(const uint8_t *bytes, size_t size, attns_cache_entry_view *view) {
    memset(view, 0, sizeof *view);
    const char *const fault = check(bytes, size, view);
    if (fault != NULL)
        memset(view, 0, sizeof *view);
    return fault;
}

const char *attns_cache_entry_mismatch(const attns_cache_entry_view *view, const attns_cache_key *key, uint32_t build) {
    if (memcmp(view->digest, key->digest, ATTNS_CACHE_KEY_BYTES) != 0)
        return "it belongs to another key";
    if (view->build != build)
        return "it belongs to another build";
    if (view->key_text_size != key->text_size || memcmp(view->key_text, key->text, key->text_size) != 0)
        return "its key text differs";
    return NULL;
}
