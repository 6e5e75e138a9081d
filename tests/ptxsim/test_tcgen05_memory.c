/* SPDX-License-Identifier: MIT
 *
 * Tensor memory: allocation, loads and stores in every shape, copies from shared memory, shifts. */
#include "tcgen05_ptx.h"

static uint64_t base_seed;

enum { TILE_BYTES = 8192, IN_WORDS = TILE_BYTES / 4, COLUMNS = 128, OUT_WORDS = 128 * 160 };

static struct { uint32_t in[IN_WORDS], between[64], out[OUT_WORDS], after[64]; } memory __attribute__((aligned(1024)));
static text kernel;

static ptx_run threads(unsigned count, uint64_t seed) {
    return (ptx_run){.grid = {1, 1, 1},
                     .block = {count, 1, 1},
                     .seed = seed,
                     .step_limit = 1000000,
                     .target = "sm_103a",
                     .dynamic_shared_bytes = dynamic_bytes(TILE_BYTES),
                     .in = memory.in,
                     .in_words = IN_WORDS,
                     .out = memory.out,
                     .out_words = OUT_WORDS};
}

static void begin(const char *columns) {
    kernel.used = 0;
    add_declarations(&kernel);
    add_fill(&kernel, IN_WORDS);
    say(&kernel, INIT VISIBLE);
    add(&kernel,
        "@!%%warp0 bra ALLOCATED;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%%slot], %s;\n"
        "ALLOCATED:\nbar.sync 0;\nld.shared.u32 %%taddr, [%%slot];\n",
        columns);
}

static void run_kernel(uint64_t seed) {
    ptx_run run = threads(128, seed);
    memset(memory.out, 0xcc, sizeof(memory.out));
    RUN_OK(kernel.bytes, &run);
}

/* Every cell of columns [0, COLUMNS) gets its lane and column. */
static uint32_t initial(int lane, int column) {
    return (uint32_t)lane << 24 | (uint32_t)column << 8 | 0x5a;
}

static void add_initial(void) {
    say(&kernel, "add.u32 %at, %taddr, %lanes;\nshl.b32 %r20, %tid, 24;\n");
    for (int c = 0; c < COLUMNS; c += 16) {
        for (int i = 0; i < 16; i++)
            add(&kernel, "add.u32 %%d%d, %%r20, %d;\n", i, (c + i) << 8 | 0x5a);
        add(&kernel, "tcgen05.st.sync.aligned.32x32b.x16.b32 [%%at+%d], ", c);
        add_vector(&kernel, 0, 16);
        say(&kernel, ";\n" WAIT_ST);
    }
}

/* ---- Shapes ---- */

/* Where a register of a thread lies, by the strides in bits that CuTe gives (copy_traits_sm100.hpp): of thread bits 0,
 * 1, 2 to 4, and of bits of the register's number within one repetition, in a tile of 16 rows of so many bits. */
typedef struct shape {
    const char *name;
    int registers, row_bits;
    int t0, t1, t2, r0, r1;
    bool split, whole; /* 16x32bx2; 32 lanes */
} shape;

static const shape SHAPES[] = {{"32x32b", 1, 32, 0, 0, 0, 0, 0, false, true},
                               {"16x64b", 1, 64, 512, 32, 64, 0, 0, false, false},
                               {"16x128b", 2, 128, 32, 64, 128, 1024, 0, false, false},
                               {"16x256b", 4, 256, 64, 128, 256, 32, 2048, false, false},
                               {"16x32bx2", 1, 32, 0, 0, 0, 0, 0, true, false}};
enum { SPLIT = 40 };

static void locate(const shape *s, int thread, int reg, int *row, int *column) {
    const int repetition = reg / s->registers, within = reg % s->registers;
    if (s->whole || s->split) {
        *row = s->whole ? thread : thread % 16;
        *column = repetition + (s->split && thread >= 16 ? SPLIT : 0);
        return;
    }
    const int bit =
        thread % 2 * s->t0 + thread / 2 % 2 * s->t1 + thread / 4 * s->t2 + within % 2 * s->r0 + within / 2 * s->r1;
    *row = bit / s->row_bits;
    *column = bit % s->row_bits / 32 + repetition * (s->row_bits / 32);
}

