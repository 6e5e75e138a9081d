/* SPDX-License-Identifier: MIT
 *
 * Loads, stores, atomics, ldmatrix and stmatrix, prefetches, and the checks of accesses. */
#include <time.h>

#include "run_ptx.h"
#include "tensor_map.h"

static uint64_t base_seed;

enum { SEEDS = 4 };

#define ONE_WARP(in_, out_)                                                                                            \
    {                                                                                                                  \
        .grid = {1, 1, 1}, .block = {32, 1, 1}, .in = in_, .in_words = sizeof(in_) / 4, .out = out_,                   \
        .out_words = sizeof(out_) / 4, .seed = base_seed                                                               \
    }

static void fill_random(uint32_t *words, size_t count) {
    uint64_t random = base_seed + count;
    for (size_t i = 0; i < count; i++)
        words[i] = test_random(&random);
}

/* ---- Ranges ---- */

static void test_ranges(void **state) {
    (void)state;
    sim_device device;
    sim_device_init(&device);
    assert_true(sim_range_add(&device, 0x1000, 0x100, true));
    assert_true(sim_range_add(&device, 0x1200, 0x100, false));
    assert_true(sim_range_add(&device, 0x1100, 0x100, true));
    assert_false(sim_range_add(&device, 0x10ff, 1, true));
    assert_false(sim_range_add(&device, 0xfff, 2, true));
    assert_false(sim_range_add(&device, 0x1300, 0, true));
    assert_false(sim_range_add(&device, UINT64_MAX - 1, 4, true));
    assert_true(sim_range_covers(&device, 0x1000, 0x100, true));
    assert_false(sim_range_covers(&device, 0x1000, 0x101, true)); /* neighbours are not one range */
    assert_false(sim_range_covers(&device, 0xfff, 1, false));
    assert_true(sim_range_covers(&device, 0x1200, 4, false));
    assert_false(sim_range_covers(&device, 0x1200, 4, true));
    assert_false(sim_range_covers(&device, 0x12f8, UINT64_MAX, false));
    assert_false(sim_range_remove(&device, 0x1001));
    assert_true(sim_range_remove(&device, 0x1100));
    assert_false(sim_range_covers(&device, 0x1100, 1, false));
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(sim_range_add(&device, 0x10000 + (i * 7919 % 1000) * 16, 16, true));
    assert_int_equal(device.num_ranges, 1002);
    for (size_t i = 1; i < device.num_ranges; i++)
        assert_true(device.ranges[i - 1].start + device.ranges[i - 1].size <= device.ranges[i].start);
    sim_device_destroy(&device);
}

/* ---- ld and st ---- */

static void test_types(void **state) {
    (void)state;
    static uint32_t in[32], out[32 * 8];
    fill_random(in, 32);
    ptx_run run = ONE_WARP(in, out);
    RUN_OK("mad.wide.u32 %rd1, %tid, 32, %out;\n"
           "ld.global.u8 %r10, [%my_in];\nst.global.u32 [%rd1], %r10;\n"
           "ld.global.s8 %r10, [%my_in+1];\nst.global.b32 [%rd1+4], %r10;\n"
           "ld.global.nc.L1::no_allocate.L2::128B.u16 %r10, [%my_in+2];\nst.global.wt.u32 [%rd1+8], %r10;\n"
           "ld.volatile.global.s16 %r10, [%my_in];\nst.volatile.global.u32 [%rd1+12], %r10;\n"
           "ld.relaxed.gpu.global.s32 %rd2, [%my_in];\nst.release.sys.global.u64 [%rd1+16], %rd2;\n"
           "ld.acquire.cta.b32 %r10, [%my_in];\nst.relaxed.cluster.b16 [%rd1+24], %r10;\n"
           "ld.global.ca.b8 %r10, [%my_in+3];\nst.b8 [%rd1+26], %r10;\nst.b8 [%rd1+27], 255;\n"
           "ld.global.s8 %h1, [%my_in+3];\nst.global.b16 [%rd1+28], %h1;\nst.global.u16 [%rd1+30], 7;\nret;\n",
           &run);
    for (int i = 0; i < 32; i++) {
        const uint32_t x = in[i], *y = out + 8 * i;
        assert_int_equal(y[0], x & 0xff);
        assert_int_equal((int32_t)y[1], (int8_t)(x >> 8));
        assert_int_equal(y[2], x >> 16);
        assert_int_equal((int32_t)y[3], (int16_t)x);
        assert_int_equal(y[4], x);
        assert_int_equal((int32_t)y[5], (int32_t)x >> 31);
        assert_int_equal(y[6], (x & 0xffff) | (x >> 24) << 16 | 0xff000000u);
        assert_int_equal(y[7], (uint16_t)(int8_t)(x >> 24) | 7u << 16);
    }
}

