/* SPDX-License-Identifier: MIT
 *
 * Compares what the probes give on this machine's GPU, or on the software GPU, with what a real one gave.
 *
 *   test_probes [FAMILY]: compares, one test for each probe (of the family), with $PTXSIM_PROBE_RECORDING or the
 *     recording in the source folder.
 *   test_probes record FOLDER [OTHER]: writes FOLDER/h200.txt, the recording, and FOLDER/differences.txt, a recording
 *     that has all bytes of the outputs that the recording OTHER has not or otherwise.
 *   test_probes ptx FOLDER: writes the kernels to FOLDER/NUMBER.ptx, and FOLDER/names.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording.h"
#include "run.h"

enum { SKIPPED = 77, RECORDED_CAPABILITY = 90 };

static const struct {
    const char *name;
    void (*add)(probe_list *list);
} families[] = {
    {"convert", probes_convert},   {"integer", probes_integer},
    {"float", probes_float},       {"warp", probes_warp},
    {"memory", probes_memory},     {"matrix", probes_matrix},
    {"wgmma", probes_wgmma},       {"mbarrier", probes_mbarrier},
    {"rounding", probes_rounding}, {"tensor_copy", probes_tensor_copy},
};

/* All, or those of one family; false if there is no such family. Names must differ: recordings are found by them. */
static bool add_probes(probe_list *list, const char *family) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!family || strcmp(family, families[i].name) == 0)
            families[i].add(list);
    for (size_t i = 0; i < list->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(list->items[i].name, list->items[j].name) == 0) {
                fprintf(stderr, "two probes are called %s\n", list->items[i].name);
                exit(1);
            }
        }
    }
    return list->count > 0;
}

/* ---- Comparison ---- */

typedef struct comparison {
    const probe *p;
    const probe_result *result;
    const recording_entry *entry; /* NULL: there is none */
} comparison;

static void compare_bytes(const probe *p, const uint8_t *out, const uint8_t *recorded) {
    size_t different = 0;
    for (size_t i = 0; i < p->out_bytes; i += 4) {
        uint32_t here = 0, there = 0;
        const size_t bytes = p->out_bytes - i < 4 ? p->out_bytes - i : 4;
        memcpy(&here, out + i, bytes);
        memcpy(&there, recorded + i, bytes);
        if (here != there && different++ < 8)
            print_error("at byte %zu: %08x here, %08x recorded\n", i, here, there);
    }
    if (different)
        fail_msg("%zu of %zu words differ", different, (p->out_bytes + 3) / 4);
}

static size_t differing_parts(const probe *p, const uint8_t *out, const uint8_t *recorded) {
    size_t different = 0;
    for (size_t part = 0; part < RECORDING_PARTS; part++) {
        size_t begin = 0, end = 0;
        uint8_t sum[RECORDING_SUM];
        recording_part(p->out_bytes, part, &begin, &end);
        recording_sum(out + begin, end - begin, sum);
        different += memcmp(sum, recorded + part * RECORDING_SUM, RECORDING_SUM) != 0;
    }
    return different;
}

static void test_probe(void **state) {
    const comparison *c = *state;
    if (!c->result->done)
        fail_msg("%s", c->result->error);
    if (!c->entry)
        fail_msg("there is no recording of it");
    char key[17];
    recording_key(c->p, key);
    if (strcmp(key, c->entry->key) != 0 || c->entry->bytes != c->p->out_bytes)
        fail_msg("the probe has changed since it was recorded: record it anew");
    const size_t different = c->entry->raw ? 0 : differing_parts(c->p, c->result->out, c->entry->data);
    if (different)
        fail_msg("%zu of %d parts differ", different, RECORDING_PARTS);
    if (c->entry->raw)
        compare_bytes(c->p, c->result->out, c->entry->data);
}

static int compare(const probe_list *list, const probe_run *run, const recording *rec) {
    comparison *comparisons = calloc(list->count, sizeof *comparisons);
    struct CMUnitTest *tests = calloc(list->count, sizeof *tests);
    int failures = 1;
    for (size_t i = 0; comparisons && tests && i < list->count; i++) {
        const probe *p = &list->items[i];
        comparisons[i] = (comparison){p, &run->results[i], recording_find(rec, p->name)};
        tests[i] = (struct CMUnitTest){p->name, test_probe, NULL, NULL, &comparisons[i]};
    }
    if (comparisons && tests)
        failures = _cmocka_run_group_tests("probes", tests, list->count, NULL, NULL);
    free(tests);
    free(comparisons);
    return failures;
}

/* ---- Recording ---- */

