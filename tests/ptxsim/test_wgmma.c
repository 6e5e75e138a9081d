/* SPDX-License-Identifier: MIT
 *
 * wgmma: products of every form against plain C, and what must be reported. */
#include <math.h>
#include <time.h>

#include "ptx_text.h"
#include "tensor_sum.h"

static uint64_t base_seed;

enum {
    MAX_STEPS = 4,
    B_OFFSET = 8192, /* in the tile */
    TILE_BYTES = B_OFFSET + 256 * 128,
    TILE_WORDS = TILE_BYTES / 4,
    A_FRAGMENTS = TILE_WORDS,                  /* of the input array: A for registers, 4 words a thread and step */
    START = A_FRAGMENTS + MAX_STEPS * 128 * 4, /* accumulators at the start */
    IN_WORDS = START + 128 * 128,
    OUT_WORDS = 128 * 128
};

static struct { uint32_t in[IN_WORDS], between[64], out[OUT_WORDS], after[64]; } memory __attribute__((aligned(1024)));

typedef enum number_type { E4M3, E5M2, F16, BF16, TF32, S8, U8 } number_type;
static const char *const type_names[] = {"e4m3", "e5m2", "f16", "bf16", "tf32", "s8", "u8"};

typedef struct product {
    int n, steps;
    number_type a, b;
    bool half, a_registers;
    int swizzle; /* bytes of a row, K-major: all steps lie in it; or of a row of M or N, transposed; 0: none */
    bool transpose_a, transpose_b, negate_a, negate_b, accumulate;
    bool saturates; /* s32, of which the accumulators start near the largest */
} product;

static bool is_whole(number_type type) {
    return type == S8 || type == U8;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static int bytes_of(number_type type) {
    if (type == TF32)
        return 4;
    if (is_whole(type))
        return 1;
    return type <= E5M2 ? 1 : 2;
}

static double value_of(number_type type, uint32_t bits) {
    if (is_whole(type))
        return type == S8 ? (int8_t)bits : (uint8_t)bits;
    if (type == TF32)
        return float_of(bits & 0xffffe000);
    static const int fractions[] = {3, 2, 10, 7}, biases[] = {7, 15, 15, 127};
    const int width = 8 * bytes_of(type), fraction = fractions[type];
    const double sign = bits >> (width - 1) & 1 ? -1 : 1;
    const int exponent = (int)(bits >> fraction) & ((1 << (width - 1 - fraction)) - 1);
    const double mantissa = bits & ((1u << fraction) - 1);
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - biases[type] - fraction);
    return sign * ldexp(mantissa + (1 << fraction), exponent - biases[type] - fraction);
}

/* A finite number; `near_one`, as in the wide types: so that sums do not overflow f16. */
static uint32_t random_bits(number_type type, bool near_one, uint64_t *random) {
    for (;;) {
        const uint32_t bits = test_random(random);
        switch (type) {
        case E4M3:
            if ((bits & 0x7f) != 0x7f && !(near_one && (bits & 0x7f) >= 0x48))
                return bits & 0xff;
            break;
        case E5M2:
            if ((bits & 0x7c) < (near_one ? 0x48 : 0x68) && (bits & 0x7c) > 0x10)
                return bits & 0xff;
            break;
        case S8:
        case U8:
            return bits & 0xff;
        case TF32:
            return (bits & 0x807fffff) | (124 + bits % 5) << 23;
        case F16:
            return (bits & 0x83ff) | (12 + bits % 6) << 10;
        default:
            return (bits & 0x807f) | (125 + bits % 4) << 7;
        }
    }
}

/* ---- Layouts ---- */

static unsigned swizzled_chunk(int swizzle, unsigned row, unsigned chunk) {
    return chunk ^ (swizzle == 128 ? row % 8 : swizzle == 64 ? row / 2 % 4 : swizzle == 32 ? row / 4 % 2 : 0);
}

/* Where element (row of M or N, column of K) lies. Plain K-major: core matrices of 8 rows x 16 bytes, side by side in
 * K. Plain transposed: 8 columns of K x 16 bytes, those of one 8 of M or N after the other. */
static unsigned place(const product *p, bool transposed, number_type type, unsigned rows, unsigned row,
                      unsigned column) {
    const unsigned bytes = (unsigned)bytes_of(type), swizzle = (unsigned)p->swizzle;
    const unsigned columns = 32u / bytes * (unsigned)p->steps;
    if (!transposed) {
        const unsigned at = column * bytes, chunks = columns * bytes / 16;
        if (swizzle == 0)
            return row / 8 * (128 * chunks) + at / 16 * 128 + row % 8 * 16 + at % 16;
        return row * swizzle + swizzled_chunk(p->swizzle, row, at / 16) * 16 + at % 16;
    }
    if (swizzle == 0)
        return row / 8 * (columns * 16) + column * 16 + row % 8 * 2;
    const unsigned per_row = swizzle / 2; /* of M or N in a row of a pattern, which is 8 such rows */
    const unsigned pattern = row / per_row + column / 8 * (rows / per_row);
    return pattern * 8 * swizzle + column % 8 * swizzle +
           swizzled_chunk(p->swizzle, column % 8, row % per_row / 8) * 16 + row % 8 * 2;
}

