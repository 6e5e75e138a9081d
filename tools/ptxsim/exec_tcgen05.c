/* SPDX-License-Identifier: MIT
 * tcgen05: its forms, and the instructions that allocate, wait, fence and commit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec.h"
#include "memory.h"
#include "tcgen05.h"

bool tcgen05_whole_warp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (mask == UINT32_MAX)
        return true;
    sim_fault(warp, instr, -1, "only lanes %#" PRIx32 " of the warp execute it; all 32 must", mask);
    return false;
}

bool tcgen05_uniform(sim_warp *warp, const ptx_instr *instr, const ptx_operand *operand, uint64_t *value) {
    *value = sim_operand(warp, operand, 0);
    for (int lane = 1; lane < SIM_LANES; lane++) {
        const uint64_t other = sim_operand(warp, operand, lane);
        if (other == *value)
            continue;
        sim_fault(warp, instr, lane, "operand %d is %#" PRIx64 " in this lane and %#" PRIx64 " in lane 0",
                  (int)(operand - instr->operands) + 1, other, *value);
        return false;
    }
    return true;
}

bool tcgen05_must_wait(const sim_cta *cta, const tmem_pending *op) {
    for (const struct sim_async *other = cta->pending; other != NULL && other != &op->base; other = other->next) {
        const tmem_pending *before = (const tmem_pending *)other;
        if (other->kind == SIM_ASYNC_TCGEN05 && tmem_pipelined(&before->op, &op->op))
            return true;
    }
    return false;
}

/* ---- Allocation: data[0]: exclusive ---------------------------------------------------------------------------- */

/* Columns of the device; beyond 512 they are for exclusive allocations. */
static int capacity_of(const sim_warp *warp) {
    return strncmp(warp->cta->launch->module->target, "sm_107", 6) == 0 ? TMEM_COLUMNS : TMEM_SHARED_COLUMNS;
}

static sim_result exec_alloc(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t address = 0, columns = 0;
    if (!tcgen05_whole_warp(warp, instr, mask) || !tcgen05_uniform(warp, instr, &instr->operands[0], &address) ||
        !tcgen05_uniform(warp, instr, &instr->operands[1], &columns))
        return SIM_FAULT;
    if (!ptx_has(instr, "shared::cta") && address - SIM_SHARED_WINDOW >= SIM_WINDOW_BYTES)
        return sim_fault(warp, instr, -1, "%#" PRIx64 " is no generic address of shared memory", address);
    const int column = tmem_allocate(warp, instr, (uint32_t)columns, instr->data[0] != 0, capacity_of(warp));
    if (column < 0)
        return column == -1 ? SIM_RETRY : SIM_FAULT;
    race_meet(warp, mask); /* the lanes write together, and (as in the ISA's example) each may read at once */
    uint8_t *to = sim_access(warp, instr, 0, PTX_SHARED, address, 4, true);
    if (to == NULL)
        return SIM_FAULT;
    memcpy(to, &(uint32_t){(uint32_t)column}, 4);
    race_meet(warp, mask);
    return SIM_DONE;
}

static sim_result exec_dealloc(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t address = 0, columns = 0;
    if (!tcgen05_whole_warp(warp, instr, mask) || !tcgen05_uniform(warp, instr, &instr->operands[0], &address) ||
        !tcgen05_uniform(warp, instr, &instr->operands[1], &columns) ||
        !tmem_release(warp, instr, (uint32_t)address, (uint32_t)columns, instr->data[0] != 0))
        return SIM_FAULT;
    return SIM_DONE;
}

static sim_result exec_relinquish(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    tmem *t = tmem_of(warp, instr);
    if (t == NULL || !tcgen05_whole_warp(warp, instr, mask))
        return SIM_FAULT;
    t->relinquished = true;
    return SIM_DONE;
}

/* ---- Order ----------------------------------------------------------------------------------------------------- */

/* data[0]: after, not before */
static sim_result exec_fence(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)mask;
    tmem *t = tmem_of(warp, instr);
    if (t == NULL)
        return SIM_FAULT;
    if (instr->data[0])
        tmem_fence_after(t, warp);
    else
        tmem_fence_before(t, warp);
    return SIM_DONE;
}

/* data[0]: a tmem_op_type */
static sim_result exec_wait(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    tmem *t = tmem_of(warp, instr);
    if (t == NULL || !tcgen05_whole_warp(warp, instr, mask))
        return SIM_FAULT;
    for (const struct sim_async *other = warp->cta->pending; other != NULL; other = other->next) {
        const tmem_op *op = &((const tmem_pending *)other)->op;
        if (other->kind == SIM_ASYNC_TCGEN05 && op->type == instr->data[0] && other->warp == warp)
            return SIM_RETRY;
    }
    tmem_warp *w = &t->warps[warp->index];
    if (instr->data[0] == TMEM_LD) {
        w->known.loaded[warp->index] = w->loads;
        tcgen05_disown(warp);
    } else {
        w->known.stored[warp->index] = w->stores;
    }
    return SIM_DONE;
}

