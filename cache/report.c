/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "state.h"

enum { LEVEL_WARNING = 2 };

const attns_cache_tier *attns_cache_writable_tier(const attns_cache *cache) {
    return cache != NULL && cache->num_tiers != 0 && cache->tiers[0].writable ? &cache->tiers[0] : NULL;
}

void attns_cache_report(const attns_cache *cache, int level, const char *format, ...) {
    if (cache->log == NULL)
        return;
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    /* A path may hold anything; a message is one line. */
    for (char *at = message; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20)
            *at = '?';
    }
    cache->log(cache->log_user, level, message);
}

bool attns_cache_is_news(attns_cache *cache, const attns_cache_tier *tier, uint64_t what) {
    const uint64_t mark = what ^ ((uint64_t)(tier - cache->tiers + 1) << 56);
    bool news = true;
    pthread_mutex_lock(&cache->mutex);
    for (size_t i = 0; i < cache->num_told && news; i++)
        news = cache->told[i] != mark;
    if (news && cache->num_told < ATTNS_CACHE_TOLD_MAX)
        cache->told[cache->num_told++] = mark;
    else
        news = false;
    pthread_mutex_unlock(&cache->mutex);
    return news;
}

void attns_cache_warn(const attns_cache *cache, const attns_cache_tier *tier, const attns_cache_fault *fault) {
    attns_cache_report(cache, LEVEL_WARNING, "cubin cache: %s; going on without %s", fault->text,
                       tier->writable ? "it" : "this read-only tier");
}

void attns_cache_report_fault(attns_cache *cache, const attns_cache_tier *tier, const attns_cache_fault *fault) {
    if (attns_cache_is_news(cache, tier, (uint64_t)(int64_t)fault->code))
        attns_cache_warn(cache, tier, fault);
}
