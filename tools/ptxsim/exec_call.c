/* SPDX-License-Identifier: MIT
 *
 * Functions that kernels call and whose bodies are in no module: what printf and assert of CUDA C++ become (CUDA C++
 * Programming Guide, "Formatted Output"; the calls are those that NVRTC emits). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "exec.h"
#include "memory.h"

enum { MAX_TEXT = 4096, MAX_STRING = 1024 };

/* Reads `size` bytes that a lane may read. */
static bool fetch(sim_warp *warp, const ptx_instr *instr, int lane, ptx_space space, uint64_t address, void *to,
                  size_t size) {
    const uint8_t *from = sim_access(warp, instr, lane, space, address, size, false);
    if (from)
        memcpy(to, from, size);
    return from != NULL;
}

/* A parameter of the call, by index. */
static bool fetch_param(sim_warp *warp, const ptx_instr *instr, int lane, int index, void *to, size_t size) {
    const ptx_variable *variable = instr->operands[2].elements[index].variable;
    return fetch(warp, instr, lane, PTX_LOCAL, variable->offset, to, size);
}

static bool fetch_string(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t address, char *to, size_t size) {
    size_t i = 0;
    do {
        if (!fetch(warp, instr, lane, PTX_GENERIC, address + i, &to[i], 1))
            return false;
    } while (to[i] && ++i + 1 < size);
    to[i] = '\0';
    return true;
}

/* ---- vprintf ---- */

typedef struct output {
    char text[MAX_TEXT];
    size_t used;
} output;

static void add(output *o, const char *text, size_t length) {
    const size_t room = sizeof o->text - 1 - o->used;
    length = length < room ? length : room;
    memcpy(o->text + o->used, text, length);
    o->used += length;
}

/* One argument; they lie one after the other, each aligned to its size. */
static bool next_argument(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t *address, void *to, size_t size) {
    *address = (*address + size - 1) & ~(uint64_t)(size - 1);
    *address += size;
    return fetch(warp, instr, lane, PTX_GENERIC, *address - size, to, size);
}

/* A conversion from after its % on: flags, width and precision as they stand, the length as the argument's size. */
typedef struct conversion {
    char flags[32];
    bool is_long;
    char type;
} conversion;

static const char *parse_conversion(const char *at, conversion *c) {
    size_t used = 0;
    memset(c, 0, sizeof *c);
    while (*at && strchr("-+ #0123456789.", *at)) {
        if (used + 1 < sizeof c->flags && !(isdigit((unsigned char)*at) && used > 12))
            c->flags[used++] = *at;
        at++;
    }
    while (*at && strchr("hlLjzt", *at))
        c->is_long |= *at++ != 'h';
    c->type = *at;
    return *at ? at + 1 : at;
}

