/* SPDX-License-Identifier: MIT
 *
 * Code: modules and libraries from PTX text, their functions and attributes. */
#include "driver_state.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

#define MAX_REGISTERS 255

/* ---- Loading ---- */

static bool is_machine_code(const void *image) {
    static const uint8_t magics[][4] = {
        {0x7f, 'E', 'L', 'F'},    /* cubin */
        {0x50, 0xed, 0x55, 0xba}, /* fat binary */
        {0xb1, 0x43, 0x62, 0x46}, /* its wrapper */
    };
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (strncmp(image, (const char *)magics[i], sizeof magics[i]) == 0) /* stops at the end of a short text */
            return true;
    return false;
}

/* What the caller's JIT options ask to be told. */
static void fill_error_log(const char *text, unsigned count, const CUjit_option *options, void *const *values) {
    char *buffer = NULL;
    size_t size = 0;
    for (unsigned i = 0; options && values && i < count; i++)
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            buffer = values[i];
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            size = (size_t)(uintptr_t)values[i];
    if (buffer && size)
        snprintf(buffer, size, "%s", text);
}

static size_t image_size(const ptx_module *module) {
    size_t size = 0;
    for (int i = 0; i < module->num_variables; i++) {
        const ptx_variable *v = module->variables[i];
        if ((v->space == PTX_GLOBAL || v->space == PTX_CONST) && v->offset + v->size > size)
            size = v->offset + v->size;
    }
    return size;
}

/* `ctx`: the owner of a module, NULL for a library. */
static CUresult load(CUlibrary *out, const void *image, CUcontext ctx, unsigned count, const CUjit_option *options,
                     void *const *values) {
    char error[1024] = "";
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = capture_check_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (is_machine_code(image)) {
        snprintf(error, sizeof error,
                 "machine code cannot run on the software GPU: PTX is needed. With libattn_scores set ATTNS_LOAD_PTX=1 "
                 "(load_ptx of attns_context_params)");
        result = CUDA_ERROR_INVALID_IMAGE;
    }
    ptx_module *module = NULL;
    if (result == CUDA_SUCCESS) {
        module = ptx_module_parse(image, strlen(image), error, sizeof error);
        if (!module)
            result = CUDA_ERROR_INVALID_PTX;
    }
    if (module && module->version > TARGET_PTX_VERSION) {
        snprintf(error, sizeof error, ".version %d.%d is newer than %d.%d, the newest PTX that is understood",
                 module->version / 10, module->version % 10, TARGET_PTX_VERSION / 10, TARGET_PTX_VERSION % 10);
        result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    } else if (module && !device_runs(&driver.model, module->target)) {
        snprintf(error, sizeof error, ".target %s does not run on %s", module->target, driver.model.arch);
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    CUlibrary added = result == CUDA_SUCCESS ? object_add(OBJECT_LIBRARY, sizeof *added, ctx) : NULL;
    if (!added) {
        ptx_module_free(module);
        if (result == CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
        fill_error_log(error, count, options, values);
        driver_say("%s", error);
        return result;
    }
    added->module = module;
    added->image_bytes = image_size(module);
    *out = added;
    return CUDA_SUCCESS;
}

void library_remove(CUlibrary library) {
    queue_drain_context(NULL);
    queue_forget_all_kernels(); /* they may be of this library */
    for (object *at = driver.objects, *next; at; at = next) {
        next = at->next;
        if (at->kind == OBJECT_FUNCTION && ((CUfunction)(void *)at)->library == library) {
            memory_remove(((CUfunction)(void *)at)->image, true); /* the first of them; the others share it */
            object_remove(at);
        } else if (at->kind == OBJECT_KERNEL && ((CUkernel)(void *)at)->library == library) {
            object_remove(at);
        }
    }
    ptx_module_free(library->module);
    object_remove(library);
}

/* ---- Functions ---- */

/* The variables of the library's module in `ctx`: memory of its own for each context. */
static CUresult make_image(CUlibrary library, CUcontext ctx, CUdeviceptr *image) {
    *image = 0;
    if (!library->image_bytes)
        return CUDA_SUCCESS;
    for (const object *at = driver.objects; at; at = at->next) {
        const struct CUfunc_st *other = (const struct CUfunc_st *)(const void *)at;
        if (at->kind == OBJECT_FUNCTION && at->ctx == ctx && other->library == library) {
            *image = other->image;
            return CUDA_SUCCESS;
        }
    }
    CUresult result = memory_add(ctx, library->image_bytes, true, image);
    if (result != CUDA_SUCCESS)
        return result;
    uint8_t *bytes = (uint8_t *)(uintptr_t)*image;
    memset(bytes, 0, library->image_bytes);
    for (int i = 0; i < library->module->num_variables; i++) {
        const ptx_variable *v = library->module->variables[i];
        if ((v->space == PTX_GLOBAL || v->space == PTX_CONST) && v->init)
            memcpy(bytes + v->offset, v->init, v->size);
    }
    return CUDA_SUCCESS;
}

CUresult function_get(CUlibrary library, const ptx_function *code, CUcontext ctx, CUfunction *function) {
    for (object *at = driver.objects; at; at = at->next) {
        CUfunction found = (CUfunction)(void *)at;
        if (at->kind == OBJECT_FUNCTION && at->ctx == ctx && found->code == code) {
            *function = found;
            return CUDA_SUCCESS;
        }
    }
    CUdeviceptr image;
    CUresult result = make_image(library, ctx, &image);
    if (result != CUDA_SUCCESS)
        return result;
    CUfunction added = object_add(OBJECT_FUNCTION, sizeof *added, ctx);
    if (!added)
        return CUDA_ERROR_OUT_OF_MEMORY;
    added->library = library;
    added->code = code;
    added->image = image;
    added->max_dynamic_shared = driver.model.shared_per_block - (int)code->static_shared_bytes;
    if (added->max_dynamic_shared < 0)
        added->max_dynamic_shared = 0;
    added->carveout = CU_SHAREDMEM_CARVEOUT_DEFAULT;
    *function = added;
    return CUDA_SUCCESS;
}

/* PTX has as many registers as it likes; how few ptxas would need is unknown. This is the most that a kernel of so many
 * threads may have. */
int function_registers(const ptx_function *code) {
    int most = MAX_REGISTERS;
    if (code->max_threads) {
        int share = driver.model.registers_per_sm / code->max_threads / 8 * 8;
        most = share < most ? share : most;
    }
    return code->num_slots < most ? code->num_slots : most;
}

/* ---- Entry points: libraries ---- */

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options, void **jit_values,
                                   unsigned num_jit, CUlibraryOption *options, void **values, unsigned num_options) {
    (void)options, (void)values, (void)num_options; /* they are about lazy loading and who keeps the image */
    ENTER();
    LEAVE(load(library, image, NULL, num_jit, jit_options, jit_values));
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
    ENTER();
    if (!object_is(OBJECT_LIBRARY, library) || library->base.ctx)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    library_remove(library);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    ENTER();
    if (!kernel || !name)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(OBJECT_LIBRARY, library) || library->base.ctx)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    const ptx_function *code = ptx_module_find(library->module, name);
    if (!code || !code->is_entry)
        LEAVE(CUDA_ERROR_NOT_FOUND);
    CUkernel added = object_add(OBJECT_KERNEL, sizeof *added, NULL);
    if (!added)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    added->library = library;
    added->code = code;
    *kernel = added;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    ENTER_CONTEXT();
    if (!function)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(OBJECT_KERNEL, kernel))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    CUresult result = capture_check_unsafe(); /* the first call in a context loads the code there */
    LEAVE(result == CUDA_SUCCESS ? function_get(kernel->library, kernel->code, ctx, function) : result);
}

