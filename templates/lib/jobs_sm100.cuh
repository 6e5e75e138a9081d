/* SPDX-License-Identifier: MIT
 * The jobs of a request, a tile times a chunk of query slots each. MMA thread and warpgroups walk them alike, from the
 * same notes. */

/* A value that all lanes of a converged warp have, so that the compiler knows it. */
__device__ __forceinline__ int warp_uniform(int value) {
    return __shfl_sync(FULL_WARP, value, 0);
}

__device__ __forceinline__ int slots_of(int chunk) {
    return RAGGED && chunk == CHUNKS - 1 ? LAST_CHUNK_SLOTS : CHUNK_SLOTS;
}

/* The jobs of a request, in the order in which they are computed: job(tile, chunk, its KV stage). Of a group of tiles
 * one chunk after the other: a warpgroup then keeps the weights of a chunk for several jobs. */
template <class Job>
__device__ __forceinline__ void for_each_job(int tiles, int stages, RingCursor &kv, const Job &job) {
#pragma unroll 1
    for (int first = 0; first < tiles; first += GROUP_TILES) {
        const int last = min(first + GROUP_TILES, tiles);
        RingCursor stage;
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            stage = kv;
#pragma unroll 1
            for (int tile = first; tile < last; tile++) {
                job(tile, chunk, stage);
                stage.advance(stages);
            }
        }
        kv = stage;
    }
}

/* By a whole warp, for which the note then is one value: the loops over its jobs do not cost a register in every
 * lane. */
__device__ __forceinline__ RequestNote read_note(const Layout &layout, int stage) {
    const RequestNote note = *shared_pointer<RequestNote>(layout.note(stage));
    return {warp_uniform(note.request), warp_uniform(note.token), warp_uniform(note.tiles), 0};
}
