/* SPDX-License-Identifier: MIT
 *
 * Lanes with their own program counters, barriers, exits, CTAs, reports. */
#include <time.h>

#include "run_ptx.h"

static uint64_t base_seed;

#define SEEDS 16
#define STORE "st.global.u32 [%my_out], %r10;\nret;\n"

/* ---- Special registers and CTAs ---- */

static void test_special_registers(void **state) {
    (void)state;
    enum { FIELDS = 22, THREADS = 96, CTAS = 12 };
    static const char *const names[FIELDS] = {"%tid.x",       "%tid.y",
                                              "%tid.z",       "%ntid.x",
                                              "%ntid.y",      "%ntid.z",
                                              "%ctaid.x",     "%ctaid.y",
                                              "%ctaid.z",     "%nctaid.x",
                                              "%nctaid.y",    "%nctaid.z",
                                              "%laneid",      "%warpid",
                                              "%lanemask_eq", "%lanemask_lt",
                                              "%lanemask_le", "%lanemask_gt",
                                              "%lanemask_ge", "%cluster_nctaid.x",
                                              "%clusterid.y", "%dynamic_smem_size"};
    char body[4096] = "";
    size_t length = 0;
    length += (size_t)snprintf(body, sizeof(body),
                               "mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ctaid.y; mov.u32 %%r4, %%ctaid.z;\n"
                               "mad.lo.u32 %%r5, %%r4, 2, %%r3;\nmad.lo.u32 %%r5, %%r5, 3, %%r2;\n"
                               "mov.u32 %%r6, %%tid.y; mov.u32 %%r7, %%tid.z;\n"
                               "mad.lo.u32 %%r8, %%r7, 3, %%r6;\nmad.lo.u32 %%r8, %%r8, 16, %%tid;\n"
                               "mad.lo.u32 %%r8, %%r5, %d, %%r8;\nmad.wide.u32 %%rd1, %%r8, %d, %%out;\n",
                               THREADS, FIELDS * 4);
    for (int i = 0; i < FIELDS; i++)
        length += (size_t)snprintf(body + length, sizeof(body) - length,
                                   "mov.u32 %%r10, %s;\nst.global.u32 [%%rd1+%d], %%r10;\n", names[i], i * 4);
    snprintf(body + length, sizeof(body) - length, "ret;\n");
    static uint32_t out[CTAS * THREADS * FIELDS];
    ptx_run run = {.grid = {3, 2, 2},
                   .block = {16, 3, 2},
                   .seed = base_seed,
                   .dynamic_shared_bytes = 48,
                   .out = out,
                   .out_words = CTAS * THREADS * FIELDS};
    RUN_OK(body, &run);
    for (uint32_t cta = 0; cta < CTAS; cta++)
        for (uint32_t t = 0; t < THREADS; t++) {
            uint32_t lane = t % 32, eq = UINT32_C(1) << lane;
            uint32_t want[FIELDS] = {
                t % 16,    t / 16 % 3, t / 48,      16,   3,      2,  cta % 3, cta / 3 % 2,   cta / 6,
                3,         2,          2,           lane, t / 32, eq, eq - 1,  (eq - 1) | eq, ~((eq - 1) | eq),
                ~(eq - 1), 1,          cta / 3 % 2, 48};
            assert_memory_equal(out + (cta * THREADS + t) * FIELDS, want, sizeof(want));
        }
}

static void test_clock_moves(void **state) {
    (void)state;
    uint32_t out[32] = {0};
    ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = base_seed, .out = out, .out_words = 32};
    RUN_OK("mov.u64 %rd1, %clock64;\nadd.s32 %r2, %tid, 1;\nmov.u64 %rd2, %clock64;\nsub.s64 %rd3, %rd2, %rd1;\n"
           "cvt.u32.u64 %r10, %rd3;\n" STORE,
           &run);
    for (int i = 0; i < 32; i++)
        assert_true(out[i] > 0 && out[i] < 100);
}

/* ---- Divergence ---- */

static void test_loop_with_own_count(void **state) {
    (void)state;
    static const char body[] = "mov.u32 %r10, 0;\nmov.u32 %r2, 0;\n"
                               "LOOP:\nsetp.ge.u32 %p1, %r2, %tid;\n@%p1 bra DONE;\n"
                               "add.s32 %r10, %r10, %r2;\nadd.s32 %r2, %r2, 1;\nbra.uni LOOP;\n"
                               "DONE:\nbar.warp.sync -1;\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[200] = {0};
        ptx_run run = {.grid = {2, 1, 1}, .block = {100, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 200};
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < 200; t++)
            assert_int_equal(out[t], t % 100 < 2 ? 0 : (t % 100) * (t % 100 - 1) / 2);
    }
}

