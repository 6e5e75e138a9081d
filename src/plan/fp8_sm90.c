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
     * 36 KB for each SM; two CTAs have nearly twice that. More is up to 10 % slower on an H200: see
     * templates/README.md. */
    RING_BYTES = 32 * 1024,
    LARGE_RING_BYTES = 96 * 1024, /* where a CTA has an SM for itself */
    OTHER_REGISTERS = 12, /* of a math thread, besides accumulators, weights, sums, and what it keeps of slots */
};

/* How the work of a CTA is divided. */
typedef struct cta_shape {
    int math_warpgroups;
    int slot_groups; /* of them, which deal out the query slots; others take tiles in turn */
    int math_registers, producer_registers; /* of a thread; 0: all have alike */
    int slots_per_chunk;                    /* query slots whose heads form the N of one wgmma */
    int chunks_per_warpgroup;
    int held_weights; /* pairs of weights that a lane has in registers */
    int q_stages;
} cta_shape;

/* CTAs that have an SM to themselves, several math warpgroups, and their registers, which the producers give up: for
 * problems with `from` to `to` columns (heads of all query slots together). Where there is none, small CTAs share the
 * SM. */
static const struct large_cta {
    int from, to;
    int warpgroups, slot_groups;
    int max_columns; /* of one wgmma */
    int math_registers, producer_registers; /* (4 warpgroups: 104, 64), (3: 152, 56), (2: 216, 72) fit */
    int much_tiles; /* of the plan: for much work alone, the row after it or small CTAs serve less; 0: for any work */
} large_ctas[] = {
    {65, 128, 3, 1, 128, 152, 56, 96},
    {129, 192, 3, 1, 192, 152, 56, 0},
    {193, 256, 3, 1, 128, 152, 56, 96},
    {193, 256, 2, 1, 256, 216, 72, 0},
    {257, 384, 3, 3, 128, 152, 56, 0},
    {385, 512, 4, 4, 128, 104, 64, 0},
};

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

static int accumulators_of(const attns_problem *p, const cta_shape *shape) {
    const int columns = shape->slots_per_chunk * p->num_heads;
    return p->acc_dtype == ATTNS_DTYPE_F16 ? columns / 4 : columns / 2;
}

static void choose_large(const attns_problem *p, const struct large_cta *large, attns_plan *plan, cta_shape *shape) {
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = 1;
    shape->math_warpgroups = large->warpgroups;
    shape->slot_groups = large->slot_groups;
    shape->math_registers = large->math_registers;
    shape->producer_registers = large->producer_registers;
    const int slots = attns_divide_up(p->next_n, shape->slot_groups);
    shape->slots_per_chunk = attns_slots_per_wgmma(p->num_heads, slots, large->max_columns);
    shape->chunks_per_warpgroup = attns_divide_up(slots, shape->slots_per_chunk);

    const int slot_pairs = shape->chunks_per_warpgroup * attns_divide_up(shape->slots_per_chunk, 2);
    const int used = accumulators_of(p, shape) + 2 * shape->slots_per_chunk + 3 * slot_pairs;
    const int other = shape->math_warpgroups == 4 ? OTHER_REGISTERS + 4 : OTHER_REGISTERS;
    const int room = (shape->math_registers - used - other) / 2;
    const int pairs = shape->chunks_per_warpgroup * shape->slots_per_chunk * p->num_heads / 8;
    shape->held_weights = room < 0 ? 0 : pairs < room ? pairs : room;
}

/* Measured on an H200. One wide wgmma beats several narrow ones (K is read from shared memory once for each), several
 * small CTAs on an SM beat one large one (they start sooner and hide each other's waits), unless registers are the
 * limit: a quarter of an SM has 512 for each lane, which its warps share, and allocates by warp; so with CTAs of 5
 * warps a thread has 168 if two share an SM, 128 if three do. That is room for the accumulators of 256 columns and
 * little else. */
static void choose_small(const attns_problem *p, attns_plan *plan, cta_shape *shape) {
    const bool one_wgmma = p->next_n * p->num_heads <= 256 && p->epi_dtype == ATTNS_DTYPE_F32;
    plan->max_ctas_per_sm = plan->min_ctas_per_sm == 2 && p->next_n * p->num_heads <= 64 ? 3 : plan->min_ctas_per_sm;
    /* A CTA that has an SM to itself needs a second warpgroup to keep the tensor cores busy. */
    shape->math_warpgroups = shape->slot_groups = plan->min_ctas_per_sm == 1 && p->next_n > 1 ? 2 : 1;
    shape->math_registers = shape->producer_registers = 0;
    const int slots = attns_divide_up(p->next_n, shape->slot_groups);
    shape->slots_per_chunk = attns_slots_per_wgmma(p->num_heads, slots, one_wgmma ? 256 : 192);
    shape->chunks_per_warpgroup = attns_divide_up(slots, shape->slots_per_chunk);
    const int columns = shape->slots_per_chunk * p->num_heads;
    const bool weights_fit = shape->chunks_per_warpgroup == 1 && accumulators_of(p, shape) + columns / 4 <= 96;
    shape->held_weights = weights_fit ? columns / 8 : 0;
}

