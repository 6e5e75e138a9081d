/* SPDX-License-Identifier: MIT
 *
 * Short modules that have, between them, everything the parser knows; all parse and bind with fake_ops.h. */
#ifndef PTXSIM_TESTS_PTX_SAMPLES_H_
#define PTXSIM_TESTS_PTX_SAMPLES_H_

#define PTX_HEADER ".version 8.3\n.target sm_90a\n.address_size 64\n"

/* A kernel in the manner of a compiler: inline assembly, a tensor copy, a barrier, dynamic shared memory. */
static const char sample_kernel[] =
    "//\n// Made by hand\n//\n" PTX_HEADER "\n"
    "\t// .globl\tkernel\n"
    ".extern .shared .align 1024 .b8 dynamic[];\n"
    ".visible .entry kernel(\n"
    "\t.param .align 64 .b8 kernel_param_0[128],\n"
    "\t.param .u32 kernel_param_1,\n"
    "\t.param .u64 .ptr .global .align 16 kernel_param_2\n"
    ")\n"
    ".maxntid 128, 2, 1\n"
    ".minnctapersm 1\n"
    "{\n"
    "\t.pragma \"used_bytes_mask 8\";\n"
    "\t.reg .pred \t%p<5>;\n"
    "\t.reg .b32 \t%r<12>;\n"
    "\t.reg .b64 \t%rd<6>;\n"
    "\t.reg .f32 %f<4>;\n"
    "\t// demoted variable\n"
    "\t.shared .align 8 .b8 tiles[100];\n"
    "\tld.param.u32 \t%r1, [kernel_param_1];\n"
    "\tmov.b64 %rd1, kernel_param_0;\n"
    "\tmov.u32 %r2, dynamic;\n"
    "\tmov.u32 %r3, %tid.x;\n"
    "\tsetp.eq.s32 \t%p1, %r3, 0;\n"
    "\t@!%p1 bra \t$L__BB0_2;\n"
    "\t// begin inline asm\n"
    "\t{\n.reg .pred p;\n.reg .b64 %tmp;\n"
    "waiting:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%r2+-8], %r3;\n"
    "@p bra.uni ready;\nbra.uni waiting;\nready:\n}\n"
    "\t// end inline asm\n"
    "\tcp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%r2+1024], "
    "[%rd1, {%r3, %r1}], [%r2], %rd2;\n"
    "$L__BB0_2:\n"
    "\twgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0,\n%f1, %f2, %f3}, %rd3, %rd4, %p2, 1, -1;\n"
    "\tshfl.sync.idx.b32 \t%r5|%p2, %r6, %r7, 31, -1;\n"
    "\tvote.sync.ballot.b32 %r8, !%p2, 0xffffffffU;\n"
    "\tmbarrier.arrive.expect_tx.shared::cta.b64 _, [tiles+16], %r9;\n"
    "\tadd.f32 %f1, %f2, 0f3F800000;\n"
    "\tst.shared.v2.f32 [tiles], {%f1, %f2};\n"
    "\tret;\n\n}\n";

/* Variables with initialisers, functions, debug information, everything that is skipped. */
static const char sample_data[] = PTX_HEADER
    "/* data */ .file 1 \"kernel.cu\"\n"
    ".global .align 4 .u32 counter;\n"
    ".const .align 16 .b8 bytes[6] = {1, 0x22, 0b11, 017, -1, 255};\n"
    ".const .f32 reals[4] = {0f3F800000, -2.5, 1e-3, 3};\n"
    ".visible .global .f64 wide = 0dBFF0000000000000;\n"
    ".global .u16 grid[2][3] = {{1, 2, 3}, {4}};\n"
    ".global .v2 .s32 pair = {-5, 6}, other;\n"
    ".shared .align 16 .b32 common[3];\n"
    ".extern .shared .align 128 .b8 dynamic[];\n"
    ".extern .func (.param .b32 result) helper(.param .b64 a, .param .b64 b) .noreturn;\n"
    ".weak .func twice(.param .u32 x)\n{\n.reg .u32 a;\nld.param.u32 a, [x];\nadd.s32 a, a, a;\n}\n"
    ".pragma \"nounroll\";\n"
    ".entry first() .reqntid 32 .maxnreg 64\n{\n"
    ".reg .b32 %r<4>;\n.reg .b64 %SP, %SPL;\n.local .align 16 .b8 __local_depot0[24];\n.local .b64 spill;\n"
    ".loc 1 12 3\nmov.u64 %SPL, __local_depot0;\n"
    ".loc 1 13 5, function_name $L__info_string0+4, inlined_at 1 12 3\n"
    "ld.global.u32 %r1, [counter+4];\nld.const.u8 %r2, [bytes-1];\nmov.u32 %r3, dynamic+256;\n"
    "mov.u32 %r1, common;\n"
    "{ .reg .b32 %r<2>; .reg .pred %p; mov.b32 %r1, WARP_SZ; { .reg .b64 %r1; mov.u64 %r1, 18446744073709551615; }"
    " mov.b32 %r0, %laneid; @%p bra end; }\n"
    "$L__tmp0:\nmov.f32 %r2, 1.5;\nend:\n}\n"
    ".entry second\n{\n.shared .align 4 .b8 own[10];\n.reg .b32 a;\nmov.u32 a, own;\nmov.u32 a, dynamic;\n"
    "ld.shared.u32 a, [64];\nbra.uni done;\ndone: exit;\n}\n"
    ".section .debug_str\n{\n$L__info_string0:\n.b8 107,0\n.b32 $L__tmp0\n{ .b8 \"x\" }\n}\n"
    ".file 3 \"other.h\", 1700000000, 42\n";

/* Calls in all their forms, and branches by a list. */
static const char sample_calls[] = PTX_HEADER
    ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);\n"
    ".func inner()\n{\n.shared .align 8 .b8 own[16];\n.reg .b32 a;\nmov.b32 a, own;\nret;\n}\n"
    ".func (.param .b32 result) outer(.param .b32 x, .param .align 8 .b8 y[16])\n{\n"
    ".reg .b32 %r<3>;\n.reg .pred p;\n.local .b64 spill;\nld.param.b32 %r1, [x];\nsetp.eq.s32 p, %r1, 0;\n"
    "@p bra done;\ncall inner;\n@!p call.uni inner, ();\nst.param.b32 [result], %r1;\ndone:\n@p ret;\nst.param.b32 "
    "[result+0], "
    "{%r2};\nret;\n}\n"
    ".entry k()\n{\n.reg .b32 %r<4>;\n.reg .pred p;\n"
    "{\n.param .b32 a;\n.param .align 8 .b8 b[16];\n.param .b32 c;\nst.param.b32 [a], %r1;\n"
    "st.param.b64 [b+8], 7;\ncall.uni (c), outer, (a, b);\nld.param.b32 %r2, [c];\n}\n"
    "{\n.param .b64 f;\n.param .b64 g;\n.param .b32 r;\ncall (r), vprintf, (f, g);\n}\n"
    "again:\nlist: .branchtargets again, on, on;\n@p brx.idx %r1, list;\non:\ncall inner;\nbrx.idx.uni %r2, list;\n}\n";

#endif
