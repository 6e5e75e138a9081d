/* SPDX-License-Identifier: MIT
 *
 * Tensor maps as this machine encodes them into the 128 opaque bytes of a CUtensorMap. */
#ifndef PTXSIM_TENSOR_MAP_H_
#define PTXSIM_TENSOR_MAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAP_MAGIC UINT32_C(0x70747873)

typedef struct tensor_map {
    uint32_t magic;
    uint8_t rank;          /* 1 to 5 */
    uint8_t element_bytes; /* 1, 2, 4, 8 */
    uint8_t swizzle_bytes; /* 0, 32, 64, 128 */
    uint8_t fill_nan;
    uint64_t address;
    uint32_t sizes[5];       /* elements, innermost first */
    uint32_t boxes[5];
    uint64_t strides[4];     /* bytes, of dimensions 1.. */
    uint32_t element_strides[5];
    uint32_t checksum;       /* of the bytes before it: a map that was not encoded, or was overwritten, is told apart */
} tensor_map;
_Static_assert(sizeof(tensor_map) <= 128, "must fit a CUtensorMap");

/* Checks every rule of cuTensorMapEncodeTiled (alignment, ranges, box limits, swizzle against the inner box). false with
 * the reason. (tensor_map.c) */
bool tensor_map_finish(tensor_map *map, char *error, size_t error_size);
bool tensor_map_valid(const tensor_map *map);

#endif
