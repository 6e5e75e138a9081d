/* SPDX-License-Identifier: MIT */
#include "scalar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 128, MIXED = 4096, ALL = 65536, SLOT = 8 };

static int bits_of(char letter) {
    return strchr("shb", letter) ? 16 : strchr("ld", letter) ? 64 : 32;
}

/* ---- Operands ---- */

static const uint64_t special_f16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3bff, 0x3c00, 0xbc00,
                                       0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0x7fff};
static const uint64_t special_bf16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f7f, 0x3f80, 0xbf80,
                                        0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0x7fff};
static const uint64_t special_f32[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x3f7fffff, 0x3f800000,
    0xbf800000, 0x3f800001, 0x4b000000, 0x4effffff, 0x4f000000, 0xcf000000, 0x4f800000, 0x5f000000, 0x5f800000,
    0x477fe000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x43e00000, 0x43e80000, 0x47600000, 0x47700000,
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0x3b000000};
static const uint64_t special_f64[] = {0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x000fffffffffffff,
                                       0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x3fefffffffffffff,
                                       0x41dfffffffc00000, 0x41e0000000000000, 0xc1e0000000000000, 0x43e0000000000000,
                                       0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x7fefffffffffffff,
                                       0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001};
static const uint64_t special_integers[] = {0,
                                            1,
                                            2,
                                            7,
                                            8,
                                            15,
                                            16,
                                            31,
                                            32,
                                            33,
                                            63,
                                            64,
                                            127,
                                            128,
                                            255,
                                            256,
                                            0x7fff,
                                            0x8000,
                                            0xffff,
                                            0x10000,
                                            0x7fffffff,
                                            0x80000000,
                                            0xffffffff,
                                            0x100000000,
                                            0x7fffffffffffffff,
                                            0x8000000000000000,
                                            0xffffffffffffffff};

#define PICK(table, r) (table)[rng_below(r, sizeof(table) / sizeof *(table))]

/* A float of which `mantissa` and `exponent` bits are given, with an exponent near the middle. */
static uint64_t near_one(struct rng *r, int mantissa, int exponent, int spread) {
    const int64_t e = (INT64_C(1) << (exponent - 1)) - 1 + rng_range(r, -spread, spread);
    const uint64_t sign = rng_next(r) & 1;
    return sign << (mantissa + exponent) | (uint64_t)e << mantissa | (rng_next(r) & ((UINT64_C(1) << mantissa) - 1));
}

static uint64_t operand(struct rng *r, char letter) {
    const int64_t how = rng_below(r, 8); /* 0 to 2: special, 3 to 5: near others, 6, 7: any bits */
    const uint64_t any = rng_next(r);
    switch (letter) {
    case 'h':
        return how < 3 ? PICK(special_f16, r) : how < 6 ? near_one(r, 10, 5, 3) : any & 0xffff;
    case 'b':
        return how < 3 ? PICK(special_bf16, r) : how < 6 ? near_one(r, 7, 8, 3) : any & 0xffff;
    case 'x':
        return operand(r, 'h') | operand(r, 'h') << 16;
    case 'y':
        return operand(r, 'b') | operand(r, 'b') << 16;
    case 'f':
        return how < 3 ? PICK(special_f32, r) : how < 6 ? near_one(r, 23, 8, any & 1 ? 3 : 20) : any & 0xffffffff;
    case 'd':
        return how < 3 ? PICK(special_f64, r) : how < 6 ? near_one(r, 52, 11, any & 1 ? 3 : 60) : any;
    case 'c':
        return how < 6 ? (uint64_t)rng_below(r, 40) : how < 7 ? any & 0xffff : any & 0xffffffff;
    case 'p':
        return any & 1;
    default:
        return how < 3 ? PICK(special_integers, r) : how < 6 ? any >> rng_below(r, 64) : any;
    }
}

/* ---- The kernel ---- */

static bool goes_through_all(const char *operands) {
    return strlen(operands) == 1 && strchr("shbxy", operands[0]);
}

