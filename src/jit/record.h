/* SPDX-License-Identifier: MIT
 *
 * Tells what a run needs, in the words that `attn-scores precompile` takes: the record of the kernels used, and the
 * command in the message of a call that must not compile. */
#ifndef ATTNS_JIT_RECORD_H_
#define ATTNS_JIT_RECORD_H_

#include "core/context.h"
#include "plan/plan.h"

/* Appends "<kernel> for <target>" to the context's record, if it keeps one. One write per line, so that many processes
 * can share a file. A failure is logged once per context. */
void attns_record_kernel(attns_context *ctx, const attns_plan *plan);

/* Fails with ATTNS_ERROR_WOULD_COMPILE: "<kernel> for <target>: <why>. <command>". */
attns_status attns_fail_would_compile(const attns_context *ctx, const attns_plan *plan, const char *why);

#endif
