/* SPDX-License-Identifier: MIT
 *
 * libattn_scores: paged MQA logits ("attention scores") for sparse-attention indexers.
 *
 * Conventions that hold for the whole header
 *
 *   B requests, next_n query slots per request (slot next_n-1 is the newest), H heads, D head dim. A KV block
 *   holds block_size tokens. Shapes are written outermost first; strides are DLPack strides (in elements).
 *
 *   Ownership: the library borrows every pointer for the duration of the call and keeps none, except where a
 *   comment says otherwise. Device buffers must stay valid, and inputs unchanged, until the work queued on
 *   `stream` has run.
 *
 *   Threads: every function may be called from any thread at any time; one attns_context may be used by many
 *   threads at once. The exceptions are attns_context_destroy, which must be the last use of its context, and the
 *   message of attns_last_error, which belongs to the calling thread.
 *
 *   Errors: a function that returns attns_status writes nothing and launches nothing unless it returns ATTNS_OK.
 *   attns_last_error then names the argument, the value given and what is accepted.
 */
#ifndef ATTN_SCORES_H_
#define ATTN_SCORES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define ATTNS_API
#else
#define ATTNS_API __attribute__((visibility("default")))
#endif

#define ATTNS_VERSION_MAJOR 0
#define ATTNS_VERSION_MINOR 1
#define ATTNS_VERSION_PATCH 0

/* The driver API's stream handle, declared here so that this header needs no CUDA header. Identical to cuda.h's. */
typedef struct CUstream_st *CUstream;

/* ---- Status -------------------------------------------------------------------------------------------------- */

typedef enum attns_status {
    ATTNS_OK = 0,
    ATTNS_ERROR_INVALID_ARGUMENT = 1,   /* an argument is missing, malformed or inconsistent with another */
    ATTNS_ERROR_UNSUPPORTED = 2,        /* well formed, but no kernel exists for this shape, dtype or option */
    ATTNS_ERROR_UNSUPPORTED_DEVICE = 3, /* the device (or compile target) is not one the library has kernels for */
    ATTNS_ERROR_LIBRARY_NOT_FOUND = 4,  /* libcuda or libnvrtc is needed and could not be opened */
    ATTNS_ERROR_COMPILE = 5,            /* NVRTC refused a kernel; the message holds its log */
    ATTNS_ERROR_WOULD_COMPILE = 6,      /* the kernel is neither loaded nor cached, and must not be compiled: the stream
                                           is capturing, or forbid_compile is set */
    ATTNS_ERROR_CUDA = 7,               /* a driver call failed; the message names it and its error */
    ATTNS_ERROR_OUT_OF_MEMORY = 8,      /* a host allocation failed */
    ATTNS_ERROR_IO = 9,                 /* a file named by the caller could not be read or written */
    ATTNS_ERROR_INTERNAL = 10           /* a defect of the library */
} attns_status;

/* A short constant text such as "invalid argument"; never NULL, also for values outside the enum. */
ATTNS_API const char *attns_status_string(attns_status status);

/* The message of the last call on this thread that did not return ATTNS_OK, "" if there was none. Valid until the
 * next failing call on the same thread. */
ATTNS_API const char *attns_last_error(void);

/* "0.1.0": the library that is loaded, which may differ from the header's ATTNS_VERSION_*. */
ATTNS_API const char *attns_version(void);

/* ---- Context ------------------------------------------------------------------------------------------------- */

typedef struct attns_context attns_context;

typedef enum attns_log_level {
    ATTNS_LOG_NONE = 0,
    ATTNS_LOG_ERROR = 1,
    ATTNS_LOG_WARNING = 2,
    ATTNS_LOG_INFO = 3,
    ATTNS_LOG_DEBUG = 4
} attns_log_level;

/* Receives one line without a newline. May be called from any thread, also from several at once; must not call back
 * into the library with the same context. */
typedef void (*attns_log_fn)(void *user, attns_log_level level, const char *message);

/* All zero is the default. Strings are copied. Environment variables are read once, in attns_context_create, and
 * are ignored in a set-uid process; a non-NULL field wins over its variable. */
