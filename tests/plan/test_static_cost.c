/* SPDX-License-Identifier: MIT
 *
 * What the machine code of the tcgen05 kernels costs, without a GPU: prints a table of their resources, of the
 * instructions that a warpgroup executes for each pair of KV token and query slot, and of the time that follows from
 * them, against the bounds of the hardware; and fails where they are worse than they were meant to be.
 *
 * $ATTNS_TEST_NVRTC names an NVRTC besides the usual one, for sm_107a; $ATTNS_TEST_NVDISASM a disassembler, else that
 * of PATH or of /usr/local/cuda. Exit 77 without one (tools/run-tests.sh installs both). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/nvrtc.h"
#include "jit/template.h"
#include "plan/plan.h"
#include "placeholders.h"
#include "testing.h"

enum { HEADS = 64, HEAD_DIM = 128, BLOCK_SIZE = 64, TILE_TOKENS = 128 };

/* Clocks: spec sheets, the figures that DeepGEMM, TensorRT-LLM and FlashInfer report for these chips. Bytes/s: what
 * copies reach, about nine tenths of the sheet's. FLOP/s: dense, FP8 and FP4. */
static const struct gpu_facts {
    const char *name, *arch;
    double sms, hertz, bytes, flops[2];
} gpus[] = {
    {"B200", "sm_100a", 148, 1.85e9, 7.2e12, {4.5e15, 9e15}},
    {"B300", "sm_103a", 160, 1.92e9, 7.3e12, {5e15, 13.5e15}},
    {"Rubin", "sm_107a", 212, 2.376e9, 20e12, {17.5e15, 35e15}},
};

/* Per SM and clock (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", 10.x): lanes of float32
 * addition and multiplication, of comparison and integer arithmetic; instructions of warps; cells of tensor memory, and
 * bytes of shared memory. */
enum { FMA_LANES = 128, ALU_LANES = 64, ISSUED_LANES = 128, TENSOR_CELLS = 128, SHARED_BYTES = 128 };

static struct attns_nvrtc_set *usual, *newer;
static const char *disassembler;

/* ---- Machine code ---- */

/* Of one job of a warpgroup, for a thread: one token, all slots of a chunk. Lane operations: a packed one counts twice.
 */
typedef struct job_cost {
    int fp32, maxima, integer, conversions, other; /* on the FMA units; FMNMX; the rest of the ALU; converts; others */
    int tensor_loads, tensor_cells;
    int shared_loads, stores, branches;
    int instructions, local; /* local: LDL, STL of the whole kernel */
    int weight_loads;        /* when the chunk changes */
} job_cost;

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The opcode of a line of nvdisasm -c, without its predicate; NULL if it is no instruction. */
static const char *opcode_of(const char *line) {
    const char *at = strstr(line, "*/");
    if (!strstr(line, "/*") || !at)
        return NULL;
    at += 2;
    at += strspn(at, " \t");
    if (*at == '@') {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return *at >= 'A' && *at <= 'Z' ? at : NULL;
}

static void count(job_cost *cost, const char *op) {
    static const char *const packed[] = {"FADD2", "FMUL2", "FFMA2"}, *const scalar[] = {"FADD", "FMUL", "FFMA", "IMAD"};
    static const char *const alu[] = {"IADD", "UIADD", "VIADD", "ISETP", "FSETP", "LOP3", "SEL",  "FSEL",
                                      "PLOP", "PRMT",  "LEA",   "SHF",   "MOV",   "VOTE", "IMNMX"};
    cost->instructions++;
    for (size_t i = 0; i < 3; i++)
        if (starts_with(op, packed[i])) {
            cost->fp32 += 2;
            return;
        }
    for (size_t i = 0; i < 4; i++)
        if (starts_with(op, scalar[i])) {
            cost->fp32++;
            return;
        }
    if (starts_with(op, "FMNMX"))
        cost->maxima++;
    else if (starts_with(op, "F2F"))
        cost->conversions++;
    else if (starts_with(op, "LDTM.x")) {
        cost->tensor_loads++;
        cost->tensor_cells += atoi(op + 6);
    } else if (starts_with(op, "LDS"))
        cost->shared_loads++;
    else if (starts_with(op, "STG"))
        cost->stores++;
    else if (starts_with(op, "BRA"))
        cost->branches++;
    else {
        for (size_t i = 0; i < sizeof alu / sizeof *alu; i++)
            if (starts_with(op, alu[i])) {
                cost->integer++;
                return;
            }
        cost->other++;
    }
}

/* A job is straight code: from the wait before its first load from tensor memory to the vote on sums that are not
 * finite. The weights are loaded on the way to it. */
static job_cost read_job(const char *cubin) {
    char command[512], line[1024];
    snprintf(command, sizeof command, "'%s' -c '%s'", disassembler, cubin);
    FILE *code = popen(command, "r");
    assert_non_null(code);
    job_cost cost = {0}, none = {0};
    enum { BEFORE, WAITED, INSIDE, BEHIND } place = BEFORE;
    int weights = 0;
    while (fgets(line, sizeof line, code)) {
        const char *op = opcode_of(line);
        if (!op)
            continue;
        cost.local += starts_with(op, "LDL") || starts_with(op, "STL");
        if (place == BEHIND)
            continue;
        weights += place <= WAITED && starts_with(op, "LDS.128");
        if (starts_with(op, "USETMAXREG"))
            weights = 0;
        if (place <= WAITED && strstr(op, "SYNCS.PHASECHK") != NULL) {
            const int local = cost.local;
            cost = none;
            cost.local = local;
            place = WAITED;
        }
        if (place == WAITED && starts_with(op, "LDTM"))
            place = INSIDE;
        if (place >= WAITED)
            count(&cost, op);
        if (place == INSIDE && starts_with(op, "VOTE"))
            place = BEHIND;
    }
    assert_int_equal(pclose(code), 0);
    assert_int_equal(place, BEHIND);
    cost.weight_loads = weights - 1; /* one of them is the request's note */
    return cost;
}

/* ---- One kernel ---- */

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Name of the largest bound; *clocks of an SM for each token gets it. */
static const char *binds(const double *bounds, const char *const *names, int count, double *clocks) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (bounds[i] > bounds[best])
            best = i;
    *clocks = bounds[best];
    return names[best];
}

