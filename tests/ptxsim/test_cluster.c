/* SPDX-License-Identifier: MIT
 *
 * Clusters of one CTA, and the asynchronous operations that are mostly used with clusters or in epilogues: copies
 * within shared memory and to oneself, st.async and red.async, reductions, rows picked from a tensor, tensor maps
 * changed by the device. Values are worked out by hand; cases that are wrong give a part of the report. */
#include <time.h>

#include "access.h"
#include "run_ptx.h"
#include "tensor_map.h"

static _Alignas(1024) uint32_t in[2048], out[2048];
static uint64_t base_seed;

/* Runs on one CTA of 64 threads, with several seeds, on an output of 3s. `report` NULL: without a fault. */
static void check(const char *target, const char *body, const char *report) {
    for (uint64_t seed = base_seed; seed < base_seed + 6; seed++) {
        for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++)
            out[i] = 3;
        ptx_run run = {.grid = {1, 1, 1},
                       .block = {64, 1, 1},
                       .seed = seed,
                       .target = target,
                       .step_limit = 100000,
                       .in = in,
                       .in_words = 2048,
                       .out = out,
                       .out_words = 2048};
        if (report == NULL)
            RUN_OK(body, &run);
        else
            RUN_FAULT(body, &run, report);
    }
}

#define ONE      "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\n"
#define END      "END:\nret;\n"
#define VARS     ".shared .align 128 .b8 tile[2048];\n.shared .align 8 .b8 bar[8];\n"
#define INIT     "mbarrier.init.shared.b64 [bar], 1;\nfence.mbarrier_init.release.cluster;\n"
#define EXPECT   "mbarrier.arrive.expect_tx.shared.b64 _, [bar], "
#define WAIT     "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;\n@!%p2 bra WAIT;\n"
#define SHOW(at) "ld.shared.u32 %r9, [tile+" at "];\nst.global.u32 [%out], %r9;\n"
#define GROUP    "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"

/* ---- Cluster ---- */

static void test_cluster_barrier(void **state) {
    (void)state;
#define PASS(arrive, wait)                                                                                             \
    "mov.u32 %r2, buffer;\nmad.lo.u32 %r3, %tid, 4, %r2;\nxor.b32 %r4, %tid, 63;\nmad.lo.u32 %r4, %r4, 4, %r2;\n"      \
    "st.shared.u32 [%r3], %tid;\n" arrive wait "ld.shared.u32 %r5, [%r4];\nst.global.u32 [%my_out], %r5;\nret;\n"
    check(NULL, PASS("barrier.cluster.arrive.aligned;\n", "barrier.cluster.wait.aligned;\n"), NULL);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(out[i], 63 - i);
    check(NULL, PASS("barrier.cluster.arrive.release;\n", "barrier.cluster.wait.acquire;\n"), NULL);
    check(NULL, PASS("barrier.cluster.arrive.relaxed;\n", "barrier.cluster.wait;\n"), "data race");
    check(NULL, PASS("barrier.cluster.arrive;\n", ""), "");
    check(NULL, "barrier.cluster.wait;\nret;\n", "without barrier.cluster.arrive");
    check(NULL, "barrier.cluster.arrive;\nbarrier.cluster.arrive;\nret;\n", "arrives at the cluster's barrier again");
    /* Threads that have exited are not waited for; those that have not, are. */
    check(NULL, "setp.gt.u32 %p1, %tid, 40;\n@%p1 ret;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nret;\n", NULL);
    check(NULL,
          "setp.gt.u32 %p1, %tid, 31;\n@%p1 bra OTHERS;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nOTHERS:\n"
          "bar.sync 0;\nret;\n",
          "deadlock");
    /* Several phases, warps apart. */
    check(NULL,
          "mov.u32 %r3, 0;\nLOOP:\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
          "add.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, 20;\n@%p1 bra LOOP;\nst.global.u32 [%my_out], %r3;\nret;\n",
          NULL);
    assert_true(out[0] == 20 && out[63] == 20);
}

