/* SPDX-License-Identifier: MIT
 * The rules are those of the sections "Target ISA Notes" of the PTX ISA, 9.0, checked against what ptxas 13.0 accepts.
 */
#include "target.h"

#include <stdio.h>
#include <string.h>

bool target_parse(const char *name, ptx_target *target) {
    int used = 0;
    *target = (ptx_target){0};
    if (sscanf(name, "sm_%3d%n", &target->number, &used) != 1 || target->number < 10)
        return false;
    if (target->number == 101)
        target->number = 110;
    target->suffix = name[used];
    return !target->suffix || ((target->suffix == 'a' || target->suffix == 'f') && !name[used + 1]);
}

/* Families are chips of one generation; a newer one of it has what the older have. */
static bool in_family(int number, int base) {
    return number / 10 == base / 10 && number >= base;
}

bool target_runs(const ptx_target *target, int chip) {
    switch (target->suffix) {
    case 'a':
        return chip == target->number;
    case 'f':
        return in_family(chip, target->number);
    default:
        return chip >= target->number;
    }
}

/* ---- Instructions ---- */

/* An instruction with this opcode and all of these modifiers (parted by blanks; "x*" stands for any that begins with x,
 * "!x" for the absence of x) needs one of the targets in `targets`: a number alone for it and newer ones, with "a" for
 * that target alone, with "f" for targets of its family that have a suffix. Every row that fits must be satisfied. */
typedef struct requirement {
    const char *opcode, *modifiers, *targets;
    int operands; /* fits instructions with at least so many */
} requirement;

#define BLACKWELL "100f 110f 120f"

