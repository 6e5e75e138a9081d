/* SPDX-License-Identifier: MIT
 *
 * The verify subcommand: verify.c has the arguments and fp8, verify_indexer.c the other operation. */
#ifndef ATTNS_TOOLS_VERIFY_H_
#define ATTNS_TOOLS_VERIFY_H_

#include <attn_scores/attn_scores.h>

#include "common/gpu.h"

/* argv[0] is "attn-scores verify". Returns an exit code (see cli.h). */
int tool_verify(int argc, char **argv);

typedef enum verify_op { VERIFY_FP8 = 1, VERIFY_INDEXER = 2 } verify_op;

typedef struct verify_options {
    attns_context_params context;
    verify_op op;
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
