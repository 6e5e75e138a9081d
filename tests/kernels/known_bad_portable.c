/* SPDX-License-Identifier: MIT
 * Faults of the portable kernel for FP8, and of the frame that it has in common with the one for MXFP4. One shows with
 * several stages only, which a chip with little shared memory does not have. */
#include "known_bad.h"

#define HEAD      "lib/head_sum.cuh"
#define FRAME     "lib/portable.cuh"
#define ARGUMENTS "lib/arguments.cuh"
#define WALK      "lib/walk.cuh"
#define PORTABLE  "fp8_paged_mqa_logits_portable.cu"

static const struct mutation mutations[] = {
    {.fault = "causal bound of the newest slot for every slot",
     .edits = {{ARGUMENTS, "max(length - (NEXT_N - 1) + slot, 0)", "length"}}},
    {.fault = "scale missing", .edits = {{PORTABLE, "slot * NUM_HEADS) * scale", "slot * NUM_HEADS)"}}},
    {.fault = "scale of another token of the unit", .edits = {{PORTABLE, "own_token() * 4", "(own_token() ^ 8) * 4"}}},
    {.fault = "ReLU dropped", .edits = {{HEAD, "max.NaN.f32 %0, %1, 0f00000000;", "mov.f32 %0, %1;"}}},
    {.fault = "one token past the limit written", .edits = {{FRAME, "token < limits[slot]", "token <= limits[slot]"}}},
    {.fault = "last token of a unit never written",
     .edits = {{FRAME, "token < limits[slot]", "token < limits[slot] && token % 32 != 31"}}},
    {.fault = "first slot's weights for every slot",
     .edits = {{PORTABLE, "shared_at<float>(WEIGHTS_AT) + slot * NUM_HEADS", "shared_at<float>(WEIGHTS_AT)"}}},
    {.fault = "first slot's queries for every slot",
     .edits = {{FRAME, "slot % CHUNK_SLOTS * QUERY_SLOT_BYTES", "0 * QUERY_SLOT_BYTES"}}},
    {.fault = "weights of another request",
     .edits = {{FRAME, "weights[(static_cast<i64>(request)", "weights[(0 * static_cast<i64>(request)"}}},
    {.fault = "block table of the first request",
     .edits = {{FRAME, "segment.request * args.common.table_stride", "0 * args.common.table_stride"}}},
    {.fault = "the other piece of 16 values",
     .edits = {{PORTABLE, "2 * pair + lane_id() / 16", "2 * pair + 1 - lane_id() / 16"}}},
    {.fault = "last 32 dims ignored",
     .edits = {{PORTABLE, "pair < PIECES / 2; pair++) {\n                const auto",
                "pair < PIECES / 2 - 1; pair++) {\n                const auto"}}},
    {.fault = "swizzle on one side only",
     .edits = {{FRAME, "swizzled<ROW_BYTES>(row, lane_id() % LANES_IN_ROW)",
                "static_cast<u32>(row * ROW_BYTES + lane_id() % LANES_IN_ROW * 16)"}}},
    {.fault = "a stage read before its copies are there",
     .edits = {{FRAME, "copy_async_wait<STAGES>(filled - 1)", "copy_async_wait<STAGES>(STAGES)"}}},
    {.fault = "first tile of a share left out",
     .edits = {{WALK, "from = clamp(begin - exclusive", "from = clamp(begin + 1 - exclusive"}}},
    {.fault = "cleaned one column short",
     .edits = {{ARGUMENTS, "min(args.clean_until - begin, PIECE)", "min(args.clean_until - 1 - begin, PIECE)"}}},
    {.fault = "cleaned from one column early",
     .edits = {{ARGUMENTS, "max(begin, limit) + ", "max(begin, limit - 1) + "}}},
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
    /* Every CTA goes round its ring of stages, and the schedule is a kernel's. */
    {.batch = 40, .next_n = 1, .heads = 64, .head_dim = 128, .block_size = 64, .max_len = 1200, .num_shares = 8},
};

const struct known_bad known_bad_portable = {
    .mutations = mutations,
    .num_mutations = sizeof mutations / sizeof *mutations,
    .trials = trials,
    .num_trials = sizeof trials / sizeof *trials,
};
