/* SPDX-License-Identifier: MIT
 *
 * Instructions and their operands. */
#include "parser.h"

#include <string.h>

/* Special registers, with what sim_special is asked for; vectors have .x to .z. */
static const struct {
    const char *name;
    bool vector;
} special_table[] = {
    {"%tid", true},
    {"%ntid", true},
    {"%ctaid", true},
    {"%nctaid", true},
    {"%clusterid", true},
    {"%nclusterid", true},
    {"%cluster_ctaid", true},
    {"%cluster_nctaid", true},
    {"%cluster_ctarank", false},
    {"%cluster_nctarank", false},
    {"%is_explicit_cluster", false},
    {"%laneid", false},
    {"%warpid", false},
    {"%nwarpid", false},
    {"%smid", false},
    {"%nsmid", false},
    {"%gridid", false},
    {"%lanemask_eq", false},
    {"%lanemask_le", false},
    {"%lanemask_lt", false},
    {"%lanemask_ge", false},
    {"%lanemask_gt", false},
    {"%clock", false},
    {"%clock_hi", false},
    {"%clock64", false},
    {"%globaltimer", false},
    {"%globaltimer_lo", false},
    {"%globaltimer_hi", false},
    {"%dynamic_smem_size", false},
    {"%total_smem_size", false},
};

static bool is_special(const ptx_token *token) {
    for (size_t i = 0; i < sizeof special_table / sizeof special_table[0]; i++) {
        size_t length = strlen(special_table[i].name);
        if (token->length < length || memcmp(token->start, special_table[i].name, length) != 0)
            continue;
        const char *rest = token->start + length;
        if (special_table[i].vector ? token->length == length + 2 && rest[0] == '.' && rest[1] >= 'x' && rest[1] <= 'z'
                                    : token->length == length)
            return true;
    }
    return false;
}

/* ---- Operands ---- */

static _Noreturn void fail_undeclared(parser *p, const ptx_token *name) {
    parser_fail(p, "%.*s is not declared", (int)(name->length < 100 ? name->length : 100), name->start);
}

/* A variable as the function at hand sees it. */
static const ptx_variable *view(parser *p, ptx_symbol *symbol) {
    ptx_variable *variable = symbol->variable;
    bool dynamic = variable->space == PTX_SHARED && variable->size == 0;
    if (!dynamic || symbol->depth > 0)
        return variable;
    if (symbol->view_of != p->function_number) {
        symbol->view = parser_alloc(p, 1, sizeof *symbol->view);
        *symbol->view = *variable;
        symbol->view_of = p->function_number;
        *(ptx_variable **)parser_push(p, &p->variables, sizeof symbol->view) = symbol->view;
    }
    return symbol->view;
}

/* [+ or -] integer, if there is one. */
static int64_t parse_offset(parser *p) {
    bool plus = parser_accept(p, '+');
    bool minus = parser_accept(p, '-');
    if (!plus && !minus)
        return 0;
    uint64_t value = parser_expect_integer(p, INT64_MAX, "an offset");
    return minus ? -(int64_t)value : (int64_t)value;
}

static void parse_number(parser *p, ptx_operand *operand, bool minus) {
    ptx_token token = p->token;
    operand->kind = token.kind == TOKEN_REAL ? PTX_OPERAND_REAL : PTX_OPERAND_INTEGER;
    operand->bits = token.bits;
    operand->real = minus ? -token.real : token.real;
    if (minus && token.kind == TOKEN_INTEGER)
        operand->bits = 0 - token.bits;
    else if (minus && token.kind == TOKEN_FLOAT_BITS)
        operand->bits ^= UINT64_C(1) << (token.width - 1);
    parser_advance(p);
}

static bool at_number(const parser *p) {
    return p->token.kind == TOKEN_INTEGER || p->token.kind == TOKEN_FLOAT_BITS || p->token.kind == TOKEN_REAL;
}

static bool is_register(const ptx_symbol *symbol) {
    return symbol && (symbol->kind == SYMBOL_REGISTER || symbol->kind == SYMBOL_RANGE);
}

static int parse_predicate(parser *p) {
    ptx_token name = parser_expect_kind(p, TOKEN_WORD, "a predicate register");
    int slot;
    const ptx_symbol *symbol = symbols_resolve(&p->symbols, name.start, name.length, &slot);
    if (!symbol)
        fail_undeclared(p, &name);
    if (!is_register(symbol) || symbol->width != 1)
        parser_fail(p, "%.*s is not a predicate register", (int)(name.length < 100 ? name.length : 100), name.start);
    return slot;
}

