/* SPDX-License-Identifier: MIT
 *
 * attn-scores info: what the library finds on this machine. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/context.h"
#include "plan/plan.h"
#include "plan/supported.h"
#include "report.h"
#include "simulated.h"

struct options {
    attns_context_params context;
    cli_strings archs; /* besides those of the devices */
    bool json;
};

/* ---- Which kernels serve ----------------------------------------------------------------------------------------- */

#define MAX_LISTED 64

typedef struct target_list {
    attns_target targets[MAX_LISTED];
    size_t count;
} target_list;

static void add_target(target_list *list, const attns_target *target) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->targets[i].arch, target->arch) == 0) {
            return;
        }
    }
    if (list->count < MAX_LISTED) {
        list->targets[list->count++] = *target;
    }
}

/* The best target for each architecture from 8.0 on that NVRTC knows. */
static void add_all(target_list *list, const char *nvrtc_archs) {
    int number = 0, length = 0;
    for (const char *rest = nvrtc_archs; rest != NULL && sscanf(rest, " sm_%d%n", &number, &length) == 1;
         rest += length) {
        attns_target target;
        if (number >= 80 && attns_target_from_compute_capability(number, &target) == ATTNS_OK) {
            add_target(list, &target);
        }
    }
}

static attns_status list_targets(const struct options *o, const attns_context *ctx, const attns_info *info,
                                 const attns_device_info *devices, target_list *list) {
    attns_target target;
    attns_status status = ATTNS_OK;
    list->count = 0;
    for (int i = 0; i < info->num_devices; i++) {
        const char *arch = ctx->arch != NULL ? ctx->arch : devices[i].arch;
        if (arch[0] != '\0' && attns_target_from_arch(arch, &target) == ATTNS_OK) {
            add_target(list, &target);
        }
    }
    for (size_t i = 0; i < o->archs.count && status == ATTNS_OK; i++) {
        if (strcmp(o->archs.values[i], "all") == 0) {
            add_all(list, info->nvrtc_archs);
            continue;
        }
        status = attns_target_from_arch(o->archs.values[i], &target);
        if (status == ATTNS_OK) {
            add_target(list, &target);
        }
    }
    return status;
}

/* What serves an operation on a target; false with the reason if nothing does. The family does not depend on shapes and
 * dtypes. */
static bool select_kernel(const attns_context *ctx, const attns_target *target, attns_variant variant,
                          attns_selection *selection) {
    *selection = (attns_selection){.family = ATTNS_FAMILY_NONE};
    if (variant != ATTNS_VARIANT_FP8 && variant != ATTNS_VARIANT_FP4) {
        snprintf(selection->reason, sizeof(selection->reason), "one kernel for all targets");
        return true;
    }
    const attns_problem problem = {.kind = variant == ATTNS_VARIANT_FP4 ? ATTNS_KERNEL_FP4_LOGITS
                                                                        : ATTNS_KERNEL_FP8_LOGITS};
    if (attns_plan_select(&problem, target, ctx->family_choice, selection) == ATTNS_OK) {
        return true;
    }
    snprintf(selection->reason, sizeof(selection->reason), "%s", attns_last_error());
    return false;
}

/* Shapes with a second kernel, for much work. */
typedef struct second_kernel {
    int tiles;        /* from so many for each SM on; 0: no shape has one */
    char columns[64]; /* "72 to 128, 200 to 256" */
} second_kernel;

/* The runs of consecutive numbers of columns that have one, among those that some shape has at all. */
static void print_columns(const bool *possible, const bool *second, int count, char *text, size_t size) {
    int first = 0, last = 0;
    size_t used = 0;
    text[0] = 0;
    for (int c = 1; c <= count; c++) {
        if (c < count && second[c]) {
            first = first == 0 ? c : first;
            last = c;
        } else if (first != 0 && (c == count || possible[c])) {
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%d to %d", used > 0 ? ", " : "", first, last);
            first = 0;
        }
    }
}