/* Arrives when what the thread had issued is done. */
static sim_async_step commit_step(sim_cta *cta, struct sim_async *op) {
    tmem_commit *c = (tmem_commit *)op;
    for (const struct sim_async *other = cta->pending; other != op; other = other->next) {
        if (other->kind != SIM_ASYNC_TCGEN05 || other->warp != op->warp || other->lane != op->lane)
            continue;
        const uint8_t type = ((const tmem_pending *)other)->op.type;
        if (type == TMEM_MMA || type == TMEM_CP || type == TMEM_CP_4X256B || type == TMEM_SHIFT)
            return SIM_ASYNC_BLOCKED;
    }
    tmem_tell_mbarrier(cta, &c->clock, (size_t)sim_shared_offset(c->address));
    if (c->finished.time != 0)
        race_unit_observe(cta, &op->unit, c->finished);
    sim_mbarrier_arrive_async(op, op->lane, c->address, 1);
    return SIM_ASYNC_DONE;
}

static sim_result exec_commit(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const tmem *t = tmem_of(warp, instr);
    if (t == NULL)
        return SIM_FAULT;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t address = sim_address(warp, &instr->operands[0], lane);
        const uint64_t ctas = instr->num_operands == 2 ? sim_operand(warp, &instr->operands[1], lane) & 0xffff : 1;
        if (ctas != 1)
            return sim_fault(warp, instr, lane, "CTA mask %#" PRIx64 ": the cluster has one CTA, bit 0", ctas);
        if (!sim_mbarrier_check(warp, instr, lane, address))
            return SIM_FAULT;
        tmem_commit *c = (tmem_commit *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*c), SIM_ASYNC_TCGEN05);
        if (c == NULL)
            return SIM_FAULT;
        c->address = address;
        tmem_commit_clock(t, warp, &c->clock);
        c->finished = t->warps[warp->index].finished;
        c->base.base.step = commit_step;
        sim_async_queue(warp->cta, &c->base.base);
    }
    return SIM_DONE;
}

/* ---- Binding --------------------------------------------------------------------------------------------------- */

/* Written forms: modifiers in order, alternatives parted by |, optional ones with ?. Operands: a address, v value, i
 * integer literal, r vector of registers. */
typedef struct form {
    const char *modifiers, *operands;
    sim_exec exec;
    bool collective; /* .sync.aligned */
    uint64_t data;
    bool (*bind)(ptx_instr *instr, char *error, size_t error_size); /* more of it, or NULL */
} form;

