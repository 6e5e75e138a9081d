/* SPDX-License-Identifier: MIT
 *
 * The plans of indexer_scores on every target against what the kernel and the hardware require of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/template.h"
#include "plan/plan.h"
#include "placeholders.h"
#include "testing.h"

static const char *const archs[] = {"sm_80",   "sm_86",   "sm_87",   "sm_88",   "sm_89",   "sm_90",      "sm_90a",
                                    "sm_100",  "sm_100f", "sm_100a", "sm_103",  "sm_103a", "sm_107a",    "sm_110",
                                    "sm_110a", "sm_120",  "sm_120f", "sm_120a", "sm_121a", "compute_80", "compute_90"};
#define NUM_ARCHS (sizeof archs / sizeof archs[0])

enum {
    CHUNK_TABLE_BYTES = 512 * 8,     /* 64-bit sums of MAX_CHUNKS of lib/schedule.cuh */
    NOTES_BYTES = 32 * 16 + 32 * 12, /* of a warp: a Unit of 4 words and 3 words of a group for each lane */
    SYSTEM_BYTES = 1024,             /* shared memory that the system takes of an SM for each CTA */
    SM_REGISTERS = 64 * 1024,        /* of every target */
    SM_THREADS = 1536,               /* the least of any target */
    SM_CTAS = 16,                    /* likewise */
    TILE_KEYS = 16,
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
        CHECK(plan.tile_tokens % TILE_KEYS == 0 && 64 % plan.tile_tokens == 0); /* a unit lies in one page */
    }
}

/* An SM has room for all warps, as one CTA and as the small ones. */
static void test_both_launches_fill_an_sm(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * NUM_ARCHS; i++) {
        const attns_plan plan = plan_of(archs[i / 2], i % 2);
        CHECK(plan.shared_fixed == CHUNK_TABLE_BYTES && plan.shared_fixed % 16 == 0);
        CHECK(plan.shared_per_stage == NOTES_BYTES && plan.shared_per_stage % 16 == 0);
        CHECK(plan.min_ctas_per_sm == 1 && plan.max_ctas_per_sm <= SM_CTAS);
        CHECK(plan.max_stages == value_of(&plan, "MAX_WARPS"));
        CHECK(plan.min_stages * plan.max_ctas_per_sm == plan.max_stages);
        CHECK(plan.threads <= SM_THREADS);
        CHECK(attns_plan_shared_bytes(&plan, plan.max_stages) <= 48 * 1024); /* no need to ask for it */
        CHECK(plan.max_ctas_per_sm * (attns_plan_shared_bytes(&plan, plan.min_stages) + SYSTEM_BYTES) <=
              plan.target.shared_bytes_per_sm / 2); /* the rest is L1, where queries are */
    }
}

/* A lane has room for the keys of a unit, which are on their way while it works; and all warps' units are enough bytes
 * to cover memory's latency: 4.8 TB/s and 132 SMs for 0.7 us are 25 KB. */
static void test_keys_under_way(void **state) {
    (void)state;
    for (int nvfp4 = 0; nvfp4 < 2; nvfp4++) {
        const attns_plan plan = plan_of("sm_90a", nvfp4);
        const int unit_bytes = plan.tile_tokens * (nvfp4 ? 64 + 8 : 256);
        assert_true(unit_bytes / 32 / 4 <= SM_REGISTERS / plan.threads / 2);
        assert_true(plan.max_stages * unit_bytes >= 25 * 1024);
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
        cmocka_unit_test(test_both_launches_fill_an_sm),
        cmocka_unit_test(test_keys_under_way),
        cmocka_unit_test(test_template_and_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
