/* SPDX-License-Identifier: MIT
 * Device code of attn-scores bench. The command puts base.cuh, mbarrier.cuh and tma.cuh of templates/lib in front.
 *
 * bench_stream is the yardstick: it moves what the logits kernel has to move (every KV byte and scale of the batch once
 * through shared memory, next_n scores per token out) and computes nothing. Two CTAs per SM, each with four rings of
 * three stages; a ring has one producer warp and one consumer warp. */

constexpr int TILE_TOKENS = 64;
constexpr int RINGS = 4;
constexpr int STAGES = 3;

/* A tile of 64 tokens arrives as `units_per_tile` units of unit_tokens = min(block_size, 64) tokens. units[] names for
 * every tile the unit's place in the pool, block * units_per_block + piece, or -1 past the end of a request. */
struct StreamParams {
    const unsigned char *pool;
    const int *units;      /* [tiles, units_per_tile] */
    const int2 *positions; /* [tiles] (request, first token), or null if every request has tiles_per_request tiles */
    void *out;             /* [requests * next_n, row_stride] */
    i64 row_stride;        /* elements */
    int tiles, tiles_per_request;
    int units_per_tile, units_per_block, unit_tokens;
    int value_bytes, scale_bytes; /* of a token */
    int next_n, out_bytes;
};

__device__ __forceinline__ void store_score(void *out, i64 index, u32 bits, int out_bytes) {
    if (out_bytes == 4) {
        static_cast<u32 *>(out)[index] = bits;
    } else {
        static_cast<unsigned short *>(out)[index] = static_cast<unsigned short>(bits >> 16);
    }
}

/* 4 bytes, or the 2 that a token of MXFP4 with D = 64 has. */
__device__ __forceinline__ u32 load_scale(const unsigned char *at, int bytes) {
    return bytes == 4 ? *reinterpret_cast<const u32 *>(at) : *reinterpret_cast<const unsigned short *>(at) << 16;
}

extern "C" __global__ void __launch_bounds__(RINGS * 64) bench_stream(const __grid_constant__ StreamParams p) {
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ u64 full[RINGS * STAGES], empty[RINGS * STAGES];
    const int lane = lane_id();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int ring = warp % RINGS;
    if (threadIdx.x < RINGS * STAGES) {
        mbarrier_init(shared_address(&full[threadIdx.x]), 1);
        mbarrier_init(shared_address(&empty[threadIdx.x]), 1);
        mbarrier_init_fence();
    }
    __syncthreads();

    const int token_bytes = p.value_bytes + p.scale_bytes;
    const int stage_bytes = TILE_TOKENS * token_bytes;
    unsigned char *ring_stages = stages + ring * STAGES * stage_bytes;
    const int first = static_cast<int>(static_cast<i64>(p.tiles) * blockIdx.x / gridDim.x);
    const int last = static_cast<int>(static_cast<i64>(p.tiles) * (blockIdx.x + 1) / gridDim.x);
    RingCursor cursor;

    if (warp >= RINGS) {
        const int unit_bytes = p.unit_tokens * token_bytes;
        const int value_bytes = p.unit_tokens * p.value_bytes;
        const int scale_bytes = p.unit_tokens * p.scale_bytes;
        const i64 block_bytes = static_cast<i64>(p.units_per_block) * unit_bytes;
        const int batch = 32 / p.units_per_tile; /* tiles whose units one warp-wide load fetches */
        int fetched = -1, left = 0;
        for (int tile = first + ring; tile < last; tile += RINGS) {
            if (left == 0) {
                const int ahead = tile + lane / p.units_per_tile * RINGS;
                fetched = -1;
                if (lane < batch * p.units_per_tile && ahead < last) {
                    fetched = p.units[static_cast<i64>(ahead) * p.units_per_tile + lane % p.units_per_tile];
                }
                left = batch;
            }
            const int slot = (batch - left) * p.units_per_tile + lane % p.units_per_tile;
            int unit = __shfl_sync(FULL_WARP, fetched, slot);
            unit = lane < p.units_per_tile ? unit : -1;
            left--;

            const int units = __popc(__ballot_sync(FULL_WARP, unit >= 0));
            const u32 barrier = shared_address(&full[ring * STAGES + cursor.stage]);
            if (lane == 0) {
                mbarrier_wait(shared_address(&empty[ring * STAGES + cursor.stage]), cursor.parity ^ 1);
                mbarrier_arrive_expect(barrier, units * unit_bytes);
            }
            __syncwarp();
            if (unit >= 0) {
                const int block_id = p.units_per_block == 1 ? unit : unit / p.units_per_block;
                const unsigned char *block = p.pool + block_id * block_bytes;
                const u32 target =
                    shared_address(ring_stages + cursor.stage * stage_bytes) + lane * static_cast<u32>(unit_bytes);
                if (p.units_per_block == 1) {
                    bulk_load(target, block, unit_bytes, barrier);
                } else {
                    const int piece = unit - block_id * p.units_per_block;
                    bulk_load(target, block + static_cast<i64>(piece) * value_bytes, value_bytes, barrier);
                    bulk_load(target + value_bytes,
                              block + static_cast<i64>(p.units_per_block) * value_bytes + piece * scale_bytes,
                              scale_bytes, barrier);
                }
            }
            cursor.advance(STAGES);
        }
    } else {
        int scale_offset[2]; /* of the lane's two tokens, from the start of a stage */
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int token = lane + 32 * half;
            const int before = token / p.unit_tokens * p.unit_tokens;
            scale_offset[half] = before * token_bytes + p.unit_tokens * p.value_bytes + (token - before) * p.scale_bytes;
        }
        for (int tile = first + ring; tile < last; tile += RINGS) {
            mbarrier_wait(shared_address(&full[ring * STAGES + cursor.stage]), cursor.parity);
            const unsigned char *stage = ring_stages + cursor.stage * stage_bytes;
            const u32 scales[2] = {load_scale(stage + scale_offset[0], p.scale_bytes),
                                   load_scale(stage + scale_offset[1], p.scale_bytes)};
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(shared_address(&empty[ring * STAGES + cursor.stage]));
            }
            int request, position;
            if (p.positions != nullptr) {
                const int2 where = p.positions[tile];
                request = where.x;
                position = where.y;
            } else {
                request = tile / p.tiles_per_request;
                position = tile % p.tiles_per_request * TILE_TOKENS;
            }
            for (int slot = 0; slot < p.next_n; slot++) {
                const i64 row = static_cast<i64>(request) * p.next_n + slot;
                const i64 index = row * p.row_stride + position + lane;
                store_score(p.out, index, scales[0], p.out_bytes);
                store_score(p.out, index + 32, scales[1], p.out_bytes);
            }
            cursor.advance(STAGES);
        }
    }
}

