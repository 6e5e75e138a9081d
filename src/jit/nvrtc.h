/* SPDX-License-Identifier: MIT
 *
 * libnvrtc, opened at run time: finds every usable NVRTC (12.8 or newer) and compiles with the newest that knows the
 * target. */
#ifndef ATTNS_JIT_NVRTC_H_
#define ATTNS_JIT_NVRTC_H_

#include <attn_scores/attn_scores.h>

#include "core/log.h"

typedef struct attns_nvrtc attns_nvrtc; /* one opened library */
typedef struct attns_nvrtc_set attns_nvrtc_set;

/* `paths` as attns_context_params.libnvrtc_path (already resolved from the environment; NULL: the usual SONAMEs
 * libnvrtc.so.13, .12, then libnvrtc.so of $CUDA_HOME-like folders: /usr/local/cuda*, lib64 and lib). ATTNS_ERROR_
 * LIBRARY_NOT_FOUND lists every name tried and why it was not used (missing, too old, builtins missing). */
attns_status attns_nvrtc_set_open(attns_nvrtc_set **set, const char *paths, const attns_logger *logger);
void attns_nvrtc_set_close(attns_nvrtc_set *set);

/* The newest library that knows `arch` ("sm_90a", "sm_100f"; suffix a and f need the base number to be known).
 * ATTNS_ERROR_UNSUPPORTED_DEVICE lists the targets known. */
attns_status attns_nvrtc_for_arch(attns_nvrtc_set *set, const char *arch, const attns_nvrtc **nvrtc);

const char *attns_nvrtc_path(const attns_nvrtc *nvrtc);
int attns_nvrtc_version(const attns_nvrtc *nvrtc); /* major*1000 + minor*10 */
/* What cache entries are filed under: ascends with the version, and differs between two libraries of one version, as a
 * patch release has it. version * 65536 plus 16 bits of the library's GNU build id. */
uint32_t attns_nvrtc_build(const attns_nvrtc *nvrtc);
const attns_nvrtc *attns_nvrtc_newest(const attns_nvrtc_set *set);
const char *attns_nvrtc_archs(const attns_nvrtc_set *set); /* "sm_75 sm_80 ...", union, ascending */

typedef struct attns_compile_output {
    void *image; /* malloc: cubin, or NUL-terminated PTX */
    size_t image_size;
    char *log;       /* malloc, never NULL */
    int registers;   /* from ptxas -v; -1 if the log does not say */
    int spill_bytes; /* the largest of spill stores, spill loads and stack frame */
    double seconds;
} attns_compile_output;

/* Compiles one source to a cubin for `arch`. `name` is used in messages. ATTNS_ERROR_COMPILE carries the log (and, if
 * NVRTC's builtins library is missing, says so with the folder searched). Free with attns_compile_output_free. */
attns_status attns_nvrtc_compile(const attns_nvrtc *nvrtc, const char *name, const char *source, const char *arch,
                                 const char *const *options, size_t num_options, attns_compile_output *output);
void attns_compile_output_free(attns_compile_output *output);

#endif
