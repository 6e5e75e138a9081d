/* SPDX-License-Identifier: MIT
 *
 * Tensor maps. The 128 bytes hold this machine's own encoding. */
#include "driver_state.h"

#include <string.h>

#include "access.h"
#include "tensor_map.h"

/* 0: not modelled. */
static uint8_t element_bytes(CUtensorMapDataType type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
        return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

static access_kind element_kind(CUtensorMapDataType type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
        return ACCESS_SIGNED;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        return ACCESS_HALF;
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return ACCESS_BF16;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return ACCESS_FLOAT;
    default:
        return ACCESS_UNSIGNED;
    }
}

static const char *fill(tensor_map *map, CUtensorMapDataType type, cuuint32_t rank, const void *address,
                        const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                        const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                        CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill_kind) {
    static const uint8_t swizzles[] = {[CU_TENSOR_MAP_SWIZZLE_NONE] = 0,
                                       [CU_TENSOR_MAP_SWIZZLE_32B] = 32,
                                       [CU_TENSOR_MAP_SWIZZLE_64B] = 64,
                                       [CU_TENSOR_MAP_SWIZZLE_128B] = 128};
    if (!element_bytes(type))
        return "tensorDataType: not modelled";
    if (rank < 1 || rank > 5)
        return "tensorRank: accepted: 1 to 5";
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return "interleave: only NONE is modelled";
    if ((unsigned)swizzle >= sizeof swizzles)
        return "swizzle: accepted: NONE, 32B, 64B, 128B";
    if ((unsigned)promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
        return "l2Promotion: not a value of its type";
    bool is_float = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
                    type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    if (fill_kind != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_float)
        return "oobFill: NaN is for floating point types";
    map->rank = (uint8_t)rank;
    map->element_bytes = element_bytes(type);
    map->kind = (uint8_t)element_kind(type);
    map->swizzle_bytes = swizzles[swizzle];
    map->fill_nan = fill_kind != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    map->address = (uint64_t)(uintptr_t)address;
    for (cuuint32_t i = 0; i < rank; i++) {
        /* 2^32 itself is allowed, but no tensor of one has been seen. */
        if (sizes[i] < 1 || sizes[i] > UINT32_MAX)
            return "globalDim: accepted: 1 to 2^32-1";
        map->sizes[i] = (uint32_t)sizes[i];
        map->boxes[i] = box[i];
        map->element_strides[i] = element_strides[i];
        if (i + 1 < rank)
            map->strides[i] = strides[i];
    }
    return NULL;
}

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill_kind) {
    char error[256];
    tensor_map map;
    memset(&map, 0, sizeof map);
    if (!out || !sizes || !box || !element_strides || (rank > 1 && !strides))
        return CUDA_ERROR_INVALID_VALUE;
    const char *defect = fill(&map, type, rank, address, sizes, strides, box, element_strides, interleave, swizzle,
                              promotion, fill_kind);
    if (!defect && !tensor_map_finish(&map, error, sizeof error))
        defect = error;
    if (defect) {
        driver_say("cuTensorMapEncodeTiled: %s", defect);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return CUDA_SUCCESS;
}
