/* SPDX-License-Identifier: MIT
 *
 * PTX text into modules: what every directive and operand becomes, scopes, layout, binding, messages, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_ops.h"
#include "ptx_samples.h"

static ptx_module *parse(const char *text) {
    char error[512];
    ptx_module *module = ptx_module_parse(text, strlen(text), error, sizeof error);
    if (!module)
        fail_msg("%s", error);
    return module;
}

/* One kernel whose body is `body`, with registers of all kinds. */
static ptx_module *parse_body(const char *body) {
    char text[4096];
    int length = snprintf(text, sizeof text,
                          PTX_HEADER ".visible .global .align 8 .b8 table[64];\n"
                                     ".entry k(.param .u64 a, .param .u32 b)\n{\n"
                                     ".reg .pred %%p<4>;\n.reg .b32 %%r<8>;\n.reg .b64 %%rd<4>;\n%s\n}\n",
                          body);
    assert_in_range(length, 1, sizeof text - 1);
    return parse(text);
}

static const ptx_instr *instr_of(const ptx_module *module, int index) {
    assert_int_equal(module->num_functions, 1);
    assert_in_range(index, 0, module->functions[0].num_instrs - 1);
    return &module->functions[0].instrs[index];
}

static const ptx_variable *variable_of(ptx_variable *const *variables, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(variables[i]->name, name) == 0)
            return variables[i];
    }
    fail_msg("no variable %s", name);
    return NULL;
}

static const ptx_variable *module_variable(const ptx_module *module, const char *name) {
    return variable_of(module->variables, module->num_variables, name);
}

/* Slots of the sample kernel's registers, in the order of their declarations. */
enum { P = 0, R = 5, RD = 17, F = 23, NESTED = 27 };

static void kernel_becomes_functions_params_and_layout(void **state) {
    (void)state;
    ptx_module *module = parse(sample_kernel);
    assert_int_equal(module->version, 83);
    assert_string_equal(module->target, "sm_90a");
    assert_int_equal(module->num_functions, 1);
    const ptx_function *kernel = ptx_module_find(module, "kernel");
    assert_non_null(kernel);
    assert_null(ptx_module_find(module, "kerne"));
    assert_true(kernel->is_entry);
    assert_int_equal(kernel->max_threads, 256);
    assert_int_equal(kernel->num_params, 3);
    const size_t offsets[] = {0, 128, 136}, sizes[] = {128, 4, 8}, aligns[] = {64, 4, 8};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kernel->params[i].offset, offsets[i]);
        assert_int_equal(kernel->params[i].size, sizes[i]);
        assert_int_equal(kernel->params[i].align, aligns[i]);
        assert_int_equal(kernel->params[i].space, PTX_PARAM);
    }
    assert_int_equal(kernel->param_bytes, 144);
    assert_int_equal(kernel->num_slots, NESTED + 2);
    /* 100 static bytes, then dynamic memory at its own alignment. */
    assert_int_equal(kernel->num_variables, 2);
    assert_int_equal(variable_of(kernel->variables, 2, "tiles")->offset, 0);
    assert_int_equal(variable_of(kernel->variables, 2, "dynamic")->offset, 1024);
    assert_int_equal(variable_of(kernel->variables, 2, "dynamic")->size, 0);
    assert_int_equal(kernel->static_shared_bytes, 1024);
    ptx_module_free(module);
}