static void parse_name(parser *p, ptx_operand *operand) {
    ptx_token name = parser_expect_kind(p, TOKEN_WORD, "a name");
    ptx_symbol *symbol = symbols_resolve(&p->symbols, name.start, name.length, &operand->slot);
    if (is_register(symbol)) {
        operand->kind = PTX_OPERAND_REGISTER;
        operand->width = symbol->width;
    } else if (symbol && symbol->kind == SYMBOL_VARIABLE) {
        operand->kind = PTX_OPERAND_SYMBOL;
        operand->variable = view(p, symbol);
    } else if (token_is(&name, "WARP_SZ")) {
        operand->kind = PTX_OPERAND_INTEGER;
        operand->bits = 32;
    } else if (is_special(&name)) {
        operand->kind = PTX_OPERAND_SPECIAL;
        operand->name = parser_copy(p, name.start, name.length);
    } else if (symbol && symbol->kind == SYMBOL_FUNCTION) {
        parser_fail(p, "the address of function %.*s is not implemented", (int)(name.length < 100 ? name.length : 100),
                    name.start);
    } else {
        fail_undeclared(p, &name);
    }
}

/* Everything but vectors, addresses and labels. */
static void parse_scalar(parser *p, ptx_operand *operand) {
    operand->slot = operand->pair = -1;
    if (parser_accept(p, '!')) {
        operand->kind = PTX_OPERAND_REGISTER;
        operand->negated = true;
        operand->width = 1;
        operand->slot = parse_predicate(p);
    } else if (parser_accept(p, '-')) {
        if (!at_number(p))
            parser_fail_token(p, "a number after \"-\"");
        parse_number(p, operand, true);
    } else if (at_number(p)) {
        parse_number(p, operand, false);
    } else if (p->token.kind == TOKEN_WORD && token_is(&p->token, "_")) {
        operand->kind = PTX_OPERAND_SINK;
        parser_advance(p);
    } else if (p->token.kind == TOKEN_WORD) {
        parse_name(p, operand);
        if (operand->kind == PTX_OPERAND_SYMBOL)
            operand->offset = parse_offset(p);
    } else {
        parser_fail_token(p, "an operand");
    }
}

/* { a, b, ... } into operand's elements. */
static void parse_elements(parser *p, ptx_operand *operand) {
    ptx_operand elements[PARSER_MAX_ELEMENTS];
    int count = 0;
    parser_expect(p, '{');
    do {
        if (count == PARSER_MAX_ELEMENTS)
            parser_fail(p, "a vector has at most %d elements", PARSER_MAX_ELEMENTS);
        memset(&elements[count], 0, sizeof elements[count]);
        parse_scalar(p, &elements[count++]);
    } while (parser_accept(p, ','));
    parser_expect(p, '}');
    operand->elements = parser_alloc(p, (size_t)count, sizeof elements[0]);
    memcpy(operand->elements, elements, (size_t)count * sizeof elements[0]);
    operand->num_elements = count;
}

/* [register, variable or integer, with an offset, with tensor coordinates] */
static void parse_address(parser *p, ptx_operand *operand) {
    ptx_operand base = {.slot = -1};
    parser_expect(p, '[');
    operand->kind = PTX_OPERAND_ADDRESS;
    operand->pair = -1;
    if (p->token.kind == TOKEN_WORD && !token_is(&p->token, "_"))
        parse_name(p, &base);
    else if (p->token.kind == TOKEN_INTEGER)
        parse_number(p, &base, false);
    else
        parser_fail_token(p, "a register, variable or integer");
    if (base.kind == PTX_OPERAND_SPECIAL)
        parser_fail(p, "%s is no address", base.name);
    operand->slot = base.slot;
    operand->width = base.width;
    operand->variable = base.variable;
    /* Wraps around like the addresses themselves. */
    operand->offset = (int64_t)(base.bits + (uint64_t)parse_offset(p));
    if (parser_accept(p, ','))
        parse_elements(p, operand);
    parser_expect(p, ']');
}

