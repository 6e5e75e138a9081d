/* SPDX-License-Identifier: MIT
 *
 * tcgen05.mma: products of every kind against plain C. */
#include "tcgen05_ptx.h"

#include <math.h>

static uint64_t base_seed;

enum {
    A_BYTES = 128 * 128,
    B_OFFSET = A_BYTES,
    SCALE_OFFSET = B_OFFSET + 256 * 128, /* of A: 512 bytes, then of B: 1024 */
    TILE_BYTES = SCALE_OFFSET + 1536,
    TILE_WORDS = TILE_BYTES / 4,
    D_START = TILE_WORDS, /* of the input: accumulators at the start, word (lane, column) */
    IN_WORDS = D_START + 128 * 256,
    OUT_WORDS = 128 * 256,
    SCALE_A = 256, /* columns */
    SCALE_B = 272,
    A_COLUMN = 288
};

static struct { uint32_t in[IN_WORDS], between[64], out[OUT_WORDS], after[64]; } memory __attribute__((aligned(1024)));

typedef enum kind { F16, TF32, F8F6F4, I8, MXF8F6F4, MXF4, NVF4 } kind;
static const char *const kind_names[] = {"f16",
                                         "tf32",
                                         "f8f6f4",
                                         "i8",
                                         "mxf8f6f4.block_scale.block32",
                                         "mxf4.block_scale.scale_vec::2X",
                                         "mxf4nvf4.block_scale.block16"};

/* Bits of a number's fields; u8 and s8 have none. */
typedef struct number {
    int bits, exponent, fraction, bias;
    unsigned code; /* in the instruction descriptor */
    bool has_nan;  /* all ones */
} number;
static const number f16 = {16, 5, 10, 15, 0, false}, bf16 = {16, 8, 7, 127, 1, false},
                    tf32 = {32, 8, 23, 127, 2, false}, e4m3 = {8, 4, 3, 7, 0, true}, e5m2 = {8, 5, 2, 15, 1, false},
                    e2m3 = {6, 2, 3, 1, 3, false}, e3m2 = {6, 3, 2, 3, 4, false}, e2m1 = {4, 2, 1, 1, 5, false},
                    fp4 = {4, 2, 1, 1, 1, false}, u8 = {8, 0, 0, 0, 0, false}, s8 = {8, 0, 0, 0, 1, false};

typedef struct product {
    kind kind;
    const number *a, *b;
    int m, n, steps;
    int mode;              /* of swizzling, as in the descriptor: 0, 1, 2, 4, 6 */
    bool mn_a, mn_b;       /* M or N contiguous */
    bool half, accumulate; /* D in f16; D is not overwritten */
    bool negate_a, negate_b;
    bool a_in_tmem, masked;
    int scale_down, id; /* id of the scales */
    bool ue4m3;
    int lane; /* M = 64: 0 or 16 */
} product;

static double value_of(const number *t, uint32_t bits) {
    if (t == &u8)
        return bits;
    if (t == &s8)
        return (int8_t)bits;
    const double sign = bits >> (t->bits - 1) & 1 ? -1 : 1;
    const int exponent = (int)(bits >> t->fraction) & ((1 << t->exponent) - 1);
    uint32_t fraction = bits & ((1u << t->fraction) - 1);
    if (t == &tf32)
        fraction &= ~UINT32_C(0x1fff);
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - t->bias - t->fraction);
    return sign * ldexp(fraction + (1u << t->fraction), exponent - t->bias - t->fraction);
}

/* Finite, and not so large that sums overflow. */
static uint32_t random_bits(const number *t, uint64_t *random) {
    const uint32_t bits = test_random(random);
    if (t->exponent == 0)
        return bits & 0xff;
    if (t->exponent <= 3)
        return bits & ((1u << t->bits) - 1);
    const uint32_t exponent = (uint32_t)t->bias - 4 + bits % 7, sign = bits >> 31 << (t->bits - 1);
    return sign | exponent << t->fraction | (bits >> 3 & ((1u << t->fraction) - 1));
}

/* ---- Layouts ---- */

/* Bytes of 16 elements in shared memory are `16 * bits / 8`, but narrow ones are padded; fp4 alone is packed. */
static bool padded(const product *p, const number *t) {
    return t->bits < 8 && p->kind != MXF4 && p->kind != NVF4;
}

static int k_of(const product *p) {
    return p->kind == F16 ? 16 : p->kind == TF32 ? 8 : p->kind == MXF4 || p->kind == NVF4 ? 64 : 32;
}

