/* SPDX-License-Identifier: MIT
 * Faults of what the FP8 and the MXFP4 kernel for Hopper have in common: both include the same files for it.
 *
 * Planted into both kernels are those faults of which the kernel's own code, its loader or its math warps, decides
 * whether they do harm: how it waits, releases stages and takes turns. All others change what the shared code hands to
 * either kernel alike (limits, blocks, cleaned columns, what memory is visible), or lines that both run in the same
 * way, and what finds them, the harness or the software GPU, does not look at the variant: once is enough, with the FP8
 * kernel, whose compiles and runs take half as long. */
#include "known_bad.h"

#define ARGUMENTS "lib/arguments.cuh"
#define MBARRIER  "lib/mbarrier.cuh"
#define PRODUCER  "lib/producer.cuh"
#define ROLES     "lib/roles_sm90.cuh"

#define ONCE .variant = ATTNS_VARIANT_FP8

static const struct mutation mutations[] = {
    {.fault = "causal bound of the newest slot for every slot",
     .edits = {{ARGUMENTS, "max(length - (NEXT_N - 1) + slot, 0)", "length"}},
     ONCE},
    {.fault = "causal bound one token short",
     .edits = {{ARGUMENTS, "length - (NEXT_N - 1) + slot", "length - NEXT_N + slot"}},
     ONCE},
    {.fault = "cleaned one column short",
     .edits = {{ARGUMENTS, "min(args.clean_until - begin, PIECE)", "min(args.clean_until - 1 - begin, PIECE)"}},
     ONCE},
    {.fault = "cleaned from one column early",
     .edits = {{ARGUMENTS, "max(begin, limit) + thread", "max(begin, limit - 1) + thread"}},
     ONCE},
    {.fault = "last tile left out where it is not full",
     .edits = {{"lib/schedule.cuh", "static_cast<u32>(tokens) + (TILE_TOKENS - 1)", "static_cast<u32>(tokens)"}},
     ONCE},
    {.fault = "block table of the first request",
     .edits = {{PRODUCER, "request * args.table_stride", "0 * args.table_stride"}},
     ONCE},
    {.fault = "neighbouring column of the block table",
     .edits = {{PRODUCER, "row[start / BLOCK_SIZE]", "row[max(start / BLOCK_SIZE - 1, 0)]"}},
     ONCE},
    {.fault = "coordinates of a copy in the wrong order",
     .edits = {{"lib/tma.cuh", "[%0], [%1, {%3, %4, %5}]", "[%0], [%1, {%3, %5, %4}]"}},
     ONCE},
    {.fault = "swizzle of another row width",
     .edits = {{"lib/wgmma.cuh", "ROW_BYTES == 128 ? 1", "ROW_BYTES == 128 ? 2"}},
     ONCE},
    {.fault = "no wait for the previous kernel",
     .edits = {{"lib/base.cuh", "griddepcontrol.wait;", ""}},
     ONCE,
     .dependent_launch = true},

    {.fault = "mbarriers not made visible to copies",
     .edits = {{ROLES, "    mbarrier_init_fence();\n", ""}},
     ONCE,
     .hazard = true},
    {.fault = "the same phase in every lap of a ring",
     .edits = {{MBARRIER, "            parity ^= 1;\n", ""}},
     ONCE,
     .hazard = true},
    {.fault = "scores stored whatever the condition is",
     .edits = {{"lib/output.cuh", "@p st.global.f32", "st.global.f32"}},
     ONCE,
     .hazard = true},
    {.fault = "sums of the schedule read without a CTA barrier",
     .edits = {{"schedule.cu", "    __syncthreads();\n", ""}},
     ONCE,
     .hazard = true},

    /* With both. */
    {.fault = "no CTA barrier after the mbarriers are initialised",
     .edits = {{ROLES, "    __syncthreads();\n\n    if (warp >= MATH_WARPS)", "    if (warp >= MATH_WARPS)"}},
     .hazard = true},
    {.fault = "one warp's arrival frees a stage",
     .edits = {{ROLES, "mbarrier_init(layout.empty(i), static_cast<u32>(warps_of_a_stage))",
                "mbarrier_init(layout.empty(i), 1)"}},
     .hazard = true},
    {.fault = "relaxed arrivals",
     .edits = {{MBARRIER, "mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.relaxed.cta.shared::cta.b64"}},
     .hazard = true},
    {.fault = "the producer's lanes do not take turns",
     .edits = {{PRODUCER, "                __syncwarp();\n                loader.tile_loaded();",
                "                loader.tile_loaded();"},
               {PRODUCER, "                __syncwarp();\n                if (static_cast<u32>(turn - until_mine)",
                "                if (static_cast<u32>(turn - until_mine)"}},
     .hazard = true},
    {.fault = "producers forget their turn",
     .edits = {{PRODUCER, "until_mine - count + 32 * PRODUCERS", "until_mine + 32 * PRODUCERS"}},
     .hazard = true},
    {.fault = "tiles past a share's last one announced",
     .edits = {{PRODUCER, "min(inclusive, stop)", "inclusive"}},
     .hazard = true},
};

const struct known_bad known_bad_hopper = {.mutations = mutations,
                                           .num_mutations = sizeof mutations / sizeof *mutations};
