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

enum { LEVEL_ERROR = 1, LEVEL_WARNING = 2, LEVEL_INFO = 3 };

#define DEFAULT_MAX_BYTES ((uint64_t)1 << 30)

/* How often an operation is tried whose directory vanished, or went stale, under it. */
#define TRIES 2

static bool is_vanished(const attns_cache_fault *fault) {
    return fault->code == ENOENT || fault->code == ESTALE;
}

/* ---- Opening ------------------------------------------------------------------------------------------------------
 */

/* A copy of `size` chars of path, made absolute so that a later chdir does not move the cache, and without trailing
 * slashes, which would make the kernel follow a link that is to be refused. NULL if memory is exhausted. */
static char *copy_path(const char *path, size_t size) {
    while (size > 1 && path[size - 1] == '/')
        size--;
    char *copy = NULL;
    char here[PATH_MAX];
    if (path[0] != '/' && getcwd(here, sizeof here) != NULL) {
        if (asprintf(&copy, "%s/%.*s", strcmp(here, "/") != 0 ? here : "", (int)size, path) < 0)
            return NULL;
    } else {
        copy = strndup(path, size);
    }
    return copy;
}

/* Causes that a later call may find gone; with any other the tier is dropped. */
static bool may_pass(const attns_cache_fault *fault) {
    switch (fault->code) {
    case ENOENT: /* not written yet, or not mounted yet */
    case EIO:
    case ESTALE:
    case EBUSY:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return true;
    default:
        return false;
    }
}

/* Appends a tier; drops one that is unusable. false if memory is exhausted. */
static bool add_tier(attns_cache *cache, const char *path, size_t size, bool writable) {
    attns_cache_tier *const tier = &cache->tiers[cache->num_tiers];
    *tier = (attns_cache_tier){.path = copy_path(path, size), .writable = writable};
    if (tier->path == NULL)
        return false;
    attns_cache_fault fault;
    if (attns_cache_tier_check(tier, &fault)) {
        cache->num_tiers++;
    } else if (may_pass(&fault)) {
        /* A writable directory that does not exist yet is as it should be. */
        if (!writable || fault.code != ENOENT)
            attns_cache_report_fault(cache, tier, &fault);
        cache->num_tiers++;
    } else {
        attns_cache_warn(cache, tier, &fault);
        free(tier->path);
    }
    return true;
}

static bool add_tiers(attns_cache *cache, const attns_cache_params *params) {
    const char *list = cache->readonly_dirs;
    size_t most = 2;
    for (const char *at = list; *at != '\0'; at++)
        most += *at == ':';
    cache->tiers = calloc(most, sizeof *cache->tiers);
    if (cache->tiers == NULL)
        return false;
    if (params->dir != NULL && *params->dir != '\0' && !add_tier(cache, params->dir, strlen(params->dir), true))
        return false;
    while (*list != '\0') {
        const size_t size = strcspn(list, ":");
        if (size != 0 && !add_tier(cache, list, size, false))
            return false;
        list += size + (list[size] == ':');
    }
    return true;
}

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
    cache->readonly_dirs = strdup(params->readonly_dirs != NULL ? params->readonly_dirs : "");
    if (cache->readonly_dirs == NULL || !add_tiers(cache, params)) {
        attns_cache_close(cache);
        return NULL;
    }
    return cache;
}

void attns_cache_close(attns_cache *cache) {
    if (cache == NULL)
        return;
    for (size_t i = 0; i < cache->num_tiers; i++)
        free(cache->tiers[i].path);
    free(cache->tiers);
    free(cache->readonly_dirs);
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

static void place_set(place *at, const attns_cache_tier *tier, const attns_cache_key *key, uint32_t build) {
    char shard[ATTNS_CACHE_SHARD_NAME_CHARS];
    attns_cache_shard_name(shard, key->digest[0]);
    at->tier = tier;
    attns_cache_entry_name(at->name, key->digest, build);
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
    place_set(&at, tier, key, build);
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

static bool lookup_tier(attns_cache *cache, const attns_cache_tier *tier, const attns_cache_key *key, uint32_t build,
                        attns_cache_entry *entry, attns_cache_fault *fault) {
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

static bool publish(const attns_cache_tier *tier, const attns_cache_key *key, uint32_t build, const uint8_t *bytes,
                    size_t size, attns_cache_fault *fault) {
    const int version_fd = attns_cache_version_open(tier, true, fault);
    if (version_fd < 0)
        return false;
    place at = {.shard_fd = attns_cache_shard_open(tier, version_fd, key->digest[0], true, fault)};
    attns_cache_fs_close(version_fd);
    if (at.shard_fd < 0)
        return false;
    place_set(&at, tier, key, build);
    const bool done = attns_cache_file_publish(at.shard_fd, at.name, at.shown, bytes, size, fault);
    attns_cache_fs_close(at.shard_fd);
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
    if (size > cache->max_bytes) {
        attns_cache_report(cache, LEVEL_INFO, "cubin cache: not stored: %zu bytes exceed the cache's bound of %" PRIu64,
                           size, cache->max_bytes);
        return false;
    }
    attns_cache_fault fault = {0};
    uint8_t *const bytes = malloc(size);
    bool done = false;
    if (bytes != NULL) {
        attns_cache_entry_serialise(&view, bytes);
        for (int attempt = 0; attempt < TRIES && !done && (attempt == 0 || is_vanished(&fault)); attempt++)
            done = publish(tier, key, build, bytes, size, &fault);
    } else {
        attns_cache_fault_set(&fault, ENOMEM, "cannot write to '%s'", tier->path);
    }
    free(bytes);
    if (done)
        attns_cache_keep_bound(cache, tier, key->digest, build, size);
    else
        attns_cache_report_fault(cache, tier, &fault);
    return done;
}

/* ---- Figures ------------------------------------------------------------------------------------------------------
 */

void attns_cache_get_stats(attns_cache *cache, attns_cache_stats *stats) {
    *stats = (attns_cache_stats){.readonly_dirs = cache != NULL ? cache->readonly_dirs : ""};
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL)
        return;
    stats->dir = tier->path;
    stats->max_bytes = cache->max_bytes;
    attns_cache_measure(tier, &stats->bytes, &stats->entries);
}