static void put_operands(probe *p, const char *operands) {
    if (goes_through_all(operands)) {
        if (bits_of(operands[0]) == 16)
            probe_put(p, "cvt.u16.u32 %%a, %%gtid;\n");
        else /* the upper half the other way round */
            probe_put(p, "not.b32 %%r0, %%gtid;\nprmt.b32 %%a, %%gtid, %%r0, 0x5410;\n");
        return;
    }
    probe_put(p, "mad.wide.u32 %%rd0, %%gtid, %d, %%in;\n", (int)(SLOT * strlen(operands)));
    for (int i = 0; operands[i]; i++) {
        const char name = "abce"[i];
        if (operands[i] == 'p')
            probe_put(p, "ld.global.b32 %%r0, [%%rd0+%d];\nsetp.ne.u32 %%%c, %%r0, 0;\n", SLOT * i, name);
        else
            probe_put(p, "ld.global.b%d %%%c, [%%rd0+%d];\n", bits_of(operands[i]), name, SLOT * i);
    }
}

static void add_one(probe_list *list, const char *family, const char *signature, const char *text, const char *name) {
    const char result = signature[0], *operands = signature + 2;
    probe *p = probe_add(list, "%s/%s", family, name ? name : text);
    for (char *c = p->name; *c; c++)
        *c = *c == '|' || *c == ' ' ? '_' : *c;
    const unsigned count = goes_through_all(operands) ? ALL : MIXED;
    p->threads = THREADS;
    p->ctas = count / THREADS;
    p->out_bytes = count * (size_t)bits_of(result) / 8;
    if (!goes_through_all(operands)) {
        struct rng r = probe_random(p);
        const size_t slots = count * strlen(operands);
        uint64_t *in = probe_input(p, slots * SLOT);
        for (size_t i = 0; i < slots; i++)
            in[i] = operand(&r, operands[i % strlen(operands)]);
    }
    probe_begin(p);
    probe_put(p, ".reg .b32 %%x, %%y;\n.reg .pred %%q;\n");
    for (int i = -1; i < (int)strlen(operands); i++) {
        const char letter = i < 0 ? result : operands[i];
        if (letter == 'p')
            probe_put(p, ".reg .pred %%%c;\n", "dabce"[i + 1]);
        else
            probe_put(p, ".reg .b%d %%%c;\n", bits_of(letter), "dabce"[i + 1]);
    }
    put_operands(p, operands);
    if (strchr(text, '%')) {
        probe_put(p, "%s\n", text);
    } else {
        const size_t length = strcspn(text, "|");
        probe_put(p, "%.*s %%d", (int)length, text);
        for (int i = 0; operands[i]; i++)
            probe_put(p, ", %%%c", "abce"[i]);
        probe_put(p, "%s%s;\n", text[length] ? ", " : "", text[length] ? text + length + 1 : "");
    }
    probe_put(p, "mad.wide.u32 %%rd1, %%gtid, %d, %%out;\n", bits_of(result) / 8);
    if (result == 'p')
        probe_put(p, "selp.b32 %%x, 1, 0, %%d;\nst.global.b32 [%%rd1], %%x;\n");
    else
        probe_put(p, "st.global.b%d [%%rd1], %%d;\n", bits_of(result));
    probe_end(p);
}

/* ---- Alternatives ---- */

/* One with the first {x,y} replaced by its choice number `choice`; false if there is no such choice. Braces after a
 * blank are a vector's, not ours. */
static const char *first_brace(const char *text) {
    for (const char *c = text; *c; c++)
        if (*c == '{' && (c == text || c[-1] != ' '))
            return c;
    return NULL;
}

static bool choose(const char *text, int choice, char *result, size_t size) {
    const char *open = first_brace(text), *close = strchr(open, '}'), *at = open + 1;
    for (; choice > 0 && at; choice--) {
        at = memchr(at, ',', (size_t)(close - at));
        at += at != NULL;
    }
    if (!at)
        return false;
    const size_t length = strcspn(at, ",}");
    const int written = snprintf(result, size, "%.*s%.*s%s", (int)(open - text), text, (int)length, at, close + 1);
    if (written < 0 || (size_t)written >= size) {
        fprintf(stderr, "%s: too long\n", text);
        exit(1);
    }
    return true;
}

static void add_all(probe_list *list, const char *family, const char *signature, const char *text, const char *name) {
    char chosen[512], chosen_name[128] = "";
    if (!first_brace(text)) {
        add_one(list, family, signature, text, name);
        return;
    }
    for (int choice = 0; choose(text, choice, chosen, sizeof chosen); choice++) {
        if (name)
            choose(name, choice, chosen_name, sizeof chosen_name);
        add_all(list, family, signature, chosen, name ? chosen_name : NULL);
    }
}

void scalar_probes(probe_list *list, const char *family, const scalar_probe *table) {
    for (; table->signature; table++)
        add_all(list, family, table->signature, table->text, table->name);
}
