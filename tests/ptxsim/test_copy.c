/* SPDX-License-Identifier: MIT
 *
 * cp.async: what its groups order and what they do not. What is wrong must be reported whatever the order of events, so
 * that each body runs with many seeds. */
#include <time.h>

#include "run_ptx.h"

enum { SEEDS = 25, THREADS = 64 };

static uint64_t base_seed;
static uint32_t in[4 * THREADS] __attribute__((aligned(16)));
static uint32_t out[4 * THREADS] __attribute__((aligned(16)));

static ptx_run run_of(uint64_t seed) {
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        in[i] = (uint32_t)(1000 + i);
    memset(out, 0, sizeof out);
    return (ptx_run){.grid = {1, 1, 1},
                     .block = {THREADS, 1, 1},
                     .seed = seed,
                     .target = "sm_80",
                     .in = in,
                     .in_words = sizeof in / sizeof *in,
                     .out = out,
                     .out_words = sizeof out / sizeof *out};
}

/* %r1: 16 bytes of shared memory of the thread's own, %r2: those of the thread after it, %rd1: 16 bytes of `in`. */
#define HEAD                                                                                                           \
    "mov.b32 %r3, buffer;\nshl.b32 %r4, %tid, 4;\nadd.u32 %r1, %r3, %r4;\nadd.u32 %r5, %r4, 16;\n"                     \
    "and.b32 %r5, %r5, 1008;\nadd.u32 %r2, %r3, %r5;\ncvt.u64.u32 %rd0, %r4;\nadd.u64 %rd1, %in, %rd0;\n"
#define COPY    "cp.async.cg.shared.global [%r1], [%rd1], 16;\n"
#define COMMIT  "cp.async.commit_group;\n"
#define OWN     "ld.shared.b32 %r6, [%r1];\nst.global.b32 [%my_out], %r6;\nret;\n"
#define NEXT    "ld.shared.b32 %r6, [%r2];\nst.global.b32 [%my_out], %r6;\nret;\n"
#define BARRIER "bar.sync 0;\n"

static void test_right(void **unused) {
    (void)unused;
    static const struct {
        const char *body;
        uint32_t step; /* whose words are read: 0 the thread's own, 1 the next one's */
    } cases[] = {
        {HEAD COPY COMMIT "cp.async.wait_group 0;\n" OWN, 0},
        {HEAD COPY "cp.async.wait_all;\n" OWN, 0},
        {HEAD COPY COMMIT "cp.async.wait_group 0;\n" BARRIER NEXT, 1},
        {HEAD COPY COMMIT "cp.async.ca.shared.global [%r1+2048], [%rd1], 4;\n" COMMIT "cp.async.wait_group 1;\n"
                          "ld.shared.b32 %r6, [%r1];\nst.global.b32 [%my_out], %r6;\ncp.async.wait_all;\nret;\n",
         0},
        {HEAD "cp.async.ca.shared.global [%r1], [%rd1], 4;\ncp.async.ca.shared.global [%r1+4], [%rd1+4], 4;\n" COMMIT
              "cp.async.wait_group 0;\n" BARRIER NEXT,
         1},
        /* An mbarrier of all threads, on which each arrives when its copies are done. */
        {HEAD "setp.ne.u32 %p1, %tid, 0;\n@!%p1 mbarrier.init.shared.b64 [%r3+2048], 64;\n" BARRIER COPY
              "cp.async.mbarrier.arrive.noinc.shared.b64 [%r3+2048];\nagain:\n"
              "mbarrier.test_wait.parity.shared.b64 %p2, [%r3+2048], 0;\n@!%p2 bra again;\n" NEXT,
         1},
        /* Without .noinc the pending count grows by what arrives. */
        {HEAD "setp.ne.u32 %p1, %tid, 0;\n@!%p1 mbarrier.init.shared.b64 [%r3+2048], 64;\n" BARRIER COPY
              "cp.async.mbarrier.arrive.shared.b64 [%r3+2048];\nmbarrier.arrive.shared.b64 %rd5, [%r3+2048];\nagain:\n"
              "mbarrier.test_wait.shared.b64 %p2, [%r3+2048], %rd5;\n@!%p2 bra again;\n" NEXT,
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ptx_run run = run_of(base_seed + seed);
            RUN_OK(cases[i].body, &run);
            for (uint32_t t = 0; t < THREADS; t++)
                assert_int_equal(out[t], 1000 + 4 * ((t + cases[i].step) % THREADS));
        }
    }
}

