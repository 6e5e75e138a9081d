/* SPDX-License-Identifier: MIT
 *
 * Modules, functions and their bodies; tokens and memory for all of the parser. */
#include "parser.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a statement that a message shows. */
#define SHOWN_STATEMENT 160

/* ---- Messages ---- */

void parser_one_line(const char *start, const char *end, char *out, size_t out_size) {
    size_t length = 0;
    bool blank = false;
    const char *at = start;
    while (at < end && length + 1 < out_size) {
        size_t left = (size_t)(end - at);
        if (left >= 2 && at[0] == '/' && at[1] == '/') {
            while (at < end && *at != '\n')
                at++;
            blank = true;
        } else if (left >= 2 && at[0] == '/' && at[1] == '*') {
            for (at += 2; at < end && !(*at == '*' && at + 1 < end && at[1] == '/'); at++)
                continue;
            at = end - at > 2 ? at + 2 : end;
            blank = true;
        } else if (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
            at++;
            blank = true;
        } else {
            if (blank && length > 0 && length + 2 < out_size)
                out[length++] = ' ';
            blank = false;
            out[length++] = *at >= 0x20 && *at < 0x7f ? *at : '?';
            at++;
        }
    }
    if (out_size > 0)
        out[length] = '\0';
}

/* Instructions end at their semicolon; directives are shown up to the end of their line. */
static const char *statement_end(const parser *p) {
    const char *at = p->statement;
    bool directive = at < p->lexer.end && *at == '.';
    while (at < p->lexer.end && *at != ';' && !(directive && *at == '\n'))
        at++;
    return at;
}

void parser_fail(parser *p, const char *format, ...) {
    char what[256], text[SHOWN_STATEMENT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    parser_one_line(p->statement, statement_end(p), text, sizeof text);
    if (p->error_size > 0)
        snprintf(p->error, p->error_size, "line %d: %s: %s", p->token.line, what, text);
    longjmp(p->failed, 1);
}

void parser_fail_token(parser *p, const char *wanted) {
    char found[48];
    if (p->token.kind == TOKEN_END)
        parser_fail(p, "expected %s, not the end of the text", wanted);
    parser_one_line(p->token.start, p->token.start + p->token.length, found, sizeof found);
    parser_fail(p, "expected %s, not \"%s\"", wanted, found);
}

/* ---- Tokens ---- */

void parser_advance(parser *p) {
    p->token = lexer_next(&p->lexer);
    if (p->token.kind == TOKEN_ERROR)
        parser_fail(p, "%s", p->token.error);
}

bool parser_at(const parser *p, char punctuation) {
    return p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == punctuation;
}

bool parser_accept(parser *p, char punctuation) {
    if (!parser_at(p, punctuation))
        return false;
    parser_advance(p);
    return true;
}

void parser_expect(parser *p, char punctuation) {
    char wanted[4] = {'"', punctuation, '"', '\0'};
    if (!parser_accept(p, punctuation))
        parser_fail_token(p, wanted);
}

bool parser_accept_directive(parser *p, const char *directive) {
    if (p->token.kind != TOKEN_DIRECTIVE || !token_is(&p->token, directive))
        return false;
    parser_advance(p);
    return true;
}

ptx_token parser_expect_kind(parser *p, token_kind kind, const char *wanted) {
    ptx_token token = p->token;
    if (token.kind != kind)
        parser_fail_token(p, wanted);
    parser_advance(p);
    return token;
}

uint64_t parser_expect_integer(parser *p, uint64_t max, const char *wanted) {
    uint64_t value = p->token.bits;
    if (p->token.kind == TOKEN_INTEGER && value > max)
        parser_fail(p, "%s: at most %llu, not %llu", wanted, (unsigned long long)max, (unsigned long long)value);
    parser_expect_kind(p, TOKEN_INTEGER, wanted);
    return value;
}

ptx_token parser_expect_name(parser *p, const char *wanted) {
    const ptx_token *token = &p->token;
    bool plain = token->kind == TOKEN_WORD && !memchr(token->start, '.', token->length) &&
                 !memchr(token->start, ':', token->length) && !token_is(token, "_");
    if (!plain)
        parser_fail_token(p, wanted);
    return parser_expect_kind(p, TOKEN_WORD, wanted);
}

/* ---- Memory ---- */

void *parser_alloc(parser *p, size_t count, size_t size) {
    void *data = count <= SIZE_MAX / size ? storage_alloc(&p->parsed->storage, count * size) : NULL;
    if (!data)
        parser_fail(p, "out of memory");
    return data;
}

char *parser_copy(parser *p, const char *start, size_t length) {
    char *copy = parser_alloc(p, length + 1, 1);
    memcpy(copy, start, length);
    return copy;
}

void *parser_push(parser *p, parser_list *list, size_t size) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        void *data = capacity <= SIZE_MAX / size ? storage_alloc(&p->scratch, capacity * size) : NULL;
        if (!data)
            parser_fail(p, "out of memory");
        if (list->count)
            memcpy(data, list->data, list->count * size);
        list->data = data;
        list->capacity = capacity;
    }
    void *element = (char *)list->data + list->count++ * size;
    memset(element, 0, size);
    return element;
}

