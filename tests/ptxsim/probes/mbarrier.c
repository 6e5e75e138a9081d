/* SPDX-License-Identifier: MIT
 *
 * mbarriers: every thread has one of its own and carries out a script of operations on it, which the input holds. After
 * each it notes what the operation gave (a count of pending arrivals, whether a wait was over) and which parity's phase
 * has completed. The opaque state itself is not compared. */
#include "probe.h"

enum { THREADS = 64, STEPS = 64, MAX_COUNT = 6, MAX_BYTES = 4096 };

enum operation {
    ARRIVE,
    EXPECT,
    COMPLETE,
    ARRIVE_EXPECT,
    DROP,
    NO_COMPLETE,
    TEST_PARITY,
    TEST_STATE,
    TRY_PARITY,
    RENEW
};

/* ---- Scripts ---- */

/* What a barrier would do, so that a script keeps to what the ISA defines. */
typedef struct model {
    int expected, pending, tx, phase;
    int state_phase; /* of the last arrival's state; -1: there is none */
} model;

static void settle(model *m) {
    if (m->pending == 0 && m->tx == 0) {
        m->pending = m->expected;
        m->phase++;
    }
}

/* Chooses an operation that the barrier allows now. */
static uint32_t step(struct rng *r, model *m) {
    for (;;) {
        const enum operation op = (enum operation)rng_below(r, RENEW + (rng_below(r, 3) == 0));
        int value = 0;
        if (m->pending == 0 && (op == ARRIVE || op == ARRIVE_EXPECT || op == DROP))
            continue; /* only bytes are missing */
        switch (op) {
        case ARRIVE:
            value = (int)rng_range(r, 1, m->pending);
            break;
        case EXPECT:
        case ARRIVE_EXPECT:
            if (m->tx > MAX_BYTES)
                continue;
            value = m->tx < 0 ? -m->tx : (int)rng_range(r, 0, MAX_BYTES);
            break;
        case COMPLETE: /* sometimes before the bytes are expected */
            if (m->tx < 0)
                continue;
            value = rng_below(r, 4) ? m->tx : m->tx / 2 + (int)rng_below(r, 64);
            break;
        case DROP:
            if (m->expected == 1)
                continue;
            break;
        case NO_COMPLETE:
            if (m->pending < 2)
                continue;
            value = (int)rng_range(r, 1, m->pending - 1);
            break;
        case TEST_PARITY:
            value = (int)rng_below(r, 2);
            break;
        case TEST_STATE:
            if (m->state_phase < m->phase - 1)
                continue;
            break;
        case TRY_PARITY: /* of a phase that is over: others wait */
            value = (m->phase + 1) & 1;
            break;
        case RENEW:
            value = (int)rng_range(r, 1, MAX_COUNT);
            break;
        }
        if (op == ARRIVE || op == DROP || op == NO_COMPLETE || op == ARRIVE_EXPECT)
            m->state_phase = m->phase;
        if (op == EXPECT || op == ARRIVE_EXPECT)
            m->tx += value;
        if (op == COMPLETE)
            m->tx -= value;
        if (op == DROP)
            m->expected--;
        if (op == ARRIVE || op == NO_COMPLETE)
            m->pending -= value;
        if (op == DROP || op == ARRIVE_EXPECT)
            m->pending--;
        if (op == RENEW)
            *m = (model){.expected = value, .pending = value, .state_phase = -2};
        settle(m);
        return (uint32_t)op | (uint32_t)value << 8;
    }
}

/* ---- The kernel ---- */

