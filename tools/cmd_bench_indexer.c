/* SPDX-License-Identifier: MIT
 *
 * attn-scores bench --op indexer: the shapes, the table and its JSON. */
#include <stdio.h>

#include "bench.h"
#include "cli.h"
#include "report.h"

/* Decode steps, one long context, and what a schedule gets wrong: one long group among short ones, many tiny groups. */
static const bench_indexer_shape own_shapes[] = {
    {.groups = 16, .rows = 4, .keys = 8700},
    {.groups = 32, .rows = 1, .keys = 65536},
    {.groups = 1, .rows = 1, .keys = 1048576},
    {.groups = 1, .rows = 1, .keys = 131072},
    {.groups = 64, .rows = 8, .keys = 16384},
    {.groups = 64, .rows = 1, .keys = 524288, .one_long = true},
    {.groups = 4096, .rows = 1, .keys = 256},
    {.groups = 32768, .rows = 1, .keys = 64},
};

/* Shape number `index`, the two formats of a shape one after another; false past the end. */
static bool shape_at(const cli_ints *groups, const cli_ints *keys, const cli_ints *rows, size_t index,
                     bench_indexer_shape *shape) {
    const bool nvfp4 = index % 2;
    index /= 2;
    if (groups->count + keys->count + rows->count == 0) {
        if (index >= sizeof(own_shapes) / sizeof(own_shapes[0])) {
            return false;
        }
        *shape = own_shapes[index];
    } else {
        *shape = (bench_indexer_shape){.groups = 16, .rows = 1, .keys = 8192};
        const cli_ints *lists[] = {keys, groups, rows};
        int *fields[] = {&shape->keys, &shape->groups, &shape->rows};
        for (int i = 0; i < 3; i++) {
            const size_t count = lists[i]->count > 0 ? lists[i]->count : 1;
            if (lists[i]->count > 0) {
                *fields[i] = lists[i]->values[index % count];
            }
            index /= count;
        }
        if (index > 0) {
            return false;
        }
    }
    shape->nvfp4 = nvfp4;
    return true;
}

static void print_row(const bench_indexer_shape *s, const bench_indexer_result *r, double copy_gbps, double bf16_us,
                      bool json) {
    const double gbps = r->bytes / r->us * 1e-3;
    cli_progress_clear();
    if (json) {
        report_object(NULL);
        report_text("type", "shape");
        report_text("format", s->nvfp4 ? "nvfp4" : "bf16");
        report_int("groups", s->groups);
        report_int("rows", s->rows);
        report_int("keys", s->keys);
        report_bool("one_long", s->one_long);
        report_real("us", r->us);
        report_real("gbps", gbps);
        report_real("share_of_copy", gbps / copy_gbps);
        report_int("launches", r->launches);
        report_real("host_us", r->host_us);
        report_real("launch_us", r->launch_us);
        if (s->nvfp4 && bf16_us > 0) {
            report_real("time_of_bf16", r->us / bf16_us);
        }
        report_close();
        return;
    }
    printf("%6d %4d %8d %-8s %-6s %9.2f %7.0f %6.1f%% %8d %7.2f %9.2f", s->groups, s->rows, s->keys,
           s->one_long ? "one long" : "even", s->nvfp4 ? "nvfp4" : "bf16", r->us, gbps, 100 * gbps / copy_gbps,
           r->launches, r->host_us, r->launch_us);
    if (s->nvfp4 && bf16_us > 0) {
        printf("  %.3fx BF16's time", r->us / bf16_us);
    }
    putchar('\n');
    fflush(stdout);
}

static void print_header(const bench *b, const bench_settings *settings, double copy_gbps) {
    printf("%s, %d SMs, L2 %d MiB, driver %d.%d; device-to-device copy %.0f GB/s (read + written)\n", b->device.name,
           b->device.num_sms, b->device.l2_bytes >> 20, b->gpu.driver_version / 1000, b->gpu.driver_version % 1000 / 10,
           copy_gbps);
    printf("indexer_scores, PDL %s%s; median of %d graph replays; seed %d\n", settings->pdl ? "on" : "off",
           settings->jitter ? ", lengths 0.7 .. 1 of keys" : "", settings->replays, (int)settings->seed);
    printf("%6s %4s %8s %-8s %-6s %9s %7s %7s %8s %7s %9s\n", "groups", "rows", "keys", "lengths", "format", "us",
           "GB/s", "of copy", "launches", "host us", "launch us");
}

int bench_run_indexer(bench *b, const cli_ints *groups, const cli_ints *keys, const cli_ints *rows,
                      const bench_settings *settings, bool json) {
    bench_indexer_shape shape;
    size_t total = 0, arena = 0, free_bytes = 0, all_bytes = 0, too_large = 0, failed = 0;
    if (!gpu_ok(&b->gpu, b->gpu.mem_get_info(&free_bytes, &all_bytes), "cuMemGetInfo")) {
        return CLI_FAILED;
    }
    const size_t room = free_bytes / 20 * 19; /* the rest is for the driver and the kernels */
    size_t other = 0;
    for (; shape_at(groups, keys, rows, total, &shape); total++) {
        const bench_memory memory = bench_indexer_memory(b, &shape);
        if (memory.arena_bytes + memory.other_bytes < room) {
            arena = memory.arena_bytes > arena ? memory.arena_bytes : arena;
            other = memory.other_bytes > other ? memory.other_bytes : other;
        }
    }
    arena = arena + other > room ? room - other : arena;
    double copy_gbps = 0, bf16_us = 0;
    if (arena > 0 && (!bench_arena(b, arena) || !bench_copy_gbps(b, settings->replays, &copy_gbps))) {
        return CLI_FAILED;
    }
    if (!json) {
        print_header(b, settings, copy_gbps);
    }
    for (size_t i = 0; i < total; i++) {
        bench_indexer_result result;
        shape_at(groups, keys, rows, i, &shape);
        const bench_memory memory = bench_indexer_memory(b, &shape);
        cli_progress_set(i, total, "shapes");
        if (memory.arena_bytes > arena || memory.arena_bytes + memory.other_bytes >= room) {
            cli_error("bench", "%d groups of %d keys left out: not enough device memory", shape.groups, shape.keys);
            too_large++;
        } else if (bench_measure_indexer(b, &shape, settings, &result) != CLI_OK) {
            cli_error("bench", "%d groups of %d rows and %d keys failed", shape.groups, shape.rows, shape.keys);
            failed++;
            bf16_us = 0;
        } else {
            bf16_us = shape.nvfp4 ? bf16_us : result.us;
            print_row(&shape, &result, copy_gbps, bf16_us, json);
        }
    }
    cli_progress_clear();
    if (json) {
        report_object(NULL);
        report_text("type", "summary");
        report_text("device", b->device.name);
        report_real("copy_gbps", copy_gbps);
        report_bool("pdl", settings->pdl);
        report_int("too_large", (int64_t)too_large);
        report_int("failed", (int64_t)failed);
        report_close();
    } else {
        printf("%zu shapes measured, %zu too large for this GPU's memory, %zu failed\n", total - too_large - failed,
               too_large, failed);
    }
    return failed > 0 || total == too_large ? CLI_FAILED : CLI_OK;
}
