/* SPDX-License-Identifier: MIT
 *
 * The plan of every supported problem against what the kernel and the hardware require of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/template.h"
#include "plan/plan.h"
#include "placeholders.h"
#include "testing.h"

enum {
    TILE_TOKENS = 64,
    CHUNK_TABLE_BYTES = 512 * 4, /* MAX_CHUNKS of lib/schedule.cuh */
    SYSTEM_BYTES = 1024,         /* shared memory that the system takes of an SM for each CTA */
    SWIZZLE_ROWS = 8,
    NUM_PROBLEMS = 16 * 3 * 5 * 8 * 3 * 2 * 2,
};

/* Ends the test with the problem's name and the condition that it breaks. */
#define CHECK(plan, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s: %s", (plan)->name, #condition);                                                              \
    } while (0)

/* ---- Problems ---- */

static attns_target sm90(void) {
    attns_target target;
    assert_int_equal(attns_target_from_arch("sm_90a", &target), ATTNS_OK);
    return target;
}

static attns_plan plan_of(const attns_problem *problem) {
    const attns_target target = sm90();
    attns_plan plan;
    if (attns_plan_make(problem, &target, ATTNS_CHOOSE_AUTO, &plan) != ATTNS_OK)
        fail_msg("h%d d%d b%d n%d: %s", problem->num_heads, problem->head_dim, problem->block_size, problem->next_n,
                 attns_last_error());
    return plan;
}

