/* SPDX-License-Identifier: MIT
 *
 * cvt: formats of 8 and 16 bits for every code, between them at, above and below every boundary; integers and wide
 * floats on random and edge values. */
#include <fenv.h>
#include <math.h>

#include "scalar_machine.h"

/* ---- Formats by their definitions ---- */

typedef struct format {
    const char *name;
    int width, fraction_bits, bias;
    unsigned largest, nan; /* codes; nan is the canonical one, or the largest number of a format without */
    bool infinity;
} format;

static const format F16 = {"f16", 16, 10, 15, 0x7bff, 0x7fff, true};
static const format BF16 = {"bf16", 16, 7, 127, 0x7f7f, 0x7fff, true};
static const format E4M3 = {"e4m3", 8, 3, 7, 0x7e, 0x7f, false};
static const format E5M2 = {"e5m2", 8, 2, 15, 0x7b, 0x7f, true};
static const format E2M3 = {"e2m3", 6, 3, 1, 0x1f, 0x1f, false};
static const format E3M2 = {"e3m2", 6, 2, 3, 0x1f, 0x1f, false};
static const format E2M1 = {"e2m1", 4, 1, 1, 0x7, 0x7, false};

/* The magnitude of a code, also of those above the largest: the number that would come next. */
static double magnitude_of(format f, unsigned code) {
    const int biased = (int)(code >> f.fraction_bits);
    const unsigned fraction = code & ((1u << f.fraction_bits) - 1);
    return biased ? ldexp((double)(fraction | 1u << f.fraction_bits), biased - f.bias - f.fraction_bits)
                  : ldexp((double)fraction, 1 - f.bias - f.fraction_bits);
}

static double value_of(format f, unsigned code) {
    const unsigned top = 1u << (f.width - 1), magnitude = code & (top - 1);
    double value = magnitude_of(f, magnitude);
    if (magnitude > f.largest)
        value = f.infinity && magnitude == f.largest + 1 ? (double)INFINITY : (double)NAN;
    return code & top ? -value : value;
}

/* The code of a number between the magnitudes of codes `low` and low + 1, in a rounding mode (n, z, m, p). */
static unsigned code_between(format f, double value, unsigned low, char mode, bool saturate) {
    const double x = fabs(value), below = magnitude_of(f, low), above = magnitude_of(f, low + 1);
    const bool negative = signbit(value);
    bool up = x - below > above - x || (x - below == above - x && (low & 1));
    if (mode != 'n')
        up = x > below && mode == (negative ? 'm' : 'p');
    unsigned code = x == below ? low : x == above ? low + 1 : low + up;
    if (code > f.largest && (saturate || !f.infinity))
        code = f.largest;
    return code | (negative ? 1u << (f.width - 1) : 0);
}

/* ---- One source, one lane at a time in bulk ---- */

static machine *bulk;
static uint64_t bulk_expected[SIM_LANES];
static int bulk_count;

static void bulk_flush(void) {
    if (bulk_count == 0)
        return;
    machine_run(bulk, bulk_count == SIM_LANES ? UINT32_MAX : (1u << bulk_count) - 1);
    for (int lane = 0; lane < bulk_count; lane++)
        if (machine_operand(bulk, 0)[lane] != bulk_expected[lane])
            fail_msg("%s of 0x%llx: got 0x%llx, expected 0x%llx", bulk->instr->text,
                     (unsigned long long)machine_operand(bulk, 1)[lane],
                     (unsigned long long)machine_operand(bulk, 0)[lane], (unsigned long long)bulk_expected[lane]);
    bulk_count = 0;
}

static void bulk_start(machine *m, const char *text) {
    machine_init(m, text);
    bulk = m;
    bulk_count = 0;
}

static void bulk_end(void) {
    bulk_flush();
    machine_destroy(bulk);
}

