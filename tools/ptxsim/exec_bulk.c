/* SPDX-License-Identifier: MIT
 * cp.async.bulk: copies of contiguous bytes and of tiles of tensors (PTX ISA, "cp.async.bulk.tensor"). Everything is
 * checked when the copy is issued; memory is read and written when it moves. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "async.h"
#include "memory.h"
#include "tensor_map.h"

/* data[0]: the operand that is the cache policy; 0: none. data[1]: of loads, the one that is the mask of the cluster's
 * CTAs; of stores, of the bytes of each 16; 0: none. */

static bool policy_ok(sim_warp *warp, const ptx_instr *instr, int lane) {
    return instr->data[0] == 0 || access_check_policy(warp, instr, lane, &instr->operands[instr->data[0]]);
}

/* A copy of rows: one, or those of a tensor's box. `shared` is where the box lies, unswizzled. */
typedef struct bulk {
    struct sim_async base;
    uint64_t barrier; /* loads */
    uint32_t bytes;   /* as counted by the barrier */
    size_t shared;
    uint64_t global;
    bool is_tensor, is_store;
    tensor_map map;
    int32_t start[5];        /* coordinates */
    bool picks_rows;         /* tile::gather4 and scatter4: start[1] to start[4] are rows */
    uint16_t bytes_left_out; /* of each 16 */
    bool reduces;
    access_step step; /* of those that reduce */
    size_t to;        /* within shared memory: the destination */
    size_t rows, row_bytes, pitch;
    uint8_t *staged; /* stores: what has been read */
} bulk;

/* The part of a row that lies inside the tensor, as bytes [begin, end) of the row, and where the row's first byte would
 * lie in global memory. */
typedef struct row {
    uint64_t global;
    size_t begin, end;
} row;

static row row_of(const bulk *b, size_t index) {
    row r = {.global = b->global, .begin = 0, .end = b->row_bytes};
    if (!b->is_tensor)
        return r;
    const tensor_map *map = &b->map;
    const int64_t element = map->element_bytes;
    r.global = map->address + (uint64_t)(b->start[0] * element);
    for (int d = 1; d < map->rank; d++) {
        const uint32_t count = (map->boxes[d] + map->element_strides[d] - 1) / map->element_strides[d];
        const int64_t first = b->start[b->picks_rows ? (size_t)d + index : (size_t)d];
        const int64_t at = first + (b->picks_rows ? 0 : (int64_t)(index % count) * map->element_strides[d]);
        index /= count;
        if (at < 0 || at >= (int64_t)map->sizes[d])
            r.end = 0;
        r.global += (uint64_t)at * map->strides[d - 1];
    }
    const int64_t begin = b->start[0] < 0 ? -(int64_t)b->start[0] : 0;
    const int64_t end = (int64_t)map->sizes[0] - b->start[0];
    const int64_t box = (int64_t)map->boxes[0];
    if (r.end == 0 || begin >= box || end <= begin)
        return (row){.global = r.global, .begin = 0, .end = 0};
    r.begin = (size_t)(begin * element);
    r.end = (size_t)((end < box ? end : box) * element);
    if (b->is_store) /* an H200 writes whole pieces of 16 bytes, so up to 15 bytes behind the tensor's row */
        r.end = (r.end + 15) / 16 * 16;
    return r;
}

/* Where a 16-byte piece of a row lies in shared memory. */
static size_t piece_offset(const bulk *b, size_t index, size_t at) {
    return sim_swizzle(b->shared + index * b->pitch + at, b->map.swizzle_bytes);
}

static bool check_global(const bulk *b, sim_warp *warp, const ptx_instr *instr, bool write) {
    for (size_t i = 0; i < b->rows; i++) {
        const row r = row_of(b, i);
        if (r.end > r.begin &&
            sim_async_access(warp, instr, false, r.global + r.begin, r.end - r.begin, 0, write) == NULL)
            return false;
    }
    return true;
}

/* ---- Moving ---------------------------------------------------------------------------------------------------- */

/* What elements outside the tensor read as: zeros, or a NaN, which on an H200 is made of 0x7ff7 in every type. */
static void fill_outside(const bulk *b, uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = !b->map.fill_nan ? 0 : i % 2 ? 0x7f : 0xf7;
}

