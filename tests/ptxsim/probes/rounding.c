/* SPDX-License-Identifier: MIT
 *
 * What tensor cores keep of a sum: how many bits below its largest term, cut or rounded, whether the accumulator counts
 * as a term, and whether all K terms are added at once. Products of 64 x 8 x K (of four warps with mma.sync): a row of
 * A and a column of B make a sum by themselves. In most of them large + small - large shows what is left of the small
 * term; its size falls by 2 from column to column, and by 2^8 in the lower half of the rows. */
#include <math.h>
#include <string.h>

#include "product.h"

enum { M = 64, N = 8, MAX_K = 32 };

typedef struct matrices {
    double a[M][MAX_K], b[MAX_K][N], c[M][N];
} matrices;

typedef enum experiment {
    CANCEL,    /* large, -large and small in K = 0, 1, 2 */
    CANCEL_C,  /* C is large, -large in K = 1, small in K = 2 */
    SMALL_C,   /* large and -large in K = 0, 1, C is small, with all bits of f32 (or f16) */
    NO_CANCEL, /* large and small: how the result is rounded */
    MANY,      /* C is -large, large in K = 0, small everywhere else */
    PLACES,    /* as CANCEL, each at a random place in each row */
    ANY,       /* random numbers of all sizes */
    SUBNORMAL, /* A below twice its smallest normal number, mostly subnormal, B of all sizes */
    EXPERIMENTS
} experiment;

/* Exponents of the small factors, which fall by 7 along the columns and by 8 along the rows: as far as e4m3 reaches. */
enum { SMALL_A = 2, SMALL_B = -2 };

/* +-1.xxx: all of e4m3's mantissas, and what of them and of further bits other types have. */
static double small_factor(int row, const element_type *t, struct rng *r) {
    double mantissa = ldexp(row % 8, t->mantissa - 3);
    if (t->mantissa > 3)
        mantissa += (double)rng_below(r, INT64_C(1) << (t->mantissa - 3));
    return (row & 8 ? -1 : 1) * (1 + ldexp(floor(mantissa), -t->mantissa));
}

static void fill(matrices *x, experiment e, const element_type *t, bool half, int k, int below, struct rng *r) {
    const element_type *sum = half ? &element_f16 : &element_f32;
    const int large = (below + SMALL_A + SMALL_B) / 2;
    memset(x, 0, sizeof *x);
    const double factor = ldexp(1, large), square = factor * factor;
    /* Columns: the factor of large terms in places 0 and 1, of small ones in the others. */
    for (int n = 0; n < N; n++)
        for (int i = 0; i < k; i++)
            x->b[i][n] = i < 2 ? factor : ldexp(1, SMALL_B - n);
    for (int m = 0; m < M; m++) {
        const double small = ldexp(small_factor(m, t, r), SMALL_A - 8 * (m / 32));
        for (int n = 0; n < N; n++)
            x->c[m][n] = e == CANCEL_C ? square : e == MANY ? -square : 0;
        if (e != CANCEL_C)
            x->a[m][0] = factor;
        if (e != NO_CANCEL && e != MANY)
            x->a[m][1] = -factor;
        for (int i = 2; i < k; i++)
            x->a[m][i] = e == MANY || (i == 2 && e != SMALL_C) ? small : 0;
        if (e == SMALL_C)
            for (int n = 0; n < N; n++)
                x->c[m][n] = element_random(r, sum, 0, 0) * ldexp(1, 2 * large - below - n - (half ? 0 : 8 * (m / 32)));
    }
    if (e == PLACES) { /* large terms in even places, small ones in odd ones */
        for (int n = 0; n < N; n++)
            for (int i = 0; i < k; i++)
                x->b[i][n] = i % 2 ? ldexp(1, SMALL_B - n) : factor;
        for (int m = 0; m < M; m++) {
            memset(x->a[m], 0, sizeof x->a[m]);
            const int first = 2 * (int)rng_below(r, k / 2), other = (first + 2 + 2 * (int)rng_below(r, k / 2 - 1)) % k;
            x->a[m][first] = factor;
            x->a[m][other] = -factor;
            x->a[m][2 * rng_below(r, k / 2) + 1] = ldexp(small_factor(m, t, r), SMALL_A - 8 * (m / 32));
        }
    }
    if (e == ANY) {
        const int reach = half ? 4 : 6;
        for (int i = 0; i < k; i++) {
            for (int m = 0; m < M; m++)
                x->a[m][i] = element_random(r, t, -reach, reach);
            for (int n = 0; n < N; n++)
                x->b[i][n] = element_random(r, t, -reach, reach);
        }
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++)
                x->c[m][n] = element_random(r, sum, half ? -10 : -2 * reach, half ? 10 : 2 * reach);
    }
}

static void fill_subnormal(matrices *x, const element_type *t, bool half, int k, struct rng *r) {
    const int smallest = 2 - (1 << (t->exponent - 1)); /* exponent of normal numbers */
    const int low = t->exponent == 4 ? -6 : t->exponent == 5 ? -8 : 92, high = low + (t->exponent == 4 ? 14 : 16);
    for (int i = 0; i < k; i++) {
        for (int m = 0; m < M; m++) {
            const double code = (double)rng_below(r, INT64_C(2) << rng_below(r, t->mantissa + 1));
            x->a[m][i] = ldexp(rng_next(r) & 1 ? -code : code, smallest - t->mantissa);
        }
        for (int n = 0; n < N; n++)
            x->b[i][n] = element_random(r, t, low, high);
    }
    for (int m = 0; m < M; m += 2) /* every other row without C */
        for (int n = 0; n < N; n++)
            x->c[m][n] = element_random(r, half ? &element_f16 : &element_f32, half ? -14 : smallest + low,
                                        half ? 0 : smallest + high);
}

