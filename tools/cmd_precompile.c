/* SPDX-License-Identifier: MIT
 *
 * attn-scores precompile: fills the kernel cache, at deploy time or in an image build. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "from_log.h"
#include "report.h"

struct options {
    attns_context_params context;
    cli_strings archs;
    cli_ints variants, num_heads, head_dims, block_sizes, next_ns, out_dtypes, acc_dtypes, epi_dtypes, kv_sfs;
    kernel_names kernels;
    const char *log;
    int jobs;
    bool json;
};

enum {
    KEY_ARCH = 0x300,
    KEY_VARIANT,
    KEY_NUM_HEADS,
    KEY_HEAD_DIM,
    KEY_BLOCK_SIZE,
    KEY_NEXT_N,
    KEY_OUT_DTYPE,
    KEY_ACC_DTYPE,
    KEY_EPI_DTYPE,
    KEY_KV_SF,
    KEY_KERNEL,
    KEY_FROM_LOG,
    KEY_JSON
};

static const cli_name kv_sf_names[] = {{"plain", 0}, {"interleaved", 1}, {NULL, 0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->context;
        return 0;
    case KEY_ARCH:
        cli_parse_strings(state, "--arch", arg, &o->archs);
        return 0;
    case KEY_VARIANT:
        cli_parse_names(state, "--variant", arg, cli_variant_names, &o->variants);
        return 0;
    case KEY_NUM_HEADS:
        cli_parse_ints(state, "--num-heads", arg, 1, 1024, &o->num_heads);
        return 0;
    case KEY_HEAD_DIM:
        cli_parse_ints(state, "--head-dim", arg, 1, 4096, &o->head_dims);
        return 0;
    case KEY_BLOCK_SIZE:
        cli_parse_ints(state, "--block-size", arg, 1, 65536, &o->block_sizes);
        return 0;
    case KEY_NEXT_N:
        cli_parse_ints(state, "--next-n", arg, 1, 64, &o->next_ns);
        return 0;
    case KEY_OUT_DTYPE:
        cli_parse_names(state, "--out-dtype", arg, cli_dtype_names, &o->out_dtypes);
        return 0;
    case KEY_ACC_DTYPE:
        cli_parse_names(state, "--acc-dtype", arg, cli_dtype_names, &o->acc_dtypes);
        return 0;
    case KEY_EPI_DTYPE:
        cli_parse_names(state, "--epi-dtype", arg, cli_dtype_names, &o->epi_dtypes);
        return 0;
    case KEY_KV_SF:
        cli_parse_names(state, "--kv-sf", arg, kv_sf_names, &o->kv_sfs);
        return 0;
    case KEY_KERNEL:
        kernel_names_add(&o->kernels, arg);
        return 0;
    case KEY_FROM_LOG:
        o->log = arg;
        return 0;
    case 'j':
        o->jobs = cli_parse_int(state, "--jobs", arg, 1, 1024);
        return 0;
    case KEY_JSON:
        o->json = cli_accept_json(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_list[] = {
    {"arch", KEY_ARCH, "LIST", 0,
     "Targets, such as sm_90a; all: what NVRTC knows from sm_80 on, where there is a kernel (default: the devices of "
     "this machine)",
     0},
    {"variant", KEY_VARIANT, "LIST", 0, "Operations: fp8, fp4, indexer-bf16, indexer-nvfp4 (default: fp8)", 0},
    {"num-heads", KEY_NUM_HEADS, "LIST", 0, "Query heads (default: 64)", 0},
    {"head-dim", KEY_HEAD_DIM, "LIST", 0, "Elements of a head (default: 128)", 0},
    {"block-size", KEY_BLOCK_SIZE, "LIST", 0, "Tokens of a KV block (default: 64)", 0},
    {"next-n", KEY_NEXT_N, "LIST", 0, "Query slots of a request (default: 1-4)", 0},
    {"out-dtype", KEY_OUT_DTYPE, "LIST", 0, "Output types: f32, f16, bf16 (default: f32 for fp8, bf16 for fp4)", 0},
    {"acc-dtype", KEY_ACC_DTYPE, "LIST", 0, "Tensor-core accumulators of fp8: f32, f16 (default: f32)", 0},
    {"epi-dtype", KEY_EPI_DTYPE, "LIST", 0, "Types of the head sum of fp8: f32, f16 (default: f32)", 0},
    {"kv-sf", KEY_KV_SF, "LIST", 0,
     "Order of the KV scales of fp4 with block size 128: plain, interleaved (default: plain)", 0},
    {"kernel", KEY_KERNEL, "NAME", 0,
     "Instead of the lists: this kernel, named as in messages and records; may be repeated", 0},
    {"from-log", KEY_FROM_LOG, "FILE", 0,
     "Instead of the lists: every kernel that FILE names, a record ($ATTNS_RECORD) or any log; - reads standard input",
     0},
    {"jobs", 'j', "N", 0, "Compiler threads (default: one per CPU)", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object per kernel and one with the totals", 0},
    {0},
};

/* Written by the progress callback, whose calls are serialised, and read after the call. */
struct tally {
    bool json;
    size_t compiled, from_disk, from_memory, failed;
    size_t not_stored;
    double compile_seconds;
    int spilled;
};