/* Of the bytes [at, at + 16) of a row, which are in shared memory at `to`, those from global memory that nothing has
 * written are as good as unwritten. */
static void copy_validity(sim_cta *cta, const row *r, size_t at, size_t to) {
    const sim_device *device = cta->launch->device;
    const size_t begin = r->begin > at ? r->begin : at, end = r->end < at + 16 ? r->end : at + 16;
    if (begin >= end || sim_valid(device, r->global + begin, end - begin))
        return;
    for (size_t i = begin; i < end; i++) {
        if (!sim_valid(device, r->global + i, 1))
            shadow_set_uninitialised(cta, to + (i - at), 1);
    }
}

static sim_async_step load_step(sim_cta *cta, struct sim_async *op) {
    const bulk *b = (const bulk *)op;
    uint8_t *bytes = malloc(b->row_bytes + 1);
    if (bytes == NULL) {
        sim_fault(op->warp, op->instr, op->lane, "the simulator is out of memory");
        return SIM_ASYNC_DONE;
    }
    for (size_t i = 0; i < b->rows; i++) {
        const row r = row_of(b, i);
        if (r.begin != 0 || r.end != b->row_bytes)
            fill_outside(b, bytes, b->row_bytes);
        if (r.end > r.begin &&
            !race_unit_access_global(op, r.global + r.begin, r.end - r.begin, RACE_READ | RACE_BY_COPY))
            break;
        if (r.end > r.begin)
            memcpy(bytes + r.begin, (const void *)(uintptr_t)(r.global + r.begin), r.end - r.begin);
        for (size_t at = 0; at < b->row_bytes; at += 16) {
            const size_t to = piece_offset(b, i, at);
            if (!race_unit_access(race_shared(cta), op, to, 16, RACE_WRITE))
                break;
            memcpy(cta->shared + to, bytes + at, 16);
            shadow_store_async(cta, to, 16);
            copy_validity(cta, &r, at, to);
        }
    }
    free(bytes);
    if (!cta->launch->stop)
        sim_mbarrier_complete_tx(op, b->barrier, b->bytes);
    return SIM_ASYNC_DONE;
}

/* What is in global memory must have been written. */
static bool reduce_row(struct sim_async *op, const row *r, const uint8_t *from) {
    const access_step *step = &((const bulk *)op)->step;
    const uint64_t to = r->global + r->begin;
    const size_t size = r->end - r->begin;
    if (!sim_valid(op->warp->cta->launch->device, to, size)) {
        sim_fault(op->warp, op->instr, op->lane,
                  "reduces %zu bytes at global %#" PRIx64 ", not all of which have been written", size, to);
        return false;
    }
    if (!race_unit_access_global(op, to, size, RACE_WRITE | RACE_STRONG | RACE_DEVICE))
        return false;
    for (size_t at = 0; at < size; at += step->bytes) {
        uint64_t x = 0;
        memcpy(&x, from + at, step->bytes);
        access_apply(step, (uint8_t *)(uintptr_t)(to + at), x, 0);
    }
    return true;
}

static bool store_bytes(struct sim_async *op, uint64_t to, const uint8_t *from, size_t size) {
    if (!race_unit_access_global(op, to, size, RACE_WRITE))
        return false;
    memcpy((void *)(uintptr_t)to, from, size);
    sim_set_valid(op->warp->cta->launch->device, to, size);
    return true;
}

static bool store_row(struct sim_async *op, const row *r, const uint8_t *from) {
    const unsigned left_out = ((const bulk *)op)->bytes_left_out;
    const uint64_t to = r->global + r->begin;
    if (left_out == 0)
        return store_bytes(op, to, from, r->end - r->begin);
    for (size_t i = 0; i < r->end - r->begin; i++) {
        if (!(left_out >> i % 16 & 1) && !store_bytes(op, to + i, from + i, 1))
            return false;
    }
    return true;
}

