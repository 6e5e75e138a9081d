/* SPDX-License-Identifier: MIT */
#include "plan/kernel_name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef enum field_type { NUMBER, DTYPE, FLAG } field_type;

/* " " prefix value; a flag is its prefix, there or not */
typedef struct field {
    const char *prefix;
    field_type type;
    size_t offset; /* of an int32_t in attns_problem */
} field;

typedef struct operation {
    attns_kernel_kind kind;
    const char *name;
    const field *fields; /* ends with a NULL prefix */
} operation;

#define MEMBER(name) offsetof(attns_problem, name)

static const field fp8_fields[] = {
    {"h", NUMBER, MEMBER(num_heads)},   {"d", NUMBER, MEMBER(head_dim)},        {"b", NUMBER, MEMBER(block_size)},
    {"n", NUMBER, MEMBER(next_n)},      {"out=", DTYPE, MEMBER(out_dtype)},     {"acc=", DTYPE, MEMBER(acc_dtype)},
    {"epi=", DTYPE, MEMBER(epi_dtype)}, {"much work", FLAG, MEMBER(much_work)}, {0},
};
static const field fp4_fields[] = {
    {"h", NUMBER, MEMBER(num_heads)},
    {"d", NUMBER, MEMBER(head_dim)},
    {"b", NUMBER, MEMBER(block_size)},
    {"n", NUMBER, MEMBER(next_n)},
    {"out=", DTYPE, MEMBER(out_dtype)},
    {"interleaved", FLAG, MEMBER(kv_sf_interleaved)},
    {0},
};
static const field no_fields[] = {{0}};

static const operation operations[] = {
    {ATTNS_KERNEL_FP8_LOGITS, "fp8_paged_mqa_logits", fp8_fields},
    {ATTNS_KERNEL_FP4_LOGITS, "fp4_paged_mqa_logits", fp4_fields},
    {ATTNS_KERNEL_SCHEDULE, "paged_mqa_logits_schedule", no_fields},
    {ATTNS_KERNEL_INDEXER_BF16, "indexer_scores_bf16", no_fields},
    {ATTNS_KERNEL_INDEXER_NVFP4, "indexer_scores_nvfp4", no_fields},
};
#define NUM_OPERATIONS (sizeof operations / sizeof operations[0])

static int32_t *member(attns_problem *problem, const field *part) {
    return (int32_t *)((char *)problem + part->offset);
}

static const char portable_mark[] = " portable";

/* ---- Printing ---- */

const char *attns_dtype_name(attns_dtype dtype) {
    switch (dtype) {
    case ATTNS_DTYPE_F32:
        return "f32";
    case ATTNS_DTYPE_F16:
        return "f16";
    case ATTNS_DTYPE_BF16:
        return "bf16";
    case ATTNS_DTYPE_DEFAULT:
        return "default";
    }
    return "unknown";
}

void attns_kernel_name_print(const attns_problem *problem, bool portable, char *text, size_t size) {
    attns_problem copy = *problem;
    const operation *which = operations;
    while (which < operations + NUM_OPERATIONS && which->kind != (attns_kernel_kind)problem->kind)
        which++;
    if (which == operations + NUM_OPERATIONS) {
        snprintf(text, size, "kernel of unknown kind %d", (int)problem->kind);
        return;
    }
    size_t used = (size_t)snprintf(text, size, "%s", which->name);
    for (const field *part = which->fields; part->prefix && used < size; part++) {
        const int32_t value = *member(&copy, part);
        if (part->type == NUMBER)
            used += (size_t)snprintf(text + used, size - used, " %s%d", part->prefix, (int)value);
        else if (part->type == DTYPE)
            used +=
                (size_t)snprintf(text + used, size - used, " %s%s", part->prefix, attns_dtype_name((attns_dtype)value));
        else if (value)
            used += (size_t)snprintf(text + used, size - used, " %s", part->prefix);
    }
    if (portable && used < size)
        snprintf(text + used, size - used, "%s", portable_mark);
}

