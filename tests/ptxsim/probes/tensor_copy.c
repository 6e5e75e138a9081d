/* SPDX-License-Identifier: MIT
 *
 * Bulk copies: of bytes, and of boxes of tensors in all swizzles, which lie partly or wholly outside. */
#include <cuda.h>
#include <string.h>

#include "probe.h"

enum { TILE = 8192, CTAS = 12, SPINS = 1000000, TENSOR_AT = 1024 /* bytes into the input, behind coordinates */ };

/* ---- Kernels ---- */

/* Threads fill the tile with the tile's offset, thread 0 sets up `bar`. */
static void put_start(probe *p) {
    probe_put(p,
              ".shared .align 8 .b64 bar;\nmov.u32 %%tile, tile;\nmov.u32 %%r15, bar;\nsetp.eq.u32 %%p1, %%thread, 0;\n"
              "shl.b32 %%at, %%thread, 2;\nFILL:\nadd.u32 %%r0, %%tile, %%at;\nmad.lo.u32 %%r1, %%at, 0x01010101, "
              "0x11223344;\n"
              "st.shared.u32 [%%r0], %%r1;\nadd.u32 %%at, %%at, %u;\nsetp.lt.u32 %%more, %%at, %d;\n@%%more bra FILL;\n"
              "@%%p1 mbarrier.init.shared.b64 [%%r15], 1;\nfence.mbarrier_init.release.cluster;\nfence.proxy.async;\n"
              "bar.sync 0;\n",
              4 * p->threads, TILE);
}

/* Waits for the bytes, but not for ever: the tile then shows what is missing. */
static void put_wait(probe *p) {
    probe_put(p,
              "mov.u32 %%r14, 0;\nWAIT:\nmbarrier.try_wait.parity.shared.b64 %%p2, [%%r15], 0;\n@%%p2 bra ARRIVED;\n"
              "add.u32 %%r14, %%r14, 1;\nsetp.lt.u32 %%more, %%r14, %d;\n@%%more bra WAIT;\nARRIVED:\n",
              SPINS);
}

/* The box's coordinates, rank of them, from the CTA's 8 words at the start of the input: {%r4, ...}. */
static void put_coordinates(probe *p) {
    probe_put(p, "mad.wide.u32 %%rd2, %%cta, 32, %%in;\n");
    for (unsigned i = 0; i < p->map.rank; i++)
        probe_put(p, "ld.global.u32 %%r%u, [%%rd2+%u];\n", 4 + i, 4 * i);
    probe_put(p, "mov.b64 %%rd3, map;\ncvta.param.u64 %%rd3, %%rd3;\n");
}

static void put_box(probe *p) {
    probe_put(p, "[%%rd3, {");
    for (unsigned i = 0; i < p->map.rank; i++)
        probe_put(p, "%s%%r%u", i ? ", " : "", 4 + i);
    probe_put(p, "}]");
}

static void put_load(probe *p, size_t bytes) {
    probe_begin(p);
    put_start(p);
    put_coordinates(p);
    probe_put(p,
              "@!%%p1 bra WAIT_FOR_IT;\nmbarrier.arrive.expect_tx.shared.b64 %%rd4, [%%r15], %zu;\n"
              "cp.async.bulk.tensor.%ud.shared::cluster.global.mbarrier::complete_tx::bytes [%%tile], ",
              bytes, p->map.rank);
    put_box(p);
    probe_put(p, ", [%%r15];\nWAIT_FOR_IT:\n");
    put_wait(p);
    probe_dump_tile(p, 0, TILE);
    probe_end(p);
}

static void put_store(probe *p) {
    probe_begin(p);
    put_start(p);
    put_coordinates(p);
    probe_put(p, "@!%%p1 bra STORED;\ncp.async.bulk.tensor.%ud.global.shared::cta.bulk_group ", p->map.rank);
    put_box(p);
    probe_put(p, ", [%%tile];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nSTORED:\n");
    probe_end(p);
}

/* ---- Tensors ---- */

static size_t element_bytes(unsigned type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return 8;
    default:
        return 4;
    }
}

static const unsigned swizzle_bytes[] = {0, 32, 64, 128}; /* as CUtensorMapSwizzle counts */

