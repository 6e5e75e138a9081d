/* SPDX-License-Identifier: MIT */
#include "bundle_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fs.h"

/* Maps an open file. NULL with *fault set if it is no bundle. */
static attns_cache_bundle *map(const attns_cache_tier *tier, int fd, size_t size, attns_cache_fault *fault) {
    attns_cache_bundle *const bundle = malloc(sizeof *bundle);
    void *const bytes = bundle != NULL ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        attns_cache_fault_set(fault, bundle != NULL ? errno : ENOMEM, "cannot map the bundle '%s'", tier->path);
        free(bundle);
        return NULL;
    }
    bundle->fd = fd;
    const char *const damage = attns_cache_bundle_parse(bytes, size, &bundle->view);
    if (damage != NULL) {
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_KIND, "'%s' is no bundle: %s", tier->path, damage);
        munmap(bytes, size);
        free(bundle);
        return NULL;
    }
    return bundle;
}

attns_cache_bundle *attns_cache_bundle_open(const attns_cache_tier *tier, attns_cache_fault *fault) {
    const int fd = attns_cache_open_retry(AT_FDCWD, tier->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    struct stat st;
    attns_cache_bundle *bundle = NULL;
    if (fd < 0)
        attns_cache_fault_set(fault, errno, "cannot open '%s'", tier->path);
    else if (attns_cache_fs_fstat(fd, &st) != 0)
        attns_cache_fault_set(fault, errno, "cannot examine '%s'", tier->path);
    else if (!S_ISREG(st.st_mode))
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_KIND, "'%s' is neither a directory nor a regular file",
                              tier->path);
    else if (st.st_size <= 0)
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_KIND, "'%s' is no bundle: it is empty", tier->path);
    else if (attns_cache_is_trusted(tier, &st, tier->path, fault))
        bundle = map(tier, fd, (size_t)st.st_size, fault);
    if (bundle == NULL && fd >= 0)
        attns_cache_fs_close(fd);
    return bundle;
}

void attns_cache_bundle_close(attns_cache_bundle *bundle) {
    if (bundle == NULL)
        return;
    munmap((void *)bundle->view.bytes, bundle->view.size);
    attns_cache_fs_close(bundle->fd);
    free(bundle);
}

bool attns_cache_bundle_is_whole(const attns_cache_bundle *bundle, const attns_cache_tier *tier,
                                 attns_cache_fault *fault) {
    struct stat st;
    if (attns_cache_fs_fstat(bundle->fd, &st) != 0)
        attns_cache_fault_set(fault, errno, "cannot examine '%s'", tier->path);
    else if ((uint64_t)st.st_size < bundle->view.size)
        attns_cache_fault_set(fault, ATTNS_CACHE_REFUSED_KIND, "the bundle '%s' was shortened while in use",
                              tier->path);
    else
        return true;
    return false;
}
