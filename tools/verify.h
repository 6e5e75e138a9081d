/* SPDX-License-Identifier: MIT */
#ifndef ATTNS_TOOLS_VERIFY_H_
#define ATTNS_TOOLS_VERIFY_H_

/* The verify subcommand of attn-scores; argv[0] is "attn-scores verify". Returns an exit code (see cli.h). */
int tool_verify(int argc, char **argv);

#endif
