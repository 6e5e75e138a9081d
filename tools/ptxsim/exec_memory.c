/* SPDX-License-Identifier: MIT
 * Loads, stores, prefetches and cache policies (PTX ISA, "Data Movement and Conversion Instructions"). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"
#include "tensor_map.h"

/* ---- ld and st: data[0] element bytes, data[1] space, data[2] elements, data[3] flags -------------------------- */

enum { LINE_BYTES = 128 };
enum { SIGNED = 1, HINT = 4, ORDER_SHIFT = 8 /* of access_form.order */ };

static uint64_t read_bits(const uint8_t *from, size_t bytes, bool strong) {
    uint64_t bits = 0;
    switch (strong ? bytes : 0) {
    case 2:
        return __atomic_load_n((const uint16_t *)(const void *)from, __ATOMIC_ACQUIRE);
    case 4:
        return __atomic_load_n((const uint32_t *)(const void *)from, __ATOMIC_ACQUIRE);
    case 8:
        return __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
    default:
        memcpy(&bits, from, bytes);
        return bits;
    }
}

static void write_bits(uint8_t *to, uint64_t bits, size_t bytes, bool strong) {
    switch (strong ? bytes : 0) {
    case 2:
        __atomic_store_n((uint16_t *)(void *)to, (uint16_t)bits, __ATOMIC_RELEASE);
        break;
    case 4:
        __atomic_store_n((uint32_t *)(void *)to, (uint32_t)bits, __ATOMIC_RELEASE);
        break;
    case 8:
        __atomic_store_n((uint64_t *)(void *)to, bits, __ATOMIC_RELEASE);
        break;
    default:
        memcpy(to, &bits, bytes);
        break;
    }
}

/* Extends the sign to the width of the register, and clears what is above. */
static uint64_t extend(uint64_t bits, size_t bytes, int width) {
    const unsigned from = (unsigned)(8 * bytes);
    const unsigned to = width > 1 ? (unsigned)width : bytes < 4 ? 32 : 64;
    const uint64_t wide = (uint64_t)((int64_t)(bits << (64 - from)) >> (64 - from));
    return to >= 64 ? wide : wide & ((UINT64_C(1) << to) - 1);
}

static const ptx_operand *element_of(const ptx_operand *operand, int i) {
    return operand->kind == PTX_OPERAND_VECTOR ? &operand->elements[i] : operand;
}

/* Where each lane of the mask reads. false: no two lanes at the same place, as addresses ascend. */
static bool read_addresses(sim_warp *warp, const ptx_operand *operand, uint32_t mask, uint64_t addresses[SIM_LANES]) {
    uint64_t before = 0;
    bool ascend = true;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        addresses[lane] = sim_address(warp, operand, lane);
        ascend = ascend && (lanes == mask || addresses[lane] > before);
        before = addresses[lane];
    }
    return !ascend;
}

static uint32_t lanes_at(const uint64_t addresses[SIM_LANES], uint32_t lanes, uint64_t address) {
    uint32_t found = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        found |= (uint32_t)(addresses[lane] == address) << lane;
    }
    return found;
}

/* Weak reads of the same bytes are checked for each lane, and kept once, with the first one's: what is kept of them is
 * a set of lanes anyway, and so it need not be searched for again and again. */
