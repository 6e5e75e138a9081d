/* SPDX-License-Identifier: MIT
 *
 * cvt between integers and f16, bf16, tf32, f32, f64. Packed narrow formats are in exec_convert_packed.c. */
#include "exec_convert.h"

#include <math.h>
#include <stdio.h>

/* ---- Integers from integers ---- */

/* data[0]: 64 - width of the source; data[2]: 64 - width of the result, bit 8: signed source, bit 9: signed result,
 * bits 16 on: 64 - width to which a signed result is extended, its register's. */
enum { SOURCE_SIGNED = 1 << 8, RESULT_SIGNED = 1 << 9, STORE_SHIFT = 16 };

static unsigned integer_result(const ptx_instr *instr) {
    const exec_type *result = exec_instr_type(instr, 1), *source = exec_instr_type(instr, -1);
    const int register_width = instr->operands[0].width;
    int width = result->width;
    if (result->kind == 's' && register_width > width)
        width = register_width;
    return (64u - result->width) | (source->kind == 's' ? SOURCE_SIGNED : 0u) |
           (result->kind == 's' ? RESULT_SIGNED : 0u) | (unsigned)(64 - width) << STORE_SHIFT;
}

static bool prepare_integer(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = integer_result(instr);
    return true;
}

/* Cuts bits to the result's type and extends them to its register. */
static inline uint64_t store(uint64_t bits, unsigned how) {
    const unsigned shift = how & 0xff;
    return how & RESULT_SIGNED ? exec_unsigned((uint64_t)exec_signed(bits, shift), how >> STORE_SHIFT)
                               : exec_unsigned(bits, shift);
}

static inline uint64_t load(uint64_t bits, unsigned shift, unsigned how) {
    return how & SOURCE_SIGNED ? (uint64_t)exec_signed(bits, shift) : exec_unsigned(bits, shift);
}

EXEC_DEFINE(exec_integer, 1, store(load(a, shift, (unsigned)instr->data[2]), (unsigned)instr->data[2]))

/* The number nearest to the source that the result's type has. */
static inline uint64_t saturate(uint64_t value, unsigned how) {
    const unsigned shift = how & 0xff;
    const bool negative = (how & SOURCE_SIGNED) && (int64_t)value < 0;
    if (how & RESULT_SIGNED) {
        const uint64_t largest = UINT64_MAX >> shift >> 1;
        if (negative)
            return (int64_t)value < -(int64_t)largest - 1 ? ~largest : value;
        return value > largest ? largest : value;
    }
    return negative ? 0 : value > UINT64_MAX >> shift ? UINT64_MAX >> shift : value;
}

EXEC_DEFINE(exec_integer_sat, 1,
            store(saturate(load(a, shift, (unsigned)instr->data[2]), (unsigned)instr->data[2]),
                  (unsigned)instr->data[2]))

/* ---- Between integers and floats ---- */

/* data[3]: the float's exec_format, whichever side it is on. */
static const exec_format *float_format(const ptx_instr *instr) {
    return (const exec_format *)(uintptr_t)instr->data[3];
}

static bool prepare_from_float(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = integer_result(instr);
    instr->data[3] = (uintptr_t)exec_find_format(exec_instr_type(instr, -1)->name);
    return true;
}

static bool prepare_to_float(ptx_instr *instr, char *error, size_t error_size) {
    (void)error, (void)error_size;
    instr->data[2] = exec_instr_type(instr, -1)->kind == 's' ? SOURCE_SIGNED : 0;
    instr->data[3] = (uintptr_t)exec_find_format(exec_instr_type(instr, 1)->name);
    return true;
}

static inline double round_integral(double value, exec_rounding rounding) {
    switch (rounding) {
    case EXEC_RZ:
        return trunc(value);
    case EXEC_RM:
        return floor(value);
    case EXEC_RP:
        return ceil(value);
    default:
        return nearbyint(value);
    }
}

/* Always clamps. A NaN is 0, but the pattern 100...0 if source or result have 64 bits. */
static uint64_t integer_from(double value, unsigned flags, unsigned how, bool wide) {
    const unsigned shift = how & 0xff;
    const bool is_signed = how & RESULT_SIGNED;
    if (value != value)
        return wide ? UINT64_C(1) << (63 - shift) : 0;
    value = round_integral(value, exec_rounding_of(flags));
    const double limit = ldexp(1, (int)(64 - shift) - is_signed); /* one above the largest */
    if (value >= limit)
        return UINT64_MAX >> shift >> is_signed;
    if (!is_signed)
        return value > 0 ? (uint64_t)value : 0;
    return value < -limit ? UINT64_C(1) << (63 - shift) : (uint64_t)(int64_t)value;
}