static const char *source_name(const attns_precompile_result *result) {
    if (result->status != ATTNS_OK) {
        return "failed";
    }
    switch (result->source) {
    case ATTNS_FROM_COMPILER:
        return "compiled";
    case ATTNS_FROM_DISK:
        return "disk";
    case ATTNS_FROM_MEMORY:
        return "memory";
    }
    return "?";
}

static void count(struct tally *tally, const attns_precompile_result *result) {
    if (result->status != ATTNS_OK) {
        tally->failed++;
        return;
    }
    tally->spilled += result->spill_bytes > 0;
    tally->not_stored += !result->cached;
    switch (result->source) {
    case ATTNS_FROM_COMPILER:
        tally->compiled++;
        tally->compile_seconds += result->seconds;
        break;
    case ATTNS_FROM_DISK:
        tally->from_disk++;
        break;
    case ATTNS_FROM_MEMORY:
        tally->from_memory++;
        break;
    }
}

static void on_kernel(void *user, size_t done, size_t total, const attns_precompile_result *result) {
    struct tally *tally = user;
    count(tally, result);
    cli_progress_clear();
    if (tally->json) {
        report_object(NULL);
        report_text("type", "kernel");
        report_text("kernel", result->kernel);
        report_text("arch", result->arch);
        report_text("source", source_name(result));
        report_bool("cached", result->cached);
        report_real("seconds", result->seconds);
        report_int("registers", result->registers);
        report_int("spill_bytes", result->spill_bytes);
        report_text("error", result->status == ATTNS_OK ? NULL : result->message);
        report_close();
    } else {
        char registers[24] = "?", spills[24] = "?";
        if (result->registers >= 0) {
            snprintf(registers, sizeof(registers), "%d", result->registers);
        }
        if (result->spill_bytes >= 0) {
            snprintf(spills, sizeof(spills), "%d", result->spill_bytes);
        }
        printf("[%*zu/%zu] %-8s %6.3f s %4s registers %3s spill bytes  %s %s\n", total >= 10 ? 2 : 1, done, total,
               source_name(result), result->seconds, registers, spills, result->arch, result->kernel);
        fflush(stdout);
    }
    if (result->status != ATTNS_OK) {
        cli_error("precompile", "%s %s: %s", result->arch, result->kernel, result->message);
    }
    if (done < total) {
        cli_progress_set(done, total, "kernels");
    }
}

static void print_totals(const struct tally *tally, double seconds) {
    if (tally->json) {
        report_object(NULL);
        report_text("type", "totals");
        report_int("compiled", (int64_t)tally->compiled);
        report_int("disk", (int64_t)tally->from_disk);
        report_int("memory", (int64_t)tally->from_memory);
        report_int("failed", (int64_t)tally->failed);
            report_int("spilled", tally->spilled);
        report_int("not_stored", (int64_t)tally->not_stored);
        report_real("seconds", seconds);
        report_real("compile_seconds", tally->compile_seconds);
        report_close();
        return;
    }
    printf("%zu kernels in %.2f s: %zu compiled (%.2f s of compiler time), %zu from disk, %zu from memory, %zu failed, "
           "%d with spills\n",
           tally->compiled + tally->from_disk + tally->from_memory + tally->failed, seconds, tally->compiled,
           tally->compile_seconds, tally->from_disk, tally->from_memory, tally->failed, tally->spilled);
}

/* The API wants enums, and NULL for a list that was not given. */
static attns_dtype *dtypes_of(const cli_ints *list) {
    attns_dtype *dtypes = list->count == 0 ? NULL : cli_allocate(list->count * sizeof(dtypes[0]));
    for (size_t i = 0; i < list->count; i++) {
        dtypes[i] = (attns_dtype)list->values[i];
    }
    return dtypes;
}

static attns_variant *variants_of(const cli_ints *list) {
    attns_variant *variants = list->count == 0 ? NULL : cli_allocate(list->count * sizeof(variants[0]));
    for (size_t i = 0; i < list->count; i++) {
        variants[i] = (attns_variant)list->values[i];
    }
    return variants;
}

