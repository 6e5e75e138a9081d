/* SPDX-License-Identifier: MIT
 *
 * The interface: tiers in order, and what becomes of a fault. The parts are in the files beside this one. */
#include "cubin_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"
#include "file.h"
#include "format.h"
#include "fs.h"
#include "name.h"
#include "scan.h"
#include "state.h"
#include "tiers.h"

enum { LEVEL_ERROR = 1, LEVEL_WARNING = 2, LEVEL_INFO = 3 };

#define DEFAULT_MAX_BYTES ((uint64_t)1 << 30)

/* How often an operation is tried whose directory vanished, or went stale, under it. */
#define TRIES 2

static bool is_vanished(const attns_cache_fault *fault) {
    return fault->code == ENOENT || fault->code == ESTALE;
}

/* ---- Opening ------------------------------------------------------------------------------------------------------
 */

attns_cache *attns_cache_open(const attns_cache_params *params) {
    attns_cache *const cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return NULL;
    if (pthread_mutex_init(&cache->mutex, NULL) != 0) {
        free(cache);
        return NULL;
    }
    cache->max_bytes = params->max_bytes != 0 ? params->max_bytes : DEFAULT_MAX_BYTES;
    cache->log = params->log;
    cache->log_user = params->log_user;
    cache->shared = params->shared;
    if (!attns_cache_tiers_open(cache, params)) {
        attns_cache_close(cache);
        return NULL;
    }
    return cache;
}

