/* SPDX-License-Identifier: MIT
 *
 * The schedule on the host, against a list of all tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <attn_scores/attn_scores.h>

#define INVALID      ATTNS_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED  ATTNS_ERROR_UNSUPPORTED
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t random_state;

static uint32_t next_random(void) {
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* One call: tensors whose shape and strides can be edited, and the buffers behind them. */
typedef struct schedule_call {
    int64_t lens_shape[2], lens_stride[2], meta_shape[2], meta_stride[2];
    DLTensor lens, meta;
    attns_schedule_params params;
} schedule_call;

static void make_call(schedule_call *c, const int32_t *lens, int64_t batch, int32_t *meta, int64_t num_sms) {
    *c = (schedule_call){
        .lens_shape = {batch, 1},
        .lens_stride = {1, 1},
        .meta_shape = {num_sms + 1, 2},
        .meta_stride = {2, 1},
        .lens = {.data = (void *)(uintptr_t)lens, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}},
        .meta = {.data = meta, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}},
    };
    c->lens.shape = c->lens_shape;
    c->lens.strides = c->lens_stride;
    c->meta.shape = c->meta_shape;
    c->meta.strides = c->meta_stride;
    c->params = (attns_schedule_params){.seq_lens = &c->lens, .schedule_meta = &c->meta};
}

static attns_status run(const schedule_call *c) {
    return attns_compute_paged_mqa_logits_schedule(NULL, &c->params, NULL);
}

/* ---- The model: every tile in a list --------------------------------------------------------------------------- */

typedef struct tile {
    int32_t request, index;
} tile;

static int64_t tiles_of(int32_t len) {
    int64_t tiles = 0;
    for (int64_t covered = 0; covered < len; covered += 64)
        tiles++;
    return tiles;
}

/* Walks from each row of meta to the next one through the list: every tile must be met once, in order, and the shares
 * may differ by one tile at most. Then compares the rows with floor(T * i / num_sms). */
static void check_against_list(const int32_t *lens, int64_t batch, const int32_t *meta, int64_t num_sms) {
    int64_t total = 0;
    for (int64_t b = 0; b < batch; b++)
        total += tiles_of(lens[b]);
    tile *const list = malloc((size_t)(total + 1) * sizeof *list);
    assert_non_null(list);
    int64_t filled = 0;
    for (int64_t b = 0; b < batch; b++)
        for (int32_t index = 0; index < tiles_of(lens[b]); index++)
            list[filled++] = (tile){(int32_t)b, index};
    list[total] = (tile){(int32_t)batch, 0};

    int64_t at = 0, smallest = INT64_MAX, largest = 0;
    assert_int_equal(meta[0], list[0].request);
    assert_int_equal(meta[1], list[0].index);
    for (int64_t share = 0; share < num_sms; share++) {
        const tile end = {meta[2 * share + 2], meta[2 * share + 3]};
        int64_t taken = 0;
        while (list[at].request != end.request || list[at].index != end.index) {
            if (at == total)
                fail_msg("share %d ends at {%d, %d}, which is no tile after its start", (int)share, end.request,
                         end.index);
            at++;
            taken++;
        }
        assert_true(at == total * (share + 1) / num_sms);
        smallest = taken < smallest ? taken : smallest;
        largest = taken > largest ? taken : largest;
    }
    assert_true(at == total);
    assert_true(largest - smallest <= 1);
    free(list);
}

static void check_lens(const int32_t *lens, int64_t batch, int64_t num_sms) {
    int32_t *const meta = malloc((size_t)(num_sms + 3) * 2 * sizeof *meta);
    assert_non_null(meta);
    memset(meta, 0xa5, (size_t)(num_sms + 3) * 2 * sizeof *meta);
    schedule_call c;
    make_call(&c, lens, batch, meta + 2, num_sms);
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(lens, batch, meta + 2, num_sms);
    const int32_t guard = (int32_t)0xa5a5a5a5u;
    assert_int_equal(meta[0], guard);
    assert_int_equal(meta[1], guard);
    assert_int_equal(meta[2 * num_sms + 4], guard);
    assert_int_equal(meta[2 * num_sms + 5], guard);
    free(meta);
}

/* ---- Batches --------------------------------------------------------------------------------------------------- */

static const int batches[] = {1, 8, 31, 32, 33, 64, 250, 256, 2048};
static const int sm_counts[] = {1, 2, 7, 114, 132, 148, 1000};
enum { MAX_BATCH = 2048 };