static const char *split_of(const shape *s) {
    return s->split ? ", 40" : "";
}

static void check_load(const shape *s, int count, int row_offset, bool packed, uint64_t seed) {
    const int registers = count * s->registers;
    begin("128");
    add_initial();
    add(&kernel, "add.u32 %%r21, %%at, %d;\ntcgen05.ld.sync.aligned.%s.x%d.%sb32 ", row_offset << 16, s->name, count,
        packed ? "pack::16b." : "");
    add_vector(&kernel, 0, registers);
    add(&kernel, ", [%%r21]%s;\ntcgen05.wait::ld.sync.aligned;\nmad.wide.u32 %%rd5, %%tid, %d, %%out;\n", split_of(s),
        4 * registers);
    for (int r = 0; r < registers; r++)
        add(&kernel, "st.global.u32 [%%rd5+%d], %%d%d;\n", 4 * r, r);
    say(&kernel, DEALLOC("128") "ret;\n");
    run_kernel(seed);
    for (int t = 0; t < 128; t++) {
        for (int r = 0; r < registers; r++) {
            int row, column;
            locate(s, t % 32, r, &row, &column);
            const int lane = t / 32 * 32 + row_offset + row, shift = s->split && t % 32 >= 16 ? SPLIT : 0;
            uint32_t wanted = initial(lane, column);
            if (packed) {
                const int first = 2 * (column - shift) + shift;
                wanted = (initial(lane, first) & 0xffff) | initial(lane, first + 1) << 16;
            }
            assert_int_equal(memory.out[t * registers + r], wanted);
        }
    }
}

static void test_loads(void **state) {
    (void)state;
    uint64_t seed = base_seed;
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(*SHAPES); i++) {
        const shape *s = &SHAPES[i];
        for (int count = 1; count <= 128; count *= 2) {
            if (count * s->row_bits / 32 > COLUMNS || (s->split && count > 64))
                continue;
            check_load(s, count, s->whole || count % 4 != 0 ? 0 : 16, false, seed++);
        }
        check_load(s, 8, 0, true, seed++);
    }
}

/* Registers hold the thread and their number. */
static void check_store(const shape *s, int count, bool unpacked, uint64_t seed) {
    const int registers = count * s->registers;
    uint32_t wanted[128][COLUMNS];
    begin("128");
    add_initial();
    say(&kernel, "shl.b32 %r20, %tid, 20;\n");
    for (int r = 0; r < registers; r++)
        add(&kernel, "add.u32 %%d%d, %%r20, %d;\n", r, r * 8);
    add(&kernel, "tcgen05.st.sync.aligned.%s.x%d.%sb32 [%%at]%s, ", s->name, count, unpacked ? "unpack::16b." : "",
        split_of(s));
    add_vector(&kernel, 0, registers);
    say(&kernel, ";\n" WAIT_ST);
    add_dump(&kernel, COLUMNS);
    say(&kernel, DEALLOC("128") "ret;\n");
    run_kernel(seed);
    for (int lane = 0; lane < 128; lane++)
        for (int c = 0; c < COLUMNS; c++)
            wanted[lane][c] = initial(lane, c);
    for (int t = 0; t < 128; t++) {
        for (int r = 0; r < registers; r++) {
            int row, column;
            locate(s, t % 32, r, &row, &column);
            const uint32_t value = (uint32_t)t << 20 | (uint32_t)r * 8;
            uint32_t *cells = wanted[t / 32 * 32 + row];
            const int shift = s->split && t % 32 >= 16 ? SPLIT : 0;
            if (unpacked) {
                cells[2 * (column - shift) + shift] = value & 0xffff;
                cells[2 * (column - shift) + shift + 1] = value >> 16;
            } else {
                cells[column] = value;
            }
        }
    }
    assert_memory_equal(memory.out, wanted, sizeof(wanted));
}

static void test_stores(void **state) {
    (void)state;
    uint64_t seed = base_seed + 100;
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(*SHAPES); i++) {
        check_store(&SHAPES[i], 1, false, seed++);
        check_store(&SHAPES[i], 16, false, seed++);
        check_store(&SHAPES[i], 4, true, seed++);
    }
}