/* `second` goes to a second source, if there is one. */
static void bulk_expect(uint64_t source, uint64_t second, uint64_t expected) {
    machine_operand(bulk, 1)[bulk_count] = source;
    if (bulk->instr->num_operands > 2)
        machine_operand(bulk, 2)[bulk_count] = second;
    bulk_expected[bulk_count++] = expected;
    if (bulk_count == SIM_LANES)
        bulk_flush();
}

/* ---- 16-bit floats to wider ones: every code ---- */

static void test_decode_halves(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const format *from;
        bool to_double;
    } cases[] = {{"cvt.f32.f16 %r0, %h1", &F16, false},
                 {"cvt.f32.bf16 %r0, %h1", &BF16, false},
                 {"cvt.f64.f16 %d0, %h1", &F16, true},
                 {"cvt.f64.bf16 %d0, %h1", &BF16, true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        bulk_start(&m, cases[i].text);
        for (unsigned code = 0; code < 0x10000; code++) {
            const double value = value_of(*cases[i].from, code);
            /* NaNs keep sign and payload and become quiet, on the way to f64; to f32 those of bf16 stay as they are. */
            const format *from = cases[i].from;
            const uint64_t payload = (uint64_t)code << (52 - from->fraction_bits) & UINT64_C(0x000fffffffffffff);
            const uint64_t nan = (uint64_t)(code >> 15) << 63 | UINT64_C(0x7ff8000000000000) | payload;
            const uint64_t wide = isnan(value) ? nan : double_bits(value);
            const uint64_t narrow = from == &BF16  ? (uint64_t)code << 16
                                    : isnan(value) ? (uint64_t)INT32_MAX
                                                   : float_bits((float)value);
            bulk_expect(code, 0, cases[i].to_double ? wide : narrow);
        }
        bulk_end();
    }
}

/* ---- Wider floats to 16-bit ones: around every code ---- */

static void test_encode_halves(void **state) {
    (void)state;
    static const char *const roundings[] = {"rn", "rz", "rm", "rp"};
    static const format *const formats[] = {&F16, &BF16};
    for (int sample = 0; sample < 16; sample++) {
        const format f = *formats[sample & 1];
        const char *rounding = roundings[sample >> 1 & 3];
        const bool from_double = sample >> 3;
        char text[64];
        machine m;
        snprintf(text, sizeof(text), "cvt.%s.%s.%s %%h0, %%%s1", rounding, f.name, from_double ? "f64" : "f32",
                 from_double ? "d" : "r");
        bulk_start(&m, text);
        for (unsigned code = 0; code <= f.largest; code++) {
            const double low = magnitude_of(f, code), high = magnitude_of(f, code + 1), middle = low + (high - low) / 2;
            double values[6] = {low,    nextafter(low, high),    nextafter(middle, low),
                                middle, nextafter(middle, high), nextafter(high, low)};
            if (!from_double) {
                values[1] = nextafterf((float)low, INFINITY);
                values[2] = nextafterf((float)middle, 0);
                values[4] = nextafterf((float)middle, INFINITY);
                values[5] = nextafterf((float)high, 0);
            }
            for (int j = 0; j < 12; j++) {
                const double value = j & 1 ? -values[j / 2] : values[j / 2];
                if (!from_double && fabs(value) > (double)3.4028234e38f)
                    continue;
                bulk_expect(from_double ? double_bits(value) : float_bits((float)value), 0,
                            code_between(f, value, code, rounding[1], false));
            }
        }
        bulk_end();
    }
}

