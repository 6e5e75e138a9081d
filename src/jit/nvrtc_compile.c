/* SPDX-License-Identifier: MIT
 *
 * Using NVRTC: source in, cubin or PTX and ptxas's report out. NVRTC may run in several threads at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "jit/nvrtc_library.h"

#define MAX_OPTIONS 32

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads ptxas's report: "Used 64 registers, ..." and "368 bytes stack frame, 200 bytes spill stores, 220 bytes spill
 * loads". Of several functions the worst counts. */
static void read_report(const char *log, attns_compile_output *output) {
    output->registers = -1;
    output->spill_bytes = -1;
    for (const char *line = log; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t length = strcspn(line, "\n");
        int value[3];
        const char *used = memmem(line, length, "Used ", 5);
        if (used && sscanf(used, "Used %d registers", &value[0]) == 1 && value[0] > output->registers)
            output->registers = value[0];
        const char *frame = memmem(line, length, " bytes stack frame", 18);
        while (frame && frame > line && frame[-1] >= '0' && frame[-1] <= '9')
            frame--;
        if (frame && sscanf(frame, "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &value[0],
                            &value[1], &value[2]) == 3)
            for (int i = 0; i < 3; i++)
                if (value[i] > output->spill_bytes)
                    output->spill_bytes = value[i];
    }
}

static char *fetch_log(const attns_nvrtc *nvrtc, attns_nvrtc_program program) {
    size_t size = 0; /* includes the NUL */
    if (nvrtc->api.log_size(program, &size) != ATTNS_NVRTC_SUCCESS)
        size = 0;
    char *log = calloc(1, size + 1);
    if (log && size && nvrtc->api.log(program, log) != ATTNS_NVRTC_SUCCESS)
        log[0] = '\0';
    return log;
}

static attns_status describe_failure(const attns_nvrtc *nvrtc, int result, const char *name, const char *arch,
                                     const char *log) {
    if (result == ATTNS_NVRTC_OUT_OF_MEMORY)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s for %s: NVRTC ran out of memory", name, arch);
    if (result == ATTNS_NVRTC_BUILTIN_OPERATION_FAILURE || strstr(log, "libnvrtc-builtins")) {
        const char *slash = strrchr(nvrtc->path, '/');
        int folder = slash ? (int)(slash - nvrtc->path) : 0;
        return attns_fail(ATTNS_ERROR_COMPILE,
                          "%s for %s: NVRTC %s cannot open its companion %s, which was looked for in %.*s and in the "
                          "loader's path; install both files from the same CUDA release\n%s",
                          name, arch, nvrtc->path, nvrtc->builtins, folder, nvrtc->path, log);
    }
    return attns_fail(ATTNS_ERROR_COMPILE, "%s for %s: NVRTC %d.%d (%s): %s\n%s", name, arch, nvrtc->version / 1000,
                      nvrtc->version % 1000 / 10, nvrtc->path, nvrtc->api.error_string(result), log);
}

/* The compiled program's image; a PTX image keeps its NUL within image_size. */
static attns_status fetch_image(const attns_nvrtc *nvrtc, attns_nvrtc_program program, bool ptx, const char *name,
                                attns_compile_output *output) {
    size_t size = 0;
    int result = ptx ? nvrtc->api.ptx_size(program, &size) : nvrtc->api.cubin_size(program, &size);
    if (result == ATTNS_NVRTC_SUCCESS && size) {
        output->image = malloc(size);
        if (!output->image)
            return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s: out of memory for an image of %zu bytes", name, size);
        result = ptx ? nvrtc->api.ptx(program, output->image) : nvrtc->api.cubin(program, output->image);
    }
    if (result != ATTNS_NVRTC_SUCCESS || !size)
        return attns_fail(ATTNS_ERROR_COMPILE, "%s: NVRTC gave no image (%s)", name, nvrtc->api.error_string(result));
    output->image_size = size;
    return ATTNS_OK;
}

attns_status attns_nvrtc_compile(const attns_nvrtc *nvrtc, const char *name, const char *source, const char *arch,
                                 const char *const *options, size_t num_options, attns_compile_output *output) {
    memset(output, 0, sizeof *output);
    if (num_options >= MAX_OPTIONS)
        return attns_fail(ATTNS_ERROR_INTERNAL, "%s: %zu compiler options, at most %d", name, num_options,
                          MAX_OPTIONS - 1);
    char arch_option[64];
    snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%s", arch);
    const char *all_options[MAX_OPTIONS] = {arch_option};
    for (size_t i = 0; i < num_options; i++)
        all_options[i + 1] = options[i];

    double start = now_seconds();
    attns_nvrtc_program program = NULL;
    int result = nvrtc->api.create_program(&program, source, name, 0, NULL, NULL);
    if (result != ATTNS_NVRTC_SUCCESS)
        return describe_failure(nvrtc, result, name, arch, "");
    result = nvrtc->api.compile_program(program, (int)num_options + 1, all_options);
    output->seconds = now_seconds() - start;

    attns_status status = ATTNS_OK;
    output->log = fetch_log(nvrtc, program);
    if (!output->log)
        status = attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "%s: out of memory for the compiler's log", name);
    else if (result != ATTNS_NVRTC_SUCCESS)
        status = describe_failure(nvrtc, result, name, arch, output->log);
    else
        status = fetch_image(nvrtc, program, strncmp(arch, "compute_", 8) == 0, name, output);
    if (status == ATTNS_OK)
        read_report(output->log, output);
    nvrtc->api.destroy_program(&program);
    if (status != ATTNS_OK)
        attns_compile_output_free(output);
    return status;
}

void attns_compile_output_free(attns_compile_output *output) {
    free(output->image);
    free(output->log);
    memset(output, 0, sizeof *output);
}
