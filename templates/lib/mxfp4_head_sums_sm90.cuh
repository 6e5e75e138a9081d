/* SPDX-License-Identifier: MIT
 * The epilogue of fp4_paged_mqa_logits_sm90.cu, on FP32 units or on the tensor cores. */

/* Sums over the heads of a chunk's slots, and the weights for them. One lane ends up with one row (token) of one slot: lane & 1
 * chooses between rows r and r + 8 of its quad, lane & 2 between the slots of a pair. take() has what a chunk's products are;
 * the sums are there at once, or, on tensor cores, after the products between multiply() and finish(). */
template <bool ON_TENSOR_CORES> struct HeadSums;

template <> struct HeadSums<false> {
    static constexpr int HEAD_BYTES = 4; /* of weights in shared memory */
    static constexpr int CHUNK_BYTES = CHUNK_SLOTS * NUM_HEADS * HEAD_BYTES;

    HeadWeights<NUM_HEADS, SLOTS, false> weights;
    RowPair sums[CHUNK_SLOTS];

    __device__ __forceinline__ static void store_weight(unsigned char *weights, int slot, int head, float weight) {
        reinterpret_cast<float *>(weights)[slot * NUM_HEADS + head] = weight;
    }
    __device__ __forceinline__ void start(const Layout &layout) {
        weights.load(shared_pointer<float>(layout.made_weights()), SLOTS - 1);
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
    __device__ __forceinline__ void prepare() {
    }
    __device__ __forceinline__ void multiply(int) {
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
    typedef WeightedHeads<NUM_HEADS, CHUNK_SLOTS> Heads;
    static constexpr int HEAD_BYTES = 16;
    static constexpr int CHUNK_BYTES = Heads::WEIGHT_BYTES;

    Heads heads;
    u32 weights; /* of the first chunk */
    float sums[Heads::PAIRS];

    __device__ __forceinline__ static void store_weight(unsigned char *weights, int slot, int head, float weight) {
        Heads::store_weight(weights, slot, head, split_weight(weight));
    }
    __device__ __forceinline__ void start(const Layout &layout) {
        weights = __shfl_sync(FULL_WARP, layout.made_weights(), 0);
        heads.clear();
        for (int i = 0; i < Heads::PAIRS; i++)
            sums[i] = 0.f;
    }
    __device__ __forceinline__ void take(const float *acc, int) {
        heads.take(acc);
    }
    __device__ __forceinline__ void prepare() {
        heads.pin_scores();
    }
    /* `slot`: the first of the chunk that was taken. */
    __device__ __forceinline__ void multiply(int slot) {
        heads.multiply(CHUNKS == 1 ? weights : weights + static_cast<u32>(slot / CHUNK_SLOTS * CHUNK_BYTES));
    }
    __device__ __forceinline__ void finish() {
        heads.pin_sums();
#pragma unroll
        for (int i = 0; i < Heads::PAIRS; i++)
            sums[i] = heads.own(i);
    }
    __device__ __forceinline__ float own(int s) const {
        return sums[s / 2];
    }
};
