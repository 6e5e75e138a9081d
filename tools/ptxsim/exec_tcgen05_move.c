/* SPDX-License-Identifier: MIT
 * tcgen05.ld, st, cp and shift (PTX ISA, "Data Movement Shape" and the instructions' own sections). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec_formats.h"
#include "tcgen05.h"

static uint32_t lane_of(uint64_t address) {
    return (uint32_t)address >> 16;
}

static uint32_t column_of(uint64_t address) {
    return (uint32_t)address & 0xffff;
}

static bool is_defined(const tmem *t, uint32_t column, uint32_t lane) {
    return t->written[column][lane / 32] >> lane % 32 & 1;
}

static void set_cell(tmem *t, uint32_t column, uint32_t lane, uint32_t value, bool defined) {
    const uint32_t bit = UINT32_C(1) << lane % 32;
    t->cells[column][lane] = value;
    if (defined)
        t->written[column][lane / 32] |= bit;
    else
        t->written[column][lane / 32] &= ~bit;
}

/* ---- ld and st: data[0] shape, data[1] registers, data[2] flags ------------------------------------------------ */

typedef enum shape { S32X32B, S16X64B, S16X128B, S16X256B, S16X32BX2 } shape;

static const struct {
    const char *name;
    int registers; /* of x1 */
} SHAPES[] = {{"32x32b", 1}, {"16x64b", 1}, {"16x128b", 2}, {"16x256b", 4}, {"16x32bx2", 1}};

enum { PACKED = 1, REDUCED = 2, MAXIMUM = 4, ABSOLUTE = 8, NAN_WINS = 16, SIGNED = 32, FLOAT = 64 };

/* Where a register of a lane lies, relative to the address; columns of packed registers count twice. The layouts are
 * those of the figures of section "Matrix fragments", which agree with the thread layouts of CuTe's copy atoms
 * (SM100_TMEM_LOAD_*). */
static void place(shape s, uint32_t split, int reg, int lane, uint32_t *row, uint32_t *column) {
    const uint32_t r = (uint32_t)reg, l = (uint32_t)lane;
    switch (s) {
    case S16X64B:
        *row = l / 4 + 8 * (l & 1);
        *column = (l >> 1 & 1) + 2 * r;
        break;
    case S16X128B:
        *row = l / 4 + 8 * (r & 1);
        *column = l % 4 + 4 * (r / 2);
        break;
    case S16X256B:
        *row = l / 4 + 8 * (r >> 1 & 1);
        *column = 2 * (l % 4) + (r & 1) + 8 * (r / 4);
        break;
    case S16X32BX2:
        *row = l % 16;
        *column = r + (l >= 16 ? split : 0);
        break;
    default:
        *row = l;
        *column = r;
        break;
    }
}

typedef struct transfer {
    tmem_pending base;
    shape shape;
    int registers;
    uint64_t flags;
    uint32_t lane, column, split;
    uint32_t *values;  /* st: [register][lane] */
    uint32_t *defined; /* st: lanes by register */
} transfer;

static void transfer_destroy(struct sim_async *op) {
    free(((transfer *)op)->values);
    free(((transfer *)op)->defined);
}

/* Columns next to each other that a transfer covers, from the address on or from that plus the split. */
static uint32_t columns_of(const transfer *x) {
    const uint32_t per = x->shape == S16X64B ? 2 : x->shape == S16X128B ? 2 : x->shape == S16X256B ? 2 : 1;
    return (uint32_t)x->registers * per * (x->flags & PACKED ? 2 : 1);
}

