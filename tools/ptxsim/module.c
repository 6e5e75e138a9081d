/* SPDX-License-Identifier: MIT
 *
 * Modules from text to bound instructions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"
#include "target.h"

static const sim_op *const op_tables[] = {
    sim_ops_integer,     sim_ops_float, sim_ops_half,  sim_ops_convert, sim_ops_move,    sim_ops_memory,
    sim_ops_control,     sim_ops_call,  sim_ops_warp,  sim_ops_barrier, sim_ops_cluster, sim_ops_async,
    sim_ops_store_async, sim_ops_mma,   sim_ops_wgmma, sim_ops_tcgen05,
};

/* ---- Binding ---- */

static void unbind(ptx_instr *instr) {
    instr->exec = NULL;
    instr->gather = PTX_GATHER_NONE;
    instr->gather_operand = 0;
    memset(instr->data, 0, sizeof instr->data);
}

static bool usable(const ptx_instr *instr) {
    bool gathers = instr->gather == PTX_GATHER_MASK;
    return instr->exec && (!gathers || (instr->gather_operand >= 0 && instr->gather_operand < instr->num_operands));
}

/* As ptx.h describes at sim_op: the first table that accepts, else the first message. */
static bool bind(ptx_instr *instr, char *what, size_t what_size) {
    char said[256];
    bool known = false;
    what[0] = '\0';
    for (size_t i = 0; i < sizeof op_tables / sizeof op_tables[0]; i++) {
        for (const sim_op *op = op_tables[i]; op->opcode; op++) {
            if (strcmp(op->opcode, instr->opcode) != 0)
                continue;
            known = true;
            unbind(instr);
            said[0] = '\0';
            if (op->bind(instr, said, sizeof said) && usable(instr))
                return true;
            if (!what[0])
                snprintf(what, what_size, "%s", said);
        }
    }
    unbind(instr);
    if (!known)
        snprintf(what, what_size, "instruction %.100s is not implemented", instr->opcode);
    else if (!what[0])
        snprintf(what, what_size, "instruction %.100s is not implemented with these modifiers and operands",
                 instr->opcode);
    return false;
}

static bool bind_module(ptx_module *module, char *error, size_t error_size) {
    char what[256];
    ptx_target target;
    if (!target_parse(module->target, &target)) {
        if (error_size > 0)
            snprintf(error, error_size, "line 1: target %s is none that is known: .target %s", module->target,
                     module->target);
        return false;
    }
    for (int f = 0; f < module->num_functions; f++) {
        if (!module->functions[f].is_entry)
            continue; /* what kernels call has become part of them */
        for (int i = 0; i < module->functions[f].num_instrs; i++) {
            ptx_instr *instr = &module->functions[f].instrs[i];
            if (bind(instr, what, sizeof what) && target_has(&target, instr, what, sizeof what))
                continue;
            if (error_size > 0)
                snprintf(error, error_size, "line %d: %s: %s", instr->line, what, instr->text);
            return false;
        }
    }
    return true;
}

/* ---- Modules ---- */

/* Nothing here lives in a local variable across setjmp but what the caller holds. */
static bool parse(parser *p) {
    if (setjmp(p->failed))
        return false;
    parser_module(p);
    return true;
}

ptx_module *ptx_module_parse(const char *text, size_t size, char *error, size_t error_size) {
    if (!error)
        error_size = 0;
    if (error_size > 0)
        error[0] = '\0';
    if (size == 0)
        text = "";
    if (size > PARSER_MAX_TEXT) {
        if (error_size > 0)
            snprintf(error, error_size, "line 1: a module has at most %zu bytes, not %zu: (text)", PARSER_MAX_TEXT,
                     size);
        return NULL;
    }
    parser *p = calloc(1, sizeof *p);
    parsed_module *parsed = calloc(1, sizeof *parsed);
    bool done = false;
    if (p && parsed) {
        lexer_init(&p->lexer, text, size);
        p->statement = text;
        p->parsed = parsed;
        p->module = &parsed->module;
        p->symbols.memory = &p->scratch;
        p->error = error;
        p->error_size = error_size;
        done = parse(p) && bind_module(&parsed->module, error, error_size);
    } else if (error_size > 0) {
        snprintf(error, error_size, "line 1: out of memory: (text)");
    }
    if (p)
        storage_free(&p->scratch);
    free(p);
    if (!done) {
        ptx_module_free(parsed ? &parsed->module : NULL);
        return NULL;
    }
    return &parsed->module;
}

void ptx_module_free(ptx_module *module) {
    parsed_module *parsed = (parsed_module *)module;
    if (!parsed)
        return;
    storage_free(&parsed->storage);
    free(parsed);
}

const ptx_function *ptx_module_find(const ptx_module *module, const char *name) {
    for (int i = 0; i < module->num_functions; i++) {
        if (strcmp(module->functions[i].name, name) == 0)
            return &module->functions[i];
    }
    return NULL;
}

bool ptx_has(const ptx_instr *instr, const char *modifier) {
    for (int i = 0; i < instr->num_modifiers; i++) {
        if (strcmp(instr->modifiers[i], modifier) == 0)
            return true;
    }
    return false;
}
