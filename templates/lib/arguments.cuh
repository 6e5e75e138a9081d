/* SPDX-License-Identifier: MIT
 * What every logits kernel is told of the batch, and how far a row goes. Needs NEXT_N and Output. */

/* The end of a kernel's argument, after its tensor maps; laid out alike in src/launch/launch.h. Strides in elements. */
struct CommonArguments {
    const float *weights;
    i64 weights_stride;
    const int *block_tables;
    i64 table_stride;
    const int *seq_lens;
    i64 lens_stride_b, lens_stride_t; /* the second is used with per_slot_lens */
    const int *schedule;              /* share starts {request, tile}, or null */
    Output *out;
    i64 out_stride;
    int batch;
    int max_tokens;  /* lengths are clamped to this: what max_seq_len and the block table cover */
    int clean_until; /* -inf is written from a row's limit to this column; 0: nothing is */
    int per_slot_lens;
    int num_shares;
    int stages;      /* of the KV ring */
    int ctas_per_sm; /* the grid is this times the number of SMs; at most MAX_CTAS_PER_SM */
    u32 ctas_reciprocal; /* 2^32 / ctas_per_sm, rounded up; for 1 unused */
};

/* Tokens that slot t of a request sees: row request * NEXT_N + t is written in columns [0, limit). Of a request whose
 * length is known, and of any. */
__device__ __forceinline__ int slot_limit(const CommonArguments &args, int request, int slot, int length) {
    if (args.per_slot_lens)
        return clamp(args.seq_lens[request * args.lens_stride_b + slot * args.lens_stride_t], 0, args.max_tokens);
    return max(length - (NEXT_N - 1) + slot, 0);
}
__device__ __forceinline__ int slot_limit(const CommonArguments &args, int request, int slot) {
    const int length =
        args.per_slot_lens ? 0 : clamp(args.seq_lens[request * args.lens_stride_b], 0, args.max_tokens);
    return slot_limit(args, request, slot, length);
}

__device__ __forceinline__ int request_length(const CommonArguments &args, int request) {
    if (!args.per_slot_lens)
        return slot_limit(args, request, NEXT_N - 1);
    int length = 0;
#pragma unroll
    for (int slot = 0; slot < NEXT_N; slot++)
        length = max(length, slot_limit(args, request, slot));
    return length;
}

/* Starts to load the one length of a request, if `condition` holds; it is still to be clamped to [0, max_tokens].
 * Nothing is computed here, and no branch taken, so that a warp does not wait for it before it uses it. */
__device__ __forceinline__ void load_length(const CommonArguments &args, int request, bool condition, int &length) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.s32 %0, [%1];\n}"
                 : "+r"(length)
                 : "l"(args.seq_lens + request * args.lens_stride_b), "r"(static_cast<int>(condition)));
}

/* clean_logits: -inf from each row's limit to clean_until, in pieces dealt out over all CTAs. Called by `threads`
 * threads of each. */
__device__ __forceinline__ void clean_rows(const CommonArguments &args, int thread, int threads) {
    constexpr int PIECE = 2048;
    const int pieces = (args.clean_until + PIECE - 1) / PIECE;
    const i64 items = static_cast<i64>(args.batch) * NEXT_N * pieces;
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 row = item / pieces;
        const int begin = static_cast<int>(item - row * pieces) * PIECE;
        const int request = static_cast<int>(row / NEXT_N);
        const int limit = slot_limit(args, request, static_cast<int>(row - static_cast<i64>(request) * NEXT_N));
        const int end = min(args.clean_until - begin, PIECE) + begin;
        Output *out = args.out + row * args.out_stride;
        for (int column = max(begin, limit) + thread; column < end; column += threads)
            out[column] = convert<Output>(-__int_as_float(0x7f800000));
    }
}