static void test_zero_lengths(void **state) {
    (void)state;
    static int32_t lens[MAX_BATCH];
    for (size_t b = 0; b < COUNT(batches); b++)
        for (size_t s = 0; s < COUNT(sm_counts); s++)
            check_lens(lens, batches[b], sm_counts[s]);
}

static void test_half_zeros(void **state) {
    (void)state;
    static int32_t lens[MAX_BATCH];
    for (size_t b = 0; b < COUNT(batches); b++)
        for (size_t s = 0; s < COUNT(sm_counts); s++) {
            for (int i = 0; i < batches[b]; i++) /* every other one; the first half; the second half */
                lens[i] = (s % 3 == 0 ? i % 2 : s % 3 == 1 ? i >= batches[b] / 2 : i < batches[b] / 2) ? 1000 : 0;
            check_lens(lens, batches[b], sm_counts[s]);
        }
}

static void test_random_lengths(void **state) {
    (void)state;
    static int32_t lens[MAX_BATCH];
    for (int round = 0; round < 200; round++) {
        const int64_t batch = 1 + next_random() % 300;
        const int64_t num_sms = 1 + next_random() % 200;
        const uint32_t longest = 1u << next_random() % 15;
        for (int64_t b = 0; b < batch; b++) {
            lens[b] = (int32_t)(next_random() % longest);
            if (next_random() % 8 == 0)
                lens[b] = next_random() % 2 ? -(int32_t)(next_random() % 1000) : 64 * (int32_t)(next_random() % 20);
        }
        check_lens(lens, batch, num_sms);
    }
}

static void test_tile_boundaries(void **state) {
    (void)state;
    static const int32_t lens[] = {1, 63, 64, 65, 127, 128, 129, 0, -1, INT32_MIN, 192};
    for (int64_t num_sms = 1; num_sms < 40; num_sms++)
        check_lens(lens, COUNT(lens), num_sms);
}

static void test_literal(void **state) {
    (void)state;
    static const int32_t lens[] = {130, 0, 64, 65}; /* 3, 0, 1, 2 tiles */
    static const int32_t four[] = {0, 0, 0, 1, 2, 0, 3, 0, 4, 0};
    static const int32_t nine[] = {0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 2, 0, 3, 0, 3, 0, 3, 1, 4, 0};
    int32_t meta[20];
    schedule_call c;
    make_call(&c, lens, 4, meta, 4);
    assert_int_equal(run(&c), ATTNS_OK);
    assert_memory_equal(meta, four, sizeof four);
    make_call(&c, lens, 4, meta, 9);
    assert_int_equal(run(&c), ATTNS_OK);
    assert_memory_equal(meta, nine, sizeof nine);
}

