/* SPDX-License-Identifier: MIT
 *
 * Measuring the kernels: what cmd_bench.c (arguments, table) and the measuring parts share. One thread only.
 *
 * Method. A shape's KV pool exists many times over, together far larger than L2, and consecutive calls walk through the
 * copies, so that every call reads its KV from memory as a serving step does. The calls of one walk are captured in a
 * CUDA graph; a figure is the median over replays of the time between two events around a replay, divided by the number
 * of calls. Block tables, lengths, queries and weights are the same in every call, as between the layers of a model. */
#ifndef ATTNS_TOOLS_BENCH_H_
#define ATTNS_TOOLS_BENCH_H_

#include <attn_scores/attn_scores.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "common/gpu.h"

typedef struct bench_shape {
    attns_variant variant;
    int batch, seq_len, next_n, num_heads, head_dim, block_size;
    attns_dtype out_dtype;
} bench_shape;

typedef struct bench_settings {
    bool jitter;        /* lengths uniform in 0.7 .. 1.3 of seq_len instead of all equal */
    bool pdl;           /* programmatic dependent launch */
    bool clean;         /* clean_logits */
    bool schedule_meta; /* every call computes its schedule with the helper kernel first */
    int replays;        /* of a graph, at least 1 */
    uint64_t seed;
} bench_settings;

typedef struct bench_result {
    double us;        /* device time of a call */
    double limit_us;  /* the same for the kernel that only streams, never with PDL */
    double host_us;   /* time the calling thread needs to enqueue a warm call */
    double launch_us; /* the driver's part of it: its launches alone, in a loop that does nothing else */
    double bytes;     /* each KV byte and scale once, queries, weights, scores written */
    double flops;     /* of the matrix product */
    bool fits_l2;     /* even the most pools allowed do not exceed L2 four times: the figures are not memory-bound */
} bench_result;

typedef struct bench {
    struct gpu gpu;
    attns_context *ctx;
    attns_device_info device;
    bool opened; /* gpu and everything below */
    CUstream stream;
    CUevent start, stop;
    CUmodule module; /* bench_streaming.cu or bench_indexer.cu */
    CUfunction stream_kernel, fill_kernel, fill_fp4_kernel, fill_pages_kernel;
    struct gpu_buffer arena; /* the pools of one shape at a time */
} bench;

typedef enum bench_op { BENCH_FP8 = 1, BENCH_INDEXER = 2, BENCH_FP4 = 3 } bench_op;

/* Bytes of one token's (or one query head's) values and of its scales, and their sum. */
int bench_value_bytes(const bench_shape *shape);
int bench_scale_bytes(const bench_shape *shape);
int bench_token_bytes(const bench_shape *shape);

/* Opens the device and compiles the kernels that measuring `op` needs beside the library's. Returns an exit code
 * (cli.h), after a message if not CLI_OK. bench_close is due in any case. */
int bench_open(bench *b, attns_context *ctx, int ordinal, bench_op op);
void bench_close(bench *b);

/* Device memory that measuring `shape` takes, and how much of it is the arena. */
typedef struct bench_memory {
    size_t pool_bytes; /* of one pool */
    int pools;
    size_t arena_bytes; /* pools * pool_bytes */
    size_t other_bytes;
} bench_memory;
bench_memory bench_memory_of(const bench *b, const bench_shape *shape, const bench_settings *settings);

/* The arena for every shape that is to be measured; larger ones cannot be measured afterwards. */
bool bench_arena(bench *b, size_t bytes);

/* The longest request that `settings` make of a shape, hence its max_seq_len. */
int bench_max_seq_len(const bench_shape *shape, const bench_settings *settings);

/* Returns an exit code, after a message if not CLI_OK. */
int bench_measure(bench *b, const bench_shape *shape, const bench_settings *settings, bench_result *result);

/* Queues call number `i` on b->stream. */
typedef bool (*bench_enqueue)(bench *b, void *user, int i);

