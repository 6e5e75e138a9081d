/* SPDX-License-Identifier: MIT
 * How fp4_paged_mqa_logits_sm90.cu gets a tile's keys and scales from shared memory, and which numbers are a lane's. */

/* A lane expands LANE_WORDS words of a row: numbers [lane * D/4, + D/4) for lane 0..3 of a quad. Where the D numbers
 * lie along wgmma's K is arbitrary, if it is the same for keys and queries: word j becomes the bytes 4 * lane + {0..3}
 * and 16 + 4 * lane + {0..3} of K step j, which is where the A operand wants them. */
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

/* A lane's words under a predicate, without a branch; else they stay as they are. */
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

/* The scales of two rows, the first in the lower halves of the words: the largest of each row's, and how far the one of
 * this lane's quarter is below it. Lanes of a quad exchange theirs, as units that could find the largest of four bytes
 * in a lane are busy. */
struct ScalePair {
    u32 largest, shifts;

    ScalePair() = default;
    /* `own`: from load(). */
    __device__ __forceinline__ explicit ScalePair(u32 own) {
        largest = GROUPS == 4 ? max_pair(own, __shfl_xor_sync(FULL_WARP, own, 1)) : own;
        largest = max_pair(largest, __shfl_xor_sync(FULL_WARP, largest, 2));
        shifts = largest - own;
    }

    /* Of two rows; `scales`: of the first row and this lane's quarter. Anything if not `condition`. */
    __device__ __forceinline__ static u32 load_if(bool condition, u32 scales) {
        u32 first, second;
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n@p ld.shared.u8 %0, [%2];\n@p ld.shared.u8 %1, [%3];\n}"
                     : "=r"(first), "=r"(second)
                     : "r"(scales), "r"(scales + EIGHT_ROWS_OF_SCALES), "r"(static_cast<int>(condition))
                     : "memory");
        return second * 0x10000u + first;
    }
    __device__ __forceinline__ static u32 load(u32 scales) {
        return load_if(true, scales);
    }

    /* Some of these bits are set if a shift is above MAX_SHIFT or a scale is NaN. */
    static constexpr u32 SUSPICIOUS = 0x80008000u;

    __device__ __forceinline__ u32 suspicious() const {
        return (shifts + (0x7fffu - MAX_SHIFT) * 0x10001u) | (largest + (0x8000u - NAN_SCALE) * 0x10001u);
    }
};

/* A warp's keys, from the KV ring to wgmma's A operand. While the products of one tile are under way, those of its next
 * one are loaded if they have arrived, and their scales exchanged: without a branch, as ptxas serialises wgmmas that are
 * in flight over one (advice C7518). A stage stays the warp's until release(), as wild scores are computed from it. */
struct KeyRing {
    const CommonArguments &args;

    u32 stage, parity; /* of the current tile */
    u32 next_stage, next_parity;
    u32 end, bytes; /* of the ring */

    /* In a stage, this lane's part of row r: keys, and scales. */
    u32 own_key, own_scales;
    u32 halves; /* for e2m1_to_negated_e5m2 */

    /* Of the next tile, once it is the current one, or if `ahead`: packed keys of rows r and r + 8. */
    u32 words[2][LANE_WORDS];
    ScalePair scales;
    bool ahead;

    /* As wgmma's A operand. */
    struct Keys {
        u32 a[STEPS][4];
        u32 largest;    /* scale of row r in the lower half, of row r + 8 in the upper */
        u32 suspicious; /* of the scales that this lane has seen */
    };

    __device__ __forceinline__ void start(const Layout &layout, int first) {
        const int r = warp_row() + lane_id() / 4;
        own_key = key_at(0, r) + (lane_id() & 3) * 4 * LANE_WORDS;
        own_scales = key_scales_at(0, r, 0) + group_of(lane_id() & 3);
        stage = layout.stage(first);
        parity = 0;
        bytes = static_cast<u32>(args.stages) * Layout::STAGE_BYTES;
        end = layout.stage(0) + bytes;
        halves = hidden_constant(0x40404040u);
        ahead = false;
        if (CHUNKS == 1) { /* else registers are short */
            keep(own_key);
            keep(own_scales);
            keep(end);
        }
    }