static int precompile(attns_context *ctx, const struct options *o) {
    struct tally tally = {.json = o->json};
    attns_dtype *out_dtypes = dtypes_of(&o->out_dtypes);
    attns_dtype *acc_dtypes = dtypes_of(&o->acc_dtypes);
    attns_dtype *epi_dtypes = dtypes_of(&o->epi_dtypes);
    attns_variant *variants = variants_of(&o->variants);
    bool kv_sfs[2] = {false, false};
    size_t num_kv_sfs = 0; /* each order once, however often it is listed */
    for (size_t i = 0; i < o->kv_sfs.count; i++) {
        bool order = o->kv_sfs.values[i] != 0;
        if (num_kv_sfs == 0 || (num_kv_sfs == 1 && kv_sfs[0] != order)) {
            kv_sfs[num_kv_sfs++] = order;
        }
    }
    const attns_precompile_params params = {
        .archs = o->archs.values,
        .num_archs = o->archs.count,
        .variants = variants,
        .num_variants = o->variants.count,
        .num_heads = o->num_heads.values,
        .num_num_heads = o->num_heads.count,
        .head_dims = o->head_dims.values,
        .num_head_dims = o->head_dims.count,
        .block_sizes = o->block_sizes.values,
        .num_block_sizes = o->block_sizes.count,
        .next_ns = o->next_ns.values,
        .num_next_ns = o->next_ns.count,
        .out_dtypes = out_dtypes,
        .num_out_dtypes = o->out_dtypes.count,
        .acc_dtypes = acc_dtypes,
        .num_acc_dtypes = o->acc_dtypes.count,
        .epi_dtypes = epi_dtypes,
        .num_epi_dtypes = o->epi_dtypes.count,
        .kv_sf_interleaved = num_kv_sfs == 0 ? NULL : kv_sfs,
        .num_kv_sf_interleaved = num_kv_sfs,
        .kernels = o->kernels.values,
        .num_kernels = o->kernels.count,
        .jobs = o->jobs,
        .progress = on_kernel,
        .progress_user = &tally,
    };
    double start = cli_now();
    attns_status status = attns_precompile_paged_mqa_logits(ctx, &params);
    double seconds = cli_now() - start;
    cli_progress_clear();
    free(out_dtypes);
    free(acc_dtypes);
    free(epi_dtypes);
    free(variants);

    size_t tried = tally.compiled + tally.from_disk + tally.from_memory + tally.failed;
    if (tried == 0 && status != ATTNS_OK) {
        return cli_fail("precompile", status);
    }
    print_totals(&tally, seconds);
    if (status != ATTNS_OK || tally.failed > 0) {
        return CLI_FAILED;
    }
    attns_info info;
    status = attns_get_info(ctx, &info);
    if (status != ATTNS_OK) {
        return cli_fail("precompile", status);
    }
    if (tally.compiled > 0 && !cli_cache_dir_was_taken(&o->context, &info)) {
        return cli_error("precompile", "the kernels are in %s and not in --cache-dir %s, which cannot be written",
                         info.cache_dir == NULL ? "no directory" : info.cache_dir, o->context.cache_dir);
    }
    if (info.cache_dir == NULL && tally.not_stored > 0) {
        return cli_error("precompile", "the kernels compile, but none was stored: there is no writable cache directory "
                                       "(see --cache-dir)");
    }
    if (tally.not_stored > 0) {
        return cli_error("precompile", "%zu kernels compile, but could not be stored in %s", tally.not_stored,
                         info.cache_dir);
    }
    return CLI_OK;
}

int cmd_precompile(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_context_argp, 0, "Library settings:", 10}, {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .doc =
            "Compiles every kernel of a set that the kernel cache does not hold yet, in parallel, and stores it. The "
            "set is the product of all lists; a list is written 64,32 or 1-4. Needs NVRTC and no GPU.\v"
            "Examples, for an image build on a machine without a GPU:\n"
            "  attn-scores precompile --arch sm_90a --block-size 32,64 --next-n 1-4 --cache-dir /opt/kernels\n"
            "  attn-scores precompile --from-log used.txt --cache-dir /opt/kernels\n\n"
            "With ATTNS_FORBID_COMPILE=1 it only checks that the cache holds every kernel.",
        .children = children,
    };
    struct options options = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &options);

    int exit_code = kernel_names_read(&options.kernels, options.log);
    options.context.compile_threads = options.jobs;
    attns_context *ctx = exit_code == CLI_OK ? cli_context_create(&options.context) : NULL;
    if (ctx == NULL && exit_code == CLI_OK) {
        exit_code = CLI_FAILED;
    }
    if (ctx != NULL) {
        exit_code = precompile(ctx, &options);
        attns_context_destroy(ctx);
    }
    cli_strings_free(&options.archs);
    kernel_names_free(&options.kernels);
    cli_ints *lists[] = {&options.variants,    &options.num_heads,  &options.head_dims,
                         &options.block_sizes, &options.next_ns,    &options.out_dtypes,
                         &options.acc_dtypes,  &options.epi_dtypes, &options.kv_sfs};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        cli_ints_free(lists[i]);
    }
    return exit_code;
}
