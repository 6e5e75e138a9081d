/* SPDX-License-Identifier: MIT
 *
 * Instructions in which the lanes of a warp exchange values. The engine runs them once all lanes of the member mask are
 * there: `mask` is these lanes. */
#include <math.h>
#include <string.h>

#include "engine.h"
#include "race_claim.h"

/* ---- Shuffles ---- */

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };

/* The lane that `lane` reads; *valid: it lies in the segment, else the lane keeps its own value. */
static int shuffle_source(uint64_t mode, int lane, int b, int c, bool *valid) {
    int segment = c >> 8 & 31, clamp = c & 31;
    int low = lane & segment, high = low | (clamp & ~segment), source;
    b &= 31;
    switch (mode) {
    case SHUFFLE_UP: /* here the clamp is a lower bound */
        source = lane - b;
        *valid = source >= high;
        break;
    case SHUFFLE_DOWN:
        source = lane + b;
        *valid = source <= high;
        break;
    case SHUFFLE_BUTTERFLY:
        source = lane ^ b;
        *valid = source <= high;
        break;
    default:
        source = low | (b & ~segment);
        *valid = source <= high;
        break;
    }
    return *valid ? source : lane;
}

static sim_result exec_shuffle(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *d = &instr->operands[0], *a = &instr->operands[1];
    uint32_t *written = warp->schedule->written;
    uint32_t given = a->kind == PTX_OPERAND_REGISTER ? written[a->slot] : UINT32_MAX, undefined = 0;
    const bool tagged = warp->schedule->tagged != NULL && a->kind == PTX_OPERAND_REGISTER;
    uint32_t claims[SIM_LANES] = {0}, moved[SIM_LANES] = {0};
    uint64_t values[SIM_LANES] = {0};
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        values[lane] = (uint32_t)sim_operand(warp, a, lane);
        claims[lane] = tagged ? race_claim_of(warp, a->slot, lane) : 0;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        bool valid;
        int source = shuffle_source(instr->data[0], lane, (int)sim_operand(warp, &instr->operands[2], lane),
                                    (int)sim_operand(warp, &instr->operands[3], lane), &valid);
        /* A lane that does not take part gives no value. */
        if (!((mask & given) >> source & 1))
            undefined |= UINT32_C(1) << lane;
        sim_set(warp, d, lane, values[source]);
        moved[lane] = claims[source];
        if (d->pair >= 0)
            sim_register(warp, d->pair)[lane] = valid;
    }
    if (d->kind == PTX_OPERAND_REGISTER)
        written[d->slot] &= ~undefined;
    if (d->kind == PTX_OPERAND_REGISTER && warp->schedule->tagged != NULL)
        race_claim_set(warp, d->slot, mask, moved);
    return SIM_DONE;
}

/* ---- Votes ---- */

enum { VOTE_BALLOT, VOTE_ALL, VOTE_ANY, VOTE_UNI };

static sim_result exec_vote(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint32_t yes = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        yes |= (uint32_t)(sim_operand(warp, &instr->operands[1], lane) & 1) << lane;
    }
    uint64_t result;
    switch (instr->data[0]) {
    case VOTE_BALLOT:
        result = yes;
        break;
    case VOTE_ALL:
        result = yes == mask;
        break;
    case VOTE_ANY:
        result = yes != 0;
        break;
    default:
        result = yes == mask || yes == 0;
        break;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        sim_set(warp, &instr->operands[0], __builtin_ctz(rest), result);
    return SIM_DONE;
}

static sim_result exec_activemask(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        sim_set(warp, &instr->operands[0], __builtin_ctz(rest), mask);
    return SIM_DONE;
}

/* The ISA leaves open who is elected, but it is always the same lane for the same mask: here the lowest one. */
static sim_result exec_elect(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *d = &instr->operands[0];
    int leader = __builtin_ctz(mask);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        sim_set(warp, d, lane, (unsigned)leader);
        if (d->pair >= 0)
            sim_register(warp, d->pair)[lane] = lane == leader;
    }
    return SIM_DONE;
}