static bool begin_transfer(transfer *x, sim_warp *warp, const ptx_instr *instr, uint64_t address, uint32_t split,
                           bool store) {
    tmem *t = tmem_if_any(warp->cta);
    const uint32_t quarter = 32 * ((uint32_t)warp->index % 4);
    x->shape = (shape)instr->data[0];
    const uint32_t step = x->shape == S32X32B ? 32 : 16;
    x->registers = (int)instr->data[1];
    x->flags = instr->data[2];
    x->lane = lane_of(address);
    x->column = column_of(address);
    x->split = split;
    if (x->lane / 32 * 32 != quarter) {
        sim_fault(warp, instr, -1,
                  "address %#" PRIx32 " names lane %" PRIu32 ": warp %d of a warpgroup can access lanes %" PRIu32
                  " to %" PRIu32,
                  (uint32_t)address, x->lane, warp->index % 4, quarter, quarter + 31);
        return false;
    }
    if (x->lane % step != 0) {
        sim_fault(warp, instr, -1, "address %#" PRIx32 " names lane %" PRIu32 ", which is not a multiple of %" PRIu32,
                  (uint32_t)address, x->lane, step);
        return false;
    }
    x->base.op = tmem_issue(t, warp, instr, store ? TMEM_ST : TMEM_LD, 0);
    const unsigned groups = (x->shape == S32X32B ? 3u : 1u) << x->lane / 16;
    const tmem_area first = {.column = x->column, .columns = columns_of(x), .groups = groups};
    const tmem_area second = {.column = x->column + split, .columns = columns_of(x), .groups = groups};
    return tmem_access(warp, -1, &x->base.op, &first, store, store ? "store" : "load") &&
           (x->shape != S16X32BX2 || split == 0 ||
            tmem_access(warp, -1, &x->base.op, &second, store, store ? "store" : "load"));
}

static void own_registers(sim_warp *warp, tmem_warp *w, const ptx_operand *operand) {
    warp->register_pending[operand->slot]++;
    w->owned[w->num_owned++] = operand->slot;
}

static bool reserve_owned(tmem_warp *w, size_t count) {
    if (w->num_owned + count <= w->owned_capacity)
        return true;
    const size_t capacity = 2 * (w->num_owned + count);
    int *owned = realloc(w->owned, capacity * sizeof(*owned));
    if (owned == NULL)
        return false;
    w->owned = owned;
    w->owned_capacity = capacity;
    return true;
}

void tcgen05_disown(sim_warp *warp) {
    tmem_warp *w = &tmem_if_any(warp->cta)->warps[warp->index];
    for (size_t i = 0; i < w->num_owned; i++)
        warp->register_pending[w->owned[i]]--;
    w->num_owned = 0;
}

/* One value of a load; `defined` is cleared if it is not. */
static uint32_t load_value(const tmem *t, const transfer *x, int reg, int lane, bool *defined) {
    uint32_t row, column;
    place(x->shape, 0, reg, lane, &row, &column);
    const uint32_t at = x->lane + row;
    const uint32_t from = x->column + (x->shape == S16X32BX2 && lane >= 16 ? x->split : 0);
    if (!(x->flags & PACKED)) {
        *defined = *defined && is_defined(t, from + column, at);
        return t->cells[from + column][at];
    }
    *defined = *defined && is_defined(t, from + 2 * column, at) && is_defined(t, from + 2 * column + 1, at);
    return (t->cells[from + 2 * column][at] & 0xffff) | t->cells[from + 2 * column + 1][at] << 16;
}

static uint32_t reduce(uint64_t flags, uint32_t a, uint32_t b) {
    const bool max = flags & MAXIMUM;
    if (flags & FLOAT)
        return (uint32_t)exec_min_max(a, b, 32, 0x7f800000, EXEC_NAN_F32, flags & NAN_WINS ? EXEC_NAN : 0, max);
    if (flags & SIGNED)
        return ((int32_t)a < (int32_t)b) == max ? b : a;
    return (a < b) == max ? b : a;
}

