/* SPDX-License-Identifier: MIT
 *
 * Finding NVRTC: which libraries there are, what they know, which one compiles for a target. */
#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/strbuf.h"
#include "jit/nvrtc_library.h"

#define MIN_VERSION 12080 /* the first that compiles for sm_100 and newer */

struct attns_nvrtc_set {
    attns_nvrtc **libraries; /* the one to prefer first */
    size_t count;
    char *archs;
};

static const char *const default_sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
static const char *const default_patterns[] = {
    "/usr/local/cuda*/lib64/libnvrtc.so.[0-9]*",
    "/usr/local/cuda*/lib/libnvrtc.so.[0-9]*",
    "/usr/local/cuda*/targets/*/lib/libnvrtc.so.[0-9]*",
};

/* ---- Opening one library ---- */

static void library_free(attns_nvrtc *library) {
    free(library->path);
    free(library->archs);
    free(library);
}

static bool is_known_path(const attns_nvrtc_set *set, const char *real_path) {
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->libraries[i]->path, real_path) == 0)
            return true;
    return false;
}

static char *real_path_of_handle(void *handle, const char *name) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) {
        char *real = realpath(map->l_name, NULL);
        return real ? real : strdup(map->l_name);
    }
    return strdup(name);
}

static const char *load_api(void *handle, attns_nvrtc_api *api) {
    const char *missing = NULL;
    void *address;
#define ATTNS_NVRTC_LOAD(member, symbol, params)                                                                       \
    address = dlsym(handle, symbol);                                                                                   \
    if (!address && !missing)                                                                                          \
        missing = symbol;                                                                                              \
    memcpy(&api->member, &address, sizeof address);
    ATTNS_NVRTC_FUNCTIONS(ATTNS_NVRTC_LOAD)
    ATTNS_NVRTC_LOAD(error_string, "nvrtcGetErrorString", )
#undef ATTNS_NVRTC_LOAD
    return missing;
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* NVRTC opens its builtins by SONAME when it compiles and has no search path of its own, so a copy outside the
 * loader's path (a wheel, an unpacked toolkit) works only if the file beside it is loaded first. */
static void load_builtins(attns_nvrtc *library) {
    snprintf(library->builtins, sizeof library->builtins, "libnvrtc-builtins.so.%d.%d", library->version / 1000,
             library->version % 1000 / 10);
    attns_strbuf beside = {0};
    const char *slash = strrchr(library->path, '/');
    if (slash)
        attns_strbuf_append(&beside, library->path, (size_t)(slash - library->path) + 1);
    attns_strbuf_puts(&beside, library->builtins);
    library->has_builtins = (!beside.failed && dlopen(beside.text, RTLD_LAZY | RTLD_LOCAL)) ||
                            dlopen(library->builtins, RTLD_LAZY | RTLD_LOCAL);
    attns_strbuf_free(&beside);
}

typedef struct build_id_search {
    uintptr_t base;
    uint16_t folded;
} build_id_search;

/* Folds the GNU build id of the object at `base`: the note of that name and type in its headers (System V ABI, "Note
 * Section"; ld's --build-id). */
static int find_build_id(struct dl_phdr_info *object, size_t size, void *user) {
    (void)size;
    build_id_search *search = user;
    if (object->dlpi_addr != search->base)
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        const char *at = (const char *)(object->dlpi_addr + header->p_vaddr);
        const char *end = at + header->p_memsz;
        while (header->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            const size_t name_size = ((size_t)note.n_namesz + 3) / 4 * 4, id_size = ((size_t)note.n_descsz + 3) / 4 * 4;
            at += sizeof note;
            if (name_size > (size_t)(end - at) || id_size > (size_t)(end - at) - name_size)
                break;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at, "GNU", 4) == 0)
                for (size_t k = 0; k < note.n_descsz; k++)
                    search->folded = (uint16_t)(search->folded * 31u + (unsigned char)at[name_size + k]);
            at += name_size + id_size;
        }
    }
    return 1;
}

static uint16_t build_id_of_handle(void *handle) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map)
        return 0;
    build_id_search search = {.base = map->l_addr};
    dl_iterate_phdr(find_build_id, &search);
    return search.folded;
}

