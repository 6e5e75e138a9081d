/* SPDX-License-Identifier: MIT
 *
 * Cold start: what the first kernel costs in a process that has done nothing yet. Every figure comes from a fresh
 * process of this program, which prints it as "name value" lines. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"
#include "core/context.h"
#include "jit/kernel_store.h"

#define MAX_RUNS 32

/* ---- The fresh process --------------------------------------------------------------------------------------- */

static int child_compile(const attns_context_params *params, int ordinal, const char *arch, const bench_shape *shape) {
    double start = cli_now();
    attns_context *ctx = cli_context_create(params);
    if (ctx == NULL) {
        return CLI_FAILED;
    }
    attns_device_info device;
    attns_status status = ATTNS_OK;
    if (arch == NULL) {
        status = attns_get_device_info(ctx, ordinal, &device);
        arch = device.arch;
        start = cli_now(); /* starting CUDA is no part of a compile */
    }
    attns_nvrtc_set *set;
    if (status == ATTNS_OK) {
        status = attns_context_nvrtc(ctx, &set);
    }
    double opened = cli_now();
    bool fp4 = shape->variant == ATTNS_VARIANT_FP4;
    const attns_problem problem = {
        .kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
        .num_heads = shape->num_heads,
        .head_dim = shape->head_dim,
        .block_size = shape->block_size,
        .next_n = shape->next_n,
        .out_dtype = (int32_t)shape->out_dtype,
        .acc_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
        .epi_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
    };
    attns_target target;
    attns_plan plan;
    attns_image image = {0};
    if (status == ATTNS_OK) {
        status = attns_target_from_arch(arch, &target);
    }
    if (status == ATTNS_OK) {
        status = attns_plan_make(&problem, &target, ctx->family_choice, &plan);
    }
    if (status == ATTNS_OK) {
        status = attns_image_get(ctx, &plan, true, 0, &image);
    }
    double end = cli_now();
    int exit_code = CLI_OK;
    if (status != ATTNS_OK) {
        exit_code = cli_fail("bench", status);
    } else if (image.source != ATTNS_FROM_COMPILER) {
        exit_code = cli_error("bench", "the kernel was to be compiled, but was found in a cache");
    } else {
        printf("open_nvrtc_ms %.4f\ncompile_ms %.4f\n", 1e3 * (opened - start), 1e3 * (end - start));
    }
    attns_image_free(&image);
    attns_context_destroy(ctx);
    return exit_code;
}

