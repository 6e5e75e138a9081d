# SPDX-License-Identifier: MIT
"""Attention scores for sparse-attention indexers: libattn_scores for Python.

    import attn_scores

    logits = attn_scores.fp8_paged_mqa_logits(q, kv_fused, weights, block_tables, seq_lens, max_seq_len)

The functions have the names and arguments of FlashInfer's; attn_scores.deep_gemm has those of DeepGEMM,
attn_scores.torch_ops registers torch operators for torch.compile. Importing this package imports nothing else, neither
torch nor numpy nor ctypes; the first call opens the C library.
"""
from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true
if TYPE_CHECKING:
    from . import errors as errors, ops as ops
    from ._context import Context, default_context, set_default_context
    from ._precompile import precompile_paged_mqa_logits
    from ._records import Counters, Precompiled
    from .errors import (
        AttnScoresError, CompileError, CudaError, FileError, InternalError, InvalidArgumentError, LibraryNotFoundError,
        OutOfMemoryError, UnsupportedDeviceError, UnsupportedError, WouldCompileError,
    )
    from .ops import (
        compute_paged_mqa_logits_schedule, fp4_paged_mqa_logits, fp8_paged_mqa_logits, indexer_scores,
        min_block_table_width, padded_seq_len,
    )

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Imports what is asked for, as ctypes and its structs take milliseconds."""
    if name in ("errors", "ops"):
        return __import__(f"{__name__}.{name}", fromlist=(name,))
    if name in __all__:
        for module in ("errors", "ops", "_context", "_precompile", "_records"):
            value = getattr(__import__(f"{__name__}.{module}", fromlist=(module,)), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), *__all__, "errors", "ops"})


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
