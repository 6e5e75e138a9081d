/* SPDX-License-Identifier: MIT */
#include "probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *memory) {
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

probe *probe_add(probe_list *list, const char *format, ...) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->items = must(realloc(list->items, list->capacity * sizeof *list->items));
    }
    probe *p = &list->items[list->count++];
    memset(p, 0, sizeof *p);
    p->ctas = 1;
    p->threads = 32;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(p->name, sizeof p->name, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof p->name) {
        fprintf(stderr, "%s: the name is too long\n", p->name);
        exit(1);
    }
    return p;
}

void *probe_input(probe *p, size_t bytes) {
    p->in_bytes = bytes;
    p->in = must(calloc(1, bytes));
    return p->in;
}

void probe_list_free(probe_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].in);
        attns_strbuf_free(&list->items[i].ptx);
    }
    free(list->items);
    memset(list, 0, sizeof *list);
}

struct rng probe_random(const probe *p) {
    struct rng r = rng_make(PROBE_SEED);
    for (const char *c = p->name; *c; c++)
        r.state = rng_next(&r) ^ (uint8_t)*c;
    return r;
}

/* ---- Text ---- */

void probe_put(probe *p, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    char *text = must(malloc((size_t)length + 1));
    vsnprintf(text, (size_t)length + 1, format, again);
    attns_strbuf_puts(&p->ptx, text);
    free(text);
    va_end(again);
    va_end(arguments);
}

void probe_begin(probe *p) {
    probe_put(p, ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 tile[];\n"
                 ".visible .entry probe(.param .u64 out_array, .param .u64 in_array");
    if (p->map.rank)
        probe_put(p, ", .param .align 64 .b8 map[128]");
    probe_put(p,
              ")\n.maxntid %u, 1, 1\n{\n.reg .b32 %%r<16>, %%thread, %%cta, %%gtid, %%tile, %%at;\n"
              ".reg .b64 %%rd<16>, %%out, %%in;\n.reg .pred %%p<8>, %%more;\n.reg .f32 %%f<8>;\n"
              "mov.u32 %%thread, %%tid.x;\nmov.u32 %%cta, %%ctaid.x;\n"
              "mad.lo.u32 %%gtid, %%cta, %u, %%thread;\n"
              "ld.param.u64 %%out, [out_array];\nld.param.u64 %%in, [in_array];\n",
              p->threads, p->threads);
}

void probe_end(probe *p) {
    probe_put(p, "ret;\n}\n");
}

void probe_fill_tile(probe *p, size_t offset, size_t bytes) {
    probe_put(p,
              "mov.u32 %%tile, tile;\nshl.b32 %%at, %%thread, 4;\n"
              "FILL:\nsetp.lt.u32 %%more, %%at, %zu;\n@!%%more bra FILLED;\n"
              "cvt.u64.u32 %%rd0, %%at;\nadd.u64 %%rd0, %%rd0, %%in;\nadd.u32 %%r0, %%at, %%tile;\n"
              "ld.global.v4.u32 {%%r1, %%r2, %%r3, %%r4}, [%%rd0+%zu];\n"
              "st.shared.v4.u32 [%%r0], {%%r1, %%r2, %%r3, %%r4};\n"
              "add.u32 %%at, %%at, %u;\nbra FILL;\nFILLED:\nfence.proxy.async;\nbar.sync 0;\n",
              bytes, offset, 16 * p->threads);
}

void probe_dump_tile(probe *p, size_t offset, size_t bytes) {
    probe_put(p,
              "bar.sync 0;\nshl.b32 %%at, %%thread, 4;\nmad.wide.u32 %%rd1, %%cta, %zu, %%out;\n"
              "DUMP:\nsetp.lt.u32 %%more, %%at, %zu;\n@!%%more bra DUMPED;\n"
              "cvt.u64.u32 %%rd0, %%at;\nadd.u64 %%rd0, %%rd0, %%rd1;\nadd.u32 %%r0, %%at, %%tile;\n"
              "ld.shared.v4.u32 {%%r1, %%r2, %%r3, %%r4}, [%%r0];\n"
              "st.global.v4.u32 [%%rd0+%zu], {%%r1, %%r2, %%r3, %%r4};\n"
              "add.u32 %%at, %%at, %u;\nbra DUMP;\nDUMPED:\n",
              bytes, bytes, offset, 16 * p->threads);
}
