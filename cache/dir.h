/* SPDX-License-Identifier: MIT
 *
 * Tiers and their directories. A cubin is code that will run on the caller's GPU, so a directory is used only if nobody
 * but its owner can have put something there. Directories are opened anew for every operation, each relative to the
 * descriptor of the one above and judged by fstat on the descriptor itself: there is no window between check and use,
 * and a directory that was removed or mounted over is noticed. */
#ifndef ATTNS_CACHE_DIR_H_
#define ATTNS_CACHE_DIR_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct attns_cache_bundle;

typedef struct attns_cache_tier {
    char *path;                                  /* absolute where the working directory could be told */
    bool writable;                               /* owned by us; otherwise only read, and owned by us or root */
    bool shared;                                 /* owned by anybody; the group may write */
    _Atomic(struct attns_cache_bundle *) bundle; /* NULL for a directory, and until it is first needed */
} attns_cache_tier;

/* Modes of what is created. */
unsigned attns_cache_dir_mode(const attns_cache_tier *tier);
unsigned attns_cache_file_mode(const attns_cache_tier *tier);

/* Reasons of our own to leave a file or directory alone; positive codes are errno values. */
enum {
    ATTNS_CACHE_REFUSED_LINK = -1,
    ATTNS_CACHE_REFUSED_OWNER = -2,
    ATTNS_CACHE_REFUSED_MODE = -3,
    ATTNS_CACHE_REFUSED_KIND = -4,
    ATTNS_CACHE_REFUSED_LIMIT = -5
};

/* Why an operation on a tier did not happen. `code` is its cause, told once per tier; 0 for none. */
typedef struct attns_cache_fault {
    int code;
    char text[512];
} attns_cache_fault;

/* Fills *fault; for a positive code ": " and the system's text for it are appended. */
__attribute__((format(printf, 3, 4))) void attns_cache_fault_set(attns_cache_fault *fault, int code, const char *format,
                                                                 ...);

/* As openat, restarted when a signal interrupts it. */
int attns_cache_open_retry(int dir, const char *name, int flags, unsigned mode);

struct stat;

/* Whether what `st` describes may be trusted in this tier; otherwise says why in *fault. `shown` names it. */
bool attns_cache_is_trusted(const attns_cache_tier *tier, const struct stat *st, const char *shown,
                            attns_cache_fault *fault);

/* Checks the tier's own directory and closes it again; creates nothing. */
bool attns_cache_tier_check(const attns_cache_tier *tier, attns_cache_fault *fault);

/* Opens <tier>/<version>, and <2 hex> inside it. Missing ones are created, for us alone or for our group, if `create`.
 * Returns a descriptor for the caller to close, or -1 with *fault set (code ENOENT: not there). */
int attns_cache_version_open(const attns_cache_tier *tier, bool create, attns_cache_fault *fault);
int attns_cache_shard_open(const attns_cache_tier *tier, int version_fd, uint8_t shard, bool create,
                           attns_cache_fault *fault);

#endif