static uint32_t collatz(uint32_t n) {
    uint32_t steps = 0;
    for (; n != 1; steps++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return steps;
}

/* Nested: for every k below tid % 5 + 1, a loop whose branches differ between the lanes; then all meet in a shuffle. */
static void test_nested_divergence(void **state) {
    (void)state;
    static const char body[] = "mov.u32 %r10, 0;\nmov.u32 %r2, 0;\nrem.u32 %r3, %tid, 5;\n"
                               "OUTER:\nmad.lo.u32 %r4, %r2, 7, %tid;\nadd.s32 %r4, %r4, 1;\n"
                               "INNER:\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra INNER_DONE;\n"
                               "and.b32 %r5, %r4, 1;\nsetp.ne.u32 %p2, %r5, 0;\n@%p2 bra ODD;\n"
                               "shr.u32 %r4, %r4, 1;\nbra JOIN;\n"
                               "ODD:\nmad.lo.u32 %r4, %r4, 3, 1;\n"
                               "JOIN:\nadd.s32 %r10, %r10, 1;\nbra INNER;\n"
                               "INNER_DONE:\nadd.s32 %r2, %r2, 1;\nsetp.le.u32 %p3, %r2, %r3;\n@%p3 bra OUTER;\n"
                               "shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;\nmad.lo.u32 %r10, %r11, 65536, %r10;\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[64] = {0}, want[64];
        ptx_run run = {.grid = {1, 1, 1}, .block = {64, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 64};
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < 64; t++) {
            want[t] = 0;
            for (uint32_t k = 0; k <= t % 5; k++)
                want[t] += collatz(k * 7 + t + 1);
        }
        for (uint32_t t = 0; t < 64; t++)
            assert_int_equal(out[t], want[t ^ 1] * 65536 + want[t]);
    }
}

/* Structured code must come together again, not run lane by lane: whole-warp steps would be 32 times as many else. */
static void test_reconvergence(void **state) {
    (void)state;
    static const char body[] = "mov.u64 %rd1, %clock64;\nmov.u32 %r2, 0;\n"
                               "LOOP:\nand.b32 %r3, %tid, 1;\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 bra EVEN;\n"
                               "add.s32 %r4, %r2, 1;\nbra JOIN;\nEVEN:\nadd.s32 %r4, %r2, 2;\n"
                               "JOIN:\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 50;\n@%p2 bra LOOP;\n"
                               "mov.u64 %rd2, %clock64;\nsub.s64 %rd3, %rd2, %rd1;\ncvt.u32.u64 %r10, %rd3;\n" STORE;
    uint32_t best = UINT32_MAX;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[32] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 32};
        RUN_OK(body, &run);
        for (int t = 0; t < 32; t++) {
            assert_true(out[t] < 50 * 9 * 2);
            best = out[t] < best ? out[t] : best;
        }
    }
    assert_true(best < 50 * 10);
}

/* One lane spins on a flag that another lane of its warp sets later: either may come first in program order. */
static void spin(const char *spinner_first) {
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[64] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 64};
        RUN_OK(spinner_first, &run);
        assert_int_equal(out[3], 70);
        assert_int_equal(out[20], 70);
    }
}

static void test_spin_before_setter(void **state) {
    (void)state;
    spin("setp.eq.u32 %p1, %tid, 20;\n@%p1 bra SETTER;\nsetp.ne.u32 %p2, %tid, 3;\n@%p2 bra END;\n"
         "SPIN:\nld.volatile.global.u32 %r10, [%out+160];\nsetp.eq.u32 %p3, %r10, 0;\n@%p3 bra SPIN;\nbra FINISH;\n"
         "SETTER:\nmov.u32 %r10, 70;\nst.volatile.global.u32 [%out+160], %r10;\n"
         "FINISH:\n" STORE "END:\nret;\n");
}

static void test_spin_after_setter(void **state) {
    (void)state;
    spin("setp.eq.u32 %p1, %tid, 3;\n@%p1 bra SPIN;\nsetp.ne.u32 %p2, %tid, 20;\n@%p2 bra END;\n"
         "mov.u32 %r10, 70;\nst.volatile.global.u32 [%out+160], %r10;\nbra FINISH;\n"
         "SPIN:\nld.volatile.global.u32 %r10, [%out+160];\nsetp.eq.u32 %p3, %r10, 0;\n@%p3 bra SPIN;\n"
         "FINISH:\n" STORE "END:\nret;\n");
}

