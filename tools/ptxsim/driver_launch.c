/* SPDX-License-Identifier: MIT
 *
 * Kernel launches: what the driver refuses, and running the machine. */
#include "driver_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- Running ---- */

void kernel_run(CUstream stream, const operation *op) {
    CUcontext ctx = stream->base.ctx;
    CUfunction function = op->kernel.function;
    if (!object_is(OBJECT_FUNCTION, function) || function->base.id != op->kernel.function_id) {
        context_fault(ctx, "a graph launches a kernel whose module has been unloaded", NULL);
        return;
    }
    sim_launch launch = {
        .device = &driver.device,
        .module = function->library->module,
        .function = function->code,
        .module_image = (uint8_t *)(uintptr_t)function->image,
        .grid = op->kernel.grid,
        .block = op->kernel.block,
        .params = op->kernel.params,
        .dynamic_shared_bytes = op->kernel.dynamic_shared,
        .seed = driver.seed * UINT64_C(0x9e3779b97f4a7c15) + driver.launches,
        .num_sms = driver.model.num_sms,
        .tensor_bits = driver.model.tensor_bits,
        .grid_id = driver.launches,
        .keep_race = true,
        .ignore_races = driver.ignore_races,
    };
    uint64_t number = driver.launches++;
    if (!op->kernel.overlaps || op->kernel.chain != stream->chain)
        queue_forget_kernels(stream);
    stream->chain = op->kernel.chain;
    launch.before = stream->before;
    launch.num_before = stream->num_before;
    bool done = sim_run(&launch);
    if (launch.race)
        queue_note_kernel(stream, launch.race, launch.waited_first);
    if (done)
        return;
    char report[sizeof driver.last_fault];
    snprintf(report, sizeof report,
             "%s\n  launch %llu of the process, grid %u x %u x %u, block %u x %u x %u, %zu bytes of "
             "dynamic shared memory; PTXSIM_SEED=%llu",
             launch.fault, (unsigned long long)number, launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
             launch.block.y, launch.block.z, launch.dynamic_shared_bytes, (unsigned long long)driver.seed);
    context_fault(ctx, report, &launch);
}

/* ---- Launching ---- */

static CUresult refuse(const struct CUfunc_st *function, const char *what, unsigned long long value,
                       unsigned long long limit) {
    driver_say("launch of %s refused: %s %llu, accepted: at most %llu", function->code->name, what, value, limit);
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_shape(const struct CUfunc_st *function, const CUlaunchConfig *c) {
    const ptx_function *code = function->code;
    if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !c->blockDimX || !c->blockDimY || !c->blockDimZ) {
        driver_say("launch of %s refused: an empty grid or block (%u x %u x %u, %u x %u x %u)", code->name, c->gridDimX,
                   c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ);
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned long long threads = (unsigned long long)c->blockDimX * c->blockDimY * c->blockDimZ;
    const struct {
        const char *what;
        unsigned long long value, limit;
    } limits[] = {
        {"grid x", c->gridDimX, 2147483647},
        {"grid y", c->gridDimY, 65535},
        {"grid z", c->gridDimZ, 65535},
        {"block x", c->blockDimX, 1024},
        {"block y", c->blockDimY, 1024},
        {"block z", c->blockDimZ, 64},
        {"threads", threads, 1024},
        {"threads (.maxntid)", threads, code->max_threads ? (unsigned long long)code->max_threads : 1024},
        {"bytes of dynamic shared memory", c->sharedMemBytes, (unsigned long long)function->max_dynamic_shared},
        {"bytes of shared memory", code->static_shared_bytes + c->sharedMemBytes,
         (unsigned long long)driver.model.shared_per_block_optin},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value > limits[i].limit)
            return refuse(function, limits[i].what, limits[i].value, limits[i].limit);
    return CUDA_SUCCESS;
}

static CUresult check_attributes(const struct CUfunc_st *function, const CUlaunchConfig *c, bool *overlaps) {
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute *a = &c->attrs[i];
        switch (a->id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            *overlaps = a->value.programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            if (a->value.clusterDim.x == 1 && a->value.clusterDim.y == 1 && a->value.clusterDim.z == 1)
                break;
            driver_say("launch of %s refused: clusters of more than one CTA are not modelled", function->code->name);
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            driver_say("launch of %s refused: launch attribute %d is not modelled", function->code->name, (int)a->id);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

/* Copies the arguments to malloc'ed memory: from an array of pointers, or from a packed buffer. */
static CUresult collect_params(const ptx_function *code, void **params, void **extra, uint8_t **out) {
    uint8_t *bytes = calloc(1, code->param_bytes ? code->param_bytes : 1);
    if (!bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const void *buffer = NULL;
    size_t size = 0;
    for (void **at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2)
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
        else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(const size_t *)at[1];
    bool complete = !params || !extra;
    if (extra) {
        complete = complete && buffer && size == code->param_bytes;
        if (complete)
            memcpy(bytes, buffer, size);
    } else {
        for (int i = 0; i < code->num_params && complete; i++) {
            complete = params && params[i];
            if (complete)
                memcpy(bytes + code->params[i].offset, params[i], code->params[i].size);
        }
    }
    if (!complete) {
        free(bytes);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = bytes;
    return CUDA_SUCCESS;
}

static CUresult launch(CUcontext ctx, const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    CUstream stream;
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_find(ctx, config->hStream, &stream);
    bool overlaps = false;
    if (result != CUDA_SUCCESS)
        return result;
    CUkernel kernel = (CUkernel)(void *)function;
    if (object_is(OBJECT_KERNEL, kernel)) /* a CUkernel may be launched by its own handle */
        result = function_get(kernel->library, kernel->code, ctx, &function);
    if (result == CUDA_SUCCESS && (!object_is(OBJECT_FUNCTION, function) || function->base.ctx != ctx))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = check_shape(function, config);
    if (result == CUDA_SUCCESS)
        result = check_attributes(function, config, &overlaps);
    operation op = {.kind = OPERATION_KERNEL};
    if (result == CUDA_SUCCESS)
        result = collect_params(function->code, params, extra, &op.kernel.params);
    if (result != CUDA_SUCCESS)
        return result;
    op.kernel.function = function;
    op.kernel.function_id = function->base.id;
    op.kernel.grid = (sim_dim){config->gridDimX, config->gridDimY, config->gridDimZ};
    op.kernel.block = (sim_dim){config->blockDimX, config->blockDimY, config->blockDimZ};
    op.kernel.dynamic_shared = config->sharedMemBytes;
    op.kernel.param_bytes = function->code->param_bytes;
    op.kernel.overlaps = overlaps;
    op.kernel.chain = stream->capture ? stream->base.id : 0;
    return stream_submit(stream, &op);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    ENTER_CONTEXT();
    LEAVE(launch(ctx, config, function, params, extra));
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                                void **params, void **extra) {
    ENTER_CONTEXT();
    CUlaunchConfig config = {.gridDimX = grid_x,
                             .gridDimY = grid_y,
                             .gridDimZ = grid_z,
                             .blockDimX = block_x,
                             .blockDimY = block_y,
                             .blockDimZ = block_z,
                             .sharedMemBytes = shared,
                             .hStream = stream};
    LEAVE(launch(ctx, &config, function, params, extra));
}