static void report(const struct gpu_facts *gpu, bool fp4, int next_n) {
    const attns_problem problem = {
        .kind = fp4 ? ATTNS_KERNEL_FP4_LOGITS : ATTNS_KERNEL_FP8_LOGITS,
        .num_heads = HEADS,
        .head_dim = HEAD_DIM,
        .block_size = BLOCK_SIZE,
        .next_n = next_n,
        .out_dtype = ATTNS_DTYPE_F32,
        .acc_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
        .epi_dtype = fp4 ? ATTNS_DTYPE_DEFAULT : ATTNS_DTYPE_F32,
    };
    static const char *const options[] = {"-std=c++17", "--ptxas-options=-v"};
    attns_target target;
    attns_plan plan;
    const attns_nvrtc *nvrtc = NULL;
    assert_int_equal(attns_target_from_arch(gpu->arch, &target), ATTNS_OK);
    assert_int_equal(attns_plan_make(&problem, &target, ATTNS_CHOOSE_TUNED, &plan), ATTNS_OK);
    if (attns_nvrtc_for_arch(usual, gpu->arch, &nvrtc) != ATTNS_OK &&
        (!newer || attns_nvrtc_for_arch(newer, gpu->arch, &nvrtc) != ATTNS_OK)) {
        if (next_n == 1)
            printf("%-5s %s: skipped, %s\n", gpu->name, fp4 ? "fp4" : "fp8", attns_last_error());
        return;
    }
    char *source = NULL, path[] = "/tmp/attns-cost-XXXXXX";
    attns_compile_output output;
    if (attns_template_fill(NULL, plan.template_file, plan.placeholders, plan.num_placeholders, &source) != ATTNS_OK ||
        attns_nvrtc_compile(nvrtc, plan.name, source, target.arch, options, 2, &output) != ATTNS_OK)
        fail_msg("%s", attns_last_error());
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, output.image, output.image_size) == (ssize_t)output.image_size);
    close(file);
    const job_cost job = read_job(path);
    unlink(path);
    free(source);

    /* Per pair. Weights are loaded for as many jobs as a warpgroup does before it meets another chunk; never again if
     * it always has the same one. */
    const double slots = value_of(&plan, "CHUNK_SLOTS"), chunks = value_of(&plan, "CHUNKS");
    const int group = value_of(&plan, "GROUP_TILES");
    const double weight_loads = group == 1 ? 0 : job.weight_loads / (group / 2.0) / slots;
    const double fp32 = job.fp32 / slots, maxima = job.maxima / slots;
    const double issued = job.instructions / slots + weight_loads;

    /* Clocks of an SM for each KV token. */
    const double pairs = next_n, columns = slots * HEADS;
    const double fma = pairs * fp32 / FMA_LANES, alu = pairs * (job.maxima + job.integer) / slots / ALU_LANES;
    const double issue = pairs * issued / ISSUED_LANES, cells = pairs * job.tensor_cells / slots / TENSOR_CELLS;
    const double clocks_per_second = gpu->sms * gpu->hertz;
    const double memory = ((fp4 ? 68 : 132) + 4.0 * next_n) / gpu->bytes * clocks_per_second;
    const double mma = 2.0 * HEADS * HEAD_DIM * next_n / gpu->flops[fp4] * clocks_per_second;
    /* An MMA reads both operands: 32 bytes of 128 tokens and of its columns for each K step. */
    const double steps = fp4 ? HEAD_DIM / 64 : HEAD_DIM / 32;
    const double operands = chunks * steps * 32 * (TILE_TOKENS + columns) / TILE_TOKENS / SHARED_BYTES;
    const double floor_clocks = pairs * 2.0 * HEADS / FMA_LANES;

    const double ours[] = {memory, mma, operands, fma, alu, issue, cells};
    static const char *const names[] = {"memory", "MMA", "operands", "FP32", "ALU", "issue", "TMEM"};
    double clocks;
    const char *what = binds(ours, names, 7, &clocks);
    const double bound = larger(memory, larger(mma, floor_clocks));

    printf("%-5s %s %d  %4d %5d %6d %4d %3d | %6.1f %5.1f %5.1f %4.1f %4.1f %4.1f %5.2f %5.1f | %6.2f %5.2f %5.2f "
           "%5.2f %5.2f "
           "%5.2f %5.2f | %-8s %6.1f %5.2f\n",
           gpu->name, fp4 ? "fp4" : "fp8", next_n, output.registers, output.spill_bytes,
           attns_plan_shared_bytes(&plan, plan.max_stages) / 1024, value_of(&plan, "TENSOR_COLUMNS"),
           plan.max_ctas_per_sm, fp32, maxima, job.integer / slots, job.conversions / slots, job.tensor_loads / slots,
           job.shared_loads / slots + weight_loads, job.stores / slots, issued, memory, mma, operands, fma, alu, issue,
           cells, what, clocks_per_second / clocks / 1e9, clocks / bound);
    fflush(stdout);
    attns_compile_output_free(&output);

    assert_int_equal(output.spill_bytes, 0);
    assert_int_equal(job.local, 0);
    assert_int_equal(job.tensor_cells, (int)columns);
    assert_true(fp32 + maxima <= 150);
    assert_true(clocks <= 1.3 * bound);
}