static void test_special_floats(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t source, result;
    } cases[] = {
        {"cvt.rn.f16.f32 %h0, %r1", 0x7fc00000, 0x7fff},
        {"cvt.rn.f16.f32 %h0, %r1", 0xff800000, 0xfc00},
        {"cvt.rn.f16.f32 %h0, %r1", 0x47800000, 0x7c00}, /* 65536 */
        {"cvt.rz.f16.f32 %h0, %r1", 0x7f7fffff, 0x7bff},
        {"cvt.rn.satfinite.f16.f32 %h0, %r1", 0x7f800000, 0x7bff},
        {"cvt.rn.relu.f16.f32 %h0, %r1", 0xbf800000, 0x0000},
        {"cvt.rn.relu.f16.f32 %h0, %r1", 0x7fc00000, 0x7fff},
        {"cvt.rn.relu.bf16.f32 %h0, %r1", 0x80000000, 0x0000},
        {"cvt.rn.bf16.f32 %h0, %r1", 0x7f7fffff, 0x7f80},
        {"cvt.rn.bf16.f32 %h0, %r1", 0x80000001, 0x8000},
        {"cvt.rna.tf32.f32 %r0, %r1", 0x3f801000, 0x3f802000}, /* ties go away from zero */
        {"cvt.rn.tf32.f32 %r0, %r1", 0x3f801000, 0x3f800000},
        {"cvt.rz.tf32.f32 %r0, %r1", 0x3f801fff, 0x3f800000},
        {"cvt.rna.satfinite.tf32.f32 %r0, %r1", 0x7f7fffff, 0x7f7fe000},
        {"cvt.rna.tf32.f32 %r0, %r1", 0xff7fffff, 0xff800000},
        {"cvt.rna.tf32.f32 %r0, %r1", 0x7fc00001, 0x7fc00000}, /* NaNs lose their lower bits, and that is all */
        {"cvt.rna.tf32.f32 %r0, %r1", 0xffffffff, 0xffffe000},
        {"cvt.f64.f32 %d0, %r1", 0xff800001, UINT64_C(0xfff8000020000000)}, /* payloads are kept, and made quiet */
        {"cvt.ftz.f64.f32 %d0, %r1", 0xff800001, UINT64_C(0x7fffffffe0000000)},
        {"cvt.rn.f32.f64 %r0, %d1", UINT64_C(0xfff0000020000001), 0xffc00001},
        {"cvt.rn.f16.f64 %h0, %d1", UINT64_C(0x7ff0040000000001), 0x7e01},
        {"cvt.rzi.f64.f64 %d0, %d1", UINT64_C(0xfff0000000000001), UINT64_C(0xfff8000000000001)},
        {"cvt.sat.f32.f32 %r0, %r1", 0xc0000000, 0},
        {"cvt.sat.f32.f32 %r0, %r1", 0x40000000, 0x3f800000},
        {"cvt.sat.f32.f32 %r0, %r1", 0x7fc00000, 0},
        {"cvt.ftz.f32.f32 %r0, %r1", 0x80000001, 0x80000000},
        {"cvt.f64.f32 %d0, %r1", 0x00000001, UINT64_C(0x36a0000000000000)},
        {"cvt.ftz.f64.f32 %d0, %r1", 0x00000001, 0},
        {"cvt.rn.f32.f64 %r0, %d1", UINT64_C(0x36a0000000000000), 1},
        {"cvt.rn.f32.f64 %r0, %d1", UINT64_C(0x3690000000000000), 0},
        {"cvt.rp.f32.f64 %r0, %d1", UINT64_C(0x0000000000000001), 1},
        {"cvt.rn.ftz.f32.f64 %r0, %d1", UINT64_C(0xb7f0000000000000), 0x80000000},
        {"cvt.rni.f32.f32 %r0, %r1", 0x40200000, 0x40000000}, /* 2.5 */
        {"cvt.rni.f32.f32 %r0, %r1", 0xbe800000, 0x80000000}, /* -0.25 */
        {"cvt.rpi.f32.f32 %r0, %r1", 0x3e800000, 0x3f800000},
        {"cvt.rmi.f64.f64 %d0, %d1", UINT64_C(0xbff8000000000000), UINT64_C(0xc000000000000000)},
        {"cvt.rzi.f16.f16 %h0, %h1", 0x3dff, 0x3c00},
        {"cvt.rzi.s32.f32 %r0, %r1", 0x7fc00000, 0},
        {"cvt.rzi.u64.f32 %d0, %r1", 0x7fc00000, UINT64_C(0x8000000000000000)},
        {"cvt.rzi.s32.f64 %r0, %d1", UINT64_C(0x7ff8000000000000), 0x80000000},
        {"cvt.rni.u32.f16 %r0, %h1", 0x7c00, UINT32_MAX},
        {"cvt.rni.s16.bf16 %h0, %h1", 0xff80, 0x8000},
        {"cvt.rzi.s32.f32 %r0, %r1", 0xcf000000, 0x80000000},
        {"cvt.rzi.u32.f32 %r0, %r1", 0xbf800000, 0},
        {"cvt.rzi.s8.f32 %r0, %r1", 0xc2c80000, 0xffffff9c}, /* -100, extended to the register */
        {"cvt.rpi.ftz.s32.f32 %r0, %r1", 0x00000001, 0},
        {"cvt.rpi.s32.f32 %r0, %r1", 0x00000001, 1},
        {"cvt.rn.sat.f32.s32 %r0, %r1", 0xfffffffb, 0},
        {"cvt.rn.f16.u32 %h0, %r1", 65520, 0x7c00},
        {"cvt.rz.f16.u32 %h0, %r1", 65520, 0x7bff},
        {"cvt.rn.bf16.s64 %h0, %d1", UINT64_C(0x8000000000000000), 0xdf00},
        {"cvt.s8.s32 %r0, %r1", 0x180, 0xffffff80},
        {"cvt.s8.s32 %h0, %r1", 0x180, 0xff80},
        {"cvt.u8.s32 %r0, %r1", 0x180, 0x80},
        {"cvt.s16.s8 %h0, %h1", 0x0ff, 0xffff},
        {"cvt.sat.s8.s32 %r0, %r1", 0x180, 127},
        {"cvt.sat.u8.s32 %r0, %r1", 0xffffffff, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        bulk_start(&m, cases[i].text);
        bulk_expect(cases[i].source, 0, cases[i].result);
        bulk_end();
    }
}

