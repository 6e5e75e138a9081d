/* SPDX-License-Identifier: MIT
 *
 * tcgen05: what its parts share. exec_tcgen05.c binds everything, and has the instructions about allocation and order;
 * exec_tcgen05_move.c moves data, exec_tcgen05_mma.c issues products, tcgen05_operands.c finds and converts their
 * operands, tcgen05_product.c computes. */
#ifndef PTXSIM_TCGEN05_H_
#define PTXSIM_TCGEN05_H_

#include "mma.h"
#include "tmem.h"

/* ---- Matrices in shared memory (tcgen05_operands.c) ---- */

/* A shared memory descriptor, decoded. A matrix is made of 16-byte pieces along its contiguous dimension. */
typedef struct tcgen05_layout {
    size_t start, leading, stride;
    unsigned width;  /* bytes of a swizzled row: 0, 32, 64, 128 */
    bool wide_atoms; /* 128 bytes are swizzled in pieces of 32, not of 16 */
    unsigned base;   /* base offset: where the swizzle pattern starts, in rows of 128 bytes */
    bool mn_major;   /* contiguous along M or N, not K */
} tcgen05_layout;

/* `name` for messages: "A". false after sim_fault. */
bool tcgen05_decode_layout(sim_warp *warp, const ptx_instr *instr, int lane, uint64_t descriptor, bool mn_major,
                           const char *name, tcgen05_layout *layout);
/* Offset in shared memory. K-major: row `mn`, and `k` counts pieces; else `mn` counts pieces, and `k` elements. */
size_t tcgen05_piece(const tcgen05_layout *layout, size_t mn, size_t k);
/* Whether the operation may read this piece: inside the CTA's memory, no copy to it under way, visible to the async
 * proxy. *defined: it has been written. false after sim_fault. */
bool tcgen05_read_piece(sim_warp *warp, int lane, const tmem_op *op, const char *name, size_t offset, bool *defined);

/* ---- Products ---- */

enum { TCGEN05_MAX_M = 128, TCGEN05_MAX_N = 256, TCGEN05_MAX_K = 64 };

typedef enum tcgen05_kind {
    TCGEN05_F16,
    TCGEN05_TF32,
    TCGEN05_F8F6F4,
    TCGEN05_I8,
    TCGEN05_MXF8F6F4,
    TCGEN05_MXF4,
    TCGEN05_MXF4NVF4
} tcgen05_kind;

typedef enum tcgen05_accumulator { TCGEN05_D_F16, TCGEN05_D_F32, TCGEN05_D_S32 } tcgen05_accumulator;

typedef struct tcgen05_scale {
    uint32_t column; /* in tensor memory */
    unsigned id;     /* byte of a word that the first scale is in */
} tcgen05_scale;

/* One product, as its instruction, instruction descriptor and operands say. */
typedef struct tcgen05_product {
    tmem_pending base;
    tcgen05_kind kind;
    int m, n, k;
    bool weights; /* .ws */
    int parts;    /* that D's columns are in, one below the other: 2 with .ws and M = 64, 4 with M = 32, else 1 */
    mma_type a, b;
    tcgen05_accumulator d;
    bool negate_a, negate_b;
    bool accumulate, saturate;
    double scale_factor;                /* D is multiplied by it first */
    uint32_t disabled[TMEM_LANES / 32]; /* lanes of D that stay as they are */
    uint32_t d_column, lane_offset;     /* M = 64: lanes 0-15 or 16-31 of every quarter */
    bool a_in_tmem;
    uint32_t a_column;
    tcgen05_layout a_layout, b_layout;
    int scales; /* per row and instruction: 0, 1, 2, 4 */
    bool ue8m0; /* else UE4M3 */
    tcgen05_scale scale_a, scale_b;
    /* Rows of A and B (columns of the product) that shared memory does not define. */
    bool a_undefined[TCGEN05_MAX_M], b_undefined[TCGEN05_MAX_N];
} tcgen05_product;

/* Lane of tensor memory that has row `m` of A and D (its first part). */
static inline uint32_t tcgen05_lane(const tcgen05_product *p, int m) {
    return p->m == TMEM_LANES || p->weights ? (uint32_t)m : (uint32_t)(m / 16 * 32 + m % 16) + p->lane_offset;
}

/* Where column n of D lies: in which column, and how many lanes below the first part (PTX ISA, "Data Path Layout
 * Organization": layouts E and G; as TVM's tmem_datapath_layout says, too). */
static inline uint32_t tcgen05_column(const tcgen05_product *p, int n) {
    return p->d_column + (uint32_t)(n % (p->n / p->parts));
}
static inline uint32_t tcgen05_below(const tcgen05_product *p, int n) {
    return (uint32_t)(n / (p->n / p->parts) * p->m * (p->parts > 1));
}

/* 16 elements of 4 or 6 bits, packed, become bytes: of 4 bits in the middle, as e2m1 has it there, of 6 bits below (PTX
 * ISA, "Optional Decompression" and "Packing format used for matrix A"). */
void tcgen05_unpack(const uint8_t *from, int bits, uint8_t to[16]);
/* Elements in 16 bytes of shared memory. */
int tcgen05_in_piece(mma_type type);
/* Checks the operands in shared memory when the product is issued; fills a_undefined, b_undefined. */
bool tcgen05_check_operands(tcgen05_product *product);
/* Converts the operands, with their scales, signs included: a[k * m + row], b[n * k + column]. false after sim_fault
 * (a data race; copies of the scales that differ). */
bool tcgen05_convert_operands(tcgen05_product *product, double *a, double *b);
/* Executes it. false after sim_fault. */
bool tcgen05_compute(tcgen05_product *product);

/* ---- Executing (see exec_tcgen05.c's table) ---- */

sim_result tcgen05_exec_mma(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result tcgen05_exec_cp(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result tcgen05_exec_shift(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result tcgen05_exec_ld(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
sim_result tcgen05_exec_st(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
bool tcgen05_bind_mma(ptx_instr *instr, char *error, size_t error_size);
bool tcgen05_bind_cp(ptx_instr *instr, char *error, size_t error_size);
bool tcgen05_bind_ld_st(ptx_instr *instr, char *error, size_t error_size);

/* Whether an operation must wait for one that was queued before. */
bool tcgen05_must_wait(const sim_cta *cta, const tmem_pending *op);
/* Releases the registers that loads of the warp own. */
void tcgen05_disown(sim_warp *warp);
/* A collective instruction: all 32 lanes are here. false after sim_fault. */
bool tcgen05_whole_warp(sim_warp *warp, const ptx_instr *instr, uint32_t mask);
/* The operand's value, the same in all lanes. false after sim_fault. */
bool tcgen05_uniform(sim_warp *warp, const ptx_instr *instr, const ptx_operand *operand, uint64_t *value);

#endif
