/* SPDX-License-Identifier: MIT
 *
 * A content-addressed cache of compiled kernels on disk. Knows nothing of CUDA: a key, a build number, some metadata
 * text and a payload. README.md beside this file has the format and the rules.
 *
 * Nothing here fails a caller's work: an unusable directory, a full disk or a damaged entry is a miss and one log
 * line. Every function may be called from any thread. A NULL cache is one that is off: lookups miss, stores and locks
 * return at once. */
#ifndef ATTNS_CUBIN_CACHE_H_
#define ATTNS_CUBIN_CACHE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct attns_cache attns_cache;

/* One line without newline; `level` 1 error, 2 warning, 3 info, 4 debug (as attns_log_level). */
typedef void (*attns_cache_log_fn)(void *user, int level, const char *message);

typedef struct attns_cache_params {
    const char *dir;         /* writable tier; NULL or "": none. Created (0700) when first written or locked */
    const char *const *dirs; /* further places for it, best first: the first of all that can be written is taken. One */
    size_t num_dirs;         /* passed over that can be read becomes a tier that is only read */
    const char *readonly_dirs; /* ':'-separated tiers that are only read, in order: directories of the same form, or
                                  bundles; NULL or "": none */
    uint64_t max_bytes;        /* bound of the writable tier; 0: 1 GiB */
    bool shared;               /* tiers may belong to other users and be writable by their group */
    attns_cache_log_fn log;    /* may be NULL */
    void *log_user;
} attns_cache_params;

/* NULL only if memory is exhausted. An unusable place is logged and dropped. */
attns_cache *attns_cache_open(const attns_cache_params *params);
void attns_cache_close(attns_cache *cache); /* NULL is a no-op */

#define ATTNS_CACHE_KEY_BYTES 32

/* A key: a cryptographic hash over typed, length-delimited fields, and their readable text. */
typedef struct attns_cache_key {
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
    char *text; /* malloc: one "tag=value" line per field; long values are given as length and hash */
    size_t text_size;
} attns_cache_key;

typedef struct attns_cache_key_field {
    const char *tag; /* e.g. "source", "arch", "option" */
    const void *data;
    size_t size;
} attns_cache_key_field;

/* Hashes the fields in the order given, plus the format version. false if memory is exhausted. */
bool attns_cache_key_make(attns_cache_key *key, const attns_cache_key_field *fields, size_t num_fields);
void attns_cache_key_free(attns_cache_key *key);

typedef struct attns_cache_entry {
    uint32_t build; /* compiler version that made the payload */
    char *meta;     /* malloc, NUL-terminated text for the caller's use, e.g. "registers=80 spill=0" */
    void *payload;  /* malloc */
    size_t payload_size;
    bool from_readonly;
} attns_cache_entry;

/* `build` 0: the entry of the newest build present in the first tier that has one; otherwise that build only. A
 * damaged entry of the writable tier is removed. On a hit free *entry with attns_cache_entry_free; on a miss it is
 * zeroed. */
bool attns_cache_lookup(attns_cache *cache, const attns_cache_key *key, uint32_t build, attns_cache_entry *entry);
void attns_cache_entry_free(attns_cache_entry *entry);

/* Publishes an entry in the writable tier, atomically; keeps the size bound. `build` is from 1 and the payload not
 * empty; `meta` may be NULL for "". Returns whether it is on disk. */
bool attns_cache_store(attns_cache *cache, const attns_cache_key *key, uint32_t build, const char *meta,
                       const void *payload, size_t payload_size);

/* Advisory lock that saves duplicate compiles among processes; gives no safety and may be unavailable. Waits at most
 * timeout_seconds; 0 tries once. Threads exclude each other too, so a thread that locks a key twice waits for itself.
 * Returns a handle for unlock, or -1 (carry on without). The lock file is never unlinked. */
int attns_cache_lock(attns_cache *cache, const attns_cache_key *key, double timeout_seconds);
void attns_cache_unlock(int handle);

/* The directory of the writable tier, NULL if there is none; belongs to the cache. */
const char *attns_cache_writable_dir(const attns_cache *cache);

typedef struct attns_cache_stats {
    const char *dir;           /* NULL if there is no writable tier; belongs to the cache */
    const char *readonly_dirs; /* ':'-separated, the places passed over first; "" if none; belongs to the cache */
    uint64_t bytes, entries, max_bytes;
} attns_cache_stats;

/* Figures of the writable tier, by walking it. */
void attns_cache_get_stats(attns_cache *cache, attns_cache_stats *stats);

#endif