/* ---- Narrow floats ---- */

/* Every code of a pair's halves, to f16x2. */
static void test_decode_narrow(void **state) {
    (void)state;
    static const format *const formats[] = {&E4M3, &E5M2, &E2M3, &E3M2, &E2M1};
    for (size_t i = 0; i < COUNT(formats); i++) {
        const format f = *formats[i];
        const int stride = f.width == 6 ? 8 : f.width;
        for (int relu = 0; relu < 2; relu++) {
            char text[64];
            machine m;
            snprintf(text, sizeof(text), "cvt.rn%s.f16x2.%sx2 %%r0, %%%s1", relu ? ".relu" : "", f.name,
                     f.width == 4 ? "b" : "h");
            bulk_start(&m, text);
            for (unsigned code = 0; code < 1u << f.width; code++) {
                const unsigned other = (code * 7 + 3) & ((1u << f.width) - 1);
                uint64_t expected = 0;
                for (int half = 0; half < 2; half++) {
                    const double value = value_of(f, half ? other : code);
                    unsigned want = signbit(value) ? 0x8000 : 0;
                    while (!isnan(value) && value_of(F16, want) != value)
                        want++;
                    want = isnan(value) ? 0x7fff : relu && signbit(value) ? 0 : want;
                    expected |= (uint64_t)want << 16 * half;
                }
                bulk_expect(code | other << stride, 0, expected);
            }
            bulk_end();
        }
    }
}

