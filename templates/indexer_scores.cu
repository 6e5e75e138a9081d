/* SPDX-License-Identifier: MIT
 * indexer_scores for sm_80 and up: scores[row, k] = query row . key k, one launch, each key read once.
 *
 * The unit of work is one or two tiles of 16 keys of one group. A tile is the M of an MMA, the group's 1 to 8 query rows
 * are its N. The units of all groups, in order, are cut into equal runs, one for each warp of the grid, and a warp works
 * through its run alone, with a ring of units on their way to shared memory.
 *
 * A dot product does not mind the order of its terms. So the K dimension is permuted, for keys and queries alike, such that
 * 16 consecutive bytes of a row are what a lane must hold as MMA operands; the order is the same in every launch, so that a
 * score's bits depend on its row and its key only.
 *
 * Units are planned up to 32 at a time, one in each lane, so that the page ids of many units, or of many small groups, are
 * fetched together. */
#include "lib/base.cuh"
#include "lib/schedule.cuh"
#include "lib/mma_sync.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
#define NVFP4 @NVFP4@
constexpr int STAGES = @STAGES@;       /* of a warp's ring */
constexpr int MAX_WARPS = @MAX_WARPS@; /* of a CTA; the launch may use several smaller ones on an SM */

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
    int length;
    int page;   /* -1: zeros */
};

__device__ __forceinline__ int group_length(const Arguments &args, int group) {
    return clamp(args.lengths[group * args.lengths_stride], 0, args.max_context);
}

__device__ __forceinline__ int units_of(int length) {
    return (length + UNIT_KEYS - 1) / UNIT_KEYS;
}

/* Hands out the units of a warp's run. All functions are called by the whole warp. */
struct Work {
    const Arguments &args;
    const i64 *chunk_units; /* units of each chunk of groups, so that empty chunks are skipped; null for up to 32 groups */
    int chunk_length;
    i64 left; /* units that are not planned yet */

    /* A window of 32 groups: lane i has group base + i. `at` is the next unit to plan, counted from the window's first. */
    int base;
    i64 at;
    int length, request;
    u32 inclusive; /* units of the window's groups up to and with this one; 32 * 2^26 at most */

    /* Lane i has unit i of the `count` that are planned; `next` is the next to be handed out. */
    Unit planned;
    int count, next;

    __device__ __forceinline__ void open_window(int first_group) {
        base = first_group;
        const int group = base + lane_id();
        const bool exists = group < args.groups;
        length = exists ? group_length(args, group) : 0;
        request = exists ? args.requests[group * args.requests_stride] : -1;
        inclusive = warp_inclusive_scan(static_cast<u32>(units_of(length)));
    }

