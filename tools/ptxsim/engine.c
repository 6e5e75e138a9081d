/* SPDX-License-Identifier: MIT
 *
 * Runs a launch: CTAs over a few host threads, each CTA wholly on one of them; its warps in slices of random length and
 * order. What happens in a CTA depends on the launch's seed alone, not on the host threads. */
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "async.h"
#include "race_state.h"

enum {
    MAX_HOST_THREADS = 8,
    MAX_CTA_THREADS = 1024,
    IDLE_TRIES = 64, /* chances for one asynchronous operation alone to move while all warps wait, then all of them */
    WAITING_STEPS = 1000, /* instructions within which a warp must have failed a wait to count as waiting */
    COUNT_STEPS = 4096    /* instructions of a CTA between updates of the launch's count */
};

/* Instructions of a CTA without any effect before its warps are suspected to wait for ever. */
#define QUIET_STEPS UINT64_C(2000000)

typedef struct run {
    sim_launch *launch;
    sim_program program;
    uint64_t num_ctas, next_cta; /* next_cta and steps: atomic */
    uint64_t steps, step_limit, quiet_limit;
    size_t shared_bytes;
    int num_warps;
} run;

/* ---- Memory of a CTA; one per host thread, used again and again ---- */

typedef struct machine {
    sim_cta cta;
    sim_schedule *schedules;
    uint64_t *registers;
    uint8_t *pending, *local, *local_written;
    uint32_t *written;
} machine;

static void machine_destroy(machine *m) {
    free(m->cta.warps);
    free(m->cta.shared);
    race_state_free(m->cta.race);
    free(m->cta.shared_written);
    free(m->schedules);
    free(m->registers);
    free(m->pending);
    free(m->local);
    free(m->local_written);
    free(m->written);
}

static bool machine_init(machine *m, const run *r) {
    const ptx_function *function = r->launch->function;
    size_t warps = (size_t)r->num_warps, slots = (size_t)function->num_slots;
    *m = (machine){0};
    m->cta.warps = calloc(warps, sizeof(sim_warp));
    m->cta.shared = calloc(r->shared_bytes + 1, 1);
    m->cta.shared_written = calloc(r->shared_bytes / 8 + 1, 1);
    m->schedules = calloc(warps, sizeof(sim_schedule));
    m->registers = calloc(warps * slots * SIM_LANES + 1, sizeof(uint64_t));
    m->pending = calloc(warps * slots + 1, 1);
    m->local = calloc(warps * function->local_bytes * SIM_LANES + 1, 1);
    m->local_written = calloc(warps * function->local_bytes * SIM_LANES + 1, 1);
    m->written = calloc(warps * slots + 1, sizeof(uint32_t));
    if (r->launch->race)
        m->cta.race = race_state_new(r->launch, r->num_warps, r->shared_bytes);
    if ((m->cta.race || !r->launch->race) && m->cta.warps && m->cta.shared && m->cta.shared_written && m->schedules &&
        m->registers && m->pending && m->local && m->local_written && m->written)
        return true;
    machine_destroy(m);
    return false;
}

/* Registers of a thread at launch, in which setmaxnreg counts. PTX does not know them: they are what .maxnreg says,
 * else what ptxas may use at most, so that .minnctapersm CTAs fit a multiprocessor. */
static unsigned registers_of(const sim_launch *launch, unsigned threads) {
    enum { OF_SM = 65536, MOST = 255 };
    const ptx_function *function = launch->function;
    if (function->registers > 0)
        return (unsigned)function->registers;
    const unsigned bound = function->max_threads > 0 ? (unsigned)function->max_threads : threads;
    const unsigned warps = (bound + SIM_LANES - 1) / SIM_LANES;
    const unsigned ctas = function->min_ctas > 0 ? (unsigned)function->min_ctas : 1;
    const unsigned share = OF_SM / (warps * SIM_LANES) / ctas / 8 * 8;
    return share < MOST ? share : MOST;
}

