/* SPDX-License-Identifier: MIT
 * Where fp4_paged_mqa_logits_sm90.cu finds a tile's keys and scales in shared memory, and which numbers are a lane's. */

/* A lane expands LANE_WORDS words of a row: numbers [lane * D/4, + D/4) for lane 0..3 of a quad. Where the D numbers lie along
 * wgmma's K is arbitrary, if it is the same for keys and queries: word j becomes the bytes 4 * lane + {0..3} and
 * 16 + 4 * lane + {0..3} of K step j, which is where the A operand wants them. */
__device__ __forceinline__ int group_of(int quad_lane) {
    return quad_lane * GROUPS / 4;
}

__device__ __forceinline__ void load_words(u32 (&words)[LANE_WORDS], u32 row, int quad_lane) {
    if constexpr (LANE_WORDS == 4) {
        const uint4 loaded = load_shared<uint4>(row + 16 * quad_lane);
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
    } else {
        const uint2 loaded = load_shared<uint2>(row + 8 * quad_lane);
        words[0] = loaded.x, words[1] = loaded.y;
    }
}

/* A math warp's first row of a tile. */
__device__ __forceinline__ int warp_row() {
    return static_cast<int>(threadIdx.x / 32 % 4) * 16;
}

/* Row r of the tile at an address. */
__device__ __forceinline__ u32 key_at(u32 tile, int r) {
    return tile + r * ROW_BYTES;
}

/* Its scales, if the tile starts at token `start`. */
__device__ __forceinline__ u32 key_scales_at(u32 tile, int r, int start) {
    const u32 scales = tile + Layout::SCALES_AT;
    if constexpr (SCALES_INTERLEAVED) {
        const int token = start % BLOCK_SIZE + r;
        return scales + (token % (BLOCK_SIZE / 4) * 4 + token / (BLOCK_SIZE / 4)) * GROUPS;
    } else {
        return scales + r / BOX_TOKENS * BOX_SCALE_PITCH + r % BOX_TOKENS * GROUPS;
    }
}

/* Packed pairs of 16-bit numbers. */
__device__ __forceinline__ u32 max_pair(u32 x, u32 y) {
    u32 z;
    asm("max.u16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
__device__ __forceinline__ u32 quad_or(u32 x) {
    x |= __shfl_xor_sync(FULL_WARP, x, 1);
    return x | __shfl_xor_sync(FULL_WARP, x, 2);
}

/* The scales of two rows, the first in the lower halves of the words: the largest of each row's, and how far the one of
 * this lane's quarter is below it. */
struct ScalePair {
    u32 largest, shifts;

    /* From what load() has read of either row. */
    __device__ __forceinline__ ScalePair(u32 x, u32 y, u32 own_selector) {
        constexpr u32 BYTES = 0x00ff00ffu;
        u32 own;
        if constexpr (GROUPS == 4) {
            const u32 lower = permute_bytes(x, y, 0x5410);
            const u32 upper = permute_bytes(x, y, 0x7632);
            largest = max_pair(max_pair(lower & BYTES, lower >> 8 & BYTES), max_pair(upper & BYTES, upper >> 8 & BYTES));
            own = permute_bytes(x, y, own_selector) & BYTES;
        } else {
            const u32 both = x | y << 16;
            largest = max_pair(both & BYTES, both >> 8 & BYTES);
            own = permute_bytes(both, 0, own_selector);
        }
        shifts = largest - own;
    }

    __device__ __forceinline__ static u32 load(u32 scales) {
        return GROUPS == 4 ? load_shared<u32>(scales) : load_shared<unsigned short>(scales);
    }

    /* The bytes that are a lane's quarter's, for permute_bytes. */
    __device__ __forceinline__ static u32 selector(int quarter) {
        return GROUPS == 4 ? quarter * 0x1111 + 0x4400 : group_of(quarter) * 0x0101 + 0x4240;
    }

    /* Some of these bits are set if a shift is above MAX_SHIFT or a scale is NaN. */
    static constexpr u32 SUSPICIOUS = 0x80008000u;

    __device__ __forceinline__ u32 suspicious() const {
        return (shifts + (0x7fffu - MAX_SHIFT) * 0x10001u) | (largest + (0x8000u - NAN_SCALE) * 0x10001u);
    }
};