/* Elements in 16 bytes. */
static int per_piece(const product *p, const number *t) {
    return padded(p, t) ? 16 : 128 / t->bits;
}

static unsigned swizzle_width(int mode) {
    return mode == 0 ? 0 : mode == 4 ? 64 : mode == 6 ? 32 : 128;
}

static unsigned swizzle(int mode, unsigned offset) {
    switch (mode) {
    case 1: /* 32-byte pieces of rows of 128 bytes, 4 rows */
        return offset ^ (offset / 128 % 4) * 32;
    case 2:
        return offset ^ (offset / 128 % 8) * 16;
    case 4:
        return offset ^ (offset / 128 % 4) * 16;
    case 6:
        return offset ^ (offset / 128 % 2) * 16;
    default:
        return offset;
    }
}

typedef struct where {
    unsigned piece; /* offset of the 16 bytes */
    int element;    /* in it */
} where;

/* Where element (row of M or N, column of K of all steps) lies in the tile of an operand. K-major without swizzling:
 * 8 rows x 16 bytes after each other along K, then along the rows. MN-major: patterns along MN, then along K. */
static where place(const product *p, const number *t, bool mn_major, unsigned rows, unsigned row, unsigned column) {
    const unsigned width = swizzle_width(p->mode), per = (unsigned)per_piece(p, t);
    if (!mn_major) {
        const unsigned pieces = (unsigned)(k_of(p) * p->steps) / per, k = column / per;
        const unsigned at =
            width == 0 ? row / 8 * pieces * 128 + k * 128 + row % 8 * 16 : swizzle(p->mode, row * width + k * 16);
        return (where){at, (int)(column % per)};
    }
    if (width == 0)
        return (where){row / per * (unsigned)(k_of(p) * p->steps) * 16 + column * 16, (int)(row % per)};
    const unsigned across = width / 16, patterns = rows / per / across, high = p->mode == 1 ? 4 : 8;
    const unsigned pattern = row / per / across + column / high * patterns;
    const unsigned at = pattern * high * width + column % high * width + row / per % across * 16;
    return (where){swizzle(p->mode, at), (int)(row % per)};
}

static uint64_t descriptor(const product *p, const number *t, bool mn_major, unsigned rows, unsigned offset, int step) {
    const unsigned width = swizzle_width(p->mode), per = (unsigned)per_piece(p, t), k = (unsigned)k_of(p);
    unsigned leading, stride, advance;
    if (!mn_major) {
        leading = width == 0 ? 128 : 16;
        stride = width == 0 ? 128 * (k * (unsigned)p->steps / per) : 8 * width;
        advance = width == 0 ? 256 : 32;
    } else if (width == 0) {
        leading = 128;
        stride = k * (unsigned)p->steps * 16;
        advance = k * 16;
    } else {
        const unsigned high = p->mode == 1 ? 4 : 8;
        leading = high * width;
        stride = rows / per / (width / 16) * leading;
        advance = k / high * stride;
    }
    return smem_descriptor(offset + (unsigned)step * advance, leading, stride, (unsigned)p->mode);
}

/* ---- Inputs ---- */

static uint32_t a_bits[128][256], b_bits[256][256], a_scales[128], b_scales[256];

static void put(const product *p, const number *t, unsigned offset, where at, uint32_t bits) {
    uint8_t *bytes = (uint8_t *)memory.in + offset + at.piece;
    const int first = at.element * t->bits;
    (void)p;
    for (int i = 0; i < t->bits; i++) {
        const int bit = first + i;
        bytes[bit / 8] = (uint8_t)((bytes[bit / 8] & ~(1u << bit % 8)) | (bits >> i & 1) << bit % 8);
    }
}

static uint32_t random_scale(const product *p, uint64_t *random) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t bits = test_random(random);
        word |= (p->ue4m3 ? bits % 0x78 : 120 + bits % 16) << 8 * i;
    }
    return word;
}

static double scale_of(const product *p, uint32_t word, int k) {
    if (p->kind < MXF8F6F4)
        return 1;
    const int block = p->kind == NVF4 ? 16 : 32;
    const uint32_t byte = word >> 8 * (p->id + k % k_of(p) / block) & 0xff;
    return p->ue4m3 ? value_of(&e4m3, byte) : ldexp(1, (int)byte - 127);
}

