/* SPDX-License-Identifier: MIT
 *
 * The image of a plan, a cubin or PTX: fill the template, look in the cache, else compile and publish. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/strbuf.h"
#include "jit/compile_gate.h"
#include "jit/kernel_store.h"
#include "jit/record.h"

/* -v makes ptxas report registers and spills in NVRTC's log. For PTX ptxas is not called; there the lines of the
 * templates let whoever compiles or interprets it say where something is wrong. */
static const char *const cubin_options[] = {"-std=c++17", "--ptxas-options=-v"};
static const char *const ptx_options[] = {"-std=c++17", "--generate-line-info"};
#define NUM_COMPILE_OPTIONS 2

/* A kernel takes a few tenths of a second to compile, on a crowded machine a few seconds. A holder of the lock that is
 * still busy after this time is stuck, and compiling twice is the lesser evil. */
#define LOCK_SECONDS 10.0

/* A compiled cubin that could not be stored, so that precompiling helps this process at least. */
struct attns_kept_image {
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
    void *data;
    size_t size;
    int registers, spill_bytes;
    struct attns_kept_image *next;
};

/* ---- Cubin or PTX ---- */

static bool is_ptx(const attns_context *ctx, const attns_plan *plan) {
    return ctx->load_ptx || attns_target_is_ptx(&plan->target);
}

/* "compute_90a" instead of "sm_90a" is how NVRTC is asked for PTX; it also gives PTX a key of its own. */
static void compiler_target(const attns_context *ctx, const attns_plan *plan, char *arch, size_t size) {
    const char *number = strchr(plan->target.arch, '_');
    if (is_ptx(ctx, plan) && number)
        snprintf(arch, size, "compute%s", number);
    else
        snprintf(arch, size, "%s", plan->target.arch);
}

static const char *const *compile_options(const attns_context *ctx, const attns_plan *plan) {
    return is_ptx(ctx, plan) ? ptx_options : cubin_options;
}

/* What messages add to the target's name. */
static const char *mark(const attns_context *ctx) {
    return ctx->load_ptx ? " (PTX)" : "";
}

/* ---- Key ---- */

bool attns_image_key(const char *arch, const char *source, const char *const *options, size_t num_options,
                     attns_cache_key *key) {
    attns_cache_key_field fields[3 + 32];
    if (num_options > 32)
        return false;
    size_t count = 0;
    fields[count++] = (attns_cache_key_field){"kind", "cubin", 5};
    fields[count++] = (attns_cache_key_field){"arch", arch, strlen(arch)};
    for (size_t i = 0; i < num_options; i++)
        fields[count++] = (attns_cache_key_field){"option", options[i], strlen(options[i])};
    fields[count++] = (attns_cache_key_field){"source", source, strlen(source)};
    return attns_cache_key_make(key, fields, count);
}

/* ---- Dump ---- */

static bool write_file(const char *path, const char *text) {
    FILE *stream = fopen(path, "we");
    if (!stream)
        return false;
    bool written = fputs(text, stream) != EOF;
    return fclose(stream) == 0 && written;
}

