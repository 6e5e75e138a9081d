/* SPDX-License-Identifier: MIT */
#include "pdl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/nvrtc.h"

#define VARIANTS 4
#define COPIES   7

static const char helper_source[] =
    "struct Copies {\n"
    "    unsigned *to[7];\n"
    "    const unsigned *from[7];\n"
    "    unsigned long long words[7];\n"
    "    unsigned long long spin_ns;\n"
    "};\n"
    "__device__ unsigned long long now() {\n"
    "    unsigned long long t;\n"
    "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(t));\n"
    "    return t;\n"
    "}\n"
    "extern \"C\" __global__ void predecessor(Copies c) {\n"
    "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
    "    const unsigned long long start = now();\n"
    "    while (now() - start < c.spin_ns)\n"
    "        ;\n"
    "    const unsigned long long step = gridDim.x * blockDim.x;\n"
    "    for (int k = 0; k < 7; k++)\n"
    "        for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < c.words[k]; i += step)\n"
    "            c.to[k][i] = c.from[k][i];\n"
    "}\n"
    "extern \"C\" __global__ void consumer(const unsigned short *got, const unsigned short *expected,\n"
    "                                    unsigned long long words, unsigned long long *wrong) {\n"
    "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
    "    const unsigned long long step = gridDim.x * blockDim.x;\n"
    "    unsigned long long mine = 0;\n"
    "    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)\n"
    "        mine += got[i] != expected[i];\n"
    "    if (mine)\n"
    "        atomicAdd(wrong, mine);\n"
    "}\n";

struct copies {
    CUdeviceptr to[COPIES], from[COPIES];
    uint64_t words[COPIES];
    uint64_t spin_ns;
};

struct helpers {
    CUmodule module;
    CUfunction predecessor, consumer;
};

