/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fixture fx;

uint64_t choose_seed(void) {
    const char *given = getenv("ATTNS_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec) & 0xffffffff;
    if (given && *given)
        seed = strtoull(given, NULL, 0);
    printf("ATTNS_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

int fixture_open(void) {
    const char *filter = getenv("ATTNS_TEST_FILTER");
    if (filter && *filter)
        cmocka_set_test_filter(filter);
    if (!gpu_open(&fx.gpu, 0)) {
        printf("skipped: %s\n", fx.gpu.reason);
        return TEST_SKIPPED;
    }
    attns_device_info device;
    if (attns_context_create(&fx.ctx, NULL) != ATTNS_OK ||
        attns_get_device_info(fx.ctx, fx.gpu.ordinal, &device) != ATTNS_OK) {
        printf("%s\n", attns_last_error());
        return 1;
    }
    if (!device.arch[0]) {
        printf("skipped: no kernels for %s (compute capability %d)\n", device.name, device.compute_capability);
        return TEST_SKIPPED;
    }
    attns_info info;
    if (software_gpu() && attns_get_info(fx.ctx, &info) == ATTNS_OK && !info.libnvrtc) {
        printf("skipped: no kernels for the software GPU: %s\n", info.libnvrtc_error);
        return TEST_SKIPPED;
    }
    if (!gpu_ok(&fx.gpu, fx.gpu.stream_create(&fx.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"))
        return 1;
    if (!fx.seed)
        fx.seed = choose_seed();
    return 0;
}

void fixture_close(void) {
    fx.gpu.stream_destroy(fx.stream);
    attns_context_destroy(fx.ctx);
    gpu_close(&fx.gpu);
}

void fixture_renew(void) {
    fixture_close();
    assert_int_equal(fixture_open(), 0);
}

bool software_gpu(void) {
    return strncmp(fx.gpu.name, "Software GPU", 12) == 0;
}

uint64_t next_seed(void) {
    static uint64_t calls;
    struct rng r = rng_make(fx.seed + 0x1000003 * ++calls);
    return rng_next(&r);
}

void run_case_with(const struct fp8_case *c, enum fp8_placement placement, const struct fp8_check_options *options) {
    struct fp8_case seeded = *c;
    if (!seeded.seed)
        seeded.seed = next_seed();
    assert_true(fp8_run_case(&fx.gpu, fx.ctx, fx.stream, &seeded, placement, options, NULL));
}

void run_case(const struct fp8_case *c, enum fp8_placement placement) {
    run_case_with(c, placement, NULL);
}

void compile_ahead(const struct fp8_case *cases, size_t num_cases) {
    assert_true(fp8_precompile(NULL, cases, num_cases));
}

void make_data(struct fp8_data *data, const struct fp8_case *c) {
    struct fp8_case seeded = *c;
    if (!seeded.seed)
        seeded.seed = next_seed();
    assert_true(fp8_data_make(data, &seeded));
}

void upload_data(struct fp8_device *dev, const struct fp8_data *data, enum fp8_placement placement,
                 const struct fp8_device *pool) {
    assert_true(fp8_upload(dev, &fx.gpu, data, placement, pool));
}

uint8_t *call_and_download(const struct fp8_device *dev) {
    assert_int_equal(fp8_queue(dev, fx.ctx, fx.stream), ATTNS_OK);
    uint8_t *image = fp8_download(dev, fx.stream);
    assert_non_null(image);
    return image;
}

void check_image(const struct fp8_data *data, const uint8_t *image, const struct fp8_check_options *options) {
    struct fp8_report report;
    if (fp8_check(data, image, options, &report))
        return;
    char text[400];
    fp8_report_print(&report, fp8_case_text(&data->c, text, sizeof text));
    fail_msg("wrong output: %s", text);
}

size_t free_memory(void) {
    size_t available = 0, total = 0;
    must(fx.gpu.mem_get_info(&available, &total));
    return available;
}

char *make_folder(void) {
    char *path = strdup("/tmp/attn-scores-test-XXXXXX");
    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void remove_folder(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

attns_context *make_context(const char *cache_dir, const char *libnvrtc_path, const char *template_dir) {
    attns_context_params p = {.cache_dir = cache_dir, .libnvrtc_path = libnvrtc_path, .template_dir = template_dir};
    attns_context *ctx = NULL;
    assert_int_equal(attns_context_create(&ctx, &p), ATTNS_OK);
    return ctx;
}
