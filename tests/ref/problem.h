/* SPDX-License-Identifier: MIT
 *
 * One call of the reference for the tests: inputs of exactly the size that the call needs, so that a sanitizer sees an
 * access beyond them, poisoned outputs, and a second, naive implementation to compare with. Failures end the test. */
#ifndef ATTNS_TESTS_REF_PROBLEM_H_
#define ATTNS_TESTS_REF_PROBLEM_H_

#include <attn_scores/attn_scores.h>

#define POISON_BYTE 0xa5

typedef struct problem {
    /* Set by the test before make_problem. */
    int64_t batch, next_n, heads, dim, block_size, table_width, num_blocks, max_seq_len, out_width;
    int64_t block_stride; /* bytes; 0: packed */
    DLDataType out_dtype; /* zero: float64 */
    bool two_dimensional_lens;

    int64_t rows;
    uint8_t *q, *kv, *out;
    float *weights;
    int32_t *tables, *lens;
    double *abs_sum;
    int64_t q_shape[4], kv_shape[4], kv_stride[4], weights_shape[2], tables_shape[2], lens_shape[2], out_shape[2];
    DLTensor t_q, t_kv, t_weights, t_tables, t_lens, t_out, t_abs_sum;
    attns_fp8_paged_mqa_logits_params params;
} problem;

/* Random numbers from a seed that is printed: argv[1], else the time. */
void seed_random(int argc, char **argv);
extern uint64_t random_state;
int random_below(int bound);
uint8_t random_e4m3(void); /* never NaN */

void *allocate(int64_t count, size_t size); /* zeroed */

/* Allocates a problem with zeroed inputs and the block ids 0, 1, ... as far as there are blocks. */
void make_problem(problem *p);
void free_problem(problem *p);
void fill_random(problem *p); /* all but the lengths */

/* H 8, D 32, 4 blocks of 16, two per request, max_seq_len 24, out 30 wide, filled at random. */
void make_small(problem *p, int64_t batch, int64_t next_n, bool two_dimensional_lens);

void run(const problem *p); /* with abs_sum */
void run_with(const problem *p, const DLTensor *abs_sum);

uint8_t *key_of(const problem *p, int64_t block, int64_t token);
void set_scale(const problem *p, int64_t block, int64_t token, float scale);
double out_at(const problem *p, int64_t row, int64_t column); /* of a float64 out */

bool is_poison(const void *address, size_t size);
/* Columns [0, written) of the row hold something, the rest is untouched, in out and in abs_sum. */
void check_written(const problem *p, int64_t row, int64_t written);
/* Row r holds the naive results in columns [0, limits[r]) and nothing else; float64 out. */
void check_against_naive(const problem *p, const int64_t *limits);

#endif
