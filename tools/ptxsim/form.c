/* SPDX-License-Identifier: MIT
 *
 * Binds instructions whose forms are few enough to be listed. */
#include <stdio.h>
#include <string.h>

#include "engine.h"

static bool is_value(const ptx_operand *operand) {
    if (operand->kind == PTX_OPERAND_SPECIAL)
        return sim_special(NULL, operand->name, 0, NULL);
    return operand->kind == PTX_OPERAND_REGISTER || operand->kind == PTX_OPERAND_INTEGER ||
           operand->kind == PTX_OPERAND_SYMBOL;
}

/* What an operand must be if it does not fit its letter, else NULL. */
static const char *misfit(const ptx_operand *operand, char letter) {
    bool is_register = operand->kind == PTX_OPERAND_REGISTER, sink = operand->kind == PTX_OPERAND_SINK;
    bool plain = !operand->negated && (!is_register || operand->pair < 0);
    switch (letter) {
    case 'd':
        return (is_register || sink) && plain ? NULL : "a register for the result";
    case 'p':
        return (is_register || sink) && !operand->negated ? NULL : "a register for the result, d or d|p";
    case 'v':
        return is_value(operand) && plain ? NULL : "a register or an integer";
    case 'q':
        if (operand->kind == PTX_OPERAND_INTEGER)
            return NULL;
        return is_register && operand->width <= 1 && operand->pair < 0 ? NULL : "a predicate";
    case 'i':
        return operand->kind == PTX_OPERAND_INTEGER ? NULL : "an integer literal";
    default:
        return operand->kind == PTX_OPERAND_LABEL ? NULL : "a label";
    }
}

/* The modifiers joined by dots; empty if they do not fit, which no form has. */
static void join_modifiers(const ptx_instr *instr, char *joined, size_t size) {
    size_t length = 0;
    joined[0] = '\0';
    for (int i = 0; i < instr->num_modifiers; i++) {
        if (strcmp(instr->modifiers[i], "cta") == 0)
            continue;
        int more = snprintf(joined + length, size - length, "%s%s", length ? "." : "", instr->modifiers[i]);
        if (more < 0 || (size_t)more >= size - length) {
            snprintf(joined, size, "...");
            return;
        }
        length += (size_t)more;
    }
}

static bool fits(const ptx_instr *instr, const sim_form *form, char *error, size_t error_size) {
    const char *letter = form->operands;
    int required = -1, i = 0;
    for (; *letter; letter++) {
        if (*letter == '?') {
            required = i;
            continue;
        }
        if (i < instr->num_operands) {
            const char *wanted = misfit(&instr->operands[i], *letter);
            if (wanted) {
                snprintf(error, error_size, "operand %d of %s must be %s", i + 1, instr->opcode, wanted);
                return false;
            }
        }
        i++;
    }
    required = required < 0 ? i : required;
    if (instr->num_operands >= required && instr->num_operands <= i)
        return true;
    snprintf(error, error_size, "%s.%s takes %d to %d operands, not %d", instr->opcode, form->modifiers, required, i,
             instr->num_operands);
    return false;
}

bool sim_bind_form(ptx_instr *instr, const sim_form *forms, char *error, size_t error_size) {
    char joined[160];
    join_modifiers(instr, joined, sizeof(joined));
    bool known = false, misfits = false;
    for (const sim_form *form = forms; form->opcode; form++) {
        if (strcmp(form->opcode, instr->opcode) != 0)
            continue;
        known = true;
        if (strcmp(form->modifiers, joined) != 0)
            continue;
        if (!fits(instr, form, error, error_size)) {
            misfits = true;
            continue;
        }
        instr->exec = form->exec;
        instr->gather = form->gather;
        instr->gather_operand = form->gather_operand;
        instr->data[0] = form->data;
        return true;
    }
    if (known && !misfits)
        snprintf(error, error_size, "modifiers .%s are not known for %s", joined, instr->opcode);
    return false;
}
