/* SPDX-License-Identifier: MIT
 *
 * Fills a kernel template: a CUDA C++ file of templates/ in which @NAME@ stands for a specialised constant and
 * `#include "lib/part.cuh"` for another file of templates/ (each included once, with #line so that compiler messages
 * name the template). The result needs no include path. */
#ifndef ATTNS_JIT_TEMPLATE_H_
#define ATTNS_JIT_TEMPLATE_H_

#include <attn_scores/attn_scores.h>

typedef struct attns_placeholder {
    const char *name; /* without the @ */
    char value[32];
} attns_placeholder;

/* `file` is relative to templates/, e.g. "fp8_paged_mqa_logits_sm90.cu". `dir` overrides the embedded files if not
 * NULL. A placeholder of the file that is not in the list, one of the list that no file uses, and a missing file are
 * ATTNS_ERROR_INTERNAL (embedded) or ATTNS_ERROR_IO (from `dir`), naming file, line and placeholder. *source is
 * malloc'ed. */
attns_status attns_template_fill(const char *dir, const char *file, const attns_placeholder *placeholders,
                                 size_t num_placeholders, char **source);

/* The embedded files (generated at build). Sorted by name, ends with a NULL name. */
typedef struct attns_embedded_file {
    const char *name;
    const char *text;
} attns_embedded_file;
extern const attns_embedded_file attns_embedded_templates[];

#endif
