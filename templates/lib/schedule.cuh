/* SPDX-License-Identifier: MIT
 * How a batch is cut into shares. The unit is a tile of 64 tokens; the tiles of all requests, in order, form one
 * sequence that is cut into equal runs. Everything is derived from seq_lens on the device. */

constexpr int TILE_TOKENS = 64;
/* Tile counts are summed over chunks of requests; the host picks a chunk length (a multiple of 32) so that this many
 * chunks cover the batch. */
constexpr int MAX_CHUNKS = 512;

__device__ __forceinline__ int chunk_length_of(int batch) {
    return max((batch + 32 * MAX_CHUNKS - 1) / (32 * MAX_CHUNKS), 1) * 32;
}

__device__ __forceinline__ int tiles_of(int tokens) {
    return static_cast<int>((static_cast<u32>(tokens) + (TILE_TOKENS - 1)) / TILE_TOKENS);
}

/* Sums tiles(request) over each chunk into chunk_tiles, by all warps of the CTA. A barrier must follow. Here and below,
 * Sum is int where lengths are bounded by an output that exists (2^31 tiles would be 256 GiB of 16-bit scores), i64
 * where they may be anything. */
template <class Sum, class Tiles>
__device__ __forceinline__ void sum_chunks(int batch, int chunk_length, int warp, int warps, Sum *chunk_tiles,
                                           const Tiles &tiles) {
    for (int chunk = warp; static_cast<i64>(chunk) * chunk_length < batch; chunk += warps) {
        const int first = chunk * chunk_length;
        Sum sum = 0;
        for (int i = lane_id(); i < chunk_length; i += 32)
            sum += first + i < batch ? tiles(first + i) : 0;
        sum = warp_sum(sum);
        if (lane_id() == 0)
            chunk_tiles[chunk] = sum;
    }
}

/* Called by one whole warp: all tiles of the batch. */
template <class Sum> __device__ __forceinline__ Sum total_tiles(const Sum *chunk_tiles, int chunks) {
    Sum total = 0;
    for (int chunk = lane_id(); chunk < chunks; chunk += 32)
        total += chunk_tiles[chunk];
    return warp_sum(total);
}

/* Called by one whole warp: the chunk that holds tile number `target` (target < total); *before gets the tiles in the
 * chunks ahead of it. */
template <class Sum>
__device__ __forceinline__ int find_chunk(const Sum *chunk_tiles, int chunks, Sum target, Sum *before) {
    Sum passed = 0;
    for (int row = 0; row < chunks; row += 32) {
        const int chunk = row + lane_id();
        const Sum own = chunk < chunks ? chunk_tiles[chunk] : 0;
        const Sum inclusive = passed + warp_inclusive_scan(own);
        const u32 beyond = __ballot_sync(FULL_WARP, inclusive > target);
        if (beyond != 0) {
            const int owner = __ffs(static_cast<int>(beyond)) - 1;
            *before = __shfl_sync(FULL_WARP, inclusive - own, owner);
            return row + owner;
        }
        passed = __shfl_sync(FULL_WARP, inclusive, 31);
    }
    *before = passed;
    return chunks;
}
