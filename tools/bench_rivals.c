/* SPDX-License-Identifier: MIT */
#include "bench_rivals.h"

#include <string.h>

struct row {
    int batch, seq_len, next_n, num_heads;
    bool jitter;
    double us;
};

/* Head dim 128, block size 64, float32 scores, [B, next_n] lengths: the median of 7 replays of a graph that holds the
 * schedule kernel and the logits kernel of every call, pools rotated. Of a shape that was measured twice the faster
 * figure stands here. */
static const struct row rows[] = {
    {1, 4096, 1, 64, false, 5.56},    {1, 16384, 1, 64, false, 6.13},   {1, 131072, 1, 64, false, 10.77},
    {4, 16384, 1, 64, false, 8.80},   {16, 4096, 1, 64, false, 9.04},   {16, 16384, 1, 64, false, 16.25},
    {64, 4096, 1, 64, false, 16.69},  {64, 16384, 1, 64, false, 43.45}, {64, 65536, 1, 64, false, 146.06},
    {128, 8192, 1, 64, false, 43.36}, {256, 8192, 1, 64, false, 80.49}, {256, 32768, 1, 64, false, 285.77},
    {1, 4096, 2, 64, false, 6.46},    {1, 16384, 2, 64, false, 6.67},   {1, 131072, 2, 64, false, 11.64},
    {4, 16384, 2, 64, false, 9.32},   {16, 4096, 2, 64, false, 9.72},   {16, 16384, 2, 64, false, 17.60},
    {64, 4096, 2, 64, false, 18.14},  {64, 16384, 2, 64, false, 45.69}, {64, 65536, 2, 64, false, 152.82},
    {128, 8192, 2, 64, false, 50.34}, {256, 8192, 2, 64, false, 91.92}, {256, 32768, 2, 64, false, 299.71},
    {16, 16384, 1, 64, true, 20.04},  {16, 16384, 2, 64, true, 21.03},  {64, 16384, 1, 64, true, 43.79},
    {64, 16384, 2, 64, true, 46.41},  {256, 8192, 1, 64, true, 81.18},  {256, 8192, 2, 64, true, 86.98},
    {64, 16384, 1, 32, false, 42.73}, {64, 16384, 2, 32, false, 44.87},
};

const bench_pair bench_deepgemm_shapes[] = {
    {1, 4096},  {1, 16384},  {1, 131072}, {4, 16384},  {16, 4096},  {16, 16384},
    {64, 4096}, {64, 16384}, {64, 65536}, {128, 8192}, {256, 8192}, {256, 32768},
};
const size_t bench_num_deepgemm_shapes = sizeof(bench_deepgemm_shapes) / sizeof(bench_deepgemm_shapes[0]);

double bench_rival_us(const char *device_name, const bench_shape *shape, const bench_settings *settings) {
    if (strstr(device_name, "H200") == NULL || shape->variant != ATTNS_VARIANT_FP8 || shape->head_dim != 128 ||
        shape->block_size != 64 || shape->out_dtype != ATTNS_DTYPE_F32 || settings->clean) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        if (row->batch == shape->batch && row->seq_len == shape->seq_len && row->next_n == shape->next_n &&
            row->num_heads == shape->num_heads && row->jitter == settings->jitter) {
            return row->us;
        }
    }
    return 0;
}
