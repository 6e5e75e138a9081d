/* SPDX-License-Identifier: MIT
 *
 * The plan of every supported problem on sm_100a against what the tcgen05 kernels and the hardware require of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/kernels.h"
#include "placeholders.h"
#include "testing.h"

enum {
    TILE_TOKENS = 128,
    CHUNK_TABLE_BYTES = 512 * 4, /* MAX_CHUNKS of lib/schedule.cuh */
    SYSTEM_BYTES = 1024,         /* shared memory that the system takes of an SM for each CTA */
    SWIZZLE_ROWS = 8,
    NUM_PROBLEMS = 2 * 16 * 3 * 5 * 8,
};

/* Ends the test with the problem's name and the condition that it breaks. */
#define CHECK(plan, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s: %s", (plan)->name, #condition);                                                              \
    } while (0)

/* Number `index` of NUM_PROBLEMS; false if there is no kernel for it: MXFP4 with head_dim 32. */
static bool problem_at(int index, attns_problem *problem) {
    static const int block_sizes[] = {16, 32, 64, 128, 256};
    static const int head_dims[] = {32, 64, 128};
    *problem = (attns_problem){.out_dtype = ATTNS_DTYPE_F32};
    const bool fp4 = index % 2;
    index /= 2;
    problem->next_n = 1 + index % 8, index /= 8;
    problem->block_size = block_sizes[index % 5], index /= 5;
    problem->head_dim = head_dims[index % 3], index /= 3;
    problem->num_heads = 8 * (1 + index);
    problem->kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS;
    if (fp4)
        problem->kv_sf_interleaved = problem->block_size == 128 && problem->num_heads % 16 == 0;
    else
        problem->acc_dtype = problem->epi_dtype = ATTNS_DTYPE_F32;
    return !fp4 || problem->head_dim > 32;
}

static attns_plan plan_of(const attns_problem *problem) {
    attns_plan plan = {.family = ATTNS_FAMILY_SM100};
    assert_int_equal(attns_target_from_arch("sm_100a", &plan.target), ATTNS_OK);
    assert_int_equal(attns_plan_sm100(problem, &plan), ATTNS_OK);
    return plan;
}

static void for_every_plan(void (*check)(const attns_problem *problem, const attns_plan *plan)) {
    for (int i = 0; i < NUM_PROBLEMS; i++) {
        attns_problem problem;
        if (problem_at(i, &problem)) {
            const attns_plan plan = plan_of(&problem);
            check(&problem, &plan);
        }
    }
}

static bool is_fp4(const attns_problem *problem) {
    return problem->kind == ATTNS_KERNEL_FP4_LOGITS;
}

static int round_up(int a, int b) {
    return (a + b - 1) / b * b;
}

/* ---- Tensor memory and jobs ---- */

static void check_jobs(const attns_problem *problem, const attns_plan *plan) {
    const int slots = value_of(plan, "CHUNK_SLOTS"), chunks = value_of(plan, "CHUNKS");
    const int group = value_of(plan, "GROUP_TILES");
    const int columns = round_up(slots * problem->num_heads, 16);
    CHECK(plan, slots * problem->num_heads <= 128); /* weights that a thread holds in its registers */
    CHECK(plan, slots * chunks >= problem->next_n && slots * (chunks - 1) < problem->next_n);

    /* Accumulators and their scales; enough stages that MMA, warpgroups and whoever is late overlap. */
    const int stages = value_of(plan, "ACC_STAGES"), allocated = value_of(plan, "TENSOR_COLUMNS");
    CHECK(plan, stages >= 3 && stages <= 32);
    CHECK(plan, stages * (columns + (is_fp4(problem) ? 8 : 0)) <= allocated);
    CHECK(plan, allocated >= 32 && allocated <= 512 && (allocated & (allocated - 1)) == 0);

    /* Every K tile of a group is in shared memory at once, and there is room for the next ones; all chunks are shared
     * by both warpgroups, unless each has a chunk to itself. */
    CHECK(plan, group >= 1 && group <= plan->min_stages);
    CHECK(plan, group == 1 || 2 * group <= plan->max_stages);
    CHECK(plan, group % 2 == 0 || chunks == 1 || (chunks == 2 && 2 * slots == problem->next_n));

    CHECK(plan, plan->threads == 384 && plan->tile_tokens == TILE_TOKENS);
    CHECK(plan, plan->min_ctas_per_sm == 1 && plan->max_ctas_per_sm == 1); /* none waits for another's tensor memory */
    const int q_stages = value_of(plan, "Q_STAGES");
    CHECK(plan, q_stages >= 1 && q_stages <= 32); /* a lane each initialises their barriers */
}