static const requirement requirements[] = {
    /* asynchronous copies and barriers */
    {"cp", "async", "80", 0},
    {"cp", "bulk", "90", 0},
    {"cp", "reduce", "90", 0},
    {"cp", "tile::gather4", "100", 0},
    {"cp", "tile::gather4 shared::cluster", "100f 110f", 0},
    {"cp", "tile::gather4 prefetch", "100f 110f", 0},
    {"cp", "tile::scatter4", "100f 110f", 0},
    {"cp", "cta_group::1", "100f 110f", 0},
    {"cp", "cp_mask", "100", 0},
    {"st", "async", "90", 0},
    {"red", "async", "90", 0},
    {"st", "bulk", "100", 0},
    {"tensormap", "", "90", 0},
    {"tensormap", "replace", "90a " BLACKWELL, 0},
    {"mapa", "", "90", 0},
    {"getctarank", "", "90", 0},
    {"barrier", "cluster", "90", 0},
    {"ld", "shared::cluster", "90", 0},
    {"st", "shared::cluster", "90", 0},
    {"atom", "shared::cluster", "90", 0},
    {"red", "shared::cluster", "90", 0},
    {"ld", "mmio", "70", 0},
    {"st", "mmio", "70", 0},
    {"createpolicy", "", "80", 0},
    {"fence", "proxy", "70", 0},
    {"fence", "proxy async", "90", 0},
    {"fence", "cluster", "90", 0},
    {"fence", "mbarrier_init", "90", 0},
    {"mbarrier", "", "80", 0},
    {"mbarrier", "arrive !noComplete", "90", 3}, /* with a count */
    {"mbarrier", "try_wait", "90", 0},
    {"mbarrier", "expect_tx", "90", 0},
    {"mbarrier", "complete_tx", "90", 0},
    {"mbarrier", "shared::cluster", "90", 0},
    {"prefetch", "tensormap", "90", 0},
    {"applypriority", "", "80", 0},
    {"discard", "", "80", 0},
    {"ld", "L2::cache_hint", "80", 0},
    {"st", "L2::cache_hint", "80", 0},
    {"ld", "v8", "100", 0},
    {"st", "v8", "100", 0},
    {"ld", "v4 b64", "100", 0},
    {"ld", "v4 u64", "100", 0},
    {"ld", "v4 s64", "100", 0},
    {"ld", "v4 f64", "100", 0},
    {"st", "v4 b64", "100", 0},
    {"st", "v4 u64", "100", 0},
    {"st", "v4 s64", "100", 0},
    {"st", "v4 f64", "100", 0},
    {"red", "v2", "90", 0},
    {"red", "v4", "90", 0},
    {"red", "v8", "90", 0},
    {"atom", "v2", "90", 0},
    {"atom", "v4", "90", 0},
    {"atom", "v8", "90", 0},
    {"atom", "bf16", "90", 0},
    {"atom", "bf16x2", "90", 0},
    {"red", "bf16", "90", 0},
    {"red", "bf16x2", "90", 0},
    /* the warp and the CTA */
    {"elect", "", "90", 0},
    {"redux", "", "80", 0},
    {"redux", "f32", "100f", 0},
    {"griddepcontrol", "", "90", 0},
    {"setmaxnreg", "", "90a " BLACKWELL, 0},
    /* matrices */
    {"ldmatrix", "", "75", 0},
    {"ldmatrix", "m16n16", BLACKWELL, 0},
    {"ldmatrix", "m8n16", BLACKWELL, 0},
    {"stmatrix", "", "90", 0},
    {"stmatrix", "m16n8", BLACKWELL, 0},
    {"movmatrix", "", "75", 0},
    {"mma", "m16n8k8", "75", 0},
    {"mma", "m16n8k16", "80", 0},
    {"mma", "m16n8k32", "80", 0},
    {"mma", "m16n8k64", "80", 0},
    {"mma", "bf16", "80", 0},
    {"mma", "tf32", "80", 0},
    {"mma", "e4m3", "89", 0},
    {"mma", "e5m2", "89", 0},
    {"mma", "kind::*", "120f", 0},
    {"wgmma", "", "90a", 0},
    {"tcgen05", "", "100f 110f", 0}, /* of tcgen05, 107 as ptxas 13.5 has it */
    {"tcgen05", "shift", "100a 103a 107a 110a", 0},
    {"tcgen05", "ld red", "103f 110f", 0},
    {"tcgen05", "kind::i8", "100a 110a", 0},
    {"tcgen05", "scale_vec::*", "100a 103a 107a 110a", 0},
    {"tcgen05", "collector::b::*", "107f", 0},
    /* arithmetic */
    {"add", "bf16", "90", 0},
    {"add", "bf16x2", "90", 0},
    {"sub", "bf16", "90", 0},
    {"sub", "bf16x2", "90", 0},
    {"mul", "bf16", "90", 0},
    {"mul", "bf16x2", "90", 0},
    {"fma", "bf16", "80", 0},
    {"fma", "bf16x2", "80", 0},
    {"fma", "relu", "80", 0},
    {"min", "f16", "80", 0},
    {"min", "f16x2", "80", 0},
    {"min", "bf16", "80", 0},
    {"min", "bf16x2", "80", 0},
    {"max", "f16", "80", 0},
    {"max", "f16x2", "80", 0},
    {"max", "bf16", "80", 0},
    {"max", "bf16x2", "80", 0},
    {"min", "NaN", "80", 0},
    {"max", "NaN", "80", 0},
    {"min", "xorsign", "86", 0},
    {"max", "xorsign", "86", 0},
    {"min", "f32", "100", 4},
    {"max", "f32", "100", 4},
    {"min", "s16x2", "90", 0},
    {"min", "u16x2", "90", 0},
    {"max", "s16x2", "90", 0},
    {"max", "u16x2", "90", 0},
    {"min", "relu", "90", 0},
    {"max", "relu", "90", 0},
    {"add", "u16x2", "90", 0},
    {"add", "s16x2", "90", 0},
    {"add", "f32x2", "100", 0},
    {"sub", "f32x2", "100", 0},
    {"mul", "f32x2", "100", 0},
    {"fma", "f32x2", "100", 0},
    {"add", "f32 f16", "100", 0},
    {"add", "f32 bf16", "100", 0},
    {"sub", "f32 f16", "100", 0},
    {"sub", "f32 bf16", "100", 0},
    {"fma", "f32 f16", "100", 0},
    {"fma", "f32 bf16", "100", 0},
    {"neg", "bf16", "80", 0},
    {"neg", "bf16x2", "80", 0},
    {"abs", "bf16", "80", 0},
    {"abs", "bf16x2", "80", 0},
    {"ex2", "f16", "75", 0},
    {"ex2", "bf16", "90", 0},
    {"ex2", "bf16x2", "90", 0},
    {"tanh", "", "75", 0},
    {"tanh", "bf16", "90", 0},
    {"tanh", "bf16x2", "90", 0},
    {"setp", "bf16", "90", 0},
    {"setp", "bf16x2", "90", 0},
    {"set", "bf16", "90", 0},
    {"set", "bf16x2", "90", 0},
    /* conversions */
    {"cvt", "bf16", "80", 0},
    {"cvt", "bf16 !f32", "90", 0},
    {"cvt", "bf16x2", "80", 0},
    {"cvt", "relu", "80", 0},
    {"cvt", "tf32", "80", 0},
    {"cvt", "rn tf32", "90", 0},
    {"cvt", "rz tf32", "90", 0},
    {"cvt", "rn satfinite tf32", "100", 0},
    {"cvt", "rz satfinite tf32", "100", 0},
    {"cvt", "e4m3x2", "89", 0},
    {"cvt", "e5m2x2", "89", 0},
    {"cvt", "e2m1x2", BLACKWELL, 0},
    {"cvt", "e2m3x2", BLACKWELL, 0},
    {"cvt", "e3m2x2", BLACKWELL, 0},
    {"cvt", "ue8m0x2", BLACKWELL, 0},
};

