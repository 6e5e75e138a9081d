/* SPDX-License-Identifier: MIT
 *
 * Shuffles, votes, matches, reductions against models in C, on random values, whole warps and random parts of them. */
#include <math.h>
#include <time.h>

#include "run_ptx.h"

static uint64_t base_seed;

enum { THREADS = 64, ROUNDS = 40 };

/* Four words of input a thread: word k of thread t is in[k * THREADS + t]. */
#define LOAD                                                                                                           \
    "ld.global.u32 %r10, [%my_in];\nld.global.u32 %r11, [%my_in+256];\nld.global.u32 %r12, [%my_in+512];\n"            \
    "ld.global.u32 %r13, [%my_in+768];\n"
/* Lanes whose mask (%r13) does not name them leave; the others follow. */
#define ENTER LOAD "mov.u32 %r2, %lanemask_eq;\nand.b32 %r3, %r2, %r13;\nsetp.eq.u32 %p9, %r3, 0;\n@%p9 ret;\n"
#define STORE "st.global.u32 [%my_out], %r20;\nst.global.u32 [%my_out+256], %r21;\nret;\n"

typedef struct words {
    uint32_t in[4 * THREADS], out[2 * THREADS];
} words;

static void run_words(const char *body, words *w, uint64_t seed) {
    memset(w->out, 0xee, sizeof(w->out));
    ptx_run run = {.grid = {1, 1, 1},
                   .target = "sm_100a", /* redux of f32 */
                   .block = {THREADS, 1, 1},
                   .seed = seed,
                   .in = w->in,
                   .in_words = 4 * THREADS,
                   .out = w->out,
                   .out_words = 2 * THREADS};
    RUN_OK(body, &run);
}

/* Random values of few kinds, so that matches happen; per warp one mask, never empty. */
static void fill(words *w, uint64_t *random, unsigned kinds) {
    for (int i = 0; i < 3 * THREADS; i++)
        w->in[i] = kinds ? test_random(random) % kinds : test_random(random);
    for (int warp = 0; warp < THREADS / 32; warp++) {
        uint32_t mask =
            test_random(random) % 3 == 0 ? UINT32_MAX : test_random(random) | 1u << test_random(random) % 32;
        for (int lane = 0; lane < 32; lane++)
            w->in[3 * THREADS + warp * 32 + lane] = mask;
    }
}

/* ---- Shuffles ---- */

/* The rules as the ISA states them: segments by the mask in c, the bound in its low bits. */
static uint32_t shuffle(const char *mode, const uint32_t *values, uint32_t lane, uint32_t b, uint32_t c,
                        uint32_t *valid) {
    uint32_t segment = c >> 8 & 31, clamp = c & 31, max_lane = (lane & segment) | (clamp & ~segment & 31);
    uint32_t min_lane = lane & segment;
    int64_t j;
    b &= 31;
    if (strcmp(mode, "up") == 0) {
        j = (int64_t)lane - b;
        *valid = j >= (int64_t)max_lane;
    } else if (strcmp(mode, "down") == 0) {
        j = (int64_t)lane + b;
        *valid = j <= (int64_t)max_lane;
    } else if (strcmp(mode, "bfly") == 0) {
        j = lane ^ b;
        *valid = j <= (int64_t)max_lane;
    } else {
        j = min_lane | (b & ~segment & 31);
        *valid = j <= (int64_t)max_lane;
    }
    return values[*valid ? j : (int64_t)lane];
}

static void test_shuffles(void **state) {
    (void)state;
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    uint64_t random = base_seed;
    for (int round = 0; round < ROUNDS; round++)
        for (int m = 0; m < 4; m++) {
            char body[1024];
            words w;
            fill(&w, &random, 0);
            for (int t = 0; t < THREADS; t++) {
                static const uint32_t segments[] = {0, 16, 24, 28, 30, 31};
                uint32_t segment = segments[test_random(&random) % 6];
                /* The bound is 0 for up and 31 for the others in all code there is; others are legal. */
                uint32_t clamp = round % 2 ? test_random(&random) % 32 : m == 0 ? 0 : 31;
                w.in[2 * THREADS + t] = segment << 8 | clamp;
            }
            snprintf(body, sizeof(body),
                     "%sshfl.sync.%s.b32 %%r20|%%p1, %%r10, %%r11, %%r12, -1;\nselp.u32 %%r21, 1, 0, %%p1;\n%s", LOAD,
                     modes[m], STORE);
            run_words(body, &w, random);
            for (uint32_t t = 0; t < THREADS; t++) {
                uint32_t valid = 2, value = shuffle(modes[m], w.in + t / 32 * 32, t % 32, w.in[THREADS + t],
                                                    w.in[2 * THREADS + t], &valid);
                assert_int_equal(w.out[t], value);
                assert_int_equal(w.out[THREADS + t], valid);
            }
        }
}

