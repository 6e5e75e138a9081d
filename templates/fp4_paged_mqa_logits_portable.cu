/* SPDX-License-Identifier: MIT
 * fp4_paged_mqa_logits (MXFP4) for every architecture from sm_80 on: persistent, one pass over the KV for every next_n.
 *
 * lib/portable.cuh is the frame: what a CTA and its warps do in which order. Here is what depends on the number format.
 *
 * Where tensor cores take E2M1 with scales, they are used as they are. Elsewhere values become bfloat16, with the
 * scales folded in: those of a token relative to its largest, those of a slot's queries relative to the slot's largest;
 * the two largest are applied to the finished score. That is done only where it is exact: where the scales are so near
 * to each other that every sum of products fits into the 24 bits of a float32, and everything so far from the ends of
 * its range that powers of two may be taken out. Otherwise each group of 32 is summed without its scales, which is
 * exact, and multiplied by them afterwards. So both ways lead to the same bits, and which one a unit takes does not
 * show, except in time. */
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
constexpr bool SCALES_INTERLEAVED = @SCALES_INTERLEAVED@;
typedef @OUT_TYPE@ Output;

#define NATIVE_MXF4 @NATIVE_MXF4@

#include "lib/e2m1.cuh"
#include "lib/mma_sync.cuh"

constexpr bool EPI_F16 = false;
constexpr bool DOUBLED_RELU = false;
constexpr bool WEIGHTS_IN_REGISTERS = false;
typedef AccF32 Accumulator;

constexpr int GROUPS = HEAD_DIM / 32; /* of values that share a scale: 16 bytes, a piece each */
constexpr int ROW_BYTES = HEAD_DIM / 2;
constexpr int TOKEN_SCALE_BYTES = GROUPS;
#if NATIVE_MXF4
constexpr int QUERY_REGISTERS = GROUPS;
constexpr int SLOT_EXTRA_BYTES = 4 * NUM_HEADS; /* q_sf */
#else
constexpr int QUERY_REGISTERS = 4 * GROUPS;
constexpr int SLOT_EXTRA_BYTES = 16; /* SlotScales */
#endif

#include "lib/portable.cuh"

/* The scales of a token, the first in the lowest byte. */
__device__ __forceinline__ u32 token_scales(u32 stage, int token, int first_token) {
    const u32 scales = stage + UNIT_BYTES;
    if (SCALES_INTERLEAVED) {
        /* A word each; with D = 64 that of two tokens, of this unit and of the next one in the block. */
        const u32 word = *shared_pointer<u32>(scales + static_cast<u32>(token * 4));
        return GROUPS == 4 ? word : word >> first_token / UNIT_TOKENS % 2 * 16 & 0xffff;
    }
    if (GROUPS == 4)
        return *shared_pointer<u32>(scales + static_cast<u32>(token * 4));
    return *shared_pointer<unsigned short>(scales + static_cast<u32>(token * 2));
}

__device__ __forceinline__ int scale_of(u32 scales, int group) {
    return static_cast<int>(scales >> 8 * group & 255);
}

/* Largest and smallest of GROUPS scales. */
struct ScaleRange {
    int top, bottom;

    __device__ __forceinline__ explicit ScaleRange(u32 scales) : top(scale_of(scales, 0)), bottom(top) {
#pragma unroll
        for (int group = 1; group < GROUPS; group++) {
            top = max(top, scale_of(scales, group));
            bottom = min(bottom, scale_of(scales, group));
        }
    }
    __device__ __forceinline__ int spread() const {
        return top - bottom;
    }
};

#if NATIVE_MXF4
/* ---- Tensor cores with block scales ---------------------------------------------------------------------------- */

struct Format {
    /* By one warp. */
    __device__ __forceinline__ static void load_slot(const Arguments &args, int request, int slot) {
        const u32 *from = args.q_sf + request * args.q_sf_stride_b + slot * args.q_sf_stride_t;
        for (int head = lane_id(); head < NUM_HEADS; head += 32)
            shared_at<u32>(SLOT_EXTRAS_AT)[slot * NUM_HEADS + head] = from[head];
    }

