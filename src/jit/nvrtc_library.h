/* SPDX-License-Identifier: MIT
 *
 * One opened libnvrtc, as nvrtc.c (finding) and nvrtc_compile.c (using) share it. The types are those of nvrtc.h,
 * written down here because that header is not needed for anything else: handles are pointers, results are ints. */
#ifndef ATTNS_JIT_NVRTC_LIBRARY_H_
#define ATTNS_JIT_NVRTC_LIBRARY_H_

#include "jit/nvrtc.h"

typedef struct attns_nvrtc_program_handle *attns_nvrtc_program;

enum {
    ATTNS_NVRTC_SUCCESS = 0,
    ATTNS_NVRTC_OUT_OF_MEMORY = 1,
    ATTNS_NVRTC_COMPILATION = 6,
    ATTNS_NVRTC_BUILTIN_OPERATION_FAILURE = 7
};

#define ATTNS_NVRTC_FUNCTIONS(X)                                                                                       \
    X(version, "nvrtcVersion", (int *, int *))                                                                         \
    X(num_supported_archs, "nvrtcGetNumSupportedArchs", (int *))                                                       \
    X(supported_archs, "nvrtcGetSupportedArchs", (int *))                                                              \
    X(create_program, "nvrtcCreateProgram",                                                                            \
      (attns_nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *))              \
    X(destroy_program, "nvrtcDestroyProgram", (attns_nvrtc_program *))                                                 \
    X(compile_program, "nvrtcCompileProgram", (attns_nvrtc_program, int, const char *const *))                         \
    X(log_size, "nvrtcGetProgramLogSize", (attns_nvrtc_program, size_t *))                                             \
    X(log, "nvrtcGetProgramLog", (attns_nvrtc_program, char *))                                                        \
    X(cubin_size, "nvrtcGetCUBINSize", (attns_nvrtc_program, size_t *))                                                \
    X(cubin, "nvrtcGetCUBIN", (attns_nvrtc_program, char *))                                                           \
    X(ptx_size, "nvrtcGetPTXSize", (attns_nvrtc_program, size_t *))                                                    \
    X(ptx, "nvrtcGetPTX", (attns_nvrtc_program, char *))

typedef struct attns_nvrtc_api {
#define ATTNS_NVRTC_MEMBER(member, symbol, params) int(*member) params;
    ATTNS_NVRTC_FUNCTIONS(ATTNS_NVRTC_MEMBER)
#undef ATTNS_NVRTC_MEMBER
    const char *(*error_string)(int);
} attns_nvrtc_api;

struct attns_nvrtc {
    attns_nvrtc_api api;
    void *handle;      /* dlopen; kept open until process exit */
    char *path;        /* the real file */
    int version;       /* major*1000 + minor*10 */
    uint16_t build_id; /* 16 bits of the library's own; 0 if it has none */
    int *archs;        /* 75, 80, ... ascending */
    int num_archs;
    char builtins[64]; /* the companion file it needs for compiling: "libnvrtc-builtins.so.13.0" */
    bool has_builtins; /* it lies beside the library or where the loader finds it */
};

#endif