/* ---- Parsing ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The text after `prefix`, NULL if it does not begin with it. */
static const char *after(const char *text, const char *prefix) {
    const size_t length = strlen(prefix);
    return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

/* One spelling for each number: no sign, no leading zero; at most six digits, so that nothing overflows. */
static const char *parse_number(const char *text, int32_t *value) {
    if (*text < '1' || *text > '9')
        return NULL;
    int32_t number = 0;
    for (int digits = 0; *text >= '0' && *text <= '9'; text++) {
        if (++digits > 6)
            return NULL;
        number = number * 10 + (*text - '0');
    }
    *value = number;
    return text;
}

static const char *parse_dtype(const char *text, int32_t *value) {
    static const attns_dtype dtypes[] = {ATTNS_DTYPE_F32, ATTNS_DTYPE_F16, ATTNS_DTYPE_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const char *const rest = after(text, attns_dtype_name(dtypes[i]));
        if (rest) {
            *value = (int32_t)dtypes[i];
            return rest;
        }
    }
    return NULL;
}

/* " for sm_90a (PTX)", all of it optional. Leaves the text alone that is something else. */
static const char *parse_target(const char *text, attns_kernel_reference *reference) {
    const char *const name = after(text, " for ");
    const char *digits = NULL;
    if (name)
        digits = after(name, "sm_");
    if (name && !digits)
        digits = after(name, "compute_");
    if (!digits || !isdigit((unsigned char)*digits))
        return text;
    size_t length = (size_t)(digits - name);
    while (is_word(name[length]))
        length++;
    if (length >= sizeof reference->arch)
        return text;
    memcpy(reference->arch, name, length);
    reference->arch[length] = '\0';
    const char *const mark = after(name + length, " (PTX)");
    reference->ptx = mark != NULL;
    return mark ? mark : name + length;
}

/* The text after the operation's name if it is the beginning of a kernel's name and not a mention of the operation. */
static const char *begins(const operation *which, const char *text) {
    const char *const rest = after(text, which->name);
    if (!rest || is_word(*rest))
        return NULL;
    if (!which->fields[0].prefix)
        return rest;
    const char *const value = *rest == ' ' ? after(rest + 1, which->fields[0].prefix) : NULL;
    return value && isdigit((unsigned char)*value) ? rest : NULL;
}

attns_kernel_found attns_kernel_reference_parse(const char *text, attns_kernel_reference *reference, const char **end) {
    memset(reference, 0, sizeof *reference);
    *end = text;
    for (const operation *which = operations; which < operations + NUM_OPERATIONS; which++) {
        const char *at = begins(which, text);
        if (!at)
            continue;
        reference->problem.kind = which->kind;
        for (const field *part = which->fields; part->prefix; part++) {
            *end = at;
            int32_t *const value = member(&reference->problem, part);
            const char *const rest = *at == ' ' ? after(at + 1, part->prefix) : NULL;
            if (part->type == FLAG) {
                *value = rest && !is_word(*rest);
                at = *value ? rest : at;
                continue;
            }
            at = rest;
            if (at)
                at = part->type == NUMBER ? parse_number(at, value) : parse_dtype(at, value);
            if (!at || is_word(*at))
                return ATTNS_KERNEL_MALFORMED;
        }
        const char *const portable = after(at, portable_mark);
        reference->portable = portable && !is_word(*portable);
        *end = parse_target(reference->portable ? portable : at, reference);
        return ATTNS_KERNEL_FOUND;
    }
    return ATTNS_KERNEL_NOT_FOUND;
}

attns_kernel_found attns_kernel_reference_find(const char *text, attns_kernel_reference *reference, const char **start,
                                               const char **end) {
    for (const char *at = text; *at; at++) {
        if (!is_word(*at) || (at > text && is_word(at[-1])))
            continue;
        const attns_kernel_found found = attns_kernel_reference_parse(at, reference, end);
        if (found != ATTNS_KERNEL_NOT_FOUND) {
            *start = at;
            return found;
        }
    }
    *start = *end = text + strlen(text);
    return ATTNS_KERNEL_NOT_FOUND;
}
