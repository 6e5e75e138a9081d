# SPDX-License-Identifier: MIT
"""torch tensors, without capsules: imported when a call is given one.

Newer versions of torch.Tensor offer DLPack's C exchange table (https://github.com/pytorch/pytorch/pull/165483), whose
dltensor_from_py_object_no_sync writes a DLTensor that refers to the tensor's own sizes and strides: no Python object
is made, and attn_scores/python.h needs no more of Python than one call. With an older torch the same struct is filled
from data_ptr(), shape and stride().
"""
from __future__ import annotations

import ctypes
import sys

import torch

from . import _abi, _dtypes, _library, _logits
from ._dlpack import capsule_pointer
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

DTYPES = {_abi.F32: torch.float32, _abi.F16: torch.float16, _abi.BF16: torch.bfloat16}

_DL_DTYPES: Dict[torch.dtype, Tuple[int, int, int]] = {
    torch.uint8: (1, 8, 1), torch.int8: (0, 8, 1), torch.int16: (0, 16, 1), torch.int32: (0, 32, 1),
    torch.int64: (0, 64, 1), torch.float16: (2, 16, 1), torch.float32: (2, 32, 1), torch.float64: (2, 64, 1),
    torch.bfloat16: (4, 16, 1), torch.bool: (6, 8, 1),
}
for _name, _type in (
        ("float8_e4m3fn", (10, 8, 1)), ("float8_e4m3fnuz", (11, 8, 1)), ("float8_e5m2", (12, 8, 1)),
        ("float8_e5m2fnuz", (13, 8, 1)), ("float8_e8m0fnu", (14, 8, 1)), ("float4_e2m1fn_x2", (17, 4, 2))):
    if hasattr(torch, _name):
        _DL_DTYPES[getattr(torch, _name)] = _type


class Slot:
    """A DLTensor and the arrays it points to. `signature` is what they were filled from."""

    __slots__ = ("tensor", "shape", "strides", "signature")

    def __init__(self) -> None:
        self.tensor = _abi.DLTensor()
        self.shape: Any = None
        self.strides: Any = None
        self.signature: Optional[tuple] = None

    @property
    def address(self) -> int:
        return ctypes.addressof(self.tensor)


def fill_slot(value: torch.Tensor, slot: Slot) -> None:
    """Describes `value` in `slot`. Only the address is new where nothing else has changed since the last time."""
    signature = (value.shape, value.stride(), value.dtype, value.device)
    if slot.signature != signature:
        _describe(slot, *signature)
        slot.signature = signature
    slot.tensor.data = value.data_ptr()


