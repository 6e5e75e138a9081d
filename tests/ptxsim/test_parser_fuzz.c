/* SPDX-License-Identifier: MIT
 *
 * Damaged PTX: every prefix of the samples, and thousands of random mutations of them. Each text lies in memory of
 * exactly its size, so that address sanitizers see every over-read; modules that still parse must be sound in
 * themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fake_ops.h"
#include "ptx_samples.h"

#define MUTATIONS  30000
#define MAX_TEXT   16384
#define MAX_DAMAGE 4

static const char *const samples[] = {sample_kernel, sample_data, sample_calls};
#define NUM_SAMPLES (sizeof samples / sizeof samples[0])

/* What to put in: all that has a meaning somewhere, where it has none. */
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    ",",
    ";",
    ":",
    "::",
    "@",
    "!",
    "|",
    "-",
    "+",
    "_",
    "%",
    "%p1",
    "%r1",
    "%rd1",
    "%r<3>",
    "%tid.x",
    "WARP_SZ",
    "0",
    "-1",
    "0x7fffffffffffffff",
    "4294967296",
    "1073741824",
    "262144",
    "0f00000000",
    "0d0",
    "1e999",
    "1.5",
    ".reg .b32 ",
    ".pred ",
    ".shared ",
    ".global ",
    ".const ",
    ".local ",
    ".param ",
    ".extern ",
    ".align 4096 ",
    ".align ",
    ".b8 x[",
    ".v4 ",
    ".f64 ",
    "= {1, 2}",
    ".loc 1 2 3",
    ".file 9 \"",
    ".section ",
    ".pragma ",
    ".entry k ",
    ".func k ",
    ".maxntid 1",
    "bra end;",
    "end:",
    "call f;",
    "mov.b32 ",
    "call inner;",
    "call outer, (a);",
    ".branchtargets end;",
    "brx.idx %r1, ",
    "dynamic",
    "\"",
    "/*",
    "*/",
    "//",
    "\n",
    "\r",
    "\t",
    "{{{{{{{{{",
    "}}}}}}}}}",
};

typedef struct ptx_text {
    char bytes[MAX_TEXT];
    size_t size;
} ptx_text;

static uint64_t random_state;

static uint64_t random_below(uint64_t bound) {
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = random_state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ (mixed >> 31)) % bound;
}

/* ---- Soundness ---- */

static void check_slot(const ptx_function *function, int slot) {
    assert_true(slot >= -1 && slot < function->num_slots);
}

/* A variable that is used is one of those that have their place. */
static void check_used(const ptx_module *module, const ptx_function *function, const ptx_variable *used) {
    for (int i = 0; i < function->num_params; i++) {
        if (used == &function->params[i])
            return;
    }
    for (int i = 0; i < function->num_variables; i++) {
        if (used == function->variables[i])
            return;
    }
    for (int i = 0; i < module->num_variables; i++) {
        /* Dynamic shared memory has no place outside functions. */
        if (used == module->variables[i] && (used->space != PTX_SHARED || used->size > 0))
            return;
    }
    fail_msg("%s is used but has no place", used->name);
}

static void check_operand(const ptx_module *module, const ptx_function *function, const ptx_operand *operand) {
    check_slot(function, operand->slot);
    check_slot(function, operand->pair);
    assert_true((operand->kind == PTX_OPERAND_REGISTER) <= (operand->slot >= 0));
    assert_true((operand->kind == PTX_OPERAND_SPECIAL || operand->kind == PTX_OPERAND_FUNCTION) ==
                (operand->name != NULL));
    if (operand->kind == PTX_OPERAND_LABEL)
        assert_in_range(operand->target, 0, function->num_instrs - 1);
    if (operand->kind == PTX_OPERAND_SYMBOL)
        assert_non_null(operand->variable);
    if (operand->variable)
        check_used(module, function, operand->variable);
    for (int i = 0; i < operand->num_elements; i++)
        check_operand(module, function, &operand->elements[i]);
}

