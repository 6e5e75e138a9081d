/* SPDX-License-Identifier: MIT
 *
 * The bytes of an entry: what is written is read, and no bytes whatsoever make the reader read past its buffer. Every
 * buffer ends at an unmapped page, so an over-read is a crash even without a sanitizer. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "entry.h"
#include "format.h"
#include "hash.h"

enum { MUTATIONS = 40000, ROOM = 1 << 16, CHECKSUM = ATTNS_CACHE_HASH_BYTES };

static uint8_t *guarded_end;

static int map_guarded(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const base = mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + ROOM, page, PROT_NONE) != 0)
        return -1;
    guarded_end = base + ROOM;
    seed_random();
    return 0;
}

/* A copy of the bytes that ends where memory ends. */
static const uint8_t *guard(const uint8_t *bytes, size_t size) {
    assert_in_range(size, 0, ROOM);
    if (size != 0)
        memcpy(guarded_end - size, bytes, size);
    return guarded_end - size;
}

static const char *parse(const uint8_t *bytes, size_t size, attns_cache_entry_view *view) {
    return attns_cache_entry_parse(guard(bytes, size), size, view);
}

static void fill(uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)next_random();
}

static void reseal(uint8_t *bytes, size_t size) {
    if (size >= CHECKSUM)
        attns_cache_hash(bytes + size - CHECKSUM, bytes, size - CHECKSUM);
}

static uint8_t *make_entry(size_t payload_size, size_t *size) {
    static const uint8_t digest[ATTNS_CACHE_KEY_BYTES] = {1, 2, 3};
    static const char text[] = "format=1\narch=sm_90a\n", meta[] = "registers=80";
    uint8_t *const payload = malloc(payload_size);
    assert_non_null(payload);
    fill(payload, payload_size);
    const attns_cache_entry_view view = {12080, digest,          text,    sizeof text - 1,
                                         meta,  sizeof meta - 1, payload, payload_size};
    *size = attns_cache_entry_size(&view);
    assert_true(*size > payload_size);
    uint8_t *const bytes = malloc(*size);
    assert_non_null(bytes);
    attns_cache_entry_serialise(&view, bytes);
    free(payload);
    return bytes;
}

/* The layout byte by byte: written on one machine, read on any other. */
static void layout_is_fixed(void **state) {
    (void)state;
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
    for (size_t i = 0; i < sizeof digest; i++)
        digest[i] = (uint8_t)(0x80 + i);
    const uint8_t payload[3] = {0xff, 0, 1};
    const attns_cache_entry_view view = {0x01020304, digest, "k=v\n", 4, "me", 2, payload, 3};
    assert_int_equal(attns_cache_entry_size(&view), 72 + 4 + 2 + 3 + 32);
    uint8_t bytes[113];
    attns_cache_entry_serialise(&view, bytes);
    static const uint8_t head[40] = {'a', 't', 't', 'n', 's', 'C', 'B', '\n', 1, 0, 0, 0, 4, 3, 2, 1, 113, 0, 0, 0,
                                     0,   0,   0,   0,   4,   0,   0,   0,    2, 0, 0, 0, 3, 0, 0, 0, 0,   0, 0, 0};
    assert_memory_equal(bytes, head, 40);
    assert_memory_equal(bytes + 40, digest, 32);
    assert_memory_equal(bytes + 72, "k=v\nme", 6);
    assert_memory_equal(bytes + 78, payload, 3);
    uint8_t checksum[CHECKSUM];
    attns_cache_hash(checksum, bytes, 81);
    assert_memory_equal(bytes + 81, checksum, CHECKSUM);
}

static void round_trip(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        uint8_t digest[ATTNS_CACHE_KEY_BYTES], text[300], meta[100], payload[3000];
        fill(digest, sizeof digest);
        fill(text, sizeof text);
        memset(meta, 'm', sizeof meta);
        fill(payload, sizeof payload);
        const attns_cache_entry_view in = {.build = (uint32_t)(1 + random_below(UINT32_MAX)),
                                           .digest = digest,
                                           .key_text = (const char *)text,
                                           .key_text_size = random_below(sizeof text + 1),
                                           .meta = (const char *)meta,
                                           .meta_size = random_below(sizeof meta + 1),
                                           .payload = payload,
                                           .payload_size = 1 + random_below(sizeof payload)};
        uint8_t bytes[4000];
        const size_t size = attns_cache_entry_size(&in);
        assert_in_range(size, 105, sizeof bytes);
        attns_cache_entry_serialise(&in, bytes);
        attns_cache_entry_view out;
        assert_null(parse(bytes, size, &out));
        assert_int_equal(out.build, in.build);
        assert_memory_equal(out.digest, digest, sizeof digest);
        assert_int_equal(out.key_text_size, in.key_text_size);
        assert_memory_equal(out.key_text, text, in.key_text_size);
        assert_int_equal(out.meta_size, in.meta_size);
        assert_memory_equal(out.meta, meta, in.meta_size);
        assert_int_equal(out.payload_size, in.payload_size);
        assert_memory_equal(out.payload, payload, in.payload_size);
    }
}

