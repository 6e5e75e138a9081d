/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptxsim.h"
#include "target.h"
#include "tensor_sum.h"

#define DEFAULT_DEVICE "sm_90a"
#define DEFAULT_SMS    4
#define MAX_SMS        1024
#define KIB            1024

/* Threads, blocks, registers and shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability"; of each compute capability the sizes of L2 of one well-known product. No such table has 10.7 yet: it
 * gets what 10.0 has (and CUDA 13.4's 576 columns of tensor memory are not modelled). Memory is the host's, so it is
 * kept well below what a machine that runs this has. */
#define MEMORY_BYTES ((size_t)4 << 30)
#define LARGE_SHARED                                                                                                   \
    .shared_per_sm = 228 * KIB, .shared_per_block_optin = 227 * KIB, .shared_per_block = 48 * KIB,                     \
    .shared_reserved = KIB
#define MEDIUM_SHARED                                                                                                  \
    .shared_per_sm = 164 * KIB, .shared_per_block_optin = 163 * KIB, .shared_per_block = 48 * KIB,                     \
    .shared_reserved = KIB
#define SMALL_SHARED                                                                                                   \
    .shared_per_sm = 100 * KIB, .shared_per_block_optin = 99 * KIB, .shared_per_block = 48 * KIB, .shared_reserved = KIB
#define MODEL(name, number, threads, blocks, l2_mib, columns)                                                          \
    .arch = name, .compute_capability = number, .threads_per_sm = threads, .blocks_per_sm = blocks,                    \
    .registers_per_sm = 65536, .l2_bytes = l2_mib * KIB * KIB, .tmem_columns = columns, .memory_bytes = MEMORY_BYTES

static const device_model models[] = {
    {MODEL("sm_80", 80, 2048, 32, 40, 0), MEDIUM_SHARED},      /* A100 */
    {MODEL("sm_86", 86, 1536, 16, 6, 0), SMALL_SHARED},        /* A10, RTX 3090 */
    {MODEL("sm_87", 87, 1536, 16, 4, 0), MEDIUM_SHARED},       /* Jetson Orin */
    {MODEL("sm_89", 89, 1536, 24, 72, 0), SMALL_SHARED},       /* RTX 4090, L40 */
    {MODEL("sm_90a", 90, 2048, 32, 50, 0), LARGE_SHARED},      /* H100 */
    {MODEL("sm_100a", 100, 2048, 32, 126, 512), LARGE_SHARED}, /* B200 */
    {MODEL("sm_103a", 103, 2048, 32, 126, 512), LARGE_SHARED}, /* B300 */
    {MODEL("sm_107a", 107, 2048, 32, 126, 512), LARGE_SHARED}, /* Rubin */
    {MODEL("sm_110a", 110, 1536, 24, 32, 512), LARGE_SHARED},  /* Jetson Thor */
    {MODEL("sm_120a", 120, 1536, 24, 96, 0), SMALL_SHARED},    /* RTX 5090 */
    {MODEL("sm_121a", 121, 1536, 24, 24, 0), SMALL_SHARED},    /* GB10 */
};
#define NUM_MODELS (sizeof models / sizeof *models)

const char *ptxsim_device_name(size_t index) {
    return index < NUM_MODELS ? models[index].arch : NULL;
}

/* Also without the suffix, or with that of the family. */
static const device_model *find(const char *arch) {
    ptx_target wanted, target;
    if (!target_parse(arch, &wanted))
        return NULL;
    for (size_t i = 0; i < NUM_MODELS; i++)
        if (target_parse(models[i].arch, &target) && target.number == wanted.number)
            return !wanted.suffix || target.suffix ? &models[i] : NULL;
    return NULL;
}

static bool read_number(const char *variable, int min, int max, int otherwise, int *value, char *error,
                        size_t error_size) {
    const char *text = getenv(variable);
    *value = otherwise;
    if (!text || !*text)
        return true;
    char *end;
    const long number = strtol(text, &end, 10);
    if (*end || number < min || number > max) {
        snprintf(error, error_size, "%s: '%s', accepted: %d to %d", variable, text, min, max);
        return false;
    }
    *value = (int)number;
    return true;
}

static bool read_tensor_bits(device_model *model, char *error, size_t error_size) {
    const char *text = getenv("PTXSIM_TENSOR_BITS");
    if (!text || strcmp(text, "hopper") != 0)
        return read_number("PTXSIM_TENSOR_BITS", TENSOR_MIN_BITS, TENSOR_MAX_BITS, TENSOR_EXACT, &model->tensor_bits,
                           error, error_size);
    model->tensor_bits = TENSOR_HOPPER;
    if (model->compute_capability == 90)
        return true;
    snprintf(error, error_size, "PTXSIM_TENSOR_BITS: hopper is for sm_90a; PTXSIM_DEVICE is %s", model->arch);
    return false;
}

bool device_choose(device_model *model, char *error, size_t error_size) {
    const char *wanted = getenv("PTXSIM_DEVICE");
    if (!wanted || !*wanted)
        wanted = DEFAULT_DEVICE;
    const device_model *found = find(wanted);
    if (!found) {
        int written = snprintf(error, error_size, "PTXSIM_DEVICE: '%s', accepted:", wanted);
        for (size_t i = 0; i < NUM_MODELS && written > 0 && (size_t)written < error_size; i++)
            written += snprintf(error + written, error_size - (size_t)written, " %s", models[i].arch);
        return false;
    }
    *model = *found;
    snprintf(model->name, sizeof model->name, "Software GPU (%s)", model->arch);
    return read_number("PTXSIM_SMS", 1, MAX_SMS, DEFAULT_SMS, &model->num_sms, error, error_size) &&
           read_tensor_bits(model, error, error_size);
}

bool device_runs(const device_model *model, const char *target) {
    ptx_target parsed;
    return target_parse(target, &parsed) && target_runs(&parsed, model->compute_capability);
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
        {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, m->compute_capability >= 90},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == (CUdevice_attribute)attribute) {
            *value = table[i].value;
            return true;
        }
    return false;
}
