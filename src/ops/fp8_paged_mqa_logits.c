/* SPDX-License-Identifier: MIT */
#include "core/error.h"
#include "jit/kernel_store.h"
#include "ops/fp8_args.h"

enum { TILE_TOKENS = 64 };

/* The kernel's argument: as `struct Arguments` in templates/fp8_paged_mqa_logits_sm90.cu. Strides in elements. */
typedef struct fp8_kernel_arguments {
    CUtensorMap q;
    CUtensorMap k;
    CUtensorMap scales;
    const void *weights;
    long long weights_stride;
    const void *block_tables;
    long long table_stride;
    const void *seq_lens;
    long long lens_stride_b, lens_stride_t;
    const void *schedule;
    void *out;
    long long out_stride;
    int batch;
    int max_tokens;
    int clean_until;
    int per_slot_lens;
    int num_shares;
    int stages;
    int ctas_per_sm;
    unsigned ctas_reciprocal;
} fp8_kernel_arguments;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static CUtensorMapSwizzle swizzle_of(int head_dim) {
    return head_dim == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : head_dim == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                            : CU_TENSOR_MAP_SWIZZLE_32B;
}

/* Byte tensors by boxes of whole rows of D bytes; `sizes` and `box` innermost first, `strides` in bytes without the
 * innermost. */
