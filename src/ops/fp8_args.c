/* SPDX-License-Identifier: MIT */
#include "core/error.h"
#include "ops/logits_args.h"

static const attns_dtype_set q_dtypes = {
    "float8_e4m3fn, or uint8 that holds its bytes (float8_e5m2 is as wide, but its bits mean other values)",
    {{ATTNS_DL_FLOAT8_E4M3FN, 8, 1}, {kDLUInt, 8, 1}},
    2};
static const attns_dtype_set kv_dtypes = {"uint8 (float8_e4m3fn values, then float32 scales)", {{kDLUInt, 8, 1}}, 1};

static attns_status resolve_compute_dtype(const char *name, attns_dtype dtype, int32_t *resolved) {
    switch ((int)dtype) {
    case ATTNS_DTYPE_DEFAULT:
    case ATTNS_DTYPE_F32:
        *resolved = ATTNS_DTYPE_F32;
        return ATTNS_OK;
    case ATTNS_DTYPE_F16:
        *resolved = ATTNS_DTYPE_F16;
        return ATTNS_OK;
    case ATTNS_DTYPE_BF16:
        return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is bf16, accepted: default (f32), f32 or f16", name);
    default:
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "%s: is %d, accepted: 0 (default, f32), 1 (f32) or 2 (f16)",
                          name, (int)dtype);
    }
}

attns_status attns_fp8_args_read(const attns_fp8_paged_mqa_logits_params *params, DLDeviceType device_type,
                                 attns_logits_args *args) {
    if (!params)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "params: is NULL, accepted: a params struct");
    const attns_logits_inputs inputs = {
        .kind = ATTNS_KERNEL_FP8_LOGITS,
        .q = params->q,
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
        .values_per_byte = 1,
        .scale_bytes = 4,
        .kv_dim_text = "D+4 with D of q",
    };
    ATTNS_TRY(attns_logits_args_read(&inputs, device_type, args));
    ATTNS_TRY(resolve_compute_dtype("acc_dtype", params->acc_dtype, &args->problem.acc_dtype));
    return resolve_compute_dtype("epi_dtype", params->epi_dtype, &args->problem.epi_dtype);
}
