/* SPDX-License-Identifier: MIT
 *
 * Where device memory lies in the host's address space. */
#ifndef PTXSIM_DRIVER_ADDRESS_H_
#define PTXSIM_DRIVER_ADDRESS_H_

#include <stddef.h>
#include <stdint.h>

/* Below the windows of sim.h, above what sanitizers and the kernel's own choice of addresses use. */
#define ADDRESS_FIRST UINT64_C(0x200000000000)
#define ADDRESS_END   UINT64_C(0x500000000000)

/* Fresh memory: NaN as float8, float16, bfloat16 and in pairs of them, huge as an integer and as a float32. */
#define MEMORY_POISON 0x7f

/* Reserves addresses (PROT_NONE) that were never given out before. `align` is a power of two, at least a page. NULL:
 * none left. munmap gives them back to the host. */
void *address_reserve(size_t bytes, size_t align);

#endif