typedef struct attns_context_params {
    attns_log_fn log; /* NULL: lines go to stderr */
    void *log_user;
    attns_log_level log_level; /* highest level delivered; 0 (NONE) with log == NULL means WARNING */

    const char *libcuda_path;  /* file or SONAME; NULL: $ATTNS_LIBCUDA, then "libcuda.so.1" */
    const char *libnvrtc_path; /* file, or a ':'-separated list; NULL: $ATTNS_LIBNVRTC, then a search of the usual
                                  SONAMEs and toolkit folders. The newest that knows the target is used. */
    const char *template_dir;  /* reads templates from here instead of the embedded ones; NULL: $ATTNS_TEMPLATE_DIR */
    const char *dump_dir;      /* writes every filled kernel source here; NULL: $ATTNS_DUMP_DIR, then nowhere */

    /* The writable cubin cache is the first of these that can be written: cache_dir, $ATTNS_CACHE_DIR,
     * $XDG_CACHE_HOME/attn-scores, $HOME/.cache/attn-scores. One passed over that can be read is read all the same.
     * "", as the field or the variable, ends the list; without any, kernels live in memory only. */
    const char *cache_dir;
    const char *cache_readonly_dirs; /* ':'-separated caches that are only read, after cache_dir: directories, and
                                        bundles made by `attn-scores cache export`; NULL: $ATTNS_CACHE_READONLY_DIRS */
    uint64_t cache_max_bytes;        /* size bound of the writable cache, least recently used entries go first; 0: 1 GiB
                                      */
    bool cache_shared; /* caches may belong to other users and be writable by their group, never by everyone: code from
                          them runs in this process. false: $ATTNS_CACHE_SHARED, "1" or "0" (the default): only what
                          belongs to this user (or root, for caches that are only read) and only its owner can write */

    bool allow_compile_in_capture; /* compile inside a stream capture instead of ATTNS_ERROR_WOULD_COMPILE */
    bool forbid_compile;     /* never compile: a kernel that no cache holds is ATTNS_ERROR_WOULD_COMPILE at once, and
                                the message holds the command that prepares it. false: $ATTNS_FORBID_COMPILE, "1"
                                or "0" (the default) */
    int compile_threads;     /* kernels that this context compiles at a time; 0: one per CPU it may use */
    const char *record_path; /* appends the name of each kernel that is loaded to this file, one a line, for
                                `attn-scores precompile --from-log`; NULL: $ATTNS_RECORD, then nowhere */

    bool load_ptx; /* ask NVRTC for PTX instead of a cubin and let the driver compile it: for the software GPU in
                      tools/ptxsim and for drivers newer than the compiler; PTX entries have cache keys of their own.
                      false: $ATTNS_LOAD_PTX, "1" or "0" (the default) */

    /* For tests and benchmarks: which kernels serve, instead of the best ones for the device. */
    const char *kernel_family; /* "tuned" or "portable": only kernels made for one architecture, or only those for every
                                  architecture; "auto": tuned where there is one. NULL or "": $ATTNS_KERNEL_FAMILY,
                                  then "auto" */
    const char *arch;          /* compile for this target whatever the device is, e.g. "sm_90", or "compute_80" for PTX
                                  that the driver compiles; NULL or "": $ATTNS_ARCH, then the device decides */
} attns_context_params;

/* Creates a context. Opens neither libcuda nor libnvrtc and touches no GPU: that happens in the first call that
 * needs them, so that a context can be made anywhere. `params` may be NULL (defaults). A cache directory that cannot
 * be used costs a warning, not an error. Several contexts may live side by side and be recreated at will. */
ATTNS_API attns_status attns_context_create(attns_context **ctx, const attns_context_params *params);

/* Unloads the kernels. Work queued through the context must have completed and graphs that hold its kernels must not
 * be launched again. NULL is a no-op. */
ATTNS_API void attns_context_destroy(attns_context *ctx);

