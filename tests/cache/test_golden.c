/* SPDX-License-Identifier: MIT
 *
 * Files of this format version, kept in the repository: written today as they were then, and read as they were written.
 * Caches and bundles that were shipped must go on being found. A change of the format takes a new
 * ATTNS_CACHE_FORMAT_VERSION, for which
 *
 *   ATTNS_TEST_WRITE_GOLDEN=1 build/tests/cache/test_cache_golden
 *
 * writes new files; those of older versions stay, as what must no longer be read. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bundle.h"
#include "entry.h"
#include "format.h"

static const uint8_t payload[] = "the payload of a kernel, which need not be a cubin: \x01\x02\x00\xff";

static attns_cache_key key_for(const char *arch) {
    static const char source[] = "extern \"C\" __global__ void kernel() {}\n";
    const attns_cache_key_field fields[] = {{"kind", "cubin", 5},
                                            {"arch", arch, strlen(arch)},
                                            {"option", "-std=c++17", 10},
                                            {"source", source, sizeof source - 1}};
    attns_cache_key key;
    assert_true(attns_cache_key_make(&key, fields, 4));
    return key;
}

static uint8_t *entry_for(const attns_cache_key *key, uint32_t build, size_t *size) {
    static const char meta[] = "kernel=golden\nregisters=80\n";
    const attns_cache_entry_view view = {build, key->digest,     key->text, key->text_size,
                                         meta,  sizeof meta - 1, payload,   sizeof payload - 1};
    *size = attns_cache_entry_size(&view);
    uint8_t *const bytes = malloc(*size);
    assert_non_null(bytes);
    attns_cache_entry_serialise(&view, bytes);
    return bytes;
}

static uint8_t *bundle_of(attns_cache_bundle_item *items, uint32_t count, size_t *size) {
    size_t head_size;
    uint8_t *const head = attns_cache_bundle_head(items, count, &head_size);
    assert_non_null(head);
    *size = head_size;
    for (uint32_t i = 0; i < count; i++)
        *size += items[i].size;
    uint8_t *const bytes = malloc(*size);
    assert_non_null(bytes);
    memcpy(bytes, head, head_size);
    uint8_t *at = bytes + head_size;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(at, items[i].bytes, items[i].size);
        at += items[i].size;
    }
    free(head);
    return bytes;
}

static void golden_path(char path[512], const char *name, const char *suffix) {
    format_path(path, "%s/%s-v%d.%s", GOLDEN_DIR, name, ATTNS_CACHE_FORMAT_VERSION, suffix);
}

static void compare(const char *name, const char *suffix, const uint8_t *bytes, size_t size) {
    char path[512];
    golden_path(path, name, suffix);
    if (getenv("ATTNS_TEST_WRITE_GOLDEN") != NULL) {
        write_file(path, bytes, size);
        print_message("%s written\n", path);
        return;
    }
    if (!path_exists(path))
        fail_msg("%s is missing: a new format version needs its golden files (ATTNS_TEST_WRITE_GOLDEN=1)", path);
    size_t kept_size;
    uint8_t *const kept = read_file(path, &kept_size);
    if (kept_size != size || memcmp(kept, bytes, size) != 0)
        fail_msg("what is written differs from %s: a change of the format needs a new ATTNS_CACHE_FORMAT_VERSION, or "
                 "caches that were shipped are misread or lost",
                 path);
    free(kept);
}

static void written_as_then(void **state) {
    (void)state;
    attns_cache_key a = key_for("sm_90a"), b = key_for("sm_103a");
    size_t sizes[3], size;
    uint8_t *const entries[3] = {entry_for(&a, 13000, &sizes[0]), entry_for(&b, 13000, &sizes[1]),
                                 entry_for(&a, 12080, &sizes[2])};
    compare("entry", "cubin", entries[0], sizes[0]);
    attns_cache_bundle_item items[3];
    for (int i = 0; i < 3; i++)
        items[i] = (attns_cache_bundle_item){.digest = i == 1 ? b.digest : a.digest,
                                             .build = i == 2 ? 12080 : 13000,
                                             .bytes = entries[i],
                                             .size = sizes[i]};
    uint8_t *const bundle = bundle_of(items, 3, &size);
    compare("bundle", "attns", bundle, size);
    free(bundle);
    for (int i = 0; i < 3; i++)
        free(entries[i]);
    attns_cache_key_free(&a);
    attns_cache_key_free(&b);
}

/* The kept files serve: in a directory and as a bundle. */
static void read_as_written(void **state) {
    (void)state;
    char path[512], place[512];
    make_scratch(NULL);
    attns_cache_key a = key_for("sm_90a"), b = key_for("sm_103a");
    log_record log;
    for (int form = 0; form < 2; form++) {
        size_t size;
        golden_path(path, form == 0 ? "entry" : "bundle", form == 0 ? "cubin" : "attns");
        uint8_t *const bytes = read_file(path, &size);
        attns_cache *cache = open_cache(scratch, NULL, 0, &log);
        if (form == 0) {
            assert_true(store_of(cache, &a, 13000)); /* makes the directories */
            entry_path(place, scratch, &a, 13000);
        } else {
            format_path(place, "%s/bundle", scratch);
        }
        attns_cache_close(cache);
        write_file(place, bytes, size);
        free(bytes);
        cache = form == 0 ? open_cache(scratch, NULL, 0, &log) : open_cache(NULL, place, 0, &log);
        attns_cache_entry entry;
        assert_true(attns_cache_lookup(cache, &a, 0, &entry));
        assert_int_equal(entry.build, 13000);
        assert_int_equal(entry.payload_size, sizeof payload - 1);
        assert_memory_equal(entry.payload, payload, sizeof payload - 1);
        assert_string_equal(entry.meta, "kernel=golden\nregisters=80\n");
        attns_cache_entry_free(&entry);
        assert_int_equal(attns_cache_lookup(cache, &a, 12080, &entry), form == 1);
        attns_cache_entry_free(&entry);
        assert_int_equal(attns_cache_lookup(cache, &b, 13000, &entry), form == 1);
        attns_cache_entry_free(&entry);
        assert_int_equal(log.lines, 0);
        attns_cache_close(cache);
    }
    attns_cache_key_free(&a);
    attns_cache_key_free(&b);
    remove_scratch(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(written_as_then), cmocka_unit_test(read_as_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
