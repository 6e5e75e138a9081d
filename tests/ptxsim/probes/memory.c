/* SPDX-License-Identifier: MIT
 *
 * Loads, stores, atomic operations and cp.async, each thread in 16 bytes of its own; parameters. */
#include "scalar.h"

/* %rd2: the thread's place in global memory, %r1: in shared memory, both with %a at first. A probe's result then
 * replaces what is in %rd2. */
#define CELL                                                                                                           \
    ".shared .align 16 .b8 cells[2048]; mov.u32 %r1, cells; mad.lo.u32 %r1, %thread, 16, %r1; "                        \
    "mad.wide.u32 %rd2, %gtid, 8, %out; "
#define BOTH32              " mov.b64 %d, {%x, %y};"
#define GLOBAL32(operation) CELL "st.global.b32 [%rd2], %a; atom.global." operation "; ld.global.b32 %y, [%rd2];" BOTH32
#define SHARED32(operation) CELL "st.shared.b32 [%r1], %a; atom.shared." operation "; ld.shared.b32 %y, [%r1];" BOTH32
/* Old and new value in one. */
#define BOTH64 " mul.lo.u64 %rd5, %rd5, 3; add.u64 %d, %rd4, %rd5;"
#define GLOBAL64(operation)                                                                                            \
    CELL "st.global.b64 [%rd2], %a; atom.global." operation "; ld.global.b64 %rd5, [%rd2];" BOTH64
#define SHARED64(operation) CELL "st.shared.b64 [%r1], %a; atom.shared." operation "; ld.shared.b64 %rd5, [%r1];" BOTH64

/* Two vectors of 16 bytes in shared or local memory. */
#define SPILL                                                                                                          \
    ".local .align 16 .b8 spilled[32]; mov.u32 %r1, spilled; shr.u64 %rd4, %b, 17; xor.b64 %rd5, %a, %rd4; "           \
    "st.local.v2.b64 [%r1], {%a, %b}; st.local.v2.b64 [%r1+16], {%rd4, %rd5}; "

/* Threads copy their first two operands; bytes that are not copied become zero. */
#define COPY(kind, size, bytes)                                                                                        \
    CELL "st.shared.v2.b64 [%r1], {-6148914691236517206, 81985529216486895}; " bytes "cp.async." kind                  \
         ".shared.global [%r1], [%rd0], " size "; cp.async.commit_group; cp.async.wait_group 0; "                      \
         "ld.shared.v2.b64 {%rd4, %rd5}, [%r1];" BOTH64

