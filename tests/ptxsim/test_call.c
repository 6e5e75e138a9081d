/* SPDX-License-Identifier: MIT
 *
 * Calls of functions, which become part of the kernel; branches by a list of targets; printf and assert. */
#include <time.h>
#include <unistd.h>

#include "run_ptx.h"

static uint32_t in[64], out[64];

/* The head of a module, then functions, then the kernel's body as run_ptx.h has it; parameters of the kernel are known.
 */
static bool run_with(const char *functions, const char *body, ptx_run *run) {
    char text[8192], error[512] = "";
    const int size = snprintf(text, sizeof text,
                              ".version 9.0\n.target sm_80\n.address_size 64\n%s\n"
                              ".visible .entry tested(.param .u64 out_array, .param .u64 in_array)\n{\n"
                              ".reg .b32 %%r<20>;\n.reg .b64 %%rd<10>;\n.reg .pred %%p<5>;\n.reg .b32 %%tid;\n"
                              ".reg .b64 %%out, %%in, %%my_out;\nmov.u32 %%tid, %%tid.x;\n"
                              "ld.param.u64 %%out, [out_array];\nld.param.u64 %%in, [in_array];\n"
                              "mad.wide.u32 %%my_out, %%tid, 4, %%out;\n%s\n}\n",
                              functions, body);
    ptx_module *module = ptx_module_parse(text, (size_t)size, error, sizeof error);
    snprintf(run->fault, sizeof run->fault, "%s", error);
    if (!module)
        return false;
    sim_device device;
    sim_device_init(&device);
    uint64_t image_bytes = 0;
    for (int i = 0; i < module->num_variables; i++)
        if (module->variables[i]->space == PTX_GLOBAL)
            image_bytes = module->variables[i]->offset + module->variables[i]->size;
    uint8_t *image = calloc(image_bytes + 1, 1);
    assert_non_null(image);
    for (int i = 0; i < module->num_variables; i++)
        if (module->variables[i]->init)
            memcpy(image + module->variables[i]->offset, module->variables[i]->init, module->variables[i]->size);
    if (image_bytes)
        assert_true(sim_range_add(&device, (uint64_t)(uintptr_t)image, image_bytes, true));
    assert_true(sim_range_add(&device, (uint64_t)(uintptr_t)out, sizeof out, true));
    assert_true(sim_range_add(&device, (uint64_t)(uintptr_t)in, sizeof in, false));
    const uint64_t params[2] = {(uint64_t)(uintptr_t)out, (uint64_t)(uintptr_t)in};
    sim_launch launch = {.device = &device,
                         .module = module,
                         .function = ptx_module_find(module, "tested"),
                         .module_image = image,
                         .grid = {1, 1, 1},
                         .block = run->block,
                         .params = (const uint8_t *)params,
                         .seed = run->seed,
                         .num_sms = 1};
    const bool done = sim_run(&launch);
    memcpy(run->fault, launch.fault, sizeof run->fault);
    sim_device_destroy(&device);
    ptx_module_free(module);
    free(image);
    return done;
}

static void run_ok(const char *functions, const char *body, unsigned threads) {
    ptx_run run = {.block = {threads, 1, 1}, .seed = 5};
    memset(out, 0xee, sizeof out);
    if (!run_with(functions, body, &run))
        fail_msg("%s", run.fault);
}

static void run_bad(const char *functions, const char *body, const char *part) {
    ptx_run run = {.block = {32, 1, 1}, .seed = 5};
    if (run_with(functions, body, &run))
        fail_msg("nothing reported, but expected: %s", part);
    if (!strstr(run.fault, part))
        fail_msg("\"%s\" not in: %s", part, run.fault);
}

/* 3 x + y, through a function that calls another one twice; registers of the caller keep their values. */
#define FUNCTIONS                                                                                                      \
    ".func (.param .b32 result) twice(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [x];\n"                   \
    "add.u32 %r1, %r1, %r1;\nst.param.b32 [result], %r1;\nret;\n}\n"                                                   \
    ".func (.param .b32 result) combine(.param .b32 x, .param .align 4 .b8 y[8])\n{\n.reg .b32 %r<5>;\n"               \
    ".reg .pred p;\nld.param.b32 %r1, [x];\nld.param.b32 %r2, [y+4];\nsetp.gt.u32 p, %r1, 20;\n"                       \
    "@p st.param.b32 [result], %r1;\n@p ret;\n{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r1;\n"             \
    "call.uni (b), twice, (a);\nld.param.b32 %r3, [b];\nadd.u32 %r1, %r1, %r3;\nst.param.b32 [a], %r2;\n"              \
    "@!p call (b), twice, (a);\nld.param.b32 %r3, [b];\n}\nadd.u32 %r1, %r1, %r3;\nst.param.b32 [result], %r1;\n}\n"