    __device__ __forceinline__ void load_if(bool condition, u32 from) {
        u32 own = 0;
        if (!SCALES_INTERLEAVED)
            own = ScalePair::load_if(condition, from + own_scales);
        load_words_if(condition, words[0], from + own_key);
        load_words_if(condition, words[1], from + own_key + 8 * ROW_BYTES);
        scales.largest = own;
    }

    /* To be followed by exchange(), after what should be done before the loads are waited for. */
    __device__ __forceinline__ void look_ahead() {
        next_stage = stage + MATH_WARPGROUPS * Layout::STAGE_BYTES;
        next_parity = parity;
        /* Predicated, as selections take twice the instructions. */
        asm("{\n.reg .pred p;\nsetp.ge.u32 p, %0, %2;\n@p sub.u32 %0, %0, %3;\n@p xor.b32 %1, %1, 1;\n}"
            : "+r"(next_stage), "+r"(next_parity)
            : "r"(end), "r"(bytes));
        ahead = mbarrier_test(next_stage + Layout::FULL_AT, next_parity);
        load_if(ahead, next_stage);
    }
    __device__ __forceinline__ void exchange() {
        if (!SCALES_INTERLEAVED)
            scales = ScalePair(scales.largest);
    }

    /* The current tile's keys; `first`: its first token. */
    __device__ __forceinline__ Keys take(int first) {
        if (!ahead) {
            mbarrier_wait(stage + Layout::FULL_AT, parity);
            load_if(true, stage);
            exchange();
        }
        if (SCALES_INTERLEAVED) /* where they lie depends on the token, which is not known ahead */
            scales = ScalePair(ScalePair::load(stage + own_scales + first / TILE_TOKENS % 2 * 2 * GROUPS));
        Keys keys;
        keys.largest = scales.largest;
        keys.suspicious = scales.suspicious();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            /* Of a wild token this is garbage, which is not stored. */
            const uint2 table = e5m2_table(half == 0 ? scales.shifts & 0xffff : scales.shifts >> 16);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                const E5m2Octet bytes = e2m1_to_negated_e5m2(words[half][step], table, halves);
                keys.a[step][half] = bytes.low;
                keys.a[step][half + 2] = bytes.high;
            }
        }
        return keys;
    }

    /* Which of the lane's two rows are wild (bit 0: row r, bit 1: row r + 8), if some scale is suspicious. A group of
     * zeros that is too far below the largest needs no scale, though. */
    __device__ __forceinline__ u32 wild_rows(int first) const {
        const int r = warp_row() + lane_id() / 4;
        const ScalePair pair(ScalePair::load(key_scales_at(stage, r, first) + group_of(lane_id() & 3)));
        u32 wild = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 packed[LANE_WORDS];
            load_words(packed, key_at(stage, r + 8 * half), lane_id() & 3);
            u32 any = 0;
#pragma unroll
            for (int i = 0; i < LANE_WORDS; i++)
                any |= packed[i] & 0x77777777u;
            if (GROUPS == 2)
                any |= __shfl_xor_sync(FULL_WARP, any, 1);
            const int largest = static_cast<int>(pair.largest >> (16 * half) & 0xffff);
            const int shift = static_cast<int>(pair.shifts >> (16 * half) & 0xffff);
            if (largest == NAN_SCALE || (shift > MAX_SHIFT && any != 0))
                wild |= 1u << half;
        }
        return quad_or(wild);
    }

    /* One arrival for each warp, once all its lanes have read. */
    __device__ __forceinline__ void release() {
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(stage + Layout::EMPTY_AT);
        stage = next_stage;
        parity = next_parity;
    }
};
