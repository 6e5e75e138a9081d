/* SPDX-License-Identifier: MIT
 *
 * indexer_scores with a fault planted in it: the harness must reject each. `--table` only plants them, without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/indexer_run.h"
#include "support.h"

#define TEMPLATE "indexer_scores.cu"

enum { BF16 = 1, NVFP4 = 2, BOTH = 3 };

/* Every `find` in the template becomes `put`; one that is not found fails the test, so that the table keeps up. */
static const struct mutation {
    const char *fault;
    int formats; /* in which it must show */
    const char *find, *put;
    bool hazard; /* a GPU might get away with it: planted on the software GPU only. No other can hang or leave the
                    buffers */
} mutations[] = {
    {"one key past the length written", BOTH, "rows > 0 && keys > 0", "rows > 0 && keys > -1", false},
    {"last key not written", BOTH, "rows > 0 && keys > 8", "rows > 0 && keys > 9", false},
    {"one row of two has the other's scores", BOTH, "at + args.scores_stride, sums.v[1]",
     "at + args.scores_stride, sums.v[0]", false},
    {"negative scores become zero", BOTH, "at, sums.v[0]);", "at, fmaxf(sums.v[0], 0.f));", false},
    {"queries of the first group for every group", BOTH, "queries.load(args, first_row, 0)", "queries.load(args, 0, 0)",
     false},
    {"block table of the first request", BOTH, "request * args.table_stride", "0 * args.table_stride", false},
    {"requests in the order of groups", BOTH, "args.requests[group * args.requests_stride]", "group", false},
    {"page of the keys before", BOTH, "unit.key / PAGE_KEYS]", "max(unit.key - UNIT_KEYS, 0) / PAGE_KEYS]", false},
    {"a page that does not exist is page 0", BOTH, "unit.page >= 0 ? unit.length - unit.key - first : 0",
     "unit.length - unit.key - first", false},
    {"a page beyond the last is read", BOTH, "page >= 0 && page < args.num_pages ?", "page >= 0 ?", true},
    {"last unit of a run lost", BOTH, "work.left = end - first;", "work.left = max(end - first - 1, 0ll);", false},
    {"last units of the batch lost", BOTH, "run + 1 < runs ?", "run < runs ?", false},
    {"a group lost between two windows of 32", BOTH, "int group = base + 32;", "int group = base + 33;", false},
    {"units of several groups taken for one's", BOTH, "if (owner != owner_of_one(inclusive, last))", "if (false)",
     false},
    {"last dims ignored", BF16, "mma_bf16(halves[i], a.z", "if (j < LINES - 1) mma_bf16(halves[i], a.z", false},
    {"half of each line ignored", BF16, "sums.v[i] = own + __shfl_xor_sync(FULL_WARP, give, 6)",
     "sums.v[i] = own; __shfl_xor_sync(FULL_WARP, give, 6)", false},
    {"products of unequal halves", BF16, "mma_row() % 2 == mma_piece() / 2", "mma_row() % 2 != mma_piece() / 2", false},
    {"keys 4 to 7 exchanged with 8 to 11", BF16, "b = keys.lines[i + 2][j]", "b = keys.lines[i ^ 1][j]", false},
    {"rows beyond four lack their queries", BF16, "others.load(args, group.first_row, pass * ROWS)",
     "others.load(args, group.first_row, 0)", false},
    {"last dims ignored", NVFP4, "i < OPERANDS; i += 2)", "i < OPERANDS - 2; i += 2)", false},
    {"scales of other values", NVFP4, "key * SCALE_BYTES + mma_piece() * 2", "key * SCALE_BYTES + mma_piece() / 2 * 4",
     false},
    {"a lane's two scales exchanged", NVFP4, "i < 2 ? 0x1010 : 0x3232", "i < 2 ? 0x3232 : 0x1010", false},
    {"a scale for 32 values", NVFP4, "i < 2 ? 0x1010 : 0x3232", "0x1010", false},
    {"scales of queries left out", NVFP4, "dequantise(values, scales, operands)",
     "dequantise(values, 0x3838u, operands)", false},
    {"padding between pages of scales ignored", NVFP4, "page * args.scale_page_stride", "page * i64{64 * 8}", false},
    {"factor of the dequantisation left", NVFP4, "*= 1 / NVFP4_FACTOR", "*= 1", false},
    {"the units planned last time are still read", BF16, "        __syncwarp(); /* the window's",
     "        /* the window's", true},
    {"planned units read without a barrier", BF16, "        __syncwarp();\n", "", true},
    {"sums of units read without a CTA barrier", BF16, "        __syncthreads();\n", "", true},
};
#define NUM_MUTATIONS (sizeof mutations / sizeof *mutations)

