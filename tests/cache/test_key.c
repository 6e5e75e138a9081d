/* SPDX-License-Identifier: MIT
 *
 * Keys: what must change a digest does, what must not does not. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(tag, text)                                                                                               \
    { tag, text, sizeof(text) - 1 }

static attns_cache_key make(const attns_cache_key_field *fields, size_t count) {
    attns_cache_key key;
    assert_true(attns_cache_key_make(&key, fields, count));
    return key;
}

static void assert_all_differ(const attns_cache_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++)
            assert_memory_not_equal(keys[i].digest, keys[j].digest, ATTNS_CACHE_KEY_BYTES);
    }
}

static void same_fields_same_key(void **state) {
    (void)state;
    const attns_cache_key_field fields[] = {FIELD("source", "code"), FIELD("arch", "sm_90a")};
    /* Equal bytes at other addresses, as another process would have them. */
    char tag[] = "source", code[] = "code";
    const attns_cache_key_field moved[] = {{tag, code, 4}, FIELD("arch", "sm_90a")};
    attns_cache_key a = make(fields, 2), b = make(moved, 2);
    assert_memory_equal(a.digest, b.digest, ATTNS_CACHE_KEY_BYTES);
    assert_int_equal(a.text_size, b.text_size);
    assert_memory_equal(a.text, b.text, a.text_size);
    attns_cache_key_free(&a);
    attns_cache_key_free(&b);
    assert_null(a.text);
}

/* The digest is part of the format: a change of it without a new format version would orphan every shipped cache. */
static void digest_is_stable(void **state) {
    (void)state;
    const attns_cache_key_field fields[] = {FIELD("source", "code"), FIELD("arch", "sm_90a")};
    attns_cache_key key = make(fields, 2);
    static const char expected[] = "aaac9f03b6cae96611d5c9a43ffcfd80edb79145fb032bf7a50c47ae743dad9a";
    char hex[65];
    for (size_t i = 0; i < ATTNS_CACHE_KEY_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", key.digest[i]);
    assert_string_equal(hex, expected);
    attns_cache_key_free(&key);
}

static void boundaries_matter(void **state) {
    (void)state;
    const attns_cache_key_field cases[][2] = {
        {FIELD("a", "bc"), FIELD("d", "e")},   {FIELD("ab", "c"), FIELD("d", "e")},
        {FIELD("a", "b"), FIELD("cd", "e")},   {FIELD("a", "bcd"), FIELD("", "e")},
        {FIELD("a", ""), FIELD("bcd", "e")},   {FIELD("", "abcd"), FIELD("", "e")},
        {FIELD("a", "bc"), FIELD("de", "")},   {FIELD("d", "e"), FIELD("a", "bc")},
        {FIELD("a", "bc\0"), FIELD("d", "e")}, {FIELD("a", "b=c"), FIELD("d", "e")},
        {FIELD("a=b", "c"), FIELD("d", "e")},  {FIELD("a", "bc\nd=e"), FIELD("", "")},
    };
    enum { COUNT = sizeof cases / sizeof cases[0] };
    attns_cache_key keys[COUNT + 3];
    for (size_t i = 0; i < COUNT; i++)
        keys[i] = make(cases[i], 2);
    const attns_cache_key_field none = FIELD("", "");
    keys[COUNT] = make(cases[0], 1);
    keys[COUNT + 1] = make(&none, 1);
    keys[COUNT + 2] = make(NULL, 0);
    assert_all_differ(keys, COUNT + 3);
    for (size_t i = 0; i < COUNT + 3; i++)
        attns_cache_key_free(&keys[i]);
}

/* Every bit of every field and every tag, and the order. */
static void everything_matters(void **state) {
    (void)state;
    char values[3][8] = {"source!", "--opt-1", "sm_100a"};
    char tags[3][4] = {"src", "opt", "arc"};
    attns_cache_key_field fields[3];
    for (size_t i = 0; i < 3; i++)
        fields[i] = (attns_cache_key_field){tags[i], values[i], 7};
    attns_cache_key base = make(fields, 3);
    for (size_t i = 0; i < 3; i++) {
        for (size_t bit = 0; bit < 7 * 8; bit++) {
            values[i][bit / 8] = (char)(values[i][bit / 8] ^ (1 << bit % 8));
            attns_cache_key changed = make(fields, 3);
            assert_memory_not_equal(base.digest, changed.digest, ATTNS_CACHE_KEY_BYTES);
            assert_true(changed.text_size != base.text_size || memcmp(changed.text, base.text, base.text_size) != 0);
            attns_cache_key_free(&changed);
            values[i][bit / 8] = (char)(values[i][bit / 8] ^ (1 << bit % 8));
        }
        tags[i][1] ^= 1;
        attns_cache_key changed = make(fields, 3);
        assert_memory_not_equal(base.digest, changed.digest, ATTNS_CACHE_KEY_BYTES);
        attns_cache_key_free(&changed);
        tags[i][1] ^= 1;
    }
    static const size_t orders[5][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < 5; i++) {
        const attns_cache_key_field shuffled[3] = {fields[orders[i][0]], fields[orders[i][1]], fields[orders[i][2]]};
        attns_cache_key changed = make(shuffled, 3);
        assert_memory_not_equal(base.digest, changed.digest, ATTNS_CACHE_KEY_BYTES);
        attns_cache_key_free(&changed);
    }
    attns_cache_key_free(&base);
}

static void text_is_readable(void **state) {
    (void)state;
    char source[5000];
    memset(source, 'x', sizeof source);
    const attns_cache_key_field fields[] = {
        FIELD("arch", "sm_90a"), {"source", source, sizeof source}, FIELD("two", "a\nb"), FIELD("empty", "")};
    attns_cache_key key = make(fields, 4);
    assert_int_equal(strlen(key.text), key.text_size);
    assert_non_null(strstr(key.text, "format=1\n"));
    assert_non_null(strstr(key.text, "\narch=sm_90a\n"));
    assert_non_null(strstr(key.text, "\nsource=<5000 bytes, blake2b "));
    assert_non_null(strstr(key.text, "\ntwo=<3 bytes, blake2b "));
    assert_non_null(strstr(key.text, "\nempty=\n"));
    size_t lines = 0;
    for (size_t i = 0; i < key.text_size; i++)
        lines += key.text[i] == '\n';
    assert_int_equal(lines, 5);
    assert_true(key.text_size < 400);
    attns_cache_key_free(&key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_fields_same_key), cmocka_unit_test(digest_is_stable), cmocka_unit_test(boundaries_matter),
        cmocka_unit_test(everything_matters),   cmocka_unit_test(text_is_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