static void test_mapped_addresses(void **state) {
    (void)state;
    check(NULL,
          VARS ONE
          "mov.u32 %r2, tile;\nmapa.shared::cluster.u32 %r3, %r2, 0;\nst.shared::cluster.u32 [%r3+4], 17;\n"
          "atom.shared::cluster.add.u32 %r4, [%r3+4], 2;\nred.relaxed.cluster.shared::cluster.add.u32 [%r3+4], "
          "5;\nld.relaxed.cluster.shared::cluster.u32 %r5, [%r3+4];\ncvta.shared.u64 %rd1, %rd0;\n"
          "cvt.u64.u32 %rd0, %r2;\ncvta.shared.u64 %rd1, %rd0;\nmapa.u64 %rd2, %rd1, 0;\nld.u32 %r6, [%rd2+4];\n"
          "getctarank.u64 %r7, %rd2;\ngetctarank.shared::cluster.u32 %r8, %r3;\nmov.u32 %r10, "
          "%cluster_nctarank;\nst.global.v4.u32 [%out], {%r4, %r5, %r6, %r7};\n"
          "st.global.v2.u32 [%out+16], {%r8, %r10};\n" END,
          NULL);
    const uint32_t wanted[] = {17, 24, 24, 0, 0, 1};
    assert_memory_equal(out, wanted, sizeof(wanted));
    check(NULL, VARS "mov.u32 %r2, tile;\nmapa.shared::cluster.u32 %r3, %r2, 1;\nret;\n", "CTA 1 of the cluster");
    check(NULL, "mov.u64 %rd1, %out;\nmapa.u64 %rd2, %rd1, 0;\nret;\n", "not in the CTA's shared memory");
}

/* ---- To oneself, and within shared memory ---- */

static void test_multicast(void **state) {
    (void)state;
    in[0] = 77;
#define MULTICAST(mask)                                                                                                \
    VARS ONE INIT EXPECT "16;\nmov.u16 %h1, " mask ";\n"                                                               \
                         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "       \
                         "[tile], [%in], 16, [bar], "                                                                  \
                         "%h1;\n" WAIT SHOW("0") END
    check(NULL, MULTICAST("1"), NULL);
    assert_int_equal(out[0], 77);
    check(NULL, MULTICAST("3"), "which has CTA 0 alone");
    check(NULL, MULTICAST("0"), "which has CTA 0 alone");
}

#define FOUR "st.shared.v4.u32 [tile], {1, 2, 0xfffffffd, 4};\nst.shared.v4.u32 [tile+64], {10, 20, 30, 40};\n"
#define LOCAL(reduce, op)                                                                                              \
    VARS ONE INIT FOUR "@@" EXPECT "16;\ncp" reduce                                                                    \
                       ".async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes" op                       \
                       " [tile+64], [tile], 16, [bar];\n" WAIT                                                         \
                       "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile+64];\nst.global.v4.u32 [%out], {%r4, %r5, %r6, "  \
                       "%r7};\n" END

static const char *with(const char *text, const char *part) {
    static char result[4096];
    const char *mark = strstr(text, "@@");
    assert_non_null(mark);
    snprintf(result, sizeof(result), "%.*s%s%s", (int)(mark - text), text, part, mark + 2);
    return result;
}

static void test_local_copies(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint32_t wanted[4];
    } cases[] = {
        {LOCAL("", ""), {1, 2, 0xfffffffd, 4}},
        {LOCAL(".reduce", ".add.u32"), {11, 22, 27, 44}},
        {LOCAL(".reduce", ".min.s32"), {1, 2, 0xfffffffd, 4}},
        {LOCAL(".reduce", ".max.u32"), {10, 20, 0xfffffffd, 40}},
        {LOCAL(".reduce", ".xor.b32"), {11, 22, 0xffffffe3, 44}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(NULL, with(cases[i].body, "fence.proxy.async.shared::cta;\n"), NULL);
        assert_memory_equal(out, cases[i].wanted, 16);
        check(NULL, with(cases[i].body, ""), "without fence.proxy.async");
    }
}

/* ---- st.async, red.async ---- */