static void test_encode_narrow(void **state) {
    (void)state;
    static const format *const formats[] = {&E4M3, &E5M2, &E2M3, &E3M2, &E2M1};
    for (size_t i = 0; i < COUNT(formats); i++) {
        const format f = *formats[i];
        const int stride = f.width == 6 ? 8 : f.width;
        char text[64];
        machine m;
        snprintf(text, sizeof(text), "cvt.rn.satfinite.%sx2.f32 %%%s0, %%r1, %%r2", f.name, f.width == 4 ? "b" : "h");
        bulk_start(&m, text);
        for (unsigned code = 0; code <= f.largest; code++) {
            const float low = (float)magnitude_of(f, code), high = (float)magnitude_of(f, code + 1);
            const float middle = low + (high - low) / 2;
            const float values[6] = {low,    nextafterf(low, high),    nextafterf(middle, low),
                                     middle, nextafterf(middle, high), nextafterf(high, low)};
            for (int j = 0; j < 6; j++) {
                /* The first source is the upper half. */
                const unsigned up = code_between(f, (double)values[j], code, 'n', true);
                const unsigned down = code_between(f, -(double)values[5 - j], code, 'n', true);
                bulk_expect(float_bits(values[j]), float_bits(-values[5 - j]), up << stride | down);
            }
        }
        const unsigned sign = 1u << (f.width - 1);
        bulk_expect(float_bits(INFINITY), float_bits(-INFINITY), f.largest << stride | f.largest | sign);
        bulk_expect(float_bits(1e30f), float_bits(-1e30f), f.largest << stride | f.largest | sign);
        bulk_expect(0x7fc00000, 0xffc00001, f.nan << stride | f.nan);
        bulk_expect(0x00000001, 0x80000001, sign);
        bulk_end();

        snprintf(text, sizeof(text), "cvt.rn.satfinite.relu.%sx2.f32 %%%s0, %%r1, %%r2", f.name,
                 f.width == 4 ? "b" : "h");
        bulk_start(&m, text);
        bulk_expect(float_bits(-1), float_bits(1e30f), f.largest);
        bulk_end();
    }
    /* From f16 pairs: the same as from the halves' values. */
    for (int i = 0; i < 2; i++) {
        const format f = *formats[i];
        char text[64];
        machine m;
        snprintf(text, sizeof(text), "cvt.rn.satfinite.%sx2.f16x2 %%h0, %%r1", f.name);
        bulk_start(&m, text);
        for (unsigned code = 0; code < 0x10000; code++) {
            const double value = value_of(F16, code);
            unsigned low = 0;
            while (low < f.largest && magnitude_of(f, low + 1) <= fabs(value))
                low++;
            unsigned want = isnan(value) ? f.nan
                            : isinf(value) || fabs(value) > magnitude_of(f, f.largest + 1)
                                ? f.largest | (signbit(value) ? 0x80u : 0)
                                : code_between(f, value, low, 'n', true);
            bulk_expect(code << 16 | 0x3c00, 0,
                        want << 8 | code_between(f, 1, (unsigned)f.bias << f.fraction_bits, 'n', true));
        }
        bulk_end();
    }
}

static void test_scales(void **state) {
    (void)state;
    machine m;
    bulk_start(&m, "cvt.rn.bf16x2.ue8m0x2 %r0, %h1");
    for (unsigned code = 0; code < 256; code++) {
        const uint64_t want = code == 255 ? 0x7fff : float_bits((float)ldexp(1, (int)code - 127)) >> 16;
        bulk_expect(code << 8 | 0x7f, 0, want << 16 | 0x3f80);
    }
    bulk_end();
    bulk_start(&m, "cvt.rz.satfinite.ue8m0x2.f32 %h0, %r1, %r2");
    for (int exponent = -126; exponent < 128; exponent++)
        bulk_expect(float_bits(ldexpf(1, exponent)), float_bits(nextafterf(ldexpf(2, exponent), 0)),
                    (uint64_t)(exponent + 127) * 0x101);
    bulk_expect(float_bits(INFINITY), 0x7fc00000, 0xfeff);
    bulk_expect(0, 0x007fffff, 0);
    bulk_end();
    bulk_start(&m, "cvt.rp.ue8m0x2.f32 %h0, %r1, %r2");
    for (int exponent = -126; exponent < 127; exponent++)
        bulk_expect(float_bits(ldexpf(1, exponent)), float_bits(nextafterf(ldexpf(1, exponent), INFINITY)),
                    (uint64_t)(exponent + 127) * 0x101 + 1);
    bulk_expect(0x7f7fffff, float_bits(INFINITY), 0xffff);
    bulk_expect(0x00400000, 0x00400001, 0x0001); /* 2^-127 and a little more */
    bulk_end();
    bulk_start(&m, "cvt.rp.satfinite.ue8m0x2.bf16x2 %h0, %r1");
    bulk_expect(0x7f7f3f81, 0, 0xfe80);
    bulk_expect(0x3f807fff, 0, 0x7fff);
    bulk_end();
}

