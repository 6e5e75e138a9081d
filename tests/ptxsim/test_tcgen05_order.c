/* SPDX-License-Identifier: MIT
 *
 * What tcgen05 kernels must not do, each beside what they may. */
#include "tcgen05_ptx.h"

static uint64_t base_seed;

enum { SEEDS = 6, TILE_BYTES = 16384, IN_WORDS = TILE_BYTES / 4, OUT_WORDS = 1 << 14 };

static struct { uint32_t in[IN_WORDS], between[64], out[OUT_WORDS], after[64]; } memory __attribute__((aligned(1024)));

/* A product of M 128, N 16 and K 32 in e4m3, both matrices at the start of the tile, K-major and not swizzled: D in
 * columns 0 to 15. */
#define MMA_INTO(column, accumulate)                                                                                   \
    "add.u64 %da, %base, 0x0000401000080000;\nadd.u32 %r21, %taddr, " column ";\n"                                     \
    "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r21], %da, %da, 0x08040010, " accumulate ";\n"
#define MMA MMA_INTO("0", "%no")
#define MMA_SCALED                                                                                                     \
    "add.u64 %da, %base, 0x0000401000080000;\nadd.u32 %r21, %taddr, 0;\n"                                              \
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32 [%r21], %da, %da, 0x08840000, [%taddr+64], "          \
    "[%taddr+68], %no;\n"
/* Scales from the tile, into columns 64 to 67 and 68 to 71. */
#define CP(column)                                                                                                     \
    "add.u64 %db, %base, 0x0000400800080200;\nadd.u32 %r22, %taddr, " column ";\n"                                     \
    "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r22], %db;\n"
#define LD         "add.u32 %at, %taddr, %lanes;\ntcgen05.ld.sync.aligned.32x32b.x2.b32 {%d0, %d1}, [%at];\n"
#define ST         "add.u32 %at, %taddr, %lanes;\ntcgen05.st.sync.aligned.32x32b.x2.b32 [%at], {%tid, %tid};\n"
#define USE        "st.global.u32 [%my_out], %d0;\n"
#define IF_FIRST   "@!%first bra SKIP1;\n"
#define END_FIRST  "SKIP1:\n"
#define ARRIVE     "mbarrier.arrive.shared::cta.b64 _, [%bar+16];\n"
#define WAIT_ALL   "ALL:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [%bar+16], 0;\n@!%p6 bra ALL;\n"
#define IF_SECOND  "setp.ne.u32 %p7, %tid, 32;\n@%p7 bra SKIP2;\n"
#define END_SECOND "SKIP2:\n"

typedef struct scenario {
    const char *body; /* between allocation and release of 128 columns */
    const char *part; /* of the report; NULL: nothing is wrong */
    bool keep;        /* what was allocated is not released */
} scenario;

static void write_kernel(text *t, const scenario *s) {
    t->used = 0;
    add_declarations(t);
    add_fill(t, TILE_BYTES / 4);
    say(t, INIT VISIBLE ALLOC("128"));
    say(t, s->body);
    if (!s->keep)
        say(t, DEALLOC("128"));
    say(t, "ret;\n");
}

static ptx_run one_cta(uint64_t seed) {
    return (ptx_run){.grid = {1, 1, 1},
                     .block = {128, 1, 1},
                     .seed = seed,
                     .step_limit = 300000,
                     .target = "sm_100a",
                     .dynamic_shared_bytes = dynamic_bytes(TILE_BYTES),
                     .in = memory.in,
                     .in_words = IN_WORDS,
                     .out = memory.out,
                     .out_words = OUT_WORDS};
}

static void check_scenarios(const scenario *scenarios, size_t count) {
    static text t;
    memset(memory.in, 0x38, sizeof(memory.in)); /* e4m3's 1, and 2^-71 */
    for (size_t i = 0; i < count; i++) {
        write_kernel(&t, &scenarios[i]);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ptx_run run = one_cta(base_seed + seed);
            if (scenarios[i].part == NULL)
                RUN_OK(t.bytes, &run);
            else
                RUN_FAULT(t.bytes, &run, scenarios[i].part);
        }
    }
}

#define CHECK(scenarios) check_scenarios(scenarios, sizeof(scenarios) / sizeof(*(scenarios)))

/* ---- Products and what reads them ---- */

