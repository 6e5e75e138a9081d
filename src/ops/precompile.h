/* SPDX-License-Identifier: MIT
 *
 * precompile_paged_mqa_logits in three steps, each a file; precompile.c puts them together:
 *
 *   precompile_kernels.c   params -> what is asked for, whatever the target
 *   precompile_targets.c   params -> what it is compiled for
 *   precompile.c           the product of both: a plan for each kernel to build
 *   precompile_run.c       builds them, with a few threads
 *
 * What a *_find or *_read function fills is the caller's to free, whatever the function returns. */
#ifndef ATTNS_OPS_PRECOMPILE_H_
#define ATTNS_OPS_PRECOMPILE_H_

#include "core/context.h"
#include "plan/kernel_name.h"

/* What is to be built: from lists of values, or by name. malloc'ed lists. */
typedef struct attns_precompile_kernels {
    attns_problem *logits; /* every combination of the logits variants, once */
    size_t num_logits;
    bool indexer_bf16, indexer_nvfp4;
    attns_kernel_reference *named; /* instead of all these; may repeat */
    size_t num_named;
} attns_precompile_kernels;

/* ATTNS_ERROR_INVALID_ARGUMENT, ATTNS_ERROR_UNSUPPORTED name the list; values of a logits problem are not checked. */
attns_status attns_precompile_kernels_read(const attns_context *ctx, const attns_precompile_params *params,
                                           attns_precompile_kernels *kernels);
void attns_precompile_kernels_free(attns_precompile_kernels *kernels);

typedef struct attns_precompile_target {
    attns_target target;
    uint32_t build; /* of the NVRTC that would compile for it; 0: no NVRTC, whatever is cached will do */
    bool by_name;   /* asked for by its own name, not through "all" or a device */
} attns_precompile_target;

/* Each once. malloc'ed list. */
typedef struct attns_precompile_targets {
    attns_precompile_target *items;
    size_t count;
    size_t general; /* so many of them, the first, are for kernels that name no target */
} attns_precompile_targets;

/* Asks the driver for its devices if `archs` is not given, and opens NVRTC. */
attns_status attns_precompile_targets_find(attns_context *ctx, const attns_precompile_params *params,
                                           const attns_precompile_kernels *kernels, attns_precompile_targets *targets);

typedef struct attns_precompile_job {
    attns_plan plan;
    uint32_t build; /* as in attns_precompile_target */
} attns_precompile_job;

/* Builds every job, reports each to params->progress, and returns the status of the first that failed, by its place
 * in the list. */
attns_status attns_precompile_run(attns_context *ctx, const attns_precompile_params *params,
                                  const attns_precompile_job *jobs, size_t num_jobs);

#endif
