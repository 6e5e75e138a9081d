/* SPDX-License-Identifier: MIT
 * Warpgroup MMA of sm_90a for E4M3 operands in shared memory, M = 64, K = 32 (PTX ISA, "wgmma.mma_async").
 *
 * The accumulator of lane l in warp w: row 16w + l/4 (and + 8), columns 8j + 2(l%4) + {0, 1}. With float32 register
 * 4j + e is row r, column 8j + 2q + e, and 4j + 2 + e the same of row r + 8; with float16 register 2j holds the two
 * columns of row r, 2j + 1 those of row r + 8. */

/* Matrix descriptor of a K-major operand whose rows of ROW_BYTES (32, 64, 128) are swizzled over their own width.
 * Bits 0-13 address / 16, 16-29 leading offset (unused here), 32-45 stride between groups of 8 rows / 16, 62-63 swizzle
 * mode: 1 128 B, 2 64 B, 3 32 B. One K step of 32 bytes further is + 2. */
template <int ROW_BYTES> __device__ __forceinline__ u64 wgmma_descriptor(u32 address) {
    constexpr u64 swizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    constexpr u64 group_stride = 8 * ROW_BYTES / 16;
    return (swizzle << 62) | (group_stride << 32) | (u64(1) << 16) | u64((address & 0x3ffffu) >> 4);
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_wait_all() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Operand lists for an asm statement with that many accumulator registers. */
#define WGMMA_NAMES_2 "%0, %1"
#define WGMMA_NAMES_4 WGMMA_NAMES_2 ", " "%2, %3"
#define WGMMA_NAMES_6 WGMMA_NAMES_4 ", " "%4, %5"
#define WGMMA_NAMES_8 WGMMA_NAMES_6 ", " "%6, %7"
#define WGMMA_NAMES_10 WGMMA_NAMES_8 ", " "%8, %9"
#define WGMMA_NAMES_12 WGMMA_NAMES_10 ", " "%10, %11"
#define WGMMA_NAMES_14 WGMMA_NAMES_12 ", " "%12, %13"
#define WGMMA_NAMES_16 WGMMA_NAMES_14 ", " "%14, %15"
#define WGMMA_NAMES_18 WGMMA_NAMES_16 ", " "%16, %17"
#define WGMMA_NAMES_20 WGMMA_NAMES_18 ", " "%18, %19"
#define WGMMA_NAMES_22 WGMMA_NAMES_20 ", " "%20, %21"
#define WGMMA_NAMES_24 WGMMA_NAMES_22 ", " "%22, %23"
#define WGMMA_NAMES_26 WGMMA_NAMES_24 ", " "%24, %25"
#define WGMMA_NAMES_28 WGMMA_NAMES_26 ", " "%26, %27"
#define WGMMA_NAMES_30 WGMMA_NAMES_28 ", " "%28, %29"
#define WGMMA_NAMES_32 WGMMA_NAMES_30 ", " "%30, %31"
#define WGMMA_NAMES_36 WGMMA_NAMES_32 ", " "%32, %33, %34, %35"
#define WGMMA_NAMES_40 WGMMA_NAMES_36 ", " "%36, %37, %38, %39"
#define WGMMA_NAMES_44 WGMMA_NAMES_40 ", " "%40, %41, %42, %43"
#define WGMMA_NAMES_48 WGMMA_NAMES_44 ", " "%44, %45, %46, %47"
#define WGMMA_NAMES_52 WGMMA_NAMES_48 ", " "%48, %49, %50, %51"
#define WGMMA_NAMES_56 WGMMA_NAMES_52 ", " "%52, %53, %54, %55"
#define WGMMA_NAMES_60 WGMMA_NAMES_56 ", " "%56, %57, %58, %59"
#define WGMMA_NAMES_64 WGMMA_NAMES_60 ", " "%60, %61, %62, %63"
#define WGMMA_OPERANDS_2(m, d) m(d[0]), m(d[1])
#define WGMMA_OPERANDS_4(m, d) WGMMA_OPERANDS_2(m, d), m(d[2]), m(d[3])
#define WGMMA_OPERANDS_6(m, d) WGMMA_OPERANDS_4(m, d), m(d[4]), m(d[5])
#define WGMMA_OPERANDS_8(m, d) WGMMA_OPERANDS_6(m, d), m(d[6]), m(d[7])
#define WGMMA_OPERANDS_10(m, d) WGMMA_OPERANDS_8(m, d), m(d[8]), m(d[9])
#define WGMMA_OPERANDS_12(m, d) WGMMA_OPERANDS_10(m, d), m(d[10]), m(d[11])
#define WGMMA_OPERANDS_14(m, d) WGMMA_OPERANDS_12(m, d), m(d[12]), m(d[13])
#define WGMMA_OPERANDS_16(m, d) WGMMA_OPERANDS_14(m, d), m(d[14]), m(d[15])
#define WGMMA_OPERANDS_18(m, d) WGMMA_OPERANDS_16(m, d), m(d[16]), m(d[17])
#define WGMMA_OPERANDS_20(m, d) WGMMA_OPERANDS_18(m, d), m(d[18]), m(d[19])
#define WGMMA_OPERANDS_22(m, d) WGMMA_OPERANDS_20(m, d), m(d[20]), m(d[21])
#define WGMMA_OPERANDS_24(m, d) WGMMA_OPERANDS_22(m, d), m(d[22]), m(d[23])
#define WGMMA_OPERANDS_26(m, d) WGMMA_OPERANDS_24(m, d), m(d[24]), m(d[25])
#define WGMMA_OPERANDS_28(m, d) WGMMA_OPERANDS_26(m, d), m(d[26]), m(d[27])
#define WGMMA_OPERANDS_30(m, d) WGMMA_OPERANDS_28(m, d), m(d[28]), m(d[29])
#define WGMMA_OPERANDS_32(m, d) WGMMA_OPERANDS_30(m, d), m(d[30]), m(d[31])
#define WGMMA_OPERANDS_36(m, d) WGMMA_OPERANDS_32(m, d), m(d[32]), m(d[33]), m(d[34]), m(d[35])
#define WGMMA_OPERANDS_40(m, d) WGMMA_OPERANDS_36(m, d), m(d[36]), m(d[37]), m(d[38]), m(d[39])
#define WGMMA_OPERANDS_44(m, d) WGMMA_OPERANDS_40(m, d), m(d[40]), m(d[41]), m(d[42]), m(d[43])
#define WGMMA_OPERANDS_48(m, d) WGMMA_OPERANDS_44(m, d), m(d[44]), m(d[45]), m(d[46]), m(d[47])
#define WGMMA_OPERANDS_52(m, d) WGMMA_OPERANDS_48(m, d), m(d[48]), m(d[49]), m(d[50]), m(d[51])
#define WGMMA_OPERANDS_56(m, d) WGMMA_OPERANDS_52(m, d), m(d[52]), m(d[53]), m(d[54]), m(d[55])
#define WGMMA_OPERANDS_60(m, d) WGMMA_OPERANDS_56(m, d), m(d[56]), m(d[57]), m(d[58]), m(d[59])
#define WGMMA_OPERANDS_64(m, d) WGMMA_OPERANDS_60(m, d), m(d[60]), m(d[61]), m(d[62]), m(d[63])

#define WGMMA_OUT_F32(x) "=f"(x)
#define WGMMA_INOUT_F32(x) "+f"(x)
#define WGMMA_OUT_F16(x) "=r"(x)
#define WGMMA_INOUT_F16(x) "+r"(x)

/* Defines Wgmma<n>::first (D = A B) and ::next (D += A B) for `registers` accumulator registers; descriptor_b is the
 * operand number after the accumulators and A's descriptor. The first step names its registers as outputs only: no
 * initialisation is needed and ptxas keeps the wgmmas in flight. */
#define WGMMA_DEFINE(type, name, n, registers, descriptor_b)                                                           \
    template <> struct Wgmma<n> {                                                                                      \
        static constexpr int REGISTERS = registers;                                                                    \
        static __device__ __forceinline__ void first(type *d, u64 a, u64 b) {                              \
            WGMMA_ASM("0", name, n, registers, descriptor_b, WGMMA_OUT_##name)                                         \
        }                                                                                                              \
        static __device__ __forceinline__ void next(type *d, u64 a, u64 b) {                               \
            WGMMA_ASM("1", name, n, registers, descriptor_b, WGMMA_INOUT_##name)                                       \
        }                                                                                                              \
    };
#define WGMMA_TYPE_F32 "f32"
#define WGMMA_TYPE_F16 "f16"
#define WGMMA_ASM(accumulate, name, n, registers, descriptor_b, constraint)                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k32." WGMMA_TYPE_##name ".e4m3.e4m3 {"                    \
                 WGMMA_NAMES_##registers                                                                            \
                 "}, %" #registers ", %" #descriptor_b ", p, 1, 1;\n}"                                                 \
                 : WGMMA_OPERANDS_##registers(constraint, d)                                                           \
                 : "l"(a), "l"(b));

template <int N> struct Wgmma;

/* Keeps the compiler from moving uses of the accumulators above the wait. */
__device__ __forceinline__ void wgmma_pin(float &x) {
    asm volatile("" : "+f"(x));
}
__device__ __forceinline__ void wgmma_pin(u32 &x) {
    asm volatile("" : "+r"(x));
}