static void unwritable_entries(void **state) {
    (void)state;
    const uint8_t digest[ATTNS_CACHE_KEY_BYTES] = {0};
    const uint8_t byte = 7;
    const attns_cache_entry_view good = {1, digest, "", 0, "", 0, &byte, 1};
    assert_int_equal(attns_cache_entry_size(&good), 105);
    attns_cache_entry_view view = good;
    view.build = 0;
    assert_int_equal(attns_cache_entry_size(&view), 0);
    view = good;
    view.payload_size = 0;
    assert_int_equal(attns_cache_entry_size(&view), 0);
    view.payload_size = ATTNS_CACHE_ENTRY_MAX_BYTES - 104;
    assert_int_equal(attns_cache_entry_size(&view), ATTNS_CACHE_ENTRY_MAX_BYTES);
    view.payload_size++;
    assert_int_equal(attns_cache_entry_size(&view), 0);
    view.payload_size = SIZE_MAX;
    assert_int_equal(attns_cache_entry_size(&view), 0);
    view = good;
    view.key_text_size = SIZE_MAX - 50;
    assert_int_equal(attns_cache_entry_size(&view), 0);
}

/* No prefix of an entry, no entry with anything after it, no entry with one bit flipped is an entry. */
static void every_cut_and_every_bit(void **state) {
    (void)state;
    size_t size;
    uint8_t *const bytes = make_entry(200, &size);
    attns_cache_entry_view view;
    assert_null(parse(bytes, size, &view));
    for (size_t cut = 0; cut < size; cut++) {
        assert_non_null(parse(bytes, cut, &view));
        assert_null(view.payload);
    }
    uint8_t *const longer = calloc(1, size + 40);
    assert_non_null(longer);
    memcpy(longer, bytes, size);
    for (size_t more = 1; more <= 40; more++)
        assert_non_null(parse(longer, size + more, &view));
    free(longer);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ (1u << bit % 8));
        assert_non_null(parse(bytes, size, &view));
        assert_null(view.payload);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ (1u << bit % 8));
    }
    free(bytes);
}