    /* Moves on to the window that holds the next unit; false if there is none. */
    __device__ __forceinline__ bool find_window() {
        while (left > 0) {
            const u32 total = __shfl_sync(FULL_WARP, inclusive, 31);
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

    __device__ __forceinline__ void plan() {
        count = next = 0;
        if (!find_window())
            return;
        const u32 total = __shfl_sync(FULL_WARP, inclusive, 31);
        const u32 from = static_cast<u32>(at); /* below the window's total */
        const u32 most = left < 32 ? static_cast<u32>(left) : 32u;
        count = static_cast<int>(min(most, total - from));

        /* The group that holds the lane's unit: the first whose inclusive sum is beyond it. */
        const u32 own = from + static_cast<u32>(lane_id());
        int owner = 0;
#pragma unroll
        for (int half = 16; half > 0; half /= 2)
            owner += __shfl_sync(FULL_WARP, inclusive, owner + half - 1) <= own ? half : 0;
        const u32 before = __shfl_sync(FULL_WARP, inclusive - static_cast<u32>(units_of(length)), owner);
        planned.group = base + owner;
        planned.key = static_cast<int>(own - before) * UNIT_KEYS;
        planned.length = __shfl_sync(FULL_WARP, length, owner);
        const int row = __shfl_sync(FULL_WARP, request, owner);
        planned.page = -1;
        if (lane_id() < count && row >= 0 && row < args.num_requests) {
            const int page = args.block_table[row * args.table_stride + planned.key / PAGE_KEYS];
            planned.page = page >= 0 && page < args.num_pages ? page : -1;
        }
        at += count;
        left -= count;
    }

    __device__ __forceinline__ Unit take() {
        if (next == count)
            plan();
        if (count == 0)
            return Unit{-1, 0, 0, 0};
        const Unit unit{
            __shfl_sync(FULL_WARP, planned.group, next), __shfl_sync(FULL_WARP, planned.key, next),
            __shfl_sync(FULL_WARP, planned.length, next), __shfl_sync(FULL_WARP, planned.page, next)};
        next++;
        return unit;
    }
};

/* ---- Operands -------------------------------------------------------------------------------------------------- */

/* Lane l works for rows l / 4 and l / 4 + 8 of a unit's keys and row l / 4 of the queries, and has the pieces of 16 bytes
 * at 16 (l % 4) of every 64 bytes of them. */
__device__ __forceinline__ int lane_row() {
    return lane_id() / 4;
}
__device__ __forceinline__ int lane_piece() {
    return lane_id() % 4;
}

constexpr int PIECES = KEY_BYTES / 64;

__device__ __forceinline__ uint4 load_shared_16(u32 address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

__device__ __forceinline__ u32 load_shared_4(u32 address) {
    u32 x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

/* Where keys end in a stage. */
constexpr u32 SCALES_AT = UNIT_KEYS * KEY_BYTES;

#if NVFP4

/* A lane copies what it needs itself: 16 bytes of a row, and of its 8 scales the 4 bytes that hold the two of its 32
 * values. A stage has these of all lanes for one row of each after another: nobody reads what others copied, and there are
 * no bank conflicts. */
constexpr u32 PIECE_BYTES = 32 * 16;
constexpr int SCALE_ROW_BYTES = 8;
constexpr u32 SCALE_WORDS_BYTES = 32 * 4;
constexpr u32 NOTE_AT = SCALES_AT + 2 * TILES * SCALE_WORDS_BYTES;

/* The first `left` keys of a unit, from `first_row` of the page on, and zeros for the others. */
__device__ __forceinline__ void copy_unit(const Arguments &args, u32 stage, int page, int first_row, int left) {
    const int row = first_row + lane_row();
    const unsigned char *const keys = args.keys + page * args.page_stride + row * KEY_BYTES + lane_piece() * 16;
    const unsigned char *const scales =
        args.key_scales + page * args.scale_page_stride + row * SCALE_ROW_BYTES + lane_piece() / 2 * 4;
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const bool exists = lane_row() + 8 * i < left;
        copy_async_16_of_line(stage + i * PIECE_BYTES + lane_id() * 16, keys + 8 * i * KEY_BYTES, exists);
        copy_async_4(stage + SCALES_AT + i * SCALE_WORDS_BYTES + lane_id() * 4, scales + 8 * i * SCALE_ROW_BYTES,
                     exists);
    }
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

    __device__ __forceinline__ void load(const Arguments &args, i64 row, bool exists) {
        uint4 values = make_uint4(0, 0, 0, 0);
        u32 scales = 0;
        if (exists) {
            values = *reinterpret_cast<const uint4 *>(args.query + row * args.query_stride + lane_piece() * 16);
            scales = *reinterpret_cast<const unsigned short *>(args.query_scales + row * args.query_scales_stride +
                                                               lane_piece() * 2);
        }
        dequantise(values, scales, operands);
#pragma unroll
        for (int i = 0; i < OPERANDS; i++)
            operands[i] = multiply_halves(operands[i], 0x58005800u); /* 2^7: the true values */
    }
};

__device__ __forceinline__ void multiply(u32 stage, int tile, const Queries &queries, AccF32 &scores) {
    u32 a[2][OPERANDS];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int index = 2 * tile + i;
        const u32 scales = load_shared_4(stage + SCALES_AT + index * SCALE_WORDS_BYTES + lane_id() * 4);
        const uint4 values = load_shared_16(stage + index * PIECE_BYTES + lane_id() * 16);
        dequantise(values, scales >> lane_piece() % 2 * 16, a[i]);
    }
#pragma unroll
    for (int i = 0; i < OPERANDS; i += 2)
        mma_f16(scores, a[0][i], a[1][i], a[0][i + 1], a[1][i + 1], queries.operands[i], queries.operands[i + 1]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        scores.v[i] *= 1 / NVFP4_FACTOR;
}

#else

constexpr u32 NOTE_AT = SCALES_AT;

/* A stage holds rows as they are, but the halves of every 128 bytes of odd ones change places: lanes then read 16 bytes of 8
 * rows without bank conflicts. */
__device__ __forceinline__ u32 place_of(int row, int piece) {
    return static_cast<u32>(row * KEY_BYTES + (piece ^ row % 2 * 4) * 16);
}

/* The first `left` keys of a unit, from `first_row` of the page on, and zeros for the others. Each copy of the warp is two
 * whole rows: memory is a few percent quicker than with 64 bytes of each of 8 rows. */
__device__ __forceinline__ void copy_unit(const Arguments &args, u32 stage, int page, int first_row, int left) {
    constexpr int ROW_PIECES = KEY_BYTES / 16, ROWS = 32 / ROW_PIECES;
    const int row = lane_id() / ROW_PIECES, piece = lane_id() % ROW_PIECES;
    const u32 to = stage + place_of(row, piece);
    const unsigned char *const from = args.keys + page * args.page_stride + (first_row + row) * KEY_BYTES + piece * 16;
#pragma unroll
    for (int i = 0; i < UNIT_KEYS; i += ROWS)
        copy_async_16_of_line(to + i * KEY_BYTES, from + i * KEY_BYTES, row + i < left);
}

struct Queries {
    uint4 values[PIECES];

    __device__ __forceinline__ void load(const Arguments &args, i64 row, bool exists) {
        const unsigned char *at = args.query + row * args.query_stride + lane_piece() * 16;
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            values[i] = exists ? *reinterpret_cast<const uint4 *>(at + i * 64) : make_uint4(0, 0, 0, 0);
    }
};

__device__ __forceinline__ void multiply(u32 stage, int tile, const Queries &queries, AccF32 &scores) {
    const u32 from = stage + tile * TILE_KEYS * KEY_BYTES;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint4 a = load_shared_16(from + place_of(lane_row(), 4 * i + lane_piece()));
        const uint4 b = load_shared_16(from + place_of(lane_row() + 8, 4 * i + lane_piece()));
        const uint4 &q = queries.values[i];
        mma_bf16(scores, a.x, b.x, a.y, b.y, q.x, q.y);
        mma_bf16(scores, a.z, b.z, a.w, b.w, q.z, q.w);
    }
}

#endif

/* ---- The pipeline ---------------------------------------------------------------------------------------------- */

constexpr u32 STAGE_BYTES = NOTE_AT + 16;

/* i64 chunk_units[MAX_CHUNKS], then rings [warps, STAGES, STAGE_BYTES]. */
extern __shared__ __align__(16) unsigned char shared_memory[];
constexpr u32 RINGS_AT = MAX_CHUNKS * sizeof(i64);

__device__ __forceinline__ Unit *note_of(u32 stage) {
    return reinterpret_cast<Unit *>(shared_memory + (stage - shared_address(shared_memory)) + NOTE_AT);
}

/* Starts the copies of the next unit and notes which it is. Always one group of copies, if an empty one. */
__device__ __forceinline__ void fill(Work &work, u32 stage) {
    const Unit unit = work.take();
    if (lane_id() == 0)
        *note_of(stage) = unit;
    if (unit.group >= 0) /* nothing past the group's length is read */
        copy_unit(work.args, stage, max(unit.page, 0), unit.key % PAGE_KEYS,
                  unit.page >= 0 ? unit.length - unit.key : 0);
    copy_async_commit();
}

/* The group whose units are at work. */
struct Group {
    int index;
    Queries queries;
    float *scores; /* of the lane's first query row, 2 (l % 4), at key l / 4 */

    __device__ __forceinline__ void enter(const Arguments &args, int group) {
        index = group;
        const i64 first_row = static_cast<i64>(group) * args.rows;
        queries.load(args, first_row + lane_row(), lane_row() < args.rows);
        scores = args.scores + (first_row + 2 * lane_piece()) * args.scores_stride + lane_row();
    }

    /* `key`: the tile's first. */
    __device__ __forceinline__ void store(const Arguments &args, int key, int length, const AccF32 &sums) const {
        const int left = length - key - lane_row();
        const int rows = args.rows - 2 * lane_piece();
        float *const at = scores + key;
        store_if(rows > 0 && left > 0, at, sums.v[0]);
        store_if(rows > 0 && left > 8, at + 8, sums.v[2]);
        store_if(rows > 1 && left > 0, at + args.scores_stride, sums.v[1]);
        store_if(rows > 1 && left > 8, at + args.scores_stride + 8, sums.v[3]);
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

/* This warp's run of all units: where it starts and how long it is. Called by all warps of the CTA together. */
__device__ __forceinline__ void choose_run(Work &work, i64 *chunk_units) {
    const Arguments &args = work.args;
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int run = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / 32;
    const int runs = static_cast<int>(gridDim.x) * warps;
    work.chunk_units = nullptr;
    int chunks = 0;
    i64 total;
    if (args.groups <= 32) {
        work.open_window(0);
        total = __shfl_sync(FULL_WARP, work.inclusive, 31);
    } else {
        work.chunk_length = chunk_length_of(args.groups);
        work.chunk_units = chunk_units;
        chunks = (args.groups + work.chunk_length - 1) / work.chunk_length;
        sum_units(args, work.chunk_length, chunks, chunk_units);
        __syncthreads();
        total = total_tiles(chunk_units, chunks);
    }
    /* floor(total * i / runs) without passing 2^63. */
    const i64 first = total / runs * run + total % runs * run / runs;
    const i64 end = total / runs * (run + 1) + total % runs * (run + 1) / runs;
    work.left = end - first;
    work.at = first;
    if (work.chunk_units != nullptr && work.left > 0) {
        i64 before;
        const int chunk = find_chunk(chunk_units, chunks, first, &before);
        work.open_window(chunk * work.chunk_length);
        work.at = first - before;
    }
}

extern "C" __global__ void __launch_bounds__(32 * MAX_WARPS, 1) indexer_scores(const __grid_constant__ Arguments args) {
    grid_dependency_wait();
    grid_dependency_trigger();

    Work work{args};
    work.count = work.next = 0;
    choose_run(work, reinterpret_cast<i64 *>(shared_memory));

    const u32 ring = shared_address(shared_memory) + RINGS_AT + threadIdx.x / 32 * STAGES * STAGE_BYTES;
    Group group;
    group.index = -1;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        fill(work, ring + i * STAGE_BYTES);
    for (int oldest = 0;; oldest = oldest + 1 < STAGES ? oldest + 1 : 0) {
        copy_async_wait<STAGES - 1>(STAGES - 2);
        __syncwarp();
        const u32 stage = ring + oldest * STAGE_BYTES;
        const Unit unit = *note_of(stage);
        if (unit.group < 0)
            return;
        fill(work, ring + (oldest > 0 ? oldest - 1 : STAGES - 1) * STAGE_BYTES);
        if (unit.group != group.index)
            group.enter(args, unit.group);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            AccF32 sums;
            clear(sums);
            multiply(stage, tile, group.queries, sums);
            group.store(args, unit.key + tile * TILE_KEYS, unit.length, sums);
        }
    }
}
