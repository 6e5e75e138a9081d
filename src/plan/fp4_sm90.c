/* SPDX-License-Identifier: MIT
 *
 * Configuration of templates/fp4_paged_mqa_logits_sm90.cu: how many math warpgroups a CTA has, how the heads of all
 * query slots (the N of the MMA) are cut into wgmmas, and how much shared memory goes to queries and to the KV ring. */
#include <stdio.h>

#include "plan/kernels.h"
#include "plan/sm90.h"

enum {
    TILE_TOKENS = 64,
    MAX_COLUMNS = 128, /* of one wgmma */
    GOOD_STAGES = 12,  /* a second Q stage must leave so many */
    CHUNK_TABLE_BYTES = 512 * 4,
    RING_BYTES = 48 * 1024, /* of numbers under way: as for FP8, more are slower */
};

/* How the work of a CTA is divided. */
typedef struct cta_shape {
    int warpgroups;      /* that do math and take tiles in turn; producer warps come on top */
    int slots_per_chunk; /* query slots whose heads form the N of one wgmma */
    int chunks;
    int q_stages;
    int math_registers, producer_registers; /* of a thread; 0: all have alike */
} cta_shape;

/* Of all weights, as the template makes them: floats, or, for sums of 16-bit scores on the tensor cores, two float16
 * numbers and a zero for mma.sync, where there are four warpgroups, else an operand for wgmma, with 8 columns for two
 * slots or 4 for one. */
static int made_weight_bytes(const attns_problem *p, const cta_shape *shape) {
    if (p->out_dtype == ATTNS_DTYPE_F32)
        return shape->chunks * shape->slots_per_chunk * p->num_heads * 4;
    if (shape->warpgroups == 4)
        return shape->chunks * shape->slots_per_chunk * p->num_heads * 3 * 2;
    const int slot_heads = attns_round_up(p->num_heads, 16);
    if (shape->slots_per_chunk == 1)
        return shape->chunks * (slot_heads * 4 * 2 + 64);
    const int pair_heads = p->num_heads == 8 ? 16 : 2 * slot_heads;
    return shape->chunks * attns_divide_up(shape->slots_per_chunk, 2) * pair_heads * 8 * 2;
}

/* Shared memory of one CTA apart from its KV stages; laid out as in templates/lib/mxfp4_layout_sm90.cuh. */
static int fixed_bytes(const attns_problem *p, const cta_shape *shape) {
    const int heads = p->next_n * p->num_heads;
    const int expanded_slots = shape->slots_per_chunk * shape->chunks;
    const int expanded_heads = expanded_slots * p->num_heads;
    const int loaded =
        heads * (p->head_dim / 2 + 2 * 4) + attns_round_up(p->next_n * 4, 16); /* queries, scales, weights */
    const int note_and_barriers = 32;
    const int made = made_weight_bytes(p, shape) + 2 * attns_round_up(expanded_slots * 4, 16);
    return attns_round_up(attns_round_up(expanded_heads * p->head_dim, 1024) +
                              shape->q_stages * (loaded + note_and_barriers) + made + CHUNK_TABLE_BYTES,
                          128);
}

/* Numbers, scales, barriers; TMA writes to multiples of 128 bytes. */
static int stage_bytes(const attns_problem *p) {
    const int box_tokens = p->block_size < TILE_TOKENS ? p->block_size : TILE_TOKENS;
    const int scales = (p->kv_sf_interleaved ? p->block_size : box_tokens) * (p->head_dim / 32);
    const int pitch = scales < 128 ? 128 : scales;
    return TILE_TOKENS * p->head_dim / 2 + TILE_TOKENS / box_tokens * pitch + 128;
}

static int stages_that_fit(const attns_problem *p, const attns_target *target, const cta_shape *shape) {
    const attns_plan plan = {
        .target = *target, .shared_fixed = fixed_bytes(p, shape), .shared_per_stage = stage_bytes(p)};
    return attns_plan_stages(&plan, 1);
}

/* Measured on an H200: one CTA an SM of as many math warpgroups as registers allow, so that they share a request's
 * expanded queries and keep pace with each other. */
