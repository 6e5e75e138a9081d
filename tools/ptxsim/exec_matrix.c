/* SPDX-License-Identifier: MIT
 * ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements between shared memory and a warp's registers. Lane l holds
 * elements (l / 4, 2 (l % 4) + {0, 1}); lanes 8i to 8i + 7 give the addresses of matrix i's rows. */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"

/* data[0]: matrices, data[1]: transposed, data[2]: space */

enum { ROWS = 8, ROW_BYTES = 16 };

static const ptx_operand *register_of(const ptx_operand *operand, int i) {
    return operand->kind == PTX_OPERAND_VECTOR ? &operand->elements[i] : operand;
}


static bool whole_warp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (mask == UINT32_MAX)
        return true;
    sim_fault(warp, instr, -1, "only lanes %#x of the warp execute it; all 32 must", mask);
    return false;
}

/* Element (row, column) of a matrix: its lane, and half of that lane's register. */
static int lane_of(int row, int column) {
    return row * 4 + column / 2;
}

static sim_result exec_ldmatrix(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask))
        return SIM_FAULT;
    uint32_t values[4][SIM_LANES], undefined[4] = {0}; /* undefined: bits of lanes */
    memset(values, 0, sizeof(values));
    const int matrices = (int)instr->data[0];
    for (int m = 0; m < matrices; m++) {
        for (int r = 0; r < ROWS; r++) {
            const int from = m * ROWS + r;
            bool gap = false;
            const uint8_t *row = sim_access_read(warp, instr, from, (ptx_space)instr->data[2],
                                                 sim_address(warp, &instr->operands[1], from), ROW_BYTES, &gap);
            if (row == NULL)
                return SIM_FAULT;
            for (int c = 0; c < ROWS; c++) {
                uint16_t element = 0;
                memcpy(&element, row + 2 * c, 2);
                const int lane = instr->data[1] ? lane_of(c, r) : lane_of(r, c);
                values[m][lane] |= (uint32_t)element << 16 * (instr->data[1] ? r % 2 : c % 2);
                undefined[m] |= (uint32_t)gap << lane;
            }
        }
    }
    for (int m = 0; m < matrices; m++) {
        for (int lane = 0; lane < SIM_LANES; lane++)
            sim_set(warp, register_of(&instr->operands[0], m), lane, values[m][lane]);
        if (register_of(&instr->operands[0], m)->kind == PTX_OPERAND_REGISTER)
            sim_note_defined(warp, register_of(&instr->operands[0], m)->slot, undefined[m], false);
    }
    return SIM_DONE;
}

static sim_result exec_stmatrix(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (!whole_warp(warp, instr, mask))
        return SIM_FAULT;
    for (int m = 0; m < (int)instr->data[0]; m++) {
        const ptx_operand *from = register_of(&instr->operands[1], m);
        for (int r = 0; r < ROWS; r++) {
            const int to = m * ROWS + r;
            uint8_t *row = sim_access(warp, instr, to, (ptx_space)instr->data[2],
                                      sim_address(warp, &instr->operands[0], to), ROW_BYTES, true);
            if (row == NULL)
                return SIM_FAULT;
            for (int c = 0; c < ROWS; c++) {
                const int lane = instr->data[1] ? lane_of(c, r) : lane_of(r, c);
                const uint64_t pair = sim_operand(warp, from, lane);
                const uint16_t element = (uint16_t)(pair >> 16 * (instr->data[1] ? r % 2 : c % 2));
                memcpy(row + 2 * c, &element, 2);
            }
        }
    }
    return SIM_DONE;
}

static bool bind_matrix(ptx_instr *instr, int value, sim_exec exec, char *error, size_t error_size) {
    static const struct {
        const char *name;
        int matrices;
        bool transposed, shared;
    } known[] = {
        {"sync", 0, false, false}, {"aligned", 0, false, false}, {"m8n8", 0, false, false},
        {"x1", 1, false, false},   {"x2", 2, false, false},      {"x4", 4, false, false},
        {"trans", 0, true, false}, {"shared", 0, false, true},   {"shared::cta", 0, false, true},
        {"b16", 0, false, false},
    };
    int matrices = 0;
    bool transposed = false;
    bool shared = false;
    for (int i = 0; i < instr->num_modifiers; i++) {
        size_t k = 0;
        while (k < sizeof(known) / sizeof(*known) && strcmp(known[k].name, instr->modifiers[i]) != 0)
            k++;
        if (k == sizeof(known) / sizeof(*known)) {
            snprintf(error, error_size, "%s: .%s is not implemented", instr->opcode, instr->modifiers[i]);
            return false;
        }
        matrices += known[k].matrices;
        transposed = transposed || known[k].transposed;
        shared = shared || known[k].shared;
    }
    const ptx_operand *registers = &instr->operands[value];
    const int count = registers->kind == PTX_OPERAND_VECTOR ? registers->num_elements : 1;
    if (instr->num_operands != 2 || instr->operands[1 - value].kind != PTX_OPERAND_ADDRESS || matrices == 0 ||
        matrices != count || !ptx_has(instr, "m8n8") || !ptx_has(instr, "b16")) {
        snprintf(error, error_size, "%s: this form is not implemented", instr->opcode);
        return false;
    }
    instr->exec = exec;
    instr->gather = PTX_GATHER_ALIGNED;
    instr->data[0] = (uint64_t)matrices;
    instr->data[1] = transposed;
    instr->data[2] = shared ? PTX_SHARED : PTX_GENERIC;
    return true;
}

bool bind_ldmatrix(ptx_instr *instr, char *error, size_t error_size) {
    return bind_matrix(instr, 0, exec_ldmatrix, error, error_size);
}

bool bind_stmatrix(ptx_instr *instr, char *error, size_t error_size) {
    return bind_matrix(instr, 1, exec_stmatrix, error, error_size);
}