static void test_values(void **unused) {
    (void)unused;
    const char *body = "mov.b32 %r1, 1000;\n"
                       "{\n.param .b32 a;\n.param .align 4 .b8 b[8];\n.param .b32 c;\nst.param.b32 [a], %tid;\n"
                       "st.param.b32 [b], 77;\nst.param.b32 [b+4], 5;\ncall.uni (c), combine, (a, b);\n"
                       "ld.param.b32 %r2, [c];\n}\nadd.u32 %r2, %r2, %r1;\nst.global.b32 [%my_out], %r2;\n"
                       "setp.lt.u32 %p1, %tid, 16;\n@%p1 bra done;\n"
                       "{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r2;\ncall (b), twice, (a);\n"
                       "ld.param.b32 %r3, [b];\n}\nst.global.b32 [%my_out], %r3;\ndone:\nret;\n";
    run_ok(FUNCTIONS, body, 32);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t combined = 1000 + (i > 20 ? i : 3 * i + 10);
        assert_int_equal(out[i], i < 16 ? combined : 2 * combined);
    }
}

/* A shared variable is one for all calls, a local one one for each thread. */
static void test_variables(void **unused) {
    (void)unused;
    const char *functions = ".func add()\n{\n.shared .align 4 .b32 sum;\n.reg .b32 %r<3>;\nld.shared.b32 %r1, [sum];\n"
                            "add.u32 %r1, %r1, 1;\nst.shared.b32 [sum], %r1;\nret;\n}\n"
                            ".func (.param .b32 result) get(.param .b32 clear)\n{\n.reg .b32 %r<3>;\n.reg .pred p;\n"
                            ".shared .align 4 .b32 other;\n.local .align 4 .b32 mine;\nld.param.b32 %r1, [clear];\n"
                            "st.local.b32 [mine], %r1;\ncall add;\ncall add;\nld.local.b32 %r2, [mine];\n"
                            "st.param.b32 [result], %r2;\nret;\n}\n";
    const char *body =
        "{\n.shared .align 4 .b32 own;\nst.shared.b32 [own], 3;\nmov.b32 %r1, own;\nst.shared.b32 [%r1+4], 0;\n"
        ".param .b32 a;\n.param .b32 b;\nst.param.b32 [a], 41;\ncall (b), get, (a);\ncall add;\n"
        "ld.param.b32 %r2, [b];\nst.global.b32 [%out], %r2;\nld.shared.b32 %r3, [%r1+4];\n"
        "st.global.b32 [%out+4], %r3;\n}\nret;\n";
    ptx_run run = {.block = {1, 1, 1}, .seed = 5};
    /* `sum` lies behind `own`. */
    if (!run_with(functions, body, &run))
        fail_msg("%s", run.fault);
    assert_int_equal(out[0], 41);
    assert_int_equal(out[1], 3);
}

static void test_branch_list(void **unused) {
    (void)unused;
    const char *body =
        "rem.u32 %r1, %tid, 3;\nlist: .branchtargets zero, one, two;\nbrx.idx %r1, list;\n"
        "zero:\nmov.b32 %r2, 100;\nbra done;\none:\nmov.b32 %r2, 200;\nbra done;\ntwo:\nmov.b32 %r2, 300;\n"
        "done:\nst.global.b32 [%my_out], %r2;\nret;\n";
    run_ok("", body, 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 100 * (i % 3 + 1));
    run_bad("", "list: .branchtargets on;\nbrx.idx %tid, list;\non:\nret;\n",
            "index 1, but there are 1 branch targets");
}

/* A switch inside a function that is called twice, so that its targets move. */
static void test_branch_list_in_function(void **unused) {
    (void)unused;
    const char *functions =
        ".func (.param .b32 result) choose(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [x];\n"
        "list: .branchtargets zero, one;\nbrx.idx %r1, list;\nzero:\nst.param.b32 [result], 7;\nret;\n"
        "one:\nst.param.b32 [result], 9;\nret;\n}\n";
    const char *body =
        "and.b32 %r1, %tid, 1;\nxor.b32 %r2, %r1, 1;\n{\n.param .b32 a;\n.param .b32 b;\n"
        "st.param.b32 [a], %r1;\ncall (b), choose, (a);\nld.param.b32 %r3, [b];\nst.param.b32 [a], %r2;\n"
        "call (b), choose, (a);\nld.param.b32 %r4, [b];\n}\nmad.lo.u32 %r3, %r3, 10, %r4;\n"
        "st.global.b32 [%my_out], %r3;\nret;\n";
    run_ok(functions, body, 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], i % 2 ? 97 : 79);
}

