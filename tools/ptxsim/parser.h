/* SPDX-License-Identifier: MIT
 *
 * What the parts of the parser share. A parser goes through the text once; parser_fail leaves it for good through
 * `failed`, so that no function has to report failure, and all memory belongs to the module or to `scratch`. */
#ifndef PTXSIM_PARSER_H_
#define PTXSIM_PARSER_H_

#include <setjmp.h>

#include "lexer.h"
#include "ptx.h"
#include "storage.h"
#include "symbols.h"

/* Bounds that keep memory and time in proportion to the text; far beyond what compilers emit. */
#define PARSER_MAX_TEXT     ((size_t)64 << 20)
#define PARSER_MAX_DEPTH    64          /* nested { }, and nested calls */
#define PARSER_MAX_INSTRS   (1 << 18)   /* in a module */
#define PARSER_MAX_SLOTS    (1 << 18)   /* registers of a function */
#define PARSER_MAX_TARGETS  4096        /* of .branchtargets */
#define PARSER_MAX_ELEMENTS 256         /* of a vector operand */
#define PARSER_MAX_FILES    4096        /* .file indexes */
#define PARSER_MAX_DIMS     8           /* of an array */
#define PARSER_MAX_INIT     (64u << 20) /* bytes of all initialised variables */
#define PARSER_MAX_GLOBAL   (1u << 30)  /* bytes of the module's image, and of any one variable */
#define PARSER_MAX_ALIGN    4096
/* The architecture's own. */
#define PARSER_MAX_PARAMS    32764
#define PARSER_MAX_SHARED    (48u << 10) /* static */
#define PARSER_MAX_LOCAL     (512u << 10)
#define PARSER_MAX_CONST     (64u << 10)
#define PARSER_MAX_CTA_LANES 1024

/* What ptx_module_parse allocates: the module comes first, so that a pointer to it is one to this. */
typedef struct parsed_module {
    ptx_module module;
    ptx_storage storage;
} parsed_module;

/* A growing array, in scratch memory until it is copied into the module. Zeros: empty. */
typedef struct parser_list {
    void *data;
    size_t count, capacity;
} parser_list;

/* A branch whose label has not been seen in any scope that has ended. */
typedef struct parser_reference {
    size_t instr;
    int operand, element; /* element -1: the operand itself */
    const char *name;
    size_t length;
    const char *statement;
    int line;
} parser_reference;

/* Where a function begins, for messages about all of it. */
typedef struct parser_origin {
    const char *statement;
    int line;
} parser_origin;

typedef struct parser {
    ptx_lexer lexer;
    ptx_token token;       /* the next one, not yet consumed */
    const char *statement; /* start of the statement at hand, for messages */
    parsed_module *parsed;
    ptx_module *module;
    ptx_storage scratch;
    symbol_table symbols;

    parser_list functions;        /* ptx_function */
    parser_list origins;          /* parser_origin, of the functions */
    parser_list module_variables; /* ptx_variable * */
    parser_list files;            /* char * */
    size_t num_instrs;            /* of the functions before */
    size_t init_bytes;

    /* Of the function at hand. */
    ptx_function *function;                        /* NULL at module scope */
    int function_number;                           /* from 1 */
    parser_list instrs;                            /* ptx_instr */
    parser_list variables;                         /* ptx_variable * */
    parser_list references;                        /* parser_reference */
    parser_list params;                            /* ptx_variable */
    parser_list param_names;                       /* ptx_token */
    size_t scope_references[PARSER_MAX_DEPTH + 1]; /* how many there were when the scope began */
    int depth;
    size_t last_label; /* the instruction the last label stands before, SIZE_MAX if none */
    int source_file, source_line;

    char *error;
    size_t error_size;
    jmp_buf failed;
} parser;

/* ---- Tokens and memory (parser.c) ---- */

_Noreturn void parser_fail(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "WANTED, not what is there" */
_Noreturn void parser_fail_token(parser *p, const char *wanted);
void parser_advance(parser *p);
bool parser_at(const parser *p, char punctuation);
bool parser_accept(parser *p, char punctuation);
void parser_expect(parser *p, char punctuation);
bool parser_accept_directive(parser *p, const char *directive);
/* The token at hand if it is of this kind, consumed. */
ptx_token parser_expect_kind(parser *p, token_kind kind, const char *wanted);
uint64_t parser_expect_integer(parser *p, uint64_t max, const char *wanted);
/* A plain name: a word without dots and colons. */
ptx_token parser_expect_name(parser *p, const char *wanted);

void *parser_alloc(parser *p, size_t count, size_t size); /* lives with the module */
char *parser_copy(parser *p, const char *start, size_t length);
void *parser_push(parser *p, parser_list *list, size_t size); /* a zeroed element; others may move */
void *parser_take(parser *p, parser_list *list, size_t size); /* a copy that lives with the module; empties the list */
/* A new symbol, or failure if its scope has one of that name. */
ptx_symbol *parser_declare(parser *p, symbol_kind kind, const ptx_token *name);
/* One line of text without comments, runs of blanks as one; bytes that do not print as '?'. Cut to fit. */
void parser_one_line(const char *start, const char *end, char *out, size_t out_size);

/* The whole text, into p->module; layout included, binding not. */
void parser_module(parser *p);

/* ---- Declarations (parser_variable.c) ---- */

void parser_registers(parser *p);                                  /* after .reg */
void parser_variables(parser *p, ptx_space space, bool is_extern); /* after .shared and the like */
void parser_params(parser *p);                                     /* ( ... ) onto p->params and param_names */
bool parser_space(const ptx_token *token, ptx_space *space);
/* Offsets of all variables, once all are known. */
void parser_layout(parser *p);

/* ---- Calls (inline.c) ---- */

/* Puts the bodies of functions in the place of their calls, before the layout. */
void parser_inline(parser *p);

/* ---- Instructions (parser_instr.c) ---- */

void parser_instruction(parser *p);
/* The labels after .branchtargets, whose name is `name`. */
void parser_branch_targets(parser *p, const ptx_token *name);
/* An unguarded instruction after which nothing runs. */
bool parser_ends_flow(const ptx_instr *instr);

#endif
