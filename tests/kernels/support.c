/* SPDX-License-Identifier: MIT */
#include "support.h"

#include "core/context.h"
#include "plan/plan.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fixture fx;

const char *template_source(void) {
    const char *given = getenv("ATTNS_TEST_TEMPLATES");
    return given != NULL ? given : ATTNS_TEMPLATE_SOURCE;
}

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

static bool choose_variant(void) {
    const char *wanted = getenv("ATTNS_TEST_VARIANT");
    fx.variant = wanted && strcmp(wanted, "fp4") == 0 ? ATTNS_VARIANT_FP4 : ATTNS_VARIANT_FP8;
    if (!wanted || !*wanted || fx.variant == ATTNS_VARIANT_FP4 || strcmp(wanted, "fp8") == 0)
        return true;
    printf("ATTNS_TEST_VARIANT: '%s', accepted: fp8, fp4\n", wanted);
    return false;
}

/* Whether kernels of the variant and family exist for what the device's would be compiled for. */
static bool has_kernels(const char *device_arch) {
    const bool fp4 = fx.variant == ATTNS_VARIANT_FP4;
    const attns_problem problem = {.kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS};
    attns_target target;
    attns_selection selection;
    return attns_target_from_arch(fx.ctx->arch ? fx.ctx->arch : device_arch, &target) == ATTNS_OK &&
           attns_plan_select(&problem, &target, fx.ctx->family_choice, &selection) == ATTNS_OK;
}

int fixture_open(void) {
    if (!choose_variant())
        return 1;
    const char *filter = getenv("ATTNS_TEST_FILTER");
    if (filter && *filter)
        cmocka_set_test_filter(filter);
    if (!gpu_open(&fx.gpu, 0)) {
        printf("skipped: %s\n", fx.gpu.reason);
        return TEST_SKIPPED;
    }
    /* The usual compiler may not know sm_107a; there a newer one, if there is one, takes its place. */
    const char *newer = getenv("ATTNS_TEST_NVRTC");
    if (software_gpu() && fx.gpu.compute_capability == 107 && newer && *newer)
        setenv("ATTNS_LIBNVRTC", newer, 1);
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
    if (!fx.without_logits && !has_kernels(device.arch)) {
        printf("skipped: %s\n", attns_last_error());
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

/* With the variant under test and a fresh seed where the case has none. */
static struct logits_case completed(const struct logits_case *c) {
    struct logits_case full = *c;
    if (!full.variant)
        full.variant = fx.variant;
    if (!full.seed)
        full.seed = next_seed();
    return full;
}

size_t keep_existing(struct logits_case *cases, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct logits_case c = cases[i];
        if (!c.variant)
            c.variant = fx.variant;
        if (logits_case_exists(&c))
            cases[kept++] = c;
    }
    return kept;
}

void run_case_with(const struct logits_case *c, enum logits_placement placement,
                   const struct logits_check_options *options) {
    const struct logits_case seeded = completed(c);
    assert_true(logits_run_case(&fx.gpu, fx.ctx, fx.stream, &seeded, placement, options, NULL));
}

void run_case(const struct logits_case *c, enum logits_placement placement) {
    run_case_with(c, placement, NULL);
}

void compile_ahead(const struct logits_case *cases, size_t num_cases) {
    struct logits_case *full = malloc(num_cases * sizeof *full);
    assert_non_null(full);
    for (size_t i = 0; i < num_cases; i++) {
        full[i] = cases[i];
        if (!full[i].variant)
            full[i].variant = fx.variant;
    }
    assert_true(logits_precompile(NULL, full, num_cases));
    free(full);
}

void make_data(struct logits_data *data, const struct logits_case *c) {
    const struct logits_case seeded = completed(c);
    assert_true(logits_data_make(data, &seeded));
}

void upload_data(struct logits_device *dev, const struct logits_data *data, enum logits_placement placement,
                 const struct logits_device *pool) {
    assert_true(logits_upload(dev, &fx.gpu, data, placement, pool));
}

uint8_t *call_and_download(const struct logits_device *dev) {
    assert_int_equal(logits_queue(dev, fx.ctx, fx.stream), ATTNS_OK);
    uint8_t *image = logits_download(dev, fx.stream);
    assert_non_null(image);
    return image;
}

void check_image(const struct logits_data *data, const uint8_t *image, const struct logits_check_options *options) {
    struct logits_report report;
    if (logits_check(data, image, options, &report))
        return;
    char text[400];
    logits_report_print(&report, logits_case_text(&data->c, text, sizeof text));
    fail_msg("wrong output: %s", text);
}

void put_value(const struct logits_data *d, uint8_t *image, int64_t row, int64_t column, double value) {
    uint8_t *at = image + logits_image_at(d, row, column);
    float single = (float)value;
    uint16_t half = d->c.out_dtype == ATTNS_DTYPE_F16 ? double_to_half(value) : double_to_bfloat(value);
    if (d->out_element_bytes == 4)
        memcpy(at, &single, sizeof single);
    else
        memcpy(at, &half, sizeof half);
}

uint8_t *reference_image(const struct logits_data *d) {
    uint8_t *image = logits_image_make(d);
    assert_non_null(image);
    struct logits_tensors t;
    struct logits_call call;
    struct logits_addresses at = {.q = d->q,
                                  .q_sf = d->q_sf,
                                  .kv = d->kv,
                                  .weights = d->weights,
                                  .tables = d->tables,
                                  .lens = d->lens,
                                  .out = image + d->out_front_bytes};
    logits_tensors_make(&t, &call, d, (DLDevice){kDLCPU, 0}, &at);
    if (logits_call_reference(&call, NULL) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    return image;
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
