/* SPDX-License-Identifier: MIT
 * What is said about a race: both accesses, who made them, and what could have ordered them. */
#include <stdio.h>
#include <string.h>

#include "async.h"
#include "race_state.h"

static const char *verb(unsigned kind) {
    static const char *const verbs[] = {"reads", "writes", "reads (strong)", "writes (strong)"};
    return verbs[kind & 3];
}

/* Who made the access that was kept. */
static void name_party(const sim_cta *cta, uint32_t threads, uint32_t place, bool foreign, char *text, size_t size) {
    if (place >= threads) {
        snprintf(text, size, "asynchronous operation");
        return;
    }
    const sim_dim block = cta->launch->block;
    snprintf(text, size, "warp %u, lane %u, thread (%u, %u, %u)", place / SIM_LANES, place % SIM_LANES, place % block.x,
             place / block.x % block.y, place / block.x / block.y);
    (void)foreign;
}

bool race_fault(const race_party *party, const char *memory, uint64_t address, size_t size, unsigned kind,
                race_entry earlier, bool is_place, int lane, unsigned other) {
    const sim_cta *cta = party->warp->cta;
    if (kind & RACE_QUIET)
        return false;
    const uint32_t threads = cta->race->threads, who = race_who(earlier);
    const uint32_t place = is_place               ? who
                           : who >= RACE_UNIT_WHO ? threads + who - RACE_UNIT_WHO
                                                  : who * SIM_LANES + (uint32_t)lane;
    char by[96], where[600] = "an instruction", of_cta[64] = "";
    name_party(cta, threads, place, other != cta->linear_id, by, sizeof(by));
    if (other != cta->linear_id) {
        const sim_dim grid = cta->launch->grid;
        snprintf(of_cta, sizeof(of_cta), "CTA (%u, %u, %u), ", other % grid.x, other / grid.x % grid.y,
                 other / grid.x / grid.y);
    }
    if ((earlier & UINT16_MAX) != UINT16_MAX)
        sim_describe(cta->launch, &cta->launch->function->instrs[earlier & UINT16_MAX], where, sizeof(where));
    const bool unit = party->place >= threads || place >= threads;
    sim_fault(party->warp, party->instr, party->lane,
              "data race: %s%s %zu bytes at %s %#llx, and nothing orders this after an access that %s them\n"
              "  the other one: %s%s\n  at %s\n  expected between them: %s",
              party->place >= threads ? "asynchronously " : "", verb(kind), size, memory, (unsigned long long)address,
              verb(race_kind(earlier)), of_cta, by, where,
              other != cta->linear_id ? "a fence and a strong access at device scope on either side, or two kernels"
              : unit
                  ? "the completion of the asynchronous operation, waited for, or an arrival of every thread concerned"
                  : "a barrier, __syncwarp, mbarrier arrival and wait, or fences with strong accesses");
    return false;
}

bool race_proxy_fault(const race_party *party, uint64_t address, size_t size, unsigned kind, race_entry earlier) {
    char where[600] = "an instruction";
    const sim_launch *launch = party->warp->cta->launch;
    if ((earlier & UINT16_MAX) != UINT16_MAX)
        sim_describe(launch, &launch->function->instrs[earlier & UINT16_MAX], where, sizeof(where));
    sim_fault(party->warp, party->instr, party->lane,
              "%s %zu bytes at global %#llx that an ordinary store of this kernel has written, without %s in between\n"
              "  the store: %s",
              kind & RACE_AS_MAP ? "uses as a tensor map" : "copies asynchronously", size, (unsigned long long)address,
              kind & RACE_AS_MAP ? "fence.proxy.tensormap" : "fence.proxy.async", where);
    return false;
}