static void kernel_becomes_instructions(void **state) {
    (void)state;
    ptx_module *module = parse(sample_kernel);
    const ptx_function *kernel = &module->functions[0];
    assert_int_equal(kernel->num_instrs, 17);
    const ptx_instr *i = kernel->instrs;

    assert_string_equal(i[0].opcode, "ld");
    assert_string_equal(i[0].text, "ld.param.u32 %r1, [kernel_param_1]");
    assert_int_equal(i[0].line, 25);
    assert_int_equal(i[0].num_modifiers, 2);
    assert_string_equal(i[0].modifiers[1], "u32");
    assert_int_equal(i[0].guard, -1);
    assert_ptr_equal(i[0].exec, fake_exec);
    assert_int_equal(i[0].operands[1].kind, PTX_OPERAND_ADDRESS);
    assert_ptr_equal(i[0].operands[1].variable, &kernel->params[1]);
    assert_int_equal(i[0].operands[1].slot, -1);

    assert_int_equal(i[3].operands[1].kind, PTX_OPERAND_SPECIAL);
    assert_string_equal(i[3].operands[1].name, "%tid.x");

    assert_int_equal(i[5].guard, P + 1);
    assert_true(i[5].guard_negated);
    assert_int_equal(i[5].operands[0].kind, PTX_OPERAND_LABEL);
    assert_int_equal(i[5].operands[0].target, 10);

    assert_int_equal(i[6].operands[0].slot, NESTED);
    assert_int_equal(i[6].operands[1].slot, R + 2);
    assert_int_equal(i[6].operands[1].offset, -8);
    assert_int_equal(i[7].operands[0].target, 9);
    assert_int_equal(i[8].operands[0].target, 6);

    assert_true(ptx_has(&i[9], "shared::cluster"));
    assert_true(ptx_has(&i[9], "mbarrier::complete_tx::bytes"));
    assert_true(ptx_has(&i[9], "2d"));
    assert_true(ptx_has(&i[9], "L2::cache_hint"));
    assert_false(ptx_has(&i[9], "L2"));
    assert_int_equal(i[9].num_operands, 4);
    assert_int_equal(i[9].operands[1].num_elements, 2);
    assert_int_equal(i[9].operands[1].slot, RD + 1);
    assert_int_equal(i[9].operands[1].elements[1].slot, R + 1);

    assert_int_equal(i[10].operands[0].kind, PTX_OPERAND_VECTOR);
    assert_int_equal(i[10].operands[0].num_elements, 4);
    assert_int_equal(i[10].operands[0].elements[3].slot, F + 3);
    assert_int_equal(i[10].operands[5].bits, UINT64_MAX);
    assert_string_equal(i[10].text, "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, %rd3, "
                                    "%rd4, %p2, 1, -1");

    assert_int_equal(i[11].operands[0].slot, R + 5);
    assert_int_equal(i[11].operands[0].pair, P + 2);
    assert_true(i[12].operands[1].negated);
    assert_int_equal(i[12].operands[2].bits, 0xffffffff);
    assert_int_equal(i[12].gather, PTX_GATHER_MASK);
    assert_int_equal(i[13].operands[0].kind, PTX_OPERAND_SINK);
    assert_int_equal(i[13].operands[1].offset, 16);
    assert_int_equal(i[14].operands[2].bits, 0x3f800000);
    assert_string_equal(i[16].opcode, "ret");
    ptx_module_free(module);
}

static void data_is_laid_out_and_initialised(void **state) {
    (void)state;
    ptx_module *module = parse(sample_data);
    static const struct {
        const char *name;
        ptx_space space;
        size_t offset, size;
        uint8_t init[32];
        bool zeros;
    } wanted[] = {
        {"counter", PTX_GLOBAL, 0, 4, {0}, true},
        {"bytes", PTX_CONST, 16, 6, {1, 0x22, 3, 15, 255, 255}, false},
        {"reals",
         PTX_CONST,
         24,
         16,
         {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0x6f, 0x12, 0x83, 0x3a, 0, 0, 0x40, 0x40},
         false},
        {"wide", PTX_GLOBAL, 40, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0xbf}, false},
        {"grid", PTX_GLOBAL, 48, 12, {1, 0, 2, 0, 3, 0, 4}, false},
        {"pair", PTX_GLOBAL, 64, 8, {0xfb, 0xff, 0xff, 0xff, 6}, false},
        {"other", PTX_GLOBAL, 72, 8, {0}, true},
        {"common", PTX_SHARED, 0, 12, {0}, true},
        {"dynamic", PTX_SHARED, 128, 0, {0}, true},
    };
    assert_int_equal(module->num_variables, sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ptx_variable *variable = module_variable(module, wanted[i].name);
        assert_int_equal(variable->space, wanted[i].space);
        assert_int_equal(variable->offset, wanted[i].offset);
        assert_int_equal(variable->size, wanted[i].size);
        if (wanted[i].zeros)
            assert_null(variable->init);
        else
            assert_memory_equal(variable->init, wanted[i].init, variable->size);
    }
    ptx_module_free(module);
}

