/* SPDX-License-Identifier: MIT
 *
 * What probes gave on a GPU, as a text file: comments (#), a line for each probe
 *
 *     NAME KEY BYTES raw|sums BASE64
 *
 * and a last line "end CHECKSUM" of all before it. KEY is a hash of all that decides the output (the PTX, the input,
 * the launch). Small outputs are there as they are, of others the hashes of RECORDING_PARTS equal parts. */
#ifndef PTXSIM_PROBES_RECORDING_H_
#define PTXSIM_PROBES_RECORDING_H_

#include "probe.h"

enum { RECORDING_PARTS = 16, RECORDING_SUM = 8, RECORDING_RAW = 512 /* largest output that is kept as it is */ };

typedef struct recording_entry {
    char *name, key[17];
    size_t bytes;
    bool raw;
    uint8_t *data; /* the output, or sums of RECORDING_SUM bytes */
    size_t data_bytes;
} recording_entry;

typedef struct recording {
    recording_entry *entries;
    size_t count;
    char error[256];
} recording;

/* false with `error` set. */
bool recording_read(recording *rec, const char *path);
void recording_free(recording *rec);
const recording_entry *recording_find(const recording *rec, const char *name);

void recording_key(const probe *p, char key[17]);
void recording_put(attns_strbuf *text, const probe *p, const uint8_t *out);
void recording_end(attns_strbuf *text);

/* Bytes [begin, end) of part `part` of an output, and their sum. */
void recording_part(size_t bytes, size_t part, size_t *begin, size_t *end);
void recording_sum(const uint8_t *data, size_t bytes, uint8_t sum[RECORDING_SUM]);

#endif
