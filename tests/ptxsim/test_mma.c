/* SPDX-License-Identifier: MIT
 *
 * mma.sync: every form with random operands against the PTX ISA's tables of fragments, written here as they stand there
 * (by element, not by register); single elements by hand; scale factors; undefined operands; refusals. */
#include <math.h>
#include <time.h>

#include "run_ptx.h"
#include "tensor_sum.h"

static uint64_t base_seed;

enum { WARP = 32, MAX_K = 64, IN_WORDS = WARP * 12, OUT_WORDS = WARP * 4 };

static uint32_t in[IN_WORDS]; /* per lane: A 0-3, B 4-5, C 6-9, scales of A 10 and B 11 */
static uint32_t out[OUT_WORDS];

typedef struct number {
    const char *name;
    int bits, place, low; /* of a code; of its place in a register, and where it lies in it */
    int fraction, bias;   /* bias -1: unsigned integer, -2: signed */
} number;

static const number numbers[] = {
    {"f16", 16, 16, 0, 10, 15}, {"bf16", 16, 16, 0, 7, 127}, {"tf32", 19, 32, 13, 10, 127}, {"e4m3", 8, 8, 0, 3, 7},
    {"e5m2", 8, 8, 0, 2, 15},   {"e2m3", 6, 8, 0, 3, 1},     {"e3m2", 6, 8, 0, 2, 3},       {"e2m1", 4, 8, 2, 1, 1},
    {"e2m1", 4, 4, 0, 1, 1},    {"u8", 8, 8, 0, 0, -1},      {"s8", 8, 8, 0, 0, -2},        {"u4", 4, 4, 0, 0, -1},
    {"s4", 4, 4, 0, 0, -2},
};

static const number *number_named(const char *name, int place) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0 && (place == 0 || numbers[i].place == place))
            return &numbers[i];
    fail_msg("%s", name);
    return NULL;
}

static double value_of(const number *n, uint32_t code) {
    code &= (1u << n->bits) - 1;
    if (n->bias == -1)
        return code;
    if (n->bias == -2)
        return code >> (n->bits - 1) ? (double)code - (1 << n->bits) : code;
    const int exponent_bits = n->bits - 1 - n->fraction;
    const int exponent = (int)(code >> n->fraction) & ((1 << exponent_bits) - 1);
    const double fraction = code & ((1u << n->fraction) - 1);
    const double size = exponent ? ldexp(fraction + (1 << n->fraction), exponent - n->bias - n->fraction)
                                 : ldexp(fraction, 1 - n->bias - n->fraction);
    return code >> (n->bits - 1) ? -size : size;
}

/* A random code whose products with others are added without a rounding in binary64: exponents in the middle, and no
 * infinities. */
static uint32_t random_code(const number *n, uint64_t *state) {
    uint32_t code = test_random(state) & ((1u << n->bits) - 1);
    if (n->bias >= 15) {
        const uint32_t exponent = (uint32_t)n->bias - 6 + test_random(state) % 12;
        const uint32_t sign = code >> (n->bits - 1) << (n->bits - 1);
        code = sign | exponent << n->fraction | (code & ((1u << n->fraction) - 1));
    } else if (strcmp(n->name, "e4m3") == 0 && (code & 0x7f) == 0x7f) {
        code ^= 1; /* NaN */
    }
    return code;
}

/* ---- Fragments, from the tables of "Matrix Fragments for mma.m16n8kK" ---- */

