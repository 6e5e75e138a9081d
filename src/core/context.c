/* SPDX-License-Identifier: MIT
 *
 * Creation and destruction of a context, the settings it reads from the environment, and its two libraries. */
#include "core/context.h"

#include <stdlib.h>
#include <string.h>

#include "core/strbuf.h"
#include "jit/compile_gate.h"
#include "jit/kernel_store.h"

/* The field if given, else the variable; either may be "" to mean "none, and look no further". secure_getenv hides the
 * environment from a set-uid process. */
static const char *setting(const char *field, const char *variable) {
    return field ? field : secure_getenv(variable);
}

/* A copy in *out; NULL for NULL and "". */
static bool copy_setting(char **out, const char *field, const char *variable) {
    const char *value = setting(field, variable);
    *out = NULL;
    if (!value || !value[0])
        return true;
    *out = strdup(value);
    return *out != NULL;
}

/* The field if set, else the variable. */
static attns_status switch_setting(bool field, const char *variable, bool *on) {
    const char *value = secure_getenv(variable);
    *on = field || (value && strcmp(value, "1") == 0);
    if (field || !value || !value[0] || strcmp(value, "0") == 0 || strcmp(value, "1") == 0)
        return ATTNS_OK;
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: '%s', accepted: 0 or 1", variable, value);
}

/* The field if it says something, else the variable. */
static attns_status family_setting(const char *field, attns_family_choice *choice) {
    const char *const value = field && field[0] ? field : secure_getenv("ATTNS_KERNEL_FAMILY");
    *choice = ATTNS_CHOOSE_AUTO;
    if (!value || !value[0] || attns_family_choice_parse(value, choice))
        return ATTNS_OK;
    return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: is '%s', accepted: auto, tuned or portable",
                      field && field[0] ? "kernel_family" : "ATTNS_KERNEL_FAMILY", value);
}

/* An unknown target is an error here, not in the first call. */
static attns_status arch_setting(const char *field, char **arch) {
    const char *const value = field && field[0] ? field : secure_getenv("ATTNS_ARCH");
    attns_target target;
    *arch = NULL;
    if (!value || !value[0])
        return ATTNS_OK;
    const attns_status status = attns_target_from_arch(value, &target);
    if (status != ATTNS_OK)
        return status;
    *arch = strdup(value);
    return *arch ? ATTNS_OK : attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while creating a context");
}

/* An absolute path other than "/", which is what containers with an unknown user give as HOME. */
static bool is_usable_home(const char *home) {
    return home && home[0] == '/' && home[strspn(home, "/")] != '\0';
}

/* Where kernels may be kept, best first. */
typedef struct cache_candidates {
    const char *dirs[4]; /* borrowed */
    size_t count;
    char *in_xdg, *in_home; /* owned */
} cache_candidates;

/* Adds a field or variable; whether to look further. */
static bool add_candidate(cache_candidates *found, const char *dir) {
    if (dir && dir[0])
        found->dirs[found->count++] = dir;
    return !dir || dir[0];
}

/* false if memory is exhausted. */
static bool add_candidate_below(cache_candidates *found, const char *above, const char *name, char **owned) {
    attns_strbuf path = {0};
    attns_strbuf_printf(&path, "%s/%s", above, name);
    *owned = attns_strbuf_take(&path);
    if (*owned)
        found->dirs[found->count++] = *owned;
    return *owned != NULL;
}

static bool find_candidates(const attns_logger *logger, const char *field, cache_candidates *found) {
    *found = (cache_candidates){0};
    if (!add_candidate(found, field) || !add_candidate(found, secure_getenv("ATTNS_CACHE_DIR")))
        return true;
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    const bool use_xdg = xdg && xdg[0] == '/'; /* the XDG specification has relative paths ignored */
    if (use_xdg && !add_candidate_below(found, xdg, "attn-scores", &found->in_xdg))
        return false;
    if (is_usable_home(home) && !add_candidate_below(found, home, ".cache/attn-scores", &found->in_home))
        return false;
    if (found->count == 0)
        attns_log(
            logger, ATTNS_LOG_INFO,
            "no cache directory: XDG_CACHE_HOME is unset or relative and HOME is %s%s%s; compiled kernels stay in "
            "memory (set ATTNS_CACHE_DIR to keep them)",
            home ? "'" : "", home ? home : "unset", home ? "'" : "");
    return true;
}