static void functions_have_their_own_view_of_dynamic_memory(void **state) {
    (void)state;
    ptx_module *module = parse(sample_data);
    assert_int_equal(module->num_functions, 3); /* the declaration is none */
    assert_false(ptx_module_find(module, "twice")->is_entry);
    const ptx_function *first = ptx_module_find(module, "first"), *second = ptx_module_find(module, "second");
    assert_int_equal(first->max_threads, 32);
    assert_int_equal(first->param_bytes, 0);
    assert_int_equal(first->local_bytes, 32);
    assert_int_equal(variable_of(first->variables, first->num_variables, "spill")->offset, 24);
    /* Both have the module's 12 bytes; the second adds 10 of its own. */
    assert_int_equal(first->static_shared_bytes, 128);
    assert_int_equal(second->static_shared_bytes, 128);
    assert_int_equal(variable_of(second->variables, second->num_variables, "own")->offset, 12);
    const ptx_variable *seen = first->instrs[3].operands[1].variable;
    assert_ptr_equal(seen, variable_of(first->variables, first->num_variables, "dynamic"));
    assert_int_equal(first->instrs[3].operands[1].kind, PTX_OPERAND_SYMBOL);
    assert_int_equal(first->instrs[3].operands[1].offset, 256);
    assert_ptr_not_equal(seen, second->instrs[1].operands[1].variable);
    assert_int_equal(ptx_module_find(module, "twice")->static_shared_bytes, 12);
    ptx_module_free(module);
}

static void source_lines_follow_loc(void **state) {
    (void)state;
    ptx_module *module = parse(sample_data);
    assert_int_equal(module->num_files, 4);
    assert_null(module->files[2]);
    assert_string_equal(module->files[1], "kernel.cu");
    assert_string_equal(module->files[3], "other.h");
    const ptx_function *first = ptx_module_find(module, "first");
    assert_int_equal(first->instrs[0].source_file, 1);
    assert_int_equal(first->instrs[0].source_line, 12);
    assert_int_equal(first->instrs[1].source_line, 13);
    assert_int_equal(ptx_module_find(module, "second")->instrs[0].source_file, 0);
    ptx_module_free(module);
    module = parse_body(".loc 7 1 1\nret;");
    assert_int_equal(instr_of(module, 0)->source_file, 0); /* there is no file 7 */
    ptx_module_free(module);
}

