/* SPDX-License-Identifier: MIT
 *
 * Registers, variables with their initialisers, parameters, and where everything lies. */
#include "parser.h"

#include <string.h>

typedef enum type_class { TYPE_PREDICATE, TYPE_INTEGER, TYPE_FLOAT } type_class;

typedef struct type_row {
    const char *directive;
    size_t bytes;
    type_class class;
} type_row;

static const type_row type_table[] = {
    {".pred", 1, TYPE_PREDICATE}, {".b8", 1, TYPE_INTEGER},  {".u8", 1, TYPE_INTEGER},   {".s8", 1, TYPE_INTEGER},
    {".b16", 2, TYPE_INTEGER},    {".u16", 2, TYPE_INTEGER}, {".s16", 2, TYPE_INTEGER},  {".b32", 4, TYPE_INTEGER},
    {".u32", 4, TYPE_INTEGER},    {".s32", 4, TYPE_INTEGER}, {".b64", 8, TYPE_INTEGER},  {".u64", 8, TYPE_INTEGER},
    {".s64", 8, TYPE_INTEGER},    {".f16", 2, TYPE_INTEGER}, {".bf16", 2, TYPE_INTEGER}, {".f16x2", 4, TYPE_INTEGER},
    {".bf16x2", 4, TYPE_INTEGER}, {".f32", 4, TYPE_FLOAT},   {".f64", 8, TYPE_FLOAT},
};

static const struct {
    const char *directive;
    ptx_space space;
} space_table[] = {
    {".global", PTX_GLOBAL}, {".const", PTX_CONST}, {".shared", PTX_SHARED},
    {".local", PTX_LOCAL},   {".param", PTX_PARAM},
};

typedef struct declarator {
    const type_row *type;
    size_t vector; /* 1, or the number of .v2 and the like */
    size_t align;
    ptx_token name;
    size_t dims[PARSER_MAX_DIMS + 1]; /* a vector is one more, innermost */
    int num_dims;
    bool unsized; /* name[] */
    size_t bytes; /* 0 if unsized */
} declarator;

bool parser_space(const ptx_token *token, ptx_space *space) {
    if (token->kind != TOKEN_DIRECTIVE)
        return false;
    for (size_t i = 0; i < sizeof space_table / sizeof space_table[0]; i++) {
        if (token_is(token, space_table[i].directive)) {
            *space = space_table[i].space;
            return true;
        }
    }
    return false;
}

static const type_row *accept_type(parser *p) {
    for (size_t i = 0; i < sizeof type_table / sizeof type_table[0]; i++) {
        if (parser_accept_directive(p, type_table[i].directive))
            return &type_table[i];
    }
    return NULL;
}

/* ---- Registers ---- */

void parser_registers(parser *p) {
    const type_row *type = accept_type(p);
    if (!type)
        parser_fail_token(p, "a register type of at most 64 bits");
    do {
        ptx_token name = parser_expect_name(p, "a register's name");
        bool range = parser_accept(p, '<');
        int count = 1;
        if (range) {
            count = (int)parser_expect_integer(p, PARSER_MAX_SLOTS, "the number of registers");
            parser_expect(p, '>');
        }
        if (count > PARSER_MAX_SLOTS - p->function->num_slots)
            parser_fail(p, "more than %d registers in a function", PARSER_MAX_SLOTS);
        ptx_symbol *symbol = parser_declare(p, range ? SYMBOL_RANGE : SYMBOL_REGISTER, &name);
        symbol->width = type->class == TYPE_PREDICATE ? 1 : (int)(8 * type->bytes);
        symbol->slot = p->function->num_slots;
        symbol->count = count;
        p->function->num_slots += count;
    } while (parser_accept(p, ','));
    parser_expect(p, ';');
}

/* ---- Declarators ---- */

static size_t parse_align(parser *p) {
    size_t align = parser_expect_integer(p, PARSER_MAX_ALIGN, ".align");
    if (align == 0 || (align & (align - 1)) != 0)
        parser_fail(p, "an alignment is a power of two, not %zu", align);
    return align;
}

/* What several names of one declaration share: [.align N] [.v2] .type; parameters also say where a pointer points. */
static declarator parse_declaration(parser *p) {
    declarator shared = {.vector = 1};
    bool pointer = false;
    size_t pointee_align; /* what the code assumes of the pointer's value: the access checks see to it */
    ptx_space space;
    for (;;) {
        const type_row *type = accept_type(p);
        if (type)
            shared.type = type;
        else if (parser_accept_directive(p, ".align"))
            *(pointer ? &pointee_align : &shared.align) = parse_align(p);
        else if (parser_accept_directive(p, ".v2"))
            shared.vector = 2;
        else if (parser_accept_directive(p, ".v4"))
            shared.vector = 4;
        else if (parser_accept_directive(p, ".ptr"))
            pointer = true;
        else if (pointer && parser_space(&p->token, &space))
            parser_advance(p);
        else
            break;
    }
    if (!shared.type || shared.type->class == TYPE_PREDICATE)
        parser_fail_token(p, "a type that memory can hold");
    if (!shared.align)
        shared.align = shared.type->bytes * shared.vector;
    return shared;
}

