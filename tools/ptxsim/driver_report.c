/* SPDX-License-Identifier: MIT
 *
 * What becomes of a fault: the error that a device would give, text on stderr, a line of JSON, the end of the process.
 */
#include "driver_state.h"
#include "ptxsim.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_CODE 97

/* A report is text; which error a device would give, and which check found it, follows from its first line. The first
 * row that fits counts, and what fits none is an unspecified launch failure. */
static const struct {
    const char *says;
    CUresult code;
    const char *check;
} kinds[] = {
    {"deadlock", CUDA_ERROR_LAUNCH_TIMEOUT, "deadlock"},
    {"livelock", CUDA_ERROR_LAUNCH_TIMEOUT, "livelock"},
    {"data race", CUDA_ERROR_LAUNCH_FAILED, "data-race"},
    {"before griddepcontrol.wait", CUDA_ERROR_LAUNCH_FAILED, "dependent-launch"},
    {"fence.proxy", CUDA_ERROR_LAUNCH_FAILED, "proxy"},
    {"overwritten", CUDA_ERROR_LAUNCH_FAILED, "mbarrier"},
    {"undefined", CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {"written", CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {"yet to fill", CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {"innermost coordinate", CUDA_ERROR_ILLEGAL_INSTRUCTION, "alignment"},
    {"not a multiple of", CUDA_ERROR_MISALIGNED_ADDRESS, "alignment"},
    {"allocation", CUDA_ERROR_ILLEGAL_ADDRESS, "bounds"},
    {"out of bounds", CUDA_ERROR_ILLEGAL_ADDRESS, "bounds"},
    {"out of range", CUDA_ERROR_ILLEGAL_ADDRESS, "bounds"},
    {"read-only", CUDA_ERROR_ILLEGAL_ADDRESS, "bounds"},
    {"the CTA has exited", CUDA_ERROR_LAUNCH_FAILED, "outstanding"},
    {"the CTA has", CUDA_ERROR_ILLEGAL_ADDRESS, "bounds"},
    {"mbarrier", CUDA_ERROR_LAUNCH_FAILED, "mbarrier"},
    {"wgmma", CUDA_ERROR_LAUNCH_FAILED, "wgmma"},
    {"", CUDA_ERROR_LAUNCH_FAILED, "other"},
};

static size_t kind_of(const char *report) {
    size_t line = strcspn(report, "\n"), row = 0;
    while (!memmem(report, line, kinds[row].says, strlen(kinds[row].says)))
        row++;
    return row;
}

static void put_string(FILE *file, const char *name, const char *text) {
    fprintf(file, ", \"%s\": \"", name);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}

static void put_dim(FILE *file, const char *name, sim_dim d) {
    fprintf(file, ", \"%s\": [%u, %u, %u]", name, d.x, d.y, d.z);
}

/* One object a line; the fields are those of tools/ptxsim/README.md. */
static void record(const char *report, size_t kind, const sim_launch *launch) {
    FILE *file = driver.report_file[0] ? fopen(driver.report_file, "ae") : NULL;
    const char *error = "";
    if (!file) {
        if (driver.report_file[0])
            driver_say("PTXSIM_REPORT: '%s' cannot be written", driver.report_file);
        return;
    }
    cuGetErrorName(kinds[kind].code, &error);
    fprintf(file, "{\"seed\": %llu", (unsigned long long)driver.seed);
    put_string(file, "check", kinds[kind].check);
    put_string(file, "error", error);
    if (launch) {
        const sim_place *at = &launch->fault_place;
        fprintf(file, ", \"launch\": %llu", (unsigned long long)launch->grid_id);
        put_string(file, "kernel", launch->function->name);
        put_dim(file, "cta", at->cta);
        if (at->warp >= 0)
            fprintf(file, ", \"warp\": %d", at->warp);
        if (at->lane >= 0) {
            fprintf(file, ", \"lane\": %d", at->lane);
            put_dim(file, "thread", at->thread);
        }
        if (at->ptx_line > 0)
            fprintf(file, ", \"ptx_line\": %d", at->ptx_line);
        if (at->source) {
            put_string(file, "source", at->source);
            fprintf(file, ", \"source_line\": %d", at->source_line);
        }
    }
    put_string(file, "report", report);
    fputs("}\n", file);
    fclose(file);
}

void context_fault(CUcontext ctx, const char *report, const sim_launch *launch) {
    size_t kind = kind_of(report);
    ctx->sticky = kinds[kind].code;
    snprintf(driver.last_fault, sizeof driver.last_fault, "%s", report);
    driver_say("%s", report);
    record(report, kind, launch);
    if (driver.exit_on_fault) {
        fflush(NULL);
        _Exit(EXIT_CODE);
    }
}

const char *ptxsim_last_fault(void) {
    static _Thread_local char copy[sizeof driver.last_fault];
    driver_lock();
    memcpy(copy, driver.last_fault, sizeof copy);
    driver_unlock();
    return copy;
}
