# SPDX-License-Identifier: MIT
"""What the logits operations share: where the scores go."""
from __future__ import annotations

import ctypes
from _operator import index

from . import _abi, _call, _dtypes
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from ._context import Context

STORE_COLUMNS = 256  # what attns_padded_seq_len rounds up to


def padded(columns: int, multiple: int = STORE_COLUMNS) -> int:
    return -(-columns // multiple) * multiple


def check_max_seq_len(max_seq_len: Any, argument: str = "max_seq_len") -> int:
    try:
        value = index(max_seq_len)
    except TypeError:
        raise TypeError(f"{argument}: is {max_seq_len!r}, accepted: an int") from None
    if not 0 <= value < 2**31:
        raise InvalidArgumentError(f"{argument}: is {value}, accepted: 0 to {2**31 - 1}")
    return value


class Allocator:
    """Makes tensors for `out`: views [B*next_n, max_seq_len] of new storage whose rows have `multiples` of columns, for
    each attns_dtype its own."""

    def __init__(self, multiples: Dict[int, int], *arguments: str) -> None:
        self._multiples, self._arguments = multiples, arguments
        self._last: tuple = (None,) * 6  # what was asked for, and how it was made

    def __call__(self, q: Any, max_seq_len: int, dtype: Any) -> Any:
        """`max_seq_len` and `dtype` are what the caller gave as the arguments called so in the constructor. A q of
        another rank gets no rows: the library says what is wrong with it."""
        shape, asked_length, asked_dtype, torch_dtype, size, strides = self._last
        if q.shape != shape or max_seq_len != asked_length or dtype is not asked_dtype:
            length_argument, dtype_argument = self._arguments
            max_seq_len = check_max_seq_len(max_seq_len, length_argument)
            code = _dtypes.code(dtype_argument, dtype)
            torch_dtype = _call.load_torch().DTYPES[code]
            columns = padded(max_seq_len, self._multiples[code])
            size, strides = (count_rows(q) or 0, columns), (columns, 1)
            self._last = (q.shape, max_seq_len, dtype, torch_dtype, size, strides)
        # The quickest way that torch has: no kernel fills, no slice is parsed.
        storage = _call.torch_side.empty_strided(size, strides, dtype=torch_dtype, device=q.device)
        return storage if size[1] == max_seq_len else storage.as_strided((size[0], max_seq_len), strides)


def count_rows(q: Any) -> Optional[int]:
    """B*next_n; None if q has another rank than 4."""
    try:
        batch, next_n, _, _ = q.shape
    except ValueError:
        return None
    return batch * next_n


new_output = Allocator(dict.fromkeys(_dtypes.NAMES, STORE_COLUMNS), "max_seq_len", "output_dtype")


def fit_output(q: Any, out: Any, max_seq_len: int) -> Any:
    """The [B*next_n, max_seq_len] view of `out`; `out` itself where that is its shape or where it is too small, for the
    library to say so."""
    rows, given = count_rows(q), out.shape
    if rows is None or len(given) != 2 or given[0] < rows or given[1] < max_seq_len or given == (rows, max_seq_len):
        return out
    return out.as_strided((rows, max_seq_len), out.stride())


def _check_dtype(out: Any, dtype: Any) -> None:
    if out.dtype is not dtype:
        raise InvalidArgumentError(f"out: dtype is {out.dtype}, accepted: {dtype} (output_dtype)")


class LogitsCall(_call.Call):
    """A call whose last tensor is `out`, which may be None, and whose first options are max_seq_len and output_dtype.
    Returns the view that was written. `convert` gets these options too, max_seq_len checked."""

    def set_options(self, frame: Any, options: tuple) -> None:
        frame.options = None
        checked = (check_max_seq_len(options[0]), *options[1:])
        self.write_options(frame.params, self.convert(checked))
        frame.set_out_dtype(_dtypes.code("output_dtype", options[1]))
        frame.options, frame.first_type = options, int

    def ended(self, status: int, context: Optional[Context], tensors: tuple, options: tuple,
              stream: Optional[int]) -> Any:
        if status == _abi.OUT_IN_PART:
            out = tensors[-1]
            return out.as_strided((count_rows(tensors[0]), options[0]), out.stride())
        if status == _abi.OUT_DTYPE:
            _check_dtype(tensors[-1], _call.torch_side.DTYPES[_dtypes.code("output_dtype", options[1])])
        return super().ended(status, context, tensors, options, stream)

    def run_other(self, context: Optional[Context], tensors: tuple, options: tuple, stream: Optional[int]) -> Any:
        q, out = tensors[0], tensors[-1]
        if out is None and type(q) is _call.Tensor:
            out = new_output(q, options[0], options[1])
            return self.run(context, (*tensors[:-1], out), options, stream)
        max_seq_len, code = check_max_seq_len(options[0]), _dtypes.code("output_dtype", options[1])
        if _call.is_first_torch(tensors):
            return self.run(context, tensors, options, stream)
        options = (max_seq_len, *options[1:])
        if _call.is_torch(q) and (out is None or _call.is_torch(out)):
            dtype = _call.torch_side.DTYPES[code]
            if out is None:
                out = new_output(q, max_seq_len, dtype)
            _check_dtype(out, dtype)
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
