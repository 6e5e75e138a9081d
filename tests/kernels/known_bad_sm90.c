/* SPDX-License-Identifier: MIT
 * Faults of the FP8 kernel for Hopper. */
#include "known_bad.h"

#define KERNEL "fp8_paged_mqa_logits_sm90.cu"
#define HEAD   "lib/head_sum.cuh"

static const struct mutation mutations[] = {
    {.fault = "causal bound of the newest slot for every slot",
     .edits = {{KERNEL, "max(length - (NEXT_N - 1) + slot, 0)", "length"}}},
    {.fault = "causal bound one token short",
     .edits = {{KERNEL, "length - (NEXT_N - 1) + slot", "length - NEXT_N + slot"}}},
    {.fault = "scale missing", .edits = {{KERNEL, "sum * scale)", "sum)"}}},
    {.fault = "one scale for the whole block", .edits = {{KERNEL, " + r % BOX_TOKENS]", "]"}}},
    {.fault = "ReLU dropped", .edits = {{HEAD, "max.NaN.f32 %0, %1, 0f00000000;", "mov.f32 %0, %1;"}}},
    {.fault = "ReLU after the head sum",
     .edits = {{HEAD, "max.NaN.f32 %0, %1, 0f00000000;", "mov.f32 %0, %1;"},
               {KERNEL, "sum * scale)", "max(sum, 0.f) * scale)"}}},
    {.fault = "last token of a tile never written",
     .edits = {{KERNEL, "token < limits[slot + s]", "token < limits[slot + s] && token % 64 != 63"}}},
    {.fault = "one token past the limit written",
     .edits = {{KERNEL, "token < limits[slot + s]", "token <= limits[slot + s]"}}},
    {.fault = "weights of the neighbouring heads",
     .edits = {{HEAD, "weights.get(slot, j)", "weights.get(slot, j ^ 1)"}}},
    {.fault = "first slot's weights for every slot",
     .edits = {{HEAD, "slot * PAIRS + j", "j"},
               {KERNEL, "layout.weights(q.stage)) + first_slot * NUM_HEADS", "layout.weights(q.stage))"}}},
    {.fault = "block table of the first request",
     .edits = {{KERNEL, "request * args.table_stride", "0 * args.table_stride"}}},
    {.fault = "neighbouring column of the block table",
     .edits = {{KERNEL, "row[start / BLOCK_SIZE]", "row[max(start / BLOCK_SIZE - 1, 0)]"}}},
    {.fault = "last 32 dims ignored", .edits = {{KERNEL, "step < HEAD_DIM / 32;", "step < HEAD_DIM / 32 - 1;"}}},
    {.fault = "K of another ring stage",
     .edits = {{KERNEL, "wgmma_descriptor<HEAD_DIM>(layout.k(kv.stage))",
                "wgmma_descriptor<HEAD_DIM>(layout.k((kv.stage + 1) % args.stages))"}}},
    {.fault = "swizzle of another row width",
     .edits = {{"lib/wgmma.cuh", "ROW_BYTES == 128 ? 1", "ROW_BYTES == 128 ? 2"}}},
    {.fault = "weights of another request",
     .edits = {{KERNEL, "args.weights + (static_cast<i64>(", "args.weights + (0 * static_cast<i64>("}}},
    {.fault = "cleaned one column short",
     .edits = {{KERNEL, "min(args.clean_until - begin, PIECE)", "min(args.clean_until - 1 - begin, PIECE)"}}},
    {.fault = "cleaned from one column early",
     .edits = {{KERNEL, "max(begin, limit) + thread", "max(begin, limit - 1) + thread"}}},
    {.fault = "no wait for the previous kernel",
     .edits = {{"lib/base.cuh", "griddepcontrol.wait;", ""}},
     .dependent_launch = true},
};

static const struct logits_case trials[] = {
    {.batch = 9, .next_n = 2, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 900, .out_pad = 3},
    {.batch = 40,
     .next_n = 2,
     .heads = 64,
     .head_dim = 128,
     .block_size = 64,
     .max_len = 300,
     .clean = true,
     .max_seq_len = 400},
    {.batch = 9,
     .next_n = 3,
     .heads = 32,
     .head_dim = 64,
     .block_size = 16,
     .min_len = 64,
     .max_len = 700,
     .clean = true},
};

const struct known_bad known_bad_sm90 = {mutations, sizeof mutations / sizeof *mutations, trials,
                                         sizeof trials / sizeof *trials};
