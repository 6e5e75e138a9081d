/* SPDX-License-Identifier: MIT
 * indexer_scores for sm_80 and up: scores[row, k] = query row . key k, one launch, each key read once.
 *
 * The unit of work is one or two tiles of 16 keys of one group. A tile's keys are the M of an MMA, the group's 1 to 8
 * query rows its N. The units of all groups, in order, are cut into equal runs, one for each warp of the grid, and a
 * warp works through its run alone. Keys go straight to registers: while a warp multiplies one unit the next is on its
 * way, and there are enough warps for that to cover memory's latency.
 *
 * A dot product does not mind the order of its terms. So the K dimension is permuted, for keys and queries alike, such
 * that the 16 bytes that a lane loads are what it must hold as MMA operands, and a warp's load is 512 consecutive
 * bytes: four whole lines of memory. The order is the same in every launch, so that a score's bits depend on its row
 * and its key only.
 *
 * Units are planned up to 32 at a time, one by each lane, so that the page ids of many units, or of many small groups,
 * are fetched together. */
#include "lib/base.cuh"
#include "lib/schedule.cuh"
#include "lib/mma_sync.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
#define NVFP4 @NVFP4@
constexpr int MAX_WARPS = @MAX_WARPS@; /* of an SM, as one CTA or as several smaller ones */

#if NVFP4
#include "lib/nvfp4.cuh"
#endif

constexpr int TILE_KEYS = 16;
constexpr int TILES = NVFP4 ? 2 : 1; /* of a unit: planning and addresses cost a warp as much for a short unit */
constexpr int UNIT_KEYS = TILES * TILE_KEYS;
constexpr int PAGE_KEYS = 64;
constexpr int KEY_BYTES = NVFP4 ? 64 : 256;

/* Kernel argument; laid out alike in src/launch/indexer.c. Strides in bytes, but those of int and float arrays in
 * elements. */
struct Arguments {
    const unsigned char *query; /* [groups * rows, KEY_BYTES] */
    i64 query_stride;
    const unsigned char *query_scales; /* [groups * rows, 8], NVFP4 only */
    i64 query_scales_stride;
    const unsigned char *keys; /* [num_pages, 64, KEY_BYTES] */
    i64 page_stride;
    const unsigned char *key_scales; /* [num_pages, 64, 8], NVFP4 only */
    i64 scale_page_stride;
    const int *block_table; /* [num_requests, >= pages of max_context] */
    i64 table_stride;
    const int *lengths; /* [groups] */
    i64 lengths_stride;
    const int *requests; /* [groups] */
    i64 requests_stride;
    float *scores; /* [groups * rows, >= max_context] */
    i64 scores_stride;
    int groups;
    int rows;         /* of a group, 1 to 8 */
    int num_requests; /* a request out of range has no pages */
    int num_pages;    /* a page out of range reads as zeros */
    int max_context;  /* lengths are clamped to this; at most 2^30 */
};

/* ---- What to do ------------------------------------------------------------------------------------------------ */

struct alignas(16) Unit {
    int group;  /* -1: there is no more */
    int key;    /* the first; a multiple of UNIT_KEYS */
    int length; /* of the group */
    int page;   /* -1: zeros */
};

__device__ __forceinline__ int group_length(const Arguments &args, int group) {
    return clamp(args.lengths[group * args.lengths_stride], 0, args.max_context);
}

__device__ __forceinline__ int units_of(int length) {
    return (length + UNIT_KEYS - 1) / UNIT_KEYS;
}

/* A warp's notes, in shared memory: the units that are planned, and a window of 32 groups. */
struct Notes {
    Unit units[32];
    int length[32], request[32];
    u32 inclusive[32]; /* units of the window's groups up to and with this one; 32 * 2^26 at most */
};

/* Hands out the units of a warp's run. All functions are called by the whole warp. */
struct Work {
    const Arguments &args;
    Notes &notes;
    /* Units of each chunk of groups, so that empty chunks are skipped; null for up to 32 groups. */
    const i64 *chunk_units;
    int chunk_length;
    i64 left;  /* units that are not planned yet */
    i64 at;    /* the next of them, counted from the window's first */
    int base;  /* the window's first group; lane i keeps the notes of group base + i */
    u32 total; /* units of the window */
    int count; /* units that are planned; lane i keeps the notes of unit i */
    int next;  /* of them, to be handed out */