/* ---- Barriers ---- */

/* Warps 0 and 1 fill a buffer and arrive; 2 and 3 wait for them and read; a second barrier hands the buffer back. */
static void test_named_barriers(void **state) {
    (void)state;
    static const char body[] =
        "mov.u32 %r20, buffer;\nmov.u32 %r2, 0;\nmov.u32 %r10, 0;\nand.b32 %r3, %tid, 63;\n"
        "shl.b32 %r4, %r3, 2;\nadd.s32 %r4, %r4, %r20;\nxor.b32 %r5, %r3, 37;\nshl.b32 %r6, %r5, 2;\n"
        "add.s32 %r6, %r6, %r20;\nsetp.ge.u32 %p1, %tid, 64;\n@%p1 bra CONSUMER;\n"
        "PRODUCER:\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra FILL;\nbar.sync 2, 128;\n"
        "FILL:\nmad.lo.u32 %r7, %r2, 1000, %r3;\nst.shared.u32 [%r4], %r7;\nbar.arrive 1, 128;\n"
        "add.s32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 5;\n@%p3 bra PRODUCER;\n"
        "bar.sync 2, 128;\nmov.u32 %r10, 1;\nbra.uni FINISH;\n"
        "CONSUMER:\nbar.sync 1, 128;\nld.shared.u32 %r8, [%r6];\nadd.s32 %r10, %r10, %r8;\nbar.arrive 2, 128;\n"
        "add.s32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 5;\n@%p3 bra CONSUMER;\n"
        "FINISH:\nbar.sync 0;\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[256] = {0};
        ptx_run run = {.grid = {2, 1, 1}, .block = {128, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 256};
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < 256; t++)
            assert_int_equal(out[t], t % 128 < 64 ? 1 : 10000 + 5 * ((t % 64) ^ 37));
    }
}

static void test_barrier_reductions(void **state) {
    (void)state;
    static const char body[] =
        "setp.lt.u32 %p1, %tid, 45;\nbar.red.popc.u32 %r10, 0, %p1;\nbar.red.popc.u32 %r11, 3, 96, !%p1;\n"
        "setp.lt.u32 %p2, %tid, 72;\nbar.red.and.pred %p3, 0, %p2;\nbar.red.or.pred %p4, 0, !%p2;\n"
        "barrier.cta.red.and.pred %p5, 4, %p1;\n"
        "selp.u32 %r12, 1, 0, %p3;\nselp.u32 %r13, 1, 0, %p4;\nselp.u32 %r14, 1, 0, %p5;\n"
        "mad.lo.u32 %r10, %r11, 256, %r10;\nmad.lo.u32 %r10, %r12, 65536, %r10;\n"
        "mad.lo.u32 %r10, %r13, 131072, %r10;\nmad.lo.u32 %r10, %r14, 262144, %r10;\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[72] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {72, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 72};
        RUN_OK(body, &run);
        for (int t = 0; t < 72; t++)
            assert_int_equal(out[t], 45 + 27 * 256 + 65536);
    }
}

/* barrier.sync without .aligned: the lanes of a warp come in any number of groups, from different instructions. */
static void test_divergent_barrier(void **state) {
    (void)state;
    static const char body[] = "mov.u32 %r20, buffer;\nmad.lo.u32 %r4, %tid, 4, %r20;\nxor.b32 %r5, %tid, 63;\n"
                               "mad.lo.u32 %r5, %r5, 4, %r20;\nrem.u32 %r6, %tid, 3;\nst.shared.u32 [%r4], %tid;\n"
                               "setp.eq.u32 %p1, %r6, 0;\n@%p1 bra FIRST;\nsetp.eq.u32 %p2, %r6, 1;\n@%p2 bra SECOND;\n"
                               "barrier.sync 5, 64;\nbra READ;\nFIRST:\nbarrier.sync 5, 64;\nbra READ;\n"
                               "SECOND:\nbarrier.sync 5, 64;\nREAD:\nld.shared.u32 %r10, [%r5];\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[64] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {64, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 64};
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < 64; t++)
            assert_int_equal(out[t], t ^ 63);
    }
}

