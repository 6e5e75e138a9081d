/* SPDX-License-Identifier: MIT */
#include "manage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "fs.h"
#include "name.h"
#include "scan.h"
#include "state.h"
#include "temp.h"
#include "tiers.h"

/* ---- Looking through ---- */

typedef struct visitor {
    const attns_cache_tier *tier;
    attns_cache_visit_fn visit;
    void *user;
} visitor;

/* Checks the bytes and tells the caller. */
static void show(const visitor *to, attns_cache_found *found, const uint8_t *bytes) {
    found->tier = to->tier->path;
    found->writable = to->tier->writable;
    if (found->damage == NULL)
        found->damage = attns_cache_entry_parse(bytes, (size_t)found->size, &found->entry);
    if (found->damage == NULL) {
        if (memcmp(found->entry.digest, found->digest, ATTNS_CACHE_KEY_BYTES) != 0)
            found->damage = "it belongs to another key";
        else if (found->entry.build != found->build)
            found->damage = "it belongs to another build";
    }
    found->bytes = found->damage == NULL ? bytes : NULL;
    to->visit(to->user, found);
}

static bool visit_file(void *user, int shard_fd, uint8_t shard, const char *name, const uint8_t *digest, uint32_t build,
                       const struct stat *st) {
    (void)shard;
    if (digest == NULL)
        return true;
    const visitor *const to = user;
    attns_cache_found found = {
        .digest = digest, .build = build, .size = (uint64_t)st->st_size, .used = (int64_t)st->st_mtim.tv_sec};
    attns_cache_file file;
    attns_cache_fault fault;
    switch (attns_cache_file_read(to->tier, shard_fd, name, name, &file, &fault)) {
    case ATTNS_CACHE_READ_OK:
        found.size = file.size;
        break;
    case ATTNS_CACHE_READ_DAMAGED:
        found.damage = file.damage;
        break;
    case ATTNS_CACHE_READ_FAILED:
        found.damage = fault.text;
        break;
    case ATTNS_CACHE_READ_ABSENT: /* removed meanwhile */
        attns_cache_file_close(&file);
        return true;
    }
    show(to, &found, file.bytes);
    attns_cache_file_close(&file);
    return true;
}

static void visit_bundle(const visitor *to, const attns_cache_bundle *bundle) {
    attns_cache_fault fault;
    if (!attns_cache_bundle_is_whole(bundle, to->tier, &fault))
        return;
    for (uint32_t i = 0; i < bundle->view.count; i++) {
        const attns_cache_bundle_item item = attns_cache_bundle_at(&bundle->view, i);
        attns_cache_found found = {.bundled = true, .digest = item.digest, .build = item.build, .size = item.size};
        show(to, &found, item.bytes);
    }
}

void attns_cache_visit(attns_cache *cache, attns_cache_visit_fn visit, void *user) {
    for (size_t i = 0; i < cache->num_tiers; i++) {
        attns_cache_tier *const tier = &cache->tiers[i];
        visitor to = {.tier = tier, .visit = visit, .user = user};
        attns_cache_fault fault = {0};
        const attns_cache_bundle *const bundle = attns_cache_tier_bundle(tier, &fault);
        if (bundle != NULL) {
            visit_bundle(&to, bundle);
            continue;
        }
        const int version_fd = attns_cache_version_open(tier, false, &fault);
        if (version_fd < 0) {
            if (fault.code != ENOENT)
                attns_cache_report_fault(cache, tier, &fault);
            continue;
        }
        attns_cache_scan(tier, version_fd, visit_file, &to);
        attns_cache_fs_close(version_fd);
    }
}

bool attns_cache_bundle_visit(const char *path, attns_cache_visit_fn visit, void *user, attns_cache_fault *fault) {
    const attns_cache_tier tier = {.path = (char *)path, .shared = true};
    attns_cache_bundle *const bundle = attns_cache_bundle_open(&tier, fault);
    if (bundle == NULL)
        return false;
    const visitor to = {.tier = &tier, .visit = visit, .user = user};
    visit_bundle(&to, bundle);
    attns_cache_bundle_close(bundle);
    return true;
}

/* ---- Removing ---- */

bool attns_cache_remove(attns_cache *cache, const uint8_t *digest, uint32_t build) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    attns_cache_fault fault = {0};
    const int version_fd = tier != NULL ? attns_cache_version_open(tier, false, &fault) : -1;
    if (version_fd < 0)
        return fault.code == ENOENT;
    const int shard_fd = attns_cache_shard_open(tier, version_fd, digest[0], false, &fault);
    attns_cache_fs_close(version_fd);
    if (shard_fd < 0)
        return fault.code == ENOENT;
    char name[ATTNS_CACHE_ENTRY_NAME_CHARS];
    attns_cache_entry_name(name, digest, build);
    const bool gone = attns_cache_fs_unlinkat(shard_fd, name, 0) == 0 || errno == ENOENT;
    attns_cache_fs_close(shard_fd);
    return gone;
}

