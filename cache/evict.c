/* SPDX-License-Identifier: MIT
 *
 * The size bound of the writable tier: least recently used entries go first, by modification time, which a hit renews.
 * Everything here tolerates that other processes store, touch and delete at the same time. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>

#include "format.h"
#include "fs.h"
#include "name.h"
#include "scan.h"
#include "state.h"
#include "temp.h"

enum { LEVEL_DEBUG = 4 };

typedef struct candidate {
    struct timespec used;
    uint64_t size;
    uint32_t build;
    uint8_t shard;
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
} candidate;

typedef struct inventory {
    candidate *items;
    size_t count, capacity;
    uint64_t bytes;
    bool incomplete; /* memory ran out: too little is known to choose */
} inventory;

static bool take_stock(void *user, int shard_fd, uint8_t shard, const char *name, const uint8_t *digest, uint32_t build,
                       const struct stat *st) {
    inventory *const stock = user;
    if (digest == NULL) {
        (void)attns_cache_temp_sweep(shard_fd, name, st);
        return true;
    }
    if (stock->count == stock->capacity) {
        const size_t capacity = stock->capacity != 0 ? 2 * stock->capacity : 256;
        candidate *const items = realloc(stock->items, capacity * sizeof *items);
        if (items == NULL) {
            stock->incomplete = true;
            return false;
        }
        stock->items = items;
        stock->capacity = capacity;
    }
    candidate *const item = &stock->items[stock->count++];
    *item = (candidate){.used = st->st_mtim, .size = (uint64_t)st->st_size, .build = build, .shard = shard};
    memcpy(item->digest, digest, sizeof item->digest);
    stock->bytes += item->size;
    return true;
}

static int compare_times(const struct timespec *a, const struct timespec *b) {
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? -1 : 1;
    return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

static int compare_candidates(const void *a, const void *b) {
    return compare_times(&((const candidate *)a)->used, &((const candidate *)b)->used);
}

/* Returns whether the entry no longer counts: removed by us or by somebody else. */
static bool remove_candidate(const attns_cache_tier *tier, int version_fd, const candidate *item) {
    attns_cache_fault fault;
    const int shard_fd = attns_cache_shard_open(tier, version_fd, item->shard, false, &fault);
    if (shard_fd < 0)
        return fault.code == ENOENT;
    char name[ATTNS_CACHE_ENTRY_NAME_CHARS];
    attns_cache_entry_name(name, item->digest, item->build);
    struct stat st;
    bool gone = false;
    if (attns_cache_fs_fstatat(shard_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        gone = errno == ENOENT;
    else if (compare_times(&st.st_mtim, &item->used) == 0) /* otherwise used or replaced since */
        gone = attns_cache_fs_unlinkat(shard_fd, name, 0) == 0 || errno == ENOENT;
    attns_cache_fs_close(shard_fd);
    return gone;
}

/* An eighth is freed beyond the need, so that a full cache is not walked again for each entry. */
static void evict(attns_cache *cache, const attns_cache_tier *tier, int version_fd, inventory *stock,
                  const uint8_t *digest, uint32_t build) {
    const uint64_t target = cache->max_bytes - cache->max_bytes / 8;
    const uint64_t before = stock->bytes;
    size_t removed = 0;
    qsort(stock->items, stock->count, sizeof *stock->items, compare_candidates);
    for (size_t i = 0; i < stock->count && stock->bytes > target; i++) {
        const candidate *const item = &stock->items[i];
        if (item->build == build && memcmp(item->digest, digest, sizeof item->digest) == 0)
            continue;
        if (remove_candidate(tier, version_fd, item)) {
            stock->bytes -= item->size;
            removed++;
        }
    }
    attns_cache_report(cache, LEVEL_DEBUG,
                       "cubin cache: '%s' held %" PRIu64 " bytes, above its bound of %" PRIu64
                       "; removed %zu entries, %" PRIu64 " bytes are left",
                       tier->path, before, cache->max_bytes, removed, stock->bytes);
}

/* A walk costs a system call per entry, so it is made when the bound may have been passed: by what is known from the
 * last walk and was stored here since, and now and then for what others have stored. */
static bool walk_is_due(attns_cache *cache, uint64_t bytes) {
    pthread_mutex_lock(&cache->mutex);
    cache->stored_bytes += bytes;
    const bool due = !cache->walked || cache->stored_bytes > cache->max_bytes / 64 ||
                     cache->known_bytes + cache->stored_bytes > cache->max_bytes;
    pthread_mutex_unlock(&cache->mutex);
    return due;
}

void attns_cache_keep_bound(attns_cache *cache, const attns_cache_tier *tier, const uint8_t *digest, uint32_t build,
                            uint64_t bytes) {
    if (!walk_is_due(cache, bytes))
        return;
    attns_cache_fault fault;
    const int version_fd = attns_cache_version_open(tier, false, &fault);
    if (version_fd < 0)
        return;
    /* One process at a time is enough. Where locks do not work all of them go to work, which is only wasteful. */
    const int lock = attns_cache_lock_try(version_fd, tier, ATTNS_CACHE_LOCK_EVICTION, &fault);
    if (lock >= 0 || fault.code != EAGAIN) {
        inventory stock = {0};
        attns_cache_scan(tier, version_fd, take_stock, &stock);
        if (!stock.incomplete) {
            if (stock.bytes > cache->max_bytes)
                evict(cache, tier, version_fd, &stock, digest, build);
            pthread_mutex_lock(&cache->mutex);
            cache->walked = true;
            cache->known_bytes = stock.bytes;
            cache->stored_bytes = 0;
            pthread_mutex_unlock(&cache->mutex);
        }
        free(stock.items);
        attns_cache_unlock(lock);
    }
    attns_cache_fs_close(version_fd);
}

typedef struct total {
    uint64_t bytes, entries;
} total;

static bool add_up(void *user, int shard_fd, uint8_t shard, const char *name, const uint8_t *digest, uint32_t build,
                   const struct stat *st) {
    (void)shard_fd;
    (void)shard;
    (void)name;
    (void)build;
    total *const sum = user;
    if (digest != NULL) {
        sum->bytes += (uint64_t)st->st_size;
        sum->entries++;
    }
    return true;
}

void attns_cache_measure(const attns_cache_tier *tier, uint64_t *bytes, uint64_t *entries) {
    total sum = {0};
    attns_cache_fault fault;
    const int version_fd = attns_cache_version_open(tier, false, &fault);
    if (version_fd >= 0) {
        attns_cache_scan(tier, version_fd, add_up, &sum);
        attns_cache_fs_close(version_fd);
    }
    *bytes = sum.bytes;
    *entries = sum.entries;
}
