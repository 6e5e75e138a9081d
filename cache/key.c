/* SPDX-License-Identifier: MIT
 *
 * Keys: BLAKE2b-256 over
 *
 *     domain, u32 format version, u64 number of fields, { u64 tag size, tag, u64 data size, data } ...
 *
 * Every length comes before what it measures, so no two lists of fields feed the hash the same bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin_cache.h"
#include "format.h"
#include "hash.h"
#include "name.h"

/* Keeps these hashes apart from any other use of BLAKE2b over the same bytes. */
static const char domain[] = "attns cubin key";

/* Longer values, and those that would not print on one line, appear in the text as size and hash. */
#define TEXT_VALUE_MAX 256

static void hash_u64(attns_cache_hasher *hasher, uint64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    attns_cache_hash_add(hasher, bytes, sizeof bytes);
}

static void hash_fields(uint8_t digest[ATTNS_CACHE_KEY_BYTES], const attns_cache_key_field *fields, size_t num_fields) {
    attns_cache_hasher hasher;
    attns_cache_hash_begin(&hasher);
    attns_cache_hash_add(&hasher, domain, sizeof domain);
    const uint8_t version[4] = {ATTNS_CACHE_FORMAT_VERSION, 0, 0, 0};
    attns_cache_hash_add(&hasher, version, sizeof version);
    hash_u64(&hasher, num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        const size_t tag_size = strlen(fields[i].tag);
        hash_u64(&hasher, tag_size);
        attns_cache_hash_add(&hasher, fields[i].tag, tag_size);
        hash_u64(&hasher, fields[i].size);
        attns_cache_hash_add(&hasher, fields[i].data, fields[i].size);
    }
    attns_cache_hash_end(&hasher, digest);
}

static bool is_one_line(const attns_cache_key_field *field) {
    const uint8_t *bytes = field->data;
    if (field->size > TEXT_VALUE_MAX)
        return false;
    for (size_t i = 0; i < field->size; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7e)
            return false;
    }
    return true;
}

static void print_field(FILE *out, const attns_cache_key_field *field) {
    fprintf(out, "%s=", field->tag);
    if (is_one_line(field)) {
        if (field->size != 0)
            fwrite(field->data, 1, field->size, out);
    } else {
        uint8_t hash[ATTNS_CACHE_HASH_BYTES];
        char hex[2 * ATTNS_CACHE_HASH_BYTES + 1];
        attns_cache_hash(hash, field->data, field->size);
        attns_cache_hex(hex, hash, sizeof hash);
        fprintf(out, "<%zu bytes, blake2b %s>", field->size, hex);
    }
    fputc('\n', out);
}

bool attns_cache_key_make(attns_cache_key *key, const attns_cache_key_field *fields, size_t num_fields) {
    memset(key, 0, sizeof *key);
    hash_fields(key->digest, fields, num_fields);

    FILE *out = open_memstream(&key->text, &key->text_size);
    if (out == NULL)
        return false;
    fprintf(out, "format=%d\n", ATTNS_CACHE_FORMAT_VERSION);
    for (size_t i = 0; i < num_fields; i++)
        print_field(out, &fields[i]);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        attns_cache_key_free(key);
        return false;
    }
    return true;
}

void attns_cache_key_free(attns_cache_key *key) {
    free(key->text);
    memset(key, 0, sizeof *key);
}
