/* SPDX-License-Identifier: MIT
 * Where fp4_paged_mqa_logits_sm90.cu finds a tile's keys and scales in shared memory, and which numbers are a
 * lane's. */

/* A lane expands LANE_WORDS words of a row: numbers [lane * D/4, + D/4) for lane 0..3 of a quad. Where the D numbers
 * lie along wgmma's K is arbitrary, if it is the same for keys and queries: word j becomes the bytes 4 * lane + {0..3}
 * and 16 + 4 * lane + {0..3} of K step j, which is where the A operand wants them. */
__device__ __forceinline__ int group_of(int quad_lane) {
    return quad_lane * GROUPS / 4;
}

__device__ __forceinline__ void load_words(u32 (&words)[LANE_WORDS], u32 own) {
    if constexpr (LANE_WORDS == 4) {
        const uint4 loaded = load_shared<uint4>(own);
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
    } else {
        const uint2 loaded = load_shared<uint2>(own);
        words[0] = loaded.x, words[1] = loaded.y;
    }
}

/* The same under a predicate, without a branch; else the words stay as they are. */
__device__ __forceinline__ void load_words_if(bool condition, u32 (&words)[LANE_WORDS], u32 own) {
    if constexpr (LANE_WORDS == 4)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                     : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
                     : "r"(own), "r"(static_cast<int>(condition))
                     : "memory");
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p ld.shared.v2.u32 {%0, %1}, [%2];\n}"
                     : "+r"(words[0]), "+r"(words[1])
                     : "r"(own), "r"(static_cast<int>(condition))
                     : "memory");
}

/* Not 0 if some number of the group that these words belong to is not. By all lanes of a quad. */
__device__ __forceinline__ u32 group_is_not_zero(const u32 (&words)[LANE_WORDS]) {
    u32 any = 0;
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++)
        any |= words[i] & 0x77777777u;
    if (GROUPS == 2)
        any |= __shfl_xor_sync(FULL_WARP, any, 1);
    return any;
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

/* Bytes from the scales of row r to those of row r + 8. */
constexpr int EIGHT_ROWS_OF_SCALES = SCALES_INTERLEAVED ? 8 * 4 * GROUPS : 8 * GROUPS;

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

/* The scales of two rows, the first in the lower halves of the words: this lane's quarter's, the largest of each row, and
 * how far the own one is below it. Lanes of a quad exchange theirs, as units that could find the largest of four bytes in
 * a lane are busy. */
struct ScalePair {
    u32 own, largest, shifts;

    /* `scales`: of the first row and this lane's quarter. */
    __device__ __forceinline__ void load(u32 scales) {
        own = load_shared<unsigned char>(scales + EIGHT_ROWS_OF_SCALES) * 0x10000u +
              load_shared<unsigned char>(scales);
    }
    /* Anything if not `condition`, and without a branch. */
    __device__ __forceinline__ void load_if(bool condition, u32 scales) {
        u32 first, second;
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
                     "@p ld.shared.u8 %0, [%2];\n@p ld.shared.u8 %1, [%3];\n}"
                     : "=r"(first), "=r"(second)
                     : "r"(scales), "r"(scales + EIGHT_ROWS_OF_SCALES), "r"(static_cast<int>(condition))
                     : "memory");
        own = second * 0x10000u + first;
    }

    __device__ __forceinline__ void exchange() {
        largest = GROUPS == 4 ? max_pair(own, __shfl_xor_sync(FULL_WARP, own, 1)) : own;
        largest = max_pair(largest, __shfl_xor_sync(FULL_WARP, largest, 2));
        shifts = largest - own;
    }

    /* Some of these bits are set if a shift is above MAX_SHIFT or a scale is NaN. */
    static constexpr u32 SUSPICIOUS = 0x80008000u;

    __device__ __forceinline__ u32 suspicious() const {
        return (shifts + (0x7fffu - MAX_SHIFT) * 0x10001u) | (largest + (0x8000u - NAN_SCALE) * 0x10001u);
    }
};