/* Of element i of A, with elements of `place` bits. */
static void element_of_a(int k, int place, int lane, int i, int *row, int *column) {
    const int group = lane >> 2, thread = lane % 4;
    if (place == 32) { /* .tf32, m16n8k4 and m16n8k8: a0 to a3 */
        *row = i == 0 || i == 2 ? group : group + 8;
        *column = i < 2 ? thread : thread + 4;
    } else if (place == 16 && k == 8) {
        *row = i < 2 ? group : group + 8;
        *column = thread * 2 + (i & 1);
    } else if (place == 16) {
        *row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
        *column = i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
    } else if (place == 8 && k == 16) {
        *row = i < 4 ? group : group + 8;
        *column = thread * 4 + (i & 3);
    } else if (place == 8) {
        *row = (i >= 0 && i < 4) || (i >= 8 && i < 12) ? group : group + 8;
        *column = i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
    } else if (k == 32) { /* 4 bits */
        *row = i < 8 ? group : group + 8;
        *column = thread * 8 + (i & 7);
    } else {
        *row = (i >= 0 && i < 8) || (i >= 16 && i < 24) ? group : group + 8;
        *column = i < 16 ? thread * 8 + (i & 7) : thread * 8 + (i & 7) + 32;
    }
}

static void element_of_b(int place, int lane, int i, int *row, int *column) {
    const int group = lane >> 2, thread = lane % 4;
    *column = group;
    if (place == 32)
        *row = i == 0 ? thread : thread + 4;
    else if (place == 16)
        *row = i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
    else if (place == 8)
        *row = i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
    else
        *row = i < 8 ? thread * 8 + (i & 7) : thread * 8 + (i & 7) + 32;
}

static void element_of_c(int lane, int i, int *row, int *column) {
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *column = lane % 4 * 2 + (i & 1);
}

/* ---- Forms ---- */

typedef struct form {
    const char *target, *name; /* with %s for the types of D, A, B and C */
    int k;
    const char *sum, *a, *b;
    int place;
    int blocks; /* scale factors along K, 0: none */
    const char *scales;
} form;

#define PLAIN(k)      "mma.sync.aligned.m16n8k" #k ".row.col.%s.%s.%s.%s"
#define KIND(k, kind) "mma.sync.aligned.m16n8k" #k ".row.col.kind::" kind ".%s.%s.%s.%s"
#define SCALED(k, kind, vec, type)                                                                                     \
    "mma.sync.aligned.m16n8k" #k ".row.col.kind::" kind ".block_scale" vec ".%s.%s.%s.%s." type

static const form forms[] = {
    {"sm_80", PLAIN(8), 8, "f32", "f16", "f16", 16, 0, NULL},
    {"sm_80", PLAIN(8), 8, "f16", "f16", "f16", 16, 0, NULL},
    {"sm_80", PLAIN(16), 16, "f32", "f16", "f16", 16, 0, NULL},
    {"sm_80", PLAIN(16), 16, "f16", "f16", "f16", 16, 0, NULL},
    {"sm_80", PLAIN(8), 8, "f32", "bf16", "bf16", 16, 0, NULL},
    {"sm_80", PLAIN(16), 16, "f32", "bf16", "bf16", 16, 0, NULL},
    {"sm_80", PLAIN(4), 4, "f32", "tf32", "tf32", 32, 0, NULL},
    {"sm_80", PLAIN(8), 8, "f32", "tf32", "tf32", 32, 0, NULL},
    {"sm_80", PLAIN(16), 16, "s32", "s8", "u8", 8, 0, NULL},
    {"sm_80", PLAIN(32), 32, "s32", "u8", "s8", 8, 0, NULL},
    {"sm_80", PLAIN(32), 32, "s32", "s4", "u4", 4, 0, NULL},
    {"sm_80", PLAIN(64), 64, "s32", "u4", "s4", 4, 0, NULL},
    {"sm_89", PLAIN(16), 16, "f32", "e4m3", "e5m2", 8, 0, NULL},
    {"sm_89", PLAIN(16), 16, "f16", "e5m2", "e4m3", 8, 0, NULL},
    {"sm_89", PLAIN(32), 32, "f32", "e4m3", "e4m3", 8, 0, NULL},
    {"sm_90a", PLAIN(32), 32, "f16", "e5m2", "e5m2", 8, 0, NULL},
    {"sm_120a", KIND(32, "f8f6f4"), 32, "f32", "e2m1", "e3m2", 8, 0, NULL},
    {"sm_120a", KIND(32, "f8f6f4"), 32, "f16", "e2m3", "e2m1", 8, 0, NULL},
    {"sm_121a", KIND(32, "f8f6f4"), 32, "f32", "e4m3", "e2m3", 8, 0, NULL},
    {"sm_120a", SCALED(32, "mxf8f6f4", ".scale_vec::1X", "ue8m0"), 32, "f32", "e4m3", "e2m1", 8, 1, "ue8m0"},
    {"sm_120f", SCALED(32, "mxf8f6f4", "", "ue8m0"), 32, "f32", "e3m2", "e5m2", 8, 1, "ue8m0"},
    {"sm_120a", SCALED(64, "mxf4", ".scale_vec::2X", "ue8m0"), 64, "f32", "e2m1", "e2m1", 4, 2, "ue8m0"},
    {"sm_121a", SCALED(64, "mxf4", "", "ue8m0"), 64, "f32", "e2m1", "e2m1", 4, 2, "ue8m0"},
    {"sm_120a", SCALED(64, "mxf4nvf4", ".scale_vec::2X", "ue8m0"), 64, "f32", "e2m1", "e2m1", 4, 2, "ue8m0"},
    {"sm_120a", SCALED(64, "mxf4nvf4", ".scale_vec::4X", "ue4m3"), 64, "f32", "e2m1", "e2m1", 4, 4, "ue4m3"},
};

