/* SPDX-License-Identifier: MIT
 *
 * Configuration of templates/fp8_paged_mqa_logits_sm90.cu: how the heads of all query slots (the N of the MMA) are cut
 * into wgmmas and warpgroups, and how much shared memory goes to queries and to the KV ring. */
#include <stdio.h>

#include "core/error.h"
#include "plan/kernels.h"

enum {
    TILE_TOKENS = 64,
    MAX_STAGES = 32,
    MIN_STAGES = 4,  /* below, loads no longer cover the latency of memory */
    GOOD_STAGES = 6, /* a second Q stage must leave so many */
    CHUNK_TABLE_BYTES = 512 * 4,
    RESERVED_BYTES = 1024, /* of shared memory, by the system for each CTA */
};

static int divide_up(int a, int b) {
    return (a + b - 1) / b;
}

static int round_up(int a, int b) {
    return divide_up(a, b) * b;
}

static attns_status check_value(const char *name, int value, bool accepted, const char *values) {
    if (accepted)
        return ATTNS_OK;
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is %d, accepted: %s", name, value, values);
}

static attns_status check_dtype(const char *name, int dtype, bool bf16) {
    if (dtype == ATTNS_DTYPE_F32 || dtype == ATTNS_DTYPE_F16 || (bf16 && dtype == ATTNS_DTYPE_BF16))
        return ATTNS_OK;
    char given[16];
    if (dtype >= ATTNS_DTYPE_DEFAULT && dtype <= ATTNS_DTYPE_BF16)
        snprintf(given, sizeof given, "%s", attns_dtype_name((attns_dtype)dtype));
    else
        snprintf(given, sizeof given, "%d", dtype);
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is %s, accepted: %s", name, given,
                      bf16 ? "f32, f16, bf16" : "f32, f16");
}

static attns_status check(const attns_problem *p) {
    attns_status status =
        check_value("num_heads", p->num_heads, p->num_heads >= 8 && p->num_heads <= 128 && p->num_heads % 8 == 0,
                    "multiples of 8 from 8 to 128");
    if (!status)
        status = check_value("head_dim", p->head_dim, p->head_dim == 32 || p->head_dim == 64 || p->head_dim == 128,
                             "32, 64, 128");
    if (!status)
        status = check_value("block_size", p->block_size,
                             p->block_size == 16 || p->block_size == 32 || p->block_size == 64 ||
                                 p->block_size == 128 || p->block_size == 256,
                             "16, 32, 64, 128, 256");
    if (!status)
        status = check_value("next_n", p->next_n, p->next_n >= 1 && p->next_n <= 8, "1 to 8");
    if (!status)
        status = check_dtype("out_dtype", p->out_dtype, true);
    if (!status)
        status = check_dtype("acc_dtype", p->acc_dtype, false);
    if (!status)
        status = check_dtype("epi_dtype", p->epi_dtype, false);
    return status;
}

/* Shared memory of one CTA apart from its KV stages; laid out as in the template. */
static int fixed_bytes(const attns_problem *p, int q_stages) {
    const int q = p->next_n * p->num_heads * p->head_dim;
    const int weights = p->next_n * p->num_heads * 4;
    const int limits = round_up(p->next_n * 4, 16);
    const int note_and_barriers = 32;
    return round_up(q_stages * q, 1024) + q_stages * (weights + limits + note_and_barriers) + CHUNK_TABLE_BYTES;
}

static int stage_bytes(const attns_problem *p) {
    const int box_tokens = p->block_size < TILE_TOKENS ? p->block_size : TILE_TOKENS;
    const int box_scales = box_tokens < 32 ? 32 : box_tokens; /* TMA writes to multiples of 128 bytes */
    return TILE_TOKENS * p->head_dim + TILE_TOKENS / box_tokens * box_scales * 4 + 16;
}

int attns_plan_stages(const attns_plan *plan, int ctas_per_sm) {
    int room = plan->target.shared_bytes_per_sm / ctas_per_sm - RESERVED_BYTES;
    if (room > plan->target.shared_bytes_per_block)
        room = plan->target.shared_bytes_per_block;
    const int stages = (room - plan->shared_fixed) / plan->shared_per_stage;
    return stages < MAX_STAGES ? stages : MAX_STAGES;
}

static int stages_that_fit(const attns_problem *p, const attns_target *target, int ctas_per_sm, int q_stages) {
    const attns_plan plan = {
        .target = *target, .shared_fixed = fixed_bytes(p, q_stages), .shared_per_stage = stage_bytes(p)};
    return attns_plan_stages(&plan, ctas_per_sm);
}

static const char *output_type(int dtype) {
    return dtype == ATTNS_DTYPE_F32 ? "float" : dtype == ATTNS_DTYPE_F16 ? "Half" : "Bfloat16";
}

