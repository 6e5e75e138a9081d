/* SPDX-License-Identifier: MIT
 * How a producer warp walks its CTA's share of a batch: a run of tiles of WALK_TOKENS tokens. The 32 lanes plan one
 * tile each, so that 32 block ids are in flight together, and then take turns in issuing. A Loader has
 *
 *   int length(int request)                            tokens, clamped
 *   void look_up(int request, int token, int length)   starts reading the block ids of the tile at `token`
 *   void begin(const RequestNote &note, int length)    called for each request, before its tiles
 *   void load(int token)                               called by the lane that has looked the tile up
 *   void advance(bool request)                         by all lanes, after a tile; with a new request or without
 *
 * Every loop is bounded by the batch, whatever the lengths or a caller's schedule hold, and a request without tiles is
 * never announced: no role can see it. */

/* What one CTA does of one request, for the roles behind the producer. tiles == 0 ends the work. */
struct alignas(16) RequestNote {
    int request;
    int token; /* first token of the first tile */
    int tiles; /* consecutive ones */
    int unused;
};

__device__ __forceinline__ int walk_tiles(int tokens) {
    return static_cast<int>((static_cast<u32>(tokens) + (WALK_TOKENS - 1)) / WALK_TOKENS);
}

/* Tiles [begin, end) of the requests from `base` (a multiple of 32) on; tile numbers count from `base`. */
struct WalkShare {
    int base;
    int begin, end;
    /* Of a caller's schedule: where it starts (then `begin` is found from it) and where it ends. */
    int first_request, first_tile;
    int last_request, last_tile;
    /* Of the kernel's own: tiles of each chunk of requests, so that empty ones are skipped; or null. */
    const int *chunk_tiles;
    int chunk_length;
    /* Length of request lane_id() if it is known already (the batch has no more than 32), else -1. */
    int length;
};

/* Plans and issues `count` tiles; lane i has tile number `own` of the 32 requests at `base`. As a request, a lane has
 * the tiles [exclusive, inclusive), of which the walk takes [taken_from, taken_to), and `length` tokens. */
template <class Loader>
__device__ __forceinline__ void issue_tiles(Loader &loader, int base, int own, int count, int length, int inclusive,
                                            int exclusive, int taken_from, int taken_to) {
    /* Lane of the request that holds the tile: mostly the same for all. */
    int owner = __popc(__ballot_sync(FULL_WARP, inclusive <= __shfl_sync(FULL_WARP, own, 0)));
    if (__shfl_sync(FULL_WARP, inclusive, owner) <= __shfl_sync(FULL_WARP, own, count - 1)) {
        owner = 0;
#pragma unroll
        for (int half = 16; half > 0; half /= 2)
            owner += __shfl_sync(FULL_WARP, inclusive, owner + half - 1) <= own ? half : 0;
    }
    const int first = __shfl_sync(FULL_WARP, exclusive, owner);
    const int tokens = __shfl_sync(FULL_WARP, length, owner);
    taken_from = __shfl_sync(FULL_WARP, taken_from, owner);
    taken_to = __shfl_sync(FULL_WARP, taken_to, owner);

    const int token = (own - first) * WALK_TOKENS;
    const bool first_tile = own == taken_from;
    const RequestNote note{base + owner, token, taken_to - own, 0};
    if (lane_id() < count)
        loader.look_up(note.request, token, tokens);
    const u32 firsts = __ballot_sync(FULL_WARP, first_tile);
    for (int turn = 0; turn < count; turn++) {
        if (lane_id() == turn) {
            if (first_tile)
                loader.begin(note, tokens);
            loader.load(token);
        }
        __syncwarp();
        loader.advance(firsts >> turn & 1);
    }
}

template <class Loader> __device__ __forceinline__ void walk_share(Loader &loader, int batch, const WalkShare &share) {
    int begin = share.begin;
    int end = share.end;
    int x = begin;
    for (int base = share.base; base < batch && base <= share.last_request && x < end; base += 32) {
        if (share.chunk_tiles != nullptr && base % share.chunk_length == 0 &&
            share.chunk_tiles[base / share.chunk_length] == 0) {
            base += share.chunk_length - 32;
            continue;
        }
        const int request = base + lane_id();
        int length = share.length;
        if (length < 0)
            length = request < batch && request >= share.first_request ? loader.length(request) : 0;
        int tiles = walk_tiles(length);
        if (base <= share.first_request) {
            begin = min(share.first_tile, __shfl_sync(FULL_WARP, tiles, share.first_request - base));
            x = begin;
        }
        if (request >= share.last_request)
            tiles = request == share.last_request ? min(tiles, share.last_tile) : 0;
        const int inclusive = warp_inclusive_scan(tiles);
        const int exclusive = inclusive - tiles;
        const int total = __shfl_sync(FULL_WARP, inclusive, 31);
        const int stop = min(total, end);
        const int taken_from = max(exclusive, begin);
        while (x < stop) {
            const int count = min(32, stop - x);
            issue_tiles(loader, base, x + lane_id(), count, length, inclusive, exclusive, taken_from,
                        min(inclusive, stop));
            x += count;
        }
        x -= total;
        begin -= total;
        end -= total;
    }
}

/* Walks this CTA's share: an equal part of all tiles, or the shares that a caller's schedule (start of share i at
 * schedule[2i]: request and its tile of TILE_TOKENS tokens) gives it. `length` is that of request lane_id() if the
 * batch has no more than 32; otherwise chunk_tiles are the sums of sum_chunks. */
template <class Loader>
__device__ __forceinline__ void walk(Loader &loader, int batch, const int *schedule, int num_shares, int length,
                                     const int *chunk_tiles, int chunk_length) {
    const int ctas = static_cast<int>(gridDim.x);
    const int cta = static_cast<int>(blockIdx.x);
    const bool own = schedule == nullptr;
#pragma unroll 1
    for (int i = cta; i < (own ? ctas : num_shares); i += ctas) {
        WalkShare share{0, 0, 0x7fffffff, -1, 0, batch, 0, nullptr, 32, -1};
        if (own) {
            const bool small = batch <= 32;
            const int chunks = (batch + chunk_length - 1) / chunk_length;
            const int total = small ? warp_sum(walk_tiles(length)) : total_tiles(chunk_tiles, chunks);
            const int each = total / ctas;
            const int rest = total - each * ctas;
            const int start = each * cta + min(cta, rest);
            int before = 0;
            if (small) {
                share.length = length;
            } else {
                share.base = find_chunk(chunk_tiles, chunks, start, &before) * chunk_length;
                share.chunk_tiles = chunk_tiles;
                share.chunk_length = chunk_length;
            }
            share.begin = start - before;
            share.end = share.begin + each + (cta < rest ? 1 : 0);
        } else {
            /* A boundary between shares that falls into one of our tiles moves to its start, for both shares alike. */
            constexpr int UNITS = WALK_TOKENS / TILE_TOKENS;
            share.first_request = max(schedule[2 * i], 0);
            share.first_tile = max(schedule[2 * i + 1], 0) / UNITS;
            share.last_request = min(schedule[2 * i + 2], batch);
            share.last_tile = max(schedule[2 * i + 3], 0) / UNITS;
            share.base = share.first_request / 32 * 32;
            if (share.first_request > share.last_request || share.first_request >= batch)
                continue;
        }
        walk_share(loader, batch, share);
    }
}
