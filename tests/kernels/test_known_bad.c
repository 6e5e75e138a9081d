/* SPDX-License-Identifier: MIT
 *
 * Kernels with a fault planted in them: the harness must reject each. A harness that has never seen a wrong kernel is
 * not known to work. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "known_bad.h"
#include "pdl.h"

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
    snprintf(path, sizeof path, "%s/%s", template_source(), sub);
    DIR *folder = opendir(path);
    if (!folder)
        fail_msg("%s cannot be read", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || (strcmp(dot, ".cu") && strcmp(dot, ".cuh")))
            continue;
        char name[512];
        snprintf(name, sizeof name, "%s%s", sub, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", template_source(), name);
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
static bool accepted(const struct known_bad *family, const char *templates, bool dependent_launch) {
    attns_context *ctx = make_context("", NULL, templates);
    bool ok = true;
    if (dependent_launch)
        ok = pdl_wrong_words(ctx, 50, 100000, false, false) == 0;
    for (size_t i = 0; i < family->num_trials && ok && !dependent_launch; i++) {
        if (family->trials[i].variant && family->trials[i].variant != fx.variant)
            continue;
        struct logits_data data;
        struct logits_device dev;
        struct logits_report report;
        struct logits_case trial = family->trials[i];
        trial.seed = i + 1; /* the same every time: luck must not decide what is found */
        make_data(&data, &trial);
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

/* The family of the kernels under test. */
static const struct known_bad *family_under_test(void) {
    const char *family = getenv("ATTNS_KERNEL_FAMILY");
    if (family && strcmp(family, "portable") == 0)
        return &known_bad_portable;
    if (fx.gpu.compute_capability / 10 == 10)
        return &known_bad_sm100;
    return fx.variant == ATTNS_VARIANT_FP4 ? &known_bad_fp4_sm90 : &known_bad_sm90;
}

static void test_unchanged_copy_is_accepted(void **state) {
    (void)state;
    char *folder = copy_templates(NULL);
    assert_true(accepted(family_under_test(), folder, false));
    assert_true(accepted(family_under_test(), folder, true));
    remove_folder(folder);
    free(folder);
}

/* Those of the table, by the trials of the family. Returns how many are accepted. */
static size_t accepted_of(const struct known_bad *table, const struct known_bad *family, bool hazards) {
    size_t missed = 0;
    for (size_t i = 0; i < table->num_mutations; i++) {
        const struct mutation *m = &table->mutations[i];
        if (m->hazard != hazards || (m->variant && m->variant != fx.variant))
            continue;
        char *folder = copy_templates(m);
        bool passed = accepted(family, folder, m->dependent_launch);
        print_message("%-10s %s\n", passed ? "ACCEPTED" : "rejected", m->fault);
        missed += passed;
        remove_folder(folder);
        free(folder);
    }
    return missed;
}

static void reject(bool hazards) {
    const struct known_bad *family = family_under_test();
    size_t missed = accepted_of(family, family, hazards);
    if (family->common)
        missed += accepted_of(family->common, family, hazards);
    assert_int_equal(missed, 0);
}

static void test_every_known_bad_kernel_is_rejected(void **state) {
    (void)state;
    reject(false);
}

static void test_lost_synchronisation_is_rejected(void **state) {
    (void)state;
    if (!software_gpu()) {
        print_message("skipped: on a GPU these kernels may hang, and may be right\n");
        skip();
    }
    reject(true);
}

/* Without a GPU: the tables and the templates still fit each other. */
static void test_every_fault_can_be_planted(void **state) {
    (void)state;
    const struct known_bad *tables[] = {&known_bad_sm90, &known_bad_fp4_sm90, &known_bad_hopper, &known_bad_sm100,
                                        &known_bad_portable};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (size_t i = 0; i < tables[t]->num_mutations; i++) {
            char *folder = copy_templates(&tables[t]->mutations[i]);
            remove_folder(folder);
            free(folder);
        }
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest table_tests[] = {cmocka_unit_test(test_every_fault_can_be_planted)};
    if (argc == 2 && strcmp(argv[1], "--table") == 0)
        return cmocka_run_group_tests(table_tests, NULL, NULL) ? 1 : 0;
    fx.seed = 1; /* of dependent launches; trials have their own */
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
