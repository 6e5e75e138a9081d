/* SPDX-License-Identifier: MIT
 *
 * precompile_paged_mqa_logits: the product of all lists, checked as a whole, then compiled by a few threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "jit/compile_gate.h"
#include "jit/kernel_store.h"
#include "plan/kernel_name.h"
#include "plan/supported.h"

#define MAX_THREADS     256
#define MAX_KERNELS     100000 /* per target; more is a mistake in the lists */
#define MAX_NVRTC_ARCHS 64

/* ---- The kernels to build ---- */

typedef struct job {
    attns_plan plan;
    uint32_t build; /* of the NVRTC that would compile it; 0: no NVRTC, whatever is cached will do */
} job;

typedef struct job_list {
    job *jobs;
    size_t count, capacity;
} job_list;

typedef struct target_list {
    attns_target *targets;
    uint32_t *builds;
    bool *by_name; /* not through "all" or a device */
    size_t count;
    size_t general; /* so many of them, the first, are for kernels that name no target */
} target_list;

static void free_targets(target_list *list) {
    free(list->targets);
    free(list->builds);
    free(list->by_name);
}

static attns_status add_job(attns_family_choice choice, job_list *list, const attns_problem *problem,
                            const attns_target *target, uint32_t build) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        job *grown = realloc(list->jobs, capacity * sizeof *grown);
        if (!grown)
            return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu kernels", capacity);
        list->jobs = grown;
        list->capacity = capacity;
    }
    attns_status status = attns_plan_make(problem, target, choice, &list->jobs[list->count].plan);
    if (status == ATTNS_OK)
        list->jobs[list->count++].build = build;
    return status;
}

/* The lists with their defaults filled in. */
typedef struct value_lists {
    const attns_variant *variants;
    const int *num_heads, *head_dims, *block_sizes, *next_ns;
    const attns_dtype *out_dtypes, *acc_dtypes, *epi_dtypes;
    const bool *kv_sf_interleaved;
    size_t num_variants, num_num_heads, num_head_dims, num_block_sizes, num_next_ns;
    size_t num_out_dtypes, num_acc_dtypes, num_epi_dtypes, num_kv_sf_interleaved;
} value_lists;

/* A NULL list is its default, a list without values is a mistake. */
#define READ_LIST(name, count, default_values)                                                                         \
    do {                                                                                                               \
        if (!params->name && params->count)                                                                            \
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, #name ": NULL, but " #count " is %zu", params->count);     \
        if (params->name && !params->count)                                                                            \
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, #name ": empty, accepted: NULL or at least one value");    \
        lists->name = params->name ? params->name : (default_values);                                                  \
        lists->count = params->name ? params->count : sizeof(default_values) / sizeof((default_values)[0]);            \
    } while (0)

static bool is_indexer(attns_variant variant) {
    return variant == ATTNS_VARIANT_INDEXER_BF16 || variant == ATTNS_VARIANT_INDEXER_NVFP4;
}

static bool is_logits(attns_variant variant) {
    return variant == ATTNS_VARIANT_FP8 || variant == ATTNS_VARIANT_FP4;
}

static bool has_variant(const value_lists *lists, attns_variant variant) {
    for (size_t i = 0; i < lists->num_variants; i++)
        if (lists->variants[i] == variant)
            return true;
    return false;
}

static attns_status read_lists(const attns_precompile_params *params, value_lists *lists) {
    static const attns_variant variants[] = {ATTNS_VARIANT_FP8};
    static const int num_heads[] = {64}, head_dims[] = {128}, block_sizes[] = {64}, next_ns[] = {1, 2, 3, 4};
    static const attns_dtype dtypes[] = {ATTNS_DTYPE_DEFAULT};
    static const bool plain[] = {false};
    READ_LIST(variants, num_variants, variants);
    READ_LIST(num_heads, num_num_heads, num_heads);
    READ_LIST(head_dims, num_head_dims, head_dims);
    READ_LIST(block_sizes, num_block_sizes, block_sizes);
    READ_LIST(next_ns, num_next_ns, next_ns);
    READ_LIST(out_dtypes, num_out_dtypes, dtypes);
    READ_LIST(acc_dtypes, num_acc_dtypes, dtypes);
    READ_LIST(epi_dtypes, num_epi_dtypes, dtypes);
    READ_LIST(kv_sf_interleaved, num_kv_sf_interleaved, plain);
    for (size_t i = 0; i < lists->num_variants; i++)
        if (!is_logits(lists->variants[i]) && !is_indexer(lists->variants[i]))
            return attns_fail(ATTNS_ERROR_UNSUPPORTED, "variants: %d, accepted: %d (fp8), %d (fp4), %d or %d (indexer)",
                              (int)lists->variants[i], (int)ATTNS_VARIANT_FP8, (int)ATTNS_VARIANT_FP4,
                              (int)ATTNS_VARIANT_INDEXER_BF16, (int)ATTNS_VARIANT_INDEXER_NVFP4);

    size_t product = 1;
    const size_t counts[] = {lists->num_variants,    lists->num_num_heads,  lists->num_head_dims,
                             lists->num_block_sizes, lists->num_next_ns,    lists->num_out_dtypes,
                             lists->num_acc_dtypes,  lists->num_epi_dtypes, lists->num_kv_sf_interleaved};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i] > MAX_KERNELS / product)
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "the product of the lists is more than %d kernels",
                              MAX_KERNELS);
        product *= counts[i];
    }
    return ATTNS_OK;
}

