/* SPDX-License-Identifier: MIT
 *
 * The cache object and what its parts share. */
#ifndef ATTNS_CACHE_STATE_H_
#define ATTNS_CACHE_STATE_H_

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubin_cache.h"
#include "dir.h"

/* Enough for every distinct cause in practice; a stream of new ones falls silent instead of growing without bound. */
#define ATTNS_CACHE_TOLD_MAX 256

struct attns_cache {
    attns_cache_tier *tiers; /* the writable one, if any, is the first */
    size_t num_tiers;
    char *readonly_dirs; /* ':'-separated */
    uint64_t max_bytes;
    bool shared;
    attns_cache_log_fn log;
    void *log_user;

    pthread_mutex_t mutex; /* guards what follows; never held across a system call or the log callback */
    uint64_t told[ATTNS_CACHE_TOLD_MAX];
    size_t num_told;
    bool walked;           /* known_bytes is a figure */
    uint64_t known_bytes;  /* entries of the writable tier when last walked */
    uint64_t stored_bytes; /* what this object has stored since */
};

/* NULL if there is none. */
const attns_cache_tier *attns_cache_writable_tier(const attns_cache *cache);

__attribute__((format(printf, 3, 4))) void attns_cache_report(const attns_cache *cache, int level, const char *format,
                                                              ...);

void attns_cache_warn(const attns_cache *cache, const attns_cache_tier *tier, const attns_cache_fault *fault);

/* The same, once per tier and cause. */
void attns_cache_report_fault(attns_cache *cache, const attns_cache_tier *tier, const attns_cache_fault *fault);

/* Whether this is the first time that `what` (any number that identifies the news) comes up for a tier. */
bool attns_cache_is_news(attns_cache *cache, const attns_cache_tier *tier, uint64_t what);

/* Publishes the bytes of an entry in the writable tier and keeps its bound. Returns whether it is on disk. */
bool attns_cache_store_bytes(attns_cache *cache, const uint8_t *digest, uint32_t build, const uint8_t *bytes,
                             size_t size);

/* To be called after `bytes` were stored as (digest, build): keeps the writable tier within its bound and sweeps stale
 * temporary files. That entry is never removed by the call. */
void attns_cache_keep_bound(attns_cache *cache, const attns_cache_tier *tier, const uint8_t *digest, uint32_t build,
                            uint64_t bytes);

/* Bytes and number of the entries of a tier, by walking it. */
void attns_cache_measure(const attns_cache_tier *tier, uint64_t *bytes, uint64_t *entries);

/* Locks one byte of the tier's lock file without waiting. Returns a descriptor that holds the lock until it is given to
 * attns_cache_unlock; -1 with code EAGAIN if somebody else holds it, -1 with another code if it cannot be had. */
int attns_cache_lock_try(int version_fd, const attns_cache_tier *tier, int64_t offset, attns_cache_fault *fault);

/* The byte that stands for eviction; those of keys lie below. */
#define ATTNS_CACHE_LOCK_EVICTION ((int64_t)1 << 60)

#endif
