/* SPDX-License-Identifier: MIT
 *
 * Figures of another library, to print beside ours: built in, or from a file that tools/rival_deep_gemm.py wrote. */
#ifndef ATTNS_TOOLS_BENCH_RIVALS_H_
#define ATTNS_TOOLS_BENCH_RIVALS_H_

#include "bench.h"

typedef struct bench_rival_row {
    int batch, seq_len, next_n, num_heads, head_dim, block_size;
    bool jitter;
    double us; /* of a call, its schedule included */
} bench_rival_row;

typedef struct bench_rivals {
    const bench_rival_row *rows;
    size_t count;
    char source[192]; /* what was measured, and where */
    char device[96];  /* its name; empty if unknown */
    void *allocated;
} bench_rivals;

/* The figures built in, measured on an H200: none for any other device. */
bench_rivals bench_rivals_built_in(const char *device_name);

/* JSON lines, an object each: `B`, `ctx`, `next_n`, `H`, `D`, `bkv` (integers) and `us_both` (microseconds) are needed,
 * `jitter` is false and `library` and `device` are unknown where they are missing; other members are ignored, and so
 * are empty lines. Returns false after writing a message with the file's name and the line to `error`. */
bool bench_rivals_load(bench_rivals *rivals, const char *path, char *error, size_t error_size);

void bench_rivals_free(bench_rivals *rivals);

/* Microseconds of a call, the fastest of those measured, or 0 if there are none: figures are of FP8, float32 scores,
 * not cleaned. */
double bench_rival_us(const bench_rivals *rivals, const bench_shape *shape, const bench_settings *settings);

/* The shapes (batch, seq_len) of the deepgemm preset: 64 heads, head dim 128, block size 64. The figures are of FP8
 * with float32 scores. */
typedef struct bench_pair {
    int batch, seq_len;
} bench_pair;
extern const bench_pair bench_deepgemm_shapes[];
extern const size_t bench_num_deepgemm_shapes;

#endif
