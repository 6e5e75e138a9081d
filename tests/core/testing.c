/* SPDX-License-Identifier: MIT */
#include "testing.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *scratch_make(void) {
    const char *base = getenv("TMPDIR");
    char *dir = NULL;
    assert_true(asprintf(&dir, "%s/attns-test-XXXXXX", base && base[0] ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)walk;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}

void scratch_remove(char *dir) {
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

char *path_join(const char *dir, const char *name) {
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
    return path;
}

void file_write(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
    free(path);
}

char *file_read(const char *path, size_t *size) {
    FILE *stream = fopen(path, "r");
    if (!stream)
        return NULL;
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    long length = ftell(stream);
    assert_true(length >= 0);
    rewind(stream);
    char *text = malloc((size_t)length + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)length, stream), (size_t)length);
    text[length] = '\0';
    fclose(stream);
    if (size)
        *size = (size_t)length;
    return text;
}

void file_copy(const char *from, const char *to) {
    size_t size = 0;
    char *data = file_read(from, &size);
    assert_non_null(data);
    FILE *stream = fopen(to, "w");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
    free(data);
}

static _Thread_local const char *wanted_part;
static _Thread_local int wanted_found;

static int count_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info;
    wanted_found += kind == FTW_F && strstr(path + walk->base, wanted_part);
    return 0;
}

int count_files(const char *dir, const char *part) {
    wanted_part = part;
    wanted_found = 0;
    nftw(dir, count_one, 16, FTW_PHYS);
    return wanted_found;
}

void log_to_record(void *user, attns_log_level level, const char *message) {
    log_record *record = user;
    pthread_mutex_lock(&record->mutex);
    record->lines[level]++;
    if (record->size + strlen(message) + 16 < sizeof record->text)
        record->size += (size_t)sprintf(record->text + record->size, "%d: %s\n", (int)level, message);
    pthread_mutex_unlock(&record->mutex);
}

void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

void assert_lacks(const char *text, const char *part) {
    if (strstr(text, part))
        fail_msg("\"%s\" has \"%s\"", text, part);
}
