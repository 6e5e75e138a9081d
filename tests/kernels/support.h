/* SPDX-License-Identifier: MIT
 *
 * What the GPU tests share: one device, one library context, one stream, one seed. The seed is $ATTNS_TEST_SEED or from
 * the clock, and is printed. $ATTNS_TEST_FILTER, a pattern such as "*guard*", chooses tests by name. The kernels under
 * test are those of $ATTNS_TEST_VARIANT (fp8, the default, or fp4) and $ATTNS_KERNEL_FAMILY, compiled for $ATTNS_ARCH.
 */
#ifndef ATTNS_TESTS_KERNELS_SUPPORT_H_
#define ATTNS_TESTS_KERNELS_SUPPORT_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/case.h"
#include "common/check.h"
#include "common/gpu.h"
#include "common/rng.h"
#include "common/run.h"

#define TEST_SKIPPED 77

struct fixture {
    struct gpu gpu;
    attns_context *ctx;
    CUstream stream;
    uint64_t seed;
    attns_variant variant; /* of every case that names none */
    bool without_logits;   /* set before fixture_open: no kernel of a logits operation is needed */
};

extern struct fixture fx;

/* 0; TEST_SKIPPED (after saying why) without a GPU that the library supports; 1 if something is broken. */
int fixture_open(void);
void fixture_close(void);
/* After a fault on the software GPU: a new CUDA context, library context and stream. Fails the running test if it
 * cannot be had. */
void fixture_renew(void);

/* Whether the device is the one of tools/ptxsim: a stricter machine, on which a faulty kernel may fault where a GPU
 * merely gets wrong results. */
bool software_gpu(void);

/* A seed for the next piece of data: differs from call to call, follows from fx.seed. */
uint64_t next_seed(void);

/* Where the templates are that faults are planted in: $ATTNS_TEST_TEMPLATES, an absolute path, else in the source tree
 * that this was built from. */
const char *template_source(void);

/* The seed to use: $ATTNS_TEST_SEED or the clock; printed. For tests without a GPU. */
uint64_t choose_seed(void);

/* Drops from a list the cases that the variant under test does not have. Returns how many are left. */
size_t keep_existing(struct logits_case *cases, size_t count);

/* Fails the running test unless the driver call succeeded. */
#define must(call) assert_true(gpu_ok(&fx.gpu, (call), #call))

/* Runs the case in the fixture's context and checks everything about it; fails the running test if it is not right. */
void run_case(const struct logits_case *c, enum logits_placement placement);
void run_case_with(const struct logits_case *c, enum logits_placement placement,
                   const struct logits_check_options *options);

/* Compiles the kernels of the cases on all processors; fails the running test if one does not compile. */
void compile_ahead(const struct logits_case *cases, size_t num_cases);

/* Data of a case with a fresh seed; fails the running test if memory is short. */
void make_data(struct logits_data *data, const struct logits_case *c);
/* Uploads, fails the running test if it cannot. */
void upload_data(struct logits_device *dev, const struct logits_data *data, enum logits_placement placement,
                 const struct logits_device *pool);
/* Queues the call, waits, and returns the image (malloc). */
uint8_t *call_and_download(const struct logits_device *dev);
/* Fails the running test, with a report, unless the image is right. */
void check_image(const struct logits_data *data, const uint8_t *image, const struct logits_check_options *options);

/* ---- Without a GPU ---- */

/* Writes one element of an image in the output's dtype. */
void put_value(const struct logits_data *data, uint8_t *image, int64_t row, int64_t column, double value);
/* What the library's reference writes, in the output's own dtype (malloc). */
uint8_t *reference_image(const struct logits_data *data);

/* ---- Surroundings ---- */

/* Free device memory in bytes. */
size_t free_memory(void);

/* A new private folder in /tmp; malloc'ed. remove_folder removes it with its contents. */
char *make_folder(void);
void remove_folder(const char *path);

/* A context like the fixture's, with these settings changed where not NULL. */
attns_context *make_context(const char *cache_dir, const char *libnvrtc_path, const char *template_dir);

#endif
