/* SPDX-License-Identifier: MIT
 *
 * The CPU reference of fp4_paged_mqa_logits: closed forms for every code, place and scale, a naive implementation, the
 * interleaved order of scales written out, NaN, and blocks that do not exist. Inputs have exactly the size that the
 * call needs, so that a sanitizer sees an access beyond them. */
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

#include <attn_scores/attn_scores.h>

static uint64_t random_state;

static int random_below(int bound) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)bound);
}

static const double e2m1[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

/* One call: 8 heads, one or more requests, all blocks in order. */
typedef struct problem {
    int64_t batch, next_n, dim, block_size, num_blocks, table_width, max_seq_len; /* set by the test */
    bool interleaved;

    uint8_t *q, *kv;
    int32_t *q_sf, *tables, *lens;
    float *weights;
    double *out, *abs_sum;
    int64_t q_shape[4], q_sf_shape[3], kv_shape[4], weights_shape[2], tables_shape[2], lens_shape[1], out_shape[2];
    DLTensor t_q, t_q_sf, t_kv, t_weights, t_tables, t_lens, t_out, t_abs_sum;
    attns_fp4_paged_mqa_logits_params params;
} problem;

#define HEADS 8

static void *allocate(int64_t count, size_t size) {
    void *memory = calloc((size_t)count, size);
    assert_non_null(memory);
    return memory;
}

static DLTensor host_tensor(void *data, uint8_t code, uint8_t bits, int ndim, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape, .strides = NULL};
}

static void make_problem(problem *p) {
    const int64_t rows = p->batch * p->next_n, token_bytes = p->dim / 2 + p->dim / 32;
    p->q = allocate(rows * HEADS * p->dim / 2, 1);
    p->q_sf = allocate(rows * HEADS, 4);
    p->kv = allocate(p->num_blocks * p->block_size * token_bytes, 1);
    p->weights = allocate(rows * HEADS, 4);
    p->tables = allocate(p->batch * p->table_width, 4);
    p->lens = allocate(p->batch, 4);
    p->out = allocate(rows * p->max_seq_len, 8);
    p->abs_sum = allocate(rows * p->max_seq_len, 8);
    for (int64_t i = 0; i < p->batch * p->table_width; i++)
        p->tables[i] = (int32_t)(i % p->num_blocks);
    for (int64_t i = 0; i < p->batch; i++)
        p->lens[i] = (int32_t)p->max_seq_len;
    memcpy(p->q_shape, (int64_t[]){p->batch, p->next_n, HEADS, p->dim / 2}, sizeof p->q_shape);
    memcpy(p->q_sf_shape, (int64_t[]){p->batch, p->next_n, HEADS}, sizeof p->q_sf_shape);
    memcpy(p->kv_shape, (int64_t[]){p->num_blocks, p->block_size, 1, token_bytes}, sizeof p->kv_shape);
    memcpy(p->weights_shape, (int64_t[]){rows, HEADS}, sizeof p->weights_shape);
    memcpy(p->tables_shape, (int64_t[]){p->batch, p->table_width}, sizeof p->tables_shape);
    p->lens_shape[0] = p->batch;
    memcpy(p->out_shape, (int64_t[]){rows, p->max_seq_len}, sizeof p->out_shape);
    p->t_q = host_tensor(p->q, kDLUInt, 8, 4, p->q_shape);
    p->t_q_sf = host_tensor(p->q_sf, kDLInt, 32, 3, p->q_sf_shape);
    p->t_kv = host_tensor(p->kv, kDLUInt, 8, 4, p->kv_shape);
    p->t_weights = host_tensor(p->weights, kDLFloat, 32, 2, p->weights_shape);
    p->t_tables = host_tensor(p->tables, kDLInt, 32, 2, p->tables_shape);
    p->t_lens = host_tensor(p->lens, kDLInt, 32, 1, p->lens_shape);
    p->t_out = host_tensor(p->out, kDLFloat, 64, 2, p->out_shape);
    p->t_abs_sum = host_tensor(p->abs_sum, kDLFloat, 64, 2, p->out_shape);
    p->params = (attns_fp4_paged_mqa_logits_params){.q = &p->t_q,
                                                    .q_sf = &p->t_q_sf,
                                                    .kv_fused = &p->t_kv,
                                                    .weights = &p->t_weights,
                                                    .block_tables = &p->t_tables,
                                                    .seq_lens = &p->t_lens,
                                                    .out = &p->t_out,
                                                    .is_kv_sf_interleaved = p->interleaved};
}