static void test_costs(void **state) {
    (void)state;
    printf(
        "%d heads, D = %d, blocks of %d, float32 scores. Instructions are lane operations for each pair (floor of FP32 "
        "and max: "
        "%d);\nclocks are of an SM, for each KV token; G/s: 10^9 KV tokens a second; ratio: against max(memory, MMA, "
        "floor).\n",
        HEADS, HEAD_DIM, BLOCK_SIZE, 2 * HEADS);
    printf(
        "GPU       n  regs spill smem_K TMEM CTA |   FP32   max   int  cvt LDTM  LDS   STG issue | memory   MMA  oper "
        " FP32   ALU issue  TMEM | binds       G/s ratio\n");
    static const int next_ns[] = {1, 2, 4, 6};
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++)
        for (int fp4 = 0; fp4 < 2; fp4++)
            for (int i = 0; i < 4; i++)
                report(&gpus[g], fp4, next_ns[i]);
}

static bool find_disassembler(void) {
    static char path[512];
    const char *places[] = {getenv("ATTNS_TEST_NVDISASM"), "nvdisasm", "/usr/local/cuda/bin/nvdisasm"};
    for (size_t i = 0; i < 3; i++) {
        if (!places[i] || !*places[i])
            continue;
        snprintf(path, sizeof path, "'%s' --version >/dev/null 2>&1", places[i]);
        if (system(path) == 0) {
            disassembler = places[i];
            return true;
        }
    }
    return false;
}

int main(void) {
    const attns_logger silent = {0};
    if (attns_nvrtc_set_open(&usual, NULL, &silent) != ATTNS_OK) {
        printf("skipped: %s\n", attns_last_error());
        return 77;
    }
    if (!find_disassembler()) {
        printf("skipped: there is no nvdisasm; ATTNS_TEST_NVDISASM can name one\n");
        return 77;
    }
    const char *path = getenv("ATTNS_TEST_NVRTC");
    if (path && attns_nvrtc_set_open(&newer, path, &silent) != ATTNS_OK) {
        printf("ATTNS_TEST_NVRTC: %s\n", attns_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_costs)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    attns_nvrtc_set_close(usual);
    if (newer)
        attns_nvrtc_set_close(newer);
    return failed ? 1 : 0;
}