static attns_dtype or_else(attns_dtype dtype, attns_dtype by_default) {
    return dtype == ATTNS_DTYPE_DEFAULT ? by_default : dtype;
}

/* Indices into the lists, in the order of read_lists's counts. */
enum { VARIANT, NUM_HEADS, HEAD_DIM, BLOCK_SIZE, NEXT_N, OUT_DTYPE, ACC_DTYPE, EPI_DTYPE, INTERLEAVED, NUM_LISTS };

/* Options that a variant or block size does not have are left at their defaults. */
static attns_problem problem_at(const value_lists *lists, const size_t index[NUM_LISTS]) {
    const bool fp4 = lists->variants[index[VARIANT]] == ATTNS_VARIANT_FP4;
    attns_problem problem = {
        .kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
        .num_heads = lists->num_heads[index[NUM_HEADS]],
        .head_dim = lists->head_dims[index[HEAD_DIM]],
        .block_size = lists->block_sizes[index[BLOCK_SIZE]],
        .next_n = lists->next_ns[index[NEXT_N]],
        .out_dtype = (int32_t)or_else(lists->out_dtypes[index[OUT_DTYPE]], fp4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32),
    };
    if (fp4) {
        problem.kv_sf_interleaved = problem.block_size == 128 && lists->kv_sf_interleaved[index[INTERLEAVED]];
    } else {
        problem.acc_dtype = (int32_t)or_else(lists->acc_dtypes[index[ACC_DTYPE]], ATTNS_DTYPE_F32);
        problem.epi_dtype = (int32_t)or_else(lists->epi_dtypes[index[EPI_DTYPE]], ATTNS_DTYPE_F32);
    }
    return problem;
}

/* As list values may repeat, and as some combinations mean the same. */
static int compare_problems(const void *a, const void *b) {
    return memcmp(a, b, sizeof(attns_problem));
}

static size_t drop_repeated(attns_problem *problems, size_t count) {
    qsort(problems, count, sizeof *problems, compare_problems);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || memcmp(&problems[i], &problems[kept - 1], sizeof *problems) != 0)
            problems[kept++] = problems[i];
    return kept;
}

/* Every combination of the logits variants once, malloc'ed. */
static attns_status make_problems(const value_lists *lists, attns_problem **problems, size_t *count) {
    const size_t counts[NUM_LISTS] = {lists->num_variants,    lists->num_num_heads,  lists->num_head_dims,
                                      lists->num_block_sizes, lists->num_next_ns,    lists->num_out_dtypes,
                                      lists->num_acc_dtypes,  lists->num_epi_dtypes, lists->num_kv_sf_interleaved};
    size_t index[NUM_LISTS] = {0}, product = 1;
    for (size_t i = 0; i < NUM_LISTS; i++)
        product *= counts[i];
    *problems = malloc(product * sizeof **problems);
    if (!*problems)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu kernels", product);
    *count = 0;
    for (size_t i = 0; i < product; i++) {
        if (is_logits(lists->variants[index[VARIANT]]))
            (*problems)[(*count)++] = problem_at(lists, index);
        /* Count up like an odometer, the first list fastest. */
        for (size_t digit = 0; digit < NUM_LISTS && ++index[digit] == counts[digit]; digit++)
            index[digit] = 0;
    }
    *count = drop_repeated(*problems, *count);
    return ATTNS_OK;
}