/* The descriptor of a step, for a tile at `offset` from the start. */
static uint64_t descriptor(const product *p, bool transposed, number_type type, unsigned rows, unsigned offset,
                           int step) {
    const unsigned bytes = (unsigned)bytes_of(type), swizzle = (unsigned)p->swizzle;
    const unsigned columns = 32u / bytes * (unsigned)p->steps;
    unsigned leading, stride, advance;
    if (!transposed) {
        leading = swizzle == 0 ? 128 : 16;
        stride = swizzle == 0 ? 128 * (columns * bytes / 16) : 8 * swizzle;
        advance = swizzle == 0 ? 256 : 32;
    } else if (swizzle == 0) {
        leading = 128;
        stride = columns * 16;
        advance = 256;
    } else {
        leading = 8 * swizzle;
        stride = rows / (swizzle / 2) * 8 * swizzle;
        advance = 2 * stride;
    }
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return mode << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)(leading >> 4) << 16 |
           (offset + (unsigned)step * advance) >> 4;
}

/* ---- Kernels ---- */

static int registers_of(const product *p) {
    return p->half ? p->n / 4 : p->n / 2;
}

/* Copies `words` words of the input to the tile, and makes them visible. */
static void add_prologue(text *t, int words) {
    add(t,
        ".shared .align 1024 .b8 tile[%d];\n.reg .b32 %%d<128>;\n.reg .b32 %%a<4>;\n.reg .b64 %%base, %%da, %%db;\n"
        ".reg .pred %%yes, %%no;\n"
        "mov.u32 %%r2, tile;\nmov.u32 %%r10, %%tid;\nFILL:\nsetp.ge.u32 %%p3, %%r10, %d;\n@%%p3 bra FILLED;\n"
        "mad.lo.u32 %%r11, %%r10, 4, %%r2;\nmad.wide.u32 %%rd3, %%r10, 4, %%in;\nld.global.u32 %%r12, [%%rd3];\n"
        "st.shared.u32 [%%r11], %%r12;\nadd.u32 %%r10, %%r10, %%ntid.x;\nbra FILL;\nFILLED:\n",
        TILE_BYTES, words);
    add(t,
        "setp.ne.u32 %%no, 0, 0;\nsetp.eq.u32 %%yes, 0, 0;\ncvt.u64.u32 %%base, %%r2;\nshr.u64 %%base, %%base, 4;\n");
}

#define VISIBLE "fence.proxy.async.shared::cta;\nbar.sync 0;\n"

static void add_mma(text *t, const product *p, int step, const char *scale_d) {
    const int k = 32 / bytes_of(p->a);
    add(t, "add.u64 %%da, %%base, 0x%llx;\nadd.u64 %%db, %%base, 0x%llx;\n",
        (unsigned long long)descriptor(p, p->transpose_a, p->a, 64, 0, step),
        (unsigned long long)descriptor(p, p->transpose_b, p->b, (unsigned)p->n, B_OFFSET, step));
    add(t, "wgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s%s {", p->n, k,
        p->half          ? "f16"
        : is_whole(p->a) ? "s32"
                         : "f32",
        type_names[p->a], type_names[p->b], p->saturates ? ".satfinite" : "");
    for (int i = 0; i < registers_of(p); i++)
        add(t, "%s%%d%d", i > 0 ? ", " : "", i);
    add(t, "}, %s, %%db, %s", p->a_registers ? "{%a0, %a1, %a2, %a3}" : "%da", scale_d);
    if (!is_whole(p->a))
        add(t, ", %d, %d", p->negate_a ? -1 : 1, p->negate_b ? -1 : 1);
    if (k == 16 && !p->a_registers)
        add(t, ", %d", p->transpose_a);
    if (k == 16)
        add(t, ", %d", p->transpose_b);
    add(t, ";\n");
}

static void add_epilogue(text *t, const product *p) {
    add(t, "mad.wide.u32 %%rd4, %%tid, %d, %%out;\n", 4 * registers_of(p));
    for (int i = 0; i < registers_of(p); i++)
        add(t, "st.global.u32 [%%rd4+%d], %%d%d;\n", 4 * i, i);
    add(t, "END:\nret;\n");
}

