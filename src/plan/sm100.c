/* SPDX-License-Identifier: MIT
 *
 * Configuration of templates/paged_mqa_logits_sm100.cu, FP8 and MXFP4: how the heads of all query slots (the N of the
 * MMA) are cut into chunks, and how tensor memory and shared memory are divided. */
#include "plan/kernels.h"

enum {
    TILE_TOKENS = 128,
    MAX_COLUMNS = 128, /* of a chunk: a thread holds a weight for each in its registers. From here on an MMA is no
                          longer slowed down by reading K from shared memory, so wider ones would not be faster */
    MAX_ACC_STAGES = 4,
    TENSOR_COLUMNS = 512,
    SCALE_COLUMNS = 8,      /* MXFP4, of an accumulator stage */
    SCALE_ROWS_BYTES = 512, /* MXFP4: scales of 128 rows as they go to tensor memory */
    MAX_GROUP_TILES = 8,
    /* A second Q stage must leave so many bytes of K in flight: what an SM of a B200 (7 TB/s over 148) receives in 2
       us. */
    GOOD_RING_BYTES = 96 * 1024,
    CHUNK_TABLE_BYTES = 512 * 4,
    WARPS = 12,
};

static int divide_up(int a, int b) {
    return (a + b - 1) / b;
}

static int round_up(int a, int b) {
    return divide_up(a, b) * b;
}

static int min(int a, int b) {
    return a < b ? a : b;
}

static int max(int a, int b) {
    return a > b ? a : b;
}

static bool is_fp4(const attns_problem *p) {
    return p->kind == ATTNS_KERNEL_FP4_LOGITS;
}

static int row_bytes(const attns_problem *p) {
    return is_fp4(p) ? p->head_dim / 2 : p->head_dim;
}

/* The pool holds the scales in the very bytes that go to tensor memory. */
static bool scales_in_order(const attns_problem *p) {
    return p->kv_sf_interleaved && p->head_dim == 128;
}

/* N of an MMA with M = 128 is a multiple of 16. */
static int mma_columns(int heads) {
    return round_up(heads, 16);
}

/* Shared memory of the CTA apart from its KV stages; laid out as in the template. */
static int fixed_bytes(const attns_problem *p, int chunks, int q_stages, int acc_stages) {
    const int last_heads = (p->next_n - (chunks - 1) * divide_up(p->next_n, chunks)) * p->num_heads;
    const int gap = mma_columns(last_heads) - last_heads; /* rows that the last MMA reads in vain */
    const int q = (p->next_n * p->num_heads + gap) * row_bytes(p);
    const int weights = p->next_n * p->num_heads * 4;
    const int scales = is_fp4(p) ? p->next_n * p->num_heads * 4 + chunks * SCALE_ROWS_BYTES : 0;
    const int limits = round_up(p->next_n * 4, 16);
    const int note_and_barriers = 16 + 32;
    const int acc_turns = acc_stages % 2 ? 2 * acc_stages : acc_stages; /* with two barriers each */
    const int tensor_address = 16;
    return round_up(q_stages * q, 1024) + q_stages * (weights + scales + limits + note_and_barriers) + acc_turns * 16 +
           tensor_address + CHUNK_TABLE_BYTES;
}

static int stage_bytes(const attns_problem *p) {
    const int box_tokens = min(p->block_size, TILE_TOKENS);
    const int token_scales = is_fp4(p) ? p->head_dim / 32 : 4;
    const int box_scales = max(box_tokens * token_scales, 128); /* TMA writes to multiples of 128 bytes */
    const int converted = is_fp4(p) && !scales_in_order(p) ? SCALE_ROWS_BYTES : 0;
    return TILE_TOKENS * row_bytes(p) + TILE_TOKENS / box_tokens * box_scales + converted + 32;
}

static int tensor_columns(int used) {
    int columns = 32;
    while (columns < used)
        columns *= 2;
    return columns;
}

/* How many tiles a chunk is applied to in a row. One if every warpgroup meets the same chunk over and over, that is
 * with one chunk, or with two that fill alike; else an even number, so that the two warpgroups share every chunk's work
 * and load its weights once for several jobs. The group's K must be in the ring all at once, and the next one's should
 * be on its way. */
static int choose_group(int chunks, int slots_per_chunk, int next_n, int stages) {
    if (chunks == 1 || (chunks == 2 && 2 * slots_per_chunk == next_n))
        return 1;
    return max(min(stages / 2, MAX_GROUP_TILES) / 2 * 2, 2);
}

attns_status attns_plan_sm100(const attns_problem *p, attns_plan *plan) {
    const int chunks = divide_up(p->next_n, min(max(MAX_COLUMNS / p->num_heads, 1), p->next_n));
    const int slots = divide_up(p->next_n, chunks);
    const int columns = mma_columns(slots * p->num_heads) + (is_fp4(p) ? SCALE_COLUMNS : 0);
    const int acc_stages = min(TENSOR_COLUMNS / columns, MAX_ACC_STAGES);

    plan->template_file = "paged_mqa_logits_sm100.cu";
    plan->entry = "paged_mqa_logits";
    plan->threads = 32 * WARPS;
    plan->tile_tokens = TILE_TOKENS;
    plan->min_ctas_per_sm = plan->max_ctas_per_sm = 1;
    plan->shared_per_stage = stage_bytes(p);
    int q_stages = 2;
    plan->shared_fixed = fixed_bytes(p, chunks, q_stages, acc_stages);
    if (attns_plan_stages(plan, 1) * TILE_TOKENS * row_bytes(p) < GOOD_RING_BYTES) {
        q_stages = 1;
        plan->shared_fixed = fixed_bytes(p, chunks, q_stages, acc_stages);
    }
    plan->max_stages = attns_plan_stages(plan, 1);
    const int group = choose_group(chunks, slots, p->next_n, plan->max_stages);
    plan->min_stages = max(group, 2);

    attns_plan_set(plan, "FP4", is_fp4(p) ? "true" : "false");
    attns_plan_set_int(plan, "NUM_HEADS", p->num_heads);
    attns_plan_set_int(plan, "HEAD_DIM", p->head_dim);
    attns_plan_set_int(plan, "BLOCK_SIZE", p->block_size);
    attns_plan_set_int(plan, "NEXT_N", p->next_n);
    attns_plan_set_int(plan, "CHUNK_SLOTS", slots);
    attns_plan_set_int(plan, "CHUNKS", chunks);
    attns_plan_set_int(plan, "GROUP_TILES", group);
    attns_plan_set_int(plan, "Q_STAGES", q_stages);
    attns_plan_set_int(plan, "ACC_STAGES", acc_stages);
    attns_plan_set_int(plan, "TENSOR_COLUMNS", tensor_columns(acc_stages * columns));
    attns_plan_set(plan, "KV_SF_INTERLEAVED", p->kv_sf_interleaved ? "true" : "false");
    attns_plan_set_int(plan, "ACC_F16", p->acc_dtype == ATTNS_DTYPE_F16);
    attns_plan_set_int(plan, "EPI_F16", p->epi_dtype == ATTNS_DTYPE_F16);
    attns_plan_set(plan, "OUT_TYPE", attns_output_type(p->out_dtype));
    return ATTNS_OK;
}