static void test_packs(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t a, b, result;
    } cases[] = {
        {"cvt.rn.f16x2.f32 %r0, %r1, %r2", 0x3f800000, 0xc0000000, 0x3c00c000},
        {"cvt.rn.bf16x2.f32 %r0, %r1, %r2", 0x3f808000, 0x3f818000, 0x3f803f82},
        {"cvt.rz.f16x2.f32 %r0, %r1, %r2", 0x7f7fffff, 0xff7fffff, 0x7bfffbff},
        {"cvt.rn.relu.f16x2.f32 %r0, %r1, %r2", 0xbf800000, 0x3f800000, 0x00003c00},
        {"cvt.rn.relu.bf16x2.f32 %r0, %r1, %r2", 0x7fc00000, 0x80000000, 0x7fff0000},
        {"cvt.rn.satfinite.bf16x2.f32 %r0, %r1, %r2", 0x7f800000, 0xff800000, 0x7f7fff7f},
        {"cvt.pack.sat.s16.s32 %r0, %r1, %r2", 0x00012345, 0xffff0000, 0x7fff8000},
        {"cvt.pack.sat.u16.s32 %r0, %r1, %r2", 0x00012345, 0xffffffff, 0xffff0000},
        {"cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, 0x11223344", 200, 0xffffff00, 0x33447f80},
        {"cvt.pack.sat.u8.s32.b32 %r0, %r1, %r2, 0x11223344", 200, 300, 0x3344c8ff},
        {"cvt.pack.sat.u4.s32.b32 %r0, %r1, %r2, 0x11223344", 9, 300, 0x2233449f},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        machine m;
        bulk_start(&m, cases[i].text);
        machine_operand(&m, 1)[0] = cases[i].a;
        machine_operand(&m, 2)[0] = cases[i].b;
        machine_run(&m, 1);
        if (machine_operand(&m, 0)[0] != cases[i].result)
            fail_msg("%s: got 0x%llx, expected 0x%llx", cases[i].text, (unsigned long long)machine_operand(&m, 0)[0],
                     (unsigned long long)cases[i].result);
        bulk_end();
    }
}

/* ---- Integers ---- */

FORMULA(u32_u8, uint8_t, 32, a)
FORMULA(s64_s32, int32_t, 64, a)
FORMULA(u64_u32, uint32_t, 64, a)
FORMULA(u32_u64, uint64_t, 32, a)
FORMULA(s32_s16, int16_t, 32, a)
FORMULA(u64_s16, int16_t, 64, a)
FORMULA(u16_s32, int32_t, 16, a)
FORMULA(sat_u16_s32, int32_t, 16, a<0 ? 0 : a> 0xffff ? 0xffff : a)
FORMULA(sat_s16_s64, int64_t, 16, a<-0x8000 ? -0x8000 : a> 0x7fff ? 0x7fff : a)
FORMULA(sat_s32_u32, uint32_t, 32, a > INT32_MAX ? INT32_MAX : a)
FORMULA(sat_u64_s64, int64_t, 64, a < 0 ? 0 : a)
FORMULA(sat_s64_u64, uint64_t, 64, a > INT64_MAX ? INT64_MAX : a)

