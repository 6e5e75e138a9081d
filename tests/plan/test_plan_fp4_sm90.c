/* SPDX-License-Identifier: MIT
 *
 * The plan of every MXFP4 problem on Hopper against what its template and the hardware ask of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "placeholders.h"
#include "testing.h"

enum { TILE_TOKENS = 64, MAX_COLUMNS = 128, CHUNK_TABLE_BYTES = 512 * 4, SYSTEM_BYTES = 1024, QUARTER_REGISTERS = 512,
       RING_BYTES = 48 * 1024 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s: %s", plan->name, #condition);                                                                \
    } while (0)

static int round_up(int value, int unit) {
    return (value + unit - 1) / unit * unit;
}

/* What sums over heads are given. For wgmma 4 columns of a slot that is a chunk, or 8 that two slots of a chunk share,
 * of 16 heads at a time; 8 heads of either of two slots are 16. */
static int weight_bytes(const attns_problem *p, int warpgroups, int chunk_slots, int chunks) {
    if (p->out_dtype == ATTNS_DTYPE_F32)
        return 4 * chunk_slots * chunks * p->num_heads;
    if (warpgroups == 4)
        return (2 + 2 + 2) * chunk_slots * chunks * p->num_heads;
    const int of_one = (p->num_heads + 15) / 16, of_two = p->num_heads == 8 ? 1 : 2 * of_one;
    if (chunk_slots == 1)
        return chunks * (16 * 4 * 2 * of_one + 4 * 8 * 2);
    return 16 * 8 * 2 * chunks * ((chunk_slots + 1) / 2) * of_two;
}

/* The template's struct Layout. */
static int fixed_bytes(const attns_problem *p, int q_stages, int warpgroups, int chunk_slots, int chunks) {
    const int slots = chunk_slots * chunks;
    const int loaded = p->next_n * p->num_heads * (p->head_dim / 2 + 4 + 4) + round_up(4 * p->next_n, 16) + 16 + 16;
    const int expanded = round_up(slots * p->num_heads * p->head_dim, 1024);
    const int made = weight_bytes(p, warpgroups, chunk_slots, chunks) + 2 * round_up(4 * slots, 16);
    return round_up(expanded + q_stages * loaded + made + CHUNK_TABLE_BYTES, 128);
}

static void check_plan(const attns_problem *p, const attns_plan *plan) {
    const int slots = value_of(plan, "CHUNK_SLOTS"), chunks = value_of(plan, "CHUNKS");
    const int columns = value_of(plan, "CHUNK_N"), registers = value_of(plan, "CHUNK_REGISTERS");
    const int warpgroups = value_of(plan, "MATH_WARPGROUPS");

    /* What the MMA takes, and operand numbers that follow the accumulators. */
    CHECK(columns == slots * p->num_heads && columns % 8 == 0 && columns <= MAX_COLUMNS);
    CHECK(slots * chunks >= p->next_n && slots * (chunks - 1) < p->next_n);
    CHECK(registers == columns / 2);
    char operands[64];
    snprintf(operands, sizeof operands, "{%%%d, %%%d, %%%d, %%%d}", registers, registers + 1, registers + 2,
             registers + 3);
    CHECK(strcmp(text_of(plan, "CHUNK_A"), operands) == 0);
    snprintf(operands, sizeof operands, "%%%d", registers + 4);
    CHECK(strcmp(text_of(plan, "CHUNK_B"), operands) == 0);

    /* One CTA an SM, whose warpgroups take tiles in turn, as do as many producer warps. Three or four take registers
     * from producers, which are a warpgroup then: as many as there are. Accumulators and a tile's keys have room in
     * what a thread has. */
    const int math = value_of(plan, "MATH_REGISTERS"), producer = value_of(plan, "PRODUCER_REGISTERS");
    const int warps = 4 * warpgroups + (math != 0 ? 4 : warpgroups);
    const int launched = QUARTER_REGISTERS / ((warps + 3) / 4) / 8 * 8;
    const int per_thread = math != 0 ? math : launched;
    CHECK(plan->min_ctas_per_sm == 1 && plan->max_ctas_per_sm == 1 && value_of(plan, "MAX_CTAS_PER_SM") == 1);
    CHECK(warpgroups >= 1 && warpgroups <= 4 && plan->threads == 32 * warps && plan->tile_tokens == TILE_TOKENS);
    CHECK((math != 0) == (warpgroups >= 3) && (producer != 0) == (math != 0));
    CHECK(math == 0 || (math > launched && producer < launched && producer >= 56));
    CHECK(math % 8 == 0 && producer % 8 == 0 && warpgroups * math + producer <= launched * (warpgroups + 1));
    CHECK(registers + p->head_dim / 8 + 32 <= per_thread);
    CHECK(warpgroups != 4 || (columns <= 64 && chunks == 1)); /* the template's mma.sync sums hold everything */

    /* Shared memory. */
    const int box = p->block_size < TILE_TOKENS ? p->block_size : TILE_TOKENS;
    const int scales = (p->kv_sf_interleaved ? p->block_size : box) * p->head_dim / 32;
    CHECK(plan->shared_fixed == fixed_bytes(p, value_of(plan, "Q_STAGES"), warpgroups, slots, chunks));
    CHECK(plan->shared_per_stage ==
          TILE_TOKENS * p->head_dim / 2 + TILE_TOKENS / box * (scales < 128 ? 128 : scales) + 128);
    CHECK(plan->stage_step == warpgroups && plan->min_stages % warpgroups == 0 && plan->max_stages % warpgroups == 0);
    CHECK(plan->min_stages >= 2 && plan->min_stages <= plan->max_stages);
    CHECK(plan->max_stages == attns_plan_stages(plan, 1));
    CHECK(plan->max_stages * TILE_TOKENS * p->head_dim / 2 <= RING_BYTES);
    const int bytes = attns_plan_shared_bytes(plan, plan->max_stages);
    CHECK(bytes <= plan->target.shared_bytes_per_block);
    CHECK(bytes + SYSTEM_BYTES <= plan->target.shared_bytes_per_sm);
}

static void test_every_problem(void **state) {
    (void)state;
    static const int block_sizes[] = {16, 32, 64, 128, 256, 128};
    attns_target target;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    for (int i = 0; i < 16 * 2 * 6 * 8 * 2; i++) {
        const attns_problem problem = {
            .kind = ATTNS_KERNEL_FP4_LOGITS,
            .num_heads = 8 + 8 * (i % 16),
            .head_dim = 64 << i / 16 % 2,
            .block_size = block_sizes[i / 32 % 6],
            .next_n = 1 + i / 192 % 8,
            .out_dtype = i < 1536 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32,
            .kv_sf_interleaved = i / 32 % 6 == 5,
        };
        attns_plan plan;
        assert_int_equal(attns_plan_make(&problem, &target, ATTNS_CHOOSE_TUNED, &plan), ATTNS_OK);
        check_plan(&problem, &plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_problem)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