static void cache_log(void *user, int level, const char *message) {
    attns_log(user, (attns_log_level)level, "%s", message);
}

static bool open_cache(attns_context *ctx, const attns_context_params *params, bool shared) {
    cache_candidates candidates;
    char *readonly_dirs = NULL;
    if (find_candidates(&ctx->logger, params->cache_dir, &candidates) &&
        copy_setting(&readonly_dirs, params->cache_readonly_dirs, "ATTNS_CACHE_READONLY_DIRS")) {
        const attns_cache_params cache_params = {
            .dirs = candidates.dirs,
            .num_dirs = candidates.count,
            .readonly_dirs = readonly_dirs,
            .max_bytes = params->cache_max_bytes,
            .shared = shared,
            .log = cache_log,
            .log_user = &ctx->logger,
        };
        ctx->cache = attns_cache_open(&cache_params);
    }
    free(candidates.in_xdg);
    free(candidates.in_home);
    free(readonly_dirs);
    return ctx->cache != NULL;
}

attns_status attns_context_create(attns_context **out, const attns_context_params *params) {
    static const attns_context_params defaults = {0};
    if (!out)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: NULL, a pointer to receive the context is needed");
    *out = NULL;
    if (!params)
        params = &defaults;
    if (params->log_level < ATTNS_LOG_NONE || params->log_level > ATTNS_LOG_DEBUG)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "log_level: %d, accepted: 0 (none) to 4 (debug)",
                          (int)params->log_level);
    if (params->compile_threads < 0)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "compile_threads: %d, accepted: 0 (one per CPU) or more",
                          params->compile_threads);
    bool load_ptx = false, forbid_compile = false, cache_shared = false;
    attns_status status = switch_setting(params->load_ptx, "ATTNS_LOAD_PTX", &load_ptx);
    if (status == ATTNS_OK)
        status = switch_setting(params->forbid_compile, "ATTNS_FORBID_COMPILE", &forbid_compile);
    if (status == ATTNS_OK)
        status = switch_setting(params->cache_shared, "ATTNS_CACHE_SHARED", &cache_shared);
    attns_family_choice family_choice;
    if (status == ATTNS_OK)
        status = family_setting(params->kernel_family, &family_choice);
    char *arch = NULL;
    if (status == ATTNS_OK)
        status = arch_setting(params->arch, &arch);
    if (status != ATTNS_OK)
        return status;

    attns_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) {
        free(arch);
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while creating a context");
    }
    ctx->logger.fn = params->log;
    ctx->logger.user = params->log_user;
    ctx->logger.level = params->log_level;
    if (!params->log && params->log_level == ATTNS_LOG_NONE)
        ctx->logger.level = ATTNS_LOG_WARNING;
    ctx->allow_compile_in_capture = params->allow_compile_in_capture;
    ctx->forbid_compile = forbid_compile;
    ctx->load_ptx = load_ptx;
    ctx->compile_threads = params->compile_threads != 0 ? params->compile_threads : attns_usable_cpus();
    ctx->family_choice = family_choice;
    ctx->arch = arch;
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_cond_init(&ctx->module_settled, NULL);
    pthread_cond_init(&ctx->compile_settled, NULL);

    if (!copy_setting(&ctx->libcuda_path, params->libcuda_path, "ATTNS_LIBCUDA") ||
        !copy_setting(&ctx->libnvrtc_path, params->libnvrtc_path, "ATTNS_LIBNVRTC") ||
        !copy_setting(&ctx->template_dir, params->template_dir, "ATTNS_TEMPLATE_DIR") ||
        !copy_setting(&ctx->dump_dir, params->dump_dir, "ATTNS_DUMP_DIR") ||
        !copy_setting(&ctx->record_path, params->record_path, "ATTNS_RECORD") ||
        !open_cache(ctx, params, cache_shared)) {
        attns_context_destroy(ctx);
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while creating a context");
    }
    *out = ctx;
    return ATTNS_OK;
}