/* To floats by the host's conversions, in its own rounding modes. */
#define IN_MODE(mode, type, source, bits)                                                                              \
    static uint64_t type##_##source##_##mode(const uint64_t *s) {                                                      \
        static const int modes[] = {                                                                                   \
            ['n'] = FE_TONEAREST, ['z'] = FE_TOWARDZERO, ['m'] = FE_DOWNWARD, ['p'] = FE_UPWARD};                      \
        const int before = fegetround();                                                                               \
        fesetround(modes[(unsigned char)#mode[1]]);                                                                    \
        const volatile source x = (source)s[0];                                                                        \
        const volatile type value = (type)x;                                                                           \
        fesetround(before);                                                                                            \
        return bits(value);                                                                                            \
    }
#define ALL_MODES(type, source, bits)                                                                                  \
    IN_MODE(rn, type, source, bits)                                                                                    \
    IN_MODE(rz, type, source, bits)                                                                                    \
    IN_MODE(rm, type, source, bits)                                                                                    \
    IN_MODE(rp, type, source, bits)
ALL_MODES(float, int32_t, float_bits)
ALL_MODES(float, int64_t, float_bits)
ALL_MODES(double, int64_t, double_bits)
IN_MODE(rn, float, uint32_t, float_bits)
IN_MODE(rn, double, uint32_t, double_bits)

static void test_integers(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"cvt.u32.u8 %r0, %r1", u32_u8},
        {"cvt.s64.s32 %d0, %r1", s64_s32},
        {"cvt.u64.u32 %d0, %r1", u64_u32},
        {"cvt.u32.u64 %r0, %d1", u32_u64},
        {"cvt.s32.s16 %r0, %h1", s32_s16},
        {"cvt.u64.s16 %d0, %h1", u64_s16},
        {"cvt.u16.s32 %h0, %r1", u16_s32},
        {"cvt.sat.u16.s32 %h0, %r1", sat_u16_s32},
        {"cvt.sat.s16.s64 %h0, %d1", sat_s16_s64},
        {"cvt.sat.s32.u32 %r0, %r1", sat_s32_u32},
        {"cvt.sat.u64.s64 %d0, %d1", sat_u64_s64},
        {"cvt.sat.s64.u64 %d0, %d1", sat_s64_u64},
        {"cvt.rn.f32.s32 %r0, %r1", float_int32_t_rn},
        {"cvt.rz.f32.s32 %r0, %r1", float_int32_t_rz},
        {"cvt.rm.f32.s32 %r0, %r1", float_int32_t_rm},
        {"cvt.rp.f32.s32 %r0, %r1", float_int32_t_rp},
        {"cvt.rn.f32.s64 %r0, %d1", float_int64_t_rn},
        {"cvt.rz.f32.s64 %r0, %d1", float_int64_t_rz},
        {"cvt.rm.f32.s64 %r0, %d1", float_int64_t_rm},
        {"cvt.rp.f32.s64 %r0, %d1", float_int64_t_rp},
        {"cvt.rn.f64.s64 %d0, %d1", double_int64_t_rn},
        {"cvt.rz.f64.s64 %d0, %d1", double_int64_t_rz},
        {"cvt.rm.f64.s64 %d0, %d1", double_int64_t_rm},
        {"cvt.rp.f64.s64 %d0, %d1", double_int64_t_rp},
        {"cvt.rn.f32.u32 %r0, %r1", float_uint32_t_rn},
        {"cvt.rn.f64.u32 %d0, %r1", double_uint32_t_rn},
    };
    check_cases(cases, COUNT(cases), any_integer, 400);
}

/* ---- Floats to integers and to f32 ---- */

static uint64_t any_real(int width) {
    const double value = ldexp((double)(int64_t)random_bits(), (int)(random_bits() % 75) - 70);
    const double halves = (double)(int)(random_bits() % 41 - 20) / 4;
    const double chosen = random_bits() % 3 ? value : halves;
    return width == 64 ? double_bits(chosen) : float_bits((float)chosen);
}