static const scalar_probe table[] = {
    {"l=ii",
     GLOBAL32("{add.u32,min.u32,max.u32,inc.u32,dec.u32,add.s32,min.s32,max.s32,and.b32,or.b32,xor.b32,exch.b32} "
              "%x, [%rd2], %b"),
     "atom.global.{add.u32,min.u32,max.u32,inc.u32,dec.u32,add.s32,min.s32,max.s32,and.b32,or.b32,xor.b32,exch.b32}"},
    {"l=ii",
     SHARED32("{add.u32,min.u32,max.u32,inc.u32,dec.u32,add.s32,min.s32,max.s32,and.b32,or.b32,xor.b32,exch.b32} "
              "%x, [%r1], %b"),
     "atom.shared.{add.u32,min.u32,max.u32,inc.u32,dec.u32,add.s32,min.s32,max.s32,and.b32,or.b32,xor.b32,exch.b32}"},
    {"l=ci", GLOBAL32("cas.b32 %x, [%rd2], 7, %b"), "atom.global.cas.b32"},
    {"l=ci", SHARED32("cas.b32 %x, [%r1], 7, %b"), "atom.shared.cas.b32"},
    {"l=ff", GLOBAL32("add.f32 %x, [%rd2], %b"), "atom.global.add.f32"},
    {"l=ff", SHARED32("add.f32 %x, [%r1], %b"), "atom.shared.add.f32"},
    {"l=xx", GLOBAL32("add.noftz.f16x2 %x, [%rd2], %b"), "atom.global.add.f16x2"},
    {"l=yy", GLOBAL32("add.noftz.bf16x2 %x, [%rd2], %b"), "atom.global.add.bf16x2"},
    {"l=ll", GLOBAL64("{add.u64,min.u64,max.u64,min.s64,max.s64,and.b64,or.b64,xor.b64,exch.b64} %rd4, [%rd2], %b"),
     "atom.global.{add.u64,min.u64,max.u64,min.s64,max.s64,and.b64,or.b64,xor.b64,exch.b64}"},
    {"l=ll", SHARED64("{add.u64,min.u64,max.u64,min.s64,max.s64,and.b64,or.b64,xor.b64,exch.b64} %rd4, [%r1], %b"),
     "atom.shared.{add.u64,min.u64,max.u64,min.s64,max.s64,and.b64,or.b64,xor.b64,exch.b64}"},
    {"l=cl",
     CELL "cvt.u64.u32 %rd6, %a; st.global.b64 [%rd2], %rd6; atom.global.cas.b64 %rd4, [%rd2], 7, %b; "
          "ld.global.b64 %rd5, [%rd2];" BOTH64,
     "atom.global.cas.b64"},
    {"d=dd", GLOBAL64("add.f64 %rd4, [%rd2], %b"), "atom.global.add.f64"},
    {"d=dd", SHARED64("add.f64 %rd4, [%r1], %b"), "atom.shared.add.f64"},
    {"d=d", GLOBAL64("add.f64 %rd4, [%rd2], 0dfff0000000000000"), "atom.global.add.f64_infinity"},
    {"l=ff", CELL "st.global.b32 [%rd2], %a; red.global.add.f32 [%rd2], %b; ld.global.u32 %d, [%rd2];",
     "red.global.add.f32"},
    /* parts of words, with their sign */
    {"i=i", CELL "st.shared.b32 [%r1], %a; ld.shared.{u8,s8,u16,s16} %d, [%r1+2];", "ld.shared.{u8,s8,u16,s16}"},
    {"l=i", CELL "st.global.b32 [%rd2], %a; ld.global.{u8,s8,u16,s16,u32,s32} %d, [%rd2];",
     "ld.global.{u8,s8,u16,s16,u32,s32}"},
    {"i=ii", CELL "st.shared.b32 [%r1], %a; st.shared.{u8,u16} [%r1+2], %b; ld.shared.b32 %d, [%r1];",
     "st.shared.{u8,u16}"},
    {"i=i",
     CELL "st.shared.b32 [%r1], %a; ld.shared.v4.s8 {%r2, %r3, %r4, %r5}, [%r1]; mad.lo.u32 %d, %r2, 3, %r3; "
          "mad.lo.u32 %d, %d, 5, %r4; mad.lo.u32 %d, %d, 7, %r5;",
     "ld.shared.v4.s8"},
    {"l=ll",
     SPILL
     "ld.local.v2.b64 {%rd6, %rd7}, [%r1+16]; ld.local.v4.b32 {%r2, %r3, %r4, %r5}, [%r1]; "
     "xor.b32 %x, %r2, %r5; xor.b32 %y, %r3, %r4; mov.b64 %d, {%x, %y}; xor.b64 %d, %d, %rd6; sub.u64 %d, %d, %rd7;",
     "local.vectors"},
    {"l=llc", SPILL "and.b32 %x, %c, 24; add.u32 %x, %x, %r1; ld.local.b64 %d, [%x];", "local.indexed"},
    /* cp.async with a number of bytes; the operands' 32 bytes are the source */
    {"l=llcl", COPY("ca", "4", ""), "cp.async.ca.4"},
    {"l=llcl", COPY("ca", "4, %r2", "min.u32 %r2, %c, 4; "), "cp.async.ca.4_partly"},
    {"l=llcl", COPY("ca", "8, %r2", "min.u32 %r2, %c, 8; "), "cp.async.ca.8_partly"},
    {"l=llcl", COPY("ca", "16, %r2", "min.u32 %r2, %c, 16; "), "cp.async.ca.16_partly"},
    {"l=llcl", COPY("cg", "16", ""), "cp.async.cg.16"},
    {"l=llcl", COPY("cg", "16, %r2", "min.u32 %r2, %c, 16; "), "cp.async.cg.16_partly"},
    {NULL, NULL, NULL},
};

