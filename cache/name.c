/* SPDX-License-Identifier: MIT */
#include "name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char temp_prefix[] = ".tmp-";
static const char entry_suffix[] = ".cubin";

void attns_cache_hex(char *text, const uint8_t *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * size] = '\0';
}

/* Lower case only: one name per key, also where the file system folds case. */
static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

/* Stops at the first character that is no digit, so it never reads past the terminator. */
static bool parse_hex(const char *text, uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const int high = hex_value(text[2 * i]);
        if (high < 0)
            return false;
        const int low = hex_value(text[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

void attns_cache_shard_name(char name[ATTNS_CACHE_SHARD_NAME_CHARS], uint8_t shard) {
    attns_cache_hex(name, &shard, 1);
}

bool attns_cache_shard_parse(const char *name, uint8_t *shard) {
    return parse_hex(name, shard, 1) && name[2] == '\0';
}

void attns_cache_entry_name(char name[ATTNS_CACHE_ENTRY_NAME_CHARS], const uint8_t digest[ATTNS_CACHE_KEY_BYTES],
                            uint32_t build) {
    attns_cache_hex(name, digest, ATTNS_CACHE_KEY_BYTES);
    const size_t used = 2 * ATTNS_CACHE_KEY_BYTES;
    snprintf(name + used, ATTNS_CACHE_ENTRY_NAME_CHARS - used, "-%" PRIu32 "%s", build, entry_suffix);
}

bool attns_cache_entry_name_parse(const char *name, uint8_t digest[ATTNS_CACHE_KEY_BYTES], uint32_t *build) {
    if (!parse_hex(name, digest, ATTNS_CACHE_KEY_BYTES))
        return false;
    const char *at = name + 2 * ATTNS_CACHE_KEY_BYTES;
    if (*at++ != '-' || *at < '1' || *at > '9')
        return false;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *build = (uint32_t)value;
    return strcmp(at, entry_suffix) == 0;
}

void attns_cache_temp_name(char name[ATTNS_CACHE_TEMP_NAME_CHARS], const uint8_t random[16]) {
    memcpy(name, temp_prefix, sizeof temp_prefix - 1);
    attns_cache_hex(name + sizeof temp_prefix - 1, random, 16);
}

bool attns_cache_temp_name_matches(const char *name) {
    uint8_t random[16];
    const size_t prefix = sizeof temp_prefix - 1;
    return strncmp(name, temp_prefix, prefix) == 0 && parse_hex(name + prefix, random, sizeof random) &&
           name[prefix + 2 * sizeof random] == '\0';
}
