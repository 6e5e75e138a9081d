/* SPDX-License-Identifier: MIT
 *
 * Calls: the bodies of the functions that a function calls become part of it, with registers and variables of their
 * own; parameters become the caller's variables that are passed, so that nothing is copied. The machine thus has
 * neither a stack nor returns, and lanes that call together stay together. Recursion cannot be expressed this way and
 * is refused; what has no body here (vprintf) stays a call, which exec_call.c knows or refuses. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parser.h"

typedef enum state { UNTOUCHED, UNDER_WAY, DONE } state;

typedef struct inliner {
    parser *p;
    uint8_t *states; /* of the module's functions */
    size_t others;   /* instructions of functions other than those that are being expanded */
} inliner;

static _Noreturn void fail(inliner *in, const ptx_instr *instr, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static _Noreturn void fail(inliner *in, const ptx_instr *instr, const char *format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (in->p->error_size > 0)
        snprintf(in->p->error, in->p->error_size, "line %d: %s: %s", instr->line, what, instr->text);
    longjmp(in->p->failed, 1);
}

static bool is_call(const ptx_instr *instr) {
    return strcmp(instr->opcode, "call") == 0 && instr->num_operands == 3;
}

/* Index of the function that is called, -1 if it has no body. */
static int callee_of(const inliner *in, const ptx_instr *instr) {
    for (int i = 0; is_call(instr) && i < in->p->module->num_functions; i++)
        if (strcmp(in->p->module->functions[i].name, instr->operands[0].name) == 0)
            return i;
    return -1;
}

static ptx_function *function_at(const inliner *in, int index) {
    return &in->p->module->functions[index];
}

/* ---- One call ---- */

typedef struct insertion {
    inliner *in;
    int caller; /* index */
    const ptx_function *callee;
    const ptx_instr *call;
    int first_slot;
    int start, end;         /* instructions of the caller that the body becomes; end: the first behind it */
    parser_list *variables; /* of the caller */
} insertion;

static void check_parameters(const insertion *i) {
    const ptx_operand *returns = &i->call->operands[1], *params = &i->call->operands[2];
    const ptx_function *callee = i->callee;
    if (callee->is_entry)
        fail(i->in, i->call, "kernels are not called");
    if (returns->num_elements != callee->num_returns ||
        params->num_elements != callee->num_params - callee->num_returns)
        fail(i->in, i->call, "%.100s has %d results and %d parameters", callee->name, callee->num_returns,
             callee->num_params - callee->num_returns);
}

/* The variable that is passed for a parameter. */
static const ptx_variable *passed(const insertion *i, size_t param) {
    const size_t returns = (size_t)i->callee->num_returns;
    const ptx_variable *variable = param < returns ? i->call->operands[1].elements[param].variable
                                                   : i->call->operands[2].elements[param - returns].variable;
    if (variable->size != i->callee->params[param].size)
        fail(i->in, i->call, "%.100s of %.100s has %zu bytes, not %zu", i->callee->params[param].name, i->callee->name,
             i->callee->params[param].size, variable->size);
    return variable;
}

/* What a variable of the callee is in the caller. A function's variables exist once in each function that it becomes
 * part of, however many calls there are: they do not outlive a call, and shared ones are the same in all calls. */
static const ptx_variable *variable_of(const insertion *i, const ptx_variable *variable) {
    const ptx_function *callee = i->callee;
    if (!variable)
        return NULL;
    for (size_t param = 0; param < (size_t)callee->num_params; param++)
        if (variable == &callee->params[param])
            return passed(i, param);
    if (variable->space != PTX_LOCAL && variable->space != PTX_SHARED)
        return variable;
    for (int own = 0; own < callee->num_variables; own++) {
        if (variable != callee->variables[own])
            continue;
        ptx_variable *original = variable->original ? variable->original : callee->variables[own];
        if (original->copy_for != i->caller + 1) {
            original->copy = parser_alloc(i->in->p, 1, sizeof *original);
            *original->copy = *original;
            original->copy->original = original;
            original->copy_for = i->caller + 1;
            *(ptx_variable **)parser_push(i->in->p, i->variables, sizeof original) = original->copy;
        }
        return original->copy;
    }
    return variable; /* of the module */
}

static void move_operand(const insertion *i, ptx_operand *operand) {
    const int shift = i->first_slot;
    operand->slot += operand->slot >= 0 ? shift : 0;
    operand->pair += operand->pair >= 0 ? shift : 0;
    operand->variable = variable_of(i, operand->variable);
    if (operand->kind == PTX_OPERAND_LABEL)
        operand->target += i->start;
    if (operand->num_elements == 0)
        return;
    const ptx_operand *elements = operand->elements;
    operand->elements = parser_alloc(i->in->p, (size_t)operand->num_elements, sizeof *elements);
    memcpy(operand->elements, elements, (size_t)operand->num_elements * sizeof *elements);
    for (int e = 0; e < operand->num_elements; e++)
        move_operand(i, &operand->elements[e]); /* vectors have no vectors inside */
}

static void become_branch(const insertion *i, ptx_instr *instr, int target) {
    instr->opcode = parser_copy(i->in->p, "bra", 3);
    instr->num_modifiers = 0;
    instr->num_operands = 1;
    instr->operands[0] = (ptx_operand){.kind = PTX_OPERAND_LABEL, .slot = -1, .pair = -1, .target = target};
}

/* Appends the callee's body to the caller's instructions. */
static void insert(insertion *i, ptx_function *caller, parser_list *instrs) {
    parser *p = i->in->p;
    const ptx_function *callee = i->callee;
    const bool guarded = i->call->guard >= 0;
    check_parameters(i);
    if ((size_t)callee->num_instrs + guarded > PARSER_MAX_INSTRS - instrs->count)
        fail(i->in, i->call, "more than %d instructions with those of %.100s", PARSER_MAX_INSTRS, callee->name);
    if (callee->num_slots > PARSER_MAX_SLOTS - caller->num_slots)
        fail(i->in, i->call, "more than %d registers with those of %.100s", PARSER_MAX_SLOTS, callee->name);
    i->first_slot = caller->num_slots;
    caller->num_slots += callee->num_slots;
    i->start = (int)instrs->count + guarded;
    i->end = i->start + callee->num_instrs;
    if (guarded) {
        ptx_instr *skip = parser_push(p, instrs, sizeof *skip);
        *skip = *i->call;
        skip->guard_negated = !skip->guard_negated;
        become_branch(i, skip, i->end);
    }
    for (int n = 0; n < callee->num_instrs; n++) {
        ptx_instr *instr = parser_push(p, instrs, sizeof *instr);
        *instr = callee->instrs[n];
        instr->guard += instr->guard >= 0 ? i->first_slot : 0;
        for (int o = 0; o < instr->num_operands; o++)
            move_operand(i, &instr->operands[o]);
        if (strcmp(instr->opcode, "ret") == 0)
            become_branch(i, instr, i->end);
    }
}

/* ---- Functions ---- */

static void retarget(ptx_operand *operand, const int *places) {
    if (operand->kind == PTX_OPERAND_LABEL)
        operand->target = places[operand->target];
    for (int e = 0; e < operand->num_elements; e++)
        retarget(&operand->elements[e], places);
}

/* The function's instructions with those of the functions it calls, which have been expanded. */
static void rebuild(inliner *in, int index) {
    parser *p = in->p;
    ptx_function *function = function_at(in, index);
    const int count = function->num_instrs;
    parser_list instrs = {0}, variables = {0};
    int *places = parser_alloc(p, (size_t)count + 1, sizeof *places);
    for (int v = 0; v < function->num_variables; v++)
        *(ptx_variable **)parser_push(p, &variables, sizeof(ptx_variable *)) = function->variables[v];
    for (int i = 0; i < count; i++) {
        const ptx_instr *instr = &function->instrs[i];
        const int callee = callee_of(in, instr);
        places[i] = (int)instrs.count;
        if (callee >= 0) {
            insertion each = {
                .in = in, .caller = index, .callee = function_at(in, callee), .call = instr, .variables = &variables};
            insert(&each, function, &instrs);
        } else {
            *(ptx_instr *)parser_push(p, &instrs, sizeof *instr) = *instr;
        }
    }
    places[count] = (int)instrs.count;
    for (int i = 0; i < count; i++) {
        ptx_instr *moved = (ptx_instr *)instrs.data + places[i];
        if (callee_of(in, &function->instrs[i]) >= 0) {
            continue; /* its first instruction is of the callee: it has its place */
        }
        for (int o = 0; o < moved->num_operands; o++)
            retarget(&moved->operands[o], places);
    }
    if (instrs.count > PARSER_MAX_INSTRS - in->others)
        fail(in, &function->instrs[0], "more than %d instructions with those of called functions", PARSER_MAX_INSTRS);
    in->others += instrs.count;
    function->num_instrs = (int)instrs.count;
    function->instrs = parser_take(p, &instrs, sizeof(ptx_instr));
    function->num_variables = (int)variables.count;
    function->variables = parser_take(p, &variables, sizeof(ptx_variable *));
}

static void expand(inliner *in, int index, int depth) {
    const ptx_function *function = function_at(in, index);
    bool calls = false;
    in->states[index] = UNDER_WAY;
    for (int i = 0; i < function->num_instrs; i++) {
        const ptx_instr *instr = &function->instrs[i];
        const int callee = callee_of(in, instr);
        if (callee < 0)
            continue;
        calls = true;
        if (in->states[callee] == UNDER_WAY)
            fail(in, instr, "recursive calls are not implemented");
        if (depth == PARSER_MAX_DEPTH)
            fail(in, instr, "calls are nested more than %d deep", PARSER_MAX_DEPTH);
        if (in->states[callee] == UNTOUCHED)
            expand(in, callee, depth + 1);
    }
    if (calls)
        rebuild(in, index);
    in->states[index] = DONE;
}

void parser_inline(parser *p) {
    inliner in = {.p = p, .states = parser_alloc(p, (size_t)p->module->num_functions + 1, 1)};
    for (int i = 0; i < p->module->num_functions; i++)
        if (in.states[i] == UNTOUCHED)
            expand(&in, i, 0);
}