/* Columns hold 1, -3, a NaN and 5. */
static void test_reductions(void **state) {
    static const struct {
        const char *form, *after;
        uint32_t wanted;
    } cases[] = {
        {"32x32b.x4.min.f32", "", 0xc0400000},
        {"32x32b.x4.max.f32", "", 0x40a00000},
        {"32x32b.x4.min.abs.f32", "", 0x3f800000},
        {"32x32b.x4.max.NaN.f32", "", 0x7fffffff},
        {"32x32b.x4.max.abs.NaN.f32", "", 0x7fffffff},
        {"32x32b.x2.max.f32", "", 0x3f800000},
        {"32x32b.x4.min.u32", "", 0x3f800000},
        {"32x32b.x4.max.u32", "", 0xc0400000},
        {"32x32b.x4.min.s32", "", 0xc0400000},
        {"32x32b.x4.max.s32", "", 0x7fc00000},
        {"16x32bx2.x2.max.f32", ", 2", 0},
        {"32x32b.x4.f32.min", "", 0xc0400000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const bool split = cases[i].after[0] != '\0';
        const int count = strstr(cases[i].form, ".x2") != NULL ? 2 : 4;
        begin("32");
        say(&kernel, "add.u32 %at, %taddr, %lanes;\nmov.b32 %d0, 0x3f800000;\nmov.b32 %d1, 0xc0400000;\n"
                     "mov.b32 %d2, 0x7fc00000;\nmov.b32 %d3, 0x40a00000;\n"
                     "tcgen05.st.sync.aligned.32x32b.x4.b32 [%at], {%d0, %d1, %d2, %d3};\n" WAIT_ST);
        add(&kernel, "tcgen05.ld.red.sync.aligned.%s ", cases[i].form);
        add_vector(&kernel, 8, count);
        add(&kernel, ", %%d20, [%%at]%s;\n", cases[i].after);
        say(&kernel, WAIT_LD "st.global.u32 [%my_out], %d20;\n" DEALLOC("32") "ret;\n");
        run_kernel(base_seed + i);
        /* Split: threads from 16 on have columns 2 and 3. */
        for (int t = 0; t < 128; t++)
            assert_int_equal(memory.out[t], split ? (t % 32 < 16 ? 0x3f800000u : 0x40a00000u) : cases[i].wanted);
    }
}

/* ---- Copies ---- */

typedef struct copy {
    const char *form;
    int rows, words, bits; /* words a row; bits of the source's elements */
} copy;

static uint8_t source_byte(const copy *c, int row, int column, int swizzle) {
    const uint8_t *bytes = (const uint8_t *)memory.in;
    const int piece = column / 16, element = column % 16;
    int at = swizzle ? row * 128 + piece * 16 : row / 8 * 256 + piece * 128 + row % 8 * 16;
    if (swizzle)
        at ^= at / 128 % 8 * 16;
    if (c->bits == 8)
        return bytes[at + element];
    const int bit = element * c->bits;
    const unsigned both = bytes[at + bit / 8] | (unsigned)bytes[at + bit / 8 + 1] << 8;
    const unsigned value = both >> bit % 8 & ((1u << c->bits) - 1);
    return (uint8_t)(c->bits == 4 ? value << 2 : value);
}

/* Lanes that a row reaches. */
static bool reaches(const copy *c, int row, int lane) {
    if (c->rows == 128)
        return lane == row;
    if (c->rows == 4)
        return lane == 32 * row;
    if (c->rows == 32)
        return lane % 32 == row;
    const int quarter = lane / 32, half = row / 32;
    const bool first = strstr(c->form, "02_13") != NULL ? quarter % 2 == 0 : quarter < 2;
    return lane % 32 == row % 32 && first == (half == 0);
}

static void check_copy(const copy *c, int swizzle, uint64_t seed) {
    uint32_t wanted[128][16];
    uint64_t random = seed;
    for (int i = 0; i < IN_WORDS; i++)
        memory.in[i] = test_random(&random);
    begin("128");
    add_initial();
    say(&kernel, BEFORE SYNC AFTER "@!%first bra ISSUED;\n");
    const uint64_t d = swizzle ? smem_descriptor(0, 16, 1024, 2) : smem_descriptor(0, 128, 256, 0);
    add(&kernel, "add.u64 %%da, %%base, 0x%llx;\ntcgen05.cp.cta_group::1.%s [%%taddr+4], %%da;\n",
        (unsigned long long)d, c->form);
    say(&kernel, COMMIT "ISSUED:\n" WAIT("W", "0") AFTER);
    add_dump(&kernel, 16);
    say(&kernel, DEALLOC("128") "ret;\n");
    run_kernel(seed);
    for (int lane = 0; lane < 128; lane++) {
        for (int column = 0; column < 16; column++)
            wanted[lane][column] = initial(lane, column);
        for (int row = 0; row < c->rows; row++) {
            for (int i = 0; i < 4 * c->words && reaches(c, row, lane); i++)
                ((uint8_t *)&wanted[lane][4])[i] = source_byte(c, row, i, swizzle);
        }
    }
    assert_memory_equal(memory.out, wanted, sizeof(wanted));
}

static void test_copies(void **state) {
    static const copy copies[] = {
        {"128x256b", 128, 8, 8},
        {"4x256b", 4, 8, 8},
        {"128x128b", 128, 4, 8},
        {"64x128b.warpx2::02_13", 64, 4, 8},
        {"64x128b.warpx2::01_23", 64, 4, 8},
        {"32x128b.warpx4", 32, 4, 8},
        {"128x256b.b8x16.b4x16_p64", 128, 8, 4},
        {"128x128b.b8x16.b6x16_p32", 128, 4, 6},
        {"32x128b.warpx4.b8x16.b6x16_p32", 32, 4, 6},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(copies) / sizeof(*copies); i++) {
        check_copy(&copies[i], 0, base_seed + 200 + i);
        if (copies[i].rows <= 64) /* 128 bytes a row */
            check_copy(&copies[i], 1, base_seed + 300 + i);
    }
}

/* Lanes 32 to 62 of eight columns go one lane down; then lane 32 is filled. */
static void test_shift(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        begin("128");
        add_initial();
        say(&kernel, BEFORE SYNC AFTER "@!%first bra ISSUED;\nadd.u32 %r21, %taddr, 0x200008;\n"
                                       "tcgen05.shift.cta_group::1.down [%r21];\n");
        add(&kernel, "add.u64 %%da, %%base, 0x%llx;\ntcgen05.cp.cta_group::1.4x256b [%%taddr+8], %%da;\n",
            (unsigned long long)smem_descriptor(0, 128, 256, 0));
        say(&kernel, COMMIT "ISSUED:\n" WAIT("W", "0") AFTER);
        add_dump(&kernel, 24);
        say(&kernel, DEALLOC("128") "ret;\n");
        run_kernel(base_seed + seed);
        for (int lane = 0; lane < 128; lane++) {
            for (int c = 0; c < 24; c++) {
                uint32_t wanted = initial(lane, c);
                if (c >= 8 && c < 16 && lane > 32 && lane < 64)
                    wanted = initial(lane - 1, c);
                else if (c >= 8 && c < 16 && lane % 32 == 0)
                    wanted = memory.in[(c - 8) / 4 * 32 + lane / 32 * 4 + c % 4];
                assert_int_equal(memory.out[lane * 24 + c], wanted);
            }
        }
    }
}

