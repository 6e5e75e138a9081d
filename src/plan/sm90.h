/* SPDX-License-Identifier: MIT
 *
 * What the planners of Hopper's kernels share. */
#ifndef ATTNS_PLAN_SM90_H_
#define ATTNS_PLAN_SM90_H_

/* The slots of one wgmma for a warpgroup that has `slots` of them: few, wide wgmmas of at most max_columns heads, but
 * not many slots computed in vain to fill up the last one. */
int attns_slots_per_wgmma(int num_heads, int slots, int max_columns);

static inline int attns_divide_up(int a, int b) {
    return (a + b - 1) / b;
}

static inline int attns_round_up(int a, int b) {
    return attns_divide_up(a, b) * b;
}

#endif
