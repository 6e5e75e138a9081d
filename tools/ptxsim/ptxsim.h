/* SPDX-License-Identifier: MIT
 *
 * What libptxsim_cuda.so offers beyond libcuda's own names. */
#ifndef PTXSIM_PTXSIM_H_
#define PTXSIM_PTXSIM_H_

#include <stddef.h>

/* The report of the last fault of a kernel or queued operation in this process, "" if there was none. The text belongs
 * to the calling thread, until its next call. */
__attribute__((visibility("default"))) const char *ptxsim_last_fault(void);

/* Names that PTXSIM_DEVICE may have, from index 0 on; NULL behind the last. Any thread. */
__attribute__((visibility("default"))) const char *ptxsim_device_name(size_t index);

#endif
