/* SPDX-License-Identifier: MIT
 *
 * Element types of mma.sync and their products. A product of two elements has at most 22 significant bits, and 8 more
 * with scale factors, so that each is exact in binary64. */
#include "mma.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "exec_formats.h"
#include "tensor_sum.h"

/* ---- Types ---- */

static const struct {
    const char *format; /* NULL: an integer */
    int bits, shift;    /* of its place, and of the code in it */
    bool is_signed;
} types[MMA_TYPES] = {
    [MMA_F16] = {"f16", 16, 0, true},  [MMA_BF16] = {"bf16", 16, 0, true}, [MMA_TF32] = {"tf32", 32, 0, true},
    [MMA_E4M3] = {"e4m3", 8, 0, true}, [MMA_E5M2] = {"e5m2", 8, 0, true},  [MMA_E2M3] = {"e2m3", 8, 0, true},
    [MMA_E3M2] = {"e3m2", 8, 0, true}, [MMA_E2M1] = {"e2m1", 8, 2, true},  [MMA_E2M1_PACKED] = {"e2m1", 4, 0, true},
    [MMA_U8] = {NULL, 8, 0, false},    [MMA_S8] = {NULL, 8, 0, true},      [MMA_U4] = {NULL, 4, 0, false},
    [MMA_S4] = {NULL, 4, 0, true},
};

static double tables[MMA_TYPES][256]; /* of types of at most 8 bits */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    for (int t = 0; t < MMA_TYPES; t++) {
        for (int place = 0; types[t].bits <= 8 && place < 1 << types[t].bits; place++) {
            if (types[t].format) {
                const exec_format *format = exec_find_format(types[t].format);
                const unsigned mask = (1u << format->width) - 1;
                tables[t][place] = exec_decode(format, (unsigned)place >> types[t].shift & mask);
            } else {
                const int half = 1 << (types[t].bits - 1);
                tables[t][place] = types[t].is_signed && place >= half ? place - 2 * half : place;
            }
        }
    }
}

int mma_type_bits(mma_type type) {
    return types[type].bits;
}

/* The lower 13 bits of a tf32 are not used (PTX ISA, "Alternate Floating-Point Data Formats"). A NaN whose payload lies
 * there stays one. */
static double tf32(uint64_t bits) {
    return (double)exec_float((bits & 0x7fffffff) > 0x7f800000 ? EXEC_NAN_F32 : bits & 0xffffe000);
}

/* Inlined for each width. */
static inline __attribute__((always_inline)) void decode_codes(const double *table, unsigned width,
                                                               const uint64_t *lanes, double *out, size_t group,
                                                               size_t place, size_t step) {
    for (size_t lane = 0; lane < SIM_LANES; lane++) {
        double *to = out + lane / 4 * group + lane % 4 * place;
        for (unsigned i = 0; i < 32 / width; i++)
            to[i * step] = table[lanes[lane] >> width * i & ((1u << width) - 1)];
    }
}

void mma_decode(mma_type type, const uint64_t *lanes, double *out, size_t group, size_t place, size_t step) {
    pthread_once(&tables_once, fill_tables);
    if (types[type].bits == 8) {
        decode_codes(tables[type], 8, lanes, out, group, place, step);
        return;
    }
    if (types[type].bits == 4) {
        decode_codes(tables[type], 4, lanes, out, group, place, step);
        return;
    }
    for (size_t lane = 0; lane < SIM_LANES; lane++) {
        double *to = out + lane / 4 * group + lane % 4 * place;
        const uint64_t bits = lanes[lane];
        if (type == MMA_F16) {
            to[0] = exec_f16(bits & 0xffff);
            to[step] = exec_f16(bits >> 16 & 0xffff);
        } else if (type == MMA_BF16) {
            to[0] = exec_bf16(bits);
            to[step] = exec_bf16(bits >> 16);
        } else {
            to[0] = tf32(bits);
        }
    }
}

double mma_scale(bool ue4m3, uint8_t code) {
    if (ue4m3)
        return exec_decode(exec_find_format("e4m3"), code & 0x7f);
    return code == 0xff ? (double)NAN : ldexp(1, code - 127);
}

/* ---- Products ---- */