/* ---- Matches ---- */

enum { MATCH_ANY, MATCH_ALL };

/* data[0]: which, data[1]: bits of the value. */
static sim_result exec_match(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    const ptx_operand *d = &instr->operands[0];
    uint64_t values[SIM_LANES];
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        values[lane] = sim_operand(warp, &instr->operands[1], lane);
        if (instr->data[1] == 32)
            values[lane] = (uint32_t)values[lane];
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t same = 0;
        for (uint32_t others = mask; others; others &= others - 1) {
            int other = __builtin_ctz(others);
            same |= (uint32_t)(values[other] == values[lane]) << other;
        }
        if (instr->data[0] == MATCH_ALL)
            same = same == mask ? mask : 0;
        sim_set(warp, d, lane, same);
        if (d->pair >= 0)
            sim_register(warp, d->pair)[lane] = same == mask;
    }
    return SIM_DONE;
}

/* ---- Reductions ---- */

enum {
    REDUCE_ADD,
    REDUCE_AND,
    REDUCE_OR,
    REDUCE_XOR,
    REDUCE_MIN_U,
    REDUCE_MAX_U,
    REDUCE_MIN_S,
    REDUCE_MAX_S,
    REDUCE_REAL
};
enum { REAL_MAX = 1, REAL_ABS = 2, REAL_NAN = 4 }; /* added to REDUCE_REAL */

#define CANONICAL_NAN UINT32_C(0x7fffffff)

static uint32_t reduce_integer(uint64_t op, uint32_t a, uint32_t b) {
    switch (op) {
    case REDUCE_ADD:
        return a + b;
    case REDUCE_AND:
        return a & b;
    case REDUCE_OR:
        return a | b;
    case REDUCE_XOR:
        return a ^ b;
    case REDUCE_MIN_U:
        return a < b ? a : b;
    case REDUCE_MAX_U:
        return a > b ? a : b;
    case REDUCE_MIN_S:
        return (int32_t)a < (int32_t)b ? a : b;
    default:
        return (int32_t)a > (int32_t)b ? a : b;
    }
}

/* min and max of two: -0 is less than +0; a NaN yields to a number, or with .NaN wins. */
static uint32_t reduce_real(uint64_t options, uint32_t a, uint32_t b) {
    float x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    if (isnan(x) || isnan(y)) {
        if ((options & REAL_NAN) || (isnan(x) && isnan(y)))
            return CANONICAL_NAN;
        return isnan(x) ? b : a;
    }
    bool less = x < y || (x == y && (a >> 31) > (b >> 31));
    return less == !(options & REAL_MAX) ? a : b;
}

static sim_result exec_reduce(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    uint64_t op = instr->data[0];
    bool real = op >= REDUCE_REAL, first = true;
    uint64_t options = real ? op - REDUCE_REAL : 0;
    uint32_t result = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t value = (uint32_t)sim_operand(warp, &instr->operands[1], __builtin_ctz(rest));
        if (options & REAL_ABS)
            value &= INT32_MAX;
        if (first)
            result = real ? reduce_real(options, value, value) : value;
        else
            result = real ? reduce_real(options, result, value) : reduce_integer(op, result, value);
        first = false;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        sim_set(warp, &instr->operands[0], __builtin_ctz(rest), result);
    return SIM_DONE;
}

/* The only one of these that orders memory. */
static sim_result exec_warp_sync(sim_warp *warp, const ptx_instr *instr, uint32_t mask) {
    (void)instr;
    race_meet(warp, mask);
    return SIM_DONE;
}

/* ---- Binding ---- */

#define MASK PTX_GATHER_MASK

