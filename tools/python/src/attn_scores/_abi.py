# SPDX-License-Identifier: MIT
"""include/attn_scores/attn_scores.h and python.h as ctypes declarations, and DLPack's structs.

Pointers to tensors are plain addresses (c_void_p), so that setting one makes no Python object. tests/test_abi.py
compares every offset with what a C compiler makes of the headers.
"""
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8,
    c_uint16, c_uint32, c_uint64, c_void_p, py_object,
)

VERSION = (0, 1)  # ATTNS_VERSION_MAJOR and _MINOR that the structs below are of

F32, F16, BF16 = 1, 2, 3  # attns_dtype
VARIANTS = {"fp8": 1, "fp4": 2, "indexer_bf16": 3, "indexer_nvfp4": 4}  # attns_variant

DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED = 1, 2, 3, 13
DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 0, 1, 2, 4


# ---- DLPack (dmlc/dlpack, include/dlpack/dlpack.h, versions 0.6 to 1.3) ----------------------------------------------


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p), ("device", DLDevice), ("ndim", c_int32), ("dtype", DLDataType),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]


class DLManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class DLPackVersion(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [
        ("version", DLPackVersion), ("manager_ctx", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


class DLPackExchangeAPI(Structure):
    """A framework's table of C functions, the capsule __dlpack_c_exchange_api__ of its tensor type (DLPack 1.3)."""

    _fields_ = [
        ("version", DLPackVersion), ("prev_api", c_void_p),
        ("managed_tensor_allocator", c_void_p), ("managed_tensor_from_py_object_no_sync", c_void_p),
        ("managed_tensor_to_py_object_no_sync", c_void_p), ("dltensor_from_py_object_no_sync", c_void_p),
        ("current_work_stream", c_void_p),
    ]


FLAG_READ_ONLY, FLAG_IS_COPIED = 1, 2

# ---- attn_scores.h ---------------------------------------------------------------------------------------------------

LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class attns_context_params(Structure):
    _fields_ = [
        ("log", LogFunction), ("log_user", c_void_p), ("log_level", c_int),
        ("libcuda_path", c_char_p), ("libnvrtc_path", c_char_p), ("template_dir", c_char_p), ("dump_dir", c_char_p),
        ("cache_dir", c_char_p), ("cache_readonly_dirs", c_char_p), ("cache_max_bytes", c_uint64),
        ("cache_shared", c_bool),
        ("allow_compile_in_capture", c_bool), ("forbid_compile", c_bool), ("compile_threads", c_int),
        ("record_path", c_char_p), ("load_ptx", c_bool), ("kernel_family", c_char_p), ("arch", c_char_p),
    ]


class attns_counters(Structure):
    _fields_ = [(name, c_uint64) for name in ("compiles", "disk_hits", "memory_hits", "module_loads")]


class attns_fp8_paged_mqa_logits_params(Structure):
    _fields_ = [
        ("q", c_void_p), ("kv_fused", c_void_p), ("weights", c_void_p), ("block_tables", c_void_p),
        ("seq_lens", c_void_p), ("schedule_meta", c_void_p), ("out", c_void_p), ("max_seq_len", c_int64),
        ("acc_dtype", c_int), ("epi_dtype", c_int), ("clean_logits", c_bool), ("enable_pdl", c_bool),
    ]


class attns_fp4_paged_mqa_logits_params(Structure):
    _fields_ = [
        ("q", c_void_p), ("q_sf", c_void_p), ("kv_fused", c_void_p), ("weights", c_void_p),
        ("block_tables", c_void_p), ("seq_lens", c_void_p), ("schedule_meta", c_void_p), ("out", c_void_p),
        ("max_seq_len", c_int64), ("sf_vec_size", c_int64), ("is_kv_sf_interleaved", c_bool),
        ("clean_logits", c_bool), ("enable_pdl", c_bool),
    ]


class attns_schedule_params(Structure):
    _fields_ = [("seq_lens", c_void_p), ("schedule_meta", c_void_p), ("variant", c_int), ("next_n", c_int64)]


class attns_indexer_scores_params(Structure):
    _fields_ = [
        ("query", c_void_p), ("query_scales", c_void_p), ("key_cache", c_void_p), ("key_scales", c_void_p),
        ("block_table", c_void_p), ("context_lengths", c_void_p), ("requests", c_void_p), ("scores", c_void_p),
        ("enable_pdl", c_bool),
    ]


class attns_precompile_result(Structure):
    _fields_ = [
        ("kernel", c_char_p), ("arch", c_char_p), ("status", c_int), ("source", c_int), ("cached", c_bool),
        ("seconds", c_double), ("registers", c_int), ("spill_bytes", c_int), ("message", c_char_p),
    ]


PrecompileFunction = CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, POINTER(attns_precompile_result))


class attns_precompile_params(Structure):
    _fields_ = [
        ("archs", POINTER(c_char_p)), ("num_archs", c_size_t),
        ("variants", POINTER(c_int)), ("num_variants", c_size_t),
        ("num_heads", POINTER(c_int)), ("num_num_heads", c_size_t),
        ("head_dims", POINTER(c_int)), ("num_head_dims", c_size_t),
        ("block_sizes", POINTER(c_int)), ("num_block_sizes", c_size_t),
        ("next_ns", POINTER(c_int)), ("num_next_ns", c_size_t),
        ("out_dtypes", POINTER(c_int)), ("num_out_dtypes", c_size_t),
        ("acc_dtypes", POINTER(c_int)), ("num_acc_dtypes", c_size_t),
        ("epi_dtypes", POINTER(c_int)), ("num_epi_dtypes", c_size_t),
        ("kv_sf_interleaved", POINTER(c_bool)), ("num_kv_sf_interleaved", c_size_t),
        ("kernels", POINTER(c_char_p)), ("num_kernels", c_size_t),
        ("jobs", c_int), ("progress", PrecompileFunction), ("progress_user", c_void_p),
    ]


class attns_info(Structure):
    _fields_ = [
        ("libcuda", c_char_p), ("libcuda_error", c_char_p), ("driver_version", c_int),
        ("libnvrtc", c_char_p), ("libnvrtc_error", c_char_p), ("nvrtc_version", c_int), ("nvrtc_archs", c_char_p),
        ("cache_dir", c_char_p), ("cache_readonly_dirs", c_char_p), ("cache_bytes", c_uint64),
        ("cache_entries", c_uint64), ("cache_max_bytes", c_uint64), ("num_devices", c_int),
    ]


class attns_device_info(Structure):
    _fields_ = [
        ("name", c_char * 256), ("arch", c_char * 16), ("compute_capability", c_int), ("num_sms", c_int),
        ("l2_bytes", c_int), ("shared_bytes_per_sm", c_int), ("memory_bytes", c_uint64),
    ]


# ---- python.h --------------------------------------------------------------------------------------------------------

OPERATIONS = {  # attns_operation
    "attns_fp8_paged_mqa_logits": 1, "attns_fp4_paged_mqa_logits": 2, "attns_compute_paged_mqa_logits_schedule": 3,
    "attns_indexer_scores": 4,
}
OUT_IN_PART, OUT_DTYPE = -1, -2  # ATTNS_PYTHON_*


class attns_python_api(Structure):
    _fields_ = [(name, c_void_p) for name in (
        "capsule_new", "capsule_get_pointer", "cfunction_new", "long_from_long", "dec_ref", "eval_save_thread",
        "eval_restore_thread")]


class attns_python_call(Structure):
    _fields_ = [
        ("operation", c_int), ("params", c_void_p), ("ctx", c_void_p), ("stream", c_void_p), ("describe", c_void_p),
        ("current_stream", c_void_p), ("tensors", c_void_p), ("count", c_size_t), ("out_dtype", DLDataType),
    ]


# ---- Functions -------------------------------------------------------------------------------------------------------

# name: (result, arguments)
FUNCTIONS = {
    "attns_status_string": (c_char_p, [c_int]),
    "attns_last_error": (c_char_p, []),
    "attns_version": (c_char_p, []),
    "attns_context_create": (c_int, [POINTER(c_void_p), POINTER(attns_context_params)]),
    "attns_context_destroy": (None, [c_void_p]),
    "attns_get_counters": (None, [c_void_p, POINTER(attns_counters)]),
    "attns_min_block_table_width": (c_int64, [c_int64, c_int64]),
    "attns_padded_seq_len": (c_int64, [c_int64]),
    "attns_fp8_paged_mqa_logits": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attns_fp4_paged_mqa_logits": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attns_compute_paged_mqa_logits_schedule": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attns_indexer_scores": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attns_precompile_paged_mqa_logits": (c_int, [c_void_p, POINTER(attns_precompile_params)]),
    "attns_python_bind": (None, [POINTER(attns_python_api)]),
    "attns_python_function": (py_object, [c_void_p]),
    "attns_get_info": (c_int, [c_void_p, POINTER(attns_info)]),
    "attns_get_device_info": (c_int, [c_void_p, c_int, POINTER(attns_device_info)]),
}
