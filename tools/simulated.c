/* SPDX-License-Identifier: MIT */
#include "simulated.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define LIBRARY "libptxsim_cuda.so"
#define PREFIX  "sim:"

/* Path of the library, "" if there is none. */
static const char *find_library(void) {
    /* From the command's folder: SIMULATED_FOLDER is where it is installed. */
    static const char *const folders[] = {"", "ptxsim/", SIMULATED_FOLDER "/"};
    static char path[PATH_MAX];
    char folder[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0)
        return "";
    folder[length] = '\0';
    *(strrchr(folder, '/') + 1) = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const int written = snprintf(path, sizeof path, "%s%s" LIBRARY, folder, folders[i]);
        if (written > 0 && (size_t)written < sizeof path && access(path, R_OK) == 0)
            return path;
    }
    return "";
}

const char *simulated_name(size_t index) {
    static const char *(*name_of)(size_t);
    const char *path = find_library();
    if (!name_of && *path) {
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void *symbol = handle ? dlsym(handle, "ptxsim_device_name") : NULL;
        memcpy(&name_of, &symbol, sizeof symbol);
    }
    return name_of ? name_of(index) : NULL;
}

static void refuse(const struct argp_state *state, const char *option, const char *device) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; simulated_name(i) && used < sizeof names; i++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s" PREFIX "%s", used ? ", " : "", simulated_name(i));
    argp_error(state, "%s: '%s' is not accepted; simulated devices are %s", option, device, names);
}

bool simulated_use(const struct argp_state *state, const char *option, const char *device,
                   attns_context_params *context) {
    if (strncmp(device, PREFIX, strlen(PREFIX)) != 0)
        return false;
    const char *name = device + strlen(PREFIX);
    if (!simulated_name(0)) {
        argp_failure(state, CLI_NO_GPU, 0, "%s: '%s': " LIBRARY " is neither beside this command nor installed", option,
                     device);
        return true;
    }
    size_t i = 0;
    while (simulated_name(i) && strcmp(simulated_name(i), name) != 0)
        i++;
    if (!simulated_name(i))
        refuse(state, option, device);
    context->libcuda_path = find_library();
    context->load_ptx = true;
    setenv("PTXSIM_DEVICE", name, 1);
    return true;
}