/* What memory and registers hold before they are written is arbitrary, but the same for the same seed. */
static void machine_reset(machine *m, const run *r, uint64_t linear) {
    const ptx_function *function = r->launch->function;
    sim_dim grid = r->launch->grid, block = r->launch->block;
    size_t slots = (size_t)function->num_slots, warps = (size_t)r->num_warps, local = function->local_bytes * SIM_LANES;
    unsigned threads = block.x * block.y * block.z;
    memset(m->cta.shared, 0xa5, r->shared_bytes);
    memset(m->cta.shared_written, 0, r->shared_bytes / 8 + 1);
    memset(m->registers, 0, warps * slots * SIM_LANES * sizeof(uint64_t));
    memset(m->pending, 0, warps * slots);
    memset(m->local, 0xa5, warps * local);
    memset(m->local_written, 0, warps * local);
    memset(m->written, 0, warps * slots * sizeof(uint32_t));
    sim_cta kept = m->cta;
    m->cta = (sim_cta){
        .launch = r->launch,
        .id = {(unsigned)(linear % grid.x), (unsigned)(linear / grid.x % grid.y), (unsigned)(linear / grid.x / grid.y)},
        .linear_id = (unsigned)linear,
        .shared = kept.shared,
        .shared_bytes = r->shared_bytes,
        .shared_written = kept.shared_written,
        .race = kept.race,
        .warps = kept.warps,
        .num_warps = r->num_warps,
        .running_warps = r->num_warps,
        .random = r->launch->seed ^ (linear + 1) * UINT64_C(0xd1342543de82ef95)};
    if (m->cta.race)
        race_state_reset(m->cta.race, &m->cta);
    const unsigned registers = registers_of(r->launch, threads);
    m->cta.registers = registers * (unsigned)warps * SIM_LANES;
    for (size_t i = 0; i < warps; i++) {
        unsigned lanes = threads - (unsigned)i * SIM_LANES;
        m->schedules[i] = (sim_schedule){.program = &r->program,
                                         .written = m->written + i * slots,
                                         .leader = -1,
                                         .since_wait = WAITING_STEPS,
                                         .turn = 1};
        m->cta.warps[i] = (sim_warp){.cta = &m->cta,
                                     .index = (int)i,
                                     .max_registers = registers,
                                     .exists = lanes >= SIM_LANES ? UINT32_MAX : (UINT32_C(1) << lanes) - 1,
                                     .registers = m->registers + i * slots * SIM_LANES,
                                     .register_pending = m->pending + i * slots,
                                     .local = m->local + i * local,
                                     .local_written = m->local_written + i * local,
                                     .schedule = &m->schedules[i]};
    }
}

/* ---- A CTA ---- */

static bool count_steps(run *r, uint64_t steps) {
    uint64_t total = __atomic_add_fetch(&r->steps, steps, __ATOMIC_RELAXED);
    return total <= r->step_limit;
}

/* Nobody can run: lets time pass for asynchronous operations. Whether any of them moved. */
static bool pass_time(sim_cta *cta) {
    for (int i = 0; i < IDLE_TRIES && cta->pending; i++) {
        cta->steps += 1 + sim_random(cta) % 64;
        if (sim_async_progress(cta, false))
            return true;
    }
    return sim_async_progress(cta, true);
}

/* Whether every warp that lives is blocked, or has failed a wait a short while ago. */
static bool all_wait(const sim_cta *cta) {
    for (int i = 0; i < cta->num_warps; i++) {
        const sim_warp *warp = &cta->warps[i];
        uint32_t live = sim_live(warp);
        if ((live & ~warp->schedule->blocked & ~warp->schedule->parked) && warp->schedule->since_wait >= WAITING_STEPS)
            return false;
    }
    return true;
}

/* A random warp out of those of `mask`. */
static int pick(sim_cta *cta, uint32_t mask) {
    for (unsigned skip = (unsigned)(sim_random(cta) % (unsigned)__builtin_popcount(mask)); skip; skip--)
        mask &= mask - 1;
    return __builtin_ctz(mask);
}

/* Short slices try many orders, long ones are fast: both are drawn. */
static unsigned draw_budget(sim_cta *cta) {
    static const unsigned most[4] = {4, 32, 128, 512};
    uint64_t random = sim_random(cta);
    return 1 + (unsigned)(random >> 8) % most[random & 3];
}