/* "d|p": a second result. */
static void parse_pair(parser *p, ptx_operand *operand) {
    ptx_operand second = {0};
    if ((operand->kind != PTX_OPERAND_REGISTER && operand->kind != PTX_OPERAND_SINK) || operand->negated)
        parser_fail(p, "a pair of results consists of registers");
    parse_scalar(p, &second);
    if (second.kind != PTX_OPERAND_SINK && (second.kind != PTX_OPERAND_REGISTER || second.negated))
        parser_fail(p, "a pair of results consists of registers");
    operand->pair = second.slot;
}

/* Operand `index` of the instruction at hand, or an element of it, is the label `name`. */
static void refer(parser *p, ptx_operand *operand, int index, int element, const ptx_token *name) {
    operand->kind = PTX_OPERAND_LABEL;
    operand->slot = operand->pair = -1;
    parser_reference *reference = parser_push(p, &p->references, sizeof *reference);
    reference->instr = p->instrs.count;
    reference->operand = index;
    reference->element = element;
    reference->name = name->start;
    reference->length = name->length;
    reference->statement = p->statement;
    reference->line = name->line;
}

static void parse_label_operand(parser *p, ptx_operand *operand, int index) {
    ptx_token name = parser_expect_name(p, "a label");
    refer(p, operand, index, -1, &name);
}

/* The name of a list that .branchtargets has declared: a vector of its labels. */
static void parse_targets_operand(parser *p, ptx_operand *operand, int index) {
    ptx_token name = parser_expect_name(p, "the name of a list of branch targets");
    const ptx_symbol *symbol = symbols_find(&p->symbols, name.start, name.length);
    if (!symbol || symbol->kind != SYMBOL_TARGETS)
        parser_fail(p, "%.*s is no list of branch targets", (int)(name.length < 100 ? name.length : 100), name.start);
    operand->kind = PTX_OPERAND_VECTOR;
    operand->slot = operand->pair = -1;
    operand->num_elements = symbol->count;
    operand->elements = parser_alloc(p, (size_t)symbol->count, sizeof *operand->elements);
    for (int i = 0; i < symbol->count; i++)
        refer(p, &operand->elements[i], index, i, &symbol->tokens[i]);
}

void parser_branch_targets(parser *p, const ptx_token *name) {
    parser_list tokens = {0};
    do {
        if (tokens.count == PARSER_MAX_TARGETS)
            parser_fail(p, "a list of branch targets has at most %d labels", PARSER_MAX_TARGETS);
        const ptx_token label = parser_expect_name(p, "a label");
        *(ptx_token *)parser_push(p, &tokens, sizeof label) = label;
    } while (parser_accept(p, ','));
    ptx_symbol *symbol = parser_declare(p, SYMBOL_TARGETS, name);
    symbol->tokens = tokens.data;
    symbol->count = (int)tokens.count;
    parser_expect(p, ';');
}

/* ( a, b, ... ) of a call: variables in param space. */
static void parse_call_list(parser *p, ptx_operand *operand) {
    ptx_operand elements[PARSER_MAX_ELEMENTS];
    operand->kind = PTX_OPERAND_VECTOR;
    operand->slot = operand->pair = -1;
    parser_expect(p, '(');
    while (!parser_accept(p, ')')) {
        if (operand->num_elements == PARSER_MAX_ELEMENTS)
            parser_fail(p, "a call has at most %d parameters", PARSER_MAX_ELEMENTS);
        ptx_operand *element = &elements[operand->num_elements++];
        memset(element, 0, sizeof *element);
        parse_scalar(p, element);
        if (element->kind != PTX_OPERAND_SYMBOL || element->variable->space != PTX_LOCAL || element->offset != 0)
            parser_fail(p, "only variables of the .param space are passed to calls");
        if (!parser_at(p, ')'))
            parser_expect(p, ',');
    }
    if (!operand->num_elements)
        return;
    operand->elements = parser_alloc(p, (size_t)operand->num_elements, sizeof elements[0]);
    memcpy(operand->elements, elements, (size_t)operand->num_elements * sizeof elements[0]);
}