static void fill_inputs(const product *p, uint64_t *random) {
    const unsigned columns = (unsigned)(k_of(p) * p->steps);
    for (int i = 0; i < IN_WORDS; i++)
        memory.in[i] = test_random(random);
    for (unsigned c = 0; c < columns; c++) {
        for (unsigned r = 0; r < (unsigned)p->m; r++) {
            a_bits[r][c] = random_bits(p->a, random);
            put(p, p->a, 0, place(p, p->a, p->mn_a, (unsigned)p->m, r, c), a_bits[r][c]);
        }
        for (unsigned r = 0; r < (unsigned)p->n; r++) {
            b_bits[r][c] = random_bits(p->b, random);
            put(p, p->b, B_OFFSET, place(p, p->b, p->mn_b, (unsigned)p->n, r, c), b_bits[r][c]);
        }
    }
    /* Word (row / 32) of lane row % 32, as cp.32x128b takes it: 16 bytes a lane. */
    for (unsigned r = 0; r < 128; r++)
        memory.in[SCALE_OFFSET / 4 + r % 32 * 4 + r / 32] = a_scales[r] = random_scale(p, random);
    for (unsigned r = 0; r < 256; r++)
        memory.in[SCALE_OFFSET / 4 + 128 + r / 128 * 128 + r % 32 * 4 + r / 32 % 4] = b_scales[r] =
            random_scale(p, random);
    for (int i = D_START; i < IN_WORDS; i++) {
        if (p->half)
            memory.in[i] = (memory.in[i] & 0x83ff) | (10 + memory.in[i] % 8) << 10;
        else if (p->kind != I8)
            memory.in[i] = (memory.in[i] & 0x807fffff) | (120 + memory.in[i] % 9) << 23;
    }
    memset(memory.out, 0xcc, sizeof(memory.out));
}

/* ---- Kernel ---- */

static uint32_t instruction_descriptor(const product *p) {
    uint32_t d = p->a->code << 7 | p->b->code << 10 | (uint32_t)p->negate_a << 13 | (uint32_t)p->negate_b << 14 |
                 (uint32_t)p->mn_a << 15 | (uint32_t)p->mn_b << 16 | (uint32_t)p->n / 8 << 17;
    if (p->kind >= MXF8F6F4)
        return d | (uint32_t)p->id << 4 | (uint32_t)!p->ue4m3 << 23 | (uint32_t)p->m / 128 << 27 |
               (uint32_t)p->id << 29;
    return d | (p->kind == I8 ? 2u : p->half ? 0u : 1u) << 4 | (uint32_t)p->m / 16 << 24;
}

static void add_mma(text *t, const product *p, int step, const char *accumulate) {
    add(t,
        "add.u64 %%da, %%base, 0x%llx;\nadd.u64 %%db, %%base, 0x%llx;\nmov.u32 %%r20, 0x%x;\nadd.u32 %%r21, %%taddr, "
        "0x%x;\n",
        (unsigned long long)descriptor(p, p->a, p->mn_a, (unsigned)p->m, 0, step),
        (unsigned long long)descriptor(p, p->b, p->mn_b, (unsigned)p->n, B_OFFSET, step), instruction_descriptor(p),
        (unsigned)p->lane << 16);
    add(t, "tcgen05.mma.cta_group::1.kind::%s [%%r21], ", kind_names[p->kind]);
    if (p->a_in_tmem)
        add(t, "[%%r21+%d]", A_COLUMN + 8 * step);
    else
        add(t, "%%da");
    add(t, ", %%db, %%r20, ");
    if (p->kind >= MXF8F6F4)
        add(t, "[%%taddr+%d], [%%taddr+%d], ", SCALE_A, SCALE_B);
    if (p->masked)
        add(t, "{%%r30, %%r31, %%r32, %%r33}, ");
    add(t, "%s", accumulate);
    if (p->scale_down)
        add(t, ", %d", p->scale_down);
    add(t, ";\n");
}

/* A's words for the warp's lanes, from the input's tile as the test has written it in plain rows (see check). */
static uint32_t a_words[128][32];

static void fill_a_words(const product *p) {
    const int bits = p->kind == MXF4 || p->kind == NVF4 ? 4 : p->a->bits < 8 ? 8 : p->a->bits;
    const int per = 32 / bits, shift = bits == 8 && p->a->bits == 4 ? 2 : 0;
    memset(a_words, 0, sizeof(a_words));
    for (int r = 0; r < p->m; r++) {
        const int lane = p->m == 128 ? r : r / 16 * 32 + r % 16 + p->lane;
        for (int c = 0; c < k_of(p) * p->steps; c++)
            a_words[lane][c / per] |= a_bits[r][c] << shift << c % per * bits;
    }
}

