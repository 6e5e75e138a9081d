/* SPDX-License-Identifier: MIT
 * The arithmetic of tcgen05.mma.
 *
 * What hardware does between exact products and the accumulator is not specified. Here an instruction adds its K
 * products, scales included, in binary64 (the products are exact; so are sums of fp8 and narrower types without
 * scales), adds the accumulator, and rounds once to the accumulator's type; PTXSIM_TENSOR_BITS models a narrower unit.
 */
#include <string.h>

#include "exec_formats.h"
#include "tcgen05.h"
#include "tensor_sum.h"

/* ---- Sums ------------------------------------------------------------------------------------------------------ */

typedef double pack __attribute__((vector_size(64), aligned(8), may_alias));
enum { PACK = 8 };

/* out[n * m + i] = sum over k of a[k * m + i] b[n * k + ..], for `tile` columns at a time. Inlined into functions for
 * different instruction sets. */
static inline __attribute__((always_inline)) void multiply(const tcgen05_product *p, const double *a, const double *b,
                                                           double *out, const int tile) {
    const size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k;
    for (size_t column = 0; column < n; column += (size_t)tile) {
        for (size_t row = 0; row < m; row += PACK) {
            pack sums[8] = {{0}};
            for (size_t i = 0; i < k; i++) {
                const pack x = *(const pack *)(a + i * m + row);
                for (int c = 0; c < tile; c++)
                    sums[c] += x * b[(column + (size_t)c) * k + i];
            }
            for (int c = 0; c < tile; c++)
                memcpy(out + (column + (size_t)c) * m + row, &sums[c], sizeof(sums[c]));
        }
    }
}

static void multiply_plain(const tcgen05_product *p, const double *a, const double *b, double *out) {
    multiply(p, a, b, out, 2);
}

#if defined(__x86_64__)
/* Products are exact, so that fusing them with additions changes nothing. */
__attribute__((target("avx2,fma"))) static void multiply_avx2(const tcgen05_product *p, const double *a,
                                                              const double *b, double *out) {
    multiply(p, a, b, out, 4);
}

__attribute__((target("avx512f"))) static void multiply_avx512(const tcgen05_product *p, const double *a,
                                                               const double *b, double *out) {
    multiply(p, a, b, out, 8);
}
#endif

static void sum_products(const tcgen05_product *p, const double *a, const double *b, double *out) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        multiply_avx512(p, a, b, out);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        multiply_avx2(p, a, b, out);
        return;
    }
#endif
    multiply_plain(p, a, b, out);
}

/* What a cell adds to the sum; halves lie in the lower part of a cell. */
static inline double accumulator(const tcgen05_product *p, uint32_t cell) {
    if (!p->accumulate)
        return 0;
    if (p->d == TCGEN05_D_F32)
        return p->scale_factor * (double)exec_float(cell);
    return p->d == TCGEN05_D_F16 ? p->scale_factor * exec_f16(cell & 0xffff) : (double)(int32_t)cell;
}

/* With PTXSIM_TENSOR_BITS: terms are cut (tensor_sum.h), the accumulator's among them, so that it is added here. */
static void sum_cut(const tcgen05_product *p, const tmem *t, const double *a, const double *b, double *out) {
    const int bits = p->base.base.warp->cta->launch->tensor_bits;
    for (int n = 0; n < p->n; n++) {
        for (int m = 0; m < p->m; m++) {
            tensor_term terms[TCGEN05_MAX_K + 1];
            for (int k = 0; k < p->k; k++) {
                const double x = a[k * p->m + m], y = b[n * p->k + k];
                terms[k] = (tensor_term){x * y, tensor_exponent(x, -1000) + tensor_exponent(y, -1000)};
            }
            const double sum = accumulator(p, t->cells[tcgen05_column(p, n)][tcgen05_lane(p, m) + tcgen05_below(p, n)]);
            terms[p->k] = (tensor_term){sum, tensor_exponent(sum, -1000)};
            out[n * p->m + m] = tensor_sum(terms, (size_t)p->k + 1, bits);
        }
    }
}

/* ---- The accumulator ------------------------------------------------------------------------------------------- */

