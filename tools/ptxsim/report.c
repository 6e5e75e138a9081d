/* SPDX-License-Identifier: MIT
 *
 * Reports of what a launch did wrong. The first one of a launch stays. */
#include <stdio.h>
#include <string.h>

#include "async.h"
#include "engine.h"
#include "memory.h"

typedef struct text {
    char *data;
    size_t size, length;
} text;

static void put_list(text *out, const char *format, va_list list) __attribute__((format(printf, 2, 0)));
static void put(text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_list(text *out, const char *format, va_list list) {
    int written = vsnprintf(out->data + out->length, out->size - out->length, format, list);
    if (written > 0)
        out->length += (size_t)written;
    if (out->length >= out->size)
        out->length = out->size - 1;
}

static void put(text *out, const char *format, ...) {
    va_list list;
    va_start(list, format);
    put_list(out, format, list);
    va_end(list);
}

static void publish(sim_launch *launch, const char *message, const sim_place *place) {
    pthread_mutex_lock(&launch->device->lock);
    if (launch->fault[0] == '\0') {
        snprintf(launch->fault, sizeof(launch->fault), "%s", message);
        launch->fault_place = *place;
    }
    pthread_mutex_unlock(&launch->device->lock);
    __atomic_store_n(&launch->stop, true, __ATOMIC_RELAXED);
}

/* The file of the source that an instruction comes from, or NULL. */
static const char *source_of(const sim_launch *launch, const ptx_instr *instr) {
    const ptx_module *module = launch->module;
    if (instr->source_line <= 0 || !module || instr->source_file < 0 || instr->source_file >= module->num_files)
        return NULL;
    return module->files[instr->source_file];
}

/* Statements can be long (tens of registers): their start tells which it is. */
static void put_instruction(text *out, const sim_launch *launch, const ptx_instr *instr) {
    const char *shown = instr->text ? instr->text : instr->opcode;
    size_t length = strcspn(shown, "\n");
    bool cut = length > 160;
    put(out, "PTX line %d: %.*s%s", instr->line, (int)(cut ? 160 : length), shown, cut ? " ..." : "");
    if (instr->source_line > 0) {
        const char *file = source_of(launch, instr);
        put(out, " (%s:%d)", file ? file : "source", instr->source_line);
    }
}

void sim_describe(const sim_launch *launch, const ptx_instr *instr, char *buffer, size_t size) {
    text out = {buffer, size, 0};
    buffer[0] = '\0';
    put_instruction(&out, launch, instr);
}

static void put_cta(text *out, const sim_cta *cta) {
    put(out, "kernel %s, CTA (%u, %u, %u)", cta->launch->function->name, cta->id.x, cta->id.y, cta->id.z);
}

sim_result sim_fault(sim_warp *warp, const ptx_instr *instr, int lane, const char *format, ...) {
    const sim_cta *cta = warp->cta;
    char data[sizeof(cta->launch->fault)];
    text out = {data, sizeof(data), 0};
    va_list list;
    va_start(list, format);
    put_list(&out, format, list);
    va_end(list);
    put(&out, "\n  in ");
    put_cta(&out, cta);
    put(&out, ", warp %d", warp->index);
    sim_place place = {.cta = cta->id, .warp = warp->index, .lane = lane};
    if (lane >= 0) {
        uint64_t x = 0, y = 0, z = 0;
        sim_special(warp, "%tid.x", lane, &x);
        sim_special(warp, "%tid.y", lane, &y);
        sim_special(warp, "%tid.z", lane, &z);
        put(&out, ", lane %d, thread (%u, %u, %u)", lane, (unsigned)x, (unsigned)y, (unsigned)z);
        place.thread = (sim_dim){(unsigned)x, (unsigned)y, (unsigned)z};
    }
    if (instr) {
        place.ptx_line = instr->line;
        place.source = source_of(cta->launch, instr);
        place.source_line = place.source ? instr->source_line : 0;
        put(&out, "\n  at ");
        put_instruction(&out, cta->launch, instr);
    }
    publish(cta->launch, data, &place);
    return SIM_FAULT;
}

void sim_launch_fault(sim_launch *launch, const char *format, ...) {
    char data[sizeof(launch->fault)];
    text out = {data, sizeof(data), 0};
    va_list list;
    va_start(list, format);
    put_list(&out, format, list);
    va_end(list);
    put(&out, "\n  in kernel %s", launch->function->name);
    publish(launch, data, &(sim_place){.warp = -1, .lane = -1});
}

/* ---- Deadlocks ---- */

/* What the lanes of one place wait for. *mbarriers: for one of these. */
static void put_reason(text *out, sim_warp *warp, const sim_step *step, uint32_t lanes, bool *mbarriers) {
    const sim_schedule *s = warp->schedule;
    int lane = __builtin_ctz(lanes);
    if (lanes & s->blocked) {
        for (int id = 0; id < SIM_BARRIERS; id++)
            if (lanes & s->barrier_waiting[id]) {
                int expected = 0, arrived = sim_barrier_arrivals(warp->cta, id, &expected);
                put(out, "; barrier %d: %d of %d threads have arrived", id, arrived, expected);
            }
        return;
    }
    if (step->flags & SIM_STEP_WAITS) {
        *mbarriers = true;
        for (int i = 1; i < step->instr->num_operands; i++) {
            const ptx_operand *operand = &step->instr->operands[i];
            bool address = operand->kind == PTX_OPERAND_ADDRESS;
            put(out, address ? "; mbarrier at 0x%llx" : ", 0x%llx",
                (unsigned long long)sim_operand(warp, operand, lane));
        }
        return;
    }
    if (strcmp(step->instr->opcode, "setmaxnreg") == 0) {
        unsigned held = 0;
        for (int i = 0; i < warp->cta->num_warps; i++)
            held += warp->cta->warps[i].max_registers * SIM_LANES;
        put(out, "; waits for registers: the launch has %u for this CTA, its warps hold %u, this one %u a thread",
            warp->cta->registers, held, warp->max_registers);
        return;
    }
    if (lanes & s->parked) {
        uint32_t needed = sim_live(warp);
        if (step->gather == PTX_GATHER_MASK)
            needed &= (uint32_t)sim_operand(warp, &step->instr->operands[step->instr->gather_operand], lane);
        put(out, "; waits for lanes 0x%08x", needed & ~lanes);
    }
}

static void put_warp(text *out, sim_warp *warp, bool *mbarriers) {
    const sim_program *program = warp->schedule->program;
    uint32_t rest = sim_live(warp);
    while (rest) {
        uint32_t pc = warp->pc[__builtin_ctz(rest)], lanes = 0;
        for (int lane = 0; lane < SIM_LANES; lane++)
            if ((rest >> lane & 1) && warp->pc[lane] == pc)
                lanes |= UINT32_C(1) << lane;
        rest &= ~lanes;
        put(out, "\n  warp %d, lanes 0x%08x: ", warp->index, lanes);
        if (pc < program->num_steps) {
            put_instruction(out, warp->cta->launch, program->steps[pc].instr);
            put_reason(out, warp, &program->steps[pc], lanes, mbarriers);
        } else {
            put(out, "at the end");
        }
    }
}

void sim_report_stuck(sim_cta *cta, const char *what) {
    char data[sizeof(cta->launch->fault)];
    text out = {data, sizeof(data), 0};
    put(&out, "%s\n  in ", what);
    put_cta(&out, cta);
    bool mbarriers = false;
    for (int i = 0; i < cta->num_warps; i++)
        put_warp(&out, &cta->warps[i], &mbarriers);
    if (mbarriers) {
        char barriers[768] = "";
        sim_mbarrier_report(cta, barriers, sizeof(barriers));
        size_t needed = strlen(barriers) + 8;
        /* The state of the barriers matters more than the last warps. */
        if (out.length + needed > out.size && needed < out.size) {
            out.length = out.size - needed;
            put(&out, "...");
        }
        put(&out, "\n  %s", barriers);
    }
    publish(cta->launch, data, &(sim_place){.cta = cta->id, .warp = -1, .lane = -1});
}
