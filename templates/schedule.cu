/* SPDX-License-Identifier: MIT
 * compute_paged_mqa_logits_schedule: row i of `meta` is where share i starts, as {request, tile of that request}; the
 * last row, and every row with nothing left to do, is {batch, 0}. One CTA. */
#include "lib/base.cuh"
#include "lib/schedule.cuh"

constexpr int THREADS = 1024;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    paged_mqa_logits_schedule(const int *seq_lens, i64 stride_b, i64 stride_t, int batch, int slots, int num_shares,
                              int *meta) {
    __shared__ i64 chunk_tiles[MAX_CHUNKS];

    grid_dependency_wait();
    grid_dependency_trigger();

    const auto tiles = [&](int request) {
        int length = 0;
        for (int slot = 0; slot < slots; slot++)
            length = max(length, seq_lens[request * stride_b + slot * stride_t]);
        return tiles_of(length);
    };
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int chunk_length = chunk_length_of(batch);
    const int chunks = (batch + chunk_length - 1) / chunk_length;
    sum_chunks(batch, chunk_length, warp, THREADS / 32, chunk_tiles, tiles);
    __syncthreads();

    const i64 total = total_tiles(chunk_tiles, chunks);
    for (int share = warp; share <= num_shares; share += THREADS / 32) {
        /* floor(total * share / num_shares) without passing 2^63. */
        const i64 target = total / num_shares * share + total % num_shares * share / num_shares;
        int request = batch;
        int tile = 0;
        if (target < total) {
            i64 passed;
            int base = find_chunk(chunk_tiles, chunks, target, &passed) * chunk_length;
            for (;; base += 32) {
                const int own = base + lane_id() < batch ? tiles(base + lane_id()) : 0;
                const int inclusive = warp_inclusive_scan(own);
                const u32 beyond = __ballot_sync(FULL_WARP, passed + inclusive > target);
                if (beyond != 0) {
                    const int owner = __ffs(static_cast<int>(beyond)) - 1;
                    request = base + owner;
                    tile = static_cast<int>(target - passed) - __shfl_sync(FULL_WARP, inclusive - own, owner);
                    break;
                }
                if (base + 32 >= batch) /* lengths changed while this kernel ran */
                    break;
                passed += __shfl_sync(FULL_WARP, inclusive, 31);
            }
        }
        if (lane_id() == 0) {
            meta[2 * share] = request;
            meta[2 * share + 1] = tile;
        }
    }
}