static sim_result exec_ld(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const size_t bytes = (size_t)instr->data[0];
    const int elements = (int)instr->data[2];
    const uint64_t flags = instr->data[3];
    const unsigned order = (unsigned)(flags >> ORDER_SHIFT);
    uint32_t undefined_lanes = 0, kept = 0;
    uint64_t addresses[SIM_LANES];
    const bool shared = read_addresses(warp, &instr->operands[1], mask, addresses) && order == 0;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t address = addresses[lane];
        bool undefined = false;
        if ((flags & HINT) && !access_check_policy(warp, instr, lane, &instr->operands[2]))
            return SIM_FAULT;
        unsigned kind = order & ~(unsigned)RACE_WRITE;
        if (kept >> lane & 1)
            kind |= RACE_CHECK;
        else if (shared)
            kept |= warp->readers = lanes_at(addresses, lanes, address);
        const uint8_t *from = sim_access_kind(warp, instr, lane, (ptx_space)instr->data[1], address,
                                              bytes * (size_t)elements, kind, &undefined);
        warp->readers = 0;
        if (from == NULL)
            return SIM_FAULT;
        if (undefined)
            undefined_lanes |= UINT32_C(1) << lane;
        /* All elements are read before a result is set, which may be the address's own register. */
        uint64_t bits[8];
        for (int i = 0; i < elements; i++)
            bits[i] = read_bits(from + (size_t)i * bytes, bytes, order != 0);
        if (order != 0)
            sim_strong_after(warp, lane, (ptx_space)instr->data[1], address, order);
        for (int i = 0; i < elements; i++) {
            const ptx_operand *to = element_of(&instr->operands[0], i);
            sim_set(warp, to, lane, flags & SIGNED ? extend(bits[i], bytes, to->width) : bits[i]);
        }
    }
    for (int i = 0; i < elements; i++) {
        const ptx_operand *to = element_of(&instr->operands[0], i);
        if (to->kind == PTX_OPERAND_REGISTER) {
            sim_note_defined(warp, to->slot, mask & ~undefined_lanes, true);
            sim_note_defined(warp, to->slot, undefined_lanes, false);
        }
    }
    return SIM_DONE;
}

static sim_result exec_st(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const size_t bytes = (size_t)instr->data[0];
    const int elements = (int)instr->data[2];
    const unsigned order = (unsigned)(instr->data[3] >> ORDER_SHIFT);
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        if ((instr->data[3] & HINT) && !access_check_policy(warp, instr, lane, &instr->operands[2]))
            return SIM_FAULT;
        const uint64_t address = sim_address(warp, &instr->operands[0], lane);
        uint8_t *to = sim_access_kind(warp, instr, lane, (ptx_space)instr->data[1], address, bytes * (size_t)elements,
                                      order | RACE_WRITE, NULL);
        if (to == NULL)
            return SIM_FAULT;
        const bool twins = race_twins(warp->cta);
        if (order != 0)
            sim_strong_before(warp, lane, (ptx_space)instr->data[1], address, order);
        for (int i = 0; i < elements; i++) {
            const ptx_operand *from = element_of(&instr->operands[1], i);
            const uint64_t bits = from->kind == PTX_OPERAND_REAL ? sim_operand_real(warp, from, lane, (int)(8 * bytes))
                                                                 : sim_operand(warp, from, lane);
            if (twins && memcmp(to + (size_t)i * bytes, &bits, bytes) != 0)
                return sim_fault(warp, instr, lane,
                                 "data race: another lane writes a different value to the same %zu bytes at %#" PRIx64
                                 " with the same instruction",
                                 bytes, address + (uint64_t)i * bytes);
            write_bits(to + (size_t)i * bytes, bits, bytes, order != 0);
        }
    }
    return SIM_DONE;
}

static bool bind_access(ptx_instr *instr, unsigned which, char *error, size_t error_size) {
    access_form form;
    if (!access_parse(instr, which, &form, error, error_size))
        return false;
    const int address = which == ACCESS_LD ? 1 : 0;
    const ptx_operand *value = &instr->operands[1 - address];
    const ptx_variable *variable = instr->operands[address].variable;
    if (form.space == PTX_PARAM && variable && variable->space == PTX_LOCAL)
        form.space = PTX_LOCAL; /* a parameter of a call */
    if (form.space == PTX_PARAM && which == ACCESS_ST) {
        snprintf(error, error_size, "st: only parameters of calls are written");
        return false;
    }
    const int values = value->kind == PTX_OPERAND_VECTOR ? value->num_elements : 1;
    if (instr->num_operands != (form.hint ? 3 : 2) || instr->operands[address].kind != PTX_OPERAND_ADDRESS ||
        values != form.vector ||
        (which == ACCESS_LD && form.vector == 1 && value->kind != PTX_OPERAND_REGISTER &&
         value->kind != PTX_OPERAND_SINK)) {
        snprintf(error, error_size, "%s: wrong operands", instr->opcode);
        return false;
    }
    instr->exec = which == ACCESS_LD ? exec_ld : exec_st;
    instr->data[0] = (uint64_t)form.bytes;
    instr->data[1] = (uint64_t)form.space;
    instr->data[2] = (uint64_t)form.vector;
    instr->data[3] = (form.kind == ACCESS_SIGNED ? SIGNED : 0u) | (form.hint ? HINT : 0u) | form.order << ORDER_SHIFT;
    return true;
}