static void test_refused(void **unused) {
    (void)unused;
    static const struct {
        const char *functions, *body, *part;
    } cases[] = {
        {"", "call nowhere;\nret;\n", "function nowhere has no body in this module"},
        {".func a()\n{\ncall b;\nret;\n}\n.func b()\n{\ncall a;\nret;\n}\n", "ret;\n",
         "recursive calls are not implemented: call a"},
        {".func a()\n{\ncall a;\nret;\n}\n", "call a;\nret;\n", "recursive calls"},
        {FUNCTIONS, "call twice;\nret;\n", "twice has 1 results and 1 parameters"},
        {FUNCTIONS, "{\n.param .b64 a;\n.param .b32 b;\ncall (b), twice, (a);\n}\nret;\n",
         "x of twice has 4 bytes, not 8"},
        {".entry other()\n{\nret;\n}\n", "call other;\nret;\n", "kernels are not called"},
        {"", "{\n.param .b64 a;\ncall vprintf, (a);\n}\nret;\n", "vprintf has other parameters"},
        {".func wrong()\n{\n.reg .b32 r;\nfrob.b32 r;\nret;\n}\n", "call wrong;\nret;\n",
         "instruction frob is not implemented"},
        {"", "st.param.b64 [out_array], %rd1;\nret;\n", "only parameters of calls are written"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_bad(cases[i].functions, cases[i].body, cases[i].part);
}

/* Every function calls the one before it twice: 2^40 bodies. */
static void test_bounded(void **unused) {
    (void)unused;
    static char functions[8192];
    size_t used = (size_t)snprintf(functions, sizeof functions, ".func f0()\n{\nret;\n}\n");
    for (int i = 1; i <= 40; i++)
        used += (size_t)snprintf(functions + used, sizeof functions - used,
                                 ".func f%d()\n{\ncall f%d;\ncall f%d;\nret;\n}\n", i, i - 1, i - 1);
    run_bad(functions, "call f40;\nret;\n", "more than 262144 instructions with those of");
}

/* ---- printf and assert ---- */

/* What the runs between begin and end write to stdout. */
static int kept_stdout = -1;
static FILE *caught;

static void catch_begin(void) {
    fflush(stdout);
    kept_stdout = dup(STDOUT_FILENO);
    caught = tmpfile();
    assert_non_null(caught);
    assert_true(dup2(fileno(caught), STDOUT_FILENO) >= 0);
}

static void catch_end(char *text, size_t size) {
    fflush(stdout);
    assert_true(dup2(kept_stdout, STDOUT_FILENO) >= 0);
    close(kept_stdout);
    rewind(caught);
    const size_t length = fread(text, 1, size - 1, caught);
    text[length] = '\0';
    fclose(caught);
}

#define FORMAT                                                                                                         \
    ".global .align 1 .b8 format[32] = {91, 37, 100, 32, 37, 53, 46, 50, 102, 32, 37, 108, 108, 120, 32, "             \
    "37, 99, 37, 37, 32, 37, 115, 93, 10, 0};\n" /* "[%d %5.2f %llx %c%% %s]\n" */                                     \
    ".global .align 1 .b8 word[8] = {119, 111, 114, 100, 0};\n"
#define PRINT                                                                                                          \
    "{\n.local .align 8 .b8 arguments[40];\n.param .b64 a;\n.param .b64 b;\n.param .b32 c;\n"                          \
    "mov.u64 %rd1, format;\ncvta.global.u64 %rd1, %rd1;\nst.param.b64 [a], %rd1;\nmov.u64 %rd2, word;\n"               \
    "cvta.global.u64 %rd2, %rd2;\nst.local.b32 [arguments], -5;\nst.local.f64 [arguments+8], 0d400921FB54442D18;\n"    \
    "st.local.b64 [arguments+16], 0xabcdef012345;\nst.local.b32 [arguments+24], 65;\n"                                 \
    "st.local.b64 [arguments+32], %rd2;\nmov.u64 %rd3, arguments;\ncvta.local.u64 %rd3, %rd3;\n"                       \
    "st.param.b64 [b], %rd3;\ncall.uni (c), vprintf, (a, b);\nld.param.b32 %r1, [c];\n}\n"

static void test_print(void **unused) {
    (void)unused;
    char text[256];
    ptx_run run = {.block = {1, 1, 1}, .seed = 5};
    catch_begin();
    const bool done = run_with(FORMAT, PRINT "st.global.b32 [%my_out], %r1;\nret;\n", &run);
    catch_end(text, sizeof text);
    if (!done)
        fail_msg("%s", run.fault);
    assert_string_equal(text, "[-5  3.14 abcdef012345 A% word]\n");
    assert_int_equal(out[0], 5);
    run_bad(FORMAT,
            "{\n.param .b64 a;\n.param .b64 b;\nst.param.b64 [a], 16;\nst.param.b64 [b], 16;\n"
            "call vprintf, (a, b);\n}\nret;\n",
            "vprintf");
}

static void test_assert(void **unused) {
    (void)unused;
    run_bad(FORMAT,
            "{\n.param .b64 a;\n.param .b64 b;\n.param .b32 c;\n.param .b64 d;\n.param .b64 e;\nmov.u64 %rd1, word;\n"
            "cvta.global.u64 %rd1, %rd1;\nst.param.b64 [a], %rd1;\nst.param.b64 [b], %rd1;\nst.param.b32 [c], 12;\n"
            "st.param.b64 [d], %rd1;\nst.param.b64 [e], 1;\ncall __assertfail, (a, b, c, d, e);\n}\nret;\n",
            "assertion failed at word:12: word");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_variables),
        cmocka_unit_test(test_branch_list), cmocka_unit_test(test_branch_list_in_function),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_print),       cmocka_unit_test(test_assert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