static bool write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(data, 1, size, file) == size;
    if ((file && fclose(file) != 0) || !written) {
        perror(path);
        return false;
    }
    return true;
}

static bool agrees(const probe *p, const uint8_t *out, const recording_entry *entry) {
    if (!entry || entry->bytes != p->out_bytes)
        return false;
    if (entry->raw)
        return memcmp(out, entry->data, p->out_bytes) == 0;
    return differing_parts(p, out, entry->data) == 0;
}

static int record(probe_list *list, const probe_run *run, const char *folder, const recording *other) {
    attns_strbuf text = {0}, differences = {0};
    size_t failed = 0, different = 0;
    attns_strbuf_printf(&text, "# What tests/ptxsim/probes gave on %s, driver API %d, seed %d\n", run->device,
                        run->driver_version, PROBE_SEED);
    for (size_t i = 0; i < list->count; i++) {
        probe *p = &list->items[i];
        const probe_result *r = &run->results[i];
        if (!r->done) {
            printf("failed %s: %s\n", p->name, r->error);
            failed++;
            continue;
        }
        recording_put(&text, p, r->out);
        if (other && !agrees(p, r->out, recording_find(other, p->name))) {
            printf("differs %s\n", p->name);
            different++;
            p->keep = true;
            recording_put(&differences, p, r->out);
        }
    }
    recording_end(&text);
    recording_end(&differences);
    printf("%zu probes on %s, %zu failed, %zu differ\n", list->count, run->device, failed, different);
    const bool written = !text.failed && !differences.failed && write_file(folder, "h200.txt", text.text, text.size) &&
                         write_file(folder, "differences.txt", differences.text, differences.size);
    attns_strbuf_free(&text);
    attns_strbuf_free(&differences);
    return !written || failed;
}

static int write_ptx(const probe_list *list, const char *folder) {
    attns_strbuf names = {0};
    bool written = true;
    for (size_t i = 0; written && i < list->count; i++) {
        char name[32];
        const char *ptx = attns_strbuf_text(&list->items[i].ptx);
        snprintf(name, sizeof name, "%04zu.ptx", i);
        attns_strbuf_printf(&names, "%s %s\n", name, list->items[i].name);
        written = write_file(folder, name, ptx, strlen(ptx));
    }
    written = written && write_file(folder, "names.txt", attns_strbuf_text(&names), names.size);
    attns_strbuf_free(&names);
    return !written;
}

/* ---- What was asked for ---- */

static int run_and_compare(const probe_list *list) {
    probe_run run;
    recording rec;
    probe_run_all(list, &run);
    if (!run.device[0] || run.compute_capability != RECORDED_CAPABILITY) {
        printf("skipped: %s\n", run.device[0] ? "the recording is of a GPU of compute capability 9.0" : run.reason);
        return SKIPPED;
    }
    printf("%s, seed %d\n", run.device, PROBE_SEED);
    int result = 1;
    const char *path = getenv("PTXSIM_PROBE_RECORDING");
    if (recording_read(&rec, path ? path : PROBE_RECORDING))
        result = compare(list, &run, &rec) != 0;
    else
        fprintf(stderr, "%s\n", rec.error);
    recording_free(&rec);
    probe_run_free(&run);
    return result;
}

static int run_and_record(probe_list *list, const char *folder, const char *other_path) {
    probe_run run;
    recording other = {0};
    if (other_path && !recording_read(&other, other_path)) {
        fprintf(stderr, "%s\n", other.error);
        return 1;
    }
    probe_run_all(list, &run);
    int result = 1;
    if (run.device[0])
        result = record(list, &run, folder, other_path ? &other : NULL);
    else
        fprintf(stderr, "no GPU: %s\n", run.reason);
    probe_run_free(&run);
    recording_free(&other);
    return result;
}

int main(int argc, char **argv) {
    const char *command = argc >= 3 ? argv[1] : NULL, *family = argc == 2 ? argv[1] : NULL;
    const bool records = command && strcmp(command, "record") == 0, ptx = command && strcmp(command, "ptx") == 0;
    probe_list list = {0};
    if (argc > 4 || (command && !records && !(ptx && argc == 3)) || sodium_init() < 0 || !add_probes(&list, family)) {
        fprintf(stderr, "usage: test_probes [FAMILY] | record FOLDER [OTHER] | ptx FOLDER\n");
        return 2;
    }
    int result = 0;
    if (ptx) {
        result = write_ptx(&list, argv[2]);
    } else if (records) {
        result = run_and_record(&list, argv[2], argc == 4 ? argv[3] : NULL);
    } else {
        result = run_and_compare(&list);
    }
    probe_list_free(&list);
    return result;
}