static bool convert(sim_warp *warp, const ptx_instr *instr, int lane, const conversion *c, uint64_t *arguments,
                    output *o) {
    char format[48], text[512], string[MAX_STRING];
    uint64_t wide = 0;
    uint32_t narrow = 0;
    double real = 0;
    int length = 0;
    if (strchr("diouxXc", c->type)) {
        if (c->is_long ? !next_argument(warp, instr, lane, arguments, &wide, 8)
                       : !next_argument(warp, instr, lane, arguments, &narrow, 4))
            return false;
        const bool is_signed = c->type == 'd' || c->type == 'i';
        const long long value = c->is_long  ? (long long)wide
                                : is_signed ? (long long)(int32_t)narrow
                                            : (long long)narrow;
        snprintf(format, sizeof format, "%%%s%s%c", c->flags, c->type == 'c' ? "" : "ll", c->type);
        length = c->type == 'c' ? snprintf(text, sizeof text, format, (int)(value & 0xff))
                                : snprintf(text, sizeof text, format, value);
    } else if (strchr("eEfFgGaA", c->type)) {
        if (!next_argument(warp, instr, lane, arguments, &real, 8))
            return false;
        snprintf(format, sizeof format, "%%%s%c", c->flags, c->type);
        length = snprintf(text, sizeof text, format, real);
    } else {
        if (!next_argument(warp, instr, lane, arguments, &wide, 8))
            return false;
        snprintf(format, sizeof format, "%%%s%c", c->flags, c->type == 's' ? 's' : 'p');
        if (c->type == 's' && !fetch_string(warp, instr, lane, wide, string, sizeof string))
            return false;
        length = c->type == 's' ? snprintf(text, sizeof text, format, string)
                                : snprintf(text, sizeof text, format, (void *)(uintptr_t)wide);
    }
    if (length > 0)
        add(o, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
    return true;
}

/* Prints the lane's text; *count: arguments. */
static bool print(sim_warp *warp, const ptx_instr *instr, int lane, int32_t *count) {
    output o = {.used = 0};
    char format[MAX_STRING];
    uint64_t pointers[2];
    *count = 0;
    for (int i = 0; i < 2; i++)
        if (!fetch_param(warp, instr, lane, i, &pointers[i], sizeof pointers[i]))
            return false;
    if (!fetch_string(warp, instr, lane, pointers[0], format, sizeof format))
        return false;
    for (const char *at = format; *at;) {
        const size_t plain = strcspn(at, "%");
        conversion c;
        add(&o, at, plain);
        at += plain;
        if (!*at)
            break;
        at = parse_conversion(at + 1, &c);
        if (c.type == '%') {
            add(&o, "%", 1);
        } else if (c.type && strchr("diouxXceEfFgGaAsp", c.type)) {
            if (!convert(warp, instr, lane, &c, &pointers[1], &o))
                return false;
            ++*count;
        }
    }
    fwrite(o.text, 1, o.used, stdout); /* at once, as other host threads print, too */
    fflush(stdout);
    return true;
}

static sim_result exec_vprintf(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *returns = &instr->operands[1];
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        int32_t count;
        if (!print(warp, instr, lane, &count))
            return SIM_FAULT;
        if (returns->num_elements == 0)
            continue;
        uint8_t *to = sim_access(warp, instr, lane, PTX_LOCAL, returns->elements[0].variable->offset, 4, true);
        if (!to)
            return SIM_FAULT;
        memcpy(to, &count, 4);
    }
    return SIM_DONE;
}

/* ---- __assertfail(condition, file, line, function, size of a character) ---- */

static sim_result exec_assertfail(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const int lane = __builtin_ctz(mask);
    uint64_t condition, file;
    uint32_t line;
    char texts[2][256];
    if (!fetch_param(warp, instr, lane, 0, &condition, 8) || !fetch_param(warp, instr, lane, 1, &file, 8) ||
        !fetch_param(warp, instr, lane, 2, &line, 4) ||
        !fetch_string(warp, instr, lane, condition, texts[0], sizeof texts[0]) ||
        !fetch_string(warp, instr, lane, file, texts[1], sizeof texts[1]))
        return SIM_FAULT;
    return sim_fault(warp, instr, lane, "assertion failed at %s:%u: %s", texts[1], line, texts[0]);
}

/* ---- Binding ---- */

static const struct {
    const char *name;
    int returns; /* at most */
    int params;
    size_t sizes[5];
    sim_exec exec;
} functions[] = {
    {"vprintf", 1, 2, {8, 8}, exec_vprintf},
    {"__assertfail", 0, 5, {8, 8, 4, 8, 8}, exec_assertfail},
};

static bool bind_call(ptx_instr *instr, char *error, size_t error_size) {
    const ptx_operand *returns = &instr->operands[1], *params = &instr->operands[2];
    if (instr->num_operands != 3 || instr->operands[0].kind != PTX_OPERAND_FUNCTION)
        return false;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, instr->operands[0].name) != 0)
            continue;
        bool fits = returns->num_elements <= functions[i].returns && params->num_elements == functions[i].params;
        for (int p = 0; fits && p < params->num_elements; p++)
            fits = params->elements[p].variable->size == functions[i].sizes[p];
        if (fits && returns->num_elements)
            fits = returns->elements[0].variable->size == 4;
        if (!fits) {
            snprintf(error, error_size, "%s has other parameters", functions[i].name);
            return false;
        }
        instr->exec = functions[i].exec;
        return true;
    }
    snprintf(error, error_size, "function %.100s has no body in this module", instr->operands[0].name);
    return false;
}

const sim_op sim_ops_call[] = {{"call", bind_call}, {NULL, NULL}};
