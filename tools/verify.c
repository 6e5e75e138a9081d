/* SPDX-License-Identifier: MIT
 *
 * attn-scores verify: the kernels on the device present against the CPU reference, or the reference against a second
 * opinion. Inputs are random and new in every run; the seed printed repeats them. */
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "common/random_case.h"
#include "common/recompute.h"
#include "common/run.h"
#include "report.h"
#include "simulated.h"

#define FULL_CASES       400
#define FULL_SHAPES      150
#define FULL_TOKENS      200000
#define REFERENCE_CASES  40
#define REFERENCE_TOKENS 500

enum { OP_INDEXER = 100 };
static const cli_name op_names[] = {
    {"fp8", ATTNS_VARIANT_FP8}, {"fp4", ATTNS_VARIANT_FP4}, {"indexer", OP_INDEXER}, {NULL, 0}};

enum { KEY_QUICK = 0x300, KEY_FULL, KEY_OP, KEY_SEED, KEY_DEVICE, KEY_REFERENCE, KEY_JSON };

static error_t parse(int key, char *arg, struct argp_state *state) {
    verify_options *o = state->input;
    char *end;
    int op;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->context;
        return 0;
    case KEY_QUICK:
        o->full = false;
        return 0;
    case KEY_FULL:
        o->full = true;
        return 0;
    case KEY_OP:
        op = cli_parse_name(state, "--op", arg, op_names);
        o->indexer = op == OP_INDEXER;
        o->variant = o->indexer ? ATTNS_VARIANT_FP8 : (attns_variant)op;
        return 0;
    case KEY_SEED:
        o->seed = strtoull(arg, &end, 0);
        o->have_seed = true;
        if (*arg < '0' || *arg > '9' || *end)
            argp_error(state, "--seed: '%s' is not an unsigned integer", arg);
        return 0;
    case KEY_DEVICE:
        if (!simulated_use(state, "--device", arg, &o->context))
            o->device = cli_parse_int(state, "--device", arg, 0, 1023);
        return 0;
    case KEY_REFERENCE:
        o->reference = true;
        return 0;
    case KEY_JSON:
        o->json = cli_accept_json(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_list[] = {
    {"quick", KEY_QUICK, NULL, 0, "About 30 chosen configurations (default)", 0},
    {"full", KEY_FULL, NULL, 0, "Hundreds of random configurations besides", 0},
    {"op", KEY_OP, "NAME", 0, "Operation: fp8, fp4, indexer (default: fp8)", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of the random inputs (default: from the clock)", 0},
    {"device", KEY_DEVICE, "N|sim:NAME", 0, "CUDA device (default: 0), or a simulated one that info lists", 0},
    {"reference", KEY_REFERENCE, NULL, 0,
     "Check the CPU reference against an independent computation in long double; needs no GPU", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object per configuration and one with the totals", 0},
    {0},
};

/* ---- Configurations ---- */

#define F16  ATTNS_DTYPE_F16
#define BF16 ATTNS_DTYPE_BF16

/* Every class of heads, every D, block size and next_n, every dtype; layouts that are not the convenient one. */
static const struct logits_case quick_cases[] = {
    {.batch = 4, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 2100},
    {.batch = 4, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 2100, .kv_pad_bytes = 48},
    {.batch = 3, .next_n = 3, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1500, .out_pad = 3},
    {.batch = 3, .next_n = 4, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1500, .clean = true},
    {.batch = 2, .next_n = 5, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .per_slot_lens = true},
    {.batch = 2, .next_n = 6, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .table_pad = 5},
    {.batch = 2, .next_n = 7, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .num_shares = 33},
    {.batch = 2, .next_n = 8, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .weights_pad = 4},
    {.batch = 5, .next_n = 1, .heads = 8, .head_dim = 128, .block_size = 64, .max_len = 1300},
    {.batch = 5, .next_n = 2, .heads = 16, .head_dim = 128, .block_size = 32, .max_len = 1300, .num_shares = 132},
    {.batch = 5, .next_n = 1, .heads = 24, .head_dim = 64, .block_size = 16, .max_len = 1300, .out_offset = 1},
    {.batch = 4, .next_n = 4, .heads = 32, .head_dim = 128, .block_size = 128, .max_len = 1300},
    {.batch = 4, .next_n = 1, .heads = 40, .head_dim = 32, .block_size = 256, .max_len = 1300, .lens_stride = 2},
    {.batch = 4, .next_n = 3, .heads = 48, .head_dim = 64, .block_size = 64, .max_len = 1300, .per_slot_lens = true},
    {.batch = 4, .next_n = 1, .heads = 56, .head_dim = 128, .block_size = 32, .max_len = 1300, .clean = true},
    {.batch = 4, .next_n = 1, .heads = 72, .head_dim = 128, .block_size = 64, .max_len = 1300},
    {.batch = 4, .next_n = 2, .heads = 80, .head_dim = 64, .block_size = 128, .max_len = 1000},
    {.batch = 4, .next_n = 1, .heads = 96, .head_dim = 32, .block_size = 16, .max_len = 1000, .q_slot_pad = 16},
    {.batch = 3, .next_n = 2, .heads = 104, .head_dim = 128, .block_size = 64, .max_len = 800},
    {.batch = 3, .next_n = 4, .heads = 112, .head_dim = 64, .block_size = 32, .max_len = 800, .q_request_pad = 32},
    {.batch = 3, .next_n = 1, .heads = 120, .head_dim = 128, .block_size = 256, .max_len = 1000},
    {.batch = 3, .next_n = 3, .heads = 128, .head_dim = 128, .block_size = 64, .max_len = 800, .clean = true},
    {.batch = 2, .next_n = 8, .heads = 128, .head_dim = 32, .block_size = 16, .max_len = 600},
    {.batch = 4, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 2049, .out_dtype = F16},
    {.batch = 4, .next_n = 2, .heads = 32, .head_dim = 64, .block_size = 64, .max_len = 2049, .out_dtype = BF16},
    {.batch = 4, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1000, .acc_dtype = F16},
    {.batch = 4, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1000, .epi_dtype = F16},
    {.batch = 4,
     .next_n = 3,
     .heads = 32,
     .head_dim = 64,
     .block_size = 32,
     .max_len = 1000,
     .acc_dtype = F16,
     .epi_dtype = F16,
     .out_dtype = F16,
     .clean = true},
    {.batch = 1, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .min_len = 50000, .max_len = 50000},
    {.batch = 300, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 70, .num_shares = 132},
    {.batch = 8, /* much work as far as the host knows */
     .next_n = 2,
     .heads = 64,
     .head_dim = 128,
     .block_size = 64,
     .max_len = 900,
     .max_seq_len = 131072,
     .table_width = 2048},
};
#define NUM_QUICK (sizeof quick_cases / sizeof *quick_cases)

/* What fp4 lacks becomes what it has besides: scales interleaved, float32 output. */
static void adapt_to_fp4(struct logits_case *c, size_t index) {
    if (c->head_dim == 32)
        c->head_dim = 64;
    c->acc_dtype = c->epi_dtype = ATTNS_DTYPE_DEFAULT;
    c->sf_interleaved = c->block_size == 128 && index % 2;
    if (!c->out_dtype && index % 3 == 0)
        c->out_dtype = ATTNS_DTYPE_F32;
}

/* The chosen cases and, with --full, random ones. malloc'ed. */
static struct logits_case *make_cases(const verify_options *o, size_t *count) {
    size_t random = o->full ? FULL_CASES : 0;
    struct logits_case *more = logits_random_cases(o->variant, o->seed, random, FULL_SHAPES, FULL_TOKENS);
    struct logits_case *all = more ? realloc(more, (random + NUM_QUICK) * sizeof *all) : NULL;
    if (!all) {
        free(more);
        return NULL;
    }
    struct rng r = rng_make(o->seed + 1);
    for (size_t i = 0; i < NUM_QUICK; i++) {
        struct logits_case c = quick_cases[i];
        bool f16 = c.acc_dtype == F16 || c.epi_dtype == F16;
        c.variant = o->variant;
        c.values = i % 2 && !f16 ? LOGITS_VALUES_ALL_CODES : LOGITS_VALUES_MODERATE;
        c.seed = rng_next(&r);
        if (o->variant == ATTNS_VARIANT_FP4) /* which has fewer shapes: others take their place */
            adapt_to_fp4(&c, i);
        all[random + i] = c;
    }
    *count = random + NUM_QUICK;
    return all;
}

/* ---- Results ---- */

void verify_print(const verify_options *o, const char *text, bool ok, uint64_t compared, double worst,
                  double seconds) {
    cli_progress_clear();
    if (o->json) {
        report_object(NULL);
        report_text("case", text);
        report_bool("ok", ok);
        report_int("compared", (int64_t)compared);
        report_real("worst", worst);
        report_real("seconds", seconds);
        report_close();
    } else {
        printf("%-6s %s  (%llu values, worst %.2g of tolerance)\n", ok ? "ok" : "FAILED", text,
               (unsigned long long)compared, worst);
    }
    fflush(stdout);
}

static int print_total(const verify_options *o, size_t count, size_t failed, const char *device) {
    cli_progress_clear();
    if (o->json) {
        report_object(NULL);
        report_text("device", device);
        report_int("seed", (int64_t)o->seed);
        report_int("cases", (int64_t)count);
        report_int("failed", (int64_t)failed);
        report_close();
    } else {
        printf("%zu configurations on %s: %zu failed (seed %llu)\n", count, device, failed,
               (unsigned long long)o->seed);
    }
    return failed ? CLI_FAILED : CLI_OK;
}

static int verify_reference(const verify_options *o) {
    size_t failed = 0, count = 0;
    if (o->indexer) {
        failed = verify_indexer_reference(o, &count);
        return print_total(o, count, failed, "the CPU reference");
    }
    struct rng r = rng_make(o->seed);
    for (size_t i = 0; i < REFERENCE_CASES; i++) {
        struct logits_case c;
        struct logits_data data;
        char text[400];
        memset(&c, 0, sizeof c);
        c.variant = o->variant;
        logits_random_shape(&r, &c);
        logits_random_layout(&r, &c, REFERENCE_TOKENS);
        logits_case_text(&c, text, sizeof text);
        cli_progress_set(i, REFERENCE_CASES, "reference");
        double start = cli_now();
        if (!logits_data_make(&data, &c))
            return CLI_FAILED;
        struct recompute_report report;
        bool ok = logits_recompute_check(&data, &report);
        logits_data_free(&data);
        failed += !ok;
        verify_print(o, text, ok, report.compared, report.worst / (logits_recompute_terms(&c) * 0x1p-53),
                     cli_now() - start);
        if (!ok)
            cli_error("verify", "%llu wrong, %llu stray: %s", (unsigned long long)report.wrong,
                      (unsigned long long)report.stray, report.first);
    }
    return print_total(o, REFERENCE_CASES, failed, "the CPU reference");
}

static size_t run_cases(const verify_options *o, const struct gpu *gpu, attns_context *ctx, CUstream stream,
                        const struct logits_case *cases, size_t count) {
    size_t failed = 0;
    for (size_t i = 0; i < count; i++) {
        struct logits_report report;
        char text[400];
        logits_case_text(&cases[i], text, sizeof text);
        cli_progress_set(i, count, "verifying");
        double start = cli_now();
        bool ok = logits_run_case(gpu, ctx, stream, &cases[i], LOGITS_PLAIN, NULL, &report);
        failed += !ok;
        verify_print(o, text, ok, report.compared, report.worst, cli_now() - start);
    }
    return failed;
}

static int verify_device(verify_options *o) {
    struct gpu gpu;
    if (o->context.libcuda_path) /* gpu_open looks there, as the library does */
        setenv("ATTNS_LIBCUDA", o->context.libcuda_path, 1);
    if (!gpu_open(&gpu, o->device)) {
        cli_error("verify", "needs a GPU: %s (--reference checks the CPU reference without one)", gpu.reason);
        return CLI_NO_GPU;
    }
    attns_context *ctx = cli_context_create(&o->context);
    size_t count = 0, failed = 0;
    struct logits_case *cases = o->indexer ? NULL : make_cases(o, &count);
    CUstream stream = NULL;
    int code = CLI_FAILED;
    if (ctx && (cases || o->indexer) &&
        gpu_ok(&gpu, gpu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate")) {
        cli_progress_set(0, count, "compiling");
        if (o->indexer) {
            failed = verify_indexer(o, &gpu, ctx, stream, &count);
        } else {
            /* A kernel that does not compile shows again in its own case. */
            logits_precompile(&o->context, cases, count);
            failed = run_cases(o, &gpu, ctx, stream, cases, count);
        }
        code = print_total(o, count, failed, gpu.name);
    }
    if (stream)
        gpu.stream_destroy(stream);
    free(cases);
    attns_context_destroy(ctx);
    gpu_close(&gpu);
    return code;
}

int tool_verify(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_context_argp, 0, "Library settings:", 10}, {0}};
    static const struct argp argp = {option_list,
                                     parse,
                                     NULL,
                                     "Checks the kernels against the CPU reference on the device present: values, and "
                                     "that nothing else is written.\vExit code: 0 all right, 1 a check failed, 77 no "
                                     "GPU.",
                                     children,
                                     NULL,
                                     NULL};
    verify_options options;
    memset(&options, 0, sizeof options);
    options.variant = ATTNS_VARIANT_FP8;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (!options.have_seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        options.seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec) & 0xffffffff;
    }
    if (!options.json)
        printf("seed %llu\n", (unsigned long long)options.seed);
    return options.reference ? verify_reference(&options) : verify_device(&options);
}
