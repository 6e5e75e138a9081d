/* SPDX-License-Identifier: MIT
 *
 * ldmatrix and stmatrix of bytes and of packed numbers, movmatrix; vectors of 32 bytes, additions of vectors to global
 * memory, f32 arithmetic with narrow sources. */
#include <time.h>

#include "run_ptx.h"

enum { WARP = 32, WORDS = 1024 };

static uint32_t in[WORDS] __attribute__((aligned(32)));
static uint32_t out[WORDS] __attribute__((aligned(32)));
static uint64_t state;

static ptx_run run_for(const char *target, unsigned threads) {
    for (size_t i = 0; i < WORDS; i++)
        in[i] = test_random(&state);
    memset(out, 0xee, sizeof out);
    return (ptx_run){.grid = {1, 1, 1},
                     .block = {threads, 1, 1},
                     .seed = state,
                     .target = target,
                     .in = in,
                     .in_words = WORDS,
                     .out = out,
                     .out_words = WORDS};
}

/* Row l of 16 bytes, from `in`, lies at 32 l of the buffer, whose address is %r3; %r5 is that of lane l's row. */
#define ROWS                                                                                                           \
    "mov.u32 %r3, buffer;\nmul.lo.u32 %r5, %tid, 32;\nadd.u32 %r5, %r3, %r5;\nmad.wide.u32 %rd1, %tid, 16, %in;\n"     \
    "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd1];\nst.shared.v4.b32 [%r5], {%r10, %r11, %r12, %r13};\n"          \
    "bar.warp.sync -1;\n"
#define STORE "mad.wide.u32 %rd2, %tid, 16, %out;\nst.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23};\nret;\n"

static uint8_t byte_at(int row, int column) {
    return ((const uint8_t *)in)[16 * row + column];
}

/* Number `i` of `bits` bits of a row, which is packed at its start. */
static uint32_t packed_at(int row, int i, int bits) {
    uint32_t value = 0;
    for (int b = 0; b < bits; b++)
        value |= (uint32_t)(byte_at(row, (i * bits + b) / 8) >> (i * bits + b) % 8 & 1) << b;
    return value;
}

static void run_load(const char *target, const char *shape, const char *types) {
    char body[1024];
    snprintf(body, sizeof body, "%sldmatrix.sync.aligned.%s.shared.%s {%%r20, %%r21, %%r22, %%r23}, [%%r5];\n%s", ROWS,
             shape, types, STORE);
    ptx_run run = run_for(target, WARP);
    RUN_OK(body, &run);
}

static void test_bytes(void **unused) {
    (void)unused;
    static const struct {
        const char *types;
        int bits;
    } kinds[] = {{"b8", 8}, {"b8x16.b6x16_p32", 6}, {"b8x16.b4x16_p64", 4}};
    for (size_t k = 0; k < 3; k++) {
        run_load("sm_120a", "m16n16.x2.trans", kinds[k].types);
        for (int i = 0; i < 4 * 4 * WARP; i++) {
            /* Bytes 0 and 1 are of one column, 2 and 3 of the eighth after it, in neighbouring rows. */
            const int lane = i / 16, reg = i / 4 % 4, j = i % 4;
            const int row = 16 * (reg / 2) + 4 * (lane % 4) + 2 * (reg % 2) + j % 2, column = lane / 4 + 8 * (j / 2);
            assert_int_equal(out[4 * lane + reg] >> 8 * j & 0xff, packed_at(row, column, kinds[k].bits));
        }
        if (kinds[k].bits == 8)
            continue;
        run_load("sm_100a", "m8n16.x4", kinds[k].types);
        for (int i = 0; i < 4 * 4 * WARP; i++) {
            const int lane = i / 16, reg = i / 4 % 4, j = i % 4;
            assert_int_equal(out[4 * lane + reg] >> 8 * j & 0xff,
                             packed_at(8 * reg + lane / 4, 4 * (lane % 4) + j, kinds[k].bits));
        }
    }
}

/* By hand: byte 5 of row 6, alone 0x5a: column 5 is in the group of lanes 20 to 23, row 6 in place 1 (rows 4 to 7), its
 * second register (rows 6 and 7), first byte. */
static void test_one_byte(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_120a", WARP);
    memset(in, 0, sizeof in);
    ((uint8_t *)in)[16 * 6 + 5] = 0x5a;
    RUN_OK(ROWS "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r20, %r21}, [%r5];\nmov.b32 %r22, 0;\nmov.b32 %r23, "
                "0;\n" STORE,
           &run);
    for (int i = 0; i < 4 * WARP; i++)
        assert_int_equal(out[i], i == 4 * 21 + 1 ? 0x5a : 0);
}

