/* SPDX-License-Identifier: MIT
 * A CTA's dynamic shared memory, and pointers to addresses in it. */

extern __shared__ __align__(1024) unsigned char shared_memory[];

template <class T> __device__ __forceinline__ T *shared_pointer(u32 address) {
    return reinterpret_cast<T *>(shared_memory + (address - shared_address(shared_memory)));
}
