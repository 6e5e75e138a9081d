/* SPDX-License-Identifier: MIT
 * The epilogue of fp4_paged_mqa_logits_sm90.cu, on FP32 units or on the tensor cores. */

/* Sums over the heads of a chunk's slots, and the weights for them. One lane ends up with one row (token) of one slot:
 * lane & 1 chooses between rows r and r + 8 of its quad, lane & 2 between the slots of a pair. */
template <bool ON_TENSOR_CORES> struct HeadSums;

template <> struct HeadSums<false> {
    HeadWeights<NUM_HEADS, SLOTS, false> weights;
    RowPair sums[CHUNK_SLOTS];

    __device__ __forceinline__ void load_weights(const Layout &layout) {
        weights.load(shared_pointer<float>(layout.made_weights(0)), SLOTS - 1);
    }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            sums[s] = RowPair{0.f, 0.f};
    }
    /* `slot`: the chunk's first. */
    __device__ __forceinline__ void take(const float *acc, int slot) {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            sums[s] = head_sum<NUM_HEADS>(acc, s, weights, slot + s);
    }
    __device__ __forceinline__ void finish() {
    }
    /* Of the pair of slots from the chunk's slot s on. */
    __device__ __forceinline__ float own(int s) const {
        const bool upper = lane_id() & 2;
        const float low = reduce_rows(sums[s]);
        const float high = s + 1 < CHUNK_SLOTS ? reduce_rows(sums[s + 1]) : low;
        return (upper ? high : low) + __shfl_xor_sync(FULL_WARP, upper ? low : high, 2);
    }
};

template <> struct HeadSums<true> {
    static constexpr bool HELD = CHUNKS == 1 && CHUNK_SLOTS <= 4; /* in registers */
    static constexpr int PAIRS = (CHUNK_SLOTS + 1) / 2;

    u32 own_weights[2]; /* of the first slot, if that had an even and an odd number */
    u32 held[HELD ? CHUNK_SLOTS : 1][NUM_HEADS / 8];
    u32 scores[HELD ? CHUNK_SLOTS : 1][NUM_HEADS / 4];
    float sums[PAIRS][4];

    __device__ __forceinline__ void load(u32 (&words)[NUM_HEADS / 8], int slot, int odd) const {
        SplitWeights<NUM_HEADS>::load(words, own_weights[odd] + slot * Layout::MADE_SLOT_BYTES);
    }
    __device__ __forceinline__ void load_weights(const Layout &layout) {
        own_weights[0] = layout.made_weights(0) + SplitWeights<NUM_HEADS>::own(false);
        own_weights[1] = layout.made_weights(0) + SplitWeights<NUM_HEADS>::own(true);
#pragma unroll
        for (int s = 0; HELD && s < CHUNK_SLOTS; s++)
            load(held[s], s, s & 1);
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
    }
    __device__ __forceinline__ void start() {
        clear();
#pragma unroll
        for (int i = 0; HELD && i < CHUNK_SLOTS * NUM_HEADS / 4; i++)
            scores[i / (NUM_HEADS / 4)][i % (NUM_HEADS / 4)] = 0;
    }
    /* Products of mma.sync wait for each other and for wgmmas. If weights are in registers they are put off until the
     * next tile's keys are expanded, which covers that. `slot`: the chunk's first. */
    __device__ __forceinline__ void take(const float *acc, int slot) {
        if (!HELD)
            clear();
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++) {
            u32 (&taken)[NUM_HEADS / 4] = scores[HELD ? s : 0];
            take_scores<NUM_HEADS>(taken, acc + s * (NUM_HEADS / 2));
            if constexpr (!HELD) {
                u32 words[NUM_HEADS / 8];
                load(words, slot + s, s & 1);
                add_heads<NUM_HEADS>(sums[s / 2], taken, words);
            }
        }
    }
    __device__ __forceinline__ void finish() {
        if constexpr (HELD) {
            clear();
#pragma unroll
            for (int s = 0; s < CHUNK_SLOTS; s++)
                add_heads<NUM_HEADS>(sums[s / 2], scores[s], held[s]);
        }
    }
    __device__ __forceinline__ float own(int s) const {
        return own_sum(sums[s / 2]);
    }
};