static uint32_t wrap(double sum, bool saturate) {
    if (saturate)
        return (uint32_t)(int32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
    return (uint32_t)(int64_t)sum;
}

/* One column in lanes that are those of neighbouring rows. */
static void set_lanes(const tcgen05_product *p, const double *sums, uint32_t *cells, int count) {
    const bool cut = p->base.base.warp->cta->launch->tensor_bits != 0;
    for (int i = 0; i < count && cut && p->d != TCGEN05_D_S32; i++)
        cells[i] = p->d == TCGEN05_D_F16 ? (uint32_t)exec_f16_bits(sums[i]) : tensor_f32(sums[i], 23);
    if (cut && p->d != TCGEN05_D_S32)
        return;
    if (p->d == TCGEN05_D_F32) { /* the usual case, in a loop of its own */
        const double factor = p->accumulate ? p->scale_factor : 0;
        for (int i = 0; i < count; i++) {
            const double old = p->accumulate ? factor * (double)exec_float(cells[i]) : 0;
            cells[i] = (uint32_t)exec_float_bits((float)(sums[i] + old));
        }
        return;
    }
    for (int i = 0; i < count; i++) {
        const double sum = sums[i] + accumulator(p, cells[i]);
        cells[i] = p->d == TCGEN05_D_F16 ? (uint32_t)exec_f16_bits(sum) : wrap(sum, p->saturate);
    }
}

/* Lanes (bits) of a quarter whose rows are `bad`. */
static void lanes_of_rows(const tcgen05_product *p, const bool *bad, uint32_t lanes[TMEM_LANES / 32]) {
    memset(lanes, 0, TMEM_LANES / 32 * sizeof(*lanes));
    for (int m = 0; m < p->m; m++) {
        if (bad == NULL || bad[m])
            lanes[tcgen05_lane(p, m) / 32] |= UINT32_C(1) << tcgen05_lane(p, m) % 32;
    }
}

static void add_column(const tcgen05_product *p, tmem *t, int n, const double *sums, const uint32_t *all,
                       const uint32_t *undefined) {
    const uint32_t column = tcgen05_column(p, n), below = tcgen05_below(p, n);
    uint32_t kept[TMEM_LANES];
    memcpy(kept, t->cells[column], sizeof(kept));
    for (int m = 0; m < p->m; m += 16)
        set_lanes(p, sums + m, &t->cells[column][tcgen05_lane(p, m) + below], 16);
    for (int quarter = 0; quarter < TMEM_LANES / 32 - (int)below / 32; quarter++) {
        const uint32_t lanes = all[quarter] & ~p->disabled[quarter];
        uint32_t *written = &t->written[column][quarter + (int)below / 32];
        const uint32_t defined = p->b_undefined[n] ? 0 : ~undefined[quarter] & (p->accumulate ? *written : UINT32_MAX);
        *written = (*written & ~lanes) | (defined & lanes);
        for (uint32_t rest = all[quarter] & p->disabled[quarter]; rest != 0; rest &= rest - 1) {
            const int lane = 32 * quarter + __builtin_ctz(rest);
            t->cells[column][lane] = kept[lane];
        }
    }
}

bool tcgen05_compute(tcgen05_product *p) {
    static _Thread_local double a[TCGEN05_MAX_K * TCGEN05_MAX_M], b[TCGEN05_MAX_K * TCGEN05_MAX_N];
    static _Thread_local double sums[TCGEN05_MAX_M * TCGEN05_MAX_N];
    uint32_t all[TMEM_LANES / 32], undefined[TMEM_LANES / 32];
    if (!tcgen05_convert_operands(p, a, b))
        return false;
    lanes_of_rows(p, NULL, all);
    lanes_of_rows(p, p->a_undefined, undefined);
    tmem *t = tmem_if_any(p->base.base.warp->cta);
    if (p->base.base.warp->cta->launch->tensor_bits != 0 && p->d != TCGEN05_D_S32)
        sum_cut(p, t, a, b, sums);
    else
        sum_products(p, a, b, sums);
    for (int n = 0; n < p->n; n++)
        add_column(p, t, n, sums + n * p->m, all, undefined);
    return true;
}