static void check_instr(const ptx_module *module, const ptx_function *function, const ptx_instr *instr) {
    assert_ptr_equal(instr->exec, function->is_entry ? fake_exec : NULL); /* others are part of those */
    assert_true(strlen(instr->opcode) > 0 && strlen(instr->text) >= strlen(instr->opcode));
    assert_in_range(instr->num_modifiers, 0, PTX_MAX_MODIFIERS);
    assert_in_range(instr->num_operands, 0, PTX_MAX_OPERANDS);
    assert_true(instr->line > 0);
    assert_true(instr->source_file == 0 ||
                (instr->source_file < module->num_files && module->files[instr->source_file]));
    check_slot(function, instr->guard);
    for (int i = 0; i < instr->num_modifiers; i++)
        assert_true(strlen(instr->modifiers[i]) > 0);
    for (int i = 0; i < instr->num_operands; i++)
        check_operand(module, function, &instr->operands[i]);
    for (int i = 0; i < instr->num_operands && strcmp(instr->opcode, "call") != 0; i++)
        assert_true((instr->operands[i].kind == PTX_OPERAND_VECTOR) <= (instr->operands[i].num_elements > 0));
}

static void check_variable(const ptx_variable *variable, size_t space_bytes) {
    assert_true(strlen(variable->name) > 0);
    assert_int_equal(variable->offset % variable->align, 0);
    assert_in_range(variable->offset + variable->size, 0, space_bytes);
    uint8_t sum = 0;
    for (size_t i = 0; variable->init && i < variable->size; i += 1 + variable->size / 4096)
        sum = (uint8_t)(sum + variable->init[i]);
    (void)sum;
}

static void check_function(const ptx_module *module, const ptx_function *function) {
    assert_true(strlen(function->name) > 0);
    assert_in_range(function->num_instrs, 1, INT32_MAX);
    for (int i = 0; i < function->num_params; i++)
        check_variable(&function->params[i], function->param_bytes);
    for (int i = 0; i < function->num_variables; i++) {
        const ptx_variable *variable = function->variables[i];
        assert_true(variable->space == PTX_SHARED || variable->space == PTX_LOCAL);
        check_variable(variable, variable->space == PTX_LOCAL ? function->local_bytes : function->static_shared_bytes);
        for (int j = 0; j < i; j++) { /* none lies in another */
            const ptx_variable *other = function->variables[j];
            if (other->space == variable->space && other->size > 0 && variable->size > 0)
                assert_true(other->offset + other->size <= variable->offset);
        }
    }
    for (int i = 0; i < function->num_instrs; i++)
        check_instr(module, function, &function->instrs[i]);
}

static void check_module(const ptx_module *module) {
    assert_true(module->version > 0 && strlen(module->target) > 0);
    for (int i = 0; i < module->num_variables; i++)
        check_variable(module->variables[i], SIZE_MAX);
    for (int i = 0; i < module->num_functions; i++) {
        check_function(module, &module->functions[i]);
        assert_ptr_equal(ptx_module_find(module, module->functions[i].name), &module->functions[i]);
    }
}

/* ---- Parsing damaged text ---- */

/* "line N: what: text" of one line that prints. */
static void check_error(const char *error, size_t size) {
    assert_non_null(memchr(error, '\0', size));
    assert_int_equal(strncmp(error, "line ", 5), 0);
    char *end;
    long line = strtol(error + 5, &end, 10);
    assert_true(line >= 1 && strncmp(end, ": ", 2) == 0);
    for (const char *c = end; *c; c++)
        assert_true(*c >= 0x20 && *c < 0x7f);
}

static bool parse_exactly(const char *bytes, size_t size) {
    char error[300];
    char *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    memset(error, 'x', sizeof error);
    ptx_module *module = ptx_module_parse(exact, size, error, sizeof error);
    free(exact); /* modules keep nothing of it */
    if (module)
        check_module(module);
    else
        check_error(error, sizeof error);
    ptx_module_free(module);
    return module != NULL;
}

/* `removed` bytes at `at` make room for `size` others, as far as there is room. */
static void replace(ptx_text *text, size_t at, size_t removed, const char *bytes, size_t size) {
    if (removed > text->size - at)
        removed = text->size - at;
    if (text->size - removed + size > MAX_TEXT)
        return;
    memmove(text->bytes + at + size, text->bytes + at + removed, text->size - at - removed);
    memcpy(text->bytes + at, bytes, size);
    text->size = text->size - removed + size;
}