/* Exited lanes and warps are waited for neither by barriers nor by member masks. */
static void test_exited_lanes(void **state) {
    (void)state;
    static const char body[] = "mov.u32 %r2, 0;\nsetp.ge.u32 %p1, %tid, 96;\n@%p1 exit;\n"
                               "and.b32 %r3, %tid, 3;\nsetp.eq.u32 %p2, %r3, 3;\n"
                               "@%p2 ret;\nbar.sync 0;\nredux.sync.add.u32 %r10, %tid, -1;\nbar.sync 1, 96;\n" STORE;
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[128] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {128, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 128};
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < 128; t++) {
            uint32_t sum = 0;
            for (uint32_t u = t / 32 * 32; u < t / 32 * 32 + 32; u++)
                sum += u % 4 == 3 ? 0 : u;
            assert_int_equal(out[t], t >= 96 || t % 4 == 3 ? 0 : sum);
        }
    }
}

/* Lanes that wait for others of their member mask go on when these exit instead. */
static void test_exit_while_others_wait(void **state) {
    (void)state;
    static const char body[] =
        "setp.lt.u32 %p1, %tid, 16;\n@!%p1 bra LATER;\nredux.sync.add.u32 %r10, %tid, -1;\n" STORE
        "LATER:\nsetp.lt.u32 %p2, %tid, 20;\n@%p2 exit;\nbar.warp.sync 0xfff00000;\nret;\n";
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t out[32] = {0};
        ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = base_seed + i, .out = out, .out_words = 32};
        RUN_OK(body, &run);
        for (int t = 0; t < 32; t++)
            assert_int_equal(out[t], t < 16 ? 120 : 0);
    }
}

/* ---- Reports ---- */

static ptx_run small(uint32_t *out, unsigned threads) {
    return (ptx_run){
        .grid = {1, 1, 1}, .block = {threads, 1, 1}, .seed = base_seed, .out = out, .out_words = out ? threads : 0};
}

static void test_barrier_deadlocks(void **state) {
    (void)state;
    uint32_t out[64];
    ptx_run run = small(out, 64);
    RUN_FAULT("bar.sync 1, 64;\nbar.sync 2, 64;\nsetp.lt.u32 %p1, %tid, 32;\n@%p1 bra HERE;\nbar.sync 3, 64;\nret;\n"
              "HERE:\nbar.sync 4, 64;\nret;\n",
              &run, "deadlock");
    assert_non_null(strstr(run.fault, "barrier 3: 32 of 64"));
    assert_non_null(strstr(run.fault, "barrier 4: 32 of 64"));
    assert_non_null(strstr(run.fault, "warp 1, lanes 0xffffffff: PTX line"));
    assert_non_null(strstr(run.fault, "kernel tested, CTA (0, 0, 0)"));
    run = small(out, 64);
    RUN_FAULT("bar.sync 1, 48;\nret;\n", &run, "multiple of 32");
    run = small(out, 64);
    RUN_FAULT("bar.sync %tid;\nret;\n", &run, "different barriers");
    run = small(out, 32);
    RUN_FAULT("bar.sync 1, 64;\nret;\n", &run, "64 threads");
    run = small(out, 96);
    run.out_words = 64;
    RUN_FAULT("bar.arrive 1, 96;\nbar.arrive 1, 96;\nret;\n", &run, "again");
    run = small(out, 64);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 32;\n@%p1 bra A;\nbar.sync 1, 64;\nret;\nA:\nbar.sync 1;\nret;\n", &run,
              "with a count of");
}

static void test_warp_deadlocks(void **state) {
    (void)state;
    ptx_run run = small(NULL, 32);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 7;\n@%p1 bra A;\nbar.warp.sync -1;\nret;\nA:\nvote.sync.any.pred %p2, %p1, -1;\n"
              "ret;\n",
              &run, "deadlock");
    assert_non_null(strstr(run.fault, "lanes 0x0000007f: PTX line"));
    assert_non_null(strstr(run.fault, "bar.warp.sync"));
    assert_non_null(strstr(run.fault, "waits for lanes 0x0000007f"));
    assert_non_null(strstr(run.fault, "waits for lanes 0xffffff80"));
    run = small(NULL, 32);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 7;\n@%p1 bra A;\nbar.sync 0;\nret;\nA:\nbar.sync 1;\nret;\n", &run, "deadlock");
}

