/* SPDX-License-Identifier: MIT
 *
 * A PTX module after parsing (PTX ISA, "Syntax"). Owned by the module; immutable once it is bound. */
#ifndef PTXSIM_PTX_H_
#define PTXSIM_PTX_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_warp;
struct ptx_instr;

typedef enum ptx_space {
    PTX_GENERIC, /* no state space given */
    PTX_GLOBAL,
    PTX_CONST,
    PTX_SHARED,
    PTX_LOCAL,
    PTX_PARAM
} ptx_space;

typedef enum ptx_operand_kind {
    PTX_OPERAND_REGISTER, /* slot */
    PTX_OPERAND_SPECIAL,  /* name: "%tid.x" */
    PTX_OPERAND_INTEGER,  /* bits: two's complement; also 0f... and 0d... literals, whose bits they are */
    PTX_OPERAND_REAL,     /* real: a decimal floating point literal, converted by the instruction's type */
    PTX_OPERAND_SYMBOL,   /* variable and offset: an address as a value */
    PTX_OPERAND_ADDRESS,  /* [base + offset], base a register (slot >= 0) or a variable; tensor copies: [base, {...}] */
    PTX_OPERAND_VECTOR,   /* {a, b, ...}: elements */
    PTX_OPERAND_LABEL,    /* target: index of the instruction it stands before */
    PTX_OPERAND_FUNCTION, /* name, of what is called */
    PTX_OPERAND_SINK      /* _ */
} ptx_operand_kind;

typedef struct ptx_variable {
    char *name;
    ptx_space space;
    size_t align, size; /* size 0: extern, as large as the launch's dynamic shared memory */
    size_t offset;      /* in its space: static shared memory, param space, or the module's global or const image */
    uint8_t *init;      /* size bytes, or NULL for zeros */
    struct ptx_variable *original, *copy; /* of inline.c: of an inlined function's variable */
    int copy_for;
} ptx_variable;

typedef struct ptx_operand {
    ptx_operand_kind kind;
    bool negated; /* !p, or -x */
    int slot;     /* register, or base register of an address; -1 if none */
    int width;    /* of a register's declared type, in bits, 1 for .pred; 0: unknown */
    int pair;     /* second result register of "d|p"; -1 if none */
    uint64_t bits;
    double real;
    char *name; /* special register, function */
    const ptx_variable *variable;
    int64_t offset;
    int target;
    struct ptx_operand *elements; /* vector elements, or tensor coordinates of an address */
    int num_elements;
} ptx_operand;

#define PTX_MAX_OPERANDS 12
#define PTX_MAX_MODIFIERS 16

/* Executes one instruction for the lanes of `mask`, all of which stand at it and pass its guard. */
typedef enum sim_result {
    SIM_DONE,  /* the lanes go on (to warp->next_pc, preset to the following instruction) */
    SIM_RETRY, /* not ready: the lanes stay, others run meanwhile */
    SIM_FAULT  /* sim_fault has been called: the launch ends */
} sim_result;
typedef sim_result (*sim_exec)(struct sim_warp *warp, const struct ptx_instr *instr, uint32_t mask);

/* Which lanes of the warp must stand at an instruction before it runs. */
typedef enum ptx_gather {
    PTX_GATHER_NONE,
    PTX_GATHER_MASK,   /* those of the member mask, operands[gather_operand] */
    PTX_GATHER_ALIGNED /* all that have not exited */
} ptx_gather;

typedef struct ptx_instr {
    char *opcode;                       /* "setp", "cp", "wgmma" */
    char *modifiers[PTX_MAX_MODIFIERS]; /* without dots: "lt", "s32"; "shared::cta" */
    int num_modifiers;
    int guard; /* slot of the predicate, -1 if none */
    bool guard_negated;
    ptx_operand operands[PTX_MAX_OPERANDS];
    int num_operands;
    int line;         /* in the PTX text */
    int source_file;  /* .loc: index into the module's files, 0 if unknown */
    int source_line;
    char *text; /* as written, for messages */

    /* Filled by binding. */
    sim_exec exec;
    ptx_gather gather;
    int gather_operand;
    uint64_t data[4]; /* whatever exec wants to know; decoded once */
} ptx_instr;

typedef struct ptx_function {
    char *name;
    bool is_entry;
    ptx_variable *params; /* of a function that is called: the results come first */
    int num_params, num_returns;
    size_t param_bytes;
    int num_slots; /* registers; every one is a 64-bit slot for each lane */
    ptx_instr *instrs;
    int num_instrs;
    size_t static_shared_bytes; /* variables of this function and of the module */
    size_t local_bytes;
    ptx_variable **variables; /* shared and local ones declared inside */
    int num_variables;
    int max_threads; /* .maxntid, 0 if absent */
    int min_ctas;    /* .minnctapersm, 0 if absent */
    int registers;   /* of a thread, .maxnreg, 0 if absent */
} ptx_function;

typedef struct ptx_module {
    int version; /* 83 for 8.3 */
    char target[32];
    ptx_function *functions;
    int num_functions;
    ptx_variable **variables; /* global, const and shared ones at module scope */
    int num_variables;
    char **files; /* .file names by index; may be NULL */
    int num_files;
} ptx_module;

/* Parses and binds. NULL on failure, with "line N: what: text" in `error`. Never crashes or over-reads on any input of
 * `size` bytes (no terminator needed). */
ptx_module *ptx_module_parse(const char *text, size_t size, char *error, size_t error_size);
void ptx_module_free(ptx_module *module);
const ptx_function *ptx_module_find(const ptx_module *module, const char *name);

/* For binding and messages. */
bool ptx_has(const ptx_instr *instr, const char *modifier);

/* An instruction: how its opcode binds. bind checks modifiers and operands, chooses exec and fills gather and data; false
 * with a message if it does not know them. Tables end with a NULL opcode. Each family of instructions has one.
 *
 * Families share opcodes (add is there for integers, f32, f16x2). An opcode is therefore looked up in every table, in the
 * order below, and the first bind that returns true wins. A bind that meets another family's type returns false and leaves
 * `error`, which the caller has set to "", empty: "not mine". One that meets its own type with something it does not
 * support writes a message. If no bind accepts, the first message written is the one reported; if there is none, the
 * instruction is unknown. */
typedef struct sim_op {
    const char *opcode;
    bool (*bind)(ptx_instr *instr, char *error, size_t error_size);
} sim_op;
extern const sim_op sim_ops_integer[];
extern const sim_op sim_ops_float[];
extern const sim_op sim_ops_half[];
extern const sim_op sim_ops_convert[];
extern const sim_op sim_ops_move[];
extern const sim_op sim_ops_memory[];
extern const sim_op sim_ops_control[];
extern const sim_op sim_ops_call[];
extern const sim_op sim_ops_warp[];
extern const sim_op sim_ops_barrier[];
extern const sim_op sim_ops_cluster[];
extern const sim_op sim_ops_async[];
extern const sim_op sim_ops_store_async[];
extern const sim_op sim_ops_mma[];
extern const sim_op sim_ops_wgmma[];
extern const sim_op sim_ops_tcgen05[];

#endif