/* Columns of a row at once, which compilers turn into vector instructions. Always inlined into functions for different
 * processors. */
static inline __attribute__((always_inline)) void add_blocks(mma_product *p) {
    const int length = p->k / p->blocks;
    for (int block = 0; block < p->blocks; block++) {
        for (int m = 0; m < MMA_M; m++) {
            double sums[MMA_N] = {0};
            const double *a = &p->a[m][block * length];
            for (int k = 0; k < length; k++) {
                const double *b = p->b[block * length + k];
                for (int n = 0; n < MMA_N; n++)
                    sums[n] += a[k] * b[n];
            }
            if (p->scaled) {
                for (int n = 0; n < MMA_N; n++)
                    p->c[m][n] += sums[n] * (p->a_scale[block][m] * p->b_scale[block][n]);
            } else {
                for (int n = 0; n < MMA_N; n++)
                    p->c[m][n] += sums[n];
            }
        }
    }
}

static void add_blocks_anywhere(mma_product *p) {
    add_blocks(p);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void add_blocks_avx2(mma_product *p) {
    add_blocks(p);
}
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define add_blocks_avx2 add_blocks_anywhere
#define HAS_AVX2        0
#endif

/* ---- Products of a narrow unit ---- */

typedef struct exponents {
    int a[MMA_M][MMA_MAX_K], b[MMA_MAX_K][MMA_N];
} exponents;

static void find_exponents(const mma_product *p, bool as_f16, exponents *e) {
    const int a_smallest = exec_find_format(as_f16 ? "f16" : types[p->a_type].format)->min_exponent;
    const int b_smallest = exec_find_format(as_f16 ? "f16" : types[p->b_type].format)->min_exponent;
    for (int k = 0; k < p->k; k++) {
        for (int m = 0; m < MMA_M; m++)
            e->a[m][k] = tensor_exponent(p->a[m][k], a_smallest);
        for (int n = 0; n < MMA_N; n++)
            e->b[k][n] = tensor_exponent(p->b[k][n], b_smallest);
    }
}

/* c and the products of one row and column whose K % 4 are in the mask `places`. */
static double cut_sum(const mma_product *p, const exponents *e, int m, int n, unsigned places, double c, int bits) {
    const int length = p->k / p->blocks;
    tensor_term terms[MMA_MAX_K + 1] = {{c, tensor_exponent(c, p->half ? -14 : -126)}};
    size_t count = 1;
    for (int k = 0; k < p->k; k++) {
        if (!(places >> k % 4 & 1))
            continue;
        const double scale = p->scaled ? p->a_scale[k / length][m] * p->b_scale[k / length][n] : 1;
        terms[count++] = (tensor_term){p->a[m][k] * p->b[k][n] * scale,
                                       e->a[m][k] + e->b[k][n] + (p->scaled ? tensor_exponent(scale, -254) : 0)};
    }
    return tensor_sum(terms, count, bits);
}

/* A sum as the next step finds it. */
static double stored(const mma_product *p, double sum) {
    return p->half ? exec_f16(exec_f16_bits(sum)) : (double)exec_float(tensor_f32(sum, 23));
}

static void add_cut(mma_product *p) {
    const bool hopper = p->bits == TENSOR_HOPPER, two_steps = hopper && types[p->a_type].bits == 8;
    const int bits = hopper ? TENSOR_HOPPER_BITS : p->bits;
    exponents e;
    find_exponents(p, two_steps, &e);
    for (int m = 0; m < MMA_M; m++) {
        for (int n = 0; n < MMA_N; n++) {
            double *c = &p->c[m][n];
            if (two_steps) {
                const double first = stored(p, cut_sum(p, &e, m, n, 3, 0, bits));
                const double both = stored(p, cut_sum(p, &e, m, n, 12, first, bits));
                *c = p->half ? both + *c : (double)((float)both + (float)*c);
            } else {
                *c = cut_sum(p, &e, m, n, 15, *c, bits);
            }
        }
    }
}

void mma_multiply(mma_product *product) {
    if (product->bits)
        add_cut(product);
    else if (HAS_AVX2)
        add_blocks_avx2(product);
    else
        add_blocks_anywhere(product);
}