static void test_store_bytes(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_120a", WARP);
    RUN_OK(
        "mov.u32 %r3, buffer;\nmul.lo.u32 %r5, %tid, 16;\nadd.u32 %r5, %r3, %r5;\nmad.wide.u32 %rd1, %tid, 16, %in;\n"
        "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd1];\n"
        "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r5], {%r10, %r11, %r12, %r13};\nbar.warp.sync -1;\n"
        "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r5];\n" STORE,
        &run);
    const uint8_t *stored = (const uint8_t *)out;
    for (int lane = 0; lane < WARP; lane++)
        for (int m = 0; m < 4; m++)
            for (int j = 0; j < 4;
                 j++) /* accumulators' places: row l / 4 (and 8 further), columns 2 (l % 4) + {0, 1} */
                assert_int_equal(stored[16 * (8 * m + 2 * (lane % 4) + j % 2) + lane / 4 + 8 * (j / 2)],
                                 in[4 * lane + m] >> 8 * j & 0xff);
}

static void test_transpose(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_80", WARP);
    RUN_OK("ld.global.b32 %r1, [%my_in];\nmovmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;\n"
           "movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;\nst.global.b32 [%my_out], %r2;\n"
           "st.global.b32 [%my_out+128], %r3;\nret;\n",
           &run);
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++)
            assert_int_equal(((const uint16_t *)out)[8 * c + r], ((const uint16_t *)in)[8 * r + c]);
    assert_memory_equal(out + WARP, in, 4 * WARP);
}

/* ---- Undefined rows ---- */

static void test_undefined(void **unused) {
    (void)unused;
#define PARTLY                                                                                                         \
    "mov.u32 %r3, buffer;\nmul.lo.u32 %r5, %tid, 16;\nadd.u32 %r5, %r3, %r5;\nmov.b32 %r6, 7;\n"                       \
    "setp.ne.u32 %p1, %tid, 2;\n@%p1 st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6};\nbar.warp.sync -1;\n"               \
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r20}, [%r5];\nshr.u32 %r7, %tid, 2;\n"
    ptx_run run = run_for("sm_80", WARP);
    RUN_OK(PARTLY "setp.ne.u32 %p2, %r7, 2;\n@%p2 st.global.b32 [%my_out], %r20;\nret;\n", &run);
    RUN_FAULT(PARTLY "setp.ne.u32 %p2, %r7, 1;\n@%p2 st.global.b32 [%my_out], %r20;\nret;\n", &run, "is undefined");
}

/* ---- Vectors ---- */