static void write_kernel(text *t, const product *p) {
    add_declarations(t);
    add_fill(t, TILE_WORDS);
    say(t, INIT VISIBLE ALLOC("512"));
    say(t, "mov.u32 %r30, 0xffff;\nmov.u32 %r31, 0x80000001;\nmov.u32 %r32, 0;\nmov.u32 %r33, -1;\n");
    /* Accumulators, and A, by the warps of the lanes. */
    add(t, "add.u32 %%at, %%taddr, %%lanes;\nmad.wide.u32 %%rd5, %%tid, %d, %%in;\n", 4 * 256);
    for (int c = 0; c < p->n; c += 8) {
        for (int i = 0; i < 8; i++)
            add(t, "ld.global.u32 %%d%d, [%%rd5+%d];\n", i, 4 * (D_START + c + i));
        add(t, "tcgen05.st.sync.aligned.32x32b.x8.b32 [%%at+%d], ", c);
        add_vector(t, 0, 8);
        say(t, ";\n");
    }
    if (p->a_in_tmem) {
        add(t, "mad.wide.u32 %%rd6, %%tid, %d, %%in;\n", 4 * 32);
        for (int c = 0; c < 8 * p->steps; c++)
            add(t, "ld.global.u32 %%d9, [%%rd6+%d];\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%%at+%d], {%%d9};\n", 4 * c,
                A_COLUMN + c);
    }
    say(t, WAIT_ST BEFORE SYNC AFTER "@!%first bra ISSUED;\n");
    if (p->kind >= MXF8F6F4) {
        const uint64_t d = smem_descriptor(SCALE_OFFSET, 128, 128, 0);
        for (unsigned i = 0; i < 3; i++)
            add(t, "add.u64 %%da, %%base, 0x%llx;\ntcgen05.cp.cta_group::1.32x128b.warpx4 [%%taddr+%u], %%da;\n",
                (unsigned long long)(d + 32 * i), i == 0 ? SCALE_A : SCALE_B + 4 * (i - 1));
    }
    for (int step = 0; step < p->steps; step++)
        add_mma(t, p, step, step > 0 || p->accumulate ? "%yes" : "%no");
    say(t, COMMIT "ISSUED:\n" WAIT("DONE", "0") AFTER);
    add_dump(t, p->n);
    say(t, DEALLOC("512") "ret;\n");
}

/* ---- Checks ---- */

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static bool disabled(const product *p, int lane) {
    return p->masked && (lane < 16 || lane == 32 || lane == 63 || lane >= 96);
}

/* What the cell must hold: one rounding an instruction. */
static void check_cell(const product *p, int row, int column, int lane) {
    const uint32_t before = memory.in[D_START + lane * 256 + column], after = memory.out[lane * p->n + column];
    if (disabled(p, lane)) {
        assert_int_equal(after, before);
        return;
    }
    double sum = p->half         ? value_of(&f16, before & 0xffff)
                 : p->kind == I8 ? (double)(int32_t)before
                                 : (double)float_of(before);
    sum = p->accumulate ? ldexp(sum, -p->scale_down) : 0;
    const double sign = p->negate_a != p->negate_b ? -1 : 1;
    double largest = fabs(sum);
    for (int step = 0; step < p->steps; step++) {
        if (step > 0)
            sum = ldexp(sum, -p->scale_down);
        for (int k = step * k_of(p); k < (step + 1) * k_of(p); k++)
            sum += sign * value_of(p->a, a_bits[row][k]) * value_of(p->b, b_bits[column][k]) *
                   scale_of(p, a_scales[row], k) * scale_of(p, b_scales[column], k);
        if (p->kind == I8)
            continue;
        largest = fabs(sum) > largest ? fabs(sum) : largest;
        if (!p->half)
            sum = (float)sum;
    }
    if (p->kind == I8) {
        assert_int_equal(after, (uint32_t)(int64_t)sum);
        return;
    }
    const double got = p->half ? value_of(&f16, after & 0xffff) : float_of(after);
    const double bound = largest * ldexp(1, p->half ? -10 : -23) + ldexp(1, -24);
    if (!(fabs(got - sum) <= bound * p->steps))
        fail_msg("kind %s, mode %d, row %d, column %d: %.9g, expected %.9g", kind_names[p->kind], p->mode, row, column,
                 got, sum);
    if (p->half)
        assert_int_equal(after >> 16, 0);
}

