/* SPDX-License-Identifier: MIT */
#include "product.h"

#include <string.h>

/* "{%a0, %a1}" */
static void put_registers(probe *p, char name, int count) {
    probe_put(p, "{");
    for (int i = 0; i < count; i++)
        probe_put(p, "%s%%%c%d", i ? ", " : "", name, i);
    probe_put(p, "}");
}

static void load_registers(probe *p, char name, int count, const char *address, size_t offset) {
    for (int i = 0; i < count; i++)
        probe_put(p, "ld.global.b32 %%%c%d, [%s+%zu];\n", name, i, address, offset + 4 * (size_t)i);
}

static void store_registers(probe *p, char name, int count) {
    probe_put(p, "mad.wide.u32 %%rd3, %%gtid, %d, %%out;\n", 4 * count);
    for (int i = 0; i < count; i++)
        probe_put(p, "st.global.b32 [%%rd3+%d], %%%c%d;\n", 4 * i, name, i);
}

/* ---- mma.sync ---- */

int mma_a_words(const mma_form *f) {
    return 16 * f->k * f->a->bits / 32 / 32;
}

int mma_b_words(const mma_form *f) {
    return 8 * f->k * f->b->bits / 32 / 32;
}

int mma_c_words(const mma_form *f) {
    return strcmp(f->sum, "f16") == 0 ? 2 : 4;
}

void mma_kernel(probe *p, const mma_form *f, unsigned ctas) {
    const int a = mma_a_words(f), b = mma_b_words(f), c = mma_c_words(f);
    p->ctas = ctas;
    p->threads = 128;
    p->out_bytes = (size_t)ctas * p->threads * (size_t)c * 4;
    probe_input(p, (size_t)ctas * p->threads * (size_t)(a + b + c) * 4);
    probe_begin(p);
    probe_put(p, ".reg .b32 %%a<4>, %%b<4>, %%c<4>, %%d<4>;\nmad.wide.u32 %%rd2, %%gtid, %d, %%in;\n", 4 * (a + b + c));
    load_registers(p, 'a', a, "%rd2", 0);
    load_registers(p, 'b', b, "%rd2", 4 * (size_t)a);
    load_registers(p, 'c', c, "%rd2", 4 * (size_t)(a + b));
    probe_put(p, "mma.sync.aligned.m16n8k%d.row.col%s.%s.%s.%s.%s ", f->k, f->modifier, f->sum, f->a->name, f->b->name,
              f->sum);
    put_registers(p, 'd', c);
    probe_put(p, ", ");
    put_registers(p, 'a', a);
    probe_put(p, ", ");
    put_registers(p, 'b', b);
    probe_put(p, ", ");
    put_registers(p, 'c', c);
    probe_put(p, ";\n");
    store_registers(p, 'd', c);
    probe_end(p);
}

/* ---- wgmma ---- */

enum { A_REGISTERS = 4 };

int wgmma_k(const wgmma_form *f) {
    return 256 / f->a->bits;
}

int wgmma_sums(const wgmma_form *f) {
    return f->n * 64 / WGMMA_THREADS / (f->half ? 2 : 1);
}

static size_t cta_bytes(const wgmma_form *f) {
    return 16 + 4 * (size_t)WGMMA_THREADS * (size_t)(A_REGISTERS + wgmma_sums(f));
}

wgmma_input wgmma_input_of(const probe *p, const wgmma_form *f, unsigned cta, bool tiles) {
    uint8_t *own = p->in + WGMMA_TILE * (size_t)(tiles ? p->ctas : 1) + cta * cta_bytes(f);
    return (wgmma_input){.tile = p->in + WGMMA_TILE * (size_t)(tiles ? cta : 0),
                         .descriptors = (uint64_t *)(void *)own,
                         .a = (uint32_t *)(void *)(own + 16),
                         .c = (uint32_t *)(void *)(own + 16 + 4 * WGMMA_THREADS * A_REGISTERS)};
}

void wgmma_kernel(probe *p, const wgmma_form *f, unsigned ctas, bool tiles) {
    const int sums = wgmma_sums(f);
    const size_t tile_bytes = WGMMA_TILE * (size_t)(tiles ? ctas : 1);
    p->ctas = ctas;
    p->threads = WGMMA_THREADS;
    p->shared_bytes = WGMMA_TILE;
    p->out_bytes = (size_t)ctas * WGMMA_THREADS * (size_t)sums * 4;
    probe_input(p, tile_bytes + ctas * cta_bytes(f));
    probe_begin(p);
    probe_put(p, ".reg .b32 %%a<4>, %%d<128>;\n.reg .b64 %%da, %%db, %%base;\n");
    probe_put(p, "mad.wide.u32 %%rd2, %%cta, %zu, %%in;\nadd.u64 %%rd2, %%rd2, %zu;\n", cta_bytes(f), tile_bytes);
    if (tiles)
        probe_put(p, "mad.wide.u32 %%in, %%cta, %d, %%in;\n", WGMMA_TILE);
    probe_fill_tile(p, 0, WGMMA_TILE);
    probe_put(p,
              "ld.global.v2.b64 {%%da, %%db}, [%%rd2];\nshr.u32 %%r5, %%tile, 4;\ncvt.u64.u32 %%base, %%r5;\n"
              "add.u64 %%da, %%da, %%base;\nadd.u64 %%db, %%db, %%base;\n"
              "mad.wide.u32 %%rd4, %%thread, %d, %%rd2;\nmad.wide.u32 %%rd5, %%thread, %d, %%rd2;\n",
              4 * A_REGISTERS, 4 * sums);
    if (f->a_registers)
        load_registers(p, 'a', A_REGISTERS, "%rd4", 16);
    load_registers(p, 'd', sums, "%rd5", 16 + 4 * WGMMA_THREADS * A_REGISTERS);
    probe_put(p, "setp.%s.u32 %%p1, %%cta, -1;\nwgmma.fence.sync.aligned;\n", f->overwrite ? "eq" : "ne");
    probe_put(p, "wgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s ", f->n, wgmma_k(f), f->half ? "f16" : "f32",
              f->a->name, f->b->name);
    put_registers(p, 'd', sums);
    probe_put(p, ", ");
    if (f->a_registers)
        put_registers(p, 'a', A_REGISTERS);
    probe_put(p, "%s, %%db, %%p1, %d, %d", f->a_registers ? "" : "%da", f->negate_a ? -1 : 1, f->negate_b ? -1 : 1);
    if (f->a->bits == 16 && !f->a_registers)
        probe_put(p, ", %d", f->transpose_a);
    if (f->a->bits == 16)
        probe_put(p, ", %d", f->transpose_b);
    probe_put(p, ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    store_registers(p, 'd', sums);
    probe_end(p);
}
