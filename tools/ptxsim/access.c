/* SPDX-License-Identifier: MIT */
#include "access.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a modifier says; an instruction has at most one of each. IGNORED ones change no result here: caches, and the
 * order in which other CTAs see accesses, which is that of one host thread. */
typedef enum field {
    TYPE,
    SPACE,
    VECTOR,
    STRENGTH,
    SCOPE,
    CACHE,
    EVICT_L1,
    EVICT_L2,
    PREFETCH,
    HINT,
    OP,
    NC,
    MMIO,
    FTZ
} field;

static const struct {
    const char *name;
    unsigned which; /* instructions that have it */
    field field;
    int value; /* type: bytes; vector: elements; else the enumerator */
    int kind;  /* type: access_kind */
    int packed;
} MODIFIERS[] = {
    {"b8", ACCESS_LD | ACCESS_ST, TYPE, 1, ACCESS_UNTYPED, 1},
    {"b16", ACCESS_ANY, TYPE, 2, ACCESS_UNTYPED, 1},
    {"b32", ACCESS_ANY, TYPE, 4, ACCESS_UNTYPED, 1},
    {"b64", ACCESS_ANY, TYPE, 8, ACCESS_UNTYPED, 1},
    {"u8", ACCESS_LD | ACCESS_ST, TYPE, 1, ACCESS_UNSIGNED, 1},
    {"u16", ACCESS_LD | ACCESS_ST, TYPE, 2, ACCESS_UNSIGNED, 1},
    {"u32", ACCESS_ANY, TYPE, 4, ACCESS_UNSIGNED, 1},
    {"u64", ACCESS_ANY, TYPE, 8, ACCESS_UNSIGNED, 1},
    {"s8", ACCESS_LD | ACCESS_ST, TYPE, 1, ACCESS_SIGNED, 1},
    {"s16", ACCESS_LD | ACCESS_ST, TYPE, 2, ACCESS_SIGNED, 1},
    {"s32", ACCESS_ANY, TYPE, 4, ACCESS_SIGNED, 1},
    {"s64", ACCESS_ANY, TYPE, 8, ACCESS_SIGNED, 1},
    {"f32", ACCESS_ANY, TYPE, 4, ACCESS_FLOAT, 1},
    {"f64", ACCESS_ANY, TYPE, 8, ACCESS_FLOAT, 1},
    {"f16", ACCESS_ATOM | ACCESS_RED, TYPE, 2, ACCESS_HALF, 1},
    {"f16x2", ACCESS_ATOM | ACCESS_RED, TYPE, 4, ACCESS_HALF, 2},
    {"bf16", ACCESS_ATOM | ACCESS_RED, TYPE, 2, ACCESS_BF16, 1},
    {"bf16x2", ACCESS_ATOM | ACCESS_RED, TYPE, 4, ACCESS_BF16, 2},
    {"const", ACCESS_LD, SPACE, PTX_CONST, 0, 0},
    {"global", ACCESS_ANY, SPACE, PTX_GLOBAL, 0, 0},
    {"shared", ACCESS_ANY, SPACE, PTX_SHARED, 0, 0},
    {"shared::cta", ACCESS_ANY, SPACE, PTX_SHARED, 0, 0},
    {"shared::cluster", ACCESS_ANY, SPACE, PTX_SHARED, 0, 0}, /* of one CTA */
    {"local", ACCESS_LD | ACCESS_ST, SPACE, PTX_LOCAL, 0, 0},
    {"param", ACCESS_LD, SPACE, PTX_PARAM, 0, 0},
    {"param::entry", ACCESS_LD, SPACE, PTX_PARAM, 0, 0},
    {"param::func", ACCESS_LD, SPACE, PTX_PARAM, 0, 0},
    {"param", ACCESS_ST, SPACE, PTX_PARAM, 0, 0}, /* of calls */
    {"param::func", ACCESS_ST, SPACE, PTX_PARAM, 0, 0},
    {"v2", ACCESS_ANY, VECTOR, 2, 0, 0},
    {"v4", ACCESS_ANY, VECTOR, 4, 0, 0},
    {"v8", ACCESS_ANY, VECTOR, 8, 0, 0},
    {"weak", ACCESS_LD | ACCESS_ST, STRENGTH, 0, 0, 0},
    {"volatile", ACCESS_LD | ACCESS_ST, STRENGTH, RACE_STRONG, 0, 0}, /* as .relaxed.sys */
    {"relaxed", ACCESS_ANY, STRENGTH, RACE_STRONG, 0, 0},
    {"acquire", ACCESS_LD | ACCESS_ATOM, STRENGTH, RACE_STRONG | RACE_ACQUIRE, 0, 0},
    {"release", ACCESS_ST | ACCESS_ATOM | ACCESS_RED, STRENGTH, RACE_STRONG | RACE_RELEASE, 0, 0},
    {"acq_rel", ACCESS_ATOM, STRENGTH, RACE_STRONG | RACE_ACQUIRE | RACE_RELEASE, 0, 0},
    {"cta", ACCESS_ANY, SCOPE, 0, 0, 0},
    {"cluster", ACCESS_ANY, SCOPE, 0, 0, 0}, /* of one CTA */
    {"gpu", ACCESS_ANY, SCOPE, RACE_DEVICE, 0, 0},
    {"sys", ACCESS_ANY, SCOPE, RACE_DEVICE, 0, 0},
    {"ca", ACCESS_LD, CACHE, 0, 0, 0},
    {"cg", ACCESS_LD | ACCESS_ST, CACHE, 0, 0, 0},
    {"cs", ACCESS_LD | ACCESS_ST, CACHE, 0, 0, 0},
    {"lu", ACCESS_LD, CACHE, 0, 0, 0},
    {"cv", ACCESS_LD, CACHE, 0, 0, 0},
    {"wb", ACCESS_ST, CACHE, 0, 0, 0},
    {"wt", ACCESS_ST, CACHE, 0, 0, 0},
    {"nc", ACCESS_LD, NC, 0, 0, 0},
    {"mmio", ACCESS_LD | ACCESS_ST, MMIO, 0, 0, 0},
    {"L1::evict_normal", ACCESS_LD | ACCESS_ST, EVICT_L1, 0, 0, 0},
    {"L1::evict_unchanged", ACCESS_LD | ACCESS_ST, EVICT_L1, 0, 0, 0},
    {"L1::evict_first", ACCESS_LD | ACCESS_ST, EVICT_L1, 0, 0, 0},
    {"L1::evict_last", ACCESS_LD | ACCESS_ST, EVICT_L1, 0, 0, 0},
    {"L1::no_allocate", ACCESS_LD | ACCESS_ST, EVICT_L1, 0, 0, 0},
    {"L2::evict_normal", ACCESS_LD | ACCESS_ST, EVICT_L2, 0, 0, 0},
    {"L2::evict_first", ACCESS_LD | ACCESS_ST, EVICT_L2, 0, 0, 0},
    {"L2::evict_last", ACCESS_LD | ACCESS_ST, EVICT_L2, 0, 0, 0},
    {"L2::64B", ACCESS_LD, PREFETCH, 0, 0, 0},
    {"L2::128B", ACCESS_LD, PREFETCH, 0, 0, 0},
    {"L2::256B", ACCESS_LD, PREFETCH, 0, 0, 0},
    {"L2::cache_hint", ACCESS_ANY, HINT, 0, 0, 0},
    {"noftz", ACCESS_ATOM | ACCESS_RED, FTZ, 0, 0, 0},
    {"and", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_AND, 0, 0},
    {"or", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_OR, 0, 0},
    {"xor", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_XOR, 0, 0},
    {"add", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_ADD, 0, 0},
    {"inc", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_INC, 0, 0},
    {"dec", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_DEC, 0, 0},
    {"min", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_MIN, 0, 0},
    {"max", ACCESS_ATOM | ACCESS_RED, OP, ACCESS_MAX, 0, 0},
    {"exch", ACCESS_ATOM, OP, ACCESS_EXCH, 0, 0},
    {"cas", ACCESS_ATOM, OP, ACCESS_CAS, 0, 0},
};

