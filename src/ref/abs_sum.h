/* SPDX-License-Identifier: MIT
 *
 * The reference's optional second output: the sum of magnitudes that a score's tolerance is derived from. */
#ifndef ATTNS_REF_ABS_SUM_H_
#define ATTNS_REF_ABS_SUM_H_

#include "ops/tensor.h"

/* Checks that `abs_sum` is float64 on the CPU and has the rows and columns of `out`, whose name messages give.
 * tensor->data is NULL if it was not given. */
attns_status attns_abs_sum_read(const DLTensor *abs_sum, const attns_tensor *out, attns_tensor *tensor);

#endif
