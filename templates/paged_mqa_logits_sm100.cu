/* SPDX-License-Identifier: MIT
 * fp8_paged_mqa_logits and fp4_paged_mqa_logits for sm_100, sm_103 and sm_107: persistent, warp-specialised, one pass
 * over the KV for every next_n.
 *
 * One CTA on an SM. A job is a tile of 128 tokens (M of the MMA) times a chunk of the query slots' heads (N, at most
 * 128 columns); its accumulators are one of several stages of tensor memory. The roles, a file each:
 *
 *   producer warp     lib/loader_sm100.cuh: knows the schedule; announces requests (RequestNote, queries, weights) in Q
 *                     stages, fills KV stages
 *   scale warp        lib/scales_sm100.cuh, MXFP4: brings scale factors into the order in which tensor memory takes
 *                     them
 *   MMA thread        lib/multiplier_sm100.cuh: issues the MMAs of every job
 *   two warpgroups    lib/scorer_sm100.cuh: take the jobs in turn; a thread has one token, and scores the chunk's slots
 *                     for it
 *
 * MMA thread and warpgroups walk the same jobs (lib/jobs_sm100.cuh) from the same notes, so they cannot disagree about
 * the work, whatever the lengths or a caller's schedule say; a request without work is not announced to anyone. K stays
 * in shared memory until all chunks have used it. */
#include "lib/base.cuh"
#include "lib/shared_memory.cuh"
#include "lib/mbarrier.cuh"
#include "lib/registers.cuh"
#include "lib/tcgen05.cuh"
#include "lib/tma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
constexpr bool FP4 = @FP4@;
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@; /* query slots in one MMA */
constexpr int CHUNKS = @CHUNKS@;
constexpr int GROUP_TILES = @GROUP_TILES@; /* tiles that a chunk is applied to before the next chunk's turn */
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int ACC_STAGES = @ACC_STAGES@;
constexpr int TENSOR_COLUMNS = @TENSOR_COLUMNS@;        /* allocated */
constexpr bool KV_SF_INTERLEAVED = @KV_SF_INTERLEAVED@; /* order of MXFP4 scales in a block */
constexpr bool ACC_F16 = @ACC_F16@;
constexpr bool EPI_F16 = @EPI_F16@;
typedef @OUT_TYPE@ Output;

constexpr int WALK_TOKENS = 128;
#include "lib/arguments.cuh"
#include "lib/tile_walk.cuh"
#include "lib/head_sum_f32x2.cuh"

constexpr int MATH_WARPGROUPS = 2;
constexpr int MATH_WARPS = 4 * MATH_WARPGROUPS;
constexpr int PRODUCER_WARP = MATH_WARPS;
constexpr int MMA_WARP = MATH_WARPS + 1;
constexpr int SCALE_WARP = MATH_WARPS + 2;
constexpr int THREADS = 32 * (MATH_WARPS + 4);
/* 65536 registers of an SM: 384 threads start with 168 each. */
constexpr int CONTROL_REGISTERS = 64;
constexpr int MATH_REGISTERS = 216;

#include "lib/layout_sm100.cuh"
#include "lib/jobs_sm100.cuh"

/* Kernel argument; laid out alike in src/launch/sm100.c. Strides in elements. */
struct Arguments {
    TensorMap q;      /* [B, next_n, H, ROW_BYTES] bytes */
    TensorMap k;      /* [num_blocks, block_size, ROW_BYTES] bytes */
    TensorMap scales; /* [num_blocks, block_size] floats or groups of D/32 bytes */
    const u32 *q_sf;  /* [B, next_n, H], MXFP4 */
    i64 q_sf_stride_b, q_sf_stride_t;
    CommonArguments common;
};

#include "lib/loader_sm100.cuh"
#include "lib/scales_sm100.cuh"
#include "lib/multiplier_sm100.cuh"
#include "lib/scorer_sm100.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) paged_mqa_logits(const __grid_constant__ Arguments arguments) {
    const CommonArguments &args = arguments.common;
    const Layout layout{shared_address(shared_memory), args.stages};
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = warp_uniform(thread / 32);

    if (thread == 0) {
        tma_prefetch_map(&arguments.k);
        tma_prefetch_map(&arguments.scales);
        tma_prefetch_map(&arguments.q);
    }
    if (warp == 1) {
        for (int i = lane_id(); i < args.stages; i += 32) {
            mbarrier_init(layout.full(i), 1);
            mbarrier_init(layout.scaled(i), 1);
            /* The last MMA's commit; FP8: and every warp that has read scales, for each chunk. */
            mbarrier_init(layout.empty(i), FP4 ? 1 : 1 + 4 * CHUNKS);
        }
        if (lane_id() < Q_STAGES) {
            mbarrier_init(layout.q_full(lane_id()), 1);
            mbarrier_init(layout.q_scaled(lane_id()), 1);
            mbarrier_init(layout.q_empty(lane_id()), 1 + MATH_WARPS + (FP4 ? 1 : 0));
        }
        if (lane_id() < ACC_TURNS)
            mbarrier_init(layout.acc_full(lane_id()), 1);
        if (lane_id() < ACC_STAGES)
            mbarrier_init(layout.acc_empty(lane_id()), 4);
        mbarrier_init_fence();
    }
    /* This warp frees it below: no path leaves the kernel in between. Alone on its SM, so it never waits for another
     * CTA (but for one that is about to end). */
    if (warp == MMA_WARP) {
        tcgen05_alloc(layout.tensor(), TENSOR_COLUMNS);
        tcgen05_fence_before();
    }

    grid_dependency_wait();
    grid_dependency_trigger();

    /* Lengths: up to 32 are read by the producer alone, more are summed in chunks by the whole CTA. */
    int *chunk_tiles = shared_pointer<int>(layout.chunk_tiles());
    const int chunk_length = chunk_length_of(args.batch);
    int length = 0;
    if (args.batch <= 32) {
        if (warp == PRODUCER_WARP && lane_id() < args.batch)
            length = request_length(args, lane_id());
    } else if (args.schedule == nullptr) {
        sum_chunks(args.batch, chunk_length, warp, THREADS / 32, chunk_tiles,
                   [&](int request) { return walk_tiles(request_length(args, request)); });
    }
    if (warp == PRODUCER_WARP && args.schedule == nullptr)
        Loader{arguments, layout}.prefetch_table();
    __syncthreads();
    tcgen05_fence_after();
    const u32 tensor = *shared_pointer<u32>(layout.tensor());

    if (warp < MATH_WARPS) {
        take_registers<MATH_REGISTERS>();
        Scorer{args, layout, tensor + (static_cast<u32>(warp % 4 * 32) << 16), warp / 4 == 0}.run();
        if (args.clean_until > 0)
            clean_rows(args, thread, 32 * MATH_WARPS);
        tcgen05_fence_before();
    } else {
        give_registers<CONTROL_REGISTERS>();
        if (warp == PRODUCER_WARP) {
            Loader loader{arguments, layout};
            walk(loader, args.batch, args.schedule, args.num_shares, length, chunk_tiles, chunk_length);
            if (lane_id() == 0)
                loader.end();
        } else if (warp == MMA_WARP) {
            if (elect_one())
                Multiplier{layout, args.stages, tensor}.run();
        } else if (FP4 && warp == SCALE_WARP) {
            ScaleMover{layout, args.stages}.run();
        }
        __syncwarp();
    }
    __syncthreads();
    if (warp == MMA_WARP) {
        tcgen05_fence_after();
        tcgen05_free(tensor, TENSOR_COLUMNS);
    }
}
