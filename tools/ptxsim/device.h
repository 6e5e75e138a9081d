/* SPDX-License-Identifier: MIT
 *
 * The device that the software GPU poses as. */
#ifndef PTXSIM_DEVICE_H_
#define PTXSIM_DEVICE_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct device_model {
    char arch[16]; /* "sm_90a" */
    char name[128];
    int compute_capability; /* 90 for 9.0 */
    int num_sms;
    int tensor_bits; /* of PTXSIM_TENSOR_BITS: tensor_sum.h */
    int threads_per_sm, blocks_per_sm, registers_per_sm;
    int shared_per_sm, shared_per_block, shared_per_block_optin, shared_reserved;
    int l2_bytes;
    int tmem_columns; /* of tensor memory, per SM; 0: none */
    size_t memory_bytes;
} device_model;

/* Reads PTXSIM_DEVICE ("sm_90a" if unset), PTXSIM_SMS (4 if unset) and PTXSIM_TENSOR_BITS (0 if unset). false with the
 * reason, which names the value and what is accepted. */
bool device_choose(device_model *model, char *error, size_t error_size);

/* Whether PTX with this .target runs on the model (target_runs). */
bool device_runs(const device_model *model, const char *target);

/* A CUdevice_attribute's value; false if this device does not know it. */
bool device_attribute(const device_model *model, int attribute, int *value);

#endif
