/* SPDX-License-Identifier: MIT */
#include <attn_scores/attn_scores.h>

#define ATTNS_SEQ_LEN_PADDING 256

int64_t attns_min_block_table_width(int64_t seq_len, int64_t block_size) {
    if (seq_len <= 0 || block_size <= 0)
        return 0;
    return seq_len / block_size + (seq_len % block_size != 0);
}

int64_t attns_padded_seq_len(int64_t max_seq_len) {
    if (max_seq_len <= 0)
        return 0;
    /* Nothing near INT64_MAX can be rounded up, nor allocated: the largest multiple stands for all of it. */
    if (max_seq_len > INT64_MAX - (ATTNS_SEQ_LEN_PADDING - 1))
        return INT64_MAX - INT64_MAX % ATTNS_SEQ_LEN_PADDING;
    return (max_seq_len + ATTNS_SEQ_LEN_PADDING - 1) / ATTNS_SEQ_LEN_PADDING * ATTNS_SEQ_LEN_PADDING;
}