static ptx_run warpgroup(uint64_t seed) {
    return (ptx_run){.grid = {1, 1, 1},
                     .block = {128, 1, 1},
                     .seed = seed,
                     .step_limit = 3000000,
                     .in = memory.in,
                     .in_words = IN_WORDS,
                     .out = memory.out,
                     .out_words = OUT_WORDS};
}

/* ---- Products ---- */

static uint32_t a_bits[64][128], b_bits[256][128];

static void put(uint32_t *words, unsigned at, uint32_t bits, int bytes) {
    memcpy((uint8_t *)words + at, &bits, (size_t)bytes);
}

static void fill_operands(const product *p, uint64_t *random) {
    const int bytes = bytes_of(p->a), in_register = 4 / bytes;
    const unsigned k = 32 / (unsigned)bytes, columns = k * (unsigned)p->steps;
    for (int i = 0; i < IN_WORDS; i++)
        memory.in[i] = test_random(random);
    for (unsigned c = 0; c < columns; c++) {
        for (unsigned r = 0; r < 64; r++) {
            a_bits[r][c] = random_bits(p->a, p->half, random);
            put(memory.in, place(p, p->transpose_a, p->a, 64, r, c), a_bits[r][c], bytes);
        }
        for (unsigned r = 0; r < (unsigned)p->n; r++) {
            b_bits[r][c] = random_bits(p->b, p->half, random);
            put(memory.in, B_OFFSET + place(p, p->transpose_b, p->b, (unsigned)p->n, r, c), b_bits[r][c], bytes);
        }
    }
    for (unsigned step = 0; step < (unsigned)p->steps; step++)
        for (unsigned thread = 0; thread < 128; thread++)
            for (unsigned i = 0; i < 4; i++)
                for (unsigned e = 0; e < (unsigned)in_register; e++) {
                    const unsigned lane = thread % 32, row = thread / 32 * 16 + lane / 4 + i % 2 * 8;
                    const unsigned column = step * k + (lane % 4 + i / 2 * 4) * (unsigned)in_register + e;
                    put(memory.in + A_FRAGMENTS + (step * 128 + thread) * 4 + i, e * (unsigned)bytes,
                        a_bits[row][column], bytes);
                }
    for (int i = START; i < IN_WORDS; i++) {
        if (p->saturates)
            memory.in[i] = UINT32_C(0x7fffffff) - test_random(random) % 2000000;
        else if (p->half)
            memory.in[i] = random_bits(F16, true, random) | random_bits(F16, true, random) << 16;
        else
            memory.in[i] = (memory.in[i] & 0x807fffff) | (124 + memory.in[i] % 5) << 23;
    }
}

/* Element (row, column) of accumulators as the threads hold them. */
static double element(const product *p, const uint32_t *words, int row, int column) {
    const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2, high = row % 16 / 8;
    const uint32_t *own = words + thread * registers_of(p);
    if (p->half)
        return value_of(F16, own[column / 8 * 2 + high] >> 16 * (column % 2) & 0xffff);
    const uint32_t bits = own[column / 8 * 4 + 2 * high + column % 2];
    return is_whole(p->a) ? (double)(int32_t)bits : float_of(bits);
}

static void check_product(const product *p, uint64_t seed) {
    const int k = 32 / bytes_of(p->a);
    const double sign = p->negate_a != p->negate_b ? -1 : 1;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < p->n; column++) {
            double sum = p->accumulate ? element(p, memory.in + START, row, column) : 0, size = fabs(sum);
            for (int c = 0; c < k * p->steps; c++) {
                const double term = sign * value_of(p->a, a_bits[row][c]) * value_of(p->b, b_bits[column][c]);
                sum += term;
                size += fabs(term);
            }
            const double got = element(p, memory.out, row, column);
            if (p->saturates)
                sum = sum > INT32_MAX ? INT32_MAX : sum;
            const double allowed = is_whole(p->a) ? 0 : size * ldexp(1.0, p->half ? -9 : -22) * p->steps;
            if (!(fabs(got - sum) <= allowed))
                fail_msg("m64n%dk%d %s %s.%s.%s, %d steps, seed %llu: (%d, %d) is %.9g, not %.9g", p->n, k,
                         p->a_registers ? "RS" : "SS",
                         p->half          ? "f16"
                         : is_whole(p->a) ? "s32"
                                          : "f32",
                         type_names[p->a], type_names[p->b], p->steps, (unsigned long long)seed, row, column, got, sum);
        }
}

