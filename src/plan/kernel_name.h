/* SPDX-License-Identifier: MIT
 *
 * Names of kernels: the one text by which messages, records, cache entries and `attn-scores precompile --kernel` speak
 * of a kernel, and the way back from it.
 *
 *   name      = operation { " " field } [ " portable" ]  fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f32 epi=f32
 *   reference = name [ " for " target [ " (PTX)" ] ]     ... for sm_90a
 *
 * Every operation has its fields, in a fixed order, each once; kernel_name.c has the table. "portable" tells the
 * kernels of the family that runs everywhere from those made for the target. */
#ifndef ATTNS_PLAN_KERNEL_NAME_H_
#define ATTNS_PLAN_KERNEL_NAME_H_

#include "plan/plan.h"

/* Cuts a name that does not fit. */
void attns_kernel_name_print(const attns_problem *problem, bool portable, char *text, size_t size);

typedef struct attns_kernel_reference {
    attns_problem problem; /* of any values: attns_plan_make says whether there is such a kernel */
    bool portable;
    char arch[16]; /* "" if the text names no target */
    bool ptx;
} attns_kernel_reference;

typedef enum attns_kernel_found {
    ATTNS_KERNEL_FOUND,
    ATTNS_KERNEL_NOT_FOUND, /* the text speaks of no kernel */
    ATTNS_KERNEL_MALFORMED  /* it begins like a name and then is none; *end is where it stops being one */
} attns_kernel_found;

/* Reads a reference at the start of `text`. *end is what follows it. */
attns_kernel_found attns_kernel_reference_parse(const char *text, attns_kernel_reference *reference, const char **end);

/* Finds the next reference in a line of any text, such as a log. *start is where it begins, *end what follows it; also
 * for ATTNS_KERNEL_MALFORMED. A word that merely looks like an operation ("attns_fp8_paged_mqa_logits: q: ...") is
 * passed over. */
attns_kernel_found attns_kernel_reference_find(const char *text, attns_kernel_reference *reference, const char **start,
                                               const char **end);

#endif
