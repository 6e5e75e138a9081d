/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "core/error.h"
#include "ops/logits_args.h"

#define VALUES_PER_SCALE 32

static const attns_dtype_set q_dtypes = {"uint8 (two float4_e2m1fn in a byte) or float4_e2m1fn of 2 lanes",
                                         {{kDLUInt, 8, 1}, {ATTNS_DL_FLOAT4_E2M1FN, 4, 2}},
                                         2};
static const attns_dtype_set kv_dtypes = {
    "uint8 (float4_e2m1fn values, then float8_e8m0fnu scales)", {{kDLUInt, 8, 1}}, 1};

static attns_status check_options(const attns_fp4_paged_mqa_logits_params *params, const attns_logits_args *args) {
    if (params->sf_vec_size != 0 && params->sf_vec_size != VALUES_PER_SCALE)
        return attns_fail(params->sf_vec_size < 0 ? ATTNS_ERROR_INVALID_ARGUMENT : ATTNS_ERROR_UNSUPPORTED,
                          "sf_vec_size: is %" PRId64 ", accepted: 0 (default, 32) or 32", params->sf_vec_size);
    if (params->is_kv_sf_interleaved && args->problem.block_size != 128)
        return attns_fail(ATTNS_ERROR_UNSUPPORTED,
                          "is_kv_sf_interleaved: is true with block_size %d, accepted: false, or true with block_size "
                          "128",
                          args->problem.block_size);
    return ATTNS_OK;
}

attns_status attns_fp4_args_read(const attns_fp4_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_logits_args *args) {
    if (!params)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "params: is NULL, accepted: a params struct");
    const attns_logits_inputs inputs = {
        .kind = ATTNS_KERNEL_FP4_LOGITS,
        .q = params->q,
        .q_sf = params->q_sf,
        .kv_fused = params->kv_fused,
        .weights = params->weights,
        .block_tables = params->block_tables,
        .seq_lens = params->seq_lens,
        .schedule_meta = params->schedule_meta,
        .out = params->out,
        .max_seq_len = params->max_seq_len,
        .clean_logits = params->clean_logits,
        .enable_pdl = params->enable_pdl,
        .q_dtypes = &q_dtypes,
        .kv_dtypes = &kv_dtypes,
        .values_per_byte = 2,
        .values_per_scale = VALUES_PER_SCALE,
        .scale_bytes = 1,
        .kv_dim_text = "D/2 + D/32 with D/2 of q",
    };
    ATTNS_TRY(attns_logits_args_read(&inputs, device_type, args));
    ATTNS_TRY(check_options(params, args));
    args->problem.kv_sf_interleaved = params->is_kv_sf_interleaved;
    return ATTNS_OK;
}