/* Registers %r10-13 A, %r14-15 B, %r16-19 C, %r20-21 scales, %r22-25 D. */
static void list(char *text, size_t size, int first, int count) {
    size_t used = (size_t)snprintf(text, size, "{");
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%%r%d", i ? "," : "", first + i);
    snprintf(text + used, size - used, "}");
}

static const char *const LOAD = "mad.wide.u32 %rd0, %tid, 48, %in;\n"
                                "ld.global.v4.b32 {%r10,%r11,%r12,%r13}, [%rd0];\n"
                                "ld.global.v4.b32 {%r14,%r15,%r16,%r17}, [%rd0+16];\n"
                                "ld.global.v4.b32 {%r18,%r19,%r20,%r21}, [%rd0+32];\n";
static const char *const STORE = "mad.wide.u32 %rd1, %tid, 16, %out;\n"
                                 "st.global.v4.b32 [%rd1], {%r22,%r23,%r24,%r25};\nret;\n";

typedef struct selectors {
    int a_byte, a_thread, b_byte, b_thread;
    bool braces; /* around the registers of scale factors */
} selectors;

static void body_of(const form *f, const selectors *s, char *text, size_t size) {
    char name[200], a[64], b[64], c[64], d[64], scales[120] = "";
    const int sums = strcmp(f->sum, "f16") == 0 ? 2 : 4;
    snprintf(name, sizeof name, f->name, f->sum, f->a, f->b, f->sum);
    list(a, sizeof a, 10, f->k * f->place / 64);
    list(b, sizeof b, 14, f->k * f->place / 128);
    list(c, sizeof c, 16, sums);
    list(d, sizeof d, 22, sums);
    if (f->blocks)
        snprintf(scales, sizeof scales,
                 s->braces ? ", {%%r20}, {%d,%d}, {%%r21}, {%d,%d}" : ", %%r20, {%d,%d}, %%r21, {%d,%d}", s->a_byte,
                 s->a_thread, s->b_byte, s->b_thread);
    snprintf(text, size, "%smov.b32 %%r24, 0;\nmov.b32 %%r25, 0;\n%s %s, %s, %s, %s%s;\n%s", LOAD, name, d, a, b, c,
             scales, STORE);
}