/* Sources smaller than the copy, or ignored: zeros. */
static void test_zeros(void **unused) {
    (void)unused;
    const char *body = HEAD "and.b32 %r7, %tid, 15;\ncp.async.cg.shared.global [%r1], [%rd1], 16, %r7;\n" COMMIT
                            "cp.async.wait_group 0;\nld.shared.b32 %r6, [%r1+4];\nst.global.b32 [%my_out], %r6;\n"
                            "and.b32 %r8, %tid, 1;\nsetp.eq.u32 %p1, %r8, 1;\n"
                            "cp.async.ca.shared.global [%r1+1024], [%rd1], 8, %p1;\ncp.async.wait_all;\n"
                            "ld.shared.b32 %r6, [%r1+1024];\nst.global.b32 [%my_out+256], %r6;\nret;\n";
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ptx_run run = run_of(base_seed + seed);
        RUN_OK(body, &run);
        for (uint32_t t = 0; t < THREADS; t++) {
            const uint32_t bytes = t % 16 < 4 ? 0 : t % 16 - 4, word = 1000 + 4 * t;
            assert_int_equal(out[t], bytes >= 4 ? word + 1 : (word + 1) & ((1u << 8 * bytes) - 1));
            assert_int_equal(out[THREADS + t], t % 2 ? 0 : word);
        }
    }
}

static void test_wrong(void **unused) {
    (void)unused;
    static const struct {
        const char *body, *reports[2]; /* one of them */
    } cases[] = {
        /* not waited for; not committed; the newest of two groups; waited for before the copy */
        {HEAD COPY COMMIT OWN, {"is undefined", "data race"}},
        {HEAD COPY "cp.async.wait_group 0;\n" OWN, {"is undefined", "data race"}},
        {HEAD COPY COMMIT
         "cp.async.ca.shared.global [%r1+2048], [%rd1], 4;\n" COMMIT
         "cp.async.wait_group 1;\nld.shared.b32 %r6, [%r1+2048];\nst.global.b32 [%my_out], %r6;\nret;\n",
         {"is undefined", "data race"}},
        {HEAD "cp.async.wait_all;\n" COPY OWN, {"is undefined", "data race"}},
        /* waited for by the thread that copied alone, or before the barrier and the wait have been exchanged */
        {HEAD COPY "cp.async.wait_all;\n" NEXT, {"is undefined", "data race"}},
        {HEAD COPY BARRIER "cp.async.wait_all;\n" NEXT, {"is undefined", "data race"}},
        /* overwritten while it is under way, read while the next copy is under way */
        {HEAD COPY "mov.b32 %r7, 3;\nst.shared.b32 [%r1], %r7;\ncp.async.wait_all;\nret;\n",
         {"data race", "under way"}},
        {HEAD COPY "cp.async.wait_all;\n" BARRIER "ld.shared.b32 %r6, [%r2];\n" COPY
                   "st.global.b32 [%my_out], %r6;\ncp.async.wait_all;\nret;\n",
         {"data race", "under way"}},
        /* an mbarrier that waits for nothing of it */
        {HEAD "setp.ne.u32 %p1, %tid, 0;\n@!%p1 mbarrier.init.shared.b64 [%r3+2048], 64;\n" BARRIER COPY
              "mbarrier.arrive.shared.b64 %rd5, [%r3+2048];\nagain:\n"
              "mbarrier.test_wait.shared.b64 %p2, [%r3+2048], %rd5;\n@!%p2 bra again;\n" OWN,
         {"is undefined", "data race"}},
        {HEAD COPY "ret;\n", {"exited while this copy", "data race"}},
        {HEAD "cp.async.cg.shared.global [%r1+4], [%rd1], 16;\nret;\n", {"not a multiple of 16", ""}},
        {HEAD "cp.async.ca.shared.global [%r1], [%rd1], 8, 12;\nret;\n", {"above the copy's size", ""}},
        {HEAD "cp.async.ca.shared.global [%r1], [%rd1+1024], 4;\nret;\n", {"bounds", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ptx_run run = run_of(base_seed + seed);
            if (run_ptx(cases[i].body, &run)) {
                /* Copies that are done before the thread exits are no mistake that could be seen. */
                if (strstr(cases[i].reports[0], "exited"))
                    continue;
                fail_msg("seed %llu, case %zu: nothing reported", (unsigned long long)run.seed, i);
            }
            const bool second = *cases[i].reports[1] && strstr(run.fault, cases[i].reports[1]);
            if (!strstr(run.fault, cases[i].reports[0]) && !second)
                fail_msg("seed %llu, case %zu: %s", (unsigned long long)run.seed, i, run.fault);
        }
    }
}

static void test_refused(void **unused) {
    (void)unused;
    static const ptx_refused cases[] = {
        {"sm_75", "cp.async.ca.shared.global [%r1], [%rd1], 4", "needs sm_80 or newer, not sm_75"},
        {"sm_80", "cp.async.bulk.commit_group", "needs sm_90 or newer, not sm_80"},
        {"sm_80", "cp.async.cs.shared.global [%r1], [%rd1], 4", "not implemented"},
        {"sm_80", "cp.async.ca.global.shared [%rd1], [%r1], 4", "not implemented"},
    };
    check_refused(cases, sizeof cases / sizeof *cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_refused),
    };
    base_seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