void *parser_take(parser *p, parser_list *list, size_t size) {
    void *copy = parser_alloc(p, list->count, size);
    if (list->count)
        memcpy(copy, list->data, list->count * size);
    list->count = 0;
    return copy;
}

ptx_symbol *parser_declare(parser *p, symbol_kind kind, const ptx_token *name) {
    if (symbols_taken(&p->symbols, kind, name->start, name->length))
        parser_fail(p, "%.*s is declared twice in its scope", (int)(name->length < 100 ? name->length : 100),
                    name->start);
    ptx_symbol *added = symbols_add(&p->symbols, kind, name->start, name->length);
    if (!added)
        parser_fail(p, "out of memory");
    return added;
}

/* ---- Directives that may stand anywhere ---- */

static void parse_file(parser *p) {
    size_t index = parser_expect_integer(p, PARSER_MAX_FILES - 1, "a file's index");
    ptx_token name = parser_expect_kind(p, TOKEN_STRING, "a file's name in quotes");
    if (parser_accept(p, ',')) {
        parser_expect_integer(p, UINT64_MAX, "a file's time");
        parser_expect(p, ',');
        parser_expect_integer(p, UINT64_MAX, "a file's size");
    }
    while (p->files.count <= index)
        parser_push(p, &p->files, sizeof(char *));
    ((char **)p->files.data)[index] = parser_copy(p, name.start, name.length);
}

static void parse_loc(parser *p) {
    p->source_file = (int)parser_expect_integer(p, PARSER_MAX_FILES - 1, "a file's index");
    p->source_line = (int)parser_expect_integer(p, INT_MAX, "a line");
    parser_expect_integer(p, INT_MAX, "a column");
    while (parser_accept(p, ',')) {
        ptx_token what = parser_expect_kind(p, TOKEN_WORD, "function_name or inlined_at");
        if (token_is(&what, "function_name")) {
            parser_expect_kind(p, TOKEN_WORD, "a label");
            if (parser_accept(p, '+'))
                parser_expect_integer(p, UINT64_MAX, "an offset");
        } else if (token_is(&what, "inlined_at")) {
            parser_expect_integer(p, UINT64_MAX, "a file's index");
            parser_expect_integer(p, UINT64_MAX, "a line");
            parser_expect_integer(p, UINT64_MAX, "a column");
        } else {
            parser_fail(p, "expected function_name or inlined_at");
        }
    }
}

static void parse_pragma(parser *p) {
    do
        parser_expect_kind(p, TOKEN_STRING, "a pragma in quotes");
    while (parser_accept(p, ','));
    parser_expect(p, ';');
}

static void parse_section(parser *p) {
    while (!parser_at(p, '{')) {
        if (p->token.kind != TOKEN_DIRECTIVE && p->token.kind != TOKEN_WORD)
            parser_fail_token(p, "a section's name");
        parser_advance(p);
    }
    size_t depth = 0;
    do {
        if (p->token.kind == TOKEN_END)
            parser_fail(p, "a section does not end");
        if (parser_at(p, '{'))
            depth++;
        else if (parser_at(p, '}'))
            depth--;
        parser_advance(p);
    } while (depth > 0);
}

static bool parse_common(parser *p) {
    static const struct {
        const char *directive;
        void (*parse)(parser *p);
    } table[] = {{".file", parse_file}, {".loc", parse_loc}, {".pragma", parse_pragma}, {".section", parse_section}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (parser_accept_directive(p, table[i].directive)) {
            table[i].parse(p);
            return true;
        }
    }
    return false;
}

/* ---- Functions ---- */