static void test_vectors(void **state) {
    (void)state;
    static uint32_t in[32 * 4] __attribute__((aligned(16))), out[32 * 8] __attribute__((aligned(16)));
    fill_random(in, 128);
    ptx_run run = ONE_WARP(in, out);
    RUN_OK("mad.wide.u32 %rd1, %tid, 16, %in;\nmad.wide.u32 %rd2, %tid, 32, %out;\n"
           "mul.lo.u32 %r2, %tid, 16;\nmov.u32 %r3, buffer;\nadd.u32 %r3, %r3, %r2;\n"
           "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1];\nst.shared.v4.b32 [%r3], {%r10, %r11, %r12, %r13};\n"
           "ld.shared.v2.u64 {%rd3, %rd4}, [%r3];\nst.global.v2.b64 [%rd2], {%rd4, %rd3};\n"
           "ld.shared.v2.b16 {%h1, %h2}, [%r3+4];\nst.shared::cta.v2.u16 [%r3], {%h2, %h1};\n"
           "ld.shared.v4.b8 {%h3, _, %h4, %h5}, [%r3+8];\ncvt.u32.u16 %r20, %h4;\n"
           "ld.shared.b32 %r21, [%r3];\ncvt.u64.u32 %rd6, %r3;\ncvta.shared.u64 %rd5, %rd6;\n"
           "ld.v2.b32 {%r22, %r23}, [%rd5+8];\n"
           "st.global.v4.b32 [%rd2+16], {%r20, %r21, %r22, %r23};\nret;\n",
           &run);
    for (int i = 0; i < 32; i++) {
        const uint32_t *x = in + 4 * i, *y = out + 8 * i;
        assert_int_equal(y[0], x[2]);
        assert_int_equal(y[1], x[3]);
        assert_int_equal(y[2], x[0]);
        assert_int_equal(y[3], x[1]);
        assert_int_equal(y[4], x[2] >> 16 & 0xff);
        assert_int_equal(y[5], x[1] >> 16 | x[1] << 16);
        assert_int_equal(y[6], x[2]);
        assert_int_equal(y[7], x[3]);
    }
}

static void test_local_and_params(void **state) {
    (void)state;
    static uint32_t out[64], in[1];
    ptx_run run = ONE_WARP(in, out);
    run.out_words = 64;
    RUN_OK(".local .align 8 .b8 stack[64];\n"
           "mov.u64 %rd1, stack;\nst.local.u32 [%rd1+60], %tid;\nst.local.u32 [stack+4], %gtid;\n"
           "cvta.local.u64 %rd2, %rd1;\nld.u32 %r10, [%rd2+60];\nst.global.u32 [%my_out], %r10;\n"
           "mov.u64 %rd3, out_array;\nld.param.u64 %rd4, [%rd3];\ncvta.param.u64 %rd5, %rd3;\nld.u64 %rd6, [%rd5];\n"
           "sub.u64 %rd7, %rd4, %rd6;\ncvt.u32.u64 %r11, %rd7;\nst.global.u32 [%my_out+128], %r11;\nret;\n",
           &run);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(out[i], i);
        assert_int_equal(out[32 + i], 0);
    }
}