static void check_product(const product *p, uint64_t seed) {
    static text t;
    uint64_t random = seed;
    t.used = 0;
    fill_inputs(p, &random);
    if (p->a_in_tmem) { /* A's words take the place of the tile's A: 32 words a lane */
        fill_a_words(p);
        memcpy(memory.in, a_words, sizeof(a_words));
    }
    write_kernel(&t, p);
    ptx_run run = {.grid = {1, 1, 1},
                   .block = {128, 1, 1},
                   .seed = seed,
                   .step_limit = 3000000,
                   .target = "sm_100a",
                   .dynamic_shared_bytes = dynamic_bytes(TILE_BYTES),
                   .in = memory.in,
                   .in_words = IN_WORDS,
                   .out = memory.out,
                   .out_words = OUT_WORDS};
    RUN_OK(t.bytes, &run);
    for (int row = 0; row < p->m; row++) {
        const int lane = p->m == 128 ? row : row / 16 * 32 + row % 16 + p->lane;
        for (int column = 0; column < p->n; column++)
            check_cell(p, row, column, lane);
    }
}

static void test_f8f6f4(void **state) {
    const number *const types[] = {&e4m3, &e5m2, &e2m3, &e3m2, &e2m1};
    static const int modes[] = {0, 2, 4, 6, 1};
    (void)state;
    uint64_t seed = base_seed;
    for (int i = 0; i < 5; i++) {
        product p = {.kind = F8F6F4, .a = types[i], .b = types[(i + i / 2) % 5], .m = 128, .n = 8 + 8 * i, .steps = 1};
        p.mode = modes[i];
        p.steps = p.mode == 6 ? 1 : 2;
        p.accumulate = i % 2;
        p.half = i == 3;
        check_product(&p, seed++);
    }
    product large = {.kind = F8F6F4, .a = &e4m3, .b = &e4m3, .m = 128, .n = 256, .steps = 4, .mode = 2};
    check_product(&large, seed++);
    product small = {
        .kind = F8F6F4, .a = &e4m3, .b = &e4m3, .m = 64, .n = 64, .steps = 2, .mode = 2, .accumulate = true};
    check_product(&small, seed++);
    small.lane = 16;
    check_product(&small, seed++);
}

static void test_f16(void **state) {
    static const int modes[] = {0, 2, 4, 6};
    (void)state;
    uint64_t seed = base_seed + 100;
    for (int i = 0; i < 16; i++) {
        product p = {.kind = F16, .a = i % 2 ? &bf16 : &f16, .n = 16 * (1 + i), .m = i % 3 == 0 ? 64 : 128, .steps = 1};
        p.b = p.a;
        p.mode = modes[i / 4];
        p.steps = p.mode == 6 ? 1 : 2;
        p.mn_a = i & 1;
        p.mn_b = i >> 1 & 1;
        if (p.mn_b) /* whole patterns */
            p.n = 64 * (1 + i % 3);
        if (i == 4)
            p.half = p.accumulate = true;
        p.negate_a = i == 5;
        p.negate_b = i == 6;
        p.masked = i == 7 && p.m == 128;
        p.scale_down = i == 8 ? 3 : 0;
        p.accumulate |= i >= 7;
        check_product(&p, seed++);
    }
}

static void test_tf32_and_i8(void **state) {
    (void)state;
    uint64_t seed = base_seed + 200;
    product p = {.kind = TF32, .a = &tf32, .b = &tf32, .m = 128, .n = 32, .steps = 2, .mode = 2};
    check_product(&p, seed++);
    p.mode = 1;
    p.mn_a = p.mn_b = true;
    check_product(&p, seed++);
    p.mn_b = false;
    p.masked = p.accumulate = true;
    check_product(&p, seed++);
    product i = {.kind = I8, .a = &u8, .b = &s8, .m = 128, .n = 48, .steps = 2, .mode = 4, .accumulate = true};
    check_product(&i, seed++);
}

