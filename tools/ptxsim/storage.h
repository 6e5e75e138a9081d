/* SPDX-License-Identifier: MIT
 *
 * Memory that lives and dies together: what a parsed module consists of, and what only its parser needs. */
#ifndef PTXSIM_STORAGE_H_
#define PTXSIM_STORAGE_H_

#include <stddef.h>

struct storage_block;

/* All zeros: empty. Not thread-safe. */
typedef struct ptx_storage {
    struct storage_block *blocks;
} ptx_storage;

/* Zeroed memory, valid until storage_free; NULL when out of memory. */
void *storage_alloc(ptx_storage *owner, size_t size);
void storage_free(ptx_storage *owner);

#endif
