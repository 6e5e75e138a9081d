# SPDX-License-Identifier: MIT
"""torch tensors, without capsules: imported when a call is given one.

Newer versions of torch.Tensor offer DLPack's C exchange table (https://github.com/pytorch/pytorch/pull/165483), whose
dltensor_from_py_object_no_sync writes a DLTensor that refers to the tensor's own sizes and strides: no Python object
is made. With an older torch the same struct is filled from data_ptr(), shape and stride().
"""
import ctypes
from typing import Any, Dict, Optional, Tuple

import torch

from . import _abi
from .errors import InvalidArgumentError

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


def fill_slot(value: torch.Tensor, slot: Slot) -> int:
    """Describes `value` in `slot`. Only the address is new where nothing else has changed since the last time."""
    signature = (value.shape, value.stride(), value.dtype, value.device)
    if slot.signature != signature:
        _describe(slot, *signature)
        slot.signature = signature
    slot.tensor.data = value.data_ptr()
    return 0


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


class CSlot:
    """A DLTensor that torch's C function fills; `reference` is what that function is given."""

    __slots__ = ("tensor", "reference")

    def __init__(self) -> None:
        self.tensor = _abi.DLTensor()
        self.reference = ctypes.c_void_p(self.address)  # quicker to pass than byref

    @property
    def address(self) -> int:
        return ctypes.addressof(self.tensor)


def _exchange_function() -> Any:
    """torch's dltensor_from_py_object_no_sync, None if this torch has none."""
    from ._dlpack import capsule_pointer

    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None or isinstance(capsule, int):
        return None
    table = _abi.DLPackExchangeAPI.from_address(capsule_pointer(capsule, b"dlpack_exchange_api"))
    if table.version.major != 1 or not table.dltensor_from_py_object_no_sync:
        return None
    # Holds the GIL, and raises the Python exception that a failed call has set.
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    return prototype(table.dltensor_from_py_object_no_sync)


exchange = _exchange_function()


def new_slots(count: int) -> Tuple[list, tuple]:
    """Slots for `count` tensors, and what `fill` takes for each of them."""
    if exchange is not None:
        slots = [CSlot() for _ in range(count)]
        return slots, tuple(slot.reference for slot in slots)
    plain = [Slot() for _ in range(count)]
    return plain, tuple(plain)


fill = fill_slot if exchange is None else exchange


def _raw_stream_function() -> Any:
    # What torch's own generated code uses (torch/_inductor); the public way makes a Stream object for every call.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)


raw_stream = _raw_stream_function()
current_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device
on_device = torch.cuda.device


def num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
