/* SPDX-License-Identifier: MIT
 *
 * wgmma: which bytes of shared memory and registers are multiplied with which. The tile holds random small integers
 * everywhere, so that sums are exact and every layout gives a result of its own. Then, with other numbers, sums that
 * are not exact. */
#include "product.h"

#include <string.h>

enum { LAYOUTS = 3 };

static const char *const swizzle_names[] = {"none", "128", "64", "32"}; /* in the descriptor's order */
static const unsigned swizzle_bytes[] = {0, 128, 64, 32};

static uint64_t descriptor(size_t start, size_t leading, size_t stride, unsigned swizzle) {
    return (uint64_t)start >> 4 | (uint64_t)leading >> 4 << 16 | (uint64_t)stride >> 4 << 32 | (uint64_t)swizzle << 62;
}

/* A layout at random of an operand of `rows` (M or N), such that it lies within the tile. The fields' meanings: PTX
 * ISA, "Matrix Descriptor Format" and "Strides". */
static uint64_t random_descriptor(struct rng *r, unsigned swizzle, bool transposed, int rows) {
    const size_t width = swizzle_bytes[swizzle];
    if (width == 0) { /* blocks of 8 rows of 16 bytes, anywhere */
        const size_t outer = (size_t)(transposed ? rows * 2 / 16 : rows / 8);
        const size_t most = (WGMMA_TILE / 2 - 256) / 16 / (outer + 2);
        const size_t start = 16 * (size_t)rng_below(r, WGMMA_TILE / 2 / 16);
        return descriptor(start, 16 * (size_t)rng_below(r, (int64_t)most), 16 * (size_t)rng_below(r, (int64_t)most), 0);
    }
    const size_t pattern = 8 * width;
    size_t start = pattern * (size_t)rng_below(r, (int64_t)(WGMMA_TILE / 4 / pattern));
    if (!transposed) { /* two pieces of 16 bytes of rows that are `width` bytes long; `leading` is not used */
        start += 16 * (size_t)rng_below(r, (int64_t)width / 16 - 1);
        const size_t groups = (size_t)rows / 8, most = (WGMMA_TILE / 2 / pattern - 1) / groups;
        return descriptor(start, 16 * (size_t)rng_below(r, 64), pattern * (size_t)rng_below(r, (int64_t)most + 1),
                          swizzle);
    }
    const size_t groups = (size_t)rows * 2 / width, most = (WGMMA_TILE / 2 / pattern - 1) / (groups + 1);
    return descriptor(start, pattern * (size_t)rng_below(r, (int64_t)most + 1),
                      pattern * (size_t)rng_below(r, (int64_t)most + 1), swizzle);
}

static void fill(probe *p, const wgmma_form *f, unsigned swizzle, bool exact) {
    struct rng r = probe_random(p);
    const wgmma_input first = wgmma_input_of(p, f, 0, false);
    for (size_t i = 0; i < (size_t)WGMMA_TILE * 8 / (size_t)f->b->bits; i++)
        element_store(f->b, first.tile, i, exact ? element_small(&r, f->b) : element_random(&r, f->b, -3, 3));
    for (unsigned cta = 0; cta < p->ctas; cta++) {
        const wgmma_input in = wgmma_input_of(p, f, cta, false);
        in.descriptors[0] = random_descriptor(&r, swizzle, f->transpose_a, 64);
        in.descriptors[1] = random_descriptor(&r, swizzle, f->transpose_b, f->n);
        for (size_t i = 0; i < (size_t)WGMMA_THREADS * 4 * 32 / (size_t)f->a->bits; i++)
            element_store(f->a, in.a, i, exact ? element_small(&r, f->a) : element_random(&r, f->a, -3, 3));
        const element_type *sum = f->half ? &element_f16 : &element_f32;
        for (size_t i = 0; i < (size_t)WGMMA_THREADS * (size_t)wgmma_sums(f) * (f->half ? 2 : 1); i++)
            element_store(sum, in.c, i, exact ? (double)rng_range(&r, -64, 64) : element_random(&r, sum, -3, 3));
    }
}