/* From shared memory to shared memory. */
static sim_async_step local_step(sim_cta *cta, struct sim_async *op) {
    const bulk *b = (const bulk *)op;
    race_memory *shared = race_shared(cta);
    for (size_t at = 0; at < b->row_bytes; at += 16) {
        const size_t from = b->shared + at, to = b->to + at;
        if (!shadow_check_async_read(op->warp, op->instr, op->lane, from, 16) ||
            !race_unit_access(shared, op, from, 16, RACE_READ) ||
            (b->reduces && !shadow_check_async_read(op->warp, op->instr, op->lane, to, 16)) ||
            !race_unit_access(shared, op, to, 16, RACE_WRITE))
            return SIM_ASYNC_DONE;
        for (size_t i = 0; b->reduces && i < 16; i += b->step.bytes) {
            uint64_t x = 0;
            memcpy(&x, cta->shared + from + i, b->step.bytes);
            access_apply(&b->step, cta->shared + to + i, x, 0);
        }
        if (!b->reduces)
            memcpy(cta->shared + to, cta->shared + from, 16);
        shadow_store_async(cta, to, 16);
    }
    sim_mbarrier_complete_tx(op, b->barrier, b->bytes);
    return SIM_ASYNC_DONE;
}

static sim_async_step store_step(sim_cta *cta, struct sim_async *op) {
    bulk *b = (bulk *)op;
    if (!op->read_done) {
        b->staged = malloc(b->rows * b->row_bytes + 1);
        bool ok = b->staged != NULL;
        for (size_t i = 0; i < b->rows && ok; i++) {
            for (size_t at = 0; at < b->row_bytes && ok; at += 16) {
                const size_t from = piece_offset(b, i, at);
                ok = shadow_check_async_read(op->warp, op->instr, op->lane, from, 16) &&
                     race_unit_access(race_shared(cta), op, from, 16, RACE_READ);
                memcpy(b->staged + i * b->row_bytes + at, cta->shared + from, 16);
            }
        }
        op->read_done = true;
        op->read = race_unit_finish(cta, &op->unit);
        return ok ? SIM_ASYNC_MOVED : SIM_ASYNC_DONE;
    }
    for (size_t i = 0; i < b->rows; i++) {
        const row r = row_of(b, i);
        const uint8_t *from = b->staged + i * b->row_bytes + r.begin;
        if (r.end > r.begin && !(b->reduces ? reduce_row(op, &r, from) : store_row(op, &r, from)))
            break;
    }
    return SIM_ASYNC_DONE;
}

static void store_destroy(struct sim_async *op) {
    free(((bulk *)op)->staged);
}

/* ---- Reductions ------------------------------------------------------------------------------------------------- */

static access_op reduction_of(const ptx_instr *instr) {
    static const struct {
        const char *name;
        access_op op;
    } ops[] = {{"add", ACCESS_ADD}, {"min", ACCESS_MIN}, {"max", ACCESS_MAX}, {"inc", ACCESS_INC},
               {"dec", ACCESS_DEC}, {"and", ACCESS_AND}, {"or", ACCESS_OR},   {"xor", ACCESS_XOR}};
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (ptx_has(instr, ops[i].name))
            return ops[i].op;
    }
    return ACCESS_NO_OP;
}

static bool has_reduction(access_kind kind, int bytes, access_op op) {
    const bool ordered = kind == ACCESS_HALF || kind == ACCESS_BF16;
    return access_has_op(kind, bytes, op) || (ordered && (op == ACCESS_MIN || op == ACCESS_MAX));
}

/* The type of one without a tensor map, its last modifier. */
static bool type_of(const ptx_instr *instr, access_kind *kind, int *bytes) {
    static const struct {
        const char *name;
        access_kind kind;
        int bytes;
    } types[] = {{"f16", ACCESS_HALF, 2},     {"bf16", ACCESS_BF16, 2},  {"b32", ACCESS_UNTYPED, 4},
                 {"u32", ACCESS_UNSIGNED, 4}, {"s32", ACCESS_SIGNED, 4}, {"b64", ACCESS_UNTYPED, 8},
                 {"u64", ACCESS_UNSIGNED, 8}, {"s64", ACCESS_SIGNED, 8}, {"f32", ACCESS_FLOAT, 4},
                 {"f64", ACCESS_FLOAT, 8}};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (strcmp(instr->modifiers[instr->num_modifiers - 1], types[i].name) == 0) {
            *kind = types[i].kind;
            *bytes = types[i].bytes;
            return true;
        }
    }
    return false;
}

