/* SPDX-License-Identifier: MIT
 * Moves registers between warpgroups (PTX ISA, "setmaxnreg"). By all warps of a warpgroup; an increase waits until
 * others have given up enough. */

template <int COUNT> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
