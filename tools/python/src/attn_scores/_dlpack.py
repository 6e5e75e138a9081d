# SPDX-License-Identifier: MIT
"""Borrows the memory of any object that speaks DLPack, without a copy.

The protocol: https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html and
DLPack's python_spec. A capsule is read and never consumed: whoever made it frees it when it goes away.
"""
from __future__ import annotations

import ctypes

from . import _abi
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

MAX_VERSION = (1, 3)


def not_a_tensor(name: str, value: Any) -> TypeError:
    return TypeError(
        f"{name}: is of type {type(value).__name__}, accepted: a torch tensor or an object with __dlpack__")


def _capsule(value: Any, name: str, stream: int) -> Any:
    try:
        export, device = value.__dlpack__, value.__dlpack_device__
    except AttributeError:
        raise not_a_tensor(name, value) from None
    arguments = {}
    if device()[0] in (_abi.DL_CUDA, _abi.DL_CUDA_MANAGED):
        # 0 is not allowed, as it could be either default stream; 1 is the legacy one.
        arguments["stream"] = stream or 1
    try:
        try:
            return export(max_version=MAX_VERSION, copy=False, **arguments)
        except TypeError:  # a producer of before DLPack 1.0
            return export(**arguments)
    except (BufferError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: cannot be read in place: {error}") from error


def borrow(value: Any, name: str, stream: int, writable: bool) -> Tuple[Any, _abi.DLTensor]:
    """The DLTensor of `value`, valid as long as the first object returned lives. `stream` is the handle of the stream
    that will use the memory (0: legacy default); the producer makes its own work precede it there."""
    capsule = _capsule(value, name, stream)
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _abi.DLManagedTensorVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        if managed.version.major != MAX_VERSION[0]:
            raise InvalidArgumentError(
                f"{name}: is DLPack {managed.version.major}.{managed.version.minor}, accepted: version 1 or older")
        if managed.flags & _abi.FLAG_IS_COPIED:
            raise InvalidArgumentError(f"{name}: its __dlpack__ made a copy, accepted: memory used in place")
        if writable and managed.flags & _abi.FLAG_READ_ONLY:
            raise InvalidArgumentError(f"{name}: is read-only, accepted: memory that may be written")
        return capsule, managed.dl_tensor
    if _is_valid(capsule, b"dltensor"):
        return capsule, _abi.DLManagedTensor.from_address(capsule_pointer(capsule, b"dltensor")).dl_tensor
    raise InvalidArgumentError(
        f"{name}: its __dlpack__ returned a {type(capsule).__name__}, accepted: an unused DLPack capsule")