typedef enum tuning_kind { TUNING_IGNORED, TUNING_THREADS, TUNING_CLUSTER, TUNING_CTAS, TUNING_REGISTERS } tuning_kind;

static const struct {
    const char *directive;
    int min_values, max_values;
    tuning_kind kind;
} tuning_table[] = {
    {".maxntid", 1, 3, TUNING_THREADS},         {".reqntid", 1, 3, TUNING_THREADS},
    {".minnctapersm", 1, 1, TUNING_CTAS},       {".maxnctapersm", 1, 1, TUNING_IGNORED},
    {".maxnreg", 1, 1, TUNING_REGISTERS},       {".maxclusterrank", 1, 1, TUNING_IGNORED},
    {".explicitcluster", 0, 0, TUNING_IGNORED}, {".reqnctapercluster", 1, 3, TUNING_CLUSTER},
    {".noreturn", 0, 0, TUNING_IGNORED},
};

/* A directive between a function's parameters and its body. */
static bool parse_tuning(parser *p, ptx_function *function) {
    size_t row = 0, rows = sizeof tuning_table / sizeof tuning_table[0];
    while (row < rows && !parser_accept_directive(p, tuning_table[row].directive))
        row++;
    if (row == rows)
        return false;
    uint64_t product = 1;
    for (int i = 0; i < tuning_table[row].max_values; i++) {
        if (i >= tuning_table[row].min_values && !parser_accept(p, ','))
            break;
        product *= parser_expect_integer(p, 1 << 16, tuning_table[row].directive);
    }
    if (tuning_table[row].kind == TUNING_CLUSTER && product != 1)
        parser_fail(p, "clusters of CTAs are not implemented");
    if (tuning_table[row].kind == TUNING_CTAS)
        function->min_ctas = (int)product;
    if (tuning_table[row].kind == TUNING_REGISTERS)
        function->registers = (int)product;
    if (tuning_table[row].kind == TUNING_THREADS) {
        if (product < 1 || product > PARSER_MAX_CTA_LANES)
            parser_fail(p, "a CTA has 1 to %d threads, not %llu", PARSER_MAX_CTA_LANES, (unsigned long long)product);
        function->max_threads = (int)product;
    }
    return true;
}

static void enter_scope(parser *p) {
    if (p->depth == PARSER_MAX_DEPTH)
        parser_fail(p, "scopes are nested more than %d deep", PARSER_MAX_DEPTH);
    symbols_enter(&p->symbols);
    p->scope_references[p->depth++] = p->references.count;
}

static int *target_of(ptx_instr *instr, const parser_reference *reference) {
    ptx_operand *operand = &instr->operands[reference->operand];
    return reference->element < 0 ? &operand->target : &operand->elements[reference->element].target;
}

/* Branches within the scope find their labels; those of labels further out wait. */
static void leave_scope(parser *p) {
    parser_reference *references = p->references.data;
    ptx_instr *instrs = p->instrs.data;
    size_t kept = p->scope_references[--p->depth];
    for (size_t i = kept; i < p->references.count; i++) {
        const ptx_symbol *label = symbols_find(&p->symbols, references[i].name, references[i].length);
        if (label && label->kind == SYMBOL_LABEL && label->depth == p->symbols.depth)
            *target_of(&instrs[references[i].instr], &references[i]) = label->target;
        else
            references[kept++] = references[i];
    }
    p->references.count = kept;
    symbols_leave(&p->symbols);
}

static bool at_label(const parser *p) {
    if (p->token.kind != TOKEN_WORD)
        return false;
    ptx_lexer ahead = p->lexer;
    ptx_token next = lexer_next(&ahead);
    return next.kind == TOKEN_PUNCTUATION && next.punctuation == ':';
}

static void parse_label(parser *p) {
    ptx_token name = parser_expect_name(p, "a label");
    parser_expect(p, ':');
    if (parser_accept_directive(p, ".branchtargets")) {
        parser_branch_targets(p, &name);
        return;
    }
    parser_declare(p, SYMBOL_LABEL, &name)->target = (int)p->instrs.count;
    p->last_label = p->instrs.count;
}

static void parse_body_directive(parser *p) {
    ptx_space space;
    if (parse_common(p))
        return;
    if (parser_accept_directive(p, ".reg")) {
        parser_registers(p);
    } else if (parser_accept_directive(p, ".extern")) {
        if (!parser_space(&p->token, &space))
            parser_fail_token(p, "a state space");
        parser_advance(p);
        parser_variables(p, space, true);
    } else if (parser_space(&p->token, &space)) {
        parser_advance(p);
        parser_variables(p, space, false);
    } else {
        parser_fail_token(p, "a directive known inside functions");
    }
}