static void test_asynchronous_stores(void **state) {
    (void)state;
#define ASYNC "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
    check(NULL,
          VARS ONE INIT EXPECT
          "28;\n" ASYNC ".v4.b32 [tile], {5, 6, 7, 8}, [bar];\n" ASYNC
          ".u64 [tile+16], 9, [bar];\nmov.f32 %r8, 0f3f800000;\n" ASYNC ".f32 [tile+24], %r8, [bar];\n" WAIT
          "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile];\nst.global.v4.u32 [%out], {%r4, %r5, %r6, "
          "%r7};\nld.shared.v2.u32 {%r4, %r5}, [tile+16];\nld.shared.u32 %r6, [tile+24];\nst.global.v2.u32 [%out+16], "
          "{%r4, %r5};\nst.global.u32 [%out+24], %r6;\n" END,
          NULL);
    const uint32_t wanted[] = {5, 6, 7, 8, 9, 0, 0x3f800000};
    assert_memory_equal(out, wanted, sizeof(wanted));
    check(NULL, VARS ONE INIT EXPECT "4;\n" ASYNC ".b32 [tile], 5, [bar];\n" SHOW("0") WAIT END, "");
    check(NULL, VARS ONE INIT EXPECT "4;\n" ASYNC ".b32 [tile+2], 5, [bar];\n" WAIT END, "");
#define RED "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
    check(NULL,
          VARS ONE INIT "st.shared.v4.u32 [tile], {5, 0xfffffff0, 7, 0};\n" EXPECT "20;\n" RED
                        ".add.u32 [tile], 3, [bar];\n" RED ".max.s32 [tile+4], -1, [bar];\n" RED
                        ".inc.u32 [tile+8], 7, [bar];\n" RED ".add.u64 [tile+8], 0x100000000, [bar];\n" WAIT
                        "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile];\nst.global.v4.u32 [%out], {%r4, %r5, %r6, "
                        "%r7};\n" END,
          NULL);
    const uint32_t reduced[] = {8, 0xffffffff, 0, 1};
    assert_memory_equal(out, reduced, sizeof(reduced));
    check(NULL, VARS ONE INIT EXPECT "4;\n" RED ".add.u32 [tile], 3, [bar];\n" WAIT END, "which nothing has written");
}

/* ---- Reductions into global memory ---- */