/* Fills version and targets from the library itself. NULL, or why it cannot be used (written to `reason`). */
static const char *interrogate(attns_nvrtc *library, char reason[128]) {
    const char *missing = load_api(library->handle, &library->api);
    if (missing) {
        snprintf(reason, 128, "has no %s: too old, 12.8 or newer is needed", missing);
        return reason;
    }
    int major = 0, minor = 0;
    if (library->api.version(&major, &minor) != ATTNS_NVRTC_SUCCESS)
        return "nvrtcVersion fails";
    library->version = major * 1000 + minor * 10;
    library->build_id = build_id_of_handle(library->handle);
    if (library->version < MIN_VERSION) {
        snprintf(reason, 128, "version %d.%d, 12.8 or newer is needed", major, minor);
        return reason;
    }
    if (library->api.num_supported_archs(&library->num_archs) != ATTNS_NVRTC_SUCCESS || library->num_archs <= 0)
        return "names no targets";
    library->archs = malloc((size_t)library->num_archs * sizeof *library->archs);
    if (!library->archs)
        return "out of memory";
    if (library->api.supported_archs(library->archs) != ATTNS_NVRTC_SUCCESS)
        return "names no targets";
    qsort(library->archs, (size_t)library->num_archs, sizeof *library->archs, compare_ints);
    return NULL;
}

static void refuse(attns_strbuf *refused, const char *name, const char *path, const char *reason) {
    attns_strbuf_printf(refused, "%s%s", refused->size ? "; " : "", name);
    if (path && strcmp(path, name) != 0)
        attns_strbuf_printf(refused, " -> %s", path);
    attns_strbuf_printf(refused, " (%s)", reason);
}

/* Adds the library if it is usable and not in the set already; otherwise says in `refused` why not. */
static bool try_library(attns_nvrtc_set *set, const char *name, attns_strbuf *refused) {
    if (strchr(name, '/')) { /* known files need not be opened again, and realpath's error is clearer than dlopen's */
        char *real = realpath(name, NULL);
        if (!real) {
            refuse(refused, name, NULL, strerror(errno));
            return true;
        }
        bool known = is_known_path(set, real);
        free(real);
        if (known)
            return true;
    }
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        refuse(refused, name, NULL, reason ? reason : "cannot be opened");
        return true;
    }
    attns_nvrtc *library = calloc(1, sizeof *library);
    if (library)
        library->path = real_path_of_handle(handle, name);
    attns_nvrtc **grown = NULL;
    if (library && library->path)
        grown = realloc(set->libraries, (set->count + 1) * sizeof *grown);
    if (!grown) {
        if (library)
            library_free(library);
        dlclose(handle);
        return false;
    }
    set->libraries = grown;
    library->handle = handle;
    char text[128];
    const char *reason = NULL;
    bool known = is_known_path(set, library->path);
    if (!known)
        reason = interrogate(library, text);
    if (known || reason) {
        if (reason)
            refuse(refused, name, library->path, reason);
        library_free(library);
        dlclose(handle);
        return true;
    }
    load_builtins(library);
    set->libraries[set->count++] = library;
    return true;
}

/* ---- The set ---- */

/* Complete libraries first, then the newest; equal ones stay in the order found. */
static bool goes_before(const attns_nvrtc *a, const attns_nvrtc *b) {
    if (a->has_builtins != b->has_builtins)
        return a->has_builtins;
    return a->version > b->version;
}

static void sort_libraries(attns_nvrtc_set *set) {
    for (size_t i = 1; i < set->count; i++)
        for (size_t j = i; j > 0 && goes_before(set->libraries[j], set->libraries[j - 1]); j--) {
            attns_nvrtc *swapped = set->libraries[j];
            set->libraries[j] = set->libraries[j - 1];
            set->libraries[j - 1] = swapped;
        }
}

/* "sm_75 sm_80 ...": what any of the libraries knows. */
static char *union_of_archs(const attns_nvrtc_set *set) {
    attns_strbuf text = {0};
    for (int last = 0;;) {
        int next = 0;
        for (size_t i = 0; i < set->count; i++)
            for (int k = 0; k < set->libraries[i]->num_archs; k++) {
                int arch = set->libraries[i]->archs[k];
                if (arch > last && (!next || arch < next))
                    next = arch;
            }
        if (!next)
            return attns_strbuf_take(&text);
        attns_strbuf_printf(&text, "%ssm_%d", text.size ? " " : "", next);
        last = next;
    }
}

/* ':'-separated files or SONAMEs. */
static bool try_list(attns_nvrtc_set *set, const char *paths, attns_strbuf *refused) {
    char *list = strdup(paths);
    if (!list)
        return false;
    bool memory_left = true;
    char *rest = NULL;
    for (char *name = strtok_r(list, ":", &rest); name && memory_left; name = strtok_r(NULL, ":", &rest))
        memory_left = try_library(set, name, refused);
    free(list);
    return memory_left;
}

