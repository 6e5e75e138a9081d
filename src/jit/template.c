/* SPDX-License-Identifier: MIT */
#include "jit/template.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/strbuf.h"

#define MAX_FILES      64        /* of one kernel, includes and all */
#define MAX_FILE_BYTES (4 << 20) /* a template is some thousand lines; more is a wrong file */

typedef struct fill_state {
    const char *dir; /* NULL: embedded */
    const attns_placeholder *placeholders;
    size_t num_placeholders;
    bool *used; /* per placeholder */
    char *included[MAX_FILES];
    size_t num_included;
    attns_strbuf out;
} fill_state;

/* Where the filler is, for messages and #line. */
typedef struct position {
    const char *file; /* relative to templates/ */
    int line;
} position;

static attns_status fault_status(const fill_state *state) {
    return state->dir ? ATTNS_ERROR_IO : ATTNS_ERROR_INTERNAL;
}

/* The folder as messages name it. */
static const char *folder(const fill_state *state) {
    return state->dir ? state->dir : "templates";
}

static attns_status out_of_memory(const char *file) {
    return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while filling template %s", file);
}

/* ---- Reading ---- */

/* Relative, without "..", "." or empty components: nothing outside the folder can be named. */
static bool is_safe_name(const char *name) {
    if (!name[0] || name[0] == '/')
        return false;
    for (const char *part = name;;) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[length])
            return true;
        part += length + 1;
    }
}

static attns_status read_embedded(const char *file, char **text) {
    for (const attns_embedded_file *entry = attns_embedded_templates; entry->name; entry++)
        if (strcmp(entry->name, file) == 0) {
            *text = strdup(entry->text);
            return *text ? ATTNS_OK : out_of_memory(file);
        }
    return attns_fail(ATTNS_ERROR_INTERNAL, "templates/%s: no such file in the library", file);
}

static attns_status read_from_dir(const char *dir, const char *file, char **text) {
    attns_strbuf path = {0}, content = {0};
    attns_strbuf_printf(&path, "%s/%s", dir, file);
    if (path.failed)
        return out_of_memory(file);
    attns_status status = ATTNS_OK;
    FILE *stream = fopen(path.text, "re");
    if (!stream) {
        status = attns_fail(ATTNS_ERROR_IO, "%s: %s (template directory %s)", path.text, strerror(errno), dir);
        attns_strbuf_free(&path);
        return status;
    }
    char chunk[4096];
    for (size_t n; content.size <= MAX_FILE_BYTES && (n = fread(chunk, 1, sizeof chunk, stream)) > 0;)
        attns_strbuf_append(&content, chunk, n);
    if (ferror(stream))
        status = attns_fail(ATTNS_ERROR_IO, "%s: cannot be read: %s", path.text, strerror(errno));
    else if (content.size > MAX_FILE_BYTES)
        status = attns_fail(ATTNS_ERROR_IO, "%s: more than %d bytes, not a kernel template", path.text, MAX_FILE_BYTES);
    else if (strlen(attns_strbuf_text(&content)) != content.size)
        status = attns_fail(ATTNS_ERROR_IO, "%s: holds a NUL byte, not a kernel template", path.text);
    fclose(stream);
    if (status == ATTNS_OK) {
        *text = attns_strbuf_take(&content);
        if (!*text)
            status = out_of_memory(file);
    }
    attns_strbuf_free(&content);
    attns_strbuf_free(&path);
    return status;
}

/* ---- Placeholders ---- */

