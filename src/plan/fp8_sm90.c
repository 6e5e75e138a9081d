/* SPDX-License-Identifier: MIT
 *
 * Configuration of templates/fp8_paged_mqa_logits_sm90.cu: how the heads of all query slots (the N of the MMA) are cut
 * into wgmmas and warpgroups, and how much shared memory goes to queries and to the KV ring. */
#include "plan/kernels.h"
#include "plan/sm90.h"

enum {
    TILE_TOKENS = 64,
    MIN_STAGES = 4,  /* below, loads no longer cover the latency of memory */
    GOOD_STAGES = 6, /* a second Q stage must leave so many */
    CHUNK_TABLE_BYTES = 512 * 4,
    /* Of keys under way for a CTA, where two or three share an SM. 4.8 TB/s times a latency of about 1 us are 5 MB, or
     * 36 KB for each SM; two CTAs have twice that. More is up to 6 % slower on an H200: see templates/README.md. */
    RING_BYTES = 40 * 1024,
};

/* How the work of a CTA is divided. */
typedef struct cta_shape {
    int math_warpgroups; /* besides one producer warp */
    int slots_per_chunk; /* query slots whose heads form the N of one wgmma */
    int chunks_per_warpgroup;
    int q_stages;
} cta_shape;

/* Shared memory of one CTA apart from its KV stages; laid out as in the template. */
static int fixed_bytes(const attns_problem *p, int q_stages) {
    const int q = p->next_n * p->num_heads * p->head_dim;
    const int weights = p->next_n * p->num_heads * 4;
    const int limits = attns_round_up(p->next_n * 4, 16);
    const int note_and_barriers = 32;
    return attns_round_up(q_stages * q, 1024) + q_stages * (weights + limits + note_and_barriers) + CHUNK_TABLE_BYTES;
}

static int stage_bytes(const attns_problem *p) {
    const int box_tokens = p->block_size < TILE_TOKENS ? p->block_size : TILE_TOKENS;
    const int box_scales = box_tokens < 32 ? 32 : box_tokens; /* TMA writes to multiples of 128 bytes */
    return TILE_TOKENS * p->head_dim + TILE_TOKENS / box_tokens * box_scales * 4 + 16;
}

static int stages_that_fit(const attns_problem *p, const attns_target *target, int ctas_per_sm, int q_stages) {
    const attns_plan plan = {
        .target = *target, .shared_fixed = fixed_bytes(p, q_stages), .shared_per_stage = stage_bytes(p)};
    return attns_plan_stages(&plan, ctas_per_sm);
}

/* Measured on an H200. One wide wgmma beats several narrow ones (K is read from shared memory once for each), several
 * small CTAs on an SM beat one large one (they start sooner and hide each other's waits). Registers are the limit: a
 * quarter of an SM has 512 for each lane, which its warps share, and allocates by warp; so with CTAs of 5 warps a
 * thread has 168 if two share an SM, 128 if three do. That is room for the accumulators of 256 columns and little else.
 */
static cta_shape choose_shape(const attns_problem *p, attns_plan *plan) {
    cta_shape shape;
    const bool one_wgmma = p->next_n * p->num_heads <= 256 && p->epi_dtype == ATTNS_DTYPE_F32;
    plan->min_ctas_per_sm = stages_that_fit(p, &plan->target, 2, 1) >= MIN_STAGES ? 2 : 1;
    plan->max_ctas_per_sm = plan->min_ctas_per_sm == 2 && p->next_n * p->num_heads <= 64 ? 3 : plan->min_ctas_per_sm;
    /* A CTA that has an SM to itself needs a second warpgroup to keep the tensor cores busy. */
    shape.math_warpgroups = plan->min_ctas_per_sm == 1 && p->next_n > 1 ? 2 : 1;
    const int slots = attns_divide_up(p->next_n, shape.math_warpgroups);
    shape.slots_per_chunk = attns_slots_per_wgmma(p->num_heads, slots, one_wgmma ? 256 : 192);
    shape.chunks_per_warpgroup = attns_divide_up(slots, shape.slots_per_chunk);
    shape.q_stages = stages_that_fit(p, &plan->target, plan->max_ctas_per_sm, 2) >= GOOD_STAGES ? 2 : 1;
    return shape;
}

attns_status attns_plan_fp8_sm90(const attns_problem *p, attns_plan *plan) {
    const cta_shape shape = choose_shape(p, plan);
    plan->template_file = "fp8_paged_mqa_logits_sm90.cu";
    plan->entry = "fp8_paged_mqa_logits";
    plan->threads = 32 * (4 * shape.math_warpgroups + 1);
    plan->tile_tokens = TILE_TOKENS;
    plan->shared_fixed = fixed_bytes(p, shape.q_stages);
    plan->shared_per_stage = stage_bytes(p);
    /* Slots that only fill up a chunk are read from behind the queries: from the ring, which must be long enough. */
    const int slots = shape.slots_per_chunk * shape.chunks_per_warpgroup * shape.math_warpgroups;
    plan->min_stages = slots == p->next_n ? 2 : MIN_STAGES;
    plan->stage_limit = plan->min_ctas_per_sm > 1 ? RING_BYTES / (TILE_TOKENS * p->head_dim) : 0;
    plan->max_stages = attns_plan_stages(plan, plan->min_ctas_per_sm);

    const int columns = shape.slots_per_chunk * p->num_heads;
    const int accumulators = p->acc_dtype == ATTNS_DTYPE_F16 ? columns / 4 : columns / 2;
    const int weights = columns / 4;
    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "MATH_WARPGROUPS", shape.math_warpgroups);
    attns_plan_set_int(plan, "MAX_CTAS_PER_SM", plan->max_ctas_per_sm);
    attns_plan_set_int(plan, "Q_STAGES", shape.q_stages);
    attns_plan_set_int(plan, "CHUNK_SLOTS", shape.slots_per_chunk);
    attns_plan_set_int(plan, "CHUNKS", shape.chunks_per_warpgroup);
    attns_plan_set_int(plan, "CHUNK_N", columns);
    attns_plan_set_int(plan, "CHUNK_REGISTERS", accumulators);
    attns_plan_set_int(plan, "CHUNK_B", accumulators + 1); /* operand number of B's descriptor */
    attns_plan_set_int(plan, "WEIGHTS_IN_REGISTERS", shape.chunks_per_warpgroup == 1 && accumulators + weights <= 96);
    attns_plan_set_int(plan, "ACC_F16", p->acc_dtype == ATTNS_DTYPE_F16);
    attns_plan_set_int(plan, "EPI_F16", p->epi_dtype == ATTNS_DTYPE_F16);
    attns_plan_set(plan, "OUT_TYPE", attns_output_type(p->out_dtype));
    return ATTNS_OK;
}
