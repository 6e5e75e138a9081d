/* SPDX-License-Identifier: MIT
 * Queries of fp4_paged_mqa_logits_sm90.cu: packed numbers, scales and weights become what tiles are multiplied with. */

/* Makes of the loaded queries what the tiles are multiplied with. Called by all math warps. */
struct QueryExpander {
    const Layout &layout;
    int stage;

    static constexpr int LANE_HEADS = (NUM_HEADS + 31) / 32;
    /* The largest weight of a slot, times the scale of its head, becomes 2^TOP or more, below 2^(TOP + 1). */
    static constexpr int TOP = 14;
    /* Smaller ones, other than 0, would lose digits. */
    static constexpr float MIN_WEIGHT = SUMS_ON_TENSOR_CORES ? 0x1p-20f : 0x1p-90f;
    /* Of a product of E5M2 operands: E5M2_BIAS of both, and the doubled ReLU. */
    static constexpr int PRODUCT_BIAS = 2 * E5M2_BIAS + (SUMS_ON_TENSOR_CORES ? 0 : 1);
    /* With powers of a slot in this range a sum of products, which is between 2^-45 and 2^38, neither overflows nor
     * loses digits before it is multiplied with the token's scale, too. */
    static constexpr int MAX_POWER = 80;
    static constexpr int NO_EXPONENT = -1000;

    __device__ __forceinline__ static int scale_of(u32 scales, int group) {
        return static_cast<int>(scales >> (8 * group) & 255);
    }

    /* e with 2^e <= |x| < 2^(e + 1). */
    __device__ __forceinline__ static int exponent_of(float x) {
        const bool subnormal = fabsf(x) < 0x1p-126f;
        const u32 bits = __float_as_uint(fabsf(subnormal ? x * 0x1p64f : x));
        return static_cast<int>(bits >> 23) - 127 - (subnormal ? 64 : 0);
    }

    /* A head's largest scale, if the others are near enough to it. */
    __device__ __forceinline__ static bool scales_are_near(u32 scales, int &largest) {
        int smallest = largest = scale_of(scales, 0);
#pragma unroll
        for (int group = 1; group < GROUPS; group++) {
            largest = max(largest, scale_of(scales, group));
            smallest = min(smallest, scale_of(scales, group));
        }
        return largest - smallest <= MAX_SHIFT && largest != NAN_SCALE;
    }

    /* Else groups of zeros need no scale, so this is the largest of the others; `tame` becomes false if some are too
     * far below it, or one is NaN. */
    __device__ __forceinline__ int largest_needed_scale(int head, bool &tame) const {
        const u32 scales = load_shared<u32>(layout.q_scales(stage) + head * 4);
        int largest = 0, smallest = NAN_SCALE;
#pragma unroll 1
        for (int group = 0; group < GROUPS; group++) {
            const uint4 words = load_shared<uint4>(layout.q(stage) + head * ROW_BYTES + 16 * group);
            const bool zero = ((words.x | words.y | words.z | words.w) & 0x77777777u) == 0;
            const int scale = scale_of(scales, group);
            tame = tame && scale != NAN_SCALE;
            largest = max(largest, zero ? 0 : scale);
            smallest = min(smallest, zero ? NAN_SCALE : scale);
        }
        tame = tame && largest - smallest <= MAX_SHIFT;
        return largest;
    }

