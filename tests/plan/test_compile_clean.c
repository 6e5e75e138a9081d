/* SPDX-License-Identifier: MIT
 *
 * The installed NVRTC compiles the shipped kernels without spilling registers, without local memory and without
 * serialising wgmmas. Needs no GPU; exit 77 where there is no NVRTC. Takes about 120 s of CPU time, on all CPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_testing.h"

/* About 0.4 s of a CPU each. Five of the default ones are for much work. */
enum { DEFAULT_KERNELS = 4 * 8 + 5, VARIANT_KERNELS = 3 * 2, FP4_KERNELS = 4 * 4 };

static const char *const sm90[] = {"sm_90a"};

/* Real compiler, shipped templates, an empty cache. */
static int setup(void **state) {
    const int status = jit_setup(state);
    jit_fixture *fixture = *state;
    fixture->params.libnvrtc_path = NULL;
    fixture->params.template_dir = "";
    fixture->params.log_level = ATTNS_LOG_WARNING;
    return status;
}

typedef struct compile_record {
    size_t compiled, spilling;
    char faults[8192]; /* what was not as it must be, a line each */
} compile_record;

static void record(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    (void)done, (void)total;
    compile_record *outcome = user;
    const char *fault = NULL;
    if (result->status != ATTNS_OK)
        fault = result->message;
    else if (result->spill_bytes != 0)
        fault = "spills, or the log does not say";
    else if (result->registers <= 0)
        fault = "the log does not say how many registers";
    outcome->spilling += result->status == ATTNS_OK && result->spill_bytes > 0;
    outcome->compiled += result->status == ATTNS_OK && result->source == ATTNS_FROM_COMPILER;
    if (fault) {
        const size_t used = strlen(outcome->faults);
        snprintf(outcome->faults + used, sizeof outcome->faults - used, "%s: %d registers, %d bytes: %s\n",
                 result->kernel, result->registers, result->spill_bytes, fault);
    }
}

