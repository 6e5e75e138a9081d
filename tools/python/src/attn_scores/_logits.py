# SPDX-License-Identifier: MIT
"""What the logits operations share: where the scores go."""
import ctypes
from operator import index
from typing import Any, Dict, Optional

from . import _abi, _dtypes
from ._call import Call, is_torch, torch_path
from ._context import Context
from .errors import InvalidArgumentError

STORE_COLUMNS = 256  # what attns_padded_seq_len rounds up to


def padded(columns: int, multiple: int = STORE_COLUMNS) -> int:
    return -(-columns // multiple) * multiple


def _check_max_seq_len(max_seq_len: Any) -> int:
    try:
        value = index(max_seq_len)
    except TypeError:
        raise TypeError(f"max_seq_len: is {max_seq_len!r}, accepted: an int") from None
    if not 0 <= value < 2**31:
        raise InvalidArgumentError(f"max_seq_len: is {value}, accepted: 0 to {2**31 - 1}")
    return value


def torch_output(path: Any, q: Any, out: Any, max_seq_len: int, code: int, columns: Optional[int] = None) -> Any:
    """The [B*next_n, max_seq_len] view that a call with torch tensors writes and returns: of `out`, or of a new tensor
    of `columns` columns. `path` is the module _torch. A q of another rank gets no rows: the library says what is wrong
    with it."""
    try:
        batch, next_n, _, _ = q.shape
    except ValueError:
        batch = next_n = 0
    rows = batch * next_n
    dtype = path.DTYPES[code]
    if out is None:
        width = padded(max_seq_len) if columns is None else columns
        return q.new_empty((rows, width), dtype=dtype)[:, :max_seq_len]
    if out.dtype is not dtype:
        raise InvalidArgumentError(f"out: dtype is {out.dtype}, accepted: {dtype} (output_dtype)")
    given = out.shape
    if given == (rows, max_seq_len) or len(given) != 2 or given[0] < rows or given[1] < max_seq_len:
        return out
    return out.as_strided((rows, max_seq_len), out.stride())


def run(calls: Dict[bool, Call], context: Optional[Context], tensors: tuple, out: Any, schedule_meta: Any,
        max_seq_len: Any, output_dtype: Any, options: tuple, stream: Optional[int]) -> Any:
    """Runs the one of `calls`, without or with schedule_meta, whose tensors are `tensors`, out and, if it is given,
    schedule_meta, and whose options are max_seq_len and `options`. Returns the view that was written."""
    if type(max_seq_len) is not int or not 0 <= max_seq_len < 2**31:
        max_seq_len = _check_max_seq_len(max_seq_len)
    code = _dtypes.code("output_dtype", output_dtype)
    options = (max_seq_len, *options)
    path = torch_path((*tensors, out, schedule_meta))
    if path is not None:
        logits = torch_output(path, tensors[0], out, max_seq_len, code)
        if schedule_meta is None:
            calls[False].run_torch(path, context, (*tensors, logits), options, stream)
        else:
            calls[True].run_torch(path, context, (*tensors, logits, schedule_meta), options, stream)
        return logits
    call = calls[schedule_meta is not None]
    given = (*tensors, out) if schedule_meta is None else (*tensors, out, schedule_meta)
    if is_torch(tensors[0]) and (out is None or is_torch(out)):  # tensor subclasses
        from . import _torch

        logits = torch_output(_torch, tensors[0], out, max_seq_len, code)
        call.run_any(context, (*tensors, logits, *given[len(tensors) + 1:]), options, stream)
        return logits

    if out is None:
        raise InvalidArgumentError(
            "out: is None, accepted: a tensor [B*next_n, >= max_seq_len]; it can be left out with torch tensors only")

    clipped: list = []

    def clip(described: Dict[str, _abi.DLTensor]) -> None:
        q, target = described["q"], described["out"]
        if (target.dtype.code, target.dtype.bits) != _dtypes.DL_TYPES[code]:
            raise InvalidArgumentError(f"out: dtype is not that of output_dtype, accepted: {_dtypes.NAMES[code]}")
        if q.ndim != 4 or target.ndim != 2:
            return
        rows, width = q.shape[0] * q.shape[1], target.shape[1]
        if target.shape[0] < rows or width < max_seq_len:
            return
        if not target.strides:  # dense, which has to be said once rows are shorter than that
            target.strides = (ctypes.c_int64 * 2)(width, 1)
        target.shape = (ctypes.c_int64 * 2)(rows, max_seq_len)
        clipped.append(rows)

    call.run_any(context, given, options, stream, clip)
    return out[:clipped[0], :max_seq_len] if clipped and hasattr(type(out), "__getitem__") else out
