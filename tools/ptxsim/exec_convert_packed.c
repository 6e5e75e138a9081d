/* SPDX-License-Identifier: MIT
 *
 * cvt with packed types: pairs of f16, bf16, 8-, 6- and 4-bit floats, ue8m0 scales, and cvt.pack. Of two sources the
 * first gives the upper half of the result. */
#include "exec_convert.h"

#include <math.h>

/* data[2]: format of one number of the source, data[3]: of the result. */
static bool prepare_packed(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = (uintptr_t)exec_find_format(exec_instr_type(instr, -1)->name);
    instr->data[3] = (uintptr_t)exec_find_format(exec_instr_type(instr, 1)->name);
    return true;
}

static inline const exec_format *source_format(const ptx_instr *instr) {
    return (const exec_format *)(uintptr_t)instr->data[2];
}

static inline const exec_format *result_format(const ptx_instr *instr) {
    return (const exec_format *)(uintptr_t)instr->data[3];
}

/* Bits from one number of a pair to the next: 6-bit codes lie in bytes. */
static inline unsigned stride(const exec_format *format) {
    return format->width == 6 ? 8 : (unsigned)format->width;
}

EXEC_DEFINE(exec_f16x2_fast, 2, exec_f16_bits((double)exec_float(a)) << 16 | exec_f16_bits((double)exec_float(b)))
EXEC_DEFINE(exec_bf16x2_fast, 2, exec_bf16_bits((double)exec_float(a)) << 16 | exec_bf16_bits((double)exec_float(b)))

/* The f32 pair (high, low) in a format of at most 16 bits. NaNs of a format without become its largest number. */
static uint64_t pack_floats(const ptx_instr *instr, uint64_t high, uint64_t low, unsigned flags) {
    const exec_format *result = result_format(instr);
    return exec_convert_float(&exec_format_f32, result, high, flags) << stride(result) |
           exec_convert_float(&exec_format_f32, result, low, flags);
}

EXEC_DEFINE(exec_pack, 2, pack_floats(instr, a, b, flags))

/* From a pair to a pair; f32 holds everything between exactly. */
static uint64_t convert_pair(const ptx_instr *instr, uint64_t bits, unsigned flags) {
    const exec_format *source = source_format(instr);
    const unsigned width = (unsigned)source->width;
    const uint64_t mask = (UINT64_C(1) << width) - 1;
    const float low = (float)exec_decode(source, bits & mask);
    const float high = (float)exec_decode(source, bits >> stride(source) & mask);
    return pack_floats(instr, exec_float_bits(high), exec_float_bits(low), flags);
}

EXEC_DEFINE(exec_pair, 1, convert_pair(instr, a, flags))

/* ---- ue8m0: a power of two, 2^(code - 127), 255 is NaN ---- */

/* The sign is left out. Rounding up, numbers above a power get the next; those up to 2^-127, zero included, get code 0.
 */
static uint64_t scale_from(float value, unsigned flags) {
    if (value != value)
        return 0xff;
    const uint64_t magnitude = exec_float_bits(fabsf(value));
    uint64_t code = magnitude >> 23;
    if (exec_rounding_of(flags) == EXEC_RP && (magnitude & 0x7fffff) && magnitude > 0x400000)
        code++;
    return code == 0xff && (flags & EXEC_SATFINITE) ? 0xfe : code;
}

static inline uint64_t bf16_from_scale(uint64_t code) {
    return code == 0xff ? EXEC_NAN_F16 : code == 0 ? 0x40 : code << 7;
}

EXEC_DEFINE(exec_scales_f32, 2, scale_from(exec_float(a), flags) << 8 | scale_from(exec_float(b), flags))
EXEC_DEFINE(exec_scales_bf16x2, 1,
            scale_from(exec_float(a & 0xffff0000), flags) << 8 | scale_from(exec_float(a << 16 & 0xffff0000), flags))
EXEC_DEFINE(exec_bf16x2_scales, 1, bf16_from_scale(a >> 8 & 0xff) << 16 | bf16_from_scale(a & 0xff))

/* ---- cvt.pack ---- */

/* data[2]: width of a packed number, bit 8: signed. */
static bool prepare_pack_integers(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    const exec_type *type = exec_instr_type(instr, 1);
    instr->data[2] = type->width | (type->kind == 's' ? 0x100u : 0);
    return true;
}

static inline uint64_t clamp_to(uint64_t bits, uint64_t type) {
    const int width = type & 0xff, is_signed = type >> 8 & 1;
    const int64_t value = (int32_t)bits, largest = (INT64_C(1) << (width - is_signed)) - 1;
    const int64_t smallest = is_signed ? -largest - 1 : 0;
    const int64_t clamped = value > largest ? largest : value < smallest ? smallest : value;
    return (uint64_t)clamped & ((UINT64_C(1) << width) - 1);
}

static inline uint64_t pack_integers(uint64_t high, uint64_t low, uint64_t rest, uint64_t type) {
    const unsigned width = type & 0xff;
    return (uint32_t)(rest << 2 * width | clamp_to(high, type) << width | clamp_to(low, type));
}

EXEC_DEFINE(exec_pack_integers, 2, pack_integers(a, b, 0, instr->data[2]))
EXEC_DEFINE(exec_pack_integers_onto, 3, pack_integers(a, b, c, instr->data[2]))

/* ---- Rules ---- */

#define NARROW "e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2"

static const exec_rule rules[] = {
    {"cvt", "rn f16x2 f32", "dss", exec_f16x2_fast, NULL},
    {"cvt", "rn bf16x2 f32", "dss", exec_bf16x2_fast, NULL},
    {"cvt", "rn|rz relu? satfinite? f16x2|bf16x2 f32", "dss", exec_pack, prepare_packed},
    {"cvt", "rn satfinite relu? " NARROW " f32", "dss", exec_pack, prepare_packed},
    {"cvt", "rn satfinite relu? e4m3x2|e5m2x2 f16x2", "ds", exec_pair, prepare_packed},
    {"cvt", "rn relu? f16x2 " NARROW, "ds", exec_pair, prepare_packed},
    {"cvt", "rz|rp satfinite? ue8m0x2 f32", "dss", exec_scales_f32, NULL},
    {"cvt", "rz|rp satfinite? ue8m0x2 bf16x2", "ds", exec_scales_bf16x2, NULL},
    {"cvt", "rn bf16x2 ue8m0x2", "ds", exec_bf16x2_scales, NULL},
    {"cvt", "pack sat u16|s16 s32", "dss", exec_pack_integers, prepare_pack_integers},
    {"cvt", "pack sat u8|s8|u4|s4|u2|s2 s32 b32", "dsss", exec_pack_integers_onto, prepare_pack_integers},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Without a fitting rule it is the other file's, unless a packed type comes last or first. */
bool exec_bind_convert_packed(ptx_instr *instr, char *error, size_t error_size) {
    const exec_type *first = exec_instr_type(instr, 1);
    if (first && first->kind != 'x' && !ptx_has(instr, "pack") && exec_instr_type(instr, -1)->kind != 'x') {
        error[0] = '\0';
        return false;
    }
    if (first && !strcmp(first->name, "tf32")) {
        error[0] = '\0';
        return false;
    }
    return exec_bind(rules, NULL, instr, error, error_size);
}