bool access_parse(const ptx_instr *instr, unsigned which, access_form *form, char *error, size_t error_size) {
    const size_t count = sizeof(MODIFIERS) / sizeof(*MODIFIERS);
    unsigned seen = 0, scope = RACE_DEVICE;
    *form = (access_form){.space = PTX_GENERIC, .vector = 1};
    for (int i = 0; i < instr->num_modifiers; i++) {
        size_t m = 0;
        while (m < count && (!(MODIFIERS[m].which & which) || strcmp(MODIFIERS[m].name, instr->modifiers[i]) != 0))
            m++;
        if (m == count || (seen >> MODIFIERS[m].field & 1)) {
            snprintf(error, error_size, "%s: .%s is %s", instr->opcode, instr->modifiers[i],
                     m == count ? "not implemented" : "one modifier too many of its kind");
            return false;
        }
        seen |= 1u << MODIFIERS[m].field;
        const int value = MODIFIERS[m].value;
        switch (MODIFIERS[m].field) {
        case TYPE:
            form->bytes = value;
            form->kind = (access_kind)MODIFIERS[m].kind;
            form->packed = MODIFIERS[m].packed;
            break;
        case SPACE:
            form->space = (ptx_space)value;
            break;
        case VECTOR:
            form->vector = value;
            break;
        case STRENGTH:
            form->order = (unsigned)value;
            break;
        case SCOPE:
            scope = (unsigned)value;
            break;
        case HINT:
            form->hint = true;
            break;
        case OP:
            form->op = (access_op)value;
            break;
        default:
            break;
        }
    }
    if (which & (ACCESS_ATOM | ACCESS_RED))
        form->order |= RACE_STRONG | RACE_WRITE | RACE_READS;
    else if (form->order != 0)
        form->order |= which == ACCESS_LD ? RACE_READS : RACE_WRITE;
    if (form->order != 0)
        form->order |= scope;
    /* Global memory also has vectors of 32 bytes, of elements of at least 4; of 8 elements there are no shorter ones,
     * but atomic additions. */
    const bool atomic = which & (ACCESS_ATOM | ACCESS_RED);
    const bool wide = !atomic && form->space == PTX_GLOBAL && form->bytes >= 4;
    if (form->bytes == 0 || form->bytes * form->vector > (wide ? 32 : 16) ||
        (form->vector == 8 && !atomic && form->bytes != 4)) {
        snprintf(error, error_size, "%s: %s", instr->opcode,
                 form->bytes == 0 ? "has no type" : "vectors have at most 16 bytes, in global memory 32");
        return false;
    }
    return true;
}

/* createpolicy's 64 bits are opaque; those that sm_80 and later produce have 1 in their highest 4 bits. */
bool access_check_policy(sim_warp *warp, const ptx_instr *instr, int lane, const ptx_operand *policy) {
    const uint64_t bits = sim_operand(warp, policy, lane);
    if (bits >> 60 == 1)
        return true;
    sim_fault(warp, instr, lane, "%#" PRIx64 " is not a cache policy", bits);
    return false;
}