/* Faults that a valid checksum covers: written by a program with other ideas, not by chance. */
static void sealed_nonsense(void **state) {
    (void)state;
    static const struct {
        size_t at, width;
        uint64_t value;
        const char *reason;
    } cases[] = {
        {8, 4, 2, "it has another format version"},
        {8, 4, 0, "it has another format version"},
        {12, 4, 0, "it names no build"},
        {16, 8, UINT64_MAX, "its length differs from the one recorded"},
        {24, 4, UINT32_MAX, "its parts do not add up to its length"},
        {28, 4, UINT32_MAX, "its parts do not add up to its length"},
        {32, 8, UINT64_MAX, "its parts do not add up to its length"},
        {32, 8, UINT64_MAX - 32, "its parts do not add up to its length"},
        {32, 8, 0, "its parts do not add up to its length"},
        {0, 4, 0, "it does not begin like an entry"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size;
        uint8_t *const bytes = make_entry(100, &size);
        for (size_t j = 0; j < cases[i].width; j++)
            bytes[cases[i].at + j] = (uint8_t)(cases[i].value >> (8 * j));
        reseal(bytes, size);
        attns_cache_entry_view view;
        const char *const reason = parse(bytes, size, &view);
        assert_non_null(reason);
        assert_string_equal(reason, cases[i].reason);
        free(bytes);
    }
    /* Sizes whose sum comes out right only because it wraps around. */
    size_t wrapped_size;
    uint8_t *const wrapped = make_entry(100, &wrapped_size);
    const uint64_t body = wrapped_size - 72 - CHECKSUM, key_text_size = UINT32_MAX;
    const uint64_t payload_size = body - wrapped[28] - key_text_size;
    for (size_t i = 0; i < 4; i++)
        wrapped[24 + i] = (uint8_t)(key_text_size >> (8 * i));
    for (size_t i = 0; i < 8; i++)
        wrapped[32 + i] = (uint8_t)(payload_size >> (8 * i));
    reseal(wrapped, wrapped_size);
    attns_cache_entry_view wrapped_view;
    assert_string_equal(parse(wrapped, wrapped_size, &wrapped_view), "its parts do not add up to its length");
    free(wrapped);
    /* The sizes shifted among the parts: the payload given away to the metadata, and binary metadata. */
    size_t size;
    uint8_t *bytes = make_entry(100, &size);
    bytes[28] = (uint8_t)(bytes[28] + 100);
    bytes[32] = 0;
    reseal(bytes, size);
    attns_cache_entry_view view;
    assert_string_equal(parse(bytes, size, &view), "it has no payload");
    free(bytes);
    bytes = make_entry(100, &size);
    bytes[72 + 21 + 3] = 0;
    reseal(bytes, size);
    assert_string_equal(parse(bytes, size, &view), "its metadata holds a zero byte");
    free(bytes);
}

static void belongs_to(void **state) {
    (void)state;
    size_t size;
    uint8_t *const bytes = make_entry(10, &size);
    attns_cache_entry_view view;
    assert_null(parse(bytes, size, &view));
    char text[] = "format=1\narch=sm_90a\n";
    attns_cache_key key = {.digest = {1, 2, 3}, .text = text, .text_size = sizeof text - 1};
    assert_null(attns_cache_entry_mismatch(&view, &key, 12080));
    assert_string_equal(attns_cache_entry_mismatch(&view, &key, 12081), "it belongs to another build");
    text[0] = 'F';
    assert_string_equal(attns_cache_entry_mismatch(&view, &key, 12080), "its key text differs");
    text[0] = 'f';
    key.text_size--;
    assert_string_equal(attns_cache_entry_mismatch(&view, &key, 12080), "its key text differs");
    key.text_size++;
    key.digest[31] = 1;
    assert_string_equal(attns_cache_entry_mismatch(&view, &key, 12080), "it belongs to another key");
    free(bytes);
}

static size_t mutate(uint8_t *bytes, size_t size, size_t room) {
    switch (random_below(7)) {
    case 0: /* a flipped bit */
        bytes[random_below(size)] ^= (uint8_t)(1u << random_below(8));
        return size;
    case 1: /* cut */
        return random_below(size + 1);
    case 2: { /* junk appended */
        const size_t more = 1 + random_below(64);
        if (size + more > room)
            return size;
        fill(bytes + size, more);
        return size + more;
    }
    case 3: { /* an extreme number, mostly in the header */
        static const uint64_t extremes[] = {0,          1,          0x7f,           0x80,       0xff,
                                            0x7fffffff, 0x80000000, 0xffffffff,     UINT64_MAX, (uint64_t)1 << 63,
                                            0xfffffff0, 1u << 28,   (1u << 28) + 1, 104,        72};
        const size_t at = random_below(4) != 0 ? 4 * random_below(10) : random_below(size);
        const size_t width = random_below(2) != 0 ? 4 : 8;
        const uint64_t value = extremes[random_below(sizeof extremes / sizeof extremes[0])] + random_below(3) - 1;
        for (size_t i = 0; i < width && at + i < size; i++)
            bytes[at + i] = (uint8_t)(value >> (8 * i));
        return size;
    }
    case 4: { /* a length that moves with the file's */
        const size_t change = random_below(size);
        for (size_t i = 0; i < 8 && 16 + i < size; i++)
            bytes[16 + i] = (uint8_t)((uint64_t)change >> (8 * i));
        return change;
    }
    case 5: { /* a run copied elsewhere */
        const size_t from = random_below(size), to = random_below(size);
        memmove(bytes + to, bytes + from, random_below(size - (from > to ? from : to)) + 1);
        return size;
    }
    default: /* zeros, as a torn write leaves them */
        if (size != 0) {
            const size_t from = random_below(size);
            memset(bytes + from, 0, size - from);
        }
        return size;
    }
}

/* Random mutations, half of them sealed with a checksum that fits, so that they reach the code behind it. What is
 * accepted must lie within the buffer and add up. */
static void random_mutations(void **state) {
    (void)state;
    unsigned accepted = 0, rejected = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        size_t size;
        uint8_t *const entry = make_entry(1 + random_below(300), &size);
        uint8_t bytes[1024];
        assert_in_range(size, 1, sizeof bytes);
        memcpy(bytes, entry, size);
        const size_t original = size;
        const uint64_t times = 1 + random_below(3);
        for (uint64_t j = 0; j < times && size != 0; j++)
            size = mutate(bytes, size, sizeof bytes);
        const bool sealed = random_below(2) != 0;
        if (sealed)
            reseal(bytes, size);
        attns_cache_entry_view view;
        const char *const reason = parse(bytes, size, &view);
        if (reason != NULL) {
            rejected++;
            assert_null(view.payload);
        } else {
            accepted++;
            if (!sealed) {
                assert_int_equal(size, original);
                assert_memory_equal(bytes, entry, size);
            }
            const uint8_t *const start = guarded_end - size;
            assert_ptr_equal(view.digest, start + 40);
            assert_ptr_equal(view.key_text, start + 72);
            assert_ptr_equal(view.meta, view.key_text + view.key_text_size);
            assert_ptr_equal(view.payload, view.meta + view.meta_size);
            assert_ptr_equal(view.payload + view.payload_size, guarded_end - CHECKSUM);
            assert_true(view.build != 0 && view.payload_size != 0);
        }
        free(entry);
    }
    print_message("%u mutations rejected, %u accepted\n", rejected, accepted);
    /* Both sides of the reader were exercised. */
    assert_true(rejected > MUTATIONS / 2);
    assert_true(accepted > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_fixed),    cmocka_unit_test(round_trip),
        cmocka_unit_test(unwritable_entries), cmocka_unit_test(every_cut_and_every_bit),
        cmocka_unit_test(sealed_nonsense),    cmocka_unit_test(belongs_to),
        cmocka_unit_test(random_mutations),
    };
    return cmocka_run_group_tests(tests, map_guarded, NULL);
}
