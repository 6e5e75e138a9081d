/* SPDX-License-Identifier: MIT
 *
 * attn-scores bench: arguments, the table and its JSON. bench.h says how things are measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_rivals.h"
#include "cli.h"
#include "report.h"

struct options {
    attns_context_params context;
    cli_ints batches, seq_lens, next_ns, num_heads, head_dims, block_sizes, out_dtypes;
    bench_settings settings;
    bench_op op;
    bench_rivals rivals; /* those of a file */
    bool deepgemm, json, cold;
    const char *cold_child, *arch;
    int device;
};

#define MAX_NEXT_N 8

enum {
    KEY_OP = 0x300,
    KEY_BATCH,
    KEY_SEQ_LEN,
    KEY_NEXT_N,
    KEY_NUM_HEADS,
    KEY_HEAD_DIM,
    KEY_BLOCK_SIZE,
    KEY_OUT_DTYPE,
    KEY_PRESET,
    KEY_RIVALS,
    KEY_JITTER,
    KEY_PDL,
    KEY_CLEAN,
    KEY_SCHEDULE,
    KEY_REPLAYS,
    KEY_SEED,
    KEY_DEVICE,
    KEY_COLD,
    KEY_ARCH,
    KEY_COLD_CHILD,
    KEY_JSON
};

static const cli_name op_names[] = {{"fp8", BENCH_FP8}, {"fp4", BENCH_FP4}, {"indexer", BENCH_INDEXER}, {NULL, 0}};
static const cli_name schedule_names[] = {{"self", 0}, {"meta", 1}, {NULL, 0}};
static const cli_name preset_names[] = {{"deepgemm", 1}, {NULL, 0}};