/* ---- Where the matrices go ---- */

static void place_wgmma(const probe *p, const wgmma_form *f, unsigned cta, const matrices *x) {
    const wgmma_input in = wgmma_input_of(p, f, cta, true);
    const size_t k = (size_t)wgmma_k(f), row = 16 * 8 / (size_t)f->a->bits; /* elements of 16 bytes */
    /* Not swizzled: 16 bytes of 8 rows make a block; the blocks of M or N follow each other, then those of K. */
    in.descriptors[0] = UINT64_C(1024) >> 4 << 16 | UINT64_C(128) >> 4 << 32;
    in.descriptors[1] = 2048 >> 4 | UINT64_C(128) >> 4 << 16 | UINT64_C(128) >> 4 << 32;
    for (size_t i = 0; i < k; i++) {
        for (size_t m = 0; m < M; m++)
            element_store(f->a, in.tile + i / row * 1024 + m * 16, i % row, x->a[m][i]);
        for (size_t n = 0; n < N; n++)
            element_store(f->b, in.tile + 2048 + i / row * 128 + n * 16, i % row, x->b[i][n]);
    }
    for (size_t m = 0; m < M; m++) {
        for (size_t n = 0; n < N; n++) {
            const size_t thread = m / 16 * 32 + m % 8 * 4 + n / 2, high = m % 16 / 8;
            element_store(f->half ? &element_f16 : &element_f32, in.c, 4 * thread + 2 * high + n % 2, x->c[m][n]);
        }
    }
}

static void place_mma(const probe *p, const mma_form *f, unsigned cta, const matrices *x) {
    const int a = mma_a_words(f), b = mma_b_words(f), c = mma_c_words(f), per = 32 / f->a->bits;
    const bool half = strcmp(f->sum, "f16") == 0;
    for (int thread = 0; thread < 128; thread++) {
        uint32_t *words = (uint32_t *)(void *)p->in + (cta * 128 + (unsigned)thread) * (unsigned)(a + b + c);
        const int lane = thread % 32, first = thread / 32 * 16;
        for (int i = 0; i < a * per; i++) {
            const int reg = i / per, m = first + lane / 4 + 8 * (reg % 2);
            element_store(f->a, words, (size_t)i, x->a[m][lane % 4 * per + 4 * per * (reg / 2) + i % per]);
        }
        for (int i = 0; i < b * per; i++)
            element_store(f->b, words + a, (size_t)i, x->b[lane % 4 * per + 4 * per * (i / per) + i % per][lane / 4]);
        for (int i = 0; i < 4; i++)
            element_store(half ? &element_f16 : &element_f32, words + a + b, (size_t)i,
                          x->c[first + lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2]);
    }
}

static const char *const names[EXPERIMENTS] = {"cancel", "cancel_c", "small_c", "no_cancel",
                                               "many",   "places",   "any",     "subnormal"};

/* A probe is one experiment. In the first CTA small terms start 4 (or 14) bits below the large ones, in the second 8
 * bits further down. */
static void add(probe_list *list, const wgmma_form *w, const mma_form *f) {
    static matrices x;
    const element_type *t = w ? w->a : f->a;
    const bool half = w ? w->half : strcmp(f->sum, "f16") == 0;
    const int k = w ? wgmma_k(w) : f->k, first = t->bits == 8 ? 4 : 14;
    for (int e = 0; e < EXPERIMENTS; e++) {
        probe *p = probe_add(list, "rounding/%s_k%d.%s.%s_%s", w ? "wgmma" : "mma", k, half ? "f16" : "f32", t->name,
                             names[e]);
        struct rng r = probe_random(p);
        const unsigned ctas = e >= PLACES ? 1 : 2;
        if (w)
            wgmma_kernel(p, w, ctas, true);
        else
            mma_kernel(p, f, ctas);
        for (unsigned cta = 0; cta < ctas; cta++) {
            fill(&x, (experiment)e, t, half, k, half ? 4 : first + 8 * (int)cta, &r);
            if (e == SUBNORMAL)
                fill_subnormal(&x, t, half, k, &r);
            if (w)
                place_wgmma(p, w, cta, &x);
            else
                place_mma(p, f, cta, &x);
        }
        p->keep = true;
    }
}

void probes_rounding(probe_list *list) {
    const element_type *const types[] = {&element_e4m3, &element_e5m2, &element_f16, &element_bf16};
    for (int i = 0; i < 4; i++)
        add(list, &(wgmma_form){.a = types[i], .b = types[i], .n = N}, NULL);
    add(list, &(wgmma_form){.a = types[0], .b = types[0], .half = true, .n = N}, NULL);
    add(list, &(wgmma_form){.a = types[2], .b = types[2], .half = true, .n = N}, NULL);
    add(list, NULL, &(mma_form){types[0], types[0], "f32", 32, ""});
    add(list, NULL, &(mma_form){types[1], types[1], "f32", 32, ""});
    add(list, NULL, &(mma_form){types[2], types[2], "f32", 16, ""});
    add(list, NULL, &(mma_form){types[2], types[2], "f16", 16, ""});
    add(list, NULL, &(mma_form){types[3], types[3], "f32", 16, ""});
    add(list, NULL, &(mma_form){&element_tf32, &element_tf32, "f32", 8, ""});
}
