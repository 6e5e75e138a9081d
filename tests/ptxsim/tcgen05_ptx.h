/* SPDX-License-Identifier: MIT
 *
 * Kernels with tensor memory, as text, for the tests of tcgen05. */
#ifndef TCGEN05_PTX_H_
#define TCGEN05_PTX_H_

#include <time.h>

#include "ptx_text.h"

/* The tile lies in dynamic shared memory, behind what run_ptx.h and the kernel declare. */
enum { TILE_START = 5120 };

static inline size_t dynamic_bytes(size_t tile_bytes) {
    return TILE_START - 4096 + tile_bytes;
}

/* Declares four mbarriers, and a slot for the address. Then %tile, %bar, %slot are addresses in shared memory, %warp is
 * the warp, %lanes the warp's quarter of the lanes as an address, %first is true in thread 0, %warp0 in warp 0. */
static inline void add_declarations(text *t) {
    add(t,
        ".shared .align 8 .b8 bars[32];\n.shared .align 4 .b8 slot[16];\n"
        ".reg .b32 %%d<256>;\n.reg .b32 %%tile, %%bar, %%slot, %%warp, %%lanes, %%taddr, %%at;\n"
        ".reg .pred %%first, %%warp0, %%yes, %%no;\n.reg .b64 %%da, %%db, %%base;\n"
        "mov.u32 %%tile, %d;\nmov.u32 %%bar, bars;\nmov.u32 %%slot, slot;\nshr.u32 %%warp, %%tid, 5;\n"
        "and.b32 %%lanes, %%warp, 3;\nshl.b32 %%lanes, %%lanes, 21;\nsetp.eq.u32 %%first, %%tid, 0;\n"
        "setp.eq.u32 %%warp0, %%warp, 0;\nsetp.eq.u32 %%yes, 0, 0;\nsetp.ne.u32 %%no, 0, 0;\n"
        "cvt.u64.u32 %%base, %%tile;\nshr.u64 %%base, %%base, 4;\n",
        TILE_START);
}

/* Copies words of the input to the tile. */
static inline void add_fill(text *t, int words) {
    add(t,
        "mov.u32 %%r10, %%tid;\nFILL:\nsetp.ge.u32 %%p3, %%r10, %d;\n@%%p3 bra FILLED;\n"
        "mad.lo.u32 %%r11, %%r10, 4, %%tile;\nmad.wide.u32 %%rd3, %%r10, 4, %%in;\nld.global.u32 %%r12, [%%rd3];\n"
        "st.shared.u32 [%%r11], %%r12;\nadd.u32 %%r10, %%r10, %%ntid.x;\nbra FILL;\nFILLED:\n",
        words);
}

#define VISIBLE "fence.proxy.async.shared::cta;\n"
#define SYNC    "bar.sync 0;\n"
/* The first thread makes mbarriers of one arrival. */
#define INIT                                                                                                           \
    "@%first mbarrier.init.shared::cta.b64 [%bar], 1;\n@%first mbarrier.init.shared::cta.b64 [%bar+8], 1;\n"           \
    "@%first mbarrier.init.shared::cta.b64 [%bar+16], 128;\n@%first fence.mbarrier_init.release.cluster;\n"
#define ALLOC(columns)                                                                                                 \
    "@!%warp0 bra ALLOCATED;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], " columns ";\n"         \
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nALLOCATED:\nbar.sync 0;\nld.shared.u32 %taddr, "      \
    "[%slot];\n"
#define DEALLOC(columns)                                                                                               \
    "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n@!%warp0 bra FREED;\n"        \
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %taddr, " columns ";\nFREED:\n"
#define WAIT_LD "tcgen05.wait::ld.sync.aligned;\n"
#define WAIT_ST "tcgen05.wait::st.sync.aligned;\n"
#define BEFORE  "tcgen05.fence::before_thread_sync;\n"
#define AFTER   "tcgen05.fence::after_thread_sync;\n"
#define COMMIT  "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];\n"
/* Waits for a phase of the first mbarrier; `name` makes the label. */
#define WAIT(name, parity)                                                                                             \
    name ":\nmbarrier.try_wait.parity.shared::cta.b64 %p5, [%bar], " parity ";\n@!%p5 bra " name ";\n"

/* {%d0, %d1, ...} */
static inline void add_vector(text *t, int first, int count) {
    for (int i = 0; i < count; i++)
        add(t, "%s%%d%d", i == 0 ? "{" : ", ", first + i);
    add(t, "}");
}

/* Stores columns [0, count) of the allocation, in all 128 lanes: word (lane, column) of the output. */
static inline void add_dump(text *t, int count) {
    add(t, "mad.wide.u32 %%rd5, %%tid, %d, %%out;\nadd.u32 %%at, %%taddr, %%lanes;\n", 4 * count);
    for (int c = 0; c < count; c += 16) {
        const int here = count - c < 16 ? count - c : 16;
        for (int i = 0; i < here; i++)
            add(t, "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%%d%d}, [%%at+%d];\n", i, c + i);
        say(t, WAIT_LD);
        for (int i = 0; i < here; i++)
            add(t, "st.global.u32 [%%rd5+%d], %%d%d;\n", 4 * (c + i), i);
    }
}

/* The shared memory descriptor's fields, `mode` as in bits 61 to 63; the start is added by the kernel. */
static inline uint64_t smem_descriptor(unsigned offset, unsigned leading, unsigned stride, unsigned mode) {
    return (uint64_t)mode << 61 | UINT64_C(1) << 46 | (uint64_t)(stride >> 4) << 32 | (uint64_t)(leading >> 4) << 16 |
           offset >> 4;
}

#endif
