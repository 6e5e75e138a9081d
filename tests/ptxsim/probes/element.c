/* SPDX-License-Identifier: MIT */
#include "element.h"

#include <math.h>
#include <string.h>

const element_type element_e4m3 = {"e4m3", 8, 4, 3}, element_e5m2 = {"e5m2", 8, 5, 2}, element_f16 = {"f16", 16, 5, 10},
                   element_bf16 = {"bf16", 16, 8, 7}, element_tf32 = {"tf32", 32, 8, 10},
                   element_f32 = {"f32", 32, 8, 23}, element_s8 = {"s8", 8, 0, 7}, element_u8 = {"u8", 8, 0, 8};

uint32_t element_code(const element_type *type, double value) {
    if (type->exponent == 0)
        return (uint8_t)(int)value;
    const int bias = (1 << (type->exponent - 1)) - 1, unused = type == &element_tf32 ? 13 : 0;
    const uint32_t sign = signbit(value) ? UINT32_C(1) << (type->exponent + type->mantissa) : 0;
    const double magnitude = fabs(value);
    uint32_t code = 0;
    if (magnitude != 0) {
        const int lowest = 1 - bias, e = ilogb(magnitude) < lowest ? lowest : ilogb(magnitude);
        /* The hidden bit of a normal number adds one to the exponent. */
        code = (uint32_t)(e - lowest) << type->mantissa;
        code += (uint32_t)ldexp(magnitude, type->mantissa - e);
    }
    return (sign | code) << unused;
}

void element_store(const element_type *type, void *array, size_t index, double value) {
    const uint32_t code = element_code(type, value);
    const size_t bytes = (size_t)type->bits / 8;
    memcpy((uint8_t *)array + index * bytes, &code, bytes); /* little-endian hosts, as CUDA's are */
}

double element_small(struct rng *r, const element_type *type) {
    return (double)(type == &element_u8 ? rng_range(r, 0, 8) : rng_range(r, -4, 4));
}

double element_random(struct rng *r, const element_type *type, int low, int high) {
    const double sign = rng_next(r) & 1 ? -1 : 1;
    const double mantissa = (double)rng_below(r, INT64_C(1) << type->mantissa);
    return sign * ldexp(1 + ldexp(mantissa, -type->mantissa), (int)rng_range(r, low, high));
}
