/* SPDX-License-Identifier: MIT
 * Rules of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"). */
#include "tensor_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "access.h"

static uint32_t checksum_of(const tensor_map *map) {
    const uint8_t *bytes = (const uint8_t *)map;
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < offsetof(tensor_map, checksum); i++)
        hash = (hash ^ bytes[i]) * UINT32_C(16777619);
    return hash;
}

/* Copies the fields into zeroed bytes, so that padding has no say in the checksum. */
static void normalise(tensor_map *map) {
    tensor_map clean;
    memset(&clean, 0, sizeof(clean));
    clean.magic = TENSOR_MAP_MAGIC;
    clean.rank = map->rank;
    clean.element_bytes = map->element_bytes;
    clean.swizzle_bytes = map->swizzle_bytes;
    clean.fill_nan = map->fill_nan;
    clean.kind = map->kind;
    clean.edited = map->edited;
    clean.address = map->address;
    for (int i = 0; i < map->rank; i++) {
        clean.sizes[i] = map->sizes[i];
        clean.boxes[i] = map->boxes[i];
        clean.element_strides[i] = map->element_strides[i];
        if (i > 0)
            clean.strides[i - 1] = map->strides[i - 1];
    }
    memcpy(map, &clean, sizeof(clean));
}

#define REFUSE(...) return (void)snprintf(error, error_size, __VA_ARGS__), false

bool tensor_map_finish(tensor_map *map, char *error, size_t error_size) {
    if (map->rank < 1 || map->rank > 5)
        REFUSE("rank is %d; 1 to 5 are accepted", map->rank);
    if (map->element_bytes != 1 && map->element_bytes != 2 && map->element_bytes != 4 && map->element_bytes != 8)
        REFUSE("elements have %d bytes; 1, 2, 4 or 8 are accepted", map->element_bytes);
    const int swizzle = map->swizzle_bytes;
    if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
        REFUSE("swizzle is %d bytes; 0, 32, 64 or 128 are accepted", swizzle);
    if (map->fill_nan > 1)
        REFUSE("fill is %d; 0 or 1 is accepted", map->fill_nan);
    if (map->address == 0 || map->address % 16 != 0)
        REFUSE("address is %#" PRIx64 "; a multiple of 16 is needed", map->address);
    for (int i = 0; i < map->rank; i++) {
        if (map->sizes[i] == 0)
            REFUSE("size of dimension %d is 0", i);
        if (map->boxes[i] == 0 || map->boxes[i] > 256)
            REFUSE("box of dimension %d is %" PRIu32 "; 1 to 256 are accepted", i, map->boxes[i]);
        if (map->element_strides[i] == 0 || map->element_strides[i] > 8)
            REFUSE("element stride of dimension %d is %" PRIu32 "; 1 to 8 are accepted", i, map->element_strides[i]);
        if (i > 0 && (map->strides[i - 1] % 16 != 0 || map->strides[i - 1] >> 40 != 0))
            REFUSE("stride of dimension %d is %" PRIu64 " bytes; a multiple of 16 below 2^40 is needed", i,
                   map->strides[i - 1]);
    }
    const uint32_t row = map->boxes[0] * map->element_bytes;
    if (row % 16 != 0)
        REFUSE("rows of the box have %" PRIu32 " bytes; a multiple of 16 is needed", row);
    if (swizzle != 0 && row > (uint32_t)swizzle)
        REFUSE("rows of the box have %" PRIu32 " bytes, more than the swizzle of %d", row, swizzle);
    normalise(map);
    map->checksum = checksum_of(map);
    return true;
}

static bool is_whole(const tensor_map *map) {
    return map->magic == TENSOR_MAP_MAGIC && map->rank >= 1 && map->rank <= 5 && map->checksum == checksum_of(map);
}

bool tensor_map_valid(const tensor_map *map) {
    char error[128];
    tensor_map copy = *map;
    return is_whole(map) && (!map->edited || tensor_map_finish(&copy, error, sizeof(error)));
}

/* ---- tensormap.replace ---- */

/* Types by their numbers; those of 4 and 6 bits, and those that flush or round (0 bytes), are not modelled. */
static bool set_type(tensor_map *map, uint64_t number) {
    static const struct {
        uint8_t bytes;
        access_kind kind;
    } types[] = {{1, ACCESS_UNSIGNED}, {2, ACCESS_UNSIGNED}, {4, ACCESS_UNSIGNED}, {4, ACCESS_SIGNED},
                 {8, ACCESS_UNSIGNED}, {8, ACCESS_SIGNED},   {2, ACCESS_HALF},     {4, ACCESS_FLOAT},
                 {0, ACCESS_FLOAT},    {8, ACCESS_FLOAT},    {2, ACCESS_BF16}};
    if (number >= sizeof(types) / sizeof(*types) || types[number].bytes == 0)
        return false;
    map->element_bytes = types[number].bytes;
    map->kind = (uint8_t)types[number].kind;
    return true;
}

static bool set_field(tensor_map *map, tensor_map_field field, uint32_t index, uint64_t value) {
    static const uint8_t swizzles[] = {0, 32, 64, 128};
    switch (field) {
    case TENSOR_MAP_ADDRESS:
        map->address = value;
        return true;
    case TENSOR_MAP_RANK:
        for (uint64_t d = map->rank; d <= value && value < 5; d++)
            map->sizes[d] = map->boxes[d] = map->element_strides[d] = 1;
        map->rank = (uint8_t)(value + 1);
        return value < 5;
    case TENSOR_MAP_BOX:
        map->boxes[index] = (uint32_t)value;
        return true;
    case TENSOR_MAP_SIZE:
        map->sizes[index] = (uint32_t)value;
        return true;
    case TENSOR_MAP_STRIDE:
        if (index >= 4)
            return false;
        map->strides[index] = value;
        return true;
    case TENSOR_MAP_ELEMENT_STRIDE:
        map->element_strides[index] = (uint32_t)value;
        return true;
    case TENSOR_MAP_TYPE:
        return set_type(map, value);
    case TENSOR_MAP_INTERLEAVE:
        return value == 0;
    case TENSOR_MAP_SWIZZLE:
        if (value >= sizeof(swizzles))
            return false;
        map->swizzle_bytes = swizzles[value];
        return true;
    default:
        map->fill_nan = (uint8_t)value;
        return value <= 1;
    }
}

bool tensor_map_replace(tensor_map *map, tensor_map_field field, uint32_t index, uint64_t value) {
    if (!is_whole(map) || index >= map->rank || !set_field(map, field, index, value))
        return false;
    map->edited = 1;
    normalise(map);
    map->checksum = checksum_of(map);
    return true;
}