static double scale_of(const form *f, uint32_t code) {
    return strcmp(f->scales, "ue8m0") == 0 ? ldexp(1, (int)code - 127) : value_of(number_named("e4m3", 8), code & 0x7f);
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* An f16 from a double, to nearest even: by search, as the codes of positive numbers are ordered. */
static uint32_t f16_of(double value) {
    const number *f16 = number_named("f16", 16);
    uint32_t low = 0, high = 0x7bff;
    const double size = fabs(value);
    if (size >= 65520)
        return (value < 0 ? 0x8000u : 0) | 0x7c00;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (value_of(f16, middle) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    const double down = size - value_of(f16, low), up = (low == 0x7bff ? 65536 : value_of(f16, low + 1)) - size;
    if (up < down || (up == down && (low & 1)))
        low++;
    return (value < 0 ? 0x8000u : 0) | low;
}

static void check_form(const form *f, uint64_t seed) {
    uint64_t state = seed;
    const number *na = number_named(f->a, f->place), *nb = number_named(f->b, f->place);
    const int of_a = f->k * 16 / WARP, of_b = f->k * 8 / WARP;
    const bool half = strcmp(f->sum, "f16") == 0, whole = strcmp(f->sum, "s32") == 0;
    double a[16][MAX_K], b[MAX_K][8], c[16][8];
    const selectors s = {f->blocks ? (int)(test_random(&state) % 4) / f->blocks * f->blocks : 0,
                         (int)(test_random(&state) % 2),
                         f->blocks ? (int)(test_random(&state) % 4) / f->blocks * f->blocks : 0,
                         (int)(test_random(&state) % 4), seed % 2 != 0};
    for (size_t i = 0; i < IN_WORDS; i++)
        in[i] = test_random(&state); /* also in places that are not used */
    for (int lane = 0; lane < WARP; lane++) {
        uint32_t *words = in + lane * 12;
        int row, column;
        for (int i = 0; i < of_a; i++) {
            const uint32_t code = random_code(na, &state);
            const int bit = i * na->place % 32;
            const uint32_t mask = ((1u << na->bits) - 1) << na->low << bit;
            words[i * na->place / 32] = (words[i * na->place / 32] & ~mask) | code << na->low << bit;
            element_of_a(f->k, na->place, lane, i, &row, &column);
            a[row][column] = value_of(na, code);
        }
        for (int i = 0; i < of_b; i++) {
            const uint32_t code = random_code(nb, &state);
            const int bit = i * nb->place % 32;
            const uint32_t mask = ((1u << nb->bits) - 1) << nb->low << bit;
            words[4 + i * nb->place / 32] = (words[4 + i * nb->place / 32] & ~mask) | code << nb->low << bit;
            element_of_b(nb->place, lane, i, &row, &column);
            b[row][column] = value_of(nb, code);
        }
        for (int i = 0; i < 4; i++) {
            const double value = (double)(int32_t)(test_random(&state) % 20001) - 10000;
            element_of_c(lane, i, &row, &column);
            c[row][column] = whole ? value : value / 16;
            if (whole) {
                words[6 + i] = (uint32_t)(int32_t)value;
            } else if (half) {
                const uint32_t code = f16_of(c[row][column]);
                c[row][column] = value_of(number_named("f16", 16), code);
                words[6 + i / 2] = i % 2 ? words[6 + i / 2] | code << 16 : code;
            } else {
                words[6 + i] = bits_of((float)c[row][column]);
            }
        }
        for (int i = 0; f->blocks && i < 4; i++)
            for (int which = 10; which < 12; which++) {
                const uint32_t code =
                    strcmp(f->scales, "ue8m0") == 0 ? 120 + test_random(&state) % 14 : test_random(&state) % 127;
                words[which] = (words[which] & ~(0xffu << 8 * i)) | code << 8 * i;
            }
    }
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < f->k; k++) {
                double scale = 1;
                if (f->blocks) {
                    const int block = k / (f->k / f->blocks);
                    const uint32_t *of_row = in + (4 * (m % 8) + 2 * s.a_thread + m / 8) * 12;
                    const uint32_t *of_column = in + (4 * n + s.b_thread) * 12;
                    scale = scale_of(f, of_row[10] >> 8 * (s.a_byte + block) & 0xff) *
                            scale_of(f, of_column[11] >> 8 * (s.b_byte + block) & 0xff);
                }
                c[m][n] += a[m][k] * b[k][n] * scale;
            }
    char body[1600];
    body_of(f, &s, body, sizeof body);
    ptx_run run = {.grid = {1, 1, 1},
                   .block = {WARP, 1, 1},
                   .seed = seed,
                   .target = f->target,
                   .in = in,
                   .in_words = IN_WORDS,
                   .out = out,
                   .out_words = OUT_WORDS};
    RUN_OK(body, &run);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            int row, column;
            element_of_c(lane, i, &row, &column);
            const uint32_t got = half ? out[lane * 4 + i / 2] >> 16 * (i % 2) & 0xffff : out[lane * 4 + i];
            const uint32_t want = half    ? f16_of(c[row][column])
                                  : whole ? (uint32_t)(int32_t)c[row][column]
                                          : bits_of((float)c[row][column]);
            if (got != want && !((got | want) == 0x80000000 && !whole))
                fail_msg("%s of %s, %s, %s: row %d, column %d: got %#x (%g), expected %#x (%.17g)", f->name, f->sum,
                         f->a, f->b, row, column, got, (double)float_of(got), want, c[row][column]);
        }
}

