/* SPDX-License-Identifier: MIT
 * Output element types. The 16-bit ones are held as raw bits, so that no CUDA header is needed. */

struct Half {
    unsigned short bits;
};
struct Bfloat16 {
    unsigned short bits;
};

template <class T> __device__ __forceinline__ T convert(float x);

template <> __device__ __forceinline__ float convert<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ Half convert<Half>(float x) {
    Half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <> __device__ __forceinline__ Bfloat16 convert<Bfloat16>(float x) {
    Bfloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

/* Stores under a predicate, without a branch. */
__device__ __forceinline__ void store_if(bool condition, float *address, float x) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.f32 [%1], %2;\n}" ::"r"(
                     static_cast<int>(condition)),
                 "l"(address), "f"(x)
                 : "memory");
}
template <class T> __device__ __forceinline__ void store_if(bool condition, T *address, float x) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.u16 [%1], %2;\n}" ::"r"(
                     static_cast<int>(condition)),
                 "l"(address), "h"(convert<T>(x).bits)
                 : "memory");
}