/* ---- Allocation ---- */

#define ALLOCATE(columns)    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], " columns ";\n"
#define READ(to)             "ld.shared.u32 " to ", [%slot];\n"
#define RELEASE(at, columns) "tcgen05.dealloc.cta_group::1.sync.aligned.b32 " at ", " columns ";\n"
#define STORE(at)            "tcgen05.st.sync.aligned.32x32b.x1.b32 [" at "], {%tid};\n"

typedef struct scenario {
    const char *body, *part, *target;
} scenario;

static void check_scenarios(const scenario *scenarios, size_t count) {
    for (size_t i = 0; i < count; i++) {
        kernel.used = 0;
        add_declarations(&kernel);
        say(&kernel, scenarios[i].body);
        say(&kernel, "ret;\n");
        for (uint64_t seed = 0; seed < 8; seed++) {
            ptx_run run = threads(32, base_seed + seed);
            if (scenarios[i].target != NULL)
                run.target = scenarios[i].target;
            if (scenarios[i].part == NULL)
                RUN_OK(kernel.bytes, &run);
            else
                RUN_FAULT(kernel.bytes, &run, scenarios[i].part);
        }
    }
}

static void test_allocation(void **state) {
    static const scenario scenarios[] = {
        {ALLOCATE("256") READ("%r20") ALLOCATE("128") READ("%r21") STORE("%r20+255") STORE("%r21")
             WAIT_ST RELEASE("%r20", "256") RELEASE("%r21", "128"),
         NULL, NULL},
        {ALLOCATE("512") READ("%r20") RELEASE("%r20", "512") ALLOCATE("512") READ("%r20") RELEASE("%r20", "512"), NULL,
         NULL},
        {"mov.u32 %r22, 48;\n" ALLOCATE("%r22"), "power of two", NULL},
        {"mov.u32 %r22, 16;\n" ALLOCATE("%r22"), "power of two", NULL},
        {"mov.u32 %r22, 1024;\n" ALLOCATE("%r22"), "power of two", NULL},
        {"mov.u32 %r22, %tid;\n" ALLOCATE("%r22"), "in lane 0", NULL},
        {ALLOCATE("64") READ("%r20"), "without tcgen05.dealloc of 64 columns", NULL},
        {ALLOCATE("64") READ("%r20") ALLOCATE("128"), "must not be larger", NULL},
        {ALLOCATE("64") READ("%r20") RELEASE("%r20", "32"), "no allocation", NULL},
        {ALLOCATE("64") READ("%r20") "add.u32 %r20, %r20, 32;\n" RELEASE("%r20", "64"), "no allocation", NULL},
        {ALLOCATE("64") READ("%r20") RELEASE("%r20", "64") RELEASE("%r20", "64"), "no allocation", NULL},
        {ALLOCATE("64") READ("%r20") RELEASE("%r20", "64") STORE("%r20"), "not allocated", NULL},
        {ALLOCATE("64") READ("%r20") STORE("%r20+64"), "not allocated", NULL},
        {"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" ALLOCATE("64"), "relinquish", NULL},
        {ALLOCATE("512") ALLOCATE("32"), "deadlock", NULL},
        {ALLOCATE("32") READ("%r20") STORE("%r20") RELEASE("%r20", "32") WAIT_ST, "", NULL},
        {"@%first " ALLOCATE("32"), "all lanes", NULL},
        {"tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 576;\n" READ("%r20")
             STORE("%r20+575") WAIT_ST "tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32 %r20, 576;\n",
         NULL, "sm_107a"},
        {"tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 96;\n" READ(
             "%r20") "tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32 %r20, 96;\n",
         NULL, "sm_107a"},
        {"tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 576;\n", "multiple of 32",
         "sm_100a"},
        {"tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 64;\n" READ("%r20")
             RELEASE("%r20", "64"),
         "must be released so", "sm_107a"},
        {"tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 64;\n" ALLOCATE("32"), "deadlock",
         "sm_107a"},
    };
    (void)state;
    check_scenarios(scenarios, sizeof(scenarios) / sizeof(*scenarios));
}

