/* SPDX-License-Identifier: MIT
 *
 * Names in nested scopes: registers, ranges of registers, variables, labels and functions. Inner ones hide outer ones.
 */
#ifndef PTXSIM_SYMBOLS_H_
#define PTXSIM_SYMBOLS_H_

#include "ptx.h"
#include "storage.h"

typedef enum symbol_kind {
    SYMBOL_REGISTER, /* slot */
    SYMBOL_RANGE,    /* slots slot .. slot + count - 1, named name0, name1, ... */
    SYMBOL_VARIABLE,
    SYMBOL_LABEL, /* target */
    SYMBOL_TARGETS, /* names of labels: tokens, count */
    SYMBOL_FUNCTION
} symbol_kind;

typedef struct ptx_symbol {
    symbol_kind kind;
    const char *name; /* not terminated; lives as long as the table */
    size_t length;
    int depth; /* of its scope; 0: module */
    int slot, count;
    int width; /* of a register in bits, 1 for predicates */
    int target;
    bool defined; /* a function with a body */
    ptx_variable *variable;
    const struct ptx_token *tokens;
    /* Dynamic shared memory starts at another offset in each function: the view of the function numbered view_of. */
    ptx_variable *view;
    int view_of;
    struct ptx_symbol *next;  /* in its bucket, inner before outer */
    struct ptx_symbol *below; /* declared before it */
} ptx_symbol;

/* Zeros but for `memory`, which gives all of it and outlives it. */
typedef struct symbol_table {
    ptx_storage *memory;
    ptx_symbol **buckets;
    size_t num_buckets, count;
    ptx_symbol *top;
    int depth;
} symbol_table;

void symbols_enter(symbol_table *table);
void symbols_leave(symbol_table *table);
/* A new name in the current scope, whose other members the caller sets. NULL when out of memory. */
ptx_symbol *symbols_add(symbol_table *table, symbol_kind kind, const char *name, size_t length);
/* The innermost symbol of exactly this name that is no range. */
ptx_symbol *symbols_find(const symbol_table *table, const char *name, size_t length);
/* Whether the current scope has this name; ranges are apart from everything else ("%r" and "%r<4>" can both be). */
bool symbols_taken(const symbol_table *table, symbol_kind kind, const char *name, size_t length);
/* What an operand of this name means; for a member of a range `*slot` is its slot, else that of the symbol. */
ptx_symbol *symbols_resolve(const symbol_table *table, const char *name, size_t length, int *slot);

#endif
