/* SPDX-License-Identifier: MIT
 *
 * Prepares the instructions of a function for the engine: which registers each reads and writes, and what kind it is.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* Opcodes whose first operand is a value or a place even where it is a register, not a result. */
static const char *const without_result[] = {"bar", "barrier", "nanosleep", "setmaxnreg", "wgmma",
                                             "mma", "tcgen05", "brx",       NULL};

/* Opcodes that change something other lanes, warps or CTAs can see. */
static const char *const with_effect[] = {"st",  "atom", "red",   "cp",    "mbarrier", "bar",       "barrier",
                                          "ret", "exit", "wgmma", "fence", "tcgen05",  "tensormap", NULL};

static const char *const any_defined[] = {"and", "or", NULL};

static bool listed(const char *const *list, const char *opcode) {
    for (; *list; list++)
        if (strcmp(*list, opcode) == 0)
            return true;
    return false;
}

/* tcgen05.ld, with a second result if it has .red. */
static bool is_tensor_load(const ptx_instr *instr) {
    return strcmp(instr->opcode, "tcgen05") == 0 && ptx_has(instr, "ld");
}

static bool has_result(const ptx_instr *instr) {
    return is_tensor_load(instr) || !listed(without_result, instr->opcode) || ptx_has(instr, "red");
}

typedef struct collector {
    int *slots; /* NULL: count alone */
    size_t count;
} collector;

static void collect(collector *out, int slot) {
    if (slot < 0)
        return;
    if (out->slots)
        out->slots[out->count] = slot;
    out->count++;
}

/* Registers of one operand: as results, or as inputs (an address is always an input). */
static void collect_operand(collector *out, const ptx_operand *operand, bool results, bool is_result) {
    switch (operand->kind) {
    case PTX_OPERAND_REGISTER:
        if (results == is_result) {
            collect(out, operand->slot);
            collect(out, operand->pair);
        }
        break;
    case PTX_OPERAND_VECTOR:
        for (int i = 0; i < operand->num_elements; i++)
            collect_operand(out, &operand->elements[i], results, is_result);
        break;
    case PTX_OPERAND_SINK: /* "_|p" */
        if (results && is_result)
            collect(out, operand->pair);
        break;
    case PTX_OPERAND_ADDRESS:
        if (!results) {
            collect(out, operand->slot);
            for (int i = 0; i < operand->num_elements; i++)
                collect_operand(out, &operand->elements[i], false, false);
        }
        break;
    default:
        break;
    }
}

/* An input that may be undefined: the value a shuffle moves, which other lanes may need; accumulators, which the first
 * wgmma of a chain ignores; all of mma, which finds out itself which results that concerns. */
static bool unchecked(const ptx_instr *instr, int i) {
    if (strcmp(instr->opcode, "mma") == 0)
        return true;
    return (i == 1 && strcmp(instr->opcode, "shfl") == 0) || (i == 0 && strcmp(instr->opcode, "wgmma") == 0);
}

static void prepare(sim_step *step, const ptx_instr *instr, collector *out) {
    bool result = has_result(instr), address = false;
    int results = !result ? 0 : is_tensor_load(instr) && ptx_has(instr, "red") ? 2 : 1;
    *step = (sim_step){.instr = instr,
                       .exec = instr->exec,
                       .guard = instr->guard,
                       .guard_negated = instr->guard_negated,
                       .gather = (uint8_t)instr->gather,
                       .first_slot = (uint32_t)out->count};
    for (int i = 0; i < instr->num_operands; i++) {
        address |= instr->operands[i].kind == PTX_OPERAND_ADDRESS;
        if (!unchecked(instr, i))
            collect_operand(out, &instr->operands[i], false, i < results);
    }
    step->num_reads = (uint16_t)(out->count - step->first_slot);
    size_t start = out->count;
    for (int i = 0; i < instr->num_operands; i++)
        if (unchecked(instr, i))
            collect_operand(out, &instr->operands[i], false, false);
    step->num_unchecked = (uint16_t)(out->count - start);
    start = out->count;
    for (int i = 0; i < results && i < instr->num_operands; i++)
        collect_operand(out, &instr->operands[i], true, true);
    if (strcmp(instr->opcode, "wgmma") == 0 && instr->num_operands > 0)
        collect_operand(out, &instr->operands[0], true, true);
    step->num_writes = (uint16_t)(out->count - start);

    bool waits = strcmp(instr->opcode, "mbarrier") == 0 && (ptx_has(instr, "try_wait") || ptx_has(instr, "test_wait"));
    unsigned flags = 0;
    if (sim_moves_pc(instr))
        flags |= SIM_STEP_MOVES_PC;
    if (step->num_writes > 0 && !address && instr->gather == PTX_GATHER_NONE && strcmp(instr->opcode, "wgmma") != 0)
        flags |= SIM_STEP_PROPAGATES;
    if (listed(any_defined, instr->opcode))
        flags |= SIM_STEP_ANY_DEFINED;
    if (strcmp(instr->opcode, "selp") == 0)
        flags |= SIM_STEP_SELECTS;
    if (waits)
        flags |= SIM_STEP_WAITS;
    else if (listed(with_effect, instr->opcode))
        flags |= SIM_STEP_EFFECT;
    if (strcmp(instr->opcode, "wgmma") == 0)
        flags |= SIM_STEP_ASYNC;
    step->flags = (uint8_t)flags;
}

bool sim_program_init(sim_program *program, const ptx_function *function) {
    size_t count = (size_t)function->num_instrs;
    *program = (sim_program){.steps = calloc(count + 1, sizeof(sim_step)), .num_steps = (uint32_t)count};
    if (!program->steps)
        return false;
    collector out = {0};
    for (size_t i = 0; i < count; i++)
        prepare(&program->steps[i], &function->instrs[i], &out);
    out.slots = program->slots = calloc(out.count + 1, sizeof(int));
    if (!program->slots) {
        sim_program_destroy(program);
        return false;
    }
    out.count = 0;
    for (size_t i = 0; i < count; i++)
        prepare(&program->steps[i], &function->instrs[i], &out);
    return true;
}

void sim_program_destroy(sim_program *program) {
    free(program->steps);
    free(program->slots);
    *program = (sim_program){0};
}