static void test_wide_vectors(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_100", WARP);
    RUN_OK("mad.wide.u32 %rd1, %tid, 64, %in;\nmad.wide.u32 %rd2, %tid, 64, %out;\n"
           "ld.global.v8.b32 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%rd1];\n"
           "ld.global.v4.b64 {%rd3,%rd4,%rd5,%rd6}, [%rd1+32];\n"
           "st.global.v8.f32 [%rd2], {%r17,%r16,%r15,%r14,%r13,%r12,%r11,%r10};\n"
           "st.global.v4.u64 [%rd2+32], {%rd6,%rd5,%rd4,%rd3};\nret;\n",
           &run);
    for (int lane = 0; lane < WARP; lane++) {
        for (int i = 0; i < 8; i++)
            assert_int_equal(out[16 * lane + i], in[16 * lane + 7 - i]);
        for (int i = 0; i < 8; i++)
            assert_int_equal(out[16 * lane + 8 + i], in[16 * lane + 8 + (3 - i / 2) * 2 + i % 2]);
    }
    RUN_FAULT("ld.global.v8.b32 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%in+16];\nret;\n", &run, "multiple of 32");
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 32 lanes add to the same vectors; atom returns what was there before: each value once. */
static void test_vector_additions(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_90", WARP);
    memset(out, 0, sizeof out);
    RUN_OK("mov.b32 %r1, 0f3F800000;\nmov.b32 %r2, 0f40000000;\nmov.b32 %r3, 0x3c004000;\nmov.b32 %r4, 0x3f804000;\n"
           "red.global.add.v2.f32 [%out], {%r1, %r2};\nred.global.v4.f32.add [%out+16], {%r2, %r1, %r1, %r2};\n"
           "red.global.v2.f16x2.add.noftz [%out+32], {%r3, %r3};\nred.global.add.noftz.v4.bf16x2 [%out+48], {%r4, %r4, "
           "%r4, %r4};\n"
           "atom.global.v2.f32.add {%r5, %r6}, [%out+64], {%r1, %r2};\nst.global.b32 [%my_out+128], %r5;\n"
           "st.global.b32 [%my_out+256], %r6;\nret;\n",
           &run);
    static const float sums[] = {32, 64, 0, 0, 64, 32, 32, 64};
    for (int i = 0; i < 8; i++)
        assert_true(float_of(out[i]) == sums[i]);
    assert_int_equal(out[8], 0x50005400); /* 32 and 64 in f16 */
    assert_int_equal(out[9], 0x50005400);
    assert_int_equal(out[12], 0x42004280); /* in bf16 */
    assert_int_equal(out[15], 0x42004280);
    uint32_t seen = 0;
    for (int lane = 0; lane < WARP; lane++) {
        const float before = float_of(out[32 + lane]);
        assert_true(float_of(out[64 + lane]) == 2 * before);
        seen |= 1u << (int)before;
    }
    assert_int_equal(seen, UINT32_MAX);
}

/* ---- f32 with f16 and bf16 sources ---- */

static void test_mixed(void **unused) {
    (void)unused;
    ptx_run run = run_for("sm_100", 1);
    /* 1.5 (f16 0x3e00, bf16 0x3fc0), -2 (0xc000 in both); 2^-24 is lost when rounding down, and not when rounding up.
     */
    RUN_OK("mov.b16 %h1, 0x3e00;\nmov.b16 %h2, 0x3fc0;\nmov.b16 %h3, 0xc000;\nmov.b32 %r1, 0f33800000;\n"
           "mov.b32 %r2, 0f40400000;\nadd.rm.f32.f16 %r3, %h1, %r1;\nadd.rp.f32.bf16 %r4, %h2, %r1;\n"
           "sub.f32.bf16 %r5, %h2, %r2;\nfma.rn.f32.f16 %r6, %h1, %h3, %r2;\nfma.rn.sat.f32.bf16 %r7, %h2, %h2, %r2;\n"
           "sub.rn.sat.f32.f16 %r8, %h1, %r2;\nst.global.v4.b32 [%out], {%r3, %r4, %r5, %r6};\n"
           "st.global.v2.b32 [%out+16], {%r7, %r8};\nret;\n",
           &run);
    assert_int_equal(out[0], 0x3fc00000);
    assert_int_equal(out[1], 0x3fc00001);
    assert_true(float_of(out[2]) == -1.5f);
    assert_int_equal(out[3], 0);
    assert_int_equal(out[4], 0x3f800000);
    assert_int_equal(out[5], 0);
}

/* ---- Refusals ---- */

static void test_refused(void **unused) {
    (void)unused;
    static const ptx_refused cases[] = {
        {"sm_90a", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r3]", "needs sm_100f"},
        {"sm_120a", "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1,%r2}, [%r3]", "there is no such form"},
        {"sm_120a", "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r1,%r2}, [%r3]", "there is no such form"},
        {"sm_120a", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1}, [%r3]", "an address and 2 registers"},
        {"sm_120a", "ldmatrix.sync.m8n8.x1.shared.b16 {%r1}, [%r3]", "there is no such form"},
        {"sm_80", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r1}", "needs sm_90"},
        {"sm_80", "movmatrix.sync.aligned.m8n8.b16 %r1, %r2", "movmatrix.sync.aligned.m8n8.trans.b16"},
        {"sm_90", "ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%in]", "needs sm_100"},
        {"sm_100", "ld.shared.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r9]", "in global memory 32"},
        {"sm_100", "ld.global.v8.b16 {%h1,%h1,%h1,%h1,%h1,%h1,%h1,%h1}, [%in]", "in global memory 32"},
        {"sm_80", "red.global.add.v2.f32 [%in], {%r1,%r2}", "needs sm_90"},
        {"sm_90", "red.shared.add.v2.f32 [%r1], {%r1,%r2}", "vectors are of floats"},
        {"sm_90", "red.global.add.v2.u32 [%in], {%r1,%r2}", "vectors are of floats"},
        {"sm_90", "add.f32.f16 %r1, %h1, %r2", "needs sm_100"},
    };
    check_refused(cases, sizeof cases / sizeof *cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_one_byte),
        cmocka_unit_test(test_store_bytes),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_undefined),
        cmocka_unit_test(test_wide_vectors),
        cmocka_unit_test(test_vector_additions),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_refused),
    };
    state = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
