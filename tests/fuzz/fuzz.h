/* SPDX-License-Identifier: MIT
 *
 * A fuzz target reads bytes that anybody may have written. It aborts if what it promises does not hold; the sanitizers
 * see to memory. */
#ifndef ATTNS_TESTS_FUZZ_FUZZ_H_
#define ATTNS_TESTS_FUZZ_FUZZ_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* libFuzzer calls it */

#define PROMISE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

/* A copy of exactly that size, so that AddressSanitizer sees a read beyond its end. */
static inline uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *const copy = malloc(size != 0 ? size : 1);
    PROMISE(copy != NULL);
    if (size != 0)
        memcpy(copy, data, size);
    return copy;
}

/* Whether [at, at + size) lies in [bytes, bytes + whole). */
static inline int lies_within(const void *at, size_t size, const uint8_t *bytes, size_t whole) {
    const uint8_t *const first = at;
    return first >= bytes && (size_t)(first - bytes) <= whole && size <= whole - (size_t)(first - bytes);
}

#endif