/* One that deals out the slots with at most one in vain; or null. Several blocks to a tile take more registers than
 * the producer keeps. */
static const struct large_cta *find_large(const attns_problem *p, bool much_work) {
    const int columns = p->next_n * p->num_heads;
    if (p->block_size < TILE_TOKENS)
        return NULL;
    for (size_t i = 0; i < sizeof large_ctas / sizeof *large_ctas; i++) {
        const struct large_cta *large = &large_ctas[i];
        if (columns >= large->from && columns <= large->to && p->epi_dtype == ATTNS_DTYPE_F32 &&
            attns_round_up(p->next_n, large->slot_groups) <= p->next_n + 1 && (large->much_tiles == 0 || much_work))
            return large;
    }
    return NULL;
}

static cta_shape choose_shape(const attns_problem *p, attns_plan *plan) {
    cta_shape shape;
    const struct large_cta *much = find_large(p, true);
    plan->much_tiles = much != NULL ? much->much_tiles : 0;
    const struct large_cta *large = p->much_work ? much : find_large(p, false);
    plan->min_ctas_per_sm = stages_that_fit(p, &plan->target, 2, 1) >= MIN_STAGES ? 2 : 1;
    if (large != NULL)
        choose_large(p, large, plan, &shape);
    else
        choose_small(p, plan, &shape);
    shape.q_stages = stages_that_fit(p, &plan->target, plan->max_ctas_per_sm, 2) >= GOOD_STAGES ? 2 : 1;
    return shape;
}

attns_status attns_plan_fp8_sm90(const attns_problem *p, attns_plan *plan) {
    const cta_shape shape = choose_shape(p, plan);
    plan->template_file = "fp8_paged_mqa_logits_sm90.cu";
    plan->entry = "fp8_paged_mqa_logits";
    plan->stage_step = shape.math_warpgroups / shape.slot_groups;
    plan->threads = 32 * (4 * shape.math_warpgroups + (shape.math_registers != 0 ? 4 : plan->stage_step));
    plan->tile_tokens = TILE_TOKENS;
    plan->shared_fixed = fixed_bytes(p, shape.q_stages);
    plan->shared_per_stage = stage_bytes(p);
    /* Slots that only fill up a chunk are read from behind the queries: from the ring, which must be long enough. */
    const int slots = shape.slots_per_chunk * shape.chunks_per_warpgroup * shape.slot_groups;
    plan->min_stages = attns_round_up(slots == p->next_n ? 2 : MIN_STAGES, plan->stage_step);
    const int ring_bytes = plan->max_ctas_per_sm > 1 ? RING_BYTES : shape.math_registers != 0 ? LARGE_RING_BYTES : 0;
    plan->stage_limit = ring_bytes / (TILE_TOKENS * p->head_dim);
    plan->max_stages = attns_plan_stages(plan, plan->min_ctas_per_sm);

    const int columns = shape.slots_per_chunk * p->num_heads;
    const int accumulators = accumulators_of(p, &shape);
    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "MATH_WARPGROUPS", shape.math_warpgroups);
    attns_plan_set_int(plan, "SLOT_GROUPS", shape.slot_groups);
    attns_plan_set_int(plan, "MATH_REGISTERS", shape.math_registers);
    attns_plan_set_int(plan, "PRODUCER_REGISTERS", shape.producer_registers);
    attns_plan_set_int(plan, "MAX_CTAS_PER_SM", plan->max_ctas_per_sm);
    attns_plan_set_int(plan, "Q_STAGES", shape.q_stages);
    attns_plan_set_int(plan, "CHUNK_SLOTS", shape.slots_per_chunk);
    attns_plan_set_int(plan, "CHUNKS", shape.chunks_per_warpgroup);
    attns_plan_set_int(plan, "CHUNK_N", columns);
    attns_plan_set_int(plan, "CHUNK_REGISTERS", accumulators);
    attns_plan_set_int(plan, "CHUNK_B", accumulators + 1); /* operand number of B's descriptor */
    attns_plan_set_int(plan, "WEIGHTS_IN_REGISTERS", shape.held_weights);
    attns_plan_set_int(plan, "ACC_F16", p->acc_dtype == ATTNS_DTYPE_F16);
    attns_plan_set_int(plan, "EPI_F16", p->epi_dtype == ATTNS_DTYPE_F16);
    attns_plan_set(plan, "OUT_TYPE", attns_output_type(p->out_dtype));
    return ATTNS_OK;
}