static void parse_declarator(parser *p, declarator *each) {
    each->name = parser_expect_name(p, "a name");
    each->bytes = each->type->bytes * each->vector;
    while (parser_accept(p, '[')) {
        if (each->num_dims == 0 && parser_accept(p, ']')) {
            each->unsized = true;
            each->dims[each->num_dims++] = 0;
            continue;
        }
        if (each->num_dims == PARSER_MAX_DIMS)
            parser_fail(p, "an array has at most %d dimensions", PARSER_MAX_DIMS);
        size_t size = parser_expect_integer(p, PARSER_MAX_GLOBAL, "an array's size");
        if (size == 0 || size > PARSER_MAX_GLOBAL / each->bytes)
            parser_fail(p, "an array has 1 to %u bytes", PARSER_MAX_GLOBAL);
        each->bytes *= size;
        each->dims[each->num_dims++] = size;
        parser_expect(p, ']');
    }
    if (each->vector > 1)
        each->dims[each->num_dims++] = each->vector;
    if (each->unsized)
        each->bytes = 0;
}

/* ---- Initialisers ---- */

static uint64_t float_initialiser(parser *p, const type_row *type, const ptx_token *token) {
    uint64_t bits = token->bits;
    if (token->kind == TOKEN_FLOAT_BITS) {
        if ((size_t)token->width != 8 * type->bytes)
            parser_fail(p, "a literal of %d bits for a variable of type %s", token->width, type->directive);
        return bits;
    }
    double value = token->kind == TOKEN_REAL ? token->real : (double)token->bits;
    float narrow = (float)value;
    uint32_t narrow_bits;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&narrow_bits, &narrow, sizeof narrow_bits);
    return type->bytes == 4 ? narrow_bits : bits;
}

static uint64_t integer_initialiser(parser *p, const type_row *type, const ptx_token *token, bool minus) {
    size_t width = token->kind == TOKEN_FLOAT_BITS ? (size_t)token->width : 8 * type->bytes;
    uint64_t max = type->bytes == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * type->bytes)) - 1;
    if (token->kind == TOKEN_REAL || width != 8 * type->bytes)
        parser_fail(p, "a floating point literal for a variable of type %s", type->directive);
    if (minus ? token->bits > max / 2 + 1 : token->bits > max)
        parser_fail(p, "an initialiser beyond the range of %s", type->directive);
    return minus ? 0 - token->bits : token->bits;
}

static void parse_value(parser *p, const declarator *variable, uint8_t *out) {
    const type_row *type = variable->type;
    bool minus = parser_accept(p, '-');
    ptx_token token = p->token;
    if (token.kind == TOKEN_WORD)
        parser_fail(p, "an initialiser with the address of %.*s: only numbers are implemented",
                    (int)(token.length < 100 ? token.length : 100), token.start);
    if (token.kind != TOKEN_INTEGER && token.kind != TOKEN_FLOAT_BITS && token.kind != TOKEN_REAL)
        parser_fail_token(p, "a number");
    uint64_t bits;
    if (type->class == TYPE_FLOAT)
        bits = float_initialiser(p, type, &token) ^ ((uint64_t)minus << (8 * type->bytes - 1));
    else
        bits = integer_initialiser(p, type, &token, minus);
    parser_advance(p);
    for (size_t i = 0; i < type->bytes; i++)
        out[i] = (uint8_t)(bits >> (8 * i));
}

/* Lists may be shorter than their dimension: the rest is zero. At most PARSER_MAX_DIMS + 1 deep. */
static void parse_values(parser *p, const declarator *variable, int level, uint8_t *out, size_t bytes) {
    if (level == variable->num_dims) {
        parse_value(p, variable, out);
        return;
    }
    size_t stride = bytes / variable->dims[level], i = 0;
    parser_expect(p, '{');
    do {
        if (i == variable->dims[level])
            parser_fail(p, "an initialiser with more than %zu elements", variable->dims[level]);
        parse_values(p, variable, level + 1, out + i++ * stride, stride);
    } while (parser_accept(p, ','));
    parser_expect(p, '}');
}

static uint8_t *parse_initialiser(parser *p, const declarator *variable, ptx_space space) {
    if (space != PTX_GLOBAL && space != PTX_CONST)
        parser_fail(p, "only global and const variables have initialisers");
    if (variable->unsized)
        parser_fail(p, "an initialised array needs its size");
    if (variable->bytes > PARSER_MAX_INIT - p->init_bytes)
        parser_fail(p, "more than %u initialised bytes", PARSER_MAX_INIT);
    p->init_bytes += variable->bytes;
    uint8_t *init = parser_alloc(p, variable->bytes, 1);
    parse_values(p, variable, 0, init, variable->bytes);
    return init;
}

/* ---- Variables and parameters ---- */