static sim_async_step load_step(sim_cta *cta, struct sim_async *op) {
    const transfer *x = (const transfer *)op;
    const tmem *t = tmem_if_any(cta);
    sim_warp *warp = op->warp;
    const ptx_operand *registers = op->instr->operands[0].elements;
    uint32_t reduced[SIM_LANES] = {0}, reduced_defined = UINT32_MAX;
    for (int r = 0; r < x->registers; r++) {
        uint64_t *to = sim_register(warp, registers[r].slot);
        uint32_t defined = 0;
        for (int lane = 0; lane < SIM_LANES; lane++) {
            bool ok = true;
            uint32_t value = load_value(t, x, r, lane, &ok);
            to[lane] = value;
            defined |= (uint32_t)ok << lane;
            if (x->flags & ABSOLUTE)
                value &= 0x7fffffff;
            reduced[lane] = r == 0 ? value : reduce(x->flags, reduced[lane], value);
        }
        sim_note_defined(warp, registers[r].slot, defined, true);
        sim_note_defined(warp, registers[r].slot, ~defined, false);
        reduced_defined &= defined;
    }
    if (x->flags & REDUCED) {
        const ptx_operand *result = &op->instr->operands[1];
        for (int lane = 0; lane < SIM_LANES; lane++)
            sim_set(warp, result, lane, reduced[lane]);
        sim_note_defined(warp, result->slot, reduced_defined, true);
        sim_note_defined(warp, result->slot, ~reduced_defined, false);
    }
    return SIM_ASYNC_DONE;
}

sim_result tcgen05_exec_ld(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    tmem *t = tmem_of(warp, instr);
    const bool reduced = instr->data[2] & REDUCED;
    const ptx_operand *address = &instr->operands[reduced ? 2 : 1];
    const bool has_split = instr->num_operands == (reduced ? 4 : 3);
    uint64_t taddr = 0;
    if (t == NULL || !tcgen05_whole_warp(warp, instr, mask) || !tcgen05_uniform(warp, instr, address, &taddr))
        return SIM_FAULT;
    transfer *x = (transfer *)sim_async_new(warp, instr, mask, sizeof(*x), SIM_ASYNC_TCGEN05);
    if (x == NULL)
        return SIM_FAULT;
    x->base.base.step = load_step;
    const uint32_t split = has_split ? (uint32_t)instr->operands[instr->num_operands - 1].bits : 0;
    tmem_warp *w = &t->warps[warp->index];
    if (!begin_transfer(x, warp, instr, taddr, split, false)) {
        sim_async_discard(&x->base.base);
        return SIM_FAULT;
    }
    if (!reserve_owned(w, (size_t)x->registers + 1)) {
        sim_async_discard(&x->base.base);
        return sim_fault(warp, instr, -1, "the simulator is out of memory");
    }
    for (int r = 0; r < x->registers; r++)
        own_registers(warp, w, &instr->operands[0].elements[r]);
    if (reduced)
        own_registers(warp, w, &instr->operands[1]);
    sim_async_queue(warp->cta, &x->base.base);
    return SIM_DONE;
}

static sim_async_step store_step(sim_cta *cta, struct sim_async *op) {
    const transfer *x = (const transfer *)op;
    tmem *t = tmem_if_any(cta);
    for (int r = 0; r < x->registers; r++) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            uint32_t row, column;
            const uint32_t value = x->values[r * SIM_LANES + lane];
            const bool defined = x->defined[r] >> lane & 1;
            place(x->shape, x->split, r, lane, &row, &column);
            if (x->flags & PACKED) {
                const uint32_t from = x->column + (x->shape == S16X32BX2 && lane >= 16 ? x->split : 0);
                place(x->shape, 0, r, lane, &row, &column);
                set_cell(t, from + 2 * column, x->lane + row, value & 0xffff, defined);
                set_cell(t, from + 2 * column + 1, x->lane + row, value >> 16, defined);
            } else {
                set_cell(t, x->column + column, x->lane + row, value, defined);
            }
        }
    }
    return SIM_ASYNC_DONE;
}

