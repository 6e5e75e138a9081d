/* SPDX-License-Identifier: MIT
 *
 * A small fast generator for test data: splitmix64 seeds and steps one 64-bit state. Not thread-safe; one per user. */
#ifndef ATTNS_TOOLS_COMMON_RNG_H_
#define ATTNS_TOOLS_COMMON_RNG_H_

#include <math.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline struct rng rng_make(uint64_t seed) {
    struct rng r = {seed};
    return r;
}

static inline uint64_t rng_next(struct rng *r) {
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [0, n); n > 0. The bias of the modulo is below 2^-32 for the n in use here. */
static inline int64_t rng_below(struct rng *r, int64_t n) {
    return (int64_t)(rng_next(r) % (uint64_t)n);
}

/* Uniform in [low, high]. */
static inline int64_t rng_range(struct rng *r, int64_t low, int64_t high) {
    return low + rng_below(r, high - low + 1);
}

/* Uniform in [0, 1). */
static inline double rng_uniform(struct rng *r) {
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Standard normal, Box and Muller. */
static inline double rng_normal(struct rng *r) {
    double u = 1.0 - rng_uniform(r), v = rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

#endif
