/* SPDX-License-Identifier: MIT
 * fp4_paged_mqa_logits for sm_90a: persistent, warp-specialised, one pass over the KV for every next_n.
 *
 * Hopper multiplies no 4-bit numbers, so a math warpgroup expands a tile's keys to E5M2 in registers, as the A operand
 * of wgmma, and a request's queries to E5M2 in shared memory, as B. The scales go along: a token's (or head's) scales
 * become shifts relative to the largest of them, as long as they differ by no more than MAX_SHIFT powers of two; the
 * largest itself multiplies the token's score, or the head's weight. What does not fit (scales further apart, NaN,
 * weights very far apart or near the ends of float32) is called wild, and scored apart, slowly, number by number.
 * Whether a score is wild depends on its own token and query slot alone, so its bits do, too.
 *
 * For scores of 16 bits, heads are weighted and summed on the tensor cores as well (lib/split_weight.cuh), for float32
 * on FP32 units.
 *
 * The rest is as in fp8_paged_mqa_logits_sm90.cu: producers that alone know the schedule, a ring of KV stages, which
 * warpgroups and producers take in turn, a RequestNote for each request, stores while the tensor cores work on the next
 * tile. Then, too, the keys of the tile after that are loaded (lib/mxfp4_key_ring_sm90.cuh). */
#include "lib/base.cuh"
#include "lib/shared_memory.cuh"
#include "lib/mbarrier.cuh"
#include "lib/tma.cuh"
#include "lib/wgmma.cuh"
#include "lib/schedule.cuh"
#include "lib/output.cuh"
#include "lib/mxfp4.cuh"
#include "lib/registers.cuh"

/* Specialised constants, filled in by the host. */
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int MATH_WARPGROUPS = @MATH_WARPGROUPS@;
constexpr int MATH_REGISTERS = @MATH_REGISTERS@; /* of a thread; 0: all have alike */
constexpr int PRODUCER_REGISTERS = @PRODUCER_REGISTERS@;
constexpr int PRODUCERS = MATH_WARPGROUPS;
constexpr int MAX_CTAS_PER_SM = @MAX_CTAS_PER_SM@; /* the launch may use fewer */
constexpr int Q_STAGES = @Q_STAGES@;
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;         /* query slots in one wgmma */
constexpr int CHUNKS = @CHUNKS@;
constexpr bool SCALES_INTERLEAVED = @SCALES_INTERLEAVED@;
constexpr bool WEIGHTS_IN_REGISTERS = @WEIGHTS_IN_REGISTERS@;
constexpr bool ACC_F16 = false;
constexpr bool EPI_F16 = false;
constexpr bool DOUBLED_RELU = true; /* products of E5M2 numbers are far from float32's end */
typedef @OUT_TYPE@ Output;
/* Both ways on the tensor cores give the same bits. Four warpgroups have no more than 64 columns each. */
enum { ON_FP32_UNITS, BY_MMA, BY_WGMMA };
constexpr int HEAD_SUMS = sizeof(Output) != 2 ? ON_FP32_UNITS : MATH_WARPGROUPS == 4 ? BY_MMA : BY_WGMMA;
constexpr bool SUMS_ON_TENSOR_CORES = HEAD_SUMS != ON_FP32_UNITS;

WGMMA_DEFINE_A(float, F32, @CHUNK_N@, @CHUNK_REGISTERS@, "@CHUNK_A@", "@CHUNK_B@")
#include "lib/head_sum.cuh"
#include "lib/split_weight.cuh"
#include "lib/head_sum_mma.cuh"
#include "lib/head_sum_wgmma.cuh"

typedef PairSums<NUM_HEADS, CHUNK_SLOTS == 1 ? 1 : 2> ChunkPair;
constexpr int CHUNK_PAIRS = (CHUNK_SLOTS + 1) / 2;

constexpr int MATH_WARPS = 4 * MATH_WARPGROUPS;
constexpr int MATH_THREADS = 32 * MATH_WARPS;
constexpr int PRODUCER_WARPS = MATH_REGISTERS != 0 ? 4 : PRODUCERS; /* registers change hands by warpgroups */
constexpr int THREADS = MATH_THREADS + 32 * PRODUCER_WARPS;
constexpr int SLOTS = CHUNKS * CHUNK_SLOTS; /* with those that only fill up the last chunk: copies of the last slot */
constexpr int GROUPS = HEAD_DIM / 32;       /* scales of a token or head */
constexpr int STEPS = HEAD_DIM / 32;        /* of K in wgmma */
constexpr int ROW_BYTES = HEAD_DIM / 2;     /* packed numbers of a token or head */
constexpr int LANE_WORDS = HEAD_DIM / 32;   /* of these that one lane of a quad expands, 8 numbers each */
/* A tile is a part of one KV block, or several whole ones. */
constexpr int BOX_TOKENS = BLOCK_SIZE < TILE_TOKENS ? BLOCK_SIZE : TILE_TOKENS;
constexpr int BOXES = TILE_TOKENS / BOX_TOKENS;
/* Interleaved scales of half a block lie all over the block's scales. */
constexpr int BOX_SCALE_BYTES = (SCALES_INTERLEAVED ? BLOCK_SIZE : BOX_TOKENS) * GROUPS;
/* TMA writes to multiples of 128 bytes. */
constexpr int BOX_SCALE_PITCH = BOX_SCALE_BYTES < 128 ? 128 : BOX_SCALE_BYTES;
constexpr int MAP_ROW_BYTES = BOX_TOKENS * ROW_BYTES < 1024 ? BOX_TOKENS * ROW_BYTES : 1024;
constexpr int K_BYTES = TILE_TOKENS * ROW_BYTES;
constexpr int SCALE_BYTES = BOXES * BOX_SCALE_PITCH;

#include "lib/arguments.cuh"
#include "lib/producer.cuh"

/* Kernel argument; laid out alike in src/launch/sm90.c. */
struct Arguments {
    TensorMap k;      /* [num_blocks, block_size * D/2 / MAP_ROW_BYTES, MAP_ROW_BYTES / 4] words */
    TensorMap scales; /* [num_blocks, block_size] elements of D/32 bytes */
    const unsigned char *q;
    i64 q_stride_b, q_stride_t;   /* bytes */
    const unsigned char *q_scales;
    i64 q_scales_stride_b, q_scales_stride_t; /* bytes */
    CommonArguments common;
};

#include "lib/mxfp4_layout_sm90.cuh"
#include "lib/mxfp4_loader_sm90.cuh"
#include "lib/mxfp4_keys_sm90.cuh"
#include "lib/mxfp4_key_ring_sm90.cuh"
#include "lib/mxfp4_queries_sm90.cuh"
#include "lib/mxfp4_wild_sm90.cuh"
#include "lib/mxfp4_head_sums_sm90.cuh"
#include "lib/mxfp4_scorer_sm90.cuh"
#include "lib/roles_sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MAX_CTAS_PER_SM)
    fp4_paged_mqa_logits(const __grid_constant__ Arguments arguments) {
    if (threadIdx.x == 0) {
        tma_prefetch_map(&arguments.k);
        tma_prefetch_map(&arguments.scales);
    }
    const Layout layout{shared_address(shared_memory)};
    run_roles(arguments, layout, 4, [&](int) { Scorer{arguments.common, layout, {arguments.common}}.run(); });
}