static inline double source_double(const exec_format *format, uint64_t bits, unsigned flags) {
    if (format->width == 32)
        return (double)exec_float(flags & EXEC_FTZ ? exec_flush(bits) : bits);
    if (format->width == 64)
        return exec_double(bits);
    return format == &exec_format_f16 ? exec_f16(bits) : exec_bf16(bits);
}

EXEC_DEFINE(exec_integer_from_float, 1,
            store(integer_from(source_double(float_format(instr), a, flags), flags, (unsigned)instr->data[2],
                               float_format(instr)->width == 64 || (instr->data[2] & 0xff) == 0),
                  (unsigned)instr->data[2]))

/* .sat, .relu and .ftz of a result; NaNs stay, or become 0 with .sat. */
static uint64_t finish(const exec_format *format, uint64_t code, unsigned flags) {
    const unsigned shift = 64u - (unsigned)format->width;
    const uint64_t top = UINT64_C(1) << (63 - shift), magnitude = code & (top - 1);
    const bool is_nan = magnitude > (format->max + 1) << format->padding;
    if ((flags & EXEC_FTZ) && format->width == 32)
        code = exec_flush(code);
    if ((flags & (EXEC_SAT | EXEC_RELU)) && !is_nan && (code & top))
        code = 0;
    if (flags & EXEC_SAT) {
        const uint64_t one = exec_encode(format, false, 1, 0, EXEC_RN, false);
        code = is_nan ? 0 : code > one ? one : code;
    }
    return code;
}

static inline uint64_t float_from(const exec_format *format, uint64_t value, bool is_signed, unsigned flags) {
    const bool negative = is_signed && (int64_t)value < 0;
    const uint64_t code =
        exec_encode(format, negative, negative ? 0 - value : value, 0, exec_rounding_of(flags), false);
    return flags & EXEC_SAT ? finish(format, code, flags) : code;
}

EXEC_DEFINE(exec_float_from_integer, 1,
            float_from(float_format(instr), load(a, shift, (unsigned)instr->data[2]), instr->data[2] & SOURCE_SIGNED,
                       flags))

/* Hosts do these in one instruction, rounding once. */
EXEC_DEFINE(exec_f32_from_s32, 1, exec_float_bits((float)(int32_t)a))
EXEC_DEFINE(exec_f32_from_u32, 1, exec_float_bits((float)(uint32_t)a))
EXEC_DEFINE(exec_f64_from_s32, 1, exec_double_bits((double)(int32_t)a))
EXEC_DEFINE(exec_f64_from_u32, 1, exec_double_bits((double)(uint32_t)a))

/* ---- Between floats ---- */

EXEC_DEFINE(exec_f32_from_f16, 1, exec_float_bits((float)exec_f16(a)))
EXEC_DEFINE(exec_f32_from_bf16, 1, (a & 0xffff) << 16) /* NaNs as they are */
EXEC_DEFINE(exec_f16_from_f32, 1, exec_f16_bits((double)exec_float(a)))
EXEC_DEFINE(exec_bf16_from_f32, 1, exec_bf16_bits((double)exec_float(a)))

/* data[2]: the source's format, data[3]: the result's. */
static bool prepare_float(ptx_instr *instr, char *error, size_t error_size) {
    const exec_format *source = exec_find_format(exec_instr_type(instr, -1)->name);
    const exec_format *result = exec_find_format(exec_instr_type(instr, 1)->name);
    const char *rounding = exec_listed("rn|rz|rm|rp|rna", instr->modifiers[0]) ? instr->modifiers[0] : NULL;
    const bool integral = exec_listed("rni|rzi|rmi|rpi", instr->modifiers[0]);
    const bool loses = result->precision < source->precision || result->min_exponent > source->min_exponent;
    const char *wrong = NULL;
    if (integral && source != result)
        wrong = "rounds to an integer only within a type";
    else if (loses && !rounding)
        wrong = "needs a rounding mode";
    if (wrong) {
        snprintf(error, error_size, "cvt.%s.%s %s", exec_instr_type(instr, 1)->name, source->name, wrong);
        return false;
    }
    instr->data[2] = (uintptr_t)source;
    instr->data[3] = (uintptr_t)result;
    return true;
}

/* A NaN from or to f64 keeps its sign and the upper bits of its payload, and becomes quiet; .ftz of an f32 makes it the
 * canonical one first. So it is on an H200. */
