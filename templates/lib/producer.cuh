/* SPDX-License-Identifier: MIT
 * The producer warps of the Hopper kernels: find the share of their CTA and have a Loader load it. Needs BLOCK_SIZE,
 * MAX_CTAS_PER_SM, PRODUCERS, BOX_TOKENS and BOXES.
 *
 * Each of PRODUCERS warps finds the whole share by itself; they take its tiles in turn, and the first of them announces
 * all requests. (So lengths must not change while a kernel runs: several warps read them.) A single one takes about 500
 * clocks a tile, as it gets few turns beside busy math warps.
 *
 * Loader: load_tile(token, blocks) and, before (if QUERIES_FIRST) or after a request's first tile, load_request(note,
 * tokens) are called by one lane, which must not branch on others; tile_loaded() and request_loaded() by all lanes
 * after it, to move on in the rings; end() by one lane of the first warp when all is done. A tile waits only for tiles
 * of requests that were announced, queries only for requests before, so the order cannot lock up. */

/* What the math warpgroups must know of a request. tiles == 0 ends the work. */
struct alignas(16) RequestNote {
    int request;
    int token; /* first token of the first tile */
    int tiles; /* for this CTA; the CTAs of an SM's share take its tiles in turn */
    int unused;
};

/* All 32 lanes plan (a lane plans one tile at a time, so that 32 block ids are in flight together); then the lanes take
 * turns in issuing their tile. Lengths, block ids and keys are three trips to memory, each of which starts with what
 * the one before it brought: everything else is done while the lengths are on their way. */