static bool is_placeholder_char(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Length of "@NAME@" at `text`, 0 if there is none. */
static size_t placeholder_at(const char *text, const char *end) {
    if (*text != '@')
        return 0;
    const char *c = text + 1;
    while (c < end && is_placeholder_char(*c))
        c++;
    return c > text + 1 && c < end && *c == '@' ? (size_t)(c - text) + 1 : 0;
}

static attns_status substitute(fill_state *state, position at, const char *line, const char *end) {
    while (line < end) {
        const char *sign = memchr(line, '@', (size_t)(end - line));
        if (!sign)
            sign = end;
        attns_strbuf_append(&state->out, line, (size_t)(sign - line));
        line = sign;
        if (line == end)
            break;
        size_t size = placeholder_at(line, end);
        if (!size) {
            attns_strbuf_append(&state->out, line++, 1);
            continue;
        }
        size_t i = 0;
        while (i < state->num_placeholders && (strlen(state->placeholders[i].name) != size - 2 ||
                                               memcmp(state->placeholders[i].name, line + 1, size - 2) != 0))
            i++;
        if (i == state->num_placeholders)
            return attns_fail(fault_status(state), "%s/%s:%d: placeholder %.*s has no value", folder(state), at.file,
                              at.line, (int)size, line);
        attns_strbuf_puts(&state->out, state->placeholders[i].value);
        state->used[i] = true;
        line += size;
    }
    return ATTNS_OK;
}

static attns_status check_placeholders(const fill_state *state, const char *file) {
    for (size_t i = 0; i < state->num_placeholders; i++) {
        const char *name = state->placeholders[i].name;
        for (const char *c = name; *c; c++)
            if (!is_placeholder_char(*c))
                return attns_fail(ATTNS_ERROR_INTERNAL, "%s/%s: '%s' is not a placeholder name (A-Z, 0-9 and _)",
                                  folder(state), file, name);
        if (!name[0] || !state->placeholders[i].value[0])
            return attns_fail(ATTNS_ERROR_INTERNAL, "%s/%s: placeholder number %zu ('%s') has no name or no value",
                              folder(state), file, i, name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(name, state->placeholders[k].name) == 0)
                return attns_fail(ATTNS_ERROR_INTERNAL, "%s/%s: placeholder @%s@ is given twice", folder(state), file,
                                  name);
    }
    return ATTNS_OK;
}

/* ---- Lines ---- */

/* Is the end of this line inside a block comment? Strings and line comments are honoured, so that neither hides nor
 * fakes one. */
static bool ends_in_comment(const char *line, const char *end, bool in_comment) {
    char quote = 0;
    for (const char *c = line; c < end; c++) {
        char next = c + 1 < end ? c[1] : '\0';
        if (in_comment) {
            if (c[0] == '*' && next == '/') {
                in_comment = false;
                c++;
            }
        } else if (quote) {
            if (c[0] == '\\')
                c++;
            else if (c[0] == quote)
                quote = 0;
        } else if (c[0] == '"' || (c[0] == '\'' && (c == line || !isalnum((unsigned char)c[-1])))) {
            quote = c[0]; /* an apostrophe after a digit separates digits: 1'000 */
        } else if (c[0] == '/' && next == '/') {
            return false;
        } else if (c[0] == '/' && next == '*') {
            in_comment = true;
            c++;
        }
    }
    return in_comment;
}

static const char *skip_blanks(const char *text, const char *end) {
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    return text;
}

/* After "# word" of that directive, NULL if the line is not one. */
static const char *directive(const char *line, const char *end, const char *word) {
    line = skip_blanks(line, end);
    if (line == end || *line != '#')
        return NULL;
    line = skip_blanks(line + 1, end);
    size_t length = strlen(word);
    if ((size_t)(end - line) < length || memcmp(line, word, length) != 0)
        return NULL;
    line += length;
    return line < end && (isalnum((unsigned char)*line) || *line == '_') ? NULL : line;
}

static bool is_pragma_once(const char *line, const char *end) {
    const char *rest = directive(line, end, "pragma");
    if (!rest)
        return false;
    rest = skip_blanks(rest, end);
    return end - rest >= 4 && memcmp(rest, "once", 4) == 0;
}

static attns_status expand(fill_state *state, position includer, const char *file);

/* `rest` follows "#include". */
static attns_status include(fill_state *state, position at, const char *rest, const char *end) {
    rest = skip_blanks(rest, end);
    const char *close = rest < end && *rest == '"' ? memchr(rest + 1, '"', (size_t)(end - rest - 1)) : NULL;
    if (!close)
        return attns_fail(fault_status(state),
                          "%s/%s:%d: #include %.*s: only #include \"file of templates/\" is possible", folder(state),
                          at.file, at.line, (int)(end - rest), rest);
    char *name = strndup(rest + 1, (size_t)(close - rest - 1));
    if (!name)
        return out_of_memory(at.file);
    attns_status status = ATTNS_OK;
    for (size_t i = 0; i < state->num_included; i++)
        if (strcmp(state->included[i], name) == 0) {
            free(name);
            attns_strbuf_puts(&state->out, "\n"); /* in place of the line, which keeps the numbers right */
            return ATTNS_OK;
        }
    status = expand(state, at, name);
    if (status == ATTNS_OK)
        attns_strbuf_printf(&state->out, "#line %d \"templates/%s\"\n", at.line + 1, at.file);
    free(name);
    return status;
}

/* Appends one file with everything it includes. `includer.file` is NULL for the kernel's own file. */
static attns_status expand(fill_state *state, position includer, const char *file) {
    char where[256] = "";
    if (includer.file)
        snprintf(where, sizeof where, ", included at %s/%s:%d", folder(state), includer.file, includer.line);
    if (!is_safe_name(file))
        return attns_fail(fault_status(state), "'%s' is not a path inside %s/%s", file, folder(state), where);
    if (state->num_included == MAX_FILES)
        return attns_fail(fault_status(state), "%s/%s: more than %d files%s", folder(state), file, MAX_FILES, where);
    char *text = NULL;
    attns_status status = state->dir ? read_from_dir(state->dir, file, &text) : read_embedded(file, &text);
    if (status != ATTNS_OK)
        return includer.file ? attns_fail(status, "%s%s", attns_last_error(), where) : status;
    state->included[state->num_included] = strdup(file);
    if (!state->included[state->num_included]) {
        free(text);
        return out_of_memory(file);
    }
    state->num_included++;

    attns_strbuf_printf(&state->out, "#line 1 \"templates/%s\"\n", file);
    position at = {.file = file, .line = 1};
    bool in_comment = false;
    for (const char *line = text; *line && status == ATTNS_OK; at.line++) {
        const char *end = line + strcspn(line, "\n");
        const char *rest = in_comment ? NULL : directive(line, end, "include");
        if (rest) {
            status = include(state, at, rest, end);
        } else if (!in_comment && is_pragma_once(line, end)) {
            attns_strbuf_puts(&state->out, "\n");
        } else {
            status = substitute(state, at, line, end);
            attns_strbuf_puts(&state->out, "\n");
        }
        in_comment = ends_in_comment(line, end, in_comment);
        line = *end ? end + 1 : end;
    }
    free(text);
    return status;
}

attns_status attns_template_fill(const char *dir, const char *file, const attns_placeholder *placeholders,
                                 size_t num_placeholders, char **source) {
    *source = NULL;
    fill_state state = {.dir = dir, .placeholders = placeholders, .num_placeholders = num_placeholders};
    state.used = calloc(num_placeholders + 1, sizeof *state.used);
    if (!state.used)
        return out_of_memory(file);
    attns_status status = check_placeholders(&state, file);
    if (status == ATTNS_OK)
        status = expand(&state, (position){0}, file);
    for (size_t i = 0; i < num_placeholders && status == ATTNS_OK; i++)
        if (!state.used[i])
            status = attns_fail(fault_status(&state), "%s/%s: placeholder @%s@ has the value %s, but no file uses it",
                                folder(&state), file, placeholders[i].name, placeholders[i].value);
    if (status == ATTNS_OK) {
        *source = attns_strbuf_take(&state.out);
        if (!*source)
            status = out_of_memory(file);
    }
    attns_strbuf_free(&state.out);
    for (size_t i = 0; i < state.num_included; i++)
        free(state.included[i]);
    free(state.used);
    return status;
}