static bool bind_ld(ptx_instr *instr, char *error, size_t error_size) {
    return bind_access(instr, ACCESS_LD, error, error_size);
}

static bool bind_zeros(ptx_instr *instr, char *error, size_t error_size);

static bool bind_st(ptx_instr *instr, char *error, size_t error_size) {
    if (instr->num_modifiers > 0 && strcmp(instr->modifiers[0], "bulk") == 0)
        return bind_zeros(instr, error, error_size);
    if (instr->num_modifiers > 0 && strcmp(instr->modifiers[0], "async") == 0)
        return false; /* exec_store_async.c */
    return bind_access(instr, ACCESS_ST, error, error_size);
}

/* ---- prefetch -------------------------------------------------------------------------------------------------- */

/* A prefetch of data never faults. */
static sim_result exec_nothing(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)warp, (void)instr, (void)mask;
    return SIM_DONE;
}

static sim_result exec_prefetch_map(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        uint64_t address = sim_address(warp, &instr->operands[0], lane);
        if (instr->data[0] == PTX_PARAM && address < SIM_PARAM_WINDOW)
            address += SIM_PARAM_WINDOW;
        const uint8_t *bytes = sim_async_access(warp, instr, false, address, 128, 64, false);
        if (bytes == NULL)
            return SIM_FAULT;
        tensor_map map;
        memcpy(&map, bytes, sizeof(map));
        if (!tensor_map_valid(&map))
            return sim_fault(warp, instr, lane, "there is no tensor map at %#" PRIx64, address);
    }
    return SIM_DONE;
}

/* Every form; "" stands for no modifier there. */
static const struct {
    const char *opcode, *space, *what;
    ptx_space where;
} PREFETCHES[] = {
    {"prefetch", "", "L1", PTX_GENERIC},
    {"prefetch", "", "L2", PTX_GENERIC},
    {"prefetch", "global", "L1", PTX_GLOBAL},
    {"prefetch", "global", "L2", PTX_GLOBAL},
    {"prefetch", "local", "L1", PTX_LOCAL},
    {"prefetch", "local", "L2", PTX_LOCAL},
    {"prefetch", "global", "L2::evict_last", PTX_GLOBAL},
    {"prefetch", "global", "L2::evict_normal", PTX_GLOBAL},
    {"prefetchu", "", "L1", PTX_GENERIC},
    {"prefetch", "", "tensormap", PTX_GENERIC},
    {"prefetch", "param", "tensormap", PTX_PARAM},
    {"prefetch", "const", "tensormap", PTX_CONST},
};

static bool bind_prefetch(ptx_instr *instr, char *error, size_t error_size) {
    const int n = instr->num_modifiers;
    const char *space = n == 2 ? instr->modifiers[0] : "";
    for (size_t i = 0; i < sizeof(PREFETCHES) / sizeof(*PREFETCHES) && n >= 1 && n <= 2; i++) {
        if (strcmp(PREFETCHES[i].opcode, instr->opcode) != 0 || strcmp(PREFETCHES[i].space, space) != 0 ||
            strcmp(PREFETCHES[i].what, instr->modifiers[n - 1]) != 0)
            continue;
        if (instr->num_operands != 1 || instr->operands[0].kind != PTX_OPERAND_ADDRESS)
            break;
        instr->exec = strcmp(PREFETCHES[i].what, "tensormap") == 0 ? exec_prefetch_map : exec_nothing;
        instr->data[0] = PREFETCHES[i].where;
        return true;
    }
    snprintf(error, error_size, "%s: this form is not implemented", instr->opcode);
    return false;
}

