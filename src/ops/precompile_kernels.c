/* SPDX-License-Identifier: MIT
 *
 * Which kernels a precompile call asks for: the product of its lists of values, or those that it names. */
#include <stdlib.h>
#include <string.h>

#include "ops/precompile.h"

#define MAX_KERNELS 100000 /* per target; more is a mistake in the lists */

/* ---- Lists of values ---- */

/* The lists with their defaults filled in. */
typedef struct value_lists {
    const attns_variant *variants;
    const int *num_heads, *head_dims, *block_sizes, *next_ns;
    const attns_dtype *out_dtypes, *acc_dtypes, *epi_dtypes;
    const bool *kv_sf_interleaved;
    size_t num_variants, num_num_heads, num_head_dims, num_block_sizes, num_next_ns;
    size_t num_out_dtypes, num_acc_dtypes, num_epi_dtypes, num_kv_sf_interleaved;
} value_lists;

/* A NULL list is its default, a list without values is a mistake. */
#define READ_LIST(name, count, default_values)                                                                         \
    do {                                                                                                               \
        if (!params->name && params->count)                                                                            \
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, #name ": NULL, but " #count " is %zu", params->count);     \
        if (params->name && !params->count)                                                                            \
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, #name ": empty, accepted: NULL or at least one value");    \
        lists->name = params->name ? params->name : (default_values);                                                  \
        lists->count = params->name ? params->count : sizeof(default_values) / sizeof((default_values)[0]);            \
    } while (0)

static bool is_logits(attns_variant variant) {
    return variant == ATTNS_VARIANT_FP8 || variant == ATTNS_VARIANT_FP4;
}

static bool is_indexer(attns_variant variant) {
    return variant == ATTNS_VARIANT_INDEXER_BF16 || variant == ATTNS_VARIANT_INDEXER_NVFP4;
}

static attns_status read_lists(const attns_precompile_params *params, value_lists *lists) {
    static const attns_variant variants[] = {ATTNS_VARIANT_FP8};
    static const int num_heads[] = {64}, head_dims[] = {128}, block_sizes[] = {64}, next_ns[] = {1, 2, 3, 4};
    static const attns_dtype dtypes[] = {ATTNS_DTYPE_DEFAULT};
    static const bool plain[] = {false};
    READ_LIST(variants, num_variants, variants);
    READ_LIST(num_heads, num_num_heads, num_heads);
    READ_LIST(head_dims, num_head_dims, head_dims);
    READ_LIST(block_sizes, num_block_sizes, block_sizes);
    READ_LIST(next_ns, num_next_ns, next_ns);
    READ_LIST(out_dtypes, num_out_dtypes, dtypes);
    READ_LIST(acc_dtypes, num_acc_dtypes, dtypes);
    READ_LIST(epi_dtypes, num_epi_dtypes, dtypes);
    READ_LIST(kv_sf_interleaved, num_kv_sf_interleaved, plain);
    for (size_t i = 0; i < lists->num_variants; i++)
        if (!is_logits(lists->variants[i]) && !is_indexer(lists->variants[i]))
            return attns_fail(ATTNS_ERROR_UNSUPPORTED, "variants: %d, accepted: %d (fp8), %d (fp4), %d or %d (indexer)",
                              (int)lists->variants[i], (int)ATTNS_VARIANT_FP8, (int)ATTNS_VARIANT_FP4,
                              (int)ATTNS_VARIANT_INDEXER_BF16, (int)ATTNS_VARIANT_INDEXER_NVFP4);
    return ATTNS_OK;
}

static attns_dtype or_else(attns_dtype dtype, attns_dtype by_default) {
    return dtype == ATTNS_DTYPE_DEFAULT ? by_default : dtype;
}

/* Indices into the lists. */
enum { VARIANT, NUM_HEADS, HEAD_DIM, BLOCK_SIZE, NEXT_N, OUT_DTYPE, ACC_DTYPE, EPI_DTYPE, INTERLEAVED, NUM_LISTS };

/* Options that a variant or block size does not have are left at their defaults. */
static attns_problem problem_at(const value_lists *lists, const size_t index[NUM_LISTS]) {
    const bool fp4 = lists->variants[index[VARIANT]] == ATTNS_VARIANT_FP4;
    attns_problem problem = {
        .kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
        .num_heads = lists->num_heads[index[NUM_HEADS]],
        .head_dim = lists->head_dims[index[HEAD_DIM]],
        .block_size = lists->block_sizes[index[BLOCK_SIZE]],
        .next_n = lists->next_ns[index[NEXT_N]],
        .out_dtype = (int32_t)or_else(lists->out_dtypes[index[OUT_DTYPE]], fp4 ? ATTNS_DTYPE_BF16 : ATTNS_DTYPE_F32),
    };
    if (fp4) {
        problem.kv_sf_interleaved = problem.block_size == 128 && lists->kv_sf_interleaved[index[INTERLEAVED]];
    } else {
        problem.acc_dtype = (int32_t)or_else(lists->acc_dtypes[index[ACC_DTYPE]], ATTNS_DTYPE_F32);
        problem.epi_dtype = (int32_t)or_else(lists->epi_dtypes[index[EPI_DTYPE]], ATTNS_DTYPE_F32);
    }
    return problem;
}