static void test_bulk_reductions(void **state) {
    (void)state;
#define REDUCE(values, op)                                                                                             \
    VARS ONE "st.shared.v4.u32 [tile], " values ";\nfence.proxy.async;\n"                                              \
             "cp.reduce.async.bulk.global.shared::cta.bulk_group" op " [%out], [tile], 16;\n" GROUP END
    static const struct {
        const char *body;
        uint32_t wanted[4];
    } cases[] = {
        {REDUCE("{1, 2, 0xffffffff, 4}", ".add.u32"), {4, 5, 2, 7}},
        {REDUCE("{1, 2, 0xffffffff, 4}", ".min.s32"), {1, 2, 0xffffffff, 3}},
        {REDUCE("{1, 2, 0xffffffff, 4}", ".max.u32"), {3, 3, 0xffffffff, 4}},
        {REDUCE("{1, 2, 3, 4}", ".inc.u32"), {0, 0, 0, 4}},
        {REDUCE("{1, 2, 3, 4}", ".dec.u32"), {1, 2, 2, 2}},
        {REDUCE("{1, 2, 3, 4}", ".and.b32"), {1, 2, 3, 0}},
        {REDUCE("{1, 0, 2, 0}", ".add.u64"), {4, 3, 5, 3}},
        {REDUCE("{1, 0, 0xffffffff, 0xffffffff}", ".min.s64"), {1, 0, 0xffffffff, 0xffffffff}},
        /* 3 is a subnormal of f32, which is flushed, and, twice, of f16: 3 2^-24; 0x3c00 is 1, 0x8003 is -3 2^-24. */
        {REDUCE("{0x3f800000, 0x80000003, 3, 0x80000000}", ".add.f32"), {0x3f800000, 0, 0, 0}},
        {REDUCE("{0x3c000001, 0x8003, 0x80030003, 0}", ".add.noftz.f16"), {0x3c000004, 0, 0x80030006, 3}},
        {REDUCE("{0x3c000001, 0x8003, 0x80030004, 0}", ".max.f16"), {0x3c000003, 3, 0x00000004, 3}},
        {REDUCE("{0x3f800000, 0, 0, 0}", ".add.noftz.bf16"), {0x3f800003, 3, 3, 3}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(NULL, cases[i].body, NULL);
        for (size_t word = 0; word < 4; word++)
            if (out[word] != cases[i].wanted[word])
                fail_msg("case %zu, word %zu: %#x, expected %#x", i, word, out[word], cases[i].wanted[word]);
        assert_int_equal(out[4], 3);
    }
    char error[256] = "";
    assert_null(ptx_body_module(REDUCE("{1, 2, 3, 4}", ".add.f16"), error, sizeof(error))); /* only with .noftz */
    assert_non_null(strstr(error, "no such operation"));
    assert_null(ptx_body_module(REDUCE("{1, 2, 3, 4}", ".and.u32"), error, sizeof(error)));
    assert_null(ptx_body_module(REDUCE("{1, 2, 3, 4}", ".inc.s32"), error, sizeof(error)));
    /* Reductions do not race with each other, but with ordinary stores. */
    check(NULL,
          VARS "mov.u32 %r3, tile;\nmad.lo.u32 %r3, %tid, 16, %r3;\nst.shared.v4.u32 [%r3], {1, 1, 1, 1};\n"
               "fence.proxy.async;\n"
               "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r3], 16;\n" GROUP "ret;\n",
          NULL);
    assert_int_equal(out[0], 3 + 64);
    check(NULL,
          VARS ONE "st.shared.v4.u32 [tile], {1, 1, 1, 1};\nfence.proxy.async;\n"
                   "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [tile], 16;\n"
                   "cp.async.bulk.commit_group;\nst.global.u32 [%out], 1;\ncp.async.bulk.wait_group 0;\n" END,
          "data race");
}

static void test_byte_mask(void **state) {
    (void)state;
    check("sm_100a",
          VARS ONE "st.shared.v4.u32 [tile], {0x11111111, 0x22222222, 0x33333333, 0x44444444};\nfence.proxy.async;\n"
                   "mov.u16 %h1, 0x80f1;\n"
                   "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [tile], 16, %h1;\n" GROUP END,
          NULL);
    const uint32_t wanted[] = {0x00000011, 0x22222222, 3, 0x44000003};
    assert_memory_equal(out, wanted, sizeof(wanted));
}

/* ---- Tensor maps ---- */

/* Eight floats wide, four rows of 64 bytes, of `array`. */
static void put_map(void *array, uint32_t box_width, uint32_t box_rows, access_kind kind) {
    char error[128];
    tensor_map map = {.rank = 2,
                      .element_bytes = 4,
                      .kind = (uint8_t)kind,
                      .address = (uint64_t)(uintptr_t)array,
                      .sizes = {8, 4},
                      .boxes = {box_width, box_rows},
                      .strides = {64},
                      .element_strides = {1, 1}};
    if (!tensor_map_finish(&map, error, sizeof(error)))
        fail_msg("%s", error);
    memset(in, 0, 128);
    memcpy(in, &map, sizeof(map));
}

static void test_tensor_reductions(void **state) {
    (void)state;
    put_map(out + 64, 8, 2, ACCESS_FLOAT);
    /* Columns 4 to 11, of which 8 to 11 lie outside; rows 3 and 4, of which 4 does. Two values are subnormal: zeros. */
    const char *body = VARS ONE "st.shared.v4.u32 [tile], {0x3f800000, 0x40000000, 0x3f800000, 0};\n"
                                "st.shared.v4.u32 [tile+16], {1, 1, 1, 1};\nst.shared.v4.u32 [tile+32], {1, 1, 1, 1};\n"
                                "st.shared.v4.u32 [tile+48], {1, 1, 1, 1};\nfence.proxy.async;\n"
                                "st.global.u32 [%out+464], 0x3f800000;\n"
                                "st.global.u32 [%out+468], 0;\nfence.proxy.async;\nmov.u32 %r4, 4;\nmov.u32 %r5, 3;\n"
                                "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%in, {%r4, "
                                "%r5}], [tile];\n" GROUP END;
    check(NULL, body, NULL);
    for (size_t i = 0; i < 2048; i++)
        assert_int_equal(out[i], i == 116 || i == 117 ? 0x40000000 : i == 118 ? 0x3f800000 : i == 119 ? 0 : 3);
    put_map(out + 64, 8, 2, ACCESS_SIGNED);
    check(NULL, body, NULL);
    assert_int_equal(out[116], 0x7f000000);
    put_map(out + 64, 4, 2, ACCESS_FLOAT);
    const char *and = VARS ONE "st.shared.v4.u32 [tile], {1, 1, 1, 1};\nst.shared.v4.u32 [tile+16], {1, 1, 1, 1};\n"
                               "fence.proxy.async;\n"
                               "cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.bulk_group [%in, {0, 0}], "
                               "[tile];\n" GROUP END;
    check(NULL, and, "no such operation");
}

static void test_picked_rows(void **state) {
    (void)state;
    put_map(in + 64, 4, 1, ACCESS_UNSIGNED);
    for (uint32_t i = 0; i < 64; i++)
        in[64 + i] = 100 * (i / 16) + i % 16;
    const char *gather = VARS ONE INIT EXPECT
        "64;\nmov.u32 %r4, 4;\nmov.u32 %r5, 3;\nmov.u32 %r6, 0;\nmov.u32 %r7, 7;\nmov.u32 %r8, -1;\n"
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
        "[tile], [%in, {%r4, %r5, %r6, %r7, %r8}], [bar];\n" WAIT "mov.u32 %r9, 0;\nmov.u32 %r10, "
        "tile;\nCOPY:\nld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r10];\n"
        "cvt.u64.u32 %rd4, %r9;\nadd.u64 %rd4, %rd4, %out;\n"
        "st.global.v4.u32 [%rd4], {%r4, %r5, %r6, %r7};\nadd.u32 %r9, %r9, 16;\n"
        "add.u32 %r10, %r10, 16;\nsetp.lt.u32 %p3, %r9, 64;\n@%p3 bra COPY;\n" END;
    check("sm_100a", gather, NULL);
    const uint32_t wanted[16] = {304, 305, 306, 307, 4, 5, 6, 7};
    assert_memory_equal(out, wanted, sizeof(wanted));
    put_map(in + 64, 4, 2, ACCESS_UNSIGNED);
    check("sm_100a", gather, "takes one of 1");

    put_map(out + 64, 4, 1, ACCESS_UNSIGNED);
    check("sm_100a",
          VARS ONE "st.shared.v4.u32 [tile], {1, 2, 3, 4};\nst.shared.v4.u32 [tile+16], {5, 6, 7, 8};\n"
                   "st.shared.v4.u32 [tile+32], {9, 10, 11, 12};\nst.shared.v4.u32 [tile+48], {13, 14, 15, 16};\n"
                   "fence.proxy.async;\nmov.u32 %r4, 0;\nmov.u32 %r5, 2;\nmov.u32 %r6, 9;\nmov.u32 %r7, 1;\n"
                   "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%in, {%r4, %r5, %r6, %r7, "
                   "%r4}], [tile];\n" GROUP END,
          NULL);
    for (uint32_t i = 0; i < 64; i++) {
        static const uint32_t first[] = {13, 9, 1, 3};
        assert_int_equal(out[64 + i], i % 16 < 4 && i / 16 < 3 ? first[i / 16] + i % 16 : 3);
    }
}

/* A map is copied to shared memory, given another address and size, published, and used. */
static void test_changed_maps(void **state) {
    (void)state;
    put_map(in + 64, 4, 2, ACCESS_UNSIGNED);
    for (uint32_t i = 0; i < 64; i++)
        in[128 + i] = 100 * (i / 16) + i % 16;
#define CHANGE                                                                                                         \
    VARS INIT_BY_ONE "setp.ge.u32 %p3, %tid, 32;\n@%p3 bra END;\nmov.u32 %r3, tile;\nmad.lo.u32 %r4, %tid, 4, %r3;\n"  \
                     "ld.global.u32 %r5, [%my_in];\nst.shared.u32 [%r4+1024], %r5;\nbar.warp.sync -1;\n"               \
                     "@%p1 bra CHANGED;\nadd.u64 %rd1, %in, 512;\n"                                                    \
                     "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [tile+1024], %rd1;\n"                \
                     "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [tile+1024], 0, 3;\n"                    \
                     "tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [tile+1024], 0;\n@@CHANGED:\n"            \
                     "bar.warp.sync -1;\n"                                                                             \
                     "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%out], " \
                     "[tile+1024], 128;\n"
#define INIT_BY_ONE "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra INITED;\n" INIT "INITED:\n"
#define USE                                                                                                            \
    "@%p1 bra END;\n" EXPECT "32;\ncp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "       \
    "[tile], [%out, {0, 1}], [bar];\n" WAIT                                                                            \
    "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile];\nst.global.v4.u32 [%out+256], {%r4, %r5, %r6, %r7};\n"             \
    "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile+16];\nst.global.v4.u32 [%out+272], {%r4, %r5, %r6, %r7};\n" END
#define ACQUIRE "fence.proxy.tensormap::generic.acquire.gpu [%out], 128;\n"
    check("sm_90a", with(CHANGE ACQUIRE USE, ""), NULL);
    const uint32_t wanted[] = {100, 101, 102, 0, 200, 201, 202, 0};
    assert_memory_equal(out + 64, wanted, sizeof(wanted));
    check("sm_90a", with(CHANGE USE, ""), "fence.proxy.tensormap");
    check("sm_90a",
          with(CHANGE ACQUIRE USE, "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [tile+1024], 2, 3;\n"),
          "no such dimension");
    check("sm_90a",
          with(CHANGE ACQUIRE USE, "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [tile+1024], 0, 3;\n"),
          "there is no tensor map"); /* rows of 12 bytes */
    check("sm_90a",
          with(CHANGE ACQUIRE USE, "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [tile+1024], 7;\n"),
          "no value of the field");
}

/* ---- Hints, zeros ---- */

static void test_hints(void **state) {
    (void)state;
    check(NULL,
          ONE "applypriority.global.L2::evict_normal [%out], 128;\ndiscard.global.L2 [%out+128], 128;\n"
              "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd1, [%out], 64, 256;\n"
              "createpolicy.cvt.L2.b64 %rd2, %rd1;\nst.global.L2::cache_hint.u32 [%out+4], 9, %rd1;\n"
              "st.global.L2::cache_hint.u32 [%out+8], 9, %rd2;\nldu.global.u32 %r5, [%in];\n"
              "ld.mmio.relaxed.sys.global.u32 %r6, [%out+4];\nst.mmio.relaxed.sys.global.u32 [%out+12], %r6;\n"
              "membar.proxy.alias;\nfence.acquire.sync_restrict::shared::cluster.cluster;\n"
              "fence.release.sync_restrict::shared::cta.cluster;\n" END,
          NULL);
    assert_true(out[0] == 3 && out[1] == 9 && out[2] == 9 && out[3] == 9);
    check(NULL, ONE "discard.L2 [%out+64], 128;\n" END, "");
    check(NULL, ONE "createpolicy.range.L2::evict_last.b64 %rd1, [%out], 512, 256;\n" END,
          "the first 512 bytes of 256");
    check("sm_100a", VARS ONE "st.bulk.weak.shared::cta [tile+8], 40, 0;\n" SHOW("44") END, NULL);
    assert_int_equal(out[0], 0);
    check("sm_100a", VARS ONE "st.bulk.weak.shared::cta [tile+8], 40, 0;\n" SHOW("48") END, "never written");
    check("sm_100a", VARS ONE "st.bulk.weak.shared::cta [tile+8], 4000, 0;\n" END, "");
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster_barrier),
        cmocka_unit_test(test_mapped_addresses),
        cmocka_unit_test(test_multicast),
        cmocka_unit_test(test_local_copies),
        cmocka_unit_test(test_asynchronous_stores),
        cmocka_unit_test(test_bulk_reductions),
        cmocka_unit_test(test_byte_mask),
        cmocka_unit_test(test_tensor_reductions),
        cmocka_unit_test(test_picked_rows),
        cmocka_unit_test(test_changed_maps),
        cmocka_unit_test(test_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
