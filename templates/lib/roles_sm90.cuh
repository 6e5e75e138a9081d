/* SPDX-License-Identifier: MIT
 * What a CTA of the Hopper kernels does besides loading and scoring: barriers, roles, and registers that change hands.
 * Needs Arguments, Layout and Loader, lib/producer.cuh, and MATH_WARPS, PRODUCER_WARPS, PRODUCERS, MATH_REGISTERS,
 * PRODUCER_REGISTERS and Q_STAGES. */

__device__ __forceinline__ void init_barriers(const Layout &layout, int stages, int warps_of_a_stage) {
#pragma unroll 1 /* a launch of few tiles waits for instructions, too */
    for (int i = lane_id(); i < stages; i += 32) {
        mbarrier_init(layout.full(i), 1);
        mbarrier_init(layout.empty(i), static_cast<u32>(warps_of_a_stage));
    }
    if (lane_id() < Q_STAGES) {
        mbarrier_init(layout.q_full(lane_id()), 1);
        mbarrier_init(layout.q_empty(lane_id()), 32 * MATH_WARPS);
    }
    mbarrier_init_fence();
}

/* The whole kernel; `score(warp)` is what math warps do, `warps_of_a_stage` of which use a KV stage and say when they
 * have. */
template <class Score>
__device__ __forceinline__ void run_roles(const Arguments &arguments, const Layout &layout, int warps_of_a_stage,
                                          const Score &score) {
    const CommonArguments &args = arguments.common;
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    if (warp == 1)
        init_barriers(layout, args.stages, warps_of_a_stage);

    grid_dependency_wait();
    grid_dependency_trigger();

    /* Lengths: few are read by the producers alone, more are summed in chunks by the whole CTA. */
    const int index = warp - MATH_WARPS;
    const bool is_producer = index >= 0 && index < PRODUCERS;
    Layout kept_layout = layout; /* for producers, who would find out where shared memory is for every tile */
    keep(kept_layout.base);
    Producer<Loader> producer{args, Loader{arguments, kept_layout, {index, 0}}, index, index};
    int *chunk_tiles = shared_pointer<int>(layout.chunk_tiles());
    int chunk_length = 32, chunks = 0;
    if (is_producer)
        producer.prepare();
    if (!producer.holds_lengths() && args.schedule == nullptr) {
        chunk_length = chunk_length_of(args.batch);
        chunks = (args.batch + chunk_length - 1) / chunk_length;
        sum_chunks(args.batch, chunk_length, warp, MATH_WARPS + PRODUCER_WARPS, chunk_tiles,
                   [&](int request) { return tiles_of(request_length(args, request)); });
    }
    __syncthreads();

    if (warp >= MATH_WARPS) {
        if constexpr (MATH_REGISTERS != 0)
            give_registers<PRODUCER_REGISTERS>();
        if (is_producer)
            producer.run(chunk_tiles, chunk_length, chunks);
    } else {
        if constexpr (MATH_REGISTERS != 0)
            take_registers<MATH_REGISTERS>();
        score(warp);
        if (args.clean_until > 0)
            clean_rows(args, thread, 32 * MATH_WARPS);
    }
}