/* Halves of a warp at the same instruction with masks of their own. */
static void test_masks_apart(void **state) {
    (void)state;
    uint64_t random = base_seed;
    words w;
    for (int round = 0; round < ROUNDS; round++) {
        fill(&w, &random, 0);
        for (int t = 0; t < THREADS; t++)
            w.in[3 * THREADS + t] = t % 32 < 12 ? 0xfff : ~UINT32_C(0xfff);
        run_words(ENTER "and.b32 %r4, %tid, 1;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra JOIN;\nadd.s32 %r10, %r10, 1;\n"
                        "JOIN:\nredux.sync.add.u32 %r20, %r10, %r13;\nmov.u32 %r21, 0;\n" STORE,
                  &w, random);
        for (int t = 0; t < THREADS; t++) {
            uint32_t sum = 0;
            for (int u = t / 32 * 32; u < t / 32 * 32 + 32; u++)
                if ((u % 32 < 12) == (t % 32 < 12))
                    sum += w.in[u] + (uint32_t)(u % 2);
            assert_int_equal(w.out[t], sum);
        }
    }
}

/* What a lane that takes no part would give is undefined: storing it is reported. */
static void test_shuffle_from_absent_lane(void **state) {
    (void)state;
    uint32_t out[32];
    ptx_run run = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .seed = base_seed, .out = out, .out_words = 32};
    RUN_FAULT("setp.ge.u32 %p1, %tid, 16;\n@%p1 ret;\nshfl.sync.bfly.b32 %r10, %tid, 16, 31, -1;\n"
              "st.global.u32 [%my_out], %r10;\nret;\n",
              &run, "undefined");
    RUN_OK("setp.ge.u32 %p1, %tid, 16;\n@%p1 ret;\nshfl.sync.bfly.b32 %r10, %tid, 16, 31, -1;\n"
           "shfl.sync.bfly.b32 %r10, %tid, 8, 31, -1;\nst.global.u32 [%my_out], %r10;\nret;\n",
           &run);
    for (uint32_t t = 0; t < 16; t++)
        assert_int_equal(out[t], t ^ 8);
}

/* ---- The rest: result of a lane from the values of its mask's lanes ---- */

typedef struct group {
    uint32_t values[32], seconds[32], mask;
    uint32_t lane;
} group;

static void check(const char *instructions, unsigned kinds, uint32_t (*model)(const group *g, uint32_t *second)) {
    uint64_t random = base_seed;
    char body[2048];
    snprintf(body, sizeof(body), "%s%s%s", ENTER, instructions, STORE);
    for (int round = 0; round < ROUNDS; round++) {
        words w;
        fill(&w, &random, kinds && round % 4 == 0 ? 1 : kinds);
        run_words(body, &w, random);
        for (uint32_t t = 0; t < THREADS; t++) {
            group g = {.mask = w.in[3 * THREADS + t], .lane = t % 32};
            memcpy(g.values, w.in + t / 32 * 32, sizeof(g.values));
            memcpy(g.seconds, w.in + THREADS + t / 32 * 32, sizeof(g.seconds));
            uint32_t second = 0, first = model(&g, &second);
            bool named = g.mask >> g.lane & 1;
            assert_int_equal(w.out[t], named ? first : 0xeeeeeeee);
            assert_int_equal(w.out[THREADS + t], named ? second : 0xeeeeeeee);
        }
    }
}

#define EACH(i)                                                                                                        \
    for (uint32_t i = 0; i < 32; i++)                                                                                  \
        if (g->mask >> i & 1)

static uint32_t model_ballot(const group *g, uint32_t *second) {
    uint32_t yes = 0;
    EACH(i) yes |= (uint32_t)(g->values[i] != 0) << i;
    *second = (yes == g->mask) | (yes != 0) << 1 | (yes == g->mask || yes == 0) << 2 | (yes != g->mask) << 3;
    return yes;
}

static void test_votes(void **state) {
    (void)state;
    static const char votes[] =
        "setp.ne.u32 %p1, %r10, 0;\nvote.sync.ballot.b32 %r20, %p1, %r13;\nvote.sync.all.pred %p2, %p1, %r13;\n"
        "vote.sync.any.pred %p3, %p1, %r13;\nvote.sync.uni.pred %p4, %p1, %r13;\n"
        "vote.sync.any.pred %p5, !%p1, %r13;\nselp.u32 %r21, 1, 0, %p2;\nselp.u32 %r22, 2, 0, %p3;\n"
        "selp.u32 %r23, 4, 0, %p4;\nselp.u32 %r24, 8, 0, %p5;\nor.b32 %r21, %r21, %r22;\nor.b32 %r21, %r21, %r23;\n"
        "or.b32 %r21, %r21, %r24;\n";
    check(votes, 2, model_ballot);
    check(votes, 40, model_ballot);
}

static uint32_t model_match(const group *g, uint32_t *second) {
    uint32_t same = 0;
    bool all = true;
    EACH(i) {
        same |= (uint32_t)(g->values[i] == g->values[g->lane]) << i;
        all &= g->values[i] == g->values[g->lane];
    }
    *second = all ? g->mask : 0;
    return same;
}