static void check_clean(jit_fixture *fixture, attns_context *ctx, attns_precompile_params params, size_t kernels) {
    compile_record outcome = {0};
    if (!params.archs)
        params.archs = sm90, params.num_archs = 1;
    params.progress = record, params.progress_user = &outcome;
    const attns_status status = attns_precompile_paged_mqa_logits(ctx, &params);
    if (outcome.faults[0] || fixture->log.size) {
        printf("%s%s", outcome.faults, fixture->log.text); /* fail_msg would cut it off */
        fail_msg("kernels are not as they must be, or something was logged");
    }
    if (status != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    assert_int_equal(outcome.compiled, kernels);
}

/* Head counts that fill one wgmma with next_n slots, nearly fill it, or need several. */
static void test_every_next_n(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    static const int num_heads[] = {8, 64, 88, 128};
    int next_ns[8];
    for (int i = 0; i < 8; i++)
        next_ns[i] = i + 1;
    const attns_precompile_params params = {
        .num_heads = num_heads,
        .num_num_heads = 4,
        .next_ns = next_ns,
        .num_next_ns = 8,
    };
    check_clean(fixture, ctx, params, DEFAULT_KERNELS + 1); /* and the schedule kernel */
    attns_context_destroy(ctx);
}

/* Half of the combinations of head_dim, block size, acc_dtype and epi_dtype: any three of the four meet in all ways.
 * Each with two values of next_n, so that either pair meets every value of the four. */
static void test_variants(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    static const int num_heads[] = {8, 64, 128}, next_ns[2][2] = {{1, 5}, {3, 8}};
    static const int head_dims[] = {32, 64}, block_sizes[] = {16, 256};
    static const attns_dtype types[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16}, bf16[] = {ATTNS_DTYPE_BF16};
    for (int i = 0; i < 8; i++) {
        const int head_dim = i & 1, block_size = i >> 1 & 1, acc_dtype = i >> 2 & 1;
        const attns_precompile_params params = {
            .num_heads = num_heads,
            .num_num_heads = 3,
            .next_ns = next_ns[head_dim ^ block_size],
            .num_next_ns = 2,
            .head_dims = &head_dims[head_dim],
            .num_head_dims = 1,
            .block_sizes = &block_sizes[block_size],
            .num_block_sizes = 1,
            .out_dtypes = bf16,
            .num_out_dtypes = 1,
            .acc_dtypes = &types[acc_dtype],
            .num_acc_dtypes = 1,
            .epi_dtypes = &types[head_dim ^ block_size ^ acc_dtype],
            .num_epi_dtypes = 1,
        };
        /* Much work has a kernel of its own with 128 heads and next_n 1, where blocks and epilogue allow it. */
        const bool sums_f32 = (head_dim ^ block_size ^ acc_dtype) == 0;
        const size_t much = block_size == 1 && (head_dim ^ block_size) == 0 && sums_f32 ? 1 : 0;
        const size_t schedule = i == 0 ? 1 : 0; /* only once */
        check_clean(fixture, ctx, params, VARIANT_KERNELS + much + schedule);
    }
    attns_context_destroy(ctx);
}

/* MXFP4 on Hopper: two, three and four warpgroups, one wgmma for all slots and several, boxes of 16 tokens, and
 * producers that are nearly out of registers. */
static void test_fp4_on_hopper(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    static const int num_heads[] = {16, 64, 96, 128, 48}, next_ns[] = {1, 2, 4, 5, 3}, head_dims[] = {128, 64},
                     block_sizes[] = {64, 16, 128};
    static const bool interleaved[] = {true};
    static const attns_variant fp4[] = {ATTNS_VARIANT_FP4};
    attns_precompile_params params = {
        .variants = fp4,
        .num_variants = 1,
        .num_heads = num_heads,
        .num_num_heads = 4,
        .num_head_dims = 1,
        .num_block_sizes = 1,
        .next_ns = next_ns,
        .num_next_ns = 4,
    };
    for (int i = 0; i < 2; i++) {
        params.head_dims = &head_dims[i];
        params.block_sizes = &block_sizes[i];
        check_clean(fixture, ctx, params, FP4_KERNELS + (i == 0 ? 1 : 0)); /* the schedule kernel only once */
    }
    params.num_heads = &num_heads[4], params.next_ns = &next_ns[4];
    params.num_num_heads = params.num_next_ns = 1;
    params.block_sizes = &block_sizes[2];
    params.kv_sf_interleaved = interleaved, params.num_kv_sf_interleaved = 1;
    check_clean(fixture, ctx, params, 1);
    attns_context_destroy(ctx);
}

/* The tcgen05 kernels: every shape of a job (one slot or several in a chunk, a full last chunk or not, one Q stage or
 * two), head counts that fill the columns or not, the smallest blocks, whose producer is the largest. */
static void check_tcgen05(jit_fixture *fixture, const char *const *archs, size_t num_archs, bool thorough) {
    attns_context *ctx = jit_context(fixture);
    static const int num_heads[] = {64, 40, 128}, next_ns[] = {3, 7, 2}, block_sizes[] = {16};
    static const attns_dtype f16[] = {ATTNS_DTYPE_F16};
    static const attns_variant fp4[] = {ATTNS_VARIANT_FP4};
    attns_precompile_params params = {
        .archs = archs,
        .num_archs = num_archs,
        .num_heads = num_heads,
        .num_num_heads = thorough ? 3 : 1,
        .next_ns = next_ns,
        .num_next_ns = thorough ? 3 : 1,
        .block_sizes = block_sizes,
        .num_block_sizes = 1,
    };
    const size_t shapes = params.num_num_heads * params.num_next_ns;
    check_clean(fixture, ctx, params, num_archs * (shapes + 1)); /* and the schedule kernel */
    params.variants = fp4, params.num_variants = 1;
    check_clean(fixture, ctx, params, num_archs * shapes);
    params.variants = NULL, params.num_variants = 0;
    params.num_num_heads = params.num_next_ns = 1;
    params.acc_dtypes = params.epi_dtypes = f16;
    params.num_acc_dtypes = params.num_epi_dtypes = 1;
    check_clean(fixture, ctx, params, num_archs);
    attns_context_destroy(ctx);
}

static void test_tcgen05_kernels(void **state) {
    static const char *const archs[] = {"sm_100a", "sm_103a", "sm_100f"};
    check_tcgen05(*state, archs, 1, true);
    check_tcgen05(*state, archs + 1, 2, false);
}

/* With a compiler of $ATTNS_TEST_NVRTC, which tools/run-tests.sh installs: the first that know sm_107a are of
 * CUDA 13.4. */
static void test_tcgen05_kernels_with_newer_nvrtc(void **state) {
    static const char *const archs[] = {"sm_107a", "sm_100a", "sm_103a"};
    jit_fixture *fixture = *state;
    fixture->params.libnvrtc_path = getenv("ATTNS_TEST_NVRTC");
    if (!fixture->params.libnvrtc_path) {
        print_message("skipped: ATTNS_TEST_NVRTC does not name a newer NVRTC\n");
        skip();
    }
    check_tcgen05(fixture, archs, 1, true);
    check_tcgen05(fixture, archs + 1, 2, false);
}

/* Every target that this NVRTC knows, each with two other shapes: few and many registers, queries that fit and queries
 * that come in chunks, and all types in turn. */
static void test_portable_on_every_target(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.kernel_family = "portable";
    attns_context *ctx = jit_context(fixture);
    static const char *const archs[] = {"sm_80",  "sm_86",  "sm_87",  "sm_88",  "sm_89",  "sm_90",
                                        "sm_100", "sm_103", "sm_110", "sm_120", "sm_121a"};
    static const int num_heads[][2] = {{8, 64}, {64, 128}, {56, 128}}, next_ns[][2] = {{1, 8}, {2, 5}, {4, 7}};
    static const int head_dims[] = {128, 64, 128, 32}, block_sizes[] = {16, 32, 64, 128, 256};
    static const attns_dtype types[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    attns_info info;
    assert_int_equal(attns_get_info(ctx, &info), ATTNS_OK);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        char number[16];
        snprintf(number, sizeof number, "%.*s", (int)strcspn(archs[i], "af"), archs[i]);
        if (!strstr(info.nvrtc_archs, number)) {
            printf("%s: not known to this NVRTC\n", archs[i]);
            continue;
        }
        attns_precompile_params params = {
            .archs = &archs[i],
            .num_archs = 1,
            .num_num_heads = 1,
            .head_dims = &head_dims[i % 4],
            .num_head_dims = 1,
            .block_sizes = &block_sizes[i % 5],
            .num_block_sizes = 1,
            .num_next_ns = 1,
            .out_dtypes = &types[i % 3],
            .num_out_dtypes = 1,
            .acc_dtypes = &types[i / 2 % 2],
            .num_acc_dtypes = 1,
            .epi_dtypes = &types[i / 4 % 2],
            .num_epi_dtypes = 1,
        };
        for (size_t shape = 0; shape < 2; shape++) {
            params.num_heads = &num_heads[i % 3][shape];
            params.next_ns = &next_ns[i / 3 % 3][shape ^ (i & 1)];
            check_clean(fixture, ctx, params, shape == 0 ? 2 : 1); /* and the schedule kernel, once */
            attns_precompile_params fp4 = params;
            const attns_variant variant = ATTNS_VARIANT_FP4;
            fp4.variants = &variant, fp4.num_variants = 1;
            fp4.head_dims = &head_dims[i % 2];
            fp4.acc_dtypes = fp4.epi_dtypes = NULL;
            fp4.num_acc_dtypes = fp4.num_epi_dtypes = 0;
            check_clean(fixture, ctx, fp4, 1);
        }
    }
    attns_context_destroy(ctx);
}

/* Both kernels of indexer_scores, for every kind of chip: without E4M3 and with it. */
static void test_indexer_on_every_generation(void **state) {
    jit_fixture *fixture = *state;
    attns_context *ctx = jit_context(fixture);
    static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    static const attns_variant variants[] = {ATTNS_VARIANT_INDEXER_BF16, ATTNS_VARIANT_INDEXER_NVFP4};
    const size_t num_archs = sizeof archs / sizeof archs[0];
    check_clean(
        fixture, ctx,
        (attns_precompile_params){.archs = archs, .num_archs = num_archs, .variants = variants, .num_variants = 2},
        2 * num_archs);
    attns_context_destroy(ctx);
}

/* That the tests above can fail: a kernel which has to spill, and one whose wgmmas have to be serialised. */
static void test_bad_kernels_are_noticed(void **state) {
    jit_fixture *fixture = *state;
    fixture->params.template_dir = fixture->templates;
    write_all_templates(
        fixture, "extern \"C\" __global__ void __launch_bounds__(1024) spilling(float *p, int n) {\n"
                 "    float a[64];\n"
                 "    for (int i = 0; i < 64; i++) a[i] = p[i] * n;\n"
                 "    for (int j = 0; j < n; j++)\n"
                 "        for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 1) & 63] + p[j];\n"
                 "    for (int i = 0; i < 64; i++) p[i + threadIdx.x] = a[i];\n"
                 "}\n"
                 "extern \"C\" __global__ void serialised(float *p, unsigned long long d) {\n"
                 "    float a = p[0], b = p[1], c = p[2], e = p[3];\n"
                 "    asm volatile(\"wgmma.fence.sync.aligned;\");\n"
                 "    for (int i = 0; i < 2; i++) {\n"
                 "        asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, \"\n"
                 "                     \"%4, %4, 1, 1, 1;\" : \"+f\"(a), \"+f\"(b), \"+f\"(c), \"+f\"(e) : \"l\"(d));\n"
                 "        a += 1.f;\n"
                 "    }\n"
                 "    asm volatile(\"wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\");\n"
                 "    p[0] = a + b + c + e;\n"
                 "}\n");
    attns_context *ctx = jit_context(fixture);
    static const int next_ns[] = {1};
    compile_record outcome = {0};
    const attns_precompile_params params = {
        .archs = sm90,
        .num_archs = 1,
        .next_ns = next_ns,
        .num_next_ns = 1,
        .progress = record,
        .progress_user = &outcome,
    };
    assert_int_equal(attns_precompile_paged_mqa_logits(ctx, &params), ATTNS_OK);
    assert_int_equal(outcome.compiled, 2);
    assert_int_equal(outcome.spilling, 2);
    assert_contains(outcome.faults, "fp8_paged_mqa_logits h64 d128 b64 n1");
    assert_contains(fixture->log.text, "bytes of registers spilled");
    assert_contains(fixture->log.text, "(C751");
    attns_context_destroy(ctx);
}

/* The path that a context would take, environment included. */
static bool has_nvrtc(void) {
    attns_context *ctx = NULL;
    attns_info info;
    const attns_context_params params = {.log_level = ATTNS_LOG_ERROR, .cache_dir = ""};
    bool found = false;
    if (attns_context_create(&ctx, &params) == ATTNS_OK && attns_get_info(ctx, &info) == ATTNS_OK) {
        found = info.libnvrtc != NULL;
        if (found)
            printf("compiling with %s (NVRTC %d.%d)\n", info.libnvrtc, info.nvrtc_version / 1000,
                   info.nvrtc_version % 1000 / 10);
        else
            printf("skipped: %s\n", info.libnvrtc_error);
        fflush(stdout);
    }
    attns_context_destroy(ctx);
    return found;
}

int main(void) {
    if (!has_nvrtc())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bad_kernels_are_noticed, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_every_next_n, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_variants, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_fp4_on_hopper, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_tcgen05_kernels, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_tcgen05_kernels_with_newer_nvrtc, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_portable_on_every_target, setup, jit_teardown),
        cmocka_unit_test_setup_teardown(test_indexer_on_every_generation, setup, jit_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
