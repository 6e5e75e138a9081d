/* SPDX-License-Identifier: MIT */
#include "launch/launch.h"

#include "core/error.h"

attns_status attns_launch_logits(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream) {
    switch (use->kernel->plan.family) {
    case ATTNS_FAMILY_SM90:
        return attns_launch_sm90(args, use, stream);
    case ATTNS_FAMILY_SM100:
        return attns_launch_sm100(args, use, stream);
    case ATTNS_FAMILY_PORTABLE:
        return attns_launch_portable(args, use, stream);
    case ATTNS_FAMILY_NONE:
        break;
    }
    return attns_fail(ATTNS_ERROR_INTERNAL, "%s: family %s has no launch", use->kernel->plan.name,
                      attns_family_name(use->kernel->plan.family));
}

void attns_fill_common_arguments(const attns_logits_args *args, attns_common_arguments *arguments) {
    arguments->weights = args->weights.data;
    arguments->weights_stride = attns_tensor_element_stride(&args->weights, 0);
    arguments->block_tables = args->block_tables.data;
    arguments->table_stride = attns_tensor_element_stride(&args->block_tables, 0);
    arguments->seq_lens = args->seq_lens.data;
    arguments->lens_stride_b = attns_tensor_element_stride(&args->seq_lens, 0);
    arguments->lens_stride_t = args->per_slot_lens ? attns_tensor_element_stride(&args->seq_lens, 1) : 0;
    arguments->schedule = args->schedule_meta.data;
    arguments->out = args->out.data;
    arguments->out_stride = attns_tensor_element_stride(&args->out, 0);
    arguments->batch = (int)args->batch;
    arguments->max_tokens = (int)args->max_seq_len;
    arguments->clean_until = (int)args->clean_until;
    arguments->per_slot_lens = args->per_slot_lens;
    arguments->num_shares = (int)args->num_shares;
}

void attns_choose_ctas(const attns_logits_args *args, const attns_kernel *kernel, int many_tiles,
                       attns_common_arguments *arguments) {
    const attns_plan *const plan = &kernel->plan;
    const int64_t tiles = args->batch * ((args->max_seq_len + plan->tile_tokens - 1) / plan->tile_tokens);
    const int64_t per_sm = (tiles + kernel->num_sms - 1) / kernel->num_sms;
    const int ctas = per_sm >= many_tiles ? plan->max_ctas_per_sm : plan->min_ctas_per_sm;
    const int64_t per_cta = (per_sm + ctas - 1) / ctas;
    int64_t useful = per_cta > plan->min_stages ? per_cta : plan->min_stages;
    if (plan->stage_step > 1)
        useful = (useful + plan->stage_step - 1) / plan->stage_step * plan->stage_step;
    const int room = attns_plan_stages(plan, ctas);
    arguments->ctas_per_sm = ctas;
    arguments->ctas_reciprocal = (unsigned)(((UINT64_C(1) << 32) + (unsigned)ctas - 1) / (unsigned)ctas);
    arguments->stages = useful < room ? (int)useful : room;
}

/* A dependent launch finds SMs where CTAs of the launch before have ended. If more of its CTAs fit there than are meant
 * for an SM, they crowd there, and other SMs stay idle: with much work that is up to 15 % on an H200. With little, an
 * early start is worth more. */
static int shared_bytes(const attns_plan *plan, const attns_common_arguments *common, bool pdl) {
    const int bytes = attns_plan_shared_bytes(plan, common->stages);
    if (!pdl || common->ctas_per_sm == plan->min_ctas_per_sm)
        return bytes;
    const int exclusive = attns_plan_exclusive_bytes(plan);
    return bytes > exclusive ? bytes : exclusive;
}

attns_status attns_launch_persistent(const attns_logits_args *args, const attns_kernel_use *use,
                                     const attns_common_arguments *common, void *argument, CUstream stream) {
    const attns_plan *const plan = &use->kernel->plan;
    /* Programmatic dependent launch came with compute capability 9.0. */
    const bool is_pdl = args->enable_pdl && plan->target.compute_capability >= 90;
    CUlaunchAttribute pdl = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    pdl.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {
        .gridDimX = (unsigned)(use->kernel->num_sms * common->ctas_per_sm),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)plan->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)shared_bytes(plan, common, is_pdl),
        .hStream = stream,
        .attrs = &pdl,
        .numAttrs = is_pdl ? 1 : 0,
    };
    void *kernel_params[] = {argument};
    return attns_driver_check(use->driver,
                              use->driver->launch_kernel_ex(&config, use->kernel->function, kernel_params, NULL),
                              "cuLaunchKernelEx");
}
