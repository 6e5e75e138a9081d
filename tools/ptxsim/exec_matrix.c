/* SPDX-License-Identifier: MIT
 *
 * ldmatrix, stmatrix and movmatrix: matrices whose rows of 16 bytes lie in shared memory, spread over a warp's
 * registers. Lane R i + r gives the address of row r of matrix i, which has R rows.
 *
 * Where an element goes (PTX ISA, "ldmatrix", "stmatrix"; of the 8-bit ones, which it shows in pictures alone, the
 * layouts of CuTe's Copy_Traits SM100_U8x8_LDSM_T and SM100_U8x4_STSM_T, not tried on hardware): see place. Elements of
 * 4 and 6 bits are packed at the start of their row, the rest of which is padding; each becomes the lower bits of a
 * byte, as CUTLASS's fp4_shift_A expects. */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"

/* data[0]: index of the form, data[1]: matrices, data[2]: space */

enum { ROW_BYTES = 16, MAX_REGISTERS = 4 };

typedef enum layout {
    ROWS_16,       /* element (r, c), 16 bits: lane 4 r + c / 2, half c % 2 */
    COLUMNS_16,    /* the same with r and c exchanged */
    ROWS_8,        /* byte (r, c): lane 4 r + c / 4, byte c % 4 */
    COLUMNS_8,     /* byte (r, c): lane 4 (c % 8) + r / 2, byte r % 2 + 2 (c / 8) */
    COLUMNS_8_TALL /* byte (r, c): lane 4 (c % 8) + r / 4, register r / 2 % 2, byte r % 2 + 2 (c / 8) */
} layout;

typedef struct form {
    const char *opcode, *shape;
    bool transposed;
    const char *types; /* at the end */
    layout layout;
    int rows, registers; /* of a matrix */
    int packed;          /* bits of an element in memory, if they become bytes; else 0 */
    int most;            /* matrices */
} form;

static const form forms[] = {
    {"ldmatrix", "m8n8", false, "b16", ROWS_16, 8, 1, 0, 4},
    {"ldmatrix", "m8n8", true, "b16", COLUMNS_16, 8, 1, 0, 4},
    {"ldmatrix", "m16n16", true, "b8", COLUMNS_8_TALL, 16, 2, 0, 2},
    {"ldmatrix", "m16n16", true, "b8x16.b4x16_p64", COLUMNS_8_TALL, 16, 2, 4, 2},
    {"ldmatrix", "m16n16", true, "b8x16.b6x16_p32", COLUMNS_8_TALL, 16, 2, 6, 2},
    {"ldmatrix", "m8n16", false, "b8x16.b4x16_p64", ROWS_8, 8, 1, 4, 4},
    {"ldmatrix", "m8n16", false, "b8x16.b6x16_p32", ROWS_8, 8, 1, 6, 4},
    {"stmatrix", "m8n8", false, "b16", ROWS_16, 8, 1, 0, 4},
    {"stmatrix", "m8n8", true, "b16", COLUMNS_16, 8, 1, 0, 4},
    {"stmatrix", "m16n8", true, "b8", COLUMNS_8, 8, 1, 0, 4},
};

typedef struct place {
    int reg, lane, bit; /* register of the matrix */
} place;

/* Of element c of row r. */
static place place_of(layout how, int r, int c) {
    switch (how) {
    case ROWS_16:
        return (place){0, 4 * r + c / 2, 16 * (c % 2)};
    case COLUMNS_16:
        return (place){0, 4 * c + r / 2, 16 * (r % 2)};
    case ROWS_8:
        return (place){0, 4 * r + c / 4, 8 * (c % 4)};
    case COLUMNS_8:
        return (place){0, 4 * (c % 8) + r / 2, 8 * (r % 2 + 2 * (c / 8))};
    default:
        return (place){r / 2 % 2, 4 * (c % 8) + r / 4, 8 * (r % 2 + 2 * (c / 8))};
    }
}