/* Median microseconds of one of `calls` captured calls. */
bool bench_time_graph(bench *b, int calls, int replays, bench_enqueue enqueue, void *user, double *us);

/* Wall time of a warm call that nothing waits for, and that of its launches alone (bench_host.c); `device_us` is what a
 * call takes on the device. */
bool bench_time_host(bench *b, bench_enqueue enqueue, void *user, double device_us, double *host_us, double *launch_us);

/* Kernels that one call launches. */
bool bench_count_launches(bench *b, bench_enqueue enqueue, void *user, int *launches);

/* How many copies of a pool together exceed L2 four times, and 400 MB; and how many calls, of `bytes` each, a graph
 * over them should have. */
int bench_pools(const bench *b, size_t pool_bytes);
int bench_calls(int pools, double bytes);

/* splitmix64. */
uint64_t bench_random(uint64_t *state);

/* Copies host data into a new buffer. */
bool bench_upload(bench *b, struct gpu_buffer *buffer, const void *data, size_t bytes);

/* A compact tensor on the device; `shape` must outlive it. */
DLTensor bench_tensor(const struct gpu *gpu, CUdeviceptr data, int64_t *shape, int ndim, DLDataTypeCode code, int bits);

/* Type of scores. */
DLDataTypeCode bench_out_code(attns_dtype dtype);
int bench_out_bits(attns_dtype dtype);

/* Sorts the values. */
double bench_median(double *values, size_t count);

/* Bytes read plus bytes written per nanosecond by a device-to-device copy within the arena. */
bool bench_copy_gbps(bench *b, int replays, double *gbps);

/* Writes random KV blocks over the first `bytes` of the arena (a multiple of the block's size). */
bool bench_fill(bench *b, const bench_shape *shape, size_t bytes, uint64_t seed);

/* ---- indexer_scores (bench_indexer.c) ---- */

typedef struct bench_indexer_shape {
    bool nvfp4;
    int groups, rows, keys; /* rows and keys of a group */
    bool one_long;          /* only the first group has so many keys, the others a 64th of them */
} bench_indexer_shape;

typedef struct bench_indexer_result {
    double us, host_us, launch_us; /* as in bench_result */
    double bytes;                  /* each key and scale once, queries, scores written */
    int launches;                  /* kernels of a call */
} bench_indexer_result;

bench_memory bench_indexer_memory(const bench *b, const bench_indexer_shape *shape);
int bench_measure_indexer(bench *b, const bench_indexer_shape *shape, const bench_settings *settings,
                          bench_indexer_result *result);

/* All shapes and the table (cmd_bench_indexer.c). Lists that are empty mean shapes of its own. Returns an exit code. */
int bench_run_indexer(bench *b, const cli_ints *groups, const cli_ints *keys, const cli_ints *rows,
                      const bench_settings *settings, bool json);

/* ---- Cold start (bench_cold.c) ---- */

typedef struct bench_cold {
    double compile_ms;     /* one kernel with an empty cache, opening NVRTC included */
    double open_nvrtc_ms;  /* the part of it that opens NVRTC */
    double cuda_ms;        /* CUDA's own start: driver, context, first allocation */
    double first_call_ms;  /* context creation, first call and its completion, kernel in the disk cache */
    bool first_call_done;  /* false without a GPU; the two above are then 0 */
    bool first_call_clean; /* the first call neither compiled nor opened NVRTC */
} bench_cold;

/* Medians over `runs` fresh processes each. `arch` NULL: the device's. Returns an exit code, after a message if not
 * CLI_OK. */
int bench_measure_cold(const attns_context_params *params, int ordinal, const char *arch, const bench_shape *shape,
                       int runs, bench_cold *cold);

/* The fresh process: `what` as given in argv by bench_measure_cold. Returns an exit code. */
int bench_cold_child(const attns_context_params *params, int ordinal, const char *arch, const bench_shape *shape,
                     const char *what);

#endif