static void test_forms(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (uint64_t round = 0; round < 8; round++)
            check_form(&forms[i], base_seed + 1000 * i + round);
}

/* ---- By hand ---- */

static void run_form(const form *f, const selectors *s, int tensor_bits) {
    char body[1600];
    body_of(f, s, body, sizeof body);
    ptx_run run = {.grid = {1, 1, 1},
                   .block = {WARP, 1, 1},
                   .seed = 1,
                   .target = f->target,
                   .tensor_bits = tensor_bits,
                   .in = in,
                   .in_words = IN_WORDS,
                   .out = out,
                   .out_words = OUT_WORDS};
    RUN_OK(body, &run);
}

/* One element of A times one of B: e4m3 1.5 (0x3c) at row 10, column 22 and -2 (0xc0) at row 22, column 5, on 0.25. Row
 * 10 is group 2's second row; column 22 its second half's place 1, byte 2: lane 9, register 3. Row 22 of B: place 1,
 * second register, byte 2; column 5: group 5: lane 21. D: row 10, column 5: group 2, place 2: lane 10, c3. */
static void test_one_element(void **unused) {
    (void)unused;
    static const form e4m3 = {"sm_89", PLAIN(32), 32, "f32", "e4m3", "e4m3", 8, 0, NULL};
    memset(in, 0, sizeof in);
    in[9 * 12 + 3] = 0x3cu << 16;
    in[21 * 12 + 5] = 0xc0u << 16;
    in[10 * 12 + 9] = bits_of(0.25f);
    run_form(&e4m3, &(selectors){0}, 0);
    for (int i = 0; i < OUT_WORDS; i++)
        assert_int_equal(out[i], i == 10 * 4 + 3 ? bits_of(-2.75f) : 0);
}

/* 2^11 + 2^-13 is no f32: rounded once, to nearest even; a narrow unit of 13 bits does not see the small term at all.
 */
static void test_sum_width(void **unused) {
    (void)unused;
    static const form f16 = {"sm_80", PLAIN(16), 16, "f32", "f16", "f16", 16, 0, NULL};
    memset(in, 0, sizeof in);
    in[0] = 0x3c00 | 0x3c00u << 16; /* A: row 0, columns 0 and 1: 1 */
    in[4] = 0x6800 | 0x1000u << 16; /* B: rows 0 and 1 of column 0: 2^11, 2^-11 */
    run_form(&f16, &(selectors){0}, 0);
    assert_int_equal(out[0], bits_of(2048.00048828125f));
    run_form(&f16, &(selectors){0}, 13);
    assert_int_equal(out[0], bits_of(2048.0f));
    in[6] = bits_of(-2048.0f);
    run_form(&f16, &(selectors){0}, 0);
    assert_int_equal(out[0], bits_of(0x1p-11f));
    run_form(&f16, &(selectors){0}, 22);
    assert_int_equal(out[0], bits_of(0x1p-11f));
    run_form(&f16, &(selectors){0}, 21);
    assert_int_equal(out[0], 0);
}