/* Supported problem number `index` of NUM_PROBLEMS. */
static attns_problem problem_at(int index) {
    static const int block_sizes[] = {16, 32, 64, 128, 256};
    static const int head_dims[] = {32, 64, 128};
    static const attns_dtype dtypes[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    attns_problem problem = {.kind = ATTNS_KERNEL_FP8_LOGITS};
    problem.epi_dtype = (int32_t)dtypes[index % 2], index /= 2;
    problem.acc_dtype = (int32_t)dtypes[index % 2], index /= 2;
    problem.out_dtype = (int32_t)dtypes[index % 3], index /= 3;
    problem.next_n = 1 + index % 8, index /= 8;
    problem.block_size = block_sizes[index % 5], index /= 5;
    problem.head_dim = head_dims[index % 3], index /= 3;
    problem.num_heads = 8 * (1 + index);
    return problem;
}

/* Calls `check` with every supported problem and its plan, and where much work has another kernel, with that. */
static void for_every_plan(void (*check)(const attns_problem *problem, const attns_plan *plan)) {
    for (int i = 0; i < NUM_PROBLEMS; i++) {
        const attns_problem problem = problem_at(i);
        const attns_plan plan = plan_of(&problem);
        check(&problem, &plan);
        if (plan.much_tiles != 0) {
            attns_problem much = problem;
            much.much_work = 1;
            const attns_plan much_plan = plan_of(&much);
            check(&much, &much_plan);
        }
    }
}

static int total_slots(const attns_plan *plan) {
    return value_of(plan, "CHUNK_SLOTS") * value_of(plan, "CHUNKS") * value_of(plan, "SLOT_GROUPS");
}

static int round_up(int a, int b) {
    return (a + b - 1) / b * b;
}

/* ---- Shape ---- */

static void check_shape(const attns_problem *problem, const attns_plan *plan) {
    const int columns = value_of(plan, "CHUNK_N");
    CHECK(plan, columns == value_of(plan, "CHUNK_SLOTS") * problem->num_heads);
    CHECK(plan, columns % 8 == 0 && columns >= 8 && columns <= 256);

    /* Every query slot is scored, every group of warpgroups has one, and at most one slot is computed in vain: where
     * next_n cannot be cut into pieces of one size. */
    const int slots = total_slots(plan);
    const int wasted = slots - problem->next_n;
    CHECK(plan, wasted == 0 || wasted == 1);
    CHECK(plan, wasted == 0 || problem->next_n % (value_of(plan, "CHUNKS") * value_of(plan, "SLOT_GROUPS")) != 0);
    const int slot_groups = value_of(plan, "SLOT_GROUPS");
    CHECK(plan, problem->next_n > slots / slot_groups * (slot_groups - 1));

    /* Warpgroups that deal out the slots are a team. Teams take tiles in turn, always in the same stages, and so do as
     * many producer warps; registers change hands by warpgroups. */
    const int warpgroups = value_of(plan, "MATH_WARPGROUPS");
    CHECK(plan, slot_groups >= 1 && warpgroups >= slot_groups && warpgroups % slot_groups == 0);
    const int teams = warpgroups / slot_groups;
    CHECK(plan, teams <= 4 && plan->stage_step == teams);
    const int producer_warps = value_of(plan, "MATH_REGISTERS") != 0 ? 4 : teams;
    CHECK(plan, plan->threads == 32 * (4 * warpgroups + producer_warps));
    CHECK(plan, plan->min_ctas_per_sm >= 1 && plan->min_ctas_per_sm <= plan->max_ctas_per_sm);
    const int q_stages = value_of(plan, "Q_STAGES");
    CHECK(plan, q_stages >= 1 && q_stages <= 32); /* a lane each initialises their barriers */
    CHECK(plan, plan->family == ATTNS_FAMILY_SM90 && plan->tile_tokens == TILE_TOKENS);
}

static void test_shape(void **state) {
    (void)state;
    for_every_plan(check_shape);
}

/* ---- Registers ---- */

/* What the launch bounds leave a thread: each quarter of an SM has 512 registers for each lane, shared by the warps it
 * holds and given out in units of 8; one thread cannot have more than 255. */
static int registers_of_thread(const attns_plan *plan) {
    const int warps = plan->threads / 32 * plan->max_ctas_per_sm;
    const int registers = 512 / ((warps + 3) / 4) / 8 * 8;
    return registers < 255 ? registers : 255;
}

static void check_registers(const attns_problem *problem, const attns_plan *plan) {
    enum { ADDRESSES_AND_COUNTERS = 24 };
    CHECK(plan, plan->threads <= 1024 && plan->threads * plan->max_ctas_per_sm <= 2048);
    CHECK(plan, registers_of_thread(plan) * plan->threads * plan->max_ctas_per_sm <= 65536);

    const int columns = value_of(plan, "CHUNK_N");
    const int accumulators = value_of(plan, "CHUNK_REGISTERS");
    CHECK(plan, accumulators == (problem->acc_dtype == ATTNS_DTYPE_F16 ? columns / 4 : columns / 2));
    CHECK(plan, value_of(plan, "CHUNK_B") == accumulators + 1);

    /* A lane holds the weights of two of each 8 heads, or some of them, and two rows of each slot of the last chunk. In
     * straight-line code, its address and limit of every pair of slots. */
    const int weights = 2 * value_of(plan, "WEIGHTS_IN_REGISTERS");
    CHECK(plan, weights >= 0 && weights <= value_of(plan, "CHUNKS") * columns / 4);
    const int sums = 2 * value_of(plan, "CHUNK_SLOTS");
    const int math = value_of(plan, "MATH_REGISTERS"), producer = value_of(plan, "PRODUCER_REGISTERS");
    if (math == 0) {
        CHECK(plan, accumulators + weights + sums + ADDRESSES_AND_COUNTERS <= registers_of_thread(plan));
        return;
    }
    const int warpgroups = value_of(plan, "MATH_WARPGROUPS");
    const int pairs = value_of(plan, "CHUNKS") * ((value_of(plan, "CHUNK_SLOTS") + 1) / 2);
    CHECK(plan, accumulators + sums + weights + 3 * pairs + 12 <= math);
    CHECK(plan, math % 8 == 0 && producer % 8 == 0 && producer >= 56 && math <= 255);
    CHECK(plan, warpgroups * math + producer <= registers_of_thread(plan) * (warpgroups + 1));
    CHECK(plan, producer < registers_of_thread(plan) && math > registers_of_thread(plan));
}

static void test_registers(void **state) {
    (void)state;
    for_every_plan(check_registers);
}

/* ---- Shared memory ---- */

/* Offsets from the dynamic shared memory's base, as `struct Layout` of the template has them. */
typedef struct layout {
    int queries, keys, scales, barriers, weights, limits, notes, q_barriers, chunk_table, end;
    int box_bytes, box_scale_bytes; /* of one TMA copy into `keys`, and its pitch in `scales` */
} layout;

static layout layout_of(const attns_problem *problem, const attns_plan *plan, int stages) {
    const int q_stages = value_of(plan, "Q_STAGES");
    const int q_bytes = problem->next_n * problem->num_heads * problem->head_dim;
    const int box_tokens = problem->block_size < TILE_TOKENS ? problem->block_size : TILE_TOKENS;
    layout at = {.box_bytes = box_tokens * problem->head_dim,
                 .box_scale_bytes = 4 * (box_tokens < 32 ? 32 : box_tokens)};
    at.keys = round_up(q_stages * q_bytes, 1024);
    at.scales = at.keys + stages * TILE_TOKENS * problem->head_dim;
    at.barriers = at.scales + stages * (TILE_TOKENS / box_tokens) * at.box_scale_bytes;
    at.weights = at.barriers + stages * 16;
    at.limits = at.weights + q_stages * problem->next_n * problem->num_heads * 4;
    at.notes = at.limits + q_stages * round_up(problem->next_n * 4, 16);
    at.q_barriers = at.notes + q_stages * 16;
    at.chunk_table = at.q_barriers + q_stages * 16;
    at.end = at.chunk_table + CHUNK_TABLE_BYTES;
    return at;
}

static int dynamic_bytes(const attns_plan *plan, int stages) {
    return plan->shared_fixed + stages * plan->shared_per_stage;
}

static void check_shared_memory(const attns_problem *problem, const attns_plan *plan) {
    const int step = plan->stage_step;
    CHECK(plan, step >= 1 && plan->min_stages >= 2 && plan->min_stages % step == 0);
    CHECK(plan, plan->max_stages == attns_plan_stages(plan, plan->min_ctas_per_sm));
    CHECK(plan, dynamic_bytes(plan, plan->max_stages) <= plan->target.shared_bytes_per_block);
    for (int ctas = plan->min_ctas_per_sm; ctas <= plan->max_ctas_per_sm; ctas++) {
        const int stages = attns_plan_stages(plan, ctas);
        CHECK(plan, stages >= plan->min_stages && stages <= plan->max_stages);
        CHECK(plan, stages % step == 0);
        CHECK(plan, stages >= 4); /* fewer loads in flight do not cover the latency of memory */
        CHECK(plan, dynamic_bytes(plan, stages) <= plan->target.shared_bytes_per_block);
        CHECK(plan, ctas * (dynamic_bytes(plan, stages) + SYSTEM_BYTES) <= plan->target.shared_bytes_per_sm);
        /* Nothing that fits is left unused, but for what only lengthens the queue to memory. */
        const int large_ring = value_of(plan, "MATH_REGISTERS") != 0 ? 96 : 0;
        const int ring = plan->min_ctas_per_sm > 1 ? 32 : large_ring; /* KB */
        const int limit = ring == 0 ? 32 : ring * 1024 / (TILE_TOKENS * problem->head_dim);
        CHECK(plan, stages <= limit);
        CHECK(plan, stages + step > limit || dynamic_bytes(plan, stages + step) > plan->target.shared_bytes_per_block ||
                        ctas * (dynamic_bytes(plan, stages + step) + SYSTEM_BYTES) > plan->target.shared_bytes_per_sm);
    }

    const int exclusive = attns_plan_exclusive_bytes(plan) + SYSTEM_BYTES;
    CHECK(plan, (plan->max_ctas_per_sm + 1) * exclusive > plan->target.shared_bytes_per_sm);
    /* Given out in 128 bytes. */
    CHECK(plan, plan->max_ctas_per_sm * (exclusive + 127) <= plan->target.shared_bytes_per_sm);

    for (int stages = plan->min_stages; stages <= plan->max_stages; stages += step) {
        const layout at = layout_of(problem, plan, stages);
        CHECK(plan, at.end == dynamic_bytes(plan, stages));
        /* Operands start where their swizzle pattern does; so do all slots of a Q stage. TMA writes to multiples of
         * 128 bytes, bulk copies to multiples of 16. */
        const int pattern = SWIZZLE_ROWS * problem->head_dim;
        CHECK(plan, at.keys % pattern == 0 && at.box_bytes % pattern == 0);
        CHECK(plan, problem->num_heads * problem->head_dim % pattern == 0);
        CHECK(plan, at.scales % 128 == 0 && at.box_scale_bytes % 128 == 0);
        CHECK(plan, at.barriers % 16 == 0 && at.weights % 16 == 0 && problem->num_heads * 4 % 16 == 0);
        CHECK(plan, at.notes % 16 == 0 && at.q_barriers % 16 == 0 && at.chunk_table % 4 == 0);
    }
}

static void test_shared_memory(void **state) {
    (void)state;
    for_every_plan(check_shared_memory);
}

/* The kernel computes padding slots from what lies behind a stage: that has to be memory of the CTA, also with the
 * shortest ring and in the last stage. */
static void check_reads_of_padding(const attns_problem *problem, const attns_plan *plan) {
    const layout at = layout_of(problem, plan, plan->min_stages);
    const int slots = total_slots(plan);
    const int last = value_of(plan, "Q_STAGES") - 1;
    const int slot_bytes = problem->num_heads * problem->head_dim;
    const int slot_weights = problem->num_heads * 4;
    CHECK(plan, at.queries + last * problem->next_n * slot_bytes + slots * slot_bytes <= at.end);
    CHECK(plan, at.weights + last * problem->next_n * slot_weights + slots * slot_weights <= at.end);
    /* Lanes of a pair's upper slot also read the limit after an odd chunk's last one. */
    CHECK(plan, at.limits + last * round_up(problem->next_n * 4, 16) + (slots + 1) * 4 <= at.end);
}

static void test_padding_is_read_inside_shared_memory(void **state) {
    (void)state;
    for_every_plan(check_reads_of_padding);
}

/* ---- Kernels for little and for much work ---- */

/* Small CTAs share an SM, or one large CTA has it, with few or many warpgroups; nothing else about the problem
 * differs. */
static void check_sizes(const attns_problem *problem, const attns_plan *plan) {
    const int columns = problem->num_heads * problem->next_n;
    const bool large = problem->block_size >= 64 && problem->epi_dtype == ATTNS_DTYPE_F32;
    const bool few_or_many = large && columns > 192 && columns <= 256;
    const bool two = few_or_many || (large && columns > 64 && columns <= 128);
    CHECK(plan, plan->much_tiles == (two ? 96 : 0));
    attns_problem other = *problem;
    other.much_work = !problem->much_work;
    if (!two) {
        const attns_target target = sm90();
        attns_plan none;
        CHECK(plan, attns_plan_make(&other, &target, ATTNS_CHOOSE_AUTO, &none) == ATTNS_ERROR_UNSUPPORTED);
        assert_contains(attns_last_error(), "much_work: is 1, accepted: 0");
        return;
    }
    const attns_plan other_plan = plan_of(&other);
    const attns_plan *const much = problem->much_work ? plan : &other_plan;
    const attns_plan *const little = problem->much_work ? &other_plan : plan;
    CHECK(plan, other_plan.much_tiles == plan->much_tiles);
    CHECK(plan, much->max_ctas_per_sm == 1 && little->min_ctas_per_sm == (few_or_many ? 1 : 2));
    CHECK(plan, value_of(little, "MATH_WARPGROUPS") == (few_or_many ? 2 : 1));
    CHECK(plan, value_of(much, "MATH_WARPGROUPS") == 3);
    CHECK(plan, value_of(little, "CHUNK_N") == columns || !few_or_many); /* one wide wgmma against several */
    CHECK(plan, value_of(much, "CHUNK_N") <= 128 && much->max_stages >= 8);
    const size_t length = strlen(little->name);
    CHECK(plan, strncmp(much->name, little->name, length) == 0 && strcmp(much->name + length, " much work") == 0);
}

static void test_sizes(void **state) {
    (void)state;
    for_every_plan(check_sizes);
    attns_problem problem = problem_at(0);
    problem.much_work = 2;
    const attns_target target = sm90();
    attns_plan plan;
    assert_int_equal(attns_plan_make(&problem, &target, ATTNS_CHOOSE_AUTO, &plan), ATTNS_ERROR_UNSUPPORTED);
    assert_contains(attns_last_error(), "much_work: is 2, accepted: 0, 1");
    problem.much_work = 1; /* the portable kernels have one size */
    assert_int_equal(attns_plan_make(&problem, &target, ATTNS_CHOOSE_PORTABLE, &plan), ATTNS_ERROR_UNSUPPORTED);
}

static void test_what_is_much_work(void **state) {
    (void)state;
    const attns_plan one = {.much_tiles = 0}, two = {.much_tiles = 96};
    static const int sms[] = {1, 4, 132, 100000000};
    for (size_t i = 0; i < sizeof sms / sizeof sms[0]; i++) {
        const int64_t enough = (int64_t)96 * sms[i];
        assert_false(attns_plan_has_much_work(&two, 0, sms[i]));
        assert_false(attns_plan_has_much_work(&two, enough - 1, sms[i]));
        assert_true(attns_plan_has_much_work(&two, enough, sms[i]));
        assert_true(attns_plan_has_much_work(&two, INT64_MAX, sms[i]));
        assert_false(attns_plan_has_much_work(&one, INT64_MAX, sms[i]));
    }
}

/* ---- Names and placeholders ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static void test_names_are_distinct(void **state) {
    (void)state;
    typedef char name[sizeof((attns_plan *)0)->name];
    name *names = calloc(NUM_PROBLEMS + 1, sizeof *names);
    assert_non_null(names);
    for (int i = 0; i < NUM_PROBLEMS; i++) {
        const attns_problem problem = problem_at(i);
        memcpy(names[i], plan_of(&problem).name, sizeof *names);
        assert_true(strlen(names[i]) + 1 < sizeof *names); /* none was cut off */
    }
    const attns_problem schedule = {.kind = ATTNS_KERNEL_SCHEDULE};
    memcpy(names[NUM_PROBLEMS], plan_of(&schedule).name, sizeof *names);
    qsort(names, NUM_PROBLEMS + 1, sizeof *names, compare_names);
    for (int i = 0; i < NUM_PROBLEMS; i++)
        assert_string_not_equal(names[i], names[i + 1]);
    free(names);

    const attns_problem problem = {.kind = ATTNS_KERNEL_FP8_LOGITS,
                                   .num_heads = 104,
                                   .head_dim = 64,
                                   .block_size = 16,
                                   .next_n = 5,
                                   .out_dtype = ATTNS_DTYPE_BF16,
                                   .acc_dtype = ATTNS_DTYPE_F16,
                                   .epi_dtype = ATTNS_DTYPE_F32};
    assert_string_equal(plan_of(&problem).name, "fp8_paged_mqa_logits h104 d64 b16 n5 out=bf16 acc=f16 epi=f32");
}