static void operands_of_every_kind(void **state) {
    (void)state;
    static const struct {
        const char *text;
        ptx_operand_kind kind;
        int slot, width;
        uint64_t bits;
        int64_t offset;
        double real;
    } cases[] = {
        {"%r7", PTX_OPERAND_REGISTER, 11, 32, 0, 0, 0},
        {"%rd0", PTX_OPERAND_REGISTER, 12, 64, 0, 0, 0},
        {"!%p3", PTX_OPERAND_REGISTER, 3, 1, 0, 0, 0},
        {"42", PTX_OPERAND_INTEGER, -1, 0, 42, 0, 0},
        {"-42", PTX_OPERAND_INTEGER, -1, 0, (uint64_t)-42, 0, 0},
        {"0x7fU", PTX_OPERAND_INTEGER, -1, 0, 0x7f, 0, 0},
        {"0XFFFFFFFFFFFFFFFF", PTX_OPERAND_INTEGER, -1, 0, UINT64_MAX, 0, 0},
        {"0b101", PTX_OPERAND_INTEGER, -1, 0, 5, 0, 0},
        {"0777U", PTX_OPERAND_INTEGER, -1, 0, 511, 0, 0},
        {"WARP_SZ", PTX_OPERAND_INTEGER, -1, 0, 32, 0, 0},
        {"0fBf800000", PTX_OPERAND_INTEGER, -1, 0, 0xbf800000, 0, 0},
        {"-0f3F800000", PTX_OPERAND_INTEGER, -1, 0, 0xbf800000, 0, 0},
        {"0D3FF0000000000000", PTX_OPERAND_INTEGER, -1, 0, UINT64_C(0x3ff0000000000000), 0, 0},
        {"1.0", PTX_OPERAND_REAL, -1, 0, 0, 0, 1.0},
        {"-2.5", PTX_OPERAND_REAL, -1, 0, 0, 0, -2.5},
        {"1e-3", PTX_OPERAND_REAL, -1, 0, 0, 0, 1e-3},
        {".5", PTX_OPERAND_REAL, -1, 0, 0, 0, 0.5},
        {"1.", PTX_OPERAND_REAL, -1, 0, 0, 0, 1.0},
        {"table", PTX_OPERAND_SYMBOL, -1, 0, 0, 0, 0},
        {"table+12", PTX_OPERAND_SYMBOL, -1, 0, 0, 12, 0},
        {"%ctaid.z", PTX_OPERAND_SPECIAL, -1, 0, 0, 0, 0},
        {"%clock64", PTX_OPERAND_SPECIAL, -1, 0, 0, 0, 0},
        {"[%rd1]", PTX_OPERAND_ADDRESS, 13, 64, 0, 0, 0},
        {"[%rd1+16]", PTX_OPERAND_ADDRESS, 13, 64, 0, 16, 0},
        {"[ %rd1 + -16 ]", PTX_OPERAND_ADDRESS, 13, 64, 0, -16, 0},
        {"[%rd1-16]", PTX_OPERAND_ADDRESS, 13, 64, 0, -16, 0},
        {"[table+8]", PTX_OPERAND_ADDRESS, -1, 0, 0, 8, 0},
        {"[0x40]", PTX_OPERAND_ADDRESS, -1, 0, 0, 0x40, 0},
        {"_", PTX_OPERAND_SINK, -1, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[128];
        snprintf(body, sizeof body, "mov.b64 %%rd3, %s;", cases[i].text);
        ptx_module *module = parse_body(body);
        const ptx_operand *operand = &instr_of(module, 0)->operands[1];
        if (operand->kind != cases[i].kind)
            fail_msg("%s is of kind %d, not %d", cases[i].text, operand->kind, cases[i].kind);
        assert_int_equal(operand->slot, cases[i].slot);
        assert_int_equal(operand->width, cases[i].width);
        assert_int_equal(operand->pair, -1);
        assert_int_equal(operand->negated, cases[i].text[0] == '!');
        if (operand->kind == PTX_OPERAND_INTEGER)
            assert_true(operand->bits == cases[i].bits);
        assert_int_equal(operand->offset, cases[i].offset);
        assert_true(operand->real == cases[i].real);
        if (strstr(cases[i].text, "table"))
            assert_ptr_equal(operand->variable, module_variable(module, "table"));
        else
            assert_null(operand->variable);
        if (operand->kind == PTX_OPERAND_SPECIAL)
            assert_string_equal(operand->name, cases[i].text);
        ptx_module_free(module);
    }
}

static void vectors_and_pairs_may_have_sinks(void **state) {
    (void)state;
    ptx_module *module = parse_body("mov.b64 {_, %r3}, %rd1;\nshfl.sync.idx.b32 _|%p1, %r1, 0, 31, -1;\n"
                                    "shfl.sync.idx.b32 %r1|_, %r1, 0, 31, -1;\n"
                                    "st.global.v4.u32 [%rd1], {%r0, 5, -1, %r1};");
    const ptx_operand *vector = &instr_of(module, 0)->operands[0];
    assert_int_equal(vector->kind, PTX_OPERAND_VECTOR);
    assert_int_equal(vector->slot, -1);
    assert_int_equal(vector->elements[0].kind, PTX_OPERAND_SINK);
    assert_int_equal(vector->elements[1].slot, 7);
    assert_int_equal(instr_of(module, 1)->operands[0].kind, PTX_OPERAND_SINK);
    assert_int_equal(instr_of(module, 1)->operands[0].pair, 1);
    assert_int_equal(instr_of(module, 2)->operands[0].slot, 5);
    assert_int_equal(instr_of(module, 2)->operands[0].pair, -1);
    assert_int_equal(instr_of(module, 3)->operands[1].elements[2].bits, UINT64_MAX);
    ptx_module_free(module);
}

static void modifiers_may_stand_apart(void **state) {
    (void)state;
    ptx_module *module = parse_body("ld .global.L2::128B .u32 /* from */ %r1, // there\n [ %rd1 ] ;;");
    const ptx_instr *instr = instr_of(module, 0);
    assert_string_equal(instr->opcode, "ld");
    assert_int_equal(instr->num_modifiers, 3);
    assert_string_equal(instr->modifiers[0], "global");
    assert_string_equal(instr->modifiers[1], "L2::128B");
    assert_string_equal(instr->modifiers[2], "u32");
    assert_string_equal(instr->text, "ld .global.L2::128B .u32 %r1, [ %rd1 ]");
    ptx_module_free(module);
}

static void scopes_hide_and_end(void **state) {
    (void)state;
    ptx_module *module = parse_body("{ .reg .b32 x; mov.b32 x, %r1; { .reg .b32 x, %r1; mov.b32 x, %r1; }\n"
                                    "mov.b32 x, %r1; }\n"
                                    "{ .reg .b64 x; .reg .b32 %r<3>; mov.b32 %r2, %r3; mov.b64 x, 0; }\n"
                                    ".reg .b32 %r1<5>; mov.b32 %r11, %r1;");
    const int slots[][2] = {{16, 5}, {17, 18}, {16, 5}, {22, 7}, {19, -1}, {24, 5}};
    for (int i = 0; i < 6; i++) {
        const ptx_instr *instr = instr_of(module, i);
        assert_int_equal(instr->operands[0].slot, slots[i][0]);
        assert_int_equal(instr->operands[1].slot, slots[i][1]);
    }
    assert_int_equal(module->functions[0].num_slots, 28);
    ptx_module_free(module);
}

static void labels_belong_to_their_scope(void **state) {
    (void)state;
    ptx_module *module = parse_body("{ again: bra again; bra out; bra skip; skip: }\n"          /* 0 1 2 */
                                    "out: { bra skip; { again: bra again; } skip: bra out; }\n" /* 3 4 5 */
                                    "{ bra over; over: }\n"                                     /* 6 */
                                    "{ over: @%p1 bra over; @!%p1 bra end; }\nend:");           /* 7 8 */
    const int targets[] = {0, 3, 3, 5, 4, 3, 7, 7, 9};
    for (int i = 0; i < 9; i++)
        assert_int_equal(instr_of(module, i)->operands[0].target, targets[i]);
    assert_int_equal(module->functions[0].num_instrs, 10);
    assert_string_equal(instr_of(module, 9)->opcode, "ret");
    assert_int_equal(instr_of(module, 9)->guard, -1);
    assert_non_null(instr_of(module, 9)->exec);
    ptx_module_free(module);
}

static void bodies_always_return(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int num_instrs;
    } cases[] = {{"", 1},
                 {"ret;", 1},
                 {"@%p1 ret;", 2},
                 {"exit;", 1},
                 {"trap;", 1},
                 {"self: bra self;", 1},
                 {"mov.b32 %r1, 0;", 2},
                 {"ret; end:", 2},
                 {"end: ret;", 1},
                 {"{ ret; { end: } }", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ptx_module *module = parse_body(cases[i].body);
        if (module->functions[0].num_instrs != cases[i].num_instrs)
            fail_msg("\"%s\" has %d instructions, not %d", cases[i].body, module->functions[0].num_instrs,
                     cases[i].num_instrs);
        ptx_module_free(module);
    }
}

static void families_are_tried_in_order(void **state) {
    (void)state;
    ptx_module *module = parse_body("add.s32 %r1, %r2, %r3;\nadd.f32 %r1, %r2, %r3;");
    assert_int_equal(instr_of(module, 0)->data[0], 1);
    assert_int_equal(instr_of(module, 1)->data[0], 2);
    ptx_module_free(module);
}

/* Bodies of a kernel that starts on line 6 of its text, and what is said about them. */
static const struct {
    const char *body, *error;
} wrong_bodies[] = {
    {"frob.u32 %r1, %r2;", "line 9: instruction frob is not implemented: frob.u32 %r1, %r2"},
    {"add.sat.s32 %r1, %r2, 1;", "line 9: add: modifier .sat is not supported: add.sat.s32 %r1, %r2, 1"},
    {"\nadd.u8 %r1, %r2, 1;", "line 10: instruction add is not implemented with these modifiers and operands: add.u8"},
    {"vote.sync %r1, %p1;", "line 9: instruction vote is not implemented with these"},
    {"call.uni (r), vprintf, (a);", "line 9: r is not declared: call.uni (r), vprintf, (a)"},
    {"{ .local .b64 a; call f, (a+8); }", "line 9: only variables of the .param space are passed to calls"},
    {"{ .param .b64 a; call f, (%r1); }", "line 9: only variables of the .param space are passed to calls"},
    {"{ .param .b64 a; call %rd1, (a); }", "line 9: calls through a register are not implemented"},
    {"{ .param .b64 a; call f, (a), proto; }", "line 9: "},
    {"call k;", "line 9: recursive calls are not implemented: call k"},
    {"brx.idx %r1, list;", "line 9: list is no list of branch targets: brx.idx %r1, list"},
    {"list: .branchtargets a; brx.idx %r1, list;", "line 9: a is neither a label in a scope around it nor declared"},
    {"list: .branchtargets ;", "line 9: expected a label, not \";\""},
    {"mov.b32 %r1, %r8;", "line 9: %r8 is not declared: mov.b32 %r1, %r8"},
    {"mov.b32 %r1, %r01;", "%r01 is not declared"},
    {"mov.b32 %r1, %tid;", "%tid is not declared"},
    {"mov.b32 %r1, %tid.w;", "%tid.w is not declared"},
    {"mov.b32 %r1, nowhere;", "nowhere is not declared"},
    {"{ .reg .b32 x; } mov.b32 x, 0;", "x is not declared"},
    {"@%r1 bra out; out:", "%r1 is not a predicate register"},
    {"mov.b32 %r1, !%r2;", "%r2 is not a predicate register"},
    {"mov.b32 %r1, -%r2;", "expected a number after \"-\", not \"%r2\""},
    {"bra out;", "line 9: out is neither a label in a scope around it nor declared: bra out"},
    {"{ in: } bra in;", "in is neither a label in a scope"},
    {"here: here:", "here is declared twice in its scope"},
    {".reg .b32 %r<9>;", "%r is declared twice in its scope"},
    {".reg .b128 wide;", "expected a register type of at most 64 bits, not \".b128\""},
    {".reg .b32 %x<300000>;", "the number of registers: at most 262144, not 300000"},
    {".reg .b32 x<262144>;", "more than 262144 registers in a function"},
    {".branchtargets a;", "expected a directive known inside functions, not \".branchtargets\""},
    {"mov.b32 %r1 %r2;", "expected \",\" or \";\", not \"%r2\""},
    {"mov.b32 %r1, ;", "expected an operand, not \";\""},
    {"mov.b32 %r1, (1);", "expected an operand, not \"(\""},
    {"mov.b32 %r1, {{%r2}};", "expected an operand, not \"{\""},
    {"mov.b32 %r1, {};", "expected an operand, not \"}\""},
    {"mov.b32 %r1, k;", "the address of function k is not implemented"},
    {"ld.u32 %r1, [%tid.x];", "%tid.x is no address"},
    {"ld.u32 %r1, [%rd1+4+4];", "expected \"]\", not \"+\""},
    {"ld.u32 %r1, [1.0];", "expected a register, variable or integer"},
    {"mov.b32 %r1, %r2|%p1;", "expected \",\" or \";\", not \"|\""},
    {"mov.b32 5|%p1, %r1;", "a pair of results consists of registers"},
    {"mov.b32 %r1|5, %r1;", "a pair of results consists of registers"},
    {"mov.b32 %r1, 12ab;", "a number runs into a name"},
    {"mov.b32 %r1, 08;", "a number runs into a name"},
    {"mov.b32 %r1, 0x;", "an integer literal has no digits, or more than 64 bits"},
    {"mov.b32 %r1, 18446744073709551616;", "an integer literal has no digits, or more than 64 bits"},
    {"mov.b32 %r1, 0f3F8;", "a 0f literal has 8 hexadecimal digits, a 0d literal 16"},
    {"mov.b32 %r1, \\;", "a character that PTX does not have"},
    {"mov.b32 %r1, \x80;", "a character that PTX does not have: mov.b32 %r1, ?"},
    {"/* open", "a comment does not end"},
    {".pragma \"open;", "a string does not end on its line"},
    {"mov.b32 1,2,3,4,5,6,7,8,9,10,11,12,13;", "an instruction has at most 12 operands"},
    {"mov.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a 1;", "an instruction has at most 16 modifiers"},
    {".shared .b8 x[0];", "an array has 1 to 1073741824 bytes"},
    {".shared .b8 x[65536][65536];", "an array has 1 to 1073741824 bytes"},
    {".shared .b8 x[1][1][1][1][1][1][1][1][1];", "an array has at most 8 dimensions"},
    {".shared .b8 x[50000];", "line 6: k has 50000 bytes of static shared and 0 of local memory; at most 49152 and"},
    {".shared .align 3 .b8 x;", "an alignment is a power of two, not 3"},
    {".shared .b32 x = 1;", "only global and const variables have initialisers"},
    {".shared .b32 x[];", "an array needs its size"},
    {".shared .pred x;", "expected a type that memory can hold"},
    {".extern .local .b8 x[];", "external variables other than dynamic shared memory need a linker"},
};

static void expect_error(const char *text, size_t size, const char *wanted) {
    char error[512] = "";
    ptx_module *module = ptx_module_parse(text, size, error, sizeof error);
    if (module || !strstr(error, wanted))
        fail_msg("%s\nis said to be: %s\nnot: %s", text, module ? "right" : error, wanted);
}

static void wrong_bodies_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_bodies / sizeof wrong_bodies[0]; i++) {
        char text[1024];
        int length = snprintf(text, sizeof text,
                              PTX_HEADER "\n\n.entry k(.param .u64 a) {\n.reg .pred %%p<4>; .reg .b32 %%r<8>;\n"
                                         ".reg .b64 %%rd<4>;\n%s\n}\n",
                              wrong_bodies[i].body);
        expect_error(text, (size_t)length, wrong_bodies[i].error);
    }
}

