/* SPDX-License-Identifier: MIT
 *
 * The reader of entries: any bytes, and the same bytes with lengths and checksum made right, which reach the code
 * behind them. What is accepted is written back as it was. */
#include "bytes.h"
#include "entry.h"
#include "fuzz.h"
#include "hash.h"

enum { AT_TOTAL = 16, CHECKSUM = ATTNS_CACHE_HASH_BYTES };

static void check(const uint8_t *bytes, size_t size) {
    attns_cache_entry_view view;
    if (attns_cache_entry_parse(bytes, size, &view) != NULL) {
        PROMISE(view.payload == NULL && view.meta == NULL && view.build == 0);
        return;
    }
    PROMISE(lies_within(view.key_text, view.key_text_size, bytes, size));
    PROMISE(lies_within(view.meta, view.meta_size, bytes, size));
    PROMISE(lies_within(view.payload, view.payload_size, bytes, size));
    PROMISE(lies_within(view.digest, ATTNS_CACHE_KEY_BYTES, bytes, size));
    PROMISE(view.build != 0 && view.payload_size != 0);
    PROMISE(attns_cache_entry_size(&view) == size);
    uint8_t *const again = malloc(size);
    PROMISE(again != NULL);
    attns_cache_entry_serialise(&view, again);
    PROMISE(memcmp(again, bytes, size) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *const bytes = exact_copy(data, size);
    check(bytes, size);
    if (size >= AT_TOTAL + 8 + CHECKSUM) {
        attns_cache_put_u64(bytes + AT_TOTAL, size);
        attns_cache_hash(bytes + size - CHECKSUM, bytes, size - CHECKSUM);
        check(bytes, size);
    }
    free(bytes);
    return 0;
}