static const ptx_operand *register_of(const ptx_operand *operand, int i) {
    return operand->kind == PTX_OPERAND_VECTOR ? &operand->elements[i] : operand;
}

static bool whole_warp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (mask == UINT32_MAX)
        return true;
    sim_fault(warp, instr, -1, "only lanes %#x of the warp execute it; all 32 must", mask);
    return false;
}

/* ---- ldmatrix ---- */

/* Element c of a row in memory. */
static uint32_t element_of(const form *f, const uint8_t *row, int c) {
    if (f->packed) {
        const int bit = c * f->packed;
        const uint32_t two = row[bit / 8] | (uint32_t)(bit / 8 + 1 < ROW_BYTES ? row[bit / 8 + 1] : 0) << 8;
        return two >> bit % 8 & ((1u << f->packed) - 1);
    }
    return f->layout == ROWS_16 || f->layout == COLUMNS_16 ? row[2 * c] | (uint32_t)row[2 * c + 1] << 8 : row[c];
}

static sim_result exec_ldmatrix(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask))
        return SIM_FAULT;
    const form *f = &forms[instr->data[0]];
    const int matrices = (int)instr->data[1], columns = f->layout == ROWS_16 || f->layout == COLUMNS_16 ? 8 : 16;
    uint32_t values[MAX_REGISTERS][SIM_LANES] = {{0}}, undefined[MAX_REGISTERS] = {0}; /* undefined: bits of lanes */
    for (int m = 0; m < matrices; m++) {
        for (int r = 0; r < f->rows; r++) {
            const int from = m * f->rows + r;
            bool gap = false;
            const uint8_t *row = sim_access_read(warp, instr, from, (ptx_space)instr->data[2],
                                                 sim_address(warp, &instr->operands[1], from), ROW_BYTES, &gap);
            if (row == NULL)
                return SIM_FAULT;
            if (f->layout == ROWS_16) { /* the usual one, quickly: four lanes take four bytes each */
                for (int i = 0; i < 4; i++)
                    memcpy(&values[m][4 * r + i], row + 4 * i, 4);
                undefined[m] |= (gap ? 0xfu : 0) << 4 * r;
                continue;
            }
            for (int c = 0; c < columns; c++) {
                const place at = place_of(f->layout, r, c);
                values[m * f->registers + at.reg][at.lane] |= element_of(f, row, c) << at.bit;
                undefined[m * f->registers + at.reg] |= (uint32_t)gap << at.lane;
            }
        }
    }
    for (int i = 0; i < matrices * f->registers; i++) {
        const ptx_operand *to = register_of(&instr->operands[0], i);
        for (int lane = 0; lane < SIM_LANES; lane++)
            sim_set(warp, to, lane, values[i][lane]);
        if (to->kind == PTX_OPERAND_REGISTER)
            sim_note_defined(warp, to->slot, undefined[i], false);
    }
    return SIM_DONE;
}

/* ---- stmatrix ---- */

static sim_result exec_stmatrix(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask))
        return SIM_FAULT;
    const form *f = &forms[instr->data[0]];
    const int bytes = f->layout == COLUMNS_8 ? 1 : 2;
    for (int m = 0; m < (int)instr->data[1]; m++) {
        for (int r = 0; r < f->rows; r++) {
            const int to = m * f->rows + r;
            uint8_t *row = sim_access(warp, instr, to, (ptx_space)instr->data[2],
                                      sim_address(warp, &instr->operands[0], to), ROW_BYTES, true);
            if (row == NULL)
                return SIM_FAULT;
            for (int c = 0; c < ROW_BYTES / bytes; c++) {
                const place at = place_of(f->layout, r, c);
                const uint64_t from = sim_operand(warp, register_of(&instr->operands[1], m), at.lane);
                const uint16_t element = (uint16_t)(from >> at.bit);
                memcpy(row + bytes * c, &element, (size_t)bytes);
            }
        }
    }
    return SIM_DONE;
}

/* ---- movmatrix: transposes a matrix of 8 x 8 elements of 16 bits ---- */

