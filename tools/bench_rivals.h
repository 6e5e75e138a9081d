/* SPDX-License-Identifier: MIT
 *
 * Published figures of another library, to print beside ours. */
#ifndef ATTNS_TOOLS_BENCH_RIVALS_H_
#define ATTNS_TOOLS_BENCH_RIVALS_H_

#include "bench.h"

#define BENCH_RIVAL_SOURCE "2.6.1, commit 54e2261, measured on an H200, schedule and logits kernels together"

/* Microseconds of a call, or 0 if the shape was not measured or the device is not the one it was measured on. */
double bench_rival_us(const char *device_name, const bench_shape *shape, const bench_settings *settings);

/* The shapes (batch, seq_len) of the deepgemm preset: 64 heads, head dim 128, block size 64. The figures are of FP8
 * with float32 scores. */
typedef struct bench_pair {
    int batch, seq_len;
} bench_pair;
extern const bench_pair bench_deepgemm_shapes[];
extern const size_t bench_num_deepgemm_shapes;

#endif