/* The kernels for little and for much work, or the one for both. */
static attns_status add_sizes(attns_family_choice choice, job_list *list, const attns_problem *problem,
                              const attns_target *target, uint32_t build) {
    attns_problem much = *problem;
    much.much_work = 1;
    const attns_status status = add_job(choice, list, problem, target, build);
    if (status != ATTNS_OK || list->jobs[list->count - 1].plan.much_tiles == 0)
        return status;
    return add_job(choice, list, &much, target, build);
}

/* What has no kernel is an error, unless the target was not asked for by name: then it is passed over. */
static attns_status add_logits(attns_context *ctx, job_list *jobs, const attns_problem *problem,
                               const attns_target *target, uint32_t build, bool by_name) {
    attns_selection selection;
    attns_status status = attns_problem_check(problem);
    if (status != ATTNS_OK)
        return status;
    status = attns_plan_select(problem, target, ctx->family_choice, &selection);
    if (status == ATTNS_OK)
        return add_sizes(ctx->family_choice, jobs, problem, target, build);
    return by_name ? status : ATTNS_OK;
}

static attns_status add_single(attns_context *ctx, job_list *jobs, attns_kernel_kind kind, const attns_target *target,
                               uint32_t build) {
    const attns_problem problem = {.kind = kind};
    return add_job(ctx->family_choice, jobs, &problem, target, build);
}

/* Everything for one target: the logits kernels with the schedule kernel, and indexer_scores, where the other lists do
 * not matter. */
static attns_status add_kernels(attns_context *ctx, job_list *jobs, const value_lists *lists,
                                const attns_problem *problems, size_t num_problems, const attns_target *target,
                                uint32_t build, bool by_name) {
    attns_status status = ATTNS_OK;
    const size_t before = jobs->count;
    for (size_t i = 0; i < num_problems && status == ATTNS_OK; i++)
        status = add_logits(ctx, jobs, &problems[i], target, build, by_name);
    if (status == ATTNS_OK && jobs->count > before)
        status = add_single(ctx, jobs, ATTNS_KERNEL_SCHEDULE, target, build);
    if (status == ATTNS_OK && has_variant(lists, ATTNS_VARIANT_INDEXER_BF16))
        status = add_single(ctx, jobs, ATTNS_KERNEL_INDEXER_BF16, target, build);
    if (status == ATTNS_OK && has_variant(lists, ATTNS_VARIANT_INDEXER_NVFP4))
        status = add_single(ctx, jobs, ATTNS_KERNEL_INDEXER_NVFP4, target, build);
    return status;
}

/* ---- Kernels by name ---- */

static attns_status refuse_lists(const attns_precompile_params *params) {
    if (params->variants || params->num_heads || params->head_dims || params->block_sizes || params->next_ns ||
        params->out_dtypes || params->acc_dtypes || params->epi_dtypes || params->kv_sf_interleaved)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "kernels: given together with lists of values; give either");
    return ATTNS_OK;
}

static attns_status read_reference(attns_context *ctx, const char *text, attns_kernel_reference *reference) {
    const char *end = text ? text : "";
    const attns_kernel_found found =
        text ? attns_kernel_reference_parse(text, reference, &end) : ATTNS_KERNEL_NOT_FOUND;
    if (found != ATTNS_KERNEL_FOUND || *end)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "kernels: '%s' names no kernel (from '%s' on), accepted: names as in messages and records, "
                          "such as 'paged_mqa_logits_schedule for sm_90a'",
                          text ? text : "(NULL)", end);
    if (reference->ptx && !ctx->load_ptx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "kernels: '%s' is PTX, which only a context with load_ptx (ATTNS_LOAD_PTX=1) can make", text);
    return ATTNS_OK;
}

static bool has_job(const job_list *list, const attns_plan *plan) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->jobs[i].plan.name, plan->name) == 0 &&
            strcmp(list->jobs[i].plan.target.arch, plan->target.arch) == 0)
            return true;
    return false;
}

