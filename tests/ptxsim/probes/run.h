/* SPDX-License-Identifier: MIT
 *
 * Runs probes on the GPU that libcuda ($ATTNS_LIBCUDA) offers. */
#ifndef PTXSIM_PROBES_RUN_H_
#define PTXSIM_PROBES_RUN_H_

#include "probe.h"

typedef struct probe_result {
    bool done;
    char error[256]; /* why not */
    uint8_t *out;
} probe_result;

typedef struct probe_run {
    char device[128]; /* its name; "": there is none */
    char reason[512]; /* why */
    int compute_capability, driver_version;
    probe_result *results; /* one for each probe */
    void *memory;          /* private to run.c */
    size_t memory_bytes;
} probe_run;

/* Runs all in processes of their own: after one that does not return from its probe within seconds, or whose context is
 * lost, another goes on with the next probe. The calling process must not use CUDA before. */
void probe_run_all(const probe_list *list, probe_run *run);
void probe_run_free(probe_run *run);

#endif