__device__ __forceinline__ u32 hash_bits(u64 x) {
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return static_cast<u32>(x >> 32);
}

/* A value as quantised activations have them: near normal, the largest 448. The data matter: under load the power limit
 * sets an H200's clock, zeros or one value repeated draw less than real data, and uniformly random bits more. */
__device__ __forceinline__ float random_value(u64 seed) {
    return (static_cast<float>(__dp4a(hash_bits(seed), 0x01010101u, 0u)) - 510.0f) * (448.0f / 510.0f);
}

__device__ __forceinline__ u32 random_pair(u64 seed) {
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(random_value(seed)), "f"(random_value(seed + 1)));
    return pair;
}

/* An e2m1 code of a near-normal number whose largest in a group of 32 is about 6. */
__device__ __forceinline__ u32 random_nibble(u64 seed) {
    const float value = (static_cast<float>(__dp4a(hash_bits(seed), 0x01010101u, 0u)) - 510.0f) * (6.0f / 340.0f);
    const float magnitude = fabsf(value);
    const u32 code = (magnitude > 0.25f) + (magnitude > 0.75f) + (magnitude > 1.25f) + (magnitude > 1.75f) +
                     (magnitude > 2.5f) + (magnitude > 3.5f) + (magnitude > 5.0f);
    return value < 0 ? code | 8 : code;
}

__device__ __forceinline__ u32 random_nibbles(u64 seed) {
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        word |= random_nibble(seed + i) << 4 * i;
    }
    return word;
}

/* Random MXFP4 blocks: e2m1 values, then scales of 2^-8 to 2^-5. */
extern "C" __global__ void __launch_bounds__(256)
    bench_fill_fp4(u32 *words, i64 num_words, int block_words, int value_words, u64 seed) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words; i += step) {
        const u64 start = 8 * static_cast<u64>(i) + seed;
        words[i] = i % block_words < value_words ? random_nibbles(start)
                                                 : 0x77777777u + (hash_bits(start) & 0x03030303u);
    }
}

/* Random FP8 blocks: e4m3 values, then scales in [2^-20, 2^-19) so that scores fit float16 as well. */
extern "C" __global__ void __launch_bounds__(256)
    bench_fill(u32 *words, i64 num_words, int block_words, int value_words, u64 seed) {
    const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words; i += step) {
        const u64 start = 4 * static_cast<u64>(i) + seed;
        words[i] = i % block_words < value_words ? random_pair(start) | random_pair(start + 2) << 16
                                                 : 0x35800000u | hash_bits(start) >> 9;
    }
}
