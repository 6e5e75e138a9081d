/* SPDX-License-Identifier: MIT
 *
 * Compiles of one process: one per key, and no more at a time than the context allows. Among processes the cache's
 * locks do the same as far as they can. */
#ifndef ATTNS_JIT_COMPILE_GATE_H_
#define ATTNS_JIT_COMPILE_GATE_H_

#include "core/context.h"

/* Lives on the stack of the thread that works on a key. */
typedef struct attns_compile_claim {
    const uint8_t *digest; /* ATTNS_CACHE_KEY_BYTES, borrowed */
    struct attns_compile_claim *next;
} attns_compile_claim;

/* Waits until no other thread works on the key. What the caller wants may be there by then: look again. */
void attns_compile_claim_take(attns_context *ctx, attns_compile_claim *claim, const uint8_t *digest);
void attns_compile_claim_drop(attns_context *ctx, attns_compile_claim *claim);

/* Waits for one of the context's places at the compiler. Taken after everything else that is waited for. */
void attns_compile_enter(attns_context *ctx);
void attns_compile_leave(attns_context *ctx);

/* CPUs this process may use, at least 1. */
int attns_usable_cpus(void);

#endif