/* As an H200 does it: the exponents of factors count, products of 8-bit types are made in two steps, and their C comes
 * last. */
static void test_hopper_sums(void **unused) {
    (void)unused;
    static const form f16 = {"sm_80", PLAIN(16), 16, "f32", "f16", "f16", 16, 0, NULL};
    static const form e4m3 = {"sm_89", PLAIN(32), 32, "f32", "e4m3", "e4m3", 8, 0, NULL};
    static const form half = {"sm_89", PLAIN(32), 32, "f16", "e4m3", "e4m3", 8, 0, NULL};
    memset(in, 0, sizeof in);
    in[0] = 0x3e00 | 0x3e00u << 16; /* A: row 0, columns 0 and 1: 1.5 */
    in[4] = 0x3e00 | 0xbe00u << 16; /* B: column 0, rows 0 and 1: 1.5, -1.5: 2.25 counts as 2^0 */
    in[2] = 0x0800;                 /* 2^-13, times 2^-12, then 2^-13 */
    in[5] = 0x0c00;
    run_form(&f16, &(selectors){0}, TENSOR_HOPPER);
    assert_int_equal(out[0], bits_of(0x1p-25f));
    in[5] = 0x0800;
    run_form(&f16, &(selectors){0}, TENSOR_HOPPER);
    assert_int_equal(out[0], 0);
    memset(in, 0, sizeof in);
    in[0] = 0x00f81878; /* 2^8, 2^-4, -2^8; 2^16 + 2^-8 is cut to an f32 before the rest is added */
    in[4] = 0x00781878;
    run_form(&e4m3, &(selectors){0}, TENSOR_HOPPER);
    assert_int_equal(out[0], 0);
    run_form(&e4m3, &(selectors){0}, TENSOR_HOPPER_BITS);
    assert_int_equal(out[0], bits_of(0x1p-8f));
    in[0] = 0x3c; /* 3 is added to 2^24, where numbers are 2 apart */
    in[4] = 0x40;
    in[6] = bits_of(0x1p24f);
    run_form(&e4m3, &(selectors){0}, TENSOR_HOPPER);
    assert_int_equal(out[0], bits_of(0x1p24f + 4));
    run_form(&e4m3, &(selectors){0}, TENSOR_HOPPER_BITS);
    assert_int_equal(out[0], bits_of(0x1p24f + 2));
    in[0] = 0x00003878; /* 2^11 + 1 is a tie of halves, and even; 0.5 more would not be */
    in[4] = 0x00003850;
    in[6] = 0x3800;
    run_form(&half, &(selectors){0}, TENSOR_HOPPER);
    assert_int_equal(out[0], 0x6800);
    run_form(&half, &(selectors){0}, TENSOR_HOPPER_BITS);
    assert_int_equal(out[0], 0x6801);
}

static void test_special_values(void **unused) {
    (void)unused;
    static const form e5m2 = {"sm_89", PLAIN(32), 32, "f32", "e5m2", "e4m3", 8, 0, NULL};
    static const form mx = {"sm_120a", SCALED(32, "mxf8f6f4", "", "ue8m0"), 32, "f32", "e4m3", "e4m3", 8, 1, "ue8m0"};
    static const form tf32 = {"sm_80", PLAIN(8), 8, "f32", "tf32", "tf32", 32, 0, NULL};
    memset(in, 0, sizeof in);
    in[0] = 0x7c; /* infinity at row 0, column 0 */
    in[4] = 0x38; /* 1 at row 0, column 0: infinity; other columns: infinity times 0 */
    run_form(&e5m2, &(selectors){0}, 0);
    assert_int_equal(out[0], 0x7f800000);
    assert_int_equal(out[1], 0x7fffffff);
    memset(in, 0, sizeof in);
    in[0] = 0x38;
    in[4] = 0x38;
    in[10] = 0xff; /* the scale factor of row 0 is NaN */
    in[11] = 127;
    run_form(&mx, &(selectors){0}, 0);
    assert_int_equal(out[0], 0x7fffffff);
    in[10] = 130; /* 2^3; that of column 0, from lane 3, byte 1: 2^-2 */
    in[3 * 12 + 11] = 125 << 8;
    run_form(&mx, &(selectors){.b_byte = 1, .b_thread = 3}, 0);
    assert_int_equal(out[0], bits_of(2.0f));
    memset(in, 0, sizeof in);
    in[0] = bits_of(1.0f) | 0x1fff; /* the lower 13 bits of a tf32 are not used */
    in[4] = bits_of(3.0f);
    run_form(&tf32, &(selectors){0}, 0);
    assert_int_equal(out[0], bits_of(3.0f));
}