static void run_product(const product *p, uint64_t seed) {
    static text t;
    uint64_t random = seed;
    t.used = 0;
    fill_operands(p, &random);
    add_prologue(&t, TILE_WORDS);
    add(&t, "mad.wide.u32 %%rd5, %%tid, %d, %%in;\nmad.wide.u32 %%rd6, %%tid, 16, %%in;\n", 4 * registers_of(p));
    for (int i = 0; p->accumulate && i < registers_of(p); i++)
        add(&t, "ld.global.u32 %%d%d, [%%rd5+%d];\n", i, 4 * (START + i));
    add(&t, VISIBLE "wgmma.fence.sync.aligned;\n");
    for (int step = 0; step < p->steps; step++) {
        for (int i = 0; p->a_registers && i < 4; i++)
            add(&t, "ld.global.u32 %%a%d, [%%rd6+%d];\n", i, 4 * (A_FRAGMENTS + step * 128 * 4 + i));
        if (p->a_registers)
            add(&t, "wgmma.fence.sync.aligned;\n");
        add_mma(&t, p, step, p->accumulate || step > 0 ? "%yes" : "%no");
        if (p->a_registers) /* A's registers are needed again */
            add(&t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    }
    add(&t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    add_epilogue(&t, p);
    ptx_run run = warpgroup(seed);
    RUN_OK(t.bytes, &run);
    check_product(p, seed);
}

static void test_fp8(void **state) {
    (void)state;
    static const int widths[] = {8, 16, 64, 96, 192, 256};
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++)
        for (int steps = 1; steps <= 4; steps *= 2) /* rows of 32, 64 and 128 bytes, each swizzled over itself */
            for (int half = 0; half < 2; half++) {
                const int i = (int)w + steps + half;
                const product p = {.n = widths[w],
                                   .steps = steps,
                                   .a = i % 3 == 0 ? E5M2 : E4M3,
                                   .b = i % 4 == 0 ? E5M2 : E4M3,
                                   .half = half,
                                   .swizzle = 32 * steps,
                                   .negate_a = i % 5 == 0,
                                   .negate_b = i % 7 == 0,
                                   .accumulate = i % 2};
                run_product(&p, base_seed + w * 100 + (uint64_t)(steps * 2 + half));
            }
}

static void test_fp8_from_registers_and_unswizzled(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        const product p = {.n = i % 2 ? 40 : 128,
                           .steps = i < 4 ? 4 : 2,
                           .a = E4M3,
                           .b = i % 3 ? E4M3 : E5M2,
                           .half = i % 4 == 3,
                           .a_registers = i / 2 % 2,
                           .swizzle = i < 4 ? 0 : 64};
        run_product(&p, base_seed + 1000 + (uint64_t)i);
    }
}

static void test_16_bit(void **state) {
    (void)state;
    static const int swizzles[] = {0, 32, 64, 128};
    for (int i = 0; i < 32; i++) {
        const int swizzle = swizzles[i % 4];
        product p = {.n = i / 4 % 2 ? 64 : 192, .a = i / 8 % 2 ? BF16 : F16, .swizzle = swizzle};
        p.steps = swizzle == 0 ? 2 : swizzle / 32;
        p.b = p.a;
        p.half = p.a == F16 && i / 4 % 2;
        p.a_registers = i % 7 == 0;
        p.transpose_a = !p.a_registers && i / 16 % 2;
        p.transpose_b = (i + i / 16) % 2;
        p.accumulate = i % 3 == 0;
        run_product(&p, base_seed + 2000 + (uint64_t)i);
    }
}

static void test_tf32_and_integers(void **state) {
    (void)state;
    static const number_type types[][2] = {{TF32, TF32}, {S8, S8}, {S8, U8}, {U8, S8}, {U8, U8}};
    for (int i = 0; i < 30; i++) {
        product p = {.n = i % 2 ? 48 : 128,
                     .steps = i % 3 == 0 ? 4 : i % 3,
                     .a = types[i % 5][0],
                     .b = types[i % 5][1],
                     .a_registers = i / 2 % 2,
                     .accumulate = i / 3 % 2};
        p.swizzle = i % 4 == 3 ? 0 : 32 * p.steps;
        p.saturates = p.a == U8 && p.b == U8 && p.accumulate && !p.a_registers;
        p.negate_a = p.a == TF32 && i % 7 == 1;
        run_product(&p, base_seed + 3000 + (uint64_t)i);
    }
    static const char *const refused[] = {
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%r0}, %rd0, %rd1, %p0;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r0, %r1, %r2, %r3}, %rd0, %rd1, %p0, 1, 1;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.tf32.tf32 {%r0, %r1, %r2, %r3}, %rd0, %rd1, %p0, 1, 1;\nret;\n",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3.satfinite {%r0, %r1, %r2, %r3}, %rd0, %rd1, %p0, 1, "
        "1;\nret;\n",
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        char error[256];
        assert_null(ptx_body_module(refused[i], error, sizeof(error)));
    }
}