    __device__ __forceinline__ void open_window(int first_group) {
        base = first_group;
        const int group = base + lane_id();
        const bool exists = group < args.groups;
        const int length = exists ? group_length(args, group) : 0;
        const int request = exists ? args.requests[group * args.requests_stride] : -1;
        const u32 inclusive = warp_inclusive_scan(static_cast<u32>(units_of(length)));
        total = __shfl_sync(FULL_WARP, inclusive, 31);
        notes.length[lane_id()] = length;
        notes.request[lane_id()] = request;
        notes.inclusive[lane_id()] = inclusive;
    }

    /* Moves on to the window that holds the next unit; false if there is none. */
    __device__ __forceinline__ bool find_window() {
        while (left > 0) {
            if (at < total)
                return true;
            at -= total;
            int group = base + 32;
            if (chunk_units != nullptr)
                while (group < args.groups && group % chunk_length == 0 && chunk_units[group / chunk_length] == 0)
                    group += chunk_length;
            if (group >= args.groups) /* lengths changed while this kernel ran */
                left = 0;
            else
                open_window(group);
        }
        return false;
    }

    /* The lane whose group holds unit `unit` of the window: the first whose inclusive sum is beyond it. The same unit
     * in all lanes, or another in each. */
    static __device__ __forceinline__ int owner_of_one(u32 inclusive, u32 unit) {
        return __ffs(static_cast<int>(__ballot_sync(FULL_WARP, inclusive > unit))) - 1;
    }
    static __device__ __forceinline__ int owner_of_each(u32 inclusive, u32 unit) {
        int owner = 0;
#pragma unroll
        for (int half = 16; half > 0; half /= 2)
            owner += __shfl_sync(FULL_WARP, inclusive, owner + half - 1) <= unit ? half : 0;
        return owner;
    }

    __device__ __forceinline__ void plan() {
        count = next = 0;
        if (!find_window())
            return;
        const u32 from = static_cast<u32>(at); /* below the window's total */
        count = static_cast<int>(min(left < 32 ? static_cast<u32>(left) : 32u, total - from));
        const u32 last = from + static_cast<u32>(count) - 1, own = min(from + static_cast<u32>(lane_id()), last);
        const u32 inclusive = notes.inclusive[lane_id()];
        int owner = owner_of_one(inclusive, from);
        if (owner != owner_of_one(inclusive, last)) /* mostly all units are of one group */
            owner = owner_of_each(inclusive, own);

        __syncwarp(); /* the window's notes are written, the last units' read */
        const int length = notes.length[owner], request = notes.request[owner];
        const u32 before = notes.inclusive[owner] - static_cast<u32>(units_of(length));
        Unit unit{base + owner, static_cast<int>(own - before) * UNIT_KEYS, length, -1};
        if (request >= 0 && request < args.num_requests) {
            const int page = args.block_table[request * args.table_stride + unit.key / PAGE_KEYS];
            unit.page = page >= 0 && page < args.num_pages ? page : -1;
        }
        notes.units[lane_id()] = unit;
        __syncwarp();
        at += count;
        left -= count;
    }

    __device__ __forceinline__ Unit take() {
        if (next == count)
            plan();
        return count == 0 ? Unit{-1, 0, 0, -1} : notes.units[next++];
    }
};

/* ---- Operands -------------------------------------------------------------------------------------------------- */

/* 16 bytes of a key, which nobody reads again: L1 does not keep them, L2 evicts them before others and fetches all of a
 * 128-byte line with the first of its sectors. The policy is what createpolicy.fractional.L2::evict_first makes with
 * fraction 1 (CUTLASS, TMA::CacheHintSm90). Zeros where not `exists`; then nothing is read. */
__device__ __forceinline__ uint4 load_once_16(const unsigned char *from, bool exists) {
    uint4 x;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@p ld.global.L1::no_allocate.L2::cache_hint.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4], %6;\n}"
                 : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
                 : "l"(from), "r"(static_cast<int>(exists)), "l"(0x12F0000000000000ull));
    return x;
}

__device__ __forceinline__ uint4 load_16(const unsigned char *from, bool exists) {
    return exists ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
}