static void add_exact(probe_list *list, const wgmma_form *f, unsigned swizzle) {
    probe *p = probe_add(list, "wgmma/m64n%dk%d.%s.%s.%s_%s_swizzle_%s%s%s%s%s%s", f->n, wgmma_k(f),
                         f->half ? "f16" : "f32", f->a->name, f->b->name, f->a_registers ? "rs" : "ss",
                         swizzle_names[swizzle], f->negate_a ? "_-a" : "", f->negate_b ? "_-b" : "",
                         f->transpose_a ? "_ta" : "", f->transpose_b ? "_tb" : "", f->overwrite ? "_d0" : "");
    wgmma_kernel(p, f, f->n > 64 ? 2 : LAYOUTS, false);
    fill(p, f, swizzle, true);
}

static void add_near(probe_list *list, const wgmma_form *f) {
    probe *p = probe_add(list, "wgmma/near_%s.%s.%s_%s", f->half ? "f16" : "f32", f->a->name, f->b->name,
                         f->a_registers ? "rs" : "ss");
    wgmma_kernel(p, f, 1, false);
    fill(p, f, 1, false);
    p->keep = true;
}

void probes_wgmma(probe_list *list) {
    static const element_type *const wide[] = {&element_f16, &element_bf16}, *const narrow[] = {&element_e4m3,
                                                                                                &element_e5m2};
    static const int ns[] = {8, 24, 40, 128, 256};
    for (unsigned swizzle = 0; swizzle < 4; swizzle++) {
        for (int half = 0; half < 2; half++) {
            for (int in_registers = 0; in_registers < 2; in_registers++) {
                for (int pair = 0; pair < 4; pair++)
                    add_exact(list,
                              &(wgmma_form){.a = narrow[pair / 2],
                                            .b = narrow[pair % 2],
                                            .half = half,
                                            .n = ns[pair % 3],
                                            .a_registers = in_registers},
                              swizzle);
                for (int t = 0; t < 2 - half; t++)
                    for (int transposed = 0; transposed < (in_registers ? 2 : 4); transposed++)
                        add_exact(list,
                                  &(wgmma_form){.a = wide[t],
                                                .b = wide[t],
                                                .half = half,
                                                .n = 64,
                                                .a_registers = in_registers,
                                                .transpose_a = transposed / 2,
                                                .transpose_b = transposed % 2},
                                  swizzle);
            }
        }
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
            add_exact(list, &(wgmma_form){.a = &element_f16, .b = &element_f16, .n = ns[i], .negate_a = i % 2},
                      swizzle);
    }
    for (int n = 16; n <= 256; n += 48) /* scale-d 0, negations */
        add_exact(list, &(wgmma_form){.a = &element_e4m3, .b = &element_e4m3, .n = n, .overwrite = true}, 1);
    for (int sign = 1; sign < 4; sign++) {
        add_exact(
            list,
            &(wgmma_form){.a = &element_e4m3, .b = &element_e5m2, .n = 16, .negate_a = sign & 1, .negate_b = sign / 2},
            2);
        add_exact(list,
                  &(wgmma_form){.a = &element_bf16,
                                .b = &element_bf16,
                                .n = 16,
                                .a_registers = true,
                                .negate_a = sign & 1,
                                .negate_b = sign / 2},
                  3);
    }
    for (int in_registers = 0; in_registers < 2; in_registers++) {
        for (int t = 0; t < 2; t++) {
            add_near(list, &(wgmma_form){.a = narrow[t], .b = narrow[t], .n = 8, .a_registers = in_registers});
            add_near(list, &(wgmma_form){.a = wide[t], .b = wide[t], .n = 8, .a_registers = in_registers});
        }
        add_near(list,
                 &(wgmma_form){.a = narrow[0], .b = narrow[1], .half = true, .n = 8, .a_registers = in_registers});
        add_near(list, &(wgmma_form){.a = wide[0], .b = wide[0], .half = true, .n = 8, .a_registers = in_registers});
    }
}