static uint32_t model_match64(const group *g, uint32_t *second) {
    uint32_t same = 0;
    EACH(i) same |= (uint32_t)(g->values[i] == g->values[g->lane] && g->seconds[i] == g->seconds[g->lane]) << i;
    *second = same == g->mask;
    return same;
}

static void test_matches(void **state) {
    (void)state;
    check("match.any.sync.b32 %r20, %r10, %r13;\nmatch.all.sync.b32 %r21, %r10, %r13;\n", 3, model_match);
    check("mov.b64 %rd1, {%r10, %r11};\nmatch.any.sync.b64 %r20, %rd1, %r13;\n"
          "match.all.sync.b64 %r22|%p1, %rd1, %r13;\nselp.u32 %r21, 1, 0, %p1;\n",
          2, model_match64);
}

static uint32_t model_elect(const group *g, uint32_t *second) {
    uint32_t first = (uint32_t)__builtin_ctz(g->mask);
    *second = first == g->lane;
    return first;
}

static void test_elect(void **state) {
    (void)state;
    check("elect.sync %r20|%p1, %r13;\nselp.u32 %r21, 1, 0, %p1;\n", 0, model_elect);
}

static uint32_t model_active(const group *g, uint32_t *second) {
    *second = 0;
    return g->mask;
}

/* After the member mask has brought the lanes together they stay together in straight code. */
static void test_activemask(void **state) {
    (void)state;
    check("bar.warp.sync %r13;\nactivemask.b32 %r20;\nmov.u32 %r21, 0;\n", 0, model_active);
}

static uint32_t model_sum_xor(const group *g, uint32_t *second) {
    uint32_t sum = 0;
    *second = 0;
    EACH(i) {
        sum += g->values[i];
        *second ^= g->values[i];
    }
    return sum;
}

static uint32_t model_and_or(const group *g, uint32_t *second) {
    uint32_t all = UINT32_MAX;
    *second = 0;
    EACH(i) {
        all &= g->values[i];
        *second |= g->values[i];
    }
    return all;
}

static uint32_t model_unsigned(const group *g, uint32_t *second) {
    uint32_t least = UINT32_MAX;
    *second = 0;
    EACH(i) {
        least = g->values[i] < least ? g->values[i] : least;
        *second = g->values[i] > *second ? g->values[i] : *second;
    }
    return least;
}

static uint32_t model_signed(const group *g, uint32_t *second) {
    int32_t least = INT32_MAX, most = INT32_MIN;
    EACH(i) {
        int32_t v = (int32_t)g->values[i];
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    *second = (uint32_t)most;
    return (uint32_t)least;
}

/* Numbers before NaNs; -0 before +0. */
static uint32_t model_real(const group *g, uint32_t *second) {
    uint32_t least = 0x7fffffff, most = 0x7fffffff;
    bool any = false;
    EACH(i) {
        float v, l, m;
        memcpy(&v, &g->values[i], 4);
        memcpy(&l, &least, 4);
        memcpy(&m, &most, 4);
        if (isnan(v))
            continue;
        if (!any || v < l || (v == l && signbit(v)))
            least = g->values[i];
        if (!any || v > m || (v == m && !signbit(v)))
            most = g->values[i];
        any = true;
    }
    *second = most;
    return least;
}

static uint32_t model_real_nan(const group *g, uint32_t *second) {
    group absolute = *g;
    bool nan = false;
    for (int i = 0; i < 32; i++)
        absolute.values[i] &= INT32_MAX;
    EACH(i) nan |= (g->values[i] & INT32_MAX) > 0x7f800000;
    uint32_t most, least = model_real(&absolute, &most);
    *second = nan ? 0x7fffffff : most;
    return nan ? 0x7fffffff : least;
}

static void test_reductions(void **state) {
    (void)state;
    check("redux.sync.add.s32 %r20, %r10, %r13;\nredux.sync.xor.b32 %r21, %r10, %r13;\n", 0, model_sum_xor);
    check("redux.sync.and.b32 %r20, %r10, %r13;\nredux.sync.or.b32 %r21, %r10, %r13;\n", 16, model_and_or);
    check("redux.sync.min.u32 %r20, %r10, %r13;\nredux.sync.max.u32 %r21, %r10, %r13;\n", 0, model_unsigned);
    check("redux.sync.min.s32 %r20, %r10, %r13;\nredux.sync.max.s32 %r21, %r10, %r13;\n", 0, model_signed);
    check("redux.sync.min.f32 %r20, %r10, %r13;\nredux.sync.max.f32 %r21, %r10, %r13;\n", 0, model_real);
    check("redux.sync.min.abs.NaN.f32 %r20, %r10, %r13;\nredux.sync.max.abs.NaN.f32 %r21, %r10, %r13;\n", 0,
          model_real_nan);
}

int main(void) {
    base_seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_masks_apart),
        cmocka_unit_test(test_shuffle_from_absent_lane),
        cmocka_unit_test(test_votes),
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_elect),
        cmocka_unit_test(test_activemask),
        cmocka_unit_test(test_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