/* All threads of a CTA add to one word: the sum does not depend on their order. */
static void add_shared_word(probe_list *list) {
    static const char *const operations[] = {"add.u32", "min.s32", "max.u32", "and.b32",
                                             "or.b32",  "xor.b32", "inc.u32"};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        probe *p = probe_add(list, "memory/red.%s_of_all", operations[i]);
        struct rng r = probe_random(p);
        p->ctas = 4;
        p->threads = 128;
        p->out_bytes = 4 * 4 * 2;
        uint32_t *in = probe_input(p, 4 * 128 * 4);
        for (size_t word = 0; word < p->in_bytes / 4; word++)
            in[word] = i == 6 ? 1000 : (uint32_t)rng_next(&r);
        probe_begin(p);
        probe_put(p,
                  ".shared .align 4 .b32 word;\nsetp.eq.u32 %%p1, %%thread, 0;\nmov.u32 %%r1, word;\n"
                  "mad.wide.u32 %%rd1, %%gtid, 4, %%in;\nmad.wide.u32 %%rd2, %%cta, 8, %%out;\n"
                  "@%%p1 st.shared.u32 [%%r1], 12345;\n@%%p1 st.global.u32 [%%rd2], 12345;\nmembar.gl;\nbar.sync 0;\n"
                  "ld.global.u32 %%r2, [%%rd1];\nred.shared.%s [%%r1], %%r2;\nred.global.%s [%%rd2], %%r2;\n"
                  "bar.sync 0;\nld.shared.u32 %%r3, [%%r1];\n@%%p1 st.global.u32 [%%rd2+4], %%r3;\n",
                  operations[i], operations[i]);
        probe_end(p);
    }
}

/* A function with vectors and bytes among its parameters, and a structure as its result. */
static void add_call(probe_list *list) {
    probe *p = probe_add(list, "memory/call.param");
    struct rng r = probe_random(p);
    p->threads = 64;
    p->out_bytes = 64 * 16;
    uint32_t *in = probe_input(p, 64 * 16);
    for (size_t i = 0; i < p->in_bytes / 4; i++)
        in[i] = (uint32_t)rng_next(&r);
    probe_put(p, ".version 8.7\n.target sm_90a\n.address_size 64\n"
                 ".func (.param .align 16 .b8 result[16]) mix(.param .align 16 .b8 four[16], .param .b32 scale)\n{\n"
                 ".reg .b32 %%r<10>;\nld.param.v4.b32 {%%r0, %%r1, %%r2, %%r3}, [four];\nld.param.s8 %%r4, [four+5];\n"
                 "ld.param.u16 %%r5, [four+14];\nld.param.b32 %%r6, [scale];\nmad.lo.u32 %%r0, %%r1, %%r6, %%r0;\n"
                 "mad.lo.u32 %%r1, %%r4, %%r6, %%r2;\nxor.b32 %%r2, %%r5, %%r3;\n"
                 "st.param.v2.b32 [result], {%%r0, %%r1};\nst.param.b32 [result+8], %%r2;\nst.param.b32 [result+12], "
                 "%%r4;\nret;\n}\n"
                 ".visible .entry probe(.param .u64 out_array, .param .u64 in_array)\n{\n.reg .b32 %%r<10>;\n.reg .b64 "
                 "%%rd<8>;\n"
                 "ld.param.u64 %%rd0, [out_array];\nld.param.u64 %%rd1, [in_array];\nmov.u32 %%r0, %%tid.x;\n"
                 "mul.wide.u32 %%rd2, %%r0, 16;\nadd.u64 %%rd0, %%rd0, %%rd2;\nadd.u64 %%rd1, %%rd1, %%rd2;\n"
                 "ld.global.v4.b32 {%%r1, %%r2, %%r3, %%r4}, [%%rd1];\n{\n.param .align 16 .b8 given[16];\n"
                 ".param .b32 factor;\n.param .align 16 .b8 got[16];\n"
                 "st.param.v4.b32 [given], {%%r1, %%r2, %%r3, %%r4};\nst.param.b32 [factor], %%r0;\n"
                 "call.uni (got), mix, (given, factor);\nld.param.v4.b32 {%%r5, %%r6, %%r7, %%r8}, [got];\n}\n"
                 "st.global.v4.b32 [%%rd0], {%%r5, %%r6, %%r7, %%r8};\nret;\n}\n");
}

void probes_memory(probe_list *list) {
    scalar_probes(list, "memory", table);
    add_shared_word(list);
    add_call(list);
}
