/* SPDX-License-Identifier: MIT */
#include "problem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ref/number_formats.h"

uint64_t random_state;

static uint32_t next_random(void) {
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

int random_below(int bound) {
    return (int)(next_random() % (uint32_t)bound);
}

void seed_random(int argc, char **argv) {
    random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)random_state);
    fflush(stdout);
}

void *allocate(int64_t count, size_t size) {
    void *const memory = calloc((size_t)(count > 0 ? count : 1), size);
    assert_non_null(memory);
    return memory;
}

static DLTensor host_tensor(void *data, DLDataType dtype, int ndim, int64_t *shape, int64_t *strides) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides};
}

void make_problem(problem *p) {
    const DLDataType e4m3 = {ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, uint8 = {kDLUInt, 8, 1}, int32 = {kDLInt, 32, 1},
                     float32 = {kDLFloat, 32, 1}, float64 = {kDLFloat, 64, 1};
    const int64_t block_bytes = p->block_size * (p->dim + 4);
    p->rows = p->batch * p->next_n;
    if (p->block_stride == 0)
        p->block_stride = block_bytes;
    if (p->out_dtype.bits == 0)
        p->out_dtype = float64;
    if (p->out_width == 0)
        p->out_width = p->max_seq_len;
    p->q = allocate(p->rows * p->heads * p->dim, 1);
    p->kv = allocate((p->num_blocks - 1) * p->block_stride + block_bytes, 1);
    p->weights = allocate(p->rows * p->heads, sizeof(float));
    p->tables = allocate(p->batch * p->table_width, sizeof(int32_t));
    p->lens = allocate(p->two_dimensional_lens ? p->rows : p->batch, sizeof(int32_t));
    p->out = allocate(p->rows * p->out_width, p->out_dtype.bits / 8u);
    p->abs_sum = allocate(p->rows * p->out_width, sizeof(double));
    memset(p->out, POISON_BYTE, (size_t)(p->rows * p->out_width) * (p->out_dtype.bits / 8u));
    memset(p->abs_sum, POISON_BYTE, (size_t)(p->rows * p->out_width) * sizeof(double));
    for (int64_t i = 0; i < p->batch * p->table_width; i++)
        p->tables[i] = (int32_t)(i % p->num_blocks);

    memcpy(p->q_shape, (int64_t[]){p->batch, p->next_n, p->heads, p->dim}, sizeof p->q_shape);
    memcpy(p->kv_shape, (int64_t[]){p->num_blocks, p->block_size, 1, p->dim + 4}, sizeof p->kv_shape);
    memcpy(p->kv_stride, (int64_t[]){p->block_stride, p->dim + 4, p->dim + 4, 1}, sizeof p->kv_stride);
    memcpy(p->weights_shape, (int64_t[]){p->rows, p->heads}, sizeof p->weights_shape);
    memcpy(p->tables_shape, (int64_t[]){p->batch, p->table_width}, sizeof p->tables_shape);
    memcpy(p->lens_shape, (int64_t[]){p->batch, p->next_n}, sizeof p->lens_shape);
    memcpy(p->out_shape, (int64_t[]){p->rows, p->out_width}, sizeof p->out_shape);
    p->t_q = host_tensor(p->q, e4m3, 4, p->q_shape, NULL);
    p->t_kv = host_tensor(p->kv, uint8, 4, p->kv_shape, p->kv_stride);
    p->t_weights = host_tensor(p->weights, float32, 2, p->weights_shape, NULL);
    p->t_tables = host_tensor(p->tables, int32, 2, p->tables_shape, NULL);
    p->t_lens = host_tensor(p->lens, int32, p->two_dimensional_lens ? 2 : 1, p->lens_shape, NULL);
    p->t_out = host_tensor(p->out, p->out_dtype, 2, p->out_shape, NULL);
    p->t_abs_sum = host_tensor(p->abs_sum, float64, 2, p->out_shape, NULL);
    p->params = (attns_fp8_paged_mqa_logits_params){
        .q = &p->t_q,
        .kv_fused = &p->t_kv,
        .weights = &p->t_weights,
        .block_tables = &p->t_tables,
        .seq_lens = &p->t_lens,
        .out = &p->t_out,
        .max_seq_len = p->max_seq_len,
    };
}

void free_problem(problem *p) {
    free(p->q);
    free(p->kv);
    free(p->weights);
    free(p->tables);
    free(p->lens);
    free(p->out);
    free(p->abs_sum);
}

void run_with(const problem *p, const DLTensor *abs_sum) {
    if (attns_reference_fp8_paged_mqa_logits(&p->params, abs_sum) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

void run(const problem *p) {
    run_with(p, &p->t_abs_sum);
}

uint8_t *key_of(const problem *p, int64_t block, int64_t token) {
    return p->kv + block * p->block_stride + token * p->dim;
}

void set_scale(const problem *p, int64_t block, int64_t token, float scale) {
    memcpy(p->kv + block * p->block_stride + p->block_size * p->dim + 4 * token, &scale, sizeof scale);
}

double out_at(const problem *p, int64_t row, int64_t column) {
    double value;
    assert_int_equal(p->out_dtype.bits, 64);
    memcpy(&value, p->out + (row * p->out_width + column) * 8, sizeof value);
    return value;
}

bool is_poison(const void *address, size_t size) {
    const uint8_t *const bytes = address;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != POISON_BYTE)
            return false;
    return true;
}

void check_written(const problem *p, int64_t row, int64_t written) {
    const size_t bytes = p->out_dtype.bits / 8u;
    for (int64_t column = 0; column < p->out_width; column++) {
        const int64_t at = row * p->out_width + column;
        if (is_poison(p->out + (size_t)at * bytes, bytes) != (column >= written) ||
            is_poison(&p->abs_sum[at], sizeof(double)) != (column >= written))
            fail_msg("row %d, column %d: written up to %d expected", (int)row, (int)column, (int)written);
    }
}

uint8_t random_e4m3(void) {
    uint8_t code;
    do
        code = (uint8_t)random_below(256);
    while ((code & 0x7f) == 0x7f);
    return code;
}

void fill_random(problem *p) {
    for (int64_t i = 0; i < p->rows * p->heads * p->dim; i++)
        p->q[i] = random_e4m3();
    for (int64_t i = 0; i < p->rows * p->heads; i++)
        p->weights[i] = (float)(random_below(2001) - 1000) / 512.0f;
    for (int64_t block = 0; block < p->num_blocks; block++)
        for (int64_t token = 0; token < p->block_size; token++) {
            for (int64_t d = 0; d < p->dim; d++)
                key_of(p, block, token)[d] = random_e4m3();
            set_scale(p, block, token, ldexpf(1.0f + (float)random_below(1000) / 1000.0f, random_below(17) - 8));
        }
    for (int64_t i = p->batch * p->table_width - 1; i >= 0; i--)
        p->tables[i] = random_below((int)p->num_blocks);
}

static double naive_logit(const problem *p, int64_t row, int64_t position, double *abs_sum) {
    const int64_t b = row / p->next_n;
    const int32_t id = p->tables[b * p->table_width + position / p->block_size];
    double sum = 0;
    float scale = 0;
    *abs_sum = 0;
    const bool inside = id >= 0 && id < p->num_blocks;
    const uint8_t *const block = inside ? p->kv + id * p->block_stride : NULL;
    const int64_t in_block = position % p->block_size;
    if (inside)
        memcpy(&scale, block + p->block_size * p->dim + in_block * 4, 4);
    for (int64_t h = 0; h < p->heads; h++) {
        double dot = 0, magnitude = 0;
        for (int64_t d = 0; d < p->dim; d++) {
            const double k = inside ? attns_e4m3_to_double(block[in_block * p->dim + d]) : 0;
            const double product = attns_e4m3_to_double(p->q[(row * p->heads + h) * p->dim + d]) * k;
            dot += product;
            magnitude += fabs(product);
        }
        sum += (double)p->weights[row * p->heads + h] * (dot > 0 || isnan(dot) ? dot : 0);
        *abs_sum += fabs((double)p->weights[row * p->heads + h]) * magnitude;
    }
    *abs_sum *= fabs((double)scale);
    return (double)scale * sum;
}

void check_against_naive(const problem *p, const int64_t *limits) {
    for (int64_t row = 0; row < p->rows; row++) {
        check_written(p, row, limits[row]);
        for (int64_t column = 0; column < limits[row]; column++) {
            double abs_sum;
            const double logit = naive_logit(p, row, column, &abs_sum);
            /* 128 heads summed in double: 2^-45 of the sum of magnitudes is far above the rounding */
            if (!(fabs(out_at(p, row, column) - logit) <= 0x1p-45 * abs_sum) ||
                !(fabs(p->abs_sum[row * p->out_width + column] - abs_sum) <= 0x1p-45 * abs_sum))
                fail_msg("row %d, column %d: %.17g is not %.17g", (int)row, (int)column, out_at(p, row, column), logit);
        }
    }
}

void make_small(problem *p, int64_t batch, int64_t next_n, bool two_dimensional) {
    *p = (problem){.batch = batch, .next_n = next_n, .heads = 8, .dim = 32, .block_size = 16};
    p->table_width = 2;
    p->num_blocks = 4;
    p->max_seq_len = 24;
    p->out_width = 30;
    p->two_dimensional_lens = two_dimensional;
    make_problem(p);
    fill_random(p);
}
