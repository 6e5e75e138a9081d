/* SPDX-License-Identifier: MIT
 *
 * Known-bad kernels, one or more for each detector, with the report that they must give, and a good twin that must
 * pass: the same text with what was missing. Detectors of asynchronous copies, mbarriers and wgmma have more in
 * test_async.c and test_wgmma.c, barriers and deadlocks in test_engine.c. */
#include <time.h>

#include "run_ptx.h"

/* `text` with its '@@' replaced by `bad` or `good`. */
static const struct detector_case {
    const char *name, *text, *bad, *good;
    const char *report;
    unsigned grid, block;
    const char *good_report; /* of the good twin, if that cannot run for another reason; else NULL */
    bool fresh;              /* the output counts as never written */
    uint64_t step_limit;
} cases[] = {
#define OWN   "mad.lo.u32 %r3, %tid, 4, %r2;\n"
#define OTHER "xor.b32 %r4, %tid, %r9;\nmad.lo.u32 %r4, %r4, 4, %r2;\n"
#define SHARE                                                                                                          \
    "mov.u32 %r2, buffer;\n" OWN OTHER                                                                                 \
    "st.shared.u32 [%r3], 0;\nbar.sync 0;\nst.shared.u32 [%r3], %tid;\n@@\nld.shared.u32 %r5, [%r4];\n"                \
    "st.global.u32 [%my_out], %r5;\nret;\n"
    {"warps without a barrier", "mov.u32 %r9, 32;\n" SHARE, "", "bar.sync 0;", "data race: ", 1, 64, NULL, false, 0},
    {"warps with different barriers", "mov.u32 %r9, 32;\nshr.u32 %r8, %tid, 5;\n" SHARE, "bar.sync %r8, 32;",
     "barrier.sync 3, 64;", "data race: ", 1, 64, NULL, false, 0},
    {"lanes without __syncwarp", "mov.u32 %r9, 1;\n" SHARE, "", "bar.warp.sync -1;", "data race: reads 4 bytes", 1, 32,
     NULL, false, 0},
    {"a shuffle is no barrier", "mov.u32 %r9, 1;\n" SHARE, "shfl.sync.bfly.b32 %r7, %tid, 1, 31, -1;",
     "bar.warp.sync -1;", "data race: reads 4 bytes", 1, 32, NULL, false, 0},
    {"a vote is no barrier", "mov.u32 %r9, 1;\nsetp.lt.u32 %p1, %tid, 3;\n" SHARE, "vote.sync.ballot.b32 %r7, %p1, -1;",
     "bar.warp.sync -1;", "data race: reads 4 bytes", 1, 32, NULL, false, 0},
    {"half of the warp synchronised",
     "mov.u32 %r9, 16;\nsetp.lt.u32 %p1, %tid, 16;\nselp.b32 %r7, 65535, -65536, %p1;\n" SHARE, "bar.warp.sync %r7;",
     "bar.warp.sync -1;", "data race: reads 4 bytes", 1, 32, NULL, false, 0},

    {"a lane writes what others of its warp may still read, all with one instruction",
     "mov.u32 %r2, buffer;\nsetp.ne.u32 %p1, %tid, 0;\nsetp.lt.u32 %p2, %tid, 31;\nselp.b32 %r7, 2147483647, "
     "-2147483648, %p2;\n@!%p1 st.shared.u32 [%r2], 5;\nbar.warp.sync -1;\nld.shared.u32 %r5, [%r2];\n@@\n"
     "@!%p1 st.shared.u32 [%r2], 7;\nst.global.u32 [%my_out], %r5;\nret;\n",
     "bar.warp.sync %r7;", "bar.warp.sync -1;", "data race: writes 4 bytes", 1, 32, NULL, false, 0},
    {"a strong store that ordinary reads are not ordered after",
     "mov.u32 %r2, buffer;\nsetp.ne.u32 %p1, %tid, 32;\n@!%p1 st.shared.u32 [%r2], 5;\nbar.sync 0;\n"
     "@!%p1 st.relaxed.cta.shared.u32 [%r2], 7;\n@@\nld.shared.u32 %r5, [%r2];\n"
     "st.global.u32 [%my_out], %r5;\nret;\n",
     "", "bar.sync 0;", "data race: ", 1, 64, NULL, false, 0},

    /* Warp 0 reads; one lane tells warp 1, which writes. */
    {"one lane arrives for lanes that still read",
     "mov.u32 %r2, buffer;\n" OWN "setp.ne.u32 %p1, %tid, 0;\nsetp.ge.u32 %p2, %tid, 32;\nst.shared.u32 [%r3], %tid;\n"
     "@%p1 bra INITED;\nmbarrier.init.shared.b64 [buffer+2048], 1;\nINITED:\nbar.sync 0;\n@%p2 bra WRITER;\n"
     "ld.shared.u32 %r5, [%r3];\n@@\n@%p1 bra STORE;\nmbarrier.arrive.shared.b64 _, [buffer+2048];\n"
     "STORE:\nst.global.u32 [%my_out], %r5;\nret;\nWRITER:\nmbarrier.try_wait.parity.shared.b64 %p3, [buffer+2048], "
     "0;\n"
     "@!%p3 bra WRITER;\nst.shared.u32 [%r3+-128], 7;\nret;\n",
     "", "bar.warp.sync -1;", "data race: writes 4 bytes", 1, 64, NULL, false, 0},
    {"relaxed arrival",
     "mov.u32 %r2, buffer;\nsetp.ne.u32 %p1, %tid, 0;\nsetp.ge.u32 %p2, %tid, 32;\n@%p1 bra INITED;\n"
     "mbarrier.init.shared.b64 [buffer+2048], 1;\nINITED:\nbar.sync 0;\n@%p2 bra READER;\n@%p1 bra END;\n"
     "st.shared.u32 [%r2], 5;\nmbarrier.arrive@@.shared.b64 _, [buffer+2048];\nret;\nREADER:\n"
     "mbarrier.try_wait.parity.shared.b64 %p3, [buffer+2048], 0;\n@!%p3 bra READER;\nld.shared.u32 %r5, [%r2];\n"
     "st.global.u32 [%my_out], %r5;\nEND:\nret;\n",
     ".relaxed.cta", ".release.cta", "data race: reads 4 bytes", 1, 64, NULL, false, 0},
    {"mbarrier used before its initialisation is known",
     "setp.ne.u32 %p1, %tid, 0;\nsetp.ge.u32 %p2, %tid, 32;\n@!%p1 st.shared.u32 [buffer], 0;\nbar.sync 0;\n"
     "@%p1 bra INITED;\nmbarrier.init.shared.b64 [buffer+2048], 32;\nst.volatile.shared.u32 [buffer], 1;\nINITED:\n@@\n"
     "@!%p2 bra END;\nSPIN:\nld.volatile.shared.u32 %r3, [buffer];\nsetp.ne.u32 %p3, %r3, 1;\n"
     "@%p3 bra SPIN;\nmbarrier.arrive.shared.b64 _, [buffer+2048];\nEND:\nret;\n",
     "", "bar.sync 0;", "data race: ", 1, 64, NULL, false, 0},

/* Thread 0 writes data and a flag, thread 32 waits for the flag and reads the data. */
#define FLAG(before, after)                                                                                            \
    "mov.u32 %r2, buffer;\nsetp.eq.u32 %p1, %tid, 0;\nsetp.eq.u32 %p2, %tid, 32;\n@%p1 st.shared.u32 [%r2+4], 0;\n"    \
    "bar.sync 0;\n@%p1 bra WRITER;\n@%p2 bra READER;\nret;\nWRITER:\nst.shared.u32 [%r2], 9;\n" before                 \
    "\nst.volatile.shared.u32 [%r2+4], 1;\nret;\nREADER:\nld.volatile.shared.u32 %r3, [%r2+4];\n"                      \
    "setp.ne.u32 %p3, %r3, 1;\n@%p3 bra READER;\n" after                                                               \
    "\nld.shared.u32 %r5, [%r2];\nst.global.u32 [%my_out], %r5;\n"                                                     \
    "ret;\n"
    {"flag without the writer's fence", FLAG("@@", "membar.cta;"), "", "membar.cta;", "data race: reads 4 bytes", 1, 64,
     NULL, false, 0},
    {"flag without the reader's fence", FLAG("membar.cta;", "@@"), "", "fence.acq_rel.cta;", "data race: reads 4 bytes",
     1, 64, NULL, false, 0},
    {"flag that is no strong access",
     "mov.u32 %r2, buffer;\nsetp.eq.u32 %p1, %tid, 0;\n@!%p1 bra READER;\nst@@.shared.u32 [%r2], 9;\nret;\nREADER:\n"
     "ld.volatile.shared.u32 %r3, [%r2];\nret;\n",
     "", ".volatile", "data race: ", 1, 64, NULL, false, 0},

    /* Between CTAs. */
    {"CTAs write the same word", "@@\nst.global.u32 [%out], %gtid;\nEND:\nret;\n", "",
     "setp.ne.u32 %p1, %gtid, 0;\n@%p1 bra END;", "data race: ", 2, 1, NULL, false, 0},
    {"half words of their own, and then not",
     "cvt.u16.u32 %h1, %gtid;\nmad.wide.u32 %rd1, %gtid, 2, %out;\nst.global.u16 [%rd1], %h1;\n@@\nret;\n",
     "st.global.u16 [%out+2], %h1;", "", "data race: ", 2, 1, NULL, false, 0},
    {"flag between CTAs of CTA scope",
     "setp.ne.u32 %p1, %gtid, 0;\n@%p1 bra READER;\nst.global.u32 [%out+256], 5;\nfence.acq_rel.@@;\n"
     "atom.global.exch.b32 %r3, [%out+512], 1;\nret;\nREADER:\nld.acquire.gpu.global.u32 %r3, [%out+512];\n"
     "setp.ne.u32 %p3, %r3, 1;\n@%p3 bra READER;\nld.global.u32 %r5, [%out+256];\nst.global.u32 [%my_out], "
     "%r5;\nret;\n",
     "cta", "gpu", "data race: reads 4 bytes", 2, 1, NULL, false, 0},
    {"the last CTA sums without a barrier",
     "st.global.u32 [%my_out+256], 1;\n@@\nsetp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\n"
     "atom.acq_rel.gpu.global.add.u32 %r3, [%out], 1;\nsetp.ne.u32 %p2, %r3, 3;\n@%p2 bra END;\n"
     "ld.global.u32 %r6, [%out+256];\nld.global.u32 %r7, [%out+508];\nld.global.u32 %r8, [%out+764];\n"
     "add.u32 %r5, %r6, %r7;\nadd.u32 %r5, %r5, %r8;\nst.global.u32 [%out+4], %r5;\nEND:\nret;\n",
     "", "bar.sync 0;", "data race: reads 4 bytes", 4, 32, NULL, false, 0},
    {"different values by one instruction", "@@\nst.global.u32 [%out], %r3;\nret;\n", "mov.u32 %r3, %tid;",
     "mov.u32 %r3, 7;", "data race: another lane writes a different value", 1, 32, NULL, false, 0},
    {"atomic and ordinary access", "atom.global.add.u32 %r3, [%out], 1;\n@@\nret;\n", "ld.global.u32 %r4, [%out];",
     "ld.relaxed.gpu.global.u32 %r4, [%out];", "data race: ", 2, 1, NULL, false, 0},

/* Asynchronous copies. */
#define COPIED                                                                                                         \
    "mov.u32 %r2, buffer;\nmad.lo.u32 %r3, %tid, 16, %r2;\nmad.wide.u32 %rd1, %tid, 16, %in;\n"                        \
    "xor.b32 %r4, %tid, 1;\nmad.lo.u32 %r4, %r4, 16, %r2;\n"
    {"another lane's copy read after a wait of one's own",
     COPIED "cp.async.cg.shared.global [%r3], [%rd1], 16;\ncp.async.wait_all;\n@@\nld.shared.u32 %r5, [%r4];\n"
            "st.global.u32 [%my_out], %r5;\nret;\n",
     "", "bar.warp.sync -1;", "data race: reads 4 bytes", 1, 32, NULL, false, 0},
    {"copy over what another lane still reads",
     COPIED "st.shared.u32 [%r3], %tid;\nbar.sync 0;\nld.shared.u32 %r5, [%r4];\n@@\n"
            "cp.async.cg.shared.global [%r3], [%rd1], 16;\ncp.async.wait_all;\nst.global.u32 [%my_out], %r5;\nret;\n",
     "", "bar.sync 0;", "data race: ", 1, 32, NULL, false, 0},
    {"bulk store's source overwritten before it has been read",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nst.shared.v4.u32 [%r2], {1, 2, 3, 4};\n"
     "fence.proxy.async;\ncp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 16;\n"
     "cp.async.bulk.commit_group;\n@@\nst.shared.u32 [%r2], 5;\ncp.async.bulk.wait_group 0;\nEND:\nret;\n",
     "", "cp.async.bulk.wait_group.read 0;", "", 1, 32, NULL, false, 0},
    {"bulk store's result read before it is complete",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nst.shared.v4.u32 [%r2], {1, 2, 3, 4};\n"
     "fence.proxy.async;\ncp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 16;\n"
     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group@@ 0;\nld.global.u32 %r3, [%out];\n"
     "st.global.u32 [%out+64], %r3;\nEND:\nret;\n",
     ".read", "", "data race: ", 1, 32, NULL, false, 0},

    /* Proxies of global memory. */
    {"copy of what the kernel has stored",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nst.global.v4.u32 [%out], {1, 2, 3, 4};\n@@\n"
     "mbarrier.init.shared.b64 [buffer+2048], 1;\nfence.mbarrier_init.release.cluster;\n"
     "mbarrier.arrive.expect_tx.shared.b64 _, [buffer+2048], 16;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%out], 16, [buffer+2048];\nWAIT:\n"
     "mbarrier.try_wait.parity.shared.b64 %p3, [buffer+2048], 0;\n@!%p3 bra WAIT;\nEND:\nret;\n",
     "", "fence.proxy.async.global;", "without fence.proxy.async", 1, 32, NULL, false, 0},
    {"tensor map that the kernel has stored",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nst.global.v4.u32 [%out], {1, 2, 3, 4};\n@@\n"
     "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%out, {%r2, %r2}];\nEND:\nret;\n",
     "fence.proxy.async;", "fence.proxy.tensormap::generic.acquire.gpu [%out], 128;", "without fence.proxy.tensormap",
     1, 32, "no tensor map", false, 0},

    /* Memory that has not been written. */
    {"uninitialised global memory", "@@\nld.global.u32 %r3, [%my_out];\nst.global.u32 [%my_out+256], %r3;\nret;\n", "",
     "st.global.u32 [%my_out], 3;", "nothing has written it since it was allocated", 1, 32, NULL, true, 0},
    {"atomic on uninitialised memory", "@@\nred.global.add.u32 [%my_out], 1;\nret;\n", "",
     "st.global.u32 [%my_out], 3;", "which nothing has written", 1, 32, NULL, true, 0},
    {"uninitialised local memory",
     ".local .align 4 .b8 place[16];\n@@\nld.local.u32 %r3, [place+4];\nst.global.u32 [%my_out], %r3;\nret;\n", "",
     "st.local.u32 [place+4], %tid;", "undefined", 1, 32, NULL, false, 0},
    {"uninitialised shared memory",
     "mov.u32 %r2, buffer;\n" OWN "@@\nld.shared.u32 %r5, [%r3];\nst.global.u32 [%my_out], %r5;\nret;\n", "",
     "st.shared.u32 [%r3], 1;", "never written", 1, 32, NULL, false, 0},

    /* What a warp or CTA as a whole does wrong. */
    {"registers beyond the CTA's",
     "setp.ge.u32 %p1, %tid, 128;\n@%p1 bra FEW;\nsetmaxnreg.inc.sync.aligned.u32 256;\nret;\nFEW:\n@@\nret;\n", "",
     "setmaxnreg.dec.sync.aligned.u32 40;", "waits for registers", 1, 256, NULL, false, 0},
    {"fewer registers by inc", "setmaxnreg.@@.sync.aligned.u32 40;\nret;\n", "inc", "dec", "registers a thread already",
     1, 128, NULL, false, 0},
    {"a lane kept away from a barrier of all", "setp.lt.u32 %p1, %tid, 7;\n@@ bar.sync 0;\nret;\n", "@%p1", "",
     "all lanes of the warp must execute", 1, 32, NULL, false, 0},
    {"threads left behind at a barrier", "setp.lt.u32 %p1, %tid, 32;\n@%p1 bra END;\n@@\nEND:\nret;\n",
     "barrier.sync 1, 64;", "barrier.sync 1, 32;", "deadlock", 1, 64, NULL, false, 0},
    {"a loop that does not end",
     "mov.u32 %r3, 0;\nLOOP:\nadd.u32 %r3, %r3, @@;\nsetp.lt.u32 %p1, %r3, 100;\n@%p1 bra LOOP;\n"
     "ret;\n",
     "0", "1", "livelock", 1, 32, NULL, false, 100000},
    {"a CTA leaves while it copies",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nmbarrier.init.shared.b64 [buffer+2048], 1;\n"
     "fence.mbarrier_init.release.cluster;\nmbarrier.arrive.expect_tx.shared.b64 _, [buffer+2048], 16;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%in], 16, "
     "[buffer+2048];\n@@\nEND:\nret;\n",
     "", "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p3, [buffer+2048], 0;\n@!%p3 bra WAIT;",
     "still used its shared memory", 1, 32, NULL, false, 0},
    {"an arrival too many",
     "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra INITED;\nmbarrier.init.shared.b64 [buffer+2048], @@;\nINITED:\nbar.sync 0;\n"
     "mbarrier.arrive.noComplete.shared.b64 %rd3, [buffer+2048], 1;\nret;\n",
     "31", "33", "arrive", 1, 32, NULL, false, 0},
};

