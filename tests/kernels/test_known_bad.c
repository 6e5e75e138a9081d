/* SPDX-License-Identifier: MIT
 *
 * Kernels with a fault planted in them: the harness must reject each. A harness that has never seen a wrong kernel is
 * not known to work. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pdl.h"

#define KERNEL "fp8_paged_mqa_logits_sm90.cu"
#define HEAD   "lib/head_sum.cuh"

/* Every occurrence of `find` in `file` becomes `put`; a mutation whose text is not found fails the test, so that the
 * table keeps up with the templates. None of these can hang or leave the buffers of the call. */
static const struct mutation {
    const char *fault;
    struct {
        const char *file, *find, *put;
    } edits[2];
    bool dependent_launch; /* shows under programmatic dependent launch only */
} mutations[] = {
    {.fault = "causal bound of the newest slot for every slot",
     .edits = {{"lib/arguments.cuh", "max(length - (NEXT_N - 1) + slot, 0)", "length"}}},
    {.fault = "causal bound one token short",
     .edits = {{"lib/arguments.cuh", "length - (NEXT_N - 1) + slot", "length - NEXT_N + slot"}}},
    {.fault = "scale missing", .edits = {{KERNEL, "sum * scale)", "sum)"}}},
    {.fault = "one scale for the whole block", .edits = {{KERNEL, " + r % BOX_TOKENS]", "]"}}},
    {.fault = "ReLU dropped", .edits = {{HEAD, "max.NaN.f32 %0, %1, 0f00000000;", "mov.f32 %0, %1;"}}},
    {.fault = "ReLU after the head sum",
     .edits = {{HEAD, "max.NaN.f32 %0, %1, 0f00000000;", "mov.f32 %0, %1;"},
               {KERNEL, "sum * scale)", "max(sum, 0.f) * scale)"}}},
    {.fault = "last token of a tile never written",
     .edits = {{KERNEL, "token < limits[slot + s]", "token < limits[slot + s] && token % 64 != 63"}}},
    {.fault = "one token past the limit written",
     .edits = {{KERNEL, "token < limits[slot + s]", "token <= limits[slot + s]"}}},
    {.fault = "weights of the neighbouring heads",
     .edits = {{HEAD, "weights.get(slot, j)", "weights.get(slot, j ^ 1)"}}},
    {.fault = "first slot's weights for every slot",
     .edits = {{HEAD, "slot * PAIRS + j", "j"},
               {KERNEL, "layout.weights(q.stage)) + first_slot * NUM_HEADS", "layout.weights(q.stage))"}}},
    {.fault = "block table of the first request",
     .edits = {{"lib/producer.cuh", "request * args.table_stride", "0 * args.table_stride"}}},
    {.fault = "neighbouring column of the block table",
     .edits = {{"lib/producer.cuh", "row[start / BLOCK_SIZE]", "row[max(start / BLOCK_SIZE - 1, 0)]"}}},
    {.fault = "last 32 dims ignored", .edits = {{KERNEL, "step < HEAD_DIM / 32;", "step < HEAD_DIM / 32 - 1;"}}},
    {.fault = "K of another ring stage",
     .edits = {{KERNEL, "wgmma_descriptor<HEAD_DIM>(layout.k(kv.stage))",
                "wgmma_descriptor<HEAD_DIM>(layout.k((kv.stage + 1) % args.stages))"}}},
    {.fault = "swizzle of another row width",
     .edits = {{"lib/wgmma.cuh", "ROW_BYTES == 128 ? 1", "ROW_BYTES == 128 ? 2"}}},
    {.fault = "weights of another request",
     .edits = {{KERNEL, "args.common.weights + (static_cast<i64>(", "args.common.weights + (0 * static_cast<i64>("}}},
    {.fault = "cleaned one column short",
     .edits = {{"lib/arguments.cuh", "min(args.clean_until - begin, PIECE)",
                "min(args.clean_until - 1 - begin, PIECE)"}}},
    {.fault = "cleaned from one column early",
     .edits = {{"lib/arguments.cuh", "max(begin, limit) + thread", "max(begin, limit - 1) + thread"}}},
    {.fault = "no wait for the previous kernel",
     .edits = {{"lib/base.cuh", "griddepcontrol.wait;", ""}},
     .dependent_launch = true},
};
#define NUM_MUTATIONS (sizeof mutations / sizeof *mutations)

/* Lost synchronisation: on a GPU most of these give right results most of the time, and some hang. The software GPU
 * must reject each (its race detector, its barriers, or a wrong result). */
