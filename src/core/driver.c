/* SPDX-License-Identifier: MIT */
#include "core/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/strbuf.h"

/* Where drivers lie when the loader's own search fails or meets a toolkit's stub first (LD_LIBRARY_PATH). */
static const char *const default_candidates[] = {
    "libcuda.so.1",
#if defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
#else
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
#endif
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
};

/* The file behind a handle (malloc); `name` if the loader does not say. */
static char *resolved_path(void *handle, const char *name) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) {
        char *real = realpath(map->l_name, NULL);
        return real ? real : strdup(map->l_name);
    }
    return strdup(name);
}

/* dlsym into every member; the name of the first symbol missing, NULL if all are there. */
static const char *load_table(attns_driver *driver) {
    const char *missing = NULL;
#define ATTNS_DRIVER_LOAD(member, symbol, params)                                                                      \
    {                                                                                                                  \
        void *address = dlsym(driver->handle, symbol);                                                                 \
        if (!address && !missing)                                                                                      \
            missing = symbol;                                                                                          \
        memcpy(&driver->member, &address, sizeof address);                                                             \
    }
    ATTNS_DRIVER_FUNCTIONS(ATTNS_DRIVER_LOAD)
#undef ATTNS_DRIVER_LOAD
    return missing;
}

static void discard(attns_driver *driver) {
    dlclose(driver->handle);
    free(driver->path);
    memset(driver, 0, sizeof *driver);
}

/* One candidate. ATTNS_ERROR_LIBRARY_NOT_FOUND adds the reason to `refused`; the caller may go on with the next. */
static attns_status open_candidate(attns_driver *driver, const char *name, attns_strbuf *refused) {
    const char *separator = refused->size ? "; " : "";
    driver->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!driver->handle) {
        const char *reason = dlerror();
        attns_strbuf_printf(refused, "%s%s (%s)", separator, name, reason ? reason : "cannot be opened");
        return ATTNS_ERROR_LIBRARY_NOT_FOUND;
    }
    driver->path = resolved_path(driver->handle, name);
    if (!driver->path) {
        discard(driver);
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while opening %s", name);
    }
    if (strstr(driver->path, "/stubs/") || strstr(name, "/stubs/")) {
        attns_strbuf_printf(refused, "%s%s (a CUDA toolkit's stub library, made for linking only: %s)", separator, name,
                            driver->path);
        discard(driver);
        return ATTNS_ERROR_LIBRARY_NOT_FOUND;
    }
    const char *missing = load_table(driver);
    if (missing) {
        attns_strbuf_printf(refused, "%s%s (%s has no %s: too old, a driver for CUDA 12.0 or newer is needed)",
                            separator, name, driver->path, missing);
        discard(driver);
        return ATTNS_ERROR_LIBRARY_NOT_FOUND;
    }
    CUresult result = driver->init(0);
    if (result == CUDA_SUCCESS)
        result = driver->driver_get_version(&driver->version);
    if (result == CUDA_ERROR_STUB_LIBRARY) {
        attns_strbuf_printf(refused, "%s%s (a CUDA toolkit's stub library, made for linking only: %s)", separator, name,
                            driver->path);
        discard(driver);
        return ATTNS_ERROR_LIBRARY_NOT_FOUND;
    }
    if (result != CUDA_SUCCESS) {
        attns_driver_check(driver, result, "cuInit");
        attns_status status = attns_fail(ATTNS_ERROR_CUDA, "%s [%s]", attns_last_error(), driver->path);
        discard(driver);
        return status;
    }
    return ATTNS_OK;
}

attns_status attns_driver_open(attns_driver *driver, const char *path) {
    memset(driver, 0, sizeof *driver);
    const char *const *candidates = path ? &path : default_candidates;
    size_t count = path ? 1 : sizeof default_candidates / sizeof default_candidates[0];

    attns_strbuf refused = {0};
    attns_status status = ATTNS_ERROR_LIBRARY_NOT_FOUND;
    for (size_t i = 0; i < count && status == ATTNS_ERROR_LIBRARY_NOT_FOUND; i++)
        status = open_candidate(driver, candidates[i], &refused);
    if (status == ATTNS_ERROR_LIBRARY_NOT_FOUND)
        attns_fail(status, "libcuda, the NVIDIA driver's library, cannot be used. Looked for: %s",
                   attns_strbuf_text(&refused));
    attns_strbuf_free(&refused);
    return status;
}

void attns_driver_close(attns_driver *driver) {
    /* The driver keeps threads and exit handlers of its own, so its code stays mapped. */
    free(driver->path);
    memset(driver, 0, sizeof *driver);
}

attns_status attns_driver_fail(const attns_driver *driver, CUresult result, const char *call) {
    const char *name = NULL, *text = NULL;
    if (driver->get_error_name(result, &name) != CUDA_SUCCESS || !name)
        return attns_fail(ATTNS_ERROR_CUDA, "%s: CUDA error %d", call, (int)result);
    if (driver->get_error_string(result, &text) != CUDA_SUCCESS || !text)
        return attns_fail(ATTNS_ERROR_CUDA, "%s: %s", call, name);
    return attns_fail(ATTNS_ERROR_CUDA, "%s: %s (%s)", call, name, text);
}