static _Alignas(128) uint32_t in[1024], out[1024];
static uint64_t seed;

static char *fill_in(const char *text, const char *part) {
    const char *mark = strstr(text, "@@");
    assert_non_null(mark);
    char *made = malloc(strlen(text) + strlen(part) + 1);
    assert_non_null(made);
    sprintf(made, "%.*s%s%s", (int)(mark - text), text, part, mark + 2);
    return made;
}

/* Whether some of a few orders gives the report (races are reported in each, late copies only in some). */
static bool reported(const struct detector_case *c, const char *body, const char *report, ptx_run *run) {
    *run = (ptx_run){.grid = {c->grid, 1, 1},
                     .block = {c->block, 1, 1},
                     .seed = seed,
                     .step_limit = c->step_limit,
                     .in = in,
                     .in_words = 1024,
                     .out = out,
                     .out_words = 1024,
                     .out_is_fresh = c->fresh};
    for (int tries = 0; tries < 40; tries++, run->seed++) {
        memset(out, 0, sizeof(out));
        if (!run_ptx(body, run))
            return strstr(run->fault, report) != NULL;
    }
    return false;
}

static void test_known_bad_and_good(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct detector_case *c = &cases[i];
        ptx_run run;
        char *bad = fill_in(c->text, c->bad), *good = fill_in(c->text, c->good);
        if (!reported(c, bad, c->report, &run)) {
            print_error("%s: expected '%s', but got: %s\n", c->name, c->report, run.fault[0] ? run.fault : "nothing");
            wrong++;
        }
        bool passes = !reported(c, good, c->good_report ? c->good_report : "", &run) && run.fault[0] == '\0';
        if (c->good_report ? strstr(run.fault, c->good_report) == NULL : !passes) {
            print_error("good twin of '%s': %s\n", c->name, run.fault);
            wrong++;
        }
        free(bad);
        free(good);
    }
    assert_int_equal(wrong, 0);
}

