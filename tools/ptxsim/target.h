/* SPDX-License-Identifier: MIT
 *
 * Targets of PTX (PTX ISA, ".target"): what runs where, and which instructions a target has. */
#ifndef PTXSIM_TARGET_H_
#define PTXSIM_TARGET_H_

#include "ptx.h"

/* The newest PTX that is understood: what the compiler of CUDA 13.5 writes. */
#define TARGET_PTX_VERSION 95

typedef struct ptx_target {
    int number;  /* 90 for sm_90 */
    char suffix; /* 'a': that chip alone, 'f': its family, 0: that chip and newer ones */
} ptx_target;

/* "sm_90a"; false if the name is none. sm_101 is the older name of sm_110. */
bool target_parse(const char *name, ptx_target *target);

/* Whether PTX for `target` runs on the chip sm_`chip`. */
bool target_runs(const ptx_target *target, int chip);

/* Whether the module's target has the instruction, which has been bound. false with what it needs in `error`. */
bool target_has(const ptx_target *target, const ptx_instr *instr, char *error, size_t error_size);

#endif