/* ---- createpolicy.fractional ----------------------------------------------------------------------------------- */

/* With fraction 1; other fractions only differ in what the cache does, so they give the same bits here. */
static const struct {
    const char *name;
    uint64_t bits;
} POLICIES[] = {
    {"L2::evict_last", UINT64_C(0x14f0000000000000)},
    {"L2::evict_normal", UINT64_C(0x16f0000000000000)},
    {"L2::evict_first", UINT64_C(0x12f0000000000000)},
    {"L2::evict_unchanged", UINT64_C(0x10f0000000000000)},
};

static sim_result exec_createpolicy(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1)
        sim_set(warp, &instr->operands[0], __builtin_ctz(lanes), instr->data[0]);
    return SIM_DONE;
}

/* createpolicy.range: the first bytes of a range have the first priority. data[0]: as above. */
static sim_result exec_range_policy(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint32_t primary = (uint32_t)sim_operand(warp, &instr->operands[2], lane);
        const uint32_t total = (uint32_t)sim_operand(warp, &instr->operands[3], lane);
        if (primary > total)
            return sim_fault(warp, instr, lane, "the first %" PRIu32 " bytes of %" PRIu32, primary, total);
        sim_set(warp, &instr->operands[0], lane, instr->data[0]);
    }
    return SIM_DONE;
}

/* Of range and cvt. */
static bool bind_other_policy(ptx_instr *instr) {
    const ptx_operand *o = instr->operands;
    const int n = instr->num_modifiers;
    if (n == 3 && strcmp(instr->modifiers[0], "cvt") == 0 && strcmp(instr->modifiers[1], "L2") == 0 &&
        instr->num_operands == 2 && o[1].kind == PTX_OPERAND_REGISTER) {
        instr->exec = exec_createpolicy; /* the access property is the driver's; its policy is the usual one */
        instr->data[0] = POLICIES[1].bits;
        return true;
    }
    const int first = n > 1 && strcmp(instr->modifiers[1], "global") == 0 ? 2 : 1;
    if (n < first + 2 || n > first + 3 || strcmp(instr->modifiers[0], "range") != 0 || instr->num_operands != 4 ||
        o[1].kind != PTX_OPERAND_ADDRESS)
        return false;
    for (size_t i = 0; i < sizeof(POLICIES) / sizeof(*POLICIES); i++) {
        if (strcmp(POLICIES[i].name, instr->modifiers[first]) == 0) {
            instr->exec = exec_range_policy;
            instr->data[0] = POLICIES[i].bits;
            return true;
        }
    }
    return false;
}

static bool bind_createpolicy(ptx_instr *instr, char *error, size_t error_size) {
    const int n = instr->num_modifiers;
    if (n >= 3 && strcmp(instr->modifiers[n - 1], "b64") == 0 && bind_other_policy(instr))
        return true;
    if (n >= 3 && strcmp(instr->modifiers[0], "fractional") == 0 && strcmp(instr->modifiers[n - 1], "b64") == 0 &&
        instr->num_operands >= 1 && instr->num_operands <= 2 && n <= 4 &&
        (n == 3 || strcmp(instr->modifiers[2], "L2::evict_unchanged") == 0 ||
         strcmp(instr->modifiers[2], "L2::evict_first") == 0)) {
        for (size_t i = 0; i < sizeof(POLICIES) / sizeof(*POLICIES); i++) {
            if (strcmp(POLICIES[i].name, instr->modifiers[1]) != 0)
                continue;
            instr->exec = exec_createpolicy;
            instr->data[0] = POLICIES[i].bits;
            return true;
        }
    }
    snprintf(error, error_size, "createpolicy: this form is not implemented");
    return false;
}

/* ---- Hints about lines of 128 bytes: applypriority, discard -------------------------------------------------------
 */