static void test_block_scaled(void **state) {
    (void)state;
    uint64_t seed = base_seed + 300;
    product p = {.kind = MXF4, .a = &fp4, .b = &fp4, .m = 128, .n = 64, .steps = 2, .mode = 4};
    check_product(&p, seed++);
    p.id = 2;
    p.n = 256;
    p.accumulate = true;
    check_product(&p, seed++);
    p.kind = NVF4;
    p.id = 0;
    p.n = 136;
    check_product(&p, seed++);
    p.ue4m3 = true;
    check_product(&p, seed++);
    for (int id = 0; id < 4; id++) {
        product q = {.kind = MXF8F6F4, .a = &e4m3, .b = id % 2 ? &e2m1 : &e5m2, .m = 128, .n = 40 + 8 * id, .steps = 2};
        q.mode = 2;
        q.id = id;
        check_product(&q, seed++);
    }
}

static void test_a_in_tensor_memory(void **state) {
    const number *const types[] = {&e4m3, &e2m3, &e2m1};
    (void)state;
    uint64_t seed = base_seed + 400;
    for (int i = 0; i < 3; i++) {
        product p = {.kind = F8F6F4, .a = types[i], .b = &e4m3, .m = 128, .n = 24, .steps = 2, .mode = 2};
        p.a_in_tmem = true;
        check_product(&p, seed++);
    }
    product half = {.kind = F16, .a = &bf16, .b = &bf16, .m = 64, .n = 24, .steps = 2, .mode = 2, .a_in_tmem = true};
    half.lane = 16;
    check_product(&half, seed++);
    product tf = {.kind = TF32, .a = &tf32, .b = &tf32, .m = 128, .n = 24, .steps = 2, .mode = 2, .a_in_tmem = true};
    check_product(&tf, seed++);
    product four = {.kind = MXF4, .a = &fp4, .b = &fp4, .m = 128, .n = 24, .steps = 2, .mode = 4, .a_in_tmem = true};
    check_product(&four, seed++);
}

/* ---- Values and descriptors by hand ---- */

/* Runs the body between the scales' copy (columns 256 to 259 and 272 to 279, from the input) and the dump of columns 0
 * to
 * 15. false: the report is in run->fault. */
static bool run_body(ptx_run *run, const char *body) {
    static text t;
    t.used = 0;
    add_declarations(&t);
    add_fill(&t, TILE_WORDS);
    say(&t, INIT VISIBLE ALLOC("512") SYNC "@!%first bra ISSUED;\n");
    const uint64_t d = smem_descriptor(SCALE_OFFSET, 128, 128, 0);
    for (unsigned i = 0; i < 3; i++)
        add(&t, "add.u64 %%da, %%base, 0x%llx;\ntcgen05.cp.cta_group::1.32x128b.warpx4 [%%taddr+%u], %%da;\n",
            (unsigned long long)(d + 32 * i), i == 0 ? SCALE_A : SCALE_B + 4 * (i - 1));
    say(&t, body);
    say(&t, COMMIT "ISSUED:\n" WAIT("DONE", "0") AFTER);
    add_dump(&t, 16);
    say(&t, DEALLOC("512") "ret;\n");
    *run = (ptx_run){.grid = {1, 1, 1},
                     .block = {128, 1, 1},
                     .seed = base_seed,
                     .step_limit = 1000000,
                     .target = "sm_100a",
                     .dynamic_shared_bytes = dynamic_bytes(TILE_BYTES),
                     .tensor_bits = run->tensor_bits,
                     .in = memory.in,
                     .in_words = IN_WORDS,
                     .out = memory.out,
                     .out_words = OUT_WORDS};
    return run_ptx(t.bytes, run);
}

/* Both matrices from the start of the tile, 8 x 16 byte pieces of 256 bytes for 8 rows. */
#define SAME "add.u64 %da, %base, 0x0000401000080000;\n"
#define MXF4_16                                                                                                        \
    SAME "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr], %da, %da, 0x08840480, "                    \
         "[%taddr+256], [%taddr+272], %no;\n"
#define F8_16 SAME "tcgen05.mma.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x08040010, %no;\n"