static const sim_form forms[] = {
    {"shfl", "sync.up.b32", "pvvvv", exec_shuffle, MASK, 4, SHUFFLE_UP},
    {"shfl", "sync.down.b32", "pvvvv", exec_shuffle, MASK, 4, SHUFFLE_DOWN},
    {"shfl", "sync.bfly.b32", "pvvvv", exec_shuffle, MASK, 4, SHUFFLE_BUTTERFLY},
    {"shfl", "sync.idx.b32", "pvvvv", exec_shuffle, MASK, 4, SHUFFLE_INDEX},
    {"vote", "sync.ballot.b32", "dqv", exec_vote, MASK, 2, VOTE_BALLOT},
    {"vote", "sync.all.pred", "dqv", exec_vote, MASK, 2, VOTE_ALL},
    {"vote", "sync.any.pred", "dqv", exec_vote, MASK, 2, VOTE_ANY},
    {"vote", "sync.uni.pred", "dqv", exec_vote, MASK, 2, VOTE_UNI},
    {"activemask", "b32", "d", exec_activemask, PTX_GATHER_NONE, 0, 0},
    {"elect", "sync", "pv", exec_elect, MASK, 1, 0},
    {"match", "any.sync.b32", "dvv", exec_match, MASK, 2, MATCH_ANY},
    {"match", "any.sync.b64", "dvv", exec_match, MASK, 2, MATCH_ANY},
    {"match", "all.sync.b32", "pvv", exec_match, MASK, 2, MATCH_ALL},
    {"match", "all.sync.b64", "pvv", exec_match, MASK, 2, MATCH_ALL},
    {"redux", "sync.add.u32", "dvv", exec_reduce, MASK, 2, REDUCE_ADD},
    {"redux", "sync.add.s32", "dvv", exec_reduce, MASK, 2, REDUCE_ADD},
    {"redux", "sync.min.u32", "dvv", exec_reduce, MASK, 2, REDUCE_MIN_U},
    {"redux", "sync.max.u32", "dvv", exec_reduce, MASK, 2, REDUCE_MAX_U},
    {"redux", "sync.min.s32", "dvv", exec_reduce, MASK, 2, REDUCE_MIN_S},
    {"redux", "sync.max.s32", "dvv", exec_reduce, MASK, 2, REDUCE_MAX_S},
    {"redux", "sync.and.b32", "dvv", exec_reduce, MASK, 2, REDUCE_AND},
    {"redux", "sync.or.b32", "dvv", exec_reduce, MASK, 2, REDUCE_OR},
    {"redux", "sync.xor.b32", "dvv", exec_reduce, MASK, 2, REDUCE_XOR},
    {"redux", "sync.min.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL},
    {"redux", "sync.max.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_MAX},
    {"redux", "sync.min.abs.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_ABS},
    {"redux", "sync.max.abs.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_MAX + REAL_ABS},
    {"redux", "sync.min.NaN.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_NAN},
    {"redux", "sync.max.NaN.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_MAX + REAL_NAN},
    {"redux", "sync.min.abs.NaN.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_ABS + REAL_NAN},
    {"redux", "sync.max.abs.NaN.f32", "dvv", exec_reduce, MASK, 2, REDUCE_REAL + REAL_MAX + REAL_ABS + REAL_NAN},
    {"bar", "warp.sync", "v", exec_warp_sync, MASK, 0, 0},
    {NULL, NULL, NULL, NULL, PTX_GATHER_NONE, 0, 0},
};

static bool bind(ptx_instr *instr, char *error, size_t error_size) {
    return sim_bind_form(instr, forms, error, error_size);
}

/* bar.sync and the like are CTA barriers. */
static bool bind_bar(ptx_instr *instr, char *error, size_t error_size) {
    return ptx_has(instr, "warp") && bind(instr, error, error_size);
}

static bool bind_match(ptx_instr *instr, char *error, size_t error_size) {
    instr->data[1] = ptx_has(instr, "b64") ? 64 : 32;
    return bind(instr, error, error_size);
}

const sim_op sim_ops_warp[] = {
    {"shfl", bind},        {"vote", bind},  {"activemask", bind}, {"elect", bind},
    {"match", bind_match}, {"redux", bind}, {"bar", bind_bar},    {NULL, NULL},
};
