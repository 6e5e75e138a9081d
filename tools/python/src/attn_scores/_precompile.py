# SPDX-License-Identifier: MIT
"""Filling the kernel cache."""
from __future__ import annotations

import ctypes

from . import _abi, _dtypes, _library
from ._context import Context, default_context
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence, Tuple

    from ._records import Precompiled

_SOURCES = {1: "compiler", 2: "disk", 3: "memory"}


def _archs(device: Any, context: Context) -> Tuple[str, ...]:
    """The target of a device given as a torch.device, "cuda:1" or 1."""
    text = str(device)
    kind, _, number = text.partition(":")
    if text.isdigit():
        kind, number = "cuda", text
    if kind != "cuda" or (number and not number.isdigit()):
        raise InvalidArgumentError(f"device: is {text}, accepted: a CUDA device")
    if not number:
        return ()
    return (context.device_info(int(number))["arch"],)


def precompile_paged_mqa_logits(device: Any = None, variants: Sequence[str] = ("fp8", "fp4"),
                                output_dtypes: Optional[Sequence[Any]] = None,
                                batch_sizes: Optional[Sequence[int]] = None, *,
                                archs: Optional[Sequence[str]] = None, num_heads: Sequence[int] = (64,),
                                head_dims: Sequence[int] = (128,), block_sizes: Sequence[int] = (32, 64, 128),
                                next_ns: Sequence[int] = (1, 2, 3, 4), jobs: int = 0,
                                progress: Optional[Callable[[int, int, Precompiled], None]] = None,
                                context: Optional[Context] = None) -> None:
    """Puts kernels into the cache, so that the calls that need them compile nothing: every combination of the lists.

    Needs NVRTC but, with ``archs``, no GPU: it can run in an image build. Compiles in parallel and returns when all is
    done. What the cache holds already is not compiled again. The kernel of compute_paged_mqa_logits_schedule comes
    along.

    Args:
        device: a CUDA device to compile for (torch.device, "cuda:1", an ordinal). None: all devices of this machine.
        variants: of "fp8", "fp4", "indexer_bf16", "indexer_nvfp4"; the last two are one kernel each.
        output_dtypes: None: float32 for fp8, bfloat16 and float32 for fp4.
        batch_sizes: accepted and not needed: kernels do not depend on the batch.
        archs: targets instead of devices: "sm_90a", ..., or "all" for each that NVRTC knows.
        num_heads, head_dims, block_sizes, next_ns: shapes, as in fp8_paged_mqa_logits.
        jobs: kernels compiled at a time; 0: one per CPU.
        progress: called as ``progress(done, total, kernel)`` after each kernel, from other threads, one at a time;
            counts anew for each of ``variants``.

    Raises:
        ValueError: a shape or dtype without a kernel, before anything is compiled for that variant. CompileError,
        LibraryNotFoundError: after all other kernels have been tried.
    """
    unknown = [name for name in variants if name not in _abi.VARIANTS]
    if unknown:
        raise InvalidArgumentError(f"variants: has {unknown}, accepted: {', '.join(_abi.VARIANTS)}")
    if archs is not None and device is not None:
        raise InvalidArgumentError("archs: given together with device, accepted: one of them")
    context = context or default_context()
    if device is not None:
        archs = _archs(device, context)
    from ._records import Precompiled

    errors = []  # of the callback, which must not raise into C

    def report(_user: Any, done: int, total: int, result: Any) -> None:
        try:
            entry = result.contents
            progress(done, total, Precompiled(  # type: ignore[misc]
                entry.kernel.decode(), entry.arch.decode(), "" if entry.status else _SOURCES.get(entry.source, ""),
                entry.cached, entry.seconds, entry.registers, entry.spill_bytes,
                entry.message.decode(errors="replace")))
        except BaseException as error:  # noqa: B902
            errors.append(error)

    for variant in variants:
        params = _abi.attns_precompile_params(jobs=jobs)
        if progress is not None:
            params.progress = _abi.PrecompileFunction(report)
        outputs = output_dtypes
        if outputs is None:
            outputs = ("bfloat16", "float32") if variant == "fp4" else ("float32",)
        codes = [_dtypes.code("output_dtypes", dtype) for dtype in outputs]
        _set_list(params, "archs", ctypes.c_char_p, [name.encode() for name in archs] if archs else None)
        _set_list(params, "variants", ctypes.c_int, [_abi.VARIANTS[variant]])
        _set_list(params, "out_dtypes", ctypes.c_int, codes)
        for name, values in (("num_heads", num_heads), ("head_dims", head_dims), ("block_sizes", block_sizes),
                             ("next_ns", next_ns)):
            _set_list(params, name, ctypes.c_int, list(values))
        _library.check(_library.load().attns_precompile_paged_mqa_logits(context.handle, ctypes.byref(params)))
        if errors:
            raise errors[0]


def _set_list(params: _abi.attns_precompile_params, name: str, kind: Any, values: Optional[list]) -> None:
    if values is None:
        return
    # A list without values must not be NULL, which would be the default.
    setattr(params, name, (kind * max(len(values), 1))(*values))
    setattr(params, f"num_{name}", len(values))