/* All values 1, all scales 1: sums of 64. Scales of 255 are NaN, whatever they scale; 0 is 2^-127. */
static void test_special_scales(void **state) {
    ptx_run run = {0};
    (void)state;
    memset(memory.in, 0x22, TILE_BYTES); /* e2m1's 1 */
    memset((uint8_t *)memory.in + SCALE_OFFSET, 127, 1536);
    uint8_t *scales = (uint8_t *)memory.in + SCALE_OFFSET;
    scales[5 * 16 + 4 * 1] = 255;                    /* of row 5 + 32, elements 0 to 31 */
    scales[512 + 3 * 16 + 1] = 255;                  /* of column 3, elements 32 to 63 */
    scales[7 * 16 + 1] = 128;                        /* row 7: 32 + 2 * 32 */
    scales[9 * 16] = 0, scales[9 * 16 + 1] = 0;      /* row 9 */
    scales[11 * 16 + 2] = scales[11 * 16 + 3] = 255; /* not used with id 0 */
    memset(memory.in, 0, 8);                         /* row 0: elements 0 to 15 are zero */
    if (!run_body(&run, MXF4_16))
        fail_msg("%s", run.fault);
    for (int row = 0; row < 128; row++) {
        for (int column = 0; column < 16; column++) {
            const uint32_t got = memory.out[row * 16 + column];
            /* B is the same matrix: column 0 has zeros, too. */
            const double ones = row == 0 || column == 0 ? 48 : 64;
            double wanted = row == 7 ? ones + 32 : row == 9 ? ldexp(ones, -127) : ones;
            if (row == 37 || column == 3)
                assert_int_equal(got, 0x7fffffff);
            else
                assert_true((double)float_of(got) == wanted);
        }
    }
}

/* e4m3: NaN stays, in its row and column; and 448 * 448 * 32 is exact. */
static void test_special_values(void **state) {
    ptx_run run = {0};
    (void)state;
    memset(memory.in, 0x7e, TILE_BYTES);
    ((uint8_t *)memory.in)[4 * 16 + 3] = 0xff; /* row 4, element 3 */
    if (!run_body(&run, F8_16))
        fail_msg("%s", run.fault);
    for (int row = 0; row < 128; row++)
        for (int column = 0; column < 16; column++) {
            const uint32_t got = memory.out[row * 16 + column];
            if (row == 4 || column == 4)
                assert_int_equal(got, 0x7fffffff);
            else
                assert_true(float_of(got) == 448.f * 448.f * 32.f);
        }
}

/* 2^16 and 31 products of 2^-12: these are 28 bits below it, so that 26 bits lose them. */
static void test_narrow_sums(void **state) {
    (void)state;
    for (int bits = 0; bits <= 26; bits += 26) {
        ptx_run run = {.tensor_bits = bits};
        memset(memory.in, 0x08, TILE_BYTES); /* 2^-6 */
        for (int row = 0; row < 128; row++)  /* element 0: 2^8 */
            ((uint8_t *)memory.in)[row / 8 * 256 + row % 8 * 16] = 0x78;
        if (!run_body(&run, F8_16))
            fail_msg("%s", run.fault);
        assert_true(float_of(memory.out[0]) == (bits ? 65536.f : 65536.f + 0.0078125f));
    }
}

/* .ws: the columns of D are in two (M = 64) or four parts (M = 32), one below the other. A and B are rows of the same
 * tile; the dump has 16 columns. */
static void test_weight_stationary(void **state) {
    static const float values[] = {0, 0.5f, 1, -1, 2, -0.5f, -2, 1.5f};
    static const uint8_t codes[] = {0, 0x30, 0x38, 0xb8, 0x40, 0xb0, 0xc0, 0x3c};
    static int picked[128][32];
    (void)state;
    for (int m = 32; m <= 128; m *= 2) {
        for (int n = 64; n <= 128; n *= 2) {
            char body[400];
            uint64_t random = base_seed + (uint64_t)(m + n);
            for (int row = 0; row < 128; row++)
                for (int k = 0; k < 32; k++) {
                    picked[row][k] = (int)(test_random(&random) % 8);
                    ((uint8_t *)memory.in)[row / 8 * 256 + k / 16 * 128 + row % 8 * 16 + k % 16] =
                        codes[picked[row][k]];
                }
            const int idesc = 0x10 | n / 8 << 17 | m / 16 << 24;
            snprintf(body, sizeof(body),
                     "%stcgen05.mma.ws.cta_group::1.kind::f8f6f4%s [%%taddr], %%da, %%da, %d, %%no;\n"
                     "tcgen05.mma.ws.cta_group::1.kind::f8f6f4 [%%taddr], %%da, %%da, %d, %%yes, 0;\n",
                     SAME, m == 64 ? ".collector::b1::fill" : "", idesc, idesc);
            ptx_run run = {0};
            if (!run_body(&run, body))
                fail_msg("M %d, N %d: %s", m, n, run.fault);
            for (int lane = 0; lane < 128; lane++)
                for (int column = 0; column < 16; column++) {
                    const int row = lane % m, of_b = lane / m * (n / (128 / m)) + column;
                    float wanted = 0;
                    for (int k = 0; k < 32; k++)
                        wanted += 2 * values[picked[row][k]] * values[picked[of_b][k]];
                    if (float_of(memory.out[lane * 16 + column]) != wanted)
                        fail_msg("M %d, N %d, lane %d, column %d: %g, expected %g", m, n, lane, column,
                                 (double)float_of(memory.out[lane * 16 + column]), (double)wanted);
                }
        }
    }
}