static void test_saturation(void **unused) {
    (void)unused;
    const char *body =
        "mov.b32 %r1, 0x7f7f7f7f;\nmov.b32 %r2, 0x7ffffff0;\n"
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%r3,%r4,%r5,%r6}, {%r1,%r1,%r1,%r1}, "
        "{%r1,%r1}, {%r2,%r2,%r2,%r2};\n"
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r7,%r8,%r9,%r10}, {%r1,%r1,%r1,%r1}, "
        "{%r1,%r1}, {%r2,%r2,%r2,%r2};\n"
        "st.global.b32 [%my_out], %r3;\nst.global.b32 [%my_out+128], %r7;\nret;\n";
    ptx_run run = {.grid = {1, 1, 1}, .block = {WARP, 1, 1}, .seed = 1, .out = out, .out_words = OUT_WORDS};
    RUN_OK(body, &run);
    assert_int_equal(out[5], INT32_MAX);
    assert_int_equal(out[32 + 5], 0x7ffffff0u + 32 * 127 * 127);
}

/* ---- What is undefined stays within its rows and columns ---- */

static void test_undefined(void **unused) {
    (void)unused;
#define HEAD                                                                                                           \
    "mov.b32 %r1, 0;\nsetp.ne.u32 %p1, %tid, 9;\n@%p1 mov.b32 %r2, 0;\n" /* lane 9: row 2, or column 2 */              \
    "mov.b32 %r20, 127;\nsetp.ne.u32 %p2, %tid, 6;\n@%p2 mov.b32 %r21, 127;\n"
#define MMA(a, b, c)                                                                                                   \
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r3,%r4,%r5,%r6}, {" a ",%r1,%r1,%r1}, {" b ",%r1}, "          \
    "{" c ",%r1,%r1,%r1};\n"
#define STORE_BUT(lanes, value) "setp.eq.u32 %p3, %tid, " lanes ";\n@!%p3 st.global.b32 [%my_out], " value ";\nret;\n"
    static const struct {
        const char *body, *fault;
    } cases[] = {
        {HEAD MMA("%r2", "%r1", "%r1") "setp.ge.u32 %p3, %tid, 8;\nsetp.lt.and.u32 %p3, %tid, 12, %p3;\n"
                                       "@!%p3 st.global.b32 [%my_out], %r3;\nst.global.b32 [%my_out], %r5;\nret;\n",
         NULL},
        {HEAD MMA("%r2", "%r1", "%r1") "st.global.b32 [%my_out], %r3;\nret;\n", "is undefined"},
        {HEAD MMA("%r1", "%r2", "%r1") "st.global.b32 [%my_out], %r4;\nret;\n", NULL}, /* column 2: place 1, first */
        {HEAD MMA("%r1", "%r2", "%r1") "st.global.b32 [%my_out], %r3;\nret;\n", "is undefined"},
        {HEAD MMA("%r1", "%r1", "%r2") STORE_BUT("9", "%r3"), NULL},
        {HEAD MMA("%r1", "%r1", "%r2") STORE_BUT("8", "%r3"), "is undefined"},
        {HEAD MMA("%r1", "%r1", "%r2") MMA("%r1", "%r1", "%r3") STORE_BUT("8", "%r3"), "is undefined"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ptx_run run = {.grid = {1, 1, 1}, .block = {WARP, 1, 1}, .seed = i, .out = out, .out_words = OUT_WORDS};
        if (cases[i].fault)
            RUN_FAULT(cases[i].body, &run, cases[i].fault);
        else
            RUN_OK(cases[i].body, &run);
    }
    /* A scale factor of row 8 + 1 = 9 (lane 5 has row 1 + 8) is not defined in lane 6, which is not asked. */
    const char *scaled =
        HEAD "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 {%r3,%r4,%r5,%r6}, "
             "{%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1,%r1,%r1}, %r21, {2,0}, %r20, {0,0};\nst.global.b32 [%my_out], "
             "%r5;\nret;\n";
    ptx_run run = {
        .grid = {1, 1, 1}, .block = {WARP, 1, 1}, .seed = 1, .target = "sm_120a", .out = out, .out_words = OUT_WORDS};
    RUN_OK(scaled, &run);
}