static void parse_body(parser *p) {
    enter_scope(p);
    for (int outside = p->depth - 1; p->depth > outside;) {
        p->statement = p->token.start;
        if (p->token.kind == TOKEN_END)
            parser_fail(p, "the body of %.100s does not end", p->function->name);
        if (parser_accept(p, '{'))
            enter_scope(p);
        else if (parser_accept(p, '}'))
            leave_scope(p);
        else if (parser_accept(p, ';'))
            continue;
        else if (p->token.kind == TOKEN_DIRECTIVE)
            parse_body_directive(p);
        else if (at_label(p))
            parse_label(p);
        else
            parser_instruction(p);
    }
}

/* Control that reaches the end returns; and labels there need an instruction to stand before. */
static void append_return(parser *p) {
    const ptx_instr *instrs = p->instrs.data;
    size_t count = p->instrs.count;
    if (count > 0 && p->last_label != count && parser_ends_flow(&instrs[count - 1]))
        return;
    ptx_instr *instr = parser_push(p, &p->instrs, sizeof *instr);
    instr->opcode = parser_copy(p, "ret", 3);
    instr->text = parser_copy(p, "ret (end of function)", 21);
    instr->guard = -1;
    instr->line = p->token.line;
    instr->source_file = p->source_file;
    instr->source_line = p->source_line;
}

static void finish_body(parser *p, ptx_function *function) {
    if (p->references.count) {
        const parser_reference *lost = p->references.data;
        p->token.line = lost->line;
        p->statement = lost->statement;
        parser_fail(p, "%.*s is neither a label in a scope around it nor declared",
                    (int)(lost->length < 100 ? lost->length : 100), lost->name);
    }
    append_return(p);
    p->num_instrs += p->instrs.count;
    if (p->num_instrs > PARSER_MAX_INSTRS)
        parser_fail(p, "more than %d instructions", PARSER_MAX_INSTRS);
    function->num_instrs = (int)p->instrs.count;
    function->instrs = parser_take(p, &p->instrs, sizeof(ptx_instr));
    function->num_variables = (int)p->variables.count;
    function->variables = parser_take(p, &p->variables, sizeof(ptx_variable *));
}

/* Parameters in the order and at the offsets of the launch's buffer. */
static void declare_params(parser *p, ptx_function *function) {
    size_t end = 0;
    function->num_params = (int)p->params.count;
    function->params = parser_take(p, &p->params, sizeof(ptx_variable));
    for (int i = 0; i < function->num_params; i++) {
        ptx_variable *param = &function->params[i];
        end = (end + param->align - 1) & ~(param->align - 1);
        param->offset = end;
        end += param->size;
        if (end > PARSER_MAX_PARAMS)
            parser_fail(p, "more than %d bytes of parameters", PARSER_MAX_PARAMS);
        parser_declare(p, SYMBOL_VARIABLE, &((ptx_token *)p->param_names.data)[i])->variable = param;
    }
    function->param_bytes = end;
}

static void define_function(parser *p, const ptx_token *name) {
    ptx_symbol *old = symbols_find(&p->symbols, name->start, name->length);
    if (old && (old->kind != SYMBOL_FUNCTION || old->defined))
        parser_fail(p, "%.*s is declared twice", (int)(name->length < 100 ? name->length : 100), name->start);
    if (!old)
        old = parser_declare(p, SYMBOL_FUNCTION, name);
    old->defined = true;
}

/* After .entry or .func. */
static void parse_function(parser *p, bool is_entry) {
    ptx_function function = {.is_entry = is_entry};
    parser_origin origin = {.statement = p->statement, .line = p->token.line};
    p->params.count = p->param_names.count = 0;
    if (!is_entry && parser_at(p, '('))
        parser_params(p);
    function.num_returns = (int)p->params.count;
    ptx_token name = parser_expect_name(p, "a function's name");
    if (parser_at(p, '('))
        parser_params(p);
    while (!parser_at(p, '{') && !parser_at(p, ';')) {
        if (!parse_tuning(p, &function) && !parse_common(p))
            parser_fail_token(p, "a directive known before a function's body");
    }
    if (parser_accept(p, ';'))
        return; /* a declaration: inline.c looks for the body */

    define_function(p, &name);
    function.name = parser_copy(p, name.start, name.length);
    p->function = &function;
    p->function_number++;
    p->last_label = SIZE_MAX;
    p->source_file = p->source_line = 0;
    enter_scope(p);
    declare_params(p, &function);
    parser_expect(p, '{');
    parse_body(p);
    leave_scope(p);
    finish_body(p, &function);
    p->function = NULL;
    *(ptx_function *)parser_push(p, &p->functions, sizeof function) = function;
    *(parser_origin *)parser_push(p, &p->origins, sizeof origin) = origin;
}

