/* SPDX-License-Identifier: MIT
 * A math warp's keys in fp4_paged_mqa_logits_sm90.cu, from the KV ring to wgmma's A operand.
 *
 * While the products of one tile are under way the keys of the warpgroup's next tile are loaded, if they have arrived,
 * and their scales exchanged: without a branch, as ptxas serialises wgmmas that are in flight over one (advice C7518).
 * So a warp seldom waits where it has nothing else to do. */

struct KeyRing {
    const CommonArguments &args;

    u32 stage; /* of the current tile */
    u32 next_stage;
    u32 parity;    /* of the next tile once look_ahead() was there, else of the current one */
    u32 end, back; /* of the ring, and from there to its start */

    /* In a stage, this lane's part of row r: keys, and scales. */
    u32 own_key, own_scales;
    E2m1Constants constants;

    /* Of the next tile, if `ahead`: the packed keys of rows r and r + 8. */
    u32 words[2][LANE_WORDS];
    ScalePair scales;
    bool ahead;

    /* As wgmma's A operand. */
    struct Keys {
        u32 a[STEPS][4];
        u32 largest;    /* scale of row r in the lower half, of row r + 8 in the upper */
        u32 suspicious; /* ScalePair's, of the scales that this lane has seen */
    };

    __device__ __forceinline__ void start(const Layout &layout, int first) {
        const int r = warp_row() + lane_id() / 4;
        own_key = key_at(0, r) + (lane_id() & 3) * 4 * LANE_WORDS;
        own_scales = key_scales_at(0, r, 0) + group_of(lane_id() & 3);
        stage = layout.stage(first);
        parity = 0;
        end = layout.stage(args.stages);
        back = layout.stage(0) - end;
        constants.sign_halves = not_computed_again(hidden_constant(constants.sign_halves));
        ahead = false;
        if (CHUNKS == 1) { /* else registers are short */
            keep(own_key);
            own_scales = not_computed_again(own_scales);
            keep(end);
            back = not_computed_again(back);
        }
        if (CHUNKS == 1 && HEAD_SUMS != ON_FP32_UNITS) {
            constants.table_step_low = not_computed_again(hidden_constant(constants.table_step_low));
            constants.table_step_high = not_computed_again(hidden_constant(constants.table_step_high));
            constants.half_picker = not_computed_again(hidden_constant(constants.half_picker));
        }
    }

    /* While products are under way; to be followed by exchange(). */
    __device__ __forceinline__ void look_ahead() {
        next_stage = stage + MATH_WARPGROUPS * Layout::STAGE_BYTES;
        /* Predicated, as selections take twice the instructions. */
        asm("{\n.reg .pred p;\nsetp.ge.u32 p, %0, %2;\n@p add.u32 %0, %0, %3;\n@p xor.b32 %1, %1, 1;\n}"
            : "+r"(next_stage), "+r"(parity)
            : "r"(end), "r"(back));
        ahead = __all_sync(FULL_WARP, mbarrier_test(next_stage + Layout::FULL_AT, parity)); /* all lanes or none */
        if (!SCALES_INTERLEAVED)
            scales.load_if(ahead, next_stage + own_scales);
        load_words_if(ahead, words[0], next_stage + own_key);
        load_words_if(ahead, words[1], next_stage + own_key + 8 * ROW_BYTES);
    }
    __device__ __forceinline__ void exchange() {
        if (!SCALES_INTERLEAVED)
            scales.exchange();
    }

    /* The current tile's packed keys, if they were not loaded ahead. */
    __device__ __forceinline__ void load() {
        mbarrier_wait(stage + Layout::FULL_AT, parity);
        if (!SCALES_INTERLEAVED)
            scales.load(stage + own_scales);
        load_words(words[0], stage + own_key);
        load_words(words[1], stage + own_key + 8 * ROW_BYTES);
        exchange();
    }

    /* The current tile's keys; `start`: its first token. */
    __device__ __forceinline__ Keys take(int start) {
        if (SCALES_INTERLEAVED) { /* where they lie depends on the token, which is not known ahead */
            scales.load(stage + own_scales + start / TILE_TOKENS % 2 * 2 * GROUPS);
            scales.exchange();
        }
        Keys keys;
        keys.largest = scales.largest;
        keys.suspicious = scales.suspicious();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            /* Of a wild token this is garbage, which is not stored. */
            const uint2 table = e5m2_table(half_of(scales.shifts, half != 0, constants), constants);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                const E5m2Octet octet = e2m1_to_negated_e5m2(words[half][step], table, constants);
                keys.a[step][half] = octet.low;
                keys.a[step][half + 2] = octet.high;
            }
        }
        return keys;
    }

    /* Which of the lane's two rows are wild (bit 0: row r, bit 1: row r + 8), if some scale is suspicious. A group of
     * zeros that is too far below the largest needs no scale, though. */
    __device__ __forceinline__ u32 wild_rows(int start) const {
        const int r = warp_row() + lane_id() / 4;
        ScalePair pair;
        pair.load(key_scales_at(stage, r, start) + group_of(lane_id() & 3));
        pair.exchange();
        u32 wild = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 packed[LANE_WORDS];
            load_words(packed, key_at(stage, r + 8 * half) + (lane_id() & 3) * 4 * LANE_WORDS);
            const u32 any = group_is_not_zero(packed);
            const int largest = static_cast<int>(pair.largest >> (16 * half) & 0xffff);
            const int shift = static_cast<int>(pair.shifts >> (16 * half) & 0xffff);
            if (largest == NAN_SCALE || (shift > MAX_SHIFT && any != 0))
                wild |= 1u << half;
        }
        return quad_or(wild);
    }

    /* One arrival for each warp, once all its lanes have read; after look_ahead(). */
    __device__ __forceinline__ void release() {
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(stage + Layout::EMPTY_AT);
        stage = next_stage;
    }
};
