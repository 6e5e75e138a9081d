/* SPDX-License-Identifier: MIT
 *
 * Runs the body of a kernel, given as PTX text, for tests of the machine. */
#ifndef RUN_PTX_H_
#define RUN_PTX_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "sim.h"

typedef struct ptx_run {
    sim_dim grid, block;
    uint64_t seed, step_limit;
    size_t dynamic_shared_bytes;
    const char *target; /* NULL: sm_90a */
    int tensor_bits;
    const uint32_t *in;
    size_t in_words;
    uint32_t *out;
    size_t out_words;
    bool out_is_fresh; /* nothing has written out yet, for the machine */
    char fault[2048]; /* result: the report, or "" */
} ptx_run;

/* The body finds: %tid (tid.x), %gtid (index over all CTAs of a one-dimensional launch), %out and %in (addresses of the
 * arrays), %my_out and %my_in (these plus 4 * %gtid), registers %r0-99, %rd0-19, %p0-19, %h0-9. It ends with ret. */
static inline ptx_module *ptx_module_for(const char *target, const char *body, char *error, size_t error_size) {
    static const char head[] = ".address_size 64\n"
                               ".visible .entry tested(.param .u64 out_array, .param .u64 in_array)\n{\n"
                               ".reg .b32 %r<100>;\n.reg .b64 %rd<20>;\n.reg .pred %p<20>;\n.reg .b16 %h<10>;\n"
                               ".reg .b32 %tid, %gtid;\n.reg .b64 %out, %in, %my_out, %my_in;\n"
                               ".shared .align 16 .b8 buffer[4096];\n"
                               "mov.u32 %tid, %tid.x;\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\n"
                               "mad.lo.u32 %gtid, %r0, %r1, %tid;\n"
                               "ld.param.u64 %out, [out_array];\nld.param.u64 %in, [in_array];\n"
                               "mad.wide.u32 %my_out, %gtid, 4, %out;\nmad.wide.u32 %my_in, %gtid, 4, %in;\n";
    size_t size = sizeof(head) + strlen(target) + strlen(body) + 64;
    char *text = malloc(size);
    assert_non_null(text);
    int length = snprintf(text, size, ".version 9.0\n.target %s\n%s%s\n}\n", target, head, body);
    ptx_module *module = ptx_module_parse(text, (size_t)length, error, error_size);
    free(text);
    return module;
}

static inline ptx_module *ptx_body_module(const char *body, char *error, size_t error_size) {
    return ptx_module_for("sm_90a", body, error, error_size);
}

/* Text that the machine refuses for a target, with a message that has `part`. */
typedef struct ptx_refused {
    const char *target, *text, *part;
} ptx_refused;

static inline void check_refused(const ptx_refused *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char body[512], error[512] = "";
        snprintf(body, sizeof body, "%s;\nret;\n", cases[i].text);
        if (ptx_module_for(cases[i].target, body, error, sizeof error) || !strstr(error, cases[i].part))
            fail_msg("%s for %s: \"%s\" without \"%s\"", cases[i].text, cases[i].target, error, cases[i].part);
    }
}

static inline bool run_ptx(const char *body, ptx_run *run) {
    char error[512] = "";
    ptx_module *module = ptx_module_for(run->target ? run->target : "sm_90a", body, error, sizeof(error));
    if (!module)
        fail_msg("%s", error);
    sim_device device;
    sim_device_init(&device);
    if (run->out_words)
        assert_true(sim_range_add(&device, (uint64_t)(uintptr_t)run->out, run->out_words * 4, true));
    if (run->out_is_fresh)
        assert_true(sim_range_track(&device, (uint64_t)(uintptr_t)run->out));
    if (run->in_words)
        assert_true(sim_range_add(&device, (uint64_t)(uintptr_t)run->in, run->in_words * 4, false));
    uint64_t params[2] = {(uint64_t)(uintptr_t)run->out, (uint64_t)(uintptr_t)run->in};
    sim_launch launch = {.device = &device,
                         .module = module,
                         .function = ptx_module_find(module, "tested"),
                         .grid = run->grid,
                         .block = run->block,
                         .params = (const uint8_t *)params,
                         .dynamic_shared_bytes = run->dynamic_shared_bytes,
                         .seed = run->seed,
                         .step_limit = run->step_limit,
                         .num_sms = 4,
                         .tensor_bits = run->tensor_bits};
    bool done = sim_run(&launch);
    memcpy(run->fault, launch.fault, sizeof(run->fault));
    sim_device_destroy(&device);
    ptx_module_free(module);
    return done;
}

/* Runs on one-dimensional CTAs and expects no fault. */
#define RUN_OK(body, run)                                                                                              \
    do {                                                                                                               \
        if (!run_ptx(body, run))                                                                                       \
            fail_msg("seed %llu: %s", (unsigned long long)(run)->seed, (run)->fault);                                  \
    } while (0)

/* Expects a report that holds `part`. */
#define RUN_FAULT(body, run, part)                                                                                     \
    do {                                                                                                               \
        if (run_ptx(body, run))                                                                                        \
            fail_msg("seed %llu: nothing reported, but expected: %s", (unsigned long long)(run)->seed, part);          \
        if (!strstr((run)->fault, part))                                                                               \
            fail_msg("seed %llu: \"%s\" not in: %s", (unsigned long long)(run)->seed, part, (run)->fault);             \
    } while (0)

/* Different on each run of the tests, unless PTXSIM_TEST_SEED says which. */
static inline uint64_t test_seed(void) {
    const char *given = getenv("PTXSIM_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    printf("PTXSIM_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline uint32_t test_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = *state ^ (*state >> 31);
    return (uint32_t)((x * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

#endif