/* Through a temporary file, because several threads or processes may dump the same kernel. */
static void dump_source(attns_context *ctx, const attns_plan *plan, const char *source) {
    attns_strbuf path = {0}, temporary = {0};
    attns_strbuf_printf(&path, "%s/", ctx->dump_dir);
    size_t name = path.size;
    attns_strbuf_printf(&path, "%s.%s.cu", plan->name, plan->target.arch);
    for (char *c = path.failed ? NULL : path.text + name; c && *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
            *c = '_';
    attns_strbuf_printf(&temporary, "%s.%ld.%lx", attns_strbuf_text(&path), (long)getpid(),
                        (unsigned long)pthread_self());
    if (!path.failed && !temporary.failed) {
        mkdir(ctx->dump_dir, 0777); /* if it can neither be made nor is there, writing says why */
        if (!write_file(temporary.text, source) || rename(temporary.text, path.text) != 0) {
            attns_log(&ctx->logger, ATTNS_LOG_WARNING, "%s: cannot be written: %s", path.text, strerror(errno));
            unlink(temporary.text);
        }
    }
    attns_strbuf_free(&path);
    attns_strbuf_free(&temporary);
}

/* ---- Images kept in memory ---- */

static bool copy_image(attns_image *image, const void *data, size_t size) {
    image->data = malloc(size ? size : 1);
    if (!image->data)
        return false;
    memcpy(image->data, data, size);
    image->size = size;
    return true;
}

static bool find_kept(attns_context *ctx, const attns_cache_key *key, attns_image *image) {
    bool found = false;
    pthread_mutex_lock(&ctx->mutex);
    struct attns_kept_image *kept = ctx->kept_images;
    while (kept && memcmp(kept->digest, key->digest, sizeof kept->digest) != 0)
        kept = kept->next;
    if (kept && copy_image(image, kept->data, kept->size)) {
        found = true;
        image->source = ATTNS_FROM_MEMORY;
        image->registers = kept->registers;
        image->spill_bytes = kept->spill_bytes;
    }
    pthread_mutex_unlock(&ctx->mutex);
    return found;
}

/* Without memory for it the image is simply not kept. */
static void keep(attns_context *ctx, const attns_cache_key *key, const attns_image *image) {
    struct attns_kept_image *kept = calloc(1, sizeof *kept);
    attns_image copy = {0};
    if (!kept || !copy_image(&copy, image->data, image->size)) {
        free(kept);
        return;
    }
    memcpy(kept->digest, key->digest, sizeof kept->digest);
    kept->data = copy.data;
    kept->size = copy.size;
    kept->registers = image->registers;
    kept->spill_bytes = image->spill_bytes;
    pthread_mutex_lock(&ctx->mutex);
    kept->next = ctx->kept_images;
    ctx->kept_images = kept; /* a rebuilt image comes before the one it replaces */
    pthread_mutex_unlock(&ctx->mutex);
}

/* ---- Keys that were compiled again ---- */

struct attns_rebuilt {
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
    struct attns_rebuilt *next;
};

/* Whether this is the key's first time. What the driver refuses twice is no bad entry, and compiling it at every call
 * would not help. */
static bool may_rebuild(attns_context *ctx, const attns_cache_key *key) {
    struct attns_rebuilt *entry = malloc(sizeof *entry);
    if (!entry)
        return true;
    memcpy(entry->digest, key->digest, sizeof entry->digest);
    pthread_mutex_lock(&ctx->mutex);
    const struct attns_rebuilt *old = ctx->rebuilt;
    while (old && memcmp(old->digest, key->digest, sizeof old->digest) != 0)
        old = old->next;
    if (!old) {
        entry->next = ctx->rebuilt;
        ctx->rebuilt = entry;
    }
    pthread_mutex_unlock(&ctx->mutex);
    if (old)
        free(entry);
    return !old;
}

void attns_image_clear(attns_context *ctx) {
    while (ctx->kept_images) {
        struct attns_kept_image *next = ctx->kept_images->next;
        free(ctx->kept_images->data);
        free(ctx->kept_images);
        ctx->kept_images = next;
    }
    while (ctx->rebuilt) {
        struct attns_rebuilt *next = ctx->rebuilt->next;
        free(ctx->rebuilt);
        ctx->rebuilt = next;
    }
}

/* ---- Disk ---- */

static int meta_number(const char *meta, const char *tag) {
    int value = -1;
    const char *found = strstr(meta, tag);
    if (found)
        sscanf(found + strlen(tag), "%d", &value);
    return value;
}

static bool find_on_disk(attns_context *ctx, const attns_plan *plan, const attns_cache_key *key, uint32_t build,
                         attns_image *image) {
    attns_cache_entry entry = {0};
    if (!attns_cache_lookup(ctx->cache, key, build, &entry))
        return false;
    image->data = entry.payload;
    image->size = entry.payload_size;
    image->source = ATTNS_FROM_DISK;
    image->cached = true;
    image->registers = meta_number(entry.meta, "\nregisters=");
    image->spill_bytes = meta_number(entry.meta, "\nspill_bytes=");
    entry.payload = NULL;
    attns_log(&ctx->logger, ATTNS_LOG_DEBUG, "%s for %s%s: from the %s cache", plan->name, plan->target.arch, mark(ctx),
              entry.from_readonly ? "read-only" : "disk");
    attns_cache_entry_free(&entry);
    atomic_fetch_add_explicit(&ctx->disk_hits, 1, memory_order_relaxed);
    return true;
}

/* ---- Compiling ---- */

/* ptxas's advice C7510 to C7519: wgmma instructions that it had to serialise. */
static bool is_wgmma_advice(const char *line, size_t length) {
    const char *code = memmem(line, length, "(C751", 5);
    return code && (size_t)(code - line) + 6 < length && code[5] >= '0' && code[5] <= '9' && code[6] == ')';
}

static void warn_of_slow_code(attns_context *ctx, const attns_plan *plan, const attns_compile_output *output) {
    if (output->spill_bytes > 0)
        attns_log(&ctx->logger, ATTNS_LOG_WARNING, "%s for %s: %d bytes of registers spilled or of local memory",
                  plan->name, plan->target.arch, output->spill_bytes);
    for (const char *line = output->log; *line;) {
        size_t length = strcspn(line, "\n");
        if (is_wgmma_advice(line, length))
            attns_log(&ctx->logger, ATTNS_LOG_WARNING, "%s for %s: %.*s", plan->name, plan->target.arch, (int)length,
                      line);
        line += length + (line[length] != '\0');
    }
}

static attns_status compile_and_publish(attns_context *ctx, const attns_plan *plan, const char *source,
                                        const attns_cache_key *key, const attns_nvrtc *nvrtc, attns_image *image) {
    attns_compile_output output;
    char arch[32];
    compiler_target(ctx, plan, arch, sizeof arch);
    attns_compile_enter(ctx);
    attns_status status = attns_nvrtc_compile(nvrtc, plan->template_file, source, arch, compile_options(ctx, plan),
                                              NUM_COMPILE_OPTIONS, &output);
    attns_compile_leave(ctx);
    if (status != ATTNS_OK)
        return attns_fail(status, "%s: %s", plan->name, attns_last_error());
    atomic_fetch_add_explicit(&ctx->compiles, 1, memory_order_relaxed);
    int version = attns_nvrtc_version(nvrtc);
    if (is_ptx(ctx, plan))
        attns_log(&ctx->logger, ATTNS_LOG_INFO, "compiled %s for %s%s in %.3f s: %zu bytes (NVRTC %d.%d)", plan->name,
                  plan->target.arch, mark(ctx), output.seconds, output.image_size, version / 1000, version % 1000 / 10);
    else
        attns_log(&ctx->logger, ATTNS_LOG_INFO,
                  "compiled %s for %s in %.3f s: %d registers, %d bytes spilled, %zu bytes (NVRTC %d.%d)", plan->name,
                  plan->target.arch, output.seconds, output.registers, output.spill_bytes, output.image_size,
                  version / 1000, version % 1000 / 10);
    warn_of_slow_code(ctx, plan, &output);

    image->data = output.image;
    image->size = output.image_size;
    image->source = ATTNS_FROM_COMPILER;
    image->registers = output.registers;
    image->spill_bytes = output.spill_bytes;
    image->seconds = output.seconds;
    output.image = NULL;
    attns_compile_output_free(&output);

    char meta[512];
    snprintf(meta, sizeof meta, "kernel=%s\narch=%s\nentry=%s\nregisters=%d\nspill_bytes=%d\ncompiler=NVRTC %d.%d\n",
             plan->name, arch, plan->entry, image->registers, image->spill_bytes, version / 1000, version % 1000 / 10);
    image->cached = attns_cache_store(ctx->cache, key, attns_nvrtc_build(nvrtc), meta, image->data, image->size);
    if (!image->cached)
        keep(ctx, key, image);
    return ATTNS_OK;
}

static attns_status find_compiler(attns_context *ctx, const attns_plan *plan, const char *why,
                                  const attns_nvrtc **nvrtc) {
    attns_nvrtc_set *set = NULL;
    attns_status status = attns_context_nvrtc(ctx, &set);
    if (status == ATTNS_OK)
        status = attns_nvrtc_for_arch(set, plan->target.arch, nvrtc);
    if (status != ATTNS_OK)
        return attns_fail(status, "%s for %s%s %s and must be compiled: %s", plan->name, plan->target.arch, mark(ctx),
                          why, attns_last_error());
    return ATTNS_OK;
}

/* ---- All together ---- */

/* Filled source and its key; both are the caller's. */
static attns_status prepare(attns_context *ctx, const attns_plan *plan, char **source, attns_cache_key *key) {
    attns_status status =
        attns_template_fill(ctx->template_dir, plan->template_file, plan->placeholders, plan->num_placeholders, source);
    if (status != ATTNS_OK)
        return attns_fail(status, "%s: %s", plan->name, attns_last_error());
    if (ctx->dump_dir)
        dump_source(ctx, plan, *source);
    char arch[32];
    compiler_target(ctx, plan, arch, sizeof arch);
    if (!attns_image_key(arch, *source, compile_options(ctx, plan), NUM_COMPILE_OPTIONS, key)) {
        free(*source);
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s: out of memory", plan->name);
    }
    return ATTNS_OK;
}

static attns_status compile_unless_published(attns_context *ctx, const attns_plan *plan, const char *source,
                                             const attns_cache_key *key, uint32_t build, attns_image *image) {
    const attns_nvrtc *nvrtc = NULL;
    attns_status status = find_compiler(ctx, plan, "is in no cache directory", &nvrtc);
    if (status != ATTNS_OK)
        return status;
    attns_compile_claim claim;
    attns_compile_claim_take(ctx, &claim, key->digest);
    /* Whoever had the key, here or in another process, has probably published what we need. */
    int lock = attns_cache_lock(ctx->cache, key, LOCK_SECONDS);
    if (!find_kept(ctx, key, image) && !find_on_disk(ctx, plan, key, build, image))
        status = compile_and_publish(ctx, plan, source, key, nvrtc, image);
    if (lock >= 0)
        attns_cache_unlock(lock);
    attns_compile_claim_drop(ctx, &claim);
    return status;
}

attns_status attns_image_get(attns_context *ctx, const attns_plan *plan, bool may_compile, uint32_t build,
                             attns_image *image) {
    memset(image, 0, sizeof *image);
    char *source = NULL;
    attns_cache_key key = {0};
    attns_status status = prepare(ctx, plan, &source, &key);
    if (status != ATTNS_OK)
        return status;
    if (!find_kept(ctx, &key, image) && !find_on_disk(ctx, plan, &key, build, image)) {
        if (may_compile && !ctx->forbid_compile)
            status = compile_unless_published(ctx, plan, source, &key, build, image);
        else
            status = attns_fail_would_compile(
                ctx, plan,
                ctx->forbid_compile ? "compiling is forbidden (forbid_compile)"
                                    : "the stream is capturing (and allow_compile_in_capture is not set)");
    }
    attns_cache_key_free(&key);
    free(source);
    return status;
}

attns_status attns_image_rebuild(attns_context *ctx, const attns_plan *plan, attns_image *image) {
    memset(image, 0, sizeof *image);
    const attns_nvrtc *nvrtc = NULL;
    attns_status status = find_compiler(ctx, plan, "could not be loaded", &nvrtc);
    if (status != ATTNS_OK)
        return status;
    char *source = NULL;
    attns_cache_key key = {0};
    status = prepare(ctx, plan, &source, &key);
    if (status != ATTNS_OK)
        return status;
    if (may_rebuild(ctx, &key))
        status = compile_and_publish(ctx, plan, source, &key, nvrtc, image);
    else
        status = attns_fail(ATTNS_ERROR_CUDA, "%s for %s%s: the driver refused it again after it was compiled anew",
                            plan->name, plan->target.arch, mark(ctx));
    attns_cache_key_free(&key);
    free(source);
    return status;
}

void attns_image_free(attns_image *image) {
    free(image->data);
    memset(image, 0, sizeof *image);
}
