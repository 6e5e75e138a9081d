/* SPDX-License-Identifier: MIT
 *
 * Instruction tables that accept whatever is written well, for tests of the parser alone. Included once per program. */
#ifndef PTXSIM_TESTS_FAKE_OPS_H_
#define PTXSIM_TESTS_FAKE_OPS_H_

#include <stdio.h>

#include "ptx.h"

static sim_result fake_exec(struct sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)warp;
    (void)instr;
    (void)mask;
    return SIM_DONE;
}

static bool fake_bind(ptx_instr *instr, char *error, size_t error_size) {
    (void)error;
    (void)error_size;
    instr->exec = fake_exec;
    return true;
}

/* "add" is shared: integers here, f32 in the next table. Saturation is known here to be missing. */
static bool fake_bind_integer_add(ptx_instr *instr, char *error, size_t error_size) {
    instr->data[0] = 77; /* must not reach the next table */
    if (!ptx_has(instr, "s32") && !ptx_has(instr, "s64"))
        return false;
    if (ptx_has(instr, "sat")) {
        snprintf(error, error_size, "add: modifier .sat is not supported");
        return false;
    }
    instr->data[0] = 1;
    return fake_bind(instr, error, error_size);
}

static bool fake_bind_float_add(ptx_instr *instr, char *error, size_t error_size) {
    if (!ptx_has(instr, "f32") || instr->data[0] != 0)
        return false;
    instr->data[0] = 2;
    return fake_bind(instr, error, error_size);
}

/* Gathers by a member mask that the instruction must have. */
static bool fake_bind_gather(ptx_instr *instr, char *error, size_t error_size) {
    instr->gather = PTX_GATHER_MASK;
    instr->gather_operand = 2;
    return fake_bind(instr, error, error_size);
}

#define FAKE(opcode)                                                                                                   \
    { opcode, fake_bind }
#define FAKE_END                                                                                                       \
    { NULL, NULL }

const sim_op sim_ops_integer[] = {{"add", fake_bind_integer_add},
                                  FAKE("sub"),
                                  FAKE("mul"),
                                  FAKE("mad"),
                                  FAKE("div"),
                                  FAKE("rem"),
                                  FAKE("min"),
                                  FAKE("max"),
                                  FAKE("and"),
                                  FAKE("or"),
                                  FAKE("xor"),
                                  FAKE("not"),
                                  FAKE("shl"),
                                  FAKE("shr"),
                                  FAKE("bfi"),
                                  FAKE("bfind"),
                                  FAKE("brev"),
                                  FAKE("popc"),
                                  FAKE_END};
const sim_op sim_ops_float[] = {{"add", fake_bind_float_add}, FAKE("fma"), FAKE_END};
const sim_op sim_ops_half[] = {FAKE_END};
const sim_op sim_ops_convert[] = {FAKE("cvt"), FAKE("cvta"), FAKE_END};
const sim_op sim_ops_move[] = {FAKE("mov"), FAKE("selp"), FAKE("setp"), FAKE_END};
const sim_op sim_ops_memory[] = {FAKE("ld"), FAKE("st"), FAKE("prefetch"), FAKE_END};
const sim_op sim_ops_control[] = {
    FAKE("bra"), FAKE("brx"), FAKE("ret"), FAKE("exit"), FAKE("trap"), FAKE("bar"), FAKE("griddepcontrol"), FAKE_END};
const sim_op sim_ops_warp[] = {FAKE("shfl"), {"vote", fake_bind_gather}, FAKE("redux"), FAKE_END};
const sim_op sim_ops_barrier[] = {FAKE("mbarrier"), FAKE_END};
const sim_op sim_ops_cluster[] = {FAKE_END};
const sim_op sim_ops_store_async[] = {FAKE_END};
const sim_op sim_ops_async[] = {FAKE("cp"), FAKE("fence"), FAKE_END};
const sim_op sim_ops_call[] = {FAKE("call"), FAKE_END};
const sim_op sim_ops_mma[] = {FAKE("mma"), FAKE_END};
const sim_op sim_ops_wgmma[] = {FAKE("wgmma"), FAKE_END};
const sim_op sim_ops_tcgen05[] = {FAKE_END};

#endif
