/* SPDX-License-Identifier: MIT
 * A CTA's share of the batch as a sequence of segments: runs of one request's tokens. One warp walks; the others are
 * told through shared memory, so that all agree on the work whatever the lengths and a caller's schedule say, and even
 * while they change. */

#include "lib/arguments.cuh"
#include "lib/schedule.cuh"

/* token == end: there is no more. */
struct alignas(16) Segment {
    int request;
    int token, end; /* tokens [token, end); `token` is a multiple of TILE_TOKENS */
    int unused;
};

/* Where a walk stands, of each lane. It rests in shared memory, as it is needed seldom. */
struct WalkState {
    /* What is left of the share: of the requests from `base` (a multiple of 32) on, tiles [begin, end), numbered from
     * base's first one; and within them, of a caller's share, only what lies between two places. */
    int base;
    int begin, end;
    int first_request, first_tile;
    int last_request, last_tile;
    u32 next_share; /* of a caller's schedule */

    /* Lane i's request is base + i. It takes tiles [from, to) of it; from == to also if they were handed out. */
    int length, from, to;
};

/* All functions are called by one whole warp. */
struct Walker : WalkState {
    const CommonArguments &args;
    const int *chunk_tiles; /* of sum_chunks */
    int chunk_length;

    __device__ __forceinline__ Walker(const CommonArguments &args, const int *chunk_tiles)
        : args(args), chunk_tiles(chunk_tiles), chunk_length(chunk_length_of(args.batch)) {}

    __device__ __forceinline__ void start() {
        base = args.batch;
        from = to = length = 0;
        begin = end = first_request = first_tile = last_tile = 0;
        last_request = -1;
        next_share = blockIdx.x;
        if (args.schedule != nullptr)
            return;
        const int chunks = (args.batch + chunk_length - 1) / chunk_length;
        const int total = total_tiles(chunk_tiles, chunks);
        const int shares = static_cast<int>(gridDim.x);
        const int share = static_cast<int>(blockIdx.x);
        const int each = total / shares;
        const int rest = total - each * shares;
        const int first = each * share + min(share, rest);
        const int count = each + (share < rest ? 1 : 0);
        next_share = 0xffffffffu;
        if (count == 0)
            return;
        int before = 0;
        base = find_chunk(chunk_tiles, chunks, first, &before) * chunk_length;
        begin = first - before;
        end = begin + count;
        first_request = -1;
        last_request = args.batch;
        enter();
    }

    /* The lengths of the 32 requests at base, and what is to be taken of each. */
    __device__ __forceinline__ void enter() {
        const int request = base + lane_id();
        length = request < args.batch ? request_length(args, request) : 0;
        const int tiles = tiles_of(length);
        const int exclusive = warp_inclusive_scan(tiles) - tiles;
        from = clamp(begin - exclusive, 0, tiles);
        to = clamp(end - exclusive, 0, tiles);
        if (request <= first_request)
            from = request == first_request ? max(from, first_tile) : to;
        if (request >= last_request)
            to = request == last_request ? min(to, last_tile) : from;
        to = max(from, to);
        const int total = __shfl_sync(FULL_WARP, exclusive + tiles, 31);
        begin -= total;
        end -= total;
    }

    /* The next 32 requests of the share. False: its end. */
    __device__ __forceinline__ bool advance() {
        if (end <= 0 || base > last_request)
            return false;
        base += 32;
        while (base < args.batch && args.schedule == nullptr && base % chunk_length == 0 &&
               chunk_tiles[base / chunk_length] == 0)
            base += chunk_length;
        if (base >= args.batch || base > last_request)
            return false;
        enter();
        return true;
    }

    /* The next share that a caller's schedule gives to this CTA. False: there is none. */
    __device__ __forceinline__ bool take_share() {
        while (next_share < static_cast<u32>(args.num_shares)) {
            const int *place = args.schedule + 2 * static_cast<i64>(next_share);
            next_share += gridDim.x;
            first_request = max(place[0], 0);
            first_tile = max(place[1], 0);
            last_request = min(place[2], args.batch);
            last_tile = max(place[3], 0);
            if (first_request > last_request || first_request >= args.batch)
                continue;
            base = first_request / 32 * 32;
            begin = 0;
            end = 0x7fffffff;
            enter();
            return true;
        }
        return false;
    }

    __device__ __forceinline__ Segment next() {
        u32 left;
        while ((left = __ballot_sync(FULL_WARP, from < to)) == 0)
            if (!advance() && !take_share())
                return {-1, 0, 0, 0};
        const int lane = __ffs(static_cast<int>(left)) - 1;
        const u32 stop = min(static_cast<u32>(length), static_cast<u32>(to) * TILE_TOKENS);
        const Segment segment{base + lane, __shfl_sync(FULL_WARP, from, lane) * TILE_TOKENS,
                              static_cast<int>(__shfl_sync(FULL_WARP, stop, lane)), 0};
        if (lane_id() == lane)
            from = to;
        return segment;
    }
};
