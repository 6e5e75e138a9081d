/* SPDX-License-Identifier: MIT
 * Shared-memory barriers (PTX ISA, "mbarrier"). Addresses are 32-bit shared ones. Arrivals release and waits acquire at
 * CTA scope, so ordinary shared stores made before an arrival are seen after the wait. */

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the async proxy (TMA); a CTA barrier must follow. */
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Announces `bytes` of asynchronous copies, then arrives. */
__device__ __forceinline__ void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase of this parity has completed. */
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

/* Whether that phase has completed: does not wait. */
__device__ __forceinline__ bool mbarrier_test(u32 barrier, u32 parity) {
    u32 done;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}

/* Position in a ring of `stages` barriers and the parity of its current lap. */
struct RingCursor {
    int stage = 0;
    u32 parity = 0;

    /* By no more than a lap. */
    __device__ __forceinline__ void advance(int stages, int steps = 1) {
        stage += steps;
        if (stage >= stages) {
            stage -= stages;
            parity ^= 1;
        }
    }
};

/* Makes ordinary stores to shared memory visible to the async proxy (TMA, wgmma); a barrier must follow. */
__device__ __forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Barriers of the hardware (PTX ISA, "barrier"), 1 to 15; 0 is __syncthreads. `threads` take part. */
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
