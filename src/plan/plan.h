/* SPDX-License-Identifier: MIT
 *
 * Chooses a kernel configuration: a pure function of problem and target, printable, tested without a GPU.
 *
 * Three classes of constants:
 *   baked        in the template text (tile of 64 tokens, MMA shape)
 *   specialised  in attns_problem, thus in the kernel key: a change compiles another kernel
 *   run-time     kernel arguments: batch, lengths, strides, pool size, SM count, number of ring stages
 */
#ifndef ATTNS_PLAN_PLAN_H_
#define ATTNS_PLAN_PLAN_H_

#include <attn_scores/attn_scores.h>

#include "jit/template.h"

typedef enum attns_kernel_kind { ATTNS_KERNEL_FP8_LOGITS = 1, ATTNS_KERNEL_SCHEDULE = 2 } attns_kernel_kind;

/* What a kernel is specialised for. No padding, so that memcmp compares it; fields a kind does not use are 0. */
typedef struct attns_problem {
    int32_t kind; /* attns_kernel_kind */
    int32_t num_heads;
    int32_t head_dim;
    int32_t block_size;
    int32_t next_n;
    int32_t out_dtype; /* attns_dtype, never DEFAULT */
    int32_t acc_dtype;
    int32_t epi_dtype;
} attns_problem;

/* A compile target and what the planner must know of it. */
typedef struct attns_target {
    char arch[16];              /* "sm_90a" */
    int compute_capability;     /* 90 */
    int shared_bytes_per_sm;    /* 233472 on sm_90 */
    int shared_bytes_per_block; /* opt-in maximum, 232448 on sm_90 */
} attns_target;

/* "sm_90a" -> target, from a table of the architectures the library has kernels for. ATTNS_ERROR_UNSUPPORTED_DEVICE
 * names them otherwise. `compute_capability` -> its best target likewise. */
attns_status attns_target_from_arch(const char *arch, attns_target *target);
attns_status attns_target_from_compute_capability(int compute_capability, attns_target *target);

#define ATTNS_MAX_PLACEHOLDERS 24

/* Everything needed to compile, load and launch one kernel. */
typedef struct attns_plan {
    char name[128]; /* "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f32 epi=f32" */
    attns_target target;
    const char *template_file; /* static */
    const char *entry;         /* static: the kernel's extern "C" name */
    attns_placeholder placeholders[ATTNS_MAX_PLACEHOLDERS];
    size_t num_placeholders;

    /* Launch shape. Dynamic shared memory = shared_fixed + stages * shared_per_stage; CTAs per SM and stages are chosen
     * per call. */
    int threads; /* per CTA: one producer warp and `math_warpgroups` math warpgroups */
    int min_ctas_per_sm, max_ctas_per_sm;
    int math_warpgroups;
    int slots_per_chunk; /* query slots whose heads form the N of one wgmma */
    int chunks_per_warpgroup;
    int q_stages;
    int min_stages, max_stages; /* of the KV ring; max with min_ctas_per_sm */
    int shared_fixed, shared_per_stage;
} attns_plan;

/* Stages of the KV ring that fit when ctas_per_sm CTAs share an SM. */
int attns_plan_stages(const attns_plan *plan, int ctas_per_sm);

/* ATTNS_ERROR_UNSUPPORTED names the field, its value and what is accepted. */
attns_status attns_plan_make(const attns_problem *problem, const attns_target *target, attns_plan *plan);

const char *attns_dtype_name(attns_dtype dtype); /* "f32", "f16", "bf16", "default", else "unknown" */

#endif