bool bulk_reduction_fits(const ptx_instr *instr) {
    access_kind kind = ACCESS_UNTYPED;
    int bytes = 0;
    const access_op op = reduction_of(instr);
    if (!type_of(instr, &kind, &bytes)) /* the tensor map's */
        return true;
    const bool half_sum = op == ACCESS_ADD && bytes == 2, local = ptx_has(instr, "shared::cluster");
    return has_reduction(kind, bytes, op) && ptx_has(instr, "noftz") == half_sum && !(local && kind >= ACCESS_FLOAT);
}

/* Sets what it reduces by, if it does. */
static bool set_reduction(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, access_kind kind, int bytes) {
    b->reduces = ptx_has(instr, "reduce");
    b->step =
        (access_step){.op = reduction_of(instr), .kind = kind, .bytes = (size_t)bytes, .packed = 1, .global = true};
    const bool untyped = kind == ACCESS_UNSIGNED && access_has_op(ACCESS_UNTYPED, bytes, b->step.op);
    if (!b->reduces || untyped || has_reduction(kind, bytes, b->step.op))
        return true;
    sim_fault(warp, instr, lane, "the tensor map's type has no such operation");
    return false;
}

static bool set_plain_reduction(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    access_kind kind = ACCESS_UNTYPED;
    int bytes = 0;
    return !ptx_has(instr, "reduce") ||
           (type_of(instr, &kind, &bytes) && set_reduction(b, warp, instr, lane, kind, bytes));
}

/* ---- Issuing --------------------------------------------------------------------------------------------------- */

/* Box and coordinates of a tensor copy. */
static bool set_tensor(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, const ptx_operand *operand) {
    uint64_t address = sim_address(warp, operand, lane);
    if (operand->variable != NULL && operand->variable->space == PTX_PARAM && address < SIM_PARAM_WINDOW)
        address += SIM_PARAM_WINDOW;
    const uint8_t *bytes = sim_async_access(warp, instr, false, address, 128, 64, false);
    if (bytes == NULL)
        return false;
    if (address - SIM_PARAM_WINDOW >= SIM_WINDOW_BYTES &&
        !race_access_global(warp, instr, lane, address, sizeof(b->map), RACE_READ | RACE_AS_MAP))
        return false;
    memcpy(&b->map, bytes, sizeof(b->map));
    if (!tensor_map_valid(&b->map)) {
        sim_fault(warp, instr, lane, "there is no tensor map at %#" PRIx64, address);
        return false;
    }
    b->picks_rows = ptx_has(instr, "tile::gather4") || ptx_has(instr, "tile::scatter4");
    const int dimensions = b->picks_rows ? 2 : operand->num_elements;
    if (b->map.rank != dimensions) {
        sim_fault(warp, instr, lane, "the tensor map has %d dimensions, the instruction %d", b->map.rank, dimensions);
        return false;
    }
    if (b->picks_rows && b->map.boxes[1] != 1) {
        sim_fault(warp, instr, lane, "the box has %" PRIu32 " rows; to pick rows takes one of 1", b->map.boxes[1]);
        return false;
    }
    if (!set_reduction(b, warp, instr, lane, (access_kind)b->map.kind, b->map.element_bytes))
        return false;
    b->is_tensor = true;
    b->row_bytes = (size_t)b->map.boxes[0] * b->map.element_bytes;
    b->pitch = b->map.swizzle_bytes != 0 ? b->map.swizzle_bytes : b->row_bytes;
    b->rows = 1;
    for (int d = 0; d < operand->num_elements; d++)
        b->start[d] = (int32_t)(uint32_t)sim_operand(warp, &operand->elements[d], lane);
    for (int d = 1; d < b->map.rank; d++)
        b->rows *= (b->map.boxes[d] + b->map.element_strides[d] - 1) / b->map.element_strides[d];
    if (b->picks_rows)
        b->rows = 4;
    b->bytes = (uint32_t)(b->rows * b->row_bytes);
    const int64_t first = (int64_t)b->start[0] * b->map.element_bytes;
    if (first % 16 != 0) { /* not in the ISA, but so it is: github.com/triton-lang/triton, issue 7385 */
        sim_fault(warp, instr, lane, "the innermost coordinate is %" PRId32 ", %" PRId64 " bytes: not a multiple of 16",
                  b->start[0], first);
        return false;
    }
    return true;
}

