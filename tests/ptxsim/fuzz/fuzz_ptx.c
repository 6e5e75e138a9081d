/* SPDX-License-Identifier: MIT
 *
 * libFuzzer: any text is loaded as a module, and what loads is run for a while on one warp. Nothing may crash, leak or
 * run on; that a kernel is refused or faults is fine. fuzz.py builds and runs it. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "sim.h"

enum { BUFFER_BYTES = 4096, MAX_IMAGE = 1 << 20, MAX_LOCAL = 1 << 14, MAX_SLOTS = 4096, STEPS = 5000 };

static size_t image_bytes(const ptx_module *module) {
    size_t size = 0;
    for (int i = 0; i < module->num_variables; i++) {
        const ptx_variable *v = module->variables[i];
        if ((v->space == PTX_GLOBAL || v->space == PTX_CONST) && v->offset + v->size > size)
            size = v->offset + v->size;
    }
    return size;
}

/* Every 8 bytes of the parameters are the buffer's address. */
static void run(const ptx_module *module, const ptx_function *function, uint8_t *image, size_t size) {
    static uint8_t buffer[BUFFER_BYTES] __attribute__((aligned(256)));
    const uint64_t address = (uint64_t)(uintptr_t)buffer;
    uint8_t *params = calloc(function->param_bytes + 8, 1);
    sim_device device;
    sim_device_init(&device);
    for (size_t i = 0; i < function->param_bytes; i += 8)
        memcpy(params + i, &address, 8);
    if (sim_range_add(&device, address, sizeof buffer, true) &&
        (size == 0 || sim_range_add(&device, (uint64_t)(uintptr_t)image, size, true))) {
        sim_launch launch = {.device = &device,
                             .module = module,
                             .function = function,
                             .module_image = image,
                             .grid = {1, 1, 1},
                             .block = {function->max_threads > 0 && function->max_threads < 40 ? 1 : 40, 1, 1},
                             .params = params,
                             .dynamic_shared_bytes = 1024,
                             .seed = 1,
                             .step_limit = STEPS,
                             .num_sms = 1};
        sim_run(&launch);
    }
    sim_device_destroy(&device);
    free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[256];
    ptx_module *module = ptx_module_parse((const char *)data, size, error, sizeof error);
    if (!module)
        return 0;
    const size_t image_size = image_bytes(module);
    uint8_t *image = image_size <= MAX_IMAGE ? aligned_alloc(4096, (image_size + 4096) & ~(size_t)4095) : NULL;
    for (int i = 0; i < module->num_functions && image; i++) {
        const ptx_function *f = &module->functions[i];
        memset(image, 0, image_size);
        if (f->is_entry && f->local_bytes <= MAX_LOCAL && f->num_slots <= MAX_SLOTS)
            run(module, f, image, image_size);
    }
    free(image);
    ptx_module_free(module);
    return 0;
}