    /* By the thread that has group `group` of a head's query. */
    __device__ __forceinline__ static void store_query(const Arguments &, int, int, u32 *registers, int head, int group,
                                                       const uint4 &bytes) {
        const u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int lane = 0; lane < 4; lane++)
            *query_register(registers, head, lane, group) = words[lane];
    }

    /* A unit's keys, as A. The scales of rows l/4 and l/4 + 8 come from lanes 0 and 1 of four. */
    struct Keys {
        u32 a[HALVES][GROUPS / 2][4];
        u32 scales[HALVES];
        const u32 *head_scales;

        __device__ __forceinline__ void load(u32 stage, int first_token, int) {
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                scales[half] = token_scales(stage, 16 * half + lane_id() / 4 + lane_id() % 2 * 8, first_token);
#pragma unroll
                for (int pair = 0; pair < GROUPS / 2; pair++)
                    load_matrices(a[half][pair],
                                  stage + swizzled<ROW_BYTES>(16 * half + lane_id() % 16, 2 * pair + lane_id() / 16));
            }
        }
        __device__ __forceinline__ bool keeps_stage() const {
            return false;
        }
        __device__ __forceinline__ void multiply(Accumulator &d, int half, const u32 (&b)[QUERY_REGISTERS],
                                                 int tile) const {
            const u32 b_scales = head_scales[8 * tile + lane_id() / 4];
            mma_mxf4<0>(d, a[half][0], b[0], b[1], scales[half], b_scales);
            if constexpr (GROUPS == 4)
                mma_mxf4<2>(d, a[half][1], b[2], b[3], scales[half], b_scales);
        }
        __device__ __forceinline__ float score(const Arguments &, int, int slot, const u32 *queries) {
            head_scales = shared_at<u32>(SLOT_EXTRAS_AT) + slot * NUM_HEADS;
            return score_unit(*this, queries, shared_at<float>(WEIGHTS_AT) + slot * NUM_HEADS);
        }
    };
};

#else
/* ---- bfloat16 --------------------------------------------------------------------------------------------------- */

/* The sum of 32 products is a multiple of 1/4 below 2^11, so a sum of all groups takes 2 + 13 bits, and as many more as
 * their scales differ by powers of two. */
constexpr int MAX_SPREAD = 8;
/* The scores before scaling are multiples of 2^-(2 + MAX_SPREAD + MAX_HEAD_SPREAD) up to 2^13, in magnitude; weights
 * between 2^-MAX_EXPONENT and 2^MAX_EXPONENT leave the sum over heads, and its roundings, within the range of float32,
 * and so do scales. */
constexpr int MAX_HEAD_SPREAD = 24;
constexpr int MAX_EXPONENT = 30;

/* Of a slot's queries. */
struct alignas(16) SlotScales {
    int top;    /* largest scale */
    int spread; /* of the groups of one head, at most; TOO_FAR also if something else stands against folding */
    int unused[2];

    static constexpr int TOO_FAR = 1 << 10;
};

__device__ __forceinline__ const SlotScales &slot_scales(int slot) {
    return shared_at<SlotScales>(SLOT_EXTRAS_AT)[slot];
}

/* x * 2^(a - 127) * 2^(b - 127) of two scales, where float32 can hold it. In two steps, of which the first is exact, as
 * x is a small multiple of 1/4. */
__device__ __forceinline__ float scale_product(float x, int a, int b) {
    if (a == 255 || b == 255)
        return __int_as_float(0x7fffffff);
    const int exponent = max(a + b - 254, -200); /* far below all float32 */
    const int first = exponent >> 1;
    return __fmul_rn(__fmul_rn(x, power_of_two(first)), power_of_two(exponent - first));
}

