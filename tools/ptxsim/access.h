/* SPDX-License-Identifier: MIT
 *
 * The modifiers that loads, stores and atomics have in common. */
#ifndef PTXSIM_ACCESS_H_
#define PTXSIM_ACCESS_H_

#include "race.h"
#include "sim.h"

/* Instructions, as bits. */
enum { ACCESS_LD = 1, ACCESS_ST = 2, ACCESS_ATOM = 4, ACCESS_RED = 8, ACCESS_ANY = 15 };

typedef enum access_kind {
    ACCESS_UNTYPED,
    ACCESS_UNSIGNED,
    ACCESS_SIGNED,
    ACCESS_FLOAT,
    ACCESS_HALF,
    ACCESS_BF16
} access_kind;

typedef enum access_op {
    ACCESS_NO_OP,
    ACCESS_AND,
    ACCESS_OR,
    ACCESS_XOR,
    ACCESS_ADD,
    ACCESS_INC,
    ACCESS_DEC,
    ACCESS_MIN,
    ACCESS_MAX,
    ACCESS_EXCH,
    ACCESS_CAS
} access_op;

typedef struct access_form {
    ptx_space space;
    access_kind kind;
    int bytes;      /* of one element */
    int packed;     /* values in an element: 2 for f16x2 */
    int vector;     /* elements: 1, 2, 4, 8 */
    bool hint;      /* the last operand is a cache policy */
    unsigned order; /* RACE_STRONG and what else race.h has; 0: weak */
    access_op op;
} access_form;

/* What an atomic operation does to an element. */
typedef struct access_step {
    access_op op;
    access_kind kind;
    size_t bytes;
    int packed;  /* values in it */
    bool global; /* the element lies in global memory, where sums of f32 flush subnormals */
} access_step;

/* Whether there is such an operation. */
bool access_has_op(access_kind kind, int bytes, access_op op);
/* Does it to the element at `at`, also against other host threads: its value before. `swap`: of cas. */
uint64_t access_apply(const access_step *step, uint8_t *at, uint64_t x, uint64_t swap);

/* false with a message for a modifier that the instruction does not have, or has twice. */
bool access_parse(const ptx_instr *instr, unsigned which, access_form *form, char *error, size_t error_size);
/* Faults if a cache policy was not made by createpolicy (or copied from there). */
bool access_check_policy(sim_warp *warp, const ptx_instr *instr, int lane, const ptx_operand *policy);

bool bind_atomic(ptx_instr *instr, char *error, size_t error_size); /* atom and red */
bool bind_matrix(ptx_instr *instr, char *error, size_t error_size); /* ldmatrix and stmatrix */
bool bind_movmatrix(ptx_instr *instr, char *error, size_t error_size);

#endif