static bool is_line(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t *address) {
    *address = sim_address(warp, &instr->operands[0], lane);
    return sim_async_access(warp, instr, false, *address, LINE_BYTES, LINE_BYTES, false) != NULL;
}

static sim_result exec_priority(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t address;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        if (!is_line(warp, instr, __builtin_ctz(lanes), &address))
            return SIM_FAULT;
    }
    return SIM_DONE;
}

/* Writes something undefined. */
static sim_result exec_discard(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        uint64_t address;
        if (!is_line(warp, instr, lane, &address))
            return SIM_FAULT;
        uint8_t *line = sim_access(warp, instr, lane, PTX_GLOBAL, address, LINE_BYTES, true);
        if (line == NULL)
            return SIM_FAULT;
        memset(line, (int)(sim_random(warp->cta) & 0xff), LINE_BYTES);
    }
    return SIM_DONE;
}

static bool bind_line(ptx_instr *instr, char *error, size_t error_size) {
    const bool discards = strcmp(instr->opcode, "discard") == 0;
    const int n = instr->num_modifiers, first = n == 2 ? 1 : 0;
    if (n < 1 || n > 2 || (first == 1 && strcmp(instr->modifiers[0], "global") != 0) ||
        strcmp(instr->modifiers[first], discards ? "L2" : "L2::evict_normal") != 0 || instr->num_operands != 2 ||
        instr->operands[0].kind != PTX_OPERAND_ADDRESS || instr->operands[1].kind != PTX_OPERAND_INTEGER ||
        instr->operands[1].bits != LINE_BYTES) {
        snprintf(error, error_size, "%s: this form is not implemented", instr->opcode);
        return false;
    }
    instr->exec = discards ? exec_discard : exec_priority;
    return true;
}

/* ---- st.bulk: zeros in shared memory ----------------------------------------------------------------------------- */

static sim_result exec_zeros(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t address = sim_address(warp, &instr->operands[0], lane);
        const uint64_t bytes = sim_operand(warp, &instr->operands[1], lane);
        if (bytes % 8 != 0 || bytes > warp->cta->shared_bytes)
            return sim_fault(warp, instr, lane, "%" PRIu64 " bytes: a multiple of 8 within shared memory is needed",
                             bytes);
        for (uint64_t at = 0; at < bytes; at += 8) {
            uint8_t *to = sim_access(warp, instr, lane, (ptx_space)instr->data[0], address + at, 8, true);
            if (to == NULL)
                return SIM_FAULT;
            memset(to, 0, 8);
        }
    }
    return SIM_DONE;
}

static bool bind_zeros(ptx_instr *instr, char *error, size_t error_size) {
    const int n = instr->num_modifiers;
    const bool is_shared = n > 1 && strcmp(instr->modifiers[n - 1], "shared::cta") == 0;
    const bool is_weak = n > 1 && strcmp(instr->modifiers[1], "weak") == 0;
    if (n != 1 + is_shared + is_weak || instr->num_operands != 3 || instr->operands[0].kind != PTX_OPERAND_ADDRESS ||
        instr->operands[2].kind != PTX_OPERAND_INTEGER || instr->operands[2].bits != 0) {
        snprintf(error, error_size, "st.bulk: this form is not implemented");
        return false;
    }
    instr->exec = exec_zeros;
    instr->data[0] = is_shared ? PTX_SHARED : PTX_GENERIC;
    return true;
}

const sim_op sim_ops_memory[] = {
    {"ld", bind_ld},
    {"st", bind_st},
    {"atom", bind_atomic},
    {"red", bind_atomic},
    {"prefetch", bind_prefetch},
    {"prefetchu", bind_prefetch},
    {"ldu", bind_ld},
    {"applypriority", bind_line},
    {"discard", bind_line},
    {"createpolicy", bind_createpolicy},
    {"ldmatrix", bind_matrix},
    {"stmatrix", bind_matrix},
    {"movmatrix", bind_movmatrix},
    {NULL, NULL},
};