/* Two accumulators in flight in two groups; the older one is used while the other still runs. */
static void test_groups(void **state) {
    (void)state;
    static text t;
    const product p = {.n = 16, .steps = 4, .a = E4M3, .b = E4M3, .swizzle = 128};
    for (uint64_t seed = base_seed; seed < base_seed + 6; seed++) {
        uint64_t random = seed;
        fill_operands(&p, &random);
        t.used = 0;
        add_prologue(&t, TILE_WORDS);
        add(&t, VISIBLE "wgmma.fence.sync.aligned;\n");
        for (int step = 0; step < p.steps; step++)
            add_mma(&t, &p, step, step > 0 ? "%yes" : "%no");
        add(&t, "wgmma.commit_group.sync.aligned;\nadd.u64 %%da, %%base, 0x%llx;\nadd.u64 %%db, %%base, 0x%llx;\n",
            (unsigned long long)descriptor(&p, false, E4M3, 64, 0, 0),
            (unsigned long long)descriptor(&p, false, E4M3, 16, B_OFFSET, 0));
        add(&t,
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%%d100, %%d101, %%d102, %%d103}, %%da, %%db, %%no, "
            "1, 1;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;\n"
            "mad.wide.u32 %%rd4, %%tid, 32, %%out;\nst.global.u32 [%%rd4], %%d0;\nwgmma.wait_group.sync.aligned 0;\n"
            "st.global.u32 [%%rd4], %%d100;\n");
        add_epilogue(&t, &p);
        ptx_run run = warpgroup(seed);
        RUN_OK(t.bytes, &run);
        check_product(&p, seed);
    }
}

