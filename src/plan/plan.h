/* SPDX-License-Identifier: MIT
 *
 * Chooses a kernel configuration: pure functions of problem and target, printable, tested without a GPU.
 *
 *   problem   what is to be computed: everything that a kernel is specialised for
 *   target    what a kernel is compiled for
 *   family    the kernels that are alike: one template, one planner and one launch for each variant
 *   plan      how a kernel is compiled and launched
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

typedef enum attns_kernel_kind {
    ATTNS_KERNEL_FP8_LOGITS = 1,
    ATTNS_KERNEL_SCHEDULE = 2,
    ATTNS_KERNEL_FP4_LOGITS = 3,
    ATTNS_KERNEL_INDEXER_BF16 = 4,
    ATTNS_KERNEL_INDEXER_NVFP4 = 5
} attns_kernel_kind;

/* What a kernel is specialised for. No padding, so that memcmp compares it; fields a kind does not use are 0. */
typedef struct attns_problem {
    int32_t kind; /* attns_kernel_kind */
    int32_t num_heads;
    int32_t head_dim;
    int32_t block_size;
    int32_t next_n;
    int32_t out_dtype; /* attns_dtype, never DEFAULT */
    int32_t acc_dtype; /* fp8 only, as epi_dtype */
    int32_t epi_dtype;
    int32_t kv_sf_interleaved; /* fp4 only: 1 if a block's scales are in is_kv_sf_interleaved's order */
    int32_t much_work;         /* 1: the kernel for calls with much work, see attns_plan.much_tiles. The last field:
                                  arguments leave it 0, and src/jit/kernel_store.c decides */
} attns_problem;

typedef enum attns_family {
    ATTNS_FAMILY_NONE = 0,    /* of kernels that are the same everywhere: schedule, indexer_scores */
    ATTNS_FAMILY_SM90 = 1,    /* wgmma */
    ATTNS_FAMILY_SM100 = 2,   /* tcgen05 */
    ATTNS_FAMILY_PORTABLE = 3 /* mma.sync: every target from sm_80 on */
} attns_family;

/* attns_context_params.kernel_family */
typedef enum attns_family_choice {
    ATTNS_CHOOSE_AUTO = 0,
    ATTNS_CHOOSE_TUNED = 1,
    ATTNS_CHOOSE_PORTABLE = 2
} attns_family_choice;

/* ---- Targets ------------------------------------------------------------------------------------------------- */

/* A compile target and what the planner must know of it. */
typedef struct attns_target {
    char arch[16];              /* as NVRTC is told it: "sm_90a"; "compute_90" for PTX that the driver compiles */
    int compute_capability;     /* 90: the lowest that runs the code */
    char suffix;                /* 'a': features of this chip alone; 'f': of its family; 0: of every later chip */
    int shared_bytes_per_sm;    /* 233472 on sm_90 */
    int shared_bytes_per_block; /* opt-in maximum, 232448 on sm_90 */
    attns_family tuned;         /* the family made for this target; NONE if only the portable one runs */
} attns_target;

#define ATTNS_MAX_TARGETS 32 /* more than there are, and than a device has candidates */

/* "sm_90a" -> target. ATTNS_ERROR_UNSUPPORTED_DEVICE names the targets that kernels exist for. "compute_80" is sm_80
 * as PTX. */
attns_status attns_target_from_arch(const char *arch, attns_target *target);

/* The targets whose code a device of this compute capability runs and that have kernels, best first; which is the
 * first that can be used depends on the NVRTC at hand. How they are found: src/plan/target.c.
 * ATTNS_ERROR_UNSUPPORTED_DEVICE if there are none. */
attns_status attns_targets_of_device(int compute_capability, attns_target targets[ATTNS_MAX_TARGETS], size_t *count);

/* The first of them. */
attns_status attns_target_from_compute_capability(int compute_capability, attns_target *target);

/* The code is PTX, not machine code. */
bool attns_target_is_ptx(const attns_target *target);

/* ---- Selection ----------------------------------------------------------------------------------------------- */

typedef struct attns_selection {
    attns_family family;
    char reason[160]; /* "tuned for sm_90a"; "portable: no kernel is tuned for sm_89" */
} attns_selection;

/* Which family serves a logits problem on a target, and why (indexer_scores has one kernel for all).
 * ATTNS_ERROR_UNSUPPORTED or ATTNS_ERROR_UNSUPPORTED_DEVICE: none does, the message says why. */
attns_status attns_plan_select(const attns_problem *problem, const attns_target *target, attns_family_choice choice,
                               attns_selection *selection);

/* Some kernel exists for the target. */
bool attns_target_has_kernels(const attns_target *target);

const char *attns_family_name(attns_family family); /* "sm90", "sm100", "portable", "none" */

/* "auto", "tuned", "portable"; false for another text. */
bool attns_family_choice_parse(const char *text, attns_family_choice *choice);

/* ---- Plans --------------------------------------------------------------------------------------------------- */

#define ATTNS_MAX_PLACEHOLDERS 24
#define ATTNS_TILE_TOKENS      64 /* of every logits kernel and of the schedule */

/* Everything needed to compile, load and launch one kernel. */
typedef struct attns_plan {
    char name[128]; /* "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f32 epi=f32" */
    attns_target target;
    attns_family family;
    const char *template_file; /* static */
    const char *entry;         /* static: the kernel's extern "C" name */
    attns_placeholder placeholders[ATTNS_MAX_PLACEHOLDERS];
    size_t num_placeholders;

    /* Launch shape of a persistent kernel with a ring of KV stages. CTAs per SM and stages are chosen per call; dynamic
     * shared memory is attns_plan_shared_bytes. */
    int threads;     /* per CTA */
    int tile_tokens; /* of a stage */
    int min_ctas_per_sm, max_ctas_per_sm;
    int min_stages, max_stages; /* max with min_ctas_per_sm */
    int stage_step;             /* the number of stages is a multiple of it, as warpgroups take turns; 0: as 1 */
    int stage_limit;            /* more do not help, though they fit; 0: there is none */
    int shared_fixed, shared_per_stage;

    /* From so many tiles of 64 tokens for each SM on, the same problem with much_work = 1 has a quicker kernel, which
     * gives the same bits. 0: there is none. The same in the plans of both. */
    int much_tiles;
} attns_plan;

/* Which of a problem's two kernels a call is for that has at most `tiles` tiles, on a device of num_sms SMs. */
static inline bool attns_plan_has_much_work(const attns_plan *plan, int64_t tiles, int num_sms) {
    return plan->much_tiles > 0 && tiles >= (int64_t)plan->much_tiles * num_sms;
}

/* Stages of the KV ring when ctas_per_sm CTAs share an SM: what fits, up to stage_limit. */
int attns_plan_stages(const attns_plan *plan, int ctas_per_sm);

/* Dynamic shared memory of a CTA with a ring of `stages`. */
int attns_plan_shared_bytes(const attns_plan *plan, int stages);

/* Dynamic shared memory of a CTA with which no more than max_ctas_per_sm of them fit an SM. */
int attns_plan_exclusive_bytes(const attns_plan *plan);

/* The most dynamic shared memory that a launch asks for. */
int attns_plan_most_shared_bytes(const attns_plan *plan);

/* ATTNS_ERROR_UNSUPPORTED names the field, its value and what is accepted; otherwise as attns_plan_select. */
attns_status attns_plan_make(const attns_problem *problem, const attns_target *target, attns_family_choice choice,
                             attns_plan *plan);

const char *attns_dtype_name(attns_dtype dtype); /* "f32", "f16", "bf16", "default", else "unknown" */

#endif