static void test_bad_accesses(void **state) {
    (void)state;
    static const struct {
        const char *body, *report;
    } cases[] = {
        {"st.global.u32 [%my_out+128], %tid;\nret;\n", "out of bounds"},
        {"ld.global.u32 %r10, [%in+-4];\nret;\n", "out of bounds"},
        {"ld.global.u64 %rd1, [%in+124];\nret;\n", "not a multiple of 8"},
        {"ld.global.v2.u32 {%r2, %r3}, [%in+4];\nret;\n", "not a multiple of 8"},
        {"ld.global.v2.u64 {%rd2, %rd3}, [%in+120];\nret;\n", "not a multiple of 16"},
        {"st.global.u32 [%in], %tid;\nret;\n", "read-only"},
        {"mov.u64 %rd1, 64;\nld.u32 %r2, [%rd1];\nret;\n", "in no allocation"},
        {"mov.u32 %r2, buffer;\nst.shared.u32 [%r2+4096], %tid;\nret;\n", "the CTA has 4096 bytes"},
        {"mov.u32 %r2, buffer;\nst.shared.u32 [%r2+2], %tid;\nret;\n", "not a multiple of 4"},
        {"mov.u32 %r2, buffer;\nld.shared.u32 %r3, [%r2];\nst.global.u32 [%my_out], %r3;\nret;\n", "undefined"},
        {"mov.u32 %r2, buffer;\nst.shared.u16 [%r2+8], %h0;\nret;\n", "%h0"},
        {"mov.u32 %r2, buffer;\natom.shared.add.u32 %r3, [%r2], 1;\nret;\n", "have not been written"},
        {"ld.param.u64 %rd1, [out_array+16];\nret;\n", "parameter offset"},
        {"mov.u64 %rd1, 0;\nld.global.L2::cache_hint.u32 %r2, [%in], %rd1;\nret;\n", "not a cache policy"},
        {"prefetch.tensormap [%in];\nret;\n", "no tensor map"},
        {"prefetch.tensormap [%in+16];\nret;\n", "not a multiple of 64"},
    };
    static struct {
        uint32_t before[64], in[32], between[64], out[32], after[64]; /* so that no array's neighbour is in range */
    } b __attribute__((aligned(64)));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ptx_run run = ONE_WARP(b.in, b.out);
        RUN_FAULT(cases[i].body, &run, cases[i].report);
    }
    /* Unwritten shared memory may be read as long as nothing depends on it; prefetches never fault. */
    ptx_run run = ONE_WARP(b.in, b.out);
    RUN_OK("mov.u32 %r2, buffer;\nld.shared.u32 %r3, [%r2];\nadd.u32 %r3, %r3, 1;\n"
           "prefetch.global.L1 [%in+4096];\nmov.u64 %rd1, 1;\nprefetch.L2 [%rd1];\nprefetchu.L1 [%rd1];\n"
           "createpolicy.fractional.L2::evict_first.b64 %rd2, 0f3f800000;\n"
           "ld.global.L2::cache_hint.u32 %r4, [%in], %rd2;\nst.global.L2::cache_hint.u32 [%out], %r4, %rd2;\nret;\n",
           &run);
}