/* 2^8 2^8 once (halves: 2^6 2^8) and 2^-6 2^-6 31 times: the small ones, 26 bits or more below, are lost with 25. */
static void test_narrow_sums(void **state) {
    (void)state;
    static text t;
    for (int half = 0; half < 2; half++)
        for (int bits = 0; bits <= 25; bits += 25) {
            const product p = {.n = 8, .steps = 1, .a = E4M3, .b = E4M3, .half = half, .swizzle = 32};
            memset(memory.in, 0x08, TILE_BYTES); /* 2^-6 */
            for (unsigned row = 0; row < 64; row++)
                put(memory.in, place(&p, false, E4M3, 64, row, 0), half ? 0x68 : 0x78, 1); /* 2^6, 2^8 */
            for (unsigned row = 0; row < 8; row++)
                put(memory.in, B_OFFSET + place(&p, false, E4M3, 8, row, 0), 0x78, 1);
            /* The last element of a row takes the sum between two halves: 2^14 + 2^3 (1 + 2^-11) without cuts. */
            for (unsigned row = 0; half && row < 64; row++)
                put(memory.in, place(&p, false, E4M3, 64, row, 31), 0x50, 1); /* 2^3 */
            for (unsigned row = 0; half && row < 8; row++)
                put(memory.in, B_OFFSET + place(&p, false, E4M3, 8, row, 31), 0x38, 1); /* 1 */
            t.used = 0;
            add_prologue(&t, TILE_WORDS);
            add(&t, VISIBLE "wgmma.fence.sync.aligned;\n");
            add_mma(&t, &p, 0, "%no");
            add(&t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
            add_epilogue(&t, &p);
            ptx_run run = warpgroup(base_seed);
            run.tensor_bits = bits;
            RUN_OK(t.bytes, &run);
            /* Halves near 2^14 are 16 apart: what is left is a tie. */
            const double wanted = half ? (bits ? 16384 : 16400) : bits ? 65536 : 65536.0078125;
            assert_true(element(&p, memory.out, 0, 0) == wanted && element(&p, memory.out, 63, 7) == wanted);
        }
}

/* As an H200 does it: 13 bits below the sum of two factors' exponents, 13 bits of fraction. */
static void test_hopper_sums(void **state) {
    (void)state;
    static const struct {
        uint8_t a[3], b[3];
        float hopper, thirteen; /* TENSOR_HOPPER, 13 bits */
    } cases[] = {
        {{0x3c, 0x3c, 0x04}, {0x3c, 0xbc, 0x08}, 0x1p-13f, 0x1p-13f}, /* 1.5 1.5 - 1.5 1.5 + 2^-7 2^-6 */
        {{0x3c, 0x3c, 0x04}, {0x3c, 0xbc, 0x04}, 0, 0},
        {{0x3c, 0x00, 0x04}, {0x3c, 0x00, 0x08}, 2.25f, 2.25f + 0x1p-13f},
        {{0x38, 0x00, 0x04}, {0x38, 0x00, 0x08}, 1 + 0x1p-13f, 1 + 0x1p-13f},
        /* 2^-7 counts as 2^-6, so that 2^-7 2^8 counts as 2^2: 2^-11 is kept, 2^-12 is not. */
        {{0x04, 0x84, 0x04}, {0x78, 0x78, 0x18}, 0x1p-11f, 0x1p-11f},
        {{0x04, 0x84, 0x04}, {0x78, 0x78, 0x10}, 0, 0},
    };
    const product p = {.n = 8, .steps = 1, .a = E4M3, .b = E4M3, .swizzle = 32};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (int hopper = 0; hopper < 2; hopper++) {
            static text t;
            memset(memory.in, 0, TILE_BYTES);
            for (unsigned k = 0; k < 3; k++) {
                for (unsigned row = 0; row < 64; row++)
                    put(memory.in, place(&p, false, E4M3, 64, row, k), cases[i].a[k], 1);
                for (unsigned row = 0; row < 8; row++)
                    put(memory.in, B_OFFSET + place(&p, false, E4M3, 8, row, k), cases[i].b[k], 1);
            }
            t.used = 0;
            add_prologue(&t, TILE_WORDS);
            add(&t, VISIBLE "wgmma.fence.sync.aligned;\n");
            add_mma(&t, &p, 0, "%no");
            add(&t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
            add_epilogue(&t, &p);
            ptx_run run = warpgroup(base_seed);
            run.tensor_bits = hopper ? TENSOR_HOPPER : 13;
            RUN_OK(t.bytes, &run);
            const double got = element(&p, memory.out, 63, 7);
            if (got != (double)(hopper ? cases[i].hopper : cases[i].thirteen))
                fail_msg("case %zu, hopper %d: %a", i, hopper, got);
        }
}

/* Rows of B that nobody wrote: only results that do not depend on them may be used. */
static void test_unwritten_rows(void **state) {
    (void)state;
    static text t;
    const product p = {.n = 64, .steps = 1, .a = E4M3, .b = E4M3, .swizzle = 32};
    for (int used = 32; used <= 33; used++) {
        uint64_t random = base_seed;
        fill_operands(&p, &random);
        t.used = 0;
        add_prologue(&t, (B_OFFSET + 32 * 32) / 4); /* 32 rows */
        add(&t, VISIBLE "wgmma.fence.sync.aligned;\n");
        add_mma(&t, &p, 0, "%no");
        add(&t,
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nadd.f32 %%d20, %%d20, %%d0;\n"
            "st.global.u32 [%%my_out], %%d%d;\nret;\n",
            used == 32 ? 15 : 16);
        ptx_run run = warpgroup(base_seed);
        if (used == 32)
            RUN_OK(t.bytes, &run);
        else
            RUN_FAULT(t.bytes, &run, "undefined");
    }
}

/* ---- Rows of B that are overwritten too early ---- */

/* A warpgroup multiplies, a fifth warp then writes to a row of B. `order`: whether flags, which order no memory, make
 * the write come after the result's use, or between the product and the use; or nothing does. */
typedef enum write_order { ANY_ORDER, WRITE_LAST, USE_LAST } write_order;

typedef struct early {
    const char *use; /* of the accumulators; d0 to d3: columns 0 to 7, d4 to d7: the others */
    int row;
    bool bulk;        /* written by a bulk copy, else by a store */
    bool waits_first; /* the stage is released after the product's end */
    bool is_bad;
} early;

#define SPIN(label, offset)                                                                                            \
    label ":\nld.volatile.shared.u32 %r13, [buffer+" offset "];\nsetp.eq.u32 %p4, %r13, 0;\n@%p4 bra " label ";\n"
#define ARRIVE "mbarrier.arrive.shared.b64 _, [buffer];\n"

static void early_body(text *t, const early *e, const product *p, write_order order) {
    const unsigned row = B_OFFSET + place(p, false, E4M3, 16, (unsigned)e->row, 0);
    t->used = 0;
    add_prologue(t, TILE_WORDS);
    add(t, "setp.ge.u32 %%p1, %%tid, 128;\nsetp.eq.u32 %%p2, %%tid, 0;\n@%%p2 mbarrier.init.shared.b64 [buffer], 128;\n"
           "@%%p2 mbarrier.init.shared.b64 [buffer+8], 1;\n@%%p2 st.shared.u32 [buffer+16], 0;\n"
           "@%%p2 st.shared.u32 [buffer+20], 0;\n" VISIBLE "@%%p1 bra WRITER;\nwgmma.fence.sync.aligned;\n");
    add_mma(t, p, 0, "%no");
    add(t, "wgmma.commit_group.sync.aligned;\n%swgmma.wait_group.sync.aligned 0;\n%s", e->waits_first ? "" : ARRIVE,
        e->waits_first ? ARRIVE : "");
    if (order == USE_LAST)
        add(t, "%s", SPIN("WAIT_WRITTEN", "20"));
    add(t, "%s%sret;\n", e->use,
        order == WRITE_LAST ? "bar.sync 1, 128;\n@%p2 st.volatile.shared.u32 [buffer+16], 1;\n" : "");
    add(t, "WRITER:\nmbarrier.try_wait.parity.shared.b64 %%p3, [buffer], 0;\n@!%%p3 bra WRITER;\n"
           "setp.ne.u32 %%p3, %%tid, 128;\n@%%p3 bra END;\n");
    if (order == WRITE_LAST)
        add(t, "%s", SPIN("WAIT_USED", "16"));
    if (e->bulk)
        add(t,
            "mbarrier.arrive.expect_tx.shared.b64 _, [buffer+8], 32;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+%u], [%%in], 32, [buffer+8];\n"
            "COPIED:\nmbarrier.try_wait.parity.shared.b64 %%p3, [buffer+8], 0;\n@!%%p3 bra COPIED;\n",
            row / 32 * 32);
    else
        add(t, "st.shared.u32 [tile+%u], 7;\n", row);
    add(t, "st.volatile.shared.u32 [buffer+20], 1;\nEND:\nret;\n");
}

static void test_early_release(void **state) {
    (void)state;
#define STORE(value) "st.global.u32 [%my_out], " value ";\n"
    static const early cases[] = {
        {STORE("%d4"), 8, false, false, true},
        {STORE("%d4"), 8, true, false, true},
        {STORE("%d4"), 8, true, true, false}, /* the good one */
        {STORE("%d4"), 8, false, true, false},
        {STORE("%d0"), 8, false, false, false}, /* a column that nobody uses */
        {STORE("%d0"), 8, true, false, false},
        {STORE("%d4"), 9, false, false, false}, /* d4: columns 8, 10, 12, 14 */
        {STORE("%d5"), 9, false, false, true},
        {"setp.lt.f32 %p5, %d4, 0f00000000;\n@%p5 bra USED;\n" STORE("%tid") "USED:\n", 8, false, false, true},
        /* Sums of columns, by lanes and over lanes: of 0 to 7, and of 8 and 9. */
        {"add.f32 %d8, %d0, %d1;\nshfl.sync.bfly.b32 %d9, %d8, 1, 31, -1;\nadd.f32 %d8, %d8, %d9;\n"
         "shfl.sync.bfly.b32 %d9, %d8, 2, 31, -1;\nadd.f32 %d8, %d8, %d9;\n" STORE("%d8"),
         8, false, false, false},
        {"add.f32 %d8, %d4, %d5;\nshfl.sync.bfly.b32 %d9, %d8, 1, 31, -1;\nmax.f32 %d8, %d8, %d9;\n" STORE("%d8"), 14,
         false, false, true},
        /* Selected, or not. */
        {"setp.eq.u32 %p5, 0, 0;\nselp.f32 %d8, %d0, %d4, %p5;\n" STORE("%d8"), 8, false, false, false},
        {"setp.eq.u32 %p5, 0, 0;\nselp.f32 %d8, %d4, %d0, %p5;\n" STORE("%d8"), 8, false, false, true},
        {"add.f32 %d4, %d4, %d4;\nmov.b32 %d4, 0;\n" STORE("%d4"), 8, false, false, false},
    };
    static text t;
    const product p = {.n = 16, .steps = 1, .a = E4M3, .b = E4M3, .swizzle = 32};
    uint64_t random = base_seed;
    fill_operands(&p, &random);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (int order = ANY_ORDER; order <= USE_LAST; order++) {
            early_body(&t, &cases[i], &p, (write_order)order);
            for (uint64_t seed = base_seed; seed < base_seed + 8; seed++) {
                ptx_run run = warpgroup(seed);
                run.block.x = 160;
                const bool clean = run_ptx(t.bytes, &run);
                if (clean == cases[i].is_bad)
                    fail_msg("case %zu, order %d, seed %llu: %s", i, order, (unsigned long long)seed,
                             clean ? "nothing reported" : run.fault);
                const char *part = order == WRITE_LAST ? "an access that reads them" : "";
                if (!clean && strstr(run.fault, part) == NULL)
                    fail_msg("case %zu, order %d: \"%s\" not in: %s", i, order, part, run.fault);
            }
        }
    }
}

/* ---- Known bad ---- */

#define MMA    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%d0, %d1, %d2, %d3}, %da, %db, %no, 1, 1;\n"
#define NEXT   "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%d0, %d1, %d2, %d3}, %da, %db, %yes, 1, 1;\n"
#define FENCE  "wgmma.fence.sync.aligned;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define DRAIN  "wgmma.wait_group.sync.aligned 0;\n"
#define USE    "st.global.u32 [%my_out], %d0;\nret;\n"

static void test_known_bad(void **state) {
    (void)state;
    static const struct {
        const char *body, *report;
        unsigned threads;
        int words;
    } cases[] = {
        {VISIBLE FENCE MMA COMMIT DRAIN USE, NULL, 128, TILE_WORDS}, /* the good one */
        {VISIBLE MMA COMMIT DRAIN USE, "no wgmma.fence", 128, TILE_WORDS},
        {VISIBLE FENCE MMA COMMIT USE, "still owns", 128, TILE_WORDS},
        {VISIBLE FENCE MMA COMMIT "mov.b32 %d1, 0;\n" DRAIN USE, "still owns", 128, TILE_WORDS},
        {VISIBLE FENCE MMA DRAIN USE, "still owns", 128, TILE_WORDS}, /* not committed */
        {VISIBLE FENCE MMA COMMIT DRAIN "add.f32 %d2, %d2, %d2;\n" NEXT COMMIT DRAIN USE, "without a wgmma.fence", 128,
         TILE_WORDS},
        {VISIBLE FENCE MMA COMMIT DRAIN NEXT COMMIT DRAIN USE, NULL, 128, TILE_WORDS}, /* untouched accumulators */
        {VISIBLE FENCE MMA COMMIT DRAIN MMA COMMIT DRAIN USE, "without a wgmma.fence", 128, TILE_WORDS},
        {"bar.sync 0;\n" FENCE MMA COMMIT DRAIN USE, "without fence.proxy.async", 128, TILE_WORDS},
        {VISIBLE FENCE MMA COMMIT DRAIN USE, "not all of which have been written", 128, 256},
        {VISIBLE FENCE MMA COMMIT DRAIN USE, "not in a complete warpgroup", 96, TILE_WORDS},
        {VISIBLE FENCE MMA "ret;\n", "without waiting for this product", 128, TILE_WORDS},
        {VISIBLE FENCE "setp.lt.u32 %p1, %tid, 32;\n@%p1 add.u64 %db, %db, 2;\n" MMA COMMIT DRAIN USE,
         "do not issue the same wgmma", 128, TILE_WORDS},
        {VISIBLE FENCE "setp.eq.u32 %p1, %tid, 70;\n@%p1 add.u64 %db, %db, 2;\n" MMA COMMIT DRAIN USE, "in this lane",
         128, TILE_WORDS},
        {VISIBLE FENCE "or.b64 %da, %da, 0x2000000000000;\n" MMA COMMIT DRAIN USE, "base offsets", 128, TILE_WORDS},
        {VISIBLE FENCE "or.b64 %da, %da, 0x8000;\n" MMA COMMIT DRAIN USE, "reserved bits", 128, TILE_WORDS},
        {VISIBLE FENCE "add.u64 %da, %da, 8;\n" MMA COMMIT DRAIN USE, "swizzle pattern", 128, TILE_WORDS},
        {VISIBLE FENCE "add.u64 %db, %db, 2816;\n" MMA COMMIT DRAIN USE, "reaches shared offset", 128, TILE_WORDS},
        {VISIBLE FENCE "setp.lt.u32 %p1, %tid, 32;\n@%p1 bra OTHER;\n" MMA COMMIT DRAIN "OTHER:\nret;\n", "deadlock",
         128, TILE_WORDS},
    };
    static text t;
    const product p = {.n = 8, .steps = 4, .a = E4M3, .b = E4M3, .swizzle = 128};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t random = base_seed;
        fill_operands(&p, &random);
        t.used = 0;
        add_prologue(&t, cases[i].words);
        add(&t, "add.u64 %%da, %%base, 0x%llx;\nadd.u64 %%db, %%base, 0x%llx;\n",
            (unsigned long long)descriptor(&p, false, E4M3, 64, 0, 0),
            (unsigned long long)descriptor(&p, false, E4M3, 8, B_OFFSET, 0));
        add(&t, "%s", cases[i].body);
        ptx_run run = warpgroup(base_seed + i);
        run.block.x = cases[i].threads;
        if (cases[i].report == NULL)
            RUN_OK(t.bytes, &run);
        else
            RUN_FAULT(t.bytes, &run, cases[i].report);
    }
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8),           cmocka_unit_test(test_fp8_from_registers_and_unswizzled),
        cmocka_unit_test(test_16_bit),        cmocka_unit_test(test_tf32_and_integers),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_narrow_sums),
        cmocka_unit_test(test_hopper_sums),   cmocka_unit_test(test_unwritten_rows),
        cmocka_unit_test(test_early_release), cmocka_unit_test(test_known_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