struct Format {
    /* By one warp. */
    __device__ __forceinline__ static void load_slot(const Arguments &args, int request, int slot) {
        const u32 *scales = args.q_sf + request * args.q_sf_stride_b + slot * args.q_sf_stride_t;
        const float *weights =
            args.common.weights + (static_cast<i64>(request) * NEXT_N + slot) * args.common.weights_stride;
        int top = 0, least = 255, spread = 0;
        for (int head = lane_id(); head < NUM_HEADS; head += 32) {
            const ScaleRange range(scales[head]);
            top = max(top, range.top);
            least = min(least, range.top);
            spread = max(spread, range.spread());
            const int bits = __float_as_int(weights[head]) & 0x7fffffff;
            if (bits != 0 && (bits < (127 - MAX_EXPONENT) << 23 || bits > (127 + MAX_EXPONENT) << 23))
                spread = SlotScales::TOO_FAR;
        }
        top = __reduce_max_sync(FULL_WARP, top);
        least = __reduce_min_sync(FULL_WARP, least);
        spread = __reduce_max_sync(FULL_WARP, spread);
        if (top == 255 || top - least > MAX_HEAD_SPREAD)
            spread = SlotScales::TOO_FAR;
        if (lane_id() == 0)
            shared_at<SlotScales>(SLOT_EXTRAS_AT)[slot] = {top, spread, {0, 0}};
    }

