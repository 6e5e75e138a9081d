/* SPDX-License-Identifier: MIT
 * What every tensor core since sm_80 has: asynchronous copies of 16 bytes, ldmatrix, and products of one warp (PTX ISA,
 * "cp.async", "ldmatrix", "mma").
 *
 * A product is 16 rows of A by 8 columns of B. Lane l holds, of A and of the result, rows l/4 and l/4 + 8; of B, column
 * l/4; of the result, columns 2(l%4) and 2(l%4) + 1. Of the K dimension it holds 4 bytes out of each 16: A's registers
 * are {row l/4, row l/4 + 8} of the first 16 bytes, then of the second; B's the first 16 bytes, then the second. */

/* ---- Copies --------------------------------------------------------------------------------------------------- */

/* Zeros instead where not `valid`; then nothing is read. */
__device__ __forceinline__ void copy_async_16(u32 to, const void *from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copy_async_4(u32 to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until no more than `pending` (< LIMIT) of this thread's groups are under way. */
template <int LIMIT> __device__ __forceinline__ void copy_async_wait(int pending) {
    if constexpr (LIMIT > 1) {
        if (pending < LIMIT - 1) {
            copy_async_wait<LIMIT - 1>(pending);
            return;
        }
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(LIMIT - 1) : "memory");
}

/* ---- Shared memory -------------------------------------------------------------------------------------------- */

/* Four matrices of 8 rows of 16 bytes; lane l gives the address of row l%8 of matrix l/8, and gets bytes [4(l%4), +4)
 * of row l/4 of each. */
__device__ __forceinline__ void load_matrices(u32 (&x)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/* Where 16-byte piece `piece` of row `row` lies in a tile of rows of ROW_BYTES: so that 8 rows of one column of pieces,
 * and 8 pieces in a row, lie in different banks. */
template <int ROW_BYTES> __device__ __forceinline__ u32 swizzled(int row, int piece) {
    constexpr int PIECES = ROW_BYTES / 16;
    const int turn = row / (8 / PIECES) % PIECES;
    return static_cast<u32>(row * ROW_BYTES + (piece ^ turn) * 16);
}

/* ---- Products ------------------------------------------------------------------------------------------------- */

struct AccF32 {
    float v[4]; /* {row l/4, row l/4 + 8} x {column 2(l%4), + 1} */
};
struct AccF16 {
    u32 v[2]; /* the two columns of row l/4, of row l/4 + 8 */
};

__device__ __forceinline__ void clear(AccF32 &d) {
    d.v[0] = d.v[1] = d.v[2] = d.v[3] = 0.f;
}
__device__ __forceinline__ void clear(AccF16 &d) {
    d.v[0] = d.v[1] = 0;
}

#define MMA_DEFINE(NAME, INSTRUCTION, TYPES)                                                                           \
    __device__ __forceinline__ void NAME(AccF32 &d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {                  \
        asm("mma.sync.aligned." INSTRUCTION ".row.col.f32." TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "          \
            "{%8, %9}, {%0, %1, %2, %3};"                                                                              \
            : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])                                                   \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                                   \
    }
#define MMA_DEFINE_F16(NAME, INSTRUCTION, TYPES)                                                                       \
    __device__ __forceinline__ void NAME(AccF16 &d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {                  \
        asm("mma.sync.aligned." INSTRUCTION ".row.col.f16." TYPES ".f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "        \
            "{%0, %1};"                                                                                                \
            : "+r"(d.v[0]), "+r"(d.v[1])                                                                               \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                                   \
    }

MMA_DEFINE(mma_f16, "m16n8k16", "f16.f16")
MMA_DEFINE_F16(mma_f16, "m16n8k16", "f16.f16")
MMA_DEFINE(mma_bf16, "m16n8k16", "bf16.bf16")
#if __CUDA_ARCH__ >= 890
MMA_DEFINE(mma_e4m3, "m16n8k32", "e4m3.e4m3")
MMA_DEFINE_F16(mma_e4m3, "m16n8k32", "e4m3.e4m3")
#endif