typedef struct attns_counters {
    uint64_t compiles;     /* kernels compiled by NVRTC */
    uint64_t disk_hits;    /* cubins read from a cache directory */
    uint64_t memory_hits;  /* calls that found their kernel loaded */
    uint64_t module_loads; /* cubins loaded into the driver */
} attns_counters;

/* Counts since the context was created. Never fails; any of the arguments NULL is a no-op. */
ATTNS_API void attns_get_counters(const attns_context *ctx, attns_counters *counters);

/* ---- Types --------------------------------------------------------------------------------------------------- */

typedef enum attns_dtype {
    ATTNS_DTYPE_DEFAULT = 0, /* what the operation documents */
    ATTNS_DTYPE_F32 = 1,
    ATTNS_DTYPE_F16 = 2,
    ATTNS_DTYPE_BF16 = 3
} attns_dtype;

typedef enum attns_variant {
    ATTNS_VARIANT_FP8 = 1,          /* fp8_paged_mqa_logits */
    ATTNS_VARIANT_FP4 = 2,          /* fp4_paged_mqa_logits */
    ATTNS_VARIANT_INDEXER_BF16 = 3, /* indexer_scores; for attns_precompile_params only, as the next */
    ATTNS_VARIANT_INDEXER_NVFP4 = 4 /* indexer_scores */
} attns_variant;

/* DLPack >= 1.1 type codes that older dlpack.h files do not name (dmlc/dlpack, include/dlpack/dlpack.h). */
#define ATTNS_DL_FLOAT8_E4M3FN 10
#define ATTNS_DL_FLOAT8_E5M2   12
#define ATTNS_DL_FLOAT4_E2M1FN 17 /* with bits 4 and lanes 2: two numbers in a byte, torch.float4_e2m1fn_x2 */

/* ---- Shapes -------------------------------------------------------------------------------------------------- */

/* Columns of a block table that a request of seq_len tokens needs: ceil(seq_len / block_size). 0 for seq_len <= 0 or
 * block_size <= 0. */
ATTNS_API int64_t attns_min_block_table_width(int64_t seq_len, int64_t block_size);

/* Recommended columns of an output: max_seq_len rounded up to a multiple of 256 (the unit that FlashInfer's and
 * DeepGEMM's kernels require). This library needs only max_seq_len. 0 for max_seq_len <= 0. */
ATTNS_API int64_t attns_padded_seq_len(int64_t max_seq_len);

/* ---- fp8_paged_mqa_logits ------------------------------------------------------------------------------------ */

/* logits[b*next_n + t, p] = s[p] * sum_h weights[b*next_n + t, h] * relu(q[b,t,h,:] . k[p,:])
 *
 * All tensors are on one CUDA device, the one `stream` belongs to. "16-aligned" means that the address and every
 * stride but the innermost are multiples of 16 bytes. Supported: H a multiple of 8 up to 128, D 32, 64 or 128,
 * block_size 16, 32, 64, 128 or 256, next_n 1..8. */
typedef struct attns_fp8_paged_mqa_logits_params {
    const DLTensor *q;             /* [B, next_n, H, D] float8_e4m3fn or uint8; heads and dims dense, 16-aligned */
    const DLTensor *kv_fused;      /* [num_blocks, block_size, 1, D+4] uint8. Inside a block: block_size*D value bytes,
                                      token-major, then block_size little-endian float32 scales. Inner dims dense;
                                      blocks any multiple of 16 bytes apart; 16-aligned */
    const DLTensor *weights;       /* [B*next_n, H] float32; inner stride 1; 16-aligned */
    const DLTensor *block_tables;  /* [B, W] int32; inner stride 1, any row stride; W >= ceil(max_seq_len/block_size)
                                      is usual but not required. An id outside [0, num_blocks) reads as zeros */
    const DLTensor *seq_lens;      /* [B] int32, any stride: KV length seen by the newest slot; slot t sees
                                      seq_lens[b] - next_n + 1 + t tokens. Or [B, next_n], any strides: each slot's own
                                      length, in any order. Clamped on the device to [0, min(max_seq_len,
                                      W*block_size)] */
    const DLTensor *schedule_meta; /* NULL, or [num_sms+1, 2] int32 dense from
                                      attns_compute_paged_mqa_logits_schedule */
    const DLTensor *out; /* [B*next_n, >= max_seq_len] float32, float16 or bfloat16; inner stride 1, rows may not
                            overlap. Row r is written exactly in columns [0, tokens its slot sees) */
    int64_t max_seq_len; /* upper bound of seq_lens; 0: the width of out */

    attns_dtype acc_dtype; /* tensor-core accumulator: F32 (default) or F16 */
    attns_dtype epi_dtype; /* ReLU, weights and head sum: F32 (default) or F16 */

    bool clean_logits; /* also fill each row with -inf from the tokens its slot sees to max_seq_len, in the same
                          launch; a request of length 0 gets whole rows of -inf (without it: untouched) */
    bool enable_pdl;   /* programmatic dependent launch: may start while the previous kernel of the stream drains.
                          Inputs are read only after that kernel has completed and flushed its memory */
} attns_fp8_paged_mqa_logits_params;

