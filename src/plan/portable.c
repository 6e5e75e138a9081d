/* SPDX-License-Identifier: MIT
 *
 * Configuration of the portable kernels (templates/lib/portable.cuh): what the tensor cores are fed with, how many
 * warps share the queries of a request, and what shared memory is used for. */
#include "plan/kernels.h"

enum {
    KB = 1024,
    UNIT_TOKENS = 32, /* what a warp multiplies at a time, and a stage holds */
    LIMITS_AND_SEGMENTS_BYTES = 64,
    WALK_BYTES = 32 * 44,
    CHUNK_TABLE_BYTES = 512 * 4,
    MAX_STAGES = 8,
    ENOUGH_UNDER_WAY = 64 * KB, /* of an SM: what its share of the memory bandwidth times the latency can be at most */
};

/* What the tensor cores multiply. */
typedef enum operand_format {
    OPERANDS_F16,  /* of 2 bytes: float16 for E4M3 values, bfloat16 for E2M1 with scales folded in */
    OPERANDS_E4M3, /* fp8 as it is */
    OPERANDS_MXF4, /* fp4 as it is, scales beside it */
} operand_format;

typedef struct cta_shape {
    int warps, ctas_per_sm;
    int stages;      /* of each warp */
    int chunk_slots; /* query slots whose queries are in shared memory at a time */
} cta_shape;

static int divide_up(int a, int b) {
    return (a + b - 1) / b;
}

static int min(int a, int b) {
    return a < b ? a : b;
}

/* mma.sync takes E4M3 from sm_89 on, but only sm_89 and the sm_12x have it in hardware: for 90, 100, 103 and 110
 * ptxas 13.0 makes conversions to float16 and HMMA of it, for every product anew. Block scales are a feature of the
 * sm_12x alone, and only of targets with a suffix (PTX ISA, "mma"). A chip that is not known gets what every chip has.
 */
static operand_format operands_of(const attns_problem *p, const attns_target *target) {
    const int capability = target->compute_capability;
    const bool is_12x = capability == 120 || capability == 121;
    if (p->kind == ATTNS_KERNEL_FP4_LOGITS)
        return is_12x && target->suffix ? OPERANDS_MXF4 : OPERANDS_F16;
    return is_12x || capability == 89 ? OPERANDS_E4M3 : OPERANDS_F16;
}

/* ---- Shared memory of a CTA, laid out as in the template ---- */

static int row_bytes(const attns_problem *p) {
    return p->kind == ATTNS_KERNEL_FP4_LOGITS ? p->head_dim / 2 : p->head_dim;
}

static int stage_bytes(const attns_problem *p) {
    return UNIT_TOKENS * (row_bytes(p) + 4);
}

static int query_bytes(const attns_problem *p, operand_format operands) {
    return p->num_heads * (operands == OPERANDS_F16 ? 2 * p->head_dim : row_bytes(p));
}

/* What is kept of each slot besides queries: weights, and of fp4 all scales or what sums them up. */
static int slot_bytes(const attns_problem *p, operand_format operands) {
    const int scales = operands == OPERANDS_MXF4 ? p->num_heads * 4 : 16;
    return p->num_heads * 4 + (p->kind == ATTNS_KERNEL_FP4_LOGITS ? scales : 0);
}

static int shared_bytes(const attns_problem *p, operand_format operands, cta_shape shape) {
    return shape.chunk_slots * query_bytes(p, operands) + shape.warps * shape.stages * stage_bytes(p) +
           p->next_n * slot_bytes(p, operands) + LIMITS_AND_SEGMENTS_BYTES + WALK_BYTES + CHUNK_TABLE_BYTES;
}

static int room(const attns_target *target, int ctas_per_sm) {
    enum { RESERVED_BYTES = 1 * KB }; /* by the system for each CTA */
    return min(target->shared_bytes_per_sm / ctas_per_sm - RESERVED_BYTES, target->shared_bytes_per_block);
}

/* Twelve warps on an SM have up to 168 registers a thread, which is nearly always enough, and are enough to keep the
 * tensor cores busy while some wait; eight have all that a thread can have. Small CTAs wait for each other least where
 * the request changes; a large one needs the queries only once. If nothing fits, the queries come in chunks, in equal
 * ones. */
static cta_shape choose_shape(const attns_problem *p, const attns_target *target, operand_format operands) {
    static const cta_shape choices[] = {{4, 3, 0, 0}, {12, 1, 0, 0}, {4, 2, 0, 0}, {8, 1, 0, 0}};
    const bool many_registers = p->kind == ATTNS_KERNEL_FP4_LOGITS && operands == OPERANDS_F16 && p->head_dim == 128 &&
                                (p->next_n > 1 || p->num_heads % 16 != 0);
    for (int i = many_registers ? 2 : 0; i < 4; i++) {
        cta_shape shape = choices[i];
        shape.chunk_slots = p->next_n;
        shape.stages = min(divide_up(ENOUGH_UNDER_WAY, shape.warps * shape.ctas_per_sm * stage_bytes(p)), MAX_STAGES);
        for (; shape.stages > 0; shape.stages--)
            if (shared_bytes(p, operands, shape) <= room(target, shape.ctas_per_sm))
                return shape;
    }
    cta_shape shape = {.warps = 8, .ctas_per_sm = 1, .stages = 1, .chunk_slots = 0};
    const int fit = (room(target, 1) - shared_bytes(p, operands, shape)) / query_bytes(p, operands);
    shape.chunk_slots = divide_up(p->next_n, divide_up(p->next_n, fit));
    return shape;
}

attns_status attns_plan_portable(const attns_problem *p, attns_plan *plan) {
    const bool is_fp4 = p->kind == ATTNS_KERNEL_FP4_LOGITS;
    const operand_format operands = operands_of(p, &plan->target);
    const cta_shape shape = choose_shape(p, &plan->target, operands);
    const int bytes = shared_bytes(p, operands, shape);
    plan->template_file = is_fp4 ? "fp4_paged_mqa_logits_portable.cu" : "fp8_paged_mqa_logits_portable.cu";
    plan->entry = is_fp4 ? "fp4_paged_mqa_logits" : "fp8_paged_mqa_logits";
    plan->threads = 32 * shape.warps;
    plan->tile_tokens = UNIT_TOKENS * shape.warps; /* a stage of each warp */
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = shape.ctas_per_sm;
    plan->min_stages = plan->max_stages = shape.stages;
    plan->shared_per_stage = shape.warps * stage_bytes(p);
    plan->shared_fixed = bytes - shape.stages * plan->shared_per_stage;

    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "WARPS", shape.warps);
    attns_plan_set_int(plan, "CTAS_PER_SM", shape.ctas_per_sm);
    attns_plan_set_int(plan, "STAGES", shape.stages);
    attns_plan_set_int(plan, "CHUNK_SLOTS", shape.chunk_slots);
    attns_plan_set_int(plan, "SHARED_BYTES", bytes);
    attns_plan_set(plan, "OUT_TYPE", attns_output_type(p->out_dtype));
    if (is_fp4) {
        attns_plan_set_int(plan, "NATIVE_MXF4", operands == OPERANDS_MXF4);
        attns_plan_set_int(plan, "SCALES_INTERLEAVED", p->kv_sf_interleaved);
    } else {
        attns_plan_set_int(plan, "NATIVE_E4M3", operands == OPERANDS_E4M3);
        attns_plan_set_int(plan, "ACC_F16", p->acc_dtype == ATTNS_DTYPE_F16);
        attns_plan_set_int(plan, "EPI_F16", p->epi_dtype == ATTNS_DTYPE_F16);
    }
    return ATTNS_OK;
}