/* Contiguous bytes. */
static bool set_plain(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, uint64_t global, uint32_t bytes) {
    if (global % 16 != 0 || bytes % 16 != 0) {
        sim_fault(warp, instr, lane, "%" PRIu32 " bytes at global address %#" PRIx64 ": both must be multiples of 16",
                  bytes, global);
        return false;
    }
    b->global = global;
    b->bytes = bytes;
    b->rows = 1;
    b->row_bytes = b->pitch = bytes;
    return true;
}

static bool set_shared(bulk *b, sim_warp *warp, const ptx_instr *instr, uint64_t address, bool write) {
    if (sim_async_access(warp, instr, true, address, b->rows * b->pitch, b->is_tensor ? 128 : 16, write) == NULL)
        return false;
    b->shared = (size_t)sim_shared_offset(address);
    return true;
}

/* A cluster of one CTA: the copy goes to itself. */
static bool multicast_ok(sim_warp *warp, const ptx_instr *instr, int lane) {
    const uint64_t ctas =
        instr->data[1] == 0 ? 1 : sim_operand(warp, &instr->operands[instr->data[1]], lane) & UINT16_MAX;
    if (ctas == 1)
        return true;
    sim_fault(warp, instr, lane, "copies to CTAs %#" PRIx64 " of the cluster, which has CTA 0 alone", ctas);
    return false;
}

/* Queues a load whose parts have been set. */
static bool issue_load(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, uint64_t to) {
    if (!policy_ok(warp, instr, lane) || !multicast_ok(warp, instr, lane) || !set_shared(b, warp, instr, to, true) ||
        !check_global(b, warp, instr, false) || !sim_mbarrier_check(warp, instr, lane, b->barrier))
        return false;
    const size_t extent = b->rows * b->pitch;
    if (shadow_awaited(warp->cta, b->shared, extent)) {
        sim_fault(warp, instr, lane, "another copy into shared bytes [%#zx, %#zx) is under way", b->shared,
                  b->shared + extent);
        return false;
    }
    for (size_t i = 0; i < b->rows; i++) {
        for (size_t at = 0; at < b->row_bytes; at += 16)
            shadow_set_written(warp->cta, piece_offset(b, i, at), 16, false);
    }
    b->base.shared_offset = b->shared;
    b->base.shared_bytes = extent;
    b->base.step = load_step;
    sim_async_queue(warp->cta, &b->base);
    return true;
}

static bool issue_store(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, uint64_t from) {
    if (!policy_ok(warp, instr, lane) || !set_shared(b, warp, instr, from, false) ||
        !check_global(b, warp, instr, true))
        return false;
    for (size_t i = 0; i < b->rows; i++) {
        for (size_t at = 0; at < b->row_bytes; at += 16) {
            if (!shadow_check_async_read(warp, instr, lane, piece_offset(b, i, at), 16))
                return false;
        }
    }
    b->base.step = store_step;
    b->base.destroy = store_destroy;
    sim_async_queue(warp->cta, &b->base);
    return true;
}

/* Issues the copy of each lane by `issue`, which has not queued it if it returns false. */
static sim_result each_lane(sim_warp *warp, const ptx_instr *instr, uint32_t mask, sim_async_kind kind,
                            bool (*issue)(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane)) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        bulk *b = (bulk *)sim_async_new(warp, instr, UINT32_C(1) << lane, sizeof(*b), kind);
        if (b == NULL)
            return SIM_FAULT;
        if (!issue(b, warp, instr, lane)) {
            sim_async_discard(&b->base);
            return SIM_FAULT;
        }
    }
    return SIM_DONE;
}