/* Each once, although records of several processes repeat them. */
static attns_status add_named(attns_context *ctx, job_list *jobs, const attns_precompile_params *params,
                              const target_list *targets) {
    for (size_t i = 0; i < params->num_kernels; i++) {
        attns_kernel_reference reference;
        attns_status status = read_reference(ctx, params->kernels[i], &reference);
        for (size_t t = 0; t < targets->count && status == ATTNS_OK; t++) {
            if (reference.arch[0] ? strcmp(reference.arch, targets->targets[t].arch) != 0 : t >= targets->general)
                continue;
            const attns_family_choice choice = reference.portable ? ATTNS_CHOOSE_PORTABLE : ATTNS_CHOOSE_AUTO;
            status = add_job(choice, jobs, &reference.problem, &targets->targets[t], targets->builds[t]);
            if (status == ATTNS_OK && jobs->count > 1) {
                const job last = jobs->jobs[--jobs->count];
                if (!has_job(jobs, &last.plan))
                    jobs->count++;
            }
        }
        if (status != ATTNS_OK)
            return status;
    }
    return ATTNS_OK;
}

/* ---- Targets ---- */

static attns_status reserve_targets(target_list *list, size_t capacity) {
    list->targets = calloc(capacity, sizeof *list->targets);
    list->builds = calloc(capacity, sizeof *list->builds);
    list->by_name = calloc(capacity, sizeof *list->by_name);
    if (!list->targets || !list->builds || !list->by_name)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu targets", capacity);
    return ATTNS_OK;
}

static void add_to_targets(target_list *list, const attns_target *target, bool by_name) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->targets[i].arch, target->arch) == 0) {
            list->by_name[i] |= by_name;
            return;
        }
    }
    list->by_name[list->count] = by_name;
    list->targets[list->count++] = *target;
}

static bool has_target(const target_list *list, const char *arch) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->targets[i].arch, arch) == 0)
            return true;
    return false;
}

/* The target that a call on such a device compiles for: the best one that NVRTC knows, or the best one if none is
 * known. */
static attns_status best_target(attns_context *ctx, const char *device, int compute_capability, attns_target *target) {
    attns_target candidates[ATTNS_MAX_TARGETS];
    size_t count = 0;
    attns_status status = attns_targets_of_device(compute_capability, candidates, &count);
    if (status != ATTNS_OK)
        return status;
    attns_nvrtc_set *set = NULL;
    const attns_nvrtc *nvrtc = NULL;
    attns_saved_error saved;
    attns_error_save(&saved);
    *target = candidates[0];
    if (attns_context_nvrtc(ctx, &set) == ATTNS_OK) {
        for (size_t i = 0; i < count; i++) {
            if (attns_nvrtc_for_arch(set, candidates[i].arch, &nvrtc) == ATTNS_OK) {
                *target = candidates[i];
                break;
            }
        }
    }
    attns_error_restore(&saved);
    if (strcmp(target->arch, candidates[0].arch) != 0)
        attns_log(&ctx->logger, ATTNS_LOG_WARNING, "device %s: kernels are compiled for %s, as NVRTC does not know %s",
                  device, target->arch, candidates[0].arch);
    return ATTNS_OK;
}

/* One target for each architecture that NVRTC knows, from 8.0 on, where there is a kernel. */
static attns_status targets_of_nvrtc(attns_context *ctx, target_list *list) {
    attns_nvrtc_set *set = NULL;
    attns_saved_error saved;
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status != ATTNS_OK)
        return attns_fail(status, "archs: all, but what NVRTC knows cannot be found out: %s", attns_last_error());
    attns_error_save(&saved);
    const char *rest = attns_nvrtc_archs(set);
    int number = 0, length = 0;
    for (; sscanf(rest, " sm_%d%n", &number, &length) == 1; rest += length) {
        attns_target target;
        char name[64];
        snprintf(name, sizeof name, "of compute capability %d.%d", number / 10, number % 10);
        if (number >= 80 && best_target(ctx, name, number, &target) == ATTNS_OK && !attns_target_is_ptx(&target))
            add_to_targets(list, &target, false);
    }
    attns_error_restore(&saved);
    return ATTNS_OK;
}

static attns_status targets_from_names(attns_context *ctx, const attns_precompile_params *params, target_list *list) {
    attns_status status = reserve_targets(list, params->num_archs + MAX_NVRTC_ARCHS);
    for (size_t i = 0; i < params->num_archs && status == ATTNS_OK; i++) {
        attns_target target;
        if (!params->archs[i])
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "archs: entry %zu is NULL", i);
        if (strcmp(params->archs[i], "all") == 0) {
            status = targets_of_nvrtc(ctx, list);
            continue;
        }
        status = attns_target_from_arch(params->archs[i], &target);
        if (status == ATTNS_OK)
            add_to_targets(list, &target, true);
    }
    return status;
}

