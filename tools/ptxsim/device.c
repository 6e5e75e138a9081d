/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_DEVICE "sm_90a"
#define DEFAULT_SMS    4
#define MAX_SMS        1024

/* Memory is the host's, so it is kept well below what a machine that runs this has. */
static const device_model models[] = {
    {.arch = "sm_90a",
     .name = "Software GPU (sm_90a)",
     .compute_capability = 90,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .registers_per_sm = 65536,
     .shared_per_sm = 233472,
     .shared_per_block = 49152,
     .shared_per_block_optin = 232448,
     .shared_reserved = 1024,
     .l2_bytes = 50 << 20,
     .memory_bytes = (size_t)4 << 30},
};
#define NUM_MODELS (sizeof models / sizeof *models)

bool device_choose(device_model *model, char *error, size_t error_size) {
    const char *wanted = getenv("PTXSIM_DEVICE"), *sms = getenv("PTXSIM_SMS");
    if (!wanted || !*wanted)
        wanted = DEFAULT_DEVICE;
    size_t found = 0;
    while (found < NUM_MODELS && strcmp(models[found].arch, wanted) != 0)
        found++;
    if (found == NUM_MODELS) {
        int written = snprintf(error, error_size, "PTXSIM_DEVICE: '%s', accepted:", wanted);
        for (size_t i = 0; i < NUM_MODELS && written > 0 && (size_t)written < error_size; i++)
            written += snprintf(error + written, error_size - (size_t)written, " %s", models[i].arch);
        return false;
    }
    *model = models[found];
    model->num_sms = DEFAULT_SMS;
    if (sms && *sms) {
        char *end;
        long value = strtol(sms, &end, 10);
        if (*end || value < 1 || value > MAX_SMS) {
            snprintf(error, error_size, "PTXSIM_SMS: '%s', accepted: 1 to %d", sms, MAX_SMS);
            return false;
        }
        model->num_sms = (int)value;
    }
    return true;
}

bool device_runs(const device_model *model, const char *target) {
    int number = 0, used = 0;
    if (strcmp(target, model->arch) == 0)
        return true;
    return sscanf(target, "sm_%d%n", &number, &used) == 1 && !target[used] && number <= model->compute_capability;
}

bool device_attribute(const device_model *m, int attribute, int *value) {
    const struct {
        CUdevice_attribute attribute;
        int value;
    } table[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, m->compute_capability / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, m->compute_capability % 10},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, m->num_sms},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, m->threads_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, m->blocks_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, m->registers_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, m->registers_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, m->shared_per_block},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, m->shared_per_block_optin},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, m->shared_per_sm},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, m->shared_reserved},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, m->l2_bytes},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000}, /* kHz: a nanosecond is a cycle */
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 0},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0},
        {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == (CUdevice_attribute)attribute) {
            *value = table[i].value;
            return true;
        }
    return false;
}
