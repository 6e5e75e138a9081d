/* SPDX-License-Identifier: MIT */
#include "lexer.h"

#include <stdlib.h>
#include <string.h>

/* Longest decimal floating point literal; more digits than any double needs. */
#define MAX_REAL_LENGTH 63

/* The C locale's classes, whatever the process has set. */
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word(char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

static int digit_value(char c) {
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

void lexer_init(ptx_lexer *lexer, const char *text, size_t size) {
    lexer->at = text;
    lexer->end = text + size;
    lexer->line = 1;
}

/* The character `ahead` places on; '\0' past the end. */
static char look(const ptx_lexer *lexer, size_t ahead) {
    return ahead < (size_t)(lexer->end - lexer->at) ? lexer->at[ahead] : '\0';
}

static void skip_to_line_end(ptx_lexer *lexer) {
    while (lexer->at < lexer->end && *lexer->at != '\n')
        lexer->at++;
}

/* False if the comment does not end. */
static bool skip_block_comment(ptx_lexer *lexer) {
    lexer->at += 2;
    while (lexer->at < lexer->end) {
        if (look(lexer, 0) == '*' && look(lexer, 1) == '/') {
            lexer->at += 2;
            return true;
        }
        if (*lexer->at == '\n')
            lexer->line++;
        lexer->at++;
    }
    return false;
}

static bool skip_blanks(ptx_lexer *lexer) {
    while (lexer->at < lexer->end) {
        char c = *lexer->at;
        if (c == '\n') {
            lexer->line++;
            lexer->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            lexer->at++;
        } else if (c == '/' && look(lexer, 1) == '/') {
            skip_to_line_end(lexer);
        } else if (c == '/' && look(lexer, 1) == '*') {
            if (!skip_block_comment(lexer))
                return false;
        } else {
            break;
        }
    }
    return true;
}

/* Word characters, joined by dots and double colons. */
static void scan_word(ptx_lexer *lexer, bool dots) {
    for (;;) {
        char c = look(lexer, 0);
        if (is_word(c))
            lexer->at++;
        else if (dots && c == '.' && is_word(look(lexer, 1)))
            lexer->at += 2;
        else if (c == ':' && look(lexer, 1) == ':' && is_word(look(lexer, 2)))
            lexer->at += 3;
        else
            return;
    }
}

/* Digits of one base. False without any, or beyond 64 bits. */
static bool scan_digits(ptx_lexer *lexer, unsigned base, uint64_t *value) {
    const char *start = lexer->at;
    uint64_t sum = 0;
    for (; digit_value(look(lexer, 0)) < (int)base; lexer->at++) {
        uint64_t digit = (uint64_t)digit_value(*lexer->at);
        if (sum > (UINT64_MAX - digit) / base)
            return false;
        sum = sum * base + digit;
    }
    *value = sum;
    return lexer->at > start;
}

static const char *scan_float_bits(ptx_lexer *lexer, ptx_token *token) {
    char prefix = look(lexer, 1);
    token->width = prefix == 'd' || prefix == 'D' ? 64 : 32;
    lexer->at += 2;
    const char *digits = lexer->at;
    if (!scan_digits(lexer, 16, &token->bits) || lexer->at - digits != token->width / 4)
        return "a 0f literal has 8 hexadecimal digits, a 0d literal 16";
    token->kind = TOKEN_FLOAT_BITS;
    return NULL;
}

/* Length of the literal if it is a decimal floating point one (it has a point or an exponent), else 0. */
static size_t real_length(const ptx_lexer *lexer) {
    size_t i = 0;
    bool real = false;
    while (is_digit(look(lexer, i)))
        i++;
    if (look(lexer, i) == '.') {
        real = true;
        do
            i++;
        while (is_digit(look(lexer, i)));
    }
    if (look(lexer, i) == 'e' || look(lexer, i) == 'E') {
        size_t digits = i + 1;
        if (look(lexer, digits) == '+' || look(lexer, digits) == '-')
            digits++;
        if (is_digit(look(lexer, digits))) {
            real = true;
            for (i = digits; is_digit(look(lexer, i)); i++)
                continue;
        }
    }
    return real ? i : 0;
}

static const char *scan_real(ptx_lexer *lexer, ptx_token *token, size_t length) {
    char text[MAX_REAL_LENGTH + 1];
    if (length > MAX_REAL_LENGTH)
        return "a floating point literal is longer than 63 characters";
    memcpy(text, lexer->at, length);
    text[length] = '\0';
    token->real = strtod(text, NULL);
    token->kind = TOKEN_REAL;
    lexer->at += length;
    return NULL;
}

static const char *scan_integer(ptx_lexer *lexer, ptx_token *token) {
    unsigned base = 10;
    char prefix = look(lexer, 1);
    if (look(lexer, 0) == '0') {
        if (prefix == 'x' || prefix == 'X')
            base = 16;
        else if (prefix == 'b' || prefix == 'B')
            base = 2;
        else if (is_digit(prefix))
            base = 8;
        if (base == 16 || base == 2)
            lexer->at += 2;
    }
    if (!scan_digits(lexer, base, &token->bits))
        return "an integer literal has no digits, or more than 64 bits";
    if (look(lexer, 0) == 'U' || look(lexer, 0) == 'u')
        lexer->at++;
    token->kind = TOKEN_INTEGER;
    return NULL;
}

static const char *scan_number(ptx_lexer *lexer, ptx_token *token) {
    char prefix = look(lexer, 1);
    bool bits = prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D';
    size_t length = real_length(lexer);
    const char *error;
    if (look(lexer, 0) == '0' && bits)
        error = scan_float_bits(lexer, token);
    else if (length)
        error = scan_real(lexer, token, length);
    else
        error = scan_integer(lexer, token);
    if (!error && is_word(look(lexer, 0)))
        error = "a number runs into a name";
    return error;
}

static const char *scan_string(ptx_lexer *lexer, ptx_token *token) {
    token->start = ++lexer->at;
    while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
        lexer->at++;
    if (look(lexer, 0) != '"')
        return "a string does not end on its line";
    token->kind = TOKEN_STRING;
    token->length = (size_t)(lexer->at - token->start);
    lexer->at++;
    return NULL;
}

ptx_token lexer_next(ptx_lexer *lexer) {
    bool ended = skip_blanks(lexer);
    ptx_token token = {.kind = TOKEN_END, .start = lexer->at, .line = lexer->line};
    if (!ended)
        token.error = "a comment does not end";
    if (lexer->at == lexer->end) {
        token.kind = ended ? TOKEN_END : TOKEN_ERROR;
        return token;
    }
    char c = *lexer->at;
    const char *error = NULL;
    if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_word(look(lexer, 1)))) {
        lexer->at++;
        scan_word(lexer, true);
        token.kind = TOKEN_WORD;
    } else if (c == '.' && (is_letter(look(lexer, 1)) || look(lexer, 1) == '_')) {
        lexer->at++;
        scan_word(lexer, false);
        token.kind = TOKEN_DIRECTIVE;
    } else if (is_digit(c) || (c == '.' && is_digit(look(lexer, 1)))) {
        error = scan_number(lexer, &token);
    } else if (c == '"') {
        error = scan_string(lexer, &token);
    } else if (c != '\0' && strchr("{}[]()<>,;:@!|+-=*/&^~?", c)) {
        token.kind = TOKEN_PUNCTUATION;
        token.punctuation = c;
        lexer->at++;
    } else {
        error = "a character that PTX does not have";
    }
    if (error) {
        token.kind = TOKEN_ERROR;
        token.error = error;
        lexer->at = lexer->end;
    }
    if (token.kind != TOKEN_STRING)
        token.length = (size_t)(lexer->at - token.start);
    return token;
}

bool token_is(const ptx_token *token, const char *text) {
    return token->length == strlen(text) && memcmp(token->start, text, token->length) == 0;
}