sim_result tcgen05_exec_st(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const tmem *t = tmem_of(warp, instr);
    uint64_t taddr = 0;
    if (t == NULL || !tcgen05_whole_warp(warp, instr, mask) ||
        !tcgen05_uniform(warp, instr, &instr->operands[0], &taddr))
        return SIM_FAULT;
    transfer *x = (transfer *)sim_async_new(warp, instr, mask, sizeof(*x), SIM_ASYNC_TCGEN05);
    if (x == NULL)
        return SIM_FAULT;
    const ptx_operand *from = &instr->operands[instr->num_operands - 1];
    const size_t count = (size_t)from->num_elements;
    x->base.base.step = store_step;
    x->base.base.destroy = transfer_destroy;
    x->values = malloc(count * SIM_LANES * sizeof(*x->values));
    x->defined = malloc(count * sizeof(*x->defined));
    bool ok = x->values != NULL && x->defined != NULL;
    if (!ok)
        sim_fault(warp, instr, -1, "the simulator is out of memory");
    const uint32_t split = instr->num_operands == 3 ? (uint32_t)instr->operands[1].bits : 0;
    if (!ok || !begin_transfer(x, warp, instr, taddr, split, true)) {
        sim_async_discard(&x->base.base);
        return SIM_FAULT;
    }
    for (size_t r = 0; r < count; r++) {
        const uint64_t *values = sim_register(warp, from->elements[r].slot);
        for (int lane = 0; lane < SIM_LANES; lane++)
            x->values[r * SIM_LANES + (size_t)lane] = (uint32_t)values[lane];
        x->defined[r] = sim_defined_lanes(warp, from->elements[r].slot);
    }
    sim_async_queue(warp->cta, &x->base.base);
    return SIM_DONE;
}

bool tcgen05_bind_ld_st(ptx_instr *instr, char *error, size_t error_size) {
    static const struct {
        const char *name;
        uint64_t flag;
    } flags[] = {{"pack::16b", PACKED}, {"unpack::16b", PACKED}, {"red", REDUCED}, {"max", MAXIMUM},
                 {"abs", ABSOLUTE},     {"NaN", NAN_WINS},       {"s32", SIGNED},  {"f32", FLOAT}};
    int s = 0, count = 0;
    for (int i = 1; i < instr->num_modifiers; i++) {
        for (int j = 0; j < 5; j++) {
            if (strcmp(instr->modifiers[i], SHAPES[j].name) == 0)
                s = j;
        }
        int used = 0;
        if (sscanf(instr->modifiers[i], "x%d%n", &count, &used) == 1 && instr->modifiers[i][used] == '\0')
            instr->data[1] = (uint64_t)(count * SHAPES[s].registers);
        for (size_t j = 0; j < sizeof(flags) / sizeof(*flags); j++) {
            if (strcmp(instr->modifiers[i], flags[j].name) == 0)
                instr->data[2] |= flags[j].flag;
        }
    }
    instr->data[0] = (uint64_t)s;
    const bool load = strcmp(instr->modifiers[0], "ld") == 0;
    const ptx_operand *registers = &instr->operands[load ? 0 : instr->num_operands - 1];
    if (instr->data[1] > 128) {
        snprintf(error, error_size, "tcgen05.%s.%s.x%d: a shape has at most 128 registers", instr->modifiers[0],
                 SHAPES[s].name, count);
        return false;
    }
    if ((uint64_t)registers->num_elements != instr->data[1]) {
        snprintf(error, error_size, "tcgen05.%s.%s.x%d takes %d registers, not %d", instr->modifiers[0], SHAPES[s].name,
                 count, (int)instr->data[1], registers->num_elements);
        return false;
    }
    if ((instr->data[2] & REDUCED) && (count < 2 || instr->operands[1].kind != PTX_OPERAND_REGISTER)) {
        snprintf(error, error_size, "tcgen05.ld.red takes .x2 or more, and a register for the result");
        return false;
    }
    return true;
}

/* ---- cp: data[0] rows, data[1] 16-byte pieces a row, data[2] lanes, data[3] bits of the source's elements ------- */

typedef enum cp_lanes { CP_EACH, CP_FIRST, CP_02_13, CP_01_23, CP_ALL } cp_lanes;

