/* SPDX-License-Identifier: MIT */
#include "recording.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Hashes ---- */

void recording_sum(const uint8_t *data, size_t bytes, uint8_t sum[RECORDING_SUM]) {
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, data, bytes, NULL, 0);
    memcpy(sum, hash, RECORDING_SUM);
}

static void put_hex(const uint8_t *hash, char *hex, size_t size) {
    sodium_bin2hex(hex, size, hash, (size - 1) / 2);
}

void recording_key(const probe *p, char key[17]) {
    crypto_generichash_state state;
    uint8_t hash[crypto_generichash_BYTES_MIN];
    const uint64_t numbers[] = {p->ctas, p->threads, p->shared_bytes, p->in_bytes, p->out_bytes};
    const char *ptx = attns_strbuf_text(&p->ptx);
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    crypto_generichash_update(&state, (const uint8_t *)ptx, strlen(ptx));
    crypto_generichash_update(&state, (const uint8_t *)numbers, sizeof numbers);
    if (p->in_bytes)
        crypto_generichash_update(&state, p->in, p->in_bytes);
    if (p->map.rank) {
        const probe_map *m = &p->map;
        const uint64_t map[] = {m->rank, m->data_type, m->swizzle, m->fill_nan, m->of_out, m->offset};
        crypto_generichash_update(&state, (const uint8_t *)map, sizeof map);
        crypto_generichash_update(&state, (const uint8_t *)m->box, sizeof m->box);
        crypto_generichash_update(&state, (const uint8_t *)m->element_strides, sizeof m->element_strides);
        crypto_generichash_update(&state, (const uint8_t *)m->sizes, sizeof m->sizes);
        crypto_generichash_update(&state, (const uint8_t *)m->strides, sizeof m->strides);
    }
    crypto_generichash_final(&state, hash, sizeof hash);
    put_hex(hash, key, 17);
}

static void checksum(const char *text, size_t size, char hex[33]) {
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)text, size, NULL, 0);
    put_hex(hash, hex, 33);
}

/* ---- Writing ---- */

void recording_part(size_t bytes, size_t part, size_t *begin, size_t *end) {
    *begin = bytes * part / RECORDING_PARTS;
    *end = bytes * (part + 1) / RECORDING_PARTS;
}

static void put_base64(attns_strbuf *text, const uint8_t *data, size_t bytes) {
    const size_t size = sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL);
    char *encoded = malloc(size);
    if (!encoded) {
        text->failed = true;
        return;
    }
    attns_strbuf_puts(text, sodium_bin2base64(encoded, size, data, bytes, sodium_base64_VARIANT_ORIGINAL));
    free(encoded);
}

void recording_put(attns_strbuf *text, const probe *p, const uint8_t *out) {
    char key[17];
    recording_key(p, key);
    const bool raw = p->keep || p->out_bytes <= RECORDING_RAW;
    attns_strbuf_printf(text, "%s %s %zu %s ", p->name, key, p->out_bytes, raw ? "raw" : "sums");
    if (raw) {
        put_base64(text, out, p->out_bytes);
    } else {
        uint8_t sums[RECORDING_PARTS * RECORDING_SUM];
        for (size_t part = 0; part < RECORDING_PARTS; part++) {
            size_t begin = 0, end = 0;
            recording_part(p->out_bytes, part, &begin, &end);
            recording_sum(out + begin, end - begin, sums + part * RECORDING_SUM);
        }
        put_base64(text, sums, sizeof sums);
    }
    attns_strbuf_puts(text, "\n");
}

void recording_end(attns_strbuf *text) {
    char hex[33];
    checksum(attns_strbuf_text(text), text->size, hex);
    attns_strbuf_printf(text, "end %s\n", hex);
}

/* ---- Reading ---- */

static char *read_text(const char *path, recording *rec) {
    FILE *file = fopen(path, "rb");
    attns_strbuf text = {0};
    char buffer[65536];
    size_t got = 0;
    while (file && (got = fread(buffer, 1, sizeof buffer, file)) > 0)
        attns_strbuf_append(&text, buffer, got);
    if (!file || ferror(file))
        snprintf(rec->error, sizeof rec->error, "%s: %s", path, strerror(errno));
    if (file)
        fclose(file);
    char *all = attns_strbuf_take(&text);
    if (rec->error[0]) {
        free(all);
        return NULL;
    }
    return all;
}

static bool parse_line(char *line, recording_entry *e) {
    char *fields[5], *rest = line;
    for (int i = 0; i < 5; i++)
        if (!(fields[i] = strsep(&rest, " ")))
            return false;
    const size_t length = strlen(fields[4]), room = length / 4 * 3 + 3;
    e->raw = strcmp(fields[3], "raw") == 0;
    e->bytes = strtoul(fields[2], NULL, 10);
    if (rest || strlen(fields[1]) != 16 || (!e->raw && strcmp(fields[3], "sums") != 0))
        return false;
    memcpy(e->key, fields[1], sizeof e->key);
    e->name = strdup(fields[0]);
    e->data = malloc(room);
    return e->name && e->data &&
           sodium_base642bin(e->data, room, fields[4], length, NULL, &e->data_bytes, NULL,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           e->data_bytes == (e->raw ? e->bytes : RECORDING_PARTS * RECORDING_SUM);
}

static bool parse(recording *rec, char *text) {
    char *last = strstr(text, "\nend "), hex[33];
    if (!last)
        return false;
    last++;
    checksum(text, (size_t)(last - text), hex);
    if (strncmp(last + 4, hex, 32) != 0 || strcmp(last + 36, "\n") != 0)
        return false;
    *last = '\0';
    size_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    rec->entries = calloc(lines + 1, sizeof *rec->entries);
    for (char *line; rec->entries && (line = strsep(&text, "\n"));)
        if (*line && *line != '#' && !parse_line(line, &rec->entries[rec->count++]))
            return false;
    return rec->entries != NULL;
}

bool recording_read(recording *rec, const char *path) {
    memset(rec, 0, sizeof *rec);
    char *text = read_text(path, rec);
    if (!text)
        return false;
    if (!parse(rec, text))
        snprintf(rec->error, sizeof rec->error, "%s: damaged", path);
    free(text);
    return !rec->error[0];
}

void recording_free(recording *rec) {
    for (size_t i = 0; i < rec->count; i++) {
        free(rec->entries[i].name);
        free(rec->entries[i].data);
    }
    free(rec->entries);
    memset(rec, 0, sizeof *rec);
}

const recording_entry *recording_find(const recording *rec, const char *name) {
    for (size_t i = 0; i < rec->count; i++)
        if (strcmp(rec->entries[i].name, name) == 0)
            return &rec->entries[i];
    return NULL;
}
