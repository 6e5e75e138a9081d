/* SPDX-License-Identifier: MIT */
#include "jit/compile_gate.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

static bool is_claimed(const attns_context *ctx, const uint8_t *digest) {
    const attns_compile_claim *claim = ctx->compile_claims;
    while (claim && memcmp(claim->digest, digest, ATTNS_CACHE_KEY_BYTES) != 0)
        claim = claim->next;
    return claim != NULL;
}

void attns_compile_claim_take(attns_context *ctx, attns_compile_claim *claim, const uint8_t *digest) {
    claim->digest = digest;
    pthread_mutex_lock(&ctx->mutex);
    while (is_claimed(ctx, digest))
        pthread_cond_wait(&ctx->compile_settled, &ctx->mutex);
    claim->next = ctx->compile_claims;
    ctx->compile_claims = claim;
    pthread_mutex_unlock(&ctx->mutex);
}

void attns_compile_claim_drop(attns_context *ctx, attns_compile_claim *claim) {
    pthread_mutex_lock(&ctx->mutex);
    attns_compile_claim **link = &ctx->compile_claims;
    while (*link != claim)
        link = &(*link)->next;
    *link = claim->next;
    pthread_cond_broadcast(&ctx->compile_settled);
    pthread_mutex_unlock(&ctx->mutex);
}

void attns_compile_enter(attns_context *ctx) {
    pthread_mutex_lock(&ctx->mutex);
    while (ctx->compiling >= ctx->compile_threads)
        pthread_cond_wait(&ctx->compile_settled, &ctx->mutex);
    ctx->compiling++;
    pthread_mutex_unlock(&ctx->mutex);
}

void attns_compile_leave(attns_context *ctx) {
    pthread_mutex_lock(&ctx->mutex);
    ctx->compiling--;
    pthread_cond_broadcast(&ctx->compile_settled);
    pthread_mutex_unlock(&ctx->mutex);
}

int attns_usable_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