#define FORMATS " b8x16? b6x16_p32|b4x16_p64?"
#define COUNTS  " x1|x2|x4|x8|x16|x32|x64|x128"
static const form FORMS[] = {
    {"alloc cta_group::1 sync aligned shared::cta? b32", "av", exec_alloc, true, 0, NULL},
    {"alloc exclusive cta_group::1 sync aligned shared::cta? b32", "av", exec_alloc, true, 1, NULL},
    {"dealloc cta_group::1 sync aligned b32", "vv", exec_dealloc, true, 0, NULL},
    {"dealloc exclusive cta_group::1 sync aligned b32", "vv", exec_dealloc, true, 1, NULL},
    {"relinquish_alloc_permit cta_group::1 sync aligned", "", exec_relinquish, true, 0, NULL},
    {"fence::before_thread_sync", "", exec_fence, false, 0, NULL},
    {"fence::after_thread_sync", "", exec_fence, false, 1, NULL},
    {"wait::ld sync aligned", "", exec_wait, true, TMEM_LD, NULL},
    {"wait::st sync aligned", "", exec_wait, true, TMEM_ST, NULL},
    {"commit cta_group::1 mbarrier::arrive::one shared::cluster? b64", "a", exec_commit, false, 0, NULL},
    {"commit cta_group::1 mbarrier::arrive::one shared::cluster? multicast::cluster b64", "av", exec_commit, false, 0,
     NULL},
    {"cp cta_group::1 128x256b|4x256b|128x128b" FORMATS, "av", tcgen05_exec_cp, false, 0, tcgen05_bind_cp},
    {"cp cta_group::1 64x128b warpx2::02_13|warpx2::01_23" FORMATS, "av", tcgen05_exec_cp, false, 0, tcgen05_bind_cp},
    {"cp cta_group::1 32x128b warpx4" FORMATS, "av", tcgen05_exec_cp, false, 0, tcgen05_bind_cp},
    {"shift cta_group::1 down", "a", tcgen05_exec_shift, false, 0, NULL},
    {"shift down cta_group::1", "a", tcgen05_exec_shift, false, 0, NULL},
    {"ld sync aligned 32x32b|16x64b|16x128b|16x256b" COUNTS " pack::16b? b32", "ra", tcgen05_exec_ld, true, 0,
     tcgen05_bind_ld_st},
    {"ld sync aligned 16x32bx2" COUNTS " pack::16b? b32", "rai", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"ld red sync aligned 32x32b" COUNTS " min|max abs? NaN? f32", "rva", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"ld red sync aligned 32x32b" COUNTS " min|max u32|s32", "rva", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"ld red sync aligned 16x32bx2" COUNTS " min|max abs? NaN? f32", "rvai", tcgen05_exec_ld, true, 0,
     tcgen05_bind_ld_st},
    {"ld red sync aligned 16x32bx2" COUNTS " min|max u32|s32", "rvai", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    /* The ISA's example has the type first. */
    {"ld red sync aligned 32x32b" COUNTS " f32 min|max abs? NaN?", "rva", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"ld red sync aligned 32x32b" COUNTS " u32|s32 min|max", "rva", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"ld red sync aligned 16x32bx2" COUNTS " f32 min|max abs? NaN?", "rvai", tcgen05_exec_ld, true, 0,
     tcgen05_bind_ld_st},
    {"ld red sync aligned 16x32bx2" COUNTS " u32|s32 min|max", "rvai", tcgen05_exec_ld, true, 0, tcgen05_bind_ld_st},
    {"st sync aligned 32x32b|16x64b|16x128b|16x256b" COUNTS " unpack::16b? b32", "ar", tcgen05_exec_st, true, 0,
     tcgen05_bind_ld_st},
    {"st sync aligned 16x32bx2" COUNTS " unpack::16b? b32", "air", tcgen05_exec_st, true, 0, tcgen05_bind_ld_st},
};

static bool modifiers_fit(const char *pattern, const ptx_instr *instr) {
    int next = 0;
    while (*pattern != '\0') {
        char words[96];
        const size_t length = strcspn(pattern, " ");
        const bool optional = length > 0 && pattern[length - 1] == '?';
        snprintf(words, sizeof(words), "%.*s", (int)(length - optional), pattern);
        if (next < instr->num_modifiers && exec_listed(words, instr->modifiers[next]))
            next++;
        else if (!optional)
            return false;
        pattern += length;
        pattern += strspn(pattern, " ");
    }
    return next == instr->num_modifiers;
}

static bool operand_fits(char letter, const ptx_operand *operand) {
    switch (letter) {
    case 'a':
        return operand->kind == PTX_OPERAND_ADDRESS && operand->num_elements == 0;
    case 'i':
        return operand->kind == PTX_OPERAND_INTEGER;
    case 'r':
        for (int i = 0; i < operand->num_elements; i++) {
            if (operand->elements[i].kind != PTX_OPERAND_REGISTER)
                return false;
        }
        return operand->kind == PTX_OPERAND_VECTOR;
    default:
        return (operand->kind == PTX_OPERAND_REGISTER && !operand->negated) || operand->kind == PTX_OPERAND_INTEGER;
    }
}

static bool operands_fit(const char *letters, const ptx_instr *instr) {
    if ((size_t)instr->num_operands != strlen(letters))
        return false;
    for (int i = 0; i < instr->num_operands; i++) {
        if (!operand_fits(letters[i], &instr->operands[i]))
            return false;
    }
    return true;
}

static bool bind_tcgen05(ptx_instr *instr, char *error, size_t error_size) {
    const char *name = instr->num_modifiers > 0 ? instr->modifiers[0] : "";
    if (ptx_has(instr, "cta_group::2")) {
        snprintf(error, error_size, "tcgen05.%.40s: cta_group::2 is not modelled, as clusters have one CTA", name);
        return false;
    }
    if (strcmp(name, "mma") == 0)
        return tcgen05_bind_mma(instr, error, error_size);
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(*FORMS); i++) {
        const form *f = &FORMS[i];
        if (!modifiers_fit(f->modifiers, instr))
            continue;
        if (!operands_fit(f->operands, instr)) {
            snprintf(error, error_size, "tcgen05.%.40s: wrong operands for this form", name);
            return false;
        }
        instr->exec = f->exec;
        instr->gather = f->collective ? PTX_GATHER_ALIGNED : PTX_GATHER_NONE;
        instr->data[0] = f->data;
        return f->bind == NULL || f->bind(instr, error, error_size);
    }
    snprintf(error, error_size, "tcgen05.%.40s: this form is not known", name);
    return false;
}

const sim_op sim_ops_tcgen05[] = {{"tcgen05", bind_tcgen05}, {NULL, NULL}};
