/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

enum { START_SECONDS = 20, SECONDS = 5, MAX_PROCESSES = 100 };
enum { ALL_DONE = 0, NO_DEVICE = 2, CONTEXT_LOST = 3 };

/* What the processes share. */
typedef struct shared {
    probe_run run;
    size_t next; /* the probe to go on with */
    probe_result results[];
} shared;

/* ---- One probe ---- */

static bool failed(const struct gpu *gpu, CUresult result, const char *call, probe_result *r) {
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return false;
    if (gpu->get_error_name(result, &name) != CUDA_SUCCESS)
        name = NULL;
    snprintf(r->error, sizeof r->error, "%s: %s", call, name ? name : "unknown error");
    return true;
}

static bool encode(const struct gpu *gpu, const probe_map *m, CUdeviceptr in, CUdeviceptr out, CUtensorMap *map,
                   probe_result *r) {
    CUresult(CUDAAPI * encode_tiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                     const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = NULL;
    void *address = dlsym(gpu->handle, "cuTensorMapEncodeTiled");
    memcpy(&encode_tiled, &address, sizeof address);
    if (!encode_tiled) {
        snprintf(r->error, sizeof r->error, "there is no cuTensorMapEncodeTiled");
        return false;
    }
    cuuint64_t sizes[5], strides[4];
    for (int d = 0; d < 5; d++)
        sizes[d] = m->sizes[d];
    for (int d = 0; d < 4; d++)
        strides[d] = m->strides[d];
    const CUdeviceptr base = (m->of_out ? out : in) + m->offset;
    const CUtensorMapFloatOOBfill fill =
        m->fill_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    return !failed(gpu,
                   encode_tiled(map, (CUtensorMapDataType)m->data_type, m->rank, (void *)(uintptr_t)base, sizes,
                                strides, m->box, m->element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                (CUtensorMapSwizzle)m->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, fill),
                   "cuTensorMapEncodeTiled", r);
}

/* false if the context may be lost. */
static bool launch(const struct gpu *gpu, const probe *p, CUfunction function, CUdeviceptr in, CUdeviceptr out,
                   probe_result *r) {
    CUtensorMap map;
    if (p->map.rank && !encode(gpu, &p->map, in, out, &map, r))
        return true;
    void *params[] = {&out, &in, &map};
    if (failed(gpu, gpu->memset_d8(out, PROBE_POISON, p->out_bytes), "cuMemsetD8", r) ||
        (p->in_bytes && failed(gpu, gpu->memcpy_htod(in, p->in, p->in_bytes), "cuMemcpyHtoD", r)) ||
        failed(gpu,
               gpu->launch_kernel(function, p->ctas, 1, 1, p->threads, 1, 1, (unsigned)p->shared_bytes, NULL, params,
                                  NULL),
               "cuLaunchKernel", r) ||
        failed(gpu, gpu->ctx_synchronize(), "cuCtxSynchronize", r) ||
        failed(gpu, gpu->memcpy_dtoh(r->out, out, p->out_bytes), "cuMemcpyDtoH", r))
        return false;
    r->done = true;
    return true;
}

static bool run_one(const struct gpu *gpu, const probe *p, probe_result *r) {
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr in = 0, out = 0;
    if (p->ptx.failed) {
        snprintf(r->error, sizeof r->error, "out of memory");
        return true;
    }
    if (failed(gpu, gpu->module_load_data(&module, attns_strbuf_text(&p->ptx)), "cuModuleLoadData", r))
        return true;
    bool usable = true;
    if (!failed(gpu, gpu->module_get_function(&function, module, "probe"), "cuModuleGetFunction", r) &&
        !failed(gpu, gpu->mem_alloc(&out, p->out_bytes), "cuMemAlloc", r) &&
        !failed(gpu, gpu->mem_alloc(&in, p->in_bytes ? p->in_bytes : 1), "cuMemAlloc", r))
        usable = launch(gpu, p, function, in, out, r);
    if (usable) {
        gpu->mem_free(in);
        gpu->mem_free(out);
        gpu->module_unload(module);
    }
    return usable;
}

/* ---- Processes ---- */

static void work(const probe_list *list, shared *s) {
    struct gpu gpu;
    alarm(START_SECONDS);
    if (!gpu_open(&gpu, 0)) {
        snprintf(s->run.reason, sizeof s->run.reason, "%s", gpu.reason);
        _exit(NO_DEVICE);
    }
    snprintf(s->run.device, sizeof s->run.device, "%s", gpu.name);
    s->run.compute_capability = gpu.compute_capability;
    s->run.driver_version = gpu.driver_version;
    while (s->next < list->count) {
        const size_t i = s->next++;
        alarm(SECONDS); /* SIGALRM ends the process */
        if (!run_one(&gpu, &list->items[i], &s->results[i]))
            _exit(CONTEXT_LOST);
    }
    gpu_close(&gpu);
    _exit(ALL_DONE);
}

static shared *share(const probe_list *list, size_t *bytes) {
    size_t outputs = 0;
    for (size_t i = 0; i < list->count; i++)
        outputs += list->items[i].out_bytes;
    const size_t head = sizeof(shared) + list->count * sizeof(probe_result);
    *bytes = head + outputs;
    shared *s = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    uint8_t *out = (uint8_t *)s + head;
    for (size_t i = 0; i < list->count; i++) {
        s->results[i].out = out;
        out += list->items[i].out_bytes;
    }
    return s;
}

void probe_run_all(const probe_list *list, probe_run *run) {
    size_t bytes = 0;
    shared *s = share(list, &bytes);
    for (int n = 0; n < MAX_PROCESSES && s->next < list->count; n++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0)
            work(list, s);
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) {
            perror("fork");
            exit(1);
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == NO_DEVICE)
            break;
        probe_result *last = s->next > 0 ? &s->results[s->next - 1] : NULL;
        if (last && !last->done && !last->error[0])
            snprintf(last->error, sizeof last->error, "its process ended with %s %d",
                     WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    for (size_t i = s->next; i < list->count; i++)
        snprintf(s->results[i].error, sizeof s->results[i].error, "not run: too many others failed");
    *run = s->run;
    run->results = s->results;
    run->memory = s;
    run->memory_bytes = bytes;
}

void probe_run_free(probe_run *run) {
    munmap(run->memory, run->memory_bytes);
    memset(run, 0, sizeof *run);
}