/* Rows and columns of an MMA as lib/mma_sync.cuh has them. */
__device__ __forceinline__ int mma_row() {
    return lane_id() / 4;
}
__device__ __forceinline__ int mma_piece() {
    return lane_id() % 4;
}

/* Each format has, besides Queries, Keys and multiply(), what the products of `multiply` are: ROWS of the group's
 * queries at a time, and of these those from result_row() on for keys result_key() and + 8 of the tile. */

#if NVFP4

/* A key is half a line. Lane l has the 32 values at l % 4 of keys l / 4 and l / 4 + 8 of a tile, rows of the MMA, and
 * of query l / 4, a column of it. */
constexpr int ROWS = 8;

__device__ __forceinline__ bool has_results() {
    return true;
}
__device__ __forceinline__ int result_key() {
    return mma_row();
}
__device__ __forceinline__ int result_row() {
    return 2 * mma_piece();
}

constexpr int SCALE_BYTES = 8; /* of a key; two belong to a lane's values */

__device__ __forceinline__ u32 load_scales(const unsigned char *from, bool exists) {
    return exists ? *reinterpret_cast<const unsigned short *>(from) : 0;
}

constexpr int OPERANDS = 16;

/* A lane's 32 values of a row and their two scales, times NVFP4_FACTOR. */
__device__ __forceinline__ void dequantise(const uint4 &values, u32 scale_codes, u32 (&operands)[OPERANDS]) {
    const u32 scales = scales_to_halves(scale_codes);
    const u32 words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 scale = __byte_perm(scales, 0, i < 2 ? 0x1010 : 0x3232);
        u32 halves[4];
        nibbles_to_halves(words[i], halves);
#pragma unroll
        for (int j = 0; j < 4; j++)
            operands[4 * i + j] = multiply_halves(halves[j], scale);
    }
}

struct Queries {
    u32 operands[OPERANDS];

    __device__ __forceinline__ void load(const Arguments &args, i64 first_row, int) {
        const i64 row = first_row + mma_row();
        const bool exists = mma_row() < args.rows;
        const uint4 values = load_16(args.query + row * args.query_stride + mma_piece() * 16, exists);
        const u32 scales = load_scales(args.query_scales + row * args.query_scales_stride + mma_piece() * 2, exists);
        dequantise(values, scales, operands);
#pragma unroll
        for (int i = 0; i < OPERANDS; i++)
            operands[i] = multiply_halves(operands[i], 0x58005800u); /* 2^7: the true values */
    }
};

struct Keys {
    uint4 values[2];
    u32 scales[2];

    __device__ __forceinline__ void load(const Arguments &args, int page, int first_key, int left) {
        const int key = first_key + mma_row();
        const unsigned char *const from = args.keys + page * args.page_stride + key * KEY_BYTES + mma_piece() * 16;
        const unsigned char *const scales_from =
            args.key_scales + page * args.scale_page_stride + key * SCALE_BYTES + mma_piece() * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool exists = mma_row() + 8 * i < left;
            values[i] = load_once_16(from + 8 * i * KEY_BYTES, exists);
            scales[i] = load_scales(scales_from + 8 * i * SCALE_BYTES, exists);
        }
    }
};