static cta_shape choose_shape(const attns_problem *p, attns_plan *plan) {
    cta_shape shape = {.q_stages = 1};
    shape.slots_per_chunk = attns_slots_per_wgmma(p->num_heads, p->next_n, MAX_COLUMNS);
    if (shape.slots_per_chunk == 2 && p->next_n % 2 != 0)
        shape.slots_per_chunk = 1; /* rather than a slot in vain */
    shape.chunks = attns_divide_up(p->next_n, shape.slots_per_chunk);
    shape.warpgroups = shape.chunks == 1 && shape.slots_per_chunk * p->num_heads <= 64 ? 4 : 3;
    while (shape.warpgroups > 1 && stages_that_fit(p, &plan->target, &shape) < 2 * shape.warpgroups)
        shape.warpgroups--;
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = 1;
    cta_shape two_stages = shape;
    two_stages.q_stages = 2;
    if (stages_that_fit(p, &plan->target, &two_stages) >= GOOD_STAGES)
        shape = two_stages;
    shape.math_registers = shape.warpgroups == 4 ? 104 : shape.warpgroups == 3 ? 144 : 0;
    shape.producer_registers = shape.warpgroups == 4 ? 64 : shape.warpgroups == 3 ? 80 : 0;
    return shape;
}

attns_status attns_plan_fp4_sm90(const attns_problem *p, attns_plan *plan) {
    const cta_shape shape = choose_shape(p, plan);
    plan->template_file = "fp4_paged_mqa_logits_sm90.cu";
    plan->entry = "fp4_paged_mqa_logits";
    plan->threads = 128 * shape.warpgroups + 32 * (shape.math_registers != 0 ? 4 : shape.warpgroups);
    plan->tile_tokens = TILE_TOKENS;
    plan->shared_fixed = fixed_bytes(p, &shape);
    plan->shared_per_stage = stage_bytes(p);
    plan->stage_step = shape.warpgroups;
    plan->min_stages = shape.warpgroups > 1 ? shape.warpgroups : 2;
    plan->stage_limit = RING_BYTES / (TILE_TOKENS * p->head_dim / 2);
    plan->max_stages = attns_plan_stages(plan, plan->min_ctas_per_sm);

    const int columns = shape.slots_per_chunk * p->num_heads;
    const int accumulators = columns / 2;
    const int keys = p->head_dim / 8;
    const int weights = columns / 4;
    const bool room_for_weights = accumulators + keys + weights <= 72;
    char a_operands[64], b_operand[16];
    snprintf(a_operands, sizeof a_operands, "{%%%d, %%%d, %%%d, %%%d}", accumulators, accumulators + 1,
             accumulators + 2, accumulators + 3);
    snprintf(b_operand, sizeof b_operand, "%%%d", accumulators + 4);
    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "MATH_WARPGROUPS", shape.warpgroups);
    attns_plan_set_int(plan, "MATH_REGISTERS", shape.math_registers);
    attns_plan_set_int(plan, "PRODUCER_REGISTERS", shape.producer_registers);
    attns_plan_set_int(plan, "MAX_CTAS_PER_SM", plan->max_ctas_per_sm);
    attns_plan_set_int(plan, "Q_STAGES", shape.q_stages);
    attns_plan_set_int(plan, "CHUNK_SLOTS", shape.slots_per_chunk);
    attns_plan_set_int(plan, "CHUNKS", shape.chunks);
    attns_plan_set_int(plan, "CHUNK_N", columns);
    attns_plan_set_int(plan, "CHUNK_REGISTERS", accumulators);
    attns_plan_set(plan, "CHUNK_A", a_operands);
    attns_plan_set(plan, "CHUNK_B", b_operand);
    attns_plan_set_int(plan, "SCALES_INTERLEAVED", p->kv_sf_interleaved);
    attns_plan_set_int(plan, "WEIGHTS_IN_REGISTERS", shape.chunks == 1 && room_for_weights);
    attns_plan_set(plan, "OUT_TYPE", attns_output_type(p->out_dtype));
    return ATTNS_OK;
}
