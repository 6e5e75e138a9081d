# SPDX-License-Identifier: MIT
"""What the logits operations share: where the scores go."""
from __future__ import annotations

import ctypes
from operator import index

from . import _abi, _call, _dtypes, _library
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from ._context import Context

STORE_COLUMNS = 256  # what attns_padded_seq_len rounds up to


def padded(columns: int, multiple: int = STORE_COLUMNS) -> int:
    return -(-columns // multiple) * multiple


def check_max_seq_len(max_seq_len: Any) -> int:
    try:
        value = index(max_seq_len)
    except TypeError:
        raise TypeError(f"max_seq_len: is {max_seq_len!r}, accepted: an int") from None
    if not 0 <= value < 2**31:
        raise InvalidArgumentError(f"max_seq_len: is {value}, accepted: 0 to {2**31 - 1}")
    return value


def new_rows(rows: int, columns: int, max_seq_len: int, dtype: Any, device: Any) -> Any:
    """The [rows, max_seq_len] view of a new torch tensor of `columns` columns."""
    # The quickest way that torch has: no kernel fills, no slice is parsed.
    storage = _call.torch_side.empty_strided((rows, columns), (columns, 1), dtype=dtype, device=device)
    return storage if columns == max_seq_len else storage.as_strided((rows, max_seq_len), (columns, 1))


def new_output(q: Any, max_seq_len: int, dtype: Any) -> Any:
    """[B*next_n, max_seq_len] in rows of padded_seq_len(max_seq_len). A q of another rank gets no rows: the library
    says what is wrong with it."""
    try:
        batch, next_n, _, _ = q.shape
    except ValueError:
        batch = next_n = 0
    return new_rows(batch * next_n, padded(max_seq_len), max_seq_len, dtype, q.device)


def fit_output(q: Any, out: Any, max_seq_len: int) -> Any:
    """The [B*next_n, max_seq_len] view of `out`; `out` itself where that is its shape or where it is too small, for the
    library to say so."""
    try:
        batch, next_n, _, _ = q.shape
    except ValueError:
        return out
    rows, given = batch * next_n, out.shape
    if given == (rows, max_seq_len) or len(given) != 2 or given[0] < rows or given[1] < max_seq_len:
        return out
    return out.as_strided((rows, max_seq_len), out.stride())


class LogitsCall(_call.Call):
    """A call whose last tensor is `out`, which may be None, and whose first options are max_seq_len and output_dtype.
    Returns the view that was written. `convert` gets these options too, max_seq_len checked."""

    fits = True

    def set_options(self, frame: _call.Frame, options: tuple) -> None:
        frame.options = frame.out_shape = None
        checked = (check_max_seq_len(options[0]), *options[1:])
        self.write_options(frame.params, self.convert(checked))
        frame.out_dtype = _call.torch_side.DTYPES[_dtypes.code("output_dtype", options[1])]
        frame.options, frame.first_type = options, int

    def fit(self, frame: _call.Frame, tensors: tuple, options: tuple) -> Any:
        out, dtype = tensors[-1], frame.out_dtype
        if out.dtype is not dtype:
            raise InvalidArgumentError(f"out: dtype is {out.dtype}, accepted: {dtype} (output_dtype)")
        max_seq_len = frame.params.max_seq_len
        fitted = fit_output(tensors[0], out, max_seq_len)
        if fitted is out and out.shape[1:] == (max_seq_len,):  # it is to be written as it is, or has too few rows
            frame.out_shape = out.shape
        return fitted

    def failed(self, status: int, context: Optional[Context], tensors: tuple, options: tuple,
               stream: Optional[int]) -> Any:
        # `out` was taken to fit, having the shape of the call before. It does not if q has fewer rows than then.
        fitted = fit_output(tensors[0], tensors[-1], check_max_seq_len(options[0]))
        if fitted is tensors[-1]:
            _library.raise_status(status)
        return self.run(context, (*tensors[:-1], fitted), options, stream)

    def run_other(self, context: Optional[Context], tensors: tuple, options: tuple, stream: Optional[int]) -> Any:
        max_seq_len, code = check_max_seq_len(options[0]), _dtypes.code("output_dtype", options[1])
        q, out = tensors[0], tensors[-1]
        if out is None and type(q) is _call.Tensor:
            out = new_output(q, max_seq_len, _call.torch_side.DTYPES[code])
            return self.run(context, (*tensors[:-1], out), options, stream)
        if _call.is_first_torch(tensors):
            return self.run(context, tensors, options, stream)
        options = (max_seq_len, *options[1:])
        if _call.is_torch(q) and (out is None or _call.is_torch(out)):
            dtype = _call.torch_side.DTYPES[code]
            if out is None:
                out = new_output(q, max_seq_len, dtype)
            elif out.dtype is not dtype:
                raise InvalidArgumentError(f"out: dtype is {out.dtype}, accepted: {dtype} (output_dtype)")
            out = fit_output(q, out, max_seq_len)
            self.run_any(context, (*tensors[:-1], out), options, stream)
            return out

        if out is None:
            raise InvalidArgumentError("out: is None, accepted: a tensor [B*next_n, >= max_seq_len]; it can be left "
                                       "out with torch tensors only")

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

        self.run_any(context, tensors, options, stream, clip)
        return out[:clipped[0], :max_seq_len] if clipped and hasattr(type(out), "__getitem__") else out