__device__ __forceinline__ AccF32 multiply(const Keys &keys, const Queries &queries) {
    u32 a[2][OPERANDS];
#pragma unroll
    for (int i = 0; i < 2; i++)
        dequantise(keys.values[i], keys.scales[i], a[i]);
    AccF32 sums;
    clear(sums);
#pragma unroll
    for (int i = 0; i < OPERANDS; i += 2)
        mma_f16(sums, a[0][i], a[1][i], a[0][i + 1], a[1][i + 1], queries.operands[i], queries.operands[i + 1]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums.v[i] *= 1 / NVFP4_FACTOR;
    return sums;
}

#else

/* A key is two lines, of which lane l has the 16 bytes at l % 8. So a row of the MMA is half of a key, l / 4 % 2 of key
 * l / 8, and a column half of one of 4 queries. Only the products of equal halves are of use, and two of them are a
 * score. */
constexpr int ROWS = 4;
constexpr int LINES = 2, LINE_BYTES = 128;

__device__ __forceinline__ bool has_results() {
    return mma_row() % 2 == mma_piece() / 2;
}
__device__ __forceinline__ int result_key() {
    return mma_row() % 2 * 4 + lane_id() / 8;
}
__device__ __forceinline__ int result_row() {
    return mma_piece() % 2 * 2;
}

struct Queries {
    uint4 lines[LINES];

    __device__ __forceinline__ void load(const Arguments &args, i64 first_row, int from_row) {
        const int row = from_row + mma_row() % 4, half = mma_row() / 4;
        const unsigned char *const from =
            args.query + (first_row + row) * args.query_stride + half * (LINE_BYTES / 2) + mma_piece() * 16;
#pragma unroll
        for (int i = 0; i < LINES; i++)
            lines[i] = load_16(from + i * LINE_BYTES, row < args.rows);
    }
};

struct Keys {
    uint4 lines[4][LINES]; /* of keys 4 i to 4 i + 3 of the tile */

    __device__ __forceinline__ void load(const Arguments &args, int page, int first_key, int left) {
        const int key = lane_id() / 8;
        const unsigned char *const from =
            args.keys + page * args.page_stride + (first_key + key) * KEY_BYTES + lane_id() % 8 * 16;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < LINES; j++)
                lines[i][j] = load_once_16(from + 4 * i * KEY_BYTES + j * LINE_BYTES, key + 4 * i < left);
    }
};

__device__ __forceinline__ AccF32 multiply(const Keys &keys, const Queries &queries) {
    AccF32 halves[2]; /* of keys 0 to 3 and 8 to 11, of 4 to 7 and 12 to 15 */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        clear(halves[i]);
#pragma unroll
        for (int j = 0; j < LINES; j++) {
            const uint4 &a = keys.lines[i][j], &b = keys.lines[i + 2][j], &q = queries.lines[j];
            mma_bf16(halves[i], a.x, b.x, a.y, b.y, q.x, q.y);
            mma_bf16(halves[i], a.z, b.z, a.w, b.w, q.z, q.w);
        }
    }
    /* The lane that has the other half of a score is 6 away; of the two, that of the odd row adds up halves[1]. */
    const bool odd = mma_row() % 2;
    AccF32 sums;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float own = odd ? halves[1].v[i] : halves[0].v[i], give = odd ? halves[0].v[i] : halves[1].v[i];
        sums.v[i] = own + __shfl_xor_sync(FULL_WARP, give, 6);
    }
    return sums;
}

#endif

__device__ __forceinline__ void load_tile(Keys &keys, const Arguments &args, const Unit &unit, int tile) {
    const int first = tile * TILE_KEYS;
    const int left = unit.page >= 0 ? unit.length - unit.key - first : 0; /* nothing past the group's length is read */
    keys.load(args, max(unit.page, 0), unit.key % PAGE_KEYS + first, left);
}

/* ---- The kernel ------------------------------------------------------------------------------------------------ */

/* The group whose units are at work. */
struct Group {
    int index;
    i64 first_row;
    Queries queries; /* the first ROWS rows; others are read anew for each tile, from L1 */

    __device__ __forceinline__ void enter(const Arguments &args, int group) {
        index = group;
        first_row = static_cast<i64>(group) * args.rows;
        queries.load(args, first_row, 0);
    }

    /* Scores of rows `from_row` on for a tile with `left` keys whose first is `key`. */
    __device__ __forceinline__ void store(const Arguments &args, int from_row, int key, int left,
                                          const AccF32 &sums) const {
        const int rows = has_results() ? args.rows - from_row - result_row() : 0;
        const int keys = left - result_key();
        float *const at = args.scores + (first_row + from_row + result_row()) * args.scores_stride + key + result_key();
        store_if(rows > 0 && keys > 0, at, sums.v[0]);
        store_if(rows > 0 && keys > 8, at + 8, sums.v[2]);
        store_if(rows > 1 && keys > 0, at + args.scores_stride, sums.v[1]);
        store_if(rows > 1 && keys > 8, at + args.scores_stride + 8, sums.v[3]);
    }
};

/* Units of every chunk of groups, by all warps of the CTA. A barrier must follow. Lengths of several chunks are fetched
 * together: there may be tens of thousands of groups. */
