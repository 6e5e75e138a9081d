/* SPDX-License-Identifier: MIT
 *
 * The kernel of indexer_scores: no tensor maps, a grid that fills the device. */
#include "launch/launch.h"

enum {
    /* From here on the lengths of all groups take longer to read than small CTAs save by starting sooner: each CTA
     * reads them all, and a large one has more warps to do it. */
    MANY_GROUPS = 1024,
};

/* The kernel's argument: as `struct Arguments` in templates/indexer_scores.cu. Strides in bytes, but those of int and
 * float arrays in elements. */
typedef struct indexer_kernel_arguments {
    const void *query;
    long long query_stride;
    const void *query_scales;
    long long query_scales_stride;
    const void *keys;
    long long page_stride;
    const void *key_scales;
    long long scale_page_stride;
    const void *block_table;
    long long table_stride;
    const void *lengths;
    long long lengths_stride;
    const void *requests;
    long long requests_stride;
    void *scores;
    long long scores_stride;
    int groups;
    int rows;
    int num_requests;
    int num_pages;
    int max_context;
} indexer_kernel_arguments;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void fill_arguments(const attns_indexer_args *args, indexer_kernel_arguments *arguments) {
    *arguments = (indexer_kernel_arguments){
        .query = args->query.data,
        .query_stride = args->query.stride[0],
        .query_scales = args->query_scales.data,
        .query_scales_stride = args->nvfp4 ? args->query_scales.stride[0] : 0,
        .keys = args->key_cache.data,
        .page_stride = args->key_cache.stride[0],
        .key_scales = args->key_scales.data,
        .scale_page_stride = args->nvfp4 ? args->key_scales.stride[0] : 0,
        .block_table = args->block_table.data,
        .table_stride = attns_tensor_element_stride(&args->block_table, 0),
        .lengths = args->context_lengths.data,
        .lengths_stride = attns_tensor_element_stride(&args->context_lengths, 0),
        .requests = args->requests.data,
        .requests_stride = attns_tensor_element_stride(&args->requests, 0),
        .scores = args->scores.data,
        .scores_stride = attns_tensor_element_stride(&args->scores, 0),
        .groups = (int)args->groups,
        .rows = (int)args->rows_per_group,
        .num_requests = (int)args->num_requests,
        .num_pages = (int)args->num_pages,
        .max_context = (int)args->max_context,
    };
}

attns_status attns_launch_indexer(const attns_indexer_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_kernel *const kernel = use->kernel;
    const attns_plan *const plan = &kernel->plan;
    const bool many_groups = args->groups >= MANY_GROUPS;
    /* The plan's stages are warps. */
    const int warps = many_groups ? plan->max_stages : plan->min_stages;
    const int ctas_per_sm = many_groups ? plan->min_ctas_per_sm : plan->max_ctas_per_sm;
    const int64_t units = args->groups * ((args->max_context + plan->tile_tokens - 1) / plan->tile_tokens);
    const int64_t useful = (units + warps - 1) / warps; /* CTAs that have work if all groups are of full length */

    indexer_kernel_arguments arguments;
    fill_arguments(args, &arguments);
    CUlaunchAttribute pdl = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    pdl.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {
        .gridDimX = (unsigned)min64((int64_t)kernel->num_sms * ctas_per_sm, useful),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)(32 * warps),
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)attns_plan_shared_bytes(plan, warps),
        .hStream = stream,
        .attrs = &pdl,
        /* Programmatic dependent launch came with compute capability 9.0. */
        .numAttrs = args->enable_pdl && plan->target.compute_capability >= 90 ? 1 : 0,
    };
    void *kernel_params[] = {&arguments};
    return attns_driver_check(
        use->driver, use->driver->launch_kernel_ex(&config, kernel->function, kernel_params, NULL), "cuLaunchKernelEx");
}
