/* SPDX-License-Identifier: MIT
 *
 * Clusters, all of one CTA: its shared memory as seen from the cluster, and the barrier of all its threads (PTX ISA,
 * "mapa", "getctarank", "barrier.cluster"). */
#include <string.h>

#include "async.h"
#include "engine.h"
#include "tmem.h"

/* ---- Addresses ---- */

/* data[0]: generic addresses */
static bool in_shared(const sim_warp *warp, const ptx_instr *instr, uint64_t address) {
    if (instr->data[0])
        return address - SIM_SHARED_WINDOW < warp->cta->shared_bytes;
    return sim_shared_offset(address) <= warp->cta->shared_bytes;
}

static sim_result exec_mapa(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t mapped[SIM_LANES] = {0};
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const uint32_t rank = (uint32_t)sim_operand(warp, &instr->operands[2], lane);
        mapped[lane] = sim_operand(warp, &instr->operands[1], lane);
        if (rank != 0)
            return sim_fault(warp, instr, lane, "CTA %u of the cluster, which has one", rank);
        if (!in_shared(warp, instr, mapped[lane]))
            return sim_fault(warp, instr, lane, "%#llx is not in the CTA's shared memory",
                             (unsigned long long)mapped[lane]);
    }
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
        sim_set(warp, &instr->operands[0], __builtin_ctz(rest), mapped[__builtin_ctz(rest)]);
    return SIM_DONE;
}

static sim_result exec_rank(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const uint64_t address = sim_operand(warp, &instr->operands[1], lane);
        if (!in_shared(warp, instr, address))
            return sim_fault(warp, instr, lane, "%#llx is not in the CTA's shared memory", (unsigned long long)address);
        sim_set(warp, &instr->operands[0], lane, 0);
    }
    return SIM_DONE;
}

/* ---- The barrier ---- */

/* Ends the phase if all threads that have not exited have arrived. */
static void settle(sim_cta *cta) {
    sim_cluster_barrier *b = &cta->async_state->cluster;
    for (int w = 0; w < cta->num_warps; w++) {
        if (sim_live(&cta->warps[w]) & ~b->arrived[w])
            return;
    }
    memset(b->arrived, 0, sizeof(b->arrived));
    b->phase++;
    race_copy(cta, &b->completed, b->point);
    race_drop(cta, &b->point);
}

/* data[0]: relaxed */
static sim_result exec_arrive(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return SIM_FAULT;
    sim_cluster_barrier *b = &state->cluster;
    const uint32_t again = mask & b->entered[warp->index];
    if (again != 0)
        return sim_fault(warp, instr, __builtin_ctz(again),
                         "arrives at the cluster's barrier again, without barrier.cluster.wait after the last time");
    b->entered[warp->index] |= mask;
    b->arrived[warp->index] |= mask;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
        b->phases[warp->index][__builtin_ctz(rest)] = b->phase;
    tmem_arrive_named(warp, TMEM_CLUSTER_BARRIER);
    if (!instr->data[0])
        race_release(warp, mask, &b->point);
    settle(warp->cta);
    return SIM_DONE;
}

static sim_result exec_wait(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    struct sim_async_state *state = sim_async_state_of(warp, instr);
    if (state == NULL)
        return SIM_FAULT;
    sim_cluster_barrier *b = &state->cluster;
    const uint32_t outside = mask & ~b->entered[warp->index];
    if (outside != 0)
        return sim_fault(warp, instr, __builtin_ctz(outside),
                         "waits for the cluster's barrier without barrier.cluster.arrive before");
    settle(warp->cta); /* others may have exited */
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        if (b->phases[warp->index][__builtin_ctz(rest)] == b->phase)
            return SIM_RETRY;
    }
    b->entered[warp->index] &= ~mask;
    tmem_waited_named(warp, TMEM_CLUSTER_BARRIER);
    race_acquire(warp, mask, b->completed);
    return SIM_DONE;
}

/* ---- Binding ---- */

#define NONE    PTX_GATHER_NONE
#define ALIGNED PTX_GATHER_ALIGNED

static const sim_form forms[] = {
    {"mapa", "shared::cluster.u32", "dvv", exec_mapa, NONE, 0, 0},
    {"mapa", "shared::cluster.u64", "dvv", exec_mapa, NONE, 0, 0},
    {"mapa", "u64", "dvv", exec_mapa, NONE, 0, 1},
    {"mapa", "u32", "dvv", exec_mapa, NONE, 0, 1},
    {"getctarank", "shared::cluster.u32", "dv", exec_rank, NONE, 0, 0},
    {"getctarank", "shared::cluster.u64", "dv", exec_rank, NONE, 0, 0},
    {"getctarank", "u32", "dv", exec_rank, NONE, 0, 1},
    {"getctarank", "u64", "dv", exec_rank, NONE, 0, 1},
    {"barrier", "cluster.arrive", "", exec_arrive, NONE, 0, 0},
    {"barrier", "cluster.arrive.release", "", exec_arrive, NONE, 0, 0},
    {"barrier", "cluster.arrive.relaxed", "", exec_arrive, NONE, 0, 1},
    {"barrier", "cluster.arrive.aligned", "", exec_arrive, ALIGNED, 0, 0},
    {"barrier", "cluster.arrive.release.aligned", "", exec_arrive, ALIGNED, 0, 0},
    {"barrier", "cluster.arrive.relaxed.aligned", "", exec_arrive, ALIGNED, 0, 1},
    {"barrier", "cluster.wait", "", exec_wait, NONE, 0, 0},
    {"barrier", "cluster.wait.acquire", "", exec_wait, NONE, 0, 0},
    {"barrier", "cluster.wait.aligned", "", exec_wait, ALIGNED, 0, 0},
    {"barrier", "cluster.wait.acquire.aligned", "", exec_wait, ALIGNED, 0, 0},
    {NULL, NULL, NULL, NULL, NONE, 0, 0},
};

static bool bind(ptx_instr *instr, char *error, size_t error_size) {
    return sim_bind_form(instr, forms, error, error_size);
}

/* The CTA's barriers belong to exec_control.c. */
static bool bind_barrier(ptx_instr *instr, char *error, size_t error_size) {
    return ptx_has(instr, "cluster") && bind(instr, error, error_size);
}

const sim_op sim_ops_cluster[] = {{"mapa", bind}, {"getctarank", bind}, {"barrier", bind_barrier}, {NULL, NULL}};