/* A report names both accesses. */
static void test_a_race_names_both_accesses(void **state) {
    (void)state;
    ptx_run run;
    char *body = fill_in(cases[2].text, "");
    assert_true(reported(&cases[2], body, "data race: reads 4 bytes at shared ", &run));
    assert_non_null(strstr(run.fault, "ld.shared.u32"));
    assert_non_null(strstr(run.fault, "st.shared.u32"));
    assert_non_null(strstr(run.fault, "warp 0, lane "));
    assert_non_null(strstr(run.fault, "__syncwarp"));
    free(body);
}

/* Six CTAs of two warps read a word, and all but `silent` say so; the seventh writes to it when it has heard of the
 * others. Whichever is silent, and in whatever order they come, it is a race. */
static void test_every_reader_counts(void **state) {
    (void)state;
    enum { READERS = 6, NOBODY = 99 };
    for (unsigned silent = 0; silent <= READERS; silent++) {
        char body[1600];
        snprintf(
            body, sizeof(body),
            "setp.eq.u32 %%p1, %%r0, %d;\n@%%p1 bra WRITER;\nld.global.u32 %%r5, [%%out];\n"
            "setp.eq.u32 %%p2, %%gtid, %u;\n@%%p2 bra END;\natom.release.gpu.global.add.u32 %%r6, [%%out+4], 1;\n"
            "ret;\nWRITER:\nld.acquire.gpu.global.u32 %%r6, [%%out+4];\nsetp.lt.u32 %%p3, %%r6, %u;\n"
            "@%%p3 bra WRITER;\nsetp.ne.u32 %%p3, %%tid, 0;\n@%%p3 bra END;\nst.global.u32 [%%out], 7;\nEND:\nret;\n",
            READERS, silent < READERS ? silent * 64 + 5 + silent % 2 * 32 : NOBODY * 64,
            READERS * 64 - (silent < READERS));
        for (uint64_t s = seed; s < seed + 6; s++) {
            memset(out, 0, sizeof(out));
            ptx_run run = {.grid = {READERS + 1, 1, 1}, .block = {64, 1, 1}, .seed = s, .out = out, .out_words = 1024};
            const bool clean = run_ptx(body, &run);
            if (clean != (silent == READERS) || (!clean && strstr(run.fault, "data race") == NULL))
                fail_msg("silent: %u, seed %llu: %s", silent, (unsigned long long)s,
                         clean ? "not reported" : run.fault);
        }
    }
}

int main(void) {
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_bad_and_good),
        cmocka_unit_test(test_a_race_names_both_accesses),
        cmocka_unit_test(test_every_reader_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