static attns_status encode_bytes(const attns_driver *driver, CUtensorMap *map, int head_dim, int rank, void *data,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box) {
    static const cuuint32_t ones[4] = {1, 1, 1, 1};
    return attns_driver_check(
        driver,
        driver->tensor_map_encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, (cuuint32_t)rank, data, sizes, strides, box,
                                        ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(head_dim),
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
}

/* [B, next_n, H, D]: one box is the heads of one query slot. */
static attns_status encode_q(const attns_driver *driver, const attns_fp8_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[4] = {(cuuint64_t)p->head_dim, (cuuint64_t)p->num_heads, (cuuint64_t)p->next_n,
                                 (cuuint64_t)args->batch};
    const cuuint64_t strides[3] = {(cuuint64_t)args->q.stride[2], (cuuint64_t)args->q.stride[1],
                                   (cuuint64_t)args->q.stride[0]};
    const cuuint32_t box[4] = {(cuuint32_t)p->head_dim, (cuuint32_t)p->num_heads, 1, 1};
    return encode_bytes(driver, map, p->head_dim, 4, args->q.data, sizes, strides, box);
}

/* The values of the pool as [num_blocks, block_size, D]: one box is the part of a block that a tile takes. */
static attns_status encode_k(const attns_driver *driver, const attns_fp8_args *args, CUtensorMap *map) {
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[3] = {(cuuint64_t)p->head_dim, (cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[2] = {(cuuint64_t)p->head_dim, (cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[3] = {(cuuint32_t)p->head_dim, (cuuint32_t)min64(p->block_size, TILE_TOKENS), 1};
    return encode_bytes(driver, map, p->head_dim, 3, args->kv.data, sizes, strides, box);
}

/* The scales of the pool as [num_blocks, block_size]. Out-of-range blocks read as zeros here too. */
static attns_status encode_scales(const attns_driver *driver, const attns_fp8_args *args, CUtensorMap *map) {
    static const cuuint32_t ones[2] = {1, 1};
    const attns_problem *const p = &args->problem;
    const cuuint64_t sizes[2] = {(cuuint64_t)p->block_size, (cuuint64_t)args->num_blocks};
    const cuuint64_t strides[1] = {(cuuint64_t)args->kv.stride[0]};
    const cuuint32_t box[2] = {(cuuint32_t)min64(p->block_size, TILE_TOKENS), 1};
    return attns_driver_check(
        driver,
        driver->tensor_map_encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
                                        args->kv.data + (int64_t)p->block_size * p->head_dim, sizes, strides, box, ones,
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
}

static attns_status encode(const attns_driver *driver, const attns_fp8_args *args, fp8_kernel_arguments *arguments) {
    ATTNS_TRY(encode_q(driver, args, &arguments->q));
    ATTNS_TRY(encode_k(driver, args, &arguments->k));
    return encode_scales(driver, args, &arguments->scales);
}

/* How many CTAs share an SM, and how deep a ring each has: no deeper than the longest possible share has tiles, as a
 * small CTA starts sooner. More, smaller CTAs pay once there is enough work for each. */
static void choose_launch(const attns_fp8_args *args, const attns_kernel *kernel, fp8_kernel_arguments *arguments) {
    enum { MANY_TILES = 24 };
    const attns_plan *const plan = &kernel->plan;
    const int64_t tiles = args->batch * ((args->max_seq_len + TILE_TOKENS - 1) / TILE_TOKENS);
    const int64_t per_sm = (tiles + kernel->num_sms - 1) / kernel->num_sms;
    const int ctas = per_sm >= MANY_TILES ? plan->max_ctas_per_sm : plan->min_ctas_per_sm;
    const int64_t per_cta = (per_sm + ctas - 1) / ctas;
    arguments->ctas_per_sm = ctas;
    arguments->ctas_reciprocal = (unsigned)(((UINT64_C(1) << 32) + (unsigned)ctas - 1) / (unsigned)ctas);
    arguments->stages =
        (int)min64(per_cta > plan->min_stages ? per_cta : plan->min_stages, attns_plan_stages(plan, ctas));
}

static attns_status launch(const attns_fp8_args *args, const attns_kernel_use *use, CUstream stream) {
    const attns_kernel *const kernel = use->kernel;
    const attns_plan *const plan = &kernel->plan;

    fp8_kernel_arguments arguments;
    ATTNS_TRY(encode(use->driver, args, &arguments));
    arguments.weights = args->weights.data;
    arguments.weights_stride = args->weights.stride[0] / args->weights.element_bytes;
    arguments.block_tables = args->block_tables.data;
    arguments.table_stride = args->block_tables.stride[0] / args->block_tables.element_bytes;
    arguments.seq_lens = args->seq_lens.data;
    arguments.lens_stride_b = args->seq_lens.stride[0] / args->seq_lens.element_bytes;
    arguments.lens_stride_t = args->per_slot_lens ? args->seq_lens.stride[1] / args->seq_lens.element_bytes : 0;
    arguments.schedule = args->schedule_meta.data;
    arguments.out = args->out.data;
    arguments.out_stride = args->out.stride[0] / args->out.element_bytes;
    arguments.batch = (int)args->batch;
    arguments.max_tokens = (int)args->max_seq_len;
    arguments.clean_until = (int)args->clean_until;
    arguments.per_slot_lens = args->per_slot_lens;
    arguments.num_shares = (int)args->num_shares;
    choose_launch(args, kernel, &arguments);

    CUlaunchAttribute pdl = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    pdl.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {
        .gridDimX = (unsigned)(kernel->num_sms * arguments.ctas_per_sm),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)plan->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)(plan->shared_fixed + arguments.stages * plan->shared_per_stage),
        .hStream = stream,
        .attrs = &pdl,
        .numAttrs = args->enable_pdl ? 1 : 0,
    };
    void *kernel_params[] = {&arguments};
    return attns_driver_check(
        use->driver, use->driver->launch_kernel_ex(&config, kernel->function, kernel_params, NULL), "cuLaunchKernelEx");
}

attns_status attns_fp8_paged_mqa_logits(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params,
                                        CUstream stream) {
    if (!ctx)
        return attns_fail(ATTNS_ERROR_INVALID_ARGUMENT, "ctx: is NULL, accepted: a context");
    attns_fp8_args args;
    ATTNS_TRY(attns_fp8_args_read(params, kDLCUDA, &args));
    if (args.batch == 0)
        return ATTNS_OK;
    attns_kernel_use use;
    ATTNS_TRY(attns_kernel_acquire(ctx, &args.problem, args.device, stream, &use));
    const attns_status status = launch(&args, &use, stream);
    attns_kernel_release(&use);
    return status;
}