/* What a faulty kernel has to get past: more groups than a window, lengths around units, pages that do not exist,
 * queries with a group that is not full. */
static void make_trial(struct indexer_data *data, bool nvfp4) {
    const struct indexer_case c = {.nvfp4 = nvfp4,
                                   .groups = 90,
                                   .rows = 7,
                                   .max_len = 150,
                                   .score_pad = 3,
                                   .key_pad_bytes = 32,
                                   .scale_pad_bytes = nvfp4 ? 8 : 0,
                                   .seed = next_seed()};
    assert_true(indexer_data_make(data, &c));
    for (size_t i = 0; i < data->table_bytes / sizeof(int32_t); i += 5)
        data->tables[i] = i % 2 ? -1 : 1 << 30;
}

/* ---- Copies of the templates ---- */

static char *read_template(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/" TEMPLATE, template_source());
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    const size_t size = fread(text, 1, (1 << 20) - 1, file);
    assert_true(size > 0 && feof(file));
    fclose(file);
    return text;
}

/* A folder with the template, changed by `m` (NULL: as it is), and the parts that it includes. */
static char *copy_templates(const struct mutation *m) {
    char *const folder = make_folder(), *const text = read_template(), path[4096], lib[4096];
    snprintf(path, sizeof path, "%s/lib", folder);
    snprintf(lib, sizeof lib, "%s/lib", template_source());
    assert_int_equal(symlink(lib, path), 0);
    snprintf(path, sizeof path, "%s/" TEMPLATE, folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const char *from = text;
    if (m && !strstr(text, m->find))
        fail_msg("the template does not hold '%s' any more (known-bad kernel '%s')", m->find, m->fault);
    for (const char *at; m && (at = strstr(from, m->find)) != NULL; from = at + strlen(m->find))
        fprintf(file, "%.*s%s", (int)(at - from), from, m->put);
    fputs(from, file);
    assert_int_equal(fclose(file), 0);
    free(text);
    return folder;
}

static void remove_copy(char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/lib", folder);
    assert_int_equal(unlink(path), 0); /* the link alone */
    remove_folder(folder);
    free(folder);
}

/* ---- Trials ---- */

/* Whether the harness accepts what the kernel does. A fault of the software GPU is a rejection, too. */
static bool accepted(const struct mutation *m, bool nvfp4) {
    char *const folder = copy_templates(m);
    attns_context *const ctx = make_context("", NULL, folder);
    struct indexer_data data;
    struct indexer_device dev;
    struct indexer_report report;
    make_trial(&data, nvfp4);
    assert_true(indexer_upload(&dev, &fx.gpu, &data, LOGITS_PLAIN));
    if (indexer_queue(&dev, ctx, fx.stream) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    uint8_t *const image = indexer_download(&dev, fx.stream);
    if (!image && !software_gpu())
        fail_msg("a kernel that was meant to be merely wrong hangs or faults");
    const bool ok = image && indexer_check(&data, image, NULL, &report);
    free(image);
    indexer_device_free(&dev);
    indexer_data_free(&data);
    attns_context_destroy(ctx);
    remove_copy(folder);
    if (!ok && software_gpu())
        fixture_renew();
    return ok;
}

static void test_unchanged_copy_is_accepted(void **state) {
    (void)state;
    assert_true(accepted(NULL, false));
    assert_true(accepted(NULL, true));
}

static void test_every_known_bad_kernel_is_rejected(void **state) {
    (void)state;
    size_t missed = 0;
    for (size_t i = 0; i < 2 * NUM_MUTATIONS; i++) {
        const struct mutation *const m = &mutations[i / 2];
        const bool nvfp4 = i % 2;
        if (!(m->formats & (nvfp4 ? NVFP4 : BF16)) || (m->hazard && !software_gpu()))
            continue;
        const bool passed = accepted(m, nvfp4);
        print_message("%-10s %-5s %s\n", passed ? "ACCEPTED" : "rejected", nvfp4 ? "nvfp4" : "bf16", m->fault);
        missed += passed;
    }
    assert_int_equal(missed, 0);
}

/* Without a GPU: the table and the template still fit each other. */
static void test_every_fault_can_be_planted(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_MUTATIONS; i++)
        remove_copy(copy_templates(&mutations[i]));
}

int main(int argc, char **argv) {
    const struct CMUnitTest table_tests[] = {cmocka_unit_test(test_every_fault_can_be_planted)};
    if (argc == 2 && strcmp(argv[1], "--table") == 0)
        return cmocka_run_group_tests(table_tests, NULL, NULL) ? 1 : 0;
    fx.without_logits = true;
    const int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unchanged_copy_is_accepted),
        cmocka_unit_test(test_every_known_bad_kernel_is_rejected),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