/* [(results),] name [, (parameters)]: three operands, the name first. */
static void parse_call(parser *p, ptx_instr *instr) {
    ptx_operand *function = &instr->operands[0], *returns = &instr->operands[1], *params = &instr->operands[2];
    instr->num_operands = 3;
    *function = *returns = *params = (ptx_operand){.kind = PTX_OPERAND_VECTOR, .slot = -1, .pair = -1};
    if (parser_at(p, '(')) {
        parse_call_list(p, returns);
        parser_expect(p, ',');
    }
    const ptx_token name = parser_expect_kind(p, TOKEN_WORD, "a function's name");
    int slot;
    if (is_register(symbols_resolve(&p->symbols, name.start, name.length, &slot)))
        parser_fail(p, "calls through a register are not implemented");
    function->kind = PTX_OPERAND_FUNCTION;
    function->name = parser_copy(p, name.start, name.length);
    if (parser_accept(p, ','))
        parse_call_list(p, params);
}

static void parse_operands(parser *p, ptx_instr *instr) {
    const bool branch = strcmp(instr->opcode, "bra") == 0, indexed = strcmp(instr->opcode, "brx") == 0;
    if (strcmp(instr->opcode, "call") == 0) {
        parse_call(p, instr);
        return;
    }
    do {
        if (instr->num_operands == PTX_MAX_OPERANDS)
            parser_fail(p, "an instruction has at most %d operands", PTX_MAX_OPERANDS);
        ptx_operand *operand = &instr->operands[instr->num_operands];
        if (branch) {
            parse_label_operand(p, operand, instr->num_operands);
        } else if (indexed && instr->num_operands == 1) {
            parse_targets_operand(p, operand, 1);
        } else if (parser_at(p, '{')) {
            operand->kind = PTX_OPERAND_VECTOR;
            operand->slot = operand->pair = -1;
            parse_elements(p, operand);
        } else if (parser_at(p, '[')) {
            parse_address(p, operand);
        } else {
            parse_scalar(p, operand);
            if (instr->num_operands == 0 && parser_accept(p, '|'))
                parse_pair(p, operand);
        }
        instr->num_operands++;
    } while (parser_accept(p, ','));
}

/* ---- Instructions ---- */

static void add_modifier(parser *p, ptx_instr *instr, char *modifier) {
    if (instr->num_modifiers == PTX_MAX_MODIFIERS)
        parser_fail(p, "an instruction has at most %d modifiers", PTX_MAX_MODIFIERS);
    instr->modifiers[instr->num_modifiers++] = modifier;
}

/* "add.s32" into opcode and modifiers; blanks may stand before a dot. */
static void parse_opcode(parser *p, ptx_instr *instr) {
    ptx_token word = parser_expect_kind(p, TOKEN_WORD, "an instruction");
    instr->opcode = parser_copy(p, word.start, word.length);
    for (char *dot = strchr(instr->opcode, '.'); dot; dot = strchr(dot + 1, '.')) {
        *dot = '\0';
        add_modifier(p, instr, dot + 1);
    }
    while (p->token.kind == TOKEN_DIRECTIVE) {
        add_modifier(p, instr, parser_copy(p, p->token.start + 1, p->token.length - 1));
        parser_advance(p);
    }
}

void parser_instruction(parser *p) {
    ptx_instr instr = {.guard = -1, .line = p->token.line};
    const char *start = p->token.start;
    if (p->num_instrs + p->instrs.count >= PARSER_MAX_INSTRS)
        parser_fail(p, "more than %d instructions", PARSER_MAX_INSTRS);
    if (parser_accept(p, '@')) {
        instr.guard_negated = parser_accept(p, '!');
        instr.guard = parse_predicate(p);
    }
    parse_opcode(p, &instr);
    if (!parser_at(p, ';') || strcmp(instr.opcode, "call") == 0)
        parse_operands(p, &instr);
    if (!parser_at(p, ';'))
        parser_fail_token(p, "\",\" or \";\"");
    size_t length = (size_t)(p->token.start - start);
    instr.text = parser_alloc(p, length + 2, 1);
    parser_one_line(start, p->token.start, instr.text, length + 2);
    instr.source_file = p->source_file;
    instr.source_line = p->source_line;
    *(ptx_instr *)parser_push(p, &p->instrs, sizeof instr) = instr;
    parser_advance(p);
}

bool parser_ends_flow(const ptx_instr *instr) {
    static const char *const opcodes[] = {"ret", "exit", "bra", "brx", "trap"};
    for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
        if (instr->guard < 0 && strcmp(instr->opcode, opcodes[i]) == 0)
            return true;
    }
    return false;
}
