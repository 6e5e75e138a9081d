/* SPDX-License-Identifier: MIT
 * The epilogue of fp4_paged_mqa_logits_sm90.cu, on FP32 units or on the tensor cores. */

/* Sums over the heads of a chunk's slots, and the weights for them. One lane ends up with one row (token) of one slot:
 * lane & 1 chooses between rows r and r + 8 of its quad, lane & 2 between the slots of a pair. take() has what a
 * chunk's products are. The sums are there at once, or, on tensor cores, after multiply(), with the chunk's first slot,
 * and finish(), which lasts as long as those products. */
template <int> struct HeadSums; /* by HEAD_SUMS */

template <> struct HeadSums<ON_FP32_UNITS> {
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
    __device__ __forceinline__ void multiply(int) {}
    __device__ __forceinline__ void finish() {}
    /* Of the pair of slots from the chunk's slot s on. */
    __device__ __forceinline__ float own(int s) const {
        const bool upper = lane_id() & 2;
        const float low = reduce_rows(sums[s]);
        const float high = s + 1 < CHUNK_SLOTS ? reduce_rows(sums[s + 1]) : low;
        return (upper ? high : low) + __shfl_xor_sync(FULL_WARP, upper ? low : high, 2);
    }
};

template <> struct HeadSums<BY_MMA> {
    u32 weights[CHUNK_SLOTS][NUM_HEADS / 8];
    u32 scores[CHUNK_SLOTS][NUM_HEADS / 4];
    float sums[CHUNK_PAIRS][4];

    __device__ __forceinline__ void load_weights(const Layout &layout) {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            SplitWeights<NUM_HEADS>::load(weights[s], layout.made_weights(s) + SplitWeights<NUM_HEADS>::own(s & 1));
    }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int i = 0; i < CHUNK_SLOTS * NUM_HEADS / 4; i++)
            scores[i / (NUM_HEADS / 4)][i % (NUM_HEADS / 4)] = 0;
    }
    __device__ __forceinline__ void take(const float *acc, int) {
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            take_scores<NUM_HEADS>(scores[s], acc + s * (NUM_HEADS / 2));
    }
    __device__ __forceinline__ void multiply(int) {}
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < CHUNK_PAIRS; i++)
            sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
#pragma unroll
        for (int s = 0; s < CHUNK_SLOTS; s++)
            add_heads<NUM_HEADS>(sums[s / 2], scores[s], weights[s]);
    }
    __device__ __forceinline__ float own(int s) const {
        return own_sum(sums[s / 2]);
    }
};

template <> struct HeadSums<BY_WGMMA> {
    typedef ChunkPair Pair;
    static constexpr int PAIRS = CHUNK_PAIRS;

    Pair pairs[PAIRS];
    u32 weights; /* descriptor of the first pair's */

    __device__ __forceinline__ static constexpr int slots_of(int pair) {
        return CHUNK_SLOTS - 2 * pair < 2 ? 1 : 2;
    }

    __device__ __forceinline__ void load_weights(const Layout &layout) {
        weights = __shfl_sync(FULL_WARP, Pair::descriptor_low(layout.made_weights(0)), 0);
    }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            pairs[i].clear();
    }
    __device__ __forceinline__ void take(const float *acc, int) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            pairs[i].take(acc + i * NUM_HEADS, slots_of(i));
    }
    __device__ __forceinline__ void multiply(int slot) {
        u32 own_weights = weights;
        if (CHUNKS > 1)
            own_weights += static_cast<u32>(slot / CHUNK_SLOTS * (PAIRS * Pair::WEIGHT_BYTES / 16));
        keep(own_weights);
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            pairs[i].pin_scores();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            pairs[i].multiply(own_weights + i * (Pair::WEIGHT_BYTES / 16), slots_of(i));
        wgmma_commit();
    }
    __device__ __forceinline__ void finish() {
        wgmma_wait_all();
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            pairs[i].pin_sums();
    }
    __device__ __forceinline__ float own(int s) const {
        return own_sum(pairs[s / 2].sums);
    }
};