static void test_member_masks(void **state) {
    (void)state;
    ptx_run run = small(NULL, 32);
    RUN_FAULT("bar.warp.sync 0xfffffffe;\nret;\n", &run, "does not name this lane");
    assert_non_null(strstr(run.fault, "lane 0, thread (0, 0, 0)"));
    run = small(NULL, 32);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 16;\nselp.u32 %r2, -1, 0xffff0000, %p1;\nbar.warp.sync %r2;\nret;\n", &run,
              "but this lane gives 0xffff0000");
    run = small(NULL, 32);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 16;\n@%p1 bar.sync 0;\nret;\n", &run, "all lanes of the warp must execute");
    assert_non_null(strstr(run.fault, "@%p1 bar.sync 0"));
}

static void test_livelock(void **state) {
    (void)state;
    ptx_run run = small(NULL, 64);
    run.step_limit = 200000;
    RUN_FAULT("LOOP:\nadd.s32 %r2, %tid, 1;\nbra LOOP;\n", &run, "livelock");
    assert_non_null(strstr(run.fault, "warp 1, lanes 0xffffffff"));
}

/* A barrier that nobody completes, and a warp that computes without end beside it. */
static void test_mbarrier_deadlock(void **state) {
    (void)state;
    static const char wait[] = "mov.u32 %r2, buffer;\nsetp.ne.u32 %p1, %tid, 0;\n@%p1 bra SKIP;\n"
                               "mbarrier.init.shared::cta.b64 [%r2], 2;\n"
                               "SKIP:\nbar.sync 0;\n@%p1 bra WAIT;\nmbarrier.arrive.shared::cta.b64 _, [%r2];\n"
                               "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n@%p2 bra OUT;\n"
                               "bra WAIT;\nOUT:\nret;\n";
    for (uint64_t i = 0; i < SEEDS; i++) {
        ptx_run run = small(NULL, 64);
        run.seed += i;
        RUN_FAULT(wait, &run, "deadlock");
        assert_non_null(strstr(run.fault, "mbarrier.try_wait"));
    }
    static const char test[] = "mov.u32 %r2, buffer;\nsetp.ne.u32 %p1, %tid, 0;\n@%p1 bra SKIP;\n"
                               "mbarrier.init.shared::cta.b64 [%r2], 2;\n"
                               "SKIP:\nbar.sync 0;\n"
                               "WAIT:\nmbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n@%p2 bra OUT;\n"
                               "bra WAIT;\nOUT:\nret;\n";
    ptx_run run = small(NULL, 64);
    run.step_limit = 1000000;
    RUN_FAULT(test, &run, "deadlock: all threads of the CTA wait");
}

static void test_traps_and_undefined(void **state) {
    (void)state;
    uint32_t out[32];
    ptx_run run = small(out, 32);
    RUN_FAULT("setp.eq.u32 %p1, %tid, 5;\n@%p1 trap;\nret;\n", &run, "trap");
    assert_non_null(strstr(run.fault, "warp 0, lane 5, thread (5, 0, 0)"));
    run = small(out, 32);
    RUN_FAULT("add.s32 %r10, %r50, 1;\n" STORE, &run, "operand 2 is undefined");
    run = small(out, 32);
    RUN_FAULT("@%p7 bra OUT;\nOUT:\nret;\n", &run, "guard is undefined");
    run = small(out, 32);
    RUN_FAULT("setp.lt.u32 %p1, %tid, 9;\n@%p1 mov.u32 %r10, 1;\nmov.u32 %r11, %r10;\n"
              "st.global.u32 [%my_out], %r11;\nret;\n",
              &run, "lane 9");
    /* Moved about, but never used where it is undefined. */
    run = small(out, 32);
    RUN_OK("setp.lt.u32 %p1, %tid, 9;\n@%p1 mov.u32 %r9, 1;\nmov.u32 %r11, %r9;\nselp.u32 %r10, %r11, 4, %p1;\n" STORE,
           &run);
    assert_int_equal(out[8], 1);
    assert_int_equal(out[9], 4);
}

static void test_end_without_return(void **state) {
    (void)state;
    uint32_t out[40] = {0};
    ptx_run run = small(out, 40);
    RUN_OK("mov.u32 %r10, 9;\nst.global.u32 [%my_out], %r10;\n", &run);
    for (int t = 0; t < 40; t++)
        assert_int_equal(out[t], 9);
}

