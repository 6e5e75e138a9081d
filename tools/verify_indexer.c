/* SPDX-License-Identifier: MIT
 *
 * attn-scores verify --op indexer. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "common/indexer_recompute.h"
#include "common/indexer_run.h"
#include "verify.h"

#define FULL_CASES       400
#define FULL_KEYS        100000
#define REFERENCE_CASES  40
#define REFERENCE_KEYS   300

/* Each with BF16 and NVFP4. */
static const struct indexer_case quick_cases[] = {
    {.groups = 4, .rows = 1, .max_len = 2100},
    {.groups = 3, .rows = 2, .max_len = 1500, .key_pad_bytes = 48, .scale_pad_bytes = 8},
    {.groups = 3, .rows = 3, .max_len = 1500, .score_pad = 3, .one_cache = true},
    {.groups = 16, .rows = 4, .max_len = 700, .table_pad = 5, .query_pad_bytes = 16, .query_scale_pad_bytes = 8},
    {.groups = 2, .rows = 5, .max_len = 900, .lens_stride = 2, .request_stride = 3},
    {.groups = 2, .rows = 6, .max_len = 900, .score_offset = 1, .one_cache = true, .key_pad_bytes = 16},
    {.groups = 2, .rows = 7, .max_len = 900, .max_context = 500},
    {.groups = 2, .rows = 8, .max_len = 900, .values = INDEXER_VALUES_ONE_HOT},
    {.groups = 1, .rows = 1, .min_len = 20000, .max_len = 20000},
    {.groups = 33, .rows = 2, .min_len = -5, .max_len = 120},
    {.groups = 300, .rows = 1, .max_len = 40},
    {.groups = 1500, .rows = 1, .min_len = -6, .max_len = 6},
};
#define NUM_QUICK (sizeof quick_cases / sizeof *quick_cases)

size_t verify_indexer(const verify_options *o, const struct gpu *gpu, attns_context *ctx, CUstream stream,
                      size_t *count) {
    size_t failed = 0;
    struct rng r = rng_make(o->seed);
    *count = 2 * NUM_QUICK + (o->full ? FULL_CASES : 0);
    for (size_t i = 0; i < *count; i++) {
        struct indexer_case c;
        struct indexer_report report;
        char text[500];
        if (i < 2 * NUM_QUICK) {
            c = quick_cases[i / 2];
            c.nvfp4 = i % 2;
            c.one_cache = c.one_cache && c.nvfp4;
            c.seed = rng_next(&r);
        } else {
            indexer_random_case(&r, &c, FULL_KEYS);
        }
        cli_progress_set(i, *count, "verifying");
        const double start = cli_now();
        const bool ok = indexer_run_case(gpu, ctx, stream, &c, LOGITS_PLAIN, NULL, &report);
        failed += !ok;
        verify_print(o, indexer_case_text(&c, text, sizeof text), ok, report.compared, report.worst, cli_now() - start);
    }
    return failed;
}

size_t verify_indexer_reference(const verify_options *o, size_t *count) {
    size_t failed = 0;
    struct rng r = rng_make(o->seed);
    *count = REFERENCE_CASES;
    for (size_t i = 0; i < *count; i++) {
        struct indexer_case c;
        struct indexer_data data;
        struct recompute_report report = {0};
        char text[500];
        indexer_random_case(&r, &c, REFERENCE_KEYS);
        cli_progress_set(i, *count, "reference");
        const double start = cli_now();
        bool ok = indexer_data_make(&data, &c);
        if (ok) {
            ok = indexer_recompute_check(&data, &report);
            indexer_data_free(&data);
        }
        failed += !ok;
        /* The room is 136 2^-53 of the absolute sum. */
        verify_print(o, indexer_case_text(&c, text, sizeof text), ok, report.compared, report.worst / (136 * 0x1p-53),
                     cli_now() - start);
        if (!ok)
            cli_error("verify", "%llu wrong, %llu stray: %s", (unsigned long long)report.wrong,
                      (unsigned long long)report.stray, report.first);
    }
    return failed;
}