/* Queues one kernel on `stream` (NULL: the legacy default stream of the current CUDA context). A row's bits depend on
 * its own inputs only: not on B, other rows, the schedule, next_n, the SM count or the run.
 *
 * The first call for a configuration (H, D, block_size, next_n, dtypes) reads a cubin from the cache or compiles it
 * (about 0.2 s) and loads it. Some configurations have two kernels, which give the same bits, for little and for much
 * work, as B, max_seq_len and W bound it: each has such a first call. Later calls allocate nothing, take no lock, never
 * synchronise and may be captured. In a capturing stream a kernel that would have to be compiled gives
 * ATTNS_ERROR_WOULD_COMPILE and the capture stays valid. B == 0 is success and launches nothing. */
ATTNS_API attns_status attns_fp8_paged_mqa_logits(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params,
                                                  CUstream stream);

/* ---- fp4_paged_mqa_logits (MXFP4) ---------------------------------------------------------------------------- */

/* logits[b*next_n + t, p] = sum_h weights[b*next_n + t, h] * relu(q[b,t,h,:] . k[p,:])
 *
 * Numbers are E2M1 (two in a byte, the lower nibble first) times the UE8M0 scale of their 32 neighbours: a scale byte e
 * means 2^(e-127), 255 means NaN (OCP Microscaling Formats v1.0). Accumulators and head sum are float32; on Hopper FP8
 * tensor cores add the products, which keep 13 bits below the largest of 32.
 *
 * Devices, "16-aligned", block_tables, seq_lens, schedule_meta, max_seq_len and clean_logits: as for
 * fp8_paged_mqa_logits. Supported: H a multiple of 8 up to 128, D 64 or 128, block_size 16, 32, 64, 128 or 256, next_n
 * 1..8. */
typedef struct attns_fp4_paged_mqa_logits_params {
    const DLTensor *q;        /* [B, next_n, H, D/2] uint8 or float4_e2m1fn_x2; heads and dims dense, 16-aligned */
    const DLTensor *q_sf;     /* [B, next_n, H] int32: byte k, the least significant first, is the scale of dims
                                 [32k, 32k+32); with D = 64 the upper two bytes are ignored. Heads dense, 16-aligned */
    const DLTensor *kv_fused; /* [num_blocks, block_size, 1, D/2 + D/32] uint8. Inside a block: block_size*D/2 bytes of
                                 values, token-major, then D/32 scale bytes for each token, token-major (see
                                 is_kv_sf_interleaved). Inner dims dense; blocks any multiple of 16 bytes apart;
                                 16-aligned */
    const DLTensor *weights;  /* [B*next_n, H] float32; inner stride 1; 16-aligned */
    const DLTensor *block_tables;  /* [B, W] int32. An id outside [0, num_blocks) reads as zeros */
    const DLTensor *seq_lens;      /* [B] or [B, next_n] int32 */
    const DLTensor *schedule_meta; /* NULL, or [num_sms+1, 2] int32 */
    const DLTensor *out; /* [B*next_n, >= max_seq_len] bfloat16, float32 or float16; inner stride 1, rows may not
                            overlap */
    int64_t max_seq_len; /* upper bound of seq_lens; 0: the width of out */

    int64_t sf_vec_size;       /* numbers that share a scale: 32; 0: 32 */
    bool is_kv_sf_interleaved; /* with block_size 128 only: slot k of a block's scales holds those of token
                                  (k % 4) * 32 + k / 4 */
    bool clean_logits;
    bool enable_pdl;
} attns_fp4_paged_mqa_logits_params;

