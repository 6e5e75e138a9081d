/* SPDX-License-Identifier: MIT
 *
 * attn-scores: the command that prepares, checks and measures the library on the machine at hand. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "verify.h"

struct command {
    const char *name;
    const char *title; /* argv[0] of the subcommand, which its messages show */
    int (*run)(int argc, char **argv);
    const char *summary;
};

static const struct command commands[] = {
    {"info", "attn-scores info", cmd_info, "Versions, devices, compilers and caches found here"},
    {"precompile", "attn-scores precompile", cmd_precompile, "Fill the kernel cache; needs no GPU"},
    {"cache", "attn-scores cache", cmd_cache, "List, verify, prune, export and import cached kernels"},
    {"verify", "attn-scores verify", tool_verify, "Check kernels against the double-precision reference"},
    {"bench", "attn-scores bench", cmd_bench, "Measure kernels beside the streaming limit of the GPU"},
};
enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *stream) {
    fputs("Usage: attn-scores COMMAND [OPTION...]\n\n", stream);
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        fprintf(stream, "  %-12s%s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n  attn-scores COMMAND --help   what a command does and its options\n"
          "  attn-scores --version        the version of the library\n\n"
          "Exit codes: 0 success, 1 something failed, 2 wrong arguments, 77 no GPU for a command that needs one.\n",
          stream);
}

int main(int argc, char **argv) {
    argp_err_exit_status = CLI_USAGE;
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("attn-scores %s\n", attns_version());
        return CLI_OK;
    }
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            argv[1] = (char *)commands[i].title;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "attn-scores: command: '%s' is not accepted; accepted:", name);
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : ",", commands[i].name);
    }
    fputs("\nTry 'attn-scores --help'.\n", stderr);
    return CLI_USAGE;
}