static const struct argp_option option_list[] = {
    {"op", KEY_OP, "NAME", 0,
     "Operation: fp8, fp4, or indexer (BF16 and NVFP4; of the lists only --batch, groups, --seq-len, keys of a group, "
     "and "
     "--next-n, rows of a group, matter; without them it measures shapes of its own) (default: fp8)",
     0},
    {"batch", KEY_BATCH, "LIST", 0, "Requests (default: 1,16,64)", 0},
    {"seq-len", KEY_SEQ_LEN, "LIST", 0, "KV tokens of a request (default: 4096,16384)", 0},
    {"next-n", KEY_NEXT_N, "LIST", 0, "Query slots of a request (default: 1)", 0},
    {"num-heads", KEY_NUM_HEADS, "LIST", 0, "Query heads (default: 64)", 0},
    {"head-dim", KEY_HEAD_DIM, "LIST", 0, "Elements of a head (default: 128)", 0},
    {"block-size", KEY_BLOCK_SIZE, "LIST", 0, "Tokens of a KV block (default: 64)", 0},
    {"out-dtype", KEY_OUT_DTYPE, "LIST", 0, "Output types: f32, f16, bf16 (default: f32 for fp8, bf16 for fp4)", 0},
    {"preset", KEY_PRESET, "NAME", 0,
     "deepgemm: the twelve (batch, seq-len) pairs with published figures instead of --batch and --seq-len; next-n then "
     "defaults to 1,2",
     0},
    {"rivals", KEY_RIVALS, "FILE", 0,
     "Print the figures of FILE (tools/rival_deep_gemm.py writes one) beside ours instead of the published ones", 0},
    {"jitter", KEY_JITTER, NULL, 0, "Lengths uniform in 0.7 .. 1.3 of seq-len", 0},
    {"pdl", KEY_PDL, NULL, 0, "Programmatic dependent launch (the streaming limit stays without)", 0},
    {"clean", KEY_CLEAN, NULL, 0, "Fill with -inf past each slot's tokens", 0},
    {"schedule", KEY_SCHEDULE, "HOW", 0,
     "self: one launch per call; meta: the schedule helper, then the call (default: self)", 0},
    {"replays", KEY_REPLAYS, "N", 0, "Graph replays of which the median counts (default: 11)", 0},
    {"seed", KEY_SEED, "N", 0, "Of inputs, lengths and block tables (default: 1)", 0},
    {"device", KEY_DEVICE, "N", 0, "CUDA device (default: 0)", 0},
    {"cold", KEY_COLD, NULL, 0,
     "Instead of the table: time to compile one kernel cold, and time of the first call in a fresh process with the "
     "kernel in the disk cache",
     0},
    {"arch", KEY_ARCH, "ARCH", 0, "With --cold: the target to compile for (default: that of the device)", 0},
    {"cold-child", KEY_COLD_CHILD, "WHAT", OPTION_HIDDEN, NULL, 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object per shape and one with the summary", 0},
    {0},
};

static void load_rivals(struct argp_state *state, struct options *o, const char *path) {
    char error[400];
    bench_rivals_free(&o->rivals);
    if (!bench_rivals_load(&o->rivals, path, error, sizeof(error))) {
        argp_error(state, "--rivals: %s", error);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->context;
        return 0;
    case KEY_OP:
        o->op = (bench_op)cli_parse_name(state, "--op", arg, op_names);
        return 0;
    case KEY_BATCH:
        cli_parse_ints(state, "--batch", arg, 1, 1 << 20, &o->batches);
        return 0;
    case KEY_SEQ_LEN:
        cli_parse_ints(state, "--seq-len", arg, 1, 1 << 30, &o->seq_lens);
        return 0;
    case KEY_NEXT_N:
        cli_parse_ints(state, "--next-n", arg, 1, MAX_NEXT_N, &o->next_ns);
        return 0;
    case KEY_NUM_HEADS:
        cli_parse_ints(state, "--num-heads", arg, 1, 128, &o->num_heads);
        return 0;
    case KEY_HEAD_DIM:
        cli_parse_ints(state, "--head-dim", arg, 32, 128, &o->head_dims);
        return 0;
    case KEY_BLOCK_SIZE:
        cli_parse_ints(state, "--block-size", arg, 16, 256, &o->block_sizes);
        return 0;
    case KEY_OUT_DTYPE:
        cli_parse_names(state, "--out-dtype", arg, cli_dtype_names, &o->out_dtypes);
        return 0;
    case KEY_PRESET:
        o->deepgemm = cli_parse_name(state, "--preset", arg, preset_names) == 1;
        return 0;
    case KEY_RIVALS:
        load_rivals(state, o, arg);
        return 0;
    case KEY_JITTER:
        o->settings.jitter = true;
        return 0;
    case KEY_PDL:
        o->settings.pdl = true;
        return 0;
    case KEY_CLEAN:
        o->settings.clean = true;
        return 0;
    case KEY_SCHEDULE:
        o->settings.schedule_meta = cli_parse_name(state, "--schedule", arg, schedule_names) == 1;
        return 0;
    case KEY_REPLAYS:
        o->settings.replays = cli_parse_int(state, "--replays", arg, 1, 1000);
        return 0;
    case KEY_SEED:
        o->settings.seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT32_MAX);
        return 0;
    case KEY_DEVICE:
        o->device = cli_parse_int(state, "--device", arg, 0, 255);
        return 0;
    case KEY_COLD:
        o->cold = true;
        return 0;
    case KEY_ARCH:
        o->arch = arg;
        return 0;
    case KEY_COLD_CHILD:
        o->cold_child = arg;
        return 0;
    case KEY_JSON:
        o->json = cli_accept_json(state);
        return 0;
    case ARGP_KEY_END:
        if (o->deepgemm && (o->batches.count > 0 || o->seq_lens.count > 0)) {
            argp_error(state, "--preset: deepgemm fixes the shapes; it is accepted without --batch and --seq-len only");
        }
        if (o->rivals.count > 0 && o->op != BENCH_FP8) {
            argp_error(state, "--rivals: the figures are of fp8; accepted without --op %s only",
                       cli_name_of(op_names, (int)o->op));
        }
        if (o->op == BENCH_INDEXER && (o->cold || o->deepgemm || o->settings.clean || o->settings.schedule_meta)) {
            argp_error(state, "--op: indexer is accepted without --cold, --preset, --clean and --schedule only");
        }
        if (o->arch != NULL && !o->cold && o->cold_child == NULL) {
            argp_error(state,
                       "--arch: '%s' is accepted together with --cold only; the table is measured on the device "
                       "present",
                       o->arch);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- The shapes ---------------------------------------------------------------------------------------------- */

static void set_defaults(struct options *o) {
    static const int batches[] = {1, 16, 64}, seq_lens[] = {4096, 16384}, next_ns[] = {1, 2}, heads[] = {64},
                     dims[] = {128}, blocks[] = {64};
    const int dtypes[] = {o->op == BENCH_FP4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32};
    cli_default_ints(&o->batches, batches, 3);
    cli_default_ints(&o->seq_lens, seq_lens, 2);
    cli_default_ints(&o->next_ns, next_ns, o->deepgemm ? 2 : 1);
    cli_default_ints(&o->num_heads, heads, 1);
    cli_default_ints(&o->head_dims, dims, 1);
    cli_default_ints(&o->block_sizes, blocks, 1);
    cli_default_ints(&o->out_dtypes, dtypes, 1);
}

/* The product of the lists; (batch, seq_len) pairs vary fastest. Number `index`; false past the end. */
static bool shape_at(const struct options *o, size_t index, bench_shape *shape) {
    size_t pairs = o->deepgemm ? bench_num_deepgemm_shapes : o->batches.count * o->seq_lens.count;
    size_t pair = index % pairs;
    index /= pairs;
    if (o->deepgemm) {
        shape->batch = bench_deepgemm_shapes[pair].batch;
        shape->seq_len = bench_deepgemm_shapes[pair].seq_len;
    } else {
        shape->batch = o->batches.values[pair / o->seq_lens.count];
        shape->seq_len = o->seq_lens.values[pair % o->seq_lens.count];
    }
    shape->variant = o->op == BENCH_FP4 ? ATTNS_VARIANT_FP4 : ATTNS_VARIANT_FP8;
    shape->next_n = o->next_ns.values[index % o->next_ns.count];
    index /= o->next_ns.count;
    shape->num_heads = o->num_heads.values[index % o->num_heads.count];
    index /= o->num_heads.count;
    shape->head_dim = o->head_dims.values[index % o->head_dims.count];
    index /= o->head_dims.count;
    shape->block_size = o->block_sizes.values[index % o->block_sizes.count];
    index /= o->block_sizes.count;
    shape->out_dtype = (attns_dtype)o->out_dtypes.values[index % o->out_dtypes.count];
    index /= o->out_dtypes.count;
    return index == 0;
}

static bool shape_exists(const struct options *o, size_t index) {
    bench_shape shape;
    return shape_at(o, index, &shape);
}

/* ---- Output -------------------------------------------------------------------------------------------------- */

struct mean {
    double log_sum;
    int count;
};

static void mean_add(struct mean *mean, double value) {
    mean->log_sum += log(value);
    mean->count++;
}

static double mean_of(const struct mean *mean) {
    return mean->count == 0 ? NAN : exp(mean->log_sum / mean->count);
}

struct summary {
    size_t measured, too_large, failed;
    double copy_gbps;
    /* Index 0: all shapes; n: those with next_n == n. */
    struct mean share[MAX_NEXT_N + 1], ratio[MAX_NEXT_N + 1];
};

static void summary_add(struct summary *sum, const bench_shape *shape, const bench_result *result, double rival_us) {
    sum->measured++;
    const int groups[] = {0, shape->next_n};
    for (int i = 0; i < 2; i++) {
        mean_add(&sum->share[groups[i]], result->limit_us / result->us);
        if (rival_us > 0) {
            mean_add(&sum->ratio[groups[i]], rival_us / result->us);
        }
    }
}

static void print_header(const struct options *o, const bench *b, double copy_gbps) {
    printf("%s, %d SMs, L2 %d MiB, driver %d.%d; device-to-device copy %.0f GB/s (read + written)\n", b->device.name,
           b->device.num_sms, b->device.l2_bytes >> 20, b->gpu.driver_version / 1000, b->gpu.driver_version % 1000 / 10,
           copy_gbps);
    printf("%s, schedule %s, PDL %s%s%s; median of %d graph replays; seed %d\n", cli_name_of(op_names, (int)o->op),
           cli_name_of(schedule_names, o->settings.schedule_meta), o->settings.pdl ? "on" : "off",
           o->settings.clean ? ", clean" : "", o->settings.jitter ? ", lengths 0.7 .. 1.3 of ctx" : "",
           o->settings.replays, (int)o->settings.seed);
    printf("%5s %8s %2s %4s %4s %4s %4s %9s %9s %7s %7s %8s %7s %9s %9s %7s\n", "B", "ctx", "n", "H", "D", "blk", "out",
           "us", "limit us", "share", "GB/s", "TFLOP/s", "host us", "launch us", "DeepGEMM", "faster");
}

static void print_row(const bench_shape *s, const bench_result *r, double rival_us) {
    cli_progress_clear();
    printf("%5d %8d %2d %4d %4d %4d %4s %9.2f %9.2f %6.1f%% %7.0f %8.1f %7.2f %9.2f", s->batch, s->seq_len, s->next_n,
           s->num_heads, s->head_dim, s->block_size, cli_name_of(cli_dtype_names, (int)s->out_dtype), r->us,
           r->limit_us, 100 * r->limit_us / r->us, r->bytes / r->us * 1e-3, r->flops / r->us * 1e-6, r->host_us,
           r->launch_us);
    if (rival_us > 0) {
        printf(" %9.2f %6.2fx", rival_us, rival_us / r->us);
    }
    printf("%s\n", r->fits_l2 ? "  (pools fit L2)" : "");
    fflush(stdout);
}

static void report_row(const bench_shape *s, const bench_result *r, double rival_us) {
    cli_progress_clear();
    report_object(NULL);
    report_text("type", "shape");
    report_text("op", s->variant == ATTNS_VARIANT_FP4 ? "fp4" : "fp8");
    report_int("batch", s->batch);
    report_int("seq_len", s->seq_len);
    report_int("next_n", s->next_n);
    report_int("num_heads", s->num_heads);
    report_int("head_dim", s->head_dim);
    report_int("block_size", s->block_size);
    report_text("out_dtype", cli_name_of(cli_dtype_names, (int)s->out_dtype));
    report_real("us", r->us);
    report_real("limit_us", r->limit_us);
    report_real("share_of_limit", r->limit_us / r->us);
    report_real("gbps", r->bytes / r->us * 1e-3);
    report_real("tflops", r->flops / r->us * 1e-6);
    report_real("host_us", r->host_us);
    report_real("launch_us", r->launch_us);
    report_bool("pools_fit_l2", r->fits_l2);
    report_real("deepgemm_us", rival_us > 0 ? rival_us : NAN);
    report_real("speedup_over_deepgemm", rival_us > 0 ? rival_us / r->us : NAN);
    report_close();
}

static void print_summary(const struct options *o, const bench *b, const bench_rivals *rivals,
                          const struct summary *sum) {
    if (o->json) {
        report_object(NULL);
        report_text("type", "summary");
        report_text("device", b->device.name);
        report_int("driver_version", b->gpu.driver_version);
        report_text("schedule", cli_name_of(schedule_names, o->settings.schedule_meta));
        report_bool("pdl", o->settings.pdl);
        report_bool("clean", o->settings.clean);
        report_bool("jitter", o->settings.jitter);
        report_int("seed", (int64_t)o->settings.seed);
        report_real("copy_gbps", sum->copy_gbps);
        report_int("measured", (int64_t)sum->measured);
        report_int("too_large", (int64_t)sum->too_large);
        report_int("failed", (int64_t)sum->failed);
        report_real("share_of_limit_mean", mean_of(&sum->share[0]));
        report_real("speedup_over_deepgemm_mean", mean_of(&sum->ratio[0]));
        report_text("deepgemm_source", sum->ratio[0].count > 0 ? rivals->source : NULL);
        report_array("by_next_n");
        for (int n = 1; n <= MAX_NEXT_N; n++) {
            if (sum->share[n].count > 0) {
                report_object(NULL);
                report_int("next_n", n);
                report_real("share_of_limit_mean", mean_of(&sum->share[n]));
                report_real("speedup_over_deepgemm_mean", mean_of(&sum->ratio[n]));
                report_close();
            }
        }
        report_close();
        report_close();
        return;
    }
    printf("%zu shapes measured, %zu too large for this GPU's memory, %zu failed\n", sum->measured, sum->too_large,
           sum->failed);
    for (int n = 1; n <= MAX_NEXT_N + 1; n++) { /* the groups, then all */
        const struct mean *share = &sum->share[n % (MAX_NEXT_N + 1)], *ratio = &sum->ratio[n % (MAX_NEXT_N + 1)];
        if (share->count == 0) {
            continue;
        }
        char group[32] = "all shapes";
        if (n <= MAX_NEXT_N) {
            snprintf(group, sizeof(group), "next_n %d", n);
        }
        printf("geometric mean, %-10s: %.1f%% of the streaming limit over %d shapes", group, 100 * mean_of(share),
               share->count);
        if (ratio->count > 0) {
            printf("; %.3fx as fast as DeepGEMM over %d", mean_of(ratio), ratio->count);
        }
        putchar('\n');
    }
    if (sum->ratio[0].count > 0) {
        printf("DeepGEMM: %s\n", rivals->source);
    }
}

/* ---- Running ------------------------------------------------------------------------------------------------- */

/* Some of the memory stays free for the driver and the kernels. */
static bool fits(const bench *b, const struct options *o, const bench_shape *shape, size_t free_bytes, size_t *arena) {
    bench_memory memory = bench_memory_of(b, shape, &o->settings);
    *arena = memory.arena_bytes;
    return memory.arena_bytes + memory.other_bytes < free_bytes / 20 * 19;
}

static int run_shapes(const struct options *o, bench *b) {
    size_t free_bytes = 0, all_bytes = 0, arena = 0, total = 0;
    if (!gpu_ok(&b->gpu, b->gpu.mem_get_info(&free_bytes, &all_bytes), "cuMemGetInfo")) {
        return CLI_FAILED;
    }
    /* One arena for all shapes; a shape that would not leave room for its other buffers beside it is left out. */
    size_t other = 0, bytes;
    bench_shape shape;
    for (; shape_exists(o, total); total++) {
        shape_at(o, total, &shape);
        if (fits(b, o, &shape, free_bytes, &bytes)) {
            size_t others = bench_memory_of(b, &shape, &o->settings).other_bytes;
            arena = bytes > arena ? bytes : arena;
            other = others > other ? others : other;
        }
    }
    if (arena + other > free_bytes / 20 * 19) {
        arena = free_bytes / 20 * 19 - other;
    }
    const bench_rivals rivals = o->rivals.count > 0 ? o->rivals : bench_rivals_built_in(b->device.name);
    if (rivals.device[0] != 0 && strcmp(rivals.device, b->device.name) != 0) {
        cli_error("bench", "the figures of --rivals were measured on '%s', this is '%s'", rivals.device,
                  b->device.name);
    }
    struct summary sum = {0};
    if (arena > 0 && (!bench_arena(b, arena) || !bench_copy_gbps(b, o->settings.replays, &sum.copy_gbps))) {
        return CLI_FAILED;
    }
    if (!o->json) {
        print_header(o, b, sum.copy_gbps);
    }
    for (size_t i = 0; i < total; i++) {
        shape_at(o, i, &shape);
        cli_progress_set(i, total, "shapes");
        if (!fits(b, o, &shape, free_bytes, &bytes) || bytes > arena) {
            char need[24], present[24];
            cli_error("bench", "batch %d x seq-len %d left out: needs %s of device memory, %s are free", shape.batch,
                      shape.seq_len,
                      cli_bytes(bytes + bench_memory_of(b, &shape, &o->settings).other_bytes, need, sizeof(need)),
                      cli_bytes(free_bytes, present, sizeof(present)));
            sum.too_large++;
            continue;
        }
        bench_result result;
        if (bench_measure(b, &shape, &o->settings, &result) != CLI_OK) {
            cli_error("bench", "batch %d, seq-len %d, next-n %d, num-heads %d, head-dim %d, block-size %d failed",
                      shape.batch, shape.seq_len, shape.next_n, shape.num_heads, shape.head_dim, shape.block_size);
            sum.failed++;
            continue;
        }
        double rival_us = bench_rival_us(&rivals, &shape, &o->settings);
        summary_add(&sum, &shape, &result, rival_us);
        (o->json ? report_row : print_row)(&shape, &result, rival_us);
    }
    cli_progress_clear();
    print_summary(o, b, &rivals, &sum);
    return sum.failed > 0 || sum.measured == 0 ? CLI_FAILED : CLI_OK;
}

static int run_cold(const struct options *o, const bench_shape *shape) {
    bench_cold cold;
    int exit_code = bench_measure_cold(&o->context, o->device, o->arch, shape, o->settings.replays, &cold);
    if (exit_code != CLI_OK) {
        return exit_code;
    }
    if (o->json) {
        report_object(NULL);
        report_text("type", "cold");
        report_real("compile_ms", cold.compile_ms);
        report_real("open_nvrtc_ms", cold.open_nvrtc_ms);
        report_real("cuda_start_ms", cold.first_call_done ? cold.cuda_ms : NAN);
        report_real("first_call_ms", cold.first_call_done ? cold.first_call_ms : NAN);
        report_bool("first_call_without_compiler", cold.first_call_done && cold.first_call_clean);
        report_close();
    } else {
        printf("one kernel compiled cold        %8.1f ms (%.1f ms of it to open NVRTC)\n", cold.compile_ms,
               cold.open_nvrtc_ms);
        if (cold.first_call_done) {
            printf("CUDA's own start                %8.1f ms\n"
                   "first call, kernel in the cache %8.1f ms beyond it; %s\n",
                   cold.cuda_ms, cold.first_call_ms,
                   cold.first_call_clean ? "nothing compiled, NVRTC not loaded" : "but the compiler was used");
        } else {
            printf("first call                      not measured: there is no GPU here\n");
        }
        printf("medians of %d fresh processes each\n", o->settings.replays);
    }
    return cold.first_call_done && !cold.first_call_clean ? CLI_FAILED : CLI_OK;
}

static int run(struct options *o) {
    /* The device is opened beside the library's own handle, by the same name. */
    if (o->context.libcuda_path != NULL) {
        setenv("ATTNS_LIBCUDA", o->context.libcuda_path, 1);
    }
    bench_shape first = {0};
    if (o->op != BENCH_INDEXER) {
        shape_at(o, 0, &first);
    }
    if (o->cold_child != NULL) {
        return bench_cold_child(&o->context, o->device, o->arch, &first, o->cold_child);
    }
    if (o->cold) {
        return run_cold(o, &first);
    }
    attns_context *ctx = cli_context_create(&o->context);
    if (ctx == NULL) {
        return CLI_FAILED;
    }
    bench b;
    int exit_code = bench_open(&b, ctx, o->device, o->op);
    if (exit_code == CLI_OK && o->op == BENCH_INDEXER) {
        exit_code = bench_run_indexer(&b, &o->batches, &o->seq_lens, &o->next_ns, &o->settings, o->json);
    } else if (exit_code == CLI_OK) {
        exit_code = run_shapes(o, &b);
    }
    /* Its kernels live in the CUDA context that bench_close lets go of. */
    attns_context_destroy(ctx);
    bench_close(&b);
    return exit_code;
}

int cmd_bench(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_context_argp, 0, "Library settings:", 10}, {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .doc =
            "Measures every shape of the product of the lists (a list is written 64,32 or 1-4): device time of a call "
            "by replaying a CUDA graph over KV pools that together exceed L2, the time of a kernel that only streams "
            "the same bytes, and the host's time to enqueue a call.\v"
            "us: device time of a call. limit us: the streaming kernel. share: limit / us. GB/s: each KV byte and "
            "scale once, queries, weights, scores. Where a figure of DeepGEMM is in the file of --rivals, or without "
            "that option was published for the shape and the device, it stands beside ours.",
        .children = children,
    };
    struct options options = {.op = BENCH_FP8, .settings = {.replays = 11, .seed = 1}};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.op != BENCH_INDEXER) {
        set_defaults(&options);
    }
    int exit_code = run(&options);
    bench_rivals_free(&options.rivals);
    cli_ints *lists[] = {&options.batches,   &options.seq_lens,    &options.next_ns,   &options.num_heads,
                         &options.head_dims, &options.block_sizes, &options.out_dtypes};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        cli_ints_free(lists[i]);
    }
    return exit_code;
}