void attns_cache_close(attns_cache *cache) {
    if (cache == NULL)
        return;
    attns_cache_tiers_close(cache);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

/* ---- Lookup -------------------------------------------------------------------------------------------------------
 */

typedef struct place {
    const attns_cache_tier *tier;
    int shard_fd;
    char name[ATTNS_CACHE_ENTRY_NAME_CHARS];
    char shown[PATH_MAX]; /* for messages */
} place;

static void place_set(place *at, const attns_cache_tier *tier, const uint8_t *digest, uint32_t build) {
    char shard[ATTNS_CACHE_SHARD_NAME_CHARS];
    attns_cache_shard_name(shard, digest[0]);
    at->tier = tier;
    attns_cache_entry_name(at->name, digest, build);
    snprintf(at->shown, sizeof at->shown, "%s/%s/%s/%s", tier->path, ATTNS_CACHE_VERSION_DIR, shard, at->name);
}

/* A damaged file of the writable tier is removed, so that the next store is not needed to repair a lookup of another
 * build; it is told each time it happens. One that stays is told once. */
static void discard(attns_cache *cache, const place *at, const attns_cache_key *key, uint32_t build,
                    const attns_cache_file *file, const char *damage) {
    if (at->tier->writable && attns_cache_file_remove(at->shard_fd, at->name, file)) {
        attns_cache_report(cache, LEVEL_WARNING, "cubin cache: dropped '%s': %s", at->shown, damage);
        return;
    }
    uint64_t what = build;
    for (int i = 0; i < 8; i++)
        what = what * UINT64_C(0x100000001b3) + key->digest[i];
    if (attns_cache_is_news(cache, at->tier, what))
        attns_cache_report(cache, LEVEL_WARNING, "cubin cache: passing over '%s': %s", at->shown, damage);
}

static bool copy_out(const attns_cache_entry_view *view, const attns_cache_tier *tier, attns_cache_entry *entry) {
    entry->build = view->build;
    entry->meta = strndup(view->meta, view->meta_size);
    entry->payload = malloc(view->payload_size);
    entry->payload_size = view->payload_size;
    entry->from_readonly = !tier->writable;
    if (entry->meta == NULL || entry->payload == NULL) {
        attns_cache_entry_free(entry);
        return false;
    }
    memcpy(entry->payload, view->payload, view->payload_size);
    return true;
}

/* One file. false is a miss; *fault is set if the system was the cause. */
static bool lookup_build(attns_cache *cache, const attns_cache_tier *tier, int shard_fd, const attns_cache_key *key,
                         uint32_t build, attns_cache_entry *entry, attns_cache_fault *fault) {
    place at = {.shard_fd = shard_fd};
    place_set(&at, tier, key->digest, build);
    attns_cache_file file;
    bool hit = false;
    switch (attns_cache_file_read(tier, shard_fd, at.name, at.shown, &file, fault)) {
    case ATTNS_CACHE_READ_OK: {
        attns_cache_entry_view view;
        const char *damage = attns_cache_entry_parse(file.bytes, file.size, &view);
        if (damage == NULL)
            damage = attns_cache_entry_mismatch(&view, key, build);
        if (damage != NULL) {
            discard(cache, &at, key, build, &file, damage);
            break;
        }
        hit = copy_out(&view, tier, entry);
        if (!hit)
            attns_cache_fault_set(fault, ENOMEM, "cannot read '%s'", at.shown);
        else if (tier->writable)
            attns_cache_file_touch(&file);
        break;
    }
    case ATTNS_CACHE_READ_DAMAGED:
        discard(cache, &at, key, build, &file, file.damage);
        break;
    case ATTNS_CACHE_READ_ABSENT:
    case ATTNS_CACHE_READ_FAILED:
        break;
    }
    attns_cache_file_close(&file);
    return hit;
}

/* The newest build that is there and sound. */
static bool lookup_newest(attns_cache *cache, const attns_cache_tier *tier, int shard_fd, const attns_cache_key *key,
                          attns_cache_entry *entry, attns_cache_fault *fault) {
    uint32_t limit = UINT32_MAX;
    while (limit != 0) {
        uint32_t build;
        const int error = attns_cache_scan_newest(shard_fd, key->digest, limit, &build);
        if (error != 0)
            attns_cache_fault_set(fault, error, "cannot list '%s/%s/%02x'", tier->path, ATTNS_CACHE_VERSION_DIR,
                                  key->digest[0]);
        if (build == 0)
            return false;
        if (lookup_build(cache, tier, shard_fd, key, build, entry, fault))
            return true;
        limit = build - 1;
    }
    return false;
}

/* The same in a bundle: that build, or with 0 the newest sound one. */
static bool lookup_bundle(attns_cache *cache, const attns_cache_tier *tier, const attns_cache_bundle *bundle,
                          const attns_cache_key *key, uint32_t build, attns_cache_entry *entry,
                          attns_cache_fault *fault) {
    uint32_t limit = build != 0 ? build : UINT32_MAX;
    attns_cache_bundle_item item;
    if (!attns_cache_bundle_is_whole(bundle, tier, fault))
        return false;
    while (attns_cache_bundle_find(&bundle->view, key->digest, limit, &item) && (build == 0 || item.build == build)) {
        attns_cache_entry_view view;
        const char *damage = attns_cache_entry_parse(item.bytes, item.size, &view);
        if (damage == NULL)
            damage = attns_cache_entry_mismatch(&view, key, item.build);
        if (damage == NULL) {
            if (copy_out(&view, tier, entry))
                return true;
            attns_cache_fault_set(fault, ENOMEM, "cannot read from '%s'", tier->path);
            return false;
        }
        place at = {.shard_fd = -1};
        place_set(&at, tier, key->digest, item.build);
        discard(cache, &at, key, item.build, NULL, damage);
        limit = item.build - 1;
        if (limit == 0)
            break;
    }
    return false;
}

static bool lookup_tier(attns_cache *cache, attns_cache_tier *tier, const attns_cache_key *key, uint32_t build,
                        attns_cache_entry *entry, attns_cache_fault *fault) {
    const attns_cache_bundle *const bundle = attns_cache_tier_bundle(tier, fault);
    if (bundle != NULL)
        return lookup_bundle(cache, tier, bundle, key, build, entry, fault);
    if (fault->code != 0)
        return false;
    const int version_fd = attns_cache_version_open(tier, false, fault);
    if (version_fd < 0)
        return false;
    const int shard_fd = attns_cache_shard_open(tier, version_fd, key->digest[0], false, fault);
    attns_cache_fs_close(version_fd);
    if (shard_fd < 0)
        return false;
    const bool hit = build != 0 ? lookup_build(cache, tier, shard_fd, key, build, entry, fault)
                                : lookup_newest(cache, tier, shard_fd, key, entry, fault);
    attns_cache_fs_close(shard_fd);
    return hit;
}

bool attns_cache_lookup(attns_cache *cache, const attns_cache_key *key, uint32_t build, attns_cache_entry *entry) {
    memset(entry, 0, sizeof *entry);
    const size_t num_tiers = cache != NULL ? cache->num_tiers : 0;
    for (size_t i = 0; i < num_tiers; i++) {
        attns_cache_fault fault = {0};
        for (int attempt = 0; attempt < TRIES; attempt++) {
            fault.code = 0;
            if (lookup_tier(cache, &cache->tiers[i], key, build, entry, &fault))
                return true;
            if (fault.code != ESTALE)
                break;
        }
        /* What is not there is a plain miss. */
        if (fault.code != 0 && fault.code != ENOENT)
            attns_cache_report_fault(cache, &cache->tiers[i], &fault);
    }
    return false;
}

void attns_cache_entry_free(attns_cache_entry *entry) {
    free(entry->meta);
    free(entry->payload);
    memset(entry, 0, sizeof *entry);
}

/* ---- Store --------------------------------------------------------------------------------------------------------
 */

static bool publish(const attns_cache_tier *tier, const uint8_t *digest, uint32_t build, const uint8_t *bytes,
                    size_t size, attns_cache_fault *fault) {
    const int version_fd = attns_cache_version_open(tier, true, fault);
    if (version_fd < 0)
        return false;
    place at = {.shard_fd = attns_cache_shard_open(tier, version_fd, digest[0], true, fault)};
    attns_cache_fs_close(version_fd);
    if (at.shard_fd < 0)
        return false;
    place_set(&at, tier, digest, build);
    const bool done = attns_cache_file_publish(tier, at.shard_fd, at.name, at.shown, bytes, size, fault);
    attns_cache_fs_close(at.shard_fd);
    return done;
}

bool attns_cache_store_bytes(attns_cache *cache, const uint8_t *digest, uint32_t build, const uint8_t *bytes,
                             size_t size) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL)
        return false;
    if (size > cache->max_bytes) {
        attns_cache_report(cache, LEVEL_INFO, "cubin cache: not stored: %zu bytes exceed the cache's bound of %" PRIu64,
                           size, cache->max_bytes);
        return false;
    }
    attns_cache_fault fault = {0};
    bool done = false;
    for (int attempt = 0; attempt < TRIES && !done && (attempt == 0 || is_vanished(&fault)); attempt++)
        done = publish(tier, digest, build, bytes, size, &fault);
    if (done)
        attns_cache_keep_bound(cache, tier, digest, build, size);
    else
        attns_cache_report_fault(cache, tier, &fault);
    return done;
}