static sim_result exec_movmatrix(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint32_t values[SIM_LANES] = {0};
    if (!whole_warp(warp, instr, mask))
        return SIM_FAULT;
    for (int r = 0; r < 8; r++) {
        for (int c = 0; c < 8; c++) {
            const place from = place_of(ROWS_16, r, c), to = place_of(COLUMNS_16, r, c);
            const uint64_t bits = sim_operand(warp, &instr->operands[1], from.lane);
            values[to.lane] |= (uint32_t)(bits >> from.bit & 0xffff) << to.bit;
        }
    }
    for (int lane = 0; lane < SIM_LANES; lane++)
        sim_set(warp, &instr->operands[0], lane, values[lane]);
    return SIM_DONE;
}

/* ---- Binding ---- */

static bool is_vector(const ptx_operand *operand, int count) {
    if (count == 1 && operand->kind == PTX_OPERAND_REGISTER)
        return true;
    return operand->kind == PTX_OPERAND_VECTOR && operand->num_elements == count;
}

/* .sync.aligned.SHAPE.xN[.trans][.shared].TYPES, in any order but that of the types. */
bool bind_matrix(ptx_instr *instr, char *error, size_t error_size) {
    const char *shape = "";
    char types[32] = "";
    int matrices = 0, sync = 0;
    bool transposed = false, shared = false;
    for (int i = 0; i < instr->num_modifiers; i++) {
        const char *word = instr->modifiers[i];
        if (strcmp(word, "sync") == 0 || strcmp(word, "aligned") == 0)
            sync++;
        else if (word[0] == 'm')
            shape = word;
        else if (word[0] == 'x' && (word[1] == '1' || word[1] == '2' || word[1] == '4') && !word[2])
            matrices = word[1] - '0';
        else if (strcmp(word, "trans") == 0)
            transposed = true;
        else if (strcmp(word, "shared") == 0 || strcmp(word, "shared::cta") == 0)
            shared = true;
        else
            snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s", *types ? "." : "", word);
    }
    const int value = strcmp(instr->opcode, "ldmatrix") == 0 ? 0 : 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        if (strcmp(f->opcode, instr->opcode) != 0 || strcmp(f->shape, shape) != 0 || strcmp(f->types, types) != 0 ||
            f->transposed != transposed || matrices < 1 || matrices > f->most || sync != 2)
            continue;
        if (instr->num_operands != 2 || instr->operands[1 - value].kind != PTX_OPERAND_ADDRESS ||
            !is_vector(&instr->operands[value], matrices * f->registers)) {
            snprintf(error, error_size, "%s: this form has an address and %d registers", instr->opcode,
                     matrices * f->registers);
            return false;
        }
        instr->exec = value == 0 ? exec_ldmatrix : exec_stmatrix;
        instr->gather = PTX_GATHER_ALIGNED;
        instr->data[0] = i;
        instr->data[1] = (uint64_t)matrices;
        instr->data[2] = shared ? PTX_SHARED : PTX_GENERIC;
        return true;
    }
    snprintf(error, error_size, "%s: there is no such form", instr->opcode);
    return false;
}

bool bind_movmatrix(ptx_instr *instr, char *error, size_t error_size) {
    const bool fits = instr->num_operands == 2 && instr->operands[0].kind == PTX_OPERAND_REGISTER &&
                      instr->operands[1].kind == PTX_OPERAND_REGISTER && instr->num_modifiers == 5 &&
                      ptx_has(instr, "sync") && ptx_has(instr, "aligned") && ptx_has(instr, "m8n8") &&
                      ptx_has(instr, "trans") && ptx_has(instr, "b16");
    if (!fits) {
        snprintf(error, error_size, "movmatrix: it is movmatrix.sync.aligned.m8n8.trans.b16 with two registers");
        return false;
    }
    instr->exec = exec_movmatrix;
    instr->gather = PTX_GATHER_ALIGNED;
    return true;
}
