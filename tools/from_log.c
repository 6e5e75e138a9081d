/* SPDX-License-Identifier: MIT */
#include "from_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "plan/kernel_name.h"

static void add(kernel_names *names, const char *text, size_t length) {
    for (size_t i = 0; i < names->count; i++) {
        if (strncmp(names->values[i], text, length) == 0 && names->values[i][length] == '\0') {
            return;
        }
    }
    if ((names->count & (names->count - 1)) == 0) {
        const size_t capacity = names->count == 0 ? 1 : 2 * names->count;
        const char **grown = cli_allocate(capacity * sizeof(grown[0]));
        if (names->count != 0) {
            memcpy(grown, names->values, names->count * sizeof(grown[0]));
        }
        free(names->values);
        names->values = grown;
    }
    char *copy = cli_allocate(length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    names->values[names->count++] = copy;
}

void kernel_names_add(kernel_names *names, const char *name) {
    add(names, name, strlen(name));
}

/* Returns an exit code. */
static int read_line(kernel_names *names, const char *path, size_t number, const char *line) {
    const char *at = line, *end;
    for (;; at = end) {
        attns_kernel_reference reference;
        const char *start;
        switch (attns_kernel_reference_find(at, &reference, &start, &end)) {
        case ATTNS_KERNEL_NOT_FOUND:
            return CLI_OK;
        case ATTNS_KERNEL_FOUND:
            add(names, start, (size_t)(end - start));
            break;
        case ATTNS_KERNEL_MALFORMED:
            cli_error("precompile", "%s:%zu: '%.*s' is not the name of a kernel", path, number,
                      (int)strcspn(start, "\n"), start);
            return CLI_USAGE;
        }
    }
}

int kernel_names_read(kernel_names *names, const char *path) {
    if (path == NULL) {
        return CLI_OK;
    }
    FILE *const file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL) {
        return cli_error("precompile", "--from-log: %s cannot be opened: %s", path, strerror(errno));
    }
    char *line = NULL;
    size_t capacity = 0, number = 0;
    const size_t before = names->count;
    int exit_code = CLI_OK;
    errno = 0;
    while (exit_code == CLI_OK && getline(&line, &capacity, file) >= 0) {
        exit_code = read_line(names, path, ++number, line);
        errno = 0;
    }
    const int error = errno;
    free(line);
    if (file != stdin) {
        fclose(file);
    }
    if (exit_code == CLI_OK && error != 0) {
        return cli_error("precompile", "--from-log: %s cannot be read: %s", path, strerror(error));
    }
    if (exit_code == CLI_OK && names->count == before) {
        cli_error("precompile", "--from-log: %s names no kernel in %zu lines", path, number);
        return CLI_USAGE;
    }
    return exit_code;
}

void kernel_names_free(kernel_names *names) {
    for (size_t i = 0; i < names->count; i++) {
        free((void *)names->values[i]);
    }
    free(names->values);
    *names = (kernel_names){NULL, 0};
}