static void test_refused_forms(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "ld.global.b128 %rd1, [%in];\nret;\n",
        "ld.global.v8.f32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%in];\nret;\n",
        "ld.global.v2.u32 {%r1, %r2, %r3, %r4}, [%in];\nret;\n",
        "ld.global.global.u32 %r1, [%in];\nret;\n",
        "st.const.u32 [%out], %r0;\nret;\n",
        "atom.global.add.s64 %rd1, [%out], %rd1;\nret;\n",
        "atom.global.exch.u32 %r1, [%out], %r1;\nret;\n",
        "red.global.cas.b32 [%out], %r1, %r1;\nret;\n",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];\nret;\n",
        "prefetch.shared.L1 [%r2];\nret;\n",
        "cp.async.cg.shared.global [%r2], [%in], 16, 4, 4;\nret;\n",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.and.u32 [%out], [%r2], 16;\nret;\n",
        "mbarrier.init.shared::cta.b32 [%r2], 1;\nret;\n",
        "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r2];\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, 1, 1;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n12k32.f32.e4m3.e4m3 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, 1, 1;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r1, %r2, %r3}, %rd1, %rd2, %p1, 1, 1;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, 2, 1;\nret;\n",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        char error[512] = "";
        ptx_module *module = ptx_body_module(bodies[i], error, sizeof(error));
        if (module != NULL)
            fail_msg("accepted: %s", bodies[i]);
        assert_true(error[0] != '\0');
    }
}

/* ---- atom and red ---- */

static void test_atomics_between_ctas(void **state) {
    (void)state;
    enum { CTAS = 12, THREADS = 64, ALL = CTAS * THREADS };
    static uint32_t in[1], out[16 + ALL];
    for (int seed = 0; seed < SEEDS; seed++) {
        memset(out, 0, sizeof(out));
        out[4] = UINT32_MAX;
        ptx_run run = {.grid = {CTAS, 1, 1},
                       .block = {THREADS, 1, 1},
                       .in = in,
                       .in_words = 1,
                       .out = out,
                       .out_words = 16 + ALL,
                       .seed = base_seed + (uint64_t)seed};
        RUN_OK("atom.global.add.u32 %r10, [%out], 1;\n" /* a ticket each */
               "mad.wide.u32 %rd1, %r10, 4, %out;\natom.add.u32 %r11, [%rd1+64], 1;\n"
               "red.global.max.u32 [%out+4], %gtid;\nred.relaxed.gpu.global.add.f32 [%out+8], 0f3f800000;\n"
               "red.global.or.b32 [%out+12], %gtid;\natom.global.min.u32 %r12, [%out+16], %gtid;\n"
               "atom.global.inc.u32 %r13, [%out+20], 6;\nadd.u64 %rd2, %out, 24;\nmov.u64 %rd3, 5;\n"
               "atom.acq_rel.gpu.add.u64 %rd4, [%rd2], %rd3;\n"
               "LOOP:\nld.volatile.global.u32 %r14, [%out+32];\nadd.u32 %r15, %r14, 3;\n"
               "atom.global.cas.b32 %r16, [%out+32], %r14, %r15;\nsetp.ne.u32 %p1, %r16, %r14;\n@%p1 bra LOOP;\nret;\n",
               &run);
        float sum;
        memcpy(&sum, &out[2], 4);
        uint32_t ors = 0;
        for (uint32_t i = 0; i < ALL; i++) {
            ors |= i;
            assert_int_equal(out[16 + i], 1);
        }
        assert_int_equal(out[0], ALL);
        assert_int_equal(out[1], ALL - 1);
        assert_true(sum == (float)ALL);
        assert_int_equal(out[3], ors);
        assert_int_equal(out[4], 0);
        assert_int_equal(out[5], ALL % 7);
        assert_int_equal(out[6], 5 * ALL);
        assert_int_equal(out[8], 3 * ALL);
    }
}