/* Devices that the library has no kernels for are passed over, as long as one is left. */
static attns_status targets_from_devices(attns_context *ctx, target_list *list) {
    const char *advice = "archs: not given, and this machine's devices cannot be used as the default "
                         "(name the targets, e.g. \"sm_90a\")";
    attns_info info;
    attns_status status = attns_get_info(ctx, &info);
    if (status != ATTNS_OK)
        return status;
    if (info.libcuda_error)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: %s", advice, info.libcuda_error);
    if (info.num_devices == 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: there is no CUDA device", advice);
    status = reserve_targets(list, (size_t)info.num_devices);
    attns_status last = ATTNS_OK;
    for (int i = 0; i < info.num_devices && status == ATTNS_OK; i++) {
        attns_device_info device;
        attns_target target;
        status = attns_get_device_info(ctx, i, &device);
        if (status != ATTNS_OK)
            break;
        last = best_target(ctx, device.name, device.compute_capability, &target);
        if (last != ATTNS_OK)
            attns_log(&ctx->logger, ATTNS_LOG_WARNING, "device %d, %s: %s", i, device.name, attns_last_error());
        else
            add_to_targets(list, &target, false);
    }
    if (status == ATTNS_OK && list->count == 0)
        status = attns_fail(last, "%s: %s", advice, attns_last_error());
    return status;
}

/* Those that the kernels name; for kernels that name none those of `archs`, else the devices'. */
static attns_status targets_from_kernels(attns_context *ctx, const attns_precompile_params *params, target_list *list) {
    bool all_named = true;
    target_list general = {0};
    attns_status status = ATTNS_OK;
    for (size_t i = 0; i < params->num_kernels && all_named; i++) {
        attns_kernel_reference reference;
        status = read_reference(ctx, params->kernels[i], &reference);
        if (status != ATTNS_OK)
            return status;
        all_named = reference.arch[0] != '\0';
    }
    if (!all_named)
        status = params->archs ? targets_from_names(ctx, params, &general) : targets_from_devices(ctx, &general);
    if (status == ATTNS_OK)
        status = reserve_targets(list, general.count + params->num_kernels);
    for (size_t i = 0; i < general.count && status == ATTNS_OK; i++)
        list->targets[list->count++] = general.targets[i];
    list->general = list->count;
    for (size_t i = 0; i < params->num_kernels && status == ATTNS_OK; i++) {
        attns_kernel_reference reference;
        status = read_reference(ctx, params->kernels[i], &reference);
        if (status == ATTNS_OK && reference.arch[0] && !has_target(list, reference.arch)) {
            status = attns_target_from_arch(reference.arch, &list->targets[list->count]);
            list->count += status == ATTNS_OK;
        }
    }
    free_targets(&general);
    return status;
}

/* The NVRTC version for each target. Without any NVRTC the cache may still hold everything, as in an image that was
 * built elsewhere; what it lacks then fails with NVRTC's own message. */
static attns_status find_builds(attns_context *ctx, target_list *list) {
    if (ctx->forbid_compile)
        return ATTNS_OK;
    attns_nvrtc_set *set = NULL;
    attns_saved_error saved;
    attns_error_save(&saved);
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status == ATTNS_ERROR_LIBRARY_NOT_FOUND) {
        attns_log(&ctx->logger, ATTNS_LOG_INFO, "no NVRTC, cached kernels are taken whatever compiled them: %s",
                  attns_last_error());
        attns_error_restore(&saved);
        return ATTNS_OK;
    }
    for (size_t i = 0; i < list->count && status == ATTNS_OK; i++) {
        const attns_nvrtc *nvrtc = NULL;
        status = attns_nvrtc_for_arch(set, list->targets[i].arch, &nvrtc);
        if (status == ATTNS_OK)
            list->builds[i] = attns_nvrtc_build(nvrtc);
    }
    return status;
}

/* ---- The work ---- */