static void test_completion(void **state) {
    static const scenario scenarios[] = {
        {IF_FIRST MMA COMMIT END_FIRST WAIT("W", "0") AFTER LD WAIT_LD USE, NULL, false},
        {IF_FIRST MMA COMMIT END_FIRST WAIT("W", "0") LD WAIT_LD USE, "fence::after_thread_sync is missing", false},
        {IF_FIRST MMA COMMIT END_FIRST SYNC AFTER LD WAIT_LD USE WAIT("W", "0"), "has not been observed", false},
        /* In some orders the load comes first, and finds nothing. */
        {IF_FIRST MMA COMMIT END_FIRST LD WAIT_LD USE WAIT("W", "0"), "in kernel tested", false},
        /* The second product is not covered by the commit. */
        {IF_FIRST MMA COMMIT MMA_INTO("0", "%yes") END_FIRST WAIT("W", "0") AFTER SYNC LD WAIT_LD USE,
         "has not been observed", false},
        /* Another warp waits, and tells the others. */
        {IF_FIRST MMA COMMIT WAIT("W", "0") AFTER BEFORE END_FIRST SYNC AFTER LD WAIT_LD USE, NULL, false},
        {IF_FIRST MMA COMMIT WAIT("W", "0") END_FIRST SYNC AFTER LD WAIT_LD USE, NULL, false},
        {IF_FIRST MMA COMMIT WAIT("W", "0") AFTER BEFORE END_FIRST SYNC LD WAIT_LD USE,
         "fence::after_thread_sync is missing", false},
        {IF_FIRST MMA END_FIRST SYNC, "exited", true},
    };
    (void)state;
    CHECK(scenarios);
}

/* Products in one accumulator are in order; of another shape they are not. */
static void test_products(void **state) {
    static const scenario scenarios[] = {
        {IF_FIRST MMA MMA_INTO("0", "%yes") MMA_INTO("32", "%no") COMMIT END_FIRST WAIT("W", "0") AFTER LD WAIT_LD USE,
         NULL, false},
        {IF_FIRST MMA MMA_INTO("8", "%no") COMMIT END_FIRST WAIT("W", "0"), "D: writes column", false},
        {IF_FIRST MMA
         "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r21], %da, %da, 0x08020010, %yes;\n" COMMIT END_FIRST WAIT("W", "0"),
         "D: writes column", false},
        /* Two warps issue into one accumulator. */
        {IF_FIRST MMA BEFORE END_FIRST SYNC IF_SECOND AFTER MMA_INTO("0", "%yes") COMMIT END_SECOND WAIT("W", "0"),
         NULL, false},
        {IF_FIRST MMA END_FIRST SYNC IF_SECOND AFTER MMA_INTO("0", "%yes") COMMIT END_SECOND WAIT("W", "0"),
         "must tell this one", false},
    };
    (void)state;
    CHECK(scenarios);
}

static void test_scales(void **state) {
    static const scenario scenarios[] = {
        {IF_FIRST CP("64") CP("68") MMA_SCALED COMMIT END_FIRST WAIT("W", "0") AFTER LD WAIT_LD USE, NULL, false},
        /* Overwritten under a product. */
        {IF_FIRST CP("64") CP("68") MMA_SCALED CP("68") COMMIT END_FIRST WAIT("W", "0"), "copy: writes column", false},
        {IF_FIRST CP("64") CP("68") MMA_SCALED COMMIT WAIT("W", "0")
             AFTER CP("68") "tcgen05.commit.cta_group::1.mbarrier"
                            "::arrive::one.b64 [%bar+8];\nW2:\nmbarrier.try_wait.parity.shared::cta.b64 %p5, [%bar+8], "
                            "0;\n@!%p5 bra "
                            "W2;\n" END_FIRST,
         NULL, false},
        /* Copied by another warp. */
        {IF_FIRST CP("64") CP("68") BEFORE END_FIRST SYNC IF_SECOND AFTER MMA_SCALED COMMIT END_SECOND WAIT("W", "0"),
         NULL, false},
        {IF_FIRST CP("64") CP("68") END_FIRST SYNC IF_SECOND AFTER MMA_SCALED COMMIT END_SECOND WAIT("W", "0"),
         "must tell this one", false},
        {IF_FIRST CP("64") CP("68") BEFORE END_FIRST SYNC IF_SECOND MMA_SCALED COMMIT END_SECOND WAIT("W", "0"),
         "after_thread_sync is missing", false},
        {IF_FIRST CP("64") MMA_SCALED COMMIT END_FIRST WAIT("W", "0") AFTER LD WAIT_LD USE, "undefined", false},
    };
    (void)state;
    CHECK(scenarios);
}

/* ---- Loads and stores ---- */