static void test_shared_atomics(void **state) {
    (void)state;
    static uint32_t in[1], out[128];
    ptx_run run = ONE_WARP(in, out);
    RUN_OK("mov.u32 %r2, buffer;\nst.shared.v4.u32 [%r2], {0, 0, 100, 40};\nbar.warp.sync -1;\n"
           "mov.b32 %r4, 0x40003c00;\nred.shared.add.noftz.f16x2 [%r2], %r4;\n" /* 1 and 2 */
           "mov.b16 %h1, 0x3f80;\natom.shared.add.noftz.bf16 %h2, [%r2+4], %h1;\n"
           "atom.shared.min.s32 %r5, [%r2+8], -7;\natom.shared.dec.u32 %r6, [%r2+12], 50;\nbar.warp.sync -1;\n"
           "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r2];\nmad.wide.u32 %rd1, %tid, 16, %out;\n"
           "st.global.u32 [%rd1], %r10;\nst.global.u32 [%rd1+4], %r11;\nst.global.u32 [%rd1+8], %r12;\n"
           "st.global.u32 [%rd1+12], %r13;\nret;\n",
           &run);
    assert_int_equal(out[0], 0x54005000); /* 32 and 64 */
    assert_int_equal(out[1], 0x4200);     /* 32 */
    assert_int_equal((int32_t)out[2], -7);
    assert_int_equal(out[3], 8);
}

/* Sums of f32 flush subnormals in global memory alone. Of f64, where both are NaNs, the added one is passed on there as
 * it is, the old one in shared memory, made quiet. */
static void test_float_atomics(void **state) {
    (void)state;
    static uint32_t in[1], out[32] __attribute__((aligned(8)));
    ptx_run run = ONE_WARP(in, out);
    RUN_OK("setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\nmov.u32 %r2, buffer;\nmov.b32 %r3, 3;\n"
           "st.global.u32 [%out], 5;\nred.global.add.f32 [%out], %r3;\n"
           "st.global.u32 [%out+4], 0x80800001;\nred.global.add.f32 [%out+4], 0f00800000;\n"
           "st.shared.u32 [%r2], 5;\nred.shared.add.f32 [%r2], %r3;\nld.shared.u32 %r4, [%r2];\n"
           "st.global.u32 [%out+8], %r4;\n"
           "mov.b64 %rd3, 0x7ff0000000000007;\nmov.b64 %rd4, 0xfff0000000000009;\nmov.b64 %rd5, 0x3ff0000000000000;\n"
           "st.global.u64 [%out+16], %rd3;\nred.global.add.f64 [%out+16], %rd4;\n"
           "st.global.u64 [%out+24], %rd3;\nred.global.add.f64 [%out+24], %rd5;\n"
           "st.shared.u64 [%r2+8], %rd3;\nred.shared.add.f64 [%r2+8], %rd4;\nld.shared.u64 %rd6, [%r2+8];\n"
           "st.global.u64 [%out+32], %rd6;\n"
           "st.shared.u64 [%r2+8], %rd5;\nred.shared.add.f64 [%r2+8], %rd4;\nld.shared.u64 %rd6, [%r2+8];\n"
           "st.global.u64 [%out+40], %rd6;\nEND:\nret;\n",
           &run);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 0x80000000);
    assert_int_equal(out[2], 8);
    const uint64_t wanted[] = {UINT64_C(0xfff0000000000009), UINT64_C(0x7ff0000000000007), UINT64_C(0x7ff8000000000007),
                               UINT64_C(0xfff8000000000009)};
    assert_memory_equal(out + 4, wanted, sizeof(wanted));
}

/* ---- ldmatrix and stmatrix ---- */

