/* SPDX-License-Identifier: MIT
 *
 * Names of kernels from options and files, for precompile and for the filters of the cache command. */
#ifndef ATTNS_TOOLS_FROM_LOG_H_
#define ATTNS_TOOLS_FROM_LOG_H_

#include <stdbool.h>
#include <stddef.h>

/* `values` is NULL while there is none. */
typedef struct kernel_names {
    char const **values; /* each malloc */
    size_t count;
} kernel_names;

/* Takes the name as it is, unless it is there already. */
void kernel_names_add(kernel_names *names, const char *name);

/* Adds every kernel that the lines of a file name, each once; "-" is standard input, NULL adds nothing. Text around the
 * names is passed over. Returns an exit code, after a message: the file cannot be read, names no kernel, or has a name
 * that is cut off or misspelt. */
int kernel_names_read(kernel_names *names, const char *path);

void kernel_names_free(kernel_names *names);

#endif
