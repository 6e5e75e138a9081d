/* SPDX-License-Identifier: MIT
 *
 * Integers in files: little-endian whatever the machine, at any address. */
#ifndef ATTNS_CACHE_BYTES_H_
#define ATTNS_CACHE_BYTES_H_

#include <stdint.h>

static inline void attns_cache_put_u32(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static inline void attns_cache_put_u64(uint8_t *bytes, uint64_t value) {
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static inline uint32_t attns_cache_get_u32(const uint8_t *bytes) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static inline uint64_t attns_cache_get_u64(const uint8_t *bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

#endif