static bool library_mapped(const char *name) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL) {
        found = strstr(line, name) != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

/* One request of seq_len tokens whose every byte is zero. */
struct small_call {
    int64_t q_shape[4], q_sf_shape[3], kv_shape[4], weights_shape[2], tables_shape[2], lens_shape[1], out_shape[2];
    DLTensor q, q_sf, kv, weights, tables, lens, out;
    attns_fp8_paged_mqa_logits_params fp8;
    attns_fp4_paged_mqa_logits_params fp4;
};

static void make_small_call(const struct gpu *gpu, CUdeviceptr memory, size_t part, const bench_shape *s,
                            struct small_call *call) {
    *call = (struct small_call){
        .q_shape = {1, s->next_n, s->num_heads, bench_value_bytes(s)},
        .q_sf_shape = {1, s->next_n, s->num_heads},
        .kv_shape = {1, s->block_size, 1, bench_token_bytes(s)},
        .weights_shape = {s->next_n, s->num_heads},
        .tables_shape = {1, 1},
        .lens_shape = {1},
        .out_shape = {s->next_n, s->block_size},
    };
    call->q = bench_tensor(gpu, memory, call->q_shape, 4, kDLUInt, 8);
    call->q_sf = bench_tensor(gpu, memory + 6 * part, call->q_sf_shape, 3, kDLInt, 32);
    call->kv = bench_tensor(gpu, memory + part, call->kv_shape, 4, kDLUInt, 8);
    call->weights = bench_tensor(gpu, memory + 2 * part, call->weights_shape, 2, kDLFloat, 32);
    call->tables = bench_tensor(gpu, memory + 3 * part, call->tables_shape, 2, kDLInt, 32);
    call->lens = bench_tensor(gpu, memory + 4 * part, call->lens_shape, 1, kDLInt, 32);
    call->out = bench_tensor(gpu, memory + 5 * part, call->out_shape, 2, bench_out_code(s->out_dtype),
                             bench_out_bits(s->out_dtype));
    call->fp8 = (attns_fp8_paged_mqa_logits_params){
        .q = &call->q,
        .kv_fused = &call->kv,
        .weights = &call->weights,
        .block_tables = &call->tables,
        .seq_lens = &call->lens,
        .out = &call->out,
        .max_seq_len = s->block_size,
    };
    call->fp4 = (attns_fp4_paged_mqa_logits_params){
        .q = &call->q,
        .q_sf = &call->q_sf,
        .kv_fused = &call->kv,
        .weights = &call->weights,
        .block_tables = &call->tables,
        .seq_lens = &call->lens,
        .out = &call->out,
        .max_seq_len = s->block_size,
    };
}

static int child_first_call(const attns_context_params *params, int ordinal, const bench_shape *shape) {
    /* CUDA's own start, with some first work: what the driver prepares for that in any process is not the library's. */
    double begin = cli_now();
    struct gpu gpu;
    if (!gpu_open(&gpu, ordinal)) {
        cli_error("bench", "needs a GPU: %s", gpu.reason);
        return CLI_NO_GPU;
    }
    size_t part = (size_t)1 << 20;
    struct gpu_buffer memory = {0};
    CUstream stream = NULL;
    bool ok = gpu_ok(&gpu, gpu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate") &&
              gpu_buffer_alloc(&gpu, &memory, 7 * part) &&
              gpu_ok(&gpu, gpu.memset_d32(memory.ptr, 0, memory.bytes / 4), "cuMemsetD32") &&
              gpu_ok(&gpu, gpu.memset_d32(memory.ptr + 4 * part, (unsigned)shape->block_size, 1), "cuMemsetD32") &&
              gpu_ok(&gpu, gpu.ctx_synchronize(), "cuCtxSynchronize");
    double start = cli_now();

    attns_context *ctx = ok ? cli_context_create(params) : NULL;
    ok = ctx != NULL;
    if (ok) {
        struct small_call call;
        make_small_call(&gpu, memory.ptr, part, shape, &call);
        attns_status status = shape->variant == ATTNS_VARIANT_FP4 ? attns_fp4_paged_mqa_logits(ctx, &call.fp4, stream)
                                                                  : attns_fp8_paged_mqa_logits(ctx, &call.fp8, stream);
        ok = status == ATTNS_OK;
        if (!ok) {
            cli_fail("bench", status);
        }
        ok = ok && gpu_ok(&gpu, gpu_wait_stream(&gpu, stream, 10), "first call");
        double end = cli_now();
        if (ok) {
            attns_counters counters = {0};
            attns_get_counters(ctx, &counters);
            printf("cuda_ms %.4f\nfirst_call_ms %.4f\ncompiles %d\nnvrtc %d\n", 1e3 * (start - begin),
                   1e3 * (end - start), (int)counters.compiles, library_mapped("libnvrtc"));
        }
        attns_context_destroy(ctx);
    }
    gpu_buffer_free(&gpu, &memory);
    if (stream != NULL) {
        gpu.stream_destroy(stream);
    }
    gpu_close(&gpu);
    return ok ? CLI_OK : CLI_FAILED;
}

int bench_cold_child(const attns_context_params *params, int ordinal, const char *arch, const bench_shape *shape,
                     const char *what) {
    if (strcmp(what, "compile") == 0) {
        return child_compile(params, ordinal, arch, shape);
    }
    if (strcmp(what, "first-call") == 0) {
        return child_first_call(params, ordinal, shape);
    }
    return cli_error("bench", "--cold-child: '%s' is not accepted; accepted: compile, first-call", what);
}

/* ---- The measuring process ----------------------------------------------------------------------------------- */

/* Runs this program once more and collects its standard output. Returns its exit code. */
static int run_child(char *const *argv, char *output, size_t size) {
    int ends[2];
    if (pipe(ends) != 0) {
        return cli_error("bench", "pipe: %s", strerror(errno));
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (pid > 0 && (got = read(ends[0], output + used, size - 1 - used)) != 0) {
        if (got > 0) {
            used += (size_t)got;
        } else if (errno != EINTR) {
            break;
        }
    }
    output[used] = '\0';
    close(ends[0]);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == 127) {
        return cli_error("bench", "a fresh process of this program could not be run, or died");
    }
    return WEXITSTATUS(status);
}

static bool value_of(const char *output, const char *name, double *value) {
    size_t length = strlen(name);
    for (const char *line = output; line != NULL && *line != '\0';) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            *value = strtod(line + length, NULL);
            return true;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return false;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Arguments of a child; texts lie in the struct. */
struct child_args {
    char *argv[32];
    int count;
    char numbers[8][16];
    int used;
};

static void add(struct child_args *args, const char *name, const char *value) {
    if (value != NULL) {
        args->argv[args->count++] = (char *)name;
        args->argv[args->count++] = (char *)value;
        args->argv[args->count] = NULL;
    }
}

static void add_number(struct child_args *args, const char *name, int value) {
    char *text = args->numbers[args->used++];
    snprintf(text, sizeof(args->numbers[0]), "%d", value);
    add(args, name, text);
}

static void make_args(struct child_args *args, const attns_context_params *params, int ordinal, const char *arch,
                      const bench_shape *shape, const char *what) {
    memset(args, 0, sizeof(*args));
    args->argv[args->count++] = (char *)"attn-scores";
    args->argv[args->count++] = (char *)"bench";
    add(args, "--cold-child", what);
    add(args, "--cache-dir", params->cache_dir);
    add(args, "--nvrtc", params->libnvrtc_path);
    add(args, "--libcuda", params->libcuda_path);
    add(args, "--template-dir", params->template_dir);
    add(args, "--family", params->kernel_family);
    add(args, "--op", cli_name_of(cli_variant_names, (int)shape->variant));
    add(args, "--arch", arch);
    add_number(args, "--device", ordinal);
    add_number(args, "--num-heads", shape->num_heads);
    add_number(args, "--head-dim", shape->head_dim);
    add_number(args, "--block-size", shape->block_size);
    add_number(args, "--next-n", shape->next_n);
    add(args, "--out-dtype", cli_name_of(cli_dtype_names, (int)shape->out_dtype));
}

/* An empty folder for a kernel cache; `path` as for mkdtemp. */
static bool make_folder(char *path, size_t size) {
    const char *root = getenv("TMPDIR");
    snprintf(path, size, "%s/attn-scores-cold-XXXXXX", root == NULL || *root == '\0' ? "/tmp" : root);
    if (mkdtemp(path) != NULL) {
        return true;
    }
    cli_error("bench", "%s: %s", path, strerror(errno));
    return false;
}

static int measure_compile(attns_context_params params, int ordinal, const char *arch, const bench_shape *shape,
                           int runs, bench_cold *cold) {
    double total[MAX_RUNS], open_part[MAX_RUNS];
    for (int run = 0; run < runs; run++) {
        char folder[1024], output[4096];
        if (!make_folder(folder, sizeof(folder))) {
            return CLI_FAILED;
        }
        params.cache_dir = folder;
        struct child_args args;
        make_args(&args, &params, ordinal, arch, shape, "compile");
        int exit_code = run_child(args.argv, output, sizeof(output));
        remove_tree(folder);
        if (exit_code != CLI_OK) {
            return exit_code;
        }
        if (!value_of(output, "compile_ms", &total[run]) || !value_of(output, "open_nvrtc_ms", &open_part[run])) {
            return cli_error("bench", "a fresh process printed no figures");
        }
    }
    cold->compile_ms = bench_median(total, (size_t)runs);
    cold->open_nvrtc_ms = bench_median(open_part, (size_t)runs);
    return CLI_OK;
}

static int measure_first_call(attns_context_params params, int ordinal, const bench_shape *shape, int runs,
                              bench_cold *cold) {
    char folder[1024], output[4096];
    if (!make_folder(folder, sizeof(folder))) {
        return CLI_FAILED;
    }
    params.cache_dir = folder;
    double cuda[MAX_RUNS], first[MAX_RUNS];
    int exit_code = CLI_OK;
    cold->first_call_clean = true;
    for (int run = -1; exit_code == CLI_OK && run < runs; run++) { /* the first one fills the cache */
        struct child_args args;
        make_args(&args, &params, ordinal, NULL, shape, "first-call");
        exit_code = run_child(args.argv, output, sizeof(output));
        double compiles = 0, nvrtc = 0, values[2] = {0, 0};
        if (exit_code == CLI_OK &&
            (!value_of(output, "cuda_ms", &values[0]) || !value_of(output, "first_call_ms", &values[1]) ||
             !value_of(output, "compiles", &compiles) || !value_of(output, "nvrtc", &nvrtc))) {
            exit_code = cli_error("bench", "a fresh process printed no figures");
        }
        if (run >= 0) {
            cuda[run] = values[0];
            first[run] = values[1];
            cold->first_call_clean = cold->first_call_clean && compiles == 0 && nvrtc == 0;
        }
    }
    remove_tree(folder);
    if (exit_code == CLI_OK) {
        cold->cuda_ms = bench_median(cuda, (size_t)runs);
        cold->first_call_ms = bench_median(first, (size_t)runs);
        cold->first_call_done = true;
    }
    return exit_code;
}

int bench_measure_cold(const attns_context_params *params, int ordinal, const char *arch, const bench_shape *shape,
                       int runs, bench_cold *cold) {
    memset(cold, 0, sizeof(*cold));
    runs = runs > MAX_RUNS ? MAX_RUNS : runs;
    /* Read-only tiers could hold the kernel that is to be compiled. */
    setenv("ATTNS_CACHE_READONLY_DIRS", "", 1);
    struct gpu gpu;
    bool has_gpu = gpu_open(&gpu, ordinal);
    if (has_gpu) {
        gpu_close(&gpu);
    } else if (arch == NULL) {
        cli_error("bench", "needs a GPU, or --arch to measure compiling alone: %s", gpu.reason);
        return CLI_NO_GPU;
    }
    int exit_code = measure_compile(*params, ordinal, arch, shape, runs, cold);
    if (exit_code == CLI_OK && has_gpu) {
        exit_code = measure_first_call(*params, ordinal, shape, runs, cold);
    }
    return exit_code;
}