    /* One lane of a quad: its part of a head as a row of B, K-major and swizzled over its own width as TMA would. Of a
     * wild head this is garbage. */
    __device__ __forceinline__ void expand(int slot, int head, int quad_lane) const {
        const int source = min(slot, NEXT_N - 1) * NUM_HEADS + head;
        const int row = slot * NUM_HEADS + head;
        u32 words[LANE_WORDS];
        load_words(words, layout.q(stage) + source * ROW_BYTES + 4 * LANE_WORDS * quad_lane);
        const u32 scales = shared_pointer<u32>(layout.q_scales(stage))[source];
        const int scale = scale_of(scales, group_of(quad_lane));
        int largest;
        const bool near = scales_are_near(scales, largest);
        int shift = largest - scale;
        if (__any_sync(FULL_WARP, !near)) {
            const bool needed = group_is_not_zero(words) != 0;
            int needed_largest = needed ? scale : 0;
            needed_largest = max(needed_largest, __shfl_xor_sync(FULL_WARP, needed_largest, 1));
            needed_largest = max(needed_largest, __shfl_xor_sync(FULL_WARP, needed_largest, 2));
            if (!near)
                shift = needed ? needed_largest - scale : 0;
        }
        const E2m1Constants constants;
        const uint2 table = e5m2_table(static_cast<u32>(shift & 15), constants);
        const int flip = HEAD_DIM == 128 ? row & 7 : row >> 1 & 3; /* of the 16-byte chunks */
        u32 *destination = shared_pointer<u32>(layout.expanded() + row * HEAD_DIM);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const E5m2Octet bytes = e2m1_to_negated_e5m2(words[step], table, constants);
            destination[4 * (2 * step ^ flip) + quad_lane] = bytes.low;
            destination[4 * ((2 * step + 1) ^ flip) + quad_lane] = bytes.high;
        }
    }

    /* One warp: exponent, weights and limit of a slot. */
    __device__ __forceinline__ void weigh(int slot) const {
        const int source = min(slot, NEXT_N - 1);
        float weights[LANE_HEADS];
        int largest[LANE_HEADS];
        bool tame = true;
        int top = NO_EXPONENT;
#pragma unroll
        for (int i = 0; i < LANE_HEADS; i++) {
            const int head = 32 * i + lane_id();
            weights[i] = 0.f;
            largest[i] = 0;
            if (head < NUM_HEADS) {
                const u32 scales = load_shared<u32>(layout.q_scales(stage) + (source * NUM_HEADS + head) * 4);
                if (!scales_are_near(scales, largest[i]))
                    largest[i] = largest_needed_scale(source * NUM_HEADS + head, tame);
                weights[i] = shared_pointer<float>(layout.weights(stage))[source * NUM_HEADS + head];
                tame = tame && fabsf(weights[i]) < __int_as_float(0x7f800000);
                top = max(top, weights[i] == 0.f ? NO_EXPONENT : exponent_of(weights[i]) + largest[i]);
            }
        }
        top = __reduce_max_sync(FULL_WARP, top);
#pragma unroll
        for (int i = 0; i < LANE_HEADS; i++) {
            const int head = 32 * i + lane_id();
            const float scaled = scale_by_power(weights[i], largest[i] - top + TOP);
            tame = tame && (weights[i] == 0.f || fabsf(scaled) >= MIN_WEIGHT);
            if (head < NUM_HEADS) /* not below 2^15: NaN and infinity */
                store_weight(slot, head, fabsf(scaled) < 0x1p15f ? scaled : 0.f);
        }
        const int power = top == NO_EXPONENT ? 0 : top - 127 - TOP - PRODUCT_BIAS;
        tame = __all_sync(FULL_WARP, tame) && power >= -MAX_POWER && power <= MAX_POWER;
        if (lane_id() == 0) {
            const int limit = shared_pointer<int>(layout.limits(stage))[source];
            shared_pointer<float>(layout.powers())[slot] = power_of_two(clamp(power, -MAX_POWER, MAX_POWER));
            shared_pointer<int>(layout.tame_limits())[slot] = tame && slot < NEXT_N ? limit : 0;
        }
    }

    __device__ __forceinline__ void store_weight(int slot, int head, float weight) const {
        if constexpr (HEAD_SUMS == BY_MMA) {
            SplitWeights<NUM_HEADS>::store(shared_pointer<u32>(layout.made_weights(slot)), head, split_weight(weight));
        } else if constexpr (HEAD_SUMS == BY_WGMMA) {
            const int in_pair = slot % CHUNK_SLOTS % 2;
            ChunkPair::store_weight(layout.made_weights(slot), in_pair, head, split_weight(weight));
            if (CHUNK_SLOTS > 1 && CHUNK_SLOTS % 2 != 0 && slot % CHUNK_SLOTS == CHUNK_SLOTS - 1)
                ChunkPair::store_weight(layout.made_weights(slot), 1, head, SplitWeight{0, 0});
        } else {
            shared_pointer<float>(layout.made_weights(slot))[head] = weight;
        }
    }

    __device__ __forceinline__ void run(int thread) const {
        /* At the same time, by those warps that have least to expand. */
        for (int slot = MATH_WARPS - 1 - thread / 32; slot < SLOTS; slot += MATH_WARPS)
            weigh(slot);
        for (int unit = thread; unit < SLOTS * NUM_HEADS * 4; unit += MATH_THREADS)
            expand(unit / (4 * NUM_HEADS), unit / 4 % NUM_HEADS, unit % 4);
        fence_async_shared();
        named_barrier_sync(1, MATH_THREADS);
    }
};