/* A neighbour's columns: the address is not always the same, and a full allocation sometimes waits, but never fails. */
static void test_neighbours(void **state) {
    bool moved = false, at_zero = false;
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        begin("128");
        say(&kernel, "st.global.u32 [%my_out], %taddr;\n" DEALLOC("128") "ret;\n");
        run_kernel(seed);
        moved |= memory.out[0] != 0;
        at_zero |= memory.out[0] == 0;
        assert_true(memory.out[0] % 128 == 0 && memory.out[0] < 512);
        begin("512");
        say(&kernel, "st.global.u32 [%my_out], %taddr;\n" DEALLOC("512") "ret;\n");
        run_kernel(seed);
        assert_int_equal(memory.out[0], 0);
    }
    assert_true(moved && at_zero);
}

/* Warp 1 may not release what warp 0 has allocated. */
static void test_other_warp(void **state) {
    (void)state;
    begin("64");
    say(&kernel, "setp.ne.u32 %p7, %warp, 1;\n@%p7 bra DONE;\n" RELEASE("%taddr", "64") "DONE:\nret;\n");
    ptx_run run = threads(128, base_seed);
    RUN_FAULT(kernel.bytes, &run, "warp 0 has allocated");
}

/* ---- Forms and targets ---- */

static void test_forms(void **state) {
#define MMA "tcgen05.mma.cta_group::1.kind::"
    static const struct {
        const char *target, *text, *part; /* of the message; NULL: accepted */
    } cases[] = {
        {"sm_100a", "tcgen05.shift.down.cta_group::1 [%r1];", NULL},
        {"sm_100f", "tcgen05.shift.cta_group::1.down [%r1];", "tcgen05"},
        {"sm_100a", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r1, %r2}, %r3, [%r4];", "tcgen05"},
        {"sm_103f", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r1, %r2}, %r3, [%r4];", NULL},
        {"sm_107a", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r1, %r2}, %r3, [%r4];", NULL},
        {"sm_103a", "tcgen05.ld.red.sync.aligned.32x32b.x1.min.u32 {%r1}, %r3, [%r4];", ".x2 or more"},
        {"sm_90a", "tcgen05.wait::ld.sync.aligned;", "tcgen05"},
        {"sm_120a", "tcgen05.wait::ld.sync.aligned;", "tcgen05"},
        {"sm_110f", "tcgen05.wait::ld.sync.aligned;", NULL},
        {"sm_100a", "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1}, [%r4];", "takes 2 registers"},
        {"sm_100a", "tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1}, [%r4];", "at most 128"},
        {"sm_100a", "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r4];", "wrong operands"},
        {"sm_100a", "tcgen05.ld.sync.aligned.32x32b.x3.b32 {%r1}, [%r4];", "not known"},
        {"sm_100a", "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;", "cta_group::2"},
        {"sm_100a", "tcgen05.cp.cta_group::1.64x128b [%r1], %rd1;", "not known"},
        {"sm_100a", "tcgen05.cp.cta_group::1.128x128b.b4x16_p64 [%r1], %rd1;", "come together"},
        {"sm_100a", MMA "f8f6f4 [%r1], %rd1, %rd2, %r2, %p1;", NULL},
        {"sm_100f", MMA "f8f6f4.collector::a::lastuse [%r1], %rd1, %rd2, 0x1234, !%p1;", NULL},
        {"sm_107f", MMA "f8f6f4.collector::a::discard.collector::b::fill [%r1], %rd1, %rd2, %r2, %p1;", NULL},
        {"sm_103a", MMA "f8f6f4.collector::b::fill [%r1], %rd1, %rd2, %r2, %p1;", "tcgen05"},
        {"sm_100a", MMA "f8f6f4 [%r1], %rd1, %rd2, %r2, %p1, 3;", "scale-input-d"},
        {"sm_100a", MMA "f16 [%r1], %rd1, %rd2, %r2, %p1, 16;", "scale-input-d"},
        {"sm_100a", MMA "f16 [%r1], [%r3], %rd2, %r2, {%r4, %r5, %r6, %r7}, %p1, 15;", NULL},
        {"sm_100a", MMA "f16 [%r1], [%r3], %rd2, %r2, {%r4, %r5}, %p1;", "four"},
        {"sm_100a", MMA "i8 [%r1], %rd1, %rd2, %r2, %p1;", NULL},
        {"sm_103a", MMA "i8 [%r1], %rd1, %rd2, %r2, %p1;", "tcgen05"},
        {"sm_107a", MMA "mxf4.block_scale.scale_vec::2X [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", NULL},
        {"sm_100f", MMA "mxf4.block_scale.scale_vec::2X [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", "tcgen05"},
        {"sm_100f", MMA "mxf4.block_scale.block32 [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", NULL},
        {"sm_100f", MMA "mxf4.block_scale [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", NULL},
        {"sm_100f", MMA "mxf4.block_scale.block16 [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", "scale vectors"},
        {"sm_100f", MMA "mxf4nvf4.block_scale [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", "scale vectors"},
        {"sm_100f", MMA "mxf8f6f4 [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", ".block_scale"},
        {"sm_100a", "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;", NULL},
        {"sm_103f", "tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b2::lastuse [%r1], %rd1, %rd2, %r2, %p1, %rd3;",
         NULL},
        {"sm_100a", "tcgen05.mma.ws.cta_group::1.kind::f16.collector::a::fill [%r1], %rd1, %rd2, %r2, %p1;",
         "not known"},
        {"sm_100a", "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {%r4, %r5, %r6, %r7}, %p1;",
         "wrong"},
        {"sm_103a", "tcgen05.mma.ws.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1;", "tcgen05"},
        {"sm_100a", "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p1;", "sparse"},
        {"sm_100a", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd1];", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char body[512], error[512] = "";
        snprintf(body, sizeof(body), "%s\nret;\n", cases[i].text);
        ptx_module *module = ptx_module_for(cases[i].target, body, error, sizeof(error));
        if ((module == NULL) != (cases[i].part != NULL) || (module == NULL && strstr(error, cases[i].part) == NULL))
            fail_msg("%s for %s: \"%s\"", cases[i].text, cases[i].target, error);
        ptx_module_free(module);
    }
}