/* ---- Entry points: modules ---- */

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_CONTEXT();
    CUlibrary loaded = NULL;
    CUresult result = load(&loaded, module ? image : NULL, ctx, 0, NULL, NULL);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)(void *)loaded;
    LEAVE(result);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
    ENTER_CONTEXT();
    CUlibrary library = (CUlibrary)(void *)module;
    if (!object_is(OBJECT_LIBRARY, library) || !library->base.ctx)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    CUresult result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        library_remove(library);
    LEAVE(result);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER_CONTEXT();
    CUlibrary library = (CUlibrary)(void *)module;
    if (!function || !name)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(OBJECT_LIBRARY, library) || library->base.ctx != ctx)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    const ptx_function *code = ptx_module_find(library->module, name);
    if (!code || !code->is_entry)
        LEAVE(CUDA_ERROR_NOT_FOUND);
    LEAVE(function_get(library, code, ctx, function));
}

/* ---- Entry points: attributes ---- */

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER();
    if (!value)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(OBJECT_FUNCTION, function))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    const ptx_function *code = function->code;
    const ptx_module *module = function->library->module;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = code->max_threads ? code->max_threads : 1024;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)code->static_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = 0;
        for (int i = 0; i < module->num_variables; i++)
            if (module->variables[i]->space == PTX_CONST)
                *value += (int)module->variables[i]->size;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)code->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = function_registers(code);
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = module->version;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = driver.model.compute_capability;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function->carveout;
        break;
    default:
        driver_say("cuFuncGetAttribute: attribute %d is not modelled", (int)attribute);
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER();
    if (!object_is(OBJECT_FUNCTION, function))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > driver.model.shared_per_block_optin - (int)function->code->static_shared_bytes)
            LEAVE(CUDA_ERROR_INVALID_VALUE);
        function->max_dynamic_shared = value;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
            LEAVE(CUDA_ERROR_INVALID_VALUE);
        function->carveout = value;
        break;
    default:
        driver_say("cuFuncSetAttribute: attribute %d is not modelled", (int)attribute);
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                             size_t dynamic_shared) {
    ENTER();
    const device_model *m = &driver.model;
    if (!blocks || threads < 1)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(OBJECT_FUNCTION, function))
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    *blocks = 0;
    if (threads > 1024 || dynamic_shared > (size_t)function->max_dynamic_shared)
        LEAVE(CUDA_SUCCESS);
    int warps = (threads + 31) / 32;
    int registers = (function_registers(function->code) + 7) / 8 * 8;
    int shared = (int)(function->code->static_shared_bytes + dynamic_shared) + m->shared_reserved;
    const int bounds[] = {m->blocks_per_sm, m->threads_per_sm / (32 * warps), m->shared_per_sm / shared,
                          registers ? m->registers_per_sm / (32 * warps * registers) : m->blocks_per_sm};
    *blocks = bounds[0];
    for (size_t i = 1; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i] < *blocks)
            *blocks = bounds[i];
    LEAVE(CUDA_SUCCESS);
}
