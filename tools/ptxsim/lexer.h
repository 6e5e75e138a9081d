/* SPDX-License-Identifier: MIT
 *
 * Tokens of PTX text (PTX ISA, "Syntax"). Tokens point into the text, which needs no terminator. */
#ifndef PTXSIM_LEXER_H_
#define PTXSIM_LEXER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_WORD,        /* a name or an opcode with its modifiers: "%tid.x", "ld.global.L2::128B" */
    TOKEN_DIRECTIVE,   /* with its dot: ".reg" */
    TOKEN_INTEGER,     /* bits */
    TOKEN_FLOAT_BITS,  /* 0f... or 0d...: bits and width */
    TOKEN_REAL,        /* real: 1.0, 1e-3 */
    TOKEN_STRING,      /* without its quotes */
    TOKEN_PUNCTUATION, /* one character: punctuation */
    TOKEN_ERROR        /* error says what is wrong at start */
} token_kind;

typedef struct ptx_token {
    token_kind kind;
    const char *start;
    size_t length;
    int line;
    char punctuation; /* '\0' for every other kind */
    int width;        /* 32 or 64 */
    uint64_t bits;
    double real;
    const char *error;
} ptx_token;

typedef struct ptx_lexer {
    const char *at, *end;
    int line;
} ptx_lexer;

void lexer_init(ptx_lexer *lexer, const char *text, size_t size);
/* Comments and blanks are skipped. After the end: TOKEN_END, again and again. */
ptx_token lexer_next(ptx_lexer *lexer);
bool token_is(const ptx_token *token, const char *text);

#endif