static void wrong_modules_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "line 1: not a PTX module: it has no .version: "},
        {".version 8.3\n", "line 2: not a PTX module: it has no .target"},
        {".version 8\n", "expected a version such as 8.3, not \"8\""},
        {".version 8.31\n", "expected a version such as 8.3"},
        {PTX_HEADER ".version 8.3", "a second version"},
        {".version 8.3\n.target sm_90a\n.address_size 32", "addresses have 64 bits"},
        {".target sm_90a_and_far_more_than_is_ever_there", "a target's name has at most 31 characters"},
        {PTX_HEADER ".alias a, b;", "expected a directive known outside functions, not \".alias\": .alias a, b"},
        {PTX_HEADER "bra", "expected a directive known outside functions, not \"bra\""},
        {PTX_HEADER ".visible .version", "expected a function or a variable"},
        {PTX_HEADER ".local .b8 x;", "parameters and local variables belong into functions"},
        {PTX_HEADER ".extern .global .b8 x;", "external variables other than dynamic shared memory need a linker"},
        {PTX_HEADER ".global .texref t;", "expected a type that memory can hold, not \".texref\""},
        {PTX_HEADER ".global .u64 p = kernel;", "an initialiser with the address of kernel: only numbers are"},
        {PTX_HEADER ".global .u8 x = 256;", "an initialiser beyond the range of .u8"},
        {PTX_HEADER ".global .s8 x = -129;", "an initialiser beyond the range of .s8"},
        {PTX_HEADER ".global .s32 x = 1.5;", "a floating point literal for a variable of type .s32"},
        {PTX_HEADER ".global .f64 x = 0f3F800000;", "a literal of 32 bits for a variable of type .f64"},
        {PTX_HEADER ".global .b8 x[2] = {1, 2, 3};", "an initialiser with more than 2 elements"},
        {PTX_HEADER ".global .b8 x[2][2] = {1};", "expected \"{\", not \"1\""},
        {PTX_HEADER ".global .b8 x[] = {1};", "an array needs its size"},
        {PTX_HEADER ".global .b8 x[1073741824] = {1};", "more than 67108864 initialised bytes"},
        {PTX_HEADER ".const .b8 x[65537];", "variables up to x take 65537 bytes (65537 const, 0 shared)"},
        {PTX_HEADER ".entry k(.param .b8 x[40000]) { }", "more than 32764 bytes of parameters"},
        {PTX_HEADER ".entry k(.reg .b32 x) { }", "expected .param, not \".reg\""},
        {PTX_HEADER ".entry k(.param .b32 x, .param .b32 x) { }", "x is declared twice in its scope"},
        {PTX_HEADER ".entry k() { }\n.entry k() { }", "line 5: k is declared twice"},
        {PTX_HEADER ".entry k() .maxntid 1025 { }", "a CTA has 1 to 1024 threads, not 1025"},
        {PTX_HEADER ".entry k() .reqnctapercluster 2 { }", "clusters of CTAs are not implemented"},
        {PTX_HEADER ".entry k() .blocksareclusters { }", "expected a directive known before a function's body, not"},
        {PTX_HEADER ".entry k() {", "the body of k does not end"},
        {PTX_HEADER ".section .debug {", "a section does not end"},
        {PTX_HEADER ".file 4096 \"x\"", "a file's index: at most 4095, not 4096"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_error(cases[i].text, strlen(cases[i].text), cases[i].error);
}

