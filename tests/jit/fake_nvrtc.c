/* SPDX-License-Identifier: MIT
 *
 * An NVRTC that compiles nothing: a "cubin" is a text that names version, options and source. Words in the source
 * choose what happens. Built several times with other versions and targets. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"

#ifndef FAKE_MAJOR
#error "FAKE_MAJOR, FAKE_MINOR and FAKE_ARCHS come from the build"
#endif

typedef struct program {
    char *source, *name, *log, *cubin;
} program;

static const int archs[] = {FAKE_ARCHS};
static atomic_int compiles; /* also those that fail */
static atomic_int running, peak;

int fake_nvrtc_compiles(void);
int fake_nvrtc_peak(void);
int nvrtcVersion(int *major, int *minor);
int nvrtcGetNumSupportedArchs(int *count);
int nvrtcGetSupportedArchs(int *list);
int nvrtcCreateProgram(program **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names);
int nvrtcDestroyProgram(program **out);
int nvrtcCompileProgram(program *self, int count, const char *const *options);
int nvrtcGetProgramLogSize(program *self, size_t *size);
int nvrtcGetProgramLog(program *self, char *text);
int nvrtcGetCUBINSize(program *self, size_t *size);
int nvrtcGetCUBIN(program *self, char *image);
int nvrtcGetPTXSize(program *self, size_t *size);
int nvrtcGetPTX(program *self, char *image);
const char *nvrtcGetErrorString(int result);

int fake_nvrtc_compiles(void) {
    return atomic_load(&compiles);
}

int fake_nvrtc_peak(void) {
    return atomic_exchange(&peak, 0);
}

int nvrtcVersion(int *major, int *minor) {
    *major = FAKE_MAJOR;
    *minor = FAKE_MINOR;
    return 0;
}

int nvrtcGetNumSupportedArchs(int *count) {
    *count = (int)(sizeof archs / sizeof archs[0]);
    return 0;
}

int nvrtcGetSupportedArchs(int *list) {
    memcpy(list, archs, sizeof archs);
    return 0;
}

int nvrtcCreateProgram(program **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)headers, (void)names;
    if (count)
        return 3; /* the library must need no headers */
    *out = calloc(1, sizeof **out);
    (*out)->source = strdup(source);
    (*out)->name = strdup(name);
    (*out)->log = strdup("");
    return 0;
}

int nvrtcDestroyProgram(program **out) {
    free((*out)->source);
    free((*out)->name);
    free((*out)->log);
    free((*out)->cubin);
    free(*out);
    *out = NULL;
    return 0;
}

static void set_log(program *self, const char *text) {
    free(self->log);
    self->log = strdup(text);
}

static int compile(program *self, int count, const char *const *options);

int nvrtcCompileProgram(program *self, int count, const char *const *options) {
    atomic_fetch_add(&compiles, 1);
    const int now = atomic_fetch_add(&running, 1) + 1;
    int seen = atomic_load(&peak);
    while (now > seen && !atomic_compare_exchange_weak(&peak, &seen, now))
        ;
    const int result = compile(self, count, options);
    atomic_fetch_sub(&running, 1);
    return result;
}

static int compile(program *self, int count, const char *const *options) {
    if (strstr(self->source, "FAKE_SLOW"))
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    if (strstr(self->source, "FAKE_BUILTINS")) {
        set_log(self, "nvrtc: error: failed to open the companion.");
        return 7;
    }
    if (strstr(self->source, "FAKE_LONG_LOG")) {
        char *text = calloc(1, 20001);
        memset(text, 'x', 20000);
        memcpy(text, "first line\n", 11);
        memcpy(text + 20000 - 10, "\nlast line", 10);
        set_log(self, text);
        free(text);
        return 6;
    }
    if (strstr(self->source, "FAKE_ERROR")) {
        set_log(self, "templates/broken.cu(3): error: identifier \"nonsense\" is undefined\n");
        return 6;
    }
    if (strstr(self->source, "FAKE_SPILL"))
        set_log(self, "ptxas         .     368 bytes stack frame, 200 bytes spill stores, 220 bytes spill loads\n"
                      "ptxas info    : Used 64 registers, used 0 barriers\n"
                      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                      "ptxas info    : Used 40 registers, used 0 barriers");
    else if (strstr(self->source, "FAKE_SERIALISED"))
        set_log(self,
                "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
                "ptxas info    : (C7600) something else\n");
    else
        set_log(self, "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                      "ptxas info    : Used 42 registers, used 1 barriers\n");
    size_t size = strlen(self->source) + 4096;
    self->cubin = malloc(size);
    int used = snprintf(self->cubin, size, "%s%d.%d %s", FAKE_CUBIN_MAGIC, FAKE_MAJOR, FAKE_MINOR, self->name);
    for (int i = 0; i < count; i++)
        used += snprintf(self->cubin + used, size - (size_t)used, " %s", options[i]);
    snprintf(self->cubin + used, size - (size_t)used, "\n%s", strstr(self->source, "FAKE_INVALID") ? "" : self->source);
    if (strstr(self->source, "FAKE_INVALID"))
        memcpy(self->cubin, "BAD", 3);
    return 0;
}

int nvrtcGetProgramLogSize(program *self, size_t *size) {
    *size = strlen(self->log) + 1;
    return 0;
}

int nvrtcGetProgramLog(program *self, char *text) {
    memcpy(text, self->log, strlen(self->log) + 1);
    return 0;
}

int nvrtcGetCUBINSize(program *self, size_t *size) {
    *size = self->cubin ? strlen(self->cubin) + 1 : 0;
    return 0;
}

int nvrtcGetCUBIN(program *self, char *image) {
    memcpy(image, self->cubin, strlen(self->cubin) + 1);
    return 0;
}

int nvrtcGetPTXSize(program *self, size_t *size) {
    return nvrtcGetCUBINSize(self, size);
}

int nvrtcGetPTX(program *self, char *image) {
    return nvrtcGetCUBIN(self, image);
}

const char *nvrtcGetErrorString(int result) {
    return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OTHER";
}