static bool bulk_load(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    b->barrier = sim_address(warp, &instr->operands[3], lane);
    return set_plain(b, warp, instr, lane, sim_address(warp, &instr->operands[1], lane),
                     (uint32_t)sim_operand(warp, &instr->operands[2], lane)) &&
           issue_load(b, warp, instr, lane, sim_address(warp, &instr->operands[0], lane));
}

/* The destination, then the source: both in shared memory. */
static bool bulk_local(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    const uint64_t to = sim_address(warp, &instr->operands[0], lane),
                   from = sim_address(warp, &instr->operands[1], lane);
    b->barrier = sim_address(warp, &instr->operands[3], lane);
    if (!set_plain(b, warp, instr, lane, 0, (uint32_t)sim_operand(warp, &instr->operands[2], lane)) ||
        !set_plain_reduction(b, warp, instr, lane) || !set_shared(b, warp, instr, to, true))
        return false;
    b->to = b->shared;
    if (!set_shared(b, warp, instr, from, false) || !sim_mbarrier_check(warp, instr, lane, b->barrier))
        return false;
    for (size_t at = 0; at < b->row_bytes; at += 16) {
        if (!shadow_check_async_read(warp, instr, lane, b->shared + at, 16))
            return false;
    }
    b->base.shared_offset = b->to;
    b->base.shared_bytes = b->row_bytes;
    if (shadow_awaited(warp->cta, b->to, b->row_bytes)) {
        sim_fault(warp, instr, lane, "another copy into shared bytes [%#zx, %#zx) is under way", b->to,
                  b->to + b->row_bytes);
        return false;
    }
    if (!b->reduces)
        shadow_set_written(warp->cta, b->to, b->row_bytes, false);
    else
        b->base.shared_bytes = 0;
    b->base.step = local_step;
    sim_async_queue(warp->cta, &b->base);
    return true;
}

static bool bulk_store(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    if (instr->data[1] != 0)
        b->bytes_left_out = (uint16_t)~sim_operand(warp, &instr->operands[instr->data[1]], lane);
    if (!set_plain_reduction(b, warp, instr, lane))
        return false;
    return set_plain(b, warp, instr, lane, sim_address(warp, &instr->operands[0], lane),
                     (uint32_t)sim_operand(warp, &instr->operands[2], lane)) &&
           issue_store(b, warp, instr, lane, sim_address(warp, &instr->operands[1], lane));
}

static bool tensor_load(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    b->barrier = sim_address(warp, &instr->operands[2], lane);
    return set_tensor(b, warp, instr, lane, &instr->operands[1]) &&
           issue_load(b, warp, instr, lane, sim_address(warp, &instr->operands[0], lane));
}

static bool tensor_store(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
    b->is_store = true;
    return set_tensor(b, warp, instr, lane, &instr->operands[0]) &&
           issue_store(b, warp, instr, lane, sim_address(warp, &instr->operands[1], lane));
}

sim_result exec_bulk_load(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return each_lane(warp, instr, mask, SIM_ASYNC_BULK_LOAD, bulk_load);
}

sim_result exec_bulk_local(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return each_lane(warp, instr, mask, SIM_ASYNC_BULK_LOAD, bulk_local);
}

sim_result exec_bulk_store(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return each_lane(warp, instr, mask, SIM_ASYNC_BULK_STORE, bulk_store);
}

sim_result exec_tensor_load(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return each_lane(warp, instr, mask, SIM_ASYNC_BULK_LOAD, tensor_load);
}

sim_result exec_tensor_store(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    return each_lane(warp, instr, mask, SIM_ASYNC_BULK_STORE, tensor_store);
}

/* Prefetches move nothing; their operands are checked, but not what lies at a global address. */
sim_result exec_bulk_prefetch(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        bulk b = {0};
        if (!policy_ok(warp, instr, lane) ||
            !set_plain(&b, warp, instr, lane, sim_address(warp, &instr->operands[0], lane),
                       (uint32_t)sim_operand(warp, &instr->operands[1], lane)))
            return SIM_FAULT;
    }
    return SIM_DONE;
}

sim_result exec_tensor_prefetch(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        bulk b = {0};
        if (!policy_ok(warp, instr, lane) || !set_tensor(&b, warp, instr, lane, &instr->operands[0]))
            return SIM_FAULT;
    }
    return SIM_DONE;
}
