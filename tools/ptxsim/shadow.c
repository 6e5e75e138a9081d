/* SPDX-License-Identifier: MIT
 * Shadow of shared memory: which bytes have been written, and which hold an ordinary store that the async proxy cannot
 * see yet. A proxy fence by any lane counts for the stores of its whole warp. */
#include <stdio.h>
#include <string.h>

#include "async.h"
#include "engine.h"

/* Bits [first, last] of byte `i` of a bit map that covers [offset, offset + size). */
static uint8_t bits_of(size_t i, size_t offset, size_t size) {
    unsigned bits = 0xff;
    if (i == offset / 8)
        bits &= 0xffu << offset % 8;
    if (i == (offset + size - 1) / 8)
        bits &= 0xffu >> (7 - (offset + size - 1) % 8);
    return (uint8_t)bits;
}

bool shadow_written(const sim_cta *cta, size_t offset, size_t size) {
    if (size == 0)
        return true;
    for (size_t i = offset / 8; i <= (offset + size - 1) / 8; i++) {
        const uint8_t bits = bits_of(i, offset, size);
        if ((cta->shared_written[i] & bits) != bits)
            return false;
    }
    return true;
}

void shadow_set_written(sim_cta *cta, size_t offset, size_t size, bool written) {
    if (size == 0)
        return;
    for (size_t i = offset / 8; i <= (offset + size - 1) / 8; i++) {
        const uint8_t bits = bits_of(i, offset, size);
        if (written)
            cta->shared_written[i] = (uint8_t)(cta->shared_written[i] | bits);
        else
            cta->shared_written[i] = (uint8_t)(cta->shared_written[i] & ~bits);
    }
}

bool shadow_awaited(const sim_cta *cta, size_t offset, size_t size) {
    for (const struct sim_async *op = cta->pending; op != NULL; op = op->next) {
        if (op->fills != NULL ? op->fills(op, offset, size)
                              : op->shared_offset < offset + size && offset < op->shared_offset + op->shared_bytes)
            return true;
    }
    return false;
}

bool shadow_store_generic(sim_warp *warp, const ptx_instr *instr, size_t offset, size_t size) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return false;
    const int w = warp->index;
    memset(state->writer + offset, w + 1, size);
    if (state->dirty_begin[w] >= state->dirty_end[w]) {
        state->dirty_begin[w] = offset;
        state->dirty_end[w] = offset + size;
    } else {
        if (offset < state->dirty_begin[w])
            state->dirty_begin[w] = offset;
        if (offset + size > state->dirty_end[w])
            state->dirty_end[w] = offset + size;
    }
    shadow_set_written(warp->cta, offset, size, true);
    return true;
}

void shadow_store_async(sim_cta *cta, size_t offset, size_t size) {
    if (cta->async_state != NULL)
        memset(cta->async_state->writer + offset, 0, size);
    shadow_set_written(cta, offset, size, true);
}

int shadow_dirty(const sim_cta *cta, size_t offset, size_t size) {
    if (cta->async_state == NULL)
        return 0;
    const uint8_t *writer = cta->async_state->writer + offset;
    for (size_t i = 0; i < size; i++) {
        if (writer[i] != 0 && writer[i] != SHADOW_UNINITIALISED)
            return writer[i];
    }
    return 0;
}

void shadow_set_uninitialised(sim_cta *cta, size_t offset, size_t size) {
    memset(cta->async_state->writer + offset, SHADOW_UNINITIALISED, size);
    shadow_set_written(cta, offset, size, false);
}

bool shadow_uninitialised(const sim_cta *cta, size_t offset, size_t size) {
    return cta->async_state != NULL && memchr(cta->async_state->writer + offset, SHADOW_UNINITIALISED, size) != NULL;
}

void shadow_proxy_fence(sim_warp *warp, bool barriers_only) {
    struct sim_async_state *state = warp->cta->async_state;
    if (state == NULL)
        return;
    for (size_t i = state->mbarriers_begin; i < state->mbarriers_end; i++) {
        if (state->mbarriers[i].live && state->mbarriers[i].writer == warp->index)
            state->mbarriers[i].fenced = true;
    }
    if (barriers_only)
        return;
    const int w = warp->index;
    for (size_t i = state->dirty_begin[w]; i < state->dirty_end[w]; i++) {
        if (state->writer[i] == w + 1)
            state->writer[i] = 0;
    }
    state->dirty_begin[w] = state->dirty_end[w] = 0;
}

bool shadow_check_async_read(sim_warp *warp, const ptx_instr *instr, int lane, size_t offset, size_t size) {
    if (!shadow_written(warp->cta, offset, size)) {
        sim_fault(warp, instr, lane, "reads %zu bytes at shared offset %#zx, %s", size, offset,
                  shadow_awaited(warp->cta, offset, size)
                      ? "which an asynchronous copy under way is yet to fill: it has not been waited for"
                      : "not all of which have been written");
        return false;
    }
    const int writer = shadow_dirty(warp->cta, offset, size);
    if (writer != 0) {
        sim_fault(warp, instr, lane,
                  "generic write read by the async proxy without fence.proxy.async: shared bytes in [%#zx, %#zx), "
                  "stored by warp %d",
                  offset, offset + size, writer - 1);
        return false;
    }
    return true;
}

static void note(sim_warp *warp, const ptx_instr *instr, uint64_t address, bool global, const char *why) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return;
    state->undefined_instr = instr;
    state->undefined_address = address;
    state->undefined_global = global;
    state->undefined_why = why;
}

void shadow_note_undefined(sim_warp *warp, const ptx_instr *instr, size_t offset, size_t size) {
    note(warp, instr, offset, false,
         shadow_awaited(warp->cta, offset, size)         ? "an asynchronous copy into it was under way"
         : shadow_uninitialised(warp->cta, offset, size) ? "copied from global memory that nothing had written"
                                                         : "never written");
}

void shadow_note_global(sim_warp *warp, const ptx_instr *instr, uint64_t address) {
    note(warp, instr, address, true, "nothing has written it since it was allocated");
}

void shadow_note_race(sim_warp *warp, const ptx_instr *instr, size_t offset) {
    note(warp, instr, offset, false, "written, but nothing orders this read after the write: a data race");
}

void sim_undefined_note(const sim_cta *cta, char *text, size_t size) {
    const struct sim_async_state *state = cta->async_state;
    if (state == NULL || state->undefined_instr == NULL) {
        snprintf(text, size, "%s", "");
        return;
    }
    snprintf(text, size, "%s memory was last read undefined at %s%#llx by line %d: %s (%s)",
             state->undefined_global ? "global" : "shared", state->undefined_global ? "" : "offset ",
             (unsigned long long)state->undefined_address, state->undefined_instr->line, state->undefined_instr->text,
             state->undefined_why);
}

void sim_note_defined(sim_warp *warp, int slot, uint32_t lanes, bool defined) {
    if (warp->schedule == NULL)
        return;
    uint32_t *written = &warp->schedule->written[slot];
    *written = defined ? *written | lanes : *written & ~lanes;
}

uint32_t sim_defined_lanes(const sim_warp *warp, int slot) {
    return warp->schedule == NULL ? UINT32_MAX : warp->schedule->written[slot];
}