/* The warps' slices until all have exited. false: a fault, of this CTA or another. */
static bool run_warps(run *r, sim_cta *cta) {
    uint32_t all = cta->num_warps >= 32 ? UINT32_MAX : (UINT32_C(1) << cta->num_warps) - 1, idle = 0, gone = 0;
    uint64_t counted = 0, quiet_since = 0;
    while (cta->running_warps > 0) {
        if (sim_stopped(r->launch))
            return false;
        uint32_t candidates = all & ~idle & ~gone;
        if (!candidates) {
            if (!pass_time(cta)) {
                if (!sim_stopped(r->launch))
                    sim_report_stuck(cta, "deadlock: no thread of the CTA can go on, and nothing is under way");
                return false;
            }
            idle = 0;
            quiet_since = cta->steps;
            continue;
        }
        int index = pick(cta, candidates);
        sim_warp *warp = &cta->warps[index];
        sim_slice slice;
        if (!sim_warp_slice(warp, draw_budget(cta), &slice))
            return false;
        if (!sim_live(warp))
            gone |= UINT32_C(1) << index;
        if (slice.executed > 0)
            idle = 0;
        else
            idle |= UINT32_C(1) << index;
        bool moved = cta->pending && sim_async_progress(cta, false);
        if (moved)
            idle = 0;
        if (moved || slice.effect)
            quiet_since = cta->steps;
        if (cta->steps - counted >= COUNT_STEPS) {
            if (!count_steps(r, cta->steps - counted)) {
                sim_report_stuck(cta, "livelock: the launch has reached its limit of instructions");
                return false;
            }
            counted = cta->steps;
        }
        if (cta->steps - quiet_since > r->quiet_limit) {
            if (all_wait(cta) && !pass_time(cta) && !sim_stopped(r->launch)) {
                sim_report_stuck(cta, "deadlock: all threads of the CTA wait, and nothing is under way");
                return false;
            }
            quiet_since = cta->steps;
        }
    }
    return true;
}

static void run_cta(run *r, machine *m, uint64_t linear) {
    machine_reset(m, r, linear);
    if (run_warps(r, &m->cta))
        sim_async_exit(&m->cta);
    sim_async_free(&m->cta);
}

/* ---- Host threads ---- */

static void *worker(void *argument) {
    run *r = argument;
    machine m;
    if (!machine_init(&m, r)) {
        sim_launch_fault(r->launch, "out of host memory for the registers and shared memory of a CTA");
        return NULL;
    }
    for (;;) {
        uint64_t linear = __atomic_fetch_add(&r->next_cta, 1, __ATOMIC_RELAXED);
        if (linear >= r->num_ctas || sim_stopped(r->launch))
            break;
        run_cta(r, &m, linear);
    }
    machine_destroy(&m);
    return NULL;
}

static void run_ctas(run *r) {
    pthread_t threads[MAX_HOST_THREADS];
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t wanted = online < 1 ? 1 : online > MAX_HOST_THREADS ? MAX_HOST_THREADS : (uint64_t)online;
    int started = 0;
    if (wanted > r->num_ctas)
        wanted = r->num_ctas;
    /* The caller is one of them, and enough where no other can be started. */
    while ((uint64_t)started + 1 < wanted && pthread_create(&threads[started], NULL, worker, r) == 0)
        started++;
    worker(r);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

bool sim_run(sim_launch *launch) {
    sim_dim grid = launch->grid, block = launch->block;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    launch->fault[0] = '\0';
    launch->stop = false;
    /* Each factor first, so that the product cannot wrap around. */
    if (block.x > MAX_CTA_THREADS || block.y > MAX_CTA_THREADS || block.z > MAX_CTA_THREADS || threads == 0 ||
        threads > MAX_CTA_THREADS) {
        sim_launch_fault(launch, "a block of %u x %u x %u threads (1 to %d are possible)", block.x, block.y, block.z,
                         MAX_CTA_THREADS);
        return false;
    }
    run r = {.launch = launch,
             .num_ctas = (uint64_t)grid.x * grid.y * grid.z,
             .step_limit = launch->step_limit ? launch->step_limit : SIM_DEFAULT_STEP_LIMIT,
             .shared_bytes = launch->function->static_shared_bytes + launch->dynamic_shared_bytes,
             .num_warps = (int)((threads + SIM_LANES - 1) / SIM_LANES)};
    r.quiet_limit = r.step_limit / 2 < QUIET_STEPS ? r.step_limit / 2 : QUIET_STEPS;
    if (r.num_ctas == 0 || grid.y > UINT16_MAX || grid.z > UINT16_MAX || grid.x > INT32_MAX) {
        sim_launch_fault(launch, "a grid of %u x %u x %u CTAs", grid.x, grid.y, grid.z);
        return false;
    }
    launch->race = launch->ignore_races ? NULL : race_launch_new(launch->function);
    if (!sim_program_init(&r.program, launch->function)) {
        race_launch_free(launch->race);
        launch->race = NULL;
        sim_launch_fault(launch, "out of host memory");
        return false;
    }
    run_ctas(&r);
    if (!launch->keep_race) {
        race_launch_free(launch->race);
        launch->race = NULL;
    }
    sim_program_destroy(&r.program);
    return launch->fault[0] == '\0';
}
