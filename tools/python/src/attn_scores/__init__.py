# SPDX-License-Identifier: MIT
"""Attention scores for sparse-attention indexers: libattn_scores for Python.

    import attn_scores

    logits = attn_scores.fp8_paged_mqa_logits(q, kv_fused, weights, block_tables, seq_lens, max_seq_len)

The functions have the names and arguments of FlashInfer's; attn_scores.deep_gemm has those of DeepGEMM,
attn_scores.torch_ops registers torch operators for torch.compile. Importing this package imports neither torch nor
numpy and does not open the C library; the first call does.
"""
from __future__ import annotations

from ._context import Context, default_context, set_default_context
from ._precompile import precompile_paged_mqa_logits
from .errors import (
    AttnScoresError, CompileError, CudaError, FileError, InternalError, InvalidArgumentError, LibraryNotFoundError,
    OutOfMemoryError, UnsupportedDeviceError, UnsupportedError, WouldCompileError,
)
from .ops import (
    compute_paged_mqa_logits_schedule, fp4_paged_mqa_logits, fp8_paged_mqa_logits, indexer_scores,
    min_block_table_width, padded_seq_len,
)

TYPE_CHECKING = False  # what type checkers take for true; the module typing is half of the time of an import
if TYPE_CHECKING:
    from ._records import Counters, Precompiled

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in ("Counters", "Precompiled"):
        from . import _records

        return getattr(_records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def library_version() -> str:
    """The version of the C library that is loaded."""
    from . import _library

    return _library.load().attns_version().decode()


__all__ = [
    "AttnScoresError", "CompileError", "Context", "Counters", "CudaError", "FileError", "InternalError",
    "InvalidArgumentError", "LibraryNotFoundError", "OutOfMemoryError", "Precompiled", "UnsupportedDeviceError",
    "UnsupportedError", "WouldCompileError", "compute_paged_mqa_logits_schedule", "default_context",
    "fp4_paged_mqa_logits", "fp8_paged_mqa_logits", "indexer_scores", "library_version", "min_block_table_width",
    "padded_seq_len", "precompile_paged_mqa_logits", "set_default_context",
]