static void check_placeholders(const attns_problem *problem, const attns_plan *plan) {
    static const char *const output[] = {
        [ATTNS_DTYPE_F32] = "float", [ATTNS_DTYPE_F16] = "Half", [ATTNS_DTYPE_BF16] = "Bfloat16"};
    CHECK(plan, plan->num_placeholders > 0 && plan->num_placeholders <= ATTNS_MAX_PLACEHOLDERS);
    CHECK(plan, value_of(plan, "NUM_HEADS") == problem->num_heads);
    CHECK(plan, value_of(plan, "HEAD_DIM") == problem->head_dim);
    CHECK(plan, value_of(plan, "BLOCK_SIZE") == problem->block_size);
    CHECK(plan, value_of(plan, "NEXT_N") == problem->next_n);
    CHECK(plan, value_of(plan, "MAX_CTAS_PER_SM") == plan->max_ctas_per_sm);
    CHECK(plan, value_of(plan, "ACC_F16") == (problem->acc_dtype == ATTNS_DTYPE_F16));
    CHECK(plan, value_of(plan, "EPI_F16") == (problem->epi_dtype == ATTNS_DTYPE_F16));
    CHECK(plan, strcmp(text_of(plan, "OUT_TYPE"), output[problem->out_dtype]) == 0);
}