/* With blocks of 64 tokens and the default dtypes. */
static second_kernel find_second(const attns_context *ctx, const attns_target *target, attns_variant variant) {
    second_kernel found = {0};
    if (variant != ATTNS_VARIANT_FP8 && variant != ATTNS_VARIANT_FP4) {
        return found;
    }
    const bool fp4 = variant == ATTNS_VARIANT_FP4;
    attns_problem problem = {.kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
                             .head_dim = 128,
                             .block_size = 64,
                             .out_dtype = fp4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32,
                             .acc_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
                             .epi_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32};
    enum { MAX_COLUMNS = 128 * ATTNS_MAX_NEXT_N };
    bool possible[MAX_COLUMNS + 1] = {false}, second[MAX_COLUMNS + 1] = {false};
    const attns_shape_rule *heads = attns_shape_rule_of((attns_kernel_kind)problem.kind, ATTNS_SHAPE_NUM_HEADS);
    for (int64_t h = heads->min; h <= heads->max; h += heads->step) {
        for (int n = 1; n <= ATTNS_MAX_NEXT_N; n++) {
            attns_plan plan;
            problem.num_heads = (int32_t)h;
            problem.next_n = n;
            if (attns_plan_make(&problem, target, ctx->family_choice, &plan) != ATTNS_OK) {
                continue;
            }
            possible[h * n] = true;
            if (plan.much_tiles != 0) {
                second[h * n] = true;
                found.tiles = plan.much_tiles;
            }
        }
    }
    print_columns(possible, second, MAX_COLUMNS + 1, found.columns, sizeof found.columns);
    return found;
}

static void print_kernels(const attns_context *ctx, const target_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        for (const cli_name *op = cli_variant_names; op->name != NULL; op++) {
            attns_selection selection;
            bool found = select_kernel(ctx, &list->targets[i], (attns_variant)op->value, &selection);
            printf("%-13s %-11s %s: %s%s", i == 0 && op == cli_variant_names ? "kernels" : "", list->targets[i].arch,
                   op->name, found ? "" : "none: ", selection.reason);
            const second_kernel second = find_second(ctx, &list->targets[i], (attns_variant)op->value);
            if (second.tiles != 0) {
                printf("; for %s columns (next_n * num_heads) another from %d tiles of %d tokens for each SM on",
                       second.columns, second.tiles, ATTNS_TILE_TOKENS);
            }
            printf("\n");
        }
    }
}

static void report_kernels(const attns_context *ctx, const target_list *list) {
    report_array("kernels");
    for (size_t i = 0; i < list->count; i++) {
        for (const cli_name *op = cli_variant_names; op->name != NULL; op++) {
            attns_selection selection;
            bool found = select_kernel(ctx, &list->targets[i], (attns_variant)op->value, &selection);
            report_object(NULL);
            report_text("arch", list->targets[i].arch);
            report_text("op", op->name);
            report_text("family", found ? attns_family_name(selection.family) : NULL);
            report_text("reason", selection.reason);
            const second_kernel second = find_second(ctx, &list->targets[i], (attns_variant)op->value);
            report_int("much_tiles", second.tiles);
            report_text("much_columns", second.columns);
            report_close();
        }
    }
    report_close();
}