static void test_refused_at_binding(void **state) {
    (void)state;
    static const struct {
        const char *body, *part;
    } cases[] = {
        {"setmaxnreg.inc.sync.aligned.u32 20;\nret;\n", "24 to 256"},
        {"setmaxnreg.dec.sync.aligned.u32 44;\nret;\n", "multiple of 8"},
        {"setmaxnreg.dec.sync.aligned.u32 264;\nret;\n", "24 to 256"},
        {"setmaxnreg.inc.sync.aligned.u32 %r1;\nret;\n", "integer literal"},
        {"shfl.sync.bend.b32 %r1, %r2, 0, 31, -1;\nret;\n", "sync.bend.b32"},
        {"shfl.sync.idx.b32 %r1, %r2, 0, 31;\nret;\n", "operands"},
        {"bar.sync;\nret;\n", "operands"},
        {"vote.sync.all.pred %p1, %r1, -1;\nret;\n", "predicate"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char error[512] = "";
        ptx_module *module = ptx_body_module(cases[i].body, error, sizeof(error));
        assert_null(module);
        if (!strstr(error, cases[i].part))
            fail_msg("\"%s\" not in: %s", cases[i].part, error);
    }
    char error[512] = "";
    ptx_module *module = ptx_body_module("setmaxnreg.inc.sync.aligned.u32 240;\nret;\n", error, sizeof(error));
    assert_non_null(module);
    ptx_module_free(module);
}

static void test_launch_shapes(void **state) {
    (void)state;
    ptx_run run = small(NULL, 1025);
    RUN_FAULT("ret;\n", &run, "1025 x 1 x 1");
    run = small(NULL, 32);
    run.block.x = 0x80000001u;
    run.block.y = 0x80000001u;
    RUN_FAULT("ret;\n", &run, "threads");
    run = small(NULL, 32);
    run.grid.y = 0;
    RUN_FAULT("ret;\n", &run, "grid");
}

/* ---- Order ---- */

/* Eight warps take tickets in the order in which the scheduler lets them. */
static void tickets(uint64_t seed, uint32_t out[8]) {
    static const char body[] = "mov.u32 %r20, buffer;\nsetp.ne.u32 %p1, %tid, 0;\nmov.u32 %r2, 0;\n"
                               "@%p1 bra READY;\nst.shared.u32 [%r20], %r2;\nREADY:\nbar.sync 0;\n"
                               "and.b32 %r3, %tid, 31;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra OUT;\n"
                               "atom.shared.add.u32 %r4, [%r20], 1;\nshr.u32 %r5, %tid, 5;\n"
                               "mad.wide.u32 %rd1, %r4, 4, %out;\nst.global.u32 [%rd1], %r5;\nOUT:\nret;\n";
    ptx_run run = {.grid = {1, 1, 1}, .block = {256, 1, 1}, .seed = seed, .out = out, .out_words = 8};
    RUN_OK(body, &run);
}

static void test_seed_decides(void **state) {
    (void)state;
    bool differs = false;
    uint32_t first[8];
    tickets(base_seed, first);
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint32_t one[8], two[8];
        tickets(base_seed + i, one);
        tickets(base_seed + i, two);
        assert_memory_equal(one, two, sizeof(one));
        differs |= memcmp(one, first, sizeof(one)) != 0;
        unsigned seen = 0;
        for (int k = 0; k < 8; k++)
            seen |= 1u << one[k];
        assert_int_equal(seen, 255);
    }
    assert_true(differs);
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_registers),   cmocka_unit_test(test_clock_moves),
        cmocka_unit_test(test_loop_with_own_count), cmocka_unit_test(test_nested_divergence),
        cmocka_unit_test(test_reconvergence),       cmocka_unit_test(test_spin_before_setter),
        cmocka_unit_test(test_spin_after_setter),   cmocka_unit_test(test_named_barriers),
        cmocka_unit_test(test_barrier_reductions),  cmocka_unit_test(test_divergent_barrier),
        cmocka_unit_test(test_exited_lanes),        cmocka_unit_test(test_exit_while_others_wait),
        cmocka_unit_test(test_barrier_deadlocks),   cmocka_unit_test(test_warp_deadlocks),
        cmocka_unit_test(test_member_masks),        cmocka_unit_test(test_livelock),
        cmocka_unit_test(test_mbarrier_deadlock),   cmocka_unit_test(test_traps_and_undefined),
        cmocka_unit_test(test_end_without_return),  cmocka_unit_test(test_refused_at_binding),
        cmocka_unit_test(test_launch_shapes),       cmocka_unit_test(test_seed_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
