/* SPDX-License-Identifier: MIT
 *
 * A bundle opened for reading: one read-only mapping, kept as long as the cache. */
#ifndef ATTNS_CACHE_BUNDLE_FILE_H_
#define ATTNS_CACHE_BUNDLE_FILE_H_

#include "bundle.h"
#include "dir.h"

typedef struct attns_cache_bundle {
    int fd;
    attns_cache_bundle_view view;
} attns_cache_bundle;

/* Opens the tier's path, which must be a trusted regular file with a sound index. NULL with *fault set otherwise. */
attns_cache_bundle *attns_cache_bundle_open(const attns_cache_tier *tier, attns_cache_fault *fault);
void attns_cache_bundle_close(attns_cache_bundle *bundle); /* NULL is a no-op */

/* Whether the file is still as long as it is mapped: touching a page behind its end would kill the process. Whoever
 * replaces a bundle by rename, as export does, never shortens one that is in use. */
bool attns_cache_bundle_is_whole(const attns_cache_bundle *bundle, const attns_cache_tier *tier,
                                 attns_cache_fault *fault);

#endif
