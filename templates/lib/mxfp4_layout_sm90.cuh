/* SPDX-License-Identifier: MIT
 * Shared memory of fp4_paged_mqa_logits_sm90.cu; src/plan/fp4_sm90.c counts its bytes. */

/* Addresses in shared memory, from the 1024-aligned base: what has one size, then the KV ring. */
struct Layout {
    u32 base;

    static constexpr u32 Q_REGION = (SLOTS * NUM_HEADS * HEAD_DIM + 1023) / 1024 * 1024;
    static constexpr u32 Q_BYTES = NEXT_N * NUM_HEADS * ROW_BYTES;
    static constexpr u32 HEAD_BYTES = NEXT_N * NUM_HEADS * 4; /* of weights, and of scales */
    static constexpr u32 SLOT_BYTES = (NEXT_N * 4 + 15) / 16 * 16;
    static constexpr int MADE_SLOT_BYTES = HEAD_SUMS == BY_MMA ? SplitWeights<NUM_HEADS>::BYTES : NUM_HEADS * 4;
    static constexpr u32 MADE_BYTES = /* of weights */
        HEAD_SUMS == BY_WGMMA ? CHUNKS * CHUNK_PAIRS * ChunkPair::WEIGHT_BYTES : SLOTS * MADE_SLOT_BYTES;
    static constexpr u32 ALL_SLOT_BYTES = (SLOTS * 4 + 15) / 16 * 16;

    /* As they come, for each Q stage. */
    static constexpr u32 Q = Q_REGION;
    static constexpr u32 Q_SCALES = Q + Q_STAGES * Q_BYTES;
    static constexpr u32 WEIGHTS = Q_SCALES + Q_STAGES * HEAD_BYTES;
    static constexpr u32 LIMITS = WEIGHTS + Q_STAGES * HEAD_BYTES;
    static constexpr u32 NOTES = LIMITS + Q_STAGES * SLOT_BYTES;
    static constexpr u32 Q_BARRIERS = NOTES + Q_STAGES * 16;
    /* Made of them for the current request. */
    static constexpr u32 MADE_WEIGHTS = Q_BARRIERS + Q_STAGES * 16;
    static constexpr u32 POWERS = MADE_WEIGHTS + MADE_BYTES;
    static constexpr u32 TAME_LIMITS = POWERS + ALL_SLOT_BYTES;
    static constexpr u32 CHUNK_TILES = TAME_LIMITS + ALL_SLOT_BYTES;
    static constexpr u32 RING = (CHUNK_TILES + MAX_CHUNKS * 4 + 127) / 128 * 128;

    /* In a tile, and in a KV stage. */
    static constexpr u32 SCALES_AT = K_BYTES;
    static constexpr u32 TILE_BYTES = SCALES_AT + SCALE_BYTES;
    static constexpr u32 FULL_AT = TILE_BYTES;
    static constexpr u32 EMPTY_AT = FULL_AT + 8;
    static constexpr u32 STAGE_BYTES = FULL_AT + 128;

    __device__ __forceinline__ u32 stage(int i) const {
        return base + RING + static_cast<u32>(i) * STAGE_BYTES;
    }
    __device__ __forceinline__ u32 full(int i) const {
        return stage(i) + FULL_AT;
    }
    __device__ __forceinline__ u32 empty(int i) const {
        return stage(i) + EMPTY_AT;
    }
    __device__ __forceinline__ u32 expanded() const {
        return base;
    }
    __device__ __forceinline__ u32 q(int stage) const {
        return base + Q + static_cast<u32>(stage) * Q_BYTES;
    }
    __device__ __forceinline__ u32 q_scales(int stage) const {
        return base + Q_SCALES + static_cast<u32>(stage) * HEAD_BYTES;
    }
    __device__ __forceinline__ u32 weights(int stage) const {
        return base + WEIGHTS + static_cast<u32>(stage) * HEAD_BYTES;
    }
    __device__ __forceinline__ u32 limits(int stage) const {
        return base + LIMITS + static_cast<u32>(stage) * SLOT_BYTES;
    }
    __device__ __forceinline__ u32 note(int stage) const {
        return base + NOTES + static_cast<u32>(stage) * 16;
    }
    __device__ __forceinline__ u32 q_full(int stage) const {
        return base + Q_BARRIERS + static_cast<u32>(stage) * 16;
    }
    __device__ __forceinline__ u32 q_empty(int stage) const {
        return q_full(stage) + 8;
    }
    __device__ __forceinline__ u32 made_weights(int slot) const { /* as HeadSums wants them: of the slot, or its pair */
        const int pair = slot / CHUNK_SLOTS * CHUNK_PAIRS + slot % CHUNK_SLOTS / 2;
        return base + MADE_WEIGHTS +
               static_cast<u32>(HEAD_SUMS == BY_WGMMA ? pair * ChunkPair::WEIGHT_BYTES : slot * MADE_SLOT_BYTES);
    }
    /* [SLOTS]: floats, what sums are to be multiplied with besides the token's scale. */
    __device__ __forceinline__ u32 powers() const {
        return base + POWERS;
    }
    __device__ __forceinline__ u32 tame_limits() const { /* [SLOTS]: 0 for wild slots */
        return base + TAME_LIMITS;
    }
    __device__ __forceinline__ u32 chunk_tiles() const {
        return base + CHUNK_TILES;
    }
};