    /* By the thread that has group `group` of a head's query. */
    __device__ __forceinline__ static void store_query(const Arguments &args, int request, int slot, u32 *registers,
                                                       int head, int group, const uint4 &bytes) {
        const u32 scales = args.q_sf[request * args.q_sf_stride_b + slot * args.q_sf_stride_t + head];
        const u32 factor = e2m1_factor(scale_of(scales, group) - slot_scales(slot).top);
        const u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int lane = 0; lane < 4; lane++) {
            u32 x[4];
            e2m1_to_bf16(words[lane], factor, x);
#pragma unroll
            for (int i = 0; i < 4; i++)
                *query_register(registers, head, lane, 4 * group + i) = x[i];
        }
    }

    /* A unit's keys, as A. */
    struct Keys {
        u32 a[HALVES][GROUPS][2][4]; /* of rows l/4 and l/4 + 8 */
        u32 stage;
        int first_token;
        int top;   /* scale of this lane's own token */
        u32 folds; /* bit t: with slot t, folded scales give exact products */

        __device__ __forceinline__ void load(u32 from, int first, int end) {
            stage = from;
            first_token = first;
            const ScaleRange own(token_scales(stage, own_token(), first_token));
            const bool counts = first_token + own_token() < end;
            top = own.top;
            const int unit_top = __reduce_max_sync(FULL_WARP, counts ? top : 0);
            const int unit_bottom = __reduce_min_sync(FULL_WARP, counts ? top : 255);
            const int unit_spread = __reduce_max_sync(FULL_WARP, counts ? own.spread() : 0);
            folds = 0;
            for (int slot = 0; slot < NEXT_N; slot++) {
                const SlotScales &queries = slot_scales(slot);
                if (unit_spread + queries.spread <= MAX_SPREAD && unit_top < 255 &&
                    unit_top + queries.top - 254 <= MAX_EXPONENT && unit_bottom + queries.top - 254 >= -MAX_EXPONENT)
                    folds |= 1u << slot;
            }
            fold();
        }

        /* Values from the stage, with scales. */
        __device__ __forceinline__ void fold() {
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                u32 scales[2];
                int tops[2];
#pragma unroll
                for (int row = 0; row < 2; row++) {
                    scales[row] = token_scales(stage, 16 * half + lane_id() / 4 + 8 * row, first_token);
                    tops[row] = ScaleRange(scales[row]).top;
                }
#pragma unroll
                for (int pair = 0; pair < GROUPS / 2; pair++) {
                    u32 words[4]; /* rows l/4, l/4 + 8 of the first group, of the second */
                    load_pair(half, pair, words);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int group = 2 * pair + i / 2;
                        e2m1_to_bf16(words[i], e2m1_factor(scale_of(scales[i % 2], group) - tops[i % 2]),
                                     a[half][group][i % 2]);
                    }
                }
            }
        }

        __device__ __forceinline__ void load_pair(int half, int pair, u32 (&words)[4]) const {
            load_matrices(words, stage + swizzled<ROW_BYTES>(16 * half + lane_id() % 16, 2 * pair + lane_id() / 16));
        }

        __device__ __forceinline__ bool keeps_stage() const {
            return folds != (1u << NEXT_N) - 1;
        }

        __device__ __forceinline__ void multiply(Accumulator &d, int half, const u32 (&b)[QUERY_REGISTERS], int) const {
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
                multiply_group(d, a[half][group][0], a[half][group][1], &b[4 * group]);
        }

        __device__ __forceinline__ static void multiply_group(Accumulator &d, const u32 *low, const u32 *high,
                                                              const u32 *b) {
            mma_bf16(d, low[0], high[0], low[1], high[1], b[0], b[1]);
            mma_bf16(d, low[2], high[2], low[3], high[3], b[2], b[3]);
        }

        __device__ __forceinline__ float score(const Arguments &args, int request, int slot, const u32 *queries) {
            const float *weights = shared_at<float>(WEIGHTS_AT) + slot * NUM_HEADS;
            if (folds >> slot & 1)
                return score_unit(*this, queries, weights) *
                       power_of_two(clamp(top + slot_scales(slot).top - 254, -MAX_EXPONENT, MAX_EXPONENT));
            const float score = score_by_groups(args, request, slot, weights);
            fold(); /* again, rather than keep it in registers that were needed */
            return score;
        }

        /* Values without scales from the stage and from the queries in global memory; scales when a group is summed. */
        __device__ __forceinline__ float score_by_groups(const Arguments &args, int request, int slot,
                                                         const float *weights) const {
            const unsigned char *q = args.q + request * args.q_stride_b + slot * args.q_stride_t;
            const u32 *q_sf = args.q_sf + request * args.q_sf_stride_b + slot * args.q_sf_stride_t;
            const float2 *w = reinterpret_cast<const float2 *>(weights) + lane_id() % 4;
            HeadSum sums[HALVES];
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                sums[half].clear();
#pragma unroll 1
            for (int tile = 0; tile < NUM_HEADS / 8; tile++) {
                const unsigned char *head = q + (8 * tile + lane_id() / 4) * ROW_BYTES + lane_id() % 4 * 4;
                const u32 column_scales[2] = {q_sf[8 * tile + lane_id() % 4 * 2],
                                              q_sf[8 * tile + lane_id() % 4 * 2 + 1]};
                Accumulator total[HALVES];
#pragma unroll
                for (int half = 0; half < HALVES; half++)
                    clear(total[half]);
#pragma unroll 1
                for (int pair = 0; pair < GROUPS / 2; pair++) {
                    u32 b[2][4];
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        e2m1_to_bf16(*reinterpret_cast<const u32 *>(head + (2 * pair + i) * 16), e2m1_factor(0), b[i]);
#pragma unroll
                    for (int half = 0; half < HALVES; half++) {
                        u32 words[4];
                        load_pair(half, pair, words);
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const int group = 2 * pair + i;
                            u32 low[4], high[4];
                            e2m1_to_bf16(words[2 * i], e2m1_factor(0), low);
                            e2m1_to_bf16(words[2 * i + 1], e2m1_factor(0), high);
                            Accumulator d;
                            clear(d);
                            multiply_group(d, low, high, b[i]);
#pragma unroll
                            for (int e = 0; e < 4; e++) {
                                const u32 row_scales =
                                    token_scales(stage, 16 * half + lane_id() / 4 + e / 2 * 8, first_token);
                                total[half].v[e] =
                                    __fadd_rn(total[half].v[e], scale_product(d.v[e], scale_of(row_scales, group),
                                                                              scale_of(column_scales[e % 2], group)));
                            }
                        }
                    }
                }
#pragma unroll
                for (int half = 0; half < HALVES; half++)
                    sums[half].add(total[half], w[4 * tile]);
            }
            return sum_over_quad(sums);
        }
    };
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    fp4_paged_mqa_logits(const __grid_constant__ Arguments args) {
    run_portable<Format>(args);
}