bool tcgen05_bind_cp(ptx_instr *instr, char *error, size_t error_size) {
    static const struct {
        const char *name;
        uint64_t rows, pieces;
        cp_lanes lanes;
    } shapes[] = {{"128x256b", 128, 2, CP_EACH},
                  {"4x256b", 4, 2, CP_FIRST},
                  {"128x128b", 128, 1, CP_EACH},
                  {"64x128b", 64, 1, CP_02_13},
                  {"32x128b", 32, 1, CP_ALL}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if (!ptx_has(instr, shapes[i].name))
            continue;
        instr->data[0] = shapes[i].rows;
        instr->data[1] = shapes[i].pieces;
        instr->data[2] = ptx_has(instr, "warpx2::01_23") ? CP_01_23 : shapes[i].lanes;
    }
    instr->data[3] = ptx_has(instr, "b6x16_p32") ? 6 : ptx_has(instr, "b4x16_p64") ? 4 : 8;
    if (ptx_has(instr, "b8x16") == (instr->data[3] != 8))
        return true;
    snprintf(error, error_size, "tcgen05.cp: .b8x16 and a source format come together");
    return false;
}

typedef struct copy {
    tmem_pending base;
    tcgen05_layout layout;
    uint32_t lane, column;
    uint8_t defined[256]; /* by piece */
} copy;

/* Lanes that row `row` goes to, relative to the address's; their number. */
static int copy_lanes(cp_lanes lanes, uint32_t row, uint32_t to[4]) {
    switch (lanes) {
    case CP_FIRST:
        to[0] = 32 * row;
        return 1;
    case CP_02_13: /* warps 0 and 2 have the first half, 1 and 3 the second */
        to[0] = row;
        to[1] = row + 64;
        return 2;
    case CP_01_23:
        to[0] = row / 32 * 64 + row % 32;
        to[1] = to[0] + 32;
        return 2;
    case CP_ALL:
        for (uint32_t i = 0; i < 4; i++)
            to[i] = row + 32 * i;
        return 4;
    default:
        to[0] = row;
        return 1;
    }
}

static sim_async_step copy_step(sim_cta *cta, struct sim_async *op) {
    const copy *c = (const copy *)op;
    if (tcgen05_must_wait(cta, &c->base))
        return SIM_ASYNC_BLOCKED;
    tmem *t = tmem_if_any(cta);
    const uint64_t *data = op->instr->data;
    for (uint32_t row = 0; row < data[0]; row++) {
        uint32_t lanes[4];
        const int count = copy_lanes((cp_lanes)data[2], row, lanes);
        for (uint32_t piece = 0; piece < data[1]; piece++) {
            const size_t offset = tcgen05_piece(&c->layout, row, piece);
            const uint8_t *from = cta->shared + offset;
            if (c->defined[row * data[1] + piece] && !tmem_read_shared(&c->base, offset))
                return SIM_ASYNC_DONE;
            uint8_t bytes[16];
            uint32_t words[4];
            if (data[3] == 8)
                memcpy(bytes, from, 16);
            else
                tcgen05_unpack(from, (int)data[3], bytes);
            memcpy(words, bytes, 16);
            for (int l = 0; l < count; l++) {
                for (uint32_t w = 0; w < 4; w++)
                    set_cell(t, c->column + 4 * piece + w, c->lane + lanes[l], words[w],
                             c->defined[row * data[1] + piece]);
            }
        }
    }
    tmem_finish(cta, (tmem_pending *)op);
    return SIM_ASYNC_DONE;
}