static void test_placeholders_say_what_the_plan_says(void **state) {
    (void)state;
    for_every_plan(check_placeholders);
}

static attns_status fill(const attns_plan *plan, const attns_placeholder *placeholders, size_t count, char **source) {
    return attns_template_fill(NULL, plan->template_file, placeholders, count, source);
}

/* The list is exactly what the template uses: complete it fills it, without any one of its entries it does not. */
static void check_filling(const attns_plan *plan) {
    char *source = NULL;
    if (fill(plan, plan->placeholders, plan->num_placeholders, &source) != ATTNS_OK)
        fail_msg("%s: %s", plan->name, attns_last_error());
    assert_contains(source, plan->entry);
    free(source);

    attns_placeholder others[ATTNS_MAX_PLACEHOLDERS + 1];
    for (size_t left_out = 0; left_out < plan->num_placeholders; left_out++) {
        size_t count = 0;
        for (size_t i = 0; i < plan->num_placeholders; i++)
            if (i != left_out)
                others[count++] = plan->placeholders[i];
        CHECK(plan, fill(plan, others, count, &source) == ATTNS_ERROR_INTERNAL);
        assert_contains(attns_last_error(), plan->placeholders[left_out].name);
    }
    memcpy(others, plan->placeholders, sizeof plan->placeholders);
    others[plan->num_placeholders] = (attns_placeholder){.name = "UNHEARD_OF", .value = "1"};
    CHECK(plan, fill(plan, others, plan->num_placeholders + 1, &source) == ATTNS_ERROR_INTERNAL);
    assert_contains(attns_last_error(), "UNHEARD_OF");
}

