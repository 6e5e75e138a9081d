/* SPDX-License-Identifier: MIT
 *
 * Builds the kernels of a precompile call with a few threads, which take them from one queue. */
#include <pthread.h>
#include <time.h>

#include "jit/compile_gate.h"
#include "jit/kernel_store.h"
#include "ops/precompile.h"

#define MAX_THREADS 256

typedef struct work_queue {
    attns_context *ctx;
    const attns_precompile_params *params;
    const attns_precompile_job *jobs;
    size_t num_jobs;
    pthread_mutex_t mutex; /* guards the rest */
    size_t next, done;
    size_t first_failed; /* index of the job; num_jobs while there is none */
    attns_status status;
    attns_saved_error error;
} work_queue;

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_job(work_queue *work, size_t index) {
    const attns_precompile_job *kernel = &work->jobs[index];
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
        work->params->progress(work->params->progress_user, work->done, work->num_jobs, &result);
    pthread_mutex_unlock(&work->mutex);
    if (status == ATTNS_OK)
        attns_image_free(&image);
}

static void *worker(void *argument) {
    work_queue *work = argument;
    for (;;) {
        pthread_mutex_lock(&work->mutex);
        size_t index = work->next < work->num_jobs ? work->next++ : work->num_jobs;
        pthread_mutex_unlock(&work->mutex);
        if (index == work->num_jobs)
            return NULL;
        run_job(work, index);
    }
}

attns_status attns_precompile_run(attns_context *ctx, const attns_precompile_params *params,
                                  const attns_precompile_job *jobs, size_t num_jobs) {
    work_queue work = {.ctx = ctx, .params = params, .jobs = jobs, .num_jobs = num_jobs, .first_failed = num_jobs};
    size_t wanted = (size_t)(params->jobs ? params->jobs : attns_usable_cpus());
    if (wanted > num_jobs)
        wanted = num_jobs;
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