static uint64_t convert_nan(const exec_format *source, const exec_format *result, uint64_t bits, unsigned flags) {
    const int from = source->precision - 1, to = result->precision - 1;
    if ((flags & EXEC_FTZ) && source->width == 32)
        bits = EXEC_NAN_F32;
    uint64_t payload = bits & ((UINT64_C(1) << from) - 1);
    payload = to >= from ? payload << (to - from) : payload >> (from - to);
    const uint64_t sign = bits >> (source->width - 1) & 1;
    return sign << (result->width - 1) | (result->max + 1) | payload | UINT64_C(1) << (to - 1);
}

uint64_t exec_convert_float(const exec_format *source, const exec_format *result, uint64_t bits, unsigned flags) {
    const double value = source_double(source, bits, flags);
    if (value != value && (source->width == 64 || result->width == 64))
        return finish(result, convert_nan(source, result, bits, flags), flags);
    if (value != value && exec_rounding_of(flags) == EXEC_RNA) /* tf32: the lower bits are cleared, and that is all */
        return bits & UINT64_C(0xffffe000);
    return finish(result, exec_encode_double(result, value, exec_rounding_of(flags), flags & EXEC_SATFINITE), flags);
}

EXEC_DEFINE(exec_float_from_float, 1,
            exec_convert_float((const exec_format *)(uintptr_t)instr->data[2], float_format(instr), a, flags))

/* Signs stay: a value that rounds to zero gives a zero of its sign. */
static uint64_t integral(const exec_format *format, uint64_t bits, unsigned flags) {
    const double value = source_double(format, bits, flags);
    if (value != value && format->width == 64)
        return finish(format, convert_nan(format, format, bits, flags), flags);
    const double rounded = copysign(round_integral(value, exec_rounding_of(flags)), value);
    return finish(format, exec_encode_double(format, rounded, EXEC_RN, false), flags);
}

EXEC_DEFINE(exec_integral, 1, integral(float_format(instr), a, flags))

/* ---- Rules ---- */

#define UNSIGNED  "u8|u16|u32|u64"
#define SIGNED    "s8|s16|s32|s64"
#define INTEGERS  UNSIGNED "|" SIGNED
#define FLOATS    "f16|bf16|f32|f64"
#define ROUNDINGS "rn|rz|rm|rp"
#define INTEGRAL  "rni|rzi|rmi|rpi"

static const exec_rule rules[] = {
    {"cvt", INTEGERS " " INTEGERS, "ds", exec_integer, prepare_integer},
    {"cvt", "sat " INTEGERS " " INTEGERS, "ds", exec_integer_sat, prepare_integer},
    {"cvt", INTEGRAL " ftz? sat? " INTEGERS " " FLOATS, "ds", exec_integer_from_float, prepare_from_float},
    {"cvt", "rn f32 s32", "ds", exec_f32_from_s32, NULL},
    {"cvt", "rn f32 u32", "ds", exec_f32_from_u32, NULL},
    {"cvt", "rn f64 s32", "ds", exec_f64_from_s32, NULL},
    {"cvt", "rn f64 u32", "ds", exec_f64_from_u32, NULL},
    {"cvt", ROUNDINGS " sat? " FLOATS " " INTEGERS, "ds", exec_float_from_integer, prepare_to_float},
    {"cvt", "f32 f16", "ds", exec_f32_from_f16, NULL},
    {"cvt", "f32 bf16", "ds", exec_f32_from_bf16, NULL},
    {"cvt", "rn f16 f32", "ds", exec_f16_from_f32, NULL},
    {"cvt", "rn bf16 f32", "ds", exec_bf16_from_f32, NULL},
    {"cvt", INTEGRAL " ftz? sat? " FLOATS " " FLOATS, "ds", exec_integral, prepare_float},
    {"cvt", ROUNDINGS "? ftz? sat? " FLOATS " " FLOATS, "ds", exec_float_from_float, prepare_float},
    {"cvt", "rn|rz relu? satfinite? f16|bf16 f32", "ds", exec_float_from_float, prepare_float},
    {"cvt", "rna satfinite? tf32 f32", "ds", exec_float_from_float, prepare_float},
    {"cvt", "rn|rz satfinite? relu? tf32 f32", "ds", exec_float_from_float, prepare_float},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool bind_convert(ptx_instr *instr, char *error, size_t error_size) {
    return exec_bind(rules, INTEGERS "|" FLOATS "|tf32", instr, error, error_size);
}

const sim_op sim_ops_convert[] = {
    {"cvt", exec_bind_convert_packed},
    {"cvt", bind_convert},
    {NULL, NULL},
};