static void test_plans_fill_their_templates(void **state) {
    (void)state;
    for (int i = 0; i < NUM_PROBLEMS; i += NUM_PROBLEMS / 23) {
        const attns_problem problem = problem_at(i);
        const attns_plan plan = plan_of(&problem);
        check_filling(&plan);
    }
    const attns_problem schedule = {.kind = ATTNS_KERNEL_SCHEDULE};
    const attns_plan plan = plan_of(&schedule);
    check_filling(&plan);
}

static const char *embedded(const char *name) {
    for (const attns_embedded_file *file = attns_embedded_templates; file->name; file++)
        if (strcmp(file->name, name) == 0)
            return file->text;
    fail_msg("there is no template %s", name);
    return NULL;
}

/* The lists of asm operands are written out for some numbers of registers only. */
static void test_operand_lists_exist(void **state) {
    (void)state;
    const char *const wgmma = embedded("lib/wgmma.cuh");
    bool seen[256] = {false};
    for (int i = 0; i < NUM_PROBLEMS; i++) {
        const attns_problem problem = problem_at(i);
        const attns_plan plan = plan_of(&problem);
        const int registers = value_of(&plan, "CHUNK_REGISTERS");
        CHECK(&plan, registers > 0 && registers <= 128);
        if (seen[registers])
            continue;
        seen[registers] = true;
        char names[64], operands[64];
        snprintf(names, sizeof names, "#define WGMMA_NAMES_%d ", registers);
        snprintf(operands, sizeof operands, "#define WGMMA_OPERANDS_%d(", registers);
        assert_contains(wgmma, names);
        assert_contains(wgmma, operands);
    }
    assert_contains(embedded("lib/schedule.cuh"), "MAX_CHUNKS = 512;"); /* CHUNK_TABLE_BYTES */
    assert_contains(embedded("lib/schedule.cuh"), "TILE_TOKENS = 64;");
}

