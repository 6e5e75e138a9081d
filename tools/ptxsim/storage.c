/* SPDX-License-Identifier: MIT */
#include "storage.h"

#include <stdint.h>
#include <stdlib.h>

/* One allocation each, so that address sanitizers see every overrun. */
typedef struct storage_block {
    struct storage_block *next;
    max_align_t data[];
} storage_block;

void *storage_alloc(ptx_storage *owner, size_t size) {
    if (size > SIZE_MAX - sizeof(storage_block))
        return NULL;
    storage_block *block = calloc(1, sizeof *block + size);
    if (!block)
        return NULL;
    block->next = owner->blocks;
    owner->blocks = block;
    return block->data;
}

void storage_free(ptx_storage *owner) {
    while (owner->blocks) {
        storage_block *next = owner->blocks->next;
        free(owner->blocks);
        owner->blocks = next;
    }
}