static void test_descriptors(void **state) {
    static const struct {
        const char *mma, *part;
    } cases[] = {
#define F8(a, idesc)                                                                                                   \
    "add.u64 %da, %base, " a ";\ntcgen05.mma.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, " idesc ", %no;\n"
        {F8("0x0000001000080000", "0x08040010"), "bits 46 to 48"},
        {F8("0x6000401000080000", "0x08040010"), "modes 3, 5 and 7"},
        {F8("0x0010401000080000", "0x08040010"), "absolute"},
        {F8("0x0100401000080000", "0x08040010"), "53 to 60"},
        {F8("0x4000404000010010", "0x08040010"), "first row"},
        {F8("0x0002401000080000", "0x08040010"), "base offset"},
        {F8("0x0000401000080000", "0x08040014"), "sparse"},
        {F8("0x0000401000080000", "0x08040018"), "must be zero"},
        {F8("0x0000401000080000", "0x08040110"), "type of A or B"},
        {F8("0x0000401000080000", "0x08040020"), "type of D"},
        {F8("0x0000401000080000", "0x06040010"), "M must be 64 or 128"},
        {F8("0x0000401000080000", "0x08000010"), "N must be"},
        {F8("0x0000401000080000", "0x08030010"), "multiple of 16"},
        {SAME "tcgen05.mma.cta_group::1.kind::f8f6f4 [%taddr+510], %da, %da, 0x08040010, %no;\n", "has not allocated"},
        {SAME "add.u32 %r20, %taddr, 0x100000;\ntcgen05.mma.cta_group::1.kind::f8f6f4 [%r20], %da, %da, 0x08040010, "
              "%no;\n",
         "lane 0 is needed"},
        {SAME "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr], %da, %da, 0x28840480, [%taddr+256], "
              "[%taddr+272], %no;\n",
         "ids must be 0 or 2"},
        {SAME "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr], %da, %da, 0x08040480, [%taddr+256], "
              "[%taddr+272], %no;\n",
         "UE8M0"},
        {SAME "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr], %da, %da, 0x88840480, [%taddr+256], "
              "[%taddr+272], %no;\n",
         "K = 96"},
        {SAME
         "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr+250], %da, %da, 0x08840480, [%taddr+256], "
         "[%taddr+272], %no;\n",
         "overlap D"},
        {SAME "tcgen05.mma.ws.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x02040010, %no;\n", "with .ws M must be"},
        {SAME "tcgen05.mma.ws.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x02100010, %no, 1;\n", "zero columns"},
        {SAME "tcgen05.mma.ws.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x03100010, %no;\n", "with .ws M must be"},
        {SAME "tcgen05.mma.ws.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x02100010, %no;\n"
              "tcgen05.mma.cta_group::1.kind::f8f6f4 [%taddr], %da, %da, 0x08040010, %no;\n",
         "completion has not been observed"},
        /* Scales in one quarter of the lanes alone. */
        {SAME "add.u64 %db, %base, 0x0000401000080000;\ntcgen05.cp.cta_group::1.128x128b [%taddr+300], %db;\n"
              "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%taddr], %da, %da, 0x08840480, [%taddr+300], "
              "[%taddr+272], %no;\n",
         "must be the same in all quarters"},
    };
    uint64_t random = base_seed;
    (void)state;
    for (int i = 0; i < TILE_WORDS; i++)
        memory.in[i] = test_random(&random);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ptx_run run = {0};
        if (run_body(&run, cases[i].mma) || strstr(run.fault, cases[i].part) == NULL)
            fail_msg("case %zu: \"%s\" not in: %s", i, cases[i].part, run.fault);
    }
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f8f6f4),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_tf32_and_i8),
        cmocka_unit_test(test_block_scaled),
        cmocka_unit_test(test_a_in_tensor_memory),
        cmocka_unit_test(test_special_scales),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_narrow_sums),
        cmocka_unit_test(test_weight_stationary),
        cmocka_unit_test(test_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
