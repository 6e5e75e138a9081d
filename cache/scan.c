/* SPDX-License-Identifier: MIT */
#include "scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fs.h"
#include "name.h"

/* A stream of its own, so that closing it leaves `dir_fd` open and its position is not shared. */
static DIR *open_stream(int dir_fd) {
    const int fd = attns_cache_open_retry(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    DIR *const dir = fdopendir(fd);
    if (dir == NULL) {
        const int error = errno;
        attns_cache_fs_close(fd);
        errno = error;
    }
    return dir;
}

int attns_cache_scan_newest(int shard_fd, const uint8_t *digest, uint32_t limit, uint32_t *build) {
    *build = 0;
    DIR *const dir = open_stream(shard_fd);
    if (dir == NULL)
        return errno;
    const struct dirent *item;
    errno = 0;
    while ((item = attns_cache_fs_readdir(dir)) != NULL) {
        uint8_t found[ATTNS_CACHE_KEY_BYTES];
        uint32_t found_build;
        if (attns_cache_entry_name_parse(item->d_name, found, &found_build) &&
            memcmp(found, digest, sizeof found) == 0 && found_build <= limit && found_build > *build)
            *build = found_build;
        errno = 0;
    }
    const int error = errno;
    closedir(dir);
    /* What was seen before an error is still good. */
    return *build != 0 ? 0 : error;
}

static bool scan_shard(int shard_fd, uint8_t shard, attns_cache_scan_fn visit, void *user) {
    DIR *const dir = open_stream(shard_fd);
    if (dir == NULL)
        return true;
    bool go_on = true;
    const struct dirent *item;
    while (go_on && (item = attns_cache_fs_readdir(dir)) != NULL) {
        uint8_t digest[ATTNS_CACHE_KEY_BYTES];
        uint32_t build = 0;
        const bool is_entry = attns_cache_entry_name_parse(item->d_name, digest, &build);
        if (!is_entry && !attns_cache_temp_name_matches(item->d_name))
            continue;
        struct stat st;
        if (attns_cache_fs_fstatat(shard_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            go_on = visit(user, shard_fd, shard, item->d_name, is_entry ? digest : NULL, build, &st);
    }
    closedir(dir);
    return go_on;
}

void attns_cache_scan(const attns_cache_tier *tier, int version_fd, attns_cache_scan_fn visit, void *user) {
    DIR *const dir = open_stream(version_fd);
    if (dir == NULL)
        return;
    bool go_on = true;
    const struct dirent *item;
    while (go_on && (item = attns_cache_fs_readdir(dir)) != NULL) {
        uint8_t shard;
        if (!attns_cache_shard_parse(item->d_name, &shard))
            continue;
        attns_cache_fault passed_over;
        const int shard_fd = attns_cache_shard_open(tier, version_fd, shard, false, &passed_over);
        if (shard_fd < 0)
            continue;
        go_on = scan_shard(shard_fd, shard, visit, user);
        attns_cache_fs_close(shard_fd);
    }
    closedir(dir);
}