/* As list values may repeat, and as some combinations mean the same. */
static int compare_problems(const void *a, const void *b) {
    return memcmp(a, b, sizeof(attns_problem));
}

static size_t drop_repeated(attns_problem *problems, size_t count) {
    qsort(problems, count, sizeof *problems, compare_problems);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || memcmp(&problems[i], &problems[kept - 1], sizeof *problems) != 0)
            problems[kept++] = problems[i];
    return kept;
}

static attns_status make_logits(const value_lists *lists, attns_precompile_kernels *kernels) {
    const size_t counts[NUM_LISTS] = {lists->num_variants,    lists->num_num_heads,  lists->num_head_dims,
                                      lists->num_block_sizes, lists->num_next_ns,    lists->num_out_dtypes,
                                      lists->num_acc_dtypes,  lists->num_epi_dtypes, lists->num_kv_sf_interleaved};
    size_t index[NUM_LISTS] = {0}, product = 1, count = 0;
    for (size_t i = 0; i < NUM_LISTS; i++) {
        if (counts[i] > MAX_KERNELS / product)
            return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "the product of the lists is more than %d kernels",
                              MAX_KERNELS);
        product *= counts[i];
    }
    kernels->logits = malloc(product * sizeof *kernels->logits);
    if (!kernels->logits)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu kernels", product);
    for (size_t i = 0; i < product; i++) {
        if (is_logits(lists->variants[index[VARIANT]]))
            kernels->logits[count++] = problem_at(lists, index);
        /* Count up like an odometer, the first list fastest. */
        for (size_t digit = 0; digit < NUM_LISTS && ++index[digit] == counts[digit]; digit++)
            index[digit] = 0;
    }
    kernels->num_logits = drop_repeated(kernels->logits, count);
    return ATTNS_OK;
}

static attns_status from_lists(const attns_precompile_params *params, attns_precompile_kernels *kernels) {
    value_lists lists = {0};
    attns_status status = read_lists(params, &lists);
    if (status != ATTNS_OK)
        return status;
    for (size_t i = 0; i < lists.num_variants; i++) {
        kernels->indexer_bf16 |= lists.variants[i] == ATTNS_VARIANT_INDEXER_BF16;
        kernels->indexer_nvfp4 |= lists.variants[i] == ATTNS_VARIANT_INDEXER_NVFP4;
    }
    return make_logits(&lists, kernels);
}

/* ---- Kernels by name ---- */

static attns_status refuse_lists(const attns_precompile_params *params) {
    if (params->variants || params->num_heads || params->head_dims || params->block_sizes || params->next_ns ||
        params->out_dtypes || params->acc_dtypes || params->epi_dtypes || params->kv_sf_interleaved)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "kernels: given together with lists of values; give either");
    return ATTNS_OK;
}

static attns_status read_reference(const attns_context *ctx, const char *text, attns_kernel_reference *reference) {
    const char *end = text ? text : "";
    const attns_kernel_found found =
        text ? attns_kernel_reference_parse(text, reference, &end) : ATTNS_KERNEL_NOT_FOUND;
    if (found != ATTNS_KERNEL_FOUND || *end)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "kernels: '%s' names no kernel (from '%s' on), accepted: names as in messages and records, "
                          "such as 'paged_mqa_logits_schedule for sm_90a'",
                          text ? text : "(NULL)", end);
    if (reference->ptx && !ctx->load_ptx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT,
                          "kernels: '%s' is PTX, which only a context with load_ptx (ATTNS_LOAD_PTX=1) can make", text);
    return ATTNS_OK;
}

static attns_status from_names(const attns_context *ctx, const attns_precompile_params *params,
                               attns_precompile_kernels *kernels) {
    attns_status status = refuse_lists(params);
    if (status != ATTNS_OK)
        return status;
    kernels->named = calloc(params->num_kernels, sizeof *kernels->named);
    if (!kernels->named)
        return attns_fail(ATTNS_ERROR_OUT_OF_MEMORY, "out of memory for a list of %zu kernels", params->num_kernels);
    while (kernels->num_named < params->num_kernels && status == ATTNS_OK) {
        status = read_reference(ctx, params->kernels[kernels->num_named], &kernels->named[kernels->num_named]);
        kernels->num_named++;
    }
    return status;
}

attns_status attns_precompile_kernels_read(const attns_context *ctx, const attns_precompile_params *params,
                                           attns_precompile_kernels *kernels) {
    *kernels = (attns_precompile_kernels){0};
    return params->kernels ? from_names(ctx, params, kernels) : from_lists(params, kernels);
}

void attns_precompile_kernels_free(attns_precompile_kernels *kernels) {
    free(kernels->logits);
    free(kernels->named);
}
