/* SPDX-License-Identifier: MIT
 *
 * The plans of indexer_scores on every target against what the kernel and the hardware require of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/template.h"
#include "plan/plan.h"
#include "testing.h"

static const char *const archs[] = {"sm_80",   "sm_86",   "sm_87",   "sm_88",   "sm_89",   "sm_90",      "sm_90a",
                                    "sm_100",  "sm_100f", "sm_100a", "sm_103",  "sm_103a", "sm_107a",    "sm_110",
                                    "sm_110a", "sm_120",  "sm_120f", "sm_120a", "sm_121a", "compute_80", "compute_90"};
#define NUM_ARCHS (sizeof archs / sizeof archs[0])

enum {
    CHUNK_TABLE_BYTES = 512 * 8, /* 64-bit sums of MAX_CHUNKS of lib/schedule.cuh */
    SYSTEM_BYTES = 1024,         /* shared memory that the system takes of an SM for each CTA */
    NOTE_BYTES = 16,
    MIN_CTA_WARPS = 4, /* smaller ones would be bound by how many CTAs an SM takes */
};

static const attns_problem problems[] = {{.kind = ATTNS_KERNEL_INDEXER_BF16}, {.kind = ATTNS_KERNEL_INDEXER_NVFP4}};
static const char *const names[] = {"indexer_scores_bf16", "indexer_scores_nvfp4"};

static attns_plan plan_of(const char *arch, int format) {
    attns_target target;
    attns_plan plan;
    if (attns_target_from_arch(arch, &target) != ATTNS_OK ||
        attns_plan_make(&problems[format], &target, ATTNS_CHOOSE_AUTO, &plan) != ATTNS_OK)
        fail_msg("%s: %s", arch, attns_last_error());
    return plan;
}

static int value_of(const attns_plan *plan, const char *placeholder) {
    for (size_t i = 0; i < plan->num_placeholders; i++)
        if (strcmp(plan->placeholders[i].name, placeholder) == 0)
            return atoi(plan->placeholders[i].value);
    fail_msg("%s: there is no placeholder %s", plan->name, placeholder);
    return 0;
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s for %s: %s", plan.name, archs[i / 2], #condition);                                            \
    } while (0)

static void test_shape(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * NUM_ARCHS; i++) {
        const bool nvfp4 = i % 2;
        const attns_plan plan = plan_of(archs[i / 2], nvfp4);
        CHECK(strcmp(plan.name, names[nvfp4]) == 0);
        CHECK(plan.family == ATTNS_FAMILY_NONE);
        CHECK(value_of(&plan, "NVFP4") == nvfp4);
        CHECK(plan.threads == 32 * value_of(&plan, "MAX_WARPS") && plan.threads <= 1024);
        CHECK(plan.max_stages >= MIN_CTA_WARPS && plan.max_stages <= value_of(&plan, "MAX_WARPS"));
        CHECK(value_of(&plan, "STAGES") >= 2);
        CHECK(64 % plan.tile_tokens == 0); /* a unit lies in one page */
    }
}

/* A warp's ring is STAGES units: rows of values, with NVFP4 4 bytes of scales for each of the 4 lanes of a row, a note.
 */
static void test_shared_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * NUM_ARCHS; i++) {
        const bool nvfp4 = i % 2;
        const attns_plan plan = plan_of(archs[i / 2], nvfp4);
        const int unit = plan.tile_tokens * (nvfp4 ? 64 + 4 * 4 : 256) + NOTE_BYTES;
        CHECK(plan.shared_fixed == CHUNK_TABLE_BYTES && plan.shared_fixed % 16 == 0);
        CHECK(plan.shared_per_stage == value_of(&plan, "STAGES") * unit && unit % 16 == 0);
        const int large = attns_plan_shared_bytes(&plan, plan.max_stages);
        CHECK(large <= plan.target.shared_bytes_per_block);
        CHECK(large + SYSTEM_BYTES <= plan.target.shared_bytes_per_sm);
        for (int ctas = plan.min_ctas_per_sm; ctas <= plan.max_ctas_per_sm; ctas++)
            CHECK(ctas * (attns_plan_shared_bytes(&plan, MIN_CTA_WARPS) + SYSTEM_BYTES) <=
                  plan.target.shared_bytes_per_sm);
        CHECK(plan.max_ctas_per_sm * MIN_CTA_WARPS * 32 <= 1536); /* threads of an SM, the least of any target */
    }
}

/* Enough bytes under way on an SM to cover memory's latency: 4.8 TB/s and 132 SMs for 0.7 us are 25 KB. */
static void test_bytes_under_way(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        const attns_plan plan = plan_of("sm_90a", format);
        const int stages = value_of(&plan, "STAGES");
        assert_true(plan.max_ctas_per_sm * MIN_CTA_WARPS * plan.shared_per_stage / stages * (stages - 1) >= 25 * 1024);
    }
}

/* One kernel on every target, whatever families are asked for; its template takes exactly what the plan gives. */
static void test_template_and_choice(void **state) {
    (void)state;
    static const attns_family_choice choices[] = {ATTNS_CHOOSE_AUTO, ATTNS_CHOOSE_TUNED, ATTNS_CHOOSE_PORTABLE};
    for (size_t i = 0; i < 2 * NUM_ARCHS; i++) {
        const attns_plan plan = plan_of(archs[i / 2], i % 2);
        for (int choice = 0; choice < 3; choice++) {
            attns_plan other;
            CHECK(attns_plan_make(&problems[i % 2], &plan.target, choices[choice], &other) == ATTNS_OK);
            CHECK(memcmp(&plan, &other, sizeof plan) == 0);
            attns_selection selection;
            CHECK(attns_plan_select(&problems[i % 2], &plan.target, choices[choice], &selection) == ATTNS_OK);
            CHECK(selection.family == ATTNS_FAMILY_NONE);
            CHECK(strcmp(selection.reason, "the same kernel on every target") == 0);
        }
        char *source = NULL;
        CHECK(attns_template_fill(NULL, plan.template_file, plan.placeholders, plan.num_placeholders, &source) ==
              ATTNS_OK);
        CHECK(strstr(source, plan.entry) != NULL);
        free(source);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_bytes_under_way),
        cmocka_unit_test(test_template_and_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
