# SPDX-License-Identifier: MIT
"""The operations, under the names and with the arguments that FlashInfer gives them (flashinfer.attn_scores,
flashinfer.sdsa). What is added here is keyword-only and has a default that changes nothing.

Tensors are torch tensors, or any objects with ``__dlpack__`` whose memory a CUDA device can reach. Nothing is ever
copied. Calls with torch tensors are queued on torch's current stream of the tensors' device, others on the legacy
default stream, unless ``stream`` (a CUstream handle, an int) is given. The first call of a configuration reads its
kernel from a cache or compiles it. Later calls never synchronise, may be captured in a CUDA graph, and with ``out=``
allocate no device memory.

Wrong arguments raise InvalidArgumentError or UnsupportedError (both are ValueError) before anything is launched; their
message names the argument, what was given and what is accepted. An object that is no tensor raises TypeError.
"""
from __future__ import annotations

from . import _abi, _dtypes, _library
from ._call import Call, is_torch
from ._logits import LogitsCall
from .errors import InvalidArgumentError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ._context import Context


def _fp8_options(options: tuple) -> tuple:
    max_seq_len, _, epi_dtype, acc_dtype, clean_logits, enable_pdl = options
    return (max_seq_len, _dtypes.code("acc_dtype", acc_dtype), _dtypes.code("epi_dtype", epi_dtype), clean_logits,
            enable_pdl)


def _fp4_options(options: tuple) -> tuple:
    max_seq_len, _, epi_dtype, *others = options
    if _dtypes.code("epi_dtype", epi_dtype) != _abi.F32:
        raise UnsupportedError(f"epi_dtype: is {epi_dtype}, accepted: float32")
    return (max_seq_len, *others)


_FP8 = ("attns_fp8_paged_mqa_logits", _abi.attns_fp8_paged_mqa_logits_params)
_FP8_TENSORS = ("q", "kv_fused", "weights", "block_tables", "seq_lens")
_FP8_FIELDS = ("max_seq_len", "acc_dtype", "epi_dtype", "clean_logits", "enable_pdl")
_FP4 = ("attns_fp4_paged_mqa_logits", _abi.attns_fp4_paged_mqa_logits_params)
_FP4_TENSORS = ("q", "q_sf", "kv_fused", "weights", "block_tables", "seq_lens")
_FP4_FIELDS = ("max_seq_len", "sf_vec_size", "is_kv_sf_interleaved", "clean_logits", "enable_pdl")

fp8_call = LogitsCall(*_FP8, (*_FP8_TENSORS, "out"), _FP8_FIELDS, ("out",), convert=_fp8_options)
fp8_scheduled_call = LogitsCall(*_FP8, (*_FP8_TENSORS, "schedule_meta", "out"), _FP8_FIELDS, ("out",),
                                convert=_fp8_options)
fp4_call = LogitsCall(*_FP4, (*_FP4_TENSORS, "out"), _FP4_FIELDS, ("out",), convert=_fp4_options)
fp4_scheduled_call = LogitsCall(*_FP4, (*_FP4_TENSORS, "schedule_meta", "out"), _FP4_FIELDS, ("out",),
                                convert=_fp4_options)
_schedule_call = Call("attns_compute_paged_mqa_logits_schedule", _abi.attns_schedule_params,
                      ("seq_lens", "schedule_meta"), ("variant", "next_n"), ("schedule_meta",),
                      {"schedule_meta": "out"})
_INDEXER = ("query", "key_cache", "block_table", "context_lengths", "requests", "scores")
_indexer_calls = {
    fields: Call("attns_indexer_scores", _abi.attns_indexer_scores_params, _INDEXER + fields, ("enable_pdl",),
                 ("scores",))
    for fields in ((), ("query_scales",), ("key_scales",), ("query_scales", "key_scales"))
}


def min_block_table_width(seq_len: int, block_size: int) -> int:
    """Columns of a block table that a request of ``seq_len`` tokens needs: ceil(seq_len / block_size)."""
    return _library.load().attns_min_block_table_width(seq_len, block_size)


def padded_seq_len(max_seq_len: int) -> int:
    """Recommended columns of ``out``: ``max_seq_len`` rounded up to a multiple of 256. No more than ``max_seq_len`` are
    needed here; FlashInfer's and DeepGEMM's kernels need the padding."""
    return _library.load().attns_padded_seq_len(max_seq_len)


