/* SPDX-License-Identifier: MIT
 * fp8_paged_mqa_logits for every architecture from sm_80 on: persistent, one pass over the KV for every next_n.
 *
 * lib/portable.cuh is the frame: what a CTA and its warps do in which order. Here is what depends on the number format:
 * how queries and keys become operands. Where the tensor cores take E4M3, they are used as they are; elsewhere both
 * become float16, which holds every E4M3 number: the queries once for each request, the keys once for each unit of 32
 * tokens. */
#include "lib/base.cuh"
#include "lib/output.cuh"

/* Specialised constants, filled in by the host. */
constexpr int NUM_HEADS = @NUM_HEADS@;
constexpr int HEAD_DIM = @HEAD_DIM@;
constexpr int BLOCK_SIZE = @BLOCK_SIZE@;
constexpr int NEXT_N = @NEXT_N@;
constexpr int WARPS = @WARPS@;
constexpr int CTAS_PER_SM = @CTAS_PER_SM@;
constexpr int STAGES = @STAGES@;             /* units of KV under way for each warp */
constexpr int CHUNK_SLOTS = @CHUNK_SLOTS@;   /* query slots whose queries are in shared memory at a time */
constexpr int SHARED_BYTES = @SHARED_BYTES@; /* of a CTA */
constexpr bool ACC_F16 = @ACC_F16@;
constexpr bool EPI_F16 = @EPI_F16@;
constexpr bool DOUBLED_RELU = false;
constexpr bool WEIGHTS_IN_REGISTERS = false;
typedef @OUT_TYPE@ Output;

#define NATIVE_E4M3 @NATIVE_E4M3@

#include "lib/mma_sync.cuh"
#if !NATIVE_E4M3
#include "lib/e4m3.cuh"
#endif

#if @ACC_F16@
typedef AccF16 Accumulator;
#else
typedef AccF32 Accumulator;
#endif

#if NATIVE_E4M3
constexpr int PIECE_REGISTERS = 1; /* that hold 4 values of one head or token, of each piece of 16 */
#else
constexpr int PIECE_REGISTERS = 2;
#endif
constexpr int PIECES = HEAD_DIM / 16;

constexpr int ROW_BYTES = HEAD_DIM;
constexpr int TOKEN_SCALE_BYTES = 4;
constexpr bool SCALES_INTERLEAVED = false;
constexpr int QUERY_REGISTERS = PIECES * PIECE_REGISTERS;
constexpr int SLOT_EXTRA_BYTES = 0;

#include "lib/portable.cuh"

/* 4 values as operands. */
__device__ __forceinline__ void widen(u32 bytes, u32 (&x)[PIECE_REGISTERS]) {
#if NATIVE_E4M3
    x[0] = bytes;
#else
    e4m3_to_f16(bytes, x[0], x[1]);
#endif
}

struct Format {
    /* By the thread that has piece `piece` of a head's query. */
    __device__ __forceinline__ static void store_query(const Arguments &, int, int, u32 *slot, int head, int piece,
                                                       const uint4 &bytes) {
        const u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int lane = 0; lane < 4; lane++) {
            u32 x[PIECE_REGISTERS];
            widen(words[lane], x);
#pragma unroll
            for (int i = 0; i < PIECE_REGISTERS; i++)
                *query_register(slot, head, lane, piece * PIECE_REGISTERS + i) = x[i];
        }
    }

    /* A unit's keys, as A. */
    struct Keys {
        /* Of two pieces: {rows l/4, l/4 + 8 of the half} x {first piece, second}. */
        u32 a[HALVES][PIECES / 2][4][PIECE_REGISTERS];
        float scale; /* of the token that this lane stores */

        __device__ __forceinline__ void load(u32 stage, int, int) {
            scale = *shared_pointer<float>(stage + static_cast<u32>(UNIT_BYTES + own_token() * 4));
#pragma unroll
            for (int half = 0; half < HALVES; half++)
#pragma unroll
                for (int pair = 0; pair < PIECES / 2; pair++) {
                    u32 bytes[4];
                    load_matrices(bytes,
                                  stage + swizzled<ROW_BYTES>(16 * half + lane_id() % 16, 2 * pair + lane_id() / 16));
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        widen(bytes[i], a[half][pair][i]);
                }
        }

        /* Adds the product of a half with 8 heads. */
        __device__ __forceinline__ void multiply(Accumulator &d, int half, const u32 (&b)[QUERY_REGISTERS], int) const {
#pragma unroll
            for (int pair = 0; pair < PIECES / 2; pair++) {
                const auto &x = a[half][pair];
#if NATIVE_E4M3
                mma_e4m3(d, x[0][0], x[1][0], x[2][0], x[3][0], b[2 * pair], b[2 * pair + 1]);
#else
                mma_f16(d, x[0][0], x[1][0], x[0][1], x[1][1], b[4 * pair], b[4 * pair + 1]);
                mma_f16(d, x[2][0], x[3][0], x[2][1], x[3][1], b[4 * pair + 2], b[4 * pair + 3]);
#endif
            }
        }

        /* Whether `score` reads the stage, too. */
        __device__ __forceinline__ bool keeps_stage() const {
            return false;
        }

        __device__ __forceinline__ float score(const Arguments &, int, int slot, const u32 *queries) const {
            return score_unit(*this, queries, shared_at<float>(WEIGHTS_AT) + slot * NUM_HEADS) * scale;
        }
    };
};

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    fp8_paged_mqa_logits(const __grid_constant__ Arguments args) {
    run_portable<Format>(args);
}