/* ---- Refusals ---- */

#define REGISTERS " {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1,%r1,%r1}"
static void test_refused(void **unused) {
    (void)unused;
    static const ptx_refused cases[] = {
        {"sm_80", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" REGISTERS, "needs sm_89 or newer"},
        {"sm_120", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32" REGISTERS, "needs sm_120f"},
        {"sm_100a", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32" REGISTERS, "needs sm_120f"},
        {"sm_90a", "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32" REGISTERS, "no such form"},
        {"sm_90a", "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16" REGISTERS, "no such form"},
        {"sm_90a", "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32" REGISTERS, "not known, or written twice"},
        {"sm_90a", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16" REGISTERS, "no such form"},
        {"sm_90a", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" REGISTERS, "operands"},
        {"sm_90a", "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32" REGISTERS,
         ".satfinite is for integers"},
        {"sm_120a", "mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e4m3.f32" REGISTERS, "no such form"},
        {"sm_120a",
         "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue8m0" REGISTERS
         ", %r1, {0,0}, %r1, {0,0}",
         "no such form"},
        {"sm_120a",
         "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0" REGISTERS
         ", %r1, {0,0}, %r1, {0,0}",
         "no such form"},
        {"sm_120a",
         "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0" REGISTERS ", %r1, {0,0}",
         "operands"},
    };
    check_refused(cases, sizeof cases / sizeof *cases);
}

static void test_faults(void **unused) {
    (void)unused;
    static const struct {
        const char *body, *part;
    } cases[] = {
        {"mov.b32 %r1, 0;\nsetp.eq.u32 %p1, %tid, 3;\n@%p1 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" REGISTERS
         ";\nret;\n",
         "all lanes of the warp must execute"},
        {"mov.b32 %r1, 0;\nmma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0" REGISTERS
         ", %r1, {1,0}, %r1, {0,0};\nret;\n",
         "byte-id of A is 1"},
        {"mov.b32 %r1, 0;\ncvt.u16.u32 %h1, "
         "%tid;\nmma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0" REGISTERS
         ", %r1, {0,0}, %r1, {0,%h1};\nret;\n",
         "thread-id of B differs between lanes"},
        {"mov.b32 %r1, 0;\nmma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0" REGISTERS
         ", %r1, {0,2}, %r1, {0,0};\nret;\n",
         "thread-id of A is 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ptx_run run = {.grid = {1, 1, 1},
                       .block = {WARP, 1, 1},
                       .seed = i,
                       .target = "sm_120a",
                       .out = out,
                       .out_words = OUT_WORDS};
        RUN_FAULT(cases[i].body, &run, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),       cmocka_unit_test(test_one_element),    cmocka_unit_test(test_sum_width),
        cmocka_unit_test(test_hopper_sums), cmocka_unit_test(test_special_values), cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_undefined),   cmocka_unit_test(test_refused),        cmocka_unit_test(test_faults),
    };
    base_seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
