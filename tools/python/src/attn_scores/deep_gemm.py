# SPDX-License-Identifier: MIT
"""The paged MQA logits calls in the shape that DeepGEMM gives them, for the callers of ``deep_gemm``.

    from attn_scores.deep_gemm import fp8_paged_mqa_logits, get_paged_mqa_logits_metadata

Names, arguments and defaults are those of DeepGEMM 2.6 (csrc/apis/attention.hpp). What it asserts and this library does
not need is accepted: every architecture, head count and block size of attn_scores.fp8_paged_mqa_logits, 1-D context
lengths, clean_logits, no schedule. All tensors are torch tensors.
"""
from __future__ import annotations

from . import _dtypes, _logits, ops
from .errors import InvalidArgumentError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

_ROW_BYTES = 1024  # DeepGEMM's rows of scores start at multiples of this, and callers build on it
_new_output = _logits.Allocator({code: _ROW_BYTES * 8 // bits for code, (_, bits) in _dtypes.DL_TYPES.items()},
                                "max_context_len", "logits_dtype")


def get_num_sms() -> int:
    """SMs of torch's current CUDA device."""
    import torch

    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def _check_indices(indices: Any, rows: int, next_n: int) -> None:
    """`indices` names the request of each row, so that a kernel may read the KV of neighbours once. Scores do not
    depend on it: every row has a context length and a block table row of its own."""
    if indices is None:
        return
    if next_n != 1:
        raise UnsupportedError(f"indices: given with next_n {next_n}, accepted: next_n 1, a row for each token")
    if str(indices.dtype) != "torch.int32" or tuple(indices.shape) != (rows,):
        raise InvalidArgumentError(
            f"indices: is {indices.dtype} of shape {tuple(indices.shape)}, accepted: torch.int32 of shape {(rows,)}")


def get_paged_mqa_logits_metadata(context_lens: Any, block_kv: int, num_sms: int, indices: Any = None) -> Any:
    """The schedule for ``schedule_meta``: [num_sms+1, 2] int32, opaque.

    Args:
        context_lens: [B, next_n] int32, each slot's own length; or [B].
        block_kv: tokens of a KV block; the schedule does not depend on it.
        num_sms: shares to cut into.
        indices: [B] int32 with next_n 1: the request of each row. Checked, and not needed: rows of one request are
            scored one by one, so that its keys are read once for each of them.
    """
    import torch

    next_n = context_lens.shape[1] if context_lens.dim() == 2 else 1
    _check_indices(indices, context_lens.shape[0], next_n)
    out = torch.empty((num_sms + 1, 2), dtype=torch.int32, device=context_lens.device)
    return ops.compute_paged_mqa_logits_schedule(context_lens, out=out, next_n=next_n)


def fp8_fp4_paged_mqa_logits(q: Tuple[Any, Optional[Any]], kv_cache: Any, weights: Any, context_lens: Any,
                             block_table: Any, schedule_meta: Any, max_context_len: int, clean_logits: bool = False,
                             logits_dtype: Any = "float32", indices: Any = None) -> Any:
    """Scores of FP8 queries against an FP8 cache, or of MXFP4 queries against an MXFP4 cache.

    Args:
        q: (values, scales): [B, next_n, H, D] float8_e4m3fn and None; or [B, next_n, H, D/2] int8 or uint8, two E2M1
            values in a byte, and [B, next_n, H] int32, four UE8M0 scales in each.
        kv_cache: [num_blocks, block_kv, 1, D+4] uint8, or [num_blocks, block_kv, 1, D/2 + D/32]: values, then scales.
        weights: [B*next_n, H] float32.
        context_lens: [B, next_n] int32, each slot's own length; or [B], as in attn_scores.fp8_paged_mqa_logits.
        block_table: [B, W] int32.
        schedule_meta: of get_paged_mqa_logits_metadata, or None.
        max_context_len: columns of the result; upper bound of context_lens.
        clean_logits: -inf in the columns that a row does not see, in the same launch.
        logits_dtype: float32, bfloat16 or float16.
        indices: as in get_paged_mqa_logits_metadata.

    Returns:
        [B*next_n, max_context_len], a view of new storage whose rows start at multiples of 1024 bytes.
    """
    values, scales = q
    if indices is not None and values.dim() == 4:
        _check_indices(indices, *values.shape[:2])
    out = _new_output(values, max_context_len, logits_dtype)
    if scales is None:
        return ops.fp8_paged_mqa_logits(
            values, kv_cache, weights, block_table, context_lens, max_context_len, output_dtype=logits_dtype,
            schedule_meta=schedule_meta, out=out, clean_logits=clean_logits)
    if str(values.dtype) == "torch.float8_e4m3fn":
        raise UnsupportedError("q: is float8_e4m3fn with scales, accepted: scales with packed FP4 values only")
    if str(values.dtype) == "torch.int8":
        import torch

        values = values.view(torch.uint8)
    return ops.fp4_paged_mqa_logits(
        values, scales, kv_cache, weights, block_table, context_lens, max_context_len, output_dtype=logits_dtype,
        schedule_meta=schedule_meta, out=out, clean_logits=clean_logits)


def fp8_paged_mqa_logits(q: Any, kv_cache: Any, weights: Any, context_lens: Any, block_table: Any, schedule_meta: Any,
                         max_context_len: int, clean_logits: bool = False, logits_dtype: Any = "float32",
                         indices: Any = None) -> Any:
    """fp8_fp4_paged_mqa_logits with FP8 queries, q being the tensor alone."""
    if indices is not None and q.dim() == 4:
        _check_indices(indices, *q.shape[:2])
    return ops.fp8_paged_mqa_logits(
        q, kv_cache, weights, block_table, context_lens, max_context_len, output_dtype=logits_dtype,
        schedule_meta=schedule_meta, out=_new_output(q, max_context_len, logits_dtype), clean_logits=clean_logits)