static void test_matrices(void **state) {
    (void)state;
    static uint32_t in[256], out[32 * 8] __attribute__((aligned(16)));
    fill_random(in, 256);
    ptx_run run = ONE_WARP(in, out);
    /* Row r of matrix m lies at 512 m' + 16 ... : lane l gives the row at 32 l of the buffer. */
    RUN_OK("mov.u32 %r2, buffer;\nmul.lo.u32 %r3, %tid, 32;\nadd.u32 %r3, %r2, %r3;\n"
           "mad.wide.u32 %rd1, %tid, 32, %in;\nmad.wide.u32 %rd2, %tid, 32, %out;\n"
           "ld.global.u32 %r10, [%rd1];\nld.global.u32 %r11, [%rd1+4];\nld.global.u32 %r12, [%rd1+8];\n"
           "ld.global.u32 %r13, [%rd1+12];\nst.shared.v4.u32 [%r3], {%r10, %r11, %r12, %r13};\nbar.warp.sync -1;\n"
           "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r3];\n"
           "ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%r24, %r25}, [%r3];\n"
           "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r3+16], {%r20, %r21};\n"
           "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3+2048], {%r22};\nbar.warp.sync -1;\n"
           "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r26}, [%r3+16];\n"
           "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r27}, [%r3+2048];\n"
           "st.global.v4.u32 [%rd2], {%r20, %r21, %r22, %r23};\nst.global.v4.u32 [%rd2+16], {%r24, %r25, %r26, %r27};\n"
           "ret;\n",
           &run);
    for (int l = 0; l < 32; l++) {
        uint16_t rows[32][8];
        for (int r = 0; r < 32; r++)
            memcpy(rows[r], in + 8 * r, 16);
        const int r = l / 4, c = l % 4 * 2;
        for (int m = 0; m < 4; m++)
            assert_int_equal(out[8 * l + m], rows[8 * m + r][c] | (uint32_t)rows[8 * m + r][c + 1] << 16);
        for (int m = 0; m < 2; m++)
            assert_int_equal(out[8 * l + 4 + m], rows[8 * m + c][r] | (uint32_t)rows[8 * m + c + 1][r] << 16);
        assert_int_equal(out[8 * l + 6], rows[c][r] | (uint32_t)rows[c + 1][r] << 16);
        assert_int_equal(out[8 * l + 7], out[8 * l + 2]);
    }
}

/* ---- Tensor maps ---- */

static tensor_map good_map(void) {
    return (tensor_map){.rank = 3,
                        .element_bytes = 1,
                        .swizzle_bytes = 128,
                        .address = 0x10000,
                        .sizes = {128, 64, 9},
                        .boxes = {128, 64, 1},
                        .strides = {128, 64 * 132},
                        .element_strides = {1, 1, 1}};
}

static void test_tensor_map_rules(void **state) {
    (void)state;
    char error[256];
    tensor_map map = good_map();
    assert_true(tensor_map_finish(&map, error, sizeof(error)));
    assert_true(tensor_map_valid(&map));
    ((uint8_t *)&map)[20] ^= 1;
    assert_false(tensor_map_valid(&map));
#define REFUSED(change, part)                                                                                          \
    do {                                                                                                               \
        map = good_map();                                                                                              \
        map.change;                                                                                                    \
        assert_false(tensor_map_finish(&map, error, sizeof(error)));                                                   \
        assert_non_null(strstr(error, part));                                                                          \
    } while (0)
    REFUSED(rank = 0, "rank");
    REFUSED(rank = 6, "rank");
    REFUSED(element_bytes = 3, "elements");
    REFUSED(swizzle_bytes = 16, "swizzle");
    REFUSED(address += 8, "address");
    REFUSED(address = 0, "address");
    REFUSED(sizes[2] = 0, "size of dimension 2");
    REFUSED(boxes[1] = 257, "box of dimension 1");
    REFUSED(boxes[1] = 0, "box of dimension 1");
    REFUSED(boxes[0] = 120, "multiple of 16");
    REFUSED(boxes[0] = 144, "more than the swizzle");
    REFUSED(strides[0] = 136, "stride of dimension 1");
    REFUSED(strides[1] = UINT64_C(1) << 40, "stride of dimension 2");
    REFUSED(element_strides[1] = 9, "element stride");
    REFUSED(element_strides[1] = 0, "element stride");
#undef REFUSED
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_local_and_params),
        cmocka_unit_test(test_bad_accesses),
        cmocka_unit_test(test_refused_forms),
        cmocka_unit_test(test_atomics_between_ctas),
        cmocka_unit_test(test_shared_atomics),
        cmocka_unit_test(test_float_atomics),
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_tensor_map_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
