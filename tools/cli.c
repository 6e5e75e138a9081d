/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

/* More than any sensible list; keeps a slip such as 1-1000000 from becoming a day of work. */
#define MAX_LIST 4096

static void *checked(void *pointer) {
    if (pointer == NULL) {
        fputs("attn-scores: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    return pointer;
}

void *cli_allocate(size_t bytes) {
    return checked(malloc(bytes));
}

/* ---- Lists --------------------------------------------------------------------------------------------------- */

static void append(const struct argp_state *state, const char *option, const char *text, cli_ints *list, int value) {
    if (list->count >= MAX_LIST) {
        argp_error(state, "%s: '%s' has more than %d values", option, text, MAX_LIST);
    }
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count == 0 ? 1 : list->count * 2;
        list->values = checked(realloc(list->values, capacity * sizeof(list->values[0])));
    }
    list->values[list->count++] = value;
}

/* Reads one integer and moves *cursor past it. */
static bool read_int(const char **cursor, int min, int max, int *value) {
    if (**cursor < '0' || **cursor > '9') {
        return false;
    }
    char *end;
    errno = 0;
    long parsed = strtol(*cursor, &end, 10);
    if (errno != 0 || parsed < min || parsed > max) {
        return false;
    }
    *cursor = end;
    *value = (int)parsed;
    return true;
}

void cli_parse_ints(const struct argp_state *state, const char *option, const char *text, int min, int max,
                    cli_ints *list) {
    cli_ints_free(list);
    const char *cursor = text;
    for (;;) {
        int first, last;
        bool good = read_int(&cursor, min, max, &first);
        last = first;
        if (good && *cursor == '-') {
            cursor++;
            good = read_int(&cursor, min, max, &last) && first <= last;
        }
        if (!good || (*cursor != ',' && *cursor != '\0')) {
            argp_error(state,
                       "%s: '%s' is not accepted; give integers from %d to %d, as a list (a,b), a range (a-b) or both",
                       option, text, min, max);
            return;
        }
        for (int value = first; value <= last; value++) {
            append(state, option, text, list, value);
            if (value == INT32_MAX) {
                break;
            }
        }
        if (*cursor == '\0') {
            return;
        }
        cursor++;
    }
}

int cli_parse_int(const struct argp_state *state, const char *option, const char *text, int min, int max) {
    const char *cursor = text;
    int value = 0;
    if (!read_int(&cursor, min, max, &value) || *cursor != '\0') {
        argp_error(state, "%s: '%s' is not accepted; give an integer from %d to %d", option, text, min, max);
    }
    return value;
}

const cli_name cli_dtype_names[] = {
    {"f32", ATTNS_DTYPE_F32},
    {"f16", ATTNS_DTYPE_F16},
    {"bf16", ATTNS_DTYPE_BF16},
    {NULL, 0},
};

const cli_name cli_variant_names[] = {
    {"fp8", ATTNS_VARIANT_FP8},
    {"fp4", ATTNS_VARIANT_FP4},
    {"indexer-bf16", ATTNS_VARIANT_INDEXER_BF16},
    {"indexer-nvfp4", ATTNS_VARIANT_INDEXER_NVFP4},
    {NULL, 0},
};

static void refuse_name(const struct argp_state *state, const char *option, const char *text, const cli_name *names) {
    char accepted[256] = "";
    size_t used = 0;
    for (const cli_name *name = names; name->name != NULL && used < sizeof(accepted); name++) {
        used += (size_t)snprintf(accepted + used, sizeof(accepted) - used, "%s%s", used == 0 ? "" : ", ", name->name);
    }
    argp_error(state, "%s: '%s' is not accepted; accepted: %s", option, text, accepted);
}

void cli_parse_names(const struct argp_state *state, const char *option, const char *text, const cli_name *names,
                     cli_ints *list) {
    cli_ints_free(list);
    const char *cursor = text;
    for (;;) {
        size_t length = strcspn(cursor, ",");
        const cli_name *name = names;
        while (name->name != NULL && (strlen(name->name) != length || strncmp(name->name, cursor, length) != 0)) {
            name++;
        }
        if (name->name == NULL) {
            refuse_name(state, option, text, names);
            return;
        }
        append(state, option, text, list, name->value);
        if (cursor[length] == '\0') {
            return;
        }
        cursor += length + 1;
    }
}

int cli_parse_name(const struct argp_state *state, const char *option, const char *text, const cli_name *names) {
    for (const cli_name *name = names; name->name != NULL; name++) {
        if (strcmp(name->name, text) == 0) {
            return name->value;
        }
    }
    refuse_name(state, option, text, names);
    return 0;
}

const char *cli_name_of(const cli_name *names, int value) {
    while (names->name != NULL && names->value != value) {
        names++;
    }
    return names->name == NULL ? "?" : names->name;
}

void cli_parse_strings(const struct argp_state *state, const char *option, const char *text, cli_strings *list) {
    cli_strings_free(list);
    size_t count = 1;
    for (const char *c = text; *c != '\0'; c++) {
        count += *c == ',';
    }
    list->values = cli_allocate(count * sizeof(list->values[0]) + strlen(text) + 1);
    char *copy = (char *)(list->values + count);
    strcpy(copy, text);
    for (char *item = copy, *next; item != NULL; item = next) {
        next = strchr(item, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        if (*item == '\0') {
            argp_error(state, "%s: '%s' has an empty item; give names as a list (a,b)", option, text);
            return;
        }
        list->values[list->count++] = item;
    }
}

bool cli_accept_json(const struct argp_state *state) {
    if (!report_available()) {
        argp_error(state, "--json: this build has no JSON output (jansson was not found when it was built)");
    }
    return true;
}

void cli_default_ints(cli_ints *list, const int *values, size_t count) {
    if (list->count == 0) {
        list->values = cli_allocate(count * sizeof(values[0]));
        memcpy(list->values, values, count * sizeof(values[0]));
        list->count = count;
    }
}

void cli_ints_free(cli_ints *list) {
    free(list->values);
    *list = (cli_ints){NULL, 0};
}

void cli_strings_free(cli_strings *list) {
    free((void *)list->values);
    *list = (cli_strings){NULL, 0};
}

/* ---- Context ------------------------------------------------------------------------------------------------- */

enum { KEY_CACHE_DIR = 0x200, KEY_READ, KEY_NVRTC, KEY_LIBCUDA, KEY_TEMPLATE_DIR, KEY_DUMP_DIR, KEY_FAMILY };

static const cli_name family_names[] = {{"auto", 0}, {"tuned", 1}, {"portable", 2}, {NULL, 0}};

static error_t parse_context(int key, char *arg, struct argp_state *state) {
    attns_context_params *params = state->input;
    switch (key) {
    case KEY_CACHE_DIR:
        params->cache_dir = arg;
        return 0;
    case KEY_READ:
        params->cache_readonly_dirs = arg;
        return 0;
    case KEY_NVRTC:
        params->libnvrtc_path = arg;
        return 0;
    case KEY_LIBCUDA:
        params->libcuda_path = arg;
        return 0;
    case KEY_TEMPLATE_DIR:
        params->template_dir = arg;
        return 0;
    case KEY_DUMP_DIR:
        params->dump_dir = arg;
        return 0;
    case KEY_FAMILY:
        cli_parse_name(state, "--family", arg, family_names);
        params->kernel_family = arg;
        return 0;
    case 'v':
        params->log_level = params->log_level == ATTNS_LOG_INFO ? ATTNS_LOG_DEBUG : ATTNS_LOG_INFO;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option context_options[] = {
    {"cache-dir", KEY_CACHE_DIR, "DIR", 0,
     "Kernel cache (default: $ATTNS_CACHE_DIR, else attn-scores under $XDG_CACHE_HOME or ~/.cache; '' for none)", 0},
    {"cache-readonly", KEY_READ, "LIST", 0,
     "Caches that are only read, directories and bundles separated by ':' (default: $ATTNS_CACHE_READONLY_DIRS)", 0},
    {"nvrtc", KEY_NVRTC, "FILES", 0,
     "NVRTC library, or several separated by ':' (default: $ATTNS_LIBNVRTC, else found)", 0},
    {"libcuda", KEY_LIBCUDA, "FILE", 0, "CUDA driver library (default: $ATTNS_LIBCUDA, else libcuda.so.1)", 0},
    {"template-dir", KEY_TEMPLATE_DIR, "DIR", 0, "Read kernel templates from here instead of the built-in ones", 0},
    {"dump-dir", KEY_DUMP_DIR, "DIR", 0, "Write every filled kernel source here", 0},
    {"family", KEY_FAMILY, "NAME", 0,
     "Kernels: auto, tuned (made for one architecture) or portable (default: $ATTNS_KERNEL_FAMILY, else auto)", 0},
    {"verbose", 'v', NULL, 0, "Log what the library does; twice for more", 0},
    {0},
};

const struct argp cli_context_argp = {.options = context_options, .parser = parse_context};

static void log_line(void *user, attns_log_level level, const char *message) {
    (void)user;
    static const char *const names[] = {"", "error: ", "warning: ", "", ""};
    cli_progress_clear();
    fprintf(stderr, "attn-scores: %s%s\n", names[level], message);
}

bool cli_cache_dir_was_taken(const attns_context_params *params, const attns_info *info) {
    if (params->cache_dir == NULL || params->cache_dir[0] == '\0') {
        return true;
    }
    struct stat asked, taken;
    if (info->cache_dir == NULL) {
        return false;
    }
    if (stat(params->cache_dir, &asked) != 0 || stat(info->cache_dir, &taken) != 0) {
        return true; /* nothing has been written yet */
    }
    return asked.st_dev == taken.st_dev && asked.st_ino == taken.st_ino;
}

attns_context *cli_context_create(const attns_context_params *params) {
    attns_context_params own = *params;
    own.log = log_line;
    if (own.log_level == ATTNS_LOG_NONE) {
        own.log_level = ATTNS_LOG_WARNING;
    }
    attns_context *ctx = NULL;
    attns_status status = attns_context_create(&ctx, &own);
    if (status != ATTNS_OK) {
        cli_fail("attns_context_create", status);
        return NULL;
    }
    return ctx;
}

int cli_fail(const char *what, attns_status status) {
    const char *message = attns_last_error();
    cli_error(what, "%s%s%s", attns_status_string(status), message[0] == '\0' ? "" : ": ", message);
    switch (status) {
    case ATTNS_ERROR_INVALID_ARGUMENT:
    case ATTNS_ERROR_UNSUPPORTED:
    case ATTNS_ERROR_UNSUPPORTED_DEVICE:
        return CLI_USAGE;
    default:
        return CLI_FAILED;
    }
}

int cli_error(const char *what, const char *format, ...) {
    cli_progress_clear();
    fflush(stdout);
    va_list args;
    va_start(args, format);
    fprintf(stderr, "attn-scores %s: ", what);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return CLI_FAILED;
}

/* ---- Progress ------------------------------------------------------------------------------------------------ */

static pthread_mutex_t progress_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool progress_drawn;

void cli_progress_set(size_t done, size_t total, const char *label) {
    if (total == 0 || !isatty(STDERR_FILENO)) {
        return;
    }
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    size_t filled = done >= total ? WIDTH : done * WIDTH / total;
    for (size_t i = 0; i < WIDTH; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    pthread_mutex_lock(&progress_mutex);
    fprintf(stderr, "\r\033[K[%s] %zu/%zu %s", bar, done, total, label);
    fflush(stderr);
    progress_drawn = true;
    pthread_mutex_unlock(&progress_mutex);
}

void cli_progress_clear(void) {
    pthread_mutex_lock(&progress_mutex);
    if (progress_drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress_drawn = false;
    }
    pthread_mutex_unlock(&progress_mutex);
}

/* ---- Small things -------------------------------------------------------------------------------------------- */

const char *cli_bytes(uint64_t bytes, char *buffer, size_t size) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(buffer, size, "%" PRIu64 " B", bytes);
        return buffer;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, size, "%.*f %s", value < 10 ? 1 : 0, value, units[unit]);
    return buffer;
}

double cli_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