/* The slots of one wgmma for a warpgroup that has `slots` of them: few, wide wgmmas, but not many slots computed in
 * vain to fill up the last one. A wgmma costs its columns and about half a slot of overhead. */
static int choose_chunk(const attns_problem *p, int slots, int max_columns) {
    int best = 1;
    int best_cost = 3 * slots;
    for (int chunk = 2; chunk <= slots && chunk * p->num_heads <= max_columns; chunk++) {
        const int chunks = divide_up(slots, chunk);
        const int cost = 2 * chunks * chunk + chunks;
        if (cost <= best_cost) {
            best = chunk;
            best_cost = cost;
        }
    }
    return best;
}

/* Measured on an H200. One wide wgmma beats several narrow ones (K is read from shared memory once for each), several
 * small CTAs on an SM beat one large one (they start sooner and hide each other's waits). Registers are the limit: a
 * quarter of an SM has 512 for each lane, which its warps share, and allocates by warp; so with CTAs of 5 warps a
 * thread has 168 if two share an SM, 128 if three do. That is room for the accumulators of 256 columns and little else.
 */
static void choose_shape(const attns_problem *p, attns_plan *plan) {
    const bool one_wgmma = p->next_n * p->num_heads <= 256 && p->epi_dtype == ATTNS_DTYPE_F32;
    plan->min_ctas_per_sm = stages_that_fit(p, &plan->target, 2, 1) >= MIN_STAGES ? 2 : 1;
    plan->max_ctas_per_sm = plan->min_ctas_per_sm == 2 && p->next_n * p->num_heads <= 64 ? 3 : plan->min_ctas_per_sm;
    /* A CTA that has an SM to itself needs a second warpgroup to keep the tensor cores busy. */
    plan->math_warpgroups = plan->min_ctas_per_sm == 1 && p->next_n > 1 ? 2 : 1;
    const int slots = divide_up(p->next_n, plan->math_warpgroups);
    plan->slots_per_chunk = choose_chunk(p, slots, one_wgmma ? 256 : 192);
    plan->chunks_per_warpgroup = divide_up(slots, plan->slots_per_chunk);
    plan->q_stages = stages_that_fit(p, &plan->target, plan->max_ctas_per_sm, 2) >= GOOD_STAGES ? 2 : 1;
}

attns_status attns_plan_fp8_sm90(const attns_problem *p, attns_plan *plan) {
    const attns_status status = check(p);
    if (status)
        return status;

    choose_shape(p, plan);
    plan->template_file = "fp8_paged_mqa_logits_sm90.cu";
    plan->entry = "fp8_paged_mqa_logits";
    plan->threads = 32 * (4 * plan->math_warpgroups + 1);
    plan->shared_fixed = fixed_bytes(p, plan->q_stages);
    plan->shared_per_stage = stage_bytes(p);
    /* Slots that only fill up a chunk are read from behind the queries: from the ring, which must be long enough. */
    const int slots = plan->slots_per_chunk * plan->chunks_per_warpgroup * plan->math_warpgroups;
    plan->min_stages = slots == p->next_n ? 2 : MIN_STAGES;
    plan->max_stages = attns_plan_stages(plan, plan->min_ctas_per_sm);

    const int columns = plan->slots_per_chunk * p->num_heads;
    const int accumulators = p->acc_dtype == ATTNS_DTYPE_F16 ? columns / 4 : columns / 2;
    const int weights = columns / 4;
    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "MATH_WARPGROUPS", plan->math_warpgroups);
    attns_plan_set_int(plan, "MAX_CTAS_PER_SM", plan->max_ctas_per_sm);
    attns_plan_set_int(plan, "Q_STAGES", plan->q_stages);
    attns_plan_set_int(plan, "CHUNK_SLOTS", plan->slots_per_chunk);
    attns_plan_set_int(plan, "CHUNKS", plan->chunks_per_warpgroup);
    attns_plan_set_int(plan, "CHUNK_N", columns);
    attns_plan_set_int(plan, "CHUNK_REGISTERS", accumulators);
    attns_plan_set_int(plan, "CHUNK_B", accumulators + 1); /* operand number of B's descriptor */
    attns_plan_set_int(plan, "WEIGHTS_IN_REGISTERS", plan->chunks_per_warpgroup == 1 && accumulators + weights <= 96);
    attns_plan_set_int(plan, "ACC_F16", p->acc_dtype == ATTNS_DTYPE_F16);
    attns_plan_set_int(plan, "EPI_F16", p->epi_dtype == ATTNS_DTYPE_F16);
    attns_plan_set(plan, "OUT_TYPE", output_type(p->out_dtype));
    return ATTNS_OK;
}