static bool begin_copy(copy *c, sim_warp *warp, const ptx_instr *instr, int lane) {
    const uint64_t *data = instr->data;
    const uint64_t address = sim_address(warp, &instr->operands[0], lane);
    c->lane = lane_of(address);
    c->column = column_of(address);
    if (c->lane >= (data[2] == CP_FIRST ? 32u : 1u)) {
        sim_fault(warp, instr, lane, "address %#" PRIx32 " names lane %" PRIu32 ": this shape starts at lane 0%s",
                  (uint32_t)address, c->lane, data[2] == CP_FIRST ? " to 31" : "");
        return false;
    }
    const tmem_op_type type = data[2] == CP_FIRST ? TMEM_CP_4X256B : TMEM_CP;
    c->base.op = tmem_issue(tmem_if_any(warp->cta), warp, instr, type, 0);
    if (!tcgen05_decode_layout(warp, instr, lane, sim_operand(warp, &instr->operands[1], lane), false, "the source",
                               &c->layout))
        return false;
    for (uint32_t row = 0; row < data[0]; row++) {
        for (uint32_t piece = 0; piece < data[1]; piece++) {
            bool defined = false;
            if (!tcgen05_read_piece(warp, lane, &c->base.op, "the source", tcgen05_piece(&c->layout, row, piece),
                                    &defined))
                return false;
            c->defined[row * data[1] + piece] = defined;
        }
    }
    const tmem_area area = {.column = c->column,
                            .columns = 4 * (uint32_t)data[1],
                            .groups = data[2] == CP_FIRST ? 0x55u << c->lane / 16 : 0xff};
    return tmem_access(warp, lane, &c->base.op, &area, true, "copy");
}

sim_result tcgen05_exec_cp(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    if (tmem_of(warp, instr) == NULL)
        return SIM_FAULT;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        copy *c = (copy *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*c), SIM_ASYNC_TCGEN05);
        if (c == NULL)
            return SIM_FAULT;
        c->base.base.step = copy_step;
        if (!begin_copy(c, warp, instr, lane)) {
            sim_async_discard(&c->base.base);
            return SIM_FAULT;
        }
        sim_async_queue(warp->cta, &c->base.base);
    }
    return SIM_DONE;
}

/* ---- shift ----------------------------------------------------------------------------------------------------- */

/* The ISA's words: elements of 32 bytes go down, in all rows except the last, by one row; implied shape 31x256b, "for a
 * warp", at a lane that is a multiple of 32. Taken to mean that within these 32 lanes, lanes 0 to 30 move to lanes 1 to
 * 31, so that lane 0 can be filled by cp.4x256b, which may follow in order and writes one lane in 32. */
enum { SHIFT_COLUMNS = 8 };

typedef struct shift {
    tmem_pending base;
    uint32_t lane, column;
} shift;

static sim_async_step shift_step(sim_cta *cta, struct sim_async *op) {
    const shift *s = (const shift *)op;
    if (tcgen05_must_wait(cta, &s->base))
        return SIM_ASYNC_BLOCKED;
    tmem *t = tmem_if_any(cta);
    for (uint32_t c = s->column; c < s->column + SHIFT_COLUMNS; c++) {
        for (uint32_t lane = s->lane + 31; lane > s->lane; lane--)
            set_cell(t, c, lane, t->cells[c][lane - 1], is_defined(t, c, lane - 1));
    }
    tmem_finish(cta, (tmem_pending *)op);
    return SIM_ASYNC_DONE;
}

sim_result tcgen05_exec_shift(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    tmem *t = tmem_of(warp, instr);
    if (t == NULL)
        return SIM_FAULT;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const uint64_t address = sim_address(warp, &instr->operands[0], lane);
        shift *s = (shift *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*s), SIM_ASYNC_TCGEN05);
        if (s == NULL)
            return SIM_FAULT;
        s->lane = lane_of(address);
        s->column = column_of(address);
        s->base.base.step = shift_step;
        s->base.op = tmem_issue(t, warp, instr, TMEM_SHIFT, 0);
        const tmem_area area = {
            .column = s->column, .columns = SHIFT_COLUMNS, .groups = 3u << s->lane % TMEM_LANES / 16};
        const bool aligned = s->lane % 32 == 0 && s->lane < TMEM_LANES;
        if (!aligned)
            sim_fault(warp, instr, lane, "address %#" PRIx32 " names lane %" PRIu32 ", which is not 0, 32, 64 or 96",
                      (uint32_t)address, s->lane);
        if (!aligned || !tmem_access(warp, lane, &s->base.op, &area, true, "shift")) {
            sim_async_discard(&s->base.base);
            return SIM_FAULT;
        }
        sim_async_queue(warp->cta, &s->base.base);
    }
    return SIM_DONE;
}
