/* SPDX-License-Identifier: MIT
 *
 * The software GPU (ptxsim/) as a device of the command: libptxsim_cuda.so is looked for beside the command, where the
 * build leaves it and where it is installed. For the main thread, before anything opens libcuda. */
#ifndef ATTNS_TOOLS_SIMULATED_H_
#define ATTNS_TOOLS_SIMULATED_H_

#include <argp.h>
#include <attn_scores/attn_scores.h>

/* If `device` is "sim:NAME": makes the context and the tools (common/gpu.h) use that simulated device, and returns
 * true. A name that does not exist ends the program with CLI_USAGE, a library that is not there with CLI_NO_GPU. */
bool simulated_use(const struct argp_state *state, const char *option, const char *device,
                   attns_context_params *context);

/* Name of the index-th simulated device; NULL behind the last, or if the library is not there. */
const char *simulated_name(size_t index);

#endif
