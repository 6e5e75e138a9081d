# SPDX-License-Identifier: MIT
"""One call of the C library: tensors and options into a params struct, the status out as an exception.

Calls whose tensors are all torch.Tensors take a path that does as little in Python as it can: params structs with
their DLTensors are kept and reused, one call into C does the rest, and options are looked at only where they differ from
those of the call before. Everything else goes through __dlpack__, or a tensor subclass's own methods.
"""
from __future__ import annotations

import ctypes
import sys

from . import _abi, _context, _library
from ._dlpack import borrow, not_a_tensor
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

Tensor: Any = None  # torch.Tensor, once a call has been given one
torch_side: Any = None  # the module _torch, likewise


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, subclasses included. Does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def load_torch() -> Any:
    """The module _torch."""
    global Tensor, torch_side
    if torch_side is None:
        from . import _torch

        torch_side, Tensor = _torch, _torch.torch.Tensor
    return torch_side


def is_first_torch(values: tuple) -> bool:
    """Whether one of `values` is the first torch tensor ever. Then `Tensor` and `torch_side` are set."""
    if Tensor is not None or not any(map(is_torch, values)):
        return False
    load_torch()
    return True


class Call:
    """A function of the library that takes (context, params, stream).

    Args:
        name: of the C function.
        struct: its params struct.
        tensors: the fields that a call gives tensors for, in the order of its arguments.
        options: the other fields, likewise.
        outputs: those of `tensors` that are written.
        names: what Python calls the tensors, where that differs.
        convert: makes the values of `options` out of the options that the caller gives; raises what is wrong with them.
    """

    def __init__(self, name: str, struct: Any, tensors: Tuple[str, ...], options: Tuple[str, ...],
                 outputs: Tuple[str, ...], names: Optional[Dict[str, str]] = None,
                 convert: Callable[[tuple], tuple] = tuple) -> None:
        self.name, self.struct = name, struct
        self.tensors, self.options, self.outputs = tensors, options, outputs
        self.names = names or {}
        self.convert = convert
        self.function: Any = None  # of the library, once run_any needs it
        self.idle: list = []  # frames of the module _torch; pop and append are atomic

    def run(self, context: Optional[_context.Context], tensors: tuple, options: tuple, stream: Optional[int]) -> Any:
        """Raises what the library has against the arguments, or what went wrong. `stream` is a CUstream handle; None:
        torch's current one for torch tensors, else the legacy default stream. Returns the last of `tensors`, or the
        part of it that was written."""
        # In one piece, because a call of a Python function costs as much as most of these lines.
        for value in tensors:
            if type(value) is not Tensor:
                return self.run_other(context, tensors, options, stream)
        try:
            frame = self.idle.pop()
        except IndexError:
            frame = self._new_frame()
        if frame.options != options or type(options[0]) is not frame.first_type:  # 1.0 equals 1
            self.set_options(frame, options)
        handle = (context or _context._default or _context.default_context()).handle
        if handle is not frame.handle or stream is not frame.stream:
            frame.bind(handle, stream)
        try:
            status = frame.invoke(*tensors)
        except Exception as error:
            self._explain(tensors, error)
        self.idle.append(frame)
        if status:
            return self.ended(status, context, tensors, options, stream)
        return tensors[-1]

    def _new_frame(self) -> Any:
        return torch_side.new_frame(self.name, self.struct, self.tensors)

    def set_options(self, frame: Any, options: tuple) -> None:
        """Writes options into a frame that holds others."""
        self.write_options(frame.params, self.convert(options))
        frame.options, frame.first_type = options, type(options[0])

    def ended(self, status: int, context: Optional[_context.Context], tensors: tuple, options: tuple,
              stream: Optional[int]) -> Any:
        """What a call with a status other than ATTNS_OK returns or raises."""
        device = tensors[0].get_device()
        if device >= 0 and device != torch_side.current_device():  # a default stream is that of the current device
            with torch_side.on_device(device):
                return self.run(context, tensors, options, stream)
        _library.raise_status(status)

    def _explain(self, tensors: tuple, error: Exception) -> None:
        """Raises `error`, which torch has for one of the tensors, with the name of that one."""
        for field, value in zip(self.tensors, tensors):
            try:
                torch_side.check(value)
            except Exception as cause:
                name = self.names.get(field, field)
                raise InvalidArgumentError(f"{name}: cannot be read in place: {cause}") from error
        raise error

    def write_options(self, params: Any, values: tuple) -> None:
        for name, value in zip(self.options, values):
            try:
                setattr(params, name, value)
            except TypeError as error:
                raise TypeError(f"{name}: is {value!r}, accepted: a number ({error})") from None

    def run_other(self, context: Optional[_context.Context], tensors: tuple, options: tuple,
                  stream: Optional[int]) -> Any:
        """The call where a tensor is no torch.Tensor, or of a subclass; and the first one with torch."""
        if is_first_torch(tensors):
            return self.run(context, tensors, options, stream)
        self.run_any(context, tensors, options, stream)
        return tensors[-1]

    def run_any(self, context: Optional[_context.Context], tensors: tuple, options: tuple, stream: Optional[int],
                adjust: Optional[Callable[[Dict[str, _abi.DLTensor]], None]] = None) -> None:
        """The same for any objects. `adjust` may change the DLTensors, which are copies."""
        params = self.struct()
        self.write_options(params, self.convert(options))
        guard = None
        if stream is None:
            device = next((value.get_device() for value in tensors if is_torch(value)), -1)
            stream = 0
            if device >= 0:
                torch = load_torch()
                stream, guard = torch.raw_stream(device), torch.on_device(device)
        alive, described = [], {}  # owners of the memory, DLTensors
        for field, value in zip(self.tensors, tensors):
            owner, tensor = self._borrow(field, value, stream)
            described[field] = _abi.DLTensor.from_buffer_copy(tensor)
            alive.append(owner)
            setattr(params, field, ctypes.addressof(described[field]))
        if adjust is not None:
            adjust(described)
        if self.function is None:
            self.function = getattr(_library.load(), self.name)
        handle = (context or _context.default_context()).handle
        if guard is None:
            status = self.function(handle, ctypes.byref(params), stream)
        else:
            with guard:
                status = self.function(handle, ctypes.byref(params), stream)
        if status:
            _library.raise_status(status)

    def _borrow(self, field: str, value: Any, stream: int) -> Tuple[Any, _abi.DLTensor]:
        name = self.names.get(field, field)
        if value is None:
            raise not_a_tensor(name, value)
        if is_torch(value):
            torch = load_torch()
            slot = torch.Slot()
            try:
                torch.fill_slot(value, slot)
            except Exception as error:
                raise InvalidArgumentError(f"{name}: cannot be read in place: {error}") from error
            return (value, slot), slot.tensor
        return borrow(value, name, stream, field in self.outputs)
