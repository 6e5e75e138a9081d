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

/* data[0]: the operand that is the cache policy; 0: none */

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
    int32_t start[5]; /* coordinates */
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
        const int64_t at = b->start[d] + (int64_t)(index % count) * map->element_strides[d];
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

/* What elements outside the tensor read as: zeros, or a NaN of their size. */
static void fill_outside(const bulk *b, uint8_t *bytes, size_t size) {
    memset(bytes, b->map.fill_nan ? 0xff : 0, size);
    for (size_t i = 0; b->map.fill_nan && i < size; i++) {
        if (i % b->map.element_bytes == (size_t)b->map.element_bytes - 1)
            bytes[i] = 0x7f;
    }
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
        if (r.end > r.begin && !race_unit_access_global(op, r.global + r.begin, r.end - r.begin, RACE_WRITE))
            break;
        if (r.end > r.begin)
            memcpy((void *)(uintptr_t)(r.global + r.begin), b->staged + i * b->row_bytes + r.begin, r.end - r.begin);
        if (r.end > r.begin)
            sim_set_valid(cta->launch->device, r.global + r.begin, r.end - r.begin);
    }
    return SIM_ASYNC_DONE;
}

static void store_destroy(struct sim_async *op) {
    free(((bulk *)op)->staged);
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
    if (b->map.rank != operand->num_elements) {
        sim_fault(warp, instr, lane, "the tensor map has %d dimensions, the instruction %d", b->map.rank,
                  operand->num_elements);
        return false;
    }
    b->is_tensor = true;
    b->row_bytes = (size_t)b->map.boxes[0] * b->map.element_bytes;
    b->pitch = b->map.swizzle_bytes != 0 ? b->map.swizzle_bytes : b->row_bytes;
    b->rows = 1;
    for (int d = 0; d < b->map.rank; d++) {
        b->start[d] = (int32_t)(uint32_t)sim_operand(warp, &operand->elements[d], lane);
        if (d > 0)
            b->rows *= (b->map.boxes[d] + b->map.element_strides[d] - 1) / b->map.element_strides[d];
    }
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

/* Queues a load whose parts have been set. */
static bool issue_load(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane, uint64_t to) {
    if (!policy_ok(warp, instr, lane) || !set_shared(b, warp, instr, to, true) ||
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

static bool bulk_store(bulk *b, sim_warp *warp, const ptx_instr *instr, int lane) {
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