static bool has_modifier(const ptx_instr *instr, const char *word, size_t length) {
    const bool begins = length > 0 && word[length - 1] == '*';
    for (int i = 0; i < instr->num_modifiers; i++) {
        const char *modifier = instr->modifiers[i];
        if (begins ? strncmp(modifier, word, length - 1) == 0
                   : strlen(modifier) == length && memcmp(modifier, word, length) == 0)
            return true;
    }
    return false;
}

static bool fits(const requirement *r, const ptx_instr *instr) {
    if (strcmp(r->opcode, instr->opcode) != 0 || instr->num_operands < r->operands)
        return false;
    for (const char *word = r->modifiers; *word;) {
        const bool absent = *word == '!';
        const size_t length = strcspn(word, " ");
        if (has_modifier(instr, word + absent, length - absent) == absent)
            return false;
        word += length + strspn(word + length, " ");
    }
    return true;
}

static bool satisfied(const char *targets, const ptx_target *target) {
    for (int used = 0; *targets; targets += used) {
        int number = 0;
        if (sscanf(targets, "%d%n", &number, &used) != 1)
            return false;
        const char suffix = targets[used];
        if (suffix == 'a'   ? target->number == number && target->suffix == 'a'
            : suffix == 'f' ? in_family(target->number, number) && target->suffix
                            : target->number >= number)
            return true;
        used += (int)strspn(targets + used, "af ");
    }
    return false;
}

/* "100f 120f" as "sm_100f or sm_120f". */
static void describe(const char *targets, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    while (*targets && used < size) {
        const size_t length = strcspn(targets, " ");
        const bool newer = targets[length - 1] != 'a' && targets[length - 1] != 'f';
        const int written = snprintf(text + used, size - used, "%ssm_%.*s%s", used ? " or " : "", (int)length, targets,
                                     newer ? " or newer" : "");
        used += written > 0 ? (size_t)written : size;
        targets += length + strspn(targets + length, " ");
    }
}

bool target_has(const ptx_target *target, const ptx_instr *instr, char *error, size_t error_size) {
    for (size_t i = 0; i < sizeof requirements / sizeof *requirements; i++) {
        const requirement *r = &requirements[i];
        if (!fits(r, instr) || satisfied(r->targets, target))
            continue;
        char needs[96], suffix[2] = {target->suffix, '\0'};
        describe(r->targets, needs, sizeof needs);
        snprintf(error, error_size, "%s%s%s needs %s, not sm_%d%s", instr->opcode, *r->modifiers ? " with ." : "",
                 r->modifiers, needs, target->number, suffix);
        return false;
    }
    return true;
}