__device__ __forceinline__ void sum_units(const Arguments &args, int chunk_length, int chunks, i64 *chunk_units) {
    constexpr int TOGETHER = 4;
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int chunk = static_cast<int>(threadIdx.x) / 32 * TOGETHER; chunk < chunks; chunk += warps * TOGETHER) {
        i64 sums[TOGETHER] = {};
        for (int i = lane_id(); i < chunk_length; i += 32) {
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                const i64 group = static_cast<i64>(chunk + j) * chunk_length + i;
                sums[j] += group < args.groups ? units_of(group_length(args, static_cast<int>(group))) : 0;
            }
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const i64 sum = warp_sum(sums[j]);
            if (lane_id() == 0 && chunk + j < chunks)
                chunk_units[chunk + j] = sum;
        }
    }
}

/* Where run number `run` of `runs` starts: floor(total * (run * floor(2^32 / runs)) / 2^32). No division that waits for
 * the lengths; the last run may get a little more. */
__device__ __forceinline__ i64 run_start(u64 total, u32 part) {
    return static_cast<i64>((total >> 32) * part + (static_cast<u64>(static_cast<u32>(total)) * part >> 32));
}

/* This warp's run of all units: where it starts and how long it is. Called by all warps of the CTA together. */
__device__ __forceinline__ void choose_run(Work &work, i64 *chunk_units) {
    const Arguments &args = work.args;
    const u32 warps = blockDim.x / 32;
    const u32 run = blockIdx.x * warps + threadIdx.x / 32;
    const u32 runs = gridDim.x * warps;
    const u32 each = 0xffffffffu / runs;
    work.chunk_units = nullptr;
    int chunks = 0;
    i64 total;
    if (args.groups <= 32) {
        work.open_window(0);
        total = work.total;
    } else {
        work.chunk_length = chunk_length_of(args.groups);
        work.chunk_units = chunk_units;
        chunks = (args.groups + work.chunk_length - 1) / work.chunk_length;
        sum_units(args, work.chunk_length, chunks, chunk_units);
        __syncthreads();
        total = total_tiles(chunk_units, chunks);
    }
    const i64 first = run_start(static_cast<u64>(total), run * each);
    const i64 end = run + 1 < runs ? run_start(static_cast<u64>(total), (run + 1) * each) : total;
    work.left = end - first;
    work.at = first;
    if (work.chunk_units != nullptr && work.left > 0) {
        i64 before;
        const int chunk = find_chunk(chunk_units, chunks, first, &before);
        work.base = chunk * work.chunk_length - 32; /* an empty window: the next one is the chunk's first */
        work.total = 0;
        work.at = first - before;
    }
}

/* i64 chunk_units[MAX_CHUNKS], then Notes of each warp. */
extern __shared__ __align__(16) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(32 * MAX_WARPS, 1) indexer_scores(const __grid_constant__ Arguments args) {
    grid_dependency_wait();
    grid_dependency_trigger();

    i64 *const chunk_units = reinterpret_cast<i64 *>(shared_memory);
    Work work{args, reinterpret_cast<Notes *>(chunk_units + MAX_CHUNKS)[threadIdx.x / 32]};
    work.count = work.next = 0;
    choose_run(work, chunk_units);

    Group group;
    group.index = -1;
    Keys keys[TILES];
    Unit unit{-1, 0, 0, -1}; /* whose keys are there, or on their way */
#pragma unroll 1
    do {
        if (unit.group != group.index)
            group.enter(args, unit.group);
        const Unit ahead = work.take();
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            constexpr int PASSES = 8 / ROWS;
            AccF32 sums[PASSES];
            if (unit.group >= 0) {
                sums[0] = multiply(keys[tile], group.queries);
#pragma unroll
                for (int pass = 1; pass < PASSES; pass++) {
                    if (args.rows > pass * ROWS) {
                        Queries others;
                        others.load(args, group.first_row, pass * ROWS);
                        sums[pass] = multiply(keys[tile], others);
                    }
                }
            }
            load_tile(keys[tile], args, ahead, tile);
            const int key = unit.key + tile * TILE_KEYS;
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++)
                if (unit.group >= 0 && (pass == 0 || args.rows > pass * ROWS))
                    group.store(args, pass * ROWS, key, unit.length - key, sums[pass]);
        }
        unit = ahead;
    } while (unit.group >= 0);
}