static void test_jobs(void **state) {
    (void)state;
    for_every_plan(check_jobs);
}

/* ---- Shared memory ---- */

static void check_shared_memory(const attns_problem *problem, const attns_plan *plan) {
    const int row = is_fp4(problem) ? problem->head_dim / 2 : problem->head_dim;
    const int chunks = value_of(plan, "CHUNKS"), q_stages = value_of(plan, "Q_STAGES");
    const int rows = problem->next_n * problem->num_heads;
    const int last_rows = rows - (chunks - 1) * value_of(plan, "CHUNK_SLOTS") * problem->num_heads;
    const int q_stage = (rows + round_up(last_rows, 16) - last_rows) * row;
    const int box_tokens = problem->block_size < TILE_TOKENS ? problem->block_size : TILE_TOKENS;
    const int box_scales = box_tokens * (is_fp4(problem) ? problem->head_dim / 32 : 4);
    const int box_pitch = box_scales < 128 ? 128 : box_scales;
    const bool converts = is_fp4(problem) && !(problem->kv_sf_interleaved && problem->head_dim == 128);

    CHECK(plan, plan->max_stages == attns_plan_stages(plan, 1));
    CHECK(plan, plan->min_stages >= 2 && plan->min_stages <= plan->max_stages);
    CHECK(plan, plan->max_stages * TILE_TOKENS * row >= 64 * 1024 || plan->max_stages == 32); /* bytes in flight */
    for (int stages = plan->min_stages; stages <= plan->max_stages; stages++) {
        /* Offsets as `struct Layout` of the template has them. */
        const int keys = round_up(q_stages * q_stage, 1024);
        const int scales = keys + stages * TILE_TOKENS * row;
        const int scale_rows = scales + stages * TILE_TOKENS / box_tokens * box_pitch;
        const int q_scale_rows = scale_rows + (converts ? stages * 512 : 0);
        const int q_scales = q_scale_rows + (is_fp4(problem) ? q_stages * chunks * 512 : 0);
        const int weights = q_scales + (is_fp4(problem) ? q_stages * rows * 4 : 0);
        const int limits = weights + q_stages * rows * 4;
        const int notes = limits + q_stages * round_up(problem->next_n * 4, 16);
        const int barriers = notes + q_stages * 16;
        const int acc_stages = value_of(plan, "ACC_STAGES");
        const int tensor = barriers + q_stages * 32 + (acc_stages % 2 ? 2 : 1) * acc_stages * 16 + stages * 32;
        const int end = tensor + 16 + CHUNK_TABLE_BYTES;
        CHECK(plan, end == attns_plan_shared_bytes(plan, stages));
        CHECK(plan, end <= plan->target.shared_bytes_per_block);
        CHECK(plan, end + SYSTEM_BYTES <= plan->target.shared_bytes_per_sm);
        /* Operands start where their swizzle pattern does. TMA writes to multiples of 128 bytes, bulk copies to
         * multiples of 16, which is also what descriptors can say. */
        CHECK(plan, keys % (SWIZZLE_ROWS * row) == 0 && q_stage % (SWIZZLE_ROWS * row) == 0);
        CHECK(plan, box_tokens % SWIZZLE_ROWS == 0 && scales % 128 == 0 && box_pitch % 128 == 0);
        CHECK(plan,
              box_scales % 16 == 0 && q_scales % 16 == 0 && weights % 16 == 0 && problem->num_heads * 4 % 16 == 0);
        CHECK(plan, notes % 16 == 0 && barriers % 16 == 0 && tensor % 4 == 0);
    }
}

static void test_shared_memory(void **state) {
    (void)state;
    for_every_plan(check_shared_memory);
}

/* ---- Placeholders ---- */

static void check_filling(const attns_problem *problem, const attns_plan *plan) {
    if ((problem->num_heads / 8 + problem->next_n + problem->head_dim / 32) % 7) /* a seventh of them */
        return;
    char *source = NULL;
    if (attns_template_fill(NULL, plan->template_file, plan->placeholders, plan->num_placeholders, &source) != ATTNS_OK)
        fail_msg("%s: %s", plan->name, attns_last_error());
    assert_contains(source, plan->entry);
    free(source);
}

static void test_plans_fill_their_template(void **state) {
    (void)state;
    for_every_plan(check_filling);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_plans_fill_their_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
