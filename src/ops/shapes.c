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
    const int64_t groups = (max_seq_len - 1) / ATTNS_SEQ_LEN_PADDING + 1;
    /* The last 255 lengths have no multiple above them. No memory holds that much: what counts is not to return less
     * than was asked for. */
    if (groups > INT64_MAX / ATTNS_SEQ_LEN_PADDING)
        return INT64_MAX;
    return groups * ATTNS_SEQ_LEN_PADDING;
}