static const struct {
    enum operation op;
    const char *text; /* %r3: value, %r4: address, %rd4: state, %r5: result */
} operations[] = {
    {ARRIVE, "mbarrier.arrive.shared.b64 %rd4, [%r4], %r3;\nmbarrier.pending_count.b64 %r5, %rd4;\n"},
    {EXPECT, "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r4], %r3;\n"},
    {COMPLETE, "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r4], %r3;\n"},
    {ARRIVE_EXPECT, "mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r4], %r3;\nmbarrier.pending_count.b64 %r5, %rd4;\n"},
    {DROP, "mbarrier.arrive_drop.shared.b64 %rd4, [%r4];\nmbarrier.pending_count.b64 %r5, %rd4;\n"},
    {NO_COMPLETE, "mbarrier.arrive.noComplete.shared.b64 %rd4, [%r4], %r3;\nmbarrier.pending_count.b64 %r5, %rd4;\n"},
    {TEST_PARITY, "mbarrier.test_wait.parity.shared.b64 %p1, [%r4], %r3;\nselp.u32 %r5, 1, 0, %p1;\n"},
    {TEST_STATE, "mbarrier.test_wait.shared.b64 %p1, [%r4], %rd4;\nselp.u32 %r5, 1, 0, %p1;\n"},
    {TRY_PARITY, "mbarrier.try_wait.parity.shared.b64 %p1, [%r4], %r3;\nselp.u32 %r5, 1, 0, %p1;\n"},
    {RENEW, "mbarrier.inval.shared.b64 [%r4];\nmbarrier.init.shared.b64 [%r4], %r3;\n"},
};

void probes_mbarrier(probe_list *list) {
    probe *p = probe_add(list, "mbarrier/scripts");
    struct rng r = probe_random(p);
    p->threads = THREADS;
    p->out_bytes = THREADS * STEPS * 4;
    p->keep = true;
    uint32_t *in = probe_input(p, THREADS * (STEPS + 1) * 4);
    for (int thread = 0; thread < THREADS; thread++) {
        const int count = (int)rng_range(&r, 1, MAX_COUNT);
        model m = {.expected = count, .pending = count, .state_phase = -2};
        *in++ = (uint32_t)count;
        for (int i = 0; i < STEPS; i++)
            *in++ = step(&r, &m);
    }
    probe_begin(p);
    probe_put(
        p,
        ".shared .align 8 .b64 bars[%d];\nmov.u32 %%r4, bars;\nmad.lo.u32 %%r4, %%thread, 8, %%r4;\n"
        "mad.wide.u32 %%rd2, %%thread, %d, %%in;\nmad.wide.u32 %%rd3, %%thread, %d, %%out;\nld.global.u32 %%r3, "
        "[%%rd2];\n"
        "mbarrier.init.shared.b64 [%%r4], %%r3;\nmov.u32 %%r6, 0;\nmov.b64 %%rd4, 0;\n"
        "STEP:\nld.global.u32 %%r3, [%%rd2+4];\nand.b32 %%r2, %%r3, 255;\nshr.u32 %%r3, %%r3, 8;\nmov.u32 %%r5, 255;\n",
        THREADS, 4 * (STEPS + 1), 4 * STEPS);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        probe_put(p, "setp.ne.u32 %%p0, %%r2, %d;\n@%%p0 bra NOT_%zu;\n%sbra NEXT;\nNOT_%zu:\n", (int)operations[i].op,
                  i, operations[i].text, i);
    probe_put(
        p,
        "NEXT:\nmbarrier.test_wait.parity.shared.b64 %%p2, [%%r4], 0;\nmbarrier.test_wait.parity.shared.b64 %%p3, "
        "[%%r4], 1;\n"
        "@%%p2 or.b32 %%r5, %%r5, 0x10000;\n@%%p3 or.b32 %%r5, %%r5, 0x20000;\nst.global.u32 [%%rd3], %%r5;\n"
        "add.u64 %%rd2, %%rd2, 4;\nadd.u64 %%rd3, %%rd3, 4;\nadd.u32 %%r6, %%r6, 1;\nsetp.lt.u32 %%more, %%r6, %d;\n"
        "@%%more bra STEP;\n",
        STEPS);
    probe_end(p);
}