/* Queues one kernel on `stream`; everything said of attns_fp8_paged_mqa_logits holds. A scale of NaN makes NaN of what
 * it belongs to, nothing else. */
ATTNS_API attns_status attns_fp4_paged_mqa_logits(attns_context *ctx, const attns_fp4_paged_mqa_logits_params *params,
                                                  CUstream stream);

/* ---- compute_paged_mqa_logits_schedule ----------------------------------------------------------------------- */

typedef struct attns_schedule_params {
    const DLTensor *seq_lens;      /* [B] or [B, next_n] int32, any strides, on a CUDA device or in host memory */
    const DLTensor *schedule_meta; /* output, [num_sms+1, 2] int32 dense, on the same device as seq_lens */
    attns_variant variant;         /* 0: ATTNS_VARIANT_FP8; the cut does not depend on it today */
    int64_t next_n;                /* of the call that will use it; 0: 1, or the width of a 2-D seq_lens */
} attns_schedule_params;

/* Cuts the work of a batch into num_sms equal shares. The result is opaque; it may be reused while the contents of
 * seq_lens stay the same. One kernel on `stream` for device memory (same rules as fp8_paged_mqa_logits for compiling
 * and capturing); for host memory it is computed at once by the calling thread, with the same bits, and ctx and
 * stream may be NULL. Any num_sms works on any device; the device's SM count is best. */
ATTNS_API attns_status attns_compute_paged_mqa_logits_schedule(attns_context *ctx, const attns_schedule_params *params,
                                                               CUstream stream);

/* ---- indexer_scores ------------------------------------------------------------------------------------------ */

/* scores[r, k] = query[r, :] . key k of row r's request: one query head of 128 dims, no weight, no ReLU, no mask.
 *
 * Rows come in `groups` groups of consecutive rows, all of rows / groups rows, 1 to 8: a decode step's token and its
 * draft tokens. All rows of group g are scored against the same keys, those of request requests[g].
 *
 * Two formats. BF16. NVFP4: two E2M1 values to a byte, the even one in the low nibble, and an E4M3 scale for every 16
 * values, of queries and keys alike; there is no global scale. All tensors are on one CUDA device, the one `stream`
 * belongs to. Runs on every device from compute capability 8.0 on. */
typedef struct attns_indexer_scores_params {
    const DLTensor *query;           /* BF16: [rows, 128] bfloat16; NVFP4: [rows, 64] uint8. Inner stride 1; address and
                                        row stride multiples of 16 bytes; rows below 2^30 */
    const DLTensor *query_scales;    /* NVFP4: [rows, 8] float8_e4m3fn or uint8; inner stride 1; address and row stride
                                        multiples of 8 bytes. BF16: NULL */
    const DLTensor *key_cache;       /* BF16: [pages, 64, 128] bfloat16; NVFP4: [pages, 64, 64] uint8. Inner dims dense;
                                        pages any multiple of 16 bytes apart; address a multiple of 16 */
    const DLTensor *key_scales;      /* NVFP4: [pages, 64, 8] float8_e4m3fn or uint8, paged like the keys. Inner dims dense;
                                        pages any multiple of 8 bytes apart; address a multiple of 8. BF16: NULL */
    const DLTensor *block_table;     /* [requests, blocks] int32: each request's pages of 64 keys; inner stride 1, any row
                                        stride; blocks >= ceil(max_context / 64). A page outside [0, pages) reads as
                                        zeros */
    const DLTensor *context_lengths; /* [groups] int32, any stride: each group's number of keys. Clamped on the device to
                                        [0, max_context] */
    const DLTensor *requests;        /* [groups] int32, any stride: each group's row of block_table. One outside [0,
                                        requests) has keys of zeros. Of a group of length 0 it may be anything */
    const DLTensor *scores;          /* [rows, max_context] float32; inner stride 1, any row stride, rows may not overlap;
                                        max_context up to 2^30. Written exactly in columns [0, length of the row's group) */
    bool enable_pdl;                 /* programmatic dependent launch, as in attns_fp8_paged_mqa_logits_params; without
                                        effect before compute capability 9.0 */
} attns_indexer_scores_params;