static const struct mutation lost_synchronisation[] = {
    {.fault = "a stage is released before the other lanes of the warp have read it",
     .edits = {{KERNEL, "        __syncwarp();\n        if (lane_id() == 0)\n            mbarrier_arrive(barrier);",
                "        if (lane_id() == 0)\n            mbarrier_arrive(barrier);"}}},
    {.fault = "the producer's lanes do not take turns",
     .edits = {{"lib/producer.cuh", "            __syncwarp();\n            loader.tile_loaded",
                "            loader.tile_loaded"}}},
    {.fault = "no CTA barrier after the mbarriers are initialised",
     .edits = {{KERNEL, "    __syncthreads();\n\n    if (warp == MATH_WARPS)", "    if (warp == MATH_WARPS)"}}},
    {.fault = "mbarriers not made visible to copies", .edits = {{KERNEL, "        mbarrier_init_fence();\n", ""}}},
    {.fault = "K used before it has arrived",
     .edits = {{KERNEL, "        mbarrier_wait(layout.full(kv.stage), kv.parity);\n", ""}}},
    {.fault = "K overwritten before it has been used",
     .edits = {{KERNEL, "        mbarrier_wait(layout.empty(kv.stage), kv.parity ^ 1);\n", ""}}},
    {.fault = "K released while the product reads it",
     .edits =
         {{KERNEL, "        wgmma_commit();\n",
           "        wgmma_commit();\n        if (next_slot == SLOTS - CHUNK_SLOTS) release(layout.empty(kv.stage));\n"},
          {KERNEL, "        if (next_slot == SLOTS - CHUNK_SLOTS)\n            release(layout.empty(kv.stage));\n",
           ""}}},
    {.fault = "accumulators read without a wait", .edits = {{KERNEL, "        wgmma_wait_all();\n", ""}}},
    {.fault = "no wgmma fence", .edits = {{KERNEL, "        wgmma_fence();\n", ""}}},
    {.fault = "products not committed", .edits = {{KERNEL, "        wgmma_commit();\n", ""}}},
    {.fault = "request note read before it is there",
     .edits = {{KERNEL, "            mbarrier_wait(layout.q_full(q.stage), q.parity);\n", ""}}},
    {.fault = "request note overwritten before it has been used",
     .edits = {{KERNEL,
                "        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);\n        *shared_pointer<RequestNote>"
                "(layout.note(q.stage)) = note;",
                "        *shared_pointer<RequestNote>(layout.note(q.stage)) = note;"}}},
    {.fault = "last note written without a wait",
     .edits = {{KERNEL,
                "        mbarrier_wait(layout.q_empty(q.stage), q.parity ^ 1);\n        *shared_pointer<RequestNote>"
                "(layout.note(q.stage)) = RequestNote{-1",
                "        *shared_pointer<RequestNote>(layout.note(q.stage)) = RequestNote{-1"}}},
    {.fault = "request released before its last scores are stored",
     .edits = {{KERNEL, "            store_sums();\n            mbarrier_arrive(layout.q_empty(q.stage));",
                "            mbarrier_arrive(layout.q_empty(q.stage));\n            store_sums();"}}},
    {.fault = "one warp's arrival frees a stage",
     .edits = {{KERNEL, "mbarrier_init(layout.empty(i), MATH_WARPS)", "mbarrier_init(layout.empty(i), 1)"}}},
    {.fault = "barrier told of fewer bytes than arrive", .edits = {{KERNEL, "K_BYTES + TILE_TOKENS * 4", "K_BYTES"}}},
    {.fault = "wrong phase of the ring awaited",
     .edits = {{KERNEL, "layout.empty(kv.stage), kv.parity ^ 1", "layout.empty(kv.stage), kv.parity"}}},
    {.fault = "relaxed arrivals",
     .edits = {{"lib/mbarrier.cuh", "mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.relaxed.cta.shared::cta.b64"}}},
    {.fault = "sums of the schedule read without a CTA barrier",
     .edits = {{"schedule.cu", "    __syncthreads();\n", ""}}},
};
#define NUM_LOST (sizeof lost_synchronisation / sizeof *lost_synchronisation)

/* What a faulty kernel has to get past: few kernels, many layouts. */
static const struct logits_case trials[] = {
    {.batch = 9, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .out_pad = 3},
    {.batch = 40,
     .next_n = 2,
     .heads = 64,
     .head_dim = 128,
     .block_size = 64,
     .max_len = 300,
     .clean = true,
     .max_seq_len = 400},
    {.batch = 9,
     .next_n = 3,
     .heads = 32,
     .head_dim = 64,
     .block_size = 16,
     .min_len = 64,
     .max_len = 700,
     .clean = true},
    /* Every CTA goes round its ring of stages, and the schedule is a kernel's. */
    {.batch = 40, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1200, .num_shares = 8},
};
#define NUM_TRIALS (sizeof trials / sizeof *trials)

/* ---- Copies of the templates ---- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = 0;
    fclose(file);
    return text;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s cannot be written", path);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* `text` with every `find` replaced; fails the running test if there is none. Frees text. */
static char *replace(char *text, const char *find, const char *put, const char *fault) {
    size_t count = 0, found = strlen(find), placed = strlen(put);
    assert_true(found > 0);
    for (const char *at = text; (at = strstr(at, find)) != NULL; at += found)
        count++;
    if (count == 0)
        fail_msg("the template does not hold '%s' any more (known-bad kernel '%s')", find, fault);
    char *result = malloc(strlen(text) + count * placed + 1), *out = result;
    assert_non_null(result);
    const char *from = text;
    for (const char *at; (at = strstr(from, find)) != NULL; from = at + found) {
        memcpy(out, from, (size_t)(at - from));
        out += at - from;
        memcpy(out, put, placed);
        out += placed;
    }
    strcpy(out, from);
    free(text);
    return result;
}