bool attns_cache_store(attns_cache *cache, const attns_cache_key *key, uint32_t build, const char *meta,
                       const void *payload, size_t payload_size) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL)
        return false;
    const attns_cache_entry_view view = {.build = build,
                                         .digest = key->digest,
                                         .key_text = key->text,
                                         .key_text_size = key->text_size,
                                         .meta = meta != NULL ? meta : "",
                                         .meta_size = meta != NULL ? strlen(meta) : 0,
                                         .payload = payload,
                                         .payload_size = payload_size};
    const size_t size = attns_cache_entry_size(&view);
    if (size == 0) {
        attns_cache_report(cache, LEVEL_ERROR,
                           "cubin cache: not stored: build %" PRIu32
                           " with %zu bytes (accepted: builds from 1, 1 byte to %zu MiB)",
                           build, payload_size, ATTNS_CACHE_ENTRY_MAX_BYTES >> 20);
        return false;
    }
    uint8_t *const bytes = malloc(size);
    if (bytes == NULL) {
        attns_cache_fault fault;
        attns_cache_fault_set(&fault, ENOMEM, "cannot write to '%s'", tier->path);
        attns_cache_report_fault(cache, tier, &fault);
        return false;
    }
    attns_cache_entry_serialise(&view, bytes);
    const bool done = attns_cache_store_bytes(cache, key->digest, build, bytes, size);
    free(bytes);
    return done;
}

/* ---- Figures ------------------------------------------------------------------------------------------------------
 */

const char *attns_cache_writable_dir(const attns_cache *cache) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    return tier != NULL ? tier->path : NULL;
}

void attns_cache_get_stats(attns_cache *cache, attns_cache_stats *stats) {
    *stats = (attns_cache_stats){.readonly_dirs = cache != NULL ? cache->readonly_dirs : ""};
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL)
        return;
    stats->dir = tier->path;
    stats->max_bytes = cache->max_bytes;
    attns_cache_measure(tier, &stats->bytes, &stats->entries);
}