/* Queues one kernel on `stream`. Of the keys only those below a group's length are read, and of the block table only the
 * columns that hold them. A score's bits depend on its query row and its key only: not on the group, the batch or the
 * schedule (they may differ between architectures). Compiling, capturing and threads as for fp8_paged_mqa_logits; there
 * is one kernel for each format. 0 rows is success and launches nothing. */
ATTNS_API attns_status attns_indexer_scores(attns_context *ctx, const attns_indexer_scores_params *params,
                                            CUstream stream);

/* ---- precompile_paged_mqa_logits ----------------------------------------------------------------------------- */

typedef enum attns_kernel_source {
    ATTNS_FROM_COMPILER = 1, /* compiled now */
    ATTNS_FROM_DISK = 2,     /* was in a cache directory */
    ATTNS_FROM_MEMORY = 3    /* was already in this context */
} attns_kernel_source;

typedef struct attns_precompile_result {
    const char *kernel; /* readable configuration, e.g. "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 ..." */
    const char *arch;   /* e.g. "sm_90a" */
    attns_status status;
    attns_kernel_source source;
    bool cached;         /* a cache holds it now; otherwise it is in this context's memory only */
    double seconds;      /* time this kernel took */
    int registers;       /* per thread; -1 where the compiler was not asked (cache hits keep the stored value) */
    int spill_bytes;     /* register spill stores, or local memory; -1 likewise */
    const char *message; /* error text, "" on success */
} attns_precompile_result;

/* One finished kernel, `done` of `total`. The pointers in `result` are valid during the call only. Calls are
 * serialised but come from worker threads. */
typedef void (*attns_precompile_fn)(void *user, size_t done, size_t total, const attns_precompile_result *result);

/* The kernels to build: the product of all lists; two for each configuration that has one for little and one for much
 * work ("much work" in its name). A NULL list (count 0) means its default, given beside it. Or, instead of the lists
 * after `archs`, single kernels by name. */
typedef struct attns_precompile_params {
    const char *const *archs; /* "sm_90a", ...; "all": every architecture from sm_80 on that NVRTC knows, where there is
                                 a kernel; default: the devices of this machine */
    size_t num_archs;
    const attns_variant *variants; /* default: FP8 */
    size_t num_variants;
    const int *num_heads; /* default: 64 */
    size_t num_num_heads;
    const int *head_dims; /* default: 128 */
    size_t num_head_dims;
    const int *block_sizes; /* default: 64 */
    size_t num_block_sizes;
    const int *next_ns; /* default: 1, 2, 3, 4 */
    size_t num_next_ns;
    const attns_dtype *out_dtypes; /* default, also for ATTNS_DTYPE_DEFAULT in a list: F32 for FP8, BF16 for FP4 */
    size_t num_out_dtypes;
    const attns_dtype *acc_dtypes; /* of FP8, as epi_dtypes; default: F32 */
    size_t num_acc_dtypes;
    const attns_dtype *epi_dtypes; /* default: F32 */
    size_t num_epi_dtypes;
    const bool *kv_sf_interleaved; /* of FP4 with block_size 128; default: false */
    size_t num_kv_sf_interleaved;

    const char *const *kernels; /* as in messages and records: "fp8_paged_mqa_logits h64 ... for sm_90a"; one that names
                                   no target is built for all of archs. The lists above are NULL then */
    size_t num_kernels;

    int jobs;                     /* compiler threads; 0: one per CPU; at most the context's compile_threads compile */
    attns_precompile_fn progress; /* may be NULL */
    void *progress_user;
} attns_precompile_params;

