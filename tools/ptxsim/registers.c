/* SPDX-License-Identifier: MIT
 *
 * Values of operands in one lane, and the generator behind everything random in a CTA. */
#include <string.h>

#include "sim.h"

static uint64_t cut(uint64_t bits, int width) {
    return width > 0 && width < 64 ? bits & ((UINT64_C(1) << width) - 1) : bits;
}

/* A variable's address in its own space. */
static uint64_t variable_address(const sim_warp *warp, const ptx_variable *variable) {
    if (variable->space == PTX_GLOBAL || variable->space == PTX_CONST)
        return (uint64_t)(uintptr_t)warp->cta->launch->module_image + variable->offset;
    return variable->offset;
}

uint64_t sim_operand(sim_warp *warp, const ptx_operand *operand, int lane) {
    uint64_t value = 0;
    switch (operand->kind) {
    case PTX_OPERAND_REGISTER:
        value = cut(sim_register(warp, operand->slot)[lane], operand->width);
        return operand->negated ? value ^ 1 : value;
    case PTX_OPERAND_INTEGER:
        return operand->bits;
    case PTX_OPERAND_SPECIAL:
        sim_special(warp, operand->name, lane, &value);
        return value;
    case PTX_OPERAND_SYMBOL:
        return variable_address(warp, operand->variable) + (uint64_t)operand->offset;
    case PTX_OPERAND_ADDRESS:
        return sim_address(warp, operand, lane);
    default: /* binding refuses these as scalars */
        return 0;
    }
}

uint64_t sim_operand_real(sim_warp *warp, const ptx_operand *operand, int lane, int bits) {
    if (operand->kind != PTX_OPERAND_REAL)
        return cut(sim_operand(warp, operand, lane), bits);
    uint64_t value = 0;
    if (bits == 64) {
        memcpy(&value, &operand->real, sizeof(double));
    } else {
        float narrow = (float)operand->real;
        memcpy(&value, &narrow, sizeof(float));
    }
    return value;
}

void sim_set(sim_warp *warp, const ptx_operand *operand, int lane, uint64_t bits) {
    if (operand->kind == PTX_OPERAND_REGISTER)
        sim_register(warp, operand->slot)[lane] = cut(bits, operand->width);
}

uint64_t sim_address(sim_warp *warp, const ptx_operand *operand, int lane) {
    uint64_t base = operand->variable ? variable_address(warp, operand->variable) : operand->bits;
    bool narrow = false;
    if (operand->slot >= 0) {
        uint64_t value = cut(sim_register(warp, operand->slot)[lane], operand->width);
        /* A 32-bit register wraps at 32 bits: compilers count loops with bases below zero. Where its width is unknown,
         * no 64-bit address lies so low. */
        narrow = operand->width == 32 || (operand->width == 0 && value <= UINT32_MAX);
        base += value;
    }
    base += (uint64_t)operand->offset;
    return narrow ? base & UINT32_MAX : base;
}

uint64_t sim_random(sim_cta *cta) {
    uint64_t z = cta->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