static void damage(ptx_text *text) {
    const char *word = words[random_below(sizeof words / sizeof words[0])];
    const char *other = samples[random_below(NUM_SAMPLES)];
    size_t at = random_below(text->size), length = random_below(40), from = random_below(strlen(other));
    char byte = (char)random_below(256), copy[400];
    switch (random_below(7)) {
    case 0: /* any byte */
        replace(text, at, 1, &byte, 1);
        break;
    case 1:
        replace(text, at, length, "", 0);
        break;
    case 2: /* a word, in place of something or in between */
        replace(text, at, random_below(2) * length, word, strlen(word));
        break;
    case 3: /* a digit where a digit is */
        while (at < text->size && (text->bytes[at] < '0' || text->bytes[at] > '9'))
            at++;
        byte = (char)('0' + random_below(10));
        if (at < text->size)
            replace(text, at, random_below(2), &byte, 1);
        break;
    case 4: /* part of a sample */
        length = random_below(sizeof copy);
        length = length < strlen(other) - from ? length : strlen(other) - from;
        replace(text, at, 0, other + from, length);
        break;
    case 5: /* the text's own, once more */
        length = random_below(sizeof copy);
        length = length < text->size - at ? length : text->size - at;
        memcpy(copy, text->bytes + at, length);
        replace(text, random_below(text->size), 0, copy, length);
        break;
    default: /* the end is missing */
        if (random_below(8) == 0)
            text->size = at + 1;
        break;
    }
    if (text->size == 0)
        replace(text, 0, 0, ".", 1);
}

static void samples_are_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_SAMPLES; i++)
        assert_true(parse_exactly(samples[i], strlen(samples[i])));
}

static void every_prefix_is_refused_or_sound(void **state) {
    (void)state;
    size_t sound = 0;
    for (size_t i = 0; i < NUM_SAMPLES; i++) {
        for (size_t size = 0; size < strlen(samples[i]); size++)
            sound += parse_exactly(samples[i], size);
    }
    assert_true(sound > 0); /* between two declarations */
}

static void mutations_are_refused_or_sound(void **state) {
    (void)state;
    static ptx_text mutated;
    size_t sound = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        const char *sample = samples[random_below(NUM_SAMPLES)];
        mutated.size = strlen(sample);
        memcpy(mutated.bytes, sample, mutated.size);
        for (uint64_t n = 1 + random_below(MAX_DAMAGE); n > 0; n--)
            damage(&mutated);
        sound += parse_exactly(mutated.bytes, mutated.size);
    }
    printf("%zu of %d mutations parse\n", sound, MUTATIONS);
    /* Both sides are tried. */
    assert_in_range(sound, MUTATIONS / 100, MUTATIONS - MUTATIONS / 100);
}

/* Bytes without any structure, and structure without end: brackets, scopes and names nested or repeated. */
static void noise_is_refused_or_sound(void **state) {
    (void)state;
    static ptx_text noise;
    for (int i = 0; i < MUTATIONS / 4; i++) {
        bool from_words = random_below(2);
        noise.size = 0;
        replace(&noise, 0, 0, PTX_HEADER, random_below(4) ? strlen(PTX_HEADER) : 0);
        if (random_below(2))
            replace(&noise, noise.size, 0, ".entry k() {", 12);
        for (uint64_t n = random_below(60); n > 0; n--) {
            char byte = (char)random_below(256);
            const char *word = from_words ? words[random_below(sizeof words / sizeof words[0])] : NULL;
            replace(&noise, noise.size, 0, word ? word : &byte, word ? strlen(word) : 1);
        }
        parse_exactly(noise.bytes, noise.size);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_sound),
        cmocka_unit_test(every_prefix_is_refused_or_sound),
        cmocka_unit_test(mutations_are_refused_or_sound),
        cmocka_unit_test(noise_is_refused_or_sound),
    };
    random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (repeat with it as the argument)\n", (unsigned long long)random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