static void check_variable(parser *p, const declarator *variable, ptx_space space, bool is_extern) {
    if (is_extern && space != PTX_SHARED)
        parser_fail(p, "external variables other than dynamic shared memory need a linker");
    if (variable->unsized && !is_extern)
        parser_fail(p, "an array needs its size");
    if (!p->function && (space == PTX_PARAM || space == PTX_LOCAL))
        parser_fail(p, "parameters and local variables belong into functions");
}

void parser_variables(parser *p, ptx_space space, bool is_extern) {
    declarator shared = parse_declaration(p);
    do {
        declarator each = shared;
        parse_declarator(p, &each);
        check_variable(p, &each, space, is_extern);
        ptx_variable *variable = parser_alloc(p, 1, sizeof *variable);
        /* Parameters of calls live in the frame of the function that calls. */
        variable->name = parser_copy(p, each.name.start, each.name.length);
        variable->space = space == PTX_PARAM ? PTX_LOCAL : space;
        variable->align = each.align;
        variable->size = is_extern ? 0 : each.bytes;
        parser_declare(p, SYMBOL_VARIABLE, &each.name)->variable = variable;
        if (parser_accept(p, '='))
            variable->init = parse_initialiser(p, &each, space);
        bool own = p->function && (variable->space == PTX_SHARED || variable->space == PTX_LOCAL);
        parser_list *list = own ? &p->variables : &p->module_variables;
        *(ptx_variable **)parser_push(p, list, sizeof variable) = variable;
    } while (parser_accept(p, ','));
    parser_expect(p, ';');
}

void parser_params(parser *p) {
    parser_expect(p, '(');
    if (parser_accept(p, ')'))
        return;
    do {
        if (!parser_accept_directive(p, ".param"))
            parser_fail_token(p, ".param");
        declarator each = parse_declaration(p);
        parse_declarator(p, &each);
        if (each.unsized)
            parser_fail(p, "a parameter needs its size");
        ptx_variable *param = parser_push(p, &p->params, sizeof *param);
        param->name = parser_copy(p, each.name.start, each.name.length);
        param->space = PTX_PARAM;
        param->align = each.align;
        param->size = each.bytes;
        *(ptx_token *)parser_push(p, &p->param_names, sizeof each.name) = each.name;
    } while (parser_accept(p, ','));
    parser_expect(p, ')');
}

/* ---- Layout ---- */

static size_t place(ptx_variable *variable, size_t end) {
    variable->offset = (end + variable->align - 1) & ~(variable->align - 1);
    return variable->offset + variable->size;
}

/* Module scope: one image for global and const variables; the end of static shared memory is returned. */
static size_t layout_module(parser *p) {
    size_t image = 0, shared = 0, constants = 0;
    for (int i = 0; i < p->module->num_variables; i++) {
        ptx_variable *variable = p->module->variables[i];
        if (variable->space == PTX_SHARED)
            shared = variable->size ? place(variable, shared) : shared;
        else
            image = place(variable, image);
        if (variable->space == PTX_CONST)
            constants += variable->size;
        if (image > PARSER_MAX_GLOBAL || constants > PARSER_MAX_CONST || shared > PARSER_MAX_SHARED)
            parser_fail(p, "variables up to %.100s take %zu bytes (%zu const, %zu shared); at most %u (%u, %u)",
                        variable->name, image, constants, shared, PARSER_MAX_GLOBAL, PARSER_MAX_CONST,
                        PARSER_MAX_SHARED);
    }
    for (int i = 0; i < p->module->num_variables; i++) {
        if (p->module->variables[i]->space == PTX_SHARED && p->module->variables[i]->size == 0)
            place(p->module->variables[i], shared);
    }
    return shared;
}

/* All dynamic shared memory begins at one place, after everything static. */
static void layout_function(parser *p, ptx_function *function, size_t shared) {
    size_t local = 0, align = 1;
    for (int i = 0; i < function->num_variables; i++) {
        ptx_variable *variable = function->variables[i];
        if (variable->space == PTX_LOCAL)
            local = place(variable, local);
        else if (variable->size)
            shared = place(variable, shared);
        else if (variable->align > align)
            align = variable->align;
        if (shared > PARSER_MAX_SHARED || local > PARSER_MAX_LOCAL)
            parser_fail(p, "%.100s has %zu bytes of static shared and %zu of local memory; at most %u and %u",
                        function->name, shared, local, PARSER_MAX_SHARED, PARSER_MAX_LOCAL);
    }
    shared = (shared + align - 1) & ~(align - 1);
    for (int i = 0; i < function->num_variables; i++) {
        if (function->variables[i]->space == PTX_SHARED && function->variables[i]->size == 0)
            function->variables[i]->offset = shared;
    }
    function->static_shared_bytes = shared;
    function->local_bytes = local;
}

void parser_layout(parser *p) {
    size_t shared = layout_module(p);
    const parser_origin *origins = p->origins.data;
    for (int i = 0; i < p->module->num_functions; i++) {
        p->statement = origins[i].statement;
        p->token.line = origins[i].line;
        layout_function(p, &p->module->functions[i], shared);
    }
}