static void test_loads_and_stores(void **state) {
    static const scenario scenarios[] = {
        {ST WAIT_ST LD WAIT_LD USE, NULL, false},
        {ST LD WAIT_LD USE WAIT_ST, "wait::st is missing", false},
        {ST WAIT_ST LD USE WAIT_LD, "still owns", false},
        {ST WAIT_ST LD "mov.u32 %d1, 0;\n" WAIT_LD, "still owns", false},
        {ST WAIT_ST LD ST WAIT_LD USE WAIT_ST, "wait::ld is missing", false},
        {ST WAIT_ST LD WAIT_LD ST WAIT_ST USE, NULL, false},
        {ST ST WAIT_ST, "wait::st is missing", false},
        {LD WAIT_LD USE, "undefined", false},
        {"add.u32 %at, %taddr, 0;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at];\n" WAIT_LD, "can access lanes",
         false},
        {"add.u32 %at, %taddr, %lanes;\nadd.u32 %at, %at, 0x100000;\n"
         "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at];\n" WAIT_LD,
         "not a multiple of 32", false},
        {"add.u32 %at, %taddr, %lanes;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at+128];\n" WAIT_LD,
         "has not allocated column", false},
        {"add.u32 %at, %taddr, %lanes;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at+60000];\n" WAIT_LD,
         "has not allocated column", false},
        {"add.u32 %at, %taddr, %lanes;\n@%first tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at];\n" WAIT_LD,
         "all lanes of the warp must execute", false},
        {"add.u32 %at, %tid, 0;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%at];\n" WAIT_LD, "in lane 0", false},
    };
    (void)state;
    CHECK(scenarios);
}

/* A product into columns that are still read. */
static void test_reuse(void **state) {
    static const scenario scenarios[] = {
        {ST WAIT_ST LD WAIT_LD BEFORE ARRIVE IF_FIRST WAIT_ALL AFTER MMA COMMIT END_FIRST WAIT("W", "0") USE, NULL,
         false},
        {ST WAIT_ST LD BEFORE ARRIVE IF_FIRST WAIT_ALL AFTER MMA COMMIT END_FIRST WAIT_LD WAIT("W", "0") USE,
         "D: writes column", false},
        {ST WAIT_ST LD WAIT_LD ARRIVE IF_FIRST WAIT_ALL AFTER MMA COMMIT END_FIRST WAIT("W", "0") USE,
         "fence::before_thread_sync there", false},
        {ST WAIT_ST LD WAIT_LD BEFORE ARRIVE IF_FIRST WAIT_ALL MMA COMMIT END_FIRST WAIT("W", "0") USE,
         "fence::after_thread_sync is missing", false},
    };
    (void)state;
    CHECK(scenarios);
}

/* ---- Shared memory ---- */

static void test_shared_memory(void **state) {
    static const scenario scenarios[] = {
        {IF_FIRST MMA COMMIT WAIT("W", "0") "st.shared.u32 [%tile], %tid;\n" END_FIRST, NULL, false},
        {IF_FIRST MMA COMMIT "st.shared.u32 [%tile], %tid;\n" END_FIRST WAIT("W", "0"), "race", false},
        {IF_FIRST CP("64") COMMIT "st.shared.u32 [%tile+8208], %tid;\n" END_FIRST WAIT("W", "0"), "race", false},
        {IF_FIRST MMA COMMIT END_FIRST SYNC IF_SECOND "st.shared.u32 [%tile], %tid;\n" END_SECOND WAIT("W", "0"),
         "race", false},
        {IF_FIRST MMA COMMIT END_FIRST IF_SECOND WAIT("W2", "0") "st.shared.u32 [%tile], %tid;\n" END_SECOND WAIT("W",
                                                                                                                  "0"),
         NULL, false},
        {IF_FIRST "st.shared.u32 [%tile], 0;\n" MMA COMMIT END_FIRST WAIT("W", "0"), "without fence.proxy.async",
         false},
        {IF_FIRST "st.shared.u32 [%tile], 0;\n" VISIBLE MMA COMMIT END_FIRST WAIT("W", "0"), NULL, false},
        {IF_FIRST "add.u64 %da, %base, 0x0000402000083000;\n"
                  "tcgen05.mma.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x08040010, %no;\n" END_FIRST,
         "the CTA has", false},
    };
    (void)state;
    CHECK(scenarios);
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion),       cmocka_unit_test(test_products), cmocka_unit_test(test_scales),
        cmocka_unit_test(test_loads_and_stores), cmocka_unit_test(test_reuse),    cmocka_unit_test(test_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
