/* SPDX-License-Identifier: MIT */
#include "jit/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/strbuf.h"

static const char *mark(const attns_context *ctx) {
    return ctx->load_ptx ? " (PTX)" : "";
}

/* Returns 0 or an errno. */
static int append_line(const char *path, const char *line, size_t size) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        return errno;
    const ssize_t written = write(fd, line, size);
    int error = written < 0 ? errno : (size_t)written < size ? ENOSPC : 0;
    if (close(fd) != 0 && error == 0)
        error = errno;
    return error;
}

void attns_record_kernel(attns_context *ctx, const attns_plan *plan) {
    if (!ctx->record_path)
        return;
    attns_strbuf line = {0};
    attns_strbuf_printf(&line, "%s for %s%s\n", plan->name, plan->target.arch, mark(ctx));
    const int error = line.failed ? ENOMEM : append_line(ctx->record_path, line.text, line.size);
    attns_strbuf_free(&line);
    if (error != 0 && !atomic_exchange_explicit(&ctx->record_failed, true, memory_order_relaxed))
        attns_log(&ctx->logger, ATTNS_LOG_WARNING, "%s: kernels cannot be recorded there: %s", ctx->record_path,
                  strerror(error));
}

/* As one word of a shell. */
static void put_quoted(attns_strbuf *out, const char *text) {
    attns_strbuf_puts(out, "'");
    for (; *text; text++) {
        if (*text == '\'')
            attns_strbuf_puts(out, "'\\''");
        else
            attns_strbuf_append(out, text, 1);
    }
    attns_strbuf_puts(out, "'");
}

attns_status attns_fail_would_compile(const attns_context *ctx, const attns_plan *plan, const char *why) {
    attns_strbuf command = {0}, name = {0};
    attns_strbuf_printf(&name, "%s for %s", plan->name, plan->target.arch);
    attns_strbuf_printf(&command, "%sattn-scores precompile --kernel ", ctx->load_ptx ? "ATTNS_LOAD_PTX=1 " : "");
    put_quoted(&command, attns_strbuf_text(&name));
    const char *const dir = attns_cache_writable_dir(ctx->cache);
    if (dir) {
        attns_strbuf_puts(&command, " --cache-dir ");
        put_quoted(&command, dir);
    }
    if (ctx->template_dir) {
        attns_strbuf_puts(&command, " --template-dir ");
        put_quoted(&command, ctx->template_dir);
    }
    const attns_status status = attns_fail(
        ATTNS_ERROR_WOULD_COMPILE, "%s%s: %s, and the kernel is neither loaded nor in a cache. What prepares it: %s",
        attns_strbuf_text(&name), mark(ctx), why, attns_strbuf_text(&command));
    attns_strbuf_free(&command);
    attns_strbuf_free(&name);
    return status;
}