typedef struct work_queue {
    attns_context *ctx;
    const attns_precompile_params *params;
    const job_list *jobs;
    pthread_mutex_t mutex; /* guards the rest */
    size_t next, done;
    size_t first_failed; /* index of the job; count while there is none */
    attns_status status;
    attns_saved_error error;
} work_queue;

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_job(work_queue *work, size_t index) {
    const job *kernel = &work->jobs->jobs[index];
    attns_image image;
    double start = now_seconds();
    attns_status status = attns_image_get(work->ctx, &kernel->plan, true, kernel->build, &image);
    attns_precompile_result result = {
        .kernel = kernel->plan.name,
        .arch = kernel->plan.target.arch,
        .status = status,
        .source = status == ATTNS_OK ? image.source : ATTNS_FROM_COMPILER,
        .cached = status == ATTNS_OK && image.cached,
        .seconds = now_seconds() - start,
        .registers = status == ATTNS_OK ? image.registers : -1,
        .spill_bytes = status == ATTNS_OK ? image.spill_bytes : -1,
        .message = status == ATTNS_OK ? "" : attns_last_error(),
    };
    pthread_mutex_lock(&work->mutex);
    if (status != ATTNS_OK && index < work->first_failed) {
        work->first_failed = index;
        work->status = status;
        attns_error_save(&work->error);
    }
    work->done++;
    if (work->params->progress)
        work->params->progress(work->params->progress_user, work->done, work->jobs->count, &result);
    pthread_mutex_unlock(&work->mutex);
    if (status == ATTNS_OK)
        attns_image_free(&image);
}

static void *worker(void *argument) {
    work_queue *work = argument;
    for (;;) {
        pthread_mutex_lock(&work->mutex);
        size_t index = work->next < work->jobs->count ? work->next++ : work->jobs->count;
        pthread_mutex_unlock(&work->mutex);
        if (index == work->jobs->count)
            return NULL;
        run_job(work, index);
    }
}

static attns_status run_jobs(attns_context *ctx, const attns_precompile_params *params, const job_list *jobs) {
    work_queue work = {.ctx = ctx, .params = params, .jobs = jobs, .first_failed = jobs->count};
    size_t wanted = (size_t)(params->jobs ? params->jobs : attns_usable_cpus());
    if (wanted > jobs->count)
        wanted = jobs->count;
    if (wanted > MAX_THREADS)
        wanted = MAX_THREADS;
    pthread_mutex_init(&work.mutex, NULL);
    pthread_t threads[MAX_THREADS];
    size_t started = 0;
    /* The calling thread is one of the workers, so that the work gets done even if no thread can be made. */
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, worker, &work) == 0)
        started++;
    worker(&work);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&work.mutex);
    if (work.status != ATTNS_OK)
        attns_error_restore(&work.error);
    return work.status;
}

attns_status attns_precompile_paged_mqa_logits(attns_context *ctx, const attns_precompile_params *params) {
    static const attns_precompile_params defaults = {0};
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: NULL, a context is needed");
    if (!params)
        params = &defaults;
    if (params->jobs < 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "jobs: %d, accepted: 0 (one per CPU) or more", params->jobs);
    if (!params->archs != !params->num_archs)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "archs: %s, but num_archs is %zu",
                          params->archs ? "a list" : "NULL", params->num_archs);
    if (!params->kernels != !params->num_kernels)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "kernels: %s, but num_kernels is %zu",
                          params->kernels ? "a list" : "NULL", params->num_kernels);
    value_lists lists = {0};
    attns_status status = params->kernels ? refuse_lists(params) : read_lists(params, &lists);
    if (status != ATTNS_OK)
        return status;

    target_list targets = {0};
    job_list jobs = {0};
    attns_problem *problems = NULL;
    size_t num_problems = 0;
    if (!params->kernels)
        status = make_problems(&lists, &problems, &num_problems);
    if (status != ATTNS_OK)
        return status;
    if (params->kernels)
        status = targets_from_kernels(ctx, params, &targets);
    else
        status = params->archs ? targets_from_names(ctx, params, &targets) : targets_from_devices(ctx, &targets);
    if (status == ATTNS_OK)
        status = find_builds(ctx, &targets);
    if (params->kernels && status == ATTNS_OK)
        status = add_named(ctx, &jobs, params, &targets);
    for (size_t i = 0; !params->kernels && i < targets.count && status == ATTNS_OK; i++)
        status = add_kernels(ctx, &jobs, &lists, problems, num_problems, &targets.targets[i], targets.builds[i],
                             targets.by_name[i]);
    if (status == ATTNS_OK && jobs.count == 0 && targets.count > 0)
        status = attns_fail(ATTNS_ERROR_UNSUPPORTED, "no kernel for any of the targets: %s", attns_last_error());
    if (status == ATTNS_OK)
        status = run_jobs(ctx, params, &jobs);
    free(problems);
    free(jobs.jobs);
    free_targets(&targets);
    return status;
}
