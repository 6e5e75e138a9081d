# SPDX-License-Identifier: MIT
"""torch tensors, without capsules: imported when a call is given one.

Newer versions of torch.Tensor offer DLPack's C exchange table (https://github.com/pytorch/pytorch/pull/165483), whose
dltensor_from_py_object_no_sync writes a DLTensor that refers to the tensor's own sizes and strides: no Python object
is made. With an older torch the same struct is filled from data_ptr(), shape and stride().
"""
from __future__ import annotations

import ctypes
import sys

import torch

from . import _abi, _library
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


def fill_slots(tensors: tuple, slots: list) -> None:
    for value, slot in zip(tensors, slots):
        fill_slot(value, slot)


def _exchange_function() -> Optional[int]:
    """Address of torch's dltensor_from_py_object_no_sync; None if this torch has none."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None or isinstance(capsule, int):
        return None
    table = _abi.DLPackExchangeAPI.from_address(capsule_pointer(capsule, b"dlpack_exchange_api"))
    if table.version.major != 1:
        return None
    # CPython alone has its tuples' items where FIRST_ITEM says.
    probe = (torch.Tensor, None)
    if ctypes.c_void_p.from_address(id(probe) + FIRST_ITEM).value != id(torch.Tensor):
        return None
    return table.dltensor_from_py_object_no_sync


# CPython's tuples end in an array of pointers to their items (Include/cpython/tupleobject.h), which is what C wants.
# What comes before it is what a tuple's type gives as its size.
FIRST_ITEM = tuple.__basicsize__

exchange = _exchange_function() if sys.implementation.name == "cpython" else None


def _describe_function() -> Any:
    """attns_describe_tensors, holding the GIL and raising the Python exception that torch has set."""
    prototype = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    return prototype(("attns_describe_tensors", _library.load()))


describe: Any = None  # once there are slots


def new_slots(count: int) -> Tuple[Any, list, Any]:
    """What describes `count` tensors: slots, the addresses of their DLTensors, and what `describe` takes, which is None
    without an exchange table: then fill_slots does it."""
    global describe
    if exchange is None:
        slots = [Slot() for _ in range(count)]
        return slots, [slot.address for slot in slots], None
    if describe is None:
        describe = _describe_function()
    tensors = (_abi.DLTensor * count)()
    first = ctypes.addressof(tensors)
    request = _abi.attns_describe_params(exchange, first, count)
    # Both live as long as the first of the results.
    return ((tensors, request), [first + n * ctypes.sizeof(_abi.DLTensor) for n in range(count)],
            ctypes.c_void_p(ctypes.addressof(request)))


def check(value: torch.Tensor) -> None:
    """Raises what torch has against describing `value`."""
    slots, _, request = new_slots(1)
    if request is None:
        fill_slots((value,), slots)
    else:
        given = (value,)
        describe(request, id(given) + FIRST_ITEM)


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