/* ---- Arguments and output ---------------------------------------------------------------------------------------- */

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case 'A':
        cli_parse_strings(state, "--arch", arg, &options->archs);
        return 0;
    case 'J':
        options->json = cli_accept_json(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* 13020 -> "13.2" */
static const char *cuda_version(int version, char *buffer, size_t size) {
    snprintf(buffer, size, "%d.%d", version / 1000, version % 1000 / 10);
    return buffer;
}

static void print_text(const attns_context *ctx, const attns_info *info, const attns_device_info *devices,
                       const target_list *list) {
    char a[32], b[32];
    printf("attn-scores   %s\n", attns_version());
    if (info->libcuda != NULL) {
        printf("driver        %s, CUDA %s\n", info->libcuda, cuda_version(info->driver_version, a, sizeof(a)));
    } else {
        printf("driver        none: %s\n", info->libcuda_error);
    }
    for (int i = 0; i < info->num_devices; i++) {
        const attns_device_info *device = &devices[i];
        printf("device %-6d %s, compute capability %d.%d, ", i, device->name, device->compute_capability / 10,
               device->compute_capability % 10);
        printf("%s%s, %d SMs, L2 %s, memory %s\n", device->arch[0] == '\0' ? "not supported" : "kernels for ",
               device->arch, device->num_sms, cli_bytes((uint64_t)device->l2_bytes, a, sizeof(a)),
               cli_bytes(device->memory_bytes, b, sizeof(b)));
    }
    print_kernels(ctx, list);
    printf("simulated    ");
    for (size_t i = 0; simulated_name(i) != NULL; i++) {
        printf(" sim:%s", simulated_name(i));
    }
    printf("%s\n", simulated_name(0) == NULL ? " none: libptxsim_cuda.so is not there" : "");
    if (info->libnvrtc != NULL) {
        printf("compiler      %s, NVRTC %s\n", info->libnvrtc, cuda_version(info->nvrtc_version, a, sizeof(a)));
        printf("targets       %s\n", info->nvrtc_archs == NULL ? "unknown" : info->nvrtc_archs);
    } else {
        printf("compiler      none: %s\n", info->libnvrtc_error);
    }
    if (info->cache_dir != NULL) {
        printf("cache         %s: %" PRIu64 " kernels, %s of at most %s\n", info->cache_dir, info->cache_entries,
               cli_bytes(info->cache_bytes, a, sizeof(a)), cli_bytes(info->cache_max_bytes, b, sizeof(b)));
    } else {
        printf("cache         none that can be written; kernels live in memory only\n");
    }
    if (info->cache_readonly_dirs[0] != '\0') {
        printf("read-only     %s\n", info->cache_readonly_dirs);
    }
}

static void print_json(const attns_context *ctx, const attns_info *info, const attns_device_info *devices,
                       const target_list *list) {
    report_object(NULL);
    report_text("version", attns_version());
    report_text("libcuda", info->libcuda);
    report_text("libcuda_error", info->libcuda_error);
    report_int("driver_version", info->driver_version);
    report_text("libnvrtc", info->libnvrtc);
    report_text("libnvrtc_error", info->libnvrtc_error);
    report_int("nvrtc_version", info->nvrtc_version);
    report_text("nvrtc_archs", info->nvrtc_archs);
    report_text("cache_dir", info->cache_dir);
    report_text("cache_readonly_dirs", info->cache_readonly_dirs);
    report_int("cache_bytes", (int64_t)info->cache_bytes);
    report_int("cache_entries", (int64_t)info->cache_entries);
    report_int("cache_max_bytes", (int64_t)info->cache_max_bytes);
    report_array("devices");
    for (int i = 0; i < info->num_devices; i++) {
        report_object(NULL);
        report_text("name", devices[i].name);
        report_text("arch", devices[i].arch[0] == '\0' ? NULL : devices[i].arch);
        report_int("compute_capability", devices[i].compute_capability);
        report_int("num_sms", devices[i].num_sms);
        report_int("l2_bytes", devices[i].l2_bytes);
        report_int("shared_bytes_per_sm", devices[i].shared_bytes_per_sm);
        report_int("memory_bytes", (int64_t)devices[i].memory_bytes);
        report_close();
    }
    report_close();
    report_kernels(ctx, list);
    report_array("simulated_devices");
    for (size_t i = 0; simulated_name(i) != NULL; i++) {
        report_object(NULL);
        report_text("name", simulated_name(i));
        report_close();
    }
    report_close();
    report_close();
}

int cmd_info(int argc, char **argv) {
    static const struct argp_option option_list[] = {
        {"arch", 'A', "LIST", 0,
         "Which kernels serve on these targets, besides those of the devices; all: what NVRTC knows from sm_80 on", 0},
        {"json", 'J', NULL, 0, "One JSON object", 0},
        {0},
    };
    static const struct argp_child children[] = {{&cli_context_argp, 0, "Library settings:", 10}, {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .doc =
            "Shows the driver, the devices, which kernels serve there and why, the compiler with the targets it knows, "
            "and the kernel caches.",
        .children = children,
    };
    struct options options = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &options);

    attns_context *ctx = cli_context_create(&options.context);
    if (ctx == NULL) {
        return CLI_FAILED;
    }
    int exit_code = CLI_OK;
    attns_device_info *devices = NULL;
    attns_info info;
    attns_status status = attns_get_info(ctx, &info);
    if (status == ATTNS_OK && info.num_devices > 0) {
        devices = calloc((size_t)info.num_devices, sizeof(devices[0]));
        if (devices == NULL) {
            attns_context_destroy(ctx);
            return cli_error("info", "out of memory");
        }
    }
    for (int i = 0; status == ATTNS_OK && i < info.num_devices; i++) {
        status = attns_get_device_info(ctx, i, &devices[i]);
    }
    target_list list;
    if (status == ATTNS_OK) {
        status = list_targets(&options, ctx, &info, devices, &list);
    }
    if (status != ATTNS_OK) {
        exit_code = cli_fail("info", status);
    } else if (options.json) {
        print_json(ctx, &info, devices, &list);
    } else {
        print_text(ctx, &info, devices, &list);
    }
    cli_strings_free(&options.archs);
    free(devices);
    attns_context_destroy(ctx);
    return exit_code;
}
