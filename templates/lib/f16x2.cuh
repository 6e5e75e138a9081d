/* SPDX-License-Identifier: MIT
 * Arithmetic on two float16 in a register. ReLU keeps NaN. */

__device__ __forceinline__ u32 relu_f16x2(u32 x) {
    u32 y;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0));
    return y;
}

__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

__device__ __forceinline__ u32 pack_f16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ float2 unpack_f16x2(u32 packed) {
    float2 x;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(x.x), "=f"(x.y)
        : "r"(packed));
    return x;
}
