/* SPDX-License-Identifier: MIT
 * The math warpgroups of the tcgen05 kernels: from accumulators in tensor memory to scores, a token for each thread. */

/* A warpgroup: every second job. */
struct Scorer {
    static constexpr int COLUMNS = CHUNK_SLOTS * NUM_HEADS;
    static constexpr int PIECE = 16; /* columns loaded at a time, while the ones before are summed */

    const CommonArguments &args;
    const Layout &layout;
    u32 lanes;   /* tensor memory address of this warp's lanes */
    bool active; /* whether the next job is ours */
    RingCursor kv, q, turn;

    HeadWeights<COLUMNS> weights;

    __device__ __forceinline__ int tile_row() const {
        return static_cast<int>(threadIdx.x % 128);
    }

    /* One arrival for each warp, once all its lanes have read. */
    __device__ __forceinline__ void release(u32 barrier) const {
        __syncwarp();
        if (lane_id() == 0)
            mbarrier_arrive(barrier);
    }

    /* A piece, or what is left of the columns: a multiple of 8. */
    __device__ __forceinline__ void load_piece(u32 *cells, u32 address, int columns) const {
        if (columns >= PIECE) {
            tcgen05_load<PIECE>(cells, address);
        } else {
            if (columns & 16)
                tcgen05_load<16>(cells, address);
            if (columns & 8)
                tcgen05_load<8>(cells + (columns & 16), address + static_cast<u32>(columns & 16));
        }
    }

    /* The sum over the heads from column `address` on, no term larger than it has to be; by a whole warp. */
    __device__ __forceinline__ float careful_sum(u32 address, const float *w) const {
        float sum = 0.f;
#pragma unroll 1
        for (int head = 0; head < NUM_HEADS; head += 8) {
            u32 x[8];
            tcgen05_load<8>(x, address + static_cast<u32>(head));
            tcgen05_wait_loads<8>(x);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum = __fmaf_rn(w[head + i], relu(scores_f32(x[i], x[i]).x), sum);
        }
        return sum;
    }

    __device__ __forceinline__ void score(int request, int chunk, int token, const RingCursor &stage) {
        float scale = 1.f;
        if constexpr (!FP4) {
            /* Every reader of what TMA wrote waits for it itself; and K is free only when its scales are read, too. */
            mbarrier_wait(layout.full(stage.stage), stage.parity);
            const int r = tile_row();
            scale = *shared_pointer<float>(layout.scales(stage.stage) +
                                           static_cast<u32>(r / BOX_TOKENS * BOX_SCALE_PITCH + r % BOX_TOKENS * 4));
            release(layout.empty(stage.stage));
        }
        const int first_slot = chunk * CHUNK_SLOTS;
        const int slots = slots_of(chunk);
        const int *limits = shared_pointer<int>(layout.limits(q.stage)) + first_slot;
        Output *out = args.out + (static_cast<i64>(request) * NEXT_N + first_slot) * args.out_stride + token;

        /* The MMA is complete: its commit, this wait, this fence. */
        mbarrier_wait(layout.acc_full(turn.stage), turn.parity);
        tcgen05_fence_after();
        const int acc_stage = turn.stage % ACC_STAGES;
        const u32 address = lanes + static_cast<u32>(acc_stage * ACC_COLUMNS);
        u32 cells[2][PIECE];
        HeadSum sums;
        u32 suspects = 0; /* slots whose sum is not finite */
        load_piece(cells[0], address, COLUMNS);
#pragma unroll
        for (int at = 0; at < COLUMNS; at += PIECE) {
            u32 *const x = cells[at / PIECE % 2];
            tcgen05_wait_loads<(COLUMNS < PIECE ? COLUMNS : PIECE)>(x);
            const int next = at + PIECE;
            if (next < COLUMNS && (!RAGGED || next < slots * NUM_HEADS))
                load_piece(cells[next / PIECE % 2], address + static_cast<u32>(next), COLUMNS - next);
#pragma unroll
            for (int column = at; column < min(next, COLUMNS); column += 8) {
                const int slot = column / NUM_HEADS;
                if (RAGGED && slot >= slots)
                    continue;
                if (column % NUM_HEADS == 0)
                    sums.clear();
                sums.add8(x + column - at, weights, column / 2);
                if (column % NUM_HEADS == NUM_HEADS - 8) {
                    const float sum = sums.total();
                    suspects |= is_finite(sum) ? 0 : 1u << slot;
                    store_if(token < limits[slot], out + slot * args.out_stride, FP4 ? sum : sum * scale);
                }
            }
        }
        if (!EPI_F16 && __any_sync(FULL_WARP, suspects != 0)) {
#pragma unroll 1
            for (int slot = 0; slot < slots; slot++) {
                const u32 first = static_cast<u32>(slot * NUM_HEADS);
                const float sum =
                    careful_sum(address + first, shared_pointer<float>(layout.weights(q.stage)) +
                                                     first_slot * NUM_HEADS + first);
                store_if((suspects >> slot & 1) && token < limits[slot], out + slot * args.out_stride,
                         FP4 ? sum : sum * scale);
            }
        }
        /* Loads are complete (waited for) before the MMA thread may overwrite the stage. */
        tcgen05_fence_before();
        release(layout.acc_empty(acc_stage));
    }

    __device__ __forceinline__ void run() {
        for (;; q.advance(Q_STAGES)) {
            mbarrier_wait(layout.q_full(q.stage), q.parity);
            const RequestNote note = read_note(layout, q.stage);
            if (note.tiles == 0)
                break;
            int held = -1; /* chunk whose weights are in the registers */
            for_each_job(note.tiles, args.stages, kv, [&](int tile, int chunk, const RingCursor &stage) {
                if (active) {
                    if (chunk != held) {
                        weights.load(shared_pointer<float>(layout.weights(q.stage)) + chunk * COLUMNS,
                                     slots_of(chunk) * NUM_HEADS);
                        held = chunk;
                    }
                    score(note.request, chunk, note.token + tile * WALK_TOKENS + tile_row(), stage);
                }
                active = !active;
                turn.advance(ACC_TURNS);
            });
            release(layout.q_empty(q.stage));
        }
    }
};