static void scopes_nest_so_deep(void **state) {
    (void)state;
    for (int depth = 62; depth <= 63; depth++) {
        char body[256] = "";
        memset(body, '{', (size_t)depth);
        memset(body + depth, '}', (size_t)depth);
        if (depth == 62) {
            ptx_module_free(parse_body(body));
            continue;
        }
        char text[512];
        int length = snprintf(text, sizeof text, PTX_HEADER ".entry k() {%s}", body);
        expect_error(text, (size_t)length, "scopes are nested more than 64 deep");
    }
}

static void errors_fit_any_buffer(void **state) {
    (void)state;
    const char text[] = "\001";
    char error[8];
    memset(error, 'x', sizeof error);
    assert_null(ptx_module_parse(text, 1, error, 5));
    assert_string_equal(error, "line");
    assert_int_equal(error[5], 'x');
    assert_null(ptx_module_parse(text, 1, error, 0));
    assert_null(ptx_module_parse(text, 1, NULL, 100));
    assert_null(ptx_module_parse(NULL, 0, error, sizeof error));
    assert_null(ptx_module_parse(text, (size_t)1 << 40, error, sizeof error));
    ptx_module_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_becomes_functions_params_and_layout),
        cmocka_unit_test(kernel_becomes_instructions),
        cmocka_unit_test(data_is_laid_out_and_initialised),
        cmocka_unit_test(functions_have_their_own_view_of_dynamic_memory),
        cmocka_unit_test(source_lines_follow_loc),
        cmocka_unit_test(operands_of_every_kind),
        cmocka_unit_test(vectors_and_pairs_may_have_sinks),
        cmocka_unit_test(modifiers_may_stand_apart),
        cmocka_unit_test(scopes_hide_and_end),
        cmocka_unit_test(labels_belong_to_their_scope),
        cmocka_unit_test(bodies_always_return),
        cmocka_unit_test(families_are_tried_in_order),
        cmocka_unit_test(wrong_bodies_are_named),
        cmocka_unit_test(wrong_modules_are_named),
        cmocka_unit_test(scopes_nest_so_deep),
        cmocka_unit_test(errors_fit_any_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
