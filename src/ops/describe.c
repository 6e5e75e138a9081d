/* SPDX-License-Identifier: MIT */
#include <attn_scores/attn_scores.h>

size_t attns_describe_tensors(const attns_describe_params *params, void *const *objects) {
    size_t i = 0;
    while (i < params->count && params->describe(objects[i], &params->tensors[i]) == 0)
        i++;
    return i;
}
