/* SPDX-License-Identifier: MIT
 *
 * Host time of a warm call, and what of it is the driver's launch: during one call the library gets a table of driver
 * functions whose launch measures the real one, again and again with the very arguments the library made. */
#include "bench.h"
#include "core/context.h"

/* Median wall time of a step that nothing waits for. */
static bool time_steps(bench *b, bench_enqueue step, void *user, double device_us, double *us) {
    /* A batch stays below the depth of the driver's launch queue, where enqueueing would wait for the device. */
    enum { STEPS = 500, MOST = 21 };
    double times[MOST];
    int batches = (int)(250e3 / (STEPS * device_us));
    batches = batches < 3 ? 3 : batches > MOST ? MOST : batches;
    for (int batch = -1; batch < batches; batch++) { /* the first one is warm-up */
        double start = cli_now();
        for (int i = 0; i < STEPS; i++) {
            if (!step(b, user, i)) {
                return false;
            }
        }
        double seconds = cli_now() - start;
        if (!gpu_ok(&b->gpu, b->gpu.stream_synchronize(b->stream), "cuStreamSynchronize")) {
            return false;
        }
        if (batch >= 0) {
            times[batch] = seconds * 1e6 / STEPS;
        }
    }
    *us = bench_median(times, (size_t)batches);
    return true;
}

/* ---- The launch alone ---------------------------------------------------------------------------------------- */

/* The driver's signature has no room for it; one thread only (bench.h). */
static struct {
    bench *b;
    const attns_driver *driver;
    double device_us, us; /* us: of all launches so far */
    bool ok;
} watch;

struct launch {
    const CUlaunchConfig *config;
    CUfunction function;
    void **parameters;
};

static bool launch_again(bench *b, void *user, int i) {
    const struct launch *launch = user;
    (void)i;
    return gpu_ok(&b->gpu, watch.driver->launch_kernel_ex(launch->config, launch->function, launch->parameters, NULL),
                  "cuLaunchKernelEx");
}

static CUresult CUDAAPI measure_launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                                       void **extra) {
    struct launch launch = {config, function, parameters};
    double us = 0;
    watch.ok = watch.ok && time_steps(watch.b, launch_again, &launch, watch.device_us, &us);
    watch.us += us;
    return watch.driver->launch_kernel_ex(config, function, parameters, extra);
}

static bool time_launches(bench *b, bench_enqueue enqueue, void *user, double device_us, double *launch_us) {
    watch.b = b;
    watch.driver = atomic_load(&b->ctx->driver);
    watch.device_us = device_us;
    watch.us = 0;
    watch.ok = true;
    attns_driver measuring = *watch.driver;
    measuring.launch_kernel_ex = measure_launch;
    atomic_store(&b->ctx->driver, &measuring);
    const bool ok = enqueue(b, user, 0);
    atomic_store(&b->ctx->driver, watch.driver);
    *launch_us = watch.us;
    return ok && watch.ok;
}

bool bench_time_host(bench *b, bench_enqueue enqueue, void *user, double device_us, double *host_us,
                     double *launch_us) {
    return time_steps(b, enqueue, user, device_us, host_us) && time_launches(b, enqueue, user, device_us, launch_us);
}
