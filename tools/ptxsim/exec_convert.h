/* SPDX-License-Identifier: MIT
 *
 * Shared by the two files of cvt. */
#ifndef PTXSIM_EXEC_CONVERT_H_
#define PTXSIM_EXEC_CONVERT_H_

#include "exec_formats.h"

/* One number from one format to another, as the flags say (rounding, ftz, sat, satfinite, relu). */
uint64_t exec_convert_float(const exec_format *source, const exec_format *result, uint64_t bits, unsigned flags);

/* cvt with packed types. */
bool exec_bind_convert_packed(ptx_instr *instr, char *error, size_t error_size);

#endif