static void test_empty_batch(void **state) {
    (void)state;
    int32_t meta[8];
    memset(meta, 0xa5, sizeof meta);
    schedule_call c;
    make_call(&c, NULL, 0, meta, 3);
    assert_int_equal(run(&c), ATTNS_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(meta[i], 0);
}

/* 2^25 tiles in each of 4096 requests, cut into a million shares: T * i needs 57 bits, and every row is known. */
static void test_large_totals(void **state) {
    (void)state;
    enum { LARGE_BATCH = 4096, SHARES = 1 << 20 };
    int32_t *const lens = malloc(LARGE_BATCH * sizeof *lens);
    int32_t *const meta = malloc((SHARES + 1) * 2 * sizeof *meta);
    assert_non_null(lens);
    assert_non_null(meta);
    for (int b = 0; b < LARGE_BATCH; b++)
        lens[b] = INT32_MAX;
    schedule_call c;
    make_call(&c, lens, LARGE_BATCH, meta, SHARES);
    assert_int_equal(run(&c), ATTNS_OK);
    for (int share = 0; share <= SHARES; share++) { /* 2^37 tiles, 2^17 per share, 2^8 shares per request */
        assert_int_equal(meta[2 * share], share >> 8);
        assert_int_equal(meta[2 * share + 1], (share & 255) << 17);
    }

    /* A count that does not divide: the exact quotient in 128 bits. */
    make_call(&c, lens, LARGE_BATCH - 1, meta, SHARES - 3);
    assert_int_equal(run(&c), ATTNS_OK);
    const uint64_t total = (UINT64_C(1) << 25) * (LARGE_BATCH - 1);
    for (uint64_t share = 0; share <= SHARES - 3; share++) {
        __extension__ const unsigned __int128 product = (unsigned __int128)total * share;
        const uint64_t target = (uint64_t)(product / (SHARES - 3));
        assert_int_equal(meta[2 * share], target >> 25);
        assert_int_equal(meta[2 * share + 1], target & ((1 << 25) - 1));
    }
    free(lens);
    free(meta);
}

/* The product T * i passes 64 bits here: 2^46 tiles in 2^21 requests and 2^20 shares, the lengths broadcast. */
static void test_product_beyond_64_bits(void **state) {
    (void)state;
    enum { SHARES = 1 << 20 };
    static const int32_t len = INT32_MAX;
    int32_t *const meta = malloc((SHARES + 1) * 2 * sizeof *meta);
    assert_non_null(meta);
    schedule_call c;
    make_call(&c, &len, 1 << 21, meta, SHARES);
    c.lens_stride[0] = 0;
    assert_int_equal(run(&c), ATTNS_OK);
    for (int share = 0; share <= SHARES; share++) {
        assert_int_equal(meta[2 * share], share * 2);
        assert_int_equal(meta[2 * share + 1], 0);
    }
    free(meta);
}

/* ---- Layouts of seq_lens ---------------------------------------------------------------------------------------- */

/* [B, 4] as a slice of [B, 8]: the longest slot counts, and the other columns do not. */
static void test_slice(void **state) {
    (void)state;
    enum { B = 57, SLOTS = 4, ROW = 8, SMS = 13 };
    int32_t wide[B][ROW], longest[B], meta[(SMS + 1) * 2];
    for (int b = 0; b < B; b++) {
        longest[b] = 0;
        for (int i = 0; i < ROW; i++) {
            wide[b][i] = (int32_t)(next_random() % 5000) - 500;
            if (i >= 2 && i < 2 + SLOTS && wide[b][i] > longest[b])
                longest[b] = wide[b][i];
        }
    }
    schedule_call c;
    make_call(&c, &wide[0][2], B, meta, SMS);
    c.lens.ndim = 2;
    c.lens_shape[1] = SLOTS;
    c.lens_stride[0] = ROW;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(longest, B, meta, SMS);
    c.params.next_n = SLOTS;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(longest, B, meta, SMS);
}

/* One column of a wider array, slots far apart, and one length for all. */
static void test_strides(void **state) {
    (void)state;
    enum { B = 40, SLOTS = 3, SMS = 11 };
    int32_t lens[SLOTS][B], longest[B], meta[(SMS + 1) * 2];
    for (int b = 0; b < B; b++) {
        longest[b] = 0;
        for (int t = 0; t < SLOTS; t++) {
            lens[t][b] = (int32_t)(next_random() % 3000);
            longest[b] = lens[t][b] > longest[b] ? lens[t][b] : longest[b];
        }
    }
    schedule_call c;
    make_call(&c, lens[0], B, meta, SMS);
    c.lens.ndim = 2;
    c.lens_shape[1] = SLOTS;
    c.lens_stride[1] = B;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(longest, B, meta, SMS);

    int32_t every_second[B / 2];
    for (int b = 0; b < B / 2; b++)
        every_second[b] = lens[0][2 * b];
    make_call(&c, lens[0], B / 2, meta, SMS);
    c.lens_stride[0] = 2;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(every_second, B / 2, meta, SMS);

    int32_t same[B];
    for (int b = 0; b < B; b++)
        same[b] = lens[0][5];
    make_call(&c, &lens[0][5], B, meta, SMS);
    c.lens_stride[0] = 0;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(same, B, meta, SMS);

    make_call(&c, lens[0], B, meta, SMS); /* [B, 1] is the same as [B] */
    c.lens.ndim = 2;
    assert_int_equal(run(&c), ATTNS_OK);
    check_against_list(lens[0], B, meta, SMS);
}

/* ---- Wrong input ------------------------------------------------------------------------------------------------ */

static void check_failure(attns_status given, attns_status expected, const char *message, const int32_t *meta) {
    if (given != expected || strcmp(attns_last_error(), message) != 0)
        fail_msg("status %d, message \"%s\" instead of \"%s\"", (int)given, attns_last_error(), message);
    for (int i = 0; i < 8; i++)
        assert_int_equal(meta[i], -77);
}

static void test_wrong_input(void **state) {
    (void)state;
    static const int32_t lens[8] = {100, 200, 300, 400};
    int32_t meta[8];
    for (int i = 0; i < 8; i++)
        meta[i] = -77;
    check_failure(attns_compute_paged_mqa_logits_schedule(NULL, NULL, NULL), INVALID,
                  "params: is NULL, accepted: a params struct", meta);
    schedule_call c;
#define CHECK_WRONG(edit, status, message)                                                                             \
    do {                                                                                                               \
        make_call(&c, lens, 4, meta, 3);                                                                               \
        edit;                                                                                                          \
        check_failure(run(&c), status, message, meta);                                                                 \
    } while (0)
    CHECK_WRONG(c.params.seq_lens = NULL, INVALID, "seq_lens: is NULL, accepted: a tensor");
    CHECK_WRONG(c.params.schedule_meta = NULL, INVALID, "schedule_meta: is NULL, accepted: a tensor");
    CHECK_WRONG(c.lens.data = NULL, INVALID, "seq_lens: data is NULL, accepted: the address of the elements");
    CHECK_WRONG(c.meta.data = NULL, INVALID, "schedule_meta: data is NULL, accepted: the address of the elements");
    CHECK_WRONG(c.lens.ndim = 3, INVALID, "seq_lens: rank is 3, accepted: 1 to 2");
    CHECK_WRONG(c.meta.ndim = 1, INVALID, "schedule_meta: rank is 1, accepted: 2");
    CHECK_WRONG(c.lens.dtype.bits = 64, INVALID, "seq_lens: dtype is int64, accepted: int32");
    CHECK_WRONG(c.meta.dtype.code = kDLFloat, INVALID, "schedule_meta: dtype is float32, accepted: int32");
    CHECK_WRONG(c.meta_shape[0] = 1, INVALID, "schedule_meta: shape[0] is 1, accepted: 2 to 2147483647 (num_sms+1)");
    CHECK_WRONG(c.meta_shape[1] = 3, INVALID, "schedule_meta: shape[1] is 3, accepted: 2 (a request and a tile)");
    CHECK_WRONG(c.meta_stride[0] = 3, INVALID, "schedule_meta: stride[0] is 3, accepted: 2 (dense)");
    CHECK_WRONG(c.lens_stride[0] = -1, INVALID, "seq_lens: stride[0] is -1, accepted: 0 or more");
    CHECK_WRONG((c.lens_shape[0] = INT64_C(1) << 31, c.lens_stride[0] = 0), INVALID,
                "seq_lens: shape[0] is 2147483648, accepted: 0 to 2147483647 (B)");
    CHECK_WRONG(c.params.variant = (attns_variant)3, INVALID,
                "variant: is 3, accepted: 0 (default), 1 (fp8) or 2 (fp4)");
    CHECK_WRONG(c.params.next_n = -1, INVALID, "next_n: is -1, accepted: 0 (default) to 8");
    CHECK_WRONG(c.params.next_n = 9, UNSUPPORTED, "next_n: is 9, accepted: 0 (default) to 8");
    CHECK_WRONG((c.lens.ndim = 2, c.lens_shape[1] = 9, c.lens_stride[0] = 0), UNSUPPORTED,
                "seq_lens: next_n (shape[1]) is 9, accepted: 1 to 8");
    CHECK_WRONG((c.lens.ndim = 2, c.lens_shape[1] = 2, c.params.next_n = 4), INVALID,
                "seq_lens: shape[1] is 2, accepted: 4 (next_n)");
    CHECK_WRONG(c.lens.device.device_type = kDLROCM, INVALID,
                "seq_lens: device is rocm:0, accepted: host memory or a CUDA device");
    CHECK_WRONG(c.lens.device.device_type = kDLCUDA, INVALID,
                "schedule_meta: device is cpu, accepted: cuda:0, as seq_lens");
    CHECK_WRONG(c.meta.device = ((DLDevice){kDLCUDA, 1}), INVALID,
                "schedule_meta: device is cuda:1, accepted: cpu, as seq_lens");
    CHECK_WRONG(c.lens.device = c.meta.device = ((DLDevice){kDLCUDA, 1}), INVALID,
                "ctx: is NULL, accepted: a context, as seq_lens is on a device");
#undef CHECK_WRONG

    make_call(&c, lens, 4, meta, 3);
    c.meta.byte_offset = 2;
    assert_int_equal(run(&c), INVALID);
    assert_non_null(strstr(attns_last_error(), "schedule_meta: address is 0x"));
    make_call(&c, lens, 4, meta, 3);
    c.lens.byte_offset = 1;
    assert_int_equal(run(&c), INVALID);
    assert_non_null(strstr(attns_last_error(), "multiple of 4 bytes"));
}

int main(int argc, char **argv) {
    random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)random_state);
    fflush(stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_lengths),   cmocka_unit_test(test_half_zeros),
        cmocka_unit_test(test_random_lengths), cmocka_unit_test(test_tile_boundaries),
        cmocka_unit_test(test_literal),        cmocka_unit_test(test_empty_batch),
        cmocka_unit_test(test_large_totals),   cmocka_unit_test(test_product_beyond_64_bits),
        cmocka_unit_test(test_slice),          cmocka_unit_test(test_strides),
        cmocka_unit_test(test_wrong_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
