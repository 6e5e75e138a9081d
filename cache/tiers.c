/* SPDX-License-Identifier: MIT */
#include "tiers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs.h"

enum { LEVEL_WARNING = 2 };

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

const attns_cache_bundle *attns_cache_tier_bundle(attns_cache_tier *tier, attns_cache_fault *fault) {
    attns_cache_bundle *bundle = atomic_load_explicit(&tier->bundle, memory_order_acquire);
    struct stat st;
    if (bundle != NULL || tier->writable || attns_cache_fs_fstatat(AT_FDCWD, tier->path, &st, 0) != 0 ||
        S_ISDIR(st.st_mode))
        return bundle;
    attns_cache_bundle *const opened = attns_cache_bundle_open(tier, fault);
    if (opened == NULL)
        return NULL;
    /* Of several threads one wins; bundle is NULL here, as the exchange expects. */
    if (atomic_compare_exchange_strong_explicit(&tier->bundle, &bundle, opened, memory_order_acq_rel,
                                                memory_order_acquire))
        return opened;
    attns_cache_bundle_close(opened);
    return bundle;
}

static bool check(attns_cache_tier *tier, attns_cache_fault *fault) {
    fault->code = 0;
    if (attns_cache_tier_bundle(tier, fault) != NULL)
        return true;
    return fault->code == 0 && attns_cache_tier_check(tier, fault);
}

/* Appends a tier that is only read; drops one that is unusable. Takes the path. */
static void add_readonly(attns_cache *cache, char *path) {
    attns_cache_tier *const tier = &cache->tiers[cache->num_tiers];
    *tier = (attns_cache_tier){.path = path, .shared = cache->shared};
    attns_cache_fault fault;
    if (check(tier, &fault)) {
        cache->num_tiers++;
    } else if (may_pass(&fault)) {
        attns_cache_report_fault(cache, tier, &fault);
        cache->num_tiers++;
    } else {
        attns_cache_warn(cache, tier, &fault);
        free(path);
    }
}

/* ---- The writable tier --------------------------------------------------------------------------------------------
 */

/* Whether files can be made below `path`, or below its nearest parent that exists. Returns 0 or an errno. The system
 * is asked, so that a file system mounted read-only counts. */
static int is_writable(const char *path) {
    char parent[PATH_MAX];
    if (strlen(path) >= sizeof parent)
        return ENAMETOOLONG;
    strcpy(parent, path);
    for (;;) {
        if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0)
            return 0;
        if (errno != ENOENT)
            return errno;
        char *const slash = strrchr(parent, '/');
        if (slash == NULL || strcmp(parent, "/") == 0)
            return ENOENT;
        slash[slash == parent] = '\0'; /* the root keeps its slash */
    }
}

/* Whether the tier can be the writable one; otherwise *fault says why not. */
static bool can_take(attns_cache *cache, const attns_cache_tier *tier, attns_cache_fault *fault) {
    const bool there = attns_cache_tier_check(tier, fault);
    if (!there && !may_pass(fault))
        return false;
    if (!there && fault->code != ENOENT) {
        attns_cache_report_fault(cache, tier, fault);
        return true;
    }
    const int error = is_writable(tier->path);
    if (error != 0)
        attns_cache_fault_set(fault, error, "cannot write to '%s'", tier->path);
    return error == 0;
}

/* Whether a place that cannot be written is a cache that can be read. */
static bool is_readable(const attns_cache *cache, const char *path) {
    attns_cache_tier tier = {.path = (char *)path, .shared = cache->shared};
    struct stat st;
    attns_cache_fault unread;
    return stat(path, &st) == 0 && check(&tier, &unread) && atomic_load(&tier.bundle) == NULL;
}

/* The candidates in order until one can be written. Those passed over that can be read are left in `passed`. */
static bool choose_writable(attns_cache *cache, const char *const *dirs, size_t num_dirs, char **passed,
                            size_t *num_passed) {
    for (size_t i = 0; i < num_dirs; i++) {
        if (dirs[i] == NULL || dirs[i][0] == '\0')
            continue;
        char *const path = copy_path(dirs[i], strlen(dirs[i]));
        if (path == NULL)
            return false;
        attns_cache_tier *const tier = &cache->tiers[0];
        *tier = (attns_cache_tier){.path = path, .writable = true, .shared = cache->shared};
        attns_cache_fault fault;
        if (can_take(cache, tier, &fault)) {
            cache->num_tiers = 1;
            return true;
        }
        /* What is refused for what others could do to it is not read either. */
        const bool readable = (fault.code > 0 || fault.code == ATTNS_CACHE_REFUSED_OWNER) && is_readable(cache, path);
        attns_cache_report(cache, LEVEL_WARNING, "cubin cache: %s; %s", fault.text,
                           readable ? "it is only read" : "going on without it");
        if (readable)
            passed[(*num_passed)++] = path;
        else
            free(path);
    }
    return true;
}

/* ---- All tiers ----------------------------------------------------------------------------------------------------
 */

/* The paths of the tiers that are only read, as figures and messages show them. */
static bool list_readonly(attns_cache *cache, const char *const *passed, size_t num_passed, const char *given) {
    size_t size = strlen(given) + 1;
    for (size_t i = 0; i < num_passed; i++)
        size += strlen(passed[i]) + 1;
    cache->readonly_dirs = malloc(size);
    if (cache->readonly_dirs == NULL)
        return false;
    char *at = cache->readonly_dirs;
    for (size_t i = 0; i < num_passed; i++)
        at += sprintf(at, "%s%s", passed[i], i + 1 < num_passed || *given != '\0' ? ":" : "");
    strcpy(at, given);
    return true;
}

bool attns_cache_tiers_open(attns_cache *cache, const attns_cache_params *params) {
    const char *list = params->readonly_dirs != NULL ? params->readonly_dirs : "";
    const size_t num_candidates = params->num_dirs + 1;
    size_t most = num_candidates + 1;
    for (const char *at = list; *at != '\0'; at++)
        most += *at == ':';
    cache->tiers = calloc(most, sizeof *cache->tiers);
    char **const passed = calloc(num_candidates, sizeof *passed);
    size_t num_passed = 0;
    bool good = cache->tiers != NULL && passed != NULL &&
                choose_writable(cache, &params->dir, 1, passed, &num_passed) &&
                (cache->num_tiers != 0 || choose_writable(cache, params->dirs, params->num_dirs, passed, &num_passed));
    good = good && list_readonly(cache, (const char *const *)passed, num_passed, list);
    for (size_t i = 0; i < num_passed; i++) {
        if (good)
            add_readonly(cache, passed[i]);
        else
            free(passed[i]);
    }
    free(passed);
    while (good && *list != '\0') {
        const size_t size = strcspn(list, ":");
        char *const path = size != 0 ? copy_path(list, size) : NULL;
        good = size == 0 || path != NULL;
        if (path != NULL)
            add_readonly(cache, path);
        list += size + (list[size] == ':');
    }
    return good;
}

void attns_cache_tiers_close(attns_cache *cache) {
    for (size_t i = 0; i < cache->num_tiers; i++) {
        attns_cache_bundle_close(atomic_load_explicit(&cache->tiers[i].bundle, memory_order_relaxed));
        free(cache->tiers[i].path);
    }
    free(cache->tiers);
    free(cache->readonly_dirs);
}
