/* SPDX-License-Identifier: MIT
 *
 * Which targets have which instructions, and which chips run code for which targets. The lists are what ptxas 13.0
 * accepts; where it says nothing about a chip, what the PTX ISA says of families. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "target.h"

static const char *const targets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90",   "sm_90a", "sm_100",
                                      "sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110", "sm_110a",
                                      "sm_120",  "sm_120a", "sm_120f", "sm_121a"};

#define FROM_80                                                                                                        \
    "sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_100f sm_103a sm_103f sm_110 sm_110a sm_120 sm_120a sm_120f "     \
    "sm_121a"
#define FROM_90    "sm_90 sm_90a sm_100 sm_100a sm_100f sm_103a sm_103f sm_110 sm_110a sm_120 sm_120a sm_120f sm_121a"
#define FROM_100   "sm_100 sm_100a sm_100f sm_103a sm_103f sm_110 sm_110a sm_120 sm_120a sm_120f sm_121a"
#define FAMILY_100 "sm_100a sm_100f sm_103a sm_103f"
#define SETMAXNREG "sm_90a sm_100a sm_100f sm_103a sm_103f sm_110a sm_120a sm_120f sm_121a"
#define BLACKWELL  "sm_100a sm_100f sm_103a sm_103f sm_110a sm_120a sm_120f sm_121a"
#define FROM_89                                                                                                        \
    "sm_89 sm_90 sm_90a sm_100 sm_100a sm_100f sm_103a sm_103f sm_110 sm_110a sm_120 sm_120a sm_120f sm_121a"
#define FAMILY_120 "sm_120a sm_120f sm_121a"
#define HOPPER     "sm_90a"
#define FROM_86                                                                                                        \
    "sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_100f sm_103a sm_103f sm_110 sm_110a sm_120 sm_120a sm_120f sm_121a"

static const struct {
    const char *targets, *text;
} instructions[] = {
    {FROM_80, "cp.async.ca.shared.global [%r1], [%rd1], 16"},
    {FROM_80, "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]"},
    {FROM_80, "createpolicy.fractional.L2::evict_first.b64 %rd1"},
    {FROM_80, "fence.proxy.alias"},
    {FROM_80, "fence.sc.gpu"},
    {FROM_80, "fence.acquire.gpu"},
    {FROM_80, "mbarrier.init.shared.b64 [%r1], 3"},
    {FROM_80, "mbarrier.arrive.shared.b64 %rd1, [%r1]"},
    {FROM_80, "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 2"},
    {FROM_80, "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1"},
    {FROM_80, "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 1"},
    {FROM_80, "prefetch.global.L2 [%rd1]"},
    {FROM_80, "ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd2"},
    {FROM_80, "st.global.L2::cache_hint.b32 [%rd1], %r1, %rd2"},
    {FROM_80, "ld.global.L2::128B.b32 %r1, [%rd1]"},
    {FROM_80, "red.global.add.f32 [%rd1], %f1"},
    {FROM_80, "red.global.add.noftz.f16x2 [%rd1], %r1"},
    {FROM_80, "redux.sync.add.u32 %r1, %r2, 0xffffffff"},
    {FROM_80, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3}, [%r4]"},
    {FROM_80, "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2"},
    {FROM_80, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1},{%r4},{%f0,%f1,%f2,%f3}"},
    {FROM_80, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1},{%r4},{%f0,%f1,%f2,%f3}"},
    {FROM_80, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
              "{%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3}"},
    {FROM_80, "fma.rn.bf16x2 %r1, %r2, %r3, %r4"},
    {FROM_80, "fma.rn.relu.f16x2 %r1, %r2, %r3, %r4"},
    {FROM_80, "fma.rn.f16x2 %r1, %r2, %r3, %r4"},
    {FROM_80, "max.f16x2 %r1, %r2, %r3"},
    {FROM_80, "max.bf16x2 %r1, %r2, %r3"},
    {FROM_80, "max.NaN.f32 %f1, %f2, %f3"},
    {FROM_80, "neg.bf16x2 %r1, %r2"},
    {FROM_80, "abs.f16x2 %r1, %r2"},
    {FROM_80, "neg.f16 %h1, %h2"},
    {FROM_80, "abs.f16 %h1, %h2"},
    {FROM_80, "ex2.approx.f16x2 %r1, %r2"},
    {FROM_80, "tanh.approx.f32 %f1, %f2"},
    {FROM_80, "tanh.approx.f16x2 %r1, %r2"},
    {FROM_80, "setp.gt.f16x2 %p1|%p2, %r1, %r2"},
    {FROM_80, "cvt.rn.bf16.f32 %h1, %f1"},
    {FROM_80, "cvt.rn.bf16x2.f32 %r1, %f1, %f2"},
    {FROM_80, "cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2"},
    {FROM_80, "cvt.rn.f16x2.f32 %r1, %f1, %f2"},
    {FROM_80, "cvt.rn.relu.f16x2.f32 %r1, %f1, %f2"},
    {FROM_80, "cvt.rn.satfinite.f16x2.f32 %r1, %f1, %f2"},
    {FROM_80, "cvt.rz.bf16.f32 %h1, %f1"},
    {FROM_80, "cvt.f32.bf16 %f1, %h1"},
    {FROM_80, "cvt.rna.tf32.f32 %r1, %f1"},
    {FROM_80, "cvt.rna.satfinite.tf32.f32 %r1, %f1"},
    {FROM_80, "cvt.pack.sat.u16.s32 %r1, %r2, %r3"},
    {FROM_80, "vote.sync.ballot.b32 %r1, %p1, 0xffffffff"},
    {FROM_80, "match.any.sync.b32 %r1, %r2, 0xffffffff"},
    {FROM_80, "nanosleep.u32 20"},
    {FROM_80, "dp4a.u32.u32 %r1, %r2, %r3, %r4"},
    {FROM_80, "min.f16 %h1, %h2, %h3"},
    {FROM_80, "max.NaN.f16x2 %r1, %r2, %r3"},
    {FROM_80, "add.f16x2 %r1, %r2, %r3"},
    {FROM_80, "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x3f, %p2"},
    {FROM_80, "bmsk.clamp.b32 %r1, %r2, %r3"},
    {FROM_80, "szext.wrap.u32 %r1, %r2, %r3"},
    {FROM_80, "shf.l.wrap.b32 %r1, %r2, %r3, %r4"},
    {FROM_80, "ld.global.relaxed.gpu.b32 %r1, [%rd1]"},
    {FROM_80, "activemask.b32 %r1"},
    {FROM_80, "bar.red.popc.u32 %r1, 0, %p1"},
    {FROM_80, "barrier.sync.aligned 0, 64"},
    {FROM_80, "testp.finite.f32 %p1, %f1"},
    {FROM_80, "copysign.f32 %f1, %f2, %f3"},
    {FROM_80, "isspacep.shared %p1, %rd1"},
    {FROM_80, "brev.b32 %r1, %r2"},
    {FROM_80, "set.gt.u32.f16x2 %r1, %r2, %r3"},
    {FROM_90, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2]"},
    {FROM_90, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2]"},
    {FROM_90, "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16"},
    {FROM_90, "cp.async.bulk.commit_group"},
    {FROM_90, "cp.async.bulk.prefetch.L2.global [%rd1], 16"},
    {FROM_90, "fence.proxy.async"},
    {FROM_90, "fence.acq_rel.cluster"},
    {FROM_90, "fence.mbarrier_init.release.cluster"},
    {FROM_90, "mbarrier.arrive.shared.b64 %rd1, [%r1], 2"},
    {FROM_90, "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 16"},
    {FROM_90, "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 1"},
    {FROM_90, "prefetch.tensormap [%rd1]"},
    {FROM_90, "red.global.v2.f32.add [%rd1], {%f1,%f2}"},
    {FROM_90, "red.global.add.noftz.bf16x2 [%rd1], %r1"},
    {FROM_90, "atom.global.add.noftz.bf16 %h1, [%rd1], %h2"},
    {FROM_90, "elect.sync %r1|%p1, 0xffffffff"},
    {FROM_90, "griddepcontrol.wait"},
    {FROM_90, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0,%r1,%r2,%r3}"},
    {FROM_90, "add.bf16 %h1, %h2, %h3"},
    {FROM_90, "add.rn.bf16x2 %r1, %r2, %r3"},
    {FROM_90, "mul.bf16x2 %r1, %r2, %r3"},
    {FROM_90, "max.s16x2 %r1, %r2, %r3"},
    {FROM_90, "max.relu.s32 %r1, %r2, %r3"},
    {FROM_90, "max.relu.s16x2 %r1, %r2, %r3"},
    {FROM_90, "add.s16x2 %r1, %r2, %r3"},
    {FROM_90, "ex2.approx.ftz.bf16x2 %r1, %r2"},
    {FROM_90, "tanh.approx.bf16x2 %r1, %r2"},
    {FROM_90, "setp.gt.bf16 %p1, %h1, %h2"},
    {FROM_90, "setp.gt.bf16x2 %p1|%p2, %r1, %r2"},
    {FROM_90, "set.gt.bf16x2.bf16x2 %r1, %r2, %r3"},
    {FROM_90, "cvt.rn.bf16.s32 %h1, %r1"},
    {FROM_90, "cvt.rn.tf32.f32 %r1, %f1"},
    {FROM_90, "cvt.rz.relu.tf32.f32 %r1, %f1"},
    {FROM_90, "red.global.add.v2.f32 [%rd1], {%f1,%f2}"},
    {FROM_90, "red.global.v4.f32.add [%rd1], {%f1,%f2,%f1,%f2}"},
    {FROM_90, "red.global.v2.f16x2.add.noftz [%rd1], {%r1,%r2}"},
    {FROM_90, "red.global.add.noftz.v4.bf16x2 [%rd1], {%r1,%r2,%r3,%r4}"},
    {FROM_90, "atom.global.v2.f32.add {%f1,%f2}, [%rd1], {%f3,%f4}"},
    {FROM_90, "set.gt.u32.bf16x2 %r1, %r2, %r3"},
    {FROM_90, "max.s32.relu %r1, %r2, %r3"},
    {FROM_100, "ld.global.v8.b32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%rd1]"},
    {FROM_100, "ld.global.v4.b64 {%rd2,%rd3,%rd4,%rd5}, [%rd1]"},
    {FROM_100, "st.global.v8.b32 [%rd1], {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}"},
    {FROM_100, "max.f32 %f1, %f2, %f3, %f4"},
    {FROM_100, "max.NaN.abs.f32 %f1, %f2, %f3, %f4"},
    {FROM_100, "add.f32x2 %rd1, %rd2, %rd3"},
    {FROM_100, "add.rn.ftz.f32x2 %rd1, %rd2, %rd3"},
    {FROM_100, "sub.f32x2 %rd1, %rd2, %rd3"},
    {FROM_100, "mul.f32x2 %rd1, %rd2, %rd3"},
    {FROM_100, "fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4"},
    {FROM_100, "cvt.rn.satfinite.tf32.f32 %r1, %f1"},
    {FROM_100, "cvt.rn.satfinite.relu.tf32.f32 %r1, %f1"},
    {FROM_100, "add.rn.f32.bf16 %f1, %h1, %f2"},
    {FROM_100, "fma.rn.f32.f16 %f1, %h1, %h2, %f2"},
    {FROM_100, "sub.f32.f16 %f1, %h1, %f2"},
    {FROM_100, "add.rn.f32.f16 %f1, %h1, %f2"},
    {FROM_100, "sub.rz.sat.f32.bf16 %f1, %h1, %f2"},
    {FROM_100, "fma.rn.f32.bf16 %f1, %h1, %h2, %f2"},
    {FROM_100, "ld.global.v4.f64 {%rd2,%rd3,%rd4,%rd5}, [%rd1]"},
    {FROM_100, "st.global.v4.b64 [%rd1], {%rd2,%rd3,%rd4,%rd5}"},
    {FROM_100, "st.global.v8.f32 [%rd1], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}"},
    {FAMILY_100, "redux.sync.max.f32 %f1, %f2, 0xffffffff"},
    {SETMAXNREG, "setmaxnreg.inc.sync.aligned.u32 240"},
    {BLACKWELL, "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%r4]"},
    {BLACKWELL, "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%r0,%r1}, [%r4]"},
    {BLACKWELL, "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32 {%r0,%r1}, [%r4]"},
    {BLACKWELL, "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b4x16_p64 {%r0,%r1}, [%r4]"},
    {BLACKWELL, "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r4], {%r0,%r1}"},
    {BLACKWELL, "cvt.rn.satfinite.e2m3x2.f32 %h1, %f1, %f2"},
    {BLACKWELL, "cvt.rn.satfinite.relu.e3m2x2.f32 %h1, %f1, %f2"},
    {BLACKWELL, "cvt.rn.f16x2.e2m3x2 %r1, %h1"},
    {BLACKWELL, "cvt.rz.ue8m0x2.f32 %h1, %f1, %f2"},
    {BLACKWELL, "cvt.rp.satfinite.ue8m0x2.bf16x2 %h1, %r1"},
    {BLACKWELL, "cvt.rn.bf16x2.ue8m0x2 %r1, %h1"},
    {BLACKWELL, "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r4], {%r0}"},
    {FROM_89, "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%r8,%r9},{%r0,%r1,%r2,%r3},{%r4,%r5},{%r8,%r9}"},
    {FROM_89, "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2"},
    {FROM_89, "cvt.rn.satfinite.relu.e5m2x2.f32 %h1, %f1, %f2"},
    {FROM_89, "cvt.rn.satfinite.e4m3x2.f16x2 %h1, %r1"},
    {FROM_89, "cvt.rn.f16x2.e4m3x2 %r1, %h1"},
    {FROM_89, "cvt.rn.relu.f16x2.e5m2x2 %r1, %h1"},
    {FAMILY_120, "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 "
                 "{%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3}, %r6,{0,0},%r7,{2,0}"},
    {HOPPER, "wgmma.fence.sync.aligned"},
    {FROM_86, "max.xorsign.abs.f32 %f1, %f2, %f3"},
    {FROM_86, "max.xorsign.abs.f16 %h1, %h2, %h3"},
};

static bool listed(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void test_instructions(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
            char text[1024], error[512] = "";
            const int size = snprintf(text, sizeof text,
                                      ".version 9.0\n.target %s\n.address_size 64\n.visible .entry k()\n{\n"
                                      ".reg .b32 %%r<20>;\n.reg .b64 %%rd<10>;\n.reg .b16 %%h<10>;\n"
                                      ".reg .pred %%p<5>;\n.reg .f32 %%f<10>;\n%s;\nret;\n}\n",
                                      targets[t], instructions[i].text);
            ptx_module *module = ptx_module_parse(text, (size_t)size, error, sizeof error);
            const bool accepted = module != NULL, expected = listed(instructions[i].targets, targets[t]);
            ptx_module_free(module);
            if (accepted != expected)
                fail_msg("%s: %s %s: %s", targets[t], instructions[i].text, accepted ? "accepted" : "refused", error);
            if (!accepted && !strstr(error, "needs sm_"))
                fail_msg("%s: %s: message is \"%s\"", targets[t], instructions[i].text, error);
        }
    }
}

static void test_runs(void **unused) {
    (void)unused;
    static const struct {
        const char *target;
        int chip;
        bool runs;
    } cases[] = {
        {"sm_80", 80, true},     {"sm_80", 121, true},    {"sm_86", 80, false},    {"sm_89", 90, true},
        {"sm_90", 90, true},     {"sm_90", 89, false},    {"sm_90a", 90, true},    {"sm_90a", 100, false},
        {"sm_100", 103, true},   {"sm_100a", 100, true},  {"sm_100a", 103, false}, {"sm_100f", 103, true},
        {"sm_100f", 107, true},  {"sm_100f", 110, false}, {"sm_100f", 120, false}, {"sm_103f", 100, false},
        {"sm_103f", 107, true},  {"sm_107a", 107, true},  {"sm_110a", 110, true},  {"sm_101a", 110, true},
        {"sm_101a", 100, false}, {"sm_110f", 120, false}, {"sm_120f", 121, true},  {"sm_121f", 120, false},
        {"sm_120a", 121, false}, {"sm_121a", 121, true},  {"sm_120", 121, true},   {"sm_75", 80, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ptx_target target;
        assert_true(target_parse(cases[i].target, &target));
        if (target_runs(&target, cases[i].chip) != cases[i].runs)
            fail_msg("%s on sm_%d", cases[i].target, cases[i].chip);
    }
}

static void test_names(void **unused) {
    (void)unused;
    static const char *const wrong[] = {"",     "sm_",        "sm_9",   "sm_90b", "sm_90aa",
                                        "sm90", "compute_90", "sm_90 ", "sm_-90", "sm_1000000000000"};
    ptx_target target;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (target_parse(wrong[i], &target))
            fail_msg("%s was accepted", wrong[i]);
    assert_true(target_parse("sm_101f", &target));
    assert_int_equal(target.number, 110);
    assert_int_equal(target.suffix, 'f');
    static const char text[] = ".version 9.0\n.target sm_90x\n.address_size 64\n";
    char error[256] = "";
    assert_null(ptx_module_parse(text, sizeof text - 1, error, sizeof error));
    assert_non_null(strstr(error, "target sm_90x is none that is known"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