def _describe(slot: Slot, shape: Any, strides: Tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    if device.type not in ("cuda", "cpu"):
        raise InvalidArgumentError(f"a tensor is on {device}, accepted: cuda")
    if dtype not in _DL_DTYPES:
        raise InvalidArgumentError(f"a tensor is of dtype {dtype}, which has no DLPack type here")
    tensor = slot.tensor
    rank = len(shape)
    slot.shape, slot.strides = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
    tensor.ndim, tensor.shape, tensor.strides = rank, slot.shape, slot.strides
    tensor.dtype = _abi.DLDataType(*_DL_DTYPES[dtype])
    if device.type == "cuda":
        tensor.device = _abi.DLDevice(_abi.DL_CUDA, device.index or 0)
    else:
        tensor.device = _abi.DLDevice(_abi.DL_CPU, 0)


class SlotFrame:
    """A params struct that belongs to one call at a time, wired to its DLTensors, with any torch.

    Both kinds of frames have `params` and what the caller has last written there: `options` and `first_type`, `handle`
    and `stream`. `invoke` takes the tensors, and returns and raises what a function of python.h does.
    """

    __slots__ = ("params", "slots", "function", "options", "first_type", "handle", "stream", "_out_dtype")

    def __init__(self, name: str, struct: Any, fields: Tuple[str, ...]) -> None:
        self.params = struct()
        self.slots = [Slot() for _ in fields]
        for field, slot in zip(fields, self.slots):
            setattr(self.params, field, slot.address)
        self.function = getattr(_library.load(), name)
        self.options: Optional[tuple] = None
        self.first_type: Any = None
        self.handle: Any = None
        self.stream: Optional[int] = None
        self._out_dtype: Optional[int] = None

    def bind(self, handle: Any, stream: Optional[int]) -> None:
        """Says where calls are queued. `stream` is a CUstream handle; None: torch's current one."""
        self.handle, self.stream = handle, stream

    def set_out_dtype(self, code: int) -> None:
        """The last tensor is `out` of a logits operation, of this attns_dtype."""
        self._out_dtype = code

    def invoke(self, *tensors: torch.Tensor) -> int:
        part = None
        if self._out_dtype is not None:
            out = tensors[-1]
            if out.dtype is not DTYPES[self._out_dtype]:
                return _abi.OUT_DTYPE
            fitted = _logits.fit_output(tensors[0], out, self.params.max_seq_len)
            if fitted is not out:
                part = tensors = (*tensors[:-1], fitted)
        for value, slot in zip(tensors, self.slots):
            fill_slot(value, slot)
        stream = self.stream
        if stream is None:
            device = tensors[0].get_device()
            stream = raw_stream(device) if device >= 0 else 0
        status = self.function(self.handle, ctypes.byref(self.params), stream)
        return _abi.OUT_IN_PART if part and not status else status


class ExchangeFrame:
    """The same with torch's exchange table: one call into C describes the tensors, asks for the stream and does the
    rest."""

    __slots__ = ("params", "tensors", "call", "invoke", "options", "first_type", "handle", "stream")

    def __init__(self, name: str, struct: Any, fields: Tuple[str, ...]) -> None:
        self.params = struct()
        count = len(fields)
        self.tensors = (_abi.DLTensor * count)()
        first = ctypes.addressof(self.tensors)
        for number, field in enumerate(fields):
            setattr(self.params, field, first + number * ctypes.sizeof(_abi.DLTensor))
        self.call = _abi.attns_python_call(
            operation=_abi.OPERATIONS[name], params=ctypes.addressof(self.params), tensors=first, count=count,
            describe=exchange.dltensor_from_py_object_no_sync, current_stream=exchange.current_work_stream)
        self.invoke = _function(self.call)
        self.options: Optional[tuple] = None
        self.first_type: Any = None
        self.handle: Any = None
        self.stream: Optional[int] = None

    def bind(self, handle: Any, stream: Optional[int]) -> None:
        self.handle = None  # in case that `stream` is no number
        self.call.stream = stream
        self.call.current_stream = exchange.current_work_stream if stream is None else None
        self.call.ctx = handle
        self.handle, self.stream = handle, stream

    def set_out_dtype(self, code: int) -> None:
        self.call.out_dtype = _abi.DLDataType(*_dtypes.DL_TYPES[code], 1)


def new_frame(name: str, struct: Any, fields: Tuple[str, ...]) -> Any:
    """A frame for the function `name` of the library, whose tensors are those `fields` of `struct`."""
    return (SlotFrame if exchange is None else ExchangeFrame)(name, struct, fields)


def _exchange_table() -> Optional[_abi.DLPackExchangeAPI]:
    """torch's; None if this torch has none, or this Python is not that of python.h."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None or isinstance(capsule, int) or sys.implementation.name != "cpython":
        return None
    table = _abi.DLPackExchangeAPI.from_address(capsule_pointer(capsule, b"dlpack_exchange_api"))
    return table if table.version.major == 1 else None


exchange: Any = _exchange_table()
_new_function: Any = None


def _function(call: _abi.attns_python_call) -> Any:
    """What attns_python_function makes of `call`, which must live as long."""
    global _new_function
    if _new_function is None:
        library, python = _library.load(), ctypes.pythonapi
        library.attns_python_bind(ctypes.byref(_abi.attns_python_api(*(
            ctypes.cast(function, ctypes.c_void_p) for function in (
                python.PyCapsule_New, python.PyCapsule_GetPointer, python.PyCFunction_NewEx, python.PyLong_FromLong,
                python.Py_DecRef, python.PyEval_SaveThread, python.PyEval_RestoreThread)))))
        # A prototype that keeps the global lock and raises what Python's functions have set.
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)
        _new_function = prototype(("attns_python_function", library))
    return _new_function(ctypes.addressof(call))


def describe(value: torch.Tensor, tensor: _abi.DLTensor) -> None:
    """What the exchange table says of `value`. Raises what torch has against that."""
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    prototype(exchange.dltensor_from_py_object_no_sync)(value, ctypes.addressof(tensor))


def check(value: torch.Tensor) -> None:
    """Raises what torch has against describing `value`."""
    if exchange is None:
        fill_slot(value, Slot())
    else:
        describe(value, _abi.DLTensor())


def _raw_stream_function() -> Any:
    # What torch's own generated code uses (torch/_inductor); the public way makes a Stream object for every call.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)


raw_stream = _raw_stream_function()
current_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device
on_device = torch.cuda.device
empty_strided = torch.empty_strided


def num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
