/* SPDX-License-Identifier: MIT
 * The scores of fp4_paged_mqa_logits_sm90.cu that do not fit the tensor cores' numbers. */

/* Scores a token against a slot from the packed numbers, by one warp: lanes deal out the heads. */
__device__ __forceinline__ float score_apart(const unsigned char *key, const unsigned char *key_scales,
                                          const unsigned char *queries, const unsigned char *query_scales,
                                          const float *weights) {
    float sum = 0.f;
#pragma unroll 1
    for (int head = lane_id(); head < NUM_HEADS; head += 32) {
        const u32 *q = reinterpret_cast<const u32 *>(queries + head * ROW_BYTES);
        const u32 *k = reinterpret_cast<const u32 *>(key);
        float score = 0.f;
#pragma unroll 1
        for (int group = 0; group < GROUPS; group++) {
            const int q_scale = query_scales[4 * head + group];
            const int k_scale = key_scales[group];
            int dot = 0; /* times 4 */
#pragma unroll 1
            for (int word = 0; word < 4; word++)
                dot += e2m1_dot(q[4 * group + word], k[4 * group + word]);
            score += q_scale == NAN_SCALE || k_scale == NAN_SCALE
                         ? __int_as_float(0x7fffffff)
                         : scale_by_power(0.25f * static_cast<float>(dot), q_scale + k_scale - 2 * 127);
        }
        float positive;
        asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(score));
        sum = __fmaf_rn(weights[head], positive, sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(FULL_WARP, sum, step);
    return sum;
}

/* The wild scores of this warp's 16 rows: those of `wild` tokens (bit 0: row lane / 4, bit 1: 8 rows on) and of wild
 * slots. Nothing of it is kept in the registers of the usual case. */
__device__ __forceinline__ void score_wild(const CommonArguments &args, Layout layout, u32 kv_stage, int q_stage,
                                           int start, u32 wild) {
    const int request = shared_pointer<RequestNote>(layout.note(q_stage))->request;
    const u32 lower = __ballot_sync(FULL_WARP, wild & 1);
    const u32 upper = __ballot_sync(FULL_WARP, wild & 2);
#pragma unroll 1
    for (int i = 0; i < 16; i++) {
        const bool wild_token = (i < 8 ? lower >> (4 * i) : upper >> (4 * (i - 8))) & 1;
        const int r = warp_row() + i;
#pragma unroll 1
        for (int slot = 0; slot < NEXT_N; slot++) {
            const int limit = shared_pointer<int>(layout.limits(q_stage))[slot];
            const bool wild_slot = shared_pointer<int>(layout.tame_limits())[slot] != limit;
            if (start + r >= limit || !(wild_token || wild_slot))
                continue;
            const int first_head = slot * NUM_HEADS;
            const float score = score_apart(shared_pointer<unsigned char>(key_at(kv_stage, r)),
                                            shared_pointer<unsigned char>(key_scales_at(kv_stage, r, start)),
                                            shared_pointer<unsigned char>(layout.q(q_stage)) + first_head * ROW_BYTES,
                                            shared_pointer<unsigned char>(layout.q_scales(q_stage)) + first_head * 4,
                                            shared_pointer<float>(layout.weights(q_stage)) + first_head);
            if (lane_id() == 0)
                args.out[(static_cast<i64>(request) * NEXT_N + slot) * args.out_stride + start + r] =
                    convert<Output>(score);
        }
    }
}
