/* SPDX-License-Identifier: MIT
 *
 * What the subcommands of attn-scores share: list arguments, the options that describe a context, the progress bar.
 * Everything here is for the main thread unless a comment says otherwise. */
#ifndef ATTNS_TOOLS_CLI_H_
#define ATTNS_TOOLS_CLI_H_

#include <argp.h>
#include <attn_scores/attn_scores.h>
#include <stddef.h>

/* Exit codes: 0 success, CLI_FAILED something was tried and failed, CLI_USAGE the arguments were wrong, CLI_NO_GPU what
 * was asked for needs a GPU and there is none. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NO_GPU = 77 };

/* Values of one list option. `values` is NULL until the option is seen. */
typedef struct cli_ints {
    int *values;
    size_t count;
} cli_ints;

/* "64,32", "1-4", "1-4,8": integers in [min, max]. Replaces the list. Anything else ends the program with CLI_USAGE and
 * a message that names `option`, the text given and what is accepted. */
void cli_parse_ints(const struct argp_state *state, const char *option, const char *text, int min, int max,
                    cli_ints *list);

/* One integer in [min, max], under the same rules. */
int cli_parse_int(const struct argp_state *state, const char *option, const char *text, int min, int max);

typedef struct cli_name {
    const char *name;
    int value;
} cli_name;

extern const cli_name cli_dtype_names[];   /* f32, f16, bf16; ends with a NULL name */
extern const cli_name cli_variant_names[]; /* fp8, fp4, indexer-bf16, indexer-nvfp4 */

/* "f32,bf16": names of a table that ends with a NULL name. */
void cli_parse_names(const struct argp_state *state, const char *option, const char *text, const cli_name *names,
                     cli_ints *list);
int cli_parse_name(const struct argp_state *state, const char *option, const char *text, const cli_name *names);
const char *cli_name_of(const cli_name *names, int value);

/* "a,b,c" cut at the commas. Everything lies in one malloc'ed block that the list owns. */
typedef struct cli_strings {
    const char **values;
    size_t count;
} cli_strings;
void cli_parse_strings(const struct argp_state *state, const char *option, const char *text, cli_strings *list);

/* For --json: true, or the program ends with a message if this build has no JSON output. */
bool cli_accept_json(const struct argp_state *state);

/* Sets a list that no option has set. */
void cli_default_ints(cli_ints *list, const int *values, size_t count);

void cli_ints_free(cli_ints *list);
void cli_strings_free(cli_strings *list);

/* --cache-dir, --cache-readonly, --nvrtc, --libcuda, --template-dir, --dump-dir, --family and --verbose, as an argp child
 * whose input is an attns_context_params. Use: {&cli_context_argp, 0, "Library settings:", 10} among the children, and
 * state->child_inputs[i] = &params at ARGP_KEY_INIT. Strings of the params point into argv. */
extern const struct argp cli_context_argp;

/* Whether the writable cache is the directory that --cache-dir names, if it names one. */
bool cli_cache_dir_was_taken(const attns_context_params *params, const attns_info *info);

/* A context that logs through the progress bar, or NULL after a message on stderr. */
attns_context *cli_context_create(const attns_context_params *params);

/* Prints "attn-scores <what>: <message of the failing call>" on stderr. Returns the exit code for `status`. */
int cli_fail(const char *what, attns_status status);

/* Prints "attn-scores <what>: <formatted message>" on stderr and returns CLI_FAILED. */
int cli_error(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A bar on stderr, only if stderr is a terminal. Set may be called from any thread; cli_progress_clear takes it away so
 * that a line can be printed, the next call of set draws it again. */
void cli_progress_set(size_t done, size_t total, const char *label);
void cli_progress_clear(void);

/* "1.5 GiB" in buffer (at least 16 bytes). Returns buffer. */
const char *cli_bytes(uint64_t bytes, char *buffer, size_t size);

/* malloc that ends the program with CLI_FAILED and a message instead of returning NULL. */
void *cli_allocate(size_t bytes);

/* CLOCK_MONOTONIC in seconds. */
double cli_now(void);

/* The subcommands, each with argv[0] = "attn-scores <name>". They return an exit code. */
int cmd_info(int argc, char **argv);
int cmd_precompile(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_bench(int argc, char **argv);

#endif