static bool try_usual_places(attns_nvrtc_set *set, attns_strbuf *refused) {
    for (size_t i = 0; i < sizeof default_sonames / sizeof default_sonames[0]; i++)
        if (!try_library(set, default_sonames[i], refused))
            return false;
    for (size_t i = 0; i < sizeof default_patterns / sizeof default_patterns[0]; i++) {
        glob_t found = {0};
        bool memory_left = true;
        if (glob(default_patterns[i], 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc && memory_left; k++)
                memory_left = try_library(set, found.gl_pathv[k], refused);
        } else {
            refuse(refused, default_patterns[i], NULL, "no such file");
        }
        globfree(&found);
        if (!memory_left)
            return false;
    }
    return true;
}

attns_status attns_nvrtc_set_open(attns_nvrtc_set **out, const char *paths, const attns_logger *logger) {
    *out = NULL;
    attns_strbuf refused = {0};
    attns_nvrtc_set *set = calloc(1, sizeof *set);
    bool memory_left = set && (paths ? try_list(set, paths, &refused) : try_usual_places(set, &refused));
    if (memory_left && set->count) {
        sort_libraries(set);
        set->archs = union_of_archs(set);
        memory_left = set->archs != NULL;
    }
    attns_status status = ATTNS_OK;
    if (!memory_left)
        status = attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory while looking for libnvrtc");
    else if (!set->count)
        status =
            attns_fail(ATTNS_ERROR_LIBRARY_NOT_FOUND,
                       "libnvrtc, CUDA's run-time compiler, cannot be used (12.8 or newer is needed). Looked for: %s",
                       refused.size ? refused.text : "nothing, the list of paths is empty");
    attns_strbuf_free(&refused);
    if (status != ATTNS_OK) {
        attns_nvrtc_set_close(set);
        return status;
    }
    for (size_t i = 0; i < set->count; i++) {
        const attns_nvrtc *library = set->libraries[i];
        attns_log(logger, ATTNS_LOG_DEBUG, "NVRTC %d.%d: %s", library->version / 1000, library->version % 1000 / 10,
                  library->path);
        if (!library->has_builtins)
            attns_log(logger, ATTNS_LOG_WARNING, "%s: its companion %s is neither beside it nor in the loader's path",
                      library->path, library->builtins);
    }
    *out = set;
    return ATTNS_OK;
}

void attns_nvrtc_set_close(attns_nvrtc_set *set) {
    if (!set)
        return;
    /* The libraries stay mapped: a compile may have left exit handlers, and reopening them costs as much as a compile.
     */
    for (size_t i = 0; i < set->count; i++)
        library_free(set->libraries[i]);
    free(set->libraries);
    free(set->archs);
    free(set);
}

/* ---- Targets ---- */

/* "sm_90a" or "compute_90a" -> 90 and 'a' (0 without a suffix). */
static bool parse_arch(const char *arch, int *number, char *suffix) {
    int used = 0;
    *suffix = 0;
    if (sscanf(arch, "sm_%4d%n", number, &used) != 1 && sscanf(arch, "compute_%4d%n", number, &used) != 1)
        return false;
    if (arch[used] == 'a' || arch[used] == 'f')
        *suffix = arch[used++];
    return arch[used] == '\0' && *number > 0;
}

static bool knows(const attns_nvrtc *library, int number, char suffix) {
    if ((suffix == 'a' && number < 90) || (suffix == 'f' && (number < 100 || library->version < 12090)))
        return false;
    return bsearch(&number, library->archs, (size_t)library->num_archs, sizeof number, compare_ints) != NULL;
}

attns_status attns_nvrtc_for_arch(attns_nvrtc_set *set, const char *arch, const attns_nvrtc **nvrtc) {
    int number = 0;
    char suffix = 0;
    if (parse_arch(arch, &number, &suffix))
        for (size_t i = 0; i < set->count; i++)
            if (knows(set->libraries[i], number, suffix)) {
                *nvrtc = set->libraries[i];
                return ATTNS_OK;
            }
    const attns_nvrtc *newest = attns_nvrtc_newest(set);
    return attns_fail(
        ATTNS_ERROR_UNSUPPORTED_DEVICE,
        "arch: %s is not a target of NVRTC %d.%d (%s), which knows: %s (from sm_90 on also with the suffix "
        "a, from sm_100 on with f)",
        arch, newest->version / 1000, newest->version % 1000 / 10, newest->path, set->archs);
}

const char *attns_nvrtc_path(const attns_nvrtc *nvrtc) {
    return nvrtc->path;
}

uint32_t attns_nvrtc_build(const attns_nvrtc *nvrtc) {
    return (uint32_t)nvrtc->version << 16 | nvrtc->build_id;
}

int attns_nvrtc_version(const attns_nvrtc *nvrtc) {
    return nvrtc->version;
}

const attns_nvrtc *attns_nvrtc_newest(const attns_nvrtc_set *set) {
    return set->libraries[0];
}

const char *attns_nvrtc_archs(const attns_nvrtc_set *set) {
    return set->archs;
}
