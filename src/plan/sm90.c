/* SPDX-License-Identifier: MIT */
#include "plan/sm90.h"

/* A wgmma costs its columns and about half a slot of overhead. */
int attns_slots_per_wgmma(int num_heads, int slots, int max_columns) {
    int best = 1;
    int best_cost = 3 * slots;
    for (int chunk = 2; chunk <= slots && chunk * num_heads <= max_columns; chunk++) {
        const int chunks = attns_divide_up(slots, chunk);
        const int cost = 2 * chunks * chunk + chunks;
        if (cost <= best_cost) {
            best = chunk;
            best_cost = cost;
        }
    }
    return best;
}