/* Clamped between `least` and the largest of `bits` value bits. */
static uint64_t to_integer(double value, double least, int bits) {
    const double above = ldexp(1, bits);
    if (value >= above)
        return bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (value <= least)
        return (uint64_t)(int64_t)least;
    return value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
}

#define X (double)as_float(s[0])
#define Y as_double(s[0])
FORMULA(rzi_s32, uint64_t, 32, to_integer(trunc(X), -0x1p31, 31))
FORMULA(rni_s32, uint64_t, 32, to_integer(rint(X), -0x1p31, 31))
FORMULA(rmi_s32, uint64_t, 32, to_integer(floor(X), -0x1p31, 31))
FORMULA(rpi_s32, uint64_t, 32, to_integer(ceil(X), -0x1p31, 31))
FORMULA(rni_u32, uint64_t, 32, to_integer(rint(X), 0, 32))
FORMULA(rzi_s64, uint64_t, 64, to_integer(trunc(Y), -0x1p63, 63))
FORMULA(rmi_u64, uint64_t, 64, to_integer(floor(Y), 0, 64))
FORMULA(rni_u16, uint64_t, 16, to_integer(rint(Y), 0, 16))
FORMULA(rni_u8, uint64_t, 8, to_integer(rint(X), 0, 8))
FORMULA(rn_f32, uint64_t, 32, float_bits((float)Y))
FORMULA(f64_f32, uint64_t, 64, double_bits(X))
FORMULA(rni_f32, uint64_t, 32, float_bits(rintf(as_float(s[0]))))
FORMULA(rmi_f64, uint64_t, 64, double_bits(floor(Y)))

static void test_floats(void **state) {
    (void)state;
    static const instruction_case cases[] = {
        {"cvt.rzi.s32.f32 %r0, %r1", rzi_s32}, {"cvt.rni.s32.f32 %r0, %r1", rni_s32},
        {"cvt.rmi.s32.f32 %r0, %r1", rmi_s32}, {"cvt.rpi.s32.f32 %r0, %r1", rpi_s32},
        {"cvt.rni.u32.f32 %r0, %r1", rni_u32}, {"cvt.rzi.s64.f64 %d0, %d1", rzi_s64},
        {"cvt.rmi.u64.f64 %d0, %d1", rmi_u64}, {"cvt.rni.u16.f64 %h0, %d1", rni_u16},
        {"cvt.rni.u8.f32 %r0, %r1", rni_u8},   {"cvt.rn.f32.f64 %r0, %d1", rn_f32},
        {"cvt.f64.f32 %d0, %r1", f64_f32},     {"cvt.rni.f32.f32 %r0, %r1", rni_f32},
        {"cvt.rmi.f64.f64 %d0, %d1", rmi_f64},
    };
    check_cases(cases, COUNT(cases), any_real, 400);
}

static void test_refusals(void **state) {
    (void)state;
    assert_refused("cvt.f16.f32 %h0, %r1", "needs a rounding mode");
    assert_refused("cvt.rni.f32.f64 %r0, %d1", "only within a type");
    assert_refused("cvt.s32.f32 %r0, %r1", "cvt.s32.f32");
    assert_refused("cvt.f32.s32 %r0, %r1", "cvt.f32.s32");
    assert_refused("cvt.rn.e4m3x2.f32 %h0, %r1, %r2", "cvt.rn.e4m3x2.f32");
    assert_refused("cvt.rs.f16x2.f32 %r0, %r1, %r2, %r3", "cvt.rs.f16x2.f32");
    assert_refused("cvt.rn.f16x2.f32 %r0, %r1", "2 operands, 3 expected");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_halves),  cmocka_unit_test(test_encode_halves),
        cmocka_unit_test(test_special_floats), cmocka_unit_test(test_decode_narrow),
        cmocka_unit_test(test_encode_narrow),  cmocka_unit_test(test_scales),
        cmocka_unit_test(test_packs),          cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),         cmocka_unit_test(test_refusals),
    };
    seed_randomly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
