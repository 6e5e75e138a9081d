/* SPDX-License-Identifier: MIT
 *
 * Small kernels that real and simulated GPUs run with the same inputs: what they leave in `out` must not differ.
 *
 * A probe is PTX text with an entry `probe(.param .u64 out, .param .u64 in)`, or with a third parameter, a tensor map.
 * Everything in it follows from its name and PROBE_SEED. Kernels read and write nothing else than the two arrays and
 * wait for nothing without a bound, so that a difference in behaviour cannot hang or fault them. */
#ifndef PTXSIM_PROBE_H_
#define PTXSIM_PROBE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rng.h"
#include "core/strbuf.h"

enum { PROBE_SEED = 1, PROBE_POISON = 0xcd /* bytes of `out` that no kernel has written */ };

/* A tiled tensor map, as cuTensorMapEncodeTiled takes it. */
typedef struct probe_map {
    unsigned rank;      /* 0: the probe has none */
    unsigned data_type; /* CUtensorMapDataType */
    unsigned swizzle;   /* CUtensorMapSwizzle */
    unsigned box[5], element_strides[5];
    uint64_t sizes[5], strides[4];
    bool fill_nan;
    bool of_out;   /* lies in `out`, else in `in` */
    size_t offset; /* where, bytes */
} probe_map;

typedef struct probe {
    char name[112]; /* FAMILY/WHAT */
    attns_strbuf ptx;
    unsigned ctas, threads;
    size_t shared_bytes; /* dynamic */
    uint8_t *in;
    size_t in_bytes, out_bytes;
    probe_map map;
    bool keep; /* record all bytes, however many */
} probe;

typedef struct probe_list {
    probe *items;
    size_t count, capacity;
} probe_list;

/* Adds a probe of one CTA of 32 threads; the pointer is good until the next call. What cannot be allocated ends the
 * program. */
probe *probe_add(probe_list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Gives it an input of zeros. */
void *probe_input(probe *p, size_t bytes);
void probe_list_free(probe_list *list);

/* A generator that only the name and PROBE_SEED decide. */
struct rng probe_random(const probe *p);

/* The head of the kernel up to the first instruction of its own. There are registers %thread, %cta, %gtid (index over
 * all CTAs) and %out, %in (addresses), %r0-%r15, %rd0-%rd15, %p0-%p7 and %f0-%f7 (32 bits). Ends with probe_end. */
void probe_begin(probe *p);
void probe_put(probe *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void probe_end(probe *p);

/* Copies `bytes` (a multiple of 16) from %in + offset into the dynamic shared memory, `tile`, whose address %tile it
 * sets; all threads see it afterwards, and so do asynchronous copies and products. */
void probe_fill_tile(probe *p, size_t offset, size_t bytes);
/* Copies them from the tile to `out` at %cta * bytes + offset. */
void probe_dump_tile(probe *p, size_t offset, size_t bytes);

/* The families. */
void probes_convert(probe_list *list);
void probes_integer(probe_list *list);
void probes_float(probe_list *list);
void probes_warp(probe_list *list);
void probes_memory(probe_list *list);
void probes_matrix(probe_list *list);
void probes_wgmma(probe_list *list);
void probes_tensor_copy(probe_list *list);
void probes_mbarrier(probe_list *list);
void probes_rounding(probe_list *list);

#endif
