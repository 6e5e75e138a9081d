/* SPDX-License-Identifier: MIT
 *
 * One instruction, parsed and bound as in a module, run on a warp of hand-filled registers. Registers of a text: %h 16
 * bits, %r 32, %d 64, %b 8, %p predicates, eight of each. */
#ifndef TESTS_PTXSIM_SCALAR_MACHINE_H_
#define TESTS_PTXSIM_SCALAR_MACHINE_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sim.h"

#define MACHINE_SLOTS   64
#define MACHINE_SOURCES 5
#define UNTOUCHED       UINT64_C(0x5a5a5a5a5a5a5a5a)

typedef struct machine {
    ptx_module *module;
    const ptx_instr *instr;
    sim_warp warp;
    uint64_t registers[MACHINE_SLOTS * SIM_LANES];
    uint8_t pending[MACHINE_SLOTS];
} machine;

static uint64_t random_state;

static inline uint64_t random_bits(void) {
    uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline void seed_randomly(void) {
    const char *given = getenv("PTXSIM_TEST_SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("seed: PTXSIM_TEST_SEED=%llu\n", (unsigned long long)random_state);
}

/* Numbers as a register holds them. */
static inline uint64_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float as_float(uint64_t bits) {
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return value;
}

static inline double as_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* NULL and a message in `error` if the module does not load. */
static inline ptx_module *machine_load(const char *text, char *error, size_t error_size) {
    char source[1024];
    const int size = snprintf(source, sizeof(source),
                              ".version 8.8\n.target sm_120a\n.address_size 64\n.visible .entry k()\n{\n"
                              ".reg .b8 %%b<8>;\n.reg .b16 %%h<8>;\n.reg .b32 %%r<8>;\n.reg .b64 %%d<8>;\n"
                              ".reg .pred %%p<8>;\n%s;\nret;\n}\n",
                              text);
    return ptx_module_parse(source, (size_t)size, error, error_size);
}

static inline void machine_init(machine *m, const char *text) {
    char error[512];
    memset(m, 0, sizeof(*m));
    m->module = machine_load(text, error, sizeof(error));
    if (!m->module)
        fail_msg("%s: %s", text, error);
    m->instr = &m->module->functions[0].instrs[0];
    assert_true(m->module->functions[0].num_slots <= MACHINE_SLOTS);
    m->warp.registers = m->registers;
    m->warp.register_pending = m->pending;
    m->warp.exists = UINT32_MAX;
    for (size_t i = 0; i < MACHINE_SLOTS * SIM_LANES; i++)
        m->registers[i] = UNTOUCHED;
}

static inline void machine_destroy(machine *m) {
    ptx_module_free(m->module);
}

/* Values of a register in all lanes. */
static inline uint64_t *machine_lanes(machine *m, int slot) {
    assert_true(slot >= 0 && slot < MACHINE_SLOTS);
    return m->registers + (size_t)slot * SIM_LANES;
}

/* Of the register that is operand i. */
static inline uint64_t *machine_operand(machine *m, int i) {
    return machine_lanes(m, m->instr->operands[i].slot);
}

static inline void machine_run(machine *m, uint32_t mask) {
    assert_int_equal(m->instr->exec(&m->warp, m->instr, mask), SIM_DONE);
}

/* A text that must not load, with `part` in its message. */
static inline void assert_refused(const char *text, const char *part) {
    char error[512] = "";
    ptx_module *module = machine_load(text, error, sizeof(error));
    if (module) {
        ptx_module_free(module);
        fail_msg("%s: accepted", text);
    }
    if (!strstr(error, part))
        fail_msg("%s: message is \"%s\", without \"%s\"", text, error, part);
}

/* ---- Instructions against formulas ---- */

/* The result's bits from the sources' bits; the i-th is operand i + 1. */
typedef uint64_t (*formula)(const uint64_t *sources);
/* Bits of a source of `width` bits. */
typedef uint64_t (*generator)(int width);

static inline uint64_t cut(uint64_t bits, int width) {
    return width >= 64 ? bits : bits & ((UINT64_C(1) << width) - 1);
}

/* Integers, many of them near the ends of their range, small, or of few bits. */
static inline uint64_t any_integer(int width) {
    const uint64_t bits = random_bits(), near = random_bits() % 5 - 2;
    switch (bits % 6) {
    case 0:
        return cut(near, width);
    case 1:
        return cut((UINT64_C(1) << (width - 1)) + near, width);
    case 2:
        return cut((UINT64_C(1) << (bits >> 8) % (unsigned)width) + near, width);
    case 3:
        return cut(bits >> 8 & 0x7f, width);
    default:
        return cut(random_bits(), width);
    }
}

/* Runs `text` with sources from `generate`, under full and partial masks, and compares each lane with the formula. A
 * source that is a literal keeps its value. */
static inline void check_instruction(const char *text, formula expected, generator generate, int rounds) {
    machine m;
    machine_init(&m, text);
    const int count = m.instr->num_operands - 1;
    uint64_t sources[SIM_LANES][MACHINE_SOURCES] = {{0}};
    assert_true(count <= MACHINE_SOURCES);
    for (int round = 0; round < rounds; round++) {
        const uint32_t mask = round % 3 ? UINT32_MAX : (uint32_t)random_bits();
        uint64_t *const result = machine_operand(&m, 0);
        for (int lane = 0; lane < SIM_LANES; lane++)
            result[lane] = UNTOUCHED;
        for (int i = 0; i < count; i++) {
            const ptx_operand *operand = &m.instr->operands[i + 1];
            for (int lane = 0; lane < SIM_LANES; lane++) {
                sources[lane][i] = operand->bits;
                if (operand->kind == PTX_OPERAND_REGISTER)
                    sources[lane][i] = machine_operand(&m, i + 1)[lane] = generate(operand->width);
            }
        }
        machine_run(&m, mask);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const uint64_t want = mask >> lane & 1 ? expected(sources[lane]) : UNTOUCHED;
            if (result[lane] != want)
                fail_msg("%s: 0x%llx 0x%llx 0x%llx 0x%llx: got 0x%llx, expected 0x%llx%s", text,
                         (unsigned long long)sources[lane][0], (unsigned long long)sources[lane][1],
                         (unsigned long long)sources[lane][2], (unsigned long long)sources[lane][3],
                         (unsigned long long)result[lane], (unsigned long long)want,
                         mask >> lane & 1 ? "" : " (lane not active)");
        }
    }
    machine_destroy(&m);
}

/* A formula over sources a, b, c, e of a C type; its result is cut to `bits`. */
#define FORMULA(name, type, bits, expression)                                                                          \
    static uint64_t name(const uint64_t *s) {                                                                          \
        const type a = (type)s[0], b = (type)s[1], c = (type)s[2], e = (type)s[3];                                     \
        (void)a, (void)b, (void)c, (void)e;                                                                            \
        return cut((uint64_t)(expression), bits);                                                                      \
    }

typedef struct instruction_case {
    const char *text;
    formula expected;
} instruction_case;

static inline void check_cases(const instruction_case *cases, size_t count, generator generate, int rounds) {
    for (size_t i = 0; i < count; i++)
        check_instruction(cases[i].text, cases[i].expected, generate, rounds);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