def fp8_paged_mqa_logits(q: Any, kv_fused: Any, weights: Any, block_tables: Any, seq_lens: Any, max_seq_len: int, *,
                         output_dtype: Any = "float32", epi_dtype: Any = "float32", acc_dtype: Any = "float32",
                         schedule_meta: Any = None, out: Any = None, clean_logits: bool = False,
                         enable_pdl: bool = False, stream: Optional[int] = None,
                         context: Optional[Context] = None) -> Any:
    """``logits[b*next_n + t, p] = scale[p] * sum_h weights[b*next_n + t, h] * relu(q[b,t,h,:] . k[p,:])``

    Args:
        q: [B, next_n, H, D] float8_e4m3fn, or uint8 that holds its bytes. next_n is 1 to 8, H a multiple of 8 up to
            128, D 32, 64 or 128.
        kv_fused: [num_blocks, block_size, 1, D+4] uint8, block_size 16, 32, 64, 128 or 256. Inside a block:
            block_size*D bytes of values, token-major, then block_size float32 scales. Blocks may be any multiple of 16
            bytes apart.
        weights: [B*next_n, H] float32.
        block_tables: [B, W] int32, W >= ceil(max_seq_len / block_size) as a rule; any row stride. An id outside
            [0, num_blocks) reads as zeros.
        seq_lens: [B] int32, any stride: the tokens that the newest slot sees; slot t sees
            ``seq_lens[b] - next_n + 1 + t``. Or [B, next_n]: each slot's own number.
        max_seq_len: upper bound of seq_lens; larger lengths are clamped.
        output_dtype: float32, float16 or bfloat16, as a torch dtype or a string; also the dtype of ``out``.
        epi_dtype: of ReLU, weights and head sum: float32 or float16.
        acc_dtype: of the tensor-core accumulator: float32 or float16.
        schedule_meta: [num_sms+1, 2] int32 from compute_paged_mqa_logits_schedule; None: the kernel schedules itself.
        out: at least [B*next_n, max_seq_len], inner stride 1, rows that do not overlap. None: allocated, with
            padded_seq_len(max_seq_len) columns (torch only).
        clean_logits: also write -inf from what a row's slot sees to max_seq_len, in the same launch.
        enable_pdl: programmatic dependent launch.
        stream: CUstream handle; None: torch's current stream.
        context: None: the default one.

    Returns:
        [B*next_n, max_seq_len], a view of ``out`` (``out`` itself where that is its shape). Row ``b*next_n + t`` is
        written in exactly the columns that its slot sees; without clean_logits the others keep what they held.

    Raises:
        ValueError: a wrong argument. WouldCompileError: the stream is being captured and the kernel is in no cache.
        UnsupportedDeviceError, LibraryNotFoundError, CompileError, CudaError: see attn_scores.errors.
    """
    options = (max_seq_len, output_dtype, epi_dtype, acc_dtype, clean_logits, enable_pdl)
    if schedule_meta is None:
        return fp8_call.run(context, (q, kv_fused, weights, block_tables, seq_lens, out), options, stream)
    return fp8_scheduled_call.run(
        context, (q, kv_fused, weights, block_tables, seq_lens, schedule_meta, out), options, stream)


def fp4_paged_mqa_logits(q: Any, q_sf: Any, kv_fused: Any, weights: Any, block_tables: Any, seq_lens: Any,
                         max_seq_len: int, *, sf_vec_size: int = 32, output_dtype: Any = "bfloat16",
                         epi_dtype: Any = "float32", is_kv_sf_interleaved: bool = False, schedule_meta: Any = None,
                         out: Any = None, clean_logits: bool = False, enable_pdl: bool = False,
                         stream: Optional[int] = None, context: Optional[Context] = None) -> Any:
    """``logits[b*next_n + t, p] = sum_h weights[b*next_n + t, h] * relu(q[b,t,h,:] . k[p,:])`` with MXFP4 numbers: E2M1
    values, two in a byte, the lower nibble first, and a UE8M0 scale for 32 of them.

    Arguments, return value and errors are those of fp8_paged_mqa_logits, except:

    Args:
        q: [B, next_n, H, D/2] uint8 or float4_e2m1fn_x2, D 64 or 128.
        q_sf: [B, next_n, H] int32: byte k, the least significant first, is the scale of dims [32k, 32k+32).
        kv_fused: [num_blocks, block_size, 1, D/2 + D/32] uint8. Inside a block: block_size*D/2 bytes of values,
            token-major, then D/32 scale bytes for each token.
        sf_vec_size: 32.
        epi_dtype: float32 only.
        is_kv_sf_interleaved: with block_size 128 only: slot k of a block's scales holds those of token
            ``(k % 4) * 32 + k // 4``.
    """
    options = (max_seq_len, output_dtype, epi_dtype, sf_vec_size, is_kv_sf_interleaved, clean_logits, enable_pdl)
    if schedule_meta is None:
        return fp4_call.run(context, (q, q_sf, kv_fused, weights, block_tables, seq_lens, out), options, stream)
    return fp4_scheduled_call.run(
        context, (q, q_sf, kv_fused, weights, block_tables, seq_lens, schedule_meta, out), options, stream)


