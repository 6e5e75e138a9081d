/* SPDX-License-Identifier: MIT
 *
 * File names: only what the cache writes parses, and so only that can ever be deleted. */
#include "fixture.h"

#include <string.h>

#include "name.h"

#define HEX64 "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210"

static void entry_names_round_trip(void **state) {
    (void)state;
    seed_random();
    static const uint32_t builds[] = {1, 9, 10, 12080, 13000, 4294967294u, UINT32_MAX};
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        uint8_t digest[ATTNS_CACHE_KEY_BYTES], parsed[ATTNS_CACHE_KEY_BYTES];
        for (size_t j = 0; j < sizeof digest; j++)
            digest[j] = (uint8_t)next_random();
        char name[ATTNS_CACHE_ENTRY_NAME_CHARS];
        attns_cache_entry_name(name, digest, builds[i]);
        uint32_t build = 0;
        assert_true(attns_cache_entry_name_parse(name, parsed, &build));
        assert_memory_equal(parsed, digest, sizeof digest);
        assert_int_equal(build, builds[i]);
        assert_false(attns_cache_temp_name_matches(name));
    }
}

static void foreign_entry_names(void **state) {
    (void)state;
    static const char *const names[] = {
        "",
        ".",
        "..",
        "lock",
        HEX64,
        HEX64 "-",
        HEX64 "-.cubin",
        HEX64 "-0.cubin",
        HEX64 "-012.cubin",
        HEX64 "--1.cubin",
        HEX64 "-+1.cubin",
        HEX64 "- 1.cubin",
        HEX64 "-1",
        HEX64 "-1.cubi",
        HEX64 "-1.cubin2",
        HEX64 "-1.cubin~",
        HEX64 "-1x.cubin",
        HEX64 "-4294967296.cubin",
        HEX64 "-99999999999999999999999999.cubin",
        HEX64 "1-1.cubin",
        HEX64 "_1.cubin",
        "A0112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210-1.cubin",
        "g0112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210-1.cubin",
        "0112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210-1.cubin",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint8_t digest[ATTNS_CACHE_KEY_BYTES];
        uint32_t build;
        if (attns_cache_entry_name_parse(names[i], digest, &build))
            fail_msg("'%s' was taken for an entry", names[i]);
    }
}

static void temp_names(void **state) {
    (void)state;
    uint8_t random[16];
    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (uint8_t)(17 * i);
    char name[ATTNS_CACHE_TEMP_NAME_CHARS];
    attns_cache_temp_name(name, random);
    assert_string_equal(name, ".tmp-00112233445566778899aabbccddeeff");
    assert_true(attns_cache_temp_name_matches(name));
    static const char *const foreign[] = {"",
                                          ".tmp",
                                          ".tmp-",
                                          ".tmp-00112233445566778899aabbccddeef",
                                          ".tmp-00112233445566778899aabbccddeeff0",
                                          ".tmp-00112233445566778899AABBCCDDEEFF",
                                          "xtmp-00112233445566778899aabbccddeeff",
                                          "tmp-00112233445566778899aabbccddeeff"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (attns_cache_temp_name_matches(foreign[i]))
            fail_msg("'%s' was taken for a temporary file", foreign[i]);
    }
}

static void shard_names(void **state) {
    (void)state;
    for (unsigned i = 0; i < 256; i++) {
        char name[ATTNS_CACHE_SHARD_NAME_CHARS];
        attns_cache_shard_name(name, (uint8_t)i);
        uint8_t shard = (uint8_t)~i;
        assert_true(attns_cache_shard_parse(name, &shard));
        assert_int_equal(shard, i);
    }
    uint8_t shard;
    static const char *const foreign[] = {"", ".", "..", "a", "AB", "abc", "0x", "v1", "-1"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_false(attns_cache_shard_parse(foreign[i], &shard));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entry_names_round_trip),
        cmocka_unit_test(foreign_entry_names),
        cmocka_unit_test(temp_names),
        cmocka_unit_test(shard_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
