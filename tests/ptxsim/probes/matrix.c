/* SPDX-License-Identifier: MIT
 *
 * ldmatrix, stmatrix, movmatrix, and mma.sync with numbers whose sums are exact, and with others. */
#include <string.h>

#include "product.h"

enum { TILE = 4096, CTAS = 8 };

/* ---- ldmatrix, stmatrix, movmatrix ---- */

/* Input: the tile, then for each thread the address of its row and four registers; all rows of a CTA differ. */
static void fill_rows(probe *p) {
    struct rng r = probe_random(p);
    uint32_t *words = probe_input(p, TILE + CTAS * 32 * 20);
    for (size_t i = 0; i < p->in_bytes / 4; i++)
        words[i] = (uint32_t)rng_next(&r);
    for (uint32_t cta = 0; cta < CTAS; cta++) {
        const uint32_t odd = 2 * (uint32_t)rng_below(&r, 128) + 1, first = (uint32_t)rng_below(&r, 256);
        for (uint32_t lane = 0; lane < 32; lane++)
            words[TILE / 4 + (cta * 32 + lane) * 5] = (first + lane * odd) % (TILE / 16) * 16;
    }
}

static void begin_rows(probe *p) {
    p->ctas = CTAS;
    p->shared_bytes = TILE;
    fill_rows(p);
    probe_begin(p);
    probe_fill_tile(p, 0, TILE);
    probe_put(p,
              "mad.wide.u32 %%rd2, %%gtid, 20, %%in;\nld.global.u32 %%r5, [%%rd2+%d];\nadd.u32 %%r5, %%r5, %%tile;\n",
              TILE);
    for (int i = 0; i < 4; i++)
        probe_put(p, "ld.global.u32 %%r%d, [%%rd2+%d];\n", 6 + i, TILE + 4 + 4 * i);
}

static const char *const registers[] = {[1] = "{%r6}", [2] = "{%r6, %r7}", [4] = "{%r6, %r7, %r8, %r9}"};

static void add_rows(probe_list *list, int count, const char *transposed) {
    probe *p = probe_add(list, "matrix/ldmatrix.x%d%s", count, transposed);
    p->out_bytes = CTAS * 32 * 16;
    begin_rows(p);
    probe_put(p, "ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 %s, [%%r5];\n", count, transposed, registers[count]);
    probe_put(p, "mad.wide.u32 %%rd3, %%gtid, 16, %%out;\nst.global.v4.u32 [%%rd3], {%%r6, %%r7, %%r8, %%r9};\n");
    probe_end(p);

    p = probe_add(list, "matrix/stmatrix.x%d%s", count, transposed);
    p->out_bytes = CTAS * TILE;
    begin_rows(p);
    probe_put(p, "stmatrix.sync.aligned.m8n8.x%d%s.shared.b16 [%%r5], %s;\n", count, transposed, registers[count]);
    probe_dump_tile(p, 0, TILE);
    probe_end(p);
}

static void add_movmatrix(probe_list *list) {
    probe *p = probe_add(list, "matrix/movmatrix");
    p->out_bytes = CTAS * 32 * 4;
    begin_rows(p);
    probe_put(p, "movmatrix.sync.aligned.m8n8.trans.b16 %%r7, %%r6;\n"
                 "mad.wide.u32 %%rd3, %%gtid, 4, %%out;\nst.global.u32 [%%rd3], %%r7;\n");
    probe_end(p);
}

/* ---- mma.sync ---- */

static void add_mma(probe_list *list, const mma_form *f, bool exact) {
    probe *p = probe_add(list, "matrix/%smma.m16n8k%d%s.%s.%s.%s", exact ? "" : "near_", f->k, f->modifier, f->sum,
                         f->a->name, f->b->name);
    const bool integers = f->a->exponent == 0;
    const size_t a = (size_t)mma_a_words(f), b = (size_t)mma_b_words(f), c = (size_t)mma_c_words(f);
    mma_kernel(p, f, exact ? 4 : 1);
    p->keep = !exact;
    struct rng r = probe_random(p);
    uint32_t *words = (uint32_t *)(void *)p->in;
    for (size_t thread = 0; thread < (size_t)p->ctas * p->threads; thread++, words += a + b + c) {
        for (size_t i = 0; i < 32 * a / (size_t)f->a->bits; i++)
            element_store(f->a, words, i, exact ? element_small(&r, f->a) : element_random(&r, f->a, -3, 3));
        for (size_t i = 0; i < 32 * b / (size_t)f->b->bits; i++)
            element_store(f->b, words + a, i, exact ? element_small(&r, f->b) : element_random(&r, f->b, -3, 3));
        for (size_t i = 0; i < c; i++) {
            if (strcmp(f->sum, "f16") == 0) {
                for (size_t half = 0; half < 2; half++)
                    element_store(&element_f16, words + a + b, 2 * i + half,
                                  exact ? (double)rng_range(&r, -64, 64) : element_random(&r, &element_f16, -3, 3));
            } else if (strcmp(f->sum, "f32") == 0) {
                element_store(&element_f32, words + a + b, i,
                              exact ? (double)rng_range(&r, -64, 64) : element_random(&r, &element_f32, -3, 3));
            } else {
                words[a + b + i] = (uint32_t)rng_next(&r);
            }
        }
        /* Integers of any size; some accumulators near where the sum overflows. */
        for (size_t i = 0; integers && i < a + b; i++)
            words[i] = (uint32_t)rng_next(&r);
        for (size_t i = 0; integers && i < c; i += 3)
            words[a + b + i] = (rng_next(&r) & 1 ? 0x7fffffff : 0x80000000) ^ (uint32_t)rng_below(&r, 100000);
    }
}

void probes_matrix(probe_list *list) {
    for (int count = 1; count <= 4; count *= 2) {
        add_rows(list, count, "");
        add_rows(list, count, ".trans");
    }
    add_movmatrix(list);
    static const element_type *const narrow[] = {&element_e4m3, &element_e5m2}, *const bytes[] = {&element_s8,
                                                                                                  &element_u8};
    for (int exact = 0; exact < 2; exact++) {
        for (int k = 8; k <= 16; k += 8) {
            add_mma(list, &(mma_form){&element_f16, &element_f16, "f32", k, ""}, exact);
            add_mma(list, &(mma_form){&element_f16, &element_f16, "f16", k, ""}, exact);
            add_mma(list, &(mma_form){&element_bf16, &element_bf16, "f32", k, ""}, exact);
            add_mma(list, &(mma_form){&element_tf32, &element_tf32, "f32", k / 2, ""}, exact);
            for (int pair = 0; pair < 4; pair++)
                add_mma(list, &(mma_form){narrow[pair / 2], narrow[pair % 2], pair % 2 ? "f16" : "f32", 2 * k, ""},
                        exact);
            for (int pair = 0; exact && pair < 4; pair++) {
                add_mma(list, &(mma_form){bytes[pair / 2], bytes[pair % 2], "s32", 2 * k, ""}, true);
                add_mma(list, &(mma_form){bytes[pair / 2], bytes[pair % 2], "s32", 2 * k, ".satfinite"}, true);
            }
        }
    }
}