def compute_paged_mqa_logits_schedule(seq_lens: Any, device: Any = None, *, next_n: int = 1, variant: str = "fp8",
                                      use_gpu_kernel: bool = True, out: Any = None, num_sms: Optional[int] = None,
                                      stream: Optional[int] = None, context: Optional[Context] = None) -> Any:
    """Cuts the work of a batch into num_sms equal shares, for ``schedule_meta`` of the logits calls.

    The result is opaque. It may be used again while the contents of seq_lens stay the same; a stale one costs time or
    missing scores, never a hang.

    Args:
        seq_lens: [B] or [B, next_n] int32, any strides, on a CUDA device or in host memory.
        device: where the result is wanted. None: seq_lens' device, or torch's current CUDA device for a seq_lens in
            host memory.
        next_n: of the call that will use it; a 2-D seq_lens knows it.
        variant: "fp8" or "fp4".
        use_gpu_kernel: False: compute on the CPU, with a copy to the host and back (torch only). The bits are the same.
        out: [num_sms+1, 2] int32, dense. None: allocated (torch only).
        num_sms: shares; None: those of ``out``, else the device's number of SMs. Any number works on any device.

    Returns:
        [num_sms+1, 2] int32 on ``device``; ``out`` if it was given.
    """
    if variant not in ("fp8", "fp4"):
        raise InvalidArgumentError(f"variant: is {variant!r}, accepted: 'fp8' or 'fp4'")
    if next_n < 1:
        raise InvalidArgumentError(f"next_n: is {next_n}, accepted: 1 to 8")
    # 0 is 1, or what a 2-D seq_lens says.
    options = (_abi.VARIANTS[variant], 0 if next_n == 1 else next_n)
    if not is_torch(seq_lens):
        if out is None:
            raise InvalidArgumentError(
                "out: is None, accepted: a tensor [num_sms+1, 2]; it can be left out with torch tensors only")
        _schedule_call.run(context, (seq_lens, out), options, stream)
        return out
    if device is None and use_gpu_kernel and num_sms is None and is_torch(out):
        if seq_lens.get_device() == out.get_device():  # as a rule; below is the same with more checks
            _schedule_call.run(context, (seq_lens, out), options, stream)
            return out

    import torch

    if device is None:
        device = seq_lens.device if seq_lens.is_cuda else out.device if out is not None else "cuda"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if seq_lens.is_cuda and seq_lens.device != device:
        raise InvalidArgumentError(f"device: is {device}, accepted: {seq_lens.device} (of seq_lens)")
    if out is not None and is_torch(out) and out.device != device:
        raise InvalidArgumentError(f"out: is on {out.device}, accepted: {device}")
    if out is None:
        if num_sms is None:
            if device.type != "cuda":
                raise InvalidArgumentError(f"num_sms: is None, accepted: a number of shares (device is {device})")
            num_sms = torch.cuda.get_device_properties(device).multi_processor_count
        out = torch.empty((num_sms + 1, 2), dtype=torch.int32, device=device)
    elif num_sms is not None and tuple(out.shape) != (num_sms + 1, 2):
        raise InvalidArgumentError(f"out: shape is {tuple(out.shape)}, accepted: {(num_sms + 1, 2)} (num_sms+1, 2)")
    if seq_lens.device == device and (use_gpu_kernel or device.type == "cpu"):
        _schedule_call.run(context, (seq_lens, out), options, stream)
    else:
        on_host = torch.empty_like(out, device="cpu")
        _schedule_call.run(context, (seq_lens.cpu(), on_host), options, stream)
        out.copy_(on_host)
    return out


def indexer_scores(query: Any, key_cache: Any, block_table: Any, context_lengths: Any, *, requests: Any, scores: Any,
                   query_scales: Any = None, key_scales: Any = None, enable_pdl: bool = False,
                   stream: Optional[int] = None, context: Optional[Context] = None) -> None:
    """``scores[r, k] = query[r, :] . key k of row r's request``: one query head of 128 dims, no weight, no ReLU.

    Rows come in groups of rows/groups consecutive ones, 1 to 8; the rows of group g are scored against the keys of
    request ``requests[g]``.

    Args:
        query: [rows, 128] bfloat16, or NVFP4: [rows, 64] uint8 (E2M1, two in a byte, the even one in the low nibble).
        key_cache: [pages, 64, 128] bfloat16, or NVFP4: [pages, 64, 64] uint8. Pages any multiple of 16 bytes apart.
        block_table: [requests, blocks] int32: each request's pages of 64 keys; one outside [0, pages) reads as zeros.
        context_lengths: [groups] int32: each group's number of keys; clamped to max_context.
        requests: [groups] int32: each group's row of block_table; of a group of length 0 it may be anything.
        scores: [rows, max_context] float32, written in columns [0, length of the row's group).
        query_scales: NVFP4: [rows, 8] float8_e4m3fn or uint8, a scale for 16 values. BF16: None.
        key_scales: NVFP4: [pages, 64, 8], likewise. Pages any multiple of 8 bytes apart. BF16: None.
        enable_pdl, stream, context: as for fp8_paged_mqa_logits.
    """
    tensors: tuple = (query, key_cache, block_table, context_lengths, requests, scores)
    fields: tuple = ()
    if query_scales is not None:
        tensors, fields = (*tensors, query_scales), ("query_scales",)
    if key_scales is not None:
        tensors, fields = (*tensors, key_scales), (*fields, "key_scales")
    _indexer_calls[fields].run(context, tensors, (enable_pdl,), stream)