template <class Loader> struct Producer {
    static constexpr int HELD = 8; /* a larger batch is summed by the whole CTA */
    static constexpr int HELD_REQUESTS = 32 * HELD;

    const CommonArguments &args;
    Loader loader;
    int index;      /* of this warp among the producers */
    int until_mine; /* tiles until its turn; at first `index` */

    /* Lengths of the requests 32 i + lane_id(), not clamped. Of batches up to HELD_REQUESTS. */
    int lengths[HELD];
    /* The CTAs of one SM are a group, whose share's tiles they take in turn. */
    int groups, group, turn;
    u32 groups_reciprocal;

    /* Walks a share: of the requests from `base` (a multiple of 32) on, tiles in sequence, of which this CTA takes
     * every ctas_per_sm-th from `begin` + `turn` on and none at or past `end`; tile numbers count from `base`. Bounded
     * by the batch whatever the arguments are. */
    struct Share {
        int base;
        int turn;
        int begin, end;
        /* Of a caller's schedule: where it starts (then `begin` is found from it) and where it ends. */
        int first_request, first_tile;
        int last_request, last_tile;
        /* Of the kernel's own: tiles of each chunk of requests, so that empty ones are skipped; or null. */
        const int *chunk_tiles;
        int chunk_length;
        bool held; /* lengths are */
    };

    __device__ __forceinline__ int divide_by_ctas(int x) const {
        return MAX_CTAS_PER_SM == 1 ? x : static_cast<int>(__umulhi(static_cast<u32>(x), args.ctas_reciprocal));
    }

    /* Of the tiles [from, to), how many are this CTA's if `from` is. */
    __device__ __forceinline__ int tiles_in_turn(int from, int to) const {
        return divide_by_ctas(to - from + args.ctas_per_sm - 1);
    }

    __device__ __forceinline__ void walk(const Share &share) {
        int begin = share.begin;
        int end = share.end;
        int x = begin + share.turn;
        for (int base = share.base; base < args.batch && base <= share.last_request && x < end; base += 32) {
            if (share.chunk_tiles != nullptr && base % share.chunk_length == 0 &&
                share.chunk_tiles[base / share.chunk_length] == 0) {
                base += share.chunk_length - 32;
                continue;
            }
            const int request = base + lane_id();
            int length = 0;
            if (share.held)
                length = held_length(base / 32);
            else if (request < args.batch && request >= share.first_request)
                length = request_length(args, request);
            int tiles = tiles_of(length);
            if (base <= share.first_request) {
                begin = min(share.first_tile, __shfl_sync(FULL_WARP, tiles, share.first_request - base));
                x = begin + share.turn;
            }
            if (request >= share.last_request)
                tiles = request == share.last_request ? min(tiles, share.last_tile) : 0;
            const int inclusive = warp_inclusive_scan(tiles);
            const int exclusive = inclusive - tiles;
            const int total = __shfl_sync(FULL_WARP, inclusive, 31);
            const int stop = min(total, end);
            const int taken_from = max(exclusive, begin);
            while (x < stop) {
                const int count = min(32, tiles_in_turn(x, stop));
                issue(base, x + lane_id() * args.ctas_per_sm, count, length, inclusive, exclusive, taken_from,
                      min(inclusive, stop));
                x += count * args.ctas_per_sm;
            }
            x -= total;
            begin -= total;
            end -= total;
        }
    }

    /* Plans `count` tiles and issues those that are its turn; lane i has tile number `own` of the 32 requests at
     * `base`. As a request, a lane has the tiles [exclusive, inclusive), of which the walk takes [taken_from,
     * taken_to), and `length` tokens. */
    __device__ __forceinline__ void issue(int base, int own, int count, int length, int inclusive, int exclusive,
                                          int taken_from, int taken_to) {
        /* Lane of the request that holds the tile: mostly the same for all. */
        int owner = __popc(__ballot_sync(FULL_WARP, inclusive <= __shfl_sync(FULL_WARP, own, 0)));
        if (__shfl_sync(FULL_WARP, inclusive, owner) <= __shfl_sync(FULL_WARP, own, count - 1)) {
            owner = 0;
#pragma unroll
            for (int half = 16; half > 0; half /= 2)
                owner += __shfl_sync(FULL_WARP, inclusive, owner + half - 1) <= own ? half : 0;
        }
        const int request = base + owner;
        const int first = __shfl_sync(FULL_WARP, exclusive, owner);
        const int tokens = __shfl_sync(FULL_WARP, length, owner);
        taken_from = __shfl_sync(FULL_WARP, taken_from, owner);
        taken_to = __shfl_sync(FULL_WARP, taken_to, owner);

        const int token = (own - first) * TILE_TOKENS;
        const bool first_tile = own - args.ctas_per_sm < taken_from;
        const RequestNote note{request, token, tiles_in_turn(own, taken_to), 0};

        int blocks[BOXES];
        if (lane_id() < count) {
            const int *row = args.block_tables + request * args.table_stride;
#pragma unroll
            for (int box = 0; box < BOXES; box++) {
                const int start = token + box * BOX_TOKENS;
                blocks[box] = start < tokens ? row[start / BLOCK_SIZE] : -1;
            }
        }
        const auto load = [&](bool keys, bool queries) {
            if (Loader::QUERIES_FIRST && queries)
                loader.load_request(note, tokens);
            if (keys)
                loader.load_tile(token, blocks);
            if (!Loader::QUERIES_FIRST && queries)
                loader.load_request(note, tokens);
        };
        const u32 firsts = __ballot_sync(FULL_WARP, first_tile);
        if constexpr (PRODUCERS == 1) {
            for (int turn = 0; turn < count; turn++) {
                if (lane_id() == turn)
                    load(true, first_tile);
                __syncwarp();
                loader.tile_loaded();
                if (firsts >> turn & 1)
                    loader.request_loaded();
            }
        } else {
            const bool mine = static_cast<u32>(lane_id() - until_mine) % PRODUCERS == 0 && lane_id() >= until_mine;
            const bool announces = first_tile && index == 0;
            for (u32 turns = __ballot_sync(FULL_WARP, lane_id() < count && (mine || announces)); turns != 0;) {
                const int turn = __ffs(static_cast<int>(turns)) - 1;
                turns &= turns - 1;
                if (lane_id() == turn)
                    load(mine, announces);
                __syncwarp();
                if (static_cast<u32>(turn - until_mine) % PRODUCERS == 0 && turn >= until_mine)
                    loader.tile_loaded();
                if (firsts >> turn & 1)
                    loader.request_loaded();
            }
            until_mine = static_cast<int>(static_cast<u32>(until_mine - count + 32 * PRODUCERS) % PRODUCERS);
        }
    }

    __device__ __forceinline__ bool holds_lengths() const {
        return args.batch <= HELD_REQUESTS;
    }

    /* Of request 32 i + lane_id(). */
    __device__ __forceinline__ int held_length(int i) const {
        int length = lengths[0];
#pragma unroll
        for (int j = 1; j < HELD; j++)
            length = i == j ? lengths[j] : length;
        return clamp(length, 0, args.max_tokens);
    }

    /* total / groups, and what is left. The reciprocal is at most 1 too small, the quotient too. */
    __device__ __forceinline__ u32 split(u32 total, u32 *rest) const {
        u32 each = __umulhi(total, groups_reciprocal);
        *rest = total - each * static_cast<u32>(groups);
        if (*rest >= static_cast<u32>(groups)) {
            each++;
            *rest -= static_cast<u32>(groups);
        }
        return each;
    }

    /* Everything that needs no length, while the lengths are on their way. */
    __device__ __forceinline__ void prepare() {
#pragma unroll
        for (int i = 0; i < HELD; i++)
            lengths[i] = 0;
        if (args.schedule == nullptr && holds_lengths()) {
            if (args.per_slot_lens) {
#pragma unroll
                for (int i = 0; i < HELD; i++)
                    if (32 * i + lane_id() < args.batch)
                        lengths[i] = request_length(args, 32 * i + lane_id());
            } else {
                load_length(args, lane_id(), lane_id() < args.batch, lengths[0]);
                if (args.batch > 32) {
#pragma unroll
                    for (int i = 1; i < HELD; i++)
                        load_length(args, 32 * i + lane_id(), 32 * i + lane_id() < args.batch, lengths[i]);
                }
            }
        }

        groups = divide_by_ctas(static_cast<int>(gridDim.x));
        turn = 0;
#pragma unroll
        for (int i = 1; i < MAX_CTAS_PER_SM; i++)
            turn += static_cast<int>(blockIdx.x) >= i * groups ? 1 : 0;
        group = static_cast<int>(blockIdx.x) - turn * groups;
        groups_reciprocal = 0xffffffffu / static_cast<u32>(groups);
        if (args.schedule == nullptr)
            prefetch_table();
    }

    /* Brings the block ids closer that this CTA needs if all requests are as long as they may be: right for requests of
     * equal length, harmless for others. A prefetch is no read: it cannot fault, and what it brings is used only where
     * the lengths say so. */
    __device__ __forceinline__ void prefetch_table() const {
        const u32 tiles = static_cast<u32>(tiles_of(args.max_tokens));
        const u32 total = static_cast<u32>(args.batch) * tiles;
        u32 rest;
        const u32 each = split(total, &rest);
        const u32 tile = each * static_cast<u32>(group) + min(static_cast<u32>(group), rest) +
                         static_cast<u32>(turn + lane_id() * args.ctas_per_sm);
        if (tile < total) {
            const u32 request = tile / tiles;
            const u32 column = (tile - request * tiles) * TILE_TOKENS / BLOCK_SIZE;
            asm volatile("prefetch.global.L1 [%0];" ::"l"(args.block_tables + request * args.table_stride + column));
        }
    }

    /* The 32 requests that hold tile number `start`, and the tiles before them. */
    __device__ __forceinline__ int find_held(const int (&sums)[HELD], int start, int *before) const {
        int base = 0, passed = 0;
#pragma unroll
        for (int i = 0; i < HELD - 1; i++) {
            passed += sums[i];
            if (passed <= start && 32 * (i + 1) < args.batch) {
                base = 32 * (i + 1);
                *before = passed;
            }
        }
        return base;
    }

    /* Finds this CTA's share and walks it. Of a batch whose lengths are not held, chunk_tiles are the sums. */
    __device__ __forceinline__ void run(const int *chunk_tiles, int chunk_length, int chunks) {
        if (args.schedule == nullptr) {
            const bool held = holds_lengths();
            int sums[HELD];
            int total = 0;
            if (args.batch <= 32) {
                total = warp_sum(tiles_of(held_length(0)));
            } else if (held) {
#pragma unroll
                for (int i = 0; i < HELD; i++) {
                    sums[i] = warp_sum(tiles_of(held_length(i)));
                    total += sums[i];
                }
            } else {
                total = total_tiles(chunk_tiles, chunks);
            }
            u32 rest;
            const int each = static_cast<int>(split(static_cast<u32>(total), &rest));
            const int start = each * group + min(group, static_cast<int>(rest));
            const int count = each + (group < static_cast<int>(rest) ? 1 : 0);
            if (count > turn) {
                int base = 0, before = 0;
                if (!held)
                    base = find_chunk(chunk_tiles, chunks, start, &before) * chunk_length;
                else if (args.batch > 32)
                    base = find_held(sums, start, &before);
                const int begin = start - before;
                walk(Share{base, turn, begin, begin + count, -1, 0, args.batch, 0, held ? nullptr : chunk_tiles,
                           chunk_length, held});
            }
        } else {
            for (int share = group; share < args.num_shares; share += groups) {
                const int first_request = max(args.schedule[2 * share], 0);
                const int first_tile = max(args.schedule[2 * share + 1], 0);
                const int last_request = min(args.schedule[2 * share + 2], args.batch);
                const int last_tile = max(args.schedule[2 * share + 3], 0);
                if (first_request <= last_request && first_request < args.batch)
                    walk(Share{first_request / 32 * 32, turn, 0, 0x7fffffff, first_request, first_tile, last_request,
                               last_tile, nullptr, 32, false});
            }
        }
        if (lane_id() == 0 && index == 0)
            loader.end();
    }
};