void attns_context_destroy(attns_context *ctx) {
    if (!ctx)
        return;
    attns_kernel_store_clear(ctx);
    attns_image_clear(ctx);
    attns_nvrtc_set_close(ctx->nvrtc);
    attns_driver_close(&ctx->driver_storage);
    attns_cache_close(ctx->cache);
    pthread_cond_destroy(&ctx->compile_settled);
    pthread_cond_destroy(&ctx->module_settled);
    pthread_mutex_destroy(&ctx->mutex);
    free(ctx->libcuda_path);
    free(ctx->libnvrtc_path);
    free(ctx->template_dir);
    free(ctx->dump_dir);
    free(ctx->record_path);
    free(ctx->arch);
    free(ctx->info_driver_error);
    free(ctx->info_nvrtc_error);
    free(ctx);
}

/* Answers a kept failure again. */
static attns_status repeat_failure(attns_status status, const char *message) {
    return attns_fail(status, "%s", message ? message : "out of memory");
}

attns_status attns_context_driver(attns_context *ctx, const attns_driver **driver) {
    *driver = atomic_load_explicit(&ctx->driver, memory_order_acquire);
    if (*driver)
        return ATTNS_OK;

    pthread_mutex_lock(&ctx->mutex);
    if (!atomic_load_explicit(&ctx->driver, memory_order_relaxed) && ctx->driver_status == ATTNS_OK) {
        ctx->driver_status = attns_driver_open(&ctx->driver_storage, ctx->libcuda_path);
        if (ctx->driver_status == ATTNS_OK) {
            attns_log(&ctx->logger, ATTNS_LOG_DEBUG, "driver %s, CUDA %d.%d", ctx->driver_storage.path,
                      ctx->driver_storage.version / 1000, ctx->driver_storage.version % 1000 / 10);
            atomic_store_explicit(&ctx->driver, &ctx->driver_storage, memory_order_release);
        } else {
            ctx->info_driver_error = strdup(attns_last_error());
        }
    }
    attns_status status = ctx->driver_status;
    if (status == ATTNS_OK)
        *driver = &ctx->driver_storage;
    else
        repeat_failure(status, ctx->info_driver_error);
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

attns_status attns_context_nvrtc(attns_context *ctx, attns_nvrtc_set **set) {
    pthread_mutex_lock(&ctx->mutex);
    if (!ctx->nvrtc && ctx->nvrtc_status == ATTNS_OK) {
        ctx->nvrtc_status = attns_nvrtc_set_open(&ctx->nvrtc, ctx->libnvrtc_path, &ctx->logger);
        if (ctx->nvrtc_status != ATTNS_OK)
            ctx->info_nvrtc_error = strdup(attns_last_error());
    }
    attns_status status = ctx->nvrtc_status;
    *set = ctx->nvrtc;
    if (status != ATTNS_OK)
        repeat_failure(status, ctx->info_nvrtc_error);
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

void attns_get_counters(const attns_context *ctx, attns_counters *counters) {
    if (!ctx || !counters)
        return;
    counters->compiles = atomic_load_explicit(&ctx->compiles, memory_order_relaxed);
    counters->disk_hits = atomic_load_explicit(&ctx->disk_hits, memory_order_relaxed);
    counters->memory_hits = atomic_load_explicit(&ctx->memory_hits, memory_order_relaxed);
    counters->module_loads = atomic_load_explicit(&ctx->module_loads, memory_order_relaxed);
}
