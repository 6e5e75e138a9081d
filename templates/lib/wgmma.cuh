/* SPDX-License-Identifier: MIT
 * Warpgroup MMA of sm_90a for operands of 8 bits, M = 64, K = 32 (PTX ISA, "wgmma.mma_async").
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

/* The same in two parts: the low word depends on the address, which is added to as in a descriptor. */
template <int ROW_BYTES> __device__ __forceinline__ u32 wgmma_descriptor_low(u32 address) {
    return static_cast<u32>(wgmma_descriptor<ROW_BYTES>(address));
}
template <int ROW_BYTES> __device__ __forceinline__ u64 wgmma_descriptor_of(u32 low) {
    return (wgmma_descriptor<ROW_BYTES>(0) & 0xffffffff00000000ull) | low;
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
#define WGMMA_NAMES_34 WGMMA_NAMES_32 ", " "%32, %33"
#define WGMMA_NAMES_36 WGMMA_NAMES_34 ", " "%34, %35"
#define WGMMA_NAMES_38 WGMMA_NAMES_36 ", " "%36, %37"
#define WGMMA_NAMES_40 WGMMA_NAMES_38 ", " "%38, %39"
#define WGMMA_NAMES_42 WGMMA_NAMES_40 ", " "%40, %41"
#define WGMMA_NAMES_44 WGMMA_NAMES_42 ", " "%42, %43"
#define WGMMA_NAMES_46 WGMMA_NAMES_44 ", " "%44, %45"
#define WGMMA_NAMES_48 WGMMA_NAMES_46 ", " "%46, %47"
#define WGMMA_NAMES_50 WGMMA_NAMES_48 ", " "%48, %49"
#define WGMMA_NAMES_52 WGMMA_NAMES_50 ", " "%50, %51"
#define WGMMA_NAMES_54 WGMMA_NAMES_52 ", " "%52, %53"
#define WGMMA_NAMES_56 WGMMA_NAMES_54 ", " "%54, %55"
#define WGMMA_NAMES_58 WGMMA_NAMES_56 ", " "%56, %57"
#define WGMMA_NAMES_60 WGMMA_NAMES_58 ", " "%58, %59"
#define WGMMA_NAMES_62 WGMMA_NAMES_60 ", " "%60, %61"
#define WGMMA_NAMES_64 WGMMA_NAMES_62 ", " "%62, %63"
#define WGMMA_NAMES_68 WGMMA_NAMES_64 ", " "%64, %65, %66, %67"
#define WGMMA_NAMES_72 WGMMA_NAMES_68 ", " "%68, %69, %70, %71"
#define WGMMA_NAMES_76 WGMMA_NAMES_72 ", " "%72, %73, %74, %75"
#define WGMMA_NAMES_80 WGMMA_NAMES_76 ", " "%76, %77, %78, %79"
#define WGMMA_NAMES_84 WGMMA_NAMES_80 ", " "%80, %81, %82, %83"
#define WGMMA_NAMES_88 WGMMA_NAMES_84 ", " "%84, %85, %86, %87"
#define WGMMA_NAMES_92 WGMMA_NAMES_88 ", " "%88, %89, %90, %91"
#define WGMMA_NAMES_96 WGMMA_NAMES_92 ", " "%92, %93, %94, %95"
#define WGMMA_NAMES_100 WGMMA_NAMES_96 ", " "%96, %97, %98, %99"
#define WGMMA_NAMES_104 WGMMA_NAMES_100 ", " "%100, %101, %102, %103"
#define WGMMA_NAMES_108 WGMMA_NAMES_104 ", " "%104, %105, %106, %107"
#define WGMMA_NAMES_112 WGMMA_NAMES_108 ", " "%108, %109, %110, %111"
#define WGMMA_NAMES_116 WGMMA_NAMES_112 ", " "%112, %113, %114, %115"
#define WGMMA_NAMES_120 WGMMA_NAMES_116 ", " "%116, %117, %118, %119"
#define WGMMA_NAMES_124 WGMMA_NAMES_120 ", " "%120, %121, %122, %123"
#define WGMMA_NAMES_128 WGMMA_NAMES_124 ", " "%124, %125, %126, %127"
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
#define WGMMA_OPERANDS_34(m, d) WGMMA_OPERANDS_32(m, d), m(d[32]), m(d[33])
#define WGMMA_OPERANDS_36(m, d) WGMMA_OPERANDS_34(m, d), m(d[34]), m(d[35])
#define WGMMA_OPERANDS_38(m, d) WGMMA_OPERANDS_36(m, d), m(d[36]), m(d[37])
#define WGMMA_OPERANDS_40(m, d) WGMMA_OPERANDS_38(m, d), m(d[38]), m(d[39])
#define WGMMA_OPERANDS_42(m, d) WGMMA_OPERANDS_40(m, d), m(d[40]), m(d[41])
#define WGMMA_OPERANDS_44(m, d) WGMMA_OPERANDS_42(m, d), m(d[42]), m(d[43])
#define WGMMA_OPERANDS_46(m, d) WGMMA_OPERANDS_44(m, d), m(d[44]), m(d[45])
#define WGMMA_OPERANDS_48(m, d) WGMMA_OPERANDS_46(m, d), m(d[46]), m(d[47])
#define WGMMA_OPERANDS_50(m, d) WGMMA_OPERANDS_48(m, d), m(d[48]), m(d[49])
#define WGMMA_OPERANDS_52(m, d) WGMMA_OPERANDS_50(m, d), m(d[50]), m(d[51])
#define WGMMA_OPERANDS_54(m, d) WGMMA_OPERANDS_52(m, d), m(d[52]), m(d[53])
#define WGMMA_OPERANDS_56(m, d) WGMMA_OPERANDS_54(m, d), m(d[54]), m(d[55])
#define WGMMA_OPERANDS_58(m, d) WGMMA_OPERANDS_56(m, d), m(d[56]), m(d[57])
#define WGMMA_OPERANDS_60(m, d) WGMMA_OPERANDS_58(m, d), m(d[58]), m(d[59])
#define WGMMA_OPERANDS_62(m, d) WGMMA_OPERANDS_60(m, d), m(d[60]), m(d[61])
#define WGMMA_OPERANDS_64(m, d) WGMMA_OPERANDS_62(m, d), m(d[62]), m(d[63])
#define WGMMA_OPERANDS_68(m, d) WGMMA_OPERANDS_64(m, d), m(d[64]), m(d[65]), m(d[66]), m(d[67])
#define WGMMA_OPERANDS_72(m, d) WGMMA_OPERANDS_68(m, d), m(d[68]), m(d[69]), m(d[70]), m(d[71])
#define WGMMA_OPERANDS_76(m, d) WGMMA_OPERANDS_72(m, d), m(d[72]), m(d[73]), m(d[74]), m(d[75])
#define WGMMA_OPERANDS_80(m, d) WGMMA_OPERANDS_76(m, d), m(d[76]), m(d[77]), m(d[78]), m(d[79])
#define WGMMA_OPERANDS_84(m, d) WGMMA_OPERANDS_80(m, d), m(d[80]), m(d[81]), m(d[82]), m(d[83])
#define WGMMA_OPERANDS_88(m, d) WGMMA_OPERANDS_84(m, d), m(d[84]), m(d[85]), m(d[86]), m(d[87])
#define WGMMA_OPERANDS_92(m, d) WGMMA_OPERANDS_88(m, d), m(d[88]), m(d[89]), m(d[90]), m(d[91])
#define WGMMA_OPERANDS_96(m, d) WGMMA_OPERANDS_92(m, d), m(d[92]), m(d[93]), m(d[94]), m(d[95])
#define WGMMA_OPERANDS_100(m, d) WGMMA_OPERANDS_96(m, d), m(d[96]), m(d[97]), m(d[98]), m(d[99])
#define WGMMA_OPERANDS_104(m, d) WGMMA_OPERANDS_100(m, d), m(d[100]), m(d[101]), m(d[102]), m(d[103])
#define WGMMA_OPERANDS_108(m, d) WGMMA_OPERANDS_104(m, d), m(d[104]), m(d[105]), m(d[106]), m(d[107])
#define WGMMA_OPERANDS_112(m, d) WGMMA_OPERANDS_108(m, d), m(d[108]), m(d[109]), m(d[110]), m(d[111])
#define WGMMA_OPERANDS_116(m, d) WGMMA_OPERANDS_112(m, d), m(d[112]), m(d[113]), m(d[114]), m(d[115])
#define WGMMA_OPERANDS_120(m, d) WGMMA_OPERANDS_116(m, d), m(d[116]), m(d[117]), m(d[118]), m(d[119])
#define WGMMA_OPERANDS_124(m, d) WGMMA_OPERANDS_120(m, d), m(d[120]), m(d[121]), m(d[122]), m(d[123])
#define WGMMA_OPERANDS_128(m, d) WGMMA_OPERANDS_124(m, d), m(d[124]), m(d[125]), m(d[126]), m(d[127])

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

/* The same for E5M2 operands, with A in registers: register a[i] of lane l holds four K-adjacent bytes, 4(l%4) + {0..3}
 * for i = 0 and 1, 16 more for i = 2 and 3, of row 16w + l/4 for even i, + 8 for odd. `a_list` and `b` are the operand
 * names after the accumulators: "{%32, %33, %34, %35}" and "%36". */
#define WGMMA_DEFINE_A(type, name, n, registers, a_list, b_name)                                                       \
    template <> struct WgmmaA<n> {                                                                                     \
        static constexpr int REGISTERS = registers;                                                                    \
        static __device__ __forceinline__ void first(type *d, const u32 *a, u64 b) {                       \
            WGMMA_ASM_A("0", name, n, registers, a_list, b_name, WGMMA_OUT_##name)                                     \
        }                                                                                                              \
        static __device__ __forceinline__ void next(type *d, const u32 *a, u64 b) {                        \
            WGMMA_ASM_A("1", name, n, registers, a_list, b_name, WGMMA_INOUT_##name)                                   \
        }                                                                                                              \
    };
#define WGMMA_ASM_A(accumulate, name, n, registers, a_list, b_name, constraint)                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k32." WGMMA_TYPE_##name ".e5m2.e5m2 {"                    \
                 WGMMA_NAMES_##registers                                                                            \
                 "}, " a_list ", " b_name ", p, 1, 1;\n}"                                                              \
                 : WGMMA_OPERANDS_##registers(constraint, d)                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));

template <int N> struct Wgmma;
template <int N> struct WgmmaA;

/* Keeps the compiler from moving uses of the accumulators above the wait. */
__device__ __forceinline__ void wgmma_pin(float &x) {
    asm volatile("" : "+f"(x));
}
__device__ __forceinline__ void wgmma_pin(u32 &x) {
    asm volatile("" : "+r"(x));
}