static void test_schedule_kernel(void **state) {
    (void)state;
    const attns_problem problem = {.kind = ATTNS_KERNEL_SCHEDULE};
    const attns_plan plan = plan_of(&problem);
    assert_string_equal(plan.template_file, "schedule.cu");
    assert_contains(embedded(plan.template_file), plan.entry);
    assert_int_equal(plan.num_placeholders, 0);
    assert_true(plan.threads > 0 && plan.threads <= 1024 && plan.threads % 32 == 0);
    char threads[32];
    snprintf(threads, sizeof threads, "THREADS = %d;", plan.threads);
    assert_contains(embedded(plan.template_file), threads);
    assert_int_equal(plan.shared_fixed, 0); /* dynamic; the template's own is static */
    assert_int_equal(plan.shared_per_stage, 0);
}

/* ---- Purity ---- */

/* Whatever the memory held before, whatever was planned in between. */
static void test_same_input_same_bytes(void **state) {
    (void)state;
    attns_target first_target, second_target;
    memset(&first_target, 0xaa, sizeof first_target);
    memset(&second_target, 0x55, sizeof second_target);
    assert_int_equal(attns_target_from_arch("sm_90a", &first_target), ATTNS_OK);
    assert_int_equal(attns_target_from_arch("sm_90a", &second_target), ATTNS_OK);
    assert_memory_equal(&first_target, &second_target, sizeof first_target);
    for (int i = 0; i < NUM_PROBLEMS; i++) {
        const attns_problem problem = problem_at(i), other = problem_at((i * 7 + 5) % NUM_PROBLEMS);
        const attns_problem problem_before = problem;
        attns_plan first, second, between;
        memset(&first, 0xaa, sizeof first);
        memset(&second, 0x55, sizeof second);
        assert_int_equal(attns_plan_make(&problem, &first_target, ATTNS_CHOOSE_AUTO, &first), ATTNS_OK);
        assert_int_equal(attns_plan_make(&other, &first_target, ATTNS_CHOOSE_AUTO, &between), ATTNS_OK);
        assert_int_equal(attns_plan_make(&problem, &second_target, ATTNS_CHOOSE_AUTO, &second), ATTNS_OK);
        CHECK(&first, memcmp(&first, &second, sizeof first) == 0);
        CHECK(&first, memcmp(&problem, &problem_before, sizeof problem) == 0);
        CHECK(&first, memcmp(&first.target, &second_target, sizeof second_target) == 0);
        if (memcmp(&problem, &other, sizeof problem) != 0)
            CHECK(&first, memcmp(&first, &between, sizeof first) != 0);
    }
    assert_memory_equal(&first_target, &second_target, sizeof first_target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_padding_is_read_inside_shared_memory),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_what_is_much_work),
        cmocka_unit_test(test_names_are_distinct),
        cmocka_unit_test(test_placeholders_say_what_the_plan_says),
        cmocka_unit_test(test_plans_fill_their_templates),
        cmocka_unit_test(test_operand_lists_exist),
        cmocka_unit_test(test_schedule_kernel),
        cmocka_unit_test(test_same_input_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
