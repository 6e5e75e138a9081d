/* SPDX-License-Identifier: MIT
 *
 * Faults to plant into the kernels of a family, and the calls that must show them. */
#ifndef ATTNS_TESTS_KERNELS_KNOWN_BAD_H_
#define ATTNS_TESTS_KERNELS_KNOWN_BAD_H_

#include "common/case.h"

/* Every occurrence of `find` in `file` becomes `put`; a mutation whose text is not found fails the test, so that the
 * table keeps up with the templates. */
struct mutation {
    const char *fault;
    struct {
        const char *file, *find, *put;
    } edits[2];
    attns_variant variant; /* shows with this one only; 0: with either */
    /* Without `hazard`, the kernel can neither hang nor leave the buffers of the call. */
    bool dependent_launch; /* shows under programmatic dependent launch only */
    bool hazard; /* lost synchronisation: a GPU may get away with it, or hang. On the software GPU only, which must
                    reject it (its race detector, its barriers, or a wrong result) */
};

struct known_bad {
    const struct mutation *mutations;
    size_t num_mutations;
    const struct known_bad *common;   /* faults of what these kernels share with others, for the same trials; or NULL */
    const struct logits_case *trials; /* what a faulty kernel has to get past: few kernels, many layouts. A variant
                                         other than 0: left out for the other one. Always with the same inputs */
    size_t num_trials;
};

extern const struct known_bad known_bad_sm90, known_bad_fp4_sm90, known_bad_hopper, known_bad_sm100, known_bad_portable;

#endif
