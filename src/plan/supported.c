/* SPDX-License-Identifier: MIT */
#include "plan/supported.h"

#include <stdio.h>

#include "core/error.h"

/* By attns_shape_field. */
static const attns_shape_rule fp8_rules[ATTNS_NUM_SHAPE_FIELDS] = {
    {"num_heads", 8, 128, 8, "8 to 128 in multiples of 8"},
    {"head_dim", 32, 128, 0, "32, 64 or 128"},
    {"block_size", 16, 256, 0, "16, 32, 64, 128 or 256"},
    {"next_n", 1, ATTNS_MAX_NEXT_N, 1, "1 to 8"},
};
static const attns_shape_rule fp4_rules[ATTNS_NUM_SHAPE_FIELDS] = {
    {"num_heads", 8, 128, 8, "8 to 128 in multiples of 8"},
    {"head_dim", 64, 128, 0, "64 or 128"},
    {"block_size", 16, 256, 0, "16, 32, 64, 128 or 256"},
    {"next_n", 1, ATTNS_MAX_NEXT_N, 1, "1 to 8"},
};

const attns_shape_rule *attns_shape_rule_of(attns_kernel_kind kind, attns_shape_field field) {
    return kind == ATTNS_KERNEL_FP4_LOGITS ? &fp4_rules[field] : &fp8_rules[field];
}

static attns_status check_shape(attns_kernel_kind kind, attns_shape_field field, int32_t value) {
    const attns_shape_rule *const rule = attns_shape_rule_of(kind, field);
    if (attns_shape_accepts(rule, value))
        return ATTNS_OK;
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is %d, accepted: %s", rule->name, value, rule->accepted);
}

static attns_status check_dtype(const char *name, int32_t dtype, bool bf16) {
    if (dtype == ATTNS_DTYPE_F32 || dtype == ATTNS_DTYPE_F16 || (bf16 && dtype == ATTNS_DTYPE_BF16))
        return ATTNS_OK;
    char given[16];
    if (dtype >= ATTNS_DTYPE_DEFAULT && dtype <= ATTNS_DTYPE_BF16)
        snprintf(given, sizeof given, "%s", attns_dtype_name((attns_dtype)dtype));
    else
        snprintf(given, sizeof given, "%d", dtype);
    return attns_fail(ATTNS_ERROR_UNSUPPORTED, "%s: is %s, accepted: %s", name, given,
                      bf16 ? "f32, f16, bf16" : "f32, f16");
}

/* Accumulation is float32 for MXFP4, nothing to choose. */
static attns_status check_fp4_options(const attns_problem *p) {
    if (p->acc_dtype != ATTNS_DTYPE_DEFAULT || p->epi_dtype != ATTNS_DTYPE_DEFAULT)
        return attns_fail(ATTNS_ERROR_UNSUPPORTED, "acc_dtype, epi_dtype: are %d and %d, accepted: default",
                          p->acc_dtype, p->epi_dtype);
    if (p->kv_sf_interleaved && (p->kv_sf_interleaved != 1 || p->block_size != 128))
        return attns_fail(ATTNS_ERROR_UNSUPPORTED,
                          "is_kv_sf_interleaved: is %d with block_size %d, accepted: 0, or 1 with block_size 128",
                          p->kv_sf_interleaved, p->block_size);
    return ATTNS_OK;
}

attns_status attns_problem_check(const attns_problem *p) {
    const attns_kernel_kind kind = (attns_kernel_kind)p->kind;
    const int32_t values[ATTNS_NUM_SHAPE_FIELDS] = {p->num_heads, p->head_dim, p->block_size, p->next_n};
    for (int field = 0; field < ATTNS_NUM_SHAPE_FIELDS; field++) {
        const attns_status status = check_shape(kind, (attns_shape_field)field, values[field]);
        if (status != ATTNS_OK)
            return status;
    }
    if (p->much_work != 0 && p->much_work != 1)
        return attns_fail(ATTNS_ERROR_UNSUPPORTED, "much_work: is %d, accepted: 0, 1", p->much_work);
    attns_status status = check_dtype("out_dtype", p->out_dtype, true);
    if (status != ATTNS_OK || kind == ATTNS_KERNEL_FP4_LOGITS)
        return status != ATTNS_OK ? status : check_fp4_options(p);
    status = check_dtype("acc_dtype", p->acc_dtype, false);
    if (status == ATTNS_OK)
        status = check_dtype("epi_dtype", p->epi_dtype, false);
    if (status == ATTNS_OK && p->kv_sf_interleaved)
        status = attns_fail(ATTNS_ERROR_UNSUPPORTED,
                            "is_kv_sf_interleaved: is %d, accepted: 0, as fp8 has one scale "
                            "for each token",
                            p->kv_sf_interleaved);
    return status;
}