static void load_helpers(struct helpers *h) {
    attns_logger logger = {.fn = NULL, .level = ATTNS_LOG_WARNING};
    const char *ptx = getenv("ATTNS_LOAD_PTX");
    char arch[32];
    attns_nvrtc_set *set = NULL;
    const attns_nvrtc *nvrtc = NULL;
    attns_compile_output output;
    attns_device_info device;
    if (attns_get_device_info(fx.ctx, fx.gpu.ordinal, &device) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    bool as_ptx = ptx && strcmp(ptx, "1") == 0;
    snprintf(arch, sizeof arch, "%s%s", as_ptx ? "compute" : "sm", strchr(device.arch, '_'));
    if (attns_nvrtc_set_open(&set, getenv("ATTNS_LIBNVRTC"), &logger) != ATTNS_OK ||
        attns_nvrtc_for_arch(set, device.arch, &nvrtc) != ATTNS_OK ||
        attns_nvrtc_compile(nvrtc, "pdl_helpers", helper_source, arch, NULL, 0, &output) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    assert_true(gpu_load_kernel(&fx.gpu, output.image, "predecessor", &h->module, &h->predecessor));
    must(fx.gpu.module_get_function(&h->consumer, h->module, "consumer"));
    attns_compile_output_free(&output);
    attns_nvrtc_set_close(set);
}

static bool launch(CUfunction function, unsigned blocks, bool early, void **arguments) {
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config;
    memset(&config, 0, sizeof config);
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 256;
    config.hStream = fx.stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return gpu_ok(&fx.gpu, fx.gpu.launch_kernel_ex(&config, function, arguments, NULL), "cuLaunchKernelEx");
}

static void fill_copies(struct copies *c, const struct logits_device *to, const struct logits_device *from,
                        int64_t spin_ns) {
    const struct gpu_buffer *const pairs[COPIES][2] = {
        {&to->q, &from->q},           {&to->kv, &from->kv},     {&to->weights, &from->weights},
        {&to->tables, &from->tables}, {&to->lens, &from->lens}, {&to->meta, &from->meta},
        {&to->q_sf, &from->q_sf}};
    for (int i = 0; i < COPIES; i++) {
        c->to[i] = pairs[i][0]->ptr;
        c->from[i] = pairs[i][1]->ptr;
        c->words[i] = pairs[i][0]->ptr ? pairs[i][0]->bytes / 4 : 0;
        assert_int_equal(pairs[i][0]->bytes, pairs[i][1]->bytes);
    }
    c->spin_ns = (uint64_t)spin_ns;
}

uint64_t pdl_wrong_words(attns_context *ctx, int rounds, int64_t spin_ns, bool with_schedule, bool chained) {
    struct helpers helpers;
    load_helpers(&helpers);
    const int max_len = software_gpu() ? 500 : 1500;
    struct logits_case c = {.batch = 24,
                            .next_n = 2,
                            .heads = 64,
                            .head_dim = 128,
                            .block_size = 64,
                            .max_len = max_len,
                            .max_seq_len = max_len,
                            .table_width = 24,
                            .pool_blocks = 200,
                            .num_shares = with_schedule ? fx.gpu.num_sms : 0};
    struct logits_data data[VARIANTS];
    struct logits_device variants[VARIANTS], work[2];
    /* Each variant alone: its output, and its schedule, are what the rounds must reproduce. */
    for (int v = 0; v < VARIANTS; v++) {
        make_data(&data[v], &c);
        upload_data(&variants[v], &data[v], LOGITS_PLAIN, NULL);
        assert_int_equal(logits_queue(&variants[v], fx.ctx, fx.stream), ATTNS_OK);
        uint8_t *image = logits_download(&variants[v], fx.stream);
        assert_non_null(image);
        struct logits_check_options options = {.max_work = 1e8};
        check_image(&data[v], image, &options);
        free(image);
    }
    for (int i = 0; i < 2; i++) {
        upload_data(&work[i], &data[0], LOGITS_PLAIN, NULL);
        work[i].call.fp8.enable_pdl = work[i].call.fp4.enable_pdl = true;
    }
    /* Both calls read the same buffers and have an output each. */
    work[1].tensors.q.data = work[0].tensors.q.data;
    work[1].tensors.q_sf.data = work[0].tensors.q_sf.data;
    work[1].tensors.kv.data = work[0].tensors.kv.data;
    work[1].tensors.weights.data = work[0].tensors.weights.data;
    work[1].tensors.tables.data = work[0].tensors.tables.data;
    work[1].tensors.lens.data = work[0].tensors.lens.data;
    work[1].tensors.meta.data = work[0].tensors.meta.data;
    if (with_schedule)
        must(fx.gpu.memset_d8(work[0].meta.ptr, 0, work[0].meta.bytes));

    struct gpu_buffer wrong;
    assert_true(gpu_buffer_alloc(&fx.gpu, &wrong, 8));
    must(fx.gpu.memset_d8(wrong.ptr, 0, 8));
    must(fx.gpu.ctx_synchronize());
    struct rng r = rng_make(next_seed());
    /* The software GPU reports an early access whenever it is made, without a race to win: no need to spin or repeat.
     */
    if (software_gpu()) {
        rounds = 2;
        spin_ns = 0;
    }
    bool queued = true;
    for (int round = 0; round < rounds && queued; round++) {
        int v = (int)rng_below(&r, VARIANTS);
        struct copies copies;
        fill_copies(&copies, &work[0], &variants[v], spin_ns);
        void *predecessor_arguments[] = {&copies};
        queued = launch(helpers.predecessor, 16, false, predecessor_arguments);
        for (int i = 0; i <= chained && queued; i++)
            queued = logits_queue_logits(&work[i], ctx, fx.stream) == ATTNS_OK;
        for (int i = 0; i <= chained && queued; i++) {
            uint64_t words = data[v].out_image_bytes / 2;
            void *consumer_arguments[] = {&work[i].out.ptr, &variants[v].out.ptr, &words, &wrong.ptr};
            queued = launch(helpers.consumer, 16, i == 0, consumer_arguments);
        }
        for (int i = 0; i <= chained && queued; i++)
            queued = logits_poison(&work[i], fx.stream);
    }
    if (!queued && !software_gpu())
        fail_msg("a round cannot be queued");
    CUresult waited = queued ? gpu_wait_stream(&fx.gpu, fx.stream, 30) : CUDA_ERROR_LAUNCH_FAILED;
    uint64_t count = UINT64_MAX;
    bool faulted = software_gpu() && waited == CUDA_ERROR_LAUNCH_FAILED;
    if (!faulted) {
        assert_int_equal(waited, CUDA_SUCCESS);
        must(fx.gpu.memcpy_dtoh(&count, wrong.ptr, 8));
    }
    gpu_buffer_free(&fx.gpu, &wrong);
    for (int i = 0; i < 2; i++)
        logits_device_free(&work[i]);
    for (int v = 0; v < VARIANTS; v++) {
        logits_device_free(&variants[v]);
        logits_data_free(&data[v]);
    }
    if (!faulted)
        must(fx.gpu.module_unload(helpers.module));
    return count;
}