static void copy_folder(const char *sub, const char *to, const struct mutation *m) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ATTNS_TEMPLATE_SOURCE, sub);
    DIR *folder = opendir(path);
    if (!folder)
        fail_msg("%s cannot be read", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || (strcmp(dot, ".cu") && strcmp(dot, ".cuh")))
            continue;
        char name[512];
        snprintf(name, sizeof name, "%s%s", sub, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", ATTNS_TEMPLATE_SOURCE, name);
        char *text = read_text(path);
        for (int e = 0; m && e < 2; e++)
            if (m->edits[e].file && strcmp(m->edits[e].file, name) == 0)
                text = replace(text, m->edits[e].find, m->edits[e].put, m->fault);
        snprintf(path, sizeof path, "%s/%s", to, name);
        write_text(path, text);
        free(text);
    }
    closedir(folder);
}

/* A folder with the templates, changed by `m` (NULL: as they are). */
static char *copy_templates(const struct mutation *m) {
    char *folder = make_folder(), path[4096];
    snprintf(path, sizeof path, "%s/lib", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    copy_folder("", folder, m);
    copy_folder("lib/", folder, m);
    return folder;
}

/* ---- Trials ---- */

/* Whether the harness accepts everything that the kernels of these templates do. A fault of the software GPU is a
 * rejection, too. */
static bool accepted(const char *templates, bool dependent_launch) {
    attns_context *ctx = make_context("", NULL, templates);
    bool ok = true;
    if (dependent_launch)
        ok = pdl_wrong_words(ctx, 50, 100000, false, false) == 0;
    for (size_t i = 0; i < NUM_TRIALS && ok && !dependent_launch; i++) {
        struct logits_data data;
        struct logits_device dev;
        struct logits_report report;
        make_data(&data, &trials[i]);
        upload_data(&dev, &data, LOGITS_PLAIN, NULL);
        bool queued = logits_queue(&dev, ctx, fx.stream) == ATTNS_OK;
        if (!queued && !software_gpu())
            fail_msg("%s", attns_last_error());
        uint8_t *image = queued ? logits_download(&dev, fx.stream) : NULL;
        if (!image && !software_gpu())
            fail_msg("a kernel that was meant to be merely wrong hangs or faults");
        ok = image && logits_check(&data, image, NULL, &report);
        free(image);
        logits_device_free(&dev);
        logits_data_free(&data);
    }
    attns_context_destroy(ctx);
    if (!ok && software_gpu())
        fixture_renew();
    return ok;
}

static void test_unchanged_copy_is_accepted(void **state) {
    (void)state;
    char *folder = copy_templates(NULL);
    assert_true(accepted(folder, false));
    assert_true(accepted(folder, true));
    remove_folder(folder);
    free(folder);
}

static void test_every_known_bad_kernel_is_rejected(void **state) {
    (void)state;
    size_t missed = 0;
    for (size_t i = 0; i < NUM_MUTATIONS; i++) {
        char *folder = copy_templates(&mutations[i]);
        bool passed = accepted(folder, mutations[i].dependent_launch);
        print_message("%-10s %s\n", passed ? "ACCEPTED" : "rejected", mutations[i].fault);
        missed += passed;
        remove_folder(folder);
        free(folder);
    }
    assert_int_equal(missed, 0);
}

static void test_lost_synchronisation_is_rejected(void **state) {
    (void)state;
    if (!software_gpu()) {
        print_message("skipped: on a GPU these kernels may hang, and may be right\n");
        skip();
    }
    size_t missed = 0;
    for (size_t i = 0; i < NUM_LOST; i++) {
        char *folder = copy_templates(&lost_synchronisation[i]);
        bool passed = accepted(folder, false);
        print_message("%-10s %s\n", passed ? "ACCEPTED" : "rejected", lost_synchronisation[i].fault);
        missed += passed;
        remove_folder(folder);
        free(folder);
    }
    assert_int_equal(missed, 0);
}

/* Without a GPU: the table and the templates still fit each other. */
static void test_every_fault_can_be_planted(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_MUTATIONS + NUM_LOST; i++) {
        char *folder = copy_templates(i < NUM_MUTATIONS ? &mutations[i] : &lost_synchronisation[i - NUM_MUTATIONS]);
        remove_folder(folder);
        free(folder);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest table_tests[] = {cmocka_unit_test(test_every_fault_can_be_planted)};
    if (argc == 2 && strcmp(argv[1], "--table") == 0)
        return cmocka_run_group_tests(table_tests, NULL, NULL) ? 1 : 0;
    int code = fixture_open();
    if (code)
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unchanged_copy_is_accepted),
        cmocka_unit_test(test_every_known_bad_kernel_is_rejected),
        cmocka_unit_test(test_lost_synchronisation_is_rejected),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed ? 1 : 0;
}
