/* SPDX-License-Identifier: MIT
 *
 * Constants of the on-disk format; README.md has the grammar. */
#ifndef ATTNS_CACHE_FORMAT_H_
#define ATTNS_CACHE_FORMAT_H_

/* Part of the key, of every entry and of the directory's name: any change of the format changes all three. */
#define ATTNS_CACHE_FORMAT_VERSION 1
#define ATTNS_CACHE_VERSION_DIR    "v1"

/* No entry is larger. Bounds what a reader allocates for a file of any length. */
#define ATTNS_CACHE_ENTRY_MAX_BYTES ((size_t)256 << 20)

/* "<2 hex>/" + "<64 hex>-<build>.cubin" and ".tmp-<32 hex>", with the terminator. */
#define ATTNS_CACHE_SHARD_NAME_CHARS 3
#define ATTNS_CACHE_ENTRY_NAME_CHARS (64 + 1 + 10 + 6 + 1)
#define ATTNS_CACHE_TEMP_NAME_CHARS  (5 + 32 + 1)

/* A temporary file that nobody has locked is removed after this time: on a network file system whose locks hold on one
 * machine only, a writer on another one has long finished. Where locks do not work at all, only after the other. */
#define ATTNS_CACHE_TEMP_GRACE_SECONDS 10
#define ATTNS_CACHE_TEMP_STALE_SECONDS 3600

/* A hit renews the time of an entry that is older than this. */
#define ATTNS_CACHE_TOUCH_SECONDS 3600

#endif
