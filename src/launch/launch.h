/* SPDX-License-Identifier: MIT
 *
 * From checked arguments and a loaded kernel to a launch: tensor maps, kernel arguments, grid. One file for each kernel
 * family. Nothing here allocates, locks or synchronises. */
#ifndef ATTNS_LAUNCH_LAUNCH_H_
#define ATTNS_LAUNCH_LAUNCH_H_

#include "jit/kernel_store.h"
#include "ops/indexer_args.h"
#include "ops/logits_args.h"

/* Launches the kernel with the family it belongs to. */
attns_status attns_launch_logits(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream);

attns_status attns_launch_indexer(const attns_indexer_args *args, const attns_kernel_use *use, CUstream stream);

attns_status attns_launch_sm90(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream);
attns_status attns_launch_sm100(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream);
attns_status attns_launch_portable(const attns_logits_args *args, const attns_kernel_use *use, CUstream stream);

/* ---- What the families share ---- */

/* The end of every logits kernel's argument, after its tensor maps: as in templates/lib/arguments.cuh. Strides in
 * elements. */
typedef struct attns_common_arguments {
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
    unsigned ctas_reciprocal; /* 2^32 / ctas_per_sm, rounded up */
} attns_common_arguments;

/* Everything but stages and ctas_per_sm. */
void attns_fill_common_arguments(const attns_logits_args *args, attns_common_arguments *arguments);

/* How many CTAs share an SM, and how deep a ring each has: no deeper than the longest possible share has tiles, as a
 * small CTA starts sooner. The larger number of CTAs if there are `many_tiles` or more for each SM. */
void attns_choose_ctas(const attns_logits_args *args, const attns_kernel *kernel, int many_tiles,
                       attns_common_arguments *arguments);

/* A grid of num_sms * ctas_per_sm CTAs; `argument` is the kernel's only one, `common` the part of it that says so. */
attns_status attns_launch_persistent(const attns_logits_args *args, const attns_kernel_use *use,
                                     const attns_common_arguments *common, void *argument, CUstream stream);

/* ---- Tensor maps --------------------------------------------------------------------------------------------- */

/* Boxes of `type` without interleaving; `sizes` and `box` innermost first, `strides` in bytes without the innermost.
 * Coordinates outside read as zeros: so do blocks out of range. */
attns_status attns_encode_map(const attns_driver *driver, CUtensorMap *map, CUtensorMapDataType type, int rank,
                              void *data, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion);

/* Queries as [B, next_n, H, row]: one box is the heads of one query slot. */
attns_status attns_encode_q(const attns_driver *driver, const attns_logits_args *args, int row_bytes, CUtensorMap *map);

/* The values of the pool as [num_blocks, block_size, row]: one box is the part of a block that a tile takes. */
attns_status attns_encode_k(const attns_driver *driver, const attns_logits_args *args, int row_bytes, int box_tokens,
                            CUtensorMap *map);

/* The scales of the pool, behind a block's values, as [num_blocks, block_size]: a token's float32, or its D/32 bytes.
 */
attns_status attns_encode_scales(const attns_driver *driver, const attns_logits_args *args, int row_bytes,
                                 int box_tokens, CUtensorMap *map);

#endif