/* Compiles every kernel of the set that the cache does not hold, in parallel, and stores it; the schedule kernel of
 * each architecture comes along, unless kernels are named. ATTNS_VARIANT_INDEXER_* stand for one kernel each, whatever
 * the other lists say. Needs NVRTC but no GPU. Blocks until done. All kernels are tried; the status is that of the first
 * that failed. An architecture or shape that cannot be served is refused before anything is compiled. With
 * forbid_compile it only checks that everything is there. */
ATTNS_API attns_status attns_precompile_paged_mqa_logits(attns_context *ctx, const attns_precompile_params *params);

/* ---- Reference ----------------------------------------------------------------------------------------------- */

/* The same operation on the CPU, for verification: every tensor in host memory, every product and sum in double from
 * the same bytes. `params->out` may also be float64. Writes the same elements as the kernel; hostile lengths and block
 * ids are treated alike; schedule_meta, acc_dtype, epi_dtype and enable_pdl are ignored. `abs_sum`, if not NULL, is
 * float64 of the shape of out and receives |s[p]| * sum_h |w_h| * sum_d |q_d * k_d| for each written element, the scale
 * against which rounding errors are measured. Uses the calling thread only; allocates temporary memory. */
ATTNS_API attns_status attns_reference_fp8_paged_mqa_logits(const attns_fp8_paged_mqa_logits_params *params,
                                                            const DLTensor *abs_sum);

/* Likewise; abs_sum receives sum_h |w_h| * sum_d |q_d * k_d|, of the numbers with their scales. */
ATTNS_API attns_status attns_reference_fp4_paged_mqa_logits(const attns_fp4_paged_mqa_logits_params *params,
                                                            const DLTensor *abs_sum);

/* indexer_scores on the CPU, likewise: every tensor in host memory, `scores` may also be float64, the same elements are
 * written. `abs_sum`, if not NULL, is float64 of the shape of scores and receives sum_d |q_d * k_d|. Allocates nothing. */
ATTNS_API attns_status attns_reference_indexer_scores(const attns_indexer_scores_params *params,
                                                      const DLTensor *abs_sum);

/* ---- Information --------------------------------------------------------------------------------------------- */

typedef struct attns_info {
    const char *libcuda;       /* path or SONAME opened, NULL if none */
    const char *libcuda_error; /* why not, NULL if opened */
    int driver_version;        /* e.g. 13000, 0 if unknown */
    const char *libnvrtc;      /* likewise for the NVRTC that would be used first */
    const char *libnvrtc_error;
    int nvrtc_version;               /* major*1000 + minor*10 */
    const char *nvrtc_archs;         /* "sm_80 sm_90 ...": the targets it knows, NULL if none */
    const char *cache_dir;           /* NULL if there is no writable cache */
    const char *cache_readonly_dirs; /* ':'-separated, "" if none */
    uint64_t cache_bytes;            /* size of cache_dir */
    uint64_t cache_entries;
    uint64_t cache_max_bytes;
    int num_devices; /* CUDA devices, 0 if none or no driver */
} attns_info;

/* Opens libcuda and libnvrtc if they are not yet open. Strings belong to the context. */
ATTNS_API attns_status attns_get_info(attns_context *ctx, attns_info *info);

typedef struct attns_device_info {
    char name[256];
    char arch[16];          /* the target its kernels are compiled for, "" if the device is not supported */
    int compute_capability; /* 90 for 9.0 */
    int num_sms;
    int l2_bytes;
    int shared_bytes_per_sm;
    uint64_t memory_bytes;
} attns_device_info;

/* Describes device `ordinal` (0 .. num_devices-1). */
ATTNS_API attns_status attns_get_device_info(attns_context *ctx, int ordinal, attns_device_info *info);

#ifdef __cplusplus
}
#endif

#endif
