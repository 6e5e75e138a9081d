/* SPDX-License-Identifier: MIT
 *
 * Between race_global.c and race_atomic.c: what belongs to a launch. */
#ifndef PTXSIM_RACE_GLOBAL_H_
#define PTXSIM_RACE_GLOBAL_H_

#include "race_state.h"

enum { RACE_LOCATION_BUCKETS = 1024 };

/* A location of global memory that strong accesses have written: what they have released. */
typedef struct race_location {
    struct race_location *next;
    uint64_t address;
    const race_foreign *released;
} race_location;

void race_launch_lock(struct race_launch *launch);
void race_launch_unlock(struct race_launch *launch);
/* The list that the address belongs to. Under the lock. */
struct race_location **race_launch_locations(struct race_launch *launch, uint64_t address);

#endif
