/* SPDX-License-Identifier: MIT
 *
 * Probes of single instructions: every thread reads its operands, executes the instruction and stores the result. */
#ifndef PTXSIM_PROBES_SCALAR_H_
#define PTXSIM_PROBES_SCALAR_H_

#include "probe.h"

/* `signature` is RESULT=OPERANDS, a letter each:
 *   s, i, l   integers of 16, 32, 64 bits        c         a small number: mostly below 40
 *   h, f, d   f16, f32, f64                      b         bf16
 *   x, y      pairs f16x2, bf16x2                p         a predicate
 * `text` is an opcode, to which the operands are added, and what follows a '|' behind them; or it is text that holds
 * instructions, with %d for the result, %a, %b, %c, %e for operands, and registers %x, %y (32 bits), %q (predicate).
 * {x,y} stands for one probe with each of x, y. A name has the
 * same alternatives in the same order; NULL: as text.
 *
 * An only operand of 16 bits or a pair goes through all 2^16 values; else operands are a mix of special values, numbers
 * near each other and random bits. */
typedef struct scalar_probe {
    const char *signature, *text, *name;
} scalar_probe;

/* The table ends with a signature of NULL. */
void scalar_probes(probe_list *list, const char *family, const scalar_probe *table);

#endif
