/* SPDX-License-Identifier: MIT
 *
 * The portable plan of every supported problem on every target against what the templates and the hardware ask of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "placeholders.h"
#include "testing.h"

enum { UNIT_TOKENS = 32, WALK_AND_NOTES = 32 * 44 + 64, CHUNK_TABLE_BYTES = 512 * 4, SYSTEM_BYTES = 1024 };

static const char *const archs[] = {"sm_80",  "sm_86",  "sm_87",  "sm_88",  "sm_89",   "sm_90",   "sm_90a",
                                    "sm_100", "sm_103", "sm_110", "sm_120", "sm_120a", "sm_121f", "compute_80"};
#define NUM_ARCHS (sizeof archs / sizeof archs[0])

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s for %s: %s", plan->name, plan->target.arch, #condition);                                      \
    } while (0)

/* Bytes of the operands of one slot's queries. */
static int query_bytes(const attns_problem *p, const attns_plan *plan) {
    const int values = p->num_heads * p->head_dim;
    if (p->kind == ATTNS_KERNEL_FP4_LOGITS)
        return value_of(plan, "NATIVE_MXF4") ? values / 2 : values * 2;
    return value_of(plan, "NATIVE_E4M3") ? values : values * 2;
}

static void check_plan(const attns_problem *p, const attns_plan *plan) {
    const bool is_fp4 = p->kind == ATTNS_KERNEL_FP4_LOGITS;
    const int warps = value_of(plan, "WARPS"), ctas = value_of(plan, "CTAS_PER_SM"), stages = value_of(plan, "STAGES");
    const int slots = value_of(plan, "CHUNK_SLOTS"), bytes = value_of(plan, "SHARED_BYTES");

    CHECK(plan->threads == 32 * warps && plan->tile_tokens == UNIT_TOKENS * warps);
    CHECK(plan->min_ctas_per_sm == ctas && plan->max_ctas_per_sm == ctas);
    CHECK(plan->min_stages == stages && plan->max_stages == stages && stages >= 1);
    CHECK(warps * ctas >= 8 && warps * ctas <= 12);
    /* Chunks of equal size, as few as possible, none of them empty. */
    CHECK(slots >= 1 && slots <= p->next_n);
    const int chunks = (p->next_n + slots - 1) / slots;
    CHECK(slots == (p->next_n + chunks - 1) / chunks);

    const int row = is_fp4 ? p->head_dim / 2 : p->head_dim;
    const int extra = !is_fp4 ? 0 : value_of(plan, "NATIVE_MXF4") ? 4 * p->num_heads : 16;
    const int fixed = p->next_n * (4 * p->num_heads + extra) + WALK_AND_NOTES + CHUNK_TABLE_BYTES;
    CHECK(bytes == slots * query_bytes(p, plan) + warps * stages * UNIT_TOKENS * (row + 4) + fixed);
    CHECK(bytes == attns_plan_shared_bytes(plan, stages));
    CHECK(bytes <= plan->target.shared_bytes_per_block);
    CHECK(ctas * (bytes + SYSTEM_BYTES) <= plan->target.shared_bytes_per_sm);
    /* Chunks only where one more slot would not have fitted in any way. */
    CHECK(chunks == 1 ||
          p->next_n * query_bytes(p, plan) + 8 * UNIT_TOKENS * (row + 4) + fixed > plan->target.shared_bytes_per_block);
}

static void test_every_problem_on_every_target(void **state) {
    (void)state;
    static const int block_sizes[] = {16, 32, 64, 128, 256};
    for (size_t a = 0; a < NUM_ARCHS; a++) {
        attns_target target;
        assert_int_equal(attns_target_from_arch(archs[a], &target), ATTNS_OK);
        for (int i = 0; i < 2 * 16 * 3 * 5 * 8; i++) {
            const bool is_fp4 = i % 2;
            attns_problem problem = {
                .kind = is_fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
                .num_heads = 8 + 8 * (i / 2 % 16),
                .head_dim = 32 << i / 32 % 3,
                .block_size = block_sizes[i / 96 % 5],
                .next_n = 1 + i / 480,
                .out_dtype = ATTNS_DTYPE_F32,
                .acc_dtype = is_fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
                .epi_dtype = is_fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F16,
            };
            if (is_fp4 && problem.head_dim == 32)
                continue;
            attns_plan plan;
            if (attns_plan_make(&problem, &target, ATTNS_CHOOSE_PORTABLE, &plan) != ATTNS_OK)
                fail_msg("%s", attns_last_error());
            check_plan(&problem, &plan);
        }
    }
}

/* What a target's tensor cores take: E4M3 on sm_89 and sm_12x; block scales on sm_12x with a suffix; a chip that nobody
 * knows has what every chip has. */
static void test_operands(void **state) {
    (void)state;
    static const struct {
        int capability;
        const char *arch;
        bool e4m3, mxf4;
    } rows[] = {
        {80, "sm_80", false, false},        {86, "sm_86", false, false},    {89, "sm_89", true, false},
        {90, "sm_90a", false, false},       {100, "sm_100a", false, false}, {110, "sm_110a", false, false},
        {120, "sm_120a", true, true},       {120, "sm_120f", true, true},   {120, "sm_120", true, false},
        {121, "sm_121a", true, true},       {130, "sm_130", false, false},  {89, "compute_89", true, false},
        {100, "compute_100", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        attns_target found[ATTNS_MAX_TARGETS];
        size_t count = 0, at = 0;
        assert_int_equal(attns_targets_of_device(rows[i].capability, found, &count), ATTNS_OK);
        while (at < count && strcmp(found[at].arch, rows[i].arch) != 0)
            at++;
        if (at == count)
            fail_msg("%s is no target of %d", rows[i].arch, rows[i].capability);
        attns_problem problem = {.kind = ATTNS_KERNEL_FP8_LOGITS,
                                 .num_heads = 64,
                                 .head_dim = 128,
                                 .block_size = 64,
                                 .next_n = 1,
                                 .out_dtype = ATTNS_DTYPE_F32,
                                 .acc_dtype = ATTNS_DTYPE_F32,
                                 .epi_dtype = ATTNS_DTYPE_F32};
        attns_plan plan;
        assert_int_equal(attns_plan_make(&problem, &found[at], ATTNS_CHOOSE_PORTABLE, &plan), ATTNS_OK);
        assert_int_equal(value_of(&plan, "NATIVE_E4M3"), rows[i].e4m3);
        problem.kind = ATTNS_KERNEL_FP4_LOGITS;
        problem.acc_dtype = problem.epi_dtype = ATTNS_DTYPE_DEFAULT;
        assert_int_equal(attns_plan_make(&problem, &found[at], ATTNS_CHOOSE_PORTABLE, &plan), ATTNS_OK);
        assert_int_equal(value_of(&plan, "NATIVE_MXF4"), rows[i].mxf4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_problem_on_every_target),
        cmocka_unit_test(test_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