/* A small tensor and box at random; the box has at most TILE bytes. Returns the tensor's bytes. */
static size_t random_map(struct rng *r, probe_map *map, unsigned rank, unsigned swizzle, bool steps,
                         size_t *box_bytes) {
    static const unsigned types[] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                                     CU_TENSOR_MAP_DATA_TYPE_INT32, CU_TENSOR_MAP_DATA_TYPE_INT64};
    static const unsigned float_types[] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                           CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64};
    map->rank = rank;
    map->swizzle = swizzle;
    map->data_type = map->fill_nan ? float_types[rng_below(r, 4)] : types[rng_below(r, 4)];
    const size_t bytes = element_bytes(map->data_type), width = swizzle_bytes[swizzle];
    uint64_t stride = 0;
    *box_bytes = 1;
    for (unsigned d = 0; d < rank; d++) {
        map->element_strides[d] = d > 0 && steps ? (unsigned)rng_range(r, 1, 3) : 1;
        if (d == 0) {
            const size_t row = width ? width / (rng_below(r, 4) == 0 ? 2 : 1) : 16 * (size_t)rng_range(r, 1, 8);
            map->box[0] = (unsigned)(row / bytes);
            map->sizes[0] = (uint64_t)rng_range(r, 1, 2 * (int64_t)map->box[0]);
            stride = (map->sizes[0] * bytes + 15) / 16 * 16 + 16 * (uint64_t)rng_below(r, 3);
            *box_bytes = row;
        } else {
            map->box[d] = (unsigned)rng_range(r, 1, d == 1 ? 20 : d == 2 ? 3 : 2);
            map->sizes[d] = (uint64_t)rng_range(r, 1, d == 1 ? 12 : 3);
            map->strides[d - 1] = stride;
            stride *= map->sizes[d];
            const unsigned step = map->element_strides[d];
            *box_bytes *= (map->box[d] + step - 1) / step;
        }
    }
    return rank == 1 ? map->sizes[0] * bytes : (size_t)stride;
}

static void add_tensor(probe_list *list, unsigned rank, unsigned swizzle, bool steps, bool nan, bool store) {
    probe *p = probe_add(list, "tensor_copy/%s_%ud_swizzle_%u%s%s", store ? "store" : "load", rank,
                         swizzle_bytes[swizzle], steps ? "_strides" : "", nan ? "_nan" : "");
    struct rng r = probe_random(p);
    p->threads = 64;
    p->shared_bytes = TILE;
    p->map.fill_nan = nan;
    size_t box_bytes = 0, tensor_bytes = 0;
    do
        tensor_bytes = random_map(&r, &p->map, rank, swizzle, steps, &box_bytes);
    while (box_bytes > TILE || tensor_bytes > 16384);
    p->ctas = store ? 1 : CTAS;
    p->map.of_out = store;
    p->map.offset = store ? 0 : TENSOR_AT + 16 * (size_t)rng_below(&r, 4);
    p->out_bytes = store ? (tensor_bytes + 15) / 16 * 16 : CTAS * TILE; /* whole pieces are written */
    uint8_t *in = probe_input(p, store ? TENSOR_AT : p->map.offset + tensor_bytes);
    for (size_t i = 0; i < p->in_bytes; i++)
        in[i] = (uint8_t)rng_next(&r);
    int32_t *coordinates = (int32_t *)(void *)in;
    const int64_t step = 16 / (int64_t)element_bytes(p->map.data_type); /* innermost, everything else is illegal */
    for (unsigned cta = 0; cta < p->ctas; cta++) {
        for (unsigned d = 0; d < rank; d++) {
            const int64_t at = rng_range(&r, store ? 0 : -(int64_t)p->map.box[d], (int64_t)p->map.sizes[d] - store);
            coordinates[8 * cta + d] = (int32_t)(d == 0 ? at / step * step : at);
        }
    }
    if (store)
        put_store(p);
    else
        put_load(p, box_bytes);
}

/* ---- Bytes ---- */

static void add_bytes(probe_list *list, unsigned bytes) {
    probe *p = probe_add(list, "tensor_copy/bulk_%u", bytes);
    struct rng r = probe_random(p);
    p->threads = 64;
    p->shared_bytes = TILE;
    p->out_bytes = TILE + bytes;
    uint64_t *in = probe_input(p, 4096);
    for (size_t i = 0; i < 4096 / 8; i++)
        in[i] = rng_next(&r);
    probe_begin(p);
    put_start(p);
    probe_put(p,
              "@!%%p1 bra WAIT_FOR_IT;\nmbarrier.arrive.expect_tx.shared.b64 %%rd4, [%%r15], %u;\n"
              "add.u64 %%rd5, %%in, 48;\nadd.u32 %%r5, %%tile, 32;\n"
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%r5], [%%rd5], %u, [%%r15];\n"
              "WAIT_FOR_IT:\n",
              bytes, bytes);
    put_wait(p);
    probe_put(
        p,
        "fence.proxy.async;\nbar.sync 0;\n@!%%p1 bra STORED;\nadd.u64 %%rd6, %%out, %d;\nadd.u32 %%r6, %%tile, 16;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%%rd6], [%%r6], %u;\ncp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group 0;\nSTORED:\n",
        TILE, bytes);
    probe_dump_tile(p, 0, TILE);
    probe_end(p);
}

void probes_tensor_copy(probe_list *list) {
    for (unsigned rank = 1; rank <= 5; rank++) {
        for (unsigned swizzle = 0; swizzle < 4; swizzle++) {
            if (rank == 1 && swizzle)
                continue;
            add_tensor(list, rank, swizzle, false, false, false);
            add_tensor(list, rank, swizzle, false, true, false);
            add_tensor(list, rank, swizzle, false, false, true);
            if (rank > 1) {
                add_tensor(list, rank, swizzle, true, false, false);
                add_tensor(list, rank, swizzle, true, true, false);
            }
        }
    }
    for (unsigned bytes = 16; bytes <= 4000; bytes *= 5)
        add_bytes(list, bytes);
}
