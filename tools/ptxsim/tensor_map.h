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
    uint8_t kind;   /* of the elements, as reductions need it: an access_kind (access.h) */
    uint8_t edited; /* by the device: the rules are checked when it is used */
    uint64_t address;
    uint32_t sizes[5]; /* elements, innermost first */
    uint32_t boxes[5];
    uint64_t strides[4]; /* bytes, of dimensions 1.. */
    uint32_t element_strides[5];
    uint32_t checksum; /* of the bytes before it: a map that was not encoded, or was overwritten, is told apart */
} tensor_map;
_Static_assert(sizeof(tensor_map) <= 128, "must fit a CUtensorMap");

/* Checks every rule of cuTensorMapEncodeTiled (alignment, ranges, box limits, swizzle against the inner box). false
 * with the reason. (tensor_map.c) */
bool tensor_map_finish(tensor_map *map, char *error, size_t error_size);
bool tensor_map_valid(const tensor_map *map);

/* tensormap.replace: the fields that it names, as the PTX ISA's section on it has them. */
typedef enum tensor_map_field {
    TENSOR_MAP_ADDRESS,
    TENSOR_MAP_RANK, /* less 1 */
    TENSOR_MAP_BOX,
    TENSOR_MAP_SIZE,
    TENSOR_MAP_STRIDE,
    TENSOR_MAP_ELEMENT_STRIDE,
    TENSOR_MAP_TYPE,
    TENSOR_MAP_INTERLEAVE,
    TENSOR_MAP_SWIZZLE,
    TENSOR_MAP_FILL
} tensor_map_field;

/* Of dimension (or stride) `index`. false: there is no such value or dimension, or it is not modelled. */
bool tensor_map_replace(tensor_map *map, tensor_map_field field, uint32_t index, uint64_t value);

#endif