/* ---- Operands of any value ---- */

/* No value of descriptors and addresses does more than end the launch with a report. */
static void test_arbitrary_operands(void **state) {
    static const char *const forms[] = {
        "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r20], %da, %db, %r21, %yes;\n",
        "tcgen05.mma.cta_group::1.kind::f16 [%r20], [%r22], %db, %r21, {%r20, %r21, %r22, %r23}, %yes, 7;\n",
        "tcgen05.mma.cta_group::1.kind::tf32 [%r20], %da, %db, %r21, %no;\n",
        "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%r20], %da, %db, %r21, [%r22], [%r23], %no;\n",
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r20], [%r22], %db, %r21, [%r22], [%r23], %yes;\n",
        "tcgen05.cp.cta_group::1.128x256b [%r20], %da;\n",
        "tcgen05.cp.cta_group::1.4x256b [%r20], %da;\n",
        "tcgen05.shift.cta_group::1.down [%r20];\n",
    };
    uint64_t random = base_seed;
    (void)state;
    for (int i = 0; i < 400; i++) {
        const uint32_t few = test_random(&random) % 8;
        uint64_t descriptors[2];
        uint32_t words[4];
        for (int j = 0; j < 2; j++) { /* mostly near those that are right */
            descriptors[j] = (uint64_t)test_random(&random) << 32 | test_random(&random);
            if (few != 0)
                descriptors[j] = (descriptors[j] & UINT64_C(0xc000003f003f0fff)) | UINT64_C(1) << 46;
        }
        for (int j = 0; j < 4; j++) {
            words[j] = test_random(&random);
            if (few > 1 && j != 1)
                words[j] &= few > 4 ? 0x1f : 0x100ff;
        }
        if (few > 2)
            words[1] = (words[1] & 0x007e0000) | 0x08000010 | (few > 5 ? 0x00800000u : 0);
        begin("512");
        add_initial();
        say(&kernel, BEFORE SYNC AFTER "@!%first bra ISSUED;\n");
        add(&kernel, "mov.u64 %%da, 0x%llx;\nmov.u64 %%db, 0x%llx;\n", (unsigned long long)descriptors[0],
            (unsigned long long)descriptors[1]);
        for (int j = 0; j < 4; j++)
            add(&kernel, "mov.u32 %%r%d, 0x%x;\n", 20 + j, words[j]);
        say(&kernel, forms[(size_t)i % (sizeof(forms) / sizeof(*forms))]);
        say(&kernel, COMMIT "ISSUED:\n" WAIT("W", "0") AFTER DEALLOC("512") "ret;\n");
        ptx_run run = threads(128, (uint64_t)i);
        run_ptx(kernel.bytes, &run);
    }
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),      cmocka_unit_test(test_stores),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_shift),      cmocka_unit_test(test_allocation),
        cmocka_unit_test(test_neighbours), cmocka_unit_test(test_other_warp),
        cmocka_unit_test(test_forms),      cmocka_unit_test(test_arbitrary_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