static bool sweep_file(void *user, int shard_fd, uint8_t shard, const char *name, const uint8_t *digest, uint32_t build,
                       const struct stat *st) {
    (void)shard;
    (void)build;
    size_t *const removed = user;
    if (digest == NULL)
        *removed += attns_cache_temp_sweep(shard_fd, name, st);
    return true;
}

size_t attns_cache_sweep(attns_cache *cache) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    attns_cache_fault fault;
    const int version_fd = tier != NULL ? attns_cache_version_open(tier, false, &fault) : -1;
    size_t removed = 0;
    if (version_fd >= 0) {
        attns_cache_scan(tier, version_fd, sweep_file, &removed);
        attns_cache_fs_close(version_fd);
    }
    return removed;
}

/* ---- Bundles ---- */

static bool write_parts(FILE *file, const uint8_t *head, size_t head_size, const attns_cache_bundle_item *items,
                        uint32_t count) {
    bool good = fwrite(head, 1, head_size, file) == head_size;
    for (uint32_t i = 0; i < count && good; i++)
        good = fwrite(items[i].bytes, 1, items[i].size, file) == items[i].size;
    return good && fflush(file) == 0 && fsync(fileno(file)) == 0;
}

bool attns_cache_bundle_write(const char *path, attns_cache_bundle_item *items, uint32_t count,
                              attns_cache_fault *fault) {
    size_t head_size;
    uint8_t *const head = attns_cache_bundle_head(items, count, &head_size);
    if (head == NULL) {
        attns_cache_fault_set(fault, ENOMEM, "cannot write '%s'", path);
        return false;
    }
    uint8_t random[16];
    char hex[2 * sizeof random + 1], temp[PATH_MAX];
    int error = getrandom(random, sizeof random, 0) == (ssize_t)sizeof random ? 0 : errno;
    attns_cache_hex(hex, random, sizeof random);
    if (error == 0 && (size_t)snprintf(temp, sizeof temp, "%s.%s", path, hex) >= sizeof temp)
        error = ENAMETOOLONG;
    if (error == 0) {
        /* A bundle is made to be shipped: readable for all, as far as the umask says. */
        const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        FILE *const file = fd >= 0 ? fdopen(fd, "w") : NULL;
        error = file != NULL ? 0 : errno;
        if (file != NULL) {
            if (!write_parts(file, head, head_size, items, count))
                error = errno;
            if (fclose(file) != 0 && error == 0)
                error = errno;
            if (error == 0 && rename(temp, path) != 0)
                error = errno;
            if (error != 0)
                unlink(temp);
        }
    }
    free(head);
    if (error != 0)
        attns_cache_fault_set(fault, error, "cannot write '%s'", path);
    return error == 0;
}

/* Whether the writable tier holds a sound entry there. */
static bool is_present(const attns_cache_tier *tier, const uint8_t *digest, uint32_t build) {
    attns_cache_fault fault;
    const int version_fd = attns_cache_version_open(tier, false, &fault);
    if (version_fd < 0)
        return false;
    const int shard_fd = attns_cache_shard_open(tier, version_fd, digest[0], false, &fault);
    attns_cache_fs_close(version_fd);
    if (shard_fd < 0)
        return false;
    char name[ATTNS_CACHE_ENTRY_NAME_CHARS];
    attns_cache_entry_name(name, digest, build);
    attns_cache_file file;
    attns_cache_entry_view view;
    const bool present = attns_cache_file_read(tier, shard_fd, name, name, &file, &fault) == ATTNS_CACHE_READ_OK &&
                         attns_cache_entry_parse(file.bytes, file.size, &view) == NULL && view.build == build &&
                         memcmp(view.digest, digest, ATTNS_CACHE_KEY_BYTES) == 0;
    attns_cache_file_close(&file);
    attns_cache_fs_close(shard_fd);
    return present;
}

attns_cache_imported attns_cache_import(attns_cache *cache, const attns_cache_found *found) {
    const attns_cache_tier *const tier = attns_cache_writable_tier(cache);
    if (tier == NULL || found->damage != NULL)
        return ATTNS_CACHE_NOT_STORED;
    if (is_present(tier, found->digest, found->build))
        return ATTNS_CACHE_PRESENT;
    return attns_cache_store_bytes(cache, found->digest, found->build, found->bytes, (size_t)found->size)
               ? ATTNS_CACHE_STORED
               : ATTNS_CACHE_NOT_STORED;
}
