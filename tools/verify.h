/* SPDX-License-Identifier: MIT
 *
 * The verify subcommand: verify.c has the arguments and the logits operations, verify_indexer.c the other one. */
#ifndef ATTNS_TOOLS_VERIFY_H_
#define ATTNS_TOOLS_VERIFY_H_

#include <attn_scores/attn_scores.h>

#include "common/gpu.h"

/* argv[0] is "attn-scores verify". Returns an exit code (see cli.h). */
int tool_verify(int argc, char **argv);

typedef struct verify_options {
    attns_context_params context;
    bool indexer;          /* else `variant` */
    attns_variant variant; /* fp8 or fp4 */
    bool full, reference, json, have_seed;
    uint64_t seed;
    int device;
} verify_options;

/* One configuration's result. */
void verify_print(const verify_options *o, const char *text, bool ok, uint64_t compared, double worst, double seconds);

/* Checks kernels, or the reference; `count` gets the configurations. Returns how many failed. */
size_t verify_indexer(const verify_options *o, const struct gpu *gpu, attns_context *ctx, CUstream stream,
                      size_t *count);
size_t verify_indexer_reference(const verify_options *o, size_t *count);

#endif
