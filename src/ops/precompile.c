/* SPDX-License-Identifier: MIT
 *
 * precompile_paged_mqa_logits: every kernel that is asked for, for every target. All plans are made before the first
 * is built, so that a mistake costs no time. */
#include <stdlib.h>
#include <string.h>

#include "ops/precompile.h"
#include "plan/supported.h"

typedef struct job_list {
    attns_precompile_job *items;
    size_t count, capacity;
} job_list;

static attns_status add(job_list *jobs, const attns_problem *problem, attns_family_choice choice,
                        const attns_precompile_target *target) {
    if (jobs->count == jobs->capacity) {
        size_t capacity = jobs->capacity ? 2 * jobs->capacity : 64;
        attns_precompile_job *grown = realloc(jobs->items, capacity * sizeof *grown);
        if (!grown)
            return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu kernels", capacity);
        jobs->items = grown;
        jobs->capacity = capacity;
    }
    attns_precompile_job *job = &jobs->items[jobs->count];
    attns_status status = attns_plan_make(problem, &target->target, choice, &job->plan);
    job->build = target->build;
    jobs->count += status == ATTNS_OK;
    return status;
}

/* The kernels for little and for much work, or the one for both. */
static attns_status add_sizes(job_list *jobs, const attns_problem *problem, attns_family_choice choice,
                              const attns_precompile_target *target) {
    attns_problem much = *problem;
    much.much_work = 1;
    const attns_status status = add(jobs, problem, choice, target);
    if (status != ATTNS_OK || jobs->items[jobs->count - 1].plan.much_tiles == 0)
        return status;
    return add(jobs, &much, choice, target);
}

/* What has no kernel is an error, unless the target was not asked for by name: then it is passed over. */
static attns_status add_logits(attns_context *ctx, job_list *jobs, const attns_problem *problem,
                               const attns_precompile_target *target) {
    attns_selection selection;
    attns_status status = attns_problem_check(problem);
    if (status != ATTNS_OK)
        return status;
    status = attns_plan_select(problem, &target->target, ctx->family_choice, &selection);
    if (status == ATTNS_OK)
        return add_sizes(jobs, problem, ctx->family_choice, target);
    return target->by_name ? status : ATTNS_OK;
}

static attns_status add_single(attns_context *ctx, job_list *jobs, attns_kernel_kind kind,
                               const attns_precompile_target *target) {
    const attns_problem problem = {.kind = kind};
    return add(jobs, &problem, ctx->family_choice, target);
}

/* Everything for one target: the logits kernels with the schedule kernel, and indexer_scores. */
static attns_status add_kernels(attns_context *ctx, job_list *jobs, const attns_precompile_kernels *kernels,
                                const attns_precompile_target *target) {
    attns_status status = ATTNS_OK;
    const size_t before = jobs->count;
    for (size_t i = 0; i < kernels->num_logits && status == ATTNS_OK; i++)
        status = add_logits(ctx, jobs, &kernels->logits[i], target);
    if (status == ATTNS_OK && jobs->count > before)
        status = add_single(ctx, jobs, ATTNS_KERNEL_SCHEDULE, target);
    if (status == ATTNS_OK && kernels->indexer_bf16)
        status = add_single(ctx, jobs, ATTNS_KERNEL_INDEXER_BF16, target);
    if (status == ATTNS_OK && kernels->indexer_nvfp4)
        status = add_single(ctx, jobs, ATTNS_KERNEL_INDEXER_NVFP4, target);
    return status;
}

static bool is_repeated(const job_list *jobs, const attns_plan *plan) {
    for (const attns_precompile_job *job = jobs->items; &job->plan != plan; job++)
        if (strcmp(job->plan.name, plan->name) == 0 && strcmp(job->plan.target.arch, plan->target.arch) == 0)
            return true;
    return false;
}

/* Each once, although records of several processes repeat them. */
static attns_status add_named(job_list *jobs, const attns_kernel_reference *named,
                              const attns_precompile_targets *targets) {
    attns_status status = ATTNS_OK;
    for (size_t t = 0; t < targets->count && status == ATTNS_OK; t++) {
        const attns_precompile_target *target = &targets->items[t];
        if (named->arch[0] ? strcmp(named->arch, target->target.arch) != 0 : t >= targets->general)
            continue;
        status = add(jobs, &named->problem, named->portable ? ATTNS_CHOOSE_PORTABLE : ATTNS_CHOOSE_AUTO, target);
        if (status == ATTNS_OK && is_repeated(jobs, &jobs->items[jobs->count - 1].plan))
            jobs->count--;
    }
    return status;
}

static attns_status make_jobs(attns_context *ctx, const attns_precompile_kernels *kernels,
                              const attns_precompile_targets *targets, job_list *jobs) {
    attns_status status = ATTNS_OK;
    for (size_t i = 0; i < kernels->num_named && status == ATTNS_OK; i++)
        status = add_named(jobs, &kernels->named[i], targets);
    for (size_t t = 0; !kernels->named && t < targets->count && status == ATTNS_OK; t++)
        status = add_kernels(ctx, jobs, kernels, &targets->items[t]);
    if (status == ATTNS_OK && jobs->count == 0 && targets->count > 0)
        status = attns_fail(ATTNS_ERROR_UNSUPPORTED, "no kernel for any of the targets: %s", attns_last_error());
    return status;
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

    attns_precompile_kernels kernels;
    attns_precompile_targets targets = {0};
    job_list jobs = {0};
    attns_status status = attns_precompile_kernels_read(ctx, params, &kernels);
    if (status == ATTNS_OK)
        status = attns_precompile_targets_find(ctx, params, &kernels, &targets);
    if (status == ATTNS_OK)
        status = make_jobs(ctx, &kernels, &targets, &jobs);
    if (status == ATTNS_OK)
        status = attns_precompile_run(ctx, params, jobs.items, jobs.count);
    free(jobs.items);
    free(targets.items);
    attns_precompile_kernels_free(&kernels);
    return status;
}