static void free_problem(problem *p) {
    free(p->q), free(p->q_sf), free(p->kv), free(p->weights);
    free(p->tables), free(p->lens), free(p->out), free(p->abs_sum);
}

static void run(const problem *p) {
    if (attns_reference_fp4_paged_mqa_logits(&p->params, &p->t_abs_sum) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
}

static void set_nibble(uint8_t *row, int64_t dim, unsigned code) {
    row[dim / 2] = (uint8_t)(dim % 2 ? (row[dim / 2] & 15u) | code << 4 : (row[dim / 2] & 0xf0u) | code);
}

static uint8_t *query(const problem *p, int64_t row, int64_t head) {
    return p->q + (row * HEADS + head) * p->dim / 2;
}

static uint8_t *key(const problem *p, int64_t block, int64_t token) {
    return p->kv + block * p->block_size * (p->dim / 2 + p->dim / 32) + token * p->dim / 2;
}

/* As the public header states it: slot k holds the scales of token (k % 4) * 32 + k / 4. */
static uint8_t *key_scale(const problem *p, int64_t block, int64_t token, int64_t group) {
    int64_t slot = token;
    for (int64_t k = 0; p->interleaved && k < 128; k++)
        if ((k % 4) * 32 + k / 4 == token)
            slot = k;
    return key(p, block, 0) + p->block_size * p->dim / 2 + slot * (p->dim / 32) + group;
}

static void set_query_scale(const problem *p, int64_t row, int64_t head, int64_t group, unsigned code) {
    uint32_t word;
    memcpy(&word, &p->q_sf[row * HEADS + head], 4);
    word = (word & ~(0xffu << 8 * group)) | (uint32_t)code << 8 * group;
    memcpy(&p->q_sf[row * HEADS + head], &word, 4);
}

/* Every code of a query against every code of a key, at every dim, with every scale of either. */
static void test_one_product(void **state) {
    (void)state;
    for (int64_t dim = 64; dim <= 128; dim += 64) {
        problem p = {.batch = 1, .next_n = 1, .dim = dim, .block_size = 16, .num_blocks = 1, .table_width = 1};
        p.max_seq_len = 1;
        make_problem(&p);
        p.weights[3] = 1;
        p.weights[5] = -3;
        for (int i = 0; i < 16 * 16 * (int)dim; i++) {
            const unsigned a = (unsigned)i % 16, b = (unsigned)i / 16 % 16;
            const int64_t d = i / 256, group = d / 32;
            const unsigned e_q = (unsigned)(7 * i) % 255, e_k = (unsigned)(11 * i + i / 255) % 255;
            set_nibble(query(&p, 0, 3), d, a);
            set_nibble(query(&p, 0, 5), d, a ^ 8u);
            set_nibble(key(&p, 0, 0), d, b);
            set_query_scale(&p, 0, 3, group, e_q);
            set_query_scale(&p, 0, 5, group, e_q);
            *key_scale(&p, 0, 0, group) = (uint8_t)e_k;
            run(&p);
            const double product = ldexp(e2m1[a] * e2m1[b], (int)e_q + (int)e_k - 254);
            if (p.out[0] != (product > 0 ? product : 3 * product) || p.abs_sum[0] != 4 * fabs(product))
                fail_msg("codes %u and %u, dim %d, scales %u and %u: %g", a, b, (int)d, e_q, e_k, p.out[0]);
            set_nibble(query(&p, 0, 3), d, 0);
            set_nibble(query(&p, 0, 5), d, 0);
            set_nibble(key(&p, 0, 0), d, 0);
        }
        free_problem(&p);
    }
}

static double naive_logit(const problem *p, int64_t row, int64_t position, double *abs_sum) {
    const int64_t b = row / p->next_n, token = position % p->block_size;
    const int32_t id = p->tables[b * p->table_width + position / p->block_size];
    double sum = 0;
    *abs_sum = 0;
    for (int64_t h = 0; h < HEADS; h++) {
        double dot = 0, magnitude = 0;
        for (int64_t d = 0; d < p->dim && id >= 0 && id < p->num_blocks; d++) {
            const uint32_t word = (uint32_t)p->q_sf[row * HEADS + h];
            const double q =
                ldexp(e2m1[query(p, row, h)[d / 2] >> 4 * (d % 2) & 15], (int)(word >> d / 32 * 8 & 255) - 127);
            const double k =
                ldexp(e2m1[key(p, id, token)[d / 2] >> 4 * (d % 2) & 15], *key_scale(p, id, token, d / 32) - 127);
            dot += q * k;
            magnitude += fabs(q * k);
        }
        sum += (double)p->weights[row * HEADS + h] * (dot > 0 ? dot : 0);
        *abs_sum += fabs((double)p->weights[row * HEADS + h]) * magnitude;
    }
    return sum;
}

static void test_random(void **state) {
    (void)state;
    static const int64_t block_sizes[] = {16, 32, 64, 128, 256};
    for (int round = 0; round < 80; round++) {
        problem p = {.batch = 1 + random_below(3), .next_n = 1 + random_below(8), .dim = 64 << random_below(2)};
        p.block_size = block_sizes[random_below(5)];
        p.interleaved = p.block_size == 128 && random_below(2);
        p.num_blocks = 1 + random_below(4);
        p.table_width = 1 + random_below(3);
        p.max_seq_len = 1 + random_below(150);
        make_problem(&p);
        const int spread = random_below(2) ? 5 : 200;
        const int64_t rows = p.batch * p.next_n, token_bytes = p.dim / 2 + p.dim / 32;
        for (int64_t i = 0; i < rows * HEADS * p.dim / 2; i++)
            p.q[i] = (uint8_t)random_below(256);
        for (int64_t i = 0; i < rows * HEADS; i++) {
            p.weights[i] = (float)(random_below(2001) - 1000) / 512.0f;
            p.q_sf[i] = -1; /* NaN in the bytes that D = 64 leaves over */
            for (int64_t g = 0; g < p.dim / 32; g++)
                set_query_scale(&p, i / HEADS, i % HEADS, g, (unsigned)(127 - spread / 2 + random_below(spread)));
        }
        for (int64_t i = 0; i < p.num_blocks * p.block_size * token_bytes; i++)
            p.kv[i] = (uint8_t)random_below(256);
        for (int64_t i = 0; i < p.num_blocks * p.block_size; i++)
            for (int64_t g = 0; g < p.dim / 32; g++)
                *key_scale(&p, i / p.block_size, i % p.block_size, g) =
                    (uint8_t)(127 - spread / 2 + random_below(spread));
        for (int64_t i = 0; i < p.batch * p.table_width; i++)
            p.tables[i] = random_below((int)p.num_blocks + 2) - 1; /* some do not exist: they read as zeros */
        for (int64_t b = 0; b < p.batch; b++)
            p.lens[b] = random_below(400) - 20;
        run(&p);
        const int64_t most =
            p.max_seq_len < p.table_width * p.block_size ? p.max_seq_len : p.table_width * p.block_size;
        for (int64_t row = 0; row < rows; row++) {
            const int64_t len = p.lens[row / p.next_n];
            const int64_t limit = (len < most ? len : most) - p.next_n + 1 + row % p.next_n;
            for (int64_t column = 0; column < p.max_seq_len; column++) {
                double abs_sum = 0, logit = 0;
                if (column < limit)
                    logit = naive_logit(&p, row, column, &abs_sum);
                /* 128 products and 8 heads summed in double: 2^-45 of the sum of magnitudes is above the rounding */
                if (!(fabs(p.out[row * p.max_seq_len + column] - logit) <= 0x1p-45 * abs_sum) ||
                    !(fabs(p.abs_sum[row * p.max_seq_len + column] - abs_sum) <= 0x1p-45 * abs_sum))
                    fail_msg("row %d, column %d of %d: %.17g is not %.17g", (int)row, (int)column, (int)limit,
                             p.out[row * p.max_seq_len + column], logit);
            }
        }
        free_problem(&p);
    }
}

/* The order written out for a few slots, not computed. */
static void test_interleaved_order(void **state) {
    (void)state;
    static const struct {
        int slot, token;
    } places[] = {{0, 0}, {1, 32}, {2, 64}, {3, 96}, {4, 1}, {5, 33}, {8, 2}, {127, 127}, {126, 95}, {124, 31}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        problem p = {.batch = 1, .next_n = 1, .dim = 128, .block_size = 128, .num_blocks = 1, .table_width = 1};
        p.max_seq_len = 128;
        p.interleaved = true;
        make_problem(&p);
        p.weights[0] = 1;
        set_nibble(query(&p, 0, 0), 70, 2); /* 1 */
        set_query_scale(&p, 0, 0, 2, 127);
        for (int token = 0; token < 128; token++)
            set_nibble(key(&p, 0, token), 70, 2);
        p.kv[128 * 64 + places[i].slot * 4 + 2] = 130; /* 8, where all others are 2^-127 */
        run(&p);
        for (int token = 0; token < 128; token++)
            assert_true(p.out[token] == (token == places[i].token ? 8 : 0x1p-127));
        free_problem(&p);
    }
}

/* A scale of NaN makes NaN of its token, or its row, also where the numbers are zeros. */
static void test_nan_scales(void **state) {
    (void)state;
    problem p = {.batch = 1, .next_n = 2, .dim = 64, .block_size = 16, .num_blocks = 1, .table_width = 1};
    p.max_seq_len = 10;
    make_problem(&p);
    *key_scale(&p, 0, 4, 1) = 255;
    run(&p);
    for (int column = 0; column < 9; column++)
        assert_int_equal(isnan(p.out[column]) != 0, column == 4);
    *key_scale(&p, 0, 4, 1) = 0;
    set_query_scale(&p, 1, 7, 0, 255);
    run(&p);
    for (int column = 0; column < 9; column++)
        assert_true(p.out[column] == 0 && isnan(p.out[10 + column]));
    set_query_scale(&p, 1, 7, 0, 0);
    set_query_scale(&p, 1, 7, 2, 255); /* a byte that D = 64 has no numbers for */
    run(&p);
    for (int column = 0; column < 10; column++)
        assert_true(p.out[10 + column] == 0);
    free_problem(&p);
}

static void test_wrong_input(void **state) {
    (void)state;
    assert_int_equal(attns_reference_fp4_paged_mqa_logits(NULL, NULL), ATTNS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attns_last_error(), "params: is NULL, accepted: a params struct");
    problem p = {.batch = 1, .next_n = 1, .dim = 64, .block_size = 16, .num_blocks = 1, .table_width = 1};
    p.max_seq_len = 4;
    make_problem(&p);
    p.params.is_kv_sf_interleaved = true;
    assert_int_equal(attns_reference_fp4_paged_mqa_logits(&p.params, NULL), ATTNS_ERROR_UNSUPPORTED);
    p.params.is_kv_sf_interleaved = false;
    p.t_abs_sum.dtype.bits = 32;
    assert_int_equal(attns_reference_fp4_paged_mqa_logits(&p.params, &p.t_abs_sum), ATTNS_ERROR_INVALID_ARGUMENT);
    free_problem(&p);
}

int main(int argc, char **argv) {
    random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)random_state);
    fflush(stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_product),       cmocka_unit_test(test_random),
        cmocka_unit_test(test_interleaved_order), cmocka_unit_test(test_nan_scales),
        cmocka_unit_test(test_wrong_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