/* ---- The module ---- */

static void parse_version(parser *p) {
    ptx_token token = parser_expect_kind(p, TOKEN_REAL, "a version such as 8.3");
    const char *dot = memchr(token.start, '.', token.length);
    size_t major = dot ? (size_t)(dot - token.start) : 0;
    if (major < 1 || major > 2 || token.length != major + 2)
        parser_fail(p, "expected a version such as 8.3");
    for (const char *digit = token.start; digit < token.start + token.length; digit++) {
        if (digit != dot)
            p->module->version = p->module->version * 10 + (*digit - '0');
    }
}

static void parse_target(parser *p) {
    ptx_token token = parser_expect_kind(p, TOKEN_WORD, "a target such as sm_90a");
    if (token.length >= sizeof p->module->target)
        parser_fail(p, "a target's name has at most %zu characters", sizeof p->module->target - 1);
    memcpy(p->module->target, token.start, token.length);
    while (parser_accept(p, ','))
        parser_expect_kind(p, TOKEN_WORD, "a target's option");
}

static void parse_once(parser *p) {
    if (parser_accept_directive(p, ".version")) {
        if (p->module->version)
            parser_fail(p, "a second version");
        parse_version(p);
    } else if (parser_accept_directive(p, ".target")) {
        if (p->module->target[0])
            parser_fail(p, "a second target");
        parse_target(p);
    } else if (parser_accept_directive(p, ".address_size")) {
        if (parser_expect_integer(p, 64, ".address_size") != 64)
            parser_fail(p, "addresses have 64 bits");
    } else {
        parser_fail_token(p, "a directive known outside functions");
    }
}

/* Linkage, then a function or a variable. */
static void parse_definition(parser *p) {
    bool is_extern = false, linkage = true, any = false;
    ptx_space space;
    while (linkage) {
        linkage = parser_accept_directive(p, ".visible") || parser_accept_directive(p, ".weak") ||
                  parser_accept_directive(p, ".common");
        if (!linkage && parser_accept_directive(p, ".extern"))
            linkage = is_extern = true;
        any = any || linkage;
    }
    if (parser_accept_directive(p, ".entry")) {
        parse_function(p, true);
    } else if (parser_accept_directive(p, ".func")) {
        parse_function(p, false);
    } else if (parser_space(&p->token, &space)) {
        parser_advance(p);
        parser_variables(p, space, is_extern);
    } else if (any) {
        parser_fail_token(p, "a function or a variable");
    } else {
        parse_once(p);
    }
}

/* Messages may show whatever .loc says without checking it. */
static void drop_unknown_files(ptx_module *module) {
    for (int f = 0; f < module->num_functions; f++) {
        for (int i = 0; i < module->functions[f].num_instrs; i++) {
            ptx_instr *instr = &module->functions[f].instrs[i];
            if (instr->source_file >= module->num_files || !module->files[instr->source_file])
                instr->source_file = 0;
        }
    }
}

void parser_module(parser *p) {
    ptx_module *module = p->module;
    parser_advance(p);
    while (p->token.kind != TOKEN_END) {
        p->statement = p->token.start;
        if (!parser_accept(p, ';') && !parse_common(p))
            parse_definition(p);
    }
    p->statement = p->token.start;
    if (!module->version || !module->target[0])
        parser_fail(p, "not a PTX module: it has no %s", module->version ? ".target" : ".version");
    module->num_functions = (int)p->functions.count;
    module->functions = parser_take(p, &p->functions, sizeof(ptx_function));
    module->num_variables = (int)p->module_variables.count;
    module->variables = parser_take(p, &p->module_variables, sizeof(ptx_variable *));
    module->num_files = (int)p->files.count;
    module->files = parser_take(p, &p->files, sizeof(char *));
    parser_inline(p);
    drop_unknown_files(module);
    parser_layout(p);
}
